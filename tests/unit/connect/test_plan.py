"""Connecting, connecting again and undoing, on real files."""

from __future__ import annotations

import json
import os
import stat
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.connect import files, jsonc, plan, records
from fencepost.connect.changes import BEGIN, SNIPPET
from fencepost.connect.entry import TOOL_TIMEOUT_MS, Server
from fencepost.connect.programs import PROGRAMS, Program, Syntax, program_of
from fencepost.errors import Refused
from fencepost.home import Home
from fencepost_testing.configurations import jsonc as jsonc_texts
from fencepost_testing.configurations import toml as toml_texts

TOOLS = ["send_message", "reply"]
APPROVING = ("codex", "claude", "opencode", "gemini")


def a_server(*arguments: str) -> Server:
    return Server(
        command="/opt/f/bin/fencepost-mcp", arguments=arguments, environment={"FENCEPOST_HOME": "/h"}, passes=("A",)
    )


@dataclass
class Person:
    """Somebody with a home folder and programs in it."""

    folder: Path

    @property
    def home(self) -> Home:
        return Home(self.folder / "fencepost")

    @property
    def env(self) -> dict[str, str]:
        return {"HOME": str(self.folder)}

    def file(self, program: Program) -> Path:
        return plan.configuration_of(program, self.env)

    def put(self, program: Program, raw: bytes) -> Path:
        path = self.file(program)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)
        return path

    def plan(self, program: Program, *arguments: str, **more: Any) -> list[plan.FilePlan]:
        return plan.plan(self.home, program, a_server(*arguments), env=self.env, **more)

    def connect(self, program: Program, *arguments: str, **more: Any) -> list[plan.FilePlan]:
        made = self.plan(program, *arguments, **more)
        plan.carry_out(self.home, made)
        return made

    def undo(self, program: Program, *, dry_run: bool = False) -> list[plan.Undone]:
        return plan.undo(self.home, program, self.env, dry_run=dry_run)

    def files(self) -> dict[str, bytes]:
        """Every file outside our own home."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and not path.is_relative_to(self.home.path)
        }


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def entry(program: Program, path: Path) -> Any:
    text = path.read_text()
    value: Any = tomllib.loads(text) if program.syntax is Syntax.TOML else jsonc.read(text)
    for key in program.path:
        value = value[key]
    return value


def reason_of(refused: pytest.ExceptionInfo[Refused]) -> str:
    return refused.value.reason


def connected(person: Person, program: Program, tools: list[str]) -> bool:
    """Connect, or find that the configuration admits no edit."""
    try:
        person.connect(program, tools=tools)
    except Refused as refused:
        if refused.reason != "configuration_not_editable":
            raise
        return False
    return True


# Each example writes and syncs a dozen files; what is pure is tried more often in test_edits.py.
few = settings(max_examples=20, deadline=None)
every_program = pytest.mark.parametrize("program", PROGRAMS.values(), ids=lambda program: program.name)


@pytest.mark.requirement("connect.undo-is-byte-for-byte")
@every_program
@few
@given(data=st.data())
def test_connecting_any_configuration_and_undoing_is_no_change(program: Program, data: st.DataObject) -> None:
    texts = toml_texts() if program.syntax is Syntax.TOML else jsonc_texts()
    text = data.draw(st.one_of(st.none(), texts))
    tools = data.draw(st.lists(st.sampled_from(TOOLS), unique=True)) if program.name in APPROVING else []
    mark = data.draw(st.sampled_from(["", "\ufeff"])) if program.syntax is Syntax.JSON else ""
    with tempfile.TemporaryDirectory() as folder:
        person = Person(Path(folder))
        if text is not None:
            person.put(program, (mark + text).encode())
        before = person.files()
        if not connected(person, program, tools):
            assert person.files() == before
            return
        person.connect(program, "--agent", "ann", tools=tools)
        assert person.files() != before
        assert {undone.what for undone in person.undo(program)} <= {"restored", "removed"}
        assert person.files() == before
        if text is None:
            left = {path for path in person.folder.rglob("*") if not path.is_relative_to(person.home.path)}
            assert left == set()


@pytest.mark.requirement("connect.undo-takes-out-only-ours")
@every_program
@few
@given(data=st.data())
def test_undoing_after_other_changes_takes_out_only_what_is_ours(program: Program, data: st.DataObject) -> None:
    toml = program.syntax is Syntax.TOML
    text = data.draw(toml_texts() if toml else jsonc_texts())
    with tempfile.TemporaryDirectory() as folder:
        person = Person(Path(folder))
        path = person.put(program, text.encode())
        if not connected(person, program, []):
            return
        now = path.read_bytes().decode()
        if toml:
            later = now + "\n[later]\nx = 1 # mine\n"
            wanted = tomllib.loads((text + "\n[later]\nx = 1\n").replace("\r\n", "\n"))
        else:
            later = jsonc.set_member(now, ["later"], {"x": 1})
            wanted = {**jsonc.read(text), "later": {"x": 1}}
        path.write_bytes(later.encode())
        (undone,) = person.undo(program)
        assert undone.what == "taken_out"
        left = path.read_bytes().decode()
        got = tomllib.loads(left.replace("\r\n", "\n")) if toml else jsonc.read(left)
        assert got == wanted
        assert "# mine" in left or not toml
        assert person.undo(program) == []


@pytest.mark.requirement("connect.the-entry-is-the-programs-own")
@every_program
def test_the_entry_says_what_the_program_needs(person: Person, program: Program) -> None:
    person.connect(program, "--agent", "ann")
    made = entry(program, person.file(program))
    command = made["command"] if program.name == "opencode" else [made["command"], *made["args"]]
    assert command == ["/opt/f/bin/fencepost-mcp", "--agent", "ann"]
    assert made.get("env", made.get("environment")) == {"FENCEPOST_HOME": "/h"}
    timeout_ms = made.get("timeout") or made.get("tool_timeout_sec", 0) * 1000
    assert timeout_ms == (TOOL_TIMEOUT_MS if program.has_tool_timeout else 0)
    # What each needs so that its model sees the tools at once, without searching or programming for them.
    at_once = {"claude": {"alwaysLoad": True}, "pi": {"exposure": "direct"}}.get(program.name, {})
    assert {name: made.get(name) for name in at_once} == at_once
    assert "fp_" not in person.file(program).read_text()
    assert not person.home.agents.exists()


@pytest.mark.requirement("connect.mode-and-links-stay")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_mode_and_links_stay_and_backups_are_private(person: Person, mode: int) -> None:
    codex = program_of("codex")
    target = person.folder / "dotfiles.toml"
    target.write_text("a = 1\n")
    target.chmod(mode)
    link = person.file(codex)
    link.parent.mkdir()
    link.symlink_to(target)
    person.connect(codex)
    assert link.is_symlink()
    assert "fencepost" in target.read_text()
    assert stat.S_IMODE(target.stat().st_mode) == mode
    for kept in files.folder_of(person.home).iterdir():
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(files.folder_of(person.home).stat().st_mode) == 0o700
    person.undo(codex)
    assert link.is_symlink()
    assert target.read_text() == "a = 1\n"
    assert stat.S_IMODE(target.stat().st_mode) == mode


@pytest.mark.requirement("connect.mode-and-links-stay")
def test_a_new_file_and_its_folder_are_private(person: Person) -> None:
    person.connect(program_of("codex"))
    path = person.file(program_of("codex"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.requirement("connect.an-occupied-name-stays")
@every_program
def test_an_entry_of_somebody_else_is_reported_and_stays(person: Person, program: Program) -> None:
    other = {"command": "other", "args": []}
    if program.syntax is Syntax.TOML:
        person.put(program, b'[mcp_servers.fencepost]\ncommand = "other"\n')
    else:
        person.put(program, json.dumps({program.servers[0]: {"fencepost": other}}).encode())
    before = person.files()
    with pytest.raises(Refused) as refused:
        person.connect(program)
    assert reason_of(refused) == "name_occupied"
    assert person.files() == before
    assert person.undo(program) == []


@pytest.mark.requirement("connect.an-edited-entry-stays")
@every_program
def test_an_entry_that_was_edited_stays_when_connecting_again_and_when_undoing(
    person: Person, program: Program
) -> None:
    person.connect(program)
    path = person.file(program)
    path.write_text(path.read_text().replace("/opt/f/bin/fencepost-mcp", "/opt/mine"))
    before = person.files()
    with pytest.raises(Refused) as refused:
        person.connect(program)
    assert reason_of(refused) == "entry_edited"
    assert person.files() == before
    (undone,) = person.undo(program)
    assert undone.what == "left"
    assert any("edited" in note for note in undone.notes)
    assert person.files() == before


@pytest.mark.requirement("connect.approval-only-when-asked")
@pytest.mark.parametrize("name", APPROVING)
def test_a_tool_is_approved_only_where_that_was_asked(person: Person, name: str) -> None:
    program = program_of(name)
    person.connect(program)
    assert "send_message" not in "".join(content.decode() for content in person.files().values())
    person.connect(program, tools=["send_message"])
    written = "".join(content.decode() for content in person.files().values())
    assert written.count("send_message") == 1
    assert "receive_messages" not in written
    person.connect(program)
    assert "".join(content.decode() for content in person.files().values()) == written, "what was approved stays so"
    person.undo(program)
    assert person.files() == {}


@pytest.mark.requirement("connect.approval-only-when-asked")
def test_approvals_are_written_as_each_program_reads_them(person: Person) -> None:
    for name in APPROVING:
        person.connect(program_of(name), tools=["send_message"])
    assert entry(program_of("codex"), person.file(program_of("codex")))["tools"] == {
        "send_message": {"approval_mode": "approve"}
    }
    settings = json.loads((person.folder / ".claude" / "settings.json").read_text())
    assert settings == {"permissions": {"allow": ["mcp__fencepost__send_message"]}}
    opencode = json.loads(person.file(program_of("opencode")).read_text())
    assert opencode["permission"] == {"fencepost_send_message": "allow"}
    gemini = json.loads(person.file(program_of("gemini")).read_text())
    assert gemini["tools"] == {"allowed": ["mcp_fencepost_send_message"]}


@pytest.mark.requirement("connect.approval-only-when-asked")
def test_an_approval_that_somebody_decided_otherwise_stays(person: Person) -> None:
    opencode = program_of("opencode")
    before = b'{"permission": {"fencepost_send_message": "ask"}}'
    path = person.put(opencode, before)
    (made,) = person.connect(opencode, tools=["send_message"])
    assert any("decided" in note for note in made.notes)
    assert json.loads(path.read_text())["permission"] == {"fencepost_send_message": "ask"}
    person.undo(opencode)
    assert path.read_bytes() == before


@pytest.mark.requirement("connect.approval-only-when-asked")
def test_programs_that_cannot_be_told_refuse_and_one_that_never_asks_says_so(person: Person) -> None:
    with pytest.raises(Refused) as refused:
        person.connect(program_of("antigravity"), tools=["reply"])
    assert reason_of(refused) == "unsupported_capability"
    assert person.files() == {}
    (made,) = person.connect(program_of("pi"), tools=["reply"])
    assert any("no approval" in note for note in made.notes)


@pytest.mark.requirement("connect.instructions-only-when-asked")
@every_program
def test_a_snippet_of_instructions_is_added_only_when_asked_and_goes_again(person: Person, program: Program) -> None:
    project = person.folder / "project"
    project.mkdir()
    path = project / program.instructions
    path.write_bytes(b"# Ours\r\nwithout an end")
    before = person.files()
    person.connect(program)
    assert path.read_bytes().decode() == "# Ours\r\nwithout an end"
    person.connect(program, instructions=project)
    person.connect(program, instructions=project)
    text = path.read_bytes().decode()
    assert text.count(BEGIN) == 1
    assert SNIPPET.replace("\n", "\r\n") in text
    path.write_bytes((text + "\r\nmore\r\n").encode())
    person.undo(program)
    assert path.read_bytes().decode() == "# Ours\r\nwithout an end\r\nmore\r\n"
    path.write_bytes(b"# Ours\r\nwithout an end")
    assert person.files() == before


@pytest.mark.requirement("connect.a-dry-run-writes-nothing")
@every_program
def test_planning_and_a_dry_undo_write_nothing(person: Person, program: Program) -> None:
    person.plan(program, instructions=person.folder)
    assert list(person.folder.iterdir()) == []
    person.connect(program)
    before = {path: path.read_bytes() for path in person.folder.rglob("*") if path.is_file()}
    assert [undone.what for undone in person.undo(program, dry_run=True)] == ["removed"]
    assert {path: path.read_bytes() for path in person.folder.rglob("*") if path.is_file()} == before


@pytest.mark.requirement("connect.what-cannot-be-read-is-left")
@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("codex", b"a = \n"),
        ("codex", b"\xff = 1\n"),
        ("claude", b'{"a": 1'),
        ("claude", b"\xff"),
        ("opencode", b"[" * 300),
        ("gemini", b"x" * (files.CONFIGURATION_BYTES_MAX + 1)),
    ],
    ids=lambda value: value if isinstance(value, str) else repr(value[:8]),
)
def test_a_configuration_that_cannot_be_read_is_refused_and_left(person: Person, name: str, raw: bytes) -> None:
    path = person.put(program_of(name), raw)
    with pytest.raises(Refused) as refused:
        person.connect(program_of(name))
    assert reason_of(refused) == "configuration_unreadable"
    assert path.read_bytes() == raw


@pytest.mark.requirement("connect.what-cannot-be-read-is-left")
def test_what_is_no_file_or_changes_meanwhile_is_left(person: Person) -> None:
    codex = program_of("codex")
    path = person.file(codex)
    path.mkdir(parents=True)
    with pytest.raises(Refused) as refused:
        person.connect(codex)
    assert reason_of(refused) == "configuration_unreadable"
    path.rmdir()
    made = person.plan(codex)
    path.write_text("b = 1\n")
    with pytest.raises(Refused) as refused:
        plan.carry_out(person.home, made)
    assert reason_of(refused) == "changed_meanwhile"
    assert path.read_text() == "b = 1\n"
    with files.exclusive(person.home):
        handle = os.open(files.folder_of(person.home) / "lock", os.O_RDWR)
        assert not files._locked(handle)
        os.close(handle)


@pytest.mark.requirement("connect.the-record-comes-first")
def test_a_crash_before_the_file_is_written_leaves_nothing_to_undo(person: Person) -> None:
    codex = program_of("codex")
    path = person.put(codex, b"a = 1\n")
    (made,) = person.plan(codex)
    assert made.record is not None
    with files.exclusive(person.home):
        records.save(person.home, made.record, made.backup)
    (undone,) = person.undo(codex)
    assert undone.what == "taken_out"
    assert path.read_bytes() == b"a = 1\n"
    person.connect(codex)
    person.undo(codex)
    assert path.read_bytes() == b"a = 1\n"


@pytest.mark.requirement("connect.the-record-comes-first")
@every_program
def test_a_crash_while_connecting_again_leaves_an_entry_that_is_still_ours(person: Person, program: Program) -> None:
    before = b"a = 1\n" if program.syntax is Syntax.TOML else b'{"a": 1}\n'
    path = person.put(program, before)
    person.connect(program)
    made = person.plan(program, "--agent", "ann")[-1]
    assert made.record is not None
    with files.exclusive(person.home):
        records.save(person.home, made.record, made.backup)
    person.connect(program, "--agent", "bob")
    assert "bob" in path.read_text()
    made = person.plan(program, "--agent", "ann")[-1]
    assert made.record is not None
    with files.exclusive(person.home):
        records.save(person.home, made.record, made.backup)
    (undone,) = person.undo(program)
    assert undone.what == "taken_out"
    assert path.read_bytes() == before


@pytest.mark.requirement("connect.the-record-comes-first")
def test_a_record_or_backup_that_is_damaged_is_told_and_nothing_is_written(person: Person) -> None:
    codex = program_of("codex")
    path = person.put(codex, b"a = 1\n")
    person.connect(codex)
    now = path.read_bytes()
    (record,) = records.every(person.home)
    records.backup_path(person.home, record).unlink()
    with pytest.raises(Refused) as refused:
        person.undo(codex)
    assert reason_of(refused) == "backup_missing"
    (files.folder_of(person.home) / f"{record.name}.json").write_text("{}")
    with pytest.raises(Refused) as refused:
        person.undo(codex)
    assert reason_of(refused) == "record_unreadable"
    assert path.read_bytes() == now


def test_a_file_that_is_gone_is_told(person: Person) -> None:
    codex = program_of("codex")
    path = person.put(codex, b"a = 1\n")
    person.connect(codex)
    path.unlink()
    (undone,) = person.undo(codex)
    assert (undone.what, path.exists()) == ("gone", False)


def test_an_unknown_program_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Refused) as refused:
        program_of("emacs")
    assert "codex" in refused.value.hint


def test_each_program_finds_its_file_where_its_own_variables_say(tmp_path: Path) -> None:
    env = {"HOME": "/srv/x"}
    places = {name: str(plan.configuration_of(program, env)) for name, program in PROGRAMS.items()}
    assert places == {
        "codex": "/srv/x/.codex/config.toml",
        "claude": "/srv/x/.claude.json",
        "opencode": "/srv/x/.config/opencode/opencode.json",
        "pi": "/srv/x/.pi/agent/mcp.json",
        "gemini": "/srv/x/.gemini/settings.json",
        "antigravity": "/srv/x/.gemini/config/mcp_config.json",
    }
    named = {
        "codex": ("CODEX_HOME", "config.toml"),
        "claude": ("CLAUDE_CONFIG_DIR", ".claude.json"),
        "opencode": ("XDG_CONFIG_HOME", "opencode/opencode.json"),
        "pi": ("PI_CODING_AGENT_DIR", "mcp.json"),
        "gemini": ("GEMINI_CLI_HOME", ".gemini/settings.json"),
    }
    for name, (variable, rest) in named.items():
        found = plan.configuration_of(program_of(name), {**env, variable: str(tmp_path)})
        assert found == tmp_path / rest
    assert plan.configuration_of(program_of("opencode"), {**env, "OPENCODE_CONFIG": "/etc/o.json"}) == Path(
        "/etc/o.json"
    )
    (tmp_path / "opencode").mkdir()
    (tmp_path / "opencode" / "opencode.jsonc").touch()
    found = plan.configuration_of(program_of("opencode"), {**env, "XDG_CONFIG_HOME": str(tmp_path)})
    assert found.name == "opencode.jsonc"
