"""Time, handed in: wall time for what is stored and shown, monotonic time for how long something took."""

from __future__ import annotations

import asyncio
import time
from typing import Final, Protocol


class Clock(Protocol):
    """What a service may know about time."""

    def now_ms(self) -> int:
        """Return the wall time in Unix milliseconds. It may step back."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary point. It never steps back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of monotonic time."""
        ...


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Return the wall time in Unix milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return seconds of the machine's monotonic clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        await asyncio.sleep(seconds)


SYSTEM_CLOCK: Final = SystemClock()
