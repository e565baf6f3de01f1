"""What `fencepost up` starts: one row per service, and the order that follows from the rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from fencepost.errors import Refused
from fencepost.home import MAILBOX, MCP_EDGE, PROVIDERS, SERVICES, SESSIONS

READY_MS_MAX: Final = 30_000


@dataclass(frozen=True, kw_only=True)
class Row:
    """A service: its name in the home, the module that runs it, what must be ready before it, its time to be ready."""

    name: str
    module: str
    after: tuple[str, ...] = ()
    ready_ms_max: int = READY_MS_MAX


TABLE: Final = (
    Row(name=SESSIONS, module="fencepost_sessions"),
    Row(name=MAILBOX, module="fencepost_mailbox", after=(SESSIONS,)),
    Row(name=MCP_EDGE, module="fencepost_mcp_edge", after=(SESSIONS, MAILBOX)),
    Row(name=PROVIDERS, module="fencepost_providers", after=(SESSIONS, MAILBOX)),
)


def plan(table: Sequence[Row], *, chosen: Sequence[str] | None, installed: Callable[[Row], bool]) -> tuple[Row, ...]:
    """Return the rows to start, each after all that it needs.

    Without a choice: everything that is installed. With one: the chosen services and what they need.

    Raises:
        Refused: an unknown name, a service that is needed and not installed, or nothing to start.
    """
    rows = {row.name: row for row in table}
    wanted = list(chosen) if chosen is not None else [row.name for row in table if installed(row)]
    ordered: dict[str, Row] = {}
    for name in wanted:
        _place(name, rows, ordered, path=())
    missing = [name for name, row in ordered.items() if not installed(row)]
    if missing:
        raise Refused(
            "service_not_installed",
            f"not installed: {', '.join(missing)}; nothing was started",
            hint="Install the distribution whole, or name only services that are there.",
        )
    if not ordered:
        raise Refused("nothing_to_start", "no service is installed or chosen; nothing was started")
    return tuple(ordered.values())


def check_services(chosen: Sequence[str], known: Sequence[str] = SERVICES) -> None:
    """Refuse names of services that do not exist."""
    for name in chosen:
        if name not in known:
            raise Refused(
                "unknown_service",
                f"there is no service {name!r}; nothing was started",
                hint=f"Known are: {', '.join(known)}.",
            )


def _place(name: str, rows: dict[str, Row], ordered: dict[str, Row], *, path: tuple[str, ...]) -> None:
    if name in ordered:
        return
    check_services([name], list(rows))
    if name in path:
        raise ValueError(f"services wait for each other: {' -> '.join((*path, name))}")
    for needed in rows[name].after:
        _place(needed, rows, ordered, path=(*path, name))
    ordered[name] = rows[name]


def table_to_json(table: Sequence[Row]) -> str:
    """Return a table as text that table_from_json reads."""
    return json.dumps([asdict(row) for row in table])


def table_from_json(text: str) -> tuple[Row, ...]:
    """Return the table that `text` holds.

    Raises:
        ValueError: it is not a table.
    """
    try:
        return tuple(Row(**{**row, "after": tuple(row.get("after", ()))}) for row in json.loads(text))
    except (TypeError, AttributeError) as error:
        raise ValueError("not a table of services") from error
