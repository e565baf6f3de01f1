"""How a record moves towards its recipient. The two tables are the specification; nothing else decides."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fencepost_mailbox.domain.refusals import InvalidState
from fencepost_mailbox.domain.values import WORK, Delivery, Kind


class Event(enum.Enum):
    """What can happen to a record's delivery."""

    RECEIVE = "receive"
    CLAIM = "claim"
    PROVE_NOT_WRITTEN = "prove_not_written"
    ACCEPT = "accept"
    SHOW = "show"
    FAIL = "fail"
    LOSE_SIGHT = "lose_sight"


# M072 M075 M090 M092: one reader at most gets work as new; an uncertain one never becomes pending again. Prompts move
# as requests do.
REQUEST: Final[Mapping[tuple[Delivery, Event], Delivery]] = MappingProxyType(
    {
        (Delivery.PENDING, Event.RECEIVE): Delivery.RECEIVER,
        (Delivery.RECEIVER, Event.RECEIVE): Delivery.RECEIVER,
        (Delivery.UNCERTAIN, Event.RECEIVE): Delivery.UNCERTAIN,
        (Delivery.PENDING, Event.CLAIM): Delivery.CLAIMED,
        (Delivery.CLAIMED, Event.PROVE_NOT_WRITTEN): Delivery.PENDING,
        (Delivery.CLAIMED, Event.ACCEPT): Delivery.ACCEPTED,
        (Delivery.CLAIMED, Event.FAIL): Delivery.FAILED,
        (Delivery.CLAIMED, Event.LOSE_SIGHT): Delivery.UNCERTAIN,
        (Delivery.ACCEPTED, Event.LOSE_SIGHT): Delivery.UNCERTAIN,
        (Delivery.UNCERTAIN, Event.ACCEPT): Delivery.ACCEPTED,
        (Delivery.UNCERTAIN, Event.FAIL): Delivery.FAILED,
    }
)

# M060 M107: context never becomes work; where its injection is uncertain it stays readable and is never pushed again.
CONTEXT: Final[Mapping[tuple[Delivery, Event], Delivery]] = MappingProxyType(
    {
        (Delivery.STORED, Event.RECEIVE): Delivery.EXPOSED,
        (Delivery.EXPOSED, Event.RECEIVE): Delivery.EXPOSED,
        (Delivery.UNCERTAIN, Event.RECEIVE): Delivery.UNCERTAIN,
        (Delivery.STORED, Event.CLAIM): Delivery.CLAIMED,
        (Delivery.CLAIMED, Event.PROVE_NOT_WRITTEN): Delivery.STORED,
        (Delivery.CLAIMED, Event.SHOW): Delivery.VISIBLE,
        (Delivery.CLAIMED, Event.LOSE_SIGHT): Delivery.UNCERTAIN,
        (Delivery.UNCERTAIN, Event.SHOW): Delivery.VISIBLE,
    }
)


def admitted(kind: Kind) -> Delivery:
    """Return where a record of `kind` stands when it has just been admitted."""
    return Delivery.PENDING if kind in WORK else Delivery.STORED


def advance(kind: Kind, delivery: Delivery, event: Event) -> Delivery:
    """Return where a record of `kind` stands after `event`.

    Raises:
        InvalidState: the pair is not in the table of its kind.
    """
    table = REQUEST if kind in WORK else CONTEXT
    target = table.get((delivery, event))
    if target is None:
        raise InvalidState(
            f"a {kind.name.lower()} that is {delivery.name.lower()} cannot {event.value}; nothing was written",
            state={"delivery": delivery.name.lower()},
        )
    return target
