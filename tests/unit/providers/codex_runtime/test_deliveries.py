"""How records are written for Codex."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_providers.adapters.codex import deliveries
from fencepost_providers.domain.runtimes import Delivery


def a_delivery(kind: str = "request", body: str = "do it", **more: object) -> Delivery:
    fields = {"record_id": "ask_1", "kind": kind, "sender": "bob", "sender_id": "b", "body": body, **more}
    return Delivery(**fields)  # type: ignore[arg-type]


@pytest.mark.requirement("codex.body-apart-from-routing")
def test_short_work_is_the_item_of_a_tool_whose_body_stands_apart() -> None:
    request = deliveries.started(a_delivery())
    assert request["input"] == []
    item = request["toolOutput"]
    assert (item["namespace"], item["name"]) == ("fencepost", "fencepost_task_delivery")
    framed = json.loads(item["output"])
    assert (framed["request_id"], framed["interaction_id"], framed.pop("body")) == ("ask_1", "ask_1", "do it")
    assert "do it" not in json.dumps(framed)


@pytest.mark.requirement("wakes.a-wake-up-is-carried-and-never-read")
@pytest.mark.parametrize("write", [deliveries.started, deliveries.steered])
def test_a_wake_up_is_work_that_names_nothing_to_reply_to(write: Callable[[Delivery], dict[str, Any]]) -> None:
    request = write(a_delivery("wake", record_id="wak_1", sender="", sender_id=""))
    routed = request["toolOutput"]["output"] if "toolOutput" in request else None
    framed = json.loads(routed or request["additionalContext"]["fencepost_route"]["value"])
    assert (framed["kind"], framed["interaction_id"], framed["request_id"]) == ("wake", "wak_1", None)
    assert framed["sender"] is None


@pytest.mark.requirement("codex.body-apart-from-routing")
def test_steered_work_is_literal_text_with_the_routing_beside_it() -> None:
    request = deliveries.steered(a_delivery(body='{"a": "/slash"}'))
    assert request["input"] == [{"type": "text", "text": '{"a": "/slash"}'}]
    assert request["clientUserMessageId"] == "ask_1"
    route = request["additionalContext"]["fencepost_route"]
    assert route["kind"] == "application"
    assert "body" not in json.loads(route["value"])


@pytest.mark.requirement("codex.nothing-is-cut")
@pytest.mark.parametrize(("spare", "as_item"), [(0, True), (-1, False)])
def test_work_that_a_tools_output_could_not_show_whole_goes_as_a_message(spare: int, as_item: bool) -> None:
    fits = deliveries.OUTPUT_BYTES_MAX - len(deliveries.started(a_delivery(body=""))["toolOutput"]["output"])
    request = deliveries.started(a_delivery(body="x" * (fits - spare)))
    assert ("toolOutput" in request) is as_item
    assert as_item or request["clientUserMessageId"] == "ask_1"


def test_a_persons_prompt_is_their_own_message() -> None:
    assert deliveries.started(a_delivery(kind="prompt")) == {
        "input": [{"type": "text", "text": "do it"}],
        "clientUserMessageId": "ask_1",
    }


@pytest.mark.requirement("codex.nothing-is-cut", "codex.body-apart-from-routing")
@given(body=st.text(max_size=400), bytes_max=st.integers(min_value=8, max_value=60))
def test_parts_are_the_body_and_none_is_longer_than_it_may_be(body: str, bytes_max: int) -> None:
    pieces = list(deliveries.parts(body, bytes_max))
    assert "".join(pieces) == body
    assert len(pieces) >= 1
    sizes = [len(json.dumps(piece, ensure_ascii=False).encode("utf-8", "replace")) - 2 for piece in pieces]
    assert all(size <= bytes_max for size in sizes)


@pytest.mark.requirement("codex.nothing-is-cut")
def test_what_is_shown_is_one_item_or_numbered_parts_that_all_fit() -> None:
    (one,) = deliveries.shown(a_delivery(kind="information"))
    assert one["call_id"] is None
    framed = json.loads(one["output"])
    assert "part" not in framed
    assert framed["request_id"] is None
    items = deliveries.shown(a_delivery(kind="reply", body="\n漢" * 20_000, parent_id="ask_7", status="done"))
    parts = [json.loads(item["output"]) for item in items]
    assert [part["part"] for part in parts] == list(range(1, len(parts) + 1))
    assert {part["parts"] for part in parts} == {len(parts)}
    assert {part["request_id"] for part in parts} == {"ask_7"}
    assert "".join(part["body"] for part in parts) == "\n漢" * 20_000
    assert all(len(item["output"].encode()) <= deliveries.OUTPUT_BYTES_MAX for item in items)
    assert all(item["name"] == "fencepost_inbox_delivery" for item in items)
