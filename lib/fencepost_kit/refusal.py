"""Refusals: the expected answer "no". Pure: no gRPC, no I/O, so that a domain may raise them.

A refusal promises that nothing was written and that the refused call will write nothing later.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final

STATE_PAIRS_MAX: Final = 16
STATE_PAIR_BYTES_MAX: Final = 256
TEXT_BYTES_MAX: Final = 512


class Refusal(Exception):
    """An expected answer: nothing was written.

    `message` says what happened, `hint` what the caller can do next, `state` safe facts of the present state. None of
    them may hold a body, a secret, or advice to destroy something. What is over the limits is cut where it is sent.
    """

    reason: ClassVar[str] = "refused"
    """Stable snake_case code, the same for as long as the promise of the class stands."""

    may_resend: ClassVar[bool] = False
    """True where sending the very same call again may succeed without any other change."""

    def __init__(self, message: str, *, hint: str = "", state: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message: Final = message
        self.hint: Final = hint
        self.state: Final[Mapping[str, str]] = MappingProxyType(dict(state or {}))


class Malformed(Refusal):
    """The request is not well formed, or over a limit."""

    reason = "invalid_argument"


class Unauthenticated(Refusal):
    """No credential, or one that nobody holds any more."""

    reason = "unauthenticated"


class PermissionDenied(Refusal):
    """The caller is known, and its role or identity does not allow this."""

    reason = "permission_denied"


class Draining(Refusal):
    """The service is stopping and takes no new calls."""

    reason = "draining"
    may_resend = True


class Overloaded(Refusal):
    """A queue with a limit is full."""

    reason = "overloaded"
    may_resend = True


class DependencyDown(Refusal):
    """A service that had to be asked before anything could be written did not answer."""

    reason = "dependency_unavailable"
    may_resend = True


class StartRefused(Refusal):
    """The process must not start here: another owner, an unusable folder, wrong settings. Never on the wire."""

    reason = "start_refused"
