"""`fencepost service show` and `install`: the services of the home at login."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli import acting, screen
from fencepost.cli.options import AsJson
from fencepost.errors import Refused
from fencepost.home import Home

if TYPE_CHECKING:
    from fencepost.care.login import Unit

login = typer.Typer(help="Start the services of the home at login.", no_args_is_help=True)

Manager = Annotated[
    str | None, typer.Option("--for", metavar="MANAGER", help="systemd or launchd; default: what this system has.")
]


def _unit(manager: str | None) -> Unit:
    from fencepost.care import login as care  # noqa: PLC0415 (what only sends loads none of it)

    acting.refuse_agents()
    if manager is not None and manager not in set(care.Kind):
        raise Refused("invalid_arguments", "--for takes systemd or launchd; nothing was written")
    kind = care.kind_of_system() if manager is None else care.Kind(manager)
    return care.unit_of(Home.from_environment(), kind, env=os.environ)


@login.command("show")
def show(*, manager: Manager = None, as_json: AsJson = False) -> None:
    """Print the file that starts the services at login; write nothing."""
    unit = _unit(manager)
    if as_json:
        screen.put_json({"path": str(unit.path), "content": unit.content, "enable": list(unit.enable)})
    else:
        screen.put(unit.content.rstrip("\n"))


@login.command("install")
def install(*, manager: Manager = None, as_json: AsJson = False) -> None:
    """Write that file where it belongs, and say how to enable it."""
    from fencepost.care import login as care  # noqa: PLC0415 (what only sends loads none of it)

    unit = _unit(manager)
    changed = care.install(unit)
    if as_json:
        fields = {"path": str(unit.path), "changed": changed}
        screen.put_json({**fields, "enable": list(unit.enable), "disable": list(unit.disable)})
        return
    screen.put(f"{'Written' if changed else 'Already there'}: {unit.path}")
    screen.put("Stop what runs now (fencepost down). Then:\n  " + "\n  ".join(unit.enable))
    screen.put("To undo: " + " && ".join((*unit.disable, f"rm {shlex.quote(str(unit.path))}")))
