"""Wake-ups: written when a dispatcher takes one, so that they tell of what waits then; over with their turn.

Nothing is written when a task changes: what stands among the notifications is what is due, after any restart.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost_mailbox.domain.answers import AnswerEvent, settle
from fencepost_mailbox.domain.records import evolve, new_record
from fencepost_mailbox.domain.tasks.values import Notification
from fencepost_mailbox.domain.tasks.waking import (
    NOTHING_DUE,
    WAKE_NOTICES_MAX,
    WAKES_WINDOW_MAX,
    WITH_A_FREE_SLOT,
    Due,
    again_at_ms,
    joins,
    judge,
    words,
)
from fencepost_mailbox.domain.texts import record_id_text
from fencepost_mailbox.domain.values import Delivery, Kind, Origin, Record
from fencepost_mailbox.store.protocol import InvariantBroken, Queries, Transaction


def waiting(queries: Queries, agent: bytes) -> list[Notification]:
    """Return up to WAKE_NOTICES_MAX + 1 notifications that an agent can act on now, those told least often first.

    Of its queue only the first task counts, and only while nothing of it is in execution: no other can be started.
    """
    tasks = queries.tasks
    if not tasks.has_notifications(agent):
        return []
    found = tasks.needing(agent, WAKE_NOTICES_MAX + 1)
    if not tasks.slot_taken(agent) and (first := tasks.first_queued(agent)) is not None:
        head = [one for one in tasks.notices_of(first) if one.agent == agent and one.notice in WITH_A_FREE_SLOT]
        found = [*head, *found][: WAKE_NOTICES_MAX + 1]
    return found


def due(queries: Queries, agent: bytes, now_ms: int) -> Due:
    """Return what is to be told to an agent now. A deleted one is told nothing."""
    found = waiting(queries, agent)
    if not found or queries.deleted(agent):
        return NOTHING_DUE
    return _judged(queries, agent, found, queries.open_wakes(agent), now_ms)


def _judged(
    queries: Queries, agent: bytes, found: Sequence[Notification], outstanding: Sequence[Record], now_ms: int
) -> Due:
    oldest_ms = queries.wake_written_at(agent, WAKES_WINDOW_MAX - 1)
    return judge(found, outstanding, now_ms, oldest_counted_ms=oldest_ms)


def call_out(tx: Transaction, agent: bytes, *, record_id: bytes, joining: bool, now_ms: int) -> Record | None:
    """Return the wake-up that is to be taken now, written in this transaction; None where none is due.

    One that was given back is told anew, with the words of now. `joining`: for the turn that runs, which is told of a
    request to stop and of nothing else.
    """
    found = waiting(tx, agent)
    outstanding = tx.open_wakes(agent)
    what = _judged(tx, agent, found, outstanding, now_ms)
    if not (what.stop if joining else what.wake):
        return None
    given_back = next((one for one in outstanding if one.delivery is Delivery.PENDING), None)
    told = [one for one in found if joins(one)] if joining else found[:WAKE_NOTICES_MAX]
    body = words(
        told,
        uncertain=_uncertain(tx, told),
        repeated=any(one.wakes > 0 for one in told),
        more=not joining and len(found) > WAKE_NOTICES_MAX,
    )
    record = given_back if given_back is not None else _written(tx, told, record_id, body, now_ms)
    if record.body != body:
        tx.reword(record, body)
        record = evolve(record, body=body)
    for one in told:
        tx.tasks.note_wake(one, record.record_id)
    return record


def _written(tx: Transaction, told: Sequence[Notification], record_id: bytes, body: bytes, now_ms: int) -> Record:
    known = tx.tasks.state(told[0].task_id)
    if known is None:
        raise InvariantBroken("a notification stands for a task that does not")
    project_id = known[1]
    record = new_record(
        sequence=tx.next_sequence(project_id),
        record_id=record_id,
        kind=Kind.WAKE,
        project_id=project_id,
        sender=None,
        recipient=told[0].agent,
        body=body,
        now_ms=now_ms,
        origin=Origin.HOST,
    )
    tx.insert(record)
    return record


def _uncertain(tx: Transaction, told: Sequence[Notification]) -> list[str]:
    """Return the ids of the last wake-ups for these of which nobody knows whether they arrived."""
    earlier = [tx.record(one) for one in dict.fromkeys(notice.wake_id for notice in told) if one is not None]
    return [
        record_id_text(one.kind, one.record_id)
        for one in earlier
        if one is not None and one.delivery is Delivery.UNCERTAIN
    ]


def close_wake(tx: Transaction, wake: Record, event: AnswerEvent, now_ms: int) -> Record:
    """Let a wake-up be over; what it told of and still stands is told again after a pause, WAKES_MAX times in all."""
    after = evolve(wake, answer=settle(wake, event))
    tx.move(wake, after)
    rest_after(tx, wake.record_id, now_ms)
    return after


def take_back(tx: Transaction, wake_id: bytes) -> None:
    """Let what a wake-up told of be as it was before: nothing of it reached the program."""
    for one in tx.tasks.told_by(wake_id):
        tx.tasks.forget_wake(one)


def rest_after(tx: Transaction, wake_id: bytes, now_ms: int) -> None:
    """Let what a wake-up told of rest from its end on."""
    for one in tx.tasks.told_by(wake_id):
        tx.tasks.rest(one, again_at_ms(one, now_ms))
