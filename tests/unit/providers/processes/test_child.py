"""A child has one owner: it gets what it was given, is drained, is stopped with all it started, and is joined."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from fencepost_providers.processes import child as child_module
from fencepost_providers.processes.child import (
    INPUT_BYTES_MAX,
    PROTOCOL_LINE_BYTES_MAX,
    TAIL_LINES_MAX,
    Child,
    End,
    InputRefused,
    Line,
    NotStarted,
    Program,
    to_the_end,
)
from fencepost_testing import processes as services
from fencepost_testing.adapter_benches import processes_of, until

LINUX = sys.platform == "linux"
# What the kernel tells on Linux is polled for elsewhere; both are tried where both exist.
WAYS = (False, True) if LINUX else (True,)

Run = Callable[..., Awaitable[tuple[Child, list[Line]]]]


def python(code: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-ISc", code, *arguments)


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Run]:
    """Starts programs in a folder of their own; afterwards nothing of them may be left."""
    running: list[Child] = []

    async def started(*argv: str, **more: object) -> tuple[Child, list[Line]]:
        lines: list[Line] = []
        given = {"environment": {"PLACE": str(tmp_path)}, "working_directory": str(tmp_path), **more}
        made = await Child.start(Program(argv=argv, **given), on_line=lines.append)  # type: ignore[arg-type]
        running.append(made)
        return made, lines

    yield started
    for made in running:
        await made.stop(grace_ms=0)
    assert not processes_of(tmp_path), "left behind"


# --- starting ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("processes.environment-is-explicit")
async def test_a_child_has_exactly_the_environment_it_was_given(run: Run) -> None:
    given = {"A": "b=c\n漢", "EMPTY": ""}
    child, lines = await run("/usr/bin/env", "-0", environment=given)
    await child.gone()
    assert b"\n".join(line.text for line in lines) == "A=b=c\n漢\0EMPTY=\0".encode()


STATE = """
import json, os
print(json.dumps({
    "pid": os.getpid(), "group": os.getpgrp(), "session": os.getsid(0), "place": os.getcwd(),
    "input": os.read(0, 10).decode(),
    "open": sorted(int(name) for name in os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else [],
}))
"""


@pytest.mark.requirement("processes.owned")
async def test_a_child_leads_its_own_session_and_group_and_inherits_nothing_else(run: Run, tmp_path: Path) -> None:
    child, lines = await run(*python(STATE))
    await child.gone()
    state = json.loads(lines[0].text)
    assert state["pid"] == state["group"] == state["session"] == child.pid
    assert state["place"] == str(tmp_path)
    assert state["input"] == ""
    # Three streams, and the folder that was being listed.
    assert len(state["open"]) in {0, 4}


@pytest.mark.requirement("processes.owned")
async def test_signals_that_python_ignores_are_not_ignored_in_a_child(run: Run) -> None:
    child, lines = await run("/bin/sh", "-c", "kill -PIPE $$; echo alive")
    assert (await child.gone()).exit_code == -signal.SIGPIPE
    assert not lines


@pytest.mark.requirement("processes.start-is-certain")
@pytest.mark.parametrize(
    ("argv", "folder"), [(("/no/such/program",), "/"), (("/etc/hostname",), "/"), (("/bin/true",), "/no/such/folder")]
)
async def test_what_cannot_be_executed_is_not_started_and_says_why(run: Run, argv: tuple[str], folder: str) -> None:
    with pytest.raises(NotStarted, match=r"No such file|Permission denied|Exec format"):
        await run(*argv, working_directory=folder)


@pytest.mark.requirement("processes.start-is-certain")
async def test_a_child_that_does_not_begin_in_time_is_ended(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "launcher.py"
    slow.write_text("import time\ntime.sleep(600)  # sleep: it never begins\n", encoding="utf-8")
    monkeypatch.setattr(child_module.launcher, "__file__", str(slow))
    monkeypatch.setattr(child_module, "LAUNCH_MS_MAX", 200)
    with pytest.raises(NotStarted, match="did not begin within 200 ms"):
        await run("/bin/true")


@pytest.mark.requirement("processes.joined")
@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 20, 60])
async def test_a_start_that_is_cancelled_at_any_moment_leaves_nothing(run: Run, tmp_path: Path, turns: int) -> None:
    starting = asyncio.ensure_future(run("/bin/sleep", "600"))
    for _ in range(turns):
        await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not processes_of(tmp_path)


# --- output and input -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("processes.output-never-blocks")
async def test_floods_on_both_outputs_end_and_are_cut(run: Run, tmp_path: Path) -> None:
    code = (
        "import sys, threading\n"
        "def flood(stream):\n"
        "    for _ in range(3): stream.write('x' * 3_000_000 + '\\n')\n"
        "threads = [threading.Thread(target=flood, args=(s,)) for s in (sys.stdout, sys.stderr)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]"
    )
    child, lines = await run(*python(code), log=tmp_path / "logs" / "it.log")
    assert (await child.gone()).exit_code == 0
    cut = 3_000_000 - PROTOCOL_LINE_BYTES_MAX
    assert [(len(line.text), line.bytes_cut) for line in lines] == [(PROTOCOL_LINE_BYTES_MAX, cut)] * 3
    log = (tmp_path / "logs" / "it.log").read_bytes()
    assert log.count(b"\n") == 3
    assert len(log) < 100_000
    assert b"bytes cut)" in log


@pytest.mark.requirement("processes.output-never-blocks")
async def test_the_last_lines_of_standard_error_are_kept_for_whoever_asks_why(run: Run) -> None:
    child, _ = await run("/bin/sh", "-c", "seq 1 50 >&2; printf last >&2; exit 4")
    end = await child.gone()
    assert end.exit_code == 4
    assert end.tail.split("\n") == [*(str(number) for number in range(52 - TAIL_LINES_MAX, 51)), "last"]


@pytest.mark.requirement("processes.output-never-blocks")
async def test_without_a_reader_standard_output_goes_to_the_log_which_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "PROGRAM_LOG_BYTES_MAX", 10_000)
    log = tmp_path / "it.log"
    program = Program(argv=("/bin/sh", "-c", "seq 1 10000"), environment={}, working_directory="/", log=log)
    child = await Child.start(program)
    await child.gone()
    await child.stop(grace_ms=0)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["it.log", "it.log.1"]
    assert log.read_bytes().endswith(b"10000\n")
    assert all(path.stat().st_size <= 10_000 for path in tmp_path.iterdir())
    assert log.stat().st_mode & 0o777 == 0o600


@pytest.mark.requirement("processes.output-never-blocks")
async def test_a_log_that_cannot_be_written_keeps_nothing_from_running(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    child, lines = await run("/bin/sh", "-c", "echo no >&2; echo yes", log=tmp_path / "file" / "it.log")
    assert (await child.gone()).exit_code == 0
    assert lines == [Line(text=b"yes")]


@pytest.mark.requirement("processes.not-written-is-proved")
async def test_input_arrives_and_its_end_too(run: Run) -> None:
    child, lines = await run("/bin/cat", takes_input=True)
    child.write(b"one\n")
    await until(lambda: bool(lines), "an echo")
    child.write(b"two\n")
    child.close_input()
    assert (await child.gone()).exit_code == 0
    assert [line.text for line in lines] == [b"one", b"two"]


@pytest.mark.requirement("processes.not-written-is-proved")
async def test_writing_is_refused_without_input_after_its_end_and_after_the_program(run: Run) -> None:
    deaf, _ = await run("/bin/sleep", "600")
    closed, _ = await run("/bin/sleep", "600", takes_input=True)
    closed.close_input()
    over, _ = await run("/bin/true", takes_input=True)
    await over.gone()
    for child in (deaf, closed, over):
        with pytest.raises(InputRefused, match="ended or closed"):
            child.write(b"x\n")


@pytest.mark.requirement("processes.not-written-is-proved")
async def test_more_input_than_fits_is_refused_whole(run: Run) -> None:
    child, _ = await run("/bin/sleep", "600", takes_input=True)
    child.write(b"x" * INPUT_BYTES_MAX)
    with pytest.raises(InputRefused, match="does not read"):
        child.write(b"y" * INPUT_BYTES_MAX)


# --- ends -------------------------------------------------------------------------------------------------------------

FAMILY = """
import os, signal, subprocess, sys
stubborn = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\\n"
    "print('up', flush=True); time.sleep(600)"
)
there = dict(stdout=subprocess.PIPE, start_new_session="escapes" in sys.argv)
child = subprocess.Popen([sys.executable, "-ISc", stubborn], **there)
child.stdout.readline()
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("family", flush=True)
if "leaves" not in sys.argv:
    signal.pause()
    signal.pause()
"""


@pytest.mark.requirement("processes.joined")
@pytest.mark.parametrize("polls", WAYS)
@pytest.mark.parametrize("how", ["plain", "stubborn"])
async def test_a_stop_ends_grandchildren_that_ignore_it(run: Run, tmp_path: Path, how: str, polls: bool) -> None:
    child, lines = await run(*python(FAMILY, how), polls=polls)
    await until(lambda: bool(lines), "the family is there")
    assert len(processes_of(tmp_path)) == 3, "the guard, the program and its child"
    end = await child.stop(grace_ms=100)
    assert not processes_of(tmp_path)
    assert end.exit_code == (-signal.SIGKILL if how == "stubborn" else -signal.SIGTERM)


@pytest.mark.requirement("processes.joined")
@pytest.mark.skipif(not LINUX, reason="only Linux lets a guard adopt what left the group")
async def test_on_linux_a_stop_ends_a_grandchild_that_left_the_group(run: Run, tmp_path: Path) -> None:
    child, lines = await run(*python(FAMILY, "escapes"))
    await until(lambda: bool(lines), "the family is there")
    await child.stop(grace_ms=100)
    assert not processes_of(tmp_path)


@pytest.mark.requirement("processes.joined")
@pytest.mark.parametrize("polls", WAYS)
async def test_what_a_program_leaves_behind_is_ended_before_its_end_is_told(
    run: Run, tmp_path: Path, polls: bool
) -> None:
    child, _ = await run(*python(FAMILY, "leaves"), polls=polls)
    end = await child.gone()
    assert end.exit_code == 0
    assert not processes_of(tmp_path)


@pytest.mark.requirement("processes.joined")
async def test_a_polite_action_comes_first_and_a_polite_program_gets_no_signal(run: Run) -> None:
    child, _ = await run("/bin/cat", takes_input=True)

    async def polite() -> None:
        child.close_input()

    assert (await child.stop(grace_ms=20_000, polite=polite)).exit_code == 0


@pytest.mark.requirement("processes.joined")
async def test_a_polite_action_that_hangs_or_fails_costs_half_of_the_grace_at_most(run: Run) -> None:
    async def hangs() -> None:
        await asyncio.get_running_loop().create_future()

    async def fails() -> None:
        raise RuntimeError("no")

    for polite in (hangs, fails):
        child, _ = await run("/bin/sleep", "600")
        assert (await child.stop(grace_ms=200, polite=polite)).exit_code == -signal.SIGTERM


@pytest.mark.requirement("processes.joined")
async def test_a_stopped_program_can_be_stopped(run: Run) -> None:
    child, _ = await run("/bin/sleep", "600")
    os.kill(child.pid, signal.SIGSTOP)
    assert (await child.stop(grace_ms=20_000)).exit_code == -signal.SIGTERM


@pytest.mark.requirement("processes.joined")
async def test_a_cancelled_stop_kills_at_once_and_has_joined(run: Run, tmp_path: Path) -> None:
    child, lines = await run(*python(FAMILY, "stubborn"))
    await until(lambda: bool(lines), "the family is there")
    stopping = asyncio.ensure_future(child.stop(grace_ms=600_000))
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert not processes_of(tmp_path)
    assert (await child.stop(grace_ms=0)).exit_code == -signal.SIGKILL


@pytest.mark.requirement("processes.joined")
async def test_every_stop_and_every_wait_gets_the_one_end(run: Run) -> None:
    child, _ = await run("/bin/sh", "-c", "exit 5")
    waits = [asyncio.ensure_future(child.gone()) for _ in range(3)]
    ends = [*await asyncio.gather(*waits), await child.stop(grace_ms=100), await child.stop(grace_ms=0)]
    assert child.has_ended
    assert ends == [End(exit_code=5)] * 5


@pytest.mark.requirement("processes.joined")
@pytest.mark.skipif(not LINUX, reason="only Linux kills a program whose guard was killed")
async def test_on_linux_a_program_dies_with_its_guard(run: Run, tmp_path: Path) -> None:
    child, lines = await run(*python(FAMILY, "stubborn"))
    await until(lambda: bool(lines), "the family is there")
    guard = next(pid for pid, line in processes_of(tmp_path).items() if "launcher.py" in line)
    os.kill(guard, signal.SIGKILL)
    assert (await child.gone()).exit_code is None
    await until(lambda: not processes_of(tmp_path), "all of it is gone")


OWNER = """
import asyncio, os, sys
from fencepost_providers.processes.child import Child, Program

async def main(place, family, polls, *arguments):
    argv = (sys.executable, "-ISc", family, *arguments)
    program = Program(argv=argv, environment={"PLACE": place}, working_directory=place, polls=polls == "polls")
    child = await Child.start(program, on_line=lambda line: os.write(1, line.text + b"\\n"))
    await child.gone()

if sys.argv[1] == "uvloop":
    import uvloop
    uvloop.run(main(*sys.argv[2:]))
else:
    asyncio.run(main(*sys.argv[2:]))
"""


@pytest.mark.requirement("processes.die-with-their-owner")
@pytest.mark.parametrize("polls", WAYS, ids=lambda polls: "polls" if polls else "told")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_an_owner_that_is_killed_takes_the_whole_family_with_it(tmp_path: Path, loop: str, polls: bool) -> None:
    way = "polls" if polls else "told"
    escapes = () if polls else ("escapes",)
    with (
        services.short_home() as home,
        subprocess.Popen(
            [sys.executable, "-c", OWNER, loop, str(tmp_path), FAMILY, way, "stubborn", *escapes],
            stdout=subprocess.PIPE,
            env=services.environment(home),
        ) as owner,
    ):
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"family\n"
        assert len(processes_of(tmp_path)) >= 3
        owner.kill()
    asyncio.run(until(lambda: not processes_of(tmp_path), "all of it is gone"))


@pytest.mark.requirement("processes.die-with-their-owner")
def test_nothing_is_started_for_an_owner_that_has_gone_already(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with contextlib.closing(os.fdopen(reading, "rb")) as status:
        done = subprocess.run(
            [
                *(sys.executable, "-IS", str(child_module.launcher.__file__), "1", str(writing)),
                *("--", "/bin/sh", "-c", f"touch {tmp_path}/started"),
            ],
            pass_fds=(writing,),
            timeout=20,
            check=False,
        )
        os.close(writing)
        assert (done.returncode, status.read()) == (child_module.launcher.EXIT_ORPHAN, b"orphan\n")
    assert not (tmp_path / "started").exists()


def test_a_launcher_that_is_called_wrongly_starts_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-IS", str(child_module.launcher.__file__), "1", "--", "/bin/true"],
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == child_module.launcher.EXIT_USAGE
    assert b"usage" in done.stderr


# --- to_the_end -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("processes.joined")
async def test_work_is_done_to_its_end_before_a_cancellation_leaves() -> None:
    gate = asyncio.Event()
    done: list[str] = []

    async def work() -> None:
        await gate.wait()
        done.append("work")

    waiting = asyncio.ensure_future(to_the_end(work(), lambda: done.append("hurry")))
    await asyncio.sleep(0)
    for _ in range(3):
        waiting.cancel()
        await asyncio.sleep(0)
    assert not waiting.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert done == ["hurry", "work"]
