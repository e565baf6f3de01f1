"""What a model sees when the services behind its tools are killed, stopped and started again."""

from __future__ import annotations

import asyncio
import signal
import uuid

import pytest

from fencepost.home import MAILBOX, MCP_EDGE, SESSIONS
from fencepost_testing.agents import World

GONE_S_MAX = 15.0


async def gone(world: World, name: str) -> None:
    """Return once a service has died, joined."""
    async with asyncio.timeout(GONE_S_MAX):
        await asyncio.to_thread(world.services.join, name)


@pytest.mark.requirement("mcp.lost-edge-settles")
async def test_an_edge_killed_after_the_store_wrote_costs_nothing_but_time(fragile_world: World) -> None:
    services = fragile_world.services
    await services.restart(MCP_EDGE, env={"FENCEPOST_FAULTS": "mcp_edge.call.after=kill@2"})
    async with fragile_world.both() as (ann, bob):
        await ann.call("send_message", target="bob", message="first")
        lost = asyncio.create_task(ann.call("followup_task", target="bob", message="second"))
        await gone(fragile_world, MCP_EDGE)
        await services.start(MCP_EDGE)
        receipt = await lost
        assert receipt["request_id"].startswith("ask_")
        assert [message["message"] for message in await bob.inbox()] == ["first", "second"]
        await ann.call("send_message", target="bob", message="third")


@pytest.mark.requirement("mcp.lost-edge-settles")
async def test_an_edge_killed_before_it_called_the_store_leaves_a_call_that_may_be_made_again(
    fragile_world: World,
) -> None:
    services = fragile_world.services
    await services.restart(MCP_EDGE, env={"FENCEPOST_FAULTS": "mcp_edge.call.before=kill"})
    async with fragile_world.both() as (ann, bob):
        lost = asyncio.create_task(ann.refused("send_message", target="bob", message="lost"))
        await gone(fragile_world, MCP_EDGE)
        await services.start(MCP_EDGE)
        told = await lost
        assert (told["code"], told["written"]) == ("not_written", False)
        await ann.call("send_message", target="bob", message="again")
        assert [message["message"] for message in await bob.inbox()] == ["again"]


@pytest.mark.requirement("edge.drains")
async def test_a_stop_of_the_edge_is_invisible_to_a_wait(fragile_world: World) -> None:
    services = fragile_world.services
    async with fragile_world.both() as (ann, bob):
        waiting = asyncio.create_task(bob.call("wait_agent", timeout_ms=60_000))
        async with asyncio.timeout(10):
            while (await ann.call("list_agents"))["agents"][1]["status"] != "waiting":
                pass
        services.signal(MCP_EDGE, signal.SIGTERM)
        await gone(fragile_world, MCP_EDGE)
        await services.start(MCP_EDGE)
        await ann.call("send_message", target="bob", message="wake")
        assert (await waiting)["wake_reason"] == "activity"


@pytest.mark.requirement("edge.restarts-are-invisible")
async def test_a_killed_mailbox_is_invisible_to_a_wait_and_to_a_send(fragile_world: World) -> None:
    services = fragile_world.services
    async with fragile_world.both() as (ann, bob):
        waiting = asyncio.create_task(bob.call("wait_agent", timeout_ms=60_000))
        await ann.call("list_agents")
        services.kill(MAILBOX)
        sending = asyncio.create_task(ann.call("send_message", target="bob", message="through the gap"))
        await services.start(MAILBOX)
        assert (await sending)["delivery_state"] == "admitted"
        assert (await waiting)["timed_out"] is False
        assert [message["message"] for message in await bob.inbox()] == ["through the gap"]


@pytest.mark.requirement("edge.restarts-are-invisible")
async def test_a_stopped_mailbox_is_invisible_to_a_wait(fragile_world: World) -> None:
    services = fragile_world.services
    async with fragile_world.both() as (ann, bob):
        waiting = asyncio.create_task(bob.call("receive_messages", timeout_ms=60_000))
        async with asyncio.timeout(10):
            while (await ann.call("list_agents"))["agents"][1]["status"] != "waiting":
                pass
        assert await asyncio.to_thread(services.stop, MAILBOX) == 0
        await services.start(MAILBOX)
        await ann.call("send_message", target="bob", message="after the stop")
        page = await waiting
        assert [message["message"] for message in page["messages"]] == ["after the stop"]


@pytest.mark.requirement("edge.restarts-are-invisible")
async def test_agents_write_to_each_other_while_sessions_is_down(fragile_world: World) -> None:
    services = fragile_world.services
    async with fragile_world.both() as (ann, bob):
        await ann.call("send_message", target="bob", message="before")
        services.kill(SESSIONS)
        await ann.call("send_message", target="bob", message="during")
        listing = asyncio.create_task(ann.call("list_agents"))
        await services.start(SESSIONS)
        assert len((await listing)["agents"]) == 2
        assert [message["message"] for message in await bob.inbox()] == ["before", "during"]


@pytest.mark.requirement("edge.presence-is-honest")
async def test_a_listing_without_the_mailbox_says_what_it_does_not_know(fragile_world: World) -> None:
    async with fragile_world.both() as (ann, _):
        await ann.call("list_agents")
        fragile_world.services.kill(MAILBOX)
        listed = (await ann.call("list_agents"))["agents"]
        assert {entry["status"] for entry in listed} == {"unknown"}


WORK = {"to": "bob", "description": "Write it.", "acceptance": "It is there."}


@pytest.mark.requirement("tools.lost-writes-are-settled")
async def test_writes_of_every_family_outlive_an_edge_that_dies_after_they_were_made(fragile_world: World) -> None:
    services = fragile_world.services
    calls: list[tuple[str, dict[str, object]]] = [
        ("task_assign", {**WORK, "request_id": str(uuid.uuid4())}),
        ("context_publish", {"key": "api", "content": "one"}),
        ("file_reserve", {"file_path": "a.py"}),
    ]
    async with fragile_world.agent(fragile_world.ann, FENCEPOST_TOOLS="all") as ann:
        for name, arguments in calls:
            await services.restart(MCP_EDGE, env={"FENCEPOST_FAULTS": "mcp_edge.call.after=kill"})
            lost = asyncio.create_task(ann.call(name, **arguments))
            await gone(fragile_world, MCP_EDGE)
            await services.start(MCP_EDGE)
            assert (await lost)["operation"] == name
        assert len((await ann.call("task_list"))["tasks"]) == 1
        assert (await ann.call("context_get", key="api"))["newest_version"] == 1
        assert len((await ann.call("file_reservations"))["reservations"]) == 1


@pytest.mark.requirement("tools.lost-writes-are-settled")
async def test_a_task_that_an_edge_took_with_it_was_not_written_and_takes_a_new_request_id(
    fragile_world: World,
) -> None:
    services = fragile_world.services
    await services.restart(MCP_EDGE, env={"FENCEPOST_FAULTS": "mcp_edge.call.before=kill"})
    first = str(uuid.uuid4())
    async with fragile_world.agent(fragile_world.ann, FENCEPOST_TOOLS="tasks") as ann:
        lost = asyncio.create_task(ann.refused("task_assign", **WORK, request_id=first))
        await gone(fragile_world, MCP_EDGE)
        await services.start(MCP_EDGE)
        told = await lost
        assert (told["code"], told["written"]) == ("not_written", False)
        assert "with a new request_id" in told["hint"]
        assert (await ann.refused("task_assign", **WORK, request_id=first))["written"] is False
        assert (await ann.call("task_assign", **WORK, request_id=str(uuid.uuid4())))["state"] == "queued"
        assert len((await ann.call("task_list"))["tasks"]) == 1
