"""The embedded store: its file, its owner, its disk, and what an error of it means."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost_kit import sqlite as kit
from fencepost_kit.groupcommit import OutcomeUnknown
from fencepost_kit.sqlite import Connection, DatabaseInUse, DatabaseUnusable, Migration, SchemaTooNew, SqliteDatabase
from fencepost_mailbox.domain.answers import Resolution
from fencepost_mailbox.domain.bindings import TurnOutcome
from fencepost_mailbox.domain.claims import Outcome
from fencepost_mailbox.domain.refusals import StorageError
from fencepost_mailbox.domain.values import Delivery, Inbox, Kind
from fencepost_mailbox.store.protocol import Applied, InvariantBroken
from fencepost_mailbox.usecases.outcome import Publishing
from fencepost_testing.mailboxes import WAIT_S_MAX, Desk, Watched, a_desk, a_turn, id16, running_store

NEWEST = len(kit.load_migrations("fencepost_mailbox.store.migrations"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mailbox" / "mailbox.db"


class Held:
    """The writer's connection, kept for a test that has to reach it."""

    def __init__(self) -> None:
        self.connection: sqlite3.Connection | None = None

    def open(self, database: SqliteDatabase) -> sqlite3.Connection:
        self.connection = database.connect_writer()
        return self.connection


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
async def desk(path: Path, held: Held) -> AsyncIterator[Desk]:
    async with a_desk(path, "ann", "bob", "cyd", open_writer=held.open) as made:
        yield made


def rows(path: Path) -> dict[str, list[Any]]:
    """Everything in the database."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables}


class Does:
    """An operation that does what it is told."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._work = work

    def apply(self, tx: Any) -> Applied[Any]:
        return Applied(value=self._work(tx))


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.its-files-are-the-owners-alone")
async def test_every_file_of_the_store_is_the_owners_alone_whatever_the_umask(path: Path) -> None:
    before = os.umask(0)
    try:
        async with a_desk(path, "ann", "bob") as desk:
            await desk.send("ann", "bob")
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert set(modes) >= {"mailbox.db", "mailbox.db-wal", "mailbox.db-shm", "mailbox.db.owner"}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.requirement("mailbox.receipt-means-on-disk")
async def test_a_commit_waits_for_the_disk(desk: Desk, held: Held) -> None:
    def settings(tx: Any) -> dict[str, Any]:
        connection = held.connection
        assert connection is not None
        return {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")}

    assert await desk.store.submit(Does(settings)) == {"journal_mode": "wal", "synchronous": 2}


async def test_a_store_is_itself_over_restarts_and_another_one_elsewhere(path: Path, tmp_path: Path) -> None:
    async with running_store(path) as first:
        epoch, secret = first.store.epoch, first.store.cursor_secret
        assert (len(epoch), len(secret)) == (16, 32)
        assert first.store.schema_version == NEWEST
    async with running_store(path) as again, running_store(tmp_path / "other" / "mailbox.db") as other:
        assert (again.store.epoch, again.store.cursor_secret) == (epoch, secret)
        assert other.store.epoch != epoch
        assert other.store.cursor_secret != secret


async def test_nothing_can_be_written_through_the_connection_that_reads(desk: Desk) -> None:
    reader: Any = desk.store.read
    with pytest.raises(sqlite3.OperationalError):
        reader._cursor.execute("DELETE FROM record")


async def test_a_read_leaves_no_transaction_open_that_would_hold_the_log(desk: Desk) -> None:
    await desk.send("ann", "bob")
    page = await desk.receive("bob")
    await desk.receive("bob", cursor=page.next_cursor, ack=page.ack_cursor)
    desk.store.read.received(id16("bob"), 2**62, 10)
    reader: Any = desk.store.read
    assert not reader._cursor.connection.in_transaction


@pytest.mark.requirement("mailbox.a-page-is-one-moment")
@pytest.mark.parametrize("read", ["page", "received"])
async def test_what_is_committed_between_two_statements_of_a_read_is_not_seen_by_the_second(
    desk: Desk, path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    for text in ("one", "two"):
        await desk.send("ann", "bob", text)
    await desk.receive("bob")
    queries: Any = desk.store.read
    real, left = queries._all, ["once"]

    def statement(text: str, **parameters: Any) -> Any:
        found = real(text, **parameters)
        if left:
            left.pop()
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("UPDATE record SET acknowledged = 1, inbox = ?", (int(Inbox.SEEN),))
        return found

    monkeypatch.setattr(queries, "_all", statement)
    if read == "page":
        found = queries.page(id16("bob"), (Inbox.FRESH, Inbox.SEEN), 0, 10)
    else:
        found = list(reversed(queries.received(id16("bob"), 100, 10)))
    assert [record.body for record in found] == [b"one", b"two"]


# --- its owner --------------------------------------------------------------------------------------------------------

_OWNER = """
import asyncio, sys
from pathlib import Path
from fencepost_mailbox.store.sqlite import SqliteStore
async def main():
    store = SqliteStore(Path(sys.argv[1]), on_commit=lambda _: None, on_fatal=lambda _: None)
    await store.start()
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await store.close()
asyncio.run(main())
"""


@contextlib.contextmanager
def another_process(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that owns the database until it is left."""
    process = subprocess.Popen([sys.executable, "-c", _OWNER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        yield process
    finally:
        process.communicate(timeout=20)


@pytest.mark.requirement("mailbox.one-process-owns-the-database")
async def test_a_second_process_is_refused_with_the_owners_pid_and_writes_nothing(path: Path) -> None:
    with another_process(path) as owner:
        before = hashlib.sha256(path.read_bytes()).digest()
        with pytest.raises(DatabaseInUse) as refused:
            async with running_store(path):
                pass
        assert refused.value.state == {"pid": str(owner.pid)}
        assert str(owner.pid) in refused.value.message
        assert hashlib.sha256(path.read_bytes()).digest() == before
    async with running_store(path):
        pass


@pytest.mark.requirement("mailbox.one-process-owns-the-database")
async def test_an_owner_that_was_killed_leaves_the_database_to_the_next(path: Path) -> None:
    with another_process(path) as owner:
        owner.kill()
    async with running_store(path):
        pass


async def test_the_same_process_cannot_open_it_twice(path: Path) -> None:
    async with running_store(path):
        with pytest.raises(DatabaseInUse) as refused:
            async with running_store(path):
                pass
        assert refused.value.state == {"pid": str(os.getpid())}


@pytest.mark.requirement("mailbox.a-newer-schema-is-left-alone")
@pytest.mark.parametrize("mode", ["wal", "delete"])
async def test_a_newer_schema_is_refused_and_not_one_byte_changes(path: Path, mode: str) -> None:
    async with running_store(path):
        pass
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.execute(f"PRAGMA journal_mode = {mode}")
    before = path.read_bytes()
    with pytest.raises(SchemaTooNew) as refused:
        async with running_store(path):
            pass
    assert refused.value.state == {"schema": "99", "known": str(NEWEST)}
    assert path.read_bytes() == before
    with pytest.raises(SchemaTooNew):  # and the lock was given back
        async with running_store(path):
            pass


@pytest.mark.parametrize("content", [b"this is no database" * 100, b"SQLite format 3\0" + b"\xff" * 4096])
async def test_what_is_no_database_is_refused_and_left_as_it_is(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(DatabaseUnusable):
        async with running_store(path):
            pass
    assert path.read_bytes() == content


async def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DatabaseUnusable):
        async with running_store(tmp_path / "file" / "mailbox.db"):
            pass


async def test_a_start_that_fails_leaves_nothing_open(path: Path) -> None:
    def fail(database: SqliteDatabase) -> sqlite3.Connection:
        raise sqlite3.OperationalError("disk I/O error")

    with pytest.raises(sqlite3.OperationalError):
        async with running_store(path, open_writer=fail):
            pass
    assert open_files(path) == []
    async with running_store(path):
        pass


def open_files(path: Path) -> list[str]:
    """The database's files that this process holds open; nothing where the system does not tell."""
    found = []
    for one in Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(OSError):
            found.append(str(one.readlink()))
    return [name for name in found if name.startswith(str(path))]


def test_a_migration_that_fails_leaves_the_step_before(path: Path) -> None:
    good = Migration(number=1, name="a", script="CREATE TABLE a (x);")
    bad = Migration(number=2, name="b", script="CREATE TABLE b (x);\nCREATE TABLE a (x);")
    database = SqliteDatabase(path, migrations=[good, bad])
    with pytest.raises(DatabaseUnusable):
        database.open()
    assert set(rows(path)) == {"a"}
    fixed = SqliteDatabase(path, migrations=[good, Migration(number=2, name="b", script="CREATE TABLE b (x);")])
    fixed.open()
    fixed.close()
    assert set(rows(path)) == {"a", "b"}


# --- errors before COMMIT ---------------------------------------------------------------------------------------------

INJECTED = "injected failure"


@contextlib.contextmanager
def failing(path: Path, table: str, event: str) -> Iterator[None]:
    """Let the database refuse a write of a table, by a trigger."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(f"CREATE TRIGGER injected BEFORE {event} ON {table} BEGIN SELECT RAISE(ABORT, '{INJECTED}'); END")
        try:
            yield
        finally:
            other.execute("DROP TRIGGER injected")


async def prepared(desk: Desk) -> dict[str, Callable[[], Any]]:
    """Every kind of operation that writes, ready to be called; each on a record of its own."""
    for text in ("to fail", "to lose"):
        await desk.request("ann", "bob", text)
    claims = [(await desk.taken("bob")).claim for _ in range(2)]
    pending = await desk.request("ann", "bob", "pending")
    await desk.send("ann", "cyd", "read")
    page = await desk.receive("cyd")
    await desk.send("ann", "cyd", "unread")
    unseen = await desk.request("ann", "cyd", "to be taken back")
    for _ in range(5):
        await desk.request("cyd", "ann", "turn")
    turns = [(await desk.bound("ann")).claim for _ in range(3)]
    await desk.recorded(turns[1], final="left unpublished")
    await desk.ended(turns[2], TurnOutcome.LOST)
    lost = desk.store.read.record(turns[2].record_id)
    assert lost is not None
    to_bind = (await desk.taken("ann")).claim
    publishing = Publishing(seed=desk.mint.new(), now_ms=desk.clock.now_ms())
    return {
        "bind": lambda: desk.finish(to_bind, Outcome.ACCEPTED, turn=a_turn()),
        "record": lambda: desk.recorded(turns[0], final="final"),
        "lose": lambda: desk.ended(turns[0], TurnOutcome.LOST),
        "publish": lambda: desk.store.submit(publishing),
        "withdraw": lambda: desk.withdraw("ann", unseen),
        "prompt": lambda: desk.prompt("bob", key="prompt"),
        "resolve": lambda: desk.resolve(lost, Resolution.AS_NEW, key="resolve"),
        "send": lambda: desk.send("ann", "bob", key="send"),
        "request": lambda: desk.send("ann", "bob", kind=Kind.REQUEST, key="request"),
        "reply": lambda: desk.reply("bob", pending, key="reply"),
        "receive": lambda: desk.receive("cyd"),
        "acknowledge": lambda: desk.receive("cyd", ack=page.ack_cursor),
        "claim": lambda: desk.claim("bob", key="claim"),
        "release": lambda: desk.release(claims[0]),
        "finish": lambda: desk.finish(claims[0], Outcome.FAILED),
        "uncertain": lambda: desk.finish(claims[1], Outcome.UNCERTAIN),
        "open": lambda: desk.open("bob", 2),
    }


STEPS = [
    ("send", "idempotency", "INSERT"),
    ("send", "record", "INSERT"),
    ("request", "record", "INSERT"),
    ("reply", "idempotency", "INSERT"),
    ("reply", "record", "UPDATE"),
    ("reply", "record", "INSERT"),
    ("reply", "fact", "INSERT"),
    ("receive", "record", "UPDATE"),
    ("receive", "fact", "INSERT"),
    ("acknowledge", "record", "UPDATE"),
    ("acknowledge", "fact", "INSERT"),
    ("claim", "idempotency", "INSERT"),
    ("claim", "record", "UPDATE"),
    ("claim", "claim", "INSERT"),
    ("claim", "fact", "INSERT"),
    ("claim", "dispatcher", "INSERT"),
    ("release", "fact", "INSERT"),
    ("release", "record", "UPDATE"),
    ("release", "claim", "UPDATE"),
    ("finish", "record", "UPDATE"),
    ("finish", "claim", "UPDATE"),
    ("finish", "fact", "INSERT"),
    ("finish", "record", "INSERT"),
    ("bind", "record", "UPDATE"),
    ("bind", "claim", "UPDATE"),
    ("bind", "fact", "INSERT"),
    ("bind", "binding", "INSERT"),
    ("record", "binding", "UPDATE"),
    ("record", "fact", "INSERT"),
    ("lose", "binding", "UPDATE"),
    ("lose", "record", "UPDATE"),
    ("lose", "claim", "UPDATE"),
    ("lose", "fact", "INSERT"),
    ("publish", "record", "UPDATE"),
    ("publish", "record", "INSERT"),
    ("publish", "fact", "INSERT"),
    ("publish", "binding", "UPDATE"),
    ("withdraw", "record", "UPDATE"),
    ("withdraw", "fact", "INSERT"),
    ("prompt", "idempotency", "INSERT"),
    ("prompt", "record", "INSERT"),
    ("resolve", "idempotency", "INSERT"),
    ("resolve", "record", "UPDATE"),
    ("resolve", "record", "INSERT"),
    ("resolve", "fact", "INSERT"),
    ("uncertain", "claim", "UPDATE"),
    ("uncertain", "fact", "INSERT"),
    ("open", "generation_floor", "INSERT"),
    ("open", "record", "UPDATE"),
    ("open", "claim", "UPDATE"),
    ("open", "fact", "INSERT"),
]


@pytest.mark.requirement("mailbox.an-operation-is-whole-or-nothing")
@pytest.mark.parametrize(("operation", "table", "event"), STEPS)
async def test_a_failure_at_any_step_rolls_the_whole_operation_back_and_it_can_be_made_again(
    desk: Desk, path: Path, operation: str, table: str, event: str
) -> None:
    calls = await prepared(desk)
    if table == "dispatcher":
        calls["claim"] = lambda: desk.claim("bob", key="claim", incarnation=2)
    before = rows(path)
    with failing(path, table, event), pytest.raises(StorageError) as refused:
        await calls[operation]()
    assert INJECTED not in refused.value.message, "what the database says stays in the log"
    assert rows(path) == before
    await calls[operation]()
    assert rows(path) != before


@pytest.mark.requirement("mailbox.an-operation-is-whole-or-nothing")
async def test_the_neighbours_of_a_failing_operation_in_the_same_batch_are_committed(desk: Desk, path: Path) -> None:
    request = await desk.request("ann", "bob")
    batches = desk.store.counters.batches
    with failing(path, "record", "UPDATE"):
        answers = await asyncio.gather(
            desk.send("ann", "bob", "before"),
            desk.reply("bob", request),
            desk.send("ann", "bob", "after"),
            return_exceptions=True,
        )
    assert desk.store.counters.batches == batches + 1
    assert isinstance(answers[1], StorageError)
    assert [record.body for record in (await desk.receive("bob")).records] == [b"work", b"before", b"after"]
    assert (await desk.receive("ann")).records == []


@pytest.mark.requirement("mailbox.an-operation-is-whole-or-nothing")
async def test_a_bug_in_an_operation_is_no_refusal_and_writes_nothing(desk: Desk, path: Path) -> None:
    def write_and_break(tx: Any) -> None:
        tx.raise_floor(id16("bob"), 7)
        raise InvariantBroken("a bug")

    before = rows(path)
    answers = await asyncio.gather(
        desk.store.submit(Does(write_and_break)), desk.send("ann", "bob"), return_exceptions=True
    )
    assert not isinstance(answers[0], StorageError)
    assert isinstance(answers[0].__cause__, InvariantBroken)  # type: ignore[union-attr]
    assert rows(path)["generation_floor"] == before["generation_floor"]
    await desk.send("bob", "ann")


async def test_a_guarded_write_that_meets_another_state_is_a_bug_and_not_a_second_writer(desk: Desk) -> None:
    record = await desk.request("ann", "bob")
    taken = await desk.taken("bob")
    for stale in (
        lambda tx: tx.move(record, record),
        lambda tx: tx.set_claim_state(taken.claim.__class__(**{**_fields(taken.claim), "generation": 9}), 1),
    ):
        with pytest.raises(Exception, match="before it was committed") as broken:
            await desk.store.submit(Does(stale))
        assert isinstance(broken.value.__cause__, InvariantBroken)
    assert desk.now(record).delivery is Delivery.CLAIMED


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


# --- a full disk ------------------------------------------------------------------------------------------------------


def fill(held: Held, pages: int) -> Callable[[Any], None]:
    """Let the database grow by so many pages and no more."""

    def work(tx: Any) -> None:
        connection = held.connection
        assert connection is not None
        (count,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {count + pages}")

    return work


@pytest.mark.requirement("mailbox.a-full-disk-refuses-and-goes-on")
async def test_where_the_disk_is_full_what_does_not_fit_is_refused_and_the_rest_of_its_batch_is_written(
    desk: Desk, held: Held
) -> None:
    request = await desk.request("ann", "bob", "pending")
    await desk.store.submit(Does(fill(held, 3)))
    answers = await asyncio.gather(
        desk.send("ann", "bob", "small"),
        desk.send("ann", "bob", "x" * 60_000, key="large"),
        desk.reply("bob", request, "done"),
        return_exceptions=True,
    )
    assert isinstance(answers[1], StorageError)
    assert answers[1].may_resend
    assert answers[1].state == {"cause": "SQLITE_FULL"}
    assert "room" in answers[1].hint
    assert not [answer for answer in (answers[0], answers[2]) if isinstance(answer, BaseException)]
    assert desk.deaths == []
    assert [record.body for record in (await desk.receive("ann")).records] == [b"done"]
    with pytest.raises(StorageError):
        await desk.send("ann", "bob", "x" * 60_000, key="large")
    await desk.store.submit(Does(fill(held, 1000)))
    assert not (await desk.send("ann", "bob", "x" * 60_000, key="large")).duplicate


@pytest.mark.requirement("mailbox.a-full-disk-refuses-and-goes-on")
async def test_where_the_disk_is_full_everything_can_still_be_read(desk: Desk, held: Held) -> None:
    await desk.send("ann", "bob", "text")
    page = await desk.receive("bob")
    await desk.store.submit(Does(fill(held, 0)))
    refused = 0
    for _ in range(50):
        try:
            await desk.send("ann", "bob", "x" * 4000)
        except StorageError:
            refused += 1
    assert refused
    assert (await desk.receive("bob")).records[0] == page.records[0]
    assert desk.store.read.record(page.records[0].record_id) == page.records[0]


# --- an operation that takes too long ---------------------------------------------------------------------------------

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"


@pytest.mark.requirement("mailbox.an-operation-has-a-time-limit")
async def test_an_operation_over_its_time_is_interrupted_and_its_neighbours_are_written(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kit, "OPERATION_MS_MAX", 100)

    def write_and_linger(tx: Any) -> None:
        tx.raise_floor(id16("bob"), 7)
        tx._cursor.execute(f"INSERT INTO meta (key, value) {ENDLESS.replace('count(*)', 'count(*), 1')}")

    async with asyncio.timeout(4 * WAIT_S_MAX):
        answers = await asyncio.gather(
            desk.send("ann", "bob", "before"),
            desk.store.submit(Does(write_and_linger)),
            desk.send("ann", "bob", "after"),
            return_exceptions=True,
        )
    assert isinstance(answers[1], StorageError)
    assert answers[1].state == {"cause": "SQLITE_INTERRUPT"}
    assert [record.body for record in (await desk.receive("bob")).records] == [b"before", b"after"]
    assert desk.store.read.floor(id16("bob")) == 1
    assert desk.store.counters.rerun_batches == 1


async def test_an_interrupted_read_fails_alone_without_a_second_run(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kit, "OPERATION_MS_MAX", 100)
    async with asyncio.timeout(4 * WAIT_S_MAX):
        answers = await asyncio.gather(
            desk.send("ann", "bob", "before"),
            desk.store.submit(Does(lambda tx: tx._cursor.execute(ENDLESS).fetchall())),
            return_exceptions=True,
        )
    assert isinstance(answers[1], StorageError)
    assert desk.store.counters.rerun_batches == 0


# --- errors at COMMIT -------------------------------------------------------------------------------------------------


class Failing(Connection):
    """A connection whose COMMIT fails once a test says so, after or before it was carried out."""

    trouble: sqlite3.Error | None = None
    carried_out = False

    def commit(self) -> None:
        if self.trouble is not None:
            if self.carried_out:
                super().commit()
            raise self.trouble
        super().commit()


def an_error(name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(f"made up: {name}")
    error.sqlite_errorcode = getattr(sqlite3, name)
    error.sqlite_errorname = name
    return error


@pytest.fixture
def failing_writer(held: Held, monkeypatch: pytest.MonkeyPatch) -> Callable[[SqliteDatabase], sqlite3.Connection]:
    def open_writer(database: SqliteDatabase) -> sqlite3.Connection:
        real = sqlite3.connect
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sqlite3, "connect", lambda *a, **k: real(*a, **(k | {"factory": Failing})))
            held.connection = database.connect_writer()
        return held.connection

    return open_writer


@pytest.mark.requirement("groupcommit.an-error-at-commit-is-unknown", "mailbox.receipt-means-on-disk")
@pytest.mark.parametrize("carried_out", [False, True])
async def test_an_error_at_commit_is_unknown_and_only_opening_again_can_tell(
    path: Path, held: Held, failing_writer: Callable[[SqliteDatabase], sqlite3.Connection], carried_out: bool
) -> None:
    desk = Desk(path, "ann", "bob", open_writer=failing_writer)
    await desk.start()
    await desk.send("ann", "bob", "durable")
    connection = held.connection
    assert isinstance(connection, Failing)
    connection.trouble, connection.carried_out = an_error("SQLITE_IOERR"), carried_out
    answers = await asyncio.gather(
        desk.send("ann", "bob", "one", key="1"), desk.send("ann", "bob", "two", key="2"), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [OutcomeUnknown] * 2
    assert len(desk.deaths) == 1
    with pytest.raises(StorageError):
        await desk.send("ann", "bob", "three")
    await desk.stop()
    async with a_desk(path, "ann", "bob", first_id=1000) as again:
        bodies = [record.body for record in (await again.receive("bob")).records]
        assert bodies == ([b"durable", b"one", b"two"] if carried_out else [b"durable"])
        assert (await again.send("ann", "bob", "one", key="1")).duplicate is carried_out


@pytest.mark.requirement("mailbox.a-full-disk-refuses-and-goes-on")
async def test_a_disk_that_is_full_at_commit_proves_that_nothing_was_written(
    path: Path, held: Held, failing_writer: Callable[[SqliteDatabase], sqlite3.Connection]
) -> None:
    async with a_desk(path, "ann", "bob", open_writer=failing_writer) as desk:
        connection = held.connection
        assert isinstance(connection, Failing)
        connection.trouble = an_error("SQLITE_FULL")
        with pytest.raises(StorageError):
            await desk.send("ann", "bob", "one", key="1")
        assert desk.deaths == []
        connection.trouble = None
        assert not (await desk.send("ann", "bob", "one", key="1")).duplicate


async def test_a_closed_store_refuses(path: Path) -> None:
    watched = Watched(path)
    await watched.store.start()
    await watched.store.close()
    with pytest.raises(StorageError):
        await watched.store.submit(Does(lambda tx: None))
