"""Evidence as a client calls it: who may, what an answer says, what a refusal looks like."""

from __future__ import annotations

import uuid
from typing import Any

import grpc
import pytest

from fencepost.mailbox.v1 import evidence_pb2 as pb
from fencepost.mailbox.v1 import tasks_pb2
from fencepost_kit.identity import Role
from fencepost_mailbox.evidence_servicer import RULES
from fencepost_testing.served_mailbox import EVIDENCE_DESCRIPTOR, Refusal, ServedMailbox, uuid_of

# Written out again from the contract's comments.
MAY = {
    "AddEvidence": {Role.AGENT, Role.COORDINATOR, Role.OPERATOR},
    "ListEvidence": set(Role),
    "RecordVerification": {Role.SERVICE},
}


def new_id() -> str:
    return str(uuid.uuid4())


async def a_task(served: ServedMailbox) -> str:
    ask = tasks_pb2.AssignTaskRequest(to="bob", description="d", acceptance="a", request_id=new_id())
    made = await served.call("ann", "AssignTask", ask)
    return str(made.change.task_id)


@pytest.mark.requirement("evidence.who-may-see-it")
async def test_the_rules_are_those_of_the_contract(served: ServedMailbox) -> None:
    assert {name: set(rule.roles) for name, rule in RULES.items()} == MAY
    assert {method.name for method in EVIDENCE_DESCRIPTOR.methods} == set(MAY)
    for method, who in (("AddEvidence", "service"), ("RecordVerification", "ann"), ("RecordVerification", "operator")):
        with pytest.raises(Refusal) as refused:
            await served.call(who, method, getattr(pb, f"{method}Request")())
        assert refused.value.status is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.requirement("evidence.reported-and-verified-are-two-facts")
async def test_evidence_goes_from_its_report_to_its_check(served: ServedMailbox) -> None:
    task_id = await a_task(served)
    kinds: tuple[dict[str, Any], ...] = (
        {"file": pb.FileEvidence(path="a/b", sha256="0" * 64, commit="1" * 40)},
        {"commit": pb.CommitEvidence(commit="2" * 40)},
        {"diff": pb.DiffEvidence(base="3" * 40, head="4" * 40)},
        {"test": pb.TestEvidence(label="t", outcome=pb.TEST_OUTCOME_NOT_RUN, exit_code=0, summary="s")},
    )
    asks = [pb.AddEvidenceRequest(task_id=task_id, note="n", request_id=new_id(), **kind) for kind in kinds]
    added = [await served.call("bob", "AddEvidence", ask) for ask in asks]
    again = await served.call("bob", "AddEvidence", asks[0])
    assert (again.evidence_id, again.duplicate, added[0].duplicate) == (added[0].evidence_id, True, False)
    listed = (await served.call("ann", "ListEvidence", pb.ListEvidenceRequest(task_id=task_id))).evidence
    assert [one.evidence_id for one in listed] == [one.evidence_id for one in added]
    for shown, kind in zip(listed, kinds, strict=True):
        name = next(iter(kind))
        assert (shown.WhichOneof("descriptor"), getattr(shown, name)) == (name, kind[name])
    assert (listed[0].reporter.name, listed[0].verdict, listed[0].note) == ("bob", pb.VERDICT_UNSPECIFIED, "n")
    record = pb.RecordVerificationRequest(
        task_id=task_id,
        evidence_id=added[0].evidence_id,
        verdict=pb.VERDICT_VERIFIED,
        detail="as reported",
        checkout="/somewhere",
        asked_by=uuid_of("ann"),
    )
    at_ms = (await served.call("service", "RecordVerification", record)).verified_at_ms
    ask = pb.ListEvidenceRequest(task_id=task_id, evidence_ids=[added[0].evidence_id])
    checked = (await served.call("operator", "ListEvidence", ask)).evidence[0]
    assert (checked.verdict, checked.verified_at_ms, checked.checkout) == (pb.VERDICT_VERIFIED, at_ms, "/somewhere")
    assert (checked.verified_for.name, checked.detail) == ("ann", "as reported")


async def test_refusals_have_their_status_and_reason(served: ServedMailbox) -> None:
    task_id = await a_task(served)
    file = pb.FileEvidence(path="../out", sha256="0" * 64)
    for method, request, who, status, reason in (
        ("AddEvidence", {"file": file}, "bob", grpc.StatusCode.INVALID_ARGUMENT, "invalid_evidence"),
        ("AddEvidence", {}, "bob", grpc.StatusCode.INVALID_ARGUMENT, "invalid_evidence"),
        ("AddEvidence", {"request_id": "x"}, "bob", grpc.StatusCode.INVALID_ARGUMENT, "invalid_argument"),
        ("AddEvidence", {"commit": pb.CommitEvidence(commit="2" * 40)}, "eve", grpc.StatusCode.NOT_FOUND, "not_found"),
        ("ListEvidence", {"task_id": "task_1"}, "ann", grpc.StatusCode.NOT_FOUND, "not_found"),
        ("ListEvidence", {"after": "x"}, "ann", grpc.StatusCode.INVALID_ARGUMENT, "invalid_evidence"),
        ("RecordVerification", {"evidence_id": "evi_1"}, "service", grpc.StatusCode.NOT_FOUND, "not_found"),
    ):
        facts = {"task_id": task_id, **({"request_id": new_id()} if method == "AddEvidence" else {}), **request}
        with pytest.raises(Refusal) as refused:
            await served.call(who, method, getattr(pb, f"{method}Request")(**facts))
        assert (refused.value.status, refused.value.reason) == (status, reason), (method, request)
