"""The shim's side of the line protocol, read strictly. The whole protocol stands in fencepost.mcp.calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fencepost.home import is_uuid
from fencepost.mcp import profiles, wire
from fencepost.mcp.places import PLACE_KEY

PROTOCOL: Final = 1
# A request of 1 MiB, and what stands before it.
FRAME_BYTES_MAX: Final = 1024 * 1024 + 256
HELLO_BYTES_MAX: Final = 4096
TOKEN_CHARS_MAX: Final = 256
WAIT_MS_MAX: Final = 60_000
_HEX: Final = frozenset("0123456789abcdef")


class BadFrame(Exception):
    """The bytes are no frame of the protocol: the other side is no shim, and its connection ends."""


class HelloRefused(Exception):
    """The shim speaks another version of the protocol, or greets wrongly."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, kw_only=True, slots=True)
class Hello:
    """Who is calling on this connection."""

    token: str = field(repr=False)
    # 32 hexadecimal digits, the same over all connections of one shim.
    nonce: str
    # The agent and the generation that the shim's environment names, where only sessions can confirm them.
    agent_id: str | None = None
    generation: int | None = None
    # What the server was started to offer, None where nobody said; and whether under the other names.
    tools: frozenset[str] | None = None
    warp: bool = False
    # Whose folder of the home tells what is stored about that. No proof of anything: the credential is.
    who: str | None = None
    # True where the nonce is one program's for as long as it lives.
    stays: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """A tool call."""

    number: int
    line: bytes
    # What is left of the wait of a call that is asked again.
    within_ms: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Settle:
    """A mutation whose answer was lost with an earlier edge."""

    number: int
    line: bytes
    # Empty where no edge had told one, and so none had called the store.
    epoch: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Cancel:
    """Nobody waits for this call any more."""

    number: int


def parse_hello(line: bytes) -> Hello:
    """Return the greeting.

    Raises:
        HelloRefused: it is one, of another version or with unusable fields.
        BadFrame: it is none.
    """
    try:
        hello = wire.decode(line)
    except wire.NotJson:
        raise BadFrame from None
    if not isinstance(hello, dict) or "fencepost" not in hello:
        raise BadFrame
    protocol = hello["fencepost"]
    if protocol != PROTOCOL:
        newer = isinstance(protocol, int) and protocol > PROTOCOL
        raise HelloRefused(
            f"this server's version of the shim protocol is not the edge's ({PROTOCOL}); nothing was done",
            hint="Run: fencepost down && fencepost up --detach"
            if newer
            else "Restart the agent program, so that it starts the installed fencepost-mcp.",
        )
    token, nonce = hello.get("token"), hello.get("nonce")
    agent_id, generation = hello.get("agent"), hello.get("generation")
    wanted, who = hello.get("tools"), hello.get("who")
    fits = (
        isinstance(token, str)
        and 0 < len(token) <= TOKEN_CHARS_MAX
        and token.isascii()
        and token.isprintable()
        and isinstance(nonce, str)
        and len(nonce) == 32
        and set(nonce) <= _HEX
        and (agent_id is None or isinstance(agent_id, str))
        and (generation is None or (isinstance(generation, int) and not isinstance(generation, bool)))
        and (wanted is None or isinstance(wanted, str))
    )
    if not fits:
        raise HelloRefused("the shim's greeting is malformed; nothing was done", hint="Reinstall Fencepost.")
    return Hello(
        token=str(token),
        nonce=str(nonce),
        agent_id=agent_id,
        generation=generation,
        tools=None if wanted is None else _families(wanted),
        warp=hello.get("names") == profiles.WARP,
        who=who if isinstance(who, str) and is_uuid(who) else None,
    )


def _families(text: str) -> frozenset[str]:
    """Return the families that a shim names. One that only a newer shim knows is not offered by this edge."""
    if text == profiles.ALL:
        return frozenset(profiles.FAMILIES)
    return frozenset(text.split(",")) & frozenset(profiles.FAMILIES)


def parse_frame(line: bytes) -> Ask | Settle | Cancel:
    """Return the frame. Raises BadFrame."""
    head, _, rest = line.partition(b" ")
    number = _whole(head, most=10**18)
    if number == 0:
        raise BadFrame
    if rest.startswith(b"{"):
        return Ask(number=number, line=rest)
    if rest == b"cancel":
        return Cancel(number=number)
    word, _, rest = rest.partition(b" ")
    argument, _, request = rest.partition(b" ")
    if not request.startswith(b"{"):
        raise BadFrame
    if word == b"within":
        return Ask(number=number, line=request, within_ms=_whole(argument, most=WAIT_MS_MAX))
    if word == b"settle" and argument.isascii() and len(argument) <= 64:
        return Settle(number=number, line=request, epoch="" if argument == b"-" else argument.decode())
    raise BadFrame


def _whole(digits: bytes, *, most: int) -> int:
    if not digits.isdigit() or len(digits) > 19 or int(digits) > most:
        raise BadFrame
    return int(digits)


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Files as they are called on the machine of their checkout."""

    root: str
    ignore_case: bool
    paths: tuple[str, ...]
    globs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A tools/call, as far as the shim has answered for it."""

    # The JSON text of its id, in which 7 and "7" differ.
    id_text: str
    params: dict[str, Any]
    # What the shim made of the files that the call names, on the machine of their checkout.
    place: Place | None = None

    @property
    def key_part(self) -> str | None:
        """What tells its key from the keys of its shim's other calls; None where the number of the call does.

        A request that names its version may use an id again that has been answered.
        """
        return None if wire.names_version(self.params) else self.id_text


def parse_request(line: bytes, *, placed: bool = False) -> Request | None:
    """Return the call in a frame, or None where it is too deeply nested to be read here, if not by the shim.

    `placed`: it comes of a shim, which has named the files of the call.

    Raises:
        BadFrame: no shim would have passed it on.
    """
    try:
        message = wire.decode(line)
    except wire.NotJson:
        return None
    if not isinstance(message, dict) or message.get("method") != "tools/call":
        raise BadFrame
    identity, params = message.get("id"), message.get("params")
    if isinstance(identity, bool) or not isinstance(identity, str | int) or not isinstance(params, dict):
        raise BadFrame
    return Request(
        id_text=wire.quote(identity) if isinstance(identity, str) else str(identity),
        params=params,
        place=_place(params) if placed else None,
    )


def _place(params: Mapping[str, Any]) -> Place | None:
    meta = params.get("_meta")
    told = meta.get(PLACE_KEY) if isinstance(meta, dict) else None
    if not isinstance(told, dict):
        return None
    root, ignore_case = told.get("root"), told.get("ignore_case")
    paths, globs = _texts(told.get("paths")), _texts(told.get("globs"))
    if not isinstance(root, str) or not isinstance(ignore_case, bool) or paths is None or globs is None:
        return None
    return Place(root=root, ignore_case=ignore_case, paths=paths, globs=globs)


def _texts(value: Any) -> tuple[str, ...] | None:
    whole = isinstance(value, list) and all(isinstance(entry, str) for entry in value)
    return tuple(value) if whole else None
