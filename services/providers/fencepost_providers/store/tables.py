"""The tables. migrations/ make them; a test holds the two together. Times are Unix milliseconds, ids are texts."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Integer, LargeBinary, Text
from sqlalchemy.orm import registry
from sqlmodel import Field, SQLModel


def _number(name: str, *, key: bool = False) -> Column[int]:
    return Column(name, Integer, primary_key=key, autoincrement=False, nullable=False)


def _text(name: str, *, key: bool = False) -> Column[str]:
    return Column(name, Text, primary_key=key, nullable=False)


class Table(SQLModel, registry=registry()):
    """Base of this service's tables: they share no metadata with another service's."""


class DispatcherRow(Table, table=True):
    """Who this dispatcher is."""

    __tablename__ = "dispatcher"
    __table_args__ = (CheckConstraint("id = 1"), CheckConstraint("length(dispatcher_id) = 16"))

    id: int = Field(sa_column=_number("id", key=True))
    dispatcher_id: bytes = Field(sa_column=Column("dispatcher_id", LargeBinary, nullable=False))
    incarnation: int = Field(sa_column=_number("incarnation"))


class CarriedRow(Table, table=True):
    """A claim on its way."""

    __tablename__ = "carried"
    __table_args__ = {"sqlite_with_rowid": False}

    token: str = Field(sa_column=_text("token", key=True))
    agent_id: str = Field(sa_column=_text("agent_id"))
    record_id: str = Field(sa_column=_text("record_id"))
    generation: int = Field(sa_column=_number("generation"))
    written_at_ms: int = Field(sa_column=_number("written_at_ms"))
    answer: int = Field(sa_column=_number("answer"))
    evidence: str = Field(sa_column=_text("evidence"))
    provider: str = Field(sa_column=_text("provider"))
    conversation_id: str = Field(sa_column=_text("conversation_id"))
    turn_id: str = Field(sa_column=_text("turn_id"))
    mode: int = Field(sa_column=_number("mode"))


class OutcomeRow(Table, table=True):
    """How a turn ended."""

    __tablename__ = "outcome"

    token: str = Field(sa_column=_text("token", key=True))
    agent_id: str = Field(sa_column=_text("agent_id"))
    record_id: str = Field(sa_column=_text("record_id"))
    generation: int = Field(sa_column=_number("generation"))
    written_at_ms: int = Field(sa_column=_number("written_at_ms"))
    provider: str = Field(sa_column=_text("provider"))
    conversation_id: str = Field(sa_column=_text("conversation_id"))
    turn_id: str = Field(sa_column=_text("turn_id"))
    mode: int = Field(sa_column=_number("mode"))
    status: int = Field(sa_column=_number("status"))
    evidence: str = Field(sa_column=_text("evidence"))
    final_bytes: int = Field(sa_column=_number("final_bytes"))
    final_text: str = Field(sa_column=_text("final_text"))


class LifeRow(Table, table=True):
    """A life that runs."""

    __tablename__ = "life"
    __table_args__ = {"sqlite_with_rowid": False}

    agent_id: str = Field(sa_column=_text("agent_id", key=True))
    acquisition_id: str = Field(sa_column=_text("acquisition_id"))
    generation: int = Field(sa_column=_number("generation"))
    pid: int = Field(sa_column=_number("pid"))
    pid_mark: str = Field(sa_column=_text("pid_mark"))


class IntegrationRow(Table, table=True):
    """A branch that is about to move."""

    __tablename__ = "integration"

    request_id: str = Field(sa_column=_text("request_id", key=True))
    task_id: str = Field(sa_column=_text("task_id"))
    coordinator_id: str = Field(sa_column=_text("coordinator_id"))
    commit_id: str = Field(sa_column=_text("commit_id"))
    checkout: str = Field(sa_column=_text("checkout"))
    branch: str = Field(sa_column=_text("branch"))
    old_id: str = Field(sa_column=_text("old_id"))
    new_id: str = Field(sa_column=_text("new_id"))
    written_at_ms: int = Field(sa_column=_number("written_at_ms"))
    note: str = Field(sa_column=_text("note"))
