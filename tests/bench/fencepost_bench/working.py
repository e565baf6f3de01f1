"""Agents that work: one process that assigns, waits for notices, claims from a pool, reserves and checks files."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from typing import Any, Final

import grpc
import uvloop
from fencepost_bench.child import serve_async

from fencepost.mailbox.v1 import files_pb2, files_pb2_grpc, mailbox_pb2_grpc, tasks_pb2_grpc
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost.mailbox.v1 import tasks_pb2 as tasks
from fencepost.transports.over_grpcio import CHANNEL_OPTIONS

CALL_S_MAX: Final = 10.0
WAIT_MS: Final = 20_000
DESCRIPTION: Final = "Count the words of the files below docs. ".ljust(300, ".")
ACCEPTANCE: Final = "The counts stand in counts.txt."
PATHS_A_CALL: Final = 100
# One name in so many is a glob.
GLOB_EVERY: Final = 50
_clock: Final = time.perf_counter


def _request_id() -> str:
    return str(uuid.uuid4())


class Working:
    """The commands. Agents are known by name."""

    def __init__(self) -> None:
        self._metadata: dict[str, Any] = {}
        self._wait: asyncio.Task[tuple[int, str]] | None = None
        self._dice = random.Random(1)

    async def connect(self, address: str, agents: dict[str, str]) -> None:
        """Know the mailbox and agents (name -> token)."""
        channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._mailbox: Any = mailbox_pb2_grpc.MailboxServiceStub(channel)
        self._tasks: Any = tasks_pb2_grpc.TasksServiceStub(channel)
        self._files: Any = files_pb2_grpc.FilesServiceStub(channel)
        self._metadata |= {name: (("authorization", f"Bearer {token}"),) for name, token in agents.items()}
        await channel.channel_ready()

    async def _call(self, method: Any, who: str, request: Any) -> Any:
        return await method(request, metadata=self._metadata[who], timeout=CALL_S_MAX)

    # --- a notice -------------------------------------------------------------------------------------------------

    async def park(self, who: str) -> None:
        """Let an agent wait for its next notification."""
        self._wait = asyncio.get_running_loop().create_task(self._waited(who))
        # Calls of one connection begin in their order: when the second one is answered, the wait stands.
        for _ in range(2):
            await self._call(self._mailbox.Describe, who, pb.DescribeRequest())
        if self._wait.done():
            raise AssertionError(f"a wait ended before anything was assigned: {self._wait.result()}")

    async def _waited(self, who: str) -> tuple[int, str]:
        answer = await self._tasks.WaitNotification(
            tasks.WaitNotificationRequest(timeout_ms=WAIT_MS),
            metadata=self._metadata[who],
            timeout=WAIT_MS / 1000 + CALL_S_MAX,
        )
        return time.monotonic_ns(), answer.notification.task.task_id

    async def assign(self, issuer: str, to: str) -> tuple[int, str]:
        """Assign a task; returns when the call began, on the system's monotonic clock, and its id."""
        ask = tasks.AssignTaskRequest(to=to, description=DESCRIPTION, acceptance=ACCEPTANCE, request_id=_request_id())
        begun = time.monotonic_ns()
        answer = await self._call(self._tasks.AssignTask, issuer, ask)
        return begun, answer.change.task_id

    async def noticed(self) -> tuple[int, str]:
        """Return when the parked wait ended, and the task that it told of."""
        assert self._wait is not None, "a wait was parked"
        async with asyncio.timeout(CALL_S_MAX):
            return await self._wait

    async def take_back(self, issuer: str, task_id: str) -> None:
        """Cancel a task that nobody has started."""
        await self._call(
            self._tasks.CancelTask,
            issuer,
            tasks.CancelTaskRequest(task_id=task_id, reason="measured", request_id=_request_id()),
        )

    # --- a pool ---------------------------------------------------------------------------------------------------

    async def fill_pool(self, issuer: str, count: int) -> list[str]:
        """Offer tasks to every agent of the project; returns their ids."""
        answers = await asyncio.gather(
            *(
                self._call(
                    self._tasks.CreatePoolTask,
                    issuer,
                    tasks.CreatePoolTaskRequest(
                        description=DESCRIPTION, acceptance=ACCEPTANCE, request_id=_request_id()
                    ),
                )
                for _ in range(count)
            )
        )
        return [answer.change.task_id for answer in answers]

    async def claims(self, names: list[str], pool: list[str]) -> dict[str, float]:
        """Let all agents claim from one pool in closed loops, until it is empty, and submit what they claimed.

        Who claims what another was given tries the next. Only what they spend on claiming counts, lost claims included.
        """
        left = list(pool)
        seconds, lost = 0.0, 0

        async def claim(who: str) -> str:
            nonlocal lost
            while left:
                task_id = self._dice.choice(left)
                ask = tasks.ClaimTaskRequest(task_id=task_id, expected_version=1, request_id=_request_id())
                try:
                    await self._call(self._tasks.ClaimTask, who, ask)
                except grpc.aio.AioRpcError as error:
                    if error.code() not in {grpc.StatusCode.ABORTED, grpc.StatusCode.NOT_FOUND}:
                        raise
                    lost += 1
                else:
                    left.remove(task_id)
                    return task_id
            return ""

        async def work(who: str) -> None:
            nonlocal seconds
            while left:
                begun = _clock()
                task_id = await claim(who)
                seconds += _clock() - begun
                await self._submit(who, task_id)

        await asyncio.gather(*(work(who) for who in names))
        return {"count": len(pool), "rate": len(pool) * len(names) / seconds, "lost": lost}

    async def _submit(self, who: str, task_id: str) -> None:
        if task_id:
            ask = tasks.SubmitTaskRequest(
                task_id=task_id, revision=1, result="done", evidence="seen", request_id=_request_id()
            )
            await self._call(self._tasks.SubmitTask, who, ask)

    # --- files ----------------------------------------------------------------------------------------------------

    async def hold(self, holders: list[str], each: int) -> int:
        """Let each holder reserve so many paths for the whole hour that there may be; returns how many all hold."""
        for number, who in enumerate(holders):
            for first in range(0, each, PATHS_A_CALL):
                names = [f"part-{number}/folder-{one % 50}/file-{one}" for one in range(first, first + PATHS_A_CALL)]
                ask = files_pb2.ReserveFilesRequest(
                    paths=[f"{name}.py" for place, name in enumerate(names) if place % GLOB_EVERY],
                    globs=[f"{name}/*.py" for place, name in enumerate(names) if not place % GLOB_EVERY],
                    mode=files_pb2.RESERVATION_MODE_EXCLUSIVE,
                    duration_seconds=3600,
                    request_id=_request_id(),
                )
                answer = await self._call(self._files.ReserveFiles, who, ask)
                if not answer.reserved:
                    raise AssertionError(f"not reserved: {answer}")
        return len(holders) * each

    async def checks(self, who: str, seconds: float) -> dict[str, float]:
        """Check paths that nobody holds, in a closed loop."""
        took: list[float] = []
        until = _clock() + seconds
        while (started := _clock()) < until:
            path = f"part-{self._dice.randrange(10)}/folder-{self._dice.randrange(50)}/free-{len(took)}.py"
            answer = await self._call(self._files.CheckFiles, who, files_pb2.CheckFilesRequest(paths=[path]))
            took.append(_clock() - started)
            if not answer.free:
                raise AssertionError(f"{path} is held: {answer}")
        return _summed(took)

    async def reserves(self, who: str, seconds: float) -> dict[str, float]:
        """Reserve paths that nobody holds, in a closed loop; each is let go of before the next, out of the time."""
        took: list[float] = []
        until = _clock() + seconds
        while (started := _clock()) < until:
            path = f"part-{self._dice.randrange(10)}/folder-{self._dice.randrange(50)}/free-{len(took)}.py"
            ask = files_pb2.ReserveFilesRequest(
                paths=[path], mode=files_pb2.RESERVATION_MODE_EXCLUSIVE, request_id=_request_id()
            )
            answer = await self._call(self._files.ReserveFiles, who, ask)
            took.append(_clock() - started)
            if not answer.reserved:
                raise AssertionError(f"{path} is held: {answer}")
            release = files_pb2.ReleaseFilesRequest(reservation_ids=[answer.reservation_id], request_id=_request_id())
            await self._call(self._files.ReleaseFiles, who, release)
        return _summed(took)


def _summed(took: list[float]) -> dict[str, float]:
    took.sort()
    return {"count": len(took), "p50": took[len(took) // 2], "p99": took[int(len(took) * 0.99)]}


async def main() -> None:
    working = Working()
    names = (
        *("connect", "park", "assign", "noticed", "take_back", "fill_pool", "claims", "hold", "checks", "reserves"),
    )
    await serve_async({name: getattr(working, name) for name in names})


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
