"""One sentence on what is known of a record and what to do next, for `fencepost why`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fencepost_mailbox.domain.bindings import BindingState
from fencepost_mailbox.domain.values import WORK, Answer, Delivery, Kind, Reader, Record

_DELIVERY: Final[Mapping[Delivery, str]] = MappingProxyType(
    {
        Delivery.PENDING: "on disk; nobody has been shown it yet",
        Delivery.RECEIVER: "shown to its recipient by receive",
        Delivery.CLAIMED: "being carried into the conversation now",
        Delivery.ACCEPTED: "taken by the recipient's provider, with proof",
        Delivery.UNCERTAIN: "submitted, but whether the provider got it is not known; it will not be submitted again",
        Delivery.FAILED: "definitely not delivered",
        Delivery.STORED: "on disk; nobody has been shown it yet",
        Delivery.EXPOSED: "shown to its recipient by receive",
        Delivery.VISIBLE: "shown in the recipient's conversation",
    }
)

_TURN: Final[Mapping[BindingState, str]] = MappingProxyType(
    {
        BindingState.BOUND: "The turn that took it runs, as far as is known.",
        BindingState.OUTCOME_RECORDED: "The turn that took it has ended.",
        BindingState.PUBLISHED: "The turn that took it has ended.",
        BindingState.UNCERTAIN: "The turn that took it was lost from sight.",
    }
)

_READER: Final[Mapping[Reader, str]] = MappingProxyType(
    {
        Reader.NONE: "Its recipient has never read its mailbox: check that the agent runs and is connected.",
        Reader.MANUAL: "Its recipient reads when it calls receive or wait; while idle it does not wake.",
        Reader.OFF: "A person has switched its recipient off: it is held until that changes.",
    }
)

_CARRIED: Final = "It is carried where Fencepost runs its recipient, and shown by no receive."
_WOKEN: Final = "Nobody waits for an answer to it."
_WOKEN_ONCE: Final = "It is over: what it told of is told again by another, a few times, while it waits to be seen to."

_UNREAD: Final = frozenset({Delivery.PENDING, Delivery.STORED})


def summary(
    record: Record, *, reader: Reader, answered_by: str, bound: BindingState | None = None, left_out: int = 0
) -> str:
    """Return the sentence.

    `answered_by` names the reply's origin where there is a reply, `bound` is the state of the turn that took it,
    `left_out` how many of its facts are not shown.
    """
    words = [f"The {_name(record.kind)} is {_DELIVERY[record.delivery]}."]
    if record.kind is Kind.WAKE and record.delivery in _UNREAD and reader is not Reader.OFF:
        words.append(_CARRIED)
    elif record.delivery in _UNREAD and record.answer in (Answer.NONE, Answer.OPEN) and reader in _READER:
        words.append(_READER[reader])
    if bound is not None:
        words.append(_TURN[bound])
    if record.kind in WORK:
        words.append(_answered(record, answered_by))
    if record.delivery is Delivery.UNCERTAIN and record.answer is Answer.OPEN:
        reply = "the recipient's reply " if record.kind is Kind.REQUEST else ""
        words.append(f"A late proof, {reply}or the operator settles it; do not send it again before that.")
    if record.acknowledged:
        words.append("Its recipient has acknowledged it.")
    if left_out:
        words.append(f"{left_out} older facts are not shown.")
    return " ".join(words)


def _name(kind: Kind) -> str:
    return "wake-up" if kind is Kind.WAKE else kind.name.lower()


def _answered(record: Record, answered_by: str) -> str:
    if record.kind is Kind.WAKE:
        return _WOKEN if record.answer is Answer.OPEN else _WOKEN_ONCE
    if record.answer is Answer.OPEN:
        return "It has no answer yet."
    if record.answer is Answer.CLOSED:
        return "It is closed without final words: its facts say why."
    if record.answer is Answer.ANSWERED:
        prompt = record.kind is Kind.PROMPT
        return "The final words of that turn answer it." if prompt else f"It is answered by {answered_by}."
    return "Its sender took it back."
