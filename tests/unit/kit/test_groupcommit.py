"""Group commit over a writer that notes everything it is told and fails where a test says so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from fencepost_kit import groupcommit as module
from fencepost_kit.groupcommit import (
    BATCH_OPERATIONS_MAX,
    CAUTIOUS_BATCHES,
    QUEUE_OPERATIONS_MAX,
    GroupCommit,
    NotCommitted,
    OutcomeUnknown,
)
from fencepost_kit.refusal import Overloaded, Refusal

WAIT_S_MAX = 5.0


class No(Refusal):
    reason = "no"


class LostTransaction(Exception):
    """What a full disk or an interrupt does: the whole transaction is gone."""


class CommitFailed(Exception):
    pass


class FakeWriter:
    """A list with transactions and savepoints. `commits` holds each durable batch."""

    def __init__(self) -> None:
        self.commits: list[list[Any]] = []
        self.written: list[Any] = []
        self.open = False
        self.marks: list[int] = []
        self.closed = threading.Event()
        self.thread: int | None = None
        self.fail_commit: Callable[[], Exception | None] = lambda: None
        self.fail_begin: Callable[[], Exception | None] = lambda: None
        self.clean = False
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()

    @property
    def durable(self) -> list[Any]:
        return [one for batch in self.commits for one in batch]

    def begin(self, *, whole: bool = False) -> FakeWriter:
        self.begun.set()
        assert self.gate.wait(WAIT_S_MAX)
        assert not self.open
        if (error := self.fail_begin()) is not None:
            raise error
        self.thread = threading.get_ident()
        self.open, self.written, self.marks = True, [], []
        return self

    def settle(self) -> None:
        assert self.open

    def mark(self) -> object:
        return len(self.written)

    def take_back(self, mark: object) -> bool:
        return len(self.written) == mark

    def savepoint(self) -> None:
        assert self.open
        self.marks.append(len(self.written))

    def release(self) -> None:
        self.marks.pop()

    def rollback_to_savepoint(self) -> None:
        del self.written[self.marks.pop() :]

    def commit(self) -> None:
        assert not self.marks
        if (error := self.fail_commit()) is not None:
            raise error
        self.commits.append(self.written)
        self.open = False

    def rollback(self) -> None:
        self.open, self.written, self.marks = False, [], []

    def in_transaction(self) -> bool:
        return self.open

    def commit_failed_cleanly(self, error: Exception) -> bool:
        return self.clean

    def close(self) -> None:
        self.closed.set()


@dataclass
class Put:
    """Writes its value and returns it; fails before or after as told, each time or only the first `times`."""

    value: Any
    error: BaseException | None = None
    loses_transaction: bool = False
    times: int = 10**9
    runs: int = field(default=0)

    def apply(self, tx: FakeWriter) -> Any:
        self.runs += 1
        tx.written.append(self.value)
        if self.error is not None and self.runs <= self.times:
            if self.loses_transaction:
                tx.rollback()
            raise self.error
        return ("result", self.value)


class Refuse(Put):
    """Is refused and writes nothing."""

    def __init__(self, error: Refusal) -> None:
        super().__init__(None, error=error)

    def apply(self, tx: FakeWriter) -> Any:
        self.runs += 1
        assert self.error is not None
        raise self.error


class World:
    def __init__(self, **options: Any) -> None:
        self.writer = FakeWriter()
        self.told: list[list[Any]] = []
        self.events: list[str] = []
        self.deaths: list[BaseException] = []
        self.group: GroupCommit[FakeWriter] = GroupCommit(
            name="testing",
            open_writer=lambda: self.writer,
            on_commit=self._note,
            on_fatal=self.deaths.append,
            **options,
        )

    def _note(self, values: Any) -> None:
        self.told.append(list(values))
        self.events.append("on_commit")

    def submit(self, *operations: Put) -> list[asyncio.Task[Any]]:
        return [asyncio.ensure_future(self.group.submit(one)) for one in operations]

    async def held(self, *operations: Put) -> list[asyncio.Task[Any]]:
        """Submit while the writer is held at the beginning of a batch that holds one operation."""
        self.writer.gate.clear()
        self.writer.begun.clear()
        first = self.submit(Put("first"))
        await asyncio.to_thread(self.writer.begun.wait, WAIT_S_MAX)
        tasks = self.submit(*operations)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return [*first, *tasks]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.group.start()
    try:
        yield made
    finally:
        made.writer.gate.set()
        await made.group.close()


async def results(tasks: list[asyncio.Task[Any]]) -> list[Any]:
    async with asyncio.timeout(WAIT_S_MAX):
        return await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_lone_operation_is_a_batch_of_its_own_on_the_writers_thread(world: World) -> None:
    assert await results(world.submit(Put(1))) == [("result", 1)]
    assert world.writer.commits == [[1]]
    assert world.writer.thread != threading.get_ident()
    assert world.told == [[("result", 1)]]


@pytest.mark.requirement("groupcommit.each-caller-gets-its-own-result")
@pytest.mark.parametrize("callers", [1, 16, 64])
async def test_each_caller_gets_its_own_result_whatever_else_is_under_way(world: World, callers: int) -> None:
    async def caller(number: int) -> None:
        for turn in range(20):
            value = (number, turn)
            assert await world.group.submit(Put(value)) == ("result", value)

    async with asyncio.timeout(2 * WAIT_S_MAX):
        await asyncio.gather(*(caller(number) for number in range(callers)))
    assert sorted(world.writer.durable) == [(number, turn) for number in range(callers) for turn in range(20)]
    for number in range(callers):
        own = [turn for who, turn in world.writer.durable if who == number]
        assert own == list(range(20)), "what one caller does one after the other is committed in that order"
    counters = world.group.counters
    assert counters.operations == callers * 20
    assert counters.batches == len(world.writer.commits)
    if callers > 1:
        assert counters.batches < counters.operations, "who waits together commits together"
        assert counters.largest_batch > 1


@pytest.mark.requirement("groupcommit.operations-commit-in-order")
async def test_operations_commit_in_the_order_in_which_they_were_submitted(world: World) -> None:
    count = 3 * BATCH_OPERATIONS_MAX + 7
    tasks = await world.held(*(Put(n) for n in range(count)))
    world.writer.gate.set()
    answers = await results(tasks)
    assert answers[1:] == [("result", n) for n in range(count)]
    assert world.writer.durable == ["first", *range(count)]
    assert max(map(len, world.writer.commits)) == BATCH_OPERATIONS_MAX, "a batch holds so many and no more"


@pytest.mark.requirement("groupcommit.a-refusal-is-its-callers-own")
async def test_a_refusal_rolls_back_its_own_operation_and_no_other(world: World) -> None:
    refusal = No("no")
    tasks = await world.held(Put(1), Put(2, error=refusal), Put(3), Put(4, error=No("no")), Put(5))
    world.writer.gate.set()
    answers = await results(tasks)
    assert answers[1] == ("result", 1)
    assert answers[2] is refusal
    assert isinstance(answers[4], No)
    assert world.writer.commits[1] == [1, 3, 5]
    assert world.told[1] == [("result", 1), ("result", 3), ("result", 5)]
    assert world.group.counters.refused == 2


@pytest.mark.requirement("groupcommit.a-refusal-is-its-callers-own")
async def test_a_batch_runs_bare_until_something_is_refused_and_again_some_batches_later(world: World) -> None:
    counters = world.group.counters
    assert await results(world.submit(Put(1), Put(2))) == [("result", 1), ("result", 2)]
    assert counters.cautious_batches == 0
    await results(world.submit(Put(3, error=No("no")), Put(4)))
    assert counters.cautious_batches == 1
    for number in range(CAUTIOUS_BATCHES):
        assert counters.cautious_batches == 1 + number
        await results(world.submit(Put(5), Put(6)))
    assert counters.cautious_batches == 1 + CAUTIOUS_BATCHES
    await results(world.submit(Put(7), Put(8)))
    assert counters.cautious_batches == 1 + CAUTIOUS_BATCHES
    assert world.writer.durable.count(4) == 1, "what stood beside a refusal is written once, though it was run twice"


@pytest.mark.requirement("groupcommit.a-refusal-is-its-callers-own")
async def test_what_is_refused_before_it_has_written_anything_costs_its_batch_no_second_run(world: World) -> None:
    refusal = No("no")
    neighbours = [Put(1), Put(2)]
    tasks = await world.held(neighbours[0], Refuse(refusal), neighbours[1], Refuse(No("no")))
    world.writer.gate.set()
    answers = await results(tasks)
    assert answers[1:] == [("result", 1), refusal, ("result", 2), answers[4]]
    assert isinstance(answers[4], No)
    assert world.writer.commits[1] == [1, 2]
    assert [one.runs for one in neighbours] == [1, 1]
    counters = world.group.counters
    assert (counters.cautious_batches, counters.refused) == (0, 2)
    assert isinstance((await results(world.submit(Refuse(No("alone")))))[0], No)
    assert counters.cautious_batches == 0


@pytest.mark.requirement("groupcommit.a-refusal-is-its-callers-own")
async def test_a_refusal_counts_once_however_often_its_batch_is_run(world: World) -> None:
    lost = Put(2, error=LostTransaction(), times=2, loses_transaction=True)
    for neighbour in (Put(1, error=No("after it has written")), lost):
        before = world.group.counters.refused
        early = Refuse(No("no"))
        tasks = await world.held(early, neighbour)
        world.writer.gate.set()
        answers = (await results(tasks))[1:]
        assert early.runs > 1
        assert world.group.counters.refused - before == sum(isinstance(answer, No) for answer in answers)
        world.group._cautious = 0  # as long after the last refusal


@pytest.mark.requirement("groupcommit.an-error-at-commit-is-unknown")
async def test_a_refusal_stands_although_nobody_knows_what_became_of_its_batch(world: World) -> None:
    failure = CommitFailed("I/O error")
    world.writer.fail_commit = lambda: failure if len(world.writer.commits) == 1 else None
    tasks = await world.held(Put(1), Refuse(No("no")))
    world.writer.gate.set()
    assert [type(answer) for answer in (await results(tasks))[1:]] == [OutcomeUnknown, No]
    assert world.deaths == [failure]


async def test_a_lone_operation_never_needs_a_savepoint_and_its_refusal_is_its_own(world: World) -> None:
    await results(world.submit(Put(1, error=No("no")), Put(2)))
    marked = world.group.counters.cautious_batches
    assert await results(world.submit(Put(3))) == [("result", 3)]
    assert world.group.counters.cautious_batches == marked
    answers = await results(world.submit(Put(4, error=No("no"))))
    assert isinstance(answers[0], No)
    assert world.writer.durable == [2, 3]


@pytest.mark.requirement("groupcommit.an-error-before-commit-is-not-written")
async def test_an_error_that_leaves_the_transaction_standing_fails_its_own_operation_only(world: World) -> None:
    bug = ZeroDivisionError("a bug")
    tasks = await world.held(Put(1), Put(2, error=bug), Put(3))
    world.writer.gate.set()
    answers = await results(tasks)
    assert isinstance(answers[2], NotCommitted)
    assert answers[2].__cause__ is bug
    assert world.writer.commits[1] == [1, 3]
    assert world.group.counters.rerun_batches == 0


@pytest.mark.requirement("groupcommit.an-error-before-commit-is-not-written")
async def test_an_error_that_loses_the_transaction_has_the_batch_run_again_one_by_one(world: World) -> None:
    full = LostTransaction("full")
    neighbours = [Put(1), Put(3)]
    refused = Put(4, error=No("no"))
    tasks = await world.held(neighbours[0], Put(2, error=full, loses_transaction=True), neighbours[1], refused)
    world.writer.gate.set()
    answers = await results(tasks)
    assert answers[1] == ("result", 1)
    assert isinstance(answers[2], NotCommitted)
    assert answers[2].__cause__ is full
    assert answers[3] == ("result", 3)
    assert isinstance(answers[4], No)
    assert world.writer.durable == ["first", 1, 3]
    assert world.writer.commits[1:] == [[1], [3], []]
    assert world.group.counters.rerun_batches == 1


@pytest.mark.requirement("groupcommit.an-error-before-commit-is-not-written")
async def test_what_lost_the_transaction_once_may_pass_when_it_is_run_alone(world: World) -> None:
    passing = Put(2, error=LostTransaction(), loses_transaction=True, times=1)
    tasks = await world.held(Put(1), passing)
    world.writer.gate.set()
    assert (await results(tasks))[1:] == [("result", 1), ("result", 2)]
    assert world.writer.durable == ["first", 1, 2]


@pytest.mark.requirement("groupcommit.an-error-before-commit-is-not-written")
async def test_where_a_transaction_cannot_begin_everybody_is_refused_and_the_next_is_served(world: World) -> None:
    # Bare, with savepoints, and each of the two alone.
    trouble: list[Exception] = [OSError("busy")] * 4
    world.writer.fail_begin = lambda: trouble.pop() if trouble else None
    tasks = world.submit(Put(1), Put(2))
    answers = await results(tasks)
    assert all(isinstance(answer, NotCommitted) for answer in answers)
    assert await results(world.submit(Put(3))) == [("result", 3)]
    assert world.writer.durable == [3]
    assert not world.deaths


@pytest.mark.requirement("groupcommit.an-error-before-commit-is-not-written")
async def test_a_commit_that_failed_cleanly_is_run_again_one_by_one(world: World) -> None:
    # Bare, with savepoints, and the first alone.
    trouble: list[Exception] = [CommitFailed("full")] * 3
    world.writer.fail_commit = lambda: trouble.pop() if trouble else None
    world.writer.clean = True
    tasks = world.submit(Put(1), Put(2), Put(3))
    answers = await results(tasks)
    assert isinstance(answers[0], NotCommitted), "the first try alone failed as well"
    assert answers[1:] == [("result", 2), ("result", 3)]
    assert world.writer.durable == [2, 3]
    assert not world.deaths


@pytest.mark.requirement("groupcommit.an-error-at-commit-is-unknown")
async def test_an_error_at_commit_is_unknown_for_its_batch_and_stops_the_writer_for_good(world: World) -> None:
    failure = CommitFailed("I/O error")
    world.writer.fail_commit = lambda: None if not world.writer.commits else failure
    refused = Put(3, error=No("no"))
    tasks = await world.held(Put(1), Put(2), refused)
    world.writer.gate.set()
    answers = await results(tasks)
    assert answers[0] == ("result", "first")
    assert [type(answer) for answer in answers[1:]] == [OutcomeUnknown, OutcomeUnknown, No]
    assert answers[1].__cause__ is failure
    assert world.deaths == [failure]
    assert world.told == [[("result", "first")]], "nobody is woken by what may not be there"
    assert await asyncio.to_thread(world.writer.closed.wait, WAIT_S_MAX), "the thread ends behind its last answer"
    for late in await results(world.submit(Put(5))):
        assert isinstance(late, NotCommitted)
        assert late.__cause__ is failure
    assert world.writer.durable == ["first"]


@pytest.mark.requirement("groupcommit.an-error-at-commit-is-unknown")
async def test_what_waits_while_a_commit_fails_has_not_begun_and_is_not_written(world: World) -> None:
    failure = CommitFailed("I/O error")
    world.writer.fail_commit = lambda: failure
    tasks = await world.held(Put(1), Put(2))
    world.writer.gate.set()
    answers = await results(tasks)
    assert [type(answer) for answer in answers] == [OutcomeUnknown, NotCommitted, NotCommitted]
    assert world.writer.durable == []
    assert world.deaths == [failure]


@pytest.mark.requirement("groupcommit.an-error-at-commit-is-unknown")
async def test_an_error_at_commit_during_a_second_run_spares_what_has_not_begun(world: World) -> None:
    losing = Put(2, error=LostTransaction(), loses_transaction=True)
    world.writer.fail_commit = lambda: CommitFailed() if world.writer.written == [3] else None
    tasks = await world.held(Put(1), losing, Put(3), Put(4))
    world.writer.gate.set()
    answers = await results(tasks)
    assert answers[1] == ("result", 1)
    assert [type(answer) for answer in answers[2:]] == [NotCommitted, OutcomeUnknown, NotCommitted]
    assert world.told[1:] == [[("result", 1)]]
    assert len(world.deaths) == 1


@pytest.mark.requirement("groupcommit.a-caller-that-leaves")
async def test_a_caller_that_leaves_before_its_operation_was_taken_leaves_nothing(world: World) -> None:
    gone = Put("gone")
    tasks = await world.held(Put(1), gone, Put(2))
    tasks[2].cancel()
    await asyncio.sleep(0)
    world.writer.gate.set()
    answers = await results(tasks)
    assert isinstance(answers[2], asyncio.CancelledError)
    assert world.writer.durable == ["first", 1, 2]
    assert gone.runs == 0
    assert world.group.counters.skipped == 1


@pytest.mark.requirement("groupcommit.a-caller-that-leaves")
async def test_what_has_begun_completes_and_is_told_although_its_caller_has_left(world: World) -> None:
    entered, on = threading.Event(), threading.Event()

    class Slow(Put):
        def apply(self, tx: FakeWriter) -> Any:
            entered.set()
            assert on.wait(WAIT_S_MAX)
            return super().apply(tx)

    (task,) = world.submit(Slow("kept"))
    await asyncio.to_thread(entered.wait, WAIT_S_MAX)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    on.set()
    assert await results(world.submit(Put("next"))) == [("result", "next")]
    assert world.writer.durable == ["kept", "next"]
    assert world.told[0] == [("result", "kept")], "whoever waits for it is woken"


async def test_a_batch_whose_callers_have_all_left_is_not_begun(world: World) -> None:
    tasks = await world.held(Put(1), Put(2))
    for task in tasks[1:]:
        task.cancel()
    await asyncio.sleep(0)
    world.writer.gate.set()
    await results(tasks)
    assert await results(world.submit(Put(3))) == [("result", 3)]
    assert world.writer.commits == [["first"], [3]]


@pytest.mark.requirement("groupcommit.the-queue-has-a-limit")
async def test_so_many_operations_wait_and_one_more_is_refused() -> None:
    world = World(queue_operations_max=5)
    await world.group.start()
    tasks = await world.held(*(Put(n) for n in range(5)))
    over = await results(world.submit(Put("over")))
    assert isinstance(over[0], Overloaded)
    assert over[0].may_resend
    world.writer.gate.set()
    assert (await results(tasks))[1:] == [("result", n) for n in range(5)]
    assert await results(world.submit(Put("again"))) == [("result", "again")]
    await world.group.close()
    assert "over" not in world.writer.durable
    assert QUEUE_OPERATIONS_MAX >= 16 * BATCH_OPERATIONS_MAX


async def test_the_values_of_a_batch_are_told_before_any_caller_is_answered(world: World) -> None:
    async def caller() -> None:
        await world.group.submit(Put(1))
        world.events.append("answered")

    async with asyncio.timeout(WAIT_S_MAX):
        await caller()
    assert world.events == ["on_commit", "answered"]


@pytest.mark.requirement("groupcommit.each-caller-gets-its-own-result")
async def test_callers_are_answered_although_whoever_is_told_of_the_batch_fails() -> None:
    world = World()
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    failing = [True]

    def note(values: Any) -> None:
        if failing:
            failing.pop()
            raise ZeroDivisionError("a bug in a listener")

    world.group = GroupCommit(
        name="testing", open_writer=lambda: world.writer, on_commit=note, on_fatal=world.deaths.append
    )
    await world.group.start()
    assert await results(world.submit(Put(1), Put(2))) == [("result", 1), ("result", 2)]
    assert await results(world.submit(Put(3))) == [("result", 3)], "and the next batch is served"
    await world.group.close()
    assert [type(context["exception"]) for context in told] == [ZeroDivisionError]


@pytest.mark.requirement("groupcommit.closing-completes-what-waits")
async def test_closing_commits_what_waits_refuses_what_comes_and_ends_the_thread() -> None:
    world = World()
    await world.group.start()
    tasks = await world.held(*(Put(n) for n in range(20)))
    closing = asyncio.ensure_future(world.group.close())
    await asyncio.sleep(0)
    late = await results(world.submit(Put("late")))
    assert isinstance(late[0], NotCommitted)
    world.writer.gate.set()
    async with asyncio.timeout(WAIT_S_MAX):
        await closing
    assert (await results(tasks))[1:] == [("result", n) for n in range(20)]
    assert world.writer.closed.is_set()
    assert "testing-writer" not in [thread.name for thread in threading.enumerate()]
    await world.group.close()


async def test_a_writer_that_does_not_come_to_rest_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_MS_MAX", 20)
    world = World()
    await world.group.start()
    tasks = await world.held()
    with pytest.raises(TimeoutError):
        await world.group.close()
    world.writer.gate.set()
    await results(tasks)
    monkeypatch.undo()
    await world.group.close()


async def test_where_the_writer_cannot_be_opened_nothing_runs() -> None:
    def fail() -> FakeWriter:
        raise OSError("no disk")

    group: GroupCommit[FakeWriter] = GroupCommit(
        name="testing", open_writer=fail, on_commit=lambda _: None, on_fatal=lambda _: None
    )
    with pytest.raises(OSError, match="no disk"):
        await group.start()
    await group.close()
    assert "testing-writer" not in [thread.name for thread in threading.enumerate()]


async def test_a_group_that_never_started_can_be_closed() -> None:
    await World().group.close()


@pytest.mark.parametrize("callers", [1, 16])
async def test_a_lone_caller_is_never_paced_and_a_crowd_is(
    world: World, callers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where a batch takes long beside what its operations cost: here it takes next to nothing.
    monkeypatch.setattr(module, "PACE_BATCHES", 1000.0)
    monkeypatch.setattr(module, "REST_US", 60_000_000)
    loop = asyncio.get_running_loop()
    pauses: list[float] = []
    real = loop.call_later

    def call_later(delay: float, callback: Any, *args: Any, **context: Any) -> asyncio.TimerHandle:
        if getattr(callback, "__name__", "") == "_flush":
            pauses.append(delay)
        return real(delay, callback, *args, **context)

    monkeypatch.setattr(loop, "call_later", call_later)

    async def caller() -> None:
        for turn in range(30):
            await world.group.submit(Put(turn))

    async with asyncio.timeout(WAIT_S_MAX):
        await asyncio.gather(*(caller() for _ in range(callers)))
    assert bool(pauses) == (callers > 1)
    assert all(pause <= module.PACE_US_MAX / 1e6 for pause in pauses)


@pytest.mark.parametrize(("rest_us", "waits"), [(-1, False), (60_000_000, True)])
async def test_the_first_caller_after_a_crowd_waits_for_nobody_once_there_was_a_rest(
    world: World, monkeypatch: pytest.MonkeyPatch, rest_us: int, *, waits: bool
) -> None:
    monkeypatch.setattr(module, "PACE_US_MAX", 60_000_000)
    monkeypatch.setattr(module, "PACE_BATCHES", 1e9)
    monkeypatch.setattr(module, "REST_US", rest_us)
    await results(world.submit(*(Put(n) for n in range(64))))
    late = world.submit(Put(64))
    if waits:
        for _ in range(10):
            await asyncio.sleep(0)
        assert world.group.waiting == 1
        late += world.submit(*(Put(n) for n in range(65, 128)))
    assert len(await results(late)) == (64 if waits else 1)


async def test_a_crowd_is_waited_for_until_it_is_as_large_as_lately_and_is_one_batch(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PACE_US_MAX", 60_000_000)
    monkeypatch.setattr(module, "PACE_BATCHES", 1e9)
    monkeypatch.setattr(module, "REST_US", 60_000_000)
    await results(world.submit(*(Put(n) for n in range(8))))
    crowd = 1 + 7 * module.AVERAGE_WEIGHT  # of one batch of eight
    early = world.submit(*(Put(n) for n in range(8, 10)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert world.group.waiting == 2
    assert world.group.waiting < crowd
    assert await results([*early, *world.submit(Put(10))]) == [("result", n) for n in (8, 9, 10)]
    assert world.writer.commits == [list(range(8)), [8, 9, 10]]
    assert world.group.counters.batches == 2
