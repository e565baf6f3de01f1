"""The steps that every change of a task is made of: one place writes tasks, attempts, events, notices and the set.

Knows neither callers nor keys, so that a life that ends, a deadline and a deletion go through the same steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from fencepost_kit.ids import uuid_text
from fencepost_kit.values import replace, value
from fencepost_mailbox.domain.tasks.changes import (
    Move,
    Words,
    advance,
    changed_attempt,
    new_attempt,
)
from fencepost_mailbox.domain.tasks.needs import Case, check_needs
from fencepost_mailbox.domain.tasks.notices import RETOLD, holders, stays_supervised
from fencepost_mailbox.domain.tasks.transitions import RULES, WHEN_DUE, Effect, Rule, To, decide
from fencepost_mailbox.domain.tasks.values import (
    DEPENDANTS_MAX,
    DUE_TASKS_MAX,
    SETTLED,
    Action,
    Certainty,
    Notification,
    Part,
    Phase,
    State,
    Supervised,
    Task,
    TaskEvent,
)
from fencepost_mailbox.store.protocol import Applied, InvariantBroken, Transaction

_SYSTEM = frozenset({Part.SYSTEM})


@value(frozen=True, kw_only=True, slots=True)
class Deed:
    """Who does what, in which part, when, and with which words."""

    action: Action
    part: Part
    now_ms: int
    # The acting agent; None for the operator, a service alone, or the mailbox itself.
    agent: bytes | None = None
    generation: int = 0
    words: Words = field(default_factory=Words)
    facts: Mapping[str, str] = field(default_factory=dict)
    # Of an attempt that it begins.
    attempt_id: bytes | None = None
    # Who takes a part by it.
    assignee: bytes | None = None
    reviewer: bytes | None = None


@value(frozen=True, kw_only=True, slots=True)
class Done:
    """What a deed left: the task, its event, which agents were told something, and who may have other work by it."""

    task: Task
    event: TaskEvent
    told: tuple[bytes, ...]
    work: tuple[bytes, ...]


def carry_out(tx: Transaction, before: Task, rule: Rule, deed: Deed) -> Done:
    """Write what a rule makes of a task, and everything that follows from it in the same transaction."""
    after = advance(
        before,
        Move(
            action=deed.action,
            rule=rule,
            actor=deed.agent,
            sequence=tx.next_sequence(before.project_id),
            now_ms=deed.now_ms,
            open_prerequisites=rule.to is To.PLACE and tx.tasks.has_open_prerequisite(before.task_id),
            words=deed.words,
            attempt_id=deed.attempt_id,
            assignee=deed.assignee,
            reviewer=deed.reviewer,
        ),
    )
    tx.tasks.move(before, after)
    _write_attempt(tx, before, after, rule, deed)
    if after.assignee is not None and before.assignee is None:
        tx.tasks.set_eligible(after, ())
    done = record(tx, after, rule, deed, before=before)
    if after.state is State.ACCEPTED and before.state is not State.ACCEPTED:
        unblocked = _unblock_dependants(tx, after, deed.now_ms)
        return replace(done, told=done.told + unblocked, work=done.work + unblocked)
    return done


def _write_attempt(tx: Transaction, before: Task, after: Task, rule: Rule, deed: Deed) -> None:
    if rule.effect in (Effect.RESUME, Effect.END, Effect.LOSE, Effect.FENCE):
        attempt = tx.tasks.attempt(before.attempt_id) if before.attempt_id is not None else None
        if attempt is None:
            raise InvariantBroken("a task in execution has no attempt")
        tx.tasks.move_attempt(attempt, changed_attempt(attempt, rule, deed.now_ms))
        if rule.effect is not Effect.LOSE:
            # Of one that is lost from sight they end with the life that held them, or by their time.
            tx.files.drop_of_attempt(attempt.attempt_id)
    if rule.effect in (Effect.BEGIN, Effect.RESUME):
        if deed.agent is None:
            raise InvariantBroken("an attempt begins without an agent")
        tx.tasks.insert_attempt(new_attempt(after, agent=deed.agent, generation=deed.generation, now_ms=deed.now_ms))


def record(tx: Transaction, after: Task, rule: Rule, deed: Deed, *, before: Task | None) -> Done:
    """Consume and tell notices, keep the supervision set, and append the event.

    The event is numbered last: it is never removed, so that no number that a reader has seen is given again.
    """
    told = _notify(tx, after, rule, deed)
    if after.issuer is not None:
        stays = stays_supervised(after, deed.action, deed.agent)
        is_in = before is not None and before.issuer == after.issuer and before.phase not in SETTLED
        if stays and not is_in:
            tx.tasks.enrol(
                Supervised(
                    agent=after.issuer,
                    task_id=after.task_id,
                    sequence=tx.next_sequence(after.project_id),
                    at_ms=deed.now_ms,
                )
            )
        elif stays is False:
            tx.tasks.leave(after.issuer, after.task_id)
    event = TaskEvent(
        sequence=tx.next_sequence(after.project_id),
        task_id=after.task_id,
        action=deed.action,
        part=deed.part,
        agent=deed.agent,
        generation=deed.generation,
        from_state=int(before.state) if before is not None else 0,
        to_state=after.state,
        revision=after.revision,
        version=after.version,
        attempt_id=after.attempt_id if after.attempt_id is not None or before is None else before.attempt_id,
        at_ms=deed.now_ms,
        text=deed.words.text,
        evidence=deed.words.evidence,
        evidence_ids=deed.words.evidence_ids,
        facts=deed.facts,
    )
    tx.tasks.add_event(event)
    # Its assignee's queue moves on by it, or its slot is free.
    assignees = {task.assignee for task in (before, after) if task is not None and task.assignee is not None}
    return Done(task=after, event=event, told=told, work=tuple(dict.fromkeys((*told, *assignees))))


def _notify(tx: Transaction, after: Task, rule: Rule, deed: Deed) -> tuple[bytes, ...]:
    eligible = frozenset[bytes]()
    if after.phase is Phase.POOLED:
        # The project stands for everybody: nobody is told by name, whoever looks sees it.
        eligible = tx.tasks.eligible(after.task_id) - {after.project_id}
    standing = set()
    for one in tx.tasks.notices_of(after.task_id):
        if one.agent in holders(one.notice, after, eligible):
            standing.add((one.agent, one.notice))
        else:
            tx.tasks.consume(one.agent, after.task_id, one.notice)
    told = []
    for notice in rule.tells:
        for agent in sorted(holders(notice, after, eligible)):
            if agent == deed.agent or ((agent, notice) in standing and notice not in RETOLD):
                continue
            tx.tasks.tell(
                Notification(
                    sequence=tx.next_sequence(after.project_id),
                    agent=agent,
                    task_id=after.task_id,
                    notice=notice,
                    at_ms=deed.now_ms,
                )
            )
            told.append(agent)
    return tuple(dict.fromkeys(told))


def _unblock_dependants(tx: Transaction, accepted: Task, now_ms: int) -> tuple[bytes, ...]:
    told: tuple[bytes, ...] = ()
    for task_id in tx.tasks.dependants(accepted.task_id, DEPENDANTS_MAX):
        task = tx.tasks.task(task_id)
        if task is not None and task.phase is Phase.BLOCKED and not tx.tasks.has_open_prerequisite(task_id):
            told += by_itself(tx, task, Action.UNBLOCK, now_ms=now_ms, text="its last prerequisite was accepted").told
    return told


def by_itself(
    tx: Transaction,
    task: Task,
    action: Action,
    *,
    now_ms: int,
    text: str,
    reviewer: bytes | None = None,
    about: str = "",
) -> Done:
    """Carry out what the mailbox does to a task by itself; `about` names the agent that it is about.

    Raises:
        InvalidState: the table does not allow it.
    """
    rule, part = decide(task.phase, action, _SYSTEM)
    case = Case(now_ms=now_ms, task=task, open_prerequisites=tx.tasks.has_open_prerequisite(task.task_id))
    check_needs(rule.needs, case)
    facts = {"agent": about} if about else {}
    deed = Deed(action=action, part=part, now_ms=now_ms, words=Words(text=text), facts=facts, reviewer=reviewer)
    return carry_out(tx, task, rule, deed)


def lose_attempt(tx: Transaction, agent: bytes, generation: int, now_ms: int) -> tuple[bytes, ...]:
    """Turn what an earlier life of an agent executes unknown; returns whom that concerns. Never silently free.

    Part of the transaction that raises the agent's floor: there is no moment in which a later life has authority and
    the attempt of the earlier one still counts as known.
    """
    task = tx.tasks.executing(agent)
    if task is None or task.certainty is not Certainty.ACTIVE or task.attempt_id is None:
        return ()
    attempt = tx.tasks.attempt(task.attempt_id)
    if attempt is None or attempt.generation >= generation:
        return ()
    text = "a later life of the agent began while the attempt stood"
    return by_itself(tx, task, Action.LOSE_SIGHT, now_ms=now_ms, text=text).told


def lose_every_attempt(tx: Transaction, now_ms: int) -> tuple[int, tuple[bytes, ...]]:
    """Turn everything that is executed unknown: of a restored copy nobody knows. Returns how many, and whom to wake."""
    count, told, after = 0, dict[bytes, None](), b""
    while step := tx.tasks.all_executing(after, DUE_TASKS_MAX):
        for task in step:
            if task.certainty is Certainty.ACTIVE:
                text = "the store was restored from a backup"
                told |= dict.fromkeys(by_itself(tx, task, Action.LOSE_SIGHT, now_ms=now_ms, text=text).told)
                count += 1
        after = step[-1].assignee or b""
    return count, tuple(told)


def leave_tasks(tx: Transaction, agent: bytes, limit: int, now_ms: int) -> tuple[int, tuple[bytes, ...]]:
    """Take a deleted agent's parts in up to `limit` tasks from it; returns how many, and whom that concerns.

    As issuer the operator takes its place, as reviewer the issuer or else the operator. Its work waits for a word of
    the issuer or the operator; an attempt of it is unknown from then on.
    """
    tasks, told = tx.tasks.left_by(agent, limit), dict[bytes, None]()
    about = uuid_text(agent)
    for task in tasks:
        now = task
        for action, reviewer in _losses(tx, task, agent):
            if (now.phase, action) in RULES:
                done = by_itself(tx, now, action, now_ms=now_ms, text=_LEFT[action], reviewer=reviewer, about=about)
                now, told = done.task, told | dict.fromkeys(done.told)
    return len(tasks), tuple(told)


_LEFT = {
    Action.LOSE_ISSUER: "its issuer was deleted: the operator takes its place",
    Action.LOSE_REVIEWER: "its reviewer was deleted",
    Action.LOSE_ASSIGNEE: "its assignee was deleted",
}


def _losses(tx: Transaction, task: Task, agent: bytes) -> list[tuple[Action, bytes | None]]:
    found: list[tuple[Action, bytes | None]] = []
    issuer = task.issuer
    if issuer == agent:
        issuer = None
        found.append((Action.LOSE_ISSUER, None))
    if task.reviewer == agent:
        able = issuer is not None and issuer != task.assignee and not tx.deleted(issuer)
        found.append((Action.LOSE_REVIEWER, issuer if able else None))
    if task.assignee == agent and not task.orphan:
        found.append((Action.LOSE_ASSIGNEE, None))
    return found


@value(frozen=True, kw_only=True, slots=True)
class PassingTime:
    """Does to tasks what their deadlines say, in bounded steps."""

    now_ms: int

    def apply(self, tx: Transaction) -> Applied[int]:
        """Look after at most DUE_TASKS_MAX tasks, the longest due first; returns how many there were."""
        told: dict[bytes, None] = {}
        work: dict[bytes, None] = {}
        tasks = tx.tasks.due(self.now_ms, DUE_TASKS_MAX)
        for task in tasks:
            action = WHEN_DUE[task.phase]
            done = by_itself(tx, task, action, now_ms=self.now_ms, text=_PASSED[action])
            told, work = told | dict.fromkeys(done.told), work | dict.fromkeys(done.work)
        return Applied(value=len(tasks), wakes=tuple(told), work=tuple(work))


_PASSED = {
    Action.EXPIRE: "it was not started by its deadline",
    Action.TIME_OUT: "it was executed for longer than it may be",
    Action.MARK_OVERDUE: "it was not reviewed in time",
}
