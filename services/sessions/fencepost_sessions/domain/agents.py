"""Agents: the record, its changes and its lives."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fencepost_sessions.domain.limits import AGENTS_PER_PROJECT_MAX, PROVIDER_BYTES_MAX, ROW_FRAME_BYTES
from fencepost_sessions.domain.names import Name, flaw_of
from fencepost_sessions.domain.refusals import InvalidProvider, LimitReached, StaleGeneration
from fencepost_sessions.domain.roles import Role

GENERATION_FIRST = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Agent:
    """An agent's record. `name_key` is how its name is compared; `revision` is the directory's at its last change."""

    agent_id: bytes
    project_id: bytes
    name: str
    name_key: str
    role: Role
    provider: str
    workspace: str
    generation: int
    created_at_ms: int
    revision: int


def agent_bytes(agent: Agent) -> int:
    """Return at least the bytes that an agent takes in a message."""
    texts = (agent.name, agent.provider, agent.workspace)
    return ROW_FRAME_BYTES + sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentChange:
    """What to change; None leaves a field as it is. Every value is valid by itself."""

    name: Name | None = None
    role: Role | None = None
    provider: str | None = None
    workspace: str | None = None


def provider_name(text: str) -> str:
    """Return a provider; empty means unknown.

    Raises:
        InvalidProvider: over PROVIDER_BYTES_MAX bytes, padded, or with controls.
    """
    if not text:
        return text
    too_long = len(text.encode("utf-8", "surrogatepass")) > PROVIDER_BYTES_MAX
    flaw = f"is longer than {PROVIDER_BYTES_MAX} bytes" if too_long else flaw_of(text)
    if flaw is not None:
        raise InvalidProvider(
            f"the provider {flaw}; nothing was written", hint="Name the agent program, such as codex."
        )
    return text


def changed(agent: Agent, change: AgentChange) -> Agent:
    """Return the agent after `change`, with the revision that it had; the very same value where nothing changes."""
    after = replace(
        agent,
        name=agent.name if change.name is None else change.name.text,
        name_key=agent.name_key if change.name is None else change.name.key,
        role=agent.role if change.role is None else change.role,
        provider=agent.provider if change.provider is None else change.provider,
        workspace=agent.workspace if change.workspace is None else change.workspace,
    )
    return agent if after == agent else after


def next_life(agent: Agent, *, expected_generation: int, revision: int) -> Agent:
    """Return the agent one generation later.

    Raises:
        StaleGeneration: `expected_generation` is not 0 and not the current one: somebody else began a life, or the
            caller guessed.
    """
    if expected_generation not in {0, agent.generation}:
        raise StaleGeneration(
            f"the agent is at generation {agent.generation}, not {expected_generation}; nothing was written",
            hint="Look at the agent again and decide anew: another life may be running.",
            state={"generation": str(agent.generation)},
        )
    return replace(agent, generation=agent.generation + 1, revision=revision)


def check_room_for_agent(standing: int) -> None:
    """Let one more agent into a project.

    Raises:
        LimitReached: AGENTS_PER_PROJECT_MAX stand.
    """
    if standing >= AGENTS_PER_PROJECT_MAX:
        raise LimitReached(
            f"the project holds {AGENTS_PER_PROJECT_MAX} agents, as many as it can; nothing was written",
            hint="Use an agent that stands, or another project.",
            state={"agents_max": str(AGENTS_PER_PROJECT_MAX)},
        )
