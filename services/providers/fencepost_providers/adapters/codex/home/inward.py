"""What is copied from the user's own Codex home into an agent's, and never back: the login. Source: R107, M118."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

from fencepost_providers.adapters.codex.home import files
from fencepost_providers.domain.runtimes import Finding, Gravity

COPIED: Final = ("auth.json", "cap_sid")
COPIED_BYTES_MAX: Final = 1024 * 1024


def copy_inward(native: Path, home: Path) -> list[Finding]:
    """Copy what is newer in the native home, 0600; a link in its place becomes a file of its own.

    A missing native file is fine: a provider of the user's own may need no login, and what the agent has it keeps.
    """
    return [note for name in COPIED if (note := _copy(native / name, home / name)) is not None]


def _copy(source: Path, target: Path) -> Finding | None:
    try:
        raw = files.read(source, bytes_max=COPIED_BYTES_MAX)
    except files.Unreadable as error:
        return _left(f"{error}; it was not copied into the agent's Codex home")
    if raw is None:
        return None
    standing = _standing(target)
    if standing is not None and stat.S_ISDIR(standing.st_mode):
        return _left(f"{target} is a folder; the login was not copied there")
    plain = standing is not None and stat.S_ISREG(standing.st_mode)
    if standing is not None and plain:
        if standing.st_mtime_ns >= source.stat().st_mtime_ns:
            # The program renews its login by itself: what is newer here is not to be lost.
            if stat.S_IMODE(standing.st_mode) != files.PRIVATE_MODE:
                target.chmod(files.PRIVATE_MODE)
            return None
        if files.read(target) == raw:
            target.chmod(files.PRIVATE_MODE)
            return None
    files.write(target, raw)
    return None


def _standing(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR}:
            return None
        raise


def _left(text: str) -> Finding:
    return Finding(
        code="codex_login_not_copied",
        gravity=Gravity.WARNING,
        text=text,
        hint="Look at that file; where it is in order, start the agent again, or log in within its own Codex home.",
    )
