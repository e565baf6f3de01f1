"""What a transport promises beside the outcomes of calls, which test_outcomes.py proves over each of them."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest

from fencepost import Channels, Client, Home, Identity, Refused
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost.mailbox.v1.mailbox_pb2_grpc import MailboxServiceStub
from fencepost.transports import MESSAGE_BYTES_MAX, TransportName, opener
from fencepost_testing.fake_mailbox import TOKEN, FakeMailbox, hang, loss_noticed

State = grpc.ChannelConnectivity
CALLERS = 300
SEND = pb.SendRequest(target="bob", body="x", idempotency_key="k1")


@pytest.fixture
async def channel(fake: FakeMailbox, transport: TransportName) -> AsyncIterator[grpc.aio.Channel]:
    made = opener(transport)(f"unix:{fake.home.socket('mailbox')}", None)
    yield made
    await made.close()


async def until(channel: grpc.aio.Channel, wanted: grpc.ChannelConnectivity) -> None:
    async with asyncio.timeout(5):
        while (state := channel.get_state(try_to_connect=True)) is not wanted:
            await channel.wait_for_state_change(state)


@pytest.mark.requirement("ways.transports-agree")
async def test_a_channel_connects_when_asked_notices_a_loss_and_connects_again(
    fake: FakeMailbox, channel: grpc.aio.Channel
) -> None:
    assert channel.get_state() is State.IDLE
    await until(channel, State.READY)
    stub = MailboxServiceStub(channel)
    await stub.Describe(pb.DescribeRequest(), timeout=5)
    await fake.stop()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Describe(pb.DescribeRequest(), timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    # The call knows of the loss before the channel says so.
    await loss_noticed(channel)
    await fake.start()
    await until(channel, State.READY)
    await channel.close()
    assert channel.get_state() is State.SHUTDOWN


@pytest.mark.requirement("ways.transports-agree")
async def test_many_calls_share_one_connection(fake: FakeMailbox, channel: grpc.aio.Channel) -> None:
    stub = MailboxServiceStub(channel)
    asks = [pb.SendRequest(target="bob", body="x", idempotency_key=f"k{number}") for number in range(CALLERS)]
    receipts = await asyncio.gather(*(stub.Send(ask, timeout=20) for ask in asks))
    assert len({receipt.record_id for receipt in receipts}) == CALLERS


@pytest.mark.requirement("ways.grpclib-is-bounded")
@pytest.mark.parametrize(("extra", "sent"), [(0, True), (1, False)], ids=["at the limit", "over it"])
async def test_a_request_over_the_limit_does_not_leave(
    fake: FakeMailbox, channel: grpc.aio.Channel, extra: int, sent: bool
) -> None:
    ask = pb.SendRequest(idempotency_key="k")
    ask.body = "x" * (MESSAGE_BYTES_MAX - ask.ByteSize() - 4 + extra)
    assert ask.ByteSize() == MESSAGE_BYTES_MAX + extra
    call = MailboxServiceStub(channel).Send(ask, timeout=20)
    if sent:
        assert (await call).record_id
        return
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert fake.calls == []


@pytest.mark.requirement("ways.grpclib-is-bounded")
@pytest.mark.parametrize(("extra", "taken"), [(0, True), (1, False)], ids=["at the limit", "over it"])
async def test_an_answer_over_the_limit_is_not_taken(
    fake: FakeMailbox, channel: grpc.aio.Channel, extra: int, taken: bool
) -> None:
    receipt = pb.SendResponse()
    receipt.record_id = "x" * (MESSAGE_BYTES_MAX - 4 + extra)
    fake.records["k1"] = receipt
    call = MailboxServiceStub(channel).Send(SEND, timeout=20)
    if taken:
        assert (await call) == receipt
        return
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.requirement("ways.grpclib-is-bounded")
async def test_closing_ends_calls_that_are_open(
    fake: FakeMailbox, channel: grpc.aio.Channel, transport: TransportName
) -> None:
    fake.next("Wait", hang())
    call = MailboxServiceStub(channel).Wait(pb.WaitRequest(), timeout=20)
    await asyncio.wait_for(fake.reached("Wait"), 5)
    await channel.close()
    with pytest.raises((asyncio.CancelledError, grpc.aio.AioRpcError)):
        await asyncio.wait_for(call, 5)


@pytest.mark.requirement("ways.grpclib-is-bounded")
async def test_a_stream_that_is_left_is_ended_at_the_service(fake: FakeMailbox, channel: grpc.aio.Channel) -> None:
    gone = asyncio.Event()

    async def park(_: FakeMailbox, request: object, context: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    fake.next("WatchWork", park)
    watch = MailboxServiceStub(channel).WatchWork(pb.WatchWorkRequest(), timeout=20)
    assert (await watch.read()).caught_up
    await asyncio.wait_for(fake.reached("WatchWork"), 5)
    watch.cancel()
    await asyncio.wait_for(gone.wait(), 5)


@pytest.mark.requirement("ways.transports-agree")
async def test_a_client_of_its_own_loop_in_another_thread_works_over_grpclib(fake: FakeMailbox) -> None:
    found: list[str] = []

    async def main() -> None:
        identity = Identity(token=TOKEN, agent_id=None, source="test")
        async with Client(fake.home, identity, transport="grpclib") as client:
            found.append((await client.send("bob", "x")).record_id)

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    await asyncio.to_thread(thread.join, 10)
    assert found == ["inf_1"]


@pytest.mark.requirement("ways.absent-extra-is-named")
def test_without_its_extra_a_transport_is_refused_by_the_command_that_installs_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "fencepost.transports.over_grpclib", raising=False)
    for name in ("grpclib", "grpclib.client"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(Refused) as caught:
        Channels(home, transport="grpclib")
    assert caught.value.reason == "missing_extra"
    assert "pip install 'fencepost[grpclib]'" in caught.value.hint
    Channels(home)


@pytest.mark.requirement("ways.absent-extra-is-named")
def test_a_transport_that_is_none_is_refused_by_name(home: Home) -> None:
    with pytest.raises(Refused) as caught:
        Channels(home, transport="carrier pigeon")  # type: ignore[arg-type]
    assert caught.value.reason == "invalid_transport"
    assert "grpcio, grpclib" in caught.value.hint
