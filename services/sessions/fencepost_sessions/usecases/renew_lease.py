"""RenewLease: the acquisition that stands puts its expiry off; nothing brings one back that does not stand."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost_sessions.domain.identifiers import uuid_bytes
from fencepost_sessions.domain.leases import Lease, LeaseKind, Moment, held, lease_kind, renewed
from fencepost_sessions.domain.roles import Caller
from fencepost_sessions.store.protocol import Writing
from fencepost_sessions.usecases.ports import Ports
from fencepost_sessions.usecases.under_lease import check_carrier, or_lost_for_ever


@dataclass(frozen=True, kw_only=True, slots=True)
class _Renewing:
    acquisition_id: bytes
    kind: LeaseKind | None
    moment: Moment

    def apply(self, tx: Writing, /) -> Lease:
        before = held(tx.lease_of_acquisition(self.acquisition_id), self.acquisition_id, self.moment)
        after = renewed(before, self.kind, self.moment)
        tx.put_lease(before, after)
        return after


async def renew_lease(ports: Ports, caller: Caller, *, acquisition_id: str, kind: int) -> tuple[Lease, Moment]:
    """Return the lease with a whole term before it; kind 0 leaves its kind.

    Raises:
        PermissionDenied (another service), Malformed, InvalidLease (no such kind), LeaseLost: nothing was renewed.
    """
    check_carrier(caller)
    moment = ports.lease_time.moment()
    renewing = _Renewing(
        acquisition_id=uuid_bytes(acquisition_id, what="acquisition_id"),
        kind=lease_kind(kind) if kind else None,
        moment=moment,
    )
    return await or_lost_for_ever(ports, moment.running_ms, ports.store.commit(renewing)), moment
