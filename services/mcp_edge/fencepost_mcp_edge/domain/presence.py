"""What can honestly be said of an agent: what was observed of its runtime; else when it last read its mailbox."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Status(enum.Enum):
    """An agent's status, in the words of list_agents."""

    WAITING = "waiting"
    SEEN = "seen"
    NEVER_SEEN = "never_seen"
    OFF = "off"
    UNKNOWN = "unknown"
    STARTING = "starting"
    IDLE = "idle"
    PROCESSING = "processing"
    ACTION_NEEDED = "action_needed"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """What was observed of an agent's runtime, with its age."""

    status: Status
    detail: str
    # Unix milliseconds.
    at_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What the mailbox knows of one agent's reading."""

    waiting: bool
    off: bool
    # Unix milliseconds; 0 for never.
    last_read_at_ms: int
    # Whether it executes a task, as far as its mailbox knows.
    executing: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Presence:
    """A status and what it rests on."""

    status: Status
    evidence: str


def presence_of(reading: Reading | None, *, now_ms: int, observed: Observation | None = None) -> Presence:
    """Return what is known of an agent: its observed runtime first, then its reading; None where none could be had."""
    if observed is not None:
        detail = f": {observed.detail}" if observed.detail else ""
        return Presence(
            status=observed.status,
            evidence=f"observed {age_text(now_ms - observed.at_ms)} ago{detail}",
        )
    if reading is None:
        return Presence(status=Status.UNKNOWN, evidence="what its mailbox knows could not be learned")
    if reading.off:
        return Presence(status=Status.OFF, evidence="a person has switched it off")
    if reading.waiting:
        return Presence(status=Status.WAITING, evidence="waits for its mailbox now")
    if reading.last_read_at_ms <= 0:
        return Presence(status=Status.NEVER_SEEN, evidence="has never read its mailbox")
    age = age_text(now_ms - reading.last_read_at_ms)
    return Presence(status=Status.SEEN, evidence=f"last read its mailbox {age} ago; it does not wait now")


def age_text(age_ms: int) -> str:
    """Return an age in words: the greatest unit that fits, rounded down. A clock that went back counts as 0."""
    seconds = max(0, age_ms) // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
