"""Claims, lives and incarnations, over each backend."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from fencepost_mailbox.domain.claims import ClaimState, Outcome
from fencepost_mailbox.domain.refusals import (
    ConflictingOutcome,
    DirectoryStale,
    IdempotencyConflict,
    InvalidLimit,
    InvalidState,
    MailboxRefusal,
    NotFound,
    StaleClaim,
    StaleGeneration,
    StaleIncarnation,
)
from fencepost_mailbox.domain.values import (
    CLAIM_TERM_MS_DEFAULT,
    CLAIM_TERM_MS_MAX,
    CLAIM_TERM_MS_MIN,
    EVIDENCE_BYTES_MAX,
    OPEN_REQUESTS_MAX,
    RELEASES_MAX,
    Answer,
    Delivery,
    FactKind,
    Inbox,
    Kind,
    Origin,
    ReplyStatus,
)
from fencepost_mailbox.usecases.claim import ClaimKind
from fencepost_testing.mailboxes import Desk, id16

CONTEXT, REQUEST = ClaimKind.CONTEXT, ClaimKind.REQUEST


@pytest.mark.requirement("mailbox.one-reader-at-most")
async def test_a_claimed_request_is_shown_by_no_receive_and_a_received_one_is_never_claimed(desk: Desk) -> None:
    await desk.request("ann", "bob", "first")
    await desk.request("ann", "bob", "second")
    taken = await desk.taken("bob")
    assert (taken.record.body, taken.record.delivery) == (b"first", Delivery.CLAIMED)
    assert [record.body for record in (await desk.receive("bob")).records] == [b"second"]
    assert await desk.claim("bob") is None


@pytest.mark.requirement("mailbox.one-reader-at-most")
async def test_claims_and_reads_at_once_share_the_requests_between_them(desk: Desk) -> None:
    requests = [await desk.request("ann", "bob", f"{n}") for n in range(60)]
    claimed: list[bytes] = []
    received: list[bytes] = []

    async def claims() -> None:
        while (taken := await desk.claim("bob")) is not None:
            claimed.append(taken.record.record_id)

    async def reads() -> None:
        cursor = ""
        while (page := await desk.receive("bob", cursor=cursor, limit=1)).records:
            received.extend(record.record_id for record in page.records)
            cursor = page.next_cursor

    await asyncio.gather(claims(), reads(), claims())
    assert len(claimed) == len(set(claimed))
    assert not set(claimed) & set(received)
    assert {*claimed, *received} == {request.record_id for request in requests}
    assert claimed
    assert received


async def test_the_oldest_of_its_kind_is_taken_first(desk: Desk) -> None:
    await desk.send("ann", "bob", "a")
    await desk.request("ann", "bob", "1")
    await desk.send("ann", "bob", "b")
    await desk.request("ann", "bob", "2")
    order = [(await desk.taken("bob", kind=kind)).record.body for kind in (REQUEST, CONTEXT, CONTEXT, REQUEST)]
    assert order == [b"1", b"a", b"b", b"2"]


async def test_context_later_than_the_high_water_is_not_taken(desk: Desk) -> None:
    await desk.send("ann", "bob", "early")
    high_water = desk.store.read.newest_sequence()
    await desk.send("ann", "bob", "late")
    assert (await desk.taken("bob", kind=CONTEXT, high_water=high_water)).record.body == b"early"
    assert await desk.claim("bob", kind=CONTEXT, high_water=high_water) is None
    assert (await desk.taken("bob", kind=CONTEXT)).record.body == b"late"
    with pytest.raises(InvalidLimit):
        await desk.claim("bob", kind=CONTEXT, high_water=-1)


async def test_a_reply_is_carried_as_context_and_shows_itself_with_its_parent(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    await desk.reply("bob", request, "result")
    taken = await desk.taken("ann", kind=CONTEXT)
    assert (taken.record.kind, taken.record.parent_id) == (Kind.REPLY, request.record_id)
    visible = await desk.finish(taken.claim, Outcome.VISIBLE)
    assert visible.record.delivery is Delivery.VISIBLE
    assert (await desk.receive("ann")).records == [], "what stands in the conversation is not read again"


async def test_a_claim_of_nothing_writes_nothing_and_takes_no_key(desk: Desk) -> None:
    assert await desk.claim("bob", key="k") is None
    request = await desk.request("ann", "bob")
    taken = await desk.taken("bob", key="k")
    assert (taken.record.record_id, taken.duplicate) == (request.record_id, False)


async def test_a_claim_for_an_agent_that_is_not_known_here_yet_is_put_off(desk: Desk) -> None:
    with pytest.raises(DirectoryStale) as refused:
        await desk.claim("nobody")
    assert refused.value.may_resend


@pytest.mark.requirement("mailbox.same-key-same-receipt")
async def test_the_same_claim_again_gives_the_same_token(desk: Desk) -> None:
    await desk.request("ann", "bob", "first")
    await desk.request("ann", "bob", "second")
    first = await desk.taken("bob", key="k")
    again = await desk.taken("bob", key="k")
    assert (again.claim, again.duplicate) == (first.claim, True)
    for other in ({"kind": CONTEXT}, {"term_ms": 2000}, {"high_water": 1}, {"dispatcher": "another"}):
        with pytest.raises(IdempotencyConflict):
            await desk.claim("bob", key="k", **other)  # type: ignore[arg-type]


@pytest.mark.requirement("mailbox.one-reader-at-most")
async def test_a_claim_that_was_given_back_is_not_handed_out_again_under_its_key(desk: Desk) -> None:
    await desk.request("ann", "bob")
    held = (await desk.taken("bob", key="k")).claim
    await desk.release(held)
    another = await desk.taken("bob", dispatcher="another")
    with pytest.raises(StaleClaim):
        await desk.claim("bob", key="k")
    assert desk.now(another.record).claim_token == another.claim.token


@pytest.mark.requirement("mailbox.uncertain-is-never-work-again")
async def test_a_claim_whose_fate_is_told_already_says_so_under_its_key(desk: Desk) -> None:
    await desk.request("ann", "bob")
    held = (await desk.taken("bob", key="k")).claim
    await desk.expire(held.term_ms)
    again = await desk.taken("bob", key="k")
    assert (again.duplicate, again.claim.state) == (True, ClaimState.UNCERTAIN)
    assert again.record.delivery is Delivery.UNCERTAIN


async def test_every_claim_has_a_token_of_its_own(desk: Desk) -> None:
    for _ in range(20):
        await desk.request("ann", "bob")
    tokens = [(await desk.taken("bob")).claim.token for _ in range(20)]
    assert len(set(tokens)) == 20
    assert all(len(token) == 16 for token in tokens)


# --- release ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.one-reader-at-most")
async def test_a_released_request_is_new_work_again_at_a_fresh_place(desk: Desk) -> None:
    first = await desk.request("ann", "bob", "first")
    await desk.send("ann", "bob", "second")
    held = (await desk.taken("bob")).claim
    page = await desk.receive("bob")
    released = await desk.release(held, proof="busy: nothing was written")
    assert (released.record.delivery, released.duplicate) == (Delivery.PENDING, False)
    assert released.record.position > first.position
    behind = await desk.receive("bob", cursor=page.next_cursor)
    assert [record.body for record in behind.records] == [b"first"], "a reader that has gone past finds it"
    assert desk.facts(first) == [FactKind.CLAIMED, FactKind.RELEASED, FactKind.EXPOSED]


async def test_releasing_again_is_a_duplicate_also_where_the_record_has_moved_on(desk: Desk) -> None:
    await desk.request("ann", "bob")
    held = (await desk.taken("bob")).claim
    await desk.release(held)
    await desk.receive("bob")
    again = await desk.release(held)
    assert (again.duplicate, again.record.delivery) == (True, Delivery.RECEIVER)


async def test_released_context_is_stored_again_however_often(desk: Desk) -> None:
    await desk.send("ann", "bob")
    for _ in range(RELEASES_MAX + 2):
        held = (await desk.taken("bob", kind=CONTEXT)).claim
        assert (await desk.release(held)).record.delivery is Delivery.STORED


@pytest.mark.requirement("mailbox.a-request-is-given-up-with-an-answer")
async def test_at_the_cap_of_releases_a_request_fails_with_the_hosts_answer_in_the_same_commit(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    for _ in range(RELEASES_MAX - 1):
        assert (await desk.release((await desk.taken("bob")).claim)).record.delivery is Delivery.PENDING
    last = (await desk.taken("bob")).claim
    given_up = await desk.release(last)
    assert (given_up.record.delivery, given_up.duplicate) == (Delivery.FAILED, False)
    now = desk.now(request)
    assert (now.delivery, now.answer, now.releases) == (Delivery.FAILED, Answer.ANSWERED, RELEASES_MAX)
    (answer,) = (await desk.receive("ann")).records
    assert (answer.record_id, answer.origin, answer.sender) == (given_up.reply_id, Origin.HOST, None)
    assert answer.status is ReplyStatus.FAILED
    assert await desk.claim("bob") is None
    for again in (desk.release(last), desk.finish(last, Outcome.ACCEPTED)):
        with pytest.raises(ConflictingOutcome):
            await again
    assert (await desk.finish(last, Outcome.FAILED)).reply_id == answer.record_id


@pytest.mark.parametrize("proof", ["", "x" * (EVIDENCE_BYTES_MAX + 1)])
async def test_a_release_needs_a_proof(desk: Desk, proof: str) -> None:
    await desk.request("ann", "bob")
    held = (await desk.taken("bob")).claim
    with pytest.raises(InvalidLimit):
        await desk.release(held, proof=proof)
    with pytest.raises(InvalidLimit):
        await desk.finish(held, Outcome.ACCEPTED, evidence=proof)
    assert desk.store.read.claim(held.token) == held


# --- outcomes ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.evidence-counts-once")
async def test_an_accepted_request_stays_with_the_provider_until_it_is_answered(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    held = (await desk.taken("bob")).claim
    accepted = await desk.finish(held, Outcome.ACCEPTED, evidence="turn 7")
    assert (accepted.record.delivery, accepted.duplicate) == (Delivery.ACCEPTED, False)
    assert (await desk.finish(held, Outcome.ACCEPTED)).duplicate
    assert desk.facts(request) == [FactKind.CLAIMED, FactKind.ACCEPTED]
    page = await desk.receive("bob")
    assert page.records == []
    assert [record.record_id for record in page.open_requests] == [request.record_id]


@pytest.mark.requirement("mailbox.a-request-is-given-up-with-an-answer")
async def test_a_definite_failure_answers_the_requester_once(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    held = (await desk.taken("bob")).claim
    failed = await desk.finish(held, Outcome.FAILED, evidence="program_missing: not installed")
    again = await desk.finish(held, Outcome.FAILED, evidence="told twice")
    assert (again.duplicate, again.reply_id) == (True, failed.reply_id)
    (answer,) = (await desk.receive("ann")).records
    assert (answer.parent_id, answer.origin, answer.status) == (request.record_id, Origin.HOST, ReplyStatus.FAILED)
    assert b"program_missing" in answer.body
    assert desk.facts(request) == [FactKind.CLAIMED, FactKind.FAILED, FactKind.ANSWERED_BY_HOST]


async def test_a_failure_after_the_answer_leaves_the_answer_alone(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    held = (await desk.taken("bob")).claim
    await desk.reply("bob", request, "done")
    failed = await desk.finish(held, Outcome.FAILED)
    assert (failed.record.delivery, failed.reply_id) == (Delivery.FAILED, None)
    assert [record.body for record in (await desk.receive("ann")).records] == [b"done"]


@pytest.mark.requirement("mailbox.uncertain-is-never-work-again")
@pytest.mark.parametrize("kind", [ClaimKind.REQUEST, ClaimKind.CONTEXT])
async def test_an_uncertain_record_is_readable_as_such_and_never_taken_again(desk: Desk, kind: ClaimKind) -> None:
    receipt = await desk.send("ann", "bob", kind=Kind.REQUEST if kind is REQUEST else Kind.INFORMATION)
    held = (await desk.taken("bob", kind=kind)).claim
    await desk.finish(held, Outcome.UNCERTAIN, evidence="connection lost")
    assert await desk.claim("bob", kind=kind) is None
    (shown,) = (await desk.receive("bob")).records
    assert shown.delivery is Delivery.UNCERTAIN
    with pytest.raises(ConflictingOutcome):
        await desk.release(held)
    assert desk.now(receipt.record).delivery is Delivery.UNCERTAIN
    assert desk.facts(receipt.record) == [FactKind.CLAIMED, FactKind.UNCERTAIN, FactKind.EXPOSED]


@pytest.mark.requirement("mailbox.evidence-counts-once")
async def test_a_late_proof_settles_what_was_uncertain_once(desk: Desk) -> None:
    await desk.request("ann", "bob")
    held = (await desk.taken("bob")).claim
    await desk.finish(held, Outcome.UNCERTAIN)
    accepted = await desk.finish(held, Outcome.ACCEPTED)
    assert (accepted.record.delivery, accepted.duplicate) == (Delivery.ACCEPTED, False)
    assert accepted.record.inbox is Inbox.AWAY
    with pytest.raises(ConflictingOutcome):
        await desk.finish(held, Outcome.FAILED)


@pytest.mark.requirement("mailbox.evidence-counts-once")
@pytest.mark.parametrize("outcome", [Outcome.ACCEPTED, Outcome.FAILED])
async def test_an_outcome_that_does_not_fit_the_kind_changes_nothing(desk: Desk, outcome: Outcome) -> None:
    await desk.send("ann", "bob")
    held = (await desk.taken("bob", kind=CONTEXT)).claim
    with pytest.raises(InvalidState):
        await desk.finish(held, outcome)
    assert (await desk.finish(held, Outcome.VISIBLE)).record.delivery is Delivery.VISIBLE


@pytest.mark.requirement("mailbox.evidence-counts-once")
async def test_of_many_reports_at_once_exactly_one_is_recorded(desk: Desk) -> None:
    await desk.request("ann", "bob")
    held = (await desk.taken("bob")).claim
    answers = await asyncio.gather(
        *(desk.finish(held, Outcome.ACCEPTED) for _ in range(5)),
        *(desk.release(held) for _ in range(5)),
        *(desk.finish(held, Outcome.FAILED) for _ in range(5)),
        return_exceptions=True,
    )
    assert [answer.duplicate for answer in answers[:5]] == [False, True, True, True, True]  # type: ignore[union-attr]
    assert all(isinstance(answer, ConflictingOutcome) for answer in answers[5:])


@pytest.mark.requirement("mailbox.evidence-counts-once")
async def test_a_token_of_nobody_and_another_generation_are_stale(desk: Desk) -> None:
    await desk.request("ann", "bob")
    held = (await desk.taken("bob")).claim
    for call in (desk.release(held, generation=2), desk.finish(held, Outcome.ACCEPTED, generation=2)):
        with pytest.raises(StaleClaim):
            await call
    assert desk.store.read.claim(held.token) == held


# --- expiry -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.a-claim-ends-with-its-term")
async def test_a_claim_stands_for_its_term_and_is_uncertain_after_it(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    held = (await desk.taken("bob", term_ms=CLAIM_TERM_MS_MIN)).claim
    assert held.expires_at_ms == desk.clock.now_ms() + CLAIM_TERM_MS_MIN
    assert await desk.expire(CLAIM_TERM_MS_MIN - 1) == 0
    assert await desk.expire(1) == 1
    assert await desk.expire(1) == 0
    assert desk.now(request).delivery is Delivery.UNCERTAIN


@pytest.mark.parametrize("term_ms", [CLAIM_TERM_MS_MIN - 1, CLAIM_TERM_MS_MAX + 1, -1])
async def test_a_term_holds_at_its_limits(desk: Desk, term_ms: int) -> None:
    await desk.request("ann", "bob")
    with pytest.raises(InvalidLimit):
        await desk.claim("bob", term_ms=term_ms)
    assert (await desk.taken("bob")).claim.term_ms == CLAIM_TERM_MS_DEFAULT


@pytest.mark.requirement("mailbox.a-claim-ends-with-its-term")
async def test_an_accepted_claim_never_expires(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    await desk.finish((await desk.taken("bob")).claim, Outcome.ACCEPTED)
    assert await desk.expire(10 * CLAIM_TERM_MS_MAX) == 0
    assert desk.now(request).delivery is Delivery.ACCEPTED


@pytest.mark.requirement("mailbox.a-claim-ends-with-its-term")
async def test_a_restart_of_the_mailbox_costs_no_claim_its_term(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    held = (await desk.taken("bob", term_ms=5000)).claim
    await desk.clock.advance(4.999)
    await desk.restart()
    assert await desk.expire(4999) == 0
    assert await desk.expire(1) == 1
    assert desk.now(request).delivery is Delivery.UNCERTAIN
    assert (await desk.finish(held, Outcome.ACCEPTED)).record.delivery is Delivery.ACCEPTED


async def test_a_claim_over_its_term_that_nobody_has_looked_for_can_still_be_given_back(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    held = (await desk.taken("bob", term_ms=1000)).claim
    await desk.clock.advance(60)
    await desk.release(held)
    assert await desk.expire(0) == 0
    assert desk.now(request).delivery is Delivery.PENDING


# --- lives ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.stale-generation-gets-no-authority")
async def test_opening_a_life_fences_the_earlier_ones_and_tells_what_they_left(desk: Desk) -> None:
    claimed, accepted, answered, seen = [await desk.request("ann", "bob", f"{n}") for n in range(4)]
    held = (await desk.taken("bob")).claim
    taken = (await desk.taken("bob")).claim
    await desk.finish(taken, Outcome.ACCEPTED)
    done = (await desk.taken("bob")).claim
    await desk.finish(done, Outcome.ACCEPTED)
    await desk.reply("bob", answered)
    await desk.receive("bob")
    opened = await desk.open("bob", 2)
    assert opened.floor == 2
    assert {record.record_id for record in opened.uncertain} == {claimed.record_id, accepted.record_id}
    assert {record.record_id for record in opened.open_requests} == {
        claimed.record_id,
        accepted.record_id,
        seen.record_id,
    }
    assert desk.now(answered).delivery is Delivery.ACCEPTED
    assert desk.now(claimed).delivery is desk.now(accepted).delivery is Delivery.UNCERTAIN
    again = await desk.open("bob", 2)
    assert (again.floor, list(again.uncertain)) == (2, [])
    for held_before in (held, taken):
        assert (await desk.finish(held_before, Outcome.ACCEPTED)).record.delivery is Delivery.ACCEPTED


@pytest.mark.requirement("mailbox.stale-generation-gets-no-authority")
async def test_an_earlier_life_can_do_nothing_and_nothing_is_written(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    await desk.send("ann", "bob")
    page = await desk.receive("bob", limit=1)
    await desk.open("bob", 3)
    newest = desk.store.read.newest_sequence()
    for generation in (1, 2):
        for call in (
            desk.send("bob", "ann", generation=generation),
            desk.send("bob", "ann", kind=Kind.REQUEST, generation=generation),
            desk.receive("bob", generation=generation),
            desk.receive("bob", generation=generation, ack=page.ack_cursor),
            desk.receive("bob", generation=generation, cursor=page.next_cursor),
            desk.wait("bob", generation=generation),
            desk.reply("bob", request, generation=generation),
            desk.claim("bob", generation=generation),
            desk.claim("bob", generation=generation, kind=CONTEXT),
            desk.open("bob", generation),
        ):
            with pytest.raises(StaleGeneration):
                await call
    assert desk.store.read.newest_sequence() == newest
    assert desk.signals.reads == {id16("bob"): desk.clock.now_ms()}
    assert (await desk.receive("bob", generation=3, limit=1)).records


@pytest.mark.requirement("mailbox.stale-generation-gets-no-authority")
@pytest.mark.parametrize("first", ["send", "receive", "wait", "reply", "claim"])
async def test_the_first_sight_of_a_higher_generation_raises_the_floor(desk: Desk, first: str) -> None:
    request = await desk.request("ann", "bob")
    held = (await desk.taken("bob")).claim
    calls = {
        "send": lambda: desk.send("bob", "ann", generation=5),
        "receive": lambda: desk.receive("bob", generation=5),
        "wait": lambda: desk.wait("bob", generation=5),
        "reply": lambda: desk.reply("bob", request, generation=5),
        "claim": lambda: desk.claim("bob", generation=5),
    }
    await calls[first]()
    assert desk.store.read.floor(id16("bob")) == 5
    assert desk.store.read.claim(held.token).state is ClaimState.UNCERTAIN  # type: ignore[union-attr]
    assert desk.now(request).delivery is Delivery.UNCERTAIN
    with pytest.raises(StaleGeneration):
        await desk.send("bob", "ann")
    assert desk.store.read.floor(id16("ann")) == 1


@pytest.mark.requirement("mailbox.stale-generation-gets-no-authority")
async def test_a_refused_call_of_a_higher_generation_raises_no_floor(desk: Desk) -> None:
    with pytest.raises(NotFound):
        await desk.reply("bob", (await desk.send("ann", "cyd")).record, generation=5)
    assert desk.store.read.floor(id16("bob")) == 1
    await desk.send("bob", "ann")


@pytest.mark.requirement("mailbox.stale-generation-gets-no-authority")
async def test_floors_survive_a_restart_and_batches_in_which_they_are_raised_and_rolled_back(desk: Desk) -> None:
    information = (await desk.send("ann", "cyd")).record
    answers = await asyncio.gather(
        desk.send("bob", "ann"),
        desk.reply("bob", information, generation=4),
        desk.send("bob", "ann"),
        desk.open("bob", 2),
        desk.reply("bob", information, generation=9),
        desk.send("bob", "ann"),
        desk.send("bob", "ann", generation=2),
        return_exceptions=True,
    )
    wrong = [type(answer).__name__ if isinstance(answer, MailboxRefusal) else "" for answer in answers]
    assert wrong == ["", "NotFound", "", "", "NotFound", "StaleGeneration", ""]
    await desk.restart()
    with pytest.raises(StaleGeneration):
        await desk.send("bob", "ann")
    assert desk.store.read.floor(id16("bob")) == 2


async def test_a_life_of_an_agent_that_is_not_known_here_yet_is_put_off(desk: Desk) -> None:
    with pytest.raises(DirectoryStale):
        await desk.open("nobody", 2)
    with pytest.raises(InvalidLimit):
        await desk.open("bob", 0)


async def test_what_an_opened_life_is_told_has_limits(desk: Desk) -> None:
    for n in range(OPEN_REQUESTS_MAX + 1):
        await desk.request("ann", "bob", f"{n}")
        await desk.taken("bob")
    opened = await desk.open("bob", 2)
    assert len(opened.open_requests) == OPEN_REQUESTS_MAX
    assert len(opened.uncertain) == OPEN_REQUESTS_MAX + 1


@pytest.mark.requirement("mailbox.evidence-counts-once")
async def test_a_replaced_life_may_still_tell_what_became_of_its_claim_once(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    held = (await desk.taken("bob")).claim
    await desk.open("bob", 2)
    assert not (await desk.finish(held, Outcome.ACCEPTED)).duplicate
    assert (await desk.finish(held, Outcome.ACCEPTED)).duplicate
    with pytest.raises(ConflictingOutcome):
        await desk.release(held)
    assert desk.facts(request) == [FactKind.CLAIMED, FactKind.UNCERTAIN, FactKind.ACCEPTED]


# --- incarnations -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mailbox.a-later-incarnation-fences-the-earlier")
async def test_a_newer_start_of_a_dispatcher_turns_its_older_claims_uncertain_and_no_others(desk: Desk) -> None:
    held, accepted, other, answered = [await desk.request("ann", "bob", f"{n}") for n in range(4)]
    await desk.taken("bob")
    await desk.finish((await desk.taken("bob")).claim, Outcome.ACCEPTED)
    await desk.taken("bob", dispatcher="another")
    await desk.finish((await desk.taken("bob")).claim, Outcome.ACCEPTED)
    await desk.reply("bob", answered)
    assert await desk.claim("cyd", incarnation=2) is None
    assert desk.now(held).delivery is desk.now(accepted).delivery is Delivery.UNCERTAIN
    assert desk.now(other).delivery is Delivery.CLAIMED
    assert desk.now(answered).delivery is Delivery.ACCEPTED


@pytest.mark.requirement("mailbox.a-later-incarnation-fences-the-earlier")
async def test_an_older_start_gets_no_claim_and_no_answer_to_one(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    await desk.taken("bob", key="k")
    await desk.claim("cyd", incarnation=2)
    for key in ("k", "new"):
        with pytest.raises(StaleIncarnation):
            await desk.claim("bob", key=key)
    assert desk.now(request).delivery is Delivery.UNCERTAIN
    with pytest.raises(InvalidLimit):
        await desk.claim("bob", incarnation=0)
    await desk.restart()
    with pytest.raises(StaleIncarnation):
        await desk.claim("bob")


async def concerned(desk: Desk, call: Awaitable[object]) -> tuple[set[str], set[str]]:
    """Whose waits a call wakes, and whose dispatchers it tells."""
    desk.woken.clear()
    desk.worked.clear()
    await call
    names = {id16(name): name for name in ("ann", "bob", "cyd")}
    return {names[one] for one in desk.woken}, {names[one] for one in desk.worked}


@pytest.mark.requirement("mailbox.a-wait-misses-nothing", "mailbox.work-is-told-as-a-state")
async def test_every_commit_wakes_and_tells_exactly_those_whom_it_concerns(desk: Desk) -> None:
    nobody: set[str] = set()
    requests = [await desk.request("ann", "bob", f"{n}") for n in range(6)]
    assert await concerned(desk, desk.send("ann", "bob")) == ({"bob"}, {"bob"})
    assert await concerned(desk, desk.request("ann", "cyd")) == ({"cyd"}, {"cyd"})
    assert await concerned(desk, desk.receive("cyd")) == (nobody, nobody)
    assert await concerned(desk, desk.reply("bob", requests[0])) == ({"ann"}, {"ann"})
    claims = [(await desk.taken("bob")).claim for _ in range(4)]
    assert await concerned(desk, desk.release(claims[0])) == ({"bob"}, {"bob"})
    assert await concerned(desk, desk.finish(claims[1], Outcome.FAILED)) == ({"ann"}, {"ann", "bob"})
    assert await concerned(desk, desk.finish(claims[2], Outcome.UNCERTAIN)) == ({"bob"}, nobody)
    assert await concerned(desk, desk.finish(claims[3], Outcome.ACCEPTED)) == (nobody, {"bob"})
    assert await concerned(desk, desk.open("bob", 2)) == ({"bob"}, {"bob"})
    assert await concerned(desk, desk.send("cyd", "ann", generation=2)) == ({"ann", "cyd"}, {"ann", "cyd"})


@pytest.mark.requirement("mailbox.a-wait-misses-nothing")
async def test_giving_a_request_up_wakes_its_requester(desk: Desk) -> None:
    await desk.request("ann", "bob")
    for _ in range(RELEASES_MAX - 1):
        await desk.release((await desk.taken("bob")).claim)
    last = (await desk.taken("bob")).claim
    assert await concerned(desk, desk.release(last)) == ({"ann"}, {"ann", "bob"})


async def test_numbers_are_given_once_in_the_order_of_commits(desk: Desk) -> None:
    await asyncio.gather(*(desk.request("ann", "bob") for _ in range(10)))
    for _ in range(3):
        await desk.release((await desk.taken("bob")).claim)
    await desk.receive("bob")
    await desk.restart()
    await desk.request("ann", "bob")
    records = desk.store.read.received(id16("bob"), 2**62, 100)
    numbers = [record.sequence for record in records]
    for record in records:
        numbers += [fact.sequence for fact in desk.store.read.facts(record.record_id, 100)]
    assert len(set(numbers)) == len(numbers)
    assert max(numbers) == desk.store.read.newest_sequence()
