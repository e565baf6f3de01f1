"""The entries of our server in the configurations of programs, whoever wrote them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fencepost.connect import files, jsonc, records, tomls
from fencepost.connect.entry import SCRIPT, SERVER_NAME
from fencepost.connect.plan import configuration_of
from fencepost.connect.programs import PROGRAMS, Environment, Program, Syntax
from fencepost.connect.texts import NotReadable
from fencepost.errors import Refused
from fencepost.home import Home
from fencepost.mcp import registry
from fencepost.mcp.arguments import FLAGS, Asked, given

NEVER: Final = "never"
_SERVE: Final = ["mcp", "serve"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One server of ours in one configuration."""

    program: str
    title: str
    file: Path
    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    enabled: bool
    # The tools that the program would refuse without asking anybody.
    refused_tools: tuple[str, ...] = ()

    @property
    def asked(self) -> Asked | None:
        """The agent that the arguments name, if they name one."""
        words = list(self.command)
        at = next((at for at, word in enumerate(words) if word.partition("=")[0] in FLAGS), None)
        try:
            return None if at is None else given(words[at:]).asked
        except ValueError:
            return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Unreadable:
    """A configuration that cannot be read."""

    program: str
    title: str
    file: Path
    why: str


def is_ours(command: tuple[str, ...] | list[str]) -> bool:
    """Tell whether a command starts our server."""
    words = list(command)
    names = [os.path.basename(word) for word in words]  # noqa: PTH119 (any text, a path or not)
    return (
        SCRIPT in names[:3]
        or "fencepost.mcp.shim" in words[:6]
        or any(
            name in ("fencepost", "fencepost.py") and words[at + 1 : at + 3] == _SERVE for at, name in enumerate(names)
        )
    )


def every(home: Home, env: Environment) -> Iterator[Entry | Unreadable]:
    """Yield our entries of every program: where the environment says its configuration lies, and where we wrote one."""
    places = {(program.name, configuration_of(program, env)) for program in PROGRAMS.values()}
    for record in records.every(home):
        if record.program in PROGRAMS:
            places.add((record.program, record.configuration))
    for name, path in sorted(places):
        yield from of_file(PROGRAMS[name], path)


def of_file(program: Program, path: Path) -> Iterator[Entry | Unreadable]:
    """Yield our entries of one configuration; nothing where there is none."""
    try:
        raw = files.read(path)
        if raw is None:
            return
        text = files.text_of(path, raw).removeprefix(files.BOM)
        whole: Any = tomls.read(text) if program.syntax is Syntax.TOML else jsonc.read(text)
    except Refused as refused:
        yield Unreadable(program=program.name, title=program.title, file=path, why=refused.message)
        return
    except NotReadable as error:
        yield Unreadable(program=program.name, title=program.title, file=path, why=str(error))
        return
    servers: Any = whole
    for key in program.servers:
        servers = servers.get(key) if isinstance(servers, dict) else None
    for name, entry in servers.items() if isinstance(servers, dict) else ():
        found = _entry(program, path, str(name), entry, whole)
        if found is not None:
            yield found


def _entry(program: Program, path: Path, name: str, entry: Any, whole: Any) -> Entry | None:
    if not isinstance(entry, dict):
        return None
    command = entry.get("command")
    words = [command] if isinstance(command, str) else list(command) if isinstance(command, list) else []
    arguments = entry.get("args", [])
    words += arguments if isinstance(arguments, list) else []
    if not all(isinstance(word, str) for word in words) or not words:
        return None
    if not is_ours(words) and name != SERVER_NAME:
        return None
    environment = entry.get("env", entry.get("environment", {}))
    environment = environment if isinstance(environment, dict) else {}
    return Entry(
        program=program.name,
        title=program.title,
        file=path,
        name=name,
        command=tuple(words),
        environment={str(key): str(value) for key, value in environment.items()},
        enabled=entry.get("enabled") is not False and entry.get("disabled") is not True,
        refused_tools=_refused_tools(entry, whole) if program.name == "codex" else (),
    )


def _refused_tools(entry: Mapping[str, Any], whole: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the tools that Codex refuses by itself: under approval_policy never, those that are not approved."""
    if whole.get("approval_policy") != NEVER or entry.get("default_tools_approval_mode") == "approve":
        return ()
    tools = entry.get("tools", {})
    tools = tools if isinstance(tools, dict) else {}
    approved = {
        name for name, tool in tools.items() if isinstance(tool, dict) and tool.get("approval_mode") == "approve"
    }
    return tuple(name for name in registry.TOOL_OF if name not in approved)
