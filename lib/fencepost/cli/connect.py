"""How an agent's program is told where its mailbox is."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

from fencepost.home import HOME_VARIABLE, SESSION_VARIABLE, Home


def connection(home: Home, agent_id: str) -> dict[str, Any]:
    """Return the environment of an agent, and the entry for the MCP configuration of its program."""
    environment = {HOME_VARIABLE: home.text, SESSION_VARIABLE: agent_id}
    command, *arguments = shim_command()
    entry = {"command": command, "args": arguments, "env": environment}
    return {"environment": environment, "mcp": {"mcpServers": {"fencepost": entry}}}


def shim_command() -> list[str]:
    """Return the installed shim script by its absolute path; without one, the same by this interpreter."""
    beside = [Path(sys.argv[0]).parent, Path(sysconfig.get_path("scripts"))]
    for folder in beside:
        script = Path(os.path.abspath(folder)) / "fencepost-mcp"  # noqa: PTH100 (a venv's link must not be resolved)
        if os.access(script, os.X_OK):
            return [str(script)]
    found = shutil.which("fencepost-mcp")
    return [found] if found else [sys.executable, "-m", "fencepost", "mcp", "serve"]
