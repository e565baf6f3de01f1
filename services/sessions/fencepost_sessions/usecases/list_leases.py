"""ListLeases: who holds what."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost_sessions.domain.identifiers import uuid_bytes
from fencepost_sessions.domain.leases import Lease, Moment, stands
from fencepost_sessions.domain.limits import LEASES_LISTED_MAX
from fencepost_sessions.store.protocol import Reading
from fencepost_sessions.usecases.loading import existing_agent
from fencepost_sessions.usecases.ports import Ports


async def list_leases(ports: Ports, *, agent_id: str) -> tuple[Sequence[Lease], Moment]:
    """Return the leases that stand, oldest first: one agent's, or up to LEASES_LISTED_MAX of all.

    Raises:
        Malformed, NotFound (no such agent).
    """
    wanted = uuid_bytes(agent_id, what="agent_id") if agent_id else None
    moment = ports.lease_time.moment()

    def question(reading: Reading) -> Sequence[Lease]:
        if wanted is None:
            return reading.leases_standing(moment.running_ms, rows=LEASES_LISTED_MAX)
        existing_agent(reading, wanted)
        lease = reading.lease(wanted)
        return [lease] if lease is not None and stands(lease, moment) else []

    return ports.store.read(question), moment
