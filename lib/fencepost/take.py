"""Finds the agent NAME of a folder's project, or creates it, with the operator's own credential of this home.

Run by the stdio shim at its first tool call: `python -P -m fencepost.take --agent NAME [--project DIR]`. Prints one
JSON object on one line: agent_id and name, or error with code, message and hint; never a credential. Where the
environment names an agent too, nothing is created, and another agent than that one is refused.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from fencepost.cli.directory import all_agents, all_projects, near_miss
from fencepost.cli.project import Location, locate
from fencepost.client import Budgets, Channels, Identity, Sessions, new_key
from fencepost.errors import FencepostError, NotWritten, Refused
from fencepost.home import CREDENTIAL_VARIABLE, SESSION_VARIABLE, Home
from fencepost.mcp.arguments import Asked, parse
from fencepost.sessions.v1 import sessions_pb2 as pb

# All of it, below what the shim grants; the kernel ends what hangs nevertheless.
TAKE_MS_MAX: Final = 7_000
HARD_S_MAX: Final = 9
BUDGETS: Final = Budgets(ready_ms=3_000, call_ms=3_000)
CREATE_ATTEMPTS_MAX: Final = 2


async def take(sessions: Sessions, *, name: str, location: Location, workspace: str) -> pb.Agent:
    """Return the agent of exactly this name in the project of `location`; create both where they do not stand.

    Whoever creates it at the same moment wins, and both get that one. Refuses a name that another agent has in other
    case, and what sessions refuses.
    """
    refused: Refused | None = None
    for _ in range(CREATE_ATTEMPTS_MAX):
        found = await find(sessions, name=name, location=location)
        if found is not None:
            return found
        project = await sessions.ensure_project(
            pb.EnsureProjectRequest(
                idempotency_key=new_key("take"), kind=location.kind, location=location.path, name=location.name
            )
        )
        ask = pb.CreateAgentRequest(
            idempotency_key=new_key("take"), project_id=project.project.project_id, name=name, workspace=workspace
        )
        try:
            return (await sessions.create_agent(ask)).agent
        except Refused as taken:
            if taken.reason != "name_taken":
                raise
            names = [agent.name for agent in await all_agents(sessions, project.project.project_id)]
            refused = Refused(taken.reason, taken.message, hint=near_miss(name, names), state=taken.state)
    assert refused is not None
    raise refused


async def find(sessions: Sessions, *, name: str, location: Location) -> pb.Agent | None:
    """Return the agent of exactly this name in the project of `location`, or None. Creates nothing.

    Refuses one that is being deleted: its name belongs to nobody else until that has ended.
    """
    projects = {project.location: project.project_id for project in await all_projects(sessions)}
    if location.path not in projects:
        return None
    ask = pb.GetAgentRequest(target=name, project_id=projects[location.path])
    try:
        agent = (await sessions.get_agent(ask)).agent
    except Refused as refused:
        if refused.reason != "not_found":
            raise
        return None
    if agent.state == pb.AGENT_STATE_DELETING:
        raise Refused(
            "agent_deleted",
            f"the agent {name} is being deleted; nothing was sent and nothing was created",
            hint="Use another name, or this one a minute after the deletion has ended.",
        )
    return agent


async def agree(sessions: Sessions, mine: Sessions, identity: Identity, *, name: str, location: Location) -> pb.Agent:
    """Return the agent `name`, which must be the one that the environment's identity speaks for. Creates nothing."""
    if identity.needs_verifying:
        await identity.verify(mine)
    caller = await mine.get_caller()
    found = await find(sessions, name=name, location=location)
    if found is None or found.agent_id != caller.credential.agent_id:
        raise Refused(
            "identity_disagreement",
            f"--agent {name} and the environment ({identity.source}) name different agents; nothing was sent and"
            " nothing was created",
            hint="Give only one of them to this MCP server.",
        )
    return found


async def _resolve(asked: Asked, env: Mapping[str, str]) -> pb.Agent:
    home = Home.from_environment(env)
    try:
        operator = Identity.operator(home)
    except Refused as refused:
        if refused.reason != "credential_missing":
            raise
        raise NotWritten(
            "not_running",
            f"no services have ever run in the home {home.text}: it has no operator credential; nothing was sent",
            hint="Start them with `fencepost up`.",
        ) from None
    folder = Path.cwd() / (asked.project or "")
    location = await asyncio.to_thread(locate, folder)
    async with Channels(home) as channels:
        sessions = Sessions(channels, operator.token, budgets=BUDGETS)
        if not (env.get(SESSION_VARIABLE) or env.get(CREDENTIAL_VARIABLE)):
            return await take(sessions, name=asked.name, location=location, workspace=_workspace(folder))
        identity = Identity.from_environment(home, env)
        mine = Sessions(channels, identity.token, budgets=BUDGETS)
        return await agree(sessions, mine, identity, name=asked.name, location=location)


def _workspace(folder: Path) -> str:
    return os.path.normpath(folder)


async def answer(asked: Asked, env: Mapping[str, str]) -> dict[str, object]:
    """Return the answer for `asked`; nothing is raised but what is a bug."""
    try:
        async with asyncio.timeout(TAKE_MS_MAX / 1000):
            agent = await _resolve(asked, env)
    except FencepostError as error:
        return {"error": {"code": error.reason, "message": error.message, "hint": error.hint}}
    except TimeoutError:
        message = f"the agent {asked.name} could not be looked up within {TAKE_MS_MAX} ms; nothing was sent"
        return {"error": {"code": "not_written", "message": message, "hint": "See `fencepost status`."}}
    return {"agent_id": agent.agent_id, "name": agent.name}


def main(arguments: Sequence[str]) -> int:
    """Print the answer on one line and return 0; wrong arguments are a bug of the caller and end in ValueError."""
    signal.alarm(HARD_S_MAX)
    found = asyncio.run(answer(parse(arguments), os.environ))
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
