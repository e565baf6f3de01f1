"""Bound turns, how they end, and what is answered from that, over each backend."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost_mailbox.domain.bindings import BindingState, Mode, TurnOutcome
from fencepost_mailbox.domain.claims import ClaimState, Outcome
from fencepost_mailbox.domain.refusals import (
    AgentDeleted,
    ConflictingOutcome,
    ConflictingReply,
    InvalidBinding,
    InvalidCursor,
    InvalidLimit,
    MailboxRefusal,
    StaleBinding,
    StaleClaim,
    StorageError,
)
from fencepost_mailbox.domain.values import (
    BINDINGS_LISTED_DEFAULT,
    BINDINGS_LISTED_MAX,
    BODY_BYTES_MAX,
    FACTS_MAX,
    PUBLISHED_ROWS_MAX,
    Answer,
    Completion,
    Delivery,
    FactKind,
    Kind,
    Origin,
    ReplyStatus,
)
from fencepost_mailbox.usecases.carriers import ListBindings
from fencepost_mailbox.usecases.claim import ClaimKind
from fencepost_mailbox.usecases.look import Explain
from fencepost_mailbox.usecases.outcome import Publishing, publish_left
from fencepost_mailbox.waits import Wake
from fencepost_testing.mailboxes import Desk, a_caller, a_desk, a_turn, id16, until

S, How, F = BindingState, TurnOutcome, FactKind


# --- binding ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.binding-and-acceptance-are-one")
async def test_an_acceptance_and_its_turn_are_one_commit_with_every_field(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    taken = await desk.bound("bob", a_turn(mode=Mode.STEER), generation=3)
    binding = desk.binding(taken.claim)
    assert (binding.record_id, binding.token, binding.recipient) == (request.record_id, taken.claim.token, id16("bob"))
    assert (binding.generation, binding.dispatcher, binding.requester) == (3, id16("dispatcher"), id16("ann"))
    assert (binding.turn, binding.state) == (a_turn(mode=Mode.STEER), S.BOUND)
    assert desk.now(request).delivery is Delivery.ACCEPTED
    assert desk.facts(request) == [F.CLAIMED, F.ACCEPTED, F.BOUND]
    assert (await desk.finish(taken.claim, Outcome.ACCEPTED, turn=a_turn(mode=Mode.STEER))).duplicate
    for other in (None, a_turn(), a_turn("another", mode=Mode.STEER)):
        with pytest.raises(ConflictingOutcome):
            await desk.finish(taken.claim, Outcome.ACCEPTED, turn=other)
    assert desk.facts(request) == [F.CLAIMED, F.ACCEPTED, F.BOUND]


@pytest.mark.requirement("mailbox.binding-and-acceptance-are-one")
async def test_a_late_acceptance_with_the_same_token_binds_too(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    held = (await desk.taken("bob")).claim
    await desk.finish(held, Outcome.UNCERTAIN)
    await desk.open("bob", 2)
    await desk.finish(held, Outcome.ACCEPTED, turn=a_turn())
    assert (desk.now(request).delivery, desk.binding(held).state) == (Delivery.ACCEPTED, S.BOUND)
    await desk.ended(held, final="late")
    assert [record.body for record in (await desk.receive("ann")).records] == [b"late"]


@pytest.mark.requirement("mailbox.binding-and-acceptance-are-one", "mailbox.an-explicit-reply-wins")
async def test_a_turn_is_bound_although_an_explicit_reply_has_landed(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    held = (await desk.taken("bob")).claim
    await desk.reply("bob", request, "quick")
    await desk.finish(held, Outcome.ACCEPTED, turn=a_turn())
    assert desk.binding(held).state is S.BOUND
    recorded = await desk.ended(held, final="slow")
    assert (recorded.binding.state, recorded.binding.reply_id) == (S.PUBLISHED, None)
    assert [record.body for record in (await desk.receive("ann")).records] == [b"quick"]


@pytest.mark.requirement("mailbox.binding-and-acceptance-are-one")
async def test_without_a_turn_only_an_explicit_reply_answers(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    held = (await desk.taken("bob")).claim
    await desk.finish(held, Outcome.ACCEPTED)
    with pytest.raises(ConflictingOutcome):
        await desk.finish(held, Outcome.ACCEPTED, turn=a_turn())
    with pytest.raises(StaleBinding):
        await desk.ended(held, final="x")
    await desk.reply("bob", request, "explicit")
    assert [record.body for record in (await desk.receive("ann")).records] == [b"explicit"]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.UNCERTAIN])
async def test_only_an_acceptance_binds(desk: Desk, outcome: Outcome) -> None:
    await desk.request("ann", "bob")
    held = (await desk.taken("bob")).claim
    with pytest.raises(InvalidBinding):
        await desk.finish(held, outcome, turn=a_turn())
    with pytest.raises(InvalidBinding):
        await desk.finish(held, Outcome.ACCEPTED, turn=a_turn(""))
    assert desk.store.read.claim(held.token) == held
    assert desk.store.read.binding(held.token) is None


@pytest.mark.requirement("mailbox.a-request-is-given-up-with-an-answer")
async def test_what_is_bound_or_uncertain_by_a_lost_turn_cannot_fail_before_submission(desk: Desk) -> None:
    await desk.request("ann", "bob")
    held = (await desk.bound("bob")).claim
    for _ in range(2):
        with pytest.raises(ConflictingOutcome):
            await desk.finish(held, Outcome.FAILED)
        with pytest.raises(ConflictingOutcome):
            await desk.release(held)
        await desk.open("bob", 2)
    assert desk.binding(held).state is S.UNCERTAIN
    assert (await desk.receive("ann")).records == []


# --- outcomes ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.final-words-answer", "mailbox.facts-stay-apart")
async def test_final_words_answer_as_the_recipient_and_every_step_is_a_fact(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    taken = await desk.bound("bob")
    await desk.clock.advance(1)
    recorded = await desk.ended(taken.claim, final="the result", evidence="turn/completed")
    assert (recorded.binding.state, recorded.duplicate) == (S.PUBLISHED, False)
    (answer,) = (await desk.receive("ann")).records
    assert (answer.record_id, answer.parent_id) == (recorded.binding.reply_id, request.record_id)
    assert (answer.sender, answer.origin, answer.status) == (id16("bob"), Origin.AUTOMATIC, ReplyStatus.DONE)
    assert answer.body == b"the result"
    explained = await Explain(desk.ports)(a_caller("ann"), Kind.REQUEST, request.record_id)
    facts = [(fact.fact, fact.evidence) for fact in explained.facts]
    assert [fact for fact, _ in facts] == [F.CLAIMED, F.ACCEPTED, F.BOUND, F.OUTCOME_RECORDED, F.PUBLISHED]
    assert "turn-1" in facts[2][1]
    assert facts[3][1] == "turn/completed"
    assert explained.facts[3].at_ms == explained.facts[2].at_ms + 1000
    assert explained.binding is not None
    assert (explained.binding.turn, explained.binding.outcome) == (a_turn(), How.COMPLETED)
    assert explained.binding.final == b"", "the reply holds the words"
    assert "final words of its turn" in explained.summary


@pytest.mark.requirement("mailbox.what-is-no-answer-says-so")
@pytest.mark.parametrize(
    ("how", "final", "size", "status", "words"),
    [
        (How.COMPLETED, "", 0, ReplyStatus.BLOCKED, "without final words"),
        (How.COMPLETED, "", BODY_BYTES_MAX + 1, ReplyStatus.BLOCKED, "more than"),
        (How.INTERRUPTED, "half", 0, ReplyStatus.BLOCKED, "interrupted"),
        (How.FAILED, "", 0, ReplyStatus.FAILED, "model_error"),
    ],
)
async def test_an_end_without_an_answer_is_told_by_the_host(
    desk: Desk, how: TurnOutcome, final: str, size: int, status: ReplyStatus, words: str
) -> None:
    request = await desk.request("ann", "bob")
    held = (await desk.bound("bob")).claim
    await desk.ended(held, how, final, final_bytes=size, evidence="model_error: no words")
    (answer,) = (await desk.receive("ann")).records
    assert (answer.sender, answer.origin, answer.status) == (None, Origin.HOST, status)
    assert words in answer.body.decode()
    assert "half" not in answer.body.decode()
    assert desk.facts(request)[-2:] == [F.OUTCOME_RECORDED, F.PUBLISHED]


@pytest.mark.requirement("mailbox.a-turn-ends-once")
async def test_the_same_end_again_is_a_duplicate_and_another_a_conflict(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    held = (await desk.bound("bob")).claim
    first = await desk.ended(held, final="one")
    again = await desk.ended(held, final="one", evidence="told again")
    assert (again.duplicate, again.binding) == (True, first.binding)
    for how, final in ((How.COMPLETED, "two"), (How.FAILED, ""), (How.INTERRUPTED, ""), (How.LOST, "")):
        with pytest.raises(ConflictingOutcome):
            await desk.ended(held, how, final)
    assert len(desk.facts(request)) == 5
    assert len((await desk.receive("ann")).records) == 1


@pytest.mark.requirement("mailbox.a-turn-ends-once")
async def test_of_many_ends_at_once_exactly_one_stands(desk: Desk) -> None:
    await desk.request("ann", "bob")
    held = (await desk.bound("bob")).claim
    answers = await asyncio.gather(
        *(desk.ended(held, final=text) for text in ("one", "two", "one")),
        desk.ended(held, How.LOST),
        return_exceptions=True,
    )
    assert [isinstance(one, ConflictingOutcome) for one in answers] == [False, True, False, True]
    assert [record.body for record in (await desk.receive("ann")).records] == [b"one"]


@pytest.mark.requirement("mailbox.an-end-names-the-exact-turn")
async def test_an_end_of_another_turn_token_or_generation_changes_nothing(desk: Desk) -> None:
    await desk.request("ann", "bob")
    await desk.request("ann", "bob")
    held, other = (await desk.bound("bob")).claim, (await desk.bound("bob", a_turn("turn-2"))).claim
    newest = desk.store.read.newest_sequence()
    for change in ({"provider": "x"}, {"session_id": "x"}, {"turn_id": "x"}, {"mode": Mode.STEER}):
        with pytest.raises(StaleBinding):
            await desk.ended(held, final="x", turn=a_turn(**change))
    with pytest.raises(StaleBinding):
        await desk.ended(other, final="x")
    with pytest.raises(StaleClaim):
        await desk.ended(held, final="x", generation=2)
    with pytest.raises(InvalidLimit):
        await desk.ended(held, final="x", evidence="")
    assert desk.store.read.newest_sequence() == newest


@pytest.mark.requirement("mailbox.shared-turns-answer-everybody")
async def test_several_requests_in_one_turn_each_get_its_final_words(desk: Desk) -> None:
    asked = [await desk.request(sender, "bob", f"work {n}") for n, sender in enumerate(("ann", "cyd", "ann"))]
    claims = [(await desk.bound("bob", a_turn(mode=mode))).claim for mode in (Mode.START, Mode.STEER, Mode.STEER)]
    for held, mode in zip(claims, (Mode.START, Mode.STEER, Mode.STEER), strict=True):
        await desk.ended(held, final="shared", turn=a_turn(mode=mode))
    parents = []
    for agent, count in (("ann", 2), ("cyd", 1)):
        records = (await desk.receive(agent)).records
        assert [record.body for record in records] == [b"shared"] * count
        parents += [record.parent_id for record in records]
    assert sorted(str(one) for one in parents) == sorted(str(one.record_id) for one in asked)


# --- losing sight -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.uncertain-is-never-work-again")
async def test_a_lost_turn_makes_its_request_uncertain_and_answers_nothing(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    held = (await desk.bound("bob")).claim
    lost = await desk.ended(held, How.LOST, evidence="process died")
    assert (lost.binding.state, lost.duplicate) == (S.UNCERTAIN, False)
    assert (await desk.ended(held, How.LOST)).duplicate
    assert (desk.now(request).delivery, desk.now(request).answer) == (Delivery.UNCERTAIN, Answer.OPEN)
    assert desk.facts(request)[-1] is F.UNCERTAIN
    assert (await desk.receive("ann")).records == []
    assert await desk.claim("bob") is None
    assert (await desk.finish(held, Outcome.ACCEPTED, turn=a_turn())).duplicate, "that it was taken is known"
    assert desk.now(request).delivery is Delivery.UNCERTAIN


@pytest.mark.requirement("mailbox.late-evidence-settles")
@pytest.mark.parametrize("cause", ["told lost", "generation", "incarnation", "finish uncertain"])
async def test_late_evidence_of_the_end_answers_what_was_lost_from_sight(desk: Desk, cause: str) -> None:
    request = await desk.request("ann", "bob")
    held = (await desk.bound("bob")).claim
    if cause == "told lost":
        await desk.ended(held, How.LOST)
    elif cause == "generation":
        opened = await desk.open("bob", 2)
        assert [record.record_id for record in opened.uncertain] == [request.record_id]
    elif cause == "incarnation":
        await desk.claim("cyd", incarnation=2)
    else:
        await desk.finish(held, Outcome.UNCERTAIN)
    assert (desk.now(request).delivery, desk.binding(held).state) == (Delivery.UNCERTAIN, S.UNCERTAIN)
    recorded = await desk.ended(held, final="late but known")
    assert recorded.binding.state is S.PUBLISHED
    assert (desk.now(request).delivery, desk.now(request).answer) == (Delivery.ACCEPTED, Answer.ANSWERED)
    claim = desk.store.read.claim(held.token)
    assert claim is not None
    assert claim.state is ClaimState.ACCEPTED
    assert [record.body for record in (await desk.receive("ann")).records] == [b"late but known"]


@pytest.mark.requirement("mailbox.late-evidence-settles")
@pytest.mark.parametrize("cause", ["told lost", "generation", "incarnation"])
async def test_a_turn_that_is_lost_behind_an_answer_leaves_delivery_and_answer_as_they_are(
    desk: Desk, cause: str
) -> None:
    request = await desk.request("ann", "bob")
    held = (await desk.bound("bob")).claim
    await desk.reply("bob", request, "explicit")
    if cause == "told lost":
        await desk.ended(held, How.LOST)
    elif cause == "generation":
        assert (await desk.open("bob", 2)).uncertain == []
    else:
        await desk.claim("cyd", incarnation=2)
    assert (desk.now(request).delivery, desk.binding(held).state) == (Delivery.ACCEPTED, S.UNCERTAIN)
    assert desk.facts(request)[-1] is F.TURN_LOST
    assert (await desk.ended(held, final="late")).binding.state is S.PUBLISHED
    assert [record.body for record in (await desk.receive("ann")).records] == [b"explicit"]


@pytest.mark.requirement("mailbox.a-turn-ends-once")
async def test_a_known_end_is_not_lost_by_a_new_life_a_new_start_or_a_late_word(desk: Desk) -> None:
    request = (await desk.send("ann", "bob", kind=Kind.REQUEST, completion=Completion.EXPLICIT)).record
    held = (await desk.bound("bob")).claim
    await desk.ended(held, final="recorded")
    assert (await desk.open("bob", 2)).uncertain == []
    await desk.claim("cyd", incarnation=2)
    for late in (desk.finish(held, Outcome.UNCERTAIN), desk.ended(held, How.LOST)):
        with pytest.raises(ConflictingOutcome):
            await late
    assert (desk.now(request).delivery, desk.binding(held).state) == (Delivery.ACCEPTED, S.OUTCOME_RECORDED)


# --- explicit replies -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.an-explicit-reply-wins")
@pytest.mark.parametrize("when", ["before the claim", "claimed", "bound", "recorded", "lost"])
async def test_an_explicit_reply_wins_in_every_order(desk: Desk, when: str) -> None:
    request = await desk.request("ann", "bob")
    if when == "before the claim":
        await desk.reply("bob", request, "explicit")
        assert await desk.claim("bob") is None, "settled work is carried to nobody"
        return
    held = (await desk.taken("bob")).claim
    if when == "claimed":
        await desk.reply("bob", request, "explicit")
    await desk.finish(held, Outcome.ACCEPTED, turn=a_turn())
    if when == "bound":
        await desk.reply("bob", request, "explicit")
    if when == "lost":
        await desk.ended(held, How.LOST)
        await desk.reply("bob", request, "explicit")
    if when == "recorded":
        await desk.recorded(held, final="automatic")
        await desk.reply("bob", request, "explicit")
        assert await publish_left(desk.ports) == 1
    recorded = await desk.ended(held, final="automatic")
    assert (recorded.binding.state, recorded.binding.reply_id) == (S.PUBLISHED, None)
    (answer,) = (await desk.receive("ann")).records
    assert (answer.body, answer.origin) == (b"explicit", Origin.AGENT)
    assert F.PUBLISHED not in desk.facts(request)
    assert (await desk.reply("bob", request, "explicit")).duplicate


@pytest.mark.requirement("mailbox.an-explicit-reply-wins")
async def test_an_explicit_reply_behind_an_automatic_one_is_a_conflict(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    held = (await desk.bound("bob")).claim
    await desk.ended(held, final="automatic")
    for text in ("other", "automatic"):
        with pytest.raises(ConflictingReply):
            await desk.reply("bob", request, text)
    assert [record.body for record in (await desk.receive("ann")).records] == [b"automatic"]


@pytest.mark.requirement("mailbox.an-explicit-reply-wins")
async def test_a_reply_and_an_end_at_once_give_one_answer(desk: Desk) -> None:
    requests = [await desk.request("ann", "bob", f"{n}") for n in range(20)]
    claims = [(await desk.bound("bob")).claim for _ in requests]
    answers = await asyncio.gather(
        *(desk.ended(held, final="automatic") for held in claims),
        *(desk.reply("bob", request, "explicit") for request in requests),
        return_exceptions=True,
    )
    bodies = {record.parent_id: record.body for record in (await desk.receive("ann")).records}
    assert len(bodies) == len(requests)
    for request, told in zip(requests, answers[20:], strict=True):
        assert isinstance(told, ConflictingReply) == (bodies[request.record_id] == b"automatic")


@pytest.mark.requirement("mailbox.explicit-requests-are-never-answered-automatically")
@pytest.mark.parametrize("how", [How.COMPLETED, How.INTERRUPTED, How.FAILED])
async def test_a_request_that_wants_an_explicit_reply_is_not_answered_by_an_end(desk: Desk, how: TurnOutcome) -> None:
    request = (await desk.send("ann", "bob", kind=Kind.REQUEST, completion=Completion.EXPLICIT)).record
    held = (await desk.bound("bob")).claim
    recorded = await desk.ended(held, how, "words" if how is How.COMPLETED else "")
    assert recorded.binding.state is S.OUTCOME_RECORDED
    assert await publish_left(desk.ports) == 0
    assert (await desk.receive("ann")).records == []
    explained = await Explain(desk.ports)(a_caller("ann"), Kind.REQUEST, request.record_id)
    assert explained.binding is not None
    assert explained.binding.outcome is how
    assert explained.facts[-1].fact is F.OUTCOME_RECORDED
    await desk.reply("bob", request, "explicit")
    assert [record.body for record in (await desk.receive("ann")).records] == [b"explicit"]


# --- publication ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.a-recorded-end-is-published")
@pytest.mark.parametrize("by", ["receive", "start", "the same call again", "a new life"])
async def test_what_a_crash_left_recorded_is_published_once(desk: Desk, by: str) -> None:
    request = await desk.request("ann", "bob")
    held = (await desk.bound("bob")).claim
    await desk.recorded(held, final="durable")
    assert (desk.binding(held).state, desk.now(request).answer) == (S.OUTCOME_RECORDED, Answer.OPEN)
    if by == "start":
        await desk.restart()
    elif by == "the same call again":
        again = await desk.ended(held, final="durable")
        assert (again.duplicate, again.binding.state) == (True, S.PUBLISHED)
    elif by == "a new life":
        assert (await desk.open("bob", 2)).uncertain == []
        assert desk.binding(held).state is S.OUTCOME_RECORDED
    (answer,) = (await desk.receive("ann")).records
    assert (answer.body, answer.origin) == (b"durable", Origin.AUTOMATIC)
    assert desk.binding(held).reply_id == answer.record_id
    await desk.restart()
    assert desk.facts(request).count(F.PUBLISHED) == 1
    assert (await desk.ended(held, final="durable")).binding.reply_id == answer.record_id


@pytest.mark.requirement("mailbox.a-recorded-end-is-published")
async def test_any_number_of_recorded_ends_is_published_in_bounded_steps(desk: Desk) -> None:
    count = PUBLISHED_ROWS_MAX + 3
    for n in range(count):
        await desk.request("ann", "bob", f"{n}")
        await desk.recorded((await desk.bound("bob")).claim, final=f"{n}")
    publishing = Publishing(seed=desk.mint.new(), now_ms=desk.clock.now_ms())
    assert len(await desk.store.submit(publishing)) == PUBLISHED_ROWS_MAX
    assert await publish_left(desk.ports) == 3
    assert await publish_left(desk.ports) == 0
    bodies: list[bytes] = []
    cursor = ""
    while (page := await desk.receive("ann", cursor=cursor)).records:
        bodies += [record.body for record in page.records]
        cursor = page.next_cursor
    assert sorted(bodies) == sorted(b"%d" % n for n in range(count))


@pytest.mark.requirement("mailbox.a-recorded-end-is-published")
async def test_a_second_step_that_the_disk_refuses_leaves_the_first_and_says_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.request("ann", "bob")
    held = (await desk.bound("bob")).claim
    submit = desk.store.submit

    async def full(operation: object) -> object:
        if isinstance(operation, Publishing):
            raise StorageError("the disk refused the write; nothing was written")
        return await submit(operation)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(desk.store, "submit", full)
        recorded = await desk.ended(held, final="durable")
        assert (recorded.binding.state, recorded.duplicate) == (S.OUTCOME_RECORDED, False)
        assert (await desk.receive("ann")).records == [], "reading goes on"
    assert [record.body for record in (await desk.receive("ann")).records] == [b"durable"]


@pytest.mark.requirement("mailbox.publication-wakes-and-starts-nothing")
async def test_a_publication_wakes_the_requesters_waits_and_is_context_never_work(desk: Desk) -> None:
    await desk.request("ann", "bob")
    held = (await desk.bound("bob")).claim
    waiting = asyncio.ensure_future(desk.receive("ann", timeout_ms=5_000))
    await until(lambda: desk.waits.waiting(id16("ann")))
    await desk.ended(held, final="done")
    assert [record.body for record in (await waiting).records] == [b"done"]
    assert await desk.claim("ann") is None
    assert desk.store.read.work_of(id16("ann"))[0] is False


# --- what a dispatcher that starts must look after --------------------------------------------------------------------


@pytest.mark.requirement("mailbox.a-dispatcher-is-told-its-open-turns")
async def test_bindings_without_an_end_are_listed_oldest_first_and_paged(desk: Desk) -> None:
    claims = []
    for n in range(5):
        await desk.request("ann", "bob", f"{n}")
        claims.append((await desk.bound("bob", a_turn(f"turn-{n}"))).claim)
    await desk.request("ann", "bob")
    await desk.bound("bob", dispatcher="another")
    await desk.ended(claims[1], final="known", turn=a_turn("turn-1"))
    await desk.ended(claims[2], How.LOST, turn=a_turn("turn-2"))
    await desk.ended(claims[3], How.LOST, turn=a_turn("turn-3"))
    settled = desk.store.read.record(claims[3].record_id)
    assert settled is not None
    await desk.reply("bob", settled, "nobody waits for it any more")
    found, token = [], ""
    while True:
        page = await ListBindings(desk.ports)(id16("dispatcher"), 1, token)
        found += [binding.turn.turn_id for binding, _ in page.bindings]
        token = page.next_token
        if not token:
            break
    assert found == ["turn-0", "turn-2", "turn-4"]
    everything = await ListBindings(desk.ports)(id16("dispatcher"), 0, "")
    assert [binding.state for binding, _ in everything.bindings] == [S.BOUND, S.UNCERTAIN, S.BOUND]
    assert [record.body for _, record in everything.bindings] == [b"0", b"2", b"4"]
    assert BINDINGS_LISTED_DEFAULT < BINDINGS_LISTED_MAX
    await ListBindings(desk.ports)(id16("dispatcher"), BINDINGS_LISTED_MAX, "")
    for size in (-1, BINDINGS_LISTED_MAX + 1):
        with pytest.raises(InvalidLimit):
            await ListBindings(desk.ports)(id16("dispatcher"), size, "")
    with pytest.raises(InvalidCursor):
        await ListBindings(desk.ports)(id16("dispatcher"), 1, "x")


# --- deletion ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.deleted-agents-get-nothing-and-write-nothing")
async def test_an_end_for_a_deleted_recipient_is_refused_and_its_turns_are_erased(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    held = (await desk.bound("bob")).claim
    await desk.delete("bob")
    with pytest.raises(AgentDeleted):
        await desk.ended(held, final="late")
    (answer,) = (await desk.receive("ann")).records
    assert (answer.parent_id, answer.origin) == (request.record_id, Origin.HOST)
    while not await desk.erase("bob"):
        pass
    assert desk.store.read.binding(held.token) is None
    with pytest.raises(StaleClaim):
        await desk.ended(held, final="late")


async def test_an_end_for_a_deleted_requester_is_recorded_and_published_to_nobody(desk: Desk) -> None:
    await desk.request("ann", "bob")
    held = (await desk.bound("bob")).claim
    await desk.delete("ann")
    assert (await desk.ended(held, final="late")).binding.state is S.PUBLISHED
    assert desk.store.read.received(id16("ann"), 2**62, 10) == []


# --- injected context -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.injected-context-ends-waits")
@pytest.mark.parametrize("what", ["information", "reply", "late proof"])
async def test_injected_context_ends_waits_with_an_empty_page_and_the_same_cursors(desk: Desk, what: str) -> None:
    await desk.send("ann", "bob", "read before")
    page = await desk.receive("bob")
    await desk.receive("bob", ack=page.ack_cursor)
    if what == "reply":
        await desk.reply("ann", await desk.request("bob", "ann"), "result")
    else:
        await desk.send("ann", "bob", "context")
    held = (await desk.taken("bob", kind=ClaimKind.CONTEXT)).claim
    if what == "late proof":
        await desk.finish(held, Outcome.UNCERTAIN)
        shown = await desk.receive("bob")
        await desk.receive("bob", ack=shown.ack_cursor)
        page = shown
    reading = asyncio.ensure_future(desk.receive("bob", cursor=page.next_cursor, timeout_ms=30_000))
    waiting = asyncio.ensure_future(desk.wait("bob", timeout_ms=30_000))
    await until(lambda: desk.waits.parked == 2)
    await desk.finish(held, Outcome.VISIBLE)
    empty = await reading
    assert (empty.records, empty.wake_reason, empty.timed_out) == ([], Wake.PROVIDER_CONTEXT.value, False)
    assert (empty.next_cursor, empty.ack_cursor) == (page.next_cursor, "")
    assert await waiting is Wake.PROVIDER_CONTEXT


@pytest.mark.requirement("mailbox.injected-context-ends-waits")
async def test_an_uncertain_injection_never_wakes_as_if_it_had_been_shown(desk: Desk) -> None:
    await desk.send("ann", "bob", "context")
    held = (await desk.taken("bob", kind=ClaimKind.CONTEXT)).claim
    reading = asyncio.ensure_future(desk.receive("bob", timeout_ms=30_000))
    await until(lambda: desk.waits.parked == 1)
    await desk.finish(held, Outcome.UNCERTAIN)
    page = await reading
    assert ([record.body for record in page.records], page.wake_reason) == ([b"context"], "")


# --- looking ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.facts-stay-apart")
async def test_an_explanation_keeps_the_newest_facts_and_says_that_it_cut(desk: Desk) -> None:
    record = (await desk.send("ann", "bob")).record
    for _ in range(FACTS_MAX):
        await desk.release((await desk.taken("bob", kind=ClaimKind.CONTEXT)).claim)
    await desk.receive("bob")
    explained = await Explain(desk.ports)(a_caller("ann"), Kind.INFORMATION, record.record_id)
    assert (len(explained.facts), explained.left_out) == (FACTS_MAX - 1, FACTS_MAX + 2)
    assert explained.facts[-1].fact is F.EXPOSED
    sequences = [fact.sequence for fact in explained.facts]
    assert sequences == sorted(sequences)
    assert f"{FACTS_MAX + 2} older facts" in explained.summary


@pytest.mark.requirement("mailbox.looking-exposes-nothing")
async def test_an_id_with_the_prefix_of_another_kind_names_nothing(desk: Desk) -> None:
    from fencepost_mailbox.usecases.look import GetRecord

    record = await desk.request("ann", "bob")
    for kind in Kind:
        for look in (GetRecord(desk.ports), Explain(desk.ports)):
            if kind is Kind.REQUEST:
                await look(a_caller("ann"), kind, record.record_id)
                continue
            with pytest.raises(MailboxRefusal) as refused:
                await look(a_caller("ann"), kind, record.record_id)
            assert refused.value.reason == "not_found"


@pytest.mark.requirement("mailbox.a-recorded-end-is-published")
@pytest.mark.parametrize("wrong", ["another end", "another life", "another turn"])
async def test_an_end_that_is_refused_publishes_nothing_that_was_left(desk: Desk, wrong: str) -> None:
    asked = await desk.request("ann", "bob")
    held = (await desk.bound("bob")).claim
    await desk.recorded(held, final="left")
    said = {
        "another end": {"final": "other"},
        "another life": {"final": "left", "generation": held.generation + 1},
        "another turn": {"final": "left", "turn": a_turn("other")},
    }
    with pytest.raises(MailboxRefusal):
        await desk.ended(held, **said[wrong])
    assert desk.binding(held).state is S.OUTCOME_RECORDED
    assert desk.store.read.settled(asked.record_id) is None
    again = await desk.ended(held, final="left")
    assert (again.duplicate, again.binding.state) == (True, S.PUBLISHED)


# --- a process that dies between the two writes -----------------------------------------------------------------------


# Told from inside: ann asks, bob's turn takes it and ends; the process dies with the end written, and its answer not.
DYING = """
import asyncio, sys
from pathlib import Path
from fencepost_kit import faults
from fencepost_testing.mailboxes import a_desk

async def main():
    async with a_desk(Path(sys.argv[1]), "ann", "bob") as desk:
        await desk.request("ann", "bob")
        held = (await desk.bound("bob")).claim
        print(held.token.hex(), flush=True)
        await desk.ended(held, final="durable")
        print("published", flush=True)

faults.arm_from_environment()
asyncio.run(main())
"""


@pytest.mark.requirement("mailbox.a-recorded-end-is-published")
async def test_a_process_killed_between_the_two_writes_keeps_neither_and_is_told_again(place: Path) -> None:
    done = killed_between(place)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (token,) = done.stdout.split()
    async with a_desk(place, "ann", "bob", first_id=1000) as desk:
        binding = desk.store.read.binding(bytes.fromhex(token))
        assert binding is not None
        assert (binding.state, binding.final) == (S.BOUND, b"")
        claim = desk.store.read.claim(bytes.fromhex(token))
        assert claim is not None
        ended = await desk.ended(claim, final="durable")
        assert (ended.duplicate, ended.binding.state, ended.binding.outcome) == (False, S.PUBLISHED, How.COMPLETED)
        (answer,) = (await desk.receive("ann")).records
        assert (answer.record_id, answer.body, answer.origin) == (ended.binding.reply_id, b"durable", Origin.AUTOMATIC)


def killed_between(place: Path) -> subprocess.CompletedProcess[str]:
    """Let a process die behind the first write."""
    return subprocess.run(
        [sys.executable, "-c", DYING, str(place)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "FENCEPOST_FAULTS": "mailbox.outcome.recorded=kill@1",
        },
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


async def test_bindings_outlive_the_process(place: Path) -> None:
    async with a_desk(place, "ann", "bob") as first:
        await first.request("ann", "bob")
        held = (await first.bound("bob")).claim
    async with a_desk(place, "ann", "bob", first_id=1000) as second:
        assert second.binding(held).turn == a_turn()
        await second.ended(held, final="after a restart")
        assert [record.body for record in (await second.receive("ann")).records] == [b"after a restart"]
