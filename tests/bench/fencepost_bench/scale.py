"""A mailbox with a million records against one with a thousand: sends and pages, p50, same cache, same loads."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import sqlite3
import uuid
from collections.abc import Sequence
from functools import partial
from importlib import resources
from typing import Any, Final

from fencepost_bench import population
from fencepost_bench.homes import BUILD, BenchHome, create_agents
from fencepost_bench.rows import Plan, Row, alternating, median_of, spread
from fencepost_bench.setting import Setting, start

from fencepost.home import MAILBOX, SESSIONS

RECORDS_LARGE: Final = 1_000_000
RECORDS_SMALL: Final = 1_000
PAGE_RECORDS: Final = 50
WINDOW_S: Final = 0.25
WARM_WINDOWS: Final = 2
SENDERS: Final = tuple(f"sender-{number}" for number in range(4))
READERS: Final = tuple(f"reader-{number}" for number in range(7))
UNREAD: Final = "unread"

PLANS: Final = (Plan(id="scale-send", goal=1.3), Plan(id="scale-tail", goal=1.3), Plan(id="scale-old", goal=1.3))


def form() -> str:
    """Return what a kept store is known by: the schema, and how it was filled."""
    digest = hashlib.sha256(f"{population.FORM} {RECORDS_LARGE} {SENDERS} {READERS}".encode())
    for part in ("fencepost_mailbox.store.migrations", "fencepost_sessions.store.migrations"):
        for file in sorted(resources.files(part).iterdir(), key=lambda one: one.name):
            if file.name.endswith(".sql"):
                digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def filled_home(setting: Setting, records: int, *, keep: bool) -> tuple[BenchHome, str]:
    """Return a home whose mailbox holds so many records, not running, and how it was come by."""
    if keep:
        name = f"store-{records}-{form()}"
        for other in BUILD.glob(f"store-{records}-*"):
            if other.name != name:
                shutil.rmtree(other)
        whole = BUILD / name / "filled.json"
        if not whole.exists():
            shutil.rmtree(BUILD / name, ignore_errors=True)
    else:
        name, whole = f"small-{records}", None
    bench: BenchHome = setting.keep(BenchHome(name, keep=keep))
    database = bench.home.database(MAILBOX)
    filler = setting.child("population")
    if whole is not None and whole.exists():
        if filler.ask("restore", path=str(database), records=records) == records:
            return bench, "kept from an earlier run"
        shutil.rmtree(bench.folder)
        bench.folder.mkdir(mode=0o700)
    start(bench, (SESSIONS, MAILBOX))
    asyncio.run(create_agents(bench, (*SENDERS, *READERS, UNREAD)))
    for service in (MAILBOX, SESSIONS):
        bench.services.stop(service)
    agents = bench.agents()
    took = filler.ask(
        "fill",
        path=str(database),
        records=records,
        project=agents_project(bench),
        senders=[agents[name]["id"] for name in SENDERS],
        unread=agents[UNREAD]["id"],
        read=[agents[name]["id"] for name in READERS],
    )
    if whole is not None:
        whole.write_text(json.dumps({"records": records}))
    return bench, f"filled in {took:.0f} s"


def agents_project(bench: BenchHome) -> str:
    """Return the project of the agents of a home."""
    connection = sqlite3.connect(f"file:{bench.home.database(MAILBOX)}?mode=ro", uri=True)
    try:
        return str(uuid.UUID(bytes=connection.execute("SELECT project_id FROM directory_agent").fetchone()[0]))
    finally:
        connection.close()


def scale(setting: Setting) -> list[Row]:
    """Measure every row of PLANS."""
    notes = {}
    for server, records, keep in (("large", RECORDS_LARGE, True), ("small", RECORDS_SMALL, False)):
        bench, notes[server] = filled_home(setting, records, keep=keep)
        _serve(setting, server, bench)
    load = setting.load
    # Pages before sends: the newest page is the newest, and the small store is still small.
    loads: dict[str, Any] = {
        "scale-tail": lambda server: load.ask("reads", server=server, kind="tail", seconds=WINDOW_S),
        "scale-old": lambda server: load.ask("reads", server=server, kind="old", seconds=WINDOW_S),
        "scale-send": lambda server: load.ask("sends", server=server, callers=1, seconds=WINDOW_S),
    }
    plans = {plan.id: plan for plan in PLANS}
    rows = {}
    for name, one in loads.items():
        steps = {server: partial(one, server) for server in ("large", "small")}
        # Once unseen: pages come into the caches, the logs of new stores reach their size.
        for step in steps.values():
            for _ in range(WARM_WINDOWS):
                step()
        rounds = alternating(setting.windows, steps)
        rows[name] = plans[name].row(_ratio(rounds), f"{_detail(rounds)}; {RECORDS_LARGE:,} records {notes['large']}")
    return [rows[plan.id] for plan in PLANS]


def _serve(setting: Setting, server: str, bench: BenchHome) -> None:
    agents = {name: one["id"] for name, one in bench.agents().items()}
    wanted = {name: agents[name] for name in (*READERS, UNREAD)}
    filler = setting.child("population")
    pages = filler.ask(
        "pages", path=str(bench.home.database(MAILBOX)), agents=wanted, limit=PAGE_RECORDS, unread=UNREAD
    )
    start(bench, (SESSIONS, MAILBOX))
    setting.introduce(server, bench, SENDERS, (*READERS, UNREAD))
    tokens = {name: one["token"] for name, one in bench.agents().items()}
    for kind, found in pages.items():
        known = [(tokens[name], cursor) for name, cursor in found]
        setting.load.ask("know_pages", server=server, kind=kind, pages=known, limit=PAGE_RECORDS)


def _ratio(rounds: Sequence[Any]) -> float:
    return median_of(rounds, lambda one: one["large"]["p50"]) / median_of(rounds, lambda one: one["small"]["p50"])


def _detail(rounds: Sequence[Any]) -> str:
    large, small = (1000 * median_of(rounds, lambda one, name=name: one[name]["p50"]) for name in ("large", "small"))  # type: ignore[misc]
    return f"p50 {large:.2f} ms against {small:.2f} ms at {RECORDS_SMALL:,}; {spread(rounds, _ratio)}"
