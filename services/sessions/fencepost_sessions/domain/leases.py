"""Leases: who may run an agent's program on its conversation now. At most one stands for an agent or a conversation.

A lease says who should act; the fence and the generation say who may. Its time is `Moment.running_ms`, which counts
only while sessions runs and stands still while the machine sleeps: nobody loses a lease by a clock that was set, by a
night in a closed laptop, or because sessions was away. Every stored lease gets a whole term at a start. Source: M070,
M155; the second finding of the style, a fence is checked in the transaction that writes.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from fencepost_sessions.domain.agents import Agent
from fencepost_sessions.domain.identifiers import uuid_text
from fencepost_sessions.domain.limits import (
    HOLDER_BYTES_MAX,
    LEASE_TERM_MS_DEFAULT,
    LEASE_TERM_MS_MAX,
    LEASE_TERM_MS_MIN,
)
from fencepost_sessions.domain.refusals import InvalidLease, LeaseHeld, LeaseLost
from fencepost_sessions.domain.texts import word_flaw


class LeaseKind(enum.IntEnum):
    """Why somebody holds an agent; the numbers are stored, and those of fencepost.sessions.v1.LeaseKind."""

    INTERACTIVE = 1
    BACKGROUND = 2
    LIFECYCLE = 3


class LeaseEnd(enum.IntEnum):
    """How a lease ended, as far as that was told to anybody; the numbers are stored."""

    NOT_ENDED = 0
    RELEASED = 1
    EXPIRED = 2
    DELETED = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """One moment on both clocks: the wall's, for people, and the time in which leases expire."""

    unix_ms: int
    running_ms: int

    def unix_of(self, running_ms: int) -> int:
        """Return when a moment of lease time is on the wall's clock, as far as can be told now."""
        return running_ms - self.running_ms + self.unix_ms


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """The last lease of an agent, which may have ended. `expires_at_ms` is lease time, `acquired_at_ms` the wall's."""

    agent_id: bytes
    acquisition_id: bytes
    conversation_id: str
    kind: LeaseKind
    holder: str
    generation: int
    fence: int
    term_ms: int
    expires_at_ms: int
    acquired_at_ms: int
    end: LeaseEnd = LeaseEnd.NOT_ENDED


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseWanted:
    """What somebody asks for; valid by itself."""

    kind: LeaseKind
    holder: str
    term_ms: int


def lease_wanted(*, kind: int, holder: str, term_ms: int) -> LeaseWanted:
    """Return what is asked for; term 0 is LEASE_TERM_MS_DEFAULT.

    Raises:
        InvalidLease: no kind, a holder that is empty, over HOLDER_BYTES_MAX or not visible, a term out of its range.
    """
    flaw = word_flaw(holder, HOLDER_BYTES_MAX)
    if flaw is not None:
        raise _refused(f"the holder {flaw}", hint=f"Say who holds it in 1 to {HOLDER_BYTES_MAX} bytes of one line.")
    if term_ms != 0 and not LEASE_TERM_MS_MIN <= term_ms <= LEASE_TERM_MS_MAX:
        raise _refused(
            f"a term of {term_ms} ms is out of its range",
            hint=f"Ask for {LEASE_TERM_MS_MIN} to {LEASE_TERM_MS_MAX} ms, or 0 for {LEASE_TERM_MS_DEFAULT}.",
        )
    return LeaseWanted(kind=lease_kind(kind), holder=holder, term_ms=term_ms or LEASE_TERM_MS_DEFAULT)


def lease_kind(number: int) -> LeaseKind:
    """Return why a lease is held.

    Raises:
        InvalidLease: none, or none that this version knows.
    """
    try:
        return LeaseKind(number)
    except ValueError as error:
        raise _refused(
            "the lease has no kind that this version knows", hint="Name interactive, background or lifecycle."
        ) from error


def stands(lease: Lease | None, moment: Moment) -> bool:
    """Tell whether a lease stands: it has not ended, and its expiry is still to come."""
    return lease is not None and lease.end is LeaseEnd.NOT_ENDED and moment.running_ms < lease.expires_at_ms


def acquired(agent: Agent, last: Lease | None, wanted: LeaseWanted, *, acquisition_id: bytes, moment: Moment) -> Lease:
    """Return the new lease of an agent whose last one was `last`; its fence is greater than every one before.

    Raises:
        LeaseHeld: the last one stands.
    """
    check_free((last,) if last is not None else (), moment)
    return Lease(
        agent_id=agent.agent_id,
        acquisition_id=acquisition_id,
        conversation_id=agent.conversation_id,
        kind=wanted.kind,
        holder=wanted.holder,
        generation=agent.generation,
        fence=1 if last is None else last.fence + 1,
        term_ms=wanted.term_ms,
        expires_at_ms=moment.running_ms + wanted.term_ms,
        acquired_at_ms=moment.unix_ms,
    )


def renewed(lease: Lease, kind: LeaseKind | None, moment: Moment) -> Lease:
    """Return a lease that stands with a whole term before it, and another kind where one is given."""
    return replace(lease, kind=lease.kind if kind is None else kind, expires_at_ms=moment.running_ms + lease.term_ms)


def check_free(leases: Iterable[Lease], moment: Moment, *, hint: str = "") -> None:
    """Let somebody go on whom none of `leases` may keep out.

    Raises:
        LeaseHeld: one of them stands; who holds it, why and until when is in the state.
    """
    for lease in leases:
        if stands(lease, moment):
            raise lease_held(lease, moment, hint=hint)


def lease_held(lease: Lease, moment: Moment, *, hint: str = "") -> LeaseHeld:
    """Return the refusal that names who holds the agent or its conversation."""
    kind = lease.kind.name.lower()
    return LeaseHeld(
        f'"{lease.holder}" holds the agent or its conversation ({kind}); nothing was written',
        hint=hint or "Wait until the holder lets go or its lease expires, or have its holder stop first.",
        state={
            "agent_id": uuid_text(lease.agent_id),
            "holder": lease.holder,
            "kind": kind,
            "generation": str(lease.generation),
            "expires_at_ms": str(moment.unix_of(lease.expires_at_ms)),
            "expires_in_ms": str(lease.expires_at_ms - moment.running_ms),
        },
    )


def held(lease: Lease | None, acquisition_id: bytes, moment: Moment) -> Lease:
    """Return the lease of an acquisition that stands.

    Raises:
        LeaseLost: it has ended or expired, another acquisition took its place, or it was never taken.
    """
    if lease is None or lease.acquisition_id != acquisition_id:
        what = "holds nothing: it was never taken, or another one has taken its place"
    elif stands(lease, moment):
        return lease
    else:
        what = _ENDED[lease.end]
    other = lease if lease is not None and stands(lease, moment) else None
    raise LeaseLost(
        f"the lease {what}; nothing was written",
        hint="Stop and join what runs under it; then ask for a lease anew with another key. It is not revived.",
        state={} if other is None else {"holder": other.holder, "kind": other.kind.name.lower()},
    )


_ENDED: Final[Mapping[LeaseEnd, str]] = MappingProxyType(
    {
        LeaseEnd.NOT_ENDED: "has expired",
        LeaseEnd.EXPIRED: "has expired",
        LeaseEnd.RELEASED: "was released",
        LeaseEnd.DELETED: "has ended with its agent, which is being deleted",
    }
)


def _refused(what: str, *, hint: str) -> InvalidLease:
    return InvalidLease(f"{what}; nothing was written", hint=hint)
