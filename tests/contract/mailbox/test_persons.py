"""What people and senders do beside the traffic: prompts, withdrawals, uncertain deliveries, chains that end."""

from __future__ import annotations

import pytest

from fencepost_kit.identity import Caller, Role
from fencepost_mailbox.domain.answers import Resolution
from fencepost_mailbox.domain.bindings import BindingState, TurnOutcome
from fencepost_mailbox.domain.claims import Outcome
from fencepost_mailbox.domain.refusals import (
    AgentDeleted,
    ConflictingReply,
    DirectoryStale,
    HopLimit,
    IdempotencyConflict,
    InvalidLimit,
    InvalidState,
    InvalidTask,
    NotFound,
    NotPending,
    StaleGeneration,
    Unauthorized,
    Withdrawn,
)
from fencepost_mailbox.domain.values import (
    HOPS_MAX,
    NOTE_BYTES_MAX,
    RELEASES_MAX,
    Answer,
    Delivery,
    Desired,
    FactKind,
    Kind,
    Origin,
    Reader,
    Record,
    ReplyStatus,
)
from fencepost_mailbox.usecases.look import Explain, GetRecord, ListReaders
from fencepost_testing.mailboxes import Desk, a_caller, a_turn, id16

F, How = FactKind, TurnOutcome
OPERATOR = Caller(
    credential_id=id16("o"), role=Role.OPERATOR, agent_id=None, project_id=None, generation=1, label="operator"
)


# --- withdrawing ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.only-pending-requests-are-withdrawn")
async def test_a_withdrawn_request_is_nobodys_work_and_takes_no_reply(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    assert await desk.withdraw("ann", request) is False
    assert await desk.withdraw("ann", request) is True
    assert desk.now(request).answer is Answer.WITHDRAWN
    assert desk.facts(request) == [F.WITHDRAWN]
    assert await desk.claim("bob") is None
    page = await desk.receive("bob")
    assert (page.records, page.open_requests) == ([], [])
    with pytest.raises(Withdrawn):
        await desk.reply("bob", request)


@pytest.mark.requirement("mailbox.only-pending-requests-are-withdrawn")
@pytest.mark.parametrize("seen", ["received", "claimed", "accepted", "uncertain", "answered"])
async def test_what_somebody_may_have_seen_is_not_withdrawn_and_its_state_is_told(desk: Desk, seen: str) -> None:
    request = await desk.request("ann", "bob")
    if seen == "received":
        await desk.receive("bob")
    elif seen == "answered":
        await desk.reply("bob", request)
    else:
        held = (await desk.taken("bob")).claim
        if seen != "claimed":
            await desk.finish(held, Outcome.ACCEPTED if seen == "accepted" else Outcome.UNCERTAIN)
    before = desk.now(request)
    with pytest.raises(NotPending) as refused:
        await desk.withdraw("ann", request)
    assert refused.value.state == {"answer": before.answer.name.lower(), "delivery": before.delivery.name.lower()}
    assert desk.now(request) == before


@pytest.mark.requirement("mailbox.only-pending-requests-are-withdrawn")
async def test_a_released_request_can_be_withdrawn_again_and_only_by_its_sender(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    await desk.release((await desk.taken("bob")).claim)
    with pytest.raises(Unauthorized):
        await desk.withdraw("bob", request)
    with pytest.raises(NotFound):
        await desk.withdraw("cyd", request)
    with pytest.raises(InvalidTask):
        await desk.withdraw("ann", (await desk.send("ann", "bob")).record)
    await desk.open("ann", 2)
    with pytest.raises(StaleGeneration):
        await desk.withdraw("ann", request)
    assert await desk.withdraw("ann", request, generation=2) is False


# --- prompts ----------------------------------------------------------------------------------------------------------


async def explained(desk: Desk, record: Record) -> tuple[bytes, str]:
    found = await Explain(desk.ports)(OPERATOR, Kind.PROMPT, record.record_id)
    assert found.binding is not None
    return found.binding.final, found.summary


@pytest.mark.requirement("mailbox.prompts-are-answered-by-their-turn")
async def test_a_prompt_is_work_without_a_sender_and_its_turns_final_words_answer_it(desk: Desk) -> None:
    receipt = await desk.prompt("bob", "how are you?", key="k")
    record = receipt.record
    assert (record.kind, record.sender, record.origin) == (Kind.PROMPT, None, Origin.HUMAN)
    assert (record.delivery, record.answer, receipt.duplicate) == (Delivery.PENDING, Answer.OPEN, False)
    again = await desk.prompt("bob", "how are you?", key="k")
    assert (again.record.record_id, again.duplicate) == (record.record_id, True)
    with pytest.raises(IdempotencyConflict):
        await desk.prompt("bob", "other", key="k")
    taken = await desk.bound("bob")
    assert taken.record.record_id == record.record_id
    recorded = await desk.ended(taken.claim, final="very well")
    assert (recorded.binding.state, recorded.binding.reply_id) == (BindingState.PUBLISHED, None)
    assert desk.now(record).answer is Answer.ANSWERED
    assert desk.facts(record) == [F.CLAIMED, F.ACCEPTED, F.BOUND, F.OUTCOME_RECORDED, F.PUBLISHED]
    final, summary = await explained(desk, record)
    assert final == b"very well"
    assert "final words of that turn" in summary
    for who in (a_caller("bob"), OPERATOR):
        _, binding = await GetRecord(desk.ports)(who, Kind.PROMPT, record.record_id)
        assert binding is not None
        assert binding.final == b"very well"
    for stranger in ("ann", "cyd"):
        with pytest.raises(NotFound):
            await GetRecord(desk.ports)(a_caller(stranger), Kind.PROMPT, record.record_id)


@pytest.mark.requirement("mailbox.prompts-are-answered-by-their-turn")
async def test_prompts_and_requests_stand_in_one_queue(desk: Desk) -> None:
    await desk.request("ann", "bob", "1")
    await desk.prompt("bob", "2")
    await desk.request("ann", "bob", "3")
    assert [(await desk.taken("bob")).record.body for _ in range(3)] == [b"1", b"2", b"3"]


@pytest.mark.requirement("mailbox.prompts-are-answered-by-their-turn")
@pytest.mark.parametrize("end", ["failed", "released", "no words", "interrupted", "turn failed", "lost"])
async def test_a_prompt_without_final_words_is_closed_and_its_facts_say_why(desk: Desk, end: str) -> None:
    record = (await desk.prompt("bob")).record
    if end == "released":
        for _ in range(RELEASES_MAX):
            await desk.release((await desk.taken("bob")).claim)
    elif end == "failed":
        settled = await desk.finish((await desk.taken("bob")).claim, Outcome.FAILED, evidence="program_missing: x")
        assert settled.reply_id is None
    else:
        held = (await desk.bound("bob")).claim
        how = {"no words": How.COMPLETED, "interrupted": How.INTERRUPTED, "turn failed": How.FAILED}.get(end, How.LOST)
        await desk.ended(held, how)
    now = desk.now(record)
    if end == "lost":
        assert (now.delivery, now.answer) == (Delivery.UNCERTAIN, Answer.OPEN)
        return
    assert now.answer is Answer.CLOSED
    assert desk.facts(record)[-1] is (F.ANSWERED_BY_HOST if end in ("failed", "released") else F.PUBLISHED)
    summary = (await Explain(desk.ports)(OPERATOR, Kind.PROMPT, record.record_id)).summary
    assert "closed without final words" in summary


@pytest.mark.requirement("mailbox.prompts-are-answered-by-their-turn")
async def test_an_agent_that_reads_a_prompt_by_itself_closes_it_and_owes_no_reply(desk: Desk) -> None:
    record = (await desk.prompt("bob", "hello")).record
    page = await desk.receive("bob")
    assert [one.body for one in page.records] == [b"hello"]
    assert page.records[0].answer is Answer.CLOSED
    assert page.open_requests == []
    with pytest.raises(InvalidTask):
        await desk.reply("bob", record)
    assert desk.facts(record) == [F.EXPOSED]
    assert await desk.claim("bob") is None
    again = await desk.receive("bob")
    assert [one.record_id for one in again.records] == [record.record_id], "shown until it is acknowledged"
    acknowledged = await desk.receive("bob", ack=again.ack_cursor)
    assert (acknowledged.records, acknowledged.unacknowledged) == ([], 0)
    assert desk.now(record).answer is Answer.CLOSED


@pytest.mark.requirement("mailbox.prompts-are-answered-by-their-turn")
async def test_an_uncertain_prompt_can_be_read_without_being_closed_by_that(desk: Desk) -> None:
    record = (await desk.prompt("bob", "hello")).record
    held = (await desk.bound("bob")).claim
    await desk.ended(held, How.LOST)
    (shown,) = (await desk.receive("bob")).records
    assert (shown.delivery, shown.answer) == (Delivery.UNCERTAIN, Answer.OPEN)
    await desk.ended(held, final="late")
    assert desk.now(record).answer is Answer.ANSWERED


async def test_a_prompt_to_nobody_or_to_the_deleted_is_refused_and_an_open_one_is_closed_with_its_agent(
    desk: Desk,
) -> None:
    record = (await desk.prompt("bob", "hello", key="k")).record
    with pytest.raises(NotFound):
        await desk.prompt("nobody")
    await desk.delete("bob")
    assert desk.now(record).answer is Answer.CLOSED
    with pytest.raises(AgentDeleted):
        await desk.prompt("bob")
    while not await desk.erase("bob"):
        pass
    with pytest.raises(AgentDeleted):
        await desk.prompt("bob", "hello", key="k")


@pytest.mark.requirement("mailbox.a-stale-directory-resolves-no-name")
async def test_a_persons_word_counts_only_while_the_directory_is_heard(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    await desk.finish((await desk.taken("bob")).claim, Outcome.UNCERTAIN)
    desk.agents.stale = True
    for call in (desk.prompt("bob"), desk.resolve(request, Resolution.DONE)):
        with pytest.raises(DirectoryStale):
            await call


# --- settling what is uncertain ---------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.a-person-settles-only-what-is-uncertain")
@pytest.mark.parametrize("resolution", Resolution)
@pytest.mark.parametrize("bound", [False, True])
async def test_a_persons_word_answers_an_uncertain_request(desk: Desk, resolution: Resolution, bound: bool) -> None:
    request = await desk.request("ann", "bob", "the work")
    if bound:
        held = (await desk.bound("bob")).claim
        await desk.ended(held, How.LOST)
    else:
        held = (await desk.taken("bob")).claim
        await desk.finish(held, Outcome.UNCERTAIN)
    resolved = await desk.resolve(request, resolution, "seen in the log", key="k")
    (answer,) = (await desk.receive("ann")).records
    assert (answer.record_id, answer.parent_id) == (resolved.reply_id, request.record_id)
    assert (answer.origin, answer.sender) == (Origin.HUMAN, None)
    assert answer.status is (ReplyStatus.DONE if resolution is Resolution.DONE else ReplyStatus.FAILED)
    assert "seen in the log" in answer.body.decode()
    assert desk.facts(request)[-1] is F.RESOLVED
    again = await desk.resolve(request, resolution, "seen in the log", key="k")
    assert (again.duplicate, again.reply_id, again.new_record_id) == (True, resolved.reply_id, resolved.new_record_id)
    with pytest.raises(IdempotencyConflict):
        await desk.resolve(request, resolution, "other", key="k")
    with pytest.raises(InvalidState):
        await desk.resolve(request, resolution)
    taken = await desk.claim("bob")
    assert (taken is None) is (resolution is not Resolution.AS_NEW)
    if taken is not None:
        assert taken.record.record_id == resolved.new_record_id
        assert (taken.record.body, taken.record.sender) == (b"the work", id16("ann"))
        assert "ask_" + taken.record.record_id.hex() in answer.body.decode()
    with pytest.raises(ConflictingReply):
        await desk.reply("bob", request, "late")


@pytest.mark.requirement("mailbox.a-person-settles-only-what-is-uncertain")
async def test_late_evidence_behind_a_persons_word_is_recorded_and_answers_nobody(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    held = (await desk.bound("bob")).claim
    await desk.open("bob", 2)
    await desk.resolve(request, Resolution.NOT_DONE)
    assert (await desk.ended(held, final="it was done")).binding.state is BindingState.PUBLISHED
    assert len((await desk.receive("ann")).records) == 1
    assert desk.facts(request)[-2:] == [F.RESOLVED, F.OUTCOME_RECORDED]


@pytest.mark.requirement("mailbox.prompts-are-answered-by-their-turn", "mailbox.late-evidence-settles")
async def test_the_final_words_of_a_prompt_that_a_person_has_closed_are_kept_all_the_same(desk: Desk) -> None:
    record = (await desk.prompt("bob", "hello")).record
    held = (await desk.bound("bob")).claim
    await desk.ended(held, How.LOST)
    await desk.resolve(record, Resolution.NOT_DONE)
    await desk.ended(held, final="it was done")
    assert desk.now(record).answer is Answer.CLOSED
    assert (await explained(desk, record))[0] == b"it was done"


@pytest.mark.requirement("mailbox.a-person-settles-only-what-is-uncertain")
@pytest.mark.parametrize("resolution", Resolution)
async def test_an_uncertain_prompt_is_settled_without_a_reply(desk: Desk, resolution: Resolution) -> None:
    record = (await desk.prompt("bob", "hello")).record
    await desk.finish((await desk.taken("bob")).claim, Outcome.UNCERTAIN)
    resolved = await desk.resolve(record, resolution)
    assert resolved.reply_id is None
    assert desk.now(record).answer is Answer.CLOSED
    taken = await desk.claim("bob")
    if resolution is Resolution.AS_NEW:
        assert taken is not None
        assert (taken.record.kind, taken.record.record_id) == (Kind.PROMPT, resolved.new_record_id)


async def test_a_note_has_a_limit_and_what_is_no_uncertain_work_is_refused(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    with pytest.raises(InvalidState):
        await desk.resolve(request, Resolution.DONE)
    with pytest.raises(InvalidTask):
        await desk.resolve((await desk.send("ann", "bob")).record, Resolution.DONE)
    await desk.finish((await desk.taken("bob")).claim, Outcome.UNCERTAIN)
    with pytest.raises(InvalidLimit):
        await desk.resolve(request, Resolution.DONE, "x" * (NOTE_BYTES_MAX + 1))
    await desk.resolve(request, Resolution.DONE, "x" * NOTE_BYTES_MAX)


# --- chains -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.chains-of-requests-end")
async def test_a_request_counts_the_requests_that_its_sender_works_on(desk: Desk) -> None:
    first = await desk.request("ann", "bob")
    assert first.hops == 0
    assert (await desk.request("bob", "cyd")).hops == 0, "what bob has not been shown led to nothing"
    await desk.receive("bob")
    second = await desk.request("bob", "cyd")
    assert second.hops == 1
    await desk.bound("cyd", a_turn("a"))
    assert (await desk.request("cyd", "ann")).hops == 1
    await desk.bound("cyd", a_turn("b"))
    assert (await desk.request("cyd", "ann")).hops == 2, "the most of all that it works on"
    await desk.reply("cyd", second)
    assert (await desk.request("cyd", "ann")).hops == 1
    await desk.reply("bob", first)
    assert (await desk.request("bob", "ann")).hops == 0
    assert (await desk.send("cyd", "ann")).record.hops == 0, "information has no chain"


@pytest.mark.requirement("mailbox.chains-of-requests-end")
async def test_agents_that_ask_each_other_in_a_circle_come_to_an_end(desk: Desk) -> None:
    sender, recipient = "ann", "bob"
    for hops in range(HOPS_MAX + 1):
        request = await desk.request(sender, recipient, key="k" if hops == HOPS_MAX else None)
        assert request.hops == hops
        await desk.receive(recipient)
        sender, recipient = recipient, sender
    newest = desk.store.read.newest_sequence()
    with pytest.raises(HopLimit):
        await desk.request(sender, recipient)
    assert desk.store.read.newest_sequence() == newest
    assert (await desk.send(recipient, sender, "work", kind=Kind.REQUEST, key="k")).duplicate, "a repeat is no new link"
    await desk.send(sender, recipient, "information goes on")


# --- who looks --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.a-reader-is-who-looks-now")
async def test_receipts_and_listings_name_the_owner_of_the_current_life_and_a_persons_off(desk: Desk) -> None:
    async def reader() -> tuple[Reader, Reader, Reader]:
        receipt = await desk.send("ann", "bob")
        ((_, listed),) = await ListReaders(desk.ports)(OPERATOR, [id16("bob")])
        shown = await Explain(desk.ports)(a_caller("ann"), Kind.INFORMATION, receipt.record.record_id)
        return receipt.readership.reader, listed.reader, shown.readership.reader

    owners = desk.ports.owners
    with owners.watching(id16("d")):
        assert await reader() == (Reader.NONE,) * 3
        owners.report(id16("d"), 1, {id16("bob"): 1}, newest=0)
        assert await reader() == (Reader.NATIVE,) * 3
        await desk.open("bob", 2)
        assert await reader() == (Reader.NONE,) * 3, "what an earlier life's owner told counts for nothing"
        owners.report(id16("d"), 1, {id16("bob"): 2}, newest=0)
        assert await reader() == (Reader.NATIVE,) * 3
        desk.agents.become("bob", generation=3)
        assert await reader() == (Reader.NONE,) * 3, "sessions has begun another life"
        desk.agents.become("bob", generation=2, desired=Desired.PAUSED)
        assert await reader() == (Reader.NONE,) * 3
        desk.agents.become("bob", desired=Desired.OFF)
        assert await reader() == (Reader.OFF,) * 3
        desk.agents.become("bob", desired=Desired.ON)
        await desk.receive("bob", generation=2)
        assert await reader() == (Reader.NATIVE,) * 3
    assert await reader() == (Reader.MANUAL,) * 3
