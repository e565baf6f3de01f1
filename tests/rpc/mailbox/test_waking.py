"""Wake-ups and events of tasks over a real socket: what a dispatcher is told and takes, and who watches what."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from typing import Any

import pytest

from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost.mailbox.v1 import tasks_pb2 as tasks
from fencepost_mailbox.domain.tasks.waking import WAKE_AGAIN_MS
from fencepost_testing.mailboxes import PROJECT, until
from fencepost_testing.served_mailbox import ServedMailbox, uuid_of

_numbers = itertools.count(1)
BINDING = pb.Binding(
    provider="scripted", provider_session_id="s", provider_turn_id="t", admission_mode=pb.ADMISSION_MODE_START
)


def request_id() -> str:
    return str(uuid.UUID(int=next(_numbers)))


async def assign(served: ServedMailbox, issuer: str, to: str) -> str:
    ask = tasks.AssignTaskRequest(
        to=to, description="do it", acceptance="it is done", request_id=request_id(), project_id=""
    )
    if issuer == "operator":
        ask.project_id = str(uuid.UUID(bytes=PROJECT))
    change = (await served.call(issuer, "AssignTask", ask)).change
    return str(change.task_id)


def a_claim(kind: pb.ClaimKind.ValueType) -> pb.ClaimRequest:
    return pb.ClaimRequest(
        agent_id=uuid_of("bob"),
        generation=1,
        dispatcher_id=uuid_of("d"),
        incarnation=1,
        kind=kind,
        idempotency_key=request_id(),
    )


@pytest.mark.requirement("wakes.an-idle-agent-gets-one-turn")
async def test_a_dispatcher_is_told_of_a_wake_up_takes_it_and_tells_how_its_turn_ended(served: ServedMailbox) -> None:
    stream = served.stub.WatchWork(
        pb.WatchWorkRequest(dispatcher_id=uuid_of("d")), metadata=served.metadata("service"), timeout=10
    )
    assert (await stream.read()).caught_up
    task_id = await assign(served, "ann", "bob")
    told = await stream.read()
    assert (told.agent_id, told.requests, told.context, told.wake, told.stop) == (
        uuid_of("bob"),
        False,
        False,
        True,
        False,
    )
    claim = (await served.call("service", "Claim", a_claim(pb.CLAIM_KIND_WAKE))).claim
    record = claim.record
    assert record.record_id.startswith("wak_")
    assert (record.kind, record.origin, record.HasField("sender")) == (pb.RECORD_KIND_WAKE, pb.ORIGIN_HOST, False)
    assert task_id in record.body
    accepted = pb.FinishRequest(
        token=claim.token,
        generation=1,
        outcome=pb.CLAIM_OUTCOME_ACCEPTED,
        evidence="seen",
        binding=BINDING,
    )
    await served.call("service", "Finish", accepted)
    assert not (await served.call("service", "Claim", a_claim(pb.CLAIM_KIND_WAKE))).HasField("claim")
    ended = await served.call(
        "service",
        "RecordOutcome",
        pb.RecordOutcomeRequest(
            token=claim.token,
            generation=1,
            binding=BINDING,
            outcome=pb.TURN_OUTCOME_COMPLETED,
            final_text="done",
            evidence="end",
        ),
    )
    assert (ended.record_id, ended.reply_id) == (record.record_id, "")
    explained = await served.call("operator", "Explain", pb.ExplainRequest(record_id=record.record_id))
    assert explained.summary.startswith("The wake-up is taken by the recipient's provider")
    assert "told again by another, a few times" in explained.summary
    # After its pause the background work of the mailbox tells of it again.
    await served.clock.advance(WAKE_AGAIN_MS[0] / 1000)
    await served.mailbox.wake_again()
    again = await stream.read()
    while not again.wake:
        again = await stream.read()
    assert again.agent_id == uuid_of("bob")
    stream.cancel()
    await until(lambda: not served.mailbox.work.watchers)


def watch(served: ServedMailbox, who: str, **facts: Any) -> Any:
    return served.stub.WatchEvents(
        pb.WatchEventsRequest(tasks=True, **facts), metadata=served.metadata(who), timeout=10
    )


async def events(stream: Any) -> list[pb.WatchEventsResponse]:
    """Everything up to the mark, and the stream is ended."""
    found = []
    async with asyncio.timeout(10):
        while not (event := await stream.read()).caught_up:
            found.append(event)
    stream.cancel()
    return found


@pytest.mark.requirement("mailbox.events-of-tasks-are-told-as-the-task-is-shown")
async def test_events_of_tasks_stand_among_those_of_records_in_commit_order(served: ServedMailbox) -> None:
    await served.send("ann", "bob", "first")
    task_id = await assign(served, "ann", "bob")
    await served.send("ann", "bob", "second")
    await served.call("bob", "StartTask", tasks.StartTaskRequest(task_id=task_id, revision=1, request_id=request_id()))
    found = await events(watch(served, "operator"))
    assert [one.record.body if one.HasField("record") else one.task_event.action for one in found] == [
        "first",
        tasks.TASK_ACTION_ASSIGN,
        "second",
        tasks.TASK_ACTION_START,
    ]
    assert [one.position for one in found] == sorted({one.position for one in found})
    (assigned,) = [one for one in found if one.task_event.action == tasks.TASK_ACTION_ASSIGN]
    assert assigned.task_event.sequence == assigned.position
    assert (assigned.task.task_id, assigned.task.state) == (task_id, tasks.TASK_STATE_RUNNING), "as it stands now"
    behind = await events(watch(served, "operator", after=assigned.position))
    assert [one.position for one in behind] == [one.position for one in found[2:]]
    plain = served.stub.WatchEvents(pb.WatchEventsRequest(), metadata=served.metadata("operator"), timeout=10)
    assert [one.record.body for one in await events(plain)] == ["first", "second"], "only where they were asked for"


@pytest.mark.requirement("mailbox.events-of-tasks-are-told-as-the-task-is-shown")
async def test_an_agent_is_told_what_happens_to_tasks_that_it_may_see_and_to_no_others(served: ServedMailbox) -> None:
    seen = await assign(served, "ann", "bob")
    hidden = await assign(served, "operator", "ann")
    assert {one.task.task_id for one in await events(watch(served, "bob"))} == {seen}
    assert {one.task.task_id for one in await events(watch(served, "ann"))} == {seen, hidden}
    assert {one.task.task_id for one in await events(watch(served, "cyd"))} == {seen, hidden}, "a coordinator"
    of_bob = await events(watch(served, "operator", agent_id=uuid_of("bob")))
    assert {one.task.task_id for one in of_bob} == {seen}
    # What becomes true later comes by itself.
    stream = watch(served, "bob", after=-1)
    assert (await stream.read()).caught_up
    later = await assign(served, "ann", "bob")
    assert (await stream.read()).task.task_id == later
    stream.cancel()
