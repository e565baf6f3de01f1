"""What was observed of an agent's runtime: a report has an order, an age and something that it rests on.

A report speaks for its own life only. It is kept as it came; what is *shown* never claims that something still runs
which nobody vouches for any more: see seen().
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

from fencepost_sessions.domain.leases import Lease, LeaseEnd, Moment, stands
from fencepost_sessions.domain.limits import ROW_FRAME_BYTES, STATUS_DETAIL_BYTES_MAX, TURN_BYTES_MAX
from fencepost_sessions.domain.refusals import InvalidStatus, StaleStatus
from fencepost_sessions.domain.texts import bytes_of, word_flaw


class Observed(enum.IntEnum):
    """What was observed; the numbers are stored, and those of fencepost.sessions.v1.ObservedState."""

    OFF = 1
    STARTING = 2
    IDLE = 3
    PROCESSING = 4
    ACTION_NEEDED = 5
    ERROR = 6


class Evidence(enum.IntEnum):
    """What a report rests on; the numbers are stored, and those of fencepost.sessions.v1.EvidenceKind."""

    PROVIDER_EVENT = 1
    PROVIDER_ANSWER = 2
    PROCESS = 3
    OPERATOR = 4


# A runtime runs. The others are also said of a life that has ended.
RUNNING: Final = frozenset({Observed.STARTING, Observed.IDLE, Observed.PROCESSING, Observed.ACTION_NEEDED})


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """One report. `acquisition_id` is the lease under which it was made, empty for none."""

    state: Observed
    evidence: Evidence
    detail: str
    turn_id: str
    observed_at_ms: int
    generation: int
    sequence: int
    acquisition_id: bytes = b""


def status_bytes(status: Status | None) -> int:
    """Return at least the bytes that a status takes in a message."""
    return 0 if status is None else ROW_FRAME_BYTES + bytes_of(status.detail) + bytes_of(status.turn_id)


def reported(
    *, state: int, evidence: int, detail: str, turn_id: str, observed_at_ms: int, generation: int, sequence: int
) -> Status:
    """Return a report that is valid by itself.

    Raises:
        InvalidStatus: no state or evidence, no time, no generation, no sequence, or a text over its limit.
    """
    flaw = None
    if state not in set(Observed):
        flaw = "has no state that this version knows"
    elif evidence not in set(Evidence):
        flaw = "does not say what it rests on"
    elif bytes_of(detail) > STATUS_DETAIL_BYTES_MAX:
        flaw = f"has a detail of more than {STATUS_DETAIL_BYTES_MAX} bytes"
    elif turn_id and (wrong := word_flaw(turn_id, TURN_BYTES_MAX)) is not None:
        flaw = f"names a turn that {wrong}"
    elif min(observed_at_ms, generation, sequence) < 1:
        flaw = "lacks the time of the observation, its generation or its sequence"
    if flaw is not None:
        raise InvalidStatus(
            f"the report {flaw}; nothing was written", hint="Report what was observed, when, and by what evidence."
        )
    return Status(
        state=Observed(state),
        evidence=Evidence(evidence),
        detail=detail,
        turn_id=turn_id,
        observed_at_ms=observed_at_ms,
        generation=generation,
        sequence=sequence,
    )


def is_same_report(stored: Status | None, report: Status) -> bool:
    """Tell whether a report stands already, whoever brought it."""
    return stored is not None and replace(stored, acquisition_id=report.acquisition_id) == report


def check_newer(stored: Status | None, report: Status) -> None:
    """Let a report take the place of what stands.

    Raises:
        StaleStatus: what stands is of a later life, or has the same or a later number in this one.
    """
    if stored is not None and (report.generation, report.sequence) <= (stored.generation, stored.sequence):
        raise StaleStatus(
            f"report {stored.sequence} of generation {stored.generation} stands, which is not older than report "
            f"{report.sequence} of generation {report.generation}; nothing was written",
            hint="Drop this report; number the next one after the one that stands.",
            state={
                "generation": str(stored.generation),
                "sequence": str(stored.sequence),
                "state": stored.state.name.lower(),
                "observed_at_ms": str(stored.observed_at_ms),
            },
        )


def seen(status: Status | None, lease: Lease | None, moment: Moment) -> Status | None:
    """Return what is shown of a report while `lease` is the agent's last lease.

    A running state is shown as it is only under the standing lease that it was reported under. Where that lease was
    released, whoever held it has joined its runtime: off. Where it expired, or another one took its place, nobody
    knows: error, with a detail that says what was seen last. The time of the observation, and what it rested on, stay.
    """
    if status is None or status.state not in RUNNING:
        return status
    same = lease is not None and lease.acquisition_id == status.acquisition_id
    if same and stands(lease, moment):
        return status
    last = status.state.name.lower().replace("_", " ")
    age_s = max(moment.unix_ms - status.observed_at_ms, 0) // 1000
    if same and lease is not None and lease.end is LeaseEnd.RELEASED:
        return replace(
            status,
            state=Observed.OFF,
            turn_id="",
            detail=f"Its runtime was let go without a last word; {age_s} s ago it was {last}.",
        )
    return replace(
        status,
        state=Observed.ERROR,
        turn_id="",
        detail=f"Lost from sight: the lease of its runtime was not renewed; {age_s} s ago it was {last}. Whether it "
        "still runs is not known.",
    )
