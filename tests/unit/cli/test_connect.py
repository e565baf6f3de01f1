"""`fencepost connect`, `fencepost mcp config` and `fencepost config show`, as typed."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest

from fencepost.connect import trial
from fencepost.connect.entry import Server, shim_command
from fencepost.connect.programs import PROGRAMS
from fencepost.home import SERVICES
from fencepost.mcp import registry
from fencepost_testing.shell import Shell


@pytest.fixture
def person(shell: Shell, tmp_path: Path) -> Shell:
    """A shell whose home folder is new and in whose path no agent program lies."""
    shell.monkeypatch.setenv("HOME", str(tmp_path / "person"))
    shell.monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "OPENCODE_CONFIG", "XDG_CONFIG_HOME"):
        shell.monkeypatch.delenv(name, raising=False)
    (tmp_path / "person").mkdir()
    return shell


def program(tmp_path: Path, name: str, text: str) -> None:
    """Put a program into the path."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"


@pytest.mark.requirement("connect.config-is-ready-to-paste")
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_configuration_of_each_program_is_printed_ready_to_paste(person: Shell, name: str) -> None:
    place = ["--project", "/srv/x"] if name == "antigravity" else []
    done = person("mcp", "config", name, "--agent", "ann", *place)
    assert done.code == 0, done.err
    assert done.err.startswith("Goes into ")
    whole = tomllib.loads(done.out) if name == "codex" else json.loads(done.out)
    entry = whole
    for key in PROGRAMS[name].path:
        entry = entry[key]
    document = person("mcp", "config", name, "--agent", "ann", *place, "--json").document
    assert document["entry"] == entry
    assert document["text"] + "\n" == done.out
    assert document["tool_timeout_ms"] == (70_000 if PROGRAMS[name].has_tool_timeout else None)
    assert not list(Path(os.environ["HOME"]).iterdir())


@pytest.mark.requirement("connect.config-is-ready-to-paste")
def test_without_an_agent_the_environment_of_the_program_names_one(person: Shell) -> None:
    entry = tomllib.loads(person("mcp", "config", "codex").out)["mcp_servers"]["fencepost"]
    assert entry["env"] == {"FENCEPOST_HOME": person.home.text}
    assert "FENCEPOST_SESSION_ID" in entry["env_vars"]
    assert entry["args"] == shim_command()[1:]
    named = tomllib.loads(person("mcp", "config", "codex", "--agent", "ann", "--project", "sub").out)
    entry = named["mcp_servers"]["fencepost"]
    assert entry["args"][-4:] == ["--agent", "ann", "--project", str(Path.cwd() / "sub")]
    assert "env_vars" not in entry


@pytest.mark.requirement("tools.profiles", "tools.server-names")
def test_a_configuration_says_what_the_server_offers_and_what_it_is_called_elsewhere(
    person: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "from 1 to 22")
    words = ("mcp", "config", "codex", "--tools", "messaging,tasks", "--names", "warp")
    entry = tomllib.loads(person(*words).out)["mcp_servers"]["fencepost"]
    assert entry["args"][-4:] == ["--tools", "messaging,tasks", "--names", "warp"]
    assert entry["env"] == {"FENCEPOST_HOME": person.home.text, "FENCEPOST_SERVER_NAME": "fencepost-ssh"}


@pytest.mark.requirement("tools.profiles", "connect.the-server-is-tried")
def test_a_server_that_offers_other_tools_is_tried_for_these_and_each_can_be_approved(person: Shell) -> None:
    words = ("connect", "codex", "--agent", "ann", "--tools", "files", "--names", "warp")
    done = person(*words, "--approve", "warp_file_reserve", "--json").document
    assert done["handshake"]["problem"] == ""
    assert done["handshake"]["tools"] == [f"warp_{tool.name}" for tool in registry.EVERY if tool.family == "files"]


@pytest.mark.parametrize(
    "words",
    [
        ("connect", "codex", "--tools", "every"),
        ("connect", "codex", "--names", "warp,fencepost"),
        ("connect", "codex", "--tools", "tasks", "--approve", "send_message"),
        ("connect", "codex", "--undo", "--tools", "all"),
        ("connect", "emacs"),
        ("connect", "codex", "--agent", ""),
        ("connect", "codex", "--project", "/srv"),
        ("connect", "antigravity", "--agent", "ann"),
        ("connect", "codex", "--approve", "nothing"),
        ("connect", "codex", "--undo", "--agent", "ann"),
        ("mcp", "config", "emacs"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_written(person: Shell, words: tuple[str, ...]) -> None:
    done = person(*words, "--json")
    assert done.code == 1
    assert done.error["code"] in ("invalid_arguments", "unknown_program")
    assert "nothing was" in done.error["message"]
    assert not list(Path(os.environ["HOME"]).iterdir())


@pytest.mark.requirement("connect.the-server-is-tried")
def test_connecting_writes_tries_the_server_asks_the_program_and_undoes(person: Shell, tmp_path: Path) -> None:
    program(tmp_path, "codex", 'echo "$@"; echo "fencepost  enabled"')
    config = Path(os.environ["HOME"]) / ".codex" / "config.toml"
    dry = person("connect", "codex", "--dry-run", "--json").document
    assert (dry["files"][0]["changed"], dry["handshake"], config.exists()) == (True, None, False)
    done = person("connect", "codex", "--agent", "ann", "--approve", "reply", "--json").document
    assert done["handshake"]["problem"] == ""
    assert done["handshake"]["tools"] == list(registry.TOOL_OF)
    assert done["program_says"] == {"listed": True, "said": "fencepost  enabled"}
    entry = tomllib.loads(config.read_text())["mcp_servers"]["fencepost"]
    assert entry["tools"] == {"reply": {"approval_mode": "approve"}}
    again = person("connect", "codex", "--agent", "ann")
    assert "is as it should be" in again.out
    assert "Tried: the server answers" in again.out
    assert "codex itself" in again.out.lower()
    assert not person.home.agents.joinpath("x").exists()
    assert person.acted == [], "no service was asked: a line in a configuration is no agent"
    assert person("connect", "codex", "--undo", "--json").document["files"][0]["what"] == "removed"
    assert not config.parent.exists()
    assert person("connect", "codex", "--undo").out.startswith("Nothing to undo")


@pytest.mark.requirement("connect.the-server-is-tried")
def test_a_server_that_does_not_work_is_told_with_the_way_back(person: Shell) -> None:
    person.monkeypatch.setattr("fencepost.connect.entry.shim_command", lambda: ["/bin/false"])
    done = person("connect", "pi", "--json")
    assert (done.code, done.error["code"]) == (1, "handshake_failed")
    assert "status 1" in done.error["message"]
    assert "connect pi --undo" in done.error["hint"]
    assert json.loads(done.out)["files"][0]["changed"] is True


@pytest.mark.requirement("connect.an-agent-connects-nothing")
def test_an_agent_changes_no_configuration(person: Shell) -> None:
    person.as_agent()
    assert person("connect", "codex").code == 3
    assert not list(Path(os.environ["HOME"]).iterdir())


@pytest.mark.requirement("connect.the-server-is-tried")
@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("exit 3", "status 3"),
        ("cat", "something else"),
        ("echo nonsense", "something else"),
        ('read x; echo \'{"id":1,"result":{"serverInfo":{"name":"other"}}}\'', "something else"),
        ('read x; echo \'{"id":1,"result":{"serverInfo":{"name":"fencepost-local"}}}\'; cat >/dev/null', "status"),
        (
            (
                'read x; echo \'{"id":1,"result":{"serverInfo":{"name":"fencepost"}}}\';'
                ' echo \'{"id":2,"result":{"tools":[{"name":"reply"}]}}\'; cat >/dev/null'
            ),
            "does not offer send_message",
        ),
        ("trap '' TERM; while :; do read x || sleep 0.05; done", "did not answer"),
    ],
)
async def test_whatever_a_server_does_the_trial_ends_and_says_what_was_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, problem: str
) -> None:
    monkeypatch.setattr(trial, "HANDSHAKE_MS_MAX", 600)
    monkeypatch.setattr(trial, "END_MS_MAX", 200)
    named = {"FENCEPOST_SERVER_NAME": "fencepost-local"}
    server = Server(command="/bin/sh", arguments=("-c", script), environment=named, passes=())
    tried = await trial.shake_hands(server, env=os.environ, cwd=tmp_path)
    assert problem in tried.problem or (problem == "status" and "did not answer" in tried.problem)
    missing = await trial.shake_hands(
        Server(command=str(tmp_path / "none"), arguments=(), environment={}, passes=()), env={}
    )
    assert "cannot be started" in missing.problem


async def test_a_program_is_asked_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "ASK_MS_MAX", 600)
    monkeypatch.setenv("PATH", os.environ["PATH"])
    for name, script in {
        "yes1": "echo other; printf ' fence\\033[90mpost: \\033[1;32mfine\\033[0m \\n'",
        "no1": "echo other",
        "bad1": "exit 4",
        "slow1": "sleep 60",
        "loud1": "while :; do echo loud; done",
    }.items():
        program(tmp_path, name, script)
    said = {
        name: await trial.ask_program((name, "mcp", "list"), env=os.environ)
        for name in ("yes1", "no1", "bad1", "slow1", "loud1", "none1")
    }
    assert (said["yes1"].listed, said["yes1"].said) == (True, "fencepost: fine")
    assert said["no1"].listed is False
    assert [said[name].listed for name in ("bad1", "slow1", "none1")] == [None, None, None]
    assert said["loud1"].listed is not True
    assert (await trial.ask_program((), env=os.environ)).listed is None


@pytest.mark.requirement("config.show-tells-every-value-and-its-source")
def test_every_setting_is_shown_with_where_it_comes_from(person: Shell) -> None:
    person.home.path.mkdir(exist_ok=True)
    person.home.settings.write_text("[mailbox]\ndrain_ms = 7\n[up]\ngrace_ms = 9\n")
    person.monkeypatch.setenv("FENCEPOST_SESSIONS_LOG_LEVEL", "debug")
    document = person("config", "show", "--json").document
    found = {(item["service"], item["name"]): item for item in document["settings"]}
    assert {item["service"] for item in document["settings"]} == {"up", *SERVICES}
    assert found["mailbox", "drain_ms"]["value"] == 7
    assert found["mailbox", "drain_ms"]["source"] == f"{person.home.settings} [mailbox] drain_ms"
    assert found["up", "grace_ms"]["value"] == 9
    assert found["sessions", "log_level"]["source"] == "FENCEPOST_SESSIONS_LOG_LEVEL"
    assert found["sessions", "drain_ms"]["source"] == "default"
    only = person("config", "show", "--service", "mailbox")
    assert "drain_ms" in only.out
    assert "grace_ms" not in only.out
    assert person("config", "show", "--service", "x", "--json").error["code"] == "unknown_service"


@pytest.mark.requirement("config.show-tells-every-value-and-its-source")
@pytest.mark.parametrize("text", ["[mailbox]\nnothing = 1\n", "[mailbox]\ndrain_ms = 'x'\n", "[nobody]\n", "="])
def test_a_setting_that_would_stop_a_start_is_refused_by_name(person: Shell, text: str) -> None:
    person.home.path.mkdir(exist_ok=True)
    person.home.settings.write_text(text)
    done = person("config", "show", "--json")
    assert (done.code, done.error["code"]) == (1, "invalid_settings")
    assert str(person.home.settings) in done.error["message"]
