"""What recordings of the real program mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fencepost_providers.adapters.codex.events import TURNS_MAX, Conversation, cut
from fencepost_providers.domain.runtimes import (
    FINAL_BYTES_MAX,
    ROW_BYTES_MAX,
    Activity,
    Row,
    RowKind,
    State,
    TurnEnd,
    TurnStatus,
)

Replay = Callable[[str, str], Iterator[tuple[Conversation, Any]]]
TURNS = "01a22c9f-8d41-7691-8813-ab67896aaa59"
RACE = "01a22cae-f81d-7053-8cc4-261f6e884542"
TOOL_OUTPUT = "01a22cc4-764b-7a81-988c-1f708e36b498"
APPROVALS = "01a22ca0-7716-71a2-9679-bdafd1abd586"
COMPLETED, INTERRUPTED, FAILED = TurnStatus.COMPLETED, TurnStatus.INTERRUPTED, TurnStatus.FAILED


def ends(heard: Iterator[tuple[Conversation, Any]]) -> list[TurnEnd]:
    return [each for _, each in heard if isinstance(each, TurnEnd)]


def said(method: str, **params: Any) -> dict[str, Any]:
    return {"method": method, "params": {"threadId": "t", **params}}


def turn(turn_id: str, status: str = "completed", **more: Any) -> dict[str, Any]:
    return {"id": turn_id, "status": status, "items": [], "error": None, **more}


def message(text: str, *, phase: str | None = "final_answer", identity: str = "m1") -> dict[str, Any]:
    return {"type": "agentMessage", "id": identity, "text": text, "phase": phase}


@pytest.mark.requirement("codex.final-answer")
def test_finals_leave_commentary_out_and_take_what_has_no_phase(replayed: Replay) -> None:
    found = [(end.status, end.final_text.split("\n")[0]) for end in ends(replayed("turns", TURNS))]
    assert found[3:7] == [(COMPLETED, "final one"), (COMPLETED, "plain"), (COMPLETED, "after"), (COMPLETED, "")]


@pytest.mark.requirement("codex.final-answer")
def test_failed_turns_say_why_and_have_no_final(replayed: Replay) -> None:
    failed = [end for end in ends(replayed("turns", TURNS)) if end.status is FAILED]
    assert len(failed) == 4
    assert all(end.detail and not end.final_text for end in failed)
    assert "badreq" in failed[1].detail
    assert "stream disconnected" in failed[3].detail


@pytest.mark.requirement("codex.end-before-idle")
@pytest.mark.parametrize(("name", "thread_id"), [("turns", TURNS), ("race", RACE), ("tool_output", TOOL_OUTPUT)])
def test_the_end_of_each_turn_comes_before_the_idle_that_the_program_says_first(
    replayed: Replay, name: str, thread_id: str
) -> None:
    running = ""
    for _, heard in replayed(name, thread_id):
        if isinstance(heard, TurnEnd):
            assert heard.turn_id == running
            running = ""
        elif isinstance(heard, Activity) and heard.state is State.IDLE:
            assert not running
        elif isinstance(heard, Activity):
            assert heard.turn_id
            running = heard.turn_id


@pytest.mark.requirement("codex.steer-has-a-receipt")
def test_of_the_steers_that_raced_those_and_only_those_that_were_taken_are_shown(
    replayed: Replay, recorded: Callable[[str], list[tuple[str, dict[str, Any]]]]
) -> None:
    told_of = list(replayed("race", RACE))
    conversation = told_of[-1][0]
    finals = {heard.turn_id: heard.final_text for _, heard in told_of if isinstance(heard, TurnEnd)}
    asked: dict[int, tuple[str, str]] = {}
    taken = set()
    for direction, told in recorded("race"):
        if direction == "in" and told["method"] == "turn/steer":
            asked[told["id"]] = (told["params"]["clientUserMessageId"], told["params"]["expectedTurnId"])
        elif direction == "out" and told.get("id") in asked and "result" in told:
            record, turn_id = asked[told["id"]]
            assert conversation.shown_in(record) == told["result"]["turnId"] == turn_id
            assert finals[turn_id] == record
            taken.add(record)
    assert len(asked) == 20
    assert len(taken) == 4
    assert not any(conversation.shown_in(record) for record, _ in asked.values() if record not in taken)


@pytest.mark.requirement("codex.start-has-a-receipt")
def test_the_item_of_a_tool_that_opened_a_turn_is_the_receipt_of_its_record() -> None:
    conversation = Conversation("t")
    output = '{"interaction_id": "ask_1", "body": "do it"}'
    ours = {"type": "functionCallOutput", "name": "fencepost_task_delivery", "namespace": "fencepost", "output": output}
    conversation.fold(said("turn/started", turn=turn("one", "inProgress")))
    conversation.fold(said("item/started", turnId="one", item={"type": "contextCompaction", "id": "c"}))
    conversation.fold(said("item/started", turnId="one", item=ours))
    conversation.fold(said("item/completed", turnId="one", item=ours))
    assert conversation.turns["one"].opened_by == "ask_1"
    assert conversation.shown_in("ask_1") == "one"
    typed = {"type": "userMessage", "id": "u", "clientId": None, "content": []}
    conversation.fold(said("item/started", turnId="two", item=typed))
    conversation.fold(said("item/completed", turnId="two", item={**ours, "output": output.replace("ask_1", "ask_2")}))
    assert conversation.turns["two"].opened_by == ""


@pytest.mark.requirement("codex.start-has-a-receipt")
@pytest.mark.parametrize(
    "change", [{"name": "other"}, {"namespace": "other"}, {"output": "no object"}, {"output": "[]"}, {"output": "{}"}]
)
def test_an_item_of_another_name_namespace_or_content_is_no_receipt(change: dict[str, str]) -> None:
    conversation = Conversation("t")
    output = '{"interaction_id": "ask_1"}'
    ours = {"type": "functionCallOutput", "name": "fencepost_task_delivery", "namespace": "fencepost", "output": output}
    conversation.fold(said("item/completed", turnId="one", item={**ours, **change}))
    assert conversation.turns["one"].opened_by == ""
    assert not conversation.shown_in("ask_1")


@pytest.mark.requirement("codex.action-needed-stays")
def test_a_question_needs_action_with_its_words_until_it_is_resolved(replayed: Replay) -> None:
    heard = [each for _, each in replayed("approvals", APPROVALS) if isinstance(each, Activity)]
    needed = [activity.detail for activity in heard if activity.state is State.ACTION_NEEDED]
    assert needed == [
        'Allow the peer MCP server to run tool "echo"?',
        "May it run /bin/bash -lc 'touch /fixture/run/codex/ws/zz && echo made'? (test)",
        'Allow the peer MCP server to run tool "echo"?',
    ]
    after = [heard[number + 1].state for number, each in enumerate(heard) if each.state is State.ACTION_NEEDED]
    assert after == [State.PROCESSING, State.PROCESSING, State.IDLE]
    assert heard[-1].state is State.IDLE


@pytest.mark.requirement("codex.final-answer")
def test_a_message_that_is_told_twice_counts_once_and_the_last_final_counts() -> None:
    conversation = Conversation("t")
    conversation.fold(said("turn/started", turn=turn("one", "inProgress")))
    for item in (
        message("first"),
        message("second", identity="m2"),
        message("first"),
        message("no phase", phase=None, identity="m3"),
        message("aside", phase="commentary", identity="m4"),
    ):
        conversation.fold(said("item/completed", turnId="one", item=item))
    heard = conversation.fold(said("turn/completed", turn=turn("one", items=[message("first")])))
    (end,) = (each for each in heard if isinstance(each, TurnEnd))
    assert end.final_text == "second"
    assert conversation.fold(said("turn/completed", turn=turn("one", "failed"))) == []


@pytest.mark.requirement("codex.final-answer")
@pytest.mark.parametrize(("size", "kept"), [(FINAL_BYTES_MAX, FINAL_BYTES_MAX), (FINAL_BYTES_MAX + 1, 0)])
def test_a_final_over_the_limit_is_counted_and_left_out(size: int, kept: int) -> None:
    conversation = Conversation("t")
    heard = conversation.fold(said("turn/completed", turn=turn("one", items=[message("x" * size)])))
    (end,) = (each for each in heard if isinstance(each, TurnEnd))
    assert (end.final_bytes, len(end.final_text)) == (size, kept)


@pytest.mark.requirement("codex.steer-has-a-receipt")
@pytest.mark.parametrize(
    ("told", "status"), [("completed", TurnStatus.LOST), ("interrupted", INTERRUPTED), ("failed", FAILED)]
)
def test_a_turn_that_is_complete_without_showing_what_it_accepted_gives_no_answer(
    told: str, status: TurnStatus
) -> None:
    conversation = Conversation("t")
    conversation.fold(said("turn/started", turn=turn("one", "inProgress")))
    conversation.turn("one").owed.add("ask_1")
    heard = conversation.fold(said("turn/completed", turn=turn("one", told, items=[message("for others")])))
    (end,) = (each for each in heard if isinstance(each, TurnEnd))
    assert (end.status, end.final_text) == (status, "")
    if status is TurnStatus.LOST:
        assert "ask_1" in end.detail


def test_an_end_of_a_kind_that_is_not_known_is_a_lost_one() -> None:
    heard = Conversation("t").fold(said("turn/completed", turn=turn("one", "evaporated")))
    (end,) = (each for each in heard if isinstance(each, TurnEnd))
    assert end.status is TurnStatus.LOST
    assert "evaporated" in end.detail


@pytest.mark.requirement("codex.final-answer")
def test_the_newest_turns_are_remembered() -> None:
    conversation = Conversation("t")
    for number in range(TURNS_MAX + 1):
        conversation.fold(said("turn/completed", turn=turn(f"turn {number}")))
    assert len(conversation.turns) == TURNS_MAX
    assert conversation.end_of("turn 0") is None
    assert conversation.end_of("turn 1") is not None


@pytest.mark.parametrize(
    "nonsense",
    [
        {},
        {"method": "turn/started"},
        {"method": "turn/started", "params": []},
        said("turn/started"),
        said("turn/started", turn={}),
        said("turn/completed", turn=None),
        said("thread/status/changed", status="idle"),
        said("item/completed", item=None, turnId="one"),
        said("item/completed", item={"type": "agentMessage"}),
        said("item/started", item={"type": "commandExecution"}, turnId="one"),
        said("serverRequest/resolved"),
        said("no/such"),
        {"method": "turn/started", "params": {"threadId": "another", "turn": turn("one")}},
        {"id": 7, "method": "item/tool/requestUserInput", "params": {"conversationId": "another"}},
    ],
)
def test_what_makes_no_sense_or_concerns_another_thread_changes_nothing(nonsense: dict[str, Any]) -> None:
    conversation = Conversation("t")
    conversation.observe({"type": "idle"})
    heard = conversation.fold(nonsense)
    assert not [each for each in heard if not isinstance(each, Row)]
    assert conversation.activity() == Activity(state=State.IDLE)


@pytest.mark.parametrize(
    "method", ["item/fileChange/requestApproval", "item/tool/requestUserInput", "attestation/generate"]
)
@pytest.mark.requirement("codex.action-needed-stays")
def test_whatever_the_program_asks_needs_a_person(method: str) -> None:
    conversation = Conversation("t")
    conversation.fold(said("turn/started", turn=turn("one", "inProgress")))
    (activity,) = conversation.fold({**said(method, questions=[{"question": "Which one?"}]), "id": 0})
    assert isinstance(activity, Activity)
    assert (activity.state, activity.turn_id) == (State.ACTION_NEEDED, "one")
    assert activity.detail


def test_rows_tell_what_was_said_and_done_and_are_cut_between_characters(replayed: Replay) -> None:
    rows = [each for _, each in replayed("turns", TURNS) if isinstance(each, Row)]
    kinds = [row.kind for row in rows if row.turn_id == rows[8].turn_id]
    assert {RowKind.USER, RowKind.ASSISTANT, RowKind.TOOL_CALL, RowKind.TOOL_RESULT, RowKind.STATUS} >= set(kinds)
    called = next(row for row in rows if row.kind is RowKind.TOOL_CALL)
    assert (called.name, called.text) == ("peer.echo", '{"text":"hi"}')
    assert cut("漢" * 10, 10) == ("漢漢漢", True)
    assert cut("x" * ROW_BYTES_MAX, ROW_BYTES_MAX) == ("x" * ROW_BYTES_MAX, False)
