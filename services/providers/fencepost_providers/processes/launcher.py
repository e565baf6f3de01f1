"""Starts one program, watches over it, and ends with it everything that it started.

Run as a script by `fencepost_providers.processes.child`, standard library only:

    python -IS launcher.py PARENT_PID STATUS_FD [poll] [without=NAME ...] -- PROGRAM [ARGUMENT ...]

This process stays beside the program as its guard; the program leads a session and process group of its own. What the
guard knows it writes to STATUS_FD, a line each: `orphan`, `refused ERRNO`, `started PID`, and last `ended EXIT_CODE`,
negative for a signal. `without` names variables of its own that the program does not get.

- The owner ends, however it ends: everything is killed. Linux tells the guard by a signal (PR_SET_PDEATHSIG; the owner
  starts children from its main thread); elsewhere, or told to `poll`, the guard looks for its parent every POLL_MS.
- The guard is killed: Linux kills the program.
- SIGTERM to the guard is passed to the program's group; SIGUSR2 kills everything now.
- The program ends: what it left behind gets SIGTERM and LINGER_MS, then SIGKILL. On Linux that includes processes that
  left the group, for they are adopted by the guard (PR_SET_CHILD_SUBREAPER). Only then does the guard end.
"""

import os
import select
import signal
import sys
import time

POLL_MS: int = 250
LINGER_MS: int = 1_000
SWEEP_MS = 20

USAGE = "PARENT_PID STATUS_FD [poll] [without=NAME ...] -- PROGRAM [ARGUMENT ...]"
EXIT_USAGE = 124
EXIT_ORPHAN = 125
EXIT_NOT_EXECUTABLE = 127

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

PARENT_ENDED = signal.SIGUSR1
KILL_NOW = signal.SIGUSR2
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
CAUGHT = (signal.SIGCHLD, PARENT_ENDED, KILL_NOW, *ENDING)


def report(status: int, line: str) -> None:
    """Tell the owner; an owner that has gone hears nothing."""
    try:
        os.write(status, line.encode("ascii") + b"\n")
    except OSError:
        return


def request(option: int, value: int) -> None:
    """Ask Linux for something that concerns this process."""
    import ctypes  # noqa: PLC0415 - only where it is needed

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def become(program: list[str], guard: int, failed: int, *, dies_with_guard: bool) -> None:
    """Become the program, in the forked child; write the error number where that failed."""
    try:
        os.setsid()
        # Python ignores these two; a program expects their defaults.
        for number in (*CAUGHT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        if dies_with_guard:
            request(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        # After the request and not before it: a guard that ended in between is noticed here.
        if os.getppid() == guard:
            os.execvp(program[0], program)  # noqa: S606 - becoming the given program is the purpose
    except OSError as error:
        os.write(failed, b"%d" % (error.errno or 0))
    finally:
        os._exit(EXIT_NOT_EXECUTABLE)


class Guard:
    """What is known of the program and of what it started."""

    def __init__(self, parent: int, *, polls: bool) -> None:
        self.parent = parent
        self.polls = polls
        self.program = 0
        self.exit_code: int | None = None
        self.group_is_gone = False
        self.childless = False
        self.killing = False
        self.linger_until: float | None = None
        self.wake, wake = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in CAUGHT:
            signal.signal(number, lambda *_: None)

    def launch(self, program: list[str]) -> int:
        """Start the program; return 0, or the number of the error that kept it from starting."""
        guard = os.getpid()
        reading, writing = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)
        self.program = os.fork()
        if self.program == 0:
            become(program, guard, writing, dies_with_guard=not self.polls)
        os.close(writing)
        # Closed by a successful exec; until then the program has no group of its own that could be signalled.
        error = os.read(reading, 32)
        os.close(reading)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, CAUGHT)
        return int(error) if error else 0

    def signal_all(self, number: int) -> None:
        """Signal the program's group, and whoever left it and was adopted."""
        if not self.group_is_gone:
            try:
                os.killpg(self.program, number)
            except ProcessLookupError:
                # Never again: from now on the number may belong to somebody else.
                self.group_is_gone = True
            except PermissionError:
                pass
        for child in self.adopted():
            try:
                os.kill(child, number)
            except OSError:
                continue

    def adopted(self) -> list[int]:
        """Children of ours other than the program. Not reaped yet, so their numbers are nobody else's."""
        if self.polls:
            return []
        try:
            with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:  # noqa: PTH123
                return [int(pid) for pid in file.read().split() if int(pid) != self.program]
        except OSError:
            return []

    def reap(self) -> None:
        """Take the ends of children that have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if pid == 0:
                self.childless = False
                return
            if pid == self.program:
                self.exit_code = os.waitstatus_to_exitcode(status)

    def all_gone(self) -> bool:
        """Whether nothing is left of the program and what it started."""
        if self.exit_code is None or not self.childless:
            return False
        if not self.polls or self.group_is_gone:
            return True
        try:
            os.killpg(self.program, 0)
        except (ProcessLookupError, PermissionError):
            self.group_is_gone = True
        return self.group_is_gone

    def wait(self) -> set[int]:
        """Wait for signals, or until it is time to look again; return their numbers."""
        if self.killing or (self.polls and self.exit_code is not None):
            timeout_s: float | None = SWEEP_MS / 1000
        elif self.linger_until is not None:
            timeout_s = max(0.0, self.linger_until - time.monotonic())
        else:
            timeout_s = POLL_MS / 1000 if self.polls else None
        if select.select([self.wake], [], [], timeout_s)[0]:
            return set(os.read(self.wake, 4096))
        return set()

    def step(self) -> None:
        """Do what the moment asks for, and wait."""
        if self.exit_code is not None and self.linger_until is None:
            self.linger_until = time.monotonic() + LINGER_MS / 1000
            self.signal_all(signal.SIGTERM)
        if self.linger_until is not None and time.monotonic() >= self.linger_until:
            self.killing = True
        if self.killing:
            self.signal_all(signal.SIGKILL)
        numbers = self.wait()
        # The signal comes for the end of the thread that started us, too: only a changed parent counts.
        if os.getppid() != self.parent or KILL_NOW in numbers:
            self.killing = True
        elif not numbers.isdisjoint(ENDING):
            self.signal_all(signal.SIGTERM)
            # A stopped process acts on nothing before it goes on.
            self.signal_all(signal.SIGCONT)

    def watch(self) -> int:
        """Return the program's exit code once nothing of it is left."""
        self.reap()
        while not self.all_gone():
            self.step()
            self.reap()
        return 0 if self.exit_code is None else self.exit_code


def close_others(status: int) -> None:
    """Close every descriptor but the three streams and `status`: uvloop leaves its own ends of the pipes open."""
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - no more modules than needed
        number = int(name)
        if number > 2 and number != status:
            try:
                os.close(number)
            except OSError:
                continue


def quieten() -> None:
    """Let go of the program's pipes: they end when the program's own side does."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.close(nothing)


def main(argv: list[str]) -> int:
    """Start the program and see it to its end."""
    split = argv.index("--") if "--" in argv else 0
    head, program = argv[1:split], argv[split + 1 :]
    if len(head) < 2 or not program or not all(text.isascii() and text.isdigit() for text in head[:2]):
        sys.stderr.write(f"usage: launcher.py {USAGE}\n")
        return EXIT_USAGE
    parent, status = int(head[0]), int(head[1])
    close_others(status)
    os.set_inheritable(status, False)  # noqa: FBT003 - the standard library takes it by position
    for option in head[2:]:
        if option.startswith("without="):
            os.environ.pop(option.removeprefix("without="), None)
    guard = Guard(parent, polls="poll" in head[2:] or sys.platform != "linux")
    if not guard.polls:
        request(PR_SET_PDEATHSIG, PARENT_ENDED)
        request(PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != parent:
        report(status, "orphan")
        return EXIT_ORPHAN
    error = guard.launch(program)
    if error:
        report(status, f"refused {error}")
        return EXIT_NOT_EXECUTABLE
    quieten()
    report(status, f"started {guard.program}")
    report(status, f"ended {guard.watch()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
