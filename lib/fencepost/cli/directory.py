"""Whole listings of the directory, exact look-ups, and who was nearly meant."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, Final

from fencepost.cli.acting import Services
from fencepost.cli.options import PAGES_MAX
from fencepost.cli.plain import plain
from fencepost.client import Sessions
from fencepost.errors import FencepostError, Refused
from fencepost.sessions.v1 import sessions_pb2 as pb

READERS_ASKED_MAX: Final = 500
NO_AGENTS: Final = "No agents yet. Create one with: fencepost agent create NAME"


async def all_projects(sessions: Sessions) -> list[pb.Project]:
    """Return every project, at most PAGES_MAX pages."""
    found: list[pb.Project] = []
    token = ""
    for _ in range(PAGES_MAX):
        page = await sessions.list_projects(pb.ListProjectsRequest(page_token=token))
        found.extend(page.projects)
        token = page.next_page_token
        if not token:
            break
    return found


async def all_agents(sessions: Sessions, project_id: str = "") -> list[pb.Agent]:
    """Return every agent that the caller may see, at most PAGES_MAX pages."""
    found: list[pb.Agent] = []
    token = ""
    for _ in range(PAGES_MAX):
        page = await sessions.list_agents(pb.ListAgentsRequest(project_id=project_id, page_token=token))
        found.extend(page.agents)
        token = page.next_page_token
        if not token:
            break
    return found


async def resolve(services: Services, target: str) -> pb.GetAgentResponse:
    """Return the agent that `target` names exactly; a refusal names what was nearly meant."""
    try:
        return await services.sessions.get_agent(pb.GetAgentRequest(target=target))
    except Refused as refused:
        raise await with_near_miss(services, refused, target) from None


async def with_near_miss(services: Services, refused: Refused, target: str) -> Refused:
    """Return `refused` with a hint that names the agent that was probably meant, where there is one."""
    if refused.reason != "not_found" or refused.hint:
        return refused
    try:
        names = [agent.name for agent in await all_agents(services.sessions)]
    except FencepostError:
        return refused
    return Refused(refused.reason, refused.message, hint=near_miss(target, names), state=refused.state)


def near_miss(target: str, names: Sequence[str]) -> str:
    """Return a hint naming what `target` nearly is: another case first, then a similar name."""
    folded = [name for name in names if name.casefold() == target.strip().casefold()]
    similar = folded or difflib.get_close_matches(target, names, n=1)
    if similar:
        return f"Names match exactly: did you mean {similar[0]!r}?"
    return "`fencepost agent list` shows the names." if names else NO_AGENTS


async def readers(services: Services, found: Sequence[pb.Agent]) -> dict[str, Any]:
    """Return who reads which mailbox, by agent; empty where the mailbox cannot tell now."""
    reading: dict[str, Any] = {}
    try:
        for start in range(0, len(found), READERS_ASKED_MAX):
            part = [agent.agent_id for agent in found[start : start + READERS_ASKED_MAX]]
            reading |= {item.agent_id: plain(item) for item in (await services.mailbox.list_readers(part)).readers}
    except FencepostError:
        # Who exists is sessions' answer; it does not depend on the mailbox.
        return {}
    return reading
