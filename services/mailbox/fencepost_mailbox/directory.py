"""The mirror of sessions' directory.

Who exists and which credentials stand, persisted so that a restart of sessions costs nothing.

A positive answer comes from the mirror. A negative one never does: on a miss sessions is asked once, bounded (M022
M057). A mirror that has heard nothing for MIRROR_AGE_MS_MAX resolves no names and honours no operator. Another epoch
stops the following and changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from fencepost_kit import faults, logs
from fencepost_kit.clock import Clock
from fencepost_kit.identity import Caller, Role
from fencepost_kit.ids import uuid_text
from fencepost_kit.refusal import DependencyDown, Refusal, Unauthenticated
from fencepost_kit.values import value
from fencepost_mailbox.domain.deletion import check_lives
from fencepost_mailbox.domain.refusals import AmbiguousTarget, DirectoryStale, NotFound
from fencepost_mailbox.domain.texts import uuid_target
from fencepost_mailbox.domain.values import MIRROR_AGE_MS_MAX, Agent
from fencepost_mailbox.store.protocol import Credential, DirectoryPosition, Store
from fencepost_mailbox.usecases.delete import Closing
from fencepost_mailbox.usecases.follow import DirectoryStep
from fencepost_mailbox.usecases.ports import Mint

LOOKUP_MS_MAX: Final = 2_000
LOOKUPS_MAX: Final = 32
REVOKED_REMEMBERED_MAX: Final = 10_000
FOLLOW_AGAIN_MS_MIN: Final = 50
FOLLOW_AGAIN_MS_MAX: Final = 2_000

CLOSED: Final = faults.register(
    "mailbox.deletion.closed", "the mail of a deleted agent is closed on disk, nobody was woken or told yet"
)

T = TypeVar("T")
_log: Final = logs.get(__name__)


class Unreachable(Exception):
    """Sessions did not answer: nothing can be concluded."""


class Diverged(Exception):
    """Sessions is behind what is mirrored here.

    Its database was put back. Following it would forget agents and their mail.
    """


@value(frozen=True, kw_only=True, slots=True)
class Update:
    """A message of the directory's stream."""

    position: DirectoryPosition
    snapshot_begin: bool
    snapshot_end: bool
    agents: Sequence[Agent]
    credentials: Sequence[Credential]
    removed_credentials: Sequence[bytes]
    removed_agents: Sequence[bytes] = ()


class SessionsPort(Protocol):
    """What the mirror asks of sessions. Every call is bounded by its implementation."""

    def watch(self, position: DirectoryPosition) -> AsyncIterator[Update]:
        """Stream the directory from a position on.

        Raises:
            Unreachable: the stream was lost or cannot be opened.
            Diverged: sessions is behind the position.
        """
        ...

    async def confirm(self, position: DirectoryPosition) -> None:
        """Tell that everything up to a position is durable here.

        Raises:
            Unreachable: it did not answer.
        """
        ...

    async def lookup_agent(self, project_id: bytes, target: str) -> Agent | None:
        """Ask what a target means; None where it means nothing.

        Raises:
            Unreachable: it did not answer.
            Refusal: the target is refused (ambiguous, malformed).
        """
        ...

    async def lookup_credential(self, token_sha256: bytes) -> Credential | None:
        """Ask what a token means; None where it means nothing.

        Raises:
            Unreachable: it did not answer.
        """
        ...

    async def finish_deletion(self, epoch: str, agent_id: bytes) -> None:
        """Tell that nothing of a deleted agent's mail is left. Harmless where it was told before.

        Raises:
            Unreachable: it did not answer, or does not take it now.
        """
        ...


@dataclass(slots=True)
class _Snapshot:
    agents: list[Agent] = field(default_factory=list)
    credentials: list[Credential] = field(default_factory=list)


def caller_of(credential: Credential) -> Caller:
    """Return the caller that a credential speaks for."""
    return Caller(
        credential_id=credential.credential_id,
        role=Role(credential.role),
        agent_id=credential.agent_id,
        project_id=credential.project_id,
        generation=credential.generation,
        label=credential.label,
    )


class Mirror:
    """The directory as this process holds it. Lives on the event loop."""

    def __init__(
        self,
        *,
        store: Store,
        sessions: SessionsPort,
        clock: Clock,
        mint: Mint,
        on_closed: Callable[[], None] = lambda: None,
    ) -> None:
        """Follow `sessions`; `on_closed` is called when the mail of a deleted agent was closed."""
        self._mint = mint
        self._on_closed = on_closed
        # Deleted agents and their projects.
        self._deleted: dict[bytes, bytes] = {}
        self._store = store
        self._sessions = sessions
        self._clock = clock
        self._position = DirectoryPosition(epoch="", revision=0)
        self._agents: dict[bytes, Agent] = {}
        self._names: dict[tuple[bytes, str], bytes] = {}
        self._callers: dict[bytes, Caller] = {}
        self._hash_of: dict[bytes, bytes] = {}
        self._heard_at: float | None = None
        self._lookups = asyncio.Semaphore(LOOKUPS_MAX)
        self._snapshot: _Snapshot | None = None
        self._folded: dict[tuple[bytes, str], bytes] = {}
        # Removed while this process ran, newest last: a call that was let in before must not go on as if nothing were.
        self._revoked: dict[bytes, None] = {}
        self._on_revoked: Callable[[], None] = lambda: None
        # A project is in use while its agents call.
        self._called_at_ms: dict[bytes, int] = {}
        # Projects of whose agents one has called since the last look: every call would ask for the time otherwise.
        self._called: set[bytes] = set()

    @property
    def position(self) -> DirectoryPosition:
        """How far the mirror has followed."""
        return self._position

    def load(self) -> None:
        """Fill the mirror from the store; its age is unknown until sessions is heard."""
        self._position, agents, credentials = self._store.directory()
        self._agents.clear()
        self._names.clear()
        self._folded.clear()
        self._callers.clear()
        self._hash_of.clear()
        self._put(agents, credentials)
        self._deleted = {one.agent_id: one.project_id for one in self._store.tombstones()}

    def _put(self, agents: Sequence[Agent], credentials: Sequence[Credential]) -> None:
        for agent in agents:
            before = self._agents.get(agent.agent_id)
            if before is not None and self._names.get((before.project_id, before.name)) == agent.agent_id:
                del self._names[before.project_id, before.name]
            self._agents[agent.agent_id] = agent
            self._names[agent.project_id, agent.name] = agent.agent_id
            self._folded[agent.project_id, agent.name.casefold()] = agent.agent_id
        # Where a credential was given another token, the one before must not go on speaking for it.
        self._drop([credential.credential_id for credential in credentials])
        for credential in credentials:
            self._revoked.pop(credential.credential_id, None)
            self._hash_of[credential.credential_id] = credential.token_sha256
            self._callers[credential.token_sha256] = caller_of(credential)

    def _forget(self, agent_ids: Sequence[bytes]) -> None:
        for agent_id in agent_ids:
            agent = self._agents.pop(agent_id, None)
            if agent is not None and self._names.get((agent.project_id, agent.name)) == agent_id:
                del self._names[agent.project_id, agent.name]

    def _drop(self, credential_ids: Sequence[bytes]) -> None:
        for credential_id in credential_ids:
            digest = self._hash_of.pop(credential_id, None)
            if digest is not None:
                self._callers.pop(digest, None)

    def _revoke(self, credential_ids: Sequence[bytes]) -> None:
        if not credential_ids:
            return
        for credential_id in credential_ids:
            self._revoked[credential_id] = None
        while len(self._revoked) > REVOKED_REMEMBERED_MAX:
            del self._revoked[next(iter(self._revoked))]
        self._on_revoked()

    # --- what the mailbox asks ----------------------------------------------------------------------------------------

    def agent(self, agent_id: bytes) -> Agent | None:
        """See ports.Directory."""
        return self._agents.get(agent_id)

    def members(self, project_id: bytes) -> list[Agent]:
        """See ports.Directory."""
        return [agent for agent in self._agents.values() if agent.project_id == project_id and not agent.deleting]

    def called_at_ms(self) -> Mapping[bytes, int]:
        """Return when an agent of each project last called since this process began, as of now or the last look."""
        if self._called:
            self._called_at_ms |= dict.fromkeys(self._called, self._clock.now_ms())
            self._called.clear()
        return self._called_at_ms

    def must_know(self, agent_id: bytes) -> None:
        """See ports.Directory."""
        # Of a deleted agent the store says so itself.
        if agent_id not in self._agents and agent_id not in self._deleted:
            raise DirectoryStale(
                "this agent is not known here yet; nothing was written",
                hint="Send the same call again; if it goes on, check the id and that sessions runs (fencepost status).",
            )

    def when_revoked(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever credentials are removed, so that parked calls look again whether theirs stands."""
        self._on_revoked = wake

    def check_stands(self, caller: Caller) -> None:
        """See ports.Directory."""
        # Of an agent that was deleted the store says so itself, and says more.
        if caller.credential_id in self._revoked and caller.agent_id not in self._deleted:
            raise Unauthenticated(
                "this credential has been removed since the call began; nothing more was read or written",
                hint="Read the agent's current credential file; it changes with each of the agent's lives.",
            )

    def fresh(self) -> bool:
        """Tell whether sessions was heard within MIRROR_AGE_MS_MAX."""
        return self._heard_at is not None and self._clock.monotonic() - self._heard_at <= MIRROR_AGE_MS_MAX / 1000

    def check_fresh(self) -> None:
        """See ports.Directory."""
        if not self.fresh():
            raise DirectoryStale(
                "the agent directory has not been heard from for too long to honour an operator; nothing was written",
                hint="Check that the sessions service runs: fencepost status.",
            )

    def known(self, token_sha256: bytes) -> Caller | None:
        """Return the caller that holds a token where the mirror tells, else None."""
        caller = self._callers.get(token_sha256)
        if caller is not None and caller.project_id is not None:
            self._called.add(caller.project_id)
        return caller

    async def identify(self, token_sha256: bytes) -> Caller:
        """Return the caller that holds a token.

        Raises:
            Unauthenticated: sessions knows no such token.
            DependencyDown: the token is not in the mirror and sessions does not answer; nothing was written.
        """
        caller = self.known(token_sha256)
        if caller is not None:
            return caller
        credential = await self._asked(lambda: self._sessions.lookup_credential(token_sha256))
        if credential is None:
            raise Unauthenticated(
                "nobody holds this credential; nothing was written",
                hint="Read the agent's current credential file; it changes with each of the agent's lives.",
            )
        # Used for this call only: the mirror changes through the stream alone, in revision order.
        return caller_of(credential)

    async def resolve(self, project_id: bytes, target: str) -> Agent:
        """See ports.Directory."""
        agent_id = uuid_target(target)
        if agent_id is not None:
            check_lives(deleted=self._deleted.get(agent_id) == project_id, who="the recipient")
            agent = self._agents.get(agent_id)
            if agent is not None and agent.project_id == project_id:
                return agent
        elif self.fresh():
            named = self._names.get((project_id, target))
            if named is not None:
                check_lives(deleted=named in self._deleted, who="the recipient")
                return self._agents[named]
        agent = await self._asked(lambda: self._sessions.lookup_agent(project_id, target))
        if agent is not None and agent.project_id == project_id:
            check_lives(deleted=agent.deleting or agent.agent_id in self._deleted, who="the recipient")
            return agent
        near = self._near_miss(project_id, target)
        raise NotFound(
            "no agent of this project has exactly this name or UUID; nothing was written",
            hint=f'Did you mean "{near}"? Names match exactly, case included.'
            if near
            else "list_agents shows the agents of this project.",
            state={"near": near} if near else None,
        )

    def anywhere(self, target: str) -> Agent:
        """See ports.Directory."""
        agent_id = uuid_target(target)
        found = (
            [agent for agent in self._agents.values() if agent.name == target]
            if agent_id is None
            else [agent for agent in (self._agents.get(agent_id),) if agent is not None]
        )
        if len(found) > 1:
            raise AmbiguousTarget(
                "agents of several projects have this name; nothing was written",
                hint="Name the project, or give the agent's UUID.",
                state={"agents": str(len(found))},
            )
        if not found:
            raise NotFound(
                "no agent that is known here has exactly this name or UUID; nothing was written",
                hint="Check it with agent list; one made a moment ago is found at once where its project is named.",
            )
        return found[0]

    def _near_miss(self, project_id: bytes, target: str) -> str:
        agent = self._agents.get(self._folded.get((project_id, target.casefold()), b""))
        # What is filed under a name that was given up since is no near miss.
        near = agent is not None and agent.project_id == project_id and agent.name.casefold() == target.casefold()
        return agent.name if agent is not None and near else ""

    async def _asked(self, question: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(LOOKUP_MS_MAX / 1000), self._lookups:
                return await question()
        except (Unreachable, TimeoutError):
            raise DependencyDown(
                "sessions does not answer, so this cannot be checked; nothing was written",
                hint="Check that the sessions service runs (fencepost status), then send the same call again.",
            ) from None

    # --- following ----------------------------------------------------------------------------------------------------

    async def follow(self, pause: Callable[[float], Awaitable[None]]) -> None:
        """Follow until cancelled. A lost stream is opened again from the position reached, with growing pauses.

        Ends by itself only where sessions is another directory than the one mirrored, or an earlier state of it: that
        is for a person to decide.
        """
        wait_ms = FOLLOW_AGAIN_MS_MIN
        while True:
            try:
                async for update in self._sessions.watch(self._position):
                    if not await self._take(update):
                        return
                    wait_ms = FOLLOW_AGAIN_MS_MIN
            except Unreachable:
                _log.debug("directory_unreachable", revision=self._position.revision)
            except Diverged:
                _log.error("directory_went_back", epoch=self._position.epoch, revision=self._position.revision)
                return
            except Refusal as error:
                if not error.may_resend:
                    raise
                # The disk or the queue is full and nothing was adopted: the same step comes again with the next stream.
                _log.warning("directory_step_not_stored", revision=self._position.revision, reason=error.reason)
            finally:
                self._snapshot = None
            await pause(wait_ms / 1000)
            wait_ms = min(FOLLOW_AGAIN_MS_MAX, wait_ms * 2)

    async def _take(self, update: Update) -> bool:
        if self._position.epoch and update.position.epoch != self._position.epoch:
            _log.error("directory_epoch_changed", held=self._position.epoch, offered=update.position.epoch)
            return False
        if update.snapshot_begin:
            self._snapshot = _Snapshot()
        if self._snapshot is not None:
            self._snapshot.agents += update.agents
            self._snapshot.credentials += update.credentials
            if not update.snapshot_end:
                return True
            whole = self._snapshot
            self._snapshot = None
            step = DirectoryStep(
                position=update.position,
                whole=True,
                agents=whole.agents,
                credentials=whole.credentials,
                removed_credentials=(),
                closings=self._closings(whole.agents, ()),
            )
        else:
            step = DirectoryStep(
                position=update.position,
                whole=False,
                agents=update.agents,
                credentials=update.credentials,
                removed_credentials=update.removed_credentials,
                removed_agents=update.removed_agents,
                closings=self._closings(update.agents, update.removed_agents),
            )
        await self._adopt(step)
        return True

    def _closings(self, agents: Sequence[Agent], removed: Sequence[bytes]) -> Sequence[Closing]:
        """Return whose mail a step closes: whom it calls deleting, or removed, and nobody else."""
        named = [agent for agent in agents if agent.deleting]
        named += [self._agents[agent_id] for agent_id in removed if agent_id in self._agents]
        return tuple(
            Closing(
                agent_id=agent.agent_id,
                project_id=agent.project_id,
                seed=self._mint.new(),
                now_ms=self._clock.now_ms(),
            )
            for agent in named
            if agent.agent_id not in self._deleted
        )

    async def _adopt(self, step: DirectoryStep) -> None:
        if step.whole or step.position != self._position:
            await self._store.submit(step)
            if faults.ARMED and step.closings:
                faults.hit(CLOSED)
            if step.whole:
                held = set(self._hash_of)
                self.load()
                removed = sorted(held - set(self._hash_of))
            else:
                self._put(step.agents, step.credentials)
                self._drop(step.removed_credentials)
                self._forget(step.removed_agents)
                self._deleted |= {closing.agent_id: closing.project_id for closing in step.closings}
                self._position = step.position
                removed = list(step.removed_credentials)
            self._revoke(removed)
            if step.closings:
                _log.info("mail_closed", agents=[uuid_text(closing.agent_id) for closing in step.closings])
                self._on_closed()
        self._heard_at = self._clock.monotonic()
        with contextlib.suppress(Unreachable):
            await self._sessions.confirm(step.position)
