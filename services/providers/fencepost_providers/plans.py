"""The launch plan of an agent: settings as a person set them, instructions and skills from the home. R006 R092-R099.

Sources in order, later ones win: `<home>/common`, `<home>/classes/<class>`, `<home>/agents/<uuid>`. Of each, AGENTS.md
is a text of instructions and `.agents/skills` a folder of skills. What is too long or cannot be read is left out, and
told.
"""

from __future__ import annotations

import os
import shlex
import stat
import sys
from pathlib import Path
from typing import Final

from fencepost.home import GENERATION_VARIABLE, HOME_VARIABLE, SESSION_VARIABLE, Home
from fencepost_kit import logs
from fencepost_providers.adapters.base import StartFailed
from fencepost_providers.domain.agents import FRESH, Agent
from fencepost_providers.domain.runtimes import LaunchPlan, LaunchSettings, McpServer

INSTRUCTIONS_NAME: Final = "AGENTS.md"
INSTRUCTIONS_BYTES_MAX: Final = 65_536
SKILLS_FOLDER: Final = (".agents", "skills")
SHIM: Final = "fencepost-mcp"

_log: Final = logs.get(__name__)


def plan_of(home: Home, agent: Agent, *, generation: int, conversation_id: str) -> LaunchPlan:
    """Return everything that an adapter needs for one life. Reads small files of the home.

    Raises:
        StartFailed: the settings cannot be used (custom arguments that do not split, no workspace).
    """
    sources = _sources(home, agent)
    identity = {HOME_VARIABLE: home.text, SESSION_VARIABLE: agent.agent_id}
    return LaunchPlan(
        agent_id=agent.agent_id,
        name=agent.name,
        generation=generation,
        workspace=_workspace(agent),
        folder=str(home.agent_folder(agent.agent_id)),
        conversation_id="" if agent.launch.session_policy == FRESH else conversation_id,
        settings=settings_of(agent),
        mcp=McpServer(command=shim(), arguments=(), environment=identity),
        instructions=tuple(text for text in map(_instructions, sources) if text),
        skills=tuple(str(folder) for source in sources if (folder := source.joinpath(*SKILLS_FOLDER)).is_dir()),
        environment={**identity, GENERATION_VARIABLE: str(generation)},
    )


def shim() -> str:
    """Return the absolute path of our MCP server's script, beside the interpreter that runs this."""
    return str(Path(sys.executable).parent / SHIM)


def settings_of(agent: Agent) -> LaunchSettings:
    """Return the launch settings as an adapter takes them.

    Raises:
        StartFailed: the custom arguments do not split.
    """
    launch = agent.launch
    try:
        arguments = tuple(shlex.split(launch.custom_arguments))
    except ValueError as error:
        raise StartFailed(
            "invalid_arguments",
            f"the custom arguments do not split as a shell would split them: {error}",
            hint="Change them with `fencepost agent update NAME --custom-arguments`.",
        ) from None
    extra = {"tools_profile": launch.tools_profile} if launch.tools_profile else {}
    return LaunchSettings(
        model=launch.model,
        effort=launch.effort,
        sandbox=launch.sandbox,
        approval=launch.approval,
        custom_arguments=arguments,
        include_directories=launch.include_directories,
        **extra,
    )


def _workspace(agent: Agent) -> str:
    workspace = agent.launch.checkout_root or agent.workspace
    if not workspace or not Path(workspace).is_dir():
        raise StartFailed(
            "no_workspace",
            "the agent has no workspace that is a folder here",
            hint="Set one with `fencepost agent update NAME --workspace DIR`.",
        )
    return workspace


def _sources(home: Home, agent: Agent) -> list[Path]:
    found = [home.path / "common"]
    name = agent.launch.agent_class
    # One path component: sessions holds that, and nothing is read outside the home where it did not.
    if name and name not in {".", ".."} and "/" not in name and "\0" not in name:
        found.append(home.path / "classes" / name)
    return [*found, home.agent_folder(agent.agent_id)]


def _instructions(source: Path) -> str:
    path = source / INSTRUCTIONS_NAME
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return ""
    except OSError as error:
        _log.warning("instructions_not_read", path=path, cause=error.strerror)
        return ""
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raw = b""
        else:
            with os.fdopen(handle, "rb", closefd=False) as file:
                raw = file.read(INSTRUCTIONS_BYTES_MAX + 1)
    finally:
        os.close(handle)
    if len(raw) > INSTRUCTIONS_BYTES_MAX:
        _log.warning("instructions_too_long", path=path, bytes_max=INSTRUCTIONS_BYTES_MAX)
        return ""
    return raw.decode("utf-8", "replace")
