"""Threads, results and the search as a client calls them: what an answer says, and what a refusal looks like."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from fencepost.common.v1 import common_pb2 as common
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost.mailbox.v1 import tasks_pb2 as tpb
from fencepost_kit.ids import uuid_text
from fencepost_mailbox.domain.values import SUBJECT_BYTES_MAX
from fencepost_testing.mailboxes import OTHER_PROJECT, PROJECT
from fencepost_testing.served_mailbox import Refusal, ServedMailbox, uuid_of

S = grpc.StatusCode


async def send(served: ServedMailbox, who: str, target: str, body: str = "text", **attributes: str) -> Any:
    ask = pb.SendRequest(target=target, body=body, idempotency_key=served.key(), attributes=pb.Attributes(**attributes))
    return await served.call(who, "Send", ask)


async def asking(served: ServedMailbox, who: str, target: str, body: str = "work", **attributes: str) -> Any:
    ask = pb.RequestRequest(
        target=target,
        body=body,
        idempotency_key=served.key(),
        completion=pb.COMPLETION_EXPLICIT,
        supervised=True,
        attributes=pb.Attributes(**attributes) if attributes else None,
    )
    return await served.call(who, "Request", ask)


async def refused(call: Any) -> tuple[S, str, int]:
    with pytest.raises(Refusal) as answer:
        await call
    return answer.value.status, answer.value.reason, answer.value.detail.effect


@pytest.mark.requirement("threads.answers-over-the-wire")
async def test_attributes_come_back_with_the_record_wherever_it_is_shown(served: ServedMailbox) -> None:
    first = await send(served, "ann", "bob", "shall we?", subject="Plan")
    assert first.thread_id == "thr_" + first.record_id[4:]
    answer = await send(served, "bob", "ann", "yes", reply_to=first.record_id)
    assert answer.thread_id == first.thread_id
    (received,) = (await served.receive("ann")).records
    wanted = pb.Attributes(thread_id=first.thread_id, reply_to=first.record_id)
    assert received.attributes == wanted
    got = await served.call("ann", "GetRecord", pb.GetRecordRequest(record_id=answer.record_id))
    listed = await served.call("ann", "ListRecords", pb.ListRecordsRequest(direction=pb.DIRECTION_INBOX))
    explained = await served.call("ann", "Explain", pb.ExplainRequest(record_id=answer.record_id))
    assert [got.record.attributes, listed.records[0].attributes, explained.record.attributes] == [wanted] * 3
    thread = await served.call("operator", "GetThread", pb.GetThreadRequest(id=first.record_id))
    assert (thread.thread_id, thread.subject) == (first.thread_id, "Plan")
    assert [record.body for record in thread.records] == ["shall we?", "yes"]
    plain = await served.send("ann", "bob")
    assert plain.thread_id == ""
    assert not (await served.receive("bob")).records[-1].HasField("attributes")


@pytest.mark.requirement("supervision.a-request-leaves-with-its-acknowledged-result")
async def test_a_request_that_wants_a_result_is_supervised_answered_and_acknowledged(served: ServedMailbox) -> None:
    asked = await asking(served, "ann", "bob", subject="it")
    listed = await served.call("ann", "ListSupervision", tpb.ListSupervisionRequest())
    (entry,) = listed.entries
    assert (entry.request_id, entry.reply_id, entry.settled, listed.pending_count) == (asked.request_id, "", False, 1)
    assert (entry.message.subject, entry.message.text, entry.HasField("task")) == ("it", "work", False)
    (received,) = (await served.receive("bob")).records
    assert received.record_id == asked.request_id
    replied = await served.reply("bob", asked.request_id)
    given = await served.call("ann", "WaitNotification", tpb.WaitNotificationRequest(run="run"))
    assert (given.notification.kind, given.notification.messages) == (tpb.NOTIFICATION_KIND_MESSAGES, 1)
    assert (given.notification.message.record_id, given.notification.message.text) == (replied.record_id, "")
    assert (await served.call("ann", "Ready", tpb.ReadyRequest(run="run"))).pending_count == 1
    ask = pb.AcknowledgeRecordsRequest(record_ids=[replied.record_id])
    assert await refused(served.call("ann", "AcknowledgeRecords", ask)) == (
        S.FAILED_PRECONDITION,
        "not_shown",
        common.EFFECT_NOT_WRITTEN,
    )
    await served.receive("ann")
    done = await served.call("ann", "AcknowledgeRecords", ask)
    assert (list(done.acknowledged), done.unacknowledged, done.pending_count) == ([replied.record_id], 0, 0)
    listing = await served.call("ann", "ListTasks", tpb.ListTasksRequest())
    assert listing.pending_count == 0


@pytest.mark.requirement("search.answers-over-the-wire")
async def test_a_search_shows_who_what_and_a_piece_of_the_text(served: ServedMailbox) -> None:
    await send(served, "ann", "bob", "x " * 300 + "needle" + " y" * 300, subject="haystack")
    for query in ("needle", "HAYSTACK"):
        found = await served.call("bob", "SearchRecords", pb.SearchRecordsRequest(query=query))
        (one,) = found.found
        assert (one.record.body, one.record.sender.agent_id, found.complete) == ("", uuid_of("ann"), True)
        assert ("needle" in one.excerpt) is (query == "needle")
    for project, count in ((PROJECT, 1), (OTHER_PROJECT, 0)):
        ask = pb.SearchRecordsRequest(query="needle", project_id=uuid_text(project))
        assert len((await served.call("operator", "SearchRecords", ask)).found) == count
    assert (await served.call("cyd", "SearchRecords", pb.SearchRecordsRequest(query="needle"))).found == []


@pytest.mark.requirement("threads.answers-over-the-wire")
@pytest.mark.parametrize(
    ("attributes", "status", "reason"),
    [
        ({"subject": "x" * (SUBJECT_BYTES_MAX + 1)}, S.INVALID_ARGUMENT, "invalid_attributes"),
        ({"subject": "a\nb"}, S.INVALID_ARGUMENT, "invalid_attributes"),
        ({"thread_id": "thr_" + "0" * 32}, S.NOT_FOUND, "not_found"),
        ({"reply_to": "inf_" + "0" * 32}, S.NOT_FOUND, "not_found"),
        ({"task_id": "task_" + "0" * 32}, S.NOT_FOUND, "not_found"),
    ],
)
async def test_attributes_that_name_nothing_are_refused_and_nothing_is_written(
    served: ServedMailbox, attributes: dict[str, str], status: S, reason: str
) -> None:
    assert await refused(send(served, "ann", "bob", **attributes)) == (status, reason, common.EFFECT_NOT_WRITTEN)
    assert await refused(asking(served, "ann", "bob", **attributes)) == (status, reason, common.EFFECT_NOT_WRITTEN)
    assert not (await served.receive("bob")).records


@pytest.mark.requirement("search.answers-over-the-wire")
async def test_a_query_without_words_is_refused(served: ServedMailbox) -> None:
    ask = pb.SearchRecordsRequest(query="???")
    assert (await refused(served.call("ann", "SearchRecords", ask)))[:2] == (S.INVALID_ARGUMENT, "invalid_query")


@pytest.mark.requirement("threads.attributes-are-content")
async def test_a_lost_call_with_attributes_is_settled_by_repeating_it(served: ServedMailbox) -> None:
    ask = pb.RequestRequest(
        target="bob", body="w", idempotency_key="k", supervised=True, attributes=pb.Attributes(subject="s")
    )
    made = await served.call("ann", "Request", ask)
    settled = await served.call("ann", "SettleKey", pb.SettleKeyRequest(epoch=await served.epoch(), request=ask))
    assert (settled.settlement, settled.request.request_id) == (pb.SETTLEMENT_WRITTEN, made.request_id)
    assert settled.request.thread_id == made.thread_id
    ask.attributes.subject = "another"
    assert (await refused(served.call("ann", "Request", ask)))[1] == "idempotency_conflict"
