"""Files of the private home: read whole within a limit, replaced atomically, locked across processes.

Nothing here follows a link to write: whatever stands at a name is replaced by the new file, so that a link from the
private home to the user's own can never carry a write outwards (M118).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from fencepost_kit.files import lock
from fencepost_providers.adapters.base import StartFailed

CONFIGURATION_BYTES_MAX: Final = 16 * 1024 * 1024
RECORD_BYTES_MAX: Final = 8 * 1024 * 1024
LOCK_MS_MAX: Final = 10_000
FOLDER_MODE: Final = 0o700
PRIVATE_MODE: Final = 0o600
_OTHERS: Final = 0o077


class Unreadable(Exception):
    """A file is there and cannot be used; says which and why. Nothing was written."""


class ChangedMeanwhile(Exception):
    """A file no longer holds what a decision rested on. Nothing was written."""


def read(path: Path, *, bytes_max: int = CONFIGURATION_BYTES_MAX) -> bytes | None:
    """Return the content of a plain file, or None where there is none. Follows links.

    Raises:
        Unreadable: it is no plain file, over `bytes_max`, or cannot be read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unreadable(f"{path}: {os.strerror(error.errno or 0)}") from None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise Unreadable(f"{path}: it is no plain file")
        with open(handle, "rb", closefd=False) as file:
            raw = file.read(bytes_max + 1)
    except OSError as error:
        raise Unreadable(f"{path}: {os.strerror(error.errno or 0)}") from None
    finally:
        os.close(handle)
    if len(raw) > bytes_max:
        raise Unreadable(f"{path}: it is over {bytes_max} bytes")
    return raw


def text_of(path: Path, raw: bytes | None) -> str:
    """Return the text of a file.

    Raises:
        Unreadable: it is not UTF-8.
    """
    try:
        return (raw or b"").decode("utf-8")
    except UnicodeDecodeError:
        raise Unreadable(f"{path}: it is not UTF-8") from None


def publish(path: Path, content: bytes, *, before: bytes | None) -> None:
    """Replace a file that still holds `before` by one of mode 0600 with `content`, durably. A link is replaced.

    Raises:
        ChangedMeanwhile: it holds something else now.
        Unreadable: it is no plain file.
    """

    def unchanged() -> None:
        if read(path, bytes_max=max(CONFIGURATION_BYTES_MAX, len(content))) != before:
            raise ChangedMeanwhile(str(path))

    _replace(path, content, unchanged)


def write(path: Path, content: bytes) -> None:
    """Replace whatever file or link is at a name of ours by a file of mode 0600, durably."""
    _replace(path, content, lambda: None)


def _replace(path: Path, content: bytes, unchanged: Callable[[], None]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_MODE)
    try:
        with open(handle, "wb") as file:  # noqa: PTH123 (a descriptor, not a path)
            os.fchmod(handle, PRIVATE_MODE)
            file.write(content)
            file.flush()
            os.fsync(handle)
        # As late as possible: what is between this look and the rename is too short for a person or a program.
        unchanged()
        temporary.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
    sync(path.parent)


def sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_record(path: Path) -> dict[str, Any]:
    """Return a record of ours; empty where there is none, or where it cannot be understood.

    A lost record makes us own less: what it claimed is left to whoever edits it by hand.
    """
    try:
        raw = read(path, bytes_max=RECORD_BYTES_MAX)
        found = json.loads(raw) if raw else {}
    except (Unreadable, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Replace a record of ours durably; one that says the same is left alone."""
    content = json.dumps(record, indent=1, sort_keys=True).encode() + b"\n"
    with contextlib.suppress(Unreadable):
        if read(path, bytes_max=RECORD_BYTES_MAX) == content:
            return
    write(path, content)


def remove(path: Path) -> None:
    """Remove a file of ours durably; harmless where there is none."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
        sync(path.parent)


def make_private(folder: Path) -> None:
    """Make a folder 0700, with those above it, or take the others' rights from one of ours.

    Raises:
        StartFailed: it is no folder, a link, or another user's.
    """
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
        raise StartFailed(
            "codex_home_unsafe",
            f"{folder} is a link or another user's; nothing was started",
            hint="Look at what stands there; the agent's folder must be your own.",
        )
    if stat.S_IMODE(facts.st_mode) & _OTHERS:
        folder.chmod(FOLDER_MODE)


def flaw(folder: Path) -> str:
    """Return why a folder is not a private one of this user, or nothing."""
    try:
        facts = folder.lstat()
    except OSError as error:
        return f"{folder} cannot be looked at: {os.strerror(error.errno or 0)}"
    if not stat.S_ISDIR(facts.st_mode):
        return f"{folder} is no folder, or a link"
    if facts.st_uid != os.geteuid():
        return f"{folder} belongs to another user"
    if stat.S_IMODE(facts.st_mode) & _OTHERS:
        return f"{folder} is open to other users"
    return ""


def link_target(path: Path) -> str | None:
    """Return where a link leads, or None where there is no link."""
    try:
        return str(path.readlink())
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT, errno.ENOTDIR}:
            return None
        raise


def point(link: Path, target: str) -> None:
    """Make a link, or lead one elsewhere, atomically. The caller knows that nothing else stands there."""
    temporary = link.with_name(f".{link.name}.{os.getpid()}.{secrets.token_hex(4)}")
    temporary.symlink_to(target)
    try:
        temporary.replace(link)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
    sync(link.parent)


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a lock file of ours while the body runs.

    Raises:
        StartFailed: somebody else holds it for LOCK_MS_MAX.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_MODE)
    try:
        if not lock(handle, ms_max=LOCK_MS_MAX):
            raise StartFailed(
                "codex_home_busy",
                "another process is preparing this agent's Codex home; nothing was written",
                hint="Try again in a moment.",
                again=True,
            )
        yield
    finally:
        os.close(handle)
