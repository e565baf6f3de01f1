"""The words of file reservations as values. Ids are 16 bytes."""

from __future__ import annotations

import enum
from typing import Final

from fencepost_kit.values import value

# Paths, globs and ids of one request, together (T096).
PATHS_MAX: Final = 100
RESERVED_PATH_BYTES_MAX: Final = 4096
# Parts of one path: as many look-ups a check of it may take.
PATH_PARTS_MAX: Final = 64
DURATION_S_DEFAULT: Final = 300
DURATION_S_MAX: Final = 3600
RESERVATION_REASON_BYTES_MAX: Final = 1024
CHECKOUT_BYTES_MAX: Final = 4096
# Live paths and globs of one agent.
RESERVED_OF_ONE_AGENT_MAX: Final = 1000
CONFLICTS_LISTED_MAX: Final = 20
RESERVATIONS_LISTED_DEFAULT: Final = 50
RESERVATIONS_LISTED_MAX: Final = 200
RESERVATIONS_PAGE_BYTES_MAX: Final = 524_288
# Expired rows that one transaction removes.
EXPIRED_RESERVATIONS_MAX: Final = 500
ROOT: Final = "."


class Mode(enum.IntEnum):
    """Who else may reserve the same. Values are stored."""

    EXCLUSIVE = 1
    SHARED = 2


@value(frozen=True, kw_only=True, slots=True)
class Scope:
    """Where paths count: everywhere in the project where checkout is empty."""

    checkout: str = ""
    ignore_case: bool = False


@value(frozen=True, kw_only=True, slots=True)
class Span:
    """A path or glob that is asked about or held."""

    path: str
    glob: bool = False


@value(frozen=True, kw_only=True, slots=True)
class Reserved:
    """One path or glob that an agent holds. `leading` is where it is filed: see domain.files.paths."""

    reservation_id: bytes
    place: int
    project_id: bytes
    leading: str
    holder: bytes
    generation: int
    attempt_id: bytes | None
    mode: Mode
    scope: Scope
    span: Span
    reserved_at_ms: int
    expires_at_ms: int
    reason: str


@value(frozen=True, kw_only=True, slots=True)
class Conflict:
    """What was asked about, and what somebody else holds of it."""

    asked: Span
    held: Reserved


@value(frozen=True, kw_only=True, slots=True)
class Conflicts:
    """What stands in the way, the first CONFLICTS_LISTED_MAX of it."""

    listed: tuple[Conflict, ...]
    more: bool


NO_CONFLICTS: Final = Conflicts(listed=(), more=False)
