"""Names of files as the mailbox compares them: relative to the root of a checkout, real, in one Unicode form.

Runs on the machine that has the checkout: the mailbox compares text and looks at no file. Two names of one file,
through a link, `..`, another case on a file system that ignores it, or another form of an accent, become one; what lies
outside the checkout is refused, whatever it is called. The core is pure; `Checkout` asks the file system. Standard
library only.
"""

from __future__ import annotations

import ntpath
import os
import posixpath
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

from fencepost.errors import Refused

ROOT: Final = "."
WILDCARDS: Final = frozenset("*?")
# Entries of the root that are looked at to tell whether its file system ignores case.
ENTRIES_PROBED_MAX: Final = 64
_REPOSITORY: Final = ".git"
_SHOWN_CHARACTERS: Final = 120


# --- the core: text alone ---------------------------------------------------------------------------------------------


def is_wild(text: str) -> bool:
    """Tell whether a text has a wildcard."""
    return not WILDCARDS.isdisjoint(text)


def folded(text: str) -> str:
    """Return what all names have in common that differ only in case or in Unicode's forms."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())


def parts_inside(path: str, root: str, *, flavour: ModuleType, ignore_case: bool) -> tuple[str, ...] | None:
    """Return the parts of a real absolute path below a real absolute root, or None where it lies outside.

    `flavour` is posixpath or ntpath. A root that ends in a separator, as `/` or a drive does, is one as well.
    """
    drive, inside = flavour.splitdrive(path)
    root_drive, root_inside = flavour.splitdrive(root)
    same: Callable[[str], str] = folded if ignore_case or flavour is ntpath else str
    if same(drive.replace("/", "\\")) != same(root_drive.replace("/", "\\")):
        return None
    separators = "/\\" if flavour is ntpath else "/"
    parts, root_parts = (_split(text, separators) for text in (inside, root_inside))
    if len(parts) < len(root_parts) or any(
        same(mine) != same(its) for mine, its in zip(parts, root_parts, strict=False)
    ):
        return None
    return tuple(parts[len(root_parts) :])


def _split(text: str, separators: str) -> list[str]:
    for separator in separators[1:]:
        text = text.replace(separator, separators[0])
    return [part for part in text.split(separators[0]) if part]


def canonical(parts: Sequence[str]) -> str:
    """Return the canonical text of parts below a root; of none, the root itself.

    Raises:
        Refused: invalid_path, where a part is empty, `.`, `..`, no Unicode, or has a slash, backslash or control
            character.
    """
    made = [unicodedata.normalize("NFC", part) for part in parts]
    for part in made:
        if part in ("", ".", "..") or any(ord(one) < 0x20 or ord(one) == 0x7F or one in "/\\" for one in part):
            raise _unusable(part, "has a name that cannot be reserved: control characters, backslashes or dots alone")
        if any(0xD800 <= ord(one) <= 0xDFFF for one in part):
            raise _unusable(part, "has a name that is not valid Unicode")
    return "/".join(made) or ROOT


def covered_name(path: str) -> str:
    """Return a canonical path in place of one from a repository, whatever characters its name has.

    What cannot be named exactly stands with U+FFFD in place of each character that cannot be said, so that a
    reservation of its folder, or a glob, still covers it.
    """
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    made = ("".join("\ufffd" if _unsayable(one) else one for one in part) for part in parts)
    return "/".join(unicodedata.normalize("NFC", part) for part in made) or ROOT


def _unsayable(one: str) -> bool:
    return ord(one) < 0x20 or ord(one) == 0x7F or one == "\\" or 0xD800 <= ord(one) <= 0xDFFF


def _shown(text: str) -> str:
    return text[:_SHOWN_CHARACTERS].encode("utf-8", "backslashreplace").decode("utf-8")


def _unusable(text: str, rule: str) -> Refused:
    return Refused("invalid_path", f"{_shown(text)!r} {rule}; nothing was sent", state={"path": _shown(text)})


# --- the rim: what the file system says -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkout:
    """A checkout: its root without links, and whether its file system ignores case."""

    root: str
    ignore_case: bool

    @classmethod
    def containing(cls, folder: str | os.PathLike[str]) -> Checkout:
        """Return the checkout that a folder lies in: up to the next `.git`, or the folder itself where there is none.

        Raises:
            Refused: there is no such folder.
        """
        try:
            real = Path(folder).resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            raise Refused("not_found", f"there is no folder {_shown(os.fspath(folder))}; nothing was sent") from None
        start = real if real.is_dir() else real.parent
        return cls.at(next((one for one in (start, *start.parents) if os.path.lexists(one / _REPOSITORY)), start))

    @classmethod
    def at(cls, root: str | os.PathLike[str]) -> Checkout:
        """Return the checkout with this root, a folder that stands."""
        real = os.path.realpath(root)
        return cls(root=real, ignore_case=ignores_case(real))

    def path(self, text: str, *, base: str | os.PathLike[str] | None = None) -> str:
        """Return the canonical name of a file or folder, which need not exist.

        `text` is absolute, or relative to `base`, by default the root. Links are followed, the last one too: what is
        written through a link is its target.

        Raises:
            Refused: outside_checkout, or invalid_path.
        """
        parts = self._parts(text, base)
        return canonical(self._as_on_disk(parts) if self.ignore_case else parts)

    def glob(self, text: str, *, base: str | os.PathLike[str] | None = None) -> str:
        """Return the canonical form of a glob: the folder before its first wildcard as `path` has it, then the rest.

        Raises:
            Refused: outside_checkout, or invalid_path, also for `..` behind a wildcard.
        """
        plain = text.replace("\\", "/") if os.path is ntpath else text
        pieces = plain.split("/")
        first = next((at for at, piece in enumerate(pieces) if is_wild(piece)), len(pieces))
        before = "/".join(pieces[:first])
        if not before and plain.startswith("/"):
            before = "/"
        folder = self.path(before, base=base) if before else self.path(ROOT, base=base)
        rest = [piece for piece in pieces[first:] if piece not in ("", ".")]
        behind = canonical(rest)
        return behind if folder == ROOT else folder if behind == ROOT else f"{folder}/{behind}"

    def sorted_out(
        self, texts: Iterable[str], *, base: str | os.PathLike[str] | None = None
    ) -> tuple[list[str], list[str]]:
        """Return the canonical paths and globs that texts mean: with a wildcard a glob, unless a file is called so.

        Raises:
            Refused: see path and glob.
        """
        paths: list[str] = []
        globs: list[str] = []
        for text in texts:
            if is_wild(text) and not os.path.lexists(self._absolute(text, base)):
                globs.append(self.glob(text, base=base))
            else:
                paths.append(self.path(text, base=base))
        return list(dict.fromkeys(paths)), list(dict.fromkeys(globs))

    def _absolute(self, text: str, base: str | os.PathLike[str] | None) -> str:
        if "\0" in text:
            raise _unusable(text, "has a name that cannot be reserved: a NUL")
        return os.path.join(self.root if base is None else os.fspath(base), text)  # noqa: PTH118 (Path drops ".")

    def _parts(self, text: str, base: str | os.PathLike[str] | None) -> tuple[str, ...]:
        if not text:
            raise _unusable(text, "names nothing")
        real = os.path.realpath(self._absolute(text, base))
        flavour = ntpath if os.path is ntpath else posixpath
        parts = parts_inside(real, self.root, flavour=flavour, ignore_case=self.ignore_case)
        if parts is None:
            raise Refused(
                "outside_checkout",
                f"{_shown(text)!r} lies outside the checkout {_shown(self.root)}; nothing was sent",
                hint="Name a file of the checkout; a link counts as what it leads to.",
                state={"path": _shown(text)},
            )
        return parts

    def _as_on_disk(self, parts: Sequence[str]) -> list[str]:
        """Return parts in the case in which they stand on disk, as far as they do."""
        found: list[str] = []
        folder: str | None = self.root
        for part in parts:
            name = _entry(folder, part) if folder is not None else None
            found.append(part if name is None else name)
            folder = os.path.join(folder, name) if folder is not None and name is not None else None  # noqa: PTH118
        return found


def _entry(folder: str, name: str) -> str | None:
    """Return the entry of a folder that is this name but for its case, the very name before any other."""
    try:
        entries = os.listdir(folder)  # noqa: PTH208 (names alone)
    except OSError:
        return None
    if name in entries:
        return name
    wanted = folded(name)
    return next((entry for entry in sorted(entries) if folded(entry) == wanted), None)


def ignores_case(folder: str | os.PathLike[str]) -> bool:
    """Tell whether the file system of a folder ignores case, by looking an entry up by another case. Writes nothing."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for _, entry in zip(range(ENTRIES_PROBED_MAX), entries, strict=False)]
    except OSError:
        return False
    for name in sorted(names, key=lambda one: one != _REPOSITORY):
        other = name.swapcase()
        if other == name or other in names:
            continue
        try:
            return Path(folder, other).lstat().st_ino == Path(folder, name).lstat().st_ino
        except OSError:
            return False
    return False
