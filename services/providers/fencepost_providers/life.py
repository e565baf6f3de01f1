"""One life of one agent's runtime: what its program says, and what its turns carry. M073 M082 M090 M091."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from fencepost_kit import faults, logs
from fencepost_kit.clock import Clock
from fencepost_providers.adapters.base import SUBMIT_MS_MAX, Runtime
from fencepost_providers.domain.carried import Bound, outcome_of
from fencepost_providers.domain.dispatch import Able
from fencepost_providers.domain.runtimes import (
    Activity,
    Capability,
    CapabilityKind,
    Closed,
    Row,
    RowKind,
    State,
    Support,
    TurnEnd,
    TurnStatus,
)
from fencepost_providers.leases import HeldLease
from fencepost_providers.links import Evidence, Observed
from fencepost_providers.metrics import Told
from fencepost_providers.outbox import Outbox
from fencepost_providers.reports import Reports
from fencepost_providers.rows import Rows

ENDS_KEPT_MAX: Final = 64
LOOK_SLACK_MS: Final = 2_000

TURN_ENDED: Final = faults.register("providers.turn.ended", "a turn with a request has ended, nothing is on disk of it")

_OBSERVED: Final = {
    State.IDLE: Observed.IDLE,
    State.PROCESSING: Observed.PROCESSING,
    State.ACTION_NEEDED: Observed.ACTION_NEEDED,
}
_LEFT: Final = (
    "It was woken as often as Fencepost does for {count} notification(s) of its tasks, and they still stand: "
    "prompt it, or reassign the tasks."
)
_HELD: Final = (
    "It was woken for its tasks as often as Fencepost does within an hour, and is again from {until:%Y-%m-%d %H:%M} "
    "UTC on: see whether agents give each other tasks in a circle."
)
_log: Final = logs.get(__name__)


class Life:
    """See adapters.base.Listener. `changed` is called after everything that may allow another step."""

    def __init__(
        self,
        *,
        agent_id: str,
        provider: str,
        generation: int,
        lease: HeldLease,
        reports: Reports,
        outbox: Outbox,
        rows: Rows,
        clock: Clock,
        told: Told,
        changed: Callable[[], None],
    ) -> None:
        self.agent_id: Final = agent_id
        self.provider: Final = provider
        self.generation: Final = generation
        self.lease: Final = lease
        self.reports: Final = reports
        self.runtime: Runtime | None = None
        self.conversation_id = ""
        self.current = Activity(state=State.UNKNOWN)
        self.closed_as: Closed | None = None
        # A start that ended otherwise than its contract says: a child may be left.
        self.unjoined = False
        self.began_at = clock.monotonic()
        self.able = Able()
        self._left = self._held_until_ms = 0
        self.capabilities: dict[CapabilityKind, Capability] = {}
        self._outbox = outbox
        self._rows = rows
        self._clock = clock
        self._told = told
        self._changed = changed
        self.heard = 0
        self._over = False
        self._bound: dict[str, list[Bound]] = {}
        # Ends of turns that nothing of ours was known to be in: an acceptance may be on its way. Newest last.
        self._ends: OrderedDict[str, TurnEnd] = OrderedDict()
        self._ending: set[asyncio.Task[None]] = set()

    # --- the listener ---------------------------------------------------------------------------------------------

    def activity(self, activity: Activity) -> None:
        """See Listener."""
        if not self._over:
            self.heard += 1
            self._note(activity, Evidence.PROVIDER_EVENT)

    def turn_ended(self, end: TurnEnd) -> None:
        """See Listener."""
        if self._over:
            return
        if end.turn_id in self._bound:
            self._settle(end)
        else:
            self._keep(end)
        self._changed()

    def row(self, row: Row) -> None:
        """See Listener. Changes of activity are told from what `activity` hears, so that none is told twice."""
        if not self._over and row.kind is not RowKind.STATUS:
            self._rows.add(row, at_ms=self._clock.now_ms(), generation=self.generation)

    def closed(self, closed: Closed) -> None:
        """See Listener."""
        if not self._over and self.closed_as is None:
            self.closed_as = closed
            self._changed()

    # --- what the keeper and the carrier ask ------------------------------------------------------------------------

    @property
    def gone(self) -> bool:
        """Whether the runtime has ended by itself, or its lease has."""
        return self.closed_as is not None or self.lease.lost

    def ready(self, runtime: Runtime, capabilities: dict[CapabilityKind, Capability]) -> None:
        """Take the started runtime."""
        self.runtime = runtime
        self.conversation_id = runtime.conversation_id
        self.capabilities = capabilities
        self.able = Able(
            begin=self.can(CapabilityKind.IDLE_START),
            steer=self.can(CapabilityKind.MID_TURN),
            show=self.can(CapabilityKind.INFORMATION),
        )

    def note_waiting(self, *, left: int, held_until_ms: int) -> None:
        """Take for how many notifications the agent was woken often enough, and until when it is woken for none.

        Whoever looks at the agent is told.
        """
        if (left, held_until_ms) == (self._left, self._held_until_ms):
            return
        self._left, self._held_until_ms = left, held_until_ms
        if self.current.state is State.IDLE and not self._over:
            self._report(self.current, Evidence.PROVIDER_ANSWER)

    def can(self, kind: CapabilityKind) -> bool:
        """Tell whether the running version can do something."""
        found = self.capabilities.get(kind)
        return found is not None and found.support is not Support.NONE

    def shows_nothing_more(self) -> None:
        """Leave information to `receive` for the rest of this life: the program refuses it every time."""
        self.able = Able(begin=self.able.begin, steer=self.able.steer, show=False)

    def carries(self, turn_id: str) -> bool:
        """Tell whether a turn carries what its final words answer; a turn without a name may be any."""
        turns = [self._bound.get(turn_id, [])] if turn_id else self._bound.values()
        return any(one.is_answered for bound in turns for one in bound)

    async def look(self) -> Activity:
        """Ask the program what it does now; raises nothing. What it says by itself meanwhile is newer than that."""
        runtime, heard = self.runtime, self.heard
        if runtime is None or self.gone:
            return self.current
        try:
            async with asyncio.timeout((SUBMIT_MS_MAX + LOOK_SLACK_MS) / 1000):
                found = await runtime.activity()
        except TimeoutError:
            found = Activity(state=State.UNKNOWN)
        except Exception as error:  # noqa: BLE001 - whoever asks may hold a claim, which must not be lost with it
            _log.exception("adapter_raised", error, agent=self.agent_id)
            found = Activity(state=State.UNKNOWN)
        if heard == self.heard and not self._over:
            self._note(found, Evidence.PROVIDER_ANSWER)
        return self.current

    def bind(self, bound: Bound) -> None:
        """Take a request that a turn has accepted; its end may have come before."""
        turn_id = bound.binding.turn_id
        self._bound.setdefault(turn_id, []).append(bound)
        end = self._ends.get(turn_id)
        if end is not None:
            self._settle(end)

    async def end(self) -> None:
        """Hear nothing more; turns that were not seen to end are lost. Returns once all of it is on disk."""
        self._over = True
        for turn_id in list(self._bound):
            self._settle(
                TurnEnd(turn_id=turn_id, status=TurnStatus.LOST, detail="the runtime ended before the turn was seen to")
            )
        while self._ending:
            await asyncio.wait(set(self._ending))

    # --- inside -----------------------------------------------------------------------------------------------------

    def _note(self, activity: Activity, evidence: Evidence) -> None:
        before, self.current = self.current, activity
        self._report(activity, evidence)
        if (before.state, before.turn_id) != (activity.state, activity.turn_id):
            row = Row(
                kind=RowKind.STATUS,
                name=activity.state.name.lower(),
                text=activity.detail,
                turn_id=activity.turn_id,
            )
            self._rows.add(row, at_ms=self._clock.now_ms(), generation=self.generation)
        self._changed()

    def _report(self, activity: Activity, evidence: Evidence) -> None:
        state, detail = _OBSERVED.get(activity.state), activity.detail
        if state is Observed.IDLE and not detail and self._held_until_ms:
            detail = _HELD.format(until=datetime.fromtimestamp(self._held_until_ms / 1000, UTC))
        elif state is Observed.IDLE and not detail and self._left:
            detail = _LEFT.format(count=self._left)
        if state is not None:
            self.reports.note(state, evidence, detail=detail, turn_id=activity.turn_id)

    def _keep(self, end: TurnEnd) -> None:
        """Keep how a turn ended. The first end of a turn counts: everybody in it gets the same."""
        self._ends.setdefault(end.turn_id, end)
        while len(self._ends) > ENDS_KEPT_MAX:
            self._ends.popitem(last=False)

    def _settle(self, end: TurnEnd) -> None:
        """Write how a turn ended for everything that it carries: shared turns give each the same."""
        carried = self._bound.pop(end.turn_id)
        end = self._ends.get(end.turn_id, end)
        if faults.ARMED:
            faults.hit(TURN_ENDED)
        # Kept: another request of the same turn may still be on its way to being accepted.
        self._keep(end)
        now_ms = self._clock.now_ms()
        for _ in carried:
            self._told.turns.labels(end.status.name.lower()).inc()
        task = asyncio.create_task(self._outbox.record([outcome_of(one, end, now_ms=now_ms) for one in carried]))
        self._ending.add(task)
        task.add_done_callback(self._written)

    def _written(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.exception("turn_end_not_written", error, agent=self.agent_id)
        self._changed()
