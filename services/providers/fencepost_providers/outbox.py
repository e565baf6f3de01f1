"""The outbox: what was meant and what came of it is on disk, and told until the mailbox has it.

An intent is on disk before anything is submitted, what came of it before it is told. The end of a turn is told first:
the mailbox puts it on its own disk together with the answer, and that spares two commits here. Where it is not taken at
once, TELL_FIRST_MS_MAX at most, it is written here and told until it is.

Telling is evidence: the same words on the same token change nothing when they come again, so a lost answer is told
again. A definite refusal ends the telling; what the mailbox holds then is the truth. Of one token the claim's own
answer goes first, then the turn's end. Source: M082 M095 M097.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from fencepost.errors import FencepostError, Refused
from fencepost_kit import faults, logs
from fencepost_kit.clock import Clock
from fencepost_kit.refusal import Refusal
from fencepost_providers.domain.carried import Answer, Bound, Carried, Outcome, evidence_of, outcome_of
from fencepost_providers.domain.runtimes import TurnBinding, TurnEnd, TurnStatus
from fencepost_providers.links import MailboxPort
from fencepost_providers.store.protocol import Store

TELL_AGAIN_MS_MIN: Final = 100
TELL_AGAIN_MS_MAX: Final = 5_000
TELLING_MAX: Final = 64
# How long the end of a turn is only in memory and on its way. A mailbox that cannot be reached says so sooner.
TELL_FIRST_MS_MAX: Final = 50
# How long a stop of the service waits for a disk that refuses evidence.
LAST_WRITES_MS_MAX: Final = 5_000

INTENDED: Final = faults.register("providers.intent.written", "an intent is on disk, nothing is submitted yet")
SETTLED: Final = faults.register("providers.outcome.stored", "what came of a claim is on disk, the mailbox is not told")
TOLD: Final = faults.register("providers.mailbox.told", "the mailbox has acknowledged, the outbox still holds the row")
RECORDED: Final = faults.register("providers.turn.recorded", "a turn's end is on disk, here or in the mailbox")

# A refusal for one of these says something about this process, not about what was told.
_OURS: Final = frozenset({"unauthenticated", "permission_denied", "stale_incarnation"})
_RESTARTED: Final = evidence_of(
    "providers_restarted", "the carrier ended between its intent and its knowledge of what came of it"
)
_LOST: Final = "the carrier was started again and has not seen the turn end"

_log: Final = logs.get(__name__)


def lost_turn(binding: TurnBinding) -> TurnEnd:
    """Return the end of a turn that an earlier start of this service has lost sight of."""
    return TurnEnd(turn_id=binding.turn_id, status=TurnStatus.LOST, detail=_LOST)


def _bound_of(carried: Carried) -> Bound | None:
    if carried.answer is not Answer.ACCEPTED or carried.binding is None:
        return None
    return Bound(
        token=carried.token,
        agent_id=carried.agent_id,
        record_id=carried.record_id,
        generation=carried.generation,
        binding=carried.binding,
    )


class Outbox:
    """The rows that the mailbox has not acknowledged, and the tasks that tell them."""

    def __init__(self, *, store: Store, mailbox: MailboxPort, clock: Clock) -> None:
        self._store = store
        self._mailbox = mailbox
        self._clock = clock
        self._carried: dict[str, Carried] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._tellers: dict[str, asyncio.Task[None]] = {}
        # Of ends of turns: told for the first time, whatever came of it; and their rows here, each with "is written".
        self._tried: dict[str, asyncio.Event] = {}
        self._rows: dict[str, asyncio.Event] = {}
        self._slots = asyncio.Semaphore(TELLING_MAX)
        self._told = asyncio.Event()
        self._closed = False
        self._give_up_at: float | None = None

    def __len__(self) -> int:
        """Rows on disk that the mailbox has not acknowledged."""
        return len(self._carried) + sum(written.is_set() for written in self._rows.values())

    async def load(self) -> None:
        """Take up what an earlier start left: an intent without an answer is uncertain, and everything is told."""
        for carried in self._store.carried():
            self._carried[carried.token] = carried
        for outcome in self._store.outcomes():
            self._outcomes[outcome.token] = outcome
            written = self._rows[outcome.token] = asyncio.Event()
            written.set()
        for carried in list(self._carried.values()):
            if carried.answer is Answer.UNKNOWN_YET:
                await self.settle(carried.token, Answer.UNCERTAIN, _RESTARTED, None)
                _log.warning("intent_uncertain", record=carried.record_id, agent=carried.agent_id)
        # An acceptance that the mailbox hears only now is in no listing of what it has bound: its turn was lost too.
        await self.record(
            [
                outcome_of(bound, lost_turn(bound.binding), now_ms=self._clock.now_ms())
                for bound in filter(None, map(_bound_of, self._carried.values()))
            ]
        )
        for token in {*self._carried, *self._outcomes}:
            self._tell(token)

    def stop_soon(self) -> None:
        """Wait for a disk that refuses evidence LAST_WRITES_MS_MAX more, and no longer."""
        if self._give_up_at is None:
            self._give_up_at = self._clock.monotonic() + LAST_WRITES_MS_MAX / 1000

    async def close(self) -> None:
        """Stop telling; rows stay for the next start."""
        self._closed = True
        tellers = list(self._tellers.values())
        for task in tellers:
            task.cancel()
        await asyncio.gather(*tellers, return_exceptions=True)

    def records(self, token: str) -> bool:
        """Tell whether a turn's end of this claim is on its way."""
        return token in self._outcomes

    async def intend(self, carried: Carried) -> None:
        """Write an intent; nothing may be submitted before this has returned.

        Raises:
            StorageError: nothing was written.
        """
        await self._store.intend(carried)
        self._carried[carried.token] = carried
        if faults.ARMED:
            faults.hit(INTENDED)

    async def settle(self, token: str, answer: Answer, evidence: str, binding: TurnBinding | None) -> None:
        """Write what came of an intent and begin to tell it. A disk that refuses is asked again until it takes it."""
        await self._kept(lambda: self._store.settle(token, answer, evidence, binding))
        held = self._carried[token]
        self._carried[token] = Carried(
            token=token,
            agent_id=held.agent_id,
            record_id=held.record_id,
            generation=held.generation,
            written_at_ms=held.written_at_ms,
            answer=answer,
            evidence=evidence,
            binding=binding,
        )
        if faults.ARMED:
            faults.hit(SETTLED)
        self._tell(token)

    async def record(self, outcomes: Sequence[Outcome]) -> None:
        """Tell how a turn ended for everything that it carried; returns once it is on disk, there or here."""
        fresh = [outcome for outcome in outcomes if outcome.token not in self._outcomes]
        if not fresh:
            return
        tried = {outcome.token: asyncio.Event() for outcome in fresh}
        self._tried |= tried
        self._outcomes |= {outcome.token: outcome for outcome in fresh}
        for token in tried:
            self._tell(token)
        try:
            async with asyncio.timeout(TELL_FIRST_MS_MAX / 1000):
                for event in tried.values():
                    await event.wait()
        except TimeoutError:
            pass  # it is on its way, and may take its time
        finally:
            for token in tried:
                del self._tried[token]
        await self._keep([outcome for outcome in fresh if self._outcomes.get(outcome.token) is outcome])
        if faults.ARMED:
            faults.hit(RECORDED)

    async def _keep(self, outcomes: Sequence[Outcome]) -> None:
        """Write ends of turns that the mailbox has not taken."""
        if not outcomes:
            return
        written = asyncio.Event()
        self._rows |= {outcome.token: written for outcome in outcomes}
        try:
            await self._kept(lambda: self._store.record(outcomes))
        finally:
            written.set()

    async def told(self, agent_id: str) -> None:
        """Return once nothing of an agent waits to be told. The caller bounds it."""
        while any(
            one.agent_id == agent_id and one.answer is not Answer.UNKNOWN_YET for one in self._carried.values()
        ) or any(one.agent_id == agent_id for one in self._outcomes.values()):
            self._told.clear()
            await self._told.wait()

    async def told_claims(self, agent_id: str) -> None:
        """Return once no answer to a claim of an agent waits to be told. The caller bounds it."""
        while any(one.agent_id == agent_id and one.answer is not Answer.UNKNOWN_YET for one in self._carried.values()):
            self._told.clear()
            await self._told.wait()

    async def _kept(self, write: Callable[[], Awaitable[object]]) -> None:
        """Write evidence. Nothing is learnt again that is lost here, so a full disk is waited for, but by no stop.

        What a stop leaves unwritten is uncertain from the next start on.
        """
        pause_ms = TELL_AGAIN_MS_MIN
        while True:
            try:
                await write()
            except Refusal as refusal:
                given_up = self._give_up_at is not None and self._clock.monotonic() >= self._give_up_at
                if not refusal.may_resend or self._closed or given_up:
                    raise
                _log.warning("outbox_not_written", reason=refusal.reason, cause=refusal.state.get("cause"))
                await self._clock.sleep(pause_ms / 1000)
                pause_ms = min(TELL_AGAIN_MS_MAX, pause_ms * 2)
            else:
                return

    def _tell(self, token: str) -> None:
        if token in self._tellers or self._closed:
            return
        task = asyncio.create_task(self._telling(token))
        self._tellers[token] = task
        task.add_done_callback(lambda done: self._ended(token, done))

    def _ended(self, token: str, task: asyncio.Task[None]) -> None:
        del self._tellers[token]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.exception("telling_failed", error)
        elif self._has_more(token):
            # It came after the last look of this task, and before the task was seen to have ended.
            self._tell(token)
        self._told.set()

    def _tries(self, token: str) -> None:
        """Note that what waits of a token was told, or could not be."""
        tried = self._tried.get(token)
        if tried is not None:
            tried.set()

    def _has_more(self, token: str) -> bool:
        carried = self._carried.get(token)
        return token in self._outcomes if carried is None else carried.answer is not Answer.UNKNOWN_YET

    async def _telling(self, token: str) -> None:
        """Tell everything of one token, in order, until nothing is left."""
        while True:
            carried, outcome = self._carried.get(token), self._outcomes.get(token)
            if carried is not None and carried.answer is not Answer.UNKNOWN_YET:
                await self._until_told(lambda carried=carried: self._mailbox.tell_carried(carried), carried)  # type: ignore[misc]
                await self._kept(lambda carried=carried: self._store.forget_carried(token, carried.answer))  # type: ignore[misc]
                self._carried.pop(token, None)
            elif carried is None and outcome is not None:
                await self._until_told(lambda outcome=outcome: self._mailbox.tell_outcome(outcome), outcome)  # type: ignore[misc]
                if (written := self._rows.pop(token, None)) is not None:
                    await written.wait()
                    await self._kept(lambda: self._store.forget_outcome(token))
                self._outcomes.pop(token, None)
                self._tries(token)
            else:
                return
            self._told.set()

    async def _until_told(self, tell: Callable[[], Awaitable[None]], row: Carried | Outcome) -> None:
        pause_ms = TELL_AGAIN_MS_MIN
        while True:
            try:
                async with self._slots:
                    await tell()
            except Refused as refused:
                if not refused.may_resend and refused.reason not in _OURS:
                    _log.warning(
                        "evidence_refused",
                        reason=refused.reason,
                        record=row.record_id,
                        agent=row.agent_id,
                        generation=row.generation,
                    )
                    return
                _log.warning("evidence_waits", reason=refused.reason, record=row.record_id)
            except FencepostError as error:
                _log.debug("evidence_waits", reason=error.reason, record=row.record_id)
            except Exception as error:  # noqa: BLE001 - whoever waits for it would wait until this service is restarted
                _log.exception("evidence_not_told", error, record=row.record_id, agent=row.agent_id)
            else:
                if faults.ARMED:
                    faults.hit(TOLD)
                return
            self._tries(row.token)
            await self._clock.sleep(pause_ms / 1000)
            pause_ms = min(TELL_AGAIN_MS_MAX, pause_ms * 2)
