"""What a supervisor has still to see to: enrolled with the task, told what matters, and gone only when handled."""

from __future__ import annotations

import asyncio

import pytest

from fencepost_mailbox.domain.refusals import InvalidState, InvalidTimeout, StaleGeneration
from fencepost_mailbox.domain.tasks.refusals import InvalidTaskField, NotificationsUnread, WorkRunning
from fencepost_mailbox.domain.tasks.values import (
    NOTIFICATION_WAIT_MS_MAX,
    RUNS_KEPT_MAX,
    TASKS_LISTED_MAX,
    Action,
    Notice,
    Phase,
)
from fencepost_mailbox.usecases.look import ListReaders
from fencepost_mailbox.waits import Wake
from fencepost_testing.mailboxes import WAIT_S_MAX, id16, until
from fencepost_testing.task_desk import TaskDesk, caller_named


@pytest.mark.requirement("supervision.enrolment-is-part-of-the-assignment")
async def test_a_task_is_supervised_by_its_issuer_from_its_own_transaction_on(desk: TaskDesk) -> None:
    assigned, pooled = await desk.assign("ann", "bob"), await desk.pool("ann", "bob")
    entries, token, pending = await desk.supervision("ann")
    assert ([entry.task.task_id for entry in entries], token, pending) == ([assigned, pooled], "", 2)
    assert await desk.ready("ann") == 2
    with pytest.raises(InvalidTaskField):
        await desk.assign("ann", "bob", description="")
    assert await desk.ready("ann") == 2


@pytest.mark.requirement("supervision.an-entry-leaves-when-its-outcome-is-handled")
async def test_what_the_issuer_accepts_or_cancels_itself_leaves_its_set_at_once(desk: TaskDesk) -> None:
    accepted, cancelled, failed = [await desk.assign("ann", "bob") for _ in range(3)]
    await desk.done("bob", "ann", accepted)
    assert not desk.supervises("ann", accepted)
    await desk.cancel("ann", cancelled)
    assert not desk.supervises("ann", cancelled)
    await desk.start_task("bob", failed)
    await desk.fail("bob", failed)
    assert desk.supervises("ann", failed)
    await desk.told("ann")
    await desk.listed("ann")
    assert desk.supervises("ann", failed), "a failed task waits for a decision, however often it was seen"
    await desk.retry("ann", failed)
    assert (desk.supervises("ann", failed), desk.standing("ann")) == (True, [])
    await desk.retry("operator", cancelled)
    assert desk.supervises("ann", cancelled), "what is open again is supervised again"


@pytest.mark.requirement("supervision.an-entry-leaves-when-its-outcome-is-handled")
async def test_what_another_reviewer_accepts_leaves_once_the_issuer_was_given_it_and_looked(desk: TaskDesk) -> None:
    task_id = await desk.assign("ann", "bob", reviewer="dan")
    await desk.done("bob", "dan", task_id)
    assert (await desk.listed("ann")).retired == ()
    assert await desk.told("ann") == [(Notice.ACCEPTED, task_id)]
    assert desk.supervises("ann", task_id), "to be told is not to have handled it"
    listing = await desk.listed("ann")
    assert (listing.retired, listing.pending) == ((task_id,), 0)
    assert desk.standing("ann") == []
    assert (await desk.listed("ann")).retired == ()


async def test_an_outcome_is_acknowledged_by_name_and_an_open_one_is_not(desk: TaskDesk) -> None:
    failed, open_, foreign = [await desk.assign("ann", "bob") for _ in range(2)] + [await desk.assign("dan", "bob")]
    await desk.start_task("bob", failed)
    await desk.fail("bob", failed)
    with pytest.raises(InvalidState):
        await desk.acknowledge("ann", failed, open_)
    assert desk.supervises("ann", failed), "a refused call takes nothing out"
    assert await desk.acknowledge("ann", failed, foreign, failed) == (failed,)
    assert (desk.standing("ann"), desk.supervises("dan", foreign)) == ([], True)
    assert await desk.acknowledge("ann", failed) == ()
    for count in (0, TASKS_LISTED_MAX + 1):
        with pytest.raises(InvalidTaskField):
            await desk.acknowledge("ann", *([failed] * count))
    assert await desk.acknowledge("ann", *([failed] * TASKS_LISTED_MAX)) == ()


@pytest.mark.requirement("supervision.ready-is-refused-while-something-remains")
async def test_a_turn_does_not_end_while_work_runs_or_a_notification_was_not_given(desk: TaskDesk) -> None:
    task_id = await desk.assign("ann", "bob")
    with pytest.raises(NotificationsUnread) as unread:
        await desk.ready("bob")
    assert unread.value.state["notice"] == "assigned"
    await desk.told("bob")
    assert await desk.ready("bob") == 0
    await desk.start_task("bob", task_id)
    with pytest.raises(WorkRunning):
        await desk.ready("bob")
    await desk.submit("bob", task_id)
    assert await desk.ready("bob") == 0
    with pytest.raises(NotificationsUnread):
        await desk.ready("ann")
    await desk.told("ann")
    assert await desk.ready("ann") == 1, "a yield is not a completion"
    assert desk.supervises("ann", task_id)


async def test_work_of_an_earlier_life_keeps_a_turn_from_ending(desk: TaskDesk) -> None:
    task_id = await desk.assign("ann", "bob")
    await desk.start_task("bob", task_id)
    await desk.told("bob", generation=2)
    with pytest.raises(WorkRunning) as refused:
        await desk.ready("bob", generation=2)
    assert refused.value.state["state"] == "lost"
    with pytest.raises(StaleGeneration):
        await desk.ready("bob")


@pytest.mark.requirement("supervision.each-run-is-given-each-notification-once")
async def test_each_run_is_given_what_stands_once_in_order(desk: TaskDesk) -> None:
    tasks = [await desk.assign("ann", "bob") for _ in range(3)]
    first = await desk.given("bob", "run-1")
    assert first.told is not None
    assert (first.told.task.task_id, first.more) == (tasks[0], True)
    assert await desk.told("bob", "run-1") == [(Notice.ASSIGNED, tasks[1]), (Notice.ASSIGNED, tasks[2])]
    assert await desk.told("bob", "run-1") == []
    assert [task_id for _, task_id in await desk.told("bob", "run-2")] == tasks
    await desk.start_task("bob", tasks[0])
    assert [task_id for _, task_id in await desk.told("bob", "run-3")] == tasks[1:]
    await desk.restart()
    assert await desk.told("bob", "run-3") == []
    later = await desk.assign("ann", "bob")
    assert await desk.told("bob", "run-3") == [(Notice.ASSIGNED, later)]


@pytest.mark.requirement("supervision.each-run-is-given-each-notification-once")
async def test_servers_of_one_agent_that_take_turns_are_each_given_what_stands_once(desk: TaskDesk) -> None:
    task_id = await desk.assign("ann", "bob")
    await desk.send("ann", "bob")
    for run in ("run-1", "run-2"):
        assert [kind for kind, _ in await desk.told("bob", run)][:1] == [Notice.ASSIGNED]
    await desk.restart()
    for run in ("run-1", "run-2", "run-1"):
        given = await desk.given("bob", run)
        assert (given.told, given.unread) == (None, None), run
        assert await desk.ready("bob", run) == 0
    later = await desk.assign("ann", "bob")
    for run in ("run-1", "run-2"):
        assert await desk.told("bob", run) == [(Notice.ASSIGNED, later)]
    # One that has not asked for long is forgotten for those that do.
    for number in range(RUNS_KEPT_MAX):
        assert len(await desk.told("bob", f"other-{number}")) == 2
    assert [one for _, one in await desk.told("bob", "run-1")] == [task_id, later]


@pytest.mark.requirement("supervision.only-the-matching-transition-consumes-a-notification")
async def test_a_notification_stands_until_its_transition_and_no_message_consumes_it(desk: TaskDesk) -> None:
    task_id = await desk.assign("ann", "bob")
    await desk.send("ann", "bob")
    page = await desk.receive("bob")
    await desk.receive("bob", ack=page.ack_cursor)
    await desk.told("bob")
    await desk.listed("bob")
    assert desk.standing("bob") == [Notice.ASSIGNED]
    await desk.start_task("bob", task_id)
    assert desk.standing("bob") == []
    await desk.submit("bob", task_id)
    assert desk.standing("ann") == [Notice.REVIEW]
    await desk.reject("ann", task_id)
    assert (desk.standing("ann"), desk.standing("bob")) == ([], [Notice.REWORK])


@pytest.mark.requirement("supervision.an-entry-tells-what-is-waited-for")
async def test_a_reason_to_wait_is_told_to_the_supervisor_until_it_is_gone(desk: TaskDesk) -> None:
    task_id = await desk.assign("ann", "bob")
    await desk.start_task("bob", task_id)
    await desk.progress("bob", task_id, text="half", percent=50, wait_reason="which branch?")
    assert await desk.told("ann") == [(Notice.WAITING, task_id)]
    await desk.clock.advance(3)
    ((entry,), _, _) = await desk.supervision("ann")
    assert (entry.task.wait_reason, entry.task.percent, entry.task.note) == ("which branch?", 50, "half")
    assert (entry.age_ms, entry.settled) == (3000, False)
    await desk.progress("bob", task_id, text="", wait_reason="which branch, please?")
    assert await desk.told("ann") == [(Notice.WAITING, task_id)], "a new question is told again"
    await desk.progress("bob", task_id, text="", percent=60)
    assert (desk.standing("ann"), desk.task(task_id).note) == ([], "half")
    assert desk.task(task_id).assignee == desk.attempt(desk.task(task_id).attempt_id).agent


@pytest.mark.requirement("supervision.a-wait-misses-nothing")
async def test_a_wait_ends_with_the_commit_that_tells_its_agent_something(desk: TaskDesk) -> None:
    waiting = asyncio.create_task(desk.given("bob", timeout_ms=NOTIFICATION_WAIT_MS_MAX))
    await until(lambda: desk.waits.parked == 1)
    task_id = await desk.assign("ann", "bob")
    async with asyncio.timeout(WAIT_S_MAX):
        given = await waiting
    assert given.told is not None
    assert (given.told.task.task_id, given.more, given.wake) == (task_id, False, None)


async def test_a_wait_that_nothing_ends_says_that_time_ran_out_and_a_drain_says_so(desk: TaskDesk) -> None:
    assert (await desk.given("bob")).wake is Wake.TIMED_OUT
    assert (await desk.given("bob", timeout_ms=1)).wake is Wake.TIMED_OUT
    waiting = asyncio.create_task(desk.given("bob", timeout_ms=NOTIFICATION_WAIT_MS_MAX))
    await until(lambda: desk.waits.parked == 1)
    desk.waits.drain()
    async with asyncio.timeout(WAIT_S_MAX):
        assert (await waiting).wake is Wake.DRAINING
    with pytest.raises(InvalidTimeout):
        await desk.given("bob", timeout_ms=NOTIFICATION_WAIT_MS_MAX + 1)


async def test_a_wait_of_an_earlier_life_ends_with_its_refusal(desk: TaskDesk) -> None:
    waiting = asyncio.create_task(desk.given("bob", timeout_ms=NOTIFICATION_WAIT_MS_MAX))
    await until(lambda: desk.waits.parked == 1)
    await desk.open("bob", 2)
    async with asyncio.timeout(WAIT_S_MAX):
        with pytest.raises(StaleGeneration):
            await waiting


@pytest.mark.requirement("supervision.outlives-turns-and-restarts")
async def test_the_set_outlives_ready_a_restart_and_a_later_life_of_the_supervisor(desk: TaskDesk) -> None:
    tasks = [await desk.assign("ann", "bob"), await desk.assign("ann", "dan")]
    await desk.ready("ann")
    await desk.restart()
    assert await desk.ready("ann") == 2
    assert [entry.task.task_id for entry in (await desk.supervision("ann", generation=2))[0]] == tasks
    assert await desk.ready("ann", generation=2) == 2
    listing = await desk.listed("ann", generation=2)
    assert ([task.task_id for task in listing.tasks], listing.pending) == (tasks[::-1], 2)


async def test_the_pages_of_a_set_and_of_notifications_join(desk: TaskDesk) -> None:
    tasks = [await desk.assign("ann", "bob") for _ in range(5)]
    first, token, pending = await desk.supervision("ann", size=3)
    second, last, _ = await desk.supervision("ann", size=3, token=token)
    assert [entry.task.task_id for entry in [*first, *second]] == tasks
    assert (pending, last) == (5, "")
    found, more = await desk.notifications("bob", size=4)
    assert (len(found), more) == (4, True)
    assert await desk.given("bob") is not None
    assert (await desk.notifications("bob"))[0] == [Notice.ASSIGNED] * 5, "to be listed is not to be given"


async def test_the_one_who_acts_is_not_told_of_its_own_deed(desk: TaskDesk) -> None:
    own = await desk.assign("ann", "ann", reviewer="bob")
    assert desk.standing("ann") == []
    await desk.start_task("ann", own)
    await desk.submit("ann", own)
    await desk.reject("bob", own)
    assert desk.standing("ann") == [Notice.REWORK]


async def test_a_listing_joins_its_pages_and_keeps_its_conditions(desk: TaskDesk) -> None:
    tasks = [await desk.assign("ann", "bob" if number % 2 else "dan") for number in range(7)]
    await desk.pool("ann", "dan")
    seen, token = [], ""
    while True:
        page = await desk.listed("ann", size=2, token=token, assignee="bob")
        seen += [task.task_id for task in page.tasks]
        token = page.next_token
        if not token:
            break
    assert seen == [task_id for number, task_id in enumerate(tasks) if number % 2][::-1]
    await desk.start_task("bob", tasks[1])
    running = await desk.listed("ann", states=frozenset({desk.task(tasks[1]).state}))
    assert [task.phase for task in running.tasks] == [Phase.RUNNING]
    assert desk.actions(tasks[1]) == [Action.ASSIGN, Action.START]


@pytest.mark.requirement("tools.agents-talk")
async def test_an_agent_is_told_of_as_executing_while_its_task_is_known_to_run(desk: TaskDesk) -> None:
    async def executes() -> bool:
        ((_, who),) = await ListReaders(desk.ports)(caller_named("ann"), [id16("bob")])
        return who.executing

    first, second = [await desk.assign("ann", "bob") for _ in range(2)]
    assert not await executes(), "what waits in a queue is not executed"
    await desk.start_task("bob", first)
    assert await executes()
    await desk.cancel("ann", first)
    assert await executes(), "it was asked to stop, and has not stopped"
    await desk.finish_cancel("bob", first)
    assert not await executes()
    await desk.start_task("bob", second)
    await desk.open("bob", 2)
    assert not await executes(), "whether its earlier life still runs it is not known"
