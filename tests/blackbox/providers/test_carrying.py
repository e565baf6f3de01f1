"""Records enter running conversations, and what comes of them comes back: real processes, the scripted program."""

from __future__ import annotations

import asyncio

import pytest

from fencepost.errors import Refused
from fencepost.mailbox.v1 import mailbox_pb2 as mailbox_pb
from fencepost.providers.v1 import providers_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2 as sessions_pb
from fencepost_testing.carried import Carried, until

VISIBLE = mailbox_pb.DELIVERY_STATE_VISIBLE
ADMITTED = mailbox_pb.DELIVERY_STATE_ADMITTED
ACCEPTED = mailbox_pb.DELIVERY_STATE_ACCEPTED


@pytest.mark.requirement("providers.a-request-becomes-a-turn-and-its-final-words-the-answer")
async def test_a_request_becomes_a_turn_and_its_final_words_the_answer(carried: Carried) -> None:
    await carried.create("worker")
    asked = await carried.request("worker", "COMMENTARY thinking\nSAY the build is green")
    answer = await carried.answered(asked)
    assert (answer.body, answer.reply_status) == ("the build is green", mailbox_pb.REPLY_STATUS_DONE)
    assert answer.origin == mailbox_pb.ORIGIN_AUTOMATIC
    assert [ran.record_id for ran in carried.executions("worker")] == [asked]
    found = await carried.explain(asked)
    assert found.binding.state == mailbox_pb.BINDING_STATE_PUBLISHED
    assert found.binding.provider_turn_id == carried.executions("worker")[0].turn_id


@pytest.mark.requirement("providers.information-is-shown-without-a-turn")
async def test_information_is_shown_without_a_turn_and_before_the_work_that_came_after_it(carried: Carried) -> None:
    await carried.create("worker", desired=sessions_pb.DESIRED_STATE_OFF)
    told = [await carried.inform("worker", f"fact {number}") for number in range(3)]
    asked = await carried.request("worker", "SAY done")
    await carried.want("worker", sessions_pb.DESIRED_STATE_ON)
    await carried.answered(asked)
    for record_id in told:
        await carried.delivered(record_id, VISIBLE)
    assert [ran.record_id for ran in carried.executions("worker")] == [asked]
    shown = [fact.sequence for one in told for fact in (await carried.explain(one)).facts if fact.fact == "visible"]
    (taken,) = [fact.sequence for fact in (await carried.explain(asked)).facts if fact.fact == "claimed"]
    assert max(shown) < taken


@pytest.mark.requirement("providers.information-never-joins-a-turn-that-carries-a-request")
async def test_information_waits_while_a_turn_carries_a_request_and_is_shown_after_it(carried: Carried) -> None:
    await carried.create("worker")
    asked = await carried.request("worker", "WAIT go\nSAY done")
    await carried.delivered(asked, ACCEPTED)
    told = await carried.inform("worker", "by the way")
    steered = await carried.request("worker", "SAY both")
    await carried.executed("worker", steered)
    assert (await carried.explain(told)).record.delivery_state == ADMITTED
    carried.open_gate("worker", "go")
    await carried.delivered(told, VISIBLE)


@pytest.mark.requirement("providers.work-joins-a-running-turn-and-shares-its-final")
async def test_work_joins_the_running_turn_and_each_request_gets_its_final(carried: Carried) -> None:
    await carried.create("worker")
    first = await carried.request("worker", "WAIT go\nSAY first")
    ran = await carried.executed("worker", first)
    second = await carried.request("worker", "SAY shared")
    joined = await carried.executed("worker", second)
    assert (joined.turn_id, joined.mode) == (ran.turn_id, "steer")
    carried.open_gate("worker", "go")
    answers = [(await carried.answered(one)).body for one in (first, second)]
    assert answers == ["shared", "shared"]


@pytest.mark.requirement("providers.work-can-wait-for-the-end-of-a-turn")
async def test_work_waits_for_the_turns_end_where_a_person_wants_it_so(carried: Carried) -> None:
    await carried.create("worker", deliver_when_active=sessions_pb.DELIVER_WHEN_ACTIVE_AFTER_TURN)
    first = await carried.request("worker", "WAIT go\nSAY first")
    ran = await carried.executed("worker", first)
    second = await carried.request("worker", "SAY second")
    carried.open_gate("worker", "go")
    assert (await carried.answered(second)).body == "second"
    after = await carried.executed("worker", second)
    assert (after.mode, after.turn_id != ran.turn_id) == ("start", True)


@pytest.mark.requirement("providers.a-proof-of-no-submission-returns-work-and-it-is-delivered-later")
async def test_work_that_a_stale_turn_refused_is_given_back_and_delivered_later(carried: Carried) -> None:
    await carried.create("worker")
    carried.script("worker", works=[{"match": "second", "do": ["MISBEHAVE stale_turn"]}])
    first = await carried.request("worker", "WAIT go\nSAY first")
    await carried.executed("worker", first)
    second = await carried.request("worker", "SAY second")

    async def released() -> bool:
        return "released" in await carried.facts(second)

    await until(released, "the release of what was refused")
    carried.script("worker")
    carried.open_gate("worker", "go")
    assert (await carried.answered(second)).body == "second"
    assert [ran.record_id for ran in carried.executions("worker")] == [first, second]


@pytest.mark.requirement("providers.off-and-paused-hold-work")
async def test_off_and_paused_hold_work_until_a_person_wants_otherwise(carried: Carried) -> None:
    await carried.create("worker")
    before = await carried.ready("worker")
    await carried.want("worker", sessions_pb.DESIRED_STATE_PAUSED)
    # The directory is followed in order: who is kept after the pause was told proves that it was heard.
    await carried.create("other")
    await carried.ready("other")
    paused = await carried.request("worker", "SAY after the pause")
    # Somebody else's work passes meanwhile: what is held is held, not late.
    assert (await carried.answered(await carried.request("other", "SAY mine"))).body == "mine"
    assert (await carried.explain(paused)).record.delivery_state == ADMITTED
    assert (await carried.runtime("worker")).generation == before.generation
    await carried.want("worker", sessions_pb.DESIRED_STATE_OFF)

    async def off() -> bool:
        return (await carried.runtime("worker")).state == pb.RUNTIME_STATE_OFF

    await until(off, "the worker being off")
    assert (await carried.status("worker")).state == sessions_pb.OBSERVED_STATE_OFF
    assert (await carried.explain(paused)).record.delivery_state == ADMITTED
    await carried.want("worker", sessions_pb.DESIRED_STATE_ON)
    assert (await carried.answered(paused)).body == "after the pause"
    after = await carried.runtime("worker")
    assert (after.conversation_id, after.generation > before.generation) == (before.conversation_id, True)


@pytest.mark.requirement("providers.a-definite-failure-to-start-is-answered-by-the-host")
async def test_work_for_a_program_that_cannot_be_started_is_answered_as_failed_and_later_work_tries_again(
    carried: Carried,
) -> None:
    agent_id = await carried.create("worker", provider="nothing-of-that-name")
    asked = await carried.request("worker", "SAY never")
    answer = await carried.answered(asked)
    assert (answer.reply_status, answer.origin) == (mailbox_pb.REPLY_STATUS_FAILED, mailbox_pb.ORIGIN_HOST)
    assert "unknown_provider" in answer.body
    found = await carried.runtime("worker")
    assert found.state == pb.RUNTIME_STATE_FAILED
    assert "nothing-of-that-name" in found.problem
    inspected = await carried.providers.inspect_runtime(agent_id)
    assert {one.code for one in inspected.findings} >= {"not_running", "unknown_provider"}
    await carried.want("worker", sessions_pb.DESIRED_STATE_ON, provider="scripted")
    assert (await carried.answered(await carried.request("worker", "SAY at last"))).body == "at last"
    assert asked not in {ran.record_id for ran in carried.executions("worker")}


@pytest.mark.requirement("providers.an-interruption-hits-the-exact-observed-turn")
async def test_an_interruption_hits_exactly_the_observed_turn_and_the_conversation_stays(carried: Carried) -> None:
    agent_id = await carried.create("worker")
    asked = await carried.request("worker", "HANG")
    ran = await carried.executed("worker", asked)
    with pytest.raises(Refused) as refused:
        await carried.providers.interrupt_turn(pb.InterruptTurnRequest(target=agent_id, turn_id="another"))
    assert (refused.value.reason, refused.value.state["turn_id"]) == ("stale_turn", ran.turn_id)
    done = await carried.providers.interrupt_turn(pb.InterruptTurnRequest(target=agent_id, turn_id=ran.turn_id))
    assert (done.interruption, done.turn_id) == (pb.INTERRUPTION_CONFIRMED, ran.turn_id)
    answer = await carried.answered(asked)
    assert (answer.reply_status, answer.origin) == (mailbox_pb.REPLY_STATUS_BLOCKED, mailbox_pb.ORIGIN_HOST)
    again = await carried.providers.interrupt_turn(pb.InterruptTurnRequest(target=agent_id))
    assert again.interruption == pb.INTERRUPTION_NOTHING
    assert (await carried.answered(await carried.request("worker", "SAY still here"))).body == "still here"


@pytest.mark.requirement("providers.a-dead-program-loses-its-turns-and-the-conversation-goes-on")
async def test_a_program_that_dies_loses_its_turn_and_a_new_life_goes_on_with_the_conversation(
    carried: Carried,
) -> None:
    await carried.create("worker")
    before = await carried.ready("worker")
    asked = await carried.request("worker", "WAIT go\nDIE 9")
    await carried.delivered(asked, ACCEPTED)
    carried.open_gate("worker", "go")
    await carried.delivered(asked, mailbox_pb.DELIVERY_STATE_UNCERTAIN)
    after = await carried.ready("worker", after_generation=before.generation)
    assert after.conversation_id == before.conversation_id
    assert (await carried.answered(await carried.request("worker", "SAY back"))).body == "back"
    assert [ran.record_id for ran in carried.executions("worker")].count(asked) == 1


@pytest.mark.requirement("providers.a-lost-lease-ends-and-joins-the-child")
async def test_a_lease_that_is_lost_ends_the_child_and_another_life_follows(carried: Carried) -> None:
    agent_id = await carried.create("worker")
    before = await carried.ready("worker")
    (lease,) = (await carried.sessions.list_leases(agent_id)).leases
    assert lease.kind == sessions_pb.LEASE_KIND_BACKGROUND
    await carried.sessions.release_lease(lease.acquisition_id)
    after = await carried.ready("worker", after_generation=before.generation)
    assert after.pid != before.pid
    (next_lease,) = (await carried.sessions.list_leases(agent_id)).leases
    assert next_lease.fence > lease.fence


@pytest.mark.requirement("providers.a-restart-replays-nothing-and-keeps-the-conversation")
async def test_a_restart_keeps_the_conversation_and_a_new_one_is_begun_only_on_a_persons_word(
    carried: Carried,
) -> None:
    agent_id = await carried.create("worker")
    await carried.answered(await carried.request("worker", "SAY one"))
    first = await carried.runtime("worker")
    ask = pb.RestartRuntimeRequest(agent_id=agent_id, wait_ms=20_000)
    second = (await carried.providers.restart_runtime(ask)).runtime
    assert (second.state, second.conversation_id) == (pb.RUNTIME_STATE_READY, first.conversation_id)
    assert second.generation > first.generation
    wrong = pb.BeginConversationRequest(agent_id=agent_id, expected_conversation_id="another")
    with pytest.raises(Refused) as refused:
        await carried.providers.begin_conversation(wrong)
    assert refused.value.reason == "conversation_conflict"
    fresh = pb.BeginConversationRequest(
        agent_id=agent_id, expected_conversation_id=second.conversation_id, wait_ms=20_000
    )
    third = (await carried.providers.begin_conversation(fresh)).runtime
    assert third.conversation_id not in {"", second.conversation_id}
    assert len(carried.executions("worker")) == 1
    found = await carried.sessions.get_agent(sessions_pb.GetAgentRequest(target=agent_id))
    assert found.agent.conversation_id == third.conversation_id


@pytest.mark.requirement("providers.a-watch-shows-a-conversation-in-one-shape")
async def test_a_watch_shows_what_happens_from_a_position_on(carried: Carried) -> None:
    agent_id = await carried.create("worker")
    await carried.answered(await carried.request("worker", "SAY one"))
    kept: list[pb.WatchConversationResponse] = []
    async with asyncio.timeout(20):
        async for row in carried.providers.watch_conversation(pb.WatchConversationRequest(agent_id=agent_id)):
            kept.append(row)
            if row.kind == pb.ROW_KIND_ASSISTANT:
                break
    assert [row.position for row in kept] == sorted(row.position for row in kept)
    assert kept[-1].text == "one"
    assert any(row.kind == pb.ROW_KIND_STATUS and row.name == "processing" for row in kept)
    second = await carried.request("worker", "SAY two")
    async with asyncio.timeout(20):
        ask = pb.WatchConversationRequest(agent_id=agent_id, after=kept[-1].position)
        async for row in carried.providers.watch_conversation(ask):
            assert row.position > kept[-1].position
            if row.kind == pb.ROW_KIND_ASSISTANT:
                assert row.text == "two"
                break
    await carried.answered(second)


@pytest.mark.requirement("providers.what-was-given-back-is-back-before-more-is-taken")
async def test_twenty_requests_that_race_the_ends_of_turns_are_each_executed_once_and_answered(
    carried: Carried,
) -> None:
    await carried.create("worker")
    await carried.ready("worker")
    asked = await asyncio.gather(
        *(carried.request("worker", f"SLEEP {number % 5}\nSAY {number}") for number in range(20))
    )
    answers = await asyncio.gather(*(carried.answered(one) for one in asked))
    assert {answer.reply_status for answer in answers} == {mailbox_pb.REPLY_STATUS_DONE}
    assert sorted(ran.record_id for ran in carried.executions("worker")) == sorted(asked)


@pytest.mark.requirement("providers.no-edge-is-missed")
async def test_after_all_of_it_nothing_was_left_for_the_sweep_and_nothing_in_the_outbox(carried: Carried) -> None:
    await carried.create("worker")
    for number in range(5):
        await carried.answered(await carried.request("worker", f"SAY {number}"))

    async def empty() -> bool:
        return (await carried.providers.describe()).outbox == 0

    await until(empty, "an empty outbox")
    assert (await carried.providers.describe()).swept == 0
