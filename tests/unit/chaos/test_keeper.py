"""A keeper kills as planned; what cannot be reached is named, and costs a bounded time."""

from __future__ import annotations

import io
import signal
from collections.abc import Callable
from typing import Any, Final, cast

import pytest
from fencepost_chaos import keeper
from fencepost_chaos.history import Kill, Log
from fencepost_chaos.keeper import POINT_ATTEMPTS_MAX, POINT_S_MAX, WAITS_S_A_KILL, WAITS_S_BASE, Keeper, Service
from fencepost_chaos.plan import LEAVES_A_LOSS, NEEDS_A_LOSS, Planned

from fencepost.home import MAILBOX, MCP_EDGE

REACHED: Final = "mailbox.commit.after"
MISSED: Final = "mailbox.erasure.chunk"
ALSO_MISSED: Final = "mailbox.erasure.ended"


class Clock:
    """Time that only passes where a process is waited for."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


class Pretended:
    """A service of which some points are reached at once and others never."""

    name = MAILBOX

    def __init__(self, clock: Clock, missed: Callable[[str], bool]) -> None:
        self._clock = clock
        self._missed = missed
        self.process = self
        self.pid = 1
        self.returncode: int | None = None
        self.faults: list[str] = []

    async def spawn(self, *, fault: str = "") -> None:
        self.faults.append(fault)
        self.returncode = None

    async def ready(self) -> bool:
        return True

    async def ends_within(self, seconds: float) -> bool:
        fault = self.faults[-1] if self.faults else ""
        if not fault or self._missed(fault.partition("=")[0]):
            self._clock.now_s += seconds
            return False
        self.returncode = -signal.SIGKILL
        return True

    async def kill(self) -> int:
        self.returncode = -signal.SIGKILL
        return 1


class Kept(Log):
    """A log whose kills can be looked at."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self.kills: list[Kill] = []

    def add(self, event: Any) -> None:
        super().add(event)
        self.kills.append(event)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    stopped = Clock()
    monkeypatch.setattr(keeper, "time", stopped)
    return stopped


def kept(clock: Clock, *points: str, missed: Callable[[str], bool]) -> tuple[Keeper, Pretended, Kept]:
    service, log = Pretended(clock, missed), Kept()
    items = [Planned(service=MAILBOX, life_ms=0), *(Planned(service=MAILBOX, point=point, turn=2) for point in points)]
    return Keeper(cast("Service", service), items, log), service, log


async def test_a_point_that_is_reached_is_no_shortcoming(clock: Clock) -> None:
    held, service, log = kept(clock, REACHED, REACHED, missed=lambda point: False)
    await held.run()
    assert (held.missed, [one.point for one in log.kills]) == ([], ["", REACHED, REACHED])
    assert service.faults == [f"{REACHED}=kill@2", f"{REACHED}=kill@2", ""]


async def test_a_point_that_is_never_reached_is_named_once_and_not_waited_for_again(clock: Clock) -> None:
    held, service, log = kept(clock, *[MISSED] * 10, REACHED, missed=lambda point: point == MISSED)
    await held.run()
    assert held.missed == [MISSED]
    assert clock.now_s == pytest.approx(POINT_ATTEMPTS_MAX * POINT_S_MAX, abs=5)
    assert len([one for one in service.faults if one.startswith(MISSED)]) == POINT_ATTEMPTS_MAX
    assert len(log.kills) >= 12
    assert REACHED in {one.point for one in log.kills}


async def test_the_second_try_is_at_the_first_hit(clock: Clock) -> None:
    held, service, _ = kept(clock, MISSED, missed=lambda point: True)
    await held.run()
    assert service.faults == [f"{MISSED}=kill@2", f"{MISSED}=kill@1", ""]
    held = Keeper(
        cast("Service", Pretended(clock, lambda point: point == NEEDS_A_LOSS)),
        [Planned(service=MCP_EDGE, life_ms=0), Planned(service=MCP_EDGE, point=NEEDS_A_LOSS)],
        log := Kept(),
    )
    await held.run()
    assert [one.point for one in log.kills] == ["", "", LEAVES_A_LOSS, ""]


async def test_a_hit_in_between_starts_the_count_anew(clock: Clock) -> None:
    answers = iter([True, False] * 3)
    held, _, _ = kept(clock, *[MISSED] * 3, missed=lambda point: next(answers))
    await held.run()
    assert held.missed == []


async def test_however_many_points_are_missed_the_waiting_is_bounded_and_each_is_named(clock: Clock) -> None:
    points = [f"mailbox.point{number}.missed" for number in range(20)]
    held, _, log = kept(clock, *points, missed=lambda point: True)
    await held.run()
    # Named as missed, or as not tried to the end.
    assert sorted({*held.missed, *held.untried}) == sorted(points)
    assert held.untried
    assert len(log.kills) >= 21
    waited_s = WAITS_S_BASE + WAITS_S_A_KILL * 21
    assert clock.now_s <= waited_s + keeper.GIVEN_UP_LIFE_MS / 1000 * 21 + 0.1
