"""Nothing strands: what is cut off half-way is still given back, told, forgotten and ended. Found by a review."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.errors import NotWritten
from fencepost_providers import outbox
from fencepost_providers.adapters.base import SUBMIT_MS_MAX, StartFailed
from fencepost_providers.carrier import CLAIM_SPARE_MS, SUBMIT_SLACK_MS
from fencepost_providers.domain.agents import Desired
from fencepost_providers.domain.carried import Answer, Carried
from fencepost_providers.domain.lifecycle import Phase
from fencepost_providers.domain.refusals import StorageError
from fencepost_providers.domain.runtimes import (
    Accepted,
    Activity,
    Mode,
    Row,
    RowKind,
    State,
    TurnBinding,
    TurnEnd,
    TurnStatus,
)
from fencepost_providers.leases import HeldLease
from fencepost_providers.life import ENDS_KEPT_MAX
from fencepost_providers.links import DirectoryStep, Evidence, Observed
from fencepost_providers.orders import Attach, HasEnded, Restart, WaitingFor
from fencepost_providers.reports import Reports
from fencepost_providers.rows import ROWS_BYTES_MAX, Rows
from fencepost_testing.carrier_fakes import CarrierBench, FakeSessions, HurriedClock, until, uuid_of

ANN = uuid_of("ann")


def held(gate: asyncio.Event, real: Callable[..., Awaitable[Any]], reached: asyncio.Event) -> Callable[..., Any]:
    """A call that waits for a gate; cancelling it is cancelling a call on its way."""

    async def call(*words: Any, **named: Any) -> Any:
        reached.set()
        await gate.wait()
        return await real(*words, **named)

    return call


@pytest.mark.requirement("providers.a-start-that-is-not-wanted-any-more-is-joined")
@pytest.mark.parametrize("call", ["release", "claim"])
async def test_a_failed_start_gives_its_lease_back_although_it_is_switched_off_meanwhile(
    bench: CarrierBench, call: str
) -> None:
    gate, reached = asyncio.Event(), asyncio.Event()
    place: Any = bench.sessions if call == "release" else bench.mailbox
    setattr(place, call, held(gate, getattr(place, call), reached))
    bench.adapter.failures.append(StartFailed("no_login", "nobody is logged in"))
    bench.mailbox.add("ann", "request")
    bench.sessions.tell(bench.agent("ann"))
    await until(reached.is_set)
    bench.change("ann", desired=Desired.OFF)
    await until(lambda: bench.keeper("ann").agent.desired is Desired.OFF)
    gate.set()
    await until(lambda: ANN not in bench.sessions.leases, "the lease being given back")
    bench.change("ann", desired=Desired.ON)
    await bench.next_runtime(0, "ann")


@pytest.mark.requirement("providers.off-and-paused-hold-work")
async def test_an_agent_that_is_switched_off_while_its_requests_are_failed_keeps_those_that_are_left(
    bench: CarrierBench,
) -> None:
    gate, reached = asyncio.Event(), asyncio.Event()
    bench.mailbox.claim = held(gate, bench.mailbox.claim, reached)  # type: ignore[method-assign]
    bench.adapter.failures.append(StartFailed("no_login", "nobody is logged in"))
    first, second = (bench.mailbox.add("ann", "request") for _ in range(2))
    bench.sessions.tell(bench.agent("ann"))
    await until(reached.is_set)
    bench.change("ann", desired=Desired.OFF)
    await until(lambda: bench.keeper("ann").agent.desired is Desired.OFF)
    gate.set()
    await until(lambda: ANN not in bench.sessions.leases)
    assert (bench.mailbox.answers(first), bench.mailbox.answers(second)) == ([Answer.FAILED], [])


@pytest.mark.requirement("providers.a-start-that-is-not-wanted-any-more-is-joined")
async def test_a_start_that_is_not_wanted_any_more_when_it_begins_is_not_made(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    gate, reached = asyncio.Event(), asyncio.Event()
    runtime.stop = held(gate, runtime.stop, reached)  # type: ignore[method-assign]
    order = Restart(fresh=False)
    bench.keeper("ann").order(order)
    await until(reached.is_set)
    bench.change("ann", desired=Desired.OFF)
    await until(lambda: bench.keeper("ann").agent.desired is Desired.OFF)
    # A start that Codex's indexing holds up for an hour would be noticed by nothing.
    bench.adapter.gate = asyncio.Event()
    gate.set()
    assert await asyncio.wait_for(order.result, 5) is not None
    await until(lambda: bench.keeper("ann").phase is Phase.OFF)
    assert ANN not in bench.sessions.leases
    assert bench.sessions.told.count("acquire") == 1


@pytest.mark.requirement("providers.a-start-that-is-not-wanted-any-more-is-joined")
async def test_a_terminal_that_has_gone_before_its_turn_changes_nothing(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    order = Attach(wait_idle_ms=1_000)
    order.gone = True
    bench.keeper("ann").order(order)
    assert isinstance(await asyncio.wait_for(order.steps.get(), 5), HasEnded)
    assert (runtime.stopped, len(bench.adapter.runtimes)) == (False, 1)


@pytest.mark.requirement("providers.a-start-that-is-not-wanted-any-more-is-joined")
async def test_what_is_ordered_of_a_keeper_that_ends_is_refused_at_once(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    gate, reached = asyncio.Event(), asyncio.Event()
    runtime.stop = held(gate, runtime.stop, reached)  # type: ignore[method-assign]
    keeper = bench.keeper("ann")
    bench.sessions.remove(ANN)
    await until(reached.is_set)
    keeper.closing = True
    attach, restart = Attach(wait_idle_ms=0), Restart(fresh=False)
    keeper.order(attach)
    keeper.order(restart)
    assert isinstance(attach.steps.get_nowait(), HasEnded)
    assert restart.result.done()
    gate.set()


@pytest.mark.requirement("providers.a-restart-adopts-nothing-by-guess")
async def test_a_stop_of_the_service_during_the_stop_of_an_agent_joins_its_program_and_tells(
    bench: CarrierBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost_providers.roster.FINISH_MS_MAX", 20)
    runtime = await bench.kept("ann")
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.answers(asked) == [Answer.ACCEPTED])
    gate, reached = asyncio.Event(), asyncio.Event()
    runtime.stop = held(gate, runtime.stop, reached)  # type: ignore[method-assign]
    bench.change("ann", desired=Desired.OFF)
    await until(reached.is_set)
    task = bench.carrying.roster._tasks[ANN]
    stopping = asyncio.ensure_future(bench.stop())
    await until(task.cancelling)
    gate.set()
    await stopping
    assert runtime.stopped
    assert ANN not in bench.sessions.leases
    assert [outcome.status for outcome in bench.mailbox.outcomes] == [TurnStatus.LOST]


@pytest.mark.requirement("providers.a-lost-lease-ends-and-joins-the-child")
async def test_a_start_that_breaks_its_word_keeps_its_lease_since_its_child_may_live(bench: CarrierBench) -> None:
    bench.adapter.failures.append(RuntimeError("not a StartFailed"))
    bench.sessions.tell(bench.agent("ann"))
    await until(lambda: bench.sessions.told.count("acquire") > 1)
    assert "release" not in bench.sessions.told
    assert bench.sessions.leases == {ANN: "lease-1"}


@pytest.mark.requirement("providers.a-restart-adopts-nothing-by-guess")
async def test_an_acceptance_that_is_told_only_after_a_restart_does_not_leave_its_turn_open(tmp_path: Path) -> None:
    bench = CarrierBench(tmp_path / "h")
    await bench.start()
    binding = TurnBinding(provider="fake", conversation_id="c", turn_id="t", mode=Mode.START)
    carried = Carried(token="a" * 32, agent_id=ANN, record_id="req_1", generation=2, written_at_ms=1)
    await bench.carrying.store.intend(carried)
    await bench.carrying.store.settle(carried.token, Answer.ACCEPTED, "accepted", binding)
    await bench.stop()
    await bench.start()
    try:
        # Nobody starts this agent again, and its binding is not in the listing of the recovery: it is told later.
        await until(lambda: bench.mailbox.outcomes)
        assert [one.answer for one in bench.mailbox.carried] == [Answer.ACCEPTED]
        assert [(one.token, one.status, one.binding) for one in bench.mailbox.outcomes] == [
            (carried.token, TurnStatus.LOST, binding)
        ]
    finally:
        await bench.stop()


@pytest.mark.requirement("providers.a-turns-end-may-come-before-its-acceptance")
async def test_ends_of_turns_that_carried_something_are_not_kept_for_ever(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    life = bench.keeper("ann").life
    assert life is not None
    for number in range(ENDS_KEPT_MAX + 8):
        asked = bench.mailbox.add("ann", "request")
        await until(lambda asked=asked: bench.mailbox.answers(asked)[-1:] == [Answer.ACCEPTED])  # type: ignore[misc]
        runtime.end(f"turn-{number + 1}")
    await until(lambda: len(bench.mailbox.outcomes) == ENDS_KEPT_MAX + 8)
    assert len(life._ends) == ENDS_KEPT_MAX


@pytest.mark.requirement("providers.a-turns-end-may-come-before-its-acceptance")
async def test_the_first_end_of_a_turn_counts_where_two_are_said(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")

    async def ends_twice() -> Accepted:
        runtime.end("twice", "first")
        runtime.end("twice", "second", status=TurnStatus.FAILED)
        return runtime.accepted("twice", Mode.START)

    runtime.answers.append(ends_twice)
    bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.outcomes)
    assert [(one.status, one.final_text) for one in bench.mailbox.outcomes] == [(TurnStatus.COMPLETED, "first")]


@pytest.mark.requirement("providers.a-claim-is-looked-at-again-just-before-the-submission")
async def test_a_claim_that_could_expire_while_it_is_submitted_is_given_back(bench: CarrierBench) -> None:
    assert CLAIM_SPARE_MS > SUBMIT_MS_MAX + SUBMIT_SLACK_MS
    bench.mailbox.term_ms = SUBMIT_MS_MAX + SUBMIT_SLACK_MS
    runtime = await bench.kept("ann")
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.answers(asked)[:1] == [Answer.RELEASED])
    assert runtime.submitted == []


@pytest.mark.requirement("providers.no-edge-is-missed")
async def test_a_request_that_is_told_of_while_an_empty_claim_is_on_its_way_back_is_carried(
    bench: CarrierBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.kept("ann")
    carrier, gate, reached, claim = bench.keeper("ann").carrier, asyncio.Event(), asyncio.Event(), bench.mailbox.claim

    async def late(ask: Any) -> Any:
        taken = await claim(ask)
        if taken is None:
            reached.set()
            await gate.wait()
        return taken

    monkeypatch.setattr(bench.mailbox, "claim", late)
    bench.mailbox.add("ann", "request")
    await until(reached.is_set, "the claim that finds nothing more")
    noted = carrier._noted
    later = bench.mailbox.add("ann", "request")
    await until(lambda: carrier._noted > noted, "the carrier being told")
    gate.set()
    await until(lambda: Answer.ACCEPTED in bench.mailbox.answers(later))
    assert bench.carrying.roster.swept == 0


@pytest.mark.requirement("providers.an-end-is-on-a-disk-before-it-counts")
async def test_the_end_of_a_turn_that_the_mailbox_takes_at_once_is_written_by_nobody_else(
    bench: CarrierBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "TELL_FIRST_MS_MAX", 600_000)
    runtime = await bench.kept("ann")
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.answers(asked) == [Answer.ACCEPTED])
    await until(lambda: len(bench.carrying.outbox) == 0)
    written: list[object] = []
    monkeypatch.setattr(bench.carrying.store, "record", written.append)
    runtime.end("turn-1")
    await until(lambda: bench.mailbox.outcomes, "the mailbox being told")
    (told,) = bench.mailbox.outcomes
    await until(lambda: not bench.carrying.outbox.records(told.token), "the end being forgotten")
    assert (len(bench.mailbox.outcomes), written) == (1, [])


@pytest.mark.requirement("providers.an-end-is-on-a-disk-before-it-counts")
@pytest.mark.parametrize("why", ["it cannot be reached", "it takes longer"])
async def test_the_end_of_a_turn_that_the_mailbox_does_not_take_at_once_is_written_here_until_it_does(
    bench: CarrierBench, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    runtime = await bench.kept("ann")
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.answers(asked) == [Answer.ACCEPTED])
    gate, reached, store = asyncio.Event(), asyncio.Event(), bench.carrying.store
    tell = held(gate, bench.mailbox.tell_outcome, reached)
    if why == "it cannot be reached":
        # Well above what any test waits: only the failure itself makes it be written.
        monkeypatch.setattr(outbox, "TELL_FIRST_MS_MAX", 600_000)
        bench.mailbox.trouble = {"tell_outcome": [NotWritten("unreachable", "it is away")]}
        tell = bench.mailbox.tell_outcome
        monkeypatch.setattr(outbox, "TELL_AGAIN_MS_MIN", 600_000)
    monkeypatch.setattr(bench.mailbox, "tell_outcome", tell)
    runtime.end("turn-1")
    await until(store.outcomes, "the end being written")
    if why == "it cannot be reached":
        return
    gate.set()
    await until(lambda: not store.outcomes(), "the row being forgotten")
    assert len(bench.mailbox.outcomes) == 1


@pytest.mark.requirement("providers.outcomes-wait-while-the-mailbox-is-away")
async def test_a_disk_that_stays_full_does_not_keep_the_service_from_stopping(
    bench: CarrierBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.kept("ann")
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.answers(asked) == [Answer.ACCEPTED])

    async def full(_outcomes: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(bench.carrying.store, "record", full)
    await asyncio.wait_for(bench.stop(), 8)
    assert ANN not in bench.sessions.leases


@pytest.mark.requirement("providers.what-runs-follows-what-a-person-wants")
async def test_a_directory_of_another_epoch_ends_the_service_instead_of_leaving_it_deaf(bench: CarrierBench) -> None:
    await bench.kept("ann")
    bench.sessions.steps.put_nowait(DirectoryStep(epoch="other", revision=1, whole=True, agents=[], holders=[]))
    await until(bench.carrying.failed.is_set, "the service saying that it cannot go on")
    assert bench.carrying.directory.agent(ANN) is not None


class Breaking(FakeSessions):
    """Sessions whose link fails once in a way that nobody thought of."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble = {"renew": [ValueError("?")], "report": [ValueError("?")]}


@pytest.mark.requirement("providers.a-lease-is-lost-only-where-sessions-says-so")
async def test_a_renewal_that_fails_in_an_unknown_way_is_made_again() -> None:
    sessions = Breaking()
    sessions.leases[ANN] = "lease"
    lease = HeldLease(sessions=sessions, clock=HurriedClock(), acquisition_id="lease", on_lost=lambda: None)
    await until(lambda: sessions.told.count("renew") >= 2)
    await lease.release()
    assert sessions.leases == {}


@pytest.mark.requirement("providers.what-runs-follows-what-a-person-wants")
async def test_a_report_that_fails_in_an_unknown_way_does_not_end_reporting() -> None:
    sessions = Breaking()
    reports = Reports(sessions=sessions, clock=HurriedClock(), agent_id=ANN, acquisition_id="lease", generation=2)
    reports.note(Observed.IDLE, Evidence.PROCESS)
    await until(lambda: sessions.told.count("report") >= 1)
    reports.note(Observed.PROCESSING, Evidence.PROCESS)
    await until(lambda: [status.state for _, status in sessions.reports][-1:] == [Observed.PROCESSING])
    await reports.close()


@pytest.mark.requirement("providers.a-watch-shows-a-conversation-in-one-shape")
def test_the_rows_that_are_kept_of_an_agent_have_a_limit_in_bytes_too() -> None:
    rows = Rows(1)
    for number in range(1_000):
        rows.add(Row(kind=RowKind.ASSISTANT, text="x" * 16_384, turn_id=str(number)), at_ms=0, generation=1)
    assert sum(len(placed.row.text) for placed in rows._kept) <= ROWS_BYTES_MAX
    assert rows._kept[-1].row.turn_id == "999"


@pytest.mark.requirement("providers.a-terminal-waits-for-the-turns-end")
@pytest.mark.parametrize("what", ["off", "deleting", "restart"])
async def test_a_terminal_that_waits_for_a_turn_holds_up_nothing_that_a_person_asks_for(
    bench: CarrierBench, what: str
) -> None:
    runtime = await bench.kept("ann")
    runtime.say(Activity(state=State.PROCESSING, turn_id="long"))
    order = Attach(wait_idle_ms=600_000)
    bench.keeper("ann").order(order)
    assert isinstance(await asyncio.wait_for(order.steps.get(), 5), WaitingFor)
    if what == "restart":
        restart = Restart(fresh=False)
        bench.keeper("ann").order(restart)
        assert await asyncio.wait_for(restart.result, 5) is None
    else:
        bench.change("ann", **({"desired": Desired.OFF} if what == "off" else {"deleting": True}))
        await until(lambda: bench.keeper("ann").phase is Phase.OFF)
    assert runtime.stopped
    assert isinstance(order.steps.get_nowait(), HasEnded)


@pytest.mark.requirement("providers.a-deleted-agent-is-stopped-and-forgotten")
async def test_adapters_are_told_of_a_deleted_agent_after_its_program_has_ended(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    bench.sessions.remove(ANN)
    await until(lambda: bench.adapter.forgotten)
    assert bench.adapter.forgotten == [(ANN, str(bench.home.agent_folder(ANN)))]
    assert runtime.stopped


@pytest.mark.requirement("providers.a-deleted-agent-is-stopped-and-forgotten")
async def test_adapters_are_told_of_whom_was_deleted_while_the_service_was_away_and_a_failing_one_strands_nobody(
    tmp_path: Path,
) -> None:
    bench = CarrierBench(tmp_path / "h")
    bench.home.prepare()
    for name in ("gone", "ann"):
        bench.home.agent_folder(uuid_of(name)).mkdir(parents=True)
    (bench.home.path / "agents" / "no agent").mkdir()
    bench.sessions.tell(bench.agent("ann"))
    bench.adapter.forgetting = [RuntimeError("?")]
    await bench.start()
    try:
        await until(lambda: bench.adapter.forgotten)
        assert bench.adapter.forgotten == [(uuid_of("gone"), str(bench.home.agent_folder(uuid_of("gone"))))]
        await until(lambda: bench.adapter.runtimes)
        bench.sessions.remove(ANN)
        await until(lambda: len(bench.adapter.forgotten) == 2)
    finally:
        await bench.stop()


@pytest.mark.requirement("providers.what-runs-follows-what-a-person-wants")
async def test_of_changes_that_follow_each_other_at_once_the_newest_is_reported_and_the_same_state_never_twice() -> (
    None
):
    sessions = FakeSessions()
    reports = Reports(sessions=sessions, clock=HurriedClock(), agent_id=ANN, acquisition_id="lease", generation=2)
    reports.note(Observed.PROCESSING, Evidence.PROVIDER_EVENT, turn_id="short")
    reports.note(Observed.IDLE, Evidence.PROVIDER_EVENT)
    await until(lambda: sessions.reports)
    reports.note(Observed.IDLE, Evidence.PROVIDER_ANSWER)
    reports.note(Observed.PROCESSING, Evidence.PROVIDER_EVENT, turn_id="next")
    await reports.close()
    assert [(status.state, status.sequence) for _, status in sessions.reports] == [
        (Observed.IDLE, 2),
        (Observed.PROCESSING, 3),
    ]


@pytest.mark.requirement("providers.outcomes-wait-while-the-mailbox-is-away")
async def test_evidence_that_could_not_be_told_in_an_unknown_way_is_told_again(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    bench.mailbox.trouble = {"tell_carried": [ValueError("?")], "tell_outcome": [ValueError("?")]}
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.answers(asked) == [Answer.ACCEPTED])
    runtime.end("turn-1")
    await until(lambda: bench.mailbox.outcomes)


@pytest.mark.requirement("providers.a-request-becomes-a-turn-and-its-final-words-the-answer")
async def test_final_words_that_are_no_text_do_not_lose_the_end_of_their_turn(bench: CarrierBench) -> None:
    runtime = await bench.kept("ann")
    asked = bench.mailbox.add("ann", "request")
    await until(lambda: bench.mailbox.answers(asked) == [Answer.ACCEPTED])
    runtime.listener.turn_ended(
        TurnEnd(turn_id="turn-1", status=TurnStatus.COMPLETED, final_text="half \ud800 a sign", detail="\ud800")
    )
    await until(lambda: bench.mailbox.outcomes)
    (outcome,) = bench.mailbox.outcomes
    assert (outcome.final_text, outcome.final_bytes) == ("half ? a sign", 13)
