"""From a send to the end of a parked wait: over gRPC with 1, 100 and 1,000 waiters, and from shim to shim.

The time begins when the sender's call begins and ends when the answer is in the waiter's process: more than from the
commit to the wake. Only COMMIT itself, as the mailbox times it for that message, is not counted, so that a slow disk
does not stand for a slow wake. The yardstick is the p50 of the echo in a closed loop of one caller.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from fencepost_bench.homes import BenchHome, create_agents
from fencepost_bench.rows import Plan, Row, Unmeasured, alternating, median_of, percentile, spread
from fencepost_bench.setting import Setting

from fencepost.home import MAILBOX

WAITERS: Final = (1, 100, 1000)
WAKES_A_WINDOW: Final = 100
ALONE_A_WINDOW: Final = 60
EXCHANGES_A_WINDOW: Final = 40
EVERY_S: Final = 0.003
PROJECT_WAITERS: Final = 900
ECHO_S: Final = 0.15

PLANS: Final = tuple(
    Plan(id=f"wake-{part}-{waiters}", goal=goal) for waiters in WAITERS for part, goal in (("p50", 3.5), ("p99", 8.0))
)
SHIM_PLANS: Final = (Plan(id="shim-wake-p50", goal=5.0), Plan(id="shim-wake-p99", goal=10.0))

Rounds = Sequence[Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wake:
    """Seconds from the begin of a send to the end of a wait, and how many of them were inside COMMIT."""

    whole: float
    commit: float


def _without_commits(bench: BenchHome, count: int, spans: Sequence[tuple[int, int]]) -> list[Wake]:
    """Return what each span took, with the commits after the first `count` that lie inside it."""
    commits = bench.clock.since(count)
    found = []
    for begin, end in spans:
        inside = sum(until - since for since, until in commits if since >= begin and until <= end)
        if not inside:
            raise Unmeasured("a wait ended without a commit")
        found.append(Wake(whole=(end - begin) / 1e9, commit=inside / 1e9))
    return found


def _rows(plans: Sequence[Plan], rounds: Rounds, note: str) -> list[Row]:
    def echo(over: Rounds) -> float:
        return median_of(over, lambda one: one["echo"]["p50"])

    def stack(over: Rounds, part: float) -> float:
        return percentile([wake.whole - wake.commit for one in over for wake in one["wake"]], part)

    every = [wake for one in rounds for wake in one["wake"]]
    rows = []
    for plan, part in zip(plans, (0.5, 0.99), strict=True):

        def ratio(over: Rounds, part: float = part) -> float:
            return stack(over, part) / echo(over)

        whole, commit = (percentile([getattr(one, name) for one in every], part) for name in ("whole", "commit"))
        detail = (
            f"{1000 * stack(rounds, part):.2f} ms without COMMIT, echo p50 {1000 * echo(rounds):.2f} ms "
            f"p99 {1000 * median_of(rounds, lambda one: one['echo']['p99']):.2f} ms; {spread(rounds, ratio)}; "
            f"with COMMIT {1000 * whole:.2f} ms ({whole / echo(rounds):.2f} echoes), "
            f"COMMIT alone {1000 * commit:.2f} ms; {len(every)} {note}"
        )
        rows.append(plan.row(ratio(rounds), detail))
    return rows


def wakes(setting: Setting) -> list[Row]:
    """Measure every row of PLANS."""
    bench = setting.clocked
    groups = {count: [f"waiter-{count}-{number}" for number in range(count)] for count in WAITERS}
    everybody = [name for names in groups.values() for name in names]
    # A project holds no thousand waiters and their sender: each project has a sender of its own.
    parts = [everybody[first : first + PROJECT_WAITERS] for first in range(0, len(everybody), PROJECT_WAITERS)]
    for number, names in enumerate(parts):
        asyncio.run(create_agents(bench, [*names, f"caller-{number}"], project=f"waiting-{number}"))
    setting.introduce("waiting", bench, [f"caller-{number}" for number in range(len(parts))], ())
    waiting = Waiting(setting, {name: number for number, names in enumerate(parts) for name in names})
    rows: list[Row] = []
    for count, plans in zip(WAITERS, (PLANS[first : first + 2] for first in range(0, len(PLANS), 2)), strict=True):

        def window(names: list[str] = groups[count]) -> Any:
            return waiting.window(names)

        window()
        rounds = alternating(setting.windows, {"wake": window, "echo": setting.echoes(1, ECHO_S)})
        waiting.leave()
        rows += _rows(plans, rounds, f"wakes, {count} parked")
    return rows


class Waiting:
    """Agents that wait in a process of their own, and the senders that wake them."""

    def __init__(self, setting: Setting, project_of: dict[str, int]) -> None:
        self._bench = setting.clocked
        self._load = setting.load
        self._project_of = project_of
        self._turn = 0
        self._process = setting.child("waiters")
        tokens = {name: agent["token"] for name, agent in setting.clocked.agents().items() if name in project_of}
        self._process.ask("connect", address=setting.clocked.address(MAILBOX), agents=tokens)

    def window(self, names: list[str]) -> list[Wake]:
        """Return the wakes of a window, `names` being parked at its begin."""
        if len(names) == 1:
            return [sample for _ in range(ALONE_A_WINDOW) for sample in self._woken(names, names)]
        self._turn += 1
        first = self._turn * WAKES_A_WINDOW
        chosen = [names[(first + number) % len(names)] for number in range(WAKES_A_WINDOW)]
        return self._woken(names, chosen)

    def _woken(self, parked: list[str], chosen: list[str]) -> list[Wake]:
        """Park everybody, send to the chosen one after the other, and return how each was woken."""
        self._process.ask("park", names=parked)
        count = self._bench.clock.count
        targets = [(self._project_of[name], name) for name in chosen]
        began = self._load.ask("one_by_one", server="waiting", targets=targets, every_s=EVERY_S)
        ended = self._process.ask("woken", names=chosen)
        return _without_commits(self._bench, count, list(zip(began, ended, strict=True)))

    def leave(self) -> None:
        """End every wait."""
        self._process.ask("leave")


def shim_wakes(setting: Setting) -> list[Row]:
    """Measure every row of SHIM_PLANS: send_message in one shim until wait_agent returns in another."""
    bench = setting.clocked
    asyncio.run(create_agents(bench, ("first", "second"), project="shims"))
    agents, stdio = bench.agents(), setting.stdio
    stdio.ask(
        "start",
        home=os.fspath(bench.home.path),
        first=agents["first"]["id"],
        second=agents["second"]["id"],
        name="second",
    )

    def window() -> Any:
        count = bench.clock.count
        return _without_commits(bench, count, stdio.ask("exchanges", count=EXCHANGES_A_WINDOW))

    window()
    rounds = alternating(setting.windows, {"wake": window, "echo": setting.echoes(1, ECHO_S)})
    return _rows(SHIM_PLANS, rounds, "messages")
