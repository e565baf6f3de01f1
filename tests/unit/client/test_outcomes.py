"""What a mutation of the mailbox can end in, and that no ending is mistaken for another."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from fencepost import NotWritten, Refused, Uncertain
from fencepost.client import Budgets, Channels, Mailbox
from fencepost.common.v1 import common_pb2
from fencepost.home import MAILBOX
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost_testing.fake_mailbox import TOKEN, FakeMailbox, detail, die, fail, hang, loss_noticed, refuse

SEND = pb.SendRequest(target="bob", body="a secret body", idempotency_key="k1")
ASK = pb.RequestRequest(target="bob", body="a secret body", idempotency_key="k1")
ANSWER = pb.ReplyRequest(request_id="ask_1", status=pb.REPLY_STATUS_DONE, body="a secret body", idempotency_key="k1")
CODES_THAT_PROVE_NOTHING = [
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNIMPLEMENTED,
]


@pytest.mark.requirement("client.done-carries-the-receipt")
async def test_a_call_that_succeeds_returns_the_receipt_and_presents_the_credential(
    fake: FakeMailbox, client: Mailbox
) -> None:
    receipt = await client.send(SEND)
    assert receipt.record_id == "inf_1"
    assert set(fake.tokens) == {f"Bearer {TOKEN}"}
    assert fake.calls == ["Describe", "Send"]


async def test_the_epoch_is_asked_for_once_and_not_before_every_call(fake: FakeMailbox, client: Mailbox) -> None:
    for number in range(3):
        await client.send(pb.SendRequest(target="bob", body="x", idempotency_key=f"k{number}"))
    assert fake.calls == ["Describe", "Send", "Send", "Send"]


@pytest.mark.requirement("client.refused-only-with-the-detail")
async def test_a_status_with_the_detail_is_refused_with_its_reason_hint_and_state(
    fake: FakeMailbox, client: Mailbox
) -> None:
    fake.next("Send", refuse("stale_generation", grpc.StatusCode.ABORTED))
    with pytest.raises(Refused) as caught:
        await client.send(SEND)
    assert caught.value.reason == "stale_generation"
    assert caught.value.hint == "Do something else."
    assert caught.value.state == {"generation": "4"}
    assert fake.records == {}
    assert "SettleKey" not in fake.calls


@pytest.mark.requirement("client.may-resend-is-resent-with-the-same-key")
async def test_unavailable_with_the_detail_is_sent_again_with_the_same_key(fake: FakeMailbox, client: Mailbox) -> None:
    busy = refuse("draining", grpc.StatusCode.UNAVAILABLE, may_resend=True)
    fake.next("Send", busy, busy)
    receipt = await client.send(SEND)
    assert receipt.record_id == "inf_1"
    assert [request.idempotency_key for request in fake.requests if isinstance(request, pb.SendRequest)] == ["k1"] * 3
    assert "SettleKey" not in fake.calls


@pytest.mark.requirement("client.may-resend-is-resent-with-the-same-key")
async def test_a_service_that_stays_busy_is_refused_once_the_budget_is_spent(
    fake: FakeMailbox, channels: Channels
) -> None:
    fake.next("Send", *[refuse("overloaded", grpc.StatusCode.RESOURCE_EXHAUSTED, may_resend=True)] * 50)
    client = Mailbox(channels, TOKEN, budgets=Budgets(ready_ms=300))
    with pytest.raises(Refused) as caught:
        await client.send(SEND)
    assert caught.value.may_resend
    assert fake.records == {}


@pytest.mark.requirement("client.status-without-the-detail-is-settled")
@pytest.mark.parametrize("code", CODES_THAT_PROVE_NOTHING, ids=lambda code: code.name)
async def test_no_status_code_alone_proves_anything_so_the_key_is_settled(
    fake: FakeMailbox, client: Mailbox, code: grpc.StatusCode
) -> None:
    fake.next("Send", fail(code))
    with pytest.raises(NotWritten) as caught:
        await client.send(SEND)
    assert caught.value.key_spent
    assert fake.cancelled == {"k1"}
    assert fake.calls.count("Send") == 1


@pytest.mark.requirement("client.refused-only-with-the-detail")
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff\xff not protobuf",
        detail("not_found", effect=common_pb2.EFFECT_UNSPECIFIED),
        detail(""),
        detail("x" * 20_000),
    ],
    ids=["empty", "garbage", "no effect", "no reason", "too large"],
)
async def test_a_detail_that_does_not_say_not_written_is_no_refusal(
    fake: FakeMailbox, client: Mailbox, raw: bytes
) -> None:
    fake.next("Send", fail(grpc.StatusCode.NOT_FOUND, ("grpc-status-details-bin", raw)))
    with pytest.raises(NotWritten):
        await client.send(SEND)
    assert fake.calls.count("SettleKey") == 1


@pytest.mark.requirement("client.lost-answer-settles-to-the-receipt")
@pytest.mark.parametrize(
    ("method", "request_", "receipt"),
    [("send", SEND, 'record_id: "inf_1"'), ("request", ASK, 'request_id: "ask_1"'), ("reply", ANSWER, "record_id")],
    ids=["send", "request", "reply"],
)
async def test_a_server_that_dies_after_writing_settles_to_the_receipt_without_a_second_call(
    fake: FakeMailbox, client: Mailbox, method: str, request_: Any, receipt: str
) -> None:
    fake.next(method.capitalize(), die(written=True))
    answer = await getattr(client, method)(request_)
    assert receipt in str(answer)
    assert fake.calls.count(method.capitalize()) == 1
    assert len(fake.records) == 1


@pytest.mark.requirement("client.lost-answer-settles-to-not-written")
async def test_a_server_that_dies_before_writing_settles_to_not_written_and_a_spent_key(
    fake: FakeMailbox, client: Mailbox
) -> None:
    fake.next("Send", die(written=False))
    with pytest.raises(NotWritten) as caught:
        await client.send(SEND)
    assert caught.value.reason == "not_written"
    assert caught.value.key_spent
    assert fake.calls.count("Send") == 1
    assert fake.records == {}


@pytest.mark.requirement("client.unsettled-is-uncertain")
async def test_another_store_epoch_after_the_loss_is_uncertain(fake: FakeMailbox, client: Mailbox) -> None:
    await client.describe()
    fake.epoch = "epoch-2"
    fake.next("Send", fail(grpc.StatusCode.INTERNAL))
    with pytest.raises(Uncertain) as caught:
        await client.send(SEND)
    assert caught.value.reason == "delivery_uncertain"
    assert caught.value.state["settling"] == "other_epoch"
    assert fake.calls.count("Send") == 1
    # The next call is made under the epoch that is now true.
    fake.next("Send", die(written=True))
    assert (await client.send(pb.SendRequest(target="bob", body="x", idempotency_key="k2"))).record_id == "inf_1"


@pytest.mark.requirement("client.unsettled-is-uncertain")
async def test_a_server_that_does_not_come_back_in_time_is_uncertain(fake: FakeMailbox, channels: Channels) -> None:
    fake.next("Send", die(written=True, restart=False))
    client = Mailbox(channels, TOKEN, budgets=Budgets(settle_ms=400))
    with pytest.raises(Uncertain) as caught:
        await client.send(SEND)
    assert caught.value.state["settling"] == "unreachable"
    assert fake.calls.count("Send") == 1


@pytest.mark.requirement("client.unsettled-is-uncertain")
async def test_a_settlement_that_is_refused_for_good_is_uncertain(fake: FakeMailbox, client: Mailbox) -> None:
    fake.next("Send", fail(grpc.StatusCode.INTERNAL))
    fake.next("SettleKey", refuse("unauthenticated", grpc.StatusCode.UNAUTHENTICATED))
    with pytest.raises(Uncertain) as caught:
        await client.send(SEND)
    assert caught.value.state["settling"] == "unauthenticated"


@pytest.mark.requirement("client.unsettled-is-uncertain")
async def test_a_receipt_of_another_call_is_not_taken_for_ours(fake: FakeMailbox, client: Mailbox) -> None:
    fake.next("Reply", fail(grpc.StatusCode.INTERNAL))
    fake.settlement = pb.SettleKeyResponse(settlement=pb.SETTLEMENT_WRITTEN, send=pb.SendResponse(record_id="inf_9"))
    with pytest.raises(Uncertain) as caught:
        await client.reply(ANSWER)
    assert caught.value.state["settling"] == "invalid_receipt"


@pytest.mark.requirement("client.lost-answer-settles-to-the-receipt")
async def test_settling_goes_on_through_a_busy_service_and_a_second_loss(fake: FakeMailbox, client: Mailbox) -> None:
    fake.next("Send", die(written=True))
    busy = refuse("draining", grpc.StatusCode.UNAVAILABLE, may_resend=True)
    fake.next("SettleKey", busy, fail(grpc.StatusCode.UNAVAILABLE))
    assert (await client.send(SEND)).record_id == "inf_1"
    assert fake.calls.count("SettleKey") == 3
    assert fake.calls.count("Send") == 1


async def test_a_key_that_holds_other_content_is_refused_while_settling(fake: FakeMailbox, client: Mailbox) -> None:
    fake.next("Send", fail(grpc.StatusCode.INTERNAL))
    fake.next("SettleKey", refuse("idempotency_conflict", grpc.StatusCode.ALREADY_EXISTS))
    with pytest.raises(Refused) as caught:
        await client.send(SEND)
    assert caught.value.reason == "idempotency_conflict"


@pytest.mark.requirement("client.status-without-the-detail-is-settled")
async def test_a_service_that_does_not_answer_by_the_deadline_is_settled(fake: FakeMailbox, channels: Channels) -> None:
    fake.next("Send", hang())
    client = Mailbox(channels, TOKEN, budgets=Budgets(call_ms=200))
    with pytest.raises(NotWritten) as caught:
        await client.send(SEND)
    assert caught.value.state["lost"] == "deadline_exceeded"
    assert fake.cancelled == {"k1"}


@pytest.mark.requirement("client.no-connection-is-not-written")
async def test_without_a_published_address_nothing_leaves_the_process(fake: FakeMailbox, channels: Channels) -> None:
    fake.home.address("mailbox").unlink()
    with pytest.raises(NotWritten) as caught:
        await Mailbox(channels, TOKEN, budgets=Budgets(ready_ms=150)).send(SEND)
    assert caught.value.reason == "not_running"
    assert not caught.value.key_spent
    assert fake.calls == []


@pytest.mark.requirement("client.no-connection-is-not-written")
async def test_a_socket_that_nobody_serves_is_unreachable_and_not_written(
    fake: FakeMailbox, channels: Channels
) -> None:
    await fake.stop()
    with pytest.raises(NotWritten) as caught:
        await Mailbox(channels, TOKEN, budgets=Budgets(ready_ms=150)).send(SEND)
    assert caught.value.reason == "unreachable"


@pytest.mark.requirement("client.no-connection-is-not-written")
async def test_a_service_that_starts_within_the_budget_is_waited_for(fake: FakeMailbox, client: Mailbox) -> None:
    await fake.stop()
    fake.home.address("mailbox").unlink()
    sending = asyncio.create_task(client.send(SEND))
    await asyncio.sleep(0)
    await fake.start()
    assert (await sending).record_id == "inf_1"


@pytest.mark.requirement("client.reconnect-reads-the-published-address")
async def test_a_service_that_comes_back_at_another_address_is_found_there(
    fake: FakeMailbox, client: Mailbox, channels: Channels
) -> None:
    await client.send(SEND)
    before = await channels.ready(MAILBOX, within_ms=2_000)
    await fake.stop()
    await loss_noticed(before)
    await fake.start(socket_name="elsewhere.sock")
    again = pb.SendRequest(target="bob", body="x", idempotency_key="k2")
    assert (await client.send(again)).record_id == "inf_2"


@pytest.mark.requirement("client.errors-hold-no-body-and-no-secret")
async def test_no_error_repeats_the_body_or_the_credential(fake: FakeMailbox, client: Mailbox) -> None:
    texts = []
    for script in (fail(grpc.StatusCode.INTERNAL), refuse("not_found", grpc.StatusCode.NOT_FOUND)):
        fake.next("Send", script)
        with pytest.raises((Refused, NotWritten)) as caught:
            await client.send(SEND)
        texts.append(f"{caught.value!r} {caught.value} {caught.value.hint} {dict(caught.value.state)}")
    assert not any("secret body" in text or TOKEN in text for text in texts)


async def test_a_claim_whose_answer_is_lost_is_uncertain_at_once(fake: FakeMailbox, client: Mailbox) -> None:
    fake.next("Claim", fail(grpc.StatusCode.INTERNAL))
    with pytest.raises(Uncertain) as caught:
        await client.claim(pb.ClaimRequest(idempotency_key="k1"))
    assert caught.value.state["idempotency_key"] == "k1"
    assert fake.calls == ["Claim"]


@pytest.mark.requirement("client.reads-are-asked-again")
async def test_a_page_whose_answer_is_lost_is_asked_for_again(fake: FakeMailbox, client: Mailbox) -> None:
    fake.next("Receive", die(written=False))
    assert (await client.receive(pb.ReceiveRequest(cursor="c", timeout_ms=500))).high_water == 7
    assert fake.calls == ["Receive", "Receive"]
    assert fake.requests[1].cursor == "c"
    assert 0 <= fake.requests[1].timeout_ms < 500


@pytest.mark.requirement("client.reads-are-asked-again")
async def test_a_wait_is_passed_on_unchanged_when_nothing_is_lost(fake: FakeMailbox, client: Mailbox) -> None:
    asked = pb.WaitRequest(timeout_ms=60_000)
    assert (await client.wait(asked)).timed_out
    assert fake.requests[0].timeout_ms == asked.timeout_ms == 60_000


@pytest.mark.requirement("client.reads-are-asked-again")
async def test_a_read_that_is_never_answered_is_not_written_and_a_page_uncertain(
    fake: FakeMailbox, channels: Channels
) -> None:
    client = Mailbox(channels, TOKEN, budgets=Budgets(call_ms=200))
    fake.next("Describe", hang())
    fake.next("Receive", hang())
    with pytest.raises(NotWritten) as read:
        await client.describe()
    assert read.value.reason == "deadline_exceeded"
    with pytest.raises(Uncertain):
        await client.receive(pb.ReceiveRequest())


async def test_a_watch_that_is_lost_ends_with_an_error_and_one_that_ends_just_ends(
    fake: FakeMailbox, client: Mailbox
) -> None:
    assert [item.caught_up async for item in client.watch_work(pb.WatchWorkRequest())] == [True]
    fake.next("WatchWork", die(written=False))
    watching = client.watch_work(pb.WatchWorkRequest())
    assert (await anext(watching)).caught_up
    with pytest.raises(NotWritten):
        await anext(watching)


async def test_a_caller_that_is_cancelled_is_cancelled_and_not_answered_with_an_outcome(
    fake: FakeMailbox, client: Mailbox
) -> None:
    fake.next("Send", hang())
    sending = asyncio.create_task(client.send(SEND))
    await asyncio.wait_for(fake.reached("Send"), 5)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
