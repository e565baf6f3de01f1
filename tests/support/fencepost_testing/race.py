"""Receive against claim: two processes of the operating system race for every request through a running mailbox.

The parent admits a heat of requests and lets both racers go; each takes one request a call until nothing is left. What
each was given, and when, is compared afterwards, and with what the mailbox wrote down.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fencepost.client import Channels, Mailbox, new_key
from fencepost.home import MAILBOX, MCP_EDGE, SESSIONS, Home, read_credential
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost_mailbox.domain.values import CLAIM_TERM_MS_MAX, FactKind
from fencepost_testing.processes import Services, create_agents, dying_with_us, environment

HEAT_REQUESTS: Final = 100
HEAT_S_MAX: Final = 60.0
RACERS: Final = ("receive", "claim")
DISPATCHER: Final = "00000000-0000-4000-8000-000000000001"


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """A request that a racer was given, and between which moments of the system's monotonic clock."""

    request_id: str
    began: float
    ended: float


@dataclass(kw_only=True, slots=True)
class Outcome:
    """Who was given what."""

    asked: list[str] = field(default_factory=list)
    given: dict[str, list[Given]] = field(default_factory=lambda: {name: [] for name in RACERS})
    # Requests that one racer was given while a call of the other was open.
    contested: int = 0
    # What the mailbox wrote down of each request.
    facts: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def wins(self, racer: str) -> int:
        """How many requests a racer was given."""
        return len(self.given[racer])

    def faults(self) -> list[str]:
        """What went wrong: nothing may be given twice, to both, or to nobody."""
        times = Counter(one.request_id for racer in RACERS for one in self.given[racer])
        found = [f"{request_id} was given {count} times" for request_id, count in times.items() if count != 1]
        found += [f"{request_id} was given to nobody" for request_id in self.asked if request_id not in times]
        found += [f"{request_id} was never asked for" for request_id in set(times) - set(self.asked)]
        allowed = {("exposed",): self.wins("receive"), ("claimed",): self.wins("claim")}
        if dict(self.facts) != {facts: count for facts, count in allowed.items() if count}:
            found.append(f"the mailbox wrote down {dict(self.facts)}, the racers were given {allowed}")
        return found

    def summary(self) -> str:
        """One line for people."""
        return (
            f"{len(self.asked)} requests: {self.wins('receive')} received, {self.wins('claim')} claimed, "
            f"{self.contested} while the other racer's call was open, {len(self.faults())} faults"
        )


def overlapping(ones: Sequence[Given], others: Sequence[Given]) -> int:
    """Count those of `ones` that were given while a call of `others` was open. Both are in the order of time."""
    count, at = 0, 0
    for one in ones:
        while at < len(others) and others[at].ended < one.began:
            at += 1
        if at < len(others) and others[at].began <= one.ended:
            count += 1
    return count


class _Racer:
    """A child process, driven by lines."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process

    @classmethod
    async def start(cls, name: str, home: Home, agent_id: str, token: str) -> _Racer:
        process = await asyncio.create_subprocess_exec(
            *dying_with_us(sys.executable, "-m", "fencepost_testing.race", name, agent_id),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment(home, {"RACE_TOKEN": token}),
            limit=2**22,
        )
        racer = cls(name, process)
        assert await racer.read() == "ready"
        return racer

    async def read(self) -> Any:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert line, f"the racer {self.name} has ended"
        return json.loads(line)

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(10):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@contextlib.asynccontextmanager
async def _racers(home: Home, agent_id: str, tokens: Sequence[str]) -> AsyncIterator[list[_Racer]]:
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for name, token in zip(RACERS, tokens, strict=True):
            racer = await _Racer.start(name, home, agent_id, token)
            stack.push_async_callback(racer.close)
            found.append(racer)
        yield found


async def race(home: Home, count: int) -> Outcome:
    """Run sessions and mailbox in `home`, race for `count` requests, and tell who was given what."""
    outcome = Outcome()
    async with Services(home) as services:
        await services.start(SESSIONS, MAILBOX)
        agents = await create_agents(services, "asker", "worker")
        tokens = (agents["worker"].token, read_credential(home.service_credential(MCP_EDGE)))
        async with (
            Channels(home) as channels,
            _racers(home, agents["worker"].agent_id, tokens) as racers,
        ):
            asker = Mailbox(channels, agents["asker"].token)
            while len(outcome.asked) < count:
                heat = min(HEAT_REQUESTS, count - len(outcome.asked))
                receipts = await asyncio.gather(*(asker.request(_asking(n)) for n in range(heat)))
                outcome.asked += [receipt.request_id for receipt in receipts]
                async with asyncio.timeout(HEAT_S_MAX):
                    await _heat(outcome, racers)
        services.stop(MAILBOX)
    outcome.facts = _facts(home)
    return outcome


def _asking(number: int) -> pb.RequestRequest:
    return pb.RequestRequest(target="worker", body=f"work {number}", idempotency_key=new_key())


async def _heat(outcome: Outcome, racers: Sequence[_Racer]) -> None:
    for racer in racers:
        racer.go()
    lines = await asyncio.gather(*(racer.read() for racer in racers))
    heats = {
        racer.name: [Given(request_id=one, began=began, ended=ended) for one, began, ended in line]
        for racer, line in zip(racers, lines, strict=True)
    }
    for name, other in (RACERS, reversed(RACERS)):
        outcome.contested += overlapping(heats[name], heats[other])
        outcome.given[name] += heats[name]


def _facts(home: Home) -> Counter[tuple[str, ...]]:
    with contextlib.closing(sqlite3.connect(home.database(MAILBOX))) as connection:
        rows = connection.execute("SELECT record_id, fact FROM fact ORDER BY sequence").fetchall()
    facts: dict[bytes, tuple[str, ...]] = {}
    for record_id, fact in rows:
        facts[record_id] = (*facts.get(record_id, ()), FactKind(fact).name.lower())
    return Counter(facts.values())


# --- in the child -----------------------------------------------------------------------------------------------------


class _Reader:
    """Reads on from where it was: what it was shown in earlier heats stands before its cursor."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._cursor = ""

    async def received(self) -> AsyncIterator[tuple[str, float, float]]:
        while True:
            began = time.monotonic()
            page = await self._mailbox.receive(pb.ReceiveRequest(cursor=self._cursor, limit=1))
            ended = time.monotonic()
            if not page.records:
                return
            self._cursor = page.next_cursor
            for record in page.records:
                yield record.record_id, began, ended


async def _claimed(mailbox: Mailbox, agent_id: str) -> AsyncIterator[tuple[str, float, float]]:
    while True:
        ask = pb.ClaimRequest(
            agent_id=agent_id,
            generation=1,
            dispatcher_id=DISPATCHER,
            incarnation=1,
            kind=pb.CLAIM_KIND_REQUEST,
            term_ms=CLAIM_TERM_MS_MAX,
            idempotency_key=new_key(),
        )
        began = time.monotonic()
        answer = await mailbox.claim(ask)
        ended = time.monotonic()
        if not answer.HasField("claim"):
            return
        yield answer.claim.record.record_id, began, ended


async def _child(name: str, agent_id: str) -> None:
    def say(line: Any) -> None:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    async with Channels(Home.from_environment()) as channels:
        mailbox = Mailbox(channels, os.environ["RACE_TOKEN"])
        reader = _Reader(mailbox)
        await mailbox.describe()
        say("ready")
        while await asyncio.to_thread(sys.stdin.readline):
            taken = reader.received() if name == "receive" else _claimed(mailbox, agent_id)
            say([one async for one in taken])


if __name__ == "__main__":
    asyncio.run(_child(*sys.argv[1:]))
