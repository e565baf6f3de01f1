"""AcknowledgeRecords: acknowledging by id, in any order (T088)."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost_kit.identity import Caller
from fencepost_kit.values import value
from fencepost_mailbox.domain.inbox import acknowledgeable
from fencepost_mailbox.domain.refusals import InvalidLimit, NotFound, NotShown
from fencepost_mailbox.domain.texts import record_id_text
from fencepost_mailbox.domain.values import PAGE_RECORDS_MAX, UNACKNOWLEDGED_COUNT_MAX, Kind, Record
from fencepost_mailbox.store.protocol import Applied, Transaction
from fencepost_mailbox.usecases.ports import Ports, agent_of, fence
from fencepost_mailbox.usecases.receive import acknowledge


@value(frozen=True, kw_only=True, slots=True)
class Acknowledged:
    """What was acknowledged, and what is left."""

    records: Sequence[tuple[Kind, bytes]]
    unacknowledged: int
    pending: int


@value(frozen=True, kw_only=True, slots=True)
class AcknowledgingRecords:
    """The writing part. Its natural keys are the records."""

    recipient: bytes
    generation: int
    named: tuple[tuple[Kind, bytes], ...]
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[tuple[tuple[Kind, bytes], ...]]:
        """Acknowledge all of them, or none; returns those that were not acknowledged before.

        Raises:
            AgentDeleted, StaleGeneration: an earlier life acknowledges nothing.
            NotFound: one was not sent to the caller. NotShown: it was not shown one yet.
        """
        woken = fence(tx, self.recipient, self.generation, self.now_ms)
        records = [self._shown(tx, kind, record_id) for kind, record_id in self.named]
        fresh = [record for record in records if not record.acknowledged]
        for record in fresh:
            acknowledge(tx, record, generation=self.generation, evidence="named by the recipient", now_ms=self.now_ms)
        return Applied(value=tuple((one.kind, one.record_id) for one in fresh), wakes=woken, work=woken)

    def _shown(self, tx: Transaction, kind: Kind, record_id: bytes) -> Record:
        record = tx.record(record_id)
        if record is None or record.kind is not kind or record.recipient != self.recipient:
            raise NotFound(
                "no record that was sent to you has this id; nothing was written",
                hint="Acknowledge what agent_inbox or receive_messages returned.",
                state={"record_id": record_id_text(kind, record_id)},
            )
        if not acknowledgeable(delivery=record.delivery, exposed=record.exposed):
            raise NotShown(
                "this record was not shown to you yet; nothing was written",
                hint="Read it by agent_inbox or receive_messages first.",
                state={"record_id": record_id_text(kind, record_id)},
            )
        return record


class AcknowledgeRecords:
    """AcknowledgeRecords."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, caller: Caller, named: Sequence[tuple[Kind, bytes]]) -> Acknowledged:
        """Acknowledge records by their ids. What stands for tasks is not touched: only a transition consumes that.

        Raises:
            InvalidLimit: none, or more than PAGE_RECORDS_MAX.
            Others: see AcknowledgingRecords.
        """
        ports = self._ports
        recipient, _ = agent_of(caller)
        if not 1 <= len(named) <= PAGE_RECORDS_MAX:
            raise InvalidLimit(f"record_ids has 1 to {PAGE_RECORDS_MAX} entries; nothing was written")
        records = await ports.store.submit(
            AcknowledgingRecords(
                recipient=recipient,
                generation=caller.generation,
                named=tuple(dict.fromkeys(named)),
                now_ms=ports.clock.now_ms(),
            )
        )
        queries = ports.store.read
        return Acknowledged(
            records=records,
            unacknowledged=queries.count_fresh(recipient, UNACKNOWLEDGED_COUNT_MAX),
            pending=queries.tasks.supervised_count(recipient),
        )
