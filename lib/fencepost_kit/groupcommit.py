"""Group commit: one writer thread that turns many waiting operations into few durable transactions.

Guarantees: an operation's caller is answered only after the COMMIT that holds it is durable; operations commit in the
order in which they were submitted; a refusal rolls back its own operation and no other; what cannot be known is
reported as unknown and never run again.

Three classes of failure, kept apart (docs/architecture/mailbox.md):
- a `Refusal` raised by an operation: an expected answer, its savepoint is rolled back;
- any other error before COMMIT: `NotCommitted`. Where the database rolled back the whole transaction on its own (full
  disk, interrupt), the batch is run again one operation a transaction, so that one operation's trouble stays its own;
- an error at COMMIT itself: `OutcomeUnknown` for the whole batch. The writer stops for good and calls `on_fatal`: only
  reopening the database can tell what is on disk.

A batch is first run bare, without savepoints. Such a transaction is kept or lost as one, so that the writer may hold
inserts back and make them together. An operation that is refused before it has written anything is answered so, and the
batch goes on without it: nearly every refusal is one of these. Where one has written, or a conflict is found late, the
transaction is rolled back and run again with a savepoint an operation, and so are the next CAUTIOUS_BATCHES.

The loop collects operations and keeps one batch in flight. Batches are paced: under load the next one starts as soon as
it is as large as batches are lately, and otherwise no earlier after the one before than PACE_BATCHES times what a batch
takes lately, at most PACE_US_MAX. That makes fewer and larger commits where the process is busy. A lone caller never
waits, the first one after a crowd neither: after REST_US without work the next batch is not paced. Figures:
docs/decisions/group-commit.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from fencepost_kit import faults
from fencepost_kit.refusal import Overloaded, Refusal

QUEUE_OPERATIONS_MAX: Final = 4096
BATCH_OPERATIONS_MAX: Final = 256
PACE_BATCHES: Final = 3.0
PACE_US_MAX: Final = 5000
PACE_US_MIN: Final = 50
# With nothing to commit for so long, the crowd that the average tells of is gone.
REST_US: Final = 1000
CAUTIOUS_BATCHES: Final = 16
PACED_FROM_AVERAGE: Final = 1.5
AVERAGE_WEIGHT: Final = 0.25
CLOSE_MS_MAX: Final = 10_000

_MOMENTS: Final = {
    "begin.after": "a transaction has begun, nothing is written yet",
    "commit.before": "everything is written, nothing is committed",
    "commit.after": "the batch is durable, nobody has been told",
    "answer.before": "the batch is settled, the callers are about to be told",
}

Tx = TypeVar("Tx")
TxContra = TypeVar("TxContra", contravariant=True)
T = TypeVar("T")
TCo = TypeVar("TCo", covariant=True)
TxCo = TypeVar("TxCo", covariant=True)


class Operation(Protocol[TxContra, TCo]):
    """Something to do inside one transaction: pure, given the ids and the time that it carries."""

    def apply(self, tx: TxContra, /) -> TCo:
        """Read, decide and write through `tx`. May run again after the whole batch was rolled back.

        Raises:
            Refusal: nothing of this operation is written.
        """
        ...


class Writer(Protocol[TxCo]):
    """The one connection that writes. Used by the writer thread alone."""

    def begin(self, *, whole: bool = False) -> TxCo:
        """Begin a transaction that excludes every other writer.

        `whole`: it is kept or lost as one, without savepoints. So its writes may be held back until settle(), and a
        conflict among them may be found as late as that.
        """
        ...

    def settle(self) -> None:
        """Write what was held back. An error here is one before COMMIT."""
        ...

    def mark(self) -> object:
        """Return how much is written. Asked before each operation of a transaction without savepoints."""
        ...

    def take_back(self, mark: object) -> bool:
        """Forget what was held back since `mark`, and tell whether nothing was written besides.

        False also where something held back would have had another answer if it had been looked up: the transaction
        is to be rolled back then.
        """
        ...

    def savepoint(self) -> None:
        """Open the savepoint of one operation."""
        ...

    def release(self) -> None:
        """Keep what was written since the savepoint."""
        ...

    def rollback_to_savepoint(self) -> None:
        """Undo what was written since the savepoint and close it."""
        ...

    def commit(self) -> None:
        """Make the transaction durable."""
        ...

    def rollback(self) -> None:
        """Undo the transaction where one stands."""
        ...

    def in_transaction(self) -> bool:
        """Tell whether the transaction still stands."""
        ...

    def commit_failed_cleanly(self, error: Exception) -> bool:
        """Tell whether this error of commit() proves that nothing of the transaction is or will be on disk."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class NotCommitted(Exception):
    """The operation failed before COMMIT: nothing of it is written. The cause is chained."""


class OutcomeUnknown(Exception):
    """COMMIT failed in a way that does not tell whether the batch is on disk. Never run it again."""


@dataclass(slots=True, eq=False)
class _Entry:
    operation: Operation[Any, Any]
    future: asyncio.Future[Any]
    gone: bool = False
    value: Any = None
    error: BaseException | None = None


@dataclass(slots=True, eq=False)
class _Batch:
    entries: list[_Entry]
    fatal: BaseException | None = None


@dataclass(slots=True)
class Counters:
    """What the writer did since it started; for metrics and for tests."""

    batches: int = 0
    operations: int = 0
    refused: int = 0
    skipped: int = 0
    # Run with a savepoint an operation, because something was refused in this batch or in one shortly before.
    cautious_batches: int = 0
    rerun_batches: int = 0
    not_committed: int = 0
    largest_batch: int = field(default=0)


class GroupCommit(Generic[Tx]):
    """Collects operations on the event loop and commits them in batches on a thread of its own."""

    def __init__(
        self,
        *,
        name: str,
        open_writer: Callable[[], Writer[Tx]],
        on_commit: Callable[[Sequence[Any]], None],
        on_fatal: Callable[[BaseException], None],
        queue_operations_max: int = QUEUE_OPERATIONS_MAX,
    ) -> None:
        """Prepare without starting.

        Args:
            name: prefix of the fault points and the thread's name.
            open_writer: called once, on the writer thread.
            on_commit: called on the loop with the values of a durable batch, before any caller is answered.
            on_fatal: called on the loop once, when the writer has stopped for good.
            queue_operations_max: operations that may wait; one more is refused as overloaded.
        """
        self._name = name
        self._points = {moment: faults.register(f"{name}.{moment}", meaning) for moment, meaning in _MOMENTS.items()}
        self._open_writer = open_writer
        self._on_commit = on_commit
        self._on_fatal = on_fatal
        self._queue_operations_max = queue_operations_max
        self._pending: list[_Entry] = []
        self._flushing = False
        self._pause: asyncio.TimerHandle | None = None
        self._busy = False
        self._average = 1.0
        self._batch_started = 0.0
        self._rests_since = 0.0
        self._took_s = 0.0
        self._cautious = 0
        self._closing = False
        self._fatal: BaseException | None = None
        self._handover: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._idle = asyncio.Event()
        self._idle.set()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.counters = Counters()
        # Told the seconds of every COMMIT, on the writer thread.
        self.observe_commit: Callable[[float], None] | None = None

    @property
    def waiting(self) -> int:
        """Operations that wait for the next batch."""
        return len(self._pending)

    async def start(self) -> None:
        """Open the writer on its thread.

        Raises:
            Exception: whatever opening raised; nothing runs then.
        """
        self._loop = asyncio.get_running_loop()
        opened: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(
            target=self._thread_main, args=(opened,), name=f"{self._name}-writer", daemon=True
        )
        self._thread.start()
        await opened

    async def submit(self, operation: Operation[Tx, T]) -> T:
        """Run `operation` and return its value once the transaction that holds it is durable.

        A caller that is cancelled before its operation was taken leaves nothing behind; afterwards the operation
        completes.

        Raises:
            Refusal: the operation's own answer, or Overloaded where QUEUE_OPERATIONS_MAX wait already; nothing is
                written.
            NotCommitted: an error before COMMIT; nothing is written.
            OutcomeUnknown: an error at COMMIT; nobody knows.
        """
        if self._fatal is not None or self._closing:
            raise NotCommitted("the store is closed") from self._fatal
        if len(self._pending) >= self._queue_operations_max:
            raise Overloaded(
                "too many operations wait for the disk; nothing was written", hint="Send the same call again."
            )
        loop = cast("asyncio.AbstractEventLoop", self._loop)
        entry = _Entry(operation=operation, future=loop.create_future())
        self._pending.append(entry)
        if self._idle.is_set():
            self._idle.clear()
            if loop.time() - self._rests_since > REST_US / 1e6:
                self._average = 1.0
        self._plan()
        try:
            return cast("T", await entry.future)
        except asyncio.CancelledError:
            entry.gone = True
            raise

    async def close(self) -> None:
        """Commit what waits, then stop the thread and join it; refuses new operations from now on.

        Raises:
            TimeoutError: the writer did not come to rest within CLOSE_MS_MAX.
        """
        self._closing = True
        if self._thread is None:
            return
        if self._fatal is None:
            async with asyncio.timeout(CLOSE_MS_MAX / 1000):
                await self._idle.wait()
        self._handover.put(None)
        await asyncio.to_thread(self._thread.join, CLOSE_MS_MAX / 1000)
        if self._thread.is_alive():
            raise TimeoutError(f"{self._name}: the writer thread did not end")
        self._thread = None

    # --- on the loop -------------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        """See to it that what waits is flushed: in this pass of the loop, or where more are to be expected, later."""
        if self._busy or not self._pending or self._flushing:
            return
        loop = cast("asyncio.AbstractEventLoop", self._loop)
        if self._average >= PACED_FROM_AVERAGE and len(self._pending) < self._average:
            if self._pause is not None:
                return
            pace_s = min(PACE_US_MAX / 1e6, PACE_BATCHES * self._took_s)
            wait_s = self._batch_started + pace_s - loop.time()
            if wait_s > PACE_US_MIN / 1e6:
                self._pause = loop.call_later(wait_s, self._flush)
                return
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        # Through the loop once: everything that this pass submits joins the batch.
        self._flushing = True
        loop.call_soon(self._flush)

    def _flush(self) -> None:
        loop = cast("asyncio.AbstractEventLoop", self._loop)
        self._flushing, self._pause = False, None
        taken = self._pending[:BATCH_OPERATIONS_MAX]
        del self._pending[:BATCH_OPERATIONS_MAX]
        self._average += (len(taken) - self._average) * AVERAGE_WEIGHT
        self._batch_started = loop.time()
        self._busy = True
        self._handover.put(_Batch(entries=taken))

    def _back(self, batch: _Batch) -> None:
        self._busy = False
        loop = cast("asyncio.AbstractEventLoop", self._loop)
        self._took_s += (loop.time() - self._batch_started - self._took_s) * AVERAGE_WEIGHT
        # Also those whose caller left meanwhile: what they wrote is there, and others wait for it.
        values = [entry.value for entry in batch.entries if entry.error is None]
        try:
            if values:
                self._on_commit(values)
        finally:
            # Also where a listener fails: what is durable is durable, and its callers wait for nothing else.
            self._answer(batch)

    def _answer(self, batch: _Batch) -> None:
        for entry in batch.entries:
            if entry.future.done():
                continue
            if entry.error is None:
                entry.future.set_result(entry.value)
            else:
                entry.future.set_exception(entry.error)
        if batch.fatal is not None:
            self._stop_for_good(batch.fatal)
        elif self._pending:
            self._plan()
        else:
            self._rests_since = cast("asyncio.AbstractEventLoop", self._loop).time()
            self._idle.set()

    def _stop_for_good(self, cause: BaseException) -> None:
        self._fatal = cause
        for entry in self._pending:
            if not entry.future.done():
                refused = NotCommitted("the store stopped before this operation began")
                refused.__cause__ = cause
                entry.future.set_exception(refused)
        self._pending.clear()
        self._idle.set()
        self._on_fatal(cause)

    # --- on the writer thread ----------------------------------------------------------------------------------------

    def _thread_main(self, opened: asyncio.Future[None]) -> None:
        loop = cast("asyncio.AbstractEventLoop", self._loop)
        try:
            writer = self._open_writer()
        except BaseException as error:  # noqa: BLE001 - handed to the caller of start()
            loop.call_soon_threadsafe(opened.set_exception, error)
            return
        loop.call_soon_threadsafe(opened.set_result, None)
        try:
            while (batch := self._handover.get()) is not None:
                try:
                    self._run(writer, batch)
                    if faults.ARMED:
                        faults.hit(self._points["answer.before"])
                except BaseException as error:  # noqa: BLE001 - a writer that ended in silence would leave all waiting
                    self._outcome_unknown(batch, batch.entries, error)
                # The callback is bound to this batch: a closure over the loop variable would answer another one's
                # callers.
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to answer
                    loop.call_soon_threadsafe(self._back, batch)
                if batch.fatal is not None:
                    break
        finally:
            with contextlib.suppress(Exception):
                writer.close()

    def _run(self, writer: Writer[Tx], batch: _Batch) -> None:
        counters = self.counters
        # A caller that left before its operation was taken leaves nothing behind. Judged once, here: a caller that
        # leaves later has an admission under way, which completes.
        gone = [entry for entry in batch.entries if entry.gone]
        live = [entry for entry in batch.entries if not entry.gone] if gone else batch.entries
        batch.entries = live
        counters.skipped += len(gone)
        if not live:
            return
        counters.batches += 1
        counters.operations += len(live)
        counters.largest_batch = max(counters.largest_batch, len(live))
        if not ((self._cautious == 0 or len(live) == 1) and self._attempt(writer, batch, live, None)):
            self._cautious = CAUTIOUS_BATCHES if self._cautious == 0 else self._cautious - 1
            self._run_cautiously(writer, batch)
        # By their last run: a refusal of one that was undone is no answer.
        counters.refused += sum(isinstance(entry.error, Refusal) for entry in live)

    def _run_cautiously(self, writer: Writer[Tx], batch: _Batch) -> None:
        """Run a batch with a savepoint an operation, and where even that is lost, with a transaction an operation."""
        counters, live = self.counters, batch.entries
        counters.cautious_batches += 1
        self._forget(live)
        if not self._attempt(writer, batch, live, self._apply):
            counters.rerun_batches += 1
            for entry in live:
                self._forget([entry])
                if not self._attempt(writer, batch, [entry], self._apply):
                    counters.not_committed += 1
                if batch.fatal is not None:
                    self._fail_rest(live[live.index(entry) + 1 :], batch.fatal)
                    return

    @staticmethod
    def _forget(entries: Sequence[_Entry]) -> None:
        for entry in entries:
            entry.value, entry.error = None, None

    @staticmethod
    def _outcome_unknown(batch: _Batch, entries: Sequence[_Entry], cause: BaseException) -> None:
        """Say of what has no answer of its own that nobody knows, and that the writer stops for good."""
        for entry in entries:
            if entry.error is None:
                entry.error = OutcomeUnknown("the store failed while this was being committed")
                entry.error.__cause__ = cause
        batch.fatal = cause

    @staticmethod
    def _fail_rest(entries: Sequence[_Entry], cause: BaseException) -> None:
        for entry in entries:
            entry.error = NotCommitted("the store stopped before this operation began")
            entry.error.__cause__ = cause

    def _attempt(
        self,
        writer: Writer[Tx],
        batch: _Batch,
        entries: Sequence[_Entry],
        apply: Callable[[Writer[Tx], Tx, _Entry], bool] | None,
    ) -> bool:
        """Run `entries` in one transaction, each by `apply`, or bare where that is None.

        Bare, an operation that raises after it has written loses the transaction, and costs one more run.

        False: the transaction was lost before COMMIT and each entry carries NotCommitted.
        """
        try:
            tx = writer.begin(whole=apply is None and len(entries) > 1)
            if faults.ARMED:
                faults.hit(self._points["begin.after"])
            for entry in entries:
                if apply is None:
                    self._bare(writer, tx, entry)
                elif not apply(writer, tx, entry):
                    raise cast("BaseException", entry.error)
            writer.settle()
            if faults.ARMED:
                faults.hit(self._points["commit.before"])
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing was committed
            self._undo(writer, entries, error)
            return False
        began = time.perf_counter()
        try:
            writer.commit()
        except Exception as error:  # noqa: BLE001 - classified below
            if writer.commit_failed_cleanly(error):
                self._undo(writer, entries, error)
                return False
            self._outcome_unknown(batch, entries, error)
            return True
        if self.observe_commit is not None:
            self.observe_commit(time.perf_counter() - began)
        if faults.ARMED:
            faults.hit(self._points["commit.after"])
        return True

    def _bare(self, writer: Writer[Tx], tx: Tx, entry: _Entry) -> None:
        """Run one operation without a savepoint. Raises where it failed and cannot be taken back by itself."""
        mark = writer.mark()
        try:
            entry.value = entry.operation.apply(tx)
        except Refusal as refusal:
            if not writer.take_back(mark):
                raise
            entry.error = refusal

    def _apply(self, writer: Writer[Tx], tx: Tx, entry: _Entry) -> bool:
        """Run one operation under its savepoint. False: it took the whole transaction with it."""
        writer.savepoint()
        try:
            entry.value = entry.operation.apply(tx)
        except Refusal as refusal:
            writer.rollback_to_savepoint()
            entry.error = refusal
        except Exception as error:  # noqa: BLE001 - told apart by whether the transaction still stands
            if not writer.in_transaction():
                entry.error = error
                return False
            writer.rollback_to_savepoint()
            entry.error = NotCommitted("the operation failed before it was committed")
            entry.error.__cause__ = error
            self.counters.not_committed += 1
        else:
            writer.release()
        return True

    @staticmethod
    def _undo(writer: Writer[Tx], entries: Sequence[_Entry], error: Exception) -> None:
        with contextlib.suppress(Exception):
            writer.rollback()
        for entry in entries:
            if not isinstance(entry.error, Refusal):
                entry.error = NotCommitted("the transaction was lost before it was committed")
                entry.error.__cause__ = error
