"""Services in processes of their own, started once for all tests of a file, and three people at a shell."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from fencepost.home import MAILBOX, SESSIONS
from fencepost_testing.command import People, Person
from fencepost_testing.processes import Services, home, services, short_home

__all__ = ["home", "services"]


@pytest.fixture(scope="module")
def people() -> Iterator[People]:
    with short_home() as made:
        made.path.mkdir(mode=0o700)
        running = Services(made)
        try:
            asyncio.run(running.start(SESSIONS, MAILBOX))
            operator = Person(services=running)
            ada = operator.creates("ada", "--provider", "codex")
            yield People(services=running, operator=operator, ada=ada, bob=operator.creates("bob"))
        finally:
            running.close()
            running.print_logs()
