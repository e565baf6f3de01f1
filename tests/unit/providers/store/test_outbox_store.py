"""The outbox on disk: what its methods promise, and that migrations, tables and statements agree."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from fencepost_kit.groupcommit import NotCommitted
from fencepost_kit.sqlite import copy_database, load_migrations, statements_of
from fencepost_providers.domain.carried import Answer, Carried, Outcome
from fencepost_providers.domain.integration import Intent
from fencepost_providers.domain.runtimes import Mode, TurnBinding, TurnStatus
from fencepost_providers.store import sqlite_statements
from fencepost_providers.store.protocol import LifeMark
from fencepost_providers.store.sqlite import MIGRATIONS_PACKAGE, InvariantBroken, SqliteStore
from fencepost_providers.store.tables import Table

TURN = TurnBinding(provider="fake", conversation_id="c", turn_id="t", mode=Mode.STEER)


@asynccontextmanager
async def a_store(path: Path, new_id: bytes = bytes(16)) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, new_id=new_id, on_fatal=lambda error: pytest.fail(repr(error)))
    await store.start()
    try:
        yield store
    finally:
        await store.close()


def an_intent(token: str = "t1", **facts: object) -> Carried:
    given = {"token": token, "agent_id": "a", "record_id": "ask_1", "generation": 2, "written_at_ms": 5}
    return Carried(**{**given, **facts})  # type: ignore[arg-type]


def an_outcome(token: str = "t1", **facts: object) -> Outcome:
    given = {
        "token": token,
        "agent_id": "a",
        "record_id": "ask_1",
        "generation": 2,
        "written_at_ms": 6,
        "binding": TURN,
        "status": TurnStatus.COMPLETED,
        "final_text": "words",
        "final_bytes": 5,
        "evidence": "turn_completed",
    }
    return Outcome(**{**given, **facts})  # type: ignore[arg-type]


def an_integration(request_id: str = "r1", **facts: object) -> Intent:
    given = {
        "request_id": request_id,
        "task_id": "task_1",
        "coordinator_id": "c",
        "commit_id": "1" * 40,
        "note": "words",
        "checkout": "/main",
        "branch": "refs/heads/main",
        "old_id": "0" * 40,
        "new_id": "2" * 40,
        "written_at_ms": 5,
    }
    return Intent(**{**given, **facts})  # type: ignore[arg-type]


@pytest.mark.requirement("providers.a-start-counts")
async def test_each_start_is_counted_before_anything_else_and_the_name_stays(tmp_path: Path) -> None:
    seen = []
    for number in range(3):
        async with a_store(tmp_path / "p.db", bytes([number]) * 16) as store:
            seen.append((store.dispatcher.dispatcher_id, store.dispatcher.incarnation))
    assert seen == [(bytes(16), 1), (bytes(16), 2), (bytes(16), 3)]


@pytest.mark.requirement("providers.what-was-meant-survives")
async def test_what_was_meant_and_what_came_of_it_survives_a_start(tmp_path: Path) -> None:
    async with a_store(tmp_path / "p.db") as store:
        await store.intend(an_intent("t1"))
        await store.intend(an_intent("t2", written_at_ms=4))
        assert await store.settle("t1", Answer.ACCEPTED, "accepted: x", TURN)
        await store.record([an_outcome("t1"), an_outcome("t3")])
        await store.begin_life(LifeMark(agent_id="a", acquisition_id="l", generation=2, pid=7, pid_mark="9"))
    async with a_store(tmp_path / "p.db") as store:
        second, first = store.carried()
        assert first == an_intent("t1", answer=Answer.ACCEPTED, evidence="accepted: x", binding=TURN)
        assert second == an_intent("t2", written_at_ms=4)
        assert store.outcomes() == [an_outcome("t1"), an_outcome("t3")]
        assert store.lives() == [LifeMark(agent_id="a", acquisition_id="l", generation=2, pid=7, pid_mark="9")]
        await store.forget_carried("t1", Answer.ACCEPTED)
        await store.forget_outcome("t1")
        await store.end_life("a")
        assert [one.token for one in store.carried()] == ["t2"]
        assert [one.token for one in store.outcomes()] == ["t3"]
        assert store.lives() == []


@pytest.mark.requirement("providers.what-was-meant-survives")
async def test_what_came_of_a_claim_is_written_once_and_never_without_an_intent(tmp_path: Path) -> None:
    async with a_store(tmp_path / "p.db") as store:
        await store.intend(an_intent())
        assert await store.settle("t1", Answer.UNCERTAIN, "x", None)
        assert not await store.settle("t1", Answer.ACCEPTED, "y", TURN)
        assert store.carried()[0].answer is Answer.UNCERTAIN
        await store.record([an_outcome()])
        await store.record([an_outcome(status=TurnStatus.LOST)])
        assert store.outcomes()[0].status is TurnStatus.COMPLETED
        await store.forget_carried("t1", Answer.ACCEPTED)
        assert len(store.carried()) == 1
        with pytest.raises(NotCommitted) as caught:
            await store.settle("nobody", Answer.ACCEPTED, "y", None)
        assert isinstance(caught.value.__cause__, InvariantBroken)


@pytest.mark.requirement("integration.a-kill-never-merges-twice-and-never-hides-a-merge")
async def test_a_branch_about_to_move_is_on_disk_until_it_is_forgotten(tmp_path: Path) -> None:
    async with a_store(tmp_path / "p.db") as store:
        await store.intend_integration(an_integration(new_id="3" * 40))
        await store.intend_integration(an_integration("r2", written_at_ms=4))
        await store.intend_integration(an_integration())
    async with a_store(tmp_path / "p.db") as store:
        assert store.integrations() == [an_integration("r2", written_at_ms=4), an_integration()]
        await store.forget_integration("r2")
        await store.forget_integration("r2")
        assert store.integrations() == [an_integration()]


@pytest.mark.requirement("providers.a-restored-copy-is-nobodys-intent")
async def test_a_restored_copy_gets_another_name_and_its_intents_are_nobodys(tmp_path: Path) -> None:
    async with a_store(tmp_path / "p.db") as store:
        await store.intend(an_intent())
        await store.record([an_outcome()])
        await store.begin_life(LifeMark(agent_id="a", acquisition_id="l", generation=2))
        await store.intend_integration(an_integration())
        copy_database(tmp_path / "p.db", tmp_path / "copy.db")
    async with a_store(tmp_path / "copy.db", bytes([9]) * 16) as store:
        assert (store.dispatcher.dispatcher_id, store.dispatcher.incarnation) == (bytes([9]) * 16, 1)
        assert (store.carried(), store.outcomes(), store.lives(), store.integrations()) == ([], [], [], [])
    async with a_store(tmp_path / "copy.db", bytes(16)) as store:
        assert (store.dispatcher.dispatcher_id, store.dispatcher.incarnation) == (bytes([9]) * 16, 2)


def migrated() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    for migration in load_migrations(MIGRATIONS_PACKAGE):
        for statement in statements_of(migration.script):
            connection.execute(statement)
    return connection


def columns(connection: sqlite3.Connection) -> dict[str, list[object]]:
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: connection.execute(f"PRAGMA table_xinfo({name})").fetchall() for name in sorted(names)}


@pytest.mark.requirement("providers.migrations-and-tables-agree")
def test_migrations_and_declared_tables_are_the_same_schema(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'declared.db'}")
    Table.metadata.create_all(engine)
    engine.dispose()
    declared = sqlite3.connect(tmp_path / "declared.db")
    made = migrated()
    assert columns(declared) == columns(made)
    declared.close()
    made.close()


@pytest.mark.requirement("providers.migrations-and-tables-agree")
def test_every_statement_can_be_prepared_on_the_migrated_schema() -> None:
    connection = migrated()
    for name, text in vars(sqlite_statements).items():
        if name.isupper() and isinstance(text, str):
            connection.execute(f"EXPLAIN {text}", dict.fromkeys(re.findall(r":(\w+)", text)))
    connection.close()
