"""An HTTP client that sends exactly what a test says, and reads answers and events as they come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import h11

from fencepost_testing.fake_mailbox import TOKEN

ANSWER_S_MAX = 15.0
VERSION = "2026-07-28"
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
}
BASE = {
    "host": "127.0.0.1",
    "authorization": f"Bearer {TOKEN}",
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """What came as events, comments left out."""
        assert self.headers["content-type"] == "text/event-stream"
        blocks = self.body.decode().split("\r\n\r\n")
        return [json.loads(line[5:]) for block in blocks for line in block.split("\r\n") if line.startswith("data:")]


class Post:
    """One request on a connection of its own. Every wait is bounded."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._h11 = h11.Connection(h11.CLIENT)

    def send(self, body: bytes, headers: list[tuple[str, str]], *, method: str = "POST", path: str = "/mcp") -> None:
        head = [*headers, ("content-length", str(len(body)))]
        request = h11.Request(method=method, target=path, headers=head)
        data = [self._h11.send(event) for event in (request, h11.Data(data=body), h11.EndOfMessage())]
        self.writer.write(b"".join(part for part in data if part))

    async def event(self) -> Any:
        """Return the next part of the answer."""
        while (event := self._h11.next_event()) is h11.NEED_DATA:
            async with asyncio.timeout(ANSWER_S_MAX):
                self._h11.receive_data(await self._reader.read(65536))
        return event

    async def answer(self) -> Answer:
        """Return the whole answer."""
        response = await self.event()
        assert isinstance(response, h11.Response), response
        body = b""
        while isinstance(event := await self.event(), h11.Data):
            body += bytes(event.data)
        headers = {name.decode(): value.decode() for name, value in response.headers}
        return Answer(status=response.status_code, headers=headers, body=body)


@asynccontextmanager
async def posting(port: int) -> AsyncIterator[Post]:
    """A connection to a port of 127.0.0.1."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Post(reader, writer)
    finally:
        writer.transport.abort()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def post(
    port: int, message: object, *, method: str = "POST", path: str = "/mcp", **headers: str | None
) -> Answer:
    """Send a message with the usual headers, changed by `headers` (None: left out), and return the answer."""
    told = {**BASE, **{name.replace("_", "-"): value for name, value in headers.items()}}
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    async with posting(port) as connection:
        connection.send(body, [(k, v) for k, v in told.items() if v is not None], method=method, path=path)
        return await connection.answer()


def request(method: str, params: object = None, *, identity: object = 1) -> dict[str, Any]:
    """A request of the era of initialize."""
    message = {"jsonrpc": "2.0", "id": identity, "method": method}
    return message if params is None else {**message, "params": params}


def modern(method: str, *, identity: object = 1, meta: object = None, **params: Any) -> dict[str, Any]:
    """A request that names its version."""
    return request(method, {**params, "_meta": META if meta is None else meta}, identity=identity)


def routing(message: dict[str, Any]) -> dict[str, str]:
    """The headers that say again what a request says."""
    told = {"mcp_protocol_version": VERSION, "mcp_method": message["method"]}
    name = message.get("params", {}).get("name")
    return told if name is None else {**told, "mcp_name": name}
