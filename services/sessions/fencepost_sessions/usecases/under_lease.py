"""What the calls about leases have in common: who may make them, and that a loss which was told is a loss for ever."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final, TypeVar

from fencepost_kit import faults
from fencepost_kit.refusal import PermissionDenied
from fencepost_sessions.domain.identifiers import uuid_bytes
from fencepost_sessions.domain.refusals import LeaseLost
from fencepost_sessions.domain.roles import Caller, Role
from fencepost_sessions.store.protocol import Writing
from fencepost_sessions.usecases.ports import Ports

# The one service that runs agents' programs.
CARRIER: Final = "providers"

LOSS_UNTOLD: Final = faults.register(
    "sessions.lease.lost", "the end of an expired lease is durable, its holder not told"
)

T = TypeVar("T")


def check_carrier(caller: Caller) -> None:
    """Let the service that runs programs speak of what it runs, and the operator, where the call is open to it.

    Raises:
        PermissionDenied: another service.
    """
    if caller.role is Role.SERVICE and caller.label != CARRIER:
        raise PermissionDenied(
            "only the service that runs agents' programs holds leases and reports on them; nothing was written",
            state={"label": caller.label},
        )


def optional_acquisition(text: str) -> bytes | None:
    """Return the acquisition that is named; None for an empty text.

    Raises:
        Malformed: not a UUID.
    """
    return uuid_bytes(text, what="acquisition_id") if text else None


@dataclass(frozen=True, kw_only=True, slots=True)
class EndingExpired:
    """Makes it durable that leases have expired: a start of the service gives none of them a term again."""

    running_ms: int

    def apply(self, tx: Writing, /) -> int:
        """End them; return how many."""
        return tx.end_leases_until(self.running_ms)


async def or_lost_for_ever(ports: Ports, running_ms: int, work: Awaitable[T]) -> T:
    """Return what `work` returns; where it ends in LeaseLost, see to it first that no later start revives that lease.

    Raises:
        Whatever `work` raises.
    """
    try:
        return await work
    except LeaseLost:
        await ports.store.commit(EndingExpired(running_ms=running_ms))
        if faults.ARMED:
            faults.hit(LOSS_UNTOLD)
        raise
