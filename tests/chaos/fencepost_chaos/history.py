"""What clients and the killer wrote down: one line of JSON an event, in files of their own, judged afterwards.

Times are nanoseconds of the system's monotonic clock, which every process of one machine shares. Bodies are kept as
SHA-256: what is judged is whether the very same bytes come out again.
"""

from __future__ import annotations

import enum
import hashlib
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, TextIO

now_ns: Final = time.monotonic_ns


class Call(enum.StrEnum):
    """A keyed mutation of the mailbox."""

    SEND = "send"
    REQUEST = "request"
    REPLY = "reply"


class Outcome(enum.StrEnum):
    """How a call ended for whoever made it."""

    DONE = "done"
    REFUSED = "refused"
    NOT_WRITTEN = "not_written"
    UNCERTAIN = "uncertain"


class Settled(enum.StrEnum):
    """What the service said became of a call whose answer was lost."""

    NOT_ASKED = ""
    WRITTEN = "written"
    CANCELLED = "cancelled"
    # Written, and erased since with the agent that it was for.
    ERASED = "erased"
    UNSETTLED = "unsettled"


def digest(body: str) -> str:
    """Return what stands for a body in a history."""
    return hashlib.sha256(body.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Began:
    """A mutation is about to be made; where no Mutation follows, its client ended first."""

    op: str
    client: str
    body: str
    at_ns: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutation:
    """A mutation that has ended, retries under the same key included."""

    op: str
    client: str
    via: str  # grpc | mcp
    call: Call
    # The idempotency key; over MCP its end, which holds the id of the tool call.
    key: str
    sender: str
    # Empty where no such agent exists.
    recipient: str
    # The request that a reply answers.
    parent: str = ""
    body: str
    invoked_ns: int
    returned_ns: int
    outcome: Outcome
    reason: str = ""
    record_id: str = ""
    duplicate: bool = False
    # How many answers were lost on the way, and what settling them said.
    lost: int = 0
    settled: Settled = Settled.NOT_ASKED
    # What the very same call gave when it was made once more: a record id, or the reason of a refusal.
    again: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """A record as a page showed it."""

    record_id: str
    body: str
    sender: str
    possibly_seen: bool = False
    acknowledged: bool = False
    # 0 where the face does not tell it.
    sequence: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """A receive."""

    client: str
    agent: str
    invoked_ns: int
    returned_ns: int
    outcome: Outcome
    reason: str = ""
    cursor: str = ""
    ack: str = ""
    next_cursor: str = ""
    ack_cursor: str = ""
    records: tuple[Seen, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Waited:
    """A wait."""

    client: str
    agent: str
    invoked_ns: int
    returned_ns: int
    outcome: Outcome
    timed_out: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Claimed:
    """A dispatcher took a request."""

    client: str
    key: str
    token: str
    record_id: str
    at_ns: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Directed:
    """A keyed mutation of sessions, asked under the same key until it was answered."""

    client: str
    call: str  # create | begin | update | delete
    key: str
    subject: str
    outcome: Outcome
    reason: str = ""
    # The agent's id, its new generation, its new provider, or its name where it is deleted.
    result: str = ""
    lost: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Doomed:
    """An agent is about to be deleted under this key; whether that was answered is told by a Directed."""

    client: str
    key: str
    agent: str
    name: str
    # What it could do until then, to be refused afterwards. The home is thrown away.
    token: str
    at_ns: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Tasked:
    """A write to a task that has ended, pursued under one request id."""

    client: str
    agent: str
    # As the task's history names it: create_pool, claim, submit ...
    action: str
    request_id: str
    # Empty where a creation wrote nothing.
    task_id: str
    # What a creation says; each says something else.
    text: str = ""
    invoked_ns: int
    returned_ns: int
    outcome: Outcome
    reason: str = ""
    # Of the event that it is; 0 where it is none.
    sequence: int = 0
    version: int = 0
    # How many answers were lost on the way, and what settling them said.
    lost: int = 0
    settled: Settled = Settled.NOT_ASKED
    # What the very same write gave when it was made once more: an event's sequence, or the reason of a refusal.
    again: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rpc:
    """One call on the wire, or one tool call to a shim."""

    client: str
    services: tuple[str, ...]
    method: str
    began_ns: int
    ended_ns: int
    # The connection went before the answer came.
    lost: bool = False
    # A parked wait: open nearly always, so that it says little about a kill.
    parked: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Kill:
    """A service was ended by SIGKILL."""

    service: str
    # When the signal was sent; at a fault point, when the end was noticed.
    at_ns: int
    # The fault point; empty where the moment was random.
    point: str = ""
    # False where it was still starting.
    ready: bool = True


Event = Began | Mutation | Page | Waited | Claimed | Directed | Doomed | Tasked | Rpc | Kill
_KINDS: Final[dict[str, type[Any]]] = {
    kind.__name__: kind for kind in (Began, Mutation, Page, Waited, Claimed, Directed, Doomed, Tasked, Rpc, Kill)
}


class Log:
    """Appends events to a file; a line is whole or not there."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def add(self, event: Event) -> None:
        """Write one event."""
        self._file.write(json.dumps({"event": type(event).__name__, **asdict(event)}, separators=(",", ":")) + "\n")
        self._file.flush()


def _event(line: str) -> Event:
    values: dict[str, Any] = json.loads(line)
    kind = _KINDS[values.pop("event")]
    if kind is Page:
        values["records"] = tuple(Seen(**seen) for seen in values["records"])
    if kind is Rpc:
        values["services"] = tuple(values["services"])
    if kind is Mutation:
        values["call"] = Call(values["call"])
    for name, wrapped in (("outcome", Outcome), ("settled", Settled)):
        if name in values:
            values[name] = wrapped(values[name])
    event: Event = kind(**values)
    return event


def read(paths: Iterable[Path]) -> Iterator[Event]:
    """Yield the events of several files. A last line that was cut off by the end of its writer is left out."""
    for path in paths:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                if line.endswith("\n"):
                    yield _event(line)


@dataclass(frozen=True, kw_only=True)
class History:
    """Everything that was written down, each kind in the order of its writers."""

    began: list[Began] = field(default_factory=list)
    mutations: list[Mutation] = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)
    waits: list[Waited] = field(default_factory=list)
    claims: list[Claimed] = field(default_factory=list)
    directed: list[Directed] = field(default_factory=list)
    doomed: list[Doomed] = field(default_factory=list)
    tasked: list[Tasked] = field(default_factory=list)
    rpcs: list[Rpc] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)

    @classmethod
    def of(cls, events: Iterable[Event]) -> History:
        """Sort events by their kind."""
        history = cls()
        places: dict[type[Any], list[Any]] = dict(
            zip(_KINDS.values(), (getattr(history, place.name) for place in fields(history)), strict=True)
        )
        for event in events:
            places[type(event)].append(event)
        return history
