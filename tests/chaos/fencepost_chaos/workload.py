"""What an agent of the chaos run does: sends one thing after the other, reads, acknowledges, answers each request once.

Every choice comes from the seed and the agent's name. What the system answers, and when, decides the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fencepost_chaos.faces import Face, Op
from fencepost_chaos.history import Call, Outcome, Page

PAUSE_MS: Final = (15, 60)
WAIT_MS: Final = (200, 4_000)
PAGE_RECORDS: Final = (1, 40)
REQUEST_SHARE: Final = 0.4
NOBODY_SHARE: Final = 0.01
# Of the pages, how many are forgotten, as by a program that ends before it has done anything about them.
FORGOTTEN_SHARE: Final = 0.05
READ_ON_SHARE: Final = 0.3
DRAIN_PAUSE_S: Final = 0.05
ANSWERS_MAX: Final = 20
# Characters that must come out as they went in.
_SPICE: Final = ("\0", "\r\n", "\x1b[1m", "ä", "漢字", "\U0001f600", '"\\"', "{}", "\u2028", "\t")
_BODY_CHARS: Final = ((0.85, 200), (0.97, 3_000), (1.0, 20_000))
NOBODY: Final = "nobody-of-this-project"


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Another agent."""

    name: str
    agent_id: str


class Agent:
    """One agent's life."""

    def __init__(self, *, name: str, face: Face, peers: Sequence[Peer], seed: str) -> None:
        self._name = name
        self._face = face
        self._peers = peers
        self._sends = random.Random(f"{seed} {name} sends")
        self._reads = random.Random(f"{seed} {name} reads")
        self._stopping = asyncio.Event()
        self._draining = asyncio.Event()
        self._drained = asyncio.Event()
        # (request, who asked), and how many of them are not answered yet.
        self._owed: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._owing = 0
        self._seen: set[str] = set()
        self._count = 0

    def parts(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """Return what runs until it is cancelled: reading, and answering what was read."""
        return self._read(), self._reply()

    async def send(self) -> None:
        """Send until told to stop; returns when the last call has ended."""
        while not self._stopping.is_set():
            await self._face.mutate(self._next())
            pause_ms = self._sends.uniform(*PAUSE_MS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_ms / 1000)

    def stop(self) -> None:
        """Begin nothing new but answers."""
        self._stopping.set()

    async def drain(self) -> None:
        """Return once nothing is unread and everything that was read is answered."""
        self._drained.clear()
        self._draining.set()
        await self._drained.wait()

    def _body(self, op: str) -> str:
        dice = self._sends.random()
        chars = next(chars for share, chars in _BODY_CHARS if dice <= share)
        spice = "".join(self._sends.choices(_SPICE, k=4))
        return f"{op} {spice} " + "x" * self._sends.randrange(chars)

    def _op_id(self, kind: str) -> str:
        self._count += 1
        return f"{self._name}-{kind}-{self._count}"

    def _next(self) -> Op:
        request = self._sends.random() < REQUEST_SHARE
        peer = self._sends.choice(self._peers)
        target = self._sends.choice((peer.name, peer.agent_id))
        recipient = peer.agent_id
        if self._sends.random() < NOBODY_SHARE:
            target, recipient = NOBODY, ""
        op = self._op_id("ask" if request else "inf")
        call = Call.REQUEST if request else Call.SEND
        return Op(op=op, call=call, target=target, recipient=recipient, body=self._body(op))

    async def _read(self) -> None:
        cursor = ack = pending = ""
        while True:
            draining = self._draining.is_set()
            if not draining and self._reads.random() < 0.7:
                await self._face.wait(round(self._reads.uniform(*WAIT_MS)))
            timeout_ms = 0 if draining else self._reads.choice((0, 0, 300))
            limit = self._reads.randint(*PAGE_RECORDS)
            page, empty = await self._face.receive(cursor=cursor, ack=ack, limit=limit, timeout_ms=timeout_ms)
            if page.outcome is not Outcome.DONE:
                await asyncio.sleep(0.05)
                continue
            ack = ""
            if self._reads.random() < FORGOTTEN_SHARE:
                cursor = pending = ""
                continue
            self._take(page)
            pending = page.ack_cursor or pending
            if page.records and self._reads.random() < READ_ON_SHARE:
                cursor = page.next_cursor
                continue
            cursor, ack, pending = "", pending, ""
            if draining and empty and not ack and not self._owing:
                self._draining.clear()
                self._drained.set()
            elif empty:
                await asyncio.sleep(DRAIN_PAUSE_S)

    def _take(self, page: Page) -> None:
        for seen in page.records:
            if seen.record_id.startswith("ask_") and seen.record_id not in self._seen and not seen.possibly_seen:
                self._seen.add(seen.record_id)
                self._owing += 1
                self._owed.put_nowait((seen.record_id, seen.sender))

    async def _reply(self) -> None:
        while True:
            request_id, asker = await self._owed.get()
            await answer(self._face, request_id, asker, self._op_id)
            self._owing -= 1


async def answer(face: Face, request_id: str, asker: str, op_id: Callable[[str], str]) -> None:
    """Answer a request. Where it is proved that nothing was written, once more under a new key; never otherwise."""
    for _ in range(ANSWERS_MAX):
        op = op_id("rep")
        wanted = Op(op=op, call=Call.REPLY, target=request_id, recipient=asker, parent=request_id, body=f"{op} done")
        ended = await face.mutate(wanted)
        if ended.outcome not in {Outcome.NOT_WRITTEN, Outcome.REFUSED}:
            return
        await asyncio.sleep(DRAIN_PAUSE_S)
