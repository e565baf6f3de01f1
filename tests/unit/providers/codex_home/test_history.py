"""History and index reach the person's own copies: each complete record once, whatever else writes or crashes."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_kit import faults
from fencepost_providers.adapters.codex.home import history

CHILD_SECONDS_MAX = 30


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "agent"
    folder.mkdir()
    return folder


@pytest.fixture
def records(tmp_path: Path) -> Path:
    folder = tmp_path / "records"
    folder.mkdir()
    return folder


def said(number: int, text: str = "hello") -> bytes:
    return json.dumps({"session_id": "s", "ts": number, "text": text}).encode() + b"\n"


def named(session: str, name: str, stamp: str) -> bytes:
    return json.dumps({"id": session, "thread_name": name, "updated_at": stamp}).encode() + b"\n"


def publish(home: Path, native: Path, records: Path) -> list[str]:
    return [note.code for note in history.publish(home, native, records)]


def central(native: Path, name: str = history.HISTORY) -> bytes:
    return (native / name).read_bytes()


@pytest.mark.requirement("codex.history-is-published")
def test_complete_records_are_appended_once_and_a_partial_one_waits(home: Path, native: Path, records: Path) -> None:
    (native / history.HISTORY).write_bytes(said(1))
    (home / history.HISTORY).write_bytes(said(1) + said(2) + said(3)[:-5])
    assert publish(home, native, records) == []
    assert central(native) == said(1) + said(2)
    assert publish(home, native, records) == []
    with (home / history.HISTORY).open("ab") as file:
        file.write(said(3)[-5:] + said(3) + said(4))
    assert publish(home, native, records) == []
    assert central(native) == b"".join(map(said, range(1, 5)))
    assert (native / history.HISTORY).stat().st_mode & 0o777 == 0o644 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.requirement("codex.history-is-published")
def test_a_new_native_copy_is_private_and_without_a_native_home_nothing_is_made(
    home: Path, native: Path, records: Path
) -> None:
    (home / history.HISTORY).write_bytes(said(1))
    native.rmdir()
    assert publish(home, native, records) == []
    assert not native.exists()
    native.mkdir()
    assert publish(home, native, records) == []
    assert central(native) == said(1)
    assert (native / history.HISTORY).stat().st_mode & 0o777 == 0o600


@pytest.mark.requirement("codex.history-is-published")
def test_malformed_records_are_counted_and_left_out(home: Path, native: Path, records: Path) -> None:
    bad = [b"nonsense", b"[]", b'{"session_id": "", "ts": 1, "text": ""}', b'{"ts": 1, "text": "x"}', b"\xff"]
    bad += [b'{"session_id": "s", "ts": true, "text": "x"}', said(9, "x" * history.LINE_BYTES_MAX).strip()]
    (home / history.HISTORY).write_bytes(b"\n".join(bad) + b"\n" + said(1) + b"\n")
    [note] = history.publish(home, native, records)
    assert note.code == "codex_history_not_published"
    assert f"{len(bad)} records" in note.text
    assert central(native) == said(1)
    assert publish(home, native, records) == []


@pytest.mark.requirement("codex.history-is-published")
def test_the_older_form_of_a_record_is_one_too(home: Path, native: Path, records: Path) -> None:
    line = b'{"conversation_id":"s","ts":1,"text":"x"}\n'
    (home / history.HISTORY).write_bytes(line)
    publish(home, native, records)
    assert central(native) == line


@pytest.mark.requirement("codex.history-is-published")
def test_an_older_name_of_a_conversation_does_not_come_behind_a_newer_one(
    home: Path, native: Path, records: Path
) -> None:
    newer = named("a", "the person's", "2026-11-30T12:00:00Z")
    (native / history.INDEX).write_bytes(newer)
    latest = named("b", "only here", "2026-11-30T10:00:00Z") + named("a", "latest", "2026-11-30T13:00:00Z")
    (home / history.INDEX).write_bytes(named("a", "older", "2026-11-30T11:00:00Z") + latest)
    assert publish(home, native, records) == []
    assert central(native, history.INDEX) == newer + latest


@pytest.mark.parametrize(
    ("tail", "kept"),
    [
        (b'{"session_id": "s", "ts": 5, "te', b'{"session_id": "s", "ts": 5, "te'),
        (b"\0\0\0\0", b"\0\0\0\0"),
        (b"garbage\nmore\n", b"garbage\nmore\n"),
        (b"\n\n", None),
        (b"", None),
    ],
)
@pytest.mark.requirement("codex.broken-ends-are-repaired")
def test_a_broken_end_of_the_native_copy_is_repaired_and_what_was_cut_is_kept(
    home: Path, native: Path, records: Path, tail: bytes, kept: bytes | None
) -> None:
    (native / history.HISTORY).write_bytes(said(1) + b"broken, but not the end\n" + said(2) + tail)
    (home / history.HISTORY).write_bytes(said(3))
    assert publish(home, native, records) == []
    assert central(native) == said(1) + b"broken, but not the end\n" + said(2) + said(3)
    damaged = list((records / history.DAMAGED).iterdir()) if kept else []
    assert [path.read_bytes() for path in damaged] == ([kept] if kept else [])


@pytest.mark.requirement("codex.broken-ends-are-repaired")
def test_a_file_in_a_form_that_is_not_known_is_never_cut(
    home: Path, native: Path, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "DAMAGED_BYTES_MAX", 10)
    (home / history.HISTORY).write_bytes(said(1))
    (native / history.HISTORY).write_bytes(b"12345678901")
    assert publish(home, native, records) == ["codex_history_not_published"]
    assert central(native) == b"12345678901"
    (native / history.HISTORY).write_bytes(b"1234567890")
    assert publish(home, native, records) == []
    assert central(native) == said(1)


@pytest.mark.requirement("codex.broken-ends-are-repaired")
def test_a_whole_last_record_that_only_lacks_its_line_end_gets_it(home: Path, native: Path, records: Path) -> None:
    (native / history.HISTORY).write_bytes(said(1) + said(2)[:-1])
    (home / history.HISTORY).write_bytes(said(3))
    assert publish(home, native, records) == []
    assert central(native) == said(1) + said(2) + said(3)


@pytest.mark.requirement("codex.history-is-published")
def test_a_local_file_that_was_cut_or_replaced_is_read_again_without_doubling(
    home: Path, native: Path, records: Path
) -> None:
    (home / history.HISTORY).write_bytes(said(1) + said(2) + said(3))
    publish(home, native, records)
    (home / history.HISTORY).write_bytes(said(2) + said(3) + said(4))
    publish(home, native, records)
    (home / history.HISTORY).write_bytes(said(5))
    publish(home, native, records)
    assert central(native) == b"".join(map(said, range(1, 6)))


@pytest.mark.requirement("codex.history-is-published")
def test_what_a_person_took_out_of_the_native_copy_does_not_come_back(home: Path, native: Path, records: Path) -> None:
    (home / history.HISTORY).write_bytes(said(1) + said(2))
    publish(home, native, records)
    (native / history.HISTORY).write_bytes(said(2))
    with (home / history.HISTORY).open("ab") as file:
        file.write(said(3))
    publish(home, native, records)
    assert central(native) == said(2) + said(3)


@pytest.mark.requirement("codex.history-is-published")
def test_a_file_of_any_size_is_read_in_bounded_batches(
    home: Path, native: Path, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "BATCH_BYTES_MAX", 256)
    lines = b"".join(map(said, range(50)))
    (home / history.HISTORY).write_bytes(lines)
    assert publish(home, native, records) == []
    assert central(native) == lines
    (home / history.HISTORY).write_bytes(lines + said(51, "x" * 300))
    assert publish(home, native, records) == ["codex_history_not_published"]
    assert central(native) == lines


@pytest.mark.requirement("codex.history-is-published")
def test_a_native_copy_that_is_too_large_locked_or_no_file_is_left_for_the_next_time(
    home: Path, native: Path, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / history.HISTORY).write_bytes(said(2))
    (native / history.HISTORY).write_bytes(said(1))
    monkeypatch.setattr(history, "LOCK_MS_MAX", 30)
    with (native / history.HISTORY).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert publish(home, native, records) == ["codex_history_not_published"]
    monkeypatch.setattr(history, "CENTRAL_BYTES_MAX", len(said(1)) - 1)
    assert publish(home, native, records) == ["codex_history_not_published"]
    assert central(native) == said(1)
    monkeypatch.setattr(history, "CENTRAL_BYTES_MAX", len(said(1)))
    (native / history.HISTORY).rename(native / "kept")
    (native / history.HISTORY).mkdir()
    assert publish(home, native, records) == ["codex_history_not_published"]
    (native / history.HISTORY).rmdir()
    (native / "kept").rename(native / history.HISTORY)
    assert publish(home, native, records) == []
    assert central(native) == said(1) + said(2)


@pytest.mark.requirement("codex.history-is-published")
def test_the_index_is_published_under_the_lock_that_codex_keeps_beside_it(
    home: Path, native: Path, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = named("a", "name", "2026-11-30T12:00:00Z")
    (home / history.INDEX).write_bytes(line)
    monkeypatch.setattr(history, "LOCK_MS_MAX", 30)
    with (native / history.INDEX_LOCK).open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert publish(home, native, records) == ["codex_history_not_published"]
        assert not (native / history.INDEX).exists()
    assert publish(home, native, records) == []
    assert central(native, history.INDEX) == line


@pytest.mark.requirement("codex.history-is-published")
def test_a_full_disk_leaves_the_native_copy_as_it_was(
    home: Path, native: Path, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (native / history.HISTORY).write_bytes(said(1))
    (home / history.HISTORY).write_bytes(said(2))
    real = os.write

    def half(handle: int, payload: bytes) -> int:
        return real(handle, payload[: len(payload) // 2])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", half)
        assert publish(home, native, records) == ["codex_history_not_published"]
    assert central(native) == said(1)
    assert publish(home, native, records) == []
    assert central(native) == said(1) + said(2)


@pytest.mark.parametrize("point", ["history_locked", "history_appended"])
@pytest.mark.requirement("codex.history-is-published", "codex.preparation-survives-crashes")
def test_an_end_of_the_process_at_any_step_loses_and_doubles_nothing(
    home: Path, native: Path, records: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    class Died(BaseException):
        pass

    def hit(name: str) -> None:
        if name.endswith(point):
            raise Died

    (home / history.HISTORY).write_bytes(said(1) + said(2))
    with monkeypatch.context() as patched:
        patched.setattr(faults, "ARMED", True)
        patched.setattr(faults, "hit", hit)
        with pytest.raises(Died):
            publish(home, native, records)
    assert publish(home, native, records) == []
    assert central(native) == said(1) + said(2)


@pytest.mark.requirement("codex.history-is-published")
@given(cut=st.integers(0, 400), lines=st.lists(st.sampled_from([said(n) for n in range(8)]), max_size=8))
def test_wherever_a_write_to_the_native_copy_was_cut_each_record_stands_there_once_afterwards(
    cut: int, lines: list[bytes]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home, native, records = (Path(folder, name) for name in ("home", "native", "records"))
        for place in (home, native, records):
            place.mkdir()
        whole = b"".join(dict.fromkeys(lines))
        (native / history.HISTORY).write_bytes(whole[:cut])
        (home / history.HISTORY).write_bytes(whole)
        publish(home, native, records)
        assert central(native) == whole if lines else not (native / history.HISTORY).read_bytes()


PROGRAM = """
import sys, time
from pathlib import Path
from fencepost_providers.adapters.codex.home import history
home, native, records = map(Path, sys.argv[1:4])
while not (native / "go").exists():
    time.sleep(0.001)
for line in (home / "lines").read_bytes().splitlines(keepends=True):
    with (home / "history.jsonl").open("ab") as file:
        file.write(line)
    assert history.publish(home, native, records) == []
"""


@pytest.mark.requirement("codex.history-is-published")
def test_processes_that_publish_at_once_lose_and_double_nothing_beside_a_codex_that_appends(
    native: Path, tmp_path: Path
) -> None:
    children: list[subprocess.Popen[bytes]] = []
    count, shared = 25, 10
    for agent in range(3):
        home, records = tmp_path / f"home{agent}", tmp_path / f"records{agent}"
        home.mkdir()
        records.mkdir()
        own = [said(1000 * (agent + 1) + number) for number in range(count)]
        (home / "lines").write_bytes(b"".join([said(number) for number in range(shared)] + own))
        children.append(subprocess.Popen([sys.executable, "-c", PROGRAM, home, native, records]))
    (native / "go").touch()
    person = [said(10_000 + number) for number in range(count)]
    for line in person:
        _append_as_codex_does(native / history.HISTORY, line)
        time.sleep(0)
    assert [child.wait(timeout=CHILD_SECONDS_MAX) for child in children] == [0, 0, 0]
    lines = central(native).splitlines(keepends=True)
    wanted = {said(number) for number in range(shared)} | set(person)
    wanted |= {said(1000 * (agent + 1) + number) for agent in range(3) for number in range(count)}
    assert sorted(lines) == sorted(wanted)


def _append_as_codex_does(path: Path, line: bytes) -> None:
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.write(handle, line)
    finally:
        os.close(handle)


def test_kinds_name_what_identifies_a_record() -> None:
    fields: dict[str, Any] = {"id": "a", "thread_name": None, "updated_at": "t"}
    assert history.index_entry(fields) is not None
    assert history.index_entry({**fields, "thread_name": 1}) is None
    assert history.index_entry({**fields, "updated_at": 1}) is None
    assert history.index_entry({**fields, "id": ""}) is None
