"""File reservations in the embedded store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Final

from fencepost_mailbox.domain.files.paths import below, folders_above, leading
from fencepost_mailbox.domain.files.values import Mode, Reserved, Scope, Span
from fencepost_mailbox.store.files import sqlite_statements as sql
from fencepost_mailbox.store.protocol import InvariantBroken

_EVERY_GENERATION: Final = 2**62


def reserved_from_row(row: tuple[Any, ...]) -> Reserved:
    """Return the reservation of a whole row, columns in the order of the table."""
    return Reserved(
        reservation_id=row[0],
        place=row[1],
        project_id=row[2],
        leading=row[3],
        holder=row[4],
        generation=row[5],
        attempt_id=row[6],
        mode=Mode(row[7]),
        scope=Scope(checkout=row[8], ignore_case=bool(row[9])),
        span=Span(glob=bool(row[10]), path=row[11]),
        reserved_at_ms=row[12],
        expires_at_ms=row[13],
        reason=row[14],
    )


def reserved_row(reserved: Reserved) -> tuple[Any, ...]:
    """Return a reservation as a row, columns in the order of the table."""
    return (
        reserved.reservation_id,
        reserved.place,
        reserved.project_id,
        reserved.leading,
        reserved.holder,
        reserved.generation,
        reserved.attempt_id,
        int(reserved.mode),
        reserved.scope.checkout,
        int(reserved.scope.ignore_case),
        int(reserved.span.glob),
        reserved.span.path,
        reserved.reserved_at_ms,
        reserved.expires_at_ms,
        reserved.reason,
    )


class SqliteFileQueries:
    """See FileQueries. Results are fetched whole."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor

    def _all(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return self._cursor.execute(statement, parameters).fetchall()

    def _found(self, statement: str, **parameters: Any) -> list[Reserved]:
        return [reserved_from_row(row) for row in self._all(statement, **parameters)]

    def near(self, project_id: bytes, spans: Iterable[Span], now_ms: int) -> list[Reserved]:
        """See FileQueries. One look-up for each folder above, however many paths share it; one range for each path."""
        found: dict[tuple[bytes, int], Reserved] = {}
        folders = {leading(span) for span in spans}
        above = {one for folder in folders for one in folders_above(folder)}
        for folder in sorted(above):
            for one in self._found(sql.AT_FOLDER, project_id=project_id, leading=folder, now_ms=now_ms):
                found[one.reservation_id, one.place] = one
        for folder in sorted(folders):
            first, end = below(folder)
            for one in self._found(sql.BELOW_FOLDER, project_id=project_id, first=first, end=end, now_ms=now_ms):
                found[one.reservation_id, one.place] = one
        return list(found.values())

    def of_reservation(self, reservation_id: bytes, now_ms: int) -> list[Reserved]:
        """See FileQueries."""
        return self._found(sql.OF_RESERVATION, reservation_id=reservation_id, now_ms=now_ms)

    def held_count(self, holder: bytes, now_ms: int) -> int:
        """See FileQueries."""
        return int(self._all(sql.HELD_COUNT, holder=holder, now_ms=now_ms)[0][0])

    def held_by(self, holder: bytes, after: tuple[bytes, int], limit: int, now_ms: int) -> list[Reserved]:
        """See FileQueries."""
        reservation_id, place = after
        return self._found(
            sql.HELD_BY, holder=holder, reservation_id=reservation_id, place=place, limit=limit, now_ms=now_ms
        )

    def listed(self, project_id: bytes, after: tuple[str, bytes, int], limit: int, now_ms: int) -> list[Reserved]:
        """See FileQueries."""
        folder, reservation_id, place = after
        return self._found(
            sql.LISTED,
            project_id=project_id,
            leading=folder,
            reservation_id=reservation_id,
            place=place,
            limit=limit,
            now_ms=now_ms,
        )

    def any_expired(self, now_ms: int) -> bool:
        """See FileQueries."""
        return bool(self._all(sql.ANY_EXPIRED, now_ms=now_ms))


class SqliteFileTransaction(SqliteFileQueries):
    """See FileTransaction."""

    def insert(self, reserved: Sequence[Reserved]) -> None:
        """See FileTransaction."""
        self._cursor.executemany(sql.INSERT, [reserved_row(one) for one in reserved])

    def set_expiry(self, reserved: Reserved, expires_at_ms: int) -> None:
        """See FileTransaction."""
        written = self._cursor.execute(
            sql.SET_EXPIRY,
            {
                "was_reservation_id": reserved.reservation_id,
                "was_place": reserved.place,
                "was_expires_at_ms": reserved.expires_at_ms,
                "expires_at_ms": expires_at_ms,
            },
        )
        if written.rowcount != 1:
            raise InvariantBroken("a guarded write found another state than the one it was decided on")

    def drop(self, reserved: Iterable[Reserved]) -> int:
        """See FileTransaction."""
        return sum(self._drop(one.reservation_id, one.place) for one in reserved)

    def _drop(self, reservation_id: bytes, place: int) -> int:
        return self._cursor.execute(sql.DROP, {"reservation_id": reservation_id, "place": place}).rowcount

    def drop_of_attempt(self, attempt_id: bytes) -> int:
        """See FileTransaction."""
        return self._cursor.execute(sql.DROP_OF_ATTEMPT, {"attempt_id": attempt_id}).rowcount

    def drop_of_holder(self, holder: bytes, below_generation: int | None = None) -> int:
        """See FileTransaction."""
        limit = _EVERY_GENERATION if below_generation is None else below_generation
        return self._cursor.execute(sql.DROP_OF_HOLDER, {"holder": holder, "below": limit}).rowcount

    def drop_expired(self, now_ms: int, limit: int) -> int:
        """See FileTransaction."""
        return sum(self._drop(row[0], row[1]) for row in self._all(sql.EXPIRED, now_ms=now_ms, limit=limit))
