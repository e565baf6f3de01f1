"""Our MCP server in the private configuration: made once, kept current, and never taken from whoever changed it. Pure.

Owned are the keys of WANTED_KEYS, as we wrote them. Everything beside them in the entry (approvals, `enabled`, other
limits) belongs to the person. Source: M115-M118, M123, M125, M129.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fencepost.home import GENERATION_VARIABLE
from fencepost_providers.adapters.codex.home import tables
from fencepost_providers.adapters.codex.home.merge import SERVER_NAME, SERVERS
from fencepost_providers.adapters.codex.home.tables import MISSING, Inline, Path
from fencepost_providers.domain.runtimes import Finding, Gravity, McpServer

ENTRY: Final[Path] = (SERVERS, SERVER_NAME)
# What Codex gives a call before it cuts it off: more than the longest wait of our server.
TOOL_TIMEOUT_SECONDS: Final = 70
# Codex starts its servers with an almost empty environment: what is named here it passes on.
PASSED: Final = (GENERATION_VARIABLE,)
APPROVE: Final = "approve"


class State(enum.StrEnum):
    """How our server stands in the private configuration; the values are the codes of findings."""

    CURRENT = "registration_current"
    WRITTEN = "registration_written"
    OCCUPIED = "registration_occupied"
    EDITED = "registration_edited"
    DISABLED = "registration_disabled"
    REMOVED = "registration_removed"
    NO_PROGRAM = "registration_program_missing"


@dataclass(frozen=True, kw_only=True, slots=True)
class Registration:
    """What is to be written, and what of it we own afterwards; `owned` None: nothing of what stands there."""

    state: State
    sets: Mapping[Path, Any]
    owned: Mapping[str, str] | None


def wanted(server: McpServer) -> dict[str, Any]:
    """Return the entry as we write it."""
    return {
        "command": server.command,
        "args": list(server.arguments),
        "env": Inline(server.environment),
        "env_vars": list(PASSED),
        "tool_timeout_sec": TOOL_TIMEOUT_SECONDS,
    }


def registered(
    private: Mapping[str, Any], record: Mapping[str, Any], server: McpServer, *, program_there: bool
) -> Registration:
    """Return what is to be done so that our server is registered, or why nothing is."""
    entry, ours = tables.lookup(private, ENTRY), wanted(server)
    owned, pending = record.get("owned"), record.get("pending")
    digests = {key: tables.digest(value) for key, value in ours.items()}
    sets: dict[Path, Any] = {(*ENTRY, key): value for key, value in ours.items()}
    # An empty table is what is left of an entry with a comment in it.
    if entry is MISSING or entry == {}:
        if isinstance(owned, dict):
            return Registration(state=State.REMOVED, sets={}, owned=owned)
        if not program_there:
            return Registration(state=State.NO_PROGRAM, sets={}, owned=None)
        return Registration(state=State.WRITTEN, sets=sets, owned=digests)
    matching = next((one for one in (pending, owned, digests) if _matches(entry, one)), None)
    if matching is None:
        kept = owned if isinstance(owned, dict) else None
        return Registration(state=State.OCCUPIED if kept is None else State.EDITED, sets={}, owned=kept)
    if entry.get("enabled") is False:
        return Registration(state=State.DISABLED, sets={}, owned=matching)
    if not program_there:
        return Registration(state=State.NO_PROGRAM, sets={}, owned=matching)
    if _matches(entry, digests):
        return Registration(state=State.CURRENT, sets={}, owned=digests)
    return Registration(state=State.WRITTEN, sets=sets, owned=digests)


def _matches(entry: Any, digests: Any) -> bool:
    """Tell whether an entry holds every owned key as it was written."""
    return (
        isinstance(entry, dict)
        and isinstance(digests, dict)
        and bool(digests)
        and all(key in entry and tables.digest(entry[key]) == digest for key, digest in digests.items())
    )


def approved(private: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the tools of our server that are approved one by one, by name."""
    tools = tables.lookup(private, (*ENTRY, "tools"))
    if not isinstance(tools, dict):
        return ()
    modes = {name: tables.lookup(tools, (name, "approval_mode")) for name in tools}
    return tuple(sorted(name for name, mode in modes.items() if mode == APPROVE))


def finding(state: State, *, configuration: str, record: str, program: str) -> Finding:
    """Return what a person is told of a state."""
    gravity, text, hint = _WORDS[state]
    places = {"configuration": configuration, "record": record, "program": program}
    return Finding(code=state.value, gravity=gravity, text=text.format(**places), hint=hint.format(**places))


_NAMED: Final = f"[{SERVERS}.{SERVER_NAME}]"
_WORDS: Final[Mapping[State, tuple[Gravity, str, str]]] = {
    State.CURRENT: (Gravity.FACT, "our MCP server stands in {configuration}", ""),
    State.WRITTEN: (Gravity.FACT, "our MCP server was written into {configuration}", ""),
    State.OCCUPIED: (
        Gravity.ERROR,
        f"{_NAMED} in {{configuration}} is not ours and was left as it is: this agent has other tools than ours",
        "Rename that entry, then start the agent again.",
    ),
    State.EDITED: (
        Gravity.WARNING,
        f"{_NAMED} in {{configuration}} was edited and is left as it is: it does not follow this installation",
        "Take the entry out and remove {record} to have it written anew, then start the agent again.",
    ),
    State.DISABLED: (
        Gravity.WARNING,
        f"{_NAMED} in {{configuration}} is disabled and stays so: this agent has none of our tools",
        "Set `enabled = true` there, then start the agent again.",
    ),
    State.REMOVED: (
        Gravity.WARNING,
        f"{_NAMED} was taken out of {{configuration}} and stays out: this agent has none of our tools",
        "Remove {record} to have it written anew, then start the agent again.",
    ),
    State.NO_PROGRAM: (
        Gravity.ERROR,
        "{program} is not there or cannot be run: this agent has none of our tools, nothing was written",
        "Install Fencepost again, or start it from the environment in which it is installed.",
    ),
}
