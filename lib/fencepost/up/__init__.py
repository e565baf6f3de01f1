"""The local compose: keeps the services of one home up.

The one part of `fencepost` that may use fencepost_kit: it runs where the services run.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.home import Home
from fencepost.up.control import StopResult, status, stop
from fencepost.up.report import Overall, Phase, ServiceStatus, Status
from fencepost.up.table import TABLE, Row, check_services

__all__ = [
    "TABLE",
    "Overall",
    "Phase",
    "Row",
    "ServiceStatus",
    "Status",
    "StopResult",
    "check_services",
    "health",
    "run",
    "status",
    "stop",
]


def run(
    home: Home, *, detach: bool = False, services: Sequence[str] | None = None, table: Sequence[Row] = TABLE
) -> int:
    """Start the services of a home and keep them up; return the exit code. See fencepost.up.start.run."""
    # Imported here: looking and stopping need no gRPC.
    from fencepost.up import start  # noqa: PLC0415

    return start.run(home, detach=detach, services=services, table=table)


async def health(home: Home, seen: Status) -> dict[str, str]:
    """Ask each service that a status calls ready how it is now. See fencepost.up.asking.health."""
    from fencepost.up import asking  # noqa: PLC0415

    return await asking.health(home, seen)
