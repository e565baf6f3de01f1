"""Fills a mailbox with records: made as the domain makes them, multiplied inside the database.

One inbox holds a tenth of all records, unread; the others share the rest evenly and at random, all of it read and
acknowledged. Senders take turns, their keys are those of shims that make a hundred calls each.
"""

from __future__ import annotations

import random
import secrets
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from fencepost_bench.child import serve
from fencepost_bench.disk import StoreAlone

from fencepost_kit.clock import SYSTEM_CLOCK
from fencepost_kit.ids import uuid_bytes
from fencepost_mailbox.domain import cursors
from fencepost_mailbox.domain.idempotency import fingerprint
from fencepost_mailbox.domain.records import evolve, new_record
from fencepost_mailbox.domain.values import Completion, Delivery, FactKind, Inbox, Kind, Operation, Origin
from fencepost_mailbox.store.sqlite import SqliteStore, record_row
from fencepost_mailbox.store.tables import RECORD

# Part of the name of a kept store: what changes how it is filled changes this.
FORM: Final = 2
FILLING_CACHE_KIB: Final = 262_144
UNREAD_PART: Final = 10
CALLS_A_SHIM: Final = 100
CURSORS: Final = 1_000
BODY: Final = b"Fencepost carries words between agents. ".ljust(300, b".")


# What differs from record to record, by the number n of the record; everything else is as the domain makes it.
# A record takes three numbers of the sequence: its own, and those of two facts where it was read.
_OWN: Final = {
    "sequence": "3 * n",
    "position": "3 * n",
    "record_id": "CAST(printf('%016d', n) AS BLOB)",
    "sender": "(SELECT agent FROM sender WHERE place = n / :calls % :senders)",
    "recipient": "CASE WHEN n % :unread_part = 0 THEN :unread"
    " ELSE (SELECT agent FROM reader WHERE place = abs(random() % 1000003 + n) % :readers) END",
    "admitted_at_ms": ":now_ms",
}
_SERIES: Final = "WITH RECURSIVE series(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < :records)"


def _record_statement(stored: list[Any], shown: list[Any]) -> tuple[str, dict[str, Any]]:
    """Return the statement that stores every record, and the values that do not depend on the record."""
    expressions: list[str] = []
    constants: dict[str, Any] = {}
    for column, first, second in zip(RECORD.columns, stored, shown, strict=True):
        own = _OWN.get(column.name)
        if own is None:
            constants |= {f"stored_{column.name}": first, f"shown_{column.name}": second}
            own = f"CASE WHEN n % :unread_part = 0 THEN :stored_{column.name} ELSE :shown_{column.name} END"
        expressions.append(own)
    return f"{_SERIES} INSERT INTO record SELECT {', '.join(expressions)} FROM series", constants


_KEYS: Final = """
    INSERT INTO idempotency (caller, operation, key, fingerprint, record_id, created_at_ms)
    SELECT sender, :operation, CAST(nonce || ':' || (sequence / 3 % :calls) AS BLOB), :content, record_id, :now_ms
    FROM record JOIN shim ON place = sequence / 3 / :calls
    ORDER BY 1, 2, 3
"""
_FACTS: Final = """
    INSERT INTO fact (sequence, record_id, fact, at_ms, generation, evidence)
    SELECT sequence + step, record_id, CASE step WHEN 1 THEN :exposed ELSE :acknowledged END, :now_ms, 1,
        'returned by receive'
    FROM record JOIN (SELECT 1 AS step UNION ALL SELECT 2) WHERE exposed = 1
    ORDER BY 1
"""
# A mailbox has taken in the words of its records long before there are so many. Else the large store would go on with
# that for the length of every run, and the small one would not.
_TAKEN_IN: Final = "UPDATE record_words_state SET position = (SELECT max(sequence) FROM record)"


def _remember(connection: sqlite3.Connection, table: str, column: str, values: Iterable[bytes | str]) -> None:
    connection.execute(f"CREATE TEMP TABLE {table} (place INTEGER PRIMARY KEY, {column})")
    connection.executemany(f"INSERT INTO {table} VALUES (?, ?)", enumerate(values))


def fill(path: str, records: int, project: str, senders: list[str], unread: str, read: list[str]) -> float:
    """Fill a new store that no process has open; return the seconds that it took."""
    begun = time.perf_counter()
    StoreAlone(Path(path)).close()
    connection = sqlite3.connect(path, isolation_level=None)
    # Nobody relies on it before it is complete, and a broken one is filled anew: no journal, no sync, one large cache.
    for pragma in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{FILLING_CACHE_KIB}"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    # Built at the end and at once: a fraction of the time.
    indexes = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")
    found = indexes.fetchall()
    for name, _ in found:
        connection.execute(f'DROP INDEX "{name}"')
    _remember(connection, "sender", "agent", map(uuid_bytes, senders))
    _remember(connection, "reader", "agent", map(uuid_bytes, read))
    shims = records // CALLS_A_SHIM + 1
    _remember(connection, "shim", "nonce", (f"mcp-{secrets.token_hex(16)}" for _ in range(shims)))
    stored = new_record(
        sequence=0,
        record_id=b"",
        kind=Kind.INFORMATION,
        project_id=uuid_bytes(project),
        sender=b"",
        recipient=b"",
        body=BODY,
        now_ms=0,
        origin=Origin.AGENT,
    )
    shown = evolve(stored, delivery=Delivery.EXPOSED, exposed=True, acknowledged=True)
    statement, constants = _record_statement(list(record_row(stored)), list(record_row(shown)))
    values = constants | {
        "records": records,
        "calls": CALLS_A_SHIM,
        "senders": len(senders),
        "readers": len(read),
        "unread": uuid_bytes(unread),
        "unread_part": UNREAD_PART,
        "now_ms": SYSTEM_CLOCK.now_ms(),
        "operation": int(Operation.SEND),
        "content": fingerprint(bytes([Kind.INFORMATION, Completion.NONE]), b"recipient", BODY),
        "exposed": int(FactKind.EXPOSED),
        "acknowledged": int(FactKind.ACKNOWLEDGED),
    }
    for each in (statement, _KEYS, _FACTS, _TAKEN_IN, *(sql for _, sql in found)):
        connection.execute(each, values)
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.close()
    return time.perf_counter() - begun


def pages(path: str, agents: dict[str, str], limit: int, unread: str) -> dict[str, list[tuple[str, str]]]:
    """Return cursors of whole pages as (agent, cursor): `tail`, the newest page of each; `old`, anywhere before it.

    `agents` are names and ids. The one named `unread` has no old pages: reading them for the first time writes.
    """
    store = SqliteStore(Path(path), on_commit=lambda _: None, on_fatal=lambda _: None)
    store._database.open()
    connection = store._database.connect_reader()
    try:
        meta: dict[str, bytes] = dict(connection.execute("SELECT key, value FROM meta").fetchall())
        found: dict[str, list[tuple[str, str]]] = {"tail": [], "old": []}
        dice = random.Random(11)
        for name, agent in agents.items():
            positions = [
                row[0]
                for row in connection.execute(
                    "SELECT position FROM record INDEXED BY record_inbox WHERE recipient = ? AND inbox IN (?, ?)",
                    (uuid_bytes(agent), int(Inbox.FRESH), int(Inbox.SEEN)),
                ).fetchall()
            ]
            positions.sort()

            def cursor(place: int, agent: str = agent, positions: list[int] = positions) -> str:
                return cursors.issue(
                    positions[place - 1] if place else 0,
                    recipient=uuid_bytes(agent),
                    epoch=meta["epoch"],
                    secret=meta["cursor_secret"],
                )

            found["tail"].append((name, cursor(len(positions) - limit)))
            for _ in range(0 if name == unread else CURSORS // len(agents)):
                found["old"].append((name, cursor(dice.randrange(len(positions) - limit))))
    finally:
        connection.close()
        store._database.close()
    return found


_AS_FILLED: Final = (
    "DELETE FROM idempotency WHERE record_id IN (SELECT record_id FROM record WHERE sequence > :last)",
    "DELETE FROM record WHERE sequence > :last",
    "DELETE FROM fact WHERE sequence > :last",
    "DELETE FROM reader",
    "INSERT INTO record_words(record_words) VALUES ('delete-all')",
    _TAKEN_IN,
)


def restore(path: str, records: int) -> int:
    """Take what runs have sent out of a store again, which no process has open; return how many records it holds.

    Unread records of an earlier run would be counted with every page of the large store, and in the small one there are
    none.
    """
    # The newest record has its own number, and those of two facts where it was read.
    last = 3 * records + (2 if records % UNREAD_PART else 0)
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        for statement in _AS_FILLED:
            connection.execute(statement, {"last": last})
        connection.execute("COMMIT")
        (held,) = connection.execute("SELECT count(*) FROM record").fetchone()
    finally:
        connection.close()
    return int(held)


def main() -> None:
    serve({"fill": fill, "pages": pages, "restore": restore})


if __name__ == "__main__":
    main()
