"""Compare the protos with those of the last release tag: a change that breaks its clients fails.

Before the first release, and where there is no history (a source archive, a shallow clone), it says so and passes.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
BUF = Path(sys.executable).parent / "buf"
PROTOS: Final = "protos"
SECONDS_MAX: Final = 120
SKIPPED: Final = "skipped: "
RELEASE: Final = re.compile(r"v(\d{1,6})\.(\d{1,6})\.(\d{1,6})")


def newest(tags: Iterable[str]) -> str | None:
    """Return the highest release among tags: v1.2.3 and nothing else, so no release candidate."""
    releases = {tuple(map(int, found.groups())): tag for tag in tags if (found := RELEASE.fullmatch(tag))}
    return releases[max(releases)] if releases else None


def git(root: Path, *arguments: str) -> bytes:
    """Run git and return what it prints.

    Raises:
        OSError, subprocess.SubprocessError: there is no git, or no repository.
    """
    return subprocess.run(
        ["git", *arguments],
        cwd=root,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=SECONDS_MAX,
    ).stdout


def compare(root: Path) -> tuple[bool, str]:
    """Return whether all is well, and what there is to say."""
    try:
        # Only what this tree comes from: a later release of another branch is not its past.
        tag = newest(git(root, "tag", "--merged", "HEAD").decode().split())
    except (OSError, subprocess.SubprocessError) as error:
        return True, f"{SKIPPED}no history to compare with ({type(error).__name__})"
    if tag is None:
        return True, f"{SKIPPED}no release tag (v1.2.3) yet"
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(git(root, "archive", tag, PROTOS))) as archive:
            archive.extractall(folder, filter="data")
        done = subprocess.run(
            [str(BUF), "breaking", PROTOS, "--against", str(Path(folder) / PROTOS)],
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    return done.returncode == 0, f"compared with {tag}\n{done.stdout}".rstrip()


def main() -> int:
    """Compare, say what was found, and fail where it breaks clients."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    good, said = compare(ROOT)
    print(said)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
