"""The stores that the bench makes, and the size of a message in one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fencepost_bench import population
from fencepost_bench.clocked import RING_COMMITS, Commits
from fencepost_bench.disk import BODY_BYTES, StoreAlone
from fencepost_bench.sizes import MESSAGE_BYTES, REST_BYTES

from fencepost_kit.ids import IdMint, uuid_bytes, uuid_text
from fencepost_mailbox.domain.values import Inbox
from fencepost_mailbox.store.sqlite import SqliteQueries

MESSAGES = 2_000
BATCH = 100
RECORDS = 1_000


@pytest.mark.requirement("bench.a-short-message-takes-a-kibibyte-at-rest")
def test_a_message_of_300_bytes_takes_at_most_a_kibibyte_at_rest(tmp_path: Path) -> None:
    path = tmp_path / "mailbox.db"
    StoreAlone(path).close()
    empty = path.stat().st_size
    store = StoreAlone(path)
    for _ in range(MESSAGES // BATCH):
        store.commit(store.operations(BATCH))
    store.close()
    assert BODY_BYTES == MESSAGE_BYTES
    assert not path.with_name("mailbox.db-wal").exists()
    assert (path.stat().st_size - empty) / MESSAGES <= REST_BYTES


def filled(path: Path) -> dict[str, str]:
    """Fill a store and return its recipients by name."""
    mint = IdMint()
    names = ["unread", *(f"reader-{number}" for number in range(7))]
    agents = {name: uuid_text(mint.new()) for name in names}
    population.fill(
        str(path),
        RECORDS,
        project=uuid_text(mint.new()),
        senders=[uuid_text(mint.new()) for _ in range(4)],
        unread=agents["unread"],
        read=[agents[name] for name in names[1:]],
    )
    return agents


def test_a_filled_store_holds_one_unread_inbox_and_read_ones_of_like_size(tmp_path: Path) -> None:
    path = tmp_path / "mailbox.db"
    agents = filled(path)
    assert population.restore(str(path), RECORDS) == RECORDS
    store = StoreAlone(path)
    try:
        queries = SqliteQueries(store.writer._cursor)
        unread = queries.page(uuid_bytes(agents.pop("unread")), (Inbox.FRESH,), 0, RECORDS)
        assert len(unread) == RECORDS // population.UNREAD_PART
        assert not any(record.exposed for record in unread)
        inboxes = [queries.page(uuid_bytes(agent), (Inbox.SEEN,), 0, RECORDS) for agent in agents.values()]
        assert sum(len(records) for records in inboxes) == RECORDS - len(unread)
        assert min(len(records) for records in inboxes) > RECORDS // 20
        one = inboxes[0][0]
        assert one.acknowledged
        assert one.exposed
        assert [fact.sequence for fact in queries.facts(one.record_id, 10)] == [one.sequence + 1, one.sequence + 2]
        assert not queries.threads.lag(), "its words count as taken in"
        # The next number follows everything that stands.
        assert queries.newest_sequence() >= 3 * (RECORDS - 1)
    finally:
        store.close()


def test_what_a_run_has_sent_is_taken_out_of_a_filled_store_again(tmp_path: Path) -> None:
    def standing() -> dict[str, Any]:
        with closing(sqlite3.connect(path)) as connection:
            tables = ("record", "idempotency", "fact", "reader", "record_words_state", "record_words_docsize")
            return {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in tables}

    path = tmp_path / "mailbox.db"
    filled(path)
    before = standing()
    for _ in range(2):
        store = StoreAlone(path)
        store.commit(store.operations(3))
        store.close()
        assert len(standing()["record"]) == RECORDS + 3
        assert population.restore(str(path), RECORDS) == RECORDS
        assert standing() == before


def test_pages_of_a_filled_store_are_whole_and_old_ones_were_read(tmp_path: Path) -> None:
    path = tmp_path / "mailbox.db"
    pages = population.pages(str(path), filled(path), limit=50, unread="unread")
    assert [name for name, _ in pages["tail"]] == ["unread", *(f"reader-{number}" for number in range(7))]
    assert "unread" not in {name for name, _ in pages["old"]}
    assert all(cursor.startswith("cur_") for found in pages.values() for _, cursor in found)


def test_a_reader_of_the_clock_sees_the_commits_that_followed_and_at_most_a_ring_of_them(tmp_path: Path) -> None:
    written = Commits(tmp_path / "commits", create=True)
    read = Commits(tmp_path / "commits")
    written.add(1, 2)
    count = read.count
    written.add(3, 4)
    assert read.since(count) == [(3, 4)]
    for number in range(RING_COMMITS):
        written.add(number, number)
    assert len(read.since(0)) == RING_COMMITS
    assert read.since(0)[-1] == (RING_COMMITS - 1, RING_COMMITS - 1)
