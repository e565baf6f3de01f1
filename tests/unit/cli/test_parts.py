"""The pure parts of the command line: exit codes, plain values, terminal text, tables, bodies, projects."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

from fencepost.cli import exits, screen
from fencepost.cli.app import app
from fencepost.cli.body import read_body
from fencepost.cli.directory import near_miss
from fencepost.cli.plain import document, one_line, plain, printable
from fencepost.cli.project import locate
from fencepost.cli.screen import Column, span, table
from fencepost.cli.why import ladder, latencies
from fencepost.client import BODY_BYTES_MAX
from fencepost.common.v1 import common_pb2
from fencepost.errors import NotWritten, Refused, Uncertain
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2 as sessions

ROOT = Path(__file__).resolve().parents[3]
RECORD = "ask_0190f3a2111172228333444455556666"


@pytest.mark.requirement("cli.exit-codes-are-stable")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused("conflicting_reply", ""), 1),
        (Refused("not_found", ""), 2),
        (Refused("missing_managed_sender", ""), 3),
        (Refused("stale_generation", ""), 3),
        (Refused("permission_denied", ""), 3),
        (Refused("storage_error", ""), 4),
        (Refused("ambiguous_target", ""), 5),
        (NotWritten("not_running", ""), 6),
        (NotWritten("unreachable", ""), 6),
        (Refused("draining", "", may_resend=True), 6),
        (NotWritten("deadline_exceeded", ""), 7),
        (NotWritten("not_written", "", key_spent=True), 1),
        (Uncertain("delivery_uncertain", ""), 7),
        (Uncertain("not_found", ""), 7),
    ],
    ids=lambda value: value.reason if hasattr(value, "reason") else str(value),
)
def test_each_outcome_has_its_exit_code(error: Refused, code: int) -> None:
    assert exits.exit_code(error) == code


def test_plain_values_keep_the_protocols_names_and_make_words_of_enums() -> None:
    record = pb.Record(record_id=RECORD, kind=pb.RECORD_KIND_REQUEST, answer_state=pb.ANSWER_STATE_OPEN, sequence=7)
    found = plain(record)
    assert (found["kind"], found["answer_state"], found["reply_status"]) == ("request", "open", None)
    assert found["sender"] is None
    assert found["sequence"] == 7
    assert set(found) == {item.name for item in pb.Record.DESCRIPTOR.fields}
    assert plain(sessions.Credential(role=common_pb2.ROLE_SERVICE, token_sha256=b"\x01"))["token_sha256"] == "01"
    assert plain(common_pb2.Refusal(state={"a": "b"}))["state"] == {"a": "b"}
    assert plain(pb.ListReadersResponse(readers=[pb.Reader(waiting=True)]))["readers"][0]["waiting"] is True


@pytest.mark.requirement("cli.one-json-document")
@given(text=st.text())
def test_any_text_reads_back_from_the_document_the_same(text: str) -> None:
    written = document({"body": text})
    assert json.loads(written) == {"schema": 1, "body": text}
    assert not [char for char in written if char != "\n" and (ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0)]


@pytest.mark.requirement("cli.nothing-a-terminal-obeys")
@given(text=st.text())
def test_no_text_moves_a_cursor_or_reorders_a_line(text: str) -> None:
    for shown in (printable(text), one_line(text)):
        left = {char for char in shown if ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0} - {"\n", "\t"}
        assert not left
        assert not set(shown) & set("\u202e\u2066\u2028\u200f")
    assert "\n" not in one_line(text)


def test_ordinary_text_of_any_script_is_shown_as_it_is() -> None:
    text = "日本語 ελληνικά עברית\n\tline 2 👩‍💻"
    assert printable(text) == text
    assert printable("\x1b[31m\r") == "␛[31m␍"


def columns_of(drawn: str) -> list[str]:
    return drawn.splitlines()


@pytest.mark.requirement("cli.ids-are-never-cut")
@pytest.mark.parametrize("width", [1, 20, 60, 200])
def test_ids_stay_whole_on_any_terminal_and_only_text_is_shortened(width: int) -> None:
    drawn = table([Column(title="ID"), Column(title="TEXT", text=True)], [[RECORD, "word " * 60]] * 2, width=width)
    lines = columns_of(drawn)
    assert len(lines) == 3
    assert all(line.startswith(RECORD) for line in lines[1:])
    assert all(line.endswith("…") for line in lines[1:])


def test_without_a_terminal_nothing_is_shortened() -> None:
    drawn = table([Column(title="ID"), Column(title="TEXT", text=True)], [[RECORD, "w" * 500]])
    assert "w" * 500 in drawn


def test_wide_characters_keep_the_columns_straight() -> None:
    from rich.cells import cell_len

    rows = [["日本語のエージェント", "x"], ["bob", "x"], ["é́", "x"]]
    lines = columns_of(table([Column(title="NAME"), Column(title="T")], rows))
    assert {cell_len(line[: line.rindex("x")]) for line in lines[1:]} == {len("日本語のエージェント") * 2 + 2}


@pytest.mark.requirement("cli.no-colours-without-a-terminal")
def test_colours_need_a_terminal_and_the_absence_of_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, pipe = SimpleNamespace(isatty=lambda: True), SimpleNamespace(isatty=lambda: False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert screen.colourful(terminal)  # type: ignore[arg-type]
    assert not screen.colourful(pipe)  # type: ignore[arg-type]
    assert "\x1b" not in table([Column(title="ID")], [["x"]])
    monkeypatch.setenv("NO_COLOR", "1")
    assert not screen.colourful(terminal)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1.00 s"),
        (99_999, "100.00 s"),
        (100_000, "1 min 40 s"),
        (3_600_000, "1 h 0 min"),
        (172_800_000, "2 d 0 h"),
        (-5, "-5 ms"),
    ],
)
def test_lengths_of_time_read_naturally(ms: int, text: str) -> None:
    assert span(ms) == text


def test_a_file_argument_or_standard_input_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "a\r\n\0\x1b日本 \n"
    (tmp_path / "f").write_bytes(text.encode())
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
    assert read_body(text, stdin=False, file=None) == text
    assert read_body(None, stdin=False, file=tmp_path / "f") == text
    assert read_body(None, stdin=True, file=None) == text


@pytest.mark.requirement("cli.a-body-is-checked-before-the-call")
@pytest.mark.parametrize(
    ("text", "stdin", "file"),
    [(None, False, False), ("x", True, False), ("x", False, True), (None, True, True), ("x", True, True)],
)
def test_a_body_comes_from_exactly_one_place(tmp_path: Path, text: str | None, stdin: bool, file: bool) -> None:
    with pytest.raises(Refused) as caught:
        read_body(text, stdin=stdin, file=tmp_path / "f" if file else None)
    assert caught.value.reason == "invalid_arguments"


@pytest.mark.requirement("cli.a-body-is-checked-before-the-call")
def test_a_body_of_exactly_the_limit_passes_and_one_byte_more_is_refused_with_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits, over = "é" * (BODY_BYTES_MAX // 2), "é" * (BODY_BYTES_MAX // 2) + "x"
    assert read_body(fits, stdin=False, file=None) == fits
    (tmp_path / "f").write_text(over)
    for source in ("text", "stdin", "file"):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(over.encode())))
        with pytest.raises(Refused) as caught:
            read_body(
                over if source == "text" else None,
                stdin=source == "stdin",
                file=tmp_path / "f" if source == "file" else None,
            )
        assert str(BODY_BYTES_MAX + 1) in caught.value.message
        assert caught.value.reason == "invalid_message"


@pytest.mark.requirement("cli.a-body-is-checked-before-the-call")
@pytest.mark.parametrize("raw", [b"", b" \n\t ", b"\xff", b"ok \xed\xa0\x80"])
def test_a_blank_body_and_one_that_is_not_utf_8_are_refused(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "f").write_bytes(raw)
    for text, file in ((os.fsdecode(raw), None), (None, tmp_path / "f")):
        with pytest.raises(Refused) as caught:
            read_body(text, stdin=False, file=file)
        assert caught.value.reason == "invalid_message"


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(Refused):
            read_body(None, stdin=False, file=path)


def git(folder: Path, *arguments: str) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True, env=clean)


@pytest.mark.requirement("cli.worktrees-share-a-project")
def test_every_folder_of_a_repository_and_its_worktrees_is_one_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = tmp_path / "shop"
    (main / "deep" / "er").mkdir(parents=True)
    git(tmp_path, "init", "-q", str(main))
    git(main, "commit", "-q", "--allow-empty", "-m", "x")
    git(main, "worktree", "add", "-q", str(tmp_path / "tree"))
    (tmp_path / "link").symlink_to(main)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "another"))
    found = {locate(folder) for folder in (main, main / "deep" / "er", tmp_path / "tree", tmp_path / "link")}
    assert len(found) == 1
    only = found.pop()
    assert (only.kind, only.path, only.name) == (sessions.PROJECT_KIND_GIT, str((main / ".git").resolve()), "shop")


def test_a_folder_outside_any_repository_is_a_project_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    outer, inner = locate(tmp_path / "x"), locate(tmp_path / "x" / "y")
    assert (outer.kind, outer.path, outer.name) == (sessions.PROJECT_KIND_FOLDER, str((tmp_path / "x").resolve()), "x")
    assert inner.path != outer.path


def test_without_git_a_plain_folder_is_a_project_and_a_repository_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert locate(tmp_path).kind == sessions.PROJECT_KIND_FOLDER
    (tmp_path / ".git").mkdir()
    (tmp_path / "deep").mkdir()
    with pytest.raises(Refused) as caught:
        locate(tmp_path / "deep")
    assert caught.value.reason == "project_undecided"


def test_a_git_that_fails_for_another_reason_is_not_taken_for_no_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "git"
    script.write_text("#!/bin/sh\necho 'fatal: detected dubious ownership in repository' >&2\nexit 128\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    with pytest.raises(Refused) as caught:
        locate(tmp_path)
    assert "dubious ownership" in caught.value.message


def test_a_folder_that_is_not_there_or_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    for path in (tmp_path / "nothing", tmp_path / "f"):
        with pytest.raises(Refused):
            locate(path)


@pytest.mark.requirement("cli.near-misses-are-named")
def test_a_near_miss_names_the_other_case_before_a_similar_name() -> None:
    assert near_miss("BOB", ["bobb", "Bob"]) == "Names match exactly: did you mean 'Bob'?"
    assert "reviewer" in near_miss("reviewr", ["alice", "reviewer"])
    assert near_miss("zzz", ["alice"]) == "`fencepost agent list` shows the names."
    assert "agent create" in near_miss("zzz", [])


@pytest.mark.requirement("cli.why-shows-every-fact-apart")
def test_the_ladder_shows_each_fact_with_its_latency_evidence_and_summary() -> None:
    told = pb.ExplainResponse(
        record=pb.Record(
            record_id=RECORD,
            kind=pb.RECORD_KIND_REQUEST,
            sender=common_pb2.AgentRef(name="alice"),
            recipient=common_pb2.AgentRef(name="bob"),
        ),
        facts=[
            pb.Fact(fact="admitted", at_ms=1_000_000_000_000, evidence="on disk"),
            pb.Fact(fact="exposed", at_ms=1_000_000_000_046, evidence="receive", generation=1),
            pb.Fact(fact="answered_by_host", at_ms=1_000_000_000_040, evidence="x"),
        ],
        reply_id="rep_1",
        summary="bob answered it.",
    )
    assert latencies(told.facts) == [None, 46, -6]
    assert latencies([]) == []
    text = "\n".join(ladder(told))
    for expected in ("request from alice to bob", "+46 ms", "-6 ms", "receive (generation 1)", "answered by host"):
        assert expected in text
    assert text.endswith("Its reply is rep_1.\nbob answered it.")


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    """Yield each command that is shown, with its options."""
    for name, command in getattr(group, "commands", {}).items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))
        else:
            options = {text for item in command.params for text in item.opts if text.startswith("--")}
            yield (*words, name), options


@pytest.mark.requirement("cli.every-command-is-explained")
def test_every_command_and_option_stands_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    found = dict(commands(get_command(app)))
    assert len(found) >= 50
    # Named once for all commands that have them.
    shared = {"--json", "--idempotency-key", "--stdin", "--file", "--help"}
    rows = [line.partition("|")[2].partition("|")[0] for line in page.splitlines() if line.startswith("| `fencepost")]
    unexplained = [
        " ".join(words)
        for words in found
        if not any(f"`fencepost {words[0]}" in row and re.search(rf"[ `]{words[-1]}[ `]", row) for row in rows)
    ]
    assert unexplained == []
    unnamed = {option for options in found.values() for option in options - shared if option not in page}
    assert unnamed == set()
