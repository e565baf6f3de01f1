"""SQLite as a service's own database: opened by one process, migrated by number, written by one connection.

Guarantees: WAL with synchronous=FULL (and fullfsync where the system has it), so that a COMMIT that returned survives a
    power cut; an owner lock held for the process's life, so that a second process cannot open the database to write; a
    schema newer than this program is refused and left untouched.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from fencepost_kit.files import OwnerLock
from fencepost_kit.refusal import Refusal

PAGE_CACHE_KIB: Final = 16_384
WAL_AUTOCHECKPOINT_PAGES: Final = 1000
BUSY_MS_MAX: Final = 5000
OPERATION_MS_MAX: Final = 5000
PROGRESS_STEPS: Final = 500_000
MIGRATION_BYTES_MAX: Final = 1_048_576


class DatabaseInUse(Refusal):
    """Another process holds this database."""

    reason = "database_in_use"


class SchemaTooNew(Refusal):
    """The database was written by a newer version of this program."""

    reason = "schema_too_new"


class DatabaseUnusable(Refusal):
    """The database cannot be opened or written."""

    reason = "database_unusable"


@dataclass(frozen=True, kw_only=True, slots=True)
class Migration:
    """One numbered step of the schema."""

    number: int
    name: str
    script: str


def load_migrations(package: str) -> tuple[Migration, ...]:
    """Read NNNN_name.sql files from a package, numbered 1, 2, 3 without gaps.

    Raises:
        ValueError: a gap, a repeated number or a file over MIGRATION_BYTES_MAX.
    """
    found: list[Migration] = []
    for file in resources.files(package).iterdir():
        if file.name.endswith(".sql"):
            number, _, name = file.name.removesuffix(".sql").partition("_")
            script = file.read_text(encoding="utf-8")
            if len(script) > MIGRATION_BYTES_MAX:
                raise ValueError(f"migration {file.name} is over {MIGRATION_BYTES_MAX} bytes")
            found.append(Migration(number=int(number), name=name, script=script))
    found.sort(key=lambda migration: migration.number)
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"migrations of {package} are not numbered 1, 2, 3 ...")
    return tuple(found)


def statements_of(script: str) -> list[str]:
    """Split a script at its statement ends, as the sqlite3 module would, without executing anything."""
    statements: list[str] = []
    current = ""
    for line in script.splitlines(keepends=True):
        if not current and (not line.strip() or line.lstrip().startswith("--")):
            continue
        current += line
        if sqlite3.complete_statement(current):
            statements.append(current.strip())
            current = ""
    if current.strip():
        raise ValueError("a migration ends in the middle of a statement")
    return statements


class SqliteDatabase:
    """One service's database file."""

    def __init__(self, path: Path, *, migrations: Sequence[Migration]) -> None:
        self.path = path
        self._migrations = tuple(migrations)
        self._lock = OwnerLock(path.with_name(path.name + ".owner"))

    @property
    def schema_version(self) -> int:
        """Number of the newest migration that this program knows."""
        return len(self._migrations)

    def open(self) -> None:
        """Take the owner lock and bring the schema up to date.

        Raises:
            DatabaseInUse: another process owns it.
            SchemaTooNew: a newer program wrote it; it is left untouched.
            DatabaseUnusable: the file or its folder cannot be written, or is not a database.
        """
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise DatabaseUnusable(
                f"cannot create {self.path.parent}: {error.strerror}; nothing was written",
                hint="Make the folder writable for this user or choose another FENCEPOST_HOME.",
            ) from error
        self._own()
        try:
            self._migrate()
        except sqlite3.Error as error:
            self._lock.release()
            raise DatabaseUnusable(
                f"cannot open {self.path} as a database for writing: {error}",
                hint="Check that the disk has room and that the file is writable and whole; it was left as it is.",
            ) from error
        except BaseException:
            self._lock.release()
            raise

    def _own(self) -> None:
        try:
            holder = self._lock.acquire()
        except OSError as error:
            raise DatabaseUnusable(
                f"cannot lock {self.path}: {error.strerror}; nothing was written",
                hint="Make the folder writable for this user or choose another FENCEPOST_HOME.",
            ) from error
        if holder is not None:
            raise DatabaseInUse(
                f"{self.path} is open in process {holder.pid or 'unknown'}; nothing was written",
                hint="Stop that process first (fencepost down), or use another FENCEPOST_HOME.",
                state={"pid": str(holder.pid)},
            )

    def close(self) -> None:
        """Release the owner lock; connections are closed by those who opened them."""
        self._lock.release()

    def connect_writer(self) -> sqlite3.Connection:
        """Open the connection that writes. Exactly one is used at a time."""
        return self._connect()

    def connect_reader(self) -> sqlite3.Connection:
        """Open a connection that cannot write.

        Fetch whole results: an unfinished cursor keeps the log from restarting.
        """
        connection = self._connect()
        connection.execute("PRAGMA query_only = ON")
        return connection

    def _connect(self) -> sqlite3.Connection:
        previous = os.umask(0o177)  # the database and its logs are the owner's alone from the first byte
        try:
            connection = sqlite3.connect(
                self.path,
                timeout=BUSY_MS_MAX / 1000,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
            connection.execute("PRAGMA journal_mode = WAL")
        finally:
            os.umask(previous)
        connection.execute("PRAGMA synchronous = FULL")
        if sys.platform == "darwin":  # fsync does not reach the platter there
            connection.execute("PRAGMA fullfsync = ON")
            connection.execute("PRAGMA checkpoint_fullfsync = ON")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA cache_size = -{PAGE_CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_AUTOCHECKPOINT_PAGES}")
        connection.execute("PRAGMA trusted_schema = OFF")
        return connection

    def _version(self) -> int:
        """Return the schema's number, looked at first: setting WAL alone would write into the file."""
        if not self.path.exists():
            return 0
        connection = sqlite3.connect(self.path, timeout=BUSY_MS_MAX / 1000, isolation_level=None)
        try:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
        finally:
            connection.close()
        if version > len(self._migrations):
            raise SchemaTooNew(
                f"{self.path} has schema {version}, this program knows {len(self._migrations)}; it was not touched",
                hint="Start the newer version of fencepost that wrote it.",
                state={"schema": str(version), "known": str(len(self._migrations))},
            )
        return int(version)

    def _migrate(self) -> None:
        version = self._version()
        connection = self._connect()
        try:
            for migration in self._migrations[version:]:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    for statement in statements_of(migration.script):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version = {migration.number}")
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
        finally:
            connection.close()


Tx = TypeVar("Tx")
TxCo = TypeVar("TxCo", covariant=True)


class OpenTransaction(Protocol[TxCo]):
    """Makes a service's transaction object over the writer's cursor; called once for each batch."""

    def __call__(self, cursor: sqlite3.Cursor, /) -> TxCo:
        """Wrap the cursor."""
        ...


class SqliteWriter(Generic[Tx]):
    """The writer that group commit drives; see fencepost_kit.groupcommit.Writer."""

    def __init__(self, connection: sqlite3.Connection, open_transaction: OpenTransaction[Tx]) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._open_transaction = open_transaction
        self._operation_ends_at = 0.0
        connection.set_progress_handler(self._over_time, PROGRESS_STEPS)

    def _over_time(self) -> int:
        # Interrupting ends the whole transaction: group commit then runs the batch again one by one, and the slow one
        # fails alone.
        return int(time.monotonic() > self._operation_ends_at)

    def begin(self) -> Tx:
        """Begin IMMEDIATE: a deferred transaction could fail to upgrade after it has read."""
        self._operation_ends_at = time.monotonic() + OPERATION_MS_MAX / 1000
        self._cursor.execute("BEGIN IMMEDIATE")
        return self._open_transaction(self._cursor)

    def savepoint(self) -> None:
        """Open the savepoint of one operation."""
        self._operation_ends_at = time.monotonic() + OPERATION_MS_MAX / 1000
        self._cursor.execute("SAVEPOINT operation")

    def release(self) -> None:
        """Keep what was written since the savepoint."""
        self._cursor.execute("RELEASE operation")

    def rollback_to_savepoint(self) -> None:
        """Undo what was written since the savepoint and close it."""
        self._cursor.execute("ROLLBACK TO operation")
        self._cursor.execute("RELEASE operation")

    def commit(self) -> None:
        """COMMIT; durable when it returns. Never interrupted: its outcome would be unknown."""
        self._operation_ends_at = float("inf")
        self._cursor.execute("COMMIT")

    def rollback(self) -> None:
        """Undo the transaction where one stands."""
        if self._connection.in_transaction:
            self._cursor.execute("ROLLBACK")

    def in_transaction(self) -> bool:
        """Tell whether the transaction still stands: a full disk or an interrupt ends it without being asked."""
        return self._connection.in_transaction

    def commit_failed_cleanly(self, error: Exception) -> bool:
        """A disk that is full while the log is written leaves no commit mark.

        Any other error at COMMIT tells nothing.
        """
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
