"""One agent's records on their way into its conversation: what is submitted, what is told, and in which order."""

from __future__ import annotations

import asyncio

import pytest

from fencepost.errors import Uncertain as Lost
from fencepost_providers.domain.agents import Desired, WhenActive
from fencepost_providers.domain.carried import Answer
from fencepost_providers.domain.runtimes import (
    Accepted,
    Activity,
    Again,
    CapabilityKind,
    Mode,
    NotSubmitted,
    State,
    TurnBinding,
    TurnStatus,
    Uncertain,
    Visible,
)
from fencepost_providers.links import Work
from fencepost_testing.carrier_fakes import CarrierBench, away, closed, refused, until, uuid_of


def busy(turn_id: str) -> Activity:
    return Activity(state=State.PROCESSING, turn_id=turn_id)


@pytest.mark.requirement("providers.information-is-shown-without-a-turn")
async def test_information_goes_first_up_to_its_mark_and_then_one_request_before_what_came_later(
    bench: CarrierBench,
) -> None:
    for number in range(2):
        bench.mailbox.add("ann", "information", f"early {number}")
    bench.mailbox.add("ann", "request", "work")
    runtime = await bench.kept("ann")
    await until(lambda: len(runtime.submitted) == 3)
    assert [what for what, _ in runtime.submitted] == ["show", "show", "begin"]
    await until(lambda: len(bench.mailbox.carried) == 3)
    assert [one.answer for one in bench.mailbox.carried] == [Answer.VISIBLE, Answer.VISIBLE, Answer.ACCEPTED]


@pytest.mark.requirement("providers.a-turns-end-may-come-before-its-acceptance")
async def test_the_end_of_a_turn_that_comes_before_its_acceptance_is_matched_by_its_id(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")

    async def ends_first() -> Accepted:
        runtime.end("quick", "done at once")
        return runtime.accepted("quick", Mode.START)

    runtime.answers.append(ends_first)
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.outcomes)
    (outcome,) = bench.mailbox.outcomes
    assert (outcome.record_id, outcome.final_text, outcome.status) == (asked, "done at once", TurnStatus.COMPLETED)
    assert bench.mailbox.answers(asked) == [Answer.ACCEPTED]


@pytest.mark.requirement("providers.a-turns-end-may-come-before-its-acceptance")
async def test_of_ends_that_nobody_waits_for_the_64_newest_are_kept(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    life = bench.keeper("ann").life
    assert life is not None
    for number in range(65):
        runtime.end(f"turn {number}")
    assert len(life._ends) == 64
    assert "turn 0" not in life._ends
    assert "turn 64" in life._ends


@pytest.mark.requirement("providers.work-joins-a-running-turn-and-shares-its-final")
async def test_every_request_of_a_shared_turn_gets_its_end(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    first = bench.mailbox.add("ann", "request")
    await until(lambda: len(runtime.submitted) == 1)
    second = bench.mailbox.add("ann", "prompt")
    await until(lambda: len(runtime.submitted) == 2)
    assert [what for what, _ in runtime.submitted] == ["begin", "steer"]
    await until(lambda: len(bench.mailbox.carried) == 2)
    runtime.end("turn-1", "shared")
    await until(lambda: len(bench.mailbox.outcomes) == 2)
    assert {one.record_id for one in bench.mailbox.outcomes} == {first, second}
    assert {one.final_text for one in bench.mailbox.outcomes} == {"shared"}


@pytest.mark.requirement("providers.work-can-wait-for-the-end-of-a-turn")
async def test_work_waits_for_idle_and_information_goes_into_a_turn_that_carries_nothing(bench: CarrierBench) -> None:
    agent = bench.agent("ann")
    launch = agent.launch.__class__(when_active=WhenActive.AFTER_TURN)
    runtime = await bench.kept("ann", launch=launch)
    runtime.say(busy("a person's"))
    bench.mailbox.add("ann", "request")
    bench.mailbox.add("ann", "information")
    await until(lambda: runtime.submitted)
    assert [what for what, _ in runtime.submitted] == ["show"]
    runtime.end("a person's")
    await until(lambda: len(runtime.submitted) == 2)
    assert runtime.submitted[-1][0] == "begin"


@pytest.mark.requirement("providers.a-proof-of-no-submission-returns-work-and-it-is-delivered-later")
async def test_a_stale_turn_gives_work_back_and_the_program_is_asked_again_before_anything_else(
    bench: CarrierBench,
) -> None:
    runtime = await bench.kept("ann")
    runtime.say(busy("old"))

    async def stale() -> NotSubmitted:
        # The idle edge is used up while the claim is held: nobody hears of it again.
        runtime.now = Activity(state=State.IDLE)
        return NotSubmitted(code="stale_turn", again=Again.WHEN_IDLE)

    runtime.answers.append(stale)
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: len(bench.mailbox.answers(asked)) == 2)
    assert bench.mailbox.answers(asked) == [Answer.RELEASED, Answer.ACCEPTED]
    assert [what for what, _ in runtime.submitted] == ["steer", "begin"]


@pytest.mark.requirement("providers.a-proof-of-no-submission-returns-work-and-it-is-delivered-later")
async def test_a_turn_that_refused_work_gets_none_again(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    runtime.say(busy("shut"))
    runtime.answers.append(NotSubmitted(code="too_old", again=Again.WHEN_IDLE))
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.answers(asked) == [Answer.RELEASED])
    for _ in range(5):
        runtime.say(busy("shut"))
        await asyncio.sleep(0)
    assert len(runtime.submitted) == 1
    runtime.say(busy("next"))
    await until(lambda: len(runtime.submitted) == 2)


@pytest.mark.requirement("providers.what-can-never-work-is-answered-as-failed")
async def test_work_that_the_program_can_never_take_is_failed_and_information_is_left_to_receive(
    bench: CarrierBench,
) -> None:
    runtime = await bench.kept("ann")
    runtime.answers += [
        NotSubmitted(code="too_large", detail="it fits no turn", again=Again.NEVER),
        NotSubmitted(code="no_injection", again=Again.NEVER),
    ]
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.answers(asked) == [Answer.FAILED])
    assert bench.mailbox.carried[-1].evidence == "too_large: it fits no turn"
    told = bench.mailbox.add("ann", "information")
    await until(lambda: bench.mailbox.answers(told) == [Answer.RELEASED])
    later = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.answers(later) == [Answer.ACCEPTED])
    assert bench.mailbox.answers(told) == [Answer.RELEASED]


@pytest.mark.requirement("providers.what-is-not-known-is-uncertain-and-never-tried-again")
@pytest.mark.parametrize("wrong", ["uncertain", "raises", "visible", "other_conversation", "dies"])
async def test_what_is_not_certainly_something_else_is_uncertain_and_never_tried_again(
    bench: CarrierBench, wrong: str
) -> None:
    runtime = await bench.kept("ann")

    async def raises() -> Accepted:
        raise RuntimeError("a bug of the adapter")

    async def dies() -> Accepted:
        runtime.listener.closed(closed())
        await asyncio.Event().wait()
        raise AssertionError

    elsewhere = TurnBinding(provider="fake", conversation_id="elsewhere", turn_id="t", mode=Mode.START)
    runtime.answers.append(
        {
            "uncertain": Uncertain(code="disconnected"),
            "raises": raises,
            "visible": Visible(evidence="seen"),
            "other_conversation": Accepted(binding=elsewhere, evidence="x"),
            "dies": dies,
        }[wrong]
    )
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.answers(asked) == [Answer.UNCERTAIN])
    later = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.answers(later) == [Answer.ACCEPTED])
    every = [work.record_id for one in bench.adapter.runtimes for _, work in one.submitted]
    assert every.count(asked) == 1


@pytest.mark.requirement("providers.a-lost-claim-is-asked-again-under-its-key")
async def test_a_claim_whose_answer_was_lost_is_asked_again_under_its_key_and_carried_once(
    bench: CarrierBench,
) -> None:
    runtime = await bench.kept("ann")
    bench.mailbox.trouble["claim_answer"] = [Lost("connection_lost", "lost"), Lost("deadline_exceeded", "late")]
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.answers(asked) == [Answer.ACCEPTED])
    assert len(bench.mailbox.keys) == 1
    assert len(runtime.submitted) == 1


@pytest.mark.requirement("providers.a-lost-claim-is-asked-again-under-its-key")
async def test_a_lost_claim_is_settled_before_anything_else_is_claimed_whatever_has_come_meanwhile(
    bench: CarrierBench,
) -> None:
    runtime = await bench.kept("ann")
    bench.mailbox.trouble["claim_answer"] = [Lost("connection_lost", "lost")]
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: not bench.mailbox.trouble["claim_answer"])
    # Meanwhile comes information, which would go first, and a turn of somebody else begins.
    told = bench.mailbox.add("ann", "information")
    runtime.say(busy("somebody's"))
    await until(lambda: bench.mailbox.answers(asked) == [Answer.ACCEPTED])
    runtime.end(runtime.now.turn_id)
    await until(lambda: len(runtime.submitted) == 2)
    assert [work.record_id for _, work in runtime.submitted] == [asked, told]
    assert bench.mailbox.answers(asked) == [Answer.ACCEPTED]
    assert len(bench.mailbox.keys) == 2


@pytest.mark.requirement("providers.a-claim-is-looked-at-again-just-before-the-submission")
async def test_a_claim_that_is_about_to_expire_is_given_back_and_not_submitted(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    bench.mailbox.term_ms = 1_000
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: Answer.RELEASED in bench.mailbox.answers(asked))
    assert runtime.submitted == []
    bench.mailbox.term_ms = 60_000
    await until(lambda: Answer.ACCEPTED in bench.mailbox.answers(asked))


@pytest.mark.requirement("providers.a-claim-is-looked-at-again-just-before-the-submission")
async def test_what_a_person_switched_off_while_it_was_claimed_is_given_back(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")

    class Slow(list[Exception]):
        def __bool__(self) -> bool:
            # While the claim is answered, a person pauses the agent.
            bench.change("ann", desired=Desired.PAUSED)
            bench.keeper("ann").note_agent(bench.sessions.agents[uuid_of("ann")])
            return False

    bench.mailbox.trouble["claim_answer"] = Slow()
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.answers(asked) == [Answer.RELEASED])
    assert runtime.submitted == []


@pytest.mark.requirement("providers.outcomes-wait-while-the-mailbox-is-away")
async def test_evidence_is_told_again_until_it_is_taken_and_a_definite_refusal_ends_it(bench: CarrierBench) -> None:
    await bench.kept("ann")
    bench.mailbox.trouble["tell_carried"] = [away(), Lost("connection_lost", "lost"), refused("unauthenticated")]
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.answers(asked) == [Answer.ACCEPTED])
    await until(lambda: len(bench.carrying.outbox) == 0)
    bench.mailbox.trouble["tell_outcome"] = [refused("stale_binding")]
    bench.adapter.runtimes[-1].end("turn-1")
    await until(lambda: not bench.mailbox.trouble["tell_outcome"])
    await until(lambda: len(bench.carrying.outbox) == 0)
    assert bench.mailbox.outcomes == []


@pytest.mark.requirement("providers.what-was-given-back-is-back-before-more-is-taken")
async def test_nothing_is_claimed_while_an_earlier_answer_is_not_acknowledged(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    bench.mailbox.trouble["tell_carried"] = [away() for _ in range(3)]
    bench.mailbox.add("ann", "request")
    bench.mailbox.add("ann", "request")
    await until(lambda: len(bench.mailbox.carried) == 2)
    assert len(runtime.submitted) == 2
    assert bench.mailbox.trouble["tell_carried"] == []


@pytest.mark.requirement("providers.without-a-known-end-only-an-explicit-reply-answers")
async def test_a_program_without_an_exact_end_of_turns_accepts_without_a_binding(bench: CarrierBench) -> None:
    bench.adapter.none[CapabilityKind.FINAL] = "it does not say"
    runtime = await bench.kept("ann")
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.answers(asked) == [Answer.ACCEPTED])
    assert bench.mailbox.carried[-1].binding is None
    runtime.end("turn-1")
    await until(lambda: len(bench.carrying.outbox) == 0)
    assert bench.mailbox.outcomes == []


@pytest.mark.requirement("providers.no-edge-is-missed")
async def test_the_sweep_finds_and_counts_what_no_edge_told_of(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    roster = bench.carrying.roster
    await until(lambda: bench.keeper("ann").is_asleep())
    await roster.sweep_once()
    assert roster.swept == 0
    bench.mailbox.silent = True
    asked = bench.mailbox.add("ann", "request")
    await bench.sweep_until(1)
    await until(lambda: bench.mailbox.answers(asked) == [Answer.ACCEPTED])
    # Until the claim that finds nothing more is over: it would take what comes next, and give it back.
    await until(lambda: not bench.keeper("ann").carrier.requests and bench.keeper("ann").is_asleep())
    # An idle edge that nobody told of.
    runtime.say(busy("closed"))
    bench.change("ann", launch=bench.agent("ann").launch.__class__(when_active=WhenActive.AFTER_TURN))
    await until(lambda: bench.keeper("ann").agent.launch.when_active is WhenActive.AFTER_TURN)
    bench.mailbox.silent = False
    later = bench.mailbox.add("ann", "request")
    await until(lambda: bench.keeper("ann").carrier.requests and bench.keeper("ann").is_asleep())
    runtime.now = Activity(state=State.IDLE)
    await bench.sweep_until(2)
    await until(lambda: bench.mailbox.answers(later) == [Answer.ACCEPTED])


async def test_an_activity_that_the_program_does_not_tell_is_asked_for_again(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    runtime.say(Activity(state=State.UNKNOWN))
    asked = bench.mailbox.add("ann", "request")
    looks = runtime.looks
    await until(lambda: runtime.looks > looks + 2)
    assert runtime.submitted == []
    runtime.now = Activity(state=State.IDLE)
    await until(lambda: bench.mailbox.answers(asked) == [Answer.ACCEPTED])


async def test_a_whole_listing_takes_back_what_is_not_in_it(bench: CarrierBench) -> None:
    await bench.kept("ann", desired=Desired.ON)
    keeper = bench.keeper("ann")
    bench.change("ann", desired=Desired.PAUSED)
    await until(lambda: keeper.agent.desired is Desired.PAUSED)
    keeper.note_work(Work(agent_id=uuid_of("ann"), requests=True, context=True, high_water=1))
    bench.carrying.roster._note_work(Work(agent_id=uuid_of("ann"), requests=True, context=False, high_water=1))
    bench.carrying.roster._only(set(), 5)
    assert (keeper.carrier.requests, keeper.carrier.context) == (False, False)


async def test_at_most_one_submission_of_an_agent_is_in_flight(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    flying = 0
    most = 0

    async def slow() -> Accepted:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        for _ in range(20):
            await asyncio.sleep(0)
        flying -= 1
        return runtime.accepted("turn-x", Mode.START)

    runtime.answers += [slow] * 6
    for _ in range(6):
        bench.mailbox.add("ann", "request")
    await until(lambda: len(runtime.submitted) == 6)
    assert most == 1


@pytest.mark.requirement("providers.a-claim-is-looked-at-again-just-before-the-submission")
async def test_a_claim_is_kept_where_the_mailbox_says_meanwhile_that_nothing_more_waits(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    keeper = bench.keeper("ann")

    class Meanwhile(list[Exception]):
        def __bool__(self) -> bool:
            keeper.note_work(Work(agent_id=uuid_of("ann"), requests=False, context=False, high_water=999))
            return False

    bench.mailbox.trouble["claim_answer"] = Meanwhile()
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.answers(asked))
    assert bench.mailbox.answers(asked) == [Answer.ACCEPTED]
    runtime.end("turn-1")
    told = bench.mailbox.add("ann", "information")
    await until(lambda: bench.mailbox.answers(told))
    assert bench.mailbox.answers(told) == [Answer.VISIBLE]


@pytest.mark.requirement("providers.a-claim-is-looked-at-again-just-before-the-submission")
async def test_a_request_that_was_claimed_while_an_unheard_turn_began_joins_that_turn(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    await until(bench.keeper("ann").is_asleep)
    runtime.now = busy("unheard")
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.answers(asked))
    assert bench.mailbox.answers(asked) == [Answer.ACCEPTED]
    assert [what for what, _ in runtime.submitted] == ["steer"]


@pytest.mark.requirement("providers.a-claim-is-looked-at-again-just-before-the-submission")
async def test_a_request_that_was_claimed_while_a_person_came_to_be_needed_is_given_back_and_carried_later(
    bench: CarrierBench,
) -> None:
    runtime = await bench.kept("ann")
    await until(bench.keeper("ann").is_asleep)
    runtime.now = Activity(state=State.ACTION_NEEDED, turn_id="unheard")
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.answers(asked) == [Answer.RELEASED])
    await until(bench.keeper("ann").is_asleep)
    assert runtime.submitted == []
    runtime.say(Activity(state=State.IDLE))
    await until(lambda: bench.mailbox.answers(asked) == [Answer.RELEASED, Answer.ACCEPTED])


async def test_a_program_that_fails_when_it_is_asked_costs_no_claim(
    bench: CarrierBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await bench.kept("ann")
    await until(bench.keeper("ann").is_asleep)
    troubles: list[Exception] = [RuntimeError("?")]
    fair = runtime.activity

    async def troubled() -> Activity:
        if troubles:
            raise troubles.pop()
        return await fair()

    monkeypatch.setattr(runtime, "activity", troubled)
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: Answer.ACCEPTED in bench.mailbox.answers(asked))
    assert bench.mailbox.answers(asked) == [Answer.RELEASED, Answer.ACCEPTED]
    assert [what for what, _ in runtime.submitted] == ["begin"]
