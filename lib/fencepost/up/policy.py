"""What follows from the end of a service: pure, so that every case can be tried."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Final

SHORT_LIFE_MS: Final = 2_000
CRASH_EXITS_MAX: Final = 5
BACKOFF_MS_MIN: Final = 100
BACKOFF_MS_MAX: Final = 10_000
BACKOFF_DOUBLINGS_MAX: Final = 16

# Somebody's doing, not the service's own fault: a person, a test, the kernel under memory pressure.
KILLED_BY: Final = frozenset({-signal.SIGKILL, -signal.SIGTERM})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How often and how fast a service is started again."""

    crash_exits_max: int = CRASH_EXITS_MAX
    backoff_ms_min: int = BACKOFF_MS_MIN
    backoff_ms_max: int = BACKOFF_MS_MAX


@dataclass(frozen=True, kw_only=True)
class End:
    """How one life of a service ended.

    `code` is the exit code, negative for a signal; `ready_ms` how long it had been ready, None: never; `timed_out_ms`
    the limit that it was stopped at because it was not ready, None: it ended otherwise.
    """

    code: int
    ready_ms: int | None
    timed_out_ms: int | None = None

    @property
    def timed_out(self) -> bool:
        """Whether it was stopped because it was not ready in time."""
        return self.timed_out_ms is not None

    def text(self) -> str:
        """Return the end in words, to follow the name of the service."""
        if self.timed_out_ms is not None:
            return f"was not ready within {self.timed_out_ms / 1000:g} s"
        how = f"was ended by {_signal_name(-self.code)}" if self.code < 0 else f"exited with {self.code}"
        return (
            f"{how} before it was ready"
            if self.ready_ms is None
            else f"{how} {self.ready_ms / 1000:.1f} s after it was ready"
        )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What to do: start again after `wait_ms`, or give up. `crash_exits` is the new count."""

    give_up: bool
    wait_ms: int
    crash_exits: int


def is_crash(end: End) -> bool:
    """Tell whether an end counts against the crash-loop cap.

    Ends before readiness do, and ends within SHORT_LIFE_MS of it; a ready service that was killed never does.
    """
    if end.ready_ms is None:
        return True
    return end.ready_ms < SHORT_LIFE_MS and end.code not in KILLED_BY


def judge(crash_exits: int, end: End, *, limits: Limits, randomness: float) -> Verdict:
    """Return what follows from an end after `crash_exits` crashes in a row. `randomness` is in [0, 1)."""
    if is_crash(end):
        crash_exits += 1
    elif end.ready_ms is not None and end.ready_ms >= SHORT_LIFE_MS:
        crash_exits = 0
    give_up = crash_exits >= limits.crash_exits_max
    return Verdict(
        give_up=give_up,
        wait_ms=0 if give_up else backoff_ms(crash_exits, limits=limits, randomness=randomness),
        crash_exits=crash_exits,
    )


def backoff_ms(crash_exits: int, *, limits: Limits, randomness: float) -> int:
    """Return the wait before the next start: doubled by each crash in a row, between half of that and all of it."""
    doublings = min(max(crash_exits - 1, 0), BACKOFF_DOUBLINGS_MAX)
    full = min(limits.backoff_ms_max, limits.backoff_ms_min << doublings)
    return round(full * (0.5 + randomness / 2))
