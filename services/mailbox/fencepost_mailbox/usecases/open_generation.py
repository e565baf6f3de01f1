"""OpenGeneration: a new life begins before anything is launched.

What older lives held is told and fenced (M075 M097).
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost_kit.values import value
from fencepost_mailbox.domain.claims import check_floor
from fencepost_mailbox.domain.deletion import check_lives
from fencepost_mailbox.domain.values import OPEN_REQUESTS_MAX, Record
from fencepost_mailbox.store.protocol import Applied, Transaction
from fencepost_mailbox.usecases.ports import Ports, supersede
from fencepost_mailbox.usecases.tasks.steps import lose_attempt


@value(frozen=True, kw_only=True, slots=True)
class Opened:
    """A floor that stands, and what an earlier life may have left."""

    floor: int
    uncertain: Sequence[Record]
    open_requests: Sequence[Record]


@value(frozen=True, kw_only=True, slots=True)
class Opening:
    """The writing part."""

    agent_id: bytes
    generation: int
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[Opened]:
        """Raise the floor where it is lower; repeating it finds nothing more to fence.

        Raises:
            AgentDeleted: there will be no further life.
            StaleGeneration: a later life was opened.
        """
        check_lives(deleted=tx.deleted(self.agent_id))
        uncertain: list[Record] = []
        told: tuple[bytes, ...] = ()
        if check_floor(self.generation, tx.floor(self.agent_id)):
            tx.raise_floor(self.agent_id, self.generation)
            uncertain = supersede(tx, self.agent_id, self.generation, self.now_ms)
            told = lose_attempt(tx, self.agent_id, self.generation, self.now_ms)
        opened = Opened(
            floor=tx.floor(self.agent_id),
            uncertain=uncertain,
            open_requests=tx.open_requests(self.agent_id, OPEN_REQUESTS_MAX),
        )
        return Applied(value=opened, wakes=(self.agent_id, *told), work=(self.agent_id, *told))


class OpenGeneration:
    """OpenGeneration."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, agent_id: bytes, generation: int) -> Opened:
        """Open a life of an agent.

        Raises:
            DirectoryStale: the agent is not known here yet; nothing was written, may be resent.
            InvalidLimit, StaleGeneration: see Opening.
        """
        ports = self._ports
        ports.directory.must_know(agent_id)
        return await ports.store.submit(Opening(agent_id=agent_id, generation=generation, now_ms=ports.clock.now_ms()))
