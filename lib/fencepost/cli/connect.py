"""`fencepost connect PROGRAM` and `fencepost mcp config PROGRAM`: an agent program and its MCP server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fencepost.cli.options import AsJson

ProgramArgument = Annotated[
    str, typer.Argument(metavar="PROGRAM", help="codex, claude, opencode, pi, gemini or antigravity.")
]
AgentOption = Annotated[
    str | None,
    typer.Option("--agent", metavar="NAME", help="The agent it is; without it, the program's environment names one."),
]
ProjectOption = Annotated[
    Path | None,
    typer.Option("--project", metavar="DIR", help="The agent's project; by default that of each session's folder."),
]
ToolsOption = Annotated[
    str | None,
    typer.Option(
        "--tools", metavar="FAMILIES", help="What it offers: messaging (default), tasks, context, files, all, off."
    ),
]
NamesOption = Annotated[
    str | None, typer.Option("--names", metavar="NAMES", help="Names of its tools: fencepost (default) or warp.")
]


def config(
    program: ProgramArgument,
    *,
    agent: AgentOption = None,
    project: ProjectOption = None,
    tools: ToolsOption = None,
    names: NamesOption = None,
    as_json: AsJson = False,
) -> None:
    """Print the configuration of an agent program, to be put in by hand; `fencepost connect` puts it in."""
    from fencepost.cli import connecting  # noqa: PLC0415 (what only sends loads no editors of configurations)

    connecting.print_config(
        program, agent=agent, project=project, offers=connecting.Offers(tools=tools, names=names), as_json=as_json
    )


def connect(
    program: ProgramArgument,
    *,
    agent: AgentOption = None,
    project: ProjectOption = None,
    tools: ToolsOption = None,
    names: NamesOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be written, and write nothing.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take out what was put in.")] = False,
    approve: Annotated[
        list[str] | None,
        typer.Option("--approve", metavar="TOOL", help="Let the program call this tool unasked; may be repeated."),
    ] = None,
    agents_md: Annotated[
        bool, typer.Option("--agents-md", help="Add a snippet to the project's file of instructions.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put the MCP server into an agent program's configuration, and try it. Creates no agent: its first call does."""
    from fencepost.cli import connecting  # noqa: PLC0415 (what only sends loads no editors of configurations)

    wish = connecting.Wish(
        program=program,
        agent=agent,
        project=project,
        offers=connecting.Offers(tools=tools, names=names),
        dry_run=dry_run,
        undo=undo,
        approve=approve or (),
        agents_md=agents_md,
        as_json=as_json,
    )
    connecting.carry_out(wish)
