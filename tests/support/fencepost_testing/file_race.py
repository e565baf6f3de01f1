"""Reserve against reserve: two processes of the operating system race for one file after another.

In each round both are let go for the same file, by turns the one and the other first; exactly one has it, and the other
is told by whom. What each was told is compared afterwards, and with what the mailbox wrote down.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import sys
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Final

from fencepost.client import Channels, Files
from fencepost.home import MAILBOX, SESSIONS, Home
from fencepost.mailbox.v1 import files_pb2 as pb
from fencepost_testing.processes import Services, create_agents, dying_with_us, environment

ROUND_S_MAX: Final = 30.0
RACERS: Final = ("ann", "bob")


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What a racer was told in a round, between which moments of the system's monotonic clock."""

    reserved: bool
    # Whom the answer names as holders, where it says no.
    holders: tuple[str, ...]
    began: float
    ended: float


@dataclass(kw_only=True, slots=True)
class Outcome:
    """What became of every round: what each racer was told, and whom the mailbox has as holder of each file."""

    rounds: list[dict[str, Told]] = field(default_factory=list)
    written: dict[str, list[str]] = field(default_factory=dict)

    def wins(self, racer: str) -> int:
        """How many files a racer has."""
        return sum(told[racer].reserved for told in self.rounds)

    @property
    def contested(self) -> int:
        """In how many rounds the calls overlapped."""
        return sum(
            max(told.began for told in both.values()) <= min(told.ended for told in both.values())
            for both in self.rounds
        )

    def faults(self) -> list[str]:
        """What went wrong."""
        found = []
        for number, both in enumerate(self.rounds):
            winners = [racer for racer, told in both.items() if told.reserved]
            losers = [racer for racer in both if racer not in winners]
            if len(winners) != 1:
                found.append(f"round {number} has {len(winners)} winners")
                continue
            if any(both[loser].holders != tuple(winners) for loser in losers):
                found.append(f"round {number}: the loser was told of {[both[loser].holders for loser in losers]}")
            if self.written.get(file_of(number)) != winners:
                found.append(f"round {number}: the mailbox wrote down {self.written.get(file_of(number))}")
        return found

    def summary(self) -> str:
        """One line for people."""
        wins = ", ".join(f"{racer} has {self.wins(racer)}" for racer in RACERS)
        return f"{len(self.rounds)} files: {wins}; {self.contested} contested, {len(self.faults())} faults"


def file_of(number: int) -> str:
    """The file of a round."""
    return f"src/f{number:05}.py"


class _Racer:
    """A child process, driven by lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, home: Home, token: str) -> _Racer:
        process = await asyncio.create_subprocess_exec(
            *dying_with_us(sys.executable, "-m", "fencepost_testing.file_race"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment(home, {"RACE_TOKEN": token}),
        )
        racer = cls(process)
        assert await racer.read() == "ready"
        return racer

    async def read(self) -> Any:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert line, "a racer has ended"
        return json.loads(line)

    def go(self, path: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(path.encode() + b"\n")

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(10):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


async def race(home: Home, count: int) -> Outcome:
    """Run sessions and mailbox in `home`, race for `count` files, and tell who has which."""
    outcome = Outcome()
    async with Services(home) as services:
        await services.start(SESSIONS, MAILBOX)
        agents = await create_agents(services, *RACERS)
        async with contextlib.AsyncExitStack() as stack:
            racers = {}
            for name in RACERS:
                racers[name] = await _Racer.start(home, agents[name].token)
                stack.push_async_callback(racers[name].close)
            for number in range(count):
                async with asyncio.timeout(ROUND_S_MAX):
                    outcome.rounds.append(await _round(racers, number))
        services.stop(MAILBOX)
        outcome.written = _written(home, {agents[name].agent_id: name for name in RACERS})
    return outcome


async def _round(racers: dict[str, _Racer], number: int) -> dict[str, Told]:
    names = RACERS if number % 2 else RACERS[::-1]
    for name in names:
        racers[name].go(file_of(number))
    told = {}
    for name in RACERS:
        reserved, holders, began, ended = await racers[name].read()
        told[name] = Told(reserved=reserved, holders=tuple(holders), began=began, ended=ended)
    return told


def _written(home: Home, names: dict[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    with contextlib.closing(sqlite3.connect(home.database(MAILBOX))) as connection:
        for path, holder in connection.execute("SELECT path, holder FROM file_reservation"):
            found.setdefault(path, []).append(names[str(uuid.UUID(bytes=holder))])
    return found


async def _child() -> None:
    def say(line: Any) -> None:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    async with Channels(Home.from_environment()) as channels:
        files = Files(channels, os.environ["RACE_TOKEN"])
        await files.check(pb.CheckFilesRequest(paths=["warm"]))
        say("ready")
        while path := (await asyncio.to_thread(sys.stdin.readline)).strip():
            ask = pb.ReserveFilesRequest(paths=[path], duration_seconds=3600, request_id=str(uuid.uuid4()))
            began = time.monotonic()
            answer = await files.reserve(ask)
            ended = time.monotonic()
            say([answer.reserved, [one.held.holder.name for one in answer.conflicts], began, ended])


if __name__ == "__main__":
    asyncio.run(_child())
