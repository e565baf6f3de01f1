"""Receipts and pages as a model reads them."""

from __future__ import annotations

import json

import pytest

from fencepost.common.v1 import common_pb2 as common
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2 as sessions
from fencepost_mcp_edge import translate
from fencepost_mcp_edge.translate import InvalidReceipt, encoded

BOB = common.AgentRef(agent_id="u-bob", name="bob")
RECIPIENT = {"agent_id": "u-bob", "name": "bob"}


def sent(**change: object) -> pb.SendResponse:
    fields: dict[str, object] = {
        "record_id": "inf_1",
        "delivery_state": pb.DELIVERY_STATE_ADMITTED,
        "recipient": BOB,
        "recipient_reader": pb.RECIPIENT_READER_NATIVE,
        "admitted_at_ms": 1_764_521_594_295,
    }
    return pb.SendResponse(**{**fields, **change})  # type: ignore[arg-type]


@pytest.mark.requirement("edge.receipts")
def test_a_receipt_of_information_tells_only_what_is_known() -> None:
    assert translate.send_result(pb.SendRequest(), sent()) == {
        "operation": "send_message",
        "interaction_id": "inf_1",
        "delivery_state": "admitted",
        "duplicate": False,
        "recipient": RECIPIENT,
        "recipient_reader": "native",
        "recipient_last_read_at": None,
        "admitted_at": "2025-11-30T16:53:14.295Z",
    }


@pytest.mark.requirement("edge.receipts")
@pytest.mark.parametrize(
    ("reader", "word", "hint"),
    [
        (pb.RECIPIENT_READER_MANUAL, "manual", "while idle it does not wake"),
        (pb.RECIPIENT_READER_NONE, "none", "Nobody has ever read this mailbox"),
        (pb.RECIPIENT_READER_OFF, "off", "switched the recipient off"),
    ],
)
def test_a_receipt_says_where_nobody_will_look_by_itself(reader: pb.RecipientReader, word: str, hint: str) -> None:
    payload = translate.send_result(pb.SendRequest(), sent(recipient_reader=reader, recipient_last_read_at_ms=1))
    assert payload["recipient_reader"] == word
    assert hint in payload["hint"]
    assert payload["recipient_last_read_at"] == "1970-01-01T00:00:00.001Z"


@pytest.mark.requirement("edge.receipts")
@pytest.mark.parametrize(
    ("state", "word", "owner"),
    [
        (pb.DELIVERY_STATE_ADMITTED, "admitted", "unclaimed"),
        (pb.DELIVERY_STATE_EXPOSED, "exposed", "receiver"),
        (pb.DELIVERY_STATE_CLAIMED, "claimed", "scheduler"),
        (pb.DELIVERY_STATE_ACCEPTED, "accepted", "scheduler"),
        (pb.DELIVERY_STATE_UNCERTAIN, "uncertain", "scheduler"),
        (pb.DELIVERY_STATE_FAILED, "failed", "scheduler"),
        (pb.DELIVERY_STATE_UNSPECIFIED, "unknown", "unknown"),
        (99, "unknown", "unknown"),
    ],
)
def test_a_receipt_of_a_request_says_who_has_it(state: pb.DeliveryState, word: str, owner: str) -> None:
    response = pb.RequestResponse(
        request_id="ask_1", delivery_state=state, answer_state=pb.ANSWER_STATE_OPEN, duplicate=True, recipient=BOB
    )
    payload = translate.request_result(pb.RequestRequest(), response)
    assert payload["request_id"] == payload["interaction_id"] == "ask_1"
    assert (payload["delivery_state"], payload["delivery_owner"]) == (word, owner)
    assert payload["answer_state"] == "open"
    assert payload["duplicate"] is True


@pytest.mark.requirement("edge.receipts")
def test_a_receipt_that_does_not_fit_its_call_is_none() -> None:
    for record_id in ("", "inf_", "ask_1", "rep_1"):
        with pytest.raises(InvalidReceipt):
            translate.send_result(pb.SendRequest(), sent(record_id=record_id))
    with pytest.raises(InvalidReceipt):
        translate.request_result(pb.RequestRequest(), pb.RequestResponse(request_id="inf_1"))
    reply = pb.ReplyRequest(request_id="ask_1")
    with pytest.raises(InvalidReceipt):
        translate.reply_result(reply, pb.ReplyResponse(request_id="ask_2", record_id="rep_1"))
    with pytest.raises(InvalidReceipt):
        translate.reply_result(reply, pb.ReplyResponse(request_id="ask_1", record_id="inf_1"))
    assert (
        translate.reply_result(reply, pb.ReplyResponse(request_id="ask_1", record_id="rep_1"))["operation"] == "reply"
    )


@pytest.mark.requirement("edge.text-round-trips")
def test_text_goes_to_the_store_unchanged() -> None:
    text = "\0\r\n\x1b \U0001f9ea 漢"
    send = translate.send_request({"target": "bob", "message": text}, "k")
    assert (send.target, send.body, send.idempotency_key) == ("bob", text, "k")
    reply = translate.reply_request({"request_id": "ask_1", "status": "blocked", "message": text}, "k")
    assert (reply.status, reply.body) == (pb.REPLY_STATUS_BLOCKED, text)
    assert translate.request_request({"target": "b", "message": text}, "k").completion == pb.COMPLETION_AUTOMATIC


@pytest.mark.requirement("edge.pages")
def test_a_page_names_each_record_by_what_it_is() -> None:
    ann = common.AgentRef(agent_id="u-ann", name="ann")
    page = pb.ReceiveResponse(
        records=[
            pb.Record(
                record_id="inf_1",
                kind=pb.RECORD_KIND_INFORMATION,
                sender=ann,
                body="a",
                origin=pb.ORIGIN_AGENT,
                admitted_at_ms=1000,
            ),
            pb.Record(
                record_id="ask_2",
                kind=pb.RECORD_KIND_REQUEST,
                sender=ann,
                body="b",
                origin=pb.ORIGIN_HUMAN,
                admitted_at_ms=2000,
                delivery_state=pb.DELIVERY_STATE_UNCERTAIN,
                answer_state=pb.ANSWER_STATE_OPEN,
                possibly_seen=True,
            ),
            pb.Record(
                record_id="rep_3",
                kind=pb.RECORD_KIND_REPLY,
                body="c",
                parent_id="ask_9",
                reply_status=pb.REPLY_STATUS_FAILED,
                origin=pb.ORIGIN_HOST,
                acknowledged=True,
            ),
        ],
        next_cursor="n",
        ack_cursor="a",
        has_more=True,
        high_water=9,
        unacknowledged=3,
        skipped=2,
        open_requests=[
            pb.OpenRequest(request_id="ask_7", sender=ann, delivery_state=pb.DELIVERY_STATE_EXPOSED, possibly_seen=True)
        ],
    )
    payload = translate.receive_result(page)
    information, request, reply = payload["messages"]
    assert information == {
        "interaction_id": "inf_1",
        "kind": "information",
        "sender": {"agent_id": "u-ann", "name": "ann"},
        "origin": "agent",
        "created_at": "1970-01-01T00:00:01.000Z",
        "message": "a",
    }
    assert (request["kind"], request["request_id"], request["possibly_seen"]) == ("request", "ask_2", True)
    assert (request["delivery_state"], request["answer_state"]) == ("uncertain", "open")
    assert (reply["kind"], reply["sender"], reply["origin"]) == ("reply", None, "host")
    assert (reply["request_id"], reply["parent_interaction_id"]) == ("ask_9", "ask_9")
    assert (reply["reply_status"], reply["acknowledged"]) == ("failed", True)
    assert {name: payload[name] for name in payload if name != "messages"} == {
        "operation": "receive_messages",
        "next_cursor": "n",
        "ack_cursor": "a",
        "has_more": True,
        "timed_out": False,
        "wake_reason": None,
        "high_water": 9,
        "unacknowledged": 3,
        "open_requests": [
            {
                "request_id": "ask_7",
                "sender": {"agent_id": "u-ann", "name": "ann"},
                "delivery_state": "exposed",
                "created_at": None,
                "possibly_seen": True,
            }
        ],
        "skipped": 2,
    }


@pytest.mark.requirement("edge.wait-has-no-body")
def test_the_end_of_a_wait_has_no_body() -> None:
    payload = translate.wait_result(pb.WaitResponse(wake_reason="activity"))
    assert payload == {"operation": "wait_agent", "timed_out": False, "wake_reason": "activity"}


@pytest.mark.requirement("edge.pages")
def test_a_receive_asks_for_the_page_that_programs_do_not_cut() -> None:
    request = translate.receive_request(
        {"cursor": "c", "ack_cursor": "a", "limit": 5, "timeout_ms": 900}, within_ms=None, page_bytes_max=24 * 1024
    )
    assert (request.cursor, request.ack_cursor, request.limit, request.timeout_ms) == ("c", "a", 5, 900)
    assert request.page_bytes_max == 24 * 1024
    again = translate.receive_request({"timeout_ms": 900}, within_ms=100, page_bytes_max=1)
    assert again.timeout_ms == 100


@pytest.mark.requirement("edge.presence-is-honest")
def test_a_listing_shows_names_uuids_and_what_is_known() -> None:
    agents = [
        sessions.Agent(agent_id="u-1", name="ann", role=common.ROLE_COORDINATOR, provider="codex", workspace="/w"),
        sessions.Agent(agent_id="u-2", name="bob", role=common.ROLE_AGENT),
    ]
    readers = pb.ListReadersResponse(
        readers=[pb.Reader(agent_id="u-1", reader=pb.RECIPIENT_READER_MANUAL, waiting=True, last_read_at_ms=1000)]
    )
    payload = translate.list_result(
        agents, translate.readings(readers), own_id="u-2", now_ms=2000, bytes_max=10_000, more=False
    )
    ann, bob = payload["agents"]
    assert ann == {
        "agent_id": "u-1",
        "name": "ann",
        "provider": "codex",
        "role": "coordinator",
        "workspace": "/w",
        "status": "waiting",
        "evidence": "waits for its mailbox now",
        "last_read_at": "1970-01-01T00:00:01.000Z",
    }
    assert (bob["self"], bob["status"], bob["provider"]) == (True, "unknown", None)
    assert "has_more" not in payload


@pytest.mark.requirement("edge.presence-is-observed")
@pytest.mark.parametrize(
    ("desired", "state", "status", "evidence"),
    [
        (sessions.DESIRED_STATE_ON, sessions.OBSERVED_STATE_OFF, "off", "observed 1 s ago: why"),
        (sessions.DESIRED_STATE_ON, sessions.OBSERVED_STATE_STARTING, "starting", "observed 1 s ago: why"),
        (sessions.DESIRED_STATE_ON, sessions.OBSERVED_STATE_IDLE, "idle", "observed 1 s ago: why"),
        (sessions.DESIRED_STATE_PAUSED, sessions.OBSERVED_STATE_PROCESSING, "processing", "observed 1 s ago: why"),
        (sessions.DESIRED_STATE_ON, sessions.OBSERVED_STATE_ACTION_NEEDED, "action_needed", "observed 1 s ago: why"),
        (sessions.DESIRED_STATE_OFF, sessions.OBSERVED_STATE_ERROR, "error", "observed 1 s ago: why"),
        # Nothing was observed, or nobody runs it for us: what its mailbox knows.
        (sessions.DESIRED_STATE_ON, sessions.OBSERVED_STATE_UNSPECIFIED, "waiting", "waits for its mailbox now"),
        (sessions.DESIRED_STATE_UNSPECIFIED, sessions.OBSERVED_STATE_IDLE, "waiting", "waits for its mailbox now"),
    ],
)
def test_an_agent_that_is_run_is_listed_with_what_was_observed_of_it(
    desired: sessions.DesiredState, state: sessions.ObservedState, status: str, evidence: str
) -> None:
    seen = sessions.AgentStatus(state=state, detail="why", observed_at_ms=1_000)
    agent = sessions.Agent(agent_id="u-1", name="ann", desired=desired, status=seen)
    readers = pb.ListReadersResponse(readers=[pb.Reader(agent_id="u-1", waiting=True)])
    payload = translate.list_result(
        [agent], translate.readings(readers), own_id="", now_ms=2_000, bytes_max=10_000, more=False
    )
    assert (payload["agents"][0]["status"], payload["agents"][0]["evidence"]) == (status, evidence)


@pytest.mark.requirement("edge.pages")
def test_a_listing_is_cut_at_its_budget_and_says_so() -> None:
    agents = [sessions.Agent(agent_id=f"u-{n}", name=f"agent-{n}") for n in range(50)]
    one = len(encoded(translate.list_result(agents[:1], {}, own_id="", now_ms=0, bytes_max=1, more=False)["agents"][0]))
    for bytes_max, count in ((1, 1), (3 * one + 2, 3), (10**6, 50)):
        payload = translate.list_result(agents, {}, own_id="", now_ms=0, bytes_max=bytes_max, more=False)
        assert len(payload["agents"]) == count
        assert payload.get("has_more", False) == (count < 50)
    assert translate.list_result([], {}, own_id="", now_ms=0, bytes_max=1, more=False)["agents"] == []


def test_an_agent_that_is_being_deleted_is_not_offered_as_a_target() -> None:
    agents = [
        sessions.Agent(agent_id="u-1", name="ann", state=sessions.AGENT_STATE_DELETING),
        sessions.Agent(agent_id="u-2", name="bob", state=sessions.AGENT_STATE_ACTIVE),
        sessions.Agent(agent_id="u-3", name="cyd"),
    ]
    payload = translate.list_result(agents, {}, own_id="", now_ms=0, bytes_max=10_000, more=False)
    assert [agent["name"] for agent in payload["agents"]] == ["bob", "cyd"]


def test_a_payload_is_encoded_without_loss() -> None:
    payload = {"message": "漢\0\u2028\U0001f9ea"}
    assert json.loads(encoded(payload)) == payload
    assert "漢" in encoded(payload)


@pytest.mark.requirement("edge.receipts")
def test_every_delivery_state_has_an_owner_and_every_word_is_one_of_the_contract() -> None:
    assert set(translate.DELIVERY.values()) | {translate.UNKNOWN} == set(translate._OWNER)
    assert set(translate.READER.values()) == {"native", "manual", "none", "off"}
    assert set(translate.REPLY.values()) == {"done", "blocked", "failed"}
