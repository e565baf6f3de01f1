"""The agent's conversations lie in the user's own sessions folder: a link, made after what was local has moved there.

No rollout is ever lost or overwritten: a file leaves the private tree only once the same content stands under the same
name in the native one. Where anything is in the way, the local tree is what it was, and the agent goes on with it.
Source: R101-R103.
"""

from __future__ import annotations

import contextlib
import errno
import filecmp
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fencepost_kit import faults
from fencepost_providers.adapters.base import StartFailed
from fencepost_providers.adapters.codex.home import files
from fencepost_providers.domain.runtimes import Finding, Gravity

NAME: Final = "sessions"
ASIDE: Final = ".sessions-being-linked"
RECORD: Final = "sessions.json"
FILES_MAX: Final = 200_000
DEPTH_MAX: Final = 16
_PLACED = faults.register("providers.codex_home.rollout_placed", "a rollout stands in both trees")
_COPIED = faults.register("providers.codex_home.sessions_copied", "every rollout stands in both trees")
_ASIDE = faults.register("providers.codex_home.sessions_aside", "the local tree is aside, no link is made")
_LINKED = faults.register("providers.codex_home.sessions_linked", "the link is made, the old tree is aside")
_CLEARED = faults.register("providers.codex_home.rollout_cleared", "a rollout has left the old tree")


class _NotNow(Exception):
    """Linking is not possible: says why. Nothing was lost."""


def link(home: Path, native: Path, records: Path) -> list[Finding]:
    """Link the home's sessions folder to the native one, moving what is local there with unchanged names.

    Raises:
        StartFailed: the local tree could be neither moved nor put back; it lies whole under the name that is said.
    """
    try:
        _recover(home, native)
        target = _target(home, native)
        _link(home, target, records)
        _clear(home / ASIDE, target)
    except (_NotNow, OSError) as error:
        why = str(error) if isinstance(error, _NotNow) else f"{error.filename or ''}: {os.strerror(error.errno or 0)}"
        return _local(home, records, why)
    return []


def _target(home: Path, native: Path) -> Path:
    if not native.is_dir():
        raise _NotNow(f"you have no Codex home of your own at {native}")
    target = native / NAME
    with contextlib.suppress(FileExistsError):
        target.mkdir(mode=files.FOLDER_MODE)
    if not target.is_dir():
        raise _NotNow(f"{target} is no folder")
    if Path(os.path.realpath(target)).is_relative_to(os.path.realpath(home)):
        raise _NotNow(f"{target} leads into the agent's own home")
    return target


def _recover(home: Path, native: Path) -> None:
    """Go on where a crash has left the old tree aside: back to its name, or, behind a finished link, nothing yet."""
    local, aside = home / NAME, home / ASIDE
    if not aside.is_dir():
        return
    leads = files.link_target(local)
    if leads is not None and leads == str(native / NAME):
        return
    if leads is not None and not local.exists():
        # A link to a native home that is gone: what is aside is all there is.
        files.remove(local)
        leads = None
    if not os.path.lexists(local):
        aside.rename(local)
        files.sync(home)
    elif leads is None and local.is_dir():
        _pour(aside, local)


def _pour(source: Path, target: Path) -> None:
    """Move the files of one tree into another; what would meet a different file stays where it is."""
    for path in list(_tree(source)):
        try:
            _place(source, target, path)
        except _NotNow:
            continue
        (source / path).unlink()
    _prune(source)


def _link(home: Path, target: Path, records: Path) -> None:
    local = home / NAME
    leads = files.link_target(local)
    if leads == str(target):
        files.write_record(records / RECORD, {"target": str(target)})
        return
    if leads is not None:
        if leads != files.read_record(records / RECORD).get("target"):
            raise _NotNow(f"{local} is a link of somebody else's, to {leads}")
    elif os.path.lexists(local):
        _migrate(local, home / ASIDE, target)
        return
    files.write_record(records / RECORD, {"target": str(target)})
    files.point(local, str(target))


def _migrate(local: Path, aside: Path, target: Path) -> None:
    """Put every local file into the native tree, then the link in the place of the local one.

    Raises:
        _NotNow, OSError: the local tree stands where it was, and what was put into the native one is taken out again.
    """
    placed: list[Path] = []
    try:
        for path in list(_tree(local)):
            if _place(local, target, path):
                placed.append(path)
            if faults.ARMED:
                faults.hit(_PLACED)
        if faults.ARMED:
            faults.hit(_COPIED)
        local.rename(aside)
        if faults.ARMED:
            faults.hit(_ASIDE)
        local.symlink_to(target)
        files.sync(local.parent)
    except (OSError, _NotNow):
        _restore(local, aside)
        for path in placed:
            _take_back(local / path, target / path)
        raise
    if faults.ARMED:
        with contextlib.suppress(OSError):
            faults.hit(_LINKED)


def _restore(local: Path, aside: Path) -> None:
    try:
        if aside.is_dir() and not (local.is_dir() and not local.is_symlink()):
            with contextlib.suppress(FileNotFoundError):
                local.unlink()
            aside.rename(local)
            files.sync(local.parent)
    except OSError as error:
        raise StartFailed(
            "codex_sessions_not_restored",
            f"this agent's conversations lie in {aside} and could not be put back to {local}:"
            f" {os.strerror(error.errno or 0)}; none is lost, nothing was started",
            hint="Look at that folder's rights and disk, then start the agent again: it goes on from there.",
            again=True,
        ) from error


def _take_back(source: Path, copy: Path) -> None:
    """Take a file out of the native tree that we have just put there, if it is still the same as the local one."""
    with contextlib.suppress(OSError):
        if _same(source, copy):
            copy.unlink()


def _place(source: Path, target: Path, path: Path) -> bool:
    """Make a file of one tree stand in the other under its own name; tell whether it had not stood there.

    Raises:
        _NotNow: a different file has this name.
    """
    old, new = source / path, target / path
    _folders(target, path.parent)
    for attempt in (_hard_link, _copy):
        try:
            attempt(old, new)
        except FileExistsError:
            if _same(old, new):
                return False
            raise _NotNow(f"{new} is another file than {old}") from None
        except OSError as error:
            if attempt is _copy or error.errno not in {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP}:
                raise
        else:
            break
    files.sync(new.parent)
    return True


def _folders(target: Path, path: Path) -> None:
    place = target
    for part in path.parts:
        place /= part
        with contextlib.suppress(FileExistsError):
            place.mkdir(mode=files.FOLDER_MODE)
            files.sync(place.parent)


def _hard_link(old: Path, new: Path) -> None:
    new.hardlink_to(old)


def _copy(old: Path, new: Path) -> None:
    """Copy a file, whole or not at all, and never over another."""
    temporary = new.with_name(f".{new.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        shutil.copy2(old, temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        try:
            new.hardlink_to(temporary)
        except FileExistsError:
            raise
        except OSError:
            if os.path.lexists(new):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(new)) from None
            temporary.replace(new)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def _same(one: Path, other: Path) -> bool:
    return one.samefile(other) or (other.is_file() and filecmp.cmp(one, other, shallow=False))


def _tree(root: Path, at: Path = Path(), depth: int = 0) -> Iterator[Path]:
    """Yield the files below a folder, relative to it.

    Raises:
        _NotNow: there are links or other things among them, or too many.
    """
    if depth > DEPTH_MAX:
        raise _NotNow(f"{root / at} is nested too deep")
    count = 0
    with os.scandir(root / at) as entries:
        for entry in entries:
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                yield from _tree(root, at / entry.name, depth + 1)
            elif stat.S_ISREG(mode):
                count += 1
                yield at / entry.name
            else:
                raise _NotNow(f"{root / at / entry.name} is neither a file nor a folder")
            if count > FILES_MAX:
                raise _NotNow(f"{root / at} holds over {FILES_MAX} files")


def _clear(aside: Path, target: Path) -> None:
    """Empty the old tree behind the link: each file goes once it stands in the native tree.

    Raises:
        _NotNow: something in it does not stand there; it stays.
    """
    if not aside.is_dir():
        return
    for path in list(_tree(aside)):
        _place(aside, target, path)
        (aside / path).unlink()
        if faults.ARMED:
            faults.hit(_CLEARED)
    _prune(aside)


def _prune(root: Path) -> None:
    """Remove a tree of empty folders; where one is not empty it stays, and all above it."""
    for folder, _, _ in os.walk(root, topdown=False):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()


def _local(home: Path, records: Path, why: str) -> list[Finding]:
    """Go on with the agent's own tree."""
    local, aside = home / NAME, home / ASIDE
    if not os.path.lexists(local):
        local.mkdir(mode=files.FOLDER_MODE)
    elif not local.exists() and files.link_target(local) == files.read_record(records / RECORD).get("target"):
        files.remove(local)
        local.mkdir(mode=files.FOLDER_MODE)
    if local.is_symlink():
        rest = f" What is left of the local tree lies in {aside}." if aside.is_dir() else ""
        text = f"{local} is a link; something of it could not be brought up to date: {why}.{rest}"
        return [Finding(code="codex_sessions_incomplete", gravity=Gravity.WARNING, text=text, hint="Nothing is lost.")]
    return [
        Finding(
            code="codex_sessions_local",
            gravity=Gravity.FACT if "no Codex home of your own" in why else Gravity.WARNING,
            text=f"this agent's conversations stay in {local} and are not listed by your own Codex: {why}",
            hint="None is lost; they move at the next start after that is settled.",
        )
    ]
