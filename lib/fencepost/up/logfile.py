"""A service's log: whole lines of bounded length in a file of bounded size, of which a bounded number is kept."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

LINE_BYTES_MAX: Final = 16 * 1024
LOG_BYTES_MAX: Final = 8 * 1024 * 1024
LOG_FILES_MAX: Final = 3
TAIL_BYTES_MAX: Final = 2_000


class LogFile:
    """Appends what a child writes, line by line. A full disk loses lines and never blocks the child or raises.

    At `bytes_max` the file becomes <name>.1, that becomes .2, and so on; `files_max` files are kept in all.
    """

    def __init__(self, path: Path, *, bytes_max: int = LOG_BYTES_MAX, files_max: int = LOG_FILES_MAX) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._handle = -1
        self._size = 0
        self._partial = bytearray()
        self._cut = 0
        self.lost_lines = 0
        self.last_line = b""

    def feed(self, data: bytes) -> None:
        """Take bytes as they come; a line over LINE_BYTES_MAX is cut and says by how much."""
        for piece in data.splitlines(keepends=True):
            ends = piece.endswith((b"\n", b"\r"))
            room = LINE_BYTES_MAX - len(self._partial)
            text = piece.rstrip(b"\r\n") if ends else piece
            self._partial += text[:room]
            self._cut += max(0, len(text) - room)
            if ends:
                self.end_line()

    def end_line(self) -> None:
        """Write what has come of the present line, if anything."""
        if not self._partial and not self._cut:
            return
        line = bytes(self._partial)
        if self._cut:
            line += b" ... (%d bytes cut)" % self._cut
        self._partial.clear()
        self._cut = 0
        self.last_line = line[:TAIL_BYTES_MAX]
        self._write(line + b"\n")

    def close(self) -> None:
        """Write what is left and close the file."""
        self.end_line()
        self._close()

    def _write(self, line: bytes) -> None:
        try:
            if self._handle < 0:
                self._open()
            if self._size and self._size + len(line) > self._bytes_max:
                self._rotate()
            self._size += os.write(self._handle, line)
        except OSError:
            self.lost_lines += 1
            self._close()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._handle = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._handle).st_size

    def _close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _rotate(self) -> None:
        self._close()
        for number in range(self._files_max - 1, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            newer = self._path if number == 1 else self._path.with_name(f"{self._path.name}.{number - 1}")
            with contextlib.suppress(FileNotFoundError):
                newer.replace(older)
        if self._files_max == 1:
            self._path.unlink(missing_ok=True)
        self._open()
