"""An agent that asks, and the program that is asked as somebody beside the carrier sees it, in one process.

All times are of the system's monotonic clock, which every process here shares. Run as
`python -m fencepost_bench.carrying`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
import uuid
from pathlib import Path
from typing import Any, Final, Protocol

import grpc
import uvloop
from fencepost_bench.child import serve_async
from fencepost_bench.stamped import words

from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost.mailbox.v1 import mailbox_pb2_grpc
from fencepost.transports.over_grpcio import CHANNEL_OPTIONS
from fencepost_providers.adapters.codex import deliveries
from fencepost_providers.adapters.codex.rpc import Connection
from fencepost_providers.domain.runtimes import Delivery

WAIT_MS: Final = 60_000
CALL_S_MAX: Final = 20.0
HAPPENED_S_MAX: Final = 20.0
LOOK_S: Final = 0.005
# What is still told of a step, when its result has been seen, is over by then: nothing of it is in what comes next.
REST_S: Final = 0.03
ACTIVITY: Final = "activity"

Json = dict[str, Any]


class Program(Protocol):
    """A program that runs the conversation, seen from beside the carrier."""

    def body(self, gate: str) -> str:
        """Return work whose turn lasts until a gate is opened."""
        ...

    def open(self, gate: str) -> None:
        """Open a gate."""
        ...

    async def turn(self, turn_id: str) -> tuple[int, int]:
        """Return when a turn began and ended, once it has ended."""
        ...

    async def bare(self) -> int:
        """Start a turn with nothing in between; return the nanoseconds until it was seen to begin, once it is over."""
        ...


def stamps_of(turn_id: str, text: str) -> dict[str, int]:
    """Return what was said of a turn and when. A line without its end is still being written and counts for nothing.

    What is appended becomes visible page by page, so that a line across two of them may be seen in part.
    """
    lines = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return {said: int(stamp) for said, turn, stamp in lines if turn == turn_id}


class Scripted:
    """The scripted program of an agent, which notes its turns, and another one of its kind for bare turns."""

    def __init__(self, folder: str, beside: str) -> None:
        self._folder, self._beside = Path(folder), Path(beside)
        self._numbers = itertools.count(1)
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the other one."""
        self._beside.mkdir(parents=True, exist_ok=True)
        for folder in (self._folder, self._beside):
            (folder / "stamps").touch()
        (self._folder / "gates").mkdir(exist_ok=True)
        self._process = await asyncio.create_subprocess_exec(
            *words(),
            *("--folder", str(self._beside), "--generation", "1"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        await self._ask("hello", {})
        await self._ask("open", {"conversation": "", "mcp": {}})

    async def close(self) -> None:
        """End the other one; it ends with its input, too."""
        assert self._process is not None
        self._process.stdin.close()  # type: ignore[union-attr]
        await self._process.wait()

    def body(self, gate: str) -> str:
        """See Program."""
        return f"WAIT {gate}\nSAY done"

    def open(self, gate: str) -> None:
        """See Program."""
        (self._folder / "gates" / gate).touch()

    async def turn(self, turn_id: str) -> tuple[int, int]:
        """See Program."""
        return await self._stamped(self._folder, turn_id)

    async def bare(self) -> int:
        """See Program."""
        record = f"ask_{uuid.uuid4().hex}"
        at = time.monotonic_ns()
        answer = await self._ask("start", {"delivery": {"record_id": record, "body": "SAY done"}})
        began, _ = await self._stamped(self._beside, answer["turn"])
        return began - at

    async def _ask(self, method: str, params: Json) -> Json:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        number = next(self._numbers)
        self._process.stdin.write(json.dumps({"id": number, "method": method, "params": params}).encode() + b"\n")
        async with asyncio.timeout(CALL_S_MAX):
            while (frame := json.loads(await self._process.stdout.readline())).get("id") != number:
                pass
        answer: Json = frame["result"]
        return answer

    @staticmethod
    async def _stamped(folder: Path, turn_id: str) -> tuple[int, int]:
        async with asyncio.timeout(HAPPENED_S_MAX):
            while True:
                at = stamps_of(turn_id, (folder / "stamps").read_text(encoding="utf-8"))
                if len(at) == len(("turn_started", "turn_ended")):
                    return at["turn_started"], at["turn_ended"]
                await asyncio.sleep(LOOK_S)


class Codex:
    """A Codex app-server, as a second client of its conversation."""

    def __init__(self, conversation: str, model: str) -> None:
        self._conversation, self._model = conversation, Path(model)
        self._turns: dict[str, dict[str, int]] = {}
        self._heard = asyncio.Event()
        self._connection: Connection | None = None

    async def start(self, socket: str) -> None:
        """Join the conversation."""
        connection = self._connection = await Connection.open(socket, self._hear)
        hello = {"clientInfo": {"name": "bench", "version": "1"}, "capabilities": {"experimentalApi": True}}
        await connection.request("initialize", hello)
        await connection.notify("initialized")
        await connection.request("thread/resume", {"threadId": self._conversation, "excludeTurns": True})

    def _hear(self, message: Json) -> None:
        at, said = time.monotonic_ns(), message["method"]
        if said in {"turn/started", "turn/completed"}:
            self._turns.setdefault(message["params"]["turn"]["id"], {})[said] = at
            self._heard.set()

    def body(self, gate: str) -> str:
        """See Program."""
        return f"HOLD {gate}\nSAY done"

    def open(self, gate: str) -> None:
        """See Program."""
        (self._model / gate).touch()

    async def turn(self, turn_id: str) -> tuple[int, int]:
        """See Program."""
        async with asyncio.timeout(HAPPENED_S_MAX):
            while "turn/completed" not in self._turns.get(turn_id, {}):
                self._heard.clear()
                await self._heard.wait()
        at = self._turns[turn_id]
        return at["turn/started"], at["turn/completed"]

    async def bare(self) -> int:
        """See Program."""
        assert self._connection is not None
        record = f"ask_{uuid.uuid4().hex}"
        work = Delivery(record_id=record, kind="request", sender="bench", sender_id=str(uuid.uuid4()), body="SAY done")
        at = time.monotonic_ns()
        answer = await self._connection.request(
            "turn/start", {"threadId": self._conversation, **deliveries.started(work)}
        )
        began, _ = await self.turn(answer["turn"]["id"])
        return began - at


class Carrying:
    """The commands."""

    def __init__(self) -> None:
        self._stub: Any = None
        self._sender: Any = None
        self._operator: Any = None
        self._target = ""
        self._program: Program | None = None
        self._numbers = itertools.count(1)

    async def connect(self, address: str, operator: str, sender: str, target: str) -> None:
        """Know the mailbox, who asks there (tokens), and who is asked (a name)."""
        channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._stub = mailbox_pb2_grpc.MailboxServiceStub(channel)
        self._operator, self._sender = ((("authorization", f"Bearer {token}"),) for token in (operator, sender))
        self._target = target
        await channel.channel_ready()

    async def scripted(self, folder: str, beside: str) -> None:
        """Look at a scripted program's folder, and run another one in a folder of its own."""
        program = Scripted(folder, beside)
        await program.start()
        self._program = program

    async def codex(self, socket: str, conversation: str, model: str) -> None:
        """Join a conversation of Codex; `model` is the folder in which its model looks for gates."""
        program = Codex(conversation, model)
        await program.start(socket)
        self._program = program

    async def bare(self, count: int) -> list[float]:
        """Return the seconds from a bare start of a turn to its begin."""
        assert self._program is not None
        found = []
        for _ in range(count):
            found.append(await self._program.bare() / 1e9)
            await asyncio.sleep(REST_S)  # sleep: nothing of this is in what comes next
        return found

    async def requests(self, count: int) -> dict[str, list[float]]:
        """Ask one thing after the other; each turn ends once its acceptance is on disk everywhere.

        Returns the seconds from each receipt to the begin of its turn, and from the turn's end to the end of the wait.
        """
        found: dict[str, list[float]] = {"start": [], "wake": []}
        for _ in range(count):
            receipt, began, ended, woken = await self._one()
            if not receipt < ended < woken:
                raise AssertionError(f"out of order: {receipt}, {ended}, {woken}")
            found["start"].append((began - receipt) / 1e9)
            found["wake"].append((woken - ended) / 1e9)
        return found

    async def _one(self) -> tuple[int, int, int, int]:
        program = self._program
        assert program is not None
        gate = f"gate-{next(self._numbers)}"
        waiting = asyncio.create_task(self._wait())
        # Calls of one connection begin in their order: when the second one is answered, the wait stands.
        for _ in range(2):
            await self._stub.Describe(pb.DescribeRequest(), metadata=self._sender, timeout=CALL_S_MAX)
        request = pb.RequestRequest(target=self._target, body=program.body(gate), idempotency_key=uuid.uuid4().hex)
        answer = await self._stub.Request(request, metadata=self._sender, timeout=CALL_S_MAX)
        receipt = time.monotonic_ns()
        turn_id = await self._bound(answer.request_id)
        await asyncio.sleep(REST_S)  # sleep: nothing of this is in what comes next
        program.open(gate)
        async with asyncio.timeout(HAPPENED_S_MAX):
            woken, reason = await waiting
        if reason != ACTIVITY:
            raise AssertionError(f"the wait was not ended by the answer: {reason!r}")
        began, ended = await program.turn(turn_id)
        await self._empty()
        await asyncio.sleep(REST_S)  # sleep: nothing of this is in what comes next
        return receipt, began, ended, woken

    async def _wait(self) -> tuple[int, str]:
        answer = await self._stub.Wait(
            pb.WaitRequest(timeout_ms=WAIT_MS), metadata=self._sender, timeout=WAIT_MS / 1000 + CALL_S_MAX
        )
        return time.monotonic_ns(), answer.wake_reason

    async def _bound(self, request_id: str) -> str:
        """Return the turn that has taken a request, once that is on disk."""
        async with asyncio.timeout(HAPPENED_S_MAX):
            while True:
                await asyncio.sleep(LOOK_S)
                ask = pb.ExplainRequest(record_id=request_id)
                explained = await self._stub.Explain(ask, metadata=self._operator, timeout=CALL_S_MAX)
                if explained.HasField("binding"):
                    turn_id: str = explained.binding.provider_turn_id
                    return turn_id

    async def _empty(self) -> None:
        page = await self._stub.Receive(pb.ReceiveRequest(), metadata=self._sender, timeout=CALL_S_MAX)
        acknowledged = pb.ReceiveRequest(ack_cursor=page.ack_cursor)
        await self._stub.Receive(acknowledged, metadata=self._sender, timeout=CALL_S_MAX)


async def main() -> None:
    carrying = Carrying()
    await serve_async(
        {
            "connect": carrying.connect,
            "scripted": carrying.scripted,
            "codex": carrying.codex,
            "bare": carrying.bare,
            "requests": carrying.requests,
        }
    )


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
