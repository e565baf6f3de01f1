"""GetAgent: one agent by exact name or UUID (M022, M023)."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost_sessions.domain.agents import Agent
from fencepost_sessions.domain.roles import Caller, Role
from fencepost_sessions.domain.status import Status, seen
from fencepost_sessions.domain.targets import target_of
from fencepost_sessions.store.protocol import Reading
from fencepost_sessions.usecases.loading import find_agent, project_asked_for
from fencepost_sessions.usecases.ports import Ports


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentShown:
    """An agent, what is shown of its runtime, and for the operator where its credential lies."""

    agent: Agent
    status: Status | None
    credential_file: str


async def get_agent(ports: Ports, caller: Caller, *, target: str, project_id: str) -> AgentShown:
    """Return the agent that a target means, as far as the caller sees.

    Raises:
        InvalidTarget, AmbiguousTarget, NotFound (also for what the caller may not see), Malformed, PermissionDenied.
    """
    meant = target_of(target)
    narrowed = project_asked_for(caller, project_id)
    moment = ports.lease_time.moment()

    def question(reading: Reading) -> tuple[Agent, Status | None]:
        found = find_agent(reading, meant, project_id=narrowed)
        return found, seen(reading.status(found.agent_id), reading.lease(found.agent_id), moment)

    agent, status = ports.store.read(question)
    shown = ports.tokens.files.path(agent.agent_id) if caller.role is Role.OPERATOR else ""
    return AgentShown(agent=agent, status=status, credential_file=shown)
