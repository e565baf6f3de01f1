"""How a request is settled: once, whoever does it (M018 M042 M043 M048, ARCHITECTURE "Records")."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fencepost_kit.values import value
from fencepost_mailbox.domain.refusals import (
    ConflictingReply,
    InvalidState,
    InvalidTask,
    NotFound,
    NotPending,
    Unauthorized,
    Withdrawn,
)
from fencepost_mailbox.domain.values import WORK, Answer, Delivery, Kind, Origin, Record, ReplyStatus


class AnswerEvent(enum.Enum):
    """What can settle a request."""

    REPLY = "reply"
    PUBLISH = "publish"
    HOST = "host"
    RESOLVE = "resolve"
    WITHDRAW = "withdraw"
    ABANDON = "abandon"
    # A prompt only: its agent reads it by a call of its own.
    READ = "read"
    # A wake-up only: its turn ended, or nobody knows whether it began.
    END = "end"


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

# A person's prompt is completed by the final words of its turn; whatever else ends it closes it without any.
# Source: M048 M049.
PROMPT_ANSWER: Final[Mapping[tuple[Answer, AnswerEvent], Answer]] = MappingProxyType(
    {
        (Answer.OPEN, AnswerEvent.PUBLISH): Answer.ANSWERED,
        (Answer.OPEN, AnswerEvent.HOST): Answer.CLOSED,
        (Answer.OPEN, AnswerEvent.RESOLVE): Answer.CLOSED,
        (Answer.OPEN, AnswerEvent.READ): Answer.CLOSED,
    }
)

# Nobody waits for the answer to a wake-up: what it told of stands until it is seen to, whatever its turn said.
WAKE_ANSWER: Final[Mapping[tuple[Answer, AnswerEvent], Answer]] = MappingProxyType(
    {(Answer.OPEN, AnswerEvent.HOST): Answer.CLOSED, (Answer.OPEN, AnswerEvent.END): Answer.CLOSED}
)
_TABLES: Final = MappingProxyType(
    {Kind.REQUEST: ANSWER, Kind.PROMPT: PROMPT_ANSWER, Kind.WAKE: WAKE_ANSWER},
)

_SEND_INSTEAD: Final = "If there is more to say, send it as information with send_message."


@value(frozen=True, kw_only=True, slots=True)
class Settled:
    """The answer that a request has."""

    reply_id: bytes
    status: ReplyStatus
    body: bytes
    origin: Origin


def settle(record: Record, event: AnswerEvent) -> Answer:
    """Return the answer state of `record` after `event`.

    Raises:
        InvalidTask: the record is no work.
        InvalidState: it is settled already, it is being withdrawn after somebody may have seen it, or the event is none
            of its kind.
    """
    if record.kind not in WORK:
        raise InvalidTask("only a request can be answered; nothing was written")
    target = _TABLES[record.kind].get((record.answer, event))
    if target is None or (event is AnswerEvent.WITHDRAW and record.delivery is not Delivery.PENDING):
        raise InvalidState(
            f"a {record.kind.name.lower()} that is {record.answer.name.lower()} and {record.delivery.name.lower()} "
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


def judge_withdrawal(record: Record | None, *, caller: bytes) -> bool:
    """Return True where the request is to be withdrawn, False where it was.

    Raises:
        NotFound: there is no such request, or none that the caller may see.
        InvalidTask: the record is not a request.
        Unauthorized: the caller did not send it.
        NotPending: somebody may have seen it, or it is answered.
    """
    if record is None or caller not in (record.sender, record.recipient):
        raise NotFound("no request has this id; nothing was written")
    if record.kind is not Kind.REQUEST:
        raise InvalidTask("only a request can be withdrawn; nothing was written")
    if record.sender != caller:
        raise Unauthorized("only the sender of a request may withdraw it; nothing was written")
    if record.answer is Answer.WITHDRAWN:
        return False
    if record.answer is not Answer.OPEN or record.delivery is not Delivery.PENDING:
        raise NotPending(
            f"the request is {record.delivery.name.lower()} and {record.answer.name.lower()}: "
            "somebody may have seen it; nothing was written",
            hint="Tell its recipient that it is not wanted any more: send information.",
            state={"answer": record.answer.name.lower(), "delivery": record.delivery.name.lower()},
        )
    return True


def check_resolvable(record: Record | None) -> Record:
    """Return the work whose delivery a person may settle: what is uncertain and has no answer.

    Raises:
        NotFound: there is no such record.
        InvalidTask: it is neither a request nor a prompt.
        InvalidState: it is not uncertain, or settled already.
    """
    if record is None:
        raise NotFound("no request or prompt has this id; nothing was written")
    if record.kind not in (Kind.REQUEST, Kind.PROMPT):
        raise InvalidTask("only the delivery of a request or a prompt can be settled; nothing was written")
    if record.delivery is not Delivery.UNCERTAIN or record.answer is not Answer.OPEN:
        raise InvalidState(
            f"the {record.kind.name.lower()} is {record.delivery.name.lower()} and {record.answer.name.lower()}: "
            "only what is uncertain and open is settled by a person's word; nothing was written",
            hint="fencepost why shows what is known of it.",
            state={"answer": record.answer.name.lower(), "delivery": record.delivery.name.lower()},
        )
    return record


class Resolution(enum.IntEnum):
    """What a person says of an uncertain delivery."""

    DONE = 1
    NOT_DONE = 2
    AS_NEW = 3


RESOLVED_STATUS: Final[Mapping[Resolution, ReplyStatus]] = MappingProxyType(
    {
        Resolution.DONE: ReplyStatus.DONE,
        Resolution.NOT_DONE: ReplyStatus.FAILED,
        Resolution.AS_NEW: ReplyStatus.FAILED,
    }
)
_RESOLVED_WORDS: Final[Mapping[Resolution, str]] = MappingProxyType(
    {
        Resolution.DONE: "A person settled this request: it was done.",
        Resolution.NOT_DONE: "A person settled this request: it was not done, and will not be.",
        Resolution.AS_NEW: "A person settled this request: it was not done, and is asked anew in your name as {new}.",
    }
)


def resolution_text(resolution: Resolution, *, note: str, new: str) -> str:
    """Return what the requester reads; `new` names the request that AS_NEW stored."""
    words = _RESOLVED_WORDS[resolution].format(new=new)
    return f"{words} {note}" if note else words
