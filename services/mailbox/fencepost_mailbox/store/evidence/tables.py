"""The table of evidence as SQLModel declares it."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import Index
from sqlmodel import Field, SQLModel

from fencepost_mailbox.store.tables import table


class EvidenceRow(SQLModel, table=True):
    """One piece of evidence."""

    __tablename__: ClassVar[str] = "evidence"
    __table_args__: ClassVar[tuple[Any, ...]] = (Index("evidence_of_task", "task_id", "evidence_id"),)

    evidence_id: bytes = Field(primary_key=True)
    task_id: bytes
    reporter: bytes | None
    attempt_id: bytes | None
    reported_at_ms: int
    kind: int
    verdict: int
    verified_at_ms: int
    verified_for: bytes | None
    checkout: str
    detail: str
    descriptor: str
    note: str


EVIDENCE = table(EvidenceRow)
TABLES = (EVIDENCE,)
