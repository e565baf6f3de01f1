"""The backends over which the store's contract is tested. A second one joins the list and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost_testing.mailboxes import Desk, a_desk

BACKENDS = ("sqlite",)


@pytest.fixture(params=BACKENDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where the backend keeps its data."""
    return tmp_path / "mailbox" / f"mailbox.{request.param}"


@pytest.fixture
async def desk(place: Path) -> AsyncIterator[Desk]:
    """Every use case over a fresh store with three agents."""
    async with a_desk(place, "ann", "bob", "cyd") as made:
        yield made
