"""What the edge makes of the tools by which agents know each other and talk."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.common.v1 import common_pb2 as common
from fencepost.mailbox.v1 import mailbox_pb2 as mailbox
from fencepost.mailbox.v1 import tasks_pb2 as tasks
from fencepost.mcp import registry
from fencepost.mcp.families import agents
from fencepost.sessions.v1 import sessions_pb2 as sessions
from fencepost_mailbox.domain.threads import words
from fencepost_mailbox.domain.values import PAGE_RECORDS_MAX, SUBJECT_BYTES_MAX
from fencepost_mcp_edge import agent_translate as wire
from fencepost_mcp_edge.domain.presence import Reading
from fencepost_mcp_edge.translate import InvalidReceipt
from fencepost_mcp_edge.usecases.answer import _settle
from fencepost_mcp_edge.usecases.tools import MUTATIONS

BOB = common.AgentRef(agent_id="u-bob", name="bob")
NOW_MS = 1_800_000_000_000


@pytest.mark.requirement("tools.agents-talk")
def test_the_limits_of_the_tools_are_those_of_the_mailbox() -> None:
    assert (agents.SUBJECT_BYTES_MAX, agents.QUERY_BYTES_MAX) == (SUBJECT_BYTES_MAX, words.QUERY_BYTES_MAX)
    assert agents.ACKNOWLEDGED_MAX == PAGE_RECORDS_MAX
    most = ["rep_1"] * (PAGE_RECORDS_MAX + 1)
    for ids, fits in ((most[:1], True), (most[:-1], True), (most, False), ([], False), (["rep_1", "task_1"], False)):
        verdict = registry.examine(
            {"name": "agent_ack", "arguments": {"ids": ids}}, registry.menu(frozenset({"tasks"}))
        )
        assert isinstance(verdict, registry.Checked) is fits


@pytest.mark.requirement("tools.agents-talk")
def test_a_message_is_information_and_one_that_expects_a_result_a_supervised_request() -> None:
    plain = wire.send_request({"to": "bob", "body": "hi"}, "k")
    assert plain == mailbox.SendRequest(target="bob", body="hi", idempotency_key="k")
    assert not plain.HasField("attributes")
    said = {"subject": "s", "thread": "thr_1", "reply_to": "inf_1", "task_id": "task_1"}
    asked = wire.send_request({"to": "bob", "body": "hi", "expects_result": True, **said}, "k")
    assert asked == mailbox.RequestRequest(
        target="bob",
        body="hi",
        idempotency_key="k",
        completion=mailbox.COMPLETION_EXPLICIT,
        supervised=True,
        attributes=mailbox.Attributes(subject="s", thread_id="thr_1", reply_to="inf_1", task_id="task_1"),
    )


@pytest.mark.requirement("tools.agents-talk")
@pytest.mark.parametrize("state", mailbox.DeliveryState.values())
def test_delivered_says_that_it_is_visible_and_nothing_less(state: mailbox.DeliveryState.ValueType) -> None:
    answer = mailbox.SendResponse(record_id="inf_1", delivery_state=state, recipient=BOB)
    told = wire.send_result(mailbox.SendRequest(), answer)
    assert told["delivery"] == ("delivered" if state == mailbox.DELIVERY_STATE_VISIBLE else "queued")


@pytest.mark.requirement("tools.agents-talk")
def test_a_receipt_of_another_kind_is_none() -> None:
    for request, answer in (
        (mailbox.SendRequest(), mailbox.RequestResponse(request_id="ask_1")),
        (mailbox.RequestRequest(), mailbox.SendResponse(record_id="inf_1")),
        (mailbox.SendRequest(), mailbox.SendResponse(record_id="ask_1")),
        (mailbox.RequestRequest(), mailbox.RequestResponse(request_id="ask_")),
    ):
        with pytest.raises(InvalidReceipt):
            wire.send_result(request, answer)
    with pytest.raises(InvalidReceipt):
        wire.reply_result(mailbox.ReplyRequest(request_id="ask_1"), mailbox.ReplyResponse(request_id="ask_2"))


@pytest.mark.requirement("tools.agents-talk")
@pytest.mark.parametrize(("outcome", "status"), [("succeeded", "DONE"), ("failed", "FAILED"), ("blocked", "BLOCKED")])
def test_an_outcome_is_the_status_of_a_reply(outcome: str, status: str) -> None:
    asked = wire.reply_request({"request_id": "ask_1", "outcome": outcome, "body": "b"}, "k")
    assert mailbox.ReplyStatus.Name(asked.status) == f"REPLY_STATUS_{status}"
    told = wire.reply_result(asked, mailbox.ReplyResponse(request_id="ask_1", record_id="rep_1", recipient=BOB))
    assert (told["request_id"], told["acknowledged"], told["message_id"]) == ("ask_1", True, "rep_1")


@pytest.mark.requirement("tools.agents-talk")
@pytest.mark.parametrize("expects", [False, True])
async def test_a_lost_message_is_settled_as_the_call_that_it_was(*, expects: bool) -> None:
    asked: list[mailbox.SettleKeyRequest] = []

    async def settle(request: mailbox.SettleKeyRequest) -> mailbox.SettleKeyResponse:
        asked.append(request)
        answer = mailbox.SettleKeyResponse(settlement=mailbox.SETTLEMENT_WRITTEN)
        if expects:
            answer.request.request_id = "ask_1"
        else:
            answer.send.record_id = "inf_1"
        return answer

    row = MUTATIONS["agent_send"]
    request = row.to_request({"to": "bob", "body": "hi", "expects_result": expects}, "k")
    caller: Any = SimpleNamespace(settling=SimpleNamespace(settle=settle))
    told = await _settle(caller, row, request, "epoch-1")
    assert told["message_id"] == ("ask_1" if expects else "inf_1")
    assert asked[0].WhichOneof("call") == ("request" if expects else "send")


@pytest.mark.requirement("tools.agents-talk")
def test_active_agents_are_those_that_are_neither_off_nor_being_deleted() -> None:
    def agent(name: str, **facts: Any) -> sessions.Agent:
        return sessions.Agent(agent_id=f"u-{name}", name=name, role=common.ROLE_AGENT, **facts)

    def observed(state: sessions.ObservedState.ValueType) -> dict[str, Any]:
        status = sessions.AgentStatus(state=state, observed_at_ms=NOW_MS)
        return {"desired": sessions.DESIRED_STATE_ON, "status": status}

    listed = [
        agent("busy", **observed(sessions.OBSERVED_STATE_PROCESSING), workspace="/w"),
        agent("idle", **observed(sessions.OBSERVED_STATE_IDLE), launch=sessions.LaunchSettings(checkout_root="/c")),
        agent("off", **observed(sessions.OBSERVED_STATE_OFF)),
        agent("gone", state=sessions.AGENT_STATE_DELETING),
        agent("waits"),
        agent("works"),
        agent("stopped", **observed(sessions.OBSERVED_STATE_IDLE)),
        agent("new"),
    ]
    never = Reading(waiting=False, off=False, last_read_at_ms=0)
    known = {
        "u-waits": Reading(waiting=True, off=False, last_read_at_ms=NOW_MS),
        "u-works": replace(never, executing=True),
        "u-stopped": replace(never, executing=True),
        "u-new": never,
    }
    told = wire.agents_result(listed, known, own_id="u-idle", now_ms=NOW_MS, bytes_max=10_000, more=False)
    assert [(one["name"], one["status"], one["checkout_root"]) for one in told["agents"]] == [
        ("busy", "working", "/w"),
        ("idle", "idle", "/c"),
        ("waits", "idle", None),
        ("works", "working", None),
        ("stopped", "idle", None),
        ("new", "never_seen", None),
    ]
    assert [one["name"] for one in told["agents"] if "self" in one] == ["idle"]
    assert "has_more" not in told
    short = wire.agents_result(listed, None, own_id="", now_ms=NOW_MS, bytes_max=1, more=False)
    assert ([one["name"] for one in short["agents"]], short["has_more"]) == (["busy"], True)


@pytest.mark.requirement("tools.agents-talk")
def test_notifications_leave_most_of_a_page_to_messages() -> None:
    many = tasks.ListNotificationsResponse(
        notifications=[tasks.Notification(sequence=number, kind=tasks.NOTIFICATION_KIND_REVIEW) for number in range(9)]
    )
    shown, more = wire.notifications_of(many, bytes_max=3)
    assert (len(shown), more) == (1, True)
    shown, more = wire.notifications_of(many, bytes_max=100_000)
    assert (len(shown), more, shown[0]["kind"]) == (9, False, "review")


@pytest.mark.requirement("tools.agents-talk")
def test_what_is_awaited_outlives_its_request() -> None:
    entries = [
        tasks.SupervisionEntry(task=tasks.Task(task_id="task_1")),
        tasks.SupervisionEntry(request_id="ask_1", settled=True, reply_id="rep_1", age_ms=2_500),
    ]
    told = wire.inbox_result(
        mailbox.ReceiveResponse(), [], tasks.ListSupervisionResponse(entries=entries), more_notifications=False
    )
    assert told["awaited"] == [{"message_id": "ask_1", "answered": True, "age_seconds": 2, "reply_id": "rep_1"}]
