"""Supervised tasks and reservations: a notice at its assignee, claims from one pool, and how reservations scale."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from fencepost_bench.child import Child
from fencepost_bench.homes import BenchHome, create_agents
from fencepost_bench.rows import Plan, Row, Unmeasured, alternating, median_of, percentile, spread
from fencepost_bench.setting import Setting

from fencepost.home import MAILBOX

NOTICES_A_WINDOW: Final = 40
CLAIMERS: Final = 8
CLAIMS_A_WINDOW: Final = 256
SENDS_S: Final = 0.3
ECHO_S: Final = 0.15
FILES_S: Final = 0.15
# Holders of the paths that are live, and how many each holds.
LIVE: Final = {"few": (1, 100), "many": (10, 1000)}

NOTICE_PLANS: Final = (Plan(id="task-notice-p50", goal=4.0), Plan(id="task-notice-p99"))
CLAIM_PLANS: Final = (Plan(id="task-claims", goal=0.5, better="higher"),)
FILE_PLANS: Final = (Plan(id="files-check", goal=1.5), Plan(id="files-reserve", goal=1.5))

Rounds = Sequence[Any]


def _working(setting: Setting, bench: BenchHome, names: Sequence[str]) -> Child:
    agents = bench.agents()
    child = setting.child("working")
    child.ask("connect", address=bench.address(MAILBOX), agents={name: agents[name]["token"] for name in names})
    return child


def notices(setting: Setting) -> list[Row]:
    """Measure every row of NOTICE_PLANS: from the end of an assignment's COMMIT to the end of its assignee's wait."""
    bench = setting.clocked
    asyncio.run(create_agents(bench, ("issuer", "assignee"), project="assigning"))
    issuing, waiting = (_working(setting, bench, (name,)) for name in ("issuer", "assignee"))

    def one() -> dict[str, float]:
        waiting.ask("park", who="assignee")
        count = bench.clock.count
        began, task_id = issuing.ask("assign", issuer="issuer", to="assignee")
        ended, told = waiting.ask("noticed")
        if told != task_id:
            raise Unmeasured("the assignee was told of another task")
        inside = [(since, until) for since, until in bench.clock.since(count) if since >= began and until <= ended]
        if not inside:
            raise Unmeasured("a notice came without a commit")
        issuing.ask("take_back", issuer="issuer", task_id=task_id)
        # The run's new position is a commit of its own; as everywhere a slow disk does not stand for a slow notice.
        later = sum(until - since for since, until in inside[1:])
        return {"notice": (ended - inside[0][1] - later) / 1e9, "whole": (ended - began) / 1e9}

    def window() -> list[dict[str, float]]:
        return [one() for _ in range(NOTICES_A_WINDOW)]

    window()
    rounds: Rounds = alternating(setting.windows, {"task": window, "echo": setting.echoes(1, ECHO_S)})

    def echo(over: Rounds) -> float:
        return median_of(over, lambda one: one["echo"]["p50"])

    rows = []
    for plan, part in zip(NOTICE_PLANS, (0.5, 0.99), strict=True):

        def took(over: Rounds, what: str = "notice", part: float = part) -> float:
            return percentile([sample[what] for one in over for sample in one["task"]], part)

        def ratio(over: Rounds, took: Any = took) -> float:
            return float(took(over) / echo(over))

        detail = (
            f"{1000 * took(rounds):.2f} ms from the end of COMMIT, echo p50 {1000 * echo(rounds):.2f} ms; "
            f"{spread(rounds, ratio)}; from the call's begin {1000 * took(rounds, 'whole'):.2f} ms, COMMIT included"
        )
        rows.append(plan.row(ratio(rounds), detail))
    return rows


def claims(setting: Setting) -> list[Row]:
    """Measure the row of CLAIM_PLANS: claims a second of agents on one pool, against sends of as many callers."""
    bench = setting.main
    names = [f"claimer-{number}" for number in range(CLAIMERS)]
    asyncio.run(create_agents(bench, (*names, "offerer"), project="pool"))
    child = _working(setting, bench, (*names, "offerer"))

    def window() -> Any:
        pool = child.ask("fill_pool", issuer="offerer", count=CLAIMS_A_WINDOW)
        return child.ask("claims", names=names, pool=pool)

    def send() -> Any:
        return setting.load.ask("sends", server="main", callers=CLAIMERS, seconds=SENDS_S)

    window()
    send()
    rounds: Rounds = alternating(setting.windows, {"claim": window, "send": send})

    def rate(kind: str, over: Rounds) -> float:
        return median_of(over, lambda one: one[kind]["rate"])

    def ratio(over: Rounds) -> float:
        return rate("claim", over) / rate("send", over)

    lost = sum(one["claim"]["lost"] for one in rounds)
    won = sum(one["claim"]["count"] for one in rounds)
    (plan,) = CLAIM_PLANS
    detail = (
        f"{rate('claim', rounds):.0f} claims/s, {rate('send', rounds):.0f} sends/s with {CLAIMERS} callers; "
        f"{spread(rounds, ratio)}; {won} won, {lost} lost to another agent"
    )
    return [plan.row(ratio(rounds), detail)]


def files(setting: Setting) -> list[Row]:
    """Measure every row of FILE_PLANS: with many reservations live, against few."""
    bench = setting.main
    steps, children = {}, {}
    for name, (holders, each) in LIVE.items():
        held_by = [f"{name}-holder-{number}" for number in range(holders)]
        asyncio.run(create_agents(bench, (*held_by, f"{name}-asker"), project=f"files-{name}"))
        child = children[name] = _working(setting, bench, (*held_by, f"{name}-asker"))
        child.ask("hold", holders=held_by, each=each)
    for name, child in children.items():
        for step in ("checks", "reserves"):

            def window(child: Child = child, step: str = step, who: str = f"{name}-asker") -> Any:
                return child.ask(step, who=who, seconds=FILES_S)

            window()
            steps[f"{name}-{step}"] = window
    rounds: Rounds = alternating(setting.windows, steps)
    rows = []
    for plan, step in zip(FILE_PLANS, ("checks", "reserves"), strict=True):

        def p50(name: str, over: Rounds, step: str = step) -> float:
            return median_of(over, lambda one: one[f"{name}-{step}"]["p50"])

        def ratio(over: Rounds, p50: Any = p50) -> float:
            return float(p50("many", over) / p50("few", over))

        detail = (
            f"p50 {1000 * p50('many', rounds):.2f} ms with {LIVE['many'][0] * LIVE['many'][1]} live, "
            f"{1000 * p50('few', rounds):.2f} ms with {LIVE['few'][0] * LIVE['few'][1]}; {spread(rounds, ratio)}"
        )
        rows.append(plan.row(ratio(rounds), detail))
    return rows
