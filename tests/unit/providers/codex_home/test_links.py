"""Skills, marketplaces and the workspace are linked; what is not ours is never touched. Instructions come once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost_providers.adapters.base import StartFailed
from fencepost_providers.adapters.codex import home as codex_home
from fencepost_providers.adapters.codex.home import instructions
from fencepost_providers.domain.runtimes import LaunchPlan

Plans = Callable[..., LaunchPlan]


def skill(root: Path, name: str) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(root.name, encoding="utf-8")
    return folder


def told(done: codex_home.Prepared) -> set[str]:
    return {note.code for note in done.notes} - {"registration_written", "registration_current"}


@pytest.mark.requirement("codex.skills-are-linked")
async def test_skills_of_later_roots_win_and_those_that_are_gone_go(
    plan_of: Plans, native: Path, tmp_path: Path
) -> None:
    common, own = tmp_path / "common", tmp_path / "own"
    skill(common, "a")
    skill(common, "b")
    skill(own, "b")
    skill(own, ".hidden")
    (own / "file.md").write_text("no skill", encoding="utf-8")
    roots = (str(common), str(own), str(tmp_path / "missing"))
    done = await codex_home.prepare(plan_of(skills=roots), native=native)
    skills = done.codex_home / "skills"
    assert {path.name: path.readlink() for path in skills.iterdir()} == {"a": common / "a", "b": own / "b"}
    assert told(done) == set()
    done = await codex_home.prepare(plan_of(skills=roots[:1]), native=native)
    assert (skills / "b").readlink() == common / "b"
    await codex_home.prepare(plan_of(), native=native)
    assert list(skills.iterdir()) == []
    assert (own / "b" / "SKILL.md").exists()


@pytest.mark.requirement("codex.skills-are-linked")
async def test_skills_and_links_of_others_are_never_touched(plan_of: Plans, native: Path, tmp_path: Path) -> None:
    common = tmp_path / "common"
    for name in ("folder", "link", "mine", "moved"):
        skill(common, name)
    skills = Path(plan_of().folder) / "habitat" / ".codex" / "skills"
    (skills / ".system").mkdir(parents=True)
    (skills / "folder").mkdir()
    (skills / "folder" / "x").touch()
    (skills / "link").symlink_to(tmp_path)
    plan = plan_of(skills=(str(common),))
    assert told(await codex_home.prepare(plan, native=native)) == {"link_place_occupied"}
    (skills / "moved").unlink()
    (skills / "moved").symlink_to(tmp_path)
    for now in (plan, plan_of()):
        await codex_home.prepare(now, native=native)
        assert (skills / ".system").is_dir()
        assert (skills / "folder" / "x").exists()
        assert (skills / "link").readlink() == tmp_path
        assert (skills / "moved").readlink() == tmp_path
        assert (skills / "mine").is_symlink() is bool(now.skills)


@pytest.mark.requirement("codex.skills-are-linked")
async def test_a_skills_folder_that_is_somebody_elses_link_gets_nothing(
    plan_of: Plans, native: Path, tmp_path: Path
) -> None:
    skill(tmp_path / "common", "a")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    home = Path(plan_of().folder) / "habitat" / ".codex"
    home.mkdir(parents=True)
    (home / "skills").symlink_to(foreign)
    done = await codex_home.prepare(plan_of(skills=(str(tmp_path / "common"),)), native=native)
    assert told(done) == {"skills_folder_foreign"}
    assert list(foreign.iterdir()) == []


@pytest.mark.requirement("codex.plugins-stay-as-they-are")
async def test_native_marketplaces_and_plugin_cache_are_linked_while_enablement_stays_local(
    plan: LaunchPlan, native: Path
) -> None:
    for name in (".tmp/marketplaces/m", ".tmp/plugins/.agents", "plugins/cache/m/p"):
        (native / name).mkdir(parents=True)
    enabled = '[marketplaces.m]\nsource_type = "git"\n[plugins."p@m"]\nenabled = true\n'
    (native / "config.toml").write_text(enabled, encoding="utf-8")
    home = Path(plan.folder) / "habitat" / ".codex"
    (home / "plugins" / "cache").mkdir(parents=True)  # Codex makes it before it needs it
    done = await codex_home.prepare(plan, native=native)
    assert told(done) == set()
    for name in (".tmp/marketplaces", ".tmp/plugins", "plugins/cache"):
        assert (home / name).readlink() == native / name
    text = (home / "config.toml").read_text(encoding="utf-8")
    assert "[marketplaces.m]" in text
    assert "p@m" not in text
    own = text + '[plugins."q@m"]\nenabled = true\n'
    (home / "config.toml").write_text(own, encoding="utf-8")
    for folder in (native / ".tmp" / "plugins").rglob("*"):
        folder.rmdir()
    (native / ".tmp" / "plugins").rmdir()
    await codex_home.prepare(plan, native=native)
    assert (home / "config.toml").read_text(encoding="utf-8") == own
    assert not (home / ".tmp" / "plugins").is_symlink()


@pytest.mark.requirement("codex.plugins-stay-as-they-are")
async def test_a_plugin_cache_of_the_agents_own_is_kept(plan: LaunchPlan, native: Path) -> None:
    (native / "plugins" / "cache").mkdir(parents=True)
    own = Path(plan.folder) / "habitat" / ".codex" / "plugins" / "cache" / "m"
    own.mkdir(parents=True)
    assert told(await codex_home.prepare(plan, native=native)) == {"link_place_occupied"}
    assert own.is_dir()


@pytest.mark.requirement("codex.workspace-is-not-touched")
async def test_the_habitat_links_the_workspace_and_writes_nothing_into_it(
    plan_of: Plans, native: Path, workspace: Path, tmp_path: Path
) -> None:
    (workspace / "AGENTS.md").write_text("the project's", encoding="utf-8")
    plan = plan_of(instructions=("common",))
    done = await codex_home.prepare(plan, native=native)
    link = done.codex_home.parent / "workspace"
    assert link.readlink() == workspace
    assert [path.name for path in workspace.iterdir()] == ["AGENTS.md"]
    assert (workspace / "AGENTS.md").read_text(encoding="utf-8") == "the project's"
    other = tmp_path / "other"
    other.mkdir()
    await codex_home.prepare(plan_of(workspace=str(other)), native=native)
    assert link.readlink() == other


@pytest.mark.requirement("codex.instructions-come-once-and-in-order")
async def test_instructions_are_joined_in_order_each_once_and_stand_in_the_habitat_outside_of_codexs_home(
    plan_of: Plans, native: Path
) -> None:
    plan = plan_of(instructions=("common\n", "", "class\nof two lines", " common ", "agent"))
    done = await codex_home.prepare(plan, native=native)
    assert done.developer_instructions == "common\n\nclass\nof two lines\n\nagent"
    page = done.codex_home.parent / "AGENTS.md"
    assert page.read_text(encoding="utf-8") == f"{instructions.MARK}\n\n{done.developer_instructions}\n"
    assert not (done.codex_home / "AGENTS.md").exists()
    await codex_home.prepare(plan_of(), native=native)
    assert not page.exists()
    page.write_text("a person's", encoding="utf-8")
    assert told(await codex_home.prepare(plan, native=native)) == {"habitat_instructions_foreign"}
    assert page.read_text(encoding="utf-8") == "a person's"


@pytest.mark.requirement("codex.instructions-come-once-and-in-order")
def test_instructions_are_never_cut(tmp_path: Path) -> None:
    limit = instructions.INSTRUCTIONS_BYTES_MAX
    assert len(instructions.composed(["é" * (limit // 2)]).encode()) == limit
    for texts in (["é" * (limit // 2) + "x"], ["a\0b"]):
        with pytest.raises(StartFailed) as refused:
            instructions.composed(texts)
        assert (refused.value.code, refused.value.again) == ("invalid_instructions", False)
