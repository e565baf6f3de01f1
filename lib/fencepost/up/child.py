"""One life of one service: a child process that dies with us, whose output is read and whose end is always awaited."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any, Final

from fencepost.home import CREDENTIAL_VARIABLE, GENERATION_VARIABLE, HOME_VARIABLE, SESSION_VARIABLE, Home
from fencepost.up.logfile import LogFile
from fencepost_kit import launch

OUTPUT_MS_MAX: Final = 1_000

# A service acts as itself: an identity in the shell that ran `fencepost up` is not for it.
WITHHELD_VARIABLES: Final = (SESSION_VARIABLE, CREDENTIAL_VARIABLE, GENERATION_VARIABLE)


async def first_of(*waits: Awaitable[Any], timeout_ms: int | None = None) -> None:
    """Return when one of the awaitables is done or the time is over; the others are cancelled and joined."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        timeout_s = None if timeout_ms is None else timeout_ms / 1000
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Output(asyncio.SubprocessProtocol):
    """Takes the child's output as it comes, and its end."""

    def __init__(self, log: LogFile) -> None:
        loop = asyncio.get_running_loop()
        self._log = log
        self._transport: asyncio.SubprocessTransport | None = None
        self.ended: asyncio.Future[int] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:  # noqa: ARG002 - one pipe
        assert isinstance(data, bytes)
        self._log.feed(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - one pipe
        if not self.closed.done():
            self.closed.set_result(None)

    def process_exited(self) -> None:
        assert self._transport is not None
        code = self._transport.get_returncode()
        self.ended.set_result(-signal.SIGKILL if code is None else code)


class Child:
    """A started service. Only start() makes one; whoever starts it awaits stop(), also where it has ended by itself."""

    def __init__(self, transport: asyncio.SubprocessTransport, output: _Output, log: LogFile) -> None:
        self._transport = transport
        self._output = output
        self._log = log
        self.pid: Final = transport.get_pid()

    @classmethod
    async def start(cls, module: str, home: Home, log: LogFile, env: Mapping[str, str] | None = None) -> Child:
        """Start `python -m module`, in a session of its own, to die with this thread.

        Call it in the main thread. Raises OSError where the system can start no process.
        """
        source = dict(os.environ if env is None else env)
        kept = {name: value for name, value in source.items() if name not in WITHHELD_VARIABLES}
        kept[HOME_VARIABLE] = str(home.path)
        # -P: the folder in which somebody ran `fencepost up` is no place to import from.
        program = (sys.executable, "-P", "-m", module)
        transport, output = await asyncio.get_running_loop().subprocess_exec(
            lambda: _Output(log),
            *(sys.executable, "-IS", str(Path(launch.__file__)), str(os.getpid()), "--", *program),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=kept,
            # Ctrl-C in the terminal is for the supervisor, which stops its children in order.
            start_new_session=True,
        )
        return cls(transport, output, log)

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._output.ended.done()

    async def gone(self) -> None:
        """Return once the process is gone."""
        await asyncio.shield(self._output.ended)

    async def stop(self, grace_ms: int, hurry: asyncio.Event) -> int:
        """See the process to its end and return its exit code, negative for a signal.

        One that is alive gets SIGTERM, and SIGKILL after `grace_ms` or in a hurry. Its output is in the log by then.
        """
        if not self.has_ended:
            self._signal(signal.SIGTERM)
            await first_of(self.gone(), hurry.wait(), timeout_ms=grace_ms)
        if not self.has_ended:
            self._signal(signal.SIGKILL)
        code = await asyncio.shield(self._output.ended)
        # A grandchild may hold the pipe open for ever; what it writes later is lost.
        await asyncio.wait([self._output.closed], timeout=OUTPUT_MS_MAX / 1000)
        self._transport.close()
        self._log.close()
        return code

    def _signal(self, number: int) -> None:
        # It may have ended, and its end be on the way to us.
        with contextlib.suppress(ProcessLookupError):
            self._transport.send_signal(number)
