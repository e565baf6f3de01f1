"""Every call of the mailbox over a real socket: what it answers, and how it refuses."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencepost.common.v1 import common_pb2 as common
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost_kit.sqlite import load_migrations
from fencepost_mailbox.domain.values import (
    BINDINGS_LISTED_MAX,
    BODY_BYTES_MAX,
    CLAIM_TERM_MS_MAX,
    EVIDENCE_BYTES_MAX,
    KEY_BYTES_MAX,
    LISTING_RECORDS_MAX,
    MIRROR_AGE_MS_MAX,
    NOTE_BYTES_MAX,
    PAGE_BYTES_MAX,
    PAGE_RECORDS_MAX,
    READERS_MAX,
    WAIT_MS_MAX,
)
from fencepost_mailbox.work import WATCHED_AGENTS_MAX
from fencepost_testing.mailboxes import a_credential
from fencepost_testing.processes import short_home
from fencepost_testing.served_mailbox import DESCRIPTOR, Refusal, ServedMailbox, uuid_of

S = grpc.StatusCode
MIGRATIONS = "fencepost_mailbox.store.migrations"
DONE = pb.REPLY_STATUS_DONE
MALFORMED = (S.INVALID_ARGUMENT, "invalid_argument")
BAD_MESSAGE = (S.INVALID_ARGUMENT, "invalid_message")
BAD_KEY = (S.INVALID_ARGUMENT, "invalid_idempotency_key")
NO_TASK = (S.FAILED_PRECONDITION, "invalid_task")
TURN = ServedMailbox.turn()


async def refused(call: Any) -> Refusal:
    with pytest.raises(Refusal) as answer:
        await call
    assert answer.value.detail.effect == common.EFFECT_NOT_WRITTEN
    return answer.value


# --- each call's own answer -------------------------------------------------------------------------------------------


async def test_describe_tells_version_schema_and_epoch_to_everybody_who_is_known(served: ServedMailbox) -> None:
    for who in ("ann", "cyd", "operator", "service"):
        answer = await served.call(who, "Describe", pb.DescribeRequest())
        assert (answer.version, answer.schema_version) == ("0.1.0", len(load_migrations(MIGRATIONS)))
        assert len(answer.epoch) == 36


@pytest.mark.requirement("mailbox.receipt-means-on-disk")
async def test_send_gives_the_receipt_of_a_record_that_the_recipient_reads(served: ServedMailbox) -> None:
    receipt = await served.send("ann", "bob", "hello")
    assert receipt.record_id.startswith("inf_")
    assert (receipt.delivery_state, receipt.duplicate) == (pb.DELIVERY_STATE_ADMITTED, False)
    assert (receipt.recipient.agent_id, receipt.recipient.name) == (uuid_of("bob"), "bob")
    assert receipt.recipient_reader == pb.RECIPIENT_READER_NONE
    (record,) = (await served.receive("bob")).records
    assert (record.record_id, record.body, record.kind) == (receipt.record_id, "hello", pb.RECORD_KIND_INFORMATION)
    assert (record.sender.agent_id, record.sender.name) == (uuid_of("ann"), "ann")
    assert record.origin == pb.ORIGIN_AGENT
    assert record.admitted_at_ms == receipt.admitted_at_ms == served.clock.now_ms()
    again = await served.send("ann", uuid_of("bob"), "by UUID")
    assert again.recipient_reader == pb.RECIPIENT_READER_MANUAL


async def test_a_request_and_its_reply_go_there_and_back(served: ServedMailbox) -> None:
    asked = await served.request("cyd", "bob", "work")
    assert asked.request_id.startswith("ask_")
    assert (asked.answer_state, asked.delivery_state) == (pb.ANSWER_STATE_OPEN, pb.DELIVERY_STATE_ADMITTED)
    (record,) = (await served.receive("bob")).records
    assert (record.record_id, record.completion) == (asked.request_id, pb.COMPLETION_AUTOMATIC)
    receipt = await served.reply("bob", asked.request_id, "result", status=pb.REPLY_STATUS_BLOCKED)
    assert receipt.record_id.startswith("rep_")
    assert (receipt.request_id, receipt.recipient.name) == (asked.request_id, "cyd")
    (answer,) = (await served.receive("cyd")).records
    assert (answer.parent_id, answer.reply_status, answer.body) == (
        asked.request_id,
        pb.REPLY_STATUS_BLOCKED,
        "result",
    )
    shown = (await served.call("cyd", "GetRecord", pb.GetRecordRequest(record_id=asked.request_id))).record
    assert (shown.answer_state, shown.body) == (pb.ANSWER_STATE_ANSWERED, "work")


async def test_an_explicit_request_says_so(served: ServedMailbox) -> None:
    ask = pb.RequestRequest(target="bob", body="x", idempotency_key="k", completion=pb.COMPLETION_EXPLICIT)
    await served.call("ann", "Request", ask)
    assert (await served.receive("bob")).records[0].completion == pb.COMPLETION_EXPLICIT


async def test_pages_cursors_and_acknowledgements(served: ServedMailbox) -> None:
    for text in ("one", "two", "three"):
        await served.send("ann", "bob", text)
    first = await served.receive("bob", limit=2)
    assert [record.body for record in first.records] == ["one", "two"]
    assert (first.has_more, first.unacknowledged, first.next_cursor) == (True, 3, first.ack_cursor)
    second = await served.receive("bob", cursor=first.next_cursor, ack_cursor=first.ack_cursor)
    assert [record.body for record in second.records] == ["three"]
    assert second.unacknowledged == 1
    replayed = await served.receive("bob", cursor=first.next_cursor)
    assert replayed.records == second.records
    last = await served.receive("bob", ack_cursor=second.ack_cursor)
    assert (list(last.records), last.ack_cursor, last.unacknowledged, last.has_more) == ([], "", 0, False)
    assert last.high_water >= second.records[0].sequence
    assert not last.timed_out
    assert not last.wake_reason


async def test_a_claim_is_taken_given_back_and_finished(served: ServedMailbox) -> None:
    asked = await served.request("ann", "bob", "work")
    taken = (await served.claim("bob")).claim
    assert (taken.record.record_id, taken.record.body, taken.generation) == (asked.request_id, "work", 1)
    assert len(taken.token) == 32
    assert taken.expires_at_ms == served.clock.now_ms() + 60_000
    released = await served.call(
        "service", "Release", pb.ReleaseRequest(token=taken.token, generation=1, proof="busy: not written")
    )
    assert (released.record_id, released.delivery_state) == (asked.request_id, pb.DELIVERY_STATE_ADMITTED)
    again = (await served.claim("bob")).claim
    assert again.token != taken.token
    finished = await served.finish(again.token, pb.CLAIM_OUTCOME_ACCEPTED)
    assert (finished.record_id, finished.delivery_state) == (asked.request_id, pb.DELIVERY_STATE_ACCEPTED)
    assert (await served.finish(again.token, pb.CLAIM_OUTCOME_ACCEPTED)).duplicate
    assert not (await served.claim("bob")).HasField("claim")


async def test_a_failed_claim_answers_the_requester(served: ServedMailbox) -> None:
    asked = await served.request("ann", "bob")
    taken = (await served.claim("bob")).claim
    failed = await served.finish(taken.token, pb.CLAIM_OUTCOME_FAILED, evidence="program_missing: not installed")
    (answer,) = (await served.receive("ann")).records
    assert (answer.record_id, answer.parent_id, answer.origin) == (failed.reply_id, asked.request_id, pb.ORIGIN_HOST)
    assert not answer.HasField("sender")
    assert "program_missing" in answer.body


async def test_context_is_claimed_up_to_its_high_water_and_becomes_visible(served: ServedMailbox) -> None:
    await served.send("ann", "bob", "news")
    taken = (await served.claim("bob", kind=pb.CLAIM_KIND_CONTEXT, high_water=10**9)).claim
    visible = await served.finish(taken.token, pb.CLAIM_OUTCOME_VISIBLE)
    assert visible.delivery_state == pb.DELIVERY_STATE_VISIBLE


@pytest.mark.requirement("mailbox.facts-stay-apart")
async def test_explain_tells_every_fact_with_its_time_and_evidence_and_no_body(served: ServedMailbox) -> None:
    asked = await served.request("ann", "bob", "the body")
    taken = (await served.claim("bob")).claim
    await served.finish(taken.token, pb.CLAIM_OUTCOME_UNCERTAIN, evidence="stream lost")
    explained = await served.call("ann", "Explain", pb.ExplainRequest(record_id=asked.request_id))
    assert [fact.fact for fact in explained.facts] == ["admitted", "claimed", "uncertain"]
    assert explained.facts[2].evidence == "stream lost"
    assert all(fact.at_ms == served.clock.now_ms() and fact.sequence for fact in explained.facts)
    assert explained.record.possibly_seen
    assert "the body" not in str(explained)
    assert "not known" in explained.summary


async def test_listings_and_readers(served: ServedMailbox) -> None:
    for n in range(3):
        await served.send("ann", "bob", f"{n}" * 200)
    page = await served.call("bob", "ListRecords", pb.ListRecordsRequest(page_size=2))
    assert [record.body for record in page.records] == ["2" * 160, "1" * 160]
    rest = await served.call(
        "operator",
        "ListRecords",
        pb.ListRecordsRequest(agent_id=uuid_of("bob"), page_size=2, page_token=page.next_page_token),
    )
    assert [record.body[0] for record in rest.records] == ["0"]
    assert rest.next_page_token == ""
    asked = pb.ListReadersRequest(agent_ids=[uuid_of("bob"), uuid_of("eve"), uuid_of("nobody")])
    (reader,) = (await served.call("ann", "ListReaders", asked)).readers
    assert (reader.agent_id, reader.reader, reader.waiting) == (uuid_of("bob"), pb.RECIPIENT_READER_NONE, False)
    assert len((await served.call("operator", "ListReaders", asked)).readers) == 2


async def test_opening_a_life_tells_what_the_one_before_left(served: ServedMailbox) -> None:
    asked = await served.request("ann", "bob")
    await served.claim("bob")
    for who in ("service", "operator"):
        opened = await served.call(
            who, "OpenGeneration", pb.OpenGenerationRequest(agent_id=uuid_of("bob"), generation=2)
        )
        assert opened.floor == 2
        assert [item.request_id for item in opened.open_requests] == [asked.request_id]
        assert opened.open_requests[0].possibly_seen
        assert list(opened.uncertain_record_ids) == ([asked.request_id] if who == "service" else [])
        assert opened.uncertain_count == len(opened.uncertain_record_ids)


# --- waiting and watching ---------------------------------------------------------------------------------------------


async def parked(served: ServedMailbox, count: int) -> None:
    async with asyncio.timeout(5):
        while served.mailbox.waits.parked < count:  # noqa: ASYNC110 - parked calls have no event of their own
            await asyncio.sleep(0.001)


@pytest.mark.requirement("mailbox.a-wait-misses-nothing")
async def test_a_commit_wakes_parked_waits_and_reads(served: ServedMailbox) -> None:
    waiting = asyncio.ensure_future(served.call("bob", "Wait", pb.WaitRequest(timeout_ms=9_000)))
    reading = asyncio.ensure_future(served.receive("bob", timeout_ms=9_000))
    await parked(served, 2)
    reader = (await served.call("ann", "ListReaders", pb.ListReadersRequest(agent_ids=[uuid_of("bob")]))).readers[0]
    assert (reader.waiting, reader.reader) == (True, pb.RECIPIENT_READER_MANUAL)
    await served.send("ann", "bob", "news")
    woken, page = await waiting, await reading
    assert (woken.timed_out, woken.wake_reason) == (False, "activity")
    assert ([record.body for record in page.records], page.wake_reason) == (["news"], "")
    assert served.mailbox.waits.parked == 0


async def test_a_wait_of_no_time_looks_once_and_one_without_news_times_out(served: ServedMailbox) -> None:
    for timeout_ms in (0, 20):
        answer = await served.call("bob", "Wait", pb.WaitRequest(timeout_ms=timeout_ms))
        assert (answer.timed_out, answer.wake_reason) == (True, "")
    page = await served.receive("bob", timeout_ms=20)
    assert (page.timed_out, list(page.records)) == (True, [])


@pytest.mark.requirement("mailbox.a-wait-misses-nothing")
async def test_a_client_that_hangs_up_ends_its_own_wait_and_nothing_else(served: ServedMailbox) -> None:
    call = served.stub.Wait(pb.WaitRequest(timeout_ms=WAIT_MS_MAX), metadata=served.metadata("bob"))
    await parked(served, 1)
    call.cancel()
    async with asyncio.timeout(5):
        while served.mailbox.waits.parked:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.001)
    await served.send("ann", "bob", "still there")
    assert len((await served.receive("bob")).records) == 1


@pytest.mark.requirement("mailbox.a-stop-ends-waits")
async def test_a_drain_ends_waits_reads_and_watches_and_says_so(served: ServedMailbox) -> None:
    waiting = asyncio.ensure_future(served.call("bob", "Wait", pb.WaitRequest(timeout_ms=9_000)))
    reading = asyncio.ensure_future(served.receive("bob", timeout_ms=9_000))
    watching = asyncio.ensure_future(served.call("service", "WatchWork", pb.WatchWorkRequest()))
    await parked(served, 2)
    async with asyncio.timeout(5):
        while not served.mailbox.work.watchers:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.001)
    await served.mailbox.drain()
    woken, page = await waiting, await reading
    assert (woken.wake_reason, woken.timed_out) == ("draining", False)
    assert (page.wake_reason, list(page.records)) == ("draining", [])
    ended = await refused(watching)
    assert (ended.status, ended.reason, ended.detail.may_resend) == (S.UNAVAILABLE, "draining", True)


@pytest.mark.requirement("mailbox.work-is-told-as-a-state")
async def test_a_watch_lists_who_has_work_and_then_who_gains_some(served: ServedMailbox) -> None:
    await served.request("ann", "bob")
    stream = served.stub.WatchWork(
        pb.WatchWorkRequest(dispatcher_id=uuid_of("d")), metadata=served.metadata("service"), timeout=10
    )
    first = await stream.read()
    assert (first.agent_id, first.requests, first.context, first.caught_up) == (uuid_of("bob"), True, False, False)
    assert (await stream.read()).caught_up
    await served.send("bob", "ann", "news")
    told = await stream.read()
    assert (told.agent_id, told.requests, told.context) == (uuid_of("ann"), False, True)
    assert told.high_water > first.high_water
    stream.cancel()
    async with asyncio.timeout(5):
        while served.mailbox.work.watchers:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.001)


@pytest.mark.requirement("mailbox.events-are-told-once-in-commit-order")
async def test_a_watch_of_events_tells_the_past_then_the_present_and_goes_on_from_a_position(
    served: ServedMailbox,
) -> None:
    await served.send("ann", "bob", "first")
    stream = served.stub.WatchEvents(pb.WatchEventsRequest(), metadata=served.metadata("operator"), timeout=10)
    first, mark = await stream.read(), await stream.read()
    assert (first.fact.fact, first.record.body, first.position) == ("admitted", "first", first.fact.sequence)
    assert (mark.caught_up, mark.HasField("record"), mark.position) == (True, False, first.position)
    await served.receive("bob")
    shown = await stream.read()
    assert (shown.fact.fact, shown.record.record_id) == ("exposed", first.record.record_id)
    stream.cancel()
    await served.send("bob", "ann", "second")
    again = served.stub.WatchEvents(
        pb.WatchEventsRequest(after=shown.position), metadata=served.metadata("operator"), timeout=10
    )
    assert (await again.read()).record.body == "second"
    assert (await again.read()).caught_up
    again.cancel()


@pytest.mark.requirement("mailbox.events-are-told-once-in-commit-order")
async def test_an_agent_watches_its_own_traffic_and_may_begin_with_what_is_new(served: ServedMailbox) -> None:
    await served.send("ann", "bob", "before")
    stream = served.stub.WatchEvents(pb.WatchEventsRequest(after=-1), metadata=served.metadata("bob"), timeout=10)
    assert (await stream.read()).caught_up
    await served.send("ann", "ann", "none of bob's")
    await served.send("ann", "bob", "after")
    assert (await stream.read()).record.body == "after"
    stream.cancel()
    asked = pb.WatchEventsRequest(agent_id=uuid_of("ann"))
    denied = await refused(served.call("bob", "WatchEvents", asked))
    assert (denied.status, denied.reason) == (S.PERMISSION_DENIED, "permission_denied")


@pytest.mark.requirement("mailbox.a-stop-ends-waits")
async def test_a_drain_ends_a_watch_of_events(served: ServedMailbox) -> None:
    watching = asyncio.ensure_future(served.call("operator", "WatchEvents", pb.WatchEventsRequest(after=-1)))
    async with asyncio.timeout(5):
        while not served.mailbox.events.watchers:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.001)
    await served.mailbox.drain()
    ended = await refused(watching)
    assert (ended.status, ended.reason, ended.detail.may_resend) == (S.UNAVAILABLE, "draining", True)


@pytest.mark.requirement("mailbox.a-removed-credential-ends-what-is-parked")
@pytest.mark.parametrize("method", ["Receive", "Wait"])
async def test_a_parked_call_ends_with_its_credential_and_takes_nothing_afterwards(
    served: ServedMailbox, method: str
) -> None:
    ask = {"Receive": pb.ReceiveRequest(timeout_ms=9_000), "Wait": pb.WaitRequest(timeout_ms=9_000)}[method]
    waiting = asyncio.ensure_future(served.call("bob", method, ask))
    await parked(served, 1)
    await served.tell(removed_credentials=[a_credential("bob").credential_id])
    ended = await refused(waiting)
    assert (ended.status, ended.reason) == (S.UNAUTHENTICATED, "unauthenticated")
    sent = await served.request("ann", "bob", "after")
    stands = await served.call("ann", "GetRecord", pb.GetRecordRequest(record_id=sent.request_id))
    assert stands.record.delivery_state == pb.DELIVERY_STATE_ADMITTED


@pytest.mark.requirement("mailbox.a-removed-credential-ends-what-is-parked")
@pytest.mark.parametrize(
    ("who", "method", "ask"),
    [("service", "WatchWork", pb.WatchWorkRequest()), ("operator", "WatchEvents", pb.WatchEventsRequest(after=-1))],
)
async def test_a_watch_ends_with_its_credential(served: ServedMailbox, who: str, method: str, ask: Any) -> None:
    watching = asyncio.ensure_future(served.call(who, method, ask))
    async with asyncio.timeout(5):
        while not served.mailbox.work.watchers + served.mailbox.events.watchers:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.001)
    await served.tell(removed_credentials=[a_credential(who).credential_id])
    ended = await refused(watching)
    assert (ended.status, ended.reason) == (S.UNAUTHENTICATED, "unauthenticated")


# --- settling ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.cancelled-keys-stay-cancelled")
async def test_a_lost_answer_is_settled_to_the_receipt_that_was_lost(served: ServedMailbox) -> None:
    epoch = await served.epoch()
    asked = await served.request("bob", "ann", key="r")
    sent = await served.send("ann", "bob", key="s")
    replied = await served.reply("ann", asked.request_id, idempotency_key="a")
    calls = [
        ("bob", {"request": pb.RequestRequest(target="ann", body="work", idempotency_key="r")}, asked.request_id),
        ("ann", {"send": pb.SendRequest(target="bob", body="text", idempotency_key="s")}, sent.record_id),
        (
            "ann",
            {"reply": pb.ReplyRequest(request_id=asked.request_id, status=DONE, body="done", idempotency_key="a")},
            replied.record_id,
        ),
    ]
    for who, call, record_id in calls:
        answer = await served.call(who, "SettleKey", pb.SettleKeyRequest(epoch=epoch, **call))
        assert answer.settlement == pb.SETTLEMENT_WRITTEN
        assert answer.WhichOneof("receipt") == next(iter(call))
        receipt = getattr(answer, answer.WhichOneof("receipt"))
        assert record_id in (getattr(receipt, "record_id", ""), getattr(receipt, "request_id", ""))
        assert receipt.duplicate


@pytest.mark.requirement("mailbox.cancelled-keys-stay-cancelled")
@pytest.mark.parametrize("which", ["send", "request", "reply"])
async def test_what_was_never_written_is_cancelled_and_its_late_arrival_refused(
    served: ServedMailbox, which: str
) -> None:
    asked = await served.request("bob", "ann")
    call: Any = {
        "send": pb.SendRequest(target="bob", body="late", idempotency_key="k"),
        "request": pb.RequestRequest(target="bob", body="late", idempotency_key="k"),
        "reply": pb.ReplyRequest(request_id=asked.request_id, status=DONE, body="late", idempotency_key="k"),
    }[which]
    epoch = await served.epoch()
    for _ in range(2):
        answer = await served.call("ann", "SettleKey", pb.SettleKeyRequest(epoch=epoch, **{which: call}))
        assert (answer.settlement, answer.WhichOneof("receipt")) == (pb.SETTLEMENT_CANCELLED, None)
    await served.restart()
    late = await refused(served.call("ann", which.title(), call))
    assert (late.status, late.reason) == (S.FAILED_PRECONDITION, "key_cancelled")
    assert list((await served.receive("bob")).records) == []


@pytest.mark.requirement("mailbox.cancelled-keys-stay-cancelled")
async def test_another_epoch_is_unknown_and_other_content_a_conflict(served: ServedMailbox) -> None:
    sent = pb.SendRequest(target="bob", body="text", idempotency_key="k")
    for epoch in ("", uuid_of("another store"), (await served.epoch()).upper()):
        answer = await served.call("ann", "SettleKey", pb.SettleKeyRequest(epoch=epoch, send=sent))
        assert answer.settlement == pb.SETTLEMENT_UNKNOWN
    await served.call("ann", "Send", sent)
    other = pb.SendRequest(target="bob", body="other", idempotency_key="k")
    ask = pb.SettleKeyRequest(epoch=await served.epoch(), send=other)
    conflict = await refused(served.call("ann", "SettleKey", ask))
    assert (conflict.status, conflict.reason) == (S.ALREADY_EXISTS, "idempotency_conflict")


@pytest.mark.requirement("mailbox.same-key-same-receipt")
async def test_duplicates_and_conflicts_of_every_keyed_call(served: ServedMailbox) -> None:
    asked = await served.request("ann", "bob", key="k")
    assert (await served.request("ann", "bob", key="k")).request_id == asked.request_id
    sent = await served.send("ann", "bob", key="k")
    again = await served.send("ann", "bob", key="k")
    assert (again.record_id, again.duplicate) == (sent.record_id, True)
    taken = await served.claim("bob", idempotency_key="k")
    repeated = await served.claim("bob", idempotency_key="k")
    assert (repeated.claim.token, repeated.duplicate) == (taken.claim.token, True)
    await served.reply("bob", asked.request_id, idempotency_key="k")
    assert (await served.reply("bob", asked.request_id, idempotency_key="k")).duplicate
    for call in (
        served.request("ann", "bob", "other", key="k"),
        served.send("ann", "cyd", key="k"),
        served.claim("bob", idempotency_key="k", term_ms=2000),
        served.reply("bob", asked.request_id, "other", idempotency_key="k"),
    ):
        conflict = await refused(call)
        assert (conflict.status, conflict.reason) == (S.ALREADY_EXISTS, "idempotency_conflict")


# --- refusals ---------------------------------------------------------------------------------------------------------

INVALID: list[tuple[str, str, Any, grpc.StatusCode, str]] = [
    ("ann", "Send", {"target": "bob", "body": " "}, S.INVALID_ARGUMENT, "invalid_message"),
    ("ann", "Send", {"target": "bob", "body": "x" * (BODY_BYTES_MAX + 1)}, S.INVALID_ARGUMENT, "invalid_message"),
    (
        "ann",
        "Send",
        {"target": "bob", "body": "x", "idempotency_key": ""},
        S.INVALID_ARGUMENT,
        "invalid_idempotency_key",
    ),
    (
        "ann",
        "Send",
        {"target": "bob", "body": "x", "idempotency_key": "k" * (KEY_BYTES_MAX + 1)},
        S.INVALID_ARGUMENT,
        "invalid_idempotency_key",
    ),
    ("ann", "Send", {"target": "", "body": "x"}, S.INVALID_ARGUMENT, "invalid_target"),
    ("ann", "Send", {"target": "ALL", "body": "x"}, S.INVALID_ARGUMENT, "invalid_target"),
    ("ann", "Send", {"target": " bob", "body": "x"}, S.INVALID_ARGUMENT, "invalid_target"),
    ("ann", "Send", {"target": "nobody", "body": "x"}, S.NOT_FOUND, "not_found"),
    ("ann", "Send", {"target": "Bob", "body": "x"}, S.NOT_FOUND, "not_found"),
    ("ann", "Send", {"target": "eve", "body": "x"}, S.NOT_FOUND, "not_found"),
    ("ann", "Send", {"target": uuid_of("eve"), "body": "x"}, S.NOT_FOUND, "not_found"),
    ("ann", "Request", {"target": "ann", "body": "x"}, S.INVALID_ARGUMENT, "self_request"),
    ("ann", "Request", {"target": "bob", "body": "x", "completion": 9}, S.INVALID_ARGUMENT, "invalid_argument"),
    ("ann", "Receive", {"limit": PAGE_RECORDS_MAX + 1}, S.INVALID_ARGUMENT, "invalid_limit"),
    ("ann", "Receive", {"limit": -1}, S.INVALID_ARGUMENT, "invalid_limit"),
    ("ann", "Receive", {"page_bytes_max": PAGE_BYTES_MAX + 1}, S.INVALID_ARGUMENT, "invalid_limit"),
    ("ann", "Receive", {"timeout_ms": WAIT_MS_MAX + 1}, S.INVALID_ARGUMENT, "invalid_timeout"),
    ("ann", "Receive", {"cursor": "x"}, S.INVALID_ARGUMENT, "invalid_cursor"),
    ("ann", "Receive", {"ack_cursor": "cur_" + "A" * 43}, S.FAILED_PRECONDITION, "expired_cursor"),
    ("ann", "Wait", {"timeout_ms": -1}, S.INVALID_ARGUMENT, "invalid_timeout"),
    ("ann", "Reply", {"request_id": "ask_x", "body": "x", "status": DONE}, S.NOT_FOUND, "not_found"),
    ("ann", "Reply", {"request_id": "ask_" + "0" * 32, "body": "x", "status": DONE}, S.NOT_FOUND, "not_found"),
    (
        "ann",
        "Reply",
        {"request_id": "inf_" + "0" * 32, "body": "x", "status": DONE},
        S.FAILED_PRECONDITION,
        "invalid_task",
    ),
    ("ann", "Reply", {"request_id": "ask_" + "0" * 32, "body": "x"}, S.INVALID_ARGUMENT, "invalid_argument"),
    ("ann", "SettleKey", {"epoch": "e"}, S.INVALID_ARGUMENT, "invalid_argument"),
    ("ann", "GetRecord", {"record_id": ""}, S.NOT_FOUND, "not_found"),
    ("ann", "Explain", {"record_id": "ask_" + "0" * 32}, S.NOT_FOUND, "not_found"),
    ("ann", "ListRecords", {"page_size": LISTING_RECORDS_MAX + 1}, S.INVALID_ARGUMENT, "invalid_limit"),
    ("ann", "ListRecords", {"page_token": "x"}, S.INVALID_ARGUMENT, "invalid_cursor"),
    ("ann", "ListRecords", {"page_token": "9" * 19}, S.INVALID_ARGUMENT, "invalid_cursor"),
    ("ann", "ListRecords", {"agent_id": uuid_of("bob")}, S.PERMISSION_DENIED, "permission_denied"),
    ("ann", "ListRecords", {"agent_id": "bob"}, S.INVALID_ARGUMENT, "invalid_argument"),
    ("ann", "ListRecords", {"direction": 7}, S.INVALID_ARGUMENT, "invalid_argument"),
    ("operator", "ListRecords", {}, S.NOT_FOUND, "not_found"),
    ("ann", "ListReaders", {"agent_ids": ["bob"]}, S.INVALID_ARGUMENT, "invalid_argument"),
    ("ann", "ListReaders", {"agent_ids": [uuid_of("bob")] * (READERS_MAX + 1)}, S.INVALID_ARGUMENT, "invalid_limit"),
    ("service", "OpenGeneration", {"agent_id": "bob", "generation": 2}, S.INVALID_ARGUMENT, "invalid_argument"),
    # The mirror may only be behind: that it does not know an agent says nothing of the agent.
    (
        "service",
        "OpenGeneration",
        {"agent_id": uuid_of("x"), "generation": 2},
        S.UNAVAILABLE,
        "dependency_unavailable",
    ),
    ("service", "OpenGeneration", {"agent_id": uuid_of("bob")}, S.INVALID_ARGUMENT, "invalid_limit"),
    ("service", "OpenGeneration", {"agent_id": uuid_of("bob"), "generation": -5}, S.INVALID_ARGUMENT, "invalid_limit"),
    ("service", "Claim", {"kind": 0}, S.INVALID_ARGUMENT, "invalid_argument"),
    ("service", "Claim", {"agent_id": "bob"}, S.INVALID_ARGUMENT, "invalid_argument"),
    ("service", "Claim", {"dispatcher_id": ""}, S.INVALID_ARGUMENT, "invalid_argument"),
    ("service", "Claim", {"generation": 0}, S.INVALID_ARGUMENT, "invalid_limit"),
    ("service", "Claim", {"incarnation": 0}, S.INVALID_ARGUMENT, "invalid_limit"),
    ("service", "Claim", {"term_ms": CLAIM_TERM_MS_MAX + 1}, S.INVALID_ARGUMENT, "invalid_limit"),
    ("service", "Claim", {"high_water": -1}, S.INVALID_ARGUMENT, "invalid_limit"),
    ("service", "Claim", {"idempotency_key": ""}, S.INVALID_ARGUMENT, "invalid_idempotency_key"),
    ("service", "Claim", {"agent_id": uuid_of("nobody")}, S.UNAVAILABLE, "dependency_unavailable"),
    ("service", "Release", {"token": "x", "generation": 1, "proof": "p"}, S.ABORTED, "stale_claim"),
    ("service", "Release", {"token": "0" * 32, "generation": 1, "proof": ""}, S.INVALID_ARGUMENT, "invalid_limit"),
    (
        "service",
        "Release",
        {"token": "0" * 32, "generation": 1, "proof": "p" * (EVIDENCE_BYTES_MAX + 1)},
        S.INVALID_ARGUMENT,
        "invalid_limit",
    ),
    (
        "service",
        "Finish",
        {"token": "0" * 32, "generation": 1, "outcome": 1, "evidence": "e"},
        S.ABORTED,
        "stale_claim",
    ),
    (
        "service",
        "Finish",
        {"token": "0" * 32, "generation": 1, "evidence": "e"},
        S.INVALID_ARGUMENT,
        "invalid_argument",
    ),
    ("ann", "Withdraw", {"request_id": "x"}, S.NOT_FOUND, "not_found"),
    ("ann", "Withdraw", {"request_id": "ask_" + "0" * 32}, S.NOT_FOUND, "not_found"),
    ("ann", "Withdraw", {"request_id": "prm_" + "0" * 32}, S.FAILED_PRECONDITION, "invalid_task"),
    ("ann", "Reply", {"request_id": "prm_" + "0" * 32, "body": "x", "status": DONE}, *NO_TASK),
    ("operator", "Prompt", {"target": "bob", "body": " "}, S.INVALID_ARGUMENT, "invalid_message"),
    ("operator", "Prompt", {"target": "bob", "body": "x" * (BODY_BYTES_MAX + 1)}, *BAD_MESSAGE),
    ("operator", "Prompt", {"target": "nobody", "body": "x"}, S.NOT_FOUND, "not_found"),
    ("operator", "Prompt", {"target": uuid_of("nobody"), "body": "x"}, S.NOT_FOUND, "not_found"),
    ("operator", "Prompt", {"target": "all", "body": "x"}, S.INVALID_ARGUMENT, "invalid_target"),
    ("operator", "Prompt", {"target": "bob", "project_id": "x", "body": "x"}, *MALFORMED),
    ("operator", "Prompt", {"target": "bob", "body": "x", "idempotency_key": ""}, *BAD_KEY),
    ("operator", "ResolveDelivery", {"record_id": "x", "resolution": 1}, S.NOT_FOUND, "not_found"),
    ("operator", "ResolveDelivery", {"record_id": "ask_" + "0" * 32, "resolution": 1}, S.NOT_FOUND, "not_found"),
    ("operator", "ResolveDelivery", {"record_id": "ask_" + "0" * 32}, *MALFORMED),
    ("operator", "ResolveDelivery", {"record_id": "ask_" + "0" * 32, "resolution": 9}, *MALFORMED),
    (
        "operator",
        "ResolveDelivery",
        {"record_id": "ask_" + "0" * 32, "resolution": 1, "note": "x" * (NOTE_BYTES_MAX + 1)},
        S.INVALID_ARGUMENT,
        "invalid_limit",
    ),
    ("service", "RecordOutcome", {"token": "x"}, S.INVALID_ARGUMENT, "invalid_binding"),
    ("service", "RecordOutcome", {"token": "x", "binding": TURN}, *MALFORMED),
    ("service", "RecordOutcome", {"token": "x", "binding": TURN, "outcome": 9}, *MALFORMED),
    ("service", "RecordOutcome", {"token": "x", "binding": TURN, "outcome": 1}, S.INVALID_ARGUMENT, "invalid_limit"),
    (
        "service",
        "RecordOutcome",
        {"token": "x", "binding": TURN, "outcome": 1, "evidence": "e"},
        S.ABORTED,
        "stale_claim",
    ),
    (
        "service",
        "RecordOutcome",
        {"token": "x", "binding": TURN, "outcome": 1, "evidence": "e", "final_text": "x" * (BODY_BYTES_MAX + 1)},
        S.INVALID_ARGUMENT,
        "invalid_limit",
    ),
    ("service", "ReportOwners", {"dispatcher_id": "x"}, *MALFORMED),
    ("service", "ReportOwners", {"dispatcher_id": uuid_of("d")}, S.INVALID_ARGUMENT, "invalid_limit"),
    (
        "service",
        "ReportOwners",
        {"dispatcher_id": uuid_of("d"), "incarnation": 1},
        S.FAILED_PRECONDITION,
        "invalid_state",
    ),
    ("service", "ListBindings", {"dispatcher_id": ""}, *MALFORMED),
    (
        "service",
        "ListBindings",
        {"dispatcher_id": uuid_of("d"), "page_size": BINDINGS_LISTED_MAX + 1},
        S.INVALID_ARGUMENT,
        "invalid_limit",
    ),
    (
        "service",
        "ListBindings",
        {"dispatcher_id": uuid_of("d"), "page_token": "x"},
        S.INVALID_ARGUMENT,
        "invalid_cursor",
    ),
    ("service", "WatchWork", {"dispatcher_id": "x"}, *MALFORMED),
    ("service", "WatchWork", {"agent_ids": ["bob"]}, S.INVALID_ARGUMENT, "invalid_argument"),
    (
        "service",
        "WatchWork",
        {"agent_ids": [uuid_of("bob")] * (WATCHED_AGENTS_MAX + 1)},
        S.INVALID_ARGUMENT,
        "invalid_limit",
    ),
]


def asking(served: ServedMailbox, method: str, fields: dict[str, Any]) -> Any:
    kind = getattr(pb, f"{method}Request")
    if method == "Claim":
        request = served.claiming("bob")
        request.MergeFrom(pb.ClaimRequest(**fields))
        for name, value in fields.items():
            setattr(request, name, value)
        return request
    if "idempotency_key" in kind.DESCRIPTOR.fields_by_name:
        fields = {"idempotency_key": served.key(), **fields}
    return kind(**fields)


@pytest.mark.requirement("mailbox.bad-input-is-refused-and-changes-nothing")
async def test_bad_input_has_its_status_and_reason_and_changes_nothing(served: ServedMailbox) -> None:
    newest = served.mailbox.store.read.newest_sequence()
    for who, method, fields, status, reason in INVALID:
        answer = await refused(served.call(who, method, asking(served, method, fields)))
        assert (answer.status, answer.reason) == (status, reason), (method, fields)
        assert answer.text
        assert "remove" not in answer.everything().lower()
        assert "delete" not in answer.everything().lower()
    assert served.mailbox.store.read.newest_sequence() == newest
    assert served.mailbox.store.read.floor(b"b" * 16) == 1


async def test_a_near_miss_is_named_to_whoever_may_see_it(served: ServedMailbox) -> None:
    answer = await refused(served.send("ann", "BOB"))
    assert answer.detail.state["near"] == "bob"
    assert "bob" in answer.detail.hint
    assert not (await refused(served.send("ann", "EVE"))).detail.state


async def test_states_that_do_not_allow_a_call_refuse_it(served: ServedMailbox) -> None:
    asked = await served.request("ann", "bob")
    sent = await served.send("ann", "bob")
    wrong = await refused(served.reply("ann", asked.request_id))
    assert (wrong.status, wrong.reason) == (S.PERMISSION_DENIED, "unauthorized")
    unseen = await refused(served.reply("cyd", asked.request_id))
    assert (unseen.status, unseen.reason) == (S.NOT_FOUND, "not_found")
    no_task = await refused(served.reply("bob", "ask_" + sent.record_id[4:]))
    assert (no_task.status, no_task.reason) == (S.FAILED_PRECONDITION, "invalid_task")
    await served.reply("bob", asked.request_id)
    other = await refused(served.reply("bob", asked.request_id, "other"))
    assert (other.status, other.reason) == (S.ALREADY_EXISTS, "conflicting_reply")
    await served.request("ann", "bob")
    token = (await served.claim("bob")).claim.token
    unfit = await refused(served.finish(token, pb.CLAIM_OUTCOME_VISIBLE))
    assert (unfit.status, unfit.reason) == (S.FAILED_PRECONDITION, "invalid_state")
    await served.finish(token, pb.CLAIM_OUTCOME_ACCEPTED)
    demoted = await refused(served.finish(token, pb.CLAIM_OUTCOME_FAILED))
    assert (demoted.status, demoted.reason) == (S.ALREADY_EXISTS, "conflicting_outcome")
    assert demoted.detail.state["claim"] == "accepted"
    stale = await refused(served.finish(token, pb.CLAIM_OUTCOME_ACCEPTED, generation=2))
    assert (stale.status, stale.reason) == (S.ABORTED, "stale_claim")
    await served.claim("cyd", incarnation=2)
    older = await refused(served.claim("bob", incarnation=1))
    assert (older.status, older.reason) == (S.ABORTED, "stale_incarnation")
    somebody = await refused(served.call("eve", "GetRecord", pb.GetRecordRequest(record_id=sent.record_id)))
    assert (somebody.status, somebody.reason) == (S.NOT_FOUND, "not_found")


async def test_where_sessions_is_silent_the_unknown_is_unavailable_and_may_be_resent(served: ServedMailbox) -> None:
    served.sessions.down = True
    for call in (
        served.send("ann", "nobody"),
        served.call("stranger", "Describe", pb.DescribeRequest()),
    ):
        down = await refused(call)
        assert (down.status, down.reason) == (S.UNAVAILABLE, "dependency_unavailable")
        assert down.detail.may_resend
    assert (await served.send("ann", "bob")).record_id


@pytest.mark.requirement("mailbox.a-stale-directory-resolves-no-name")
async def test_a_stale_directory_honours_no_operator_and_agents_go_on_by_uuid(served: ServedMailbox) -> None:
    sent = await served.send("ann", "bob")
    served.sessions.down = True
    await served.clock.advance(MIRROR_AGE_MS_MAX / 1000 + 1)
    for method, request in (
        ("GetRecord", pb.GetRecordRequest(record_id=sent.record_id)),
        ("Explain", pb.ExplainRequest(record_id=sent.record_id)),
        ("ListRecords", pb.ListRecordsRequest(agent_id=uuid_of("bob"))),
        ("ListReaders", pb.ListReadersRequest(agent_ids=[uuid_of("bob")])),
        ("OpenGeneration", pb.OpenGenerationRequest(agent_id=uuid_of("bob"), generation=2)),
        ("Prompt", pb.PromptRequest(target=uuid_of("bob"), body="x", idempotency_key="k")),
        (
            "ResolveDelivery",
            pb.ResolveDeliveryRequest(record_id=sent.record_id, resolution=pb.RESOLUTION_DONE, idempotency_key="k"),
        ),
    ):
        stale = await refused(served.call("operator", method, request))
        assert (stale.status, stale.reason) == (S.UNAVAILABLE, "dependency_unavailable"), method
    assert (await refused(served.send("ann", "bob"))).reason == "dependency_unavailable"
    assert (await served.send("ann", uuid_of("bob"))).record_id
    assert len((await served.receive("bob")).records) == 2


# --- what nobody can do -----------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.nobody-speaks-for-another")
def test_no_request_of_an_agent_has_a_field_that_could_name_its_sender() -> None:
    for method in ("Send", "Request", "Receive", "Wait", "Reply", "SettleKey", "Withdraw"):
        (found,) = [one for one in DESCRIPTOR.methods if one.name == method]
        names = {field.name for field in found.input_type.fields}
        assert not names & {"sender", "from", "origin", "agent_id", "caller", "author"}, method


@pytest.mark.requirement("mailbox.nobody-speaks-for-another")
async def test_a_field_that_the_contract_does_not_have_is_ignored_and_forges_nothing(served: ServedMailbox) -> None:
    known = pb.SendRequest(target="bob", body="text", idempotency_key="k").SerializeToString()
    # Field 15, a string: "ann". Whatever a client calls it, the sender is the credential's.
    forged = pb.SendRequest.FromString(known + b"\x7a\x03ann")
    await served.call("cyd", "Send", forged)
    (record,) = (await served.receive("bob")).records
    assert record.sender.name == "cyd"


@pytest.mark.requirement("mailbox.errors-hold-no-body")
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    body=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60).map(lambda text: f"{text}MaRkEr{text}")
)
def test_no_refusal_repeats_a_body_a_key_or_a_token(body: str) -> None:
    asyncio.run(_refusals_of(body))


async def _refusals_of(body: str) -> None:
    with short_home() as home:
        served = ServedMailbox(home)
        await served.start()
        try:
            asked = await served.request("ann", "bob", body)
            await served.reply("bob", asked.request_id, body)
            await served.send("ann", "bob", body, key="MaRkEr-key")
            long = body + "x" * BODY_BYTES_MAX
            for call in (
                served.send("ann", "nobody", body),
                served.send("ann", "bob", long),
                served.send("ann", "bob", body + "!", key="MaRkEr-key"),
                served.send("ann", "bob", body, key="MaRkEr" * 50),
                served.request("ann", "ann", body),
                served.reply("bob", asked.request_id, body + "!"),
                served.reply("ann", asked.request_id, body),
                served.reply("bob", "ask_MaRkEr", body),
                served.receive("bob", cursor="cur_MaRkEr"),
                served.call("MaRkEr", "Describe", pb.DescribeRequest()),
                served.finish("MaRkEr", pb.CLAIM_OUTCOME_ACCEPTED, evidence="MaRkEr"),
                served.finish("MaRkEr", pb.CLAIM_OUTCOME_ACCEPTED, evidence="MaRkEr" * 500),
            ):
                assert "MaRkEr" not in (await refused(call)).everything()
        finally:
            await served.stop()


# --- restarts ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.receipt-means-on-disk")
async def test_a_restart_keeps_records_keys_cursors_claims_lives_and_directory(served: ServedMailbox) -> None:
    sent = await served.send("ann", "bob", "one", key="s")
    page = await served.receive("bob")
    asked = await served.request("ann", "bob", "two", key="r")
    taken = (await served.claim("bob")).claim
    await served.call("service", "OpenGeneration", pb.OpenGenerationRequest(agent_id=uuid_of("ann"), generation=2))
    epoch = await served.epoch()
    await served.restart()
    assert await served.epoch() == epoch
    assert (await refused(served.send("ann", "bob", "one", key="s"))).reason == "stale_generation"
    await served.become("ann", 2)
    again = await served.send("ann", "bob", "one", key="s")
    assert (again.record_id, again.duplicate) == (sent.record_id, True)
    replayed = await served.receive("bob", cursor=page.next_cursor, ack_cursor=page.ack_cursor)
    assert list(replayed.records) == []
    assert [item.request_id for item in replayed.open_requests] == [asked.request_id]
    assert (await served.finish(taken.token, pb.CLAIM_OUTCOME_ACCEPTED)).delivery_state == pb.DELIVERY_STATE_ACCEPTED
    assert again.recipient_reader == pb.RECIPIENT_READER_MANUAL, "when it was last read was written down at the stop"


@pytest.mark.requirement("mailbox.a-claim-ends-with-its-term")
async def test_claims_expire_by_themselves_while_the_service_runs(served: ServedMailbox) -> None:
    asked = await served.request("ann", "bob")
    await served.claim("bob", term_ms=1000)
    async with asyncio.timeout(5):
        while True:
            await served.clock.advance(1)
            ask = pb.GetRecordRequest(record_id=asked.request_id)
            state = (await served.call("ann", "GetRecord", ask)).record.delivery_state
            if state == pb.DELIVERY_STATE_UNCERTAIN:
                break


@pytest.mark.requirement("mailbox.one-reader-at-most")
async def test_receive_and_claim_race_and_each_request_is_exposed_once(served: ServedMailbox) -> None:
    asked = {(await served.request("ann", "bob", f"{n}")).request_id for n in range(60)}
    claimed: list[str] = []
    received: list[str] = []

    async def claims() -> None:
        while (answer := await served.claim("bob")).HasField("claim"):
            claimed.append(answer.claim.record.record_id)

    async def reads() -> None:
        cursor = ""
        while (page := await served.receive("bob", cursor=cursor, limit=1)).records:
            received.extend(record.record_id for record in page.records)
            cursor = page.next_cursor

    async with asyncio.timeout(20):
        await asyncio.gather(claims(), reads())
    assert sorted([*claimed, *received]) == sorted(asked)
