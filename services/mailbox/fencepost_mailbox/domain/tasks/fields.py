"""What the fields of task calls may hold: limits, and what an action must say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from fencepost_kit.values import value
from fencepost_mailbox.domain.refusals import InvalidTimeout
from fencepost_mailbox.domain.tasks.changes import Words
from fencepost_mailbox.domain.tasks.needs import check_field
from fencepost_mailbox.domain.tasks.values import (
    ACCEPTANCE_BYTES_MAX,
    COMMIT_LENGTHS,
    CONTEXT_REFS_MAX,
    DESCRIPTION_BYTES_MAX,
    ELIGIBLE_MAX,
    EVIDENCE_IDS_MAX,
    NOTIFICATION_WAIT_MS_MAX,
    PERCENT_MAX,
    PREREQUISITES_MAX,
    RUN_BYTES_MAX,
    TASK_NAME_BYTES_MAX,
    TASK_TEXT_BYTES_MAX,
    TASKS_LISTED_DEFAULT,
    TASKS_LISTED_MAX,
    TIME_MS_MAX,
    TIMEOUT_S_MAX,
    TIMEOUT_S_MIN,
    Action,
    ContextRef,
)

_HEX: Final = re.compile(r"[0-9a-f]+")


@value(frozen=True, kw_only=True, slots=True)
class Asked:
    """What an action must say: the public name of its text, and which fields it cannot do without."""

    text: str = "reason"
    needs_text: bool = False
    needs_evidence: bool = False
    needs_revision: bool = False


ASKED: Final[Mapping[Action, Asked]] = MappingProxyType(
    {
        Action.CLAIM: Asked(),
        Action.START: Asked(needs_revision=True),
        Action.PROGRESS: Asked(text="note", needs_revision=True),
        Action.SUBMIT: Asked(text="result", needs_text=True, needs_evidence=True, needs_revision=True),
        Action.ACCEPT: Asked(text="feedback", needs_revision=True),
        Action.REJECT: Asked(text="feedback", needs_text=True, needs_revision=True),
        Action.INTEGRATE: Asked(text="note"),
        Action.CANCEL: Asked(),
        Action.FINISH_CANCEL: Asked(text="note"),
        Action.FAIL: Asked(needs_text=True),
        Action.RETRY: Asked(),
        Action.REASSIGN: Asked(),
        Action.SET_DEPENDENCIES: Asked(),
        Action.OVERRIDE_RETRY: Asked(text="risk", needs_text=True),
        Action.OVERRIDE_REASSIGN: Asked(text="risk", needs_text=True),
        Action.OVERRIDE_CANCEL: Asked(text="risk", needs_text=True),
        Action.ARCHIVE: Asked(),
    }
)


def check_text(text: str, field: str, bytes_max: int, *, required: bool = False) -> None:
    """Let a text pass that can be stored and fits; one that is required has a character that is not white space.

    Raises:
        InvalidTaskField: it does not.
    """
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        check_field(holds=False, field=field, rule="is not valid Unicode text")
        return
    check_field(holds=size <= bytes_max, field=field, rule=f"has {size} bytes, at most {bytes_max} fit")
    check_field(holds=not required or not (not text or text.isspace()), field=field, rule="must not be blank")


def check_names(names: Sequence[str], field: str, count_max: int) -> None:
    """Let a list pass of at most `count_max` names, each 1 to TASK_NAME_BYTES_MAX bytes and none twice.

    Raises:
        InvalidTaskField: it is none.
    """
    check_field(holds=len(names) <= count_max, field=field, rule=f"has at most {count_max} entries")
    for name in names:
        check_text(name, field, TASK_NAME_BYTES_MAX, required=True)
    check_field(holds=len(set(names)) == len(names), field=field, rule="names something twice")


def check_ids(ids: Sequence[bytes], field: str = "dependencies") -> None:
    """Let a list of prerequisites pass.

    Raises:
        InvalidTaskField: more than PREREQUISITES_MAX, or one twice.
    """
    check_field(holds=len(ids) <= PREREQUISITES_MAX, field=field, rule=f"has at most {PREREQUISITES_MAX} entries")
    check_field(holds=len(set(ids)) == len(ids), field=field, rule="names a task twice")


def check_number(value: int, field: str, least: int, most: int) -> None:
    """Let a number pass that is 0, which stands for none, or in its range.

    Raises:
        InvalidTaskField: it is neither.
    """
    check_field(holds=value == 0 or least <= value <= most, field=field, rule=f"must be 0 or {least} to {most}")


def check_deadline(deadline_ms: int, now_ms: int) -> None:
    """Let a start deadline pass that lies ahead, or 0 for none.

    Raises:
        InvalidTaskField: it has passed, or is no time.
    """
    ahead = deadline_ms == 0 or now_ms < deadline_ms <= TIME_MS_MAX
    check_field(holds=ahead, field="start_deadline_ms", rule="must lie in the future, and before the year 10000")


def check_timeouts(execution_s: int, review_s: int) -> None:
    """Let timeouts pass.

    Raises:
        InvalidTaskField: one is neither 0 nor TIMEOUT_S_MIN to TIMEOUT_S_MAX.
    """
    check_number(execution_s, "execution_timeout_seconds", TIMEOUT_S_MIN, TIMEOUT_S_MAX)
    check_number(review_s, "review_timeout_seconds", TIMEOUT_S_MIN, TIMEOUT_S_MAX)


def check_work(description: str, acceptance: str, context_refs: Sequence[ContextRef]) -> None:
    """Let the texts of a new task pass.

    Raises:
        InvalidTaskField: a text or reference breaks its rule.
    """
    check_text(description, "description", DESCRIPTION_BYTES_MAX, required=True)
    check_text(acceptance, "acceptance", ACCEPTANCE_BYTES_MAX, required=True)
    check_names([ref.key for ref in context_refs], "context_refs", CONTEXT_REFS_MAX)
    for ref in context_refs:
        check_number(ref.version, "context_refs", 1, TIME_MS_MAX)


def check_eligible(names: Sequence[str]) -> None:
    """Let those who may claim pass.

    Raises:
        InvalidTaskField: more than ELIGIBLE_MAX, or one twice.
    """
    check_names(names, "eligible", ELIGIBLE_MAX)


def check_words(action: Action, words: Words, *, revision: int, version: int, now_ms: int) -> None:
    """Let what an action says pass.

    Raises:
        InvalidTaskField: a field is missing, too long or out of its range.
    """
    asked = ASKED[action]
    check_field(holds=revision >= (1 if asked.needs_revision else 0), field="revision", rule="counts from 1")
    check_field(holds=version >= 0, field="expected_version", rule="counts from 1; 0 checks nothing")
    check_text(words.text, asked.text, TASK_TEXT_BYTES_MAX, required=asked.needs_text)
    check_text(words.evidence, "evidence", TASK_TEXT_BYTES_MAX, required=asked.needs_evidence)
    check_text(words.wait_reason, "wait_reason", TASK_TEXT_BYTES_MAX)
    check_names(words.evidence_ids, "evidence_ids", EVIDENCE_IDS_MAX)
    if words.percent is not None:
        check_field(holds=0 <= words.percent <= PERCENT_MAX, field="percent", rule=f"must be 0 to {PERCENT_MAX}")
    if action is Action.PROGRESS:
        said = any((words.text, words.evidence, words.evidence_ids, words.wait_reason, words.percent is not None))
        check_field(holds=said, field="note", rule="is empty, and nothing else is said either")
    if words.commit:
        whole = len(words.commit) in COMMIT_LENGTHS and _HEX.fullmatch(words.commit) is not None
        check_field(holds=whole, field="commit", rule="must be a full object id: 40 or 64 hexadecimal digits")
    check_deadline(words.start_deadline_ms, now_ms)


def page_size(asked: int) -> int:
    """Return how many entries a page has; 0 asks for the default.

    Raises:
        InvalidTaskField: outside 1..TASKS_LISTED_MAX.
    """
    check_number(asked, "page_size", 1, TASKS_LISTED_MAX)
    return asked or TASKS_LISTED_DEFAULT


def check_run(run: str) -> str:
    """Return the name of a run.

    Raises:
        InvalidTaskField: it is longer than RUN_BYTES_MAX.
    """
    check_text(run, "run", RUN_BYTES_MAX)
    return run


def check_wait(timeout_ms: int) -> int:
    """Return for how long to wait for a notification.

    Raises:
        InvalidTimeout: outside 0..NOTIFICATION_WAIT_MS_MAX.
    """
    if not 0 <= timeout_ms <= NOTIFICATION_WAIT_MS_MAX:
        raise InvalidTimeout(
            f"timeout_ms must be 0 to {NOTIFICATION_WAIT_MS_MAX}; nothing was read",
            state={"timeout_ms_max": str(NOTIFICATION_WAIT_MS_MAX)},
        )
    return timeout_ms
