"""`fencepost up`: in the foreground, or detached."""

from __future__ import annotations

import asyncio
import datetime
import enum
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from fencepost.errors import Refused
from fencepost.home import Home
from fencepost.up.control import status
from fencepost.up.logfile import LOG_BYTES_MAX
from fencepost.up.report import Overall
from fencepost.up.settings import UP, UpSettings, metrics_variables, read
from fencepost.up.supervisor import Supervisor
from fencepost.up.table import TABLE, Row, plan, table_to_json
from fencepost_kit.files import Owner, OwnerLock, home_refusals, owner_of
from fencepost_kit.refusal import Refusal

DETACH_MS_MAX: Final = 120_000
DETACH_POLL_MS: Final = 20
STOP_MS_MAX: Final = 60_000
EXIT_FAILED: Final = 1


def run(
    home: Home, *, detach: bool = False, services: Sequence[str] | None = None, table: Sequence[Row] = TABLE
) -> int:
    """Start the services of a home and keep them up; return the exit code. Messages go to standard error.

    In the foreground it returns after SIGINT or SIGTERM, when all services have ended (a second signal cuts the grace
    short): 0, or 1 where they could not be brought up. Detached, it returns once everything is ready (0), or after a
    failure or DETACH_MS_MAX (1), with nothing left running. Call it in the main thread.

    Refuses, and starts nothing: a home that another supervisor holds, is unsafe, not writable, or has too long a path;
    an unknown or uninstalled service; wrong settings.
    """
    try:
        rows = plan(table, chosen=services, installed=_installed)
        with home_refusals(home):
            settings = read(home, table)
            variables = metrics_variables(settings, home)
            home.check_socket_paths(tuple(row.name for row in rows))
            home.prepare()
            if detach:
                _refuse_owned(home, owner_of(home.up_lock))
                return _detached(home, services, table)
            lock = OwnerLock(home.up_lock)
            _refuse_owned(home, lock.acquire())
    except (Refused, Refusal) as refused:
        say(f"{refused.message}. {refused.hint}".rstrip())
        return EXIT_FAILED
    before = os.umask(0o077)
    try:
        return asyncio.run(_foreground(home, rows, settings, variables))
    finally:
        os.umask(before)
        lock.release()


def say(line: str) -> None:
    """Tell a person what happened."""
    sys.stderr.write(f"fencepost: {line}\n")
    sys.stderr.flush()


def _installed(row: Row) -> bool:
    try:
        found = importlib.util.find_spec(row.module)
        if found is None or found.submodule_search_locations is None:
            return found is not None
        return importlib.util.find_spec(f"{row.module}.__main__") is not None
    except ModuleNotFoundError:
        return False


def _refuse_owned(home: Home, owner: Owner | None) -> None:
    if owner is not None:
        since = datetime.datetime.fromtimestamp(owner.started_at_ms / 1000).astimezone().isoformat(timespec="seconds")
        raise Refused(
            "already_up",
            f"process {owner.pid} keeps the services of {home.path} up since {since}; nothing was started",
            hint="Use them, or stop them with `fencepost down`.",
            state={"pid": str(owner.pid), "started_at_ms": str(owner.started_at_ms)},
        )


async def _foreground(home: Home, rows: Sequence[Row], settings: UpSettings, variables: Mapping[str, str]) -> int:
    stop, hurry = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            hurry.set()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal)
    return await Supervisor(home, rows, settings, say=say, variables=variables).run(stop, hurry)


def _detached(home: Home, services: Sequence[str] | None, table: Sequence[Row]) -> int:
    """Start the supervisor in a session of its own and wait until it is ready or gone."""
    log = home.log(UP)
    pid = _spawned(home, services, table, log)
    try:
        waited = _ready_or_gone(home, pid)
    except BaseException:
        _end(pid)  # nobody waits for it any more, so nobody would learn what became of it
        raise
    found = status(home)
    if waited is _Waited.READY:
        say(f"{', '.join(service.name for service in found.services)} are ready (process {pid}). Log: {log}")
        return 0
    if waited is _Waited.GONE:
        # A problem that a service has names that service's own log.
        why = found.problem.rstrip(".")
        say(
            f"not started. {why}."
            if "Log: " in why
            else f"not started. {why or 'The reason is in the log'}. Log: {log}"
        )
        return EXIT_FAILED
    gone = _end(pid)
    left = "everything was stopped again" if gone else f"process {pid} was told to stop"
    say(f"not ready within {DETACH_MS_MAX / 1000:g} s; {left}. Log: {log}")
    return EXIT_FAILED


def _spawned(home: Home, services: Sequence[str] | None, table: Sequence[Row], log: Path) -> int:
    argv = [sys.executable, "-P", "-m", "fencepost.up", "--home", str(home.path)]
    argv += ["--services", ",".join(services)] if services is not None else []
    argv += ["--table", table_to_json(table)] if tuple(table) != TABLE else []
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_name(f"{log.name}.1"))
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawn(sys.executable, argv, os.environ, file_actions=actions, setsid=True)


class _Waited(enum.Enum):
    READY = enum.auto()
    GONE = enum.auto()
    TOO_LONG = enum.auto()


def _ready_or_gone(home: Home, pid: int) -> _Waited:
    """Wait for at most DETACH_MS_MAX until everything is ready or the process has ended."""
    until = time.monotonic() + DETACH_MS_MAX / 1000
    while time.monotonic() < until:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return _Waited.GONE
        found = status(home)
        if found.running and found.pid == pid and found.overall is Overall.READY:
            return _Waited.READY
        time.sleep(DETACH_POLL_MS / 1000)
    return _Waited.TOO_LONG


def _end(pid: int) -> bool:
    """Ask our own child to stop and wait for at most STOP_MS_MAX; tell whether it is gone."""
    os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + STOP_MS_MAX / 1000
    while time.monotonic() < until:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return True
        time.sleep(DETACH_POLL_MS / 1000)
    return False
