"""What integrating asks of the mailbox and of sessions, over gRPC.

A recording whose answer was lost is asked again under its request_id and never settled: settling would cancel it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc.aio

from fencepost.client import Channels, Sessions
from fencepost.errors import Refused, error_of
from fencepost.home import MAILBOX
from fencepost.mailbox.v1 import evidence_pb2 as evidence_pb
from fencepost.mailbox.v1 import tasks_pb2 as pb
from fencepost.mailbox.v1.evidence_pb2_grpc import EvidenceServiceStub
from fencepost.mailbox.v1.tasks_pb2_grpc import TasksServiceStub
from fencepost.sessions.v1 import sessions_pb2 as sessions_pb
from fencepost_kit.identity import UnusableCredential
from fencepost_providers.domain.carried import clipped
from fencepost_providers.domain.integration import Kind, Place, Recorded, TaskFacts, Wanted
from fencepost_providers.domain.verification import DETAIL_BYTES_MAX, Finding, Reported
from fencepost_providers.translate import (
    place_from_proto,
    recorded_from_proto,
    reported_from_proto,
    task_from_proto,
)

READY_MS_MAX: Final = 3_000
CALL_MS_MAX: Final = 10_000
PROJECTS_PAGE: Final = 500
_UNAUTHENTICATED: Final = "unauthenticated"


class TasksLink:
    """See TasksPort."""

    def __init__(self, channels: Channels, token: Callable[[], str]) -> None:
        """Call with the credential that this service has at each call."""
        self._channels = channels
        self._token = token

    async def task(self, task_id: str) -> TaskFacts:
        """See TasksPort."""
        answer = await self._call("GetTask", pb.GetTaskRequest(task_id=task_id))
        return task_from_proto(answer.task)

    async def record(self, wanted: Wanted, kind: Kind) -> Recorded:
        """See TasksPort. The version was checked before anything was merged, and binds nobody afterwards."""
        request = pb.RecordIntegrationRequest(
            task_id=wanted.task_id,
            commit=wanted.commit,
            integration=pb.Integration.ValueType(kind),
            note=wanted.note,
            coordinator_id=wanted.coordinator_id,
            request_id=wanted.request_id,
        )
        return recorded_from_proto((await self._call("RecordIntegration", request)).change)

    async def place(self, project_id: str) -> Place | None:
        """See TasksPort."""
        sessions = Sessions(self._channels, self._credential())
        token = ""
        while True:
            page = await sessions.list_projects(
                sessions_pb.ListProjectsRequest(page_size=PROJECTS_PAGE, page_token=token)
            )
            found = next((one for one in page.projects if one.project_id == project_id), None)
            if found is not None:
                return place_from_proto(found)
            token = page.next_page_token
            if not token:
                return None

    async def evidence(self, task_id: str, evidence_ids: Sequence[str]) -> Sequence[Reported]:
        """See TasksPort."""
        request = evidence_pb.ListEvidenceRequest(task_id=task_id, evidence_ids=evidence_ids)
        answer = await self._call("ListEvidence", request, stub=EvidenceServiceStub)
        return [reported_from_proto(one) for one in answer.evidence]

    async def record_finding(self, task_id: str, finding: Finding, asked_by: str) -> int:
        """See TasksPort."""
        request = evidence_pb.RecordVerificationRequest(
            task_id=task_id,
            evidence_id=finding.evidence_id,
            verdict=evidence_pb.Verdict.ValueType(finding.verdict),
            detail=clipped(finding.detail, DETAIL_BYTES_MAX),
            checkout=finding.checkout,
            asked_by=asked_by,
        )
        answer = await self._call("RecordVerification", request, stub=EvidenceServiceStub)
        return int(answer.verified_at_ms)

    def _credential(self) -> str:
        try:
            return self._token()
        except UnusableCredential:
            raise Refused(_UNAUTHENTICATED, "this service's credential cannot be read now; nothing was sent") from None

    async def _call(self, method: str, request: Any, *, stub: Callable[[Any], Any] = TasksServiceStub) -> Any:
        channel = await self._channels.ready(MAILBOX, within_ms=READY_MS_MAX)
        token = self._credential()
        call = getattr(stub(channel), method)
        try:
            return await call(request, metadata=(("authorization", f"Bearer {token}"),), timeout=CALL_MS_MAX / 1000)
        except grpc.aio.AioRpcError as error:
            raise error_of(error) from None
