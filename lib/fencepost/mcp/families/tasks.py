"""Supervised tasks: work that is assigned, queued, executed by one agent at a time, reviewed and integrated."""

from __future__ import annotations

from typing import Final

from fencepost.mcp import profiles
from fencepost.mcp.kinds import (
    Agent,
    Assignee,
    Choice,
    Count,
    Flag,
    Kind,
    Moment,
    Problem,
    Prose,
    Record,
    Several,
    Text,
    Uuid,
)
from fencepost.mcp.tool import Hints, Lost, Tool

# The mailbox's own limits, told before anything is asked of it; a test holds both to be the same.
TASK_WORK_BYTES_MAX: Final = 64 * 1024
TASK_TEXT_BYTES_MAX: Final = 8192
TASK_NAME_BYTES_MAX: Final = 256
TASK_ID_CHARS_MAX: Final = 64
CONTEXT_KEY_BYTES_MAX: Final = 256
CONTEXT_REFS_MAX: Final = 16
PREREQUISITES_MAX: Final = 100
ELIGIBLE_MAX: Final = 100
EVIDENCE_IDS_MAX: Final = 32
TIMEOUT_S_MAX: Final = 604_800
LISTED_MAX: Final = 200
# Revisions and versions: what a 64-bit counter holds, and JSON numbers hold exactly.
COUNTER_MAX: Final = 2**53 - 1
PAGE_CURSOR_CHARS_MAX: Final = 1024

STATES: Final = (
    "blocked",
    "queued",
    "running",
    "submitted",
    "accepted",
    "integrated",
    "cancel_requested",
    "cancelled",
    "failed",
    "expired",
)

INSTRUCTIONS: Final = (
    "Tasks: work that others give you waits in your queue. Start the oldest by task_start, or claim one of the pool;"
    " one runs at a time. Tell what you reach by task_progress; end by task_submit, task_fail, or task_finish_cancel"
    " where you were asked to stop. What you assign you supervise until its outcome is handled: task_list shows it,"
    " agent_wait gives the next notification, and reviews are yours unless you named a reviewer. Assigning never waits."
    " Messages are in agent_inbox; acknowledge what you have handled by agent_ack. When nothing immediate remains, call"
    " agent_ready as your last action."
)

REQUEST_ID: Final = Uuid()
REVISION: Final = Count(least=1, most=COUNTER_MAX)
VERSION: Final = Count(least=1, most=COUNTER_MAX)
WORK: Final = Prose(bytes_max=TASK_WORK_BYTES_MAX)
TEXT: Final = Prose(bytes_max=TASK_TEXT_BYTES_MAX)
MAYBE: Final = Prose(bytes_max=TASK_TEXT_BYTES_MAX, blank=True)
CURSOR: Final = Prose(bytes_max=PAGE_CURSOR_CHARS_MAX)
LIMIT: Final = Count(least=1, most=LISTED_MAX)
SECONDS: Final = Count(least=1, most=TIMEOUT_S_MAX)


class _TaskId(Text):
    """The id of a task, in a short schema."""

    def schema(self) -> dict[str, object]:
        """Return the JSON schema."""
        return {"type": "string"}


TASK: Final = _TaskId(chars_max=TASK_ID_CHARS_MAX)
_REFS: Final = Several(
    of=Record(
        values={"key": Prose(bytes_max=CONTEXT_KEY_BYTES_MAX), "version": Count(least=1, most=COUNTER_MAX)},
        required=("key",),
    ),
    most=CONTEXT_REFS_MAX,
)
_DEPENDENCIES: Final = Several(of=TASK, most=PREREQUISITES_MAX)
_EVIDENCE_IDS: Final = Several(of=Prose(bytes_max=TASK_NAME_BYTES_MAX), most=EVIDENCE_IDS_MAX)
_WRITES: Final = Hints(destructive=False)
_ENDS: Final = Hints(destructive=True)
READS: Final = Hints(read_only=True, idempotent=True, open_world=False)
_CHANGE: Final = (
    "`id`, `state`, `revision`, `version`, `attempt_id` where there is one, `at`, `duplicate`, `request_id`"
)


def _some_progress(arguments: object) -> None:
    said = {"note", "wait_reason", "percent", "evidence"}
    if isinstance(arguments, dict) and not said & set(arguments):
        raise Problem(f"one of {', '.join(sorted(said))} is needed")


def _write(
    name: str,
    description: str,
    arguments: dict[str, Kind],
    required: tuple[str, ...],
    *,
    hints: Hints = _WRITES,
    returns: str = _CHANGE,
) -> Tool:
    """Return a row that writes: `expected_version` and `request_id` stand in every one."""
    return Tool(
        name=name,
        family=profiles.TASKS,
        description=description,
        arguments={**arguments, "request_id": REQUEST_ID},
        required=required,
        hints=hints,
        lost=Lost.SETTLE,
        returns=returns,
        together=_some_progress if name == "task_progress" else None,
    )


TOOLS: Final[tuple[Tool, ...]] = (
    _write(
        "task_assign",
        "Queue work for an agent and supervise it. Returns at once: queued, or blocked until its dependencies are"
        " accepted. reviewer: you by default.",
        {
            "to": Assignee(),
            "description": WORK,
            "acceptance": Prose(bytes_max=TASK_WORK_BYTES_MAX, description="Criteria, and commands that verify them."),
            "context_refs": _REFS,
            "reviewer": Agent(),
            "dependencies": _DEPENDENCIES,
            "start_deadline": Moment(),
            "execution_timeout_seconds": SECONDS,
            "review_timeout_seconds": SECONDS,
        },
        ("to", "description", "acceptance", "request_id"),
        returns=f"{_CHANGE}; `delivery`: `queued`",
    ),
    _write(
        "task_start",
        "Start the oldest task of your queue, or go on with one that you were running in an earlier life. One runs at"
        " a time.",
        {"task_id": TASK, "revision": REVISION, "expected_version": VERSION},
        ("task_id", "revision", "request_id"),
    ),
    _write(
        "task_create_pool",
        "Offer work to whoever of eligible claims it first; every agent where none is named.",
        {
            "description": WORK,
            "acceptance": WORK,
            "context_refs": _REFS,
            "eligible": Several(of=Agent(), most=ELIGIBLE_MAX),
            "reviewer": Agent(),
            "dependencies": _DEPENDENCIES,
        },
        ("description", "acceptance", "request_id"),
    ),
    _write(
        "task_claim",
        "Take a task from the pool and start it; one claimer wins. Not while you run another.",
        {"task_id": TASK, "expected_version": VERSION},
        ("task_id", "request_id"),
    ),
    Tool(
        name="task_list",
        family=profiles.TASKS,
        description="List the tasks that you may see, newest first, and refresh what you supervise.",
        arguments={"state": Choice(words=STATES), "assignee": Agent(), "cursor": CURSOR, "limit": LIMIT},
        hints=Hints(destructive=False, open_world=False),
        lost=Lost.ASK_AGAIN,
        returns="`tasks`, `next_cursor`, `pending_count` (what you supervise), `retired` (ids that left it)",
    ),
    Tool(
        name="task_get",
        family=profiles.TASKS,
        description="Show a task with its texts, deadlines, attempt and dependencies.",
        arguments={"task_id": TASK},
        required=("task_id",),
        hints=READS,
        lost=Lost.ASK_AGAIN,
        returns="`task`, `dependencies`, `eligible`, `supervised`",
    ),
    Tool(
        name="task_history",
        family=profiles.TASKS,
        description="What happened to a task, in order.",
        arguments={"task_id": TASK, "cursor": CURSOR, "limit": LIMIT},
        required=("task_id",),
        hints=READS,
        lost=Lost.ASK_AGAIN,
        returns="`events`, `next_cursor`, `has_more`",
    ),
    _write(
        "task_progress",
        "Tell how far your running task is, or what it waits for (wait_reason; none where it goes on); also late"
        " evidence while it is being cancelled.",
        {
            "task_id": TASK,
            "revision": REVISION,
            "note": MAYBE,
            "wait_reason": MAYBE,
            "percent": Count(least=0, most=100),
            "evidence": MAYBE,
            "evidence_ids": _EVIDENCE_IDS,
            "attempt_id": Uuid(),
            "expected_version": VERSION,
        },
        ("task_id", "revision", "request_id"),
    ),
    _write(
        "task_submit",
        "Submit your running task for review; you may start the next one then.",
        {
            "task_id": TASK,
            "revision": REVISION,
            "result": Prose(bytes_max=TASK_TEXT_BYTES_MAX, description="What was done."),
            "evidence": Prose(bytes_max=TASK_TEXT_BYTES_MAX, description="Outputs of checks, files changed."),
            "evidence_ids": _EVIDENCE_IDS,
            "attempt_id": Uuid(),
            "expected_version": VERSION,
        },
        ("task_id", "revision", "result", "evidence", "request_id"),
    ),
    _write(
        "task_review",
        "Accept submitted work, or send it back with feedback as the next revision, which its assignee starts again.",
        {"task_id": TASK, "revision": REVISION, "accepted": Flag(), "feedback": MAYBE, "expected_version": VERSION},
        ("task_id", "revision", "accepted", "feedback", "request_id"),
    ),
    _write(
        "task_integrate",
        "Coordinators: merge the commit of accepted work, by its full id, into the project's main checkout, all or"
        " nothing, and record that. Without commit it is only recorded.",
        {"task_id": TASK, "commit": Prose(bytes_max=64), "note": MAYBE, "expected_version": VERSION},
        ("task_id", "request_id"),
        returns=f"{_CHANGE}; `integration` (`recorded`, `merged`, `contained`); of a merge `branch`, `head`, `detail`",
    ),
    _write(
        "task_cancel",
        "Cancel a task that you gave. One that runs is asked to stop; its assignee confirms by task_finish_cancel.",
        {"task_id": TASK, "reason": MAYBE, "expected_version": VERSION},
        ("task_id",),
        hints=_ENDS,
    ),
    _write(
        "task_finish_cancel",
        "Confirm that you have stopped a task that is being cancelled.",
        {"task_id": TASK, "note": MAYBE, "attempt_id": Uuid(), "expected_version": VERSION},
        ("task_id",),
    ),
    _write(
        "task_fail",
        "Report that your running task failed, with what shows it.",
        {
            "task_id": TASK,
            "reason": TEXT,
            "evidence": MAYBE,
            "evidence_ids": _EVIDENCE_IDS,
            "revision": REVISION,
            "attempt_id": Uuid(),
            "expected_version": VERSION,
        },
        ("task_id", "reason"),
    ),
    _write(
        "task_retry",
        "Queue a failed, expired or cancelled task again.",
        {"task_id": TASK, "reason": MAYBE, "start_deadline": Moment(), "expected_version": VERSION},
        ("task_id",),
    ),
    _write(
        "task_reassign",
        "Give a task that nobody executes to another agent.",
        {
            "task_id": TASK,
            "to": Assignee(),
            "reviewer": Agent(),
            "reason": MAYBE,
            "start_deadline": Moment(),
            "expected_version": VERSION,
        },
        ("task_id", "to"),
    ),
    _write(
        "task_set_dependencies",
        "Replace the dependencies of a task that was not started.",
        {"task_id": TASK, "dependencies": _DEPENDENCIES, "expected_version": VERSION},
        ("task_id", "dependencies"),
    ),
    _write(
        "task_archive",
        "Put a settled task away; nothing changes it any more.",
        {"task_id": TASK, "expected_version": VERSION},
        ("task_id",),
        hints=_ENDS,
    ),
)
