"""The launcher: its program does not outlive whoever asked for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost_kit import launch
from fencepost_testing.compose import is_alive, until

LAUNCH = [sys.executable, "-IS", str(Path(launch.__file__))]


def started(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LAUNCH, *arguments], capture_output=True, text=True, timeout=20, check=False)


def test_the_program_takes_the_launchers_place_with_its_arguments_and_its_exit_code() -> None:
    code = "import os, sys; print(sys.argv[1:], os.environ['FENCEPOST_PARENT_PID']); sys.exit(7)"
    ended = started(str(os.getpid()), "--", sys.executable, "-c", code, "a b", "--", "c")
    assert (ended.returncode, ended.stdout) == (7, f"['a b', '--', 'c'] {os.getpid()}\n")


@pytest.mark.requirement("kit.children-do-not-outlive-their-parent")
def test_nothing_is_started_for_a_parent_that_is_not_ours(tmp_path: Path) -> None:
    ended = started("1", "--", sys.executable, "-c", f"open({str(tmp_path / 'made')!r}, 'w')")
    assert ended.returncode == launch.EXIT_ORPHAN
    assert "nothing was started" in ended.stderr
    assert not (tmp_path / "made").exists()


def test_a_program_that_does_not_exist_is_told_by_name() -> None:
    ended = started(str(os.getpid()), "--", "/nowhere/program")
    assert ended.returncode == launch.EXIT_NOT_EXECUTABLE
    assert "/nowhere/program: No such file" in ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [(), ("1",), ("1", "--"), ("1", "python"), ("x", "--", "true"), ("-1", "--", "true"), ("1", "true", "--")],
)
def test_wrong_arguments_are_refused_with_the_usage(arguments: tuple[str, ...]) -> None:
    ended = started(*arguments)
    assert ended.returncode == launch.EXIT_USAGE
    assert ended.stderr.startswith("usage: ")


@pytest.mark.requirement("kit.children-do-not-outlive-their-parent")
@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is of Linux alone")
def test_a_program_that_ignores_every_signal_dies_with_a_killed_parent() -> None:
    stubborn = (
        "import signal, os, time\n"
        "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):\n"
        "    signal.signal(number, signal.SIG_IGN)\n"
        "print(os.getpid(), flush=True)\n"
        "while True:\n"
        "    time.sleep(1)\n"
    )
    parent_code = (
        "import os, subprocess, sys\n"
        f"subprocess.run([*{LAUNCH!r}, str(os.getpid()), '--', sys.executable, '-c', {stubborn!r}])\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", parent_code], stdout=subprocess.PIPE, start_new_session=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert is_alive(child)
    parent.send_signal(signal.SIGKILL)
    parent.communicate(timeout=10)
    until(lambda: not is_alive(child), "the end of the child")


@pytest.mark.requirement("kit.children-do-not-outlive-their-parent")
def test_where_the_kernel_does_not_do_it_a_service_ends_itself_when_its_parent_is_gone() -> None:
    service = (
        "import asyncio, os, sys\n"
        "sys.platform = 'elsewhere'\n"
        "from fencepost_kit import serve\n"
        "async def main(stop):\n"
        "    assert 'FENCEPOST_PARENT_PID' not in os.environ\n"
        "    print(os.getpid(), flush=True)\n"
        "    await stop.wait()\n"
        "    return 0\n"
        "sys.exit(serve.run(main))\n"
    )
    parent_code = (
        "import os, subprocess, sys\n"
        f"environment = dict(os.environ, FENCEPOST_PARENT_PID=str(os.getpid()))\n"
        f"subprocess.run([sys.executable, '-c', {service!r}], env=environment)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", parent_code], stdout=subprocess.PIPE, start_new_session=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.communicate(timeout=10)
    until(lambda: not is_alive(child), "the end of the service")
