"""Where an agent's Codex home lies: in the agent's folder, or in a short place where its control socket would not fit.

The short place belongs to exactly one agent: a record in the agent's folder and one beside the home name each other by
a token. Each step can be repeated after a crash. Source: R139-R142, M118.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fencepost.home import SOCKET_PATH_BYTES_MAX
from fencepost_kit import faults
from fencepost_providers.adapters.base import StartFailed
from fencepost_providers.adapters.codex.home import files
from fencepost_providers.domain.runtimes import Finding, Gravity, LaunchPlan

AGENTS: Final = "agents"
HABITAT: Final = "habitat"
HOME_NAME: Final = ".codex"
RECORDS: Final = "codex"
SOCKET: Final = "app-server-control/app-server-control.sock"
RECORD: Final = "home.json"
MARKER: Final = "owner.json"
COMPACT_NAME: Final = "h"
SHORT: Final = "codex"
PLACE_CHARS: Final = 8
PLACES_MAX: Final = 16
STATE_VARIABLE: Final = "XDG_STATE_HOME"
_OTHERS_WRITE: Final = 0o022
_RECORDED = faults.register("providers.codex_home.place_recorded", "the short place is recorded, nothing made")
_MARKED = faults.register("providers.codex_home.place_marked", "the short place is made and marked")
_MOVED = faults.register("providers.codex_home.place_moved", "the home lies in the short place, not linked yet")
_LINKED = faults.register("providers.codex_home.place_linked", "the home is linked, the record not completed")


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """The paths of one agent's Codex home. Computing them touches nothing."""

    folder: Path
    agent_id: str
    native: Path

    @property
    def habitat(self) -> Path:
        """What holds everything of the program's, below the agent's folder."""
        return self.folder / HABITAT

    @property
    def visible(self) -> Path:
        """Where the home is found in any case: itself, or a link to it."""
        return self.habitat / HOME_NAME

    @property
    def records(self) -> Path:
        """What we remember about the home; never read by Codex."""
        return self.folder / RECORDS


def places_of(plan: LaunchPlan, native: Path) -> Places:
    """Return the paths of a plan's agent."""
    return Places(folder=Path(os.path.abspath(plan.folder)), agent_id=plan.agent_id, native=native)  # noqa: PTH100


def default_roots(places: Places, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return where short places may be made, best first. All of them outlive a restart of the machine.

    The first lies in the agent's own FENCEPOST_HOME, so that whoever copies or removes that has the homes with it.
    """
    state = environment.get(STATE_VARIABLE, "")
    person = Path(os.path.expanduser("~"))  # noqa: PTH111 (may be no path at all)
    roots = [places.folder.parents[1] / SHORT] if places.folder.parent.name == AGENTS else []
    if state.startswith("/"):
        roots.append(Path(state) / "fencepost")
    if person.is_absolute():
        roots += [person / ".local/state/fencepost", person / ".fencepost-codex"]
    return (*roots, Path(f"/var/tmp/fencepost-{os.geteuid()}"))  # noqa: S108 (checked before it is used)


def fits(home: Path, *, bytes_max: int | None = None) -> bool:
    """Tell whether the control socket of a home has a path that a socket can have."""
    return len(os.fsencode(home / SOCKET)) <= (SOCKET_PATH_BYTES_MAX if bytes_max is None else bytes_max)


def effective(places: Places) -> Path:
    """Return the physical home without a change: what Codex is given as CODEX_HOME."""
    record = files.read_record(places.records / RECORD)
    if _recorded(record):
        return _home_of(places, record)
    return Path(os.path.realpath(places.habitat)) / HOME_NAME


def settle(places: Places, roots: Sequence[Path], *, bytes_max: int | None) -> tuple[Path, list[Finding]]:
    """Make the home where it belongs and return its physical path.

    Raises:
        StartFailed: no short place is safe or short enough, or two homes stand against each other. Nothing was lost.
    """
    record = files.read_record(places.records / RECORD)
    direct = Path(os.path.realpath(places.habitat)) / HOME_NAME
    if not _recorded(record):
        if places.visible.is_symlink():
            record = _adopted(places)
        elif fits(direct, bytes_max=bytes_max):
            files.make_private(places.visible)
            return direct, []
        else:
            record = _chosen(places, roots, bytes_max=bytes_max)
    return _completed(places, record)


def _recorded(record: Mapping[str, Any]) -> bool:
    return all(isinstance(record.get(key), str) and record[key] for key in ("home", "token"))


def _home_of(places: Places, record: Mapping[str, Any]) -> Path:
    """Return the place of a record; one in the FENCEPOST_HOME is told from there, so that this may be moved whole."""
    return Path(os.path.normpath(places.folder / str(record["home"])))


def _adopted(places: Places) -> dict[str, Any]:
    """Return the record of the place to which the link leads, where that names this agent; ours was lost.

    Raises:
        StartFailed: the link leads to somebody else's. Nothing was changed.
    """
    home = Path(os.path.realpath(places.visible))
    marker = files.read_record(home.parent / MARKER)
    if marker.get("agent_id") != places.agent_id or not isinstance(marker.get("token"), str):
        raise _unsafe(f"{places.visible} is a link to {home}, which does not name this agent")
    return {"home": str(home), "token": marker["token"], "complete": True}


def _chosen(places: Places, roots: Sequence[Path], *, bytes_max: int | None) -> dict[str, Any]:
    """Choose a short place that nobody has, and record it before anything is made there."""
    flaws: list[str] = []
    for root in roots:
        base = Path(os.path.realpath(root))
        if not fits(base / ("0" * PLACE_CHARS) / COMPACT_NAME, bytes_max=bytes_max):
            flaws.append(f"{base} is too long itself")
            continue
        wrong = _prepared_root(base)
        if wrong:
            flaws.append(wrong)
            continue
        for turn in range(PLACES_MAX):
            name = hashlib.sha256(f"{places.folder}\0{turn}".encode()).hexdigest()[:PLACE_CHARS]
            if not os.path.lexists(base / name):
                place = _told(places, base / name / COMPACT_NAME)
                record = {"home": place, "token": secrets.token_hex(16), "complete": False}
                files.write_record(places.records / RECORD, record)
                if faults.ARMED:
                    faults.hit(_RECORDED)
                return record
    raise StartFailed(
        "codex_home_no_place",
        f"the path of {places.visible} is too long for Codex's socket, and no short place can be used:"
        f" {'; '.join(flaws) or 'all are taken'}; nothing was started",
        hint=f"Choose a shorter FENCEPOST_HOME, or set {STATE_VARIABLE} to a short folder of your own.",
    )


def _told(places: Places, home: Path) -> str:
    whole = Path(os.path.realpath(places.folder)).parents[1]
    inside = home.is_relative_to(whole) and places.folder.parent.name == AGENTS
    return os.path.relpath(home, os.path.realpath(places.folder)) if inside else str(home)


def _prepared_root(base: Path) -> str:
    """Make a root 0700 where it is missing; return why it cannot be used, or nothing."""
    try:
        base.mkdir(mode=files.FOLDER_MODE, parents=True, exist_ok=True)
        above = base.parent.stat()
    except OSError as error:
        return f"{base}: {os.strerror(error.errno or 0)}"
    shared = above.st_mode & _OTHERS_WRITE and not above.st_mode & stat.S_ISVTX
    if shared or above.st_uid not in {0, os.geteuid()}:
        return f"{base.parent} lets other users replace what is in it"
    return files.flaw(base)


def _completed(places: Places, record: Mapping[str, Any]) -> tuple[Path, list[Finding]]:
    home, notes = _home_of(places, record), list[Finding]()
    place, visible = home.parent, places.visible
    _mark(places, place, str(record["token"]))
    if faults.ARMED:
        faults.hit(_MARKED)
    stands = visible.is_dir() and not visible.is_symlink()
    if os.path.lexists(home):
        if stands:
            raise StartFailed(
                "codex_home_twice",
                f"both {home} and {visible} are Codex homes of this agent; neither was touched, nothing was started",
                hint="Keep the one that is current at the first path, and move the other away.",
            )
        wrong = files.flaw(home)
        if wrong:
            raise _unsafe(wrong)
    elif stands:
        _move(visible, home)
    else:
        home.mkdir(mode=files.FOLDER_MODE)
        if record.get("complete"):
            notes.append(
                Finding(
                    code="codex_home_was_missing",
                    gravity=Gravity.WARNING,
                    text=f"{home}, where this agent's Codex home lay, was gone: an empty one was made",
                    hint="Where you have a backup of it, stop the agent and put it back there.",
                )
            )
    if faults.ARMED:
        faults.hit(_MOVED)
    if files.link_target(visible) != str(home):
        if os.path.lexists(visible) and not visible.is_symlink():
            raise _unsafe(f"{visible} is neither a folder nor a link")
        files.point(visible, str(home))
    if faults.ARMED:
        faults.hit(_LINKED)
    files.write_record(places.records / RECORD, {**record, "complete": True})
    return home, notes


def _mark(places: Places, place: Path, token: str) -> None:
    """Make the place of a record and mark it as this agent's; refuse one that is marked by another."""
    wrong = _prepared_root(place.parent)
    if wrong:
        raise _unsafe(wrong)
    with contextlib.suppress(FileExistsError):
        place.mkdir(mode=files.FOLDER_MODE)
    wrong = files.flaw(place)
    if wrong:
        raise _unsafe(wrong)
    marker = place / MARKER
    found = files.read_record(marker)
    if found and found.get("token") != token:
        raise _unsafe(f"{place} belongs to another agent")
    if not found and any(
        entry.name != MARKER and not entry.name.startswith(f".{MARKER}.") for entry in place.iterdir()
    ):
        raise _unsafe(f"{place} is used by something else")
    words = {"agent_id": places.agent_id, "folder": str(places.folder), "token": token}
    if found != json.loads(json.dumps(words)):
        files.write_record(marker, words)


def _move(visible: Path, home: Path) -> None:
    try:
        visible.rename(home)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        raise StartFailed(
            "codex_home_not_movable",
            f"{visible} has to move to {home} for its socket to fit, on another file system; nothing was moved",
            hint="Move it there yourself while the agent is off, or choose a shorter FENCEPOST_HOME.",
        ) from None
    files.sync(visible.parent)
    files.sync(home.parent)


def _unsafe(what: str) -> StartFailed:
    return StartFailed(
        "codex_home_unsafe",
        f"the short place of this agent's Codex home cannot be used: {what}; nothing was started",
        hint="Look at what stands there; nothing of it was changed.",
    )
