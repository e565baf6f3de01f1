"""Repositories of a test's own: made with git, and looked at with git as a person would."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

GIT_S_MAX: Final = 30
_ENVIRONMENT: Final = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Person",
    "GIT_AUTHOR_EMAIL": "person@example.invalid",
    "GIT_COMMITTER_NAME": "Person",
    "GIT_COMMITTER_EMAIL": "person@example.invalid",
}


def environ() -> dict[str, str]:
    """An environment with a PATH, and nothing of git."""
    return {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}


class Repository:
    """A checkout in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def new(cls, folder: Path, *options: str) -> Repository:
        """Make one with a commit on `main` that has a file `a` of several lines."""
        folder.mkdir(parents=True)
        made = cls(folder)
        made.git("init", "-q", "-b", "main", *options)
        made.commit({"a": "".join(f"line {number}\n" for number in range(9)), "b": "b\n"}, "Begin")
        return made

    def clone(self, folder: Path, *options: str) -> Repository:
        """A clone of its own."""
        self.git("clone", "-q", *options, f"file://{self.folder}", str(folder))
        return Repository(folder)

    def worktree(self, folder: Path, branch: str) -> Repository:
        """Another worktree, on a new branch."""
        self.git("worktree", "add", "-q", "-b", branch, str(folder))
        return Repository(folder)

    def git(self, *arguments: str, check: bool = True) -> str:
        """Run git there and return what it says."""
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.folder,
            env={**environ(), **_ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            check=False,
            capture_output=True,
            timeout=GIT_S_MAX,
            text=True,
            errors="surrogateescape",
        )
        assert not check or done.returncode == 0, f"git {arguments}: {done.stderr}"
        return done.stdout.strip()

    def write(self, files: Mapping[str, str | None]) -> None:
        """Write files; None removes one."""
        for name, text in files.items():
            path = self.folder / name
            if text is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)

    def commit(self, files: Mapping[str, str | None], message: str = "Change") -> str:
        """Write files and commit them; returns the commit's id."""
        self.write(files)
        self.git("add", "-A", "--", *files)
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.head

    @property
    def head(self) -> str:
        """The commit that is checked out."""
        return self.git("rev-parse", "HEAD")

    @property
    def status(self) -> str:
        """What differs from it, files included that git does not know."""
        return self.git("status", "--porcelain")

    def parents(self, commit: str = "HEAD") -> list[str]:
        """The parents of a commit."""
        return self.git("rev-list", "--parents", "-n", "1", commit).split()[1:]

    def read(self, name: str) -> str:
        """A file of the working tree."""
        return (self.folder / name).read_text()

    def state(self) -> tuple[str, str, str, str]:
        """Everything that a refused integration must leave as it was."""
        return (self.head, self.git("symbolic-ref", "-q", "HEAD", check=False), self.status, self.git("show-ref"))
