"""Looking at a supervisor and asking it to stop, from files that may say anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from fencepost import up
from fencepost.home import Home
from fencepost.up.report import NOT_RUNNING, Overall, Phase, ServiceStatus, Status, from_json, to_json
from fencepost_kit.files import OwnerLock
from fencepost_testing.processes import dying_with_us, short_home

STATUS = Status(
    running=True,
    pid=4711,
    started_at_ms=1_800_000_000_000,
    overall=Overall.READY,
    services=(
        ServiceStatus(
            name="mailbox",
            phase=Phase.READY,
            pid=4712,
            since_ms=1,
            ready_at_ms=2,
            restarts=3,
            last_end="exited with 1",
            log="/somewhere/mailbox.log",
        ),
    ),
    problem="",
)


@pytest.fixture
def home() -> Iterator[Home]:
    with short_home() as found:
        found.prepare()
        yield found


def test_a_status_survives_its_file() -> None:
    assert from_json(to_json(STATUS)) == STATUS


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"{}", to_json(STATUS).replace(b'"version": 1', b'"version": 2'), to_json(STATUS)[:-20], b"\xff"],
)
def test_a_file_of_another_kind_is_no_status(raw: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any text of the reader
        from_json(raw)


def test_without_a_supervisor_nothing_runs_and_nothing_is_created(home: Home) -> None:
    before = list(home.run.iterdir())
    assert up.status(home) == NOT_RUNNING
    assert up.stop(home, 1) == up.StopResult(was_running=False, stopped=True, pid=None, waited_ms=0)
    assert list(home.run.iterdir()) == before


def test_a_home_that_does_not_exist_runs_nothing() -> None:
    with short_home() as home:
        assert not up.status(home).running
        assert not up.stop(home, 1).was_running
        assert not home.path.exists()


@pytest.mark.parametrize("overall", Overall)
def test_a_status_file_without_its_supervisor_is_not_believed(home: Home, overall: Overall) -> None:
    home.up_status.write_bytes(to_json(replace(STATUS, overall=overall, problem="mailbox exited with 1")))
    found = up.status(home)
    assert (found.running, found.services, found.pid) == (False, (), None)
    assert bool(found.problem) == (overall is not Overall.STOPPED)


def test_the_file_of_another_supervisor_is_not_taken_for_the_running_ones(home: Home) -> None:
    home.up_status.write_bytes(to_json(STATUS))
    lock = OwnerLock(home.up_lock)
    lock.acquire()
    found = up.status(home)
    lock.release()
    assert (found.running, found.pid, found.overall, found.services) == (True, os.getpid(), Overall.STARTING, ())


@pytest.mark.requirement("up.only-its-own-are-signalled")
def test_a_stop_signals_nobody_whom_only_a_file_names(home: Home) -> None:
    bystander = subprocess.Popen(dying_with_us(sys.executable, "-c", "input()"), stdin=subprocess.PIPE)
    try:
        home.up_lock.write_text(json.dumps({"pid": bystander.pid, "started_at_ms": 1}))
        home.up_status.write_bytes(to_json(replace(STATUS, pid=bystander.pid)))
        assert up.stop(home, 0.2).was_running is False
        assert bystander.poll() is None
    finally:
        bystander.communicate(b"\n", timeout=10)
    assert bystander.returncode == 0


def test_a_supervisor_that_cannot_be_named_is_not_signalled_and_the_stop_says_so(home: Home) -> None:
    lock = OwnerLock(home.up_lock)
    lock.acquire()
    home.up_lock.write_bytes(b"?")
    result = up.stop(home, 0.2)
    lock.release()
    assert (result.was_running, result.stopped, result.pid) == (True, False, None)


@pytest.mark.requirement("cli.status-asks-now")
async def test_a_service_whose_lock_another_process_holds_is_called_replaced(home: Home) -> None:
    lock = OwnerLock(home.lock("mailbox"))
    assert lock.acquire() is None
    try:
        assert await up.health(home, STATUS) == {"mailbox": "replaced"}
    finally:
        lock.release()


@pytest.mark.requirement("cli.status-asks-now")
@pytest.mark.parametrize("address", [None, "unix:/nowhere/at/all", "nonsense"])
async def test_a_service_that_cannot_be_asked_is_not_answering(home: Home, address: str | None) -> None:
    if address is not None:
        home.address("mailbox").write_text(address)
    ours = replace(STATUS, services=(replace(STATUS.services[0], pid=os.getpid()),))
    lock = OwnerLock(home.lock("mailbox"))
    assert lock.acquire() is None
    try:
        assert await up.health(home, ours) == {"mailbox": "not answering"}
    finally:
        lock.release()
    assert await up.health(home, ours) == {"mailbox": "not answering"}


@pytest.mark.requirement("cli.status-asks-now")
async def test_only_services_that_are_called_ready_are_asked(home: Home) -> None:
    starting = replace(STATUS, services=(replace(STATUS.services[0], phase=Phase.STARTING),))
    assert await up.health(home, starting) == {}
