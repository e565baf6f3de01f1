"""SIGKILL exactly at each named point of a commit: what is on disk afterwards is known for each of them."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from fencepost_powercut import victim
from fencepost_powercut.recording import Recording
from fencepost_powercut.workload import AGENTS, Script, reopened

from fencepost_kit import faults
from fencepost_kit.groupcommit import OutcomeUnknown
from fencepost_mailbox.domain.refusals import StorageError
from fencepost_mailbox.domain.values import Kind, Operation
from fencepost_mailbox.store.sqlite import SqliteStore

TOLD: Final = 5
VICTIM_S_MAX: Final = 30.0
WAIT_S_MAX: Final = 5.0


async def keys_of(path: Path, count: int) -> list[int]:
    store = SqliteStore(path, on_commit=lambda _values: None, on_fatal=lambda _error: None)
    await store.start()
    try:
        read = store.read
        return [n for n in range(count) if read.key(AGENTS[0], Operation.SEND, str(n).encode()) is not None]
    finally:
        await store.close()


def admitting_until(point: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Let a process admit records until the point ends it."""
    return subprocess.run(
        [sys.executable, victim.__file__, str(path)],
        env={**os.environ, "FENCEPOST_FAULTS": f"{point}=kill@{TOLD + 1}"},
        capture_output=True,
        text=True,
        timeout=VICTIM_S_MAX,
        check=False,
    )


@pytest.mark.requirement("mailbox.acknowledged-survives-a-power-cut")
@pytest.mark.parametrize(
    ("point", "written"),
    [
        ("mailbox.begin.after", False),
        ("mailbox.commit.before", False),
        ("mailbox.commit.after", True),
        ("mailbox.answer.before", True),
    ],
)
async def test_a_kill_at_a_point_of_the_commit_leaves_what_that_point_promises(
    point: str, written: bool, tmp_path: Path
) -> None:
    path = tmp_path / "mailbox.db"
    done = admitting_until(point, path)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout.split() == [str(number) for number in range(TOLD)]
    await reopened(path)
    assert await keys_of(path, TOLD + 2) == list(range(TOLD + written))


@pytest.mark.parametrize("point", ["mailbox.commit.after", "mailbox.answer.before"])
async def test_a_writer_that_fails_where_nobody_expects_it_leaves_no_caller_waiting(point: str, tmp_path: Path) -> None:
    told: list[BaseException] = []
    script = Script(tmp_path / "mailbox.db", Recording(), connect=sqlite3.connect, on_fatal=told.append)
    async with script.open():
        faults.arm(f"{point}=error@1")
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                with pytest.raises(OutcomeUnknown):
                    await script.send(0, 1, Kind.INFORMATION)
                with pytest.raises(StorageError):
                    await script.send(0, 1, Kind.INFORMATION)
        finally:
            faults.arm("")
    assert [type(cause) for cause in told] == [faults.InjectedFault]
