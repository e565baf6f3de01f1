"""How a launch differs from the configuration: arguments in the background, a projection that goes for a terminal."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_kit import faults
from fencepost_providers.adapters.base import StartFailed
from fencepost_providers.adapters.codex import home as codex_home
from fencepost_providers.adapters.codex.home import arguments, projection, tables
from fencepost_providers.domain.runtimes import LaunchPlan, LaunchSettings

Plans = Callable[..., LaunchPlan]
CONVERSATION = "019b2c1e-0d3a-7b57-9a41-7c5e2f10ab34"
FULL = LaunchSettings(model="m", effort="high", sandbox="workspace-write", approval="never")


def settings_of(words: tuple[str, ...]) -> dict[str, Any]:
    """Read `-c` arguments as Codex does: each value as TOML."""
    pairs = [words[at + 1] for at, word in enumerate(words) if word == "-c"]
    found: dict[str, Any] = {}
    for pair in pairs:
        found.update(tables.leaves(tomllib.loads(pair)))  # type: ignore[arg-type]
    return {".".join(key): value for key, value in found.items()}


def config(done: codex_home.Prepared) -> Path:
    return done.codex_home / "config.toml"


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# --- the background ---


@pytest.mark.requirement("codex.background-projects-nothing")
async def test_a_background_start_carries_its_settings_as_arguments_and_writes_nothing(
    plan_of: Plans, native: Path, workspace: Path
) -> None:
    text = 'two "lines"\n\\ and \x7f ü 😀'
    plan = plan_of(settings=FULL, instructions=(text,))
    await codex_home.prepare(plan, native=native)
    before = tree(Path(plan.folder))
    words = await codex_home.background_arguments(plan)
    assert settings_of(words) == {
        "model": "m",
        "model_reasoning_effort": "high",
        "sandbox_mode": "workspace-write",
        "approval_policy": "never",
        "developer_instructions": text,
    }
    assert tree(Path(plan.folder)) == before
    assert not any("plugins" in word or "apps" in word for word in words)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_reads_back_from_an_argument(text: str) -> None:
    assert tomllib.loads(f"a = {arguments.toml([text])}") == {"a": [text]}


@pytest.mark.requirement("codex.background-projects-nothing")
async def test_nothing_that_is_unset_is_said(plan: LaunchPlan, native: Path) -> None:
    await codex_home.prepare(plan, native=native)
    assert await codex_home.background_arguments(plan, default_model="catalogue") == ()


def recorded(home: Path, *models: str, session: str = CONVERSATION) -> None:
    path = home / "sessions" / "2026" / "11" / "30" / f"rollout-2026-11-30T10-00-00-{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [{"type": "session_meta", "payload": {"id": session}}]
    lines += [{"type": "turn_context", "payload": {"model": model}} for model in models]
    lines += [{"type": "event_msg", "payload": {"text": '"turn_context"', "model": "no"}}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"type": "turn_con', encoding="utf-8")


@pytest.mark.requirement("codex.effort-alone-keeps-the-model")
async def test_an_effort_alone_goes_with_the_conversations_model_then_the_configured_then_the_catalogues(
    plan_of: Plans, native: Path
) -> None:
    plan = plan_of(settings=LaunchSettings(effort="low"), conversation_id=CONVERSATION)
    done = await codex_home.prepare(plan, native=native)

    async def model(now: LaunchPlan = plan, **more: str) -> str | None:
        return settings_of(await codex_home.background_arguments(now, **more)).get("model")

    assert await model() is None
    assert await model(default_model="catalogue") == "catalogue"
    config(done).write_text(config(done).read_text(encoding="utf-8").replace("[", 'model = "own"\n[', 1), "utf-8")
    assert await model(default_model="catalogue") == "own"
    recorded(done.codex_home, "first", "last")
    assert await model(default_model="catalogue") == "last"
    assert await model(plan_of(settings=LaunchSettings(effort="low"))) == "own"
    chosen = plan_of(settings=LaunchSettings(effort="low", model="chosen"), conversation_id=CONVERSATION)
    assert await model(chosen) == "chosen"
    neither = plan_of(conversation_id=CONVERSATION)
    assert await model(neither) is None
    assert plan.settings.model == ""


def test_a_conversation_id_that_is_none_names_no_rollout(tmp_path: Path) -> None:
    assert arguments.recorded_model(tmp_path, "*") == ""
    assert arguments.recorded_model(tmp_path, CONVERSATION) == ""


@pytest.mark.requirement("codex.launch-settings-are-checked")
async def test_included_folders_come_behind_those_of_the_configuration(
    plan_of: Plans, native: Path, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    text = f'[sandbox_workspace_write]\nwritable_roots = ["{two}", "/configured"]\n'
    (native / "config.toml").write_text(text, encoding="utf-8")
    plan = plan_of(settings=LaunchSettings(include_directories=(f"{one}/", str(two), str(one))))
    await codex_home.prepare(plan, native=native)
    found = settings_of(await codex_home.background_arguments(plan))
    assert found == {"sandbox_workspace_write.writable_roots": [str(two), "/configured", str(one)]}


@pytest.mark.requirement("codex.launch-settings-are-checked")
async def test_custom_arguments_that_an_app_server_takes_are_appended(plan_of: Plans, native: Path) -> None:
    custom = ("-c", "web_search=live", "--config=features.x=true", "--enable", "y", "--disable=z", "--strict-config")
    plan = plan_of(settings=LaunchSettings(model="m", custom_arguments=custom))
    await codex_home.prepare(plan, native=native)
    words = await codex_home.background_arguments(plan)
    wanted = ("-c", "web_search=live", "--config", "features.x=true", "--enable", "y", "--disable", "z")
    assert words == ("-c", 'model="m"', *wanted, "--strict-config")


@pytest.mark.parametrize(
    "settings",
    [
        LaunchSettings(sandbox="none"),
        LaunchSettings(approval="always"),
        LaunchSettings(model="a\nb"),
        LaunchSettings(include_directories=("relative",)),
        LaunchSettings(include_directories=("/nowhere/at/all",)),
        LaunchSettings(include_directories=("/",) * (arguments.INCLUDES_MAX + 1)),
        LaunchSettings(custom_arguments=("--profile", "x")),
        LaunchSettings(custom_arguments=("prompt",)),
        LaunchSettings(custom_arguments=("-c",)),
        LaunchSettings(custom_arguments=("-c", "novalue")),
        LaunchSettings(custom_arguments=("-c=model=x",)),
        LaunchSettings(custom_arguments=("-c", "a b=1")),
        LaunchSettings(custom_arguments=("-c", "sqlite_home=/x")),
        LaunchSettings(custom_arguments=("--config", "mcp_servers.fencepost.command=x")),
        LaunchSettings(custom_arguments=("-c", 'mcp_servers."fencepost".command=x')),
        LaunchSettings(custom_arguments=("-c", "mcp_servers={}")),
        LaunchSettings(custom_arguments=("--strict-config",) * (arguments.CUSTOM_MAX + 1)),
    ],
)
@pytest.mark.requirement("codex.launch-settings-are-checked")
async def test_settings_that_codex_does_not_have_or_that_would_join_homes_are_refused(
    plan_of: Plans, native: Path, settings: LaunchSettings
) -> None:
    plan = plan_of(settings=settings)
    await codex_home.prepare(plan, native=native)
    with pytest.raises(StartFailed) as refused:
        await codex_home.background_arguments(plan)
    assert (refused.value.code, refused.value.again) == ("invalid_launch_setting", False)


@pytest.mark.requirement("codex.launch-settings-are-checked")
async def test_a_retired_approval_leaves_the_programs_own(plan_of: Plans, native: Path) -> None:
    plan = plan_of(settings=LaunchSettings(approval="on-failure"))
    await codex_home.prepare(plan, native=native)
    assert await codex_home.background_arguments(plan) == ()


# --- the projection for a terminal ---


@pytest.mark.requirement("codex.projection-goes-again")
async def test_a_projection_carries_the_launch_and_goes_to_the_last_byte(
    plan_of: Plans, native: Path, workspace: Path
) -> None:
    (native / "config.toml").write_text('# mine\nmodel = "own" # why\n[features]\nx = true\n', encoding="utf-8")
    plan = plan_of(settings=FULL, instructions=("common",))
    done = await codex_home.prepare(plan, native=native)
    before = config(done).read_bytes()
    assert await codex_home.project(plan, native=native, trust_workspace=True, quiet_updates=True) == ()
    found = tomllib.loads(config(done).read_text(encoding="utf-8"))
    assert found["model"] == "m"
    assert found["model_reasoning_effort"] == "high"
    assert found["developer_instructions"] == "common"
    assert found["projects"] == {str(workspace): {"trust_level": "trusted"}}
    assert found["check_for_update_on_startup"] is False
    assert found["tui"] == {"fullscreen_transcript": True}
    assert await codex_home.restore(plan, native=native) == ()
    assert config(done).read_bytes() == before
    assert await codex_home.restore(plan, native=native) == ()
    assert config(done).read_bytes() == before


@pytest.mark.requirement("codex.projection-goes-again")
async def test_nothing_is_trusted_or_silenced_that_the_operator_did_not_allow(plan: LaunchPlan, native: Path) -> None:
    done = await codex_home.prepare(plan, native=native)
    await codex_home.project(plan, native=native)
    found = tomllib.loads(config(done).read_text(encoding="utf-8"))
    assert set(found) == {"mcp_servers", "tui"}


@pytest.mark.parametrize(
    ("own", "kept"),
    [
        ("[tui]\nfullscreen_transcript = false\n", {"fullscreen_transcript": False}),
        ('[tui]\nalternate_screen = "never"\n', {"alternate_screen": "never"}),
    ],
)
@pytest.mark.requirement("codex.projection-goes-again")
async def test_the_persons_choice_of_screen_and_trust_stays(
    plan: LaunchPlan, native: Path, workspace: Path, own: str, kept: dict[str, Any]
) -> None:
    done = await codex_home.prepare(plan, native=native)
    trust = f'[projects."{workspace}"]\ntrust_level = "untrusted"\n'
    config(done).write_text(config(done).read_text(encoding="utf-8") + own + trust, encoding="utf-8")
    await codex_home.project(plan, native=native, trust_workspace=True)
    found = tomllib.loads(config(done).read_text(encoding="utf-8"))
    assert found["tui"] == kept
    assert found["projects"][str(workspace)] == {"trust_level": "untrusted"}


@pytest.mark.requirement("codex.projection-goes-again")
async def test_what_a_person_changes_meanwhile_stays_and_the_rest_goes_back(
    plan_of: Plans, native: Path, workspace: Path
) -> None:
    (native / "config.toml").write_text('model = "own" # why\n', encoding="utf-8")
    plan = plan_of(settings=FULL)
    done = await codex_home.prepare(plan, native=native)
    await codex_home.project(plan, native=native, trust_workspace=True, quiet_updates=True)
    text = config(done).read_text(encoding="utf-8")
    text = text.replace('approval_policy = "never"', 'approval_policy = "on-request"')
    text = text.replace("fullscreen_transcript = true", 'fullscreen_transcript = false\ntheme = "x" # nice')
    config(done).write_text(text + "# theirs\n[features]\ny = true\n", encoding="utf-8")
    assert await codex_home.restore(plan, native=native) == ()
    after = config(done).read_text(encoding="utf-8")
    found = tomllib.loads(after)
    assert found["model"] == "own"
    assert found["approval_policy"] == "on-request"
    assert found["tui"] == {"fullscreen_transcript": False, "theme": "x"}
    assert found["features"] == {"y": True}
    assert not {"model_reasoning_effort", "sandbox_mode", "projects", "check_for_update_on_startup"} & set(found)
    for comment in ("# why", "# nice", "# theirs"):
        assert comment in after


@pytest.mark.parametrize("point", ["projection_journaled", "projection_published", "projection_restored"])
@pytest.mark.requirement("codex.projection-goes-again", "codex.preparation-survives-crashes")
async def test_a_projection_that_was_broken_off_is_gone_after_the_next_preparation(
    plan_of: Plans, native: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    class Died(BaseException):
        pass

    def hit(name: str) -> None:
        if name.endswith(point):
            raise Died

    (native / "config.toml").write_text('model = "own"\n', encoding="utf-8")
    plan = plan_of(settings=FULL)
    done = await codex_home.prepare(plan, native=native)
    before = config(done).read_bytes()

    async def attached() -> None:
        await codex_home.project(plan, native=native, quiet_updates=True)
        await codex_home.restore(plan, native=native)

    with monkeypatch.context() as patched:
        patched.setattr(faults, "ARMED", True)
        patched.setattr(faults, "hit", hit)
        with pytest.raises(Died):
            await attached()
    (native / "config.toml").write_text('model = "new"\n', encoding="utf-8")
    await codex_home.prepare(plan_of(), native=native)
    assert config(done).read_bytes() == before.replace(b'"own"', b'"new"')
    assert not projection.pending(Path(plan.folder) / "codex")


@pytest.mark.requirement("codex.projection-goes-again")
async def test_a_second_projection_undoes_the_first_before_it(plan_of: Plans, native: Path) -> None:
    plan = plan_of(settings=FULL)
    done = await codex_home.prepare(plan, native=native)
    before = config(done).read_bytes()
    await codex_home.project(plan, native=native)
    other = plan_of(settings=LaunchSettings(effort="low"))
    await codex_home.project(other, native=native)
    found = tomllib.loads(config(done).read_text(encoding="utf-8"))
    assert "model" not in found
    assert found["model_reasoning_effort"] == "low"
    await codex_home.restore(other, native=native)
    assert config(done).read_bytes() == before


PROJECTED = {("model",): "m", ("model_reasoning_effort",): "high", ("projects", "/w", "trust_level"): "trusted"}
KEYS = st.sampled_from([*PROJECTED, ("other",), ("projects", "/v", "trust_level")])
EDITS = st.lists(st.tuples(KEYS, st.sampled_from(["m", "high", "trusted", "theirs", None])), max_size=5)


@pytest.mark.requirement("codex.projection-goes-again")
@given(own=st.dictionaries(KEYS, st.sampled_from(["m", "own"])), edits=EDITS)
def test_whatever_a_person_edits_meanwhile_is_kept_and_nothing_else_of_the_projection_stays(
    tmp_path_factory: pytest.TempPathFactory, own: dict[tuple[str, ...], str], edits: list[Any]
) -> None:
    folder = tmp_path_factory.mktemp("projected")
    path = folder / "config.toml"
    path.write_text(tables.edited("# top\n", own, ()), encoding="utf-8")
    projection.project(folder, folder, PROJECTED, trust="", quiet_updates=False, fullscreen=False)
    theirs: dict[tuple[str, ...], str | None] = {}
    for key, value in edits:
        text = path.read_text(encoding="utf-8")
        path.write_text(tables.edited(text, {} if value is None else {key: value}, [key]), encoding="utf-8")
        theirs[key] = value
    assert projection.restore(folder, folder) == []
    found = tables.parse(path.read_text(encoding="utf-8"))
    assert "# top\n" in path.read_text(encoding="utf-8")
    for key in {*own, *PROJECTED, *theirs}:
        value = tables.lookup(found, key)
        if key in theirs and (key not in PROJECTED or theirs[key] != PROJECTED[key]):
            assert value == (tables.MISSING if theirs[key] is None else theirs[key])
        else:
            assert value == own.get(key, tables.MISSING)
