"""A throw-away home, a mailbox in it that fails on command, and a client with short budgets."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fencepost.client import Budgets, Channels, Mailbox
from fencepost.home import Home
from fencepost_testing.fake_mailbox import TOKEN, FakeMailbox


@pytest.fixture
def home() -> Iterator[Home]:
    # pytest's own temporary folders are too deep for a socket path on some systems.
    folder = Path(tempfile.mkdtemp(prefix="fp"))
    made = Home(folder / "home")
    made.prepare()
    yield made
    shutil.rmtree(folder)


@pytest.fixture
async def fake(home: Home) -> AsyncIterator[FakeMailbox]:
    served = FakeMailbox(home)
    await served.start()
    yield served
    if served.dying is not None:
        await served.dying
    await served.stop()


@pytest.fixture
async def channels(home: Home) -> AsyncIterator[Channels]:
    async with Channels(home) as opened:
        yield opened


@pytest.fixture
def client(channels: Channels) -> Mailbox:
    return Mailbox(channels, TOKEN, budgets=Budgets(ready_ms=2_000, call_ms=2_000, settle_ms=3_000))
