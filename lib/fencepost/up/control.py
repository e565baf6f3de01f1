"""What others may do to a running supervisor: look at it, and ask it to stop."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from fencepost.home import Home
from fencepost.up.report import NOT_RUNNING, REPORT_BYTES_MAX, Overall, Status, from_json
from fencepost_kit.files import Owner, owner_of

STOP_POLL_MS: Final = 20
_NEVER_BEGUN: Final = Owner(pid=0, started_at_ms=0)


@dataclass(frozen=True, kw_only=True)
class StopResult:
    """What became of a stop. `was_running`: a supervisor held the home; `stopped`: none holds it now."""

    was_running: bool
    stopped: bool
    pid: int | None
    waited_ms: int


def status(home: Home) -> Status:
    """Return the status of the home's services as their supervisor last wrote it. Changes nothing.

    Without a supervisor `running` is false and nothing is listed; `problem` says where one ended without stopping.
    """
    owner = owner_of(home.up_lock)
    written = _written(home)
    if owner is not None:
        known = written if written is not None and written.pid == owner.pid else None
        starting = replace(
            NOT_RUNNING, pid=owner.pid or None, started_at_ms=owner.started_at_ms or None, overall=Overall.STARTING
        )
        return replace(known or starting, running=True)
    if written is None or written.overall is Overall.STOPPED:
        return NOT_RUNNING
    if written.overall is Overall.FAILED:
        return replace(NOT_RUNNING, overall=Overall.FAILED, problem=written.problem)
    return replace(NOT_RUNNING, problem=f"the supervisor (process {written.pid}) ended without stopping its services")


def stop(home: Home, timeout_s: float) -> StopResult:
    """Ask the home's supervisor to stop its services in order, and wait at most `timeout_s` until it is gone.

    It is asked by SIGTERM, once, and only while it holds the home's lock; no other process is signalled.
    """
    started = time.monotonic()
    owner = owner_of(home.up_lock)
    if owner is None:
        return StopResult(was_running=False, stopped=True, pid=None, waited_ms=0)
    with _handle(owner.pid) as handle:
        asked = _terminate(home, owner, handle)
        stopped = _gone(home, owner, handle, until=started + timeout_s if asked else started)
    waited_ms = int((time.monotonic() - started) * 1000)
    return StopResult(was_running=True, stopped=stopped, pid=owner.pid or None, waited_ms=waited_ms)


def _written(home: Home) -> Status | None:
    try:
        with home.up_status.open("rb") as file:
            return from_json(file.read(REPORT_BYTES_MAX))
    except (OSError, ValueError):
        return None


@contextlib.contextmanager
def _handle(pid: int) -> Iterator[int | None]:
    """Hold the process itself, so that its number cannot come to mean another one; None where the system cannot."""
    handle: int | None = None
    if pid > 0 and hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(pid)
    try:
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


def _terminate(home: Home, owner: Owner, handle: int | None) -> bool:
    # The lock is looked at again after the process was held: it was this process that had it, and has it still.
    if owner.pid <= 0 or owner_of(home.up_lock) != owner:
        return False
    try:
        if handle is not None:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
        else:
            os.kill(owner.pid, signal.SIGTERM)
    except ProcessLookupError:
        pass
    return True


def _gone(home: Home, owner: Owner, handle: int | None, *, until: float) -> bool:
    """Wait until the process has ended; where it cannot be held, until it no longer holds the lock."""
    if handle is not None:
        left_s = max(0.0, until - time.monotonic())
        return bool(select.select([handle], [], [], left_s)[0])
    while True:
        now_held = owner_of(home.up_lock)
        if now_held is None or now_held not in {owner, _NEVER_BEGUN}:
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(STOP_POLL_MS / 1000)
