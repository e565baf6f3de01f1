"""Who holds a record while it is carried into a conversation, and what its evidence may still change.

Source: M072 M082 M090 M092 M094.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fencepost_kit.values import value
from fencepost_mailbox.domain.bindings import ENDED, Binding, BindingState, Turn
from fencepost_mailbox.domain.delivery import Event
from fencepost_mailbox.domain.refusals import (
    ConflictingOutcome,
    InvalidBinding,
    InvalidLimit,
    InvalidState,
    StaleClaim,
    StaleGeneration,
    StaleIncarnation,
)
from fencepost_mailbox.domain.values import (
    CLAIM_TERM_MS_DEFAULT,
    CLAIM_TERM_MS_MAX,
    CLAIM_TERM_MS_MIN,
    RELEASES_MAX,
    WORK,
    Answer,
    Kind,
)


class ClaimState(enum.IntEnum):
    """What is known of a claim. Values are stored."""

    HELD = 1
    RELEASED = 2
    ACCEPTED = 3
    VISIBLE = 4
    FAILED = 5
    UNCERTAIN = 6


class Outcome(enum.IntEnum):
    """What a dispatcher may report of its claim."""

    ACCEPTED = 1
    VISIBLE = 2
    FAILED = 3
    UNCERTAIN = 4


@value(frozen=True, kw_only=True, slots=True)
class Claim:
    """A claim as it is stored."""

    token: bytes
    record_id: bytes
    recipient: bytes
    dispatcher: bytes
    incarnation: int
    generation: int
    taken_at_ms: int
    term_ms: int
    expires_at_ms: int
    state: ClaimState


EVENT_OF: Final[Mapping[Outcome, Event]] = MappingProxyType(
    {
        Outcome.ACCEPTED: Event.ACCEPT,
        Outcome.VISIBLE: Event.SHOW,
        Outcome.FAILED: Event.FAIL,
        Outcome.UNCERTAIN: Event.LOSE_SIGHT,
    }
)

STATE_OF: Final[Mapping[Outcome, ClaimState]] = MappingProxyType(
    {
        Outcome.ACCEPTED: ClaimState.ACCEPTED,
        Outcome.VISIBLE: ClaimState.VISIBLE,
        Outcome.FAILED: ClaimState.FAILED,
        Outcome.UNCERTAIN: ClaimState.UNCERTAIN,
    }
)

# From which states of the claim an outcome may still be recorded. Proof may come late; sight may be lost after
# acceptance.
RECORDABLE: Final[Mapping[Outcome, frozenset[ClaimState]]] = MappingProxyType(
    {
        Outcome.ACCEPTED: frozenset({ClaimState.HELD, ClaimState.UNCERTAIN}),
        Outcome.VISIBLE: frozenset({ClaimState.HELD, ClaimState.UNCERTAIN}),
        Outcome.FAILED: frozenset({ClaimState.HELD, ClaimState.UNCERTAIN}),
        Outcome.UNCERTAIN: frozenset({ClaimState.HELD, ClaimState.ACCEPTED}),
    }
)

_KINDS: Final[Mapping[Outcome, bool | None]] = MappingProxyType(
    {Outcome.ACCEPTED: True, Outcome.VISIBLE: False, Outcome.FAILED: True, Outcome.UNCERTAIN: None}
)


def term(asked_ms: int) -> int:
    """Return how long a claim stands, in milliseconds; 0 asks for the default.

    Raises:
        InvalidLimit: outside CLAIM_TERM_MS_MIN..CLAIM_TERM_MS_MAX.
    """
    if asked_ms == 0:
        return CLAIM_TERM_MS_DEFAULT
    if not CLAIM_TERM_MS_MIN <= asked_ms <= CLAIM_TERM_MS_MAX:
        raise InvalidLimit(f"term_ms must be 0 or {CLAIM_TERM_MS_MIN} to {CLAIM_TERM_MS_MAX}; nothing was written")
    return asked_ms


def check_incarnation(presented: int, newest: int) -> bool:
    """Return whether `presented` is a new start of the dispatcher.

    Raises:
        InvalidLimit: it is below 1.
        StaleIncarnation: a later start has been seen.
    """
    if presented < 1:
        raise InvalidLimit("incarnation must be at least 1; nothing was written")
    if presented < newest:
        raise StaleIncarnation(
            "this dispatcher has been started again since; nothing was written",
            hint="Stop this process: its successor has taken over.",
            state={"incarnation": str(newest)},
        )
    return presented > newest


def check_fence(claim: Claim | None, generation: int) -> Claim:
    """Return the claim that `generation` holds.

    Evidence is checked against the claim's own generation, not the agent's floor.

    Raises:
        StaleClaim: no such token, or another generation's.
    """
    if claim is None or claim.generation != generation:
        raise StaleClaim(
            "no claim stands under this token and generation; nothing was written",
            hint="Do not submit the work again on the strength of this claim.",
        )
    return claim


def check_stands(claim: Claim) -> None:
    """Let a claim be told again to whoever took it.

    Raises:
        StaleClaim: it was given back: its record is not this claim's any more.
    """
    if claim.state is ClaimState.RELEASED:
        raise StaleClaim(
            "the claim that this key took was given back; nothing was written",
            hint="Take the next record under a new key.",
        )


def check_floor(generation: int, floor: int) -> bool:
    """Return whether `generation` is a new life, one above the floor.

    Raises:
        InvalidLimit: it is below 1.
        StaleGeneration: it is below the floor: an earlier life gets no new authority.
    """
    if generation < 1:
        raise InvalidLimit("generation must be at least 1; nothing was written")
    if generation < floor:
        raise StaleGeneration(
            "a later life of this agent has begun; nothing was written",
            hint="Stop this process, or read the agent's current credential.",
            state={"generation": str(generation), "floor": str(floor)},
        )
    return generation > floor


def judge_finish(
    claim: Claim,
    outcome: Outcome,
    *,
    kind: Kind,
    answer: Answer,
    turn: Turn | None = None,
    bound: Binding | None = None,
) -> bool:
    """Return True where the outcome is to be written, False where it stands already.

    `turn` is what an acceptance binds, `bound` what stands bound under the claim. Once a turn is bound its acceptance
    is known for good: only how the turn ended is still open.

    Raises:
        InvalidState: the outcome does not fit the record's kind (only work is accepted or fails, only context becomes
            visible).
        InvalidBinding: a turn is told with another outcome than accepted.
        StaleClaim: the claim was released.
        ConflictingOutcome: another outcome is known; what is known cannot be demoted.
    """
    fits = _KINDS[outcome]
    if fits is not None and fits is not (kind in WORK):
        raise InvalidState(f"a {kind.name.lower()} cannot be reported {outcome.name.lower()}; nothing was written")
    if turn is not None and outcome is not Outcome.ACCEPTED:
        raise InvalidBinding("only an accepted claim binds a turn; nothing was written")
    known = None if bound is None else bound.turn
    if bound is not None and _settled_by_binding(bound, outcome, turn):
        return False
    if claim.state is STATE_OF[outcome]:
        if outcome is Outcome.ACCEPTED and known != turn:
            raise _conflict(claim)
        return False
    if claim.state is ClaimState.RELEASED:
        raise StaleClaim("the claim was released before; nothing was written")
    lost_after_answer = (
        outcome is Outcome.UNCERTAIN and claim.state is ClaimState.ACCEPTED and answer is not Answer.OPEN
    )
    if claim.state not in RECORDABLE[outcome] or lost_after_answer:
        raise _conflict(claim)
    return True


def _settled_by_binding(bound: Binding, outcome: Outcome, turn: Turn | None) -> bool:
    """Tell whether a bound claim says the outcome already; False where sight of the turn may still be lost."""
    if outcome is Outcome.ACCEPTED and bound.turn == turn:
        return True
    if outcome is Outcome.UNCERTAIN and bound.state not in ENDED:
        return bound.state is BindingState.UNCERTAIN
    raise ConflictingOutcome(
        "the provider's turn that took this is known; nothing was written",
        hint="Tell how that turn ended with RecordOutcome.",
        state={"binding": bound.state.name.lower()},
    )


def _conflict(claim: Claim) -> ConflictingOutcome:
    return ConflictingOutcome(
        f"the claim is already {claim.state.name.lower()}; nothing was written",
        state={"claim": claim.state.name.lower()},
    )


def judge_release(claim: Claim) -> bool:
    """Return True where the release is to be written, False where it was released before.

    Raises:
        ConflictingOutcome: an outcome is known, or the claim is uncertain: uncertain never becomes pending again
            (M090).
    """
    if claim.state is ClaimState.RELEASED:
        return False
    if claim.state is not ClaimState.HELD:
        raise ConflictingOutcome(
            f"the claim is already {claim.state.name.lower()} and cannot be released; nothing was written",
            hint="Leave it: uncertain work is settled by a late proof, the recipient's reply or the operator.",
            state={"claim": claim.state.name.lower()},
        )
    return True


def over_release_cap(releases: int) -> bool:
    """Tell whether a request that has now been released `releases` times is given up with a host answer."""
    return releases >= RELEASES_MAX


def loses_sight(claim: Claim, *, answer: Answer, bound: Binding | None = None) -> bool:
    """Tell whether a newer generation or incarnation turns the claim uncertain.

    Held ones, and accepted ones without an answer whose turn is not known to have ended.
    """
    if claim.state is ClaimState.HELD:
        return True
    ended = bound is not None and bound.state in ENDED
    return claim.state is ClaimState.ACCEPTED and answer is Answer.OPEN and not ended
