"""Who calls, and what its request id stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from operator import attrgetter
from typing import Any, Final

from fencepost_kit.identity import Caller, Role
from fencepost_kit.values import value
from fencepost_mailbox.domain.idempotency import KeyRow, fingerprint
from fencepost_mailbox.domain.refusals import KeyCancelled
from fencepost_mailbox.domain.tasks.needs import check_visible, parts_of
from fencepost_mailbox.domain.tasks.refusals import RequestConflict
from fencepost_mailbox.domain.tasks.values import Part, Task, TaskEvent
from fencepost_mailbox.domain.values import Operation
from fencepost_mailbox.store.protocol import InvariantBroken, Queries, Transaction
from fencepost_mailbox.usecases.ports import OPERATOR, Ports, fence

# Scope of the request ids of services. No agent has an id of this length.
SERVICE: Final = b"service"
_SEQUENCE_BYTES: Final = 8
# Stands for no call: the mark of a request id that was cancelled.
CANCELLED: Final = b""


@value(frozen=True, kw_only=True, slots=True)
class Actor:
    """A verified caller as tasks see it."""

    role: Role
    agent_id: bytes | None
    project_id: bytes | None
    generation: int

    @property
    def scope(self) -> bytes:
        """Whose request ids these are. Not the credential, which is replaced now and then."""
        return self.agent_id if self.agent_id is not None else SERVICE if self.role is Role.SERVICE else OPERATOR

    def parts(self, task: Task | None, eligible: frozenset[bytes]) -> frozenset[Part]:
        """Return what the caller is to a task."""
        if self.role is Role.OPERATOR:
            return frozenset({Part.OPERATOR})
        if self.role is Role.SERVICE:
            return frozenset({Part.SERVICE})
        if task is None:
            return frozenset()
        return parts_of(
            task,
            agent_id=self.agent_id,
            project_id=self.project_id,
            coordinator=self.role is Role.COORDINATOR,
            eligible=eligible,
        )

    def fence(self, tx: Transaction, now_ms: int) -> tuple[bytes, ...]:
        """Let only the newest life of an agent go on; returns whom a new life concerns.

        Raises:
            AgentDeleted, StaleGeneration: see ports.fence.
        """
        return () if self.agent_id is None else fence(tx, self.agent_id, self.generation, now_ms)


def actor_of(ports: Ports, caller: Caller) -> Actor:
    """Return who calls.

    Raises:
        DirectoryStale: an operator's authority cannot be checked now.
    """
    if caller.role is Role.OPERATOR:
        ports.directory.check_fresh()
    return Actor(role=caller.role, agent_id=caller.agent_id, project_id=caller.project_id, generation=caller.generation)


def visible(queries: Queries, actor: Actor, task_id: bytes) -> Task:
    """Return a task that the actor may see.

    Raises:
        NotFound: there is none, or none that it may see.
    """
    task = queries.tasks.task(task_id)
    return check_visible(task, parts_to(queries, actor, task))


def parts_to(queries: Queries, actor: Actor, task: Task | None) -> frozenset[Part]:
    """Return what the actor is to a task; a pool task that nobody claimed also to those who may claim it."""
    unclaimed = task is not None and task.assignee is None
    eligible = queries.tasks.eligible(task.task_id) if task is not None and unclaimed else frozenset[bytes]()
    return actor.parts(task, eligible)


@value(frozen=True, kw_only=True, slots=True)
class Change:
    """What a write did, also where it is told again."""

    event: TaskEvent
    duplicate: bool


def content_of(command: Any) -> bytes:
    """Return what stands for the content of a call: every field of its command, targets as they were written.

    A field that says what it says when it is left out is left out, which nearly all are.
    """
    kind: Any = type(command)
    title, names, unsaid, read = _layout(kind)
    parts = [title]
    for name, said, default in zip(names, read(command), unsaid, strict=True):
        if said is not default and said != default:
            parts += [name, _written(said)]
    return fingerprint(*parts)


@cache
def _layout(kind: Any) -> tuple[bytes, tuple[bytes, ...], tuple[Any, ...], Callable[[Any], tuple[Any, ...]]]:
    """Return the name of a command's kind, those of its fields, their defaults, and what reads all of them."""
    told = fields(kind)
    names = [one.name for one in told]
    defaults = (one.default if one.default_factory is MISSING else one.default_factory() for one in told)
    return (
        kind.__name__.encode("ascii"),
        tuple(name.encode("ascii") for name in names),
        tuple(defaults),
        attrgetter(*names) if len(names) > 1 else lambda command: (getattr(command, names[0]),),
    )


def _written(value: Any) -> bytes:
    kind = type(value)
    if kind is bytes:
        return bytes(value)
    if kind is str:
        return str(value).encode("utf-8", "replace")
    if value is None or isinstance(value, int):
        return str(value).encode("ascii")
    if hasattr(value, "__dataclass_fields__"):
        return content_of(value)
    if isinstance(value, tuple):
        return fingerprint(*(_written(one) for one in value))
    if isinstance(value, Mapping):
        raise InvariantBroken("a command has no mapping: its order would count")
    return str(value).encode("utf-8", "replace")


def known_change(queries: Queries, scope: bytes, request_id: bytes, content: bytes) -> Change | None:
    """Return what an earlier call under this request id did, or None where there was none.

    Raises:
        RequestConflict: it stands for other content.
        KeyCancelled: it was settled as cancelled.
    """
    row = queries.key(scope, Operation.TASK, request_id)
    return None if row is None else Change(event=judged(queries, row, content), duplicate=True)


def judged(queries: Queries, row: KeyRow, content: bytes) -> TaskEvent:
    """Return the event that a request id stands for.

    Raises:
        RequestConflict, KeyCancelled: see known_change.
    """
    if row.record_id is None:
        raise KeyCancelled(
            "this request_id was settled as cancelled before the call arrived; nothing was written",
            hint="If it is still wanted, call again with a new request_id.",
        )
    if row.fingerprint != content:
        raise RequestConflict(
            "this request_id was used for a call with other content; nothing was written",
            hint="Use a new request_id for a new call.",
        )
    return event_of(queries, row.record_id)


def event_of(queries: Queries, reference: bytes) -> TaskEvent:
    """Return the event that a request id refers to."""
    event = queries.tasks.event(int.from_bytes(reference, "big"))
    if event is None:
        raise InvariantBroken("a request id stands for an event that is not there")
    return event


def keep_request(
    tx: Transaction, *, scope: bytes, request_id: bytes, content: bytes, event: TaskEvent, now_ms: int
) -> None:
    """Let a request id stand for what its call did, in the transaction that did it."""
    known = tx.take_key(
        caller=scope,
        operation=Operation.TASK,
        key=request_id,
        fingerprint=content,
        record_id=event.sequence.to_bytes(_SEQUENCE_BYTES, "big"),
        now_ms=now_ms,
    )
    if known is not None:
        raise InvariantBroken("a request id was taken while its call was carried out")
