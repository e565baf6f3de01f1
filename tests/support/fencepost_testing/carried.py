"""A home whose agents run in the scripted program: sessions, mailbox and providers as processes of their own."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fencepost.client import Channels, Client, Identity, Mailbox, Providers, Sessions, Tasks
from fencepost.errors import FencepostError
from fencepost.home import MAILBOX, PROVIDERS, SESSIONS, Home, read_credential
from fencepost.mailbox.v1 import mailbox_pb2 as mailbox_pb
from fencepost.mailbox.v1 import tasks_pb2 as tasks_pb
from fencepost.providers.v1 import providers_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2 as sessions_pb
from fencepost_testing.processes import Services, short_home

WAIT_S_MAX: Final = 30.0
POLL_S: Final = 0.02
READY: Final = pb.RUNTIME_STATE_READY
# What comes before a provider's own limits in a test: nothing waits long.
QUICK: Final[Mapping[str, str]] = {"FENCEPOST_PROVIDERS_SWEEP_MS": "3600000"}


async def until(condition: Callable[[], Awaitable[Any]], what: str, *, within_s: float = WAIT_S_MAX) -> Any:
    """Poll until `condition` gives something true, and return it. A service that is away is asked again."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within_s
    last: object = None
    while True:
        try:
            if last := await condition():
                return last
        except FencepostError as error:
            last = error
        assert loop.time() < end, f"{what} did not happen within {within_s} s; last: {last!r}"
        await asyncio.sleep(POLL_S)


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A piece of work that entered a turn of the scripted program."""

    record_id: str
    turn_id: str
    mode: str
    generation: int


class Carried:
    """The home, spoken to as its operator and as its agents."""

    def __init__(self, services: Services, channels: Channels) -> None:
        self.services = services
        self.home = services.home
        self.channels = channels
        token = read_credential(self.home.operator_credential)
        self.sessions = Sessions(channels, token)
        self.mailbox = Mailbox(channels, token)
        self.providers = Providers(channels, token)
        self.project_id = ""
        self.ids: dict[str, str] = {}

    async def start(self, project: str = "work") -> None:
        """Create a project and a sender who lives by itself."""
        self._work = self.home.path / project
        self._work.mkdir()
        ensured = await self.sessions.ensure_project(
            sessions_pb.EnsureProjectRequest(
                idempotency_key=uuid.uuid4().hex,
                kind=sessions_pb.PROJECT_KIND_FOLDER,
                location=str(self._work),
            )
        )
        self.project_id = ensured.project.project_id
        await self.create("sender", provider="", desired=sessions_pb.DESIRED_STATE_UNSPECIFIED)

    async def create(
        self,
        name: str,
        *,
        provider: str = "scripted",
        desired: sessions_pb.DesiredState.ValueType = sessions_pb.DESIRED_STATE_ON,
        **launch: Any,
    ) -> str:
        """Create an agent with a workspace of its own; returns its UUID."""
        workspace = self._work / name
        workspace.mkdir()
        created = await self.sessions.create_agent(
            sessions_pb.CreateAgentRequest(
                idempotency_key=uuid.uuid4().hex,
                project_id=self.project_id,
                name=name,
                provider=provider,
                workspace=str(workspace),
                desired=desired,
                launch=sessions_pb.LaunchSettings(**launch),
            )
        )
        self.ids[name] = created.agent.agent_id
        return created.agent.agent_id

    async def want(self, name: str, desired: sessions_pb.DesiredState.ValueType, **changes: Any) -> None:
        """Say what a person wants of an agent."""
        await self.sessions.update_agent(
            sessions_pb.UpdateAgentRequest(
                idempotency_key=uuid.uuid4().hex, agent_id=self.ids[name], desired=desired, **changes
            )
        )

    def script(self, name: str, **script: Any) -> None:
        """Say what the scripted program of an agent does, from its next piece of work or start on."""
        folder = self.private(name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "script.tmp").write_text(json.dumps(script))
        (folder / "script.tmp").rename(folder / "script.json")

    async def runtime(self, name: str) -> pb.Runtime:
        """The agent's runtime."""
        return (await self.providers.get_runtime(self.ids[name])).runtime

    async def ready(self, name: str, *, after_generation: int = 0) -> pb.Runtime:
        """Wait until the agent's runtime is ready, of a later life than that."""

        async def look() -> pb.Runtime | None:
            found = await self.runtime(name)
            return found if found.state == READY and found.generation > after_generation else None

        try:
            found: pb.Runtime = await until(look, f"{name} being ready")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.services.log(PROVIDERS)}") from None
        return found

    async def status(self, name: str) -> sessions_pb.AgentStatus:
        """What was observed of the agent."""
        found = await self.sessions.get_agent(sessions_pb.GetAgentRequest(target=self.ids[name]))
        return found.agent.status

    @asynccontextmanager
    async def acting(self, name: str) -> AsyncIterator[Client]:
        """The agent itself, with the credential that it has now."""
        token = read_credential(self.home.agent_credential(self.ids[name]))
        yield _Acting(self.channels, token)

    async def request(self, target: str, body: str, *, sender: str = "sender") -> str:
        """Ask an agent to work; returns the request's id."""
        async with self.acting(sender) as client:
            return (await client.request(target, body)).request_id

    async def assign(self, target: str, *, sender: str = "sender", description: str = "do it") -> str:
        """Assign a task to an agent; returns its id."""
        ask = tasks_pb.AssignTaskRequest(
            to=target, description=description, acceptance="it is done", request_id=str(uuid.uuid4())
        )
        return (await self.tasks(sender).assign(ask)).change.task_id

    def tasks(self, name: str) -> Tasks:
        """The calls of tasks, made by an agent with the credential that it has now."""
        return Tasks(self.channels, read_credential(self.home.agent_credential(self.ids[name])))

    async def wake_ups(self, name: str) -> list[mailbox_pb.Record]:
        """Every wake-up of an agent that was ever taken, oldest first."""
        listed = await self.mailbox.list_records(
            mailbox_pb.ListRecordsRequest(agent_id=self.ids[name], direction=mailbox_pb.DIRECTION_INBOX)
        )
        return [one for one in reversed(listed.records) if one.kind == mailbox_pb.RECORD_KIND_WAKE]

    async def inform(self, target: str, body: str, *, sender: str = "sender") -> str:
        """Send information; returns its id."""
        async with self.acting(sender) as client:
            return (await client.send(target, body)).record_id

    async def explain(self, record_id: str) -> mailbox_pb.ExplainResponse:
        """Everything that is known of a record."""
        return await self.mailbox.explain(record_id)

    async def facts(self, record_id: str) -> list[str]:
        """The facts of a record in order."""
        return [fact.fact for fact in (await self.explain(record_id)).facts]

    async def answered(self, request_id: str) -> mailbox_pb.Record:
        """Wait for the answer to a request and return it."""

        async def look() -> str:
            return (await self.explain(request_id)).reply_id

        try:
            reply_id = await until(look, f"the answer to {request_id}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{await self.facts(request_id)}\n{self.services.log(PROVIDERS)}") from None
        return (await self.mailbox.get_record(reply_id)).record

    async def delivered(self, record_id: str, state: mailbox_pb.DeliveryState.ValueType) -> None:
        """Wait until a record has come that far."""

        async def look() -> bool:
            return (await self.explain(record_id)).record.delivery_state == state

        try:
            await until(look, f"{record_id} being {mailbox_pb.DeliveryState.Name(state)}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{await self.facts(record_id)}\n{self.services.log(PROVIDERS)}") from None

    def private(self, name: str) -> Path:
        """The scripted program's folder."""
        return self.home.agent_folder(self.ids[name]) / "scripted"

    def open_gate(self, name: str, gate: str) -> None:
        """Let a turn that waits for a gate go on."""
        folder = self.private(name) / "gates"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / gate).touch()

    def executions(self, name: str) -> list[Ran]:
        """Every piece of work that ever entered a turn of the agent."""
        try:
            lines = (self.private(name) / "executions.log").read_text().splitlines()
        except FileNotFoundError:
            return []
        split = (line.split() for line in lines)
        return [
            Ran(record_id=record, turn_id=turn, mode=mode, generation=int(generation))
            for record, turn, mode, generation, *_ in split
        ]

    async def executed(self, name: str, record_id: str) -> Ran:
        """Wait until a record has entered a turn."""

        async def look() -> Ran | None:
            return next((ran for ran in self.executions(name) if ran.record_id == record_id), None)

        try:
            found: Ran = await until(look, f"{record_id} entering a turn")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.services.log(PROVIDERS)}") from None
        return found


class _Acting(Client):
    """An agent's client on channels of somebody else."""

    def __init__(self, channels: Channels, token: str) -> None:
        self.channels = channels
        self.identity = Identity(token=token, agent_id=None, source="test")
        self.mailbox = Mailbox(channels, token)
        self.sessions = Sessions(channels, token)


@asynccontextmanager
async def a_carrying_home(*, env: Mapping[str, str] | None = None) -> AsyncIterator[Carried]:
    """A home with its three services ready, and nobody but a sender in it."""
    with short_home() as home:
        async with Services(home, env={**QUICK, **(env or {})}) as services:
            try:
                await services.start(SESSIONS, MAILBOX, PROVIDERS)
                async with Channels(Home(home.text)) as channels:
                    carried = Carried(services, channels)
                    await carried.start()
                    yield carried
            finally:
                services.print_logs()
