"""Describe: what runs here."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost_sessions.domain.directory import Directory
from fencepost_sessions.usecases.ports import Ports


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """Version of the distribution, newest migration, and where the directory stands."""

    version: str
    schema_version: int
    directory: Directory


async def describe(ports: Ports) -> Description:
    """Return what runs here."""
    directory = ports.store.read(lambda reading: reading.directory())
    return Description(version=ports.version, schema_version=ports.store.schema_version, directory=directory)
