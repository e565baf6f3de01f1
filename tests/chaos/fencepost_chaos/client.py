"""A client process of the chaos run: python client.py CONFIGURATION.

Says "ready" on standard output, then obeys lines on standard input: "go", "stop", "drain", "end", each answered by one
line when it is done. It ends with its input, whatever happens.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from fencepost_chaos.deleter import Deleter
from fencepost_chaos.faces import GrpcFace, RecordedMailbox, RecordedSessions, ShimFace
from fencepost_chaos.history import Log
from fencepost_chaos.hosts import Dispatcher, Operator
from fencepost_chaos.laborers import STEPS, Laborer, RecordedTasks
from fencepost_chaos.workload import Agent, Peer

from fencepost.client import Budgets, Channels
from fencepost.home import Home, read_credential

LOOK_PAUSE_S: Final = 0.5


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """What a client process is told by its argument."""

    kind: str  # grpc | mcp | tasks | hosts
    name: str
    home: str
    history: str
    seed: str
    # The agents of the run; the first is this client's own where it is one. For tasks: all that it is.
    agents: tuple[Peer, ...]
    # For hosts: agents whose requests are claimed, and those that live many lives.
    claimable: tuple[Peer, ...] = ()
    victims: tuple[Peer, ...] = ()
    project_id: str = ""
    # How long it gives the mailbox to answer a call; 0 for as long as the library does.
    call_ms: int = 0

    def text(self) -> str:
        """Return it as an argument."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what an argument says."""
        values: dict[str, Any] = json.loads(text)
        for name in ("agents", "claimable", "victims"):
            values[name] = tuple(Peer(**peer) for peer in values[name])
        return cls(**values)


async def _lines() -> AsyncIterator[str]:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line.decode().strip()


def _tell(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


class _AgentPart:
    """An agent with its tasks."""

    def __init__(self, agent: Agent, tasks: asyncio.TaskGroup) -> None:
        self._agent = agent
        self._tasks = tasks
        self._sending: asyncio.Task[None] | None = None

    async def go(self) -> list[asyncio.Task[None]]:
        self._sending = self._tasks.create_task(self._agent.send())
        return [self._sending, *(self._tasks.create_task(part) for part in self._agent.parts())]

    async def stop(self) -> None:
        self._agent.stop()
        assert self._sending is not None
        await self._sending

    async def drain(self) -> None:
        await self._agent.drain()


class _HostsPart:
    """The dispatcher and the operators with their tasks."""

    def __init__(self, parts: list[Dispatcher | Operator], tasks: asyncio.TaskGroup) -> None:
        self._parts = parts
        self._tasks = tasks
        self._running: list[asyncio.Task[None]] = []

    async def go(self) -> list[asyncio.Task[None]]:
        self._running = [self._tasks.create_task(part.run()) for part in self._parts]
        return self._running

    async def stop(self) -> None:
        for part in self._parts:
            part.stop()
        await asyncio.gather(*self._running)

    async def drain(self) -> None:
        """Nothing is read here."""


class _TasksPart:
    """Agents that work on tasks."""

    def __init__(self, laborers: list[Laborer], tasks: asyncio.TaskGroup) -> None:
        self._laborers = laborers
        self._tasks = tasks
        self._running: list[asyncio.Task[None]] = []

    async def go(self) -> list[asyncio.Task[None]]:
        self._running = [self._tasks.create_task(one.run(STEPS[one.name])) for one in self._laborers]
        return self._running

    async def stop(self) -> None:
        for laborer in self._laborers:
            laborer.stop()
        await asyncio.gather(*self._running)

    async def drain(self) -> None:
        """Nothing is read here."""


async def _obey(part: _AgentPart | _HostsPart | _TasksPart, others: list[asyncio.Task[None]]) -> None:
    _tell("ready")
    try:
        async for line in _lines():
            match line:
                case "go":
                    others += await part.go()
                case "stop":
                    await part.stop()
                case "drain":
                    await part.drain()
                case _:
                    break
            _tell(line)
    finally:
        for task in others:
            task.cancel()


async def _look_around(face: ShimFace) -> None:
    while True:
        await face.look_around()
        await asyncio.sleep(LOOK_PAUSE_S)


def _agent(configuration: Configuration, face: GrpcFace | ShimFace) -> Agent:
    own, *peers = configuration.agents
    return Agent(name=own.name, face=face, peers=peers, seed=configuration.seed)


async def _grpc_face(configuration: Configuration, own: Peer, channels: Channels, log: Log) -> GrpcFace:
    token = read_credential(channels.home.agent_credential(own.agent_id))
    budgets = Budgets(call_ms=configuration.call_ms) if configuration.call_ms else None
    mailbox = RecordedMailbox(channels, token, client=configuration.name, log=log, budgets=budgets)
    face = GrpcFace(client=configuration.name, agent=own.agent_id, mailbox=mailbox, log=log, seed=configuration.seed)
    await face.open()
    return face


async def _hosts(configuration: Configuration, channels: Channels, log: Log) -> list[Dispatcher | Operator]:
    name, seed, home = configuration.name, configuration.seed, channels.home
    faces = [(peer, await _grpc_face(configuration, peer, channels, log)) for peer in configuration.claimable]
    service = RecordedMailbox(channels, read_credential(home.service_credential("providers")), client=name, log=log)
    person = read_credential(home.operator_credential)
    parts: list[Dispatcher | Operator] = [
        Dispatcher(name=f"{name}-dispatcher", mailbox=service, faces=faces, log=log, seed=seed)
    ]
    for victim in configuration.victims:
        own = f"{name}-{victim.name}"
        sessions = RecordedSessions(channels, person, client=name, log=log)
        deleter = Deleter(name=own, sessions=sessions, channels=channels, senders=faces, log=log, seed=seed)
        parts.append(
            Operator(
                name=own,
                sessions=sessions,
                mailbox=RecordedMailbox(channels, person, client=name, log=log),
                deleter=deleter,
                victim=victim,
                project_id=configuration.project_id,
                log=log,
                seed=seed,
            )
        )
    return parts


def _laborers(configuration: Configuration, channels: Channels, log: Log) -> list[Laborer]:
    laborers = []
    for peer in configuration.agents:
        token = read_credential(channels.home.agent_credential(peer.agent_id))
        tasks = RecordedTasks(channels, token, client=configuration.name, log=log)
        laborers.append(Laborer(name=peer.name, agent=peer.agent_id, tasks=tasks, log=log, seed=configuration.seed))
    return laborers


async def main(configuration: Configuration, log: Log) -> None:
    """Be one client until told to end."""
    async with Channels(Home(configuration.home)) as channels, asyncio.TaskGroup() as tasks:
        match configuration.kind:
            case "grpc":
                face = await _grpc_face(configuration, configuration.agents[0], channels, log)
                await _obey(_AgentPart(_agent(configuration, face), tasks), [])
            case "mcp":
                own = configuration.agents[0]
                shim = await ShimFace.spawn(client=configuration.name, agent=own.agent_id, home=channels.home, log=log)
                looking = tasks.create_task(_look_around(shim))
                try:
                    await _obey(_AgentPart(_agent(configuration, shim), tasks), [looking])
                finally:
                    await shim.close()
            case "tasks":
                await _obey(_TasksPart(_laborers(configuration, channels, log), tasks), [])
            case _:
                await _obey(_HostsPart(await _hosts(configuration, channels, log), tasks), [])


if __name__ == "__main__":
    told = Configuration.parse(sys.argv[1])
    with Path(told.history).open("w", encoding="utf-8") as events:
        asyncio.run(main(told, Log(events)))
