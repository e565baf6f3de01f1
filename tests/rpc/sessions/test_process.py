"""sessions as a process of its own: how it starts, whom it refuses, how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fencepost.errors import Uncertain
from fencepost.home import SESSIONS, Home, read_address, read_credential
from fencepost.sessions.v1 import sessions_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2_grpc
from fencepost_kit.serve import EXIT_FAILED, EXIT_REFUSED
from fencepost_sessions.settings import Settings
from fencepost_sessions.wiring import SERVICE, serve
from fencepost_testing.processes import Services, dying_with_us, environment
from fencepost_testing.sessions_service import As, key, until

END_S_MAX = 20.0


@pytest.fixture
async def services(home: Home) -> AsyncIterator[Services]:
    running = Services(home)
    try:
        yield running
    finally:
        running.close()


def run_alone(home: Home, *flags: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, which it reaches by itself."""
    program = dying_with_us(sys.executable, "-P", "-m", "fencepost_sessions", *flags)
    return subprocess.run(
        program, capture_output=True, text=True, timeout=END_S_MAX, env=environment(home, env), check=False
    )


@pytest.mark.requirement("sessions.runs-alone")
async def test_it_is_ready_once_its_credentials_lie_and_ends_cleanly_when_told(services: Services) -> None:
    home = services.home
    await services.start(SESSIONS)
    assert read_address(home.address(SESSIONS)) == f"unix:{home.socket(SESSIONS)}"
    assert stat.S_IMODE(home.socket(SESSIONS).stat().st_mode) == 0o600
    async with services.channel(SESSIONS) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", SERVICE.full_name):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        operator = As(sessions_pb2_grpc.SessionsServiceStub(channel), read_credential(home.operator_credential))
        assert (await operator("Describe", pb.DescribeRequest())).revision == 4
    assert services.stop(SESSIONS) == 0
    assert not home.socket(SESSIONS).exists()
    for line in home.log(SESSIONS).read_text().splitlines():
        assert {"ts", "level", "service", "event"} <= set(json.loads(line))


@pytest.mark.requirement("sessions.runs-alone")
async def test_a_second_process_on_the_same_home_is_told_who_owns_it_and_touches_nothing(services: Services) -> None:
    await services.start(SESSIONS)
    before = {path: path.stat().st_mtime_ns for path in services.home.path.rglob("*credential")}
    second = run_alone(services.home)
    assert second.returncode == EXIT_REFUSED
    assert str(services.pid(SESSIONS)) in second.stderr
    assert {path: path.stat().st_mtime_ns for path in services.home.path.rglob("*credential")} == before
    async with services.channel(SESSIONS) as channel:
        operator = As(
            sessions_pb2_grpc.SessionsServiceStub(channel), read_credential(services.home.operator_credential)
        )
        assert await operator("Describe", pb.DescribeRequest())


async def test_after_a_kill_the_next_process_takes_over_at_once(services: Services) -> None:
    await services.start(SESSIONS)
    token = read_credential(services.home.operator_credential)
    await services.restart(SESSIONS)
    assert read_credential(services.home.operator_credential) == token


@pytest.mark.requirement("sessions.unusable-databases-are-left-alone")
def test_a_database_of_a_newer_version_keeps_it_from_starting(home: Home) -> None:
    home.prepare()
    home.folder(SESSIONS).mkdir(mode=0o700)
    connection = sqlite3.connect(home.database(SESSIONS))
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    ended = run_alone(home)
    assert ended.returncode == EXIT_REFUSED
    assert "schema 99" in ended.stderr
    assert not home.operator_credential.exists()
    assert not home.socket(SESSIONS).exists()


@pytest.mark.requirement("sessions.runs-alone")
@pytest.mark.parametrize(
    ("flags", "env", "told"),
    [
        (("--nonsense", "1"), {}, "unknown setting"),
        (("--drain-ms", "-1"), {}, "between"),
        (("--home",), {}, "--home"),
        ((), {"FENCEPOST_SESSIONS_DRAIN_MS": "soon"}, "FENCEPOST_SESSIONS_DRAIN_MS"),
        ((), {"FENCEPOST_FAULTS": "sessions.no_such_point=kill"}, "sessions.no_such_point"),
    ],
)
def test_wrong_settings_are_refused_by_name_before_anything_is_made(
    home: Home, flags: tuple[str, ...], env: dict[str, str], told: str
) -> None:
    ended = run_alone(home, *flags, env=env)
    assert ended.returncode == EXIT_REFUSED
    assert told in ended.stderr
    assert not home.operator_credential.exists()


@pytest.mark.requirement("sessions.runs-alone")
async def test_the_home_of_the_flag_is_the_home(home: Home) -> None:
    program = dying_with_us(sys.executable, "-P", "-m", "fencepost_sessions", "--home", str(home.path))
    nowhere = environment(Home("/nonexistent"))
    child = await asyncio.create_subprocess_exec(*program, env=nowhere, stderr=subprocess.DEVNULL)
    try:
        await until(lambda: read_address(home.address(SESSIONS)) is not None, END_S_MAX)
    finally:
        child.send_signal(signal.SIGTERM)
        code = await asyncio.wait_for(child.wait(), END_S_MAX)
    assert code == 0
    assert home.database(SESSIONS).exists()


@pytest.mark.requirement("sessions.an-unknown-outcome-ends-the-process")
async def test_a_commit_whose_outcome_is_unknown_ends_the_service_with_a_failure(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_self: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    stop = asyncio.Event()
    serving = asyncio.ensure_future(serve(home, Settings(), stop))
    await until(lambda: serving.done() or home.service_credential("providers").exists())
    async with grpc.aio.insecure_channel(f"unix:{home.socket(SESSIONS)}") as channel:
        stub = sessions_pb2_grpc.SessionsServiceStub(channel)
        monkeypatch.setattr("fencepost_kit.sqlite.SqliteWriter.commit", broken)
        with pytest.raises(Uncertain):
            await As(stub, read_credential(home.operator_credential))(
                "EnsureProject",
                pb.EnsureProjectRequest(idempotency_key=key(), kind=pb.PROJECT_KIND_FOLDER, location="/w"),
            )
        assert await asyncio.wait_for(serving, END_S_MAX) == EXIT_FAILED
    assert not home.socket(SESSIONS).exists()
    assert os.path.lexists(home.database(SESSIONS))
