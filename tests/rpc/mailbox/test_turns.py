"""Turns, prompts and people's words over a real socket."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from fencepost.common.v1 import common_pb2 as common
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost_kit import faults
from fencepost_kit.ids import uuid_text
from fencepost_mailbox.domain.values import HOPS_MAX, WAIT_MS_MAX, Desired
from fencepost_testing.mailboxes import OTHER_PROJECT, PROJECT, an_agent, until
from fencepost_testing.served_mailbox import CALL_S_MAX, Refusal, ServedMailbox, uuid_of

S = grpc.StatusCode


async def refused(call: Any) -> Refusal:
    with pytest.raises(Refusal) as answer:
        await call
    assert answer.value.detail.effect == common.EFFECT_NOT_WRITTEN
    return answer.value


async def explained(served: ServedMailbox, record_id: str, who: str = "operator") -> Any:
    return await served.call(who, "Explain", pb.ExplainRequest(record_id=record_id))


@pytest.mark.requirement("mailbox.final-words-answer", "mailbox.binding-and-acceptance-are-one")
async def test_a_bound_turn_answers_its_requester_with_its_final_words(served: ServedMailbox) -> None:
    asked = await served.request("ann", "bob", "work")
    held = await served.bound("bob")
    waiting = asyncio.ensure_future(served.call("ann", "Wait", pb.WaitRequest(timeout_ms=WAIT_MS_MAX)))
    await until(lambda: served.mailbox.waits.parked == 1)
    commits = served.mailbox.store.counters.batches
    ended = await served.end(held.token, "the result")
    assert served.mailbox.store.counters.batches == commits + 1, "the end and its answer are one commit"
    assert (ended.record_id, ended.state) == (asked.request_id, pb.BINDING_STATE_PUBLISHED)
    assert (await waiting).wake_reason == "activity"
    (answer,) = (await served.receive("ann")).records
    assert (answer.record_id, answer.parent_id, answer.body) == (ended.reply_id, asked.request_id, "the result")
    assert (answer.origin, answer.sender.name) == (pb.ORIGIN_AUTOMATIC, "bob")
    shown = await explained(served, asked.request_id, "ann")
    assert (shown.binding.provider, shown.binding.provider_turn_id) == ("scripted", "turn-1")
    assert (shown.binding.state, shown.binding.outcome) == (pb.BINDING_STATE_PUBLISHED, pb.TURN_OUTCOME_COMPLETED)
    assert (shown.binding.final_text, shown.facts_left_out) == ("", 0)
    got = await served.call("ann", "GetRecord", pb.GetRecordRequest(record_id=asked.request_id))
    assert got.binding == shown.binding


@pytest.mark.requirement("mailbox.a-recorded-end-is-published")
async def test_an_answer_that_the_disk_refuses_is_made_good_at_the_next_start(served: ServedMailbox) -> None:
    asked = await served.request("ann", "bob")
    held = await served.bound("bob")
    faults.arm("mailbox.outcome.recorded=error@*")
    try:
        ended = await served.end(held.token, "durable")
    finally:
        faults.arm("")
    assert (ended.state, ended.duplicate, ended.reply_id) == (pb.BINDING_STATE_OUTCOME_RECORDED, False, "")
    assert (await explained(served, asked.request_id)).binding.state == pb.BINDING_STATE_OUTCOME_RECORDED
    await served.restart()
    shown = await explained(served, asked.request_id)
    assert shown.binding.state == pb.BINDING_STATE_PUBLISHED
    again = await served.end(held.token, "durable")
    assert (again.duplicate, again.reply_id) == (True, shown.reply_id)
    assert [record.body for record in (await served.receive("ann")).records] == ["durable"]


@pytest.mark.requirement("mailbox.a-recorded-end-is-published")
async def test_what_is_left_unpublished_is_found_while_the_service_runs(served: ServedMailbox) -> None:
    await served.request("ann", "bob")
    held = await served.bound("bob")
    faults.arm("mailbox.outcome.recorded=error@*")
    try:
        await served.end(held.token, "durable")
    finally:
        faults.arm("")
    waiting = asyncio.ensure_future(served.call("ann", "Wait", pb.WaitRequest(timeout_ms=WAIT_MS_MAX)))
    await until(lambda: served.mailbox.waits.parked == 1)
    async with asyncio.timeout(CALL_S_MAX):
        while not waiting.done():
            await served.clock.advance(1)
    assert (await waiting).wake_reason == "activity"


@pytest.mark.requirement("mailbox.an-end-names-the-exact-turn")
async def test_an_end_of_another_turn_is_stale(served: ServedMailbox) -> None:
    await served.request("ann", "bob")
    held = await served.bound("bob")
    ask = pb.RecordOutcomeRequest(
        token=held.token,
        generation=1,
        binding=served.turn("another"),
        outcome=pb.TURN_OUTCOME_COMPLETED,
        evidence="e",
    )
    stale = await refused(served.call("service", "RecordOutcome", ask))
    assert (stale.status, stale.reason) == (S.ABORTED, "stale_binding")


@pytest.mark.requirement("mailbox.a-dispatcher-is-told-its-open-turns")
async def test_a_dispatcher_that_starts_is_told_its_turns_without_an_end(served: ServedMailbox) -> None:
    asked = await served.request("ann", "bob")
    await served.call("operator", "Prompt", pb.PromptRequest(target="bob", body="hi", idempotency_key="k"))
    held = [await served.bound("bob") for _ in range(2)]
    await served.end(held[0].token, outcome=pb.TURN_OUTCOME_LOST)
    ask = pb.ListBindingsRequest(dispatcher_id=uuid_of("dispatcher"), page_size=1)
    first = await served.call("service", "ListBindings", ask)
    second = await served.call(
        "service",
        "ListBindings",
        pb.ListBindingsRequest(dispatcher_id=uuid_of("dispatcher"), page_token=first.next_page_token),
    )
    assert not second.next_page_token
    (lost,), (runs,) = first.bindings, second.bindings
    assert (lost.record_id, lost.token, lost.agent_id) == (asked.request_id, held[0].token, uuid_of("bob"))
    assert (lost.generation, lost.binding.state) == (1, pb.BINDING_STATE_UNCERTAIN)
    assert (lost.binding.provider_turn_id, lost.binding.admission_mode) == ("turn-1", pb.ADMISSION_MODE_START)
    assert runs.record_id.startswith("prm_")
    assert runs.binding.state == pb.BINDING_STATE_BOUND


@pytest.mark.requirement("mailbox.injected-context-ends-waits")
async def test_injected_context_ends_a_parked_receive_with_its_reason(served: ServedMailbox) -> None:
    await served.send("ann", "bob")
    held = (await served.claim("bob", kind=pb.CLAIM_KIND_CONTEXT)).claim
    reading = asyncio.ensure_future(served.receive("bob", timeout_ms=WAIT_MS_MAX))
    await until(lambda: served.mailbox.waits.parked == 1)
    await served.finish(held.token, pb.CLAIM_OUTCOME_VISIBLE)
    page = await reading
    assert (list(page.records), page.wake_reason, page.timed_out) == ([], "provider_context_available", False)
    assert (page.next_cursor, page.ack_cursor) == ("", "")


# --- people -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.prompts-are-answered-by-their-turn")
async def test_a_prompt_is_completed_by_the_assistants_words(served: ServedMailbox) -> None:
    ask = pb.PromptRequest(target="bob", body="hello", idempotency_key="k")
    receipt = await served.call("operator", "Prompt", ask)
    assert receipt.record_id.startswith("prm_")
    assert (receipt.recipient.name, receipt.delivery_state) == ("bob", pb.DELIVERY_STATE_ADMITTED)
    again = await served.call("operator", "Prompt", ask)
    assert (again.duplicate, again.record_id) == (True, receipt.record_id)
    held = await served.bound("bob")
    assert (held.record.kind, held.record.origin) == (pb.RECORD_KIND_PROMPT, pb.ORIGIN_HUMAN)
    assert not held.record.HasField("sender")
    ended = await served.end(held.token, "hello yourself")
    assert (ended.record_id, ended.reply_id) == (receipt.record_id, "")
    for who in ("operator", "bob"):
        got = await served.call(who, "GetRecord", pb.GetRecordRequest(record_id=receipt.record_id))
        assert (got.record.answer_state, got.binding.final_text) == (pb.ANSWER_STATE_ANSWERED, "hello yourself")
        shown = await explained(served, receipt.record_id, who)
        assert (shown.binding.final_text, shown.reply_id) == ("hello yourself", "")
    assert (await refused(explained(served, receipt.record_id, "ann"))).reason == "not_found"


@pytest.mark.requirement("mailbox.targets-are-exact")
async def test_a_prompt_names_one_agent_of_one_project_or_of_all(served: ServedMailbox) -> None:
    await served.tell(agents=[an_agent("bob", agent_id=b"another bob 1234", project_id=OTHER_PROJECT)])

    def prompt(**fields: Any) -> Any:
        return served.call("operator", "Prompt", pb.PromptRequest(body="x", idempotency_key=served.key(), **fields))

    ambiguous = await refused(prompt(target="bob"))
    assert (ambiguous.status, ambiguous.reason) == (S.INVALID_ARGUMENT, "ambiguous_target")
    mine = await prompt(target="bob", project_id=uuid_text(PROJECT))
    other = await prompt(target="bob", project_id=uuid_text(OTHER_PROJECT))
    assert (mine.recipient.agent_id, other.recipient.agent_id) == (uuid_of("bob"), uuid_text(b"another bob 1234"))
    assert (await prompt(target=uuid_of("bob"))).recipient.agent_id == uuid_of("bob")
    assert (await prompt(target="eve")).recipient.agent_id == uuid_of("eve")
    assert (await refused(prompt(target="Bob"))).reason == "not_found"


@pytest.mark.requirement("mailbox.a-person-settles-only-what-is-uncertain")
async def test_a_person_settles_what_is_uncertain(served: ServedMailbox) -> None:
    asked = await served.request("ann", "bob", "work")
    ask = pb.ResolveDeliveryRequest(
        record_id=asked.request_id, resolution=pb.RESOLUTION_AS_NEW, note="looked", idempotency_key="k"
    )
    early = await refused(served.call("operator", "ResolveDelivery", ask))
    assert (early.status, early.reason) == (S.FAILED_PRECONDITION, "invalid_state")
    held = await served.bound("bob")
    await served.end(held.token, outcome=pb.TURN_OUTCOME_LOST)
    resolved = await served.call("operator", "ResolveDelivery", ask)
    assert resolved.new_record_id.startswith("ask_")
    (answer,) = (await served.receive("ann")).records
    assert (answer.record_id, answer.origin) == (resolved.reply_id, pb.ORIGIN_HUMAN)
    assert resolved.new_record_id in answer.body
    assert (await served.claim("bob")).claim.record.record_id == resolved.new_record_id
    again = await served.call("operator", "ResolveDelivery", ask)
    assert again.duplicate
    assert again.new_record_id == resolved.new_record_id
    shown = await explained(served, asked.request_id)
    assert shown.facts[-1].fact == "resolved"
    assert resolved.new_record_id in shown.facts[-1].evidence
    wrong = pb.ResolveDeliveryRequest(
        record_id="prm_" + asked.request_id[4:], resolution=pb.RESOLUTION_DONE, idempotency_key="other"
    )
    assert (await refused(served.call("operator", "ResolveDelivery", wrong))).reason == "not_found"


@pytest.mark.requirement("mailbox.only-pending-requests-are-withdrawn")
async def test_a_sender_takes_back_what_nobody_has_seen(served: ServedMailbox) -> None:
    asked = await served.request("ann", "bob")
    ask = pb.WithdrawRequest(request_id=asked.request_id)
    assert not (await served.call("ann", "Withdraw", ask)).duplicate
    assert (await served.call("ann", "Withdraw", ask)).duplicate
    assert not (await served.claim("bob")).HasField("claim")
    seen = await served.request("ann", "bob")
    await served.receive("bob")
    late = await refused(served.call("ann", "Withdraw", pb.WithdrawRequest(request_id=seen.request_id)))
    assert (late.status, late.reason) == (S.FAILED_PRECONDITION, "not_pending")
    assert dict(late.detail.state) == {"answer": "open", "delivery": "receiver"}


@pytest.mark.requirement("mailbox.chains-of-requests-end")
async def test_a_chain_of_requests_is_refused_beyond_its_limit(served: ServedMailbox) -> None:
    sender, recipient = "ann", "bob"
    for hops in range(HOPS_MAX + 1):
        asked = await served.request(sender, recipient)
        (record,) = [one for one in (await served.receive(recipient)).records if one.record_id == asked.request_id]
        assert record.hops == hops
        sender, recipient = recipient, sender
    over = await refused(served.request(sender, recipient))
    assert (over.status, over.reason) == (S.FAILED_PRECONDITION, "hop_limit")
    assert over.detail.state["hops_max"] == str(HOPS_MAX)


@pytest.mark.requirement("mailbox.a-reader-is-who-looks-now")
async def test_an_owner_is_told_for_as_long_as_its_dispatcher_watches(served: ServedMailbox) -> None:
    async def reader() -> Any:
        return (await served.send("ann", "bob")).recipient_reader

    report = pb.ReportOwnersRequest(
        dispatcher_id=uuid_of("d"), incarnation=1, owners=[pb.Owner(agent_id=uuid_of("bob"), generation=1)]
    )
    watch = served.stub.WatchWork(
        pb.WatchWorkRequest(dispatcher_id=uuid_of("d")), metadata=served.metadata("service"), timeout=CALL_S_MAX
    )
    stream = aiter(watch)
    assert (await anext(stream)).caught_up
    await served.call("service", "ReportOwners", report)
    assert await reader() == pb.RECIPIENT_READER_NATIVE
    await served.tell(agents=[an_agent("bob", desired=Desired.OFF)])
    assert await reader() == pb.RECIPIENT_READER_OFF
    await served.tell(agents=[an_agent("bob", desired=Desired.ON)])
    assert await reader() == pb.RECIPIENT_READER_NATIVE
    watch.cancel()
    async with asyncio.timeout(CALL_S_MAX):
        while await reader() == pb.RECIPIENT_READER_NATIVE:  # noqa: ASYNC110 - the end of a stream has no event here
            await asyncio.sleep(0)
    assert await reader() == pb.RECIPIENT_READER_NONE
    assert (await refused(served.call("service", "ReportOwners", report))).reason == "invalid_state"


@pytest.mark.requirement("mailbox.the-directory-is-durable-before-it-is-honoured")
async def test_what_a_person_wants_of_an_agent_outlives_a_restart(served: ServedMailbox) -> None:
    await served.tell(agents=[an_agent("cyd", desired=Desired.OFF)])
    await served.stop()
    served.sessions.down = True
    store = served.mailbox.store
    await store.start()
    try:
        _, agents, _ = store.directory()
    finally:
        await store.close()
    assert {agent.name: agent.desired for agent in agents}["cyd"] is Desired.OFF
    served.sessions.down = False
    await served.start()
