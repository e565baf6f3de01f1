"""Parked waits: subscribed before the state is read, woken by commits, ended by time and by a stop."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from fencepost_kit.clock import SYSTEM_CLOCK
from fencepost_kit.refusal import Overloaded
from fencepost_mailbox import waits as module
from fencepost_mailbox.waits import WAITS_OF_ONE_AGENT_MAX, ParkedWait, Waits, Wake
from fencepost_testing.mailboxes import WAIT_S_MAX, id16

ME, OTHER = id16("me"), id16("other")


def all_waits() -> Waits:
    return Waits(SYSTEM_CLOCK)


async def asleep(wait: ParkedWait, timeout_s: float = WAIT_S_MAX * 2) -> asyncio.Task[Wake]:
    """Start a sleep and return once it sleeps."""
    sleeping = asyncio.ensure_future(wait.sleep(timeout_s))
    await asyncio.sleep(0)
    assert not sleeping.done()
    return sleeping


async def ended(sleeping: asyncio.Task[Wake]) -> Wake:
    async with asyncio.timeout(WAIT_S_MAX):
        return await sleeping


@pytest.mark.requirement("mailbox.a-wait-misses-nothing")
async def test_a_commit_between_subscribing_and_sleeping_is_not_missed() -> None:
    waits = all_waits()
    with waits.register(ME) as wait:
        waits.wake([ME])
        assert await wait.sleep(WAIT_S_MAX * 2) is Wake.ACTIVITY


@pytest.mark.requirement("mailbox.a-wait-misses-nothing")
async def test_a_commit_while_it_sleeps_wakes_it() -> None:
    waits = all_waits()
    with waits.register(ME) as wait:
        sleeping = await asleep(wait)
        waits.wake([OTHER])
        await asyncio.sleep(0)
        assert not sleeping.done(), "another agent's commit concerns nobody else"
        waits.wake([ME])
        assert await ended(sleeping) is Wake.ACTIVITY


async def test_every_wait_of_an_agent_is_woken() -> None:
    waits = all_waits()
    with waits.register(ME) as first, waits.register(ME) as second:
        sleeping = [await asleep(first), await asleep(second)]
        waits.wake([ME])
        assert [await ended(one) for one in sleeping] == [Wake.ACTIVITY] * 2


async def test_a_wake_is_used_up_by_the_sleep_that_it_ended() -> None:
    waits = all_waits()
    with waits.register(ME) as wait:
        waits.wake([ME])
        waits.wake([ME])
        assert await wait.sleep(0.01) is Wake.ACTIVITY
        assert await wait.sleep(0.01) is Wake.TIMED_OUT


async def test_the_time_of_a_wait_counts_from_its_first_sleep_over_all_of_them() -> None:
    clock = asyncio.get_running_loop()
    wait = ParkedWait(SYSTEM_CLOCK)
    began = clock.time()
    wait.wake(Wake.ACTIVITY)
    assert await wait.sleep(0.05) is Wake.ACTIVITY
    assert await wait.sleep(WAIT_S_MAX * 2) is Wake.TIMED_OUT, "a later sleep gets what is left, not its own time"
    assert clock.time() - began < WAIT_S_MAX


async def test_a_wait_of_no_time_times_out_at_once() -> None:
    assert await ParkedWait(SYSTEM_CLOCK).sleep(0) is Wake.TIMED_OUT


@pytest.mark.requirement("mailbox.a-stop-ends-waits")
@pytest.mark.parametrize(
    "order",
    [
        (Wake.ACTIVITY, Wake.DRAINING),
        (Wake.DRAINING, Wake.ACTIVITY),
        (Wake.PROVIDER_CONTEXT, Wake.DRAINING),
        (Wake.DRAINING, Wake.PROVIDER_CONTEXT),
    ],
)
async def test_a_stop_outranks_every_other_reason(order: tuple[Wake, ...]) -> None:
    wait = ParkedWait(SYSTEM_CLOCK)
    for reason in order:
        wait.wake(reason)
    assert await wait.sleep(WAIT_S_MAX) is Wake.DRAINING


@pytest.mark.requirement("mailbox.injected-context-ends-waits")
@pytest.mark.parametrize("order", [(Wake.ACTIVITY, Wake.PROVIDER_CONTEXT), (Wake.PROVIDER_CONTEXT, Wake.ACTIVITY)])
async def test_an_injection_is_not_hidden_by_activity_beside_it(order: tuple[Wake, ...]) -> None:
    wait = ParkedWait(SYSTEM_CLOCK)
    for reason in order:
        wait.wake(reason)
    assert await wait.sleep(WAIT_S_MAX) is Wake.PROVIDER_CONTEXT


@pytest.mark.requirement("mailbox.a-stop-ends-waits")
async def test_a_stop_ends_parked_waits_and_those_that_come_later() -> None:
    waits = all_waits()
    with waits.register(ME) as wait:
        sleeping = await asleep(wait)
        waits.drain()
        waits.wake([ME])
        assert await ended(sleeping) is Wake.DRAINING
    with waits.register(ME) as late:
        assert await late.sleep(WAIT_S_MAX) is Wake.DRAINING


async def test_who_waits_is_known_while_it_waits() -> None:
    waits = all_waits()
    assert not waits.waiting(ME)
    with waits.register(ME), waits.register(ME):
        assert waits.waiting(ME)
        assert not waits.waiting(OTHER)
        assert waits.parked == 2
    assert not waits.waiting(ME)
    assert waits.parked == 0


@pytest.mark.requirement("mailbox.a-wait-misses-nothing")
async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    waits = all_waits()

    async def call() -> None:
        with waits.register(ME) as wait:
            await wait.sleep(WAIT_S_MAX * 2)

    parked = asyncio.ensure_future(call())
    await asyncio.sleep(0)
    assert waits.waiting(ME)
    parked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await parked
    assert waits.parked == 0
    assert not waits.waiting(ME)
    waits.wake([ME])


async def test_one_agent_may_park_so_many_calls_and_no_more() -> None:
    waits = all_waits()
    with contextlib.ExitStack() as parked:
        for _ in range(WAITS_OF_ONE_AGENT_MAX):
            parked.enter_context(waits.register(ME))
        with pytest.raises(Overloaded):
            parked.enter_context(waits.register(ME))
        with waits.register(OTHER):
            pass
    assert waits.parked == 0
    with waits.register(ME):
        assert waits.parked == 1


async def test_all_agents_together_may_park_so_many_calls_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITS_MAX", 3)
    waits = all_waits()
    with contextlib.ExitStack() as parked:
        for n in range(3):
            parked.enter_context(waits.register(id16(f"agent {n}")))
        with pytest.raises(Overloaded):
            parked.enter_context(waits.register(ME))
    assert waits.parked == 0
