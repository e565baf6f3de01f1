"""The composition root: everything that sessions is made of, put together once."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from fencepost import __version__
from fencepost.home import SESSIONS, Home
from fencepost.sessions.v1 import sessions_pb2, sessions_pb2_grpc
from fencepost_kit import identity, logs
from fencepost_kit.clock import SYSTEM_CLOCK, Clock
from fencepost_kit.guard import Gate, guarded
from fencepost_kit.ids import IdMint, uuid_text
from fencepost_kit.metrics import RpcMetrics, WriterMetrics, gauge, store_info
from fencepost_kit.serve import EXIT_FAILED, Server, ServeSettings
from fencepost_sessions.credential_files import HomeCredentialFiles
from fencepost_sessions.servicer import RULES, SessionsServicer
from fencepost_sessions.settings import Settings
from fencepost_sessions.store.sqlite import SqliteStore
from fencepost_sessions.tool_files import HomeToolFiles
from fencepost_sessions.translate import STATUS_OF, caller_of_credential
from fencepost_sessions.usecases.bells import Bells
from fencepost_sessions.usecases.followers import Followers
from fencepost_sessions.usecases.identify import holder_of
from fencepost_sessions.usecases.lease_time import LeaseTime
from fencepost_sessions.usecases.open_directory import open_directory
from fencepost_sessions.usecases.ports import Ports
from fencepost_sessions.usecases.tokens import CredentialFiles, Tokens
from fencepost_sessions.usecases.tools_shown import ToolFiles, ToolsShown

SERVICE: Final = sessions_pb2.DESCRIPTOR.services_by_name["SessionsService"]

_log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What runs, with the store behind it. open() before the first call, close() after the last."""

    store: SqliteStore
    ports: Ports

    async def open(self) -> None:
        """Open the database and make credentials and names as they have to be.

        Raises:
            Refusal: the database is in use, unusable, or of a newer version.
        """
        await self.store.start()
        await open_directory(self.ports)

    async def drain(self) -> None:
        """End watches and carry what was begun to its end."""
        self.ports.bells.close()
        await self.ports.tokens.join()

    async def close(self) -> None:
        """Close the database."""
        await self.store.close()


def build(
    database: Path,
    files: CredentialFiles,
    tool_files: ToolFiles,
    *,
    on_fatal: Callable[[BaseException], None],
    clock: Clock = SYSTEM_CLOCK,
) -> Parts:
    """Put the service together without touching the disk. Inside a running loop."""
    bells = Bells()
    store = SqliteStore(database, new_epoch=uuid.uuid4().bytes, on_commit=bells.ring, on_fatal=on_fatal)
    new_id = IdMint(now_ms=clock.now_ms).new
    tokens = Tokens(
        store=store,
        files=files,
        clock=clock,
        new_id=new_id,
        mint=identity.mint_token,
        fingerprint=identity.fingerprint,
    )
    ports = Ports(
        store=store,
        clock=clock,
        lease_time=LeaseTime(clock),
        new_id=new_id,
        tokens=tokens,
        tools_shown=ToolsShown(store=store, files=tool_files),
        bells=bells,
        followers=Followers(),
        version=__version__,
    )
    return Parts(store=store, ports=ports)


def register(parts: Parts, server: object, gate: Gate | None = None, registry: CollectorRegistry | None = None) -> None:
    """Give a grpc.aio server the guarded service, and a registry what there is to tell."""
    told = CollectorRegistry() if registry is None else registry
    WriterMetrics(service=SESSIONS, registry=told, writer=parts.store.commits)
    gauge(told, "fencepost_watches_open", "Open watches.", service=SESSIONS, read=lambda: parts.ports.bells.count)
    servicer = guarded(
        SessionsServicer(parts.ports),
        descriptor=SERVICE,
        rules=RULES,
        identify=identity.CachedIdentify(_Holders(parts)),
        statuses=STATUS_OF,
        observe=RpcMetrics(service=SESSIONS, registry=told),
        gate=gate,
    )
    sessions_pb2_grpc.add_SessionsServiceServicer_to_server(servicer, server)  # type: ignore[arg-type]


class _Holders:
    """Who holds which token, as the store says now."""

    def __init__(self, parts: Parts) -> None:
        self._store = parts.store

    def known(self, token_sha256: bytes) -> identity.Caller | None:
        """See CallersByToken. The store says so itself, and at once: nothing is told besides."""
        del token_sha256
        return None

    async def identify(self, token_sha256: bytes) -> identity.Caller:
        """See CallersByToken."""
        return caller_of_credential(holder_of(self._store, token_sha256))


async def serve(home: Home, settings: Settings, stop: asyncio.Event) -> int:
    """Serve a home until `stop` is set or the disk leaves an outcome unknown; return the exit code.

    Raises:
        Refusal: nothing was started (another owner, an unusable home or database).
    """
    failed: list[BaseException] = []

    def on_fatal(error: BaseException) -> None:
        # What is on disk can only be told by opening it again: say so, end, and let the compose start us anew.
        _log.exception("outcome_unknown", error)
        failed.append(error)
        stop.set()

    parts = build(home.database(SESSIONS), HomeCredentialFiles(home), HomeToolFiles(home), on_fatal=on_fatal)
    server = Server(
        ServeSettings(
            home=home,
            service=SESSIONS,
            full_names=(SERVICE.full_name,),
            drain_ms=settings.drain_ms,
            reflection=settings.reflection,
            metrics_port=settings.metrics_port,
            listen=settings.listen,
        ),
        drain=parts.drain,
    )
    register(parts, server.handlers, server.gate, server.registry)
    # The lock of the socket comes first: a second process is told whose home this is before anything is touched.
    await server.start()
    try:
        await parts.open()
        epoch = parts.store.read(lambda reading: reading.directory()).epoch
        store_info(server.registry, service=SESSIONS, epoch=uuid_text(epoch), schema=parts.store.schema_version)
        server.mark_ready()
        await stop.wait()
    finally:
        try:
            await server.stop()
        finally:
            await parts.close()
    return EXIT_FAILED if failed else os.EX_OK
