"""What is changed in a configuration: each change can be made, recognised, and taken out again. Pure."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from fencepost.connect import jsonc, tomls
from fencepost.connect.programs import Approving, Program, Syntax
from fencepost.connect.texts import NotEditable
from fencepost.errors import Refused

ALLOW: Final = "allow"
BEGIN: Final = "<!-- fencepost: begin -->"
END: Final = "<!-- fencepost: end -->"
SNIPPET: Final = f"""{BEGIN}
## Messages of other agents

You have a durable mailbox, the MCP server `fencepost`. Receive once when you begin and when you expect something:
`wait_agent`, then `receive_messages`; acknowledge a page by its `ack_cursor` when you have dealt with it. Work on each
request and `reply` to it once. An empty wait is no failure. Never send again because an answer is slow or uncertain.
{END}
"""


class Kind(enum.StrEnum):
    """What a change adds."""

    TABLE = "table"
    MEMBER = "member"
    ELEMENT = "element"
    TEXT = "text"


class State(enum.Enum):
    """What is found where a change would be or was made."""

    ABSENT = "absent"
    SAME = "same"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One thing that is added to a file: a value at a path, or a piece of text at the end."""

    kind: Kind
    path: tuple[str, ...] = ()
    value: Any = None
    # The very text that was added, where it was added as one piece.
    piece: str = ""
    # How many objects or tables on the way were made for it.
    made: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the change as a record keeps it."""
        return asdict(self) | {"kind": self.kind.value, "path": list(self.path)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Change:
        """Return the change that a record keeps; KeyError, TypeError or ValueError where it keeps none."""
        return cls(
            kind=Kind(fields["kind"]),
            path=tuple(str(key) for key in fields["path"]),
            value=fields["value"],
            piece=str(fields["piece"]),
            made=int(fields["made"]),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """The changes that one file is to have, and in what it is written."""

    role: str
    syntax: Syntax | None
    changes: tuple[Change, ...]


def entry_changes(program: Program, entry: Mapping[str, Any], tools: Sequence[str]) -> tuple[Wanted, Wanted | None]:
    """Return what the configuration is to have, and what a second file is to have for approvals.

    Refuses approvals for a program in which nobody knows how; a program that never asks needs none.
    """
    value, approval = dict(entry), program.approval
    elsewhere: tuple[Change, ...] = ()
    if tools and approval.how is Approving.UNKNOWN:
        raise Refused(
            "unsupported_capability",
            f"how {program.title} is told that a tool is approved is not known here; nothing was written",
            hint="Leave out --approve, and approve the tools in the program itself.",
        )
    if approval.how is Approving.IN_ENTRY and tools:
        value["tools"] = {tool: {"approval_mode": "approve"} for tool in tools}
    elif approval.how is Approving.MEMBER:
        elsewhere = tuple(
            Change(kind=Kind.MEMBER, path=(*approval.path, approval.pattern.format(tool=tool)), value=ALLOW)
            for tool in tools
        )
    elif approval.how is Approving.ELEMENT:
        elsewhere = tuple(
            Change(kind=Kind.ELEMENT, path=approval.path, value=approval.pattern.format(tool=tool)) for tool in tools
        )
    kind = Kind.TABLE if program.syntax is Syntax.TOML else Kind.MEMBER
    own = Change(kind=kind, path=program.path, value=value)
    if approval.file is None:
        return Wanted(role="configuration", syntax=program.syntax, changes=(own, *elsewhere)), None
    second = Wanted(role="approvals", syntax=Syntax.JSON, changes=elsewhere) if elsewhere else None
    return Wanted(role="configuration", syntax=program.syntax, changes=(own,)), second


def snippet_change() -> Wanted:
    """Return what a file of instructions is to have."""
    return Wanted(role="instructions", syntax=None, changes=(Change(kind=Kind.TEXT, piece=SNIPPET),))


def state(text: str, change: Change) -> State:
    """Return what stands in `text` where `change` is made.

    Raises:
        NotReadable: the text cannot be read.
    """
    if change.kind is Kind.TEXT:
        return State.SAME if BEGIN in text else State.ABSENT
    place: Any = tomls.read(text) if change.kind is Kind.TABLE else jsonc.read(text)
    for key in change.path:
        if not isinstance(place, dict) or key not in place:
            return State.ABSENT
        place = place[key]
    if change.kind is Kind.ELEMENT:
        return State.SAME if isinstance(place, list) and change.value in place else State.ABSENT
    return State.SAME if _same(place, change.value) else State.OTHER


def made(text: str, change: Change) -> tuple[str, Change]:
    """Return the text with the change, and the change as it is to be remembered.

    Raises:
        NotEditable: it cannot be made safely.
    """
    if change.kind is Kind.TEXT:
        newline = "\r\n" if "\r\n" in text else "\n"
        gap = "" if not text else newline if text.endswith("\n") else newline * 2
        piece = gap + change.piece.replace("\n", newline)
        return text + piece, replace(change, piece=piece)
    if change.kind is Kind.TABLE:
        text, piece = tomls.append(text, change.path, change.value)
        return text, replace(change, piece=piece)
    missing = _missing(jsonc.read(text), change)
    if change.kind is Kind.MEMBER:
        return jsonc.set_member(text, change.path, change.value), replace(change, made=missing)
    return jsonc.add_element(text, change.path, change.value), replace(change, made=missing)


def unmade(text: str, change: Change) -> str:
    """Return the text without a change that stands in it; what was made on the way goes too where it is empty now.

    Raises:
        NotEditable: it cannot be taken out safely.
    """
    if change.kind is Kind.TEXT:
        return _without_snippet(text, change.piece)
    if change.kind is Kind.TABLE:
        return tomls.remove(text, change.path, change.piece)
    if change.kind is Kind.MEMBER:
        text, path = jsonc.remove_member(text, change.path), change.path[:-1]
    else:
        text, path = jsonc.remove_element(text, change.path, change.value), change.path
    for _ in range(change.made):
        place: Any = jsonc.read(text)
        for key in path:
            place = place[key]
        if place not in ({}, []):
            break
        text, path = jsonc.remove_member(text, path), path[:-1]
    return text


def _missing(value: Any, change: Change) -> int:
    """Return how many objects or arrays on the way of a change are not there yet."""
    way = change.path[:-1] if change.kind is Kind.MEMBER else change.path
    for depth, key in enumerate(way):
        if not isinstance(value, dict) or key not in value:
            return len(way) - depth
        value = value[key]
    return 0


def _without_snippet(text: str, piece: str) -> str:
    for found in (piece, piece.lstrip("\r\n")):
        if found and text.count(found) == 1:
            return text.replace(found, "")
    begin, end = text.find(BEGIN), text.find(END)
    if begin < 0 or end < begin or text.count(BEGIN) != 1 or text.count(END) != 1:
        raise NotEditable("the marks of the snippet are not there once each")
    rest = text[end + len(END) :]
    return text[:begin] + rest.removeprefix("\r").removeprefix("\n")


def _same(left: Any, right: Any) -> bool:
    """Compare as JSON does: neither 1 and true nor 1 and 1.0 are the same."""
    try:
        return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)
    except (TypeError, ValueError):
        return False
