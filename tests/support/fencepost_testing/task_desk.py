"""Every call of supervised tasks over a store of its own, made by the names of agents and of tasks' last words."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from fencepost_kit.identity import Caller, Role
from fencepost_kit.ids import uuid_text
from fencepost_mailbox.domain.bindings import Turn
from fencepost_mailbox.domain.evidence.values import CommitReported, Evidence, Reported
from fencepost_mailbox.domain.idempotency import KeyVerdict
from fencepost_mailbox.domain.tasks.changes import Words
from fencepost_mailbox.domain.tasks.values import (
    Action,
    Attempt,
    Integration,
    Notice,
    State,
    Task,
    TaskEvent,
)
from fencepost_mailbox.domain.tasks.waking import Due
from fencepost_mailbox.usecases import claim as claims
from fencepost_mailbox.usecases.evidence.keep import Add, Added, KeepEvidence
from fencepost_mailbox.usecases.tasks import act, create, look, supervise, waking
from fencepost_mailbox.usecases.tasks.callers import Change
from fencepost_mailbox.usecases.tasks.settle import SettleTaskRequest
from fencepost_mailbox.usecases.tasks.steps import PassingTime
from fencepost_testing.mailboxes import PROJECT, Desk, a_caller, id16

OPERATOR: Final = "operator"
SERVICE: Final = "service"
COORDINATOR: Final = "cyd"


def caller_named(name: str, generation: int = 1) -> Caller:
    """What the guard knows of a call by this name: `operator`, `service`, the coordinator cyd, or an agent."""
    if name in (OPERATOR, SERVICE):
        role = Role.OPERATOR if name == OPERATOR else Role.SERVICE
        return Caller(credential_id=id16(name), role=role, agent_id=None, project_id=None, generation=0, label=name)
    role = Role.COORDINATOR if name == COORDINATOR else Role.AGENT
    return a_caller(name, generation=generation, role=role)


class TaskDesk(Desk):
    """A desk with the calls of tasks."""

    def __init__(self, path: Path, *names: str, **options: Any) -> None:
        super().__init__(path, *names, **options)
        self._requests = itertools.count(1)
        if COORDINATOR in names:
            self.agents.become(COORDINATOR, role=Role.COORDINATOR.value)

    def request_id(self) -> bytes:
        """A request id that was never used."""
        return next(self._requests).to_bytes(16, "big")

    # --- what is asked ------------------------------------------------------------------------------------------------

    async def assign(
        self,
        issuer: str,
        to: str,
        *,
        after: Iterable[bytes] = (),
        reviewer: str = "",
        request_id: bytes | None = None,
        generation: int = 1,
        **options: Any,
    ) -> bytes:
        """Assign a task and return its id."""
        change = await self.assigning(
            issuer, to, after=after, reviewer=reviewer, request_id=request_id, generation=generation, **options
        )
        return change.event.task_id

    async def assigning(
        self,
        issuer: str,
        to: str,
        *,
        after: Iterable[bytes] = (),
        request_id: bytes | None = None,
        generation: int = 1,
        **options: Any,
    ) -> Change:
        """Assign a task and return what that did."""
        facts: dict[str, Any] = {
            "request_id": self.request_id() if request_id is None else request_id,
            "description": "do it",
            "acceptance": "it is done",
            "pool": False,
            "target": to,
            "prerequisites": tuple(after),
            "project_id": PROJECT if issuer == OPERATOR else None,
        }
        return await create.Create(self.ports)(caller_named(issuer, generation), create.Command(**{**facts, **options}))

    async def pool(self, issuer: str, *eligible: str, after: Iterable[bytes] = (), **options: Any) -> bytes:
        """Offer a task to a pool and return its id."""
        change = await self.assigning(issuer, "", after=after, pool=True, eligible=tuple(eligible), **options)
        return change.event.task_id

    async def act(
        self,
        who: str,
        action: Action,
        task_id: bytes,
        *,
        generation: int = 1,
        request_id: bytes | None = None,
        revision: int | None = None,
        text: str | None = None,
        evidence: str | None = None,
        **options: Any,
    ) -> Change:
        """Act on a task with what the action must say; `options` are fields of the command or of its words."""
        words = {
            name: options.pop(name)
            for name in ("evidence_ids", "wait_reason", "percent", "commit", "start_deadline_ms")
            if name in options
        }
        if text is None:
            text = "" if action in (Action.CLAIM, Action.START, Action.SET_DEPENDENCIES, Action.ARCHIVE) else "words"
        if evidence is None:
            evidence = "seen" if action is Action.SUBMIT else ""
        if revision is None:
            task = self.store.read.tasks.task(task_id)
            needs = action in (Action.START, Action.PROGRESS, Action.SUBMIT, Action.ACCEPT, Action.REJECT)
            revision = (task.revision if task is not None else 1) if needs else 0
        command = act.Command(
            action=action,
            task_id=task_id,
            request_id=self.request_id() if request_id is None else request_id,
            revision=revision,
            words=Words(text=text, evidence=evidence, **words),
            **options,
        )
        return await act.Act(self.ports)(caller_named(who, generation), command)

    async def report(
        self,
        who: str,
        task_id: bytes,
        reported: Reported | None = None,
        *,
        note: str = "",
        request_id: bytes | None = None,
        generation: int = 1,
    ) -> Added:
        """Add evidence; a commit where nothing is said."""
        command = Add(
            task_id=task_id,
            reported=CommitReported(commit="a" * 40) if reported is None else reported,
            note=note,
            request_id=self.request_id() if request_id is None else request_id,
        )
        return await KeepEvidence(self.ports).add(caller_named(who, generation), command)

    async def evidence(
        self, who: str, task_id: bytes, *only: str, size: int = 0, after: str = ""
    ) -> tuple[Sequence[Evidence], bool]:
        """List evidence."""
        return await KeepEvidence(self.ports).listed(caller_named(who), task_id, only, size, after)

    async def claim_task(self, who: str, task_id: bytes, **options: Any) -> Change:
        """Claim a task."""
        return await self.act(who, Action.CLAIM, task_id, **options)

    async def start_task(self, who: str, task_id: bytes, **options: Any) -> Change:
        """Start a task."""
        return await self.act(who, Action.START, task_id, **options)

    async def progress(self, who: str, task_id: bytes, **options: Any) -> Change:
        """Note progress."""
        return await self.act(who, Action.PROGRESS, task_id, **options)

    async def submit(self, who: str, task_id: bytes, **options: Any) -> Change:
        """Submit work."""
        return await self.act(who, Action.SUBMIT, task_id, **options)

    async def accept(self, who: str, task_id: bytes, **options: Any) -> Change:
        """Accept work."""
        return await self.act(who, Action.ACCEPT, task_id, **options)

    async def reject(self, who: str, task_id: bytes, **options: Any) -> Change:
        """Send work back."""
        return await self.act(who, Action.REJECT, task_id, **options)

    async def cancel(self, who: str, task_id: bytes, **options: Any) -> Change:
        """Cancel work."""
        return await self.act(who, Action.CANCEL, task_id, **options)

    async def finish_cancel(self, who: str, task_id: bytes, **options: Any) -> Change:
        """Confirm that work has stopped."""
        return await self.act(who, Action.FINISH_CANCEL, task_id, **options)

    async def fail(self, who: str, task_id: bytes, **options: Any) -> Change:
        """Report a failure."""
        return await self.act(who, Action.FAIL, task_id, **options)

    async def retry(self, who: str, task_id: bytes, **options: Any) -> Change:
        """Queue work again."""
        return await self.act(who, Action.RETRY, task_id, **options)

    async def reassign(self, who: str, task_id: bytes, to: str, **options: Any) -> Change:
        """Give work to another."""
        return await self.act(who, Action.REASSIGN, task_id, target=to, **options)

    async def depend(self, who: str, task_id: bytes, after: Iterable[bytes], **options: Any) -> Change:
        """Replace prerequisites."""
        return await self.act(who, Action.SET_DEPENDENCIES, task_id, prerequisites=tuple(after), **options)

    async def override(self, task_id: bytes, action: Action, to: str = "", **options: Any) -> Change:
        """Decide as the operator."""
        return await self.act(OPERATOR, action, task_id, target=to, **options)

    async def integrate(self, who: str, task_id: bytes, **options: Any) -> Change:
        """Record an integration."""
        options.setdefault("integration", Integration.RECORDED)
        return await self.act(who, Action.INTEGRATE, task_id, **options)

    async def archive(self, who: str, task_id: bytes, **options: Any) -> Change:
        """Put a task away."""
        return await self.act(who, Action.ARCHIVE, task_id, **options)

    async def done(self, assignee: str, reviewer: str, task_id: bytes) -> None:
        """Start, submit and accept a task."""
        await self.start_task(assignee, task_id)
        await self.submit(assignee, task_id)
        await self.accept(reviewer, task_id)

    async def done_by(self, assignee: str, task_id: bytes) -> None:
        """Start and submit a task."""
        await self.start_task(assignee, task_id)
        await self.submit(assignee, task_id)

    async def listed(self, who: str, **options: Any) -> look.Listing:
        """List tasks."""
        facts: dict[str, Any] = {
            "states": frozenset[State](),
            "assignee": "",
            "archived": False,
            "size": 0,
            "token": "",
            "project_id": PROJECT if who == OPERATOR else None,
        }
        generation = options.pop("generation", 1)
        return await look.ListTasks(self.ports)(caller_named(who, generation), look.Asked(**{**facts, **options}))

    async def shown(self, who: str, task_id: bytes) -> look.Shown:
        """Look at one task."""
        return await look.GetTask(self.ports)(caller_named(who), task_id)

    async def history(self, who: str, task_id: bytes, *, after: int = 0, size: int = 0) -> look.History:
        """Look at what happened."""
        return await look.GetTaskHistory(self.ports)(caller_named(who), task_id, after, size)

    async def ready(self, who: str, run: str = "", *, generation: int = 1) -> int:
        """End a turn."""
        return await supervise.Ready(self.ports)(caller_named(who, generation), run)

    async def given(self, who: str, run: str = "", *, timeout_ms: int = 0, generation: int = 1) -> supervise.Given:
        """Wait for a notification."""
        wait = supervise.WaitNotification(self.ports, self.waits)
        return await wait(caller_named(who, generation), timeout_ms, run)

    async def told(self, who: str, run: str = "", *, generation: int = 1) -> list[tuple[Notice, bytes]]:
        """Everything that a run is given until there is nothing left."""
        found = []
        while (one := (await self.given(who, run, generation=generation)).told) is not None:
            found.append((one.notification.notice, one.task.task_id))
        return found

    async def notifications(self, who: str, *, after: int = 0, size: int = 0) -> tuple[list[Notice], bool]:
        """What stands for an agent, and whether there is more."""
        found, more = await supervise.ListNotifications(self.ports)(caller_named(who), after, size)
        return [one.notification.notice for one in found], more

    async def supervision(
        self, who: str, *, size: int = 0, token: str = "", generation: int = 1
    ) -> tuple[list[supervise.Entry], str, int]:
        """A page of what an agent supervises."""
        page, following, pending = await supervise.ListSupervision(self.ports)(
            caller_named(who, generation), size, token
        )
        return list(page), following, pending

    async def acknowledge(self, who: str, *task_ids: bytes) -> tuple[bytes, ...]:
        """Say that outcomes were handled."""
        return (await supervise.AcknowledgeOutcomes(self.ports)(caller_named(who), task_ids))[0]

    async def settle_task(
        self, who: str, request_id: bytes, *, epoch: str | None = None
    ) -> tuple[KeyVerdict | None, TaskEvent | None]:
        """Ask what became of a request id."""
        named = uuid_text(self.store.epoch) if epoch is None else epoch
        return await SettleTaskRequest(self.ports)(caller_named(who), request_id, named)

    async def pass_time(self, ms: int) -> int:
        """Let time pass, and look after everything that is due by then; returns how much was."""
        await self.clock.advance(ms / 1000)
        passed = 0
        while step := await self.store.submit(PassingTime(now_ms=self.clock.now_ms())):
            passed += step
        return passed

    # --- what stands --------------------------------------------------------------------------------------------------

    def task(self, task_id: bytes) -> Task:
        """A task as it stands now."""
        found = self.store.read.tasks.task(task_id)
        assert found is not None
        return found

    def attempt(self, attempt_id: bytes | None) -> Attempt:
        """An attempt as it stands now."""
        found = self.store.read.tasks.attempt(attempt_id) if attempt_id is not None else None
        assert found is not None
        return found

    def actions(self, task_id: bytes) -> list[Action]:
        """What happened to a task, in order."""
        return [event.action for event in self.store.read.tasks.events(task_id, 0, 1000)]

    def supervises(self, who: str, task_id: bytes) -> bool:
        """Whether an agent supervises a task."""
        return self.store.read.tasks.entry(id16(who), task_id) is not None

    def due(self, who: str) -> Due:
        """What is to be told to an agent now."""
        return waking.due(self.store.read, id16(who), self.clock.now_ms())

    async def wake(self, who: str, *, turn: Turn | None = None, **options: Any) -> claims.Taken:
        """Take a wake-up of an agent and let a turn accept it."""
        return await self.bound(who, turn, kind=claims.ClaimKind.WAKE, **options)

    def standing(self, who: str) -> list[Notice]:
        """The notifications that stand for an agent."""
        return [one.notice for one in self.store.read.tasks.notifications(id16(who), 0, 1000)]


@contextlib.asynccontextmanager
async def a_task_desk(path: Path, *names: str, **options: Any) -> AsyncIterator[TaskDesk]:
    """A desk over `path`, closed at the end."""
    desk = TaskDesk(path, *names, **options)
    await desk.start()
    try:
        yield desk
    finally:
        await desk.stop()
