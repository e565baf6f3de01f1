"""Threads and the search of records in the embedded store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from heapq import merge
from typing import Any, Final

from fencepost_kit.values import replace
from fencepost_mailbox.domain.threads.indexing import TO_CLEAR, WIDE_BYTES
from fencepost_mailbox.domain.threads.words import Term, spread
from fencepost_mailbox.domain.values import Attributes, Kind, Record
from fencepost_mailbox.store.threads import sqlite_statements as sql

_UNFINISHED_ROWS: Final = 2


def attributes_from_row(row: tuple[Any, ...]) -> Attributes:
    """Return the attributes of a whole row, columns in the order of the table."""
    return Attributes(
        thread=row[1],
        subject=row[2],
        reply_to=row[3],
        reply_to_kind=None if row[4] is None else Kind(row[4]),
        task_id=row[5],
    )


def attributes_row(sequence: int, given: Attributes) -> tuple[Any, ...]:
    """Return attributes as a row, columns in the order of the table."""
    kind = None if given.reply_to_kind is None else int(given.reply_to_kind)
    return (sequence, given.thread, given.subject, given.reply_to, kind, given.task_id)


def _words_row(record: Record) -> tuple[Any, ...]:
    """Return what the index has of a record. It never changes, so that it can be said again when it is to go."""
    sides = {f"a{one.hex()}" for one in (record.sender, record.recipient) if one is not None}
    who = " ".join([f"p{record.project_id.hex()}", *sorted(sides)])
    subject = record.attributes.subject if record.attributes is not None else ""
    return (record.sequence, spread(subject), spread(record.body.decode("utf-8")), who)


def expression_of(terms: Sequence[Term], *, agent: bytes | None, project_id: bytes | None) -> str:
    """Return what the index is asked. Every word of a caller stands in quotation marks: none is an operator."""
    # A NUL would end the expression.
    quoted = [(spread(term.text).replace('"', '""').replace("\0", " "), term.beginning) for term in terms]
    words = " AND ".join(f'"{text}"{" *" if beginning else ""}' for text, beginning in quoted)
    sides = [f'who : "a{agent.hex()}"'] if agent is not None else []
    sides += [f'who : "p{project_id.hex()}"'] if project_id is not None else []
    return " AND ".join([*sides, f"{{subject body}} : ({words})"])


def _sequence(record: Record) -> int:
    return record.sequence


class SqliteThreadQueries:
    """Reads through one cursor. Results are fetched whole."""

    def __init__(self, cursor: sqlite3.Cursor, record_from_row: Callable[[tuple[Any, ...]], Record]) -> None:
        self._cursor = cursor
        self._plain_record = record_from_row

    def _all(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return self._cursor.execute(statement, parameters).fetchall()

    def whole(self, record: Record) -> Record:
        """Return a record with its attributes."""
        rows = self._all(sql.ATTRIBUTES_OF, sequence=record.sequence)
        # None: erased with its record since that was read.
        return replace(record, attributes=attributes_from_row(rows[0])) if rows else record

    def _records(self, statement: str, **parameters: Any) -> list[Record]:
        return [self._plain_record(row) for row in self._all(statement, **parameters)]

    def of_thread(self, thread: bytes, after: int, limit: int) -> list[Record]:
        """See ThreadQueries."""
        ranges = [
            self._records(sql.BEGAN_THREAD, thread=thread, after=after),
            self._records(sql.JOINED_THREAD, thread=thread, after=after, limit=limit),
            self._records(sql.ANSWERED_FIRST, thread=thread, after=after, limit=limit),
        ]
        found = {record.sequence: record for record in merge(*ranges, key=_sequence)}
        return list(found.values())[:limit]

    def found(
        self, terms: Sequence[Term], *, agent: bytes | None, project_id: bytes | None, before: int, limit: int
    ) -> list[Record]:
        """See ThreadQueries."""
        expression = expression_of(terms, agent=agent, project_id=project_id)
        rows = self._all(sql.FOUND, expression=expression, before=before, limit=limit)
        return [record for (sequence,) in rows for record in self._records(sql.RECORD_AT, sequence=sequence)]

    def _state(self) -> tuple[int, int]:
        ((position, clearing),) = self._all(sql.STATE)
        return int(position), int(clearing)

    def lag(self) -> bool:
        """See ThreadQueries."""
        return bool(self._all(sql.BEHIND, position=self._state()[0]))

    def clearing(self) -> int:
        """See ThreadQueries."""
        return self._state()[1]


class SqliteThreadTransaction(SqliteThreadQueries):
    """Reads and writes in one transaction, on the writer thread."""

    def insert(self, record: Record, given: Attributes) -> None:
        """Write the attributes of a new record."""
        self._cursor.execute(sql.INSERT_ATTRIBUTES, attributes_row(record.sequence, given))

    def index(self, *, records_max: int, bytes_max: int) -> int:
        """See ThreadTransaction."""
        rows: list[tuple[Any, ...]] = []
        room = bytes_max
        for record in self._records(sql.NOT_INDEXED, position=self._state()[0], limit=records_max):
            room -= len(record.body) * (1 if record.body.isascii() else WIDE_BYTES)
            if room < 0 and rows:
                break
            rows.append(_words_row(record))
        if rows:
            self._cursor.executemany(sql.INSERT_WORDS, rows)
            self._cursor.execute(sql.SET_POSITION, {"position": rows[-1][0]})
        return len(rows)

    def erase(self, sequence: int) -> None:
        """Remove the attributes and words of a record that is still there."""
        position, clearing = self._state()
        if sequence <= position:
            for record in self._records(sql.RECORD_AT, sequence=sequence):
                self._cursor.execute(sql.ERASE_WORDS, _words_row(record))
                if clearing != TO_CLEAR:
                    self.set_clearing(TO_CLEAR)
        self._cursor.execute(sql.ERASE_ATTRIBUTES, {"sequence": sequence})

    def set_clearing(self, clearing: int) -> None:
        """See ThreadTransaction."""
        self._cursor.execute(sql.SET_CLEARING, {"clearing": clearing})

    def clear(self, pages: int) -> bool:
        """See ThreadTransaction. The statement itself counts as one row: more say that something was merged."""
        connection = self._cursor.connection
        before = connection.total_changes
        self._cursor.execute(sql.MERGE_WORDS, {"pages": pages})
        return connection.total_changes - before < _UNFINISHED_ROWS
