"""Homes with agents in the scripted program: one for all tests of a file that kill nothing, and one of its own."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from fencepost.client import Channels
from fencepost.home import MAILBOX, PROVIDERS, SESSIONS
from fencepost_testing.carried import QUICK, Carried, a_carrying_home
from fencepost_testing.processes import Services, short_home


@pytest.fixture(scope="module")
def shared_services() -> Iterator[Services]:
    """The services, started once."""
    with short_home() as home:
        running = Services(home, env=QUICK)
        try:
            asyncio.run(running.start(SESSIONS, MAILBOX, PROVIDERS))
            yield running
        finally:
            running.close()
            running.print_logs()


@pytest.fixture
async def carried(shared_services: Services) -> AsyncIterator[Carried]:
    """A project of its own in the shared home."""
    async with Channels(shared_services.home) as channels:
        made = Carried(shared_services, channels)
        await made.start(f"work-{uuid.uuid4().hex[:8]}")
        yield made


@pytest.fixture
async def fragile() -> AsyncIterator[Carried]:
    """A home of its own, in which services may be killed."""
    async with a_carrying_home() as made:
        yield made
