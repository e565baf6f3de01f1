"""The few methods of the standard library's sqlite3 that the store uses, over apsw, which can be given a VFS.

Only for the power-cut test: the store's own code, with its own settings, runs over it unchanged.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

import apsw

Parameters = Mapping[str, Any] | Sequence[Any]
# Rewrites a statement before it runs, so that a test can run the store with weaker settings than its own.
Rewrite = Callable[[str], str]


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except apsw.ConstraintError as error:
        raise sqlite3.IntegrityError(str(error)) from error
    except apsw.Error as error:
        raise sqlite3.OperationalError(str(error)) from error


class Cursor:
    """See sqlite3.Cursor."""

    def __init__(self, connection: apsw.Connection, rewrite: Rewrite) -> None:
        self._connection = connection
        self._rewrite = rewrite
        self._rows: list[tuple[Any, ...]] = []
        self.rowcount = -1

    def execute(self, statement: str, parameters: Parameters = ()) -> Self:
        """Run to the end and keep the rows."""
        before = self._connection.total_changes()
        with _translated():
            self._rows = self._connection.execute(self._rewrite(statement), parameters).fetchall()
        self.rowcount = self._connection.total_changes() - before
        return self

    def executemany(self, statement: str, many: Iterable[Parameters]) -> Self:
        """Run once for each set of parameters."""
        with _translated():
            self._connection.executemany(statement, list(many)).fetchall()
        return self

    def executescript(self, script: str) -> Self:
        """Run statements without parameters. Outside of a transaction: the driver would commit it first."""
        assert not self._connection.in_transaction
        return self.execute(script)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows that are left."""
        rows, self._rows = self._rows, []
        return rows

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, or None."""
        return self._rows.pop(0) if self._rows else None


class Connection:
    """See sqlite3.Connection."""

    def __init__(self, path: Path, *, vfs: str, rewrite: Rewrite) -> None:
        with _translated():
            self._connection = apsw.Connection(str(path), vfs=vfs)
        self._rewrite = rewrite

    def cursor(self) -> Cursor:
        """Return a new cursor."""
        return Cursor(self._connection, self._rewrite)

    def execute(self, statement: str, parameters: Parameters = ()) -> Cursor:
        """Run in a cursor of its own."""
        return self.cursor().execute(statement, parameters)

    def commit(self) -> None:
        """Commit the transaction that stands."""
        self.execute("COMMIT")

    @property
    def total_changes(self) -> int:
        """How many rows were ever changed."""
        return self._connection.total_changes()

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction stands."""
        return self._connection.in_transaction

    def set_progress_handler(self, handler: Callable[[], int] | None, steps: int) -> None:
        """Call `handler` every so many steps; a true answer interrupts."""
        self._connection.set_progress_handler(None if handler is None else lambda: bool(handler()), steps)

    def close(self) -> None:
        """Close."""
        with _translated():
            self._connection.close()


def connector(vfs: str, rewrite: Rewrite = str) -> Callable[..., Connection]:
    """Return what takes the place of sqlite3.connect. Its other arguments tune the driver and change no promise."""

    def connect(path: Path | str, *, uri: bool = False, **_tuning: object) -> Connection:
        name = str(path)
        if uri:
            # Only to look. The recording layer has no read-only files; nothing is written through this one.
            name, _, mode = name.removeprefix("file:").partition("?")
            assert mode == "mode=ro", "the store opens by address only to look"
            name = unquote(name)
        return Connection(Path(name), vfs=vfs, rewrite=rewrite)

    return connect
