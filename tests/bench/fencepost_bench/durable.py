"""Durable sends a second against what the stack and the disk allow, and the store alone against the disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fencepost_bench.machine import cpu_s
from fencepost_bench.rows import Plan, Row, alternating, median_of, spread
from fencepost_bench.setting import Setting

from fencepost.home import MAILBOX

CALLERS: Final = (1, 16, 64)
WINDOW_S: Final = 0.4
SYNC_WINDOW_S: Final = 0.1

Round = Mapping[str, Mapping[str, float]]

PLANS: Final = tuple(
    plan
    for callers in CALLERS
    for plan in (
        Plan(id=f"durable-{callers}", goal=0.6, better="higher"),
        Plan(id=f"send-echo-{callers}", better="higher"),
        Plan(id=f"batch-{callers}", better="higher"),
        Plan(id=f"cpu-{callers}"),
    )
)
COMMIT_PLANS: Final = (Plan(id="store-commit", goal=0.5, better="higher"),)


def ideal(rounds: Sequence[Round], callers: int) -> float:
    """Return how many durable sends a second this stack on this disk could do at best."""
    return callers / (
        median_of(rounds, lambda one: one["echo"]["p50"]) + 2 * median_of(rounds, lambda one: one["sync"]["p50"])
    )


def _window(setting: Setting, server: str, pid: int, callers: int) -> dict[str, float]:
    commits = setting.main.commits()
    before = cpu_s(pid)
    found: dict[str, float] = setting.load.ask("sends", server=server, callers=callers, seconds=WINDOW_S)
    after = cpu_s(pid)
    found["commits"] = setting.main.commits() - commits
    if before is not None and after is not None:
        found["cpu"] = (after - before) / found["count"]
    return found


def durable(setting: Setting) -> list[Row]:
    """Measure every row of PLANS."""
    mailbox, echo = setting.main.services.pid(MAILBOX), setting.echo.pid
    rows: list[Row] = []
    for callers, plans in zip(CALLERS, (PLANS[first : first + 4] for first in range(0, len(PLANS), 4)), strict=True):

        def send(callers: int = callers) -> dict[str, float]:
            return _window(setting, "main", mailbox, callers)

        def answer(callers: int = callers) -> dict[str, float]:
            return _window(setting, "echo", echo, callers)

        for warm in (send, answer):
            warm()
        rounds = alternating(
            setting.windows,
            {"send": send, "sync": lambda: setting.disk.ask("sync", seconds=SYNC_WINDOW_S), "echo": answer},
        )
        rows += _rows(plans, rounds, callers)
    return rows


def _rows(plans: Sequence[Plan], rounds: Sequence[Round], callers: int) -> list[Row]:
    def rate(kind: str, over: Sequence[Round]) -> float:
        return median_of(over, lambda one: one[kind]["rate"])

    def of_ideal(over: Sequence[Round]) -> float:
        return rate("send", over) / ideal(over, callers)

    def of_echo(over: Sequence[Round]) -> float:
        return rate("send", over) / rate("echo", over)

    def milliseconds(kind: str, value: str) -> str:
        return f"{1000 * median_of(rounds, lambda one: one[kind][value]):.2f}"

    batch = sum(one["send"]["count"] for one in rounds) / max(1, sum(one["send"]["commits"] for one in rounds))
    durable_plan, echo_plan, batch_plan, cpu_plan = plans
    found = [
        durable_plan.row(
            of_ideal(rounds),
            f"{rate('send', rounds):.0f}/s of {ideal(rounds, callers):.0f}/s; {spread(rounds, of_ideal)}; "
            f"send p50 {milliseconds('send', 'p50')} p99 {milliseconds('send', 'p99')} ms; "
            f"echo p50 {milliseconds('echo', 'p50')} ms; sync p50 {milliseconds('sync', 'p50')} ms",
        ),
        echo_plan.row(of_echo(rounds), f"echo {rate('echo', rounds):.0f}/s; {spread(rounds, of_echo)}"),
        batch_plan.row(batch, "sends a commit"),
    ]
    if any("cpu" not in one[kind] for one in rounds for kind in ("send", "echo")):
        return [*found, cpu_plan.unmeasured("the system does not tell processor time finely enough")]

    def cpu_us(kind: str) -> float:
        return 1e6 * median_of(rounds, lambda one: one[kind]["cpu"])

    send_us, echo_us = cpu_us("send"), cpu_us("echo")
    detail = f"mailbox {send_us:.0f} us a send, echo {echo_us:.0f} us an answer, all threads"
    return [*found, cpu_plan.row(send_us / echo_us, detail)]


def commits(setting: Setting) -> list[Row]:
    """Measure the rows of COMMIT_PLANS."""
    disk = setting.disk
    disk.ask("commits", seconds=WINDOW_S)
    rounds: list[Any] = alternating(
        setting.windows,
        {
            "commit": lambda: disk.ask("commits", seconds=WINDOW_S / 2),
            "sync": lambda: disk.ask("sync", seconds=SYNC_WINDOW_S),
        },
    )

    def ratio(over: Sequence[Any]) -> float:
        return median_of(over, lambda one: one["commit"]["rate"]) / median_of(over, lambda one: one["sync"]["rate"])

    def microseconds(kind: str) -> float:
        return 1e6 * median_of(rounds, lambda one: one[kind]["p50"])

    commit_us, sync_us = microseconds("commit"), microseconds("sync")
    detail = (
        f"{spread(rounds, ratio)}; one message a commit p50 {commit_us:.0f} us, sync of 20 KiB p50 {sync_us:.0f} us"
    )
    return [COMMIT_PLANS[0].row(ratio(rounds), detail)]
