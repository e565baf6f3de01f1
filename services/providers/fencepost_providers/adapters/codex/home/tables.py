"""TOML as values and as text: leaves, digests, and edits that keep every comment and every other byte. Pure.

An edit is read back before it counts: it is the old value with exactly the intended difference, or it is refused.
"""

from __future__ import annotations

import copy
import datetime
import enum
import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

Path = tuple[str, ...]


class NotToml(ValueError):
    """The text is not TOML; says what is wrong and where."""


class NotEditable(ValueError):
    """The edit cannot be made in this text without touching something else."""


class Absent(enum.Enum):
    """What a lookup says where there is no value."""

    MISSING = "missing"
    BLOCKED = "blocked"  # something that is no table stands on the way


MISSING: Final = Absent.MISSING
BLOCKED: Final = Absent.BLOCKED


def parse(text: str) -> dict[str, Any]:
    """Return the plain value of a text.

    Raises:
        NotToml: it is none.
    """
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise NotToml(str(error)) from None


def leaves(value: Mapping[str, Any], at: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield path and value of everything that is no table. A list is one value."""
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            yield from leaves(inner, (*at, key))
        else:
            yield (*at, key), inner


def lookup(value: Mapping[str, Any], path: Path) -> Any:
    """Return what stands at a path, MISSING, or BLOCKED."""
    place: Any = value
    for key in path:
        if not isinstance(place, Mapping):
            return BLOCKED
        if key not in place:
            return MISSING
        place = place[key]
    return place


def digest(value: Any) -> str:
    """Return what identifies a value; 1, 1.0 and true are three."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=_other).encode()).hexdigest()


def _other(value: Any) -> str:
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return f"{type(value).__name__}:{value.isoformat()}"
    raise TypeError(type(value).__name__)


def edited(text: str, sets: Mapping[Path, Any], removes: Sequence[Path]) -> str:
    """Return the text with values set and others taken out; tables that this emptied go too, without their comments.

    An empty table is not left behind: to Codex an entry without a command is an error that stops it.

    Raises:
        NotToml: the text is none.
        NotEditable: see there; nothing of it was done.
    """
    try:
        return _with(_without(text, removes), sets)
    except (NotEditable, NotToml):
        raise
    except (TOMLKitError, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise NotEditable(f"the edit does not fit this file: {error}") from None


def _without(text: str, removes: Sequence[Path]) -> str:
    before = parse(text)
    wanted: dict[str, Any] = copy.deepcopy(before)
    for path in removes:
        place = lookup(wanted, path[:-1])
        if isinstance(place, dict):
            place.pop(path[-1], None)
    if same(before, wanted):
        return text
    document = tomlkit.parse(text)
    for path in removes:
        _delete(document, path)
    return _checked(_without_emptied(tomlkit.dumps(document), removes), wanted)


def _with(text: str, sets: Mapping[Path, Any]) -> str:
    before = parse(text)
    wanted: dict[str, Any] = copy.deepcopy(before)
    for path, value in sets.items():
        _nest(wanted, path, value)
    if same(before, wanted):
        return text
    document = tomlkit.parse(text)
    fresh: dict[str, Any] = {}
    for path, value in sets.items():
        if not _put(document, path, value):
            _nest(fresh, path, value)
    return _checked(_appended(tomlkit.dumps(document), fresh), wanted)


def _nest(value: dict[str, Any], path: Path, leaf: Any) -> None:
    place = value
    for key in path[:-1]:
        place = place.setdefault(key, {})
        if not isinstance(place, dict):
            raise NotEditable(f"{key} is no table")
    if isinstance(place.get(path[-1]), dict) and not isinstance(leaf, Mapping):
        raise NotEditable(f"{path[-1]} is a table")
    place[path[-1]] = leaf


def _delete(document: Any, path: Path) -> None:
    """Take a value out, then the tables on one line that hold nothing any more."""
    for length in range(len(path), 0, -1):
        place = document
        for key in path[: length - 1]:
            if not isinstance(place, MutableMapping) or key not in place:
                return
            place = place[key]
        if not isinstance(place, MutableMapping) or path[length - 1] not in place:
            return
        if length < len(path):
            inner = place[path[length - 1]]
            if len(inner) or not isinstance(inner, InlineTable):
                return
        del place[path[length - 1]]


def _without_emptied(text: str, removes: Sequence[Path]) -> str:
    """Drop the headers of tables that lost their last value; comments below them stay where they are."""
    value = parse(text)
    above = {path[:length] for path in removes for length in range(1, len(path))}
    emptied = {path for path in above if _empty(lookup(value, path))}
    if not emptied:
        return text
    lines = text.split("\n")
    return "\n".join(line for line in lines if not _below(_header(line), emptied))


def _below(path: Path | None, emptied: set[Path]) -> bool:
    return path is not None and any(path[:length] in emptied for length in range(1, len(path) + 1))


def _header(line: str) -> Path | None:
    """Return the path of a table's header, or None where a line is none."""
    if not line.lstrip().startswith("[") or line.lstrip().startswith("[["):
        return None
    try:
        place: Any = tomllib.loads(line.strip())
    except tomllib.TOMLDecodeError:
        return None
    path: list[str] = []
    while isinstance(place, dict) and len(place) == 1:
        [(key, place)] = place.items()
        path.append(key)
    return tuple(path)


def _put(document: Any, path: Path, value: Any) -> bool:
    """Set a value in a table that is there; tell where there is none."""
    place = document
    for key in path[:-1]:
        if key not in place:
            return False
        place = place[key]
        if not isinstance(place, MutableMapping):
            raise NotEditable(f"{key} is no table")
    place[path[-1]] = _item(value)
    return True


def _item(value: Any) -> Any:
    if isinstance(value, Mapping):
        table = tomlkit.inline_table()
        table.update({key: _item(inner) for key, inner in value.items()})
        return table
    if isinstance(value, list):
        array = tomlkit.array()
        array.extend([_item(inner) for inner in value])
        return array
    return tomlkit.item(value)


def _appended(text: str, fresh: Mapping[str, Any]) -> str:
    """Return the text with new tables at its end."""
    if not fresh:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    gap = "" if not text else newline if text.endswith("\n") else newline * 2
    blocks = [block(path, inner) for path, inner in _tables(fresh)]
    return text + gap + "\n".join(blocks).replace("\n", newline)


def _tables(fresh: Mapping[str, Any], at: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    plain = {key: inner for key, inner in fresh.items() if not _is_table(inner)}
    if plain and at:
        yield at, plain
    for key, inner in fresh.items():
        if _is_table(inner):
            yield from _tables(inner, (*at, key))


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) and not isinstance(value, Inline)


class Inline(dict[str, Any]):
    """A table that is written on one line, and counts as one value."""


def block(path: Path, values: Mapping[str, Any]) -> str:
    """Return a table with its header, as it is appended to a file."""
    header = ".".join(tomlkit.key(key).as_string() for key in path)
    table = tomlkit.document()
    for key, value in values.items():
        table[key] = _item(value)
    return f"[{header}]\n{tomlkit.dumps(table)}"


def _checked(text: str, wanted: dict[str, Any]) -> str:
    try:
        got = parse(text)
    except NotToml as error:
        raise NotEditable(f"the edit does not read back: {error}") from None
    if not same(got, wanted):
        raise NotEditable("the edit does not read back as intended")
    return text


def same(left: Any, right: Any) -> bool:
    """Compare values by type and content; empty tables, which come and go with their last entry, count as none."""
    if isinstance(left, dict) and isinstance(right, dict):
        keys = {key for side in (left, right) for key, value in side.items() if not _empty(value)}
        return all(same(left.get(key, {}), right.get(key, {})) for key in keys)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and (left == right or (left != left and right != right))  # noqa: PLR0124 (nan)


def _empty(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_empty, value.values()))
