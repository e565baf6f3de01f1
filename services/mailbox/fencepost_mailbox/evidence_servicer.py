"""One line of meaning a method of EvidenceService.

The guard in front of it has authenticated the caller and checked its role and deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fencepost.mailbox.v1 import evidence_pb2 as pb
from fencepost_kit.guard import Call, Rule
from fencepost_kit.identity import Role
from fencepost_mailbox import evidence_translate as wire
from fencepost_mailbox import translate
from fencepost_mailbox.task_translate import task_id_of
from fencepost_mailbox.usecases.evidence.keep import KeepEvidence
from fencepost_mailbox.usecases.ports import Ports

EVIDENCE_CALL_MS_MAX: Final = 10_000
_REPORTERS: Final = frozenset({Role.AGENT, Role.COORDINATOR, Role.OPERATOR})

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "AddEvidence": Rule(roles=_REPORTERS, deadline_ms_max=EVIDENCE_CALL_MS_MAX),
        "ListEvidence": Rule(roles=frozenset(Role), deadline_ms_max=EVIDENCE_CALL_MS_MAX),
        "RecordVerification": Rule(roles=frozenset({Role.SERVICE}), deadline_ms_max=EVIDENCE_CALL_MS_MAX),
    }
)


class EvidenceServicer:
    """fencepost.mailbox.v1.EvidenceService."""

    def __init__(self, ports: Ports) -> None:
        self._names = translate.Namer(ports.directory)
        self._keep = KeepEvidence(ports)

    async def AddEvidence(self, request: pb.AddEvidenceRequest, call: Call) -> pb.AddEvidenceResponse:
        """See evidence.proto, as for every method here."""
        return wire.added_response(await self._keep.add(call.caller, wire.add_command(request)))

    async def ListEvidence(self, request: pb.ListEvidenceRequest, call: Call) -> pb.ListEvidenceResponse:
        only = tuple(request.evidence_ids)
        task_id = task_id_of(request.task_id)
        found, more = await self._keep.listed(call.caller, task_id, only, request.page_size, request.after)
        return pb.ListEvidenceResponse(evidence=[wire.evidence(one, self._names) for one in found], has_more=more)

    async def RecordVerification(
        self, request: pb.RecordVerificationRequest, call: Call
    ) -> pb.RecordVerificationResponse:
        return pb.RecordVerificationResponse(verified_at_ms=await self._keep.record(wire.found_of(request)))
