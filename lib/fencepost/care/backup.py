"""A backup of a home: a verified copy of each store, of one moment each, while services run or not."""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fencepost import __version__
from fencepost.care.manifest import NAME, STORES, Manifest, StoreCopy, read_manifest, to_json
from fencepost.errors import Refused
from fencepost.home import FOLDER_MODE, Home
from fencepost_kit.clock import SYSTEM_CLOCK
from fencepost_kit.files import write_private
from fencepost_kit.refusal import Refusal
from fencepost_kit.sqlite import copy_database, read_one

KEPT_MAX: Final = 10
KEPT_DAYS_MAX: Final = 30
KEPT_BYTES_MAX: Final = 16 * 1024 * 1024 * 1024
SPARE_BYTES_MIN: Final = 16 * 1024 * 1024
DAY_MS: Final = 24 * 3600 * 1000
_PARTIAL: Final = ".partial-"


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """A backup that was made, older ones that were removed for it, and what of agents is in no backup."""

    folder: Path
    manifest: Manifest
    removed: tuple[Path, ...]
    left_out: tuple[Path, ...] = ()


def back_up(home: Home, *, to: Path | None = None, keep: int = KEPT_MAX, keep_days: int = KEPT_DAYS_MAX) -> Made:
    """Copy every store into `to`, which must be new or empty, else into a new folder of <home>/backups; 0700 and 0600.

    Services go on meanwhile. In <home>/backups the newest `keep` stay, none older than `keep_days`, and at most
    KEPT_BYTES_MAX in all; the newest always stays, and nothing that is no backup is touched.

    Raises:
        Refused: nothing to copy, a folder that is not empty, too little room, or a store that cannot be read. No backup
            is left.
    """
    databases = {service: home.database(service) for service in STORES}
    missing = [service for service, path in databases.items() if not path.exists()]
    if missing:
        raise Refused(
            "nothing_to_back_up",
            f"{home.text} has no database of {', '.join(missing)}; nothing was written",
            hint="Start the home once with `fencepost up`, or name the right FENCEPOST_HOME.",
        )
    now_ms = SYSTEM_CLOCK.now_ms()
    with _refusing(home):
        folder = _folder(home, to, now_ms)
        _check_room(folder.parent, list(databases.values()))
        partial = folder.parent / f"{_PARTIAL}{os.getpid()}-{folder.name}"
        partial.mkdir(mode=FOLDER_MODE)
        try:
            stores = tuple(_copy(service, path, partial) for service, path in databases.items())
            manifest = Manifest(version=__version__, made_at_ms=now_ms, stores=stores)
            write_private(partial / NAME, to_json(manifest))
            partial.rename(folder)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    removed = () if to is not None else tuple(_prune(folder.parent, now_ms, keep=keep, keep_days=keep_days))
    return Made(folder=folder, manifest=manifest, removed=removed, left_out=agents_own(home))


def agents_own(home: Home) -> tuple[Path, ...]:
    """Return where agents' own files lie: their folders, and the short places to which a private home was moved (R141).

    They are the programs' to write while they run, and hold logins: a backup of ours does not copy them.
    """
    folders = home.path / "agents"
    found = [folders] if folders.is_dir() else []
    for link in sorted(folders.glob("*/habitat/.codex")):
        with contextlib.suppress(OSError, RuntimeError):
            place = link.resolve().parent
            if link.is_symlink() and not place.is_relative_to(folders.resolve()):
                found.append(place)
    return tuple(found)


def _folder(home: Home, to: Path | None, now_ms: int) -> Path:
    if to is None:
        parent = home.path / "backups"
        parent.mkdir(mode=FOLDER_MODE, exist_ok=True)
        moment = datetime.datetime.fromtimestamp(now_ms / 1000, tz=datetime.UTC)
        return parent / moment.strftime("%Y%m%dT%H%M%S.%fZ")
    folder = to.absolute()
    if os.path.lexists(folder) and (folder.is_symlink() or not folder.is_dir() or any(folder.iterdir())):
        raise Refused(
            "backup_folder_in_use",
            f"{folder} exists and is not an empty folder; nothing was written",
            hint="Name a folder that does not exist yet.",
        )
    folder.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    return folder


def _copy(service: str, database: Path, folder: Path) -> StoreCopy:
    target = folder / f"{service}.db"
    copied = copy_database(database, target)
    epoch = read_one(target, STORES[service][0])
    return StoreCopy(
        service=service,
        file=target.name,
        schema=copied.schema,
        epoch=str(uuid.UUID(bytes=epoch)) if isinstance(epoch, bytes) and len(epoch) == 16 else "",
        rows=copied.rows,
        size_bytes=copied.size_bytes,
        sha256=copied.sha256,
    )


def _check_room(place: Path, databases: list[Path]) -> None:
    files = [path for database in databases for path in (database, database.with_name(database.name + "-wal"))]
    needed = sum(path.stat().st_size for path in files if path.exists()) + SPARE_BYTES_MIN
    free = shutil.disk_usage(place).free
    if free < needed:
        raise Refused(
            "no_room_for_backup",
            f"{place} has {free} bytes free and the backup may take {needed}; nothing was written",
            hint="Make room, or name another disk with --to.",
            state={"free_bytes": str(free), "needed_bytes": str(needed)},
        )


def _prune(parent: Path, now_ms: int, *, keep: int, keep_days: int) -> Iterator[Path]:
    """Remove backups over the limits, the oldest first, and what interrupted ones left; the newest stays."""
    found: list[tuple[int, Path, int]] = []
    for folder in parent.iterdir():
        if folder.is_symlink() or not folder.is_dir():
            continue
        with contextlib.suppress(Refused):
            manifest = read_manifest(folder)
            found.append((manifest.made_at_ms, folder, sum(store.size_bytes for store in manifest.stores)))
    total = 0
    for place, (made_at_ms, folder, size) in enumerate(sorted(found, reverse=True)):
        total += size
        stays = place < keep and now_ms - made_at_ms <= keep_days * DAY_MS and total <= KEPT_BYTES_MAX
        if place and not stays:
            shutil.rmtree(folder)
            yield folder


@contextlib.contextmanager
def _refusing(home: Home) -> Iterator[None]:
    try:
        yield
    except Refusal as refusal:
        raise Refused(refusal.reason, refusal.message, hint=refusal.hint, state=dict(refusal.state)) from refusal
    except OSError as error:
        raise Refused(
            "backup_failed",
            f"the stores of {home.text} could not be copied: {error}; no backup was left, the stores are as they were",
            hint="Check that both disks have room and can be read and written, then try again.",
        ) from error
