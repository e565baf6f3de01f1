"""CreateAgent: a new agent at generation 1, its credential in its file."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost_kit import logs
from fencepost_sessions.domain.agents import GENERATION_FIRST, Agent, check_room_for_agent, provider_name
from fencepost_sessions.domain.credentials import Minted, credential_of_agent
from fencepost_sessions.domain.idempotency import Key, idempotency_key, same_content
from fencepost_sessions.domain.identifiers import uuid_bytes, uuid_text
from fencepost_sessions.domain.launch import (
    NO_CHANGE,
    NO_LAUNCH,
    Desired,
    LaunchChange,
    LaunchSettings,
    desired_state,
    launched,
    running_content,
)
from fencepost_sessions.domain.limits import QUARANTINE_MS
from fencepost_sessions.domain.names import Name, agent_name
from fencepost_sessions.domain.paths import workspace_path
from fencepost_sessions.domain.roles import Caller, Role, agent_role
from fencepost_sessions.store.protocol import Reading, Writing
from fencepost_sessions.usecases.answers import agent_of_words, words_of_agent
from fencepost_sessions.usecases.loading import check_name_is_free, existing_project
from fencepost_sessions.usecases.ports import Ports

_log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class CreateAgent:
    """The request as it came; role None is a plain agent, desired 0 asks for nothing."""

    idempotency_key: str
    project_id: str
    name: str
    role: int | None
    provider: str
    workspace: str
    desired: int = 0
    launch: LaunchChange = NO_CHANGE


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentCreated:
    """The agent as the first call with this key created it, and where its credential lies."""

    agent: Agent
    duplicate: bool

    @property
    def granted(self) -> bool:
        """True where this run wrote the credential's row."""
        return not self.duplicate


@dataclass(frozen=True, kw_only=True, slots=True)
class _Creating:
    key: Key
    agent_id: bytes
    project_id: bytes
    name: Name
    role: Role
    provider: str
    workspace: str
    desired: Desired
    launch: LaunchSettings
    minted: Minted

    def rehearse(self, reading: Reading, /) -> AgentCreated | None:
        first = reading.first_answer(self.key)
        if first is not None:
            return AgentCreated(agent=agent_of_words(same_content(first, self.key)), duplicate=True)
        existing_project(reading, self.project_id)
        check_room_for_agent(reading.agent_count(self.project_id))
        check_name_is_free(
            reading,
            project_id=self.project_id,
            name=self.name,
            agent_id=self.agent_id,
            now_ms=self.minted.now_ms,
        )
        return None

    def apply(self, tx: Writing, /) -> AgentCreated:
        earlier = self.rehearse(tx)
        if earlier is not None:
            return earlier
        agent = Agent(
            agent_id=self.agent_id,
            project_id=self.project_id,
            name=self.name.text,
            name_key=self.name.key,
            role=self.role,
            provider=self.provider,
            workspace=self.workspace,
            generation=GENERATION_FIRST,
            created_at_ms=self.minted.now_ms,
            revision=tx.next_revision(),
            desired=self.desired,
            launch=self.launch,
        )
        tx.insert_agent(agent)
        tx.insert_credential(credential_of_agent(agent, self.minted))
        tx.drop_released_names_until(self.minted.now_ms - QUARANTINE_MS)
        tx.remember(self.key, words_of_agent(agent), now_ms=self.minted.now_ms)
        return AgentCreated(agent=agent, duplicate=False)


async def create_agent(ports: Ports, caller: Caller, request: CreateAgent) -> tuple[AgentCreated, str]:
    """Return the created agent and the path of its credential; both are on disk.

    Raises:
        InvalidName, InvalidRole, InvalidProvider, InvalidWorkspace, InvalidLaunchSettings, InvalidCustomArguments,
            InvalidDesiredState, InvalidIdempotencyKey, IdempotencyConflict, NotFound (no such project), NameTaken,
            NameQuarantined, LimitReached: nothing is written.
    """
    agent_id = ports.new_id()
    key = idempotency_key(
        scope=caller.scope,
        operation="CreateAgent",
        key=request.idempotency_key,
        content=(
            *(request.project_id, request.name, request.role, request.provider, request.workspace),
            *running_content(request.desired, request.launch),
        ),
    )
    project_id = uuid_bytes(request.project_id, what="project_id")
    name = agent_name(request.name)
    role = agent_role(request.role)
    provider = provider_name(request.provider)
    workspace = workspace_path(request.workspace)
    desired = desired_state(request.desired)
    launch = launched(NO_LAUNCH, request.launch)

    def creating(minted: Minted) -> _Creating:
        return _Creating(
            key=key,
            agent_id=agent_id,
            project_id=project_id,
            name=name,
            role=role,
            provider=provider,
            workspace=workspace,
            desired=desired,
            launch=launch,
            minted=minted,
        )

    answer = await ports.tokens.grant(agent_id, creating)
    if answer.duplicate:
        # The first call may have failed between its commit and its file: a repeated call finishes it.
        await ports.tokens.settle(answer.agent.agent_id)
    else:
        agent, project = uuid_text(agent_id), uuid_text(project_id)
        _log.info("agent_created", agent_id=agent, project_id=project, revision=answer.agent.revision)
    await ports.tools_shown.of_agent(answer.agent.agent_id)
    return answer, ports.tokens.files.path(answer.agent.agent_id)
