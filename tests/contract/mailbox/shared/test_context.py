"""Shared context: versions that are kept, pins, snapshots of tasks, and what goes with a project that nobody uses."""

from __future__ import annotations

import asyncio

import pytest

from fencepost_kit.refusal import Refusal
from fencepost_mailbox.domain.context import fields
from fencepost_mailbox.domain.context.refusals import ContextLimit, InvalidContext
from fencepost_mailbox.domain.context.values import (
    CONTEXT_BYTES_MAX,
    CONTEXT_KEY_BYTES_MAX,
    CONTEXT_KEYS_MAX,
    CONTEXT_VERSIONS_MAX,
    CONTEXTS_LISTED_DEFAULT,
    CONTEXTS_LISTED_MAX,
    PROJECT_OPEN_MS,
    SWEPT_VERSIONS_MAX,
    VERSION_MAX,
    ContextVersion,
    ShownContext,
    Topic,
)
from fencepost_mailbox.domain.refusals import InvalidCursor, NotFound, StaleGeneration
from fencepost_mailbox.domain.tasks.refusals import RequestConflict, VersionConflict
from fencepost_mailbox.domain.tasks.values import ContextRef
from fencepost_mailbox.store.protocol import Applied, Transaction
from fencepost_testing.mailboxes import PROJECT, id16
from fencepost_testing.shared_desk import SharedDesk
from fencepost_testing.task_desk import OPERATOR, caller_named


@pytest.mark.requirement("context.versions-are-kept")
async def test_a_publication_is_a_new_version_and_every_version_stays_readable(desk: SharedDesk) -> None:
    first = await desk.publish("ann", "api", "v1")
    await desk.clock.advance(5)
    second = await desk.publish("bob", "api", "v2")
    assert (first.version, second.version) == (1, 2)
    newest, older = await desk.context("dan", "api"), await desk.context("dan", "api", 1)
    assert (newest.version.content, older.version.content) == ("v2", "v1")
    assert (newest.version.publisher, older.version.publisher) == (id16("bob"), id16("ann"))
    assert newest.version.published_at_ms - older.version.published_at_ms == 5000
    assert older.topic.newest == 2
    await desk.restart()
    assert (await desk.context("ann", "api", 1)).version.content == "v1"


@pytest.mark.requirement("context.belongs-to-one-project")
async def test_another_project_has_contexts_of_its_own(desk: SharedDesk) -> None:
    await desk.publish("ann", "api", "ours")
    other = caller_named("eve")
    eve = type(other)(**{**{name: getattr(other, name) for name in other.__slots__}, "project_id": b"Q" * 16})
    with pytest.raises(NotFound):
        await desk.look_at_context.get(eve, None, "api", 0)
    with pytest.raises(InvalidContext, match="your own"):
        await desk.look_at_context.get(eve, PROJECT, "api", 0)
    with pytest.raises(InvalidContext, match="by the operator"):
        await desk.look_at_context.get(caller_named(OPERATOR), None, "api", 0)
    assert (await desk.context(OPERATOR, "api")).version.content == "ours"


@pytest.mark.requirement("context.a-repeated-request-answers-the-first-result")
async def test_the_same_request_answers_the_first_result_and_other_content_is_refused(desk: SharedDesk) -> None:
    request_id = desk.request_id()
    first = await desk.publish("ann", "api", "v1", request_id=request_id)
    await desk.publish("bob", "api", "v2")
    again = await desk.publish("ann", "api", "v1", request_id=request_id)
    assert (again.version, again.at_ms, again.duplicate) == (first.version, first.at_ms, True)
    with pytest.raises(RequestConflict):
        await desk.publish("ann", "api", "else", request_id=request_id)
    with pytest.raises(RequestConflict):
        await desk.remember("ann", "v1", 0, request_id=request_id)
    assert not (await desk.publish("bob", "api", "v1", request_id=request_id)).duplicate, "another's id is another id"
    assert [one.version.version for one in (await _versions(desk, "api"))] == [3, 2, 1]


async def _versions(desk: SharedDesk, key: str, size: int = 0) -> list[ShownContext]:
    found: list[ShownContext] = []
    token = ""
    while True:
        page = await desk.look_at_context.list_versions(caller_named("ann"), None, key=key, size=size, token=token)
        found += page.contexts
        token = page.next_token
        if not token:
            return found


@pytest.mark.requirement("context.a-write-may-rest-on-a-version")
async def test_a_publication_that_rests_on_another_version_is_refused_with_how_it_stands(desk: SharedDesk) -> None:
    await desk.publish("ann", "api", "v1")
    await desk.publish("bob", "api", "v2", expected_version=1)
    with pytest.raises(VersionConflict) as refused:
        await desk.publish("ann", "api", "late", expected_version=1)
    assert refused.value.state["version"] == "2"
    assert refused.value.state["key"] == "api"
    assert "v2" not in str(refused.value.state)
    with pytest.raises(VersionConflict):
        await desk.publish("ann", "new", expected_version=1)


async def test_pins_stay_as_they_are_until_somebody_says_otherwise(desk: SharedDesk) -> None:
    await desk.publish("ann", "api")
    assert not (await desk.context("ann", "api")).topic.pinned
    for pinned, stands in ((True, True), (None, True), (False, False)):
        await desk.publish("ann", "api", pinned=pinned)
        assert (await desk.context("ann", "api")).topic.pinned is stands


async def test_lists_are_by_key_in_pages_and_by_prefix(desk: SharedDesk) -> None:
    names = ["a", "api", "api.v1", "api/x", "b", "é"]
    for name in reversed(names):
        await desk.publish("ann", name, pinned=name.startswith("api"))
    assert await desk.keys(size=2) == names
    assert await desk.keys(prefix="api", size=1) == ["api", "api.v1", "api/x"]
    assert await desk.keys(pinned_only=True, size=2) == ["api", "api.v1", "api/x"]
    assert await desk.keys(prefix="zzz") == []
    page = await desk.look_at_context.list_contexts(
        caller_named("ann"), None, prefix="", pinned_only=False, size=0, token=""
    )
    assert {one.version.content for one in page.contexts} == {""}, "a list has no content"
    assert {one.version.content_bytes for one in page.contexts} == {5}
    with pytest.raises(InvalidCursor):
        await desk.look_at_context.list_contexts(
            caller_named("ann"), None, prefix="api", pinned_only=False, size=0, token="b"
        )
    with pytest.raises(NotFound):
        await _versions(desk, "none")
    assert [one.version.version for one in await _versions(desk, "api", 1)] == [1]


@pytest.mark.requirement("context.has-limits")
async def test_the_limits_of_a_context_hold_at_both_sides(desk: SharedDesk) -> None:
    await desk.publish("ann", "k" * CONTEXT_KEY_BYTES_MAX, "c" * CONTEXT_BYTES_MAX)
    assert (await desk.context("bob", "k" * CONTEXT_KEY_BYTES_MAX)).version.content_bytes == CONTEXT_BYTES_MAX
    for key, content in (
        ("k" * (CONTEXT_KEY_BYTES_MAX + 1), "c"),
        ("k", "c" * (CONTEXT_BYTES_MAX + 1)),
        ("", "c"),
        ("a key", "c"),
        ("k\n", "c"),
        ("k", ""),
        ("k", " \n"),
        ("k", "\ud800"),
        ("\ud800", "c"),
    ):
        with pytest.raises(InvalidContext, match="nothing was written"):
            await desk.publish("ann", key, content)
    for version in (-1, VERSION_MAX + 1):
        with pytest.raises(InvalidContext):
            await desk.publish("ann", "k", expected_version=version)
    assert fields.page_size(0) == CONTEXTS_LISTED_DEFAULT
    assert fields.page_size(CONTEXTS_LISTED_MAX) == CONTEXTS_LISTED_MAX
    for size in (-1, CONTEXTS_LISTED_MAX + 1):
        with pytest.raises(InvalidContext, match="page_size"):
            fields.page_size(size)
    fields.check_room(CONTEXT_KEYS_MAX - 1)
    with pytest.raises(ContextLimit):
        fields.check_room(CONTEXT_KEYS_MAX)


class Filling:
    """Writes versions of a key without the calls that would make them."""

    def __init__(self, key: str, versions: int, at_ms: int) -> None:
        self.key, self.versions, self.at_ms = key, versions, at_ms

    def apply(self, tx: Transaction) -> Applied[None]:
        tx.context.put_topic(
            Topic(project_id=PROJECT, key=self.key, newest=self.versions, pinned=False, published_at_ms=self.at_ms)
        )
        for number in range(1, self.versions + 1):
            tx.context.insert_version(
                ContextVersion(
                    project_id=PROJECT,
                    key=self.key,
                    version=number,
                    publisher=None,
                    published_at_ms=self.at_ms,
                    content_bytes=1,
                    content="c",
                )
            )
        return Applied(value=None)


@pytest.mark.requirement("context.has-limits")
async def test_the_oldest_version_goes_with_the_next_beyond_the_limit_unless_a_task_refers_to_it(
    desk: SharedDesk,
) -> None:
    await desk.store.submit(Filling("api", CONTEXT_VERSIONS_MAX, desk.clock.now_ms()))
    await desk.assign("ann", "bob", context_refs=(ContextRef(key="api", version=1),))
    await desk.publish("ann", "api")
    assert (await desk.context("ann", "api", 1)).version.version == 1, "the limit is not passed yet for the second"
    assert (await desk.context("ann", "api", 2)).version.version == 2
    await desk.publish("ann", "api")
    assert (await desk.context("ann", "api", 1)).version.version == 1
    with pytest.raises(NotFound):
        await desk.context("ann", "api", 2)
    assert (await desk.context("ann", "api", 3)).version.version == 3


@pytest.mark.requirement("context.a-task-keeps-the-version-that-it-refers-to")
async def test_a_task_refers_to_what_its_issuer_could_read_whatever_is_published_later(desk: SharedDesk) -> None:
    await desk.publish("ann", "api", "v1")
    await desk.publish("ann", "schema", "s1")
    refs = (ContextRef(key="api", version=0), ContextRef(key="schema", version=1))
    task_id = await desk.assign("ann", "bob", context_refs=refs)
    await desk.publish("dan", "api", "v2")
    task = desk.store.read.tasks.task(task_id)
    assert task is not None
    assert task.context_refs == (ContextRef(key="api", version=1), ContextRef(key="schema", version=1))
    assert (await desk.context("bob", "api", task.context_refs[0].version)).version.content == "v1"


async def test_a_task_that_refers_to_nothing_that_is_there_is_refused_whole(desk: SharedDesk) -> None:
    await desk.publish("ann", "api", "v1")
    await desk.publish("ann", "other", "o1")
    for ref in (ContextRef(key="none", version=0), ContextRef(key="api", version=2)):
        with pytest.raises(NotFound) as refused:
            await desk.assign("ann", "bob", context_refs=(ContextRef(key="other", version=0), ref))
        assert refused.value.state["key"] == ref.key
    assert desk.store.read.tasks.first_queued(id16("bob")) is None
    assert desk.store.read.newest_sequence() == 0, "nothing was written"


@pytest.mark.requirement("context.lives-as-long-as-its-project-is-open")
async def test_what_is_not_pinned_goes_when_nobody_has_used_the_project_for_seven_days(desk: SharedDesk) -> None:
    await desk.publish("ann", "kept", pinned=True)
    await desk.publish("ann", "referred")
    await desk.publish("ann", "api")
    await desk.publish("ann", "api")
    await desk.assign("ann", "bob", context_refs=(ContextRef(key="referred", version=0),))
    desk.called[PROJECT] = desk.clock.now_ms()
    await desk.clock.advance(PROJECT_OPEN_MS / 1000 - 1)
    assert await desk.sweeper.sweep() == 0
    assert await desk.keys() == ["api", "kept", "referred"]
    await desk.clock.advance(2)
    assert await desk.sweeper.sweep() == 2
    assert await desk.keys() == ["kept", "referred"]
    with pytest.raises(NotFound, match="no context"):
        await desk.context("ann", "api")


@pytest.mark.requirement("context.lives-as-long-as-its-project-is-open")
async def test_a_call_of_an_agent_or_a_change_of_a_task_keeps_the_project_open(desk: SharedDesk) -> None:
    await desk.publish("ann", "api")
    await desk.clock.advance(PROJECT_OPEN_MS / 1000 - 1)
    desk.called[PROJECT] = desk.clock.now_ms()
    await desk.sweeper.note_activity()
    desk.called.clear()
    await desk.restart()
    await desk.clock.advance(PROJECT_OPEN_MS / 1000 - 1)
    assert await desk.sweeper.sweep() == 0, "an agent called, and that outlives the process"
    await desk.assign(OPERATOR, "bob")
    await desk.clock.advance(PROJECT_OPEN_MS / 1000 - 1)
    assert await desk.sweeper.sweep() == 0, "a task changed"
    await desk.clock.advance(2)
    assert await desk.sweeper.sweep() == 1


async def test_a_sweep_goes_in_chunks_and_a_publication_in_between_keeps_its_key(desk: SharedDesk) -> None:
    count = 2 * SWEPT_VERSIONS_MAX
    await desk.store.submit(Filling("many", count, desk.clock.now_ms()))
    await desk.store.submit(Filling("other", 1, desk.clock.now_ms()))
    await desk.clock.advance(PROJECT_OPEN_MS / 1000 + 1)
    sweep = asyncio.create_task(desk.sweeper.sweep())
    async with asyncio.timeout(5):
        while not sweep.done():
            await desk.clock.advance(0.1)
    assert await sweep == count + 1
    assert await desk.keys() == []
    assert (await desk.publish("ann", "many")).version == 1


async def test_an_earlier_time_of_activity_never_replaces_a_later_one(desk: SharedDesk) -> None:
    now_ms = desk.clock.now_ms()
    desk.called[PROJECT] = now_ms
    await desk.sweeper.note_activity()
    desk.called[PROJECT] = now_ms - 10
    await desk.sweeper.note_activity()
    assert desk.store.read.context.open_since(PROJECT, now_ms - 1)


@pytest.mark.requirement("context.an-earlier-life-writes-nothing")
async def test_an_earlier_life_neither_publishes_nor_remembers(desk: SharedDesk) -> None:
    await desk.publish("ann", "api", generation=2)
    with pytest.raises(StaleGeneration):
        await desk.publish("ann", "api", generation=1)
    with pytest.raises(StaleGeneration):
        await desk.remember("ann", "m", 0, generation=1)
    assert (await desk.context("ann", "api")).topic.newest == 1


@pytest.mark.requirement("context.operators-need-a-fresh-directory")
async def test_an_operator_is_honoured_only_while_its_authority_can_be_checked(desk: SharedDesk) -> None:
    await desk.publish(OPERATOR, "api", "by a person")
    assert (await desk.context("ann", "api")).version.publisher is None
    desk.agents.stale = True
    for call in (
        desk.publish(OPERATOR, "api"),
        desk.context(OPERATOR, "api"),
        desk.memory(OPERATOR),
        desk.reservations(OPERATOR),
        desk.check(OPERATOR, "a"),
        desk.let_go(OPERATOR, everything=True, holder="ann"),
    ):
        with pytest.raises(Refusal) as refused:
            await call
        assert refused.value.reason == "dependency_unavailable"
