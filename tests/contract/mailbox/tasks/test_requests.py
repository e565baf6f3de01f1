"""A request id: the same call again gives the first result, another is refused, and a lost answer is settled."""

from __future__ import annotations

import pytest

from fencepost_kit.ids import uuid_text
from fencepost_mailbox.domain.idempotency import KeyVerdict
from fencepost_mailbox.domain.refusals import KeyCancelled, NotFound
from fencepost_mailbox.domain.tasks.refusals import AlreadyRunning, RequestConflict
from fencepost_mailbox.domain.tasks.values import Action, State
from fencepost_testing.mailboxes import id16
from fencepost_testing.task_desk import TaskDesk


@pytest.mark.requirement("tasks.the-same-request-gives-the-first-result")
async def test_the_same_call_again_gives_its_first_result_whatever_happened_since(desk: TaskDesk) -> None:
    one, two, three = id16("one"), id16("two"), id16("three")
    first = await desk.assigning("ann", "bob", request_id=one)
    task_id = first.event.task_id
    started = await desk.start_task("bob", task_id, request_id=two)
    await desk.submit("bob", task_id, request_id=three)
    await desk.accept("ann", task_id)
    for again, was in (
        (await desk.assigning("ann", "bob", request_id=one), first),
        (await desk.start_task("bob", task_id, request_id=two), started),
    ):
        assert again.duplicate
        assert again.event == was.event
    assert started.event.to_state is State.RUNNING
    assert desk.actions(task_id) == [Action.ASSIGN, Action.START, Action.SUBMIT, Action.ACCEPT]
    assert len((await desk.listed("ann")).tasks) == 1


@pytest.mark.requirement("tasks.the-same-request-gives-the-first-result")
async def test_other_content_under_the_same_request_id_is_refused(desk: TaskDesk) -> None:
    one = id16("one")
    task_id = await desk.assign("ann", "bob", request_id=one)
    for asked in (
        desk.assigning("ann", "dan", request_id=one),
        desk.assigning("ann", "bob", request_id=one, acceptance="other"),
        desk.assigning("ann", "bob", request_id=one, after=[task_id]),
        desk.cancel("ann", task_id, request_id=one),
    ):
        with pytest.raises(RequestConflict):
            await asked
    assert desk.actions(task_id) == [Action.ASSIGN]
    assert await desk.assign("dan", "bob", request_id=one) != task_id, "request ids are each caller's own"


async def test_a_call_that_was_refused_may_be_made_again_under_its_request_id(desk: TaskDesk) -> None:
    first, second = await desk.assign("ann", "bob"), await desk.assign("ann", "bob")
    await desk.start_task("bob", first)
    one = id16("one")
    with pytest.raises(AlreadyRunning):
        await desk.start_task("bob", second, request_id=one)
    await desk.submit("bob", first)
    assert not (await desk.start_task("bob", second, request_id=one)).duplicate


async def test_a_request_id_counts_before_the_name_that_its_call_gave(desk: TaskDesk) -> None:
    one, two = id16("one"), id16("two")
    task_id = await desk.assign("ann", "bob", request_id=one)
    await desk.reassign("ann", task_id, "dan", request_id=two)
    desk.agents.refusing = NotFound("renamed since")
    assert (await desk.assigning("ann", "bob", request_id=one)).duplicate
    assert (await desk.reassign("ann", task_id, "dan", request_id=two)).duplicate
    with pytest.raises(NotFound):
        await desk.assigning("ann", "bob")
    with pytest.raises(NotFound):
        await desk.reassign("ann", task_id, "dan")


async def test_a_deadline_that_has_passed_since_refuses_no_repeat(desk: TaskDesk) -> None:
    deadline, one = desk.clock.now_ms() + 1000, id16("one")
    await desk.assign("ann", "bob", start_deadline_ms=deadline, request_id=one)
    await desk.pass_time(5000)
    assert (await desk.assigning("ann", "bob", start_deadline_ms=deadline, request_id=one)).duplicate


@pytest.mark.requirement("tasks.a-lost-answer-is-settled")
async def test_a_lost_answer_is_settled_once_and_for_all(desk: TaskDesk) -> None:
    one, two = id16("one"), id16("two")
    change = await desk.assigning("ann", "bob", request_id=one)
    assert await desk.settle_task("ann", one) == (KeyVerdict.WRITTEN, change.event)
    assert await desk.settle_task("ann", two) == (KeyVerdict.CANCELLED, None)
    assert await desk.settle_task("ann", two) == (KeyVerdict.CANCELLED, None)
    with pytest.raises(KeyCancelled):
        await desk.assigning("ann", "bob", request_id=two)
    assert await desk.settle_task("ann", one, epoch=uuid_text(id16("another store"))) == (None, None)
    assert await desk.settle_task("dan", one) == (KeyVerdict.CANCELLED, None)
    theirs = await desk.assigning("operator", "bob", request_id=one)
    assert await desk.settle_task("operator", one) == (KeyVerdict.WRITTEN, theirs.event)
