"""What runs on the other machine, as a process of its own, without ssh: what it puts, and that it takes it back."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.tunnel import keeper
from fencepost.tunnel.destination import BOOTSTRAP
from fencepost.tunnel.link import shim_files

AGENT = "0190f3a2-1111-7222-8333-444455556666"
TOKEN = "fp_" + "a" * 43
MARK = "mark "
END_S_MAX = 20
PROGRAM = Path(keeper.__file__).read_bytes()


class Keeper:
    """A keeper that was begun, and its answers."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line.startswith(MARK), line
        found: dict[str, Any] = json.loads(line.removeprefix(MARK))
        return found

    def say(self, text: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def hang_up(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def ended(self) -> int:
        return self.process.wait(timeout=END_S_MAX)


class Place:
    """A folder below which keepers are begun."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.folder = base / "r"
        self._stack = contextlib.ExitStack()
        self._numbers = iter(range(100))

    def begin(self, mode: str = "keep", *, bound: bool = True, **more: Any) -> Keeper:
        """Begin one as ssh would, after sshd has made the socket."""
        name = f"edge-{next(self._numbers)}.sock"
        if bound and mode == "keep":
            listener = self._stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(self.folder / "run" / name))
        setup = {
            "mark": MARK,
            "mode": mode,
            "home": str(self.folder),
            "tunnel": "t",
            "socket": name,
            "credentials": {AGENT: TOKEN},
            "at_end": "remove",
            "silence_ms": 60_000,
            "shim": None,
            **more,
        }
        process = self._stack.enter_context(
            subprocess.Popen(
                ["sh", "-c", BOOTSTRAP],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={"PATH": os.environ["PATH"], "HOME": str(self.base)},
            )
        )
        self._stack.callback(process.kill)
        made = Keeper(process)
        made.say(b"%d\n%b%b\n" % (len(PROGRAM), PROGRAM, json.dumps(setup).encode()))
        return made

    def left(self) -> list[str]:
        """Every file but the tunnel's own two."""
        files = (path for path in self.folder.rglob("*") if not path.is_dir())
        return sorted(
            str(path.relative_to(self.folder)) for path in files if path.name not in {keeper.MARKER, keeper.LOCK}
        )

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="fpk") as name:
        made = Place(Path(name).resolve())
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def ready(place: Place) -> Place:
    """The same, whose folder was prepared."""
    prepared = place.begin("prepare")
    assert prepared.answer()["folder"] == str(place.folder)
    assert prepared.ended() == 0
    return place


@pytest.mark.requirement("tunnel.only-the-edge-and-the-named-agents")
def test_what_is_put_is_private_and_leads_to_the_socket(ready: Place) -> None:
    kept = ready.begin()
    assert kept.answer()["ready"] is True
    assert ready.left() == [f"agents/{AGENT}/credential", "run/edge-1.sock", "run/edge.addr"]
    for path in (ready.folder, *ready.folder.rglob("*")):
        assert stat.S_IMODE(path.lstat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert (ready.folder / "run" / "edge.addr").read_text() == f"unix:{ready.folder}/run/edge-1.sock\n"
    assert (ready.folder / "agents" / AGENT / "credential").read_text() == TOKEN + "\n"
    kept.say(b"here\nstop\n")
    assert kept.answer() == {"cleared": True}
    assert kept.ended() == 0
    assert ready.left() == []
    assert not (ready.folder / "agents" / AGENT).exists()


@pytest.mark.requirement("tunnel.nothing-is-left-behind")
@pytest.mark.parametrize("end", ["hang up", "silence", "SIGTERM", "SIGHUP"])
def test_whatever_ends_it_takes_everything_back(ready: Place, end: str) -> None:
    kept = ready.begin(silence_ms=1 if end == "silence" else 60_000)
    assert kept.answer()["ready"] is True
    if end == "hang up":
        kept.hang_up()
    elif end != "silence":
        kept.process.send_signal(getattr(signal, end))
    assert kept.ended() == 0
    assert ready.left() == []


@pytest.mark.requirement("tunnel.nothing-is-left-behind")
def test_credentials_that_are_to_stay_do_and_nothing_else(ready: Place) -> None:
    kept = ready.begin(at_end="keep")
    kept.answer()
    kept.hang_up()
    kept.ended()
    assert ready.left() == [f"agents/{AGENT}/credential"]


@pytest.mark.requirement("tunnel.a-lost-connection-is-replaced")
def test_the_next_connection_of_a_tunnel_sends_the_last_ones_keeper_away_and_another_tunnel_does_not(
    ready: Place,
) -> None:
    first = ready.begin()
    assert first.answer()["ready"] is True
    for mode in ("prepare", "keep"):
        other = ready.begin(mode, tunnel="other")
        assert other.answer()["error"] == "remote_home_in_use"
        assert other.ended() == 1
    assert (ready.folder / "run" / "edge.addr").read_text() == f"unix:{ready.folder}/run/edge-1.sock\n"
    second = ready.begin()
    assert second.answer()["ready"] is True
    assert first.ended() == 0
    assert ready.left() == [f"agents/{AGENT}/credential", "run/edge-4.sock", "run/edge.addr"]
    second.hang_up()
    second.ended()
    assert ready.left() == []


@pytest.mark.requirement("tunnel.errors-say-what-is-wrong")
def test_a_forwarding_that_sshd_did_not_make_is_refused_and_nothing_is_copied(ready: Place) -> None:
    kept = ready.begin(bound=False)
    assert kept.answer()["error"] == "forwarding_refused"
    assert kept.ended() == 1
    assert ready.left() == []


@pytest.mark.requirement("tunnel.errors-say-what-is-wrong")
@pytest.mark.parametrize(
    ("flaw", "code"),
    [
        ("stranger", "remote_home_taken"),
        ("open", "remote_home_unsafe"),
        ("link", "remote_home_unsafe"),
        ("file", "remote_home_unsafe"),
        ("no place", "remote_home_unsafe"),
        ("place of others", "remote_home_unsafe"),
        ("long", "remote_path_too_long"),
        ("odd", "remote_home_unsafe"),
    ],
)
def test_a_folder_that_cannot_be_ours_alone_is_refused_and_nothing_is_made(place: Place, flaw: str, code: str) -> None:
    home = str(place.folder)
    if flaw in {"stranger", "open"}:
        place.folder.mkdir(mode=0o755 if flaw == "open" else 0o700)
    if flaw == "stranger":
        (place.folder / "thesis.txt").touch()
    elif flaw == "link":
        (place.base / "elsewhere").mkdir(mode=0o700)
        place.folder.symlink_to(place.base / "elsewhere")
    elif flaw == "file":
        place.folder.touch()
    elif flaw == "no place":
        home += "/x/y"
    elif flaw == "place of others":
        (place.base / "shared").mkdir()
        (place.base / "shared").chmod(0o777)
        home = str(place.base / "shared" / "r")
    elif flaw == "long":
        home = f"{place.base}/{'d' * keeper.SOCKET_BYTES_MAX}"
    elif flaw == "odd":
        home += " r"
    before = sorted(place.base.rglob("*"))
    refused = place.begin("prepare", home=home)
    assert refused.answer()["error"] == code
    assert refused.ended() == 1
    assert sorted(place.base.rglob("*")) == before


def test_without_a_name_the_folder_lies_in_the_home_folder_over_there(place: Place) -> None:
    assert place.begin("prepare", home="").answer()["folder"] == str(place.base / keeper.FOLDER_DEFAULT)


@pytest.mark.requirement("tunnel.the-shim-needs-python-alone")
def test_the_shim_is_installed_whole_replaced_whole_and_runs_on_a_python_without_packages(ready: Place) -> None:
    ready.begin("prepare", shim={"fencepost-mcp": "old", "gone.py": ""}).ended()
    done = ready.begin("prepare", shim=shim_files())
    command = done.answer()["shim"]
    assert done.ended() == 0
    assert command == str(ready.folder / "shim" / "fencepost-mcp")
    assert not (ready.folder / "shim" / "gone.py").exists()
    assert not list(ready.folder.glob(".shim-*"))
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    asked = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    ask = "".join(json.dumps(one) + "\n" for one in asked).encode()
    told = subprocess.run(
        [base, "-IS", command], input=ask, capture_output=True, timeout=END_S_MAX, check=True, env={"PATH": "/usr/bin"}
    )
    assert b'"send_message"' in told.stdout


@pytest.mark.requirement("tunnel.the-shim-needs-python-alone")
def test_what_the_copied_files_import_is_copied_or_of_the_standard_library() -> None:
    files = shim_files()
    copied = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in files}
    # Started by the shim as another process, or asked for only where gRPC or an installation is at hand.
    elsewhere = {
        "fencepost.take",
        "fencepost.common.v1",
        "fencepost.common.v1.common_pb2",
        "fencepost.client",
        "fencepost.sockets",
        "fencepost.mcp.generate",
    }
    missing = set()
    for name, text in files.items():
        for node in ast.walk(ast.parse(text) if name.endswith(".py") else ast.Module(body=[], type_ignores=[])):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("fencepost"):
                parts = {f"{node.module}.{alias.name}" for alias in node.names} & copied
                if node.module not in copied | elsewhere and not parts:
                    missing.add(f"{name}: {node.module}")
    assert missing == set()
