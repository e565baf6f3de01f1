"""Edits JSON with comments and trailing commas as text: what is not edited keeps every byte. Pure.

An edit is checked by reading the result back: it is the old value with exactly the intended difference, or refused.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fencepost.connect.texts import NotEditable, NotReadable

DEPTH_MAX: Final = 100
INDENT: Final = "  "
_SCALAR: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SPACE: Final = " \t\r\n"


class NotJson(NotReadable):
    """The text is not JSON, comments and trailing commas allowed for; says what and in which line."""


@dataclass(slots=True)
class Item:
    """A member of an object or an element of an array: where it stands, comma and comments excluded."""

    start: int
    end: int
    key: str | None
    node: Node


@dataclass(slots=True)
class Node:
    """A value and where it stands in the text."""

    start: int
    end: int = 0
    value: Any = None
    items: list[Item] = field(default_factory=list)

    @property
    def brackets(self) -> bool:
        """True for objects and arrays."""
        return isinstance(self.value, dict | list)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def fail(self, what: str) -> NotJson:
        return NotJson(f"{what} in line {self.text.count(chr(10), 0, self.at) + 1}")

    def skip(self) -> None:
        """Go over white space and comments."""
        text = self.text
        while self.at < len(text):
            if text[self.at] in _SPACE:
                self.at += 1
            elif text.startswith("//", self.at):
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            elif text.startswith("/*", self.at):
                end = text.find("*/", self.at + 2)
                if end < 0:
                    raise self.fail("an unfinished comment")
                self.at = end + 2
            else:
                return

    def node(self, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise self.fail(f"more than {DEPTH_MAX} levels")
        char = self.text[self.at : self.at + 1]
        if char in ("{", "["):
            return self.brackets(depth, closing="}" if char == "{" else "]")
        found = (_STRING if char == '"' else _SCALAR).match(self.text, self.at)
        if found is None:
            raise self.fail("no value")
        node = Node(start=self.at, end=found.end())
        try:
            node.value = json.loads(found.group())
        except ValueError:
            raise self.fail("no value") from None
        self.at = found.end()
        return node

    def brackets(self, depth: int, *, closing: str) -> Node:
        node = Node(start=self.at, value={} if closing == "}" else [])
        self.at += 1
        self.skip()
        while not self.text.startswith(closing, self.at):
            node.items.append(self.item(node, depth))
            self.skip()
            if self.text.startswith(",", self.at):
                self.at += 1
                self.skip()
            elif not self.text.startswith(closing, self.at):
                raise self.fail(f"neither a comma nor {closing}")
        self.at += 1
        node.end = self.at
        return node

    def item(self, node: Node, depth: int) -> Item:
        start, key = self.at, None
        if isinstance(node.value, dict):
            found = self.node(DEPTH_MAX)
            key = found.value
            if not isinstance(key, str):
                raise self.fail("a key that is no string")
            self.skip()
            if not self.text.startswith(":", self.at):
                raise self.fail("a key without a colon")
            self.at += 1
            self.skip()
        inner = self.node(depth + 1)
        if isinstance(node.value, dict):
            node.value[key] = inner.value
        else:
            node.value.append(inner.value)
        return Item(start=start, end=inner.end, key=key, node=inner)


def parse(text: str) -> Node:
    """Return the value of a text.

    Raises:
        NotJson: it is none.
    """
    reader = _Reader(text)
    reader.skip()
    node = reader.node(0)
    reader.skip()
    if reader.at != len(text):
        raise reader.fail("something after the value")
    return node


def read(text: str) -> Any:
    """Return the plain value of a text; a text of white space and comments alone is an empty object."""
    return {} if _blank(text) else parse(text).value


def set_member(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with a member more; objects on the way to it are made.

    Raises:
        NotEditable: there is one at this path, or what is on the way is no object.
    """

    def change(root: Any) -> None:
        for key in path[:-1]:
            root = root.setdefault(key, {})
        root[path[-1]] = value

    if _blank(text):
        text = _started(text)
    node, rest = _descend(parse(text), path)
    if not rest:
        raise NotEditable(f"{'.'.join(path)} is there already")
    if not isinstance(node.value, dict):
        raise NotEditable(f"{'.'.join(path[: -len(rest)]) or 'the whole'} is no object")
    wrapped = value
    for key in reversed(rest[1:]):
        wrapped = {key: wrapped}
    return _checked(text, _inserted(text, node, rest[0], wrapped), change)


def remove_member(text: str, path: Sequence[str]) -> str:
    """Return the text without the member at this path.

    Raises:
        NotEditable: there is none, or it cannot be told apart.
    """

    def change(root: Any) -> None:
        for key in path[:-1]:
            root = root[key]
        del root[path[-1]]

    parent, rest = _descend(parse(text), path[:-1])
    places = [at for at, item in enumerate(parent.items) if item.key == path[-1]]
    if rest or len(places) != 1:
        raise NotEditable(f"{'.'.join(path)} is not there once")
    return _checked(text, _removed(text, parent, places[0]), change)


def add_element(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with an element more in the array at this path; where there is no array, one is made."""

    def change(root: Any) -> None:
        for key in path:
            root = root[key]
        root.append(value)

    if _blank(text):
        text = _started(text)
    node, rest = _descend(parse(text), path)
    if rest:
        return set_member(text, path, [value])
    if not isinstance(node.value, list):
        raise NotEditable(f"{'.'.join(path)} is no array")
    return _checked(text, _inserted(text, node, None, value), change)


def remove_element(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text without one element, the last that equals `value`, of the array at this path."""
    node, rest = _descend(parse(text), path)
    places = [at for at, item in enumerate(node.items) if item.key is None and item.node.value == value]
    if rest or not places:
        raise NotEditable(f"{'.'.join(path)} does not hold it")

    def change(root: Any) -> None:
        for key in path:
            root = root[key]
        del root[places[-1]]

    return _checked(text, _removed(text, node, places[-1]), change)


def _blank(text: str) -> bool:
    reader = _Reader(text)
    reader.skip()
    return reader.at == len(text)


def _started(text: str) -> str:
    """Return a text of white space and comments with an empty object in it."""
    newline = _newline(text)
    return f"{text}{'' if not text.strip() or text.endswith(newline) else newline}{{}}{newline}"


def _descend(node: Node, path: Sequence[str]) -> tuple[Node, list[str]]:
    """Return the deepest node on the way, and the rest of the way."""
    for depth, key in enumerate(path):
        found = [item for item in node.items if item.key == key] if isinstance(node.value, dict) else []
        if len(found) > 1:
            raise NotEditable(f"{'.'.join(path[: depth + 1])} is there more than once")
        if not found:
            return node, list(path[depth:])
        node = found[0].node
    return node, []


def _checked(before: str, after: str, change: Callable[[Any], None]) -> str:
    wanted = copy.deepcopy(read(before))
    change(wanted)
    try:
        got = read(after)
    except NotJson as error:
        raise NotEditable(f"the edit does not read back: {error}") from None
    if got != wanted or json.dumps(got) != json.dumps(wanted):
        raise NotEditable("the edit does not read back as intended")
    return after


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _line_indent(text: str, at: int) -> str | None:
    """Return the white space that stands before `at` on its line; None where something else does."""
    start = text.rfind("\n", 0, at) + 1
    before = text[start:at]
    return before if not before.strip(" \t") else None


def _unit(text: str) -> str:
    """Return what one level is indented by: as the first indented line of the text has it."""
    found = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    if found is None:
        return INDENT
    return "\t" if found.group(1).startswith("\t") else found.group(1)[:8]


def _inserted(text: str, node: Node, key: str | None, value: Any) -> str:
    """Return the text with an item more at the end of an object or array."""
    body = text[node.start : node.end]
    if "\n" not in body and (node.items or isinstance(node.value, list)):
        return _inserted_inline(text, node, key, value)
    newline, unit = _newline(text), _unit(text)
    outer_line = text[text.rfind("\n", 0, node.start) + 1 : node.start]
    outer = outer_line[: len(outer_line) - len(outer_line.lstrip(" \t"))]
    indent = outer + unit
    if node.items:
        own = _line_indent(text, node.items[0].start)
        indent = indent if own is None else own
    dumped = json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", newline + indent)
    item = dumped if key is None else f"{json.dumps(key, ensure_ascii=False)}: {dumped}"
    if not node.items:
        place = _line_end(text, node.start + 1)
        rest = text[place : node.end - 1]
        closing = "" if "\n" in rest and not rest.strip(_SPACE) else newline + outer
        return f"{text[:place]}{newline}{indent}{item}{closing}{text[place:]}"
    last = node.items[-1].end
    comma = _comma(text, last)
    if comma is None:
        text = f"{text[:last]},{text[last:]}"
        place, tail = _line_end(text, last + 1), ""
    else:
        place, tail = _line_end(text, comma + 1), ","
    end = node.end - (0 if comma is not None else -1)
    closing = "" if "\n" in text[place : end - 1] else newline + outer
    return f"{text[:place]}{newline}{indent}{item}{tail}{closing}{text[place:]}"


def _inserted_inline(text: str, node: Node, key: str | None, value: Any) -> str:
    spaced = re.search(r'[:,] ["\[{\w]', text[node.start : node.end]) is not None or not node.items
    separators = (", ", ": ") if spaced else (",", ":")
    dumped = json.dumps(value, ensure_ascii=False, separators=separators)
    item = dumped if key is None else f"{json.dumps(key, ensure_ascii=False)}{separators[1]}{dumped}"
    if not node.items:
        return f"{text[: node.start + 1]}{item}{text[node.start + 1 :]}"
    last = node.items[-1].end
    comma = _comma(text, last)
    if comma is not None:
        return f"{text[: comma + 1]}{separators[0][1:]}{item}{text[comma + 1 :]}"
    return f"{text[:last]}{separators[0]}{item}{text[last:]}"


def _line_end(text: str, at: int) -> int:
    """Return where the blanks and comments that follow `at` on its line end."""
    while True:
        after = at
        while text[after : after + 1] in (" ", "\t"):
            after += 1
        if text.startswith("//", after):
            end = text.find("\n", after)
            end = len(text) if end < 0 else end
            return end - 1 if text[end - 1] == "\r" else end
        if not text.startswith("/*", after):
            return at
        end = text.find("*/", after) + 2
        if "\n" in text[after:end]:
            return at
        at = end


def _comma(text: str, at: int) -> int | None:
    """Return where the comma behind an item that ends at `at` stands, or None."""
    reader = _Reader(text)
    reader.at = at
    reader.skip()
    return reader.at if text.startswith(",", reader.at) else None


def _removed(text: str, node: Node, place: int) -> str:
    """Return the text without the item at `place`, with the comma that it needed; comments stay."""
    item = node.items[place]
    comma = _comma(text, item.end)
    cuts: list[tuple[int, int]] = []
    start, end = item.start, item.end
    if comma is not None:
        if text[end:comma].strip(_SPACE):
            cuts.append((comma, comma + 1))
        else:
            end = comma + 1
    elif place:
        before = _comma(text, node.items[place - 1].end)
        assert before is not None
        cuts.append((before, before + 1))
    line_ends = re.match(r"[ \t]*(\r?\n|$)", text[end:]) is not None
    indent = _line_indent(text, start)
    if indent is not None and line_ends and start - len(indent) > 0:
        start -= len(indent) + (2 if text[: start - len(indent)].endswith("\r\n") else 1)
        # Nor are blanks of ours left at the end of the line before.
        end += len(text[end:]) - len(text[end:].lstrip(" \t")) if text[end:].lstrip(" \t")[:1] in ("\r", "\n") else 0
    elif indent is None and comma is not None and place == 0:
        end += len(text[end:]) - len(text[end:].lstrip(" \t"))
    elif indent is None:
        start -= len(text[:start]) - len(text[:start].rstrip(" \t")) if place else 0
    cuts.append((start, end))
    for cut in sorted(cuts, reverse=True):
        text = text[: cut[0]] + text[cut[1] :]
    return text
