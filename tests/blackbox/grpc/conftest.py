"""A blocking gRPC client of pytest-grpc against running processes.

Its own server answers blocking servicers only, and its fake server does not know current stubs, so two of its fixtures
are replaced here: `grpc_server` is the services of a home, `grpc_addr` what the mailbox has published. Channel and stub
remain its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from fencepost.home import MAILBOX, SESSIONS, read_address
from fencepost.mailbox.v1.mailbox_pb2_grpc import MailboxServiceStub
from fencepost_testing.processes import KnownAgent, Services, create_agents, short_home


@pytest.fixture(scope="module")
def grpc_server() -> Iterator[Services]:
    """The services, each a process of its own."""
    with short_home() as home:
        running = Services(home)
        try:
            asyncio.run(running.start(SESSIONS, MAILBOX))
            yield running
        finally:
            running.close()
            running.print_logs()


@pytest.fixture(scope="module")
def grpc_addr(grpc_server: Services) -> str:
    address = read_address(grpc_server.home.address(MAILBOX))
    assert address is not None, grpc_server.log(MAILBOX)
    return address


@pytest.fixture(scope="module")
def grpc_stub_cls() -> type[MailboxServiceStub]:
    return MailboxServiceStub


@pytest.fixture(scope="module")
def agents(grpc_server: Services) -> dict[str, KnownAgent]:
    """Ann and Bob of one project."""
    return asyncio.run(create_agents(grpc_server, "ann", "bob"))
