"""The time in which leases expire: it runs only while this process does, and only as its monotonic clock does."""

from __future__ import annotations

from typing import Final

from fencepost_kit.clock import Clock
from fencepost_sessions.domain.leases import Moment


class LeaseTime:
    """Milliseconds that begin as the wall's at the start of this process and then run evenly.

    The wall's clock may be set and the machine may sleep: neither makes a lease expire.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._from_ms: Final = clock.now_ms()
        self._since: Final = clock.monotonic()

    def moment(self) -> Moment:
        """Return now, on both clocks."""
        elapsed_ms = round((self._clock.monotonic() - self._since) * 1000)
        return Moment(unix_ms=self._clock.now_ms(), running_ms=self._from_ms + elapsed_ms)
