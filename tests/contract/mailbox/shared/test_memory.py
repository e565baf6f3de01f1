"""Project memory: one text with a version, its history, and what an agent begins with."""

from __future__ import annotations

import pytest

from fencepost_mailbox.domain.context.refusals import InvalidContext
from fencepost_mailbox.domain.context.values import (
    BOOTSTRAP_AGENTS_MAX,
    BOOTSTRAP_PINNED_MAX,
    MEMORY_BYTES_MAX,
    MEMORY_VERSIONS_MAX,
)
from fencepost_mailbox.domain.refusals import NotFound
from fencepost_mailbox.domain.tasks.refusals import VersionConflict
from fencepost_testing.mailboxes import PROJECT, id16
from fencepost_testing.shared_desk import SharedDesk
from fencepost_testing.task_desk import caller_named


@pytest.mark.requirement("memory.outlives-restarts")
async def test_what_one_agent_remembers_every_other_reads_after_a_restart(desk: SharedDesk) -> None:
    assert (await desk.memory()).version == 0
    written = await desk.remember("ann", "build with make", 0)
    await desk.restart()
    memory = await desk.memory("bob")
    assert (memory.version, memory.content, memory.author) == (written.version, "build with make", id16("ann"))
    assert memory.updated_at_ms == written.at_ms


@pytest.mark.requirement("memory.nobody-overwrites-what-it-has-not-read")
async def test_a_change_that_rests_on_another_version_is_refused_with_how_it_stands(desk: SharedDesk) -> None:
    await desk.remember("ann", "one", 0)
    for expected in (0, 2):
        with pytest.raises(VersionConflict) as refused:
            await desk.remember("bob", "two", expected)
        assert refused.value.state["version"] == "1"
        assert "one" not in refused.value.message + str(dict(refused.value.state))
    await desk.remember("bob", "two", 1)
    assert (await desk.memory()).content == "two"


@pytest.mark.requirement("memory.keeps-its-history")
async def test_earlier_versions_stay_until_there_are_too_many(desk: SharedDesk) -> None:
    for number in range(MEMORY_VERSIONS_MAX):
        await desk.remember("ann", f"m{number}", number)
    assert (await desk.memory(version=1)).content == "m0"
    await desk.remember("ann", "last", MEMORY_VERSIONS_MAX)
    with pytest.raises(NotFound):
        await desk.memory(version=1)
    assert (await desk.memory(version=2)).content == "m1"
    found, token = [], ""
    while True:
        page = await desk.look_at_context.list_memory(caller_named("ann"), None, size=33, token=token)
        found += page.versions
        token = page.next_token
        if not token:
            break
    assert [one.version for one in found] == list(range(MEMORY_VERSIONS_MAX + 1, 1, -1))
    assert {one.content for one in found} == {""}


async def test_a_repeated_change_answers_its_first_result(desk: SharedDesk) -> None:
    request_id = desk.request_id()
    first = await desk.remember("ann", "one", 0, request_id=request_id)
    await desk.remember("bob", "two", 1)
    again = await desk.remember("ann", "one", 0, request_id=request_id)
    assert (again.version, again.duplicate) == (first.version, True)
    assert (await desk.memory()).content == "two"


@pytest.mark.requirement("context.has-limits")
async def test_the_limit_of_memory_holds_at_both_sides(desk: SharedDesk) -> None:
    await desk.remember("ann", "m" * MEMORY_BYTES_MAX, 0)
    with pytest.raises(InvalidContext, match="at most"):
        await desk.remember("ann", "m" * (MEMORY_BYTES_MAX + 1), 1)
    await desk.remember("ann", "", 1)
    assert (await desk.memory()).content == ""


@pytest.mark.requirement("memory.a-fresh-agent-learns-what-it-needs")
async def test_a_bootstrap_shows_memory_agents_and_pinned_contexts(desk: SharedDesk) -> None:
    await desk.remember("ann", "build with make", 0)
    await desk.publish("ann", "api", "words", pinned=True)
    await desk.publish("ann", "notes", "words")
    desk.signals.reads[id16("bob")] = 7
    begin = await desk.look_at_context.bootstrap(caller_named("dan"), None)
    assert begin.project_id == PROJECT
    assert begin.memory.content == "build with make"
    assert [(agent.name, at_ms) for agent, at_ms in begin.agents] == [("ann", 0), ("bob", 7), ("cyd", 0), ("dan", 0)]
    assert [one.topic.key for one in begin.pinned] == ["api"]
    assert (begin.agent_count, begin.more_pinned) == (4, False)


async def test_a_bootstrap_has_limits_and_says_what_it_leaves_out(desk: SharedDesk) -> None:
    for number in range(BOOTSTRAP_PINNED_MAX):
        await desk.publish("ann", f"k{number:03}", pinned=True)
    assert not (await desk.look_at_context.bootstrap(caller_named("ann"), None)).more_pinned
    await desk.publish("ann", "one-more", pinned=True)
    begin = await desk.look_at_context.bootstrap(caller_named("ann"), None)
    assert (len(begin.pinned), begin.more_pinned) == (BOOTSTRAP_PINNED_MAX, True)
    assert len(begin.agents) <= BOOTSTRAP_AGENTS_MAX
