"""What the fields of evidence may hold: limits, and which paths are none that a checkout could have."""

from __future__ import annotations

import re
from typing import Final

from fencepost_mailbox.domain.evidence.refusals import EvidenceLimit, InvalidEvidence
from fencepost_mailbox.domain.evidence.values import (
    CHECKOUT_BYTES_MAX,
    EVIDENCE_LISTED_DEFAULT,
    EVIDENCE_LISTED_MAX,
    EVIDENCE_OF_A_TASK_MAX,
    EVIDENCE_PATH_BYTES_MAX,
    EXIT_CODE_MAX,
    TEST_LABEL_BYTES_MAX,
    VERDICT_DETAIL_BYTES_MAX,
    CommitReported,
    DiffReported,
    FileReported,
    Reported,
    RunOutcome,
    RunReported,
    Verdict,
    evidence_id_of,
)
from fencepost_mailbox.domain.tasks.values import EVIDENCE_IDS_MAX, TASK_TEXT_BYTES_MAX

_COMMIT: Final = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
# A scheme, or a drive of another system.
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def _check(*, holds: bool, field: str, rule: str) -> None:
    if not holds:
        raise InvalidEvidence(f"{field} {rule}; nothing was written", state={"field": field})


def _bytes(text: str, field: str) -> int:
    try:
        return len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidEvidence(
            f"{field} is not valid Unicode text; nothing was written", state={"field": field}
        ) from None


def path_flaw(path: str) -> str:
    """Return why a text is no path in a checkout; empty where it is one."""
    if not path:
        return "must not be empty"
    if path.startswith(("/", "~")) or "\\" in path:
        return "must be relative to the checkout, with / between its parts"
    if _SCHEME.match(path):
        return "must be a path, without a scheme or drive"
    if any(ord(char) < 0x20 or ord(char) == 0x7F for char in path):
        return "must not hold control characters"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "must not hold an empty part, . or .."
    return ""


def check_path(path: str, field: str) -> None:
    """Let a path pass that can only lie in the checkout, as far as its text tells.

    Raises:
        InvalidEvidence: it is absolute, leads out, has a scheme, or is longer than EVIDENCE_PATH_BYTES_MAX.
    """
    size = _bytes(path, field)
    _check(holds=size <= EVIDENCE_PATH_BYTES_MAX, field=field, rule=f"has at most {EVIDENCE_PATH_BYTES_MAX} bytes")
    flaw = path_flaw(path)
    _check(holds=not flaw, field=field, rule=flaw)


def _check_commit(commit: str, field: str) -> None:
    whole = _COMMIT.fullmatch(commit) is not None
    _check(holds=whole, field=field, rule="must be a full object id: 40 or 64 lower-case hexadecimal digits")


def check_reported(reported: Reported | None) -> Reported:
    """Let a descriptor pass.

    Raises:
        InvalidEvidence: there is none, or a field of it breaks its rule.
    """
    match reported:
        case FileReported(path=path, sha256=sha256, commit=commit):
            check_path(path, "path")
            digest = _SHA256.fullmatch(sha256) is not None
            _check(holds=digest, field="sha256", rule="must have 64 lower-case hexadecimal digits")
            if commit:
                _check_commit(commit, "commit")
        case CommitReported(commit=commit):
            _check_commit(commit, "commit")
        case DiffReported(path=path, base=base, head=head):
            _check(
                holds=bool(path) != bool(base or head), field="path", rule="or base and head must be given, not both"
            )
            if path:
                check_path(path, "path")
            else:
                _check_commit(base, "base")
                _check_commit(head, "head")
        case RunReported():
            _check_test(reported)
        case None:
            raise InvalidEvidence(
                "a file, commit, diff or test must be given; nothing was written", state={"field": "descriptor"}
            )
    return reported


def _check_test(test: RunReported) -> None:
    size = _bytes(test.label, "label")
    named = 0 < size <= TEST_LABEL_BYTES_MAX and not test.label.isspace()
    _check(holds=named, field="label", rule=f"must have 1 to {TEST_LABEL_BYTES_MAX} bytes and not be blank")
    known = test.outcome in set(map(int, RunOutcome))
    _check(holds=known, field="outcome", rule="must be passed, failed or not_run")
    if test.exit_code is not None:
        within = -EXIT_CODE_MAX <= test.exit_code <= EXIT_CODE_MAX
        _check(holds=within, field="exit_code", rule=f"must be {-EXIT_CODE_MAX} to {EXIT_CODE_MAX}")
    check_words(test.summary, "summary")


def check_words(text: str, field: str) -> None:
    """Let a text pass that fits.

    Raises:
        InvalidEvidence: it has more than TASK_TEXT_BYTES_MAX bytes, or cannot be stored.
    """
    _check(
        holds=_bytes(text, field) <= TASK_TEXT_BYTES_MAX, field=field, rule=f"has at most {TASK_TEXT_BYTES_MAX} bytes"
    )


def check_room(count: int) -> None:
    """Let evidence be added to a task that has `count` pieces.

    Raises:
        EvidenceLimit: it has EVIDENCE_OF_A_TASK_MAX.
    """
    if count >= EVIDENCE_OF_A_TASK_MAX:
        raise EvidenceLimit(
            f"the task has {count} pieces of evidence, and no more may be added; nothing was written",
            hint="Put what belongs together into one file or one commit.",
            state={"evidence_max": str(EVIDENCE_OF_A_TASK_MAX)},
        )


def check_found(verdict: int, detail: str, checkout: str) -> Verdict:
    """Return the verdict of a check.

    Raises:
        InvalidEvidence: it is none, or a text is too long.
    """
    _check(holds=verdict in (1, 2, 3), field="verdict", rule="must be verified, mismatch or unavailable")
    short = _bytes(detail, "detail") <= VERDICT_DETAIL_BYTES_MAX
    _check(holds=short, field="detail", rule=f"has at most {VERDICT_DETAIL_BYTES_MAX} bytes")
    short = _bytes(checkout, "checkout") <= CHECKOUT_BYTES_MAX
    _check(holds=short, field="checkout", rule=f"has at most {CHECKOUT_BYTES_MAX} bytes")
    return Verdict(verdict)


def evidence_ids_of(texts: tuple[str, ...]) -> tuple[bytes, ...]:
    """Return the ids that a list names.

    Raises:
        InvalidEvidence: more than EVIDENCE_IDS_MAX, or one that is no id of evidence.
    """
    _check(holds=len(texts) <= EVIDENCE_IDS_MAX, field="evidence_ids", rule=f"has at most {EVIDENCE_IDS_MAX} entries")
    found = tuple(one for text in texts if (one := evidence_id_of(text)) is not None)
    _check(holds=len(found) == len(texts), field="evidence_ids", rule="must be evi_ and 32 hexadecimal digits each")
    return found


def page_size(asked: int) -> int:
    """Return how many pieces a page has; 0 asks for the default.

    Raises:
        InvalidEvidence: outside 1..EVIDENCE_LISTED_MAX.
    """
    _check(holds=0 <= asked <= EVIDENCE_LISTED_MAX, field="page_size", rule=f"must be 0 to {EVIDENCE_LISTED_MAX}")
    return asked or EVIDENCE_LISTED_DEFAULT
