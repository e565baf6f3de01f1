"""The supervisor's status, in its process, in <home>/run/up.json, and for whoever asks."""

from __future__ import annotations

import enum
import json
from dataclasses import asdict, dataclass
from typing import Any, Final

REPORT_BYTES_MAX: Final = 64 * 1024
VERSION: Final = 1


class Phase(enum.Enum):
    """Where a service stands."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    BACKING_OFF = "backing_off"
    CRASH_LOOP = "crash_loop"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Overall(enum.Enum):
    """Where the whole stands; DEGRADED: it was ready, and a service is down at present."""

    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class ServiceStatus:
    """One service. Times are Unix milliseconds; `pid` and `ready_at_ms` are None where there is none at present."""

    name: str
    phase: Phase
    pid: int | None
    since_ms: int
    ready_at_ms: int | None
    restarts: int
    last_end: str
    log: str


@dataclass(frozen=True, kw_only=True)
class Status:
    """The local services of a home. `running`: a supervisor holds the home's lock at present."""

    running: bool
    pid: int | None
    started_at_ms: int | None
    overall: Overall
    services: tuple[ServiceStatus, ...]
    problem: str

    def to_dict(self) -> dict[str, Any]:
        """Return the status as plain values, as they stand in up.json."""
        plain: dict[str, Any] = {"version": VERSION, **asdict(self)}
        plain["overall"] = self.overall.value
        plain["services"] = [{**asdict(service), "phase": service.phase.value} for service in self.services]
        return plain


NOT_RUNNING: Final = Status(
    running=False, pid=None, started_at_ms=None, overall=Overall.STOPPED, services=(), problem=""
)


def to_json(status: Status) -> bytes:
    """Return the content of up.json."""
    return json.dumps(status.to_dict(), indent=1).encode() + b"\n"


def from_json(raw: bytes) -> Status:
    """Return the status in an up.json.

    Raises:
        ValueError: it is not one of this version.
    """
    try:
        plain = json.loads(raw)
        if plain.pop("version") != VERSION:
            raise ValueError("another version")
        services = tuple(
            ServiceStatus(**{**service, "phase": Phase(service["phase"])}) for service in plain.pop("services")
        )
        return Status(**{**plain, "overall": Overall(plain["overall"]), "services": services})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not a status file") from error
