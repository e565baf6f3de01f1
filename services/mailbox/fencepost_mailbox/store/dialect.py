"""How statements and rows are compiled to the text that the driver runs. Read when SQL is generated, and by tests."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Delete, Integer, Select, Update, bindparam, insert, literal_column
from sqlalchemy.dialects import sqlite as sqlite_dialect
from sqlalchemy.sql import ColumnElement

_SQLITE: Final = sqlite_dialect.dialect(paramstyle="named")
_POSITIONAL: Final = sqlite_dialect.dialect(paramstyle="qmark")


def sqlite(statement: Select[Any] | Update | Delete) -> str:
    """Return a statement as the text of the sqlite3 driver, with named parameters."""
    return str(statement.compile(dialect=_SQLITE))


def const(value: int) -> ColumnElement[int]:
    """Return a constant of the domain as a part of the text.

    Only so can the planner use an index with the same condition.
    """
    return literal_column(str(int(value)), Integer)


def whole_row(table: Any, *, else_rollback: bool = False) -> str:
    """Return an INSERT of a whole row, bound by position in the order of the table's columns.

    The driver looks up each named parameter on its own: by position a record costs a third less. `else_rollback`: a
    conflict ends the whole transaction, so that SQLite need not be able to undo a statement of many rows alone.
    """
    statement = insert(table).values({c.name: bindparam(c.name) for c in table.columns})
    if else_rollback:
        statement = statement.prefix_with("OR ROLLBACK", dialect="sqlite")
    compiled = statement.compile(dialect=_POSITIONAL)
    assert compiled.positiontup == [column.name for column in table.columns], "columns in the order of the table"
    return str(compiled)


def upsert(table: Any) -> str:
    """Return an INSERT of a whole row by name that replaces the row with the same key."""
    keys = [column.name for column in table.primary_key.columns]
    statement = sqlite_dialect.insert(table).values({column.name: bindparam(column.name) for column in table.columns})
    others = {column.name: statement.excluded[column.name] for column in table.columns if column.name not in keys}
    return str(statement.on_conflict_do_update(index_elements=keys, set_=others).compile(dialect=_SQLITE))


def insert_or_keep(table: Any) -> str:
    """Return an INSERT of a whole row by name that leaves a row with the same key as it is."""
    keys = [column.name for column in table.primary_key.columns]
    statement = sqlite_dialect.insert(table).values({column.name: bindparam(column.name) for column in table.columns})
    return str(statement.on_conflict_do_nothing(index_elements=keys).compile(dialect=_SQLITE))
