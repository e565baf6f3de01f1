"""The mirror of the directory: what it may answer by itself, what it must ask, and what it must not believe."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost_kit.identity import Role
from fencepost_kit.ids import uuid_text
from fencepost_kit.refusal import DependencyDown, Unauthenticated
from fencepost_mailbox import directory as module
from fencepost_mailbox.directory import LOOKUPS_MAX, Mirror
from fencepost_mailbox.domain.refusals import AmbiguousTarget, DirectoryStale, InvalidTarget, NotFound, StorageError
from fencepost_mailbox.domain.values import MIRROR_AGE_MS_MAX
from fencepost_mailbox.store.protocol import DirectoryPosition
from fencepost_mailbox.store.sqlite import SqliteStore
from fencepost_testing.clock import VirtualClock, settle
from fencepost_testing.mailboxes import (
    EPOCH,
    OTHER_PROJECT,
    PROJECT,
    WAIT_S_MAX,
    CountingMint,
    FakeSessions,
    a_credential,
    an_agent,
    an_update,
    id16,
    running_store,
    until,
)

BOB = uuid_text(id16("bob"))


class World:
    """A mirror over a real store, following a directory that the test holds."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.sessions = FakeSessions()
        self.clock = VirtualClock()
        self.mirror = Mirror(store=store, sessions=self.sessions, clock=self.clock, mint=CountingMint())
        self.mirror.load()
        self.following: asyncio.Task[None] | None = None

    def follow(self) -> None:
        self.following = asyncio.ensure_future(self.mirror.follow(self.clock.sleep))

    async def hear(self, *updates: module.Update) -> None:
        """Let the mirror take these, each of which it confirms."""
        before = len(self.sessions.confirmed)
        self.sessions.tell(*updates)
        if self.following is None:
            self.follow()
        await until(lambda: len(self.sessions.confirmed) >= before + len(updates))
        await settle()

    async def close(self) -> None:
        if self.following is not None:
            self.following.cancel()
            await asyncio.gather(self.following, return_exceptions=True)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running_store(tmp_path / "m" / "mailbox.db") as watched:
        made = World(watched.store)
        try:
            yield made
        finally:
            await made.close()


def snapshot(revision: int, *names: str, epoch: str = EPOCH) -> module.Update:
    return an_update(
        revision,
        epoch=epoch,
        snapshot_begin=True,
        snapshot_end=True,
        agents=[an_agent(name) for name in names],
        credentials=[a_credential(name) for name in names],
    )


def token(name: str) -> bytes:
    return a_credential(name).token_sha256


# --- what the mirror answers ------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.targets-are-exact")
async def test_an_exact_name_and_a_uuid_resolve_from_the_mirror(world: World) -> None:
    await world.hear(snapshot(3, "bob"))
    assert await world.mirror.resolve(PROJECT, "bob") == an_agent("bob")
    assert await world.mirror.resolve(PROJECT, BOB) == an_agent("bob")
    assert world.sessions.asked_agents == []


@pytest.mark.requirement("mailbox.a-negative-answer-is-asked-for")
async def test_a_name_that_the_mirror_does_not_know_is_asked_for_once(world: World) -> None:
    await world.hear(snapshot(3, "bob"))
    world.sessions.know("new")
    assert (await world.mirror.resolve(PROJECT, "new")).agent_id == id16("new")
    with pytest.raises(NotFound):
        await world.mirror.resolve(PROJECT, "nobody")
    assert world.sessions.asked_agents == [(PROJECT, "new"), (PROJECT, "nobody")]


@pytest.mark.requirement("mailbox.targets-are-exact")
async def test_a_near_miss_in_case_is_named_and_not_taken(world: World) -> None:
    await world.hear(snapshot(3, "Bob"))
    with pytest.raises(NotFound) as refused:
        await world.mirror.resolve(PROJECT, "bob")
    assert '"Bob"' in refused.value.hint
    assert refused.value.state == {"near": "Bob"}


async def test_agents_of_another_project_are_not_found_by_name_uuid_or_look_up(world: World) -> None:
    await world.hear(snapshot(3, "bob"))
    world.sessions.agents[OTHER_PROJECT, BOB] = an_agent("bob")
    world.sessions.agents[OTHER_PROJECT, "Bob"] = an_agent("bob")
    for target in ("bob", BOB, "Bob"):
        with pytest.raises(NotFound) as refused:
            await world.mirror.resolve(OTHER_PROJECT, target)
        assert not refused.value.state, "nothing of another project is named"


@pytest.mark.requirement("mailbox.a-negative-answer-is-asked-for")
@pytest.mark.parametrize("target", ["nobody", uuid_text(id16("nobody"))])
async def test_where_sessions_is_down_an_unknown_target_is_no_negative_answer(world: World, target: str) -> None:
    await world.hear(snapshot(3, "bob"))
    world.sessions.down = True
    with pytest.raises(DependencyDown) as refused:
        await world.mirror.resolve(PROJECT, target)
    assert refused.value.may_resend
    assert (await world.mirror.resolve(PROJECT, "bob")).name == "bob", "what is known is served meanwhile"


@pytest.mark.requirement("mailbox.a-negative-answer-is-asked-for")
async def test_a_look_up_that_hangs_ends_in_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKUP_MS_MAX", 20)
    world.sessions.hangs = True
    async with asyncio.timeout(WAIT_S_MAX):
        with pytest.raises(DependencyDown):
            await world.mirror.resolve(PROJECT, "bob")
        with pytest.raises(DependencyDown):
            await world.mirror.identify(token("bob"))


async def test_look_ups_beyond_the_limit_wait_their_turn_within_the_same_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKUP_MS_MAX", 1000)
    world.sessions.hangs = True
    asked = [asyncio.ensure_future(world.mirror.resolve(PROJECT, f"n{n}")) for n in range(LOOKUPS_MAX + 5)]
    await settle()
    # Looked at long before the first of them runs out of time and gives up its turn.
    assert len(world.sessions.asked_agents) == LOOKUPS_MAX
    async with asyncio.timeout(WAIT_S_MAX):
        answers = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(answer, DependencyDown) for answer in answers)
    world.sessions.hangs = False
    world.sessions.know("new")
    assert (await world.mirror.resolve(PROJECT, "new")).name == "new", "each turn was given back"
    gc.collect()  # a question that was made and never asked would be reported here


@pytest.mark.parametrize("refusal", [AmbiguousTarget("several"), InvalidTarget("no")])
async def test_what_sessions_refuses_is_passed_on(world: World, refusal: Exception) -> None:
    world.sessions.refusing = refusal
    with pytest.raises(type(refusal)):
        await world.mirror.resolve(PROJECT, "bob")


@pytest.mark.requirement("mailbox.targets-are-exact")
@pytest.mark.parametrize("target", ["", " bob", "all", "*", "class:x", "n" * 65])
async def test_a_malformed_target_is_refused_without_asking_anybody(world: World, target: str) -> None:
    with pytest.raises(InvalidTarget):
        await world.mirror.resolve(PROJECT, target)
    assert world.sessions.asked_agents == []


# --- credentials ------------------------------------------------------------------------------------------------------


async def test_a_credential_in_the_mirror_identifies_without_asking(world: World) -> None:
    await world.hear(snapshot(3, "bob"))
    world.sessions.down = True
    caller = await world.mirror.identify(token("bob"))
    assert (caller.agent_id, caller.project_id, caller.generation) == (id16("bob"), PROJECT, 1)
    assert world.sessions.asked_credentials == []


@pytest.mark.requirement("mailbox.a-negative-answer-is-asked-for")
async def test_an_unknown_credential_is_asked_for_and_not_remembered(world: World) -> None:
    await world.hear(snapshot(3, "bob"))
    world.sessions.know("new")
    for _ in range(2):
        assert (await world.mirror.identify(token("new"))).label == "new"
    assert world.sessions.asked_credentials == [token("new")] * 2
    world.sessions.credentials.clear()
    with pytest.raises(Unauthenticated):
        await world.mirror.identify(token("new"))
    world.sessions.down = True
    with pytest.raises(DependencyDown):
        await world.mirror.identify(token("new"))


@pytest.mark.requirement("mailbox.a-revoked-credential-is-gone")
async def test_a_removed_credential_is_gone_and_stays_gone(world: World) -> None:
    await world.hear(snapshot(3, "bob", "eve"))
    await world.hear(an_update(4, removed_credentials=[a_credential("bob").credential_id]))
    with pytest.raises(Unauthenticated):
        await world.mirror.identify(token("bob"))
    assert (await world.mirror.identify(token("eve"))).label == "eve"
    world.mirror.load()
    with pytest.raises(Unauthenticated):
        await world.mirror.identify(token("bob"))


@pytest.mark.requirement("mailbox.a-revoked-credential-is-gone")
async def test_a_credential_given_another_token_answers_to_the_new_one_only(world: World) -> None:
    await world.hear(snapshot(3, "bob"))
    await world.hear(an_update(4, credentials=[a_credential("bob", token_sha256=b"n" * 32)]))
    assert (await world.mirror.identify(b"n" * 32)).label == "bob"
    with pytest.raises(Unauthenticated):
        await world.mirror.identify(token("bob"))


async def test_removing_a_credential_that_is_not_there_is_harmless(world: World) -> None:
    await world.hear(snapshot(3, "bob"))
    await world.hear(an_update(4, removed_credentials=[id16("never seen")]))
    assert (await world.mirror.identify(token("bob"))).label == "bob"


@pytest.mark.parametrize("role", Role)
async def test_every_role_is_identified(world: World, role: Role) -> None:
    await world.hear(an_update(1, credentials=[a_credential("x", role=role)]))
    caller = await world.mirror.identify(token("x"))
    assert caller.role is role
    assert (caller.agent_id is None) == (role in (Role.OPERATOR, Role.SERVICE))


# --- age --------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.a-stale-directory-resolves-no-name")
async def test_a_mirror_that_has_never_heard_sessions_resolves_no_name_and_honours_no_operator(world: World) -> None:
    await world.hear(snapshot(3, "bob"))
    await world.close()
    again = Mirror(store=world.store, sessions=world.sessions, clock=world.clock, mint=CountingMint())
    again.load()
    world.sessions.down = True
    with pytest.raises(DependencyDown):
        await again.resolve(PROJECT, "bob")
    with pytest.raises(DirectoryStale):
        again.check_fresh()
    assert (await again.resolve(PROJECT, BOB)).name == "bob", "a UUID never means another agent"
    assert (await again.identify(token("bob"))).label == "bob", "who holds a credential was durable"


@pytest.mark.requirement("mailbox.a-stale-directory-resolves-no-name")
async def test_after_its_time_the_mirror_asks_for_names_and_honours_no_operator(world: World) -> None:
    await world.hear(snapshot(3, "bob"))
    await world.clock.advance(MIRROR_AGE_MS_MAX / 1000)
    world.mirror.check_fresh()
    assert (await world.mirror.resolve(PROJECT, "bob")).name == "bob"
    assert world.sessions.asked_agents == []
    await world.clock.advance(0.001)
    with pytest.raises(DirectoryStale):
        world.mirror.check_fresh()
    with pytest.raises(NotFound):
        await world.mirror.resolve(PROJECT, "bob")
    assert world.sessions.asked_agents == [(PROJECT, "bob")], "sessions knows whether the name is given to another now"
    world.sessions.down = True
    with pytest.raises(DependencyDown):
        await world.mirror.resolve(PROJECT, "bob")
    assert (await world.mirror.resolve(PROJECT, BOB)).name == "bob"


@pytest.mark.requirement("mailbox.a-stale-directory-resolves-no-name")
async def test_every_message_of_the_stream_makes_the_mirror_young_again(world: World) -> None:
    await world.hear(snapshot(3, "bob"))
    await world.clock.advance(MIRROR_AGE_MS_MAX / 1000)
    await world.hear(an_update(3))
    await world.clock.advance(MIRROR_AGE_MS_MAX / 1000)
    world.mirror.check_fresh()


# --- following --------------------------------------------------------------------------------------------------------


def persisted(store: SqliteStore) -> tuple[DirectoryPosition, set[str], set[str]]:
    position, agents, credentials = store.directory()
    return position, {agent.name for agent in agents}, {credential.label for credential in credentials}


@pytest.mark.requirement("mailbox.the-directory-is-durable-before-it-is-honoured")
async def test_a_step_is_durable_when_it_is_confirmed(world: World) -> None:
    await world.hear(snapshot(3, "bob"))
    await world.hear(an_update(4, agents=[an_agent("eve")], credentials=[a_credential("eve")]))
    assert world.sessions.confirmed == [DirectoryPosition(epoch=EPOCH, revision=n) for n in (3, 4)]
    assert persisted(world.store) == (DirectoryPosition(epoch=EPOCH, revision=4), {"bob", "eve"}, {"bob", "eve"})
    assert world.mirror.position == DirectoryPosition(epoch=EPOCH, revision=4)
    assert world.mirror.fresh()


async def test_a_heartbeat_is_confirmed_and_writes_nothing(world: World) -> None:
    await world.hear(snapshot(3, "bob"))
    before = world.store.counters.operations
    await world.hear(an_update(3), an_update(3))
    assert len(world.sessions.confirmed) == 3
    assert world.store.counters.operations == before


@pytest.mark.requirement("mailbox.the-directory-is-durable-before-it-is-honoured")
async def test_a_snapshot_replaces_everything_at_its_end_and_nothing_before(world: World) -> None:
    await world.hear(snapshot(3, "bob", "eve"))
    world.sessions.tell(
        an_update(9, snapshot_begin=True, agents=[an_agent("eve"), an_agent("new")]),
        an_update(9, credentials=[a_credential("new")]),
    )
    await settle()
    assert persisted(world.store)[0].revision == 3
    assert (await world.mirror.resolve(PROJECT, "bob")).name == "bob"
    assert (await world.mirror.identify(token("bob"))).label == "bob"
    await world.hear(an_update(9, snapshot_end=True, credentials=[a_credential("eve")]))
    assert persisted(world.store) == (DirectoryPosition(epoch=EPOCH, revision=9), {"eve", "new"}, {"eve", "new"})
    with pytest.raises(NotFound):
        await world.mirror.resolve(PROJECT, "bob")
    with pytest.raises(Unauthenticated):
        await world.mirror.identify(token("bob"))


@pytest.mark.requirement("mailbox.the-directory-is-durable-before-it-is-honoured")
async def test_a_snapshot_that_was_cut_leaves_nothing_behind(world: World) -> None:
    await world.hear(snapshot(3, "bob"))
    world.sessions.tell(an_update(9, snapshot_begin=True, agents=[an_agent("ghost")]))
    world.sessions.cut()
    await settle()
    await world.clock.advance(1)
    await world.hear(snapshot(9, "eve"))
    assert persisted(world.store)[1] == {"eve"}
    assert world.sessions.watched_from[-1] == DirectoryPosition(epoch=EPOCH, revision=3)


@pytest.mark.requirement("mailbox.another-directory-changes-nothing")
@pytest.mark.parametrize(
    "foreign",
    [
        snapshot(9, "mallory", epoch="restored"),
        an_update(9, epoch="restored", agents=[an_agent("mallory")], credentials=[a_credential("mallory")]),
        an_update(9, epoch="restored", removed_credentials=[a_credential("bob").credential_id]),
        an_update(3, epoch=""),
    ],
)
async def test_another_epoch_ends_the_following_and_changes_nothing(world: World, foreign: module.Update) -> None:
    await world.hear(snapshot(3, "bob"))
    world.sessions.tell(foreign)
    assert world.following is not None
    async with asyncio.timeout(WAIT_S_MAX):
        await world.following
    assert persisted(world.store) == (DirectoryPosition(epoch=EPOCH, revision=3), {"bob"}, {"bob"})
    assert (await world.mirror.identify(token("bob"))).label == "bob"
    assert len(world.sessions.confirmed) == 1
    await world.clock.advance(MIRROR_AGE_MS_MAX / 1000 + 1)
    with pytest.raises(DirectoryStale):
        world.mirror.check_fresh()


@pytest.mark.requirement("mailbox.a-directory-that-went-back-is-not-followed")
async def test_an_earlier_state_of_the_directory_ends_the_following_and_changes_nothing(world: World) -> None:
    await world.hear(snapshot(3, "bob"))
    world.sessions.went_back = True
    world.sessions.cut()
    await settle()
    await world.clock.advance(1)
    assert world.following is not None
    async with asyncio.timeout(WAIT_S_MAX):
        await world.following
    assert persisted(world.store) == (DirectoryPosition(epoch=EPOCH, revision=3), {"bob"}, {"bob"})


async def test_a_lost_stream_is_opened_again_from_the_place_reached_with_growing_pauses(world: World) -> None:
    await world.hear(snapshot(3, "bob"))
    world.sessions.down = True
    world.sessions.cut()
    await settle()
    for _ in range(200):
        await world.clock.advance(0.05)
    tries = len(world.sessions.watched_from)
    assert 6 <= tries <= 15, "ten seconds of pauses that grow to two"
    assert set(world.sessions.watched_from[1:]) == {DirectoryPosition(epoch=EPOCH, revision=3)}
    world.sessions.down = False
    await world.clock.advance(2)
    await world.hear(an_update(4, agents=[an_agent("eve")]))
    assert (await world.mirror.resolve(PROJECT, "eve")).name == "eve"


async def test_a_confirmation_that_is_lost_does_not_end_the_following(world: World) -> None:
    await world.hear(snapshot(3, "bob"))
    world.sessions.down = True
    world.sessions.tell(an_update(4, agents=[an_agent("eve")]))
    await until(lambda: persisted(world.store)[0].revision == 4)
    world.sessions.down = False
    await world.hear(an_update(5, agents=[an_agent("dan")]))
    assert world.sessions.confirmed[-1].revision == 5


@pytest.mark.requirement("mailbox.a-full-disk-refuses-and-goes-on")
async def test_a_step_that_the_disk_refuses_is_asked_for_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.hear(snapshot(3, "bob"))
    real, refused = world.store.submit, 0

    async def submit(operation: object) -> object:
        nonlocal refused
        refused += 1
        if refused <= 2:
            raise StorageError("full", state={"cause": "SQLITE_FULL"})
        return await real(operation)  # type: ignore[arg-type]

    monkeypatch.setattr(world.store, "submit", submit)
    step = an_update(4, agents=[an_agent("eve")])
    world.sessions.tell(step)
    await settle()
    assert world.mirror.position.revision == 3
    assert world.following is not None
    assert not world.following.done()
    for _ in range(2):
        world.sessions.tell(step)
        await world.clock.advance(2)
    await until(lambda: world.mirror.position.revision == 4)
    assert set(world.sessions.watched_from[1:]) == {DirectoryPosition(epoch=EPOCH, revision=3)}


async def test_a_stream_that_was_left_is_closed(world: World) -> None:
    await world.hear(snapshot(3, "bob"))
    assert world.sessions.open_streams == 1
    await world.close()
    await settle()
    assert world.sessions.open_streams == 0


async def test_a_renamed_agent_answers_to_its_new_name_only(world: World) -> None:
    await world.hear(snapshot(3, "bob"))
    await world.hear(an_update(4, agents=[an_agent("robert", agent_id=id16("bob"))]))
    assert (await world.mirror.resolve(PROJECT, "robert")).agent_id == id16("bob")
    with pytest.raises(NotFound):
        await world.mirror.resolve(PROJECT, "bob")


async def test_a_name_that_passed_to_another_agent_means_the_other_in_whatever_order_it_is_told(world: World) -> None:
    await world.hear(snapshot(3, "bob", "eve"))
    moved = [an_agent("bob", agent_id=id16("eve")), an_agent("robert", agent_id=id16("bob"))]
    await world.hear(an_update(4, agents=moved))
    assert (await world.mirror.resolve(PROJECT, "bob")).agent_id == id16("eve")
    await world.hear(an_update(5, agents=list(reversed(moved))))
    assert (await world.mirror.resolve(PROJECT, "bob")).agent_id == id16("eve")
    assert (await world.mirror.resolve(PROJECT, "robert")).agent_id == id16("bob")
    with pytest.raises(NotFound):
        await world.mirror.resolve(PROJECT, "eve")
