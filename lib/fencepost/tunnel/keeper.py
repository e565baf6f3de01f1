"""What runs on the other machine while a tunnel stands. It is sent as text over ssh and is a file of nobody's there.

It keeps one private folder: the forwarded socket's published address and the credentials of the named agents. It cleans
up whenever its input ends, whatever ended it: the person's word, a kill, a lost connection, silence. Standard library
only, and readable by a Python that is too old for the rest (3.8), so that it can say so. Input: one JSON line, then
words; output: JSON lines behind a mark, so that nothing that the account's shell prints is taken for an answer.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import queue
import shutil
import signal
import stat
import sys
import threading
import time
from typing import Any, Final

PYTHON_MIN: Final = (3, 11)
FOLDER_DEFAULT: Final = ".fencepost-tunnel"
MARKER: Final = "tunnel.json"
LOCK: Final = "tunnel.lock"
OURS: Final = frozenset({"agents", "run", "shim", MARKER, LOCK})
# Characters that neither ssh's own reading of a forwarding nor any shell gives a meaning.
PATH_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@,=")
SOCKET_BYTES_MAX: Final = 103 if sys.platform == "darwin" else 107
# A predecessor of the same tunnel is asked to go, and waited for so long.
PREDECESSOR_MS_MAX: Final = 5_000
POLL_MS: Final = 50
WORD_BYTES_MAX: Final = 64
RECORD_BYTES_MAX: Final = 4_096
ENDINGS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
PRIVATE_FOLDER: Final = 0o700
PRIVATE_FILE: Final = 0o600


class Flaw(Exception):
    """Why nothing can be kept here: a code, and a sentence that says what was done."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def say(mark: str, **fields: Any) -> None:
    """Write one answer."""
    sys.stdout.write(mark + json.dumps(fields) + "\n")
    sys.stdout.flush()


def folder_of(named: str) -> str:
    """Return the absolute path of the folder; refuse one that ssh could misread."""
    path = os.path.normpath(os.path.join(os.path.expanduser("~"), named or FOLDER_DEFAULT))
    if not path.startswith("/") or not set(path) <= PATH_CHARS:
        raise Flaw(
            "remote_home_unsafe",
            f"the folder {path!a} over there has characters that ssh may misread; nothing was made there",
        )
    return path


def socket_of(folder: str, name: str) -> str:
    """Return the path of a socket in the folder; refuse one that is too long."""
    path = f"{folder}/run/{name}"
    size = len(os.fsencode(path))
    if size > SOCKET_BYTES_MAX:
        raise Flaw(
            "remote_path_too_long",
            f"the socket's path over there would take {size} bytes, and its system takes {SOCKET_BYTES_MAX}; nothing"
            " was made there",
        )
    return path


def private_folder(path: str) -> None:
    """Make a folder of this user alone, or refuse one that is not."""
    try:
        os.mkdir(path, PRIVATE_FOLDER)
    except FileExistsError:
        pass
    except OSError as error:
        raise Flaw("remote_home_unsafe", f"{path} cannot be made over there: {error.strerror}") from None
    facts = os.lstat(path)
    if not stat.S_ISDIR(facts.st_mode):
        raise Flaw("remote_home_unsafe", f"{path} over there is no folder, or is a link; nothing was made in it")
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
        raise Flaw(
            "remote_home_unsafe",
            f"{path} over there belongs to another user or is open to others; nothing was made in it",
        )


def check_place(folder: str) -> None:
    """Refuse a place in which another user may put something else under the folder's name."""
    place = os.path.dirname(folder)
    try:
        facts = os.stat(place)
    except OSError as error:
        raise Flaw("remote_home_unsafe", f"{place} over there cannot be looked at: {error.strerror}") from None
    shared = facts.st_mode & 0o022 and not facts.st_mode & stat.S_ISVTX
    if shared or facts.st_uid not in (0, os.geteuid()):
        raise Flaw("remote_home_unsafe", f"{place} over there lets other users replace what is in it")


def write_private(path: str, text: str, mode: int = PRIVATE_FILE) -> None:
    """Write a file whole or not at all; from its first byte on it is this user's alone."""
    temporary = f"{os.path.dirname(path)}/.{os.path.basename(path)}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    handle = os.open(temporary, flags, PRIVATE_FILE)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as opened:
            opened.write(text)
        os.chmod(temporary, mode)
        os.rename(temporary, path)
    except OSError:
        forget(temporary)
        raise


def forget(path: str) -> None:
    """Remove a file, if it is there."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def prepare(setup: dict[str, Any]) -> str:
    """Make the folder, or find it as one of ours; put the shim into it where that is asked for. Returns its path."""
    folder = folder_of(setup["home"])
    socket_of(folder, setup["socket"])
    check_place(folder)
    private_folder(folder)
    strangers = sorted(name for name in os.listdir(folder) if name not in OURS and not name.startswith(".shim-"))
    if strangers:
        raise Flaw(
            "remote_home_taken",
            f"{folder} over there holds something else ({strangers[0]!a}); nothing was made in it",
        )
    for name in ("run", "agents"):
        private_folder(f"{folder}/{name}")
    # Let go at once: this only finds out whether another tunnel keeps it.
    os.close(take(folder, setup["tunnel"]))
    if setup["shim"] is not None:
        install(folder, setup["shim"])
    return folder


def install(folder: str, files: dict[str, str]) -> None:
    """Put the files of the shim in place, all at once."""
    fresh, old = f"{folder}/.shim-{os.getpid()}", f"{folder}/.shim-old-{os.getpid()}"
    shutil.rmtree(fresh, ignore_errors=True)
    os.mkdir(fresh, PRIVATE_FOLDER)
    for name in sorted(files):
        target = os.path.normpath(f"{fresh}/{name}")
        os.makedirs(os.path.dirname(target), mode=PRIVATE_FOLDER, exist_ok=True)
        mode = PRIVATE_FILE if name.endswith(".py") else PRIVATE_FOLDER
        write_private(target, files[name].replace("{python}", sys.executable), mode)
    if os.path.isdir(f"{folder}/shim"):
        os.rename(f"{folder}/shim", old)
    os.rename(fresh, f"{folder}/shim")
    shutil.rmtree(old, ignore_errors=True)


def shim_of(folder: str) -> str:
    """Return the command that starts a shim here, or nothing."""
    own = f"{folder}/shim/fencepost-mcp"
    return own if os.path.exists(own) else shutil.which("fencepost-mcp") or ""


def take(folder: str, tunnel: str) -> int:
    """Hold the folder for this tunnel; a predecessor of the same tunnel is asked to go. Returns what holds it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    handle = os.open(f"{folder}/{LOCK}", flags, PRIVATE_FILE)
    until = time.monotonic() + PREDECESSOR_MS_MAX / 1000
    asked = False
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
        holder = holder_of(handle)
        if holder.get("tunnel") != tunnel or time.monotonic() >= until:
            raise Flaw(
                "remote_home_in_use",
                f"another tunnel keeps {folder} over there (process {holder.get('pid', '?')}); nothing was done",
            )
        if not asked:
            # The lock is held, so the process that wrote itself there lives.
            asked = True
            with contextlib.suppress(OSError, KeyError, ValueError):
                os.kill(int(holder["pid"]), signal.SIGTERM)
        time.sleep(POLL_MS / 1000)
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps({"tunnel": tunnel, "pid": os.getpid()}).encode(), 0)
    return handle


def holder_of(handle: int) -> dict[str, Any]:
    """Return what the holder of the lock wrote of itself."""
    try:
        found = json.loads(os.pread(handle, RECORD_BYTES_MAX, 0).decode("utf-8", "replace"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


class Kept:
    """What lies in the folder for this connection, and how it goes away."""

    def __init__(self, folder: str, setup: dict[str, Any]) -> None:
        self.folder = folder
        self.socket = socket_of(folder, setup["socket"])
        self.credentials: dict[str, str] = setup["credentials"]
        self.stays = setup["at_end"] == "keep"
        self.address = f"{folder}/run/edge.addr"

    def put(self) -> None:
        """Clear what a connection that died left, write the credentials, publish the address."""
        for name in os.listdir(f"{self.folder}/run"):
            if name.startswith("edge-") and name != os.path.basename(self.socket):
                forget(f"{self.folder}/run/{name}")
        try:
            facts = os.lstat(self.socket)
        except OSError:
            raise Flaw("forwarding_refused", f"sshd did not make {self.socket}; nothing was copied") from None
        if not stat.S_ISSOCK(facts.st_mode) or facts.st_uid != os.geteuid():
            raise Flaw("forwarding_refused", f"{self.socket} is no socket of this user; nothing was copied")
        os.chmod(self.socket, PRIVATE_FILE)
        for agent in sorted(self.credentials):
            private_folder(f"{self.folder}/agents/{agent}")
            write_private(f"{self.folder}/agents/{agent}/credential", self.credentials[agent] + "\n")
        write_private(f"{self.folder}/{MARKER}", json.dumps({"fencepost_tunnel": 1}) + "\n")
        write_private(self.address, f"unix:{self.socket}\n")

    def clear(self) -> None:
        """Take back what was put; what somebody else has put meanwhile stays."""
        try:
            with open(self.address, encoding="utf-8", errors="surrogateescape") as opened:
                mine = opened.read(RECORD_BYTES_MAX).strip() == f"unix:{self.socket}"
        except OSError:
            mine = False
        if mine:
            forget(self.address)
        forget(self.socket)
        if self.stays:
            return
        for agent in sorted(self.credentials):
            forget(f"{self.folder}/agents/{agent}/credential")
            with contextlib.suppress(OSError):
                os.rmdir(f"{self.folder}/agents/{agent}")


def listen(words: queue.Queue[bytes | None]) -> None:
    """Pass lines of the input on, and None at its end."""
    while True:
        line = sys.stdin.buffer.readline(WORD_BYTES_MAX)
        words.put(line.strip() if line else None)
        if not line:
            return


def keep(mark: str, setup: dict[str, Any]) -> None:
    """Keep the folder until the input ends, says stop, or is silent for too long; or until a signal to end."""
    folder = folder_of(setup["home"])
    words: queue.Queue[bytes | None] = queue.Queue()
    kept = Kept(folder, setup)
    try:
        held = take(folder, setup["tunnel"])
    except Flaw:
        # sshd has made it before this was asked.
        forget(kept.socket)
        raise
    for number in ENDINGS:
        signal.signal(number, _gone)
    try:
        kept.put()
        say(mark, ready=True, folder=folder, shim=shim_of(folder), python=sys.executable)
        threading.Thread(target=listen, args=(words,), daemon=True).start()
        while True:
            try:
                word = words.get(timeout=setup["silence_ms"] / 1000)
            except queue.Empty:
                return
            if word is None:
                return
            if word == b"stop":
                kept.clear()
                say(mark, cleared=True)
                return
    except Gone:
        return
    finally:
        _deaf()
        kept.clear()
        os.close(held)


class Gone(Exception):
    """A signal asks this process to end."""


def _gone(_number: int, _frame: Any) -> None:
    _deaf()
    raise Gone


def _deaf() -> None:
    for number in ENDINGS:
        signal.signal(number, signal.SIG_IGN)


def run() -> int:
    """Do what the setup says. Returns the exit status."""
    setup = json.loads(sys.stdin.buffer.readline().decode("utf-8"))
    mark = setup["mark"]
    # Where nobody reads any more a write must fail, and not end this before it has cleaned up.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        if sys.version_info < PYTHON_MIN:
            found, needed = (".".join(map(str, version[:2])) for version in (sys.version_info, PYTHON_MIN))
            raise Flaw(
                "remote_python_too_old",
                f"python3 over there is version {found}, and the shim needs {needed}; nothing was made",
            )
        if setup["mode"] == "prepare":
            folder = prepare(setup)
            say(mark, prepared=True, folder=folder, shim=shim_of(folder), python=sys.executable)
        else:
            keep(mark, setup)
    except Flaw as flaw:
        say(mark, error=flaw.code, message=flaw.message)
        return 1
    except OSError as error:
        say(mark, error="remote_home_unsafe", message=f"over there: {error.strerror}: {error.filename}")
        return 1
    return 0


def main() -> None:
    """Run, and end at once: the thread that reads the input must not be waited for."""
    status = 1
    try:
        status = run()
    except OSError:
        # Nobody listens any more. What was put has been taken back.
        pass
    finally:
        os._exit(status)


if __name__ == "__main__":
    main()
