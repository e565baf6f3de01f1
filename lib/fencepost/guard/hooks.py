"""Puts the guard into a repository's hooks and takes it out. Each file is replaced whole, in one step, or stays."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fencepost.errors import Refused
from fencepost.guard import script

GUARD_GIT_MS_MAX: Final = 10_000
HOOK_BYTES_MAX: Final = 4 * 1024 * 1024
_HOOK_MODE: Final = 0o755


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a repository has its hooks."""

    # The root of the checkout, and the folder of hooks that git uses there.
    root: Path
    folder: Path
    # True where other repositories of this user use the same folder.
    shared: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """What became of one hook."""

    path: Path
    # What was done, for people: "made", "lines added", "put aside and called", "brought up to date", and the reverse.
    what: str


def git(arguments: Sequence[str], *, at: Path, plain: bool = True, hint: str = "") -> bytes:
    """Return what git answers; `plain` leaves out what an enclosing git command has set.

    Raises:
        Refused: git_failed, with git's first words, and `hint` where it said no.
    """
    kept = {name: value for name, value in os.environ.items() if not plain or not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", str(at), *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=kept | {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"},
            timeout=GUARD_GIT_MS_MAX / 1000,
            check=False,
        )
    except FileNotFoundError:
        raise Refused("git_failed", "git is not installed; nothing was done") from None
    except subprocess.TimeoutExpired:
        raise Refused("git_failed", f"git did not answer within {GUARD_GIT_MS_MAX} ms; nothing was done") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise Refused("git_failed", f"git says: {said[0] if said else done.returncode}; nothing was done", hint=hint)
    return done.stdout


def place_of(folder: Path) -> Place:
    """Return where the repository of a folder has its hooks: `core.hooksPath` counts, worktrees share.

    Raises:
        Refused: git_failed, where it is in no repository or git does not answer.
    """
    where = "Call it in a checkout of a repository, or name one with --repo DIR."
    root = Path(os.fsdecode(git(["rev-parse", "--show-toplevel"], at=folder, hint=where).removesuffix(b"\n")))
    hooks = os.fsdecode(git(["rev-parse", "--git-path", "hooks"], at=root).removesuffix(b"\n"))
    return Place(root=root, folder=root / hooks, shared=_is_shared(root))


def _is_shared(root: Path) -> bool:
    """Tell whether the folder of hooks is set for more than this repository."""
    try:
        scope = git(["config", "--show-scope", "--get", "core.hooksPath"], at=root)
    except Refused:
        return False
    return scope.split(b"\t", 1)[0] in (b"global", b"system")


def install(place: Place, program: str, hooks: Sequence[str] = script.HOOKS) -> list[Done]:
    """Put the guard into hooks; repeating it changes nothing but what is out of date. Other lines stay.

    Raises:
        Refused: hook_unusable, for one that cannot be read, written or put aside. Hooks before it are done.
    """
    try:
        place.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused("hook_unusable", f"{place.folder} cannot be made: {error.strerror}; nothing was done") from None
    return [_install(place.folder / hook, hook, program) for hook in hooks]


def _install(path: Path, hook: str, program: str) -> Done:
    found = _read(path)
    if found is None:
        _write(path, script.own(hook, program), _HOOK_MODE)
        return Done(path=path, what="made")
    text, mode = found
    if script.calls_another(text, hook):
        fresh = script.calling(hook, program)
    elif script.is_shell(text) and mode & stat.S_IXUSR and not path.is_symlink():
        fresh = script.with_guard(text, hook, program)
    else:
        return _put_aside(path, hook, program)
    if fresh == text:
        return Done(path=path, what="stands")
    _write(path, fresh, mode)
    return Done(path=path, what="brought up to date" if script.has_guard(text) else "lines added")


def _put_aside(path: Path, hook: str, program: str) -> Done:
    aside = path.with_name(hook + script.ASIDE)
    if os.path.lexists(aside) and not _same(path, aside):
        raise Refused(
            "hook_unusable",
            f"{path} would be put aside, and {aside.name} is there already; it was left as it is",
            hint="Look at both, and move one of them away.",
        )
    made = _temporary(path, script.calling(hook, program), _HOOK_MODE)
    try:
        _name_aside(path, aside)
        os.replace(made, path)  # noqa: PTH105
    except OSError as error:
        with contextlib.suppress(OSError):
            made.unlink()
        raise _unusable(path, error) from None
    return Done(path=path, what=f"put aside as {aside.name} and called")


def _same(path: Path, aside: Path) -> bool:
    """Tell whether a hook that would be put aside was, by a call that ended before its last step."""
    return not path.is_symlink() and not aside.is_symlink() and path.samefile(aside)


def _name_aside(path: Path, aside: Path) -> None:
    if os.path.lexists(aside):
        return
    try:
        # A second name first: there is no moment in which the hook is gone.
        os.link(path, aside, follow_symlinks=False)
    except OSError:
        # A file system without links, or one that has none of links.
        os.rename(path, aside)  # noqa: PTH104


def remove(place: Place, hooks: Sequence[str] = script.HOOKS) -> list[Done]:
    """Take the guard out of hooks; what stood there before is as it was. Repeating it is harmless.

    Raises:
        Refused: hook_unusable, for one that cannot be read or written. Hooks before it are done.
    """
    return [done for hook in hooks if (done := _remove(place.folder / hook, hook)) is not None]


def _remove(path: Path, hook: str) -> Done | None:
    found = _read(path)
    if found is None or not script.has_guard(found[0]):
        return None
    text, mode = found
    aside = path.with_name(hook + script.ASIDE)
    try:
        if script.calls_another(text, hook) and os.path.lexists(aside):
            os.replace(aside, path)  # noqa: PTH105
            return Done(path=path, what=f"put back from {aside.name}")
        if script.is_only_ours(text, hook):
            path.unlink()
            return Done(path=path, what="removed")
    except OSError as error:
        raise _unusable(path, error) from None
    _write(path, script.without_guard(text), mode)
    return Done(path=path, what="lines taken out")


def is_tracked(place: Place, path: Path) -> bool:
    """Tell whether a hook is a file of the repository itself, so that a change of it is to be committed."""
    try:
        return bool(git(["ls-files", "--", str(path)], at=place.root))
    except Refused:
        return False


def _read(path: Path) -> tuple[bytes, int] | None:
    try:
        with path.open("rb") as opened:
            text = opened.read(HOOK_BYTES_MAX + 1)
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
    except FileNotFoundError:
        if path.is_symlink():
            raise Refused("hook_unusable", f"{path} is a link to nothing; it was left as it is") from None
        return None
    except OSError as error:
        raise _unusable(path, error) from None
    if len(text) > HOOK_BYTES_MAX:
        raise Refused("hook_unusable", f"{path} has over {HOOK_BYTES_MAX} bytes; it was left as it is")
    return text, mode


def _write(path: Path, text: bytes, mode: int) -> None:
    made = _temporary(path, text, mode)
    try:
        os.replace(made, path)  # noqa: PTH105
    except OSError as error:
        with contextlib.suppress(OSError):
            made.unlink()
        raise _unusable(path, error) from None


def _temporary(path: Path, text: bytes, mode: int) -> Path:
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        Path(name).chmod(mode)
    except OSError as error:
        raise _unusable(path, error) from None
    return Path(name)


def _unusable(path: Path, error: OSError) -> Refused:
    return Refused("hook_unusable", f"{path} cannot be changed: {error.strerror}; it was left as it is")
