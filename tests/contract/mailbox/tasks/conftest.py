"""A desk with tasks over each backend."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost_testing.task_desk import TaskDesk, a_task_desk


@pytest.fixture
async def desk(place: Path) -> AsyncIterator[TaskDesk]:
    """Every call of tasks over a fresh store: ann, bob and dan, and cyd who coordinates."""
    async with a_task_desk(place, "ann", "bob", "cyd", "dan") as made:
        yield made
