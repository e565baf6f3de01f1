"""What calls of tasks may hold: every limit at both of its sides."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost_mailbox.domain.refusals import InvalidTimeout
from fencepost_mailbox.domain.tasks import fields
from fencepost_mailbox.domain.tasks.changes import Words
from fencepost_mailbox.domain.tasks.needs import task_id_text, waits_for_itself
from fencepost_mailbox.domain.tasks.refusals import DependencyLimit, InvalidTaskField
from fencepost_mailbox.domain.tasks.values import (
    ACCEPTANCE_BYTES_MAX,
    CONTEXT_REFS_MAX,
    DEPENDENCY_STEPS_MAX,
    DESCRIPTION_BYTES_MAX,
    ELIGIBLE_MAX,
    EVIDENCE_IDS_MAX,
    HISTORY_PAGE_BYTES_MAX,
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
    Part,
    State,
    TaskEvent,
)
from fencepost_mailbox.usecases.tasks.look import fitting
from fencepost_testing.mailboxes import id16

NOW = 1000
# Two bytes of UTF-8: a limit counts bytes, not characters.
WIDE = "é"


def words(action: Action, **said: Any) -> None:
    facts = {"text": "x", "evidence": "x"} if action is Action.SUBMIT else {"text": "x"}
    asked = fields.ASKED[action]
    fields.check_words(
        action, Words(**{**facts, **said}), revision=1 if asked.needs_revision else 0, version=0, now_ms=NOW
    )


def refs(count: int, key: str = "k") -> list[ContextRef]:
    return [ContextRef(key=f"{key}{number}", version=0) for number in range(count)]


FITS = [
    lambda: fields.check_work("x" * DESCRIPTION_BYTES_MAX, "a", ()),
    lambda: fields.check_work("d", "x" * ACCEPTANCE_BYTES_MAX, ()),
    lambda: fields.check_work("d", "a", refs(CONTEXT_REFS_MAX)),
    lambda: fields.check_work("d", "a", [ContextRef(key="k" * TASK_NAME_BYTES_MAX, version=1)]),
    lambda: fields.check_ids([bytes([n]) for n in range(PREREQUISITES_MAX)]),
    lambda: fields.check_eligible([f"agent{n}" for n in range(ELIGIBLE_MAX)]),
    lambda: fields.check_timeouts(TIMEOUT_S_MIN, TIMEOUT_S_MIN),
    lambda: fields.check_timeouts(TIMEOUT_S_MAX, TIMEOUT_S_MAX),
    lambda: fields.check_timeouts(0, 0),
    lambda: fields.check_deadline(NOW + 1, NOW),
    lambda: fields.check_deadline(TIME_MS_MAX, NOW),
    lambda: fields.check_deadline(0, NOW),
    lambda: words(Action.SUBMIT, text=WIDE * (TASK_TEXT_BYTES_MAX // 2)),
    lambda: words(Action.SUBMIT, evidence="x" * TASK_TEXT_BYTES_MAX),
    lambda: words(Action.SUBMIT, evidence_ids=tuple(f"e{n}" for n in range(EVIDENCE_IDS_MAX))),
    lambda: words(Action.SUBMIT, evidence_ids=("e" * TASK_NAME_BYTES_MAX,)),
    lambda: words(Action.PROGRESS, wait_reason="x" * TASK_TEXT_BYTES_MAX),
    lambda: words(Action.PROGRESS, text="", percent=0),
    lambda: words(Action.PROGRESS, percent=PERCENT_MAX),
    lambda: words(Action.PROGRESS, text="", evidence="late"),
    lambda: words(Action.ACCEPT, text=""),
    lambda: words(Action.INTEGRATE, commit="a" * 40),
    lambda: words(Action.INTEGRATE, commit="0" * 64),
    lambda: fields.check_run("r" * RUN_BYTES_MAX),
]
DOES_NOT_FIT = [
    ("description", lambda: fields.check_work("x" * (DESCRIPTION_BYTES_MAX + 1), "a", ())),
    ("description", lambda: fields.check_work(" \n", "a", ())),
    ("description", lambda: fields.check_work("\ud800", "a", ())),
    ("acceptance", lambda: fields.check_work("d", "x" * (ACCEPTANCE_BYTES_MAX + 1), ())),
    ("acceptance", lambda: fields.check_work("d", "", ())),
    ("context_refs", lambda: fields.check_work("d", "a", refs(CONTEXT_REFS_MAX + 1))),
    ("context_refs", lambda: fields.check_work("d", "a", [*refs(1), *refs(1)])),
    ("context_refs", lambda: fields.check_work("d", "a", [ContextRef(key="", version=0)])),
    ("context_refs", lambda: fields.check_work("d", "a", [ContextRef(key="k", version=-1)])),
    ("context_refs", lambda: fields.check_work("d", "a", refs(1, "k" * TASK_NAME_BYTES_MAX))),
    ("dependencies", lambda: fields.check_ids([bytes([n]) for n in range(PREREQUISITES_MAX + 1)])),
    ("dependencies", lambda: fields.check_ids([b"a", b"a"])),
    ("eligible", lambda: fields.check_eligible([f"agent{n}" for n in range(ELIGIBLE_MAX + 1)])),
    ("eligible", lambda: fields.check_eligible(["bob", "bob"])),
    ("execution_timeout_seconds", lambda: fields.check_timeouts(TIMEOUT_S_MAX + 1, 0)),
    ("execution_timeout_seconds", lambda: fields.check_timeouts(TIMEOUT_S_MIN - 2, 0)),
    ("review_timeout_seconds", lambda: fields.check_timeouts(0, TIMEOUT_S_MAX + 1)),
    ("start_deadline_ms", lambda: fields.check_deadline(NOW, NOW)),
    ("start_deadline_ms", lambda: fields.check_deadline(TIME_MS_MAX + 1, NOW)),
    ("start_deadline_ms", lambda: words(Action.RETRY, start_deadline_ms=NOW)),
    ("result", lambda: words(Action.SUBMIT, text=WIDE * (TASK_TEXT_BYTES_MAX // 2) + "x")),
    ("result", lambda: words(Action.SUBMIT, text=" ")),
    ("evidence", lambda: words(Action.SUBMIT, evidence="")),
    ("evidence", lambda: words(Action.SUBMIT, evidence="x" * (TASK_TEXT_BYTES_MAX + 1))),
    ("evidence_ids", lambda: words(Action.SUBMIT, evidence_ids=tuple(f"e{n}" for n in range(EVIDENCE_IDS_MAX + 1)))),
    ("evidence_ids", lambda: words(Action.SUBMIT, evidence_ids=("e" * (TASK_NAME_BYTES_MAX + 1),))),
    ("wait_reason", lambda: words(Action.PROGRESS, wait_reason="x" * (TASK_TEXT_BYTES_MAX + 1))),
    ("percent", lambda: words(Action.PROGRESS, percent=PERCENT_MAX + 1)),
    ("percent", lambda: words(Action.PROGRESS, percent=-1)),
    ("note", lambda: words(Action.PROGRESS, text="")),
    ("feedback", lambda: words(Action.REJECT, text="\t")),
    ("reason", lambda: words(Action.FAIL, text="")),
    ("risk", lambda: words(Action.OVERRIDE_CANCEL, text="")),
    ("commit", lambda: words(Action.INTEGRATE, commit="a" * 39)),
    ("commit", lambda: words(Action.INTEGRATE, commit="A" * 40)),
    ("run", lambda: fields.check_run("r" * (RUN_BYTES_MAX + 1))),
    ("revision", lambda: fields.check_words(Action.START, Words(), revision=0, version=0, now_ms=NOW)),
    ("expected_version", lambda: fields.check_words(Action.START, Words(), revision=1, version=-1, now_ms=NOW)),
]


@pytest.mark.requirement("tasks.every-limit-is-named")
@pytest.mark.parametrize("check", FITS)
def test_what_is_at_a_limit_passes(check: Any) -> None:
    check()


@pytest.mark.requirement("tasks.every-limit-is-named")
@pytest.mark.parametrize(("field", "check"), DOES_NOT_FIT)
def test_what_is_over_a_limit_is_refused_and_the_field_is_named(field: str, check: Any) -> None:
    with pytest.raises(InvalidTaskField) as refused:
        check()
    assert refused.value.state == {"field": field}
    assert "nothing was written" in refused.value.message


def test_a_page_has_its_default_and_its_limit() -> None:
    assert fields.page_size(0) == TASKS_LISTED_DEFAULT
    assert [fields.page_size(1), fields.page_size(TASKS_LISTED_MAX)] == [1, TASKS_LISTED_MAX]
    for size in (-1, TASKS_LISTED_MAX + 1):
        with pytest.raises(InvalidTaskField):
            fields.page_size(size)


@pytest.mark.requirement("supervision.a-wait-has-its-limit")
def test_a_wait_for_a_notification_has_its_limit() -> None:
    assert NOTIFICATION_WAIT_MS_MAX == 20_000
    assert [fields.check_wait(0), fields.check_wait(NOTIFICATION_WAIT_MS_MAX)] == [0, NOTIFICATION_WAIT_MS_MAX]
    for timeout_ms in (-1, NOTIFICATION_WAIT_MS_MAX + 1):
        with pytest.raises(InvalidTimeout):
            fields.check_wait(timeout_ms)


def test_a_search_for_a_cycle_ends_at_its_limit() -> None:
    def chain(length: int) -> bool:
        following = {n.to_bytes(4, "big"): [(n + 1).to_bytes(4, "big")] for n in range(length - 1)}
        return waits_for_itself(b"me", [bytes(4)], lambda one: following.get(one, []))

    assert chain(DEPENDENCY_STEPS_MAX) is False
    with pytest.raises(DependencyLimit):
        chain(DEPENDENCY_STEPS_MAX + 1)


def test_a_page_of_history_ends_at_its_bytes_and_has_one_event_at_least() -> None:
    def an_event(size: int) -> TaskEvent:
        return TaskEvent(
            sequence=1,
            task_id=id16("task"),
            action=Action.PROGRESS,
            part=Part.ASSIGNEE,
            agent=None,
            generation=1,
            from_state=0,
            to_state=State.RUNNING,
            revision=1,
            version=1,
            attempt_id=None,
            at_ms=1,
            text="x" * size,
        )

    half = HISTORY_PAGE_BYTES_MAX // 2
    assert fitting([an_event(half), an_event(half), an_event(1)]) == 2
    assert fitting([an_event(half), an_event(half + 1)]) == 1
    assert fitting([an_event(HISTORY_PAGE_BYTES_MAX + 1), an_event(0)]) == 1
    assert fitting([]) == 0


def test_a_task_has_an_id_of_ours() -> None:
    assert task_id_text(bytes(16)) == "task_" + "0" * 32
