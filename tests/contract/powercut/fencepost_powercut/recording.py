"""A VFS of SQLite that does what the system's does and writes down every write, truncation, sync and deletion."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import apsw

_numbers = itertools.count()


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """A file was opened, and made where it was not there."""

    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """Bytes were handed to the system."""

    name: str
    offset: int
    content: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Truncated:
    """A file was given a length."""

    name: str
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Synced:
    """Everything written to the file so far is on the platter."""

    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Deleted:
    """A file was removed; `durable` where its folder was synced too."""

    name: str
    durable: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """The store said that everything up to this state is durable."""

    state: int


Entry = Opened | Written | Truncated | Synced | Deleted | Told


@dataclass(slots=True)
class Recording:
    """What happened to the files of one folder, in order. Names are relative to it."""

    vfs: str = ""
    entries: list[Entry] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        """Append; called from the writer's thread and from the loop's."""
        self.entries.append(entry)


def _name_of(filename: str | apsw.URIFilename | None) -> str:
    text = filename.filename() if isinstance(filename, apsw.URIFilename) else filename
    return Path(text).name if text else ""


class _File(apsw.VFSFile):
    """A file that tells what is done to it."""

    def __init__(self, recording: Recording, filename: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("", filename, flags)
        self._recording = recording
        self._name = _name_of(filename)
        if self._name:
            recording.add(Opened(name=self._name))

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        if self._name:
            self._recording.add(Written(name=self._name, offset=offset, content=bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        if self._name:
            self._recording.add(Truncated(name=self._name, size=newsize))

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        if self._name:
            self._recording.add(Synced(name=self._name))


class _RecordingVfs(apsw.VFS):
    def __init__(self, recording: Recording) -> None:
        super().__init__(recording.vfs, "")
        self._recording = recording

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _File(self._recording, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self._recording.add(Deleted(name=_name_of(filename), durable=syncdir))


@contextlib.contextmanager
def recorded() -> Iterator[Recording]:
    """Register a recording VFS for the length of the block; its name is in the recording."""
    recording = Recording(vfs=f"recording-{next(_numbers)}")
    vfs = _RecordingVfs(recording)
    try:
        yield recording
    finally:
        vfs.unregister()
