"""Exit codes: what a script may rely on."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fencepost.errors import FencepostError, Uncertain

OK: Final = 0
FAILED: Final = 1
NOT_FOUND: Final = 2
NO_IDENTITY: Final = 3
NO_DATABASE: Final = 4
AMBIGUOUS: Final = 5
NOT_RUNNING: Final = 6
# Nobody knows what became of the call, or no answer came in time. Distinct from NOT_RUNNING, which proves that nothing
# was done: a caller that mistakes one for the other sends twice.
TIMED_OUT: Final = 7
# Somebody else holds a file. An answer and no error: nothing was refused but the wish.
HELD: Final = 8
INTERRUPTED: Final = 130

_CODES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "not_found": NOT_FOUND,
        "missing_managed_sender": NO_IDENTITY,
        "identity_disagreement": NO_IDENTITY,
        "invalid_session_id": NO_IDENTITY,
        "invalid_generation": NO_IDENTITY,
        "stale_generation": NO_IDENTITY,
        "credential_missing": NO_IDENTITY,
        "credential_unreadable": NO_IDENTITY,
        "credential_unsafe": NO_IDENTITY,
        "credential_malformed": NO_IDENTITY,
        "unauthenticated": NO_IDENTITY,
        "permission_denied": NO_IDENTITY,
        "storage_error": NO_DATABASE,
        "ambiguous_target": AMBIGUOUS,
        "not_running": NOT_RUNNING,
        "unreachable": NOT_RUNNING,
        "draining": NOT_RUNNING,
        "dependency_unavailable": NOT_RUNNING,
        "deadline_exceeded": TIMED_OUT,
    }
)


def exit_code(error: FencepostError) -> int:
    """Return the exit code of an error: by its type where the outcome is unknown, else by its reason."""
    if isinstance(error, Uncertain):
        return TIMED_OUT
    return _CODES.get(error.reason, FAILED)
