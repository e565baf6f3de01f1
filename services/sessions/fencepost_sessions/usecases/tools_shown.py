"""What is set of an agent's MCP tools, shown in the agent's folder, where its servers and the edge read it (T002).

The file follows the directory: it is written after the commit, from what the store holds then, one write at a time, and
made right at every start. So it never shows what was never set, and after a crash it is late, not wrong for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from fencepost_sessions.domain.agents import Agent
from fencepost_sessions.domain.paging import NamePosition
from fencepost_sessions.domain.tools import tools_shown
from fencepost_sessions.store.protocol import Reading, Store

# Agents that are read in one question to the store.
AGENTS_AT_ONCE: Final = 200


class ToolFiles(Protocol):
    """The files in agents' folders."""

    async def show(self, profiles: Mapping[bytes, str]) -> None:
        """Make each agent's file hold its profile, durably; no file where that, or the agent's folder, is not there."""


class ToolsShown:
    """Keeps the files in step with the directory."""

    def __init__(self, *, store: Store, files: ToolFiles) -> None:
        self._store = store
        self._files = files
        # What was read from the store is written before anything newer is read.
        self._turn = asyncio.Lock()

    async def of_agent(self, agent_id: bytes) -> None:
        """Show what holds for one agent now."""

        def question(reading: Reading) -> dict[bytes, str]:
            agent = reading.agent(agent_id)
            return {} if agent is None else _profiles(reading, [agent])

        async with self._turn:
            await self._files.show(self._store.read(question))

    async def of_all(self, project_id: bytes | None = None) -> None:
        """Show what holds for every agent of a project now, or of the home."""
        after: NamePosition | None = NamePosition(key="", row_id=b"")
        while after is not None:
            after = await self._some(project_id, after)

    async def _some(self, project_id: bytes | None, after: NamePosition) -> NamePosition | None:
        """Show what holds for a page of agents; return where the next one begins, None behind the last."""

        def question(reading: Reading) -> tuple[Sequence[Agent], dict[bytes, str]]:
            agents = reading.agents(project_id=project_id, after=after, rows=AGENTS_AT_ONCE)
            return agents, _profiles(reading, agents)

        async with self._turn:
            agents, profiles = self._store.read(question)
            await self._files.show(profiles)
        last = agents[-1] if len(agents) == AGENTS_AT_ONCE else None
        return None if last is None else NamePosition(key=last.name_key, row_id=last.agent_id)


def _profiles(reading: Reading, agents: Sequence[Agent]) -> dict[bytes, str]:
    found: dict[bytes, str] = {}
    for agent in agents:
        project = reading.project(agent.project_id)
        found[agent.agent_id] = tools_shown(agent.launch.tools_profile, project.tools_profile if project else "")
    return found
