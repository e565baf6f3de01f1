"""The edge before a mailbox that fails on command, spoken to as a shim speaks."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from typing import Any

import grpc
import pytest

from fencepost.client import Budgets, Channels
from fencepost.home import Home
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost.mcp import answers, calls, registry
from fencepost_kit.files import HomeRefused
from fencepost_kit.serve import SocketInUse
from fencepost_mcp_edge import shims as module
from fencepost_mcp_edge.domain.frames import FRAME_BYTES_MAX
from fencepost_mcp_edge.shims import Limits, Shims
from fencepost_mcp_edge.usecases import outcomes
from fencepost_mcp_edge.usecases.caller import BUDGETS, SETTLE_BUDGETS
from fencepost_mcp_edge.usecases.tools import MUTATIONS, READINGS, WRITES
from fencepost_testing.edge import NONCE, EdgeClient, call_line
from fencepost_testing.fake_mailbox import TOKEN, FakeMailbox, die, fail, hang, refuse

SEND = {"target": "bob", "message": "hello"}
REPLY = {"request_id": "ask_1", "status": "done", "message": "ok"}


def told(result: dict[str, Any]) -> tuple[str, object]:
    assert result["isError"] is True
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    assert set(result["structuredContent"]) == {"code", "message", "hint", "written"}
    return result["structuredContent"]["code"], result["structuredContent"]["written"]


def test_every_tool_has_one_row_of_its_own_kind() -> None:
    rows = [*MUTATIONS, *WRITES, *READINGS]
    assert sorted(rows) == sorted(registry.EVERY_OF)
    assert set(MUTATIONS) == answers.MESSAGES & answers.SETTLES
    settled = {tool.name for tool in registry.EVERY if tool.lost is registry.Lost.SETTLE}
    assert {*MUTATIONS, *WRITES} == answers.SETTLES == settled


@pytest.mark.requirement("edge.shims-are-held-to-the-protocol")
async def test_a_shim_is_greeted_with_epoch_and_registry(home: Home, shims: Shims) -> None:
    async with EdgeClient(home) as client:
        greeting = await client.greet()
    assert greeting["fencepost"] == 1
    assert greeting["epoch"] == ""
    assert greeting["registry"] == answers.REGISTRY_HASH


@pytest.mark.requirement("edge.token-is-forwarded")
async def test_a_call_carries_the_agents_own_token_and_a_key_of_connection_and_id(
    edge: EdgeClient, fake: FakeMailbox
) -> None:
    result = await edge.call(1, "send_message", SEND)
    assert result["structuredContent"]["interaction_id"] == "inf_1"
    assert result["structuredContent"] == json.loads(result["content"][0]["text"])
    assert result["isError"] is False
    assert set(fake.tokens) == {f"Bearer {TOKEN}"}
    assert fake.requests[-1] == pb.SendRequest(target="bob", body="hello", idempotency_key=f"mcp-{NONCE}:1")
    edge.begin(2, "send_message", SEND, identity="1")
    await edge.answer(2)
    assert fake.requests[-1].idempotency_key == f'mcp-{NONCE}:"1"'


@pytest.mark.requirement("mcp.modern-ids-are-free-again")
async def test_a_call_that_names_its_version_has_a_key_of_its_own_number_whatever_its_id(
    edge: EdgeClient, fake: FakeMailbox
) -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    for number in (1, 2):
        edge.begin(number, "send_message", {"target": "bob", "message": "hello"}, identity=7, meta=meta)
        assert (await edge.answer(number))["result"]["structuredContent"]["duplicate"] is False
        assert fake.requests[-1].idempotency_key == f"mcp-{NONCE}:#{number}"
    # Settled under the same number, it is the same call.
    edge.begin(
        1, "send_message", {"target": "bob", "message": "hello"}, how=f"settle {fake.epoch}", identity=7, meta=meta
    )
    assert (await edge.answer(1))["result"]["isError"] is False
    assert fake.requests[-1].send.idempotency_key == f"mcp-{NONCE}:#1"


@pytest.mark.requirement("edge.receipts")
async def test_requests_and_replies_have_their_own_receipts(edge: EdgeClient) -> None:
    request = (await edge.call(1, "followup_task", SEND))["structuredContent"]
    assert (request["operation"], request["request_id"]) == ("followup_task", "ask_1")
    reply = (await edge.call(2, "reply", REPLY))["structuredContent"]
    assert (reply["operation"], reply["request_id"], reply["interaction_id"]) == ("reply", "ask_1", "rep_2")


@pytest.mark.requirement("edge.epoch-is-told-first")
async def test_the_shim_hears_the_epoch_before_the_first_mutation_is_made(edge: EdgeClient, fake: FakeMailbox) -> None:
    fake.next("Send", hang())
    edge.begin(1, "send_message", SEND)
    assert await edge.line() == b"0 epoch epoch-1"
    await fake.reached("Send")
    assert fake.calls == ["Describe", "Send"]
    await edge.call(2, "send_message", SEND)
    assert edge.told == []
    async with EdgeClient(edge.home) as second:
        assert (await second.greet())["epoch"] == "epoch-1"
    edge.begin(1, "send_message", SEND)


@pytest.mark.requirement("mcp.arguments-come-first")
async def test_wrong_arguments_reach_no_service(edge: EdgeClient, fake: FakeMailbox) -> None:
    assert told(await edge.call(1, "send_message", {**SEND, "sender": "x"})) == ("invalid_arguments", False)
    edge.begin(2, "no_such_tool")
    assert (await edge.answer(2))["error"]["code"] == -32602
    edge.begin(3, "send_message", SEND, identity="x" * 250)
    assert (await edge.answer(3))["error"]["code"] == -32600
    assert fake.calls == []


@pytest.mark.requirement("mcp.parked-wait-blocks-nobody")
async def test_a_parked_wait_does_not_hold_up_another_call(edge: EdgeClient, fake: FakeMailbox) -> None:
    fake.next("Wait", hang())
    edge.begin(1, "wait_agent")
    await fake.reached("Wait")
    assert "isError" in await edge.call(2, "send_message", SEND)


@pytest.mark.requirement("edge.error-envelope")
async def test_a_refusal_of_a_service_is_told_with_its_own_reason(edge: EdgeClient, fake: FakeMailbox) -> None:
    fake.next("Send", refuse("not_found", grpc.StatusCode.NOT_FOUND))
    result = await edge.call(1, "send_message", SEND)
    assert told(result) == ("not_found", False)
    assert result["structuredContent"]["hint"] == "Do something else."
    fake.next("Receive", refuse("expired_cursor", grpc.StatusCode.FAILED_PRECONDITION))
    assert told(await edge.call(2, "receive_messages")) == ("expired_cursor", False)


@pytest.mark.requirement("edge.restarts-are-invisible")
@pytest.mark.parametrize(("name", "arguments"), [("send_message", SEND), ("followup_task", SEND), ("reply", REPLY)])
async def test_a_mailbox_that_restarts_after_it_wrote_costs_nothing_but_time(
    edge: EdgeClient, fake: FakeMailbox, name: str, arguments: dict[str, str]
) -> None:
    method = {"send_message": "Send", "followup_task": "Request", "reply": "Reply"}[name]
    fake.next(method, die(written=True))
    result = await edge.call(1, name, arguments)
    assert result["isError"] is False
    assert fake.calls.count(method) == 1
    assert "SettleKey" in fake.calls


@pytest.mark.requirement("edge.error-envelope")
async def test_a_mutation_that_was_lost_before_it_was_written_may_be_called_again(
    edge: EdgeClient, fake: FakeMailbox
) -> None:
    fake.next("Send", die(written=False))
    result = await edge.call(1, "send_message", SEND)
    assert told(result) == ("not_written", False)
    assert "may be called again" in result["structuredContent"]["hint"]
    assert fake.calls.count("Send") == 1


@pytest.mark.requirement("edge.error-envelope")
async def test_a_mutation_of_which_nothing_can_be_learned_is_uncertain(edge: EdgeClient, fake: FakeMailbox) -> None:
    fake.next("Send", fail(grpc.StatusCode.INTERNAL))
    fake.settlement = pb.SettleKeyResponse(settlement=pb.SETTLEMENT_UNKNOWN)
    result = await edge.call(1, "send_message", SEND)
    assert told(result) == ("delivery_uncertain", "unknown")
    assert "Do not send it again" in result["structuredContent"]["hint"]


@pytest.mark.requirement("edge.error-envelope")
async def test_a_receipt_that_makes_no_sense_is_not_passed_on(edge: EdgeClient, fake: FakeMailbox) -> None:
    fake.records[f"mcp-{NONCE}:1"] = pb.SendResponse(record_id="nonsense")
    assert told(await edge.call(1, "send_message", SEND)) == ("invalid_receipt", "unknown")


@pytest.mark.requirement("edge.error-envelope")
async def test_a_defect_of_the_edge_is_told_without_its_text(edge: EdgeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret text")

    monkeypatch.setattr("fencepost_mcp_edge.translate.wait_result", broken)
    result = await edge.call(1, "wait_agent", {"timeout_ms": 0})
    assert told(result) == ("internal_error", False)
    assert "secret" not in json.dumps(result)


@pytest.mark.requirement("edge.calls-are-bounded")
async def test_a_call_that_outlasts_the_edges_budget_is_answered(
    edge: EdgeClient, fake: FakeMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost_mcp_edge.usecases.answer.EDGE_CALL_MS_MAX", 100)
    fake.next("Send", hang())
    fake.next("Wait", hang())
    assert told(await edge.call(1, "send_message", SEND)) == ("delivery_uncertain", "unknown")
    assert told(await edge.call(2, "wait_agent")) == ("control_transport_error", "unknown")


def test_each_budget_ends_before_the_one_around_it() -> None:
    inner = BUDGETS.ready_ms + BUDGETS.call_ms + BUDGETS.settle_ms
    # Before a mutation the epoch may have to be learned, which takes the time of one more call.
    assert inner + BUDGETS.call_ms < outcomes.EDGE_CALL_MS_MAX < calls.CALL_MS_MAX
    assert 2 * SETTLE_BUDGETS.call_ms < outcomes.EDGE_CALL_MS_MAX
    assert registry.WAIT_MS_MAX < outcomes.EDGE_CALL_MS_MAX


@pytest.mark.requirement("edge.settles-what-an-edge-lost")
async def test_a_lost_mutation_is_settled_to_its_receipt_and_not_called(edge: EdgeClient, fake: FakeMailbox) -> None:
    fake.write(pb.SendRequest(idempotency_key=f"mcp-{NONCE}:1"))
    result = await edge.call(1, "send_message", SEND, how="settle epoch-1")
    assert result["structuredContent"]["interaction_id"] == "inf_1"
    assert fake.calls == ["SettleKey"]


@pytest.mark.requirement("edge.settles-what-an-edge-lost")
@pytest.mark.parametrize("epoch", ["epoch-1", "-"])
async def test_a_lost_mutation_that_was_not_written_is_barred_for_ever(
    edge: EdgeClient, fake: FakeMailbox, epoch: str
) -> None:
    assert told(await edge.call(1, "followup_task", SEND, how=f"settle {epoch}")) == ("not_written", False)
    assert fake.cancelled == {f"mcp-{NONCE}:1"}
    assert "Request" not in fake.calls


@pytest.mark.requirement("edge.settles-what-an-edge-lost")
async def test_another_store_cannot_settle(edge: EdgeClient, fake: FakeMailbox) -> None:
    assert told(await edge.call(1, "send_message", SEND, how="settle other")) == ("delivery_uncertain", "unknown")
    fake.next("SettleKey", refuse("unauthenticated", grpc.StatusCode.UNAUTHENTICATED))
    assert told(await edge.call(2, "send_message", SEND, how="settle epoch-1")) == ("delivery_uncertain", "unknown")
    fake.next("SettleKey", refuse("idempotency_conflict", grpc.StatusCode.ALREADY_EXISTS))
    assert told(await edge.call(3, "send_message", SEND, how="settle epoch-1")) == ("idempotency_conflict", False)
    assert fake.cancelled == set()


@pytest.mark.requirement("edge.settles-what-an-edge-lost")
async def test_a_settlement_outlasts_a_restart_of_the_mailbox(edge: EdgeClient, fake: FakeMailbox) -> None:
    fake.next("SettleKey", die(written=False))
    assert told(await edge.call(1, "send_message", SEND, how="settle epoch-1")) == ("not_written", False)


@pytest.mark.requirement("edge.restarts-are-invisible")
async def test_a_stop_of_the_mailbox_does_not_shorten_a_wait(edge: EdgeClient, fake: FakeMailbox) -> None:
    answered = [pb.WaitResponse(wake_reason="draining"), pb.WaitResponse(wake_reason="activity")]
    timeouts: list[int] = []

    async def wait(request: pb.WaitRequest, context: object) -> pb.WaitResponse:
        timeouts.append(request.timeout_ms)
        return answered.pop(0)

    fake.Wait = wait  # type: ignore[method-assign, assignment]
    await fake.stop()
    await fake.start()
    result = await edge.call(1, "wait_agent", {"timeout_ms": 30_000})
    assert result["structuredContent"]["wake_reason"] == "activity"
    assert 0 < timeouts[1] < timeouts[0] == 30_000


@pytest.mark.requirement("edge.restarts-are-invisible")
async def test_a_wait_that_a_stop_of_the_mailbox_cut_at_its_very_end_has_timed_out(
    edge: EdgeClient, fake: FakeMailbox
) -> None:
    async def wait(request: pb.WaitRequest, context: object) -> pb.WaitResponse:
        return pb.WaitResponse(wake_reason="draining")

    fake.Wait = wait  # type: ignore[method-assign, assignment]
    await fake.stop()
    await fake.start()
    result = await edge.call(1, "wait_agent", {"timeout_ms": 10})
    assert result["structuredContent"] == {"operation": "wait_agent", "timed_out": True, "wake_reason": None}


@pytest.mark.requirement("edge.restarts-are-invisible")
async def test_a_wait_waits_for_a_mailbox_that_is_not_there_as_long_as_it_would_have_waited(
    edge: EdgeClient, fake: FakeMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost_mcp_edge.usecases.caller.BUDGETS", Budgets(ready_ms=50, call_ms=50, settle_ms=50))
    await edge.call(1, "wait_agent", {"timeout_ms": 0})
    await fake.stop()
    async with EdgeClient(edge.home) as second:
        await second.greet()
        assert told(await second.call(1, "wait_agent", {"timeout_ms": 0})) == ("control_transport_error", False)
        second.begin(2, "wait_agent", {"timeout_ms": 20_000})
        assert told(await second.call(3, "wait_agent", {"timeout_ms": 200})) == ("control_transport_error", False)
        await fake.start()
        assert (await second.answer(2))["result"]["structuredContent"]["timed_out"] is True


@pytest.mark.requirement("edge.restarts-are-invisible")
async def test_a_wait_survives_the_death_of_the_mailbox(edge: EdgeClient, fake: FakeMailbox) -> None:
    fake.next("Wait", die(written=False))
    result = await edge.call(1, "wait_agent", {"timeout_ms": 20_000})
    assert result["structuredContent"]["timed_out"] is True
    assert fake.calls.count("Wait") == 2


@pytest.mark.requirement("mcp.reads-are-asked-again")
async def test_a_wait_that_is_asked_again_waits_for_what_is_left(edge: EdgeClient, fake: FakeMailbox) -> None:
    await edge.call(1, "wait_agent", {"timeout_ms": 30_000}, how="within 70")
    assert fake.requests[-1].timeout_ms <= 70
    await edge.call(2, "receive_messages", {"timeout_ms": 30_000}, how="within 0")
    assert fake.requests[-1].timeout_ms == 0
    assert fake.requests[-1].page_bytes_max == 24 * 1024


@pytest.mark.requirement("mcp.cancel-and-eof-end-waits-only")
async def test_a_cancelled_wait_ends_at_the_mailbox_and_a_mutation_does_not(
    edge: EdgeClient, fake: FakeMailbox
) -> None:
    ended = asyncio.Event()

    async def parked(_: FakeMailbox, request: Any, context: Any) -> None:
        context.add_done_callback(lambda _context: ended.set())
        await asyncio.Event().wait()

    release = asyncio.Event()

    async def slow(_: FakeMailbox, request: Any, context: Any) -> None:
        await release.wait()

    fake.next("Wait", parked)
    fake.next("Send", slow)
    edge.begin(1, "wait_agent")
    edge.begin(2, "send_message", SEND)
    await fake.reached("Wait")
    await fake.reached("Send")
    edge.write(b"1 cancel\n2 cancel\n77 cancel\n")
    async with asyncio.timeout(10):
        await ended.wait()
    release.set()
    assert (await edge.answer(2))["result"]["isError"] is False
    edge.begin(1, "wait_agent", {"timeout_ms": 0})
    assert (await edge.answer(1))["result"]["structuredContent"]["timed_out"] is True


@pytest.mark.requirement("mcp.cancel-and-eof-end-waits-only")
async def test_when_a_shim_goes_its_waits_end_and_its_mutations_complete(
    home: Home, shims: Shims, fake: FakeMailbox
) -> None:
    ended, release, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def parked(_: FakeMailbox, request: Any, context: Any) -> None:
        context.add_done_callback(lambda _context: ended.set())
        await asyncio.Event().wait()

    async def slow(_: FakeMailbox, request: Any, context: Any) -> None:
        context.add_done_callback(lambda _context: done.set())
        await release.wait()

    fake.next("Wait", parked)
    fake.next("Send", slow)
    async with EdgeClient(home) as client:
        await client.greet()
        client.begin(1, "wait_agent")
        client.begin(2, "send_message", SEND)
        await fake.reached("Wait")
        await fake.reached("Send")
    async with asyncio.timeout(10):
        await ended.wait()
        assert not done.is_set()
        release.set()
        await done.wait()
    assert list(fake.records) == [f"mcp-{NONCE}:2"]


@pytest.mark.requirement("edge.drains")
async def test_a_stop_gives_waits_back_and_lets_mutations_finish(
    edge: EdgeClient, fake: FakeMailbox, shims: Shims, home: Home
) -> None:
    release = asyncio.Event()

    async def slow(_: FakeMailbox, request: Any, context: Any) -> None:
        await release.wait()

    fake.next("Wait", hang())
    fake.next("Send", slow)
    edge.begin(1, "wait_agent")
    edge.begin(2, "send_message", SEND)
    await fake.reached("Wait")
    await fake.reached("Send")
    stop = asyncio.get_running_loop().create_task(shims.drain())
    assert await edge.raw(1) == b"again"
    assert edge.told == ["epoch epoch-1", "draining"]
    edge.begin(3, "send_message", SEND)
    assert await edge.raw(3) == b"again"
    assert not stop.done()
    release.set()
    assert (await edge.answer(2))["result"]["isError"] is False
    assert await edge.line() == b""
    await stop
    assert fake.calls.count("Send") == 1
    assert not home.edge_socket.exists()
    assert not home.edge_address.exists()


@pytest.mark.requirement("edge.calls-are-bounded")
async def test_as_many_calls_of_a_shim_run_as_fit(edge: EdgeClient, fake: FakeMailbox) -> None:
    fake.next("Wait", hang(), hang(), hang())
    for number in (1, 2, 3):
        edge.begin(number, "wait_agent")
    assert told(await edge.call(4, "wait_agent")) == ("overloaded", False)
    edge.write(b"1 cancel\n")
    edge.begin(5, "send_message", SEND)
    answer = await edge.answer(5)
    if answer["result"]["isError"]:
        # The cancellation may still be on its way when the call is read.
        answer = {"result": await edge.call(6, "send_message", SEND)}
    assert answer["result"]["isError"] is False


@pytest.mark.requirement("edge.calls-are-bounded")
async def test_as_many_shims_are_served_as_fit(home: Home, edge: EdgeClient) -> None:
    async with EdgeClient(home) as second, EdgeClient(home) as third, EdgeClient(home) as fourth:
        await second.greet()
        await third.greet()
        refused = await fourth.greet()
        assert refused["error"]["code"] == "overloaded"
        assert await fourth.line() == b""


@pytest.mark.requirement("edge.shims-are-held-to-the-protocol")
@pytest.mark.parametrize(
    "data",
    [
        b"1 what\n",
        b"nonsense\n",
        b'1 {"not":"a call"}\n',
        b"1 " + b"x" * FRAME_BYTES_MAX,
        b"1 " + b"x" * FRAME_BYTES_MAX + b"\n",
    ],
    ids=["word", "words", "no call", "endless line", "long line"],
)
async def test_who_breaks_the_protocol_loses_the_connection_alone(home: Home, edge: EdgeClient, data: bytes) -> None:
    async with EdgeClient(home) as other:
        await other.greet()
        other.write(data)
        assert await other.line() == b""
    assert "isError" in await edge.call(1, "send_message", SEND)


@pytest.mark.requirement("edge.shims-are-held-to-the-protocol")
async def test_a_request_that_is_nested_too_deeply_is_given_back_and_the_connection_stays(edge: EdgeClient) -> None:
    deep = b"[" * 3000 + b"]" * 3000
    edge.write(b'1 {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_agents","x":' + deep + b"}}\n")
    assert await edge.raw(1) == b"unreadable"
    assert "isError" in await edge.call(2, "send_message", SEND)


@pytest.mark.requirement("edge.shims-are-held-to-the-protocol")
async def test_a_number_in_use_cannot_be_used_again(edge: EdgeClient, fake: FakeMailbox) -> None:
    fake.next("Wait", hang())
    edge.begin(1, "wait_agent")
    edge.begin(1, "wait_agent")
    assert await edge.line() == b""


@pytest.mark.requirement("edge.shims-are-held-to-the-protocol", "upgrades.say-what-to-do")
@pytest.mark.parametrize(("protocol", "hint"), [(0, "agent program"), (2, "fencepost down"), ("2", "agent program")])
async def test_a_shim_of_another_version_is_told_so_and_who_is_to_be_started_anew(
    home: Home, shims: Shims, protocol: object, hint: str
) -> None:
    async with EdgeClient(home) as client:
        refused = await client.greet(fencepost=protocol)
        assert refused["error"]["code"] == "incompatible_edge"
        assert hint in refused["error"]["hint"]
        assert await client.line() == b""


@pytest.mark.requirement("edge.shims-are-held-to-the-protocol")
async def test_who_does_not_greet_is_not_kept(home: Home, shims: Shims, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELLO_MS_MAX", 50)
    async with EdgeClient(home) as silent, EdgeClient(home) as endless:
        endless.write(b"{" * 10_000)
        assert await endless.line() == b""
        assert await silent.line() == b""


@pytest.mark.requirement("edge.peer-is-this-user")
async def test_a_peer_of_another_user_is_refused(home: Home, shims: Shims, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_peer_uid", lambda _peer: os.geteuid() + 1)
    async with EdgeClient(home) as client:
        refused = await client.greet()
        assert refused["error"]["code"] == "permission_denied"
        assert await client.line() == b""


@pytest.mark.requirement("edge.peer-is-this-user")
async def test_the_socket_is_for_this_user_alone_and_its_address_is_published(home: Home, shims: Shims) -> None:
    assert stat.S_IMODE(home.edge_socket.lstat().st_mode) == 0o600
    assert home.edge_address.read_text() == f"unix:{home.edge_socket}\n"
    assert stat.S_IMODE(home.edge_address.lstat().st_mode) == 0o600


@pytest.mark.requirement("edge.one-per-home")
async def test_a_socket_that_another_server_owns_is_left_alone(home: Home, shims: Shims, limits: Limits) -> None:
    before = home.edge_socket.lstat().st_ino
    async with Channels(home) as channels:
        with pytest.raises(SocketInUse):
            await Shims(home=home, channels=channels, limits=limits).start()
    assert home.edge_socket.lstat().st_ino == before
    async with EdgeClient(home) as client:
        await client.greet()


@pytest.mark.requirement("edge.one-per-home")
async def test_a_file_in_the_place_of_the_socket_is_left_alone(home: Home, limits: Limits) -> None:
    home.edge_socket.write_text("mine")
    async with Channels(home) as channels:
        with pytest.raises(HomeRefused):
            await Shims(home=home, channels=channels, limits=limits).start()
    assert home.edge_socket.read_text() == "mine"


@pytest.mark.requirement("edge.one-per-home")
async def test_a_socket_left_behind_by_a_killed_edge_is_taken_over(home: Home, limits: Limits) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(home.edge_socket))
    async with Channels(home) as channels:
        served = Shims(home=home, channels=channels, limits=limits)
        await served.start()
        async with EdgeClient(home) as client:
            await client.greet()
        await served.stop()
    assert not home.edge_socket.exists()


@pytest.mark.requirement("edge.text-round-trips")
async def test_every_character_reaches_the_store_and_a_large_text_too(edge: EdgeClient, fake: FakeMailbox) -> None:
    for number, text in enumerate(['\0\r\n\x1b漢\U0001f9ea"\\', "\0" * 65_536, "漢" * 21_845], start=1):
        assert (await edge.call(number, "send_message", {"target": "bob", "message": text}))["isError"] is False
        assert fake.requests[-1].body == text


@pytest.mark.requirement("edge.calls-are-bounded")
async def test_a_shim_that_does_not_read_is_not_read_from(home: Home, shims: Shims) -> None:
    count = 20_000
    loop = asyncio.get_running_loop()
    hello = json.dumps({"fencepost": 1, "shim": "0", "token": TOKEN, "nonce": NONCE}).encode()
    # Answered by the edge alone, each with more bytes than it has.
    frames = [
        b"%d %b" % (number, call_line("list_agents", {"x": 1}, identity=number)) for number in range(1, count + 1)
    ]
    with socket.socket(socket.AF_UNIX) as shim:
        shim.setblocking(False)
        await loop.sock_connect(shim, str(home.edge_socket))
        sending = loop.create_task(loop.sock_sendall(shim, b"\n".join([hello, *frames, b""])))
        await asyncio.wait({sending}, timeout=2)
        assert not sending.done()
        received = b""
        while received.count(b"\n") < count + 1:
            received += await asyncio.wait_for(loop.sock_recv(shim, 1024 * 1024), 10)
        await sending
    numbers = {int(line.partition(b" ")[0]) for line in received.split(b"\n")[1:-1]}
    assert numbers == set(range(1, count + 1))
