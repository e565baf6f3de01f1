"""Who waits for what: wakes parked calls after a commit is durable.

Lives on the event loop; holds nothing that must survive.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from fencepost_kit.clock import Clock
from fencepost_kit.refusal import Overloaded

WAITS_MAX: Final = 10_000
WAITS_OF_ONE_AGENT_MAX: Final = 64


class Wake(enum.Enum):
    """Why a wait ended."""

    ACTIVITY = "activity"
    PROVIDER_CONTEXT = "provider_context_available"
    DRAINING = "draining"
    TIMED_OUT = ""


_RANK: Final = {Wake.TIMED_OUT: 0, Wake.ACTIVITY: 1, Wake.PROVIDER_CONTEXT: 2, Wake.DRAINING: 3}


class ParkedWait:
    """One parked call. Its deadline counts from its first sleep.

    A wake that came before a sleep ends that sleep at once.
    """

    __slots__ = ("_clock", "_deadline", "_future", "_signal")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadline: float | None = None
        self._signal: Wake | None = None
        self._future: asyncio.Future[None] | None = None

    def wake(self, reason: Wake) -> None:
        """End the wait now, or its next sleep. Draining outranks the other reasons, and an injection mere activity.

        Activity shows itself when the mailbox is read; that something was injected shows itself nowhere else.
        """
        if self._signal is None or _RANK[reason] >= _RANK[self._signal]:
            self._signal = reason
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def sleep(self, timeout_s: float) -> Wake:
        """Return why the wait ended, at the latest when `timeout_s` seconds from its first sleep have passed."""
        if self._deadline is None:
            self._deadline = self._clock.monotonic() + timeout_s
        if self._signal is None:
            loop = asyncio.get_running_loop()
            self._future = loop.create_future()
            timer = loop.call_later(max(0.0, self._deadline - self._clock.monotonic()), self._expire)
            try:
                await self._future
            finally:
                timer.cancel()
                self._future = None
        signal, self._signal = self._signal, None
        return signal if signal is not None else Wake.TIMED_OUT

    def _expire(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


class Waits:
    """All parked calls of this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._parked: dict[bytes, set[ParkedWait]] = {}
        self._count = 0
        self._draining = False

    @property
    def parked(self) -> int:
        """How many calls are parked now."""
        return self._count

    def waiting(self, agent_id: bytes) -> bool:
        """Tell whether a call of the agent is parked now."""
        return agent_id in self._parked

    @contextmanager
    def register(self, agent_id: bytes) -> Iterator[ParkedWait]:
        """Subscribe before looking: what commits from now on ends the wait.

        Raises:
            Overloaded: WAITS_MAX calls are parked, or WAITS_OF_ONE_AGENT_MAX of this agent.
        """
        mine = self._parked.get(agent_id)
        if self._count >= WAITS_MAX or (mine is not None and len(mine) >= WAITS_OF_ONE_AGENT_MAX):
            raise Overloaded("too many calls wait here already; nothing was read", hint="Wait with one call at a time.")
        wait = ParkedWait(self._clock)
        if self._draining:
            wait.wake(Wake.DRAINING)
        if mine is None:
            mine = self._parked[agent_id] = set()
        mine.add(wait)
        self._count += 1
        try:
            yield wait
        finally:
            mine.discard(wait)
            self._count -= 1
            if not mine and self._parked.get(agent_id) is mine:
                del self._parked[agent_id]

    def wake(self, agents: Iterable[bytes], reason: Wake = Wake.ACTIVITY) -> None:
        """Wake the parked calls of these agents: something durable concerns them."""
        for agent_id in agents:
            for wait in self._parked.get(agent_id, ()):
                wait.wake(reason)

    def look_again(self) -> None:
        """Wake every parked call to look whether it may go on."""
        for waits in self._parked.values():
            for wait in waits:
                wait.wake(Wake.ACTIVITY)

    def drain(self) -> None:
        """End every parked call, and each that comes."""
        self._draining = True
        for waits in self._parked.values():
            for wait in waits:
                wait.wake(Wake.DRAINING)
