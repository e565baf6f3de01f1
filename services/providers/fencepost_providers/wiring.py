"""The composition root: the one place that knows every part of a running carrier."""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from prometheus_client import CollectorRegistry

from fencepost import __version__
from fencepost.client import Channels, Mailbox, Sessions
from fencepost.home import PROVIDERS, Home
from fencepost.providers.v1 import providers_pb2, providers_pb2_grpc
from fencepost_kit import faults, logs
from fencepost_kit.clock import SYSTEM_CLOCK, Clock
from fencepost_kit.guard import Gate, guarded
from fencepost_kit.identity import CachedIdentify, UnusableCredential, read_token
from fencepost_kit.ids import uuid_text
from fencepost_kit.metrics import RpcMetrics, WriterMetrics, gauge, store_info
from fencepost_kit.serve import EXIT_FAILED, Server, ServeSettings
from fencepost_providers.adapters.registry import Adapters, installed
from fencepost_providers.directory import Directory
from fencepost_providers.domain.lifecycle import Phase
from fencepost_providers.integrations import Integrations
from fencepost_providers.keeper import Parts
from fencepost_providers.links import MailboxPort, SessionsPort, TasksPort
from fencepost_providers.mailbox_link import MailboxLink
from fencepost_providers.metrics import Told
from fencepost_providers.outbox import Outbox
from fencepost_providers.roster import Roster
from fencepost_providers.servicer import RULES, ProvidersServicer
from fencepost_providers.sessions_link import SessionsLink
from fencepost_providers.settings import Settings
from fencepost_providers.store.protocol import Dispatcher
from fencepost_providers.store.sqlite import SqliteStore
from fencepost_providers.tasks_link import TasksLink
from fencepost_providers.translate import STATUS_OF
from fencepost_providers.usecases.ports import Ports
from fencepost_providers.verifications import Verifications

SERVICE: Final = providers_pb2.DESCRIPTOR.services_by_name["ProvidersService"]
CREDENTIAL_WAIT_MS_MAX: Final = 30_000
CREDENTIAL_LOOK_EVERY_MS: Final = 50

_log: Final = logs.get(__name__)

# Makes the links once the store can say who dispatches.
Links = Callable[[Callable[[], Dispatcher]], tuple[SessionsPort, MailboxPort, TasksPort]]


class Carrying:
    """A running carrier without its server."""

    def __init__(
        self,
        *,
        home: Home,
        links: Links,
        adapters: Adapters,
        settings: Settings,
        registry: CollectorRegistry,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.failed = asyncio.Event()
        self.store = SqliteStore(home.database(PROVIDERS), new_id=uuid.uuid4().bytes, on_fatal=self._on_fatal)
        self.told = Told(registry)
        self._clock = clock
        self._settings = settings
        sessions, mailbox, tasks = links(lambda: self.store.dispatcher)
        self.outbox = Outbox(store=self.store, mailbox=mailbox, clock=clock)
        self.integrations = Integrations(store=self.store, tasks=tasks, clock=clock, environ=os.environ)
        self.roster = Roster(
            Parts(
                home=home,
                store=self.store,
                sessions=sessions,
                mailbox=mailbox,
                outbox=self.outbox,
                adapters=adapters,
                clock=clock,
                told=self.told,
                recovered=asyncio.Event(),
                owners_changed=self._owners_changed,
            ),
            sweep_ms=settings.sweep_ms,
        )
        self.directory = Directory(
            sessions=sessions,
            clock=clock,
            on_change=self.roster.note_agent,
            on_removed=self.roster.note_removed,
            # The lives, generations and leases of this process are another directory's: the next start asks anew.
            on_other_epoch=self.failed.set,
        )
        self.roster.directory = self.directory
        self.ports = Ports(
            home=home,
            store=self.store,
            directory=self.directory,
            roster=self.roster,
            outbox=self.outbox,
            integrations=self.integrations,
            verifications=Verifications(tasks=tasks, environ=os.environ),
            adapters=adapters,
            clock=clock,
            version=__version__,
        )
        self._tell(registry)

    def _owners_changed(self) -> None:
        self.roster.owners_changed()

    def _on_fatal(self, error: BaseException) -> None:
        _log.exception("commit_outcome_unknown", error)
        self.failed.set()

    def _tell(self, registry: CollectorRegistry) -> None:
        roster, outbox = self.roster, self.outbox
        WriterMetrics(service=PROVIDERS, registry=registry, writer=self.store.commits)
        gauge(
            registry,
            "fencepost_watches_open",
            "Open watches.",
            service=PROVIDERS,
            read=lambda: sum(keeper.rows.watchers for keeper in list(roster.keepers)),
        )
        gauge(
            registry,
            "fencepost_runtimes_ready",
            "Runtimes that are ready.",
            service=PROVIDERS,
            read=lambda: roster.in_phase(Phase.READY),
        )
        gauge(registry, "fencepost_outbox_rows", "Rows not acknowledged.", service=PROVIDERS, read=lambda: len(outbox))
        gauge(
            registry, "fencepost_swept", "Work that only the sweep found.", service=PROVIDERS, read=lambda: roster.swept
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open the store, take up what was left, and keep everybody until left; then stop and join all."""
        await self.store.start()
        try:
            await self.outbox.load()
            work = (
                self.directory.follow(self._clock.sleep),
                self.roster.recover(),
                self.integrations.recover(),
                self.roster.follow_work(),
                self.roster.tell_owners(),
                self.roster.sweep(),
                self.roster.forget(),
            )
            async with asyncio.TaskGroup() as tasks:
                background = [tasks.create_task(one) for one in work]
                try:
                    yield
                finally:
                    try:
                        await asyncio.gather(self.roster.stop(), self.integrations.stop())
                    finally:
                        for task in background:
                            task.cancel()
        finally:
            await self.outbox.close()
            await self.store.close()

    async def drain(self) -> None:
        """End watches and attachments; runtimes are stopped and joined."""
        for keeper in list(self.roster.keepers):
            keeper.rows.close()
        await asyncio.gather(self.roster.stop(), self.integrations.stop())

    def register(self, server: Any, gate: Gate | None, registry: CollectorRegistry) -> None:
        """Give a grpc.aio server the guarded service."""
        servicer = guarded(
            ProvidersServicer(self.ports),
            descriptor=SERVICE,
            rules=RULES,
            identify=CachedIdentify(self.directory),
            statuses=STATUS_OF,
            observe=RpcMetrics(service=PROVIDERS, registry=registry),
            gate=gate,
        )
        providers_pb2_grpc.add_ProvidersServiceServicer_to_server(servicer, server)


async def credential_made(home: Home) -> None:
    """Wait until sessions has made this service's credential.

    Raises:
        UnusableCredential: it is not there within CREDENTIAL_WAIT_MS_MAX, or not usable.
    """
    path = home.service_credential(PROVIDERS)
    deadline = SYSTEM_CLOCK.monotonic() + CREDENTIAL_WAIT_MS_MAX / 1000
    while True:
        try:
            read_token(path)
        except UnusableCredential:
            if path.exists() or SYSTEM_CLOCK.monotonic() >= deadline:
                raise
        else:
            return
        await asyncio.sleep(CREDENTIAL_LOOK_EVERY_MS / 1000)


def links_over(channels: Channels, home: Home) -> Links:
    """Return what makes the links over gRPC, with the credential that the home holds at each call that needs it."""

    def token() -> str:
        return read_token(home.service_credential(PROVIDERS))

    def make(dispatcher: Callable[[], Dispatcher]) -> tuple[SessionsPort, MailboxPort, TasksPort]:
        return (
            SessionsLink(lambda: Sessions(channels, token())),
            MailboxLink(lambda: Mailbox(channels, token()), dispatcher),
            TasksLink(channels, token),
        )

    return make


async def serve(home: Home, settings: Settings, stop: asyncio.Event) -> int:
    """Run the carrier of a home until `stop` is set; returns the exit code.

    Raises:
        Refusal: it must not start here; nothing was changed.
    """
    running: list[Carrying] = []

    async def drain() -> None:
        for carrying in running:
            await carrying.drain()

    server = Server(
        ServeSettings(
            home=home,
            service=PROVIDERS,
            full_names=(SERVICE.full_name,),
            drain_ms=settings.drain_ms,
            reflection=settings.reflection,
            metrics_port=settings.metrics_port,
        ),
        drain=drain,
    )
    async with Channels(home) as channels:
        await credential_made(home)
        adapters = installed()
        carrying = Carrying(
            home=home,
            links=links_over(channels, home),
            adapters=adapters,
            settings=settings,
            registry=server.registry,
        )
        running.append(carrying)
        faults.refuse_unknown()
        carrying.register(server.grpc, server.gate, server.registry)
        async with carrying.running():
            dispatcher = carrying.store.dispatcher
            _log.info("dispatcher", incarnation=dispatcher.incarnation, adapters=list(adapters.names))
            store_info(
                server.registry,
                service=PROVIDERS,
                epoch=uuid_text(dispatcher.dispatcher_id),
                schema=carrying.store.schema_version,
            )
            await server.start()
            try:
                server.mark_ready()
                await _first_of(stop.wait(), carrying.failed.wait())
            finally:
                await server.stop()
        return EXIT_FAILED if carrying.failed.is_set() else os.EX_OK


async def _first_of(*waits: Any) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
