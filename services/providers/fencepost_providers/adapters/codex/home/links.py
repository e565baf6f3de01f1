"""Links into an agent's Codex home: assigned skills, the native marketplaces and plugin cache, the workspace.

A link is ours if its name and its target stand in the record; nothing else is ever replaced or removed.
Source: R092, R099, R120-R125.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from fencepost_kit import faults
from fencepost_providers.adapters.codex.home import files
from fencepost_providers.domain.runtimes import Finding, Gravity

RECORD: Final = "links.json"
SKILLS: Final = "skills"
SKILLS_MAX: Final = 1000
WORKSPACE: Final = "workspace"
# Catalogues of marketplaces that the user added, the curated one, and plugins that were fetched. Which of them are
# enabled stands in the configuration, and stays each home's own.
ASSETS: Final = (".tmp/marketplaces", ".tmp/plugins", "plugins/cache")
_HOME: Final = "home"
_HABITAT: Final = "habitat"
_NAME: Final = re.compile(rf"({_HOME}|{_HABITAT})/.+", re.DOTALL)
_INTENDED = faults.register("providers.codex_home.links_intended", "the links to come are recorded, none is made")
_MADE = faults.register("providers.codex_home.links_made", "the links are made, the record still intends")

Targets = dict[str, list[str]]


def refresh(
    home: Path, records: Path, *, habitat: Path, native: Path, skills: Sequence[str], workspace: str
) -> list[Finding]:
    """Bring every link up to date; return what stood in the way."""
    wanted, notes = _wanted(home, native, skills, workspace)
    old = _targets(files.read_record(records / RECORD))
    both = {name: sorted({*old.get(name, ()), *wanted.get(name, ())}) for name in {**old, **wanted}}
    files.write_record(records / RECORD, both)
    if faults.ARMED:
        faults.hit(_INTENDED)
    standing: Targets = {}
    for name in sorted(both):
        link, target = _path(name, home, habitat), wanted.get(name, [""])[0]
        note = _place(link, target, both[name])
        if note is not None:
            notes.append(note)
        elif target:
            standing[name] = [target]
    if faults.ARMED:
        faults.hit(_MADE)
    files.write_record(records / RECORD, standing)
    return notes


def _path(name: str, home: Path, habitat: Path) -> Path:
    """Return where a link of the record lies: it names no absolute place, since a home may be moved whole."""
    root, _, rest = name.partition("/")
    return (home if root == _HOME else habitat) / rest


def _wanted(home: Path, native: Path, skills: Sequence[str], workspace: str) -> tuple[Targets, list[Finding]]:
    wanted: Targets = {f"{_HABITAT}/{WORKSPACE}": [workspace]} if workspace else {}
    for asset in ASSETS:
        if (native / asset).is_dir():
            wanted[f"{_HOME}/{asset}"] = [str(native / asset)]
    chosen: dict[str, str] = {}
    for root in skills:
        chosen.update(_skills_of(Path(root)))
    notes: list[Finding] = []
    if len(chosen) > SKILLS_MAX:
        chosen = dict(sorted(chosen.items())[:SKILLS_MAX])
        text = f"over {SKILLS_MAX} skills are assigned; those that come last by name were left out"
        notes.append(Finding(code="skills_too_many", gravity=Gravity.WARNING, text=text, hint="Assign fewer."))
    if (home / SKILLS).is_symlink():
        text = f"{home / SKILLS} is a link that is not ours: assigned skills were not put there"
        notes.append(Finding(code="skills_folder_foreign", gravity=Gravity.WARNING, text=text, hint="Remove the link."))
        chosen = {}
    wanted |= {f"{_HOME}/{SKILLS}/{name}": [target] for name, target in chosen.items()}
    return wanted, notes


def _skills_of(root: Path) -> Iterator[tuple[str, str]]:
    """Yield name and folder of each skill in a managed root; one that is not there has none."""
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if not entry.name.startswith(".") and entry.is_dir():
            yield entry.name, str(root.absolute() / entry.name)


def _place(link: Path, target: str, ours: Sequence[str]) -> Finding | None:
    """Make one link what it is to be, or take it away where there is no target; say what else stands there."""
    leads = files.link_target(link)
    if leads is not None and leads not in ours:
        return _occupied(link) if target else None
    if leads is not None and leads == target:
        return None
    if not target:
        if leads is not None:
            files.remove(link)
        return None
    if leads is None:
        if os.path.lexists(link) and not _emptied(link):
            return _occupied(link)
        if any(parent.is_symlink() for parent in (link.parent, link.parent.parent)):
            return _occupied(link.parent)
        link.parent.mkdir(mode=files.FOLDER_MODE, parents=True, exist_ok=True)
    files.point(link, target)
    return None


def _emptied(place: Path) -> bool:
    """Remove an empty folder, which the program makes before it needs it; tell whether the name is free now."""
    try:
        place.rmdir()
    except OSError:
        return False
    return True


def _occupied(link: Path) -> Finding:
    return Finding(
        code="link_place_occupied",
        gravity=Gravity.FACT,
        text=f"{link} is not ours and was left as it is: what Fencepost would link there is not seen by this agent",
    )


def _targets(record: Mapping[str, Any]) -> Targets:
    return {
        name: [one for one in targets if isinstance(one, str)]
        for name, targets in record.items()
        if isinstance(targets, list) and _NAME.fullmatch(name) and ".." not in name.split("/")
    }


def standing(records: Path, home: Path, habitat: Path) -> Iterator[tuple[Path, str, bool]]:
    """Yield each of our links with its target and whether it leads there, and to something."""
    for name, targets in sorted(_targets(files.read_record(records / RECORD)).items()):
        link = _path(name, home, habitat)
        yield link, targets[0] if targets else "", files.link_target(link) in targets and link.exists()
