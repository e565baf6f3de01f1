"""The official client over HTTP, the real edge, the real services."""

from __future__ import annotations

import asyncio
import itertools
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from fencepost.home import MAILBOX, MCP_EDGE, SESSIONS
from fencepost_testing.agents import ANSWER_S_MAX, Agent, World, use_every_tool
from fencepost_testing.posting import modern, post, request, routing
from fencepost_testing.processes import KnownAgent, Services, short_home

_projects = itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class Served:
    """Services whose edge has a port."""

    services: Services
    port: int

    @asynccontextmanager
    async def agent(self, known: KnownAgent, mode: str) -> AsyncIterator[Agent]:
        """The agent, behind the official client that was given a URL and a credential."""
        headers = {"Authorization": f"Bearer {known.token}"}
        async with create_mcp_http_client(headers=headers) as http:
            transport = streamable_http_client(f"http://127.0.0.1:{self.port}/mcp", http_client=http)
            async with Client(transport, mode=mode, read_timeout_seconds=ANSWER_S_MAX) as client:
                yield Agent(known, client)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with short_home() as home:
        services = Services(home, env={"FENCEPOST_MCP_EDGE_HTTP_PORT": str(port)})
        try:
            asyncio.run(_started(services))
            yield Served(services=services, port=port)
        finally:
            services.close()


async def _started(services: Services) -> None:
    await services.start(SESSIONS, MAILBOX, MCP_EDGE)


@pytest.fixture
async def world(served: Served) -> World:
    return await World.create(served.services, project=f"h{next(_projects)}")


@pytest.mark.requirement("e2e.official-client-in-both-eras", "http.both-eras")
@pytest.mark.parametrize(
    ("mode", "version"), [("legacy", "2025-11-25"), ("2026-07-28", "2026-07-28"), ("auto", "2026-07-28")]
)
async def test_the_official_client_uses_every_tool_through_a_url(
    served: Served, world: World, mode: str, version: str
) -> None:
    async with served.agent(world.ann, mode) as ann, served.agent(world.bob, mode) as bob:
        assert ann.client.protocol_version == version
        await use_every_tool(ann, bob)


@pytest.mark.requirement("http.waits-show-signs-of-life")
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_wait_that_became_a_stream_ends_in_its_answer(served: Served, world: World, mode: str) -> None:
    async with served.agent(world.ann, mode) as ann:
        assert (await ann.call("wait_agent", timeout_ms=2_500))["timed_out"] is True


@pytest.mark.requirement("http.every-request-brings-a-credential")
async def test_a_credential_that_nobody_minted_reaches_discovery_and_nothing_else(served: Served, world: World) -> None:
    stranger = "Bearer fp_" + "Z" * 43
    listed = modern("tools/list")
    assert (await post(served.port, listed, authorization=stranger, **routing(listed))).status == 200
    for name, arguments in [("send_message", {"target": "bob", "message": "x"}), ("list_agents", {})]:
        call = request("tools/call", {"name": name, "arguments": arguments})
        told: dict[str, Any] = (await post(served.port, call, authorization=stranger)).json()["result"]
        assert (told["isError"], told["structuredContent"]["code"]) == (True, "unauthenticated")
    async with world.agent(world.bob) as bob:
        assert await bob.inbox() == []


@pytest.mark.requirement("http.drains")
async def test_a_stop_of_the_edge_ends_a_wait_in_time_and_the_port_is_served_again(
    served: Served, world: World
) -> None:
    services = served.services
    async with served.agent(world.ann, "2026-07-28") as ann, world.agent(world.bob) as bob:
        waiting = asyncio.create_task(ann.attempt("wait_agent"))
        async with asyncio.timeout(10):
            while (await bob.call("list_agents"))["agents"][0]["status"] != "waiting":
                pass
        services.signal(MCP_EDGE, signal.SIGTERM)
        is_error, told = await waiting
        assert (is_error, told["code"], told["written"]) == (True, "draining", False)
        assert await asyncio.to_thread(services.join, MCP_EDGE) == 0
        await services.start(MCP_EDGE)
        assert (await ann.call("wait_agent", timeout_ms=0))["timed_out"] is True
