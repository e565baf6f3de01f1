"""AcquireLease: one holder at a time for an agent and its conversation (M070)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from fencepost_kit import logs
from fencepost_sessions.domain.agents import check_generation
from fencepost_sessions.domain.idempotency import Key, idempotency_key, same_content
from fencepost_sessions.domain.identifiers import uuid_bytes
from fencepost_sessions.domain.leases import Lease, LeaseWanted, Moment, acquired, check_free, held, lease_wanted
from fencepost_sessions.domain.roles import Caller
from fencepost_sessions.store.protocol import Writing
from fencepost_sessions.usecases.loading import active_agent
from fencepost_sessions.usecases.ports import Ports
from fencepost_sessions.usecases.under_lease import check_carrier, or_lost_for_ever

_log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class AcquireLease:
    """The request as it came; expected_generation 0 does not check."""

    idempotency_key: str
    agent_id: str
    kind: int
    holder: str
    term_ms: int
    expected_generation: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseAcquired:
    """The lease as it stands, and the moment in which it was looked at."""

    lease: Lease
    moment: Moment
    duplicate: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Acquiring:
    key: Key
    agent_id: bytes
    acquisition_id: bytes
    wanted: LeaseWanted
    expected_generation: int
    moment: Moment

    def apply(self, tx: Writing, /) -> LeaseAcquired:
        first = tx.first_answer(self.key)
        if first is not None:
            acquisition_id = bytes.fromhex(cast("str", same_content(first, self.key)["acquisition_id"]))
            standing = held(tx.lease_of_acquisition(acquisition_id), acquisition_id, self.moment)
            return LeaseAcquired(lease=standing, moment=self.moment, duplicate=True)
        agent = active_agent(tx, self.agent_id)
        if self.expected_generation != 0:
            check_generation(agent, self.expected_generation)
        # What has expired makes room, and must not come back beside its successor.
        tx.end_leases_until(self.moment.running_ms)
        last = tx.lease(self.agent_id)
        lease = acquired(agent, last, self.wanted, acquisition_id=self.acquisition_id, moment=self.moment)
        if agent.conversation_id:
            check_free(tx.leases_of_conversation(agent.conversation_id), self.moment)
        tx.put_lease(last, lease)
        tx.remember(self.key, {"acquisition_id": lease.acquisition_id.hex()}, now_ms=self.moment.unix_ms)
        return LeaseAcquired(lease=lease, moment=self.moment, duplicate=False)


async def acquire_lease(ports: Ports, caller: Caller, request: AcquireLease) -> LeaseAcquired:
    """Return the lease, which is on disk. The same call again answers the same lease as long as it stands.

    Raises:
        PermissionDenied (another service), Malformed, InvalidLease, InvalidIdempotencyKey, IdempotencyConflict,
            NotFound, AgentDeleted, StaleGeneration, LeaseHeld, LeaseLost (the first call's lease has ended): no lease
            was taken.
    """
    check_carrier(caller)
    key = idempotency_key(
        scope=caller.scope,
        operation="AcquireLease",
        key=request.idempotency_key,
        content=(request.agent_id, request.kind, request.holder, request.term_ms, request.expected_generation),
    )
    moment = ports.lease_time.moment()
    acquiring = _Acquiring(
        key=key,
        agent_id=uuid_bytes(request.agent_id, what="agent_id"),
        acquisition_id=ports.new_id(),
        wanted=lease_wanted(kind=request.kind, holder=request.holder, term_ms=request.term_ms),
        expected_generation=request.expected_generation,
        moment=moment,
    )
    answer = await or_lost_for_ever(ports, moment.running_ms, ports.store.commit(acquiring))
    if not answer.duplicate:
        _log.info(
            "lease_acquired", agent_id=request.agent_id, kind=answer.lease.kind.name.lower(), fence=answer.lease.fence
        )
    return answer
