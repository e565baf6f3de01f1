"""Every phase of a task with every action and every part: what is allowed, where it leads, and what is refused."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_mailbox.domain.refusals import InvalidState, Unauthorized
from fencepost_mailbox.domain.tasks.changes import Move, Words, advance, evolve, new_task, phase_of
from fencepost_mailbox.domain.tasks.needs import CHECKS
from fencepost_mailbox.domain.tasks.notices import STANDINGS, holders, stays_supervised
from fencepost_mailbox.domain.tasks.transitions import RULES, WHEN_DUE, Effect, Need, decide
from fencepost_mailbox.domain.tasks.values import (
    EXECUTING,
    SETTLED,
    Action,
    AttemptOutcome,
    Certainty,
    Notice,
    Part,
    Phase,
    State,
    Task,
)
from fencepost_testing.mailboxes import NOW_MS, PROJECT, id16

# action | phases | parts | destination. "placed" is queued, or blocked while a prerequisite is open; "same" stays.
# Written by hand from the specification and its rules, never from the table under test.
SPECIFICATION = """
assign            | none                                               | issuer operator      | placed
create_pool       | none                                               | issuer operator      | placed
unblock           | blocked                                            | system               | queued
set_dependencies  | blocked pooled queued                              | issuer operator      | placed
expire            | blocked pooled queued                              | system               | expired
claim             | pooled                                             | eligible             | running
start             | queued lost                                        | assignee             | running
progress          | running cancel_requested                           | assignee             | same
submit            | running                                            | assignee             | submitted
fail              | running                                            | assignee             | failed
time_out          | running lost                                       | system               | cancel_requested
lose_sight        | running cancel_requested                           | system               | same
accept            | submitted                                          | reviewer operator    | accepted
reject            | submitted                                          | reviewer operator    | placed
mark_overdue      | submitted                                          | system               | same
integrate         | accepted                                           | coordinator service  | integrated
cancel            | blocked pooled queued submitted abandoned          | issuer operator      | cancelled
cancel            | running lost                                       | issuer operator      | cancel_requested
finish_cancel     | cancel_requested cancel_lost                       | assignee service     | cancelled
retry             | failed expired cancelled                           | issuer operator      | placed
reassign          | blocked pooled queued failed expired cancelled     | issuer operator      | placed
reassign          | abandoned                                          | issuer operator      | placed
override_retry    | lost cancel_requested cancel_lost abandoned        | operator             | placed
override_reassign | lost cancel_requested cancel_lost abandoned        | operator             | placed
override_cancel   | lost cancel_requested cancel_lost abandoned        | operator             | cancelled
archive           | accepted integrated cancelled failed expired       | issuer operator      | same
lose_assignee     | blocked queued submitted cancelled failed expired  | system               | same
lose_assignee     | running lost cancel_requested cancel_lost          | system               | same
"""
# An agent that is deleted may have given or reviewed work in any phase but these.
LEAVING = [phase for phase in Phase if phase not in (Phase.NONE, Phase.ARCHIVED)]


def specified() -> dict[tuple[Phase, Action], tuple[frozenset[Part], str]]:
    found: dict[tuple[Phase, Action], tuple[frozenset[Part], str]] = {}
    for line in SPECIFICATION.strip().splitlines():
        action, phases, parts, destination = (cell.strip() for cell in line.split("|"))
        for phase in phases.split():
            key = Phase[phase.upper()], Action[action.upper()]
            assert key not in found
            found[key] = frozenset(Part[part.upper()] for part in parts.split()), destination
    for phase in LEAVING:
        for action in (Action.LOSE_ISSUER, Action.LOSE_REVIEWER):
            found[phase, action] = frozenset({Part.SYSTEM}), "same"
    return found


SPECIFIED = specified()


def a_task(phase: Phase, **changes: Any) -> Task:
    """A task that stands in a phase, with everything that the phase implies."""
    made = new_task(
        sequence=1,
        task_id=id16("task"),
        project_id=PROJECT,
        issuer=id16("ann"),
        assignee=None if phase is Phase.POOLED else id16("bob"),
        reviewer=id16("ann"),
        blocked=phase is Phase.BLOCKED,
        now_ms=NOW_MS,
        description="d",
        acceptance="a",
    )
    running = {"state": State.RUNNING, "attempt_id": id16("attempt"), "certainty": Certainty.ACTIVE}
    stopping = {**running, "state": State.CANCEL_REQUESTED}
    lost = {"certainty": Certainty.UNKNOWN}
    implied: dict[Phase, dict[str, Any]] = {
        Phase.RUNNING: running,
        Phase.LOST: running | lost,
        Phase.CANCEL_REQUESTED: stopping,
        Phase.CANCEL_LOST: stopping | lost,
        Phase.ABANDONED: running | lost | {"orphan": True},
        Phase.SUBMITTED: {"state": State.SUBMITTED, "attempt_id": id16("attempt"), "certainty": Certainty.FINISHED},
        Phase.ARCHIVED: {"state": State.CANCELLED, "archived": True},
    }
    if phase.name in State.__members__:
        implied.setdefault(phase, {"state": State[phase.name]})
    task = evolve(made, **{**implied.get(phase, {}), **changes})
    assert task.phase is phase or phase is Phase.NONE or changes
    return task


def moved(task: Task, action: Action, *, blocked: bool = False) -> Task:
    return advance(
        task,
        Move(
            action=action,
            rule=RULES[task.phase, action],
            actor=id16("actor"),
            sequence=77,
            now_ms=NOW_MS + 5,
            open_prerequisites=blocked,
            words=Words(text="words"),
            attempt_id=id16("new attempt"),
            assignee=id16("dan"),
            reviewer=id16("ann"),
        ),
    )


@pytest.mark.requirement("tasks.the-table-alone-decides")
@pytest.mark.parametrize("phase", Phase)
def test_every_phase_takes_exactly_the_specified_actions_from_exactly_the_specified_parts(phase: Phase) -> None:
    for action, part in itertools.product(Action, Part):
        parts, _ = SPECIFIED.get((phase, action), (frozenset[Part](), ""))
        if part in parts:
            rule, chosen = decide(phase, action, frozenset({part}))
            assert (rule, chosen) == (RULES[phase, action], part)
        else:
            with pytest.raises((InvalidState, Unauthorized)) as refused:
                decide(phase, action, frozenset({part}))
            ever = any(part in allowed for (_, done), (allowed, _) in SPECIFIED.items() if done is action)
            wrong_phase = ever and (phase, action) not in SPECIFIED
            assert (type(refused.value) is InvalidState) is wrong_phase


@pytest.mark.requirement("tasks.the-table-alone-decides")
@pytest.mark.parametrize(("phase", "action"), [key for key in SPECIFIED if key[0] is not Phase.NONE])
@pytest.mark.parametrize("blocked", [False, True])
def test_every_action_leads_where_the_specification_says(phase: Phase, action: Action, *, blocked: bool) -> None:
    before, (_, destination) = a_task(phase), SPECIFIED[phase, action]
    after = moved(before, action, blocked=blocked)
    wanted = {
        "placed": State.BLOCKED if blocked else State.QUEUED,
        "same": before.state,
    }.get(destination)
    assert after.state is (wanted if wanted is not None else State[destination.upper()])
    assert after.version == before.version + 1
    again = action in (Action.REJECT, Action.RETRY, Action.REASSIGN, Action.OVERRIDE_RETRY, Action.OVERRIDE_REASSIGN)
    assert after.revision == before.revision + again
    assert after.phase is phase_of(after)
    assert after.sequence == before.sequence


@pytest.mark.requirement("tasks.the-table-alone-decides")
def test_the_table_has_no_row_that_is_not_specified() -> None:
    assert set(RULES) == set(SPECIFIED)
    assert {key: rule.parts for key, rule in RULES.items()} == {key: parts for key, (parts, _) in SPECIFIED.items()}


@given(parts=st.frozensets(st.sampled_from(Part)), phase=st.sampled_from(Phase), action=st.sampled_from(Action))
def test_several_parts_may_do_what_one_of_them_may(parts: frozenset[Part], phase: Phase, action: Action) -> None:
    allowed, _ = SPECIFIED.get((phase, action), (frozenset[Part](), ""))
    if parts & allowed:
        assert decide(phase, action, parts)[1] in allowed
    else:
        with pytest.raises((InvalidState, Unauthorized)):
            decide(phase, action, parts)


@pytest.mark.requirement("tasks.nothing-unknown-becomes-free-by-itself")
@given(actions=st.lists(st.sampled_from(Action), max_size=30))
def test_no_sequence_of_actions_without_a_word_of_operator_or_assignee_frees_an_unknown_attempt(
    actions: list[Action],
) -> None:
    task = a_task(Phase.LOST)
    for action in actions:
        rule = RULES.get((task.phase, action))
        if rule is None or rule.parts & {Part.OPERATOR} == rule.parts or Part.ASSIGNEE in rule.parts:
            continue
        if action is Action.LOSE_ASSIGNEE:
            continue  # a deletion is a person's word too: the issuer or the operator decides then
        task = moved(task, action)
        assert task.phase in EXECUTING
        assert task.certainty is Certainty.UNKNOWN


@pytest.mark.requirement("tasks.accepted-work-stays-as-it-is")
@given(actions=st.lists(st.sampled_from(Action), max_size=30))
def test_no_sequence_of_actions_executes_accepted_work_again(actions: list[Action]) -> None:
    task = a_task(Phase.ACCEPTED)
    for action in actions:
        if (task.phase, action) in RULES:
            task = moved(task, action)
        assert task.state in (State.ACCEPTED, State.INTEGRATED)
        assert task.revision == 1


def test_an_attempt_begins_with_its_execution_and_ends_with_an_outcome() -> None:
    for (phase, action), rule in RULES.items():
        begins = rule.effect in (Effect.BEGIN, Effect.RESUME)
        assert begins is (action in (Action.CLAIM, Action.START)), (phase, action)
        assert (rule.outcome is not AttemptOutcome.NONE) is (rule.effect in (Effect.END, Effect.FENCE)), (phase, action)
        if rule.effect in (Effect.END, Effect.LOSE, Effect.FENCE, Effect.RESUME):
            assert phase in EXECUTING | {Phase.ABANDONED}, "only what is executed has an attempt to end"


def test_whatever_leaves_execution_has_ended_or_is_fenced() -> None:
    for (phase, action), rule in RULES.items():
        if phase in EXECUTING | {Phase.ABANDONED}:
            after = moved(a_task(phase), action)
            if after.phase not in EXECUTING | {Phase.ABANDONED}:
                assert rule.effect in (Effect.END, Effect.FENCE), (phase, action)


def test_a_fenced_attempt_is_nobodys_current_one() -> None:
    for (phase, action), rule in RULES.items():
        if rule.effect is Effect.FENCE:
            assert moved(a_task(phase), action).attempt_id is None


def test_every_need_has_its_check_and_every_due_phase_its_action() -> None:
    assert set(CHECKS) == set(Need)
    assert {(phase, action) for phase, action in WHEN_DUE.items()} <= set(RULES)
    needing = {action for (_, action), rule in RULES.items() if Need.DUE in rule.needs}
    assert needing == set(WHEN_DUE.values())


def test_what_is_settled_has_no_notice_but_to_its_issuer_and_what_is_archived_has_none() -> None:
    assert set(STANDINGS) == set(Notice)
    for notice, phase in itertools.product(Notice, SETTLED):
        task = a_task(phase)
        found = holders(notice, task, frozenset())
        assert found <= {id16("ann")}
        assert not found or phase is not Phase.ARCHIVED


def test_a_deleted_assignee_is_told_nothing() -> None:
    for notice in Notice:
        for phase in (Phase.QUEUED, Phase.ABANDONED):
            assert id16("bob") not in holders(notice, a_task(phase, orphan=True), frozenset())


@pytest.mark.requirement("supervision.an-entry-leaves-when-its-outcome-is-handled")
def test_open_work_is_always_supervised_and_an_outcome_leaves_only_by_its_issuers_deed() -> None:
    for _, action in RULES:
        for phase in LEAVING:
            task = a_task(phase)
            for actor in (None, id16("ann"), id16("bob")):
                stays = stays_supervised(task, action, actor)
                if action is Action.ARCHIVE:
                    assert stays is False
                elif phase not in SETTLED:
                    assert stays is True
                else:
                    own = actor == id16("ann") and phase in (Phase.ACCEPTED, Phase.INTEGRATED, Phase.CANCELLED)
                    assert stays is (False if own else None)


def test_a_place_in_the_queue_is_kept_while_queued_and_new_after_every_return() -> None:
    queued = a_task(Phase.QUEUED)
    assert moved(queued, Action.SET_DEPENDENCIES).queue_position == queued.queue_position
    assert moved(queued, Action.SET_DEPENDENCIES, blocked=True).queue_position == 0
    assert moved(queued, Action.REASSIGN).queue_position == 77
    assert moved(a_task(Phase.BLOCKED), Action.UNBLOCK).queue_position == 77
    assert moved(a_task(Phase.SUBMITTED), Action.REJECT).queue_position == 77
    assert moved(queued, Action.START).queue_position == 0


def test_a_due_time_is_derived_from_what_counts_in_the_phase() -> None:
    timed = {"start_deadline_ms": NOW_MS + 50, "execution_timeout_s": 2, "review_timeout_s": 3}
    expected = {
        Phase.BLOCKED: NOW_MS + 50,
        Phase.POOLED: NOW_MS + 50,
        Phase.QUEUED: NOW_MS + 50,
        Phase.RUNNING: NOW_MS + 2000,
        Phase.LOST: NOW_MS + 2000,
        Phase.SUBMITTED: NOW_MS + 3000,
    }
    for phase in LEAVING:
        assert a_task(phase, **timed).due_ms == expected.get(phase)
        assert a_task(phase).due_ms is None
    assert a_task(Phase.QUEUED, **timed, started=True).due_ms is None
    assert a_task(Phase.SUBMITTED, **timed, overdue=True).due_ms is None
    assert set(expected) == set(WHEN_DUE)


def test_an_advance_is_pure() -> None:
    task = a_task(Phase.RUNNING)
    assert moved(task, Action.SUBMIT) == moved(replace(task), Action.SUBMIT)
    assert task == a_task(Phase.RUNNING)


@pytest.mark.parametrize(
    ("phase", "action", "part", "tool"),
    [
        (Phase.RUNNING, Action.ACCEPT, Part.REVIEWER, "task_submit"),
        (Phase.QUEUED, Action.SUBMIT, Part.ASSIGNEE, "task_start"),
        (Phase.SUBMITTED, Action.INTEGRATE, Part.COORDINATOR, "task_review"),
    ],
)
def test_a_step_that_comes_too_early_is_told_which_comes_before_it(
    phase: Phase, action: Action, part: Part, tool: str
) -> None:
    with pytest.raises(InvalidState, match="nothing was written") as refused:
        decide(phase, action, frozenset({part}))
    assert tool in refused.value.hint
