"""ReleaseLease: the end of an acquisition, and of no other."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fencepost_kit import logs
from fencepost_sessions.domain.identifiers import uuid_bytes, uuid_text
from fencepost_sessions.domain.leases import Lease, LeaseEnd, Moment, stands
from fencepost_sessions.domain.roles import Caller
from fencepost_sessions.store.protocol import Writing
from fencepost_sessions.usecases.ports import Ports
from fencepost_sessions.usecases.under_lease import check_carrier

_log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Releasing:
    acquisition_id: bytes
    moment: Moment

    def apply(self, tx: Writing, /) -> Lease | None:
        # Who is told that it had ended before is told for ever.
        tx.end_leases_until(self.moment.running_ms)
        lease = tx.lease_of_acquisition(self.acquisition_id)
        if lease is None or not stands(lease, self.moment):
            return None
        tx.put_lease(lease, replace(lease, end=LeaseEnd.RELEASED))
        return lease


async def release_lease(ports: Ports, caller: Caller, *, acquisition_id: str) -> bool:
    """End a lease, durably; tell whether it stood until now. One that is not known had ended before.

    Raises:
        PermissionDenied (another service), Malformed.
    """
    check_carrier(caller)
    wanted = uuid_bytes(acquisition_id, what="acquisition_id")
    ended = await ports.store.commit(_Releasing(acquisition_id=wanted, moment=ports.lease_time.moment()))
    if ended is not None:
        _log.info("lease_released", agent_id=uuid_text(ended.agent_id), fence=ended.fence)
    return ended is not None
