"""Private files and owner locks."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.errors import Refused
from fencepost.home import Home
from fencepost_kit.files import LOCK_WAIT_MS_MAX, HomeRefused, Owner, OwnerLock, home_refusals, owner_of
from fencepost_testing.processes import dying_with_us, short_home

HOLDER = """
import sys
from pathlib import Path
from fencepost_kit.files import OwnerLock
assert OwnerLock(Path(sys.argv[1])).acquire() is None
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A lock that another process holds."""
    path = tmp_path / "a.lock"
    child = subprocess.Popen(
        dying_with_us(sys.executable, "-c", HOLDER, str(path)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    yield path, child
    child.kill()
    child.communicate(timeout=10)


def test_a_lock_is_taken_once_and_names_its_holder(holder: tuple[Path, subprocess.Popen[bytes]]) -> None:
    path, child = holder
    owner = OwnerLock(path).acquire()
    assert owner is not None
    assert owner.pid == child.pid
    assert abs(owner.started_at_ms - time.time() * 1000) < 60_000
    assert owner_of(path) == owner
    assert json.loads(path.read_bytes()) == {"pid": owner.pid, "started_at_ms": owner.started_at_ms}


def test_a_killed_holder_frees_its_lock_at_once(holder: tuple[Path, subprocess.Popen[bytes]]) -> None:
    path, child = holder
    child.kill()
    child.wait(10)
    assert owner_of(path) is None
    lock = OwnerLock(path)
    assert lock.acquire() is None
    assert owner_of(path) == Owner(pid=os.getpid(), started_at_ms=json.loads(path.read_bytes())["started_at_ms"])
    lock.release()


@pytest.mark.parametrize("full", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_keeps_nobody_from_holding_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: int
) -> None:
    path = tmp_path / "a.lock"

    def no_room(*_: object) -> int:
        raise OSError(full, os.strerror(full))

    monkeypatch.setattr(os, "pwrite", no_room)
    lock = OwnerLock(path)
    assert lock.acquire() is None
    assert owner_of(path) == Owner(pid=0, started_at_ms=0), "held, by somebody without a name"
    lock.release()
    assert owner_of(path) is None


def test_a_name_is_written_over_the_one_before_without_asking_for_room_first(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    path.write_text("x" * 200)
    lock = OwnerLock(path)
    assert lock.acquire() is None
    assert json.loads(path.read_bytes())["pid"] == os.getpid()
    lock.release()


def test_a_released_lock_is_free_and_its_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    lock = OwnerLock(path)
    assert lock.acquire() is None
    assert path.stat().st_mode & 0o777 == 0o600
    lock.release()
    lock.release()
    assert owner_of(path) is None
    assert path.read_bytes() == b""


def test_looking_at_a_lock_creates_nothing(tmp_path: Path) -> None:
    assert owner_of(tmp_path / "a.lock") is None
    assert not list(tmp_path.iterdir())


def test_a_lock_that_somebody_only_looks_at_is_still_taken(tmp_path: Path) -> None:
    import fcntl

    path = tmp_path / "a.lock"
    path.touch(0o600)
    looker = os.open(path, os.O_RDONLY)
    fcntl.flock(looker, fcntl.LOCK_SH)
    import threading

    timer = threading.Timer(LOCK_WAIT_MS_MAX / 5000, os.close, (looker,))
    timer.start()
    lock = OwnerLock(path)
    assert lock.acquire() is None
    timer.join(10)
    lock.release()


@pytest.mark.parametrize("content", [b"", b"x", b"{}", b'{"pid": "?"}', b"[1]"])
def test_a_holder_that_cannot_be_read_is_still_a_holder(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.lock"
    lock = OwnerLock(path)
    lock.acquire()
    path.write_bytes(content)
    assert owner_of(path) == Owner(pid=0, started_at_ms=0)
    lock.release()


def test_a_lock_is_never_taken_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "a.lock").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic"):
        OwnerLock(tmp_path / "a.lock").acquire()
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("number", [30, 13, 1, 28, 122, 20])
def test_a_home_that_cannot_be_written_is_refused_with_the_reason_and_what_to_do(number: int) -> None:
    with short_home() as home, pytest.raises(HomeRefused) as caught, home_refusals(home):
        raise OSError(number, os.strerror(number), str(home.run))
    assert os.strerror(number) in caught.value.message
    assert "nothing was started" in caught.value.message
    assert "FENCEPOST_HOME" in caught.value.hint
    assert caught.value.state["cause"] == "home_not_writable"


def test_what_the_home_itself_refuses_keeps_its_reason() -> None:
    with pytest.raises(HomeRefused, match="too long") as caught, home_refusals(Home("/x")):
        raise Refused("home_path_too_long", "too long", hint="Choose a shorter one.", state={"longest_bytes": "200"})
    assert caught.value.state == {"cause": "home_path_too_long", "longest_bytes": "200"}


def test_an_error_that_is_not_about_the_home_passes() -> None:
    with pytest.raises(OSError, match="Input"), home_refusals(Home("/x")):
        raise OSError(5, "Input/output error")
