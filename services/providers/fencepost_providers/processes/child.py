"""One child process with an owner: started behind a guard, drained, stopped with all it started, always joined.

Everything happens on one event loop, whose thread must be the main thread: Linux ties the death of a child to the
thread that started it. Nothing here runs code between fork and exec of this process, which has gRPC's threads: the
launcher does, in a process without threads (`fencepost_providers.processes.launcher`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from fencepost.up.logfile import LogFile
from fencepost_providers.processes import launcher

LAUNCH_MS_MAX: Final = 10_000
# A final answer of 64 KiB is six times that where every character is escaped.
PROTOCOL_LINE_BYTES_MAX: Final = 1024 * 1024
INPUT_BYTES_MAX: Final = 4 * 1024 * 1024
OUTPUT_LAST_MS_MAX: Final = 1_000
KILL_MS_MAX: Final = 3_000
PROGRAM_LOG_BYTES_MAX: Final = 4 * 1024 * 1024
PROGRAM_LOG_FILES_MAX: Final = 2
TAIL_LINES_MAX: Final = 20
TAIL_LINE_BYTES_MAX: Final = 400

T = TypeVar("T")


class NotStarted(Exception):
    """No program was started, and nothing is left of the attempt."""


class InputRefused(Exception):
    """Certainly no byte of it has left this process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A line of output without its end; `bytes_cut` bytes at its end are missing."""

    text: bytes
    bytes_cut: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """What to start: the environment is exactly this one, nothing of ours is inherited.

    Standard error goes to `log`; standard output too, unless somebody takes its lines. Without `takes_input` standard
    input is empty. `polls` watches the owner as systems without PR_SET_PDEATHSIG do.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    working_directory: str
    log: Path | None = None
    takes_input: bool = False
    line_bytes_max: int = PROTOCOL_LINE_BYTES_MAX
    polls: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """How a child ended: negative exit codes are signals, None where its guard was killed and nobody saw.

    `tail` holds the last lines of its standard error.
    """

    exit_code: int | None
    tail: str = ""

    def __str__(self) -> str:
        """Say it in words."""
        if self.exit_code is None:
            how = "was killed together with its guard"
        elif self.exit_code < 0:
            how = f"was ended by {_signal_name(-self.exit_code)}"
        else:
            how = f"ended with exit code {self.exit_code}"
        return f"{how}: {self.tail}" if self.tail else how


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


async def to_the_end(work: Coroutine[Any, Any, T], hurry: Callable[[], None] | None = None) -> T:
    """Await `work` until it is done even where we are cancelled; CancelledError leaves after that.

    `hurry` is called at the first cancellation. An error of `work` wins over the cancellation.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            if cancelled is None and hurry is not None:
                hurry()
            cancelled = error
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result


class LineSplitter:
    """Cuts a stream of bytes into lines of bounded length. Keeps at most `bytes_max` bytes of an unfinished one."""

    def __init__(self, bytes_max: int, on_line: Callable[[Line], None]) -> None:
        self._bytes_max = bytes_max
        self._on_line = on_line
        self._partial = bytearray()
        self._cut = 0

    def feed(self, data: bytes) -> None:
        """Take bytes as they come; call for each line that is complete."""
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._take(data[start:end])
            self._emit()
            start = end + 1
        self._take(data[start:])

    def close(self) -> None:
        """Call for what has come of an unfinished line, if anything."""
        if self._partial or self._cut:
            self._emit()

    def _take(self, piece: bytes) -> None:
        room = self._bytes_max - len(self._partial)
        self._partial += piece[:room]
        self._cut += max(0, len(piece) - room)

    def _emit(self) -> None:
        line = Line(text=bytes(self._partial), bytes_cut=self._cut)
        self._partial.clear()
        self._cut = 0
        self._on_line(line)


class RawOutput:
    """Passes bytes on as they come."""

    def __init__(self, on_bytes: Callable[[bytes], None]) -> None:
        self._on_bytes = on_bytes

    def feed(self, data: bytes) -> None:
        """Pass them on."""
        self._on_bytes(data)

    def close(self) -> None:
        """Nothing is kept."""


class _Pipes(asyncio.SubprocessProtocol):
    """Takes what comes from the child: its output, and that its guard has ended."""

    def __init__(self, outputs: Mapping[int, LineSplitter | RawOutput]) -> None:
        loop = asyncio.get_running_loop()
        self._outputs = outputs
        self.closed: Final[dict[int, asyncio.Future[None]]] = {number: loop.create_future() for number in outputs}
        self.exited: Final[asyncio.Future[None]] = loop.create_future()

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        assert isinstance(data, bytes)
        if not self.closed[fd].done():
            self._outputs[fd].feed(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - any end is an end
        if fd in self.closed:
            self.finish(fd)

    def finish(self, number: int) -> None:
        """Pass on what is left of one output; nothing is heard of it afterwards."""
        if not self.closed[number].done():
            self._outputs[number].close()
            self.closed[number].set_result(None)

    def process_exited(self) -> None:
        if not self.exited.done():
            self.exited.set_result(None)


class _Status:
    """What the guard says, line by line, from its pipe."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        self.first: Final[asyncio.Future[list[str]]] = loop.create_future()
        self.ended: Final[asyncio.Future[None]] = loop.create_future()
        self.exit_code: int | None = None
        self._lines = LineSplitter(256, self._said)
        loop.add_reader(self.reading, self._readable)

    def close_writing(self) -> None:
        """Leave the writing end to the guard alone."""
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1

    def close(self) -> None:
        """Let go of the pipe; what was not read is lost."""
        self.close_writing()
        if self.reading >= 0:
            asyncio.get_running_loop().remove_reader(self.reading)
            os.close(self.reading)
            self.reading = -1
        if not self.first.done():
            self.first.set_result([])
        if not self.ended.done():
            self.ended.set_result(None)

    def _readable(self) -> None:
        try:
            data = os.read(self.reading, 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._lines.feed(data)
        else:
            self.close()

    def _said(self, line: Line) -> None:
        words = line.text.decode("ascii", "replace").split()
        if not self.first.done():
            self.first.set_result(words)
        elif len(words) == 2 and words[0] == "ended":
            self.exit_code = int(words[1])


class Child:
    """A started program. Only start() makes one; whoever starts it awaits stop(), also where it has ended by itself."""

    def __init__(
        self, program: Program, on_line: Callable[[Line], None] | None, on_bytes: Callable[[bytes], None] | None = None
    ) -> None:
        loop = asyncio.get_running_loop()
        self._program = program
        self._log = None if program.log is None else _log_file(program.log)
        self._tail: deque[bytes] = deque(maxlen=TAIL_LINES_MAX)
        lines = LineSplitter(program.line_bytes_max, on_line or self._log_line)
        out = lines if on_bytes is None else RawOutput(on_bytes)
        self._pipes = _Pipes({1: out, 2: LineSplitter(program.line_bytes_max, self._error_line)})
        self._status = _Status()
        self._transport: asyncio.SubprocessTransport | None = None
        self._end: asyncio.Future[End] = loop.create_future()
        self._hurry = asyncio.Event()
        self._stopping: asyncio.Task[End] | None = None
        self._finishing: asyncio.Task[None] | None = None
        self.pid = 0

    @classmethod
    async def start(
        cls,
        program: Program,
        *,
        on_line: Callable[[Line], None] | None = None,
        on_bytes: Callable[[bytes], None] | None = None,
    ) -> Child:
        """Start a program; return once it was executed.

        `on_line` is called for each line of its standard output, or `on_bytes` for what comes of it as it comes, on
        the event loop; neither raises. Cancelling ends and joins whatever was started.

        Raises:
            NotStarted: it cannot be executed, or took longer than LAUNCH_MS_MAX to begin.
        """
        child = cls(program, on_line, on_bytes)
        try:
            await to_the_end(child._spawn())
            await child._launched()
        except BaseException:
            await child.stop(grace_ms=0)
            raise
        return child

    @property
    def has_ended(self) -> bool:
        """Whether the program and all it started are gone and joined."""
        return self._end.done()

    @property
    def tail(self) -> str:
        """The last lines of the program's standard error."""
        return b"\n".join(self._tail).decode("utf-8", "replace")

    async def gone(self) -> End:
        """Return once the program has ended, whoever ended it: its output was passed on, all it started is gone."""
        return await asyncio.shield(self._end)

    def write(self, data: bytes) -> None:
        """Give bytes to the program's standard input; they may be on their way when this returns.

        Raises:
            InputRefused: the program has ended, has closed its input, or reads too slowly (INPUT_BYTES_MAX).
        """
        pipe = None if self._transport is None else self._transport.get_pipe_transport(0)
        if pipe is None or self._end.done() or self._pipes.exited.done() or pipe.is_closing():
            raise InputRefused("the program has ended or closed its input")
        # Not asserted: the transport of uvloop is one without saying so.
        pipe = cast("asyncio.WriteTransport", pipe)
        waiting = pipe.get_write_buffer_size()
        if waiting + len(data) > INPUT_BYTES_MAX:
            raise InputRefused(f"the program does not read: {waiting} bytes wait already")
        pipe.write(data)

    def close_input(self) -> None:
        """End the program's standard input, after what was written."""
        pipe = None if self._transport is None else self._transport.get_pipe_transport(0)
        if pipe is not None:
            pipe.close()

    async def stop(self, *, grace_ms: int, polite: Callable[[], Awaitable[None]] | None = None) -> End:
        """End the program and everything it started; return when all of it is gone and joined.

        `polite` asks the program to end and has half of `grace_ms`; then comes SIGTERM to its group, at the end
        SIGKILL. Cancelling this, or a `grace_ms` of 0, kills at once and joins all the same. Harmless when repeated.
        """
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop(grace_ms, polite))
        elif grace_ms == 0:
            self._hurry.set()
        return await to_the_end(_result_of(self._stopping), self._hurry.set)

    async def _spawn(self) -> None:
        environment = dict(self._program.environment)
        # Python adds this one to its own environment in the C locale.
        without = [] if "LC_CTYPE" in environment else ["without=LC_CTYPE"]
        options = ["poll", *without] if self._program.polls else without
        numbers = (str(os.getpid()), str(self._status.writing))
        try:
            self._transport, _ = await asyncio.get_running_loop().subprocess_exec(
                lambda: self._pipes,
                *(sys.executable, "-IS", str(Path(launcher.__file__)), *numbers, *options, "--", *self._program.argv),
                stdin=asyncio.subprocess.PIPE if self._program.takes_input else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment,
                cwd=self._program.working_directory,
                pass_fds=(self._status.writing,),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise NotStarted(f"{self._program.argv[0]} was not started: {error}") from error
        finally:
            self._status.close_writing()
        self._finishing = asyncio.ensure_future(self._finish())

    async def _launched(self) -> None:
        name = self._program.argv[0]
        done, _ = await asyncio.wait([self._status.first], timeout=LAUNCH_MS_MAX / 1000)
        words = self._status.first.result() if done else ["late"]
        if words[:1] == ["started"]:
            self.pid = int(words[1])
        elif words[:1] == ["refused"]:
            raise NotStarted(f"{name} cannot be executed: {os.strerror(int(words[1]))}")
        elif words == ["late"]:
            raise NotStarted(f"{name} did not begin within {LAUNCH_MS_MAX} ms")
        else:
            raise NotStarted(f"{name} was not started: {self.tail or ' '.join(words) or 'its guard ended'}")

    async def _finish(self) -> None:
        """Wait for the guard's end and settle what is left."""
        await asyncio.shield(self._pipes.exited)
        # A process that escaped guard and group may hold a pipe open for ever; what it writes later is lost.
        await asyncio.wait([*self._pipes.closed.values(), self._status.ended], timeout=OUTPUT_LAST_MS_MAX / 1000)
        for number in self._pipes.closed:
            self._pipes.finish(number)
        if self.pid and self._status.exit_code is None:
            # Whoever killed the guard left the group without anybody who would end it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self._status.close()
        if self._transport is not None:
            self._transport.close()
        if self._log is not None:
            self._log.close()
        self._end.set_result(End(exit_code=self._status.exit_code, tail=self.tail))

    async def _stop(self, grace_ms: int, polite: Callable[[], Awaitable[None]] | None) -> End:
        if self._finishing is None:
            self._status.close()
            if not self._end.done():
                self._end.set_result(End(exit_code=None))
            return self._end.result()
        if grace_ms and polite is not None and not self.has_ended:
            asking = asyncio.ensure_future(polite())
            await self._ends_within(grace_ms // 2)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            grace_ms -= grace_ms // 2
        if grace_ms and not self.has_ended:
            self._signal(signal.SIGTERM)
            await self._ends_within(grace_ms)
        if not self.has_ended:
            self._signal(launcher.KILL_NOW)
            self._hurry.clear()
            await self._ends_within(KILL_MS_MAX)
        if not self.has_ended:
            self._signal(signal.SIGKILL)
        return await asyncio.shield(self._end)

    async def _ends_within(self, ms: int) -> None:
        """Wait for the end, unless it takes too long or we are in a hurry."""
        hurry = asyncio.ensure_future(self._hurry.wait())
        try:
            waits: list[asyncio.Future[Any]] = [self._end, hurry]
            await asyncio.wait(waits, timeout=ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurry.cancel()
            await asyncio.gather(hurry, return_exceptions=True)

    def _signal(self, number: int) -> None:
        # It may have ended, and its end be on the way to us.
        with contextlib.suppress(ProcessLookupError):
            if self._transport is not None:
                self._transport.send_signal(number)

    def _error_line(self, line: Line) -> None:
        self._tail.append(line.text[:TAIL_LINE_BYTES_MAX])
        self._log_line(line)

    def _log_line(self, line: Line) -> None:
        if self._log is not None:
            cut = b" ... (%d bytes cut)" % line.bytes_cut if line.bytes_cut else b""
            self._log.feed(line.text + cut + b"\n")


def _log_file(path: Path) -> LogFile:
    # A log that cannot be written is no reason not to start: LogFile counts what it loses.
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return LogFile(path, bytes_max=PROGRAM_LOG_BYTES_MAX, files_max=PROGRAM_LOG_FILES_MAX)


async def _result_of(task: asyncio.Task[T]) -> T:
    return await asyncio.shield(task)
