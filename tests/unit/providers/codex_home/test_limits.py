"""What happens at the edges: others at work, slow disks, files that resist, folders that are not private."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost_providers.adapters.base import StartFailed
from fencepost_providers.adapters.codex import home as codex_home
from fencepost_providers.adapters.codex.home import files, preparation, projection
from fencepost_providers.domain.runtimes import LaunchPlan, LaunchSettings

Plans = Callable[..., LaunchPlan]
# Reads as a text and as the header of a table: an edit by lines cannot tell, and must not guess.
TRAP = '\n[notes]\nmine = """\n[mcp_servers.a]\n"""\n'


async def refusal(work: Any) -> StartFailed:
    with pytest.raises(StartFailed) as refused:
        await work
    return refused.value


@pytest.mark.requirement("codex.home-is-private")
async def test_preparations_at_the_same_time_come_one_after_the_other(plan: LaunchPlan, native: Path) -> None:
    (native / "config.toml").write_text('model = "one"\n', encoding="utf-8")
    done = await asyncio.gather(*(codex_home.prepare(plan, native=native) for _ in range(8)))
    codes = sorted(note.code for one in done for note in one.notes)
    assert codes == ["registration_current"] * 7 + ["registration_written"]


@pytest.mark.requirement("codex.home-is-private")
async def test_a_home_that_another_process_prepares_is_busy_and_may_be_tried_again(
    plan: LaunchPlan, native: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await codex_home.prepare(plan, native=native)
    monkeypatch.setattr(files, "LOCK_MS_MAX", 30)
    with (Path(plan.folder) / "codex" / "lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for work in (
            codex_home.prepare(plan, native=native),
            codex_home.restore(plan, native=native),
            codex_home.publish_history(plan, native=native),
            codex_home.approve_tools(plan, ["reply"], native=native),
        ):
            failed = await refusal(work)
            assert (failed.code, failed.again) == ("codex_home_busy", True)
    await codex_home.prepare(plan, native=native)


@pytest.mark.requirement("codex.home-is-private")
async def test_file_work_that_takes_too_long_fails_the_start_without_stopping_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preparation, "PREPARE_MS_MAX", 20)
    go_on = threading.Event()
    try:
        failed = await refusal(preparation.in_thread(lambda: go_on.wait(5)))
    finally:
        go_on.set()
    assert (failed.code, failed.again) == ("codex_home_slow", True)


@pytest.mark.parametrize("place", ["", "habitat", "codex"])
@pytest.mark.requirement("codex.home-is-private")
async def test_a_folder_that_is_a_link_is_refused_and_one_that_is_open_is_closed(
    plan: LaunchPlan, native: Path, tmp_path: Path, place: str
) -> None:
    folder = Path(plan.folder) / place
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.symlink_to(elsewhere)
    assert (await refusal(codex_home.prepare(plan, native=native))).code == "codex_home_unsafe"
    assert list(elsewhere.iterdir()) == []
    folder.unlink()
    folder.mkdir(mode=0o755)
    await codex_home.prepare(plan, native=native)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.requirement("codex.long-paths-have-a-short-place")
async def test_a_home_that_would_have_to_move_to_another_disk_is_left_and_said(
    plan: LaunchPlan, native: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = await codex_home.prepare(plan, native=native)
    real = Path.rename

    def rename(self: Path, target: Any) -> Path:
        if self == done.codex_home:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    short = len(os.fsencode(tmp_path / "s" / "00000000" / "h" / "app-server-control" / "app-server-control.sock"))
    moving = codex_home.prepare(plan, native=native, compact_roots=[tmp_path / "s"], socket_bytes_max=short)
    failed = await refusal(moving)
    assert (failed.code, failed.again) == ("codex_home_not_movable", False)
    assert (done.codex_home / "config.toml").exists()


@pytest.mark.requirement("codex.comments-survive")
async def test_a_file_that_cannot_be_edited_safely_is_left_and_said_and_our_server_still_comes_in(
    plan: LaunchPlan, native: Path
) -> None:
    (native / "config.toml").write_text('[mcp_servers.a]\ncommand = "a"\n', encoding="utf-8")
    done = await codex_home.prepare(plan, native=native)
    path = done.codex_home / "config.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text[: text.index("[mcp_servers.fencepost]")] + TRAP, encoding="utf-8")
    (Path(plan.folder) / "codex" / "registration.json").unlink()
    (native / "config.toml").write_text("", encoding="utf-8")
    for again in ("registration_written", "registration_current"):
        done = await codex_home.prepare(plan, native=native)
        assert [note.code for note in done.notes] == ["codex_config_not_editable", again]
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        assert found["mcp_servers"]["a"] == {"command": "a"}
        assert found["notes"]["mine"] == "[mcp_servers.a]\n"
    path.write_text(path.read_text(encoding="utf-8").replace(TRAP, ""), encoding="utf-8")
    await codex_home.prepare(plan, native=native)
    assert set(tomllib.loads(path.read_text(encoding="utf-8"))["mcp_servers"]) == {"fencepost"}


@pytest.mark.requirement("codex.projection-goes-again")
async def test_a_projection_that_cannot_be_taken_out_is_kept_in_mind_until_it_can(
    plan_of: Plans, native: Path, workspace: Path
) -> None:
    plan = plan_of(settings=LaunchSettings(model="m"))
    done = await codex_home.prepare(plan, native=native)
    path, records = done.codex_home / "config.toml", Path(plan.folder) / "codex"
    await codex_home.project(plan, native=native, trust_workspace=True)
    trap = TRAP.replace("[mcp_servers.a]", f'[projects."{workspace}"]')
    path.write_text(path.read_text(encoding="utf-8") + trap, encoding="utf-8")
    [note] = await codex_home.restore(plan, native=native)
    assert note.code == "projection_not_restored"
    assert projection.pending(records)
    path.write_text(path.read_text(encoding="utf-8").replace(trap, ""), encoding="utf-8")
    await codex_home.prepare(plan, native=native)
    assert not projection.pending(records)
    assert set(tomllib.loads(path.read_text(encoding="utf-8"))) == {"mcp_servers"}


async def test_records_that_are_damaged_are_no_obstacle_and_claim_nothing(plan: LaunchPlan, native: Path) -> None:
    (native / "config.toml").write_text('model = "one"\n', encoding="utf-8")
    done = await codex_home.prepare(plan, native=native)
    for record in (Path(plan.folder) / "codex").glob("*.json"):
        record.write_bytes(b"\xff{")
    (native / "config.toml").write_text("", encoding="utf-8")
    await codex_home.prepare(plan, native=native)
    found = tomllib.loads((done.codex_home / "config.toml").read_text(encoding="utf-8"))
    assert found["model"] == "one"
    assert (done.codex_home / "sessions").is_symlink()


@pytest.mark.parametrize("standing", ["folder", "pipe"])
@pytest.mark.requirement("codex.login-is-copied-inward")
async def test_a_place_of_the_login_that_is_no_file_is_told_from_one(
    plan: LaunchPlan, native: Path, standing: str
) -> None:
    (native / "auth.json").write_text("{}", encoding="utf-8")
    place = Path(plan.folder) / "habitat" / ".codex" / "auth.json"
    place.parent.mkdir(parents=True)
    if standing == "folder":
        place.mkdir()
    else:
        os.mkfifo(place)
    codes = {note.code for note in (await codex_home.prepare(plan, native=native)).notes}
    assert ("codex_login_not_copied" in codes) is (standing == "folder")
    assert place.is_dir() is (standing == "folder")
