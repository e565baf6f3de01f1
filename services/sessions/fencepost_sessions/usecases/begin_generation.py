"""BeginGeneration: the next life of an agent, with a credential of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, cast

from fencepost_kit import logs
from fencepost_sessions.domain.agents import next_life
from fencepost_sessions.domain.credentials import Minted, credential_of_agent, outlived
from fencepost_sessions.domain.idempotency import Key, idempotency_key, same_content
from fencepost_sessions.domain.identifiers import uuid_bytes
from fencepost_sessions.domain.leases import Lease, Moment, check_free, held
from fencepost_sessions.domain.roles import Caller
from fencepost_sessions.store.protocol import Reading, Writing
from fencepost_sessions.usecases.loading import active_agent
from fencepost_sessions.usecases.ports import Ports
from fencepost_sessions.usecases.under_lease import optional_acquisition, or_lost_for_ever

_HINT_HELD: Final = (
    "A runtime of this agent may be at work: stop the agent first (`fencepost agent stop`), or wait until the lease "
    "expires."
)

_log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class BeginGeneration:
    """The request as it came; expected_generation 0 does not check, an empty acquisition is none."""

    idempotency_key: str
    agent_id: str
    expected_generation: int
    acquisition_id: str = ""


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
    acquisition_id: bytes | None
    moment: Moment
    minted: Minted

    def rehearse(self, reading: Reading, /) -> GenerationBegun | None:
        first = reading.first_answer(self.key)
        if first is not None:
            generation = cast("Any", same_content(first, self.key)["generation"])
            return GenerationBegun(generation=int(generation), duplicate=True)
        agent = active_agent(reading, self.agent_id)
        self._check_lease(reading.lease(self.agent_id))
        next_life(agent, expected_generation=self.expected_generation, revision=0)
        return None

    def _check_lease(self, lease: Lease | None) -> None:
        if self.acquisition_id is not None:
            held(lease, self.acquisition_id, self.moment)
        elif lease is not None:
            check_free((lease,), self.moment, hint=_HINT_HELD)

    def apply(self, tx: Writing, /) -> GenerationBegun:
        earlier = self.rehearse(tx)
        if earlier is not None:
            return earlier
        before = active_agent(tx, self.agent_id)
        after = next_life(before, expected_generation=self.expected_generation, revision=tx.next_revision())
        tx.update_agent(before, after)
        self._cover(tx, generation=after.generation)
        tx.insert_credential(credential_of_agent(after, self.minted))
        surplus = outlived(tx.credentials_of_agent(self.agent_id), generation=after.generation)
        tx.remove_credentials(surplus, revision=after.revision)
        tx.remember(self.key, {"generation": after.generation}, now_ms=self.minted.now_ms)
        return GenerationBegun(generation=after.generation, duplicate=False)

    def _cover(self, tx: Writing, *, generation: int) -> None:
        if self.acquisition_id is None:
            # A lease that has expired must not come back over a life that it does not cover.
            tx.end_leases_until(self.moment.running_ms)
            return
        lease = held(tx.lease(self.agent_id), self.acquisition_id, self.moment)
        tx.put_lease(lease, replace(lease, generation=generation))


async def begin_generation(ports: Ports, caller: Caller, request: BeginGeneration) -> tuple[GenerationBegun, str]:
    """Return the begun generation and the path of its credential; both are on disk, the new token in place of the old.

    Raises:
        Malformed, InvalidIdempotencyKey, IdempotencyConflict, NotFound, AgentDeleted, StaleGeneration, LeaseHeld
            (without a lease, while somebody has one), LeaseLost (the caller's does not stand): nothing is written.
    """
    acquisition_id = optional_acquisition(request.acquisition_id)
    key = idempotency_key(
        scope=caller.scope,
        operation="BeginGeneration",
        key=request.idempotency_key,
        # Without a lease, a key keeps the content that it had before there were leases.
        content=(
            *(request.agent_id, request.expected_generation),
            *((request.acquisition_id,) if request.acquisition_id else ()),
        ),
    )
    agent_id = uuid_bytes(request.agent_id, what="agent_id")
    moment = ports.lease_time.moment()
    granting = ports.tokens.grant(
        agent_id,
        lambda minted: _Beginning(
            key=key,
            agent_id=agent_id,
            expected_generation=request.expected_generation,
            acquisition_id=acquisition_id,
            moment=moment,
            minted=minted,
        ),
    )
    answer = await or_lost_for_ever(ports, moment.running_ms, granting)
    if not answer.duplicate:
        _log.info("generation_begun", agent_id=request.agent_id, generation=answer.generation)
    return answer, ports.tokens.files.path(agent_id)
