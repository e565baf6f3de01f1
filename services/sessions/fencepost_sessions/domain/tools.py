"""Which MCP tools are offered: families by their names (T002). What they hold is the matter of whoever serves them."""

from __future__ import annotations

from typing import Final

TOOL_FAMILIES: Final = ("messaging", "tasks", "context", "files")
ALL_TOOLS: Final = "all"
NO_TOOLS: Final = "off"


def tools_flaw(text: str) -> str | None:
    """Return what is wrong with a profile: it is `all`, `off`, or families with commas between them."""
    words = text.split(",")
    if text in (ALL_TOOLS, NO_TOOLS) or (len(set(words)) == len(words) and set(words) <= set(TOOL_FAMILIES)):
        return None
    return f"is none of {ALL_TOOLS}, {NO_TOOLS}, and of {', '.join(TOOL_FAMILIES)} with commas between them"


def tools_shown(of_agent: str, of_project: str) -> str:
    """Return the profile that holds for an agent: its own, else its project's; empty where nobody set one."""
    return of_agent or of_project
