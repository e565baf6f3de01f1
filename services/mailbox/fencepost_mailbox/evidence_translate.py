"""What evidence looks like on the wire: translate.py's part for evidence.proto."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import grpc

from fencepost.mailbox.v1 import evidence_pb2 as pb
from fencepost_kit.ids import uuid_bytes, uuid_text
from fencepost_kit.refusal import Refusal
from fencepost_mailbox import translate
from fencepost_mailbox.domain.evidence import refusals
from fencepost_mailbox.domain.evidence.values import (
    CommitReported,
    DiffReported,
    Evidence,
    FileReported,
    Reported,
    RunReported,
    evidence_id_of,
    evidence_id_text,
)
from fencepost_mailbox.domain.refusals import NotFound
from fencepost_mailbox.domain.tasks.needs import task_id_text
from fencepost_mailbox.task_translate import task_id_of
from fencepost_mailbox.usecases.evidence import keep

EVIDENCE_STATUS_OF: Final[Mapping[type[Refusal], grpc.StatusCode]] = MappingProxyType(
    {
        refusals.InvalidEvidence: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.EvidenceLimit: grpc.StatusCode.FAILED_PRECONDITION,
    }
)


def add_command(request: pb.AddEvidenceRequest) -> keep.Add:
    """Return what AddEvidence asks for.

    Raises:
        MalformedId, NotFound: an id is none.
    """
    return keep.Add(
        task_id=task_id_of(request.task_id),
        reported=_reported(request),
        note=request.note,
        request_id=uuid_bytes(request.request_id),
    )


def _reported(request: pb.AddEvidenceRequest) -> Reported | None:
    match request.WhichOneof("descriptor"):
        case "file":
            file = request.file
            return FileReported(path=file.path, sha256=file.sha256, commit=file.commit)
        case "commit":
            return CommitReported(commit=request.commit.commit)
        case "diff":
            return DiffReported(path=request.diff.path, base=request.diff.base, head=request.diff.head)
        case "test":
            test = request.test
            code = test.exit_code if test.HasField("exit_code") else None
            return RunReported(label=test.label, outcome=test.outcome, exit_code=code, summary=test.summary)
        case _:
            return None


def found_of(request: pb.RecordVerificationRequest) -> keep.Found:
    """Return what RecordVerification tells.

    Raises:
        MalformedId, NotFound: an id is none.
    """
    evidence_id = evidence_id_of(request.evidence_id)
    if evidence_id is None:
        raise NotFound("this is not the id of evidence; nothing was written")
    return keep.Found(
        task_id=task_id_of(request.task_id),
        evidence_id=evidence_id,
        verdict=request.verdict,
        detail=request.detail,
        checkout=request.checkout,
        asked_by=translate.optional_uuid(request.asked_by),
    )


def added_response(added: keep.Added) -> pb.AddEvidenceResponse:
    """Return the answer of AddEvidence."""
    return pb.AddEvidenceResponse(
        evidence_id=evidence_id_text(added.evidence_id), reported_at_ms=added.at_ms, duplicate=added.duplicate
    )


def evidence(found: Evidence, names: translate.Namer) -> pb.Evidence:
    """Return evidence as its reader sees it."""
    return pb.Evidence(
        evidence_id=evidence_id_text(found.evidence_id),
        task_id=task_id_text(found.task_id),
        reporter=names.ref(found.reporter),
        attempt_id=uuid_text(found.attempt_id) if found.attempt_id is not None else "",
        reported_at_ms=found.reported_at_ms,
        note=found.note,
        verdict=pb.Verdict.ValueType(found.verdict),
        verified_at_ms=found.verified_at_ms,
        verified_for=names.ref(found.verified_for),
        checkout=found.checkout,
        detail=found.detail,
        **_descriptor(found.reported),
    )


def _descriptor(reported: Reported) -> dict[str, Any]:
    match reported:
        case FileReported():
            return {"file": pb.FileEvidence(path=reported.path, sha256=reported.sha256, commit=reported.commit)}
        case CommitReported():
            return {"commit": pb.CommitEvidence(commit=reported.commit)}
        case DiffReported():
            return {"diff": pb.DiffEvidence(path=reported.path, base=reported.base, head=reported.head)}
        case RunReported():
            test = pb.TestEvidence(
                label=reported.label,
                outcome=pb.TestOutcome.ValueType(reported.outcome),
                exit_code=reported.exit_code,
                summary=reported.summary,
            )
            return {"test": test}
