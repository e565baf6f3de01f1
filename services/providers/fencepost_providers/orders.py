"""What a person asks of one agent's runtime, on its way to the one task that may change it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from fencepost_providers.adapters.base import Terminal
from fencepost_providers.domain.runtimes import NOTHING_PERMITTED, Permits

STEPS_MAX: Final = 64


class Restart:
    """Stop and start again; `fresh` begins a new conversation."""

    def __init__(self, *, fresh: bool) -> None:
        self.fresh: Final = fresh
        # None: it is ready. A text: why it is not.
        self.result: Final[asyncio.Future[str | None]] = asyncio.get_running_loop().create_future()

    def done(self) -> None:
        """It is ready."""
        if not self.result.done():
            self.result.set_result(None)

    def fail(self, why: str) -> None:
        """It is not."""
        if not self.result.done():
            self.result.set_result(why)


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """A turn is in progress."""

    turn_id: str


@dataclass(frozen=True, slots=True)
class LaunchNow:
    """Start this in the terminal."""

    terminal: Terminal


@dataclass(frozen=True, slots=True)
class HasJoined:
    """The terminal was seen on the conversation."""


@dataclass(frozen=True, slots=True)
class HasEnded:
    """It is over. `failed`: it was never there; `busy`: because of a turn."""

    why: str
    failed: bool = False
    busy: bool = False


Happened = WaitingFor | LaunchNow | HasJoined | HasEnded


class Attach:
    """Hand the conversation to a terminal, for as long as somebody reads the steps."""

    def __init__(self, *, wait_idle_ms: int, permits: Permits = NOTHING_PERMITTED) -> None:
        self.wait_idle_ms: Final = wait_idle_ms
        self.permits: Final = permits
        self.gone = False
        self._over = False
        self.steps: Final[asyncio.Queue[Happened]] = asyncio.Queue(STEPS_MAX)

    def _put(self, step: Happened) -> None:
        # A reader that takes nothing loses news of waiting, never the end: that has a place of its own.
        if not self._over and self.steps.qsize() < STEPS_MAX - 1:
            self.steps.put_nowait(step)

    def waiting(self, turn_id: str) -> None:
        """A turn is in progress."""
        self._put(WaitingFor(turn_id))

    def launch(self, terminal: Terminal) -> None:
        """The terminal's program is to be started now."""
        self._put(LaunchNow(terminal))

    def joined(self) -> None:
        """It was seen."""
        self._put(HasJoined())

    def _end(self, end: HasEnded) -> None:
        if not self._over:
            self._over = True
            self.steps.put_nowait(end)

    def ended(self, why: str) -> None:
        """It is over."""
        self._end(HasEnded(why))

    def fail(self, why: str, *, busy: bool = False) -> None:
        """It came to nothing."""
        self._end(HasEnded(why, failed=True, busy=busy))


Order = Restart | Attach
