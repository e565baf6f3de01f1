"""A desk with contexts, memory and files over each backend."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost_testing.shared_desk import SharedDesk, a_shared_desk


@pytest.fixture
async def desk(place: Path) -> AsyncIterator[SharedDesk]:
    """Every call over a fresh store: ann, bob and dan, and cyd who coordinates."""
    async with a_shared_desk(place, "ann", "bob", "cyd", "dan") as made:
        yield made
