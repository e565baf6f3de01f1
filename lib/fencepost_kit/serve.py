"""A gRPC server on a Unix socket of its own, and the life of the process around it.

Promises: one server per service and home (a lock is held before anything is bound); the socket is 0600 in a 0700
folder from the first moment at which it can be reached; the address is published only once it answers; nothing of
another owner is changed or removed. Refuses, before it changes anything: a socket that somebody else serves, a home
that is unsafe, not writable, or whose socket paths are too long.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import stat
import struct
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import uvloop
from grpc_health.v1 import health_pb2_grpc

from fencepost.errors import Refused
from fencepost.home import Home
from fencepost_kit import faults, logs
from fencepost_kit.exposition import Exposition
from fencepost_kit.files import HomeRefused, OwnerLock, home_refusals, write_private
from fencepost_kit.guard import Gate
from fencepost_kit.health import Health
from fencepost_kit.launch import PARENT_VARIABLE
from fencepost_kit.metrics import gauge, new_registry
from fencepost_kit.mutual_tls import TlsFront
from fencepost_kit.reflection import Reflection
from fencepost_kit.refusal import Refusal, StartRefused

MESSAGE_BYTES_MAX: Final = 2 * 1024 * 1024
METADATA_BYTES_MAX: Final = 16 * 1024
STREAMS_PER_CONNECTION_MAX: Final = 4096
KEEPALIVE_MS: Final = 30_000
KEEPALIVE_ANSWER_MS_MAX: Final = 10_000
PING_INTERVAL_MS_MIN: Final = 5_000

SERVER_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_metadata_size", METADATA_BYTES_MAX),
    ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_ANSWER_MS_MAX),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", PING_INTERVAL_MS_MIN),
    ("grpc.so_reuseport", 0),
)

DRAIN_MS: Final = 5_000
DRAIN_MS_MAX: Final = 60_000
PROBE_MS_MAX: Final = 1_000
PARENT_CHECK_MS: Final = 500

EXIT_FAILED: Final = 1
EXIT_REFUSED: Final = 78  # EX_CONFIG: a restart alone will not help

_log: Final = logs.get(__name__)


class SocketInUse(StartRefused):
    """Another live server owns this service's socket."""

    reason = "socket_in_use"


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Where and how long: the home, the service's name in it, its gRPC service names, and the time for a drain.

    `reflection`: whether tools may ask which services and messages there are. `metrics_port`: on 127.0.0.1; 0: none.
    `listen`: an address for calls over mutual TLS besides the socket; empty: none.
    """

    home: Home
    service: str
    full_names: tuple[str, ...] = ()
    drain_ms: int = DRAIN_MS
    reflection: bool = True
    metrics_port: int = 0
    listen: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.drain_ms <= DRAIN_MS_MAX:
            raise ValueError(f"drain_ms must be between 0 and {DRAIN_MS_MAX}")


class Handlers:
    """What the generated add_<X>Servicer_to_server is given instead of the grpc.aio server itself.

    Methods are found by name when a call comes. The generated code registers each with the C core besides, and then
    grpc.aio waits for the next call of every single method anew with each call: a fifth of what a call costs.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Serve what these handlers know by name."""
        self._server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, object]) -> None:
        """Do nothing: the same handlers are served by name."""


class Server:
    """One gRPC server of one service in one home.

    Give `handlers` to the generated code that adds servicers, before start(). `grpc` is the grpc.aio server. `drain` is
    the service's own part of a stop: it ends parked waits and streams and finishes what was begun; it gets at most
    drain_ms. `gate` is for guarded(): it refuses new calls during a drain, and counts the open ones. `registry` holds
    what is told where metrics_port is set. Create the server inside the running loop.
    """

    def __init__(self, settings: ServeSettings, *, drain: Callable[[], Awaitable[None]] | None = None) -> None:
        self.grpc: Final = grpc.aio.server(options=SERVER_OPTIONS)
        # Typed as what the generated code asks for.
        self.handlers: Final[Any] = Handlers(self.grpc)
        self.gate: Final = Gate()
        self.registry: Final = new_registry()
        self._settings = settings
        self._drain = drain
        self._health = Health(settings.full_names)
        self._reflection = Reflection(settings.full_names) if settings.reflection else None
        self._metrics = Exposition(self.registry, port=settings.metrics_port) if settings.metrics_port else None
        self._front: TlsFront | None = None
        self._lock = OwnerLock(settings.home.lock(settings.service))
        self._bound: tuple[int, int] | None = None
        self._socket: Path | None = None
        self._published: bytes = b""
        self._stopped = False

    async def start(self) -> None:
        """Take the lock, bind the socket 0600, answer calls, publish the address. Health stays NOT_SERVING.

        Raises:
            SocketInUse: another live server owns the socket; it is named, and nothing was touched.
            HomeRefused: the home is unsafe, not writable, or its paths are too long; the state names the cause.
            InvalidFaults: a fault is armed at a point that this process does not have.
            InvalidListen, ListenInUse, CertificatesMissing: `listen` is set and cannot be served.
        """
        try:
            await self._start()
        except BaseException:
            self._stopped = True
            if self._front is not None:
                await self._front.stop()
            await self.grpc.stop(None)
            self._clear()
            raise

    async def _start(self) -> None:
        home, service = self._settings.home, self._settings.service
        faults.refuse_unknown()
        with home_refusals(home):
            home.check_socket_paths((service,))
            home.prepare()
            owner = self._lock.acquire()
            if owner is not None:
                raise _in_use(service, owner.pid, owner.started_at_ms)
            if self._settings.listen:
                self._front = TlsFront(home=home, listen=self._settings.listen)
            # Asked once: what the environment says of a short folder must not move a socket that is served.
            path = home.socket(service)
            self._bind(path)
            # Behind the service's own handlers, which are asked first then.
            health_pb2_grpc.add_HealthServicer_to_server(self._health, self.handlers)
            if self._reflection is not None:
                self._reflection.add_to(self.handlers)
            await self.grpc.start()
            if self._front is not None:
                await self._front.start(path)
            self._publish(home, service, path)
        if self._metrics is not None:
            gauge(self.registry, "fencepost_calls_open", "Calls in progress.", service=service, read=self._calls_open)
            await self._metrics.start()
        _log.info("serving", socket=path, pid=os.getpid())

    def mark_ready(self) -> None:
        """Let health say SERVING for "" and for every full name."""
        self._health.set_serving()
        _log.info("ready")

    def mark_not_ready(self) -> None:
        """Let health say NOT_SERVING, for a service that cannot do its work at present."""
        self._health.set_not_serving()

    async def stop(self) -> None:
        """Drain, stop, remove what is ours, free the lock. A second call does nothing.

        New calls are refused as draining at once; open ones have drain_ms in all, then they are cancelled.
        """
        if self._stopped:
            return
        self._stopped = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.drain_ms / 1000
        if self._front is not None:
            self._front.close_door()
        self._health.close()
        if self._reflection is not None:
            self._reflection.close()
        self.gate.closed = True
        try:
            await self._drained(deadline)
            await self.grpc.stop(max(0.0, deadline - loop.time()))
        finally:
            if self._front is not None:
                await self._front.stop()
            if self._metrics is not None:
                await self._metrics.stop()
            self._clear()
        _log.info("stopped")

    def _calls_open(self) -> float:
        return self.gate.open_calls

    async def _drained(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                if self._drain is not None:
                    await self._drain()
                await self.gate.emptied()
        except TimeoutError:
            _log.warning("drain_time_over", open_calls=self.gate.open_calls, drain_ms=self._settings.drain_ms)
        except Exception as error:  # noqa: BLE001 - a failing drain must not keep the process alive
            _log.exception("drain_failed", error)

    def _bind(self, path: Path) -> None:
        refuse_live(path, self._settings.service)
        # Bound under a shorter name of our own and moved over the public one: the public name is never seen with other
        # permissions, and the gRPC library, which removes the name it bound, can never remove a successor's socket.
        own = path.with_name(f".{self._settings.service}")
        with contextlib.suppress(FileNotFoundError):
            own.unlink()
        before = os.umask(0o177)
        try:
            self.grpc.add_insecure_port(f"unix:{own}")
        finally:
            os.umask(before)
        facts = own.lstat()
        if stat.S_IMODE(facts.st_mode) != 0o600:
            own.chmod(0o600)
        own.rename(path)
        self._bound = (facts.st_dev, facts.st_ino)
        self._socket = path

    def _publish(self, home: Home, service: str, path: Path) -> None:
        address = f"unix:{path}\n".encode()
        write_private(home.address(service), address)
        self._published = address

    def _clear(self) -> None:
        home, service = self._settings.home, self._settings.service
        with contextlib.suppress(OSError):
            path = home.address(service)
            if self._published and path.read_bytes() == self._published and self._owns():
                path.unlink()
        with contextlib.suppress(OSError):
            if self._socket is not None and self._owns():
                self._socket.unlink()
        self._bound = None
        self._lock.release()

    def _owns(self) -> bool:
        if self._socket is None:
            return False
        facts = self._socket.lstat()
        return self._bound == (facts.st_dev, facts.st_ino)


def _in_use(service: str, pid: int, started_at_ms: int = 0) -> SocketInUse:
    named = f"process {pid}" if pid else "another process"
    return SocketInUse(
        f"{service} is served in this home by {named}; nothing was touched",
        hint="Use the running service, or stop it with `fencepost down` and start again.",
        state={"service": service, "pid": str(pid), "started_at_ms": str(started_at_ms)},
    )


def refuse_live(path: Path, service: str) -> None:
    """Refuse a path that a live server answers without holding our lock, and anything that is not a socket.

    Raises:
        SocketInUse: it is answered; the server is named where the system tells.
        HomeRefused: something else stands there. Nothing is touched in either case.
    """
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(facts.st_mode):
        raise HomeRefused(
            f"{path} exists and is not a socket; nothing was touched",
            hint="Move it away, or choose another FENCEPOST_HOME.",
            state={"cause": "socket_path_taken"},
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_MS_MAX / 1000)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return  # left behind by a process that was killed
        except (BlockingIOError, TimeoutError):
            raise _in_use(service, 0) from None
        raise _in_use(service, _peer_pid(probe))


def _peer_pid(connected: socket.socket) -> int:
    if sys.platform != "linux":
        return 0
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", raw)[0]
    return pid


Main = Callable[[asyncio.Event], Coroutine[Any, Any, int]]


def run(main: Main, *, service: str = "fencepost", level: str = "info") -> int:
    """Run a service on uvloop and return its exit code.

    `main` gets an event that the first SIGTERM or SIGINT sets: it drains and returns. A second signal ends the process
    at once with 128 and the signal's number. Files are made for this user only. Fault points are armed from the
    environment. A refusal to start is written as one message for a person and gives EXIT_REFUSED; any other exception
    is logged and gives EXIT_FAILED.
    """
    os.umask(0o077)
    logs.configure(service, level)
    # The C core writes its own lines to standard error, which are no JSON and speak of ordinary disconnections.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    parent = os.environ.pop(PARENT_VARIABLE, "")
    try:
        faults.arm_from_environment()
        if faults.ARMED:
            _log.warning("faults_armed", points=faults.armed())
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_supervised(main, int(parent) if parent.isdigit() else 0))
    except (Refusal, Refused) as refusal:
        _log.error("refused_to_start", reason=refusal.reason, message=refusal.message, hint=refusal.hint)
        sys.stderr.write(f"{service}: {refusal.message}. {refusal.hint}\n")
        return EXIT_REFUSED
    except Exception as error:  # noqa: BLE001 - the last line of the process
        _log.exception("failed", error)
        return EXIT_FAILED


async def _supervised(main: Main, parent: int) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        _log.info("stopping", signal=signal.Signals(number).name)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    watch = loop.create_task(_end_with(parent)) if parent and sys.platform != "linux" else None
    try:
        return await main(stop)
    finally:
        if watch is not None:
            watch.cancel()


async def _end_with(parent: int) -> None:
    """End this process when its parent is gone, where the kernel does not do it."""
    while os.getppid() == parent:  # noqa: ASYNC110 - nothing tells a process that its parent has ended
        await asyncio.sleep(PARENT_CHECK_MS / 1000)
    os._exit(128 + signal.SIGKILL)
