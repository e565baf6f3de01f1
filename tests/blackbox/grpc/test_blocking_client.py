"""What a program sees that blocks, knows only the protos, and speaks to running processes."""

from __future__ import annotations

import time
import uuid
from typing import Any

import grpc
import pytest
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fencepost.common.v1 import common_pb2
from fencepost.home import MAILBOX
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost_testing.processes import KnownAgent, Services, bearer

CALL_S_MAX = 10.0
People = dict[str, KnownAgent]


def refusal(error: grpc.RpcError) -> common_pb2.Refusal:
    """Read the refusal as a stranger would: the standard envelope, and the one detail in it."""
    trailers = dict(error.trailing_metadata())  # type: ignore[attr-defined]
    status = Status.FromString(trailers["grpc-status-details-bin"])
    assert status.code == error.code().value[0]  # type: ignore[attr-defined]
    assert len(status.details) == 1
    found = common_pb2.Refusal()
    assert status.details[0].Unpack(found)
    return found


def as_(agent: KnownAgent) -> dict[str, Any]:
    return {"metadata": bearer(agent.token), "timeout": CALL_S_MAX}


def send(target: str, body: str = "the build is green", *, key: str = "") -> pb.SendRequest:
    return pb.SendRequest(target=target, body=body, idempotency_key=key or uuid.uuid4().hex)


@pytest.mark.requirement("ways.blocking-client")
def test_a_request_goes_out_is_read_answered_and_the_answer_acknowledged(grpc_stub: Any, agents: People) -> None:
    ann, bob = agents["ann"], agents["bob"]
    key = uuid.uuid4().hex
    ask = pb.RequestRequest(target="bob", body="review it", idempotency_key=key)
    asked = grpc_stub.Request(ask, **as_(ann))
    assert grpc_stub.Request(ask, **as_(ann)).duplicate

    page = grpc_stub.Receive(pb.ReceiveRequest(), **as_(bob))
    (read,) = [record for record in page.records if record.record_id == asked.request_id]
    assert (read.kind, read.body, read.sender.name) == (pb.RECORD_KIND_REQUEST, "review it", "ann")
    answer = pb.ReplyRequest(
        request_id=asked.request_id,
        status=pb.REPLY_STATUS_DONE,
        body="two remarks",
        idempotency_key=uuid.uuid4().hex,
    )
    replied = grpc_stub.Reply(answer, **as_(bob))

    page = grpc_stub.Receive(pb.ReceiveRequest(timeout_ms=5_000), **as_(ann))
    (reply,) = page.records
    assert (reply.record_id, reply.parent_id, reply.body) == (replied.record_id, asked.request_id, "two remarks")
    after = grpc_stub.Receive(pb.ReceiveRequest(ack_cursor=page.ack_cursor), **as_(ann))
    assert list(after.records) == []


@pytest.mark.requirement("ways.blocking-client")
@pytest.mark.parametrize(
    ("request_", "reason", "code"),
    [
        (send("nobody"), "not_found", grpc.StatusCode.NOT_FOUND),
        (send("bob", ""), "invalid_message", grpc.StatusCode.INVALID_ARGUMENT),
        (send("bob", key="k" * 257), "invalid_idempotency_key", grpc.StatusCode.INVALID_ARGUMENT),
    ],
    ids=["unknown target", "empty body", "long key"],
)
def test_a_refusal_is_read_from_the_details_of_the_status(
    grpc_stub: Any, agents: People, request_: pb.SendRequest, reason: str, code: grpc.StatusCode
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        grpc_stub.Send(request_, **as_(agents["ann"]))
    assert caught.value.code() is code  # type: ignore[attr-defined]
    told = refusal(caught.value)
    assert (told.reason, told.effect) == (reason, common_pb2.EFFECT_NOT_WRITTEN)
    assert not told.may_resend


@pytest.mark.requirement("ways.blocking-client")
def test_one_key_with_two_contents_is_a_conflict(grpc_stub: Any, agents: People) -> None:
    key = uuid.uuid4().hex
    grpc_stub.Send(send("bob", "one", key=key), **as_(agents["ann"]))
    with pytest.raises(grpc.RpcError) as caught:
        grpc_stub.Send(send("bob", "two", key=key), **as_(agents["ann"]))
    assert refusal(caught.value).reason == "idempotency_conflict"


@pytest.mark.requirement("ways.blocking-client")
@pytest.mark.parametrize(
    "metadata", [(), bearer("fp_" + "x" * 43), (("authorization", "Basic x"),)], ids=["none", "unknown", "other scheme"]
)
def test_without_a_known_token_nothing_is_answered(grpc_stub: Any, metadata: Any) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        grpc_stub.Receive(pb.ReceiveRequest(), metadata=metadata, timeout=CALL_S_MAX)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED  # type: ignore[attr-defined]
    assert refusal(caught.value).reason == "unauthenticated"


@pytest.mark.requirement("ways.blocking-client")
def test_a_wait_ends_at_the_deadline_of_its_caller_and_the_service_goes_on(grpc_stub: Any, agents: People) -> None:
    begun = time.monotonic()
    with pytest.raises(grpc.RpcError) as caught:
        grpc_stub.Wait(pb.WaitRequest(timeout_ms=30_000), metadata=bearer(agents["ann"].token), timeout=0.3)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED  # type: ignore[attr-defined]
    assert time.monotonic() - begun < CALL_S_MAX
    assert grpc_stub.Describe(pb.DescribeRequest(), **as_(agents["ann"])).epoch


@pytest.mark.requirement("ways.blocking-client")
def test_health_says_serving_to_everybody_and_nothing_of_a_name_that_is_not_served(grpc_channel: Any) -> None:
    health = health_pb2_grpc.HealthStub(grpc_channel)
    for name in ("", "fencepost.mailbox.v1.MailboxService"):
        answer = health.Check(health_pb2.HealthCheckRequest(service=name), timeout=CALL_S_MAX)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError) as caught:
        health.Check(health_pb2.HealthCheckRequest(service="nothing"), timeout=CALL_S_MAX)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND  # type: ignore[attr-defined]


@pytest.mark.requirement("ways.blocking-client")
async def test_what_was_answered_survives_a_kill_and_the_same_channel_goes_on(
    grpc_stub: Any, grpc_server: Services, agents: People
) -> None:
    request = send("bob", "before the kill")
    written = grpc_stub.Send(request, **as_(agents["ann"]))
    await grpc_server.restart(MAILBOX)
    again = grpc_stub.Send(request, **as_(agents["ann"]), wait_for_ready=True)
    assert (again.record_id, again.duplicate) == (written.record_id, True)
