"""ListAgents: the agents that the caller sees, in name order (M020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fencepost_sessions.domain.agents import Agent, agent_bytes
from fencepost_sessions.domain.leases import Lease, Moment
from fencepost_sessions.domain.paging import NamePosition, Page, cut, list_mark, name_position, name_token, page_rows
from fencepost_sessions.domain.roles import Caller
from fencepost_sessions.domain.status import Status, seen, status_bytes
from fencepost_sessions.store.protocol import Reading
from fencepost_sessions.usecases.loading import existing_project, project_asked_for
from fencepost_sessions.usecases.ports import Ports


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentListed:
    """An agent, and what is shown of its runtime."""

    agent: Agent
    status: Status | None


async def list_agents(
    ports: Ports, caller: Caller, *, project_id: str, page_size: int, page_token: str
) -> Page[AgentListed]:
    """Return a page: of the caller's own project for an agent, of the project asked for or of all for the operator.

    Raises:
        Malformed, PermissionDenied, NotFound (no such project), InvalidLimit, InvalidCursor: nothing was read.
    """
    narrowed = project_asked_for(caller, project_id)
    rows = page_rows(page_size)
    moment = ports.lease_time.moment()

    def question(reading: Reading) -> Page[AgentListed]:
        if narrowed is not None:
            existing_project(reading, narrowed)
        mark = list_mark(reading.directory().epoch, "agents", narrowed)
        after = name_position(mark, page_token)
        agents = reading.agents(project_id=narrowed, after=after, rows=rows + 1)
        reports = reading.observations(project_id=narrowed, after=after, rows=rows + 1)
        page, last = cut([_listed(agent, reports, moment) for agent in agents], rows, _listed_bytes)
        place = None if last is None else NamePosition(key=last.agent.name_key, row_id=last.agent.agent_id)
        return Page(rows=page, next_token="" if place is None else name_token(mark, place))

    return ports.store.read(question)


def _listed(agent: Agent, reports: Mapping[bytes, tuple[Status, Lease | None]], moment: Moment) -> AgentListed:
    status, lease = reports.get(agent.agent_id, (None, None))
    return AgentListed(agent=agent, status=seen(status, lease, moment))


def _listed_bytes(listed: AgentListed) -> int:
    return agent_bytes(listed.agent) + status_bytes(listed.status)
