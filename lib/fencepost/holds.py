"""Who holds an agent's name: a lock of the kernel on a file in the agent's folder, open in the holder's process.

It frees itself at any death of the holder. The file is never removed: removing it would free two locks. Asking a holder
to let go is a mark that names this one hold, so that it can never hit a later one. Standard library only, and little of
it: the stdio shim imports this.
"""

from __future__ import annotations

import fcntl
import os
import time

from fencepost.mcp import wire

# Not imported from typing, which would be the most expensive import of the stdio shim.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

HOLD: Final = "hold"
LET_GO: Final = "let-go"
RECORD_BYTES_MAX: Final = 4096
# Whoever only looks takes the lock for a moment: a taker tries a little longer than that.
TAKE_WAIT_MS_MAX: Final = 250
TAKE_POLL_MS: Final = 10
_MODE: Final = 0o600


class Holder:
    """Who holds a name, as the holder wrote it; 0 or empty where that cannot be read."""

    __slots__ = ("hold", "pid", "since_ms", "version")

    def __init__(self, *, pid: int, since_ms: int, hold: str, version: str) -> None:
        self.pid = pid
        self.since_ms = since_ms
        # 32 hexadecimal digits that no other hold has.
        self.hold = hold
        # The version of the shim.
        self.version = version


class Hold:
    """A name held by this process, until `let_go` or the end of the process."""

    def __init__(self, *, folder: str, handle: int, ident: str) -> None:
        self._folder: Final = folder
        self._handle = handle
        self.ident: Final = ident

    def asked_to_let_go(self) -> bool:
        """Tell whether somebody has asked this very hold to end."""
        return _read(f"{self._folder}/{LET_GO}").strip() == self.ident.encode()

    def let_go(self) -> None:
        """Free the name. Does nothing where that was done."""
        if self._handle < 0:
            return
        try:  # noqa: SIM105 (contextlib costs the shim more than all of this)
            os.ftruncate(self._handle, 0)
        except OSError:
            # A full or read-only disk: what stands there says nothing without the lock.
            pass
        os.close(self._handle)
        self._handle = -1


def take(folder: str, *, version: str) -> Hold | Holder:
    """Hold the agent whose folder this is, or return who holds it. Waits TAKE_WAIT_MS_MAX at most.

    Raises:
        OSError: the folder is not there or cannot be written.
    """
    handle = os.open(f"{folder}/{HOLD}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
    try:
        if not _locked(handle):
            holder = _holder(os.pread(handle, RECORD_BYTES_MAX, 0))
            os.close(handle)
            return holder
        ident = os.urandom(16).hex()
        record = (
            f'{{"pid":{os.getpid()},"since_ms":{int(time.time() * 1000)},"hold":"{ident}",'
            f'"version":{wire.quote(version)}}}\n'
        )
        os.ftruncate(handle, 0)
        os.pwrite(handle, record.encode(), 0)
    except OSError:
        os.close(handle)
        raise
    return Hold(folder=folder, handle=handle, ident=ident)


def holder_of(folder: str) -> Holder | None:
    """Return who holds the agent whose folder this is, or None. Changes and creates nothing."""
    try:
        handle = os.open(f"{folder}/{HOLD}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _holder(os.pread(handle, RECORD_BYTES_MAX, 0))
    else:
        return None
    finally:
        os.close(handle)


def ask_to_let_go(folder: str, holder: Holder) -> None:
    """Ask this hold to end: its process notices, lets what it has begun finish, and frees the name.

    Raises:
        OSError: the folder cannot be written.
    """
    temporary = f"{folder}/.{LET_GO}.{os.getpid()}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
    try:
        os.write(handle, holder.hold.encode() + b"\n")
    finally:
        os.close(handle)
    os.replace(temporary, f"{folder}/{LET_GO}")  # noqa: PTH105 (pathlib costs the shim more than all of this)


def _locked(handle: int) -> bool:
    until = time.monotonic() + TAKE_WAIT_MS_MAX / 1000
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(TAKE_POLL_MS / 1000)
        else:
            return True


def _read(path: str) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.read(handle, RECORD_BYTES_MAX)
    except OSError:
        return b""
    finally:
        os.close(handle)


def _holder(raw: bytes) -> Holder:
    try:
        found = wire.decode(raw)
        return Holder(
            pid=int(found["pid"]),
            since_ms=int(found["since_ms"]),
            hold=str(found["hold"]),
            version=str(found["version"]),
        )
    except (ValueError, KeyError, TypeError):
        return Holder(pid=0, since_ms=0, hold="", version="")
