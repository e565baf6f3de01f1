"""An edge in the test's own loop, before a mailbox that fails on command."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fencepost.client import Channels
from fencepost.home import Home
from fencepost_mcp_edge.shims import Limits, Shims
from fencepost_testing.edge import EdgeClient
from fencepost_testing.fake_mailbox import FakeMailbox


@pytest.fixture
def home() -> Iterator[Home]:
    # pytest's own temporary folders are too deep for a socket path on some systems.
    with tempfile.TemporaryDirectory(prefix="fp", ignore_cleanup_errors=True) as folder:
        made = Home(Path(folder) / "h")
        made.prepare()
        yield made


@pytest.fixture
async def fake(home: Home) -> AsyncIterator[FakeMailbox]:
    served = FakeMailbox(home)
    await served.start()
    yield served
    if served.dying is not None:
        await served.dying
    await served.stop()


@pytest.fixture
def limits() -> Limits:
    return Limits(page_bytes_max=24 * 1024, connections_max=3, calls_in_flight_max=3)


@pytest.fixture
async def shims(home: Home, limits: Limits) -> AsyncIterator[Shims]:
    async with Channels(home) as channels:
        served = Shims(home=home, channels=channels, limits=limits)
        await served.start()
        yield served
        await served.stop()


@pytest.fixture
async def edge(home: Home, shims: Shims, fake: FakeMailbox) -> AsyncIterator[EdgeClient]:
    async with EdgeClient(home) as client:
        await client.greet()
        yield client
