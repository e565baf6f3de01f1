"""Holds the histories of tasks to what their writers were told."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from fencepost_chaos.auditor import CANCELLED_REFUSAL, Broken, Violation
from fencepost_chaos.history import Outcome, Settled, Tasked

from fencepost.client import Tasks
from fencepost.mailbox.v1 import tasks_pb2 as pb

PAGE_ROWS: Final = 200
# What a writer of a run may be told although nothing is wrong: somebody else was faster.
RACES: Final = frozenset({"invalid_state", "already_running", "not_next", "stale_attempt", "stale_revision"})
CREATIONS: Final = frozenset({"create_pool", "assign"})
BEGINNINGS: Final = frozenset({"claim", "start"})
EXECUTORS: Final = frozenset({"progress", "submit", "finish_cancel"})
# While a task is in one of these, its assignee executes it.
EXECUTED: Final = frozenset({"running", "cancel_requested"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One event of a task, as its history tells it at the end."""

    task_id: str
    sequence: int
    action: str
    agent: str
    before: str
    after: str
    revision: int
    version: int
    attempt: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """A task as it stands at the end, with everything that happened to it."""

    task_id: str
    text: str
    version: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskCounts:
    """The figures of a run."""

    tasks: int
    acknowledged: int
    settled_written: int
    settled_cancelled: int
    uncertain: int
    races_lost: int


Check = Callable[[Sequence[Tasked], Sequence[Seen]], Iterator[Violation]]


def _name(write: Tasked) -> str:
    return f"{write.action} {write.request_id} of {write.client}"


def _done(writes: Sequence[Tasked]) -> list[Tasked]:
    return [write for write in writes if write.outcome is Outcome.DONE]


def acknowledged_writes_are_in_the_history(writes: Sequence[Tasked], tasks: Sequence[Seen]) -> Iterator[Violation]:
    """What was acknowledged is the event that its answer named, and no other write's."""
    steps = {step.sequence: step for task in tasks for step in task.steps}
    named = Counter(write.sequence for write in _done(writes))
    for write in _done(writes):
        step = steps.get(write.sequence)
        if step is None:
            yield Violation(broken=Broken.LOST, text=f"{_name(write)}: no event {write.sequence}")
            continue
        told = (write.task_id, write.action, write.agent, write.version)
        if (step.task_id, step.action, step.agent, step.version) != told:
            yield Violation(broken=Broken.CHANGED, text=f"{_name(write)}: {step}")
        if named[write.sequence] > 1:
            yield Violation(broken=Broken.DOUBLED, text=f"{_name(write)}: event {write.sequence} is another's too")


def nothing_else_is_there(writes: Sequence[Tasked], tasks: Sequence[Seen]) -> Iterator[Violation]:
    """Every event by an agent is one acknowledged write, or one whose outcome nobody learned."""
    acknowledged = {write.sequence for write in _done(writes)}
    unknown = Counter(
        (write.agent, write.action, write.task_id) for write in writes if write.outcome is Outcome.UNCERTAIN
    )
    for task in tasks:
        for step in task.steps:
            if step.sequence in acknowledged or not step.agent:
                continue
            asked = (step.agent, step.action, "" if step.action in CREATIONS else step.task_id)
            if unknown[asked] <= 0:
                yield Violation(broken=Broken.UNASKED, text=f"{step}")
            unknown[asked] -= 1
    for text, number in Counter(task.text for task in tasks).items():
        if number > 1:
            yield Violation(broken=Broken.DOUBLED, text=f"{number} tasks {text}")


def each_task_goes_its_way(_: Sequence[Tasked], tasks: Sequence[Seen]) -> Iterator[Violation]:
    """Versions go up one by one, each event begins where the one before ended, and the last is what stands."""
    for task in tasks:
        versions = [step.version for step in task.steps]
        if versions != list(range(1, len(versions) + 1)) or task.version != len(versions):
            yield Violation(broken=Broken.LOST, text=f"{task.task_id} is at {task.version}, its events at {versions}")
        for earlier, later in pairwise(task.steps):
            if later.before != earlier.after or later.sequence <= earlier.sequence:
                yield Violation(broken=Broken.DISORDER, text=f"{task.task_id}: {later} behind {earlier}")


def each_is_executed_once_at_a_time(_: Sequence[Tasked], tasks: Sequence[Seen]) -> Iterator[Violation]:
    """A revision of a task is begun once; a task has one executor at a time, and an agent one task.

    Nobody but who began it, and by the attempt that this made, goes on with it or ends it.
    """
    # task -> what began its execution, while it lasts.
    executing: dict[str, Step] = {}
    begun: Counter[tuple[str, int]] = Counter()
    for step in sorted((step for task in tasks for step in task.steps), key=lambda one: one.sequence):
        begin = executing.get(step.task_id)
        if step.action in BEGINNINGS:
            begun[step.task_id, step.revision] += 1
            if begun[step.task_id, step.revision] > 1 or begin is not None:
                yield Violation(broken=Broken.EXPOSED_TWICE, text=f"{step}: it was begun before")
            busy = [other.task_id for other in executing.values() if other.agent == step.agent]
            if busy:
                yield Violation(broken=Broken.EXPOSED_TWICE, text=f"{step}: the agent executes {busy}")
            executing[step.task_id] = step
            continue
        if step.action in EXECUTORS and (begin is None or (begin.agent, begin.attempt) != (step.agent, step.attempt)):
            yield Violation(broken=Broken.UNASKED, text=f"{step}: it is executed by {begin}")
        if step.after not in EXECUTED:
            executing.pop(step.task_id, None)


def repeats_answer_the_same(writes: Sequence[Tasked], _: Sequence[Seen]) -> Iterator[Violation]:
    """The same request id gives the same event; a cancelled one refuses for good."""
    for write in writes:
        if write.outcome is Outcome.DONE and write.again not in {"", str(write.sequence)}:
            yield Violation(broken=Broken.DOUBLED, text=f"{_name(write)}: {write.sequence}, then {write.again}")
        if write.outcome is Outcome.NOT_WRITTEN and write.again not in {"", CANCELLED_REFUSAL}:
            yield Violation(broken=Broken.LATE_ARRIVAL, text=f"{_name(write)}: then {write.again}")


def endings_are_allowed(writes: Sequence[Tasked], tasks: Sequence[Seen]) -> Iterator[Violation]:
    """A write is done, refused because somebody was faster, or proved not to be there."""
    there = {task.task_id for task in tasks}
    for write in writes:
        if write.outcome is Outcome.UNCERTAIN:
            yield Violation(broken=Broken.UNSETTLED, text=f"{_name(write)}: {write.reason}")
        elif write.outcome is Outcome.REFUSED and write.reason not in RACES:
            # A task of the pool that another took is shown to nobody else.
            if write.action == "claim" and write.reason == "not_found" and write.task_id in there:
                continue
            yield Violation(broken=Broken.UNEXPECTED, text=f"{_name(write)}: {write.reason}")


def later_writes_stand_behind(writes: Sequence[Tasked], _: Sequence[Seen]) -> Iterator[Violation]:
    """A write that ended before another began stands before it."""
    ends = sorted(_done(writes), key=lambda write: write.returned_ns)
    place, highest = 0, 0
    for write in sorted(_done(writes), key=lambda one: one.invoked_ns):
        while place < len(ends) and ends[place].returned_ns < write.invoked_ns:
            highest = max(highest, ends[place].sequence)
            place += 1
        if write.sequence <= highest:
            yield Violation(broken=Broken.DISORDER, text=f"{_name(write)}: {write.sequence} behind {highest}")


CHECKS: Final[tuple[Check, ...]] = (
    acknowledged_writes_are_in_the_history,
    nothing_else_is_there,
    each_task_goes_its_way,
    each_is_executed_once_at_a_time,
    repeats_answer_the_same,
    endings_are_allowed,
    later_writes_stand_behind,
)


def audit_tasks(writes: Sequence[Tasked], tasks: Sequence[Seen]) -> Iterator[Violation]:
    """Yield a violation for each broken promise about tasks."""
    for check in CHECKS:
        yield from check(writes, tasks)


def count_tasks(writes: Sequence[Tasked], tasks: Sequence[Seen]) -> TaskCounts:
    """Return the figures."""
    settled = Counter(write.settled for write in writes)
    return TaskCounts(
        tasks=len(tasks),
        acknowledged=len(_done(writes)),
        settled_written=settled[Settled.WRITTEN],
        settled_cancelled=settled[Settled.CANCELLED],
        uncertain=sum(write.outcome is Outcome.UNCERTAIN for write in writes),
        races_lost=sum(write.outcome is Outcome.REFUSED for write in writes),
    )


def _word(name: str) -> str:
    return name.removeprefix("TASK_STATE_").removeprefix("TASK_ACTION_").lower()


async def all_tasks(tasks: Tasks, project_id: str) -> list[Seen]:
    """Ask the mailbox for every task of the project with its whole history."""
    found: list[pb.Task] = []
    ask = pb.ListTasksRequest(project_id=project_id, archived=True, page_size=PAGE_ROWS)
    while True:
        page = await tasks.list_tasks(ask)
        found += page.tasks
        ask.page_token = page.next_page_token
        if not ask.page_token:
            break
    return [
        Seen(
            task_id=task.task_id,
            text=task.description,
            version=task.version,
            steps=tuple([step async for step in _steps(tasks, task.task_id)]),
        )
        for task in found
    ]


async def _steps(tasks: Tasks, task_id: str) -> AsyncIterator[Step]:
    ask = pb.GetTaskHistoryRequest(task_id=task_id, page_size=PAGE_ROWS)
    while True:
        page = await tasks.history(ask)
        for event in page.events:
            yield Step(
                task_id=task_id,
                sequence=event.sequence,
                action=_word(pb.TaskAction.Name(event.action)),
                agent=event.agent.agent_id,
                before=_word(pb.TaskState.Name(event.from_state)),
                after=_word(pb.TaskState.Name(event.to_state)),
                revision=event.revision,
                version=event.version,
                attempt=event.attempt_id,
            )
            ask.after = event.sequence
        if not page.has_more:
            return
