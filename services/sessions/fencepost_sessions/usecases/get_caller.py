"""GetCaller: who the presented credential speaks for."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost_kit.refusal import Unauthenticated
from fencepost_sessions.domain.agents import Agent
from fencepost_sessions.domain.credentials import Credential
from fencepost_sessions.domain.projects import Project
from fencepost_sessions.domain.roles import Caller
from fencepost_sessions.store.protocol import Reading
from fencepost_sessions.usecases.ports import Ports


@dataclass(frozen=True, kw_only=True, slots=True)
class CallerShown:
    """A credential, and the agent that it speaks for, if any, with its project."""

    credential: Credential
    agent: Agent | None
    project: Project | None


async def get_caller(ports: Ports, caller: Caller) -> CallerShown:
    """Return the caller's credential, agent and project.

    A credential of an older generation is answered too: asking gives no authority.
    """

    def question(reading: Reading) -> CallerShown:
        credential = reading.credential(caller.credential_id)
        if credential is None:
            raise Unauthenticated("the credential was removed a moment ago")
        agent = None if credential.agent_id is None else reading.agent(credential.agent_id)
        project = None if agent is None else reading.project(agent.project_id)
        return CallerShown(credential=credential, agent=agent, project=project)

    return ports.store.read(question)
