"""What stands between a service's statements and the sqlite3 driver."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_kit.sqlite import Connection, Migration, SqliteDatabase, SqliteWriter, by_position

ONE = (Migration(number=1, name="first", script="CREATE TABLE one (a INTEGER, b TEXT);\n"),)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SqliteDatabase]:
    made = SqliteDatabase(tmp_path / "x.db", migrations=ONE)
    made.open()
    yield made
    made.close()


@pytest.fixture
def writer(database: SqliteDatabase) -> Iterator[SqliteWriter[sqlite3.Cursor]]:
    made = SqliteWriter(database.connect_writer(), lambda cursor: cursor)
    yield made
    made.close()


_names = st.sampled_from(("a", "b", "was_a", "a2", "key"))
_pieces = st.one_of(
    _names.map(lambda name: f":{name}"),
    st.sampled_from(("':a'", "'it''s :b'", "':'", "1", "'é'")),
)


@given(st.lists(_pieces, min_size=1, max_size=12))
def test_a_statement_means_by_position_what_it_means_by_name(pieces: list[str]) -> None:
    statement = f"SELECT {', '.join(pieces)}"
    values = {name: f"the {name}" for name in ("a", "b", "was_a", "a2", "key")}
    with (
        closing(sqlite3.connect(":memory:")) as plain,
        closing(sqlite3.connect(":memory:", factory=Connection)) as ours,
    ):
        assert ours.execute(statement, values).fetchall() == plain.execute(statement, values).fetchall()


def test_a_name_that_is_said_twice_is_bound_twice_and_quotes_are_left_alone() -> None:
    text, ordered = by_position("""UPDATE one SET a = :a, "b:c" = ':a' WHERE a = :was OR b = :a""")
    assert text == """UPDATE one SET a = ?, "b:c" = ':a' WHERE a = ? OR b = ?"""
    assert ordered({"was": 1, "a": 2, "besides": 3}) == (2, 1, 2)
    text, ordered = by_position("SELECT :only")
    assert (text, ordered({"only": 7})) == ("SELECT ?", (7,))


@given(st.lists(_pieces, min_size=1, max_size=12))
def test_no_parameter_has_a_name_that_a_driver_warns_of(pieces: list[str]) -> None:
    """Up to CPython 3.12.3 it warns of numbers too, at every value (gh-117995)."""
    text, _ = by_position(f"SELECT {', '.join(pieces)}")
    assert not re.search(r"\?\d|:\w", re.sub("'(?:[^']|'')*'", "", text))


def test_a_value_that_is_missing_is_named(database: SqliteDatabase) -> None:
    with closing(database.connect_reader()) as reader, pytest.raises(KeyError, match="b"):
        reader.execute("SELECT :a, :b", {"a": 1})


def test_many_rows_are_written_by_name_and_by_position(database: SqliteDatabase) -> None:
    with closing(database.connect_writer()) as connection:
        cursor = connection.cursor()
        cursor.executemany("INSERT INTO one (a, b) VALUES (:a, :b)", [{"b": "x", "a": 1}, {"a": 2, "b": "y"}])
        cursor.executemany("INSERT INTO one (a, b) VALUES (?, ?)", ((3, "z"),))
        cursor.executemany("INSERT INTO one (a, b) VALUES (?, ?)", [])
        assert connection.execute("SELECT a, b FROM one").fetchall() == [(1, "x"), (2, "y"), (3, "z")]


@pytest.mark.requirement("groupcommit.an-error-before-commit-is-not-written")
def test_no_transaction_begins_where_one_stands_and_none_is_committed_where_none_stands(
    writer: SqliteWriter[sqlite3.Cursor], database: SqliteDatabase
) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no transaction stands"):
        writer.commit()
    writer.begin().execute("INSERT INTO one VALUES (1, 'left standing')")
    with pytest.raises(sqlite3.OperationalError, match="stands already"):
        writer.begin()
    writer.rollback()
    writer.begin().execute("INSERT INTO one VALUES (2, 'committed')")
    writer.commit()
    with closing(database.connect_reader()) as reader:
        assert reader.execute("SELECT a FROM one").fetchall() == [(2,)]


@pytest.mark.requirement("groupcommit.a-refusal-is-its-callers-own")
def test_a_mark_tells_whether_anything_was_written_since(writer: SqliteWriter[sqlite3.Cursor]) -> None:
    cursor: Any = writer.begin()
    mark = writer.mark()
    cursor.execute("SELECT count(*) FROM one").fetchall()
    assert writer.take_back(mark)
    cursor.execute("INSERT INTO one VALUES (1, 'x')")
    assert not writer.take_back(mark)
    assert writer.take_back(writer.mark())
    writer.rollback()
