"""SQLite as a service's own database: opened by one process, migrated by number, written by one connection.

Guarantees: WAL with synchronous=FULL (and fullfsync where the system has it), so that a COMMIT that returned survives a
    power cut; an owner lock held for the process's life, so that a second process cannot open the database to write; a
    schema newer than this program is refused and left untouched.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Generic, Protocol, Self, TypeVar
from urllib.parse import quote

from fencepost_kit import logs
from fencepost_kit.files import OwnerLock
from fencepost_kit.refusal import Refusal

PAGE_CACHE_KIB: Final = 16_384
WAL_AUTOCHECKPOINT_PAGES: Final = 1000
BUSY_MS_MAX: Final = 5000
OPERATION_MS_MAX: Final = 5000
PROGRESS_STEPS: Final = 500_000
MIGRATION_BYTES_MAX: Final = 1_048_576
COPIES_BEFORE_MIGRATION_MAX: Final = 3
STATEMENTS_REMEMBERED_MAX: Final = 1024
COPIES_FOLDER: Final = "before-migrations"
# In the header of a copy (PRAGMA application_id), until the service that opens it has made it its own.
COPY_MARK: Final = 0x46504350

_log: Final = logs.get(__name__)


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Copied:
    """A verified copy: what it holds and how to know it again."""

    schema: int
    rows: Mapping[str, int]
    size_bytes: int
    sha256: str


def copy_database(source: Path, target: Path) -> Copied:
    """Copy a database, in use or not, into a new file of mode 0600, and verify the copy.

    The copy is one moment of the source and is marked as a copy: the service that opens it knows that it was restored.
    Writers of the source are not held up.

    Raises:
        DatabaseUnusable: the source cannot be read, the target not written, or the copy is not whole; no target is
            left, and the source is as it was.
        OSError: the same, where the system says so.
    """
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    try:
        with contextlib.closing(_plain(source)) as read, contextlib.closing(_plain(target)) as written:
            read.execute("PRAGMA query_only = ON")
            read.execute("BEGIN")
            expected = row_counts(read)
            # In one step: a copy in several would begin anew with every commit beside it.
            read.backup(written, pages=-1)
            read.execute("COMMIT")
            written.execute("PRAGMA journal_mode = DELETE")
            written.execute(f"PRAGMA application_id = {COPY_MARK}")
            (schema,) = written.execute("PRAGMA user_version").fetchone()
            check_copy(written, target, rows=expected)
        return Copied(schema=schema, rows=expected, size_bytes=target.stat().st_size, sha256=_settled(target))
    except sqlite3.Error as error:
        target.unlink(missing_ok=True)
        raise DatabaseUnusable(
            f"{source} cannot be copied: {error}; no copy was left, it is as it was",
            hint="Check that both disks have room and can be read and written.",
        ) from error
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def check_copy(connection: sqlite3.Connection, path: Path, *, rows: Mapping[str, int]) -> None:
    """Refuse a copy that is damaged, not marked as a copy, or holds other numbers of rows than `rows`.

    Raises:
        DatabaseUnusable: it says what is wrong.
    """
    found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(1)").fetchall()]
    wrong = "" if found == ["ok"] else found[0]
    if not wrong and connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
        wrong = "a row refers to one that is not there"
    if not wrong and not is_copy(connection):
        wrong = "it is not marked as a copy"
    if not wrong and row_counts(connection) != rows:
        wrong = "it holds other numbers of rows than were read"
    if wrong:
        raise DatabaseUnusable(f"{path} is no whole copy: {wrong}", hint="Use another backup.")


def verify_copy(path: Path, *, rows: Mapping[str, int]) -> None:
    """Check a copy that lies somewhere; see check_copy. Changes nothing."""
    try:
        with contextlib.closing(_plain(path)) as connection:
            connection.execute("PRAGMA query_only = ON")
            check_copy(connection, path, rows=rows)
    except sqlite3.Error as error:
        raise DatabaseUnusable(f"{path} is no whole copy: {error}", hint="Use another backup.") from error


def is_copy(connection: sqlite3.Connection) -> bool:
    """Tell whether a database is a copy that no service has made its own yet."""
    return bool(connection.execute("PRAGMA application_id").fetchone()[0] == COPY_MARK)


def row_counts(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the number of rows of every table."""
    names = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name"
    ).fetchall()
    return {
        name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]  # noqa: S608 - names of our schema
        for (name,) in names
    }


def read_one(path: Path, question: str) -> Any:
    """Return the one value that a question to a database answers, None where there is no row. Changes nothing."""
    with contextlib.closing(_plain(path)) as connection:
        connection.execute("PRAGMA query_only = ON")
        row = connection.execute(question).fetchone()
        return None if row is None else row[0]


def fold_log(path: Path) -> None:
    """Write what stands in the log of a database into the database itself. Nobody else may have it open.

    A database that is damaged is left with its log, as it is.
    """
    with contextlib.suppress(sqlite3.Error), contextlib.closing(_plain(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode = DELETE")


def _plain(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY_MS_MAX / 1000, isolation_level=None)


def _settled(path: Path) -> str:
    """Make a file durable and return its SHA-256."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


# In quotes, or a name.
_NAMED: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|:([A-Za-z_]\w*)")


@lru_cache(maxsize=STATEMENTS_REMEMBERED_MAX)
def by_position(statement: str) -> tuple[str, Callable[[Mapping[str, Any]], tuple[Any, ...]]]:
    """Return a statement with question marks in the place of named parameters, and what puts their values in order.

    A value that is named twice is bound twice: up to CPython 3.12.3 the driver warns of numbers as of names.
    """
    names: list[str] = []

    def mark(found: re.Match[str]) -> str:
        name = found[1]
        if name is None:
            return found[0]
        names.append(name)
        return "?"

    text = _NAMED.sub(mark, statement)
    if len(names) > 1:
        return text, itemgetter(*names)
    return text, lambda values: tuple(values[name] for name in names)


class Cursor(sqlite3.Cursor):
    """A cursor that hands named parameters over by position.

    The driver gives the interpreter's lock up for every name that it looks up, and the writer takes it back from a loop
    that is busy: a statement of eight names did so thirteen times, and does so five times by position.
    """

    def execute(self, statement: str, parameters: Any = (), /) -> Self:
        """See sqlite3.Cursor."""
        if type(parameters) is dict:
            statement, ordered = by_position(statement)
            parameters = ordered(parameters)
        return super().execute(statement, parameters)

    def executemany(self, statement: str, many: Iterable[Any], /) -> Self:
        """See sqlite3.Cursor. All parameters are named, or none."""
        rows = list(many)
        if rows and type(rows[0]) is dict:
            statement, ordered = by_position(statement)
            rows = [ordered(row) for row in rows]
        return super().executemany(statement, rows)


class Connection(sqlite3.Connection):
    """A connection with such cursors."""

    def cursor(self, factory: Any = Cursor) -> Any:
        """See sqlite3.Connection."""
        return super().cursor(factory)

    def execute(self, statement: str, parameters: Any = (), /) -> Cursor:
        """See sqlite3.Connection, whose own goes past the cursor's."""
        found: Cursor = self.cursor().execute(statement, parameters)
        return found


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
        except (sqlite3.Error, OSError) as error:
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
                factory=Connection,
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

    def _user_version(self, mode: str) -> int:
        address = f"file:{quote(str(self.path))}?mode={mode}"
        connection = sqlite3.connect(address, uri=True, timeout=BUSY_MS_MAX / 1000, isolation_level=None)
        try:
            return int(connection.execute("PRAGMA user_version").fetchone()[0])
        finally:
            connection.close()

    def _version(self) -> int:
        """Return the schema's number, looked at first: setting WAL alone would write into the file."""
        if not self.path.exists():
            return 0
        try:
            # Read-only: the last writing connection to close would carry the log that a kill left into the database.
            version = self._user_version("ro")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_READONLY_ROLLBACK:
                raise
            # The power went while the file was being made, before it had a log: only a writer takes that back.
            version = self._user_version("rw")
        if version > len(self._migrations):
            raise SchemaTooNew(
                f"{self.path} has schema {version}, this program knows {len(self._migrations)}; it was not touched",
                hint="Start the newer version of fencepost that wrote it.",
                state={"schema": str(version), "known": str(len(self._migrations))},
            )
        return int(version)

    def _copy_before(self, version: int) -> None:
        """Keep the database as it is before a migration, among the COPIES_BEFORE_MIGRATION_MAX newest."""
        folder = self.path.with_name(COPIES_FOLDER)
        folder.mkdir(mode=0o700, exist_ok=True)
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        name = f"{self.path.stem}-schema-{version:04d}-{stamp}-{os.getpid()}.db"
        copied = copy_database(self.path, folder / name)
        _log.info("copied_before_migration", path=folder / name, schema=version, bytes=copied.size_bytes)
        for old in sorted(folder.glob(f"{self.path.stem}-schema-*.db"), reverse=True)[COPIES_BEFORE_MIGRATION_MAX:]:
            old.unlink()

    def _migrate(self) -> None:
        version = self._version()
        if 0 < version < len(self._migrations):
            self._copy_before(version)
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
    """Makes a service's transaction object over the writer's cursor; called once: it serves every transaction."""

    def __call__(self, cursor: sqlite3.Cursor, /) -> TxCo:
        """Wrap the cursor."""
        ...


class SqliteWriter(Generic[Tx]):
    """The writer that group commit drives; see fencepost_kit.groupcommit.Writer."""

    def __init__(self, connection: sqlite3.Connection, open_transaction: OpenTransaction[Tx]) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._transaction = open_transaction(self._cursor)
        self._operation_ends_at = 0.0
        connection.set_progress_handler(self._over_time, PROGRESS_STEPS)

    def _over_time(self) -> int:
        # Interrupting ends the whole transaction: group commit then runs the batch again one by one, and the slow one
        # fails alone.
        return int(time.monotonic() > self._operation_ends_at)

    def begin(self, *, whole: bool = False) -> Tx:
        """Begin IMMEDIATE: a deferred transaction could fail to upgrade after it has read.

        Nothing is held back here; a service's own writer may. The transaction object is the same every time.
        """
        del whole
        self._operation_ends_at = time.monotonic() + OPERATION_MS_MAX / 1000
        if self._connection.in_transaction:
            raise sqlite3.OperationalError("a transaction stands already")
        # As a script and by commit(): these give the interpreter's lock up once, a statement by itself five times.
        self._cursor.executescript("BEGIN IMMEDIATE")
        return self._transaction

    def settle(self) -> None:
        """Nothing was held back."""

    def mark(self) -> object:
        """Return how many rows were ever changed."""
        return self._connection.total_changes

    def take_back(self, mark: object) -> bool:
        """Nothing was held back: tell whether nothing was written."""
        return self._connection.total_changes == mark

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
        if not self._connection.in_transaction:
            raise sqlite3.OperationalError("no transaction stands")  # where commit() would say nothing
        self._operation_ends_at = float("inf")
        self._connection.commit()

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
