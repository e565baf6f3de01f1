"""Rows of the bench: a ratio, its goal, and how far it can be trusted.

A ratio compares things that were measured in alternating windows of one run; its spread is the 5th to the 95th
percentile over resamples of those windows.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

RESAMPLES: Final = 400
SEED: Final = 20_261_130

T = TypeVar("T")
Better = Literal["lower", "higher"]


class Unmeasured(Exception):
    """Something could not be measured; the text says what and why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of the table. `goal` is None for what is only reported, `ratio` None for what could not be measured."""

    id: str
    ratio: float | None
    goal: float | None = None
    better: Better = "lower"
    detail: str

    @property
    def missed(self) -> bool:
        """Whether it was measured and does not reach its goal."""
        return self.misses(slack=0)

    def misses(self, *, slack: float) -> bool:
        """Tell whether it was measured and is beyond its goal by more than a part of the goal, 0.5 for half of it."""
        if self.ratio is None or self.goal is None:
            return False
        if self.better == "lower":
            return self.ratio > self.goal * (1 + slack)
        return self.ratio < self.goal / (1 + slack)

    def as_json(self) -> dict[str, Any]:
        """Return the row as it stands in build/bench.json."""
        ratio = None if self.ratio is None else round(self.ratio, 4)
        return {"id": self.id, "ratio": ratio, "goal": self.goal, "better": self.better, "detail": self.detail}


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A row before it is measured."""

    id: str
    goal: float | None = None
    better: Better = "lower"

    def row(self, ratio: float, detail: str) -> Row:
        """Return the measured row."""
        return Row(id=self.id, ratio=ratio, goal=self.goal, better=self.better, detail=detail)

    def unmeasured(self, why: str) -> Row:
        """Return the row of what could not be measured."""
        return Row(id=self.id, ratio=None, goal=self.goal, better=self.better, detail=f"not measured: {why}")


def percentile(samples: Sequence[float], part: float) -> float:
    """Return the nearest-rank percentile, `part` from 0 to 1."""
    if not samples:
        raise Unmeasured("no sample was taken")
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def alternating(windows: int, steps: Mapping[str, Callable[[], T]]) -> list[dict[str, T]]:
    """Run every step once a round, in reversed order every other round; return the results of each round by name."""
    rounds: list[dict[str, T]] = []
    for number in range(windows):
        names = list(steps) if number % 2 == 0 else list(steps)[::-1]
        rounds.append({name: steps[name]() for name in names})
    return rounds


def spread(rounds: Sequence[T], statistic: Callable[[Sequence[T]], float]) -> str:
    """Return the 5th to the 95th percentile of `statistic` over resamples of the rounds, as text."""
    dice = random.Random(SEED)
    found = [statistic(dice.choices(rounds, k=len(rounds))) for _ in range(RESAMPLES)]
    return f"p5..p95 {percentile(found, 0.05):.2f}..{percentile(found, 0.95):.2f}, {len(rounds)} windows"


def median_of(rounds: Sequence[T], value: Callable[[T], float]) -> float:
    """Return the median of a value over the rounds."""
    return statistics.median(value(one) for one in rounds)


def table(rows: Sequence[Row], width: int) -> str:
    """Return the rows as a table for people; details wrap below their row where they are long."""
    lines = [f"{'row':<16} {'ratio':>8}  {'goal':<9} {'':<4}  detail"]
    indent = " " * (len(lines[0]) - len("detail"))
    for row in rows:
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
        sign = "<=" if row.better == "lower" else ">="
        goal = "reported" if row.goal is None else f"{sign} {row.goal:g}"
        mark = "none" if row.ratio is None else "" if row.goal is None else "MISS" if row.missed else "ok"
        head, *rest = wrapped(row.detail, max(40, width - len(indent)))
        lines.append(f"{row.id:<16} {ratio:>8}  {goal:<9} {mark:<4}  {head}")
        lines += [indent + line for line in rest]
    return "\n".join(lines)


def wrapped(text: str, width: int) -> list[str]:
    """Break a detail at its separators."""
    lines = [""]
    for part in text.split("; "):
        joined = f"{lines[-1]}; {part}" if lines[-1] else part
        if len(joined) > width and lines[-1]:
            lines.append(part)
        else:
            lines[-1] = joined
    return lines


def as_json(rows: Sequence[Row]) -> str:
    """Return the rows as the text of build/bench.json."""
    return json.dumps([row.as_json() for row in rows], indent=1) + "\n"
