"""Edits of TOML keep every byte that they do not mean, and follow a native file and back again."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from fencepost_providers.adapters.codex.home import merge, tables

KEYS = st.sampled_from(["a", "b", "c", "mcp_servers", "profiles", "x y", "é", "tools", "enabled", "command"])
SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.lists(st.integers(0, 9), max_size=3),
    st.dates(),
)
VALUES = st.recursive(
    st.dictionaries(KEYS, SCALARS, max_size=4),
    lambda inner: st.dictionaries(KEYS, st.one_of(SCALARS, inner), max_size=4),
    max_leaves=12,
)
PATHS = st.lists(KEYS, min_size=1, max_size=3).map(tuple)


def written(value: dict[str, Any], comments: list[str]) -> str:
    """Write a value in the usual form, with comments above tables and behind values."""
    lines = tomlkit.dumps(value).split("\n")
    for number, comment in enumerate(comments):
        place = (number * 7) % (len(lines) + 1)
        if not any('"""' in line for line in lines):
            lines.insert(place, f"# {number} {comment}")
    return "\n".join(lines)


COMMENTS = st.lists(st.text(st.characters(categories=["L", "N"]), max_size=6), max_size=5)


@pytest.mark.requirement("codex.comments-survive")
@given(value=VALUES, comments=COMMENTS, sets=st.dictionaries(PATHS, SCALARS, max_size=3), removes=st.lists(PATHS))
def test_an_edit_makes_exactly_its_difference_and_keeps_every_comment_or_is_refused(
    value: dict[str, Any], comments: list[str], sets: dict[tuple[str, ...], Any], removes: list[tuple[str, ...]]
) -> None:
    text = written(value, comments)
    before = tables.parse(text)
    removes = [path for path in removes if not isinstance(tables.lookup(before, path), dict)]
    try:
        after = tables.edited(text, sets, removes)
    except tables.NotEditable:
        return
    found = tables.parse(after)
    for path, leaf in sets.items():
        others = [other for other in sets if other != path and other[: len(path)] == path]
        if not others:
            assert tables.same(tables.lookup(found, path), leaf)
    for path in removes:
        if path not in sets and not any(one[: len(path)] == path for one in sets):
            assert tables.lookup(found, path) in (tables.MISSING, tables.BLOCKED)
    for path, leaf in tables.leaves(before):
        if not any(one[: len(path)] == path or path[: len(one)] == one for one in (*sets, *removes)):
            assert tables.same(tables.lookup(found, path), leaf)
    for line in text.split("\n"):
        if line.startswith("# "):
            assert line in after


@pytest.mark.requirement("codex.comments-survive")
@given(value=VALUES, comments=COMMENTS)
def test_what_is_appended_and_taken_out_again_leaves_the_text_as_it_was_but_for_blank_lines(
    value: dict[str, Any], comments: list[str]
) -> None:
    text = written(value, comments)
    path = ("new table", "command")
    changed = tables.edited(text, {path: "p", ("new table", "args"): ["x"]}, ())
    assert changed.startswith(text)
    back = tables.edited(changed, {}, (path, ("new table", "args")))
    assert back.rstrip("\n") == text.rstrip("\n")


@pytest.mark.parametrize(
    ("text", "path", "after"),
    [
        ("[a.b]\nc = 1\n# kept\n[d]\ne = 2\n", ("a", "b", "c"), "# kept\n[d]\ne = 2\n"),
        ("a = { b = { c = 1 } }\nd = 2\n", ("a", "b", "c"), "d = 2\n"),
        ("a.b.c = 1\nd = 2\n", ("a", "b", "c"), "d = 2\n"),
        ("[a]\n[a.b]\nc = 1 # gone with it\n", ("a", "b", "c"), ""),
        ('[a."b.c"]\nc = 1\n[a.d]\ne = 1\n', ("a", "b.c", "c"), "[a.d]\ne = 1\n"),
        ("[a.b]\r\nc = 1\r\n# kept\r\n", ("a", "b", "c"), "# kept\r\n"),
    ],
)
@pytest.mark.requirement("codex.comments-survive")
def test_a_table_that_loses_its_last_value_leaves_its_comments_and_no_header(
    text: str, path: tuple[str, ...], after: str
) -> None:
    assert tables.edited(text, {}, [path]) == after


def test_a_line_in_a_text_that_looks_like_a_header_stays() -> None:
    text = 'x = """\n[a.b]\n"""\n[a.b]\nc = 1\n'
    with pytest.raises(tables.NotEditable):
        tables.edited(text, {}, [("a", "b", "c")])


@pytest.mark.parametrize(
    "text", ["[a]\nb = 1\n", "a = { b = 1 }\n", "a.b = 1 # why\n", "[x]\n[a]\nb = 1\n\n[x.y]\nz=1\n"]
)
def test_a_value_is_replaced_where_it_stands(text: str) -> None:
    after = tables.edited(text, {("a", "b"): 2}, ())
    assert after == text.replace("b = 1", "b = 2")


def test_a_plain_value_is_put_above_the_first_table() -> None:
    assert tomllib.loads(tables.edited("# top\n[a]\nb = 1\n", {("model",): "x"}, ())) == {"model": "x", "a": {"b": 1}}


@pytest.mark.parametrize(("text", "path"), [("a = 1\n", ("a", "b")), ("[[a]]\nb = 1\n", ("a", "b"))])
def test_an_edit_through_something_that_is_no_table_is_refused(text: str, path: tuple[str, ...]) -> None:
    with pytest.raises(tables.NotEditable):
        tables.edited(text, {path: 1}, ())


def test_text_that_is_no_toml_is_refused() -> None:
    with pytest.raises(tables.NotToml):
        tables.edited("a = ", {("a",): 1}, ())


def test_one_one_and_true_are_three_values() -> None:
    assert len({tables.digest(one) for one in (1, 1.0, True, "1", [1])}) == 5
    assert not tables.same(1, True)
    assert not tables.same([1], [1.0])
    assert tables.same({"a": {}}, {})


# --- merging ---


def applied(private: dict[str, Any], done: merge.Merge) -> dict[str, Any]:
    return tables.parse(tables.edited(tomlkit.dumps(private), done.sets, done.removes))


@pytest.mark.requirement("codex.configuration-follows-the-native-one")
@given(native=VALUES, later=VALUES)
def test_an_untouched_configuration_is_always_the_native_one(native: dict[str, Any], later: dict[str, Any]) -> None:
    first = merge.merged({}, native, {})
    private = applied({}, first)
    assert tables.same(private, _without_excluded(native))
    again = merge.merged(private, native, first.origin)
    assert (dict(again.sets), again.removes, again.origin) == ({}, (), first.origin)
    try:
        after = applied(private, merge.merged(private, later, first.origin))
    except tables.NotEditable:
        return
    # A value that becomes a table, or the reverse, is settled by the merge after it at the latest.
    origin = merge.merged(private, later, first.origin).origin
    try:
        settled = applied(after, merge.merged(after, later, origin))
    except tables.NotEditable:
        return
    if not _changes_shape(native, later):
        assert tables.same(after, _without_excluded(later))
    assert tables.same(applied(settled, merge.merged(settled, later, origin)), settled)


@pytest.mark.requirement("codex.configuration-follows-the-native-one")
@given(native=VALUES, later=VALUES, own=VALUES)
def test_no_merge_changes_or_removes_what_the_agent_wrote_itself(
    native: dict[str, Any], later: dict[str, Any], own: dict[str, Any]
) -> None:
    origin = merge.merged(own, native, {}).origin
    for source in (native, later):
        done = merge.merged(own, source, origin)
        for path, _ in tables.leaves(own):
            assert path not in done.sets
            assert path not in done.removes
            assert not any(one[: len(path)] == path for one in done.sets)


@given(native=VALUES)
def test_a_merge_that_was_broken_off_before_or_after_the_file_is_resolved_alike(native: dict[str, Any]) -> None:
    done = merge.merged({}, native, {})
    record = {"origin": {}, "pending": done.origin}
    assert merge.resolved({}, record) == {}
    assert merge.resolved(applied({}, done), record) == done.origin


def test_a_record_that_is_damaged_claims_nothing() -> None:
    damaged = {"origin": {"no json": "x", "[]": "x", "[1]": "x", '["a"]': 1, '["b"]': "d"}, "pending": []}
    assert merge.resolved({}, damaged) == {'["b"]': "d"}


def _without_excluded(value: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for path, leaf in tables.leaves(value):
        if not merge.excluded(path):
            place = out
            for key in path[:-1]:
                place = place.setdefault(key, {})
            place[path[-1]] = leaf
    return out


def _changes_shape(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return any(_changes_shape(one[key], other[key]) for key in one.keys() & other.keys())
    return isinstance(one, dict) is not isinstance(other, dict)
