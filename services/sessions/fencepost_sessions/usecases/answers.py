"""First answers as words of JSON, kept with their idempotency key and read back for a repeated call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from fencepost_sessions.domain.agents import Agent, AgentState
from fencepost_sessions.domain.launch import Desired, launch_of_words, words_of_launch
from fencepost_sessions.domain.projects import Project, ProjectKind
from fencepost_sessions.domain.roles import Role


def words_of_agent(agent: Agent) -> dict[str, object]:
    """Return an agent as JSON words."""
    return {
        "agent_id": agent.agent_id.hex(),
        "project_id": agent.project_id.hex(),
        "name": agent.name,
        "name_key": agent.name_key,
        "role": int(agent.role),
        "provider": agent.provider,
        "workspace": agent.workspace,
        "generation": agent.generation,
        "created_at_ms": agent.created_at_ms,
        "revision": agent.revision,
        "state": int(agent.state),
        "desired": int(agent.desired),
        "launch": words_of_launch(agent.launch),
        "conversation_id": agent.conversation_id,
    }


def agent_of_words(words: Mapping[str, object]) -> Agent:
    """Return the agent that words_of_agent() wrote."""
    known = cast("dict[str, Any]", dict(words))
    return Agent(
        agent_id=bytes.fromhex(known.pop("agent_id")),
        project_id=bytes.fromhex(known.pop("project_id")),
        role=Role(known.pop("role")),
        # Words of versions that could not delete, or ran no programs, have none of these.
        state=AgentState(known.pop("state", AgentState.ACTIVE)),
        desired=Desired(known.pop("desired", Desired.UNSPECIFIED)),
        launch=launch_of_words(known.pop("launch", {})),
        **known,
    )


def words_of_project(project: Project) -> dict[str, object]:
    """Return a project as JSON words."""
    return {
        "project_id": project.project_id.hex(),
        "number": project.number,
        "kind": int(project.kind),
        "location": project.location,
        "name": project.name,
        "created_at_ms": project.created_at_ms,
        **({"tools_profile": project.tools_profile} if project.tools_profile else {}),
    }


def project_of_words(words: Mapping[str, object]) -> Project:
    """Return the project that words_of_project() wrote."""
    known = cast("dict[str, Any]", dict(words))
    return Project(project_id=bytes.fromhex(known.pop("project_id")), kind=ProjectKind(known.pop("kind")), **known)
