"""What is on disk when everything has ended, read with the standard driver from the mailbox's own database."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from fencepost_chaos.history import Call

from fencepost_kit.ids import uuid_text
from fencepost_mailbox.domain.deletion import Phase
from fencepost_mailbox.domain.values import Answer, FactKind, Kind, Operation, Origin, ReplyStatus

_PREFIX: Final = {Kind.INFORMATION: "inf_", Kind.REQUEST: "ask_", Kind.REPLY: "rep_", Kind.NOTICE: "ntc_"}
KIND_OF: Final = MappingProxyType({Call.SEND: Kind.INFORMATION, Call.REQUEST: Kind.REQUEST, Call.REPLY: Kind.REPLY})
OPERATION_OF: Final = MappingProxyType(
    {Call.SEND: Operation.SEND, Call.REQUEST: Operation.REQUEST, Call.REPLY: Operation.REPLY}
)
# Where else an agent is named that must be forgotten with it.
_LIVES: Final = (("claim", "recipient"), ("generation_floor", "agent_id"), ("reader", "agent_id"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """A record as it stands; agents by their UUID, the body as its SHA-256."""

    record_id: str
    sequence: int
    kind: Kind
    sender: str
    recipient: str
    parent: str
    body: str
    acknowledged: bool
    exposed: bool
    answer: Answer
    origin: Origin = Origin.AGENT
    status: ReplyStatus = ReplyStatus.NONE


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredKey:
    """What an idempotency key stands for; no record where it was cancelled."""

    caller: str
    operation: Operation
    key: str
    cancelled: bool


@dataclass(frozen=True, kw_only=True)
class State:
    """The state that a history is held to."""

    records: tuple[Stored, ...] = ()
    keys: tuple[StoredKey, ...] = ()
    # (record id, fact) -> how many times it was noted.
    facts: Mapping[tuple[str, FactKind], int] = field(default_factory=dict)
    # Deleted agents, and how far the deletion of each has come.
    tombstones: Mapping[str, Phase] = field(default_factory=dict)
    # (agent, table): what is kept about an agent beside records and keys.
    lives: frozenset[tuple[str, str]] = frozenset()
    # What PRAGMA integrity_check says.
    integrity: str = "ok"


def _agent(value: bytes | None) -> str:
    return "" if value is None else uuid_text(value)


def load(path: Path) -> State:
    """Read everything from a database that nobody writes any more."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        integrity = ", ".join(str(row[0]) for row in connection.execute("PRAGMA integrity_check(10)"))
        names: dict[bytes, str] = {}
        records = []
        for row in connection.execute(
            "SELECT record_id, sequence, kind, sender, recipient, parent_id, body, acknowledged, exposed, answer,"
            " origin, status FROM record ORDER BY sequence"
        ):
            kind = Kind(row[2])
            names[row[0]] = _PREFIX[kind] + row[0].hex()
            records.append(
                Stored(
                    record_id=names[row[0]],
                    sequence=row[1],
                    kind=kind,
                    sender=_agent(row[3]),
                    recipient=_agent(row[4]),
                    parent="" if row[5] is None else _PREFIX[Kind.REQUEST] + row[5].hex(),
                    body=hashlib.sha256(row[6]).hexdigest(),
                    acknowledged=bool(row[7]),
                    exposed=bool(row[8]),
                    answer=Answer(row[9]),
                    origin=Origin(row[10]),
                    status=ReplyStatus(row[11]),
                )
            )
        keys = tuple(
            # Those of tasks are bytes and no text: what became of them their histories tell.
            StoredKey(
                caller=_agent(row[0]),
                operation=Operation(row[1]),
                key=row[2].decode(errors="backslashreplace"),
                cancelled=row[3] is None,
            )
            for row in connection.execute("SELECT caller, operation, key, record_id FROM idempotency")
        )
        facts = {
            (names.get(row[0], row[0].hex()), FactKind(row[1])): row[2]
            for row in connection.execute("SELECT record_id, fact, count(*) FROM fact GROUP BY record_id, fact")
        }
        tombstones = {
            _agent(row[0]): Phase(row[1]) for row in connection.execute("SELECT agent_id, phase FROM tombstone")
        }
        lives = frozenset(
            (_agent(row[0]), table)
            for table, column in _LIVES
            for row in connection.execute(f"SELECT DISTINCT {column} FROM {table}")
        )
    return State(
        records=tuple(records), keys=keys, facts=facts, tombstones=tombstones, lives=lives, integrity=integrity
    )
