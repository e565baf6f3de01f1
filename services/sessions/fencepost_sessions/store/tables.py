"""The tables. migrations/ make them; a test holds the two together.

Ids are 16-byte blobs, times Unix milliseconds. Every row of agent and credential carries the directory revision of
its last change.
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Integer, LargeBinary, Text, UniqueConstraint, text
from sqlalchemy.orm import registry
from sqlmodel import Field, SQLModel


class Table(SQLModel, registry=registry()):
    """Base of this service's tables: they share no metadata with another service's."""


class DirectoryRow(Table, table=True):
    """The one row that says which directory this is and how far it has come."""

    __tablename__ = "directory"
    __table_args__ = (CheckConstraint("id = 1"), CheckConstraint("length(epoch) = 16"))

    id: int = Field(sa_column=Column("id", Integer, primary_key=True, autoincrement=False))
    epoch: bytes = Field(sa_column=Column("epoch", LargeBinary, nullable=False))
    revision: int = Field(sa_column=Column("revision", Integer, nullable=False))
    floor: int = Field(sa_column=Column("floor", Integer, nullable=False))


class ProjectRow(Table, table=True):
    """A project."""

    __tablename__ = "project"
    __table_args__ = (UniqueConstraint("project_id"), UniqueConstraint("location"))

    number: int = Field(sa_column=Column("number", Integer, primary_key=True, autoincrement=False))
    project_id: bytes = Field(sa_column=Column("project_id", LargeBinary, nullable=False))
    kind: int = Field(sa_column=Column("kind", Integer, nullable=False))
    location: str = Field(sa_column=Column("location", Text, nullable=False))
    name: str = Field(sa_column=Column("name", Text, nullable=False))
    created_at_ms: int = Field(sa_column=Column("created_at_ms", Integer, nullable=False))
    tools_profile: str = Field(sa_column=Column("tools_profile", Text, nullable=False, server_default=text("''")))


class AgentRow(Table, table=True):
    """An agent."""

    __tablename__ = "agent"
    __table_args__ = (
        UniqueConstraint("project_id", "name_key"),
        Index("agent_name_key", "name_key", "agent_id"),
        Index("agent_revision", "revision"),
        # A conversation belongs to one agent at most.
        Index("agent_conversation", "conversation_id", unique=True, sqlite_where=text("conversation_id <> ''")),
        {"sqlite_with_rowid": False},
    )

    agent_id: bytes = Field(sa_column=Column("agent_id", LargeBinary, primary_key=True))
    project_id: bytes = Field(
        sa_column=Column("project_id", LargeBinary, ForeignKey("project.project_id"), nullable=False)
    )
    name: str = Field(sa_column=Column("name", Text, nullable=False))
    name_key: str = Field(sa_column=Column("name_key", Text, nullable=False))
    role: int = Field(sa_column=Column("role", Integer, nullable=False))
    provider: str = Field(sa_column=Column("provider", Text, nullable=False))
    workspace: str = Field(sa_column=Column("workspace", Text, nullable=False))
    generation: int = Field(sa_column=Column("generation", Integer, nullable=False))
    created_at_ms: int = Field(sa_column=Column("created_at_ms", Integer, nullable=False))
    revision: int = Field(sa_column=Column("revision", Integer, nullable=False))
    # Added by migrations, so the rows that stood then need a value.
    state: int = Field(sa_column=Column("state", Integer, nullable=False, server_default=text("1")))
    desired: int = Field(sa_column=Column("desired", Integer, nullable=False, server_default=text("0")))
    launch: str = Field(sa_column=Column("launch", Text, nullable=False, server_default=text("'{}'")))
    conversation_id: str = Field(sa_column=Column("conversation_id", Text, nullable=False, server_default=text("''")))


class LeaseRow(Table, table=True):
    """The last lease of an agent. It stays when it has ended, so that the next one's fence is greater."""

    __tablename__ = "lease"
    __table_args__ = (
        UniqueConstraint("acquisition_id"),
        Index("lease_order", "ended", "acquired_at_ms", "acquisition_id"),
        Index("lease_conversation", "conversation_id"),
        {"sqlite_with_rowid": False},
    )
    agent_id: bytes = Field(sa_column=Column("agent_id", LargeBinary, ForeignKey("agent.agent_id"), primary_key=True))
    acquisition_id: bytes = Field(sa_column=Column("acquisition_id", LargeBinary, nullable=False))
    conversation_id: str = Field(sa_column=Column("conversation_id", Text, nullable=False))
    kind: int = Field(sa_column=Column("kind", Integer, nullable=False))
    holder: str = Field(sa_column=Column("holder", Text, nullable=False))
    generation: int = Field(sa_column=Column("generation", Integer, nullable=False))
    fence: int = Field(sa_column=Column("fence", Integer, nullable=False))
    term_ms: int = Field(sa_column=Column("term_ms", Integer, nullable=False))
    expires_at_ms: int = Field(sa_column=Column("expires_at_ms", Integer, nullable=False))
    acquired_at_ms: int = Field(sa_column=Column("acquired_at_ms", Integer, nullable=False))
    ended: int = Field(sa_column=Column("ended", Integer, nullable=False))


class StatusRow(Table, table=True):
    """The last report of what was observed of an agent's runtime."""

    __tablename__ = "agent_status"
    __table_args__ = ({"sqlite_with_rowid": False},)
    agent_id: bytes = Field(sa_column=Column("agent_id", LargeBinary, ForeignKey("agent.agent_id"), primary_key=True))
    state: int = Field(sa_column=Column("state", Integer, nullable=False))
    evidence: int = Field(sa_column=Column("evidence", Integer, nullable=False))
    detail: str = Field(sa_column=Column("detail", Text, nullable=False))
    turn_id: str = Field(sa_column=Column("turn_id", Text, nullable=False))
    observed_at_ms: int = Field(sa_column=Column("observed_at_ms", Integer, nullable=False))
    generation: int = Field(sa_column=Column("generation", Integer, nullable=False))
    sequence: int = Field(sa_column=Column("sequence", Integer, nullable=False))
    acquisition_id: bytes = Field(sa_column=Column("acquisition_id", LargeBinary, nullable=False))


class AgentTombstoneRow(Table, table=True):
    """What is left of a deleted agent, kept for ever so that its UUID is never reused."""

    __tablename__ = "agent_tombstone"
    __table_args__ = (Index("agent_tombstone_revision", "revision"), {"sqlite_with_rowid": False})

    agent_id: bytes = Field(sa_column=Column("agent_id", LargeBinary, primary_key=True))
    project_id: bytes = Field(sa_column=Column("project_id", LargeBinary, nullable=False))
    deleted_at_ms: int = Field(sa_column=Column("deleted_at_ms", Integer, nullable=False))
    revision: int = Field(sa_column=Column("revision", Integer, nullable=False))


class ReleasedNameRow(Table, table=True):
    """A name that an agent gave up, for as long as nobody else may take it."""

    __tablename__ = "released_name"
    __table_args__ = (Index("released_name_time", "released_at_ms"), {"sqlite_with_rowid": False})

    project_id: bytes = Field(sa_column=Column("project_id", LargeBinary, primary_key=True))
    name_key: str = Field(sa_column=Column("name_key", Text, primary_key=True))
    agent_id: bytes = Field(sa_column=Column("agent_id", LargeBinary, nullable=False))
    released_at_ms: int = Field(sa_column=Column("released_at_ms", Integer, nullable=False))


class CredentialRow(Table, table=True):
    """A credential: the SHA-256 of a token and what it stands for."""

    __tablename__ = "credential"
    __table_args__ = (
        CheckConstraint("length(token_sha256) = 32"),
        UniqueConstraint("token_sha256"),
        Index("credential_agent", "agent_id"),
        Index("credential_appeared", "appeared_revision", "credential_id"),
        Index("credential_revision", "revision"),
        {"sqlite_with_rowid": False},
    )

    credential_id: bytes = Field(sa_column=Column("credential_id", LargeBinary, primary_key=True))
    agent_id: bytes | None = Field(sa_column=Column("agent_id", LargeBinary, ForeignKey("agent.agent_id")))
    project_id: bytes | None = Field(sa_column=Column("project_id", LargeBinary))
    role: int = Field(sa_column=Column("role", Integer, nullable=False))
    generation: int = Field(sa_column=Column("generation", Integer, nullable=False))
    token_sha256: bytes = Field(sa_column=Column("token_sha256", LargeBinary, nullable=False))
    created_at_ms: int = Field(sa_column=Column("created_at_ms", Integer, nullable=False))
    appeared_revision: int = Field(sa_column=Column("appeared_revision", Integer, nullable=False))
    revision: int = Field(sa_column=Column("revision", Integer, nullable=False))
    label: str = Field(sa_column=Column("label", Text, nullable=False))


class RemovalRow(Table, table=True):
    """A credential that is gone, kept so that followers get the removal as a change."""

    __tablename__ = "credential_removal"
    __table_args__ = (Index("credential_removal_revision", "revision"), {"sqlite_with_rowid": False})

    credential_id: bytes = Field(sa_column=Column("credential_id", LargeBinary, primary_key=True))
    revision: int = Field(sa_column=Column("revision", Integer, nullable=False))


class IdempotencyRow(Table, table=True):
    """The first answer to a key of a caller and an operation."""

    __tablename__ = "idempotency"
    __table_args__ = (Index("idempotency_time", "created_at_ms"), {"sqlite_with_rowid": False})

    scope: bytes = Field(sa_column=Column("scope", LargeBinary, primary_key=True))
    operation: str = Field(sa_column=Column("operation", Text, primary_key=True))
    key: str = Field(sa_column=Column("key", Text, primary_key=True))
    content_sha256: bytes = Field(sa_column=Column("content_sha256", LargeBinary, nullable=False))
    answer: str = Field(sa_column=Column("answer", Text, nullable=False))
    created_at_ms: int = Field(sa_column=Column("created_at_ms", Integer, nullable=False))
