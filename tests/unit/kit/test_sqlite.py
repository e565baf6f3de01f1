"""A database that this program must not touch stays as it is, byte for byte."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from fencepost_kit.sqlite import Migration, SchemaTooNew, SqliteDatabase

ONE = (Migration(number=1, name="first", script="CREATE TABLE one (a INTEGER);\n"),)


@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.requirement("kit.a-newer-database-is-not-touched")
def test_a_newer_database_is_refused_and_not_written_whatever_its_journal(tmp_path: Path, journal: str) -> None:
    path = tmp_path / "x.db"
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode = {journal}")
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    before = path.read_bytes()
    database = SqliteDatabase(path, migrations=ONE)
    with pytest.raises(SchemaTooNew) as refused:
        database.open()
    assert path.read_bytes() == before
    assert refused.value.state == {"schema": "2", "known": "1"}


def test_a_refused_database_is_not_held(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    refused = SqliteDatabase(path, migrations=ONE)
    with pytest.raises(SchemaTooNew):
        refused.open()
    second = SqliteDatabase(path, migrations=(*ONE, Migration(number=2, name="second", script="SELECT 1;\n")))
    second.open()
    second.close()
