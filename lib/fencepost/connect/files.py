"""Reading and replacing files that belong to somebody else: whole, atomically, with their mode, never by surprise."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fencepost.errors import Refused
from fencepost.home import FOLDER_MODE, Home

CONFIGURATION_BYTES_MAX: Final = 16 * 1024 * 1024
PRIVATE_MODE: Final = 0o600
LOCK_MS_MAX: Final = 5_000
LOCK_POLL_MS: Final = 20
BOM: Final = "\ufeff"
_FOLDER: Final = "connect"


def folder_of(home: Home) -> Path:
    """Return where records and backups lie; it need not exist."""
    return home.path / _FOLDER


def read(path: Path) -> bytes | None:
    """Return the content of a file, or None where there is none. Follows links.

    Refuses what is no plain file, is over CONFIGURATION_BYTES_MAX, or cannot be read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error.strerror) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _unreadable(path, "it is no plain file")
    with open(handle, "rb") as file:  # noqa: PTH123 (a descriptor, not a path)
        raw = file.read(CONFIGURATION_BYTES_MAX + 1)
    if len(raw) > CONFIGURATION_BYTES_MAX:
        raise _unreadable(path, f"it is over {CONFIGURATION_BYTES_MAX} bytes")
    return raw


def text_of(path: Path, raw: bytes | None) -> str:
    """Return the text of a file; refuse what is not UTF-8. A byte order mark stays in the text."""
    try:
        return (raw or b"").decode("utf-8")
    except UnicodeDecodeError:
        raise _unreadable(path, "it is not UTF-8") from None


def replace(path: Path, content: bytes, *, before: bytes | None) -> list[Path]:
    """Replace a file that still holds `before`, atomically and keeping its mode; return the folders that were made.

    A new file is 0600, a new folder 0700. A link is followed: what it leads to is replaced.

    Raises:
        Refused: the file has been changed in the meantime, or cannot be written. Nothing was written.
    """
    real = Path(os.path.realpath(path))
    made = _folders(real.parent)
    mode = stat.S_IMODE(real.stat().st_mode) if before is not None else PRIVATE_MODE
    temporary = real.with_name(f".{real.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_MODE)
        with open(handle, "wb") as file:  # noqa: PTH123 (a descriptor, not a path)
            os.fchmod(handle, mode)
            file.write(content)
            file.flush()
            os.fsync(handle)
        check_unchanged(path, before)
        temporary.replace(real)
    except OSError as error:
        raise _unwritable(path, error.strerror) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    sync(real.parent)
    return made


def remove(path: Path, *, before: bytes, folders: list[Path]) -> None:
    """Remove a file that still holds `before`, and those of its folders, made for it, that are empty now."""
    check_unchanged(path, before)
    real = Path(os.path.realpath(path))
    try:
        real.unlink()
    except OSError as error:
        raise _unwritable(path, error.strerror) from None
    for folder in reversed(folders):
        with contextlib.suppress(OSError):
            folder.rmdir()


def check_unchanged(path: Path, before: bytes | None) -> None:
    """Refuse where a file no longer holds `before`."""
    if read(path) != before:
        raise Refused(
            "changed_meanwhile",
            f"{path} was changed by somebody else at this moment; it was left as it is",
            hint="Run the same command again.",
        )


def sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def exclusive(home: Home) -> Iterator[Path]:
    """Yield the folder of records, made where it is missing, while nobody else changes configurations.

    Refuses where somebody else does for LOCK_MS_MAX.
    """
    folder = folder_of(home)
    try:
        for made in (home.path, folder):
            made.mkdir(mode=FOLDER_MODE, parents=made == home.path, exist_ok=True)
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_MODE)
    except OSError as error:
        raise _unwritable(folder, error.strerror) from None
    try:
        until = time.monotonic() + LOCK_MS_MAX / 1000
        while not _locked(handle):
            if time.monotonic() >= until:
                raise Refused("busy", "another `fencepost connect` is at work; nothing was written", hint="Try again.")
            time.sleep(LOCK_POLL_MS / 1000)
        yield folder
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _folders(folder: Path) -> list[Path]:
    """Make a folder and those above it; return which were made, the highest first."""
    missing = [folder, *folder.parents]
    missing = missing[: next((at for at, place in enumerate(missing) if place.exists()), 0)]
    for place in reversed(missing):
        try:
            place.mkdir(mode=FOLDER_MODE)
        except FileExistsError:
            continue
        except OSError as error:
            raise _unwritable(place, error.strerror) from None
    return list(reversed(missing))


def _unreadable(path: Path, why: str | None) -> Refused:
    return Refused("configuration_unreadable", f"{path} cannot be read: {why}; nothing was written")


def _unwritable(path: Path, why: str | None) -> Refused:
    return Refused("configuration_not_writable", f"{path} cannot be written: {why}; it is as it was")
