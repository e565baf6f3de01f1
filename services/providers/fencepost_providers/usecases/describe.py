"""Describe."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost_providers.store.protocol import Dispatcher
from fencepost_providers.usecases.ports import Ports


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """What there is to say of the running service."""

    version: str
    schema_version: int
    dispatcher: Dispatcher
    outbox: int
    swept: int


async def describe(ports: Ports) -> Description:
    """Return the description."""
    return Description(
        version=ports.version,
        schema_version=ports.store.schema_version,
        dispatcher=ports.store.dispatcher,
        outbox=len(ports.outbox),
        swept=ports.roster.swept,
    )
