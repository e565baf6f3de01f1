"""The agent's config.toml: what it takes from the person's own, what it keeps, and what is ours in it."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost_kit import faults
from fencepost_providers.adapters.base import StartFailed
from fencepost_providers.adapters.codex import home as codex_home
from fencepost_providers.adapters.codex.home import configuration, files
from fencepost_providers.domain.runtimes import LaunchPlan

Plans = Callable[..., LaunchPlan]

NATIVE = """# mine
model = "one" # for now
approval_policy = "on-request"
sqlite_home = "/elsewhere"

[projects."/private/place"]
trust_level = "trusted"

[plugins."p@m"]
enabled = true

# the other one
[mcp_servers.peer]
command = "peer"
env = { TOKEN = "secret" }

[mcp_servers.fencepost]
command = "a person's own"

[marketplaces.m]
source_type = "local"
source = "/old/place"
"""


async def prepared(plan: LaunchPlan, native: Path) -> tuple[Path, list[str]]:
    done = await codex_home.prepare(plan, native=native)
    return done.codex_home / "config.toml", [note.code for note in done.notes]


def value(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def tree(folder: Path) -> dict[str, bytes | str]:
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.requirement("codex.home-is-private")
async def test_a_first_preparation_makes_a_private_home_and_a_second_changes_nothing(
    plan: LaunchPlan, native: Path
) -> None:
    (native / "config.toml").write_text(NATIVE, encoding="utf-8")
    (native / "auth.json").write_text('{"token": 1}', encoding="utf-8")
    done = await codex_home.prepare(plan, native=native)
    assert done.codex_home == Path(plan.folder) / "habitat" / ".codex"
    assert done.environment == {"CODEX_HOME": str(done.codex_home)}
    assert done.unset == ("CODEX_SQLITE_HOME",)
    for folder in (done.codex_home, done.codex_home.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in ("config.toml", "auth.json"):
        assert stat.S_IMODE((done.codex_home / file).stat().st_mode) == 0o600
    before = tree(Path(plan.folder))
    assert await codex_home.prepare(plan, native=native) != done  # the registration is current now, not written
    assert tree(Path(plan.folder)) == before


@pytest.mark.requirement("codex.configuration-follows-the-native-one")
async def test_the_first_configuration_is_the_persons_without_trust_plugins_databases_and_our_name(
    plan: LaunchPlan, native: Path
) -> None:
    (native / "config.toml").write_text(NATIVE, encoding="utf-8")
    path, codes = await prepared(plan, native)
    found = value(path)
    assert found["model"] == "one"
    assert found["mcp_servers"]["peer"] == {"command": "peer", "env": {"TOKEN": "secret"}}
    assert found["mcp_servers"]["fencepost"]["command"] == plan.mcp.command
    assert not {"projects", "plugins", "sqlite_home"} & set(found)
    text = path.read_text(encoding="utf-8")
    assert "# mine\n" in text
    assert "# for now\n" in text
    assert "# the other one\n" in text
    assert codes == ["registration_written"]


@pytest.mark.requirement("codex.native-home-is-never-written")
async def test_nothing_of_the_persons_own_home_is_changed_but_what_is_published_there(
    plan: LaunchPlan, native: Path
) -> None:
    (native / "config.toml").write_text(NATIVE, encoding="utf-8")
    (native / "auth.json").write_text("{}", encoding="utf-8")
    (native / "state_5.sqlite").write_bytes(b"database")
    before = tree(native)
    done = await codex_home.prepare(plan, native=native)
    (done.codex_home / "auth.json").write_text('{"renewed": true}', encoding="utf-8")
    await codex_home.approve_tools(plan, ["send_message"], native=native)
    await codex_home.project(plan, native=native, trust_workspace=True, quiet_updates=True)
    await codex_home.restore(plan, native=native)
    await codex_home.prepare(plan, native=native)
    assert tree(native) == before
    assert (done.codex_home / "auth.json").read_text(encoding="utf-8") == '{"renewed": true}'
    assert not list(done.codex_home.glob("*.sqlite*"))


@pytest.mark.requirement("codex.configuration-follows-the-native-one")
async def test_what_the_person_changes_or_removes_follows_and_what_the_agent_has_stays(
    plan: LaunchPlan, native: Path
) -> None:
    (native / "config.toml").write_text(NATIVE, encoding="utf-8")
    path, _ = await prepared(plan, native)
    text = path.read_text(encoding="utf-8").replace('approval_policy = "on-request"', 'approval_policy = "never" # so')
    path.write_text(text + '\n# own\n[mcp_servers.own]\ncommand = "own"\n', encoding="utf-8")
    changed = NATIVE.replace("/old/place", "/new/place").replace('"peer"', '"peer2"').replace('model = "one"', "#")
    (native / "config.toml").write_text(changed.replace("on-request", "untrusted"), encoding="utf-8")
    await prepared(plan, native)
    found = value(path)
    assert found["marketplaces"]["m"]["source"] == "/new/place"
    assert found["mcp_servers"]["peer"]["command"] == "peer2"
    assert found["mcp_servers"]["own"] == {"command": "own"}
    assert found["approval_policy"] == "never"
    assert "model" not in found
    assert "# own\n" in path.read_text(encoding="utf-8")
    (native / "config.toml").write_text("", encoding="utf-8")
    await prepared(plan, native)
    assert set(value(path)) == {"approval_policy", "mcp_servers"}
    assert set(value(path)["mcp_servers"]) == {"own", "fencepost"}


@pytest.mark.requirement("codex.configuration-follows-the-native-one")
async def test_an_entry_that_the_agent_took_out_changed_or_made_is_never_half_of_two(
    plan: LaunchPlan, native: Path
) -> None:
    servers = '[mcp_servers.a]\ncommand = "a"\n[mcp_servers.b]\ncommand = "b"\n'
    (native / "config.toml").write_text(servers, encoding="utf-8")
    path, _ = await prepared(plan, native)
    text = path.read_text(encoding="utf-8").replace('[mcp_servers.a]\ncommand = "a"\n', "")
    path.write_text(text.replace('command = "b"', 'command = "mine"'), encoding="utf-8")
    path.write_text(path.read_text(encoding="utf-8") + '\n[mcp_servers.c]\nurl = "u"\n', encoding="utf-8")
    more = '[mcp_servers.a]\ncommand = "a"\nargs = []\n[mcp_servers.b]\nurl = "b"\n[mcp_servers.c]\ncommand = "c"\n'
    (native / "config.toml").write_text(more, encoding="utf-8")
    await prepared(plan, native)
    servers_now = value(path)["mcp_servers"]
    assert set(servers_now) == {"b", "c", "fencepost"}
    assert servers_now["b"] == {"command": "mine"}
    assert servers_now["c"] == {"url": "u"}


@pytest.mark.requirement("codex.configuration-follows-the-native-one")
async def test_switching_a_native_server_off_for_the_agent_does_not_keep_it_from_following(
    plan: LaunchPlan, native: Path
) -> None:
    (native / "config.toml").write_text('[mcp_servers.a]\ncommand = "a"\n', encoding="utf-8")
    path, _ = await prepared(plan, native)
    text = path.read_text(encoding="utf-8").replace('command = "a"\n', 'command = "a"\nenabled = false\n')
    path.write_text(text, encoding="utf-8")
    (native / "config.toml").write_text('[mcp_servers.a]\ncommand = "b"\n', encoding="utf-8")
    await prepared(plan, native)
    assert value(path)["mcp_servers"]["a"] == {"command": "b", "enabled": False}


@pytest.mark.parametrize(
    ("content", "code"), [(b"model = ", "native_config_malformed"), (b"\xff", "native_config_unreadable")]
)
@pytest.mark.requirement("codex.configuration-follows-the-native-one")
async def test_a_native_configuration_that_cannot_be_read_is_reported_and_destroys_nothing(
    plan: LaunchPlan, native: Path, content: bytes, code: str
) -> None:
    (native / "config.toml").write_text('model = "one"\n', encoding="utf-8")
    path, _ = await prepared(plan, native)
    before = path.read_bytes()
    (native / "config.toml").write_bytes(content)
    _, codes = await prepared(plan, native)
    assert code in codes
    assert path.read_bytes() == before
    (native / "config.toml").write_text('model = "two"\n', encoding="utf-8")
    await prepared(plan, native)
    assert value(path)["model"] == "two"


@pytest.mark.requirement("codex.configuration-follows-the-native-one")
async def test_an_agents_configuration_that_is_no_toml_is_refused_and_left(plan: LaunchPlan, native: Path) -> None:
    path, _ = await prepared(plan, native)
    path.write_text("model = \n", encoding="utf-8")
    with pytest.raises(StartFailed) as refused:
        await codex_home.prepare(plan, native=native)
    assert refused.value.code == "codex_config_unusable"
    assert not refused.value.again
    assert path.read_text(encoding="utf-8") == "model = \n"


@pytest.mark.requirement("codex.native-home-is-never-written")
async def test_a_link_to_the_persons_own_file_becomes_a_file_of_the_agents(plan: LaunchPlan, native: Path) -> None:
    (native / "config.toml").write_text('model = "one"\n', encoding="utf-8")
    (native / "auth.json").write_text("{}", encoding="utf-8")
    place = Path(plan.folder) / "habitat" / ".codex"
    place.mkdir(parents=True)
    for name in ("config.toml", "auth.json"):
        (place / name).symlink_to(native / name)
    before = tree(native)
    path, _ = await prepared(plan, native)
    assert not path.is_symlink()
    assert not (place / "auth.json").is_symlink()
    assert value(path)["mcp_servers"]["fencepost"]["tool_timeout_sec"] == 70
    assert tree(native) == before


@pytest.mark.requirement("codex.login-is-copied-inward")
async def test_a_newer_native_login_wins_and_an_older_one_does_not(plan: LaunchPlan, native: Path) -> None:
    own = native / "auth.json"
    own.write_text("first", encoding="utf-8")
    path, _ = await prepared(plan, native)
    copy = path.parent / "auth.json"
    copy.write_text("renewed by codex", encoding="utf-8")
    os.utime(own, ns=(1, copy.stat().st_mtime_ns - 1))
    await prepared(plan, native)
    assert copy.read_text(encoding="utf-8") == "renewed by codex"
    own.write_text("logged in again", encoding="utf-8")
    os.utime(own, ns=(1, copy.stat().st_mtime_ns + 1))
    await prepared(plan, native)
    assert copy.read_text(encoding="utf-8") == "logged in again"
    own.unlink()
    _, codes = await prepared(plan, native)
    assert copy.read_text(encoding="utf-8") == "logged in again"
    assert "codex_login_not_copied" not in codes


@pytest.mark.requirement("codex.login-is-copied-inward")
async def test_a_login_that_cannot_be_read_is_reported_and_the_start_goes_on(plan: LaunchPlan, native: Path) -> None:
    (native / "auth.json").mkdir()
    _, codes = await prepared(plan, native)
    assert "codex_login_not_copied" in codes


@pytest.mark.requirement("codex.home-is-private")
async def test_a_native_home_that_is_the_agents_own_is_refused(plan: LaunchPlan, native: Path) -> None:
    path, _ = await prepared(plan, native)
    with pytest.raises(StartFailed) as refused:
        await codex_home.prepare(plan, native=path.parent)
    assert refused.value.code == "codex_home_is_native"


@pytest.mark.requirement("codex.home-is-private")
async def test_a_file_system_that_refuses_is_a_failed_start_that_may_be_repeated(
    plan: LaunchPlan, native: Path
) -> None:
    faults.arm("providers.codex_home.config_intended=error")
    with pytest.raises(StartFailed) as refused:
        await codex_home.prepare(plan, native=native)
    assert (refused.value.code, refused.value.again) == ("codex_home_failed", True)


class Died(BaseException):
    """Stands for the end of the process: nothing of ours catches it."""


def dying_at(monkeypatch: pytest.MonkeyPatch, point: str, *, turn: int = 1) -> None:
    """Make the process "end" the turn-th time that a point is reached."""
    left = [turn]

    def hit(name: str) -> None:
        if name == point:
            left[0] -= 1
            if left[0] == 0:
                raise Died(name)

    monkeypatch.setattr(faults, "ARMED", True)
    monkeypatch.setattr(faults, "hit", hit)


POINTS = ["config_intended", "config_published", "links_intended", "links_made"]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.requirement("codex.preparation-survives-crashes")
async def test_a_crash_at_any_step_of_the_configuration_leaves_ours_ours_and_the_agents_the_agents(
    plan_of: Plans, native: Path, shim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    skills = tmp_path / "skills"
    (skills / "one").mkdir(parents=True)
    plan = plan_of(skills=(str(skills),))
    (native / "config.toml").write_text('model = "one"\n[mcp_servers.a]\ncommand = "a"\n', encoding="utf-8")
    other = tmp_path / "other-mcp"
    other.write_bytes(shim.read_bytes())
    other.chmod(0o755)
    path = Path(plan.folder) / "habitat" / ".codex" / "config.toml"
    texts: Iterator[tuple[str, LaunchPlan]] = iter(
        [
            ('model = "one"\n[mcp_servers.a]\ncommand = "a"\n', plan),
            ('model = "two"\n[mcp_servers.b]\ncommand = "b"\n', plan_of(command=str(other), skills=(str(skills),))),
            ("", plan_of(skills=())),
        ]
    )
    for text, now in texts:
        (native / "config.toml").write_text(text, encoding="utf-8")
        with monkeypatch.context() as patched:
            dying_at(patched, f"providers.codex_home.{point}")
            with pytest.raises(Died):
                await codex_home.prepare(now, native=native)
        if path.exists():
            path.write_text(path.read_text(encoding="utf-8") + "# the agent's\n", encoding="utf-8")
        done = await codex_home.prepare(now, native=native)
        found = value(path)
        wanted = tomllib.loads(text)
        assert found.get("model") == wanted.get("model")
        assert set(found["mcp_servers"]) == {*wanted.get("mcp_servers", {}), "fencepost"}
        assert found["mcp_servers"]["fencepost"]["command"] == now.mcp.command
        assert {note.code for note in done.notes} <= {"registration_current", "registration_written"}
        assert (path.parent / "skills" / "one").is_symlink() is bool(now.skills)


async def test_a_configuration_that_changes_under_the_preparation_is_read_again(
    plan: LaunchPlan, native: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = await prepared(plan, native)
    (native / "config.toml").write_text('model = "one"\n', encoding="utf-8")
    real, turns = files.publish, [0]

    def publish(at: Path, content: bytes, *, before: bytes | None) -> None:
        if at == path and not turns[0]:
            turns[0] += 1
            path.write_bytes(path.read_bytes() + b"# meanwhile\n")
        real(at, content, before=before)

    monkeypatch.setattr(files, "publish", publish)
    await prepared(plan, native)
    assert turns == [1]
    assert value(path)["model"] == "one"
    assert "# meanwhile\n" in path.read_text(encoding="utf-8")


async def test_a_configuration_that_changes_every_time_is_left_and_the_start_may_be_repeated(
    plan: LaunchPlan, native: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = await prepared(plan, native)
    (native / "config.toml").write_text('model = "one"\n', encoding="utf-8")
    before, turns = path.read_bytes(), [0]

    def publish(at: Path, content: bytes, *, before: bytes | None) -> None:
        if at == path:
            turns[0] += 1
            raise files.ChangedMeanwhile(str(at))
        real(at, content, before=before)

    real = files.publish
    monkeypatch.setattr(files, "publish", publish)
    with pytest.raises(StartFailed) as refused:
        await codex_home.prepare(plan, native=native)
    assert (refused.value.code, refused.value.again) == ("codex_config_changing", True)
    assert turns == [configuration.ATTEMPTS_MAX]
    assert path.read_bytes() == before
