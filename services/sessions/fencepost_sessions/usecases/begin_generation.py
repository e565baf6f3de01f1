"""BeginGeneration: the next life of an agent, with a credential of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from fencepost_kit import logs
from fencepost_sessions.domain.agents import next_life
from fencepost_sessions.domain.credentials import Minted, credential_of_agent, outlived
from fencepost_sessions.domain.idempotency import Key, idempotency_key, same_content
from fencepost_sessions.domain.identifiers import uuid_bytes
from fencepost_sessions.domain.roles import Caller
from fencepost_sessions.store.protocol import Reading, Writing
from fencepost_sessions.usecases.loading import active_agent
from fencepost_sessions.usecases.ports import Ports

_log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class BeginGeneration:
    """The request as it came; expected_generation 0 does not check."""

    idempotency_key: str
    agent_id: str
    expected_generation: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationBegun:
    """The generation that the first call with this key began."""

    generation: int
    duplicate: bool

    @property
    def granted(self) -> bool:
        """True where this run wrote the credential's row."""
        return not self.duplicate


@dataclass(frozen=True, kw_only=True, slots=True)
class _Beginning:
    key: Key
    agent_id: bytes
    expected_generation: int
    minted: Minted

    def rehearse(self, reading: Reading, /) -> GenerationBegun | None:
        first = reading.first_answer(self.key)
        if first is not None:
            generation = cast("Any", same_content(first, self.key)["generation"])
            return GenerationBegun(generation=int(generation), duplicate=True)
        next_life(active_agent(reading, self.agent_id), expected_generation=self.expected_generation, revision=0)
        return None

    def apply(self, tx: Writing, /) -> GenerationBegun:
        earlier = self.rehearse(tx)
        if earlier is not None:
            return earlier
        before = active_agent(tx, self.agent_id)
        after = next_life(before, expected_generation=self.expected_generation, revision=tx.next_revision())
        tx.update_agent(before, after)
        tx.insert_credential(credential_of_agent(after, self.minted))
        surplus = outlived(tx.credentials_of_agent(self.agent_id), generation=after.generation)
        tx.remove_credentials(surplus, revision=after.revision)
        tx.remember(self.key, {"generation": after.generation}, now_ms=self.minted.now_ms)
        return GenerationBegun(generation=after.generation, duplicate=False)


async def begin_generation(ports: Ports, caller: Caller, request: BeginGeneration) -> tuple[GenerationBegun, str]:
    """Return the begun generation and the path of its credential; both are on disk, the new token in place of the old.

    Raises:
        Malformed, InvalidIdempotencyKey, IdempotencyConflict, NotFound, AgentDeleted, StaleGeneration: nothing is
            written.
    """
    key = idempotency_key(
        scope=caller.scope,
        operation="BeginGeneration",
        key=request.idempotency_key,
        content=(request.agent_id, request.expected_generation),
    )
    agent_id = uuid_bytes(request.agent_id, what="agent_id")
    answer = await ports.tokens.grant(
        agent_id,
        lambda minted: _Beginning(
            key=key, agent_id=agent_id, expected_generation=request.expected_generation, minted=minted
        ),
    )
    if not answer.duplicate:
        _log.info("generation_begun", agent_id=request.agent_id, generation=answer.generation)
    return answer, ports.tokens.files.path(agent_id)
