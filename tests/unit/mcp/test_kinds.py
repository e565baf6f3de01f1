"""Kinds of arguments: what each takes, what each refuses, and that no text repeats a value."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from fencepost.mcp import registry
from fencepost.mcp.kinds import Agent, Assignee, Count, Flag, Kind, Moment, Problem, Prose, Record, Several, Uuid
from fencepost.mcp.registry import EVERY, EVERY_OF, Checked, Malformed, examine, menu

SECRET = "zq-secret-value"
UUID = "01234567-89ab-cdef-0123-456789abcdef"
EVERYTHING = frozenset({"messaging", "tasks", "context", "files"})

TAKEN: list[tuple[Kind, object, object]] = [
    (Prose(bytes_max=4), "äb", "äb"),
    (Prose(bytes_max=4, blank=True), "", ""),
    (Agent(), "bob", "bob"),
    (Uuid(), UUID.upper(), UUID),
    (Flag(), False, False),
    (Count(least=1, most=3), 3.0, 3),
    (Moment(), "1970-01-01T00:00:01+00:00", 1000),
    (Moment(), "2026-01-31T18:00:00.5Z", 1_769_882_400_500),
    (Moment(), "2026-01-31T19:00:00+01:00", 1_769_882_400_000),
    (Several(of=Flag(), most=2), [True, False], [True, False]),
    (Several(of=Flag(), most=2), [], []),
    (Record(values={"key": Prose(bytes_max=9)}, required=("key",)), {"key": "k"}, {"key": "k"}),
]

REFUSED: list[tuple[Kind, object]] = [
    (Prose(bytes_max=3), "äbc"),
    (Prose(bytes_max=4), ""),
    (Prose(bytes_max=4), " \n"),
    (Prose(bytes_max=4, blank=True), 7),
    (Prose(bytes_max=9), "\ud800"),
    (Agent(), "everyone"),
    (Agent(), "x" * 65),
    (Uuid(), SECRET),
    (Uuid(), UUID.replace("-", "")),
    (Uuid(), f"{{{UUID}}}"),
    (Flag(), "true"),
    (Flag(), 1),
    (Count(least=1, most=3), 0),
    (Count(least=1, most=3), 4),
    (Count(least=0, most=3), True),
    (Count(least=1, most=3), "1"),
    (Moment(), "2026-01-31T18:00:00"),
    (Moment(), "2026-01-31"),
    (Moment(), "1969-12-31T23:59:59Z"),
    (Moment(), SECRET),
    (Moment(), 1_769_882_400),
    (Several(of=Flag(), most=2), [True, False, True]),
    (Several(of=Flag(), least=1, most=2), []),
    (Several(of=Flag(), most=2), SECRET),
    (Several(of=Flag(), most=2), [SECRET]),
    (Record(values={"key": Prose(bytes_max=9)}, required=("key",)), {}),
    (Record(values={"key": Prose(bytes_max=9)}), {"key": "k", SECRET: 1}),
    (Record(values={"key": Prose(bytes_max=9)}), {"key": None}),
    (Record(values={"key": Prose(bytes_max=9)}), SECRET),
]


@pytest.mark.requirement("tools.arguments-are-strict")
@pytest.mark.parametrize(("kind", "value", "taken"), TAKEN)
def test_a_value_of_its_kind_is_taken_and_fits_the_schema(kind: Kind, value: object, taken: object) -> None:
    assert kind.check("it", value) == taken
    jsonschema.validate(value, kind.schema())


@pytest.mark.requirement("tools.arguments-are-strict")
@pytest.mark.parametrize(("kind", "value"), REFUSED)
def test_another_value_is_refused_by_the_name_of_the_argument(kind: Kind, value: object) -> None:
    with pytest.raises(Problem) as refused:
        kind.check("it", value)
    assert str(refused.value).startswith("it")
    assert SECRET not in str(refused.value)


ASSIGN: dict[str, Any] = {"to": "bob", "description": "d", "acceptance": "a", "request_id": UUID}


@pytest.mark.requirement("tools.arguments-are-strict")
@pytest.mark.parametrize(
    "wrong",
    [
        {"context_refs": [{"version": 1}]},
        {"context_refs": [{"key": "k", "more": 1}]},
        {"context_refs": [{"key": "k"}] * 17},
        {"dependencies": ["task_1"] * 101},
        {"execution_timeout_seconds": 604_801},
        {"start_deadline": "tomorrow"},
        {"request_id": "one"},
        {"request_id": None},
        {"sender": "ann"},
        {"priority": 1},
        {"description": "x" * 65_537},
    ],
)
def test_a_task_is_assigned_by_what_its_schema_allows_and_nothing_else(wrong: dict[str, Any]) -> None:
    tasks = menu(frozenset({"tasks"}))
    assert isinstance(examine({"name": "task_assign", "arguments": ASSIGN}, tasks), Checked)
    told = examine({"name": "task_assign", "arguments": {**ASSIGN, **wrong}}, tasks)
    assert isinstance(told, Malformed)
    assert not told.protocol
    assert "nothing was done" in told.message


@pytest.mark.requirement("tools.arguments-are-strict")
@pytest.mark.parametrize(("timeout_ms", "taken"), [(0, True), (20_000, True), (20_001, False), (-1, False)])
def test_a_wait_for_a_notification_takes_at_most_twenty_seconds(timeout_ms: int, taken: bool) -> None:
    tasks = menu(frozenset({"tasks"}))
    told = examine({"name": "agent_wait", "arguments": {"timeout_ms": timeout_ms}}, tasks)
    assert isinstance(told, Checked) is taken


@pytest.mark.requirement("tools.arguments-are-strict")
def test_progress_says_something() -> None:
    tasks = menu(frozenset({"tasks"}))
    arguments = {"task_id": "task_1", "revision": 1, "request_id": UUID}
    assert isinstance(examine({"name": "task_progress", "arguments": arguments}, tasks), Malformed)
    said = examine({"name": "task_progress", "arguments": {**arguments, "percent": 0}}, tasks)
    assert isinstance(said, Checked)


@pytest.mark.requirement("tools.arguments-are-strict")
@pytest.mark.parametrize("tool", EVERY, ids=lambda tool: tool.name)
def test_every_schema_is_one_and_lets_nothing_unknown_in(tool: registry.Tool) -> None:
    jsonschema.Draft202012Validator.check_schema(tool.schema())
    assert tool.schema()["additionalProperties"] is False
    assert set(tool.required) <= set(tool.arguments)


@pytest.mark.requirement("tools.other-names")
def test_a_tool_has_the_same_schema_by_its_other_name() -> None:
    plain, warp = menu(EVERYTHING), menu(EVERYTHING, warp=True)
    for name, other in registry.WARPED.items():
        assert other == f"warp_{name}"
        assert warp.tools[other].schema() == plain.tools[name].schema()
        assert name not in warp.tools
        assert other not in plain.tools
    assert [name for name in warp.tools if name in plain.tools] == list(registry.TOOL_OF)
    checked = examine({"name": "warp_agent_ready", "arguments": {}}, warp)
    assert isinstance(checked, Checked)
    assert checked.tool is EVERY_OF["agent_ready"]


@pytest.mark.requirement("tools.the-turns-last-action-is-told")
@pytest.mark.parametrize("families", [{"tasks"}, {"messaging", "tasks"}, EVERYTHING])
def test_a_server_with_tasks_says_which_call_ends_the_turn(families: set[str]) -> None:
    for warp, name in ((False, "agent_ready"), (True, "warp_agent_ready")):
        told = menu(frozenset(families), warp=warp)
        assert f"call {name} as your last action" in told.instructions
        assert "End your turn: the last action" in told.tools[name].description
    assert "agent_ready" not in menu(frozenset({"messaging"})).instructions


@pytest.mark.requirement("tools.arguments-are-strict", "tools.a-checkout-stands-for-who-works-in-it")
def test_an_assignee_is_an_agent_or_an_absolute_path() -> None:
    kind = Assignee()
    for fine in ("bob", "/w/" + "x" * 4000, "/w/all"):
        assert kind.check("to", fine) == fine
    for wrong in ("x" * 65, "/" + "x" * 4096, "all", "*", "", 7, None, "/\ud800"):
        with pytest.raises(Problem):
            kind.check("to", wrong)


@pytest.mark.requirement("tools.other-names")
def test_texts_under_the_other_names_name_tools_by_them() -> None:
    warp = menu(EVERYTHING, warp=True)
    assert "by warp_task_finish_cancel" in warp.tools["warp_task_cancel"].description
    assert "call warp_agent_ready as your last action" in warp.instructions
    assert "call wait_agent, then receive_messages" in warp.instructions
