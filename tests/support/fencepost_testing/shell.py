"""The command line with services that are scripted, in a home that holds credentials and nothing else."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.message import Message

from fencepost.cli import acting
from fencepost.cli.app import main
from fencepost.errors import FencepostError, NotWritten
from fencepost.home import Home

# Methods that answer a stream: what a test has put there is a list, an error at its end is raised.
STREAMS = frozenset({"attach_terminal", "watch_conversation", "watch_events"})
AGENT = "0190f3a2-1111-7222-8333-444455556666"
BOB = "0190f3a2-2222-7222-8333-444455556666"
PROJECT = "0190f3a2-3333-7222-8333-444455556666"
OPERATOR_TOKEN = "fp_" + "o" * 43
AGENT_TOKEN = "fp_" + "a" * 43


class Face:
    """One service: answers what a test has put under a method's name, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.answers: dict[str, Any] = {}

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method in STREAMS:
            return self._streaming(method)

        async def call(*arguments: Any, **_named: Any) -> Any:
            request = arguments[0] if arguments else None
            copied: Any = request
            if isinstance(request, Message):
                copied = type(request)()
                copied.CopyFrom(request)
            self.asked.append((method, copied))
            answer = self.answers.get(method, NotWritten("unscripted", f"{method} was not expected"))
            answer = answer(request) if callable(answer) else answer
            if isinstance(answer, FencepostError):
                raise answer
            return answer

        return call

    def _streaming(self, method: str) -> Callable[..., Any]:
        async def stream(request: Any) -> AsyncIterator[Any]:
            self.asked.append((method, request))
            answer = self.answers.get(method, [NotWritten("unscripted", f"{method} was not expected")])
            for item in answer(request) if callable(answer) else answer:
                if isinstance(item, FencepostError):
                    raise item
                yield item

        return stream


@dataclass
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        assert found["schema"] == 1
        return found

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.err)
        assert found["schema"] == 1
        error: dict[str, Any] = found["error"]
        return error


@dataclass
class Shell:
    """A person's shell, or with `as_agent` an agent's."""

    home: Home
    monkeypatch: pytest.MonkeyPatch
    capfdbinary: pytest.CaptureFixture[bytes]
    mailbox: Face = field(default_factory=Face)
    sessions: Face = field(default_factory=Face)
    providers: Face = field(default_factory=Face)
    tasks: Face = field(default_factory=Face)
    contexts: Face = field(default_factory=Face)
    evidence: Face = field(default_factory=Face)
    acted: list[acting.Acting] = field(default_factory=list)

    def as_agent(self) -> None:
        self.monkeypatch.setenv("FENCEPOST_SESSION_ID", AGENT)

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Done:
        self.monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
        code = main(arguments)
        out, err = self.capfdbinary.readouterr()
        return Done(code=code, out=out.decode(), err=err.decode())


def put_credential(path: Path, token: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(token + "\n")
    path.chmod(0o600)
