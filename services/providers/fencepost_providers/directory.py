"""The directory of sessions as this process holds it: who exists, what is wanted of whom, who may call.

Held in memory: nothing can be carried while sessions is away anyway, since a lease cannot be renewed for long. A
negative answer never comes from here: an unknown token is asked of sessions once. Another epoch ends the following,
changes nothing here and is told: this process has nothing to go on with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from fencepost.errors import FencepostError
from fencepost_kit import logs
from fencepost_kit.clock import Clock
from fencepost_kit.identity import Caller, Role
from fencepost_kit.ids import uuid_bytes
from fencepost_kit.refusal import DependencyDown, Unauthenticated
from fencepost_providers.domain.agents import Agent, Holder
from fencepost_providers.domain.refusals import AmbiguousTarget, NotFound
from fencepost_providers.links import DirectoryStep, SessionsPort

LOOKUP_MS_MAX: Final = 2_000
MIRROR_AGE_MS_MAX: Final = 30_000
FOLLOW_AGAIN_MS_MIN: Final = 50
FOLLOW_AGAIN_MS_MAX: Final = 2_000

_log: Final = logs.get(__name__)


def caller_of(holder: Holder) -> Caller:
    """Return the caller that a credential speaks for."""
    return Caller(
        credential_id=holder.credential_id,
        role=Role(holder.role),
        agent_id=uuid_bytes(holder.agent_id) if holder.agent_id else None,
        project_id=uuid_bytes(holder.project_id) if holder.project_id else None,
        generation=holder.generation,
        label=holder.label,
    )


class Directory:
    """The mirror. `on_change` is called with an agent whenever something of it changed, and when it is removed."""

    def __init__(
        self,
        *,
        sessions: SessionsPort,
        clock: Clock,
        on_change: Callable[[Agent], None] = lambda _agent: None,
        on_removed: Callable[[str], None] = lambda _agent_id: None,
        on_other_epoch: Callable[[], None] = lambda: None,
    ) -> None:
        self._sessions = sessions
        self._clock = clock
        self._on_change = on_change
        self._on_removed = on_removed
        self._on_other_epoch = on_other_epoch
        self._epoch = ""
        self._revision = 0
        self._agents: dict[str, Agent] = {}
        self._holders: dict[bytes, Holder] = {}
        self._hash_of: dict[bytes, bytes] = {}
        self._heard_at: float | None = None
        self.loaded = asyncio.Event()

    @property
    def agents(self) -> Iterable[Agent]:
        """Everybody."""
        return self._agents.values()

    def agent(self, agent_id: str) -> Agent | None:
        """Return an agent by its UUID."""
        return self._agents.get(agent_id)

    def fresh(self) -> bool:
        """Tell whether sessions was heard within MIRROR_AGE_MS_MAX."""
        return self._heard_at is not None and self._clock.monotonic() - self._heard_at <= MIRROR_AGE_MS_MAX / 1000

    def check_fresh(self) -> None:
        """Refuse what an operator asks while nobody can tell whether the credential still stands.

        Raises:
            DependencyDown: sessions was not heard for too long; nothing was changed.
        """
        if not self.fresh():
            raise DependencyDown(
                "the agent directory has not been heard from for too long to honour this; nothing was changed",
                hint="Check that the sessions service runs: fencepost status.",
            )

    def find(self, target: str, *, project_id: str = "") -> Agent:
        """Return the agent of an exact name or UUID, of one project or of all.

        Raises:
            DependencyDown: the directory has not been heard of lately.
            NotFound: nobody, or nobody of this project.
            AmbiguousTarget: several of several projects.
        """
        self.check_fresh()
        known = self._agents.get(target)
        found = [known] if known is not None else [agent for agent in self._agents.values() if agent.name == target]
        found = [agent for agent in found if not project_id or agent.project_id == project_id]
        if len(found) > 1:
            raise AmbiguousTarget(
                "agents of several projects have this name; nothing was changed", hint="Name the agent by its UUID."
            )
        if not found:
            raise NotFound(
                "no agent that you may see has exactly this name or UUID; nothing was changed",
                hint="`fencepost agent list` shows the agents; names match exactly, case included.",
            )
        return found[0]

    def known(self, token_sha256: bytes) -> Caller | None:
        """Return the caller that holds a token where the mirror tells, else None."""
        holder = self._holders.get(token_sha256)
        return None if holder is None else caller_of(holder)

    async def identify(self, token_sha256: bytes) -> Caller:
        """Return the caller that holds a token.

        Raises:
            Unauthenticated: sessions knows no such token.
            DependencyDown: the token is not in the mirror and sessions does not answer; nothing was changed.
        """
        caller = self.known(token_sha256)
        if caller is not None:
            return caller
        try:
            async with asyncio.timeout(LOOKUP_MS_MAX / 1000):
                holder = await self._sessions.lookup_credential(token_sha256)
        except (FencepostError, TimeoutError):
            raise DependencyDown(
                "sessions does not answer, so this cannot be checked; nothing was changed",
                hint="Check that the sessions service runs (fencepost status), then send the same call again.",
            ) from None
        if holder is None:
            raise Unauthenticated(
                "nobody holds this credential; nothing was changed",
                hint="Read the current credential file; an agent's changes with each of its lives.",
            )
        return caller_of(holder)

    async def follow(self, pause: Callable[[float], Awaitable[None]]) -> None:
        """Follow until cancelled, or until another epoch is offered.

        A lost stream is opened again from the position reached, with growing pauses.
        """
        wait_ms = FOLLOW_AGAIN_MS_MIN
        while True:
            try:
                async for step in self._sessions.watch(self._epoch, self._revision):
                    if self._epoch and step.epoch != self._epoch:
                        _log.error("directory_epoch_changed", held=self._epoch, offered=step.epoch)
                        self._on_other_epoch()
                        return
                    self._take(step)
                    wait_ms = FOLLOW_AGAIN_MS_MIN
            except FencepostError as error:
                _log.debug("directory_unreachable", reason=error.reason, revision=self._revision)
            await pause(wait_ms / 1000)
            wait_ms = min(FOLLOW_AGAIN_MS_MAX, wait_ms * 2)

    def _take(self, step: DirectoryStep) -> None:
        removed = list(step.removed_agents)
        if step.whole:
            named = {agent.agent_id for agent in step.agents}
            removed += [agent_id for agent_id in self._agents if agent_id not in named]
            self._holders.clear()
            self._hash_of.clear()
        self._epoch, self._revision = step.epoch, step.revision
        self._heard_at = self._clock.monotonic()
        for credential_id in step.removed_credentials:
            self._drop(credential_id)
        for holder in step.holders:
            self._drop(holder.credential_id)
            self._hash_of[holder.credential_id] = holder.token_sha256
            self._holders[holder.token_sha256] = holder
        for agent in step.agents:
            self._agents[agent.agent_id] = agent
            self._on_change(agent)
        for agent_id in removed:
            if self._agents.pop(agent_id, None) is not None:
                self._on_removed(agent_id)
        self.loaded.set()

    def _drop(self, credential_id: bytes) -> None:
        digest = self._hash_of.pop(credential_id, None)
        if digest is not None:
            self._holders.pop(digest, None)
