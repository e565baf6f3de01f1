"""Carries deletions to their end: erases chunk after chunk between other work, then tells sessions.

How far each has come is on disk: a process that starts goes on where the one before died.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from fencepost_kit import faults, logs
from fencepost_kit.clock import Clock
from fencepost_kit.ids import uuid_text
from fencepost_kit.refusal import Refusal
from fencepost_mailbox.directory import Unreachable
from fencepost_mailbox.domain.deletion import ERASED_ROWS_MAX, ERASURE_PAUSE_MS, Phase, Tombstone
from fencepost_mailbox.store.protocol import Store
from fencepost_mailbox.usecases.delete import Erasing, Finishing
from fencepost_mailbox.usecases.ports import Mint

DELETIONS_OF_A_ROUND_MAX: Final = 100
TRY_AGAIN_MS_MIN: Final = 100
TRY_AGAIN_MS_MAX: Final = 5_000

CHUNK: Final = faults.register("mailbox.erasure.chunk", "a chunk of a deleted agent's mail is erased, more may stand")
ERASED: Final = faults.register("mailbox.erasure.ended", "nothing is left of a deleted agent, sessions is not told")
TOLD: Final = faults.register("mailbox.deletion.told", "sessions knows that a deletion has ended, the mailbox does not")

_log: Final = logs.get(__name__)


class FinishingPort(Protocol):
    """Who is told that nothing is left."""

    async def finish_deletion(self, epoch: str, agent_id: bytes) -> None:
        """End a deletion at sessions. Harmless where it has ended.

        Raises:
            Unreachable: it did not answer, or does not end it now.
        """
        ...


class Eraser:
    """Everything that remains to be done for deleted agents. Lives on the event loop."""

    def __init__(
        self, *, store: Store, sessions: FinishingPort, clock: Clock, mint: Mint, epoch: Callable[[], str]
    ) -> None:
        self._mint = mint
        self._store = store
        self._sessions = sessions
        self._clock = clock
        self._epoch = epoch
        # Set: there may be something to do that the last round did not see.
        self.news = asyncio.Event()

    async def run(self, pause: Callable[[float], Awaitable[None]]) -> None:
        """Do what there is to do until cancelled; what cannot be done now is tried again, with growing pauses."""
        wait_ms = TRY_AGAIN_MS_MIN
        while True:
            self.news.clear()
            if await self.round():
                wait_ms = TRY_AGAIN_MS_MIN
                await self.news.wait()
                continue
            await pause(wait_ms / 1000)
            wait_ms = min(TRY_AGAIN_MS_MAX, wait_ms * 2)

    async def round(self) -> bool:
        """Carry every deletion as far as it goes; True where none is left."""
        deletions = self._store.read.unfinished_deletions(DELETIONS_OF_A_ROUND_MAX)
        whole = len(deletions) < DELETIONS_OF_A_ROUND_MAX
        for tombstone in deletions:
            try:
                await self._carry(tombstone)
            except Unreachable:
                _log.debug("deletion_not_ended_yet", agent_id=uuid_text(tombstone.agent_id))
                whole = False
            except Refusal as error:
                if not error.may_resend:
                    raise
                _log.warning("erasure_refused", reason=error.reason, cause=error.state.get("cause"))
                whole = False
        return whole

    async def _erase(self, tombstone: Tombstone) -> bool:
        erasing = Erasing(tombstone=tombstone, rows=ERASED_ROWS_MAX, seed=self._mint.new(), now_ms=self._clock.now_ms())
        return await self._store.submit(erasing)

    async def _carry(self, tombstone: Tombstone) -> None:
        if tombstone.phase is Phase.ERASING:
            while not await self._erase(tombstone):
                if faults.ARMED:
                    faults.hit(CHUNK)
                await self._clock.sleep(ERASURE_PAUSE_MS / 1000)
        if faults.ARMED:
            faults.hit(ERASED)
        await self._sessions.finish_deletion(self._epoch(), tombstone.agent_id)
        if faults.ARMED:
            faults.hit(TOLD)
        await self._store.submit(Finishing(tombstone=tombstone))
        _log.info("agent_erased", agent_id=uuid_text(tombstone.agent_id))
