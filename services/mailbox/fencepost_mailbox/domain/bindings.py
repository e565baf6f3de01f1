"""The exact turn that took a piece of work, how it ended, and what is answered from that.

Source: M082 to M091 M095 to M098. Two steps that never merge: the end is recorded, then it is published. What is known
is never demoted.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fencepost_kit.values import value
from fencepost_mailbox.domain.refusals import ConflictingOutcome, InvalidBinding, InvalidLimit, StaleBinding
from fencepost_mailbox.domain.values import (
    BINDING_ID_BYTES_MAX,
    BINDING_PROVIDER_BYTES_MAX,
    BODY_BYTES_MAX,
    Completion,
    Kind,
    Origin,
    ReplyStatus,
)


class Mode(enum.IntEnum):
    """How work entered a turn. Values are stored."""

    START = 1
    STEER = 2


class BindingState(enum.IntEnum):
    """How far the turn of bound work has come. Values are stored."""

    BOUND = 1
    OUTCOME_RECORDED = 2
    PUBLISHED = 3
    UNCERTAIN = 4


class BindingEvent(enum.Enum):
    """What can happen to a binding."""

    RECORD = "record"
    PUBLISH = "publish"
    LOSE_SIGHT = "lose_sight"


class TurnOutcome(enum.IntEnum):
    """How a turn ended. NONE while nothing is known. Values are stored."""

    NONE = 0
    COMPLETED = 1
    INTERRUPTED = 2
    FAILED = 3
    LOST = 4


BINDING: Final[Mapping[tuple[BindingState, BindingEvent], BindingState]] = MappingProxyType(
    {
        (BindingState.BOUND, BindingEvent.RECORD): BindingState.OUTCOME_RECORDED,
        (BindingState.BOUND, BindingEvent.LOSE_SIGHT): BindingState.UNCERTAIN,
        # Late evidence.
        (BindingState.UNCERTAIN, BindingEvent.RECORD): BindingState.OUTCOME_RECORDED,
        (BindingState.OUTCOME_RECORDED, BindingEvent.PUBLISH): BindingState.PUBLISHED,
    }
)
ENDED: Final = frozenset({BindingState.OUTCOME_RECORDED, BindingState.PUBLISHED})


@value(frozen=True, kw_only=True, slots=True)
class Turn:
    """A turn in its provider's words, and how the work entered it."""

    provider: str
    session_id: str
    turn_id: str
    mode: Mode


@value(frozen=True, kw_only=True, slots=True)
class Ending:
    """How a turn ended. `final` is its final words where they can be answered; `final_bytes` how many there were."""

    outcome: TurnOutcome
    final: bytes
    final_bytes: int

    def digest(self) -> bytes:
        """Return 16 bytes that stand for the final words."""
        return hashlib.blake2b(self.final, digest_size=16).digest()


@value(frozen=True, kw_only=True, slots=True)
class Binding:
    """A binding as it is stored."""

    token: bytes
    record_id: bytes
    recipient: bytes
    # Whom the outcome is published to; nobody for a prompt.
    requester: bytes | None
    dispatcher: bytes
    generation: int
    turn: Turn
    # Its place in the commit order.
    sequence: int
    state: BindingState
    # Whether its outcome answers the work: not where only an explicit reply does.
    publishes: bool
    outcome: TurnOutcome = TurnOutcome.NONE
    final_bytes: int = 0
    final_digest: bytes = b""
    # What the outcome rests on.
    evidence: str = ""
    reply_id: bytes | None = None
    # Kept from the record of the outcome until it is published; a prompt's for good.
    final: bytes = b""


def check_turn(turn: Turn) -> Turn:
    """Return `turn`.

    Raises:
        InvalidBinding: one of its names is empty or too long.
    """
    for name, text, most in (
        ("provider", turn.provider, BINDING_PROVIDER_BYTES_MAX),
        ("provider_session_id", turn.session_id, BINDING_ID_BYTES_MAX),
        ("provider_turn_id", turn.turn_id, BINDING_ID_BYTES_MAX),
    ):
        if not 1 <= len(text.encode("utf-8", "replace")) <= most:
            raise InvalidBinding(f"{name} of a binding has 1 to {most} bytes; nothing was written")
    return turn


def ending(outcome: TurnOutcome, final_text: str, final_bytes: int) -> Ending:
    """Return how a turn ended; the words of one that did not complete count for nothing.

    Raises:
        InvalidLimit: the words are too long, or their number of bytes is another.
    """
    final = final_text.encode("utf-8", "replace")
    if len(final) > BODY_BYTES_MAX:
        raise InvalidLimit(
            f"final_text has at most {BODY_BYTES_MAX} bytes; nothing was written",
            hint="Leave a longer text out and give its length in final_bytes.",
        )
    fits = final_bytes in (0, len(final)) if final else final_bytes == 0 or final_bytes > BODY_BYTES_MAX
    if not fits:
        raise InvalidLimit("final_bytes is not the length of the final words; nothing was written")
    if outcome is not TurnOutcome.COMPLETED:
        return Ending(outcome=outcome, final=b"", final_bytes=0)
    return Ending(outcome=outcome, final=final, final_bytes=final_bytes or len(final))


def check_bound(binding: Binding | None, turn: Turn) -> Binding:
    """Return the binding where it is of exactly this turn (facts 14).

    Raises:
        StaleBinding: nothing is bound under the claim, or another turn.
    """
    if binding is None or binding.turn != turn:
        raise StaleBinding(
            "this turn is not the one that is bound under the claim; nothing was written",
            hint="Tell of the turn as it was accepted: provider, session, turn and mode.",
        )
    return binding


def judge_ending(binding: Binding, told: Ending) -> bool:
    """Return True where `told` is to be written, False where it stands already.

    Raises:
        ConflictingOutcome: another outcome is known; a known one is never demoted to lost.
    """
    if told.outcome is TurnOutcome.LOST:
        if binding.state is BindingState.UNCERTAIN:
            return False
        event = BindingEvent.LOSE_SIGHT
    else:
        same = (binding.outcome, binding.final_bytes, binding.final_digest)
        if binding.state in ENDED and same == (told.outcome, told.final_bytes, told.digest()):
            return False
        event = BindingEvent.RECORD
    if (binding.state, event) not in BINDING:
        raise ConflictingOutcome(
            f"the turn is already known as {binding.outcome.name.lower()}; nothing was written",
            state={"binding": binding.state.name.lower(), "outcome": binding.outcome.name.lower()},
        )
    return True


def publishes(kind: Kind, completion: Completion) -> bool:
    """Tell whether the end of the turn answers work of this kind."""
    return kind is Kind.PROMPT or completion is Completion.AUTOMATIC


@value(frozen=True, kw_only=True, slots=True)
class Publication:
    """What is answered from an outcome."""

    status: ReplyStatus
    origin: Origin
    body: bytes
    # For people: what the answer rests on.
    evidence: str


_HOST: Final = "Fencepost says this, not the agent: "
_LOOK: Final = " What it did before that stands; look at it before the work is done again."


def publication(binding: Binding) -> Publication:
    """Return what is answered from a recorded outcome (M083 M086 to M089)."""
    outcome = binding.outcome
    if outcome is TurnOutcome.COMPLETED and binding.final.decode("utf-8").strip():
        return Publication(
            status=ReplyStatus.DONE,
            origin=Origin.AUTOMATIC,
            body=binding.final,
            evidence="the final words of the completed turn",
        )
    status = ReplyStatus.BLOCKED
    if outcome is TurnOutcome.COMPLETED and binding.final_bytes > BODY_BYTES_MAX:
        why = f"final words of {binding.final_bytes} bytes, over the limit"
        text = (
            f"the agent's turn completed, and its final words have {binding.final_bytes} bytes, more than the "
            f"{BODY_BYTES_MAX} that a reply can hold. Ask it for a shorter answer, or for the path of a file."
        )
    elif outcome is TurnOutcome.COMPLETED:
        why = "a completed turn without final words"
        text = "the agent's turn completed without final words. Ask the agent what came of it."
    elif outcome is TurnOutcome.INTERRUPTED:
        why = "an interrupted turn"
        text = f"the agent's turn was interrupted before it ended.{_LOOK} Reason: {binding.evidence}"
    else:
        why, status = "a failed turn", ReplyStatus.FAILED
        text = f"the agent's turn failed.{_LOOK} Reason: {binding.evidence}"
    return Publication(status=status, origin=Origin.HOST, body=(_HOST + text).encode("utf-8"), evidence=why)
