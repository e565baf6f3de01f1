"""Restoring a backup: only while nothing runs, and never over data that is not moved aside first."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fencepost.care.manifest import STORES, Manifest, StoreCopy, read_manifest
from fencepost.errors import Refused
from fencepost.home import FOLDER_MODE, SERVICES, Home
from fencepost_kit.clock import SYSTEM_CLOCK
from fencepost_kit.files import OwnerLock, home_refusals
from fencepost_kit.refusal import Refusal
from fencepost_kit.sqlite import fold_log, load_migrations, verify_copy

ASIDE: Final = "replaced"
_STAGED: Final = ".restoring"


@dataclass(frozen=True, kw_only=True, slots=True)
class Restored:
    """A restored home: what was put back, and where the data that stood there lie now (None: there were none)."""

    manifest: Manifest
    aside: Path | None


def restore(home: Home, folder: Path) -> Restored:
    """Put the stores of a backup in the place of the home's own.

    The home's services must not run, and cannot be started meanwhile. The present databases are moved to
    <home>/replaced/<moment> first. Each restored store takes a new epoch when its service first opens it; mailbox then
    turns every claim that was held uncertain. Credential files are left as they are.

    Raises:
        Refused: services run; the backup is damaged or of a newer version; nothing was changed. Or the disk failed in
            the middle: the message says what stands where, and restoring again is safe.
    """
    manifest = read_manifest(folder)
    try:
        with home_refusals(home):
            home.prepare()
        with _nothing_runs(home):
            for store in manifest.stores:
                _verify(folder, store)
            return Restored(manifest=manifest, aside=_put(home, folder, manifest))
    except Refusal as refusal:
        raise Refused(refusal.reason, refusal.message, hint=refusal.hint, state=dict(refusal.state)) from refusal


@contextlib.contextmanager
def _nothing_runs(home: Home) -> Iterator[None]:
    """Hold every lock of the home, so that nothing runs and nothing can be started."""
    databases = [home.database(service) for service in STORES]
    for database in databases:
        database.parent.mkdir(mode=FOLDER_MODE, exist_ok=True)
    locks = [
        home.up_lock,
        *(home.lock(service) for service in SERVICES),
        *(database.with_name(database.name + ".owner") for database in databases),
    ]
    with contextlib.ExitStack() as held:
        for path in locks:
            lock = OwnerLock(path)
            owner = lock.acquire()
            if owner is not None:
                raise Refused(
                    "home_in_use",
                    f"process {owner.pid or 'unknown'} holds {path}; nothing was changed",
                    hint="Stop the services first: fencepost down.",
                    state={"pid": str(owner.pid)},
                )
            held.callback(lock.release)
        yield


def _verify(folder: Path, store: StoreCopy) -> None:
    path = folder / store.file
    known = len(load_migrations(STORES[store.service][1]))
    if store.schema > known:
        raise Refused(
            "schema_too_new",
            f"the backup of {store.service} has schema {store.schema}, this program knows {known}; nothing was changed",
            hint="Install the newer version of fencepost that made it.",
        )
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _damaged(f"{path} cannot be read: {error.strerror}") from error
    if found != store.sha256:
        raise _damaged(f"{path} is not the file that was written: its SHA-256 differs")
    verify_copy(path, rows=store.rows)


def _damaged(what: str) -> Refused:
    return Refused("backup_damaged", f"{what}; nothing was changed", hint="Use another backup.")


def _put(home: Home, folder: Path, manifest: Manifest) -> Path | None:
    moment = datetime.datetime.fromtimestamp(SYSTEM_CLOCK.now_ms() / 1000, tz=datetime.UTC)
    aside = home.path / ASIDE / moment.strftime("%Y%m%dT%H%M%S.%fZ")
    present = {store.service: home.database(store.service) for store in manifest.stores}
    staged = {service: path.with_name(path.name + _STAGED) for service, path in present.items()}
    moved = False
    try:
        for store in manifest.stores:
            _stage(folder / store.file, staged[store.service])
        for service, database in present.items():
            moved = _move_aside(database, aside / service) or moved
            staged[service].replace(database)
            _settle(database.parent)
    except OSError as error:
        stands = f"what stood there is in {aside}" if moved else "the home is as it was"
        raise Refused(
            "restore_failed",
            f"the disk failed while {folder} was restored: {error}; {stands}",
            hint="Make room or mend the disk, then restore again: it begins anew and loses nothing that was moved.",
        ) from error
    finally:
        for path in staged.values():
            path.unlink(missing_ok=True)
    return aside if moved else None


def _stage(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with source.open("rb") as read, open(handle, "wb") as written:  # noqa: PTH123 - a descriptor, not a path
        shutil.copyfileobj(read, written)
        written.flush()
        os.fsync(handle)


def _move_aside(database: Path, folder: Path) -> bool:
    """Move a database away with what belongs to it; tell whether there was one."""
    if not os.path.lexists(database):
        return False
    # A log that stays behind would be taken for the restored database's own.
    fold_log(database)
    folder.mkdir(mode=FOLDER_MODE, parents=True)
    for suffix in ("-wal", "-shm", "-journal", ""):
        path = database.with_name(database.name + suffix)
        if os.path.lexists(path):
            path.rename(folder / path.name)
    return True


def _settle(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
