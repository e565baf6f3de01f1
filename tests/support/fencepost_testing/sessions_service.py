"""sessions in this process on a real socket, a real home and a real database, with a clock that the test moves."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from fencepost.errors import FencepostError, Refused, error_of
from fencepost.home import SESSIONS, Home, read_credential
from fencepost.sessions.v1 import sessions_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2_grpc
from fencepost_kit.identity import fingerprint
from fencepost_sessions.credential_files import HomeCredentialFiles
from fencepost_sessions.tool_files import HomeToolFiles
from fencepost_sessions.wiring import Parts, build, register
from fencepost_testing.clock import VirtualClock

CALL_S_MAX = 5.0


class As:
    """The service as one caller: every RPC by name, answers as they are, failures as FencepostError."""

    def __init__(self, stub: Any, token: str | None) -> None:
        self._stub = stub
        self._metadata = None if token is None else (("authorization", f"Bearer {token}"),)

    async def __call__(self, method: str, request: Any) -> Any:
        call = getattr(self._stub, method)(request, metadata=self._metadata, timeout=CALL_S_MAX)
        try:
            if hasattr(call, "read"):
                return [answer async for answer in call]
            return await call
        except grpc.aio.AioRpcError as error:
            raise error_of(error) from error

    def watch(self, request: pb.WatchDirectoryRequest) -> Any:
        """An open watch; read() gives the next step."""
        return self._stub.WatchDirectory(request, metadata=self._metadata)


class Running:
    """One life after another of the service over the same home."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.clock = VirtualClock()
        self.fatal: list[BaseException] = []
        self._parts: Parts | None = None
        self._server: grpc.aio.Server | None = None
        self._channel: grpc.aio.Channel | None = None

    @property
    def parts(self) -> Parts:
        assert self._parts is not None
        return self._parts

    async def start(self) -> None:
        self.home.prepare()
        files = HomeCredentialFiles(self.home)
        parts = build(
            self.home.database(SESSIONS), files, HomeToolFiles(self.home), on_fatal=self.fatal.append, clock=self.clock
        )
        await parts.open()
        self._parts = parts
        self._server = grpc.aio.server()
        register(parts, self._server)
        address = f"unix:{self.home.socket(SESSIONS)}"
        self._server.add_insecure_port(address)
        await self._server.start()
        self._channel = grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])

    async def stop(self) -> None:
        if self._parts is None:
            return
        await self._parts.drain()
        if self._channel is not None:
            await self._channel.close()
        if self._server is not None:
            await self._server.stop(None)
        await self._parts.close()
        self._parts = None

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    @property
    def channel(self) -> grpc.aio.Channel:
        assert self._channel is not None
        return self._channel

    def with_token(self, token: str | None) -> As:
        return As(sessions_pb2_grpc.SessionsServiceStub(self.channel), token)

    @property
    def operator(self) -> As:
        return self.with_token(read_credential(self.home.operator_credential))

    def service(self, name: str = "mailbox") -> As:
        return self.with_token(read_credential(self.home.service_credential(name)))

    def token_of(self, agent: pb.Agent) -> str:
        return read_credential(self.home.agent_credential(agent.agent_id))

    def agent(self, agent: pb.Agent) -> As:
        return self.with_token(self.token_of(agent))

    async def project(self, location: str = "/srv/project") -> pb.Project:
        request = pb.EnsureProjectRequest(idempotency_key=key(), kind=pb.PROJECT_KIND_FOLDER, location=location)
        return (await self.operator("EnsureProject", request)).project  # type: ignore[no-any-return]

    async def create(self, name: str, project: pb.Project | None = None, **fields: Any) -> pb.Agent:
        place = project or await self.project()
        request = pb.CreateAgentRequest(idempotency_key=key(), project_id=place.project_id, name=name, **fields)
        return (await self.operator("CreateAgent", request)).agent  # type: ignore[no-any-return]

    async def begin(self, agent: pb.Agent, **fields: Any) -> pb.BeginGenerationResponse:
        request = pb.BeginGenerationRequest(idempotency_key=key(), agent_id=agent.agent_id, **fields)
        return await self.operator("BeginGeneration", request)  # type: ignore[no-any-return]

    async def credential_id(self, token: str) -> str:
        request = pb.LookupCredentialRequest(token_sha256=fingerprint(token))
        return (await self.service()("LookupCredential", request)).credential.credential_id  # type: ignore[no-any-return]


def key() -> str:
    return uuid.uuid4().hex


async def refusal_of(call: Awaitable[Any]) -> Refused:
    """Return the refusal in which a call must end."""
    with pytest.raises(FencepostError) as ended:
        await call
    assert isinstance(ended.value, Refused), f"an outcome that is no refusal: {ended.value!r}"
    return ended.value


async def until(condition: Callable[[], bool], seconds: float = CALL_S_MAX) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in another process or task, without an event
            await asyncio.sleep(0.002)
