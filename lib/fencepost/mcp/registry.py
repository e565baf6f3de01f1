"""The tool table: every family's rows, what a server offers of them, and what is made of a call.

One row is one tool; `tools/list`, the checker, the shim's knowledge of what may be asked again, the edge's routing and
the reference page all come from it. A tool is added by a row in `families` and a handler in the edge. Standard library
only. After a change here or there: `make proto`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fencepost.mcp import profiles, wire
from fencepost.mcp.families import agents, context, evidence, files, tasks
from fencepost.mcp.families.messaging import (
    BODY_BYTES_MAX,
    CURSOR_CHARS_MAX,
    INSTRUCTIONS,
    PAGE_RECORDS_MAX,
    REQUEST_ID_CHARS_MAX,
    TOOLS,
    WAIT_MS_MAX,
)
from fencepost.mcp.kinds import (
    TARGET_CHARS_MAX,
    Choice,
    Count,
    Flag,
    Kind,
    Moment,
    Problem,
    Prose,
    Record,
    Several,
    Target,
    Text,
    Uuid,
    Whole,
)
from fencepost.mcp.tool import NAMED_CHARS_MAX, Hints, Lost, Tool, named, renamed

__all__ = [
    "BODY_BYTES_MAX",
    "CURSOR_CHARS_MAX",
    "INSTRUCTIONS",
    "NAMED_CHARS_MAX",
    "PAGE_RECORDS_MAX",
    "REQUEST_ID_CHARS_MAX",
    "TARGET_CHARS_MAX",
    "TOOLS",
    "WAIT_MS_MAX",
    "Choice",
    "Count",
    "Flag",
    "Hints",
    "Kind",
    "Lost",
    "Moment",
    "Problem",
    "Prose",
    "Record",
    "Several",
    "Target",
    "Text",
    "Tool",
    "Uuid",
    "Whole",
    "renamed",
]

# The seven, and every family together, under each set of names.
TOOLS_LIST_BYTES_MAX: Final = 8 * 1024
ALL_TOOLS_LIST_BYTES_MAX: Final = 24 * 1024
# Of one family; a server says those of the families that it offers.
INSTRUCTION_WORDS_MAX: Final = 120

# Versions of the protocol whose handshake is `initialize`, oldest first. The last is offered for an unknown one.
VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
BATCH_VERSION: Final = "2025-03-26"
# Versions under which each request names its version and nothing is remembered between requests.
MODERN_VERSIONS: Final = ("2026-07-28",)
# How long a client may keep what discovery told it. The answers change with an upgrade only.
DISCOVERY_TTL_MS: Final = 300_000

# The seven, which stand for themselves wherever nothing else is set.
TOOL_OF: Final[Mapping[str, Tool]] = {tool.name: tool for tool in TOOLS}
# Every tool of every family, in the order in which they are listed.
EVERY: Final[tuple[Tool, ...]] = (*TOOLS, *tasks.TOOLS, *evidence.TOOLS, *agents.TOOLS, *context.TOOLS, *files.TOOLS)
EVERY_OF: Final[Mapping[str, Tool]] = {tool.name: tool for tool in EVERY}
# What a model is told of each family.
TOLD: Final[Mapping[str, str]] = {
    profiles.MESSAGING: INSTRUCTIONS,
    profiles.TASKS: tasks.INSTRUCTIONS,
    profiles.CONTEXT: context.INSTRUCTIONS,
    profiles.FILES: files.INSTRUCTIONS,
}
# The other names. Those of messaging are no names of that system, and stay.
WARPED: Final[Mapping[str, str]] = {
    tool.name: f"{profiles.WARP_PREFIX}{tool.name}" for tool in EVERY if tool.family != profiles.MESSAGING
}

# Verbs of earlier systems, refused with the verb that took their place.
RETIRED: Final[Mapping[str, str]] = {
    "send": "send_message",
    "send_input": "send_message",
    "ask": "followup_task",
    "receive": "receive_messages",
    "wait": "wait_agent",
    "interrupt": "interrupt_agent",
}

# Fields that later versions of the protocol put beside the arguments; they mean nothing here and are ignored.
_IGNORED_PARAMS: Final = frozenset({"_meta", "task", "inputResponses", "requestState"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """A call whose arguments are what its schema allows."""

    tool: Tool
    arguments: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Malformed:
    """A call that no tool is asked for; the text never repeats a value."""

    message: str
    hint: str = ""
    # True: the call is wrong, which is an error of the protocol. False: its arguments are, which is the tool's.
    protocol: bool

    def line(self, id_text: str) -> bytes:
        """Return the line, without its end, that answers the call."""
        if self.protocol:
            return wire.failure(id_text, wire.INVALID_PARAMS, self.message)
        return wire.tool_error(id_text, code="invalid_arguments", message=self.message, hint=self.hint)


@dataclass(frozen=True, kw_only=True, slots=True)
class Menu:
    """What one server offers: its tools by the names that it shows, and what it tells a model of them."""

    tools: Mapping[str, Tool]
    instructions: str
    warp: bool


@functools.cache
def menu(families: frozenset[str], *, warp: bool = False) -> Menu:
    """Return what a server of these families offers; `warp`: under the other names."""
    offered = [tool for tool in EVERY if tool.family in families]
    told = " ".join(TOLD[family] for family in profiles.FAMILIES if family in families and family in TOLD)
    if warp:
        shown = {tool.name: tool.name for tool in EVERY} | dict(WARPED)
        offered = [tool if tool.name == shown[tool.name] else tool.warped(shown) for tool in offered]
        told = renamed(told, WARPED)
    return Menu(tools={tool.name: tool for tool in offered}, instructions=told, warp=warp)


MESSAGING_MENU: Final = menu(profiles.DEFAULT)


def every_shown() -> list[dict[str, Any]]:
    """Return every tool under each of its names, as a server shows it."""
    menus = [menu(frozenset(profiles.FAMILIES), warp=warp) for warp in (False, True)]
    return [tool.wire() for each in menus for tool in each.tools.values()]


def plain_name(name: str) -> str:
    """Return the name of a tool in this table, by whichever name it was shown."""
    return name.removeprefix(profiles.WARP_PREFIX)


def examine(params: Mapping[str, Any], offered: Menu = MESSAGING_MENU) -> Checked | Malformed:
    """Return the checked call of these tools/call params, or what is wrong with it. The tool is that of the table."""
    name = params.get("name")
    if not isinstance(name, str):
        return Malformed(message="params.name must be a string", protocol=True)
    for key in params:
        if key not in ("name", "arguments") and key not in _IGNORED_PARAMS:
            message = f"{named(key, 'field')} in params, which are name, arguments and _meta"
            return Malformed(message=message, protocol=True)
    tool = offered.tools.get(name)
    if tool is None:
        successor = RETIRED.get(name)
        known = f"there are {', '.join(offered.tools)}" if offered.tools else "this server offers no tools"
        if successor in offered.tools:
            known = f"use {successor}"
        return Malformed(message=f"{named(name, 'tool')}: {known}", protocol=True)
    try:
        return Checked(tool=EVERY_OF[plain_name(name)], arguments=tool.check(params.get("arguments", {})))
    except Problem as problem:
        return Malformed(
            message=f"{problem}; nothing was done.",
            hint=f"Correct the arguments of {tool.name} and call it again.",
            protocol=False,
        )
