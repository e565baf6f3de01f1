"""The official client over HTTP, the real edge, the real services."""

from __future__ import annotations

import asyncio
import itertools
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from fencepost.home import MAILBOX, MCP_EDGE, SESSIONS, read_credential
from fencepost.mcp import profiles, registry
from fencepost.sessions.v1 import sessions_pb2
from fencepost.sessions.v1.sessions_pb2_grpc import SessionsServiceStub
from fencepost_testing.agents import ANSWER_S_MAX, Agent, World, use_every_tool
from fencepost_testing.posting import modern, post, request, routing
from fencepost_testing.processes import KnownAgent, Services, bearer, short_home

_projects = itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class Served:
    """Services whose edge has a port."""

    services: Services
    port: int

    @asynccontextmanager
    async def agent(self, known: KnownAgent, mode: str, query: str = "") -> AsyncIterator[Agent]:
        """The agent, behind the official client that was given a URL and a credential."""
        headers = {"Authorization": f"Bearer {known.token}"}
        async with create_mcp_http_client(headers=headers) as http:
            transport = streamable_http_client(f"http://127.0.0.1:{self.port}/mcp{query}", http_client=http)
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


async def _stored(services: Services, known: KnownAgent, profile: str) -> None:
    async with services.channel(SESSIONS) as channel:
        await SessionsServiceStub(channel).UpdateAgent(
            sessions_pb2.UpdateAgentRequest(
                idempotency_key=uuid.uuid4().hex,
                agent_id=known.agent_id,
                launch=sessions_pb2.LaunchSettings(tools_profile=profile),
            ),
            metadata=bearer(read_credential(services.home.operator_credential)),
            timeout=10,
        )


@pytest.mark.requirement("tools.stored-profile", "tools.profiles")
async def test_what_is_stored_bounds_every_server_of_an_agent_from_its_next_call_on(
    served: Served, world: World
) -> None:
    mode = "legacy"
    families = {tool.name: tool.family for tool in registry.EVERY}

    async def posted() -> set[str]:
        """What a client of the other era is told, which may keep it for a while."""
        ask = modern("tools/list")
        answer = await post(
            served.port, ask, path="/mcp?tools=all", **{**routing(ask), "authorization": f"Bearer {world.ann.token}"}
        )
        return {families[tool["name"]] for tool in answer.json()["result"]["tools"]}

    async def listed(agent: Agent) -> set[str]:
        names = [tool.name for tool in (await agent.client.list_tools()).tools]
        return {families[registry.plain_name(name)] for name in names}

    async with (
        world.agent(world.ann, mode=mode, FENCEPOST_TOOLS="all") as shim,
        served.agent(world.ann, mode, "?tools=all&names=warp") as url,
        served.agent(world.bob, mode) as bob,
    ):
        assert await listed(shim) == await listed(url) == set(profiles.FAMILIES)
        assert await listed(bob) == {"messaging"}
        await _stored(served.services, world.ann, "tasks,context")
        assert await listed(shim) == await listed(url) == await posted() == {"tasks", "context"}
        assert (await shim.call("agent_ready"))["acknowledged"] is True
        assert (await url.call("warp_project_bootstrap"))["agent_count"] == 2
        for agent, name in [(shim, "list_agents"), (url, "list_agents"), (url, "agent_ready"), (bob, "agent_ready")]:
            with pytest.raises(MCPError, match=f"unknown tool {name}"):
                await agent.call(name)
        await _stored(served.services, world.ann, "off")
        assert await listed(shim) == await listed(url) == await posted() == set()
        with pytest.raises(MCPError, match="this server offers no tools"):
            await shim.call("agent_ready")
        await _stored(served.services, world.ann, "")
        assert len((await shim.call("list_agents"))["agents"]) == 2


@pytest.mark.requirement("tools.files-are-named-where-they-are")
async def test_without_a_shim_files_are_those_of_the_agents_project(served: Served, world: World) -> None:
    async with served.agent(world.ann, "2026-07-28", "?tools=files") as ann:
        held = await ann.call("file_reserve", file_path="src/../a.py")
        assert (held["file_path"], held["reserved"]) == ("a.py", True)
        assert (await ann.refused("file_check", file_path="../b.py"))["code"] == "outside_checkout"


@pytest.mark.requirement("tools.profiles")
@pytest.mark.parametrize("query", ["?tools=every", "?tools=", "?names=x", "?more=1", "?tools=all&tools=off", "?tools"])
async def test_an_address_that_asks_for_what_there_is_not_is_turned_away(served: Served, query: str) -> None:
    listed = modern("tools/list")
    told = await post(served.port, listed, path=f"/mcp{query}", **routing(listed))
    assert told.status == 400
