"""Services die in the middle of carrying: nothing is executed twice, no reply is lost, what is not known says so."""

from __future__ import annotations

import asyncio
import signal
import uuid

import pytest

from fencepost.home import MAILBOX, PROVIDERS
from fencepost.mailbox.v1 import mailbox_pb2 as mailbox_pb
from fencepost.mailbox.v1 import tasks_pb2 as tasks_pb
from fencepost_testing.carried import Carried, until

ACCEPTED = mailbox_pb.DELIVERY_STATE_ACCEPTED
UNCERTAIN = mailbox_pb.DELIVERY_STATE_UNCERTAIN

# Every place at which the carrier can die between a claim and its publication, and whether the turn of the request that
# was on its way can have been seen to end: where not, it is uncertain.
POINTS = {
    "providers.intent.written": "uncertain",
    "providers.submit.returned": "uncertain",
    "providers.outcome.stored": "uncertain",
    "providers.mailbox.told": "uncertain",
    "providers.turn.ended": "uncertain",
    "providers.turn.recorded": "answered",
}


@pytest.mark.requirement("providers.a-kill-never-executes-twice-and-never-hides-what-is-not-known")
@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_at_each_point_executes_nothing_twice_and_hides_nothing(fragile: Carried, point: str) -> None:
    services = fragile.services
    await fragile.create("worker")
    before = await fragile.ready("worker")
    # The program dies with the carrier: a new life needs the fault disarmed.
    await services.restart(PROVIDERS, env={"FENCEPOST_FAULTS": f"{point}=kill"})
    await fragile.ready("worker", after_generation=before.generation)
    if point.startswith("providers.turn."):
        fragile.open_gate("worker", "go")
    asked = await fragile.request("worker", "WAIT go\nSAY once")
    assert await asyncio.to_thread(services.join, PROVIDERS) == -signal.SIGKILL
    await services.start(PROVIDERS)
    if POINTS[point] == "answered":
        assert (await fragile.answered(asked)).body == "once"
    else:
        await fragile.delivered(asked, UNCERTAIN)
        assert "uncertain" in await fragile.facts(asked)
    # Later work is carried, in the same conversation, and what was uncertain is still there only once.
    later = await fragile.request("worker", "SAY later")
    assert (await fragile.answered(later)).body == "later"
    after = await fragile.runtime("worker")
    assert after.conversation_id == before.conversation_id
    ran = [one.record_id for one in fragile.executions("worker")]
    assert ran.count(asked) <= 1
    assert ran.count(later) == 1
    assert (point == "providers.intent.written") == (ran.count(asked) == 0)


@pytest.mark.requirement("wakes.never-a-second-turn-for-one")
@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_at_each_point_of_a_wake_up_begins_no_second_turn_for_it(fragile: Carried, point: str) -> None:
    services = fragile.services
    await fragile.create("worker")
    before = await fragile.ready("worker")
    fragile.script("worker", default=["WAIT go", "SAY done"])
    await services.restart(PROVIDERS, env={"FENCEPOST_FAULTS": f"{point}=kill"})
    doomed = await fragile.ready("worker", after_generation=before.generation)
    if point.startswith("providers.turn."):
        fragile.open_gate("worker", "go")
    task = await fragile.assign("worker")
    assert await asyncio.to_thread(services.join, PROVIDERS) == -signal.SIGKILL
    await services.start(PROVIDERS)
    (killed,) = await fragile.wake_ups("worker")

    async def is_over() -> bool:
        return (await fragile.explain(killed.record_id)).record.answer_state == mailbox_pb.ANSWER_STATE_CLOSED

    await until(is_over, "the wake-up being over")
    state = ACCEPTED if POINTS[point] == "answered" else UNCERTAIN
    assert (await fragile.explain(killed.record_id)).record.delivery_state == state
    # What comes next wakes at once. It tells of the old too, and names the one of which nobody knows. The worker's own
    # call needs the credential of its next life.
    await fragile.ready("worker", after_generation=doomed.generation)
    fragile.open_gate("worker", "go")
    submitted = await fragile.assign("sender", sender="worker")
    sender = fragile.tasks("sender")
    await sender.start(tasks_pb.StartTaskRequest(task_id=submitted, revision=1, request_id=str(uuid.uuid4())))
    await sender.submit(
        tasks_pb.SubmitTaskRequest(
            task_id=submitted, revision=1, result="r", evidence="e", request_id=str(uuid.uuid4())
        )
    )

    async def next_one() -> mailbox_pb.Record | None:
        found = await fragile.wake_ups("worker")
        return found[1] if len(found) > 1 else None

    following = (await fragile.mailbox.get_record((await until(next_one, "another wake-up")).record_id)).record
    assert (task in following.body, submitted in following.body) == (True, True)
    assert (killed.record_id in following.body) == (state == UNCERTAIN)
    await fragile.executed("worker", following.record_id)
    ran = [one.record_id for one in fragile.executions("worker")]
    assert ran.count(following.record_id) == 1
    assert ran.count(killed.record_id) == (0 if point == "providers.intent.written" else 1)


@pytest.mark.requirement("wakes.known-again-after-a-restart")
async def test_an_agent_is_woken_for_what_came_while_its_services_were_away(fragile: Carried) -> None:
    services = fragile.services
    await fragile.create("worker")
    await fragile.ready("worker")
    await asyncio.to_thread(services.stop, PROVIDERS)
    tasks = [await fragile.assign("worker") for _ in range(3)]
    services.kill(MAILBOX)
    await services.start(MAILBOX)
    await services.start(PROVIDERS)

    async def woken() -> list[mailbox_pb.Record]:
        return await fragile.wake_ups("worker")

    (only,) = await until(woken, "a wake-up")
    await fragile.executed("worker", only.record_id)
    whole = (await fragile.mailbox.get_record(only.record_id)).record
    assert (tasks[0] in whole.body, tasks[1] in whole.body) == (True, False), "the first of the queue can be started"
    assert [one.record_id for one in fragile.executions("worker")] == [only.record_id]


@pytest.mark.requirement("providers.outcomes-wait-while-the-mailbox-is-away")
async def test_the_end_of_a_turn_waits_in_the_outbox_while_the_mailbox_is_away(fragile: Carried) -> None:
    await fragile.create("worker")
    asked = await fragile.request("worker", "WAIT go\nSAY kept")
    await fragile.delivered(asked, ACCEPTED)
    fragile.services.kill(MAILBOX)
    fragile.open_gate("worker", "go")

    async def waits() -> bool:
        return (await fragile.providers.describe()).outbox == 1

    await until(waits, "the outcome in the outbox")
    # It outlives the carrier as well.
    await fragile.services.restart(PROVIDERS)
    assert (await fragile.providers.describe()).outbox == 1
    await fragile.services.start(MAILBOX)
    assert (await fragile.answered(asked)).body == "kept"


@pytest.mark.requirement("providers.a-restart-adopts-nothing-by-guess")
async def test_a_carrier_that_starts_again_loses_the_turns_of_before_and_begins_a_new_life(fragile: Carried) -> None:
    await fragile.create("worker")
    asked = await fragile.request("worker", "HANG")
    await fragile.delivered(asked, ACCEPTED)
    before = await fragile.runtime("worker")
    await fragile.services.restart(PROVIDERS)
    await fragile.delivered(asked, UNCERTAIN)
    after = await fragile.ready("worker", after_generation=before.generation)
    assert (after.conversation_id, after.pid != before.pid) == (before.conversation_id, True)
    assert (await fragile.explain(asked)).binding.state == mailbox_pb.BINDING_STATE_UNCERTAIN
    assert [ran.record_id for ran in fragile.executions("worker")] == [asked]
    assert (await fragile.answered(await fragile.request("worker", "SAY new"))).body == "new"
