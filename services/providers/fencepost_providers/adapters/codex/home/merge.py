"""What of the user's own configuration an agent's has: a three-way merge in which the agent's values win. Pure.

The record of a merge holds a digest of every value that came from the native file. A value that still has its digest
is not the agent's: it follows the native file, into and out of the private one (R126, M152). Everything else, comments
included, belongs to the agent and stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fencepost_providers.adapters.codex.home import tables
from fencepost_providers.adapters.codex.home.tables import BLOCKED, MISSING, Path

SERVER_NAME: Final = "fencepost"
SERVERS: Final = "mcp_servers"
# Never merged: trust of projects, which plugins are enabled (R125), our own server, and where databases and logs lie.
EXCLUDED: Final = (("projects",), ("plugins",), ("sqlite_home",), ("log_dir",), (SERVERS, SERVER_NAME))
# Tables of entries that work only as a whole: half of one and half of another is none.
ENTRIES: Final = frozenset({SERVERS, "marketplaces", "model_providers", "profiles"})
# What may differ in an entry while the rest of it still follows the native one.
APART: Final = frozenset(
    {
        "default_tools_approval_mode",
        "disabled_tools",
        "enabled",
        "enabled_tools",
        "required",
        "startup_timeout_sec",
        "tool_timeout_sec",
        "tools",
    }
)

Digests = Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Merge:
    """What is to be done to the private configuration, and what of it came from the native one afterwards."""

    sets: Mapping[Path, Any]
    removes: tuple[Path, ...]
    origin: Digests


def key_of(path: Path) -> str:
    """Return how a record names a path."""
    return json.dumps(path, ensure_ascii=False)


def path_of(key: str) -> Path:
    """Return the path that a record names."""
    return tuple(json.loads(key))


def excluded(path: Path) -> bool:
    """Tell whether a path is never merged."""
    return any(path[: len(prefix)] == prefix for prefix in EXCLUDED)


def merged(private: Mapping[str, Any], native: Mapping[str, Any], origin: Digests) -> Merge:
    """Return how the private configuration follows the native one since `origin` was recorded."""
    wanted = {path: value for path, value in tables.leaves(native) if not excluded(path)}
    known = {path_of(key): digest for key, digest in origin.items()}
    known = {path: digest for path, digest in known.items() if not excluded(path)}
    own = _own_entries(private, [*wanted, *known], known)
    sets: dict[Path, Any] = {}
    removes: list[Path] = []
    after: dict[str, str] = {}
    for path, value in wanted.items():
        found, before, digest = tables.lookup(private, path), known.get(path), tables.digest(value)
        if path[:2] in own or found is BLOCKED:
            kept = before
        elif found is MISSING:
            # What was merged and is gone has been taken out by somebody: it stays out.
            kept = before or digest
            if before is None:
                sets[path] = value
        elif before is not None and tables.digest(found) == before:
            kept = digest
            if digest != before:
                sets[path] = value
        else:
            kept = before
        if kept is not None:
            after[key_of(path)] = kept
    for path, before in known.items():
        if path in wanted:
            continue
        found = tables.lookup(private, path)
        if path[:2] not in own and found not in (MISSING, BLOCKED) and tables.digest(found) == before:
            removes.append(path)
    return Merge(sets=sets, removes=tuple(removes), origin=after)


def _own_entries(private: Mapping[str, Any], paths: Iterable[Path], known: Mapping[Path, str]) -> set[Path]:
    """Return the entries that the agent has made, changed or taken out: they are kept as they are."""
    entries = {path[:2] for path in paths if path[0] in ENTRIES}
    own: set[Path] = set()
    for entry in entries:
        found = tables.lookup(private, entry)
        origins = {path: digest for path, digest in known.items() if path[:2] == entry}
        if not origins:
            if found is not MISSING:
                own.add(entry)
            continue
        for path, digest in origins.items():
            value = tables.lookup(private, path)
            gone = found is MISSING or path[2:3] == () or path[2] not in APART
            if gone and (value in (MISSING, BLOCKED) or tables.digest(value) != digest):
                own.add(entry)
    return own


def resolved(private: Mapping[str, Any], record: Mapping[str, Any]) -> Digests:
    """Return the origin that a record attests; where a merge was broken off, each value says whether it got in."""
    before, pending = _digests(record.get("origin")), _digests(record.get("pending"))
    if not pending:
        return before
    origin: dict[str, str] = {}
    for key in {**before, **pending}:
        found = tables.lookup(private, path_of(key))
        there = found not in (MISSING, BLOCKED)
        if there and key in pending and tables.digest(found) == pending[key]:
            origin[key] = pending[key]
        elif key in before:
            origin[key] = before[key]
    return origin


def _digests(value: Any) -> dict[str, str]:
    """Return the digests of a record; what cannot be understood is left out."""
    found: dict[str, str] = {}
    for key, digest in (value if isinstance(value, dict) else {}).items():
        try:
            path = json.loads(key)
        except ValueError:
            continue
        if isinstance(digest, str) and isinstance(path, list) and path and all(isinstance(one, str) for one in path):
            found[key] = digest
    return found


def first_text(native: str) -> str:
    """Return the native text as the first private one: its comments stay, what is never merged is taken out.

    Raises:
        NotToml: the text is none.
        NotEditable: it is written in a way in which that cannot be taken out.
    """
    out = [path for path, _ in tables.leaves(tables.parse(native)) if excluded(path)]
    return tables.edited(native, {}, out)
