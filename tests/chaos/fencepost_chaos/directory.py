"""Holds the directory of agents to what its callers were told, through the services' own API."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fencepost_chaos.auditor import DELETED_REFUSAL, Broken, Violation
from fencepost_chaos.history import Directed, Doomed, Outcome

from fencepost.client import Channels, Mailbox, Sessions
from fencepost.errors import FencepostError, Refused
from fencepost.home import read_credential
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2

PAGE_SIZE = 500
FENCED = frozenset({"stale_generation", "unauthenticated"})
# How long after the last restart, and after it was asked for, a deletion may take to its end. Whoever carries it out
# tries again after at most 5 s.
DELETION_ENDS_S_MAX: Final = 20.0
ASK_PAUSE_S: Final = 0.1
# What is answered of a deleted agent, and to whoever has its token.
GONE: Final = "not_found"
NOBODY: Final = "unauthenticated"


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """An agent as sessions lists it at the end."""

    agent_id: str
    name: str
    generation: int
    provider: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What the services say of a deleted agent at the end, and what its home shows. Reasons are those of refusals."""

    agent_id: str
    ended: bool
    shown: str
    caller: str
    reader: str
    sending: str
    folder: bool


def audit_directory(directed: Sequence[Directed], agents: Sequence[Known]) -> Iterator[Violation]:
    """Each acknowledged change happened once: one agent a creation, one life a beginning, the last update stands."""
    names = Counter(agent.name for agent in agents)
    deleted = {change.subject for change in directed if change.call == "delete"}
    by_id = {agent.agent_id: agent for agent in agents}
    lives: dict[str, list[int]] = defaultdict(list)
    last: dict[str, str] = {}
    for change in directed:
        if change.outcome is not Outcome.DONE:
            continue
        if change.call == "create" and change.result in deleted:
            if names[change.subject] or change.result in by_id:
                yield Violation(broken=Broken.UNDEAD, text=f"{change.key}: {change.result} is listed again")
        elif change.call == "create":
            found = by_id.get(change.result)
            if found is None or found.name != change.subject or names[change.subject] != 1:
                yield Violation(broken=Broken.DIRECTORY, text=f"{change.key}: {names[change.subject]} agents")
        elif change.call == "begin":
            lives[change.subject].append(int(change.result))
        elif change.call == "update":
            last[change.subject] = change.result
    for agent_id, generations in lives.items():
        if generations != list(range(2, len(generations) + 2)) or by_id[agent_id].generation != generations[-1]:
            yield Violation(
                broken=Broken.DIRECTORY,
                text=f"{agent_id}: {len(generations)} lives were begun, it is at {by_id[agent_id].generation}",
            )
    for agent_id, provider in last.items():
        if by_id[agent_id].provider != provider:
            yield Violation(
                broken=Broken.DIRECTORY, text=f"{agent_id}: {provider} was answered, {by_id[agent_id].provider} stands"
            )


def audit_deleted(asked: Sequence[Asked]) -> Iterator[Violation]:
    """A deleted agent is known to nobody and let in by nobody, and its folder is gone."""
    for one in asked:
        if not one.ended or one.shown != GONE or one.sending != DELETED_REFUSAL:
            yield Violation(broken=Broken.UNDEAD, text=f"{one}")
        if (one.caller, one.reader) != (NOBODY, NOBODY) or one.folder:
            yield Violation(broken=Broken.NOT_ERASED, text=f"{one}")


async def reason_of(call: Awaitable[Any]) -> str:
    """Return the reason for which a call is refused, or "nothing"."""
    try:
        await call
    except FencepostError as error:
        return error.reason
    return "nothing"


async def ask_deleted(channels: Channels, sessions: Sessions, doomed: Doomed, living: str) -> Asked:
    """Ask the services about a deleted agent; `living` is the credential of one that lives."""
    return Asked(
        agent_id=doomed.agent,
        ended=await ends(sessions, doomed, within_s=0),
        shown=await reason_of(sessions.get_agent(sessions_pb2.GetAgentRequest(target=doomed.agent))),
        caller=await reason_of(Sessions(channels, doomed.token).get_caller()),
        reader=await reason_of(Mailbox(channels, doomed.token).receive(pb.ReceiveRequest(limit=1))),
        sending=await reason_of(
            Mailbox(channels, living).send(
                pb.SendRequest(target=doomed.agent, body="too late", idempotency_key=f"late {doomed.agent}")
            )
        ),
        folder=channels.home.agent_folder(doomed.agent).exists(),
    )


async def ends(sessions: Sessions, doomed: Doomed, *, within_s: float) -> bool:
    """Tell whether a deletion comes to its end in time, by asking for it again under its key."""
    clock = asyncio.get_running_loop().time
    until = clock() + within_s
    ask = sessions_pb2.DeleteAgentRequest(idempotency_key=doomed.key, agent_id=doomed.agent, confirm_name=doomed.name)
    while not (await sessions.delete_agent(ask)).finished:
        if clock() >= until:
            return False
        await asyncio.sleep(ASK_PAUSE_S)
    return True


async def listed(sessions: Sessions, project_id: str) -> list[Known]:
    """Return every agent of the project."""
    found: list[Known] = []
    token = ""
    while True:
        page = await sessions.list_agents(
            sessions_pb2.ListAgentsRequest(project_id=project_id, page_size=PAGE_SIZE, page_token=token)
        )
        found += [
            Known(agent_id=one.agent_id, name=one.name, generation=one.generation, provider=one.provider)
            for one in page.agents
        ]
        token = page.next_page_token
        if not token:
            return found


async def audit_credentials(
    channels: Channels, agents: Sequence[Known], first_tokens: Mapping[str, str]
) -> list[Violation]:
    """Every agent's file holds the token of its present life, for both services; a first life's token is fenced."""
    violations: list[Violation] = []
    for agent in agents:
        try:
            token = read_credential(channels.home.agent_credential(agent.agent_id))
            caller = await Sessions(channels, token).get_caller()
            await Mailbox(channels, token).describe()
        except FencepostError as error:
            violations.append(Violation(broken=Broken.DIRECTORY, text=f"{agent.name}: its token gives {error.reason}"))
            continue
        if (caller.agent.agent_id, caller.credential.generation) != (agent.agent_id, agent.generation):
            violations.append(
                Violation(
                    broken=Broken.DIRECTORY,
                    text=f"{agent.name} is at generation {agent.generation}, its token at"
                    f" {caller.credential.generation}",
                )
            )
    for agent in agents:
        if agent.generation == 1 or agent.agent_id not in first_tokens:
            continue
        zombie = Mailbox(channels, first_tokens[agent.agent_id])
        try:
            await zombie.send(
                pb.SendRequest(target=agent.agent_id, body="from an earlier life", idempotency_key="zombie")
            )
            reason = "nothing"
        except Refused as refused:
            reason = refused.reason
        except FencepostError as error:
            reason = error.reason
        if reason not in FENCED:
            violations.append(
                Violation(broken=Broken.DIRECTORY, text=f"{agent.name}: its first life was refused by {reason}")
            )
    return violations
