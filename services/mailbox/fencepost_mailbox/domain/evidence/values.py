"""What evidence is. Source: supervised tasks, evidence descriptors."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

from fencepost_kit.values import value

EVIDENCE_PREFIX: Final = "evi_"
EVIDENCE_OF_A_TASK_MAX: Final = 256
EVIDENCE_PATH_BYTES_MAX: Final = 1024
TEST_LABEL_BYTES_MAX: Final = 256
EXIT_CODE_MAX: Final = 255
VERDICT_DETAIL_BYTES_MAX: Final = 512
CHECKOUT_BYTES_MAX: Final = 4096
EVIDENCE_LISTED_DEFAULT: Final = 50
EVIDENCE_LISTED_MAX: Final = 200
# Of the texts of a page; one piece always fits.
EVIDENCE_PAGE_BYTES_MAX: Final = 512 * 1024


class RunOutcome(enum.IntEnum):
    """How a test ended. Values are stored."""

    PASSED = 1
    FAILED = 2
    NOT_RUN = 3


class Verdict(enum.IntEnum):
    """What the newest check found. Values are stored."""

    REPORTED = 0
    VERIFIED = 1
    MISMATCH = 2
    UNAVAILABLE = 3


@value(frozen=True, kw_only=True, slots=True)
class FileReported:
    """A file of a commit, or of the checkout where `commit` is empty."""

    path: str
    sha256: str
    commit: str = ""


@value(frozen=True, kw_only=True, slots=True)
class CommitReported:
    """A commit."""

    commit: str


@value(frozen=True, kw_only=True, slots=True)
class DiffReported:
    """A file with a difference, or the two commits that it lies between."""

    path: str = ""
    base: str = ""
    head: str = ""


@value(frozen=True, kw_only=True, slots=True)
class RunReported:
    """A test."""

    label: str
    outcome: int
    exit_code: int | None = None
    summary: str = ""


Reported = FileReported | CommitReported | DiffReported | RunReported


@value(frozen=True, kw_only=True, slots=True)
class Evidence:
    """A piece of evidence. `reporter` and `verified_for` are None for the operator."""

    evidence_id: bytes
    task_id: bytes
    reporter: bytes | None
    attempt_id: bytes | None
    reported_at_ms: int
    reported: Reported
    note: str = ""
    verdict: Verdict = Verdict.REPORTED
    verified_at_ms: int = 0
    verified_for: bytes | None = None
    checkout: str = ""
    detail: str = ""


def that_fit(found: Sequence[Evidence]) -> Sequence[Evidence]:
    """Return the first of them whose texts have at most EVIDENCE_PAGE_BYTES_MAX bytes, and one at least."""
    left = EVIDENCE_PAGE_BYTES_MAX
    for number, one in enumerate(found):
        summary = one.reported.summary if isinstance(one.reported, RunReported) else ""
        left -= len(one.note.encode("utf-8")) + len(summary.encode("utf-8"))
        if left < 0 and number:
            return found[:number]
    return found


def evidence_id_text(evidence_id: bytes) -> str:
    """Return the public form of an id."""
    return EVIDENCE_PREFIX + evidence_id.hex()


def evidence_id_of(text: str) -> bytes | None:
    """Return the id that a public form stands for; None where it stands for none."""
    try:
        raw = bytes.fromhex(text.removeprefix(EVIDENCE_PREFIX))
    except ValueError:
        return None
    return raw if len(raw) == 16 and text == evidence_id_text(raw) else None
