"""What several use cases load: a thing that must exist, a name that must be free."""

from __future__ import annotations

from fencepost_kit.refusal import PermissionDenied
from fencepost_sessions.domain.agents import Agent, check_active, deleted_agent
from fencepost_sessions.domain.identifiers import uuid_bytes
from fencepost_sessions.domain.limits import PROJECTS_MAX
from fencepost_sessions.domain.names import Name, check_quarantine
from fencepost_sessions.domain.projects import Project
from fencepost_sessions.domain.refusals import NameTaken, NotFound
from fencepost_sessions.domain.roles import Caller
from fencepost_sessions.domain.targets import TargetId, TargetName, resolve_name, unknown_agent
from fencepost_sessions.store.protocol import Reading

# How many agents can have one key: one in each project.
SAME_KEY_ROWS_MAX = PROJECTS_MAX


def existing_project(reading: Reading, project_id: bytes) -> Project:
    """Return a project.

    Raises:
        NotFound: there is none with this id.
    """
    project = reading.project(project_id)
    if project is None:
        raise NotFound("there is no such project; nothing was written", hint="List the projects to see their ids.")
    return project


def existing_agent(reading: Reading, agent_id: bytes) -> Agent:
    """Return an agent.

    Raises:
        NotFound: there is none with this id.
    """
    agent = reading.agent(agent_id)
    if agent is None:
        raise unknown_agent()
    return agent


def active_agent(reading: Reading, agent_id: bytes) -> Agent:
    """Return an agent that lives on.

    Raises:
        NotFound: there is none with this id.
        AgentDeleted: it is being deleted, or was.
    """
    if reading.tombstone(agent_id) is not None:
        raise deleted_agent("was deleted")
    return check_active(existing_agent(reading, agent_id))


def check_name_is_free(reading: Reading, *, project_id: bytes, name: Name, agent_id: bytes, now_ms: int) -> None:
    """Let an agent have a name.

    Raises:
        NameTaken: another agent of the project has it, in any case or normal form.
        NameQuarantined: another agent of the project gave it up a moment ago.
    """
    for holder in reading.agents_of_key(name.key, project_id=project_id, rows=1):
        if holder.agent_id != agent_id:
            raise NameTaken(
                "another agent of the project has this name; nothing was written",
                hint=f'Names are unique without regard to case; there is "{holder.name}". Choose another name.',
                state={"holder": holder.name},
            )
    check_quarantine(reading.released_name(project_id, name.key), agent_id=agent_id, now_ms=now_ms)


def find_agent(reading: Reading, target: TargetId | TargetName, *, project_id: bytes | None) -> Agent:
    """Return the agent that a target means in one project, or in all.

    Raises:
        NotFound: none that is seen from there.
        AmbiguousTarget: a name that several projects have.
    """
    if isinstance(target, TargetName):
        return resolve_name(target, reading.agents_of_key(target.key, project_id=project_id, rows=SAME_KEY_ROWS_MAX))
    agent = reading.agent(target.agent_id)
    if agent is None or project_id not in {None, agent.project_id}:
        raise unknown_agent()
    return agent


def project_asked_for(caller: Caller, project_id: str) -> bytes | None:
    """Return the project that a list or search is narrowed to; None means every project.

    Raises:
        Malformed: not a UUID.
        PermissionDenied: an agent asks for a project that is not its own.
    """
    asked = uuid_bytes(project_id, what="project_id") if project_id else None
    own = caller.project_seen
    if own is None:
        return asked
    if asked not in {None, own}:
        raise PermissionDenied(
            "an agent sees its own project only",
            hint="Leave project_id empty.",
            state={"role": caller.role.name.lower()},
        )
    return own
