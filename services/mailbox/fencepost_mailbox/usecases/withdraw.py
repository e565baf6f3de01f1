"""Withdraw: a sender takes a request back that nobody has seen."""

from __future__ import annotations

from fencepost_kit.identity import Caller
from fencepost_kit.values import value
from fencepost_mailbox.domain.answers import AnswerEvent, judge_withdrawal, settle
from fencepost_mailbox.domain.records import evolve
from fencepost_mailbox.domain.values import FactKind
from fencepost_mailbox.store.protocol import Applied, InvariantBroken, Transaction
from fencepost_mailbox.usecases.claim import note
from fencepost_mailbox.usecases.ports import Ports, agent_of, fence


@value(frozen=True, kw_only=True, slots=True)
class Withdrawing:
    """The writing part. Its natural key is the request."""

    caller: bytes
    generation: int
    request_id: bytes
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[bool]:
        """Take the request back; True where it was taken back before.

        Raises:
            AgentDeleted, StaleGeneration, NotFound, InvalidTask, Unauthorized, NotPending: nothing is written.
        """
        woken = fence(tx, self.caller, self.generation, self.now_ms)
        request = tx.record(self.request_id)
        if not judge_withdrawal(request, caller=self.caller):
            return Applied(value=True, wakes=woken, work=woken)
        if request is None:
            raise InvariantBroken("a request that does not stand was judged")
        tx.move(request, evolve(request, answer=settle(request, AnswerEvent.WITHDRAW)))
        note(
            tx,
            request,
            FactKind.WITHDRAWN,
            generation=self.generation,
            evidence="taken back by its sender before anybody was shown it",
            now_ms=self.now_ms,
        )
        # Its sender has handled it by that.
        tx.tasks.leave(self.caller, self.request_id)
        return Applied(value=False, wakes=woken, work=woken)


class Withdraw:
    """Withdraw."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, caller: Caller, request_id: bytes) -> bool:
        """Take a request back; True where it was taken back before.

        Raises:
            See Withdrawing.
        """
        agent_id, _ = agent_of(caller)
        return await self._ports.store.submit(
            Withdrawing(
                caller=agent_id,
                generation=caller.generation,
                request_id=request_id,
                now_ms=self._ports.clock.now_ms(),
            )
        )
