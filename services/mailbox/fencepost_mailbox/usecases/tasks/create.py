"""AssignTask and CreatePoolTask: queue work for an agent, or offer it to whoever may claim it (T010 to T023 T030)."""

from __future__ import annotations

from fencepost_kit.identity import Caller, Role
from fencepost_kit.ids import uuid_text
from fencepost_kit.refusal import Refusal
from fencepost_kit.values import value
from fencepost_mailbox.domain.tasks.changes import new_task
from fencepost_mailbox.domain.tasks.fields import (
    check_deadline,
    check_eligible,
    check_ids,
    check_timeouts,
    check_work,
)
from fencepost_mailbox.domain.tasks.needs import Case, check_field, check_needs, is_open, task_id_text
from fencepost_mailbox.domain.tasks.transitions import decide
from fencepost_mailbox.domain.tasks.values import Action, ContextRef, Part, Phase
from fencepost_mailbox.store.protocol import Applied, Transaction
from fencepost_mailbox.usecases.context.keep import pin_snapshots
from fencepost_mailbox.usecases.ports import Ports
from fencepost_mailbox.usecases.tasks.act import asked_for
from fencepost_mailbox.usecases.tasks.callers import (
    Actor,
    Change,
    actor_of,
    content_of,
    keep_request,
    known_change,
)
from fencepost_mailbox.usecases.tasks.steps import Deed, record


@value(frozen=True, kw_only=True, slots=True)
class Command:
    """A call as it was made; see tasks.proto. Without a target the task is for the pool."""

    request_id: bytes
    description: str
    acceptance: str
    pool: bool
    # Names as they were written.
    target: str = ""
    eligible: tuple[str, ...] = ()
    reviewer: str = ""
    context_refs: tuple[ContextRef, ...] = ()
    prerequisites: tuple[bytes, ...] = ()
    start_deadline_ms: int = 0
    execution_timeout_s: int = 0
    review_timeout_s: int = 0
    # The operator's to give.
    project_id: bytes | None = None


@value(frozen=True, kw_only=True, slots=True)
class Creating:
    """The writing part."""

    actor: Actor
    project_id: bytes
    command: Command
    content: bytes
    task_id: bytes
    now_ms: int
    assignee: bytes | None
    reviewer: bytes | None
    eligible: frozenset[bytes]

    def apply(self, tx: Transaction) -> Applied[Change]:
        """Write the task, its event, its place in the issuer's supervision set and what it tells, together.

        Raises:
            AgentDeleted, StaleGeneration, RequestConflict, KeyCancelled, NotFound, SelfReview, DependencyLimit:
                nothing is written.
        """
        actor, command = self.actor, self.command
        woken = actor.fence(tx, self.now_ms)
        known = known_change(tx, actor.scope, command.request_id, self.content)
        if known is not None:
            return Applied(value=known, wakes=woken, work=woken)
        action = Action.CREATE_POOL if command.pool else Action.ASSIGN
        mine = frozenset({Part.OPERATOR if actor.agent_id is None else Part.ISSUER})
        rule, part = decide(Phase.NONE, action, mine)
        check_needs(rule.needs, self._case(tx))
        task = new_task(
            sequence=tx.next_sequence(self.project_id),
            task_id=self.task_id,
            project_id=self.project_id,
            issuer=actor.agent_id,
            assignee=self.assignee,
            reviewer=self.reviewer,
            blocked=any(is_open(found[0]) for one in command.prerequisites if (found := tx.tasks.state(one))),
            now_ms=self.now_ms,
            description=command.description,
            acceptance=command.acceptance,
            context_refs=pin_snapshots(tx, self.project_id, command.context_refs, self.task_id),
            start_deadline_ms=command.start_deadline_ms,
            execution_timeout_s=command.execution_timeout_s,
            review_timeout_s=command.review_timeout_s,
        )
        tx.tasks.insert(task)
        tx.tasks.set_prerequisites(task.task_id, command.prerequisites)
        if command.pool:
            tx.tasks.set_eligible(task, self.eligible or {self.project_id})
        deed = Deed(
            action=action,
            part=part,
            now_ms=self.now_ms,
            agent=actor.agent_id,
            generation=actor.generation if actor.agent_id is not None else 0,
            facts=self._facts(),
        )
        done = record(tx, task, rule, deed, before=None)
        keep_request(
            tx,
            scope=actor.scope,
            request_id=command.request_id,
            content=self.content,
            event=done.event,
            now_ms=self.now_ms,
        )
        change = Change(event=done.event, duplicate=False)
        return Applied(value=change, wakes=woken + done.told, work=woken + done.work)

    def _case(self, tx: Transaction) -> Case:
        return Case(
            now_ms=self.now_ms,
            actor=self.actor.agent_id,
            target=self.assignee,
            target_deleted=self.assignee is not None and tx.deleted(self.assignee),
            reviewer=self.reviewer,
            reviewer_deleted=self.reviewer is not None and tx.deleted(self.reviewer),
            eligible=self.eligible,
            prerequisites=asked_for(tx, self.project_id, self.command.prerequisites),
        )

    def _facts(self) -> dict[str, str]:
        facts = {}
        if self.assignee is not None:
            facts["assignee"] = uuid_text(self.assignee)
        if self.reviewer is not None:
            facts["reviewer"] = uuid_text(self.reviewer)
        if self.command.prerequisites:
            facts["dependencies"] = " ".join(task_id_text(one) for one in self.command.prerequisites)
        return facts


class Create:
    """AssignTask and CreatePoolTask."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, caller: Caller, command: Command) -> Change:
        """Store a task and return what it came to: queued, or blocked. Waits for nobody.

        Raises:
            InvalidTaskField: a field is missing or breaks its limit.
            InvalidTarget, NotFound, DependencyDown, DirectoryStale: a name cannot be resolved.
            Others: see Creating.
        """
        ports, now_ms = self._ports, self._ports.clock.now_ms()
        actor = actor_of(ports, caller)
        content = content_of(command)
        try:
            self._check(command, now_ms)
            project_id = self._project(actor, command)
            creating = await self._resolved(actor, project_id, command, content, now_ms)
        except Refusal:
            # A time may have passed and a name may be another's since: what the request id stands for counts first.
            known = known_change(ports.store.read, actor.scope, command.request_id, content)
            if known is None:
                raise
            return known
        return await ports.store.submit(creating)

    @staticmethod
    def _check(command: Command, now_ms: int) -> None:
        check_field(holds=command.pool or bool(command.target), field="to", rule="must name an agent")
        check_work(command.description, command.acceptance, command.context_refs)
        check_ids(command.prerequisites)
        check_eligible(command.eligible)
        check_deadline(command.start_deadline_ms, now_ms)
        check_timeouts(command.execution_timeout_s, command.review_timeout_s)

    @staticmethod
    def _project(actor: Actor, command: Command) -> bytes:
        named = command.project_id
        if actor.role is Role.OPERATOR:
            check_field(holds=named is not None, field="project_id", rule="must be given by the operator")
        else:
            check_field(holds=named in (None, actor.project_id), field="project_id", rule="must be your own, or empty")
        project_id = named if named is not None else actor.project_id
        assert project_id is not None, "an agent has a project"
        return project_id

    async def _resolved(
        self, actor: Actor, project_id: bytes, command: Command, content: bytes, now_ms: int
    ) -> Creating:
        resolve = self._ports.directory.resolve
        assignee = None if command.pool else (await resolve(project_id, command.target)).agent_id
        reviewer = (await resolve(project_id, command.reviewer)).agent_id if command.reviewer else actor.agent_id
        eligible = frozenset([(await resolve(project_id, name)).agent_id for name in command.eligible])
        return Creating(
            actor=actor,
            project_id=project_id,
            command=command,
            content=content,
            task_id=self._ports.mint.new(),
            now_ms=now_ms,
            assignee=assignee,
            reviewer=reviewer,
            eligible=eligible,
        )
