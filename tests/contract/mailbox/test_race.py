"""Receive against claim, raced by two processes; the long race is tests/chaos/race.py."""

from __future__ import annotations

import pytest

from fencepost_testing.processes import short_home
from fencepost_testing.race import RACERS, Given, Outcome, overlapping, race

RACES = 300
LEAST = 30


@pytest.mark.requirement("mailbox.one-reader-at-most")
async def test_two_processes_race_for_each_request_and_exactly_one_is_given_it() -> None:
    with short_home() as home:
        outcome = await race(home, RACES)
    assert len(outcome.asked) == RACES
    assert outcome.faults() == []
    for racer in RACERS:
        assert outcome.wins(racer) >= LEAST, outcome.summary()
    assert outcome.contested >= RACES // 4, f"a race that nobody ran: {outcome.summary()}"


def given(request_id: str, began: float = 0, ended: float = 1) -> Given:
    return Given(request_id=request_id, began=began, ended=ended)


def test_the_judge_of_the_race_finds_what_was_given_twice_to_both_or_to_nobody() -> None:
    fair = Outcome(asked=["a", "b"], given={"receive": [given("a")], "claim": [given("b")]})
    fair.facts.update({("exposed",): 1, ("claimed",): 1})
    assert fair.faults() == []
    both = Outcome(asked=["a", "b"], given={"receive": [given("a"), given("b")], "claim": [given("b")]})
    both.facts.update({("exposed",): 1, ("claimed", "exposed"): 1})
    assert len(both.faults()) == 2
    nobody = Outcome(asked=["a", "b"], given={"receive": [given("a")], "claim": []})
    nobody.facts.update({("exposed",): 1})
    assert nobody.faults() == ["b was given to nobody"]


def test_calls_overlap_where_one_began_before_the_other_ended() -> None:
    ones = [given("a", 0, 1), given("b", 2, 3), given("c", 10, 11)]
    assert overlapping(ones, [given("x", 0.5, 2.5), given("y", 20, 21)]) == 2
    assert overlapping(ones, []) == 0
    assert overlapping([], ones) == 0
