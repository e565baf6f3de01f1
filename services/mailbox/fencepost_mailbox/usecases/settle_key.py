"""SettleKey: a definite answer about a call whose answer was lost, without ever replaying it.

Source: ARCHITECTURE "Settling an unknown".
"""

from __future__ import annotations

from fencepost_kit.identity import Caller
from fencepost_kit.ids import uuid_text
from fencepost_kit.values import value
from fencepost_mailbox.domain.deletion import check_lives
from fencepost_mailbox.domain.idempotency import KeyVerdict, check_key, judge_settle
from fencepost_mailbox.domain.values import Operation, Record
from fencepost_mailbox.store.protocol import Applied, Transaction
from fencepost_mailbox.usecases.admit import Receipt, existing, receipt
from fencepost_mailbox.usecases.ports import Ports, agent_of


@value(frozen=True, kw_only=True, slots=True)
class Command:
    """What is asked: the epoch that the lost call was made under, its key and its content."""

    epoch: str
    operation: Operation
    key: str
    content: bytes


@value(frozen=True, kw_only=True, slots=True)
class Settling:
    """The writing part. It gives no authority, so that a life that ended may still learn what became of its calls."""

    caller: bytes
    operation: Operation
    key: bytes
    content: bytes
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[Record | None]:
        """Return the record that the key wrote, or cancel the key and return None.

        Raises:
            IdempotencyConflict: the key stands for other content.
            AgentDeleted: the caller was deleted, or what the key wrote was erased with its recipient.
        """
        check_lives(deleted=tx.deleted(self.caller))
        row = tx.take_key(
            caller=self.caller,
            operation=self.operation,
            key=self.key,
            fingerprint=self.content,
            record_id=None,
            now_ms=self.now_ms,
        )
        if row is None or judge_settle(row, self.content) is KeyVerdict.CANCELLED:
            return Applied(value=None)
        assert row.record_id is not None, "a key that was written names its record"
        return Applied(value=existing(tx, row.record_id))


@value(frozen=True, kw_only=True, slots=True)
class Settlement:
    """The answer: a receipt, durably cancelled, or unknown because this is another store."""

    verdict: KeyVerdict | None
    receipt: Receipt | None


class SettleKey:
    """SettleKey."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, caller: Caller, command: Command) -> Settlement:
        """Tell what became of the key; where nothing did, nothing ever will.

        Raises:
            InvalidIdempotencyKey, InvalidMessage: the call described was never one.
            IdempotencyConflict: see Settling.
        """
        ports = self._ports
        agent_id, _ = agent_of(caller)
        key = check_key(command.key)
        if command.epoch != uuid_text(ports.store.epoch):
            return Settlement(verdict=None, receipt=None)
        record = await ports.store.submit(
            Settling(
                caller=agent_id,
                operation=command.operation,
                key=key,
                content=command.content,
                now_ms=ports.clock.now_ms(),
            )
        )
        if record is None:
            return Settlement(verdict=KeyVerdict.CANCELLED, receipt=None)
        return Settlement(verdict=KeyVerdict.WRITTEN, receipt=receipt(ports, record, duplicate=True))
