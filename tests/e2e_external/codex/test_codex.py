"""The real Codex, started by the adapter: its model is scripted, its network is loopback alone.

The list of adapter behaviours runs over it as over every other program; below stands what only the real one can show.
FENCEPOST_CODEX_PROGRAM names another program than the pinned one: each certified version ran this file.
"""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from fencepost_providers.adapters.base import Runtime, StartFailed, Terminal
from fencepost_providers.domain.runtimes import (
    NOTHING_PERMITTED,
    Accepted,
    Interruption,
    Mode,
    NotSubmitted,
    State,
    TurnStatus,
    Uncertain,
    Visible,
)
from fencepost_testing.adapter_benches import Heard, Hold, Say, Silence, Starter, processes_of, until
from fencepost_testing.codex_benches import RealCodexBench, real_codex_bench
from fencepost_testing.codex_real import NoNamespace, RealCodex, real_codex
from fencepost_testing.real_programs import NotInstalled, installed

ROOT: Final = Path(__file__).resolve().parents[3]
PROGRAMS: Final = ROOT / "build" / "e2e" / "programs"
STEERS: Final = 20


def _behaviours() -> Any:
    spec = importlib.util.spec_from_file_location("behaviours", ROOT / "tests/contract/adapters/test_behaviours.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


globals().update({name: test for name, test in vars(_behaviours()).items() if name.startswith("test_")})


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealCodex]:
    """The program, or the reason why it is not run."""
    named = os.environ.get("FENCEPOST_CODEX_PROGRAM")
    try:
        program = Path(named) if named else installed(PROGRAMS, "codex")
        with real_codex(tmp_path / "agent", tmp_path / "model", program) as found:
            yield found
    except (NotInstalled, NoNamespace) as error:
        pytest.skip(f"codex was not run: {error}")


@pytest.fixture
def bench(real: RealCodex) -> Iterator[RealCodexBench]:
    yield real_codex_bench(real.folder, real)
    assert not processes_of(real.folder), "left behind"


@pytest.fixture
async def start(bench: RealCodexBench) -> AsyncIterator[Starter]:
    running: list[Runtime] = []

    async def started(**changes: object) -> tuple[Runtime, Heard]:
        heard = Heard()
        runtime = await bench.adapter.start(bench.plan(**changes), heard)
        running.append(runtime)
        return runtime, heard

    yield started
    for runtime in running:
        await runtime.stop()


def accepted(submission: object) -> Accepted:
    assert isinstance(submission, Accepted), submission
    return submission


async def history_of(bench: RealCodexBench, runtime: Runtime, heard: Heard) -> list[str]:
    """Return the records that the model was told, in order: a last turn makes the program tell it all."""
    await resting(runtime)
    work = bench.delivery(Say("told"))
    await heard.end_of(accepted(await runtime.begin(work)).binding.turn_id)
    told = list(await bench.executions())
    assert told.pop() == work.record_id
    return told


@pytest.mark.requirement("codex.materialised-without-a-turn")
async def test_a_fresh_conversation_is_resumed_before_any_turn(bench: RealCodexBench, start: Starter) -> None:
    first, _ = await start()
    await first.stop()
    second, heard = await start(conversation_id=first.conversation_id, generation=2)
    assert (await second.activity()).state is State.IDLE
    assert bench.real is not None
    assert not bench.real.asked()
    await heard.end_of(accepted(await second.begin(bench.delivery())).binding.turn_id)


@pytest.mark.requirement("codex.nothing-is-cut")
async def test_the_longest_information_reaches_the_model_whole(bench: RealCodexBench, start: Starter) -> None:
    runtime, heard = await start()
    information = bench.delivery(kind="information", body='漢字 "quoted" \n' * 4_000)
    assert isinstance(await runtime.show(information), Visible)
    await heard.end_of(accepted(await runtime.begin(bench.delivery())).binding.turn_id)
    assert await bench.body_of(information.record_id) == information.body


@pytest.mark.timeout(180)
@pytest.mark.requirement("codex.steer-has-a-receipt", "codex.stale-turn-is-proof")
async def test_work_that_races_with_the_end_of_its_turn_is_either_in_it_or_certainly_nowhere(
    bench: RealCodexBench, start: Starter
) -> None:
    runtime, heard = await start()
    certain: dict[str, bool] = {}
    for number in range(STEERS):
        turn_id = accepted(await runtime.begin(bench.delivery(Say("quick")))).binding.turn_id
        await asyncio.sleep(0.004 * number)
        work = bench.delivery(Say(f"raced {number}"))
        submission = await runtime.steer(work, turn_id)
        assert isinstance(submission, Accepted | NotSubmitted), submission
        certain[work.record_id] = isinstance(submission, Accepted)
        end = await heard.end_of(turn_id)
        assert end.status is TurnStatus.COMPLETED
        assert end.final_text == (f"raced {number}" if certain[work.record_id] else "quick")
        await heard.idle()
    told = await history_of(bench, runtime, heard)
    assert {record: told.count(record) for record in certain} == {record: int(was) for record, was in certain.items()}
    print(f"\n{sum(certain.values())} of {STEERS} were in time")


@pytest.mark.requirement("codex.steer-has-a-receipt")
async def test_work_that_comes_while_a_tool_runs_is_bound_and_shown_after_it(
    bench: RealCodexBench, start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost_providers.adapters.codex.runtime.STEER_RECEIPT_MS_MAX", 300)
    runtime, heard = await start()
    calling = bench.scripted([("CALL", 'exec_command {"cmd": "sleep 2"}')])
    turn_id = accepted(await runtime.begin(calling)).binding.turn_id
    await heard.until(lambda: any(getattr(said, "name", "") == "shell" for said in heard.all), "the tool's call")
    work = bench.delivery(Say("after the tool"))
    submission = accepted(await runtime.steer(work, turn_id))
    assert "to be shown" in submission.evidence
    end = await heard.end_of(turn_id)
    assert (end.status, end.final_text) == (TurnStatus.COMPLETED, "after the tool")
    assert list(await bench.executions()).count(work.record_id) == 1


@pytest.mark.requirement("codex.folded-work-is-no-start")
async def test_work_that_races_with_a_persons_turn_is_a_start_only_where_it_opened_the_turn(
    bench: RealCodexBench, start: Starter
) -> None:
    runtime, heard = await start()
    taken: list[str] = []
    async with bench.another_client(runtime) as person:
        for number in range(8):
            work, body = bench.delivery(Say("mine")), {"type": "text", "text": "SAY the person's"}
            typed = {"threadId": runtime.conversation_id, "input": [body]}
            typing = person.request("turn/start", typed)
            both = (runtime.begin(work), typing) if number % 2 else (typing, runtime.begin(work))
            submission = next(one for one in await asyncio.gather(*both) if not isinstance(one, dict))
            assert isinstance(submission, Accepted | NotSubmitted | Uncertain), submission
            if isinstance(submission, Accepted):
                assert submission.binding.mode is Mode.START
                await heard.end_of(submission.binding.turn_id)
            if not isinstance(submission, NotSubmitted):
                taken.append(work.record_id)
            await heard.until(lambda: len(heard.ends) > 0, "an end")
            await resting(runtime)
        told = await history_of(bench, runtime, heard)
    assert all(told.count(record) <= 1 for record in taken)
    assert set(told) <= set(taken)


async def resting(runtime: Runtime) -> None:
    async with asyncio.timeout(20):
        while (await runtime.activity()).state is not State.IDLE:  # noqa: ASYNC110 (the program is asked)
            await asyncio.sleep(0.02)


@pytest.mark.requirement("codex.every-turn-is-observed")
async def test_a_turn_that_a_person_starts_elsewhere_is_observed(bench: RealCodexBench, start: Starter) -> None:
    runtime, heard = await start()
    async with bench.another_client(runtime) as person:
        body = {"type": "text", "text": "ASIDE let me see\nSAY typed"}
        answer = await person.request("turn/start", {"threadId": runtime.conversation_id, "input": [body]})
        end = await heard.end_of(answer["turn"]["id"])
    assert (end.status, end.final_text) == (TurnStatus.COMPLETED, "typed")


@pytest.mark.requirement("codex.resumes-after-a-kill")
async def test_a_killed_server_leaves_a_conversation_that_goes_on(bench: RealCodexBench, start: Starter) -> None:
    first, heard = await start()
    await heard.end_of(accepted(await first.begin(bench.delivery(Say("remembered")))).binding.turn_id)
    await heard.idle()
    held = bench.delivery(Hold("later"))
    orphan = accepted(await first.begin(held)).binding.turn_id
    await bench.kill(first)
    closed = await heard.close()
    assert not closed.intended
    second, heard = await start(conversation_id=first.conversation_id, generation=2)
    assert (await second.activity()).state is State.IDLE
    turns = await second.ask("thread/turns/list", {"threadId": second.conversation_id, "limit": 1})  # type: ignore[attr-defined]
    assert [(turn["id"], turn["status"]) for turn in turns["data"]] == [(orphan, "interrupted")]
    assert isinstance(await second.steer(bench.delivery(), orphan), NotSubmitted)
    assert (await second.interrupt(orphan)).result is Interruption.NOTHING
    # The model was told of it, has not answered it, and does so with whatever it is asked next.
    bench.open("later")
    assert (await history_of(bench, second, heard))[-1:] == [held.record_id]


@pytest.mark.requirement("codex.one-writer")
async def test_a_second_writer_of_a_conversation_is_refused_in_words(bench: RealCodexBench, start: Starter) -> None:
    from fencepost_providers.adapters.codex import launch
    from fencepost_providers.adapters.codex.rpc import Refused

    runtime, heard = await start()
    await heard.end_of(accepted(await runtime.begin(bench.delivery())).binding.turn_id)
    second = await runtime.terms.launch("second.sock", lambda _: None)  # type: ignore[attr-defined]
    try:
        asked = {"threadId": runtime.conversation_id, "excludeTurns": True}
        with pytest.raises(Refused) as refused:
            await launch.asked(second.connection, second.child, "thread/resume", asked)
    finally:
        await second.stop()
    failed = launch.refused("thread/resume", runtime.conversation_id, refused.value)
    assert (failed.code, failed.again) == ("conversation_in_use", True)
    await heard.idle()
    assert (await runtime.activity()).state is State.IDLE


@pytest.mark.requirement("codex.draining-is-proof")
async def test_what_a_server_refuses_while_it_ends_is_in_no_turn(bench: RealCodexBench, start: Starter) -> None:
    runtime, heard = await start()
    first = bench.delivery(Hold("go"), Say("drained"))
    turn_id = accepted(await runtime.begin(first)).binding.turn_id
    os.kill(runtime.pid, signal.SIGTERM)
    late = bench.delivery(Say("never"))
    async with asyncio.timeout(20):
        # The signal is on its way: until it has come, another record may be taken.
        while isinstance(submission := await runtime.steer(late, turn_id), Accepted):
            late = bench.delivery(Silence())
    assert isinstance(submission, NotSubmitted), submission
    assert submission.code == "codex_draining"
    bench.open("go")
    # It ends as soon as the turn has, without saying that it has.
    assert not (await heard.close()).intended
    second, heard = await start(conversation_id=runtime.conversation_id, generation=2)
    assert late.record_id not in await history_of(bench, second, heard)


class Screen:
    """A person's terminal with the stock program in it."""

    def __init__(self, terminal: Terminal, environment: Mapping[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.child = subprocess.Popen(
            terminal.argv,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**environment, **terminal.environment},
            cwd=terminal.working_directory,
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = b""
        asyncio.get_running_loop().add_reader(self._ours, self._read)

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def close(self) -> None:
        self.child.kill()
        self.child.wait()
        asyncio.get_running_loop().remove_reader(self._ours)
        os.close(self._ours)

    def _read(self) -> None:
        try:
            self.shown += (data := os.read(self._ours, 65536))
        except OSError:
            return
        # What a terminal answers when it is asked for its cursor, its kind and its colours.
        for asked, answer in ANSWERS.items():
            if asked in data:
                os.write(self._ours, answer)


ANSWERS: Final = {
    b"\x1b[6n": b"\x1b[1;1R",
    b"\x1b[c": b"\x1b[?1;2c",
    b"\x1b]10;?": b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
    b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
}


@pytest.fixture
async def trusting(bench: RealCodexBench, start: Starter) -> tuple[Runtime, Heard]:
    """A runtime whose workspace the person trusts: they answered that once, in the agent's own configuration."""
    plan = bench.plan()
    await bench.adapter.approve_tools(plan, [])
    with (Path(bench.adapter.private_home(plan)) / "config.toml").open("a", encoding="utf-8") as file:
        file.write(f'\n[projects."{plan.workspace}"]\ntrust_level = "trusted"\n')
    return await start()


@pytest.mark.timeout(180)
@pytest.mark.requirement("codex.terminal-is-proved", "codex.every-turn-is-observed")
async def test_the_stock_terminal_joins_works_and_leaves(
    bench: RealCodexBench, trusting: tuple[Runtime, Heard]
) -> None:
    assert bench.real is not None
    runtime, heard = trusting
    shown = bench.delivery(kind="information", body="before the terminal")
    assert isinstance(await runtime.show(shown), Visible)
    attachment = await runtime.attach(NOTHING_PERMITTED)
    assert isinstance(await runtime.begin(bench.delivery()), NotSubmitted)
    screen = Screen(attachment.terminal, bench.real.environment)
    try:
        await attachment.joined()
        work = bench.delivery(Say("seen-by-both"))
        assert (await heard.end_of(accepted(await runtime.begin(work)).binding.turn_id)).final_text == "seen-by-both"
        await until(lambda: b"seen-by-both" in screen.shown, "the work's answer on the screen")
        ended = len(heard.ends)
        screen.type(b"SAY typed-here")
        await until(lambda: b"typed-here" in screen.shown, "what was typed on the screen")
        screen.type(b"\r")
        await heard.until(lambda: len(heard.ends) > ended, "the end of the person's turn")
        assert heard.ends[-1].final_text == "typed-here"
        screen.child.terminate()
        async with asyncio.timeout(20):
            await attachment.left()
    finally:
        screen.close()
        await attachment.close()
    await heard.idle()
    accepted(await runtime.begin(bench.delivery(Say("without a terminal"))))
    assert not heard.closings


@pytest.mark.requirement("codex.terminal-is-proved")
async def test_a_terminal_that_never_comes_leaves_the_conversation_working(
    bench: RealCodexBench, start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost_providers.adapters.codex.terminal.JOIN_MS_MAX", 300)
    runtime, heard = await start()
    attachment = await runtime.attach(NOTHING_PERMITTED)
    with pytest.raises(StartFailed) as failed:
        await attachment.joined()
    assert failed.value.code == "terminal_not_seen"
    await attachment.close()
    end = await heard.end_of(accepted(await runtime.begin(bench.delivery(Say("alone")))).binding.turn_id)
    assert end.final_text == "alone"
