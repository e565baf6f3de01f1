"""Every statement of shared context and project memory, in SQLAlchemy Core, compiled to the text that is run."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, exists, func, select

from fencepost_mailbox.domain.context.values import TASKS_LOOKED_AT_MAX
from fencepost_mailbox.store.context.tables import ACTIVITY, CONTEXT, MEMORY, REFERENCE, VERSION
from fencepost_mailbox.store.dialect import const as _const
from fencepost_mailbox.store.dialect import sqlite, upsert, whole_row
from fencepost_mailbox.store.tasks.tables import TASK

_C, _V, _R, _M, _A = CONTEXT.c, VERSION.c, REFERENCE.c, MEMORY.c, ACTIVITY.c
_ZERO = _const(0)  # the dialect would bind one
_ONE = _const(1)
_OF_PROJECT = _C.project_id == bindparam("project_id")
# Everything but the content, which may spill over many pages.
_VERSION_HEAD = [column for column in VERSION.columns if column.name != "content"]
_MEMORY_HEAD = [column for column in MEMORY.columns if column.name != "content"]
_VERSIONS_OF = (_V.project_id == bindparam("project_id"), _V.key == bindparam("key"))

TOPIC = sqlite(select(CONTEXT).where(_OF_PROJECT, _C.key == bindparam("key")))
TOPIC_COUNT = sqlite(select(func.count()).select_from(CONTEXT).where(_OF_PROJECT))
_LISTED = (
    select(*CONTEXT.columns, *_VERSION_HEAD)
    .join(VERSION, (_V.project_id == _C.project_id) & (_V.key == _C.key) & (_V.version == _C.newest))
    .where(_OF_PROJECT, _C.key >= bindparam("first"), _C.key < bindparam("end"))
    .order_by(_C.key)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
TOPICS = sqlite(_LISTED)
TOPICS_PINNED = sqlite(_LISTED.where(_C.pinned == _ONE))
PUT_TOPIC = upsert(CONTEXT)
DROP_TOPIC = sqlite(delete(CONTEXT).where(_OF_PROJECT, _C.key == bindparam("key")))

VERSION_BY_NUMBER = sqlite(select(VERSION).where(*_VERSIONS_OF, _V.version == bindparam("version")))
VERSIONS = sqlite(
    select(*_VERSION_HEAD)
    .where(*_VERSIONS_OF, _V.version < bindparam("before"))
    .order_by(_V.version.desc())
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
INSERT_VERSION = whole_row(VERSION)
_REFERRED_TO = exists(select(_ONE).where(_R.project_id == _V.project_id, _R.key == _V.key, _R.version == _V.version))
OLD_VERSIONS = sqlite(
    select(_V.version)
    .where(*_VERSIONS_OF, _V.version <= bindparam("up_to"), ~_REFERRED_TO)
    .order_by(_V.version)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
OLDEST_VERSIONS = sqlite(
    select(_V.version).where(*_VERSIONS_OF).order_by(_V.version).limit(bindparam("limit")).offset(_ZERO)
)
DROP_VERSION = sqlite(delete(VERSION).where(*_VERSIONS_OF, _V.version == bindparam("version")))
REFER = whole_row(REFERENCE)

MEMORY_NEWEST = sqlite(
    select(MEMORY).where(_M.project_id == bindparam("project_id")).order_by(_M.version.desc()).limit(_ONE).offset(_ZERO)
)
MEMORY_BY_NUMBER = sqlite(
    select(MEMORY).where(_M.project_id == bindparam("project_id"), _M.version == bindparam("version"))
)
MEMORIES = sqlite(
    select(*_MEMORY_HEAD)
    .where(_M.project_id == bindparam("project_id"), _M.version < bindparam("before"))
    .order_by(_M.version.desc())
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
INSERT_MEMORY = whole_row(MEMORY)
DROP_MEMORIES = sqlite(delete(MEMORY).where(_M.project_id == bindparam("project_id"), _M.version <= bindparam("up_to")))

ACTIVE_AT = sqlite(select(_A.active_at_ms).where(_A.project_id == bindparam("project_id")))
PUT_ACTIVITY = upsert(ACTIVITY)
_NEWEST_TASKS = (
    select(TASK.c.changed_at_ms)
    .where(TASK.c.project_id == bindparam("project_id"))
    .order_by(TASK.c.sequence.desc())
    .limit(_const(TASKS_LOOKED_AT_MAX))
    .offset(_ZERO)
    .subquery()
)
# Bounded: it walks so many of one project's newest tasks and no more.
TASKS_ACTIVE_AT = sqlite(select(func.max(_NEWEST_TASKS.c.changed_at_ms)))
NEXT_UNPINNED_PROJECT = sqlite(
    select(_C.project_id)
    .where(_C.project_id > bindparam("after"), _C.pinned == _ZERO)
    .order_by(_C.project_id)
    .limit(_ONE)
    .offset(_ZERO)
)
LAPSED = sqlite(
    select(_C.key)
    .where(
        _OF_PROJECT,
        _C.pinned == _ZERO,
        _C.published_at_ms < bindparam("before_ms"),
        ~exists(select(_ONE).where(_R.project_id == _C.project_id, _R.key == _C.key)),
    )
    .order_by(_C.key)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
