"""A person's terminal: what is run in it, what it shows, and what a terminal answers by itself."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from fencepost_testing.processes import dying_with_us

ROWS_AND_COLUMNS: Final = (40, 120)
END_S_MAX: Final = 20
KEPT_BYTES_MAX: Final = 4 * 1024 * 1024
# What a terminal answers when it is asked for its cursor, its kind and its colours.
ANSWERS: Final = {
    b"\x1b[6n": b"\x1b[1;1R",
    b"\x1b[c": b"\x1b[?1;2c",
    b"\x1b]10;?": b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
    b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
}
_CONTROL: Final = re.compile(rb"\x1b\[[0-9;?<>=]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]")


class Terminal:
    """Runs a command in a terminal of its own while it is open; use it as `with`. No prompt is answered by it."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> None:
        self._words = words
        self._environment = environment
        self._cwd = cwd
        self._shown = bytearray()

    def __enter__(self) -> Self:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *ROWS_AND_COLUMNS, 0, 0))
        self.child = subprocess.Popen(
            dying_with_us(*self._words),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=dict(self._environment),
            cwd=self._cwd,
            start_new_session=True,
        )
        os.close(theirs)
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGHUP)
            try:
                self.child.wait(END_S_MAX)
            except subprocess.TimeoutExpired:
                os.killpg(self.child.pid, signal.SIGKILL)
                self.child.wait()
        self._reading.join(END_S_MAX)
        os.close(self._ours)

    @property
    def text(self) -> str:
        """Everything that was ever shown, without control sequences and without white space."""
        return re.sub(r"\s+", "", _CONTROL.sub(b"", bytes(self._shown)).decode("utf-8", "replace"))

    def shows(self, words: str) -> bool:
        """Whether these words were shown, however they were broken into lines."""
        return re.sub(r"\s+", "", words) in self.text

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._ours, 65536)
            except OSError:
                return
            if not data:
                return
            self._shown += data
            del self._shown[:-KEPT_BYTES_MAX]
            for asked, answer in ANSWERS.items():
                if asked in data:
                    os.write(self._ours, answer)
