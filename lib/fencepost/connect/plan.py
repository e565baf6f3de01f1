"""Connecting and disconnecting a program: first all is decided, then written; nothing is replaced by surprise."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fencepost.connect import changes as changing
from fencepost.connect import files, records
from fencepost.connect.changes import Change, State, Wanted, snippet_change, state
from fencepost.connect.entry import Server
from fencepost.connect.programs import Approving, Environment, Program
from fencepost.connect.records import Record
from fencepost.connect.texts import NotEditable, NotReadable
from fencepost.errors import Refused
from fencepost.home import Home

CONFIGURATION: Final = "configuration"


@dataclass(frozen=True, kw_only=True, slots=True)
class FilePlan:
    """What one file is to become. `record` is None where nothing is to be written."""

    path: Path
    role: str
    before: bytes | None
    after: bytes
    backup: bytes | None
    record: Record | None
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Undone:
    """What became of one file: restored, removed, taken_out, left or gone; with what is to be said of it."""

    path: Path
    role: str
    what: str
    notes: tuple[str, ...] = ()


def configuration_of(program: Program, env: Environment) -> Path:
    """Return the program's configuration file, absolute; a link is not followed: its name is what a person knows."""
    return Path(os.path.abspath(program.file(env)))  # noqa: PTH100 (a name, not a lookup)


def plan(
    home: Home,
    program: Program,
    server: Server,
    *,
    env: Environment,
    tools: Sequence[str] = (),
    instructions: Path | None = None,
    now_ms: int = 0,
) -> list[FilePlan]:
    """Return what every file is to become; looks, and writes nothing.

    Tools that were approved at an earlier connect stay approved. `instructions` is the project folder whose file of
    instructions is to have the snippet.

    Raises:
        Refused: the name is taken by an entry that is not ours (name_occupied) or that somebody has edited since
            (entry_edited), a file cannot be read or edited safely, approvals are asked for where nobody knows how.
    """
    configuration = configuration_of(program, env)
    earlier = records.find(home, program.name, configuration)
    tools = tuple(dict.fromkeys((*(earlier.tools if earlier else ()), *tools)))
    own, second = changing.entry_changes(program, program.entry(server), tools)
    wanted: list[tuple[Path, Wanted]] = []
    if second is not None and program.approval.file is not None:
        wanted.append((Path(os.path.abspath(program.approval.file(env))), second))  # noqa: PTH100 (a name)
    if instructions is not None:
        wanted.append((instructions / program.instructions, snippet_change()))
    wanted.append((configuration, own))
    found: list[FilePlan] = []
    for path, want in wanted:
        blank = Record(
            program=program.name,
            role=want.role,
            path=path,
            configuration=configuration,
            at_ms=now_ms,
            existed=False,
            after="",
            changes=(),
            before=(),
            tools=tools,
            folders=(),
        )
        found.append(_file_plan(home, program, blank, want))
    if tools and program.approval.how is Approving.NEVER_ASKED:
        found[-1] = replace(found[-1], notes=(*found[-1].notes, f"{program.title} asks for no approval of tools"))
    return found


def _file_plan(home: Home, program: Program, blank: Record, want: Wanted) -> FilePlan:
    path = blank.path
    before = files.read(path)
    earlier = records.find(home, blank.program, path)
    base = before
    if earlier is not None:
        base = _base(home, earlier, before)
    text = files.text_of(path, base)
    mark, text = (files.BOM, text[1:]) if text.startswith(files.BOM) else ("", text)
    made: list[Change] = []
    notes: list[str] = []
    try:
        for change in want.changes:
            there = state(text, change)
            if there is State.ABSENT:
                text, remembered = changing.made(text, change)
                made.append(remembered)
            elif there is State.SAME:
                notes.append(f"{_named(change)} was there already, not by us, and stays")
            elif change.path == program.path:
                raise _occupied(program, path)
            else:
                notes.append(f"{_named(change)} is decided there already otherwise, and stays")
    except NotReadable as error:
        raise Refused(
            "configuration_unreadable",
            f"{path} cannot be read: {error}; nothing was written",
            hint=f"Put that right first; {program.title} cannot read it either.",
        ) from None
    except NotEditable as error:
        raise _not_editable(program, path, error) from None
    after = (mark + text).encode("utf-8")
    record = None
    if made:
        record = replace(
            blank,
            existed=base is not None,
            after=records.digest(after),
            changes=tuple(made),
            before=earlier.changes if earlier else (),
            folders=earlier.folders if earlier else (),
        )
    return FilePlan(
        path=path,
        role=blank.role,
        before=before,
        after=after if made else before or b"",
        backup=base,
        record=record,
        notes=tuple(notes),
    )


def _base(home: Home, earlier: Record, before: bytes | None) -> bytes | None:
    """Return the file without what an earlier connect put there: to the byte, where nobody has changed it since."""
    if before is None:
        return None
    if records.digest(before) == earlier.after:
        return records.backup_of(home, earlier)
    text = files.text_of(earlier.path, before)
    mark, text = (files.BOM, text[1:]) if text.startswith(files.BOM) else ("", text)
    try:
        for written in reversed(earlier.changes):
            change, there = _seen(text, earlier, written)
            if there is State.OTHER:
                raise Refused(
                    "entry_edited",
                    f"{_named(change)} in {earlier.path} was edited since it was put there; nothing was written",
                    hint="It stays as it is. To have it made anew, take it out by hand first.",
                )
            if there is State.SAME:
                text = changing.unmade(text, change)
    except (NotReadable, NotEditable) as error:
        raise Refused(
            "configuration_unreadable", f"{earlier.path} cannot be read: {error}; nothing was written"
        ) from None
    return (mark + text).encode("utf-8")


def carry_out(home: Home, plans: Sequence[FilePlan]) -> None:
    """Write what was planned: for each file its record and backup first. A file changed meanwhile is refused."""
    with files.exclusive(home):
        for item in plans:
            if item.record is None:
                continue
            files.check_unchanged(item.path, item.before)
            records.save(home, item.record, item.backup)
            if item.after != item.before:
                records.note_folders(home, item.record, files.replace(item.path, item.after, before=item.before))


def undo(home: Home, program: Program, env: Environment, *, dry_run: bool) -> list[Undone]:
    """Take out what was put in for a program's configuration, and tell what became of each file."""
    if not files.folder_of(home).is_dir():
        return []
    configuration = configuration_of(program, env)
    with files.exclusive(home):
        ours = [
            record
            for record in records.every(home)
            if record.program == program.name and record.configuration == configuration
        ]
        return [_undo(home, record, dry_run=dry_run) for record in ours]


def _undo(home: Home, record: Record, *, dry_run: bool) -> Undone:
    now = files.read(record.path)
    if now is None:
        if not dry_run:
            records.forget(home, record, with_backup=False)
        kept = (f"its backup stays at {records.backup_path(home, record)}",) if record.existed else ()
        return Undone(path=record.path, role=record.role, what="gone", notes=kept)
    if records.digest(now) == record.after:
        backup = records.backup_of(home, record)
        if not dry_run:
            if backup is None:
                files.remove(record.path, before=now, folders=list(record.folders))
            else:
                files.replace(record.path, backup, before=now)
            records.forget(home, record, with_backup=True)
        return Undone(path=record.path, role=record.role, what="removed" if backup is None else "restored")
    return _take_out(home, record, now, dry_run=dry_run)


def _take_out(home: Home, record: Record, now: bytes, *, dry_run: bool) -> Undone:
    """Take only what is ours out of a file that was changed since; what was edited stays."""
    text = files.text_of(record.path, now)
    mark, text = (files.BOM, text[1:]) if text.startswith(files.BOM) else ("", text)
    notes = ["it was changed since, so only what is ours was taken out"]
    left = False
    for written in reversed(record.changes):
        change = written
        try:
            change, there = _seen(text, record, written)
            if there is State.SAME:
                text = changing.unmade(text, change)
            elif there is State.OTHER:
                left = True
                notes.append(f"{_named(change)} was edited since, and stays")
        except (NotReadable, NotEditable) as error:
            left = True
            notes.append(f"{_named(change)} could not be taken out: {error}")
    after = (mark + text).encode("utf-8")
    if not dry_run:
        if after != now:
            files.replace(record.path, after, before=now)
        records.forget(home, record, with_backup=False)
    if record.existed:
        notes.append(f"the file as it was before lies at {records.backup_path(home, record)}")
    return Undone(path=record.path, role=record.role, what="left" if left else "taken_out", notes=tuple(notes))


def _seen(text: str, record: Record, change: Change) -> tuple[Change, State]:
    """Return what stands where a change was made: that change, or the one before it, which a crash left there."""
    there = state(text, change)
    if there is State.OTHER:
        for earlier in record.before:
            if earlier.path == change.path and state(text, earlier) is State.SAME:
                return earlier, State.SAME
    return change, there


def _named(change: Change) -> str:
    if change.kind is changing.Kind.TEXT:
        return "the snippet"
    return f"{change.value} in {'.'.join(change.path)}" if isinstance(change.value, str) else ".".join(change.path)


def _occupied(program: Program, path: Path) -> Refused:
    return Refused(
        "name_occupied",
        f"{path} has an entry {'.'.join(program.path)} that is not ours; nothing was written",
        hint="Rename or remove it there, or keep it: nothing replaces it.",
    )


def _not_editable(program: Program, path: Path, error: NotEditable) -> Refused:
    return Refused(
        "configuration_not_editable",
        f"{path} is written in a way that cannot be edited safely ({error}); nothing was written",
        hint=f"Put the entry in by hand: `fencepost mcp config {program.name}` prints it.",
    )
