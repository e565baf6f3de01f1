"""Follow sessions' directory: each step is durable here before it is honoured and confirmed."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost_kit.values import value
from fencepost_mailbox.domain.values import Agent
from fencepost_mailbox.store.protocol import Applied, Credential, DirectoryPosition, Transaction
from fencepost_mailbox.usecases.delete import Closing


@value(frozen=True, kw_only=True, slots=True)
class DirectoryStep:
    """A change of the directory, or a whole one."""

    position: DirectoryPosition
    whole: bool
    agents: Sequence[Agent]
    credentials: Sequence[Credential]
    removed_credentials: Sequence[bytes]
    removed_agents: Sequence[bytes] = ()
    # Agents that the step calls deleted. That a whole directory does not name one is no reason to close anything.
    closings: Sequence[Closing] = ()

    def apply(self, tx: Transaction) -> Applied[None]:
        """Write the step, what it means for the mail of deleted agents, and the position that it leads to, together."""
        if self.whole:
            tx.clear_directory()
        tx.put_agents(self.agents)
        tx.put_credentials(self.credentials)
        tx.drop_credentials(self.removed_credentials)
        tx.drop_agents(self.removed_agents)
        concerned = tuple(dict.fromkeys(agent_id for closing in self.closings for agent_id in closing.write(tx)))
        tx.set_directory_position(self.position)
        return Applied(value=None, wakes=concerned, work=concerned)


@value(frozen=True, kw_only=True, slots=True)
class NotingReads:
    """Write when agents last read their mailboxes; coarse, for people who wonder whether anybody looks."""

    reads: Sequence[tuple[bytes, int]]

    def apply(self, tx: Transaction) -> Applied[None]:
        """Write them."""
        for agent_id, at_ms in self.reads:
            if not tx.deleted(agent_id):  # it may have read a moment before
                tx.touch_reader(agent_id, at_ms)
        return Applied(value=None)
