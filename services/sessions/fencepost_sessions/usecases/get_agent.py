"""GetAgent: one agent by exact name or UUID (M022, M023)."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost_sessions.domain.agents import Agent
from fencepost_sessions.domain.roles import Caller, Role
from fencepost_sessions.domain.targets import target_of
from fencepost_sessions.usecases.loading import find_agent, project_asked_for
from fencepost_sessions.usecases.ports import Ports


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentShown:
    """An agent, and for the operator where its credential lies."""

    agent: Agent
    credential_file: str


async def get_agent(ports: Ports, caller: Caller, *, target: str, project_id: str) -> AgentShown:
    """Return the agent that a target means, as far as the caller sees.

    Raises:
        InvalidTarget, AmbiguousTarget, NotFound (also for what the caller may not see), Malformed, PermissionDenied.
    """
    meant = target_of(target)
    seen = project_asked_for(caller, project_id)
    agent = ports.store.read(lambda reading: find_agent(reading, meant, project_id=seen))
    shown = ports.tokens.files.path(agent.agent_id) if caller.role is Role.OPERATOR else ""
    return AgentShown(agent=agent, credential_file=shown)
