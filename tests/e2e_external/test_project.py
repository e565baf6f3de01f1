"""The project of several agents, beside the programs of others: it needs none of them."""

from __future__ import annotations

import pytest

from fencepost_testing.example_project import TEST_S_MAX, played


@pytest.mark.requirement("tasks.a-project-from-assignment-to-merge")
@pytest.mark.timeout(TEST_S_MAX)
def test_a_project_of_four_agents_is_played_from_assignment_to_merge() -> None:
    assert "five tasks are integrated, one is cancelled" in played()
