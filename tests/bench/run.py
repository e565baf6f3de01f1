"""Measures every ratio that Fencepost promises, prints one table, and writes build/bench.json.

    python tests/bench/run.py [--windows N] [--only ID ...] [--strict [--slack PART]]

Every row compares things measured in alternating windows of one run, so that it says more about the program than about
the machine: docs/reference/performance.md tells what each row is. Exits with 0 where everything could be measured, with
1 where something could not; with --strict also where a goal is missed, and with --slack only where it is missed by more
than that part of it.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).resolve().parent), str(ROOT / "tests" / "support")]

from fencepost_bench import carries, durable, scale, shims, sizes, tasks, wakes  # noqa: E402
from fencepost_bench.homes import BUILD  # noqa: E402
from fencepost_bench.rows import Plan, Row, as_json, table  # noqa: E402
from fencepost_bench.setting import Setting  # noqa: E402

WINDOWS: Final = 15
WINDOWS_MAX: Final = 1000
OUTPUT: Final = ROOT / "build" / "bench.json"


@dataclass(frozen=True, kw_only=True)
class Part:
    """Rows that are measured together."""

    plans: Sequence[Plan]
    measure: Callable[[Setting], list[Row]]


PARTS: Final = (
    Part(plans=durable.PLANS, measure=durable.durable),
    Part(plans=durable.COMMIT_PLANS, measure=durable.commits),
    Part(plans=wakes.PLANS, measure=wakes.wakes),
    Part(plans=wakes.SHIM_PLANS, measure=wakes.shim_wakes),
    Part(plans=tasks.NOTICE_PLANS, measure=tasks.notices),
    Part(plans=tasks.CLAIM_PLANS, measure=tasks.claims),
    Part(plans=tasks.FILE_PLANS, measure=tasks.files),
    Part(plans=shims.PLANS, measure=shims.shims),
    Part(plans=scale.PLANS, measure=scale.scale),
    Part(plans=sizes.PLANS, measure=sizes.sizes),
    Part(plans=carries.PLANS, measure=carries.carries),
    Part(plans=carries.CODEX_PLANS, measure=carries.codex_carries),
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=WINDOWS, help=f"windows of each measurement (default {WINDOWS})")
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="measure these rows; * stands for anything")
    parser.add_argument("--strict", action="store_true", help="a missed goal is a failure")
    parser.add_argument("--slack", type=float, default=0.0, help="part of a goal by which it may be missed (default 0)")
    chosen = parser.parse_args()
    if not 1 <= chosen.windows <= WINDOWS_MAX:
        parser.error(f"--windows is 1 to {WINDOWS_MAX}")
    if chosen.slack < 0:
        parser.error("--slack is 0 or more")
    known = [plan.id for part in PARTS for plan in part.plans]
    for pattern in chosen.only:
        if not any(fnmatchcase(name, pattern) for name in known):
            parser.error(f"no row is called {pattern}; there are {', '.join(known)}")
    return chosen


def measured(part: Part, setting: Setting) -> list[Row]:
    """Measure a part; what fails leaves its rows unmeasured, with the reason."""
    try:
        return part.measure(setting)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other rows can still be measured
        # Whole, with the end of a service's log where that is the reason; the rows carry its first line.
        sys.stderr.write(f"{part.plans[0].id} and its neighbours: {error}\n")
        first = next(iter(str(error).splitlines()), type(error).__name__)
        return [plan.unmeasured(first) for plan in part.plans]


def alone() -> bool:
    """Tell whether no other bench of this tree runs; none can begin until this process ends."""
    BUILD.mkdir(parents=True, exist_ok=True)
    # Never closed: the lock is held until the process ends, however it ends.
    descriptor = os.open(BUILD / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def main() -> int:
    chosen = arguments()
    wanted = [name.id for part in PARTS for name in part.plans]
    if chosen.only:
        wanted = [name for name in wanted if any(fnmatchcase(name, pattern) for pattern in chosen.only)]
    # A run that is told to end takes down what it has started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if not alone():
        sys.stderr.write("another bench of this tree is running; nothing was started\n")
        return 1
    began = time.monotonic()
    rows: list[Row] = []
    with Setting(chosen.windows) as setting:
        for part in PARTS:
            if any(plan.id in wanted for plan in part.plans):
                rows += [row for row in measured(part, setting) if row.id in wanted]
    print(table(rows, shutil.get_terminal_size((132, 40)).columns))
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(as_json(rows), encoding="utf-8")
    missed = [row.id for row in rows if row.missed]
    failed = [row.id for row in rows if row.misses(slack=chosen.slack)]
    # What is only reported may be something that this system does not tell.
    lost = [row.id for row in rows if row.ratio is None and row.goal is not None]
    said = [f"{len(rows)} rows, {chosen.windows} windows, {time.monotonic() - began:.0f} s"]
    said += [f"{len(missed)} over their goal: {', '.join(missed)}"] if missed else []
    if chosen.strict and chosen.slack:
        said += [f"{len(failed)} by more than {chosen.slack:g} of it: {', '.join(failed) or 'none'}"]
    said += [f"{len(lost)} not measured: {', '.join(lost)}"] if lost else []
    print("; ".join(said))
    return 1 if lost or (chosen.strict and failed) else 0


if __name__ == "__main__":
    raise SystemExit(main())
