"""A home whose services run, two agents of it, and a real sshd that stands for another machine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from fencepost.home import MAILBOX, MCP_EDGE, SESSIONS
from fencepost_testing.command import People, Person
from fencepost_testing.processes import Services, short_home
from fencepost_testing.sshd import Remote, running_sshd, what_is_missing


@pytest.fixture(scope="module")
def remote() -> Iterator[Remote]:
    missing = what_is_missing()
    if missing:
        pytest.skip(f"left out: {missing}")
    with running_sshd() as made:
        missing = made.what_keeps_us_out()
        if missing:
            pytest.skip(f"left out: {missing}")
        yield made


@pytest.fixture(scope="module")
def people() -> Iterator[People]:
    missing = what_is_missing()
    if missing:
        pytest.skip(f"left out: {missing}")
    with short_home() as made:
        made.path.mkdir(mode=0o700)
        running = Services(made)
        try:
            asyncio.run(running.start(SESSIONS, MAILBOX, MCP_EDGE))
            operator = Person(services=running)
            yield People(services=running, operator=operator, ada=operator.creates("ada"), bob=operator.creates("bob"))
        finally:
            running.close()
            running.print_logs()
