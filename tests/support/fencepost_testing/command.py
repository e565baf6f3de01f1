"""The installed command, typed by a person, a script or an agent."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fencepost_testing.processes import Services, environment

COMMAND_S_MAX = 50.0


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.err)["error"]
        return found


@dataclass(frozen=True, kw_only=True)
class Person:
    """Somebody at a shell: the operator, or with a session id an agent."""

    services: Services
    name: str = ""
    agent_id: str = ""

    def words(self, *arguments: str) -> list[str]:
        """The words that start the command."""
        return [sys.executable, "-P", "-m", "fencepost", *arguments]

    def environment(self, env: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment that it is started in."""
        session = {"FENCEPOST_SESSION_ID": self.agent_id} if self.agent_id else {}
        return environment(self.services.home, {**session, **(env or {})})

    def start(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.words(*arguments),
            env=self.environment(env),
            cwd=self.services.home.path.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def __call__(self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Done:
        with self.start(*arguments, env=env) as process:
            try:
                out, err = process.communicate(stdin, timeout=COMMAND_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return Done(code=process.returncode, out=out.decode(), err=err.decode())

    def creates(self, name: str, *more: str) -> Person:
        made = self("agent", "create", name, "--json", *more).document
        return Person(services=self.services, name=name, agent_id=made["agent"]["agent_id"])


@dataclass(frozen=True, kw_only=True)
class People:
    """The operator and two agents of one home whose services run."""

    services: Services
    operator: Person
    ada: Person
    bob: Person
