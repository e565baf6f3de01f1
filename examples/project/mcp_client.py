"""What an agent program needs to use Fencepost: an MCP client over stdio, with nothing but the standard library.

Any MCP library does as well; this is so short that you can see all that happens. A server is a child process that reads
and writes JSON-RPC, one message a line.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

CALL_S_MAX: Final = 40.0
END_S_MAX: Final = 10.0
LINE_BYTES_MAX: Final = 4 * 1024 * 1024
HELLO: Final = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "fencepost-example", "version": "1"},
}


class ServerEnded(Exception):
    """The MCP server ended before it had answered."""


class McpClient:
    """One stdio MCP server as a child process. Any number of calls may be open at once."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._open: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._id = 0
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def spawn(cls, server: Mapping[str, Any], *, cwd: Path) -> Self:
        """Start the server that an entry of an MCP configuration names, in a folder, and shake hands with it."""
        process = await asyncio.create_subprocess_exec(
            server["command"],
            *server["args"],
            env={**os.environ, **server["env"]},
            cwd=cwd,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
            # Ctrl-C is for the program that started it, which then ends it in order.
            start_new_session=True,
        )
        client = cls(process)
        try:
            await client._request("initialize", HELLO)
            client._write({"method": "notifications/initialized"})
        except BaseException:
            await client.kill()
            raise
        return client

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """Call a tool; return its structured answer, and whether that is an error. Raises ServerEnded, TimeoutError."""
        result = await self._request("tools/call", {"name": tool, "arguments": dict(arguments)})
        return result["structuredContent"], result["isError"]

    async def close(self) -> int:
        """End the server by the end of its input, join it, and return its exit status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(END_S_MAX):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
        return await self._join()

    async def kill(self) -> int:
        """End the server as a crash does: at once, with nothing said to anybody."""
        if self._process.returncode is None:
            self._process.kill()
        return await self._join()

    async def _join(self) -> int:
        status = await self._process.wait()
        await self._reading
        if self._process.stdin is not None:
            self._process.stdin.close()
        return status

    async def _request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if self._reading.done():
            raise ServerEnded
        self._id += 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._open[self._id] = answer
        self._write({"id": self._id, "method": method, "params": dict(params)})
        async with asyncio.timeout(CALL_S_MAX):
            message = await answer
        if "error" in message:
            raise ValueError(message["error"]["message"])
        return dict(message["result"])

    def _write(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            message = json.loads(line)
            answer = self._open.pop(message.get("id"), None)
            if answer is not None and not answer.done():
                answer.set_result(message)
        for answer in self._open.values():
            if not answer.done():
                answer.set_exception(ServerEnded())
