"""The table of file reservations as SQLModel declares it."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from sqlalchemy import Index, text
from sqlmodel import Field, SQLModel

from fencepost_mailbox.store.tables import table

BOUND: Final = "attempt_id IS NOT NULL"


class FileReservationRow(SQLModel, table=True):
    """One path or glob that an agent holds."""

    __tablename__: ClassVar[str] = "file_reservation"
    __table_args__: ClassVar[tuple[Any, ...]] = (
        Index("file_reservation_folder", "project_id", "leading", "reservation_id", "place"),
        Index("file_reservation_holder", "holder", "reservation_id", "place"),
        Index("file_reservation_attempt", "attempt_id", sqlite_where=text(BOUND), postgresql_where=text(BOUND)),
        Index("file_reservation_expiry", "expires_at_ms"),
        {"sqlite_with_rowid": False},
    )

    reservation_id: bytes = Field(primary_key=True)
    place: int = Field(primary_key=True)
    project_id: bytes
    leading: str
    holder: bytes
    generation: int
    attempt_id: bytes | None
    mode: int
    checkout: str
    ignore_case: int
    glob: int
    path: str
    reserved_at_ms: int
    expires_at_ms: int
    reason: str


RESERVATION = table(FileReservationRow)
TABLES = (RESERVATION,)
