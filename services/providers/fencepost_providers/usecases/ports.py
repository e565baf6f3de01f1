"""What the use cases need, and who may see whom."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.home import Home
from fencepost_kit.clock import Clock
from fencepost_kit.identity import Caller, Role
from fencepost_kit.ids import uuid_text
from fencepost_providers.adapters.registry import Adapters
from fencepost_providers.directory import Directory
from fencepost_providers.domain.agents import Agent, Desired
from fencepost_providers.domain.refusals import AgentOff, NotFound
from fencepost_providers.integrations import Integrations
from fencepost_providers.keeper import Keeper
from fencepost_providers.outbox import Outbox
from fencepost_providers.roster import Roster
from fencepost_providers.store.protocol import Store
from fencepost_providers.verifications import Verifications


@dataclass(frozen=True, kw_only=True, slots=True)
class Ports:
    """Everything."""

    home: Home
    store: Store
    directory: Directory
    roster: Roster
    outbox: Outbox
    integrations: Integrations
    verifications: Verifications
    adapters: Adapters
    clock: Clock
    version: str


def project_of(caller: Caller) -> str:
    """Return the project that a caller may see; empty for the operator, who sees all.

    Raises:
        NotFound: the caller is nobody who sees all, and has no project.
    """
    if caller.role is Role.OPERATOR:
        return ""
    if caller.project_id is None:
        raise NotFound("no agent is to be seen without a project; nothing was changed")
    return uuid_text(caller.project_id)


def agent_of(ports: Ports, caller: Caller, agent_id: str, *, only_self: bool = False) -> Agent:
    """Return an agent by its UUID, where the caller may see it.

    Raises:
        DependencyDown: the directory was not heard of lately.
        NotFound: there is none, or none that the caller may see.
    """
    ports.directory.check_fresh()
    agent = ports.directory.agent(agent_id)
    if agent is not None and caller.role is not Role.OPERATOR:
        own = caller.agent_id is not None and uuid_text(caller.agent_id) == agent_id
        if not (own if only_self else agent.project_id == project_of(caller)):
            agent = None
    if agent is None:
        raise NotFound(
            "no agent that you may see has this UUID; nothing was changed",
            hint="`fencepost agent list` shows the agents.",
        )
    return agent


def keeper_of(ports: Ports, agent: Agent) -> Keeper:
    """Return the keeper of an agent that a person wants to run.

    Raises:
        AgentOff: nobody does; nothing was changed.
    """
    keeper = ports.roster.keeper(agent.agent_id)
    if keeper is None or agent.deleting or agent.desired in {Desired.OFF, Desired.UNSPECIFIED}:
        raise AgentOff(
            "this agent is not to be run by Fencepost; nothing was changed",
            hint="Say so first: `fencepost agent start NAME`.",
            state={"desired": agent.desired.name.lower()},
        )
    return keeper
