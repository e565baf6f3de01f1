"""What runs follows what a person wants: starts, failures, crashes, lost leases, terminals, restarts of the service."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from fencepost.errors import Uncertain as Lost
from fencepost_providers.adapters.base import StartFailed
from fencepost_providers.domain.agents import Desired, Launch
from fencepost_providers.domain.carried import Answer, Bound, Carried
from fencepost_providers.domain.lifecycle import Phase
from fencepost_providers.domain.runtimes import Accepted, Activity, Mode, State, TurnBinding, TurnStatus
from fencepost_providers.links import Binding, LeaseKind, Observed
from fencepost_providers.orders import Attach, HasEnded, HasJoined, LaunchNow, Restart, WaitingFor
from fencepost_providers.store.protocol import LifeMark
from fencepost_testing.carrier_fakes import CarrierBench, FakeRuntime, away, closed, refused, until, uuid_of

ANN = uuid_of("ann")


def states(bench: CarrierBench) -> list[Observed]:
    return [status.state for _, status in bench.sessions.reports]


@pytest.mark.requirement("providers.a-life-begins-in-one-order")
async def test_a_life_begins_under_its_lease_with_its_generation_open_before_anything_is_launched(
    bench: CarrierBench,
) -> None:
    runtime = await bench.kept("ann")
    told = [call for call in bench.sessions.told if call in {"acquire", "begin_generation", "set_conversation"}]
    assert told == ["acquire", "begin_generation", "set_conversation"]
    assert bench.mailbox.opened == [(ANN, 2)]
    (plan,) = bench.adapter.plans
    assert (plan.generation, plan.conversation_id) == (2, "")
    assert plan.environment["FENCEPOST_GENERATION"] == "2"
    assert plan.mcp.environment == {"FENCEPOST_HOME": bench.home.text, "FENCEPOST_SESSION_ID": ANN}
    await until(lambda: bench.sessions.kinds.get(bench.sessions.leases[ANN]) is LeaseKind.BACKGROUND)
    await until(lambda: bench.mailbox.owners == [(ANN, 2)])
    await until(lambda: states(bench)[-1:] == [Observed.IDLE])
    assert bench.sessions.agents[ANN].conversation_id == runtime.conversation_id


@pytest.mark.requirement("providers.a-life-begins-in-one-order")
async def test_a_lost_answer_on_the_way_is_asked_again_and_a_refusal_ends_the_attempt(bench: CarrierBench) -> None:
    bench.sessions.trouble["begin_generation"] = [Lost("connection_lost", "lost")]
    bench.sessions.trouble["acquire"] = [refused("lease_held"), away()]
    await bench.kept("ann")
    assert bench.sessions.told.count("acquire") == 3
    assert len(bench.adapter.plans) == 1


@pytest.mark.requirement("providers.only-who-is-wanted-is-run")
async def test_nobody_is_run_whom_nobody_wants(bench: CarrierBench) -> None:
    bench.sessions.tell(bench.agent("own", desired=Desired.UNSPECIFIED))
    bench.sessions.tell(bench.agent("off", desired=Desired.OFF))
    bench.sessions.tell(bench.agent("paused", desired=Desired.PAUSED))
    bench.mailbox.add("off", "request")
    await bench.kept("ann")
    assert [plan.name for plan in bench.adapter.plans] == ["ann"]
    assert bench.carrying.roster.keeper(uuid_of("own")) is None


@pytest.mark.requirement("providers.starts-that-may-differ-back-off")
async def test_a_start_that_may_differ_later_is_tried_again_after_growing_pauses_and_takes_no_work(
    bench: CarrierBench,
) -> None:
    bench.adapter.failures += [StartFailed("active_writer", "somebody writes", again=True) for _ in range(3)]
    asked = bench.mailbox.add("ann", "request")
    await bench.kept("ann")
    assert len(bench.adapter.plans) == 4
    await until(lambda: bench.mailbox.answers(asked) == [Answer.ACCEPTED])
    assert [plan.generation for plan in bench.adapter.plans] == [2, 3, 4, 5]
    assert Observed.ERROR in states(bench)


@pytest.mark.requirement("providers.a-definite-failure-to-start-is-answered-by-the-host")
async def test_a_definite_failure_answers_each_waiting_request_and_information_stays(bench: CarrierBench) -> None:
    bench.adapter.failures.append(StartFailed("no_login", "nobody is logged in", hint="Log in."))
    asked = [bench.mailbox.add("ann", "request") for _ in range(3)]
    told = bench.mailbox.add("ann", "information")
    bench.sessions.tell(bench.agent("ann"))
    await until(lambda: [bench.mailbox.answers(one) for one in asked] == [[Answer.FAILED]] * 3)
    assert bench.mailbox.carried[0].evidence.startswith("no_login: nobody is logged in Log in.")
    await until(lambda: bench.keeper("ann").phase is Phase.FAILED)
    assert bench.sessions.leases == {}
    assert len(bench.adapter.plans) == 1
    # Work asks for a definite answer; what a person changed may be one.
    later = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.answers(later) == [Answer.ACCEPTED])
    assert bench.mailbox.answers(told) == [Answer.VISIBLE]


@pytest.mark.requirement("providers.a-definite-failure-to-start-is-answered-by-the-host")
async def test_what_a_person_changed_is_tried_at_once(bench: CarrierBench) -> None:
    bench.adapter.failures.append(StartFailed("no_login", "nobody is logged in"))
    bench.sessions.tell(bench.agent("ann"))
    await until(lambda: bench.carrying.roster.keeper(ANN) and bench.keeper("ann").phase is Phase.FAILED)
    bench.change("ann", launch=Launch(custom_arguments="'unclosed"))
    await until(lambda: (failure := bench.keeper("ann").failure) and "invalid_arguments" in failure.text)
    bench.change("ann", launch=Launch(custom_arguments="--one 'two three'"))
    await until(lambda: bench.adapter.runtimes)
    assert bench.adapter.plans[-1].settings.custom_arguments == ("--one", "two three")


@pytest.mark.requirement("providers.a-start-that-is-not-wanted-any-more-is-joined")
@pytest.mark.parametrize("why", ["off", "lease", "deleting", "stop"])
async def test_a_start_is_cancelled_and_joined_when_it_is_not_wanted_any_more(bench: CarrierBench, why: str) -> None:
    bench.adapter.gate = asyncio.Event()
    bench.sessions.tell(bench.agent("ann"))
    await until(lambda: bench.adapter.plans)
    if why == "off":
        bench.change("ann", desired=Desired.OFF)
    elif why == "deleting":
        bench.change("ann", deleting=True)
    elif why == "stop":
        await bench.stop()
    else:
        bench.sessions.lost.add(bench.sessions.leases[ANN])
    await until(lambda: bench.adapter.cancelled == 1)
    if why == "lease":
        bench.sessions.leases.clear()
        bench.adapter.gate.set()
        await until(lambda: bench.adapter.runtimes)
        assert len(bench.adapter.plans) == 2
    else:
        await until(lambda: ANN not in bench.sessions.leases)
        assert bench.adapter.runtimes == []


@pytest.mark.requirement("providers.a-dead-program-loses-its-turns-and-the-conversation-goes-on")
async def test_a_runtime_that_ends_loses_its_turns_and_starts_again_on_the_exact_conversation(
    bench: CarrierBench,
) -> None:
    runtime = await bench.kept("ann")
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.answers(asked) == [Answer.ACCEPTED])
    runtime.listener.closed(closed())
    after = await bench.next_runtime(1, "ann")
    (outcome,) = bench.mailbox.outcomes
    assert (outcome.record_id, outcome.status) == (asked, TurnStatus.LOST)
    assert after.conversation_id == runtime.conversation_id
    assert (after.plan.generation, runtime.plan.generation) == (3, 2)
    assert Observed.ERROR in states(bench)
    # What a former life says is heard by nobody.
    runtime.listener.activity(Activity(state=State.PROCESSING, turn_id="ghost"))
    runtime.end("turn-1")
    assert bench.keeper("ann").activity.state is State.IDLE
    assert len(bench.mailbox.outcomes) == 1


@pytest.mark.requirement("providers.a-program-that-dies-again-and-again-is-given-up")
async def test_a_program_that_dies_again_and_again_is_left_alone_until_work_comes(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    for number in range(1, 9):
        runtime.listener.closed(closed())
        runtime = await bench.next_runtime(number, "ann")
    runtime.listener.closed(closed())
    await until(lambda: bench.keeper("ann").phase is Phase.FAILED)
    failure = bench.keeper("ann").failure
    assert failure is not None
    assert "9 times in a row" in failure.text
    bench.mailbox.add("ann", "request")
    await until(lambda: len(bench.adapter.runtimes) == 10)


@pytest.mark.requirement("providers.a-lost-lease-ends-and-joins-the-child")
async def test_a_lost_lease_stops_and_joins_the_runtime_before_anything_else(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.answers(asked) == [Answer.ACCEPTED])
    bench.sessions.lost.add(bench.sessions.leases.pop(ANN))
    released = bench.sessions.told.count("release")
    await until(lambda: runtime.stopped)
    await bench.next_runtime(1, "ann")
    assert bench.sessions.told.count("release") == released
    assert bench.mailbox.outcomes[0].status is TurnStatus.LOST


@pytest.mark.requirement("providers.a-lease-is-lost-only-where-sessions-says-so")
async def test_sessions_that_does_not_answer_ends_no_life(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    bench.sessions.trouble["renew"] = [away() for _ in range(4)]
    await until(lambda: not bench.sessions.trouble["renew"])
    assert not runtime.stopped
    assert bench.keeper("ann").phase is Phase.READY


@pytest.mark.requirement("providers.off-and-paused-hold-work")
async def test_a_deleted_agent_is_stopped_and_forgotten(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    bench.sessions.remove(ANN)
    await until(lambda: runtime.stopped)
    await until(lambda: bench.carrying.roster.keeper(ANN) is None)
    assert ANN not in bench.sessions.leases


@pytest.mark.requirement("providers.a-restart-replays-nothing-and-keeps-the-conversation")
async def test_a_restart_during_a_start_begins_anew_and_a_new_conversation_replaces_the_bound_one(
    bench: CarrierBench,
) -> None:
    bench.adapter.gate = asyncio.Event()
    bench.sessions.tell(bench.agent("ann", conversation_id="bound"))
    await until(lambda: bench.adapter.plans)
    order = Restart(fresh=True)
    bench.keeper("ann").order(order)
    await until(lambda: len(bench.adapter.plans) == 2)
    bench.adapter.gate.set()
    assert await asyncio.wait_for(order.result, 10) is None
    assert [plan.conversation_id for plan in bench.adapter.plans] == ["bound", ""]
    assert bench.sessions.agents[ANN].conversation_id == bench.adapter.runtimes[0].conversation_id != "bound"


@pytest.mark.requirement("providers.a-restart-adopts-nothing-by-guess")
async def test_a_program_that_opens_another_conversation_is_stopped(bench: CarrierBench) -> None:
    start = bench.adapter.start

    async def elsewhere(plan, listener):  # type: ignore[no-untyped-def]
        return await start(replace(plan, conversation_id="elsewhere"), listener)

    bench.adapter.start = elsewhere  # type: ignore[method-assign]
    bench.sessions.tell(bench.agent("ann", conversation_id="bound"))
    await until(lambda: bench.carrying.roster.keeper(ANN) and bench.keeper("ann").phase is Phase.FAILED)
    assert bench.adapter.runtimes[0].stopped
    assert bench.sessions.agents[ANN].conversation_id == "bound"


# --- terminals --------------------------------------------------------------------------------------------------------


async def attached(bench: CarrierBench, wait_idle_ms: int = 60_000) -> tuple[Attach, FakeRuntime]:
    order = Attach(wait_idle_ms=wait_idle_ms)
    bench.keeper("ann").order(order)
    assert isinstance(await asyncio.wait_for(order.steps.get(), 10), LaunchNow)
    return order, bench.adapter.runtimes[-1]


@pytest.mark.requirement("providers.nothing-is-carried-before-a-terminal-was-seen")
async def test_nothing_is_carried_between_the_hand_over_and_the_proof_that_the_terminal_is_there(
    bench: CarrierBench,
) -> None:
    background = await bench.kept("ann")
    order, runtime = await attached(bench)
    assert background.stopped
    assert runtime.plan.generation == background.plan.generation + 1
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: bench.keeper("ann").carrier.requests)
    assert runtime.submitted == []
    runtime.attachment.has_joined.set()
    assert isinstance(await asyncio.wait_for(order.steps.get(), 10), HasJoined)
    await until(lambda: bench.mailbox.answers(asked) == [Answer.ACCEPTED])
    assert bench.keeper("ann").attached
    assert bench.sessions.kinds[bench.sessions.leases[ANN]] is LeaseKind.INTERACTIVE
    runtime.attachment.has_left.set()
    end = await asyncio.wait_for(order.steps.get(), 10)
    assert isinstance(end, HasEnded)
    assert not end.failed
    back = await bench.next_runtime(2, "ann")
    assert (runtime.stopped, runtime.attachment.closed) == (True, True)
    assert back.conversation_id == background.conversation_id
    assert bench.sessions.kinds[bench.sessions.leases[ANN]] is LeaseKind.BACKGROUND


@pytest.mark.requirement("providers.nothing-is-carried-before-a-terminal-was-seen")
@pytest.mark.parametrize("how", ["never_seen", "reader_leaves", "dies"])
async def test_a_terminal_that_is_never_seen_gives_the_conversation_back(bench: CarrierBench, how: str) -> None:
    await bench.kept("ann")
    order, runtime = await attached(bench)
    if how == "never_seen":
        runtime.attachment.problem = StartFailed("embedded", "the terminal runs a conversation of its own")
        runtime.attachment.has_joined.set()
    elif how == "reader_leaves":
        order.gone = True
        bench.keeper("ann").wake()
    else:
        runtime.listener.closed(closed())
    end = await asyncio.wait_for(order.steps.get(), 10)
    assert isinstance(end, HasEnded)
    assert end.failed
    back = await bench.next_runtime(2, "ann")
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.answers(asked) == [Answer.ACCEPTED])
    assert back.submitted
    assert runtime.submitted == []


@pytest.mark.requirement("providers.a-terminal-waits-for-the-turns-end")
async def test_a_terminal_waits_for_the_turns_end_and_no_longer_than_it_may(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    runtime.say(Activity(state=State.PROCESSING, turn_id="long"))
    order = Attach(wait_idle_ms=500)
    bench.keeper("ann").order(order)
    assert await asyncio.wait_for(order.steps.get(), 10) == WaitingFor("long")
    end = await asyncio.wait_for(order.steps.get(), 10)
    assert isinstance(end, HasEnded)
    assert end.busy
    assert not runtime.stopped
    patient = Attach(wait_idle_ms=600_000)
    bench.keeper("ann").order(patient)
    assert await asyncio.wait_for(patient.steps.get(), 10) == WaitingFor("long")
    second = Attach(wait_idle_ms=0)
    runtime.end("long")
    assert isinstance(await asyncio.wait_for(patient.steps.get(), 10), LaunchNow)
    bench.adapter.runtimes[-1].attachment.has_joined.set()
    await asyncio.wait_for(patient.steps.get(), 10)
    bench.keeper("ann").order(second)
    refused_end = await asyncio.wait_for(second.steps.get(), 10)
    assert isinstance(refused_end, HasEnded)
    assert "another terminal" in refused_end.why


# --- a service that starts again --------------------------------------------------------------------------------------


@pytest.mark.requirement("providers.a-restart-adopts-nothing-by-guess")
async def test_a_start_accounts_for_the_intents_and_bindings_of_the_one_before(tmp_path: Path) -> None:
    turn = TurnBinding(provider="fake", conversation_id="c", turn_id="t", mode=Mode.START)
    bench = CarrierBench(tmp_path / "h")
    bench.sessions.tell(bench.agent("ann", conversation_id="c", desired=Desired.PAUSED))
    for known, token in ((False, "a" * 32), (True, "b" * 32)):
        bound = Bound(token=token, agent_id=ANN, record_id=f"ask_{token}", generation=1, binding=turn)
        bench.mailbox.left.append(Binding(bound=bound, uncertain=known))
    bench.mailbox.trouble["bindings"] = [away() for _ in range(3)]
    await bench.start()
    meant = Carried(token="c" * 32, agent_id=ANN, record_id="ask_meant", generation=1, written_at_ms=1)
    await bench.carrying.store.intend(meant)
    await bench.stop()
    await bench.start()
    try:
        await until(lambda: bench.mailbox.answers("ask_meant") == [Answer.UNCERTAIN])
        await until(lambda: bench.mailbox.outcomes)
        assert {one.token: one.status for one in bench.mailbox.outcomes} == {"a" * 32: TurnStatus.LOST}
        assert bench.carrying.store.dispatcher.incarnation == 2
    finally:
        await bench.stop()


@pytest.mark.requirement("providers.a-restart-adopts-nothing-by-guess")
@pytest.mark.parametrize(("pid", "given_up"), [(2**22 + 7, True), (0, False)])
async def test_a_lease_of_an_earlier_start_is_given_up_early_only_where_its_child_is_certainly_gone(
    tmp_path: Path, pid: int, given_up: bool
) -> None:
    bench = CarrierBench(tmp_path / "h")
    await bench.start()
    await bench.carrying.store.begin_life(LifeMark(agent_id=ANN, acquisition_id="old", generation=2, pid=pid))
    await bench.stop()
    bench.sessions.leases[ANN] = "old"
    await bench.start()
    try:
        await until(bench.carrying.roster._parts.recovered.is_set)
        assert (ANN not in bench.sessions.leases) is given_up
        assert bool(bench.carrying.store.lives()) is not given_up
    finally:
        await bench.stop()


@pytest.mark.requirement("providers.a-restart-adopts-nothing-by-guess")
async def test_a_stop_of_the_service_finishes_what_is_in_hand_and_takes_nothing_new(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    gate = asyncio.Event()

    async def slow() -> Accepted:
        await gate.wait()
        return runtime.accepted("turn-x", Mode.START)

    runtime.answers.append(slow)
    asked = bench.mailbox.add("ann", "request")
    later = bench.mailbox.add("ann", "request")
    await until(lambda: runtime.submitted)
    stopping = asyncio.ensure_future(bench.stop())
    await until(lambda: bench.carrying.roster._stopping)
    gate.set()
    await stopping
    assert (runtime.stopped, len(runtime.submitted)) == (True, 1)
    assert bench.mailbox.answers(asked) == [Answer.ACCEPTED]
    assert bench.mailbox.answers(later) == []
    assert states(bench)[-1] is Observed.OFF


@pytest.mark.requirement("providers.a-lost-lease-ends-and-joins-the-child")
async def test_a_program_whose_end_was_not_seen_keeps_its_lease_until_its_term(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")

    async def fails() -> None:
        raise RuntimeError("it does not end")

    runtime.stop = fails  # type: ignore[method-assign]
    bench.change("ann", desired=Desired.OFF)
    await until(lambda: bench.keeper("ann").phase is Phase.OFF)
    assert ANN in bench.sessions.leases
    assert [mark.agent_id for mark in bench.carrying.store.lives()] == [ANN]
    renewals = bench.sessions.told.count("renew")
    await bench.clock.sleep(25)
    assert bench.sessions.told.count("renew") == renewals
