"""The words of supervised tasks as values. Ids are 16 bytes; their text forms are made at the rim."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from fencepost_kit.values import value

DESCRIPTION_BYTES_MAX: Final = 65_536
ACCEPTANCE_BYTES_MAX: Final = 65_536
# Notes, reasons, results, evidence, feedback, risks.
TASK_TEXT_BYTES_MAX: Final = 8192
# Keys of contexts, names of evidence.
TASK_NAME_BYTES_MAX: Final = 256
CONTEXT_REFS_MAX: Final = 16
PREREQUISITES_MAX: Final = 100
# Tasks that wait for one: accepting it looks at each of them in one transaction.
DEPENDANTS_MAX: Final = 1000
# Tasks that one search for a cycle of dependencies looks at.
DEPENDENCY_STEPS_MAX: Final = 10_000
ELIGIBLE_MAX: Final = 100
EVIDENCE_IDS_MAX: Final = 32
TIMEOUT_S_MIN: Final = 1
TIMEOUT_S_MAX: Final = 604_800
PERCENT_MAX: Final = 100
# Of a time, so that it fits where it is stored and in what people read.
TIME_MS_MAX: Final = 253_402_300_799_999
TASKS_LISTED_DEFAULT: Final = 50
TASKS_LISTED_MAX: Final = 200
TASK_LISTING_STEPS_MAX: Final = 20
HISTORY_PAGE_BYTES_MAX: Final = 524_288
NOTIFICATION_WAIT_MS_MAX: Final = 20_000
RUN_BYTES_MAX: Final = 64
# Runs of an agent of which it is known what they were given; the ones that asked last.
RUNS_KEPT_MAX: Final = 8
# Tasks whose time has come that one transaction looks after.
DUE_TASKS_MAX: Final = 200
COMMIT_LENGTHS: Final = frozenset({40, 64})


class State(enum.IntEnum):
    """How far a task has come. Values are stored."""

    BLOCKED = 1
    QUEUED = 2
    RUNNING = 3
    SUBMITTED = 4
    ACCEPTED = 5
    INTEGRATED = 6
    CANCEL_REQUESTED = 7
    CANCELLED = 8
    FAILED = 9
    EXPIRED = 10


class Phase(enum.IntEnum):
    """Where a task stands for decisions: its state, and what of its attempt, assignee and archive decides with it.

    Derived by `fencepost_mailbox.domain.tasks.changes.phase_of`. Values are stored.

    NONE: it does not exist yet. POOLED: queued without an assignee. LOST, CANCEL_LOST: running, or asked to stop, and
    whether it still runs is not known. ABANDONED: the same, and its assignee was deleted.
    """

    NONE = 0
    BLOCKED = 1
    POOLED = 2
    QUEUED = 3
    RUNNING = 4
    LOST = 5
    CANCEL_REQUESTED = 6
    CANCEL_LOST = 7
    ABANDONED = 8
    SUBMITTED = 9
    ACCEPTED = 10
    INTEGRATED = 11
    CANCELLED = 12
    FAILED = 13
    EXPIRED = 14
    ARCHIVED = 15


# An agent has at most one task in these: its execution slot.
EXECUTING: Final = frozenset({Phase.RUNNING, Phase.LOST, Phase.CANCEL_REQUESTED, Phase.CANCEL_LOST})
# Nothing more happens by itself; only a word of somebody who may leads out of it.
SETTLED: Final = frozenset(
    {Phase.ACCEPTED, Phase.INTEGRATED, Phase.CANCELLED, Phase.FAILED, Phase.EXPIRED, Phase.ARCHIVED}
)
# Prerequisites in these states no longer hold anybody up.
DONE: Final = frozenset({State.ACCEPTED, State.INTEGRATED})


class Action(enum.IntEnum):
    """What can happen to a task. Values are stored."""

    ASSIGN = 1
    CREATE_POOL = 2
    CLAIM = 3
    START = 4
    PROGRESS = 5
    SUBMIT = 6
    ACCEPT = 7
    REJECT = 8
    INTEGRATE = 9
    CANCEL = 10
    FINISH_CANCEL = 11
    FAIL = 12
    RETRY = 13
    REASSIGN = 14
    SET_DEPENDENCIES = 15
    OVERRIDE_RETRY = 16
    OVERRIDE_REASSIGN = 17
    OVERRIDE_CANCEL = 18
    ARCHIVE = 19
    UNBLOCK = 20
    EXPIRE = 21
    TIME_OUT = 22
    MARK_OVERDUE = 23
    LOSE_SIGHT = 24
    LOSE_ISSUER = 25
    LOSE_REVIEWER = 26
    LOSE_ASSIGNEE = 27


class Part(enum.IntEnum):
    """What somebody is to a task; an agent can be several things to it. Values are stored."""

    ISSUER = 1
    ASSIGNEE = 2
    REVIEWER = 3
    ELIGIBLE = 4
    COORDINATOR = 5
    OPERATOR = 6
    SERVICE = 7
    SYSTEM = 8


class Certainty(enum.IntEnum):
    """What is known of an attempt. NONE: there is none. Values are stored."""

    NONE = 0
    ACTIVE = 1
    INTERRUPTED = 2
    UNKNOWN = 3
    FINISHED = 4


class AttemptOutcome(enum.IntEnum):
    """How an attempt ended. NONE: it has not. Values are stored."""

    NONE = 0
    SUBMITTED = 1
    FAILED = 2
    CANCELLED = 3
    RESUMED = 4
    FENCED = 5


class Integration(enum.IntEnum):
    """How accepted work came into the main project. Values are shown in history."""

    RECORDED = 1
    MERGED = 2
    CONTAINED = 3


class Notice(enum.IntEnum):
    """What a notification tells its agent. Values are stored."""

    ASSIGNED = 1
    REWORK = 2
    POOL = 3
    REVIEW = 4
    STOP = 5
    RESUME = 6
    UNKNOWN = 7
    WAITING = 8
    OVERDUE = 9
    ACCEPTED = 10
    FAILED = 11
    EXPIRED = 12
    CANCELLED = 13
    ORPHANED = 14


@value(frozen=True, kw_only=True, slots=True)
class ContextRef:
    """A shared context that belongs to a task; version 0 is the newest that there was."""

    key: str
    version: int


@value(frozen=True, kw_only=True, slots=True)
class Task:
    """A task as it is stored. No issuer or reviewer means the operator, no assignee the pool; times 0 mean none."""

    sequence: int
    task_id: bytes
    project_id: bytes
    issuer: bytes | None
    assignee: bytes | None
    reviewer: bytes | None
    pool: bool
    state: State
    phase: Phase
    revision: int
    version: int
    attempt_id: bytes | None
    certainty: Certainty
    started: bool
    overdue: bool
    archived: bool
    orphan: bool
    created_at_ms: int
    changed_at_ms: int
    # Since when its state has stood.
    state_at_ms: int
    start_deadline_ms: int
    execution_timeout_s: int
    review_timeout_s: int
    # When the mailbox has to look after it; None for never. Derived.
    due_ms: int | None
    queue_position: int
    percent: int | None
    note: str
    wait_reason: str
    result: str
    evidence: str
    evidence_ids: tuple[str, ...]
    feedback: str
    failure: str
    commit: str
    context_refs: tuple[ContextRef, ...]
    description: str
    acceptance: str


@value(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One execution of a revision by one life of one agent."""

    attempt_id: bytes
    task_id: bytes
    revision: int
    agent: bytes
    generation: int
    started_at_ms: int
    finished_at_ms: int
    certainty: Certainty
    outcome: AttemptOutcome


@value(frozen=True, kw_only=True, slots=True)
class TaskEvent:
    """One thing that happened to a task, and what it left."""

    sequence: int
    task_id: bytes
    action: Action
    part: Part
    agent: bytes | None
    generation: int
    # 0 before the first.
    from_state: int
    to_state: State
    revision: int
    version: int
    attempt_id: bytes | None
    at_ms: int
    text: str = ""
    evidence: str = ""
    evidence_ids: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


@value(frozen=True, kw_only=True, slots=True)
class Notification:
    """Something that an agent should know or do, until the transition that settles it."""

    sequence: int
    agent: bytes
    task_id: bytes
    notice: Notice
    at_ms: int
    # In how many wake-ups it was told, in which one last, until when it rests after that, and in which one before.
    wakes: int = 0
    wake_id: bytes | None = None
    again_at_ms: int = 0
    earlier_wake_id: bytes | None = None


@value(frozen=True, kw_only=True, slots=True)
class Supervised:
    """An entry of an agent's supervision set."""

    agent: bytes
    task_id: bytes
    sequence: int
    at_ms: int


@value(frozen=True, kw_only=True, slots=True)
class Run:
    """How far an agent was given its notifications in one run, and which messages it was told of."""

    run: str
    position: int
    messages: int = 0
