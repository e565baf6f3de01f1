"""The model of a disk on which the power-cut test stands."""

from __future__ import annotations

import random
from collections.abc import Iterable

from fencepost_powercut.disk import SECTOR_BYTES, Disk, everything_kept, nothing_kept, sectors
from fencepost_powercut.recording import Deleted, Entry, Opened, Synced, Truncated, Written

LOG = "a.db-wal"


def disk_after(entries: Iterable[Entry]) -> Disk:
    disk = Disk()
    for entry in entries:
        disk.feed(entry)
    return disk


def written(content: bytes, *, offset: int = 0, name: str = LOG) -> Written:
    return Written(name=name, offset=offset, content=content)


def test_what_was_not_synced_is_gone_where_nothing_is_kept() -> None:
    disk = disk_after([Opened(name=LOG), written(b"one"), Synced(name=LOG), written(b"two", offset=3)])
    assert disk.after_the_cut(nothing_kept) == {LOG: b"one"}
    assert disk.after_the_cut(everything_kept) == {LOG: b"onetwo"}


def test_a_cut_changes_nothing_for_what_comes_after_it() -> None:
    disk = disk_after([Opened(name=LOG), written(b"one")])
    assert disk.after_the_cut(everything_kept) == {LOG: b"one"}
    assert disk.after_the_cut(nothing_kept) == {}
    disk.feed(Synced(name=LOG))
    assert disk.after_the_cut(nothing_kept) == {LOG: b"one"}


def test_a_write_is_torn_only_where_sectors_end() -> None:
    whole = written(random.Random(7).randbytes(2000), offset=700)
    pieces = list(sectors(whole))
    assert b"".join(piece.content for piece in pieces) == whole.content
    assert [piece.offset % SECTOR_BYTES for piece in pieces[1:]] == [0] * (len(pieces) - 1)


def test_a_later_sector_may_survive_an_earlier_one() -> None:
    disk = disk_after([Opened(name=LOG), written(b"old", offset=0), Synced(name=LOG)])
    disk.feed(written(b"x" * 2 * SECTOR_BYTES))
    answers = iter([False, True])
    torn = disk.after_the_cut(lambda: next(answers))[LOG]
    assert torn == b"old" + bytes(SECTOR_BYTES - 3) + b"x" * SECTOR_BYTES


def test_a_length_that_was_not_synced_may_be_forgotten() -> None:
    disk = disk_after([Opened(name=LOG), written(b"abcdef"), Synced(name=LOG), Truncated(name=LOG, size=2)])
    assert disk.after_the_cut(nothing_kept) == {LOG: b"abcdef"}
    assert disk.after_the_cut(everything_kept) == {LOG: b"ab"}


def test_a_file_that_was_removed_may_come_back_unless_its_folder_was_synced() -> None:
    begin: list[Entry] = [Opened(name=LOG), written(b"one"), Synced(name=LOG)]
    assert disk_after([*begin, Deleted(name=LOG, durable=False)]).after_the_cut(nothing_kept) == {LOG: b"one"}
    assert disk_after([*begin, Deleted(name=LOG, durable=False)]).after_the_cut(everything_kept) == {}
    assert disk_after([*begin, Deleted(name=LOG, durable=True)]).after_the_cut(nothing_kept) == {}


def test_a_database_stands_in_its_folder_only_once_that_was_synced() -> None:
    begin: list[Entry] = [Opened(name="a.db"), written(b"one", name="a.db"), Synced(name="a.db")]
    assert disk_after(begin).after_the_cut(nothing_kept) == {}
    assert disk_after([*begin, Opened(name=LOG), Synced(name=LOG)]).after_the_cut(nothing_kept) == {
        "a.db": b"one",
        LOG: b"",
    }
