"""What the text of a git hook becomes with our lines, and without them. Pure.

A hook that is a shell script gets our lines below its first; every other line of it stays where it was, under its name.
Anything else is put aside, whole, and called by a script of ours.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

BEGIN: Final = b"# >>> fencepost guard >>>"
END: Final = b"# <<< fencepost guard <<<"
# Behind the name of a hook that was put aside.
ASIDE: Final = ".before-fencepost"
# What `guard check` ends with where somebody else holds a file. Nothing else keeps a commit from going through.
HELD: Final = 8
HOOKS: Final = ("pre-commit", "pre-push")

_SHELLS: Final = frozenset({b"sh", b"bash", b"dash", b"ash", b"ksh", b"zsh"})
_BLOCK: Final = re.compile(re.escape(BEGIN) + rb".*?" + re.escape(END) + rb"\n?", re.DOTALL)
_INSTEAD: Final = b"#!/bin/sh\n"


def is_shell(text: bytes) -> bool:
    """Tell whether a hook is a script of a shell that reads our lines."""
    first = text.split(b"\n", 1)[0]
    if not first.startswith(b"#!") or b"\0" in text:
        return False
    words = first[2:].split()
    if words and words[0].rpartition(b"/")[2] == b"env":
        words = [word for word in words[1:] if not word.startswith(b"-") and b"=" not in word]
    return bool(words) and words[0].rpartition(b"/")[2] in _SHELLS


def has_guard(text: bytes) -> bool:
    """Tell whether a hook has our lines."""
    return _BLOCK.search(text) is not None


def block(hook: str, program: str) -> bytes:
    """Return our lines for a hook: they end it only where somebody else holds a file.

    Whatever else goes wrong (no Fencepost, another version, no answer) is said, and the hook goes on. What git gives a
    pre-push hook on its standard input is given on to what comes behind.
    """
    quoted = shlex.quote(program)
    lines = [
        BEGIN.decode(),
        "# Asks whether another agent holds the files. `fencepost guard remove` takes these lines out.",
        "fencepost_status=0",
    ]
    given, body = "</dev/null", list[str]()
    if hook == "pre-push":
        lines.append("fencepost_refs=$(cat)")
        given, body = "<<END_OF_REFS", ["$fencepost_refs", "END_OF_REFS"]
    for test, name in (
        (f"if [ -x {quoted} ]; then", quoted),
        ("elif command -v fencepost >/dev/null 2>&1; then", "fencepost"),
    ):
        lines += [test, f"  {name} guard check --hook {hook} {given} || fencepost_status=$?"]
        lines += body
    lines += [
        "else",
        "  echo 'fencepost guard: fencepost is not installed any more, so nothing was checked' >&2",
        "fi",
        f'if [ "$fencepost_status" -eq {HELD} ]; then exit 1; fi',
    ]
    if hook == "pre-push":
        lines += [
            'if [ -n "$fencepost_refs" ]; then exec <<END_OF_REFS',
            "$fencepost_refs",
            "END_OF_REFS",
            "else exec </dev/null; fi",
        ]
    lines.append(END.decode())
    return "\n".join(lines).encode() + b"\n"


def with_guard(text: bytes, hook: str, program: str) -> bytes:
    """Return a shell script with our lines below its first, in place of older ones of ours."""
    bare = without_guard(text)
    first, newline, rest = bare.partition(b"\n")
    return first + (newline or b"\n") + block(hook, program) + rest


def without_guard(text: bytes) -> bytes:
    """Return a script without our lines."""
    return _BLOCK.sub(b"", text, count=1)


def own(hook: str, program: str) -> bytes:
    """Return the script where there was none."""
    return _INSTEAD + block(hook, program)


def calling(hook: str, program: str) -> bytes:
    """Return the script in place of a hook that was put aside: it asks, then becomes that one."""
    behind = (
        "# What stood here before runs as it did; `fencepost guard remove` puts it back.\n"
        f'fencepost_before="$(dirname -- "$0")/{hook}{ASIDE}"\n'
        'if [ -x "$fencepost_before" ]; then exec "$fencepost_before" "$@"; fi\n'
        "exit 0\n"
    )
    return _INSTEAD + block(hook, program) + behind.encode()


def is_only_ours(text: bytes, hook: str) -> bool:
    """Tell whether nothing is left of a script once our lines are out: it was made by us."""
    bare = without_guard(text)
    return bare in (_INSTEAD, without_guard(calling(hook, "fencepost")))


def calls_another(text: bytes, hook: str) -> bool:
    """Tell whether a script is the one that calls a hook that was put aside."""
    return without_guard(text) == without_guard(calling(hook, "fencepost"))
