"""What the scripted adapter makes of a program that misbehaves: each way maps to exactly one kind of submission."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fencepost_providers.adapters.base import Runtime, StartFailed
from fencepost_providers.adapters.scripted import program
from fencepost_providers.domain.runtimes import (
    Accepted,
    Again,
    CapabilityKind,
    Interruption,
    NotSubmitted,
    State,
    Submission,
    Support,
    TurnStatus,
    Uncertain,
    Visible,
)
from fencepost_testing.adapter_benches import Heard, Hold, Say, ScriptedBench, Starter, processes_of, until

# For what times out anyhow.
SHORT_MS = 250
# Long enough for an answer on a busy machine, where only what follows it never comes.
ENOUGH_MS = 1_500


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[ScriptedBench]:
    folder = tmp_path / "agent"
    folder.mkdir()
    yield ScriptedBench(folder)
    assert not processes_of(folder), "left behind"


def accepted(submission: Submission) -> Accepted:
    assert isinstance(submission, Accepted), submission
    return submission


# --- submissions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """What comes of work that starts a turn: the kind and code of the submission, how often it was executed."""

    kind: type
    code: str = ""
    executed: int = 1
    answer_ms: int = 20_000


STARTS = {
    "accepts_no_turn": Wrong(kind=Uncertain, code="malformed_answer", executed=0),
    "answers_twice": Wrong(kind=Accepted),
    "busy": Wrong(kind=NotSubmitted, code="busy", executed=0),
    "completes_before_answer": Wrong(kind=Accepted),
    "dies_after_execution": Wrong(kind=Uncertain, code="connection_lost"),
    "dies_after_write": Wrong(kind=Uncertain, code="connection_lost", executed=0),
    "double_completion": Wrong(kind=Accepted),
    "drops": Wrong(kind=Uncertain, code="answer_timeout", executed=0, answer_ms=SHORT_MS),
    "foreign_receipt": Wrong(kind=Uncertain, code="no_receipt"),
    "garbage": Wrong(kind=Accepted),
    "half_answer": Wrong(kind=Uncertain, code="connection_lost"),
    "huge_lines": Wrong(kind=Accepted),
    "malformed_answer": Wrong(kind=Uncertain, code="malformed_answer"),
    "no_receipt": Wrong(kind=Uncertain, code="no_receipt"),
    "old_generation": Wrong(kind=Accepted),
    "other_turn": Wrong(kind=Uncertain, code="no_receipt", answer_ms=ENOUGH_MS),
    "phantom_turn": Wrong(kind=Uncertain, code="no_receipt", executed=0, answer_ms=ENOUGH_MS),
    "slow 20": Wrong(kind=Accepted),
    "stale_turn": Wrong(kind=NotSubmitted, code="stale_turn", executed=0),
    "swapped": Wrong(kind=Accepted),
    "unknown_error": Wrong(kind=Uncertain, code="rejected", executed=0),
}
# Each has a test of its own below.
ELSEWHERE = {"dies_mid_write", "end_unsaid", "folds", "ignores_interrupt", "refuses_interrupt"}


def test_every_misbehaviour_of_the_program_is_tried() -> None:
    assert {name.split()[0] for name in STARTS} | ELSEWHERE == set(program.MISBEHAVIOURS)


@pytest.mark.requirement("adapters.unclassified-is-uncertain")
@pytest.mark.parametrize("name", STARTS)
async def test_each_misbehaviour_maps_to_one_kind_of_submission(
    bench: ScriptedBench, start: Starter, name: str
) -> None:
    expected = STARTS[name]
    bench.answer_ms = expected.answer_ms
    runtime, heard = await start()
    work = bench.scripted("SAY the answer", f"MISBEHAVE {name}")
    submission = await runtime.begin(work)
    assert isinstance(submission, expected.kind), submission
    if isinstance(submission, Accepted):
        end = await heard.end_of(submission.binding.turn_id)
        assert (end.status, end.final_text) == (TurnStatus.COMPLETED, "the answer")
        await heard.idle()
        assert heard.ends == [end]
        last_idle = max(i for i, said in enumerate(heard.all) if said in heard.activities)
        assert heard.all.index(end) < last_idle
    else:
        assert isinstance(submission, NotSubmitted | Uncertain)
        assert submission.code == expected.code
        assert submission.detail
        if isinstance(submission, NotSubmitted):
            assert submission.again is Again.NOW
    assert list(await bench.executions()) == [work.record_id] * expected.executed


@pytest.mark.requirement("adapters.never-twice")
async def test_a_start_that_is_folded_into_the_running_turn_is_uncertain(bench: ScriptedBench, start: Starter) -> None:
    runtime, heard = await start()
    first = bench.delivery(Hold("go"), Say("x"))
    turn_id = accepted(await runtime.begin(first)).binding.turn_id
    folded = bench.scripted("NOTEXT", "MISBEHAVE folds")
    submission = await runtime.begin(folded)
    assert isinstance(submission, Uncertain), submission
    assert submission.code == "wrong_turn"
    bench.open("go")
    await heard.end_of(turn_id)
    assert await bench.executions() == [first.record_id, folded.record_id]


@pytest.mark.requirement("adapters.unclassified-is-uncertain")
@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        ("other_turn", Uncertain, "wrong_turn"),
        ("stale_turn", NotSubmitted, "stale_turn"),
        ("busy", NotSubmitted, "busy"),
        ("unknown_error", Uncertain, "rejected"),
        ("drops", Uncertain, "answer_timeout"),
        ("no_receipt", Uncertain, "no_receipt"),
        ("dies_after_execution", Uncertain, "connection_lost"),
    ],
)
async def test_misbehaving_at_a_steer_maps_to_one_kind_of_submission(
    bench: ScriptedBench, start: Starter, name: str, kind: type, code: str
) -> None:
    bench.answer_ms = {"drops": SHORT_MS, "no_receipt": ENOUGH_MS}.get(name, bench.answer_ms)
    runtime, _ = await start()
    turn_id = accepted(await begin_patiently(runtime, bench)).binding.turn_id
    submission = await runtime.steer(bench.scripted("NOTEXT", f"MISBEHAVE {name}"), turn_id)
    assert isinstance(submission, kind), submission
    assert isinstance(submission, NotSubmitted | Uncertain)
    assert submission.code == code


async def begin_patiently(runtime: Runtime, bench: ScriptedBench) -> Submission:
    """Start a turn that is held; a busy machine may take longer than a short limit, and then another one is tried."""
    for _ in range(20):
        submission = await runtime.begin(bench.delivery(Hold("never")))
        if isinstance(submission, Accepted):
            break
        await runtime.interrupt((await runtime.activity()).turn_id)
    return submission


@pytest.mark.requirement("adapters.unclassified-is-uncertain")
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("drops", "answer_timeout"),
        ("no_receipt", "no_receipt"),
        ("unknown_error", "rejected"),
        ("malformed_answer", "malformed_answer"),
        ("half_answer", "connection_lost"),
        ("dies_after_write", "connection_lost"),
    ],
)
async def test_misbehaving_at_information_leaves_it_uncertain(
    bench: ScriptedBench, start: Starter, name: str, code: str
) -> None:
    bench.answer_ms = SHORT_MS if name == "drops" else bench.answer_ms
    runtime, _ = await start()
    submission = await runtime.show(bench.scripted(f"MISBEHAVE {name}", kind="information"))
    assert isinstance(submission, Uncertain), submission
    assert submission.code == code


@pytest.mark.requirement("adapters.unclassified-is-uncertain")
async def test_a_program_that_dies_while_it_is_written_to_leaves_the_work_uncertain(
    bench: ScriptedBench, start: Starter
) -> None:
    runtime, heard = await start()
    # More than a pipe holds: some of it has certainly not left when the program dies.
    work = bench.scripted("SAY x", body="MISBEHAVE dies_mid_write" + "\x01" * 65_000)
    submission = await runtime.begin(work)
    assert isinstance(submission, Uncertain), submission
    assert submission.code == "connection_lost"
    assert (await heard.close()).exit_code == program.EXIT_DIED
    assert not await bench.executions()


@pytest.mark.requirement("adapters.unclassified-is-uncertain")
async def test_work_for_a_program_that_reads_nothing_is_proved_not_sent_once_nothing_more_fits(
    bench: ScriptedBench, start: Starter
) -> None:
    bench.answer_ms = SHORT_MS
    runtime, _ = await start()
    os.kill(runtime.pid, 19)
    seen: list[Submission] = await asyncio.gather(
        *(runtime.begin(bench.delivery(body="\x01" * 65_000)) for _ in range(16))
    )
    os.kill(runtime.pid, 18)
    first, *_, last = seen
    assert isinstance(first, Uncertain), first
    assert isinstance(last, NotSubmitted), last
    assert (last.code, last.again) == ("not_written", Again.WHEN_IDLE)


@pytest.mark.requirement("adapters.unclassified-is-uncertain")
async def test_a_cancelled_submission_is_not_sent_again(bench: ScriptedBench, start: Starter) -> None:
    runtime, heard = await start()
    work = bench.scripted("SAY x", "MISBEHAVE slow 50")
    submitting = asyncio.ensure_future(runtime.begin(work))
    await heard.until(lambda: bool(heard.ends), "the turn ran")
    submitting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await submitting
    end = await heard.end_of(accepted(await runtime.begin(bench.delivery(Say("next")))).binding.turn_id)
    assert end.final_text == "next"
    assert list(await bench.executions()).count(work.record_id) == 1


# --- what the program says --------------------------------------------------------------------------------------------


@pytest.mark.requirement("adapters.end-before-idle")
async def test_an_idle_without_the_end_of_the_turn_is_told_in_the_end(bench: ScriptedBench, start: Starter) -> None:
    runtime, heard = await start()
    accepted(await runtime.begin(bench.scripted("SAY x", "MISBEHAVE end_unsaid")))
    await heard.until(lambda: any(a.state is State.PROCESSING for a in heard.activities), "processing")
    await heard.idle()
    assert not heard.ends
    # And the next turn is none the worse for it.
    end = await heard.end_of(accepted(await runtime.begin(bench.delivery(Say("next")))).binding.turn_id)
    await heard.until(lambda: heard.all[-1] in heard.activities, "idle right behind the end")
    assert heard.ends == [end]


@pytest.mark.requirement("adapters.turn-ends-as-it-ended")
async def test_a_turn_that_nobody_asked_for_is_told_too(bench: ScriptedBench, start: Starter) -> None:
    bench.script["own_turns"] = [["SAY by myself"]]
    _, heard = await start()
    await heard.until(lambda: bool(heard.ends), "its end")
    assert heard.ends[0].final_text == "by myself"


@pytest.mark.requirement("adapters.final-text")
@pytest.mark.parametrize(
    ("steps", "final"),
    [
        (("PLAIN a", "PLAIN b"), "b"),
        (("SAY a", "PLAIN b"), "a"),
        (("SAY a", "SAY b"), "b"),
        (("PLAIN a", "COMMENTARY b"), "a"),
        (("COMMENTARY b",), ""),
    ],
)
async def test_the_last_final_item_counts_and_without_one_the_last_without_a_phase(
    bench: ScriptedBench, start: Starter, steps: tuple[str, ...], final: str
) -> None:
    runtime, heard = await start()
    end = await heard.end_of(accepted(await runtime.begin(bench.scripted(*steps))).binding.turn_id)
    assert end.final_text == final


@pytest.mark.requirement("adapters.interrupt-is-exact")
@pytest.mark.parametrize(
    ("name", "result"),
    [("refuses_interrupt", Interruption.REQUESTED), ("ignores_interrupt", Interruption.UNCERTAIN)],
)
async def test_an_interrupt_without_an_end_is_no_interruption(
    bench: ScriptedBench, start: Starter, name: str, result: Interruption
) -> None:
    bench.answer_ms = ENOUGH_MS
    runtime, heard = await start()
    await runtime.begin(bench.scripted("WAIT never", f"MISBEHAVE {name}"))
    turn_id = (await runtime.activity()).turn_id
    assert (await runtime.interrupt(turn_id)).result is result
    assert not heard.ends


@pytest.mark.requirement("adapters.death-is-told-once")
async def test_a_program_that_dies_in_a_turn_says_how_and_ends_no_turn(bench: ScriptedBench, start: Starter) -> None:
    runtime, heard = await start()
    turn_id = accepted(await runtime.begin(bench.scripted("WAIT go", "DIE 7"))).binding.turn_id
    bench.open("go")
    closed = await heard.close()
    assert (closed.intended, closed.exit_code) == (False, 7)
    assert turn_id not in {end.turn_id for end in heard.ends}
    assert len(heard.closings) == 1


# --- starting and stopping --------------------------------------------------------------------------------------------


@pytest.mark.requirement("adapters.start-fails-definitely")
@pytest.mark.parametrize(
    ("wrong", "code", "again"),
    [
        ("active_writer", "active_writer", True),
        ("exits", "program_exited", False),
        ("malformed_answer", "program_unknown", False),
        ("other_conversation", "conversation_conflict", False),
        ("unknown_error", "open_refused", False),
    ],
)
async def test_a_program_that_does_not_start_well_is_ended_and_says_why(
    bench: ScriptedBench, start: Starter, wrong: str, code: str, again: bool
) -> None:
    first, _ = await start()
    await first.stop()
    bench.script["start"] = [wrong]
    heard = Heard()
    with pytest.raises(StartFailed) as failed:
        await bench.adapter.start(bench.plan(conversation_id=first.conversation_id), heard)
    assert (failed.value.code, failed.value.again) == (code, again)
    assert not heard.all
    assert not processes_of(bench.folder)


def test_every_way_to_start_wrongly_is_tried() -> None:
    tried = {"active_writer", "exits", "malformed_answer", "other_conversation", "unknown_error", "hangs", "indexes"}
    assert tried == set(program.START_MISBEHAVIOURS)


@pytest.mark.requirement("adapters.start-fails-definitely")
async def test_the_last_words_of_a_program_that_exits_at_its_start_are_told(bench: ScriptedBench) -> None:
    bench.script["start"] = ["exits"]
    with pytest.raises(StartFailed, match="exit code 3: no licence on this machine"):
        await bench.adapter.start(bench.plan(), Heard())
    log = Path(bench.adapter.log_file(bench.plan()))
    assert log.read_text() == "no licence on this machine\n"


@pytest.mark.requirement("adapters.start-fails-definitely")
async def test_a_program_that_never_greets_is_given_up(bench: ScriptedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost_providers.adapters.scripted.scripted_adapter.HELLO_MS_MAX", SHORT_MS)
    bench.script["start"] = ["hangs"]
    with pytest.raises(StartFailed) as failed:
        await bench.adapter.start(bench.plan(), Heard())
    assert (failed.value.code, failed.value.again) == ("program_silent", True)


@pytest.mark.requirement("adapters.joined")
@pytest.mark.parametrize("wrong", ["hangs", "indexes"])
async def test_a_start_that_does_not_end_can_be_cancelled(bench: ScriptedBench, wrong: str) -> None:
    bench.script["start"] = [wrong]
    starting = asyncio.ensure_future(bench.adapter.start(bench.plan(), Heard()))
    await until(lambda: any("program.py" in line for line in processes_of(bench.folder).values()), "it was started")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not processes_of(bench.folder)


async def test_a_program_that_indexes_is_waited_for(bench: ScriptedBench, start: Starter) -> None:
    bench.script["start"] = ["indexes"]
    starting = asyncio.ensure_future(start())
    conversations = bench.private / "conversations"
    await until(lambda: conversations.exists() and any(conversations.iterdir()), "it began to open")
    assert not starting.done()
    bench.open("indexed")
    runtime, _ = await starting
    assert runtime.conversation_id


@pytest.mark.requirement("adapters.start-fails-definitely")
@pytest.mark.parametrize("version", ["0.9.9", "nonsense", "1"])
async def test_a_version_that_is_too_old_or_none_is_refused(bench: ScriptedBench, version: str) -> None:
    bench.script["version"] = version
    with pytest.raises(StartFailed) as failed:
        await bench.adapter.start(bench.plan(), Heard())
    assert (failed.value.code, failed.value.again) == ("version_unsupported", False)


@pytest.mark.requirement("adapters.steer-is-fenced")
async def test_a_version_without_mid_turn_delivery_gets_none_and_works_otherwise(
    bench: ScriptedBench, start: Starter
) -> None:
    bench.script["version"] = "1.0.9"
    runtime, heard = await start()
    assert bench.adapter.capabilities("1.0.9")[CapabilityKind.MID_TURN].support is Support.NONE
    first = bench.delivery(Hold("go"), Say("x"))
    turn_id = accepted(await runtime.begin(first)).binding.turn_id
    submission = await runtime.steer(bench.delivery(), turn_id)
    assert isinstance(submission, NotSubmitted), submission
    assert submission.again is Again.WHEN_IDLE
    bench.open("go")
    await heard.end_of(turn_id)
    assert await bench.executions() == [first.record_id]
    assert isinstance(await runtime.show(bench.delivery(kind="information")), Visible)


@pytest.mark.requirement("adapters.start-fails-definitely")
@pytest.mark.parametrize("given", [("--script",), ("--wrong", "x"), ("--answer-ms", "soon"), ("--answer-ms", "0")])
async def test_arguments_that_mean_nothing_are_refused_before_anything_is_started(
    bench: ScriptedBench, given: tuple[str, ...]
) -> None:
    plan = bench.plan()
    plan = bench.plan(settings=type(plan.settings)(custom_arguments=given))
    with pytest.raises(StartFailed) as failed:
        await bench.adapter.start(plan, Heard())
    assert failed.value.code == "arguments_invalid"
    assert [finding.code for finding in await bench.adapter.inspect(plan, None)] == ["arguments_invalid"]


@pytest.mark.requirement("adapters.joined")
async def test_a_program_that_ignores_every_polite_request_is_killed(
    bench: ScriptedBench, start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost_providers.adapters.scripted.runtime.STOP_GRACE_MS", SHORT_MS)
    bench.script["stop"] = list(program.STOP_MISBEHAVIOURS)
    runtime, heard = await start()
    await runtime.stop()
    assert not processes_of(bench.folder)
    assert [(closed.intended, closed.exit_code) for closed in heard.closings] == [(True, -9)]


async def test_what_is_wrong_with_script_and_conversation_is_found(bench: ScriptedBench) -> None:
    plan = bench.plan(conversation_id="conversation-gone")
    (bench.private / "script.json").write_text("[", encoding="utf-8")
    codes = {finding.code for finding in await bench.adapter.inspect(plan, None)}
    assert codes == {"script_unreadable", "unknown_conversation"}


async def test_a_tool_is_called_through_the_server_of_the_plan(bench: ScriptedBench, start: Starter) -> None:
    server = bench.folder / "server.py"
    server.write_text(SERVER, encoding="utf-8")
    plan = bench.plan()
    mcp = type(plan.mcp)(command="python3", arguments=("-IS", str(server)), environment={"WHO": "ann"})
    runtime, heard = await start(mcp=mcp)
    work = bench.scripted('CALL greet {"word": "hello"}', "SAY it said: $RESULT")
    end = await heard.end_of(accepted(await runtime.begin(work)).binding.turn_id)
    assert end.final_text == "it said: hello ann"


SERVER = """
import json, os, sys
for line in sys.stdin:
    frame = json.loads(line)
    if frame["method"] == "tools/call":
        text = frame["params"]["arguments"]["word"] + " " + os.environ["WHO"]
        print(json.dumps({"id": frame["id"], "result": {"content": [{"type": "text", "text": text}]}}), flush=True)
    elif "id" in frame:
        print(json.dumps({"id": frame["id"], "result": {}}), flush=True)
"""
