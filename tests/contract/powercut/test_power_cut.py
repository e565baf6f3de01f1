"""What was told to be durable is there after the power went, wherever in the stream of writes that happens."""

from __future__ import annotations

import hashlib
import marshal
import random
import shutil
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from fencepost_powercut import disk
from fencepost_powercut.driver import connector
from fencepost_powercut.recording import Entry, Synced, Told, Truncated, Written, recorded
from fencepost_powercut.workload import MARSHAL_VERSION, UNUSABLE, Script, reopened

from fencepost_kit import sqlite

DATABASE: Final = "mailbox.db"
ROUNDS: Final = 16
# Few pages between checkpoints, so that a short script goes through many of them and through restarts of the log.
CHECKPOINT_PAGES: Final = 100
CUTS: Final = 300
CUTS_OF_THE_WEAK: Final = 20
OPENED_MIN: Final = 300
STATES_MIN: Final = 100


@dataclass(frozen=True, kw_only=True)
class Run:
    """What the script did to the disk, and each state that it was told to be durable."""

    entries: list[Entry]
    states: list[str]


async def run_script(folder: Path, monkeypatch: pytest.MonkeyPatch, *, synchronous: str) -> Run:
    """Run the script over a recording disk. Only this one setting of the store may differ from its own."""

    def rewrite(statement: str) -> str:
        return statement.replace("PRAGMA synchronous = FULL", f"PRAGMA synchronous = {synchronous}")

    with monkeypatch.context() as patch, recorded() as recording:
        patch.setattr(sqlite, "WAL_AUTOCHECKPOINT_PAGES", CHECKPOINT_PAGES)
        connect = connector(recording.vfs, rewrite)
        patch.setattr(sqlite3, "connect", connect)
        live = folder / "live"
        live.mkdir()
        script = Script(live / DATABASE, recording, connect=connect)
        await script.run(ROUNDS)
    return Run(entries=recording.entries, states=script.states)


def cuts_of(run: Run, count: int) -> list[int]:
    """Where the power goes: before the first write, at every moment around a checkpoint, and at random ones."""
    checkpoints = [
        index
        for index, entry in enumerate(run.entries)
        if isinstance(entry, Written | Truncated | Synced) and entry.name == DATABASE
    ]
    dice = random.Random(f"cuts of {len(run.entries)}")
    rest = count - min(len(checkpoints), count // 2)
    chosen = {0, len(run.entries), *dice.sample(checkpoints, count - rest)}
    while len(chosen) < count:
        chosen.add(dice.randrange(len(run.entries)))
    return sorted(chosen)


@dataclass(kw_only=True)
class Findings:
    """How many different disks were opened, and after which cuts something was missing."""

    opened: int = 0
    losses: list[str] = field(default_factory=list)


async def after(run: Run, folder: Path, *, count: int, variants: Sequence[str]) -> Findings:
    """Let the power go at each cut, open what is found, and return what was found."""
    findings = Findings()
    platter, told, fed = disk.Disk(), -1, 0
    judged: set[tuple[int, bytes]] = set()
    for cut in cuts_of(run, count):
        for entry in run.entries[fed:cut]:
            platter.feed(entry)
            told = entry.state if isinstance(entry, Told) else told
        fed = cut
        for variant in variants:
            found = platter.after_the_cut(_kept(variant, cut))
            image = hashlib.sha256(marshal.dumps(sorted(found.items()), MARSHAL_VERSION)).digest()
            if (told, image) in judged:
                continue  # no sync and nothing told between two cuts: the same disk, asked for the same
            judged.add((told, image))
            findings.opened += 1
            missing = await _missing(found, folder / f"{cut}-{variant}", run.states, told)
            if missing is not None:
                findings.losses.append(f"cut {cut}, {variant} of what was not synced kept: {missing}")
    return findings


def _kept(variant: str, cut: int) -> disk.Kept:
    if variant == "nothing":
        return disk.nothing_kept
    return disk.everything_kept if variant == "everything" else disk.some_kept(f"{variant} {cut}")


async def _missing(found: dict[str, bytes], folder: Path, states: list[str], told: int) -> str | None:
    folder.mkdir()
    disk.lay_out(folder, found)
    try:
        state = await reopened(folder / DATABASE)
    except UNUSABLE as error:
        return f"the database cannot be used: {error!r}"
    finally:
        shutil.rmtree(folder)
    if told < 0 or state in states[told:]:
        return None
    if state in states:
        return f"state {told} was told to be durable, {states.index(state)} is what is there"
    return "what is there is no state that the store ever told"


@pytest.mark.requirement("mailbox.acknowledged-survives-a-power-cut")
async def test_whatever_was_told_to_be_durable_is_there_after_every_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await run_script(tmp_path, monkeypatch, synchronous="FULL")
    assert len(run.states) >= STATES_MIN
    findings = await after(run, tmp_path, count=CUTS, variants=("nothing", "some"))
    assert not findings.losses
    assert findings.opened >= OPENED_MIN


@pytest.mark.requirement("mailbox.acknowledged-survives-a-power-cut")
async def test_where_everything_was_kept_the_state_at_the_cut_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await run_script(tmp_path, monkeypatch, synchronous="OFF")
    findings = await after(run, tmp_path, count=CUTS_OF_THE_WEAK, variants=("everything",))
    assert not findings.losses


@pytest.mark.parametrize("synchronous", ["NORMAL", "OFF"])
async def test_the_same_cuts_find_the_losses_of_a_store_that_syncs_less(
    synchronous: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await run_script(tmp_path, monkeypatch, synchronous=synchronous)
    findings = await after(run, tmp_path, count=CUTS_OF_THE_WEAK, variants=("nothing", "some"))
    assert len(findings.losses) >= CUTS_OF_THE_WEAK // 4
