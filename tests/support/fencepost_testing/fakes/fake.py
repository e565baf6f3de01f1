"""A service without a purpose, for the supervisor's tests: what it does in its next life stands in a file of the home.

<home>/fake/<name>.json may hold one of
    {"exit": CODE}                 ends before it serves, after {"say": TEXT}
    {"hang": true}                 serves and is never ready
    {"exit_when_ready": CODE}      ends as soon as somebody could see that it was ready
    {"stubborn": true}             ignores SIGTERM
    {"slow_stop": true}            begins to stop at SIGTERM and never gets there
    {"chatter": N}                 writes N long lines once it is ready
and every life appends to <home>/fake/events: name, event, pid.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from fencepost.home import Home
from fencepost_kit.serve import Server, ServeSettings, run

READY_SEEN_S = 0.3


def plan_of(home: Home, name: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((home.path / "fake" / f"{name}.json").read_text())
    except FileNotFoundError:
        return {}
    return found


def note(home: Home, name: str, event: str) -> None:
    if not home.path.exists():
        return  # a fake leaves it to the server to make the home, or to refuse it
    folder = home.path / "fake"
    folder.mkdir(exist_ok=True)
    with (folder / "events").open("a") as file:
        file.write(f"{name} {event} {os.getpid()}\n")


async def serve(name: str, stop: asyncio.Event) -> int:
    home = Home.from_environment()
    plan = plan_of(home, name)
    note(home, name, "started")
    if "say" in plan:
        sys.stderr.write(plan["say"] + "\n")
    if "exit" in plan:
        return int(plan["exit"])
    server = Server(ServeSettings(home=home, service=name, drain_ms=500))
    await server.start()
    if plan.get("stubborn"):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: note(home, name, "refused_to_stop"))
    if not plan.get("hang"):
        server.mark_ready()
        note(home, name, "ready")
    for number in range(plan.get("chatter", 0)):
        sys.stderr.write(f"{number} " + "x" * 1000 + "\n")
    if "exit_when_ready" in plan:
        await asyncio.sleep(READY_SEEN_S)  # sleep: the supervisor has to see it ready, and cannot tell us so
        return int(plan["exit_when_ready"])
    await stop.wait()
    note(home, name, "stopping")
    if plan.get("slow_stop"):
        await asyncio.Event().wait()
    await server.stop()
    note(home, name, "stopped")
    return 0


def main(name: str) -> None:
    sys.exit(run(lambda stop: serve(name, stop), service=name))
