"""From the commit of a request to the begin of its turn, and from the turn's end to the end of its requester's wait.

Through the whole carrier, on a home of its own: with the scripted program, always; with the pinned Codex where that is
installed, in a network in which nothing but loopback is. The begin and the end of a turn are what the program says: the
scripted one notes when it speaks, and Codex is heard by a second client of its conversation. The yardstick is a bare
start of a turn, with nothing in between, plus so many syncs and echoes as the carrier may need.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from fencepost_bench.child import BENCH, SUPPORT, Child
from fencepost_bench.homes import BUILD, ROOT, BenchHome
from fencepost_bench.rows import Plan, Row, alternating, median_of, percentile, spread
from fencepost_bench.setting import Setting, start

from fencepost.client import Channels
from fencepost.home import MAILBOX, PROVIDERS, SESSIONS, read_credential
from fencepost_providers.adapters.codex.home.location import SOCKET, STATE_VARIABLE
from fencepost_testing.carried import Carried
from fencepost_testing.codex_real import NoNamespace, real_codex
from fencepost_testing.processes import MODULES, Services
from fencepost_testing.real_programs import NotInstalled, present

PROGRAM_VARIABLE: Final = "FENCEPOST_CODEX_PROGRAM"
PROGRAMS: Final = ROOT / "build" / "e2e" / "programs"
PATHS: Final = {"PYTHONPATH": f"{BENCH}{os.pathsep}{SUPPORT}"}
SENDER: Final = "sender"
WORKER: Final = "worker"
REQUESTS_A_WINDOW: Final = 6
WARM_REQUESTS: Final = 3
SYNC_S: Final = 0.1
ECHO_S: Final = 0.15


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowance:
    """What a step may take beside a bare one: so many syncs and echoes."""

    syncs: int
    echoes: int


START: Final = Allowance(syncs=4, echoes=8)
WAKE: Final = Allowance(syncs=3, echoes=8)
PARTS: Final = ((0.5, "p50"), (0.99, "p99"))


def _plans(name: str) -> tuple[Plan, ...]:
    return tuple(Plan(id=f"{name}-{step}{end}", goal=1.0) for step in ("start", "wake") for end in ("", "-p99"))


PLANS: Final = _plans("carry")
CODEX_PLANS: Final = _plans("codex")

Rounds = Sequence[Any]


def carries(setting: Setting) -> list[Row]:
    """Measure every row of PLANS."""
    bench = _home(setting, "carry", {**MODULES, PROVIDERS: "fencepost_bench.stamped"}, PATHS)
    asked = asyncio.run(_asked(bench, provider="scripted"))
    carrying = _carrying(setting, bench)
    beside = bench.folder / "beside"
    carrying.ask("scripted", folder=os.fspath(asked.folder), beside=os.fspath(beside))
    return _rows(PLANS, _measured(setting, carrying))


def codex_carries(setting: Setting) -> list[Row]:
    """Measure every row of CODEX_PLANS, or tell why they are left out."""
    named = os.environ.get(PROGRAM_VARIABLE)
    opened = setting.keep(contextlib.ExitStack())
    folder = BUILD / "codex-person"
    shutil.rmtree(folder, ignore_errors=True)
    opened.callback(shutil.rmtree, folder, ignore_errors=True)
    try:
        program = Path(named) if named else present(PROGRAMS, "codex")
        real = opened.enter_context(real_codex(folder, folder / "model", program))
    except (NotInstalled, NoNamespace) as error:
        # Nothing was promised to a machine without Codex: no goal is missed there.
        return [replace(plan.unmeasured(""), goal=None, detail=f"left out: {error}") for plan in CODEX_PLANS]
    environment = {**real.environment, STATE_VARIABLE: os.fspath(real.short)}
    bench = _home(setting, "codex", MODULES, environment)
    asked = asyncio.run(_asked(bench, provider="codex", approval="on-request", sandbox="read-only"))
    carrying = _carrying(setting, bench)
    carrying.ask(
        "codex",
        socket=os.fspath(asked.folder / SOCKET),
        conversation=asked.conversation_id,
        model=os.fspath(real.model),
    )
    return _rows(CODEX_PLANS, _measured(setting, carrying))


def _home(setting: Setting, name: str, modules: Mapping[str, str], environment: Mapping[str, str]) -> BenchHome:
    bench: BenchHome = setting.keep(BenchHome(name))
    bench.services = Services(bench.home, modules=modules, env=environment)
    start(bench, (SESSIONS, MAILBOX, PROVIDERS))
    return bench


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """The running program of the agent that is asked."""

    folder: Path
    conversation_id: str


async def _asked(bench: BenchHome, *, provider: str, **launch: Any) -> Asked:
    """Create the agent that asks and the one that is asked, and wait until its program runs."""
    async with Channels(bench.home) as channels:
        carried = Carried(bench.services, channels)
        await carried.start()
        await carried.create(WORKER, provider=provider, **launch)
        runtime = await carried.ready(WORKER)
    return Asked(folder=Path(runtime.private_home), conversation_id=runtime.conversation_id)


def _carrying(setting: Setting, bench: BenchHome) -> Child:
    """Return the process that asks, connected."""
    carrying = setting.child("carrying")
    carrying.ask(
        "connect",
        address=bench.address(MAILBOX),
        operator=read_credential(bench.home.operator_credential),
        sender=bench.agents()[SENDER]["token"],
        target=WORKER,
    )
    return carrying


def _measured(setting: Setting, carrying: Child) -> Rounds:
    for step in ("requests", "bare"):
        carrying.ask(step, count=WARM_REQUESTS)
    return alternating(
        setting.windows,
        {
            "requests": lambda: carrying.ask("requests", count=REQUESTS_A_WINDOW),
            "bare": lambda: carrying.ask("bare", count=REQUESTS_A_WINDOW),
            "sync": lambda: setting.disk.ask("sync", seconds=SYNC_S),
            "echo": setting.echoes(1, ECHO_S),
        },
    )


def _taken(rounds: Rounds, step: str, part: float) -> float:
    return percentile([seconds for one in rounds for seconds in one["requests"][step]], part)


def _bare(rounds: Rounds, part: float) -> float:
    return percentile([seconds for one in rounds for seconds in one["bare"]], part)


def _rows(plans: Sequence[Plan], rounds: Rounds) -> list[Row]:
    steps = (("start", START, True), ("wake", WAKE, False))
    each = [(step, allowance, begins, *part) for step, allowance, begins in steps for part in PARTS]
    rows = []
    for plan, (step, allowance, begins, part, name) in zip(plans, each, strict=True):

        def yardsticks(over: Rounds, begins: bool = begins, part: float = part, name: str = name) -> list[float]:
            sync = median_of(over, lambda one: one["sync"][name])
            echo = median_of(over, lambda one: one["echo"][name])
            return [_bare(over, part) if begins else 0.0, sync, echo]

        def allowed(over: Rounds, allowance: Allowance = allowance) -> float:
            bare, sync, echo = yardsticks(over)
            return bare + allowance.syncs * sync + allowance.echoes * echo

        def ratio(over: Rounds, step: str = step, part: float = part) -> float:
            return _taken(over, step, part) / allowed(over)

        bare, sync, echo = yardsticks(rounds)
        sum_of = [f"bare {1000 * bare:.2f}"] if begins else []
        sum_of += [f"{allowance.syncs} syncs of {1000 * sync:.2f}", f"{allowance.echoes} echoes of {1000 * echo:.2f}"]
        detail = (
            f"{name} {1000 * _taken(rounds, step, part):.2f} ms of {1000 * allowed(rounds):.2f} ms; "
            f"{' + '.join(sum_of)}; {spread(rounds, ratio)}; {len(rounds) * REQUESTS_A_WINDOW} requests"
        )
        rows.append(plan.row(ratio(rounds), detail))
    return rows
