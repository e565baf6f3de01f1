"""What a disk holds after the power went: everything that was synced, and any part of what was not.

The model, stricter than most disks: an unsynced write survives whole, in any of its sectors, or not at all, whatever
became of the writes before it; a length that was not synced may be forgotten; a file made or removed is so for certain
only once its folder was synced. Bytes that nobody wrote are left alone (SQLite's "powersafe overwrite").
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fencepost_powercut.recording import Deleted, Entry, Opened, Synced, Told, Truncated, Written

SECTOR_BYTES: Final = 512
# SQLite syncs the folder with the first sync of these; of the database itself it never does.
_SYNCS_FOLDER: Final = ("-journal", "-wal")

Pending = Written | Truncated
# Tells, for a piece of what was not synced, whether the disk kept it.
Kept = Callable[[], bool]


@dataclass(slots=True)
class _File:
    """One inode: what is on the platter, and what is on its way."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[Pending] = field(default_factory=list)
    folder_synced: bool = False


def _apply(content: bytearray, entry: Pending) -> None:
    if isinstance(entry, Truncated):
        del content[entry.size :]
        content.extend(bytes(entry.size - len(content)))
    else:
        content.extend(bytes(max(0, entry.offset - len(content))))
        content[entry.offset : entry.offset + len(entry.content)] = entry.content


def sectors(entry: Written) -> Iterator[Written]:
    """Split a write where sectors end."""
    begin = 0
    while begin < len(entry.content):
        end = begin + SECTOR_BYTES - (entry.offset + begin) % SECTOR_BYTES
        yield Written(name=entry.name, offset=entry.offset + begin, content=entry.content[begin:end])
        begin = end


class Disk:
    """The files of one folder as the system sees them, and as the platter does."""

    def __init__(self) -> None:
        self._seen: dict[str, _File] = {}
        self._durable: dict[str, _File] = {}

    def feed(self, entry: Entry) -> None:
        """Let one thing happen."""
        match entry:
            case Opened(name=name):
                self._seen.setdefault(name, _File())
            case Written(name=name) | Truncated(name=name):
                self._seen[name].pending.append(entry)
            case Synced(name=name):
                self._sync(name)
            case Deleted(name=name, durable=durable):
                self._seen.pop(name, None)
                if durable:
                    self._durable = dict(self._seen)
            case Told():
                pass

    def _sync(self, name: str) -> None:
        file = self._seen[name]
        for entry in file.pending:
            _apply(file.durable, entry)
        file.pending.clear()
        if name.endswith(_SYNCS_FOLDER) and not file.folder_synced:
            file.folder_synced = True
            self._durable = dict(self._seen)

    def after_the_cut(self, kept: Kept) -> dict[str, bytes]:
        """Return what a person finds: by name, the content."""
        found: dict[str, bytes] = {}
        for name in sorted({*self._seen, *self._durable}):
            seen, durable = self._seen.get(name), self._durable.get(name)
            file = seen if seen is durable or kept() else durable
            if file is None:
                continue
            content = bytearray(file.durable)
            for entry in file.pending:
                pieces = [entry] if isinstance(entry, Truncated) else sectors(entry)
                for piece in pieces:
                    if kept():
                        _apply(content, piece)
            found[name] = bytes(content)
        return found


def nothing_kept() -> bool:
    """Drop whatever was not synced."""
    return False


def everything_kept() -> bool:
    """Keep whatever was written, as where only the process died."""
    return True


def some_kept(seed: str) -> Kept:
    """Keep any part: often most of it, often little, decided by the seed."""
    dice = random.Random(seed)
    share = dice.choice((0.05, 0.5, 0.95))
    return lambda: dice.random() < share


def lay_out(folder: Path, found: dict[str, bytes]) -> None:
    """Write the files that were found."""
    for name, content in found.items():
        (folder / name).write_bytes(content)
