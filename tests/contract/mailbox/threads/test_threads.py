"""Subjects and threads: what belongs together, who sees which part of it, and that a plain message pays nothing."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from fencepost_mailbox.domain.refusals import (
    IdempotencyConflict,
    InvalidAttributes,
    InvalidCursor,
    InvalidLimit,
    NotFound,
)
from fencepost_mailbox.domain.tasks.needs import task_id_text
from fencepost_mailbox.domain.values import LISTING_RECORDS_MAX, SUBJECT_BYTES_MAX, Kind
from fencepost_testing.task_desk import OPERATOR
from fencepost_testing.thread_desk import ThreadDesk, id_of, thread_of


def rows(path: Path, table: str) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


@pytest.mark.requirement("threads.what-is-not-given-costs-nothing")
async def test_a_plain_message_has_no_row_beside_it(desk: ThreadDesk, place: Path) -> None:
    await desk.send("ann", "bob")
    nothing_said = await desk.say("ann", "bob")
    await desk.reply("bob", await desk.request("ann", "bob"))
    assert nothing_said.attributes is None
    assert rows(place, "record_attributes") == 0
    assert [record.attributes for record in await desk.shown_all("bob")] == [None, None]


@pytest.mark.requirement("threads.a-reply-stays-in-its-thread")
async def test_a_thread_holds_what_began_it_what_answers_it_and_every_reply_in_commit_order(desk: ThreadDesk) -> None:
    first = await desk.say("ann", "bob", "shall we?", subject="Plan")
    answer = await desk.say("bob", "ann", "yes", reply_to=id_of(first))
    asked = await desk.say("ann", "bob", "then do", supervised=True, thread_id=thread_of(first))
    replied = (await desk.reply("bob", asked, "did")).record
    await desk.send("ann", "bob", "something else")
    thread = await desk.thread("ann", thread_of(first))
    assert [record.record_id for record in thread.records] == [one.record_id for one in (first, answer, asked, replied)]
    assert (thread.subject, thread.next_token) == ("Plan", "")
    assert {thread_of(record) for record in thread.records} == {thread_of(first)}
    for one in (first, answer, asked, replied):
        assert (await desk.thread("bob", id_of(one))).records == thread.records, "any record names its thread"


@pytest.mark.requirement("threads.a-reply-stays-in-its-thread")
async def test_a_plain_request_and_its_reply_are_a_thread_that_others_can_join(desk: ThreadDesk) -> None:
    request = await desk.request("ann", "bob")
    reply = (await desk.reply("bob", request)).record
    assert reply.attributes is None
    joined = await desk.say("ann", "bob", "thanks", reply_to=id_of(reply))
    assert thread_of(joined) == "thr_" + request.record_id.hex()
    thread = await desk.thread("bob", id_of(reply))
    assert [record.record_id for record in thread.records] == [one.record_id for one in (request, reply, joined)]


@pytest.mark.requirement("threads.shown-to-those-who-take-part")
async def test_of_a_thread_everybody_sees_what_they_sent_or_were_sent_and_the_operator_all(desk: ThreadDesk) -> None:
    first = await desk.say("ann", "bob", "to bob", subject="Secret of ann and bob")
    second = await desk.say("ann", "dan", "to dan", thread_id=id_of(first), subject="For dan")
    assert [one.body for one in (await desk.thread("dan", thread_of(first))).records] == [b"to dan"]
    assert (await desk.thread("dan", thread_of(first))).subject == "For dan"
    assert [one.body for one in (await desk.thread("bob", thread_of(first))).records] == [b"to bob"]
    assert len((await desk.thread(OPERATOR, id_of(second))).records) == 2
    for hidden in (thread_of(first), id_of(first), id_of(second), "thr_" + "0" * 32, "thr_x", "plan", ""):
        with pytest.raises(NotFound):
            await desk.thread("cyd", hidden)


@pytest.mark.requirement("threads.only-what-the-sender-may-see")
async def test_nobody_joins_or_answers_what_they_may_not_see_and_the_refusal_writes_nothing(desk: ThreadDesk) -> None:
    first = await desk.say("ann", "bob", subject="ours")
    task = await desk.assign("ann", "bob")
    for attributes in (
        {"thread_id": thread_of(first)},
        {"thread_id": id_of(first)},
        {"reply_to": id_of(first)},
        {"reply_to": id_of(first).replace("inf_", "ask_")},
        {"task_id": task_id_text(task)},
        {"task_id": "task_1"},
        {"thread_id": "thr_" + "0" * 32},
    ):
        with pytest.raises(NotFound):
            await desk.say("dan", "bob", **attributes)
    other = await desk.say("ann", "bob", subject="another")
    with pytest.raises(InvalidAttributes):
        await desk.say("ann", "bob", thread_id=thread_of(other), reply_to=id_of(first))
    same = await desk.say("ann", "bob", thread_id=thread_of(first), reply_to=id_of(first), task_id=task_id_text(task))
    assert same.attributes is not None
    assert (same.attributes.task_id, same.attributes.reply_to) == (task, first.record_id)
    assert len(await desk.shown_all("bob")) == 3


@pytest.mark.requirement("threads.a-subject-is-one-line")
@pytest.mark.parametrize("letter", ["x", "ü", "𝄞"])
async def test_a_subject_has_256_bytes_and_one_line(desk: ThreadDesk, letter: str) -> None:
    longest = letter * (SUBJECT_BYTES_MAX // len(letter.encode()))
    said = await desk.say("ann", "bob", subject=longest)
    assert said.attributes is not None
    assert said.attributes.subject == longest
    for wrong in (longest + letter, "two\nlines", "two\u2028lines", "\ud800"):
        with pytest.raises(InvalidAttributes):
            await desk.say("ann", "bob", subject=wrong)


@pytest.mark.requirement("threads.attributes-are-content")
async def test_a_key_stands_for_the_attributes_too_and_for_the_first_record_when_they_resolve_no_more(
    desk: ThreadDesk,
) -> None:
    first = await desk.say("ann", "bob", "to bob")
    kept = await desk.say("ann", "dan", "on", key="k", thread_id=id_of(first))
    assert (await desk.say("ann", "dan", "on", key="k", thread_id=id_of(first))).record_id == kept.record_id
    for other in ({"subject": "x"}, {"thread_id": id_of(kept)}, {"reply_to": id_of(first)}):
        with pytest.raises(IdempotencyConflict):
            await desk.say("ann", "dan", "on", key="k", **other)
    await desk.delete("bob")
    while not await desk.erase("bob"):
        pass
    with pytest.raises(NotFound):
        await desk.say("ann", "dan", "on", thread_id=id_of(first))
    assert (await desk.say("ann", "dan", "on", key="k", thread_id=id_of(first))).record_id == kept.record_id


@pytest.mark.requirement("threads.deletion-erases-what-the-agent-was-sent")
async def test_deleting_an_agent_erases_its_part_of_a_thread_and_leaves_the_others(
    desk: ThreadDesk, place: Path
) -> None:
    first = await desk.say("ann", "bob", "to bob", subject="Plan")
    asked = await desk.say("dan", "bob", "work", supervised=True, task_id="")
    on = await desk.say("ann", "dan", "to dan", thread_id=id_of(first))
    back = await desk.say("bob", "ann", "from bob", reply_to=id_of(first))
    await desk.delete("bob")
    while not await desk.erase("bob"):
        pass
    thread = await desk.thread("ann", thread_of(on))
    assert [record.record_id for record in thread.records] == [on.record_id, back.record_id]
    assert (await desk.thread("dan", thread_of(on))).subject == ""
    assert rows(place, "record_attributes") == 2
    assert desk.store.read.record(asked.record_id) is None


@pytest.mark.requirement("threads.pages-are-bounded")
async def test_a_thread_is_read_page_by_page_by_number_and_by_size(desk: ThreadDesk) -> None:
    first = await desk.say("ann", "bob", "0", subject="long")
    for number in range(1, 7):
        await desk.say("ann", "bob" if number % 2 else "dan", str(number), thread_id=id_of(first))
    for who, wanted in (("ann", "0123456"), ("bob", "0135")):
        read, token = "", ""
        while True:
            page = await desk.thread(who, thread_of(first), size=2, token=token)
            assert len(page.records) <= 2
            read += "".join(record.body.decode() for record in page.records)
            if not (token := page.next_token):
                break
        assert read == wanted
    one = await desk.thread("ann", thread_of(first), page_bytes=1)
    assert ([record.body for record in one.records], bool(one.next_token)) == ([b"0"], True)
    for wrong in (-1, LISTING_RECORDS_MAX + 1):
        with pytest.raises(InvalidLimit):
            await desk.thread("ann", thread_of(first), size=wrong)
    assert (await desk.thread("ann", thread_of(first), size=LISTING_RECORDS_MAX)).next_token == ""
    with pytest.raises(InvalidCursor):
        await desk.thread("ann", thread_of(first), token="x")


async def test_looking_at_a_thread_exposes_nothing(desk: ThreadDesk) -> None:
    asked = await desk.say("ann", "bob", supervised=True, subject="work")
    await desk.thread("bob", id_of(asked))
    assert (await desk.taken("bob")).record.attributes == asked.attributes, "still there for a dispatcher, and whole"
    assert desk.now(asked).kind is Kind.REQUEST
