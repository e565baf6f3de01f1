"""The server that a configuration names: its command, its arguments, its environment."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fencepost.home import CREDENTIAL_VARIABLE, GENERATION_VARIABLE, HOME_VARIABLE, SESSION_VARIABLE, Home
from fencepost.mcp.arguments import FLAGS, Asked, given
from fencepost.mcp.names import LOCAL, SERVER_VARIABLE
from fencepost.mcp.offers import Wish, wish_of

# What programs show, and what they put before the names of tools.
SERVER_NAME: Final = "fencepost"
SCRIPT: Final = "fencepost-mcp"
# What a program gives a call before it cuts it off: more than the 64 s of the longest wait.
TOOL_TIMEOUT_MS: Final = 70_000
# What names an agent from outside, for programs that pass on only what they are told to.
IDENTITY_VARIABLES: Final = (SESSION_VARIABLE, CREDENTIAL_VARIABLE, GENERATION_VARIABLE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """What a program starts. Where no agent is named by argument, the program's own environment names it."""

    command: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    passes: tuple[str, ...]


def server_of(home: Home, asked: Asked | None, *, offers: Sequence[str] = (), name: str = LOCAL) -> Server:
    """Return the server of this installation for a home, and for the agent asked for if there is one.

    `offers` are its further arguments. A `name` that its own environment would give it is not written down.
    """
    command, *arguments = shim_command()
    return Server(
        command=command,
        arguments=(*arguments, *(asked.words() if asked else ()), *offers),
        environment={HOME_VARIABLE: home.text, **({} if name == LOCAL else {SERVER_VARIABLE: name})},
        passes=() if asked else IDENTITY_VARIABLES,
    )


def connection(home: Home, agent_id: str) -> dict[str, Any]:
    """Return the environment of an agent, and the entry for the MCP configuration of its program."""
    environment = {HOME_VARIABLE: home.text, SESSION_VARIABLE: agent_id}
    command, *arguments = shim_command()
    entry = {"command": command, "args": arguments, "env": environment}
    return {"environment": environment, "mcp": {"mcpServers": {SERVER_NAME: entry}}}


def wish_of_words(words: Sequence[str], environment: Mapping[str, str]) -> Wish:
    """Return what a server that is started by these words in this environment is to offer.

    Raises:
        ValueError: it could not be started so.
    """
    at = next((at for at, word in enumerate(words) if word.partition("=")[0] in FLAGS), len(words))
    said = given(words[at:])
    return wish_of(environment, tools=said.tools, called=said.names, name=said.server)


def shim_command() -> list[str]:
    """Return the installed shim script by its absolute path; without one, the same by this interpreter."""
    beside = [Path(sys.argv[0]).parent, Path(sysconfig.get_path("scripts"))]
    for folder in beside:
        script = Path(os.path.abspath(folder)) / SCRIPT  # noqa: PTH100 (a venv's link must not be resolved)
        if os.access(script, os.X_OK):
            return [str(script)]
    found = shutil.which(SCRIPT)
    return [found] if found else [sys.executable, "-m", "fencepost", "mcp", "serve"]
