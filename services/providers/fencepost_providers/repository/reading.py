"""Reading in an agent's checkout, bounded, without following links and without leaving it."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fencepost_providers.domain.verification import (
    VERIFY_READ_BYTES_MAX,
    Claim,
    CommitClaim,
    DiffFileClaim,
    FileClaim,
    Verdict,
    is_secret,
    parts_of,
)
from fencepost_providers.repository.checkout import Checkout, checkout_at
from fencepost_providers.repository.git import WORK_MS_MAX, Git

CHUNK_BYTES: Final = 1024 * 1024
_REGULAR: Final = frozenset({"100644", "100755"})
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What a look found."""

    verdict: Verdict
    detail: str


def _unavailable(detail: str) -> Found:
    return Found(verdict=Verdict.UNAVAILABLE, detail=detail)


def _mismatch(detail: str) -> Found:
    return Found(verdict=Verdict.MISMATCH, detail=detail)


@dataclass(slots=True)
class Budget:
    """How many bytes may still be read."""

    left: int = VERIFY_READ_BYTES_MAX

    def over(self, size: int) -> Found | None:
        """Take a file's size; a refusal where it is more than what is left."""
        if size > self.left:
            return _unavailable(f"it has {size} bytes, and {self.left} of {VERIFY_READ_BYTES_MAX} were left to read")
        self.left -= size
        return None


class Place:
    """A folder that an agent works in; a checkout where it is the top of one."""

    def __init__(self, folder: str, checkout: Checkout | None) -> None:
        self.folder = folder
        self._git: Git | None = None if checkout is None else checkout.git
        self._budget = Budget()

    @classmethod
    async def at(cls, folder: str, environ: Mapping[str, str]) -> Place | None:
        """Return the place; None where there is no such folder on this machine.

        Raises:
            GitUnavailable, GitFailed: see Git.
        """
        real = await asyncio.to_thread(_real_folder, folder) if folder else ""
        if not real:
            return None
        checkout = await checkout_at(real, environ)
        # What lies around it was never given to the agent.
        return cls(real, checkout if checkout is not None and checkout.folder == real else None)

    async def look(self, claim: Claim) -> Found:
        """Return whether something is as it was reported.

        Raises:
            GitUnavailable, GitFailed: see Git.
        """
        match claim:
            case FileClaim():
                return await self._file(claim)
            case CommitClaim(commits=commits):
                return await self._commits(commits)
            case DiffFileClaim(path=path):
                return await self._present(path)
            case _:
                return _unavailable("a test's outcome is reported, and nothing here can check it")

    def _readable(self, path: str) -> Found | None:
        if parts_of(path) is None:
            return _unavailable("the path could lead out of the checkout; it was not read")
        if is_secret(path):
            return _unavailable("files of this name hold credentials; it was not read")
        return None

    async def _present(self, path: str) -> Found:
        refused = self._readable(path)
        if refused is not None:
            return refused
        found = await asyncio.to_thread(_hash_file, self.folder, path, None)
        return found if isinstance(found, Found) else Found(verdict=Verdict.VERIFIED, detail="the file is there")

    async def _file(self, claim: FileClaim) -> Found:
        refused = self._readable(claim.path)
        if refused is not None:
            return refused
        if claim.commit:
            digest = await self._hash_at(claim.path, claim.commit)
        else:
            digest = await asyncio.to_thread(_hash_file, self.folder, claim.path, self._budget)
        if isinstance(digest, Found):
            return digest
        if digest != claim.sha256:
            return _mismatch(f"its SHA-256 is {digest}")
        return Found(verdict=Verdict.VERIFIED, detail="its SHA-256 is as reported")

    async def _commits(self, commits: tuple[str, ...]) -> Found:
        if self._git is None:
            return _unavailable("the agent's folder is no checkout of a repository")
        for commit in commits:
            kind = await self._git.type_of(commit)
            if kind != "commit":
                return _mismatch(f"the checkout has no commit {commit}" if not kind else f"{commit} is a {kind}")
        return Found(verdict=Verdict.VERIFIED, detail="the checkout has it" if len(commits) == 1 else "it has both")

    async def _hash_at(self, path: str, commit: str) -> str | Found:
        git = self._git
        if git is None:
            return _unavailable("the agent's folder is no checkout of a repository")
        if await git.type_of(commit) != "commit":
            return _unavailable(f"the checkout has no commit {commit}")
        listed = await git.run("ls-tree", "-z", "--full-tree", commit, "--", path)
        entry, _, name = listed.out.rstrip(b"\0").partition(b"\t")
        if listed.code != 0 or name != path.encode("utf-8"):
            return _mismatch("the commit has no such file")
        mode, _, blob = entry.decode("ascii").split(" ", 2)
        if mode not in _REGULAR:
            return _unavailable("it is no regular file in the commit")
        size = await git.run("cat-file", "-s", blob)
        if size.code != 0:
            return _unavailable("its content is missing from the repository")
        over = self._budget.over(int(size.text))
        if over is not None:
            return over
        digest = hashlib.sha256()
        said = await git.run("cat-file", "blob", blob, within_ms=WORK_MS_MAX, sink=digest.update)
        return digest.hexdigest() if said.code == 0 else _unavailable("its content could not be read")


def _real_folder(folder: str) -> str:
    path = Path(folder)
    return str(path.resolve()) if path.is_dir() else ""


def _hash_file(folder: str, path: str, budget: Budget | None) -> str | Found:
    """Return a file's SHA-256, or why there is none; without a budget nothing is read, and it is empty."""
    try:
        descriptor = _opened(folder, path)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return _mismatch("the checkout has no such file")
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR):
            return _unavailable("it is a link, or lies behind what is no folder; links are not followed")
        return _unavailable(f"it cannot be opened: {os.strerror(error.errno or 0)}")
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return _unavailable("it is no regular file")
        if budget is None:
            return ""
        return budget.over(status.st_size) or _hash_of(descriptor, status.st_size)
    except OSError as error:
        return _unavailable(f"it cannot be read: {os.strerror(error.errno or 0)}")
    finally:
        os.close(descriptor)


def _opened(folder: str, path: str) -> int:
    """Open a file part by part, so that no link leads anywhere else."""
    *folders, name = path.split("/")
    here = os.open(folder, _FOLDER)
    try:
        for part in folders:
            below = os.open(part, _FOLDER, dir_fd=here)
            os.close(here)
            here = below
        return os.open(name, _FILE, dir_fd=here)
    finally:
        os.close(here)


def _hash_of(descriptor: int, size: int) -> str | Found:
    digest, left = hashlib.sha256(), size
    while data := os.read(descriptor, min(CHUNK_BYTES, left + 1)):
        left -= len(data)
        if left < 0:
            return _unavailable("it grew while it was read")
        digest.update(data)
    return digest.hexdigest()
