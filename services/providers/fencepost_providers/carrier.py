"""Carries one record at a time into a running conversation. M072-M095.

The order of one step: the program is asked what it does, and the oldest record is claimed and the intent written, both
at once where the program rests as far as is known; generation, lease and what the program does are looked at
again; the record is submitted, once; what came of it is written; the mailbox is told. Only a proof that nothing was
taken gives a claim back, and then the program is asked again before anything else.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from fencepost.errors import FencepostError, NotWritten, Refused, Uncertain
from fencepost_kit import faults, logs
from fencepost_kit.clock import Clock
from fencepost_kit.refusal import Refusal
from fencepost_providers.adapters.base import SUBMIT_MS_MAX
from fencepost_providers.domain import runtimes
from fencepost_providers.domain.agents import Agent
from fencepost_providers.domain.carried import Answer, Bound, Carried, evidence_of
from fencepost_providers.domain.dispatch import Able, Situation, Step, decide
from fencepost_providers.domain.runtimes import (
    Accepted,
    Again,
    CapabilityKind,
    NotSubmitted,
    State,
    Submission,
    TurnBinding,
    Visible,
)
from fencepost_providers.life import Life
from fencepost_providers.links import ClaimAsk, ClaimKind, MailboxPort, Taken, Work
from fencepost_providers.metrics import Told
from fencepost_providers.outbox import Outbox

RELEASE_AGAIN_MS_MIN: Final = 100
RELEASE_AGAIN_MS_MAX: Final = 5_000
REST_MS_MIN: Final = 200
REST_MS_MAX: Final = 5_000
SUBMIT_SLACK_MS: Final = 5_000
GONE_GRACE_MS: Final = 2_000
# What must be left of a claim's term when it is submitted: it does not expire over a submission that takes its time.
CLAIM_SPARE_MS: Final = 36_000
TELL_MS_MAX: Final = 10_000

SUBMITTED: Final = faults.register("providers.submit.returned", "the program has answered, nothing is on disk of it")

_log: Final = logs.get(__name__)


class Carrier:
    """The dispatch of one agent. At most one thing is in flight: its steps are awaited one after the other."""

    def __init__(
        self,
        *,
        agent: Callable[[], Agent],
        generation: Callable[[], int],
        mailbox: MailboxPort,
        outbox: Outbox,
        clock: Clock,
        told: Told,
    ) -> None:
        self._agent = agent
        self._generation = generation
        self._mailbox = mailbox
        self._outbox = outbox
        self._clock = clock
        self._told = told
        self.requests = False
        self.context = False
        # What waits among the agent's tasks; see Work.
        self.wake = False
        self.stop = False
        self.left = 0
        self.held_until_ms = 0
        self.rest_until = 0.0
        self._high_water = 0
        self._round: int | None = None
        self._after_context = False
        self._after_request = False
        self._noted = 0
        self._shut_turn = ""
        self._releases = 0
        self._troubles = 0
        self._unanswered: ClaimAsk | None = None

    def note(self, work: Work) -> None:
        """Take what the mailbox says that there is."""
        self.requests = work.requests
        self.context = work.context
        self.wake, self.stop = work.wake, work.stop
        self.left, self.held_until_ms = work.left, work.held_until_ms
        self._noted += 1
        self._high_water = max(self._high_water, work.high_water)

    @property
    def has_work(self) -> bool:
        """Whether anything is to be carried, as far as was told."""
        return self.requests or self.context or self.wake or self.stop

    def begin_life(self) -> None:
        """Forget what belonged to the life before."""
        self._shut_turn = ""
        self._releases = self._troubles = 0
        self._unanswered = None
        self.rest_until = 0.0

    def due(self, life: Life | None, *, held_back: bool, holding: Step = Step.NOTHING) -> Step:
        """Return what is to be done now, as far as is known without asking.

        `holding` is the step for which a claim is held: its record is not among what the mailbox says that waits.
        """
        agent = self._agent()
        held_request = holding in {Step.BEGIN, Step.STEER}
        held_work = held_request or holding in {Step.WAKE, Step.STOP}
        free = holding is Step.NOTHING
        current = life.current if life is not None else runtimes.Activity(state=State.UNKNOWN)
        ready = life is not None and life.runtime is not None and not life.gone
        return decide(
            Situation(
                desired=agent.desired,
                ready=ready,
                leased=life is not None and not life.lease.lost,
                held_back=held_back or agent.deleting,
                resting=self._resting(),
                state=current.state,
                turn_id=current.turn_id,
                bound=life is not None and life.carries(current.turn_id),
                requests=held_request or (free and self.requests),
                context=holding is Step.SHOW or (not held_work and (self.context or self._round is not None)),
                after_context=self._after_context,
                when_active=agent.launch.when_active,
                able=life.able if life is not None else Able(),
                shut_turn=self._shut_turn,
                wake=holding is Step.WAKE or (free and self.wake),
                stop=holding is Step.STOP or (free and self.stop),
                after_request=self._after_request,
            )
        )

    async def step(self, life: Life, *, held_back: bool) -> bool:
        """Do one thing where there is one; tells whether to come again at once."""
        lost = self._unanswered
        if lost is not None and not self._resting():
            await self._taken_up(life, lost, held_back=held_back)
            return True
        if (
            life.current.state is State.UNKNOWN
            and self.has_work
            and not self._resting()
            and (await life.look()).state is State.UNKNOWN
        ):
            self._rest()
            return False
        step = self.due(life, held_back=held_back)
        if step not in _ACTS:
            return False
        if step is Step.BEGIN:
            # Asked while claim and intent are on their way: a turn that has begun unheard is rare, and then the work
            # joins it.
            taken, _ = await asyncio.gather(self._claimed(life, step), life.look())
            turn_id = life.current.turn_id
            if self.due(life, held_back=held_back, holding=step) is Step.STEER:
                step = Step.STEER
        else:
            turn_id = (await life.look()).turn_id
            step = self.due(life, held_back=held_back)
            if step not in _ACTS:
                return True
            taken = await self._claimed(life, step)
        if taken is not None:
            await self._carry(life, step, taken, turn_id, held_back=held_back)
        return True

    async def _taken_up(self, life: Life, lost: ClaimAsk, *, held_back: bool) -> None:
        """Ask again for a claim whose answer was lost: whatever is done now, nobody else can carry its record."""
        taken = await self._answered_claim(life, lost)
        if taken is None:
            return
        current = await life.look()
        step = _STEP_OF.get(lost.kind, Step.BEGIN if current.state is State.IDLE else Step.STEER)
        await self._carry(life, step, taken, current.turn_id, held_back=held_back)

    def _resting(self) -> bool:
        return self._clock.monotonic() < self.rest_until

    async def fail_all(self, generation: int, failed: tuple[str, str], *, wanted: Callable[[], bool]) -> int:
        """Answer every request that waits as failed by the host: the program cannot be started, and that is certain.

        Ends early where a person does not want the agent to run any more: what waits then is held. M158 M159.
        """
        count = 0
        self._unanswered = None
        while self.requests and wanted():
            ask = ClaimAsk(
                agent_id=self._agent().agent_id,
                generation=generation,
                kind=ClaimKind.REQUEST,
                high_water=0,
                key=f"claim-{uuid.uuid4().hex}",
            )
            try:
                taken = await self._mailbox.claim(ask)
            except FencepostError as error:
                _log.warning("not_failed_yet", reason=error.reason, agent=ask.agent_id)
                break
            if taken is None:
                self.requests = False
                break
            await self._outbox.intend(self._carried(taken))
            await self._outbox.settle(taken.token, Answer.FAILED, evidence_of(*failed), None)
            self._told.carried.labels("start", "failed").inc()
            count += 1
        return count

    # --- claiming ---------------------------------------------------------------------------------------------------

    async def _claimed(self, life: Life, step: Step) -> Taken | None:
        """Claim, and write the intent; None where there is nothing, or the answer is not known yet."""
        kind = _KIND_OF.get(step, ClaimKind.REQUEST)
        if kind is ClaimKind.CONTEXT and self._round is None:
            self._round, self.context = self._high_water, False
        ask = ClaimAsk(
            agent_id=life.agent_id,
            generation=life.generation,
            kind=kind,
            high_water=self._round or 0 if kind is ClaimKind.CONTEXT else 0,
            key=f"claim-{uuid.uuid4().hex}",
        )
        return await self._answered_claim(life, ask)

    async def _answered_claim(self, life: Life, ask: ClaimAsk) -> Taken | None:
        """Make a claim and write its intent. One whose answer is lost is kept, to be made again whole."""
        try:
            async with asyncio.timeout(TELL_MS_MAX / 1000):
                # What was given back must be back before the next is taken.
                await self._outbox.told_claims(life.agent_id)
            noted = self._noted
            taken = await self._mailbox.claim(ask)
        except TimeoutError:
            self._rest()
            return None
        except Uncertain as error:
            self._unanswered = ask
            self._trouble(error)
            return None
        except NotWritten as error:
            # Of a claim that was asked before, this says nothing: it stays to be asked again.
            self._trouble(error)
            return None
        except Refused as error:
            self._unanswered = None
            self._trouble(error)
            return None
        self._unanswered = None
        self._troubles = 0
        # What was told while the claim was on its way may be newer than its answer.
        told_since = noted != self._noted
        if taken is None:
            self._exhausted(ask.kind, told_since=told_since)
        if ask.kind in _WAKING and not told_since:
            # Taken or not due: it is told again when that changes.
            self.wake = self.wake and ask.kind is ClaimKind.STOP
            self.stop = False
        return taken if taken is not None and await self._intends(taken) else None

    async def _intends(self, taken: Taken) -> bool:
        """Write the intent: nothing is submitted without one on disk; the claim ends by its term or with this life."""
        carried = self._carried(taken)
        try:
            await self._outbox.intend(carried)
        except Refusal as refusal:
            _log.warning("intent_not_written", reason=refusal.reason, record=carried.record_id)
            self._rest()
            return False
        return True

    def _exhausted(self, kind: ClaimKind, *, told_since: bool) -> None:
        if kind is ClaimKind.REQUEST:
            self.requests = self.requests and told_since
            self._after_context = False
        elif kind is ClaimKind.CONTEXT:
            self._round = None
            self._after_context = self.requests

    def _trouble(self, error: FencepostError) -> None:
        _log.warning("claim_not_had", reason=error.reason, agent=self._agent().agent_id)
        self._rest()

    def _rest(self) -> None:
        pause_ms = min(REST_MS_MAX, REST_MS_MIN * 2 ** min(self._troubles, 16))
        self._troubles += 1
        self.rest_until = self._clock.monotonic() + pause_ms / 1000

    # --- submitting -------------------------------------------------------------------------------------------------

    def _carried(self, taken: Taken) -> Carried:
        return Carried(
            token=taken.token,
            agent_id=self._agent().agent_id,
            record_id=taken.delivery.record_id,
            generation=taken.generation,
            written_at_ms=self._clock.now_ms(),
        )

    def _unfit(self, life: Life, taken: Taken) -> str:
        """Return why a claim must not be submitted now, or nothing. Looked at just before the submission."""
        if life.lease.lost:
            return "the lease was lost"
        if life.gone:
            return "the runtime has ended"
        if taken.generation != life.generation or self._generation() != life.generation:
            return "another life of this agent has begun"
        if taken.expires_at_ms - self._clock.now_ms() < CLAIM_SPARE_MS:
            return "the claim is about to expire"
        if taken.delivery.kind not in _WORK | _CONTEXT:
            return "the record is of a kind that is not known"
        return ""

    async def _carry(self, life: Life, step: Step, taken: Taken, turn_id: str, *, held_back: bool) -> None:
        unfit = self._unfit(life, taken)
        if not unfit and self.due(life, held_back=held_back, holding=step) is not step:
            unfit = "what the conversation does has changed"
        if unfit:
            submission: Submission = NotSubmitted(code="not_submitted", detail=unfit, again=Again.NOW)
        else:
            submission = await self._submitted(life, step, taken, turn_id)
            if faults.ARMED:
                faults.hit(SUBMITTED)
        await self._concluded(life, step, taken, turn_id, submission)

    async def _submitted(self, life: Life, step: Step, taken: Taken, turn_id: str) -> Submission:
        runtime = life.runtime
        assert runtime is not None, "a life that is ready has a runtime"
        if step is Step.SHOW:
            work = asyncio.ensure_future(runtime.show(taken.delivery))
        elif step in {Step.BEGIN, Step.WAKE}:
            work = asyncio.ensure_future(runtime.begin(taken.delivery))
        else:
            work = asyncio.ensure_future(runtime.steer(taken.delivery, turn_id))
        began = self._clock.monotonic()
        try:
            return await self._answered(life, work)
        finally:
            if not work.done():
                work.cancel()
            self._told.submit_seconds.labels(step.value).observe(self._clock.monotonic() - began)

    @staticmethod
    async def _answered(life: Life, work: asyncio.Future[Submission]) -> Submission:
        """Await the answer, at most as long as the adapter may take, and not much longer than the life lasts."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (SUBMIT_MS_MAX + SUBMIT_SLACK_MS) / 1000
        while not work.done():
            left = deadline - loop.time()
            if life.lease.lost or left <= 0:
                break
            if life.gone:
                deadline = min(deadline, loop.time() + GONE_GRACE_MS / 1000)
            await asyncio.wait({work}, timeout=min(left, GONE_LOOK_MS / 1000))
        if not work.done():
            work.cancel()
            await asyncio.wait({work})
        if work.cancelled():
            return runtimes.Uncertain(code="submission_abandoned", detail="the runtime or its lease was lost meanwhile")
        error = work.exception()
        if error is not None:
            _log.exception("adapter_raised", error, agent=life.agent_id)
            return runtimes.Uncertain(code="adapter_error", detail=type(error).__name__)
        return work.result()

    async def _concluded(self, life: Life, step: Step, taken: Taken, turn_id: str, submission: Submission) -> None:
        """Write what came of a submission, and draw the consequences."""
        answer, evidence, binding = _judged(life, step, submission)
        await self._outbox.settle(taken.token, answer, evidence, binding)
        self._told.carried.labels(step.value, answer.name.lower()).inc()
        _log.info(
            "carried",
            step=step.value,
            outcome=answer.name.lower(),
            record=taken.delivery.record_id,
            agent=life.agent_id,
            generation=life.generation,
        )
        if step is not Step.SHOW:
            self._after_context = False
        if step in {Step.BEGIN, Step.WAKE}:
            self._after_request = step is Step.BEGIN
        if answer is Answer.ACCEPTED and binding is not None:
            life.bind(
                Bound(
                    token=taken.token,
                    agent_id=life.agent_id,
                    record_id=taken.delivery.record_id,
                    generation=taken.generation,
                    binding=binding,
                )
            )
        if answer is Answer.RELEASED:
            assert isinstance(submission, NotSubmitted)
            await self._given_back(life, step, turn_id, submission)
        else:
            self._releases = 0

    async def _given_back(self, life: Life, step: Step, turn_id: str, submission: NotSubmitted) -> None:
        self._releases += 1
        if step is Step.SHOW:
            self.context = True
            if submission.again is Again.NEVER:
                life.shows_nothing_more()
        else:
            # Of a wake-up the mailbox says whether it is due.
            self.requests = self.requests or step in {Step.BEGIN, Step.STEER}
            if step in {Step.STEER, Step.STOP} and submission.again is Again.WHEN_IDLE:
                self._shut_turn = turn_id
        if self._releases > 1 or (submission.again is Again.WHEN_IDLE and step not in {Step.STEER, Step.STOP}):
            pause_ms = min(RELEASE_AGAIN_MS_MAX, RELEASE_AGAIN_MS_MIN * 2 ** min(self._releases - 1, 16))
            self.rest_until = self._clock.monotonic() + pause_ms / 1000
        # An idle edge may have been used up while the claim was held: only the program can tell.
        await life.look()


_ACTS: Final = frozenset({Step.SHOW, Step.BEGIN, Step.STEER, Step.WAKE, Step.STOP})
_KIND_OF: Final = {Step.SHOW: ClaimKind.CONTEXT, Step.WAKE: ClaimKind.WAKE, Step.STOP: ClaimKind.STOP}
_STEP_OF: Final = {kind: step for step, kind in _KIND_OF.items()}
_WAKING: Final = frozenset({ClaimKind.WAKE, ClaimKind.STOP})
_WORK: Final = frozenset({"request", "prompt", "wake"})
_CONTEXT: Final = frozenset({"information", "reply", "notice"})
# How often a submission under way looks whether its life still stands.
GONE_LOOK_MS: Final = 200


def _judged(life: Life, step: Step, submission: Submission) -> tuple[Answer, str, TurnBinding | None]:
    """Return what a submission means for its claim: what does not fit the step is uncertain."""
    match submission:
        case NotSubmitted(code=code, detail=detail, again=again):
            definite = again is Again.NEVER and step is not Step.SHOW
            return (Answer.FAILED if definite else Answer.RELEASED), evidence_of(code, detail), None
        case Visible(evidence=evidence) if step is Step.SHOW:
            return Answer.VISIBLE, evidence_of("visible", evidence), None
        case Accepted(binding=binding, evidence=evidence) if step is not Step.SHOW:
            if binding.conversation_id != life.conversation_id:
                return Answer.UNCERTAIN, evidence_of("other_conversation", "it was taken by another conversation"), None
            # Where the end of a turn is not told there is nothing to wait for: only an explicit reply answers then.
            bound = replace(binding, provider=life.provider) if life.can(CapabilityKind.FINAL) else None
            return Answer.ACCEPTED, evidence_of("accepted", evidence), bound
        case runtimes.Uncertain(code=code, detail=detail):
            return Answer.UNCERTAIN, evidence_of(code, detail), None
        case _:
            return (
                Answer.UNCERTAIN,
                evidence_of("unexpected_answer", f"{type(submission).__name__} of {step.value}"),
                None,
            )
