"""Claim, start and review: two processes of the operating system race for every task through a running mailbox.

The parent prepares a heat of tasks and lets both racers go: both call for every task at the same moments. What each was
answered is compared afterwards, and with the history that the mailbox wrote down.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc

from fencepost.home import MAILBOX, SESSIONS, Home
from fencepost.mailbox.v1 import tasks_pb2 as pb
from fencepost.mailbox.v1.tasks_pb2_grpc import TasksServiceStub
from fencepost_kit.ids import IdMint, uuid_text
from fencepost_kit.statuses import detail_of
from fencepost_testing.processes import Services, create_agents, dying_with_us, environment

# What is raced for. A claim is two agents'; a start and a review are two processes of one agent.
KINDS: Final = ("claim", "start", "review")
RACERS: Final = ("first", "second")
HEAT_TASKS: Final = 25
HEAT_S_MAX: Final = 60.0
CALL_S_MAX: Final = 10.0
# How the loser of each race is refused.
REFUSED: Final = {
    "claim": {"not_found"},
    "start": {"invalid_state", "version_conflict"},
    "review": {"invalid_state", "version_conflict"},
}
_MINT: Final = IdMint()


def new_request_id() -> str:
    """A request id that was never used."""
    return uuid_text(_MINT.new())


@dataclass(kw_only=True, slots=True)
class TaskOutcome:
    """Who won what, and how the other was refused."""

    kind: str
    asked: list[str] = field(default_factory=list)
    won: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in RACERS})
    refused: Counter[str] = field(default_factory=Counter)
    # How often the mailbox wrote the transition down, task by task.
    written: Counter[int] = field(default_factory=Counter)

    def wins(self, racer: str) -> int:
        """How many tasks a racer won."""
        return len(self.won[racer])

    def faults(self) -> list[str]:
        """What went wrong: every task has one winner, one transition, and one refusal of a kind that fits."""
        times = Counter(task_id for tasks in self.won.values() for task_id in tasks)
        found = [f"{task_id} was won {times[task_id]} times" for task_id in self.asked if times[task_id] != 1]
        found += [f"{task_id} was never raced for" for task_id in set(times) - set(self.asked)]
        if set(self.refused) - REFUSED[self.kind]:
            found.append(f"the loser was refused as {dict(self.refused)}")
        if self.refused.total() != len(self.asked):
            found.append(f"{self.refused.total()} refusals for {len(self.asked)} races")
        if dict(self.written) != {1: len(self.asked)}:
            found.append(f"transitions written per task: {dict(self.written)}")
        return found

    def summary(self) -> str:
        """One line for people."""
        return (
            f"{self.kind}: {len(self.asked)} races, {self.wins('first')} won by the first, {self.wins('second')} by "
            f"the second, refused {dict(self.refused)}, {len(self.faults())} faults"
        )


class TaskCalls:
    """TasksService as one agent calls it."""

    def __init__(self, channel: grpc.aio.Channel, token: str) -> None:
        self._stub: Any = TasksServiceStub(channel)
        self._metadata = (("authorization", f"Bearer {token}"),)

    async def call(self, method: str, request: Any) -> Any:
        """Call a method."""
        return await getattr(self._stub, method)(request, metadata=self._metadata, timeout=CALL_S_MAX)

    async def race(self, kind: str, task_id: str) -> str:
        """Make the call that is raced for; "" where it succeeds, else the reason of its refusal."""
        request_id = new_request_id()
        if kind == "claim":
            call = self.call("ClaimTask", pb.ClaimTaskRequest(task_id=task_id, request_id=request_id))
        elif kind == "start":
            start = pb.StartTaskRequest(task_id=task_id, revision=1, expected_version=1, request_id=request_id)
            call = self.call("StartTask", start)
        else:
            verdict = pb.ReviewTaskRequest(
                task_id=task_id, revision=1, accepted=True, feedback="good", expected_version=3, request_id=request_id
            )
            call = self.call("ReviewTask", verdict)
        try:
            await call
        except grpc.aio.AioRpcError as error:
            detail = detail_of(error)
            if detail is None:
                raise
            return detail.reason
        return ""

    async def submitted(self, task_id: str) -> None:
        """Submit a task that runs."""
        ask = pb.SubmitTaskRequest(
            task_id=task_id, revision=1, result="done", evidence="seen", request_id=new_request_id()
        )
        await self.call("SubmitTask", ask)


class _Racer:
    """A child process, driven by lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, kind: str, home: Home, address: str, token: str) -> _Racer:
        process = await asyncio.create_subprocess_exec(
            *dying_with_us(sys.executable, "-m", "fencepost_testing.task_race", kind, address),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment(home, {"RACE_TOKEN": token}),
            limit=2**22,
        )
        racer = cls(process)
        assert await racer.read() == "ready"
        return racer

    async def read(self) -> Any:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert line, "a racer has ended"
        return json.loads(line)

    def go(self, task_id: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(task_id.encode("ascii") + b"\n")

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
async def _racers(kind: str, home: Home, address: str, tokens: Sequence[str]) -> AsyncIterator[list[_Racer]]:
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for token in tokens:
            racer = await _Racer.start(kind, home, address, token)
            stack.push_async_callback(racer.close)
            found.append(racer)
        yield found


async def race_for_tasks(home: Home, kind: str, count: int) -> TaskOutcome:
    """Run sessions and mailbox in `home`, race for `count` tasks, and tell who won what."""
    outcome = TaskOutcome(kind=kind)
    async with Services(home) as services:
        await services.start(SESSIONS, MAILBOX)
        agents = await create_agents(services, "issuer", "bob", "dan")
        issuer, bob, dan = (agents[name].token for name in ("issuer", "bob", "dan"))
        tokens = {"claim": (bob, dan), "start": (bob, bob), "review": (issuer, issuer)}[kind]
        address = home.address(MAILBOX).read_text(encoding="utf-8").strip()
        async with (
            grpc.aio.insecure_channel(address) as channel,
            _racers(kind, home, address, tokens) as racers,
        ):
            calls = {
                name: TaskCalls(channel, token) for name, token in (("issuer", issuer), ("bob", bob), ("dan", dan))
            }
            async with asyncio.timeout(HEAT_S_MAX * (1 + count // HEAT_TASKS)):
                for number in range(count):
                    await _one(outcome, calls, racers, first=number % 2)
            for task_id in outcome.asked:
                ask = pb.GetTaskHistoryRequest(task_id=task_id, page_size=200)
                events = (await calls["issuer"].call("GetTaskHistory", ask)).events
                outcome.written[sum(event.action == _ACTION[kind] for event in events)] += 1
        services.stop(MAILBOX)
    return outcome


_ACTION: Final = {"claim": pb.TASK_ACTION_CLAIM, "start": pb.TASK_ACTION_START, "review": pb.TASK_ACTION_ACCEPT}


async def _one(outcome: TaskOutcome, calls: dict[str, TaskCalls], racers: Sequence[_Racer], *, first: int) -> None:
    """Race once. Who is told first changes, and the task is put out of the way afterwards."""
    task_id = await _prepared(outcome.kind, calls)
    outcome.asked.append(task_id)
    for index in (first, 1 - first):
        racers[index].go(task_id)
    answers = await asyncio.gather(*(racer.read() for racer in racers))
    for name, reason in zip(RACERS, answers, strict=True):
        if reason:
            outcome.refused[reason] += 1
        else:
            outcome.won[name].append(task_id)
    if outcome.kind == "claim":
        await calls["bob" if not answers[0] else "dan"].submitted(task_id)
    elif outcome.kind == "start":
        await calls["bob"].submitted(task_id)


async def _prepared(kind: str, calls: dict[str, TaskCalls]) -> str:
    """Make a task that can be raced for, and return its id."""
    work: dict[str, Any] = {"description": "work", "acceptance": "done", "request_id": new_request_id()}
    if kind == "claim":
        made = await calls["issuer"].call("CreatePoolTask", pb.CreatePoolTaskRequest(eligible=["bob", "dan"], **work))
        return str(made.change.task_id)
    made = await calls["issuer"].call("AssignTask", pb.AssignTaskRequest(to="bob", **work))
    task_id = str(made.change.task_id)
    if kind == "review":
        start = pb.StartTaskRequest(task_id=task_id, revision=1, request_id=new_request_id())
        await calls["bob"].call("StartTask", start)
        await calls["bob"].submitted(task_id)
    return task_id


# --- in the child -----------------------------------------------------------------------------------------------------


async def _child(kind: str, address: str) -> None:
    def say(line: Any) -> None:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    async with grpc.aio.insecure_channel(address) as channel:
        calls = TaskCalls(channel, os.environ["RACE_TOKEN"])
        await channel.channel_ready()
        say("ready")
        while line := await asyncio.to_thread(sys.stdin.readline):
            say(await calls.race(kind, line.strip()))


if __name__ == "__main__":
    asyncio.run(_child(*sys.argv[1:]))
