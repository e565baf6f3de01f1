"""UpdateProject: which MCP tools its agents are offered."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fencepost_kit import logs
from fencepost_sessions.domain.identifiers import uuid_bytes
from fencepost_sessions.domain.projects import Project, project_tools
from fencepost_sessions.store.protocol import Writing
from fencepost_sessions.usecases.loading import existing_project
from fencepost_sessions.usecases.ports import Ports

_log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Setting:
    project_id: bytes
    tools_profile: str | None

    def apply(self, tx: Writing, /) -> Project:
        before = existing_project(tx, self.project_id)
        if self.tools_profile is None or self.tools_profile == before.tools_profile:
            return before
        after = replace(before, tools_profile=self.tools_profile)
        tx.update_project(after)
        return after


async def update_project(ports: Ports, *, project_id: str, tools_profile: str | None) -> Project:
    """Return the project after the change, which is on disk and shown to its agents. Repeating it changes nothing more.

    Raises:
        Malformed, NotFound, InvalidToolsProfile: nothing is written.
    """
    wanted = uuid_bytes(project_id, what="project_id")
    profile = None if tools_profile is None else project_tools(tools_profile)
    project = await ports.store.commit(_Setting(project_id=wanted, tools_profile=profile))
    await ports.tools_shown.of_all(wanted)
    _log.info("project_updated", project_id=project_id)
    return project
