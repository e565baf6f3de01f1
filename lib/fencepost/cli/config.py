"""`fencepost config show`: every setting, its value, and where that comes from."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Annotated

import typer

from fencepost.cli import screen
from fencepost.cli.options import AsJson
from fencepost.cli.screen import Column
from fencepost.errors import Refused
from fencepost.home import Home

configuration = typer.Typer(help="Show the settings of the services.", no_args_is_help=True)


@configuration.callback()
def _group() -> None:
    """Show the settings of the services."""


@configuration.command("show")
def show(
    *,
    service: Annotated[str | None, typer.Option(metavar="NAME", help="Only this service's; up is the compose.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show every setting of every service as it would be read now, and where its value comes from."""
    from fencepost.up import configured  # noqa: PLC0415 (what only looks or sends loads no supervisor)

    home = Home.from_environment()
    found = configured.settings_of(home, os.environ)
    known = list(dict.fromkeys(setting.service for setting in found))
    if service is not None and service not in known:
        raise Refused("unknown_service", f"there is no service {service!r}", hint=f"Known are: {', '.join(known)}.")
    wanted = [setting for setting in found if service in (None, setting.service)]
    if as_json:
        fields = {"home": home.text, "file": str(home.settings), "file_exists": home.settings.exists()}
        screen.put_json({**fields, "settings": [asdict(setting) for setting in wanted]})
        return
    columns = [Column(title="SERVICE"), Column(title="SETTING"), Column(title="VALUE"), Column(title="FROM")]
    columns.append(Column(title="ABOUT", text=True))
    rows = [[item.service, item.name, _written(item.value), item.source, item.about.rstrip(".")] for item in wanted]
    screen.put(f"{home.settings}: {'read' if home.settings.exists() else 'not there; defaults hold'}\n")
    screen.put(screen.table(columns, rows))


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if value != "" else '""'
