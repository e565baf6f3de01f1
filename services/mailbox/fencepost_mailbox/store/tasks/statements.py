"""Every statement of supervised tasks, written with SQLAlchemy Core and compiled to the text that the driver runs."""

from __future__ import annotations

from typing import Any

from sqlalchemy import bindparam, delete, func, null, select, update
from sqlalchemy.sql import ColumnElement

from fencepost_mailbox.domain.tasks.values import DONE, Notice, Phase
from fencepost_mailbox.store.dialect import const as _const
from fencepost_mailbox.store.dialect import insert_or_keep, sqlite, upsert, whole_row
from fencepost_mailbox.store.tasks.tables import (
    ATTEMPT,
    ELIGIBLE,
    EVENT,
    NOTIFICATION,
    PREREQUISITE,
    RUN,
    SUPERVISION,
    TASK,
)

_T, _A, _E, _P, _N, _S = TASK.c, ATTEMPT.c, EVENT.c, PREREQUISITE.c, NOTIFICATION.c, SUPERVISION.c
_ZERO = _const(0)  # the dialect would bind one
_ONE = _const(1)
# Word for word the conditions of their indexes.
_QUEUED = _T.phase == _const(Phase.QUEUED)
_EXECUTING = _T.phase.in_(
    [_const(phase) for phase in (Phase.RUNNING, Phase.LOST, Phase.CANCEL_REQUESTED, Phase.CANCEL_LOST)]
)
_DUE = _T.due_ms.is_not(None)

TASK_BY_ID = sqlite(select(TASK).where(_T.task_id == bindparam("task_id")))
TASK_STATE = sqlite(select(_T.state, _T.project_id).where(_T.task_id == bindparam("task_id")))
EXECUTING_OF = sqlite(select(TASK).where(_T.assignee == bindparam("assignee"), _EXECUTING))
ALL_EXECUTING = sqlite(
    # SQLAlchemy renders no hint for this dialect.
    select(TASK)
    .where(_EXECUTING, _T.assignee > bindparam("after"))
    .order_by(_T.assignee)
    .limit(bindparam("limit"))
    .offset(_ZERO)
).replace("FROM task", "FROM task INDEXED BY task_slot")
SLOT_TAKEN = sqlite(select(_ONE).where(_T.assignee == bindparam("assignee"), _EXECUTING))
FIRST_QUEUED = sqlite(
    select(_T.task_id)
    .where(_T.assignee == bindparam("assignee"), _QUEUED)
    .order_by(_T.queue_position)
    .limit(_ONE)
    .offset(_ZERO)
)
DUE = sqlite(
    select(TASK)
    .where(_T.due_ms <= bindparam("now_ms"), _DUE)
    .order_by(_T.due_ms)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
ANY_DUE = sqlite(select(_ONE).where(_T.due_ms <= bindparam("now_ms"), _DUE).limit(_ONE).offset(_ZERO))
NEWEST_EVENT = sqlite(select(_E.sequence).order_by(_E.sequence.desc()).limit(_ONE).offset(_ZERO))


def _listed(column: ColumnElement[Any]) -> str:
    return sqlite(
        select(TASK)
        .where(column == bindparam("who"), _T.sequence < bindparam("before"))
        .order_by(_T.sequence.desc())
        .limit(bindparam("limit"))
        .offset(_ZERO)
    )


LISTED_BY_PROJECT = _listed(_T.project_id)
LISTED_BY_ISSUER = _listed(_T.issuer)
LISTED_BY_ASSIGNEE = _listed(_T.assignee)
LISTED_BY_REVIEWER = _listed(_T.reviewer)
LISTED_BY_ELIGIBLE = sqlite(
    select(TASK)
    .join(ELIGIBLE, _T.sequence == ELIGIBLE.c.sequence)
    .where(ELIGIBLE.c.agent == bindparam("who"), ELIGIBLE.c.sequence < bindparam("before"))
    .order_by(ELIGIBLE.c.sequence.desc())
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
# What a deleted agent still has a part in.
LEFT_BY_ISSUER = sqlite(
    select(TASK)
    .where(_T.issuer == bindparam("who"), _T.archived == _ZERO)
    .order_by(_T.sequence)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
LEFT_BY_REVIEWER = sqlite(
    select(TASK)
    .where(_T.reviewer == bindparam("who"), _T.archived == _ZERO)
    .order_by(_T.sequence)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
LEFT_BY_ASSIGNEE = sqlite(
    select(TASK)
    .where(
        _T.assignee == bindparam("who"),
        _T.orphan == _ZERO,
        _T.phase.not_in([_const(phase) for phase in (Phase.ACCEPTED, Phase.INTEGRATED, Phase.ARCHIVED)]),
    )
    .order_by(_T.sequence)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)

INSERT_TASK = whole_row(TASK)
# What was said when the task was given is never written again.
_FIXED = frozenset(
    {
        "sequence",
        "task_id",
        "project_id",
        "pool",
        "created_at_ms",
        "execution_timeout_s",
        "review_timeout_s",
        "context_refs",
        "description",
        "acceptance",
    }
)
MOVE_TASK = sqlite(
    update(TASK)
    .where(
        _T.sequence == bindparam("was_sequence"),
        _T.version == bindparam("was_version"),
        _T.phase == bindparam("was_phase"),
        _T.attempt_id.is_(bindparam("was_attempt_id")),
    )
    .values({column.name: bindparam(column.name) for column in TASK.columns if column.name not in _FIXED})
)

ATTEMPT_BY_ID = sqlite(select(ATTEMPT).where(_A.attempt_id == bindparam("attempt_id")))
INSERT_ATTEMPT = whole_row(ATTEMPT)
MOVE_ATTEMPT = sqlite(
    update(ATTEMPT)
    .where(
        _A.attempt_id == bindparam("was_attempt_id"),
        _A.certainty == bindparam("was_certainty"),
        _A.outcome == _ZERO,
    )
    .values({name: bindparam(name) for name in ("finished_at_ms", "certainty", "outcome")})
)

EVENT_BY_SEQUENCE = sqlite(select(EVENT).where(_E.sequence == bindparam("sequence")))
EVENTS = sqlite(
    select(EVENT)
    .where(_E.task_id == bindparam("task_id"), _E.sequence > bindparam("after"))
    .order_by(_E.sequence)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
EVENTS_BEHIND = sqlite(
    select(EVENT).where(_E.sequence > bindparam("after")).order_by(_E.sequence).limit(bindparam("limit")).offset(_ZERO)
)
INSERT_EVENT = whole_row(EVENT)

PREREQUISITES = sqlite(
    select(_P.prerequisite_id).where(_P.task_id == bindparam("task_id")).order_by(_P.prerequisite_id)
)
# Through the few prerequisites of one task; never by walking the tasks.
OPEN_PREREQUISITE = sqlite(
    select(_ONE)
    .join(TASK, _T.task_id == _P.prerequisite_id)
    .where(
        _P.task_id == bindparam("task_id"),
        _T.state.not_in([_const(state) for state in sorted(DONE)]),
    )
    .limit(_ONE)
    .offset(_ZERO)
)
DEPENDANTS = sqlite(
    select(_P.task_id)
    .where(_P.prerequisite_id == bindparam("prerequisite_id"))
    .order_by(_P.task_id)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
INSERT_PREREQUISITE = whole_row(PREREQUISITE)
DROP_PREREQUISITES = sqlite(delete(PREREQUISITE).where(_P.task_id == bindparam("task_id")))

ELIGIBLE_OF = sqlite(select(ELIGIBLE.c.agent).where(ELIGIBLE.c.task_id == bindparam("task_id")))
INSERT_ELIGIBLE = whole_row(ELIGIBLE)
DROP_ELIGIBLE = sqlite(delete(ELIGIBLE).where(ELIGIBLE.c.task_id == bindparam("task_id")))

NOTIFICATIONS = sqlite(
    select(NOTIFICATION)
    .where(_N.agent == bindparam("agent"), _N.sequence > bindparam("after"))
    .order_by(_N.sequence)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
NOTIFICATIONS_OF_TASK = sqlite(select(NOTIFICATION).where(_N.task_id == bindparam("task_id")))
HAS_NOTIFICATIONS = sqlite(select(_ONE).where(_N.agent == bindparam("agent")).limit(_ONE).offset(_ZERO))
NEXT_TOLD = sqlite(select(_N.agent).where(_N.agent > bindparam("after")).order_by(_N.agent).limit(_ONE).offset(_ZERO))
# Word for word the condition of the index task_notification_needs.
NEEDING = sqlite(
    select(NOTIFICATION)
    .where(
        _N.agent == bindparam("agent"),
        _N.notice.in_([_const(notice) for notice in (Notice.REVIEW, Notice.STOP, Notice.RESUME)]),
    )
    .order_by(_N.wakes, _N.sequence)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
TOLD_BY = sqlite(select(NOTIFICATION).where(_N.wake_id == bindparam("wake_id")))
RESTED = sqlite(
    select(_N.agent)
    .where(_N.again_at_ms > bindparam("after_ms"), _N.again_at_ms <= bindparam("now_ms"), _N.again_at_ms > _ZERO)
    .order_by(_N.again_at_ms)
)
_IT = (_N.agent == bindparam("was_agent"), _N.task_id == bindparam("was_task_id"), _N.notice == bindparam("was_notice"))
NOTE_WAKE = sqlite(
    update(NOTIFICATION)
    .where(*_IT)
    .values(wakes=_N.wakes + _ONE, earlier_wake_id=_N.wake_id, wake_id=bindparam("wake_id"), again_at_ms=_ZERO)
)
FORGET_WAKE = sqlite(
    update(NOTIFICATION)
    .where(*_IT)
    .values(wakes=_N.wakes - _ONE, wake_id=_N.earlier_wake_id, earlier_wake_id=null(), again_at_ms=_ZERO)
)
REST = sqlite(update(NOTIFICATION).where(*_IT).values(again_at_ms=bindparam("again_at_ms")))
# What an agent was given of outcomes that leave its supervision set once they were seen.
GIVEN_OUTCOMES = sqlite(
    select(NOTIFICATION)
    .where(
        _N.agent == bindparam("agent"),
        _N.sequence <= bindparam("position"),
        _N.notice.in_([_const(Notice.ACCEPTED), _const(Notice.CANCELLED)]),
    )
    .order_by(_N.sequence)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
PUT_NOTIFICATION = upsert(NOTIFICATION)
DROP_NOTIFICATION = sqlite(
    delete(NOTIFICATION).where(
        _N.agent == bindparam("agent"), _N.task_id == bindparam("task_id"), _N.notice == bindparam("notice")
    )
)
RUNS_OF = sqlite(select(RUN.c.turn, RUN.c.run, RUN.c.position, RUN.c.messages).where(RUN.c.agent == bindparam("agent")))
PUT_RUN = upsert(RUN)
DROP_RUN = sqlite(delete(RUN).where(RUN.c.agent == bindparam("agent"), RUN.c.run == bindparam("run")))

SUPERVISED = sqlite(
    select(SUPERVISION)
    .where(_S.agent == bindparam("agent"), _S.sequence > bindparam("after"))
    .order_by(_S.sequence)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
SUPERVISES = sqlite(select(SUPERVISION).where(_S.agent == bindparam("agent"), _S.task_id == bindparam("task_id")))
SUPERVISED_COUNT = sqlite(select(func.count(_S.task_id)).select_from(SUPERVISION).where(_S.agent == bindparam("agent")))
ENROL = insert_or_keep(SUPERVISION)
LEAVE = sqlite(delete(SUPERVISION).where(_S.agent == bindparam("agent"), _S.task_id == bindparam("task_id")))

# The erasure of what a deleted agent was to be told, and of what it watched over.
ERASE_RUNS = sqlite(delete(RUN).where(RUN.c.agent == bindparam("agent")))
