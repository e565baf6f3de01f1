"""Which files a commit or a push touches, asked of git, by names as the mailbox compares them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from fencepost.errors import Refused
from fencepost.guard.hooks import git
from fencepost.paths import covered_name

# A whole object id of zeros: no such commit.
_NOTHING: Final = frozenset("0")
REFS_BYTES_MAX: Final = 1024 * 1024


def staged(root: Path) -> list[str]:
    """Return the files that the commit under way touches; of a renamed one both names.

    Under a hook git has named the index that counts, so its variables are kept.
    """
    listed = ["diff", "--cached", "--name-only", "--no-renames", "--no-ext-diff", "--ignore-submodules=none", "-z"]
    return _names(git(listed, at=root, plain=False))


def pushed(root: Path, refs: str) -> list[str]:
    """Return the files that a push touches, by the lines that git gives a pre-push hook.

    Of a branch that the remote has, what lies between; of a new one, its commits that no remote has.
    """
    found: list[str] = []
    for line in refs.splitlines():
        words = line.split(" ")
        if len(words) != 4 or set(words[1]) <= _NOTHING:
            continue
        local, remote = words[1], words[3]
        options = ["--format=", "--name-only", "--no-renames", "--no-ext-diff", "-z"]
        since = ["--not", "--remotes"] if set(remote) <= _NOTHING or not _known(root, remote) else [f"^{remote}"]
        found += _names(git(["log", *options, local, *since], at=root, plain=False))
    return list(dict.fromkeys(found))


def _known(root: Path, commit: str) -> bool:
    try:
        git(["cat-file", "-e", f"{commit}^{{commit}}"], at=root, plain=False)
    except Refused:
        return False
    return True


def _names(listing: bytes) -> list[str]:
    names: Iterable[str] = (os.fsdecode(name.strip(b"\n")) for name in listing.split(b"\0"))
    return list(dict.fromkeys(covered_name(name) for name in names if name))
