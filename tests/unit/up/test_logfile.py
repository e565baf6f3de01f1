"""Logs of services: whole lines, bounded lines, bounded files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.up.logfile import LINE_BYTES_MAX, LogFile


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@given(pieces=st.lists(st.binary(max_size=50), max_size=20))
def test_lines_are_whole_however_they_come(pieces: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("log") / "a.log"
    log = LogFile(path)
    for piece in pieces:
        log.feed(piece)
    log.close()
    whole = b"".join(pieces).replace(b"\r", b"\n")
    expected = [line for line in whole.split(b"\n") if line]
    assert (path.read_bytes().splitlines() if path.exists() else []) == expected


@pytest.mark.requirement("up.logs-are-bounded")
@pytest.mark.parametrize(
    ("length", "cut"), [(LINE_BYTES_MAX, 0), (LINE_BYTES_MAX + 1, 1), (LINE_BYTES_MAX * 3, LINE_BYTES_MAX * 2)]
)
def test_a_line_is_kept_up_to_its_limit_and_says_what_was_cut(tmp_path: Path, length: int, cut: int) -> None:
    log = LogFile(tmp_path / "a.log")
    for _ in range(length // 1000):
        log.feed(b"x" * 1000)
    log.feed(b"x" * (length % 1000) + b"\nnext\n")
    log.close()
    first, second = (tmp_path / "a.log").read_bytes().splitlines()
    assert first == b"x" * LINE_BYTES_MAX + (b" ... (%d bytes cut)" % cut if cut else b"")
    assert second == b"next"


@pytest.mark.requirement("up.logs-are-bounded")
def test_a_file_is_turned_at_its_limit_and_the_oldest_goes(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "a.log", bytes_max=20, files_max=3)
    for number in range(9):
        log.feed(b"line %d...\n" % number)
    log.close()
    assert files(tmp_path) == {
        "a.log": b"line 8...\n",
        "a.log.1": b"line 6...\nline 7...\n",
        "a.log.2": b"line 4...\nline 5...\n",
    }


def test_one_kept_file_starts_anew_at_its_limit(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "a.log", bytes_max=20, files_max=1)
    for number in range(3):
        log.feed(b"line %d...\n" % number)
    log.close()
    assert files(tmp_path) == {"a.log": b"line 2...\n"}


def test_a_new_process_goes_on_where_the_old_one_ended(tmp_path: Path) -> None:
    for text in (b"one\n", b"two\n"):
        log = LogFile(tmp_path / "a.log", bytes_max=8, files_max=2)
        log.feed(text)
        log.close()
    assert files(tmp_path) == {"a.log": b"one\ntwo\n"}
    assert (tmp_path / "a.log").stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_written_is_lost_and_counted_and_later_lines_come_through(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    log = LogFile(folder / "a.log")
    log.feed(b"lost\n")
    assert log.lost_lines == 1
    folder.mkdir()
    log.feed(b"kept\n")
    log.close()
    assert files(folder) == {"a.log": b"kept\n"}


def test_the_last_line_is_remembered_for_whoever_reports_a_failure(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "a.log")
    log.feed(b"first\nlast\nunfinished")
    assert log.last_line == b"last"
    log.close()
    assert log.last_line == b"unfinished"
