"""The tables of attributes and words of records as SQLModel declares them."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from sqlalchemy import Index, Integer
from sqlmodel import Field, SQLModel

from fencepost_mailbox.store.tables import table


class RecordAttributesRow(SQLModel, table=True):
    """What a sender said of a record besides its text."""

    __tablename__: ClassVar[str] = "record_attributes"
    __table_args__: ClassVar[tuple[Any, ...]] = (Index("record_attributes_thread", "thread", "sequence"),)

    sequence: int = Field(primary_key=True, sa_type=Integer, sa_column_kwargs={"autoincrement": False})
    thread: bytes
    subject: str
    reply_to: bytes | None
    reply_to_kind: int | None
    task_id: bytes | None


class RecordWordsStateRow(SQLModel, table=True):
    """Up to which record the words are kept."""

    __tablename__: ClassVar[str] = "record_words_state"

    place: int = Field(primary_key=True, sa_type=Integer, sa_column_kwargs={"autoincrement": False})
    position: int
    clearing: int


ATTRIBUTES = table(RecordAttributesRow)
WORDS_STATE = table(RecordWordsStateRow)
TABLES = (ATTRIBUTES, WORDS_STATE)
# The index of words, and the tables that SQLite makes for it.
WORDS: Final = "record_words"
WORDS_TABLES: Final = frozenset({WORDS, *(f"{WORDS}_{part}" for part in ("data", "idx", "docsize", "config"))})
