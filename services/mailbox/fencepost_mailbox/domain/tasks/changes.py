"""How a task is born and how an action changes it: what is derived is always derived, never set by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from fencepost_kit.values import replace, value
from fencepost_mailbox.domain.tasks.transitions import Effect, Rule, To
from fencepost_mailbox.domain.tasks.values import (
    Action,
    Attempt,
    AttemptOutcome,
    Certainty,
    ContextRef,
    Phase,
    State,
    Task,
)

_UNSTARTED = (Phase.BLOCKED, Phase.POOLED, Phase.QUEUED)
# Ways of being queued again: with a start deadline of its own, or none.
_AGAIN = (Action.RETRY, Action.REASSIGN, Action.OVERRIDE_RETRY, Action.OVERRIDE_REASSIGN)
_GIVEN = (Action.REASSIGN, Action.OVERRIDE_REASSIGN)


@value(frozen=True, kw_only=True, slots=True)
class Words:
    """What an action says. Empty where it says nothing."""

    text: str = ""
    evidence: str = ""
    evidence_ids: tuple[str, ...] = ()
    wait_reason: str = ""
    percent: int | None = None
    commit: str = ""
    start_deadline_ms: int = 0


@value(frozen=True, kw_only=True, slots=True)
class Move:
    """An action that was decided: by whom, when, with which number, and what follows from the rest of the store."""

    action: Action
    rule: Rule
    # The acting agent; None for the operator, a service or the mailbox itself.
    actor: bytes | None
    sequence: int
    now_ms: int
    open_prerequisites: bool
    words: Words
    attempt_id: bytes | None = None
    # For Action.REASSIGN and its like, and for LOSE_REVIEWER: who takes the part.
    assignee: bytes | None = None
    reviewer: bytes | None = None


def phase_of(task: Task) -> Phase:
    """Return where a task stands for decisions."""
    if task.archived:
        return Phase.ARCHIVED
    unknown = task.certainty is Certainty.UNKNOWN
    if task.state is State.QUEUED:
        return Phase.POOLED if task.assignee is None else Phase.QUEUED
    if task.state is State.RUNNING:
        return (Phase.ABANDONED if task.orphan else Phase.LOST) if unknown else Phase.RUNNING
    if task.state is State.CANCEL_REQUESTED:
        return (Phase.ABANDONED if task.orphan else Phase.CANCEL_LOST) if unknown else Phase.CANCEL_REQUESTED
    return Phase[task.state.name]


def due_of(task: Task) -> int | None:
    """Return when the mailbox has to look after a task, or None for never.

    Deadlines count from the time that its state has stood; that of the start ends to count with the first start.
    """
    return _due(task, task.phase)


def _due(task: Task, phase: Phase) -> int | None:
    if phase in _UNSTARTED:
        return task.start_deadline_ms if task.start_deadline_ms and not task.started else None
    if phase in (Phase.RUNNING, Phase.LOST):
        return task.state_at_ms + 1000 * task.execution_timeout_s if task.execution_timeout_s else None
    if phase is Phase.SUBMITTED and not task.overdue:
        return task.state_at_ms + 1000 * task.review_timeout_s if task.review_timeout_s else None
    return None


def evolve(task: Task, **changes: Any) -> Task:
    """Return `task` with `changes`, and with phase and due time derived anew."""
    becoming = cast("Task", _Becoming(task, changes))
    phase = phase_of(becoming)
    return replace(task, **{**changes, "phase": phase, "due_ms": _due(becoming, phase)})


class _Becoming:
    """A task with changes, as far as it is looked at: copying all of its fields is most of what a change costs."""

    __slots__ = ("_changes", "_task")

    def __init__(self, task: Task, changes: Mapping[str, Any]) -> None:
        self._task = task
        self._changes = changes

    def __getattr__(self, name: str) -> Any:
        return self._changes[name] if name in self._changes else getattr(self._task, name)


def new_task(
    *,
    sequence: int,
    task_id: bytes,
    project_id: bytes,
    issuer: bytes | None,
    assignee: bytes | None,
    reviewer: bytes | None,
    blocked: bool,
    now_ms: int,
    description: str,
    acceptance: str,
    context_refs: tuple[ContextRef, ...] = (),
    start_deadline_ms: int = 0,
    execution_timeout_s: int = 0,
    review_timeout_s: int = 0,
) -> Task:
    """Return a task that has just been created; without an assignee it is in the pool."""
    made = Task(
        sequence=sequence,
        task_id=task_id,
        project_id=project_id,
        issuer=issuer,
        assignee=assignee,
        reviewer=reviewer,
        pool=assignee is None,
        state=State.BLOCKED if blocked else State.QUEUED,
        phase=Phase.NONE,
        revision=1,
        version=1,
        attempt_id=None,
        certainty=Certainty.NONE,
        started=False,
        overdue=False,
        archived=False,
        orphan=False,
        created_at_ms=now_ms,
        changed_at_ms=now_ms,
        state_at_ms=now_ms,
        start_deadline_ms=start_deadline_ms,
        execution_timeout_s=execution_timeout_s,
        review_timeout_s=review_timeout_s,
        due_ms=None,
        queue_position=0 if blocked else sequence,
        percent=None,
        note="",
        wait_reason="",
        result="",
        evidence="",
        evidence_ids=(),
        feedback="",
        failure="",
        commit="",
        context_refs=context_refs,
        description=description,
        acceptance=acceptance,
    )
    return evolve(made)


def advance(task: Task, move: Move) -> Task:
    """Return the task after a move that was decided. Pure: repeating it gives the same."""
    rule, words = move.rule, move.words
    state = _destination(task, move)
    changes: dict[str, Any] = {
        "state": state,
        "version": task.version + 1,
        "changed_at_ms": move.now_ms,
        **_attempt_changes(task, move),
        **_said(task, move),
    }
    # A resumed attempt has its whole time again: it is a new execution.
    if state is not task.state or rule.bumps or rule.effect is Effect.RESUME:
        changes["state_at_ms"] = move.now_ms
        changes["overdue"] = False
    if rule.bumps:
        changes |= {
            "revision": task.revision + 1,
            "percent": None,
            "note": "",
            "wait_reason": "",
            "result": "",
            "evidence": "",
            "evidence_ids": (),
            "failure": "",
        }
    if state is State.QUEUED and (task.state is not State.QUEUED or rule.bumps):
        changes["queue_position"] = move.sequence
    elif state is not State.QUEUED:
        changes["queue_position"] = 0
    if move.action in _AGAIN:
        changes |= {"start_deadline_ms": words.start_deadline_ms, "started": False}
    if move.action in _GIVEN:
        changes |= {"assignee": move.assignee, "reviewer": move.reviewer, "orphan": False}
    return evolve(task, **changes)


def _destination(task: Task, move: Move) -> State:
    if move.rule.to is To.STAY:
        return task.state
    if move.rule.to is To.PLACE:
        return State.BLOCKED if move.open_prerequisites else State.QUEUED
    return move.rule.to


def _attempt_changes(task: Task, move: Move) -> dict[str, Any]:
    effect = move.rule.effect
    if effect in (Effect.BEGIN, Effect.RESUME):
        assignee = move.actor if move.action is Action.CLAIM else task.assignee
        begun = {"attempt_id": move.attempt_id, "certainty": Certainty.ACTIVE}
        return {**begun, "assignee": assignee, "started": True, "percent": None}
    if effect is Effect.END:
        return {"certainty": Certainty.FINISHED}
    if effect is Effect.LOSE:
        return {"certainty": Certainty.UNKNOWN}
    if effect is Effect.FENCE or move.rule.bumps:
        return {"attempt_id": None, "certainty": Certainty.NONE}
    return {}


def _said(task: Task, move: Move) -> dict[str, Any]:
    """Return what the words and parts of an action leave on the task."""
    words = move.words
    shown = {"evidence": words.evidence, "evidence_ids": words.evidence_ids, "wait_reason": ""}
    match move.action:
        case Action.PROGRESS:
            return {
                "note": words.text or task.note,
                "wait_reason": words.wait_reason,
                "percent": task.percent if words.percent is None else words.percent,
            }
        case Action.SUBMIT:
            return {"result": words.text, **shown}
        case Action.FAIL:
            return {"failure": words.text, **shown}
        case Action.ACCEPT | Action.REJECT:
            return {"feedback": words.text}
        case Action.INTEGRATE:
            return {"commit": words.commit}
        case Action.ARCHIVE:
            return {"archived": True}
        case Action.MARK_OVERDUE:
            return {"overdue": True}
        case Action.LOSE_ISSUER:
            return {"issuer": None}
        case Action.LOSE_REVIEWER:
            return {"reviewer": move.reviewer}
        case Action.LOSE_ASSIGNEE:
            return {"orphan": True}
        case _:
            return {}


def new_attempt(task: Task, *, agent: bytes, generation: int, now_ms: int) -> Attempt:
    """Return the attempt that a task has just begun."""
    assert task.attempt_id is not None, "a task that is executed has an attempt"
    return Attempt(
        attempt_id=task.attempt_id,
        task_id=task.task_id,
        revision=task.revision,
        agent=agent,
        generation=generation,
        started_at_ms=now_ms,
        finished_at_ms=0,
        certainty=Certainty.ACTIVE,
        outcome=AttemptOutcome.NONE,
    )


def changed_attempt(attempt: Attempt, rule: Rule, now_ms: int) -> Attempt:
    """Return what a rule makes of the attempt that stood before it."""
    if rule.effect is Effect.RESUME:
        interrupted = {"certainty": Certainty.INTERRUPTED, "outcome": AttemptOutcome.RESUMED}
        return replace(attempt, finished_at_ms=now_ms, **interrupted)  # type: ignore[arg-type]
    if rule.effect is Effect.END:
        return replace(attempt, finished_at_ms=now_ms, certainty=Certainty.FINISHED, outcome=rule.outcome)
    if rule.effect is Effect.LOSE:
        return replace(attempt, certainty=Certainty.UNKNOWN)
    if rule.effect is Effect.FENCE:
        return replace(attempt, finished_at_ms=now_ms, certainty=Certainty.UNKNOWN, outcome=rule.outcome)
    return attempt
