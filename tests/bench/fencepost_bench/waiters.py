"""Agents that wait: one process that parks any number of waits over one connection and tells when each was woken."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any, Final

import grpc
import uvloop
from fencepost_bench.child import serve_async

from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost.mailbox.v1 import mailbox_pb2_grpc
from fencepost.transports.over_grpcio import CHANNEL_OPTIONS

WAIT_MS: Final = 60_000
WOKEN_S_MAX: Final = 10.0
CALL_S_MAX: Final = 20.0
ACTIVITY: Final = "activity"


class Waiters:
    """The commands. Agents are known by name."""

    def __init__(self) -> None:
        self._metadata: dict[str, Any] = {}
        self._waits: dict[str, asyncio.Task[tuple[int, str]]] = {}
        self._stub: Any = None

    async def connect(self, address: str, agents: dict[str, str]) -> None:
        """Know the mailbox and agents (name -> token)."""
        channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._stub = mailbox_pb2_grpc.MailboxServiceStub(channel)
        self._metadata = {name: (("authorization", f"Bearer {token}"),) for name, token in agents.items()}
        await channel.channel_ready()

    async def park(self, names: list[str]) -> int:
        """Park one wait for each that has none; return how many are parked now."""
        loop = asyncio.get_running_loop()
        for name in names:
            if name not in self._waits:
                self._waits[name] = loop.create_task(self._wait(name))
        # Calls of one connection begin in their order: when the second one is answered, every wait stands.
        for _ in range(2):
            await self._stub.Describe(pb.DescribeRequest(), metadata=self._metadata[names[-1]], timeout=CALL_S_MAX)
        woken = [name for name in names if self._waits[name].done()]
        if woken:
            raise AssertionError(f"{len(woken)} waits ended before anything was sent: {self._waits[woken[0]].result()}")
        # A thousand parked calls are many objects of this process, and none of the mailbox's.
        gc.collect()
        gc.freeze()
        return len(self._waits)

    async def _wait(self, name: str) -> tuple[int, str]:
        answer = await self._stub.Wait(
            pb.WaitRequest(timeout_ms=WAIT_MS), metadata=self._metadata[name], timeout=WAIT_MS / 1000 + CALL_S_MAX
        )
        return time.monotonic_ns(), answer.wake_reason

    async def woken(self, names: list[str]) -> list[int]:
        """Return when each was woken, on the system's monotonic clock; then empty their inboxes."""
        async with asyncio.timeout(WOKEN_S_MAX):
            ends = await asyncio.gather(*(self._waits.pop(name) for name in names))
        strange = [reason for _, reason in ends if reason != ACTIVITY]
        if strange:
            raise AssertionError(f"{len(strange)} waits were not woken by the message: {strange[0]!r}")
        await asyncio.gather(*(self._empty(name) for name in names))
        return [at for at, _ in ends]

    async def _empty(self, name: str) -> None:
        page = await self._stub.Receive(pb.ReceiveRequest(), metadata=self._metadata[name], timeout=CALL_S_MAX)
        await self._stub.Receive(
            pb.ReceiveRequest(ack_cursor=page.ack_cursor), metadata=self._metadata[name], timeout=CALL_S_MAX
        )

    async def leave(self) -> None:
        """End every wait."""
        gc.unfreeze()
        waits, self._waits = list(self._waits.values()), {}
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


async def main() -> None:
    waiters = Waiters()
    await serve_async(
        {"connect": waiters.connect, "park": waiters.park, "woken": waiters.woken, "leave": waiters.leave}
    )


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
