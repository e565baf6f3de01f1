"""A home that cannot be used is refused by every program with what to do, and never by a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fencepost.home import Home
from fencepost_testing.processes import environment

COMMANDS = {
    "status": ("-m", "fencepost", "status"),
    "up": ("-m", "fencepost", "up"),
    "up --detach": ("-m", "fencepost", "up", "--detach"),
    "down": ("-m", "fencepost", "down"),
    "doctor": ("-m", "fencepost", "doctor"),
    "agent list": ("-m", "fencepost", "agent", "list"),
    "message list": ("-m", "fencepost", "message", "list"),
    "backup": ("-m", "fencepost", "backup"),
    "restore": ("-m", "fencepost", "restore", "nothing"),
    "config show": ("-m", "fencepost", "config", "show"),
    "service show": ("-m", "fencepost", "service", "show"),
    "mcp config": ("-m", "fencepost", "mcp", "config", "codex"),
    "supervisor": ("-m", "fencepost.up"),
    "sessions": ("-m", "fencepost_sessions"),
    "mailbox": ("-m", "fencepost_mailbox"),
    "mcp_edge": ("-m", "fencepost_mcp_edge"),
    "providers": ("-m", "fencepost_providers"),
}


def a_file(folder: Path) -> Path:
    (folder / "file").write_text("kept")
    return folder / "file"


def below_a_file(folder: Path) -> Path:
    return a_file(folder) / "home"


def a_loop(folder: Path) -> Path:
    (folder / "loop").symlink_to("loop")
    return folder / "loop"


def a_link_to_nothing(folder: Path) -> Path:
    (folder / "link").symlink_to(folder / "gone")
    return folder / "link"


def with_a_file_for_run(folder: Path) -> Path:
    (folder / "home").mkdir(mode=0o700)
    (folder / "home" / "run").write_text("kept")
    return folder / "home"


def too_long_a_name(folder: Path) -> Path:
    return folder / ("x" * 300)


def too_long_a_path(folder: Path) -> Path:
    return folder / "/".join(["abcdefgh"] * 600)


def closed(folder: Path) -> Path:
    (folder / "home").mkdir(mode=0o000)
    return folder / "home"


KINDS: dict[Callable[[Path], Path], str] = {
    a_file: "not a folder",
    below_a_file: "below a file",
    a_loop: "a loop of links",
    a_link_to_nothing: "a link to nothing",
    with_a_file_for_run: "not a folder",
    too_long_a_name: "over this system's limit",
    too_long_a_path: "over this system's limit",
    closed: "closed to this user",
}


@pytest.mark.requirement("cli.an-unusable-home-is-refused")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.replace("_", " "))
def test_every_program_refuses_a_home_that_cannot_be_used_and_changes_nothing(
    tmp_path: Path, kind: Callable[[Path], Path]
) -> None:
    if kind is closed and os.geteuid() == 0:
        pytest.skip("nothing is closed to root: what the system answers is tested in unit/client/test_home.py")
    home = Home(kind(tmp_path))
    before = sorted(str(path) for path in tmp_path.rglob("*"))

    def run(words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            env=environment(home),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    with ThreadPoolExecutor(2) as pool:
        done = dict(zip(COMMANDS, pool.map(run, COMMANDS.values()), strict=True))
    for name, ended in done.items():
        said = ended.stdout + ended.stderr
        assert ended.returncode in {1, 78}, (name, said)
        assert "Traceback" not in said, (name, said)
        assert KINDS[kind] in said, (name, said)
        assert "FENCEPOST_HOME" in said, (name, said)
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
