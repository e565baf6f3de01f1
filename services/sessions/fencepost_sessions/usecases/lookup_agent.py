"""LookupAgent: a follower's mirror has missed an agent and asks; only this service may say no."""

from __future__ import annotations

from fencepost_sessions.domain.agents import Agent
from fencepost_sessions.domain.identifiers import uuid_bytes
from fencepost_sessions.domain.targets import target_of
from fencepost_sessions.store.protocol import Reading
from fencepost_sessions.usecases.loading import existing_project, find_agent
from fencepost_sessions.usecases.ports import Ports


async def lookup_agent(ports: Ports, *, project_id: str, target: str) -> tuple[Agent, int]:
    """Return the agent that a target means in one project, and the directory's revision at that moment.

    Raises:
        Malformed, InvalidTarget, NotFound.
    """
    scope = uuid_bytes(project_id, what="project_id")
    meant = target_of(target)

    def question(reading: Reading) -> tuple[Agent, int]:
        existing_project(reading, scope)
        return find_agent(reading, meant, project_id=scope), reading.directory().revision

    return ports.store.read(question)
