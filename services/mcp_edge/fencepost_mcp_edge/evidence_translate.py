"""Evidence between the tools' JSON and the protobuf of EvidenceService."""

from __future__ import annotations

from typing import Any, Final

from fencepost.mailbox.v1 import evidence_pb2 as pb
from fencepost_mcp_edge.translate import Arguments, InvalidReceipt, Payload, Words, agent_of, moment

VERDICT: Final = Words(pb.Verdict, "VERDICT_")
OUTCOME: Final = Words(pb.TestOutcome, "TEST_OUTCOME_")

_FIELDS: Final = {
    "file": ("path", "sha256", "commit"),
    "commit": ("commit",),
    "diff": ("path", "base", "head"),
    "test": ("label", "exit_code", "summary"),
}


def add_request(arguments: Arguments, request_id: str) -> pb.AddEvidenceRequest:
    """Return the AddEvidence that evidence_add stands for."""
    request = pb.AddEvidenceRequest(task_id=arguments["task_id"], note=arguments.get("note", ""), request_id=request_id)
    kind = arguments["kind"]
    said: Any = getattr(request, kind)
    said.SetInParent()
    for name in _FIELDS[kind]:
        if name in arguments:
            setattr(said, name, arguments[name])
    if kind == "test":
        said.outcome = pb.TestOutcome.Value(f"TEST_OUTCOME_{arguments['outcome'].upper()}")
    return request


def add_result(task_id: str, response: pb.AddEvidenceResponse, request_id: str) -> Payload:
    """Return what evidence_add stored. Raises InvalidReceipt."""
    if not response.evidence_id:
        raise InvalidReceipt
    return {
        "operation": "evidence_add",
        "evidence_id": response.evidence_id,
        "task_id": task_id,
        "reported_at": moment(response.reported_at_ms),
        "duplicate": response.duplicate,
        "request_id": request_id,
    }


def evidence(one: pb.Evidence) -> Payload:
    """Return a piece of evidence: what was reported, and what the newest check found."""
    kind = one.WhichOneof("descriptor") or ""
    said: Any = getattr(one, kind) if kind else None
    told: Payload = {"evidence_id": one.evidence_id, "kind": kind}
    for name in _FIELDS.get(kind, ()):
        if name == "exit_code":
            if said.HasField("exit_code"):
                told["exit_code"] = said.exit_code
        elif value := getattr(said, name):
            told[name] = value
    if kind == "test":
        told["outcome"] = OUTCOME[said.outcome]
    told |= {
        "reporter": agent_of(one.reporter) if one.HasField("reporter") else None,
        "reported_at": moment(one.reported_at_ms),
        "note": one.note,
        "verdict": VERDICT[one.verdict] if one.verdict else "reported",
    }
    if one.verified_at_ms:
        told |= {
            "verified_at": moment(one.verified_at_ms),
            "verified_for": agent_of(one.verified_for) if one.HasField("verified_for") else None,
            "checkout": one.checkout,
            "detail": one.detail,
        }
    return told
