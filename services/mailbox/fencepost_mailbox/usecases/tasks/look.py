"""ListTasks, GetTask, GetTaskHistory: looking, which changes nothing but that seen outcomes leave the set (T034)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fencepost_kit.identity import Caller, Role
from fencepost_kit.values import value
from fencepost_mailbox.domain.pages import page_number
from fencepost_mailbox.domain.tasks import fields
from fencepost_mailbox.domain.tasks.needs import check_field
from fencepost_mailbox.domain.tasks.values import (
    HISTORY_PAGE_BYTES_MAX,
    TASK_LISTING_STEPS_MAX,
    Attempt,
    State,
    Task,
    TaskEvent,
)
from fencepost_mailbox.store.protocol import Queries
from fencepost_mailbox.store.tasks.protocol import Listed
from fencepost_mailbox.usecases.ports import Ports
from fencepost_mailbox.usecases.tasks.callers import Actor, actor_of, parts_to, visible
from fencepost_mailbox.usecases.tasks.supervise import Retire

_BEFORE_ANYTHING: Final = 2**62


@value(frozen=True, kw_only=True, slots=True)
class Asked:
    """Which tasks; see ListTasksRequest."""

    states: frozenset[State]
    assignee: str
    archived: bool
    size: int
    token: str
    project_id: bytes | None


@value(frozen=True, kw_only=True, slots=True)
class Listing:
    """A page of tasks; `next_token` is empty on the last."""

    tasks: Sequence[Task]
    next_token: str
    pending: int
    retired: Sequence[bytes]


@value(frozen=True, kw_only=True, slots=True)
class Shown:
    """A task as one who may see it is shown it."""

    task: Task
    attempt: Attempt | None
    # Each with whether the caller may see it.
    prerequisites: Sequence[tuple[Task, bool]]
    eligible: frozenset[bytes]
    supervised: bool


@value(frozen=True, kw_only=True, slots=True)
class History:
    """A page of what happened to a task."""

    events: Sequence[TaskEvent]
    more: bool


def may_see(queries: Queries, actor: Actor, task: Task) -> bool:
    """Tell whether the actor may see a task."""
    return bool(parts_to(queries, actor, task))


class ListTasks:
    """ListTasks."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._retire = Retire(ports)

    async def __call__(self, caller: Caller, asked: Asked) -> Listing:
        """Return a page of the tasks that the caller may see, newest first.

        Raises:
            InvalidTaskField, InvalidCursor: the page asked for does not exist.
            NotFound: no such assignee. DirectoryStale: see actor_of.
            StaleGeneration, AgentDeleted: an earlier life takes nothing out of its set.
        """
        ports, actor = self._ports, actor_of(self._ports, caller)
        size = fields.page_size(asked.size)
        before = _BEFORE_ANYTHING if not asked.token else page_number(asked.token)
        project_id = self._project(actor, asked.project_id)
        assignee = None
        if asked.assignee:
            assignee = (await ports.directory.resolve(project_id, asked.assignee)).agent_id
        # Retired before the page is read, so that its count and its tasks are of one kind.
        retired = await self._retire(actor) if actor.agent_id is not None else ()
        queries = ports.store.read
        with queries.snapshot():
            page, token = self._page(
                queries, actor, asked, project_id=project_id, assignee=assignee, before=before, size=size
            )
            pending = queries.tasks.supervised_count(actor.agent_id) if actor.agent_id is not None else 0
        return Listing(tasks=page, next_token=token, pending=pending, retired=retired)

    @staticmethod
    def _project(actor: Actor, named: bytes | None) -> bytes:
        if actor.role is Role.OPERATOR:
            check_field(holds=named is not None, field="project_id", rule="must be given by the operator")
        else:
            check_field(holds=named in (None, actor.project_id), field="project_id", rule="must be your own, or empty")
        project_id = named if named is not None else actor.project_id
        assert project_id is not None, "an agent has a project"
        return project_id

    def _page(
        self,
        queries: Queries,
        actor: Actor,
        asked: Asked,
        *,
        project_id: bytes,
        assignee: bytes | None,
        before: int,
        size: int,
    ) -> tuple[list[Task], str]:
        found: list[Task] = []
        batch: list[Task] = []
        # Bounded: a listing with conditions looks at this many pages of tasks for one page of answers.
        for _ in range(TASK_LISTING_STEPS_MAX):
            batch = self._batch(queries, actor, project_id, before, size + 1)
            found += [
                task
                for task in batch
                if (not asked.states or task.state in asked.states)
                and (assignee is None or task.assignee == assignee)
                and (asked.archived or not task.archived)
            ]
            if len(batch) <= size or len(found) > size:
                break
            before = batch[-1].sequence
        page = found[:size]
        if len(found) > size:
            return page, str(page[-1].sequence)
        return page, str(before) if len(batch) > size else ""

    @staticmethod
    def _batch(queries: Queries, actor: Actor, project_id: bytes, before: int, limit: int) -> list[Task]:
        listed = queries.tasks.listed
        if actor.agent_id is None or actor.role is Role.COORDINATOR:
            return listed(Listed.PROJECT, project_id, before, limit)
        ranges = [listed(by, actor.agent_id, before, limit) for by in Listed if by is not Listed.PROJECT]
        ranges.append(listed(Listed.ELIGIBLE, project_id, before, limit))
        merged = {task.sequence: task for some in ranges for task in some}
        return [merged[sequence] for sequence in sorted(merged, reverse=True)][:limit]


class GetTask:
    """GetTask."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, caller: Caller, task_id: bytes) -> Shown:
        """Return one task with what belongs to it.

        Raises:
            NotFound: there is none, or none that the caller may see. DirectoryStale: see actor_of.
        """
        actor, queries = actor_of(self._ports, caller), self._ports.store.read
        with queries.snapshot():
            task = visible(queries, actor, task_id)
            standing = [queries.tasks.task(one) for one in queries.tasks.prerequisites(task_id)]
            return Shown(
                task=task,
                attempt=queries.tasks.attempt(task.attempt_id) if task.attempt_id is not None else None,
                prerequisites=[(one, bool(parts_to(queries, actor, one))) for one in standing if one is not None],
                eligible=queries.tasks.eligible(task_id) - {task.project_id},
                supervised=actor.agent_id is not None and queries.tasks.entry(actor.agent_id, task_id) is not None,
            )


class GetTaskHistory:
    """GetTaskHistory."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, caller: Caller, task_id: bytes, after: int, size: int) -> History:
        """Return what happened to a task behind an event, in commit order; always at least one where there is one.

        Raises:
            InvalidTaskField: the page asked for does not exist.
            NotFound: there is no such task, or none that the caller may see. DirectoryStale: see actor_of.
        """
        actor, queries = actor_of(self._ports, caller), self._ports.store.read
        limit = fields.page_size(size)
        with queries.snapshot():
            visible(queries, actor, task_id)
            events = queries.tasks.events(task_id, after, limit + 1)
        count = fitting(events[:limit])
        return History(events=events[:count], more=len(events) > count)


def event_bytes(event: TaskEvent) -> int:
    """Return how many bytes of text an event has."""
    texts = (event.text, event.evidence, *event.evidence_ids, *event.facts.values())
    return sum(len(text.encode("utf-8")) for text in texts)


def fitting(events: Sequence[TaskEvent], *, bytes_max: int = HISTORY_PAGE_BYTES_MAX) -> int:
    """Return how many of the first events fit into a page; at least one where there is one."""
    room, count = bytes_max, 0
    for event in events:
        room -= event_bytes(event)
        if room < 0 and count:
            break
        count += 1
    return count
