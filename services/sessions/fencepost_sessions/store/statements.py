"""Every statement, written once in SQLAlchemy Core, for any backend: store/sqlite.py compiles them for its driver.

Parameters that are written are named v_<column>, parameters that are compared w_<column>.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Insert,
    Integer,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    func,
    insert,
    literal_column,
    select,
    tuple_,
    update,
)

from fencepost_sessions.store.tables import (
    AgentRow,
    AgentTombstoneRow,
    CredentialRow,
    DirectoryRow,
    IdempotencyRow,
    LeaseRow,
    ProjectRow,
    ReleasedNameRow,
    RemovalRow,
    StatusRow,
)
from fencepost_sessions.store.tables import Table as Declared


def _table(declared: type[Declared]) -> Table:
    table = declared.metadata.tables[str(declared.__tablename__)]
    assert isinstance(table, Table)
    return table


DIRECTORY: Final = _table(DirectoryRow)
PROJECT: Final = _table(ProjectRow)
AGENT: Final = _table(AgentRow)
TOMBSTONE: Final = _table(AgentTombstoneRow)
RELEASED: Final = _table(ReleasedNameRow)
CREDENTIAL: Final = _table(CredentialRow)
REMOVAL: Final = _table(RemovalRow)
IDEMPOTENCY: Final = _table(IdempotencyRow)
LEASE: Final = _table(LeaseRow)
STATUS: Final = _table(StatusRow)


def _is(table: Table, *columns: str) -> ColumnElement[bool]:
    return and_(*(table.c[column] == bindparam(f"w_{column}") for column in columns))


def _inserting(table: Table) -> Insert:
    return insert(table).values({column.name: bindparam(f"v_{column.name}") for column in table.columns})


def _page(statement: Select[Any], *order: ColumnElement[Any]) -> Select[Any]:
    return statement.order_by(*order).limit(bindparam("rows"))


def _after(*pairs: tuple[ColumnElement[Any], str]) -> ColumnElement[bool]:
    """Compare whole rows: the order of a page and the place where it begins are one thing."""
    return tuple_(*(column for column, _ in pairs)) > tuple_(*(bindparam(name) for _, name in pairs))


# --- the directory ---------------------------------------------------------------------------------------------------

DIRECTORY_READ: Final = select(DIRECTORY.c.epoch, DIRECTORY.c.revision, DIRECTORY.c.floor)
DIRECTORY_CREATE: Final = _inserting(DIRECTORY)
DIRECTORY_ADVANCE: Final = update(DIRECTORY).values(revision=bindparam("v_revision")).where(_is(DIRECTORY, "revision"))
DIRECTORY_RENAME: Final = update(DIRECTORY).values(epoch=bindparam("v_epoch")).where(_is(DIRECTORY, "id"))
DIRECTORY_RAISE_FLOOR: Final = update(DIRECTORY).values(floor=bindparam("v_floor"))

# --- projects --------------------------------------------------------------------------------------------------------

PROJECT_BY_ID: Final = select(PROJECT).where(_is(PROJECT, "project_id"))
PROJECT_BY_LOCATION: Final = select(PROJECT).where(_is(PROJECT, "location"))
PROJECT_PAGE: Final = _page(select(PROJECT).where(PROJECT.c.number > bindparam("after_number")), PROJECT.c.number)
PROJECT_COUNT: Final = select(func.count()).select_from(PROJECT)
PROJECT_INSERT: Final = _inserting(PROJECT)
PROJECT_UPDATE: Final = (
    update(PROJECT).values(tools_profile=bindparam("v_tools_profile")).where(_is(PROJECT, "project_id"))
)

# --- agents ----------------------------------------------------------------------------------------------------------

AGENT_BY_ID: Final = select(AGENT).where(_is(AGENT, "agent_id"))
AGENT_BY_KEY: Final = _page(select(AGENT).where(_is(AGENT, "name_key")), AGENT.c.agent_id)
AGENT_BY_KEY_IN_PROJECT: Final = _page(select(AGENT).where(_is(AGENT, "project_id", "name_key")), AGENT.c.agent_id)
_AGENT_NAMES = _after((AGENT.c.name_key, "after_key"), (AGENT.c.agent_id, "after_id"))
AGENT_PAGE: Final = _page(select(AGENT).where(_AGENT_NAMES), AGENT.c.name_key, AGENT.c.agent_id)
AGENT_PAGE_OF_PROJECT: Final = _page(
    select(AGENT).where(_is(AGENT, "project_id"), _AGENT_NAMES), AGENT.c.name_key, AGENT.c.agent_id
)
AGENT_AFTER_ID: Final = _page(select(AGENT).where(AGENT.c.agent_id > bindparam("after_id")), AGENT.c.agent_id)
AGENT_AFTER_REVISION: Final = _page(select(AGENT).where(AGENT.c.revision > bindparam("after")), AGENT.c.revision)
AGENT_COUNT: Final = select(func.count()).select_from(AGENT).where(_is(AGENT, "project_id"))
AGENT_INSERT: Final = _inserting(AGENT)
AGENT_OF_CONVERSATION: Final = select(AGENT).where(
    # As the index has it: only what is not empty is there.
    _is(AGENT, "conversation_id"),
    AGENT.c.conversation_id != literal_column("''"),
)
_AGENT_CHANGES = (
    "name",
    "name_key",
    "role",
    "provider",
    "workspace",
    "generation",
    "revision",
    "state",
    "desired",
    "launch",
    "conversation_id",
)
AGENT_UPDATE: Final = (
    update(AGENT)
    .values({column: bindparam(f"v_{column}") for column in _AGENT_CHANGES})
    # The decision rested on this revision of the agent: any other row means that somebody wrote in between.
    .where(_is(AGENT, "agent_id", "revision"))
)

AGENT_DELETE: Final = delete(AGENT).where(_is(AGENT, "agent_id", "revision"))

# --- tombstones ------------------------------------------------------------------------------------------------------

TOMBSTONE_BY_ID: Final = select(TOMBSTONE).where(_is(TOMBSTONE, "agent_id"))
TOMBSTONE_INSERT: Final = _inserting(TOMBSTONE)
TOMBSTONE_AFTER_REVISION: Final = _page(
    select(TOMBSTONE).where(TOMBSTONE.c.revision > bindparam("after")), TOMBSTONE.c.revision
)

# --- released names --------------------------------------------------------------------------------------------------

RELEASED_BY_KEY: Final = select(RELEASED).where(_is(RELEASED, "project_id", "name_key"))
RELEASED_INSERT: Final = _inserting(RELEASED)
RELEASED_DELETE: Final = delete(RELEASED).where(_is(RELEASED, "project_id", "name_key"))
RELEASED_EXPIRE: Final = delete(RELEASED).where(RELEASED.c.released_at_ms <= bindparam("until"))
RELEASED_RESTART: Final = (
    update(RELEASED).values(released_at_ms=bindparam("v_now")).where(RELEASED.c.released_at_ms > bindparam("w_now"))
)

# --- credentials -----------------------------------------------------------------------------------------------------

CREDENTIAL_BY_ID: Final = select(CREDENTIAL).where(_is(CREDENTIAL, "credential_id"))
CREDENTIAL_BY_TOKEN: Final = select(CREDENTIAL).where(_is(CREDENTIAL, "token_sha256"))
CREDENTIAL_OF_AGENT: Final = (
    select(CREDENTIAL)
    .where(_is(CREDENTIAL, "agent_id"))
    .order_by(CREDENTIAL.c.generation, CREDENTIAL.c.appeared_revision, CREDENTIAL.c.credential_id)
)
CREDENTIAL_OF_HOME: Final = (
    select(CREDENTIAL)
    .where(CREDENTIAL.c.agent_id.is_(None), _is(CREDENTIAL, "role", "label"))
    .order_by(CREDENTIAL.c.appeared_revision, CREDENTIAL.c.credential_id)
)
_CREDENTIAL_ORDER = (CREDENTIAL.c.appeared_revision, CREDENTIAL.c.credential_id)
_CREDENTIAL_AGE = _after((CREDENTIAL.c.appeared_revision, "after_number"), (CREDENTIAL.c.credential_id, "after_id"))
CREDENTIAL_PAGE: Final = _page(select(CREDENTIAL).where(_CREDENTIAL_AGE), *_CREDENTIAL_ORDER)
CREDENTIAL_PAGE_OF_AGENT: Final = _page(
    select(CREDENTIAL).where(_is(CREDENTIAL, "agent_id"), _CREDENTIAL_AGE), *_CREDENTIAL_ORDER
)
CREDENTIAL_AFTER_ID: Final = _page(
    select(CREDENTIAL).where(CREDENTIAL.c.credential_id > bindparam("after_id")), CREDENTIAL.c.credential_id
)
CREDENTIAL_AFTER_REVISION: Final = _page(
    select(CREDENTIAL).where(CREDENTIAL.c.revision > bindparam("after")), CREDENTIAL.c.revision
)
CREDENTIAL_INSERT: Final = _inserting(CREDENTIAL)
CREDENTIAL_FOLLOW_ROLE: Final = (
    update(CREDENTIAL)
    .values(role=bindparam("v_role"), revision=bindparam("v_revision"))
    .where(_is(CREDENTIAL, "agent_id"))
)
CREDENTIAL_DELETE: Final = delete(CREDENTIAL).where(_is(CREDENTIAL, "credential_id"))

# --- removals --------------------------------------------------------------------------------------------------------

REMOVAL_BY_ID: Final = select(REMOVAL).where(_is(REMOVAL, "credential_id"))
REMOVAL_AFTER_REVISION: Final = _page(
    select(REMOVAL).where(REMOVAL.c.revision > bindparam("after")), REMOVAL.c.revision
)
REMOVAL_INSERT: Final = _inserting(REMOVAL)
# The youngest removal that is one too many.
REMOVAL_SURPLUS: Final = (
    select(REMOVAL.c.revision).order_by(REMOVAL.c.revision.desc()).limit(1).offset(bindparam("kept"))
)
REMOVAL_FORGET: Final = delete(REMOVAL).where(REMOVAL.c.revision <= bindparam("until"))

# --- leases ----------------------------------------------------------------------------------------------------------

LEASE_BY_AGENT: Final = select(LEASE).where(_is(LEASE, "agent_id"))
LEASE_BY_ACQUISITION: Final = select(LEASE).where(_is(LEASE, "acquisition_id"))
LEASE_OF_CONVERSATION: Final = select(LEASE).where(_is(LEASE, "conversation_id", "ended"))
LEASE_STANDING: Final = _page(
    select(LEASE).where(_is(LEASE, "ended"), LEASE.c.expires_at_ms > bindparam("now")),
    LEASE.c.acquired_at_ms,
    LEASE.c.acquisition_id,
)
LEASE_INSERT: Final = _inserting(LEASE)
_LEASE_CHANGES = [column.name for column in LEASE.columns if column.name != "agent_id"]
LEASE_UPDATE: Final = (
    update(LEASE)
    .values({column: bindparam(f"v_{column}") for column in _LEASE_CHANGES})
    .where(_is(LEASE, "agent_id", "acquisition_id", "expires_at_ms", "ended"))
)
LEASE_EXPIRE: Final = (
    update(LEASE)
    .values(ended=bindparam("v_ended"))
    .where(_is(LEASE, "ended"), LEASE.c.expires_at_ms <= bindparam("until"))
)
LEASE_RESTART: Final = (
    update(LEASE).values(expires_at_ms=LEASE.c.term_ms + bindparam("now", type_=Integer)).where(_is(LEASE, "ended"))
)
LEASE_DELETE: Final = delete(LEASE).where(_is(LEASE, "agent_id"))

# --- what was observed -----------------------------------------------------------------------------------------------

STATUS_BY_AGENT: Final = select(STATUS).where(_is(STATUS, "agent_id"))
STATUS_INSERT: Final = _inserting(STATUS)
_STATUS_CHANGES = [column.name for column in STATUS.columns if column.name != "agent_id"]
STATUS_UPDATE: Final = (
    update(STATUS)
    .values({column: bindparam(f"v_{column}") for column in _STATUS_CHANGES})
    .where(_is(STATUS, "agent_id", "generation", "sequence"))
)
STATUS_DELETE: Final = delete(STATUS).where(_is(STATUS, "agent_id"))
# The agents of a page again, each with its report and its lease: nulls where there is none.
_OBSERVED = (
    select(*STATUS.columns, *(column.label(f"lease_{column.name}") for column in LEASE.columns))
    .select_from(AGENT)
    .outerjoin(STATUS, STATUS.c.agent_id == AGENT.c.agent_id)
    .outerjoin(LEASE, LEASE.c.agent_id == AGENT.c.agent_id)
)
OBSERVED_PAGE: Final = _page(_OBSERVED.where(_AGENT_NAMES), AGENT.c.name_key, AGENT.c.agent_id)
OBSERVED_PAGE_OF_PROJECT: Final = _page(
    _OBSERVED.where(_is(AGENT, "project_id"), _AGENT_NAMES), AGENT.c.name_key, AGENT.c.agent_id
)

# --- idempotency keys ------------------------------------------------------------------------------------------------

IDEMPOTENCY_BY_KEY: Final = select(IDEMPOTENCY.c.content_sha256, IDEMPOTENCY.c.answer).where(
    _is(IDEMPOTENCY, "scope", "operation", "key")
)
IDEMPOTENCY_INSERT: Final = _inserting(IDEMPOTENCY)
IDEMPOTENCY_OLD: Final = _page(
    select(IDEMPOTENCY.c.scope, IDEMPOTENCY.c.operation, IDEMPOTENCY.c.key).where(
        IDEMPOTENCY.c.created_at_ms < bindparam("before")
    ),
    IDEMPOTENCY.c.created_at_ms,
)
IDEMPOTENCY_DELETE: Final = delete(IDEMPOTENCY).where(_is(IDEMPOTENCY, "scope", "operation", "key"))
