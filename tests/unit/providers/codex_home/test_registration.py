"""Our MCP server in the agent's configuration: who owns what, and what a person is told."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost_providers.adapters.base import StartFailed
from fencepost_providers.adapters.codex import home as codex_home
from fencepost_providers.domain.runtimes import Gravity, LaunchPlan, LaunchSettings

Plans = Callable[..., LaunchPlan]
OURS = "[mcp_servers.fencepost]\n"


async def codes(plan: LaunchPlan, native: Path) -> list[str]:
    done = await codex_home.prepare(plan, native=native)
    return [note.code for note in done.notes if note.code.startswith("registration")]


def file(plan: LaunchPlan) -> Path:
    return Path(plan.folder) / "habitat" / ".codex" / "config.toml"


def entry(plan: LaunchPlan) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(file(plan).read_text(encoding="utf-8"))["mcp_servers"]["fencepost"]
    return found


def write_own(plan: LaunchPlan, text: str) -> None:
    file(plan).parent.mkdir(parents=True, exist_ok=True)
    file(plan).write_text(text, encoding="utf-8")


@pytest.mark.requirement("codex.server-is-registered")
async def test_the_entry_names_program_identity_generation_and_a_timeout_over_the_longest_wait(
    plan: LaunchPlan, native: Path
) -> None:
    assert await codes(plan, native) == ["registration_written"]
    assert entry(plan) == {
        "command": plan.mcp.command,
        "args": [],
        "env": dict(plan.mcp.environment),
        "env_vars": ["FENCEPOST_GENERATION"],
        "tool_timeout_sec": 70,
    }
    assert await codes(plan, native) == ["registration_current"]


@pytest.mark.requirement("codex.server-is-registered")
async def test_an_entry_of_ours_follows_the_installation_and_keeps_what_the_person_added(
    plan_of: Plans, native: Path, tmp_path: Path
) -> None:
    await codes(plan_of(), native)
    added = 'startup_timeout_sec = 5 # slow\n[mcp_servers.fencepost.tools.reply]\napproval_mode = "prompt"\n'
    file(plan_of()).write_text(file(plan_of()).read_text(encoding="utf-8") + added, encoding="utf-8")
    newer = tmp_path / "newer"
    newer.write_text("#!/bin/sh\n", encoding="utf-8")
    newer.chmod(0o755)
    plan = plan_of(command=str(newer))
    assert await codes(plan, native) == ["registration_written"]
    assert entry(plan)["command"] == str(newer)
    assert entry(plan)["startup_timeout_sec"] == 5
    assert entry(plan)["tools"] == {"reply": {"approval_mode": "prompt"}}
    assert "# slow" in file(plan).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("edit", "code"),
    [
        (lambda text: text.replace("tool_timeout_sec = 70", "tool_timeout_sec = 5"), "registration_edited"),
        (lambda text: text.replace("tool_timeout_sec = 70\n", ""), "registration_edited"),
        (lambda text: text.replace("tool_timeout_sec", "enabled = false\ntool_timeout_sec"), "registration_disabled"),
        (lambda text: text[: text.index(OURS)], "registration_removed"),
    ],
)
@pytest.mark.requirement("codex.registration-respects-the-person")
async def test_what_a_person_edited_disabled_or_removed_stays_and_is_said(
    plan_of: Plans, native: Path, tmp_path: Path, edit: Callable[[str], str], code: str
) -> None:
    plan = plan_of()
    await codes(plan, native)
    text = edit(file(plan).read_text(encoding="utf-8"))
    file(plan).write_text(text, encoding="utf-8")
    newer = tmp_path / "newer"
    newer.write_text("#!/bin/sh\n", encoding="utf-8")
    newer.chmod(0o755)
    for now in (plan, plan_of(command=str(newer)), plan):
        assert await codes(now, native) == [code]
        assert file(plan).read_text(encoding="utf-8") == text
    record = Path(plan.folder) / "codex" / "registration.json"
    assert record.exists()
    if code == "registration_removed":
        record.unlink()
        assert await codes(plan, native) == ["registration_written"]


@pytest.mark.parametrize("own", ['command = "x"\n', 'url = "http://127.0.0.1:1/"\n'])
@pytest.mark.requirement("codex.registration-respects-the-person")
async def test_a_name_that_is_occupied_is_left_and_said(plan: LaunchPlan, native: Path, own: str) -> None:
    write_own(plan, OURS + own)
    before = file(plan).read_bytes()
    for _ in range(2):
        done = await codex_home.prepare(plan, native=native)
        [note] = done.notes[:1]
        assert (note.code, note.gravity) == ("registration_occupied", Gravity.ERROR)
        assert note.hint
        assert file(plan).read_bytes() == before
    with pytest.raises(StartFailed) as refused:
        await codex_home.approve_tools(plan, ["reply"], native=native)
    assert refused.value.code == "registration_missing"
    assert file(plan).read_bytes() == before


@pytest.mark.requirement("codex.registration-respects-the-person")
async def test_an_entry_that_is_exactly_ours_is_ours_without_a_record(plan: LaunchPlan, native: Path) -> None:
    await codes(plan, native)
    (Path(plan.folder) / "codex" / "registration.json").unlink()
    assert await codes(plan, native) == ["registration_current"]


@pytest.mark.parametrize("command", ["", "relative", "/nowhere/fencepost-mcp"])
@pytest.mark.requirement("codex.registration-respects-the-person")
async def test_a_program_that_is_not_there_is_said_and_nothing_is_registered(
    plan_of: Plans, native: Path, command: str
) -> None:
    plan = plan_of(command=command)
    assert await codes(plan, native) == ["registration_program_missing"]
    assert "fencepost" not in file(plan).read_text(encoding="utf-8")
    assert await codes(plan_of(), native) == ["registration_written"]
    before = file(plan).read_bytes()
    assert await codes(plan, native) == ["registration_program_missing"]
    assert file(plan).read_bytes() == before


@pytest.mark.requirement("codex.approvals-only-where-asked")
async def test_tools_are_approved_one_by_one_by_name_and_nothing_else_is_granted(
    plan: LaunchPlan, native: Path
) -> None:
    assert "approval" not in str(await codex_home.prepare(plan, native=native))
    assert "tools" not in entry(plan)
    assert await codex_home.approve_tools(plan, ["send_message"], native=native) == ("send_message",)
    assert await codex_home.approve_tools(plan, ["reply"], native=native) == ("reply", "send_message")
    assert entry(plan)["tools"] == {name: {"approval_mode": "approve"} for name in ("send_message", "reply")}
    assert "default_tools_approval_mode" not in entry(plan)
    assert await codes(plan, native) == ["registration_current"]
    assert set(entry(plan)["tools"]) == {"send_message", "reply"}


@pytest.mark.requirement("codex.approvals-only-where-asked")
async def test_approving_prepares_a_home_that_is_not_there_and_refuses_what_is_no_tool(
    plan: LaunchPlan, native: Path
) -> None:
    with pytest.raises(StartFailed) as refused:
        await codex_home.approve_tools(plan, ["send_message", "shell"], native=native)
    assert refused.value.code == "unknown_tool"
    assert "tools" not in entry(plan)
    assert await codex_home.approve_tools(plan, ["send_message"], native=native) == ("send_message",)


# --- findings ---


async def found(plan: LaunchPlan, native: Path, **more: Any) -> dict[str, Any]:
    return {note.code: note for note in await codex_home.findings(plan, native=native, **more)}


@pytest.mark.requirement("codex.findings-say-how-the-home-stands")
async def test_findings_of_a_home_in_order_are_facts_and_looking_changes_nothing(
    plan: LaunchPlan, native: Path
) -> None:
    assert set(await found(plan, native)) == {"codex_home_absent"}
    assert not Path(plan.folder).exists()
    await codex_home.prepare(plan, native=native)
    before = file(plan).stat().st_mtime_ns
    notes = await found(plan, native)
    assert set(notes) == {"codex_home", "registration_current", "codex_sessions"}
    assert str(file(plan).parent) in notes["codex_home"].text
    assert all(note.gravity is Gravity.FACT for note in notes.values())
    assert file(plan).stat().st_mtime_ns == before


@pytest.mark.requirement("codex.findings-say-how-the-home-stands")
async def test_findings_say_which_tools_codex_refuses_by_itself(plan_of: Plans, native: Path) -> None:
    plan = plan_of(settings=LaunchSettings(approval="never"))
    await codex_home.prepare(plan, native=native)
    note = (await found(plan, native))["approvals_missing"]
    assert "followup_task" in note.text
    assert "list_agents" not in note.text
    await codex_home.approve_tools(plan, ["followup_task"], native=native)
    notes = await found(plan, native)
    assert "followup_task" not in notes["approvals_missing"].text
    assert "followup_task" in notes["approvals"].text
    open_wide = plan_of(settings=LaunchSettings(approval="never", sandbox="danger-full-access"))
    assert "approvals_missing" not in await found(open_wide, native)
    assert "approvals_missing" not in await found(plan_of(), native)


@pytest.mark.requirement("codex.findings-say-how-the-home-stands")
async def test_findings_name_a_stale_program_shared_databases_and_a_standing_projection(
    plan_of: Plans, native: Path, shim: Path, tmp_path: Path
) -> None:
    plan = plan_of(settings=LaunchSettings(model="m"))
    done = await codex_home.prepare(plan, native=native)
    await codex_home.project(plan, native=native)
    assert "projection_pending" in await found(plan, native)
    await codex_home.restore(plan, native=native)
    newer = tmp_path / "newer"
    shim.rename(newer)
    (done.codex_home / "state_5.sqlite").symlink_to(native / "state_5.sqlite")
    (done.codex_home / "sessions").unlink()
    (done.codex_home / "sessions").symlink_to(tmp_path)
    (done.codex_home.parent / "workspace").unlink()
    notes = await found(plan_of(command=str(newer)), native)
    assert notes["registration_stale"].hint
    assert notes["registration_path_stale"].gravity is Gravity.ERROR
    assert notes["databases_shared"].gravity is Gravity.ERROR
    assert {"codex_sessions_elsewhere", "link_broken"} <= set(notes)
    assert "projection_pending" not in notes


@pytest.mark.requirement("codex.findings-say-how-the-home-stands")
async def test_findings_of_a_configuration_that_is_no_toml_say_so(plan: LaunchPlan, native: Path) -> None:
    write_own(plan, "x = ")
    assert (await found(plan, native))["codex_config_unusable"].gravity is Gravity.ERROR


@pytest.mark.requirement("codex.plugins-stay-as-they-are")
async def test_findings_name_the_plugins_that_codex_lists_and_survive_any_other_answer(
    plan: LaunchPlan, native: Path
) -> None:
    await codex_home.prepare(plan, native=native)
    listed = b'{"installed": [{"pluginId": "p@m", "enabled": true}, {"pluginId": "q@m", "enabled": false}]}'

    def answering(answer: bytes) -> Any:
        async def ask() -> bytes:
            return answer

        return ask

    async def failing() -> bytes:
        raise TimeoutError

    note = (await found(plan, native, plugins=answering(listed)))["plugins"]
    assert note.text == "plugins: p@m (enabled), q@m (installed, not enabled)"
    assert "none" in (await found(plan, native, plugins=answering(b'{"installed": []}')))["plugins"].text
    for answer in (b"", b"[]", b'{"installed": 1}', b"x" * 100):
        assert "plugins_unknown" in await found(plan, native, plugins=answering(answer))
    assert "plugins_unknown" in await found(plan, native, plugins=failing)
