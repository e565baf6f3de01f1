"""Everybody that this service keeps: one keeper an agent, fed from the directory and from the mailbox. M073 M074 M097.

Nothing is started before the directory was heard whole and what an earlier start of this service left is accounted for.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Final

from fencepost.errors import FencepostError
from fencepost_kit import logs
from fencepost_kit.ids import uuid_text
from fencepost_providers.directory import Directory
from fencepost_providers.domain.agents import Agent, Desired
from fencepost_providers.domain.carried import outcome_of
from fencepost_providers.domain.dispatch import Step
from fencepost_providers.domain.lifecycle import Phase
from fencepost_providers.keeper import Keeper, Parts
from fencepost_providers.links import Work
from fencepost_providers.outbox import lost_turn
from fencepost_providers.strays import is_gone

AGAIN_MS_MIN: Final = 100
AGAIN_MS_MAX: Final = 2_000
FINISH_MS_MAX: Final = 2_000
SWEEP_MS: Final = 30_000
SWEEP_GRACE_MS: Final = 1_000
GONE_WAIT_MS_MAX: Final = 5_000
GONE_LOOK_MS: Final = 50
FORGET_MS_MAX: Final = 70_000

_ACTS: Final = frozenset({Step.SHOW, Step.BEGIN, Step.STEER, Step.WAKE, Step.STOP, Step.START_OWNER})
_log: Final = logs.get(__name__)


def _names_in(folder: Path) -> list[str]:
    """Return the names in a folder that are UUIDs, as agents' folders are."""
    try:
        return [name for name in sorted(os.listdir(folder)) if _is_uuid(name)]  # noqa: PTH208 (names are all that counts)
    except OSError:
        return []


def _is_uuid(name: str) -> bool:
    try:
        return str(uuid.UUID(name)) == name
    except ValueError:
        return False


class Roster:
    """See the module. The directory is given by wiring before run()."""

    def __init__(self, parts: Parts, *, sweep_ms: int = SWEEP_MS) -> None:
        self._parts = parts
        self._sweep_ms = sweep_ms
        self._keepers: dict[str, Keeper] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._work: dict[str, Work] = {}
        self._owners_news = asyncio.Event()
        self._forgotten: asyncio.Queue[str] = asyncio.Queue()
        self._stopping = False
        # Its listings end no report of owners: they belong to nobody who owns.
        self._sweeper_id = str(uuid.uuid4())
        self.swept = 0
        self.directory: Directory

    # --- what others ask --------------------------------------------------------------------------------------------

    @property
    def keepers(self) -> Iterable[Keeper]:
        """Every keeper."""
        return self._keepers.values()

    def keeper(self, agent_id: str) -> Keeper | None:
        """Return the keeper of an agent; None where nobody has asked Fencepost to run it."""
        return self._keepers.get(agent_id)

    def in_phase(self, phase: Phase) -> int:
        """Return how many agents are in a phase."""
        return sum(keeper.phase is phase for keeper in self._keepers.values())

    # --- what is told -----------------------------------------------------------------------------------------------

    def note_agent(self, agent: Agent) -> None:
        """Take a record of the directory."""
        keeper = self._keepers.get(agent.agent_id)
        if keeper is not None:
            keeper.note_agent(agent)
        elif agent.desired is not Desired.UNSPECIFIED and not agent.deleting and not self._stopping:
            self._keep(agent)

    def note_removed(self, agent_id: str) -> None:
        """An agent is gone."""
        keeper = self._keepers.get(agent_id)
        if keeper is not None:
            keeper.note_removed()
        else:
            self._forgotten.put_nowait(agent_id)
        self._work.pop(agent_id, None)

    def owners_changed(self) -> None:
        """Let the mailbox know whose conversations are reached now."""
        self._owners_news.set()

    def _keep(self, agent: Agent) -> None:
        keeper = Keeper(self._parts, agent, incarnation=self._parts.store.dispatcher.incarnation)
        self._keepers[agent.agent_id] = keeper
        work = self._work.get(agent.agent_id)
        if work is not None:
            keeper.note_work(work)
        task = asyncio.create_task(keeper.run())
        self._tasks[agent.agent_id] = task
        task.add_done_callback(lambda done: self._gone(agent.agent_id, done))

    def _gone(self, agent_id: str, task: asyncio.Task[None]) -> None:
        keeper = self._keepers.pop(agent_id, None)
        self._tasks.pop(agent_id, None)
        if keeper is not None and keeper.removed:
            self._forgotten.put_nowait(agent_id)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.exception("keeper_ended", error, agent=agent_id)

    # --- tasks ------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop every runtime and join it; what is in hand is finished first where that is quick.

        Harmless when repeated. A caller that is cancelled leaves the stopping to go on.
        """
        self._stopping = True
        self._parts.outbox.stop_soon()
        tasks = set(self._tasks.values())
        if not tasks:
            return
        for keeper in self._keepers.values():
            keeper.stop_soon()
        _, slow = await asyncio.wait(tasks, timeout=FINISH_MS_MAX / 1000)
        for agent_id, keeper in self._keepers.items():
            if not keeper.closing and not (task := self._tasks[agent_id]).cancelling():
                task.cancel()
        if slow:
            await asyncio.wait(slow)

    async def recover(self) -> None:
        """Account for what an earlier start left: its leases, and the turns that it has lost sight of."""
        await self.directory.loaded.wait()
        await asyncio.gather(*(self._succeed(mark.agent_id) for mark in self._parts.store.lives()))
        pause_ms = AGAIN_MS_MIN
        while True:
            try:
                bindings = await self._parts.mailbox.bindings()
            except FencepostError as error:
                _log.debug("bindings_not_known", reason=error.reason)
            else:
                break
            await self._parts.clock.sleep(pause_ms / 1000)
            pause_ms = min(AGAIN_MS_MAX, pause_ms * 2)
        now_ms = self._parts.clock.now_ms()
        lost = [
            outcome_of(binding.bound, lost_turn(binding.bound.binding), now_ms=now_ms)
            for binding in bindings
            if not binding.uncertain and not self._parts.outbox.records(binding.bound.token)
        ]
        await self._parts.outbox.record(lost)
        if lost:
            _log.warning("bindings_lost", count=len(lost))
        self._parts.recovered.set()

    async def forget(self) -> None:
        """Let adapters take back what is outside of deleted agents' folders, earlier ones' too; until cancelled."""
        await self.directory.loaded.wait()
        folders = self._parts.home.path / "agents"
        for name in await asyncio.to_thread(_names_in, folders):
            if self.directory.agent(name) is None:
                self._forgotten.put_nowait(name)
        while True:
            agent_id = await self._forgotten.get()
            for adapter in self._parts.adapters.forgetting:
                try:
                    async with asyncio.timeout(FORGET_MS_MAX / 1000):
                        await adapter.forget(agent_id, str(self._parts.home.agent_folder(agent_id)))
                except Exception as error:  # noqa: BLE001 - it is asked again at the next start
                    _log.exception("not_forgotten", error, agent=agent_id)

    async def _succeed(self, agent_id: str) -> None:
        """Give up the lease of a life of an earlier start where its process is certainly gone."""
        parts = self._parts
        mark = next(mark for mark in parts.store.lives() if mark.agent_id == agent_id)
        until = parts.clock.monotonic() + GONE_WAIT_MS_MAX / 1000
        while mark.pid and not is_gone(mark.pid, mark.pid_mark):
            if parts.clock.monotonic() >= until:
                _log.warning("child_of_earlier_start_lives", agent=agent_id, pid=mark.pid)
                return
            await parts.clock.sleep(GONE_LOOK_MS / 1000)
        if not mark.pid:
            # Whether anything was started is not known: the lease ends by its term.
            return
        try:
            await parts.sessions.release(mark.acquisition_id)
        except FencepostError as error:
            _log.warning("lease_of_earlier_start_stays", agent=agent_id, reason=error.reason)
            return
        await parts.store.end_life(agent_id)

    async def follow_work(self) -> None:
        """Follow who has work, for as long as this is not cancelled."""
        pause_ms = AGAIN_MS_MIN
        dispatcher_id = uuid_text(self._parts.store.dispatcher.dispatcher_id)
        while True:
            named: set[str] | None = set()
            try:
                async with aclosing(self._parts.mailbox.watch_work(dispatcher_id)) as stream:  # type: ignore[type-var]
                    async for work in stream:
                        pause_ms = AGAIN_MS_MIN
                        if not work.agent_id:
                            self._only(named or set(), work.high_water)
                            named = None
                            # Owners are forgotten with the stream that they were told beside.
                            self.owners_changed()
                        else:
                            self._note_work(work)
                            if named is not None:
                                named.add(work.agent_id)
            except FencepostError as error:
                _log.debug("work_not_followed", reason=error.reason)
            await self._parts.clock.sleep(pause_ms / 1000)
            pause_ms = min(AGAIN_MS_MAX, pause_ms * 2)

    def _note_work(self, work: Work) -> None:
        self._work[work.agent_id] = work
        keeper = self._keepers.get(work.agent_id)
        if keeper is not None:
            keeper.note_work(work)

    def _only(self, named: set[str], high_water: int) -> None:
        """A whole listing was told: whoever is not in it has nothing."""
        for agent_id in [agent_id for agent_id in self._work if agent_id not in named]:
            del self._work[agent_id]
            keeper = self._keepers.get(agent_id)
            if keeper is not None:
                keeper.note_work(Work(agent_id=agent_id, requests=False, context=False, high_water=high_water))

    async def tell_owners(self) -> None:
        """Tell the mailbox for whom records are carried, at each change."""
        pause_ms = AGAIN_MS_MIN
        while True:
            await self._owners_news.wait()
            self._owners_news.clear()
            owners = [
                (keeper.agent.agent_id, keeper.life.generation)
                for keeper in self._keepers.values()
                if keeper.life is not None and keeper.phase is Phase.READY
            ]
            try:
                await self._parts.mailbox.report_owners(owners)
            except FencepostError as error:
                _log.debug("owners_not_told", reason=error.reason)
                self._owners_news.set()
                await self._parts.clock.sleep(pause_ms / 1000)
                pause_ms = min(AGAIN_MS_MAX, pause_ms * 2)
            else:
                pause_ms = AGAIN_MS_MIN

    async def sweep(self) -> None:
        """Look slowly for work that no edge told of, and count it: the count must stay 0."""
        while True:
            await self._parts.clock.sleep(self._sweep_ms / 1000)
            try:
                await self.sweep_once()
            except FencepostError as error:
                _log.debug("not_swept", reason=error.reason)

    async def sweep_once(self) -> None:
        """One sweep."""
        missed = self._unknown_of(await self._listed())
        if missed:
            # What was committed just now is on its way: only what is missed twice was missed.
            await self._parts.clock.sleep(SWEEP_GRACE_MS / 1000)
            again = {work.agent_id: work for work in await self._listed()}
            for agent_id in {work.agent_id for work in self._unknown_of(again.values())} & {
                work.agent_id for work in missed
            }:
                self._found(agent_id, "work")
                self._note_work(again[agent_id])
        for keeper in list(self._keepers.values()):
            carrier, life = keeper.carrier, keeper.life
            if life is None or not keeper.is_asleep() or not carrier.has_work:
                continue
            heard = life.heard
            if keeper.due() not in _ACTS:
                await life.look()
            # What the program said by itself meanwhile is an edge like any other.
            if keeper.due() in _ACTS and heard == life.heard:
                self._found(keeper.agent.agent_id, "activity")
                keeper.wake()

    async def _listed(self) -> list[Work]:
        found: list[Work] = []
        async with aclosing(self._parts.mailbox.watch_work(self._sweeper_id)) as stream:  # type: ignore[type-var]
            async for work in stream:
                if not work.agent_id:
                    break
                found.append(work)
        return found

    def _unknown_of(self, listed: Iterable[Work]) -> list[Work]:
        unknown: list[Work] = []
        for work in listed:
            keeper = self._keepers.get(work.agent_id)
            if keeper is None or not keeper.is_asleep():
                continue
            carrier = keeper.carrier
            if (
                (work.requests and not carrier.requests)
                or (work.context and not carrier.context)
                or (work.wake and not carrier.wake)
                or (work.stop and not carrier.stop)
            ):
                unknown.append(work)
        return unknown

    def _found(self, agent_id: str, what: str) -> None:
        self.swept += 1
        _log.warning("swept", agent=agent_id, what=what)
