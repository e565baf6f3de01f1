"""SetConversation: the exact provider conversation of an agent, bound by whoever holds the agent."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fencepost_kit import logs
from fencepost_sessions.domain.agents import Agent, check_generation
from fencepost_sessions.domain.conversations import (
    bound,
    check_names_a_conversation,
    conversation_name,
    token_meant,
    uuid_meant,
)
from fencepost_sessions.domain.identifiers import uuid_bytes
from fencepost_sessions.domain.leases import Moment, check_free, held
from fencepost_sessions.domain.roles import Caller
from fencepost_sessions.store.protocol import Reading, Writing
from fencepost_sessions.usecases.loading import active_agent
from fencepost_sessions.usecases.ports import Ports
from fencepost_sessions.usecases.under_lease import check_carrier, or_lost_for_ever

_log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class SetConversation:
    """The request as it came; an empty conversation clears."""

    agent_id: str
    acquisition_id: str
    generation: int
    conversation_id: str
    replace: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Binding:
    agent_id: bytes
    acquisition_id: bytes
    generation: int
    conversation_id: str
    replacing: bool
    moment: Moment

    def apply(self, tx: Writing, /) -> tuple[Agent, bool]:
        before = active_agent(tx, self.agent_id)
        check_generation(before, self.generation)
        lease = held(tx.lease(self.agent_id), self.acquisition_id, self.moment)
        self._check_name(tx)
        other = tx.agent_of_conversation(self.conversation_id)
        after = bound(before, self.conversation_id, replacing=self.replacing, other=other)
        if after is before:
            return before, False
        if self.conversation_id:
            tx.end_leases_until(self.moment.running_ms)
            others = [one for one in tx.leases_of_conversation(self.conversation_id) if one.agent_id != self.agent_id]
            check_free(others, self.moment)
            # A lease goes on covering the conversation that was cleared: what ran on it may not have ended yet.
            tx.put_lease(lease, replace(lease, conversation_id=self.conversation_id))
        written = replace(after, revision=tx.next_revision())
        tx.update_agent(before, written)
        return written, True

    def _check_name(self, reading: Reading) -> None:
        if self.conversation_id:
            meant = uuid_meant(self.conversation_id)
            check_names_a_conversation(
                None if meant is None else reading.agent(meant),
                is_token=reading.credential_of_token(token_meant(self.conversation_id)) is not None,
            )


async def set_conversation(ports: Ports, caller: Caller, request: SetConversation) -> Agent:
    """Return the agent with its conversation, which is on disk. The same conversation again changes nothing.

    Raises:
        PermissionDenied (another service), Malformed, NotFound, AgentDeleted, StaleGeneration, LeaseLost,
            InvalidConversation, ConversationConflict, LeaseHeld (somebody still holds that conversation): nothing is
            written.
    """
    check_carrier(caller)
    moment = ports.lease_time.moment()
    binding = _Binding(
        agent_id=uuid_bytes(request.agent_id, what="agent_id"),
        acquisition_id=uuid_bytes(request.acquisition_id, what="acquisition_id"),
        generation=request.generation,
        conversation_id=conversation_name(request.conversation_id),
        replacing=request.replace,
        moment=moment,
    )
    agent, changed = await or_lost_for_ever(ports, moment.running_ms, ports.store.commit(binding))
    if changed:
        _log.info("conversation_set", agent_id=request.agent_id, revision=agent.revision)
    return agent
