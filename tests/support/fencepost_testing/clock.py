"""A clock that moves only when a test moves it."""

from __future__ import annotations

import asyncio
import heapq
import itertools

PASSES_MAX = 10_000


class VirtualClock:
    """A Clock: wall and monotonic time move together by advance(); the wall can also be set, as a person does it."""

    def __init__(self, *, now_ms: int = 1_800_000_000_000) -> None:
        self._wall_ms = now_ms
        self._elapsed_us = 0
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now_ms(self) -> int:
        return self._wall_ms

    def monotonic(self) -> float:
        return self._elapsed_us / 1_000_000

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed_us + round(seconds * 1_000_000), next(self._order), wake))
        await wake

    def step_wall(self, ms: int) -> None:
        """Move only the wall time, back or forth."""
        self._wall_ms += ms

    async def advance(self, seconds: float) -> None:
        """Move on by `seconds`, waking every sleeper at its moment and letting what it does run first."""
        target = self._elapsed_us + round(seconds * 1_000_000)
        await settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            due, _, wake = heapq.heappop(self._sleepers)
            self._move_to(due)
            if not wake.done():
                wake.set_result(None)
            await settle()
        self._move_to(target)
        await settle()

    def _move_to(self, elapsed_us: int) -> None:
        self._wall_ms += elapsed_us // 1000 - self._elapsed_us // 1000
        self._elapsed_us = elapsed_us

    @property
    def sleeping(self) -> int:
        """How many sleepers wait."""
        return sum(not wake.done() for _, _, wake in self._sleepers)


async def settle(passes: int = 20) -> None:
    """Let every task that is ready run."""
    for _ in range(min(passes, PASSES_MAX)):
        await asyncio.sleep(0)
