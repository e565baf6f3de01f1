"""The life of one agent's runtime: phases, events, and what is to be done. Source: M069 M154-M158 R167-R169.

`advance` is the table; nothing else changes a phase. `command` compares what a person wants with what is there.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from fencepost_providers.domain.agents import Desired

RESTART_MS_MIN: Final = 1_000
RESTART_MS_MAX: Final = 60_000
RESTARTS_MAX: Final = 8
STEADY_MS: Final = 60_000


class Phase(enum.IntEnum):
    """Whether a runtime is there; the numbers of fencepost.providers.v1.RuntimeState."""

    OFF = 1
    STARTING = 2
    READY = 3
    STOPPING = 4
    FAILED = 5


class Event(enum.Enum):
    """What happens to a runtime."""

    START = "start"
    STARTED = "started"
    START_FAILED = "start_failed"
    STOP = "stop"
    STOPPED = "stopped"
    ENDED = "ended"
    GIVEN_UP = "given_up"


class IllegalTransition(Exception):
    """The pair of phase and event is not in the table: a bug of the keeper."""


TABLE: Final[Mapping[tuple[Phase, Event], Phase]] = MappingProxyType(
    {
        (Phase.OFF, Event.START): Phase.STARTING,
        (Phase.FAILED, Event.START): Phase.STARTING,
        (Phase.STARTING, Event.STARTED): Phase.READY,
        # It may differ by itself: tried again after a pause.
        (Phase.STARTING, Event.START_FAILED): Phase.OFF,
        # Only a person can change it.
        (Phase.STARTING, Event.GIVEN_UP): Phase.FAILED,
        (Phase.STARTING, Event.STOP): Phase.STOPPING,
        (Phase.READY, Event.STOP): Phase.STOPPING,
        (Phase.STOPPING, Event.STOPPED): Phase.OFF,
        # By itself, or with its lease: joined before anything follows.
        (Phase.READY, Event.ENDED): Phase.STOPPING,
        (Phase.STOPPING, Event.GIVEN_UP): Phase.FAILED,
        (Phase.FAILED, Event.STOP): Phase.OFF,
    }
)


def advance(phase: Phase, event: Event) -> Phase:
    """Return the phase after an event.

    Raises:
        IllegalTransition: it is not in TABLE.
    """
    after = TABLE.get((phase, event))
    if after is None:
        raise IllegalTransition(f"{event.value} in phase {phase.name.lower()}")
    return after


class Command(enum.Enum):
    """What is to be done about the runtime itself."""

    NOTHING = "nothing"
    START = "start"
    STOP = "stop"


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """What is wanted, and what is there. `changed`: the record has changed since the runtime failed."""

    phase: Phase
    desired: Desired
    deleting: bool
    requests: bool
    resting: bool
    changed: bool


def command(now: Standing) -> Command:
    """Return what to do about the runtime."""
    if now.deleting or now.desired is Desired.OFF:
        return Command.STOP if now.phase in {Phase.READY, Phase.FAILED} else Command.NOTHING
    if now.desired is not Desired.ON or now.resting:
        return Command.NOTHING
    if now.phase is Phase.OFF:
        return Command.START
    # What only a person can change is tried again when somebody changed it, or when work asks for a definite answer.
    return Command.START if now.phase is Phase.FAILED and (now.changed or now.requests) else Command.NOTHING


def pause_ms(failures: int) -> int:
    """Return how long to wait before another start after `failures` in a row."""
    if failures <= 0:
        return 0
    return int(min(RESTART_MS_MAX, RESTART_MS_MIN * 2 ** min(failures - 1, 16)))
