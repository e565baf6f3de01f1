"""How a request is settled: once, whoever does it (M018 M042 M043 M048, ARCHITECTURE "Records")."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from fencepost_mailbox.domain.refusals import (
    ConflictingReply,
    InvalidState,
    InvalidTask,
    Unauthorized,
    Withdrawn,
)
from fencepost_mailbox.domain.values import Answer, Delivery, Kind, Origin, Record, ReplyStatus


class AnswerEvent(enum.Enum):
    """What can settle a request."""

    REPLY = "reply"
    PUBLISH = "publish"
    HOST = "host"
    RESOLVE = "resolve"
    WITHDRAW = "withdraw"
    ABANDON = "abandon"


ANSWER: Final[Mapping[tuple[Answer, AnswerEvent], Answer]] = MappingProxyType(
    {
        (Answer.OPEN, AnswerEvent.REPLY): Answer.ANSWERED,
        (Answer.OPEN, AnswerEvent.PUBLISH): Answer.ANSWERED,
        (Answer.OPEN, AnswerEvent.HOST): Answer.ANSWERED,
        (Answer.OPEN, AnswerEvent.RESOLVE): Answer.ANSWERED,
        (Answer.OPEN, AnswerEvent.WITHDRAW): Answer.WITHDRAWN,
        # Its sender is no more: also where somebody may have seen it.
        (Answer.OPEN, AnswerEvent.ABANDON): Answer.WITHDRAWN,
    }
)

_SEND_INSTEAD: Final = "If there is more to say, send it as information with send_message."


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """The answer that a request has."""

    reply_id: bytes
    status: ReplyStatus
    body: bytes
    origin: Origin


def settle(record: Record, event: AnswerEvent) -> Answer:
    """Return the answer state of `record` after `event`.

    Raises:
        InvalidTask: the record is not a request.
        InvalidState: it is settled already, or it is being withdrawn after somebody may have seen it.
    """
    if record.kind is not Kind.REQUEST:
        raise InvalidTask("only a request can be answered; nothing was written")
    target = ANSWER.get((record.answer, event))
    if target is None or (event is AnswerEvent.WITHDRAW and record.delivery is not Delivery.PENDING):
        raise InvalidState(
            f"a request that is {record.answer.name.lower()} and {record.delivery.name.lower()} "
            f"cannot take {event.value}; nothing was written",
            state={"answer": record.answer.name.lower(), "delivery": record.delivery.name.lower()},
        )
    return target


def judge_reply(
    record: Record, *, caller: bytes, status: ReplyStatus, body: bytes, settled: Settled | None
) -> Settled | None:
    """Decide an explicit reply: None means write it, a `Settled` is the identical answer that stands already.

    Raises:
        InvalidTask: the record is not a request.
        Unauthorized: the caller is not its recipient.
        Withdrawn: its sender took it back.
        ConflictingReply: it has another answer, or one that was published for the agent or given by the host.
    """
    if record.kind is not Kind.REQUEST:
        raise InvalidTask(
            "this id names no request, so it cannot be replied to; nothing was written", hint=_SEND_INSTEAD
        )
    if record.recipient != caller:
        raise Unauthorized("only the recipient of a request may reply to it; nothing was written")
    if record.answer is Answer.WITHDRAWN:
        raise Withdrawn("the request was withdrawn by its sender; nothing was written", hint=_SEND_INSTEAD)
    if record.answer is Answer.OPEN:
        return None
    if settled is not None and settled.origin is Origin.AGENT and (settled.status, settled.body) == (status, body):
        return settled
    by = "another reply" if settled is None or settled.origin is Origin.AGENT else "an answer that was given for it"
    raise ConflictingReply(f"the request already has {by}; nothing was written", hint=_SEND_INSTEAD)
