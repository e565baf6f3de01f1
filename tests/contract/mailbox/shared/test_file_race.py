"""Reserve against reserve, raced by two processes; the long race is tests/chaos/file_race.py."""

from __future__ import annotations

import pytest

from fencepost_testing.file_race import RACERS, Outcome, Told, file_of, race
from fencepost_testing.processes import short_home

RACES = 200
LEAST = 20


@pytest.mark.requirement("files.one-of-two-has-it")
async def test_two_processes_race_for_each_file_and_exactly_one_has_it() -> None:
    with short_home() as home:
        outcome = await race(home, RACES)
    assert len(outcome.rounds) == RACES
    assert outcome.faults() == []
    for racer in RACERS:
        assert outcome.wins(racer) >= LEAST, outcome.summary()
    assert outcome.contested >= RACES // 4, f"a race that nobody ran: {outcome.summary()}"


def told(reserved: bool, *holders: str) -> Told:
    return Told(reserved=reserved, holders=holders, began=0, ended=1)


def test_the_judge_of_the_race_finds_two_winners_none_and_a_wrong_name() -> None:
    fair = {"ann": told(True), "bob": told(False, "ann")}
    assert Outcome(rounds=[fair], written={file_of(0): ["ann"]}).faults() == []
    for both, written in (
        ({"ann": told(True), "bob": told(True)}, ["ann", "bob"]),
        ({"ann": told(False, "bob"), "bob": told(False, "ann")}, []),
        ({"ann": told(True), "bob": told(False)}, ["ann"]),
        (fair, ["bob"]),
    ):
        assert len(Outcome(rounds=[both], written={file_of(0): written}).faults()) == 1
