"""Batches that are written together: whatever is in one, each operation gets the answer that it would get alone."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fencepost_kit.groupcommit import NotCommitted
from fencepost_kit.identity import Role
from fencepost_kit.refusal import Refusal
from fencepost_kit.sqlite import SqliteDatabase
from fencepost_mailbox.domain.idempotency import fingerprint
from fencepost_mailbox.domain.refusals import AgentDeleted, IdempotencyConflict, StorageError
from fencepost_mailbox.domain.tasks.changes import Words
from fencepost_mailbox.domain.tasks.values import Action, Part, State, TaskEvent
from fencepost_mailbox.domain.values import Completion, Kind, Operation, Record, ReplyStatus
from fencepost_mailbox.store.protocol import Applied
from fencepost_mailbox.store.sqlite import INSERTED_ROWS_MAX
from fencepost_mailbox.store.tasks import sqlite as sqlite_tasks
from fencepost_mailbox.usecases.admit import Admission
from fencepost_mailbox.usecases.delete import Closing
from fencepost_mailbox.usecases.open_generation import Opened, Opening
from fencepost_mailbox.usecases.receive import Reading
from fencepost_mailbox.usecases.reply import Answering
from fencepost_mailbox.usecases.settle_key import Settling
from fencepost_mailbox.usecases.tasks import act as act_module
from fencepost_mailbox.usecases.tasks import create as create_module
from fencepost_mailbox.usecases.tasks.act import Acting
from fencepost_mailbox.usecases.tasks.callers import Actor, Change, content_of
from fencepost_mailbox.usecases.tasks.create import Creating
from fencepost_mailbox.usecases.threads.index import Indexing
from fencepost_testing.mailboxes import NOW_MS, PROJECT, WAIT_S_MAX, Watched, a_step, id16, running_store

NAMES = ("ann", "bob", "cyd")
EXACT = pytest.mark.requirement("mailbox.a-batch-answers-as-its-operations-alone")
_ids = count(1)


def send(
    sender: str = "ann",
    recipient: str = "bob",
    *,
    key: str = "",
    body: str = "text",
    kind: Kind = Kind.INFORMATION,
    generation: int = 1,
    record_id: bytes = b"",
) -> Admission:
    """A Send or a Request as the use case hands it to the store."""
    record_id = record_id or next(_ids).to_bytes(16, "big")
    return Admission(
        kind=kind,
        project_id=PROJECT,
        sender=id16(sender),
        generation=generation,
        recipient=id16(recipient),
        body=body.encode(),
        completion=Completion.AUTOMATIC if kind is Kind.REQUEST else Completion.NONE,
        operation=Operation.REQUEST if kind is Kind.REQUEST else Operation.SEND,
        key=(key or record_id.hex()).encode(),
        content=fingerprint(recipient.encode(), body.encode()),
        record_id=record_id,
        now_ms=NOW_MS,
    )


class Look:
    """Reads a record in the middle of a batch."""

    def __init__(self, record_id: bytes) -> None:
        self._record_id = record_id

    def apply(self, tx: Any) -> Applied[Any]:
        return Applied(value=tx.record(self._record_id))


class Bug:
    """Writes, and fails with what nobody expects."""

    def __init__(self, within: Admission) -> None:
        self._within = within

    def apply(self, tx: Any) -> Applied[Any]:
        self._within.apply(tx)
        raise ZeroDivisionError("a bug")


class Traced:
    """The writer's connection, and every statement that it runs."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.connection: sqlite3.Connection | None = None

    def open(self, database: SqliteDatabase) -> sqlite3.Connection:
        self.connection = database.connect_writer()
        self.connection.set_trace_callback(self.statements.append)
        return self.connection


@pytest.fixture
def traced() -> Traced:
    return Traced()


@pytest.fixture
async def watched(tmp_path: Path, traced: Traced) -> AsyncIterator[Watched]:
    async with running_store(tmp_path / "mailbox" / "mailbox.db", open_writer=traced.open) as made:
        traced.statements.clear()
        yield made


async def together(watched: Watched, operations: Sequence[Any]) -> list[Any]:
    """Submit everything in one pass of the loop, which makes one batch; return values and errors."""
    watched.store.commits._cautious = 0  # as long after the last refusal
    before = watched.store.counters.operations
    async with asyncio.timeout(WAIT_S_MAX):
        found = await asyncio.gather(*(watched.store.submit(one) for one in operations), return_exceptions=True)
    assert watched.store.counters.operations == before + len(operations)
    return found


async def one_by_one(watched: Watched, operations: Sequence[Any]) -> list[Any]:
    """Submit each behind the answer to the one before; return values and errors."""
    return [(await asyncio.gather(watched.store.submit(one), return_exceptions=True))[0] for one in operations]


def tables(path: Path) -> dict[str, list[Any]]:
    """Everything in the database but what makes it itself."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names if name != "meta"}


class Numbers:
    """Numbers of the commit order by their rank: a batch that was rolled back leaves a gap, and nothing else."""

    # Which columns of a table hold one; 0 stands for none where it may.
    COLUMNS = MappingProxyType(
        {
            "record": (0, 16),
            "fact": (0,),
            "tombstone": (4,),
            "task": (0, 24),
            "task_event": (0,),
            "task_eligible": (2,),
            "task_notification": (3,),
            "supervision": (2,),
        }
    )

    def __init__(self, found: dict[str, list[Any]]) -> None:
        numbers = {row[place] for name, places in self.COLUMNS.items() for row in found[name] for place in places}
        self._rank = {number: rank for rank, number in enumerate(sorted(numbers | {0}))}
        self.tables = dict(found)
        for name, places in self.COLUMNS.items():
            self.tables[name] = sorted(
                tuple(self._rank[value] if place in places else value for place, value in enumerate(row))
                for row in found[name]
            )
        # The request id of a task stands for the number of its event.
        self.tables["idempotency"] = [
            (*row[:4], self._rank[int.from_bytes(row[4], "big")], *row[5:]) if row[1] == Operation.TASK else row
            for row in found["idempotency"]
        ]

    def of(self, answer: Any) -> Any:
        """An answer in a form that can be compared."""
        if isinstance(answer, Refusal):
            return type(answer), answer.message, answer.hint, answer.state
        if isinstance(answer, BaseException):
            return type(answer), str(answer), type(answer.__cause__)
        if isinstance(answer, Record):
            # A record that has moved since is told with the place that it had, which nothing else has kept.
            position = self._rank.get(answer.position, -1)
            return replace(answer, sequence=self._rank[answer.sequence], position=position)
        if isinstance(answer, Change):
            return replace(answer.event, sequence=self._rank[answer.event.sequence]), answer.duplicate
        if isinstance(answer, tuple):
            return tuple(map(self.of, answer))
        if isinstance(answer, Opened):
            return answer.floor, [*map(self.of, answer.uncertain)], [*map(self.of, answer.open_requests)]
        return answer


# --- any batch -------------------------------------------------------------------------------------------------------

_names = st.sampled_from(NAMES)
_keys = st.sampled_from(("", "", "", "k1", "k2", "k3"))
_bodies = st.sampled_from(("x", "y"))
_request_ids = st.integers(0, 5).map(lambda number: bytes([0xF0 + number]) * 16)


@st.composite
def _sends(draw: Any) -> Admission:
    kind = draw(st.sampled_from((Kind.INFORMATION, Kind.INFORMATION, Kind.REQUEST)))
    return send(
        draw(_names),
        draw(_names),
        key=draw(_keys),
        body=draw(_bodies),
        kind=kind,
        generation=draw(st.sampled_from((1, 1, 1, 1, 2))),
        record_id=draw(_request_ids) if kind is Kind.REQUEST else b"",
    )


@st.composite
def _replies(draw: Any) -> Answering:
    request_id, body = draw(_request_ids), draw(_bodies)
    return Answering(
        caller=id16(draw(_names)),
        generation=1,
        request_id=request_id,
        status=ReplyStatus.DONE,
        body=body.encode(),
        key=(draw(_keys) or next(_ids).to_bytes(16, "big").hex()).encode(),
        content=fingerprint(request_id, body.encode()),
        reply_id=next(_ids).to_bytes(16, "big"),
        now_ms=NOW_MS,
    )


@st.composite
def _settlings(draw: Any) -> Settling:
    content = fingerprint(draw(_names).encode(), draw(_bodies).encode())
    key = draw(st.sampled_from((b"k1", b"k2", b"k3", b"k4")))
    return Settling(caller=id16(draw(_names)), operation=Operation.SEND, key=key, content=content, now_ms=NOW_MS)


@st.composite
def _closings(draw: Any) -> Any:
    seed = next(_ids).to_bytes(16, "big")
    closing = Closing(agent_id=id16(draw(_names)), project_id=PROJECT, seed=seed, now_ms=NOW_MS)
    return a_step(revision=2, closings=[closing])


def task_id_of(issuer: str, number: int) -> bytes:
    return id16(issuer)[:15] + bytes([0xE0 + number])


def actor(name: str) -> Actor:
    return Actor(role=Role.AGENT, agent_id=id16(name), project_id=PROJECT, generation=1)


def create(issuer: str, number: int, *, assignee: str = "", description: str = "count") -> Creating:
    """An offer to the pool or an assignment; its number is its request id too."""
    command = create_module.Command(
        request_id=bytes([number]) * 16,
        description=description,
        acceptance="counted",
        pool=not assignee,
        target=assignee,
    )
    return Creating(
        actor=actor(issuer),
        project_id=PROJECT,
        command=command,
        content=content_of(command),
        task_id=task_id_of(issuer, number),
        now_ms=NOW_MS,
        assignee=id16(assignee) if assignee else None,
        reviewer=None,
        eligible=frozenset(),
    )


def act(name: str, action: Action, task_id: bytes, *, version: int = 0, request_id: bytes = b"") -> Acting:
    """What an agent does to a task."""
    request_id = request_id or next(_ids).to_bytes(16, "big")
    words = Words(text="said", evidence="seen")
    command = act_module.Command(
        action=action, task_id=task_id, request_id=request_id, revision=1, expected_version=version, words=words
    )
    attempt_id = next(_ids).to_bytes(16, "big")
    content = content_of(command)
    return Acting(actor=actor(name), command=command, content=content, attempt_id=attempt_id, now_ms=NOW_MS)


_numbers = st.integers(0, 2)
_creations = st.builds(
    lambda issuer, number, assignee, description: create(issuer, number, assignee=assignee, description=description),
    _names,
    _numbers,
    st.sampled_from(("", "", *NAMES)),
    st.sampled_from(("count", "count", "read")),
)
_acts = st.builds(
    lambda name, action, issuer, number, version, request: act(
        name, action, task_id_of(issuer, number), version=version, request_id=bytes([request]) * 16 if request else b""
    ),
    _names,
    st.sampled_from(
        (Action.CLAIM, Action.CLAIM, Action.START, Action.SUBMIT, Action.ACCEPT, Action.REJECT, Action.CANCEL)
    ),
    _names,
    _numbers,
    st.sampled_from((0, 0, 1, 2)),
    st.sampled_from((0, 0, 0, 0, 0x70, 0x71)),
)
_openings = st.builds(
    lambda name, generation: Opening(agent_id=id16(name), generation=generation, now_ms=NOW_MS),
    _names,
    st.sampled_from((1, 2, 2)),
)
_operations = st.one_of(
    *(_sends(), _sends(), _sends(), _sends(), _replies(), _settlings(), _openings, _closings(), _sends().map(Bug)),
    *(_creations, _creations, _acts, _acts, _acts, _acts),
)
_batches = st.lists(st.lists(st.one_of(_sends(), _operations), min_size=2, max_size=24), min_size=1, max_size=4)


@EXACT
@settings(max_examples=40)
@given(_batches)
@example([[send() for _ in range(2 * INSERTED_ROWS_MAX + 1)]])
@example(
    [
        [create("ann", 0), create("ann", 1), create("ann", 0)],
        [act(name, Action.CLAIM, task_id_of("ann", 0), version=1) for name in NAMES],
        [act(name, Action.SUBMIT, task_id_of("ann", 0)) for name in NAMES],
    ]
)
async def test_a_batch_answers_and_writes_what_its_operations_would_one_after_the_other(batches: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        batched, single = Path(folder) / "batched" / "m.db", Path(folder) / "single" / "m.db"
        async with running_store(batched) as one, running_store(single) as other:
            answers = [await together(one, batch) for batch in batches]
            expected = [await one_by_one(other, batch) for batch in batches]
            assert [one.deaths, other.deaths] == [[], []]
            told, should = Numbers(tables(batched)), Numbers(tables(single))
        assert told.tables == should.tables
        assert [[told.of(answer) for answer in found] for found in answers] == [
            [should.of(answer) for answer in found] for found in expected
        ]
        concerned = [[(value.wakes, value.work) for value in watched.commits] for watched in (one, other)]
        assert concerned[0] == concerned[1], "whoever is woken alone is woken, in that order"


# --- single cases of it ----------------------------------------------------------------------------------------------


@EXACT
async def test_plain_sends_of_a_batch_are_written_with_a_statement_a_table(watched: Watched, traced: Traced) -> None:
    await together(watched, [send(), send()])  # now it is remembered that both live
    traced.statements.clear()
    await together(watched, [send() for _ in range(INSERTED_ROWS_MAX)])
    assert [statement.split("(")[0].strip() for statement in traced.statements] == [
        "BEGIN IMMEDIATE",
        "INSERT OR ROLLBACK INTO idempotency",
        "INSERT OR ROLLBACK INTO record",
        "COMMIT",
    ]


@EXACT
@pytest.mark.parametrize("rows", [1, 2, INSERTED_ROWS_MAX, INSERTED_ROWS_MAX + 1, 2 * INSERTED_ROWS_MAX + 1])
async def test_any_number_of_sends_is_written_whole_and_in_order(watched: Watched, rows: int) -> None:
    operations = [send(body=f"body {number}") for number in range(rows)]
    answers = await together(watched, operations)
    assert [record.body for record, _ in answers] == [one.body for one in operations]
    assert watched.store.counters.cautious_batches == 0
    assert watched.store.counters.batches == 1
    stored = watched.store.read.admissions(0, 100)
    assert [record.record_id for record in stored] == [one.record_id for one in operations]
    assert stored == [record for record, _ in answers], "what was answered is what is stored"


@EXACT
async def test_a_key_twice_in_one_batch_is_written_once_and_the_second_is_told_so(watched: Watched) -> None:
    first, again = send(key="k"), send(key="k")
    before, told, repeated, after = await together(watched, [send(), first, again, send()])
    assert told == (repeated[0], False)
    assert repeated[1]
    assert not before[1]
    assert not after[1]
    assert [row[2] for row in tables(watched.path)["idempotency"]].count(b"k") == 1
    assert len(tables(watched.path)["record"]) == 3


@EXACT
async def test_a_key_twice_in_one_batch_with_other_words_is_a_conflict_of_the_second_alone(watched: Watched) -> None:
    told, refused, other = await together(watched, [send(key="k"), send(key="k", body="other words"), send()])
    assert isinstance(refused, IdempotencyConflict)
    assert not told[1]
    assert not other[1]
    assert [row[20] for row in tables(watched.path)["record"]] == [b"text", b"text"]


@EXACT
async def test_a_key_of_an_earlier_batch_gets_its_receipt_among_new_ones(watched: Watched) -> None:
    (first, _), *_ = await together(watched, [send(key="k"), send()])
    new, (record, duplicate) = await together(watched, [send(), send(key="k")])
    assert (record, duplicate) == (first, True)
    assert not new[1]
    assert len(tables(watched.path)["record"]) == 3


@EXACT
async def test_what_is_read_in_a_batch_shows_what_was_sent_before_it(watched: Watched) -> None:
    sent = send()
    nothing, answer, found = await together(watched, [Look(sent.record_id), sent, Look(sent.record_id)])
    assert nothing is None
    assert found == answer[0]


@EXACT
@pytest.mark.requirement("mailbox.a-full-disk-refuses-and-goes-on")
async def test_a_disk_that_is_full_in_the_middle_of_a_batch_refuses_what_does_not_fit(
    watched: Watched, traced: Traced
) -> None:
    await together(watched, [send(), send()])
    assert traced.connection is not None
    (pages,) = traced.connection.execute("PRAGMA page_count").fetchone()
    traced.connection.execute(f"PRAGMA max_page_count = {pages + 4}")
    operations = [send(body="x" * (60_000 if number == 5 else 10)) for number in range(INSERTED_ROWS_MAX + 2)]
    answers = await together(watched, operations)
    assert [number for number, answer in enumerate(answers) if isinstance(answer, StorageError)] == [5]
    stored = {row[1] for row in tables(watched.path)["record"]}
    assert {one.record_id for number, one in enumerate(operations) if number != 5} <= stored
    assert operations[5].record_id not in stored
    assert operations[5].key not in {row[2] for row in tables(watched.path)["idempotency"]}


# --- refusals in a batch that goes on --------------------------------------------------------------------------------


class HalfWay:
    """Sends, tells of a task, and is refused then: nothing of it may stay."""

    def __init__(self, sent: Admission) -> None:
        self.sent = sent

    def apply(self, tx: Any) -> Applied[Any]:
        record, _ = self.sent.apply(tx).value
        tx.tasks.add_event(
            TaskEvent(
                sequence=tx.next_sequence(PROJECT),
                task_id=record.record_id,
                action=Action.CLAIM,
                part=Part.ISSUER,
                agent=None,
                generation=0,
                from_state=0,
                to_state=State.QUEUED,
                revision=1,
                version=1,
                attempt_id=None,
                at_ms=NOW_MS,
            )
        )
        raise IdempotencyConflict("refused half way")


@EXACT
@pytest.mark.requirement("groupcommit.a-refusal-is-its-callers-own")
async def test_what_is_refused_with_nothing_but_held_back_writes_costs_its_batch_nothing(watched: Watched) -> None:
    await together(watched, [send(), send()])  # now it is remembered that both live
    first, half, last = send(), HalfWay(send()), send()
    told, refused, after = await together(watched, [first, half, last])
    assert isinstance(refused, IdempotencyConflict)
    assert [told[0].record_id, after[0].record_id] == [first.record_id, last.record_id]
    assert watched.store.counters.cautious_batches == 0
    assert watched.store.counters.refused == 1
    found = tables(watched.path)
    assert {row[1] for row in found["record"]} >= {first.record_id, last.record_id}
    assert not {half.sent.record_id, half.sent.key} & {
        value for rows in found.values() for row in rows for value in row
    }
    assert found["task_event"] == []


@EXACT
@pytest.mark.parametrize("earlier", ["in an earlier batch", "in the same batch"])
async def test_a_receipt_stands_before_the_refusal_that_a_new_call_would_get(watched: Watched, earlier: str) -> None:
    first, again = send(key="k"), send(key="k")
    closing = a_step(revision=2, closings=[Closing(agent_id=id16("bob"), project_id=PROJECT, seed=b"s", now_ms=NOW_MS)])
    other = send("ann", "cyd")
    if earlier == "in an earlier batch":
        (told, _), _ = await together(watched, [first, send("ann", "cyd")])
        await together(watched, [closing, send("ann", "cyd")])
        (repeated, duplicate), _ = await together(watched, [again, other])
    else:
        (told, _), _, (repeated, duplicate), _ = await together(watched, [first, closing, again, other])
    assert duplicate
    assert repeated.record_id == told.record_id
    assert isinstance((await together(watched, [send(key="l"), send("ann", "cyd")]))[0], AgentDeleted)


class OnlyAgain:
    """Tells what its key stands for, and is refused where it is new."""

    def __init__(self, sent: Admission) -> None:
        self._sent = sent

    def apply(self, tx: Any) -> Applied[Any]:
        sent = self._sent
        known = tx.take_key(
            caller=sent.sender,
            operation=sent.operation,
            key=sent.key,
            fingerprint=sent.content,
            record_id=sent.record_id,
            now_ms=NOW_MS,
        )
        if known is None:
            raise IdempotencyConflict("this key is new")
        return Applied(value=known.record_id)


@EXACT
async def test_a_refusal_for_a_key_that_was_taken_to_be_new_is_not_given_where_it_was_known(watched: Watched) -> None:
    first = send(key="k")
    await together(watched, [first, send()])
    _, told, refused = await together(watched, [send(), OnlyAgain(first), OnlyAgain(send(key="l"))])
    assert told == first.record_id
    assert isinstance(refused, IdempotencyConflict)
    second = send(key="m")
    _, told, _ = await together(watched, [second, OnlyAgain(second), send()])
    assert told == second.record_id, "also where the first of them waits in the same batch"


@EXACT
async def test_who_claims_too_late_is_told_so_and_the_batch_is_not_run_again(watched: Watched) -> None:
    await together(watched, [create(name, 0) for name in NAMES])  # now each of them has called
    claims = [act(name, Action.CLAIM, task_id_of("ann", 0), version=1) for name in ("bob", "cyd")]
    won, lost = await together(watched, claims)
    assert won.event.agent == id16("bob")
    assert isinstance(lost, Refusal)
    assert watched.store.counters.cautious_batches == 0


@EXACT
async def test_a_page_takes_into_account_what_its_batch_has_told_of_a_task(watched: Watched) -> None:
    await together(watched, [create("ann", 0, assignee="bob"), send("ann", "cyd")])
    await together(watched, [act("bob", Action.START, task_id_of("ann", 0)), send("ann", "cyd")])
    # The life that executes it ends: an event, and no key beside it.
    opening = Opening(agent_id=id16("bob"), generation=2, now_ms=NOW_MS)
    reading = Reading(
        recipient=id16("ann"), generation=1, after=0, replay=False, limit=10, page_bytes=1000, now_ms=NOW_MS
    )
    _, seen = await together(watched, [opening, reading])
    assert seen.high_water == watched.store.read.newest_sequence()
    found = watched.store.read.tasks.events(task_id_of("ann", 0), 0, 10)
    assert [one.action for one in found] == [Action.ASSIGN, Action.START, Action.LOSE_SIGHT]
    assert seen.high_water == found[-1].sequence


@EXACT
async def test_words_are_taken_in_of_what_waits_in_the_same_batch(watched: Watched) -> None:
    await together(watched, [send(), send()])  # now it is remembered that both live
    *_, taken = await together(watched, [send(), send(), Indexing()])
    assert taken == 4
    assert not watched.store.read.threads.lag()


# --- tasks that the writer keeps at hand -----------------------------------------------------------------------------


class LostAfter:
    """Carries an operation out, and then fails as no refusal does: what it wrote is undone."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def apply(self, tx: Any) -> Applied[Any]:
        self._inner.apply(tx)
        raise ZeroDivisionError


@EXACT
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "with others"])
async def test_a_task_whose_change_was_undone_is_as_it_was(watched: Watched, alone: bool) -> None:
    await together(watched, [create("ann", 0), create("ann", 1)])
    task_id = task_id_of("ann", 0)
    undone = LostAfter(act("bob", Action.CLAIM, task_id, version=1))
    answers = await together(watched, [undone] if alone else [send(), undone, send()])
    assert sum(isinstance(answer, NotCommitted) for answer in answers) == 1
    won, other = await together(watched, [act("cyd", Action.CLAIM, task_id, version=1), send()])
    assert won.event.agent == id16("cyd")
    assert isinstance(other, tuple)
    found = watched.store.read.tasks.task(task_id)
    assert found is not None
    assert (found.assignee, found.version) == (id16("cyd"), 2)


@EXACT
async def test_the_writer_keeps_so_many_tasks_and_none_with_long_texts(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_tasks, "TASKS_KEPT_MAX", 2)
    long = create("bob", 0, description="x" * (sqlite_tasks.TASK_KEPT_CHARS_MAX + 1))
    fits = create("bob", 1, description="x" * (sqlite_tasks.TASK_KEPT_CHARS_MAX - len("counted")))
    await together(watched, [*(create("ann", number) for number in range(3)), long, fits])
    at_hand = await watched.store.submit(AtHand())
    assert at_hand == [task_id_of("ann", 2), task_id_of("bob", 1)]
    won, *_ = await together(watched, [act("cyd", Action.CLAIM, task_id_of("bob", 0), version=1), send()])
    assert won.event.version == 2


class AtHand:
    """Tells which tasks the writer keeps."""

    def apply(self, tx: Any) -> Applied[Any]:
        return Applied(value=list(tx.tasks._kept))
