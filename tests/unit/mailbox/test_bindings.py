"""The turn of a piece of work: how far it comes, cell by cell, and what is answered from how it ended."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_mailbox.domain import bindings
from fencepost_mailbox.domain.bindings import (
    BINDING,
    Binding,
    BindingEvent,
    BindingState,
    Ending,
    Mode,
    TurnOutcome,
    check_bound,
    check_turn,
    ending,
    judge_ending,
    publication,
    publishes,
)
from fencepost_mailbox.domain.refusals import ConflictingOutcome, InvalidBinding, InvalidLimit, StaleBinding
from fencepost_mailbox.domain.values import (
    BINDING_ID_BYTES_MAX,
    BINDING_PROVIDER_BYTES_MAX,
    BODY_BYTES_MAX,
    Completion,
    Kind,
    Origin,
    ReplyStatus,
)
from fencepost_testing.mailboxes import a_binding, a_turn

S, E, How = BindingState, BindingEvent, TurnOutcome
# Written out again, from the architecture's picture.
EXPECTED = {
    S.BOUND: {E.RECORD: S.OUTCOME_RECORDED, E.LOSE_SIGHT: S.UNCERTAIN},
    S.OUTCOME_RECORDED: {E.PUBLISH: S.PUBLISHED},
    S.PUBLISHED: {},
    S.UNCERTAIN: {E.RECORD: S.OUTCOME_RECORDED},
}
KNOWN = (How.COMPLETED, How.INTERRUPTED, How.FAILED)


@pytest.mark.requirement("mailbox.bindings-move-only-as-the-table-says")
def test_only_the_listed_events_move_a_binding() -> None:
    assert dict(BINDING) == {(state, event): after for state, row in EXPECTED.items() for event, after in row.items()}
    with pytest.raises(TypeError):
        BINDING[S.PUBLISHED, E.LOSE_SIGHT] = S.UNCERTAIN  # type: ignore[index]


@pytest.mark.requirement("mailbox.bindings-move-only-as-the-table-says")
@given(events=st.lists(st.sampled_from(E), max_size=20))
def test_no_sequence_of_events_demotes_a_known_end_or_publishes_without_one(events: list[BindingEvent]) -> None:
    state, recorded, published = S.BOUND, 0, 0
    for event in events:
        after = BINDING.get((state, event))
        if after is None:
            continue
        recorded += event is E.RECORD
        published += event is E.PUBLISH
        assert published <= recorded <= 1
        assert state not in bindings.ENDED or after in bindings.ENDED
        state = after


def known(outcome: TurnOutcome, final: str = "", final_bytes: int = 0, **changes: object) -> Binding:
    told = ending(outcome, final, final_bytes)
    return a_binding(
        outcome=told.outcome,
        final=told.final,
        final_bytes=told.final_bytes,
        final_digest=told.digest(),
        evidence="code: why",
        **{"state": S.OUTCOME_RECORDED, **changes},
    )


@pytest.mark.requirement("mailbox.a-turn-ends-once")
@pytest.mark.parametrize("state", S)
@pytest.mark.parametrize("told", [*KNOWN, How.LOST])
def test_an_end_is_recorded_repeated_or_refused_exactly_as_listed(state: BindingState, told: TurnOutcome) -> None:
    for before in KNOWN if state in bindings.ENDED else (How.NONE,):
        binding = a_binding(state=state) if before is How.NONE else known(before, state=state)
        if told is How.LOST:
            expected = {S.BOUND: True, S.UNCERTAIN: False}.get(state)
        else:
            expected = True if state not in bindings.ENDED else (False if told is before else None)
        if expected is not None:
            assert judge_ending(binding, ending(told, "", 0)) is expected
            continue
        with pytest.raises(ConflictingOutcome) as refused:
            judge_ending(binding, ending(told, "", 0))
        assert refused.value.state == {"binding": state.name.lower(), "outcome": before.name.lower()}


@pytest.mark.requirement("mailbox.a-turn-ends-once")
def test_the_same_end_is_the_same_outcome_with_the_same_final_words() -> None:
    long = BODY_BYTES_MAX + 1
    endings = [
        ending(How.COMPLETED, "one", 0),
        ending(How.COMPLETED, "two", 0),
        ending(How.COMPLETED, "", 0),
        ending(How.COMPLETED, "", long),
        ending(How.COMPLETED, "", long + 1),
    ]
    texts = [("one", 0), ("two", 0), ("", 0), ("", long), ("", long + 1)]
    for (first, (text, size)), told in itertools.product(zip(endings, texts, strict=True), endings):
        binding = known(How.COMPLETED, text, size)
        if told == first:
            assert judge_ending(binding, told) is False
            continue
        with pytest.raises(ConflictingOutcome):
            judge_ending(binding, told)
    # The words of a turn that did not complete are no final words, whatever they were.
    assert ending(How.INTERRUPTED, "half a sen", 0) == Ending(outcome=How.INTERRUPTED, final=b"", final_bytes=0)


@pytest.mark.requirement("mailbox.bad-input-is-refused-and-changes-nothing")
@pytest.mark.parametrize(
    ("text", "size", "good"),
    [
        ("", 0, True),
        ("", 1, False),
        ("", BODY_BYTES_MAX, False),
        ("", BODY_BYTES_MAX + 1, True),
        ("é", 0, True),
        ("é", 2, True),
        ("é", 1, False),
        ("x" * BODY_BYTES_MAX, 0, True),
        ("x" * (BODY_BYTES_MAX + 1), 0, False),
        ("", -1, False),
    ],
)
def test_final_words_and_their_number_fit_each_other(text: str, size: int, good: bool) -> None:
    if good:
        assert ending(How.COMPLETED, text, size).final_bytes == (size or len(text.encode()))
        return
    with pytest.raises(InvalidLimit):
        ending(How.COMPLETED, text, size)


@pytest.mark.requirement("mailbox.final-words-answer")
@pytest.mark.parametrize("final", ["done", "x" * BODY_BYTES_MAX, "\x00\r\n\u2603"])
def test_final_words_of_a_completed_turn_answer_done_unchanged(final: str) -> None:
    said = publication(known(How.COMPLETED, final))
    assert (said.status, said.origin, said.body) == (ReplyStatus.DONE, Origin.AUTOMATIC, final.encode())


@pytest.mark.requirement("mailbox.what-is-no-answer-says-so")
@pytest.mark.parametrize(
    ("binding", "status", "words"),
    [
        (known(How.COMPLETED), ReplyStatus.BLOCKED, "without final words"),
        (known(How.COMPLETED, " \n\u2003"), ReplyStatus.BLOCKED, "without final words"),
        (known(How.COMPLETED, "", BODY_BYTES_MAX + 1), ReplyStatus.BLOCKED, f"{BODY_BYTES_MAX + 1} bytes"),
        (known(How.INTERRUPTED), ReplyStatus.BLOCKED, "was interrupted"),
        (known(How.FAILED), ReplyStatus.FAILED, "failed"),
    ],
)
def test_every_other_end_is_told_by_the_host_and_says_which(binding: Binding, status: ReplyStatus, words: str) -> None:
    said = publication(binding)
    assert (said.status, said.origin) == (status, Origin.HOST)
    assert words in said.body.decode()
    assert ("code: why" in said.body.decode()) is (binding.outcome in (How.INTERRUPTED, How.FAILED))
    assert len(said.body) <= BODY_BYTES_MAX


@pytest.mark.requirement("mailbox.an-end-names-the-exact-turn")
@pytest.mark.parametrize(
    "change", [{"provider": "other"}, {"session_id": "other"}, {"turn_id": "other"}, {"mode": Mode.STEER}]
)
def test_a_binding_is_of_one_turn_in_every_field(change: dict[str, object]) -> None:
    binding = a_binding()
    assert check_bound(binding, a_turn()) is binding
    for found, turn in ((binding, a_turn(**change)), (None, a_turn())):
        with pytest.raises(StaleBinding):
            check_bound(found, turn)


@pytest.mark.requirement("mailbox.bad-input-is-refused-and-changes-nothing")
@pytest.mark.parametrize(
    ("field", "most"),
    [
        ("provider", BINDING_PROVIDER_BYTES_MAX),
        ("session_id", BINDING_ID_BYTES_MAX),
        ("turn_id", BINDING_ID_BYTES_MAX),
    ],
)
def test_the_names_of_a_turn_hold_at_both_ends(field: str, most: int) -> None:
    for good in ("x", "x" * most, "é" * (most // 2)):
        check_turn(a_turn(**{field: good}))
    for wrong in ("", "x" * (most + 1), "é" * (most // 2) + "é"):
        with pytest.raises(InvalidBinding):
            check_turn(a_turn(**{field: wrong}))


def test_a_prompt_is_published_and_of_requests_those_that_may_be_answered_automatically() -> None:
    for completion in Completion:
        assert publishes(Kind.PROMPT, completion)
        assert publishes(Kind.REQUEST, completion) is (completion is Completion.AUTOMATIC)
