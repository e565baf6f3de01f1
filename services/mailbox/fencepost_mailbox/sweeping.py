"""What is done now and then: lets go of what nobody uses any more, and indexes the words of records.

Contexts of projects that are not open, reservations that have expired (T091), words of what was erased.

Chunk after chunk between other work. What was missed because the process ended is found again by the next round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from fencepost_kit import logs
from fencepost_kit.clock import Clock
from fencepost_kit.ids import uuid_text
from fencepost_mailbox.domain.context.values import PROJECT_OPEN_MS, SWEEP_PAUSE_MS, SWEPT_VERSIONS_MAX
from fencepost_mailbox.domain.files.values import EXPIRED_RESERVATIONS_MAX
from fencepost_mailbox.domain.threads.indexing import (
    CLEAR,
    INDEX_PAUSE_MS,
    QUIET_NUMBERS_MAX,
    SWEPT_CHUNKS_MAX,
)
from fencepost_mailbox.store.protocol import Applied, Mutation, Store
from fencepost_mailbox.usecases.context.keep import NotingActivity, Sweeping
from fencepost_mailbox.usecases.files.hold import DroppingExpired
from fencepost_mailbox.usecases.threads.index import Clearing, Indexing

_log: Final = logs.get(__name__)


class Sweeper:
    """What is done now and then. Lives on the event loop; `called` tells when agents of which projects last called."""

    def __init__(self, *, store: Store, clock: Clock, called: Callable[[], Mapping[bytes, int]]) -> None:
        self._store = store
        self._clock = clock
        self._called = called
        self._noted: dict[bytes, int] = {}
        self._newest = 0

    async def note_activity(self) -> None:
        """Write which projects are used, where that is news; what is refused is written the next time."""
        news = tuple((project, at_ms) for project, at_ms in self._called().items() if self._noted.get(project) != at_ms)
        if news:
            await self._store.submit(NotingActivity(projects=news))
            self._noted |= dict(news)

    async def sweep(self) -> int:
        """Let go of what projects that are not open have not pinned; returns how many versions went."""
        await self.note_activity()
        removed, project = 0, b""
        while (found := self._store.read.context.next_unpinned_project(project)) is not None:
            project, now_ms = found, self._clock.now_ms()
            if self._store.read.context.open_since(project, now_ms - PROJECT_OPEN_MS):
                await asyncio.sleep(0)
                continue
            removed += await self._sweep_project(project, now_ms)
        return removed

    async def _sweep_project(self, project: bytes, now_ms: int) -> int:
        removed = 0
        while True:
            gone = await self._store.submit(Sweeping(project_id=project, now_ms=now_ms))
            removed += gone
            if gone < SWEPT_VERSIONS_MAX:
                break
            await self._clock.sleep(SWEEP_PAUSE_MS / 1000)
        if removed:
            _log.info("contexts_lapsed", project_id=uuid_text(project), versions=removed)
        return removed

    async def drop_expired(self) -> None:
        """Remove reservations that have expired. They count for nothing already."""
        while self._store.read.files.any_expired(now_ms := self._clock.now_ms()):
            dropped = await self._store.submit(DroppingExpired(now_ms=now_ms))
            if dropped < EXPIRED_RESERVATIONS_MAX:
                break

    async def index(self) -> None:
        """Take records into the index of words while little is sent, then clear out what was erased of it.

        A search takes what is left by itself: nobody waits for this.
        """
        queries = self._store.read
        newest, before = queries.newest_sequence(), self._newest
        self._newest = newest
        if newest - before > QUIET_NUMBERS_MAX:
            return
        await self._in_chunks(Indexing(), queries.threads.lag)
        await self._in_chunks(Clearing(), lambda: queries.threads.clearing() != CLEAR)

    async def _in_chunks(self, chunk: Mutation[Applied[Any]], more: Callable[[], bool]) -> None:
        for done in range(SWEPT_CHUNKS_MAX):
            if not more():
                return
            if done:
                await self._clock.sleep(INDEX_PAUSE_MS / 1000)
            await self._store.submit(chunk)
