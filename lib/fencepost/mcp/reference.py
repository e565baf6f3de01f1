"""The tables of docs/reference/tools.md that are made of the registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from fencepost.mcp import profiles, registry
from fencepost.mcp.kinds import Assignee
from fencepost.mcp.tool import Lost, Tool

PAGE: Final = Path(__file__).parents[3] / "docs/reference/tools.md"
_BEGIN: Final = "<!-- generated: {} -->\n"
_END: Final = "<!-- end: {} -->\n"
_LOST: Final = {Lost.SETTLE: "settled", Lost.ASK_AGAIN: "asked again", Lost.TELL: "told"}


def page_text(page: str) -> str:
    """Return the page with every family's table as the registry has it now. What stands around them stays."""
    for family in profiles.FAMILIES:
        begin, end = _BEGIN.format(family), _END.format(family)
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if found and closed:
            page = f"{before}{begin}\n{table(family)}\n{end}{after}"
    return page


def table(family: str) -> str:
    """Return the table of a family: its tools by both names, what each takes and returns, and its lost answer."""
    tools = [tool for tool in registry.EVERY if tool.family == family]
    lines = ["| tool | parameters | returns besides `operation` | lost answer |", "| --- | --- | --- | --- |"]
    lines += [f"| {_names(tool)} | {_parameters(tool)} | {tool.returns} | {_LOST[tool.lost]} |" for tool in tools]
    return "\n".join(lines) + "\n"


def _names(tool: Tool) -> str:
    other = registry.WARPED.get(tool.name)
    return f"`{tool.name}`" + (f"<br>`{other}`" if other else "")


def _parameters(tool: Tool) -> str:
    told = [
        f"`{name}`{'' if name in tool.required else '?'} {_kind(kind)}".rstrip()
        for name, kind in tool.arguments.items()
    ]
    return "<br>".join(told)


def _kind(kind: Any) -> str:
    if isinstance(kind, registry.Choice):
        return ", ".join(kind.words)
    if isinstance(kind, registry.Whole | registry.Count):
        return f"{kind.least} to {kind.most}"
    if isinstance(kind, registry.Flag):
        return "true or false"
    if isinstance(kind, registry.Moment):
        return "ISO 8601 with offset"
    if isinstance(kind, registry.Uuid):
        return "UUID"
    if isinstance(kind, registry.Several):
        return f"list of {kind.least} to {kind.most}: {_kind(kind.of)}".rstrip(": ")
    if isinstance(kind, registry.Record):
        fields = [f"`{name}`{'' if name in kind.required else '?'}" for name in kind.values]
        return f"{{{', '.join(fields)}}}"
    if isinstance(kind, Assignee):
        return "agent, or the path of its checkout"
    if isinstance(kind, registry.Target):
        return "agent"
    if isinstance(kind, registry.Prose):
        return f"text, at most {kind.bytes_max} bytes"
    bytes_max = kind.bytes_max
    return f"text, at most {kind.chars_max} characters" if bytes_max is None else f"text, at most {bytes_max} bytes"
