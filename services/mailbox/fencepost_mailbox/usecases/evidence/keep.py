"""AddEvidence, ListEvidence, RecordVerification: a report, who may see it, and what a check found."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost_kit.identity import Caller
from fencepost_kit.values import replace, value
from fencepost_mailbox.domain.evidence import fields
from fencepost_mailbox.domain.evidence.refusals import InvalidEvidence
from fencepost_mailbox.domain.evidence.values import Evidence, Reported, Verdict, that_fit
from fencepost_mailbox.domain.refusals import InvalidState, NotFound
from fencepost_mailbox.domain.tasks.needs import check_visible
from fencepost_mailbox.domain.tasks.values import Part, Task
from fencepost_mailbox.domain.values import Operation
from fencepost_mailbox.store.protocol import Applied, InvariantBroken, Queries, Transaction
from fencepost_mailbox.usecases.ports import Ports
from fencepost_mailbox.usecases.requests import keep_result, known_result
from fencepost_mailbox.usecases.tasks.callers import Actor, actor_of, content_of


@value(frozen=True, kw_only=True, slots=True)
class Add:
    """A call as it was made; see evidence.proto."""

    task_id: bytes
    reported: Reported | None
    note: str
    request_id: bytes


@value(frozen=True, kw_only=True, slots=True)
class Added:
    """The piece that a call made."""

    evidence_id: bytes
    at_ms: int
    duplicate: bool


@value(frozen=True, kw_only=True, slots=True)
class Found:
    """What a check found; see evidence.proto."""

    task_id: bytes
    evidence_id: bytes
    verdict: int
    detail: str
    checkout: str
    asked_by: bytes | None


def _task_of(queries: Queries, actor: Actor, task_id: bytes) -> Task:
    """Return a task in which the actor has a part: being able to claim it is none."""
    found = queries.tasks.task(task_id)
    return check_visible(found, actor.parts(found, frozenset()) - {Part.ELIGIBLE})


@value(frozen=True, kw_only=True, slots=True)
class Adding:
    """The writing part of a report; `evidence_id` was minted for it."""

    actor: Actor
    command: Add
    reported: Reported
    content: bytes
    evidence_id: bytes
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[Added]:
        """Write the report, or return what the request id stands for.

        Raises:
            AgentDeleted, StaleGeneration, RequestConflict, NotFound, InvalidState, EvidenceLimit: nothing is written.
        """
        actor, command = self.actor, self.command
        woken = actor.fence(tx, self.now_ms)
        first = self._first(tx)
        if first is not None:
            value = Added(evidence_id=first.evidence_id, at_ms=first.reported_at_ms, duplicate=True)
            return Applied(value=value, wakes=woken, work=woken)
        task = _task_of(tx, actor, command.task_id)
        if task.archived:
            raise InvalidState("the task was put away, and nothing is added to it; nothing was written")
        fields.check_room(tx.evidence.count(task.task_id))
        tx.evidence.insert(
            Evidence(
                evidence_id=self.evidence_id,
                task_id=task.task_id,
                reporter=actor.agent_id,
                attempt_id=task.attempt_id,
                reported_at_ms=self.now_ms,
                reported=self.reported,
                note=command.note,
            )
        )
        keep_result(
            tx,
            scope=actor.scope,
            operation=Operation.EVIDENCE,
            request_id=command.request_id,
            content=self.content,
            result=self.evidence_id,
            now_ms=self.now_ms,
        )
        value = Added(evidence_id=self.evidence_id, at_ms=self.now_ms, duplicate=False)
        return Applied(value=value, wakes=woken, work=woken)

    def _first(self, tx: Transaction) -> Evidence | None:
        """Return what the request id stands for, or None where for nothing yet."""
        known = known_result(
            tx,
            scope=self.actor.scope,
            operation=Operation.EVIDENCE,
            request_id=self.command.request_id,
            content=self.content,
        )
        if known is None:
            return None
        first = tx.evidence.one(known)
        if first is None:
            raise InvariantBroken("a request id stands for evidence that is not there")
        return first


@value(frozen=True, kw_only=True, slots=True)
class Recording:
    """The writing part of a check."""

    found: Found
    verdict: Verdict
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[int]:
        """Write what was found.

        Raises:
            NotFound: the task has no such evidence.
        """
        evidence = tx.evidence.one(self.found.evidence_id)
        if evidence is None or evidence.task_id != self.found.task_id:
            raise NotFound("the task has no such evidence; nothing was written")
        tx.evidence.verify(
            replace(
                evidence,
                verdict=self.verdict,
                verified_at_ms=self.now_ms,
                verified_for=self.found.asked_by,
                checkout=self.found.checkout,
                detail=self.found.detail,
            )
        )
        return Applied(value=self.now_ms)


class KeepEvidence:
    """Every RPC of evidence."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def add(self, caller: Caller, command: Add) -> Added:
        """Store a report and return once it is on disk. Nothing is read.

        Raises:
            InvalidEvidence: a field breaks its rule.
            DirectoryStale: an operator's authority cannot be checked now.
            Others: see Adding.
        """
        ports, actor = self._ports, actor_of(self._ports, caller)
        reported = fields.check_reported(command.reported)
        fields.check_words(command.note, "note")
        return await ports.store.submit(
            Adding(
                actor=actor,
                command=command,
                reported=reported,
                content=content_of(command),
                evidence_id=ports.mint.new(),
                now_ms=ports.clock.now_ms(),
            )
        )

    async def listed(
        self, caller: Caller, task_id: bytes, only: tuple[str, ...], size: int, after: str
    ) -> tuple[Sequence[Evidence], bool]:
        """Return a page of a task's evidence, and whether there is more.

        Raises:
            InvalidEvidence: the page asked for does not exist.
            NotFound: no such task, or the caller has no part in it. DirectoryStale: see add.
        """
        queries, actor = self._ports.store.read, actor_of(self._ports, caller)
        size = fields.page_size(size)
        ids = fields.evidence_ids_of(only)
        behind = fields.evidence_ids_of((after,))[0] if after else b""
        with queries.snapshot():
            _task_of(queries, actor, task_id)
            if not ids:
                page = queries.evidence.of_task(task_id, behind, size + 1)
                fit = that_fit(page[:size])
                return fit, len(fit) < len(page)
            found = [queries.evidence.one(one) for one in sorted(set(ids))]
        mine = [one for one in found if one is not None and one.task_id == task_id]
        if len(mine) != len(found):
            raise InvalidEvidence("evidence_ids names evidence that the task does not have; nothing was written")
        return mine, False

    async def record(self, found: Found) -> int:
        """Store what a check found, and return when.

        Raises:
            InvalidEvidence, NotFound: nothing is written.
        """
        verdict = fields.check_found(found.verdict, found.detail, found.checkout)
        return await self._ports.store.submit(
            Recording(found=found, verdict=verdict, now_ms=self._ports.clock.now_ms())
        )
