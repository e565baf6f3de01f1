"""UpdateAgent: another name, role, provider or workspace, other launch settings, or whether it is to run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from fencepost_kit import logs
from fencepost_sessions.domain.agents import Agent, AgentChange, changed, provider_name
from fencepost_sessions.domain.idempotency import Key, idempotency_key, same_content
from fencepost_sessions.domain.identifiers import uuid_bytes
from fencepost_sessions.domain.launch import NO_CHANGE, LaunchChange, desired_state, running_content
from fencepost_sessions.domain.leases import Moment, check_free
from fencepost_sessions.domain.limits import QUARANTINE_MS
from fencepost_sessions.domain.names import ReleasedName, agent_name
from fencepost_sessions.domain.paths import workspace_path
from fencepost_sessions.domain.roles import Caller, agent_role
from fencepost_sessions.store.protocol import Writing
from fencepost_sessions.usecases.answers import agent_of_words, words_of_agent
from fencepost_sessions.usecases.loading import active_agent, check_name_is_free
from fencepost_sessions.usecases.ports import Ports

_HINT_HELD: Final = (
    "A runtime of this agent may be at work: stop the agent first (`fencepost agent stop`), then change its provider."
)

_log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateAgent:
    """The request as it came; None leaves a field as it is, and so does desired 0."""

    idempotency_key: str
    agent_id: str
    name: str | None
    role: int | None
    provider: str | None
    workspace: str | None
    desired: int = 0
    launch: LaunchChange = NO_CHANGE


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentUpdated:
    """The agent as the first call with this key left it."""

    agent: Agent
    duplicate: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Updating:
    key: Key
    agent_id: bytes
    change: AgentChange
    now_ms: int
    moment: Moment

    def apply(self, tx: Writing, /) -> AgentUpdated:
        first = tx.first_answer(self.key)
        if first is not None:
            return AgentUpdated(agent=agent_of_words(same_content(first, self.key)), duplicate=True)
        before = active_agent(tx, self.agent_id)
        after = changed(before, self.change)
        lease = tx.lease(self.agent_id)
        if after.provider != before.provider and lease is not None:
            # Its holder could still bind a conversation of the program that it runs.
            check_free((lease,), self.moment, hint=_HINT_HELD)
            tx.end_leases_until(self.moment.running_ms)
        if after is not before:
            after = self._written(tx, before, after)
        tx.remember(self.key, words_of_agent(after), now_ms=self.now_ms)
        return AgentUpdated(agent=after, duplicate=False)

    def _written(self, tx: Writing, before: Agent, after: Agent) -> Agent:
        tx.drop_released_names_until(self.now_ms - QUARANTINE_MS)
        if self.change.name is not None and after.name_key != before.name_key:
            check_name_is_free(
                tx, project_id=before.project_id, name=self.change.name, agent_id=before.agent_id, now_ms=self.now_ms
            )
            tx.drop_released_name(before.project_id, after.name_key)
            tx.put_released_name(
                before.project_id,
                ReleasedName(key=before.name_key, agent_id=before.agent_id, released_at_ms=self.now_ms),
            )
        written = replace(after, revision=tx.next_revision())
        tx.update_agent(before, written)
        if written.role is not before.role:
            tx.follow_role(written)
        return written


async def update_agent(ports: Ports, caller: Caller, request: UpdateAgent) -> AgentUpdated:
    """Return the agent after the change, which is on disk. A change that changes nothing gives no new revision.

    Raises:
        Malformed, InvalidName, InvalidRole, InvalidProvider, InvalidWorkspace, InvalidLaunchSettings,
            InvalidCustomArguments, InvalidDesiredState, InvalidIdempotencyKey, IdempotencyConflict, NotFound,
            AgentDeleted, NameTaken, NameQuarantined, LeaseHeld (another provider, while a runtime may be at work):
            nothing is written.
    """
    key = idempotency_key(
        scope=caller.scope,
        operation="UpdateAgent",
        key=request.idempotency_key,
        content=(
            *(request.agent_id, request.name, request.role, request.provider, request.workspace),
            *running_content(request.desired, request.launch),
        ),
    )
    change = AgentChange(
        name=None if request.name is None else agent_name(request.name),
        role=None if request.role is None else agent_role(request.role),
        provider=None if request.provider is None else provider_name(request.provider),
        workspace=None if request.workspace is None else workspace_path(request.workspace),
        desired=desired_state(request.desired),
        launch=request.launch,
    )
    agent_id = uuid_bytes(request.agent_id, what="agent_id")
    updating = _Updating(
        key=key,
        agent_id=agent_id,
        change=change,
        now_ms=ports.clock.now_ms(),
        moment=ports.lease_time.moment(),
    )
    answer = await ports.store.commit(updating)
    if request.launch.tools_profile is not None:
        # Also where the first call did it: it may have failed between its commit and the file.
        await ports.tools_shown.of_agent(agent_id)
    if not answer.duplicate:
        _log.info("agent_updated", agent_id=request.agent_id, revision=answer.agent.revision)
    return answer
