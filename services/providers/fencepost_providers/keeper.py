"""One agent: compares what a person wants with what runs, and changes the runtime. M069 M154-M158 R167-R169.

Everything that changes a runtime is done by one task an agent, one thing after the other: that is its lifecycle lock.
A start may take long; it is cancelled, and its child joined, as soon as it is not wanted any more or its lease is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from fencepost.errors import FencepostError, Refused, Uncertain
from fencepost.home import Home
from fencepost_kit import logs
from fencepost_kit.clock import Clock
from fencepost_providers.adapters.base import Attachment, StartFailed
from fencepost_providers.adapters.registry import Adapters
from fencepost_providers.carrier import Carrier
from fencepost_providers.domain.agents import Agent, Desired
from fencepost_providers.domain.dispatch import Step
from fencepost_providers.domain.lifecycle import (
    RESTARTS_MAX,
    STEADY_MS,
    Command,
    Event,
    Phase,
    Standing,
    advance,
    command,
    pause_ms,
)
from fencepost_providers.domain.runtimes import Activity, LaunchPlan, State
from fencepost_providers.leases import HeldLease
from fencepost_providers.life import Life
from fencepost_providers.links import Evidence, LeaseKind, MailboxPort, Observed, SessionsPort, Work
from fencepost_providers.metrics import Told
from fencepost_providers.orders import Attach, Order, Restart
from fencepost_providers.outbox import Outbox
from fencepost_providers.plans import plan_of
from fencepost_providers.processes.child import to_the_end
from fencepost_providers.reports import Reports
from fencepost_providers.rows import Rows
from fencepost_providers.store.protocol import LifeMark, Store
from fencepost_providers.strays import mark_of

_log: Final = logs.get(__name__)

FLUSH_MS_MAX: Final = 10_000
STOP_MS_MAX: Final = 30_000
ASK_TRIES_MAX: Final = 5
ASK_AGAIN_MS: Final = 300
FAULT_PAUSE_MS: Final = 1_000
_ENDING: Final = "the service stops, or the agent is deleted; nothing was changed"
# How often a wait for a turn's end asks the program.
LOOK_AGAIN_MS: Final = 5_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What every keeper of this process shares."""

    home: Home
    store: Store
    sessions: SessionsPort
    mailbox: MailboxPort
    outbox: Outbox
    adapters: Adapters
    clock: Clock
    told: Told
    recovered: asyncio.Event
    owners_changed: Callable[[], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why there is no runtime, for people, and since which record of the agent."""

    text: str
    agent: Agent


class _Unwanted(Exception):
    """The start is not wanted any more."""


class Keeper:
    """See the module. Made with the agent's record; run() lives as long as the agent does."""

    def __init__(self, parts: Parts, agent: Agent, *, incarnation: int) -> None:
        self._parts = parts
        self.agent = agent
        self.phase = Phase.OFF
        self.since_ms = parts.clock.now_ms()
        self.life: Life | None = None
        self.rows = Rows(incarnation)
        self.failure: Failure | None = None
        self.plan: LaunchPlan | None = None
        self.attached = False
        self.removed = False
        self.closing = False
        self._stopping = False
        self._asleep = False
        self._generation = agent.generation
        self._changed = asyncio.Event()
        self._orders: list[Order] = []
        self._held_back = False
        self._attachment: Attachment | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._attach: Attach | None = None
        self._was_running = False
        self._failures = 0
        self._rest_until = 0.0
        self._starting: HeldLease | None = None
        self.carrier = Carrier(
            agent=lambda: self.agent,
            generation=lambda: self._generation,
            mailbox=parts.mailbox,
            outbox=parts.outbox,
            clock=parts.clock,
            told=parts.told,
        )

    # --- what others tell and ask -----------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """The newest life that is known of."""
        return self._generation

    @property
    def activity(self) -> Activity:
        """What the conversation does, as far as is known."""
        return (
            self.life.current if self.life is not None and self.phase is Phase.READY else Activity(state=State.UNKNOWN)
        )

    def wake(self) -> None:
        """Look again whether something is to be done."""
        self._changed.set()

    def note_agent(self, agent: Agent) -> None:
        """Take a record of the directory; an older one than is known changes nothing."""
        self._generation = max(self._generation, agent.generation)
        if agent.revision >= self.agent.revision:
            if agent.desired is not self.agent.desired and agent.desired is Desired.ON:
                self._failures, self._rest_until = 0, 0.0
            self.agent = agent
        self.wake()

    def note_removed(self) -> None:
        """The agent is gone: stop what runs, then end."""
        self.removed = True
        self.wake()

    def note_work(self, work: Work) -> None:
        """Take what the mailbox says that there is."""
        self.carrier.note(work)
        if self.life is not None:
            self.life.note_waiting(left=work.left, held_until_ms=work.held_until_ms)
        self.wake()

    def stop_soon(self) -> None:
        """Finish what is in hand, then stop what runs and end: the service stops."""
        self._stopping = True
        self.wake()

    def order(self, order: Order) -> None:
        """Queue what a person asked for."""
        if self.closing:
            order.fail(_ENDING)
            return
        self._orders.append(order)
        self.wake()

    # --- the one task -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the agent until it is removed, or until cancelled: then what runs is stopped and joined."""
        try:
            while not self._stopping and not (self.removed and self.life is None):
                self._changed.clear()
                try:
                    if not await self._once():
                        await self._sleep()
                except Exception as error:  # noqa: BLE001 - a keeper that ended in silence would strand its agent
                    _log.exception("keeper_failed", error, agent=self.agent.agent_id)
                    await self._parts.clock.sleep(FAULT_PAUSE_MS / 1000)
        finally:
            self.closing = True
            for order in self._orders:
                order.fail(_ENDING)
            self._orders.clear()
            if self.life is not None:
                await self._end_attachment("the service stops")
                await self._stop(Event.STOP, Observed.OFF, "")
            self.rows.close()

    async def _once(self) -> bool:
        """Do one thing; False where there is nothing to do before something changes."""
        if self.life is not None and self.phase is Phase.READY and self.life.gone:
            await self._ended()
            return True
        if self._attach is not None and self._terminal_left():
            await self._detach()
            return True
        if self._orders:
            await self._obey(self._orders.pop(0))
            return True
        match command(self._standing()):
            case Command.START:
                await self._start(fresh=False)
                return True
            case Command.STOP:
                await self._end_attachment("the agent was switched off")
                await self._stop(Event.STOP, Observed.OFF, "")
                return True
            case Command.NOTHING:
                pass
        return self.life is not None and await self.carrier.step(self.life, held_back=self._held_back)

    async def _sleep(self) -> None:
        """Wait until something changes, or a pause ends."""
        now = self._parts.clock.monotonic()
        pauses = [end - now for end in (self._rest_until, self.carrier.rest_until) if end > now]
        self._asleep = True
        try:
            if not pauses:
                await self._changed.wait()
                return
            waits = {
                asyncio.ensure_future(self._changed.wait()),
                asyncio.ensure_future(self._parts.clock.sleep(min(pauses))),
            }
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
                await asyncio.gather(*waits, return_exceptions=True)
        finally:
            self._asleep = False

    def is_asleep(self) -> bool:
        """Tell whether nothing is done now, and nothing will be before something changes."""
        return self._asleep and not self._changed.is_set()

    def due(self) -> Step:
        """Return what the carrier would do now, as far as is known without asking."""
        return self.carrier.due(self.life, held_back=self._held_back)

    def _standing(self) -> Standing:
        return Standing(
            phase=self.phase,
            desired=Desired.OFF if self.removed else self.agent.desired,
            deleting=self.agent.deleting or self.removed,
            requests=self.carrier.requests,
            resting=self._parts.clock.monotonic() < self._rest_until,
            changed=self.failure is not None and _launch_changed(self.failure.agent, self.agent),
        )

    def _enter(self, event: Event) -> None:
        before = self.phase
        self.phase = advance(before, event)
        self.since_ms = self._parts.clock.now_ms()
        _log.info("phase", agent=self.agent.agent_id, was=before.name.lower(), now=self.phase.name.lower())

    # --- starting ---------------------------------------------------------------------------------------------------

    async def _start(self, *, fresh: bool) -> bool:
        """Start a life; False where it could not be, or is not wanted any more. The reason is kept as the failure."""
        self._enter(Event.START)
        self.failure = None
        try:
            life = await self._wanted(self._opened(fresh=fresh))
        except StartFailed as failed:
            self._start_failed(failed)
            return False
        except _Unwanted:
            self._enter(Event.STOP)
            self._enter(Event.STOPPED)
            self._parts.told.starts.labels("unwanted").inc()
            return False
        except Exception as error:  # noqa: BLE001 - an adapter that breaks its word is tried again after a pause
            _log.exception("start_raised", error, agent=self.agent.agent_id)
            self._start_failed(StartFailed("adapter_error", f"the adapter failed: {type(error).__name__}", again=True))
            return False
        except BaseException:
            self._enter(Event.START_FAILED)
            raise
        self.life = life
        self._enter(Event.STARTED)
        self._parts.told.starts.labels("ready").inc()
        self._parts.owners_changed()
        return True

    def _start_failed(self, failed: StartFailed) -> None:
        self._failures += 1
        self._parts.told.starts.labels("again" if failed.again else "failed").inc()
        self._rest_until = self._parts.clock.monotonic() + pause_ms(self._failures) / 1000
        self.failure = Failure(text=_text_of(failed), agent=self.agent)
        self._enter(Event.START_FAILED if failed.again else Event.GIVEN_UP)
        _log.warning(
            "start_failed", agent=self.agent.agent_id, code=failed.code, again=failed.again, detail=str(failed)
        )

    async def _wanted(self, work: Coroutine[Any, Any, Life]) -> Life:
        """Await a start; where it is not wanted any more, or its lease is lost, cancel it and join what it began.

        Raises:
            _Unwanted: it was cancelled.
        """
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                lost = self._starting is not None and self._starting.lost
                if lost or not self._still_wanted():
                    task.cancel()
                    await asyncio.wait({task})
                    break
                self._changed.clear()
                news = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait({task, news}, return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled() and task.exception() is None:
                await self._closed(task.result(), Observed.OFF, "")
            raise
        if task.cancelled():
            raise _Unwanted
        return task.result()

    def _still_wanted(self) -> bool:
        if self._stopping or self.removed or self.agent.deleting or self.agent.desired is Desired.OFF:
            return False
        if self._attach is not None and self._attach.gone:
            return False
        return not any(isinstance(order, Restart) for order in self._orders)

    async def _opened(self, *, fresh: bool) -> Life:
        """Take the lease, begin a generation, tell what is owed, open the generation, start the program.

        Raises:
            StartFailed: nothing runs, and the lease was given back.
        """
        parts, agent = self._parts, self.agent
        await parts.recovered.wait()
        acquisition_id = await self._asked(
            lambda key: parts.sessions.acquire(agent.agent_id, key=key, generation=self._generation)
        )
        lease = HeldLease(sessions=parts.sessions, clock=parts.clock, acquisition_id=acquisition_id, on_lost=self.wake)
        self._starting = lease
        life: Life | None = None
        try:
            life = await self._begun(agent, lease)
            await self._launched(agent, life, fresh=fresh)
        except BaseException as error:
            # A person may change their mind meanwhile: what was begun is given back all the same.
            await to_the_end(self._undone(agent, lease, life, error))
            raise
        finally:
            self._starting = None
        return life

    async def _begun(self, agent: Agent, lease: HeldLease) -> Life:
        """Begin a generation and open it, before anything is launched."""
        parts = self._parts
        provider = agent.provider
        generation = await self._asked(
            lambda key: parts.sessions.begin_generation(
                agent.agent_id, key=key, expected=self._generation, acquisition_id=lease.acquisition_id
            )
        )
        self._generation = max(self._generation, generation)
        self.carrier.begin_life()
        self.rows.begin_life()
        reports = Reports(
            sessions=parts.sessions,
            clock=parts.clock,
            agent_id=agent.agent_id,
            acquisition_id=lease.acquisition_id,
            generation=generation,
        )
        life = Life(
            agent_id=agent.agent_id,
            provider=provider,
            generation=generation,
            lease=lease,
            reports=reports,
            outbox=parts.outbox,
            rows=self.rows,
            clock=parts.clock,
            told=parts.told,
            changed=self.wake,
        )
        life.note_waiting(left=self.carrier.left, held_until_ms=self.carrier.held_until_ms)
        try:
            reports.note(Observed.STARTING, Evidence.PROCESS)
            try:
                async with asyncio.timeout(FLUSH_MS_MAX / 1000):
                    await parts.outbox.told(agent.agent_id)
            except TimeoutError:
                raise StartFailed(
                    "mailbox_unreachable", "the mailbox has not taken what is owed of the life before", again=True
                ) from None
            await self._asked(lambda _key: parts.mailbox.open_generation(agent.agent_id, generation))
            await parts.store.begin_life(
                LifeMark(agent_id=agent.agent_id, acquisition_id=lease.acquisition_id, generation=generation)
            )
        except BaseException:
            await life.end()
            await reports.close()
            raise
        return life

    async def _launched(self, agent: Agent, life: Life, *, fresh: bool) -> None:
        """Start the program and bind its conversation."""
        parts = self._parts
        adapter = parts.adapters.get(agent.provider)
        if adapter is None:
            raise StartFailed("unknown_provider", parts.adapters.problem(agent.provider))
        wanted = "" if fresh else agent.conversation_id
        plan = await asyncio.to_thread(plan_of, parts.home, agent, generation=life.generation, conversation_id=wanted)
        self.plan = plan
        try:
            runtime = await adapter.start(plan, life)
        except (StartFailed, asyncio.CancelledError):
            raise
        except BaseException:
            # It breaks its word, and nobody knows whether a child is left.
            life.unjoined = True
            raise
        life.ready(runtime, dict(adapter.capabilities(runtime.version)))
        if plan.conversation_id and runtime.conversation_id != plan.conversation_id:
            raise StartFailed(
                "other_conversation",
                "the program opened another conversation than the one it was asked to go on with",
                hint="Look at it with `fencepost agent doctor NAME`; `agent new-session` begins a new one.",
            )
        await parts.store.begin_life(
            LifeMark(
                agent_id=agent.agent_id,
                acquisition_id=life.lease.acquisition_id,
                generation=life.generation,
                pid=runtime.pid,
                pid_mark=mark_of(runtime.pid),
            )
        )
        if runtime.conversation_id != agent.conversation_id:
            bound = await self._asked(
                lambda _key: parts.sessions.set_conversation(
                    agent.agent_id,
                    life.lease.acquisition_id,
                    generation=life.generation,
                    conversation_id=runtime.conversation_id,
                    replace=not plan.conversation_id and bool(agent.conversation_id),
                )
            )
            self.note_agent(bound)
        life.lease.become(LeaseKind.LIFECYCLE if self._attach is not None else LeaseKind.BACKGROUND)
        await life.look()

    async def _undone(self, agent: Agent, lease: HeldLease, life: Life | None, error: BaseException) -> None:
        """Leave nothing of a start that was not finished: the child is joined before the lease is given up."""
        failed = error if isinstance(error, StartFailed) else None
        try:
            if life is None:
                await lease.release()
                return
            joined = await self._joined(life)
            if failed is not None and not failed.again and not lease.lost:
                await self.carrier.fail_all(
                    life.generation, (failed.code, f"{failed} {failed.hint}"), wanted=self._still_wanted
                )
            state = Observed.OFF if failed is None else Observed.ERROR
            life.reports.note(state, Evidence.PROCESS, detail="" if failed is None else _text_of(failed))
            await life.end()
            await life.reports.close()
            await self._given_up(agent.agent_id, lease, joined=joined)
        except Exception as trouble:  # noqa: BLE001 - the first error is the one that counts
            _log.exception("start_not_undone", trouble, agent=agent.agent_id)

    async def _asked(self, question: Callable[[str], Coroutine[Any, Any, Any]]) -> Any:
        """Ask sessions or mailbox under one key, again where the answer was lost.

        Raises:
            StartFailed: it was refused, or did not answer; a later attempt may differ.
        """
        key = f"providers-{uuid.uuid4().hex}"
        for attempt in range(ASK_TRIES_MAX):
            try:
                return await question(key)
            except Refused as refused:
                raise StartFailed(refused.reason, refused.message, hint=refused.hint, again=True) from refused
            except Uncertain as lost:
                if attempt + 1 == ASK_TRIES_MAX:
                    raise StartFailed(lost.reason, lost.message, again=True) from lost
            except FencepostError as unsent:
                raise StartFailed(unsent.reason, unsent.message, again=True) from unsent
            await self._parts.clock.sleep(ASK_AGAIN_MS / 1000)
        raise AssertionError("the last attempt returns or raises")

    # --- stopping ---------------------------------------------------------------------------------------------------

    async def _stop(self, event: Event, state: Observed, detail: str) -> None:
        """Stop what runs, join it, tell it, give the lease back."""
        if self.phase is Phase.FAILED:
            self._enter(Event.STOP)
            self.failure = None
            return
        self._enter(event)
        life, self.life = self.life, None
        assert life is not None, "a runtime that is ready has a life"
        self._parts.owners_changed()
        await self._closed(life, state, detail)
        self._enter(Event.STOPPED)

    async def _closed(self, life: Life, state: Observed, detail: str) -> None:
        """Join what runs, tell how it ended and give the lease back, also where the service stops meanwhile."""
        await to_the_end(self._closing(life, state, detail))

    async def _closing(self, life: Life, state: Observed, detail: str) -> None:
        try:
            joined = await self._joined(life)
            await life.end()
            life.reports.note(state, Evidence.PROCESS, detail=detail)
            await life.reports.close()
            await self._given_up(life.agent_id, life.lease, joined=joined)
        except Exception as error:  # noqa: BLE001 - the life is over all the same; its lease ends by its term
            _log.exception("life_not_closed", error, agent=life.agent_id)
            await life.lease.abandon()

    async def _joined(self, life: Life) -> bool:
        """Stop the program; tells whether its end was seen."""
        if life.runtime is None or life.closed_as is not None:
            return not life.unjoined
        try:
            async with asyncio.timeout(STOP_MS_MAX / 1000):
                await life.runtime.stop()
        except Exception as error:  # noqa: BLE001 - whatever an adapter does, its lease must not be given up early
            _log.exception("runtime_not_joined", error, agent=life.agent_id)
            return False
        return True

    async def _given_up(self, agent_id: str, lease: HeldLease, *, joined: bool) -> None:
        if not joined:
            await lease.abandon()
            return
        await lease.release()
        await self._parts.store.end_life(agent_id)

    async def _ended(self) -> None:
        """The runtime has ended by itself, or its lease has: join, tell, and start again after a pause."""
        life = self.life
        assert life is not None, "something has ended"
        await self._end_attachment("the runtime has ended")
        closed = life.closed_as
        intended = closed is not None and closed.intended
        steady = self._parts.clock.monotonic() - life.began_at >= STEADY_MS / 1000
        self._failures = 1 if steady else self._failures + 1
        detail = ""
        if not intended:
            detail = "the lease was lost" if closed is None else f"the program ended: {closed.detail}".rstrip(": ")
        _log.warning("life_ended", agent=life.agent_id, generation=life.generation, detail=detail, intended=intended)
        self._rest_until = self._parts.clock.monotonic() + pause_ms(self._failures) / 1000
        given_up = self._failures > RESTARTS_MAX
        if given_up:
            detail = f"{detail}; it ended {self._failures} times in a row and is not started again before work comes"
        await self._stop_ended(Observed.OFF if intended else Observed.ERROR, detail, given_up=given_up)

    async def _stop_ended(self, state: Observed, detail: str, *, given_up: bool) -> None:
        self._enter(Event.ENDED)
        life, self.life = self.life, None
        assert life is not None
        self._parts.owners_changed()
        await self._closed(life, state, detail)
        if detail:
            self.failure = Failure(text=detail, agent=self.agent)
        self._enter(Event.GIVEN_UP if given_up else Event.STOPPED)

    # --- orders -----------------------------------------------------------------------------------------------------

    async def _obey(self, order: Order) -> None:
        try:
            if isinstance(order, Attach):
                await self._attaching(order)
            else:
                await self._restarted(order)
        except BaseException:
            order.fail("the service stops, or failed on the way; look at the runtime's state")
            raise

    async def _restarted(self, order: Restart) -> None:
        """Stop and start again, on the same conversation or a new one."""
        await self._end_attachment("the runtime is restarted")
        if self.life is not None:
            await self._stop(Event.STOP, Observed.OFF, "")
        self._failures, self._rest_until = 0, 0.0
        if await self._start(fresh=order.fresh):
            order.done()
        else:
            order.fail(self.failure.text if self.failure is not None else "it was stopped before it was ready")

    async def _attaching(self, order: Attach) -> None:
        """Hand the conversation to a terminal: nothing is carried from the wait on until it was seen to be there."""
        if self._attach is not None:
            order.fail("another terminal is attached")
            return
        if order.gone:
            order.fail("the terminal has gone; nothing was changed")
            return
        self._was_running = self.life is not None
        self._held_back = True
        self._attach = order
        try:
            if await self._idle(order):
                await self._handed_over(order)
        except StartFailed as failed:
            order.fail(_text_of(failed))
        finally:
            if not self.attached:
                await self._detach()

    async def _idle(self, order: Attach) -> bool:
        """Wait until no turn is in progress; False where that did not happen in time."""
        until = self._parts.clock.monotonic() + order.wait_idle_ms / 1000
        waiting_for: str | None = None
        while self.life is not None and not self.life.gone:
            current = await self.life.look()
            if current.state is State.IDLE:
                return True
            if not self._still_wanted():
                order.fail("the terminal has gone, or the agent is stopped or restarted; nothing was changed")
                return False
            left = until - self._parts.clock.monotonic()
            if left <= 0:
                order.fail("the agent's turn did not end in time; nothing was changed", busy=True)
                return False
            if current.turn_id != waiting_for:
                waiting_for = current.turn_id
                order.waiting(current.turn_id)
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, LOOK_AGAIN_MS / 1000)):
                    await self._changed.wait()
        return True

    async def _handed_over(self, order: Attach) -> None:
        if self.life is not None:
            await self._stop(Event.STOP, Observed.OFF, "")
        self._rest_until = 0.0
        if not await self._start(fresh=False):
            order.fail(self.failure.text if self.failure is not None else "the terminal has gone")
            return
        life = self.life
        assert life is not None, "it was started"
        assert life.runtime is not None, "it was started"
        attachment = await life.runtime.attach(order.permits)
        self._attachment = attachment
        order.launch(attachment.terminal)
        joining = asyncio.ensure_future(attachment.joined())
        try:
            while not joining.done() and not order.gone and not life.gone and self._still_wanted():
                self._changed.clear()
                news = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait({joining, news}, return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
        finally:
            if not joining.done():
                joining.cancel()
                await asyncio.wait({joining})
        if joining.cancelled():
            order.fail("the attachment ended before the terminal was seen on the conversation")
            return
        joining.result()
        life.lease.become(LeaseKind.INTERACTIVE)
        self._leaving = asyncio.ensure_future(attachment.left())
        self._leaving.add_done_callback(lambda _task: self.wake())
        self.attached = True
        self._held_back = False
        order.joined()

    def _terminal_left(self) -> bool:
        order = self._attach
        return order is not None and (order.gone or (self._leaving is not None and self._leaving.done()))

    async def _end_attachment(self, why: str) -> None:
        """Undo what only a terminal needs; nothing where none is attached."""
        order, self._attach = self._attach, None
        attachment, self._attachment = self._attachment, None
        self.attached = False
        if self._leaving is not None:
            self._leaving.cancel()
            await asyncio.gather(self._leaving, return_exceptions=True)
            self._leaving = None
        if attachment is not None:
            try:
                await attachment.close()
            except Exception as error:  # noqa: BLE001 - a terminal that cannot be undone must not strand the agent
                _log.exception("attachment_not_closed", error, agent=self.agent.agent_id)
        if order is not None:
            order.ended(why)
        self._held_back = False

    async def _detach(self) -> None:
        """The terminal has gone: the background owner comes back under a new generation; nothing is carried between."""
        handed_over = self._attachment is not None
        await self._end_attachment("the terminal has left")
        if self.life is not None and handed_over:
            await self._stop(Event.STOP, Observed.OFF, "")
        elif self.life is not None:
            self.life.lease.become(LeaseKind.BACKGROUND)
        self._rest_until = 0.0
        if self.life is None and self._was_running and self._still_wanted() and self.phase is Phase.OFF:
            await self._start(fresh=False)


def _text_of(failed: StartFailed) -> str:
    return f"{failed.code}: {failed}" + (f" {failed.hint}" if failed.hint else "")


def _launch_changed(before: Agent, now: Agent) -> bool:
    """Tell whether a person has changed something that a start depends on."""
    return (before.provider, before.workspace, before.launch, before.desired) != (
        now.provider,
        now.workspace,
        now.launch,
        now.desired,
    )
