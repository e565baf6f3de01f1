"""A lease that is held: renewed until it is given up, and lost only where sessions says so. M155."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from fencepost.errors import FencepostError, Refused
from fencepost_kit import logs
from fencepost_kit.clock import Clock
from fencepost_providers.links import RENEW_EVERY_MS, LeaseKind, SessionsPort

RENEW_AGAIN_MS: Final = 1_000
RELEASE_TRIES_MAX: Final = 3
_LOST: Final = frozenset({"lease_lost", "not_found"})

_log: Final = logs.get(__name__)


class HeldLease:
    """One acquisition. A holder stops on a loss that it was told of, never on its own clock."""

    def __init__(
        self, *, sessions: SessionsPort, clock: Clock, acquisition_id: str, on_lost: Callable[[], None]
    ) -> None:
        self.acquisition_id: Final = acquisition_id
        self.lost = False
        self._sessions = sessions
        self._clock = clock
        self._on_lost = on_lost
        self._kind: LeaseKind | None = None
        self._renewing = asyncio.create_task(self._renew_for_ever())

    def become(self, kind: LeaseKind) -> None:
        """Change why it is held, with a renewal at once."""
        self._kind = kind
        self._restart()

    async def release(self) -> None:
        """End it, after the child was joined. Where sessions does not answer it ends by its term."""
        await self._stop_renewing()
        if self.lost:
            return
        for _ in range(RELEASE_TRIES_MAX):
            try:
                await self._sessions.release(self.acquisition_id)
            except FencepostError as error:
                _log.warning("lease_not_released", reason=error.reason, acquisition=self.acquisition_id)
                await self._clock.sleep(RENEW_AGAIN_MS / 1000)
            else:
                return

    async def abandon(self) -> None:
        """Stop renewing without a word: nobody saw the child end, so nobody may take its place before the term."""
        await self._stop_renewing()

    def _restart(self) -> None:
        if not self.lost:
            self._renewing.cancel()
            self._renewing = asyncio.create_task(self._renew_for_ever(at_once=True))

    async def _stop_renewing(self) -> None:
        self._renewing.cancel()
        await asyncio.gather(self._renewing, return_exceptions=True)

    async def _renew_for_ever(self, *, at_once: bool = False) -> None:
        pause_ms = 0 if at_once else RENEW_EVERY_MS
        while True:
            if pause_ms:
                await self._clock.sleep(pause_ms / 1000)
            pause_ms = RENEW_EVERY_MS
            try:
                await self._sessions.renew(self.acquisition_id, self._kind)
            except Refused as refused:
                if refused.reason in _LOST:
                    self.lost = True
                    _log.warning("lease_lost", acquisition=self.acquisition_id)
                    self._on_lost()
                    return
                pause_ms = RENEW_AGAIN_MS
            except FencepostError:
                pause_ms = RENEW_AGAIN_MS
            except Exception as error:  # noqa: BLE001 - a lease that nobody renews any more is lost without a word
                _log.exception("lease_not_renewed", error, acquisition=self.acquisition_id)
                pause_ms = RENEW_AGAIN_MS
