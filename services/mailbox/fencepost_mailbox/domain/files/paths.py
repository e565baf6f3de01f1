"""Which paths a path or glob covers, and whether two cover one in common.

A path covers itself and everything below it; the store cannot know which paths are folders, so each is taken for one.
A glob covers what it matches and everything below that: `*` and `?` match within one part, `**` as a whole part matches
any number of parts. Every other character stands for itself, brackets and braces too: they occur in names of files.

- Path against path: one is the other, or lies below it. Exact.
- Path against glob: exact, by running the glob over the parts of the path.
- Glob against glob: whether the folder before the first wildcard of one lies in that of the other, or is it. Two globs
  that cover a path in common always overlap so; some that do not, such as `src/*.py` and `src/*.md`, do as well.

Where one of the two ignores case, both are compared in their folded forms; a glob also character by character, since a
folded character may be two, which `?` does not match.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

from fencepost_mailbox.domain.files.refusals import InvalidPath
from fencepost_mailbox.domain.files.values import PATH_PARTS_MAX, RESERVED_PATH_BYTES_MAX, ROOT, Reserved, Scope, Span

_ANY_PARTS: Final = "**"
# The character behind the slash: what lies below "a" is what stands between "a/" and "a0".
_BEHIND_SLASH: Final = "0"
_PATH_SHOWN_CHARACTERS: Final = 80


def _refused(path: str, rule: str) -> InvalidPath:
    shown = path[:_PATH_SHOWN_CHARACTERS].encode("utf-8", "replace").decode("utf-8")
    return InvalidPath(
        f"a path {rule}; nothing was written",
        hint="Give paths relative to the root of the checkout, with forward slashes; the command line makes them so.",
        state={"path": shown},
    )


def check_path(path: str) -> str:
    """Return a canonical path.

    Raises:
        InvalidPath: empty or over RESERVED_PATH_BYTES_MAX bytes, over PATH_PARTS_MAX parts, absolute, not NFC, with a
            backslash or control character, or with an empty, `.` or `..` part; `.` alone is the root.
    """
    try:
        size = len(path.encode("utf-8"))
    except UnicodeEncodeError:
        raise _refused(path, "is valid Unicode text") from None
    if not 1 <= size <= RESERVED_PATH_BYTES_MAX:
        raise _refused(path, f"has 1 to {RESERVED_PATH_BYTES_MAX} bytes")
    if path == ROOT:
        return path
    parts = path.split("/")
    if len(parts) > PATH_PARTS_MAX:
        raise _refused(path, f"has at most {PATH_PARTS_MAX} parts")
    if any(part in ("", ".", "..") for part in parts):
        raise _refused(path, "is relative, has no . or .. parts, and no slash at its end")
    if "\\" in path or any(ord(character) < 0x20 or ord(character) == 0x7F for character in path):
        raise _refused(path, "has no backslash and no control character")
    if not unicodedata.is_normalized("NFC", path):
        raise _refused(path, "is in Unicode's NFC form")
    return path


def check_glob(glob: str) -> str:
    """Return a canonical glob.

    Raises:
        InvalidPath: see check_path; or it has no wildcard.
    """
    check_path(glob)
    if not is_wild(glob):
        raise _refused(glob, "that is given as a glob has a wildcard, * or ?")
    return glob


def is_wild(text: str) -> bool:
    """Tell whether a text has a wildcard."""
    return "*" in text or "?" in text


def folded(path: str) -> str:
    """Return what all paths have in common that differ only in case or in Unicode's forms."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


def parts_of(path: str) -> tuple[str, ...]:
    """Return the parts of a path; none for the root."""
    return () if path == ROOT else tuple(path.split("/"))


def _before_wildcard(glob: str) -> str:
    parts = parts_of(glob)
    return "/".join(parts[: next(at for at, part in enumerate(parts) if is_wild(part))])


def leading(span: Span) -> str:
    """Return the folded folder under which a path or glob is filed; empty for the root.

    Of a path it is the path itself, of a glob the folder before its first wildcard. Whatever two spans cover in common,
    the leading folder of one is that of the other, or lies above it.
    """
    return folded(_before_wildcard(span.path) if span.glob else "/".join(parts_of(span.path)))


def folders_above(folder: str) -> Iterator[str]:
    """Yield every folder above a leading folder, the root (empty) first, the folder itself last."""
    yield ""
    at = folder.find("/")
    while at >= 0:
        yield folder[:at]
        at = folder.find("/", at + 1)
    if folder:
        yield folder


def below(folder: str) -> tuple[str, str]:
    """Return the bounds, the first within and the last without, of what lies below a leading folder."""
    # Of the root: everything that is not the root itself.
    return ("\x01", "\U0010ffff") if not folder else (folder + "/", folder + _BEHIND_SLASH)


def part_matches(pattern: str, part: str) -> bool:
    """Tell whether one part of a glob matches one part of a path. Linear in their product, whatever the stars."""
    at, star, resumed, position = 0, -1, 0, 0
    while position < len(part):
        if at < len(pattern) and pattern[at] == "*":
            star, resumed = at, position
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", part[position]):
            at += 1
            position += 1
        elif star >= 0:
            at, resumed = star + 1, resumed + 1
            position = resumed
        else:
            return False
    return all(character == "*" for character in pattern[at:])


def _through(states: frozenset[int], patterns: Sequence[str]) -> frozenset[int]:
    """Return states with those that are reached by letting `**` match nothing."""
    found = set(states)
    for state in sorted(states):
        at = state
        while at < len(patterns) and patterns[at] == _ANY_PARTS:
            at += 1
            found.add(at)
    return frozenset(found)


def meets(patterns: Sequence[str], parts: Sequence[str]) -> bool:
    """Tell whether a glob and a path cover a path in common; both by their parts.

    They do where the glob matches the path or a folder above it, or could match something below it.
    """
    states = _through(frozenset({0}), patterns)
    for part in parts:
        if len(patterns) in states:
            return True
        after = {
            state if patterns[state] == _ANY_PARTS else state + 1
            for state in states
            if patterns[state] == _ANY_PARTS or part_matches(patterns[state], part)
        }
        states = _through(frozenset(after), patterns)
    return bool(states)


def _related(one: str, other: str) -> bool:
    """Tell whether one folder is the other, or lies below it; by their text, the root being empty."""
    return not one or not other or one == other or one.startswith(other + "/") or other.startswith(one + "/")


def _folded_singly(path: str) -> str:
    """Return a path folded character by character, each to one character."""
    return "".join(short if len(short := one.casefold()) == 1 else one.lower()[:1] for one in path)


def _compared(path: str, *, ignore_case: bool) -> str:
    return folded(path) if ignore_case else path


def _glob_meets(glob: str, path: str, *, ignore_case: bool) -> bool:
    forms = (str, folded, _folded_singly) if ignore_case else (str,)
    return any(meets(parts_of(form(glob)), parts_of(form(path))) for form in forms)


def overlap(one: Span, other: Span, *, ignore_case: bool) -> bool:
    """Tell whether two spans overlap: see the module's text for what is exact."""
    if one.glob != other.glob:
        glob, path = (one, other) if one.glob else (other, one)
        return _glob_meets(glob.path, path.path, ignore_case=ignore_case)
    first, second = (_compared(span.path, ignore_case=ignore_case) for span in (one, other))
    if one.glob:
        return _related(_before_wildcard(first), _before_wildcard(second))
    return _related("/".join(parts_of(first)), "/".join(parts_of(second)))


def covers(held: Span, path: Span, *, ignore_case: bool) -> bool:
    """Tell whether everything that a path covers is covered by what is held; of a glob that is asked about, never."""
    if path.glob:
        return False
    holding, asked = (parts_of(_compared(span.path, ignore_case=ignore_case)) for span in (held, path))
    if not held.glob:
        return asked[: len(holding)] == holding
    return any(_matches(holding, asked[:length]) for length in range(len(asked) + 1))


def _matches(patterns: Sequence[str], parts: Sequence[str]) -> bool:
    states = _through(frozenset({0}), patterns)
    for part in parts:
        after = {
            state if patterns[state] == _ANY_PARTS else state + 1
            for state in states
            if state < len(patterns) and (patterns[state] == _ANY_PARTS or part_matches(patterns[state], part))
        }
        states = _through(frozenset(after), patterns)
    return len(patterns) in states


def scopes_meet(one: Scope, other: Scope) -> bool:
    """Tell whether there is a checkout in which both count."""
    return not one.checkout or not other.checkout or one.checkout == other.checkout


def in_common(asked: Span, scope: Scope, held: Reserved) -> bool:
    """Tell whether something that is asked about is covered by what is held."""
    ignore_case = scope.ignore_case or held.scope.ignore_case
    return scopes_meet(scope, held.scope) and overlap(asked, held.span, ignore_case=ignore_case)
