"""ReportStatus: what was observed of an agent's runtime, by whoever holds it, in its order."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fencepost_sessions.domain.agents import check_generation
from fencepost_sessions.domain.identifiers import uuid_bytes
from fencepost_sessions.domain.leases import Moment, check_free, held
from fencepost_sessions.domain.refusals import InvalidStatus
from fencepost_sessions.domain.roles import Caller
from fencepost_sessions.domain.status import RUNNING, Status, check_newer, is_same_report, reported
from fencepost_sessions.store.protocol import Writing
from fencepost_sessions.usecases.loading import active_agent
from fencepost_sessions.usecases.ports import Ports
from fencepost_sessions.usecases.under_lease import check_carrier, optional_acquisition, or_lost_for_ever


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportStatus:
    """The request as it came."""

    agent_id: str
    acquisition_id: str
    state: int
    evidence: int
    detail: str
    turn_id: str
    observed_at_ms: int
    generation: int
    sequence: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Reporting:
    agent_id: bytes
    acquisition_id: bytes | None
    report: Status
    moment: Moment

    def apply(self, tx: Writing, /) -> bool:
        agent = active_agent(tx, self.agent_id)
        stored = tx.status(self.agent_id)
        if is_same_report(stored, self.report):
            return False
        check_generation(agent, self.report.generation)
        lease = tx.lease(self.agent_id)
        if self.acquisition_id is not None:
            held(lease, self.acquisition_id, self.moment)
        elif lease is not None:
            check_free((lease,), self.moment, hint="Report under the lease that stands, or leave it to its holder.")
        check_newer(stored, self.report)
        tx.put_status(self.agent_id, stored, replace(self.report, acquisition_id=self.acquisition_id or b""))
        return True


async def report_status(ports: Ports, caller: Caller, request: ReportStatus) -> bool:
    """Record a report, durably; tell whether it changed anything: the very same one again does not.

    Raises:
        PermissionDenied (another service), Malformed, NotFound, AgentDeleted, InvalidStatus, StaleGeneration (of
            another life than the present one), LeaseLost, LeaseHeld (without a lease, while somebody has one),
            StaleStatus: nothing was recorded.
    """
    check_carrier(caller)
    report = reported(
        state=request.state,
        evidence=request.evidence,
        detail=request.detail,
        turn_id=request.turn_id,
        observed_at_ms=request.observed_at_ms,
        generation=request.generation,
        sequence=request.sequence,
    )
    acquisition_id = optional_acquisition(request.acquisition_id)
    if acquisition_id is None and report.state in RUNNING:
        raise InvalidStatus(
            "that a runtime runs is said under its lease only; nothing was written",
            hint="Name the acquisition. Without one, only off and error of a life that has ended are taken.",
        )
    moment = ports.lease_time.moment()
    reporting = _Reporting(
        agent_id=uuid_bytes(request.agent_id, what="agent_id"),
        acquisition_id=acquisition_id,
        report=report,
        moment=moment,
    )
    return await or_lost_for_ever(ports, moment.running_ms, ports.store.commit(reporting))
