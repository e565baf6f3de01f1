"""Conversations move into the person's own sessions folder whole, or stay where they are; none is ever lost."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fencepost_kit import faults
from fencepost_providers.adapters.base import StartFailed
from fencepost_providers.adapters.codex.home import sessions

CHILD_SECONDS_MAX = 30
ROLLOUTS = {
    "2026/11/29/rollout-2026-11-29T10-00-00-6f2b8c1e-0d3a-4b57-9a41-7c5e2f10ab34.jsonl": b'{"type":"session_meta"}\n',
    "2026/11/30/rollout-2026-11-30T10-00-00-7f2b8c1e-0d3a-4b57-9a41-7c5e2f10ab34.jsonl": b"a\nb\n",
    "2026/11/30/rollout-2026-11-30T11-00-00-8f2b8c1e-0d3a-4b57-9a41-7c5e2f10ab34.jsonl": b"partial",
}
FIRST, SECOND, THIRD = ROLLOUTS
POINTS = ["rollout_placed", "sessions_copied", "sessions_aside", "sessions_linked", "rollout_cleared"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "agent" / ".codex"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def records(tmp_path: Path) -> Path:
    folder = tmp_path / "records"
    folder.mkdir()
    return folder


def fill(root: Path, rollouts: dict[str, bytes]) -> None:
    for name, content in rollouts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def held(*roots: Path) -> dict[str, set[bytes]]:
    """Return every rollout of some trees by its name, with the contents that it has there."""
    found: dict[str, set[bytes]] = {}
    for root in roots:
        for folder, _, names in os.walk(root):
            for name in names:
                path = Path(folder) / name
                if not name.startswith("."):
                    found.setdefault(str(path.relative_to(root)), set()).add(path.read_bytes())
    return found


def everything(home: Path, native: Path) -> dict[str, set[bytes]]:
    return held(native / "sessions", home / "sessions", home / sessions.ASIDE)


def linked(home: Path, native: Path) -> bool:
    return (home / "sessions").is_symlink() and (home / "sessions").readlink() == native / "sessions"


def link(home: Path, native: Path, records: Path) -> list[str]:
    return [note.code for note in sessions.link(home, native, records)]


@pytest.mark.requirement("codex.conversations-lie-in-the-native-home")
def test_local_rollouts_move_with_their_names_and_the_link_takes_their_place(
    home: Path, native: Path, records: Path
) -> None:
    fill(home / "sessions", ROLLOUTS)
    fill(native / "sessions", {"2026/11/30/rollout-other.jsonl": b"other", FIRST: ROLLOUTS[FIRST]})
    assert link(home, native, records) == []
    assert linked(home, native)
    assert not (home / sessions.ASIDE).exists()
    wanted = {name: {content} for name, content in ROLLOUTS.items()}
    assert held(native / "sessions") == wanted | {"2026/11/30/rollout-other.jsonl": {b"other"}}
    assert link(home, native, records) == []


@pytest.mark.requirement("codex.conversations-lie-in-the-native-home")
def test_a_new_home_is_linked_and_the_native_folder_made(home: Path, native: Path, records: Path) -> None:
    assert link(home, native, records) == []
    assert linked(home, native)
    (home / "sessions" / "x").write_text("through the link", encoding="utf-8")
    assert (native / "sessions" / "x").exists()


@pytest.mark.requirement("codex.conversations-lie-in-the-native-home")
def test_without_a_native_home_conversations_stay_local_until_there_is_one(
    home: Path, native: Path, records: Path
) -> None:
    native.rmdir()
    assert link(home, native, records) == ["codex_sessions_local"]
    assert not native.exists()
    fill(home / "sessions", ROLLOUTS)
    native.mkdir()
    assert link(home, native, records) == []
    assert linked(home, native)
    assert set(held(native / "sessions")) == set(ROLLOUTS)


@pytest.mark.requirement("codex.conversations-lie-in-the-native-home")
def test_the_link_follows_a_native_home_that_moves_and_becomes_a_folder_where_it_is_gone(
    home: Path, native: Path, records: Path, tmp_path: Path
) -> None:
    link(home, native, records)
    moved = tmp_path / "moved"
    native.rename(moved)
    assert link(home, native, records) == ["codex_sessions_local"]
    assert not (home / "sessions").is_symlink()
    (home / "sessions").rmdir()
    link(home, moved, records)
    other = tmp_path / "other"
    other.mkdir()
    assert link(home, other, records) == []
    assert linked(home, other)


@pytest.mark.requirement("codex.no-conversation-is-lost")
def test_another_file_of_the_same_name_keeps_everything_where_it_is(home: Path, native: Path, records: Path) -> None:
    fill(home / "sessions", ROLLOUTS)
    fill(native / "sessions", {SECOND: b"another conversation"})
    before = held(home / "sessions")
    assert link(home, native, records) == ["codex_sessions_local"]
    assert held(home / "sessions") == before
    assert not (home / "sessions").is_symlink()
    assert held(native / "sessions") == {SECOND: {b"another conversation"}}


@pytest.mark.parametrize("odd", ["link", "fifo"])
@pytest.mark.requirement("codex.no-conversation-is-lost")
def test_what_is_no_plain_file_keeps_the_tree_local(home: Path, native: Path, records: Path, odd: str) -> None:
    fill(home / "sessions", ROLLOUTS)
    if odd == "link":
        (home / "sessions" / "x").symlink_to("/nowhere")
    else:
        os.mkfifo(home / "sessions" / "x")
    assert link(home, native, records) == ["codex_sessions_local"]
    assert set(ROLLOUTS) <= {str(path.relative_to(home / "sessions")) for path in (home / "sessions").rglob("*")}
    assert held(native / "sessions") == {}


@pytest.mark.requirement("codex.no-conversation-is-lost")
def test_a_link_of_somebody_else_is_left(home: Path, native: Path, records: Path, tmp_path: Path) -> None:
    (home / "sessions").symlink_to(tmp_path / "elsewhere")
    assert link(home, native, records) == ["codex_sessions_incomplete"]
    assert (home / "sessions").readlink() == tmp_path / "elsewhere"


@pytest.mark.requirement("codex.no-conversation-is-lost")
def test_a_native_folder_that_leads_into_the_agents_home_is_refused(home: Path, native: Path, records: Path) -> None:
    fill(home / "sessions", ROLLOUTS)
    (native / "sessions").symlink_to(home / "sessions")
    assert link(home, native, records) == ["codex_sessions_local"]
    assert held(home / "sessions") == {name: {content} for name, content in ROLLOUTS.items()}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("turn", [1, 2, 3])
@pytest.mark.requirement("codex.no-conversation-is-lost")
def test_an_error_at_any_step_restores_the_local_tree_or_leaves_a_whole_link(
    home: Path, native: Path, records: Path, point: str, turn: int
) -> None:
    fill(home / "sessions", ROLLOUTS)
    fill(native / "sessions", {FIRST: ROLLOUTS[FIRST]})
    faults.arm(f"providers.codex_home.{point}=error@{turn}")
    codes = link(home, native, records)
    faults.arm("")
    assert everything(home, native) == {name: {content} for name, content in ROLLOUTS.items()}
    if "codex_sessions_local" in codes:
        assert set(held(home / "sessions")) == set(ROLLOUTS)
        assert not (home / "sessions").is_symlink()
        assert held(native / "sessions") == {FIRST: {ROLLOUTS[FIRST]}}
    else:
        assert linked(home, native)
    assert link(home, native, records) == []
    assert held(native / "sessions") == {name: {content} for name, content in ROLLOUTS.items()}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.requirement("codex.no-conversation-is-lost", "codex.preparation-survives-crashes")
def test_a_kill_at_any_step_loses_no_rollout_and_the_next_preparation_finishes(
    home: Path, native: Path, records: Path, point: str
) -> None:
    fill(home / "sessions", ROLLOUTS)
    program = (
        "import sys\nfrom pathlib import Path\nfrom fencepost_kit import faults\n"
        "from fencepost_providers.adapters.codex.home import sessions\n"
        "faults.arm_from_environment()\nsessions.link(*map(Path, sys.argv[1:]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, home, native, records],
        env=dict(os.environ) | {"FENCEPOST_FAULTS": f"providers.codex_home.{point}=kill"},
        timeout=CHILD_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == -9
    wanted = {name: {content} for name, content in ROLLOUTS.items()}
    assert everything(home, native) == wanted
    assert link(home, native, records) == []
    assert linked(home, native)
    assert held(native / "sessions") == wanted
    assert not (home / sessions.ASIDE).exists()


@pytest.mark.requirement("codex.no-conversation-is-lost")
def test_what_a_codex_wrote_between_a_kill_and_the_next_preparation_is_kept_beside_what_was_aside(
    home: Path, native: Path, records: Path
) -> None:
    fill(home / sessions.ASIDE, {FIRST: b"first", SECOND: b"second"})
    fill(home / "sessions", {SECOND: b"second, another", THIRD: b"third"})
    assert link(home, native, records) == ["codex_sessions_local"]
    assert set(held(home / "sessions")) == {FIRST, SECOND, THIRD}
    assert everything(home, native) == {FIRST: {b"first"}, SECOND: {b"second", b"second, another"}, THIRD: {b"third"}}
    (home / sessions.ASIDE / SECOND).unlink()
    assert link(home, native, records) == []
    assert linked(home, native)


@pytest.mark.requirement("codex.no-conversation-is-lost")
def test_files_of_another_file_system_are_copied_whole_before_they_leave(
    home: Path, native: Path, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(*_: Any) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(Path, "hardlink_to", refusing)
    fill(home / "sessions", ROLLOUTS)
    stamp = (home / "sessions" / FIRST).stat().st_mtime_ns
    assert link(home, native, records) == []
    assert held(native / "sessions") == {name: {content} for name, content in ROLLOUTS.items()}
    assert (native / "sessions" / FIRST).stat().st_mtime_ns == stamp
    assert not list(native.rglob(".*"))


@pytest.mark.requirement("codex.no-conversation-is-lost")
def test_a_tree_that_cannot_be_put_back_is_whole_under_a_name_that_is_said(
    home: Path, native: Path, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home / "sessions", ROLLOUTS)
    real, broken = Path.rename, [False]

    def rename(self: Path, target: Any) -> Path:
        if broken[0]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        broken[0] = True
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    faults.arm("providers.codex_home.sessions_aside=error")
    with pytest.raises(StartFailed) as refused:
        sessions.link(home, native, records)
    assert (refused.value.code, refused.value.again) == ("codex_sessions_not_restored", True)
    assert sessions.ASIDE in str(refused.value)
    monkeypatch.undo()
    faults.arm("")
    assert set(held(home / sessions.ASIDE)) == set(ROLLOUTS)
    assert link(home, native, records) == []
    assert set(held(native / "sessions")) == set(ROLLOUTS)
