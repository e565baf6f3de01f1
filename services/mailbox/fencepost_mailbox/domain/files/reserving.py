"""What may be asked of reservations, and what stands against what (T096 to T102)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fencepost_mailbox.domain.files.paths import check_glob, check_path, covers, in_common
from fencepost_mailbox.domain.files.refusals import InvalidReservation, ReservationLimit, ReservationLost
from fencepost_mailbox.domain.files.values import (
    CHECKOUT_BYTES_MAX,
    CONFLICTS_LISTED_MAX,
    DURATION_S_DEFAULT,
    DURATION_S_MAX,
    PATHS_MAX,
    RESERVATION_REASON_BYTES_MAX,
    RESERVATIONS_LISTED_DEFAULT,
    RESERVATIONS_LISTED_MAX,
    RESERVED_OF_ONE_AGENT_MAX,
    Conflict,
    Conflicts,
    Mode,
    Reserved,
    Scope,
    Span,
)


def _invalid(field: str, rule: str) -> InvalidReservation:
    return InvalidReservation(f"{field} {rule}; nothing was written", state={"field": field})


def spans_of(paths: Sequence[str], globs: Sequence[str], *, others: int = 0) -> tuple[Span, ...]:
    """Return what paths and globs name, each once; `others` counts what else the request names.

    Raises:
        InvalidReservation: none, or more than PATHS_MAX.
        InvalidPath: one is not canonical.
    """
    if not 1 <= len(paths) + len(globs) + others <= PATHS_MAX:
        raise _invalid("paths", f"and globs are 1 to {PATHS_MAX} together")
    spans = [Span(path=check_path(path)) for path in paths]
    spans += [Span(path=check_glob(glob), glob=True) for glob in globs]
    return tuple(dict.fromkeys(spans))


def check_scope(scope: Scope) -> Scope:
    """Return a scope.

    Raises:
        InvalidReservation: the checkout's name is too long or no Unicode.
    """
    _check_text(scope.checkout, "checkout", CHECKOUT_BYTES_MAX)
    return scope


def check_reason(reason: str) -> str:
    """Return a reason.

    Raises:
        InvalidReservation: it is too long or no Unicode.
    """
    _check_text(reason, "reason", RESERVATION_REASON_BYTES_MAX)
    return reason


def _check_text(text: str, field: str, bytes_max: int) -> None:
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise _invalid(field, "is not valid Unicode text") from None
    if size > bytes_max:
        raise _invalid(field, f"has {size} bytes, at most {bytes_max} fit")


def duration_ms(seconds: int) -> int:
    """Return how long a reservation stands; 0 asks for the default.

    Raises:
        InvalidReservation: outside 1..DURATION_S_MAX.
    """
    if not 0 <= seconds <= DURATION_S_MAX:
        raise _invalid("duration_seconds", f"must be 0 or 1 to {DURATION_S_MAX}")
    return 1000 * (seconds or DURATION_S_DEFAULT)


def page_size(asked: int) -> int:
    """Return how many entries a page has; 0 asks for the default.

    Raises:
        InvalidReservation: outside 1..RESERVATIONS_LISTED_MAX.
    """
    if not 0 <= asked <= RESERVATIONS_LISTED_MAX:
        raise _invalid("page_size", f"must be 0 or 1 to {RESERVATIONS_LISTED_MAX}")
    return asked or RESERVATIONS_LISTED_DEFAULT


def check_room(held: int, wanted: int) -> None:
    """Let an agent go on that holds no more than it may with what it wants.

    Raises:
        ReservationLimit: it would hold more than RESERVED_OF_ONE_AGENT_MAX paths.
    """
    if held + wanted > RESERVED_OF_ONE_AGENT_MAX:
        raise ReservationLimit(
            f"you hold {held} paths, and an agent holds at most {RESERVED_OF_ONE_AGENT_MAX}; nothing was written",
            hint="Release what you have done, or reserve the folder instead of its files.",
            state={"held": str(held), "held_max": str(RESERVED_OF_ONE_AGENT_MAX)},
        )


def blocking(
    asked: Iterable[Span], held: Iterable[Reserved], *, holder: bytes | None, mode: Mode, scope: Scope
) -> Conflicts:
    """Return what of `held` stands against reserving what is asked for, in this mode: others' where either excludes."""
    standing = [one for one in held if one.holder != holder and Mode.EXCLUSIVE in (mode, one.mode)]
    return _listed(Conflict(asked=span, held=one) for span in asked for one in standing if in_common(span, scope, one))


def barring(asked: Iterable[Span], held: Sequence[Reserved], *, writer: bytes | None, scope: Scope) -> Conflicts:
    """Return what of `held` stands against writing to what is asked about.

    That is what others hold exclusively, and what others share where the writer does not hold it itself.
    """
    others = [one for one in held if one.holder != writer]
    own = [one for one in held if one.holder == writer]

    def bars(span: Span, one: Reserved) -> bool:
        if not in_common(span, scope, one):
            return False
        return one.mode is Mode.EXCLUSIVE or not any(
            covers(mine.span, span, ignore_case=scope.ignore_case or mine.scope.ignore_case)
            and in_common(span, scope, mine)
            for mine in own
        )

    return _listed(Conflict(asked=span, held=one) for span in asked for one in others if bars(span, one))


def _listed(conflicts: Iterable[Conflict]) -> Conflicts:
    found: list[Conflict] = []
    for conflict in conflicts:
        if len(found) == CONFLICTS_LISTED_MAX:
            return Conflicts(listed=tuple(found), more=True)
        found.append(conflict)
    return Conflicts(listed=tuple(found), more=False)


def lost(what: str) -> ReservationLost:
    """Return the refusal of a renewal of what the caller does not hold."""
    return ReservationLost(
        "you do not hold what you would renew: it expired, was released, or ended with its attempt or life; "
        "nothing was written",
        hint="Reserve it again: somebody else may hold it now, and may have changed it since.",
        state={"lost": what},
    )
