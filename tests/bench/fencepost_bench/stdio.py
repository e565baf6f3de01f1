"""Agent programs: a process that starts real shims, speaks MCP to them over pipes, and times both."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from fencepost_bench.child import serve
from fencepost_bench.machine import resident_kib

ANSWER_S_MAX: Final = 20.0
END_S_MAX: Final = 10.0
PROTOCOL_VERSION: Final = "2025-11-25"
BODY: Final = "Fencepost carries words between agents. ".ljust(300, ".")
SCRIPT: Final = Path(sys.executable).parent / "fencepost-mcp"


class Client:
    """One shim as its agent program knows it."""

    def __init__(self, environment: dict[str, str]) -> None:
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "FENCEPOST_HOME")}
        self.process = subprocess.Popen(
            [str(SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**kept, **environment},
            bufsize=0,
            close_fds=True,
        )
        self._received = b""
        self._id = 0

    def send(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Send a request and return its id."""
        self._id += 1
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params or {}}
        self._write(message)
        return self._id

    def notify(self, method: str) -> None:
        """Send a notification."""
        self._write({"jsonrpc": "2.0", "method": method})

    def call(self, tool: str, **arguments: Any) -> int:
        """Send a tool call and return its id."""
        return self.send("tools/call", {"name": tool, "arguments": arguments})

    def _write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def line(self) -> bytes:
        """Return the next line."""
        assert self.process.stdout is not None
        descriptor, until = self.process.stdout.fileno(), time.monotonic() + ANSWER_S_MAX
        while b"\n" not in self._received:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, until - time.monotonic()))
            data = os.read(descriptor, 1 << 16) if ready else b""
            if not data:
                raise AssertionError("the shim ended" if ready else "the shim did not answer")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line

    def result(self, number: int) -> dict[str, Any]:
        """Return the result of a request; lines of other requests must not come before it."""
        answer = json.loads(self.line())
        if answer.get("id") != number or "result" not in answer or answer["result"].get("isError"):
            raise AssertionError(f"instead of the result of {number} came {json.dumps(answer)[:300]}")
        found: dict[str, Any] = answer["result"]
        return found

    def hello(self) -> None:
        """The first half of the handshake."""
        client = {"name": "bench", "version": "1"}
        params = {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": client}
        self.result(self.send("initialize", params))

    def begin(self) -> None:
        """The whole handshake, after which tools may be listed and called."""
        self.hello()
        self.notify("notifications/initialized")

    def close(self) -> None:
        """End its input and join it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(END_S_MAX)
        self.process.stdout.close()


class Agents:
    """The commands."""

    def __init__(self) -> None:
        self._first: Client | None = None
        self._second: Client | None = None
        self._name = ""

    def start(self, home: str, first: str, second: str, name: str) -> None:
        """Start the shims of two agents (ids); the second one is called `name`."""
        self._name = name
        self._first = Client({"FENCEPOST_HOME": home, "FENCEPOST_SESSION_ID": first})
        self._second = Client({"FENCEPOST_HOME": home, "FENCEPOST_SESSION_ID": second})
        for client in (self._first, self._second):
            client.begin()

    def exchanges(self, count: int) -> list[tuple[int, int]]:
        """Let the first send while the second waits; return the begin of each call and the end of the wait.

        Both in nanoseconds of the system's monotonic clock.
        """
        assert self._first is not None
        assert self._second is not None
        found = []
        for _ in range(count):
            wait = self._second.call("wait_agent")
            # Frames of one connection begin in their order: when this is answered, the wait stands.
            self._second.result(self._second.call("receive_messages"))
            begun = time.monotonic_ns()
            sent = self._first.call("send_message", target=self._name, message=BODY)
            answer = self._second.result(wait)
            found.append((begun, time.monotonic_ns()))
            if answer["structuredContent"].get("timed_out"):
                raise AssertionError("the wait ended by itself")
            self._first.result(sent)
            page = self._second.result(self._second.call("receive_messages"))
            ack = page["structuredContent"]["ack_cursor"]
            self._second.result(self._second.call("receive_messages", ack_cursor=ack))
        return found

    def begin_shim(self, count: int) -> list[float]:
        """Return the seconds from starting a shim to its answer to initialize, `count` times."""
        found = []
        for _ in range(count):
            begun = time.perf_counter()
            client = Client({})
            client.hello()
            found.append(time.perf_counter() - begun)
            client.close()
        return found

    def begin_python(self, count: int) -> list[float]:
        """Return the seconds that `python -c pass` of the shim's interpreter takes, `count` times."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        found = []
        for _ in range(count):
            begun = time.perf_counter()
            process = subprocess.Popen(
                [sys.executable, "-c", "pass"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=kept, bufsize=0
            )
            process.wait(END_S_MAX)
            found.append(time.perf_counter() - begun)
            process.communicate()
        return found

    def memory(self) -> dict[str, int]:
        """Return KiB: a bare interpreter, a shim after initialize and tools/list, one that has carried calls."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        program = "import sys; sys.stdout.write('.'); sys.stdout.flush(); sys.stdin.read()"
        bare = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=kept, bufsize=0
        )
        client = Client({})
        try:
            assert bare.stdout is not None
            bare.stdout.read(1)
            client.begin()
            client.result(client.send("tools/list"))
            found = {"bare": resident_kib(bare.pid), "shim": resident_kib(client.process.pid)}
        finally:
            client.close()
            bare.communicate(timeout=END_S_MAX)
        if self._first is not None:
            found["used"] = resident_kib(self._first.process.pid)
        return found

    def tools_list(self, families: str = "") -> int:
        """Return the bytes of the whole answer to tools/list; without families of those that are offered anyway."""
        client = Client({"FENCEPOST_TOOLS": families} if families else {})
        try:
            client.begin()
            client.send("tools/list")
            return len(client.line()) + 1
        finally:
            client.close()

    def stop(self) -> None:
        """End the shims."""
        for client in (self._first, self._second):
            if client is not None:
                client.close()
        self._first = self._second = None


def main() -> None:
    agents = Agents()
    try:
        serve(
            {
                "start": agents.start,
                "exchanges": agents.exchanges,
                "begin_shim": agents.begin_shim,
                "begin_python": agents.begin_python,
                "memory": agents.memory,
                "tools_list": agents.tools_list,
            }
        )
    finally:
        agents.stop()


if __name__ == "__main__":
    main()
