"""A shell in a home that holds credentials and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.cli import acting
from fencepost.home import Home
from fencepost_testing.shell import AGENT, AGENT_TOKEN, OPERATOR_TOKEN, Shell, put_credential


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Shell:
    for name in ("FENCEPOST_SESSION_ID", "FENCEPOST_CREDENTIAL_FILE", "FENCEPOST_GENERATION"):
        monkeypatch.delenv(name, raising=False)
    home = Home(tmp_path / "home")
    monkeypatch.setenv("FENCEPOST_HOME", home.text)
    monkeypatch.chdir(tmp_path)
    put_credential(home.operator_credential, OPERATOR_TOKEN)
    put_credential(home.agent_credential(AGENT), AGENT_TOKEN)
    made = Shell(home=home, monkeypatch=monkeypatch, capfdbinary=capfdbinary)

    @asynccontextmanager
    async def connected(who: acting.Acting, **_: Any) -> AsyncIterator[Any]:
        made.acted.append(who)
        yield SimpleNamespace(
            mailbox=made.mailbox,
            sessions=made.sessions,
            providers=made.providers,
            tasks=made.tasks,
            contexts=made.contexts,
            evidence=made.evidence,
        )

    monkeypatch.setattr(acting, "connected", connected)
    return made
