"""Run every check of the tree that is not a test, each by its name, and say at the end which failed.

All of them run even where one fails, so that one pass shows everything that is wrong.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
STEP_SECONDS_MAX: Final = 600
# How a step begins its output that had nothing to compare.
SKIPPED: Final = "skipped: "

STEPS: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "format": ("ruff", "format", "--check", "--quiet", "."),
        "lint": ("ruff", "check", "--quiet", "--output-format", "concise", "."),
        "types": ("mypy",),
        "imports": ("lint-imports", "--no-logo"),
        "protos": ("buf", "lint", "protos"),
        "protos-format": ("buf", "format", "--diff", "--exit-code", "protos"),
        "protos-breaking": ("python", "scripts/breaking.py"),
        "stubs": ("python", "scripts/generate_stubs.py", "--check"),
        "statements": ("python", "scripts/generate_sql.py", "--check"),
        "answers": ("python", "-m", "fencepost.mcp.generate", "--check"),
        "pins": ("python", "scripts/pins.py", "--check"),
        "places": ("python", "scripts/places.py"),
        "ledger": ("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit/repo"),
    }
)


def step(name: str) -> bool:
    """Run one step; print its output only where it fails, and the reason where it had nothing to do."""
    program, *rest = STEPS[name]
    started = time.monotonic()
    try:
        done = subprocess.run(
            [str(BIN / program), *rest],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=STEP_SECONDS_MAX,
            check=False,
            env=os.environ | {"NO_COLOR": "1", "COLUMNS": "120"},
        )
        good, output = done.returncode == 0, done.stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        good, output = False, str(error)
    skipped = good and output.startswith(SKIPPED)
    word = "skip" if skipped else "ok  " if good else "FAIL"
    print(f"{word} {name:<15} {time.monotonic() - started:5.1f} s", flush=True)
    if skipped or not good:
        print("     " + "\n     ".join(output.rstrip().splitlines()), flush=True)
    return good


def main() -> int:
    """Run the steps named, or all of them."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("steps", nargs="*", metavar="step", help=f"of: {', '.join(STEPS)}; default all")
    wanted: list[str] = arguments.parse_args().steps or list(STEPS)
    unknown = [name for name in wanted if name not in STEPS]
    if unknown:
        arguments.error(f"no such step: {', '.join(unknown)}")
    failed = [name for name in wanted if not step(name)]
    print("check: all good" if not failed else f"check: failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
