"""Every tool of every family by both of its names, through the official client, its shim and the services."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.mcp import profiles, registry
from fencepost_testing.agents import Agent, World
from fencepost_testing.processes import Services

_projects = itertools.count(1)
# Each set of names in another era of the protocol.
MODE = {False: "legacy", True: "2026-07-28"}
CHANGE = {"operation", "id", "state", "revision", "version", "at", "duplicate", "request_id"}
WORK = {"description": "Write it.", "acceptance": "It is there."}


class Tools:
    """An agent whose tools are called by one set of names. Remembers which were called."""

    def __init__(self, agent: Agent, called: set[str], *, warp: bool) -> None:
        self.agent = agent
        self._names = registry.WARPED if warp else {}
        self._called = called

    def name(self, tool: str) -> str:
        """Return the name by which a tool is called here."""
        return self._names.get(tool, tool)

    async def __call__(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        self._called.add(tool)
        told = await self.agent.call(self.name(tool), **arguments)
        assert told.pop("operation") == tool
        return told

    async def write(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool that writes once per request_id; twice, and the second time it only says what it did."""
        request_id = str(uuid.uuid4())
        told = await self(tool, **arguments, request_id=request_id)
        assert (told["request_id"], told["duplicate"]) == (request_id, False)
        assert await self(tool, **arguments, request_id=request_id) == {**told, "duplicate": True}
        return told

    async def refused(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its error."""
        return await self.agent.refused(self.name(tool), **arguments)

    async def next(self) -> tuple[str, str]:
        """Return the kind and the task of the next notification."""
        told = (await self("agent_wait", timeout_ms=10_000))["notification"]
        return told["kind"], told["task"]["id"]


@asynccontextmanager
async def crew(
    services: Services, *, tools: str, warp: bool, cwd: Path | None = None
) -> AsyncIterator[tuple[Tools, Tools, set[str]]]:
    """Ann, a coordinator, and bob; and which of their tools were called."""
    world = await World.create(services, project=f"f{next(_projects)}", coordinators=["ann"])
    variables = {"FENCEPOST_TOOLS": tools, "FENCEPOST_TOOL_NAMES": "warp" if warp else "fencepost"}
    called: set[str] = set()
    async with (
        world.agent(world.ann, mode=MODE[warp], cwd=cwd, **variables) as ann,
        world.agent(world.bob, mode=MODE[warp], cwd=cwd, **variables) as bob,
    ):
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
        await _known_to_each_other(ann, bob)
        await _asked_answered_and_acknowledged(ann, bob)
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
    assert (told["code"], told["written"], told["state"]["running"]) == ("work_running", False, task)
    assert told["hint"].endswith(f"is gone on with by {bob.name('task_start')}.")
    assert (await bob.write("task_progress", task_id=task, revision=1, note="half", percent=50))["state"] == "running"
    named = await _reported(ann, bob, task)
    submission = {"task_id": task, "result": "done", "evidence": "tests", "evidence_ids": named}
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
    told = await ann.write("task_integrate", task_id=task)
    assert told["state"] == "integrated"
    told = await ann("task_history", task_id=task, limit=4)
    assert [event["action"] for event in told["events"]] == ["assign", "start", "progress", "submit"]
    rest = await ann("task_history", task_id=task, cursor=told["next_cursor"])
    assert (rest["events"][-1]["action"], rest["has_more"], rest["next_cursor"]) == ("integrate", False, None)
    assert (await ann.write("task_archive", task_id=task))["state"] == "integrated"
    # Its only prerequisite was accepted.
    assert await bob.next() == ("assigned", second["id"])
    assert (await ann.write("task_cancel", task_id=second["id"], reason="not now"))["state"] == "cancelled"


async def _reported(ann: Tools, bob: Tools, task: str) -> list[str]:
    reports: tuple[dict[str, Any], ...] = (
        {"kind": "file", "path": "a/b", "sha256": "0" * 64, "commit": "1" * 40},
        {"kind": "commit", "commit": "2" * 40},
        {"kind": "diff", "base": "3" * 40, "head": "4" * 40},
        {"kind": "test", "label": "make test", "outcome": "failed", "exit_code": 0, "summary": "s"},
    )
    added = [await bob.write("evidence_add", task_id=task, note="n", **report) for report in reports]
    ids = [one["evidence_id"] for one in added]
    page = await ann("evidence_list", task_id=task, limit=3)
    rest = await ann("evidence_list", task_id=task, cursor=page["next_cursor"])
    listed = [*page["evidence"], *rest["evidence"]]
    assert ([one["evidence_id"] for one in listed], rest["next_cursor"]) == (ids, None)
    for shown, report in zip(listed, reports, strict=True):
        assert {name: shown[name] for name in report} == report
        assert (shown["reporter"]["name"], shown["verdict"], shown["note"]) == ("bob", "reported", "n")
    chosen = await ann("evidence_list", task_id=task, evidence_ids=[ids[2], ids[0]])
    assert [one["evidence_id"] for one in chosen["evidence"]] == [ids[0], ids[2]]
    told = await bob.refused("evidence_add", task_id=task, kind="file", path="../x", sha256="0" * 64)
    assert (told["code"], told["written"], told["state"]["field"]) == ("invalid_evidence", False, "path")
    return ids


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


async def _known_to_each_other(ann: Tools, bob: Tools) -> None:
    told = await ann("agent_register", name="ann")
    assert (told["agent"]["name"], told["role"], told["generation"]) == ("ann", "coordinator", 1)
    assert told["run"].startswith("1/")
    assert (await bob.refused("agent_register", name="ann"))["code"] == "identity_disagreement"
    listed = {one["name"]: one for one in (await bob("agent_list"))["agents"]}
    assert set(listed) == {"ann", "bob"}
    assert (listed["bob"]["self"], listed["ann"]["role"]) == (True, "coordinator")
    assert {"name", "role", "status", "checkout_root"} <= set(listed["ann"])


async def _asked_answered_and_acknowledged(ann: Tools, bob: Tools) -> None:
    told = await ann("agent_send", to="bob", body="the plan of the quagga", subject="Plan")
    assert (told["delivery"], told["expects_result"], told["thread"]) == (
        "queued",
        False,
        "thr_" + told["message_id"][4:],
    )
    asked = await ann("agent_send", to="bob", body="do it", thread=told["thread"], expects_result=True)
    assert (asked["expects_result"], asked["thread"]) == (True, told["thread"])
    (awaited,) = (await ann("agent_inbox"))["awaited"]
    assert (awaited["message_id"], awaited["answered"]) == (asked["message_id"], False)
    inbox = await bob("agent_inbox")
    assert [one["message_id"] for one in inbox["messages"]] == [told["message_id"], asked["message_id"]]
    assert (inbox["messages"][0]["subject"], inbox["unacknowledged"]) == ("Plan", 2)
    answer = await bob("agent_reply", request_id=asked["message_id"], outcome="succeeded", body="done")
    assert (answer["request_id"], answer["acknowledged"]) == (asked["message_id"], True)
    done = await bob("agent_ack", ids=[one["message_id"] for one in inbox["messages"]])
    assert (len(done["acknowledged"]), done["unacknowledged"]) == (2, 0)
    while (given := (await ann("agent_wait", timeout_ms=10_000))["notification"])["kind"] != "messages":
        pass
    assert given["message"]["message_id"] == answer["message_id"]
    assert [one["reply_status"] for one in (await ann("agent_inbox"))["messages"]] == ["done"]
    before = (await ann("task_list"))["pending_count"]
    done = await ann("agent_ack", ids=[answer["message_id"]])
    assert (done["acknowledged"], done["pending_count"]) == ([answer["message_id"]], before - 1)
    assert await ann("agent_ack", ids=[answer["message_id"]]) == {**done, "acknowledged": []}
    mixed = await ann.refused("agent_ack", ids=[answer["message_id"], "task_" + "0" * 32])
    assert mixed["code"] == "invalid_arguments"
    thread = await bob("thread_get", id=answer["message_id"])
    assert [one["message_id"] for one in thread["messages"]] == [
        told["message_id"],
        asked["message_id"],
        answer["message_id"],
    ]
    assert (thread["thread"], thread["subject"], thread["next_cursor"]) == (told["thread"], "Plan", None)
    found = await bob("message_search", query="quagga")
    assert [(one["message_id"], one["excerpt"]) for one in found["messages"]] == [
        (told["message_id"], "the plan of the quagga")
    ]
    assert found["complete"]
    # What one family sent the other receives and answers, and the reverse: there is one store.
    task = (await ann.write("task_assign", to="bob", **WORK))["id"]
    await bob.write("task_start", task_id=task, revision=1)
    await bob.write("task_fail", task_id=task, reason="no")
    assert (await ann("agent_ack", ids=[task]))["acknowledged"] == [task]


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


@pytest.mark.requirement("tools.every-tool-by-both-names")
@pytest.mark.parametrize("warp", [False, True])
async def test_every_tool_of_context_does_what_it_says_by_either_name(running: Services, warp: bool) -> None:
    async with crew(running, tools="context", warp=warp) as (ann, bob, called):
        first = await ann.write("context_publish", key="api/v1", content="# One", pinned=True)
        assert (first["key"], first["stored"], first["version"]) == ("api/v1", True, 1)
        assert (await bob("context_publish", key="api/v1", content="# Two"))["version"] == 2
        found = await bob("context_get", key="api/v1")
        assert (found["content"], found["version"], found["pinned"]) == ("# Two", 2, True)
        found = await ann("context_get", key="api/v1", version=1)
        assert (found["content"], found["newest_version"], found["publisher"]["name"]) == ("# One", 2, "ann")
        for place in range(12):
            await ann("context_publish", key=f"notes/{place:02}", content="x")
        page = await bob("context_list", prefix="notes/", limit=11)
        rest = await bob("context_list", prefix="notes/", cursor=page["next_cursor"])
        assert [one["key"] for one in (*page["contexts"], *rest["contexts"])] == [f"notes/{n:02}" for n in range(12)]
        assert (len(page["contexts"]), rest["next_cursor"]) == (11, None)
        assert [one["key"] for one in (await bob("context_list", pinned=True))["contexts"]] == ["api/v1"]
        stored = await ann.write("project_memory_update", content="Tabs.", expected_version=0)
        assert (stored["stored"], stored["version"]) == (True, 1)
        told = await bob.refused("project_memory_update", content="Spaces.", expected_version=0)
        assert (told["code"], told["written"]) == ("version_conflict", False)
        begin = await bob("project_bootstrap")
        assert (begin["memory"]["content"], begin["memory"]["version"]) == ("Tabs.", 1)
        assert [agent["name"] for agent in begin["agents"]] == ["ann", "bob"]
        assert [one["key"] for one in begin["pinned"]] == ["api/v1"]
        assert (await bob.refused("context_get", key="nothing"))["code"] == "not_found"
        assert called == named(profiles.CONTEXT)


@pytest.mark.requirement("tools.every-tool-by-both-names", "tools.files-are-named-where-they-are")
@pytest.mark.parametrize("warp", [False, True])
async def test_every_tool_of_files_does_what_it_says_by_either_name(
    running: Services, warp: bool, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "link").symlink_to("src")
    async with crew(running, tools="files", warp=warp, cwd=tmp_path / "src") as (ann, bob, called):
        held = await ann.write("file_reserve", file_path="link/../link/a.py", reason="parser", duration_seconds=60)
        assert (held["file_path"], held["reserved"]) == ("src/a.py", True)
        refused = await bob("file_reserve", file_path=str(tmp_path / "src/a.py"), more_paths=["docs/**"])
        assert (refused["reserved"], refused["holder"]["name"], refused["reason"]) == (False, "ann", "parser")
        assert (refused["expires_at"], refused["conflicts"][0]["file_path"]) == (held["expires_at"], "src/a.py")
        renewed = await ann.write("file_renew", file_path="src/a.py", duration_seconds=600)
        assert (renewed["renewed"], renewed["expires_at"] > held["expires_at"]) == (1, True)
        assert (await bob("file_check", file_path="src"))["free"] is False
        assert (await ann("file_check", file_path="link"))["free"] is True
        listed = (await bob("file_reservations", file_path="src/a.py", holder="ann"))["reservations"]
        assert [(one["file_path"], one["mode"], one["holder"]["name"]) for one in listed] == [
            ("src/a.py", "exclusive", "ann")
        ]
        outside = await ann.refused("file_reserve", file_path="../other")
        assert (outside["code"], outside["written"]) == ("outside_checkout", False)
        assert (await ann.write("file_release", reservation_id=held["reservation_id"]))["released"] == 1
        shared = await bob("file_reserve", file_path="docs/**", shared=True, scope="checkout")
        assert (shared["file_path"], shared["reserved"]) == ("docs/**", True)
        assert (await bob("file_release", everything=True))["released"] == 1
        assert (await ann("file_reservations"))["reservations"] == []
        assert called == named(profiles.FILES)
