"""Ready, WaitNotification, ListNotifications, ListSupervision, AcknowledgeOutcomes (T063 to T076).

What an agent has to see to is on disk, so that neither the end of a turn nor a restart loses any of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fencepost_kit.identity import Caller
from fencepost_kit.values import replace, value
from fencepost_mailbox.domain.pages import page_number
from fencepost_mailbox.domain.tasks import fields
from fencepost_mailbox.domain.tasks.needs import (
    check_field,
    check_state_settled,
    retires_when_seen,
    task_id_text,
)
from fencepost_mailbox.domain.tasks.refusals import NotificationsUnread, WorkRunning
from fencepost_mailbox.domain.tasks.values import SETTLED, TASKS_LISTED_MAX, Notice, Notification, Run, Supervised, Task
from fencepost_mailbox.domain.values import UNACKNOWLEDGED_COUNT_MAX, Answer, Inbox, Record
from fencepost_mailbox.store.protocol import Applied, InvariantBroken, Queries, Transaction
from fencepost_mailbox.usecases.ports import Ports, agent_of
from fencepost_mailbox.usecases.receive import Fencing
from fencepost_mailbox.usecases.tasks.callers import Actor, actor_of
from fencepost_mailbox.waits import Waits, Wake

_OUTCOMES: Final = frozenset({Notice.ACCEPTED, Notice.FAILED, Notice.EXPIRED, Notice.CANCELLED})


@value(frozen=True, kw_only=True, slots=True)
class Told:
    """A notification with its task as it stands now."""

    notification: Notification
    task: Task


@value(frozen=True, kw_only=True, slots=True)
class Unread:
    """Messages that an agent has not acknowledged and was not told of in this run: the oldest, and how many."""

    oldest: Record
    count: int


@value(frozen=True, kw_only=True, slots=True)
class Given:
    """What a wait was given: a notification, or that there are messages."""

    told: Told | None
    unread: Unread | None
    more: bool
    wake: Wake | None


def run_name(caller: Caller, run: str) -> str:
    """Return what a run is known by: another life or another registration is another run."""
    return f"{caller.generation}/{run}"


def run_of(queries: Queries, agent: bytes, run: str) -> Run:
    """Return what a run was given; one that is new was given nothing."""
    return next((one for one in queries.tasks.runs(agent) if one.run == run), Run(run=run, position=0))


def with_task(queries: Queries, notification: Notification) -> Told:
    """Return a notification with its task."""
    task = queries.tasks.task(notification.task_id)
    if task is None:
        raise InvariantBroken("a notification stands for a task that does not")
    return Told(notification=notification, task=task)


async def check_life(ports: Ports, caller: Caller, agent: bytes) -> None:
    """Let only the newest life of an agent go on that reads; the first sight of a new one raises the floor.

    Raises:
        StaleGeneration, AgentDeleted: see receive.Fencing.
    """
    queries = ports.store.read
    if queries.floor(agent) != caller.generation or queries.deleted(agent):
        await ports.store.submit(Fencing(agent_id=agent, generation=caller.generation, now_ms=ports.clock.now_ms()))


class Ready:
    """Ready."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, caller: Caller, run: str) -> int:
        """Return how many entries the caller goes on supervising, where nothing immediate remains. Changes nothing.

        Raises:
            WorkRunning: it has a task in execution, or one that an earlier life of it had.
            NotificationsUnread: it has notifications that it was not given in this run, or messages that it neither
                acknowledged nor was told of in it.
            StaleGeneration, AgentDeleted: an earlier life is not ready, nor is an agent that is no more.
        """
        ports = self._ports
        agent, _ = agent_of(caller)
        name = run_name(caller, fields.check_run(run))
        await check_life(ports, caller, agent)
        queries = ports.store.read
        with queries.snapshot():
            slot = queries.tasks.executing(agent)
            run_so_far = run_of(queries, agent, name)
            unread = queries.tasks.notifications(agent, run_so_far.position, 1)
            messages = queries.fresh_behind(agent, run_so_far.messages, 1)
            pending = queries.tasks.supervised_count(agent)
        if slot is not None:
            raise WorkRunning(
                "a task of yours is in execution, so the turn cannot end as ready; nothing was written",
                hint="Submit it, report its failure or confirm its cancellation; one that an earlier life of yours "
                "was running is gone on with by task_start.",
                state={"running": task_id_text(slot.task_id), "state": slot.phase.name.lower()},
            )
        if unread:
            raise NotificationsUnread(
                "there are notifications that this run was not given; nothing was written",
                hint="Read them by agent_wait, act on what they say, then call agent_ready again.",
                state={"notice": unread[0].notice.name.lower(), "task_id": task_id_text(unread[0].task_id)},
            )
        if messages:
            raise NotificationsUnread(
                "there are messages that this run neither acknowledged nor was told of; nothing was written",
                hint="Read them by agent_inbox, acknowledge what you have handled, then call agent_ready again.",
                state={"notice": "messages"},
            )
        return pending


@value(frozen=True, kw_only=True, slots=True)
class Giving:
    """Give the next notification to a run, and note that it was given."""

    agent: bytes
    generation: int
    run: str
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[Given]:
        """Return the oldest notification that the run was not given, which stands until its transition.

        Where there is none: that there are messages, up to UNACKNOWLEDGED_COUNT_MAX of them at once.

        Raises:
            StaleGeneration, AgentDeleted: an earlier life is given nothing.
        """
        fencing = Fencing(agent_id=self.agent, generation=self.generation, now_ms=self.now_ms).apply(tx)
        so_far = run_of(tx, self.agent, self.run)
        waiting = tx.tasks.notifications(self.agent, so_far.position, 2)
        fresh = tx.fresh_behind(self.agent, so_far.messages, UNACKNOWLEDGED_COUNT_MAX + 1)
        given = Given(told=None, unread=None, more=False, wake=None)
        if waiting:
            tx.tasks.set_run(self.agent, replace(so_far, position=waiting[0].sequence))
            given = replace(given, told=with_task(tx, waiting[0]), more=len(waiting) > 1 or bool(fresh))
        elif fresh:
            told = fresh[:UNACKNOWLEDGED_COUNT_MAX]
            (oldest,) = tx.page(self.agent, (Inbox.FRESH,), so_far.messages, 1)
            tx.tasks.set_run(self.agent, replace(so_far, messages=told[-1]))
            given = replace(given, unread=Unread(oldest=oldest, count=len(told)), more=len(fresh) > len(told))
        return Applied(value=given, wakes=fencing.wakes, work=fencing.work)


class WaitNotification:
    """WaitNotification."""

    def __init__(self, ports: Ports, waits: Waits) -> None:
        self._ports = ports
        self._waits = waits

    async def __call__(self, caller: Caller, timeout_ms: int, run: str) -> Given:
        """Return the next notification or word of messages that the run was not given, waiting where there is time.

        Raises:
            InvalidTimeout, InvalidTaskField: nothing was read.
            StaleGeneration, AgentDeleted: an earlier life does not wait, nor does an agent that is no more.
            Unauthenticated: the credential was removed while the call waited.
        """
        ports = self._ports
        agent, _ = agent_of(caller)
        fields.check_wait(timeout_ms)
        name = run_name(caller, fields.check_run(run))
        # Subscribed before the state is read: a commit between the two is not missed.
        with self._waits.register(agent) as wait:
            while True:
                ports.directory.check_stands(caller)
                await check_life(ports, caller, agent)
                given = await self._given(caller, agent, name)
                if given is not None:
                    return given
                wake = Wake.TIMED_OUT if timeout_ms == 0 else await wait.sleep(timeout_ms / 1000)
                if wake in (Wake.TIMED_OUT, Wake.DRAINING):
                    return Given(told=None, unread=None, more=False, wake=wake)

    async def _given(self, caller: Caller, agent: bytes, run: str) -> Given | None:
        queries = self._ports.store.read
        so_far = run_of(queries, agent, run)
        if not queries.tasks.notifications(agent, so_far.position, 1) and not queries.fresh_behind(
            agent, so_far.messages, 1
        ):
            return None
        given = await self._ports.store.submit(
            Giving(agent=agent, generation=caller.generation, run=run, now_ms=self._ports.clock.now_ms())
        )
        return given if given.told is not None or given.unread is not None else None


class ListNotifications:
    """ListNotifications."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, caller: Caller, after: int, size: int) -> tuple[Sequence[Told], bool]:
        """Return a page of what stands for the caller, oldest first, and whether there is more. Gives nothing.

        Raises:
            InvalidTaskField: the page asked for does not exist.
            StaleGeneration, AgentDeleted: an earlier life is shown nothing.
        """
        ports = self._ports
        agent, _ = agent_of(caller)
        limit = fields.page_size(size)
        await check_life(ports, caller, agent)
        queries = ports.store.read
        with queries.snapshot():
            found = queries.tasks.notifications(agent, after, limit + 1)
            return [with_task(queries, one) for one in found[:limit]], len(found) > limit


@value(frozen=True, kw_only=True, slots=True)
class Entry:
    """What an agent supervises, as it stands: a task, or a request that wants a result.

    A request is None once it was erased with its recipient; the host has answered it then.
    """

    supervised: Supervised
    task: Task | None
    request: Record | None
    reply_id: bytes | None
    age_ms: int

    @property
    def settled(self) -> bool:
        """Whether its outcome is settled."""
        if self.task is not None:
            return self.task.phase in SETTLED
        return self.request is None or self.request.answer is not Answer.OPEN


def entry_of(queries: Queries, one: Supervised, now_ms: int) -> Entry:
    """Return an entry of a supervision set as it stands."""
    task = queries.tasks.task(one.task_id)
    if task is not None:
        age_ms = max(0, now_ms - task.state_at_ms)
        return Entry(supervised=one, task=task, request=None, reply_id=None, age_ms=age_ms)
    settled = queries.settled(one.task_id)
    reply = queries.record(settled.reply_id) if settled is not None else None
    since_ms = reply.admitted_at_ms if reply is not None else one.at_ms
    return Entry(
        supervised=one,
        task=None,
        request=queries.record(one.task_id),
        reply_id=reply.record_id if reply is not None else None,
        age_ms=max(0, now_ms - since_ms),
    )


class ListSupervision:
    """ListSupervision."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, caller: Caller, size: int, token: str) -> tuple[Sequence[Entry], str, int]:
        """Return a page of what the caller supervises, the token of the next, and how much there is.

        Raises:
            InvalidTaskField, InvalidCursor: the page asked for does not exist.
            StaleGeneration, AgentDeleted: an earlier life is shown nothing.
        """
        ports = self._ports
        agent, _ = agent_of(caller)
        limit, after = fields.page_size(size), page_number(token) if token else 0
        await check_life(ports, caller, agent)
        queries, now_ms = ports.store.read, ports.clock.now_ms()
        with queries.snapshot():
            found = queries.tasks.supervised(agent, after, limit + 1)
            entries = [entry_of(queries, one, now_ms) for one in found[:limit]]
            pending = queries.tasks.supervised_count(agent)
        return entries, str(found[limit - 1].sequence) if len(found) > limit else "", pending


@value(frozen=True, kw_only=True, slots=True)
class Retiring:
    """Take outcomes out of a set that its agent was given and that need no decision of it."""

    actor: Actor
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[tuple[bytes, ...]]:
        """Return the tasks that left the set.

        Raises:
            StaleGeneration, AgentDeleted: an earlier life takes nothing out.
        """
        agent = self.actor.agent_id
        assert agent is not None, "only agents supervise"
        woken = self.actor.fence(tx, self.now_ms)
        retired = [one.task_id for one in _seen(tx, agent) if _retire(tx, agent, one.task_id)]
        return Applied(value=tuple(retired), wakes=woken, work=woken)


def _seen(queries: Queries, agent: bytes) -> list[Notification]:
    runs = queries.tasks.runs(agent)
    return queries.tasks.given_outcomes(agent, runs[0].position, TASKS_LISTED_MAX) if runs else []


def _retire(tx: Transaction, agent: bytes, task_id: bytes) -> bool:
    task = tx.tasks.task(task_id)
    if task is None or not retires_when_seen(task):
        return False
    consume_outcomes(tx, agent, task_id)
    return tx.tasks.leave(agent, task_id)


def consume_outcomes(tx: Transaction, agent: bytes, task_id: bytes) -> None:
    """Remove what an agent was told of a task's outcome: it has handled it."""
    for one in tx.tasks.notices_of(task_id):
        if one.agent == agent and one.notice in _OUTCOMES:
            tx.tasks.consume(agent, task_id, one.notice)


class Retire:
    """Part of ListTasks: the refresh of the set."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, actor: Actor) -> tuple[bytes, ...]:
        """Take out what can be taken out; writes only where there is something.

        Raises:
            StaleGeneration, AgentDeleted: see Retiring.
        """
        ports = self._ports
        assert actor.agent_id is not None, "only agents supervise"
        queries = ports.store.read
        current = queries.floor(actor.agent_id) == actor.generation and not queries.deleted(actor.agent_id)
        if current and not _seen(queries, actor.agent_id):
            return ()
        return await ports.store.submit(Retiring(actor=actor, now_ms=ports.clock.now_ms()))


@value(frozen=True, kw_only=True, slots=True)
class Acknowledging:
    """Take outcomes out of a set because their supervisor says that it has handled them."""

    actor: Actor
    task_ids: tuple[bytes, ...]
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[tuple[bytes, ...]]:
        """Return the tasks that left the set; what is not in it is passed over.

        Raises:
            InvalidState: the outcome of one is open.
            StaleGeneration, AgentDeleted: an earlier life acknowledges nothing.
        """
        agent = self.actor.agent_id
        assert agent is not None, "only agents supervise"
        woken = self.actor.fence(tx, self.now_ms)
        retired = []
        for task_id in self.task_ids:
            task = tx.tasks.task(task_id)
            if task is None or tx.tasks.entry(agent, task_id) is None:
                continue
            check_state_settled(task)
            consume_outcomes(tx, agent, task_id)
            tx.tasks.leave(agent, task_id)
            retired.append(task_id)
        return Applied(value=tuple(retired), wakes=woken, work=woken)


class AcknowledgeOutcomes:
    """AcknowledgeOutcomes."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, caller: Caller, task_ids: Sequence[bytes]) -> tuple[tuple[bytes, ...], int]:
        """Return the tasks that left the caller's set, and how many are left in it.

        Raises:
            InvalidTaskField: none, or more than TASKS_LISTED_MAX.
            Others: see Acknowledging.
        """
        ports, actor = self._ports, actor_of(self._ports, caller)
        agent, _ = agent_of(caller)
        check_field(
            holds=1 <= len(task_ids) <= TASKS_LISTED_MAX,
            field="task_ids",
            rule=f"has 1 to {TASKS_LISTED_MAX} entries",
        )
        distinct = tuple(dict.fromkeys(task_ids))
        retired = await ports.store.submit(Acknowledging(actor=actor, task_ids=distinct, now_ms=ports.clock.now_ms()))
        return retired, ports.store.read.tasks.supervised_count(agent)
