"""A running service over a throw-away home."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from fencepost.home import Home
from fencepost_testing.processes import short_home
from fencepost_testing.sessions_service import Running


@pytest.fixture
def home() -> Iterator[Home]:
    with short_home() as made:
        yield made


@pytest.fixture
async def running(home: Home) -> AsyncIterator[Running]:
    service = Running(home)
    await service.start()
    yield service
    await service.stop()
    assert not service.fatal
