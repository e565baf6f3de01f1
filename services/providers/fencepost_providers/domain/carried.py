"""What was meant for a conversation, and what came of it: rows of the outbox, keyed by claim token. M082 M095 M097."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from fencepost_providers.domain.runtimes import (
    CODE_BYTES_MAX,
    DETAIL_BYTES_MAX,
    FINAL_BYTES_MAX,
    TurnBinding,
    TurnEnd,
    TurnStatus,
)

WAKE_PREFIX: Final = "wak_"


class Answer(enum.IntEnum):
    """What came of a claim. Values are stored."""

    UNKNOWN_YET = 0
    RELEASED = 1
    ACCEPTED = 2
    VISIBLE = 3
    FAILED = 4
    UNCERTAIN = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Carried:
    """A claim on its way: an intent while `answer` is UNKNOWN_YET, then what is to be told of it."""

    token: str
    agent_id: str
    record_id: str
    generation: int
    written_at_ms: int
    answer: Answer = Answer.UNKNOWN_YET
    evidence: str = ""
    binding: TurnBinding | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How the turn ended that a claim was bound to: to be told, and after what came of the claim itself."""

    token: str
    agent_id: str
    record_id: str
    generation: int
    written_at_ms: int
    binding: TurnBinding
    status: TurnStatus
    final_text: str = ""
    final_bytes: int = 0
    evidence: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """A request, prompt or wake-up that a turn carries."""

    token: str
    agent_id: str
    record_id: str
    generation: int
    binding: TurnBinding

    @property
    def is_answered(self) -> bool:
        """Whether somebody gets the turn's final words: nobody does of a wake-up."""
        return not self.record_id.startswith(WAKE_PREFIX)


def clipped(text: str, bytes_max: int) -> str:
    """Return text of at most `bytes_max` bytes of UTF-8, cut between characters."""
    return text.encode("utf-8", "replace")[:bytes_max].decode("utf-8", "ignore")


def evidence_of(code: str, detail: str) -> str:
    """Return a code and detail as one line of evidence, never empty."""
    head = clipped(code or "unspecified", CODE_BYTES_MAX)
    tail = clipped(" ".join(detail.split()), DETAIL_BYTES_MAX)
    return f"{head}: {tail}" if tail else head


def outcome_of(bound: Bound, end: TurnEnd, *, now_ms: int) -> Outcome:
    """Return what to tell of a request whose turn has ended. Words over the limit are left out, their number is not.

    What is no text in them (half of a pair of surrogates) is told as a question mark.
    """
    words = end.final_text.encode("utf-8", "replace")
    size = max(end.final_bytes, len(words))
    fits = size <= FINAL_BYTES_MAX
    return Outcome(
        token=bound.token,
        agent_id=bound.agent_id,
        record_id=bound.record_id,
        generation=bound.generation,
        written_at_ms=now_ms,
        binding=bound.binding,
        status=end.status,
        final_text=words.decode() if fits else "",
        final_bytes=size,
        evidence=evidence_of(f"turn_{end.status.name.lower()}", end.detail),
    )
