"""Who may call what: the whole table, both ways, and nobody without a credential."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any

import grpc
import pytest

from fencepost.common.v1 import common_pb2
from fencepost.errors import FencepostError, Refused, error_of
from fencepost.sessions.v1 import sessions_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2_grpc
from fencepost_kit.identity import mint_token
from fencepost_sessions.servicer import RULES
from fencepost_sessions.wiring import SERVICE
from fencepost_testing.sessions_service import As, Running, refusal_of

KINDS = ("agent", "coordinator", "operator", "service")
# Written out here a second time, from the comments of the contract.
MAY: Mapping[str, tuple[str, ...]] = {
    "Describe": KINDS,
    "GetCaller": KINDS,
    "EnsureProject": ("operator",),
    "UpdateProject": ("operator",),
    "ListProjects": ("operator", "service"),
    "CreateAgent": ("operator",),
    "ListAgents": ("agent", "coordinator", "operator"),
    "GetAgent": ("agent", "coordinator", "operator"),
    "UpdateAgent": ("operator",),
    "DeleteAgent": ("operator",),
    "FinishDeletion": ("service",),
    "BeginGeneration": ("operator", "service"),
    "AcquireLease": ("operator", "service"),
    "RenewLease": ("operator", "service"),
    "ReleaseLease": ("operator", "service"),
    "ListLeases": ("operator", "service"),
    "ReportStatus": ("service",),
    "SetConversation": ("service",),
    "ListCredentials": ("operator",),
    "RevokeCredential": ("operator",),
    "LookupAgent": ("service",),
    "LookupCredential": ("service",),
    "WatchDirectory": ("service",),
    "ConfirmRevision": ("service",),
}
METHODS = sorted(MAY)
# Of the services, these are open to the one that runs agents' programs only.
CARRIED = {"AcquireLease", "RenewLease", "ReleaseLease", "ReportStatus", "SetConversation"}


def request_of(method: str) -> Any:
    """A request that is well formed, means nothing that exists, and ends by itself."""
    fields: dict[str, Any] = {}
    if method in {"WatchDirectory", "ConfirmRevision"}:
        fields = {"epoch": str(uuid.UUID(int=1)), "follower": "mailbox"}
    return getattr(pb, f"{method}Request")(**fields)


async def caller_of(running: Running, kind: str) -> As:
    if kind == "operator":
        return running.operator
    if kind == "service":
        return running.service()
    role = common_pb2.ROLE_COORDINATOR if kind == "coordinator" else common_pb2.ROLE_AGENT
    return running.agent(await running.create("ann", role=role))


def test_the_table_speaks_of_every_rpc() -> None:
    names = {method.name for method in SERVICE.methods}
    assert set(MAY) == names == set(RULES)


@pytest.mark.requirement("sessions.roles-decide-who-may-call")
@pytest.mark.parametrize("kind", KINDS)
async def test_each_role_reaches_exactly_the_calls_that_are_open_to_it(running: Running, kind: str) -> None:
    caller = await caller_of(running, kind)
    before = (await running.operator("Describe", pb.DescribeRequest())).revision
    denied = set()
    carrier = running.service("providers") if kind == "service" else caller
    for method in METHODS:
        one = carrier if method in CARRIED else caller
        outcome = (await asyncio.gather(one(method, request_of(method)), return_exceptions=True))[0]
        if isinstance(outcome, Refused) and outcome.reason == "permission_denied":
            assert outcome.state["role"] == kind
            denied.add(method)
    assert denied == {method for method in METHODS if kind not in MAY[method]}
    assert (await running.operator("Describe", pb.DescribeRequest())).revision == before


@pytest.mark.requirement("sessions.roles-decide-who-may-call")
@pytest.mark.parametrize("method", sorted(CARRIED))
async def test_no_other_service_holds_leases_or_reports_on_runtimes(running: Running, method: str) -> None:
    refused = await refusal_of(running.service("mailbox")(method, request_of(method)))
    assert (refused.reason, refused.state) == ("permission_denied", {"label": "mailbox"})


@pytest.mark.requirement("sessions.roles-decide-who-may-call")
@pytest.mark.parametrize("method", METHODS)
async def test_nobody_calls_without_a_credential_that_is_known(running: Running, method: str) -> None:
    for token in (None, mint_token(), "fp_short", "x", ""):
        caller = running.with_token(token)
        assert (await refusal_of(caller(method, request_of(method)))).reason == "unauthenticated"


@pytest.mark.parametrize(
    "metadata",
    [
        (("authorization", "Basic abc"),),
        (("authorization", "bearer "),),
        (("authorization-bin", b"Bearer x"),),
        (("x-agent-id", "ann"),),
    ],
)
async def test_a_malformed_credential_is_refused_and_not_repeated(
    running: Running, metadata: tuple[tuple[str, Any], ...]
) -> None:
    stub: Any = sessions_pb2_grpc.SessionsServiceStub(running.channel)
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await stub.Describe(pb.DescribeRequest(), metadata=metadata, timeout=5)
    error: FencepostError = error_of(failed.value)
    assert error.reason == "unauthenticated"
    assert "abc" not in str(error)


async def test_an_agents_role_changes_what_it_may_call_only_within_the_two_roles_of_agents(running: Running) -> None:
    agent = await running.create("ann")
    request = pb.UpdateAgentRequest(idempotency_key="k", agent_id=agent.agent_id, role=common_pb2.ROLE_SERVICE)
    assert (await refusal_of(running.operator("UpdateAgent", request))).reason == "invalid_role"
    lookup = pb.LookupAgentRequest(project_id=agent.project_id, target="ann")
    assert (await refusal_of(running.agent(agent)("LookupAgent", lookup))).reason == "permission_denied"
