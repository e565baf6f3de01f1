"""A request is settled once, whoever does it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_mailbox.domain.answers import (
    AnswerEvent,
    Settled,
    check_resolvable,
    judge_reply,
    judge_withdrawal,
    settle,
)
from fencepost_mailbox.domain.records import evolve
from fencepost_mailbox.domain.refusals import (
    ConflictingReply,
    InvalidState,
    InvalidTask,
    NotFound,
    NotPending,
    Unauthorized,
    Withdrawn,
)
from fencepost_mailbox.domain.values import WORK, Answer, Delivery, Kind, Origin, ReplyStatus
from fencepost_testing.mailboxes import a_record, id16

REQUEST_DELIVERIES = (
    Delivery.PENDING,
    Delivery.RECEIVER,
    Delivery.CLAIMED,
    Delivery.ACCEPTED,
    Delivery.UNCERTAIN,
    Delivery.FAILED,
)
ANSWERS = (Answer.OPEN, Answer.ANSWERED, Answer.WITHDRAWN)
NEVER_OF_A_REQUEST = (AnswerEvent.READ, AnswerEvent.END)


@pytest.mark.requirement("mailbox.settled-once")
@pytest.mark.parametrize("event", [event for event in AnswerEvent if event not in NEVER_OF_A_REQUEST])
def test_only_an_open_request_settles_and_only_a_pending_one_is_withdrawn(event: AnswerEvent) -> None:
    withdrawing, takes_back = event is AnswerEvent.WITHDRAW, event in (AnswerEvent.WITHDRAW, AnswerEvent.ABANDON)
    for delivery, answer in itertools.product(REQUEST_DELIVERIES, ANSWERS):
        record = a_record(delivery=delivery, answer=answer)
        if answer is Answer.OPEN and (not withdrawing or delivery is Delivery.PENDING):
            assert settle(record, event) is (Answer.WITHDRAWN if takes_back else Answer.ANSWERED)
            continue
        with pytest.raises(InvalidState) as refused:
            settle(record, event)
        assert refused.value.state == {"answer": answer.name.lower(), "delivery": delivery.name.lower()}


@pytest.mark.parametrize("event", NEVER_OF_A_REQUEST)
def test_what_ends_a_prompt_or_a_wake_up_never_ends_a_request(event: AnswerEvent) -> None:
    for delivery, answer in itertools.product(REQUEST_DELIVERIES, ANSWERS):
        with pytest.raises(InvalidState):
            settle(a_record(delivery=delivery, answer=answer), event)


@pytest.mark.requirement("wakes.a-wake-up-is-carried-and-never-read")
@pytest.mark.parametrize("event", AnswerEvent)
def test_a_wake_up_ends_with_its_turn_or_by_the_host_and_never_by_an_answer(event: AnswerEvent) -> None:
    for delivery, answer in itertools.product(REQUEST_DELIVERIES, (Answer.OPEN, Answer.CLOSED)):
        record = a_record(Kind.WAKE, delivery=delivery, answer=answer)
        if answer is Answer.OPEN and event in (AnswerEvent.HOST, AnswerEvent.END):
            assert settle(record, event) is Answer.CLOSED
            continue
        with pytest.raises(InvalidState):
            settle(record, event)
    with pytest.raises(InvalidTask):
        check_resolvable(a_record(Kind.WAKE, delivery=Delivery.UNCERTAIN))


# Written out again: a prompt is answered by final words, closed by whatever else ends it, and never replied to.
PROMPT = {
    AnswerEvent.PUBLISH: Answer.ANSWERED,
    AnswerEvent.HOST: Answer.CLOSED,
    AnswerEvent.RESOLVE: Answer.CLOSED,
    AnswerEvent.READ: Answer.CLOSED,
}


@pytest.mark.requirement("mailbox.prompts-are-answered-by-their-turn")
@pytest.mark.parametrize("event", AnswerEvent)
def test_only_an_open_prompt_ends_and_never_by_a_reply_or_a_withdrawal(event: AnswerEvent) -> None:
    for delivery, answer in itertools.product(REQUEST_DELIVERIES, (Answer.OPEN, Answer.ANSWERED, Answer.CLOSED)):
        record = a_record(Kind.PROMPT, delivery=delivery, answer=answer)
        if answer is Answer.OPEN and event in PROMPT:
            assert settle(record, event) is PROMPT[event]
            continue
        with pytest.raises(InvalidState):
            settle(record, event)


@pytest.mark.requirement("mailbox.only-pending-requests-are-withdrawn")
def test_a_sender_withdraws_what_nobody_has_seen_and_nothing_else() -> None:
    for delivery, answer in itertools.product(REQUEST_DELIVERIES, ANSWERS):
        record = a_record(delivery=delivery, answer=answer)
        if answer is Answer.WITHDRAWN:
            assert judge_withdrawal(record, caller=id16("sender")) is False
        elif answer is Answer.OPEN and delivery is Delivery.PENDING:
            assert judge_withdrawal(record, caller=id16("sender")) is True
        else:
            with pytest.raises(NotPending) as refused:
                judge_withdrawal(record, caller=id16("sender"))
            assert refused.value.state == {"answer": answer.name.lower(), "delivery": delivery.name.lower()}
    with pytest.raises(Unauthorized):
        judge_withdrawal(a_record(), caller=id16("recipient"))
    for nothing in (None, a_record()):
        with pytest.raises(NotFound):
            judge_withdrawal(nothing, caller=id16("somebody else"))
    for kind in Kind:
        if kind is not Kind.REQUEST:
            with pytest.raises(InvalidTask):
                judge_withdrawal(a_record(kind), caller=id16("recipient"))


@pytest.mark.requirement("mailbox.a-person-settles-only-what-is-uncertain")
def test_a_person_settles_what_is_uncertain_and_open_and_nothing_else() -> None:
    for kind, delivery, answer in itertools.product(
        (Kind.REQUEST, Kind.PROMPT), REQUEST_DELIVERIES, (*ANSWERS, Answer.CLOSED)
    ):
        record = a_record(kind, delivery=delivery, answer=answer)
        if (delivery, answer) == (Delivery.UNCERTAIN, Answer.OPEN):
            assert check_resolvable(record) is record
            continue
        with pytest.raises(InvalidState):
            check_resolvable(record)
    with pytest.raises(NotFound):
        check_resolvable(None)
    for kind in Kind:
        if kind not in WORK:
            with pytest.raises(InvalidTask):
                check_resolvable(a_record(kind, delivery=Delivery.UNCERTAIN))


@pytest.mark.parametrize("event", AnswerEvent)
@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in WORK])
def test_what_is_no_request_takes_no_answer(kind: Kind, event: AnswerEvent) -> None:
    with pytest.raises(InvalidTask):
        settle(a_record(kind), event)


@pytest.mark.requirement("mailbox.settled-once")
@given(events=st.lists(st.sampled_from(AnswerEvent), max_size=20), delivery=st.sampled_from(REQUEST_DELIVERIES))
def test_whatever_happens_a_request_settles_at_most_once(events: list[AnswerEvent], delivery: Delivery) -> None:
    record, settled = a_record(delivery=delivery), 0
    for event in events:
        try:
            record = evolve(record, answer=settle(record, event))
        except InvalidState:
            continue
        settled += 1
    assert settled <= 1


def judge(
    changes: dict[str, object],
    *,
    kind: Kind = Kind.REQUEST,
    settled: Settled | None = None,
    caller: bytes = id16("recipient"),
) -> object:
    record = a_record(kind, **changes)
    return judge_reply(record, caller=caller, status=ReplyStatus.DONE, body=b"the answer", settled=settled)


def an_answer(**changes: object) -> Settled:
    facts: dict[str, object] = {
        "reply_id": id16("reply"),
        "status": ReplyStatus.DONE,
        "body": b"the answer",
        "origin": Origin.AGENT,
    }
    return Settled(**{**facts, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("delivery", REQUEST_DELIVERIES)
def test_the_recipient_may_reply_in_any_delivery_state(delivery: Delivery) -> None:
    assert judge({"delivery": delivery}) is None


def test_the_identical_explicit_answer_stands() -> None:
    same = an_answer()
    assert judge({"answer": Answer.ANSWERED}, settled=same) is same


@pytest.mark.requirement("mailbox.settled-once")
@pytest.mark.parametrize(
    "other",
    [
        an_answer(body=b"another text"),
        an_answer(status=ReplyStatus.FAILED),
        an_answer(origin=Origin.AUTOMATIC),
        an_answer(origin=Origin.HOST),
        an_answer(origin=Origin.HUMAN),
        None,
    ],
)
def test_any_other_answer_that_stands_is_a_conflict(other: Settled | None) -> None:
    with pytest.raises(ConflictingReply) as refused:
        judge({"answer": Answer.ANSWERED}, settled=other)
    assert "send_message" in refused.value.hint


@pytest.mark.requirement("mailbox.only-the-recipient-replies")
@pytest.mark.parametrize("caller", ["sender", "somebody else"])
@pytest.mark.parametrize("answer", ANSWERS)
def test_only_the_recipient_replies(caller: str, answer: Answer) -> None:
    with pytest.raises(Unauthorized):
        judge({"answer": answer}, settled=an_answer(), caller=id16(caller))


def test_a_withdrawn_request_takes_no_reply() -> None:
    with pytest.raises(Withdrawn):
        judge({"answer": Answer.WITHDRAWN})


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.REQUEST])
def test_a_reply_on_anything_but_a_request_is_refused(kind: Kind) -> None:
    with pytest.raises(InvalidTask):
        judge({}, kind=kind)
