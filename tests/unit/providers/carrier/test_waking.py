"""An idle agent is woken for its tasks: one turn of its own, never into one that runs, never unless it is wanted on."""

from __future__ import annotations

import pytest

from fencepost.errors import Uncertain as Lost
from fencepost_providers.adapters.base import StartFailed
from fencepost_providers.domain.agents import Desired, WhenActive
from fencepost_providers.domain.carried import Answer
from fencepost_providers.domain.runtimes import Activity, Again, NotSubmitted, State, TurnStatus, Uncertain
from fencepost_providers.links import Observed
from fencepost_testing.carrier_fakes import CarrierBench, until, uuid_of


def busy(turn_id: str) -> Activity:
    return Activity(state=State.PROCESSING, turn_id=turn_id)


@pytest.mark.requirement("wakes.an-idle-agent-gets-one-turn")
async def test_an_idle_agent_gets_one_turn_and_its_end_is_told(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    woken = bench.mailbox.add("ann", "wake", "what waits")
    await until(lambda: bench.mailbox.answers(woken) == [Answer.ACCEPTED])
    assert [(what, work.kind, work.body) for what, work in runtime.submitted] == [("begin", "wake", "what waits")]
    runtime.end("turn-1")
    await until(lambda: bench.mailbox.outcomes)
    assert [(one.record_id, one.status) for one in bench.mailbox.outcomes] == [(woken, TurnStatus.COMPLETED)]


@pytest.mark.requirement("wakes.nothing-is-begun-while-it-works")
async def test_a_wake_up_waits_for_the_end_of_the_turn_that_runs(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    runtime.say(busy("a person's"))
    bench.mailbox.add("ann", "wake")
    await until(lambda: bench.keeper("ann").carrier.wake and bench.keeper("ann").is_asleep())
    assert (runtime.submitted, bench.mailbox.claims) == ([], {})
    runtime.end("a person's")
    await until(lambda: len(runtime.submitted) == 1)


@pytest.mark.requirement("wakes.nothing-is-begun-while-it-works")
@pytest.mark.parametrize("desired", [Desired.PAUSED, Desired.OFF])
async def test_an_agent_that_is_paused_or_off_is_not_woken(bench: CarrierBench, desired: Desired) -> None:
    await bench.kept("ann")
    bench.change("ann", desired=desired)
    await until(lambda: bench.keeper("ann").agent.desired is desired)
    bench.mailbox.add("ann", "wake")
    await until(lambda: bench.keeper("ann").carrier.wake and bench.keeper("ann").is_asleep())
    assert bench.mailbox.claims == {}
    count = len(bench.adapter.runtimes)
    bench.change("ann", desired=Desired.ON)
    runtime = bench.adapter.runtimes[-1]
    if desired is Desired.OFF:
        runtime = await bench.next_runtime(count, "ann")
    await until(lambda: len(runtime.submitted) == 1)


@pytest.mark.requirement("wakes.requests-and-wake-ups-take-turns")
async def test_requests_and_wake_ups_take_turns(bench: CarrierBench) -> None:
    for kind in ("wake", "wake", "request", "request"):
        bench.mailbox.add("ann", kind)
    runtime = await bench.kept("ann", launch=bench.agent("ann").launch.__class__(when_active=WhenActive.AFTER_TURN))
    for turn in range(1, 5):
        await until(lambda turn=turn: len(runtime.submitted) == turn)  # type: ignore[misc]
        await until(lambda turn=turn: len(bench.mailbox.carried) == turn)  # type: ignore[misc]
        # What waits is known, whatever was told in between.
        bench.mailbox.mark(uuid_of("ann"))
        runtime.end(f"turn-{turn}")
    assert [work.kind for _, work in runtime.submitted] == ["request", "wake", "request", "wake"]


@pytest.mark.requirement("wakes.a-stop-may-join-the-turn-that-runs")
async def test_a_request_to_stop_joins_the_turn_that_runs_and_nothing_else_of_tasks_does(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    bench.mailbox.add("ann", "wake")
    await until(lambda: len(runtime.submitted) == 1)
    bench.mailbox.add("ann", "wake")
    stop = bench.mailbox.add("ann", "stop")
    await until(lambda: bench.mailbox.answers(stop) == [Answer.ACCEPTED])
    assert [what for what, _ in runtime.submitted] == ["begin", "steer"]
    (carried,) = [one for one in bench.mailbox.carried if one.record_id == stop]
    assert carried.binding is not None
    assert carried.binding.turn_id == "turn-1"
    runtime.end("turn-1")
    await until(lambda: len(bench.mailbox.outcomes) == 2)
    await until(lambda: len(runtime.submitted) == 3)


@pytest.mark.requirement("wakes.a-stop-may-join-the-turn-that-runs")
async def test_a_turn_that_refuses_a_stop_is_not_asked_again(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    runtime.say(busy("t"))
    runtime.answers.append(NotSubmitted(code="mid_turn_unsupported", again=Again.WHEN_IDLE))
    stop = bench.mailbox.add("ann", "stop")
    await until(lambda: bench.mailbox.answers(stop) == [Answer.RELEASED])
    await until(lambda: bench.keeper("ann").carrier.stop and bench.keeper("ann").is_asleep())
    assert [what for what, _ in runtime.submitted] == ["steer"]


async def test_a_stop_waits_where_a_person_wants_work_to_wait_for_the_turns_end(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann", launch=bench.agent("ann").launch.__class__(when_active=WhenActive.AFTER_TURN))
    runtime.say(busy("t"))
    bench.mailbox.add("ann", "stop")
    await until(lambda: bench.keeper("ann").carrier.stop and bench.keeper("ann").is_asleep())
    assert runtime.submitted == []


async def test_information_is_shown_into_a_turn_that_only_a_wake_up_began(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    bench.mailbox.add("ann", "wake")
    await until(lambda: len(runtime.submitted) == 1)
    shown = bench.mailbox.add("ann", "information")
    await until(lambda: bench.mailbox.answers(shown) == [Answer.VISIBLE])
    runtime.end("turn-1")
    bench.mailbox.add("ann", "request")
    await until(lambda: len(runtime.submitted) == 3)
    bench.mailbox.add("ann", "information")
    await until(lambda: bench.keeper("ann").carrier.context and bench.keeper("ann").is_asleep())
    assert len(runtime.submitted) == 3, "it would be answered in the request's final words"


@pytest.mark.requirement("wakes.never-a-second-turn-for-one")
async def test_a_wake_up_that_turns_uncertain_is_not_submitted_again(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    runtime.answers.append(Uncertain(code="connection_lost"))
    woken = bench.mailbox.add("ann", "wake")
    await until(lambda: bench.mailbox.answers(woken) == [Answer.UNCERTAIN])
    await until(lambda: bench.keeper("ann").is_asleep())
    assert len(runtime.submitted) == 1


@pytest.mark.requirement("wakes.never-a-second-turn-for-one")
async def test_the_answer_of_a_claim_that_was_lost_is_asked_for_again_and_begins_one_turn(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    bench.mailbox.trouble["claim_answer"] = [Lost("answer_lost", "the answer was lost")]
    woken = bench.mailbox.add("ann", "wake")
    await until(lambda: bench.mailbox.answers(woken) == [Answer.ACCEPTED])
    assert [work.record_id for _, work in runtime.submitted] == [woken]


async def test_a_turn_that_begins_between_the_claim_and_the_submission_gives_a_wake_up_back(
    bench: CarrierBench,
) -> None:
    runtime = await bench.kept("ann")
    intend = bench.carrying.outbox.intend

    async def begins_meanwhile(carried: object) -> None:
        await intend(carried)  # type: ignore[arg-type]
        if not runtime.submitted and runtime.now.state is State.IDLE:
            runtime.say(busy("a person's"))

    bench.carrying.outbox.intend = begins_meanwhile  # type: ignore[method-assign]
    woken = bench.mailbox.add("ann", "wake")
    await until(lambda: bench.mailbox.answers(woken) == [Answer.RELEASED])
    assert runtime.submitted == []
    bench.carrying.outbox.intend = intend  # type: ignore[method-assign]
    runtime.end("a person's")
    await until(lambda: bench.mailbox.answers(woken) == [Answer.RELEASED, Answer.ACCEPTED])


async def test_an_agent_whose_program_cannot_be_started_keeps_what_it_is_to_be_woken_for(bench: CarrierBench) -> None:
    bench.adapter.failures.append(StartFailed("no_program", "it is not installed"))
    bench.mailbox.add("ann", "wake")
    bench.sessions.tell(bench.agent("ann"))
    await until(lambda: (keeper := bench.carrying.roster.keeper(uuid_of("ann"))) is not None and keeper.failure)
    await until(lambda: bench.keeper("ann").carrier.wake and bench.keeper("ann").is_asleep())
    assert bench.mailbox.claims == {}, "that it cannot be started counts as no wake-up"
    bench.change("ann", provider="fake", workspace=str(bench.home.path / "work"))
    runtime = await bench.next_runtime(0, "ann")
    await until(lambda: len(runtime.submitted) == 1)


@pytest.mark.requirement("wakes.again-a-few-times-and-then-left")
async def test_the_status_says_that_an_agent_is_woken_no_more(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    bench.mailbox.left_alone[uuid_of("ann")] = 2
    bench.mailbox.mark(uuid_of("ann"))

    def detail() -> str:
        newest = [status for agent_id, status in bench.sessions.reports if agent_id == uuid_of("ann")][-1]
        return newest.detail if newest.state is Observed.IDLE else "?"

    await until(lambda: "2 notification(s)" in detail())
    runtime.say(busy("t"))
    runtime.end("t")
    await until(lambda: "2 notification(s)" in detail())
    bench.mailbox.left_alone.clear()
    bench.mailbox.mark(uuid_of("ann"))
    await until(lambda: detail() == "")


@pytest.mark.requirement("wakes.no-storm")
async def test_the_status_says_until_when_an_agent_is_woken_for_nothing(bench: CarrierBench) -> None:
    await bench.kept("ann")
    agent_id = uuid_of("ann")
    bench.mailbox.held_until_ms[agent_id] = 1_800_000_000_000
    bench.mailbox.mark(agent_id)

    def detail() -> str:
        return next(status.detail for told, status in reversed(bench.sessions.reports) if told == agent_id)

    await until(lambda: "from 2027-01-15 08:00 UTC on" in detail())
    bench.mailbox.held_until_ms.clear()
    bench.mailbox.mark(agent_id)
    await until(lambda: detail() == "")


@pytest.mark.requirement("wakes.an-idle-agent-gets-one-turn")
async def test_the_sweep_finds_and_counts_a_wake_up_that_no_edge_told_of(bench: CarrierBench) -> None:
    await bench.kept("ann")
    await until(lambda: bench.keeper("ann").is_asleep())
    bench.mailbox.silent = True
    woken = bench.mailbox.add("ann", "wake")
    await bench.sweep_until(1)
    await until(lambda: bench.mailbox.answers(woken) == [Answer.ACCEPTED])


@pytest.mark.requirement("providers.no-edge-is-missed")
async def test_the_sweep_finds_and_counts_a_request_to_stop_that_no_edge_told_of(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    runtime.say(busy("t"))
    await until(lambda: (life := bench.keeper("ann").life) is not None and life.current.turn_id == "t")
    await until(lambda: bench.keeper("ann").is_asleep())
    bench.mailbox.silent = True
    asked = bench.mailbox.add("ann", "stop")
    await bench.sweep_until(1)
    await until(lambda: bench.mailbox.answers(asked) == [Answer.ACCEPTED])
