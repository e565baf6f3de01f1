"""Deleting an agent: whoever waits for it is answered, its mail is closed at once and erased bit by bit."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fencepost_kit.groupcommit import NotCommitted
from fencepost_kit.refusal import Refusal
from fencepost_mailbox.domain.claims import ClaimState, Outcome
from fencepost_mailbox.domain.deletion import ERASED_ROWS_MAX, HOST_NOTICE, HOST_REPLY, Phase
from fencepost_mailbox.domain.values import (
    Answer,
    Completion,
    Delivery,
    FactKind,
    Kind,
    Operation,
    Origin,
    Record,
    ReplyStatus,
)
from fencepost_mailbox.store.protocol import DirectoryPosition, InvariantBroken
from fencepost_mailbox.store.sqlite import SqliteTransaction
from fencepost_mailbox.usecases import admit
from fencepost_mailbox.usecases.claim import ClaimKind
from fencepost_mailbox.usecases.follow import NotingReads
from fencepost_mailbox.waits import Wake
from fencepost_testing.mailboxes import PROJECT, Desk, a_desk, a_step, id16, until

DELETED = id16("bob")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mailbox" / "mailbox.db"


@pytest.fixture
async def desk(path: Path) -> AsyncIterator[Desk]:
    async with a_desk(path, "ann", "bob", "cyd") as made:
        yield made


def rows(path: Path) -> dict[str, list[Any]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables}


def mentions(path: Path, agent: bytes) -> dict[str, int]:
    """In how many rows of each table an agent's id still stands, but for the tombstone and what it sent to others."""
    found = {table: sum(agent in row for row in content) for table, content in rows(path).items()}
    return {table: count for table, count in found.items() if count and table not in ("tombstone", "record")}


async def reason_of(call: Any) -> str:
    with pytest.raises(Refusal) as refused:
        await call
    return refused.value.reason


# --- whoever waits ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.deleting-answers-whoever-waits")
async def test_a_requester_that_waits_wakes_and_reads_the_hosts_failed_reply(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    waiting = asyncio.ensure_future(desk.receive("ann", timeout_ms=60_000))
    await until(lambda: desk.waits.waiting(id16("ann")))
    await desk.delete("bob")
    async with asyncio.timeout(5):
        (reply,) = (await waiting).records
    assert (reply.kind, reply.status, reply.origin, reply.sender) == (Kind.REPLY, ReplyStatus.FAILED, Origin.HOST, None)
    assert (reply.parent_id, reply.body.decode()) == (request.record_id, HOST_REPLY)
    assert desk.now(request).answer is Answer.ANSWERED
    assert desk.facts(request) == [FactKind.ANSWERED_BY_HOST]


@pytest.mark.requirement("mailbox.deleting-answers-whoever-waits")
@pytest.mark.parametrize("progress", ["pending", "received", "claimed", "accepted", "uncertain"])
async def test_an_open_request_is_answered_however_far_it_had_come(desk: Desk, progress: str) -> None:
    request = await desk.request("ann", "bob")
    if progress == "received":
        await desk.receive("bob")
    elif progress != "pending":
        taken = await desk.taken("bob")
        if progress != "claimed":
            await desk.finish(taken.claim, Outcome.ACCEPTED if progress == "accepted" else Outcome.UNCERTAIN)
    await desk.delete("bob")
    assert desk.now(request).answer is Answer.ANSWERED
    (reply,) = (await desk.receive("ann")).records
    assert (reply.parent_id, reply.origin) == (request.record_id, Origin.HOST)
    if progress == "claimed":
        claim = desk.store.read.claim(taken.claim.token)
        assert claim is not None
        assert claim.state is ClaimState.UNCERTAIN
        assert await reason_of(desk.finish(taken.claim, Outcome.ACCEPTED)) == "agent_deleted"
        assert await reason_of(desk.release(taken.claim)) == "agent_deleted"


@pytest.mark.requirement("mailbox.deleting-answers-whoever-waits")
async def test_what_was_answered_before_is_not_answered_again(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    await desk.reply("bob", request)
    await desk.delete("bob")
    (reply,) = (await desk.receive("ann")).records
    assert (reply.origin, reply.body) == (Origin.AGENT, b"done")


@pytest.mark.requirement("mailbox.deleting-tells-whoever-works")
async def test_a_request_that_nobody_saw_is_taken_back_without_a_word(desk: Desk) -> None:
    request = await desk.request("bob", "ann")
    await desk.delete("bob")
    assert (desk.now(request).answer, desk.facts(request)) == (Answer.WITHDRAWN, [FactKind.WITHDRAWN])
    page = await desk.receive("ann")
    assert (page.records, page.open_requests) == ([], [])
    assert await desk.claim("ann") is None
    assert await reason_of(desk.reply("ann", request)) == "withdrawn"


@pytest.mark.requirement("mailbox.deleting-tells-whoever-works")
@pytest.mark.parametrize("progress", ["received", "claimed", "accepted", "uncertain"])
async def test_whoever_may_have_seen_a_request_is_told_that_it_is_closed(desk: Desk, progress: str) -> None:
    request = await desk.request("bob", "ann")
    if progress == "received":
        await desk.receive("ann")
    else:
        taken = await desk.taken("ann")
        if progress != "claimed":
            await desk.finish(taken.claim, Outcome.ACCEPTED if progress == "accepted" else Outcome.UNCERTAIN)
    waiting = asyncio.ensure_future(desk.wait("ann", timeout_ms=60_000)) if progress == "accepted" else None
    if waiting is not None:
        await until(lambda: desk.waits.waiting(id16("ann")))
    await desk.delete("bob")
    if waiting is not None:
        assert await waiting is Wake.ACTIVITY
    assert (desk.now(request).answer, desk.facts(request)[-1]) == (Answer.WITHDRAWN, FactKind.WITHDRAWN)
    notices = [record for record in (await desk.receive("ann")).records if record.kind is Kind.NOTICE]
    assert [(one.parent_id, one.origin, one.sender, one.body.decode()) for one in notices] == [
        (request.record_id, Origin.HOST, None, HOST_NOTICE)
    ]
    assert (await desk.receive("ann")).open_requests == []
    if progress == "claimed":
        settled = await desk.finish(taken.claim, Outcome.ACCEPTED)
        assert settled.record.delivery is Delivery.ACCEPTED, "the recipient's own evidence still counts"


@pytest.mark.requirement("mailbox.deleting-answers-whoever-waits")
async def test_two_that_asked_each_other_can_be_deleted_in_one_step(desk: Desk, path: Path) -> None:
    await desk.request("ann", "bob")
    await desk.request("bob", "ann")
    await desk.receive("ann")
    third = await desk.request("cyd", "bob")
    await desk.delete("ann", "bob")
    assert desk.now(third).answer is Answer.ANSWERED
    for name in ("ann", "bob"):
        assert await desk.erase(name)
    assert [row[5] for row in rows(path)["record"]] == [id16("cyd")], "only cyd's mail stands"


# --- late ones --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.deleted-agents-get-nothing-and-write-nothing")
async def test_its_own_late_calls_and_sends_to_it_are_refused_for_one_reason(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    await desk.send("bob", "ann", key="sent")
    await desk.delete("bob")
    for ended in (False, True):
        if ended:
            assert await desk.erase("bob")
        before = rows(desk._path)
        content = admit.Command(
            kind=Kind.INFORMATION, target="ann", body="text", key="sent", completion=Completion.NONE
        ).content()
        calls = [
            desk.send("bob", "ann"),
            desk.send("ann", "bob"),
            desk.send("ann", "bob", kind=Kind.REQUEST),
            desk.receive("bob"),
            desk.receive("bob", timeout_ms=1000),
            desk.wait("bob"),
            desk.reply("bob", request),
            desk.claim("bob"),
            desk.claim("bob", generation=2),
            desk.claim("bob", kind=ClaimKind.CONTEXT),
            desk.open("bob", 2),
            desk.settle("bob", Operation.SEND, "sent", content),
            desk.settle("bob", Operation.SEND, "new", content),
        ]
        for call in calls:
            assert await reason_of(call) == "agent_deleted"
        assert rows(desk._path) == before


@pytest.mark.requirement("mailbox.deleted-agents-get-nothing-and-write-nothing")
@pytest.mark.parametrize("call", ["wait", "receive"])
async def test_its_own_parked_calls_end_at_once(desk: Desk, call: str) -> None:
    parked = asyncio.ensure_future(getattr(desk, call)("bob", timeout_ms=60_000))
    await until(lambda: desk.waits.waiting(DELETED))
    await desk.delete("bob")
    async with asyncio.timeout(5):
        assert await reason_of(parked) == "agent_deleted"


@pytest.mark.requirement("mailbox.deleted-agents-get-nothing-and-write-nothing")
async def test_a_time_of_reading_that_is_written_late_leaves_no_row(desk: Desk, path: Path) -> None:
    await desk.delete("bob")
    assert await desk.erase("bob")
    await desk.store.submit(NotingReads(reads=[(DELETED, 1), (id16("ann"), 2)]))
    assert rows(path)["reader"] == [(id16("ann"), 2)]


@pytest.mark.requirement("mailbox.deleted-agents-get-nothing-and-write-nothing")
async def test_a_dispatcher_is_not_told_of_work_for_it(desk: Desk) -> None:
    await desk.request("ann", "bob")
    await desk.send("ann", "bob")
    assert desk.store.read.work_of(DELETED) == (True, True)
    await desk.delete("bob")
    assert desk.store.read.work_of(DELETED) == (False, False)
    assert (DELETED, False, False) in desk.store.read.agents_with_work(b"", 100), "looked at, and without work"


@pytest.mark.requirement("mailbox.deleted-agents-get-nothing-and-write-nothing")
async def test_a_send_that_races_with_the_deletion_is_before_it_or_refused(desk: Desk, path: Path) -> None:
    sends = [desk.send("ann", "bob", kind=Kind.REQUEST) for _ in range(20)]
    answers = await asyncio.gather(*sends[:10], desk.delete("bob"), *sends[10:], return_exceptions=True)
    written = [answer.record for answer in answers if isinstance(answer, admit.Receipt)]
    refused = [answer for answer in answers if isinstance(answer, Refusal)]
    assert {one.reason for one in refused} <= {"agent_deleted"}
    assert len(written) + len(refused) == 20
    assert all(desk.now(record).answer is Answer.ANSWERED for record in written), "no orphan waits for ever"


async def test_the_key_of_a_send_that_was_erased_is_told_so(desk: Desk) -> None:
    await desk.send("ann", "bob", key="k")
    await desk.delete("bob")
    assert (await desk.send("ann", "bob", key="k")).duplicate, "its record still stands"
    assert await desk.erase("bob")
    assert await reason_of(desk.send("ann", "bob", key="k")) == "agent_deleted"


# --- one transaction --------------------------------------------------------------------------------------------------

WRITES = ("put_tombstone", "move", "insert", "add_fact", "set_claim_state", "set_directory_position", "drop_agents")


@pytest.mark.requirement("mailbox.closing-is-one-transaction")
@pytest.mark.parametrize("write", WRITES)
async def test_a_step_that_fails_at_any_write_leaves_nothing_of_it(
    desk: Desk, path: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    await desk.request("ann", "bob")
    await desk.request("ann", "bob")
    await desk.taken("bob")
    await desk.request("bob", "cyd")
    await desk.receive("cyd")
    before, woken = rows(path), len(desk.woken)

    def breaks(*_: Any, **__: Any) -> None:
        raise InvariantBroken("as if")

    monkeypatch.setattr(SqliteTransaction, write, breaks)
    with pytest.raises(NotCommitted):
        await desk.delete("bob")
    monkeypatch.undo()
    assert rows(path) == before
    assert len(desk.woken) == woken
    await desk.send("ann", "bob")
    await desk.delete("bob")
    assert await reason_of(desk.send("ann", "bob")) == "agent_deleted"


@pytest.mark.requirement("mailbox.closing-is-one-transaction")
async def test_closing_again_changes_nothing_but_the_position(desk: Desk, path: Path) -> None:
    await desk.request("ann", "bob")
    await desk.delete("bob")
    before = rows(path)
    await desk.delete("bob")
    assert rows(path) == before


# --- erasure ----------------------------------------------------------------------------------------------------------


async def busy(desk: Desk) -> list[Record]:
    """Some of everything about bob; returns what he sent to others."""
    for text in ("one", "two"):
        await desk.send("ann", "bob", text)
    asked = await desk.request("ann", "bob")
    await desk.request("ann", "bob")
    page = await desk.receive("bob", limit=2)
    await desk.receive("bob", ack=page.ack_cursor, limit=1)
    await desk.reply("bob", asked)
    taken = await desk.taken("bob")
    await desk.release(taken.claim)
    await desk.taken("bob")
    await desk.open("bob", 2)
    await desk.store.submit(NotingReads(reads=[(DELETED, 1)]))
    told = (await desk.send("bob", "cyd", "stays", generation=2)).record
    mine = await desk.request("bob", "cyd", generation=2)
    await desk.reply("cyd", mine)
    return [told, mine]


@pytest.mark.requirement("mailbox.erasure-leaves-nothing-and-touches-nobody-else")
@pytest.mark.parametrize("size", [1, 2, 3, ERASED_ROWS_MAX])
async def test_nothing_of_it_is_left_and_everything_of_others_stays(desk: Desk, path: Path, size: int) -> None:
    sent = await busy(desk)
    await desk.delete("bob")
    steps = 1
    while not await desk.erase("bob", size):
        steps += 1
        await desk.restart()
    assert steps > 1 or size == ERASED_ROWS_MAX
    assert mentions(path, DELETED) == {}
    left = rows(path)
    assert not [row for row in left["record"] if row[5] == DELETED]
    assert {row[4] for row in left["record"] if row[5] == id16("cyd")} == {DELETED}
    assert [desk.now(record).record_id for record in sent] == [record.record_id for record in sent]
    known = {row[1] for row in left["record"]}
    assert {row[1] for row in left["fact"]} <= known
    assert left["claim"] == []
    (tombstone,) = desk.store.tombstones()
    assert (tombstone.agent_id, tombstone.project_id, tombstone.phase) == (DELETED, PROJECT, Phase.ERASED)


@pytest.mark.requirement("mailbox.erasure-is-bounded")
@pytest.mark.parametrize(("letters", "chunks"), [(2, 1), (3, 2), (4, 2)])
async def test_a_chunk_removes_as_many_rows_as_it_may_and_no_more(desk: Desk, letters: int, chunks: int) -> None:
    for _ in range(letters):
        await desk.send("ann", "bob")
    await desk.delete("bob")
    count = 0
    ended = False
    while not ended:
        standing = len(desk.store.read.received(DELETED, 2**62, 100))
        ended = await desk.erase("bob", 3)
        assert standing - len(desk.store.read.received(DELETED, 2**62, 100)) == min(3, standing)
        count += 1
    assert count == chunks


@pytest.mark.requirement("mailbox.erasure-leaves-nothing-and-touches-nobody-else")
async def test_cursors_of_others_stay_valid_over_closing_and_erasure(desk: Desk) -> None:
    await desk.send("bob", "ann", "first")
    page = await desk.receive("ann")
    await desk.send("bob", "ann", "second")
    await desk.delete("bob")
    assert await desk.erase("bob")
    await desk.restart()
    again = await desk.receive("ann", cursor=page.next_cursor, ack=page.ack_cursor)
    assert [record.body for record in again.records] == [b"second"]
    await desk.send("cyd", "ann", "third")
    last = await desk.receive("ann", cursor=again.next_cursor, ack=again.ack_cursor)
    assert [record.body for record in last.records] == [b"third"]


@pytest.mark.requirement("mailbox.erasure-leaves-nothing-and-touches-nobody-else")
async def test_a_number_that_was_erased_is_never_given_again(desk: Desk) -> None:
    await desk.send("cyd", "ann", "standing")
    newest = (await desk.send("ann", "bob")).record.sequence
    await desk.delete("bob")
    assert await desk.erase("bob")
    await desk.restart()
    assert (await desk.send("cyd", "ann")).record.sequence > newest


# --- what deletes nobody ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.a-restored-directory-erases-nothing")
async def test_a_whole_directory_that_does_not_name_an_agent_closes_nothing(desk: Desk, path: Path) -> None:
    request = await desk.request("ann", "bob")
    await desk.store.submit(a_step(5, whole=True))
    assert desk.now(request).answer is Answer.OPEN
    assert desk.store.tombstones() == []
    assert desk.store.directory()[0] == DirectoryPosition(epoch="epoch-1", revision=5)
    assert len(rows(path)["record"]) == 1


# --- more than one transaction may settle -----------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.closing-is-bounded")
@pytest.mark.parametrize(("requests", "left"), [(3, 0), (4, 0), (5, 1), (9, 5)])
async def test_what_is_beyond_one_transaction_is_settled_before_anything_is_erased(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, requests: int, left: int
) -> None:
    monkeypatch.setattr("fencepost_mailbox.usecases.delete.CLOSED_REQUESTS_MAX", 4)
    to_it = [await desk.request("ann", "bob") for _ in range(requests - 1)]
    from_it = await desk.request("bob", "cyd")
    await desk.delete("bob")
    assert await reason_of(desk.send("ann", "bob")) == "agent_deleted", "closed all the same"
    asked = [*to_it, from_it]
    assert sum(desk.now(record).answer is Answer.OPEN for record in asked) == left
    if left:
        desk.woken.clear()
        assert not await desk.erase("bob", 1)
        assert len(desk.store.read.received(DELETED, 2**62, 100)) == len(to_it), "nothing is removed before"
        assert desk.woken
    while not await desk.erase("bob", 2):
        pass
    assert len((await desk.receive("ann")).records) == len(to_it), "each requester has its answer"
    assert desk.now(from_it).answer is Answer.WITHDRAWN
