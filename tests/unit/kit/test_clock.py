"""The machine's clock, and the one of the tests."""

from __future__ import annotations

import asyncio
import time

from fencepost_kit.clock import SYSTEM_CLOCK, Clock
from fencepost_testing.clock import VirtualClock


def as_clock(clock: Clock) -> Clock:
    return clock


async def test_the_systems_clock_tells_unix_milliseconds_and_sleeps() -> None:
    clock = as_clock(SYSTEM_CLOCK)
    assert abs(clock.now_ms() - time.time() * 1000) < 5_000
    before = clock.monotonic()
    await clock.sleep(0.01)
    assert clock.monotonic() - before >= 0.009


async def test_sleepers_wake_in_the_order_of_their_moments_and_see_them() -> None:
    clock = VirtualClock(now_ms=1000)
    seen: list[tuple[str, int]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await as_clock(clock).sleep(seconds)
        seen.append((name, clock.now_ms()))

    tasks = [asyncio.create_task(sleeper(*each)) for each in (("late", 3), ("early", 1), ("also", 1))]
    await clock.advance(2)
    assert seen == [("early", 2000), ("also", 2000)]
    assert (clock.sleeping, clock.monotonic(), clock.now_ms()) == (1, 2.0, 3000)
    await clock.advance(1)
    assert seen[-1] == ("late", 4000)
    await asyncio.gather(*tasks)


async def test_a_sleeper_that_sleeps_again_is_woken_within_one_advance() -> None:
    clock = VirtualClock()
    ticks: list[float] = []

    async def ticker() -> None:
        while True:
            await clock.sleep(0.25)
            ticks.append(clock.monotonic())

    task = asyncio.create_task(ticker())
    await clock.advance(1)
    assert ticks == [0.25, 0.5, 0.75, 1.0]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_the_wall_steps_without_the_monotonic_time() -> None:
    clock = VirtualClock(now_ms=5000)
    clock.step_wall(-3000)
    await clock.advance(1)
    assert (clock.now_ms(), clock.monotonic()) == (3000, 1.0)


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = VirtualClock()
    task = asyncio.create_task(clock.sleep(5))
    await clock.advance(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert clock.sleeping == 0
    await clock.advance(10)
