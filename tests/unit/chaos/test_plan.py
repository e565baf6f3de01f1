"""The plan of the kills comes from the seed, and reaches every fault point."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from fencepost_chaos.keeper import Service
from fencepost_chaos.plan import NEEDS_A_LOSS, REACHED, Planned, Unreachable, once_more, plan

from fencepost.home import MAILBOX, MCP_EDGE, SESSIONS, Home

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
    assert all(1 <= item.turn <= REACHED[item.point].turn_max for item in items if item.point)


def test_the_first_kill_of_a_service_is_at_random_because_nothing_is_armed_yet() -> None:
    assert not any(items[0].point for items in plan(kills=20, seed="a", points=POINTS).values())


@pytest.mark.parametrize("seed", [str(number) for number in range(20)])
def test_the_settling_is_hit_right_after_a_kill_that_leaves_something_to_settle(seed: str) -> None:
    items = plan(kills=100, seed=seed, points=POINTS)[MCP_EDGE]
    before = [items[index - 1].point for index, item in enumerate(items) if item.point == NEEDS_A_LOSS]
    assert before
    assert all(point.startswith("mcp_edge.call.") for point in before)


@pytest.mark.parametrize("seed", [str(number) for number in range(5)])
def test_where_there_are_too_few_kills_the_seed_decides_which_points_are_left_out(seed: str) -> None:
    points = {service: sorted(point for point in REACHED if point.startswith(f"{service}.")) for service in POINTS}
    planned = {item.point for items in plan(kills=20, seed=seed, points=points).values() for item in items}
    others = {item.point for items in plan(kills=20, seed="other", points=points).values() for item in items}
    assert planned != others
    assert len(planned - {""}) == 20 - len(POINTS)


async def test_every_fault_point_of_the_services_has_a_workload_that_reaches_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "h")
    # The mailbox names its points once it has a credential; nobody looks at it.
    given = home.service_credential(MAILBOX)
    given.parent.mkdir(parents=True, mode=0o700)
    home.path.chmod(0o700)
    given.write_text("fp_" + "A" * 43 + "\n")
    given.chmod(0o600)
    of_each = await asyncio.gather(*(Service(home, name).points() for name in (SESSIONS, MAILBOX, MCP_EDGE)))
    assert sorted(point for points in of_each for point in points) == sorted(REACHED)


def test_a_point_that_nothing_is_known_to_reach_is_refused_by_its_name() -> None:
    with pytest.raises(Unreachable, match=r"mailbox\.new\.point"):
        plan(kills=20, seed="a", points={**POINTS, MAILBOX: ("mailbox.begin.after", "mailbox.new.point")})


def test_what_was_not_reached_is_tried_again_at_its_first_hit_and_settling_behind_a_loss() -> None:
    again = once_more(Planned(service=MAILBOX, point="mailbox.commit.after", turn=40))
    assert again == [Planned(service=MAILBOX, point="mailbox.commit.after", turn=1)]
    points = [item.point for item in once_more(Planned(service=MCP_EDGE, point=NEEDS_A_LOSS))]
    assert points == ["mcp_edge.call.after", NEEDS_A_LOSS]
