"""The carrier on a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fencepost_testing.served_carrier import Served, a_served_carrier


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with a_served_carrier() as made:
        yield made
