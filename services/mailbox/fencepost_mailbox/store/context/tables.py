"""The tables of shared context and project memory as SQLModel declares them."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from sqlalchemy import Index, text
from sqlmodel import Field, SQLModel

from fencepost_mailbox.store.tables import table

UNPINNED: Final = "pinned = 0"
_WITHOUT_ROWID: dict[str, Any] = {"sqlite_with_rowid": False}


class ContextRow(SQLModel, table=True):
    """A key of a project."""

    __tablename__: ClassVar[str] = "context"
    __table_args__: ClassVar[tuple[Any, ...]] = (
        Index("context_unpinned", "project_id", "key", sqlite_where=text(UNPINNED), postgresql_where=text(UNPINNED)),
        _WITHOUT_ROWID,
    )

    project_id: bytes = Field(primary_key=True)
    key: str = Field(primary_key=True)
    newest: int
    pinned: int
    published_at_ms: int


class ContextVersionRow(SQLModel, table=True):
    """One version of a context. With a rowid: long rows would make a poor tree of keys."""

    __tablename__: ClassVar[str] = "context_version"

    project_id: bytes = Field(primary_key=True)
    key: str = Field(primary_key=True)
    version: int = Field(primary_key=True)
    publisher: bytes | None
    published_at_ms: int
    content_bytes: int
    content: str


class ContextReferenceRow(SQLModel, table=True):
    """A version that a task refers to."""

    __tablename__: ClassVar[str] = "context_reference"
    __table_args__: ClassVar[dict[str, Any]] = _WITHOUT_ROWID

    project_id: bytes = Field(primary_key=True)
    key: str = Field(primary_key=True)
    version: int = Field(primary_key=True)
    task_id: bytes = Field(primary_key=True)


class ProjectMemoryRow(SQLModel, table=True):
    """One version of what a project remembers."""

    __tablename__: ClassVar[str] = "project_memory"

    project_id: bytes = Field(primary_key=True)
    version: int = Field(primary_key=True)
    author: bytes | None
    updated_at_ms: int
    content_bytes: int
    content: str


class ProjectActivityRow(SQLModel, table=True):
    """When an agent of a project last called."""

    __tablename__: ClassVar[str] = "project_activity"
    __table_args__: ClassVar[dict[str, Any]] = _WITHOUT_ROWID

    project_id: bytes = Field(primary_key=True)
    active_at_ms: int


CONTEXT = table(ContextRow)
VERSION = table(ContextVersionRow)
REFERENCE = table(ContextReferenceRow)
MEMORY = table(ProjectMemoryRow)
ACTIVITY = table(ProjectActivityRow)
TABLES = (CONTEXT, VERSION, REFERENCE, MEMORY, ACTIVITY)
