"""Edits TOML as text: an entry is a block at the end of the file, so that everything before it keeps every byte. Pure.

An edit is checked by reading the result back: it is the old value with exactly the intended difference, or refused.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from fencepost.connect.texts import NotEditable, NotReadable


class NotToml(NotReadable):
    """The text is not TOML; says what and where."""


def read(text: str) -> dict[str, Any]:
    """Return the plain value of a text.

    Raises:
        NotToml: it is none.
    """
    try:
        return tomllib.loads(text.replace("\r\n", "\n"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise NotToml(str(error)) from None


def block(path: Sequence[str], value: Mapping[str, Any], *, newline: str = "\n") -> str:
    """Return the tables that give `value` its place at `path`, as they are appended to a file."""
    outer: Any = tomlkit.document()
    document = outer
    for key in path[:-1]:
        outer[key] = tomlkit.table(is_super_table=True)
        outer = outer[key]
    outer[path[-1]] = _table(value)
    return str(tomlkit.dumps(document)).strip("\n").replace("\n", newline) + newline


def _table(value: Mapping[str, Any]) -> Any:
    """Return a table: what is plain first, then inline tables, then tables of tables."""
    table = tomlkit.table()
    for key, inner in value.items():
        if not isinstance(inner, Mapping):
            table[key] = inner
        elif not any(isinstance(deep, Mapping) for deep in inner.values()):
            inline = tomlkit.inline_table()
            inline.update(inner)
            table[key] = inline
    for key, inner in value.items():
        if isinstance(inner, Mapping) and any(isinstance(deep, Mapping) for deep in inner.values()):
            nested = tomlkit.table(is_super_table=True)
            for name, deep in inner.items():
                nested[name] = _table(deep)
            table[key] = nested
    return table


def append(text: str, path: Sequence[str], value: Mapping[str, Any]) -> tuple[str, str]:
    """Return the text with an entry more at its end, and what was added.

    Raises:
        NotEditable: something is at this path already, or the file is written in a way that admits no such table.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    wanted = copy.deepcopy(read(text))
    place: Any = wanted
    for key in path[:-1]:
        place = place.setdefault(key, {})
        if not isinstance(place, dict):
            raise NotEditable(f"{key} is no table")
    if path[-1] in place:
        raise NotEditable(f"{'.'.join(path)} is there already")
    place[path[-1]] = dict(value)
    gap = "" if not text else newline if text.endswith("\n") else newline * 2
    added = gap + block(path, value, newline=newline)
    return _checked(text + added, wanted), added


def remove(text: str, path: Sequence[str], added: str) -> str:
    """Return the text without the entry at `path`: the very block that was added, or where it was moved, the tables.

    Raises:
        NotEditable: nothing is there, or it is written in a way in which it cannot be taken out.
    """
    wanted = copy.deepcopy(read(text))
    place: Any = wanted
    for key in path[:-1]:
        place = place.get(key) if isinstance(place, dict) else None
    if not isinstance(place, dict) or path[-1] not in place:
        raise NotEditable(f"{'.'.join(path)} is not there")
    del place[path[-1]]
    # A table that held only ours came with it.
    _prune(wanted, path[:-1])
    for piece in (added, added.lstrip("\r\n")):
        if piece and text.count(piece) == 1:
            try:
                return _checked(text.replace(piece, ""), wanted)
            except NotEditable:
                continue
    try:
        document = tomlkit.parse(text)
        _delete(document, path)
        return _checked(tomlkit.dumps(document), wanted)
    except (TOMLKitError, KeyError, TypeError) as error:
        raise NotEditable(f"the entry cannot be taken out: {error}") from None


def _delete(document: Any, path: Sequence[str]) -> None:
    place = document
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]


def _prune(value: dict[str, Any], path: Sequence[str]) -> None:
    for length in range(len(path), 0, -1):
        place: Any = value
        for key in path[: length - 1]:
            place = place[key]
        if place[path[length - 1]] != {}:
            return
        del place[path[length - 1]]


def _checked(text: str, wanted: dict[str, Any]) -> str:
    try:
        got = read(text)
    except NotToml as error:
        raise NotEditable(f"the edit does not read back: {error}") from None
    if not _same(got, wanted):
        raise NotEditable("the edit does not read back as intended")
    return text


def _same(left: Any, right: Any) -> bool:
    """Compare without empty tables, which nobody reads and which come and go with their last entry."""
    if isinstance(left, dict) and isinstance(right, dict):
        keys = {key for side in (left, right) for key, value in side.items() if value != {}}
        return all(_same(left.get(key, {}), right.get(key, {})) for key in keys)
    return type(left) is type(right) and (left == right or (left != left and right != right))  # noqa: PLR0124 (nan)
