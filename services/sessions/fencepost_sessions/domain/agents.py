"""Agents: the record, its changes and its lives."""

from __future__ import annotations

import enum
import unicodedata
from dataclasses import dataclass, replace

from fencepost_sessions.domain.launch import NO_LAUNCH, Desired, LaunchChange, LaunchSettings, launch_bytes, launched
from fencepost_sessions.domain.limits import AGENTS_PER_PROJECT_MAX, PROVIDER_BYTES_MAX, ROW_FRAME_BYTES
from fencepost_sessions.domain.names import Name, flaw_of
from fencepost_sessions.domain.refusals import (
    AgentDeleted,
    ConfirmationMismatch,
    InvalidProvider,
    InvalidState,
    LimitReached,
    StaleGeneration,
)
from fencepost_sessions.domain.roles import Role
from fencepost_sessions.domain.texts import bytes_of

GENERATION_FIRST = 1


class AgentState(enum.IntEnum):
    """How far an agent is from its end; the numbers are stored, and those of fencepost.sessions.v1.AgentState."""

    ACTIVE = 1
    DELETING = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Agent:
    """An agent's record. `name_key` is how its name is compared; `revision` is the directory's at its last change.

    `desired` is what a person wants and `conversation_id` the exact conversation that its program goes on with; what is
    observed of it is a Status.
    """

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
    state: AgentState = AgentState.ACTIVE
    desired: Desired = Desired.UNSPECIFIED
    launch: LaunchSettings = NO_LAUNCH
    conversation_id: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tombstone:
    """What is left of a deleted agent. Kept for ever."""

    agent_id: bytes
    project_id: bytes
    deleted_at_ms: int
    revision: int


def agent_bytes(agent: Agent) -> int:
    """Return at least the bytes that an agent takes in a message."""
    texts = (agent.name, agent.provider, agent.workspace, agent.conversation_id)
    return ROW_FRAME_BYTES + sum(bytes_of(text) for text in texts) + launch_bytes(agent.launch)


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentChange:
    """What to change; None leaves a field as it is. Every value but `launch` is valid by itself."""

    name: Name | None = None
    role: Role | None = None
    provider: str | None = None
    workspace: str | None = None
    desired: Desired = Desired.UNSPECIFIED
    launch: LaunchChange | None = None


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
    """Return the agent after `change`, with the revision that it had; the very same value where nothing changes.

    Another provider has no conversation yet: the one before is its own program's.

    Raises:
        InvalidLaunchSettings, InvalidCustomArguments: the settings would break their rules.
    """
    after = replace(
        agent,
        name=agent.name if change.name is None else change.name.text,
        name_key=agent.name_key if change.name is None else change.name.key,
        role=agent.role if change.role is None else change.role,
        provider=agent.provider if change.provider is None else change.provider,
        workspace=agent.workspace if change.workspace is None else change.workspace,
        desired=change.desired or agent.desired,
        launch=agent.launch if change.launch is None else launched(agent.launch, change.launch),
    )
    if after.provider != agent.provider:
        after = replace(after, conversation_id="")
    return agent if after == agent else after


def next_life(agent: Agent, *, expected_generation: int, revision: int) -> Agent:
    """Return the agent one generation later.

    Raises:
        StaleGeneration: `expected_generation` is not 0 and not the current one: somebody else began a life, or the
            caller guessed.
    """
    if expected_generation != 0:
        check_generation(agent, expected_generation)
    return replace(agent, generation=agent.generation + 1, revision=revision)


def check_generation(agent: Agent, generation: int) -> None:
    """Let one go on that knows the agent's present life.

    Raises:
        StaleGeneration: `generation` is another life.
    """
    if generation != agent.generation:
        raise StaleGeneration(
            f"the agent is at generation {agent.generation}, not {generation}; nothing was written",
            hint="Look at the agent again and decide anew: another life may be running.",
            state={"generation": str(agent.generation)},
        )


def check_active(agent: Agent) -> Agent:
    """Return an agent that may be changed and live on.

    Raises:
        AgentDeleted: it is being deleted.
    """
    if agent.state is AgentState.DELETING:
        raise deleted_agent("is being deleted")
    return agent


def deleted_agent(what: str) -> AgentDeleted:
    """Return the refusal of whatever is asked for an agent that `what` says."""
    return AgentDeleted(
        f"the agent {what}; nothing was written", hint="Create another agent: a deleted one does not come back."
    )


def deleting(agent: Agent, *, confirm_name: str, revision: int) -> Agent:
    """Return the agent with its deletion begun; the very same value where it was begun before.

    Raises:
        ConfirmationMismatch: `confirm_name` is not the agent's name as it is shown now, letter by letter.
    """
    if unicodedata.normalize("NFC", confirm_name) != agent.name:
        raise ConfirmationMismatch(
            "the name typed for confirmation is not the agent's; nothing was written",
            hint="Look at the agent again, and type its name exactly as it is shown.",
        )
    if agent.state is AgentState.DELETING:
        return agent
    return replace(agent, state=AgentState.DELETING, revision=revision)


def check_may_finish(agent: Agent) -> None:
    """Let an agent's deletion end.

    Raises:
        InvalidState: nobody asked for its deletion.
    """
    if agent.state is not AgentState.DELETING:
        raise InvalidState(
            "the agent is not being deleted; nothing was written",
            hint="Keep what you have of it: the directory may have been put back to an earlier state.",
        )


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
