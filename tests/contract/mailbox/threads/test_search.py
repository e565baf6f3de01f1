"""The search of words: what is found, by whom, how the index follows the records, and how it forgets."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost_kit.sqlite import load_migrations, statements_of
from fencepost_mailbox.domain.refusals import InvalidCursor, InvalidLimit, InvalidQuery
from fencepost_mailbox.domain.threads.indexing import (
    CLEAR,
    INDEXED_BYTES_MAX,
    INDEXED_RECORDS_MAX,
    QUIET_NUMBERS_MAX,
    TO_CLEAR,
)
from fencepost_mailbox.domain.threads.words import Term, terms_of
from fencepost_mailbox.domain.values import BODY_BYTES_MAX, LISTING_RECORDS_MAX
from fencepost_mailbox.store.threads import sqlite_statements as sql
from fencepost_mailbox.store.threads.sqlite import expression_of
from fencepost_mailbox.usecases.threads.index import Clearing, Indexing
from fencepost_testing.mailboxes import OTHER_PROJECT, PROJECT
from fencepost_testing.task_desk import OPERATOR
from fencepost_testing.thread_desk import ThreadDesk


def index_bytes(path: Path) -> bytes:
    """Everything that stands in the index, as the database keeps it."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return b"".join(block for (block,) in connection.execute("SELECT block FROM record_words_data"))


@pytest.mark.requirement("search.finds-words")
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("cafe", {"C"}),
        ("CAFÉ au", {"C"}),
        ('"au lait"', {"C"}),
        ('"lait au"', set()),
        ("migr*", {"M"}),
        ("migr", set()),
        ("schema migration", {"M"}),
        ("plan", {"S"}),
        ("plan migration", set()),
        ("NOT migration", set()),
        ("sub:ject", set()),
        ("who", set()),
        ("日本語", {"J"}),
        ("本語", {"J"}),
        ("語本", set()),
        ("テスト", {"J"}),
        ("テス*", {"J"}),
        ("か", set()),
        ("v2", {"J"}),
        ("ไทย", {"T"}),
        ("한국", {"K"}),
        ("국어", {"K"}),
        ("العربية", {"A"}),
        ("العَرَبِيَّة", {"A"}),
        ("strasse file", {"L"}),
        ("STRASSE", {"L"}),
    ],
)
async def test_words_phrases_and_beginnings_are_found_whatever_case_and_accents(
    desk: ThreadDesk, query: str, found: set[str]
) -> None:
    bodies = {"C": "un café au lait", "M": "the migration of the schema", "S": "body"}
    # Scripts without spaces, with endings, with points; letters that stand for several.
    bodies |= {
        "J": "今日は日本語のテストです。版本v2が",
        "T": "ภาษาไทยครับ",
        "K": "한국어입니다",
        "A": "اللغة العَرَبِيَّة",
        "L": "Straße ﬁle",
    }
    for name, body in bodies.items():
        await desk.say("ann", "bob", body, subject="Plan" if name == "S" else "")
    assert set(await desk.bodies("bob", query)) == {bodies[name] for name in found}


@pytest.mark.requirement("search.shows-only-what-one-may-see")
async def test_an_agent_finds_what_it_sent_or_was_sent_and_the_operator_finds_all_of_a_project(
    desk: ThreadDesk,
) -> None:
    for sender, to in (("ann", "bob"), ("bob", "ann"), ("bob", "dan")):
        await desk.send(sender, to, f"word {sender} {to}")
    assert await desk.bodies("ann", "word") == ["word bob ann", "word ann bob"]
    assert await desk.bodies("cyd", "word") == []
    assert await desk.bodies("dan", "word") == ["word bob dan"]
    assert len(await desk.bodies(OPERATOR, "word")) == 3
    assert len((await desk.searched(OPERATOR, "word", project_id=PROJECT)).records) == 3
    assert (await desk.searched(OPERATOR, "word", project_id=OTHER_PROJECT)).records == []


@pytest.mark.requirement("search.exposes-nothing")
async def test_a_search_exposes_and_acknowledges_nothing(desk: ThreadDesk) -> None:
    await desk.request("ann", "bob", "word")
    assert await desk.bodies("bob", "word") == ["word"]
    assert (await desk.taken("bob")).record.body == b"word"


@pytest.mark.requirement("search.pages-are-bounded")
async def test_what_is_found_comes_newest_first_page_by_page(desk: ThreadDesk) -> None:
    for number in range(7):
        await desk.send("ann", "bob", f"word {number}")
    read, token = [], ""
    while True:
        page = await desk.searched("bob", "word", size=3, token=token)
        read += [record.body.decode()[-1] for record, _ in page.records]
        if not (token := page.next_token):
            break
    assert "".join(read) == "6543210"
    for wrong in (-1, LISTING_RECORDS_MAX + 1):
        with pytest.raises(InvalidLimit):
            await desk.searched("bob", "word", size=wrong)
    with pytest.raises(InvalidCursor):
        await desk.searched("bob", "word", token="?")
    with pytest.raises(InvalidQuery):
        await desk.searched("bob", "...")


@pytest.mark.requirement("search.follows-the-records")
async def test_a_search_finds_what_was_committed_before_it_though_nothing_was_indexed(desk: ThreadDesk) -> None:
    await asyncio.gather(*(desk.send("ann", "bob", f"word n{number}") for number in range(INDEXED_RECORDS_MAX + 1)))
    assert desk.store.read.threads.lag()
    page = await desk.searched("bob", "n0")
    assert ([record.body for record, _ in page.records], page.complete) == ([b"word n0"], True)
    assert not desk.store.read.threads.lag()


@pytest.mark.requirement("search.follows-the-records")
async def test_a_chunk_of_the_index_is_bounded_by_records_and_by_bytes(desk: ThreadDesk) -> None:
    await asyncio.gather(*(desk.send("ann", "bob", f"n{number}") for number in range(INDEXED_RECORDS_MAX + 1)))
    assert await desk.store.submit(Indexing()) == INDEXED_RECORDS_MAX
    long = "word " * (BODY_BYTES_MAX // 5)
    for _ in range(4):
        await desk.send("ann", "bob", long)
    assert 2 * len(long) <= INDEXED_BYTES_MAX < 2 * len(long) + len("n200")
    assert [await desk.store.submit(Indexing()) for _ in range(4)] == [2, 2, 1, 0]


@pytest.mark.requirement("search.a-search-says-what-it-left-out")
async def test_a_search_behind_too_many_records_says_so_and_goes_on_the_next_time(
    desk: ThreadDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost_mailbox.usecases.threads.look.SEARCH_CHUNKS_MAX", 1)
    await asyncio.gather(*(desk.send("ann", "bob", f"word n{number}") for number in range(INDEXED_RECORDS_MAX + 1)))
    newest = f"n{INDEXED_RECORDS_MAX}"
    page = await desk.searched("bob", newest)
    assert (page.records, page.complete) == ([], False)
    page = await desk.searched("bob", newest)
    assert (len(page.records), page.complete) == (1, True)


@pytest.mark.requirement("search.follows-the-records")
async def test_the_sweep_indexes_while_little_is_sent_and_waits_while_much_is(desk: ThreadDesk) -> None:
    sweeper = desk.sweeper()
    await asyncio.gather(*(desk.send("ann", "bob", "word") for _ in range(QUIET_NUMBERS_MAX + 1)))
    await desk.swept(sweeper)
    assert desk.store.read.threads.lag(), "whoever sends goes first"
    await desk.send("ann", "bob", "word")
    await desk.swept(sweeper)
    assert not desk.store.read.threads.lag()
    await desk.swept(sweeper)


@pytest.mark.requirement("search.follows-the-records")
async def test_the_index_goes_on_behind_a_restart_and_holds_every_record_once(desk: ThreadDesk) -> None:
    await desk.send("ann", "bob", "word 1")
    await desk.store.submit(Indexing())
    await desk.send("ann", "bob", "word 2")
    await desk.restart()
    assert await desk.bodies("bob", "word") == ["word 2", "word 1"]
    assert len(await desk.bodies(OPERATOR, "word")) == 2


@pytest.mark.requirement("search.forgets-what-is-erased")
@pytest.mark.parametrize("indexed", [True, False])
async def test_what_a_deleted_agent_was_sent_is_found_no_more_and_leaves_no_word_in_the_index(
    desk: ThreadDesk, place: Path, *, indexed: bool
) -> None:
    await desk.say("ann", "bob", "word zebra", subject="quagga")
    await desk.send("bob", "ann", "word okapi")
    if indexed:
        assert len(await desk.bodies(OPERATOR, "word")) == 2
        assert b"zebra" in index_bytes(place)
        assert b"quagga" in index_bytes(place)
    await desk.delete("bob")
    while not await desk.erase("bob"):
        pass
    assert (desk.store.read.threads.clearing() == TO_CLEAR) is indexed
    assert await desk.bodies(OPERATOR, "word") == ["word okapi"], "what it sent to others is theirs"
    await desk.swept(desk.sweeper())
    assert desk.store.read.threads.clearing() == CLEAR
    kept = index_bytes(place)
    assert (b"zebra" in kept, b"quagga" in kept, b"okapi" in kept) == (False, False, True)
    assert await desk.bodies(OPERATOR, "word") == ["word okapi"]


@pytest.mark.requirement("search.forgets-what-is-erased")
async def test_clearing_goes_on_piece_by_piece_and_begins_anew_when_more_is_erased(
    desk: ThreadDesk, place: Path
) -> None:
    for number in range(30):
        await desk.send("ann", "bob", f"zebra{number} " * 200)
        await desk.send("bob", "ann", f"okapi{number} " * 200)
        await desk.store.submit(Indexing())
    await desk.delete("bob")
    while not await desk.erase("bob", rows=7):
        await desk.store.submit(Clearing())
    pieces = 1
    while not await desk.store.submit(Clearing()):
        pieces += 1
        assert pieces < 100
    assert b"zebra" not in index_bytes(place)
    assert len(await desk.bodies("ann", "okapi*")) == 30
    assert await desk.store.submit(Clearing())


@pytest.fixture(scope="module")
def words() -> sqlite3.Connection:
    """The index alone, filled by each example and emptied by its end."""
    connection = sqlite3.connect(":memory:")
    for migration in load_migrations("fencepost_mailbox.store.migrations"):
        for statement in statements_of(migration.script):
            connection.execute(statement)
    return connection


LETTERS = st.sampled_from("ab")
WORDS = st.lists(st.text(LETTERS, min_size=1, max_size=3), min_size=1, max_size=8)


@pytest.mark.requirement("search.finds-words")
@settings(max_examples=150, deadline=None)
@given(texts=st.lists(WORDS, max_size=5), asked=st.lists(st.tuples(WORDS, st.booleans()), min_size=1, max_size=3))
def test_what_is_found_is_what_a_simple_reading_of_the_words_finds(
    words: sqlite3.Connection, texts: list[list[str]], asked: list[tuple[list[str], bool]]
) -> None:
    terms = [Term(text=" ".join(some), beginning=beginning) for some, beginning in asked]

    def stands(text: list[str], term: Term) -> bool:
        want = term.text.split()
        for start in range(len(text) - len(want) + 1):
            piece = text[start : start + len(want)]
            last = piece[-1].startswith(want[-1]) if term.beginning else piece[-1] == want[-1]
            if piece[:-1] == want[:-1] and last:
                return True
        return False

    words.execute("SAVEPOINT example")
    for number, text in enumerate(texts, 1):
        words.execute(sql.INSERT_WORDS, (number, "", " ".join(text), "p0"))
    expression = expression_of(terms, agent=None, project_id=None)
    found = words.execute(sql.FOUND, {"expression": expression, "before": 2**62, "limit": 100}).fetchall()
    words.execute("ROLLBACK TO example")
    assert {number for (number,) in found} == {
        number for number, text in enumerate(texts, 1) if all(stands(text, term) for term in terms)
    }


@pytest.mark.requirement("search.no-query-reaches-the-database")
@settings(max_examples=300, deadline=None)
@given(query=st.text(st.characters(codec="utf-8") | st.sampled_from('"*():{}^+-NEAR'), max_size=60))
def test_no_query_of_a_caller_is_anything_but_words_to_the_database(words: sqlite3.Connection, query: str) -> None:
    with contextlib.suppress(InvalidQuery):
        terms = terms_of(query)
        expression = expression_of(terms, agent=b"a" * 16, project_id=b"p" * 16)
        assert words.execute(sql.FOUND, {"expression": expression, "before": 1, "limit": 1}).fetchall() == []
