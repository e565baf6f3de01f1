"""Requests that want a result: supervised from their own transaction on, until the result is acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fencepost_mailbox.domain.answers import Resolution
from fencepost_mailbox.domain.claims import Outcome
from fencepost_mailbox.domain.refusals import InvalidLimit, NotFound, NotShown, StaleGeneration
from fencepost_mailbox.domain.tasks.refusals import NotificationsUnread
from fencepost_mailbox.domain.tasks.values import Notice
from fencepost_mailbox.domain.values import (
    PAGE_RECORDS_MAX,
    UNACKNOWLEDGED_COUNT_MAX,
    Answer,
    Completion,
    Kind,
    Record,
    ReplyStatus,
)
from fencepost_mailbox.usecases.claim import ClaimKind
from fencepost_mailbox.waits import Wake
from fencepost_testing.mailboxes import WAIT_S_MAX, a_turn, until
from fencepost_testing.thread_desk import ThreadDesk

Ending = Callable[[ThreadDesk, Record], Awaitable[None]]


def replying(status: ReplyStatus) -> Ending:
    async def end(desk: ThreadDesk, asked: Record) -> None:
        await desk.reply("bob", asked, status=status)

    return end


async def answered_by_the_host(desk: ThreadDesk, asked: Record) -> None:
    await desk.finish((await desk.taken("bob")).claim, Outcome.FAILED)


async def answered_for_a_deleted_agent(desk: ThreadDesk, asked: Record) -> None:
    await desk.delete("bob")
    while not await desk.erase("bob"):
        pass


async def settled_by_a_person(desk: ThreadDesk, asked: Record) -> None:
    await desk.finish((await desk.taken("bob")).claim, Outcome.UNCERTAIN)
    await desk.resolve(asked, Resolution.NOT_DONE)


# Every way in which a request gets an answer from somebody else than its sender.
ENDINGS: dict[str, Ending] = {
    **{status.name: replying(status) for status in ReplyStatus if status is not ReplyStatus.NONE},
    "host": answered_by_the_host,
    "deleted": answered_for_a_deleted_agent,
    "person": settled_by_a_person,
}


async def by_cursor(desk: ThreadDesk, reply: Record) -> None:
    page = await desk.receive("ann")
    await desk.receive("ann", ack=page.ack_cursor)


async def by_id(desk: ThreadDesk, reply: Record) -> None:
    await desk.receive("ann")
    assert (await desk.acknowledge_ids("ann", reply)).records == ((Kind.REPLY, reply.record_id),)


@pytest.mark.requirement("supervision.a-request-leaves-with-its-acknowledged-result")
@pytest.mark.parametrize("acknowledge", [by_cursor, by_id])
@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_request_that_wants_a_result_leaves_the_set_when_the_result_is_acknowledged_and_never_before(
    desk: ThreadDesk, ending: str, acknowledge: Ending
) -> None:
    asked = await desk.say("ann", "bob", "do it", supervised=True, subject="it")
    ((entry,), _, pending) = await desk.supervision("ann")
    assert (entry.request, entry.task, entry.settled, pending) == (asked, None, False, 1)
    await ENDINGS[ending](desk, asked)
    ((entry,), _, pending) = await desk.supervision("ann")
    assert (entry.settled, pending, (await desk.listed("ann")).pending) == (True, 1, 1)
    assert (entry.request is None) is (ending == "deleted")
    await desk.given("ann", "run")
    assert await desk.ready("ann", "run") == 1, "the turn ends, the set stands"
    (reply,) = [one for one in await desk.shown_all("ann") if one.kind is Kind.REPLY]
    assert entry.reply_id == reply.record_id
    assert desk.supervises("ann", asked.record_id), "to be shown the result is not to have handled it"
    await acknowledge(desk, reply)
    assert await desk.supervision("ann") == ([], "", 0)


@pytest.mark.requirement("supervision.a-request-leaves-with-its-acknowledged-result")
async def test_a_result_that_was_injected_into_the_conversation_is_acknowledged_by_its_id(desk: ThreadDesk) -> None:
    asked = await desk.say("ann", "bob", supervised=True)
    reply = (await desk.reply("bob", asked)).record
    await desk.finish((await desk.taken("ann", kind=ClaimKind.CONTEXT)).claim, Outcome.VISIBLE)
    assert desk.supervises("ann", asked.record_id)
    await desk.acknowledge_ids("ann", reply)
    assert not desk.supervises("ann", asked.record_id)


@pytest.mark.requirement("supervision.a-request-leaves-with-its-acknowledged-result")
async def test_a_request_taken_back_leaves_the_set_at_once_and_one_stored_as_new_joins_it(desk: ThreadDesk) -> None:
    taken_back = await desk.say("ann", "bob", supervised=True)
    await desk.withdraw("ann", taken_back)
    assert not desk.supervises("ann", taken_back.record_id)
    asked = await desk.say("ann", "bob", supervised=True, subject="again")
    await desk.finish((await desk.taken("bob")).claim, Outcome.UNCERTAIN)
    resolved = await desk.resolve(asked, Resolution.AS_NEW)
    assert resolved.new_record_id is not None
    assert desk.supervises("ann", resolved.new_record_id)
    again = desk.store.read.record(resolved.new_record_id)
    assert again is not None
    assert again.attributes == asked.attributes


@pytest.mark.requirement("supervision.a-result-is-explicit")
async def test_the_final_words_of_a_turn_answer_no_request_that_wants_a_result(desk: ThreadDesk) -> None:
    asked = await desk.say("ann", "bob", supervised=True)
    taken = await desk.bound("bob", a_turn())
    await desk.ended(taken.claim, final="final words")
    assert (desk.now(asked).answer, desk.supervises("ann", asked.record_id)) == (Answer.OPEN, True)
    assert asked.completion is Completion.EXPLICIT


@pytest.mark.requirement("threads.one-store-for-both-families")
async def test_each_family_receives_and_answers_what_the_other_sent(desk: ThreadDesk) -> None:
    asked = await desk.say("ann", "bob", "by agent_send", supervised=True, subject="s")
    plain = await desk.request("ann", "bob", "by followup_task")
    page = await desk.receive("bob")
    assert [one.record_id for one in page.records] == [asked.record_id, plain.record_id]
    await desk.reply("bob", plain)
    await desk.reply("bob", asked, status=ReplyStatus.BLOCKED)
    replies = await desk.shown_all("ann")
    assert [(one.parent_id, one.status) for one in replies] == [
        (plain.record_id, ReplyStatus.DONE),
        (asked.record_id, ReplyStatus.BLOCKED),
    ]


@pytest.mark.requirement("acknowledgement.by-id-in-any-order")
async def test_records_are_acknowledged_by_id_in_any_order_and_again(desk: ThreadDesk) -> None:
    first, second, third = [(await desk.send("ann", "bob", str(number))).record for number in range(3)]
    await desk.receive("bob")
    done = await desk.acknowledge_ids("bob", third, first, third)
    assert (done.records, done.unacknowledged) == (
        ((Kind.INFORMATION, third.record_id), (Kind.INFORMATION, first.record_id)),
        1,
    )
    assert (await desk.acknowledge_ids("bob", first)).records == ()
    assert [one.record_id for one in await desk.shown_all("bob")] == [second.record_id]


@pytest.mark.requirement("acknowledgement.by-id-in-any-order")
async def test_an_acknowledgement_of_what_was_not_shown_or_is_anothers_is_refused_whole(desk: ThreadDesk) -> None:
    shown = (await desk.send("ann", "bob")).record
    await desk.receive("bob")
    unseen, mine = (await desk.send("ann", "bob")).record, (await desk.send("bob", "ann")).record
    with pytest.raises(NotShown):
        await desk.acknowledge_ids("bob", shown, unseen)
    with pytest.raises(NotFound):
        await desk.acknowledge_ids("bob", shown, mine)
    for count in (0, PAGE_RECORDS_MAX + 1):
        with pytest.raises(InvalidLimit):
            await desk.acknowledge_ids("bob", *([shown] * count))
    assert not desk.now(shown).acknowledged
    await desk.receive("bob", generation=2)
    with pytest.raises(StaleGeneration):
        await desk.acknowledge_ids("bob", shown)
    await desk.acknowledge_ids("bob", *([shown] * PAGE_RECORDS_MAX), generation=2)
    assert desk.now(shown).acknowledged


@pytest.mark.requirement("acknowledgement.consumes-no-notification")
async def test_acknowledging_a_message_about_a_task_consumes_no_notification_of_it(desk: ThreadDesk) -> None:
    task = await desk.assign("ann", "bob")
    about = (await desk.send("ann", "bob", "see your task")).record
    await desk.receive("bob")
    await desk.acknowledge_ids("bob", about)
    assert desk.standing("bob") == [Notice.ASSIGNED]
    await desk.start_task("bob", task)
    assert desk.standing("bob") == []


@pytest.mark.requirement("supervision.a-wait-tells-of-messages")
async def test_a_run_is_told_once_that_there_are_messages_and_a_new_run_again(desk: ThreadDesk) -> None:
    first = (await desk.send("ann", "bob", "1")).record
    await desk.send("ann", "bob", "2")
    task = await desk.assign("ann", "bob")
    given = await desk.given("bob", "run")
    assert given.told is not None
    assert (given.told.task.task_id, given.more) == (task, True)
    with pytest.raises(NotificationsUnread) as unread:
        await desk.ready("bob", "run")
    assert unread.value.state == {"notice": "messages"}
    given = await desk.given("bob", "run")
    assert given.unread is not None
    assert (given.unread.oldest, given.unread.count, given.more) == (first, 2, False)
    assert await desk.ready("bob", "run") == 0
    assert (await desk.given("bob", "run")).wake is Wake.TIMED_OUT
    await desk.send("ann", "bob", "3")
    given = await desk.given("bob", "run")
    assert given.unread is not None
    assert given.unread.count == 1, "only what is new to the run"
    page = await desk.receive("bob", limit=2)
    await desk.receive("bob", ack=page.ack_cursor)
    assert (await desk.given("bob", "another")).told is not None
    given = await desk.given("bob", "another")
    assert given.unread is not None
    assert given.unread.count == 1, "what is acknowledged is told to nobody"


@pytest.mark.requirement("supervision.a-wait-tells-of-messages")
async def test_messages_are_told_of_a_hundred_at_a_time(desk: ThreadDesk) -> None:
    await asyncio.gather(*(desk.send("ann", "bob") for _ in range(UNACKNOWLEDGED_COUNT_MAX + 1)))
    told = [await desk.given("bob", "run") for _ in range(2)]
    assert [(one.unread.count if one.unread else 0, one.more) for one in told] == [
        (UNACKNOWLEDGED_COUNT_MAX, True),
        (1, False),
    ]


@pytest.mark.requirement("supervision.a-wait-tells-of-messages")
async def test_a_parked_wait_ends_with_the_result_that_it_waits_for(desk: ThreadDesk) -> None:
    asked = await desk.say("ann", "bob", supervised=True)
    waiting = asyncio.create_task(desk.given("ann", "run", timeout_ms=20_000))
    await until(lambda: desk.waits.parked == 1)
    reply = (await desk.reply("bob", asked)).record
    given = await asyncio.wait_for(waiting, WAIT_S_MAX)
    assert given.unread is not None
    assert given.unread.oldest == reply
    await desk.restart()
    assert (await desk.given("ann", "run")).wake is Wake.TIMED_OUT, "what a run was told of is on disk"


@pytest.mark.requirement("supervision.a-request-leaves-with-its-acknowledged-result")
async def test_of_two_acknowledgements_of_one_result_one_counts(desk: ThreadDesk) -> None:
    asked = await desk.say("ann", "bob", supervised=True)
    reply = (await desk.reply("bob", asked)).record
    await desk.receive("ann")
    both = await asyncio.gather(*(desk.acknowledge_ids("ann", reply) for _ in range(2)))
    assert sorted(len(one.records) for one in both) == [0, 1]
    assert [fact.name for fact in desk.facts(reply)].count("ACKNOWLEDGED") == 1
