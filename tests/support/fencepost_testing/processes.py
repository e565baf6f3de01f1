"""Services as real processes: started, watched until ready, killed and started again by name, always joined."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import grpc
import pytest

from fencepost.common.v1 import common_pb2
from fencepost.home import (
    MAILBOX,
    MCP_EDGE,
    PROVIDERS,
    SESSIONS,
    SOCKET_PATH_BYTES_MAX,
    Home,
    read_address,
    read_credential,
)
from fencepost.sessions.v1 import sessions_pb2, sessions_pb2_grpc
from fencepost_kit import launch
from fencepost_kit.probe import until_ready

READY_S_MAX: Final = 40.0
END_S_MAX: Final = 15.0
TAIL_CHARS_MAX: Final = 6000
SUPPORT: Final = Path(__file__).resolve().parents[1]
MODULES: Final[Mapping[str, str]] = {
    SESSIONS: "fencepost_sessions",
    MAILBOX: "fencepost_mailbox",
    MCP_EDGE: "fencepost_mcp_edge",
    PROVIDERS: "fencepost_providers",
}


def environment(home: Home, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a child: this one, without any Fencepost variable, with the home and the test support."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
    path = os.pathsep.join(filter(None, (str(SUPPORT), kept.get("PYTHONPATH", ""))))
    return {**kept, "FENCEPOST_HOME": str(home.path), "PYTHONPATH": path, **(extra or {})}


def left_behind(marker: str) -> list[str]:
    """The processes whose command line or environment names the folder `marker`."""
    if not Path("/proc/self/environ").exists():
        shown = subprocess.run(["ps", "axeww", "-o", "args="], capture_output=True, text=True, check=True, timeout=10)
        return [line for line in shown.stdout.splitlines() if marker in line]
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            said = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            found += [said.decode(errors="replace")] if marker.encode() in said else []
    return found


def dying_with_us(*program: str) -> list[str]:
    """The arguments that start `program` so that it does not outlive this process."""
    return [sys.executable, "-IS", str(Path(launch.__file__)), str(os.getpid()), "--", *program]


@contextlib.contextmanager
def short_home() -> Iterator[Home]:
    """A home whose path leaves room for socket names, removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="fp", ignore_cleanup_errors=True) as folder:
        yield Home(Path(folder).resolve() / "h")


@contextlib.contextmanager
def long_home_and_runtime() -> Iterator[tuple[Home, Path]]:
    """A home whose path is over the limit of sockets, and a runtime folder of this user that is short enough."""
    with tempfile.TemporaryDirectory(prefix="fp", ignore_cleanup_errors=True) as folder:
        base = Path(folder).resolve()
        runtime = base / "r"
        runtime.mkdir(mode=0o700)
        deep = base / ("d" * SOCKET_PATH_BYTES_MAX)
        deep.mkdir()
        yield Home(deep / "h"), runtime


class Services:
    """The services of one home that a test has started. Use it as `async with`; close() joins every one.

    `modules` maps names to modules run by `python -m`; `env` is added to each child's environment.
    """

    def __init__(
        self, home: Home, *, modules: Mapping[str, str] = MODULES, env: Mapping[str, str] | None = None
    ) -> None:
        self.home = home
        self._modules = modules
        self._env = dict(env or {})
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def spawn(self, name: str, *, env: Mapping[str, str] | None = None) -> int:
        """Start a service without waiting for anything; return its pid."""
        words = [sys.executable, "-P", "-m", self._modules[name]]
        return self.spawned(name, words, environment(self.home, {**self._env, **(env or {})}))

    def spawned(self, name: str, words: Sequence[str], env: Mapping[str, str]) -> int:
        """Start a service by these words, in exactly this environment; return its pid."""
        if name in self._running:
            self.join(name, timeout_s=0)
        self.home.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.home.log(name).open("ab") as log:
            child = subprocess.Popen(
                dying_with_us(*words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(env),
                start_new_session=True,
            )
        self._running[name] = child
        return child.pid

    async def ready(self, name: str, timeout_s: float = READY_S_MAX) -> None:
        """Wait until the process that was spawned says that it is ready; fail with its log where it ends or is late."""
        child = self._running[name]
        asked = asyncio.ensure_future(until_ready(self.home, name, child.pid))
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        try:
            while not asked.done():
                assert child.poll() is None, f"{name} ended with {child.returncode}:\n{self.log(name)}"
                assert loop.time() < until, f"{name} was not ready within {timeout_s} s:\n{self.log(name)}"
                await asyncio.wait([asked], timeout=0.02)
            asked.result()
        finally:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

    async def start(self, *names: str, env: Mapping[str, str] | None = None) -> None:
        """Start services one after the other, each ready before the next."""
        for name in names:
            self.spawn(name, env=env)
            await self.ready(name)

    def pid(self, name: str) -> int:
        """The pid of a service that was started last under this name."""
        return self._running[name].pid

    def is_alive(self, name: str) -> bool:
        """Whether the service is running."""
        return name in self._running and self._running[name].poll() is None

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a service that this object started."""
        self._running[name].send_signal(number)

    def kill(self, name: str) -> None:
        """SIGKILL a service and join it."""
        self.signal(name, signal.SIGKILL)
        self.join(name)

    def stop(self, name: str, timeout_s: float = END_S_MAX) -> int:
        """SIGTERM a service, join it, and return its exit code."""
        self.signal(name, signal.SIGTERM)
        return self.join(name, timeout_s)

    def join(self, name: str, timeout_s: float = END_S_MAX) -> int:
        """Wait for the end of a service and return its exit code; fail with its log where it does not end."""
        child = self._running[name]
        try:
            code = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{name} did not end within {timeout_s} s:\n{self.log(name)}") from None
        del self._running[name]
        return code

    async def restart(self, name: str, *, env: Mapping[str, str] | None = None) -> None:
        """SIGKILL a service if it is alive, start it again, and wait until it is ready."""
        if name in self._running:
            self.kill(name)
        await self.start(name, env=env)

    def log(self, name: str) -> str:
        """The end of a service's log."""
        try:
            return self.home.log(name).read_text(errors="replace")[-TAIL_CHARS_MAX:]
        except FileNotFoundError:
            return "(no log)"

    def channel(self, name: str) -> grpc.aio.Channel:
        """A new channel to a running service; the caller closes it."""
        address = read_address(self.home.address(name))
        assert address is not None, f"{name} has published no address:\n{self.log(name)}"
        return grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])

    def close(self) -> None:
        """Stop everything, last started first, and join it; what does not stop is killed."""
        for name, child in reversed(list(self._running.items())):
            child.terminate()
            try:
                child.wait(END_S_MAX)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait(END_S_MAX)
            del self._running[name]

    def print_logs(self) -> None:
        """Print the end of each log; pytest shows it where the test failed."""
        for path in sorted(self.home.logs.glob("*.log")):
            sys.stdout.write(f"--- {path.name}\n{self.log(path.stem)}\n")


@dataclass(frozen=True, kw_only=True)
class KnownAgent:
    """An agent that a test has created."""

    agent_id: str
    project_id: str
    name: str
    credential_file: Path
    token: str


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """The metadata by which a call is authenticated."""
    return (("authorization", f"Bearer {token}"),)


async def create_agents(
    services: Services, *names: str, project: str = "project", coordinators: Sequence[str] = ()
) -> dict[str, KnownAgent]:
    """Create agents in one project through the API of `sessions`, as the operator."""
    operator = bearer(read_credential(services.home.operator_credential))
    location = services.home.path / "work" / project
    location.mkdir(parents=True, exist_ok=True)
    agents: dict[str, KnownAgent] = {}
    async with services.channel(SESSIONS) as channel:
        stub = sessions_pb2_grpc.SessionsServiceStub(channel)
        ensured = await stub.EnsureProject(
            sessions_pb2.EnsureProjectRequest(
                idempotency_key=uuid.uuid4().hex, kind=sessions_pb2.PROJECT_KIND_FOLDER, location=str(location)
            ),
            metadata=operator,
            timeout=10,
        )
        for name in names:
            created = await stub.CreateAgent(
                sessions_pb2.CreateAgentRequest(
                    idempotency_key=uuid.uuid4().hex,
                    project_id=ensured.project.project_id,
                    name=name,
                    role=common_pb2.ROLE_COORDINATOR if name in coordinators else common_pb2.ROLE_AGENT,
                ),
                metadata=operator,
                timeout=10,
            )
            file = Path(created.credential_file)
            agents[name] = KnownAgent(
                agent_id=created.agent.agent_id,
                project_id=created.agent.project_id,
                name=name,
                credential_file=file,
                token=read_credential(file),
            )
    return agents


@pytest.fixture
def home() -> Iterator[Home]:
    """A throw-away home, not yet created."""
    with short_home() as found:
        yield found


@pytest.fixture
async def services(home: Home) -> AsyncIterator[Services]:
    """The services of a throw-away home: start what you need; all are joined, and their logs shown on failure."""
    running = Services(home)
    try:
        yield running
    finally:
        try:
            running.close()
        finally:
            running.print_logs()
