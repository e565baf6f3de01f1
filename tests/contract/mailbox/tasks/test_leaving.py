"""What becomes of tasks when an agent is deleted, and of attempts when a store is restored."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost_kit.sqlite import copy_database
from fencepost_mailbox.domain.refusals import AgentDeleted, InvalidState, Unauthorized
from fencepost_mailbox.domain.tasks.values import (
    Action,
    AttemptOutcome,
    Certainty,
    Notice,
    Phase,
    State,
)
from fencepost_mailbox.usecases.claim import Restoring
from fencepost_testing.mailboxes import id16
from fencepost_testing.task_desk import TaskDesk, a_task_desk


@pytest.mark.requirement("tasks.a-deleted-agent-leaves-no-task-without-an-end")
async def test_the_work_of_a_deleted_assignee_waits_for_a_word_of_its_issuer(desk: TaskDesk) -> None:
    running, queued = await desk.assign("ann", "bob"), await desk.assign("ann", "bob")
    await desk.start_task("bob", running)
    attempt = desk.task(running).attempt_id
    await desk.delete("bob")
    assert [desk.task(one).phase for one in (running, queued)] == [Phase.ABANDONED, Phase.QUEUED]
    assert desk.attempt(attempt).certainty is Certainty.UNKNOWN
    assert sorted(desk.standing("ann")) == [Notice.UNKNOWN, Notice.ORPHANED, Notice.ORPHANED]
    for asked in (desk.start_task("bob", queued), desk.submit("bob", running)):
        with pytest.raises(AgentDeleted):
            await asked
    with pytest.raises(AgentDeleted):
        await desk.override(running, Action.OVERRIDE_RETRY)
    with pytest.raises(AgentDeleted):
        await desk.reassign("ann", queued, "bob")
    await desk.reassign("ann", running, "dan")
    assert (desk.attempt(attempt).outcome, desk.attempt(attempt).certainty) == (
        AttemptOutcome.FENCED,
        Certainty.UNKNOWN,
    )
    assert (desk.task(running).revision, desk.task(running).orphan) == (2, False)
    await desk.done("dan", "ann", running)
    await desk.cancel("ann", queued)
    assert (desk.standing("ann"), await desk.ready("ann")) == ([], 0)


async def test_an_abandoned_task_is_cancelled_without_its_assignee(desk: TaskDesk) -> None:
    task_id = await desk.assign("ann", "bob")
    await desk.start_task("bob", task_id)
    await desk.delete("bob")
    await desk.cancel("ann", task_id)
    assert (desk.task(task_id).state, desk.task(task_id).attempt_id) == (State.CANCELLED, None)
    with pytest.raises(AgentDeleted):
        await desk.retry("ann", task_id)
    await desk.reassign("ann", task_id, "dan")


@pytest.mark.requirement("tasks.a-deleted-agent-leaves-no-task-without-an-end")
async def test_the_operator_takes_the_place_of_a_deleted_issuer(desk: TaskDesk) -> None:
    submitted, queued, reviewed = (
        await desk.assign("ann", "bob"),
        await desk.assign("ann", "bob"),
        await desk.assign("ann", "dan", reviewer="bob"),
    )
    await desk.start_task("bob", submitted)
    await desk.submit("bob", submitted)
    await desk.delete("ann")
    for task_id in (submitted, queued, reviewed):
        assert desk.task(task_id).issuer is None
        assert Action.LOSE_ISSUER in desk.actions(task_id)
    assert (desk.task(submitted).reviewer, desk.task(reviewed).reviewer) == (None, id16("bob"))
    await desk.accept("operator", submitted)
    await desk.cancel("operator", queued)
    while not await desk.erase("ann", rows=1):
        pass
    assert not (await desk.supervision("bob"))[0]
    assert desk.standing("ann") == []
    assert desk.store.read.tasks.supervised_count(id16("ann")) == 0


async def test_the_issuer_reviews_what_a_deleted_reviewer_cannot(desk: TaskDesk) -> None:
    task_id, own = (
        await desk.assign("ann", "bob", reviewer="dan"),
        await desk.assign("ann", "ann", reviewer="dan"),
    )
    await desk.start_task("bob", task_id)
    await desk.submit("bob", task_id)
    await desk.delete("dan")
    assert (desk.task(task_id).reviewer, desk.task(own).reviewer) == (id16("ann"), None)
    assert desk.standing("ann") == [Notice.REVIEW]
    await desk.accept("ann", task_id)
    await desk.start_task("ann", own)
    await desk.submit("ann", own)
    with pytest.raises(Unauthorized):
        await desk.accept("ann", own)


async def test_rework_for_a_deleted_assignee_is_told_to_the_issuer(desk: TaskDesk) -> None:
    task_id = await desk.assign("ann", "bob")
    await desk.start_task("bob", task_id)
    await desk.submit("bob", task_id)
    await desk.delete("bob")
    assert desk.task(task_id).phase is Phase.SUBMITTED
    await desk.reject("operator", task_id)
    assert (desk.task(task_id).phase, desk.standing("ann")) == (Phase.QUEUED, [Notice.ORPHANED])


async def test_what_a_closing_leaves_over_is_taken_by_the_erasure(
    desk: TaskDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost_mailbox.usecases.delete.CLOSED_TASKS_MAX", 2)
    tasks = [await desk.assign("ann", "bob") for _ in range(5)]
    await desk.delete("bob")
    assert sum(desk.task(one).orphan for one in tasks) == 2
    while not await desk.erase("bob", rows=2):
        pass
    assert all(desk.task(one).orphan for one in tasks)


@pytest.mark.requirement("tasks.a-restored-store-knows-of-no-running-attempt")
async def test_in_a_restored_copy_no_attempt_counts_as_running(desk: TaskDesk, tmp_path: Path) -> None:
    tasks = [await desk.assign("ann", "bob"), await desk.assign("ann", "dan")]
    await desk.start_task("bob", tasks[0])
    await desk.start_task("dan", tasks[1])
    await desk.cancel("ann", tasks[1])
    copy = tmp_path / "restored" / "mailbox.db"
    copy.parent.mkdir(mode=0o700)
    copy_database(desk.store._database.path, copy)
    async with a_task_desk(copy, "ann", "bob", "cyd", "dan") as restored:
        await restored.store.submit(Restoring(now_ms=restored.clock.now_ms()))
        assert [restored.task(one).phase for one in tasks] == [Phase.LOST, Phase.CANCEL_LOST]
        assert restored.standing("ann") == [Notice.UNKNOWN, Notice.UNKNOWN]
        with pytest.raises(InvalidState):
            await restored.submit("bob", tasks[0])
        await restored.start_task("bob", tasks[0], request_id=id16("resumed"))
    assert [desk.task(one).phase for one in tasks] == [Phase.RUNNING, Phase.CANCEL_REQUESTED]
