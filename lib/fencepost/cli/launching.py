"""How an agent's program is started, as options of `agent create` and `agent update`."""

from __future__ import annotations

import os
from typing import Annotated, Final

import typer

from fencepost.errors import Refused
from fencepost.sessions.v1 import sessions_pb2 as pb

WHEN_ACTIVE: Final = {
    "steer": pb.DELIVER_WHEN_ACTIVE_STEER,
    "after_turn": pb.DELIVER_WHEN_ACTIVE_AFTER_TURN,
}

Model = Annotated[str | None, typer.Option(metavar="ID", help='The model, as `agent models` lists it; "" clears.')]
Effort = Annotated[str | None, typer.Option(metavar="WORD", help='The reasoning effort; "" clears.')]
Sandbox = Annotated[str | None, typer.Option(metavar="WORD", help='The sandbox, in the program\'s words; "" clears.')]
Approval = Annotated[
    str | None, typer.Option(metavar="WORD", help='The approval policy, in the program\'s words; "" clears.')
]
AgentClass = Annotated[
    str | None, typer.Option("--class", metavar="NAME", help='The class whose instructions it gets; "" clears.')
]
Arguments = Annotated[
    str | None,
    typer.Option(
        "--custom-arguments", metavar="TEXT", help='Further arguments of the program, quoted as for a shell; "" clears.'
    ),
]
Include = Annotated[
    list[str] | None,
    typer.Option(
        "--include", metavar="DIR", help='A further folder it may read; may be repeated, replaces the list; "" clears.'
    ),
]
WhenActive = Annotated[
    str | None,
    typer.Option(
        "--when-active", metavar="HOW", help="Work during a turn: steer (default) joins it, after_turn waits."
    ),
]
SessionPolicy = Annotated[
    str | None,
    typer.Option("--session", metavar="HOW", help="A start resumes (resume, default) or begins anew (fresh)."),
]

Tools = Annotated[
    str | None,
    typer.Option(
        "--tools",
        metavar="FAMILIES",
        help='MCP tools it is offered at most: all, off, or families with commas between them; "" clears.',
    ),
]


def launch_settings(
    *,
    model: str | None,
    effort: str | None,
    sandbox: str | None,
    approval: str | None,
    agent_class: str | None,
    arguments: str | None,
    include: list[str] | None,
    when_active: str | None,
    session: str | None,
    tools: str | None,
) -> pb.LaunchSettings | None:
    """Return what was named, None where nothing was.

    Raises:
        Refused: a word that is not one of those that there are. Nothing was written.
    """
    settings = pb.LaunchSettings(
        model=model,
        effort=effort,
        sandbox=sandbox,
        approval=approval,
        session_policy=session,
        custom_arguments=arguments,
        tools_profile=tools,
    )
    if agent_class is not None:
        setattr(settings, "class", agent_class)
    if include is not None:
        settings.include_directories.extend(os.path.abspath(folder) for folder in include if folder)  # noqa: PTH100
        settings.set_include_directories = True
    if when_active is not None:
        if when_active not in WHEN_ACTIVE:
            raise Refused("invalid_arguments", "--when-active is steer or after_turn; nothing was written")
        settings.deliver_when_active = WHEN_ACTIVE[when_active]
    return settings if settings.ByteSize() else None


def launch_facts(agent: pb.Agent) -> dict[str, str]:
    """Return what people see of how an agent is started, without what is the program's own default."""
    if not agent.HasField("launch"):
        return {}
    launch = agent.launch
    after_turn = launch.deliver_when_active == pb.DELIVER_WHEN_ACTIVE_AFTER_TURN
    return {
        "Class": str(getattr(launch, "class")),
        "Model": launch.model,
        "Effort": launch.effort,
        "Sandbox": launch.sandbox,
        "Approval": launch.approval,
        "Arguments": launch.custom_arguments,
        "Include": ", ".join(launch.include_directories),
        "When active": "after the turn" if after_turn else "",
        "Tools": launch.tools_profile,
        "Session": "begins anew at each start" if launch.session_policy == "fresh" else "",
    }
