"""Supervised tasks in the embedded store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Any, Final

from fencepost_mailbox.domain.tasks.values import (
    RUNS_KEPT_MAX,
    Action,
    Attempt,
    AttemptOutcome,
    Certainty,
    ContextRef,
    Notice,
    Notification,
    Part,
    Phase,
    Run,
    State,
    Supervised,
    Task,
    TaskEvent,
)
from fencepost_mailbox.store.protocol import InvariantBroken
from fencepost_mailbox.store.tasks import sqlite_statements as sql
from fencepost_mailbox.store.tasks.protocol import Listed

# Tasks that the writer keeps at hand, and how long the texts of one may be altogether.
TASKS_KEPT_MAX: Final = 512
TASK_KEPT_CHARS_MAX: Final = 8192
_STATE: Final = {int(member): member for member in State}
_PHASE: Final = {int(member): member for member in Phase}
_CERTAINTY: Final = {int(member): member for member in Certainty}
_LISTED: Final = {
    Listed.PROJECT: sql.LISTED_BY_PROJECT,
    Listed.ISSUER: sql.LISTED_BY_ISSUER,
    Listed.ASSIGNEE: sql.LISTED_BY_ASSIGNEE,
    Listed.REVIEWER: sql.LISTED_BY_REVIEWER,
    Listed.ELIGIBLE: sql.LISTED_BY_ELIGIBLE,
}


def _names(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text)) if text else ()


def _names_text(names: tuple[str, ...]) -> str:
    return json.dumps(names) if names else ""


def task_from_row(row: tuple[Any, ...]) -> Task:
    """Return the task of a whole row, columns in the order of the table."""
    return Task(
        sequence=row[0],
        task_id=row[1],
        project_id=row[2],
        issuer=row[3],
        assignee=row[4],
        reviewer=row[5],
        pool=bool(row[6]),
        state=_STATE[row[7]],
        phase=_PHASE[row[8]],
        revision=row[9],
        version=row[10],
        attempt_id=row[11],
        certainty=_CERTAINTY[row[12]],
        started=bool(row[13]),
        overdue=bool(row[14]),
        archived=bool(row[15]),
        orphan=bool(row[16]),
        created_at_ms=row[17],
        changed_at_ms=row[18],
        state_at_ms=row[19],
        start_deadline_ms=row[20],
        execution_timeout_s=row[21],
        review_timeout_s=row[22],
        due_ms=row[23],
        queue_position=row[24],
        percent=row[25],
        note=row[26],
        wait_reason=row[27],
        result=row[28],
        evidence=row[29],
        evidence_ids=_names(row[30]),
        feedback=row[31],
        failure=row[32],
        commit=row[33],
        context_refs=tuple(ContextRef(key=key, version=version) for key, version in json.loads(row[34] or "[]")),
        description=row[35],
        acceptance=row[36],
    )


def _changing(task: Task) -> dict[str, Any]:
    """Return what an action may change, by the names of the columns."""
    return {
        "issuer": task.issuer,
        "assignee": task.assignee,
        "reviewer": task.reviewer,
        "state": int(task.state),
        "phase": int(task.phase),
        "revision": task.revision,
        "version": task.version,
        "attempt_id": task.attempt_id,
        "certainty": int(task.certainty),
        "started": int(task.started),
        "overdue": int(task.overdue),
        "archived": int(task.archived),
        "orphan": int(task.orphan),
        "changed_at_ms": task.changed_at_ms,
        "state_at_ms": task.state_at_ms,
        "start_deadline_ms": task.start_deadline_ms,
        "due_ms": task.due_ms,
        "queue_position": task.queue_position,
        "percent": task.percent,
        "note": task.note,
        "wait_reason": task.wait_reason,
        "result": task.result,
        "evidence": task.evidence,
        "evidence_ids": _names_text(task.evidence_ids),
        "feedback": task.feedback,
        "failure": task.failure,
        "integrated_commit": task.commit,
    }


def task_row(task: Task) -> tuple[Any, ...]:
    """Return a task as a row, columns in the order of the table."""
    changing = _changing(task)
    refs = json.dumps([(ref.key, ref.version) for ref in task.context_refs]) if task.context_refs else ""
    return (
        task.sequence,
        task.task_id,
        task.project_id,
        task.issuer,
        task.assignee,
        task.reviewer,
        int(task.pool),
        *(changing[name] for name in ("state", "phase", "revision", "version", "attempt_id", "certainty")),
        *(changing[name] for name in ("started", "overdue", "archived", "orphan")),
        task.created_at_ms,
        task.changed_at_ms,
        task.state_at_ms,
        task.start_deadline_ms,
        task.execution_timeout_s,
        task.review_timeout_s,
        *(changing[name] for name in ("due_ms", "queue_position", "percent", "note", "wait_reason", "result")),
        *(changing[name] for name in ("evidence", "evidence_ids", "feedback", "failure", "integrated_commit")),
        refs,
        task.description,
        task.acceptance,
    )


def attempt_from_row(row: tuple[Any, ...]) -> Attempt:
    """Return the attempt of a whole row."""
    return Attempt(
        attempt_id=row[0],
        task_id=row[1],
        revision=row[2],
        agent=row[3],
        generation=row[4],
        started_at_ms=row[5],
        finished_at_ms=row[6],
        certainty=_CERTAINTY[row[7]],
        outcome=AttemptOutcome(row[8]),
    )


def event_from_row(row: tuple[Any, ...]) -> TaskEvent:
    """Return the event of a whole row."""
    return TaskEvent(
        sequence=row[0],
        task_id=row[1],
        action=Action(row[2]),
        part=Part(row[3]),
        agent=row[4],
        generation=row[5],
        from_state=row[6],
        to_state=_STATE[row[7]],
        revision=row[8],
        version=row[9],
        attempt_id=row[10],
        at_ms=row[11],
        facts=json.loads(row[12]) if row[12] else {},
        evidence_ids=_names(row[13]),
        evidence=row[14],
        text=row[15],
    )


def event_row(event: TaskEvent) -> tuple[Any, ...]:
    """Return an event as a row, columns in the order of the table."""
    return (
        event.sequence,
        event.task_id,
        int(event.action),
        int(event.part),
        event.agent,
        event.generation,
        int(event.from_state),
        int(event.to_state),
        event.revision,
        event.version,
        event.attempt_id,
        event.at_ms,
        json.dumps(dict(event.facts)) if event.facts else "",
        _names_text(event.evidence_ids),
        event.evidence,
        event.text,
    )


def notification_from_row(row: tuple[Any, ...]) -> Notification:
    """Return the notification of a whole row."""
    return Notification(
        agent=row[0],
        task_id=row[1],
        notice=Notice(row[2]),
        sequence=row[3],
        at_ms=row[4],
        wakes=row[5],
        wake_id=row[6],
        again_at_ms=row[7],
        earlier_wake_id=row[8],
    )


def _named(notification: Notification) -> dict[str, Any]:
    return {
        "was_agent": notification.agent,
        "was_task_id": notification.task_id,
        "was_notice": int(notification.notice),
    }


def supervised_from_row(row: tuple[Any, ...]) -> Supervised:
    """Return the entry of a whole row."""
    return Supervised(agent=row[0], task_id=row[1], sequence=row[2], at_ms=row[3])


def _text_chars(task: Task) -> int:
    texts = (task.description, task.acceptance, task.note, task.wait_reason, task.result, task.evidence, task.feedback)
    return sum(map(len, texts)) + len(task.failure)


class SqliteTaskQueries:
    """Reads of tasks through one cursor. Results are fetched whole."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor

    def _all(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return self._cursor.execute(statement, parameters).fetchall()

    def _one(self, statement: str, **parameters: Any) -> tuple[Any, ...] | None:
        rows = self._cursor.execute(statement, parameters).fetchall()
        return rows[0] if rows else None

    def task(self, task_id: bytes) -> Task | None:
        """See TaskQueries."""
        row = self._one(sql.TASK_BY_ID, task_id=task_id)
        return None if row is None else task_from_row(row)

    def state(self, task_id: bytes) -> tuple[State, bytes] | None:
        """See TaskQueries."""
        row = self._one(sql.TASK_STATE, task_id=task_id)
        return None if row is None else (_STATE[row[0]], row[1])

    def attempt(self, attempt_id: bytes) -> Attempt | None:
        """See TaskQueries."""
        row = self._one(sql.ATTEMPT_BY_ID, attempt_id=attempt_id)
        return None if row is None else attempt_from_row(row)

    def executing(self, agent: bytes) -> Task | None:
        """See TaskQueries."""
        row = self._one(sql.EXECUTING_OF, assignee=agent)
        return None if row is None else task_from_row(row)

    def first_queued(self, agent: bytes) -> bytes | None:
        """See TaskQueries."""
        row = self._one(sql.FIRST_QUEUED, assignee=agent)
        return None if row is None else bytes(row[0])

    def slot_taken(self, agent: bytes) -> bool:
        """See TaskQueries."""
        return self._one(sql.SLOT_TAKEN, assignee=agent) is not None

    def has_notifications(self, agent: bytes) -> bool:
        """See TaskQueries."""
        return self._one(sql.HAS_NOTIFICATIONS, agent=agent) is not None

    def needing(self, agent: bytes, limit: int) -> list[Notification]:
        """See TaskQueries."""
        return [notification_from_row(row) for row in self._all(sql.NEEDING, agent=agent, limit=limit)]

    def notices_of(self, task_id: bytes) -> list[Notification]:
        """See TaskQueries."""
        return [notification_from_row(row) for row in self._all(sql.NOTIFICATIONS_OF_TASK, task_id=task_id)]

    def rested(self, after_ms: int, now_ms: int) -> list[bytes]:
        """See TaskQueries."""
        return list(dict.fromkeys(row[0] for row in self._all(sql.RESTED, after_ms=after_ms, now_ms=now_ms)))

    def next_told(self, after: bytes) -> bytes | None:
        """Return the next agent behind another for whom something stands, or None."""
        row = self._one(sql.NEXT_TOLD, after=after)
        return None if row is None else bytes(row[0])

    def events_behind(self, after: int, limit: int) -> list[TaskEvent]:
        """See TaskQueries."""
        return [event_from_row(row) for row in self._all(sql.EVENTS_BEHIND, after=after, limit=limit)]

    def prerequisites(self, task_id: bytes) -> list[bytes]:
        """See TaskQueries."""
        return [row[0] for row in self._all(sql.PREREQUISITES, task_id=task_id)]

    def has_open_prerequisite(self, task_id: bytes) -> bool:
        """See TaskQueries."""
        return self._one(sql.OPEN_PREREQUISITE, task_id=task_id) is not None

    def dependants(self, task_id: bytes, limit: int) -> list[bytes]:
        """See TaskQueries."""
        return [row[0] for row in self._all(sql.DEPENDANTS, prerequisite_id=task_id, limit=limit)]

    def eligible(self, task_id: bytes) -> frozenset[bytes]:
        """See TaskQueries."""
        return frozenset(row[0] for row in self._all(sql.ELIGIBLE_OF, task_id=task_id))

    def listed(self, by: Listed, who: bytes, before: int, limit: int) -> list[Task]:
        """See TaskQueries."""
        return [task_from_row(row) for row in self._all(_LISTED[by], who=who, before=before, limit=limit)]

    def event(self, sequence: int) -> TaskEvent | None:
        """See TaskQueries."""
        row = self._one(sql.EVENT_BY_SEQUENCE, sequence=sequence)
        return None if row is None else event_from_row(row)

    def events(self, task_id: bytes, after: int, limit: int) -> list[TaskEvent]:
        """See TaskQueries."""
        return [event_from_row(row) for row in self._all(sql.EVENTS, task_id=task_id, after=after, limit=limit)]

    def notifications(self, agent: bytes, after: int, limit: int) -> list[Notification]:
        """See TaskQueries."""
        rows = self._all(sql.NOTIFICATIONS, agent=agent, after=after, limit=limit)
        return [notification_from_row(row) for row in rows]

    def given_outcomes(self, agent: bytes, position: int, limit: int) -> list[Notification]:
        """See TaskQueries."""
        rows = self._all(sql.GIVEN_OUTCOMES, agent=agent, position=position, limit=limit)
        return [notification_from_row(row) for row in rows]

    def runs(self, agent: bytes) -> list[Run]:
        """See TaskQueries."""
        rows = sorted(self._all(sql.RUNS_OF, agent=agent), reverse=True)
        return [Run(run=run, position=position, messages=messages) for _, run, position, messages in rows]

    def supervised(self, agent: bytes, after: int, limit: int) -> list[Supervised]:
        """See TaskQueries."""
        rows = self._all(sql.SUPERVISED, agent=agent, after=after, limit=limit)
        return [supervised_from_row(row) for row in rows]

    def entry(self, agent: bytes, task_id: bytes) -> Supervised | None:
        """See TaskQueries."""
        row = self._one(sql.SUPERVISES, agent=agent, task_id=task_id)
        return None if row is None else supervised_from_row(row)

    def supervised_count(self, agent: bytes) -> int:
        """See TaskQueries."""
        row = self._one(sql.SUPERVISED_COUNT, agent=agent)
        return 0 if row is None else int(row[0])

    def any_due(self, now_ms: int) -> bool:
        """See TaskQueries."""
        return self._one(sql.ANY_DUE, now_ms=now_ms) is not None

    def newest_event(self) -> int:
        """See TaskQueries."""
        row = self._one(sql.NEWEST_EVENT)
        return 0 if row is None else int(row[0])


class SqliteTaskTransaction(SqliteTaskQueries):
    """Reads and writes of tasks in the transaction that stands, on the writer thread.

    Tasks that are worked on are kept from one transaction to the next: this is the only writer, and the driver gives
    the interpreter's lock up for each of their columns. What a transaction has seen is kept once it is durable.
    """

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        super().__init__(cursor)
        self._kept: dict[bytes, Task] = {}
        # As the transaction that stands has read or written them.
        self._seen: dict[bytes, Task] = {}
        self._holds_back = False
        self._events: list[tuple[Any, ...]] = []

    def renew(self, *, hold_back: bool) -> None:
        """Stand for a transaction that has just begun. hold_back: hold events back, which it never reads."""
        self._holds_back = hold_back
        if self._events:
            self._events = []
        self.undone()

    @property
    def held_back(self) -> int:
        """How many events are held back."""
        return len(self._events)

    def take_back(self, events: int) -> None:
        """Forget the events that were held back behind so many."""
        del self._events[events:]

    def settle(self) -> None:
        """Write what was held back."""
        if self._events:
            rows, self._events = self._events, []
            self._cursor.executemany(sql.INSERT_EVENT, rows)

    def committed(self) -> None:
        """Keep what the transaction has seen: it is durable."""
        if self._seen:
            found = self._seen.items()
            self._kept |= {task_id: task for task_id, task in found if _text_chars(task) <= TASK_KEPT_CHARS_MAX}
            self._seen = {}
            while len(self._kept) > TASKS_KEPT_MAX:
                del self._kept[next(iter(self._kept))]

    def undone(self) -> None:
        """Forget what the transaction has seen: all of it, or some, is undone."""
        if self._seen:
            self._seen = {}

    def task(self, task_id: bytes) -> Task | None:
        """See TaskQueries."""
        task = self._seen.get(task_id) or self._kept.get(task_id)
        if task is None:
            task = super().task(task_id)
            if task is not None:
                self._seen[task_id] = task
        return task

    def _guarded(self, statement: str, **parameters: Any) -> None:
        if self._cursor.execute(statement, parameters).rowcount != 1:
            raise InvariantBroken("a guarded write found another state than the one it was decided on")

    def insert(self, task: Task) -> None:
        """See TaskTransaction."""
        self._cursor.execute(sql.INSERT_TASK, task_row(task))
        self._seen[task.task_id] = task

    def move(self, before: Task, after: Task) -> None:
        """See TaskTransaction."""
        self._guarded(
            sql.MOVE_TASK,
            was_sequence=before.sequence,
            was_version=before.version,
            was_phase=int(before.phase),
            was_attempt_id=before.attempt_id,
            **_changing(after),
        )
        self._kept.pop(after.task_id, None)
        self._seen[after.task_id] = after

    def insert_attempt(self, attempt: Attempt) -> None:
        """See TaskTransaction."""
        row = (
            attempt.attempt_id,
            attempt.task_id,
            attempt.revision,
            attempt.agent,
            attempt.generation,
            attempt.started_at_ms,
            attempt.finished_at_ms,
            int(attempt.certainty),
            int(attempt.outcome),
        )
        self._cursor.execute(sql.INSERT_ATTEMPT, row)

    def move_attempt(self, before: Attempt, after: Attempt) -> None:
        """See TaskTransaction."""
        self._guarded(
            sql.MOVE_ATTEMPT,
            was_attempt_id=before.attempt_id,
            was_certainty=int(before.certainty),
            finished_at_ms=after.finished_at_ms,
            certainty=int(after.certainty),
            outcome=int(after.outcome),
        )

    def add_event(self, event: TaskEvent) -> None:
        """See TaskTransaction."""
        if self._holds_back:
            self._events.append(event_row(event))
        else:
            self._cursor.execute(sql.INSERT_EVENT, event_row(event))

    def event(self, sequence: int) -> TaskEvent | None:
        """See TaskQueries."""
        self.settle()
        return super().event(sequence)

    def set_prerequisites(self, task_id: bytes, prerequisites: Iterable[bytes]) -> None:
        """See TaskTransaction."""
        self._cursor.execute(sql.DROP_PREREQUISITES, {"task_id": task_id})
        self._cursor.executemany(sql.INSERT_PREREQUISITE, [(task_id, one) for one in prerequisites])

    def set_eligible(self, task: Task, eligible: Iterable[bytes]) -> None:
        """See TaskTransaction."""
        self._cursor.execute(sql.DROP_ELIGIBLE, {"task_id": task.task_id})
        if rows := [(task.task_id, one, task.sequence) for one in eligible]:
            self._cursor.executemany(sql.INSERT_ELIGIBLE, rows)

    def told_by(self, wake_id: bytes) -> list[Notification]:
        """See TaskTransaction."""
        return [notification_from_row(row) for row in self._all(sql.TOLD_BY, wake_id=wake_id)]

    def note_wake(self, notification: Notification, wake_id: bytes) -> None:
        """See TaskTransaction."""
        self._guarded(sql.NOTE_WAKE, **_named(notification), wake_id=wake_id)

    def forget_wake(self, notification: Notification) -> None:
        """See TaskTransaction."""
        self._guarded(sql.FORGET_WAKE, **_named(notification))

    def rest(self, notification: Notification, again_at_ms: int) -> None:
        """See TaskTransaction."""
        self._guarded(sql.REST, **_named(notification), again_at_ms=again_at_ms)

    def tell(self, notification: Notification) -> None:
        """See TaskTransaction."""
        self._cursor.execute(
            sql.PUT_NOTIFICATION,
            {
                "agent": notification.agent,
                "task_id": notification.task_id,
                "notice": int(notification.notice),
                "sequence": notification.sequence,
                "at_ms": notification.at_ms,
                "wakes": notification.wakes,
                "wake_id": notification.wake_id,
                "again_at_ms": notification.again_at_ms,
                "earlier_wake_id": notification.earlier_wake_id,
            },
        )

    def consume(self, agent: bytes, task_id: bytes, notice: Notice) -> None:
        """See TaskTransaction."""
        self._guarded(sql.DROP_NOTIFICATION, agent=agent, task_id=task_id, notice=int(notice))

    def set_run(self, agent: bytes, run: Run) -> None:
        """See TaskTransaction."""
        known = sorted(self._all(sql.RUNS_OF, agent=agent), reverse=True)
        turn = known[0][0] + 1 if known else 1
        row = {"agent": agent, "run": run.run, "position": run.position, "messages": run.messages, "turn": turn}
        self._cursor.execute(sql.PUT_RUN, row)
        others = [name for _, name, *_ in known if name != run.run]
        for name in others[RUNS_KEPT_MAX - 1 :]:
            self._cursor.execute(sql.DROP_RUN, {"agent": agent, "run": name})

    def enrol(self, entry: Supervised) -> None:
        """See TaskTransaction."""
        self._cursor.execute(
            sql.ENROL,
            {"agent": entry.agent, "task_id": entry.task_id, "sequence": entry.sequence, "at_ms": entry.at_ms},
        )

    def leave(self, agent: bytes, task_id: bytes) -> bool:
        """See TaskTransaction."""
        return self._cursor.execute(sql.LEAVE, {"agent": agent, "task_id": task_id}).rowcount == 1

    def due(self, now_ms: int, limit: int) -> list[Task]:
        """See TaskTransaction."""
        return [task_from_row(row) for row in self._all(sql.DUE, now_ms=now_ms, limit=limit)]

    def all_executing(self, after: bytes, limit: int) -> list[Task]:
        """See TaskTransaction."""
        return [task_from_row(row) for row in self._all(sql.ALL_EXECUTING, after=after, limit=limit)]

    def left_by(self, agent: bytes, limit: int) -> list[Task]:
        """See TaskTransaction."""
        found: dict[bytes, Task] = {}
        for statement in (sql.LEFT_BY_ASSIGNEE, sql.LEFT_BY_REVIEWER, sql.LEFT_BY_ISSUER):
            for row in self._all(statement, who=agent, limit=limit):
                task = task_from_row(row)
                found.setdefault(task.task_id, task)
        return list(found.values())[:limit]

    def erase_agent(self, agent: bytes, limit: int) -> int:
        """See TaskTransaction."""
        told = self.notifications(agent, -1, limit)
        for one in told:
            self.consume(agent, one.task_id, one.notice)
        watched = self.supervised(agent, -1, limit - len(told)) if len(told) < limit else []
        for entry in watched:
            self.leave(agent, entry.task_id)
        if len(told) + len(watched) < limit:
            self._cursor.execute(sql.ERASE_RUNS, {"agent": agent})
        return len(told) + len(watched)
