"""A shim's side of the line protocol, spoken by hand."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Self

from fencepost.home import Home
from fencepost_testing.fake_mailbox import TOKEN

ANSWER_S_MAX = 15.0
LINE_BYTES_MAX = 8 * 1024 * 1024
NONCE = "0123456789abcdef" * 2


def call_line(name: str, arguments: object = None, *, identity: object = 1, meta: object = None) -> bytes:
    """A tools/call as a client writes it."""
    params: dict[str, Any] = {"name": name, "arguments": {} if arguments is None else arguments}
    if meta is not None:
        params["_meta"] = meta
    return json.dumps({"jsonrpc": "2.0", "id": identity, "method": "tools/call", "params": params}).encode()


class EdgeClient:
    """One connection to the shim socket of a home. Every wait is bounded."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._held: dict[int, bytes] = {}
        self.told: list[str] = []

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_unix_connection(self.home.edge_socket, limit=LINE_BYTES_MAX)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def close_writing(self) -> None:
        self._writer.write_eof()

    async def line(self) -> bytes:
        """Return the next line; empty at the end."""
        async with asyncio.timeout(ANSWER_S_MAX):
            try:
                return (await self._reader.readline()).removesuffix(b"\n")
            except ConnectionError:
                return b""

    async def greet(self, **fields: object) -> dict[str, Any]:
        hello = {"fencepost": 1, "shim": "0", "token": TOKEN, "nonce": NONCE, **fields}
        self.write(json.dumps(hello).encode() + b"\n")
        greeting: dict[str, Any] = json.loads(await self.line())
        return greeting

    def begin(
        self,
        number: int,
        name: str,
        arguments: object = None,
        *,
        how: str = "",
        identity: object = None,
        meta: object = None,
    ) -> None:
        """Send a call, or with `how` another frame about it."""
        line = call_line(name, arguments, identity=number if identity is None else identity, meta=meta)
        self.write(f"{number} {how}{' ' if how else ''}".encode() + line + b"\n")

    async def raw(self, number: int) -> bytes:
        """Return what the edge says of a call."""
        while number not in self._held:
            line = await self.line()
            assert line, "the edge has closed the connection"
            head, _, rest = line.partition(b" ")
            if head == b"0":
                self.told.append(rest.decode())
            else:
                self._held[int(head)] = rest
        return self._held.pop(number)

    async def answer(self, number: int) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(await self.raw(number))
        return answer

    async def call(self, number: int, name: str, arguments: object = None, *, how: str = "") -> dict[str, Any]:
        """Call a tool and return its result."""
        self.begin(number, name, arguments, how=how)
        result: dict[str, Any] = (await self.answer(number))["result"]
        return result
