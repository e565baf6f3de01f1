"""SIGKILL exactly at each named point of a commit: what is on disk afterwards is known for each of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from fencepost_powercut import victim
from fencepost_powercut.workload import AGENTS, reopened

from fencepost_mailbox.domain.values import Operation
from fencepost_mailbox.store.sqlite import SqliteStore

TOLD: Final = 5
VICTIM_S_MAX: Final = 30.0


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
