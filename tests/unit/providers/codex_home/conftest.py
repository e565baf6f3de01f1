"""A person's own Codex home, an agent's folder, and a plan, all below a temporary folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost_kit import faults
from fencepost_providers.adapters.codex.home import location
from fencepost_providers.domain.runtimes import LaunchPlan, McpServer

AGENT = "6f2b8c1e-0d3a-4b57-9a41-7c5e2f10ab34"


@pytest.fixture
def native(tmp_path: Path) -> Path:
    folder = tmp_path / "native"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def shim(tmp_path: Path) -> Path:
    path = tmp_path / "fencepost-mcp"
    path.write_text(f"#!{sys.executable}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def plan_of(tmp_path: Path, workspace: Path, shim: Path) -> Callable[..., LaunchPlan]:
    def made(*, command: str = str(shim), **fields: Any) -> LaunchPlan:
        server = McpServer(
            command=command,
            arguments=(),
            environment={"FENCEPOST_HOME": str(tmp_path / "home"), "FENCEPOST_SESSION_ID": AGENT},
        )
        values: dict[str, Any] = {
            "agent_id": AGENT,
            "name": "ann",
            "generation": 2,
            "workspace": str(workspace),
            "folder": str(tmp_path / "home" / "agents" / AGENT),
            "mcp": server,
        }
        return LaunchPlan(**{**values, **fields})

    return made


@pytest.fixture
def plan(plan_of: Callable[..., LaunchPlan]) -> LaunchPlan:
    return plan_of()


@pytest.fixture(autouse=True)
def _long_sockets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let homes lie where they are, however long a test's folder is; and keep every test out of the person's own."""
    monkeypatch.setattr(location, "SOCKET_PATH_BYTES_MAX", 4096)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)


@pytest.fixture(autouse=True)
def _no_faults() -> Any:
    yield
    faults.arm("")
