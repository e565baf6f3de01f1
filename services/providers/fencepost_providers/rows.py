"""What happens in a conversation: the newest rows of the running life, and whoever watches them.

Positions grow over lives and over restarts of this service, so that a watcher goes on from where it was. A watcher that
reads slower than the conversation speaks is ended with a reason; nobody else waits for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from fencepost_providers.domain.carried import clipped
from fencepost_providers.domain.refusals import TooManyWatchers, WatcherTooSlow
from fencepost_providers.domain.runtimes import ROW_BYTES_MAX, Row

ROWS_KEPT_MAX: Final = 1_000
ROWS_BYTES_MAX: Final = 1_048_576
WATCHER_ROWS_MAX: Final = 256
WATCHERS_MAX: Final = 64
# Rows of one start of the service: the start's number stands above them in a position.
POSITION_BITS: Final = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """A row with its place, time and life."""

    position: int
    at_ms: int
    generation: int
    row: Row


class _Watcher:
    __slots__ = ("event", "rows", "too_slow")

    def __init__(self) -> None:
        self.rows: deque[Placed] = deque()
        self.event = asyncio.Event()
        self.too_slow = False


class Rows:
    """The rows of one agent."""

    def __init__(self, incarnation: int) -> None:
        self._next = (incarnation << POSITION_BITS) + 1
        self._kept: deque[Placed] = deque()
        self._kept_bytes = 0
        self._watchers: set[_Watcher] = set()
        self._closed = False

    @property
    def watchers(self) -> int:
        """How many watch now."""
        return len(self._watchers)

    def begin_life(self) -> None:
        """Forget the rows of the life before; who watches has them, or goes on behind them."""
        self._kept.clear()
        self._kept_bytes = 0

    def add(self, row: Row, *, at_ms: int, generation: int) -> None:
        """Keep a row and hand it to whoever watches."""
        text = clipped(row.text, ROW_BYTES_MAX)
        kept = Row(
            kind=row.kind,
            text=text,
            cut=row.cut or len(text) < len(row.text),
            name=row.name,
            turn_id=row.turn_id,
        )
        placed = Placed(position=self._next, at_ms=at_ms, generation=generation, row=kept)
        self._next += 1
        self._kept.append(placed)
        self._kept_bytes += len(text.encode())
        while len(self._kept) > ROWS_KEPT_MAX or self._kept_bytes > ROWS_BYTES_MAX:
            self._kept_bytes -= len(self._kept.popleft().row.text.encode())
        for watcher in self._watchers:
            if len(watcher.rows) >= WATCHER_ROWS_MAX:
                watcher.too_slow = True
            else:
                watcher.rows.append(placed)
            watcher.event.set()

    def close(self) -> None:
        """End every watch."""
        self._closed = True
        for watcher in self._watchers:
            watcher.event.set()

    async def watch(self, after: int) -> AsyncIterator[Placed]:
        """Yield the kept rows behind a position, then each new one, until closed. Negative: only new ones.

        Raises:
            WatcherTooSlow: WATCHER_ROWS_MAX rows waited for the watcher.
            TooManyWatchers: WATCHERS_MAX watch this conversation already.
        """
        if len(self._watchers) >= WATCHERS_MAX:
            raise TooManyWatchers(
                f"{WATCHERS_MAX} watch this conversation already; nothing was changed", hint="End one of them."
            )
        watcher = _Watcher()
        kept = [] if after < 0 else [placed for placed in self._kept if placed.position > after]
        self._watchers.add(watcher)
        try:
            for placed in kept:
                yield placed
            while not self._closed:
                while watcher.rows:
                    yield watcher.rows.popleft()
                if watcher.too_slow:
                    raise WatcherTooSlow(
                        "the conversation speaks faster than it is read; the watch was ended, nothing else was",
                        hint="Watch again from the last position that was read.",
                    )
                watcher.event.clear()
                if not watcher.rows and not self._closed:
                    await watcher.event.wait()
        finally:
            self._watchers.discard(watcher)
