"""Race receive against claim: python tests/chaos/race.py [--races N] [--least N]. Ends with 1 where it went wrong."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from fencepost_testing.processes import short_home
from fencepost_testing.race import RACERS, Outcome, race

RACES = 10_000
LEAST = 1_000


def judge(outcome: Outcome, least: int) -> list[str]:
    """Return what is wrong."""
    faults = outcome.faults()
    faults += [f"{racer} won only {outcome.wins(racer)}" for racer in RACERS if outcome.wins(racer) < least]
    return faults


def main() -> int:
    """Race, print one line, and every fault."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--races", type=int, default=RACES, help=f"how many requests (default {RACES})")
    arguments.add_argument("--least", type=int, default=LEAST, help=f"what each must win (default {LEAST})")
    asked = arguments.parse_args()
    with short_home() as home:
        outcome = asyncio.run(race(home, asked.races))
    print(outcome.summary())
    faults = judge(outcome, asked.least)
    for fault in faults[:20]:
        print(f"fault: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
