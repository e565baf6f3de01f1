"""WatchWork: tells dispatchers which agents have something to carry.

Level-triggered: what is told is a state, never an event to be lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Final

from fencepost_kit.refusal import Overloaded
from fencepost_kit.values import value
from fencepost_mailbox.domain.refusals import InvalidLimit
from fencepost_mailbox.domain.tasks.waking import NOTHING_DUE, Due
from fencepost_mailbox.store.protocol import Store
from fencepost_mailbox.usecases.tasks.waking import due

WATCHERS_MAX: Final = 256
WATCHED_AGENTS_MAX: Final = 500
LISTING_STEP_AGENTS: Final = 50


@value(frozen=True, kw_only=True, slots=True)
class AgentWork:
    """What an agent has for a dispatcher, as of a commit.

    `agent_id` is empty on the mark that ends the first listing.
    """

    agent_id: bytes
    requests: bool
    context: bool
    high_water: int
    due: Due = NOTHING_DUE

    @property
    def is_any(self) -> bool:
        """Whether there is something to carry."""
        return self.requests or self.context or self.due != NOTHING_DUE


class _Watcher:
    __slots__ = ("agents", "dirty", "event", "lasting")

    def __init__(self, agents: frozenset[bytes]) -> None:
        self.agents = agents
        # An ordered set, bounded by the number of agents: a slow reader is told a state once, however often it changed.
        self.dirty: dict[bytes, None] = {}
        self.event = asyncio.Event()
        # Who was told to have notifications that are left, or to be woken no more for now: that it is over is told too.
        self.lasting: set[bytes] = set()

    def is_news(self, work: AgentWork) -> bool:
        """Tell whether a state is to be told, and note what of it is told when it ends."""
        was_lasting = work.agent_id in self.lasting
        if work.due.left or work.due.held_until_ms:
            self.lasting.add(work.agent_id)
        else:
            self.lasting.discard(work.agent_id)
        return work.is_any or was_lasting


class WorkWatch:
    """All watching dispatchers of this process."""

    def __init__(self, store: Store, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._now_ms = now_ms
        self._rested_ms = 0
        # Until when agents are held that were woken too often, as far as anybody was told.
        self._held: dict[bytes, int] = {}
        self._watchers: set[_Watcher] = set()
        self._draining = False

    @property
    def watchers(self) -> int:
        """How many watch now."""
        return len(self._watchers)

    def mark(self, agents: Iterable[bytes]) -> None:
        """Note that these agents' work may have changed; called after a commit is durable."""
        if not self._watchers:
            return
        for agent_id in agents:
            for watcher in self._watchers:
                if not watcher.agents or agent_id in watcher.agents:
                    watcher.dirty[agent_id] = None
                    watcher.event.set()

    def look_for_rested(self) -> None:
        """Note whose wake-ups have rested for long enough since the last look."""
        now_ms = self._now_ms()
        if self._watchers:
            self.mark(self._store.read.tasks.rested(self._rested_ms, now_ms))
        self._rested_ms = now_ms
        over = [agent_id for agent_id, until_ms in self._held.items() if until_ms <= now_ms]
        for agent_id in over:
            del self._held[agent_id]
        self.mark(over)

    def drain(self) -> None:
        """End every watch: a watcher connects again and is told the whole state anew."""
        self._draining = True
        for watcher in self._watchers:
            watcher.event.set()

    def look_again(self) -> None:
        """Wake every watch to look whether it may go on."""
        for watcher in self._watchers:
            watcher.event.set()

    async def watch(
        self, agents: Sequence[bytes], *, check: Callable[[], None] = lambda: None
    ) -> AsyncIterator[AgentWork]:
        """Yield every agent that has work, then a mark, then each agent that gains some.

        `check` raises where the watcher may not go on; it is asked before each wait and after it.

        Raises:
            InvalidLimit: more than WATCHED_AGENTS_MAX agents are named.
            Overloaded: WATCHERS_MAX watch already.
        """
        if len(agents) > WATCHED_AGENTS_MAX:
            raise InvalidLimit(f"at most {WATCHED_AGENTS_MAX} agents can be named; leave them out to watch all")
        if len(self._watchers) >= WATCHERS_MAX:
            raise Overloaded("too many dispatchers watch already", hint="Stop one of them.")
        watcher = _Watcher(frozenset(agents))
        self._watchers.add(watcher)
        try:
            async for work in self._listing(watcher.agents):
                if watcher.is_news(work):
                    yield work
            yield AgentWork(agent_id=b"", requests=False, context=False, high_water=self._store.read.newest_sequence())
            while not self._draining:
                check()
                if not watcher.dirty:
                    watcher.event.clear()
                    await watcher.event.wait()
                    continue
                agent_id = next(iter(watcher.dirty))
                del watcher.dirty[agent_id]
                work = self._of(agent_id)
                if watcher.is_news(work):
                    yield work
        finally:
            self._watchers.discard(watcher)

    def _of(self, agent_id: bytes) -> AgentWork:
        requests, context = self._store.read.work_of(agent_id)
        return AgentWork(
            agent_id=agent_id,
            requests=requests,
            context=context,
            high_water=self._store.read.newest_sequence(),
            due=self._due(agent_id),
        )

    def _due(self, agent_id: bytes) -> Due:
        found = due(self._store.read, agent_id, self._now_ms())
        if found.held_until_ms:
            self._held[agent_id] = found.held_until_ms
        else:
            self._held.pop(agent_id, None)
        return found

    async def _listing(self, agents: frozenset[bytes]) -> AsyncIterator[AgentWork]:
        if agents:
            for agent_id in sorted(agents):
                yield self._of(agent_id)
            return
        after = b""
        while step := self._store.read.agents_with_work(after, LISTING_STEP_AGENTS):
            high_water = self._store.read.newest_sequence()
            for agent_id, requests, context in step:
                yield AgentWork(
                    agent_id=agent_id,
                    requests=requests,
                    context=context,
                    high_water=high_water,
                    due=self._due(agent_id),
                )
            after = step[-1][0]
            await asyncio.sleep(0)
