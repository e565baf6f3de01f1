"""The stdio MCP server that agent programs start: `fencepost-mcp`, or `fencepost mcp serve`.

Guarantees: discovery is answered with no home and no running service; a parked wait never blocks another call; it
outlives every restart behind it and ends only when its input ends, its output is closed, or its parent is gone; what it
remembers is bounded, and it never waits for a client that does not read. Standard library only, and as few modules of
it as possible: every agent program pays for this start.
"""

from __future__ import annotations

import os
import posix
import sys
from errno import EAGAIN, EINTR
from select import POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, poll
from time import monotonic

from fencepost.mcp import answers, wire
from fencepost.mcp.session import LINE_BYTES_MAX, Session, Told

# Not imported from typing, which would be the most expensive import of the stdio shim.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from fencepost.mcp.arguments import Asked
    from fencepost.mcp.calls import Calls
    from fencepost.mcp.link import Link
    from fencepost.mcp.offers import Wish
    from fencepost.mcp.session import Call

READ_BYTES: Final = 64 * 1024
WRITE_BYTES: Final = 64 * 1024
# From here on nothing more is read, neither from the client nor from the edge, until the client has read something.
OUT_BYTES_HIGH: Final = 1024 * 1024
PARENT_CHECK_MS: Final = 5_000
# How long the process may outlive its input: the calls in progress end before, the rest is for their answers.
EXIT_MS_MAX: Final = 6_000
_NOT_NOW: Final = (EAGAIN, EINTR)
_CLOSED: Final = POLLERR | POLLHUP | POLLNVAL
_USAGE: Final = (
    "usage: fencepost-mcp [--version] [--agent NAME [--project DIR]]\n"
    "                     [--tools FAMILIES] [--names fencepost|warp] [--server-name NAME]\n\n"
    "MCP server on standard input and output; agent programs start it. Its environment names the home and the agent:\n"
    "FENCEPOST_HOME and FENCEPOST_SESSION_ID, or FENCEPOST_CREDENTIAL_FILE. Or --agent does: the agent of that name\n"
    "in the project of DIR (default: the working directory), created at the first tool call where there is none.\n"
    "FAMILIES: messaging (default), tasks, context, files with commas between them, or all, or off.\n"
)
# Any of these may change what is told of this server; where none is set, nothing more is loaded to find that out.
TELLING: Final = (
    "FENCEPOST_TOOLS",
    "FENCEPOST_TOOL_NAMES",
    "FENCEPOST_SERVER_NAME",
    "SSH_CONNECTION",
    "WSL_DISTRO_NAME",
    "WSL_INTEROP",
)
WSL_MARK: Final = "/proc/sys/fs/binfmt_misc/WSLInterop"
# In an agent's folder of the home: which tools it is to be offered.
STORED: Final = "tools"


class Shim:
    """One client on two descriptors, and the calls that it has in progress."""

    def __init__(self, *, source: int, target: int, asked: Asked | None = None, wish: Wish | None = None) -> None:
        self._asked: Final = asked
        self._wish: Final = wish
        self._plain: Final = Told()
        self._source: Final = source
        self._target: Final = target
        self._session: Final = Session(emit=self._emit, desk=self, told=self._told)
        self._parent: Final = posix.getppid()
        self._buffer = b""
        self._searched = 0
        self._skipping = False
        self._out: Final[list[bytes]] = []
        self._out_bytes = 0
        self._ended_s: float | None = None
        self._broken = False
        self._calls: Calls | None = None
        self._link: Link | None = None

    # The desk of the session.

    def admit(self, call: Call) -> None:
        """Take over a tool call; the first one loads what calls need."""
        if call.name in answers.PLACED and not self._placed(call):
            return
        if self._link is None:
            try:
                # An agent that never calls a tool pays for none of it.
                from fencepost.mcp import offline  # noqa: PLC0415

                opened = offline.open_link(call, emit=self._emit, asked=self._asked, wish=self._wish)
            except Exception as error:  # noqa: BLE001 - most likely the installation was replaced while this ran
                call.sink(_broken(call, error))
                return
            if opened is None:
                return
            self._calls, self._link = opened
        if self._calls is not None:
            self._calls.now = monotonic()
            self._calls.admit(call)

    def _placed(self, call: Call) -> bool:
        """Name the files of a call as its checkout has them, or answer it."""
        try:
            from fencepost.mcp import places  # noqa: PLC0415 (few agents name files)

            answer = places.prepare(call, None if self._asked is None else self._asked.project)
        except Exception as error:  # noqa: BLE001 - as for the rest of what calls need
            answer = _broken(call, error)
        if answer is not None:
            call.sink(answer)
        return answer is None

    def cancel(self, id_text: str) -> None:
        """Send nothing further for a call."""
        if self._calls is not None:
            self._calls.cancel(id_text)

    def _told(self) -> Told:
        """Return what is told of this server now: what is stored for its agent may have changed."""
        folder = _folder(self._asked)
        stored = folder is not None and os.path.exists(f"{folder}/{STORED}")  # noqa: PTH110 (pathlib is slow to load)
        if self._wish is None and not stored:
            return self._plain
        from fencepost.mcp import offers  # noqa: PLC0415 (see the module's docstring)

        return offers.told(self._wish or offers.Wish(), folder)

    # The loop.

    def run(self) -> int:
        """Serve until the end. Returns the exit status."""
        poller = poll()
        masks: dict[int, int] = {}
        while not self._finished():
            wanted = self._interests()
            for descriptor in masks.keys() - wanted.keys():
                poller.unregister(descriptor)
            for descriptor, mask in wanted.items():
                if masks.get(descriptor) != mask:
                    poller.register(descriptor, mask)
            masks = wanted
            for descriptor, events in poller.poll(self._timeout_ms()):
                self._handle(descriptor, events)
            self._step()
        return 0

    def _interests(self) -> dict[int, int]:
        room = self._out_bytes < OUT_BYTES_HIGH
        wanted = {self._target: POLLOUT if self._out else 0}
        if self._broken:
            wanted.clear()
        if self._ended_s is None and room:
            wanted[self._source] = POLLIN
        if self._link is not None and self._link.fileno() >= 0:
            wanted[self._link.fileno()] = (POLLIN if room else 0) | (POLLOUT if self._link.wants_writing else 0)
        return wanted

    def _timeout_ms(self) -> int:
        now = monotonic()
        due = [now + PARENT_CHECK_MS / 1000]
        if self._ended_s is not None:
            due.append(self._ended_s + EXIT_MS_MAX / 1000)
        if self._calls is not None and self._link is not None:
            due += [moment for moment in (self._calls.next_due_s(), self._link.next_due_s()) if moment is not None]
        # One more, because a poll that returns a little early would be repeated at once.
        return max(0, int((min(due) - now) * 1000) + 1)

    def _handle(self, descriptor: int, events: int) -> None:
        if self._calls is not None:
            self._calls.now = monotonic()
        if descriptor == self._source:
            self._read()
        elif descriptor == self._target:
            if events & _CLOSED:
                self._break()
        elif self._link is not None and descriptor == self._link.fileno():
            if events & POLLOUT:
                self._link.writable()
            if events & (POLLIN | _CLOSED):
                self._link.readable()

    def _step(self) -> None:
        if posix.getppid() != self._parent:
            self._end()
        self._process()
        if self._calls is not None and self._link is not None:
            self._calls.now = monotonic()
            self._calls.tick()
            self._link.step()
        self._write()

    def _finished(self) -> bool:
        if self._ended_s is None:
            return False
        if monotonic() >= self._ended_s + EXIT_MS_MAX / 1000:
            return True
        return not self._out and not self._buffer and not self._calls

    def _end(self) -> None:
        """No more will be asked: waits end, the rest finishes within its bound."""
        if self._ended_s is None:
            self._ended_s = monotonic()

    def _break(self) -> None:
        """Nobody reads the answers any more."""
        self._broken = True
        self._out.clear()
        self._out_bytes = 0
        self._buffer = b""
        self._end()
        if self._calls is not None:
            self._calls.end_of_input()

    # Input.

    def _read(self) -> None:
        try:
            data = posix.read(self._source, READ_BYTES)
        except OSError as error:
            if error.errno in _NOT_NOW:
                return
            data = b""
        if data:
            self._buffer += data
        else:
            self._end()

    def _process(self) -> None:
        """Act on the lines that are complete, as long as their answers have room."""
        while self._out_bytes < OUT_BYTES_HIGH:
            end = self._buffer.find(b"\n", self._searched)
            if end < 0:
                self._searched = len(self._buffer)
                if self._skipping or self._searched > LINE_BYTES_MAX:
                    self._skip()
                break
            line, self._buffer, self._searched = self._buffer[:end], self._buffer[end + 1 :], 0
            if self._skipping:
                self._skipping = False
            else:
                self._session.feed(line)
        else:
            return
        if self._ended_s is not None:
            self._last()

    def _skip(self) -> None:
        """Forget the line so far, and answer it once."""
        if not self._skipping:
            self._skipping = True
            self._session.too_long()
        self._buffer, self._searched = b"", 0

    def _last(self) -> None:
        """The input has ended and every whole line has been acted upon."""
        if self._buffer.strip() and not self._skipping:
            self._session.unterminated()
        self._buffer, self._searched = b"", 0
        if self._calls is not None:
            self._calls.end_of_input()

    # Output.

    def _emit(self, answer: bytes | None) -> None:
        if answer is None or self._broken:
            return
        self._out.append(answer + b"\n")
        self._out_bytes += len(answer) + 1

    def _write(self) -> None:
        while self._out:
            chunk = self._out[0]
            try:
                count = posix.write(self._target, chunk[:WRITE_BYTES])
            except OSError as error:
                if error.errno not in _NOT_NOW:
                    self._break()
                return
            self._out_bytes -= count
            if count == len(chunk):
                del self._out[0]
            else:
                self._out[0] = chunk[count:]


def _folder(asked: Asked | None) -> str | None:
    """Return the agent's folder of the home, as far as it is known before the first call; looks at nothing."""
    if asked is not None:
        return asked.folder
    credential, session = os.environ.get("FENCEPOST_CREDENTIAL_FILE"), os.environ.get("FENCEPOST_SESSION_ID")
    if session:
        home = os.environ.get("FENCEPOST_HOME") or os.path.expanduser("~/.fencepost")  # noqa: PTH111 (as above)
        return f"{home}/agents/{session.lower()}"
    return os.path.dirname(credential) if credential else None  # noqa: PTH120 (as above)


def _broken(call: Call, error: Exception) -> bytes:
    return wire.tool_error(
        call.id_text,
        code="internal_error",
        message=f"This server cannot load the rest of itself ({type(error).__name__}); the call was not sent.",
        hint="Its installation may have been replaced or removed: restart the agent program.",
    )


def main(argv: list[str] | None = None) -> int:
    """Run the server; returns the exit status. Arguments other than those of the usage text are refused."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments in (["--help"], ["-h"]):
        sys.stdout.write(_USAGE)
        return 0
    if arguments == ["--version"]:
        from fencepost import __version__  # noqa: PLC0415 (see the module's docstring)

        sys.stdout.write(f"fencepost-mcp {__version__}\n")
        return 0
    if arguments[:2] == ["mcp", "serve"]:
        arguments = arguments[2:]
    asked = wish = None
    if arguments or any(map(os.environ.get, TELLING)) or os.path.exists(WSL_MARK):  # noqa: PTH110 (as above)
        # As the module's docstring says: who wants what everybody wants pays for none of it.
        from fencepost.mcp.arguments import given  # noqa: PLC0415
        from fencepost.mcp.offers import wish_of  # noqa: PLC0415

        try:
            said = given(arguments)
            asked = said.asked
            wish = wish_of(os.environ, tools=said.tools, called=said.names, name=said.server)
        except ValueError as error:
            sys.stderr.write(f"fencepost-mcp: {error}\n{_USAGE}")
            return 2
    return serve(asked, wish)


def serve(asked: Asked | None = None, wish: Wish | None = None) -> int:
    """Serve standard input and output until the end, for `asked` or the environment's agent. Returns the status."""
    if not posix.isatty(0):
        # A Ctrl-C at the agent program's terminal reaches the whole group; the program decides, by closing the input.
        # A person who tries the server out at a terminal can still stop it. The public module is slow to load.
        import _signal  # type: ignore[import-not-found]  # noqa: PLC0415

        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    try:
        blocking = posix.get_blocking(1)
        posix.set_blocking(1, False)
    except OSError:
        # There is no output to answer on.
        return 1
    try:
        return Shim(source=0, target=1, asked=asked, wish=wish).run()
    finally:
        posix.set_blocking(1, blocking)


if __name__ == "__main__":
    sys.exit(main())
