"""Every setting of every service, as a service that starts now would read it, and where its value comes from."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.errors import Refused
from fencepost.home import Home
from fencepost.up.settings import UP, UpSettings, read
from fencepost.up.table import TABLE, Row
from fencepost_kit.refusal import Refusal
from fencepost_kit.settings import load


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting. `least` and `most` are None where there is no bound."""

    service: str
    name: str
    value: str | int | float | bool
    source: str
    default: str | int | float | bool
    least: float | None
    most: float | None
    about: str


def settings_of(home: Home, env: Mapping[str, str], table: Sequence[Row] = TABLE) -> list[Setting]:
    """Return the settings of the supervisor and of every service of the table that is installed.

    Flags given by hand to a service are not seen here; the compose gives none.

    Raises:
        Refused: as at a start: an unknown key, a value of the wrong type or out of its range; it is named.
    """
    found: list[Setting] = []
    try:
        read(home, table, env)
        found += _settings(UP, UpSettings, home, env)
        for row in table:
            kind = _kind(row)
            if kind is not None:
                found += _settings(row.name, kind, home, env)
    except Refusal as refusal:
        raise Refused(refusal.reason, refusal.message, hint=refusal.hint) from None
    return found


def _kind(row: Row) -> type[Any] | None:
    """Return the one dataclass that a service's settings module defines; None where the service is not installed."""
    try:
        module = importlib.import_module(f"{row.module}.settings")
    except ModuleNotFoundError as error:
        if error.name in (row.module, f"{row.module}.settings"):
            return None
        raise
    (kind,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type) and dataclasses.is_dataclass(value) and value.__module__ == module.__name__
    )
    return kind


def _settings(service: str, kind: type[Any], home: Home, env: Mapping[str, str]) -> Iterator[Setting]:
    loaded = load(kind, service=service, home=home, env=env)
    for field in dataclasses.fields(kind):
        yield Setting(
            service=service,
            name=field.name,
            value=getattr(loaded.value, field.name),
            source=loaded.sources[field.name],
            default=field.default,  # type: ignore[arg-type]  # every setting has one
            least=field.metadata.get("least"),
            most=field.metadata.get("most"),
            about=str(field.metadata.get("about", "")),
        )
