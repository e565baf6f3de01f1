"""ReserveFiles, RenewFiles and ReleaseFiles: one immediate transaction decides and writes (T096 to T101)."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost_kit.identity import Caller, Role
from fencepost_kit.ids import uuid_text
from fencepost_kit.values import value
from fencepost_mailbox.domain.files.paths import leading
from fencepost_mailbox.domain.files.refusals import InvalidReservation
from fencepost_mailbox.domain.files.reserving import (
    blocking,
    check_reason,
    check_room,
    check_scope,
    duration_ms,
    lost,
    spans_of,
)
from fencepost_mailbox.domain.files.values import (
    EXPIRED_RESERVATIONS_MAX,
    NO_CONFLICTS,
    PATHS_MAX,
    RESERVED_OF_ONE_AGENT_MAX,
    Conflicts,
    Mode,
    Reserved,
    Scope,
    Span,
)
from fencepost_mailbox.domain.tasks.refusals import StaleAttempt
from fencepost_mailbox.domain.tasks.values import Certainty
from fencepost_mailbox.domain.values import Operation
from fencepost_mailbox.store.protocol import Applied, Transaction
from fencepost_mailbox.usecases.ports import Ports, agent_of
from fencepost_mailbox.usecases.requests import keep_result, known_result, packed, unpacked
from fencepost_mailbox.usecases.tasks.callers import Actor, actor_of, content_of

_ID_BYTES = 16
_FROM_THE_FIRST = (b"", -1)


@value(frozen=True, kw_only=True, slots=True)
class Reserve:
    """A call as it was made; see files.proto."""

    paths: tuple[str, ...]
    globs: tuple[str, ...]
    scope: Scope
    mode: Mode
    duration_seconds: int
    reason: str
    attempt_id: bytes | None
    request_id: bytes


@value(frozen=True, kw_only=True, slots=True)
class Renew:
    """A call as it was made; see files.proto."""

    reservation_ids: tuple[bytes, ...]
    paths: tuple[str, ...]
    globs: tuple[str, ...]
    duration_seconds: int
    request_id: bytes


@value(frozen=True, kw_only=True, slots=True)
class Release:
    """A call as it was made; see files.proto."""

    reservation_ids: tuple[bytes, ...]
    paths: tuple[str, ...]
    globs: tuple[str, ...]
    everything: bool
    holder: bytes | None
    request_id: bytes


@value(frozen=True, kw_only=True, slots=True)
class Answer:
    """What came of a reservation: an id and an expiry, or what stands in the way."""

    reservation_id: bytes | None = None
    expires_at_ms: int = 0
    conflicts: Conflicts = NO_CONFLICTS
    duplicate: bool = False
    lapsed: bool = False


@value(frozen=True, kw_only=True, slots=True)
class Renewed:
    """How many paths were renewed, and when the first of them expires."""

    count: int
    expires_at_ms: int
    duplicate: bool


@value(frozen=True, kw_only=True, slots=True)
class Released:
    """How many paths were given up."""

    count: int
    duplicate: bool


@value(frozen=True, kw_only=True, slots=True)
class Reserving:
    """The writing part of a reservation."""

    actor: Actor
    holder: bytes
    project_id: bytes
    command: Reserve
    spans: tuple[Span, ...]
    content: bytes
    reservation_id: bytes
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[Answer]:
        """Reserve everything, or nothing and say what stands in the way; or answer what the request id stands for.

        An answer of no is not kept under the request id: nothing was written, and the same call may be made again.

        Raises:
            AgentDeleted, StaleGeneration, RequestConflict, StaleAttempt, ReservationLimit: nothing is written.
        """
        command = self.command
        woken = self.actor.fence(tx, self.now_ms)
        known = known_result(
            tx,
            scope=self.actor.scope,
            operation=Operation.FILES,
            request_id=command.request_id,
            content=self.content,
        )
        if known is not None:
            return Applied(value=self._again(tx, known), wakes=woken, work=woken)
        self._check_attempt(tx)
        conflicts = blocking(
            self.spans,
            tx.files.near(self.project_id, self.spans, self.now_ms),
            holder=self.holder,
            mode=command.mode,
            scope=command.scope,
        )
        if conflicts.listed:
            return Applied(value=Answer(conflicts=conflicts), wakes=woken, work=woken)
        check_room(tx.files.held_count(self.holder, self.now_ms), len(self.spans))
        expires_at_ms = self.now_ms + duration_ms(command.duration_seconds)
        tx.files.insert([self._row(place, span, expires_at_ms) for place, span in enumerate(self.spans)])
        keep_result(
            tx,
            scope=self.actor.scope,
            operation=Operation.FILES,
            request_id=command.request_id,
            content=self.content,
            result=self.reservation_id + packed(expires_at_ms),
            now_ms=self.now_ms,
        )
        answer = Answer(reservation_id=self.reservation_id, expires_at_ms=expires_at_ms)
        return Applied(value=answer, wakes=woken, work=woken)

    def _again(self, tx: Transaction, known: bytes) -> Answer:
        reservation_id, (expires_at_ms,) = known[:_ID_BYTES], unpacked(known[_ID_BYTES:])
        left = tx.files.of_reservation(reservation_id, self.now_ms)
        return Answer(
            reservation_id=reservation_id,
            expires_at_ms=min((one.expires_at_ms for one in left), default=expires_at_ms),
            duplicate=True,
            lapsed=len(left) < len(self.spans),
        )

    def _check_attempt(self, tx: Transaction) -> None:
        """Let a reservation go on that is bound to nothing, or to an attempt that this life of the caller runs."""
        if self.command.attempt_id is None:
            return
        attempt = tx.tasks.attempt(self.command.attempt_id)
        runs = (
            attempt is not None
            and attempt.agent == self.holder
            and attempt.generation == self.actor.generation
            and attempt.certainty is Certainty.ACTIVE
        )
        if not runs:
            raise StaleAttempt(
                "you do not run this attempt, or not any more; nothing was written",
                hint="Bind the reservation to the attempt that you run, or to none.",
                state={"attempt_id": uuid_text(self.command.attempt_id)},
            )

    def _row(self, place: int, span: Span, expires_at_ms: int) -> Reserved:
        command = self.command
        return Reserved(
            reservation_id=self.reservation_id,
            place=place,
            project_id=self.project_id,
            leading=leading(span),
            holder=self.holder,
            generation=self.actor.generation,
            attempt_id=command.attempt_id,
            mode=command.mode,
            scope=command.scope,
            span=span,
            reserved_at_ms=self.now_ms,
            expires_at_ms=expires_at_ms,
            reason=command.reason,
        )


def named_of(
    tx: Transaction, holder: bytes | None, ids: Sequence[bytes], spans: Sequence[Span], now_ms: int
) -> tuple[list[Reserved], list[str]]:
    """Return what a call names of what is held, each once, and what it names that is not; any holder's without one."""
    found: dict[tuple[bytes, int], Reserved] = {}
    absent = []
    for reservation_id in ids:
        rows = [one for one in tx.files.of_reservation(reservation_id, now_ms) if holder in (None, one.holder)]
        found |= {(one.reservation_id, one.place): one for one in rows}
        absent += [uuid_text(reservation_id)] if not rows else []
    held = tx.files.held_by(holder, _FROM_THE_FIRST, RESERVED_OF_ONE_AGENT_MAX, now_ms) if holder and spans else []
    for span in spans:
        rows = [one for one in held if one.span == span]
        found |= {(one.reservation_id, one.place): one for one in rows}
        absent += [span.path] if not rows else []
    return list(found.values()), absent


@value(frozen=True, kw_only=True, slots=True)
class Renewing:
    """The writing part of a renewal."""

    actor: Actor
    holder: bytes
    command: Renew
    spans: tuple[Span, ...]
    content: bytes
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[Renewed]:
        """Put the expiry of everything named off, or of nothing; or answer what the request id stands for.

        Raises:
            AgentDeleted, StaleGeneration, RequestConflict, ReservationLost: nothing is written.
        """
        command, scope = self.command, self.actor.scope
        woken = self.actor.fence(tx, self.now_ms)
        known = known_result(
            tx, scope=scope, operation=Operation.FILES, request_id=command.request_id, content=self.content
        )
        if known is not None:
            count, expires_at_ms = unpacked(known)
            again = Renewed(count=count, expires_at_ms=expires_at_ms, duplicate=True)
            return Applied(value=again, wakes=woken, work=woken)
        held, absent = named_of(tx, self.holder, command.reservation_ids, self.spans, self.now_ms)
        if absent:
            raise lost(absent[0])
        until_ms = self.now_ms + duration_ms(command.duration_seconds)
        for one in held:
            if one.expires_at_ms < until_ms:
                tx.files.set_expiry(one, until_ms)
        first_ms = min(max(one.expires_at_ms, until_ms) for one in held)
        keep_result(
            tx,
            scope=scope,
            operation=Operation.FILES,
            request_id=command.request_id,
            content=self.content,
            result=packed(len(held), first_ms),
            now_ms=self.now_ms,
        )
        renewed = Renewed(count=len(held), expires_at_ms=first_ms, duplicate=False)
        return Applied(value=renewed, wakes=woken, work=woken)


@value(frozen=True, kw_only=True, slots=True)
class Releasing:
    """The writing part of a release. Without a holder: anybody's, by the operator's word."""

    actor: Actor
    holder: bytes | None
    command: Release
    spans: tuple[Span, ...]
    content: bytes
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[Released]:
        """Remove what is named of what is held; or answer what the request id stands for.

        Raises:
            AgentDeleted, StaleGeneration, RequestConflict: nothing is written.
        """
        command, scope = self.command, self.actor.scope
        woken = self.actor.fence(tx, self.now_ms)
        known = known_result(
            tx, scope=scope, operation=Operation.FILES, request_id=command.request_id, content=self.content
        )
        if known is not None:
            again = Released(count=unpacked(known)[0], duplicate=True)
            return Applied(value=again, wakes=woken, work=woken)
        if command.everything and self.holder is not None:
            count = tx.files.drop_of_holder(self.holder)
        else:
            held, _ = named_of(tx, self.holder, command.reservation_ids, self.spans, self.now_ms)
            count = tx.files.drop(held)
        keep_result(
            tx,
            scope=scope,
            operation=Operation.FILES,
            request_id=command.request_id,
            content=self.content,
            result=packed(count),
            now_ms=self.now_ms,
        )
        return Applied(value=Released(count=count, duplicate=False), wakes=woken, work=woken)


@value(frozen=True, kw_only=True, slots=True)
class DroppingExpired:
    """What has expired counts for nothing; this only removes it."""

    now_ms: int

    def apply(self, tx: Transaction) -> Applied[int]:
        """Remove up to EXPIRED_RESERVATIONS_MAX; return how many there were."""
        return Applied(value=tx.files.drop_expired(self.now_ms, EXPIRED_RESERVATIONS_MAX))


class HoldFiles:
    """ReserveFiles, RenewFiles and ReleaseFiles."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def reserve(self, caller: Caller, command: Reserve) -> Answer:
        """Reserve all paths of a call, or none.

        Raises:
            InvalidPath, InvalidReservation: a field breaks its rule.
            Others: see Reserving.
        """
        holder, project_id = agent_of(caller)
        spans = spans_of(command.paths, command.globs)
        check_scope(command.scope)
        check_reason(command.reason)
        duration_ms(command.duration_seconds)
        return await self._ports.store.submit(
            Reserving(
                actor=actor_of(self._ports, caller),
                holder=holder,
                project_id=project_id,
                command=command,
                spans=spans,
                content=content_of(command),
                reservation_id=self._ports.mint.new(),
                now_ms=self._ports.clock.now_ms(),
            )
        )

    async def renew(self, caller: Caller, command: Renew) -> Renewed:
        """Put the expiry of what the caller holds off.

        Raises:
            InvalidPath, InvalidReservation: a field breaks its rule.
            Others: see Renewing.
        """
        holder, _ = agent_of(caller)
        spans = _named_spans(command.reservation_ids, command.paths, command.globs)
        duration_ms(command.duration_seconds)
        return await self._ports.store.submit(
            Renewing(
                actor=actor_of(self._ports, caller),
                holder=holder,
                command=command,
                spans=spans,
                content=content_of(command),
                now_ms=self._ports.clock.now_ms(),
            )
        )

    async def release(self, caller: Caller, command: Release) -> Released:
        """Give up what the caller holds, or by the operator's word what anybody holds.

        Raises:
            InvalidPath, InvalidReservation: a field breaks its rule.
            DirectoryStale: an operator's authority cannot be checked now.
            Others: see Releasing.
        """
        actor = actor_of(self._ports, caller)
        if actor.role is not Role.OPERATOR and command.holder not in (None, actor.agent_id):
            raise _wrong("holder_id", "is the operator's to give")
        holder = command.holder if actor.role is Role.OPERATOR else actor.agent_id
        if command.everything:
            if command.reservation_ids or command.paths or command.globs:
                raise _wrong("everything", "names all there is, and nothing beside it")
            spans: tuple[Span, ...] = ()
        else:
            spans = _named_spans(command.reservation_ids, command.paths, command.globs)
        if holder is None and (command.everything or spans):
            raise _wrong("holder_id", "must say whose paths are meant")
        return await self._ports.store.submit(
            Releasing(
                actor=actor,
                holder=holder,
                command=command,
                spans=spans,
                content=content_of(command),
                now_ms=self._ports.clock.now_ms(),
            )
        )


def _named_spans(ids: Sequence[bytes], paths: Sequence[str], globs: Sequence[str]) -> tuple[Span, ...]:
    if not paths and not globs and 1 <= len(ids) <= PATHS_MAX:
        return ()
    return spans_of(paths, globs, others=len(ids))


def _wrong(field: str, rule: str) -> InvalidReservation:
    return InvalidReservation(f"{field} {rule}; nothing was written", state={"field": field})
