"""A home whose services run, and a repository whose project has two agents."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from fencepost.home import MAILBOX, SESSIONS
from fencepost_testing.command import COMMAND_S_MAX, Done, Person
from fencepost_testing.processes import Services, environment, short_home

GIT = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_NOSYSTEM": "1",
}


@dataclass(frozen=True, kw_only=True)
class Work:
    """Somebody in a folder of a repository."""

    services: Services
    folder: Path
    agent_id: str = ""

    def at(self, folder: Path) -> Work:
        return Work(services=self.services, folder=folder, agent_id=self.agent_id)

    def env(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        session = {"FENCEPOST_SESSION_ID": self.agent_id} if self.agent_id else {}
        home = {"HOME": str(self.services.home.path.parent)}
        return environment(self.services.home, {**GIT, **home, **session, **(more or {})})

    def run(self, *words: str, env: Mapping[str, str] | None = None) -> Done:
        done = subprocess.run(
            words, cwd=self.folder, env=self.env(env), capture_output=True, timeout=COMMAND_S_MAX, check=False
        )
        return Done(code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())

    def git(self, *arguments: str, env: Mapping[str, str] | None = None) -> Done:
        return self.run("git", *arguments, env=env)

    def good(self, *arguments: str) -> str:
        done = self.git(*arguments)
        assert done.code == 0, done.err
        return done.out

    def fencepost(self, *arguments: str) -> Done:
        return self.run(sys.executable, "-P", "-m", "fencepost", *arguments)

    def commits(self, path: str, text: str = "changed\n", env: Mapping[str, str] | None = None) -> Done:
        """Write a file and commit it."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("a") as opened:
            opened.write(text)
        self.good("add", "--", path)
        return self.git("commit", "-q", "-m", f"change {path}", env=env)


@dataclass(frozen=True, kw_only=True)
class Team:
    """The operator and two agents at one repository."""

    services: Services
    operator: Work
    ada: Work
    bob: Work


@pytest.fixture(scope="module")
def running() -> Iterator[Services]:
    with short_home() as made:
        made.path.mkdir(mode=0o700)
        services = Services(made)
        try:
            asyncio.run(services.start(SESSIONS, MAILBOX))
            yield services
        finally:
            services.close()
            services.print_logs()


@pytest.fixture
def team(running: Services, tmp_path: Path) -> Team:
    root = tmp_path / "repo"
    root.mkdir()
    operator = Work(services=running, folder=root)
    operator.good("init", "-q", "-b", "main")
    (root / "a.txt").write_text("a\n")
    (root / "b.txt").write_text("b\n")
    operator.good("add", ".")
    operator.good("commit", "-q", "-m", "begin")
    person = Person(services=running)
    ids = {
        name: person("agent", "create", name, "--project", str(root), "--json").document["agent"]["agent_id"]
        for name in ("ada", "bob")
    }
    return Team(
        services=running,
        operator=operator,
        ada=Work(services=running, folder=root, agent_id=ids["ada"]),
        bob=Work(services=running, folder=root, agent_id=ids["bob"]),
    )


@pytest.fixture
def hooks(team: Team) -> Path:
    """The repository's own folder of hooks."""
    return Path(os.fsdecode(team.operator.folder / ".git" / "hooks"))
