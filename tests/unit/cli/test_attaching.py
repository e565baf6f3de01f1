"""`agent attach` in a terminal of its own, with a small program in the place of an agent's."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli.watching import IDLE_WAIT_S_MAX
from fencepost_testing.shell import OPERATOR_TOKEN, Shell, put_credential

SUPPORT = Path(__file__).resolve().parents[2] / "support"
S_MAX = 30.0
# Reads a line of the terminal and ends with a status.
ASKS = "print('HERE', flush=True); input(); raise SystemExit({status})"
# Takes the terminal for itself and does not give it back.
SPOILS = "import termios, sys; a = termios.tcgetattr(0); a[3] &= ~termios.ECHO; termios.tcsetattr(0, 0, a); " + ASKS
# Blocked, so that a key pressed right after HERE is waited for and not missed before the program reads.
HEARS = (
    "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}); print('HERE', flush=True);"
    " signal.sigwait({signal.SIGINT}); print('HEARD', flush=True); input()"
)
# The system's own way, which no moment is too early for.
FALLS = "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); " + ASKS.format(status=0)
PLACE = "import os; print('AT', os.getcwd(), os.environ['FROM_PROVIDERS'], os.environ['FROM_SHELL'], flush=True)"


@dataclass
class Terminal:
    """A terminal of a person's, and what runs in it."""

    keys: int
    process: subprocess.Popen[bytes]
    shown: str = ""

    def type(self, text: str) -> None:
        os.write(self.keys, text.encode())

    def shows(self, text: str) -> None:
        """Wait until the screen has shown `text`."""
        end = time.monotonic() + S_MAX
        while text not in self.shown:
            assert select.select([self.keys], [], [], max(0, end - time.monotonic()))[0], self.shown
            self.shown += os.read(self.keys, 4096).decode()

    def ends(self) -> tuple[int, str]:
        """Return the exit code and standard error, once all is over."""
        _, error = self.process.communicate(timeout=S_MAX)
        while select.select([self.keys], [], [], 0)[0]:
            try:
                self.shown += os.read(self.keys, 4096).decode()
            except OSError:
                break
        return self.process.returncode, error.decode()


class Attaching:
    """Starts the command in a new terminal."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._open: list[tuple[int, int, subprocess.Popen[bytes]]] = []

    def __call__(self, *steps: str) -> Terminal:
        keys, screen = os.openpty()
        process = subprocess.Popen(
            # The terminal must be the one that controls it: only then do its keys reach the programs.
            [sys.executable, "-c", _IN_CONTROL, *steps],
            stdin=screen,
            stdout=screen,
            stderr=subprocess.PIPE,
            env=self._environment,
            start_new_session=True,
        )
        self._open.append((keys, screen, process))
        return Terminal(keys=keys, process=process)

    def settings(self) -> Any:
        return termios.tcgetattr(self._open[-1][1])

    def close(self) -> None:
        for keys, screen, process in self._open:
            process.kill()
            process.communicate()
            os.close(keys)
            os.close(screen)


_IN_CONTROL = (
    "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    " from fencepost_testing.attaching import run; sys.exit(run(sys.argv[1:]))"
)


@pytest.fixture
def attaching(shell: Shell) -> Iterator[Attaching]:
    put_credential(shell.home.operator_credential, OPERATOR_TOKEN)
    paths = [str(SUPPORT), *(path for path in sys.path if path)]
    made = Attaching({**os.environ, "PYTHONPATH": os.pathsep.join(paths), "FROM_SHELL": "too"})
    yield made
    made.close()


@pytest.mark.requirement("cli.attaches-a-terminal")
def test_the_program_has_the_terminal_to_itself_until_the_person_ends_it(attaching: Attaching) -> None:
    terminal = attaching("turn", f"launch:{ASKS.format(status=0)}", "attached", "stays")
    terminal.shows("HERE")
    terminal.type("bye\n")
    code, told = terminal.ends()
    assert (code, told) == (0, "asked True 5000\nleft\n")
    assert "It is in a turn; waiting for its end ..." in terminal.shown


@pytest.mark.requirement("cli.attaches-a-terminal")
def test_the_program_starts_in_its_folder_with_the_persons_environment_and_what_providers_add(
    attaching: Attaching,
) -> None:
    terminal = attaching(f"launch:{PLACE}", "stays")
    assert terminal.ends()[0] == 0
    assert "AT / yes too" in terminal.shown


@pytest.mark.requirement("cli.attaches-a-terminal")
def test_a_program_that_ends_badly_makes_the_exit_1(attaching: Attaching) -> None:
    terminal = attaching(f"launch:{ASKS.format(status=3)}", "attached", "stays")
    terminal.shows("HERE")
    terminal.type("\n")
    assert terminal.ends() == (1, "asked True 5000\nleft\n")


@pytest.mark.requirement("cli.attaches-a-terminal")
def test_the_interrupt_key_means_the_program_and_not_the_attachment(attaching: Attaching) -> None:
    terminal = attaching(f"launch:{HEARS}", "attached", "stays")
    terminal.shows("HERE")
    terminal.type("\x03")
    terminal.shows("HEARD")
    terminal.type("\n")
    assert terminal.ends() == (0, "asked True 5000\nleft\n")


def test_the_interrupt_key_ends_a_program_that_does_not_take_it(attaching: Attaching) -> None:
    terminal = attaching(f"launch:{FALLS}", "attached", "stays")
    terminal.shows("HERE")
    terminal.type("\x03")
    code, told = terminal.ends()
    assert (code, told.endswith("left\n")) == (1, True)


@pytest.mark.requirement("cli.attaches-a-terminal")
def test_the_terminal_is_given_back_as_it_was(attaching: Attaching) -> None:
    terminal = attaching(f"launch:{SPOILS.format(status=0)}", "attached", "stays")
    before = attaching.settings()
    terminal.shows("HERE")
    assert attaching.settings() != before
    terminal.type("\n")
    assert terminal.ends()[0] == 0
    assert attaching.settings() == before


@pytest.mark.requirement("cli.attaches-a-terminal")
def test_the_interrupt_key_ends_the_wait_for_a_turn(attaching: Attaching) -> None:
    terminal = attaching("turn", "stays")
    terminal.shows("waiting for its end")
    terminal.type("\x03")
    code, told = terminal.ends()
    assert (code, "left\n" in told, "(interrupted)" in told) == (130, True, True)


@pytest.mark.requirement("cli.attaches-a-terminal")
@pytest.mark.parametrize(
    ("steps", "code", "reason"),
    [
        (("ended",), 1, "not_attached"),
        (("turn", "busy"), 1, "agent_busy"),
        (("lost",), 7, "connection_lost"),
        (("turn",), 1, "connection_lost"),
        (("launch:", "stays"), 1, "cannot_start"),
    ],
    ids=["ended", "busy", "lost", "nothing more", "no such program"],
)
def test_an_attachment_that_comes_to_nothing_says_why(
    attaching: Attaching, steps: tuple[str, ...], code: int, reason: str
) -> None:
    found, told = attaching(*steps).ends()
    assert (found, f"({reason})" in told, "Traceback" in told) == (code, True, False)


@pytest.mark.requirement("cli.attaches-a-terminal")
@pytest.mark.parametrize(
    ("step", "code", "expected"),
    [("ended", 0, ""), ("lost", 7, "connection_lost"), ("busy", 1, "agent_busy")],
)
def test_what_is_said_while_the_program_runs_is_told_when_it_has_ended(
    attaching: Attaching, step: str, code: int, expected: str
) -> None:
    terminal = attaching(f"launch:{ASKS.format(status=0)}", "attached", step)
    terminal.shows("HERE")
    assert "switched off" not in terminal.shown
    terminal.type("\n")
    found, told = terminal.ends()
    assert (found, expected in told) == (code, True)
    assert ("The attachment had ended before: the agent was switched off" in terminal.shown) == (step == "ended")


@pytest.mark.requirement("cli.an-agent-is-no-operator")
def test_an_agent_attaches_nobody(shell: Shell) -> None:
    shell.as_agent()
    done = shell("agent", "attach", "bob")
    assert (done.code, "permission_denied" in done.err, shell.acted) == (3, True, [])


def test_without_a_terminal_nothing_is_attached(shell: Shell) -> None:
    done = shell("agent", "attach", "bob")
    assert (done.code, "(no_terminal)" in done.err, shell.acted) == (1, True, [])


@pytest.mark.parametrize("wait_s", ["-1", str(IDLE_WAIT_S_MAX + 1)])
def test_a_wait_for_a_turn_has_its_range(shell: Shell, wait_s: str) -> None:
    assert "(invalid_arguments)" in shell("agent", "attach", "bob", "--wait-idle-s", wait_s).err
    assert "(no_terminal)" in shell("agent", "attach", "bob", "--wait-idle-s", str(IDLE_WAIT_S_MAX)).err
