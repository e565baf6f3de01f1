"""The tables as SQLModel declares them; tests/unit/mailbox hold them equal to what the migrations build."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from sqlalchemy import Index, Integer, Table, text
from sqlmodel import Field, SQLModel

# Shown, or carried into the conversation (visible, accepted), and not acknowledged.
SHOWN: Final = "acknowledged = 0 AND (exposed = 1 OR delivery IN (9, 4))"
# Requests that an agent works on now: shown to it, or taken by its provider, and not answered.
WORKED_ON: Final = "answer = 1 AND kind = 2 AND delivery IN (2, 4)"
# Wake-ups that are not over.
WAKES: Final = "answer = 1 AND kind = 6"
WAKED: Final = "kind = 6"
UNPUBLISHED: Final = "state = 2 AND publishes = 1"
UNSETTLED: Final = "state IN (1, 4)"
_WITHOUT_ROWID: dict[str, Any] = {"sqlite_with_rowid": False}


class MetaRow(SQLModel, table=True):
    """A fact about this store."""

    __tablename__: ClassVar[str] = "meta"
    __table_args__: ClassVar[dict[str, Any]] = _WITHOUT_ROWID

    key: str = Field(primary_key=True)
    value: bytes


class RecordRow(SQLModel, table=True):
    """A record, and with its sequence the fact of its admission."""

    __tablename__: ClassVar[str] = "record"
    __table_args__: ClassVar[tuple[Any, ...]] = (
        Index("record_by_id", "record_id", unique=True),
        Index("record_inbox", "recipient", "inbox", "position"),
        Index("record_sent", "sender", "sequence"),
        Index(
            "record_pending",
            "recipient",
            "position",
            sqlite_where=text("answer = 1 AND delivery = 1"),
            postgresql_where=text("answer = 1 AND delivery = 1"),
        ),
        Index(
            "record_owed",
            "recipient",
            "position",
            sqlite_where=text("answer = 1 AND delivery <> 1"),
            postgresql_where=text("answer = 1 AND delivery <> 1"),
        ),
        Index(
            "record_open", "recipient", "position", sqlite_where=text("answer = 1"), postgresql_where=text("answer = 1")
        ),
        Index("record_hops", "recipient", "hops", sqlite_where=text(WORKED_ON), postgresql_where=text(WORKED_ON)),
        Index("record_wake", "recipient", sqlite_where=text(WAKES), postgresql_where=text(WAKES)),
        Index("record_waked", "recipient", "admitted_at_ms", sqlite_where=text(WAKED), postgresql_where=text(WAKED)),
        Index("record_shown", "recipient", "position", sqlite_where=text(SHOWN), postgresql_where=text(SHOWN)),
        Index(
            "record_parent",
            "parent_id",
            sqlite_where=text("parent_id IS NOT NULL"),
            postgresql_where=text("parent_id IS NOT NULL"),
        ),
    )

    sequence: int = Field(primary_key=True, sa_type=Integer, sa_column_kwargs={"autoincrement": False})
    record_id: bytes
    kind: int
    project_id: bytes
    sender: bytes | None
    recipient: bytes
    parent_id: bytes | None
    status: int
    origin: int
    completion: int
    admitted_at_ms: int
    delivery: int
    answer: int
    exposed: int
    acknowledged: int
    inbox: int
    position: int
    claim_token: bytes | None
    claim_generation: int
    releases: int
    body: bytes
    # Behind the body because they came later.
    hops: int
    attributed: int


class IdempotencyRow(SQLModel, table=True):
    """What a caller's key stands for."""

    __tablename__: ClassVar[str] = "idempotency"
    __table_args__: ClassVar[dict[str, Any]] = _WITHOUT_ROWID

    caller: bytes = Field(primary_key=True)
    operation: int = Field(primary_key=True)
    key: bytes = Field(primary_key=True)
    fingerprint: bytes
    record_id: bytes | None
    created_at_ms: int


class FactRow(SQLModel, table=True):
    """Something that became true of a record after its admission."""

    __tablename__: ClassVar[str] = "fact"
    __table_args__: ClassVar[tuple[Any, ...]] = (Index("fact_of_record", "record_id", "sequence"),)

    sequence: int = Field(primary_key=True, sa_type=Integer, sa_column_kwargs={"autoincrement": False})
    record_id: bytes
    fact: int
    at_ms: int
    generation: int
    evidence: str


class ClaimRow(SQLModel, table=True):
    """Who carries, or carried, a record."""

    __tablename__: ClassVar[str] = "claim"
    __table_args__: ClassVar[tuple[Any, ...]] = (
        Index("claim_held_recipient", "recipient", sqlite_where=text("state = 1"), postgresql_where=text("state = 1")),
        Index(
            "claim_held_dispatcher", "dispatcher", sqlite_where=text("state = 1"), postgresql_where=text("state = 1")
        ),
        Index("claim_of_record", "record_id"),
        Index("claim_held_expiry", "expires_at_ms", sqlite_where=text("state = 1"), postgresql_where=text("state = 1")),
        _WITHOUT_ROWID,
    )

    token: bytes = Field(primary_key=True)
    record_id: bytes
    recipient: bytes
    dispatcher: bytes
    incarnation: int
    generation: int
    taken_at_ms: int
    term_ms: int
    expires_at_ms: int
    state: int


class BindingRow(SQLModel, table=True):
    """The exact turn that took a piece of work."""

    __tablename__: ClassVar[str] = "binding"
    __table_args__: ClassVar[tuple[Any, ...]] = (
        Index("binding_by_token", "token", unique=True),
        Index(
            "binding_unsettled",
            "dispatcher",
            "sequence",
            sqlite_where=text(UNSETTLED),
            postgresql_where=text(UNSETTLED),
        ),
        Index("binding_bound", "recipient", sqlite_where=text("state = 1"), postgresql_where=text("state = 1")),
        Index(
            "binding_unpublished",
            "requester",
            "sequence",
            sqlite_where=text(UNPUBLISHED),
            postgresql_where=text(UNPUBLISHED),
        ),
    )

    sequence: int = Field(primary_key=True, sa_type=Integer, sa_column_kwargs={"autoincrement": False})
    token: bytes
    record_id: bytes
    recipient: bytes
    requester: bytes | None
    dispatcher: bytes
    generation: int
    provider: str
    session_id: str
    turn_id: str
    mode: int
    state: int
    publishes: int
    outcome: int
    final_bytes: int
    final_digest: bytes
    evidence: str
    reply_id: bytes | None
    final: bytes


class DispatcherRow(SQLModel, table=True):
    """The newest start of a dispatcher."""

    __tablename__: ClassVar[str] = "dispatcher"
    __table_args__: ClassVar[dict[str, Any]] = _WITHOUT_ROWID

    dispatcher: bytes = Field(primary_key=True)
    incarnation: int


class FloorRow(SQLModel, table=True):
    """The lowest generation of an agent that still gets new authority."""

    __tablename__: ClassVar[str] = "generation_floor"
    __table_args__: ClassVar[dict[str, Any]] = _WITHOUT_ROWID

    agent_id: bytes = Field(primary_key=True)
    generation: int


class ReaderRow(SQLModel, table=True):
    """When an agent last read its mailbox."""

    __tablename__: ClassVar[str] = "reader"
    __table_args__: ClassVar[dict[str, Any]] = _WITHOUT_ROWID

    agent_id: bytes = Field(primary_key=True)
    last_read_at_ms: int


class TombstoneRow(SQLModel, table=True):
    """What is left of a deleted agent."""

    __tablename__: ClassVar[str] = "tombstone"
    __table_args__: ClassVar[tuple[Any, ...]] = (
        Index("tombstone_unfinished", "agent_id", sqlite_where=text("phase < 3"), postgresql_where=text("phase < 3")),
        Index("tombstone_sequence", "sequence"),
        _WITHOUT_ROWID,
    )

    agent_id: bytes = Field(primary_key=True)
    project_id: bytes
    phase: int
    closed_at_ms: int
    sequence: int


class DirectoryAgentRow(SQLModel, table=True):
    """An agent in the mirror of sessions' directory."""

    __tablename__: ClassVar[str] = "directory_agent"
    __table_args__: ClassVar[dict[str, Any]] = _WITHOUT_ROWID

    agent_id: bytes = Field(primary_key=True)
    project_id: bytes
    name: str
    role: int
    provider: str
    generation: int
    revision: int
    desired: int


class DirectoryCredentialRow(SQLModel, table=True):
    """A credential in the mirror of sessions' directory."""

    __tablename__: ClassVar[str] = "directory_credential"
    __table_args__: ClassVar[dict[str, Any]] = _WITHOUT_ROWID

    credential_id: bytes = Field(primary_key=True)
    token_sha256: bytes
    agent_id: bytes | None
    project_id: bytes | None
    role: int
    generation: int
    label: str
    revision: int


def table(row: type[SQLModel]) -> Table:
    """Return the Core table of a row class."""
    found = row.__table__  # type: ignore[attr-defined]
    assert isinstance(found, Table)
    return found


META = table(MetaRow)
RECORD = table(RecordRow)
IDEMPOTENCY = table(IdempotencyRow)
FACT = table(FactRow)
CLAIM = table(ClaimRow)
BINDING = table(BindingRow)
DISPATCHER = table(DispatcherRow)
FLOOR = table(FloorRow)
READER = table(ReaderRow)
TOMBSTONE = table(TombstoneRow)
DIRECTORY_AGENT = table(DirectoryAgentRow)
DIRECTORY_CREDENTIAL = table(DirectoryCredentialRow)
TABLES = (
    META,
    RECORD,
    IDEMPOTENCY,
    FACT,
    CLAIM,
    BINDING,
    DISPATCHER,
    FLOOR,
    READER,
    TOMBSTONE,
    DIRECTORY_AGENT,
    DIRECTORY_CREDENTIAL,
)
