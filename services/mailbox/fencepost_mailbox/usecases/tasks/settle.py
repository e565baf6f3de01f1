"""SettleTaskRequest: a definite answer about a write whose answer was lost, without ever replaying it."""

from __future__ import annotations

from fencepost_kit.identity import Caller
from fencepost_kit.ids import uuid_text
from fencepost_kit.values import value
from fencepost_mailbox.domain.deletion import check_lives
from fencepost_mailbox.domain.idempotency import KeyVerdict
from fencepost_mailbox.domain.tasks.values import TaskEvent
from fencepost_mailbox.domain.values import Operation
from fencepost_mailbox.store.protocol import Applied, Transaction
from fencepost_mailbox.usecases.ports import Ports
from fencepost_mailbox.usecases.tasks.callers import CANCELLED, Actor, actor_of, event_of


@value(frozen=True, kw_only=True, slots=True)
class SettlingRequest:
    """The writing part. It gives no authority, so that a life that ended may still learn what became of its calls."""

    actor: Actor
    request_id: bytes
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[TaskEvent | None]:
        """Return what the request id did, or cancel it and return None.

        Raises:
            AgentDeleted: the caller was deleted.
        """
        if self.actor.agent_id is not None:
            check_lives(deleted=tx.deleted(self.actor.agent_id))
        row = tx.take_key(
            caller=self.actor.scope,
            operation=Operation.TASK,
            key=self.request_id,
            fingerprint=CANCELLED,
            record_id=None,
            now_ms=self.now_ms,
        )
        return Applied(value=None if row is None or row.record_id is None else event_of(tx, row.record_id))


class SettleTaskRequest:
    """SettleTaskRequest."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(
        self, caller: Caller, request_id: bytes, epoch: str
    ) -> tuple[KeyVerdict | None, TaskEvent | None]:
        """Tell what became of a request id; where nothing did, nothing ever will. None: this is another store.

        Raises:
            AgentDeleted, DirectoryStale: see SettlingRequest and actor_of.
        """
        ports, actor = self._ports, actor_of(self._ports, caller)
        if epoch != uuid_text(ports.store.epoch):
            return None, None
        event = await ports.store.submit(
            SettlingRequest(actor=actor, request_id=request_id, now_ms=ports.clock.now_ms())
        )
        return (KeyVerdict.CANCELLED if event is None else KeyVerdict.WRITTEN), event
