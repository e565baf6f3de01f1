"""ResolveDelivery: a person settles what a provider left uncertain (M090)."""

from __future__ import annotations

from fencepost_kit.values import value
from fencepost_mailbox.domain.answers import (
    RESOLVED_STATUS,
    AnswerEvent,
    Resolution,
    check_resolvable,
    resolution_text,
)
from fencepost_mailbox.domain.idempotency import check_key, fingerprint, judge_repeat
from fencepost_mailbox.domain.records import new_record
from fencepost_mailbox.domain.texts import check_note, record_id_text
from fencepost_mailbox.domain.values import FactKind, Kind, Operation, Origin, Record
from fencepost_mailbox.store.protocol import Applied, Transaction
from fencepost_mailbox.usecases.admit import enrol
from fencepost_mailbox.usecases.claim import asked_by, id_of
from fencepost_mailbox.usecases.ports import OPERATOR, Ports
from fencepost_mailbox.usecases.reply import write_answer


@value(frozen=True, kw_only=True, slots=True)
class Command:
    """A call as it was made."""

    kind: Kind
    record_id: bytes
    resolution: Resolution
    note: str
    key: str


@value(frozen=True, kw_only=True, slots=True)
class Resolved:
    """A settled delivery."""

    kind: Kind
    duplicate: bool
    reply_id: bytes | None
    new_record_id: bytes | None


@value(frozen=True, kw_only=True, slots=True)
class Resolving:
    """The writing part."""

    kind: Kind
    record_id: bytes
    resolution: Resolution
    note: str
    key: bytes
    content: bytes
    reply_id: bytes
    new_id: bytes
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[Resolved]:
        """Answer on the operator's word, and store the same words as new where that is asked for.

        Raises:
            NotFound, InvalidTask, InvalidState, IdempotencyConflict: nothing is written.
        """
        anew = self.resolution is Resolution.AS_NEW
        row = tx.key(OPERATOR, Operation.RESOLVE, self.key)
        if row is not None:
            stands = judge_repeat(row, self.content)
            settled = tx.settled(self.record_id)
            return Applied(
                value=Resolved(
                    kind=self.kind,
                    duplicate=True,
                    reply_id=settled.reply_id if settled is not None else None,
                    new_record_id=stands if anew else None,
                )
            )
        found = tx.record(self.record_id)
        work = check_resolvable(found if found is not None and found.kind is self.kind else None)
        tx.take_key(
            caller=OPERATOR,
            operation=Operation.RESOLVE,
            key=self.key,
            fingerprint=self.content,
            record_id=self.new_id if anew else self.record_id,
            now_ms=self.now_ms,
        )
        new = record_id_text(work.kind, self.new_id)
        reply = write_answer(
            tx,
            work,
            event=AnswerEvent.RESOLVE,
            fact=FactKind.RESOLVED,
            status=RESOLVED_STATUS[self.resolution],
            body=resolution_text(self.resolution, note=self.note, new=new).encode("utf-8"),
            origin=Origin.HUMAN,
            sender=None,
            generation=0,
            reply_id=self.reply_id,
            now_ms=self.now_ms,
            evidence=f"the operator: {self.resolution.name.lower()}{f', stored again as {new}' if anew else ''}",
        )
        if anew:
            again = self._again(tx, work)
            tx.insert(again)
            if work.sender is not None and tx.tasks.entry(work.sender, work.record_id) is not None:
                enrol(tx, again)
        asked = asked_by(work)
        concerned = (*asked, work.recipient)
        return Applied(
            value=Resolved(
                kind=self.kind,
                duplicate=False,
                reply_id=id_of(reply),
                new_record_id=self.new_id if anew else None,
            ),
            wakes=concerned if anew else asked,
            work=concerned,
        )

    def _again(self, tx: Transaction, work: Record) -> Record:
        return new_record(
            sequence=tx.next_sequence(work.project_id),
            record_id=self.new_id,
            kind=work.kind,
            project_id=work.project_id,
            sender=work.sender,
            recipient=work.recipient,
            body=work.body,
            now_ms=self.now_ms,
            origin=work.origin,
            completion=work.completion,
            hops=work.hops,
            attributes=work.attributes,
        )


class ResolveDelivery:
    """ResolveDelivery."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, command: Command) -> Resolved:
        """Settle an uncertain delivery on the operator's word.

        Raises:
            DirectoryStale: an operator's authority cannot be checked now.
            InvalidLimit, InvalidIdempotencyKey: it cannot be carried out.
            Others: see Resolving.
        """
        ports = self._ports
        ports.directory.check_fresh()
        note = check_note(command.note)
        content = fingerprint(
            bytes([command.kind, command.resolution]), command.record_id, note.encode("utf-8", "replace")
        )
        return await ports.store.submit(
            Resolving(
                kind=command.kind,
                record_id=command.record_id,
                resolution=command.resolution,
                note=note,
                key=check_key(command.key),
                content=content,
                reply_id=ports.mint.new(),
                new_id=ports.mint.new(),
                now_ms=ports.clock.now_ms(),
            )
        )
