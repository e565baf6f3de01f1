"""Fail where a tracked file names a place that belongs to one machine or one company: a home folder, a registry.

Such a line works for its writer only, and tells the rest of the world where it was written.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
FILE_BYTES_MAX: Final = 4 * 1024 * 1024
# Each pattern is put together from pieces, so that this file passes its own check.
PLACES: Final = {
    "a working folder of one machine": re.compile(
        r"(?<![\w.$}])/" + r"(?:work|root|Users/\w+|home/(?!you\b)\w+)(?![\w-])"
    ),
    "a package registry": re.compile(
        r"files\.python" + r"hosted|pypi" + r"\.(?:org|io)|registry\.npm" + r"js|proxy\.gol" + r"ang", re.IGNORECASE
    ),
    "an index option": re.compile(r"--(?:extra-)?index-" + r"url[ =]\S+|--find-" + r"links[ =]\S+"),
    "a private address": re.compile(r"\b(?:10\.\d+|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.\d+\.\d+\b"),
}
# Option names are arguments here, not places.
EXEMPT: Final = frozenset({"scripts/pins.py"})


def tracked() -> Iterator[Path]:
    """Yield every file that is tracked, or would be by the next `git add`, so that a fault shows before its commit."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=30,
    )
    for name in sorted(set(listing.stdout.decode().split("\0")) - {""}):
        path = ROOT / name
        if path.is_file() and name not in EXEMPT:
            yield path


def faults_in(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number of each line that names a place, and what kind of place."""
    for number, line in enumerate(text.splitlines(), start=1):
        for kind, pattern in PLACES.items():
            if pattern.search(line):
                yield number, kind


def main() -> int:
    """Look through the tree."""
    if not (ROOT / ".git").exists():
        print("places: not a git checkout, nothing to look through")
        return 0
    found = 0
    for path in tracked():
        if path.stat().st_size > FILE_BYTES_MAX:
            print(f"{path.relative_to(ROOT)}: over {FILE_BYTES_MAX} bytes; a file of this size does not belong here")
            found += 1
            continue
        for number, kind in faults_in(path.read_text(encoding="utf-8", errors="replace")):
            print(f"{path.relative_to(ROOT)}:{number}: names {kind}")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
