"""Race two processes for tasks: python tests/chaos/task_race.py [KIND ...] [--races N]. 1 where it went wrong."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from fencepost_testing.processes import short_home
from fencepost_testing.task_race import KINDS, RACERS, TaskOutcome, race_for_tasks

RACES = 1_000
LEAST = 100


def judge(outcome: TaskOutcome, least: int) -> list[str]:
    """Return what is wrong."""
    faults = outcome.faults()
    faults += [f"the {racer} won only {outcome.wins(racer)}" for racer in RACERS if outcome.wins(racer) < least]
    return faults


def main() -> int:
    """Race for each single-winner transition, print one line each, and every fault."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("kinds", nargs="*", help=f"of: {', '.join(KINDS)}; default all")
    arguments.add_argument("--races", type=int, default=RACES, help=f"how many of each (default {RACES})")
    arguments.add_argument("--least", type=int, default=LEAST, help=f"what each must win (default {LEAST})")
    asked = arguments.parse_args()
    failed = False
    for kind in asked.kinds or KINDS:
        with short_home() as home:
            outcome = asyncio.run(race_for_tasks(home, kind, asked.races))
        print(outcome.summary(), flush=True)
        faults = judge(outcome, asked.least)
        for fault in faults[:20]:
            print(f"fault: {fault}", file=sys.stderr)
        failed = failed or bool(faults)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
