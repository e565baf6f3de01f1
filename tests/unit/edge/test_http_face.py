"""The HTTP face in the test's own loop, before a mailbox that fails on command."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fencepost.client import Channels
from fencepost.home import Home
from fencepost.mcp.session import LINE_BYTES_MAX
from fencepost_mcp_edge import exchange, http_face
from fencepost_mcp_edge.http_face import HttpFace
from fencepost_mcp_edge.shims import Limits
from fencepost_testing.fake_mailbox import TOKEN, FakeMailbox, hang
from fencepost_testing.posting import BASE, META, Post, modern, post, posting, request, routing

SEND = {"name": "send_message", "arguments": {"target": "bob", "message": "hello"}}
INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


@pytest.fixture
async def face(home: Home, limits: Limits, fake: FakeMailbox) -> AsyncIterator[HttpFace]:
    async with Channels(home) as channels:
        served = HttpFace(channels=channels, limits=limits, port=0, drain_ms=1000)
        await served.start()
        yield served
        await served.stop()


def headers(message: dict[str, Any]) -> list[tuple[str, str]]:
    return [*BASE.items(), *((name.replace("_", "-"), value) for name, value in routing(message).items())]


def begin(connection: Post, message: dict[str, Any]) -> None:
    """Send a request that names its version, without waiting for its answer."""
    connection.send(json.dumps(message).encode(), headers(message))


async def ask(face: HttpFace, message: dict[str, Any]) -> Any:
    return await post(face.port, message, **routing(message))


@pytest.mark.requirement("http.both-eras")
async def test_a_client_that_shakes_hands_gets_json_and_no_session(face: HttpFace) -> None:
    greeted = await post(face.port, request("initialize", INITIALIZE))
    assert greeted.status == 200
    assert greeted.headers["content-type"] == "application/json"
    assert "mcp-session-id" not in greeted.headers
    assert greeted.json()["result"]["protocolVersion"] == "2025-06-18"
    told = await post(face.port, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (told.status, told.body) == (202, b"")
    listed = await post(face.port, request("tools/list"), mcp_protocol_version="2025-06-18")
    assert len(listed.json()["result"]["tools"]) == 7
    assert (await post(face.port, request("ping"))).json()["result"] == {}


@pytest.mark.requirement("http.both-eras")
async def test_a_client_that_names_its_version_needs_no_handshake(face: HttpFace) -> None:
    found = await ask(face, modern("server/discover"))
    assert (found.status, found.json()["result"]["resultType"]) == (200, "complete")
    sent = await ask(face, modern("tools/call", **SEND))
    assert sent.json()["result"]["structuredContent"]["duplicate"] is False
    assert sent.json()["result"]["resultType"] == "complete"


@pytest.mark.requirement("http.both-eras")
@pytest.mark.parametrize(
    ("message", "status", "code"),
    [
        (modern("ping"), 404, -32601),
        (modern("resources/list"), 404, -32601),
        (modern("tools/list", cursor="x"), 400, -32602),
        (modern("tools/call", name="nothing"), 400, -32602),
        (modern("tools/list", meta={**META, "io.modelcontextprotocol/clientCapabilities": 1}), 400, -32602),
    ],
)
async def test_an_error_of_the_protocol_has_the_status_that_goes_with_it(
    face: HttpFace, message: dict[str, Any], status: int, code: int
) -> None:
    answer = await ask(face, message)
    assert (answer.status, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.requirement("http.both-eras")
async def test_an_unknown_version_is_told_with_the_known_ones(face: HttpFace) -> None:
    message = modern("tools/list", meta={**META, "io.modelcontextprotocol/protocolVersion": "2099-01-01"})
    answer = await post(face.port, message, mcp_protocol_version="2099-01-01", mcp_method="tools/list")
    assert answer.status == 400
    assert answer.json()["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2099-01-01"}


@pytest.mark.requirement("http.both-eras")
async def test_who_shook_hands_reads_errors_of_the_protocol_from_the_body(face: HttpFace) -> None:
    answer = await post(face.port, request("resources/list"), mcp_protocol_version="2025-11-25")
    assert (answer.status, answer.json()["error"]["code"]) == (200, -32601)
    for body in (b"{", b"7", b"[" * 100_000):
        assert (await post(face.port, body)).status == 400


@pytest.mark.requirement("http.both-eras")
async def test_a_batch_is_taken_under_its_version_alone(face: HttpFace) -> None:
    batch = [request("ping"), request("tools/call", SEND, identity=2)]
    answer = await post(face.port, batch)
    assert [item["id"] for item in answer.json()] == [1, 2]
    assert (await post(face.port, batch, mcp_protocol_version="2025-06-18")).status == 400
    assert (await post(face.port, batch, mcp_protocol_version="2026-07-28")).status == 400
    assert (await post(face.port, [{"jsonrpc": "2.0", "method": "notifications/x"}])).status == 202


@pytest.mark.requirement("http.keys-are-minted-per-request")
async def test_the_same_id_twice_is_two_messages_each_under_a_key_and_the_agents_own_token(
    face: HttpFace, fake: FakeMailbox
) -> None:
    for _ in range(2):
        await post(face.port, request("tools/call", SEND, identity=1))
        await ask(face, modern("tools/call", identity=1, **SEND))
    assert len(fake.records) == 4
    assert set(fake.tokens) == {f"Bearer {TOKEN}"}


@pytest.mark.requirement("http.every-request-brings-a-credential")
async def test_no_service_hears_of_a_request_without_a_credential(face: HttpFace, fake: FakeMailbox) -> None:
    answer = await post(face.port, request("tools/call", SEND), authorization=None)
    assert answer.status == 401
    assert answer.headers["connection"] == "close"
    assert fake.calls == []


@pytest.mark.requirement("http.waits-show-signs-of-life")
async def test_a_long_wait_becomes_a_stream_with_progress_for_who_gave_a_token(
    face: HttpFace, fake: FakeMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "STREAM_AFTER_MS", 10)
    monkeypatch.setattr(exchange, "PROGRESS_MS", 20)
    release = asyncio.Event()

    async def parked(_: FakeMailbox, request: Any, context: Any) -> None:
        await release.wait()

    for meta in ({**META, "progressToken": "t"}, META):
        release.clear()
        fake.next("Wait", parked)
        message = modern("tools/call", name="wait_agent", arguments={"timeout_ms": 0}, meta=meta)
        async with posting(face.port) as connection:
            begin(connection, message)
            await connection.event()
            sign = bytes((await connection.event()).data)
            if "progressToken" in meta:
                assert json.loads(sign.split(b"data: ")[1])["params"]["progressToken"] == "t"
            else:
                assert sign == b":\r\n\r\n"
            release.set()
            body = b""
            while hasattr(event := await connection.event(), "data"):
                body += bytes(event.data)
        last = json.loads(body.split(b"data: ")[-1])
        assert (last["id"], last["result"]["resultType"]) == (1, "complete")


@pytest.mark.requirement("http.waits-show-signs-of-life")
async def test_who_accepts_no_events_gets_json_however_long_it_takes(
    face: HttpFace, fake: FakeMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "STREAM_AFTER_MS", 1)
    message = modern("tools/call", name="wait_agent", arguments={"timeout_ms": 50})
    answer = await post(face.port, message, accept="application/json", **routing(message))
    assert answer.json()["result"]["structuredContent"]["timed_out"] is True


@pytest.mark.requirement("http.a-closed-request-is-cancelled")
async def test_when_a_client_goes_its_wait_ends_and_its_mutation_completes(face: HttpFace, fake: FakeMailbox) -> None:
    ended, release, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def parked(_: FakeMailbox, request: Any, context: Any) -> None:
        context.add_done_callback(lambda _context: ended.set())
        await asyncio.Event().wait()

    async def slow(_: FakeMailbox, request: Any, context: Any) -> None:
        context.add_done_callback(lambda _context: done.set())
        await release.wait()

    fake.next("Wait", parked)
    fake.next("Send", slow)
    async with posting(face.port) as first, posting(face.port) as second:
        begin(first, modern("tools/call", name="wait_agent"))
        begin(second, modern("tools/call", **SEND))
        await fake.reached("Wait")
        await fake.reached("Send")
    async with asyncio.timeout(10):
        await ended.wait()
        assert not done.is_set()
        release.set()
        await done.wait()
    assert len(fake.records) == 1


@pytest.mark.requirement("http.a-closed-request-is-cancelled")
async def test_who_shook_hands_cancels_by_a_notification_and_nothing_is_sent_for_the_call(
    face: HttpFace, fake: FakeMailbox
) -> None:
    fake.next("Wait", hang())
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "w"}}
    async with posting(face.port) as connection:
        waiting = request("tools/call", {"name": "wait_agent", "arguments": {}}, identity="w")
        connection.send(json.dumps(waiting).encode(), list(BASE.items()))
        await fake.reached("Wait")
        stranger = "Bearer fp_" + "S" * 43
        assert (await post(face.port, cancelled, authorization=stranger)).status == 202
        assert (await post(face.port, cancelled, mcp_protocol_version="2026-07-28")).status == 202
        assert len(face.calls) == 1
        assert (await post(face.port, cancelled)).status == 202
        answer = await connection.answer()
        assert (answer.status, answer.body) == (202, b"")


@pytest.mark.requirement("http.is-bounded")
async def test_a_body_of_1_mib_is_read_and_one_byte_more_is_not(face: HttpFace) -> None:
    line = json.dumps(request("ping")).encode()
    assert (await post(face.port, line + b" " * (LINE_BYTES_MAX - len(line)))).status == 200
    refused = await post(face.port, line + b" " * (LINE_BYTES_MAX - len(line) + 1))
    assert refused.status == 413
    assert refused.headers["connection"] == "close"


@pytest.mark.requirement("http.is-bounded")
async def test_a_body_that_does_not_come_is_not_waited_for(face: HttpFace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "BODY_MS_MAX", 50)
    async with posting(face.port) as connection:
        lines = "".join(f"{name}: {value}\r\n" for name, value in BASE.items())
        connection.writer.write(f"POST /mcp HTTP/1.1\r\n{lines}content-length: 9\r\n\r\n{{".encode())
        connection._h11.send(http_face.h11.Request(method="POST", target="/mcp", headers=[("host", "x")]))
        assert (await connection.answer()).status == 408


@pytest.mark.requirement("http.is-bounded")
@pytest.mark.parametrize("beginning", [b"", b"POST /mcp HTTP/1.1\r\nhost: 127"])
async def test_a_head_that_does_not_come_is_not_waited_for(
    face: HttpFace, monkeypatch: pytest.MonkeyPatch, beginning: bytes
) -> None:
    monkeypatch.setattr(http_face, "HEAD_MS_MAX", 50)
    reader, writer = await asyncio.open_connection("127.0.0.1", face.port)
    writer.write(beginning)
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()


@pytest.mark.requirement("http.is-bounded")
async def test_a_head_without_end_is_refused(face: HttpFace) -> None:
    async with posting(face.port) as connection:
        connection.send(b"{}", [*BASE.items(), ("x", "y" * (http_face.HEAD_BYTES_MAX * 3))])
        assert (await connection.answer()).status == 400


@pytest.mark.requirement("http.is-bounded")
async def test_as_many_calls_of_an_agent_run_as_fit(face: HttpFace, fake: FakeMailbox, limits: Limits) -> None:
    for _ in range(limits.calls_in_flight_max):
        fake.next("Wait", hang())
    waits = [asyncio.create_task(ask(face, modern("tools/call", name="wait_agent"))) for _ in range(3)]
    async with asyncio.timeout(10):
        while fake.calls.count("Wait") < 3:
            await fake.reached("Wait")
            await asyncio.sleep(0)
    refused = await ask(face, modern("tools/call", **SEND))
    assert refused.json()["result"]["structuredContent"]["code"] == "overloaded"
    other = await post(face.port, request("tools/call", SEND), authorization="Bearer fp_" + "S" * 43)
    assert other.json()["result"]["isError"] is False
    for wait in waits:
        wait.cancel()
    await asyncio.gather(*waits, return_exceptions=True)


@pytest.mark.requirement("http.drains")
async def test_a_stop_ends_waits_lets_mutations_finish_and_takes_nothing_new(face: HttpFace, fake: FakeMailbox) -> None:
    release = asyncio.Event()

    async def slow(_: FakeMailbox, request: Any, context: Any) -> None:
        await release.wait()

    fake.next("Wait", hang())
    fake.next("Send", slow)
    wait = asyncio.create_task(ask(face, modern("tools/call", name="wait_agent")))
    send = asyncio.create_task(ask(face, modern("tools/call", **SEND)))
    await fake.reached("Wait")
    await fake.reached("Send")
    stop = asyncio.create_task(face.drain())
    told = (await wait).json()["result"]["structuredContent"]
    assert (told["code"], told["written"]) == ("draining", False)
    refused = await ask(face, modern("tools/list"))
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert not stop.done()
    release.set()
    assert (await send).json()["result"]["isError"] is False
    await stop


@pytest.mark.requirement("http.drains")
async def test_a_mutation_that_a_stop_cut_off_is_uncertain(face: HttpFace, fake: FakeMailbox) -> None:
    fake.next("Send", hang())
    send = asyncio.create_task(ask(face, modern("tools/call", **SEND)))
    await fake.reached("Send")
    await face.stop()
    told = (await send).json()["result"]["structuredContent"]
    assert (told["code"], told["written"]) == ("delivery_uncertain", "unknown")


@pytest.mark.requirement("http.loopback-only")
async def test_a_port_that_is_taken_is_left_alone_and_costs_only_this_face(home: Home, limits: Limits) -> None:
    with socket.socket() as owner:
        owner.bind(("127.0.0.1", 0))
        owner.listen()
        async with Channels(home) as channels:
            face = HttpFace(channels=channels, limits=limits, port=owner.getsockname()[1], drain_ms=1000)
            await face.start()
            assert face.port == 0
            await face.drain()
            await face.stop()


@pytest.mark.requirement("http.loopback-only")
def test_an_edge_without_a_port_loads_no_web_server() -> None:
    code = "import sys, fencepost_mcp_edge.__main__; sys.stdout.write(str('uvicorn' in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "False"


@pytest.mark.requirement("http.loopback-only")
async def test_only_the_loopback_address_is_bound(face: HttpFace) -> None:
    assert face._server is not None
    assert [listener.getsockname()[0] for listener in face._server.servers[0].sockets] == ["127.0.0.1"]
