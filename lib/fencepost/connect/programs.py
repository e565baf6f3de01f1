"""What each agent program's configuration is: where it lies, how an entry is written, how a tool is approved.

Programs differ in everything but this: a named server with a command. Who adds a program adds a row.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from fencepost.connect.entry import SERVER_NAME, TOOL_TIMEOUT_MS, Server
from fencepost.errors import Refused

Environment = Mapping[str, str]


class Syntax(enum.Enum):
    """How a configuration is written."""

    TOML = "toml"
    JSON = "json"


class Approving(enum.Enum):
    """How a program is told that one tool of ours needs no approval."""

    # In the entry itself.
    IN_ENTRY = "in_entry"
    # A member of an object, whose value is "allow".
    MEMBER = "member"
    # An element of an array.
    ELEMENT = "element"
    # It never asks.
    NEVER_ASKED = "never_asked"
    # Nobody has found out how.
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Approval:
    """Where the approval of tools is written, and what stands for one tool. `file` is None: the configuration's own."""

    how: Approving
    path: tuple[str, ...] = ()
    pattern: str = "{tool}"
    file: Callable[[Environment], Path] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """One agent program."""

    name: str
    title: str
    syntax: Syntax
    # The file that holds the person's own servers.
    file: Callable[[Environment], Path]
    # Where the servers stand in it; our entry is one level below.
    servers: tuple[str, ...]
    entry: Callable[[Server], dict[str, Any]]
    # Whether an entry can say how long a tool may take.
    has_tool_timeout: bool
    approval: Approval
    # What the program reads its instructions from, in a project.
    instructions: str
    # How the program itself is asked which servers it knows; empty where it cannot be.
    asks: tuple[str, ...]
    # False where nobody knows in which folder it starts servers, so that an agent by name needs a project.
    starts_in_project: bool = True

    @property
    def path(self) -> tuple[str, ...]:
        """Where our entry stands."""
        return (*self.servers, SERVER_NAME)


def home_of(env: Environment) -> Path:
    """Return the person's home folder as programs find it."""
    named = env.get("HOME", "")
    return Path(named) if named else Path.home()


def _below(variable: str, default: str, *names: str) -> Callable[[Environment], Path]:
    """Return a finder of a file below the folder that a variable names, else below a folder of the home."""

    def find(env: Environment) -> Path:
        named = env.get(variable, "") if variable else ""
        return (Path(named) if named else home_of(env) / default).joinpath(*names)

    return find


def _claude_file(env: Environment) -> Path:
    named = env.get("CLAUDE_CONFIG_DIR", "")
    return (Path(named) if named else home_of(env)) / ".claude.json"


def _opencode_file(env: Environment) -> Path:
    if env.get("OPENCODE_CONFIG"):
        return Path(env["OPENCODE_CONFIG"])
    folder = _below("XDG_CONFIG_HOME", ".config", "opencode")(env)
    with_comments = folder / "opencode.jsonc"
    return with_comments if with_comments.exists() else folder / "opencode.json"


def _codex(server: Server) -> dict[str, Any]:
    # Codex gives its servers next to nothing of its own environment: what names an agent is passed on by name.
    passes = {"env_vars": list(server.passes)} if server.passes else {}
    return {**_plain(server), **passes, "tool_timeout_sec": TOOL_TIMEOUT_MS // 1000}


def _claude(server: Server) -> dict[str, Any]:
    # Without alwaysLoad its model sees no tool of ours before it thinks of searching for one.
    return {"type": "stdio", **_plain(server), "timeout": TOOL_TIMEOUT_MS, "alwaysLoad": True}


def _plain(server: Server) -> dict[str, Any]:
    return {"command": server.command, "args": list(server.arguments), "env": dict(server.environment)}


def _opencode(server: Server) -> dict[str, Any]:
    command = [server.command, *server.arguments]
    entry = {"type": "local", "command": command, "environment": dict(server.environment)}
    return {**entry, "enabled": True, "timeout": TOOL_TIMEOUT_MS}


PROGRAMS: Final[Mapping[str, Program]] = MappingProxyType(
    {
        program.name: program
        for program in (
            Program(
                name="codex",
                title="Codex",
                syntax=Syntax.TOML,
                file=_below("CODEX_HOME", ".codex", "config.toml"),
                servers=("mcp_servers",),
                entry=_codex,
                has_tool_timeout=True,
                approval=Approval(how=Approving.IN_ENTRY),
                instructions="AGENTS.md",
                asks=("codex", "mcp", "list"),
            ),
            Program(
                name="claude",
                title="Claude Code",
                syntax=Syntax.JSON,
                file=_claude_file,
                servers=("mcpServers",),
                entry=_claude,
                has_tool_timeout=True,
                approval=Approval(
                    how=Approving.ELEMENT,
                    path=("permissions", "allow"),
                    pattern=f"mcp__{SERVER_NAME}__{{tool}}",
                    file=_below("CLAUDE_CONFIG_DIR", ".claude", "settings.json"),
                ),
                instructions="CLAUDE.md",
                asks=("claude", "mcp", "list"),
            ),
            Program(
                name="opencode",
                title="OpenCode",
                syntax=Syntax.JSON,
                file=_opencode_file,
                servers=("mcp",),
                entry=_opencode,
                has_tool_timeout=True,
                approval=Approval(how=Approving.MEMBER, path=("permission",), pattern=f"{SERVER_NAME}_{{tool}}"),
                instructions="AGENTS.md",
                asks=("opencode", "mcp", "list"),
            ),
            Program(
                name="pi",
                title="Pi",
                syntax=Syntax.JSON,
                file=_below("PI_CODING_AGENT_DIR", ".pi/agent", "mcp.json"),
                servers=("mcpServers",),
                # Without this its model reaches tools only by way of a program that it writes.
                entry=lambda server: {**_plain(server), "exposure": "direct"},
                has_tool_timeout=False,
                approval=Approval(how=Approving.NEVER_ASKED),
                instructions="AGENTS.md",
                asks=(),
            ),
            Program(
                name="gemini",
                title="Gemini CLI",
                syntax=Syntax.JSON,
                file=_below("GEMINI_CLI_HOME", ".", ".gemini", "settings.json"),
                servers=("mcpServers",),
                entry=lambda server: {**_plain(server), "timeout": TOOL_TIMEOUT_MS},
                has_tool_timeout=True,
                approval=Approval(
                    how=Approving.ELEMENT, path=("tools", "allowed"), pattern=f"mcp_{SERVER_NAME}_{{tool}}"
                ),
                instructions="GEMINI.md",
                asks=("gemini", "mcp", "list"),
            ),
            Program(
                name="antigravity",
                title="Antigravity",
                syntax=Syntax.JSON,
                file=_below("", ".", ".gemini", "config", "mcp_config.json"),
                servers=("mcpServers",),
                entry=_plain,
                has_tool_timeout=False,
                approval=Approval(how=Approving.UNKNOWN),
                instructions="AGENTS.md",
                asks=("agy", "mcp", "list"),
                starts_in_project=False,
            ),
        )
    }
)


def program_of(name: str) -> Program:
    """Return the program of this name; refuse one that is not known."""
    if name not in PROGRAMS:
        raise Refused(
            "unknown_program",
            f"there is no agent program {name!r} here; nothing was done",
            hint=f"Known are: {', '.join(PROGRAMS)}. Others take the entry that `fencepost agent create NAME` prints.",
        )
    return PROGRAMS[name]
