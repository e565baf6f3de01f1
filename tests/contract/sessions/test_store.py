"""What every store of the directory promises to the use cases."""

from __future__ import annotations

import asyncio
import errno
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fencepost_kit.groupcommit import NotCommitted
from fencepost_sessions.domain.agents import Agent
from fencepost_sessions.domain.credentials import HOME_CREDENTIALS, Credential, Minted, credential_of_home
from fencepost_sessions.domain.idempotency import Key, idempotency_key
from fencepost_sessions.domain.limits import (
    CHANGES_PER_MESSAGE_MAX,
    IDEMPOTENCY_DROPPED_ROWS_MAX,
    IDEMPOTENCY_KEPT_MS,
    REMOVALS_KEPT_MAX,
)
from fencepost_sessions.domain.names import ReleasedName, agent_name
from fencepost_sessions.domain.paging import NAME_START, NUMBER_START, NamePosition, NumberPosition
from fencepost_sessions.domain.projects import Project, ProjectKind
from fencepost_sessions.domain.refusals import NotFound, StorageError
from fencepost_sessions.domain.roles import Role
from fencepost_sessions.store.protocol import Reading, Store, Writing

NOW = 1_800_000_000_000
OPERATOR, MAILBOX = HOME_CREDENTIALS[:2]


@dataclass(frozen=True)
class Doing:
    """An operation made of a function."""

    act: Callable[[Writing], Any]

    def apply(self, tx: Writing, /) -> Any:
        return self.act(tx)


def an_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def a_project(number: int = 1) -> Project:
    return Project(
        project_id=an_id(number),
        number=number,
        kind=ProjectKind.GIT,
        location=f"/p/{number}/.git",
        name=f"p{number}",
        created_at_ms=NOW + number,
    )


def an_agent(name: str, *, number: int, project: int = 1, revision: int = 1) -> Agent:
    accepted = agent_name(name)
    return Agent(
        agent_id=an_id(1000 + number),
        project_id=an_id(project),
        name=accepted.text,
        name_key=accepted.key,
        role=Role.AGENT,
        provider="codex",
        workspace="/w",
        generation=1,
        created_at_ms=NOW,
        revision=revision,
    )


def a_credential(agent: Agent | None, *, number: int, generation: int = 1, revision: int = 1) -> Credential:
    return Credential(
        credential_id=an_id(2000 + number),
        agent_id=None if agent is None else agent.agent_id,
        project_id=None if agent is None else agent.project_id,
        role=Role.SERVICE if agent is None else agent.role,
        generation=0 if agent is None else generation,
        token_sha256=hashlib.sha256(str(number).encode()).digest(),
        created_at_ms=NOW,
        appeared_revision=revision,
        revision=revision,
        label="mailbox" if agent is None else agent.name,
    )


async def do(store: Store, act: Callable[[Writing], Any]) -> Any:
    return await store.commit(Doing(act))


async def insert(store: Store, *values: Project | Agent | Credential) -> None:
    def act(tx: Writing) -> None:
        for value in values:
            if isinstance(value, Project):
                tx.insert_project(value)
            elif isinstance(value, Agent):
                tx.insert_agent(value)
            else:
                tx.insert_credential(value)

    await do(store, act)


def read(store: Store, question: Callable[[Reading], Any]) -> Any:
    return store.read(question)


# --- the directory itself --------------------------------------------------------------------------------------------


async def test_a_new_directory_has_an_epoch_and_no_revision(store: Store) -> None:
    directory = read(store, lambda r: r.directory())
    assert len(directory.epoch) == 16
    assert (directory.revision, directory.floor) == (0, 0)
    assert store.schema_version >= 1


async def test_opening_again_keeps_epoch_revision_and_rows(backend: Any) -> None:
    store = backend.store
    await insert(store, a_project(), an_agent("ann", number=1))
    await do(store, lambda tx: tx.next_revision())
    before = read(store, lambda r: r.directory())
    store = await backend.reopen()
    assert read(store, lambda r: r.directory()) == before
    assert read(store, lambda r: r.agent(an_id(1001))) == an_agent("ann", number=1)


async def test_revisions_count_by_one_over_operations(store: Store) -> None:
    assert [await do(store, lambda tx: tx.next_revision()) for _ in range(3)] == [1, 2, 3]


async def test_a_refusal_writes_nothing_and_leaves_its_companions_in_the_batch(store: Store) -> None:
    def refusing(tx: Writing) -> None:
        tx.next_revision()
        tx.insert_project(a_project())
        raise NotFound("no")

    outcomes = await asyncio.gather(
        do(store, lambda tx: tx.next_revision()),
        do(store, refusing),
        do(store, lambda tx: tx.next_revision()),
        return_exceptions=True,
    )
    assert outcomes[0] == 1
    assert isinstance(outcomes[1], NotFound)
    assert outcomes[2] == 2
    assert read(store, lambda r: r.project_count()) == 0


async def test_an_error_of_the_disk_is_refused_as_not_written(store: Store) -> None:
    def failing(tx: Writing) -> None:
        tx.insert_project(a_project())
        raise OSError(errno.ENOSPC, "no room")

    with pytest.raises(StorageError) as refused:
        await do(store, failing)
    assert refused.value.may_resend
    assert read(store, lambda r: r.project_count()) == 0


async def test_a_mistake_of_ours_is_no_refusal_and_writes_nothing(store: Store) -> None:
    def failing(tx: Writing) -> None:
        tx.insert_project(a_project())
        raise ZeroDivisionError

    with pytest.raises(NotCommitted):
        await do(store, failing)
    assert read(store, lambda r: r.project_count()) == 0


async def test_each_durable_change_rings_before_its_caller_is_answered(store: Store, rang: list[None]) -> None:
    rang.clear()
    await do(store, lambda tx: tx.next_revision())
    assert rang


async def test_a_question_sees_one_state(store: Store) -> None:
    await do(store, lambda tx: tx.next_revision())

    def question(reading: Reading) -> tuple[int, int]:
        return reading.directory().revision, reading.project_count()

    assert read(store, question) == (1, 0)


async def test_a_question_that_raises_ends_its_reading(store: Store) -> None:
    def question(_reading: Reading) -> None:
        raise NotFound("no")

    with pytest.raises(NotFound):
        read(store, question)
    await do(store, lambda tx: tx.next_revision())
    assert read(store, lambda r: r.directory()).revision == 1


# --- projects and agents ---------------------------------------------------------------------------------------------


async def test_projects_are_found_and_listed_oldest_first(store: Store) -> None:
    await insert(store, a_project(1), a_project(2), a_project(3))
    assert read(store, lambda r: r.project(an_id(2))) == a_project(2)
    assert read(store, lambda r: r.project_at("/p/3/.git")) == a_project(3)
    assert read(store, lambda r: r.project(an_id(9))) is None
    assert read(store, lambda r: r.project_at("/p")) is None
    first = read(store, lambda r: r.projects(after=NUMBER_START, rows=2))
    assert first == [a_project(1), a_project(2)]
    after = NumberPosition(number=2, row_id=an_id(2))
    assert read(store, lambda r: r.projects(after=after, rows=2)) == [a_project(3)]


async def test_agents_are_found_by_id_and_by_key(store: Store) -> None:
    ann, other = an_agent("Ann", number=1), an_agent("ann", number=2, project=2)
    await insert(store, a_project(1), a_project(2), ann, other)
    assert read(store, lambda r: r.agent(ann.agent_id)) == ann
    assert read(store, lambda r: r.agents_of_key("ann", project_id=None, rows=9)) == [ann, other]
    assert read(store, lambda r: r.agents_of_key("ann", project_id=an_id(2), rows=9)) == [other]
    assert read(store, lambda r: r.agents_of_key("ann", project_id=None, rows=1)) == [ann]
    assert read(store, lambda r: r.agents_of_key("Ann", project_id=None, rows=9)) == []
    assert read(store, lambda r: r.agent_count(an_id(1))) == 1


async def test_agents_are_listed_by_name_across_pages_without_gap_or_repeat(store: Store) -> None:
    names = ["zoe", "Ann", "bob", "Zed", "émile", "ann b"]
    agents = [an_agent(name, number=number) for number, name in enumerate(names)]
    twins = [an_agent(name, number=50 + number, project=2) for number, name in enumerate(names[:3])]
    await insert(store, a_project(1), a_project(2), *agents, *twins)
    for project, expected in ((an_id(1), agents), (None, [*agents, *twins])):
        listed: list[Agent] = []
        after = NAME_START
        while page := store.read(lambda r, a=after, p=project: r.agents(project_id=p, after=a, rows=2)):  # type: ignore[misc]
            listed += page
            after = NamePosition(key=page[-1].name_key, row_id=page[-1].agent_id)
        assert listed == sorted(expected, key=lambda agent: (agent.name_key.encode(), agent.agent_id))


async def test_one_project_never_holds_one_key_twice(store: Store) -> None:
    await insert(store, a_project(), an_agent("Ann", number=1))
    with pytest.raises(StorageError):
        await insert(store, an_agent("ANN", number=2))


async def test_an_agent_is_replaced_only_as_it_was_read(store: Store) -> None:
    ann = an_agent("ann", number=1)
    await insert(store, a_project(), ann)
    after = replace(ann, name="Bob", name_key="bob", role=Role.COORDINATOR, generation=2, revision=2)
    await do(store, lambda tx: tx.update_agent(ann, after))
    assert read(store, lambda r: r.agent(ann.agent_id)) == after
    with pytest.raises(NotCommitted):
        await do(store, lambda tx: tx.update_agent(ann, replace(ann, revision=3)))
    assert read(store, lambda r: r.agent(ann.agent_id)) == after


async def test_every_character_comes_back_byte_for_byte(store: Store) -> None:
    odd = replace(a_project(), location="/a\r\n\x1b\t\u0085\U0001f600", name="n\u0301\U0001f600")
    await insert(store, odd)
    assert read(store, lambda r: r.project_at(odd.location)) == odd


# --- released names --------------------------------------------------------------------------------------------------


async def test_the_last_release_of_a_name_is_remembered_until_it_is_dropped(store: Store) -> None:
    project = an_id(1)
    for agent, moment in ((b"a" * 16, 1), (b"b" * 16, 2)):
        released = ReleasedName(key="ann", agent_id=agent, released_at_ms=moment)
        await do(store, lambda tx, one=released: tx.put_released_name(project, one))  # type: ignore[misc]
    assert read(store, lambda r: r.released_name(project, "ann")) == released
    assert read(store, lambda r: r.released_name(an_id(2), "ann")) is None
    await do(store, lambda tx: tx.drop_released_names_until(1))
    assert read(store, lambda r: r.released_name(project, "ann")) == released
    await do(store, lambda tx: tx.drop_released_names_until(2))
    assert read(store, lambda r: r.released_name(project, "ann")) is None
    await do(store, lambda tx: tx.drop_released_name(project, "ann"))


async def test_releases_in_the_future_are_moved_to_now(store: Store) -> None:
    for key, moment in (("past", NOW - 1), ("now", NOW), ("future", NOW + 1)):
        released = ReleasedName(key=key, agent_id=b"a" * 16, released_at_ms=moment)
        await do(store, lambda tx, one=released: tx.put_released_name(an_id(1), one))  # type: ignore[misc]
    assert await do(store, lambda tx: tx.restart_quarantines_after(NOW)) == 1
    moments = [read(store, lambda r, k=key: r.released_name(an_id(1), k)) for key in ("past", "now", "future")]  # type: ignore[misc]
    assert [one.released_at_ms for one in moments] == [NOW - 1, NOW, NOW]


# --- credentials -----------------------------------------------------------------------------------------------------


async def test_credentials_are_found_by_id_token_agent_and_kind(store: Store) -> None:
    ann = an_agent("ann", number=1)
    old, new = a_credential(ann, number=1), a_credential(ann, number=2, generation=2, revision=2)
    home = credential_of_home(MAILBOX, Minted(credential_id=an_id(9), token_sha256=b"m" * 32, now_ms=NOW), revision=3)
    await insert(store, a_project(), ann, new, old, home)
    assert read(store, lambda r: r.credential(an_id(9))) == home
    assert read(store, lambda r: r.credential_of_token(new.token_sha256)) == new
    assert read(store, lambda r: r.credential_of_token(bytes(32))) is None
    assert read(store, lambda r: r.credentials_of_agent(ann.agent_id)) == [old, new]
    assert read(store, lambda r: r.credentials_of_home(Role.SERVICE, "mailbox")) == [home]
    assert read(store, lambda r: r.credentials_of_home(Role.SERVICE, "ann")) == []
    assert read(store, lambda r: r.credentials_of_home(OPERATOR.role, "mailbox")) == []


async def test_one_token_never_stands_for_two(store: Store) -> None:
    one = a_credential(None, number=1)
    await insert(store, one)
    with pytest.raises(StorageError):
        await insert(store, replace(one, credential_id=an_id(5)))


async def test_credentials_are_listed_oldest_first_across_pages(store: Store) -> None:
    ann = an_agent("ann", number=1)
    many = [a_credential(ann, number=number, revision=10 - number // 2) for number in range(7)]
    other = a_credential(None, number=99, revision=4)
    await insert(store, a_project(), ann, *many, other)
    for agent_id, expected in ((ann.agent_id, many), (None, [*many, other])):
        listed: list[Credential] = []
        after = NUMBER_START
        while page := store.read(lambda r, a=after, i=agent_id: r.credentials(agent_id=i, after=a, rows=2)):  # type: ignore[misc]
            listed += page
            after = NumberPosition(number=page[-1].appeared_revision, row_id=page[-1].credential_id)
        assert listed == sorted(expected, key=lambda one: (one.appeared_revision, one.credential_id))


@pytest.mark.requirement("sessions.credentials-follow-the-role")
async def test_every_credential_of_an_agent_follows_its_role(store: Store) -> None:
    ann, bob = an_agent("ann", number=1), an_agent("bob", number=2)
    await insert(store, a_project(), ann, bob, a_credential(ann, number=1), a_credential(ann, number=2))
    await insert(store, a_credential(bob, number=3))
    await do(store, lambda tx: tx.follow_role(replace(ann, role=Role.COORDINATOR, revision=7)))
    assert {(one.role, one.revision, one.appeared_revision) for one in of(store, ann)} == {(Role.COORDINATOR, 7, 1)}
    assert {(one.role, one.revision) for one in of(store, bob)} == {(Role.AGENT, 1)}


def of(store: Store, agent: Agent) -> list[Credential]:
    return list(store.read(lambda r: r.credentials_of_agent(agent.agent_id)))


async def test_a_removed_credential_is_gone_and_its_removal_is_remembered(store: Store) -> None:
    one = a_credential(None, number=1)
    await insert(store, one)
    await do(store, lambda tx: tx.remove_credentials([one], revision=8))
    assert read(store, lambda r: r.credential(one.credential_id)) is None
    assert read(store, lambda r: r.credential_of_token(one.token_sha256)) is None
    removal = read(store, lambda r: r.removal(one.credential_id))
    assert (removal.credential_id, removal.revision) == (one.credential_id, 8)
    with pytest.raises(NotCommitted):
        await do(store, lambda tx: tx.remove_credentials([one], revision=9))


@pytest.mark.requirement("sessions.followers-miss-nothing")
async def test_removals_beyond_the_most_are_forgotten_and_raise_the_floor(store: Store) -> None:
    def removing(number: int) -> Callable[[Writing], None]:
        def act(tx: Writing) -> None:
            one = a_credential(None, number=number)
            tx.insert_credential(one)
            tx.remove_credentials([one], revision=number)

        return act

    def filling(tx: Writing) -> None:
        many = [a_credential(None, number=number) for number in range(1, REMOVALS_KEPT_MAX + 1)]
        for one in many:
            tx.insert_credential(one)
        for number, one in enumerate(many[:-1], start=1):
            # In two revisions each, so that the floor has to stand between them.
            tx.remove_credentials([one], revision=(number + 1) // 2)

    await do(store, filling)
    await do(store, removing(REMOVALS_KEPT_MAX + 10))
    assert read(store, lambda r: r.directory()).floor == 0
    assert read(store, lambda r: r.removal(an_id(2001))) is not None
    await do(store, removing(REMOVALS_KEPT_MAX + 11))
    assert read(store, lambda r: r.directory()).floor == 1
    assert read(store, lambda r: r.removal(an_id(2001))) is None
    assert read(store, lambda r: r.removal(an_id(2002))) is None
    assert read(store, lambda r: r.removal(an_id(2003))) is not None


# --- what followers read ---------------------------------------------------------------------------------------------


async def test_changes_come_in_revision_order_from_after_a_revision(store: Store) -> None:
    agents = [an_agent(f"a{number}", number=number, revision=number) for number in (3, 1, 2)]
    credentials = [a_credential(agents[0], number=number, revision=number) for number in (5, 4)]
    await insert(store, a_project(), *agents, *credentials, a_credential(None, number=77))
    await do(store, lambda tx: tx.remove_credentials([a_credential(None, number=77)], revision=6))
    changes = read(store, lambda r: r.changes_after(1, rows=CHANGES_PER_MESSAGE_MAX))
    assert [row.revision for row in changes.agents] == [2, 3]
    assert [row.revision for row in changes.credentials] == [4, 5]
    assert [(row.credential_id, row.revision) for row in changes.removals] == [(an_id(2077), 6)]
    assert len(read(store, lambda r: r.changes_after(0, rows=2)).agents) == 2


async def test_a_snapshot_walks_ids_once_each(store: Store) -> None:
    agents = [an_agent(f"a{number}", number=number) for number in range(5)]
    credentials = [a_credential(agents[0], number=number) for number in range(5)]
    await insert(store, a_project(), *agents, *credentials)
    assert read(store, lambda r: r.agents_after_id(b"", rows=3)) == agents[:3]
    assert read(store, lambda r: r.agents_after_id(agents[2].agent_id, rows=3)) == agents[3:]
    assert read(store, lambda r: r.credentials_after_id(credentials[2].credential_id, rows=9)) == credentials[3:]


# --- idempotency keys ------------------------------------------------------------------------------------------------


def a_key(key: str, *, scope: bytes = b"s" * 16, operation: str = "X", content: str = "c") -> Key:
    return idempotency_key(scope=scope, operation=operation, key=key, content=(content,))


@pytest.mark.requirement("sessions.keys-have-one-answer")
async def test_an_answer_is_kept_by_caller_operation_and_key(store: Store) -> None:
    key = a_key("k\0é")
    await do(store, lambda tx: tx.remember(key, {"n": 1, "s": "\0é"}, now_ms=NOW))
    found = read(store, lambda r: r.first_answer(a_key("k\0é", content="other")))
    assert (found.content_sha256, dict(found.answer)) == (key.content_sha256, {"n": 1, "s": "\0é"})
    for other in (a_key("k"), a_key("k\0é", scope=b"t" * 16), a_key("k\0é", operation="Y")):
        assert read(store, lambda r, k=other: r.first_answer(k)) is None  # type: ignore[misc]


def standing(store: Store) -> list[str]:
    keys = [f"old{number:03}" for number in range(IDEMPOTENCY_DROPPED_ROWS_MAX + 1)]

    def question(reading: Reading) -> list[str]:
        return [key for key in keys if reading.first_answer(a_key(key)) is not None]

    return store.read(question)


@pytest.mark.requirement("sessions.keys-have-one-answer")
async def test_keys_stay_for_their_time_and_old_ones_go_a_few_at_a_time(store: Store) -> None:
    def filling(tx: Writing) -> None:
        for number in range(IDEMPOTENCY_DROPPED_ROWS_MAX + 1):
            tx.remember(a_key(f"old{number:03}"), {}, now_ms=NOW)

    await do(store, filling)
    await do(store, lambda tx: tx.remember(a_key("in time"), {}, now_ms=NOW + IDEMPOTENCY_KEPT_MS))
    assert len(standing(store)) == IDEMPOTENCY_DROPPED_ROWS_MAX + 1
    await do(store, lambda tx: tx.remember(a_key("later"), {}, now_ms=NOW + IDEMPOTENCY_KEPT_MS + 1))
    assert len(standing(store)) == 1
    await do(store, lambda tx: tx.remember(a_key("last"), {}, now_ms=NOW + IDEMPOTENCY_KEPT_MS + 1))
    assert standing(store) == []
    assert read(store, lambda r: r.first_answer(a_key("in time"))) is not None
