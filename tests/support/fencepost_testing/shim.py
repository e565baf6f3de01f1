"""The stdio shim as a real process, and an edge that does what a test tells it to."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from fencepost.home import Home
from fencepost_kit.files import write_private

ANSWER_S_MAX = 15.0
LINE_BYTES_MAX = 8 * 1024 * 1024
INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def environment(**variables: str) -> dict[str, str]:
    """The environment of a child: this one, without any Fencepost variable of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
    return {**kept, **variables}


class Shim:
    """One running shim and what it says. Every wait is bounded."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._held: dict[str, Any] = {}
        self.others: list[Any] = []

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def say(self, message: object) -> None:
        """Write one message on a line."""
        self.write((message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n")

    def begin(self, name: str, arguments: object = None, *, identity: object = 1, **meta: Any) -> None:
        """Call a tool without waiting for its answer."""
        params: dict[str, Any] = {"name": name, "arguments": {} if arguments is None else arguments}
        if meta:
            params["_meta"] = meta
        self.say({"jsonrpc": "2.0", "id": identity, "method": "tools/call", "params": params})

    async def line(self) -> Any:
        """Return the next line, parsed; None at the end."""
        assert self.process.stdout is not None
        async with asyncio.timeout(ANSWER_S_MAX):
            raw = await self.process.stdout.readline()
        return json.loads(raw) if raw else None

    async def answer(self, identity: object = 1) -> Any:
        """Return the answer to a request, whatever comes before it."""
        wanted = json.dumps(identity)
        while wanted not in self._held:
            message = await self.line()
            assert message is not None, "the shim has ended"
            if isinstance(message, dict) and "id" in message:
                self._held[json.dumps(message["id"])] = message
            else:
                self.others.append(message)
        return self._held.pop(wanted)

    async def ask(self, method: str, params: object = None, *, identity: object = 1) -> Any:
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": identity, "method": method}
        self.say(message if params is None else {**message, "params": params})
        return await self.answer(identity)

    async def call(self, name: str, arguments: object = None, *, identity: object = 1) -> Any:
        """Call a tool and return its result."""
        self.begin(name, arguments, identity=identity)
        return (await self.answer(identity))["result"]

    async def greet(self, version: str = "2025-06-18") -> Any:
        """Do the handshake and return the result of initialize."""
        answer = await self.ask("initialize", {**INITIALIZE, "protocolVersion": version}, identity="greet")
        self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer["result"]

    def close_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    async def ended(self, within_s: float = ANSWER_S_MAX) -> int:
        """Return the exit status, once the process has ended."""
        async with asyncio.timeout(within_s):
            return await self.process.wait()


@asynccontextmanager
async def running_shim(
    *, env: Mapping[str, str], program: tuple[str, ...] = (), cwd: Path | None = None
) -> AsyncIterator[Shim]:
    """A shim under `env`; it is joined at the end."""
    process = await asyncio.create_subprocess_exec(
        *(program or (sys.executable, "-P", "-m", "fencepost.mcp.shim")),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=dict(env),
        cwd=cwd,
        limit=LINE_BYTES_MAX,
    )
    shim = Shim(process)
    try:
        yield shim
    finally:
        if process.returncode is None:
            process.kill()
        # Reading to the end lets the transport close its descriptors before the loop does.
        await process.communicate()


class FakeEdge:
    """Serves the shim socket of a home: greets, keeps the frames, and answers as the test says."""

    def __init__(self, home: Home, *, epoch: str = "E1") -> None:
        self.home = home
        self.epoch = epoch
        self.hellos: list[dict[str, Any]] = []
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()
        # Sent instead of the greeting.
        self.greeting: bytes | None = None
        self.lost = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, path=self.home.edge_socket, limit=LINE_BYTES_MAX)
        # At once, as an edge publishes it: a shim that looks meanwhile must not find an empty file.
        write_private(self.home.edge_address, f"unix:{self.home.edge_socket}\n".encode())

    async def stop(self) -> None:
        """Go away as a killed process does: the address stays, nobody answers there."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.drop()
        self.home.edge_socket.unlink(missing_ok=True)

    def drop(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            self.hellos.append(json.loads(await reader.readline()))
            hello = {"fencepost": 1, "edge": "0", "epoch": self.epoch, "registry": "x"}
            writer.write(self.greeting or json.dumps(hello).encode() + b"\n")
            while line := await reader.readline():
                if line.endswith(b"\n"):
                    self.frames.put_nowait(line.removesuffix(b"\n"))
        except (ConnectionError, ValueError):
            pass
        finally:
            self.lost.set()
            writer.close()

    async def frame(self) -> bytes:
        async with asyncio.timeout(ANSWER_S_MAX):
            return await self.frames.get()

    def send(self, line: bytes) -> None:
        self._writers[-1].write(line + b"\n")

    def reply(self, frame: bytes, payload: dict[str, Any] | None = None) -> None:
        """Answer a call as an edge does."""
        number, _, rest = frame.partition(b" ")
        request = json.loads(rest[rest.index(b"{") :])
        answer = {"jsonrpc": "2.0", "id": request["id"], "result": payload or {"structuredContent": {"ok": True}}}
        self.send(number + b" " + json.dumps(answer).encode())
