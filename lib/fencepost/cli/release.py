"""`fencepost agent release`: ask the session that holds an agent's name to let go of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Final

import typer

from fencepost import holds
from fencepost.cli import acting, screen
from fencepost.cli.directory import all_projects, resolve, with_near_miss
from fencepost.cli.options import AsJson, Target
from fencepost.cli.plain import one_line
from fencepost.cli.project import Location, locate
from fencepost.errors import Refused, Uncertain
from fencepost.sessions.v1 import sessions_pb2 as pb

# An idle holder looks every 5 s, a busy one at its next call; what it has begun finishes first.
RELEASE_S: Final = 8.0
RELEASE_S_MAX: Final = 120.0
POLL_MS: Final = 50


def release(
    target: Target,
    *,
    project: Annotated[
        Path | None,
        typer.Option(
            "--project", metavar="DIR", help="A folder of the agent's project, where the name alone is not exact."
        ),
    ] = None,
    timeout_s: Annotated[float, typer.Option("--timeout-s", metavar="S", help="How long to wait.")] = RELEASE_S,
    as_json: AsJson = False,
) -> None:
    """Ask the session that holds an agent's name (fencepost-mcp --agent NAME) to let go of it."""
    operator = acting.as_operator()
    if not 0 < timeout_s <= RELEASE_S_MAX:
        raise Refused("invalid_timeout", f"--timeout-s takes more than 0, at most {RELEASE_S_MAX:g}; nothing was asked")
    location = None if project is None else locate(project)
    agent = acting.call(operator, lambda services: _find(services, target, location))
    folder = str(operator.home.agent_folder(agent.agent_id))
    holder = holds.holder_of(folder)
    who = {"agent_id": agent.agent_id, "name": agent.name}
    if holder is None:
        if as_json:
            screen.put_json({**who, "was_held": False, "released": True})
        else:
            screen.put(f"Nobody holds {one_line(agent.name)}: there was nothing to release.")
        return
    try:
        holds.ask_to_let_go(folder, holder)
    except OSError as error:
        raise Refused("home_not_writable", f"{folder} cannot be written: {error.strerror}; nobody was asked") from None
    waited_ms = _await(folder, holder, timeout_s)
    if waited_ms is None:
        raise Uncertain(
            "deadline_exceeded",
            f"process {holder.pid} was asked to let go of {agent.name} and still holds it after {timeout_s:g} s",
            hint="It lets go when what it has begun is finished; a process that is stopped does not. Run this again to"
            " look; ending that process frees the name at once.",
            state={"pid": str(holder.pid)},
        )
    if as_json:
        screen.put_json({**who, "was_held": True, "released": True, "pid": holder.pid, "waited_ms": waited_ms})
    else:
        screen.put(f"Released: process {holder.pid} let go of {one_line(agent.name)}, in {screen.span(waited_ms)}.")


async def _find(services: acting.Services, target: str, location: Location | None) -> pb.Agent:
    if location is None:
        return (await resolve(services, target)).agent
    known = {item.location: item.project_id for item in await all_projects(services.sessions)}
    if location.path not in known:
        raise Refused("not_found", f"no agent was ever created in the project {location.path}; nothing was asked")
    ask = pb.GetAgentRequest(target=target, project_id=known[location.path])
    try:
        return (await services.sessions.get_agent(ask)).agent
    except Refused as refused:
        raise await with_near_miss(services, refused, target) from None


def _await(folder: str, holder: holds.Holder, timeout_s: float) -> int | None:
    """Return after how many milliseconds this hold ended, or None where it has not."""
    begun_s = time.monotonic()
    while True:
        now = holds.holder_of(folder)
        waited_s = time.monotonic() - begun_s
        if now is None or now.hold != holder.hold:
            return int(waited_s * 1000)
        if waited_s >= timeout_s:
            return None
        time.sleep(POLL_MS / 1000)
