"""The only file that knows both the tools' JSON and the services' protobuf."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fencepost.common.v1 import common_pb2 as common
from fencepost.mailbox.v1 import mailbox_pb2 as mailbox
from fencepost.providers.v1 import providers_pb2 as providers
from fencepost.sessions.v1 import sessions_pb2 as sessions
from fencepost_mcp_edge.domain.presence import Observation, Presence, Reading, Status, presence_of

Payload = dict[str, Any]
Arguments = Mapping[str, Any]


class InvalidReceipt(Exception):
    """A service answered what makes no sense for the call; what was written is not known."""


def encoded(payload: Payload) -> str:
    """Return the payload as JSON text. Encoded once; every budget counts this one copy."""
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))


class Page:
    """A page of a tool, put together of small pages of a service until its bytes are full; at least one of them."""

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self.entries: Final[list[Payload]] = []
        # Where the page ends, empty at the end of everything.
        self.cursor = ""

    def takes(self, entries: list[Payload], cursor: str) -> bool:
        """Take a page of the service and return True, or leave it to the next page, where it does not fit any more."""
        size = len(encoded({"entries": entries}).encode())
        if self.entries and self._bytes + size > self._bytes_max:
            return False
        self._bytes += size
        self.entries.extend(entries)
        self.cursor = cursor
        return True


class Words(dict[int, str]):
    """The words of an enumeration. What is unspecified, or newer than this table, is unknown and never a guess."""

    def __init__(self, enum: Any, prefix: str) -> None:
        super().__init__({number: name.removeprefix(prefix).lower() for name, number in enum.items() if number})

    def __missing__(self, _number: int) -> str:
        return UNKNOWN


UNKNOWN: Final = "unknown"


DELIVERY: Final = Words(mailbox.DeliveryState, "DELIVERY_STATE_")
ANSWER: Final = Words(mailbox.AnswerState, "ANSWER_STATE_")
KIND: Final = Words(mailbox.RecordKind, "RECORD_KIND_")
ORIGIN: Final = Words(mailbox.Origin, "ORIGIN_")
REPLY: Final = Words(mailbox.ReplyStatus, "REPLY_STATUS_")
READER: Final = Words(mailbox.RecipientReader, "RECIPIENT_READER_")
ROLE: Final = Words(common.Role, "ROLE_")

# Who has a request, as far as its state tells (M027).
_OWNER: Final = {
    "admitted": "unclaimed",
    "exposed": "receiver",
    "claimed": "scheduler",
    "visible": "scheduler",
    "accepted": "scheduler",
    "uncertain": "scheduler",
    "failed": "scheduler",
    UNKNOWN: UNKNOWN,
}

# So that a sender does not take being stored for being read.
_READER_HINT: Final = {
    "manual": "The recipient reads when it next calls receive_messages or wait_agent; while idle it does not wake.",
    "none": "Nobody has ever read this mailbox; the message waits there.",
    "off": "A person has switched the recipient off; the message waits in its mailbox.",
}


def moment(at_ms: int) -> str | None:
    """Return Unix milliseconds as RFC 3339 text in UTC; None for 0, which stands for never."""
    if at_ms <= 0:
        return None
    whole = datetime.datetime.fromtimestamp(at_ms // 1000, datetime.UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"


def agent_of(agent: common.AgentRef) -> Payload:
    """Return an agent by id and name."""
    return {"agent_id": agent.agent_id, "name": agent.name}


def receipt_id(record_id: str, prefix: str) -> str:
    """Return the id of a receipt. Raises InvalidReceipt where it is of another kind."""
    if not record_id.startswith(prefix) or len(record_id) == len(prefix):
        raise InvalidReceipt
    return record_id


# Requests.


def send_request(arguments: Arguments, key: str) -> mailbox.SendRequest:
    """Return the Send that send_message stands for."""
    return mailbox.SendRequest(target=arguments["target"], body=arguments["message"], idempotency_key=key)


def request_request(arguments: Arguments, key: str) -> mailbox.RequestRequest:
    """Return the Request that followup_task stands for."""
    return mailbox.RequestRequest(
        target=arguments["target"],
        body=arguments["message"],
        idempotency_key=key,
        completion=mailbox.COMPLETION_AUTOMATIC,
    )


def reply_request(arguments: Arguments, key: str) -> mailbox.ReplyRequest:
    """Return the Reply that reply stands for."""
    return mailbox.ReplyRequest(
        request_id=arguments["request_id"],
        status=mailbox.ReplyStatus.Value(f"REPLY_STATUS_{arguments['status'].upper()}"),
        body=arguments["message"],
        idempotency_key=key,
    )


def receive_request(arguments: Arguments, *, within_ms: int | None, page_bytes_max: int) -> mailbox.ReceiveRequest:
    """Return the Receive that receive_messages stands for; `within_ms` is what is left where it is asked again."""
    timeout_ms = arguments.get("timeout_ms", 0)
    return mailbox.ReceiveRequest(
        cursor=arguments.get("cursor", ""),
        ack_cursor=arguments.get("ack_cursor", ""),
        limit=arguments.get("limit", 0),
        timeout_ms=timeout_ms if within_ms is None else min(timeout_ms, within_ms),
        page_bytes_max=page_bytes_max,
    )


# Results.


def delivery_of(response: Any) -> Payload:
    """Return what every receipt says of the recipient."""
    reader = READER[response.recipient_reader]
    payload: Payload = {
        "delivery_state": DELIVERY[response.delivery_state],
        "duplicate": response.duplicate,
        "recipient": agent_of(response.recipient),
        "recipient_reader": reader,
        "recipient_last_read_at": moment(response.recipient_last_read_at_ms),
        "admitted_at": moment(response.admitted_at_ms),
    }
    hint = _READER_HINT.get(reader)
    return payload | ({"hint": hint} if hint else {})


def send_result(_request: mailbox.SendRequest, response: mailbox.SendResponse) -> Payload:
    """Return the receipt of send_message. Raises InvalidReceipt."""
    record_id = receipt_id(response.record_id, "inf_")
    return {"operation": "send_message", "interaction_id": record_id, **delivery_of(response)}


def request_result(_request: mailbox.RequestRequest, response: mailbox.RequestResponse) -> Payload:
    """Return the receipt of followup_task. Raises InvalidReceipt."""
    request_id = receipt_id(response.request_id, "ask_")
    return {
        "operation": "followup_task",
        "request_id": request_id,
        "interaction_id": request_id,
        "delivery_owner": _OWNER[DELIVERY[response.delivery_state]],
        "answer_state": ANSWER[response.answer_state],
        **delivery_of(response),
    }


def reply_result(request: mailbox.ReplyRequest, response: mailbox.ReplyResponse) -> Payload:
    """Return the receipt of reply. Raises InvalidReceipt, also where it is that of another request."""
    if response.request_id != request.request_id:
        raise InvalidReceipt
    return {
        "operation": "reply",
        "request_id": response.request_id,
        "interaction_id": receipt_id(response.record_id, "rep_"),
        **delivery_of(response),
    }


def attributes_of(given: mailbox.Attributes) -> Payload:
    """Return what a sender said of a message besides its text; what it did not say is left out."""
    said = {"subject": given.subject, "thread": given.thread_id, "reply_to": given.reply_to, "task_id": given.task_id}
    return {name: value for name, value in said.items() if value}


def message(record: mailbox.Record) -> Payload:
    """Return a record as a message; what does not apply to it is left out."""
    kind = KIND[record.kind]
    payload: Payload = {
        "interaction_id": record.record_id,
        "kind": kind,
        "sender": agent_of(record.sender) if record.HasField("sender") else None,
        "origin": ORIGIN[record.origin],
        "created_at": moment(record.admitted_at_ms),
        "message": record.body,
    }
    if kind == "request":
        payload["request_id"] = record.record_id
        payload["delivery_state"] = DELIVERY[record.delivery_state]
        payload["answer_state"] = ANSWER[record.answer_state]
    elif record.parent_id:
        payload["parent_interaction_id"] = record.parent_id
    if kind == "reply":
        payload["request_id"] = record.parent_id
        payload["reply_status"] = REPLY[record.reply_status]
    if record.HasField("attributes"):
        payload |= attributes_of(record.attributes)
    if record.possibly_seen:
        payload["possibly_seen"] = True
    if record.acknowledged:
        payload["acknowledged"] = True
    return payload


def open_request(item: mailbox.OpenRequest) -> Payload:
    """Return a request that waits for the caller's reply."""
    payload: Payload = {
        "request_id": item.request_id,
        "sender": agent_of(item.sender),
        "delivery_state": DELIVERY[item.delivery_state],
        "created_at": moment(item.admitted_at_ms),
    }
    return payload | ({"possibly_seen": True} if item.possibly_seen else {})


def receive_result(response: mailbox.ReceiveResponse) -> Payload:
    """Return the page of receive_messages."""
    payload: Payload = {
        "operation": "receive_messages",
        "messages": [message(record) for record in response.records],
        "next_cursor": response.next_cursor or None,
        "ack_cursor": response.ack_cursor or None,
        "has_more": response.has_more,
        "timed_out": response.timed_out,
        "wake_reason": response.wake_reason or None,
        "high_water": response.high_water,
        "unacknowledged": response.unacknowledged,
        "open_requests": [open_request(item) for item in response.open_requests],
    }
    return payload | ({"skipped": response.skipped} if response.skipped else {})


def wait_result(response: mailbox.WaitResponse) -> Payload:
    """Return the end of wait_agent. It has no body (M009)."""
    return {"operation": "wait_agent", "timed_out": response.timed_out, "wake_reason": response.wake_reason or None}


def readings(response: mailbox.ListReadersResponse) -> dict[str, Reading]:
    """Return what the mailbox knows, by agent."""
    return {
        reader.agent_id: Reading(
            waiting=reader.waiting,
            off=reader.reader == mailbox.RECIPIENT_READER_OFF,
            last_read_at_ms=reader.last_read_at_ms,
            executing=reader.executing,
        )
        for reader in response.readers
    }


_OBSERVED: Final[Mapping[int, Status]] = {
    sessions.OBSERVED_STATE_OFF: Status.OFF,
    sessions.OBSERVED_STATE_STARTING: Status.STARTING,
    sessions.OBSERVED_STATE_IDLE: Status.IDLE,
    sessions.OBSERVED_STATE_PROCESSING: Status.PROCESSING,
    sessions.OBSERVED_STATE_ACTION_NEEDED: Status.ACTION_NEEDED,
    sessions.OBSERVED_STATE_ERROR: Status.ERROR,
}


def observation(agent: sessions.Agent) -> Observation | None:
    """Return what was observed of an agent's runtime; None where nothing was, or nobody runs it for us."""
    status = _OBSERVED.get(agent.status.state)
    if status is None or agent.desired == sessions.DESIRED_STATE_UNSPECIFIED:
        return None
    return Observation(status=status, detail=agent.status.detail, at_ms=agent.status.observed_at_ms)


def interrupt_result(answer: providers.InterruptTurnResponse) -> Payload:
    """Return what came of an interruption that was carried out, asked for, or had nothing to interrupt."""
    words = {
        providers.INTERRUPTION_REQUESTED: "requested",
        providers.INTERRUPTION_CONFIRMED: "confirmed",
        providers.INTERRUPTION_NOTHING: "nothing_to_interrupt",
    }
    if answer.interruption not in words:
        raise InvalidReceipt
    return {
        "operation": "interrupt_agent",
        "target_agent_id": answer.agent_id,
        "interruption": words[answer.interruption],
        "interruption_confirmed": answer.interruption == providers.INTERRUPTION_CONFIRMED,
        "generation": answer.generation,
        "provider_session_id": answer.conversation_id or None,
        "provider_turn_id": answer.turn_id or None,
        "detail": answer.detail or None,
    }


def _listed(agent: sessions.Agent, presence: Presence, reading: Reading | None, *, own_id: str) -> Payload:
    payload: Payload = {
        "agent_id": agent.agent_id,
        "name": agent.name,
        "provider": agent.provider or None,
        "role": ROLE[agent.role],
        "workspace": agent.workspace or None,
        "status": presence.status.value,
        "evidence": presence.evidence,
        "last_read_at": moment(reading.last_read_at_ms) if reading else None,
    }
    return payload | ({"self": True} if agent.agent_id == own_id else {})


def list_result(
    agents: Sequence[sessions.Agent],
    known: Mapping[str, Reading] | None,
    *,
    own_id: str,
    now_ms: int,
    bytes_max: int,
    more: bool,
) -> Payload:
    """Return the agents of list_agents in name order, as many as fit into `bytes_max`; at least one where there is any.

    Agents that are being deleted are left out: what is sent to one is refused.

    `known` is None where the mailbox could not be asked; `more` where sessions has further agents.
    """
    listed: list[Payload] = []
    size = 0
    for agent in agents:
        if agent.state == sessions.AGENT_STATE_DELETING:
            continue
        reading = None if known is None else known.get(agent.agent_id)
        presence = presence_of(reading, now_ms=now_ms, observed=observation(agent))
        entry = _listed(agent, presence, reading, own_id=own_id)
        size += len(encoded(entry).encode())
        if listed and size > bytes_max:
            more = True
            break
        listed.append(entry)
    payload: Payload = {"operation": "list_agents", "agents": listed}
    if more:
        payload["has_more"] = True
        payload["hint"] = "There are more agents than are listed here; any exact name or UUID works as a target."
    return payload
