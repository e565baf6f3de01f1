"""What every adapter shows, whatever its program. Written once; conftest.py says over which programs."""

from __future__ import annotations

import asyncio

import pytest

from fencepost_providers.adapters.base import StartFailed
from fencepost_providers.domain.runtimes import (
    FINAL_BYTES_MAX,
    Accepted,
    Again,
    CapabilityKind,
    Interruption,
    Mode,
    NotSubmitted,
    State,
    Submission,
    Support,
    TurnEnd,
    TurnStatus,
    Uncertain,
    Visible,
)
from fencepost_testing.adapter_benches import (
    Aside,
    Ask,
    Bench,
    Fail,
    Heard,
    Hold,
    Long,
    Say,
    Silence,
    Starter,
    contents_of,
    processes_of,
    until,
)

BODY_BYTES_MAX = 64 * 1024
UNUSUAL = (
    "tab\t, CRLF\r\n, quotes \"'`, back\\slash, $LINE, %s, {}, ESC \x1b[31m, CJK 漢字仮名, \u202e, 🦊, \ufeff, end\n\n"
)


def accepted(submission: Submission) -> Accepted:
    assert isinstance(submission, Accepted), submission
    return submission


# --- starting ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("adapters.exact-conversation")
async def test_a_fresh_start_gives_a_conversation_that_is_idle(bench: Bench, start: Starter) -> None:
    runtime, heard = await start()
    assert runtime.conversation_id
    assert runtime.conversation_id != bench.plan().agent_id
    assert runtime.version
    assert runtime.pid in processes_of(bench.folder)
    assert (await runtime.activity()).state is State.IDLE
    assert not heard.ends
    assert not heard.closings


@pytest.mark.requirement("adapters.exact-conversation")
async def test_a_later_life_goes_on_with_the_very_same_conversation(bench: Bench, start: Starter) -> None:
    first, heard = await start()
    work = bench.delivery(Say("one"))
    await heard.end_of(accepted(await first.begin(work)).binding.turn_id)
    await first.stop()
    second, _ = await start(conversation_id=first.conversation_id, generation=2)
    assert second.conversation_id == first.conversation_id
    assert (await second.activity()).state is State.IDLE
    assert await bench.executions() == [work.record_id]
    assert accepted(await second.begin(bench.delivery())).binding.conversation_id == first.conversation_id


@pytest.mark.requirement("adapters.exact-conversation")
async def test_two_fresh_starts_give_two_conversations(start: Starter) -> None:
    first, _ = await start()
    await first.stop()
    second, _ = await start(generation=2)
    assert second.conversation_id != first.conversation_id


@pytest.mark.requirement("adapters.start-fails-definitely")
async def test_a_conversation_that_the_program_does_not_know_is_not_replaced(bench: Bench) -> None:
    heard = Heard()
    with pytest.raises(StartFailed) as failed:
        await bench.adapter.start(bench.plan(conversation_id="01234567-89ab-7def-8123-456789abcdef"), heard)
    assert failed.value.code
    assert failed.value.hint
    assert not failed.value.again
    assert not processes_of(bench.folder)
    assert not heard.all


@pytest.mark.requirement("adapters.start-fails-definitely")
async def test_two_runtimes_never_write_one_conversation(bench: Bench, start: Starter) -> None:
    first, heard = await start()
    await heard.end_of(accepted(await first.begin(bench.delivery())).binding.turn_id)
    with pytest.raises(StartFailed) as failed:
        await start(conversation_id=first.conversation_id, generation=2)
    assert failed.value.again
    work = bench.delivery(Say("still here"))
    end = await heard.end_of(accepted(await first.begin(work)).binding.turn_id)
    assert end.final_text == "still here"


@pytest.mark.requirement("adapters.joined")
async def test_cancelling_a_start_ends_and_joins_what_it_started(bench: Bench) -> None:
    heard = Heard()
    starting = asyncio.ensure_future(bench.adapter.start(bench.plan(), heard))
    await until(lambda: bool(processes_of(bench.folder)) or starting.done(), "something was started")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not processes_of(bench.folder)
    assert not heard.closings


# --- information ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("adapters.information-starts-no-turn")
@pytest.mark.parametrize("kind", ["information", "reply", "notice"])
async def test_what_is_shown_while_idle_starts_no_turn(bench: Bench, start: Starter, kind: str) -> None:
    runtime, heard = await start()
    shown = bench.delivery(kind=kind, body="for your information")
    submission = await runtime.show(shown)
    assert isinstance(submission, Visible), submission
    assert submission.evidence
    assert (await runtime.activity()).state is State.IDLE
    # A turn that it had started would be there before, or instead of, the one that this starts.
    work = bench.delivery()
    end = await heard.end_of(accepted(await runtime.begin(work)).binding.turn_id)
    assert heard.ends == [end]
    assert await bench.executions() == [work.record_id]
    assert await bench.body_of(shown.record_id) == shown.body


# --- work -------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("adapters.accepted-has-a-receipt")
async def test_work_while_idle_starts_a_turn_that_ends_with_the_final_text(bench: Bench, start: Starter) -> None:
    runtime, heard = await start()
    work = bench.delivery(Say("the answer"))
    submission = accepted(await runtime.begin(work))
    assert submission.binding.mode is Mode.START
    assert submission.binding.conversation_id == runtime.conversation_id
    assert submission.binding.provider == bench.adapter.name
    assert work.record_id in submission.evidence
    end = await heard.end_of(submission.binding.turn_id)
    assert end == TurnEnd(
        turn_id=submission.binding.turn_id, status=TurnStatus.COMPLETED, final_text="the answer", final_bytes=10
    )
    assert await bench.executions() == [work.record_id]


@pytest.mark.requirement("adapters.end-before-idle")
async def test_a_turn_is_seen_to_run_and_its_end_is_heard_before_the_idle_that_follows(
    bench: Bench, start: Starter
) -> None:
    runtime, heard = await start()
    turn_id = accepted(await runtime.begin(bench.delivery(Hold("go"), Say("x")))).binding.turn_id
    running = await runtime.activity()
    assert (running.state, running.turn_id) == (State.PROCESSING, turn_id)
    bench.open("go")
    end = await heard.end_of(turn_id)
    await heard.idle()
    last_idle = max(number for number, said in enumerate(heard.all) if said in heard.activities)
    assert heard.all.index(end) < last_idle
    busy = [activity for activity in heard.activities if activity.state is State.PROCESSING]
    assert {activity.turn_id for activity in busy} == {turn_id}
    assert (await runtime.activity()).state is State.IDLE


@pytest.mark.requirement("adapters.final-text")
async def test_commentary_is_no_final_text(bench: Bench, start: Starter) -> None:
    runtime, heard = await start()
    work = bench.delivery(Aside("let me see"), Say("the answer"))
    end = await heard.end_of(accepted(await runtime.begin(work)).binding.turn_id)
    assert end.final_text == "the answer"
    assert end.final_bytes == len("the answer")


@pytest.mark.requirement("adapters.final-text")
async def test_a_turn_without_a_final_text_ends_with_none(bench: Bench, start: Starter) -> None:
    runtime, heard = await start()
    work = bench.delivery(Aside("only thinking"), Silence())
    end = await heard.end_of(accepted(await runtime.begin(work)).binding.turn_id)
    assert (end.status, end.final_text, end.final_bytes) == (TurnStatus.COMPLETED, "", 0)


@pytest.mark.requirement("adapters.final-text")
@pytest.mark.parametrize(("size", "kept"), [(FINAL_BYTES_MAX, FINAL_BYTES_MAX), (FINAL_BYTES_MAX + 1, 0)])
async def test_a_final_text_over_the_limit_is_counted_and_not_cut(
    bench: Bench, start: Starter, size: int, kept: int
) -> None:
    runtime, heard = await start()
    end = await heard.end_of(accepted(await runtime.begin(bench.delivery(Long(size)))).binding.turn_id)
    assert (len(end.final_text), end.final_bytes) == (kept, size)


@pytest.mark.requirement("adapters.turn-ends-as-it-ended")
async def test_a_failed_turn_says_why(bench: Bench, start: Starter) -> None:
    runtime, heard = await start()
    end = await heard.end_of(accepted(await runtime.begin(bench.delivery(Fail("no credit left")))).binding.turn_id)
    assert end.status is TurnStatus.FAILED
    assert "no credit left" in end.detail


@pytest.mark.requirement("adapters.never-twice")
async def test_work_for_an_idle_conversation_that_is_not_idle_is_never_taken_for_a_start(
    bench: Bench, start: Starter
) -> None:
    runtime, heard = await start()
    turn_id = accepted(await runtime.begin(bench.delivery(Hold("go"), Say("x")))).binding.turn_id
    second = bench.delivery(Say("y"))
    submission = await runtime.begin(second)
    assert isinstance(submission, NotSubmitted | Uncertain), submission
    bench.open("go")
    await heard.end_of(turn_id)
    await heard.idle()
    at_most = 1 if isinstance(submission, Uncertain) else 0
    assert list(await bench.executions()).count(second.record_id) <= at_most


@pytest.mark.requirement("adapters.steer-is-fenced")
async def test_work_steered_into_the_exact_turn_shares_its_end(bench: Bench, start: Starter) -> None:
    runtime, heard = await start()
    first = bench.delivery(Hold("go"), Say("for all of you"))
    turn_id = accepted(await runtime.begin(first)).binding.turn_id
    steered = [bench.delivery(Silence()) for _ in range(2)]
    for work in steered:
        submission = accepted(await runtime.steer(work, turn_id))
        assert (submission.binding.turn_id, submission.binding.mode) == (turn_id, Mode.STEER)
        assert work.record_id in submission.evidence
    bench.open("go")
    end = await heard.end_of(turn_id)
    assert (end.status, end.final_text) == (TurnStatus.COMPLETED, "for all of you")
    await heard.idle()
    assert heard.ends == [end]
    assert await bench.executions() == [first.record_id, *(work.record_id for work in steered)]


@pytest.mark.requirement("adapters.steer-is-fenced")
async def test_work_for_another_turn_than_the_running_one_is_proved_not_taken(bench: Bench, start: Starter) -> None:
    runtime, heard = await start()
    first = bench.delivery(Say("one"))
    over = accepted(await runtime.begin(first)).binding.turn_id
    await heard.end_of(over)
    await heard.idle()
    running_work = bench.delivery(Hold("go"), Say("two"))
    running = accepted(await runtime.begin(running_work)).binding.turn_id
    late = bench.delivery(Say("never"))
    submission = await runtime.steer(late, over)
    assert isinstance(submission, NotSubmitted), submission
    assert submission.again is Again.NOW
    bench.open("go")
    assert (await heard.end_of(running)).final_text == "two"
    assert await bench.executions() == [first.record_id, running_work.record_id]


@pytest.mark.requirement("adapters.steer-is-fenced")
async def test_work_for_a_turn_that_is_over_is_proved_not_taken(bench: Bench, start: Starter) -> None:
    runtime, heard = await start()
    work = bench.delivery()
    over = accepted(await runtime.begin(work)).binding.turn_id
    await heard.end_of(over)
    await heard.idle()
    submission = await runtime.steer(bench.delivery(Say("never")), over)
    assert isinstance(submission, NotSubmitted), submission
    assert submission.again is Again.NOW
    assert await bench.executions() == [work.record_id]


# --- interrupt --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("adapters.interrupt-is-exact")
async def test_an_interrupt_ends_exactly_the_named_turn_and_keeps_the_conversation(
    bench: Bench, start: Starter
) -> None:
    runtime, heard = await start()
    turn_id = accepted(await runtime.begin(bench.delivery(Hold("never")))).binding.turn_id
    interrupted = await runtime.interrupt(turn_id)
    assert (interrupted.result, interrupted.turn_id) == (Interruption.CONFIRMED, turn_id)
    assert (await heard.end_of(turn_id)).status is TurnStatus.INTERRUPTED
    await heard.idle()
    end = await heard.end_of(accepted(await runtime.begin(bench.delivery(Say("next")))).binding.turn_id)
    assert (end.status, end.final_text) == (TurnStatus.COMPLETED, "next")


@pytest.mark.requirement("adapters.interrupt-is-exact")
async def test_an_interrupt_of_a_turn_that_is_not_running_interrupts_nothing(bench: Bench, start: Starter) -> None:
    runtime, heard = await start()
    over = accepted(await runtime.begin(bench.delivery())).binding.turn_id
    await heard.end_of(over)
    await heard.idle()
    assert (await runtime.interrupt(over)).result is Interruption.NOTHING
    running = accepted(await runtime.begin(bench.delivery(Hold("go"), Say("unharmed")))).binding.turn_id
    assert (await runtime.interrupt(over)).result is Interruption.NOTHING
    bench.open("go")
    assert (await heard.end_of(running)).final_text == "unharmed"


# --- action needed ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("adapters.action-needed")
async def test_a_need_for_a_persons_action_is_told_with_what_is_asked_and_cleared(bench: Bench, start: Starter) -> None:
    runtime, heard = await start()
    work = bench.delivery(Ask("may I delete it"), Say("thanks"))
    turn_id = accepted(await runtime.begin(work)).binding.turn_id
    await heard.until(lambda: any(a.state is State.ACTION_NEEDED for a in heard.activities), "action needed")
    asked = next(activity for activity in heard.activities if activity.state is State.ACTION_NEEDED)
    assert "may I delete it" in asked.detail
    assert asked.turn_id == turn_id
    now = await runtime.activity()
    assert (now.state, now.turn_id, now.detail) == (State.ACTION_NEEDED, turn_id, asked.detail)
    assert not heard.ends
    await bench.answer(runtime)
    await heard.end_of(turn_id)
    await heard.idle()
    assert (await runtime.activity()).state is State.IDLE


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("adapters.death-is-told-once")
async def test_the_death_of_the_program_is_told_once_and_nothing_is_accepted_afterwards(
    bench: Bench, start: Starter
) -> None:
    runtime, heard = await start()
    turn_id = accepted(await runtime.begin(bench.delivery(Hold("never")))).binding.turn_id
    await bench.kill(runtime)
    closed = await heard.close()
    assert not closed.intended
    assert closed.detail
    assert not processes_of(bench.folder)
    said = list(heard.all)
    work = bench.delivery()
    for submission in (await runtime.begin(work), await runtime.steer(work, turn_id), await runtime.show(work)):
        assert isinstance(submission, NotSubmitted), submission
    assert (await runtime.activity()).state is State.UNKNOWN
    assert (await runtime.interrupt(turn_id)).result is not Interruption.CONFIRMED
    await runtime.stop()
    assert heard.all == said
    assert work.record_id not in await bench.executions()


@pytest.mark.requirement("adapters.joined")
async def test_a_stop_joins_everything_and_nothing_is_heard_after_it(bench: Bench, start: Starter) -> None:
    runtime, heard = await start()
    accepted(await runtime.begin(bench.delivery(Hold("never"))))
    await asyncio.gather(runtime.stop(), runtime.stop())
    assert not processes_of(bench.folder)
    said = list(heard.all)
    assert all(closed.intended for closed in heard.closings)
    assert len(heard.closings) <= 1
    await runtime.stop()
    assert isinstance(await runtime.begin(bench.delivery()), NotSubmitted)
    assert heard.all == said


@pytest.mark.requirement("adapters.joined")
async def test_a_cancelled_stop_has_joined_everything_too(bench: Bench, start: Starter) -> None:
    runtime, _ = await start()
    stopping = asyncio.ensure_future(runtime.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert not processes_of(bench.folder)


# --- bodies -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("adapters.bodies-are-literal")
@pytest.mark.parametrize("body", [UNUSUAL, "/slash command", "SAY not a directive", "-", "{}"])
async def test_a_body_arrives_as_it_was_written(bench: Bench, start: Starter, body: str) -> None:
    runtime, heard = await start()
    first, second = bench.delivery(Hold("go"), Say("x"), body=body), bench.delivery(Silence(), body=body)
    turn_id = accepted(await runtime.begin(first)).binding.turn_id
    accepted(await runtime.steer(second, turn_id))
    bench.open("go")
    await heard.end_of(turn_id)
    assert await bench.body_of(first.record_id) == body
    assert await bench.body_of(second.record_id) == body


@pytest.mark.requirement("adapters.bodies-are-literal")
async def test_the_longest_body_arrives_whole(bench: Bench, start: Starter) -> None:
    runtime, heard = await start()
    work = bench.delivery(Say("long"), body="漢" * (BODY_BYTES_MAX // 3) + "x")
    assert len(work.body.encode()) == BODY_BYTES_MAX
    await heard.end_of(accepted(await runtime.begin(work)).binding.turn_id)
    assert await bench.body_of(work.record_id) == work.body


# --- what it says of itself -------------------------------------------------------------------------------------------


@pytest.mark.requirement("adapters.says-what-it-can")
async def test_probe_capabilities_and_models_answer_whatever_they_are_asked(bench: Bench) -> None:
    installation = await bench.adapter.probe()
    assert installation.version
    assert not installation.problem
    able = bench.adapter.capabilities(installation.version)
    assert set(able) == set(CapabilityKind)
    needed = (CapabilityKind.IDLE_START, CapabilityKind.INFORMATION, CapabilityKind.FINAL, CapabilityKind.RESUME)
    assert all(able[kind].support is not Support.NONE for kind in needed)
    assert all(capability.reason for capability in able.values() if capability.support is Support.NONE)
    for version in ("", "nonsense", "0.0.1"):
        unable = bench.adapter.capabilities(version)
        assert set(unable) == set(CapabilityKind)
        assert {capability.support for capability in unable.values()} == {Support.NONE}
        assert all(capability.reason for capability in unable.values())
    catalogue = await bench.adapter.models(refresh=False)
    assert catalogue.models or catalogue.problem


@pytest.mark.requirement("adapters.inspect-changes-nothing")
async def test_looking_for_what_is_wrong_changes_nothing(bench: Bench, start: Starter) -> None:
    fresh = bench.plan()
    before = contents_of(bench.folder)
    await bench.adapter.inspect(fresh, None)
    assert contents_of(bench.folder) == before
    runtime, _ = await start()
    plan = bench.plan(conversation_id=runtime.conversation_id)
    before = contents_of(bench.folder)
    await bench.adapter.inspect(plan, runtime)
    await bench.adapter.launch_arguments(plan)
    assert contents_of(bench.folder) == before
    assert (await runtime.activity()).state is State.IDLE


@pytest.mark.requirement("adapters.inspect-changes-nothing")
async def test_launch_arguments_hold_no_secret_of_the_environment(bench: Bench) -> None:
    plan = bench.plan(environment={"SOME_API_KEY": "sesame-sesame"})
    assert "sesame-sesame" not in " ".join(await bench.adapter.launch_arguments(plan))


@pytest.mark.requirement("adapters.says-what-it-can")
async def test_approved_tools_add_up(bench: Bench, start: Starter) -> None:
    runtime, _ = await start()
    plan = bench.plan(conversation_id=runtime.conversation_id)
    assert set(await bench.adapter.approve_tools(plan, ["receive_messages"])) >= {"receive_messages"}
    assert set(await bench.adapter.approve_tools(plan, ["reply"])) >= {"receive_messages", "reply"}
