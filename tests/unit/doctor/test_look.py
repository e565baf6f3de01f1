"""Looking: configurations of every program, files of a home, processes, the edge's greeting."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.connect import plan
from fencepost.connect.entry import Server, server_of
from fencepost.connect.programs import PROGRAMS, program_of
from fencepost.doctor import look, processes
from fencepost.doctor.entries import Entry, Unreadable, every, is_ours, of_file
from fencepost.doctor.findings import judge
from fencepost.home import Home
from fencepost.mcp import answers, registry
from fencepost.mcp.arguments import parse
from fencepost_testing.shim import FakeEdge

AGENT = "0195f3a0-0000-7000-8000-000000000001"


@pytest.fixture
def home() -> Iterator[Home]:
    # pytest's own temporary folders are too deep for a socket path on some systems.
    with tempfile.TemporaryDirectory(prefix="fp", ignore_cleanup_errors=True) as folder:
        made = Home(Path(folder).resolve() / "h")
        made.prepare()
        yield made


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}


def entries(home: Home, env: dict[str, str]) -> list[Entry]:
    return [item for item in every(home, env) if isinstance(item, Entry)]


@pytest.mark.requirement("doctor.looks-where-programs-look")
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_connect_writes_is_found_whole(home: Home, env: dict[str, str], name: str) -> None:
    server = server_of(home, parse(["--agent", "ann", "--project", "/srv"]))
    plan.carry_out(home, plan.plan(home, program_of(name), server, env=env))
    (entry,) = entries(home, env)
    assert (entry.program, entry.name, entry.enabled) == (name, "fencepost", True)
    assert entry.command == (server.command, *server.arguments)
    assert entry.environment == {"FENCEPOST_HOME": home.text}
    assert entry.asked is not None
    assert (entry.asked.name, entry.asked.project) == ("ann", "/srv")
    elsewhere = {"HOME": "/nowhere"}
    assert [found.file for found in entries(home, elsewhere)] == [entry.file], "what we wrote is found by its record"


@pytest.mark.requirement("doctor.looks-where-programs-look")
@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ('approval_policy = "never"', tuple(registry.TOOL_OF)),
        ('approval_policy = "on-request"', ()),
        ("", ()),
    ],
)
def test_codex_tells_which_tools_it_refuses_by_itself(tmp_path: Path, text: str, refused: tuple[str, ...]) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text + '\n[mcp_servers.fencepost]\ncommand = "/x/fencepost-mcp"\n')
    (entry,) = of_file(program_of("codex"), path)
    assert isinstance(entry, Entry)
    assert entry.refused_tools == refused
    approved = path.read_text() + '[mcp_servers.fencepost.tools.reply]\napproval_mode = "approve"\n'
    path.write_text(approved)
    (entry,) = of_file(program_of("codex"), path)
    assert isinstance(entry, Entry)
    assert entry.refused_tools == tuple(tool for tool in refused if tool != "reply")
    path.write_text(text + '\n[mcp_servers.f]\ncommand = "/x/fencepost-mcp"\ndefault_tools_approval_mode = "approve"\n')
    (entry,) = of_file(program_of("codex"), path)
    assert isinstance(entry, Entry)
    assert entry.refused_tools == ()


@pytest.mark.requirement("doctor.looks-where-programs-look")
@pytest.mark.parametrize(
    ("servers", "found"),
    [
        ({"mine": {"command": "/x/bin/fencepost-mcp"}}, [("mine", True)]),
        ({"mine": {"command": "fencepost", "args": ["mcp", "serve"]}}, [("mine", True)]),
        (
            {"mine": {"command": "python", "args": ["-m", "fencepost", "mcp", "serve"], "disabled": True}},
            [("mine", False)],
        ),
        ({"mine": {"command": "python", "args": ["-P", "-m", "fencepost.mcp.shim"]}}, [("mine", True)]),
        ({"fencepost": {"command": "other"}}, [("fencepost", True)]),
        ({"a": {"command": "other"}, "b": 1, "c": {"url": "http://x"}, "d": {"command": [1]}, "e": {"args": []}}, []),
        ([], []),
        (None, []),
    ],
    ids=str,
)
def test_an_entry_is_ours_by_its_command_whatever_its_name(tmp_path: Path, servers: Any, found: list[Any]) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    assert [(item.name, item.enabled) for item in of_file(program_of("pi"), path) if isinstance(item, Entry)] == found


def test_what_cannot_be_read_is_named_and_what_is_not_there_is_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert list(of_file(program_of("pi"), path)) == []
    for name, raw in (("pi", b"{"), ("codex", b"="), ("pi", b"\xff")):
        path.write_bytes(raw)
        (found,) = of_file(program_of(name), path)
        assert isinstance(found, Unreadable)
        assert found.why


@pytest.mark.requirement("doctor.looks-at-modes")
def test_whatever_of_the_home_is_open_to_others_is_named_with_its_mode(home: Home) -> None:
    credential = home.agent_credential(AGENT)
    credential.parent.mkdir(parents=True, mode=0o700)
    home.agents.chmod(0o700)
    credential.write_text("x")
    credential.chmod(0o600)
    assert list(look.unsafe_paths(home)) == []
    credential.chmod(0o640)
    home.run.chmod(0o755)
    home.path.chmod(0o777)
    link = home.agents / "link"
    link.symlink_to("/")
    found = {path: (wrong, mode) for path, wrong, mode in look.unsafe_paths(home)}
    assert set(found) == {str(credential), str(home.run), str(home.path), str(link)}
    assert found[str(credential)] == ("is open to other users (mode 640)", "600")
    assert found[str(home.run)][1] == "700"
    assert found[str(link)] == ("is a link", "")


@pytest.mark.requirement("doctor.greets-the-edge")
async def test_the_edge_tells_its_version_and_no_credential_is_shown(home: Home) -> None:
    assert await look.greet(home) == (None, "")
    async with FakeEdge(home) as edge:
        seen, problem = await look.greet(home)
        assert seen is not None
        assert (seen.version, seen.registry, problem) == ("0", "x", "")
        assert edge.hellos[0]["shim"] == answers.VERSION
        assert set(edge.hellos[0]["token"]) <= set("fp_A")
    assert (await look.greet(home))[1].startswith("FileNotFoundError")
    home.edge_address.write_text("nonsense")
    assert (await look.greet(home))[0] is None


@pytest.mark.requirement("doctor.greets-the-edge")
@pytest.mark.parametrize("greeting", [b"\n", b"[]\n", b"{}\n", b"x" * 10_000 + b"\n"])
async def test_what_is_no_greeting_is_told(home: Home, greeting: bytes) -> None:
    async with FakeEdge(home) as edge:
        edge.greeting = greeting
        seen, problem = await look.greet(home)
        assert seen is None
        assert problem


async def test_a_silent_edge_has_its_time(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "GREETING_MS_MAX", 100)
    silent = asyncio.Event()

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await silent.wait()
        writer.close()

    async with await asyncio.start_unix_server(serve, path=home.edge_socket):
        home.edge_address.write_text(f"unix:{home.edge_socket}\n")
        assert "within 100 ms" in (await look.greet(home))[1]
        silent.set()


def a_proc(folder: Path, pid: int, parent: int, *words: str, home: str = "", comm: str = "python") -> None:
    made = folder / str(pid)
    made.mkdir(parents=True)
    (made / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    fields = ["S", str(parent), *["0"] * 17, "500", "0"]
    (made / "stat").write_text(f"{pid} (a ) b) {' '.join(fields)}\n")
    (made / "comm").write_text(comm + "\n")
    (made / "environ").write_bytes(f"A=b\0FENCEPOST_HOME={home}\0".encode() if home else b"")


@pytest.mark.requirement("doctor.sees-running-servers")
def test_running_servers_are_read_from_proc(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "stat").touch()
    (tmp_path / "stat").write_text("cpu 1 2\nbtime 1000\n")
    a_proc(tmp_path, 1, 0, "/sbin/init", comm="systemd")
    a_proc(tmp_path, 20, 1, "/v/python", "/v/bin/fencepost-mcp", home="/h")
    a_proc(tmp_path, 21, 5, "/v/python", "-P", "-m", "fencepost.mcp.shim")
    a_proc(tmp_path, 22, 1, "/bin/sleep", "1")
    (tmp_path / "23").mkdir()
    found = {process.pid: process for process in processes.running(proc=tmp_path)}
    assert set(found) == {20, 21}
    assert (found[20].orphan, found[20].home) == (True, "/h")
    assert (found[21].orphan, found[21].home) == (False, None)
    assert found[20].started_s == 1000 + 500 / os.sysconf("SC_CLK_TCK")
    (tmp_path / "1" / "comm").write_text("codex\n")
    assert [process.orphan for process in processes.running(proc=tmp_path)] == [False, False]


@pytest.mark.requirement("doctor.sees-running-servers")
def test_running_servers_are_read_from_ps() -> None:
    text = (
        "    1     0     0 10-00:00:00 /sbin/launchd\n"
        "   20     1   501    01:00:05 /v/python /v/bin/fencepost-mcp --agent ann\n"
        "   21     9   501       00:07 /v/python /v/bin/fencepost-mcp\n"
        "   22     1   502       00:07 /v/python /v/bin/fencepost-mcp\n"
        "   23     1   501       ?      /v/python /v/bin/fencepost-mcp\n"
        "   24     1   501       00:07 /bin/sleep 5\n"
        "odd\n"
    )
    found = processes.from_ps(text, uid=501, now_s=10_000.0)
    assert [(process.pid, process.orphan, process.started_s) for process in found] == [
        (20, True, 10_000.0 - 3605),
        (21, False, 10_000.0 - 7),
    ]


@pytest.mark.requirement("doctor.sees-running-servers")
def test_this_systems_processes_can_be_listed() -> None:
    assert all(is_ours(process.arguments) for process in processes.running())


@pytest.mark.requirement("doctor.changes-nothing")
async def test_looking_at_a_home_that_is_not_there_makes_none(tmp_path: Path, env: dict[str, str]) -> None:
    facts = await look.facts_of(Home(tmp_path / "none"), env)
    assert {finding.code for finding in judge(facts)} == {"services_not_running", "not_configured"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("doctor.changes-nothing")
async def test_a_stale_script_an_agent_without_a_credential_and_a_working_entry_are_told_apart(
    home: Home, env: dict[str, str]
) -> None:
    good = server_of(home, parse(["--agent", "ann"]))
    plan.carry_out(home, plan.plan(home, program_of("codex"), good, env=env))
    gone = Server(command="/gone/fencepost-mcp", arguments=("--agent", "bob"), environment=good.environment, passes=())
    plan.carry_out(home, plan.plan(home, program_of("claude"), gone, env=env))
    session = Server(
        command=good.command,
        arguments=(),
        environment={"FENCEPOST_HOME": home.text, "FENCEPOST_SESSION_ID": AGENT},
        passes=(),
    )
    plan.carry_out(home, plan.plan(home, program_of("gemini"), session, env=env))
    before = sorted(home.path.rglob("*"))
    facts = await look.facts_of(home, env)
    codes = [finding.code for finding in judge(facts)]
    assert codes == ["services_not_running", "stale_command", "unknown_agent"]
    assert facts.trials[(good.command, *good.arguments)].problem == ""
    assert facts.listing is not None
    assert facts.trials[(good.command, *good.arguments)].listing == facts.listing[: len(registry.TOOLS)]
    assert sorted(home.path.rglob("*")) == before
