"""CheckFiles and ListReservations: committed state, and nothing written (T102)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fencepost_kit.identity import Caller, Role
from fencepost_kit.values import value
from fencepost_mailbox.domain.files.paths import check_path, overlap
from fencepost_mailbox.domain.files.refusals import InvalidReservation
from fencepost_mailbox.domain.files.reserving import barring, check_scope, page_size, spans_of
from fencepost_mailbox.domain.files.values import (
    RESERVATIONS_PAGE_BYTES_MAX,
    RESERVED_OF_ONE_AGENT_MAX,
    Conflicts,
    Reserved,
    Scope,
    Span,
)
from fencepost_mailbox.domain.refusals import InvalidCursor
from fencepost_mailbox.usecases.ports import Ports
from fencepost_mailbox.usecases.tasks.callers import actor_of

# Of a reservation in a page, besides its texts.
_FRAME_BYTES: Final = 512
_FROM_THE_FIRST: Final = ("", b"", -1)
_ID_DIGITS: Final = 32
_PLACE_DIGITS_MAX: Final = 3

Place = tuple[str, bytes, int]


@value(frozen=True, kw_only=True, slots=True)
class Checked:
    """What bars the caller from writing, and when that was true."""

    conflicts: Conflicts
    at_ms: int


@value(frozen=True, kw_only=True, slots=True)
class ReservationPage:
    """A page of reservations; `next_token` is empty on the last."""

    reservations: Sequence[Reserved]
    next_token: str


def place_of(one: Reserved) -> Place:
    """Return the place of a reservation in a listing."""
    return one.leading, one.reservation_id, one.place


def token_of(one: Reserved) -> str:
    """Return the token of the page behind a reservation."""
    return f"{one.reservation_id.hex()}.{one.place}.{one.leading}"


def place_named(token: str) -> Place:
    """Return the place that a page token stands for.

    Raises:
        InvalidCursor: it is malformed.
    """
    if not token:
        return _FROM_THE_FIRST
    digits, _, rest = token.partition(".")
    number, dot, folder = rest.partition(".")
    try:
        reservation_id = bytes.fromhex(digits)
    except ValueError:
        reservation_id = b""
    whole = len(digits) == _ID_DIGITS and reservation_id.hex() == digits and bool(dot)
    if not whole or not number.isascii() or not number.isdigit() or len(number) > _PLACE_DIGITS_MAX:
        raise InvalidCursor(
            "the page token is malformed; nothing was read", hint="Begin the listing again without one."
        )
    return folder, reservation_id, int(number)


class LookAtFiles:
    """CheckFiles and ListReservations. DirectoryStale where an operator's authority cannot be checked now."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def _project(self, caller: Caller, named: bytes | None) -> bytes:
        actor = actor_of(self._ports, caller)
        if actor.role is Role.OPERATOR and named is None:
            raise InvalidReservation(
                "project_id must be given by the operator; nothing was read", state={"field": "project_id"}
            )
        if actor.role is not Role.OPERATOR and named not in (None, actor.project_id):
            raise InvalidReservation(
                "project_id must be your own, or empty; nothing was read", state={"field": "project_id"}
            )
        project_id = actor.project_id if actor.project_id is not None else named
        assert project_id is not None, "an agent has a project"
        return project_id

    async def check(
        self, caller: Caller, project_id: bytes | None, paths: Sequence[str], globs: Sequence[str], scope: Scope
    ) -> Checked:
        """Return what bars the caller from writing to files now.

        Raises:
            InvalidPath, InvalidReservation: a field breaks its rule.
        """
        project = self._project(caller, project_id)
        spans, now_ms = spans_of(paths, globs), self._ports.clock.now_ms()
        check_scope(scope)
        queries = self._ports.store.read
        with queries.snapshot():
            held = queries.files.near(project, spans, now_ms)
        return Checked(conflicts=barring(spans, held, writer=caller.agent_id, scope=scope), at_ms=now_ms)

    async def list_reservations(
        self, caller: Caller, project_id: bytes | None, *, path: str, holder: str, size: int, token: str
    ) -> ReservationPage:
        """Return a page of what is held.

        Raises:
            InvalidPath, InvalidReservation, InvalidCursor: the page asked for does not exist.
            InvalidTarget, NotFound, DependencyDown: the holder's name cannot be resolved.
        """
        project, limit, after = self._project(caller, project_id), page_size(size), place_named(token)
        span = Span(path=check_path(path)) if path else None
        agent = (await self._ports.directory.resolve(project, holder)).agent_id if holder else None
        found = self._found(project, span, agent, after, limit + 1)
        page: list[Reserved] = []
        room = RESERVATIONS_PAGE_BYTES_MAX
        for one in found[:limit]:
            room -= _FRAME_BYTES + sum(len(text.encode()) for text in (one.span.path, one.reason, one.scope.checkout))
            if page and room < 0:
                break
            page.append(one)
        return ReservationPage(reservations=page, next_token=token_of(page[-1]) if len(found) > len(page) else "")

    def _found(
        self, project: bytes, span: Span | None, agent: bytes | None, after: Place, limit: int
    ) -> list[Reserved]:
        queries, now_ms = self._ports.store.read, self._ports.clock.now_ms()
        if span is None and agent is None:
            return queries.files.listed(project, after, limit, now_ms)
        with queries.snapshot():
            if agent is not None:
                held = queries.files.held_by(agent, (b"", -1), RESERVED_OF_ONE_AGENT_MAX, now_ms)
            else:
                assert span is not None
                held = queries.files.near(project, (span,), now_ms)
        wanted = [
            one
            for one in held
            if place_of(one) > after
            and agent in (None, one.holder)
            and (span is None or overlap(span, one.span, ignore_case=one.scope.ignore_case))
        ]
        return sorted(wanted, key=place_of)[:limit]
