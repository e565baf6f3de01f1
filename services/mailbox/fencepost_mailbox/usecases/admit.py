"""Send and Request: store a record for an agent and give its receipt (M015 M016 M021 to M028 M057 M059 M071)."""

from __future__ import annotations

from fencepost_kit.identity import Caller
from fencepost_kit.refusal import Refusal
from fencepost_kit.values import value
from fencepost_mailbox.domain.deletion import check_lives
from fencepost_mailbox.domain.hops import check_hops
from fencepost_mailbox.domain.idempotency import check_key, fingerprint, judge_repeat
from fencepost_mailbox.domain.records import new_record
from fencepost_mailbox.domain.refusals import AgentDeleted, SelfRequest
from fencepost_mailbox.domain.tasks.values import Supervised
from fencepost_mailbox.domain.texts import check_body
from fencepost_mailbox.domain.values import Agent, Attributes, Completion, Kind, Operation, Origin, Record
from fencepost_mailbox.store.protocol import Applied, InvariantBroken, Queries, Transaction
from fencepost_mailbox.usecases.ports import Ports, Readership, agent_of, fence, readership
from fencepost_mailbox.usecases.threads.attach import Attached, attach


@value(frozen=True, kw_only=True, slots=True)
class Receipt:
    """Proof that a record is on disk, and how far it has come."""

    record: Record
    duplicate: bool
    recipient: Agent | None
    readership: Readership


@value(frozen=True, kw_only=True, slots=True)
class Command:
    """A call as it was made. The target counts as it was written: a key is looked up before its target is resolved."""

    kind: Kind
    target: str
    body: str
    key: str
    completion: Completion
    attached: Attached | None = None
    supervised: bool = False

    @property
    def operation(self) -> Operation:
        """Which scope its key belongs to."""
        return Operation.REQUEST if self.kind is Kind.REQUEST else Operation.SEND

    def content(self) -> bytes:
        """Return what stands for the content of the call.

        Raises:
            InvalidMessage: the body cannot be stored.
        """
        target = self.target.encode("utf-8", "replace")
        parts = [bytes([self.kind, self.completion]), target, check_body(self.body)]
        if self.attached is not None:
            parts += self.attached.parts()
        if self.supervised:
            parts.append(b"supervised")
        return fingerprint(*parts)


@value(frozen=True, kw_only=True, slots=True)
class Admission:
    """The writing part."""

    kind: Kind
    project_id: bytes
    sender: bytes
    generation: int
    recipient: bytes
    body: bytes
    completion: Completion
    operation: Operation
    key: bytes
    content: bytes
    record_id: bytes
    now_ms: int
    attributes: Attributes | None = None
    supervised: bool = False

    def apply(self, tx: Transaction) -> Applied[tuple[Record, bool]]:
        """Write the record, its key and its entry in the sender's supervision set, or return what the key stands for.

        Raises:
            AgentDeleted, StaleGeneration, IdempotencyConflict, KeyCancelled, HopLimit: nothing is written.
        """
        woken = fence(tx, self.sender, self.generation, self.now_ms)
        row = tx.take_key(
            caller=self.sender,
            operation=self.operation,
            key=self.key,
            fingerprint=self.content,
            record_id=self.record_id,
            now_ms=self.now_ms,
        )
        if row is not None:
            return Applied(value=(existing(tx, judge_repeat(row, self.content)), True), wakes=woken, work=woken)
        # Here, where nobody else writes: a send that races with the deletion of its recipient leaves no orphan.
        check_lives(deleted=tx.deleted(self.recipient), who="the recipient")
        record = new_record(
            sequence=tx.next_sequence(self.project_id),
            record_id=self.record_id,
            kind=self.kind,
            project_id=self.project_id,
            sender=self.sender,
            recipient=self.recipient,
            body=self.body,
            now_ms=self.now_ms,
            origin=Origin.AGENT,
            completion=self.completion,
            hops=check_hops(tx.most_hops(self.sender)) if self.kind is Kind.REQUEST else 0,
            attributes=self.attributes,
        )
        tx.insert(record)
        if self.supervised:
            enrol(tx, record)
        concerned = (self.recipient, *woken)
        return Applied(value=(record, False), wakes=concerned, work=concerned)


def enrol(tx: Transaction, request: Record) -> None:
    """Put a request into its sender's supervision set, in the transaction that stores it (T081)."""
    if request.sender is None:
        raise InvariantBroken("only what an agent asked is supervised")
    tx.tasks.enrol(
        Supervised(
            agent=request.sender, task_id=request.record_id, sequence=request.sequence, at_ms=request.admitted_at_ms
        )
    )


def existing(queries: Queries, record_id: bytes) -> Record:
    """Return the record that a key stands for.

    Raises:
        AgentDeleted: it was written, and erased with its recipient.
    """
    record = queries.record(record_id)
    if record is None:
        raise AgentDeleted(
            "the record of this key was written, and erased since with the agent that it was for",
            hint="Do not send it again: that agent was deleted.",
        )
    return record


def receipt(ports: Ports, record: Record, *, duplicate: bool, resolved: Agent | None = None) -> Receipt:
    """Return the receipt of a record as it stands now.

    `resolved` is the agent that its target was found to be: the mirror may not know it yet.
    """
    known = resolved is not None and resolved.agent_id == record.recipient
    return Receipt(
        record=record,
        duplicate=duplicate,
        recipient=resolved if known else ports.directory.agent(record.recipient),
        readership=readership(ports, record.recipient),
    )


class Admit:
    """Send and Request."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, caller: Caller, command: Command) -> Receipt:
        """Store the record and return its receipt, which is given only once the record is on disk.

        Raises:
            InvalidMessage, InvalidIdempotencyKey, InvalidTarget, InvalidAttributes, NotFound, SelfRequest: the call
                cannot be carried out.
            AgentDeleted, StaleGeneration, IdempotencyConflict, KeyCancelled, HopLimit: see Admission.
            DependencyDown, DirectoryStale: the target cannot be resolved now; nothing was written, may be resent.
        """
        ports = self._ports
        sender, project_id = agent_of(caller)
        key, content, record_id = check_key(command.key), command.content(), ports.mint.new()
        attributes = None
        try:
            recipient = await ports.directory.resolve(project_id, command.target)
            if command.attached is not None:
                attributes = attach(ports, caller, command.attached, record_id)
        except Refusal:
            # The target may have been renamed since, a thread erased: what the key stands for counts first.
            row = ports.store.read.key(sender, command.operation, key)
            if row is None:
                raise
            return receipt(ports, existing(ports.store.read, judge_repeat(row, content)), duplicate=True)
        if command.kind is Kind.REQUEST and recipient.agent_id == sender:
            raise SelfRequest(
                "an agent cannot ask itself to work; nothing was written",
                hint="Do the work, or note it as information to yourself.",
            )
        record, duplicate = await ports.store.submit(
            Admission(
                kind=command.kind,
                project_id=project_id,
                sender=sender,
                generation=caller.generation,
                recipient=recipient.agent_id,
                body=command.body.encode("utf-8"),
                completion=command.completion,
                operation=command.operation,
                key=key,
                content=content,
                record_id=record_id,
                now_ms=ports.clock.now_ms(),
                attributes=attributes,
                supervised=command.supervised,
            )
        )
        return receipt(ports, record, duplicate=duplicate, resolved=recipient)
