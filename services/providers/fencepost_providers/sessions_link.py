"""Sessions over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

from fencepost.client import Sessions
from fencepost.errors import FencepostError, Refused
from fencepost.sessions.v1 import sessions_pb2 as pb
from fencepost_kit.renewing import Renewing
from fencepost_providers.domain.agents import Agent, Holder
from fencepost_providers.domain.carried import clipped
from fencepost_providers.links import LEASE_TERM_MS, DirectoryStep, LeaseKind, Status
from fencepost_providers.translate import agent_from_proto, holder_from_proto

FOLLOWER: Final = "providers"
HOLDER: Final = "providers of this home"
STATUS_DETAIL_BYTES_MAX: Final = 1024
TURN_BYTES_MAX: Final = 128
_NOT_FOUND: Final = "not_found"


class SessionsLink:
    """See SessionsPort."""

    def __init__(self, connect: Callable[[], Sessions]) -> None:
        """Connect with the credential that this service has now; `connect` reads it anew each time."""
        self._sessions = Renewing(connect)

    async def watch(self, epoch: str, revision: int) -> AsyncIterator[DirectoryStep]:
        """See SessionsPort. A whole directory is put together here."""
        ask = pb.WatchDirectoryRequest(epoch=epoch, revision=revision, follower=FOLLOWER)
        agents: list[Agent] = []
        holders: list[Holder] = []
        whole = False
        try:
            async for message in self._sessions.client.watch_directory(ask):
                if message.snapshot_begin:
                    whole, agents, holders = True, [], []
                agents += map(agent_from_proto, message.agents)
                holders += map(holder_from_proto, message.credentials)
                if whole and not message.snapshot_end:
                    continue
                yield DirectoryStep(
                    epoch=message.epoch,
                    revision=message.revision,
                    whole=whole,
                    agents=tuple(agents),
                    holders=tuple(holders),
                    removed_credentials=[_bytes(one) for one in message.removed_credential_ids],
                    removed_agents=tuple(message.removed_agent_ids),
                )
                whole, agents, holders = False, [], []
        except FencepostError as error:
            self._sessions.notice(error)
            raise

    async def acquire(self, agent_id: str, *, key: str, generation: int) -> str:
        """See SessionsPort."""
        ask = pb.AcquireLeaseRequest(
            idempotency_key=key,
            agent_id=agent_id,
            kind=pb.LEASE_KIND_LIFECYCLE,
            holder=HOLDER,
            term_ms=LEASE_TERM_MS,
            expected_generation=generation,
        )
        return (await self._sessions.ask(lambda sessions: sessions.acquire_lease(ask))).lease.acquisition_id

    async def renew(self, acquisition_id: str, kind: LeaseKind | None = None) -> None:
        """See SessionsPort."""
        ask = pb.RenewLeaseRequest(
            acquisition_id=acquisition_id, kind=pb.LeaseKind.ValueType(0 if kind is None else kind)
        )
        await self._sessions.ask(lambda sessions: sessions.renew_lease(ask))

    async def release(self, acquisition_id: str) -> None:
        """See SessionsPort."""
        await self._sessions.ask(lambda sessions: sessions.release_lease(acquisition_id))

    async def begin_generation(self, agent_id: str, *, key: str, expected: int, acquisition_id: str) -> int:
        """See SessionsPort."""
        ask = pb.BeginGenerationRequest(
            idempotency_key=key, agent_id=agent_id, expected_generation=expected, acquisition_id=acquisition_id
        )
        return (await self._sessions.ask(lambda sessions: sessions.begin_generation(ask))).generation

    async def report(self, agent_id: str, acquisition_id: str, status: Status) -> None:
        """See SessionsPort."""
        told = pb.AgentStatus(
            state=pb.ObservedState.ValueType(status.state),
            evidence=pb.EvidenceKind.ValueType(status.evidence),
            detail=clipped(status.detail, STATUS_DETAIL_BYTES_MAX),
            turn_id=clipped(status.turn_id, TURN_BYTES_MAX),
            observed_at_ms=status.observed_at_ms,
            generation=status.generation,
            sequence=status.sequence,
        )
        ask = pb.ReportStatusRequest(agent_id=agent_id, acquisition_id=acquisition_id, status=told)
        await self._sessions.ask(lambda sessions: sessions.report_status(ask))

    async def set_conversation(
        self, agent_id: str, acquisition_id: str, *, generation: int, conversation_id: str, replace: bool
    ) -> Agent:
        """See SessionsPort."""
        ask = pb.SetConversationRequest(
            agent_id=agent_id,
            acquisition_id=acquisition_id,
            generation=generation,
            conversation_id=conversation_id,
            replace=replace,
        )
        return agent_from_proto((await self._sessions.ask(lambda sessions: sessions.set_conversation(ask))).agent)

    async def lookup_credential(self, token_sha256: bytes) -> Holder | None:
        """See SessionsPort."""
        try:
            found = await self._sessions.ask(lambda sessions: sessions.lookup_credential(token_sha256))
        except Refused as refused:
            if refused.reason == _NOT_FOUND:
                return None
            raise
        return holder_from_proto(found.credential)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("-", ""))
