"""How a record is born and how it changes: the derived place in the inbox is always derived, never set by hand."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from fencepost_kit.values import replace
from fencepost_mailbox.domain import delivery, inbox
from fencepost_mailbox.domain.values import (
    WORK,
    Answer,
    Attributes,
    Completion,
    Delivery,
    Inbox,
    Kind,
    Origin,
    Record,
    ReplyStatus,
)


def _admitted(kind: Kind) -> tuple[Delivery, Answer, Inbox]:
    state, answer = delivery.admitted(kind), Answer.OPEN if kind in WORK else Answer.NONE
    return state, answer, inbox.place(kind=kind, delivery=state, answer=answer, exposed=False, acknowledged=False)


# How each kind begins, derived once: every send asks.
_ADMITTED: Final[Mapping[Kind, tuple[Delivery, Answer, Inbox]]] = MappingProxyType(
    {kind: _admitted(kind) for kind in Kind}
)


def new_record(
    *,
    sequence: int,
    record_id: bytes,
    kind: Kind,
    project_id: bytes,
    sender: bytes | None,
    recipient: bytes,
    body: bytes,
    now_ms: int,
    origin: Origin,
    parent_id: bytes | None = None,
    status: ReplyStatus = ReplyStatus.NONE,
    completion: Completion = Completion.NONE,
    hops: int = 0,
    attributes: Attributes | None = None,
) -> Record:
    """Return a record that has just been admitted."""
    state, answer, place = _ADMITTED[kind]
    return Record(
        sequence=sequence,
        record_id=record_id,
        kind=kind,
        project_id=project_id,
        sender=sender,
        recipient=recipient,
        parent_id=parent_id,
        body=body,
        status=status,
        origin=origin,
        completion=completion,
        admitted_at_ms=now_ms,
        delivery=state,
        answer=answer,
        exposed=False,
        acknowledged=False,
        inbox=place,
        position=sequence,
        claim_token=None,
        claim_generation=0,
        releases=0,
        hops=hops,
        attributes=attributes,
    )


def evolve(record: Record, **changes: Any) -> Record:
    """Return `record` with `changes` and with its place in the inbox derived anew."""
    after = replace(record, **changes)
    place = inbox.place(
        kind=after.kind,
        delivery=after.delivery,
        answer=after.answer,
        exposed=after.exposed,
        acknowledged=after.acknowledged,
    )
    return after if after.inbox is place else replace(after, inbox=place)
