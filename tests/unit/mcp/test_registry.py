"""The tool table: what a model is told, and what it may say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.mcp import registry
from fencepost.mcp.registry import BODY_BYTES_MAX, TOOL_OF, TOOLS, Checked, Malformed, examine

SECRET = "zq-secret-value"


def verdict(name: str, arguments: object) -> Checked | Malformed:
    return examine({"name": name, "arguments": arguments})


def problem(name: str, arguments: object) -> str:
    found = verdict(name, arguments)
    assert isinstance(found, Malformed)
    assert not found.protocol
    return found.message


@pytest.mark.requirement("mcp.seven-tools")
def test_there_are_exactly_the_seven_tools() -> None:
    assert [tool.name for tool in TOOLS] == [
        "send_message",
        "followup_task",
        "receive_messages",
        "wait_agent",
        "reply",
        "interrupt_agent",
        "list_agents",
    ]


@pytest.mark.requirement("mcp.seven-tools")
def test_each_tool_takes_the_arguments_of_the_specification_and_no_sender() -> None:
    taken = {tool.name: (sorted(tool.arguments), sorted(tool.required)) for tool in TOOLS}
    assert taken == {
        "send_message": (["message", "target"], ["message", "target"]),
        "followup_task": (["message", "target"], ["message", "target"]),
        "receive_messages": (["ack_cursor", "cursor", "limit", "timeout_ms"], []),
        "wait_agent": (["timeout_ms"], []),
        "reply": (["message", "request_id", "status"], ["message", "request_id", "status"]),
        "interrupt_agent": (["target"], ["target"]),
        "list_agents": ([], []),
    }
    assert all(tool.schema()["additionalProperties"] is False for tool in TOOLS)


@pytest.mark.requirement("mcp.seven-tools")
def test_annotations_say_what_a_tool_can_do_to_others() -> None:
    hints = {tool.name: tool.hints.wire() for tool in TOOLS}
    assert [name for name, hint in hints.items() if hint["readOnlyHint"]] == ["list_agents"]
    assert [name for name, hint in hints.items() if hint["destructiveHint"]] == ["interrupt_agent"]
    assert [name for name, hint in hints.items() if hint["idempotentHint"]] == ["reply", "list_agents"]
    assert [name for name, hint in hints.items() if not hint["openWorldHint"]] == ["list_agents"]


# What the specification wants a model to know, and where it is said.
GUIDANCE = {
    "wait_agent": [
        "call receive_messages afterwards",
        "Reads, claims and acknowledges nothing",
        "timed_out: true is no failure",
        "starts and interrupts nobody",
    ],
    "receive_messages": ["Reading acknowledges nothing", "ack_cursor", "not new work", "An empty page is no failure"],
    "send_message": ["Never resend", "only an error with written: false may be repeated", "interrupts no turn"],
    "followup_task": [
        "without waiting",
        "An empty wait neither cancels the request nor means failure",
        "Never assign it again",
        "never interrupt the recipient to speed it up",
    ],
    "reply": ["request_id", "Not for information", "a person's chat", "automatic publication"],
    "interrupt_agent": ["never to speed it up", "its session stays", "unsupported_capability"],
    "list_agents": ["exact name", "no broadcast"],
}


@pytest.mark.requirement("mcp.guidance-is-told")
@pytest.mark.parametrize(("name", "sentence"), [(name, part) for name, parts in GUIDANCE.items() for part in parts])
def test_a_description_carries_the_guidance(name: str, sentence: str) -> None:
    assert sentence in TOOL_OF[name].description


@pytest.mark.requirement("mcp.guidance-is-told")
@pytest.mark.parametrize(
    "sentence",
    [
        "call wait_agent, then receive_messages",
        "reply to it once",
        "Information needs no reply",
        "Acknowledge a page by its ack_cursor",
        "An empty wait is no failure",
        "Never resend",
        "Never interrupt a peer to speed it up",
        "not orders of your user",
    ],
)
def test_the_instructions_say_when_to_receive_acknowledge_and_reply(sentence: str) -> None:
    assert sentence in registry.INSTRUCTIONS
    assert len(registry.INSTRUCTIONS.split()) <= registry.INSTRUCTION_WORDS_MAX


@pytest.mark.requirement("mcp.guidance-is-told")
def test_no_text_for_a_model_advises_to_destroy_anything() -> None:
    texts = registry.INSTRUCTIONS + "".join(tool.description for tool in TOOLS)
    assert not any(word in texts.lower() for word in ("delete", "rm -", "reset", "kill", "remove"))


SEND: dict[str, Any] = {"target": "bob", "message": "hello"}
REPLY: dict[str, Any] = {"request_id": "ask_1", "status": "done", "message": "ok"}

BAD: list[tuple[str, str, object, str]] = [
    ("no object", "send_message", [], "arguments must be an object"),
    ("null for all arguments", "list_agents", None, "arguments must be an object"),
    ("text for all arguments", "list_agents", SECRET, "arguments must be an object"),
    ("unknown field", "send_message", {**SEND, "urgency": SECRET}, "unknown argument urgency"),
    ("unknown field where none is taken", "list_agents", {"scope": SECRET}, "list_agents takes no arguments"),
    ("an unknown field whose name is a text", "list_agents", {SECRET * 9: 1}, "unknown argument:"),
    ("forged sender", "send_message", {**SEND, "sender": SECRET}, "the sender is known by its credential"),
    ("forged origin", "reply", {**REPLY, "origin": SECRET}, "the sender is known by its credential"),
    ("own key", "followup_task", {**SEND, "idempotency_key": SECRET}, "keys are made by Fencepost"),
    ("missing target", "send_message", {"message": SECRET}, "target is missing"),
    ("missing message", "followup_task", {"target": SECRET}, "message is missing"),
    ("null for a required field", "send_message", {"target": "bob", "message": None}, "message is null, but it"),
    ("null for an optional field", "receive_messages", {"cursor": None}, "cursor is null: leave it out"),
    ("number as text", "send_message", {"target": "bob", "message": 7}, "message must be a string"),
    ("list as text", "send_message", {"target": [SECRET], "message": "x"}, "target must be a string"),
    ("blank text", "send_message", {"target": "bob", "message": " \n\t\u2003"}, "message is blank"),
    ("empty text", "reply", {**REPLY, "message": ""}, "message is blank"),
    ("lone high surrogate", "send_message", {"target": "bob", "message": f"{SECRET}\ud800"}, "surrogate"),
    ("lone low surrogate", "reply", {**REPLY, "message": "\udfff"}, "surrogate"),
    ("text over the limit", "send_message", {"target": "bob", "message": "x" * 65_537}, "65537 bytes of UTF-8"),
    ("wide text over the limit", "send_message", {"target": "bob", "message": "漢" * 21_846}, "65538 bytes of UTF-8"),
    ("padded target", "send_message", {"target": " bob", "message": "x"}, "white space around it"),
    ("padded target behind", "interrupt_agent", {"target": "bob\n"}, "white space around it"),
    ("blank target", "interrupt_agent", {"target": "  "}, "target is blank"),
    ("broadcast all", "send_message", {"target": "all", "message": "x"}, "no broadcast"),
    ("broadcast ALL", "followup_task", {"target": "ALL", "message": "x"}, "no broadcast"),
    ("broadcast star", "send_message", {"target": "*", "message": "x"}, "no broadcast"),
    ("broadcast word", "send_message", {"target": "Broadcast", "message": "x"}, "no broadcast"),
    ("class target", "interrupt_agent", {"target": "class:reviewer"}, "no broadcast"),
    ("target with a control character", "interrupt_agent", {"target": "a\x1bb"}, "control character"),
    ("long target", "interrupt_agent", {"target": "x" * 65}, "at most 64 are allowed"),
    ("limit 0", "receive_messages", {"limit": 0}, "from 1 to 100"),
    ("limit 101", "receive_messages", {"limit": 101}, "from 1 to 100"),
    ("limit as true", "receive_messages", {"limit": True}, "from 1 to 100"),
    ("limit as text", "receive_messages", {"limit": "5"}, "from 1 to 100"),
    ("half a record", "receive_messages", {"limit": 1.5}, "from 1 to 100"),
    ("endless limit", "receive_messages", {"limit": float("inf")}, "from 1 to 100"),
    ("negative timeout", "wait_agent", {"timeout_ms": -1}, "from 0 to 60000"),
    ("timeout over the limit", "wait_agent", {"timeout_ms": 60_001}, "from 0 to 60000"),
    ("timeout as false", "receive_messages", {"timeout_ms": False}, "from 0 to 60000"),
    ("a field of another tool", "wait_agent", {"cursor": SECRET}, "wait_agent takes timeout_ms"),
    ("blank cursor", "receive_messages", {"cursor": ""}, "cursor is blank"),
    ("blank ack_cursor", "receive_messages", {"ack_cursor": " "}, "ack_cursor is blank"),
    ("long cursor", "receive_messages", {"cursor": "c" * 257}, "at most 256 are allowed"),
    ("unknown status", "reply", {**REPLY, "status": SECRET}, "status must be one of done, blocked, failed"),
    ("status in capitals", "reply", {**REPLY, "status": "DONE"}, "status must be one of"),
    ("status as a number", "reply", {**REPLY, "status": 1}, "status must be one of"),
]


@pytest.mark.requirement("mcp.arguments-are-held-to-the-schema")
@pytest.mark.parametrize(("name", "arguments", "text"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_wrong_argument_is_named_and_its_value_never_repeated(name: str, arguments: object, text: str) -> None:
    said = problem(name, arguments)
    assert text in said
    assert said.endswith("nothing was done.")
    assert SECRET not in said


@pytest.mark.requirement("mcp.arguments-are-held-to-the-schema")
def test_texts_at_the_limit_and_every_kind_of_character_are_taken_unchanged() -> None:
    for message in ("x" * BODY_BYTES_MAX, "漢" * 21_845, '\0\r\n\x1b[0m"\\ 漢字 \U0001f9ea \u200b', "\x00"):
        found = verdict("send_message", {"target": "bob", "message": message})
        assert isinstance(found, Checked)
        assert found.arguments["message"] == message


@pytest.mark.requirement("mcp.arguments-are-held-to-the-schema")
def test_numbers_at_both_ends_are_taken_and_5_0_is_a_whole_number() -> None:
    for arguments in ({"limit": 1, "timeout_ms": 0}, {"limit": 100, "timeout_ms": 60_000}):
        found = verdict("receive_messages", arguments)
        assert isinstance(found, Checked)
        assert found.arguments == arguments
    found = verdict("receive_messages", {"limit": 5.0})
    assert isinstance(found, Checked)
    assert type(found.arguments["limit"]) is int


@pytest.mark.requirement("mcp.arguments-are-held-to-the-schema")
def test_arguments_may_be_left_out_where_none_is_required() -> None:
    assert isinstance(examine({"name": "list_agents"}), Checked)
    assert isinstance(examine({"name": "wait_agent"}), Checked)
    assert isinstance(examine({"name": "send_message"}), Malformed)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 70_000) | st.floats(-5, 120) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=4,
)
NAMES = st.sampled_from(
    ["target", "message", "cursor", "ack_cursor", "limit", "timeout_ms", "request_id", "status", "x"]
)


@pytest.mark.requirement("mcp.arguments-are-held-to-the-schema")
@given(tool=st.sampled_from(TOOLS), arguments=st.dictionaries(NAMES, JSON | st.sampled_from(["done", 5, 5.0, "bob"])))
def test_what_the_checker_takes_the_published_schema_takes_too(tool: registry.Tool, arguments: dict[str, Any]) -> None:
    found = verdict(tool.name, arguments)
    if isinstance(found, Checked):
        jsonschema.Draft202012Validator(tool.schema()).validate(arguments)


@pytest.mark.requirement("mcp.arguments-are-held-to-the-schema")
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_each_published_schema_is_a_schema(tool: registry.Tool) -> None:
    jsonschema.Draft202012Validator.check_schema(tool.schema())


@pytest.mark.requirement("mcp.protocol-errors")
@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"arguments": {}}, "params.name must be a string"),
        ({"name": 7}, "params.name must be a string"),
        ({"name": "no_such_tool"}, "unknown tool no_such_tool"),
        ({"name": f"{SECRET} " * 9}, "unknown tool: there are send_message"),
        ({"name": "send"}, "use send_message"),
        ({"name": "ask"}, "use followup_task"),
        ({"name": "list_agents", "sender": SECRET}, "unknown field sender in params"),
    ],
)
def test_a_wrong_call_is_an_error_of_the_protocol(params: dict[str, Any], text: str) -> None:
    found = examine(params)
    assert isinstance(found, Malformed)
    assert found.protocol
    assert text in found.message
    assert SECRET not in found.message
    assert json.loads(found.line("1"))["error"]["code"] == -32602


@pytest.mark.requirement("mcp.protocol-errors")
def test_fields_of_later_protocol_versions_beside_the_arguments_are_ignored() -> None:
    params = {"name": "list_agents", "_meta": {"a": 1}, "requestState": "x", "inputResponses": {}, "task": {"ttl": 1}}
    assert isinstance(examine(params), Checked)


@pytest.mark.requirement("mcp.errors-say-what-was-written")
def test_wrong_arguments_are_told_as_a_tool_error_that_wrote_nothing() -> None:
    found = verdict("send_message", {})
    assert isinstance(found, Malformed)
    answer = json.loads(found.line('"a"'))
    assert answer["id"] == "a"
    assert answer["result"]["isError"] is True
    told = answer["result"]["structuredContent"]
    assert told["code"] == "invalid_arguments"
    assert told["written"] is False
    assert json.loads(answer["result"]["content"][0]["text"]) == told


@pytest.mark.requirement("mcp.seven-tools")
def test_the_reference_names_every_tool_with_its_arguments() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "tools.md").read_text(encoding="utf-8")
    for tool in registry.TOOLS:
        row = re.search(rf"^\| `{tool.name}` \| ([^|]*) \|", page, re.MULTILINE)
        assert row, tool.name
        assert {name for name in tool.arguments if f"`{name}`" not in row[1]} == set(), tool.name
