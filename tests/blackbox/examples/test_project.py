"""The project of several agents in examples/ is played to its end; what it shows it has checked itself."""

from __future__ import annotations

import pytest

from fencepost_testing.example_project import TEST_S_MAX, interrupted, played

CLAIMS = [
    "lea yields, and goes on supervising all five",
    "lexer.py is not reserved for two: ann holds it",
    "whether {loser}'s attempt still runs is unknown, and said so",
    "{winner} is not given the work (not_found)",
    "lea cannot give it away either (invalid_state)",
    "the life before is fenced (stale_generation)",
    "lexer.py was released by submitting",
    "the review finds a defect, and rejects",
    "and is cancelled when its agent says so",
    "the second revision is accepted",
    "lexer is in the main checkout: merged",
    "five tasks are integrated, one is cancelled",
    "nothing is supervised any more",
    "the histories tell what happened",
    "the database has those tasks and events",
    "the restarted services tell the same",
]


@pytest.mark.requirement("tasks.a-project-from-assignment-to-merge")
@pytest.mark.timeout(TEST_S_MAX)
def test_a_project_of_four_agents_ends_settled_and_other_processes_find_the_same() -> None:
    claims = played()
    (winner,) = (name for name in ("bob", "cy") if f"{name} alone has the task" in claims)
    loser = {"bob": "cy", "cy": "bob"}[winner]
    missing = {claim.format(winner=winner, loser=loser) for claim in CLAIMS} - set(claims)
    assert not missing, claims


@pytest.mark.requirement("tasks.a-project-from-assignment-to-merge")
@pytest.mark.timeout(TEST_S_MAX)
def test_an_interrupted_project_stops_its_services_and_removes_its_folder() -> None:
    assert interrupted() == 130
