"""Where a record stands in its recipient's inbox, over every combination of what it is derived from."""

from __future__ import annotations

import itertools

import pytest

from fencepost_mailbox.domain.inbox import acknowledgeable, place, possibly_seen
from fencepost_mailbox.domain.records import evolve
from fencepost_mailbox.domain.values import WORK, Answer, Delivery, Inbox, Kind
from fencepost_testing.mailboxes import a_record

DELIVERIES = {
    True: (
        Delivery.PENDING,
        Delivery.RECEIVER,
        Delivery.CLAIMED,
        Delivery.ACCEPTED,
        Delivery.UNCERTAIN,
        Delivery.FAILED,
    ),
    False: (Delivery.STORED, Delivery.EXPOSED, Delivery.CLAIMED, Delivery.VISIBLE, Delivery.UNCERTAIN),
}
ANSWERS = {
    Kind.REQUEST: (Answer.OPEN, Answer.ANSWERED, Answer.WITHDRAWN),
    Kind.PROMPT: (Answer.OPEN, Answer.ANSWERED, Answer.CLOSED),
    Kind.WAKE: (Answer.OPEN, Answer.CLOSED),
}
STATES = [
    (kind, delivery, answer, exposed, acknowledged)
    for kind in Kind
    for delivery in DELIVERIES[kind in WORK]
    for answer in (ANSWERS[kind] if kind in WORK else (Answer.NONE,))
    for exposed, acknowledged in itertools.product((False, True), repeat=2)
]


def placed(state: tuple[Kind, Delivery, Answer, bool, bool]) -> Inbox:
    kind, delivery, answer, exposed, acknowledged = state
    return place(kind=kind, delivery=delivery, answer=answer, exposed=exposed, acknowledged=acknowledged)


@pytest.mark.requirement("mailbox.inbox-is-what-receive-shows")
def test_what_was_carried_or_is_being_carried_into_the_conversation_is_away() -> None:
    for state in STATES:
        if state[1] in (Delivery.CLAIMED, Delivery.ACCEPTED, Delivery.VISIBLE, Delivery.FAILED):
            assert placed(state) is Inbox.AWAY, state


@pytest.mark.requirement("wakes.a-wake-up-is-carried-and-never-read")
def test_a_wake_up_is_never_in_the_inbox() -> None:
    assert all(placed(state) is Inbox.AWAY for state in STATES if state[0] is Kind.WAKE)


def read_prompt(kind: Kind, delivery: Delivery) -> bool:
    """A prompt that its agent read for itself is closed by that, and shown until it is acknowledged."""
    return kind is Kind.PROMPT and delivery is Delivery.RECEIVER


@pytest.mark.requirement("mailbox.inbox-is-what-receive-shows")
def test_a_settled_request_is_never_shown_as_new() -> None:
    for state in STATES:
        kind, delivery, answer, exposed, _ = state
        if kind in WORK and kind is not Kind.WAKE and answer is not Answer.OPEN and not read_prompt(kind, delivery):
            assert placed(state) is not Inbox.FRESH, state
            # Replaying a cursor shows again what was shown once, and nothing that never was.
            readable = delivery in (Delivery.RECEIVER, Delivery.UNCERTAIN)
            assert (placed(state) is Inbox.SEEN) == (readable and exposed), state


@pytest.mark.requirement("mailbox.inbox-is-what-receive-shows")
def test_fresh_is_readable_unsettled_and_unacknowledged() -> None:
    for state in STATES:
        kind, delivery, answer, _, acknowledged = state
        never_shown = delivery in (Delivery.PENDING, Delivery.STORED)
        readable = never_shown or delivery in (Delivery.RECEIVER, Delivery.EXPOSED, Delivery.UNCERTAIN)
        unsettled = kind not in WORK or answer is Answer.OPEN or read_prompt(kind, delivery)
        fresh = kind is not Kind.WAKE and readable and unsettled and (never_shown or not acknowledged)
        assert (placed(state) is Inbox.FRESH) == fresh, state


def test_a_change_derives_the_place_anew_whatever_it_was() -> None:
    for state in STATES:
        kind, delivery, answer, exposed, acknowledged = state
        for wrong in Inbox:
            before = a_record(kind, inbox=wrong)
            after = evolve(before, delivery=delivery, answer=answer, exposed=exposed, acknowledged=acknowledged)
            assert after.inbox is placed(state), state


@pytest.mark.requirement("mailbox.acknowledges-only-what-was-shown")
def test_only_what_its_recipient_was_shown_can_be_acknowledged() -> None:
    for delivery, exposed in itertools.product(Delivery, (False, True)):
        shown = exposed or delivery in (Delivery.VISIBLE, Delivery.ACCEPTED)
        assert acknowledgeable(delivery=delivery, exposed=exposed) is shown


def test_only_an_uncertain_record_is_possibly_seen() -> None:
    for kind, delivery in itertools.product(Kind, Delivery):
        assert possibly_seen(kind=kind, delivery=delivery) is (delivery is Delivery.UNCERTAIN)
