"""The agent's config.toml: brought up to date in one replacement, with what is ours recorded before and after.

A record is written as an intention first and completed after the file is in place: whatever moment a crash chooses,
the next preparation can tell what is ours. Source: R126, M115-M118, M152.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from fencepost.mcp.registry import EVERY_OF
from fencepost_kit import faults
from fencepost_providers.adapters.base import StartFailed
from fencepost_providers.adapters.codex.home import files, merge, registration, tables
from fencepost_providers.domain.runtimes import Finding, Gravity, McpServer

T = TypeVar("T")

NAME: Final = "config.toml"
MERGE_RECORD: Final = "merge.json"
REGISTRATION_RECORD: Final = "registration.json"
ATTEMPTS_MAX: Final = 5
NOTHING: Final = merge.Merge(sets={}, removes=(), origin={})
_INTENDED = faults.register("providers.codex_home.config_intended", "what will be ours is recorded, config.toml is old")
_PUBLISHED = faults.register("providers.codex_home.config_published", "config.toml is new, the record still intends")


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One attempt: the text to be published and the records around it."""

    text: str
    known: merge.Digests
    origin: merge.Digests | None
    registration: registration.Registration
    notes: tuple[Finding, ...]


def reconcile(home: Path, records: Path, native: Path, server: McpServer) -> list[Finding]:
    """Bring the agent's configuration up to date with the native one and with our registration.

    A native file that cannot be used is reported, and what was merged from it before stays.

    Raises:
        StartFailed: the agent's own file cannot be read, is not TOML, or changes all the time. It is as it was.
    """

    def attempt() -> list[Finding]:
        raw = _read(home / NAME)
        merging = files.read_record(records / MERGE_RECORD) if raw is not None else {}
        owning = files.read_record(records / REGISTRATION_RECORD) if raw is not None else {}
        step = _step(home, records, native, server, raw=raw, merging=merging, owning=owning)
        content = step.text.encode()
        if step.origin is not None and step.origin != merging.get("origin"):
            files.write_record(records / MERGE_RECORD, {"origin": step.known, "pending": step.origin})
        if step.registration.owned is not None and step.registration.owned != owning.get("owned"):
            intent = {"owned": owning.get("owned"), "pending": step.registration.owned}
            files.write_record(records / REGISTRATION_RECORD, intent)
        if faults.ARMED:
            faults.hit(_INTENDED)
        if content != raw or (home / NAME).is_symlink():
            files.publish(home / NAME, content, before=raw)
        if faults.ARMED:
            faults.hit(_PUBLISHED)
        if step.origin is not None:
            files.write_record(records / MERGE_RECORD, {"origin": step.origin})
        if step.registration.owned is not None:
            files.write_record(records / REGISTRATION_RECORD, {"owned": step.registration.owned})
        else:
            files.remove(records / REGISTRATION_RECORD)
        return list(step.notes)

    return again_where_changed(home / NAME, attempt)


def again_where_changed(path: Path, attempt: Callable[[], T]) -> T:
    """Return what an attempt returns; repeat it where the file was changed under it.

    Raises:
        StartFailed: it was changed ATTEMPTS_MAX times.
    """
    for _ in range(ATTEMPTS_MAX):
        try:
            return attempt()
        except files.ChangedMeanwhile:
            continue
    raise StartFailed(
        "codex_config_changing",
        f"{path} was changed by somebody else again and again; it was left as it is, nothing was started",
        hint="See who writes it, then start the agent again.",
        again=True,
    )


def _read(path: Path) -> bytes | None:
    try:
        return files.read(path)
    except files.Unreadable as error:
        raise unusable(str(error)) from None


def load(path: Path) -> tuple[bytes | None, str, dict[str, Any]]:
    """Return bytes, text and value of the agent's configuration.

    Raises:
        StartFailed: it cannot be read, or is not TOML.
    """
    raw = _read(path)
    try:
        text = files.text_of(path, raw)
        return raw, text, tables.parse(text)
    except (files.Unreadable, tables.NotToml) as error:
        raise unusable(f"{path}: {error}") from None


def unusable(what: str) -> StartFailed:
    """Return the refusal of an agent's configuration that nobody can work with."""
    return StartFailed(
        "codex_config_unusable",
        f"the agent's Codex configuration cannot be used: {what}; it was left as it is, nothing was started",
        hint="Repair that file, or move it away to have it made anew from your own Codex configuration.",
    )


def _native(native: Path) -> tuple[str, dict[str, Any]] | Finding:
    path = native / NAME
    try:
        text = files.text_of(path, files.read(path))
        return text, tables.parse(text)
    except files.Unreadable as error:
        return _not_merged("native_config_unreadable", str(error))
    except tables.NotToml as error:
        return _not_merged("native_config_malformed", f"{path}: {error}")


def _not_merged(code: str, what: str) -> Finding:
    return Finding(
        code=code,
        gravity=Gravity.WARNING,
        text=f"your own Codex configuration cannot be read: {what}; this agent keeps what it has from it",
        hint="Repair that file, then start the agent again.",
    )


def _step(
    home: Path,
    records: Path,
    native: Path,
    server: McpServer,
    *,
    raw: bytes | None,
    merging: Mapping[str, Any],
    owning: Mapping[str, Any],
) -> Step:
    notes: list[Finding] = []
    source = _native(native)
    text = ""
    if raw is not None:
        _, text, private = load(home / NAME)
    elif not isinstance(source, Finding):
        text, private = _first(source[0])
    else:
        private = {}
    plan, origin = NOTHING, None
    recorded = merge.resolved(private, merging)
    if isinstance(source, Finding):
        notes.append(source)
    else:
        known = recorded
        if raw is None:
            known = {merge.key_of(at): tables.digest(value) for at, value in tables.leaves(private)}
        plan = merge.merged(private, source[1], known)
        origin = plan.origin
    own = registration.registered(private, owning, server, program_there=runnable(server.command))
    kept = recorded if merging else None
    unwritten = registration.Registration(state=own.state, sets={}, owned=owning.get("owned"))
    # Where not everything fits: our server alone, while what came from the native file waits; else nothing.
    for changes, entry, after in ((plan, own, origin), (NOTHING, own, kept), (NOTHING, unwritten, kept)):
        try:
            new = tables.edited(text, {**changes.sets, **entry.sets}, changes.removes)
        except tables.NotEditable as error:
            notes.append(_not_edited(home / NAME, str(error)))
            continue
        said = registration.finding(
            entry.state,
            configuration=str(home / NAME),
            record=str(records / REGISTRATION_RECORD),
            program=server.command,
        )
        return Step(text=new, known=recorded, origin=after, registration=entry, notes=(*notes, said))
    raise AssertionError("an edit that changes nothing fits every file")


def _first(native: str) -> tuple[str, dict[str, Any]]:
    """Return the first private text; where the native one cannot be cut, an empty one, into which values are merged."""
    try:
        text = merge.first_text(native)
    except tables.NotEditable:
        text = ""
    return text, tables.parse(text)


def _not_edited(path: Path, what: str) -> Finding:
    return Finding(
        code="codex_config_not_editable",
        gravity=Gravity.WARNING,
        text=f"{path} could not be brought up to date and was left as it is: {what}",
        hint="Write its tables in the usual form ([a.b] with one key a line), then start the agent again.",
    )


def runnable(command: str) -> bool:
    """Tell whether a command is an absolute path of a file that can be run."""
    return os.path.isabs(command) and os.path.isfile(command) and os.access(command, os.X_OK)  # noqa: PTH113, PTH117


def approve(home: Path, records: Path, tools: Sequence[str]) -> tuple[str, ...]:
    """Approve tools of our server one by one; return all that are approved.

    Raises:
        StartFailed: a name is none of our tools, or our server does not stand there. Nothing was written.
    """
    unknown = [name for name in tools if name not in EVERY_OF]
    if unknown:
        raise StartFailed(
            "unknown_tool",
            f"our server has no tool {', '.join(repr(name[:64]) for name in unknown)}; nothing was approved",
            hint=f"It has: {', '.join(EVERY_OF)}.",
        )

    def attempt() -> tuple[str, ...]:
        raw, text, config = load(home / NAME)
        entry = tables.lookup(config, registration.ENTRY)
        record = files.read_record(records / REGISTRATION_RECORD)
        if not isinstance(entry, dict) or not entry or not record:
            raise StartFailed(
                "registration_missing",
                f"our MCP server is not registered in {home / NAME}, or the entry is not ours; nothing was approved",
                hint="`fencepost agent doctor` says what stands there.",
            )
        sets = {(*registration.ENTRY, "tools", name, "approval_mode"): registration.APPROVE for name in tools}
        try:
            new = tables.edited(text, sets, ())
        except tables.NotEditable as error:
            raise unusable(f"{home / NAME}: {error}") from None
        if new != text:
            files.publish(home / NAME, new.encode(), before=raw)
        return registration.approved(tables.parse(new))

    return again_where_changed(home / NAME, attempt)
