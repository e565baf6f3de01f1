"""What was put into which file: written before the file is, so that it can be taken out whatever happens after."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from fencepost.connect import files
from fencepost.connect.changes import Change
from fencepost.errors import Refused
from fencepost.home import Home

SCHEMA: Final = 1
RECORDS_MAX: Final = 1000
_NAME_CHARS: Final = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """What is ours in one file of one program."""

    program: str
    # configuration, approvals or instructions.
    role: str
    # The file, and the program's configuration that it belongs to.
    path: Path
    configuration: Path
    at_ms: int
    # Whether there was a file; its content then lies beside the record.
    existed: bool
    # SHA-256 of what was written: a file that still is that is restored byte for byte.
    after: str
    changes: tuple[Change, ...]
    # What was put there before that: still ours, where a crash left it.
    before: tuple[Change, ...]
    tools: tuple[str, ...]
    folders: tuple[Path, ...]

    @property
    def name(self) -> str:
        """The name of the record's file, without its ending."""
        place = hashlib.sha256(os.fsencode(f"{self.program}\0{self.path}")).hexdigest()
        return f"{self.program}-{place[:_NAME_CHARS]}"


def digest(raw: bytes) -> str:
    """Return the SHA-256 of a content."""
    return hashlib.sha256(raw).hexdigest()


def save(home: Home, record: Record, backup: bytes | None) -> None:
    """Write a record and the content to go back to, durably; the caller holds the lock."""
    folder = files.folder_of(home)
    if backup is not None:
        _put(folder / f"{record.name}.backup", backup)
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "program": record.program,
        "role": record.role,
        "path": os.fsdecode(record.path),
        "configuration": os.fsdecode(record.configuration),
        "at_ms": record.at_ms,
        "existed": record.existed,
        "after": record.after,
        "changes": [change.to_json() for change in record.changes],
        "before": [change.to_json() for change in record.before],
        "tools": list(record.tools),
        "folders": [os.fsdecode(folder) for folder in record.folders],
    }
    _put(folder / f"{record.name}.json", json.dumps(fields, indent=1).encode() + b"\n")


def note_folders(home: Home, record: Record, folders: list[Path]) -> None:
    """Add the folders that were made for a file to its record."""
    if folders:
        save(home, replace(record, folders=(*record.folders, *folders)), None)


def backup_of(home: Home, record: Record) -> bytes | None:
    """Return the content to go back to, or None where there was no file. Refuses where it is lost."""
    if not record.existed:
        return None
    raw = files.read(backup_path(home, record))
    if raw is None:
        raise Refused("backup_missing", f"the backup of {record.path} is gone; nothing was written")
    return raw


def backup_path(home: Home, record: Record) -> Path:
    """Return where the content to go back to lies."""
    return files.folder_of(home) / f"{record.name}.backup"


def forget(home: Home, record: Record, *, with_backup: bool) -> None:
    """Remove a record, and where nothing is lost by it, the backup."""
    (files.folder_of(home) / f"{record.name}.json").unlink(missing_ok=True)
    if with_backup:
        backup_path(home, record).unlink(missing_ok=True)


def every(home: Home) -> Iterator[Record]:
    """Yield the records of a home, at most RECORDS_MAX; refuse one that cannot be read."""
    folder = files.folder_of(home)
    for path in sorted(folder.glob("*.json"))[:RECORDS_MAX]:
        raw = files.read(path)
        if raw is not None:
            yield _record(path, raw)


def find(home: Home, program: str, path: Path) -> Record | None:
    """Return what is ours in a file, or None."""
    return next((record for record in every(home) if record.program == program and record.path == path), None)


def _record(path: Path, raw: bytes) -> Record:
    try:
        fields = json.loads(raw)
        if fields["schema"] != SCHEMA:
            raise ValueError(f"schema {fields['schema']}")
        return Record(
            program=str(fields["program"]),
            role=str(fields["role"]),
            path=Path(fields["path"]),
            configuration=Path(fields["configuration"]),
            at_ms=int(fields["at_ms"]),
            existed=bool(fields["existed"]),
            after=str(fields["after"]),
            changes=tuple(Change.from_json(change) for change in fields["changes"]),
            before=tuple(Change.from_json(change) for change in fields["before"]),
            tools=tuple(str(tool) for tool in fields["tools"]),
            folders=tuple(Path(folder) for folder in fields["folders"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(
            "record_unreadable",
            f"the record {path} cannot be read ({type(error).__name__}); nothing was written",
            hint="It says what was put into a program's configuration. Move it away, and take the entry out by hand.",
        ) from None


def _put(path: Path, content: bytes) -> None:
    files.replace(path, content, before=files.read(path))
