"""Editing a configuration as text: the one difference that is meant, and every other byte as it was."""

from __future__ import annotations

import copy
import re
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.connect import jsonc, tomls
from fencepost.connect.texts import NotEditable
from fencepost_testing.configurations import OBJECTS, VALUES
from fencepost_testing.configurations import jsonc as jsonc_texts
from fencepost_testing.configurations import toml as toml_texts

ENTRY = {"command": "/x/fencepost-mcp", "args": ["--agent", "ann"], "env": {"FENCEPOST_HOME": "/h"}, "timeout": 70000}
SERVER = {
    "command": "/x/fencepost-mcp",
    "args": ["--agent", 'a"n\\n'],
    "env": {"FENCEPOST_HOME": "/h ä"},
    "tool_timeout_sec": 70,
    "tools": {"send_message": {"approval_mode": "approve"}},
}
PATH = ("mcp_servers", "fencepost")


def comments(text: str) -> list[str]:
    """The comments of a text whose strings hold none."""
    return re.findall(r"//[^\n\r]*|/\*.*?\*/", re.sub(r'"(?:[^"\\]|\\.)*"(?=\s*[,:\]}\r\n/]|$)', '""', text), re.DOTALL)


@pytest.mark.requirement("connect.an-edit-is-the-one-difference")
@given(value=VALUES, text=st.data())
def test_any_layout_of_json_reads_as_its_value(value: Any, text: st.DataObject) -> None:
    assert jsonc.read(text.draw(jsonc_texts(st.just({"v": value})))) == {"v": value}


@pytest.mark.requirement("connect.an-edit-is-the-one-difference")
@given(text=jsonc_texts(), path=st.sampled_from([("mcpServers", "fencepost"), ("new",), ("mcp", "new", "newer")]))
def test_a_member_that_was_added_is_the_one_difference_and_goes_without_a_trace(
    text: str, path: tuple[str, ...]
) -> None:
    before = jsonc.read(text)
    place: Any = before
    for key in path[:-1]:
        place = place.get(key, {}) if isinstance(place, dict) else None
    if not isinstance(place, dict) or path[-1] in place:
        with pytest.raises(NotEditable):
            jsonc.set_member(text, path, ENTRY)
        return
    added = jsonc.set_member(text, path, ENTRY)
    wanted = copy.deepcopy(before)
    place = wanted
    for key in path[:-1]:
        place = place.setdefault(key, {})
    place[path[-1]] = ENTRY
    assert jsonc.read(added) == wanted
    assert comments(added) == comments(text)
    removed = jsonc.remove_member(added, path)
    del place[path[-1]]
    assert jsonc.read(removed) == wanted
    assert comments(removed) == comments(text)
    assert len(removed.split()) <= len(added.split())


@pytest.mark.requirement("connect.an-edit-is-the-one-difference")
@given(value=OBJECTS.filter(bool), data=st.data())
def test_any_member_can_be_taken_out_and_comments_stay(value: dict[str, Any], data: st.DataObject) -> None:
    text = data.draw(jsonc_texts(st.just(value)))
    key = data.draw(st.sampled_from(sorted(value)))
    removed = jsonc.remove_member(text, [key])
    assert jsonc.read(removed) == {name: inner for name, inner in value.items() if name != key}


@pytest.mark.requirement("connect.an-edit-is-the-one-difference")
@given(elements=st.lists(VALUES, max_size=4), data=st.data())
def test_an_element_is_added_and_taken_out(elements: list[Any], data: st.DataObject) -> None:
    text = data.draw(jsonc_texts(st.just({"permissions": {"allow": elements}})))
    added = jsonc.add_element(text, ["permissions", "allow"], "mcp__fencepost__send_message")
    assert jsonc.read(added) == {"permissions": {"allow": [*elements, "mcp__fencepost__send_message"]}}
    removed = jsonc.remove_element(added, ["permissions", "allow"], "mcp__fencepost__send_message")
    assert jsonc.read(removed) == {"permissions": {"allow": elements}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{}", '{\n  "m": {\n    "k": 1\n  }\n}'),
        ("", '{\n  "m": {\n    "k": 1\n  }\n}\n'),
        ("// mine\n", '// mine\n{\n  "m": {\n    "k": 1\n  }\n}\n'),
        ('{"a":1}', '{"a":1,"m":{"k":1}}'),
        ('{"a": 1}', '{"a": 1, "m": {"k": 1}}'),
        ('{\n\t"a": 1 // one\n}\n', '{\n\t"a": 1, // one\n\t"m": {\n\t\t"k": 1\n\t}\n}\n'),
        ('{\n    "a": 1,\n}\n', '{\n    "a": 1,\n    "m": {\n        "k": 1\n    },\n}\n'),
        ('{\r\n  "m": {\r\n  }\r\n}', '{\r\n  "m": {\r\n    "k": 1\r\n  }\r\n}'),
        ('{\n  "a": 1 }', '{\n  "a": 1,\n  "m": {\n    "k": 1\n  }\n}'),
    ],
)
def test_what_is_added_looks_like_what_is_there(before: str, after: str) -> None:
    added = jsonc.set_member(before, ["m", "k"], 1)
    assert added.replace("\n }", "\n}") == after


@pytest.mark.parametrize(
    "text", ["{", "[1,,2]", '{"a" 1}', "{1:2}", '{"a":01}', "{}x", "'x'", '{"a":NaN}', "/*", '"\n"']
)
def test_what_is_no_json_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(jsonc.NotJson, match=r"in line \d"):
        jsonc.parse(text)


@pytest.mark.parametrize(("depth", "fits"), [(jsonc.DEPTH_MAX, True), (jsonc.DEPTH_MAX + 1, False), (100_000, False)])
def test_nesting_is_bounded(depth: int, fits: bool) -> None:
    text = "[" * depth + "1" + "]" * depth
    if fits:
        jsonc.parse(text)
    else:
        with pytest.raises(jsonc.NotJson):
            jsonc.parse(text)


def test_a_key_that_is_there_twice_is_not_edited() -> None:
    for edit in (
        lambda: jsonc.set_member('{"m":{},"m":{}}', ["m", "k"], 1),
        lambda: jsonc.remove_member('{"m":1,"m":1}', ["m"]),
        lambda: jsonc.remove_member("{}", ["m"]),
        lambda: jsonc.remove_element('{"m":[]}', ["m"], 1),
        lambda: jsonc.add_element('{"m":{}}', ["m"], 1),
    ):
        with pytest.raises(NotEditable):
            edit()


@pytest.mark.requirement("connect.an-edit-is-the-one-difference")
@given(text=toml_texts())
def test_a_toml_entry_is_appended_and_taken_out_to_the_byte(text: str) -> None:
    before = tomls.read(text)
    added, piece = tomls.append(text, PATH, SERVER)
    assert added == text + piece
    after = tomllib.loads(added.replace("\r\n", "\n"))
    assert after["mcp_servers"].pop("fencepost") == SERVER
    assert {key: value for key, value in after.items() if value or key != "mcp_servers"} == before
    assert tomls.remove(added, PATH, piece) == text


@pytest.mark.requirement("connect.an-edit-is-the-one-difference")
@given(
    text=toml_texts(), later=st.sampled_from(["[later]\nx = 1 # mine\n", "# the end\n", "[mcp_servers.z]\na = 'b'\n"])
)
def test_a_toml_entry_is_taken_out_from_between_what_came_later(text: str, later: str) -> None:
    added, piece = tomls.append(text, PATH, SERVER)
    removed = tomls.remove(added + later, PATH, piece)
    assert removed == text + later or tomls.read(removed) == tomls.read(text + "\n" + later)


@pytest.mark.requirement("connect.an-edit-is-the-one-difference")
def test_a_toml_entry_that_was_written_differently_is_found_all_the_same() -> None:
    text = 'a = 1 # one\n[mcp_servers.fencepost]\ncommand = "x"\n# mine\n[mcp_servers.fencepost.env]\nA = "b"\n'
    text += "[z]\nb = 2\n"
    removed = tomls.remove(text, PATH, "something else")
    assert tomls.read(removed) == {"a": 1, "z": {"b": 2}}
    assert "# one" in removed


@pytest.mark.parametrize(
    "text", ["mcp_servers = {}\n", 'mcp_servers = "x"\n', "[mcp_servers.fencepost]\n", "[[mcp_servers]]\n"]
)
def test_a_toml_file_that_admits_no_entry_is_not_edited(text: str) -> None:
    with pytest.raises(NotEditable):
        tomls.append(text, PATH, SERVER)
    with pytest.raises(NotEditable):
        tomls.remove("a = 1\n", PATH, "x")
    with pytest.raises(tomls.NotToml):
        tomls.read("a = \n")
