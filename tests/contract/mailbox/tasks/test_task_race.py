"""Claim, start and review, raced by two processes; the long race is tests/chaos/task_race.py."""

from __future__ import annotations

from collections import Counter

import pytest

from fencepost_testing.processes import short_home
from fencepost_testing.task_race import KINDS, RACERS, TaskOutcome, race_for_tasks

RACES = 60
LEAST = 6


@pytest.mark.requirement("tasks.each-race-has-one-winner", "tasks.a-pool-task-is-claimed-once")
@pytest.mark.parametrize("kind", KINDS)
async def test_two_processes_race_for_each_task_and_exactly_one_wins(kind: str) -> None:
    with short_home() as home:
        outcome = await race_for_tasks(home, kind, RACES)
    assert len(outcome.asked) == RACES
    assert outcome.faults() == []
    for racer in RACERS:
        assert outcome.wins(racer) >= LEAST, outcome.summary()


def test_the_judge_of_the_race_finds_what_was_won_twice_or_by_nobody() -> None:
    fair = TaskOutcome(kind="start", asked=["a", "b"], won={"first": ["a"], "second": ["b"]})
    fair.refused, fair.written = Counter({"invalid_state": 2}), Counter({1: 2})
    assert fair.faults() == []
    both = TaskOutcome(kind="start", asked=["a", "b"], won={"first": ["a", "b"], "second": ["b"]})
    both.refused, both.written = Counter({"invalid_state": 1}), Counter({1: 1, 2: 1})
    assert len(both.faults()) == 3
    nobody = TaskOutcome(kind="claim", asked=["a"], won={"first": [], "second": []})
    nobody.refused, nobody.written = Counter({"not_found": 1, "internal": 1}), Counter({0: 1})
    assert len(nobody.faults()) == 4
