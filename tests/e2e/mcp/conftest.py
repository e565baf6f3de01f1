"""The official MCP client, the real shim, the real services."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

from fencepost.home import MAILBOX, MCP_EDGE, SESSIONS
from fencepost_testing.agents import World
from fencepost_testing.processes import Services, short_home

_projects = itertools.count(1)


@pytest.fixture(scope="module")
def running() -> Iterator[Services]:
    """The services of one home, shared by the tests of a module; each test has a project of its own in it."""
    with short_home() as home:
        services = Services(home)
        try:
            asyncio.run(services.start(SESSIONS, MAILBOX, MCP_EDGE))
            yield services
        finally:
            services.close()


@pytest.fixture
async def world(running: Services, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """Two agents, ann and bob, in a project of their own."""
    made = await World.create(running, project=f"p{next(_projects)}")
    failed_before = request.session.testsfailed
    yield made
    if request.session.testsfailed > failed_before:
        running.print_logs()


@pytest.fixture
async def fragile_world(world: World) -> AsyncIterator[World]:
    """The same, whose services the test may kill: they are put right behind it."""
    yield world
    for name in (SESSIONS, MAILBOX, MCP_EDGE):
        if not world.services.is_alive(name):
            await world.services.start(name)
