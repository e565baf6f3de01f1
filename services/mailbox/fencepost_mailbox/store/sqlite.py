"""The embedded store: SQLite, one writer thread with group commit, one reader connection on the event loop."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from heapq import merge
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

from fencepost_kit.groupcommit import Counters, GroupCommit, NotCommitted
from fencepost_kit.sqlite import SqliteDatabase, SqliteWriter, is_copy, load_migrations
from fencepost_mailbox.domain.answers import Settled
from fencepost_mailbox.domain.bindings import Binding, BindingState, Mode, Turn, TurnOutcome
from fencepost_mailbox.domain.claims import Claim, ClaimState
from fencepost_mailbox.domain.deletion import Phase, Tombstone
from fencepost_mailbox.domain.idempotency import KeyRow
from fencepost_mailbox.domain.refusals import StorageError
from fencepost_mailbox.domain.values import (
    Agent,
    Answer,
    Completion,
    Delivery,
    Desired,
    Fact,
    FactKind,
    Inbox,
    Kind,
    Operation,
    Origin,
    Record,
    ReplyStatus,
)
from fencepost_mailbox.store import sqlite_statements as sql
from fencepost_mailbox.store.context.sqlite import SqliteContextQueries, SqliteContextTransaction
from fencepost_mailbox.store.evidence.sqlite import SqliteEvidenceQueries, SqliteEvidenceTransaction
from fencepost_mailbox.store.files.sqlite import SqliteFileQueries, SqliteFileTransaction
from fencepost_mailbox.store.protocol import (
    Applied,
    Credential,
    DirectoryPosition,
    InvariantBroken,
    Mutation,
    Queries,
)
from fencepost_mailbox.store.tasks.sqlite import SqliteTaskQueries, SqliteTaskTransaction
from fencepost_mailbox.store.threads.sqlite import SqliteThreadQueries, SqliteThreadTransaction

T = TypeVar("T")
FLOORS_CACHED_MAX: Final = 10_000
LIVING_CACHED_MAX: Final = 10_000
_ANY_POSITION: Final = 2**62
# Rows of one statement at most: each statement gives up the interpreter's lock once, and its text is kept prepared.
INSERTED_ROWS_MAX: Final = 16
# Looking up a member by value is ten times as fast as calling the enumeration, and a page has a hundred records.
_KIND: Final = {int(member): member for member in Kind}
_STATUS: Final = {int(member): member for member in ReplyStatus}
_ORIGIN: Final = {int(member): member for member in Origin}
_COMPLETION: Final = {int(member): member for member in Completion}
_DELIVERY: Final = {int(member): member for member in Delivery}
_ANSWER: Final = {int(member): member for member in Answer}
# The column that tells whether a record has attributes.
_ATTRIBUTED: Final = 22
_INBOX: Final = {int(member): member for member in Inbox}


def record_from_row(row: tuple[Any, ...]) -> Record:
    """Return the record of a whole row without its attributes, columns in the order of the table."""
    return Record(
        sequence=row[0],
        record_id=row[1],
        kind=_KIND[row[2]],
        project_id=row[3],
        sender=row[4],
        recipient=row[5],
        parent_id=row[6],
        status=_STATUS[row[7]],
        origin=_ORIGIN[row[8]],
        completion=_COMPLETION[row[9]],
        admitted_at_ms=row[10],
        delivery=_DELIVERY[row[11]],
        answer=_ANSWER[row[12]],
        exposed=bool(row[13]),
        acknowledged=bool(row[14]),
        inbox=_INBOX[row[15]],
        position=row[16],
        claim_token=row[17],
        claim_generation=row[18],
        releases=row[19],
        body=row[20],
        hops=row[21],
    )


def record_row(record: Record) -> tuple[Any, ...]:
    """Return a record as a row, columns in the order of the table.

    Members of enumerations are bound as plain integers: the driver would ask its adapters for each.
    """
    return (
        record.sequence,
        record.record_id,
        int(record.kind),
        record.project_id,
        record.sender,
        record.recipient,
        record.parent_id,
        int(record.status),
        int(record.origin),
        int(record.completion),
        record.admitted_at_ms,
        int(record.delivery),
        int(record.answer),
        int(record.exposed),
        int(record.acknowledged),
        int(record.inbox),
        record.position,
        record.claim_token,
        record.claim_generation,
        record.releases,
        record.body,
        record.hops,
        int(record.attributes is not None),
    )


def claim_row(claim: Claim) -> tuple[Any, ...]:
    """Return a claim as a row, columns in the order of the table."""
    return (
        claim.token,
        claim.record_id,
        claim.recipient,
        claim.dispatcher,
        claim.incarnation,
        claim.generation,
        claim.taken_at_ms,
        claim.term_ms,
        claim.expires_at_ms,
        int(claim.state),
    )


def fact_from_row(row: tuple[Any, ...]) -> Fact:
    """Return the fact of a whole row."""
    return Fact(
        sequence=row[0], record_id=row[1], fact=FactKind(row[2]), at_ms=row[3], generation=row[4], evidence=row[5]
    )


def claim_from_row(row: tuple[Any, ...]) -> Claim:
    """Return the claim of a whole row."""
    return Claim(
        token=row[0],
        record_id=row[1],
        recipient=row[2],
        dispatcher=row[3],
        incarnation=row[4],
        generation=row[5],
        taken_at_ms=row[6],
        term_ms=row[7],
        expires_at_ms=row[8],
        state=ClaimState(row[9]),
    )


def binding_row(binding: Binding) -> tuple[Any, ...]:
    """Return a binding as a row, columns in the order of the table."""
    return (
        binding.sequence,
        binding.token,
        binding.record_id,
        binding.recipient,
        binding.requester,
        binding.dispatcher,
        binding.generation,
        binding.turn.provider,
        binding.turn.session_id,
        binding.turn.turn_id,
        int(binding.turn.mode),
        int(binding.state),
        int(binding.publishes),
        int(binding.outcome),
        binding.final_bytes,
        binding.final_digest,
        binding.evidence,
        binding.reply_id,
        binding.final,
    )


def binding_from_row(row: tuple[Any, ...]) -> Binding:
    """Return the binding of a whole row."""
    return Binding(
        sequence=row[0],
        token=row[1],
        record_id=row[2],
        recipient=row[3],
        requester=row[4],
        dispatcher=row[5],
        generation=row[6],
        turn=Turn(provider=row[7], session_id=row[8], turn_id=row[9], mode=Mode(row[10])),
        state=BindingState(row[11]),
        publishes=bool(row[12]),
        outcome=TurnOutcome(row[13]),
        final_bytes=row[14],
        final_digest=row[15],
        evidence=row[16],
        reply_id=row[17],
        final=row[18],
    )


def tombstone_from_row(row: tuple[Any, ...]) -> Tombstone:
    """Return the tombstone of a whole row."""
    return Tombstone(agent_id=row[0], project_id=row[1], phase=Phase(row[2]), closed_at_ms=row[3], sequence=row[4])


def repeated(statement: str) -> tuple[str, ...]:
    """Return an INSERT of one row as one of 1, 2, ... INSERTED_ROWS_MAX rows."""
    head, values, row = statement.rpartition(" VALUES ")
    return tuple(head + values + ", ".join([row] * rows) for rows in range(1, INSERTED_ROWS_MAX + 1))


_INSERT_RECORDS: Final = repeated(sql.INSERT_RECORDS)
_INSERT_KEYS: Final = repeated(sql.INSERT_KEYS)


def _position(record: Record) -> int:
    return record.position


class SqliteQueries:
    """Reads through one cursor.

    Results are fetched whole: an unfinished one would hold a snapshot and keep the log growing.
    """

    def __init__(self, cursor: sqlite3.Cursor, *, in_snapshot: bool = False) -> None:
        self._own_cursor = cursor
        self._in_snapshot = in_snapshot
        self._tasks = SqliteTaskQueries(cursor)
        self._context = SqliteContextQueries(cursor)
        self._files = SqliteFileQueries(cursor)
        self._evidence = SqliteEvidenceQueries(cursor)
        self._threads = SqliteThreadQueries(cursor, self._record)

    def _record(self, row: tuple[Any, ...]) -> Record:
        record = record_from_row(row)
        return self._threads.whole(record) if row[_ATTRIBUTED] else record

    @property
    def tasks(self) -> SqliteTaskQueries:
        """See Queries."""
        return self._tasks

    @property
    def context(self) -> SqliteContextQueries:
        """See Queries."""
        return self._context

    @property
    def files(self) -> SqliteFileQueries:
        """See Queries."""
        return self._files

    @property
    def threads(self) -> SqliteThreadQueries:
        """See Queries."""
        return self._threads

    @property
    def evidence(self) -> SqliteEvidenceQueries:
        """See Queries."""
        return self._evidence

    @property
    def _cursor(self) -> sqlite3.Cursor:
        return self._own_cursor

    def _all(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return self._cursor.execute(statement, parameters).fetchall()

    def _one(self, statement: str, **parameters: Any) -> tuple[Any, ...] | None:
        rows = self._cursor.execute(statement, parameters).fetchall()
        return rows[0] if rows else None

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """See Queries. One inside another is the outer one."""
        if self._in_snapshot:
            yield
            return
        self._cursor.execute("BEGIN")
        self._in_snapshot = True
        try:
            yield
        finally:
            self._in_snapshot = False
            self._cursor.execute("COMMIT")

    def record(self, record_id: bytes) -> Record | None:
        """See Queries."""
        row = self._one(sql.RECORD_BY_ID, record_id=record_id)
        return None if row is None else self._record(row)

    def page(self, recipient: bytes, places: Sequence[Inbox], after: int, limit: int) -> list[Record]:
        """See Queries. One range of the inbox index a place, merged by position."""
        with self.snapshot():
            ranges = [
                [
                    self._record(row)
                    for row in self._all(sql.PAGE, recipient=recipient, inbox=place, after=after, limit=limit)
                ]
                for place in places
            ]
        return ranges[0] if len(ranges) == 1 else list(merge(*ranges, key=_position))[:limit]

    def has_fresh(self, recipient: bytes) -> bool:
        """See Queries."""
        return self._one(sql.HAS_FRESH, recipient=recipient) is not None

    def count_fresh(self, recipient: bytes, at_most: int) -> int:
        """See Queries."""
        return len(self._all(sql.FRESH_POSITIONS, recipient=recipient, limit=at_most))

    def fresh_behind(self, recipient: bytes, after: int, limit: int) -> list[int]:
        """See Queries."""
        return [row[0] for row in self._all(sql.FRESH_BEHIND, recipient=recipient, after=after, limit=limit)]

    def open_requests(self, recipient: bytes, limit: int) -> list[Record]:
        """See Queries."""
        return [self._record(row) for row in self._all(sql.OPEN_REQUESTS, recipient=recipient, limit=limit)]

    def received(self, recipient: bytes, before: int, limit: int) -> list[Record]:
        """See Queries."""
        with self.snapshot():
            ranges = [
                [
                    self._record(row)
                    for row in self._all(sql.RECEIVED, recipient=recipient, inbox=place, before=before, limit=limit)
                ]
                for place in Inbox
            ]
        return list(merge(*ranges, key=_position, reverse=True))[:limit]

    def sent(self, sender: bytes, before: int, limit: int, *, besides: bytes) -> list[Record]:
        """See Queries."""
        rows = self._all(sql.SENT, sender=sender, before=before, limit=limit, besides=besides)
        return [self._record(row) for row in rows]

    def facts(self, record_id: bytes, limit: int) -> list[Fact]:
        """See Queries."""
        return [fact_from_row(row) for row in reversed(self._all(sql.FACTS, record_id=record_id, limit=limit))]

    def fact_count(self, record_id: bytes) -> int:
        """See Queries."""
        row = self._one(sql.FACT_COUNT, record_id=record_id)
        return 0 if row is None else int(row[0])

    def admissions(self, after: int, limit: int) -> list[Record]:
        """See Queries."""
        return [self._record(row) for row in self._all(sql.ADMISSIONS, after=after, limit=limit)]

    def facts_behind(self, after: int, limit: int) -> list[Fact]:
        """See Queries."""
        return [fact_from_row(row) for row in self._all(sql.FACTS_BEHIND, after=after, limit=limit)]

    def settled(self, request_id: bytes) -> Settled | None:
        """See Queries."""
        row = self._one(sql.REPLY_OF, parent_id=request_id)
        if row is None:
            return None
        return Settled(reply_id=row[0], status=_STATUS[row[1]], body=row[2], origin=_ORIGIN[row[3]])

    def key(self, caller: bytes, operation: Operation, key: bytes) -> KeyRow | None:
        """See Queries."""
        row = self._one(sql.KEY, caller=caller, operation=operation, key=key)
        return None if row is None else KeyRow(fingerprint=row[0], record_id=row[1])

    def claim(self, token: bytes) -> Claim | None:
        """See Queries."""
        row = self._one(sql.CLAIM_BY_TOKEN, token=token)
        return None if row is None else claim_from_row(row)

    def claim_of_record(self, record_id: bytes, token: bytes) -> Claim | None:
        """See Queries."""
        claim = self.claim(token)
        return claim if claim is not None and claim.record_id == record_id else None

    def binding(self, token: bytes) -> Binding | None:
        """See Queries."""
        row = self._one(sql.BINDING_BY_TOKEN, token=token)
        return None if row is None else binding_from_row(row)

    def unsettled_bindings(self, dispatcher: bytes, after: int, limit: int) -> list[Binding]:
        """See Queries."""
        rows = self._all(sql.BINDINGS_UNSETTLED, dispatcher=dispatcher, after=after, limit=limit)
        return [binding_from_row(row) for row in rows]

    def unpublished(self, limit: int, *, requester: bytes | None = None) -> list[Binding]:
        """See Queries."""
        if requester is None:
            rows = self._all(sql.UNPUBLISHED, limit=limit)
        else:
            rows = self._all(sql.UNPUBLISHED_OF, requester=requester, limit=limit)
        return [binding_from_row(row) for row in rows]

    def has_unpublished(self, requester: bytes) -> bool:
        """See Queries."""
        return self._one(sql.HAS_UNPUBLISHED, requester=requester) is not None

    def incarnation(self, dispatcher: bytes) -> int:
        """See Queries."""
        row = self._one(sql.INCARNATION_OF, dispatcher=dispatcher)
        return 0 if row is None else int(row[0])

    def floor(self, agent_id: bytes) -> int:
        """See Queries."""
        row = self._one(sql.FLOOR_OF, agent_id=agent_id)
        return 1 if row is None else int(row[0])

    def deleted(self, agent_id: bytes) -> bool:
        """See Queries."""
        return self._one(sql.DELETED, agent_id=agent_id) is not None

    def unfinished_deletions(self, limit: int) -> list[Tombstone]:
        """See Queries."""
        return [tombstone_from_row(row) for row in self._all(sql.UNFINISHED_DELETIONS, limit=limit)]

    def last_read_at_ms(self, agent_id: bytes) -> int:
        """See Queries."""
        row = self._one(sql.READ_AT, agent_id=agent_id)
        return 0 if row is None else int(row[0])

    def work_of(self, agent_id: bytes) -> tuple[bool, bool]:
        """See Queries. A deleted agent has none, whatever of its mail is not erased yet."""
        if self.deleted(agent_id):
            return (False, False)
        return (
            self._one(sql.OLDEST_PENDING, recipient=agent_id) is not None,
            self._one(sql.OLDEST_STORED, recipient=agent_id, high_water=_ANY_POSITION) is not None,
        )

    def agents_with_work(self, after: bytes, limit: int) -> list[tuple[bytes, bool, bool]]:
        """See Queries. Steps from agent to agent through the indexes of the inbox and of the notifications."""
        found: list[tuple[bytes, bool, bool]] = []
        while len(found) < limit and (next_one := self._next_agent(after)) is not None:
            after = next_one
            found.append((after, *self.work_of(after)))
        return found

    def _next_agent(self, after: bytes) -> bytes | None:
        row = self._one(sql.NEXT_RECIPIENT, after=after)
        told = self._tasks.next_told(after)
        if row is None or told is None:
            return told if row is None else bytes(row[0])
        return min(bytes(row[0]), told)

    def open_wakes(self, agent_id: bytes) -> list[Record]:
        """See Queries."""
        return [record_from_row(row) for row in self._all(sql.OPEN_WAKES, recipient=agent_id)]

    def wake_written_at(self, agent_id: bytes, newer: int) -> int | None:
        """See Queries."""
        row = self._one(sql.WAKE_WRITTEN, recipient=agent_id, newer=newer)
        return None if row is None else int(row[0])

    def claims_expired(self, now_ms: int) -> bool:
        """See Queries."""
        return self._one(sql.ANY_EXPIRED, expired_at_ms=now_ms) is not None

    def newest_sequence(self) -> int:
        """See Queries."""
        rows = (self._one(sql.NEWEST_RECORD), self._one(sql.NEWEST_FACT), self._one(sql.NEWEST_TOMBSTONE))
        return max(self._tasks.newest_event(), max((int(row[0]) for row in rows if row is not None), default=0))


class Sequencer:
    """The counter of the one writer.

    Loaded from the newest committed number, never going back while the process lives.
    """

    def __init__(self, newest: int) -> None:
        self.newest = newest


class SqliteTransaction(SqliteQueries):
    """Reads and writes of the transaction that stands, on the writer thread; renewed for each.

    In one that is kept or lost as a whole, new keys and records are held back and written together, many
    rows a statement: before anything else is read or written, and at settle(). A key is taken to be new there: one that
    was known ends the transaction when it is written, and the batch is run again with each operation on its own.
    """

    def __init__(
        self, cursor: sqlite3.Cursor, sequencer: Sequencer, floors: dict[bytes, int], living: set[bytes]
    ) -> None:
        super().__init__(cursor, in_snapshot=True)
        self._holds_back = False
        self._keys: list[tuple[Any, ...]] = []
        self._records: list[tuple[Any, ...]] = []
        self._sequencer = sequencer
        self._floors = floors
        # Agents that have no tombstone: asked for with every send, so remembered over transactions.
        self._living = living
        # Agents that the transaction buried: never remembered as living, though their savepoint may be rolled back.
        self._buried: set[bytes] = set()
        # Floors that the transaction changed: read from the database, never cached, since a savepoint may still be
        # rolled back.
        self._raised: set[bytes] = set()
        self._task_transaction = SqliteTaskTransaction(cursor)
        self._context_transaction = SqliteContextTransaction(cursor)
        self._file_transaction = SqliteFileTransaction(cursor)
        self._thread_transaction = SqliteThreadTransaction(cursor, self._record)
        self._evidence_transaction = SqliteEvidenceTransaction(cursor)

    @property
    def tasks(self) -> SqliteTaskTransaction:
        """See Transaction."""
        return self._task_transaction

    @property
    def context(self) -> SqliteContextTransaction:
        """See Transaction."""
        return self._context_transaction

    @property
    def files(self) -> SqliteFileTransaction:
        """See Transaction."""
        return self._file_transaction

    @property
    def threads(self) -> SqliteThreadTransaction:
        """See Transaction. What it looks through are the records."""
        if self._keys or self._records:
            self.settle()
        return self._thread_transaction

    @property
    def evidence(self) -> SqliteEvidenceTransaction:
        """See Transaction."""
        return self._evidence_transaction

    def renew(self, *, hold_back: bool) -> None:
        """Stand for a transaction that has just begun: of the one before nothing is known any more.

        hold_back: hold new keys and records back.
        """
        self._holds_back = hold_back
        if self._keys or self._records:
            self._keys, self._records = [], []
        if self._buried or self._raised:
            self._buried, self._raised = set(), set()
        self._task_transaction.renew(hold_back=hold_back)

    def held_back(self) -> tuple[int, int, int]:
        """Return how many keys, records and events of tasks are held back."""
        return len(self._keys), len(self._records), self._task_transaction.held_back

    def take_back(self, keys: int, records: int, events: int) -> bool:
        """Forget what was held back behind so many keys, records and events; tell whether those keys were new."""
        dropped = self._keys[keys:]
        del self._keys[keys:], self._records[records:]
        self._task_transaction.take_back(events)
        return not any(self.key(row[0], Operation(row[1]), row[2]) for row in dropped)

    def key(self, caller: bytes, operation: Operation, key: bytes) -> KeyRow | None:
        """See Queries. What is held back is looked through, and not written for it."""
        scope = (caller, int(operation), key)
        for row in self._keys:
            if row[:3] == scope:
                return KeyRow(fingerprint=row[3], record_id=row[4])
        rows = self._own_cursor.execute(sql.KEY, {"caller": caller, "operation": scope[1], "key": key}).fetchall()
        return KeyRow(fingerprint=rows[0][0], record_id=rows[0][1]) if rows else None

    def settle(self) -> None:
        """Write what was held back, in the order in which it came.

        Raises:
            sqlite3.Error: the whole transaction is lost, or is to be rolled back.
        """
        if self._keys:
            rows, self._keys = self._keys, []
            self._insert_together(_INSERT_KEYS, rows)
        if self._records:
            rows, self._records = self._records, []
            self._insert_together(_INSERT_RECORDS, rows)
        self._task_transaction.settle()

    def _insert_together(self, statements: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        for first in range(0, len(rows), INSERTED_ROWS_MAX):
            some = rows[first : first + INSERTED_ROWS_MAX]
            self._own_cursor.execute(statements[len(some) - 1], list(chain.from_iterable(some)))

    @property
    def _cursor(self) -> sqlite3.Cursor:
        # Whatever else is read or written must find what was written before it.
        if self._keys or self._records:
            self.settle()
        return self._own_cursor

    def _guarded(self, statement: str, **parameters: Any) -> None:
        if self._cursor.execute(statement, parameters).rowcount != 1:
            raise InvariantBroken("a guarded write found another state than the one it was decided on")

    def next_sequence(self, project_id: bytes) -> int:
        """See Transaction. One counter serves every lane: there is one writer."""
        del project_id
        self._sequencer.newest += 1
        return self._sequencer.newest

    def newest_sequence(self) -> int:
        """See Queries. Events of tasks may be held back with no key or record beside them."""
        self.settle()
        return super().newest_sequence()

    def floor(self, agent_id: bytes) -> int:
        """See Queries."""
        cached = self._floors.get(agent_id)
        if cached is not None and agent_id not in self._raised:
            return cached
        floor = super().floor(agent_id)
        if agent_id not in self._raised:
            if len(self._floors) >= FLOORS_CACHED_MAX:
                self._floors.clear()
            self._floors[agent_id] = floor
        return floor

    def deleted(self, agent_id: bytes) -> bool:
        """See Queries."""
        if agent_id in self._living:
            return False
        deleted = super().deleted(agent_id)
        if not deleted and agent_id not in self._buried:
            if len(self._living) >= LIVING_CACHED_MAX:
                self._living.clear()
            self._living.add(agent_id)
        return deleted

    def put_tombstone(self, tombstone: Tombstone) -> None:
        """See Transaction."""
        self._buried.add(tombstone.agent_id)
        self._living.discard(tombstone.agent_id)
        self._cursor.execute(
            sql.PUT_TOMBSTONE,
            {
                "agent_id": tombstone.agent_id,
                "project_id": tombstone.project_id,
                "phase": int(tombstone.phase),
                "closed_at_ms": tombstone.closed_at_ms,
                "sequence": tombstone.sequence,
            },
        )

    def open_of_recipient(self, recipient: bytes, limit: int) -> list[Record]:
        """See Transaction."""
        return [self._record(row) for row in self._all(sql.OPEN_OF_RECIPIENT, recipient=recipient, limit=limit)]

    def open_of_sender(self, sender: bytes, limit: int) -> list[Record]:
        """See Transaction."""
        return [self._record(row) for row in self._all(sql.OPEN_OF_SENDER, sender=sender, limit=limit)]

    def erase_received(self, recipient: bytes, limit: int) -> int:
        """See Transaction."""
        found = self._all(sql.RECEIVED_IDS, recipient=recipient, limit=limit)
        for sequence, record_id in found:
            self._cursor.execute(sql.ERASE_FACTS, {"record_id": record_id})
            self._cursor.execute(sql.ERASE_BINDINGS, {"record_id": record_id})
            self._cursor.execute(sql.ERASE_CLAIMS, {"record_id": record_id})
            self._thread_transaction.erase(sequence)
            self._guarded(sql.ERASE_RECORD, sequence=sequence)
        return len(found)

    def erase_keys(self, caller: bytes, limit: int) -> int:
        """See Transaction."""
        found = self._all(sql.KEYS_OF, caller=caller, limit=limit)
        for operation, key in found:
            self._guarded(sql.ERASE_KEY, caller=caller, operation=operation, key=key)
        return len(found)

    def erase_lives(self, agent_id: bytes) -> None:
        """See Transaction."""
        self._raised.add(agent_id)
        self._floors.pop(agent_id, None)
        self._cursor.execute(sql.ERASE_FLOOR, {"agent_id": agent_id})
        self._cursor.execute(sql.ERASE_READER, {"agent_id": agent_id})

    def raise_floor(self, agent_id: bytes, generation: int) -> None:
        """See Transaction."""
        self._raised.add(agent_id)
        self._floors.pop(agent_id, None)
        self._cursor.execute(sql.PUT_FLOOR, {"agent_id": agent_id, "generation": generation})

    def take_key(
        self,
        *,
        caller: bytes,
        operation: Operation,
        key: bytes,
        fingerprint: bytes,
        record_id: bytes | None,
        now_ms: int,
    ) -> KeyRow | None:
        """See Transaction. Insert first: a key is new nearly always, and a failed insert undoes only itself."""
        row = (caller, int(operation), key, fingerprint, record_id, now_ms)
        if self._holds_back:
            self._keys.append(row)
            return None
        try:
            self._cursor.execute(sql.INSERT_KEY, row)
        except sqlite3.IntegrityError:
            known = self.key(caller, operation, key)
            if known is None:
                raise  # refused for another reason: nothing must be written as if the key stood for it
            return known
        return None

    def insert(self, record: Record) -> None:
        """See Transaction. Members of enumerations are bound as plain integers.

        The driver would ask its adapters for each.
        """
        if self._holds_back:
            self._records.append(record_row(record))
        else:
            self._cursor.execute(sql.INSERT_RECORD, record_row(record))
        if record.attributes is not None:
            self._thread_transaction.insert(record, record.attributes)

    def move(self, before: Record, after: Record) -> None:
        """See Transaction."""
        self._guarded(
            sql.MOVE_RECORD,
            was_sequence=before.sequence,
            was_delivery=int(before.delivery),
            was_answer=int(before.answer),
            was_claim_token=before.claim_token,
            was_claim_generation=before.claim_generation,
            delivery=int(after.delivery),
            answer=int(after.answer),
            exposed=int(after.exposed),
            acknowledged=int(after.acknowledged),
            inbox=int(after.inbox),
            position=after.position,
            claim_token=after.claim_token,
            claim_generation=after.claim_generation,
            releases=after.releases,
        )

    def reword(self, wake: Record, body: bytes) -> None:
        """See Transaction."""
        self._guarded(sql.REWORD, was_sequence=wake.sequence, body=body)

    def add_fact(self, fact: Fact) -> None:
        """See Transaction."""
        row = (fact.sequence, fact.record_id, int(fact.fact), fact.at_ms, fact.generation, fact.evidence)
        self._cursor.execute(sql.INSERT_FACT, row)

    def oldest_pending_request(self, recipient: bytes) -> Record | None:
        """See Transaction."""
        row = self._one(sql.OLDEST_PENDING, recipient=recipient)
        return None if row is None else self._record(row)

    def oldest_stored_context(self, recipient: bytes, high_water: int) -> Record | None:
        """See Transaction."""
        row = self._one(sql.OLDEST_STORED, recipient=recipient, high_water=high_water or _ANY_POSITION)
        return None if row is None else self._record(row)

    def acknowledgeable(self, recipient: bytes, up_to: int, limit: int) -> list[Record]:
        """See Transaction."""
        rows = self._all(sql.ACKNOWLEDGEABLE, recipient=recipient, up_to=up_to, limit=limit)
        return [self._record(row) for row in rows]

    def insert_claim(self, claim: Claim) -> None:
        """See Transaction."""
        self._cursor.execute(sql.INSERT_CLAIM, claim_row(claim))

    def set_claim_state(self, claim: Claim, state: ClaimState) -> None:
        """See Transaction."""
        self._guarded(
            sql.SET_CLAIM_STATE,
            was_token=claim.token,
            was_generation=claim.generation,
            was_state=claim.state,
            state=state,
        )

    def held_claims(
        self, *, recipient: bytes | None = None, dispatcher: bytes | None = None, expired_at_ms: int | None = None
    ) -> list[Claim]:
        """See Transaction."""
        if recipient is not None:
            rows = self._all(sql.HELD_BY_RECIPIENT, recipient=recipient)
        elif dispatcher is not None:
            rows = self._all(sql.HELD_BY_DISPATCHER, dispatcher=dispatcher)
        else:
            rows = self._all(sql.HELD_EXPIRED, expired_at_ms=expired_at_ms)
        return [claim_from_row(row) for row in rows]

    def accepted_open(self, *, recipient: bytes | None = None, dispatcher: bytes | None = None) -> list[Claim]:
        """See Transaction."""
        if recipient is not None:
            rows = self._all(sql.ACCEPTED_BY_RECIPIENT, recipient=recipient)
        else:
            rows = self._all(sql.ACCEPTED_BY_DISPATCHER, dispatcher=dispatcher)
        return [claim_from_row(row) for row in rows]

    def insert_binding(self, binding: Binding) -> None:
        """See Transaction."""
        self._cursor.execute(sql.INSERT_BINDING, binding_row(binding))

    def move_binding(self, before: Binding, after: Binding) -> None:
        """See Transaction."""
        self._guarded(
            sql.MOVE_BINDING,
            was_sequence=before.sequence,
            was_token=before.token,
            was_generation=before.generation,
            was_state=int(before.state),
            state=int(after.state),
            outcome=int(after.outcome),
            final_bytes=after.final_bytes,
            final_digest=after.final_digest,
            evidence=after.evidence,
            reply_id=after.reply_id,
            final=after.final,
        )

    def bound(self, *, recipient: bytes | None = None, dispatcher: bytes | None = None) -> list[Binding]:
        """See Transaction."""
        if recipient is not None:
            rows = self._all(sql.BOUND_BY_RECIPIENT, recipient=recipient)
        else:
            rows = self._all(sql.BOUND_BY_DISPATCHER, dispatcher=dispatcher)
        return [binding_from_row(row) for row in rows]

    def most_hops(self, agent_id: bytes) -> int:
        """See Transaction."""
        row = self._one(sql.MOST_HOPS, recipient=agent_id)
        return -1 if row is None else int(row[0])

    def own_copy(self) -> None:
        """See Transaction."""
        self._cursor.execute("PRAGMA application_id = 0")

    def extend_held_claims(self, now_ms: int) -> int:
        """See Transaction."""
        return self._cursor.execute(sql.EXTEND_HELD, {"now_ms": now_ms}).rowcount

    def set_incarnation(self, dispatcher: bytes, incarnation: int) -> None:
        """See Transaction."""
        self._cursor.execute(sql.PUT_INCARNATION, {"dispatcher": dispatcher, "incarnation": incarnation})

    def touch_reader(self, agent_id: bytes, now_ms: int) -> None:
        """See Transaction."""
        self._cursor.execute(sql.PUT_READER, {"agent_id": agent_id, "last_read_at_ms": now_ms})

    def put_agents(self, agents: Sequence[Agent]) -> None:
        """See Transaction."""
        self._cursor.executemany(
            sql.PUT_AGENT,
            [
                {
                    "agent_id": agent.agent_id,
                    "project_id": agent.project_id,
                    "name": agent.name,
                    "role": agent.role,
                    "provider": agent.provider,
                    "generation": agent.generation,
                    "revision": agent.revision,
                    "desired": int(agent.desired),
                }
                for agent in agents
            ],
        )

    def put_credentials(self, credentials: Sequence[Credential]) -> None:
        """See Transaction."""
        self._cursor.executemany(
            sql.PUT_CREDENTIAL,
            [
                {
                    "credential_id": credential.credential_id,
                    "token_sha256": credential.token_sha256,
                    "agent_id": credential.agent_id,
                    "project_id": credential.project_id,
                    "role": credential.role,
                    "generation": credential.generation,
                    "label": credential.label,
                    "revision": credential.revision,
                }
                for credential in credentials
            ],
        )

    def drop_credentials(self, credential_ids: Sequence[bytes]) -> None:
        """See Transaction."""
        self._cursor.executemany(sql.DROP_CREDENTIAL, [{"credential_id": one} for one in credential_ids])

    def drop_agents(self, agent_ids: Sequence[bytes]) -> None:
        """See Transaction."""
        self._cursor.executemany(sql.DROP_AGENT, [{"agent_id": one} for one in agent_ids])

    def clear_directory(self) -> None:
        """See Transaction."""
        self._cursor.execute(sql.CLEAR_AGENTS)
        self._cursor.execute(sql.CLEAR_CREDENTIALS)

    def set_directory_position(self, position: DirectoryPosition) -> None:
        """See Transaction."""
        self._cursor.execute(sql.PUT_META, {"key": "directory_epoch", "value": position.epoch.encode("ascii")})
        self._cursor.execute(
            sql.PUT_META, {"key": "directory_revision", "value": str(position.revision).encode("ascii")}
        )


class MailboxWriter(SqliteWriter[SqliteTransaction]):
    """The mailbox's writer: holds back what may be written together."""

    def begin(self, *, whole: bool = False) -> SqliteTransaction:
        """See fencepost_kit.groupcommit.Writer."""
        transaction = super().begin(whole=whole)
        transaction.renew(hold_back=whole)
        return transaction

    def mark(self) -> object:
        """See fencepost_kit.groupcommit.Writer."""
        return self._connection.total_changes, *self._transaction.held_back()

    def take_back(self, mark: Any) -> bool:
        """See fencepost_kit.groupcommit.Writer. A key that is known has a receipt, which stands before any refusal."""
        changes, keys, records, events = mark
        return self._connection.total_changes == changes and self._transaction.take_back(keys, records, events)

    def rollback_to_savepoint(self) -> None:
        """See fencepost_kit.groupcommit.Writer."""
        super().rollback_to_savepoint()
        self._transaction.tasks.undone()

    def commit(self) -> None:
        """See fencepost_kit.groupcommit.Writer."""
        super().commit()
        self._transaction.tasks.committed()

    def settle(self) -> None:
        """See fencepost_kit.groupcommit.Writer."""
        self._transaction.settle()


class SqliteStore:
    """A running embedded store; see Store."""

    def __init__(
        self,
        path: Path,
        *,
        on_commit: Callable[[Sequence[Applied[Any]]], None],
        on_fatal: Callable[[BaseException], None],
        open_writer: Callable[[SqliteDatabase], sqlite3.Connection] = SqliteDatabase.connect_writer,
    ) -> None:
        self._database = SqliteDatabase(path, migrations=load_migrations("fencepost_mailbox.store.migrations"))
        self._open_connection = open_writer
        self._group: GroupCommit[SqliteTransaction] = GroupCommit(
            name="mailbox", open_writer=self._open_writer, on_commit=on_commit, on_fatal=on_fatal
        )
        self._reader: sqlite3.Connection | None = None
        self._queries: SqliteQueries | None = None
        self._meta: dict[str, bytes] = {}
        # Whether this is a copy that is opened for the first time, until Restoring is committed.
        self.restored = False

    async def start(self) -> None:
        """Open the database and the writer.

        Raises:
            DatabaseInUse, SchemaTooNew, DatabaseUnusable: see fencepost_kit.sqlite; nothing was written.
        """
        self._database.open()
        try:
            self._reader = self._database.connect_reader()
            self._queries = SqliteQueries(self._reader.cursor())
            await self._group.start()
            self._meta = dict(self._reader.execute(sql.ALL_META).fetchall())
        except BaseException:
            if self._reader is not None:
                self._reader.close()
            self._database.close()
            raise

    async def close(self) -> None:
        """Commit what waits and close."""
        await self._group.close()
        if self._reader is not None:
            self._reader.close()
        self._database.close()

    def _open_writer(self) -> MailboxWriter:
        connection = self._open_connection(self._database)
        cursor = connection.cursor()
        # What makes this store itself: minted once, in the first writer's hands, before anything can be admitted.
        cursor.execute("BEGIN IMMEDIATE")
        self.restored = is_copy(connection)
        if self.restored:
            # Another store than the one that was copied: its cursors, receipts and place in the directory end here.
            cursor.execute(sql.FORGET_META)
        for key, size in (("epoch", 16), ("cursor_secret", 32)):
            cursor.execute("INSERT OR IGNORE INTO meta (key, value) VALUES (?, ?)", (key, secrets.token_bytes(size)))
        cursor.execute("COMMIT")
        sequencer = Sequencer(SqliteQueries(cursor).newest_sequence())
        floors: dict[bytes, int] = {}
        living: set[bytes] = set()
        return MailboxWriter(connection, lambda transaction: SqliteTransaction(transaction, sequencer, floors, living))

    @property
    def epoch(self) -> bytes:
        """See Store."""
        return self._meta["epoch"]

    @property
    def cursor_secret(self) -> bytes:
        """See Store."""
        return self._meta["cursor_secret"]

    @property
    def schema_version(self) -> int:
        """See Store."""
        return self._database.schema_version

    @property
    def counters(self) -> Counters:
        """What the writer did; for metrics."""
        return self._group.counters

    @property
    def commits(self) -> GroupCommit[SqliteTransaction]:
        """The writer; for metrics."""
        return self._group

    @property
    def read(self) -> Queries:
        """See Store."""
        assert self._queries is not None, "the store is not started"
        return self._queries

    async def submit(self, operation: Mutation[Applied[T]]) -> T:
        """See Store. An error before COMMIT is a refusal that may be tried again.

        One at COMMIT passes as OutcomeUnknown.
        """
        try:
            return (await self._group.submit(operation)).value
        except NotCommitted as error:
            cause = error.__cause__
            if not isinstance(cause, (sqlite3.Error, OSError, type(None))):
                raise  # a bug of ours, not the disk's: it belongs into the log, not into an answer
            what = "the store is closed" if cause is None else "the disk refused the write"
            raise StorageError(
                f"{what}; nothing was written",
                hint="Check that the disk of the home has room and is writable, then send the same call again.",
                state={"cause": getattr(cause, "sqlite_errorname", type(cause).__name__)},
            ) from error

    def tombstones(self) -> list[Tombstone]:
        """See Store."""
        assert self._reader is not None, "the store is not started"
        return [tombstone_from_row(row) for row in self._reader.execute(sql.ALL_TOMBSTONES).fetchall()]

    def directory(self) -> tuple[DirectoryPosition, list[Agent], list[Credential]]:
        """See Store."""
        assert self._reader is not None, "the store is not started"
        meta = dict(self._reader.execute(sql.ALL_META).fetchall())
        position = DirectoryPosition(
            epoch=meta.get("directory_epoch", b"").decode("ascii"), revision=int(meta.get("directory_revision", b"0"))
        )
        agents = [
            Agent(
                agent_id=r[0],
                project_id=r[1],
                name=r[2],
                role=r[3],
                provider=r[4],
                generation=r[5],
                revision=r[6],
                desired=Desired(r[7]),
            )
            for r in self._reader.execute(sql.ALL_AGENTS).fetchall()
        ]
        credentials = [
            Credential(
                credential_id=r[0],
                token_sha256=r[1],
                agent_id=r[2],
                project_id=r[3],
                role=r[4],
                generation=r[5],
                label=r[6],
                revision=r[7],
            )
            for r in self._reader.execute(sql.ALL_CREDENTIALS).fetchall()
        ]
        return position, agents, credentials
