"""How a record moves towards its recipient: the two tables, cell by cell, and every sequence of events."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_mailbox.domain import delivery
from fencepost_mailbox.domain.delivery import Event, admitted, advance
from fencepost_mailbox.domain.refusals import InvalidState
from fencepost_mailbox.domain.values import WORK, Delivery, Kind

D, E = Delivery, Event

# Written out again, from the architecture's picture: the tables in the code must equal it in every cell.
REQUEST = {
    D.PENDING: {E.RECEIVE: D.RECEIVER, E.CLAIM: D.CLAIMED},
    D.RECEIVER: {E.RECEIVE: D.RECEIVER},
    D.CLAIMED: {
        E.PROVE_NOT_WRITTEN: D.PENDING,
        E.ACCEPT: D.ACCEPTED,
        E.FAIL: D.FAILED,
        E.LOSE_SIGHT: D.UNCERTAIN,
    },
    D.ACCEPTED: {E.LOSE_SIGHT: D.UNCERTAIN},
    D.UNCERTAIN: {E.RECEIVE: D.UNCERTAIN, E.ACCEPT: D.ACCEPTED, E.FAIL: D.FAILED},
}
CONTEXT = {
    D.STORED: {E.RECEIVE: D.EXPOSED, E.CLAIM: D.CLAIMED},
    D.EXPOSED: {E.RECEIVE: D.EXPOSED},
    D.CLAIMED: {E.PROVE_NOT_WRITTEN: D.STORED, E.SHOW: D.VISIBLE, E.LOSE_SIGHT: D.UNCERTAIN},
    D.UNCERTAIN: {E.RECEIVE: D.UNCERTAIN, E.SHOW: D.VISIBLE},
}
CONTEXT_KINDS = [kind for kind in Kind if kind not in WORK]


def expected(kind: Kind, state: Delivery, event: Event) -> Delivery | None:
    return (REQUEST if kind in WORK else CONTEXT).get(state, {}).get(event)


@pytest.mark.requirement("mailbox.delivery-moves-only-as-the-tables-say")
@pytest.mark.parametrize("kind", Kind)
def test_only_the_listed_events_move_a_record(kind: Kind) -> None:
    for state, event in itertools.product(Delivery, Event):
        target = expected(kind, state, event)
        if target is not None:
            assert advance(kind, state, event) is target, (state, event)
            continue
        with pytest.raises(InvalidState) as refused:
            advance(kind, state, event)
        assert refused.value.state == {"delivery": state.name.lower()}, (state, event)


@pytest.mark.parametrize("kind", Kind)
def test_a_new_request_is_pending_and_new_context_is_stored(kind: Kind) -> None:
    assert admitted(kind) is (D.PENDING if kind in WORK else D.STORED)


def walk(kind: Kind, start: Delivery, events: list[Event]) -> list[tuple[Delivery, Event, Delivery]]:
    steps, state = [], start
    for event in events:
        try:
            after = advance(kind, state, event)
        except InvalidState:
            continue
        steps.append((state, event, after))
        state = after
    return steps


@pytest.mark.requirement("mailbox.uncertain-is-never-work-again")
@given(kind=st.sampled_from(Kind), events=st.lists(st.sampled_from(Event), max_size=30))
def test_no_sequence_of_events_makes_an_uncertain_record_new_work_again(kind: Kind, events: list[Event]) -> None:
    reached = {after for _, _, after in walk(kind, D.UNCERTAIN, events)}
    assert not reached & {D.PENDING, D.RECEIVER, D.CLAIMED, D.STORED, D.EXPOSED}


@pytest.mark.requirement("mailbox.one-reader-at-most")
@given(events=st.lists(st.sampled_from(Event), max_size=40))
def test_a_request_is_new_work_to_one_reader_unless_a_claim_proved_that_nothing_was_written(
    events: list[Event],
) -> None:
    exposures = 0
    for before, event, after in walk(Kind.REQUEST, D.PENDING, events):
        if event in (E.RECEIVE, E.CLAIM) and before is D.PENDING:
            exposures += 1
        if event is E.PROVE_NOT_WRITTEN:
            assert (before, after) == (D.CLAIMED, D.PENDING)
            exposures -= 1
        assert 0 <= exposures <= 1


@given(kind=st.sampled_from(CONTEXT_KINDS), events=st.lists(st.sampled_from(Event), max_size=30))
def test_context_never_becomes_work(kind: Kind, events: list[Event]) -> None:
    reached = {after for _, _, after in walk(kind, admitted(kind), events)}
    assert not reached & {D.PENDING, D.RECEIVER, D.ACCEPTED, D.FAILED}


@pytest.mark.parametrize("state", [D.FAILED, D.VISIBLE])
@pytest.mark.parametrize("kind", Kind)
def test_what_has_ended_stays_ended(kind: Kind, state: Delivery) -> None:
    assert not walk(kind, state, list(Event) * 2)


def test_nobody_can_change_the_tables_at_run_time() -> None:
    for table in (delivery.REQUEST, delivery.CONTEXT):
        with pytest.raises(TypeError):
            table[D.UNCERTAIN, E.PROVE_NOT_WRITTEN] = D.PENDING  # type: ignore[index]
