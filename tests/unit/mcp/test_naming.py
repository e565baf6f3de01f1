"""A server whose arguments name its agent: the arguments, the hold, and what it does while the agent is looked up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost import holds
from fencepost.home import Home
from fencepost.mcp import naming, offline
from fencepost.mcp.arguments import NAME_CHARS_MAX, PATH_BYTES_MAX, parse
from fencepost.mcp.naming import NamedCalls, NamedLink
from fencepost.mcp.session import Call

AGENT = "0195f3a0-0000-7000-8000-000000000001"
END_S_MAX = 15.0
PARSED = [
    (["--agent", "ann"], ("ann", None)),
    (["--agent=ann"], ("ann", None)),
    (["--agent", "ann", "--project", "/srv/x"], ("ann", "/srv/x")),
    (["--project=/srv/x", "--agent", "--odd"], ("--odd", "/srv/x")),
    (["--agent", "a=b"], ("a=b", None)),
    (["--agent", "n" * NAME_CHARS_MAX], ("n" * NAME_CHARS_MAX, None)),
    (["--agent", "ann", "--project", "p" * PATH_BYTES_MAX], ("ann", "p" * PATH_BYTES_MAX)),
]
WRONG = [
    ["--project", "/srv/x"],
    ["--agent"],
    ["--agent", ""],
    ["--agent", " ann"],
    ["--agent", "a\nb"],
    ["--agent", AGENT],
    ["--agent", AGENT.upper()],
    ["--agent", "n" * (NAME_CHARS_MAX + 1)],
    ["--agent", "ann", "--agent", "bob"],
    ["--agent", "ann", "--project", ""],
    ["--agent", "ann", "--project", "p" * (PATH_BYTES_MAX + 1)],
    ["--agent", "ann", "bob"],
    ["--name", "ann"],
]


@pytest.mark.requirement("names.arguments")
@pytest.mark.parametrize(("words", "meaning"), PARSED)
def test_an_agent_is_named_by_argument(words: list[str], meaning: tuple[str, str | None]) -> None:
    asked = parse(words)
    assert (asked.name, asked.project) == meaning
    again = parse(asked.words())
    assert (again.name, again.project) == meaning


@pytest.mark.requirement("names.arguments")
@pytest.mark.parametrize("words", WRONG, ids=str)
def test_what_names_no_agent_is_refused_before_the_server_starts(words: list[str]) -> None:
    with pytest.raises(ValueError, match=r"agent|project|argument"):
        parse(words)
    command = [sys.executable, "-P", "-m", "fencepost.mcp.shim", *words]
    if words in (WRONG[0], WRONG[-1]):
        ended = subprocess.run(command, capture_output=True, timeout=END_S_MAX, check=False, stdin=subprocess.DEVNULL)
        assert (ended.returncode, ended.stdout) == (2, b"")
        assert b"usage:" in ended.stderr


@pytest.mark.requirement("names.one-session-holds-a-name")
def test_a_name_has_one_holder_who_is_known_by_pid_and_time(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert holds.holder_of(folder) is None
    hold = holds.take(folder, version="1.2")
    assert isinstance(hold, holds.Hold)
    for holder in (holds.take(folder, version="1.2"), holds.holder_of(folder)):
        assert isinstance(holder, holds.Holder)
        assert (holder.pid, holder.hold, holder.version) == (os.getpid(), hold.ident, "1.2")
        assert holder.since_ms > 1_600_000_000_000
    hold.let_go()
    hold.let_go()
    assert holds.holder_of(folder) is None
    assert (tmp_path / holds.HOLD).stat().st_mode & 0o777 == 0o600


@pytest.mark.requirement("names.one-session-holds-a-name")
def test_a_holder_that_is_killed_holds_nothing_any_more(tmp_path: Path) -> None:
    program = (
        "import sys; from fencepost import holds; hold = holds.take(sys.argv[1], version='1');"
        " print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        holder = holds.holder_of(str(tmp_path))
        assert holder is not None
        assert holder.pid == child.pid
        child.send_signal(signal.SIGKILL)
        child.wait(END_S_MAX)
    hold = holds.take(str(tmp_path), version="1")
    assert isinstance(hold, holds.Hold)
    hold.let_go()


@pytest.mark.requirement("names.release-reaches-one-hold")
def test_asking_back_reaches_the_hold_that_was_seen_and_no_later_one(tmp_path: Path) -> None:
    folder = str(tmp_path)
    first = holds.take(folder, version="1")
    assert isinstance(first, holds.Hold)
    assert not first.asked_to_let_go()
    holder = holds.holder_of(folder)
    assert holder is not None
    holds.ask_to_let_go(folder, holder)
    assert first.asked_to_let_go()
    first.let_go()
    second = holds.take(folder, version="1")
    assert isinstance(second, holds.Hold)
    assert not second.asked_to_let_go()
    second.let_go()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid":"x"}', b"\xff" * 100])
def test_a_hold_that_cannot_be_read_still_holds(tmp_path: Path, content: bytes) -> None:
    hold = holds.take(str(tmp_path), version="1")
    (tmp_path / holds.HOLD).write_bytes(content)
    holder = holds.holder_of(str(tmp_path))
    assert holder is not None
    assert (holder.pid, holder.hold) == (0, "")
    assert isinstance(hold, holds.Hold)
    hold.let_go()


class Named:
    """A link whose child is a program of the test, its clock and its calls."""

    def __init__(self, home: Home, program: str, **env: str) -> None:
        self.answers: dict[str, Any] = {}
        self.calls = NamedCalls(emit=lambda _line: None, examine=offline.examine)
        self.link = NamedLink(
            home=home,
            asked=parse(["--agent", "ann", "--project", "/a b"]),
            calls=self.calls,
            nonce="0" * 32,
            env={**os.environ, **env},
            command=(sys.executable, "-P", "-c", program),
        )
        self._ids = 0

    def admit(self, name: str = "list_agents", arguments: str = "{}", *, wait_ms: int = 0) -> str:
        self._ids += 1
        id_text = str(self._ids)
        line = b'{"params":{"name":"%b","arguments":%b}}' % (name.encode(), arguments.encode())

        def sink(answer: bytes | None) -> None:
            assert id_text not in self.answers
            self.answers[id_text] = None if answer is None else json.loads(answer)

        self.calls.admit(Call(id_text=id_text, name=name, line=line, wait_ms=wait_ms, progress_token=None, sink=sink))
        return id_text

    def run_child(self) -> None:
        """Step until the child has answered."""
        self.link.step()
        pipe = self.link.fileno()
        assert pipe >= 0
        os.set_blocking(pipe, True)
        while self.link.fileno() == pipe:
            self.link.readable()

    def told(self, id_text: str) -> dict[str, Any]:
        told: dict[str, Any] = self.answers[id_text]["result"]["structuredContent"]
        assert told["written"] is False
        return told


@pytest.fixture
def held(home: Home) -> Iterator[holds.Hold]:
    hold = holds.take(str(home.agent_folder(AGENT)), version="9")
    assert isinstance(hold, holds.Hold)
    yield hold
    hold.let_go()


FOUND = f'print(\'{{"agent_id":"{AGENT}"}}\')'


@pytest.mark.requirement("names.taken-at-the-first-call")
def test_nothing_is_started_before_a_call_and_the_name_is_held_after_it(home: Home) -> None:
    named = Named(home, FOUND)
    named.link.step()
    assert named.link.fileno() == -1
    assert holds.holder_of(str(home.agent_folder(AGENT))) is None
    call = named.admit()
    named.run_child()
    named.link.step()
    holder = holds.holder_of(str(home.agent_folder(AGENT)))
    assert holder is not None
    assert holder.pid == os.getpid()
    assert call not in named.answers


@pytest.mark.requirement("names.one-session-holds-a-name")
def test_a_held_name_is_refused_with_its_holder_and_the_command_that_releases_it(home: Home, held: holds.Hold) -> None:
    named = Named(home, FOUND)
    call = named.admit()
    named.run_child()
    told = named.told(call)
    assert told["code"] == "name_held"
    assert f"process {os.getpid()} since 20" in told["message"]
    assert told["hint"].endswith("fencepost agent release ann --project '/a b'")
    held.let_go()
    named.admit()
    named.run_child()
    assert holds.holder_of(str(home.agent_folder(AGENT))) is not None


@pytest.mark.requirement("names.looking-up-is-bounded")
@pytest.mark.parametrize(
    ("program", "what"),
    [
        ("", "without an answer"),
        ("print('nonsense')", "without an answer"),
        ("print('[]')", "without an answer"),
        ("raise SystemExit(1)", "without an answer"),
        (f"print('x' * {naming.ANSWER_BYTES_MAX + 1})", "too long"),
    ],
)
def test_a_lookup_that_fails_is_told_and_the_next_call_looks_again(home: Home, program: str, what: str) -> None:
    named = Named(home, program)
    call = named.admit()
    named.run_child()
    assert named.told(call)["code"] == "not_written"
    assert what in named.told(call)["message"]
    named.admit()
    named.run_child()


@pytest.mark.requirement("names.looking-up-is-bounded")
def test_a_lookup_has_its_time_and_the_child_does_not_outlive_it(home: Home) -> None:
    named = Named(home, "import time; time.sleep(60)")
    call = named.admit()
    named.link.step()
    pid = named.link._child
    assert named.link.next_due_s() == naming.TAKE_MS_MAX / 1000
    named.calls.now = naming.TAKE_MS_MAX / 1000 - 0.001
    named.link.step()
    assert call not in named.answers
    named.calls.now = naming.TAKE_MS_MAX / 1000
    named.link.step()
    assert f"within {naming.TAKE_MS_MAX} ms" in named.told(call)["message"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.requirement("names.looking-up-is-bounded")
def test_a_refusal_of_the_lookup_is_passed_on_and_wrong_arguments_are_told_before_it(home: Home) -> None:
    error = {"error": {"code": "name_taken", "message": "another agent has it", "hint": "Take another."}}
    named = Named(home, f"print({json.dumps(json.dumps(error))})")
    right, wrong = named.admit(), named.admit("send_message", '{"target":1}')
    named.run_child()
    assert named.told(right) == {
        "code": "name_taken",
        "message": "Another agent has it.",
        "hint": "Take another.",
        "written": False,
    }
    assert named.told(wrong)["code"] == "invalid_arguments"


@pytest.mark.requirement("names.looking-up-is-bounded")
def test_a_python_that_is_gone_is_told(home: Home) -> None:
    named = Named(home, "")
    named.link._command = (str(home.path / "nowhere"),)  # type: ignore[misc]
    call = named.admit()
    named.link.step()
    assert "cannot be started" in named.told(call)["message"]


@pytest.mark.requirement("names.release-is-told-at-the-next-call")
def test_a_name_that_was_asked_back_is_given_up_at_the_next_call(home: Home) -> None:
    named = Named(home, FOUND)
    first = named.admit()
    named.run_child()
    named.calls.opened("E1")
    waiting, sending = named.admit("wait_agent", wait_ms=60_000), named.admit("send_message")
    for call, _ in named.calls.frames():
        assert call is not None
        named.calls.written(call)
    folder = str(home.agent_folder(AGENT))
    holder = holds.holder_of(folder)
    assert holder is not None
    holds.ask_to_let_go(folder, holder)
    refused = named.admit()
    for call_id in (first, waiting, refused):
        assert named.told(call_id)["code"] == "name_released"
    assert [frame for _, frame in named.calls.frames()] == [b"1 cancel\n", b"2 cancel\n"]
    named.link.step()
    assert holds.holder_of(folder) is not None, "what was begun finishes under the name"
    named.calls.answered(b'3 {"jsonrpc":"2.0","id":3,"result":{}}')
    assert named.answers[sending]["result"] == {}
    named.link.step()
    assert holds.holder_of(folder) is None
    assert named.told(named.admit())["code"] == "name_released"


@pytest.mark.requirement("names.release-is-told-at-the-next-call")
def test_an_idle_server_gives_the_name_up_when_it_looks(home: Home) -> None:
    named = Named(home, FOUND)
    named.admit()
    named.run_child()
    named.calls.cancel("1")
    named.link.step()
    folder = str(home.agent_folder(AGENT))
    holder = holds.holder_of(folder)
    assert holder is not None
    holds.ask_to_let_go(folder, holder)
    named.calls.now += naming.LOOK_MS / 1000
    named.link.step()
    assert holds.holder_of(folder) is None
