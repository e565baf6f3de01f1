"""A task from its assignment to its integration: queue, slot, rework, dependencies, pool, cancellation, deadlines."""

from __future__ import annotations

import asyncio

import pytest

from fencepost_mailbox.domain.evidence.values import evidence_id_text
from fencepost_mailbox.domain.refusals import InvalidState, NotFound, StaleGeneration, Unauthorized
from fencepost_mailbox.domain.tasks.refusals import (
    ALREADY_RUNNING,
    AlreadyRunning,
    DeadlinePassed,
    DependencyCycle,
    InvalidTaskField,
    NotNext,
    SelfReview,
    StaleAttempt,
    StaleRevision,
    VersionConflict,
)
from fencepost_mailbox.domain.tasks.values import Action, AttemptOutcome, Certainty, Notice, Phase, State
from fencepost_testing.mailboxes import id16
from fencepost_testing.task_desk import TaskDesk


@pytest.mark.requirement("tasks.assigning-queues-and-waits-for-nobody")
async def test_an_assigned_task_stands_in_the_queue_of_its_assignee_with_its_issuer_as_reviewer(desk: TaskDesk) -> None:
    change = await desk.assigning("ann", "bob")
    task = desk.task(change.event.task_id)
    assert (task.state, task.phase, task.revision, task.version) == (State.QUEUED, Phase.QUEUED, 1, 1)
    assert (task.issuer, task.assignee, task.reviewer) == (id16("ann"), id16("bob"), id16("ann"))
    assert change.event.to_state is State.QUEUED
    assert not change.duplicate
    assert desk.standing("bob") == [Notice.ASSIGNED]
    assert desk.supervises("ann", task.task_id)


@pytest.mark.requirement("tasks.a-queue-is-worked-off-in-order", "tasks.one-task-is-executed-at-a-time")
async def test_a_queue_is_worked_off_in_order_one_task_at_a_time(desk: TaskDesk) -> None:
    first, second, third = [await desk.assign("ann", "bob") for _ in range(3)]
    with pytest.raises(NotNext) as not_next:
        await desk.start_task("bob", second)
    assert not_next.value.state == {"next": "task_" + first.hex()}
    started = await desk.start_task("bob", first)
    assert (started.event.to_state, started.event.attempt_id) == (State.RUNNING, desk.task(first).attempt_id)
    with pytest.raises(AlreadyRunning, match=ALREADY_RUNNING) as running:
        await desk.start_task("bob", second)
    assert running.value.state["running"] == "task_" + first.hex()
    await desk.submit("bob", first)
    await desk.start_task("bob", second)
    await desk.fail("bob", second)
    await desk.start_task("bob", third)
    assert [desk.task(one).state for one in (first, second, third)] == [State.SUBMITTED, State.FAILED, State.RUNNING]


def test_the_refusal_of_a_second_start_has_the_words_of_the_specification() -> None:
    assert ALREADY_RUNNING == "An assigned task is already running"


@pytest.mark.requirement("tasks.rework-is-the-next-revision-at-the-end-of-the-queue")
async def test_a_rejected_task_comes_back_as_the_next_revision_at_the_end_of_the_queue(desk: TaskDesk) -> None:
    first = await desk.assign("ann", "bob")
    await desk.start_task("bob", first)
    await desk.submit("bob", first, text="result one", evidence="evidence one")
    second = await desk.assign("ann", "bob")
    change = await desk.reject("ann", first, text="the tests fail")
    assert (change.event.to_state, change.event.revision) == (State.QUEUED, 2)
    task = desk.task(first)
    assert (task.feedback, task.result, task.evidence, task.attempt_id) == ("the tests fail", "", "", None)
    with pytest.raises(NotNext):
        await desk.start_task("bob", first)
    with pytest.raises(StaleRevision):
        await desk.start_task("bob", first, revision=1)
    await desk.start_task("bob", second)
    await desk.submit("bob", second)
    assert (await desk.start_task("bob", first, revision=2)).event.to_state is State.RUNNING
    events = (await desk.history("ann", first)).events
    submitted = next(event for event in events if event.action is Action.SUBMIT)
    assert (submitted.text, submitted.evidence, submitted.revision) == ("result one", "evidence one", 1)


@pytest.mark.requirement("tasks.nobody-reviews-their-own-work")
async def test_nobody_reviews_their_own_work(desk: TaskDesk) -> None:
    with pytest.raises(SelfReview):
        await desk.assign("ann", "ann")
    with pytest.raises(SelfReview):
        await desk.assign("ann", "bob", reviewer="bob")
    with pytest.raises(SelfReview):
        await desk.pool("ann", "ann", "bob")
    own = await desk.assign("ann", "ann", reviewer="bob")
    await desk.start_task("ann", own)
    await desk.submit("ann", own)
    with pytest.raises(Unauthorized):
        await desk.accept("ann", own)
    with pytest.raises(NotFound):
        await desk.accept("dan", own)
    open_pool = await desk.pool("ann")
    with pytest.raises(SelfReview):
        await desk.claim_task("ann", open_pool)
    theirs = await desk.assign("ann", "bob")
    with pytest.raises(SelfReview):
        await desk.reassign("ann", theirs, "ann")
    await desk.reassign("ann", theirs, "ann", reviewer="bob")
    assert (desk.task(theirs).assignee, desk.task(theirs).reviewer) == (id16("ann"), id16("bob"))


@pytest.mark.requirement("tasks.dependencies-block-and-unblock-by-themselves")
async def test_a_task_is_blocked_until_every_prerequisite_is_accepted(desk: TaskDesk) -> None:
    first, second = await desk.assign("ann", "bob"), await desk.assign("ann", "dan")
    change = await desk.assigning("ann", "bob", after=[first, second])
    waiting = change.event.task_id
    assert change.event.to_state is State.BLOCKED
    assert desk.standing("bob") == [Notice.ASSIGNED], "of what is blocked the assignee is not told"
    with pytest.raises(InvalidState):
        await desk.start_task("bob", waiting)
    await desk.done("bob", "ann", first)
    assert desk.task(waiting).state is State.BLOCKED
    behind = await desk.assign("ann", "bob")
    await desk.done("dan", "ann", second)
    assert desk.task(waiting).state is State.QUEUED
    assert desk.actions(waiting)[-1] is Action.UNBLOCK
    with pytest.raises(NotNext):
        await desk.start_task("bob", waiting)
    await desk.done("bob", "ann", behind)
    await desk.start_task("bob", waiting)


@pytest.mark.requirement("tasks.dependencies-make-no-cycle")
async def test_dependencies_make_no_cycle_and_stay_in_the_project(desk: TaskDesk) -> None:
    first = await desk.assign("ann", "bob")
    second = await desk.assign("ann", "bob", after=[first])
    third = await desk.assign("ann", "bob", after=[second])
    for wanted in ([third], [first], [second, third]):
        with pytest.raises(DependencyCycle):
            await desk.depend("ann", first, wanted)
    with pytest.raises(NotFound):
        await desk.depend("ann", first, [id16("elsewhere")])
    with pytest.raises(InvalidTaskField):
        await desk.depend("ann", third, [first, first])
    assert (await desk.depend("ann", third, [])).event.to_state is State.QUEUED
    assert (await desk.depend("ann", third, [second])).event.to_state is State.BLOCKED
    await desk.depend("ann", second, [])
    await desk.depend("ann", first, [third])
    assert desk.task(first).state is State.BLOCKED
    await desk.start_task("bob", second)
    with pytest.raises(InvalidState):
        await desk.depend("ann", second, [])


@pytest.mark.requirement("tasks.a-pool-task-is-claimed-once")
async def test_a_pool_task_is_seen_by_the_eligible_until_one_of_them_has_claimed_it(desk: TaskDesk) -> None:
    task_id = await desk.pool("ann", "bob", "dan")
    assert (desk.task(task_id).phase, desk.standing("bob"), desk.standing("dan")) == (
        Phase.POOLED,
        [Notice.POOL],
        [Notice.POOL],
    )
    assert [task.task_id for task in (await desk.listed("dan")).tasks] == [task_id]
    assert (await desk.shown("dan", task_id)).eligible == {id16("bob"), id16("dan")}
    change = await desk.claim_task("bob", task_id)
    assert (change.event.to_state, desk.task(task_id).assignee) == (State.RUNNING, id16("bob"))
    for asked in (desk.shown("dan", task_id), desk.claim_task("dan", task_id)):
        with pytest.raises(NotFound):
            await asked
    assert not (await desk.listed("dan")).tasks
    assert (desk.standing("bob"), desk.standing("dan")) == ([], [])
    other = await desk.pool("ann", "bob")
    with pytest.raises(AlreadyRunning, match=ALREADY_RUNNING):
        await desk.claim_task("bob", other)


async def test_a_pool_without_names_is_open_to_every_agent_of_the_project(desk: TaskDesk) -> None:
    task_id = await desk.pool("ann")
    assert [task.task_id for task in (await desk.listed("dan")).tasks] == [task_id]
    assert (await desk.shown("dan", task_id)).eligible == frozenset()
    assert desk.standing("dan") == [], "everybody is told by looking"
    await desk.claim_task("dan", task_id)
    assert desk.task(task_id).assignee == id16("dan")


@pytest.mark.requirement("tasks.a-running-task-is-cancelled-by-its-assignee")
async def test_a_running_task_is_cancelled_once_its_assignee_confirms_it(desk: TaskDesk) -> None:
    task_id, waiting = await desk.assign("ann", "bob"), await desk.assign("ann", "bob")
    await desk.start_task("bob", task_id)
    assert (await desk.cancel("ann", task_id)).event.to_state is State.CANCEL_REQUESTED
    assert Notice.STOP in desk.standing("bob")
    with pytest.raises(InvalidState, match="cancel_requested") as refused:
        await desk.submit("bob", task_id)
    assert "task_progress" in refused.value.hint
    await desk.progress("bob", task_id, text="this far", evidence="late evidence")
    with pytest.raises(AlreadyRunning):
        await desk.start_task("bob", waiting)
    await desk.finish_cancel("bob", task_id)
    assert (desk.task(task_id).state, desk.standing("ann")) == (State.CANCELLED, [Notice.CANCELLED])
    assert desk.attempt(desk.task(task_id).attempt_id).outcome is AttemptOutcome.CANCELLED
    await desk.start_task("bob", waiting)
    assert (await desk.cancel("ann", await desk.assign("ann", "dan"))).event.to_state is State.CANCELLED


async def test_a_service_confirms_only_the_end_of_the_attempt_that_it_names(desk: TaskDesk) -> None:
    task_id = await desk.assign("ann", "bob")
    await desk.start_task("bob", task_id)
    await desk.cancel("ann", task_id)
    with pytest.raises(InvalidTaskField):
        await desk.finish_cancel("service", task_id)
    with pytest.raises(StaleAttempt):
        await desk.finish_cancel("service", task_id, attempt_id=id16("other"))
    await desk.finish_cancel("service", task_id, attempt_id=desk.task(task_id).attempt_id)
    assert desk.task(task_id).state is State.CANCELLED


@pytest.mark.requirement("tasks.failed-expired-and-cancelled-work-can-be-tried-again")
async def test_failed_work_is_tried_again_or_given_to_another(desk: TaskDesk) -> None:
    task_id = await desk.assign("ann", "bob")
    await desk.start_task("bob", task_id)
    old = desk.task(task_id).attempt_id
    named = evidence_id_text((await desk.report("bob", task_id)).evidence_id)
    await desk.fail("bob", task_id, text="no compiler", evidence="log", evidence_ids=(named,))
    task = desk.task(task_id)
    assert (task.failure, task.evidence, task.evidence_ids) == ("no compiler", "log", (named,))
    assert desk.attempt(old).outcome is AttemptOutcome.FAILED
    assert (await desk.retry("ann", task_id)).event.revision == 2
    assert desk.task(task_id).failure == ""
    assert (await desk.reassign("ann", task_id, "dan")).event.revision == 3
    assert (desk.standing("bob"), desk.standing("dan")) == ([], [Notice.ASSIGNED])
    await desk.start_task("dan", task_id)
    with pytest.raises(StaleAttempt):
        await desk.submit("dan", task_id, attempt_id=old)
    with pytest.raises(NotFound):
        await desk.submit("bob", task_id)


async def test_an_unclaimed_pool_task_goes_back_to_its_pool_when_it_is_tried_again(desk: TaskDesk) -> None:
    task_id = await desk.pool("ann", "bob")
    await desk.cancel("ann", task_id)
    await desk.retry("ann", task_id)
    assert desk.task(task_id).phase is Phase.POOLED
    await desk.claim_task("bob", task_id)


@pytest.mark.requirement("tasks.accepted-work-stays-as-it-is")
async def test_accepted_work_takes_nothing_but_its_integration_and_its_archive(desk: TaskDesk) -> None:
    task_id = await desk.assign("ann", "bob")
    await desk.done("bob", "ann", task_id)
    for action in (Action.CANCEL, Action.RETRY, Action.REASSIGN, Action.SET_DEPENDENCIES, Action.ACCEPT):
        with pytest.raises(InvalidState):
            await desk.act("ann", action, task_id, target="dan" if action is Action.REASSIGN else "")
    for action in (Action.START, Action.SUBMIT, Action.FAIL, Action.PROGRESS):
        with pytest.raises(InvalidState):
            await desk.act("bob", action, task_id)
    assert desk.task(task_id).version == 4


@pytest.mark.requirement("tasks.only-a-coordinator-integrates")
async def test_only_a_coordinator_integrates_or_a_service_that_does_it_for_one(desk: TaskDesk) -> None:
    first, second = await desk.assign("ann", "bob"), await desk.assign("ann", "bob")
    with pytest.raises(InvalidState):
        await desk.integrate("cyd", first)
    await desk.done("bob", "ann", first)
    await desk.done("bob", "ann", second)
    for who in ("ann", "bob", "operator"):
        with pytest.raises(Unauthorized):
            await desk.integrate(who, first)
    await desk.integrate("cyd", first, commit="a" * 40)
    assert (desk.task(first).state, desk.task(first).commit) == (State.INTEGRATED, "a" * 40)
    for coordinator in (None, id16("ann"), id16("nobody")):
        with pytest.raises(InvalidTaskField):
            await desk.integrate("service", second, coordinator=coordinator)
    await desk.integrate("service", second, coordinator=id16("cyd"))
    (*_, event) = (await desk.history("ann", second)).events
    assert (event.agent, event.facts["integration"]) == (id16("cyd"), "recorded")
    waiting = await desk.assigning("ann", "bob", after=[first])
    assert waiting.event.to_state is State.QUEUED, "integrated work is accepted work"


@pytest.mark.requirement("tasks.deadlines-follow-the-clock")
async def test_a_task_expires_that_was_not_started_by_its_deadline(desk: TaskDesk) -> None:
    deadline = desk.clock.now_ms() + 10_000
    task_id = await desk.assign("ann", "bob", start_deadline_ms=deadline)
    started = await desk.assign("ann", "dan", start_deadline_ms=deadline)
    pooled = await desk.pool("ann", "bob", start_deadline_ms=deadline)
    blocked = await desk.assign("ann", "bob", after=[task_id], start_deadline_ms=deadline)
    await desk.start_task("dan", started)
    assert await desk.pass_time(9_999) == 0
    await desk.clock.advance(0.001)
    with pytest.raises(DeadlinePassed):
        await desk.start_task("bob", task_id)
    with pytest.raises(DeadlinePassed):
        await desk.claim_task("bob", pooled)
    assert await desk.pass_time(0) == 3
    states = [desk.task(one).state for one in (task_id, pooled, blocked, started)]
    assert states == [State.EXPIRED, State.EXPIRED, State.EXPIRED, State.RUNNING]
    assert desk.standing("ann") == [Notice.EXPIRED] * 3
    await desk.submit("dan", started)
    await desk.reject("ann", started)
    assert await desk.pass_time(100_000) == 0, "it was started once: its deadline counts no more"
    await desk.retry("ann", task_id)
    assert (desk.task(task_id).state, desk.task(task_id).start_deadline_ms) == (State.QUEUED, 0)
    await desk.reassign("ann", task_id, "dan", start_deadline_ms=desk.clock.now_ms() + 5)
    assert await desk.pass_time(5) == 1


@pytest.mark.requirement("tasks.deadlines-follow-the-clock")
async def test_a_task_that_runs_too_long_is_asked_to_stop_and_a_late_review_is_only_marked(desk: TaskDesk) -> None:
    task_id = await desk.assign("ann", "bob", execution_timeout_s=10, review_timeout_s=20)
    await desk.start_task("bob", task_id)
    assert await desk.pass_time(9_999) == 0
    await desk.submit("bob", task_id)
    assert await desk.pass_time(19_999) == 0
    assert await desk.pass_time(1) == 1
    task = desk.task(task_id)
    assert (task.state, task.overdue, desk.standing("ann")) == (
        State.SUBMITTED,
        True,
        [Notice.REVIEW, Notice.OVERDUE],
    )
    assert await desk.pass_time(1_000_000) == 0
    await desk.reject("ann", task_id)
    await desk.start_task("bob", task_id)
    assert await desk.pass_time(10_000) == 1
    assert desk.task(task_id).state is State.CANCEL_REQUESTED
    assert desk.standing("bob") == [Notice.STOP]
    assert desk.attempt(desk.task(task_id).attempt_id).certainty is Certainty.ACTIVE


@pytest.mark.requirement("tasks.a-write-that-rests-on-an-earlier-state-is-refused")
async def test_an_expected_version_that_has_passed_is_refused_with_the_state_that_stands(desk: TaskDesk) -> None:
    task_id = await desk.assign("ann", "bob")
    await desk.start_task("bob", task_id, expected_version=1)
    with pytest.raises(VersionConflict) as refused:
        await desk.cancel("ann", task_id, expected_version=1)
    assert refused.value.state == {"version": "2", "state": "running", "revision": "1"}
    await desk.cancel("ann", task_id, expected_version=2)
    with pytest.raises(InvalidTaskField):
        await desk.cancel("ann", task_id, expected_version=-1)


@pytest.mark.requirement("tasks.a-lost-life-makes-an-attempt-unknown")
async def test_a_later_life_makes_the_attempt_of_the_earlier_one_unknown_and_may_go_on_with_it(desk: TaskDesk) -> None:
    task_id, other = await desk.assign("ann", "bob"), await desk.assign("ann", "bob")
    await desk.start_task("bob", task_id)
    old = desk.task(task_id).attempt_id
    await desk.open("bob", 2)
    assert (desk.task(task_id).phase, desk.attempt(old).certainty) == (Phase.LOST, Certainty.UNKNOWN)
    assert desk.standing("ann") == [Notice.UNKNOWN]
    assert desk.standing("bob") == [Notice.ASSIGNED, Notice.RESUME]
    with pytest.raises(StaleGeneration):
        await desk.submit("bob", task_id)
    for who, action in (("ann", Action.REASSIGN), ("ann", Action.RETRY)):
        with pytest.raises(InvalidState):
            await desk.act(who, action, task_id, target="dan" if action is Action.REASSIGN else "")
    with pytest.raises(InvalidState) as refused:
        await desk.submit("bob", task_id, generation=2)
    assert "task_start" in refused.value.hint
    with pytest.raises(AlreadyRunning):
        await desk.start_task("bob", other, generation=2)
    change = await desk.start_task("bob", task_id, generation=2)
    assert change.event.attempt_id not in (None, old)
    assert (desk.attempt(old).certainty, desk.attempt(old).outcome) == (Certainty.INTERRUPTED, AttemptOutcome.RESUMED)
    assert (desk.task(task_id).phase, desk.standing("ann")) == (Phase.RUNNING, [])
    with pytest.raises(StaleAttempt):
        await desk.submit("bob", task_id, generation=2, attempt_id=old)
    await desk.submit("bob", task_id, generation=2)


@pytest.mark.requirement("tasks.a-lost-life-makes-an-attempt-unknown")
async def test_the_first_sight_of_a_later_life_makes_the_attempt_unknown_too(desk: TaskDesk) -> None:
    task_id = await desk.assign("ann", "bob")
    await desk.start_task("bob", task_id)
    assert await desk.told("bob", generation=2) == [(Notice.RESUME, task_id)]
    assert desk.task(task_id).phase is Phase.LOST


@pytest.mark.requirement("tasks.only-the-operator-overrides-what-is-unknown")
async def test_the_operator_fences_an_unknown_attempt_and_the_risk_is_kept(desk: TaskDesk) -> None:
    task_id = await desk.assign("ann", "bob")
    await desk.start_task("bob", task_id)
    old = desk.task(task_id).attempt_id
    for action in (Action.OVERRIDE_RETRY, Action.OVERRIDE_CANCEL):
        with pytest.raises(InvalidState):
            await desk.override(task_id, action)
    await desk.open("bob", 2)
    with pytest.raises(Unauthorized):
        await desk.act("ann", Action.OVERRIDE_RETRY, task_id)
    with pytest.raises(InvalidTaskField):
        await desk.override(task_id, Action.OVERRIDE_RETRY, text=" ")
    change = await desk.override(task_id, Action.OVERRIDE_REASSIGN, "dan", text="both may write to main")
    assert (change.event.revision, desk.task(task_id).assignee) == (2, id16("dan"))
    assert (desk.attempt(old).certainty, desk.attempt(old).outcome) == (Certainty.UNKNOWN, AttemptOutcome.FENCED)
    (*_, event) = (await desk.history("ann", task_id)).events
    assert (event.text, event.attempt_id, event.agent) == ("both may write to main", old, None)
    await desk.start_task("dan", task_id)
    with pytest.raises(NotFound):
        await desk.submit("bob", task_id, generation=2, attempt_id=old)


async def test_the_operator_ends_what_nobody_confirms(desk: TaskDesk) -> None:
    task_id, again = await desk.assign("ann", "bob"), await desk.assign("ann", "dan")
    await desk.start_task("bob", task_id)
    await desk.cancel("ann", task_id)
    await desk.override(task_id, Action.OVERRIDE_CANCEL)
    assert (desk.task(task_id).state, desk.standing("bob")) == (State.CANCELLED, [])
    await desk.start_task("dan", again)
    await desk.cancel("ann", again)
    await desk.open("dan", 2)
    assert (desk.task(again).phase, desk.task(again).state) == (Phase.CANCEL_LOST, State.CANCEL_REQUESTED)
    await desk.finish_cancel("dan", again, generation=2)
    assert desk.task(again).state is State.CANCELLED


async def test_an_archived_task_takes_nothing_and_is_listed_only_where_asked_for(desk: TaskDesk) -> None:
    task_id = await desk.assign("ann", "bob")
    with pytest.raises(InvalidState):
        await desk.archive("ann", task_id)
    await desk.cancel("ann", task_id)
    await desk.archive("ann", task_id)
    with pytest.raises(InvalidState):
        await desk.retry("ann", task_id)
    assert not (await desk.listed("ann")).tasks
    assert [task.task_id for task in (await desk.listed("ann", archived=True)).tasks] == [task_id]
    assert not desk.supervises("ann", task_id)


async def test_the_operator_assigns_reviews_and_cancels_in_a_project_that_it_names(desk: TaskDesk) -> None:
    with pytest.raises(InvalidTaskField):
        await desk.assign("operator", "bob", project_id=None)
    task_id = await desk.assign("operator", "bob")
    assert (desk.task(task_id).issuer, desk.task(task_id).reviewer) == (None, None)
    await desk.done("bob", "operator", task_id)
    other = await desk.assign("ann", "bob")
    await desk.cancel("operator", other)
    assert desk.standing("ann") == [Notice.CANCELLED]
    assert [task.task_id for task in (await desk.listed("operator")).tasks] == [other, task_id]


async def test_who_has_no_part_in_a_task_does_not_see_it_but_a_coordinator_sees_its_project(desk: TaskDesk) -> None:
    task_id = await desk.assign("ann", "bob")
    for asked in (desk.shown("dan", task_id), desk.history("dan", task_id), desk.cancel("dan", task_id)):
        with pytest.raises(NotFound):
            await asked
    assert not (await desk.listed("dan")).tasks
    assert [task.task_id for task in (await desk.listed("cyd")).tasks] == [task_id]
    assert (await desk.shown("cyd", task_id)).task.task_id == task_id
    with pytest.raises(Unauthorized):
        await desk.cancel("cyd", task_id)


async def test_tasks_are_numbered_in_the_commit_order_of_records(desk: TaskDesk) -> None:
    before = (await desk.send("ann", "bob")).record.sequence
    change = await desk.assigning("ann", "bob")
    after = (await desk.send("ann", "bob")).record.sequence
    assert before < change.event.sequence < after
    await desk.restart()
    later = await desk.assigning("ann", "bob")
    assert later.event.sequence > after


async def test_of_two_claims_at_once_one_wins_and_the_other_is_refused(desk: TaskDesk) -> None:
    task_id = await desk.pool("ann", "bob", "dan")
    answers = await asyncio.gather(
        desk.claim_task("bob", task_id), desk.claim_task("dan", task_id), return_exceptions=True
    )
    assert [isinstance(answer, NotFound) for answer in answers].count(True) == 1
    assert desk.actions(task_id) == [Action.CREATE_POOL, Action.CLAIM]
