"""The tables of supervised tasks as SQLModel declares them."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from sqlalchemy import Index, Integer, text
from sqlmodel import Field, SQLModel

from fencepost_mailbox.store.tables import table

QUEUED: Final = "phase = 3"
EXECUTING: Final = "phase IN (4, 5, 6, 7)"
DUE: Final = "due_ms IS NOT NULL"
# What an agent can act on while it has a task in execution.
NEEDED: Final = "notice IN (4, 5, 6)"
_WITHOUT_ROWID: dict[str, Any] = {"sqlite_with_rowid": False}


def _partial(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    return Index(name, *columns, unique=unique, sqlite_where=text(where), postgresql_where=text(where))


class TaskRow(SQLModel, table=True):
    """A task, and with its sequence the fact of its creation."""

    __tablename__: ClassVar[str] = "task"
    __table_args__: ClassVar[tuple[Any, ...]] = (
        Index("task_by_id", "task_id", unique=True),
        Index("task_project", "project_id", "sequence"),
        Index("task_issuer", "issuer", "sequence"),
        Index("task_assignee", "assignee", "sequence"),
        Index("task_reviewer", "reviewer", "sequence"),
        _partial("task_queue", "assignee", "queue_position", where=QUEUED),
        _partial("task_slot", "assignee", where=EXECUTING, unique=True),
        _partial("task_due", "due_ms", where=DUE),
    )

    sequence: int = Field(primary_key=True, sa_type=Integer, sa_column_kwargs={"autoincrement": False})
    task_id: bytes
    project_id: bytes
    issuer: bytes | None
    assignee: bytes | None
    reviewer: bytes | None
    pool: int
    state: int
    phase: int
    revision: int
    version: int
    attempt_id: bytes | None
    certainty: int
    started: int
    overdue: int
    archived: int
    orphan: int
    created_at_ms: int
    changed_at_ms: int
    state_at_ms: int
    start_deadline_ms: int
    execution_timeout_s: int
    review_timeout_s: int
    due_ms: int | None
    queue_position: int
    percent: int | None
    note: str
    wait_reason: str
    result: str
    evidence: str
    evidence_ids: str
    feedback: str
    failure: str
    integrated_commit: str
    context_refs: str
    description: str
    acceptance: str


class TaskAttemptRow(SQLModel, table=True):
    """One execution of a task."""

    __tablename__: ClassVar[str] = "task_attempt"
    __table_args__: ClassVar[dict[str, Any]] = _WITHOUT_ROWID

    attempt_id: bytes = Field(primary_key=True)
    task_id: bytes
    revision: int
    agent: bytes
    generation: int
    started_at_ms: int
    finished_at_ms: int
    certainty: int
    outcome: int


class TaskEventRow(SQLModel, table=True):
    """One thing that happened to a task."""

    __tablename__: ClassVar[str] = "task_event"
    __table_args__: ClassVar[tuple[Any, ...]] = (Index("task_event_of_task", "task_id", "sequence"),)

    sequence: int = Field(primary_key=True, sa_type=Integer, sa_column_kwargs={"autoincrement": False})
    task_id: bytes
    action: int
    part: int
    agent: bytes | None
    generation: int
    from_state: int
    to_state: int
    revision: int
    version: int
    attempt_id: bytes | None
    at_ms: int
    facts: str
    evidence_ids: str
    evidence: str
    text: str


class TaskPrerequisiteRow(SQLModel, table=True):
    """What a task waits for."""

    __tablename__: ClassVar[str] = "task_prerequisite"
    __table_args__: ClassVar[tuple[Any, ...]] = (
        Index("task_dependant", "prerequisite_id", "task_id"),
        _WITHOUT_ROWID,
    )

    task_id: bytes = Field(primary_key=True)
    prerequisite_id: bytes = Field(primary_key=True)


class TaskEligibleRow(SQLModel, table=True):
    """Who may claim a task of the pool."""

    __tablename__: ClassVar[str] = "task_eligible"
    __table_args__: ClassVar[tuple[Any, ...]] = (Index("task_eligible_agent", "agent", "sequence"), _WITHOUT_ROWID)

    task_id: bytes = Field(primary_key=True)
    agent: bytes = Field(primary_key=True)
    sequence: int


class TaskNotificationRow(SQLModel, table=True):
    """What stands for an agent to know or do."""

    __tablename__: ClassVar[str] = "task_notification"
    __table_args__: ClassVar[tuple[Any, ...]] = (
        Index("task_notification_order", "agent", "sequence", unique=True),
        Index("task_notification_task", "task_id"),
        _partial("task_notification_needs", "agent", "wakes", "sequence", where=NEEDED),
        _partial("task_notification_wake", "wake_id", where="wake_id IS NOT NULL"),
        _partial("task_notification_again", "again_at_ms", where="again_at_ms > 0"),
        _WITHOUT_ROWID,
    )

    agent: bytes = Field(primary_key=True)
    task_id: bytes = Field(primary_key=True)
    notice: int = Field(primary_key=True)
    sequence: int
    at_ms: int
    wakes: int
    wake_id: bytes | None
    again_at_ms: int
    earlier_wake_id: bytes | None


class TaskRunRow(SQLModel, table=True):
    """How far a run of an agent was given its notifications. The greater its turn, the later it was given something."""

    __tablename__: ClassVar[str] = "task_run"
    __table_args__: ClassVar[dict[str, Any]] = _WITHOUT_ROWID

    agent: bytes = Field(primary_key=True)
    run: str = Field(primary_key=True)
    position: int
    messages: int
    turn: int


class SupervisionRow(SQLModel, table=True):
    """An entry of a supervision set."""

    __tablename__: ClassVar[str] = "supervision"
    __table_args__: ClassVar[tuple[Any, ...]] = (Index("supervision_order", "agent", "sequence"), _WITHOUT_ROWID)

    agent: bytes = Field(primary_key=True)
    task_id: bytes = Field(primary_key=True)
    sequence: int
    at_ms: int


TASK = table(TaskRow)
ATTEMPT = table(TaskAttemptRow)
EVENT = table(TaskEventRow)
PREREQUISITE = table(TaskPrerequisiteRow)
ELIGIBLE = table(TaskEligibleRow)
NOTIFICATION = table(TaskNotificationRow)
RUN = table(TaskRunRow)
SUPERVISION = table(SupervisionRow)
TABLES = (TASK, ATTEMPT, EVENT, PREREQUISITE, ELIGIBLE, NOTIFICATION, RUN, SUPERVISION)
