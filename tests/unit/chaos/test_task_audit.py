"""The part of the chaos run's judgement that looks at tasks."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from fencepost_chaos.auditor import Broken
from fencepost_chaos.history import History, Log, Outcome, Settled, Tasked, read
from fencepost_chaos.task_audit import (
    Seen,
    Step,
    TaskCounts,
    audit_tasks,
    count_tasks,
    each_is_executed_once_at_a_time,
)

LEAD, IVY, JON = "id-kit", "id-ivy", "id-jon"


def write(agent: str, action: str, task: str, sequence: int, version: int, **changes: Any) -> Tasked:
    """A write that was acknowledged; it took no time and began at its sequence."""
    made = Tasked(
        client="tasks",
        agent=agent,
        action=action,
        request_id=f"r{sequence}",
        task_id=task,
        text=f"text of {task}" if action == "create_pool" else "",
        invoked_ns=10 * sequence,
        returned_ns=10 * sequence + 1,
        outcome=Outcome.DONE,
        sequence=sequence,
        version=version,
    )
    return replace(made, **changes)


def step(write: Tasked, before: str, after: str, **changes: Any) -> Step:
    """The event of a write."""
    made = Step(
        task_id=write.task_id,
        sequence=write.sequence,
        action=write.action,
        agent=write.agent,
        before=before,
        after=after,
        revision=1,
        version=write.version,
        attempt=f"{write.agent} at {write.task_id}" if write.agent != LEAD else "",
    )
    return replace(made, **changes)


CREATED: Final = write(LEAD, "create_pool", "a", 1, 1)
CLAIMED: Final = write(IVY, "claim", "a", 2, 2)
SUBMITTED: Final = write(IVY, "submit", "a", 3, 3, again="3")
OTHER: Final = write(LEAD, "create_pool", "b", 4, 1, settled=Settled.WRITTEN, lost=1)
TAKEN: Final = write(IVY, "claim", "b", 5, 2)
LATE: Final = write(JON, "claim", "b", 0, 0, outcome=Outcome.REFUSED, reason="invalid_state", request_id="late")
DENIED: Final = write(
    JON,
    "claim",
    "b",
    0,
    0,
    outcome=Outcome.NOT_WRITTEN,
    reason="key_spent",
    request_id="denied",
    settled=Settled.CANCELLED,
    again="key_cancelled",
)
WRITES: Final = [CREATED, CLAIMED, SUBMITTED, OTHER, TAKEN, LATE, DENIED]
A: Final = Seen(
    task_id="a",
    text="text of a",
    version=3,
    steps=(
        step(CREATED, "unspecified", "queued"),
        step(CLAIMED, "queued", "running"),
        step(SUBMITTED, "running", "submitted"),
    ),
)
B: Final = Seen(
    task_id="b",
    text="text of b",
    version=2,
    steps=(step(OTHER, "unspecified", "queued"), step(TAKEN, "queued", "running")),
)


def found(writes: list[Tasked], tasks: list[Seen]) -> set[Broken]:
    return {violation.broken for violation in audit_tasks(writes, tasks)}


def test_tasks_that_are_as_they_were_answered_are_not_complained_of() -> None:
    assert not found(WRITES, [A, B])
    assert count_tasks(WRITES, [A, B]) == TaskCounts(
        tasks=2, acknowledged=5, settled_written=1, settled_cancelled=1, uncertain=0, races_lost=1
    )


def test_a_claim_that_comes_too_late_may_not_find_what_is_there() -> None:
    blind = replace(LATE, reason="not_found")
    assert not found([*WRITES, blind], [A, B])
    for lie in (replace(blind, task_id="c"), replace(blind, action="submit")):
        assert found([*WRITES, lie], [A, B]) == {Broken.UNEXPECTED}


def test_an_event_whose_answer_nobody_learned_may_be_there_once() -> None:
    unknown = replace(CLAIMED, outcome=Outcome.UNCERTAIN, sequence=0, version=0)
    assert found([CREATED, unknown, SUBMITTED], [A]) == {Broken.UNSETTLED}
    assert found([CREATED, SUBMITTED], [A]) == {Broken.UNASKED}


@pytest.mark.requirement("chaos.the-auditor-finds-each-broken-promise")
def test_each_event_that_nobody_asked_for_is_counted() -> None:
    forged = [
        replace(A, task_id=name, text=name, version=1, steps=(replace(A.steps[0], task_id=name, sequence=number),))
        for number, name in enumerate("cde", start=20)
    ]
    assert [one.broken for one in audit_tasks(WRITES, [A, B, *forged])] == [Broken.UNASKED] * 3


@pytest.mark.requirement("chaos.the-auditor-finds-each-broken-promise")
@pytest.mark.parametrize(
    "steps",
    [
        (A.steps[0], A.steps[1], replace(A.steps[2], attempt="another")),
        (A.steps[0], replace(A.steps[1], action="unblock"), A.steps[2]),
    ],
    ids=["another attempt's", "never begun"],
)
def test_an_end_of_what_its_attempt_does_not_execute_is_found(steps: tuple[Step, ...]) -> None:
    audit = each_is_executed_once_at_a_time([], [replace(A, steps=steps)])
    assert [one.broken for one in audit] == [Broken.UNASKED]


@pytest.mark.requirement("chaos.the-auditor-finds-each-broken-promise")
@pytest.mark.parametrize(
    ("writes", "tasks", "broken"),
    [
        pytest.param(WRITES, [A], {Broken.LOST}, id="a task is gone"),
        pytest.param(
            WRITES,
            [replace(A, version=2, steps=A.steps[:2]), B],
            # Without it nothing says that the agent was free for the next.
            {Broken.LOST, Broken.EXPOSED_TWICE},
            id="the last event is gone",
        ),
        pytest.param(WRITES, [replace(A, version=4), B], {Broken.LOST}, id="a version without an event"),
        pytest.param(
            WRITES,
            [replace(A, steps=(*A.steps[:2], replace(A.steps[2], agent=JON))), B],
            {Broken.CHANGED, Broken.UNASKED},
            id="another agent's event",
        ),
        pytest.param(
            [*WRITES, replace(CLAIMED, request_id="other")], [A, B], {Broken.DOUBLED}, id="one event answered to two"
        ),
        pytest.param(
            WRITES,
            [A, B, replace(A, task_id="c", version=1, steps=(replace(A.steps[0], task_id="c", sequence=9),))],
            {Broken.UNASKED, Broken.DOUBLED},
            id="a creation took effect twice",
        ),
        pytest.param(
            WRITES,
            [A, replace(B, version=3, steps=(*B.steps, step(write(IVY, "progress", "b", 6, 3), "running", "running")))],
            {Broken.UNASKED},
            id="an event that nobody asked for",
        ),
        pytest.param(
            [*WRITES, write(JON, "claim", "b", 6, 3)],
            [A, replace(B, version=3, steps=(*B.steps, step(write(JON, "claim", "b", 6, 3), "running", "running")))],
            {Broken.EXPOSED_TWICE},
            id="two winners",
        ),
        pytest.param(
            [CREATED, CLAIMED, OTHER, TAKEN],
            [replace(A, version=2, steps=A.steps[:2]), B],
            {Broken.EXPOSED_TWICE},
            id="an agent with two tasks",
        ),
        pytest.param(
            WRITES,
            [replace(A, steps=(*A.steps[:2], replace(A.steps[2], before="queued"))), B],
            {Broken.DISORDER},
            id="an event that begins elsewhere",
        ),
        pytest.param(
            [replace(CREATED, invoked_ns=60, returned_ns=61), *WRITES[1:]], [A, B], {Broken.DISORDER}, id="order"
        ),
        pytest.param([*WRITES[:2], replace(SUBMITTED, again="7"), *WRITES[3:]], [A, B], {Broken.DOUBLED}, id="repeat"),
        pytest.param(
            [*WRITES[:6], replace(DENIED, again="7")], [A, B], {Broken.LATE_ARRIVAL}, id="a cancelled id came through"
        ),
        pytest.param(
            [*WRITES[:5], replace(LATE, reason="internal"), DENIED], [A, B], {Broken.UNEXPECTED}, id="a strange refusal"
        ),
    ],
)
def test_each_lie_about_a_task_is_found(writes: list[Tasked], tasks: list[Seen], broken: set[Broken]) -> None:
    assert found(writes, tasks) == broken


def test_a_write_is_read_as_it_was_written_down(tmp_path: Path) -> None:
    file = io.StringIO()
    for one in WRITES:
        Log(file).add(one)
    path = tmp_path / "tasks.jsonl"
    path.write_text(file.getvalue())
    assert History.of(read([path])).tasked == WRITES
