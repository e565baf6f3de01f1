"""The shim's connection to `mcp_edge`, and the identity under which it speaks. Imported at the first tool call."""

from __future__ import annotations

import _socket
import os
import sys
import time
from errno import EAGAIN, EINPROGRESS, EINTR

from fencepost.errors import Refused
from fencepost.home import (
    CREDENTIAL_VARIABLE,
    GENERATION_VARIABLE,
    HOME_VARIABLE,
    SESSION_VARIABLE,
    Home,
    is_uuid,
    read_address,
    read_credential,
)
from fencepost.mcp import answers, wire
from fencepost.mcp.calls import BrokenEdge

# Not imported from typing, which would be the most expensive import of the stdio shim.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

    from fencepost.mcp.calls import Calls
    from fencepost.mcp.offers import Wish
    from fencepost.mcp.session import Call

PROTOCOL: Final = 1
# What to do where one of the two is older than the other.
RESTART_PROGRAM: Final = "Restart the agent program, so that it starts the installed fencepost-mcp."
RESTART_SERVICES: Final = "Run: fencepost down && fencepost up --detach"
GREETING_MS_MAX: Final = 3_000
BACKOFF_MS_MIN: Final = 20
BACKOFF_MS_MAX: Final = 400
READ_BYTES: Final = 64 * 1024
# The longest answer: one record of 64 KiB, escaped, stands in it twice.
EDGE_LINE_BYTES_MAX: Final = 4 * 1024 * 1024
_NOT_NOW: Final = (EAGAIN, EINTR, EINPROGRESS)


class Identity:
    """Whom the environment names, and what only a service can confirm about it."""

    __slots__ = ("agent_id", "generation", "token", "who")

    def __init__(self, *, token: str, agent_id: str | None, generation: int | None, who: str | None = None) -> None:
        self.token = token
        # Whose folder of the home tells which tools are offered, as far as that is plain from the environment.
        self.who = who
        # Set where two sources were given and the files alone cannot show that they agree.
        self.agent_id = agent_id
        # The generation that the launcher expects.
        self.generation = generation

    @classmethod
    def from_environment(cls, home: Home, env: Mapping[str, str]) -> Identity:
        """Return the agent that the environment names: by credential file, else by home and session id.

        Raises:
            Refused: neither is set, both are and disagree, or what is set cannot be used. Nothing was created.
        """
        named, session = env.get(CREDENTIAL_VARIABLE, ""), env.get(SESSION_VARIABLE, "").lower()
        generation = expected_generation(env.get(GENERATION_VARIABLE, ""))
        if not named and not session:
            raise Refused(
                "missing_managed_sender",
                "this server speaks for no agent; nothing was sent and nothing was created",
                hint=f"The server's environment must name one: {HOME_VARIABLE} and {SESSION_VARIABLE}, as"
                " `fencepost agent create NAME` prints them.",
            )
        of_session = home.agent_credential_text(session) if session else ""
        token = read_credential(named or of_session)
        who = session or _folder_name(named)
        if not (named and session):
            return cls(token=token, agent_id=None, generation=generation, who=who)
        try:
            other = read_credential(of_session)
        except Refused:
            return cls(token=token, agent_id=session, generation=generation, who=who)
        if other != token:
            raise Refused(
                "identity_disagreement",
                f"{CREDENTIAL_VARIABLE} and {SESSION_VARIABLE} name different agents; nothing was sent",
                hint="Set only one of them in the server's environment.",
            )
        return cls(token=token, agent_id=None, generation=generation, who=who)


def _folder_name(credential: str) -> str | None:
    """Return the agent in whose folder of a home a credential lies, or None where it lies elsewhere."""
    name = os.path.basename(os.path.dirname(os.path.abspath(credential)))  # noqa: PTH100, PTH119, PTH120 (pathlib is slow)
    return name if is_uuid(name) else None


def expected_generation(text: str) -> int | None:
    """Return the generation that the environment expects, or None where it names none."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) >= 1):
        raise Refused("invalid_generation", f"{GENERATION_VARIABLE} is not a number from 1 on; nothing was sent")
    return int(text)


def new_nonce() -> str:
    """Return 32 hexadecimal digits that no other process has: the time first, so that keys are stored in order."""
    return f"{int(time.time() * 1000) & 0xFFFFFFFFFFFF:012x}{os.urandom(10).hex()}"


class Link:
    """One connection at a time to the edge that the home's run folder names; sought only while a call wants it."""

    def __init__(
        self, *, home: Home, identity: Identity | None, calls: Calls, nonce: str, wish: Wish | None = None
    ) -> None:
        self._home: Final = home
        self._wish: Final = wish
        # None only in a link that learns it at the first call; it is known before anything connects.
        self._identity = identity
        self._calls: Final = calls
        self._nonce: Final = nonce
        self._socket: _socket.socket | None = None
        self._greeted = False
        self._greeting_due_s = 0.0
        self._retry_s = 0.0
        self._backoff_ms = BACKOFF_MS_MIN
        self._frames: list[tuple[Call | None, memoryview]] = []
        self._partly = False
        self._received = b""
        calls.withdraw = self.withdraw

    # For the loop.

    def fileno(self) -> int:
        """Return the descriptor to poll, or -1."""
        return -1 if self._socket is None else self._socket.fileno()

    @property
    def wants_writing(self) -> bool:
        """True where something waits for the socket."""
        return bool(self._frames)

    def next_due_s(self) -> float | None:
        """Return when `step` has something to do by itself."""
        if self._socket is None:
            return self._retry_s if self._calls.wants_edge else None
        return None if self._greeted else self._greeting_due_s

    def step(self) -> None:
        """Connect where that is wanted, send what is due."""
        now = self._calls.now
        if self._socket is None:
            if self._calls.wants_edge and now >= self._retry_s:
                self._connect()
        elif not self._greeted and now >= self._greeting_due_s:
            self.drop()
        if self._socket is not None:
            self._frames += [(call, memoryview(frame)) for call, frame in self._calls.frames()]
            self._send()

    def drop(self) -> None:
        """Give the connection up; the calls decide what becomes of what it carried."""
        if self._socket is None:
            return
        self._socket.close()
        self._socket = None
        self._frames.clear()
        self._partly = False
        self._received = b""
        self._calls.lost()
        if not self._greeted:
            self._failed()
        self._greeted = False

    def withdraw(self, call: Call) -> None:
        """Take back a frame: it is forgotten, or its half is made worthless by ending the connection."""
        for place, (owner, _) in enumerate(self._frames):
            if owner is call:
                if place == 0 and self._partly:
                    self.drop()
                else:
                    del self._frames[place]
                return

    # Connecting.

    def _connect(self) -> None:
        try:
            address = read_address(self._home.edge_address_text())
        except Refused as refused:
            self._failed()
            self._calls.refused(code="not_written", message=refused.message, hint=refused.hint)
            return
        if address is None:
            self._failed()
            if not os.path.isdir(f"{self._home.text}/run"):  # noqa: PTH112 (pathlib costs more than the whole call)
                self._calls.absent()
            return
        try:
            link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        except OSError:
            self._failed()
            return
        link.setblocking(False)  # noqa: FBT003 (the socket takes it so)
        try:
            link.connect(address.removeprefix("unix:"))
            if not _same_user(link):
                raise OSError
        except OSError:
            link.close()
            self._failed()
            return
        self._socket = link
        self._greeting_due_s = self._calls.now + GREETING_MS_MAX / 1000
        self._frames = [(None, memoryview(self._hello()))]
        self._send()

    def _failed(self) -> None:
        self._retry_s = self._calls.now + self._backoff_ms / 1000
        self._backoff_ms = min(self._backoff_ms * 2, BACKOFF_MS_MAX)
        self._calls.unreachable()

    def _hello(self) -> bytes:
        assert self._identity is not None
        parts = [
            f'"fencepost":{PROTOCOL}',
            f'"shim":{wire.quote(answers.VERSION)}',
            f'"token":{wire.quote(self._identity.token)}',
            f'"nonce":{wire.quote(self._nonce)}',
        ]
        if self._identity.agent_id is not None:
            parts.append(f'"agent":{wire.quote(self._identity.agent_id)}')
        if self._identity.who is not None:
            parts.append(f'"who":{wire.quote(self._identity.who)}')
        if self._identity.generation is not None:
            parts.append(f'"generation":{self._identity.generation}')
        if self._wish is not None:
            # An edge that does not know these offers the seven, as it always did.
            if self._wish.tools is not None:
                from fencepost.mcp.profiles import text_of  # noqa: PLC0415 (loaded, where a wish is)

                parts.append(f'"tools":{wire.quote(text_of(self._wish.tools))}')
            if self._wish.warp:
                parts.append('"names":"warp"')
        return f"{{{','.join(parts)}}}\n".encode()

    # Moving bytes.

    def _send(self) -> None:
        while self._frames and self._socket is not None:
            call, rest = self._frames[0]
            try:
                count = self._socket.send(rest)
            except OSError as error:
                if error.errno not in _NOT_NOW:
                    self.drop()
                return
            if count < len(rest):
                self._frames[0] = (call, rest[count:])
                self._partly = True
                continue
            del self._frames[0]
            self._partly = False
            if call is not None:
                self._calls.written(call)

    def readable(self) -> None:
        """Take what the edge sent."""
        if self._socket is None:
            return
        try:
            data = self._socket.recv(READ_BYTES)
        except OSError as error:
            if error.errno not in _NOT_NOW:
                self.drop()
            return
        if not data:
            self.drop()
            return
        *lines, self._received = (self._received + data).split(b"\n")
        try:
            for line in lines:
                self._take(line)
            if len(self._received) > EDGE_LINE_BYTES_MAX:
                raise BrokenEdge
        except BrokenEdge:
            self.drop()

    def writable(self) -> None:
        """Send on."""
        self._send()

    def _take(self, line: bytes) -> None:
        if self._greeted:
            self._calls.answered(line)
            return
        try:
            hello = wire.decode(line)
        except wire.NotJson:
            raise BrokenEdge from None
        protocol = hello.get("fencepost") if isinstance(hello, dict) else None
        if not isinstance(protocol, int) or protocol < 1:
            raise BrokenEdge
        # An edge of another protocol refuses too, in its own: that much of a greeting stays the same for ever.
        error = hello.get("error")
        if not isinstance(error, dict) and protocol != PROTOCOL:
            error = _other_protocol(protocol)
        if isinstance(error, dict):
            self._calls.unreachable()
            texts = {key: str(error.get(key, "")) for key in ("code", "message", "hint")}
            self._calls.refused(code=texts["code"] or "not_written", message=texts["message"], hint=texts["hint"])
            raise BrokenEdge
        self._greeted = True
        self._backoff_ms = BACKOFF_MS_MIN
        self._calls.opened(str(hello.get("epoch", "")))


def _other_protocol(protocol: int) -> dict[str, str]:
    """Return the refusal of an edge that greets in another protocol: whoever is older is to be started anew."""
    return {
        "code": "incompatible_edge",
        "message": f"the edge's shim protocol, {protocol}, is not this server's ({PROTOCOL}); nothing was sent",
        "hint": RESTART_PROGRAM if protocol > PROTOCOL else RESTART_SERVICES,
    }


def _same_user(link: _socket.socket) -> bool:
    """Tell whether the socket's server runs as this user: the token goes to nobody else."""
    if not hasattr(_socket, "SO_PEERCRED"):
        # macOS: the run folder, 0700, is what keeps others out.
        return True
    raw = link.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    # struct ucred: pid, uid, gid, four bytes each.
    return int.from_bytes(raw[4:8], sys.byteorder) == os.geteuid()
