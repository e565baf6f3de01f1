"""The socket on which stdio shims are served, and one connection of it.

Guarantees: the peer is this user (its uid is asked of the kernel); the socket is 0600 from the first moment; lines,
connections and calls in progress are bounded; a connection's calls run beside each other; what stops waits ends them at
once, and mutations that were begun finish.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from fencepost import __version__
from fencepost.client import Channels
from fencepost.home import MCP_EDGE, Home
from fencepost.mcp import answers, registry
from fencepost.mcp.offers import stored_in
from fencepost_kit import logs
from fencepost_kit.files import home_refusals, write_private
from fencepost_kit.serve import refuse_live
from fencepost_mcp_edge.domain.frames import (
    FRAME_BYTES_MAX,
    HELLO_BYTES_MAX,
    PROTOCOL,
    Ask,
    BadFrame,
    Cancel,
    HelloRefused,
    Request,
    Settle,
    parse_frame,
    parse_hello,
    parse_request,
)
from fencepost_mcp_edge.usecases.answer import answer_ask, answer_settle
from fencepost_mcp_edge.usecases.caller import Caller
from fencepost_mcp_edge.usecases.outcomes import overloaded

BACKLOG: Final = 1024
CONNECTIONS_MAX: Final = 1024
CALLS_IN_FLIGHT_MAX: Final = 64
HELLO_MS_MAX: Final = 5_000
# From here on nothing more is read from a shim until it has read something.
OUT_BYTES_HIGH: Final = 1024 * 1024

_log: Final = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How much a shim may ask for."""

    page_bytes_max: int
    connections_max: int = CONNECTIONS_MAX
    calls_in_flight_max: int = CALLS_IN_FLIGHT_MAX


class Shims:
    """Every connection of one edge, and their socket."""

    def __init__(self, *, home: Home, channels: Channels, limits: Limits) -> None:
        self.channels: Final = channels
        self.limits: Final = limits
        self._home = home
        self._server: asyncio.Server | None = None
        self._published = b""
        self._bound = (0, 0)
        self._connections: set[_Connection] = set()
        # Every call in progress, those of lost connections included: a mutation outlives its shim.
        self.calls: Final[set[asyncio.Task[bytes]]] = set()
        self.draining = False

    async def start(self) -> None:
        """Bind the socket, serve it, publish its address. The caller holds the service's lock.

        Raises:
            SocketInUse: another live server owns the socket; nothing was touched.
            HomeRefused: its path is taken by something that is no socket, or the home cannot be written.
        """
        path = self._home.edge_socket
        with home_refusals(self._home):
            refuse_live(path, MCP_EDGE)
            listener = _bound(path)
            facts = path.lstat()
            self._bound = (facts.st_dev, facts.st_ino)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _Connection(self), sock=listener, backlog=BACKLOG)
        address = f"unix:{path}\n".encode()
        write_private(self._home.edge_address, address)
        self._published = address

    async def drain(self) -> None:
        """Take no more connections and calls, end waits, let mutations finish, close; the shims ask the next edge.

        Bounded by whoever calls it: what is cut off is settled by the shims.
        """
        self.draining = True
        self._withdraw()
        for connection in list(self._connections):
            connection.drain()
        while self.calls:
            await asyncio.wait(set(self.calls))
        await self.stop()

    async def stop(self) -> None:
        """Close what is left. Calls still open are cut off."""
        self.draining = True
        self._withdraw()
        for connection in list(self._connections):
            connection.close()
        for task in list(self.calls):
            task.cancel()
        await asyncio.gather(*self.calls, return_exceptions=True)

    def _withdraw(self) -> None:
        """Take the socket and its address away, unless somebody else has replaced them."""
        if self._server is not None:
            self._server.close()
            self._server = None
        with contextlib.suppress(OSError):
            facts = self._home.edge_socket.lstat()
            if self._bound != (facts.st_dev, facts.st_ino):
                return
            if self._home.edge_address.read_bytes() == self._published:
                self._home.edge_address.unlink()
            self._home.edge_socket.unlink()

    @property
    def connections(self) -> int:
        """How many agent programs are served."""
        return len(self._connections)

    # For connections.

    async def stored(self, caller: Caller) -> frozenset[str] | None:
        """Return the families that are stored for the agent behind a connection; None where nothing is."""
        return None if caller.who is None else stored_in(str(self._home.agent_folder(caller.who)))

    def admits(self, connection: _Connection) -> bool:
        """Tell whether another connection fits, and count it."""
        if self.draining or len(self._connections) >= self.limits.connections_max:
            return False
        self._connections.add(connection)
        return True

    def forget(self, connection: _Connection) -> None:
        """Count a connection no more."""
        self._connections.discard(connection)


class _Connection(asyncio.Protocol):
    """One shim. Lines are read as they come; every call is a task of its own."""

    def __init__(self, shims: Shims) -> None:
        self._shims = shims
        self._transport: asyncio.Transport
        self._caller: Caller | None = None
        self._received = b""
        self._calls: dict[int, tuple[asyncio.Task[bytes], bool]] = {}
        self._hello_timer: asyncio.TimerHandle | None = None
        self._lost = False

    # asyncio.Protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are transports without saying so.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=OUT_BYTES_HIGH)
        if _peer_uid(transport.get_extra_info("socket")) != os.geteuid():
            _log.warning("foreign_peer_refused")
            self._refuse("permission_denied", "this edge serves another user; nothing was done", hint="")
        elif not self._shims.admits(self):
            self._refuse(
                "overloaded",
                f"the edge serves {self._shims.limits.connections_max} agents and no more fit; nothing was done",
                hint="It may be called again when another agent program has ended.",
            )
        else:
            loop = asyncio.get_running_loop()
            self._hello_timer = loop.call_later(HELLO_MS_MAX / 1000, self.close)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._lost = True
        self._shims.forget(self)
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        for task, writes in self._calls.values():
            # Nobody waits any more; what was begun completes all the same (M056).
            if not writes:
                task.cancel()

    def data_received(self, data: bytes) -> None:
        *lines, self._received = (self._received + data).split(b"\n")
        bytes_max = HELLO_BYTES_MAX if self._caller is None else FRAME_BYTES_MAX
        if len(self._received) > bytes_max or any(len(line) > FRAME_BYTES_MAX for line in lines):
            self._abandon("line_too_long")
            return
        try:
            for line in lines:
                if self._transport.is_closing():
                    return
                self._take(line)
        except BadFrame:
            self._abandon("bad_frame")

    def eof_received(self) -> bool:
        # An unterminated frame is no frame: its sender did not finish it.
        return False

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    # Frames.

    def _take(self, line: bytes) -> None:
        if self._caller is None:
            self._greet(line)
            return
        frame = parse_frame(line)
        if isinstance(frame, Cancel):
            task, writes = self._calls.get(frame.number, (None, True))
            if task is not None and not writes:
                task.cancel()
            return
        request = parse_request(frame.line, placed=True)
        if frame.number in self._calls:
            raise BadFrame
        if request is None:
            self._write(b"%d unreadable" % frame.number)
        elif self._shims.draining:
            self._write(b"%d again" % frame.number)
        elif len(self._calls) >= self._shims.limits.calls_in_flight_max:
            self._write(b"%d %b" % (frame.number, overloaded(len(self._calls)).line(request.id_text)))
        else:
            self._begin(self._caller, frame, request)

    def _greet(self, line: bytes) -> None:
        if len(line) > HELLO_BYTES_MAX:
            raise BadFrame
        try:
            hello = parse_hello(line)
        except HelloRefused as refused:
            self._refuse("incompatible_edge", refused.message, hint=refused.hint)
            return
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        self._caller = Caller(channels=self._shims.channels, hello=hello, tell=self._tell, stored=self._shims.stored)
        greeting = {
            "fencepost": PROTOCOL,
            "edge": __version__,
            "epoch": self._caller.known_epoch,
            "registry": answers.REGISTRY_HASH,
        }
        self._write(json.dumps(greeting, separators=(",", ":")).encode())

    def _begin(self, caller: Caller, frame: Ask | Settle, request: Request) -> None:
        if isinstance(frame, Settle):
            answer = answer_settle(caller, frame, request)
        else:
            answer = answer_ask(caller, frame, request, page_bytes_max=self._shims.limits.page_bytes_max)
        tool = registry.EVERY_OF.get(registry.plain_name(str(request.params.get("name"))))
        writes = tool is not None and tool.lost is not registry.Lost.ASK_AGAIN
        task = asyncio.get_running_loop().create_task(answer)
        self._calls[frame.number] = (task, writes)
        self._shims.calls.add(task)
        task.add_done_callback(partial(self._ended, frame.number))

    def _ended(self, number: int, task: asyncio.Task[bytes]) -> None:
        _, writes = self._calls.pop(number)
        self._shims.calls.discard(task)
        if not task.cancelled():
            self._write(b"%d %b" % (number, task.result()))
        elif self._shims.draining and not writes:
            self._write(b"%d again" % number)

    # Ends.

    def drain(self) -> None:
        """Tell the shim to send nothing new, and end what only reads: the shim asks the next edge."""
        self._tell("draining")
        for task, writes in list(self._calls.values()):
            if not writes:
                task.cancel()

    def close(self) -> None:
        """End the connection when what was written has gone out."""
        self._transport.close()

    def _abandon(self, why: str) -> None:
        _log.warning("connection_abandoned", why=why)
        self._transport.abort()

    def _refuse(self, code: str, message: str, *, hint: str) -> None:
        error = {"code": code, "message": message, "hint": hint}
        self._write(json.dumps({"fencepost": PROTOCOL, "error": error}, separators=(",", ":")).encode())
        self._transport.close()

    def _tell(self, word: str) -> None:
        self._write(b"0 %b" % word.encode())

    def _write(self, line: bytes) -> None:
        if not self._lost:
            self._transport.write(line + b"\n")


def _peer_uid(peer: Any) -> int:
    """Return the uid of the process at the other end, as the kernel knows it."""
    if sys.platform == "darwin":
        # struct xucred behind LOCAL_PEERCRED (1) at SOL_LOCAL (0): version, uid, ...
        return int(struct.unpack_from("2I", peer.getsockopt(0, 1, 76))[1])
    raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", raw)[1])


def _bound(path: Path) -> socket.socket:
    """Return a socket bound under a name of its own and moved to `path`, which is never seen with other permissions."""
    own = path.with_name(".edge")
    with contextlib.suppress(FileNotFoundError):
        own.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(os.fspath(own))
        own.rename(path)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener
