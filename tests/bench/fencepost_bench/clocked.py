"""The mailbox as it is, with a clock on its COMMIT: run as a service in the place of fencepost_mailbox.

Each COMMIT's begin and end, on the system's monotonic clock, go into the file that the environment names, which others
map: first the number of commits, then a ring of pairs.
"""

from __future__ import annotations

import mmap
import os
import runpy
import struct
import time
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "BENCH_COMMITS"
RING_COMMITS: Final = 1 << 16
_COUNT: Final = struct.Struct("=q")
_PAIR: Final = struct.Struct("=qq")
FILE_BYTES: Final = _COUNT.size + RING_COMMITS * _PAIR.size


class Commits:
    """The file, as its writer and its readers map it."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        descriptor = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
        try:
            if create:
                os.ftruncate(descriptor, FILE_BYTES)
            self._map = mmap.mmap(descriptor, FILE_BYTES)
        finally:
            os.close(descriptor)

    @property
    def count(self) -> int:
        """How many commits there were."""
        count: int = _COUNT.unpack_from(self._map)[0]
        return count

    def add(self, begin_ns: int, end_ns: int) -> None:
        """Note a commit; the count is written last."""
        count = self.count
        _PAIR.pack_into(self._map, _COUNT.size + count % RING_COMMITS * _PAIR.size, begin_ns, end_ns)
        _COUNT.pack_into(self._map, 0, count + 1)

    def since(self, count: int) -> list[tuple[int, int]]:
        """Return the commits after the first `count`; the oldest are lost where more than RING_COMMITS followed."""
        first = max(count, self.count - RING_COMMITS)
        places = (_COUNT.size + number % RING_COMMITS * _PAIR.size for number in range(first, self.count))
        return [_PAIR.unpack_from(self._map, place) for place in places]


def main() -> None:
    from fencepost_kit.sqlite import SqliteWriter

    commits, commit, clock = Commits(Path(os.environ[VARIABLE])), SqliteWriter.commit, time.monotonic_ns

    def clocked(writer: SqliteWriter[Any]) -> None:
        begin = clock()
        commit(writer)
        commits.add(begin, clock())

    SqliteWriter.commit = clocked  # type: ignore[method-assign,assignment]
    runpy.run_module("fencepost_mailbox", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
