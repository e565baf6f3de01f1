"""What goes on beside the calls survives a full disk and a full queue."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost_kit.clock import SYSTEM_CLOCK
from fencepost_kit.refusal import Overloaded, PermissionDenied, Refusal
from fencepost_mailbox.domain.refusals import StorageError
from fencepost_mailbox.waits import Waits
from fencepost_mailbox.wiring import READS_REMEMBERED_MAX, Mailbox, Reads
from fencepost_testing.mailboxes import id16

REFUSALS = [StorageError("full", state={"cause": "SQLITE_FULL"}), Overloaded("too many wait")]


class Refusing:
    """A store that refuses what it is given, as long as it has refusals left."""

    def __init__(self, *refusals: Refusal) -> None:
        self.refusals = list(refusals)
        self.written: list[Any] = []
        self.asked = 0

    async def submit(self, operation: Any) -> None:
        if self.refusals:
            raise self.refusals.pop()
        self.written.append(operation)

    @property
    def read(self) -> Refusing:
        return self

    def last_read_at_ms(self, _agent_id: bytes) -> int:
        self.asked += 1
        return 0


def reads_over(store: Any) -> Reads:
    return Reads(store, Waits(SYSTEM_CLOCK))


@pytest.mark.requirement("mailbox.background-work-outlives-a-refusal")
@pytest.mark.parametrize("refusal", REFUSALS)
async def test_work_beside_the_calls_is_put_off_where_it_may_be_sent_again(refusal: Refusal) -> None:
    async def work() -> None:
        raise refusal

    await Mailbox._tolerating(work)


async def test_a_refusal_that_would_come_again_is_no_secret() -> None:
    async def work() -> None:
        raise PermissionDenied("never")

    with pytest.raises(PermissionDenied):
        await Mailbox._tolerating(work)


@pytest.mark.requirement("mailbox.background-work-outlives-a-refusal")
async def test_times_of_reading_that_were_refused_are_written_the_next_time() -> None:
    store = Refusing(REFUSALS[1])
    reads = reads_over(store)
    reads.note_read(id16("ann"), 5)
    with pytest.raises(Overloaded):
        await reads.write()
    reads.note_read(id16("bob"), 6)
    await reads.write()
    assert [set(operation.reads) for operation in store.written] == [{(id16("ann"), 5), (id16("bob"), 6)}]
    await reads.write()
    assert len(store.written) == 1


async def test_what_is_remembered_of_readers_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert READS_REMEMBERED_MAX == 100_000
    monkeypatch.setattr("fencepost_mailbox.wiring.READS_REMEMBERED_MAX", 3)
    store = Refusing()
    reads = reads_over(store)
    for name in "abc":
        reads.note_read(id16(name), 1)
    assert (reads.last_read_at_ms(id16("a")), store.asked) == (1, 0)
    reads.note_read(id16("d"), 1)
    assert (reads.last_read_at_ms(id16("a")), store.asked) == (0, 1)
