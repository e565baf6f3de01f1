"""Agents of the chaos run that work on supervised tasks: one gives and judges them, others race for them and do them.

Every write goes through the client library under a request id of its own, is pursued until its outcome is definite, and
is written down as a Tasked. What is read decides what is tried next; what was tried may be refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import Awaitable, Callable
from types import MappingProxyType
from typing import Any, Final

from fencepost_chaos.faces import AGAIN_PAUSE_S, AGAIN_SHARE, MAY_RESEND, OP_S_MAX, Recorded
from fencepost_chaos.history import Log, Outcome, Settled, Tasked, now_ns

from fencepost.client import Tasks
from fencepost.errors import FencepostError, NotWritten, Refused, Uncertain
from fencepost.mailbox.v1 import mailbox_pb2
from fencepost.mailbox.v1 import tasks_pb2 as pb

LEAD: Final = "kit"
WORKERS: Final = ("ivy", "jon")
PAUSE_MS: Final = (4, 40)
# So many tasks wait or are worked on at once, at most; a look shows all of them.
OPEN_MAX: Final = 16
LOOKED_AT_MAX: Final = 50
ASSIGNED_SHARE: Final = 0.3
CANCEL_SHARE: Final = 0.08
REJECT_SHARE: Final = 0.2
# Of the looks of a worker, how many of them note progress instead of submitting.
PROGRESS_SHARE: Final = 0.3
_OPEN: Final = (
    pb.TASK_STATE_BLOCKED,
    pb.TASK_STATE_QUEUED,
    pb.TASK_STATE_RUNNING,
    pb.TASK_STATE_SUBMITTED,
    pb.TASK_STATE_CANCEL_REQUESTED,
)
_METHODS: Final = MappingProxyType(
    {
        pb.CreatePoolTaskRequest: "create_pool",
        pb.AssignTaskRequest: "assign",
        pb.ClaimTaskRequest: "claim",
        pb.StartTaskRequest: "start",
        pb.ProgressTaskRequest: "progress",
        pb.SubmitTaskRequest: "submit",
        pb.ReviewTaskRequest: "review",
        pb.CancelTaskRequest: "cancel",
        pb.FinishCancelTaskRequest: "finish_cancel",
    }
)


def action_of(request: Any) -> str:
    """Return the action by which the history of a task tells of this write."""
    method = _METHODS[type(request)]
    return ("accept" if request.accepted else "reject") if method == "review" else method


class RecordedTasks(Recorded, Tasks):
    """The library's tasks, whose settlements are written down too."""

    async def _ask_settlement(self, rpc: Any, ask: Any, lost: Uncertain, hint: str) -> Any:
        answer = await super()._ask_settlement(rpc, ask, lost, hint)
        self.note(ask.request_id, answer)
        return answer

    def note(self, request_id: str, answer: pb.SettleTaskRequestResponse) -> Settled:
        """Remember what became of a request id."""
        meaning = {pb.REQUEST_FATE_WRITTEN: Settled.WRITTEN, pb.REQUEST_FATE_CANCELLED: Settled.CANCELLED}
        settled = meaning.get(answer.fate, Settled.UNSETTLED)
        self.settlements[request_id] = settled
        return settled

    async def epoch(self) -> str:
        """Return the store's epoch."""
        answer: mailbox_pb2.DescribeResponse = await self._mailbox.describe()
        return answer.epoch


class Laborer:
    """One agent's way to its tasks."""

    def __init__(self, *, name: str, agent: str, tasks: RecordedTasks, log: Log, seed: str) -> None:
        self.name = name
        self.agent = agent
        self.dice = random.Random(f"{seed} {name} tasks")
        self._client = name
        self._tasks = tasks
        self._log = log
        self._epoch = ""
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Begin nothing new; the write that is under way is pursued to its end."""
        self._stopping.set()

    async def run(self, step: Callable[[Laborer, list[pb.Task]], Awaitable[None]]) -> None:
        """Look, do something about what is seen, and so on until stopped."""
        while not self._stopping.is_set():
            with contextlib.suppress(FencepostError):
                ask = pb.ListTasksRequest(states=_OPEN, page_size=LOOKED_AT_MAX)
                seen = list((await self._tasks.list_tasks(ask)).tasks)
                if not self._epoch:
                    # An unknown is settled by it however long it lasts.
                    self._epoch = await self._tasks.epoch()
                await step(self, seen)
            pause_ms = self.dice.uniform(*PAUSE_MS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_ms / 1000)

    def request_id(self) -> str:
        """Return an id that was never used."""
        return str(uuid.UUID(int=self.dice.getrandbits(128), version=4))

    async def write(self, request: Any) -> None:
        """Make a write until its outcome is definite or cannot be learned; then, now and then, once more."""
        invoked, losses = now_ns(), self._tasks.losses
        outcome, reason, change = await self._pursued(request)
        returned, lost = now_ns(), self._tasks.losses - losses
        settled = self._tasks.settlements.pop(request.request_id, Settled.NOT_ASKED)
        self._log.add(
            Tasked(
                client=self._client,
                agent=self.agent,
                action=action_of(request),
                request_id=request.request_id,
                task_id=change.task_id or getattr(request, "task_id", ""),
                text=getattr(request, "description", ""),
                invoked_ns=invoked,
                returned_ns=returned,
                outcome=outcome,
                reason=reason,
                sequence=change.sequence,
                version=change.version,
                lost=lost,
                settled=settled,
                again=await self._again(request, outcome, reason),
            )
        )

    async def _made(self, request: Any) -> tuple[Outcome, str, pb.TaskChange]:
        try:
            answer = await getattr(self._tasks, _METHODS[type(request)])(request)
        except Refused as refused:
            return Outcome.REFUSED, refused.reason, pb.TaskChange()
        except NotWritten as unsent:
            return Outcome.NOT_WRITTEN, "key_spent" if unsent.key_spent else unsent.reason, pb.TaskChange()
        except Uncertain as unknown:
            return Outcome.UNCERTAIN, unknown.reason, pb.TaskChange()
        return Outcome.DONE, "", answer.change

    async def _pursued(self, request: Any) -> tuple[Outcome, str, pb.TaskChange]:
        clock = asyncio.get_running_loop().time
        until = clock() + OP_S_MAX
        while True:
            ended = outcome, reason, _ = await self._made(request)
            if outcome is Outcome.UNCERTAIN:
                return await self._settled(request, ended, until)
            unsent = outcome is Outcome.NOT_WRITTEN and reason != "key_spent"
            if not (unsent or reason in MAY_RESEND) or clock() > until:
                return ended
            await asyncio.sleep(AGAIN_PAUSE_S)

    async def _settled(
        self, request: Any, unknown: tuple[Outcome, str, pb.TaskChange], until: float
    ) -> tuple[Outcome, str, pb.TaskChange]:
        """Go on asking where the library's own budget was not enough. The write itself is never repeated."""
        ask = pb.SettleTaskRequestRequest(request_id=request.request_id, epoch=self._epoch)
        while asyncio.get_running_loop().time() < until:
            try:
                answer = await self._tasks.settle(ask)
            except FencepostError:
                await asyncio.sleep(AGAIN_PAUSE_S)
                continue
            match self._tasks.note(request.request_id, answer):
                case Settled.WRITTEN:
                    return Outcome.DONE, "", answer.change
                case Settled.CANCELLED:
                    return Outcome.NOT_WRITTEN, "key_spent", pb.TaskChange()
            break
        return unknown

    async def _again(self, request: Any, outcome: Outcome, reason: str) -> str:
        """Make the very same write once more: a late arrival where the id was cancelled, else now and then."""
        cancelled = outcome is Outcome.NOT_WRITTEN and reason == "key_spent"
        if not cancelled and not (outcome is Outcome.DONE and self.dice.random() < AGAIN_SHARE):
            return ""
        again, why, change = await self._made(request)
        self._tasks.settlements.pop(request.request_id, None)
        if again is Outcome.DONE:
            return str(change.sequence)
        return why if again is Outcome.REFUSED and why not in MAY_RESEND else ""


async def lead(laborer: Laborer, seen: list[pb.Task]) -> None:
    """Judge what was submitted, cancel something now and then, and give more work."""
    submitted = [task for task in seen if task.state == pb.TASK_STATE_SUBMITTED]
    if submitted:
        task = laborer.dice.choice(submitted)
        accepted = laborer.dice.random() >= REJECT_SHARE
        review = pb.ReviewTaskRequest(
            task_id=task.task_id, revision=task.revision, accepted=accepted, request_id=laborer.request_id()
        )
        review.feedback = "" if accepted else "once more"
        await laborer.write(review)
    elif seen and laborer.dice.random() < CANCEL_SHARE:
        chosen = laborer.dice.choice(seen)
        await laborer.write(
            pb.CancelTaskRequest(task_id=chosen.task_id, reason="not wanted", request_id=laborer.request_id())
        )
    elif len(seen) < OPEN_MAX:
        request_id = laborer.request_id()
        if laborer.dice.random() < ASSIGNED_SHARE:
            to = laborer.dice.choice(WORKERS)
            await laborer.write(
                pb.AssignTaskRequest(to=to, description=request_id, acceptance="done", request_id=request_id)
            )
        else:
            await laborer.write(
                pb.CreatePoolTaskRequest(description=request_id, acceptance="done", request_id=request_id)
            )


async def work(laborer: Laborer, seen: list[pb.Task]) -> None:
    """Go on with the own task, or take the oldest that is free: the others look at the same."""
    own = [task for task in seen if task.assignee.agent_id == laborer.agent]
    for task in own:
        if task.state == pb.TASK_STATE_CANCEL_REQUESTED:
            await laborer.write(
                pb.FinishCancelTaskRequest(
                    task_id=task.task_id, attempt_id=task.attempt.attempt_id, request_id=laborer.request_id()
                )
            )
            return
        if task.state == pb.TASK_STATE_RUNNING:
            await laborer.write(_step(laborer, task))
            return
    queued = [task for task in own if task.state == pb.TASK_STATE_QUEUED]
    free = [task for task in seen if task.state == pb.TASK_STATE_QUEUED and not task.assignee.agent_id]
    if queued:
        task = min(queued, key=lambda one: one.queue_position)
        await laborer.write(
            pb.StartTaskRequest(task_id=task.task_id, revision=task.revision, request_id=laborer.request_id())
        )
    elif free:
        await laborer.write(pb.ClaimTaskRequest(task_id=free[-1].task_id, request_id=laborer.request_id()))


def _step(laborer: Laborer, task: pb.Task) -> Any:
    about: dict[str, Any] = {
        "task_id": task.task_id,
        "revision": task.revision,
        "attempt_id": task.attempt.attempt_id,
        "request_id": laborer.request_id(),
    }
    if laborer.dice.random() < PROGRESS_SHARE:
        return pb.ProgressTaskRequest(**about, note="half of it")
    return pb.SubmitTaskRequest(**about, result="all of it", evidence="seen")


# What each of them does at a look, by its name.
STEPS: Final = MappingProxyType({LEAD: lead, **dict.fromkeys(WORKERS, work)})
