"""How one start of Codex differs from its configuration: `-c key=value` for the background, nothing written anywhere.

Source: R121, R136-R138, M153.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from fencepost_providers.adapters.base import StartFailed
from fencepost_providers.adapters.codex.home import configuration, sessions, tables
from fencepost_providers.adapters.codex.home.merge import SERVER_NAME, SERVERS
from fencepost_providers.adapters.codex.home.tables import Path as Key
from fencepost_providers.domain.runtimes import LaunchPlan, LaunchSettings

SANDBOXES: Final = ("read-only", "workspace-write", "danger-full-access")
APPROVALS: Final = ("untrusted", "on-request", "never")
# Codex has given this up: the program's own default takes its place.
RETIRED_APPROVAL: Final = "on-failure"
ROOTS: Final = ("sandbox_workspace_write", "writable_roots")
# What would share or move what belongs to this agent alone, or take our server's identity.
RESERVED: Final = (("sqlite_home",), ("log_dir",), (SERVERS, SERVER_NAME), ("developer_instructions",))
INCLUDES_MAX: Final = 64
CUSTOM_MAX: Final = 64
ROLLOUT_TAIL_BYTES_MAX: Final = 4 * 1024 * 1024
_WITH_VALUE: Final = frozenset({"-c", "--config", "--enable", "--disable"})
_ALONE: Final = frozenset({"--strict-config"})
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def values(plan: LaunchPlan, home: Path, *, instructions: str, default_model: str = "") -> dict[Key, Any]:
    """Return the settings of a launch by their keys in Codex's configuration; what is unset is left out.

    `default_model` is the catalogue's, for an effort without a model (R137). Nothing is written into the plan's
    settings (R138).

    Raises:
        StartFailed: a setting is none that Codex has, or a folder is not there.
    """
    settings = plan.settings
    _check(settings)
    config = configuration.load(home / configuration.NAME)[2]
    found: dict[Key, Any] = {}
    model = settings.model
    if not model and settings.effort:
        recorded = recorded_model(home, plan.conversation_id)
        configured = config.get("model")
        model = recorded or (configured if isinstance(configured, str) else "") or default_model
    texts = {
        "model": model,
        "model_reasoning_effort": settings.effort,
        "sandbox_mode": settings.sandbox,
        "approval_policy": "" if settings.approval == RETIRED_APPROVAL else settings.approval,
        "developer_instructions": instructions,
    }
    found.update({(key,): text for key, text in texts.items() if text})
    if settings.include_directories:
        found[ROOTS] = _roots(config, settings.include_directories)
    return found


def background_arguments(
    plan: LaunchPlan, home: Path, *, instructions: str, default_model: str = ""
) -> tuple[str, ...]:
    """Return the arguments for `codex app-server` that carry a launch; no secret is among them.

    Raises:
        StartFailed: see `values`; or a custom argument is none that this start can take.
    """
    words: list[str] = []
    for key, value in values(plan, home, instructions=instructions, default_model=default_model).items():
        words += ["-c", f"{'.'.join(key)}={toml(value)}"]
    return (*words, *_custom(plan.settings.custom_arguments))


def toml(value: Any) -> str:
    """Return a text, truth or list of texts as TOML on one line."""
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    # JSON's escapes are TOML's, but for the one character that TOML does not allow as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _check(settings: LaunchSettings) -> None:
    if settings.sandbox and settings.sandbox not in SANDBOXES:
        raise _invalid(f"sandbox {settings.sandbox!r}", f"One of: {', '.join(SANDBOXES)}.")
    if settings.approval and settings.approval not in (*APPROVALS, RETIRED_APPROVAL):
        raise _invalid(f"approval {settings.approval!r}", f"One of: {', '.join(APPROVALS)}.")
    for text in (settings.model, settings.effort):
        if any(char < " " or char == "\x7f" for char in text):
            raise _invalid("a model or effort with control characters", "Use a name that `agent models` shows.")


def _invalid(what: str, hint: str) -> StartFailed:
    return StartFailed("invalid_launch_setting", f"Codex cannot be started with {what}; nothing was started", hint=hint)


def _roots(config: Mapping[str, Any], folders: Sequence[str]) -> list[str]:
    """Return the folders that may be written to besides the workspace: first those of the configuration."""
    if len(folders) > INCLUDES_MAX:
        raise _invalid(f"{len(folders)} included folders", f"At most {INCLUDES_MAX}.")
    for folder in folders:
        if not Path(folder).is_absolute() or not Path(folder).is_dir():
            raise _invalid(f"the included folder {folder!r}", "It must be an absolute path of a folder that is there.")
    configured = tables.lookup(config, ROOTS)
    own = [one for one in configured if isinstance(one, str)] if isinstance(configured, list) else []
    return list(dict.fromkeys([*own, *(os.path.normpath(folder) for folder in folders)]))


def _custom(words: Sequence[str]) -> list[str]:
    """Return the person's own arguments; refuse what `codex app-server` does not take or this agent must not have."""
    if len(words) > CUSTOM_MAX:
        raise _invalid(f"{len(words)} custom arguments", f"At most {CUSTOM_MAX}.")
    rest, found = list(words), list[str]()
    while rest:
        word = rest.pop(0)
        name, joined, value = word.partition("=")
        if word in _ALONE:
            found.append(word)
            continue
        if name not in _WITH_VALUE or (joined and name == "-c") or not (joined or rest):
            raise _invalid(f"the custom argument {name!r}", "Taken are -c KEY=VALUE, --enable and --disable FEATURE.")
        value = value if joined else rest.pop(0)
        if name in {"-c", "--config"}:
            _check_key(value)
        found += [name, value]
    return found


def _check_key(setting: str) -> None:
    key, equals, _ = setting.partition("=")
    try:
        place: Any = tables.parse(f"{key}=0") if equals else None
    except tables.NotToml:
        place = None
    if place is None:
        raise _invalid(f"the custom setting {setting[:40]!r}", "Write it as KEY=VALUE, the key as in config.toml.")
    [(path, _)] = tables.leaves(place)
    if any(path[: len(one)] == one[: len(path)] for one in RESERVED):
        raise _invalid(f"the custom setting {key!r}", "Fencepost sets it itself, so that this agent stays apart.")


def recorded_model(home: Path, conversation_id: str) -> str:
    """Return the model that a conversation ran with last, as its rollout says; empty where that is not known."""
    path = rollout(home, conversation_id)
    if path is None:
        return ""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - ROLLOUT_TAIL_BYTES_MAX))
            lines = file.read(ROLLOUT_TAIL_BYTES_MAX).split(b"\n")
    except OSError:
        return ""
    for line in reversed(lines):
        if b'"turn_context"' not in line:
            continue
        try:
            record = json.loads(line)
            model = record["payload"]["model"] if record["type"] == "turn_context" else ""
        except (ValueError, KeyError, TypeError):
            continue
        if isinstance(model, str) and model:
            return model
    return ""


def rollout(home: Path, conversation_id: str) -> Path | None:
    """Return the newest rollout of a conversation below the home's sessions, or None."""
    if not _UUID.fullmatch(conversation_id):
        return None
    root = home / sessions.NAME
    found = sorted(root.glob(f"*/*/*/rollout-*-{conversation_id}.jsonl"), key=lambda path: path.name)
    return found[-1] if found else None
