"""A database that this program must not touch stays as it is, byte for byte."""

from __future__ import annotations

import sqlite3
import stat
import struct
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from fencepost_kit.sqlite import (
    COPIES_BEFORE_MIGRATION_MAX,
    COPIES_FOLDER,
    DatabaseUnusable,
    Migration,
    SchemaTooNew,
    SqliteDatabase,
    copy_database,
    read_one,
)

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


@pytest.mark.requirement("mailbox.acknowledged-survives-a-power-cut")
def test_a_database_whose_making_was_cut_short_is_made_anew(tmp_path: Path) -> None:
    made = tmp_path / "made.db"
    with closing(sqlite3.connect(made)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    path = tmp_path / "x.db"
    path.write_bytes(made.read_bytes())
    # The journal of a file that had no page before: taking it back leaves an empty file.
    magic, pages_before, sector_bytes, page_bytes = bytes.fromhex("d9d505f920a163d7"), 0, 512, 4096
    journal = struct.pack(">8s5I", magic, 0, 1, pages_before, sector_bytes, page_bytes)
    path.with_name("x.db-journal").write_bytes(journal.ljust(sector_bytes, bytes(1)))
    database = SqliteDatabase(path, migrations=ONE)
    database.open()
    with closing(database.connect_reader()) as reader:
        assert reader.execute("SELECT count(*) FROM one").fetchone() == (0,)
    database.close()


@pytest.mark.requirement("kit.a-newer-database-is-not-touched")
def test_a_newer_database_keeps_the_log_that_a_kill_left(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    killed = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "c.execute('PRAGMA journal_mode = WAL'); c.execute('CREATE TABLE t (a)'); c.execute('PRAGMA user_version = 2');"
        "os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", killed, str(path)], check=False, timeout=30)
    log = path.with_name("x.db-wal")
    before = path.read_bytes(), log.read_bytes()
    assert before[1], "what was committed stands in the log only"
    with pytest.raises(SchemaTooNew):
        SqliteDatabase(path, migrations=ONE).open()
    assert (path.read_bytes(), log.read_bytes()) == before


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


TWO = (*ONE, Migration(number=2, name="second", script="CREATE TABLE two (a INTEGER);\n"))


def copies(path: Path) -> list[Path]:
    return sorted((path.parent / COPIES_FOLDER).glob("*.db"))


def opened(path: Path, migrations: tuple[Migration, ...]) -> None:
    database = SqliteDatabase(path, migrations=migrations)
    database.open()
    database.close()


@pytest.mark.requirement("care.a-migration-keeps-what-was")
def test_a_database_is_copied_before_a_migration_and_only_then(tmp_path: Path) -> None:
    path = tmp_path / "s" / "x.db"
    opened(path, ONE)
    opened(path, ONE)
    assert copies(path) == []
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO one VALUES (7)")
        connection.commit()
    opened(path, TWO)
    (copy,) = copies(path)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert stat.S_IMODE(copy.parent.stat().st_mode) == 0o700
    assert (read_one(copy, "PRAGMA user_version"), read_one(copy, "SELECT a FROM one")) == (1, 7)
    assert read_one(path, "PRAGMA user_version") == 2


@pytest.mark.requirement("care.a-migration-keeps-what-was")
def test_only_the_newest_copies_before_migrations_are_kept(tmp_path: Path) -> None:
    path, known = tmp_path / "x.db", ONE
    opened(path, known)
    for number in range(2, COPIES_BEFORE_MIGRATION_MAX + 4):
        known = (*known, Migration(number=number, name="more", script="SELECT 1;\n"))
        opened(path, known)
    schemas = [read_one(copy, "PRAGMA user_version") for copy in copies(path)]
    newest = len(known) - 1
    assert schemas == list(range(newest - COPIES_BEFORE_MIGRATION_MAX + 1, newest + 1))


@pytest.mark.requirement("care.a-migration-keeps-what-was")
def test_a_database_that_cannot_be_copied_is_not_migrated(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    opened(path, ONE)
    (tmp_path / COPIES_FOLDER).write_text("in the way")
    with pytest.raises(DatabaseUnusable):
        opened(path, TWO)
    assert read_one(path, "PRAGMA user_version") == 1
    (tmp_path / COPIES_FOLDER).unlink()
    opened(path, TWO)


@pytest.mark.requirement("care.a-backup-is-one-moment-of-each-store")
def test_a_copy_never_replaces_a_file(tmp_path: Path) -> None:
    path, target = tmp_path / "x.db", tmp_path / "y.db"
    opened(path, ONE)
    target.write_text("mine")
    with pytest.raises(FileExistsError):
        copy_database(path, target)
    assert target.read_text() == "mine"


@pytest.mark.requirement("care.a-backup-is-one-moment-of-each-store")
def test_a_copy_of_what_is_no_database_is_not_left(tmp_path: Path) -> None:
    path, target = tmp_path / "x.db", tmp_path / "y.db"
    path.write_text("not a database, and long enough to be looked at as one" * 10)
    with pytest.raises(DatabaseUnusable):
        copy_database(path, target)
    assert not target.exists()
    assert path.read_text().startswith("not a database")
