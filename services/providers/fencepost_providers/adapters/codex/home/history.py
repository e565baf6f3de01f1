"""Publishing the agent's history.jsonl and session_index.jsonl to the user's own copies.

Records are appended, in one write, behind the file's last whole record and under the locks that Codex itself takes: a
reader sees all of a publication or none, a Codex that runs meanwhile keeps its file and loses nothing, and what a crash
cuts short is a broken end, which the next publication repairs. Source: R104, R105.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from fencepost_kit import faults
from fencepost_kit.files import lock
from fencepost_providers.adapters.codex.home import files
from fencepost_providers.domain.runtimes import Finding, Gravity

HISTORY: Final = "history.jsonl"
INDEX: Final = "session_index.jsonl"
RECORD: Final = "history.json"
DAMAGED: Final = "damaged"
# Codex locks the history itself, and beside the index a file of this name (seen in 0.171.0).
INDEX_LOCK: Final = "session_index.jsonl.lock"
LINE_BYTES_MAX: Final = 1024 * 1024
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
# More than that at the end was not left by a broken write: it may be a form that is not known here.
DAMAGED_BYTES_MAX: Final = 1024 * 1024
CENTRAL_BYTES_MAX: Final = 256 * 1024 * 1024
LOCK_MS_MAX: Final = 5_000
# How many bytes before a position say that it is still the same file.
MARK_BYTES: Final = 4096
REOPENED_MAX: Final = 8
_LOCKED = faults.register("providers.codex_home.history_locked", "the native copy is locked and read, nothing written")
_APPENDED = faults.register("providers.codex_home.history_appended", "records are published, the position is the old")


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A record: what it is about, what identifies it, and which of several about one thing is the newest."""

    subject: str
    identity: bytes
    order: str


def history_entry(fields: Mapping[str, Any]) -> Entry | None:
    """Return what a record of history.jsonl is, or None where it is none."""
    session = fields.get("session_id", fields.get("conversation_id"))
    stamp, text = fields.get("ts"), fields.get("text")
    if not isinstance(session, str) or not session or type(stamp) is not int or not isinstance(text, str):
        return None
    return Entry(subject="", identity=_identity([session, stamp, text]), order="")


def index_entry(fields: Mapping[str, Any]) -> Entry | None:
    """Return what a record of session_index.jsonl is, or None where it is none."""
    session, name, stamp = fields.get("id"), fields.get("thread_name"), fields.get("updated_at")
    if not isinstance(session, str) or not session or not isinstance(stamp, str):
        return None
    if name is not None and not isinstance(name, str):
        return None
    return Entry(subject=session, identity=_identity([session, name, stamp]), order=stamp)


KINDS: Final[Mapping[str, Callable[[Mapping[str, Any]], Entry | None]]] = {HISTORY: history_entry, INDEX: index_entry}


def publish(home: Path, native: Path, records: Path) -> list[Finding]:
    """Publish what is new and complete in the home; may be repeated, and called by several processes at once.

    Nothing is published where the user has no Codex home. What cannot be published now is by the next call.
    """
    if not native.is_dir():
        return []
    notes: list[Finding] = []
    positions = files.read_record(records / RECORD)
    for name in KINDS:
        try:
            skipped = 0
            more = True
            while more:
                position, bad, more = _publish(home / name, native / name, records, positions.get(name))
                skipped += bad
                if position is not None and position != positions.get(name):
                    positions[name] = position
                    files.write_record(records / RECORD, positions)
            if skipped:
                notes.append(_note(f"{skipped} records of {home / name} are malformed and were not published"))
        except (OSError, files.Unreadable) as error:
            what = str(error) if isinstance(error, files.Unreadable) else os.strerror(error.errno or 0)
            notes.append(_note(f"{native / name} was not brought up to date: {what}; nothing of it was changed"))
    return notes


def _note(text: str) -> Finding:
    hint = "The records stay in the agent's own home; the next publication goes on."
    return Finding(code="codex_history_not_published", gravity=Gravity.WARNING, text=text, hint=hint)


def _publish(local: Path, central: Path, records: Path, position: Any) -> tuple[dict[str, Any] | None, int, bool]:
    """Publish one batch; return the new position, how many records were malformed, and whether there is more."""
    try:
        source = local.open("rb")
    except FileNotFoundError:
        return None, 0, False
    with source:
        start = _start(source, position)
        source.seek(start)
        raw = source.read(BATCH_BYTES_MAX)
        end = raw.rfind(b"\n") + 1
        if not end:
            if len(raw) < BATCH_BYTES_MAX:
                return None, 0, False
            raise files.Unreadable(f"{local} has a record of over {BATCH_BYTES_MAX} bytes")
        entries, bad = _entries(raw[:end].split(b"\n")[:-1], KINDS[local.name])
        if entries:
            _append(central, records, entries)
        if faults.ARMED:
            faults.hit(_APPENDED)
        return _mark(source, start + end), bad, len(raw) == BATCH_BYTES_MAX


def _entries(
    lines: list[bytes], kind: Callable[[Mapping[str, Any]], Entry | None]
) -> tuple[list[tuple[Entry, bytes]], int]:
    found = [(entry, line) for line in lines if (entry := _entry(line, kind)) is not None]
    return found, sum(1 for line in lines if line.strip()) - len(found)


def _entry(line: bytes, kind: Callable[[Mapping[str, Any]], Entry | None]) -> Entry | None:
    if len(line) > LINE_BYTES_MAX:
        return None
    fields = _fields(line)
    return None if fields is None else kind(fields)


def _fields(line: bytes) -> dict[str, Any] | None:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _start(source: BinaryIO, position: Any) -> int:
    """Return where to go on; a file that is another now, or was cut, is published from its beginning again."""
    if not isinstance(position, dict) or type(position.get("offset")) is not int:
        return 0
    offset = position["offset"]
    return offset if offset >= 0 and _mark(source, offset) == position else 0


def _mark(source: BinaryIO, offset: int) -> dict[str, Any]:
    begin = max(0, offset - MARK_BYTES)
    source.seek(begin)
    return {"offset": offset, "mark": hashlib.sha256(source.read(offset - begin)).hexdigest()}


def _append(central: Path, records: Path, entries: list[tuple[Entry, bytes]]) -> None:
    with _locked(central) as file:
        known, newest, end, whole = _central(file, KINDS[central.name])
        lines: list[bytes] = []
        for entry, line in entries:
            if entry.identity in known or (entry.subject and entry.order < newest.get(entry.subject, "")):
                continue
            known.add(entry.identity)
            newest[entry.subject] = entry.order
            lines.append(line + b"\n")
        size = os.fstat(file.fileno()).st_size
        # A whole record without its line end would swallow whatever Codex appends next.
        payload = b"".join(lines) if whole else b"\n" + b"".join(lines)
        if not payload and end == size:
            return
        if faults.ARMED:
            faults.hit(_LOCKED)
        if size - end > DAMAGED_BYTES_MAX:
            raise files.Unreadable(f"its last {size - end} bytes are no records, and more than a crash leaves")
        if end < size:
            _keep_damaged(file, records, central.name, end, size)
            if os.fstat(file.fileno()).st_size != size:
                raise files.Unreadable("somebody writes to it without its lock")
            os.ftruncate(file.fileno(), end)
        try:
            written = os.write(file.fileno(), payload)
            if written != len(payload):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(central))
            os.fsync(file.fileno())
        except OSError:
            os.ftruncate(file.fileno(), end)
            raise


def _central(
    file: BinaryIO, kind: Callable[[Mapping[str, Any]], Entry | None]
) -> tuple[set[bytes], dict[str, str], int, bool]:
    """Read the native copy; return identities, newest of each subject, end of its good part, whether that is whole.

    Raises:
        Unreadable: it is over CENTRAL_BYTES_MAX.
    """
    size = os.fstat(file.fileno()).st_size
    if size > CENTRAL_BYTES_MAX:
        raise files.Unreadable(f"it is over {CENTRAL_BYTES_MAX} bytes")
    known: set[bytes] = set()
    newest: dict[str, str] = {}
    end, at, whole = 0, 0, True
    file.seek(0)
    for line in _lines(file):
        at += len(line)
        fields = _fields(line)
        if fields is None:
            # Blank or broken: part of the damaged end, unless something good follows.
            continue
        end, whole = at, line.endswith(b"\n")
        entry = kind(fields)
        if entry is not None:
            known.add(entry.identity)
            newest[entry.subject] = max(newest.get(entry.subject, ""), entry.order)
    return known, newest, end, whole


def _lines(file: BinaryIO) -> Iterator[bytes]:
    rest = b""
    while block := file.read(BATCH_BYTES_MAX):
        *lines, rest = (rest + block).split(b"\n")
        yield from (line + b"\n" for line in lines)
    if rest:
        yield rest


def _keep_damaged(file: BinaryIO, records: Path, name: str, begin: int, end: int) -> None:
    """Keep what a repair takes out, in the agent's folder: it may be somebody's text."""
    file.seek(begin)
    raw = file.read(end - begin)
    if raw.strip():
        folder = records / DAMAGED
        files.make_private(folder)
        files.write(folder / f"{name}.{hashlib.sha256(raw).hexdigest()[:16]}", raw)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    """Open the native copy, 0600 where it is new, and hold the locks that Codex takes for it.

    Raises:
        Unreadable: it is no plain file, or somebody else holds a lock for LOCK_MS_MAX.
    """
    with contextlib.ExitStack() as held:
        if path.name == INDEX:
            _hold(held.enter_context(_opened(path.with_name(INDEX_LOCK))))
        for _ in range(REOPENED_MAX):
            with _opened(path) as file:
                _hold(file)
                # Not one that was put in the file's place while we waited.
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    yield file
                    return
    raise files.Unreadable("it is replaced again and again")


def _opened(path: Path) -> BinaryIO:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    file = os.fdopen(os.open(path, flags, files.PRIVATE_MODE), "r+b", buffering=0)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise files.Unreadable("it is no plain file")
    return file


def _hold(file: BinaryIO) -> None:
    """Lock an open file; closing it frees the lock."""
    if not lock(file.fileno(), ms_max=LOCK_MS_MAX):
        raise files.Unreadable(f"somebody else holds its lock for {LOCK_MS_MAX} ms")


def _identity(parts: list[Any]) -> bytes:
    return hashlib.sha256(json.dumps(parts).encode()).digest()[:16]
