"""Where the sockets of a home lie whose own path is over the limit of socket paths: a short folder of this user.

Only servers choose it, once, when they prepare the home; the home's run folder remembers the choice, and clients read
published addresses and never come here. Standard library only; imported where a home's path is too long.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fencepost.errors import Refused

RUNTIME_VARIABLE: Final = "XDG_RUNTIME_DIR"
TEMPORARY_VARIABLE: Final = "TMPDIR"
TEMPORARY_DEFAULT: Final = "/tmp"  # noqa: S108 (every part below it is checked before it is used)
HASH_CHARS: Final = 16
RECORD: Final = "sockets"
RECORD_BYTES_MAX: Final = 4096
_MODE: Final = 0o700
_OTHERS_WRITE: Final = 0o022


def candidate(home: str, *, bytes_max: int, env: Mapping[str, str] | None = None) -> str:
    """Return the short folder of a home: below $XDG_RUNTIME_DIR where that is this user's own, else below $TMPDIR.

    Looks, and changes nothing. Where $TMPDIR is unset it is /tmp. A runtime folder that would take the path over
    `bytes_max` is passed over.
    """
    source = os.environ if env is None else env
    name = hashlib.sha256(os.fsencode(home)).hexdigest()[:HASH_CHARS]
    runtime = source.get(RUNTIME_VARIABLE, "")
    below_runtime = f"{runtime.rstrip('/')}/fencepost/{name}"
    fits = len(os.fsencode(below_runtime)) <= bytes_max
    if fits and runtime.startswith("/") and "\n" not in runtime and _flaw(runtime) is None:
        return below_runtime
    temporary = source.get(TEMPORARY_VARIABLE, "")
    # Resolved, since /tmp is a link on some systems; what is ours below it never is one.
    base = os.path.realpath(temporary if temporary.startswith("/") else TEMPORARY_DEFAULT)
    return f"{base.rstrip('/')}/fencepost-{os.geteuid()}/{name}"


def recorded(run: str) -> str | None:
    """Return the short folder that the home's run folder remembers, if it is still a private folder of this user."""
    try:
        handle = os.open(f"{run}/{RECORD}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        raw = os.read(handle, RECORD_BYTES_MAX + 1)
    finally:
        os.close(handle)
    folder = os.fsdecode(raw.removesuffix(b"\n"))
    if len(raw) > RECORD_BYTES_MAX or not folder.startswith("/") or "\n" in folder or "\0" in folder:
        return None
    return folder if _flaw(str(Path(folder).parent)) is None and _flaw(folder) is None else None


def prepare(folder: str, run: str) -> None:
    """Create a short folder and its parent, 0700, and remember it in the home's run folder.

    Refuses a folder or parent that is a link, belongs to another user or is open to others, and a place in which
    others may replace it.
    """
    parent = Path(folder).parent
    _check_place(str(parent.parent))
    for made in (parent, Path(folder)):
        try:
            made.mkdir(mode=_MODE)
        except FileExistsError:
            pass
        except OSError as error:
            raise _unsafe(f"{made} cannot be created: {error.strerror}") from error
        flaw = _flaw(str(made))
        if flaw is not None:
            raise _unsafe(f"{made} {flaw}")
    if recorded(run) != folder:
        _remember(folder, run)


def _remember(folder: str, run: str) -> None:
    temporary = Path(f"{run}/.{RECORD}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(handle, os.fsencode(folder) + b"\n")
    finally:
        os.close(handle)
    temporary.replace(f"{run}/{RECORD}")


def _flaw(folder: str) -> str | None:
    """Return why a folder is not a private one of this user, to follow its name, or None."""
    try:
        facts = Path(folder).lstat()
    except OSError as error:
        return f"cannot be looked at: {error.strerror}"
    if not stat.S_ISDIR(facts.st_mode):
        return "is not a folder, or is a link"
    if facts.st_uid != os.geteuid():
        return "belongs to another user"
    if stat.S_IMODE(facts.st_mode) != _MODE:
        return "is not open to its owner alone (0700)"
    return None


def _check_place(place: str) -> None:
    """Refuse a place in which somebody else may remove or replace what is ours."""
    try:
        facts = Path(place).stat()
    except OSError as error:
        raise _unsafe(f"{place} cannot be looked at: {error.strerror}") from error
    shared = facts.st_mode & _OTHERS_WRITE and not facts.st_mode & stat.S_ISVTX
    if shared or facts.st_uid not in {0, os.geteuid()}:
        raise _unsafe(f"{place} lets other users replace what is in it")


def _unsafe(what: str) -> Refused:
    return Refused(
        "runtime_folder_unsafe",
        f"the home's path is too long for sockets, and the short folder for them cannot be used: {what};"
        " no socket was made",
        hint=f"Remove what is in the way, set {RUNTIME_VARIABLE} or {TEMPORARY_VARIABLE} to a folder of yours,"
        " or choose a shorter FENCEPOST_HOME.",
    )
