"""Which project a folder belongs to: git says, and where there is no repository, the folder itself is one."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fencepost.errors import Refused
from fencepost.sessions.v1 import sessions_pb2 as pb

GIT_MS_MAX: Final = 10_000
NAME_CHARS_MAX: Final = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Location:
    """Where a project stands: what kind of place, its canonical path, and a name for people."""

    kind: pb.ProjectKind.ValueType
    path: str
    name: str


def locate(folder: Path) -> Location:
    """Return the project of `folder`: the git common directory, which all worktrees share, or the folder.

    Raises:
        Refused: there is no such folder; or a repository is there and git cannot be asked or does not answer. A guess
            would found a second project beside the right one.
    """
    try:
        resolved = folder.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise Refused("not_found", f"there is no folder {folder}; nothing was created") from error
    if not resolved.is_dir():
        raise Refused("invalid_arguments", f"{folder} is not a folder; nothing was created")
    common = _git_common_dir(resolved)
    if common is None:
        return Location(kind=pb.PROJECT_KIND_FOLDER, path=str(resolved), name=_name(resolved.name))
    name = common.parent.name if common.name == ".git" else common.name.removesuffix(".git")
    return Location(kind=pb.PROJECT_KIND_GIT, path=str(common), name=_name(name))


def _name(name: str) -> str:
    return (name or "root")[:NAME_CHARS_MAX]


def _git_common_dir(folder: Path) -> Path | None:
    # Variables of an enclosing git command (a hook, say) would answer for that repository instead of this folder's.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {"LC_ALL": "C"}
    try:
        answer = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "--git-common-dir"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=env,
            timeout=GIT_MS_MAX / 1000,
            check=False,
        )
    except FileNotFoundError:
        if any((parent / ".git").exists() for parent in (folder, *folder.parents)):
            raise _undecided(folder, "git is not installed, and the folder lies in a repository") from None
        return None
    except subprocess.TimeoutExpired:
        raise _undecided(folder, f"git did not answer within {GIT_MS_MAX} ms") from None
    if answer.returncode == 0:
        return (folder / os.fsdecode(answer.stdout.removesuffix(b"\n"))).resolve()
    said = answer.stderr.decode("utf-8", "replace").strip()
    if "not a git repository" in said:
        return None
    raise _undecided(folder, f"git says: {said.splitlines()[0] if said else answer.returncode}")


def _undecided(folder: Path, why: str) -> Refused:
    return Refused(
        "project_undecided",
        f"the project of {folder} cannot be told: {why}; nothing was created",
        hint="Put that right, or name another folder with --project.",
    )
