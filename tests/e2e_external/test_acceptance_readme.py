"""The README's lines that connect Codex do it, typed as they stand there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from fencepost_testing.acceptance_run import ROOT, Judged
from fencepost_testing.real_programs import run

SHELL_S_MAX: Final = 240
HEADING: Final = "## Connect Codex"
ANSWER: Final = "I am cora, and nothing lies here."


def lines() -> str:
    """The first block of commands under the heading."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition(HEADING)[2]
    block = re.search(r"^```\w*\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert block is not None, f"the README has no commands under {HEADING!r}"
    return block[1]


@pytest.mark.timeout(600)
@pytest.mark.requirement("acceptance.readme-lines")
def test_the_four_lines_connect_codex_as_they_are_written(judged: Judged) -> None:
    if judged.said is not None:
        pytest.skip("it takes a model that answers as it is told")
    commands = lines()
    assert len(commands.splitlines()) == 4
    with judged.stage() as stage:
        stage.play({"when": "Who are you", "steps": [[["SAY", ANSWER]]]})
        project = stage.folder / "project"
        project.mkdir()
        env = {**stage.environment, "PATH": f"{judged.scripts}:{stage.environment['PATH']}"}
        subprocess.run(["git", "init", "--quiet", str(project)], check=True, env=env)
        try:
            ran = run([*stage.inside, "sh", "-ec", commands], env=env, cwd=project, seconds=SHELL_S_MAX)
            assert ran.code == 0, f"{ran}\n{stage.logs()}"
            assert ANSWER in ran.out, ran
            rollout = stage.rollout("cora")
            assert Path(rollout.cwd) == project
            assert [turn.final for turn in rollout.turns.values()] == [ANSWER]
        finally:
            down = run([*stage.inside, judged.scripts / "fencepost", "down"], env=env, cwd=project)
        assert down.code == 0, down
