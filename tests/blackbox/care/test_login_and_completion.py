"""The commands of login and shell completion, as a person types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND_S_MAX = 30


def command(home: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
    return subprocess.run(
        [sys.executable, "-P", "-m", "fencepost", *arguments],
        env={**kept, "FENCEPOST_HOME": str(home / "h"), "XDG_CONFIG_HOME": str(home / "c"), **env},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=COMMAND_S_MAX,
        check=False,
    )


@pytest.mark.requirement("care.services-start-at-login-on-request")
def test_show_writes_nothing_and_install_writes_one_file_and_enables_nothing(tmp_path: Path) -> None:
    shown = command(tmp_path, "service", "show", "--for", "systemd")
    assert shown.returncode == 0, shown.stderr
    assert list(tmp_path.iterdir()) == []
    done = command(tmp_path, "service", "install", "--for", "systemd", "--json")
    written = Path(json.loads(done.stdout)["path"])
    assert written.read_text() == shown.stdout
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [written]
    again = command(tmp_path, "service", "install", "--for", "systemd")
    assert again.stdout.startswith("Already there")
    assert command(tmp_path, "service", "show", "--for", "cron").returncode == 1


@pytest.mark.requirement("care.the-shell-completes-commands")
def test_the_shell_completes_commands_and_is_given_its_script(tmp_path: Path) -> None:
    words = {"_FENCEPOST_COMPLETE": "complete_bash", "COMP_WORDS": "fencepost age", "COMP_CWORD": "1"}
    completed = command(tmp_path, **words)
    assert completed.stdout.split() == ["agent"], completed.stderr
    script = command(tmp_path, "--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "_FENCEPOST_COMPLETE" in script.stdout, script.stderr
    assert list(tmp_path.iterdir()) == []
