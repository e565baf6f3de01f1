"""Agents and their messages between the tools' JSON and protobuf, where a project supervises its work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from fencepost.mailbox.v1 import mailbox_pb2 as mailbox
from fencepost.mailbox.v1 import tasks_pb2 as tasks
from fencepost.sessions.v1 import sessions_pb2 as sessions
from fencepost_mcp_edge.domain.presence import Reading, Status, presence_of
from fencepost_mcp_edge.task_translate import head_of, notification_of
from fencepost_mcp_edge.translate import (
    ROLE,
    Arguments,
    InvalidReceipt,
    Payload,
    agent_of,
    attributes_of,
    delivery_of,
    encoded,
    message,
    moment,
    observation,
    open_request,
    receipt_id,
)

# An outcome in the words of this family, as the status of a reply.
_STATUS: Final = {
    "succeeded": mailbox.REPLY_STATUS_DONE,
    "failed": mailbox.REPLY_STATUS_FAILED,
    "blocked": mailbox.REPLY_STATUS_BLOCKED,
}
_OUTCOME: Final = {status: outcome for outcome, status in _STATUS.items()}
# Statuses that have a word of their own here.
_WORDS: Final = {Status.PROCESSING: "working", Status.WAITING: "idle"}
# What a page gives notifications before its messages.
_NOTIFICATIONS_SHARE: Final = 3


def send_request(arguments: Arguments, key: str) -> mailbox.SendRequest | mailbox.RequestRequest:
    """Return what agent_send stands for: a Send, or where it expects a result a Request that its sender supervises."""
    request: mailbox.SendRequest | mailbox.RequestRequest = mailbox.SendRequest()
    if arguments.get("expects_result", False):
        request = mailbox.RequestRequest(completion=mailbox.COMPLETION_EXPLICIT, supervised=True)
    request.target, request.body, request.idempotency_key = arguments["to"], arguments["body"], key
    given = mailbox.Attributes(
        subject=arguments.get("subject", ""),
        thread_id=arguments.get("thread", ""),
        reply_to=arguments.get("reply_to", ""),
        task_id=arguments.get("task_id", ""),
    )
    if given.ByteSize():
        request.attributes.CopyFrom(given)
    return request


def send_result(
    request: mailbox.SendRequest | mailbox.RequestRequest, response: mailbox.SendResponse | mailbox.RequestResponse
) -> Payload:
    """Return the receipt of agent_send. Raises InvalidReceipt."""
    if isinstance(request, mailbox.RequestRequest) is not isinstance(response, mailbox.RequestResponse):
        raise InvalidReceipt
    expects = isinstance(response, mailbox.RequestResponse)
    message_id = (
        receipt_id(response.request_id, "ask_")
        if isinstance(response, mailbox.RequestResponse)
        else receipt_id(response.record_id, "inf_")
    )
    seen = response.delivery_state == mailbox.DELIVERY_STATE_VISIBLE
    payload: Payload = {
        "operation": "agent_send",
        "message_id": message_id,
        "delivery": "delivered" if seen else "queued",
        "expects_result": expects,
    }
    return payload | ({"thread": response.thread_id} if response.thread_id else {}) | delivery_of(response)


def reply_request(arguments: Arguments, key: str) -> mailbox.ReplyRequest:
    """Return the Reply that agent_reply stands for."""
    return mailbox.ReplyRequest(
        request_id=arguments["request_id"],
        status=_STATUS[arguments["outcome"]],
        body=arguments["body"],
        idempotency_key=key,
    )


def reply_result(request: mailbox.ReplyRequest, response: mailbox.ReplyResponse) -> Payload:
    """Return the receipt of agent_reply. Raises InvalidReceipt, also where it is that of another request."""
    if response.request_id != request.request_id:
        raise InvalidReceipt
    return {
        "operation": "agent_reply",
        "request_id": response.request_id,
        "acknowledged": True,
        "message_id": receipt_id(response.record_id, "rep_"),
        **delivery_of(response),
    }


def registered(caller: sessions.GetCallerResponse, run: str) -> Payload:
    """Return who the caller is."""
    agent, project = caller.agent, caller.project
    return {
        "operation": "agent_register",
        "agent": {"agent_id": agent.agent_id, "name": agent.name},
        "project": {"project_id": project.project_id, "name": project.name},
        "role": ROLE[agent.role],
        "generation": caller.credential.generation,
        "run": f"{caller.credential.generation}/{run}",
    }


def agents_result(
    agents: Sequence[sessions.Agent],
    known: Mapping[str, Reading] | None,
    *,
    own_id: str,
    now_ms: int,
    bytes_max: int,
    more: bool,
) -> Payload:
    """Return the agents of agent_list: those that are not off and not being deleted, as many as fit."""
    listed: list[Payload] = []
    size = 0
    for agent in agents:
        reading = None if known is None else known.get(agent.agent_id)
        observed = observation(agent)
        status = presence_of(reading, now_ms=now_ms, observed=observed).status
        if agent.state == sessions.AGENT_STATE_DELETING or status is Status.OFF:
            continue
        executing = observed is None and reading is not None and reading.executing
        entry: Payload = {
            "name": agent.name,
            "agent_id": agent.agent_id,
            "role": ROLE[agent.role],
            # What was observed of its program is newer than the start of a task.
            "status": _WORDS.get(Status.PROCESSING if executing else status, status.value),
            "checkout_root": agent.launch.checkout_root or agent.workspace or None,
        }
        entry |= {"self": True} if agent.agent_id == own_id else {}
        size += len(encoded(entry).encode())
        if listed and size > bytes_max:
            more = True
            break
        listed.append(entry)
    return {"operation": "agent_list", "agents": listed} | ({"has_more": True} if more else {})


def notifications_of(response: tasks.ListNotificationsResponse, *, bytes_max: int) -> tuple[list[Payload], bool]:
    """Return the notifications that fit into a part of a page, and whether there are more."""
    shown: list[Payload] = []
    room = bytes_max // _NOTIFICATIONS_SHARE
    for told in response.notifications:
        one = notification_of(told)
        room -= len(encoded(one).encode())
        if shown and room < 0:
            return shown, True
        shown.append(one)
    return shown, response.has_more


def _awaited(entry: tasks.SupervisionEntry) -> Payload:
    payload: Payload = {"message_id": entry.request_id}
    if entry.HasField("message"):
        payload = head_of(entry.message)
        del payload["sender"]
    payload |= {"answered": entry.settled, "age_seconds": entry.age_ms // 1000}
    return payload | ({"reply_id": entry.reply_id} if entry.reply_id else {})


def _message(record: mailbox.Record) -> Payload:
    """Return a message in the words of this family: a reply also has the outcome that agent_reply was given."""
    payload: Payload = {"message_id": record.record_id, **message(record)}
    if record.reply_status in _OUTCOME:
        payload["outcome"] = _OUTCOME[record.reply_status]
    return payload


def inbox_result(
    page: mailbox.ReceiveResponse,
    notifications: Sequence[Payload],
    supervised: tasks.ListSupervisionResponse,
    *,
    more_notifications: bool,
) -> Payload:
    """Return the page of agent_inbox."""
    return {
        "operation": "agent_inbox",
        "notifications": list(notifications),
        "more_notifications": more_notifications,
        "messages": [_message(record) for record in page.records],
        "open_requests": [open_request(item) for item in page.open_requests],
        "awaited": [_awaited(entry) for entry in supervised.entries if entry.request_id],
        "next_cursor": page.next_cursor or None,
        "has_more": page.has_more,
        "unacknowledged": page.unacknowledged,
    }


def acknowledged_result(response: mailbox.AcknowledgeRecordsResponse) -> Payload:
    """Return what became of messages that were acknowledged."""
    return {
        "operation": "agent_ack",
        "acknowledged": list(response.acknowledged),
        "unacknowledged": response.unacknowledged,
        "pending_count": response.pending_count,
    }


def retired_result(response: tasks.AcknowledgeOutcomesResponse) -> Payload:
    """Return what became of tasks that were acknowledged."""
    return {
        "operation": "agent_ack",
        "acknowledged": list(response.retired),
        "pending_count": response.pending_count,
    }


def _in_thread(record: mailbox.Record) -> Payload:
    return {**_message(record), "recipient": agent_of(record.recipient)}


def thread_result(response: mailbox.GetThreadResponse) -> Payload:
    """Return the page of thread_get."""
    return {
        "operation": "thread_get",
        "thread": response.thread_id,
        "subject": response.subject or None,
        "messages": [_in_thread(record) for record in response.records],
        "next_cursor": response.next_page_token or None,
    }


def found(one: mailbox.FoundRecord) -> Payload:
    """Return a message that was found, with a piece of its text."""
    record = one.record
    return {
        "message_id": record.record_id,
        "sender": agent_of(record.sender) if record.HasField("sender") else None,
        "recipient": agent_of(record.recipient),
        "created_at": moment(record.admitted_at_ms),
        "excerpt": one.excerpt,
        **attributes_of(record.attributes),
    }
