"""Sending, reading, acknowledging, answering and waiting, over each backend."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from fencepost_kit.ids import uuid_text
from fencepost_kit.refusal import Overloaded
from fencepost_mailbox.domain import cursors
from fencepost_mailbox.domain.claims import Outcome
from fencepost_mailbox.domain.refusals import (
    ConflictingReply,
    ExpiredCursor,
    IdempotencyConflict,
    InvalidCursor,
    InvalidMessage,
    InvalidTask,
    InvalidTimeout,
    KeyCancelled,
    MailboxRefusal,
    NotFound,
    SelfRequest,
    StaleGeneration,
    StorageError,
    Unauthorized,
)
from fencepost_mailbox.domain.values import (
    ACKNOWLEDGED_ROWS_MAX,
    OPEN_REQUESTS_MAX,
    PAGE_BODY_BYTES_MAX,
    UNACKNOWLEDGED_COUNT_MAX,
    WAIT_MS_MAX,
    Answer,
    Completion,
    Delivery,
    FactKind,
    Inbox,
    Kind,
    Operation,
    Reader,
    ReplyStatus,
)
from fencepost_mailbox.translate import Namer, send_response
from fencepost_mailbox.usecases import admit
from fencepost_mailbox.usecases.claim import ClaimKind
from fencepost_mailbox.usecases.receive import Acknowledging, Page, Reading
from fencepost_mailbox.waits import WAITS_OF_ONE_AGENT_MAX, Wake
from fencepost_testing.clock import settle
from fencepost_testing.mailboxes import WAIT_S_MAX, Desk, id16

CONTEXT = Kind.INFORMATION


def texts(page: Page) -> list[str]:
    return [record.body.decode() for record in page.records]


# --- admission --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.receipt-means-on-disk")
async def test_a_receipt_names_a_record_that_is_there_after_a_restart(desk: Desk) -> None:
    receipt = await desk.send("ann", "bob", "hello")
    request = await desk.request("ann", "bob", "work")
    await desk.restart()
    assert desk.now(receipt.record) == receipt.record
    assert desk.now(request) == request
    assert texts(await desk.receive("bob")) == ["hello", "work"]


@pytest.mark.requirement("mailbox.bodies-round-trip")
@pytest.mark.parametrize("body", ["a\0b", "\x1b[2J\r\n", "\ufeff", "漢😀", "x" * 65_536, "\U0010ffff" * 16_384])
async def test_a_body_comes_back_byte_for_byte(desk: Desk, body: str) -> None:
    await desk.send("ann", "bob", body)
    await desk.restart()
    assert texts(await desk.receive("bob")) == [body]


async def test_a_receipt_says_whether_anybody_looks_at_the_mailbox(desk: Desk) -> None:
    assert (await desk.send("ann", "bob")).readership.reader is Reader.NONE
    await desk.receive("bob")
    receipt = await desk.send("ann", "bob")
    assert receipt.readership.reader is Reader.MANUAL
    assert receipt.readership.last_read_at_ms == desk.clock.now_ms()
    assert not receipt.duplicate


async def test_information_to_oneself_is_taken_and_a_request_is_not(desk: Desk) -> None:
    await desk.send("ann", "ann", "note")
    with pytest.raises(SelfRequest):
        await desk.request("ann", "ann")
    assert texts(await desk.receive("ann")) == ["note"]


@pytest.mark.requirement("mailbox.bodies-have-limits")
@pytest.mark.parametrize("body", ["", " \n", "x" * 65_537])
async def test_a_body_that_cannot_be_kept_writes_nothing_and_takes_no_key(desk: Desk, body: str) -> None:
    with pytest.raises(InvalidMessage):
        await desk.send("ann", "bob", body, key="k")
    assert desk.store.read.newest_sequence() == 0
    assert not (await desk.send("ann", "bob", "good", key="k")).duplicate


@pytest.mark.requirement("mailbox.same-key-same-receipt")
async def test_the_same_call_again_gives_the_first_receipt_and_writes_nothing(desk: Desk) -> None:
    first = await desk.send("ann", "bob", key="k")
    newest = desk.store.read.newest_sequence()
    again = await desk.send("ann", "bob", key="k")
    assert (again.record, again.duplicate) == (first.record, True)
    assert desk.store.read.newest_sequence() == newest


@pytest.mark.requirement("mailbox.same-key-same-receipt")
async def test_a_key_is_scoped_by_caller_and_operation(desk: Desk) -> None:
    records = {
        (await desk.send("ann", "bob", key="k")).record.record_id,
        (await desk.send("ann", "bob", kind=Kind.REQUEST, key="k")).record.record_id,
        (await desk.send("cyd", "bob", key="k")).record.record_id,
        (await desk.reply("bob", await desk.request("ann", "bob"), key="k")).record.record_id,
    }
    assert len(records) == 4


@pytest.mark.requirement("mailbox.same-key-same-receipt")
@pytest.mark.parametrize("other", [{"body": "other"}, {"recipient": "cyd"}])
async def test_other_content_under_a_key_is_a_conflict_and_writes_nothing(desk: Desk, other: dict[str, str]) -> None:
    await desk.send("ann", "bob", key="k")
    newest = desk.store.read.newest_sequence()
    with pytest.raises(IdempotencyConflict):
        await desk.send("ann", other.get("recipient", "bob"), other.get("body", "text"), key="k")
    assert desk.store.read.newest_sequence() == newest


@pytest.mark.requirement("mailbox.same-key-same-receipt")
async def test_what_a_key_stands_for_counts_before_its_target_is_resolved(desk: Desk) -> None:
    first = await desk.send("ann", "bob", key="k")
    desk.agents.refusing = NotFound("renamed meanwhile")
    again = await desk.send("ann", "bob", key="k")
    assert (again.record.record_id, again.duplicate) == (first.record.record_id, True)
    with pytest.raises(IdempotencyConflict):
        await desk.send("ann", "bob", "other", key="k")
    with pytest.raises(NotFound):
        await desk.send("ann", "bob", key="another")


@pytest.mark.requirement("mailbox.same-key-same-receipt")
async def test_the_same_call_made_many_times_at_once_writes_one_record(desk: Desk) -> None:
    receipts = await asyncio.gather(*(desk.send("ann", "bob", key="k") for _ in range(40)))
    assert len({receipt.record.record_id for receipt in receipts}) == 1
    assert sum(not receipt.duplicate for receipt in receipts) == 1
    assert len((await desk.receive("bob")).records) == 1


async def test_a_receipt_names_the_recipient_as_it_was_resolved(desk: Desk) -> None:
    receipt = await desk.send("ann", "bob")
    assert receipt.recipient is not None
    assert (receipt.recipient.agent_id, receipt.recipient.name) == (id16("bob"), "bob")


async def test_a_receipt_names_a_recipient_that_the_mirror_has_not_heard_of_yet(desk: Desk) -> None:
    desk.agents.forget("bob")
    receipt = await desk.send("ann", "bob")
    answer = send_response(receipt, Namer(desk.agents))
    assert (answer.recipient.agent_id, answer.recipient.name) == (uuid_text(id16("bob")), "bob")


# --- reading ----------------------------------------------------------------------------------------------------------


async def test_a_page_comes_in_the_order_of_commits(desk: Desk) -> None:
    await asyncio.gather(*(desk.send("ann", "bob", f"a{n}") for n in range(30)), desk.send("cyd", "bob", "c"))
    page = await desk.receive("bob")
    own = [text for text in texts(page) if text != "c"]
    assert own == [f"a{n}" for n in range(30)]
    sequences = [record.sequence for record in page.records]
    assert sequences == sorted(sequences)


async def test_reading_exposes_each_record_once(desk: Desk) -> None:
    information, request = (await desk.send("ann", "bob")).record, await desk.request("ann", "bob")
    for _ in range(3):
        page = await desk.receive("bob")
        assert [record.delivery for record in page.records] == [Delivery.EXPOSED, Delivery.RECEIVER]
    assert desk.facts(information) == desk.facts(request) == [FactKind.EXPOSED]


async def test_reading_again_what_was_shown_before_writes_nothing(desk: Desk) -> None:
    await desk.send("ann", "bob")
    first = await desk.receive("bob")
    operations = desk.store.counters.operations
    for cursor in ("", first.next_cursor):
        await desk.receive("bob", cursor=cursor)
    assert desk.store.counters.operations == operations


@pytest.mark.requirement("mailbox.acknowledges-only-what-was-shown")
async def test_reading_acknowledges_nothing_and_an_ack_cursor_what_was_shown_up_to_it(desk: Desk) -> None:
    for text in ("one", "two", "three"):
        await desk.send("ann", "bob", text)
    first = await desk.receive("bob", limit=2)
    assert (texts(first), first.has_more, first.unacknowledged) == (["one", "two"], True, 3)
    assert texts(await desk.receive("bob", limit=2)) == ["one", "two"]
    after = await desk.receive("bob", ack=first.ack_cursor)
    assert (texts(after), after.has_more, after.unacknowledged) == (["three"], False, 1)


@pytest.mark.requirement("mailbox.acknowledges-only-what-was-shown")
async def test_a_record_below_the_cursor_that_was_never_shown_is_not_acknowledged(desk: Desk) -> None:
    claimed = await desk.request("ann", "bob", "claimed")
    await desk.send("ann", "bob", "shown")
    held = await desk.taken("bob")
    page = await desk.receive("bob")
    assert texts(page) == ["shown"]
    await desk.receive("bob", ack=page.ack_cursor)
    assert not desk.now(claimed).acknowledged
    await desk.release(held.claim)
    assert texts(await desk.receive("bob")) == ["claimed"]


@pytest.mark.requirement("mailbox.acknowledges-only-what-was-shown")
async def test_acknowledging_twice_or_an_earlier_cursor_changes_nothing_more(desk: Desk) -> None:
    for text in ("one", "two"):
        await desk.send("ann", "bob", text)
    first = await desk.receive("bob", limit=1)
    both = await desk.receive("bob")
    await desk.receive("bob", ack=both.ack_cursor)
    newest = desk.store.read.newest_sequence()
    for cursor in (both.ack_cursor, first.ack_cursor):
        page = await desk.receive("bob", ack=cursor)
        assert (page.records, page.unacknowledged) == ([], 0)
    assert desk.store.read.newest_sequence() == newest
    assert desk.facts(both.records[0]) == [FactKind.EXPOSED, FactKind.ACKNOWLEDGED]


@pytest.mark.requirement("mailbox.acknowledges-only-what-was-shown")
async def test_acknowledging_a_request_does_not_hide_the_answer_that_is_owed(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    page = await desk.receive("bob")
    assert page.open_requests == [], "what the page shows is not listed beside it"
    after = await desk.receive("bob", ack=page.ack_cursor)
    assert [record.record_id for record in after.open_requests] == [request.record_id]
    await desk.reply("bob", request)
    assert (await desk.receive("bob")).open_requests == []


async def test_a_long_history_is_acknowledged_in_steps_and_completely(desk: Desk) -> None:
    count = 2 * ACKNOWLEDGED_ROWS_MAX
    await asyncio.gather(*(desk.send("ann", "bob", f"{n}") for n in range(count)))
    page = await desk.receive("bob")
    while page.has_more:
        page = await desk.receive("bob", cursor=page.next_cursor)
    assert (await desk.receive("bob", ack=page.ack_cursor)).unacknowledged == 0
    assert desk.store.read.count_fresh(id16("bob"), count) == 0


async def test_what_is_unacknowledged_is_counted_up_to_its_limit(desk: Desk) -> None:
    await asyncio.gather(*(desk.send("ann", "bob") for _ in range(UNACKNOWLEDGED_COUNT_MAX + 1)))
    assert (await desk.receive("bob", limit=1)).unacknowledged == UNACKNOWLEDGED_COUNT_MAX


async def test_open_requests_are_listed_oldest_first_up_to_their_limit_beside_a_full_page(desk: Desk) -> None:
    requests = [await desk.request("ann", "bob", f"{n}") for n in range(OPEN_REQUESTS_MAX + 2)]
    page = await desk.receive("bob")
    listed = (await desk.receive("bob", ack=page.ack_cursor)).open_requests
    assert [record.record_id for record in listed] == [record.record_id for record in requests[:OPEN_REQUESTS_MAX]]
    shown = await desk.receive(
        "bob",
        cursor=cursors.issue(0, recipient=id16("bob"), epoch=desk.store.epoch, secret=desk.store.cursor_secret),
        limit=2,
    )
    assert len(shown.open_requests) == OPEN_REQUESTS_MAX


@pytest.mark.requirement("mailbox.cursors-belong-to-a-recipient-and-a-store")
async def test_replaying_a_cursor_gives_the_same_records_and_executes_nothing(desk: Desk) -> None:
    await desk.send("ann", "bob", "one")
    first = await desk.receive("bob")
    request = await desk.request("ann", "bob", "two")
    await desk.send("ann", "bob", "three")
    page = await desk.receive("bob", cursor=first.next_cursor)
    assert texts(page) == ["two", "three"]
    await desk.receive("bob", ack=page.ack_cursor)
    await desk.reply("bob", request)
    replayed = await desk.receive("bob", cursor=first.next_cursor)
    assert [record.record_id for record in replayed.records] == [record.record_id for record in page.records]
    assert replayed.records[0].answer is Answer.ANSWERED
    assert desk.facts(request) == [FactKind.EXPOSED, FactKind.ACKNOWLEDGED, FactKind.REPLIED]


@pytest.mark.requirement("mailbox.cursors-belong-to-a-recipient-and-a-store")
async def test_a_foreign_cursor_reads_and_acknowledges_nothing(desk: Desk) -> None:
    await desk.send("ann", "bob")
    await desk.send("ann", "cyd")
    page, other = await desk.receive("bob"), await desk.receive("cyd")
    for wrong in ({"cursor": other.next_cursor}, {"ack": other.ack_cursor}, {"ack": "x", "cursor": page.next_cursor}):
        with pytest.raises(InvalidCursor):
            await desk.receive("bob", **wrong)
    with pytest.raises(InvalidCursor):
        await desk.receive("bob", ack=page.ack_cursor, cursor="x")
    elsewhere = cursors.issue(9**9, recipient=id16("bob"), epoch=id16("other"), secret=desk.store.cursor_secret)
    with pytest.raises(ExpiredCursor):
        await desk.receive("bob", ack=elsewhere)
    assert not desk.now(page.records[0]).acknowledged


@pytest.mark.requirement("mailbox.cursors-belong-to-a-recipient-and-a-store")
async def test_a_cursor_outlives_a_restart(desk: Desk) -> None:
    await desk.send("ann", "bob", "one")
    first = await desk.receive("bob")
    await desk.send("ann", "bob", "two")
    await desk.restart()
    assert texts(await desk.receive("bob", cursor=first.next_cursor, ack=first.ack_cursor)) == ["two"]
    assert desk.now(first.records[0]).acknowledged


@pytest.mark.requirement("mailbox.pages-have-budgets")
async def test_the_record_that_a_budget_cut_off_is_untouched_and_first_of_the_next_page(desk: Desk) -> None:
    half = PAGE_BODY_BYTES_MAX // 2
    for text in ("a" * half, "b" * half, "c"):
        await desk.send("ann", "bob", text)
    request = await desk.request("ann", "bob", "d")
    first = await desk.receive("bob")
    assert [text[0] for text in texts(first)] == ["a", "b"]
    assert first.has_more
    assert desk.now(request).delivery is Delivery.PENDING
    assert texts(await desk.receive("bob", cursor=first.next_cursor)) == ["c", "d"]


@pytest.mark.requirement("mailbox.pages-have-budgets")
async def test_a_small_budget_gives_one_record_a_page_and_loses_none(desk: Desk) -> None:
    for text in ("one", "two", "three"):
        await desk.send("ann", "bob", text)
    seen, cursor, more = [], "", True
    while more:
        page = await desk.receive("bob", cursor=cursor, page_bytes=1)
        assert len(page.records) == 1
        seen += texts(page)
        cursor, more = page.next_cursor, page.has_more
    assert seen == ["one", "two", "three"]


async def test_an_empty_page_keeps_the_cursor_and_has_none_to_acknowledge(desk: Desk) -> None:
    await desk.send("ann", "bob")
    cursor = (await desk.receive("bob")).next_cursor
    page = await desk.receive("bob", cursor=cursor)
    assert (page.records, page.next_cursor, page.ack_cursor, page.has_more) == ([], cursor, "", False)
    assert (await desk.receive("cyd")).next_cursor == ""


@pytest.mark.requirement("mailbox.a-page-is-one-moment")
async def test_a_page_does_not_claim_to_have_seen_what_was_committed_beside_it(desk: Desk) -> None:
    await desk.open("bob", 2)
    # A first sight of generation 3: this page is read by the writer, in one batch with what is sent behind it.
    page, receipt = await asyncio.gather(desk.receive("bob", generation=3), desk.send("ann", "bob", "late"))
    if not page.records:
        assert page.high_water < receipt.record.sequence, "an empty page proves that it is empty, up to its high water"


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.settled-once")
@pytest.mark.parametrize("status", [ReplyStatus.DONE, ReplyStatus.BLOCKED, ReplyStatus.FAILED])
async def test_a_reply_goes_to_the_requester_and_settles_the_request(desk: Desk, status: ReplyStatus) -> None:
    request = await desk.request("ann", "bob", "work")
    await desk.receive("bob")
    receipt = await desk.reply("bob", request, "the result", status=status)
    page = await desk.receive("ann")
    (answer,) = page.records
    assert answer.record_id == receipt.record.record_id
    assert (answer.kind, answer.parent_id, answer.status) == (Kind.REPLY, request.record_id, status)
    assert (answer.sender, answer.body) == (id16("bob"), b"the result")
    assert desk.now(request).answer is Answer.ANSWERED
    assert desk.facts(request) == [FactKind.EXPOSED, FactKind.REPLIED]


@pytest.mark.requirement("mailbox.settled-once")
async def test_the_identical_answer_again_is_a_duplicate_under_any_key_and_another_is_a_conflict(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    first = await desk.reply("bob", request, key="k")
    for key in ("k", "another", "another"):
        again = await desk.reply("bob", request, key=key)
        assert (again.record.record_id, again.duplicate) == (first.record.record_id, True)
    for wrong in ({"body": "other"}, {"status": ReplyStatus.FAILED}):
        with pytest.raises(ConflictingReply):
            await desk.reply("bob", request, **wrong)  # type: ignore[arg-type]
    for key in ("k", "another"):
        with pytest.raises(IdempotencyConflict):
            await desk.reply("bob", request, "other", key=key)
    assert len((await desk.receive("ann")).records) == 1


@pytest.mark.requirement("mailbox.settled-once")
async def test_of_many_different_answers_at_once_exactly_one_stands(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    answers = await asyncio.gather(*(desk.reply("bob", request, f"{n}") for n in range(20)), return_exceptions=True)
    assert sum(not isinstance(answer, ConflictingReply) for answer in answers) == 1
    assert len((await desk.receive("ann")).records) == 1


@pytest.mark.requirement("mailbox.only-the-recipient-replies")
async def test_nobody_but_the_recipient_replies(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    with pytest.raises(Unauthorized):
        await desk.reply("ann", request)
    with pytest.raises(NotFound):
        await desk.reply("cyd", request)
    assert desk.now(request) == request


@pytest.mark.requirement("mailbox.only-the-recipient-replies")
async def test_only_a_request_takes_a_reply(desk: Desk) -> None:
    information = (await desk.send("ann", "bob")).record
    answer = (await desk.reply("bob", await desk.request("ann", "bob"))).record
    with pytest.raises(InvalidTask):
        await desk.reply("bob", information)
    with pytest.raises(InvalidTask):
        await desk.reply("ann", answer)


@pytest.mark.parametrize("seen", ["pending", "claimed", "uncertain", "accepted", "failed"])
async def test_a_reply_settles_whatever_became_of_the_delivery(desk: Desk, seen: str) -> None:
    request = await desk.request("ann", "bob")
    if seen != "pending":
        held = (await desk.taken("bob")).claim
        if seen != "claimed":
            await desk.finish(held, Outcome[seen.upper()])
    if seen == "failed":
        with pytest.raises(ConflictingReply):
            await desk.reply("bob", request)
        return
    await desk.reply("bob", request)
    assert (await desk.receive("bob")).records == [], "an answered request is not new work"
    assert await desk.claim("bob") is None


@pytest.mark.requirement("mailbox.one-reader-at-most")
async def test_a_request_that_was_answered_while_it_was_claimed_ends_with_its_release(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    held = (await desk.taken("bob")).claim
    await desk.reply("bob", request)
    await desk.release(held)
    assert (await desk.receive("bob")).records == []
    assert await desk.claim("bob") is None
    assert desk.now(request).inbox is Inbox.AWAY


# --- settling a key ---------------------------------------------------------------------------------------------------


def content(body: str = "text", target: str = "bob") -> bytes:
    return admit.Command(kind=CONTEXT, target=target, body=body, key="", completion=Completion.NONE).content()


@pytest.mark.requirement("mailbox.cancelled-keys-stay-cancelled")
async def test_a_key_that_wrote_settles_to_its_receipt(desk: Desk) -> None:
    first = await desk.send("ann", "bob", key="k")
    settled = await desk.settle("ann", Operation.SEND, "k", content())
    assert settled.receipt is not None
    assert settled.receipt.record.record_id == first.record.record_id
    assert settled.receipt.duplicate


@pytest.mark.requirement("mailbox.cancelled-keys-stay-cancelled")
async def test_a_key_that_wrote_nothing_is_cancelled_for_good(desk: Desk) -> None:
    for _ in range(2):
        settled = await desk.settle("ann", Operation.SEND, "k", content())
        assert settled.receipt is None
    await desk.restart()
    for _ in range(2):
        with pytest.raises(KeyCancelled):
            await desk.send("ann", "bob", key="k")
    desk.agents.refusing = NotFound("renamed meanwhile")
    with pytest.raises(KeyCancelled):
        await desk.send("ann", "bob", key="k")
    assert (await desk.receive("bob")).records == []


@pytest.mark.requirement("mailbox.cancelled-keys-stay-cancelled")
async def test_settling_other_content_is_a_conflict_and_cancels_nothing(desk: Desk) -> None:
    await desk.send("ann", "bob", key="k")
    with pytest.raises(IdempotencyConflict):
        await desk.settle("ann", Operation.SEND, "k", content("other"))
    await desk.settle("ann", Operation.SEND, "c", content())
    with pytest.raises(IdempotencyConflict):
        await desk.settle("ann", Operation.SEND, "c", content("other"))


@pytest.mark.requirement("mailbox.cancelled-keys-stay-cancelled")
async def test_another_stores_epoch_is_unknown_and_cancels_nothing(desk: Desk) -> None:
    for epoch in ("", "somewhere else"):
        settled = await desk.settle("ann", Operation.SEND, "k", content(), epoch=epoch)
        assert (settled.verdict, settled.receipt) == (None, None)
    assert not (await desk.send("ann", "bob", key="k")).duplicate


@pytest.mark.requirement("mailbox.cancelled-keys-stay-cancelled")
async def test_a_call_and_its_settlement_at_once_agree(desk: Desk) -> None:
    for turn in range(30):
        key = f"k{turn}"
        calls = [desk.send("ann", "bob", key=key), desk.settle("ann", Operation.SEND, key, content())]
        if turn % 2:
            calls.reverse()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        settled = next(answer for answer in answers if not isinstance(answer, (admit.Receipt, MailboxRefusal)))
        sent = next(answer for answer in answers if answer is not settled)
        assert isinstance(sent, KeyCancelled) == (settled.receipt is None)  # type: ignore[union-attr]


@pytest.mark.requirement("mailbox.cancelled-keys-stay-cancelled")
async def test_a_life_that_has_ended_may_still_settle_its_keys(desk: Desk) -> None:
    await desk.send("ann", "bob", key="k")
    await desk.open("ann", 2)
    with pytest.raises(StaleGeneration):
        await desk.send("ann", "bob", key="k")
    assert (await desk.settle("ann", Operation.SEND, "k", content())).receipt is not None


# --- waits ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.a-wait-misses-nothing")
async def test_what_stands_already_ends_a_wait_at_once_also_where_it_was_read_before(desk: Desk) -> None:
    assert await desk.wait("bob") is Wake.TIMED_OUT
    await desk.send("ann", "bob")
    assert await desk.wait("bob") is Wake.ACTIVITY
    page = await desk.receive("bob")
    assert await desk.wait("bob", timeout_ms=WAIT_MS_MAX) is Wake.ACTIVITY
    await desk.receive("bob", ack=page.ack_cursor)
    assert await desk.wait("bob") is Wake.TIMED_OUT


@pytest.mark.requirement("mailbox.a-wait-misses-nothing")
async def test_a_wait_claims_and_acknowledges_nothing(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    await desk.wait("bob")
    assert desk.now(request) == request
    assert desk.facts(request) == []


@pytest.mark.parametrize("wrong", [-1, WAIT_MS_MAX + 1])
async def test_a_wait_holds_at_its_limits(desk: Desk, wrong: int) -> None:
    with pytest.raises(InvalidTimeout):
        await desk.wait("bob", timeout_ms=wrong)
    with pytest.raises(InvalidTimeout):
        await desk.receive("bob", timeout_ms=wrong)
    await desk.send("ann", "bob")
    assert await desk.wait("bob", timeout_ms=WAIT_MS_MAX) is Wake.ACTIVITY


async def woken(desk: Desk, cause: object, agent: str = "bob", *, generation: int = 1) -> tuple[Wake, Page]:
    """Park a wait and a receive of an agent, let `cause` happen, and return how both ended."""
    waiting = asyncio.ensure_future(desk.wait(agent, timeout_ms=WAIT_MS_MAX, generation=generation))
    reading = asyncio.ensure_future(desk.receive(agent, timeout_ms=WAIT_MS_MAX, generation=generation))
    await settle()
    assert desk.waits.parked == 2
    async with asyncio.timeout(WAIT_S_MAX):
        await cause  # type: ignore[misc]
        return await asyncio.gather(waiting, reading)


@pytest.mark.requirement("mailbox.a-wait-misses-nothing")
async def test_information_wakes_what_is_parked(desk: Desk) -> None:
    wake, page = await woken(desk, desk.send("ann", "bob", "news"))
    assert (wake, texts(page), page.timed_out, page.wake_reason) == (Wake.ACTIVITY, ["news"], False, "")


@pytest.mark.requirement("mailbox.a-wait-misses-nothing")
async def test_a_reply_wakes_its_requester(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    wake, page = await woken(desk, desk.reply("bob", request), "ann")
    assert (wake, texts(page)) == (Wake.ACTIVITY, ["done"])


@pytest.mark.requirement("mailbox.a-wait-misses-nothing")
async def test_a_release_wakes_the_recipient(desk: Desk) -> None:
    await desk.request("ann", "bob", "work")
    held = (await desk.taken("bob")).claim
    wake, page = await woken(desk, desk.release(held))
    assert (wake, texts(page)) == (Wake.ACTIVITY, ["work"])


@pytest.mark.requirement("mailbox.a-wait-misses-nothing")
@pytest.mark.parametrize("cause", ["finish", "expire", "incarnation"])
async def test_what_becomes_readable_as_uncertain_wakes_the_recipient(desk: Desk, cause: str) -> None:
    await desk.send("ann", "bob", "perhaps")
    held = (await desk.taken("bob", kind=ClaimKind.CONTEXT)).claim
    causes = {
        "finish": lambda: desk.finish(held, Outcome.UNCERTAIN),
        "expire": lambda: desk.expire(held.term_ms),
        "incarnation": lambda: desk.claim("cyd", incarnation=2),
    }
    wake, page = await woken(desk, causes[cause]())
    assert (wake, texts(page)) == (Wake.ACTIVITY, ["perhaps"])
    assert page.records[0].delivery is Delivery.UNCERTAIN


@pytest.mark.requirement("mailbox.stale-generation-gets-no-authority")
async def test_a_wait_of_a_life_that_ends_is_told_so(desk: Desk) -> None:
    waiting = asyncio.ensure_future(desk.wait("bob", timeout_ms=WAIT_MS_MAX))
    reading = asyncio.ensure_future(desk.receive("bob", timeout_ms=WAIT_MS_MAX))
    await settle()
    await desk.open("bob", 2)
    await desk.send("ann", "bob", "for the new life")
    async with asyncio.timeout(WAIT_S_MAX):
        answers = await asyncio.gather(waiting, reading, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StaleGeneration] * 2
    assert desk.now((await desk.send("ann", "bob")).record).exposed is False


@pytest.mark.requirement("mailbox.a-wait-misses-nothing")
async def test_a_wait_that_nothing_ends_times_out_and_cancels_nothing(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    assert await desk.wait("ann", timeout_ms=20) is Wake.TIMED_OUT
    page = await desk.receive("ann", timeout_ms=20)
    assert (page.records, page.timed_out, page.wake_reason) == ([], True, "")
    assert desk.now(request) == request


@pytest.mark.requirement("mailbox.a-wait-misses-nothing")
async def test_a_commit_while_the_page_is_being_read_is_not_missed(desk: Desk) -> None:
    # Every receive and send of these races for the moment between a look and a sleep.
    async def reader() -> list[str]:
        seen: list[str] = []
        cursor = ""
        while len(seen) < 100:
            page = await desk.receive("bob", cursor=cursor, timeout_ms=WAIT_MS_MAX, limit=3)
            seen += texts(page)
            cursor = page.next_cursor
        return seen

    async with asyncio.timeout(4 * WAIT_S_MAX):
        reading = asyncio.ensure_future(reader())
        for n in range(100):
            await desk.send("ann", "bob", f"{n}")
        assert await reading == [f"{n}" for n in range(100)]


@pytest.mark.requirement("mailbox.a-stop-ends-waits")
async def test_a_stop_ends_parked_reads_with_an_empty_page_that_says_why(desk: Desk) -> None:
    reading = asyncio.ensure_future(desk.receive("bob", timeout_ms=WAIT_MS_MAX))
    waiting = asyncio.ensure_future(desk.wait("bob", timeout_ms=WAIT_MS_MAX))
    await settle()
    desk.waits.drain()
    async with asyncio.timeout(WAIT_S_MAX):
        page, wake = await reading, await waiting
    assert (page.records, page.wake_reason, page.timed_out, wake) == ([], "draining", False, Wake.DRAINING)


async def test_a_refused_read_has_acknowledged_nothing(desk: Desk) -> None:
    await desk.send("ann", "bob")
    page = await desk.receive("bob")
    with contextlib.ExitStack() as parked:
        for _ in range(WAITS_OF_ONE_AGENT_MAX):
            parked.enter_context(desk.waits.register(id16("bob")))
        with pytest.raises(Overloaded):
            await desk.receive("bob", ack=page.ack_cursor)
    assert not desk.now(page.records[0]).acknowledged


@pytest.mark.requirement("mailbox.a-refusal-says-what-was-acknowledged")
async def test_a_read_that_fails_behind_an_acknowledgement_says_that_this_one_stands(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.send("ann", "bob", "one")
    page = await desk.receive("bob")
    await desk.send("ann", "bob", "two")
    submit = desk.store.submit

    async def full(operation: Any) -> Any:
        if isinstance(operation, Reading):
            raise StorageError("the disk refused the write; nothing was written", hint="Look.", state={"cause": "x"})
        return await submit(operation)

    monkeypatch.setattr(desk.store, "submit", full)
    with pytest.raises(StorageError) as refused:
        await desk.receive("bob", ack=page.ack_cursor)
    assert desk.now(page.records[0]).acknowledged
    assert refused.value.message == (
        "what ack_cursor covers is acknowledged, and no page was read: "
        "the disk refused the write; nothing else was written"
    )
    assert refused.value.state == {"cause": "x", "acknowledged": "all"}
    assert refused.value.hint == "Look. Acknowledging again is harmless."
    with pytest.raises(StorageError) as plain:
        await desk.receive("bob")
    assert plain.value.message == "the disk refused the write; nothing was written"


@pytest.mark.requirement("mailbox.a-refusal-says-what-was-acknowledged")
async def test_an_acknowledgement_that_stops_half_way_says_so(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost_mailbox.usecases.receive.ACKNOWLEDGED_ROWS_MAX", 1)
    for text in ("one", "two"):
        await desk.send("ann", "bob", text)
    page = await desk.receive("bob")
    submit, done = desk.store.submit, []

    async def full(operation: Any) -> Any:
        if isinstance(operation, Acknowledging):
            if done:
                raise StorageError("the disk refused the write; nothing was written")
            done.append(operation)
        return await submit(operation)

    monkeypatch.setattr(desk.store, "submit", full)
    with pytest.raises(StorageError) as refused:
        await desk.receive("bob", ack=page.ack_cursor)
    assert refused.value.message.startswith("a part of what ack_cursor covers is acknowledged")
    assert refused.value.state == {"acknowledged": "part"}
    assert [desk.now(record).acknowledged for record in page.records] == [True, False]
