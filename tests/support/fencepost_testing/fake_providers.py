"""Sessions that know one agent, and providers that interrupt it as scripted, served over real Unix sockets."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import grpc.aio

from fencepost.home import PROVIDERS, SESSIONS, Home
from fencepost.providers.v1 import providers_pb2 as pb
from fencepost.providers.v1.providers_pb2_grpc import ProvidersServiceServicer, add_ProvidersServiceServicer_to_server
from fencepost.sessions.v1 import sessions_pb2 as sessions
from fencepost.sessions.v1.sessions_pb2_grpc import SessionsServiceServicer, add_SessionsServiceServicer_to_server
from fencepost_testing.fake_mailbox import Script


class _Sessions(SessionsServiceServicer):
    def __init__(self, agent: sessions.Agent) -> None:
        self.agent = agent

    async def GetAgent(self, request: Any, context: Any) -> sessions.GetAgentResponse:
        return sessions.GetAgentResponse(agent=self.agent)


class FakeProviders(ProvidersServiceServicer):
    """`answer` is what an interruption comes to, `scripts` what is done before."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.agent = sessions.Agent(agent_id="u-bob", name="bob", desired=sessions.DESIRED_STATE_ON)
        self.answer = pb.InterruptTurnResponse()
        self.asked: list[pb.InterruptTurnRequest] = []
        self.scripts: deque[Script] = deque()
        self.arrived = asyncio.Event()
        self._servers: dict[str, grpc.aio.Server] = {}

    async def start(self) -> None:
        await self._serve(PROVIDERS, add_ProvidersServiceServicer_to_server, self)
        await self._serve(SESSIONS, add_SessionsServiceServicer_to_server, _Sessions(self.agent))  # type: ignore[abstract]

    async def _serve(self, name: str, add: Any, servicer: Any) -> None:
        server = grpc.aio.server()
        add(servicer, server)
        address = f"unix:{self.home.run}/{name}.sock"
        assert server.add_insecure_port(address)
        await server.start()
        self.home.address(name).write_text(address)
        self._servers[name] = server

    async def stop(self) -> None:
        for name in list(self._servers):
            await self.stop_one(name)

    async def stop_one(self, name: str) -> None:
        """End one of the two; its address stays published."""
        await self._servers.pop(name).stop(None)

    async def InterruptTurn(self, request: Any, context: Any) -> pb.InterruptTurnResponse:
        self.asked.append(request)
        self.arrived.set()
        if self.scripts:
            # The script of a mailbox's call: it uses nothing of the server that it is given.
            await self.scripts.popleft()(self, request, context)  # type: ignore[arg-type]
        return self.answer
