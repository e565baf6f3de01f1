"""Runs the services of the run, kills each as planned, and starts it again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

from fencepost_chaos.history import Kill, Log, now_ns
from fencepost_chaos.plan import Planned, once_more

from fencepost.home import Home
from fencepost_kit.probe import until_ready
from fencepost_testing.processes import MODULES, dying_with_us, environment

READY_S_MAX: Final = 30.0
# How long an armed process may live without reaching its point, once it is ready.
POINT_S_MAX: Final = 8.0
STOP_S_MAX: Final = 20.0
# A point that was not reached is tried once more, at its first hit; after so many times without one it is given up.
POINT_ATTEMPTS_MAX: Final = 2
# How long a keeper waits, all in all, for points that are not reached: some time, and a little more for each kill.
WAITS_S_BASE: Final = 24.0
WAITS_S_A_KILL: Final = 0.3
# How long a process lives that was armed at a point that is given up.
GIVEN_UP_LIFE_MS: Final = 300
PROBE_S_MAX: Final = 30.0
NO_SUCH_POINT: Final = "chaos.no_such_point"
LOG_CHARS: Final = 3_000


class Ended(Exception):
    """A service ended as nobody asked it to, or did not start."""


class Service:
    """One service of the home, as a process that this object starts and ends."""

    def __init__(self, home: Home, name: str) -> None:
        self.name = name
        self._home = home
        self._process: asyncio.subprocess.Process | None = None
        self.starts = 0

    async def spawn(self, *, fault: str = "") -> None:
        """Start it without waiting for anything."""
        extra = {"FENCEPOST_FAULTS": fault} if fault else {}
        self._home.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._home.log(self.name).open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *dying_with_us(sys.executable, "-P", "-m", MODULES[self.name]),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(self._home, extra),
                start_new_session=True,
            )
        self.starts += 1

    @property
    def process(self) -> asyncio.subprocess.Process:
        """The process that was started last."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process

    async def ready(self) -> bool:
        """Return True once it is ready, False where it ended first.

        Raises:
            Ended: it is not ready within READY_S_MAX.
        """
        asked = asyncio.ensure_future(until_ready(self._home, self.name, self.process.pid))
        ended = asyncio.ensure_future(self.process.wait())
        try:
            await asyncio.wait((asked, ended), timeout=READY_S_MAX, return_when=asyncio.FIRST_COMPLETED)
            if asked.done() or ended.done():
                return not ended.done()
            raise Ended(f"{self.name} was not ready within {READY_S_MAX} s\n{self.tail()}")
        finally:
            for task in (asked, ended):
                task.cancel()
            await asyncio.gather(asked, ended, return_exceptions=True)

    async def ends_within(self, seconds: float) -> bool:
        """Tell whether it ends by itself."""
        try:
            async with asyncio.timeout(seconds):
                await self.process.wait()
        except TimeoutError:
            return False
        return True

    async def kill(self) -> int:
        """SIGKILL it and join it; returns the moment of the signal."""
        at_ns = now_ns()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        return at_ns

    async def stop(self) -> None:
        """SIGTERM it and join it.

        Raises:
            Ended: it did not end cleanly.
        """
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        if not await self.ends_within(STOP_S_MAX):
            await self.kill()
            raise Ended(f"{self.name} did not end within {STOP_S_MAX} s of SIGTERM\n{self.tail()}")
        if self._process.returncode != 0:
            raise Ended(f"{self.name} ended with {self._process.returncode} after SIGTERM\n{self.tail()}")

    def tail(self) -> str:
        """The end of its log."""
        with contextlib.suppress(FileNotFoundError):
            return self._home.log(self.name).read_text(errors="replace")[-LOG_CHARS:]
        return "(no log)"

    async def points(self) -> list[str]:
        """Return the fault points that its process has: what it says when it is given one that it has not."""
        process = await asyncio.create_subprocess_exec(
            *dying_with_us(sys.executable, "-P", "-m", MODULES[self.name]),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment(self._home, {"FENCEPOST_FAULTS": f"{NO_SUCH_POINT}=kill"}),
        )
        async with asyncio.timeout(PROBE_S_MAX):
            said, _ = await process.communicate()
        named = re.search(r"It has: ([a-z0-9_., ]+)\.", said.decode(errors="replace"))
        if named is None:
            raise Ended(f"{self.name} did not name its fault points: {said.decode(errors='replace')[-LOG_CHARS:]}")
        return named[1].split(", ")


class Keeper:
    """Carries out the plan of one service."""

    def __init__(self, service: Service, items: Sequence[Planned], log: Log) -> None:
        self._service = service
        self._items = list(items)
        self._log = log
        self._waits_s = WAITS_S_BASE + WAITS_S_A_KILL * len(self._items)
        # How often a point was waited for in vain, one time after the other.
        self._attempts: Counter[str] = Counter()
        self.missed: list[str] = []
        # Planned when the time for waiting was over.
        self.untried: set[str] = set()

    async def run(self) -> None:
        """Kill as planned, the last time leaving the service as it is before its restart; then start it for good."""
        first = True
        while self._items:
            item = self._reachable(self._items.pop(0))
            if not first:
                await self._service.spawn(fault=item.fault)
            first = False
            await (self._at_point(item) if item.point else self._at_random(item))
        await self.restore()

    def _reachable(self, item: Planned) -> Planned:
        """Return the item, or a kill at another moment where its point is given up."""
        given_up = item.point in self.missed
        if item.point and not given_up and self._waits_s <= 0:
            given_up = True
            self.untried.add(item.point)
        if not given_up:
            return item
        return Planned(service=item.service, life_ms=GIVEN_UP_LIFE_MS)

    async def restore(self) -> None:
        """Have it running with nothing armed."""
        await self._service.spawn()
        if not await self._service.ready():
            raise Ended(f"{self._service.name} ended by itself\n{self._service.tail()}")

    async def _at_random(self, item: Planned) -> None:
        service = self._service
        if not await service.ready() or await service.ends_within(item.life_ms / 1000):
            raise Ended(f"{service.name} ended by itself with {service.process.returncode}\n{service.tail()}")
        self._log.add(Kill(service=service.name, at_ns=await service.kill()))

    async def _at_point(self, item: Planned) -> None:
        service = self._service
        ready = await service.ready()
        began = time.monotonic()
        if ready and not await service.ends_within(min(POINT_S_MAX, self._waits_s)):
            # Nobody came by: a kill all the same, and another try at the point.
            self._log.add(Kill(service=service.name, at_ns=await service.kill()))
            self._waits_s -= time.monotonic() - began
            self._attempts[item.point] += 1
            if self._attempts[item.point] >= POINT_ATTEMPTS_MAX:
                self.missed.append(item.point)
            else:
                self._items += once_more(item)
            return
        if service.process.returncode != -signal.SIGKILL:
            raise Ended(f"{service.name} ended with {service.process.returncode}, not by its fault\n{service.tail()}")
        self._attempts[item.point] = 0
        self._log.add(Kill(service=service.name, at_ns=now_ns(), point=item.point, ready=ready))
