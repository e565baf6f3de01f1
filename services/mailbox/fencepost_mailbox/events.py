"""WatchEvents: what becomes true of records and of tasks, in commit order.

A watcher reads from its own position: nothing is queued for it, so that a slow one costs nothing and misses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from fencepost_kit.identity import Caller, Role
from fencepost_kit.refusal import Overloaded, PermissionDenied
from fencepost_kit.values import value
from fencepost_mailbox.domain.tasks.values import Task, TaskEvent
from fencepost_mailbox.domain.values import Fact, Record
from fencepost_mailbox.store.protocol import Queries, Store
from fencepost_mailbox.usecases.ports import Directory
from fencepost_mailbox.usecases.tasks.callers import Actor
from fencepost_mailbox.usecases.tasks.look import may_see

EVENT_WATCHERS_MAX: Final = 256
STEP_EVENTS: Final = 200


@value(frozen=True, kw_only=True, slots=True)
class Event:
    """Something that became true: a record's admission where `fact` is None, or what happened to a task.

    Nothing is there but the position where everything is told.
    """

    position: int
    record: Record | None = None
    fact: Fact | None = None
    task: Task | None = None
    happened: TaskEvent | None = None


def step(queries: Queries, after: int, limit: int, *, tasks: bool = False) -> tuple[list[Event], int]:
    """Return the next events behind `after` in commit order, and the position that they reach.

    Admissions, facts and events of tasks are numbered by one counter. A list that is cut short says nothing of what
    stands behind its last number, so that only what is below all ends is returned.
    """
    with queries.snapshot():
        newest = queries.newest_sequence()
        records = queries.admissions(after, limit)
        facts = queries.facts_behind(after, limit)
        happened = queries.tasks.events_behind(after, limit) if tasks else []
        ends = [listed[-1].sequence for listed in (records, facts, happened) if len(listed) == limit]
        reach = min([newest, *ends])
        events = [Event(position=one.sequence, record=one) for one in records if one.sequence <= reach]
        events += [
            Event(position=fact.sequence, record=queries.record(fact.record_id), fact=fact)
            for fact in facts
            if fact.sequence <= reach
        ]
        events += [
            Event(position=one.sequence, happened=one, task=queries.tasks.task(one.task_id))
            for one in happened
            if one.sequence <= reach
        ]
    events.sort(key=lambda event: event.position)
    return events, max(after, reach)


class EventWatch:
    """All watchers of this process."""

    def __init__(self, store: Store, directory: Directory) -> None:
        self._store = store
        self._directory = directory
        self._watchers: set[asyncio.Event] = set()
        self._draining = False

    @property
    def watchers(self) -> int:
        """How many watch now."""
        return len(self._watchers)

    def mark(self) -> None:
        """Note that something was committed."""
        for watcher in self._watchers:
            watcher.set()

    def drain(self) -> None:
        """End every watch: a watcher goes on from its position with the next process."""
        self._draining = True
        self.mark()

    async def watch(
        self, caller: Caller, *, after: int, agent_id: bytes | None, tasks: bool = False
    ) -> AsyncIterator[Event]:
        """Yield what became true behind `after`, then a mark, then what becomes true. A negative `after` begins now.

        With `tasks` also what happens to tasks that the caller may see now, as GetTask shows them; an operator who
        names an agent is told of those in which it has a part.

        Raises:
            PermissionDenied: an agent asked for another's.
            DirectoryStale: an operator asks and its authority cannot be checked now; asked again with every step.
            Overloaded: EVENT_WATCHERS_MAX watch already.
        """
        whose = self._whose(caller, agent_id)
        if len(self._watchers) >= EVENT_WATCHERS_MAX:
            raise Overloaded("too many watch already; nothing was read", hint="End another watch first.")
        news = asyncio.Event()
        self._watchers.add(news)
        position = self._store.read.newest_sequence() if after < 0 else after
        told = False
        try:
            while not self._draining:
                news.clear()
                events, reached = step(self._store.read, position, STEP_EVENTS, tasks=tasks)
                for event in events:
                    if self._concerns(event, caller, whose):
                        yield event
                moved, position = reached > position, reached
                if moved:
                    await asyncio.sleep(0)
                    continue
                if not told:
                    told = True
                    yield Event(position=position)
                await news.wait()
                self._whose(caller, agent_id)
        finally:
            self._watchers.discard(news)

    def _concerns(self, event: Event, caller: Caller, whose: bytes | None) -> bool:
        if event.record is not None:
            return whose in (None, event.record.sender, event.record.recipient)
        if event.task is None:
            return False
        if caller.role is Role.OPERATOR:
            if whose is None:
                return True
            named = self._directory.agent(whose)
            actor = Actor(
                role=Role.AGENT,
                agent_id=whose,
                project_id=None if named is None else named.project_id,
                generation=0,
            )
        else:
            actor = Actor(
                role=caller.role,
                agent_id=caller.agent_id,
                project_id=caller.project_id,
                generation=caller.generation,
            )
        return may_see(self._store.read, actor, event.task)

    def _whose(self, caller: Caller, agent_id: bytes | None) -> bytes | None:
        self._directory.check_stands(caller)
        if caller.role is Role.OPERATOR:
            self._directory.check_fresh()
            return agent_id
        if caller.agent_id is None or agent_id not in (None, caller.agent_id):
            raise PermissionDenied("an agent watches its own records only; nothing was read")
        return caller.agent_id
