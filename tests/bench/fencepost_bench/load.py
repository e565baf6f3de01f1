"""The callers: one process that drives the echo or a mailbox in closed loops, over one connection to each."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from typing import Any, Final

import grpc
import uvloop
from fencepost_bench.child import serve_async

from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost.mailbox.v1 import mailbox_pb2_grpc
from fencepost.transports.over_grpcio import CHANNEL_OPTIONS

BODY: Final = "Fencepost carries words between agents. ".ljust(300, ".")
CALL_S_MAX: Final = 10.0
_clock: Final = time.perf_counter


class Server:
    """One server as the callers know it."""

    def __init__(self, address: str, senders: list[str], recipients: list[str]) -> None:
        self.channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        self.stub: Any = mailbox_pb2_grpc.MailboxServiceStub(self.channel)
        self.senders = [(("authorization", f"Bearer {token}"),) for token in senders]
        self.recipients = recipients
        self.pages: dict[str, list[tuple[Any, pb.ReceiveRequest]]] = {}


class Load:
    """The commands."""

    def __init__(self) -> None:
        self._servers: dict[str, Server] = {}
        self._dice = random.Random(1)

    async def connect(self, server: str, address: str, senders: list[str], recipients: list[str]) -> None:
        """Know a server, who sends there (tokens) and to whom (names)."""
        self._servers[server] = Server(address, senders, recipients)
        await self._servers[server].channel.channel_ready()

    async def sends(self, server: str, callers: int, seconds: float) -> dict[str, float]:
        """Send in closed loops from `callers` callers at once, to recipients drawn at random."""
        known, dice = self._servers[server], self._dice
        send, took = known.stub.Send, []
        begun = _clock()
        until = begun + seconds

        async def caller(number: int) -> None:
            metadata = known.senders[number % len(known.senders)]
            # As a shim mints them: a nonce for the process, and the number of the call.
            nonce = f"mcp-{secrets.token_hex(16)}"
            count = 0
            while (started := _clock()) < until:
                count += 1
                request = pb.SendRequest(
                    target=dice.choice(known.recipients), body=BODY, idempotency_key=f"{nonce}:{count}"
                )
                await send(request, metadata=metadata, timeout=CALL_S_MAX)
                took.append(_clock() - started)

        await asyncio.gather(*(caller(number) for number in range(callers)))
        elapsed = _clock() - begun
        took.sort()
        return {
            "count": len(took),
            "rate": len(took) / elapsed,
            "p50": took[len(took) // 2],
            "p99": took[int(len(took) * 0.99)],
        }

    async def one_by_one(self, server: str, targets: list[tuple[int, str]], every_s: float) -> list[int]:
        """Send to each target (number of the sender, name) in turn, one at a time.

        Returns when each call began, on the system's monotonic clock.
        """
        known = self._servers[server]
        nonce, begun = f"mcp-{secrets.token_hex(16)}", []
        for count, (sender, target) in enumerate(targets):
            request = pb.SendRequest(target=target, body=BODY, idempotency_key=f"{nonce}:{count}")
            begun.append(time.monotonic_ns())
            await known.stub.Send(request, metadata=known.senders[sender], timeout=CALL_S_MAX)
            rest = every_s - (time.monotonic_ns() - begun[-1]) / 1e9
            if rest > 0 and count + 1 < len(targets):
                await asyncio.sleep(rest)
        return begun

    async def know_pages(self, server: str, kind: str, pages: list[tuple[str, str]], limit: int) -> None:
        """Know pages to read, as (token, cursor), and read each once, so that all of them have been shown."""
        known = self._servers[server]
        known.pages[kind] = [
            ((("authorization", f"Bearer {token}"),), pb.ReceiveRequest(cursor=cursor, limit=limit))
            for token, cursor in pages
        ]
        for metadata, request in known.pages[kind]:
            answer = await known.stub.Receive(request, metadata=metadata, timeout=CALL_S_MAX)
            if len(answer.records) != limit:
                raise AssertionError(f"{kind}: a page has {len(answer.records)} records, not {limit}")

    async def reads(self, server: str, kind: str, seconds: float) -> dict[str, float]:
        """Read known pages in a closed loop, drawn at random."""
        known, dice = self._servers[server], self._dice
        receive, pages, took = known.stub.Receive, known.pages[kind], []
        until = _clock() + seconds
        while (started := _clock()) < until:
            metadata, request = dice.choice(pages)
            await receive(request, metadata=metadata, timeout=CALL_S_MAX)
            took.append(_clock() - started)
        took.sort()
        return {"count": len(took), "p50": took[len(took) // 2], "p99": took[int(len(took) * 0.99)]}


async def main() -> None:
    load = Load()
    await serve_async(
        {
            "connect": load.connect,
            "sends": load.sends,
            "one_by_one": load.one_by_one,
            "know_pages": load.know_pages,
            "reads": load.reads,
        }
    )


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
