"""Claims: what may still be told of one, cell by cell, and who is fenced."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_mailbox.domain import claims
from fencepost_mailbox.domain.bindings import ENDED, Binding, BindingState
from fencepost_mailbox.domain.claims import (
    Claim,
    ClaimState,
    Outcome,
    check_fence,
    check_floor,
    check_incarnation,
    judge_finish,
    judge_release,
    loses_sight,
    over_release_cap,
    term,
)
from fencepost_mailbox.domain.delivery import advance
from fencepost_mailbox.domain.refusals import (
    ConflictingOutcome,
    InvalidBinding,
    InvalidLimit,
    InvalidState,
    StaleClaim,
    StaleGeneration,
    StaleIncarnation,
)
from fencepost_mailbox.domain.values import (
    CLAIM_TERM_MS_DEFAULT,
    CLAIM_TERM_MS_MAX,
    CLAIM_TERM_MS_MIN,
    RELEASES_MAX,
    WORK,
    Answer,
    Delivery,
    Kind,
)
from fencepost_testing.mailboxes import NOW_MS, a_binding, a_turn, id16

C, Out = ClaimState, Outcome


def a_claim(state: ClaimState = C.HELD, **changes: object) -> Claim:
    facts: dict[str, object] = {
        "token": id16("token"),
        "record_id": id16("record"),
        "recipient": id16("recipient"),
        "dispatcher": id16("dispatcher"),
        "incarnation": 1,
        "generation": 1,
        "taken_at_ms": NOW_MS,
        "term_ms": 1000,
        "expires_at_ms": NOW_MS + 1000,
        "state": state,
    }
    return Claim(**{**facts, **changes})  # type: ignore[arg-type]


def answers_of(kind: Kind) -> tuple[Answer, ...]:
    return tuple(answer for answer in Answer if answer is not Answer.NONE) if kind in WORK else (Answer.NONE,)


CELLS = [
    (state, outcome, kind, answer)
    for state, outcome, kind in itertools.product(ClaimState, Outcome, Kind)
    for answer in answers_of(kind)
]

# What may be recorded, whatever the kind: the first word and the late proof.
RECORDED = {
    (C.HELD, Out.ACCEPTED),
    (C.HELD, Out.VISIBLE),
    (C.HELD, Out.FAILED),
    (C.HELD, Out.UNCERTAIN),
    (C.UNCERTAIN, Out.ACCEPTED),
    (C.UNCERTAIN, Out.VISIBLE),
    (C.UNCERTAIN, Out.FAILED),
    (C.ACCEPTED, Out.UNCERTAIN),
}
STANDS = {(C.ACCEPTED, Out.ACCEPTED), (C.VISIBLE, Out.VISIBLE), (C.FAILED, Out.FAILED), (C.UNCERTAIN, Out.UNCERTAIN)}


def fits(outcome: Outcome, kind: Kind) -> bool:
    if outcome is Out.UNCERTAIN:
        return True
    return (outcome is not Out.VISIBLE) is (kind in WORK)


@pytest.mark.requirement("mailbox.evidence-counts-once")
@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize("state", ClaimState)
def test_an_outcome_is_recorded_repeated_or_refused_exactly_as_listed(state: ClaimState, outcome: Outcome) -> None:
    claim = a_claim(state)
    for kind in Kind:
        for answer in answers_of(kind):
            refusal: type[Exception] | None = None
            lost_after_answer = (state, outcome) == (C.ACCEPTED, Out.UNCERTAIN) and answer is not Answer.OPEN
            if not fits(outcome, kind):
                refusal = InvalidState
            elif state is C.RELEASED:
                refusal = StaleClaim
            elif (state, outcome) not in RECORDED | STANDS or lost_after_answer:
                refusal = ConflictingOutcome
            if refusal is None:
                assert judge_finish(claim, outcome, kind=kind, answer=answer) is ((state, outcome) in RECORDED)
                continue
            with pytest.raises(refusal):
                judge_finish(claim, outcome, kind=kind, answer=answer)


@pytest.mark.requirement("mailbox.binding-and-acceptance-are-one")
@pytest.mark.parametrize("bound", [None, *BindingState])
@pytest.mark.parametrize("told", ["no turn", "the turn", "another turn"])
def test_an_acceptance_stands_for_its_exact_turn_and_once_bound_for_good(bound: BindingState | None, told: str) -> None:
    turn = {"no turn": None, "the turn": a_turn(), "another turn": a_turn("another")}[told]
    # The claim moves with its binding; sight of the turn may be lost while the acceptance stays known.
    states = (C.HELD, C.UNCERTAIN, C.ACCEPTED) if bound is None else (C.ACCEPTED, C.UNCERTAIN)
    for state, outcome, answer in itertools.product(states, Outcome, answers_of(Kind.REQUEST)):
        binding = None if bound is None else a_binding(state=bound)

        def judged(
            state: ClaimState = state,
            outcome: Outcome = outcome,
            answer: Answer = answer,
            binding: Binding | None = binding,
        ) -> bool:
            return judge_finish(a_claim(state), outcome, kind=Kind.REQUEST, answer=answer, turn=turn, bound=binding)

        if outcome is Out.VISIBLE:
            expected: bool | type[Exception] = InvalidState
        elif turn is not None and outcome is not Out.ACCEPTED:
            expected = InvalidBinding
        elif bound is not None and outcome is Out.ACCEPTED:
            expected = False if told == "the turn" else ConflictingOutcome
        elif bound is not None and (outcome is Out.FAILED or bound in ENDED):
            expected = ConflictingOutcome
        elif bound is BindingState.UNCERTAIN:
            expected = False
        elif (state, outcome) == (C.ACCEPTED, Out.ACCEPTED):
            expected = False if turn is None else ConflictingOutcome
        elif (state, outcome) in STANDS:
            expected = False
        elif (state, outcome) == (C.ACCEPTED, Out.UNCERTAIN):
            expected = True if answer is Answer.OPEN else ConflictingOutcome
        else:
            expected = True if (state, outcome) in RECORDED else ConflictingOutcome
        if isinstance(expected, bool):
            assert judged() is expected, (state, outcome, answer)
            continue
        with pytest.raises(expected):
            judged()


@pytest.mark.requirement("mailbox.uncertain-is-never-work-again")
@pytest.mark.parametrize("state", ClaimState)
def test_only_a_held_claim_is_released_and_a_released_one_stays_so(state: ClaimState) -> None:
    if state is C.HELD:
        assert judge_release(a_claim(state)) is True
    elif state is C.RELEASED:
        assert judge_release(a_claim(state)) is False
    else:
        with pytest.raises(ConflictingOutcome) as refused:
            judge_release(a_claim(state))
        assert "operator" in refused.value.hint


@pytest.mark.parametrize("state", ClaimState)
def test_sight_is_lost_of_held_claims_and_of_accepted_ones_that_still_want_an_answer(state: ClaimState) -> None:
    for answer in Answer:
        lost = state is C.HELD or (state is C.ACCEPTED and answer is Answer.OPEN)
        assert loses_sight(a_claim(state), answer=answer) is lost
        for bound in BindingState:
            known = state is C.ACCEPTED and bound in ENDED
            assert loses_sight(a_claim(state), answer=answer, bound=a_binding(state=bound)) is (lost and not known)


# The state of a claim and the delivery of its record move together.
DELIVERY_OF = {
    C.HELD: Delivery.CLAIMED,
    C.ACCEPTED: Delivery.ACCEPTED,
    C.VISIBLE: Delivery.VISIBLE,
    C.FAILED: Delivery.FAILED,
    C.UNCERTAIN: Delivery.UNCERTAIN,
}


@pytest.mark.requirement("mailbox.delivery-moves-only-as-the-tables-say")
def test_whatever_may_be_recorded_of_a_claim_moves_its_record_to_the_same_state() -> None:
    for state, outcome, kind, answer in CELLS:
        try:
            written = judge_finish(a_claim(state), outcome, kind=kind, answer=answer)
        except (InvalidState, StaleClaim, ConflictingOutcome):
            continue
        # A claim on context is never accepted or failed, so that nothing follows from there.
        possible = kind in WORK or state not in (C.ACCEPTED, C.FAILED)
        if written and possible:
            after = advance(kind, DELIVERY_OF[state], claims.EVENT_OF[outcome])
            assert after is DELIVERY_OF[claims.STATE_OF[outcome]]


@pytest.mark.requirement("mailbox.evidence-counts-once")
@given(outcomes=st.lists(st.sampled_from(Outcome), max_size=12), kind=st.sampled_from(Kind))
def test_no_report_demotes_what_is_known_and_each_counts_once(outcomes: list[Outcome], kind: Kind) -> None:
    state, recorded = C.HELD, []
    answer = Answer.OPEN if kind in WORK else Answer.NONE
    for outcome in outcomes:
        try:
            if judge_finish(a_claim(state), outcome, kind=kind, answer=answer):
                state = claims.STATE_OF[outcome]
                recorded.append(outcome)
        except (InvalidState, ConflictingOutcome):
            continue
        assert state is not C.HELD
    definite = [outcome for outcome in recorded if outcome in (Out.VISIBLE, Out.FAILED)]
    assert len(definite) <= 1
    assert not definite or recorded[-1] is definite[0], "nothing follows what is definite"


def test_the_term_has_a_default_and_holds_at_both_ends() -> None:
    assert term(0) == CLAIM_TERM_MS_DEFAULT
    assert term(CLAIM_TERM_MS_MIN) == CLAIM_TERM_MS_MIN
    assert term(CLAIM_TERM_MS_MAX) == CLAIM_TERM_MS_MAX
    for wrong in (CLAIM_TERM_MS_MIN - 1, CLAIM_TERM_MS_MAX + 1, -1):
        with pytest.raises(InvalidLimit):
            term(wrong)


@pytest.mark.requirement("mailbox.a-later-incarnation-fences-the-earlier")
def test_an_incarnation_is_new_current_stale_or_none() -> None:
    assert check_incarnation(3, 2) is True
    assert check_incarnation(2, 2) is False
    with pytest.raises(StaleIncarnation) as refused:
        check_incarnation(1, 2)
    assert refused.value.state == {"incarnation": "2"}
    with pytest.raises(InvalidLimit):
        check_incarnation(0, 0)


@pytest.mark.requirement("mailbox.stale-generation-gets-no-authority")
def test_a_generation_is_new_current_stale_or_none() -> None:
    assert check_floor(3, 2) is True
    assert check_floor(2, 2) is False
    with pytest.raises(StaleGeneration) as refused:
        check_floor(1, 2)
    assert refused.value.state == {"generation": "1", "floor": "2"}
    with pytest.raises(InvalidLimit):
        check_floor(0, 1)


def test_evidence_needs_the_claims_own_token_and_generation() -> None:
    claim = a_claim(generation=4)
    assert check_fence(claim, 4) is claim
    for wrong in (3, 5):
        with pytest.raises(StaleClaim):
            check_fence(claim, wrong)
    with pytest.raises(StaleClaim):
        check_fence(None, 4)


def test_a_request_is_given_up_at_the_cap_and_not_before() -> None:
    assert not over_release_cap(RELEASES_MAX - 1)
    assert over_release_cap(RELEASES_MAX)
