"""A desk with threads over each backend."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost_testing.thread_desk import ThreadDesk, a_thread_desk


@pytest.fixture
async def desk(place: Path) -> AsyncIterator[ThreadDesk]:
    """Every call of threads and tasks over a fresh store: ann, bob and dan, and cyd who coordinates."""
    async with a_thread_desk(place, "ann", "bob", "cyd", "dan") as made:
        yield made
