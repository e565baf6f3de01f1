"""What a submission comes to when the program misbehaves: nothing is guessed, nothing is sent twice."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Callable
from typing import Any

import pytest

from fencepost_providers.adapters.codex import runtime as under_test
from fencepost_providers.adapters.codex.runtime import CodexRuntime
from fencepost_providers.domain.runtimes import (
    Accepted,
    Again,
    Interruption,
    NotSubmitted,
    State,
    TurnStatus,
    Uncertain,
    Visible,
)
from fencepost_testing.adapter_benches import Heard, Hold, Say, Silence
from fencepost_testing.codex_benches import FakeCodexBench

Start = Callable[..., Any]
Started = tuple[CodexRuntime, Heard]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short limits, so that what never comes is not waited for long."""
    monkeypatch.setattr(under_test, "SUBMIT_ANSWER_MS_MAX", 300)
    monkeypatch.setattr(under_test, "SUBMIT_MS_MAX", 2_000)
    monkeypatch.setattr(under_test, "STEER_RECEIPT_MS_MAX", 200)
    monkeypatch.setattr(under_test, "LAST_WORD_MS_MAX", 200)


def accepted(submission: object) -> Accepted:
    assert isinstance(submission, Accepted), submission
    return submission


async def running(bench: FakeCodexBench, runtime: CodexRuntime) -> str:
    """Begin a turn that holds at the gate "go"; return its id."""
    return accepted(await runtime.begin(bench.delivery(Hold("go"), Say("held")))).binding.turn_id


# --- beginning --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("codex.lost-answer-is-uncertain")
@pytest.mark.parametrize("how", ["ignore", "refuse something else entirely", "hang_up", "garbage", "die"])
@pytest.mark.usefixtures("hurried")
async def test_work_whose_answer_does_not_come_or_says_nothing_is_uncertain_and_sent_once(
    bench: FakeCodexBench, start: Start, how: str
) -> None:
    runtime, _ = await start()
    bench.misbehave(("turn/start", how))
    submission = await runtime.begin(bench.delivery())
    assert isinstance(submission, Uncertain), submission
    assert submission.detail
    assert len(bench.requests("turn/start")) == 1


@pytest.mark.requirement("codex.start-has-a-receipt")
@pytest.mark.usefixtures("hurried")
async def test_work_whose_answer_is_lost_is_accepted_where_the_program_shows_that_it_opened_a_turn_with_it(
    bench: FakeCodexBench, start: Start
) -> None:
    runtime, heard = await start()
    bench.misbehave(("turn/start", "lose"))
    work = bench.delivery(Say("heard all the same"))
    submission = accepted(await runtime.begin(work))
    assert (await heard.end_of(submission.binding.turn_id)).final_text == "heard all the same"
    assert await bench.executions() == [work.record_id]


@pytest.mark.requirement("codex.start-has-a-receipt")
@pytest.mark.parametrize("answer", ['answer {"turn": {"id": "01a2-phantom"}}', "answer {}", "unshown"])
@pytest.mark.usefixtures("hurried")
async def test_a_turn_that_never_showed_the_work_is_no_acceptance(
    bench: FakeCodexBench, start: Start, answer: str
) -> None:
    runtime, _ = await start()
    bench.misbehave(("turn/start", answer))
    submission = await runtime.begin(bench.delivery())
    assert isinstance(submission, Uncertain), submission
    assert submission.code == "codex_no_receipt"


@pytest.mark.requirement("codex.folded-work-is-no-start")
@pytest.mark.usefixtures("hurried")
async def test_work_that_is_folded_into_a_persons_turn_is_uncertain(bench: FakeCodexBench, start: Start) -> None:
    runtime, heard = await start()
    bench.misbehave(("turn/start", "person_first"))
    work = bench.delivery(Say("folded"))
    submission = await runtime.begin(work)
    assert isinstance(submission, Uncertain), submission
    assert submission.code == "codex_folded"
    bench.open("go")
    await heard.until(lambda: len(heard.ends) == 1, "the end of the person's turn")
    assert await bench.executions() == ["", work.record_id]


@pytest.mark.requirement("codex.folded-work-is-no-start")
async def test_an_answer_that_names_a_turn_which_was_there_before_is_uncertain(
    bench: FakeCodexBench, start: Start
) -> None:
    runtime, heard = await start()
    over = accepted(await runtime.begin(bench.delivery())).binding.turn_id
    await heard.end_of(over)
    bench.misbehave(("turn/start", f'answer {{"turn": {{"id": "{over}"}}}}'))
    submission = await runtime.begin(bench.delivery())
    assert isinstance(submission, Uncertain), submission
    assert submission.code == "codex_folded"


@pytest.mark.requirement("codex.fence-before-a-start")
async def test_work_is_not_sent_while_a_person_works(bench: FakeCodexBench, start: Start) -> None:
    runtime, heard = await start()
    async with bench.another_client(runtime) as person:
        typed = {"type": "text", "text": "HOLD go\nSAY typed"}
        await person.request("turn/start", {"threadId": runtime.conversation_id, "input": [typed]})
        refused = await runtime.begin(bench.delivery())
        assert isinstance(refused, NotSubmitted), refused
        assert (refused.code, refused.again) == ("conversation_active", Again.NOW)
        assert len(bench.requests("turn/start")) == 1
        bench.open("go")
        await heard.until(lambda: len(heard.ends) == 1, "the end of the person's turn")
    assert heard.ends[0].final_text == "typed"
    accepted(await runtime.begin(bench.delivery()))


@pytest.mark.requirement("codex.fence-before-a-start")
async def test_work_is_not_sent_to_a_program_that_has_said_nothing_for_long_and_says_nothing_when_asked(
    bench: FakeCodexBench, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "FRESH_MS_MAX", 0)
    runtime, _ = await start()
    bench.misbehave(("thread/read", "refuse not now"))
    refused = await runtime.begin(bench.delivery())
    assert isinstance(refused, NotSubmitted), refused
    assert refused.code == "activity_unknown"
    assert not bench.requests("turn/start")
    accepted(await runtime.begin(bench.delivery()))


@pytest.mark.requirement("codex.fence-before-a-start")
async def test_the_programs_word_that_the_thread_rests_is_not_asked_for_again_while_it_is_new(
    bench: FakeCodexBench, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "FRESH_MS_MAX", 60_000)
    runtime, heard = await start()

    async def questions() -> int:
        before = len(bench.requests("thread/read"))
        await heard.end_of(accepted(await runtime.begin(bench.delivery())).binding.turn_id)
        await heard.idle()
        return len(bench.requests("thread/read")) - before

    assert (await runtime.activity()).state is State.IDLE
    assert await questions() == 0, "an answer counts"
    assert await questions() == 0, "so does the end of a turn of ours, told by itself"
    async with bench.another_client(runtime) as person:
        typed = {"type": "text", "text": "SAY typed"}
        answer = await person.request("turn/start", {"threadId": runtime.conversation_id, "input": [typed]})
        await heard.end_of(answer["turn"]["id"])
    await heard.idle()
    assert await questions() == 0, "and that of a turn of a person"
    monkeypatch.setattr(under_test, "FRESH_MS_MAX", 0)
    await questions()
    assert await questions() == 1, "a word that is too old is asked for"


@pytest.mark.requirement("codex.fence-before-a-start")
async def test_a_word_counts_for_one_start_so_that_what_came_of_a_start_that_was_refused_is_asked_for(
    bench: FakeCodexBench, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "FRESH_MS_MAX", 60_000)
    runtime, _ = await start()
    assert (await runtime.activity()).state is State.IDLE
    bench.misbehave(("turn/start", "refuse input must not be empty"))
    before = len(bench.requests("thread/read"))
    assert isinstance(await runtime.begin(bench.delivery()), NotSubmitted)
    assert len(bench.requests("thread/read")) == before
    accepted(await runtime.begin(bench.delivery()))
    assert len(bench.requests("thread/read")) == before + 1


@pytest.mark.requirement("codex.fence-before-a-start")
async def test_what_the_program_has_said_and_nobody_has_read_yet_makes_its_word_void(
    bench: FakeCodexBench, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "FRESH_MS_MAX", 60_000)
    runtime, _ = await start()
    assert (await runtime.activity()).state is State.IDLE
    ours = runtime.server.connection._socket.transport
    async with bench.another_client(runtime) as person:
        ours.pause_reading()  # as where the loop is busy elsewhere
        typed = {"type": "text", "text": "HOLD go\nSAY typed"}
        await person.request("turn/start", {"threadId": runtime.conversation_id, "input": [typed]})
        ours.resume_reading()
        refused = await runtime.begin(bench.delivery())
        assert isinstance(refused, NotSubmitted), refused
        assert refused.code == "conversation_active"
        assert len(bench.requests("turn/start")) == 1
        bench.open("go")


@pytest.mark.requirement("codex.fence-before-a-start")
async def test_work_for_a_program_whose_end_nobody_has_read_yet_is_certainly_not_sent(
    bench: FakeCodexBench, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "FRESH_MS_MAX", 60_000)
    runtime, _ = await start()
    assert (await runtime.activity()).state is State.IDLE
    ours = runtime.server.connection._socket.transport.get_extra_info("socket")
    os.kill(runtime.pid, signal.SIGKILL)
    assert select.select([ours], [], [], 10)[0], "its end"
    refused = await runtime.begin(bench.delivery())
    assert isinstance(refused, NotSubmitted), refused


@pytest.mark.requirement("codex.fence-before-a-start")
async def test_the_word_of_a_program_that_was_stopped_does_not_outlive_it(
    bench: FakeCodexBench, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "FRESH_MS_MAX", 60_000)
    runtime, _ = await start()
    assert (await runtime.activity()).state is State.IDLE
    await runtime.stop()
    assert (await runtime.activity()).state is State.UNKNOWN


@pytest.mark.requirement("codex.refused-tool-output-is-proof")
@pytest.mark.parametrize("text", ["input must not be empty", "Invalid request: unknown field `toolOutput`"])
async def test_a_version_that_does_not_know_the_item_of_a_tool_has_certainly_taken_nothing(
    bench: FakeCodexBench, start: Start, text: str
) -> None:
    runtime, _ = await start()
    bench.misbehave(("turn/start", f"refuse {text}"))
    refused = await runtime.begin(bench.delivery())
    assert isinstance(refused, NotSubmitted), refused
    assert (refused.code, refused.again) == ("codex_cannot_take_it", Again.NEVER)
    assert text in refused.detail
    assert await bench.executions() == []


@pytest.mark.requirement("codex.lost-answer-is-uncertain")
async def test_an_empty_input_that_was_not_empty_proves_nothing(bench: FakeCodexBench, start: Start) -> None:
    runtime, _ = await start()
    bench.misbehave(("turn/start", "refuse input must not be empty"))
    assert isinstance(await runtime.begin(bench.delivery(kind="prompt")), Uncertain)


@pytest.mark.requirement("codex.draining-is-proof")
async def test_a_server_that_ends_takes_nothing_and_says_so(bench: FakeCodexBench, start: Start) -> None:
    runtime, heard = await start()
    turn_id = await running(bench, runtime)
    await signalled(bench, runtime)
    refused = await runtime.steer(bench.delivery(), turn_id)
    assert isinstance(refused, NotSubmitted), refused
    assert refused.code == "codex_draining"
    bench.open("go")
    assert not (await heard.close()).intended


async def signalled(bench: FakeCodexBench, runtime: CodexRuntime) -> None:
    """Tell the server to end, and wait until it knows."""
    os.kill(runtime.pid, 15)
    async with asyncio.timeout(10):
        while not (bench.scripts / "draining").exists():  # noqa: ASYNC110 (made by another process)
            await asyncio.sleep(0.005)


# --- steering ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("codex.stale-turn-is-proof")
@pytest.mark.parametrize("text", ["no active turn to steer", "expected active turn id `01a2-one` but found `01a2-two`"])
async def test_the_two_refusals_of_a_stale_turn_prove_that_nothing_was_taken(
    bench: FakeCodexBench, start: Start, text: str
) -> None:
    runtime, _ = await start()
    turn_id = await running(bench, runtime)
    bench.misbehave(("turn/steer", f"refuse {text}"))
    refused = await runtime.steer(bench.delivery(), turn_id)
    assert isinstance(refused, NotSubmitted), refused
    assert (refused.code, refused.again) == ("turn_ended", Again.NOW)


@pytest.mark.requirement("codex.lost-answer-is-uncertain")
@pytest.mark.parametrize(
    "how",
    [
        "refuse no active turn to steer, or so",
        "refuse something about: no active turn to steer",
        "refuse thread not found: x",
        "ignore",
        "hang_up",
        "other_turn",
        "answer {}",
    ],
)
@pytest.mark.usefixtures("hurried")
async def test_every_other_end_of_a_steer_is_uncertain_and_it_is_sent_once(
    bench: FakeCodexBench, start: Start, how: str
) -> None:
    runtime, _ = await start()
    turn_id = await running(bench, runtime)
    bench.misbehave(("turn/steer", how))
    submission = await runtime.steer(bench.delivery(Silence()), turn_id)
    assert isinstance(submission, Uncertain), submission
    assert len(bench.requests("turn/steer")) == 1


@pytest.mark.requirement("codex.steer-has-a-receipt")
@pytest.mark.usefixtures("hurried")
async def test_a_steer_whose_answer_is_lost_is_accepted_where_its_message_is_shown_in_the_turn(
    bench: FakeCodexBench, start: Start
) -> None:
    runtime, _ = await start()
    turn_id = await running(bench, runtime)
    bench.misbehave(("turn/steer", "lose"))
    assert accepted(await runtime.steer(bench.delivery(Silence()), turn_id)).binding.turn_id == turn_id


@pytest.mark.requirement("codex.steer-has-a-receipt")
@pytest.mark.usefixtures("hurried")
async def test_a_steer_that_waits_behind_a_tool_is_bound_and_a_turn_that_never_shows_it_gives_no_answer(
    bench: FakeCodexBench, start: Start
) -> None:
    runtime, heard = await start()
    turn_id = await running(bench, runtime)
    bench.misbehave(("turn/steer", "unshown"))
    work = bench.delivery()
    bound = accepted(await runtime.steer(work, turn_id))
    assert bound.binding.turn_id == turn_id
    bench.open("go")
    end = await heard.end_of(turn_id)
    assert (end.status, end.final_text) == (TurnStatus.LOST, "")
    assert work.record_id in end.detail


@pytest.mark.requirement("codex.version-gate")
async def test_a_version_that_cannot_be_steered_is_sent_nothing(bench: FakeCodexBench, start: Start) -> None:
    bench.want("version", "0.154.0")
    runtime, _ = await start()
    turn_id = await running(bench, runtime)
    refused = await runtime.steer(bench.delivery(), turn_id)
    assert isinstance(refused, NotSubmitted), refused
    assert (refused.code, refused.again) == ("mid_turn_unsupported", Again.WHEN_IDLE)
    assert not bench.requests("turn/steer")


# --- showing ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("codex.lost-answer-is-uncertain")
@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("refuse Invalid request: unknown variant", NotSubmitted),
        ("refuse thread not found: x", Uncertain),
        ("ignore", Uncertain),
        ("hang_up", Uncertain),
    ],
)
@pytest.mark.usefixtures("hurried")
async def test_what_became_of_information_is_told_like_that_of_work(
    bench: FakeCodexBench, start: Start, how: str, kind: type
) -> None:
    runtime, _ = await start()
    bench.misbehave(("thread/inject_items", how))
    assert isinstance(await runtime.show(bench.delivery(kind="information")), kind)
    assert len(bench.requests("thread/inject_items")) == 1


async def test_information_is_a_row_for_whoever_watches(bench: FakeCodexBench, start: Start) -> None:
    runtime, heard = await start()
    assert isinstance(await runtime.show(bench.delivery(kind="information", body="look here")), Visible)
    assert [said.text for said in heard.all if hasattr(said, "text")] == ["look here"]


# --- interrupting -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("codex.interrupt-names-its-turn")
async def test_an_interrupt_without_a_turn_is_never_sent(bench: FakeCodexBench, start: Start) -> None:
    runtime, _ = await start()
    await running(bench, runtime)
    assert (await runtime.interrupt("")).result is Interruption.NOTHING
    assert not bench.requests("turn/interrupt")


@pytest.mark.requirement("codex.interrupt-names-its-turn")
@pytest.mark.parametrize(
    ("how", "result"),
    [
        ("refuse no active turn to interrupt", Interruption.NOTHING),
        ("refuse expected active turn id 01a2 but found 01a3", Interruption.NOTHING),
        ("refuse something else", Interruption.UNCERTAIN),
        ("hang_up", Interruption.UNCERTAIN),
        ("unheeded", Interruption.REQUESTED),
    ],
)
async def test_what_an_interrupt_came_to_is_what_is_known(
    bench: FakeCodexBench, start: Start, monkeypatch: pytest.MonkeyPatch, how: str, result: Interruption
) -> None:
    monkeypatch.setattr(under_test, "INTERRUPT_MS_MAX", 300)
    runtime, _ = await start()
    turn_id = await running(bench, runtime)
    bench.misbehave(("turn/interrupt", how))
    interrupted = await runtime.interrupt(turn_id)
    assert (interrupted.result, interrupted.turn_id) == (result, turn_id)


# --- activity ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("codex.end-before-idle")
@pytest.mark.parametrize("how", ["rests_late", "told_twice", "end_untold"])
@pytest.mark.usefixtures("hurried")
async def test_an_end_is_heard_once_and_before_idle_however_the_program_tells_it(
    bench: FakeCodexBench, start: Start, how: str
) -> None:
    runtime, heard = await start()
    bench.misbehave(("turn/start", how))
    work = bench.delivery(Say("once"))
    turn_id = accepted(await runtime.begin(work)).binding.turn_id
    if how == "end_untold":
        # The history tells it, when somebody asks what goes on.
        await heard.until(lambda: any(getattr(said, "text", "") == "once" for said in heard.all), "the answer")
        async with asyncio.timeout(10):
            while (await runtime.activity()).state is not State.IDLE:  # noqa: ASYNC110 (the program is asked)
                await asyncio.sleep(0.01)
    end = await heard.end_of(turn_id)
    await heard.idle()
    assert (end.status, end.final_text) == (TurnStatus.COMPLETED, "once")
    assert heard.ends == [end]
    assert heard.all.index(end) < heard.all.index(heard.activities[-1])


@pytest.mark.requirement("codex.every-turn-is-observed")
async def test_a_turn_that_ran_when_we_came_is_named_when_asked_for(bench: FakeCodexBench, start: Start) -> None:
    runtime, _ = await start()
    turn_id = await running(bench, runtime)
    runtime.conversation.turn_id = ""  # as if it had begun before us
    found = await runtime.activity()
    assert (found.state, found.turn_id) == (State.PROCESSING, turn_id)


async def test_activity_is_unknown_where_the_program_does_not_say(
    bench: FakeCodexBench, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "ASK_MS_MAX", 200)
    runtime, _ = await start()
    bench.misbehave(("thread/read", "refuse not now"))
    assert (await runtime.activity()).state is State.UNKNOWN
    assert (await runtime.activity()).state is State.IDLE


@pytest.mark.requirement("codex.lost-answer-is-uncertain")
@pytest.mark.parametrize("how", ["hang_up", "garbage"])
async def test_a_lost_connection_ends_the_program_for_what_was_not_heard_cannot_be_known(
    bench: FakeCodexBench, start: Start, how: str
) -> None:
    runtime, heard = await start()
    await running(bench, runtime)
    bench.misbehave(("thread/read", how))
    assert (await runtime.activity()).state is State.UNKNOWN
    closed = await heard.close()
    assert not closed.intended
    assert "connection" in closed.detail
    assert heard.closings == [closed]
