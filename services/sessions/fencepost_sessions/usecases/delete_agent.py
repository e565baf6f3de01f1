"""DeleteAgent and FinishDeletion: the two ends of a deletion; between them mailbox closes and erases the agent's mail.

The first takes every credential of the agent and keeps its name taken; the second, once nothing of its mail is left,
leaves a tombstone and lets its name go. A crash between any two steps is made good by repeating the call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from fencepost_kit import faults, logs
from fencepost_kit.refusal import PermissionDenied
from fencepost_sessions.domain.agents import Agent, Tombstone, check_may_finish, deleted_agent, deleting
from fencepost_sessions.domain.credentials import ENFORCING_FOLLOWER
from fencepost_sessions.domain.idempotency import Key, idempotency_key, same_content
from fencepost_sessions.domain.identifiers import uuid_bytes
from fencepost_sessions.domain.leases import LeaseEnd
from fencepost_sessions.domain.limits import QUARANTINE_MS
from fencepost_sessions.domain.names import ReleasedName
from fencepost_sessions.domain.refusals import EpochMismatch
from fencepost_sessions.domain.roles import Caller
from fencepost_sessions.store.protocol import Writing
from fencepost_sessions.usecases.answers import agent_of_words, words_of_agent
from fencepost_sessions.usecases.loading import existing_agent
from fencepost_sessions.usecases.ports import Ports
from fencepost_sessions.usecases.watch_directory import epoch_of

BEGUN: Final = faults.register(
    "sessions.deletion.begun", "a deletion is durable in the directory, the agent's credential file still stands"
)
FINISHED: Final = faults.register(
    "sessions.deletion.finished", "an agent is a tombstone in the directory, its follower not answered"
)

_log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeleteAgent:
    """The request as it came."""

    idempotency_key: str
    agent_id: str
    confirm_name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DeletionShown:
    """The agent as the deletion found it, and whether the deletion has ended."""

    agent: Agent
    duplicate: bool
    finished: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Deleting:
    key: Key
    agent_id: bytes
    confirm_name: str
    now_ms: int

    def apply(self, tx: Writing, /) -> tuple[Agent, bool]:
        first = tx.first_answer(self.key)
        if first is not None:
            return agent_of_words(same_content(first, self.key)), True
        if tx.tombstone(self.agent_id) is not None:
            raise deleted_agent("was deleted")
        before = existing_agent(tx, self.agent_id)
        after = deleting(before, confirm_name=self.confirm_name, revision=tx.directory().revision + 1)
        if after is not before:
            revision = tx.next_revision()
            tx.update_agent(before, after)
            tx.remove_credentials(tx.credentials_of_agent(self.agent_id), revision=revision)
            lease = tx.lease(self.agent_id)
            if lease is not None and lease.end is LeaseEnd.NOT_ENDED:
                tx.put_lease(lease, replace(lease, end=LeaseEnd.DELETED))
        tx.remember(self.key, words_of_agent(after), now_ms=self.now_ms)
        return after, after is before


async def delete_agent(ports: Ports, caller: Caller, request: DeleteAgent) -> DeletionShown:
    """Begin a deletion, which is on disk with the removal of the agent's credentials, and tell how far it has come.

    The agent's lease ends with it: its holder is told at the next call, stops and joins what it runs.

    Asking again tells the same of the agent, and whether it has ended.

    Raises:
        Malformed, InvalidIdempotencyKey, IdempotencyConflict, NotFound, ConfirmationMismatch, AgentDeleted (it has
            ended, and another key began it): nothing is written.
    """
    key = idempotency_key(
        scope=caller.scope,
        operation="DeleteAgent",
        key=request.idempotency_key,
        content=(request.agent_id, request.confirm_name),
    )
    agent_id = uuid_bytes(request.agent_id, what="agent_id")
    operation = _Deleting(key=key, agent_id=agent_id, confirm_name=request.confirm_name, now_ms=ports.clock.now_ms())
    agent, duplicate = await ports.store.commit(operation)
    if faults.ARMED:
        faults.hit(BEGUN)
    await ports.tokens.retire(agent_id)
    if not duplicate:
        _log.info("deletion_begun", agent_id=request.agent_id, revision=agent.revision)
    finished = ports.store.read(lambda reading: reading.tombstone(agent_id)) is not None
    return DeletionShown(agent=agent, duplicate=duplicate, finished=finished)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Finishing:
    epoch: bytes | None
    agent_id: bytes
    now_ms: int

    def apply(self, tx: Writing, /) -> tuple[int, bool]:
        if tx.directory().epoch != self.epoch:
            raise EpochMismatch(
                "the deletion was begun in another directory than this one; nothing was written",
                hint="Stop following and have the operator look: the database behind sessions was replaced.",
            )
        buried = tx.tombstone(self.agent_id)
        if buried is not None:
            return buried.revision, True
        agent = existing_agent(tx, self.agent_id)
        check_may_finish(agent)
        tombstone = Tombstone(
            agent_id=agent.agent_id,
            project_id=agent.project_id,
            deleted_at_ms=self.now_ms,
            revision=tx.next_revision(),
        )
        tx.bury_agent(agent, tombstone)
        tx.drop_released_names_until(self.now_ms - QUARANTINE_MS)
        tx.put_released_name(
            agent.project_id,
            ReleasedName(key=agent.name_key, agent_id=agent.agent_id, released_at_ms=self.now_ms),
        )
        return tombstone.revision, False


async def finish_deletion(ports: Ports, caller: Caller, *, epoch: str, agent_id: str) -> int:
    """End a deletion whose agent has no mail any more; return the revision that tells followers so.

    Ending it again answers the same revision.

    Raises:
        PermissionDenied: the caller is not the service that erases mail.
        Malformed, EpochMismatch, NotFound, InvalidState (nobody asked for the deletion): nothing is written.
    """
    if caller.label != ENFORCING_FOLLOWER:
        raise PermissionDenied(
            "only the service that erases an agent's mail ends its deletion; nothing was written",
            state={"label": caller.label},
        )
    wanted = uuid_bytes(agent_id, what="agent_id")
    finishing = _Finishing(epoch=epoch_of(epoch), agent_id=wanted, now_ms=ports.clock.now_ms())
    revision, duplicate = await ports.store.commit(finishing)
    if faults.ARMED:
        faults.hit(FINISHED)
    # Again: the process may have died between the begin of the deletion and this.
    await ports.tokens.retire(wanted)
    if not duplicate:
        _log.info("agent_deleted", agent_id=agent_id, revision=revision)
    return revision
