"""A throw-away home with one agent in it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.home import Home

AGENT = "0195f3a0-0000-7000-8000-000000000001"
TOKEN = "fp_" + "T" * 43


@pytest.fixture
def home() -> Iterator[Home]:
    # pytest's own temporary folders are too deep for a socket path on some systems.
    with tempfile.TemporaryDirectory(prefix="fp", ignore_cleanup_errors=True) as folder:
        made = Home(Path(folder) / "h")
        made.prepare()
        file = made.agent_credential(AGENT)
        file.parent.mkdir(parents=True, mode=0o700)
        file.write_text(TOKEN + "\n")
        file.chmod(0o600)
        yield made


@pytest.fixture
def env(home: Home) -> dict[str, str]:
    """The variables that name the agent."""
    return {"FENCEPOST_HOME": home.text, "FENCEPOST_SESSION_ID": AGENT}
