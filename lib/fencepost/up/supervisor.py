"""Starts services in their order, keeps them up, stops them in reverse. It signals nobody but its own children."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from fencepost.home import Home
from fencepost.up import policy
from fencepost.up.child import Child, first_of
from fencepost.up.logfile import LogFile
from fencepost.up.report import Overall, Phase, ServiceStatus, Status, to_json
from fencepost.up.settings import UpSettings
from fencepost.up.table import Row
from fencepost_kit.clock import SYSTEM_CLOCK
from fencepost_kit.files import write_private
from fencepost_kit.probe import until_ready
from fencepost_kit.serve import EXIT_REFUSED

Say = Callable[[str], None]


class Unit:
    """One service over all its lives."""

    def __init__(
        self,
        row: Row,
        home: Home,
        settings: UpSettings,
        *,
        say: Say,
        changed: Callable[[], None],
        variables: Mapping[str, str],
    ) -> None:
        self.row: Final = row
        self.ready: Final = asyncio.Event()
        self.problem = ""
        self.phase = Phase.WAITING
        self._home = home
        self._settings = settings
        self._variables = variables
        self._say = say
        self._changed = changed
        self._since_ms = SYSTEM_CLOCK.now_ms()
        self._ready_at_ms: int | None = None
        self._child: Child | None = None
        self._restarts = 0
        self._last_end = ""
        self._stop = asyncio.Event()
        self._log_path = home.log(row.name)
        self._log = LogFile(self._log_path, bytes_max=settings.log_bytes_max, files_max=settings.log_files_max)

    def status(self) -> ServiceStatus:
        """Return what a person may see."""
        return ServiceStatus(
            name=self.row.name,
            phase=self.phase,
            pid=self._child.pid if self._child is not None else None,
            since_ms=self._since_ms,
            ready_at_ms=self._ready_at_ms,
            restarts=self._restarts,
            last_end=self._last_end,
            log=str(self._log_path),
        )

    def stop(self) -> None:
        """Ask the service to end and not to be started again; run() then returns."""
        self._stop.set()

    async def run(self, needed: Sequence[Unit], hurry: asyncio.Event) -> None:
        """Keep the service up, once all that it needs was ready, until stop() or until it is given up."""
        for unit in needed:
            await first_of(unit.ready.wait(), self._stop.wait())
        crashes = 0
        while not self._stop.is_set():
            end = await self._live(hurry)
            if self._stop.is_set():
                break
            self._last_end = end.text()
            verdict = policy.judge(crashes, end, limits=self._settings.limits(), randomness=random.random())  # noqa: S311
            crashes = verdict.crash_exits
            if verdict.give_up or self._hopeless(end):
                self._give_up(crashes)
                return
            self._enter(Phase.BACKING_OFF)
            self._say(f"{self.row.name} {end.text()}; it is started again in {verdict.wait_ms / 1000:.1f} s")
            await first_of(self._stop.wait(), timeout_ms=verdict.wait_ms)
            self._restarts += 1
        self._enter(Phase.STOPPED)

    def _hopeless(self, end: policy.End) -> bool:
        """Tell whether another try of a service that has never been ready would only repeat the same answer."""
        return not self.ready.is_set() and (end.timed_out or end.code == EXIT_REFUSED)

    def _give_up(self, crashes: int) -> None:
        looped = f" ({crashes} times in a row)" if crashes > 1 else ""
        last = self._log.last_line.decode("utf-8", "replace")
        said = f" Its last line: {last}" if last else ""
        self.problem = (
            f"{self.row.name} {self._last_end}{looped}; it is not started again. Log: {self._log_path}.{said}"
        )
        self._enter(Phase.CRASH_LOOP if crashes > 1 else Phase.FAILED)
        self._say(self.problem)

    async def _live(self, hurry: asyncio.Event) -> policy.End:
        """Start the service, wait for its end or for stop(), and return how it ended."""
        try:
            self._child = child = await Child.start(
                self.row.module, self._home, self._log, {**os.environ, **self._variables}
            )
        except OSError as error:
            self._say(f"{self.row.name} cannot be started: {error.strerror}")
            return policy.End(code=os.EX_OSERR, ready_ms=None)
        self._enter(Phase.STARTING)
        try:
            ready_at = await self._readiness(child)
            timed_out = ready_at is None and not child.has_ended and not self._stop.is_set()
            if not timed_out:
                await first_of(child.gone(), self._stop.wait())
            lived_ms = None if ready_at is None else int((SYSTEM_CLOCK.monotonic() - ready_at) * 1000)
            if not child.has_ended:
                self._enter(Phase.STOPPING)
            code = await child.stop(self._settings.grace_ms, hurry)
        except BaseException:
            # A bug here must not leave a process behind that nobody watches.
            await child.stop(0, hurry)
            raise
        finally:
            self._child = None
            self._ready_at_ms = None
        limit_ms = self.row.ready_ms_max if timed_out else None
        return policy.End(code=code, ready_ms=lived_ms, timed_out_ms=limit_ms)

    async def _readiness(self, child: Child) -> float | None:
        """Return the monotonic time at which the child became ready; None: it ended, time is over, or stop()."""
        started = SYSTEM_CLOCK.monotonic()
        asked = asyncio.ensure_future(until_ready(self._home, self.row.name, child.pid))
        await first_of(asked, child.gone(), self._stop.wait(), timeout_ms=self.row.ready_ms_max)
        if asked.cancelled() or child.has_ended:
            return None
        asked.result()
        now = SYSTEM_CLOCK.monotonic()
        self._ready_at_ms = SYSTEM_CLOCK.now_ms()
        self.ready.set()
        self._enter(Phase.READY)
        self._say(f"{self.row.name} is ready after {now - started:.1f} s (process {child.pid})")
        return now

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._since_ms = SYSTEM_CLOCK.now_ms()
        self._changed()


class Supervisor:
    """The services of one home, with `variables` in their environment. The caller holds the supervisor's lock."""

    def __init__(
        self,
        home: Home,
        rows: Sequence[Row],
        settings: UpSettings,
        *,
        say: Say,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._home = home
        self._say = say
        self._started_at_ms = SYSTEM_CLOCK.now_ms()
        self._overall = Overall.STARTING
        self._problem = ""
        self._unwritten = False
        self._units = {
            row.name: Unit(row, home, settings, say=say, changed=self._publish, variables=variables) for row in rows
        }

    async def run(self, stop: asyncio.Event, hurry: asyncio.Event) -> int:
        """Start everything, keep it up until `stop`, stop it in reverse order; `hurry` cuts every grace short.

        Returns 0 after an orderly stop, 1 where a service could not be brought up; then nothing is left running.
        """
        self._publish()
        tasks = {
            name: asyncio.create_task(unit.run([self._units[needed] for needed in unit.row.after], hurry))
            for name, unit in self._units.items()
        }
        try:
            await self._bring_up(tasks, stop)
            if not self._problem and not stop.is_set():
                self._overall = Overall.READY
                self._publish()
                self._say("everything is ready")
                await self._keep_up(tasks, stop)
        finally:
            await self._take_down(tasks)
        return 1 if self._problem else 0

    async def _bring_up(self, tasks: dict[str, asyncio.Task[None]], stop: asyncio.Event) -> None:
        """Return when all are ready, one has been given up, or `stop` is set."""
        for name, unit in self._units.items():
            await first_of(unit.ready.wait(), *map(asyncio.shield, tasks.values()), stop.wait())
            if stop.is_set() or not unit.ready.is_set():
                break
            if tasks[name].done():
                break
        for name, task in tasks.items():
            if task.done():
                self._problem = self._units[name].problem or f"{name} is no longer watched"

    async def _keep_up(self, tasks: dict[str, asyncio.Task[None]], stop: asyncio.Event) -> None:
        """Return when `stop` is set, or when a service is no longer watched because of a bug here."""
        watched = set(tasks.values())
        while watched and not stop.is_set():
            await first_of(stop.wait(), *map(asyncio.shield, watched))
            for task in [task for task in watched if task.done()]:
                watched.discard(task)
                if task.exception() is not None:
                    self._problem = f"the supervisor failed: {type(task.exception()).__name__}"
                    return
        await stop.wait()

    async def _take_down(self, tasks: dict[str, asyncio.Task[None]]) -> None:
        self._overall = Overall.STOPPING
        self._publish()
        failures: list[BaseException] = []
        for name, unit in reversed(self._units.items()):
            unit.stop()
            results = await asyncio.gather(tasks[name], return_exceptions=True)
            failures += [result for result in results if isinstance(result, BaseException)]
        self._overall = Overall.FAILED if self._problem else Overall.STOPPED
        self._publish()
        if failures:
            raise failures[0]

    def status(self) -> Status:
        """Return the status of the whole."""
        services = tuple(unit.status() for unit in self._units.values())
        overall = self._overall
        if overall is Overall.READY and any(service.phase is not Phase.READY for service in services):
            overall = Overall.DEGRADED
        return Status(
            running=overall not in {Overall.STOPPED, Overall.FAILED},
            pid=os.getpid(),
            started_at_ms=self._started_at_ms,
            overall=overall,
            services=services,
            problem=self._problem or " ".join(unit.problem for unit in self._units.values() if unit.problem),
        )

    def _publish(self) -> None:
        try:
            write_private(self._home.up_status, to_json(self.status()))
        except OSError as error:
            if not self._unwritten:
                self._say(f"{self._home.up_status} cannot be written: {error.strerror}; services go on")
            self._unwritten = True
        else:
            self._unwritten = False
