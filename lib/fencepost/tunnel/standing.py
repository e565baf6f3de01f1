"""Connections one after the other: as long as the person wants it, and as long as another may be had."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fencepost.errors import FencepostError
from fencepost.tunnel.link import Link, Plan, Prepared

RECONNECT_MS_MIN: Final = 500
RECONNECT_MS_MAX: Final = 30_000
# A connection that stood for so long begins the pauses anew.
STEADY_MS: Final = 60_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Happening:
    """What a tunnel tells: it stands, is lost, or has ended."""

    what: str
    prepared: Prepared | None = None
    # The ssh child of a connection that stands.
    pid: int = 0
    error: FencepostError | None = None
    again_ms: int = 0
    # Whether the keeper said that it took back what it had put; None where none could be asked.
    cleared: bool | None = None


Tell = Callable[[Happening], None]


def pause_ms(attempt: int, *, spread: float) -> int:
    """Return how long to wait before an attempt, the first being 0: doubled each time, capped, jittered by `spread`.

    `spread`: 0 to 1, that of a half which is left to chance.
    """
    whole = min(RECONNECT_MS_MIN * 2 ** min(attempt, 16), RECONNECT_MS_MAX)
    return int(whole * (0.5 + spread / 2))


async def stand(plan: Plan, prepared: Prepared, *, ends: asyncio.Event, give_up_s: int, tell: Tell) -> None:
    """Keep a tunnel until `ends` is set, whatever happens to its connections.

    Raises:
        FencepostError: the first connection failed, a later one failed for good, or none was had within `give_up_s`.
    """
    clock = asyncio.get_running_loop().time
    attempt, stood_before, away_since = 0, False, clock()
    while not ends.is_set():
        link = Link(plan)
        try:
            error, passes = await _one(link, prepared, ends, tell)
            if error is None:
                tell(Happening(what="ended", cleared=await link.stop()))
                return
        finally:
            await link.close()
        if link.stood_ms:
            stood_before, away_since = True, clock()
            attempt = 0 if link.stood_ms >= STEADY_MS else attempt
        if not passes or not stood_before or clock() - away_since > give_up_s:
            raise error
        again_ms = pause_ms(attempt, spread=random.random())  # noqa: S311 (spreads load, protects nothing)
        attempt += 1
        tell(Happening(what="lost", error=error, again_ms=again_ms))
        await _until(ends, again_ms)
    tell(Happening(what="ended"))


async def _until(ends: asyncio.Event, within_ms: int) -> None:
    try:
        async with asyncio.timeout(within_ms / 1000):
            await ends.wait()
    except TimeoutError:
        return


async def _one(link: Link, prepared: Prepared, ends: asyncio.Event, tell: Tell) -> tuple[FencepostError | None, bool]:
    """Stand on one connection until it is lost, or None where the person ends it."""
    ending = asyncio.create_task(_ended(ends))
    working = asyncio.create_task(_work(link, prepared, tell))
    both: set[asyncio.Task[tuple[FencepostError | None, bool]]] = {ending, working}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else (None, False)
    finally:
        for one in both:
            one.cancel()
        await asyncio.gather(*both, return_exceptions=True)


async def _ended(ends: asyncio.Event) -> tuple[FencepostError | None, bool]:
    await ends.wait()
    return None, False


async def _work(link: Link, prepared: Prepared, tell: Tell) -> tuple[FencepostError | None, bool]:
    try:
        found = await link.stand(prepared.folder)
    except FencepostError as error:
        return error, error.reason in _PASSING
    tell(Happening(what="stands", prepared=found, pid=link.pid))
    return await link.lost()


# What may go right by itself once a tunnel has stood. A refused key may be a machine that is just starting.
_PASSING: Final = frozenset({"unreachable", "ssh_failed", "ssh_auth_refused", "remote_home_in_use"})
