"""The conditions of the table, each as one check, and what is checked before the table is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from fencepost_kit.values import value
from fencepost_mailbox.domain.deletion import check_lives
from fencepost_mailbox.domain.refusals import InvalidState, NotFound
from fencepost_mailbox.domain.tasks.refusals import (
    ALREADY_RUNNING,
    AlreadyRunning,
    DeadlinePassed,
    DependencyCycle,
    DependencyLimit,
    InvalidTaskField,
    NotNext,
    SelfReview,
    StaleAttempt,
    StaleRevision,
    VersionConflict,
)
from fencepost_mailbox.domain.tasks.transitions import Need
from fencepost_mailbox.domain.tasks.values import (
    DEPENDANTS_MAX,
    DEPENDENCY_STEPS_MAX,
    Part,
    Phase,
    State,
    Task,
)

TASK_PREFIX: Final = "task_"


def task_id_text(task_id: bytes) -> str:
    """Return the public form of a task's id."""
    return TASK_PREFIX + task_id.hex()


@value(frozen=True, kw_only=True, slots=True)
class Case:
    """What the conditions of a rule are judged by; only what the rule needs is filled in."""

    now_ms: int
    task: Task | None = None
    actor: bytes | None = None
    # The task that the actor has in execution.
    slot: Task | None = None
    # The task that stands first in the actor's queue.
    first: bytes | None = None
    # Who is to do the work, and who is to review it then.
    target: bytes | None = None
    target_deleted: bool = False
    reviewer: bytes | None = None
    reviewer_deleted: bool = False
    eligible: frozenset[bytes] = frozenset()
    prerequisites: Prerequisites | None = None
    open_prerequisites: bool = False


@value(frozen=True, kw_only=True, slots=True)
class Prerequisites:
    """What the store says of prerequisites that are asked for."""

    missing: tuple[bytes, ...] = ()
    crowded: tuple[bytes, ...] = ()
    cycle: bool = False


def _slot(case: Case) -> None:
    if case.slot is not None:
        raise AlreadyRunning(
            f"{ALREADY_RUNNING}; nothing was written",
            hint="Submit it, report its failure or confirm its cancellation first; the others stay queued.",
            state={"running": task_id_text(case.slot.task_id), "state": case.slot.phase.name.lower()},
        )


def _next(case: Case) -> None:
    if case.task is not None and case.first is not None and case.first != case.task.task_id:
        raise NotNext(
            "another task stands before this one in your queue; nothing was written",
            hint="Start the task that the state names: queues are worked off in order.",
            state={"next": task_id_text(case.first)},
        )


def _in_time(case: Case) -> None:
    task = case.task
    if task is not None and task.due_ms is not None and task.due_ms <= case.now_ms:
        raise DeadlinePassed(
            "the time by which this task had to be started has passed; nothing was written",
            hint="It expires now; its issuer may retry or reassign it.",
            state={"start_deadline_ms": str(task.start_deadline_ms)},
        )


def _other_reviewer(case: Case) -> None:
    # By whom it is done: whoever claims it, else its assignee; the operator is no agent.
    task = case.task
    doing = case.actor if task is not None and task.phase is Phase.POOLED else task.assignee if task else None
    reviewing = task.reviewer if task is not None and task.phase is Phase.POOLED else case.actor
    if doing is not None and doing == reviewing:
        raise SelfReview("whoever does a task does not review it; nothing was written")


def _target(case: Case) -> None:
    check_lives(deleted=case.target_deleted, who="the assignee")
    check_lives(deleted=case.reviewer_deleted, who="the reviewer")
    if case.target is not None and case.target == case.reviewer:
        raise SelfReview(
            "the assignee would review its own work; nothing was written", hint="Name another agent as reviewer."
        )
    if case.reviewer is not None and case.reviewer in case.eligible:
        raise SelfReview(
            "the reviewer is among those who may claim the task; nothing was written",
            hint="Name another reviewer, or leave it out of eligible.",
        )


def _assignee(case: Case) -> None:
    check_lives(deleted=case.task is not None and case.task.orphan, who="the assignee")


def _prerequisites(case: Case) -> None:
    asked = case.prerequisites
    if asked is None:
        return
    if asked.missing:
        raise NotFound(
            "a prerequisite is no task of this project; nothing was written",
            state={"dependency": task_id_text(asked.missing[0])},
        )
    if asked.cycle:
        raise DependencyCycle("the task would wait for itself; nothing was written", hint="Leave that dependency out.")
    if asked.crowded:
        raise DependencyLimit(
            f"{DEPENDANTS_MAX} tasks wait for one of these already; nothing was written",
            state={"dependency": task_id_text(asked.crowded[0])},
        )


def _met(case: Case) -> None:
    if case.open_prerequisites:
        raise InvalidState("a prerequisite is not accepted; nothing was written")


def _due(case: Case) -> None:
    if case.task is None or case.task.due_ms is None or case.task.due_ms > case.now_ms:
        raise InvalidState("its time has not come; nothing was written")


CHECKS: Final[Mapping[Need, Callable[[Case], None]]] = MappingProxyType(
    {
        Need.SLOT: _slot,
        Need.NEXT: _next,
        Need.IN_TIME: _in_time,
        Need.OTHER_REVIEWER: _other_reviewer,
        Need.TARGET: _target,
        Need.ASSIGNEE: _assignee,
        Need.PREREQUISITES: _prerequisites,
        Need.MET: _met,
        Need.DUE: _due,
    }
)


def check_needs(needs: Iterable[Need], case: Case) -> None:
    """Let an action go on whose conditions hold.

    Raises:
        AlreadyRunning, NotNext, DeadlinePassed, SelfReview, AgentDeleted, NotFound, DependencyCycle, DependencyLimit,
        InvalidState: the first that does not, in the order of the rule.
    """
    for need in needs:
        CHECKS[need](case)


def check_rested_on(task: Task, *, version: int, revision: int, attempt_id: bytes | None) -> None:
    """Let an action go on that rests on the task as it is; 0 and None rest on nothing.

    Raises:
        VersionConflict, StaleAttempt, StaleRevision: it rests on an earlier state; the present one is told.
    """
    stands = {
        "version": str(task.version),
        "state": task.state.name.lower(),
        "revision": str(task.revision),
    }
    if version and version != task.version:
        raise VersionConflict(
            "the task has changed since; nothing was written", hint="Look at it again, then decide.", state=stands
        )
    if attempt_id is not None and attempt_id != task.attempt_id:
        raise StaleAttempt(
            "this attempt is not the task's current one; nothing was written",
            hint="Stop working on it: look at the task before anything else is done for it.",
            state=stands,
        )
    if revision and revision != task.revision:
        raise StaleRevision(
            "this is not the task's current revision; nothing was written",
            hint="Read the task and its feedback, then go on with its current revision.",
            state=stands,
        )


def parts_of(
    task: Task, *, agent_id: bytes | None, project_id: bytes | None, coordinator: bool, eligible: frozenset[bytes]
) -> frozenset[Part]:
    """Return what an agent is to a task. `eligible` may hold the project's id: every agent of it."""
    if agent_id is None or project_id != task.project_id:
        return frozenset()
    found = set()
    if agent_id == task.issuer:
        found.add(Part.ISSUER)
    if agent_id == task.assignee:
        found.add(Part.ASSIGNEE)
    if agent_id == task.reviewer:
        found.add(Part.REVIEWER)
    if coordinator:
        found.add(Part.COORDINATOR)
    if task.assignee is None and (agent_id in eligible or project_id in eligible):
        found.add(Part.ELIGIBLE)
    return frozenset(found)


def check_visible(task: Task | None, parts: frozenset[Part]) -> Task:
    """Return the task where somebody of these parts may see it.

    Raises:
        NotFound: there is none, or none that they may see: the two are not told apart.
    """
    if task is None or not parts:
        raise NotFound(
            "no task has this id, or none that you may see; nothing was written",
            hint="Check the id with task_list. A pool task that another agent has claimed is not shown any more.",
        )
    return task


def is_open(state: State | None) -> bool:
    """Tell whether a prerequisite in this state still holds others up; None is one that is not there."""
    return state not in (State.ACCEPTED, State.INTEGRATED)


def waits_for_itself(
    task_id: bytes, wanted: Iterable[bytes], prerequisites_of: Callable[[bytes], Iterable[bytes]]
) -> bool:
    """Tell whether a task would wait for itself if it waited for `wanted`.

    Raises:
        DependencyLimit: more than DEPENDENCY_STEPS_MAX tasks would have to be looked at.
    """
    seen: set[bytes] = set()
    waiting = list(wanted)
    while waiting:
        one = waiting.pop()
        if one == task_id:
            return True
        if one in seen:
            continue
        seen.add(one)
        if len(seen) > DEPENDENCY_STEPS_MAX:
            raise DependencyLimit(
                f"more than {DEPENDENCY_STEPS_MAX} tasks stand behind these dependencies; nothing was written"
            )
        waiting.extend(prerequisites_of(one))
    return False


def check_state_settled(task: Task) -> None:
    """Let an outcome be acknowledged that is settled.

    Raises:
        InvalidState: the task is still open.
    """
    if task.phase not in _ACKNOWLEDGEABLE:
        raise InvalidState(
            "a task whose outcome is open cannot be acknowledged; nothing was written",
            state={"task_id": task_id_text(task.task_id), "phase": task.phase.name.lower()},
        )


def retires_when_seen(task: Task) -> bool:
    """Tell whether an outcome that its supervisor was given leaves the set when the set is refreshed (T036).

    A failed or expired task does not: something is still to be decided about it.
    """
    return task.phase in (Phase.ACCEPTED, Phase.INTEGRATED, Phase.CANCELLED)


_ACKNOWLEDGEABLE: Final = frozenset(
    {Phase.ACCEPTED, Phase.INTEGRATED, Phase.CANCELLED, Phase.FAILED, Phase.EXPIRED, Phase.ARCHIVED}
)


def check_field(*, holds: bool, field: str, rule: str) -> None:
    """Let a call go on whose field keeps its rule.

    Raises:
        InvalidTaskField: it does not.
    """
    if not holds:
        raise InvalidTaskField(f"{field} {rule}; nothing was written", state={"field": field})
