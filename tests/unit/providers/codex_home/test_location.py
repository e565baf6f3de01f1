"""A home whose socket would not fit lies in a short place of its own, found again after anything."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost_kit import faults
from fencepost_providers.adapters.base import StartFailed
from fencepost_providers.adapters.codex import home as codex_home
from fencepost_providers.adapters.codex.home import location
from fencepost_providers.domain.runtimes import LaunchPlan

MAX = 107


@pytest.fixture
def short() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="fp", dir="/tmp"))
    yield folder / "s"
    shutil.rmtree(folder)


async def prepared(plan: LaunchPlan, native: Path, *roots: Path) -> codex_home.Prepared:
    return await codex_home.prepare(plan, native=native, compact_roots=roots, socket_bytes_max=MAX)


def visible(plan: LaunchPlan) -> Path:
    return Path(plan.folder) / "habitat" / ".codex"


@pytest.mark.requirement("codex.long-paths-have-a-short-place")
async def test_a_long_home_lies_in_a_short_private_place_and_is_linked(
    plan: LaunchPlan, native: Path, short: Path
) -> None:
    done = await prepared(plan, native, short)
    assert len(os.fsencode(done.socket)) <= MAX
    assert done.codex_home.parent.parent == short
    assert done.codex_home.name == "h"
    assert len(done.codex_home.parent.name) == 8
    assert visible(plan).readlink() == done.codex_home
    for folder in (short, done.codex_home.parent, done.codex_home):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    record = json.loads((Path(plan.folder) / "codex" / "home.json").read_bytes())
    assert Path(record["home"]) == done.codex_home
    assert json.loads((done.codex_home.parent / "owner.json").read_bytes())["folder"] == plan.folder
    assert codex_home.codex_home(plan) == done.codex_home
    assert (await prepared(plan, native)).codex_home == done.codex_home  # it stays there, whatever roots there are


@pytest.mark.requirement("codex.long-paths-have-a-short-place")
def test_the_limit_is_that_of_the_socket_with_every_byte_counted() -> None:
    home = Path("/" + "h" * (MAX - 1 - len("/" + location.SOCKET)))
    assert location.fits(home, bytes_max=MAX)
    assert not location.fits(home.with_name(home.name + "h"), bytes_max=MAX)
    assert not location.fits(home.with_name(home.name[:-1] + "é"), bytes_max=MAX)


@pytest.mark.requirement("codex.long-paths-have-a-short-place")
def test_the_first_short_place_is_in_the_home_itself_and_none_is_lost_with_a_restart(plan: LaunchPlan) -> None:
    places = location.places_of(plan, Path("/n"))
    roots = location.default_roots(places, {"XDG_STATE_HOME": "/state", "XDG_RUNTIME_DIR": "/run/user/1"})
    assert roots[0] == Path(plan.folder).parents[1] / "codex"
    assert roots[1] == Path("/state/fencepost")
    assert not any(str(root).startswith(("/run", "/tmp/")) for root in roots[1:2])


@pytest.mark.requirement("codex.long-paths-have-a-short-place")
async def test_a_home_that_was_short_moves_whole_when_its_path_grows(
    plan: LaunchPlan, native: Path, short: Path
) -> None:
    first = await codex_home.prepare(plan, native=native)
    (first.codex_home / "state_5.sqlite").write_bytes(b"kept")
    done = await prepared(plan, native, short)
    assert done.codex_home != first.codex_home
    assert (done.codex_home / "state_5.sqlite").read_bytes() == b"kept"
    assert visible(plan).is_symlink()


@pytest.mark.requirement("codex.long-paths-have-a-short-place")
async def test_no_safe_or_short_root_is_a_definite_failure(
    plan: LaunchPlan, native: Path, short: Path, tmp_path: Path
) -> None:
    open_root = short.parent / "open"
    open_root.mkdir()
    open_root.chmod(0o777)
    link = short.parent / "link"
    for roots in ((), (open_root,), (open_root / "below",), (tmp_path / ("long" * 20),)):
        with pytest.raises(StartFailed) as refused:
            await prepared(plan, native, *roots)
        assert (refused.value.code, refused.value.again) == ("codex_home_no_place", False)
    assert not visible(plan).exists()
    link.symlink_to(short)
    done = await prepared(plan, native, open_root, link, short)  # an unsafe root is passed over
    assert done.codex_home.parent.parent == short


@pytest.mark.requirement("codex.long-paths-have-a-short-place")
async def test_a_place_of_somebody_else_is_never_used(plan: LaunchPlan, native: Path, short: Path) -> None:
    done = await prepared(plan, native, short)
    taken = done.codex_home.parent
    shutil.rmtree(Path(plan.folder))
    again = await prepared(plan, native, short)
    assert again.codex_home.parent != taken
    (again.codex_home.parent / "owner.json").write_text('{"token": "another"}', encoding="utf-8")
    with pytest.raises(StartFailed) as refused:
        await prepared(plan, native, short)
    assert refused.value.code == "codex_home_unsafe"


@pytest.mark.requirement("codex.long-paths-have-a-short-place")
async def test_a_home_that_is_gone_is_said_and_two_homes_are_refused(
    plan: LaunchPlan, native: Path, short: Path
) -> None:
    done = await prepared(plan, native, short)
    shutil.rmtree(done.codex_home.parent)
    again = await prepared(plan, native, short)
    assert again.codex_home == done.codex_home
    assert "codex_home_was_missing" in {note.code for note in again.notes}
    visible(plan).unlink()
    visible(plan).mkdir()
    with pytest.raises(StartFailed) as refused:
        await prepared(plan, native, short)
    assert refused.value.code == "codex_home_twice"
    assert visible(plan).is_dir()


@pytest.mark.parametrize("open_to", [0o755, 0o770])
@pytest.mark.requirement("codex.home-is-private")
async def test_a_short_home_that_others_can_enter_is_refused(
    plan: LaunchPlan, native: Path, short: Path, open_to: int
) -> None:
    done = await prepared(plan, native, short)
    done.codex_home.chmod(open_to)
    with pytest.raises(StartFailed) as refused:
        await prepared(plan, native, short)
    assert refused.value.code == "codex_home_unsafe"


class Died(BaseException):
    pass


@pytest.mark.parametrize("grown", [True, False])
@pytest.mark.parametrize("point", ["place_recorded", "place_marked", "place_moved", "place_linked"])
@pytest.mark.requirement("codex.preparation-survives-crashes")
async def test_a_crash_at_any_step_of_the_move_loses_nothing(
    plan: LaunchPlan, native: Path, short: Path, monkeypatch: pytest.MonkeyPatch, point: str, grown: bool
) -> None:
    if grown:
        first = await codex_home.prepare(plan, native=native)
        (first.codex_home / "state_5.sqlite").write_bytes(b"kept")

    def hit(name: str) -> None:
        if name == f"providers.codex_home.{point}":
            raise Died

    with monkeypatch.context() as patched:
        patched.setattr(faults, "ARMED", True)
        patched.setattr(faults, "hit", hit)
        with pytest.raises(Died):
            await prepared(plan, native, short)
    done = await prepared(plan, native, short)
    assert visible(plan).readlink() == done.codex_home
    assert not grown or (done.codex_home / "state_5.sqlite").read_bytes() == b"kept"
    assert {note.code for note in done.notes} <= {"registration_written", "registration_current"}
    assert len(list(short.iterdir())) == 1


@pytest.mark.requirement("codex.long-paths-have-a-short-place")
async def test_a_lost_record_is_made_again_from_the_link_and_a_link_of_somebody_else_is_refused(
    plan: LaunchPlan, native: Path, short: Path, tmp_path: Path
) -> None:
    done = await prepared(plan, native, short)
    (done.codex_home / "state_5.sqlite").write_bytes(b"kept")
    record = Path(plan.folder) / "codex" / "home.json"
    record.unlink()
    again = await prepared(plan, native, short)
    assert again.codex_home == done.codex_home
    assert record.exists()
    assert (again.codex_home / "state_5.sqlite").read_bytes() == b"kept"
    record.unlink()
    visible(plan).unlink()
    visible(plan).symlink_to(tmp_path)
    with pytest.raises(StartFailed) as refused:
        await prepared(plan, native, short)
    assert refused.value.code == "codex_home_unsafe"
    assert visible(plan).readlink() == tmp_path


@pytest.mark.requirement("codex.long-paths-have-a-short-place")
async def test_a_fencepost_home_may_be_moved_whole_with_the_short_places_in_it(
    plan_of: Callable[..., LaunchPlan], native: Path, short: Path, tmp_path: Path
) -> None:
    old, new = short.parent / "old", short.parent / "new"
    agent = Path("agents", plan_of().agent_id)
    (old / "skills" / "one").mkdir(parents=True)

    async def at(home: Path) -> codex_home.Prepared:
        plan = plan_of(folder=str(home / agent), skills=(str(home / "skills"),))
        return await codex_home.prepare(plan, native=native, socket_bytes_max=MAX)

    first = await at(old)
    assert first.codex_home.is_relative_to(old / "codex")
    (first.codex_home / "state_5.sqlite").write_bytes(b"kept")
    old.rename(new)
    done = await at(new)
    assert done.codex_home.is_relative_to(new / "codex")
    assert (done.codex_home / "state_5.sqlite").read_bytes() == b"kept"
    assert (new / agent / "habitat" / ".codex").readlink() == done.codex_home
    assert (done.codex_home / "skills" / "one").readlink() == new / "skills" / "one"
    assert {note.code for note in done.notes} == {"registration_current"}
    assert not old.exists()
