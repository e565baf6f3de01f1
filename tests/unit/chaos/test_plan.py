"""The plan of the kills comes from the seed, and reaches every fault point."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest
from fencepost_chaos.plan import NEEDS_A_LOSS, TURN_MAX, plan

from fencepost.home import MAILBOX, MCP_EDGE, SESSIONS

POINTS: Final = {
    MAILBOX: ("mailbox.begin.after", "mailbox.commit.after"),
    SESSIONS: ("sessions.commit.before",),
    MCP_EDGE: ("mcp_edge.call.after", "mcp_edge.call.before", NEEDS_A_LOSS),
}
ALL: Final = sorted(point for points in POINTS.values() for point in points)


def test_the_same_seed_gives_the_same_plan_and_another_one_another() -> None:
    first = plan(kills=50, seed="a", points=POINTS)
    assert plan(kills=50, seed="a", points=POINTS) == first
    assert plan(kills=50, seed="b", points=POINTS) != first


@pytest.mark.parametrize("kills", [1, 3, 9, 20, 200])
def test_there_are_as_many_kills_as_were_asked_for(kills: int) -> None:
    assert sum(len(items) for items in plan(kills=kills, seed="a", points=POINTS).values()) == kills


@pytest.mark.parametrize("kills", [9, 20, 200])
def test_every_point_has_its_turn_and_half_of_the_kills_are_at_points(kills: int) -> None:
    items = [item for of_service in plan(kills=kills, seed="a", points=POINTS).values() for item in of_service]
    at_points = Counter(item.point for item in items if item.point)
    assert sorted(at_points) == ALL
    assert sum(at_points.values()) == max(len(ALL), kills // 2)
    assert all(1 <= item.turn <= TURN_MAX[item.service] for item in items)


def test_the_first_kill_of_a_service_is_at_random_because_nothing_is_armed_yet() -> None:
    assert not any(items[0].point for items in plan(kills=20, seed="a", points=POINTS).values())


@pytest.mark.parametrize("seed", [str(number) for number in range(20)])
def test_the_settling_is_hit_right_after_a_kill_that_leaves_something_to_settle(seed: str) -> None:
    items = plan(kills=100, seed=seed, points=POINTS)[MCP_EDGE]
    before = [items[index - 1].point for index, item in enumerate(items) if item.point == NEEDS_A_LOSS]
    assert before
    assert all(point.startswith("mcp_edge.call.") for point in before)
