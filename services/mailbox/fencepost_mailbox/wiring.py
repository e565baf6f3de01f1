"""The composition root: the one place that knows every part of a running mailbox."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry

from fencepost.client import Channels, Sessions
from fencepost.home import Home
from fencepost.mailbox.v1 import (
    context_pb2,
    context_pb2_grpc,
    evidence_pb2,
    evidence_pb2_grpc,
    files_pb2,
    files_pb2_grpc,
    mailbox_pb2,
    mailbox_pb2_grpc,
    tasks_pb2,
    tasks_pb2_grpc,
)
from fencepost_kit import faults, logs
from fencepost_kit.clock import SYSTEM_CLOCK, Clock
from fencepost_kit.guard import guarded
from fencepost_kit.identity import CachedIdentify, UnusableCredential, read_token
from fencepost_kit.ids import IdMint, uuid_text
from fencepost_kit.metrics import RpcMetrics, StepMetrics, WriterMetrics, gauge, store_info
from fencepost_kit.refusal import Refusal
from fencepost_kit.serve import EXIT_FAILED, Server, ServeSettings
from fencepost_mailbox.context_servicer import RULES as CONTEXT_RULES
from fencepost_mailbox.context_servicer import ContextServicer
from fencepost_mailbox.directory import Mirror, SessionsPort
from fencepost_mailbox.erasure import Eraser
from fencepost_mailbox.events import EventWatch
from fencepost_mailbox.evidence_servicer import RULES as EVIDENCE_RULES
from fencepost_mailbox.evidence_servicer import EvidenceServicer
from fencepost_mailbox.file_servicer import RULES as FILE_RULES
from fencepost_mailbox.file_servicer import FilesServicer
from fencepost_mailbox.servicer import RULES, MailboxServicer
from fencepost_mailbox.sessions_link import SessionsLink
from fencepost_mailbox.settings import MailboxSettings
from fencepost_mailbox.statuses import STATUS_OF
from fencepost_mailbox.store.protocol import Applied, Store
from fencepost_mailbox.store.sqlite import SqliteStore
from fencepost_mailbox.sweeping import Sweeper
from fencepost_mailbox.task_servicer import RULES as TASK_RULES
from fencepost_mailbox.task_servicer import TasksServicer
from fencepost_mailbox.usecases.claim import Expiring, Restoring, Resuming
from fencepost_mailbox.usecases.follow import NotingReads
from fencepost_mailbox.usecases.outcome import publish_left
from fencepost_mailbox.usecases.ports import Ports
from fencepost_mailbox.usecases.tasks.steps import PassingTime
from fencepost_mailbox.waits import Waits, Wake
from fencepost_mailbox.work import WorkWatch

SERVICE: Final = "mailbox"
READS_REMEMBERED_MAX: Final = 100_000
CREDENTIAL_WAIT_MS_MAX: Final = 30_000
CREDENTIAL_LOOK_EVERY_MS: Final = 50

_log: Final = logs.get(__name__)
_descriptor: Final = mailbox_pb2.DESCRIPTOR.services_by_name["MailboxService"]
_task_descriptor: Final = tasks_pb2.DESCRIPTOR.services_by_name["TasksService"]
_context_descriptor: Final = context_pb2.DESCRIPTOR.services_by_name["ContextService"]
_evidence_descriptor: Final = evidence_pb2.DESCRIPTOR.services_by_name["EvidenceService"]
_file_descriptor: Final = files_pb2.DESCRIPTOR.services_by_name["FilesService"]


class Reads:
    """Who waits, and when each agent last read: asked by receipts, written to disk now and then."""

    def __init__(self, store: Store, waits: Waits) -> None:
        self._store = store
        self._waits = waits
        self._seen: dict[bytes, int] = {}
        self._unwritten: dict[bytes, int] = {}

    def waiting(self, agent_id: bytes) -> bool:
        """See ports.Signals."""
        return self._waits.waiting(agent_id)

    def note_read(self, agent_id: bytes, now_ms: int) -> None:
        """See ports.Signals."""
        self._remember(agent_id, now_ms)
        self._unwritten[agent_id] = now_ms

    def last_read_at_ms(self, agent_id: bytes) -> int:
        """See ports.Signals."""
        known = self._seen.get(agent_id)
        if known is None:
            known = self._store.read.last_read_at_ms(agent_id)
            self._remember(agent_id, known)
        return known

    def _remember(self, agent_id: bytes, at_ms: int) -> None:
        if len(self._seen) >= READS_REMEMBERED_MAX and agent_id not in self._seen:
            self._seen.clear()
        self._seen[agent_id] = at_ms

    async def write(self) -> None:
        """Write what was noted since; what is refused is kept for the next time."""
        reads = tuple(self._unwritten.items())
        if not reads:
            return
        await self._store.submit(NotingReads(reads=reads))
        for agent_id, at_ms in reads:
            if self._unwritten.get(agent_id) == at_ms:
                del self._unwritten[agent_id]


class Mailbox:
    """A running mailbox without its server: store, mirror, waits and their background work."""

    def __init__(
        self, *, home: Home, sessions: SessionsPort, settings: MailboxSettings, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._settings = settings
        self._clock = clock
        self.failed = asyncio.Event()
        self.steps: StepMetrics | None = None
        self.store = SqliteStore(home.database(SERVICE), on_commit=self._on_commit, on_fatal=self._on_fatal)
        self.waits = Waits(clock)
        self.work = WorkWatch(self.store, clock.now_ms)
        self.reads = Reads(self.store, self.waits)
        mint = IdMint(now_ms=clock.now_ms)
        self.eraser = Eraser(
            store=self.store, sessions=sessions, clock=clock, mint=mint, epoch=lambda: self.mirror.position.epoch
        )
        self.mirror = Mirror(
            store=self.store, sessions=sessions, clock=clock, mint=mint, on_closed=self.eraser.news.set
        )
        self.events = EventWatch(self.store, self.mirror)
        self.mirror.when_revoked(self._look_again)
        self.sweeper = Sweeper(store=self.store, clock=clock, called=self.mirror.called_at_ms)
        self.ports = Ports(store=self.store, directory=self.mirror, signals=self.reads, mint=mint, clock=clock)

    def _look_again(self) -> None:
        self.waits.look_again()
        self.work.look_again()
        self.events.mark()

    def _on_commit(self, applied: Sequence[Applied[Any]]) -> None:
        # Waits first, then the senders' receipts: a woken reader sees what is durable, a sender loses nothing by it.
        for one in applied:
            if one.wakes:
                self.waits.wake(one.wakes)
            if one.injected:
                self.waits.wake(one.injected, Wake.PROVIDER_CONTEXT)
            if one.work:
                self.work.mark(one.work)
            if self.steps is not None and (one.exposed or one.replied):
                self._note_steps(self.steps, one)
        self.events.mark()

    @staticmethod
    def _note_steps(steps: StepMetrics, applied: Applied[Any]) -> None:
        for record in applied.exposed:
            steps.exposed(record.record_id, admitted_at_ms=record.admitted_at_ms, at_ms=applied.at_ms)
        for record in applied.replied:
            steps.replied(record.record_id, admitted_at_ms=record.admitted_at_ms, at_ms=applied.at_ms)

    def tell(self, registry: CollectorRegistry) -> None:
        """Tell a registry what there is to tell. Before the store is opened."""
        self.steps = StepMetrics(registry=registry)
        WriterMetrics(service=SERVICE, registry=registry, writer=self.store.commits)
        waits, work, events = self.waits, self.work, self.events
        gauge(registry, "fencepost_waits_parked", "Calls that wait.", service=SERVICE, read=lambda: waits.parked)
        gauge(
            registry,
            "fencepost_watches_open",
            "Open watches.",
            service=SERVICE,
            read=lambda: work.watchers + events.watchers,
        )

    def _on_fatal(self, error: BaseException) -> None:
        _log.exception("commit_outcome_unknown", error)
        self.failed.set()

    def servicer(self) -> MailboxServicer:
        """Return what answers the RPCs."""
        return MailboxServicer(self.ports, waits=self.waits, work=self.work, events=self.events)

    def tasks_servicer(self) -> TasksServicer:
        """Return what answers the RPCs of tasks."""
        return TasksServicer(self.ports, waits=self.waits)

    def context_servicer(self) -> ContextServicer:
        """Return what answers the RPCs of shared context and project memory."""
        return ContextServicer(self.ports)

    def evidence_servicer(self) -> EvidenceServicer:
        """Return what answers the RPCs of evidence."""
        return EvidenceServicer(self.ports)

    def files_servicer(self) -> FilesServicer:
        """Return what answers the RPCs of file reservations."""
        return FilesServicer(self.ports)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open the store, follow the directory and do the background work until left."""
        await self.store.start()
        try:
            if self.store.restored:
                uncertain = await self.store.submit(Restoring(now_ms=self._clock.now_ms()))
                _log.warning("store_restored", claims_uncertain=uncertain)
            self.mirror.load()
            extended = await self.store.submit(Resuming(now_ms=self._clock.now_ms()))
            await self._publish()
            _log.info("store_open", newest_sequence=self.store.read.newest_sequence(), claims_extended=extended)
            async with asyncio.TaskGroup() as tasks:
                background = [
                    tasks.create_task(self.mirror.follow(self._clock.sleep)),
                    tasks.create_task(self.eraser.run(self._clock.sleep)),
                    tasks.create_task(self._every(self._settings.expire_every_ms, self._expire)),
                    tasks.create_task(self._every(self._settings.expire_every_ms, self._publish)),
                    tasks.create_task(self._every(self._settings.expire_every_ms, self.pass_time)),
                    tasks.create_task(self._every(self._settings.expire_every_ms, self.wake_again)),
                    tasks.create_task(self._every(self._settings.expire_every_ms, self.sweeper.drop_expired)),
                    tasks.create_task(self._every(self._settings.sweep_every_ms, self.sweeper.sweep)),
                    tasks.create_task(self._every(self._settings.expire_every_ms, self.sweeper.index)),
                    tasks.create_task(self._every(self._settings.note_reads_every_ms, self.reads.write)),
                ]
                try:
                    yield
                finally:
                    for task in background:
                        task.cancel()
            if not self.failed.is_set():
                await self._tolerating(self.reads.write)
        finally:
            await self.store.close()

    async def _every(self, every_ms: int, work: Callable[[], Awaitable[object]]) -> None:
        while True:
            await self._clock.sleep(every_ms / 1000)
            await self._tolerating(work)

    @staticmethod
    async def _tolerating(work: Callable[[], Awaitable[object]]) -> None:
        # Neither a full disk nor a full queue ends a process that can still be read from: the next round tries again.
        try:
            await work()
        except Refusal as error:
            if not error.may_resend:
                raise
            _log.warning("background_work_refused", reason=error.reason, cause=error.state.get("cause"))

    async def _expire(self) -> None:
        now_ms = self._clock.now_ms()
        if not self.store.read.claims_expired(now_ms):
            return
        expired = await self.store.submit(Expiring(now_ms=now_ms))
        if expired:
            _log.info("claims_expired", count=expired)

    async def pass_time(self) -> None:
        """Do to tasks what their deadlines say by now."""
        while self.store.read.tasks.any_due(now_ms := self._clock.now_ms()):
            passed = await self.store.submit(PassingTime(now_ms=now_ms))
            _log.info("task_deadlines_passed", count=passed)

    async def wake_again(self) -> None:
        """Tell dispatchers of agents that are to be woken again for what still stands."""
        self.work.look_for_rested()

    async def _publish(self) -> None:
        """Answer from what ended turns left recorded: a crash, or a refusal of the second step."""
        published = await publish_left(self.ports)
        if published:
            _log.info("outcomes_published", count=published)

    async def drain(self) -> None:
        """End parked waits and watches; what is being admitted completes."""
        self.waits.drain()
        self.work.drain()
        self.events.drain()


async def credential_made(home: Home) -> None:
    """Wait until sessions has made this service's credential.

    Raises:
        UnusableCredential: it is not there within CREDENTIAL_WAIT_MS_MAX, or not usable.
    """
    path = home.service_credential(SERVICE)
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


def _add_servicers(server: Server, mailbox: Mailbox) -> None:
    """Let the services of the mailbox answer behind one guard each; the caller is known to all alike."""
    identify = CachedIdentify(mailbox.mirror)
    observe = RpcMetrics(service=SERVICE, registry=server.registry)
    shared: dict[str, Any] = {
        "identify": identify,
        "statuses": STATUS_OF,
        "observe": observe,
        "gate": server.gate,
    }
    mailbox_pb2_grpc.add_MailboxServiceServicer_to_server(
        guarded(mailbox.servicer(), descriptor=_descriptor, rules=RULES, **shared), server.handlers
    )
    tasks_pb2_grpc.add_TasksServiceServicer_to_server(
        guarded(mailbox.tasks_servicer(), descriptor=_task_descriptor, rules=TASK_RULES, **shared), server.handlers
    )
    context_pb2_grpc.add_ContextServiceServicer_to_server(
        guarded(mailbox.context_servicer(), descriptor=_context_descriptor, rules=CONTEXT_RULES, **shared),
        server.handlers,
    )
    files_pb2_grpc.add_FilesServiceServicer_to_server(
        guarded(mailbox.files_servicer(), descriptor=_file_descriptor, rules=FILE_RULES, **shared), server.handlers
    )
    evidence_pb2_grpc.add_EvidenceServiceServicer_to_server(
        guarded(mailbox.evidence_servicer(), descriptor=_evidence_descriptor, rules=EVIDENCE_RULES, **shared),
        server.handlers,
    )


async def serve(home: Home, settings: MailboxSettings, stop: asyncio.Event) -> int:
    """Run the mailbox of a home until `stop` is set; returns the exit code.

    Raises:
        Refusal: it must not start here; nothing was changed.
    """
    drainer: list[Mailbox] = []

    async def drain() -> None:
        for mailbox in drainer:
            await mailbox.drain()

    server = Server(
        ServeSettings(
            home=home,
            service=SERVICE,
            full_names=tuple(
                one.full_name
                for one in (_descriptor, _task_descriptor, _context_descriptor, _file_descriptor, _evidence_descriptor)
            ),
            drain_ms=settings.drain_ms,
            reflection=settings.reflection,
            metrics_port=settings.metrics_port,
            listen=settings.listen,
        ),
        drain=drain,
    )
    async with Channels(home) as channels:
        await credential_made(home)
        link = SessionsLink(lambda: Sessions(channels, read_token(home.service_credential(SERVICE))))
        mailbox = Mailbox(home=home, sessions=link, settings=settings)
        drainer.append(mailbox)
        faults.refuse_unknown()
        mailbox.tell(server.registry)
        _add_servicers(server, mailbox)
        async with mailbox.running():
            store = mailbox.store
            store_info(server.registry, service=SERVICE, epoch=uuid_text(store.epoch), schema=store.schema_version)
            await server.start()
            try:
                server.mark_ready()
                await _first_of(stop.wait(), mailbox.failed.wait())
            finally:
                await server.stop()
        return EXIT_FAILED if mailbox.failed.is_set() else 0


async def _first_of(*waits: Any) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
