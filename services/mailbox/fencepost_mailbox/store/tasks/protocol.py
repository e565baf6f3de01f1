"""What any store of the mailbox does for supervised tasks, inside the same transactions as for records."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Protocol

from fencepost_mailbox.domain.tasks.values import (
    Attempt,
    Notice,
    Notification,
    Run,
    State,
    Supervised,
    Task,
    TaskEvent,
)


class Listed(enum.Enum):
    """By which of its parts a task is listed. ELIGIBLE: an agent, or a project for every agent of it."""

    PROJECT = "project"
    ISSUER = "issuer"
    ASSIGNEE = "assignee"
    REVIEWER = "reviewer"
    ELIGIBLE = "eligible"


class TaskQueries(Protocol):
    """What can be asked of tasks, inside a transaction or beside it."""

    def task(self, task_id: bytes) -> Task | None:
        """Return the task, or None."""
        ...

    def state(self, task_id: bytes) -> tuple[State, bytes] | None:
        """Return a task's state and project, or None where there is no such task."""
        ...

    def attempt(self, attempt_id: bytes) -> Attempt | None:
        """Return the attempt, or None."""
        ...

    def executing(self, agent: bytes) -> Task | None:
        """Return the task that holds an agent's execution slot, or None."""
        ...

    def first_queued(self, agent: bytes) -> bytes | None:
        """Return the task that stands first in an agent's queue, or None."""
        ...

    def slot_taken(self, agent: bytes) -> bool:
        """Tell whether something holds an agent's execution slot."""
        ...

    def has_notifications(self, agent: bytes) -> bool:
        """Tell whether anything stands for an agent."""
        ...

    def needing(self, agent: bytes, limit: int) -> list[Notification]:
        """Return notifications that an agent can act on whatever else it does, those told least often first."""
        ...

    def notices_of(self, task_id: bytes) -> list[Notification]:
        """Return every notification about a task."""
        ...

    def rested(self, after_ms: int, now_ms: int) -> list[bytes]:
        """Return agents of which a notification's rest between two wake-ups ended in this time."""
        ...

    def events_behind(self, after: int, limit: int) -> list[TaskEvent]:
        """Return events of all tasks with a sequence above `after`, in commit order."""
        ...

    def prerequisites(self, task_id: bytes) -> list[bytes]:
        """Return what a task waits for."""
        ...

    def has_open_prerequisite(self, task_id: bytes) -> bool:
        """Tell whether something that a task waits for is not accepted."""
        ...

    def dependants(self, task_id: bytes, limit: int) -> list[bytes]:
        """Return up to `limit` tasks that wait for one."""
        ...

    def eligible(self, task_id: bytes) -> frozenset[bytes]:
        """Return who may claim a task that is in the pool; the project's id stands for every agent of it."""
        ...

    def listed(self, by: Listed, who: bytes, before: int, limit: int) -> list[Task]:
        """Return tasks by one of their parts with a sequence below `before`, newest first."""
        ...

    def event(self, sequence: int) -> TaskEvent | None:
        """Return one event, or None."""
        ...

    def events(self, task_id: bytes, after: int, limit: int) -> list[TaskEvent]:
        """Return events of a task with a sequence above `after`, in commit order."""
        ...

    def notifications(self, agent: bytes, after: int, limit: int) -> list[Notification]:
        """Return notifications of an agent with a sequence above `after`, oldest first."""
        ...

    def given_outcomes(self, agent: bytes, position: int, limit: int) -> list[Notification]:
        """Return up to `limit` notifications of accepted or cancelled tasks with a sequence up to `position`."""
        ...

    def runs(self, agent: bytes) -> list[Run]:
        """Return how far runs of an agent were given its notifications: the one that was given something last first."""
        ...

    def supervised(self, agent: bytes, after: int, limit: int) -> list[Supervised]:
        """Return entries of a supervision set with a sequence above `after`, oldest first."""
        ...

    def entry(self, agent: bytes, task_id: bytes) -> Supervised | None:
        """Return an agent's entry for a task, or None where it does not supervise it."""
        ...

    def supervised_count(self, agent: bytes) -> int:
        """Count the entries of a supervision set."""
        ...

    def any_due(self, now_ms: int) -> bool:
        """Tell whether the mailbox has to look after a task by now."""
        ...

    def newest_event(self) -> int:
        """Return the newest committed event's sequence; 0 for none."""
        ...


class TaskTransaction(TaskQueries, Protocol):
    """What an operation may write of tasks. A guard that misses raises InvariantBroken."""

    def insert(self, task: Task) -> None:
        """Write a new task."""
        ...

    def move(self, before: Task, after: Task) -> None:
        """Write the state of `after` over that of `before`; guarded by its id, version, phase and attempt."""
        ...

    def insert_attempt(self, attempt: Attempt) -> None:
        """Write a new attempt."""
        ...

    def move_attempt(self, before: Attempt, after: Attempt) -> None:
        """Write the state of `after` over that of `before`; guarded by its certainty, and by its having no outcome."""
        ...

    def add_event(self, event: TaskEvent) -> None:
        """Append an event."""
        ...

    def set_prerequisites(self, task_id: bytes, prerequisites: Iterable[bytes]) -> None:
        """Write what a task waits for in place of what it waited for."""
        ...

    def set_eligible(self, task: Task, eligible: Iterable[bytes]) -> None:
        """Write who may claim a task in place of who might; nobody once it was claimed or assigned."""
        ...

    def told_by(self, wake_id: bytes) -> list[Notification]:
        """Return what stands of what a wake-up told."""
        ...

    def note_wake(self, notification: Notification, wake_id: bytes) -> None:
        """Count a wake-up that tells a notification."""
        ...

    def forget_wake(self, notification: Notification) -> None:
        """Take back what the newest note_wake wrote: that wake-up told nobody."""
        ...

    def rest(self, notification: Notification, again_at_ms: int) -> None:
        """Write until when a notification rests; 0 for good."""
        ...

    def tell(self, notification: Notification) -> None:
        """Write a notification in place of the same that stood before."""
        ...

    def consume(self, agent: bytes, task_id: bytes, notice: Notice) -> None:
        """Remove a notification."""
        ...

    def set_run(self, agent: bytes, run: Run) -> None:
        """Write how far a run was given its notifications, and forget what goes beyond RUNS_KEPT_MAX."""
        ...

    def enrol(self, entry: Supervised) -> None:
        """Write an entry of a supervision set, unless it stands there."""
        ...

    def leave(self, agent: bytes, task_id: bytes) -> bool:
        """Remove an entry of a supervision set; True where it stood there."""
        ...

    def due(self, now_ms: int, limit: int) -> list[Task]:
        """Return up to `limit` tasks that the mailbox has to look after by now, the longest due first."""
        ...

    def all_executing(self, after: bytes, limit: int) -> list[Task]:
        """Return up to `limit` tasks in execution of agents behind `after`, in the order of agents."""
        ...

    def left_by(self, agent: bytes, limit: int) -> list[Task]:
        """Return up to `limit` tasks that a deleted agent still has a part in that can be taken from it."""
        ...

    def erase_agent(self, agent: bytes, limit: int) -> int:
        """Remove up to `limit` notifications and entries of a deleted agent, then its run; return how many."""
        ...
