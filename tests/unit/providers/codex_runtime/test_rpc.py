"""What became of a request: certainly nothing, a refusal, an answer, or nobody knows."""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, unix_serve

from fencepost_providers.adapters.codex import rpc
from fencepost_providers.adapters.codex.rpc import Connection, NoAnswer, NotSent, Refused

Answer = Callable[[ServerConnection, dict[str, Any]], Awaitable[None]]


class Peer:
    """A server that does with each message what the test says, and keeps what came."""

    def __init__(self) -> None:
        self.came: list[dict[str, Any]] = []
        self.heard: list[dict[str, Any]] = []
        self.answer: Answer = echo

    async def serve(self, client: ServerConnection) -> None:
        async for frame in client:
            self.came.append(json.loads(frame))
            await self.answer(client, self.came[-1])


async def echo(client: ServerConnection, message: dict[str, Any]) -> None:
    if "id" in message:
        await client.send(json.dumps({"id": message["id"], "result": message["params"]}))


@pytest.fixture
async def folder() -> AsyncIterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fpr") as made:
        yield Path(made)


@pytest.fixture
async def peer(folder: Path) -> AsyncIterator[Peer]:
    made = Peer()
    async with unix_serve(made.serve, str(folder / "s"), compression=None, close_timeout=0.1):
        yield made


@pytest.fixture
async def connection(peer: Peer, folder: Path) -> AsyncIterator[Connection]:
    made = await Connection.open(str(folder / "s"), peer.heard.append)
    yield made
    await made.close()


@pytest.mark.requirement("codex.not-sent-refused-or-unknown")
async def test_an_answer_goes_to_its_request_in_whatever_order_they_come(connection: Connection, peer: Peer) -> None:
    waiting: list[dict[str, Any]] = []

    async def backwards(client: ServerConnection, message: dict[str, Any]) -> None:
        waiting.append(message)
        if len(waiting) == 3:
            for one in reversed(waiting):
                await echo(client, one)

    peer.answer = backwards
    answers = await asyncio.gather(*(connection.request("m", {"n": number}) for number in range(3)))
    assert answers == [{"n": 0}, {"n": 1}, {"n": 2}]


@pytest.mark.requirement("codex.not-sent-refused-or-unknown")
async def test_a_refusal_tells_its_text_and_its_reason(connection: Connection, peer: Peer) -> None:
    async def refuse(client: ServerConnection, message: dict[str, Any]) -> None:
        error = {"code": -32600, "message": "no", "data": {"reason": "because"}}
        await client.send(json.dumps({"id": message["id"], "error": error}))

    peer.answer = refuse
    with pytest.raises(Refused) as refused:
        await connection.request("m", {})
    assert (refused.value.message, refused.value.code, refused.value.reason) == ("no", -32600, "because")


@pytest.mark.requirement("codex.not-sent-refused-or-unknown")
@pytest.mark.parametrize("answer", [{}, {"result": None}, {"result": []}, {"error": "no"}, {"id": "1", "result": {}}])
async def test_an_answer_that_cannot_be_read_is_no_answer(
    connection: Connection, peer: Peer, answer: dict[str, Any]
) -> None:
    async def send(client: ServerConnection, message: dict[str, Any]) -> None:
        await client.send(json.dumps({"id": message["id"], **answer}))

    peer.answer = send
    with pytest.raises(NoAnswer):
        await connection.request("m", {}, timeout_ms=200)


@pytest.mark.requirement("codex.not-sent-refused-or-unknown")
async def test_a_deadline_leaves_a_request_unknown_and_its_late_answer_unheard(
    connection: Connection, peer: Peer
) -> None:
    first: list[dict[str, Any]] = []

    async def late(client: ServerConnection, message: dict[str, Any]) -> None:
        if not first:
            first.append(message)
            return
        await echo(client, first[0])
        await client.send(json.dumps({"id": 4_711, "result": {"never": "asked"}}))
        await echo(client, message)

    peer.answer = late
    with pytest.raises(NoAnswer, match="100 ms"):
        await connection.request("m", {"n": 1}, timeout_ms=100)
    assert await connection.request("m", {"n": 2}) == {"n": 2}
    assert not peer.heard


@pytest.mark.requirement("codex.not-sent-refused-or-unknown")
@pytest.mark.parametrize("how", ["hang up", "garbage", "no object", "close"])
async def test_what_was_sent_before_the_connection_broke_is_unknown_and_what_comes_after_it_is_not_sent(
    connection: Connection, peer: Peer, how: str
) -> None:
    async def break_off(client: ServerConnection, _: dict[str, Any]) -> None:
        match how:
            case "hang up":
                client.transport.abort()
            case "garbage":
                await client.send("}{")
            case "no object":
                await client.send("[]")
            case _:
                await client.close()

    peer.answer = break_off
    with pytest.raises(NoAnswer):
        await connection.request("m", {})
    await connection.wait_closed()
    assert connection.closed
    assert connection.why_closed
    came = len(peer.came)
    with pytest.raises(NotSent):
        await connection.request("m", {})
    with pytest.raises(NotSent):
        await connection.notify("m")
    assert len(peer.came) == came


@pytest.mark.requirement("codex.not-sent-refused-or-unknown")
async def test_closing_leaves_nothing_waiting(connection: Connection, peer: Peer) -> None:
    arrived = asyncio.Event()

    async def keep(_: ServerConnection, __: dict[str, Any]) -> None:
        arrived.set()

    peer.answer = keep
    asking = asyncio.ensure_future(connection.request("m", {}, timeout_ms=None))
    await arrived.wait()
    await connection.close()
    with pytest.raises(NoAnswer):
        await asking


@pytest.mark.requirement("codex.not-sent-refused-or-unknown")
async def test_what_cannot_be_written_or_is_too_much_is_not_sent(
    connection: Connection, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "REQUEST_BYTES_MAX", 300)
    assert await connection.request("m", {"body": "x" * 200})
    for body in ("x" * 300, "\udc80", object()):
        with pytest.raises(NotSent):
            await connection.request("m", {"body": body})
    assert len(peer.came) == 1


@pytest.mark.requirement("codex.not-sent-refused-or-unknown")
async def test_requests_without_an_answer_have_a_limit(
    connection: Connection, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "PENDING_REQUESTS_MAX", 2)

    async def keep(_: ServerConnection, __: dict[str, Any]) -> None:
        return

    peer.answer = keep
    asking = [asyncio.ensure_future(connection.request("m", {})) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(NotSent, match="2 requests"):
        await connection.request("m", {})
    for one in asking:
        one.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    peer.answer = echo
    assert await connection.request("m", {"n": 1}) == {"n": 1}


@pytest.mark.requirement("codex.action-needed-stays")
async def test_what_the_program_says_and_asks_is_heard_in_order_and_never_answered(
    connection: Connection, peer: Peer
) -> None:
    async def talk(client: ServerConnection, message: dict[str, Any]) -> None:
        for number in range(50):
            await client.send(json.dumps({"method": "event", "params": {"n": number}}))
        await client.send(json.dumps({"id": 0, "method": "item/commandExecution/requestApproval", "params": {}}))
        await echo(client, message)

    peer.answer = talk
    await connection.request("m", {})
    assert [message["params"].get("n") for message in peer.heard] == [*range(50), None]
    await connection.request("m", {})
    assert [message.get("method") for message in peer.came] == ["m", "m"]


@pytest.mark.requirement("codex.not-sent-refused-or-unknown")
async def test_a_program_that_takes_nothing_any_more_loses_its_connection(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "WRITE_MS_MAX", 200)
    stuck = asyncio.Event()

    async def deaf(_: ServerConnection) -> None:
        await stuck.wait()

    async with unix_serve(deaf, str(folder / "s"), compression=None, close_timeout=0.1, max_queue=1):
        connection = await Connection.open(str(folder / "s"), lambda _: None)
        asked = [connection.request("m", {"body": "x" * 7_000_000}, timeout_ms=None) for _ in range(8)]
        ended = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(one) for one in ended} == {NoAnswer}
        assert "took nothing" in connection.why_closed
        await connection.close()
        stuck.set()


@pytest.mark.requirement("codex.start-is-bounded-and-cancelled-whole")
async def test_one_attempt_to_connect_is_bounded_and_says_why_it_failed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "CONNECT_MS_MAX", 200)
    with pytest.raises(FileNotFoundError):
        await Connection.open(str(folder / "s"), lambda _: None)

    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(folder / "s"))
        silent.listen(1)
        with pytest.raises(NotSent, match="in time"):
            await Connection.open(str(folder / "s"), lambda _: None)
