"""A home from nothing to gone, by the commands that a person types; and the demo."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost_testing.command import Person
from fencepost_testing.processes import Services, environment, left_behind, short_home

ROOT = Path(__file__).resolve().parents[3]
DEMO = ROOT / "scripts" / "demo.py"


@pytest.mark.requirement("cli.status-says-the-next-step")
def test_a_home_comes_up_says_what_is_next_and_goes_down() -> None:
    with short_home() as home:
        operator = Person(services=Services(home))
        assert (operator("status").code, home.path.exists()) == (6, False)
        try:
            up = operator("up", "--detach", "--json").document
            assert (up["running"], up["overall"]) == (True, "ready")
            again = operator("up", "--detach", "--json")
            assert (again.code, again.error["code"]) == (1, "already_up")
            status = operator("status", "--json").document
            assert {item["name"] for item in status["services"]} == {"sessions", "mailbox", "mcp_edge", "providers"}
            stores = [item["described"] for item in status["services"] if item["name"] in {"sessions", "mailbox"}]
            assert all(described["epoch"] for described in stores)
            assert (status["agents"], status["next_step"]) == (0, "fencepost agent create NAME")
            people = operator("status").out
            assert all(str(item["pid"]) in people for item in status["services"])
        finally:
            down = operator("down", "--json")
        assert (down.document["was_running"], down.document["stopped"]) == (True, True)
        assert operator("status").code == 6
        made = operator("agent", "create", "ada", "--json")
        assert (made.code, made.error["outcome"]) == (6, "not_written")


@pytest.mark.requirement("demo.ends-by-itself-and-leaves-nothing")
@pytest.mark.timeout(100)
def test_the_demo_ends_within_a_minute_with_every_claim_proved_and_nothing_left(tmp_path: Path) -> None:
    with short_home() as home:
        folder = home.path.parent
        done = subprocess.run(
            [sys.executable, str(DEMO)],
            env=environment(home, {"TMPDIR": str(folder)}),
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "nothing is lost" in done.stdout
        assert "FAILED" not in done.stdout
        assert done.stderr == ""
        assert list(folder.iterdir()) == []
        assert left_behind(str(folder)) == []


@pytest.mark.requirement("demo.ends-by-itself-and-leaves-nothing")
@pytest.mark.timeout(60)
def test_an_interrupted_demo_ends_its_children_and_removes_its_home() -> None:
    with short_home() as home:
        folder = home.path.parent
        demo = subprocess.Popen(
            [sys.executable, "-u", str(DEMO)],
            env=environment(home, {"TMPDIR": str(folder)}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        with demo:
            assert demo.stdout is not None
            for line in demo.stdout:
                if line.startswith("services"):
                    break
            demo.send_signal(signal.SIGINT)
            rest, _ = demo.communicate(timeout=45)
        assert demo.returncode == 130, rest
        assert list(folder.iterdir()) == []
        assert left_behind(str(folder)) == []
