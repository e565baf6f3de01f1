"""Reply: answer a request as its recipient (M018 M041 to M043 M048 M050)."""

from __future__ import annotations

from fencepost_kit.identity import Caller
from fencepost_kit.values import value
from fencepost_mailbox.domain.answers import AnswerEvent, judge_reply, settle
from fencepost_mailbox.domain.idempotency import check_key, fingerprint, judge_repeat
from fencepost_mailbox.domain.records import evolve, new_record
from fencepost_mailbox.domain.refusals import NotFound
from fencepost_mailbox.domain.texts import check_body
from fencepost_mailbox.domain.threads.attributes import of_answer
from fencepost_mailbox.domain.values import Fact, FactKind, Kind, Operation, Origin, Record, ReplyStatus
from fencepost_mailbox.store.protocol import Applied, InvariantBroken, Transaction
from fencepost_mailbox.usecases.admit import Receipt, existing, receipt
from fencepost_mailbox.usecases.ports import Ports, agent_of, fence
from fencepost_mailbox.usecases.tasks.waking import close_wake


@value(frozen=True, kw_only=True, slots=True)
class Command:
    """A call as it was made."""

    request_id: bytes
    status: ReplyStatus
    body: str
    key: str

    def content(self) -> bytes:
        """Return what stands for the content of the call.

        Raises:
            InvalidMessage: the body cannot be stored.
        """
        return fingerprint(self.request_id, bytes([self.status]), check_body(self.body))


@value(frozen=True, kw_only=True, slots=True)
class Answering:
    """The writing part."""

    caller: bytes
    generation: int
    request_id: bytes
    status: ReplyStatus
    body: bytes
    key: bytes
    content: bytes
    reply_id: bytes
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[tuple[Record, bool]]:
        """Write the reply, settle the request and take the key, or return the identical answer that stands.

        Raises:
            AgentDeleted, StaleGeneration, NotFound, InvalidTask, Unauthorized, Withdrawn, ConflictingReply,
            IdempotencyConflict, KeyCancelled.
        """
        woken = fence(tx, self.caller, self.generation, self.now_ms)
        known = tx.key(self.caller, Operation.REPLY, self.key)
        if known is not None:
            return Applied(value=(existing(tx, judge_repeat(known, self.content)), True), wakes=woken, work=woken)
        request = tx.record(self.request_id)
        if request is None or self.caller not in (request.sender, request.recipient):
            raise NotFound(
                "no request has this id; nothing was written",
                hint="Use the request_id of a record that receive_messages returned.",
            )
        stands = judge_reply(
            request, caller=self.caller, status=self.status, body=self.body, settled=tx.settled(self.request_id)
        )
        if stands is not None:
            # The key now stands for that answer too: the same call again finds it.
            tx.take_key(
                caller=self.caller,
                operation=Operation.REPLY,
                key=self.key,
                fingerprint=self.content,
                record_id=stands.reply_id,
                now_ms=self.now_ms,
            )
            return Applied(value=(existing(tx, stands.reply_id), True), wakes=woken, work=woken)
        tx.take_key(
            caller=self.caller,
            operation=Operation.REPLY,
            key=self.key,
            fingerprint=self.content,
            record_id=self.reply_id,
            now_ms=self.now_ms,
        )
        reply = write_answer(
            tx,
            request,
            event=AnswerEvent.REPLY,
            fact=FactKind.REPLIED,
            status=self.status,
            body=self.body,
            origin=Origin.AGENT,
            sender=self.caller,
            generation=self.generation,
            reply_id=self.reply_id,
            now_ms=self.now_ms,
            evidence="explicit reply by the recipient",
        )
        if request.sender is None or reply is None:
            raise InvariantBroken("a request without a sender")
        concerned = (request.sender, *woken)
        return Applied(value=(reply, False), wakes=concerned, work=concerned, replied=(request,), at_ms=self.now_ms)


def write_answer(
    tx: Transaction,
    request: Record,
    *,
    event: AnswerEvent,
    fact: FactKind,
    status: ReplyStatus,
    body: bytes,
    origin: Origin,
    sender: bytes | None,
    generation: int,
    reply_id: bytes,
    now_ms: int,
    evidence: str,
) -> Record | None:
    """Settle `request` and write its reply in this transaction; returns it, or None where nobody asked: a prompt.

    Raises:
        InvalidState: the request is settled already.
    """
    if request.kind is Kind.WAKE:
        close_wake(tx, request, event, now_ms)
    else:
        tx.move(request, evolve(request, answer=settle(request, event)))
    reply = None
    if request.sender is not None:
        reply = new_record(
            sequence=tx.next_sequence(request.project_id),
            record_id=reply_id,
            kind=Kind.REPLY,
            project_id=request.project_id,
            sender=sender,
            recipient=request.sender,
            body=body,
            now_ms=now_ms,
            origin=origin,
            parent_id=request.record_id,
            status=status,
            attributes=of_answer(request),
        )
        tx.insert(reply)
    tx.add_fact(
        Fact(
            sequence=tx.next_sequence(request.project_id),
            record_id=request.record_id,
            fact=fact,
            at_ms=now_ms,
            generation=generation,
            evidence=evidence,
        )
    )
    return reply


class Reply:
    """Reply."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, caller: Caller, command: Command) -> Receipt:
        """Store the reply and return its receipt; the request decides who gets it.

        Raises:
            InvalidMessage, InvalidIdempotencyKey: the call cannot be carried out.
            Others: see Answering.
        """
        ports = self._ports
        agent_id, _ = agent_of(caller)
        reply, duplicate = await ports.store.submit(
            Answering(
                caller=agent_id,
                generation=caller.generation,
                request_id=command.request_id,
                status=command.status,
                body=check_body(command.body),
                key=check_key(command.key),
                content=command.content(),
                reply_id=ports.mint.new(),
                now_ms=ports.clock.now_ms(),
            )
        )
        return receipt(ports, reply, duplicate=duplicate)
