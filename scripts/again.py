"""Run the tests that failed in the last run once more, alone: tell a broken test from an unsteady one.

Thousands of tests run four at a time on two processors, most with real processes and sockets. One of them may fail for
what its neighbours did to the clock, and passes alone. That is a fault of the test, and is told as one; it says nothing
of the change that is judged. What fails twice, or fails with many, does.

Exit 0: each passed alone, and is named. Exit 1: some failed again, or there was nothing to run or too much.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
# pytest's own note of what failed; `.ci/run` removes it before each run that is judged by it.
NOTE: Final = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
# More than this is no accident of timing, but a change that breaks something or a machine that cannot run the tests.
TESTS_MAX: Final = 3
RUN_S_MAX: Final = 600


def failed(note: Path) -> list[str]:
    """Return the tests that failed last, or an empty list where nothing is noted."""
    try:
        return sorted(json.loads(note.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return []


def refusal(tests: list[str]) -> str | None:
    """Say why these are not run again, or return None."""
    if not tests:
        return "no test is noted as failed: the run itself did not come to its end"
    if len(tests) > TESTS_MAX:
        return f"{len(tests)} tests failed, and at most {TESTS_MAX} are run again"
    return None


def main() -> int:
    """Judge the last run."""
    tests = failed(NOTE)
    why = refusal(tests)
    if why is not None:
        print(f"==== again: {why}", flush=True)
        return 1
    print("==== again, alone: " + " ".join(tests), flush=True)
    try:
        status = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *tests], cwd=ROOT, check=False, timeout=RUN_S_MAX
        ).returncode
    except subprocess.TimeoutExpired:
        print(f"==== again: over its limit of {RUN_S_MAX} s", flush=True)
        return 1
    if status != 0:
        return 1
    for test in tests:
        print(f"==== UNSTEADY, to be mended: {test}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
