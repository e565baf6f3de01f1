"""One sentence on what is known of a record and what to do next, for `fencepost why`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fencepost_mailbox.domain.values import Answer, Delivery, Kind, Reader, Record

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

_UNREAD: Final = frozenset({Delivery.PENDING, Delivery.STORED})


def summary(record: Record, *, reader: Reader, answered_by: str) -> str:
    """Return the sentence. `answered_by` names the reply's origin where there is a reply."""
    words = [f"The {record.kind.name.lower()} is {_DELIVERY[record.delivery]}."]
    if record.delivery in _UNREAD and record.answer is not Answer.ANSWERED:
        if reader is Reader.NONE:
            words.append("Its recipient has never read its mailbox: check that the agent runs and is connected.")
        elif reader is Reader.MANUAL:
            words.append("Its recipient reads when it calls receive or wait; while idle it does not wake.")
    if record.kind is Kind.REQUEST:
        if record.answer is Answer.OPEN:
            words.append("It has no answer yet.")
        elif record.answer is Answer.ANSWERED:
            words.append(f"It is answered by {answered_by}.")
        else:
            words.append("Its sender took it back.")
    if record.delivery is Delivery.UNCERTAIN and record.answer is Answer.OPEN:
        words.append(
            "A late proof, the recipient's reply or the operator settles it; do not send it again before that."
        )
    if record.acknowledged:
        words.append("Its recipient has acknowledged it.")
    return " ".join(words)
