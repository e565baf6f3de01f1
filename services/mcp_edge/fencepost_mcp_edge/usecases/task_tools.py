"""The tools of supervised tasks, and those by which an agent ends its turn or waits for what it supervises."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from fencepost.client import Tasks
from fencepost.mailbox.v1 import tasks_pb2 as pb
from fencepost.mcp.families.agents import NOTIFICATION_WAIT_MS_MAX
from fencepost.sessions.v1 import sessions_pb2 as sessions
from fencepost_mcp_edge import task_translate as wire
from fencepost_mcp_edge.translate import InvalidReceipt, Payload
from fencepost_mcp_edge.usecases import outcomes
from fencepost_mcp_edge.usecases.agent_tools import LISTED_AGENTS_MAX
from fencepost_mcp_edge.usecases.outcomes import ToolError
from fencepost_mcp_edge.usecases.rows import Asking, Reading, Wait, Write, paged, repeatable

Rpc = Callable[[Tasks, Any], Awaitable[Any]]

_QUEUED: Final = frozenset({pb.TASK_STATE_QUEUED, pb.TASK_STATE_BLOCKED})
_RUNNING: Final = frozenset({pb.TASK_STATE_RUNNING})


async def _ask(name: str, kind: Any, rpc: Rpc, asking: Asking) -> Payload:
    request = wire.request_of(kind, asking.arguments, asking.request_id)
    answer = await rpc(asking.caller.tasks, request)
    return wire.change_result(name, answer.change, asking.request_id)


async def _assignee(asking: Asking) -> Asking:
    """Return the call with an agent as its assignee where a checkout is named: the one that works there.

    Raises:
        ToolError: nobody does, or several do.
    """
    to: str = asking.arguments["to"]
    if not to.startswith("/"):
        return asking
    page = await asking.caller.sessions.list_agents(sessions.ListAgentsRequest(page_size=LISTED_AGENTS_MAX))
    agents = [one for one in page.agents if one.state != sessions.AGENT_STATE_DELETING]
    if any(agent.name == to for agent in agents):
        return asking
    places = {agent.agent_id: agent.launch.checkout_root or agent.workspace for agent in agents}
    found = await asyncio.to_thread(_working_in, to, places)
    if len(found) != 1:
        who = f"{len(found)} agents work" if found else "No agent of this project works"
        raise ToolError(
            "ambiguous_target" if found else "not_found",
            f"{who} in this checkout; nothing was written.",
            hint="agent_list shows who works where; name the agent instead.",
        )
    return replace(asking, arguments={**asking.arguments, "to": found[0]})


def _working_in(checkout: str, places: Mapping[str, str]) -> list[str]:
    """Return whose place a folder is, however the two are spelt. Places of other machines count as they are written."""
    wanted = {os.path.normpath(checkout), os.path.realpath(checkout)}
    spelt = {who: {os.path.normpath(place), os.path.realpath(place)} for who, place in places.items() if place}
    return [who for who, spellings in spelt.items() if not wanted.isdisjoint(spellings)]


async def _assigned(name: str, kind: Any, rpc: Rpc, asking: Asking) -> Payload:
    return await _ask(name, kind, rpc, await _assignee(asking))


def _assigning(name: str, kind: Any, rpc: Rpc) -> Write:
    """Return the row of a write that gives a task to somebody."""
    return Write(name=name, ask=partial(_assigned, name, kind, rpc), settle=partial(_settle, name, _QUEUED))


async def _settle(name: str, states: frozenset[int], asking: Asking, epoch: str) -> Payload:
    """Return what became of a write. A request_id says nothing of its content, so what it did must fit the call."""
    told = await asking.caller.settling_tasks.settle(
        pb.SettleTaskRequestRequest(request_id=asking.request_id, epoch=epoch)
    )
    if told.fate == pb.REQUEST_FATE_CANCELLED:
        raise outcomes.cancelled()
    if told.fate != pb.REQUEST_FATE_WRITTEN:
        raise outcomes.unsettled(None)
    task_id = asking.arguments.get("task_id", told.change.task_id)
    if told.change.state not in states or told.change.task_id != task_id:
        raise InvalidReceipt
    return wire.change_result(name, told.change, asking.request_id)


def _write(name: str, kind: Any, rpc: Rpc, states: frozenset[int]) -> Write:
    """Return the row of a write that leads to one of these states."""
    return Write(name=name, ask=partial(_ask, name, kind, rpc), settle=partial(_settle, name, states))


async def _integrate(asking: Asking) -> Payload:
    """Let the commit be merged where the main checkout is. Without one nothing is merged; only the mailbox is asked."""
    if "commit" in asking.arguments:
        request = wire.integrate_request(asking.arguments, asking.request_id)
        return wire.integrate_result(await asking.caller.providers.integrate_task(request), asking.request_id)
    told = await _ask("task_integrate", pb.RecordIntegrationRequest, Tasks.record_integration, asking)
    return told | {"integration": "recorded"}


async def _settle_integrate(asking: Asking, epoch: str) -> Payload:
    """Where a merge may be under way its request_id must stay good, so it is asked again, which answers what it did."""
    if "commit" in asking.arguments:
        return await repeatable("task_integrate", _integrate).settle(asking, epoch)
    told = await _settle("task_integrate", frozenset({pb.TASK_STATE_INTEGRATED}), asking, epoch)
    return told | {"integration": "recorded"}


async def _list(asking: Asking) -> Payload:
    request = wire.list_request(asking.arguments)
    pending_count, retired = 0, list[str]()

    async def some(size: int, cursor: str) -> tuple[list[Payload], str]:
        nonlocal pending_count
        request.page_size, request.page_token = size, cursor
        response = await asking.caller.tasks.list_tasks(request)
        pending_count = response.pending_count
        retired.extend(response.retired)
        return [wire.task(one) for one in response.tasks], response.next_page_token

    page = await paged(asking, some)
    return wire.list_result(page, pending_count=pending_count, retired=retired)


async def _get(asking: Asking) -> Payload:
    return wire.get_result(await asking.caller.tasks.get(asking.arguments["task_id"]))


async def _history(asking: Asking) -> Payload:
    cursor = asking.arguments.get("cursor", "0")
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 18):
        raise ToolError("invalid_arguments", "The cursor is none of task_history. Nothing was read.")
    response = await asking.caller.tasks.history(
        pb.GetTaskHistoryRequest(
            task_id=asking.arguments["task_id"], after=int(cursor), page_size=asking.arguments.get("limit", 0)
        )
    )
    return wire.history_result(response, bytes_max=asking.page_bytes_max)


async def _ready(asking: Asking) -> Payload:
    return wire.ready_result(await asking.caller.tasks.ready(asking.caller.run))


async def _wait(asking: Asking) -> Payload:
    timeout_ms = asking.arguments.get("timeout_ms", NOTIFICATION_WAIT_MS_MAX)
    within_ms = timeout_ms if asking.within_ms is None else min(timeout_ms, asking.within_ms)
    request = pb.WaitNotificationRequest(timeout_ms=within_ms, run=asking.caller.run)
    return wire.wait_result(await Wait(request, asking.caller.tasks.wait_notification).end())


WRITES: Final = (
    _assigning("task_assign", pb.AssignTaskRequest, Tasks.assign),
    _write("task_start", pb.StartTaskRequest, Tasks.start, _RUNNING),
    _write("task_create_pool", pb.CreatePoolTaskRequest, Tasks.create_pool, _QUEUED),
    _write("task_claim", pb.ClaimTaskRequest, Tasks.claim, _RUNNING),
    _write(
        "task_progress",
        pb.ProgressTaskRequest,
        Tasks.progress,
        frozenset({pb.TASK_STATE_RUNNING, pb.TASK_STATE_CANCEL_REQUESTED}),
    ),
    _write("task_submit", pb.SubmitTaskRequest, Tasks.submit, frozenset({pb.TASK_STATE_SUBMITTED})),
    _write("task_review", pb.ReviewTaskRequest, Tasks.review, _QUEUED | {pb.TASK_STATE_ACCEPTED}),
    Write(name="task_integrate", ask=_integrate, settle=_settle_integrate),
    _write(
        "task_cancel",
        pb.CancelTaskRequest,
        Tasks.cancel,
        frozenset({pb.TASK_STATE_CANCELLED, pb.TASK_STATE_CANCEL_REQUESTED}),
    ),
    _write(
        "task_finish_cancel",
        pb.FinishCancelTaskRequest,
        Tasks.finish_cancel,
        frozenset({pb.TASK_STATE_CANCELLED}),
    ),
    _write("task_fail", pb.FailTaskRequest, Tasks.fail, frozenset({pb.TASK_STATE_FAILED})),
    _write("task_retry", pb.RetryTaskRequest, Tasks.retry, _QUEUED),
    _assigning("task_reassign", pb.ReassignTaskRequest, Tasks.reassign),
    _write("task_set_dependencies", pb.SetTaskDependenciesRequest, Tasks.set_dependencies, _QUEUED),
    _write("task_archive", pb.ArchiveTaskRequest, Tasks.archive, frozenset(pb.TaskState.values())),
)

READINGS: Final = (
    Reading(name="task_list", ask=_list),
    Reading(name="task_get", ask=_get),
    Reading(name="task_history", ask=_history),
    Reading(name="agent_ready", ask=_ready),
    Reading(name="agent_wait", ask=_wait),
)
