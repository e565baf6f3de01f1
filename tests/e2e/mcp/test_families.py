"""Every tool of every family by both of its names, through the official client, its shim and the services."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fencepost.mcp import profiles, registry
from fencepost_testing.agents import Agent, World
from fencepost_testing.processes import Services

_projects = itertools.count(1)
CHANGE = {"operation", "id", "state", "revision", "version", "at", "duplicate", "request_id"}
WORK = {"description": "Write it.", "acceptance": "It is there."}


class Tools:
    """An agent whose tools are called by one set of names. Remembers which were called."""

    def __init__(self, agent: Agent, called: set[str], *, warp: bool) -> None:
        self.agent = agent
        self._names = registry.WARPED if warp else {}
        self._called = called

    async def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        self._called.add(tool)
        told = await self.agent.call(self._names.get(tool, tool), **arguments)
        assert told.pop("operation") == tool
        return told

    async def write(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that writes once per request_id; twice, and the second time it only says what it did."""
        request_id = str(uuid.uuid4())
        told = await self(tool, **arguments, request_id=request_id)
        assert (told["request_id"], told["duplicate"]) == (request_id, False)
        assert await self(tool, **arguments, request_id=request_id) == {**told, "duplicate": True}
        return told

    async def refused(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its error."""
        return await self.agent.refused(self._names.get(tool, tool), **arguments)

    async def next(self) -> tuple[str, str]:
        """Return the kind and the task of the next notification."""
        told = (await self("agent_wait", timeout_ms=10_000))["notification"]
        return told["kind"], told["task"]["id"]


@asynccontextmanager
async def crew(services: Services, *, tools: str, warp: bool) -> AsyncIterator[tuple[Tools, Tools, set[str]]]:
    """Ann, a coordinator, and bob; and which of their tools were called."""
    world = await World.create(services, project=f"f{next(_projects)}", coordinators=["ann"])
    variables = {"FENCEPOST_TOOLS": tools, "FENCEPOST_TOOL_NAMES": "warp" if warp else "fencepost"}
    called: set[str] = set()
    async with world.agent(world.ann, **variables) as ann, world.agent(world.bob, **variables) as bob:
        yield Tools(ann, called, warp=warp), Tools(bob, called, warp=warp), called


def named(family: str) -> set[str]:
    return {tool.name for tool in registry.EVERY if tool.family == family}


TASKS = named(profiles.TASKS)


@pytest.mark.requirement("tools.every-tool-by-both-names")
@pytest.mark.parametrize("warp", [False, True])
async def test_every_tool_of_tasks_does_what_it_says_by_either_name(running: Services, warp: bool) -> None:
    async with crew(running, tools="tasks", warp=warp) as (ann, bob, called):
        listed = [tool.name for tool in (await ann.agent.client.list_tools()).tools]
        assert listed == [registry.WARPED[name] if warp else name for name in registry.EVERY_OF if name in TASKS]
        await _reviewed_twice_and_integrated(ann, bob)
        await _stopped_failed_and_given_away(ann, bob)
        await _taken_from_the_pool(ann, bob)
        assert called == TASKS


async def _reviewed_twice_and_integrated(ann: Tools, bob: Tools) -> None:
    first = await ann.write("task_assign", to="bob", **WORK, execution_timeout_seconds=600)
    task = first["id"]
    assert {*first, "operation"} == CHANGE | {"delivery"}
    assert (first["state"], first["revision"], first["delivery"]) == ("queued", 1, "queued")
    second = await ann.write("task_assign", to="bob", **WORK, dependencies=[task])
    assert second["state"] == "blocked"
    assert await bob.next() == ("assigned", task)
    started = await bob.write("task_start", task_id=task, revision=1)
    assert (started["state"], {*started, "operation"}) == ("running", CHANGE | {"attempt_id"})
    told = await bob.refused("agent_ready")
    assert (told["code"], told["written"]) == ("work_running", False)
    assert (await bob.write("task_progress", task_id=task, revision=1, note="half", percent=50))["state"] == "running"
    submission = {"task_id": task, "result": "done", "evidence": "tests"}
    assert (await bob.write("task_submit", **submission, revision=1))["state"] == "submitted"
    assert await ann.next() == ("review", task)
    told = await ann.write("task_review", task_id=task, revision=1, accepted=False, feedback="once more")
    assert (told["state"], told["revision"]) == ("queued", 2)
    assert await bob.next() == ("rework", task)
    await bob.write("task_start", task_id=task, revision=2)
    await bob.write("task_submit", **submission, revision=2)
    stale = await ann.refused(
        "task_review", task_id=task, revision=1, accepted=True, feedback="", request_id=str(uuid.uuid4())
    )
    assert (stale["code"], stale["state"]["revision"]) == ("stale_revision", "2")
    told = await ann.write("task_review", task_id=task, revision=2, accepted=True, feedback="")
    assert told["state"] == "accepted"
    shown = (await bob("task_get", task_id=task))["task"]
    assert (shown["state"], shown["result"], shown["reviewer"]["name"]) == ("accepted", "done", "ann")
    assert (shown["attempt"]["certainty"], shown["attempt"]["outcome"]) == ("finished", "submitted")
    told = await ann.write("task_integrate", task_id=task, commit="a" * 40)
    assert told["state"] == "integrated"
    told = await ann("task_history", task_id=task, limit=4)
    assert [event["action"] for event in told["events"]] == ["assign", "start", "progress", "submit"]
    rest = await ann("task_history", task_id=task, cursor=told["next_cursor"])
    assert (rest["events"][-1]["action"], rest["has_more"], rest["next_cursor"]) == ("integrate", False, None)
    assert (await ann.write("task_archive", task_id=task))["state"] == "integrated"
    # Its only prerequisite was accepted.
    assert await bob.next() == ("assigned", second["id"])
    assert (await ann.write("task_cancel", task_id=second["id"], reason="not now"))["state"] == "cancelled"


async def _stopped_failed_and_given_away(ann: Tools, bob: Tools) -> None:
    task = (await ann.write("task_assign", to="bob", **WORK))["id"]
    first = await ann.write("task_assign", to="bob", **WORK)
    changed = await ann.write("task_set_dependencies", task_id=first["id"], dependencies=[task])
    assert changed["state"] == "blocked"
    started = await bob.write("task_start", task_id=task, revision=1, expected_version=1)
    told = await ann.write("task_cancel", task_id=task)
    assert told["state"] == "cancel_requested"
    assert await bob.next() == ("stop", task)
    await bob.write("task_progress", task_id=task, revision=1, evidence="late")
    told = await bob.write("task_finish_cancel", task_id=task, attempt_id=started["attempt_id"], note="stopped")
    assert told["state"] == "cancelled"
    assert await ann.next() == ("cancelled", task)
    told = await ann.write("task_retry", task_id=task, start_deadline="2100-01-01T00:00:00Z")
    assert (told["state"], told["revision"]) == ("queued", 2)
    await bob.write("task_start", task_id=task, revision=2)
    assert (await bob.write("task_fail", task_id=task, reason="no disk", evidence="log"))["state"] == "failed"
    told = await ann.write("task_reassign", task_id=task, to="ann", reviewer="bob", reason="yours")
    assert (told["state"], told["revision"]) == ("queued", 3)
    listed = await ann("task_list", assignee="ann", state="queued", limit=1)
    assert [one["id"] for one in listed["tasks"]] == [task]
    assert "start_deadline" not in listed["tasks"][0]
    assert listed["pending_count"] >= 1
    assert (await ann.write("task_cancel", task_id=task))["state"] == "cancelled"
    assert (await ann.write("task_cancel", task_id=first["id"]))["state"] == "cancelled"


async def _taken_from_the_pool(ann: Tools, bob: Tools) -> None:
    task = (await ann.write("task_create_pool", **WORK, eligible=["bob"], reviewer="ann"))["id"]
    told = await bob.write("task_claim", task_id=task)
    assert (told["state"], "attempt_id" in told) == ("running", True)
    await bob.write("task_submit", task_id=task, revision=1, result="done", evidence="none")
    await ann.write("task_review", task_id=task, revision=1, accepted=True, feedback="")
    while not (await ann("agent_wait", timeout_ms=0))["timed_out"]:
        pass
    while not (await bob("agent_wait", timeout_ms=0))["timed_out"]:
        pass
    # What has an outcome leaves the set once it was looked at.
    await ann("task_list")
    assert await ann("agent_ready") == {"acknowledged": True, "pending_count": 0}
    assert await bob("agent_ready") == {"acknowledged": True, "pending_count": 0}
