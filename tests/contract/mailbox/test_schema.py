"""The embedded store's schema: what migrations build is what is declared, and every statement finds an index."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator

import pytest
from sqlalchemy import Table
from sqlalchemy.dialects import sqlite as dialect
from sqlalchemy.schema import CreateIndex

from fencepost_kit.sqlite import load_migrations, statements_of
from fencepost_mailbox.domain.bindings import BindingState
from fencepost_mailbox.domain.claims import ClaimState
from fencepost_mailbox.domain.tasks.values import EXECUTING as HOLDING
from fencepost_mailbox.domain.tasks.values import Phase
from fencepost_mailbox.domain.values import Answer, Delivery, Kind
from fencepost_mailbox.store import sqlite_statements
from fencepost_mailbox.store.context import sqlite_statements as context_statements
from fencepost_mailbox.store.context.tables import TABLES as CONTEXT_TABLES
from fencepost_mailbox.store.evidence.tables import TABLES as EVIDENCE_TABLES
from fencepost_mailbox.store.files import sqlite_statements as file_statements
from fencepost_mailbox.store.files.tables import TABLES as FILE_TABLES
from fencepost_mailbox.store.sqlite import FLOORS_CACHED_MAX
from fencepost_mailbox.store.tables import BINDING, CLAIM, FACT, IDEMPOTENCY, RECORD, SHOWN, WORKED_ON
from fencepost_mailbox.store.tables import TABLES as RECORD_TABLES
from fencepost_mailbox.store.tasks import sqlite_statements as task_statements
from fencepost_mailbox.store.tasks.tables import DUE, EXECUTING, QUEUED
from fencepost_mailbox.store.tasks.tables import TABLES as TASK_TABLES
from fencepost_mailbox.store.threads import sqlite_statements as thread_statements
from fencepost_mailbox.store.threads.tables import TABLES as THREAD_TABLES
from fencepost_mailbox.store.threads.tables import WORDS_TABLES

PACKAGE = "fencepost_mailbox.store.migrations"
TABLES = (*RECORD_TABLES, *TASK_TABLES, *CONTEXT_TABLES, *EVIDENCE_TABLES, *FILE_TABLES, *THREAD_TABLES)


@pytest.fixture
def schema() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    for migration in load_migrations(PACKAGE):
        for statement in statements_of(migration.script):
            connection.execute(statement)
    yield connection
    connection.close()


def words(text: str) -> str:
    return " ".join(text.replace('"', "").replace("(", " ( ").replace(")", " ) ").split()).lower()


def index_sql(connection: sqlite3.Connection, table: str) -> dict[str, str]:
    rows = connection.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL", (table,)
    )
    return {name: words(sql) for name, sql in rows}


@pytest.mark.requirement("mailbox.the-schema-is-what-is-declared")
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_table_that_migrations_build_is_the_declared_one(schema: sqlite3.Connection, table: Table) -> None:
    found = schema.execute(f"PRAGMA table_xinfo({table.name})").fetchall()
    declared = [
        (column.name, column.type.compile(dialect.dialect()), not column.nullable, column.primary_key)
        for column in table.columns
    ]
    assert [(name, kind, bool(filled), bool(key)) for _, name, kind, filled, _, key, _ in found] == declared
    assert [name for _, name, *_, key, _ in sorted(found, key=lambda row: row[5]) if key] == [
        column.name for column in table.primary_key.columns
    ], "the key has its columns in the declared order"
    (without_rowid,) = schema.execute("SELECT wr FROM pragma_table_list WHERE name = ?", (table.name,)).fetchone()
    assert bool(without_rowid) is (table.dialect_options["sqlite"]["with_rowid"] is False)
    wanted = {
        str(index.name): words(str(CreateIndex(index).compile(dialect=dialect.dialect()))) for index in table.indexes
    }
    assert index_sql(schema, table.name) == wanted


@pytest.mark.requirement("mailbox.the-schema-is-what-is-declared")
def test_migrations_build_the_declared_tables_and_no_others(schema: sqlite3.Connection) -> None:
    built = {name for (name,) in schema.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert built == {table.name for table in TABLES} | WORDS_TABLES
    others = schema.execute("SELECT name FROM sqlite_schema WHERE type IN ('trigger', 'view')").fetchall()
    assert others == []


def test_the_numbers_in_conditions_of_indexes_are_those_of_the_domain() -> None:
    conditions = {
        str(index.name): str(index.dialect_options["sqlite"]["where"])
        for table in (RECORD, CLAIM, FACT, IDEMPOTENCY, BINDING)
        for index in table.indexes
        if index.dialect_options["sqlite"]["where"] is not None
    }
    assert conditions["record_open"] == f"answer = {Answer.OPEN:d}"
    assert conditions["claim_held_expiry"] == f"state = {ClaimState.HELD:d}"
    assert conditions["record_shown"] == SHOWN
    assert f"phase = {Phase.QUEUED:d}" == QUEUED
    assert f"phase IN ({', '.join(str(int(phase)) for phase in sorted(HOLDING))})" == EXECUTING
    assert DUE == "due_ms IS NOT NULL"
    assert conditions["record_hops"] == WORKED_ON
    assert f"delivery IN ({Delivery.RECEIVER:d}, {Delivery.ACCEPTED:d})" in WORKED_ON
    assert f"kind = {Kind.REQUEST:d}" in WORKED_ON
    assert f"state = {BindingState.OUTCOME_RECORDED:d}" in conditions["binding_unpublished"]
    assert conditions["binding_bound"] == f"state = {BindingState.BOUND:d}"
    assert conditions["binding_unsettled"] == f"state IN ({BindingState.BOUND:d}, {BindingState.UNCERTAIN:d})"
    assert f"delivery IN ({Delivery.VISIBLE:d}, {Delivery.ACCEPTED:d})" in SHOWN


def test_migrations_are_numbered_without_gaps_and_split_into_whole_statements() -> None:
    migrations = load_migrations(PACKAGE)
    assert [migration.number for migration in migrations] == list(range(1, len(migrations) + 1))
    for migration in migrations:
        assert all(sqlite3.complete_statement(statement) for statement in statements_of(migration.script))
    with pytest.raises(ValueError, match="middle"):
        statements_of("CREATE TABLE t (a);\nCREATE TABLE")


# Statements that walk a whole table or index, each with the reason that this is right.
WALKS = {
    "NEWEST_RECORD": "the first step of the walk from the newest end",
    "NEWEST_FACT": "the first step of the walk from the newest end",
    "NEWEST_TOMBSTONE": "the first step of the walk from the newest end",
    "ACCEPTED_BY_DISPATCHER": "the partial index holds open requests only, of which there are few",
    "EXTEND_HELD": "the partial index holds held claims only, and every one of them is meant",
    "ALL_AGENTS": "everything is meant, once a start",
    "ALL_CREDENTIALS": "everything is meant, once a start",
    "ALL_META": "everything is meant, once a start",
    "ALL_TOMBSTONES": "everything is meant, once a start",
    "OPEN_OF_SENDER": "the partial index holds open requests only, of which there are few",
    "UNPUBLISHED": "the partial index holds what a crash left unpublished, and every one of them is meant",
    "TASKS: NEWEST_EVENT": "the first step of the walk from the newest end",
    "THREADS: FOUND": "the walk of the full-text index that its words and numbers bound",
    "UNFINISHED_DELETIONS": "the partial index holds unfinished deletions only, and every one of them is meant",
}
STATEMENTS = {
    prefix + name: text
    for prefix, module in (
        ("", sqlite_statements),
        ("TASKS: ", task_statements),
        ("CONTEXT: ", context_statements),
        ("FILES: ", file_statements),
        ("THREADS: ", thread_statements),
    )
    for name, text in vars(module).items()
    if name.isupper()
}


def plan(connection: sqlite3.Connection, text: str) -> list[str]:
    names = set(re.findall(r":([a-z_0-9]+)", text))
    values: dict[str, int] | tuple[int, ...] = dict.fromkeys(names, 1) if names else (1,) * text.count("?")
    return [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + text, values)]


@pytest.mark.requirement("mailbox.every-statement-finds-an-index")
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_searches_an_index_or_is_a_walk_with_a_reason(schema: sqlite3.Connection, name: str) -> None:
    steps = plan(schema, STATEMENTS[name])
    walks = [step for step in steps if step.startswith("SCAN")]
    assert bool(walks) == (name in WALKS), steps
    assert not [step for step in steps if "TEMP B-TREE" in step or "AUTOMATIC" in step], "nothing is sorted or built"


@pytest.mark.requirement("mailbox.every-statement-finds-an-index")
def test_the_walks_that_are_excused_use_the_index_that_excuses_them(schema: sqlite3.Connection) -> None:
    assert set(WALKS) <= set(STATEMENTS)
    assert plan(schema, STATEMENTS["ACCEPTED_BY_DISPATCHER"])[0] == "SCAN record USING INDEX record_open"
    assert plan(schema, STATEMENTS["OPEN_OF_SENDER"]) == ["SCAN record USING INDEX record_open"]
    assert plan(schema, STATEMENTS["UNFINISHED_DELETIONS"]) == ["SCAN tombstone USING INDEX tombstone_unfinished"]
    assert plan(schema, STATEMENTS["UNPUBLISHED"]) == ["SCAN binding USING INDEX binding_unpublished"]
    assert plan(schema, STATEMENTS["EXTEND_HELD"]) == ["SCAN claim USING INDEX claim_held_expiry"]
    for name in ("NEWEST_RECORD", "NEWEST_FACT", "NEWEST_TOMBSTONE", "TASKS: NEWEST_EVENT"):
        assert re.search(r"ORDER BY \w+\.sequence DESC\s+LIMIT 1", STATEMENTS[name])


@pytest.mark.requirement("mailbox.every-statement-finds-an-index")
@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("TASKS: TASK_BY_ID", "task_by_id (task_id=?)"),
        ("TASKS: EXECUTING_OF", "task_slot (assignee=?)"),
        ("TASKS: ALL_EXECUTING", "task_slot (assignee>?)"),
        ("TASKS: FIRST_QUEUED", "task_queue (assignee=?)"),
        ("TASKS: DUE", "USING INDEX task_due (due_ms"),
        ("TASKS: MOVE_TASK", "INTEGER PRIMARY KEY (rowid=?)"),
        ("TASKS: NOTIFICATIONS", "task_notification_order (agent=? AND sequence>?)"),
        ("TASKS: SUPERVISED", "supervision_order (agent=? AND sequence>?)"),
        ("TASKS: EVENTS", "task_event_of_task (task_id=? AND sequence>?)"),
        ("TASKS: DEPENDANTS", "task_dependant (prerequisite_id=?)"),
        ("FILES: AT_FOLDER", "file_reservation_folder (project_id=? AND leading=?)"),
        ("FILES: BELOW_FOLDER", "file_reservation_folder (project_id=? AND leading>? AND leading<?)"),
        ("FILES: HELD_BY", "file_reservation_holder (holder=?"),
        ("FILES: EXPIRED", "file_reservation_expiry (expires_at_ms<?)"),
        ("FILES: DROP_OF_ATTEMPT", "file_reservation_attempt (attempt_id=?)"),
        ("CONTEXT: VERSIONS", "(project_id=? AND key=? AND version<?)"),
        ("CONTEXT: MEMORY_NEWEST", "(project_id=?)"),
        ("CONTEXT: NEXT_UNPINNED_PROJECT", "INDEX context_unpinned (project_id>?)"),
        ("THREADS: BEGAN_THREAD", "record_by_id (record_id=?)"),
        ("THREADS: ANSWERED_FIRST", "record_parent (parent_id=? AND rowid>?)"),
        ("THREADS: NOT_INDEXED", "INTEGER PRIMARY KEY (rowid>?)"),
        ("FRESH_BEHIND", "COVERING INDEX record_inbox (recipient=? AND inbox=? AND position>?)"),
        ("RECORD_BY_ID", "record_by_id (record_id=?)"),
        ("PAGE", "record_inbox (recipient=? AND inbox=? AND position>?)"),
        ("HAS_FRESH", "COVERING INDEX record_inbox (recipient=? AND inbox=?)"),
        ("FRESH_POSITIONS", "COVERING INDEX record_inbox (recipient=? AND inbox=?)"),
        ("RECEIVED", "record_inbox (recipient=? AND inbox=? AND position<?)"),
        ("SENT", "record_sent (sender=? AND sequence<?)"),
        ("ACKNOWLEDGEABLE", "record_shown (recipient=? AND position<?)"),
        ("OLDEST_PENDING", "record_pending (recipient=?)"),
        ("OPEN_REQUESTS", "record_owed (recipient=?)"),
        ("REPLY_OF", "record_parent (parent_id=?)"),
        ("KEY", "PRIMARY KEY (caller=? AND operation=? AND key=?)"),
        ("MOVE_RECORD", "INTEGER PRIMARY KEY (rowid=?)"),
        ("MOST_HOPS", "INDEX record_hops (recipient=?)"),
        ("UNPUBLISHED_OF", "binding_unpublished (requester=?)"),
        ("HAS_UNPUBLISHED", "binding_unpublished (requester=?)"),
        ("BINDING_BY_TOKEN", "binding_by_token (token=?)"),
        ("BOUND_BY_RECIPIENT", "binding_bound (recipient=?)"),
        ("BOUND_BY_DISPATCHER", "binding_unsettled (dispatcher=?)"),
        ("HELD_EXPIRED", "claim_held_expiry (expires_at_ms<?)"),
    ],
)
def test_a_statement_of_the_hot_paths_uses_the_index_made_for_it(
    schema: sqlite3.Connection, name: str, index: str
) -> None:
    (step,) = plan(schema, STATEMENTS[name])
    assert index in step


def test_a_plan_does_not_change_once_the_tables_were_analysed(schema: sqlite3.Connection) -> None:
    before = {name: plan(schema, text) for name, text in STATEMENTS.items()}
    schema.executemany("INSERT INTO meta (key, value) VALUES (?, ?)", [(f"k{n}", b"v") for n in range(100)])
    schema.execute("ANALYZE")
    assert {name: plan(schema, text) for name, text in STATEMENTS.items()} == before


def test_what_is_remembered_of_floors_has_a_limit() -> None:
    assert 0 < FLOORS_CACHED_MAX <= 100_000
