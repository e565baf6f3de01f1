"""Deleting and renaming agents as clients of the mailbox see it: every refusal, the host's words, receipts."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost_mailbox.domain.deletion import HOST_NOTICE, HOST_REPLY
from fencepost_testing.mailboxes import EPOCH, a_credential, an_agent, id16, until
from fencepost_testing.served_mailbox import Refusal, ServedMailbox, uuid_of


async def delete(served: ServedMailbox, name: str) -> None:
    """Hear that an agent is being deleted, its credential not yet removed: what it called before still runs."""
    await served.tell(agents=[an_agent(name, deleting=True)])


async def refusal_of(call: Any) -> Refusal:
    with pytest.raises(Refusal) as refused:
        await call
    return refused.value


@pytest.mark.requirement("mailbox.deleted-agents-get-nothing-and-write-nothing")
async def test_every_late_call_is_refused_with_the_same_stable_reason(served: ServedMailbox) -> None:
    asked = await served.request("ann", "bob")
    taken = await served.claim("bob")
    await served.request("ann", "bob")
    await delete(served, "bob")
    release = pb.ReleaseRequest(token=taken.claim.token, generation=1, proof="busy")
    described = pb.SendRequest(target="ann", body="x", idempotency_key="lost")
    settle = pb.SettleKeyRequest(epoch=await served.epoch(), send=described)
    calls = [
        served.send("ann", "bob"),
        served.send("ann", uuid_of("bob")),
        served.request("ann", "bob"),
        served.send("bob", "ann"),
        served.request("bob", "ann"),
        served.receive("bob"),
        served.call("bob", "Wait", pb.WaitRequest()),
        served.reply("bob", asked.request_id),
        served.call("bob", "SettleKey", settle),
        served.claim("bob"),
        served.call("service", "OpenGeneration", pb.OpenGenerationRequest(agent_id=uuid_of("bob"), generation=2)),
    ]
    for call in calls:
        refused = await refusal_of(call)
        assert (refused.reason, refused.status) == ("agent_deleted", grpc.StatusCode.FAILED_PRECONDITION)
        assert "nothing was written" in refused.text
        assert not refused.detail.may_resend
    # Evidence of its claims is refused while they stand, and once they are erased nobody holds them.
    late = [
        served.finish(taken.claim.token, pb.CLAIM_OUTCOME_ACCEPTED),
        served.call("service", "Release", release),
    ]
    for call in late:
        assert (await refusal_of(call)).reason in {"agent_deleted", "stale_claim"}


@pytest.mark.requirement("mailbox.deleting-answers-whoever-waits")
async def test_the_requester_wakes_and_reads_who_failed_it_and_explain_says_by_whom(served: ServedMailbox) -> None:
    asked = await served.request("ann", "bob")
    waiting = asyncio.ensure_future(served.receive("ann", timeout_ms=60_000))
    await until(lambda: served.mailbox.waits.waiting(id16("ann")))
    await delete(served, "bob")
    (record,) = (await waiting).records
    assert (record.kind, record.reply_status, record.origin) == (
        pb.RECORD_KIND_REPLY,
        pb.REPLY_STATUS_FAILED,
        pb.ORIGIN_HOST,
    )
    assert (record.parent_id, record.body, record.HasField("sender")) == (asked.request_id, HOST_REPLY, False)


@pytest.mark.requirement("mailbox.deleting-tells-whoever-works")
async def test_a_notice_of_the_host_tells_whoever_read_a_request_of_a_deleted_agent(served: ServedMailbox) -> None:
    asked = await served.request("bob", "ann")
    await served.receive("ann")
    await delete(served, "bob")
    page = await served.receive("ann")
    (notice,) = [record for record in page.records if record.kind == pb.RECORD_KIND_NOTICE]
    assert notice.record_id.startswith("ntc_")
    assert (notice.parent_id, notice.body, notice.origin) == (asked.request_id, HOST_NOTICE, pb.ORIGIN_HOST)
    assert list(page.open_requests) == []
    assert (await refusal_of(served.reply("ann", asked.request_id))).reason == "withdrawn"


@pytest.mark.requirement("mailbox.erasure-leaves-nothing-and-touches-nobody-else")
@pytest.mark.requirement("mailbox.deletions-are-carried-to-their-end")
async def test_after_the_end_its_mail_is_gone_and_what_it_sent_stays_with_its_readers(served: ServedMailbox) -> None:
    theirs = await served.send("bob", "ann", "kept")
    mine = await served.send("ann", "bob", "erased")
    await delete(served, "bob")
    await until(lambda: served.sessions.finished == [(EPOCH, id16("bob"))])
    await served.tell(removed_agents=[id16("bob")], removed_credentials=[a_credential("bob").credential_id])
    gone = await refusal_of(served.call("ann", "GetRecord", pb.GetRecordRequest(record_id=mine.record_id)))
    assert gone.reason == "not_found"
    (record,) = (await served.receive("ann")).records
    assert (record.record_id, record.body, record.sender.agent_id) == (theirs.record_id, "kept", uuid_of("bob"))
    assert (await refusal_of(served.send("ann", uuid_of("bob")))).reason == "agent_deleted"
    assert (await refusal_of(served.send("ann", "bob"))).reason == "not_found"
    assert (await refusal_of(served.send("bob", "ann"))).reason == "unauthenticated"
    await served.restart()
    assert (await refusal_of(served.send("ann", uuid_of("bob")))).reason in {"agent_deleted", "not_found"}


@pytest.mark.requirement("mailbox.renamed-agents-are-not-mistaken")
async def test_after_a_rename_the_old_name_is_refused_and_receipts_echo_the_new_one(served: ServedMailbox) -> None:
    before = await served.request("ann", "bob", key="k")
    await served.tell(agents=[an_agent("rob", agent_id=id16("bob"), revision=2)])
    assert (await refusal_of(served.send("ann", "bob"))).reason == "not_found"
    after = await served.send("ann", "rob")
    assert (after.recipient.name, after.recipient.agent_id) == ("rob", uuid_of("bob"))
    again = await served.request("ann", "bob", key="k")
    assert (again.duplicate, again.request_id, again.recipient.name) == (True, before.request_id, "rob")
    record = (await served.call("bob", "Receive", pb.ReceiveRequest())).records[0]
    assert record.recipient.name == "rob"
    await served.tell(agents=[an_agent("bob", agent_id=id16("new"), revision=3)])
    assert (await served.send("ann", "bob")).recipient.agent_id == uuid_of("new")
