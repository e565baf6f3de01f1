"""The migrations make exactly the tables that the code declares; newer and foreign files are left untouched."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from fencepost_kit.refusal import Refusal
from fencepost_kit.sqlite import load_migrations, statements_of
from fencepost_sessions.domain.agents import AgentState
from fencepost_sessions.domain.launch import NO_LAUNCH, Desired
from fencepost_sessions.store.sqlite import _STATEMENTS, MIGRATIONS_PACKAGE, SqliteStore
from fencepost_sessions.store.tables import Table

# Of one agent, or of one kind of the home: a few rows, sorted when they are read.
SORTED_IN_MEMORY = {"CREDENTIAL_OF_AGENT", "CREDENTIAL_OF_HOME", "CREDENTIAL_PAGE_OF_AGENT"}


def schema_of(connection: sqlite3.Connection) -> dict[str, str]:
    """Name and text of everything in a database, white space and quotes put aside."""
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return {name: re.sub(r"\s*([(),])\s*", r"\1", " ".join(sql.split())).replace('"', "") for name, sql in rows}


def facts_of(connection: sqlite3.Connection) -> dict[str, list[object]]:
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {
        table: [
            connection.execute(f"PRAGMA table_xinfo({table})").fetchall(),
            connection.execute(f"PRAGMA foreign_key_list({table})").fetchall(),
            sorted(
                (unique, origin, partial, [column for *_, column in connection.execute(f"PRAGMA index_info({name})")])
                for _, name, unique, origin, partial in connection.execute(f"PRAGMA index_list({table})")
            ),
        ]
        for table in tables
    }


def migrated() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    for migration in load_migrations(MIGRATIONS_PACKAGE):
        for statement in statements_of(migration.script):
            connection.execute(statement)
    return connection


def store_at(path: Path) -> SqliteStore:
    return SqliteStore(path, new_epoch=bytes(16), on_commit=lambda: None, on_fatal=lambda _error: None)


@pytest.mark.requirement("sessions.migrations-and-tables-agree")
def test_migrations_and_declared_tables_are_the_same_schema(tmp_path: Path) -> None:
    path = tmp_path / "declared.db"
    engine = create_engine(f"sqlite:///{path}")
    Table.metadata.create_all(engine)
    engine.dispose()
    declared, built = sqlite3.connect(path), migrated()
    try:
        assert schema_of(built) == schema_of(declared)
        assert facts_of(built) == facts_of(declared)
    finally:
        declared.close()
        built.close()


def test_no_read_of_a_call_walks_a_whole_table() -> None:
    connection = migrated()
    # Counting and listing walk the rows that they answer; DIRECTORY has one row.
    allowed = {"DIRECTORY_READ", "DIRECTORY_ADVANCE", "DIRECTORY_RAISE_FLOOR", "PROJECT_COUNT"}
    try:
        for name, statement in _STATEMENTS.items():
            if name in allowed or name.endswith(("_INSERT", "_CREATE")):
                continue
            parameters = dict.fromkeys(re.findall(r":(\w+)", statement), 1)
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
            scans = [line for line in plan if line.startswith("SCAN") and "USING" not in line]
            sorts = [
                line
                for line in plan
                if "TEMP B-TREE" in line
                and name not in {"CREDENTIAL_OF_AGENT", "CREDENTIAL_OF_HOME", "CREDENTIAL_PAGE_OF_AGENT"}
            ]
            assert not scans, f"{name}: {plan}"
            assert not sorts, f"{name}: {plan}"
    finally:
        connection.close()


@pytest.mark.requirement("sessions.unusable-databases-are-left-alone")
async def test_a_database_of_a_newer_version_is_refused_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(Refusal) as refused:
        await store_at(path).start()
    assert refused.value.reason == "schema_too_new"
    assert path.read_bytes() == before


@pytest.mark.requirement("sessions.unusable-databases-are-left-alone")
async def test_a_database_that_another_process_holds_is_refused(tmp_path: Path) -> None:
    first = store_at(tmp_path / "sessions.db")
    await first.start()
    try:
        with pytest.raises(Refusal) as refused:
            await store_at(tmp_path / "sessions.db").start()
        assert refused.value.reason == "database_in_use"
    finally:
        await first.close()


async def test_a_file_that_is_no_database_is_refused_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    path.write_bytes(b"not a database" * 1000)
    before = path.read_bytes()
    with pytest.raises(Refusal) as refused:
        await store_at(path).start()
    assert refused.value.reason == "database_unusable"
    assert path.read_bytes() == before


async def test_a_closed_store_refuses_to_be_read(tmp_path: Path) -> None:
    store = store_at(tmp_path / "sessions.db")
    with pytest.raises(Refusal) as refused:
        store.read(lambda reading: reading.directory())
    assert refused.value.reason == "storage_error"


@pytest.mark.requirement("sessions.migrations-and-tables-agree")
async def test_agents_of_a_database_from_before_are_active_and_live_by_themselves(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    connection = sqlite3.connect(path)
    for statement in statements_of(load_migrations(MIGRATIONS_PACKAGE)[0].script):
        connection.execute(statement)
    connection.execute("INSERT INTO directory VALUES (1, ?, 7, 0)", (bytes(16),))
    connection.execute("INSERT INTO project VALUES (1, ?, 2, '/w', 'w', 1)", (b"p" * 16,))
    connection.execute("INSERT INTO agent VALUES (?, ?, 'ann', 'ann', 1, '', '', 3, 1, 7)", (b"a" * 16, b"p" * 16))
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()
    path.chmod(0o600)
    store = store_at(path)
    await store.start()
    try:
        assert store.schema_version == len(load_migrations(MIGRATIONS_PACKAGE))
        agent = store.read(lambda reading: reading.agent(b"a" * 16))
        assert agent is not None
        assert (agent.name, agent.generation, agent.state) == ("ann", 3, AgentState.ACTIVE)
        assert (agent.desired, agent.launch, agent.conversation_id) == (Desired.UNSPECIFIED, NO_LAUNCH, "")
        assert store.read(lambda reading: (reading.lease(b"a" * 16), reading.status(b"a" * 16))) == (None, None)
    finally:
        await store.close()
