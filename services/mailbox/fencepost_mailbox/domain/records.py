"""How a record is born and how it changes: the derived place in the inbox is always derived, never set by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fencepost_mailbox.domain import delivery, inbox
from fencepost_mailbox.domain.values import (
    WORK,
    Answer,
    Attributes,
    Completion,
    Kind,
    Origin,
    Record,
    ReplyStatus,
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
    state = delivery.admitted(kind)
    answer = Answer.OPEN if kind in WORK else Answer.NONE
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
        inbox=inbox.place(kind=kind, delivery=state, answer=answer, exposed=False, acknowledged=False),
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
