"""Two agents, each behind the official MCP client and a shim of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from mcp import Client
from mcp.client.stdio import StdioServerParameters

from fencepost_testing.processes import KnownAgent, Services, create_agents
from fencepost_testing.shim import Shim, environment, running_shim

ANSWER_S_MAX = 75.0


class Agent:
    """What an agent's model can do: call tools, and read results."""

    def __init__(self, known: KnownAgent, client: Client) -> None:
        self.known = known
        self.client = client

    async def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its structured result; fail where it is an error."""
        is_error, told = await self.attempt(name, **arguments)
        assert not is_error, told
        return told

    async def refused(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its error; fail where it is none."""
        is_error, told = await self.attempt(name, **arguments)
        assert is_error, told
        assert set(told) - {"state"} == {"code", "message", "hint", "written"}
        return told

    async def attempt(self, name: str, /, **arguments: Any) -> tuple[bool, dict[str, Any]]:
        result = await self.client.call_tool(name, arguments)
        assert len(result.content) == 1
        text = result.content[0].text  # type: ignore[union-attr]
        told: dict[str, Any] = json.loads(text)
        assert result.structured_content == told
        return bool(result.is_error), told

    async def inbox(self) -> list[dict[str, Any]]:
        """Every record that the agent has not acknowledged, read page by page."""
        page = await self.call("receive_messages")
        messages: list[dict[str, Any]] = page["messages"]
        while page["has_more"]:
            page = await self.call("receive_messages", cursor=page["next_cursor"])
            messages += page["messages"]
        return messages


async def use_every_tool(ann: Agent, bob: Agent) -> None:
    """Ann and bob list, find and use all seven tools, each for what it is there for."""
    tools = [tool.name for tool in (await ann.client.list_tools()).tools]
    assert len(tools) == 7
    waiting = asyncio.create_task(bob.call("wait_agent"))
    sent = await ann.call("send_message", target="bob", message="the build is green")
    assert (await waiting)["wake_reason"] == "activity"
    asked = await ann.call("followup_task", target=bob.known.agent_id, message="review it")
    page = await bob.call("receive_messages")
    assert page["messages"][0]["interaction_id"] == sent["interaction_id"]
    assert page["messages"][1]["request_id"] == asked["request_id"]
    answered = await bob.call("reply", request_id=asked["request_id"], status="done", message="two remarks")
    assert (await bob.call("receive_messages", ack_cursor=page["ack_cursor"]))["messages"] == []
    assert [message["interaction_id"] for message in await ann.inbox()] == [answered["interaction_id"]]
    assert (await ann.refused("interrupt_agent", target="bob"))["code"] == "unsupported_capability"
    listed = await bob.call("list_agents")
    assert [agent["name"] for agent in listed["agents"]] == ["ann", "bob"]
    assert (await bob.refused("send_message", target="nobody", message="x"))["code"] == "not_found"


@dataclass(frozen=True, kw_only=True)
class World:
    """Services and the agents of one project."""

    services: Services
    ann: KnownAgent
    bob: KnownAgent

    @classmethod
    async def create(cls, services: Services, *, project: str, coordinators: Sequence[str] = ()) -> Self:
        known = await create_agents(services, "ann", "bob", project=project, coordinators=coordinators)
        return cls(services=services, ann=known["ann"], bob=known["bob"])

    def variables(self, known: KnownAgent) -> dict[str, str]:
        """What an agent program's configuration sets for its server."""
        return {"FENCEPOST_HOME": self.services.home.text, "FENCEPOST_SESSION_ID": known.agent_id}

    @asynccontextmanager
    async def agent(
        self, known: KnownAgent, *, mode: str = "legacy", cwd: Path | None = None, **variables: str
    ) -> AsyncIterator[Agent]:
        """The agent, behind the official client: in its handshake mode, or speaking a version, or finding out."""
        server = StdioServerParameters(
            command=sys.executable,
            args=["-P", "-m", "fencepost.mcp.shim"],
            env={**self.variables(known), **variables},
            cwd=cwd,
        )
        async with Client(server, mode=mode, read_timeout_seconds=ANSWER_S_MAX) as client:
            yield Agent(known, client)

    @asynccontextmanager
    async def both(self, *, mode: str = "legacy") -> AsyncIterator[tuple[Agent, Agent]]:
        async with self.agent(self.ann, mode=mode) as ann, self.agent(self.bob, mode=mode) as bob:
            yield ann, bob

    @asynccontextmanager
    async def shim(self, known: KnownAgent) -> AsyncIterator[Shim]:
        """The agent's shim, spoken to by hand."""
        async with running_shim(env=environment(**self.variables(known))) as shim:
            await shim.greet()
            yield shim
