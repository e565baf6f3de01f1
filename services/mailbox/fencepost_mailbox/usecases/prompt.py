"""Prompt: a person's words for an agent, completed by the assistant's answer and never by a reply (M048 M049)."""

from __future__ import annotations

from fencepost_kit.ids import uuid_text
from fencepost_kit.refusal import Refusal
from fencepost_kit.values import value
from fencepost_mailbox.domain.deletion import check_lives
from fencepost_mailbox.domain.idempotency import check_key, fingerprint, judge_repeat
from fencepost_mailbox.domain.records import new_record
from fencepost_mailbox.domain.texts import check_body
from fencepost_mailbox.domain.values import Completion, Kind, Operation, Origin, Record
from fencepost_mailbox.store.protocol import Applied, Transaction
from fencepost_mailbox.usecases.admit import Receipt, existing, receipt
from fencepost_mailbox.usecases.ports import OPERATOR, Ports


@value(frozen=True, kw_only=True, slots=True)
class Command:
    """A call as it was made. No project means every project."""

    project_id: bytes | None
    target: str
    body: str
    key: str

    def content(self) -> bytes:
        """Return what stands for the content of the call.

        Raises:
            InvalidMessage: the body cannot be stored.
        """
        return fingerprint(self.project_id or b"", self.target.encode("utf-8", "replace"), check_body(self.body))


@value(frozen=True, kw_only=True, slots=True)
class Prompting:
    """The writing part."""

    project_id: bytes
    recipient: bytes
    body: bytes
    key: bytes
    content: bytes
    record_id: bytes
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[tuple[Record, bool]]:
        """Write the prompt and its key, or return what the key stands for.

        Raises:
            AgentDeleted, IdempotencyConflict: nothing is written.
        """
        row = tx.take_key(
            caller=OPERATOR,
            operation=Operation.PROMPT,
            key=self.key,
            fingerprint=self.content,
            record_id=self.record_id,
            now_ms=self.now_ms,
        )
        if row is not None:
            return Applied(value=(existing(tx, judge_repeat(row, self.content)), True))
        check_lives(deleted=tx.deleted(self.recipient), who="the recipient")
        record = new_record(
            sequence=tx.next_sequence(self.project_id),
            record_id=self.record_id,
            kind=Kind.PROMPT,
            project_id=self.project_id,
            sender=None,
            recipient=self.recipient,
            body=self.body,
            now_ms=self.now_ms,
            origin=Origin.HUMAN,
            completion=Completion.AUTOMATIC,
        )
        tx.insert(record)
        concerned = (self.recipient,)
        return Applied(value=(record, False), wakes=concerned, work=concerned)


class Prompt:
    """Prompt."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, command: Command) -> Receipt:
        """Store a person's prompt and return its receipt.

        Raises:
            DirectoryStale: an operator's authority cannot be checked now.
            InvalidMessage, InvalidIdempotencyKey, InvalidTarget, AmbiguousTarget, NotFound: it cannot be carried out.
            Others: see Prompting.
        """
        ports = self._ports
        ports.directory.check_fresh()
        key, content = check_key(command.key), command.content()
        try:
            if command.project_id is None:
                found = ports.directory.anywhere(command.target)
                recipient = await ports.directory.resolve(found.project_id, uuid_text(found.agent_id))
            else:
                recipient = await ports.directory.resolve(command.project_id, command.target)
        except Refusal:
            # The target may have been renamed since: what the key stands for counts first.
            row = ports.store.read.key(OPERATOR, Operation.PROMPT, key)
            if row is None:
                raise
            return receipt(ports, existing(ports.store.read, judge_repeat(row, content)), duplicate=True)
        record, duplicate = await ports.store.submit(
            Prompting(
                project_id=recipient.project_id,
                recipient=recipient.agent_id,
                body=check_body(command.body),
                key=key,
                content=content,
                record_id=ports.mint.new(),
                now_ms=ports.clock.now_ms(),
            )
        )
        return receipt(ports, record, duplicate=duplicate, resolved=recipient)
