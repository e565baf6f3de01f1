"""Which project a command is about, and which checkout its files lie in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fencepost.cli import acting
from fencepost.cli.directory import all_projects
from fencepost.cli.plain import one_line
from fencepost.cli.project import locate
from fencepost.errors import Refused
from fencepost.paths import Checkout
from fencepost.sessions.v1 import sessions_pb2 as pb

ProjectOption = Annotated[
    Path | None,
    typer.Option(
        "--project", metavar="DIR", help="For the operator: a folder of the project; by default the current one."
    ),
]
RootOption = Annotated[
    Path | None,
    typer.Option(
        "--root", metavar="DIR", help="The root of the checkout; by default that of the repository around you."
    ),
]


async def project_id_of(services: acting.Services, who: acting.Acting, folder: Path | None) -> str:
    """Return the UUID of the project that the operator means; empty for an agent, which has its own.

    Raises:
        Refused: there is no project at this place; nothing was read.
    """
    if not who.is_operator:
        if folder is not None:
            raise Refused("invalid_arguments", "an agent acts in its own project; nothing was done")
        return ""
    return (await project_at(services, folder)).project_id


async def project_at(services: acting.Services, folder: Path | None) -> pb.Project:
    """Return the project of a folder, by default of the current one.

    Raises:
        Refused: there is no project at this place; nothing was read.
    """
    location = locate(Path.cwd() if folder is None else folder)
    for project in await all_projects(services.sessions):
        if project.location == location.path:
            return project
    raise Refused(
        "not_found",
        f"there is no project at {one_line(location.path)}; nothing was done",
        hint="`fencepost project create`, or the first `fencepost agent create NAME`, makes one of the current folder;"
        " `fencepost project list` shows which there are.",
    )


def checkout_at(root: Path | None) -> Checkout:
    """Return the checkout that a command's files lie in."""
    return Checkout.containing(Path.cwd()) if root is None else Checkout.at(root)
