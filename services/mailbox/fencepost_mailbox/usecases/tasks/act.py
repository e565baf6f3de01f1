"""Every action on a task that stands: claim, start, progress, submit, review, cancel and their like.

One machine for all of them: what differs is in the tables of the domain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from fencepost_kit.identity import Caller, Role
from fencepost_kit.ids import uuid_text
from fencepost_kit.refusal import Refusal
from fencepost_kit.values import replace, value
from fencepost_mailbox.domain.evidence.values import evidence_id_of
from fencepost_mailbox.domain.refusals import NotFound
from fencepost_mailbox.domain.tasks.changes import Words
from fencepost_mailbox.domain.tasks.fields import check_ids, check_words
from fencepost_mailbox.domain.tasks.needs import (
    Case,
    Prerequisites,
    check_field,
    check_needs,
    check_rested_on,
    check_visible,
    task_id_text,
    waits_for_itself,
)
from fencepost_mailbox.domain.tasks.transitions import Need, Rule, decide
from fencepost_mailbox.domain.tasks.values import DEPENDANTS_MAX, Action, Integration, Part, Task
from fencepost_mailbox.store.protocol import Applied, Transaction
from fencepost_mailbox.usecases.ports import Ports
from fencepost_mailbox.usecases.tasks.callers import (
    Actor,
    Change,
    actor_of,
    content_of,
    keep_request,
    known_change,
)
from fencepost_mailbox.usecases.tasks.steps import Deed, carry_out

_TARGETED: Final = frozenset({Action.REASSIGN, Action.OVERRIDE_REASSIGN})


@value(frozen=True, kw_only=True, slots=True)
class Command:
    """A call as it was made; see tasks.proto. 0, empty and None say nothing."""

    action: Action
    task_id: bytes
    request_id: bytes
    revision: int = 0
    expected_version: int = 0
    attempt_id: bytes | None = None
    words: Words = field(default_factory=Words)
    # Names as they were written.
    target: str = ""
    reviewer: str = ""
    prerequisites: tuple[bytes, ...] = ()
    integration: Integration = Integration.RECORDED
    coordinator: bytes | None = None


@value(frozen=True, kw_only=True, slots=True)
class Acting:
    """The writing part."""

    actor: Actor
    command: Command
    content: bytes
    attempt_id: bytes
    now_ms: int
    # Who the names of the command were found to be.
    assignee: bytes | None = None
    reviewer: bytes | None = None

    def apply(self, tx: Transaction) -> Applied[Change]:
        """Carry the action out, or return what the request id stands for.

        Raises:
            AgentDeleted, StaleGeneration, RequestConflict, KeyCancelled, NotFound, VersionConflict, StaleAttempt,
            StaleRevision, Unauthorized, InvalidState and the refusals of the rule's needs: nothing is written.
        """
        actor, command = self.actor, self.command
        woken = actor.fence(tx, self.now_ms)
        known = known_change(tx, actor.scope, command.request_id, self.content)
        if known is not None:
            return Applied(value=known, wakes=woken, work=woken)
        found = tx.tasks.task(command.task_id)
        eligible = (
            tx.tasks.eligible(command.task_id) if found is not None and found.assignee is None else frozenset[bytes]()
        )
        parts = actor.parts(found, eligible)
        task = check_visible(found, parts)
        check_rested_on(
            task, version=command.expected_version, revision=command.revision, attempt_id=command.attempt_id
        )
        rule, part = decide(task.phase, command.action, parts)
        check_needs(rule.needs, self._case(tx, task, rule))
        self._check_evidence(tx)
        if command.action is Action.SET_DEPENDENCIES:
            tx.tasks.set_prerequisites(task.task_id, command.prerequisites)
        done = carry_out(tx, task, rule, self._deed(task, part))
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

    def _case(self, tx: Transaction, task: Task, rule: Rule) -> Case:
        """Return what the rule's needs are judged by; asked of the store only where one needs it."""
        needs, agent = rule.needs, self.actor.agent_id
        case = Case(
            now_ms=self.now_ms,
            task=task,
            actor=agent,
            slot=tx.tasks.executing(agent) if agent is not None and Need.SLOT in needs else None,
            first=tx.tasks.first_queued(agent) if agent is not None and Need.NEXT in needs else None,
        )
        if Need.TARGET in needs and self.assignee is not None:
            reviewer = self._reviewer(task)
            case = replace(
                case,
                target=self.assignee,
                target_deleted=tx.deleted(self.assignee),
                reviewer=reviewer,
                reviewer_deleted=reviewer is not None and tx.deleted(reviewer),
            )
        if Need.PREREQUISITES in needs:
            case = replace(case, prerequisites=asked_for(tx, task.project_id, self.command.prerequisites, task.task_id))
        return case

    def _check_evidence(self, tx: Transaction) -> None:
        """Let only evidence be named that was added to this very task."""
        for text in self.command.words.evidence_ids:
            evidence_id = evidence_id_of(text)
            found = tx.evidence.one(evidence_id) if evidence_id is not None else None
            of_it = found is not None and found.task_id == self.command.task_id
            check_field(holds=of_it, field="evidence_ids", rule="names evidence that the task does not have")

    def _reviewer(self, task: Task) -> bytes | None:
        return self.reviewer if self.reviewer is not None else task.reviewer

    def _deed(self, task: Task, part: Part) -> Deed:
        command = self.command
        return Deed(
            action=command.action,
            part=part,
            now_ms=self.now_ms,
            agent=command.coordinator if part is Part.SERVICE else self.actor.agent_id,
            generation=self.actor.generation if self.actor.agent_id is not None else 0,
            words=command.words,
            facts=self._facts(task),
            attempt_id=self.attempt_id,
            assignee=self.assignee,
            reviewer=self._reviewer(task),
        )

    def _facts(self, task: Task) -> Mapping[str, str]:
        command, words, facts = self.command, self.command.words, dict[str, str]()
        if words.percent is not None:
            facts["percent"] = str(words.percent)
        if words.wait_reason:
            facts["wait_reason"] = words.wait_reason
        if words.start_deadline_ms:
            facts["start_deadline_ms"] = str(words.start_deadline_ms)
        if command.action is Action.INTEGRATE:
            facts |= {"integration": command.integration.name.lower(), "commit": words.commit}
        if command.action is Action.SET_DEPENDENCIES:
            facts["dependencies"] = " ".join(task_id_text(one) for one in command.prerequisites)
        if self.assignee is not None:
            facts["assignee"] = uuid_text(self.assignee)
            facts["assignee_before"] = uuid_text(task.assignee) if task.assignee is not None else ""
        return facts


def asked_for(
    tx: Transaction, project_id: bytes, wanted: tuple[bytes, ...], task_id: bytes | None = None
) -> Prerequisites:
    """Return what the store says of prerequisites that are asked for; of a new task nobody waits yet.

    Raises:
        DependencyLimit: too much stands behind them to be looked at.
    """
    standing = frozenset(tx.tasks.prerequisites(task_id)) if task_id is not None else frozenset[bytes]()
    missing = [one for one in wanted if (found := tx.tasks.state(one)) is None or found[1] != project_id]
    if missing:
        return Prerequisites(missing=tuple(missing))
    if task_id is not None and waits_for_itself(task_id, wanted, tx.tasks.prerequisites):
        return Prerequisites(cycle=True)
    fresh = [one for one in wanted if one not in standing]
    return Prerequisites(
        crowded=tuple(one for one in fresh if len(tx.tasks.dependants(one, DEPENDANTS_MAX)) >= DEPENDANTS_MAX)
    )


class Act:
    """Every RPC that acts on one task."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, caller: Caller, command: Command) -> Change:
        """Carry out an action on a task and return what it did, once that is on disk.

        Raises:
            InvalidTaskField: a field is missing or breaks its limit.
            InvalidTarget, NotFound, DependencyDown, DirectoryStale: a name cannot be resolved.
            Others: see Acting.
        """
        ports, now_ms = self._ports, self._ports.clock.now_ms()
        actor = actor_of(ports, caller)
        content = content_of(command)
        try:
            self._check(actor, command, now_ms)
            assignee, reviewer = await self._named(actor, command)
        except Refusal:
            # A time may have passed and a name may be another's since: what the request id stands for counts first.
            known = known_change(ports.store.read, actor.scope, command.request_id, content)
            if known is None:
                raise
            return known
        return await ports.store.submit(
            Acting(
                actor=actor,
                command=command,
                content=content,
                attempt_id=ports.mint.new(),
                now_ms=now_ms,
                assignee=assignee,
                reviewer=reviewer,
            )
        )

    def _check(self, actor: Actor, command: Command, now_ms: int) -> None:
        check_words(
            command.action,
            command.words,
            revision=command.revision,
            version=command.expected_version,
            now_ms=now_ms,
        )
        check_ids(command.prerequisites)
        if command.action in _TARGETED:
            check_field(holds=bool(command.target), field="to", rule="must name an agent")
        if actor.role is not Role.SERVICE:
            check_field(holds=command.coordinator is None, field="coordinator_id", rule="is a service's to give")
        elif command.action is Action.FINISH_CANCEL:
            check_field(holds=command.attempt_id is not None, field="attempt_id", rule="must be given by a service")
        elif command.action is Action.INTEGRATE:
            self._check_coordinator(command)

    def _check_coordinator(self, command: Command) -> None:
        """Let a service go on that acts for a coordinator of the task's project."""
        agent = self._ports.directory.agent(command.coordinator) if command.coordinator is not None else None
        task = self._ports.store.read.tasks.task(command.task_id)
        of_it = agent is not None and task is not None and agent.project_id == task.project_id
        coordinates = of_it and agent is not None and agent.role == Role.COORDINATOR.value
        check_field(holds=coordinates, field="coordinator_id", rule="must be a coordinator of the task's project")

    async def _named(self, actor: Actor, command: Command) -> tuple[bytes | None, bytes | None]:
        """Return whom the command names as assignee and reviewer."""
        if command.action not in _TARGETED:
            return None, None
        project_id = actor.project_id
        if project_id is None:
            task = self._ports.store.read.tasks.task(command.task_id)
            if task is None:
                raise NotFound("no task has this id; nothing was written")
            project_id = task.project_id
        resolve = self._ports.directory.resolve
        assignee = (await resolve(project_id, command.target)).agent_id
        reviewer = (await resolve(project_id, command.reviewer)).agent_id if command.reviewer else None
        return assignee, reviewer
