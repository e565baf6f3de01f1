"""Tasks between the tools' JSON and the protobuf of TasksService."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fencepost.mailbox.v1 import tasks_pb2 as pb
from fencepost.providers.v1 import providers_pb2 as providers
from fencepost_mcp_edge.translate import Arguments, InvalidReceipt, Page, Payload, Words, agent_of, encoded, moment

STATE: Final = Words(pb.TaskState, "TASK_STATE_")
ACTION: Final = Words(pb.TaskAction, "TASK_ACTION_")
PART: Final = Words(pb.TaskPart, "TASK_PART_")
CERTAINTY: Final = Words(pb.AttemptCertainty, "ATTEMPT_CERTAINTY_")
OUTCOME: Final = Words(pb.AttemptOutcome, "ATTEMPT_OUTCOME_")
NOTIFICATION: Final = Words(pb.NotificationKind, "NOTIFICATION_KIND_")
INTEGRATION: Final = Words(providers.IntegrationKind, "INTEGRATION_KIND_")

# Arguments that a request has under other names, in other units.
_RENAMED: Final = {"start_deadline": "start_deadline_ms"}


def request_of(kind: Any, arguments: Arguments, request_id: str) -> Any:
    """Return the request of a write: its fields are the tool's arguments."""
    request = kind(request_id=request_id)
    for name, value in arguments.items():
        field = _RENAMED.get(name, name)
        if name == "request_id":
            continue
        if name == "context_refs":
            request.context_refs.extend(pb.ContextRef(**ref) for ref in value)
        elif isinstance(value, list):
            getattr(request, field).extend(value)
        else:
            setattr(request, field, value)
    return request


def list_request(arguments: Arguments) -> pb.ListTasksRequest:
    """Return the ListTasks that task_list stands for."""
    state = arguments.get("state")
    return pb.ListTasksRequest(
        states=[pb.TaskState.Value(f"TASK_STATE_{state.upper()}")] if state else [],
        assignee=arguments.get("assignee", ""),
    )


def change_result(operation: str, change: pb.TaskChange, request_id: str) -> Payload:
    """Return what a write did. Raises InvalidReceipt."""
    if not change.task_id or not change.state:
        raise InvalidReceipt
    payload: Payload = {
        "operation": operation,
        "id": change.task_id,
        "state": STATE[change.state],
        "revision": change.revision,
        "version": change.version,
    }
    if change.attempt_id:
        payload["attempt_id"] = change.attempt_id
    if operation == "task_assign":
        payload["delivery"] = "queued"
    payload |= {"at": moment(change.at_ms), "duplicate": change.duplicate, "request_id": request_id}
    return payload


def integrate_request(arguments: Arguments, request_id: str) -> providers.IntegrateTaskRequest:
    """Return the IntegrateTask that task_integrate stands for where it names a commit."""
    return providers.IntegrateTaskRequest(
        task_id=arguments["task_id"],
        commit=arguments["commit"],
        note=arguments.get("note", ""),
        expected_version=arguments.get("expected_version", 0),
        request_id=request_id,
    )


def integrate_result(response: providers.IntegrateTaskResponse, request_id: str) -> Payload:
    """Return what became of accepted work. Raises InvalidReceipt."""
    if not response.task_id or not response.integration:
        raise InvalidReceipt
    return {
        "operation": "task_integrate",
        "id": response.task_id,
        "state": "integrated",
        "revision": response.revision,
        "version": response.version,
        "at": moment(response.at_ms),
        "duplicate": response.duplicate,
        "request_id": request_id,
        "integration": INTEGRATION[response.integration],
        "branch": response.branch or None,
        "head": response.head or None,
        "detail": response.detail or None,
    }


def _attempt(attempt: pb.Attempt) -> Payload:
    """Return an attempt. Lists tell which it is and how certain; task_get tells who made it, when, and how it ended."""
    payload: Payload = {"attempt_id": attempt.attempt_id, "revision": attempt.revision}
    payload["certainty"] = CERTAINTY[attempt.certainty]
    if not attempt.HasField("agent"):
        return payload
    return payload | {
        "agent": agent_of(attempt.agent),
        "generation": attempt.generation,
        "started_at": moment(attempt.started_at_ms),
        "finished_at": moment(attempt.finished_at_ms),
        "outcome": OUTCOME[attempt.outcome] if attempt.outcome else None,
    }


def task(one: pb.Task) -> Payload:
    """Return a task; what is empty or does not apply is left out."""
    payload: Payload = {
        "id": one.task_id,
        "state": STATE[one.state],
        "revision": one.revision,
        "version": one.version,
        "issuer": agent_of(one.issuer) if one.HasField("issuer") else None,
        "assignee": agent_of(one.assignee) if one.HasField("assignee") else None,
        "reviewer": agent_of(one.reviewer) if one.HasField("reviewer") else None,
        "description": one.description,
        "created_at": moment(one.created_at_ms),
        "changed_at": moment(one.changed_at_ms),
    }
    rest: Payload = {
        "acceptance": one.acceptance,
        "pool": one.pool,
        "context_refs": [{"key": ref.key, "version": ref.version} for ref in one.context_refs],
        "start_deadline": moment(one.start_deadline_ms),
        "execution_timeout_seconds": one.execution_timeout_seconds,
        "review_timeout_seconds": one.review_timeout_seconds,
        "review_overdue": one.review_overdue,
        "archived": one.archived,
        "assignee_deleted": one.assignee_deleted,
        "queue_position": one.queue_position,
        "attempt": _attempt(one.attempt) if one.HasField("attempt") else None,
        "note": one.note,
        "wait_reason": one.wait_reason,
        "result": one.result,
        "evidence": one.evidence,
        "evidence_ids": list(one.evidence_ids),
        "feedback": one.feedback,
        "failure": one.failure,
        "commit": one.commit,
    }
    payload |= {name: value for name, value in rest.items() if value}
    return payload | ({"percent": one.percent} if one.HasField("percent") else {})


def _fitted(entries: Sequence[Payload], bytes_max: int) -> list[Payload]:
    """Return as many of the first entries as fit into a page, at least one."""
    fitting: list[Payload] = []
    size = 0
    for entry in entries:
        size += len(encoded(entry).encode())
        if fitting and size > bytes_max:
            break
        fitting.append(entry)
    return fitting


def list_result(page: Page, *, pending_count: int, retired: list[str]) -> Payload:
    """Return the page of task_list."""
    return {
        "operation": "task_list",
        "tasks": page.entries,
        "next_cursor": page.cursor or None,
        "pending_count": pending_count,
        "retired": retired,
    }


def get_result(response: pb.GetTaskResponse) -> Payload:
    """Return the task of task_get."""
    return {
        "operation": "task_get",
        "task": task(response.task),
        "dependencies": [task(one) for one in response.dependencies],
        "eligible": [agent_of(one) for one in response.eligible],
        "supervised": response.supervised,
    }


def _event(event: pb.TaskEvent) -> Payload:
    payload: Payload = {
        "sequence": event.sequence,
        "action": ACTION[event.action],
        "part": PART[event.part],
        "agent": agent_of(event.agent) if event.HasField("agent") else None,
        "from": STATE[event.from_state] if event.from_state else None,
        "to": STATE[event.to_state],
        "revision": event.revision,
        "version": event.version,
        "at": moment(event.at_ms),
    }
    rest: Payload = {
        "attempt_id": event.attempt_id,
        "text": event.text,
        "evidence": event.evidence,
        "evidence_ids": list(event.evidence_ids),
        "facts": dict(event.facts),
    }
    return payload | {name: value for name, value in rest.items() if value}


def history_result(response: pb.GetTaskHistoryResponse, *, bytes_max: int) -> Payload:
    """Return the page of task_history: as many events as fit, at least one; the cursor goes on behind the last."""
    events = [_event(event) for event in response.events]
    shown = _fitted(events, bytes_max)
    more = response.has_more or len(shown) < len(events)
    return {
        "operation": "task_history",
        "events": shown,
        "next_cursor": str(shown[-1]["sequence"]) if more and shown else None,
        "has_more": more,
    }


def ready_result(response: pb.ReadyResponse) -> Payload:
    """Return the end of a turn."""
    return {"operation": "agent_ready", "acknowledged": True, "pending_count": response.pending_count}


def head_of(head: pb.MessageHead) -> Payload:
    """Return what is told of a message without its text."""
    payload: Payload = {
        "message_id": head.record_id,
        "sender": agent_of(head.sender) if head.HasField("sender") else None,
        "recipient": agent_of(head.recipient),
        "created_at": moment(head.admitted_at_ms),
    }
    said = {"subject": head.subject, "thread": head.thread_id}
    return payload | {name: value for name, value in said.items() if value}


def notification_of(told: pb.Notification) -> Payload:
    """Return a notification: about a task, or that there are messages."""
    payload: Payload = {"sequence": told.sequence, "kind": NOTIFICATION[told.kind]}
    if told.HasField("message"):
        payload |= {"message": head_of(told.message), "messages": told.messages}
    else:
        payload["task"] = task(told.task)
    return payload | {"at": moment(told.at_ms)}


def wait_result(response: pb.WaitNotificationResponse) -> Payload:
    """Return the end of agent_wait."""
    told = response.notification
    notification: Payload | None = None
    if response.HasField("notification"):
        notification = notification_of(told)
    return {
        "operation": "agent_wait",
        "notification": notification,
        "has_more": response.has_more,
        "timed_out": response.timed_out,
        "wake_reason": response.wake_reason or None,
    }
