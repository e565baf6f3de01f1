"""ListAgents: the agents that the caller sees, in name order (M020)."""

from __future__ import annotations

from fencepost_sessions.domain.agents import Agent, agent_bytes
from fencepost_sessions.domain.paging import NamePosition, Page, cut, list_mark, name_position, name_token, page_rows
from fencepost_sessions.domain.roles import Caller
from fencepost_sessions.store.protocol import Reading
from fencepost_sessions.usecases.loading import existing_project, project_asked_for
from fencepost_sessions.usecases.ports import Ports


async def list_agents(ports: Ports, caller: Caller, *, project_id: str, page_size: int, page_token: str) -> Page[Agent]:
    """Return a page: of the caller's own project for an agent, of the project asked for or of all for the operator.

    Raises:
        Malformed, PermissionDenied, NotFound (no such project), InvalidLimit, InvalidCursor: nothing was read.
    """
    seen = project_asked_for(caller, project_id)
    rows = page_rows(page_size)

    def question(reading: Reading) -> Page[Agent]:
        if seen is not None:
            existing_project(reading, seen)
        mark = list_mark(reading.directory().epoch, "agents", seen)
        after = name_position(mark, page_token)
        page, last = cut(reading.agents(project_id=seen, after=after, rows=rows + 1), rows, agent_bytes)
        place = None if last is None else NamePosition(key=last.name_key, row_id=last.agent_id)
        return Page(rows=page, next_token="" if place is None else name_token(mark, place))

    return ports.store.read(question)
