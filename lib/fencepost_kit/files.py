"""Private files: replaced atomically, and locks that name their owner."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fencepost.errors import Refused
from fencepost.home import Home
from fencepost_kit.clock import SYSTEM_CLOCK
from fencepost_kit.refusal import StartRefused

PRIVATE_MODE: Final = 0o600
OWNER_BYTES_MAX: Final = 4096
# Whoever only looks whether a lock is held takes it for a moment: an owner-to-be tries a little longer than that.
LOCK_WAIT_MS_MAX: Final = 250
LOCK_POLL_MS: Final = 10


def write_private(target: Path, content: bytes) -> None:
    """Replace `target` by a file of mode 0600 with `content`: O_EXCL temporary, fsync, rename, fsync of the folder."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_MODE)
    try:
        with open(handle, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            os.fchmod(handle, PRIVATE_MODE)
            file.write(content)
            file.flush()
            os.fsync(handle)
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Who holds a lock, as the holder wrote it; 0 where that cannot be read."""

    pid: int
    started_at_ms: int


def read_owner(handle: int) -> Owner:
    """Return what the holder of a lock wrote into it."""
    try:
        found = json.loads(os.pread(handle, OWNER_BYTES_MAX, 0))
        return Owner(pid=int(found["pid"]), started_at_ms=int(found["started_at_ms"]))
    except (ValueError, KeyError, TypeError):
        return Owner(pid=0, started_at_ms=0)


def lock(handle: int, *, ms_max: int = LOCK_WAIT_MS_MAX) -> bool:
    """Try to take an exclusive flock for at most `ms_max`, and tell whether it is held."""
    until = time.monotonic() + ms_max / 1000
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(LOCK_POLL_MS / 1000)
        else:
            return True


def owner_of(path: Path) -> Owner | None:
    """Return who holds the lock at `path`, or None where nobody does. Changes and creates nothing.

    Refuses where that cannot be looked at: a lock that cannot be read is not one that nobody holds.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Refused(
            "lock_unreadable",
            f"{path} cannot be read: {os.strerror(error.errno or 0)}; nothing was done",
            hint="It must be a plain file of your own in a home of your own: look at it, or choose another"
            " FENCEPOST_HOME.",
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return read_owner(handle)
    else:
        return None
    finally:
        os.close(handle)


class OwnerLock:
    """An exclusive flock on a file that names its holder. The file is never removed: removing it would free two locks.

    The kernel frees it when the process ends in any way.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = -1

    def acquire(self) -> Owner | None:
        """Take the lock and write our name, or return who holds it."""
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_MODE)
        try:
            if not lock(handle):
                owner = read_owner(handle)
                os.close(handle)
                return owner
        except OSError:
            os.close(handle)
            raise
        content = json.dumps({"pid": os.getpid(), "started_at_ms": SYSTEM_CLOCK.now_ms()}).encode()
        try:
            # Written over what stands there before it is cut: on a full disk there is room for nothing else.
            os.pwrite(handle, content + b"\n", 0)
            os.ftruncate(handle, len(content) + 1)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                os.close(handle)
                raise
            # The lock is held all the same; only our name is missing in it.
        self._handle = handle
        return None

    def release(self) -> None:
        """Free the lock. Does nothing where it is not held."""
        if self._handle >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, 0)
            os.close(self._handle)
            self._handle = -1


class HomeRefused(StartRefused):
    """The home cannot be used; `reason` of the cause is in the state."""

    reason = "home_unusable"


_UNWRITABLE: Final = frozenset(
    {
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.EEXIST,
    }
)


@contextlib.contextmanager
def home_refusals(home: Home) -> Iterator[None]:
    """Turn what the home or the file system answers into a refusal that says what to do."""
    try:
        yield
    except Refused as refused:
        raise HomeRefused(
            refused.message, hint=refused.hint, state={**refused.state, "cause": refused.reason}
        ) from refused
    except OSError as error:
        if error.errno is None or error.errno not in _UNWRITABLE:
            raise
        raise HomeRefused(
            f"{error.filename or home.path}: {os.strerror(error.errno)}; nothing was started",
            hint="Make the home writable for this user, or choose another FENCEPOST_HOME.",
            state={"cause": "home_not_writable", "errno": errno.errorcode[error.errno]},
        ) from error
