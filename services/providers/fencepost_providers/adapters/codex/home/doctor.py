"""What is wrong with an agent's Codex home, and how it stands. Changes nothing. Source: R121, R123, M116-M117, M126."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from fencepost.mcp import profiles
from fencepost.mcp.registry import EVERY
from fencepost_providers.adapters.base import StartFailed
from fencepost_providers.adapters.codex.home import (
    configuration,
    files,
    links,
    location,
    projection,
    registration,
    sessions,
    tables,
)
from fencepost_providers.adapters.codex.home.registration import State
from fencepost_providers.domain.runtimes import Finding, Gravity, LaunchPlan

PLUGINS_BYTES_MAX: Final = 4 * 1024 * 1024
PLUGINS_SHOWN_MAX: Final = 50
DATABASES: Final = ("*.sqlite", "*.sqlite-wal", "*.sqlite-shm")


def findings(plan: LaunchPlan, places: location.Places, *, bytes_max: int | None) -> list[Finding]:
    """Return how the home stands: place, configuration, registration, approvals, links, what was broken off."""
    home = location.effective(places)
    if not home.is_dir():
        text = f"this agent has no Codex home yet; it will be made at {home}"
        return [Finding(code="codex_home_absent", gravity=Gravity.FACT, text=text)]
    found = [_place(places, home, bytes_max)]
    try:
        _, _, config = configuration.load(home / configuration.NAME)
    except StartFailed as error:
        found.append(Finding(code=error.code, gravity=Gravity.ERROR, text=str(error), hint=error.hint))
    else:
        found += _registration(plan, places, home, config)
        found += _approvals(plan, config)
        found += _databases(home, config)
    found += _links(places, home)
    if projection.pending(places.records):
        text = f"launch settings of an attached terminal stand in {home / configuration.NAME}"
        hint = "They go when the terminal leaves; where none is attached, at the agent's next start."
        found.append(Finding(code="projection_pending", gravity=Gravity.FACT, text=text, hint=hint))
    return found


def _place(places: location.Places, home: Path, bytes_max: int | None) -> Finding:
    if not location.fits(home, bytes_max=bytes_max):
        text = f"the path of {home} is too long for Codex's socket"
        return Finding(
            code="codex_home_too_long",
            gravity=Gravity.WARNING,
            text=text,
            hint="At the agent's next start it moves to a short place, and a link stays.",
        )
    moved = home != Path(f"{places.visible.parent.resolve()}/{location.HOME_NAME}")
    rest = f", linked from {places.visible}; a backup has to hold both" if moved else ""
    return Finding(code="codex_home", gravity=Gravity.FACT, text=f"CODEX_HOME is {home}{rest}")


def _registration(plan: LaunchPlan, places: location.Places, home: Path, config: Mapping[str, Any]) -> list[Finding]:
    record = places.records / configuration.REGISTRATION_RECORD
    command = tables.lookup(config, (*registration.ENTRY, "command"))
    found: list[Finding] = []
    state = registration.registered(
        config, files.read_record(record), plan.mcp, program_there=configuration.runnable(plan.mcp.command)
    ).state
    if state is State.WRITTEN:
        text = f"our MCP server in {home / configuration.NAME} is not that of this installation"
        hint = "It is brought up to date at the agent's next start."
        found.append(Finding(code="registration_stale", gravity=Gravity.WARNING, text=text, hint=hint))
    else:
        found.append(
            registration.finding(
                state,
                configuration=str(home / configuration.NAME),
                record=str(record),
                program=plan.mcp.command,
            )
        )
    if isinstance(command, str) and command.startswith("/") and not configuration.runnable(command):
        text = f"the program of our MCP server, {command}, is not there or cannot be run"
        hint = "Start the agent again; where the entry was edited, correct it there."
        found.append(Finding(code="registration_path_stale", gravity=Gravity.ERROR, text=text, hint=hint))
    return found


def _approvals(plan: LaunchPlan, config: Mapping[str, Any]) -> list[Finding]:
    """Say which of our tools Codex refuses by itself: under "never" nobody is asked (M126)."""
    policy = plan.settings.approval or config.get("approval_policy")
    sandbox = plan.settings.sandbox or config.get("sandbox_mode")
    default = tables.lookup(config, (*registration.ENTRY, "default_tools_approval_mode"))
    approved = registration.approved(config)
    found: list[Finding] = []
    if approved:
        text = f"approved without a question: {', '.join(approved)}"
        found.append(Finding(code="approvals", gravity=Gravity.FACT, text=text))
    missing = [name for name in _asked_for(plan.settings.tools_profile) if name not in approved]
    if policy == "never" and sandbox != "danger-full-access" and default != registration.APPROVE and missing:
        text = f'under approval_policy = "never" Codex refuses, before we hear of it: {", ".join(missing)}'
        hint = f"If this agent may use them unasked: `fencepost agent tools {plan.name} --approve TOOL`."
        found.append(Finding(code="approvals_missing", gravity=Gravity.WARNING, text=text, hint=hint))
    return found


def _asked_for(profile: str) -> list[str]:
    """Return the tools of a profile that Codex refuses unasked under "never": all but what only reads."""
    families = profiles.parse(profile)
    return [tool.name for tool in EVERY if tool.family in families and not tool.hints.read_only]


def _databases(home: Path, config: Mapping[str, Any]) -> list[Finding]:
    shared = [key for key in ("sqlite_home",) if key in config]
    shared += [path.name for pattern in DATABASES for path in home.glob(pattern) if path.is_symlink()]
    if not shared:
        return []
    text = f"databases of {home} lie elsewhere ({', '.join(shared)}): two programs on one of them can destroy it"
    hint = "Stop the agent, take that setting or link out, and start it again."
    return [Finding(code="databases_shared", gravity=Gravity.ERROR, text=text, hint=hint)]


def _links(places: location.Places, home: Path) -> list[Finding]:
    found: list[Finding] = []
    local = home / sessions.NAME
    leads = files.link_target(local)
    if leads is None:
        text = f"conversations lie in {local} alone; your own Codex does not list them"
        found.append(Finding(code="codex_sessions_local", gravity=Gravity.FACT, text=text))
    elif leads != str(places.native / sessions.NAME):
        text = f"{local} leads to {leads} and not to your own Codex home"
        found.append(Finding(code="codex_sessions_elsewhere", gravity=Gravity.WARNING, text=text))
    else:
        found.append(Finding(code="codex_sessions", gravity=Gravity.FACT, text=f"conversations lie in {leads}"))
    if (home / sessions.ASIDE).is_dir():
        text = f"conversations lie in {home / sessions.ASIDE}: moving them was broken off"
        hint = "None is lost; the agent's next start goes on."
        found.append(Finding(code="codex_sessions_incomplete", gravity=Gravity.WARNING, text=text, hint=hint))
    for link, target, good in links.standing(places.records, home, places.habitat):
        if not good:
            text = f"{link} does not lead to {target}, or nothing is there"
            hint = "The agent's next start puts it right."
            found.append(Finding(code="link_broken", gravity=Gravity.WARNING, text=text, hint=hint))
    return found


def plugin_findings(answer: bytes) -> list[Finding]:
    """Return what `codex plugin list --json`, run with the agent's CODEX_HOME, says; none of it is ours to judge."""
    try:
        if len(answer) > PLUGINS_BYTES_MAX:
            raise ValueError(f"over {PLUGINS_BYTES_MAX} bytes")
        listed = json.loads(answer)
        installed = [one for one in listed["installed"] if isinstance(one, dict)]
    except (ValueError, KeyError, TypeError) as error:
        text = f"`codex plugin list --json` did not answer in a form that is known here: {type(error).__name__}"
        return [Finding(code="plugins_unknown", gravity=Gravity.FACT, text=text)]
    words = [f"{one.get('pluginId')} ({_state(one)})" for one in installed[:PLUGINS_SHOWN_MAX]]
    more = f" and {len(installed) - len(words)} more" if len(installed) > len(words) else ""
    text = f"plugins: {', '.join(words) or 'none'}{more}"
    return [Finding(code="plugins", gravity=Gravity.FACT, text=text)]


def _state(plugin: Mapping[str, Any]) -> str:
    return "enabled" if plugin.get("enabled") is True else "installed, not enabled"
