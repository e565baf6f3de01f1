"""A server on its socket, inside this process."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fencepost.home import SOCKET_PATH_BYTES_MAX, Home, read_address
from fencepost.sockets import HASH_CHARS
from fencepost_kit import faults
from fencepost_kit.files import HomeRefused, owner_of
from fencepost_kit.guard import Call, Rule, guarded
from fencepost_kit.identity import Caller, Role, mint_token
from fencepost_kit.probe import watched_serving
from fencepost_kit.serve import DRAIN_MS_MAX, MESSAGE_BYTES_MAX, Handlers, Server, ServeSettings, SocketInUse
from fencepost_kit.statuses import detail_of
from fencepost_testing import four_kinds
from fencepost_testing.four_kinds import KINDS, Stub, Text
from fencepost_testing.processes import bearer

NAME = "testing"
TOKEN = mint_token()
Drain = Callable[[], Any]


def settings(home: Home, *, drain_ms: int = 2_000) -> ServeSettings:
    return ServeSettings(home=home, service=NAME, full_names=(four_kinds.FULL_NAME,), drain_ms=drain_ms)


class Identifying:
    def known(self, _: str) -> Caller | None:
        return None

    async def __call__(self, _: str) -> Caller:
        return Caller(
            credential_id=bytes(16), role=Role.AGENT, agent_id=None, project_id=None, generation=1, label="somebody"
        )


class Parked:
    """Every call waits for `release`."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.release = asyncio.Event()

    async def _wait(self) -> Any:
        self.begun.set()
        await self.release.wait()
        return Text(value="released")

    async def One(self, request: Any, call: Call) -> Any:
        return await self._wait()

    async def Many(self, request: Any, call: Call) -> AsyncIterator[Any]:
        yield await self._wait()

    async def Collect(self, requests: Any, call: Call) -> Any:
        return await self._wait()

    async def Talk(self, requests: Any, call: Call) -> AsyncIterator[Any]:
        yield await self._wait()


def add(server: Server, servicer: object) -> None:
    rules = {name: Rule(roles=frozenset(Role), deadline_ms_max=60_000) for name in KINDS}
    built = guarded(
        servicer, descriptor=four_kinds.DESCRIPTOR, rules=rules, identify=Identifying(), statuses={}, gate=server.gate
    )
    four_kinds.add_to_server(built, server.grpc)


@asynccontextmanager
async def started(
    home: Home, *, drain: Drain | None = None, servicer: object | None = None, **options: Any
) -> AsyncIterator[Server]:
    server = Server(settings(home, **options), drain=drain)
    add(server, servicer or Parked())
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def address(home: Home) -> str:
    published = read_address(home.address(NAME))
    assert published is not None
    return published


async def health(home: Home, name: str = "") -> int:
    async with grpc.aio.insecure_channel(address(home)) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return int((await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)).status)


@pytest.mark.requirement("kit.a-socket-is-its-owners-alone")
async def test_the_socket_is_0600_in_a_0700_folder_and_the_lock_names_us(home: Home) -> None:
    async with started(home):
        facts = home.socket(NAME).stat()
        assert stat.S_ISSOCK(facts.st_mode)
        assert stat.S_IMODE(facts.st_mode) == 0o600
        assert stat.S_IMODE(home.run.stat().st_mode) == 0o700
        owner = owner_of(home.lock(NAME))
        assert owner is not None
        assert owner.pid == os.getpid()


@pytest.mark.requirement("kit.a-socket-is-its-owners-alone")
async def test_an_open_umask_opens_nothing_and_is_left_as_it_was(home: Home) -> None:
    before = os.umask(0)
    try:
        async with started(home):
            assert stat.S_IMODE(home.socket(NAME).stat().st_mode) == 0o600
            assert stat.S_IMODE(home.address(NAME).stat().st_mode) == 0o600
            assert os.umask(0) == 0
    finally:
        os.umask(before)


@pytest.mark.requirement("kit.a-published-address-answers")
async def test_the_published_address_answers_and_health_waits_for_mark_ready(home: Home) -> None:
    async with started(home) as server:
        assert read_address(home.address(NAME)) == f"unix:{home.socket(NAME)}"
        assert await health(home) == health_pb2.HealthCheckResponse.NOT_SERVING
        server.mark_ready()
        for name in ("", four_kinds.FULL_NAME):
            assert await health(home, name) == health_pb2.HealthCheckResponse.SERVING
        server.mark_not_ready()
        assert await health(home) == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_a_stop_removes_socket_and_address_frees_the_lock_and_can_be_repeated(home: Home) -> None:
    async with started(home) as server:
        await server.stop()
        await server.stop()
        assert sorted(path.name for path in home.run.iterdir()) == [f"{NAME}.lock"]
        assert owner_of(home.lock(NAME)) is None
    async with started(home):
        pass


@pytest.mark.requirement("kit.one-server-per-socket")
async def test_a_second_server_is_refused_with_the_owners_pid_and_the_first_goes_on(home: Home) -> None:
    async with started(home) as first:
        first.mark_ready()
        before = {path: path.lstat().st_ino for path in home.run.iterdir()}
        second = Server(settings(home))
        with pytest.raises(SocketInUse, match=f"process {os.getpid()}") as caught:
            await second.start()
        assert caught.value.state["pid"] == str(os.getpid())
        assert {path: path.lstat().st_ino for path in home.run.iterdir()} == before
        assert await health(home) == health_pb2.HealthCheckResponse.SERVING
        await second.stop()
        assert await health(home) == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.requirement("kit.one-server-per-socket")
async def test_a_live_socket_of_a_server_without_our_lock_is_refused_and_left_alone(home: Home) -> None:
    home.prepare()
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(str(home.socket(NAME)))
        foreign.listen()
        before = home.socket(NAME).lstat().st_ino
        with pytest.raises(SocketInUse) as caught:
            await Server(settings(home)).start()
        assert caught.value.state["pid"] == str(os.getpid())
        assert home.socket(NAME).lstat().st_ino == before
        assert owner_of(home.lock(NAME)) is None


@pytest.mark.requirement("kit.one-server-per-socket")
async def test_a_live_socket_with_a_full_backlog_is_refused_and_left_alone(home: Home) -> None:
    home.prepare()
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(str(home.socket(NAME)))
        foreign.listen(0)
        waiting = []
        try:
            while True:
                one = socket.socket(socket.AF_UNIX)
                waiting.append(one)
                one.setblocking(False)
                one.connect(str(home.socket(NAME)))
        except BlockingIOError:
            pass
        with pytest.raises(SocketInUse):
            await Server(settings(home)).start()
        for one in waiting:
            one.close()


@pytest.mark.requirement("kit.a-stale-socket-is-taken-over")
async def test_a_socket_that_nobody_serves_is_taken_over(home: Home) -> None:
    home.prepare()
    for name in (home.socket(NAME), home.run / f".{NAME}"):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(name))
    home.address(NAME).write_text("unix:/nowhere")
    async with started(home) as server:
        server.mark_ready()
        assert await health(home) == health_pb2.HealthCheckResponse.SERVING


async def test_a_file_in_the_sockets_place_is_refused_and_left_alone(home: Home) -> None:
    home.prepare()
    home.socket(NAME).write_text("mine")
    with pytest.raises(HomeRefused, match="is not a socket"):
        await Server(settings(home)).start()
    assert home.socket(NAME).read_text() == "mine"


@pytest.mark.requirement("kit.only-what-is-ours-is-removed")
async def test_what_another_owner_put_in_our_place_survives_our_stop(home: Home) -> None:
    async with started(home) as server:
        home.socket(NAME).unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(home.socket(NAME)))
            home.address(NAME).write_text("unix:/elsewhere")
            inode = home.socket(NAME).lstat().st_ino
            await server.stop()
            assert home.socket(NAME).lstat().st_ino == inode
            assert home.address(NAME).read_text() == "unix:/elsewhere"


@pytest.mark.requirement("kit.a-home-path-over-the-limit-is-refused-first")
async def test_a_service_is_taken_up_to_the_limit_of_socket_paths_and_refused_over_it_before_anything_is_made(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def named(chars: int) -> ServeSettings:
        return ServeSettings(home=deep, service="s" * chars)

    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    deep = Home(home.path / ("x" * SOCKET_PATH_BYTES_MAX))
    chars = 20
    below = len(f"/fencepost-{os.geteuid()}/{'0' * HASH_CHARS}/.sock") + chars
    place = home.path.parent / ("t" * (SOCKET_PATH_BYTES_MAX - below - len(f"{home.path.parent}/")))
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    with pytest.raises(HomeRefused) as caught:
        await Server(named(chars + 1)).start()
    assert caught.value.state["cause"] == "home_path_too_long"
    assert "FENCEPOST_HOME" in caught.value.hint
    assert not deep.path.exists()
    assert list(place.iterdir()) == []
    server = Server(named(chars))
    await server.start()
    assert len(str(deep.socket("s" * chars))) == SOCKET_PATH_BYTES_MAX
    await server.stop()


@pytest.mark.requirement("home.a-long-path-gets-a-short-folder")
async def test_a_home_over_the_limit_is_served_from_its_short_folder_and_found_by_the_published_address(
    long_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started(long_home) as server:
        server.mark_ready()
        published = read_address(long_home.address(NAME))
        assert published is not None
        path = Path(published.removeprefix("unix:"))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert not path.is_relative_to(long_home.path)
        monkeypatch.setenv("XDG_RUNTIME_DIR", "/nowhere")
        monkeypatch.setenv("TMPDIR", "/nowhere")
        assert await watched_serving(long_home, NAME)
        with pytest.raises(SocketInUse):
            await Server(settings(long_home)).start()
    assert not path.exists()
    assert not long_home.address(NAME).exists()


@pytest.mark.requirement("kit.a-home-that-cannot-be-written-is-refused")
async def test_a_read_only_home_is_refused_with_what_to_do(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.prepare()
    real = os.open

    def read_only(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if str(path).startswith(str(home.path)) and flags & os.O_CREAT:
            raise OSError(30, "Read-only file system", str(path))
        return real(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(HomeRefused, match="Read-only file system") as caught:
        await Server(settings(home)).start()
    assert caught.value.state == {"cause": "home_not_writable", "errno": "EROFS"}
    assert sorted(path.name for path in home.run.iterdir()) == []


async def test_a_full_disk_while_publishing_leaves_nothing_behind(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(HomeRefused, match="No space left"):
        await Server(settings(home)).start()
    assert sorted(path.name for path in home.run.iterdir()) == [f"{NAME}.lock"]
    monkeypatch.undo()
    async with started(home):
        pass


async def test_a_fault_armed_at_no_point_of_this_process_is_refused(home: Home, disarmed: None) -> None:
    faults.arm("nobody.knows=kill")
    with pytest.raises(faults.InvalidFaults):
        await Server(settings(home)).start()
    assert not home.path.exists()


@pytest.mark.requirement("kit.a-drain-refuses-new-calls-as-not-written")
@pytest.mark.parametrize("name", KINDS)
async def test_a_drain_lets_open_calls_end_refuses_new_ones_and_tells_health(home: Home, name: str) -> None:
    parked = Parked()
    draining = asyncio.Event()

    async def drain() -> None:
        draining.set()
        await finish.wait()
        parked.release.set()

    finish = asyncio.Event()
    running = started(home, drain=drain, servicer=parked, drain_ms=10_000)
    async with running as server, grpc.aio.insecure_channel(address(home)) as channel:
        server.mark_ready()
        stub = Stub(channel)
        open_call = asyncio.ensure_future(stub.call(name, "x", metadata=bearer(TOKEN), timeout=20))
        await asyncio.wait_for(parked.begun.wait(), 5)
        stopping = asyncio.ensure_future(server.stop())
        await asyncio.wait_for(draining.wait(), 5)
        assert await health(home) == health_pb2.HealthCheckResponse.NOT_SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.call(name, "x", metadata=bearer(TOKEN), timeout=20, silent=True)
        detail = detail_of(caught.value)
        assert detail is not None
        assert detail.reason == "draining"
        finish.set()
        assert await open_call == ["released"]
        await asyncio.wait_for(stopping, 5)


@pytest.mark.requirement("kit.a-stop-ends-in-its-time")
async def test_a_call_that_does_not_end_is_cancelled_when_the_drains_time_is_over(home: Home) -> None:
    parked = Parked()
    running = started(home, servicer=parked, drain_ms=200)
    async with running as server, grpc.aio.insecure_channel(address(home)) as channel:
        open_call = asyncio.ensure_future(Stub(channel).call("One", "x", metadata=bearer(TOKEN), timeout=20))
        await asyncio.wait_for(parked.begun.wait(), 5)
        await asyncio.wait_for(server.stop(), 5)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await open_call
    assert detail_of(caught.value) is None


@pytest.mark.requirement("kit.a-stop-ends-in-its-time")
async def test_a_health_watcher_does_not_hold_up_a_stop(home: Home) -> None:
    async with started(home, drain_ms=20_000) as server, grpc.aio.insecure_channel(address(home)) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=""), timeout=30)
        await watch.read()
        await asyncio.wait_for(server.stop(), 5)
        assert await watch.read() is grpc.aio.EOF


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_drain_that_hangs_or_fails_does_not_keep_the_server(home: Home, hangs: bool) -> None:
    async def drain() -> None:
        if hangs:
            await asyncio.Event().wait()
        raise RuntimeError("bug")

    async with started(home, drain=drain, drain_ms=200) as server:
        await asyncio.wait_for(server.stop(), 5)
    assert not home.socket(NAME).exists()


@pytest.mark.parametrize(("extra", "taken"), [(0, True), (1, False)])
async def test_a_message_is_taken_up_to_its_limit(home: Home, extra: int, taken: bool) -> None:
    text = "x" * (MESSAGE_BYTES_MAX - 4 + extra)
    assert Text(value=text).ByteSize() == MESSAGE_BYTES_MAX + extra
    parked = Parked()
    parked.release.set()
    options = [("grpc.max_send_message_length", -1)]
    async with started(home, servicer=parked), grpc.aio.insecure_channel(address(home), options=options) as channel:
        call = Stub(channel).call("One", text, metadata=bearer(TOKEN), timeout=20)
        if taken:
            assert await call == ["released"]
        else:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("drain_ms", [-1, DRAIN_MS_MAX + 1])
def test_a_drain_time_out_of_range_is_refused(home: Home, drain_ms: int) -> None:
    with pytest.raises(ValueError, match="drain_ms"):
        settings(home, drain_ms=drain_ms)
    for taken in (0, DRAIN_MS_MAX):
        settings(home, drain_ms=taken)


async def test_a_server_that_was_never_started_can_be_stopped_and_leaves_nothing(home: Home) -> None:
    await Server(settings(home)).stop()
    assert not home.path.exists()


async def test_methods_are_found_by_name_since_each_registered_one_costs_every_call() -> None:
    class Noted:
        def __init__(self) -> None:
            self.called: list[str] = []

        def __getattr__(self, name: str) -> Any:
            return lambda *_: self.called.append(name)

    noted: Any = Noted()
    handlers: Any = Handlers(noted)
    health_pb2_grpc.add_HealthServicer_to_server(health_pb2_grpc.HealthServicer(), handlers)
    assert set(noted.called) == {"add_generic_rpc_handlers"}
