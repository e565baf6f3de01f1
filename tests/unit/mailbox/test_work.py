"""WatchWork: states, not events; a slow dispatcher is told once, and nothing is missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fencepost_kit.refusal import Overloaded
from fencepost_mailbox import work as module
from fencepost_mailbox.domain.refusals import InvalidLimit
from fencepost_mailbox.work import LISTING_STEP_AGENTS, WATCHED_AGENTS_MAX, AgentWork, WorkWatch
from fencepost_testing.mailboxes import WAIT_S_MAX, id16, until

A, B, C = (bytes([n]) * 16 for n in (1, 2, 3))


class Held:
    """A store in which agents have the work that a test gives them."""

    def __init__(self) -> None:
        self.has: dict[bytes, tuple[bool, bool]] = {}
        self.sequence = 0

    @property
    def read(self) -> Held:
        return self

    def work_of(self, agent_id: bytes) -> tuple[bool, bool]:
        return self.has.get(agent_id, (False, False))

    def agents_with_work(self, after: bytes, limit: int) -> list[tuple[bytes, bool, bool]]:
        found = [(agent, *has) for agent, has in sorted(self.has.items()) if any(has) and agent > after]
        return found[:limit]

    def newest_sequence(self) -> int:
        return self.sequence

    @property
    def tasks(self) -> Held:
        return self

    def has_notifications(self, agent_id: bytes) -> bool:
        """Nothing stands for anybody: tests/contract/mailbox/tasks/test_waking.py has what does."""
        return False


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def watch(held: Held) -> WorkWatch:
    store: Any = held
    return WorkWatch(store, lambda: 0)


async def told(stream: AsyncIterator[AgentWork]) -> AgentWork:
    async with asyncio.timeout(WAIT_S_MAX):
        return await anext(stream)


async def listing(stream: AsyncIterator[AgentWork]) -> list[bytes]:
    """Everything up to the mark that ends the first listing."""
    agents = []
    while (work := await told(stream)).agent_id:
        agents.append(work.agent_id)
    return agents


async def silent(stream: AsyncIterator[AgentWork]) -> asyncio.Task[AgentWork]:
    """Tell that the stream says nothing now, and return what it will say next."""
    following: asyncio.Task[AgentWork] = asyncio.ensure_future(anext(stream))  # type: ignore[arg-type]
    for _ in range(20):
        await asyncio.sleep(0)
    assert not following.done()
    return following


@pytest.mark.requirement("mailbox.work-is-told-as-a-state")
async def test_a_watcher_is_first_told_everybody_who_has_work_and_then_that_this_was_all(
    held: Held, watch: WorkWatch
) -> None:
    held.has = {A: (True, False), B: (False, True), C: (False, False)}
    held.sequence = 7
    stream = watch.watch([])
    assert await told(stream) == AgentWork(agent_id=A, requests=True, context=False, high_water=7)
    assert await told(stream) == AgentWork(agent_id=B, requests=False, context=True, high_water=7)
    assert await told(stream) == AgentWork(agent_id=b"", requests=False, context=False, high_water=7)


async def test_a_first_listing_goes_on_over_its_steps(held: Held, watch: WorkWatch) -> None:
    agents = [n.to_bytes(16, "big") for n in range(1, 2 * LISTING_STEP_AGENTS + 2)]
    held.has = dict.fromkeys(agents, (True, False))
    assert await listing(watch.watch([])) == agents


@pytest.mark.requirement("mailbox.work-is-told-as-a-state")
async def test_work_that_comes_during_the_first_listing_is_told_behind_it(held: Held, watch: WorkWatch) -> None:
    held.has = {B: (True, False)}
    stream = watch.watch([])
    assert (await told(stream)).agent_id == B
    # Behind the place that the listing has reached already.
    held.has[A] = (True, False)
    watch.mark([A])
    assert await listing(stream) == []
    assert (await told(stream)).agent_id == A


@pytest.mark.requirement("mailbox.work-is-told-as-a-state")
async def test_a_slow_watcher_is_told_the_state_once_however_often_it_changed(held: Held, watch: WorkWatch) -> None:
    stream = watch.watch([])
    await listing(stream)
    for turn in range(1000):
        held.has = {A: (True, turn % 2 == 0), B: (False, True)}
        held.sequence = turn
        watch.mark([A, B])
    assert await told(stream) == AgentWork(agent_id=A, requests=True, context=False, high_water=999)
    assert await told(stream) == AgentWork(agent_id=B, requests=False, context=True, high_water=999)
    following = await silent(stream)
    watch.mark([B])
    assert (await following).agent_id == B


@pytest.mark.requirement("mailbox.work-is-told-as-a-state")
async def test_work_that_is_gone_again_is_not_told(held: Held, watch: WorkWatch) -> None:
    stream = watch.watch([])
    await listing(stream)
    watch.mark([A])
    following = await silent(stream)
    held.has = {A: (True, False)}
    watch.mark([A])
    assert (await following).requests


async def test_a_watcher_of_some_agents_hears_of_no_other(held: Held, watch: WorkWatch) -> None:
    held.has = {A: (True, False), B: (True, False), C: (False, False)}
    stream = watch.watch([B, C])
    assert await listing(stream) == [B]
    watch.mark([A])
    following = await silent(stream)
    held.has[C] = (False, True)
    watch.mark([C])
    assert (await following).agent_id == C


async def test_several_watchers_are_each_told(held: Held, watch: WorkWatch) -> None:
    streams = [watch.watch([]), watch.watch([A])]
    for stream in streams:
        await listing(stream)
    held.has = {A: (True, False)}
    watch.mark([A])
    assert [(await told(stream)).agent_id for stream in streams] == [A, A]


@pytest.mark.requirement("mailbox.a-stop-ends-waits")
async def test_a_stop_ends_every_watch(held: Held, watch: WorkWatch) -> None:
    stream = watch.watch([])
    await listing(stream)
    following = await silent(stream)
    watch.drain()
    async with asyncio.timeout(WAIT_S_MAX):
        with pytest.raises(StopAsyncIteration):
            await following
    assert watch.watchers == 0
    late = watch.watch([])
    assert await listing(late) == [], "who comes during the stop is told the state, and then that it ends"
    with pytest.raises(StopAsyncIteration):
        await told(late)


async def test_a_watch_that_is_closed_is_forgotten(watch: WorkWatch) -> None:
    stream = watch.watch([])
    await listing(stream)
    assert watch.watchers == 1
    await stream.aclose()  # type: ignore[attr-defined]
    assert watch.watchers == 0
    watch.mark([A])


async def test_so_many_agents_can_be_named_and_no_more(watch: WorkWatch) -> None:
    agents = [id16(str(n)) for n in range(WATCHED_AGENTS_MAX)]
    stream = watch.watch(agents)
    assert await listing(stream) == []
    with pytest.raises(InvalidLimit):
        await told(watch.watch([*agents, A]))
    assert watch.watchers == 1


async def test_so_many_may_watch_and_no_more(watch: WorkWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WATCHERS_MAX", 2)
    streams = [watch.watch([]) for _ in range(2)]
    for stream in streams:
        await listing(stream)
    with pytest.raises(Overloaded):
        await told(watch.watch([]))
    await streams[0].aclose()  # type: ignore[attr-defined]
    await until(lambda: watch.watchers == 1)
    assert await listing(watch.watch([])) == []
