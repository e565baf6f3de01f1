"""What `fencepost connect` and `fencepost mcp config` do. Loaded by these two commands only: others need not pay."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fencepost.cli import acting, screen
from fencepost.cli.plain import one_line
from fencepost.connect import plan as planning
from fencepost.connect import tomls, trial
from fencepost.connect.changes import Change, Kind
from fencepost.connect.entry import TOOL_TIMEOUT_MS, Server, server_of
from fencepost.connect.programs import Program, Syntax, program_of
from fencepost.errors import Refused
from fencepost.home import Home
from fencepost.mcp import profiles, registry
from fencepost.mcp.arguments import NAMES, TOOLS, Asked, parse
from fencepost.mcp.offers import wish_of

WORDS: Final = {
    "restored": "is as it was before",
    "removed": "did not exist before and is removed",
    "taken_out": "holds nothing of ours any more",
    "left": "still holds what was edited since",
    "gone": "is gone",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Offers:
    """What the server is to offer, as the person said it; None where nothing was said."""

    tools: str | None
    names: str | None

    def words(self) -> list[str]:
        """Return the server's arguments that say the same."""
        words = [] if self.tools is None else [TOOLS, self.tools]
        return words + ([] if self.names is None else [NAMES, self.names])


def print_config(program: str, *, agent: str | None, project: Path | None, offers: Offers, as_json: bool) -> None:
    """Print the configuration of a program on standard output, and where it goes on standard error."""
    chosen = program_of(program)
    server = _server(Home.from_environment(), _asked(chosen, agent, project), offers)
    entry = chosen.entry(server)
    text = _text(chosen, entry)
    file = planning.configuration_of(chosen, os.environ)
    if as_json:
        timeout = TOOL_TIMEOUT_MS if chosen.has_tool_timeout else None
        fields = {"program": chosen.name, "file": str(file), "syntax": chosen.syntax.value, "entry": entry}
        screen.put_json({**fields, "text": text, "tool_timeout_ms": timeout})
        return
    screen.put(f"Goes into {one_line(str(file))}", stream=sys.stderr)
    screen.put(text)


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What a person asked for."""

    program: str
    agent: str | None
    project: Path | None
    offers: Offers
    dry_run: bool
    undo: bool
    approve: Sequence[str]
    agents_md: bool
    as_json: bool


def carry_out(wish: Wish) -> None:
    """Connect or disconnect a program, and say what was done."""
    acting.refuse_agents()
    home = Home.from_environment()
    chosen = program_of(wish.program)
    if wish.undo:
        if wish.agent is not None or wish.approve or wish.agents_md or wish.offers.words():
            raise Refused("invalid_arguments", "--undo goes with --dry-run and --json only; nothing was written")
        undone = planning.undo(home, chosen, os.environ, dry_run=wish.dry_run)
        _show_undone(chosen, undone, dry_run=wish.dry_run, as_json=wish.as_json)
        return
    server = _server(home, _asked(chosen, wish.agent, wish.project), wish.offers)
    plans = planning.plan(
        home,
        chosen,
        server,
        env=os.environ,
        tools=_tools(wish.approve, wish.offers),
        instructions=(wish.project or Path.cwd()).absolute() if wish.agents_md else None,
        now_ms=int(time.time() * 1000),
    )
    if not wish.dry_run:
        planning.carry_out(home, plans)
    tried, asked = (None, None) if wish.dry_run else asyncio.run(_try(chosen, server))
    if wish.as_json:
        screen.put_json(_document(chosen, plans, tried, asked, dry_run=wish.dry_run))
    else:
        _show(plans, dry_run=wish.dry_run)
    if tried is not None and tried.problem:
        raise Refused(
            "handshake_failed",
            f"the configuration was written, and the server that it names does not work: {tried.problem}",
            hint=f"`fencepost doctor` looks closer; `fencepost connect {chosen.name} --undo` takes it out again.",
        )
    if not wish.as_json and tried is not None and asked is not None:
        screen.put(f"Tried: the server answers as version {tried.version} with {len(tried.tools)} tools.")
        screen.put(f"{chosen.title} itself: {one_line(asked.said)}")
        again = f"fencepost connect {chosen.name} --undo"
        screen.put(f"Next: start {chosen.title} anew, and let it call a tool. Undo: {again}")


async def _try(program: Program, server: Server) -> tuple[trial.Trial, trial.Asked]:
    tried = await trial.shake_hands(server, env=os.environ)
    return tried, await trial.ask_program(program.asks, env=os.environ)


def _asked(program: Program, agent: str | None, project: Path | None) -> Asked | None:
    """Return the agent that the server is to be; refuse what names none, and a project that nobody could tell."""
    words = ([] if agent is None else ["--agent", agent]) + ([] if project is None else ["--project", str(project)])
    if not words:
        return None
    try:
        asked = parse(words)
    except ValueError as error:
        raise Refused("invalid_arguments", f"{error}; nothing was written") from None
    if asked.project is not None:
        return Asked(name=asked.name, project=os.path.abspath(asked.project))  # noqa: PTH100 (a name, not a lookup)
    if not program.starts_in_project:
        raise Refused(
            "invalid_arguments",
            f"in which folder {program.title} starts its servers is not known, so --agent needs --project;"
            " nothing was written",
            hint="Add --project DIR.",
        )
    return asked


def _server(home: Home, asked: Asked | None, offers: Offers) -> Server:
    """Return the server. It is called by the environment of whoever connects it: programs pass little of theirs on."""
    try:
        wish = wish_of(os.environ, tools=offers.tools, called=offers.names)
    except ValueError as error:
        raise Refused("invalid_arguments", f"{error}; nothing was written") from None
    return server_of(home, asked, offers=offers.words(), name=wish.name)


def _tools(names: Sequence[str], offers: Offers) -> list[str]:
    known = registry.menu(profiles.parse(offers.tools or profiles.MESSAGING), warp=offers.names == profiles.WARP).tools
    unknown = [name for name in names if name not in known]
    if unknown:
        raise Refused(
            "invalid_arguments",
            f"there is no tool {unknown[0]!r}; nothing was written",
            hint=f"Tools are: {', '.join(known)}.",
        )
    return list(dict.fromkeys(names))


def _text(program: Program, entry: dict[str, Any]) -> str:
    if program.syntax is Syntax.TOML:
        return tomls.block(program.path, entry).removesuffix("\n")
    whole: Any = entry
    for key in reversed(program.path):
        whole = {key: whole}
    return json.dumps(whole, indent=2, ensure_ascii=False)


def _added(change: Change) -> str:
    """Return a change for people."""
    if change.kind in (Kind.TABLE, Kind.TEXT):
        return change.piece.strip("\r\n")
    if change.kind is Kind.ELEMENT:
        return f"{'.'.join(change.path)}: {json.dumps(change.value)} added"
    return f"{'.'.join(change.path)}: {json.dumps(change.value, indent=2, ensure_ascii=False)}"


def _document(
    program: Program,
    plans: Sequence[planning.FilePlan],
    tried: trial.Trial | None,
    asked: trial.Asked | None,
    *,
    dry_run: bool,
) -> dict[str, Any]:
    return {
        "program": program.name,
        "dry_run": dry_run,
        "files": [
            {
                "path": str(item.path),
                "role": item.role,
                "changed": item.after != (item.before or b""),
                "added": [_added(change) for change in item.record.changes] if item.record else [],
                "notes": list(item.notes),
            }
            for item in plans
        ],
        "handshake": None
        if tried is None
        else {"problem": tried.problem, "version": tried.version, "tools": list(tried.tools), "took_ms": tried.took_ms},
        "program_says": None if asked is None else {"listed": asked.listed, "said": asked.said},
    }


def _show(plans: Sequence[planning.FilePlan], *, dry_run: bool) -> None:
    for item in plans:
        changed = item.after != (item.before or b"")
        verb = ("would be changed" if dry_run else "changed") if changed else "is as it should be"
        screen.put(f"{one_line(str(item.path))}: {verb}")
        for change in item.record.changes if item.record and changed else ():
            screen.put("\n".join(f"  {one_line(line)}" for line in _added(change).splitlines()))
        for note in item.notes:
            screen.put(f"  Note: {one_line(note)}")


def _show_undone(program: Program, undone: Sequence[planning.Undone], *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        rows = [
            {"path": str(item.path), "role": item.role, "what": item.what, "notes": list(item.notes)} for item in undone
        ]
        screen.put_json({"program": program.name, "dry_run": dry_run, "files": rows})
        return
    if not undone:
        screen.put(f"Nothing to undo: nothing of ours is in {planning.configuration_of(program, os.environ)}.")
    for item in undone:
        screen.put(f"{'Would be: ' if dry_run else ''}{one_line(str(item.path))} {WORDS[item.what]}")
        for note in item.notes:
            screen.put(f"  Note: {one_line(note)}")
