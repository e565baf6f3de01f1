"""What a deletion decides, what the mirror of the directory takes for one, and how it is carried to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.client import Sessions
from fencepost.errors import NotWritten, Refused
from fencepost_kit import faults
from fencepost_kit.ids import uuid_text
from fencepost_mailbox.directory import Mirror, Unreachable, Update
from fencepost_mailbox.domain.answers import AnswerEvent
from fencepost_mailbox.domain.deletion import (
    ERASED_ROWS_MAX,
    ERASURE_PAUSE_MS,
    Phase,
    end_of_sent,
    host_record_id,
    wants_notice,
)
from fencepost_mailbox.domain.refusals import AgentDeleted, NotFound, StorageError
from fencepost_mailbox.domain.values import MIRROR_AGE_MS_MAX, Delivery
from fencepost_mailbox.erasure import DELETIONS_OF_A_ROUND_MAX, TRY_AGAIN_MS_MAX, TRY_AGAIN_MS_MIN, Eraser
from fencepost_mailbox.sessions_link import SessionsLink
from fencepost_testing.clock import VirtualClock
from fencepost_testing.mailboxes import (
    EPOCH,
    OTHER_PROJECT,
    PROJECT,
    CountingMint,
    Desk,
    FakeSessions,
    a_credential,
    a_desk,
    a_record,
    an_agent,
    an_update,
    id16,
    until,
)

BOB = uuid_text(id16("bob"))
QUARANTINE_MS = 60_000  # of sessions, which no test of the mailbox imports


# --- what is decided --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.deleting-tells-whoever-works")
@pytest.mark.parametrize("delivery", [one for one in Delivery if one < Delivery.STORED])
def test_a_sent_request_is_taken_back_where_nobody_saw_it_and_else_its_recipient_is_told(delivery: Delivery) -> None:
    event = end_of_sent(a_record(delivery=delivery))
    unseen = delivery is Delivery.PENDING
    assert event is (AnswerEvent.WITHDRAW if unseen else AnswerEvent.ABANDON)
    assert wants_notice(event) is not unseen


@given(
    seeds=st.sets(st.binary(min_size=16, max_size=16), min_size=2, max_size=2),
    request=st.binary(min_size=16, max_size=16),
)
def test_the_hosts_records_have_ids_of_their_own_that_are_the_same_again(seeds: set[bytes], request: bytes) -> None:
    one, other = seeds
    assert host_record_id(one, request) == host_record_id(one, request)
    assert len({host_record_id(one, request), host_record_id(other, request), request}) == 3
    assert len(host_record_id(one, request)) == 16


def test_the_limits_of_an_erasure_are_small_enough_for_others_and_large_enough_to_end() -> None:
    assert 1 < ERASED_ROWS_MAX <= 1000
    assert 0 < ERASURE_PAUSE_MS <= 100
    assert TRY_AGAIN_MS_MIN < TRY_AGAIN_MS_MAX <= 10_000
    assert DELETIONS_OF_A_ROUND_MAX >= 1


# --- what the mirror takes for one ------------------------------------------------------------------------------------


class World:
    """A mirror and an eraser over a desk's store, following a directory that the test holds."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.sessions = FakeSessions()
        self.clock = VirtualClock()
        self.eraser = Eraser(
            store=desk.store, sessions=self.sessions, clock=self.clock, mint=CountingMint(5000), epoch=lambda: EPOCH
        )
        self.mirror = Mirror(
            store=desk.store,
            sessions=self.sessions,
            clock=self.clock,
            mint=CountingMint(1000),
            on_closed=self.eraser.news.set,
        )
        self.mirror.load()
        self.following = asyncio.ensure_future(self.mirror.follow(self.clock.sleep))
        self.erasing: asyncio.Task[None] | None = None

    async def hear(self, *updates: Update) -> None:
        before = len(self.sessions.confirmed)
        self.sessions.tell(*updates)
        await until(lambda: len(self.sessions.confirmed) >= before + len(updates) or self.following.done())

    def erase(self) -> None:
        self.erasing = asyncio.ensure_future(self.eraser.run(self.clock.sleep))

    async def close(self) -> None:
        tasks = [task for task in (self.following, self.erasing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def deleted(self) -> dict[bytes, Phase]:
        return {one.agent_id: one.phase for one in self.desk.store.tombstones()}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with a_desk(tmp_path / "m" / "mailbox.db", "ann", "bob") as desk:
        made = World(desk)
        await made.hear(whole(3, "ann", "bob"))
        try:
            yield made
        finally:
            await made.close()


@pytest.fixture
def armed() -> Iterator[None]:
    yield
    faults.arm("")


def whole(revision: int, *names: str, epoch: str = EPOCH, **changes: Any) -> Update:
    return an_update(
        revision,
        epoch=epoch,
        snapshot_begin=True,
        snapshot_end=True,
        agents=[an_agent(name, **changes) for name in names],
        credentials=[a_credential(name) for name in names],
    )


def deleting(revision: int = 4, **changes: Any) -> Update:
    return an_update(
        revision,
        agents=[an_agent("bob", deleting=True, revision=revision)],
        removed_credentials=[a_credential("bob").credential_id],
        **changes,
    )


@pytest.mark.requirement("mailbox.deleting-answers-whoever-waits")
@pytest.mark.parametrize("how", ["a change", "a whole directory", "a removal"])
async def test_an_agent_that_the_directory_calls_deleted_is_closed_with_the_step_that_says_so(
    world: World, how: str
) -> None:
    request = await world.desk.request("ann", "bob")
    step = {
        "a change": deleting(),
        "a whole directory": whole(4, "bob", deleting=True),
        "a removal": an_update(4, removed_agents=[id16("bob")]),
    }[how]
    await world.hear(step)
    assert world.deleted() == {id16("bob"): Phase.ERASING}
    assert world.desk.store.directory()[0].revision == 4
    assert world.desk.store.read.open_requests(id16("bob"), 10) == []
    assert world.desk.now(request).answer.name == "ANSWERED"
    assert world.eraser.news.is_set()


@pytest.mark.requirement("mailbox.a-restored-directory-erases-nothing")
@pytest.mark.parametrize(
    "how", ["another epoch", "another epoch's change", "an earlier state", "a whole one without it"]
)
async def test_a_directory_that_was_put_back_closes_and_erases_nothing(world: World, how: str) -> None:
    await world.desk.request("ann", "bob")
    if how == "another epoch":
        await world.hear(whole(9, "ann", epoch="another"))
        assert world.following.done()
    elif how == "another epoch's change":
        await world.hear(deleting(epoch="another"))
        assert world.following.done()
    elif how == "an earlier state":
        world.sessions.went_back = True
        world.sessions.cut()
        await until(lambda: world.clock.sleeping > 0 or world.following.done())
        await world.clock.advance(10)
        await until(world.following.done)
    else:
        await world.hear(whole(9, "ann"))
    world.erase()
    await asyncio.sleep(0)
    assert world.deleted() == {}
    assert len(world.desk.store.read.received(id16("bob"), 2**62, 10)) == 1
    assert world.sessions.finished == []


@pytest.mark.requirement("mailbox.deleted-agents-get-nothing-and-write-nothing")
async def test_a_deleted_target_is_refused_by_name_and_uuid_without_asking_and_over_restarts(world: World) -> None:
    await world.hear(deleting())
    for _ in range(2):
        for target in ("bob", BOB):
            with pytest.raises(AgentDeleted):
                await world.mirror.resolve(PROJECT, target)
        world.mirror.load()
    assert world.sessions.asked_agents == []
    await world.hear(an_update(5, removed_agents=[id16("bob")]))
    with pytest.raises(AgentDeleted):
        await world.mirror.resolve(PROJECT, BOB)
    with pytest.raises(NotFound):
        await world.mirror.resolve(OTHER_PROJECT, BOB)
    with pytest.raises(NotFound):
        await world.mirror.resolve(PROJECT, "bob")
    assert world.mirror.agent(id16("bob")) is None
    assert [agent.name for agent in world.desk.store.directory()[1]] == ["ann"]


@pytest.mark.requirement("mailbox.deleted-agents-get-nothing-and-write-nothing")
async def test_a_target_that_sessions_says_is_being_deleted_is_refused_before_the_stream_says_so(world: World) -> None:
    world.sessions.agents[PROJECT, "new"] = an_agent("new", deleting=True)
    with pytest.raises(AgentDeleted):
        await world.mirror.resolve(PROJECT, "new")


@pytest.mark.requirement("mailbox.renamed-agents-are-not-mistaken")
async def test_a_name_that_another_agent_has_now_means_that_one_also_after_a_deletion(world: World) -> None:
    await world.hear(deleting())
    await world.hear(an_update(5, removed_agents=[id16("bob")]))
    await world.hear(an_update(6, agents=[an_agent("bob", agent_id=id16("another"))]))
    assert (await world.mirror.resolve(PROJECT, "bob")).agent_id == id16("another")


# --- renaming ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.renamed-agents-are-not-mistaken")
async def test_an_old_name_is_refused_once_the_rename_is_heard_and_the_new_one_is_echoed(world: World) -> None:
    await world.hear(an_update(4, agents=[an_agent("rob", agent_id=id16("bob"), revision=4)]))
    with pytest.raises(NotFound):
        await world.mirror.resolve(PROJECT, "bob")
    assert (await world.mirror.resolve(PROJECT, "rob")).agent_id == id16("bob")
    assert (await world.mirror.resolve(PROJECT, BOB)).name == "rob"


@pytest.mark.requirement("mailbox.renamed-agents-are-not-mistaken")
async def test_a_mirror_that_did_not_hear_of_a_rename_asks_before_anybody_else_can_have_the_name(world: World) -> None:
    # Sessions gives a name to another agent after 60 s; a mirror answers for 30 s from the last it heard.
    assert MIRROR_AGE_MS_MAX < QUARANTINE_MS
    await world.clock.advance(MIRROR_AGE_MS_MAX / 1000)
    assert (await world.mirror.resolve(PROJECT, "bob")).agent_id == id16("bob"), "late, and never another agent"
    await world.clock.advance(0.001)
    with pytest.raises(NotFound):
        await world.mirror.resolve(PROJECT, "bob")
    assert world.sessions.asked_agents == [(PROJECT, "bob")]


# --- to the end -------------------------------------------------------------------------------------------------------


async def fill(world: World, letters: int) -> None:
    for _ in range(letters):
        await world.desk.send("ann", "bob")


@pytest.mark.requirement("mailbox.erasure-is-bounded")
async def test_an_erasure_goes_chunk_by_chunk_with_others_served_in_between_and_then_tells_sessions(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost_mailbox.erasure.ERASED_ROWS_MAX", 2)
    await fill(world, 5)
    world.erase()
    await world.hear(deleting())
    left = []
    for _ in range(2):
        await until(lambda: world.clock.sleeping > 0)
        left.append(len(world.desk.store.read.received(id16("bob"), 2**62, 10)))
        assert (await world.desk.send("ann", "ann")).record.sequence > 0
        await world.clock.advance(ERASURE_PAUSE_MS / 1000)
    assert left == [3, 1]
    await until(lambda: world.deleted() == {id16("bob"): Phase.FINISHED})
    assert world.sessions.finished == [(EPOCH, id16("bob"))]


@pytest.mark.requirement("mailbox.deletions-are-carried-to-their-end")
async def test_what_a_process_left_is_gone_on_with_by_the_next(world: World) -> None:
    await fill(world, 3)
    await world.hear(deleting())
    assert not await world.desk.erase("bob", 1)
    world.erase()
    await until(lambda: world.deleted() == {id16("bob"): Phase.FINISHED})
    assert world.desk.store.read.received(id16("bob"), 2**62, 10) == []


@pytest.mark.requirement("mailbox.deletions-are-carried-to-their-end")
async def test_sessions_that_is_away_is_told_once_it_is_back(world: World) -> None:
    await world.hear(deleting())
    world.sessions.down = True
    world.erase()
    await until(lambda: world.clock.sleeping > 0)
    assert world.deleted() == {id16("bob"): Phase.ERASED}
    world.sessions.down = False
    await world.clock.advance(TRY_AGAIN_MS_MIN / 1000)
    await until(lambda: world.deleted() == {id16("bob"): Phase.FINISHED})


@pytest.mark.requirement("mailbox.deletions-are-carried-to-their-end")
async def test_a_disk_that_refuses_a_chunk_stops_nothing_else_and_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.hear(deleting())
    real = world.desk.store.submit

    async def refusing(_operation: Any) -> Any:
        raise StorageError("full", state={"cause": "SQLITE_FULL"})

    monkeypatch.setattr(world.desk.store, "submit", refusing)
    world.erase()
    await until(lambda: world.clock.sleeping > 0)
    monkeypatch.setattr(world.desk.store, "submit", real)
    await world.clock.advance(TRY_AGAIN_MS_MIN / 1000)
    await until(lambda: world.deleted() == {id16("bob"): Phase.FINISHED})


@pytest.mark.requirement("mailbox.deletions-are-carried-to-their-end")
@pytest.mark.parametrize("point", ["mailbox.erasure.chunk", "mailbox.erasure.ended", "mailbox.deletion.told"])
async def test_an_erasure_that_breaks_at_any_step_is_gone_on_with(
    world: World, armed: None, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setattr("fencepost_mailbox.erasure.ERASED_ROWS_MAX", 2)
    await fill(world, 3)
    await world.hear(deleting())
    faults.arm(f"{point}=error")
    with pytest.raises(OSError, match="injected"):
        await asyncio.gather(world.eraser.round(), keep_moving(world.clock))
    faults.arm("")
    ended, _ = await asyncio.gather(world.eraser.round(), keep_moving(world.clock))
    assert ended
    assert world.deleted() == {id16("bob"): Phase.FINISHED}
    assert world.desk.store.read.received(id16("bob"), 2**62, 10) == []


async def keep_moving(clock: VirtualClock) -> None:
    """Let the pauses between chunks pass."""
    for _ in range(50):
        await asyncio.sleep(0.002)
        await clock.advance(ERASURE_PAUSE_MS / 1000)


class Refusing:
    """Sessions that answers the end of a deletion with one error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def finish_deletion(self, _epoch: str, _agent_id: str) -> None:
        raise self._error


@pytest.mark.requirement("mailbox.deletions-are-carried-to-their-end")
@pytest.mark.parametrize("reason", ["epoch_mismatch", "invalid_state", "permission_denied", "storage_error"])
async def test_a_refused_end_is_asked_for_again(reason: str) -> None:
    with pytest.raises(Unreachable):
        await SessionsLink(lambda: cast("Sessions", Refusing(Refused(reason, "no")))).finish_deletion("e", id16("bob"))


@pytest.mark.requirement("mailbox.deletions-are-carried-to-their-end")
async def test_an_end_that_is_lost_is_asked_for_again_and_an_agent_that_sessions_does_not_know_has_ended() -> None:
    lost = SessionsLink(lambda: cast("Sessions", Refusing(NotWritten("unreachable", "away"))))
    with pytest.raises(Unreachable):
        await lost.finish_deletion("e", id16("bob"))
    unknown = SessionsLink(lambda: cast("Sessions", Refusing(Refused("not_found", "no"))))
    await unknown.finish_deletion("e", id16("bob"))
