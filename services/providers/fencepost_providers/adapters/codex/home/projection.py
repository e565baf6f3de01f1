"""Launch settings in the private configuration while a person's terminal attaches, and only then.

The terminal and the server behind it read one file, so they agree. A journal that is written first says what stood
there before; afterwards every value that is still the projected one goes back, and what the person changed stays.
Source: R094, R130, M149-M153, M180.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from fencepost_kit import faults
from fencepost_providers.adapters.codex.home import configuration, files, tables
from fencepost_providers.adapters.codex.home.tables import BLOCKED, MISSING
from fencepost_providers.adapters.codex.home.tables import Path as Key
from fencepost_providers.domain.runtimes import Finding, Gravity

JOURNAL: Final = "projection.json"
UPDATES: Final[Key] = ("check_for_update_on_startup",)
FULLSCREEN: Final[Key] = ("tui", "fullscreen_transcript")
SCREEN: Final[Key] = ("tui", "alternate_screen")
_JOURNALED = faults.register("providers.codex_home.projection_journaled", "the journal is written, nothing projected")
_PROJECTED = faults.register("providers.codex_home.projection_published", "the launch settings are projected")
_RESTORED = faults.register("providers.codex_home.projection_restored", "the values are back, the journal still there")


def trust_key(workspace: str) -> Key:
    """Return where Codex keeps whether it trusts a workspace: under its canonical path."""
    return ("projects", os.path.realpath(workspace), "trust_level")


def wanted(
    config: Mapping[str, Any], launch: Mapping[Key, Any], *, trust: str, quiet_updates: bool, fullscreen: bool
) -> dict[Key, Any]:
    """Return what is to be projected: the launch settings, and what the operator allows besides.

    `trust` is the workspace to be trusted, empty for none. A trust that is set, a choice of the terminal's mode and an
    `alternate_screen = "never"` are the person's and stay.
    """
    found = dict(launch)
    if trust and tables.lookup(config, trust_key(trust)) is MISSING:
        found[trust_key(trust)] = "trusted"
    if quiet_updates:
        found[UPDATES] = False
    allowed = tables.lookup(config, SCREEN) != "never"
    if fullscreen and allowed and tables.lookup(config, FULLSCREEN) is MISSING:
        found[FULLSCREEN] = True
    return {key: value for key, value in found.items() if _replaceable(tables.lookup(config, key))}


def _replaceable(found: Any) -> bool:
    """Tell whether a journal can hold what stands at a key: a table or a date there is the person's own affair."""
    plain = isinstance(found, str | bool | int | float) or found is MISSING
    return plain or (isinstance(found, list) and all(isinstance(one, str) for one in found))


def project(
    home: Path, records: Path, launch: Mapping[Key, Any], *, trust: str, quiet_updates: bool, fullscreen: bool
) -> list[Finding]:
    """Write the launch settings into the private configuration, with a journal; an older projection is undone first.

    Raises:
        StartFailed: the configuration cannot be used, or changes all the time. It is as it was.
    """
    path = home / configuration.NAME
    notes = restore(home, records)

    def attempt() -> None:
        raw, text, config = configuration.load(path)
        values = wanted(config, launch, trust=trust, quiet_updates=quiet_updates, fullscreen=fullscreen)
        try:
            new = tables.edited(text, values, ())
        except tables.NotEditable as error:
            raise configuration.unusable(f"{path}: {error}") from None
        content = new.encode()
        journal = {
            "before": text if raw is not None else None,
            "published": hashlib.sha256(content).hexdigest(),
            "values": [_entry(config, key, value) for key, value in values.items()],
        }
        files.write_record(records / JOURNAL, journal)
        if faults.ARMED:
            faults.hit(_JOURNALED)
        files.publish(path, content, before=raw)
        if faults.ARMED:
            faults.hit(_PROJECTED)

    configuration.again_where_changed(path, attempt)
    return notes


def _entry(config: Mapping[str, Any], key: Key, value: Any) -> dict[str, Any]:
    before = tables.lookup(config, key)
    stood = before is not MISSING
    return {"path": list(key), "stood": stood, "before": before if stood else None, "projected": value}


def restore(home: Path, records: Path) -> list[Finding]:
    """Undo a projection: values that are still the projected ones go back, others stay. Harmless where there is none.

    Raises:
        StartFailed: the configuration cannot be used, or changes all the time; the journal is kept for the next time.
    """
    path = home / configuration.NAME
    journal = files.read_record(records / JOURNAL)
    if not journal:
        return []

    def attempt() -> list[Finding]:
        raw, text, config = configuration.load(path)
        if raw is not None:
            new, notes = _restored(path, text, config, raw, journal)
            if new.encode() != raw:
                files.publish(path, new.encode(), before=raw)
            return notes
        return []

    notes = configuration.again_where_changed(path, attempt)
    if faults.ARMED:
        faults.hit(_RESTORED)
    if not notes:
        files.remove(records / JOURNAL)
    return notes


def _restored(
    path: Path, text: str, config: Mapping[str, Any], raw: bytes, journal: Mapping[str, Any]
) -> tuple[str, list[Finding]]:
    before = journal.get("before")
    if isinstance(before, str) and hashlib.sha256(raw).hexdigest() == journal.get("published"):
        return before, []
    sets: dict[Key, Any] = {}
    removes: list[Key] = []
    for entry in journal.get("values", ()):
        key = tuple(str(part) for part in entry["path"])
        found = tables.lookup(config, key)
        if found in (MISSING, BLOCKED) or not tables.same(found, entry["projected"]):
            continue
        if entry["stood"]:
            sets[key] = entry["before"]
        else:
            removes.append(key)
    try:
        return tables.edited(text, sets, removes), []
    except tables.NotEditable as error:
        what = f"{path} still has the settings of an earlier launch, and they could not be taken out: {error}"
        hint = "Write its tables in the usual form, then start the agent again."
        return text, [Finding(code="projection_not_restored", gravity=Gravity.ERROR, text=what, hint=hint)]


def pending(records: Path) -> bool:
    """Tell whether a projection stands, or was broken off."""
    return bool(files.read_record(records / JOURNAL))
