"""Race two processes for one file after another: python tests/chaos/file_race.py [--races N] [--least N]."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from fencepost_testing.file_race import RACERS, race
from fencepost_testing.processes import short_home

RACES = 1_000
LEAST = 100


def main() -> int:
    """Race, print one line, and every fault; 1 where it went wrong."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--races", type=int, default=RACES, help=f"how many files (default {RACES})")
    arguments.add_argument("--least", type=int, default=LEAST, help=f"what each must win (default {LEAST})")
    asked = arguments.parse_args()
    with short_home() as home:
        outcome = asyncio.run(race(home, asked.races))
    print(outcome.summary())
    faults = outcome.faults()
    faults += [f"{racer} has only {outcome.wins(racer)}" for racer in RACERS if outcome.wins(racer) < asked.least]
    for fault in faults[:20]:
        print(f"fault: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
