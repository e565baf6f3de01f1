"""A carrier in the test's own process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost_testing.carrier_fakes import CarrierBench, a_carrier


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[CarrierBench]:
    async with a_carrier(tmp_path / "h") as made:
        yield made
