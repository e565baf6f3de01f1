"""A throw-away home, a mailbox in it that fails on command, and a client with short budgets."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fencepost.client import Budgets, Channels, Mailbox
from fencepost.home import Home
from fencepost.transports import TRANSPORTS, TransportName
from fencepost_testing.fake_mailbox import TOKEN, FakeMailbox
from fencepost_testing.processes import long_home_and_runtime


@pytest.fixture
def home() -> Iterator[Home]:
    # pytest's own temporary folders are too deep for a socket path on some systems.
    folder = Path(tempfile.mkdtemp(prefix="fp"))
    made = Home(folder / "home")
    made.prepare()
    yield made
    shutil.rmtree(folder)


@pytest.fixture
def long_home_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Home, Path]]:
    """A home over the socket limit, and the runtime folder that the environment names."""
    with long_home_and_runtime() as (home, runtime):
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
        yield home, runtime


@pytest.fixture
def long_home(long_home_in: tuple[Home, Path]) -> Home:
    """A home over the socket limit."""
    return long_home_in[0]


@pytest.fixture
def runtime(long_home_in: tuple[Home, Path]) -> Path:
    """Its runtime folder."""
    return long_home_in[1]


@pytest.fixture
async def fake(home: Home) -> AsyncIterator[FakeMailbox]:
    served = FakeMailbox(home)
    await served.start()
    yield served
    if served.dying is not None:
        await served.dying
    await served.stop()


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> TransportName:
    """Every transport: what uses this, or a channel, is proved of each."""
    named: TransportName = request.param
    return named


@pytest.fixture
async def channels(home: Home, transport: TransportName) -> AsyncIterator[Channels]:
    async with Channels(home, transport=transport) as opened:
        yield opened


@pytest.fixture
def client(channels: Channels) -> Mailbox:
    return Mailbox(channels, TOKEN, budgets=Budgets(ready_ms=2_000, call_ms=2_000, settle_ms=3_000))
