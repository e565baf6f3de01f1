"""Wake-ups: for what an agent can act on, at most one outstanding, a few times, and never lost by a restart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencepost_mailbox.domain.bindings import Mode, TurnOutcome
from fencepost_mailbox.domain.claims import Outcome
from fencepost_mailbox.domain.tasks.needs import task_id_text
from fencepost_mailbox.domain.tasks.values import Notice, Notification
from fencepost_mailbox.domain.tasks.waking import (
    NOTHING_DUE,
    WAKE_AGAIN_MS,
    WAKE_NOTICES_MAX,
    WAKES_MAX,
    WAKES_WINDOW_MS,
    Due,
    judge,
)
from fencepost_mailbox.domain.texts import record_id_text
from fencepost_mailbox.domain.values import RELEASES_MAX, Answer, Delivery, FactKind, Kind, Origin
from fencepost_mailbox.usecases.claim import ClaimKind, Expiring, Taken
from fencepost_mailbox.usecases.look import Explain
from fencepost_mailbox.usecases.open_generation import OpenGeneration
from fencepost_mailbox.usecases.tasks import waking
from fencepost_mailbox.work import WorkWatch
from fencepost_testing.mailboxes import a_caller, a_turn, id16
from fencepost_testing.task_desk import TaskDesk

WAKE, STOP = ClaimKind.WAKE, ClaimKind.STOP
DUE = Due(wake=True)


def said(taken: Taken) -> str:
    return taken.record.body.decode()


@pytest.mark.requirement("wakes.what-an-agent-can-act-on-wakes-it")
async def test_an_assignment_a_review_a_return_and_a_stop_wake_and_nothing_else_does(desk: TaskDesk) -> None:
    task = await desk.assign("ann", "bob")
    assert desk.due("bob") == DUE
    await desk.start_task("bob", task)
    assert (desk.due("bob"), desk.due("ann")) == (NOTHING_DUE, NOTHING_DUE)
    await desk.submit("bob", task)
    assert (desk.due("bob"), desk.due("ann")) == (NOTHING_DUE, DUE)
    await desk.reject("ann", task)
    assert (desk.due("bob"), desk.due("ann")) == (DUE, NOTHING_DUE)
    await desk.start_task("bob", task)
    await desk.cancel("ann", task)
    assert desk.due("bob") == Due(wake=True, stop=True)
    await desk.finish_cancel("bob", task)
    # What is over stands for its issuer to know, and wakes nobody; nor does the pool, however many may claim.
    assert desk.standing("ann") == [Notice.CANCELLED]
    await desk.pool("ann", "bob", "dan")
    failed = await desk.assign("ann", "dan")
    await desk.start_task("dan", failed)
    await desk.fail("dan", failed)
    assert [desk.due(who) for who in ("ann", "bob", "dan")] == [NOTHING_DUE] * 3


@pytest.mark.requirement("wakes.what-an-agent-can-act-on-wakes-it")
async def test_of_a_queue_only_its_first_task_wakes_and_only_while_nothing_is_in_execution(desk: TaskDesk) -> None:
    first, second = [await desk.assign("ann", "bob") for _ in range(2)]
    woken = await desk.wake("bob")
    assert task_id_text(first) in said(woken)
    assert task_id_text(second) not in said(woken)
    await desk.start_task("bob", first)
    await desk.ended(woken.claim)
    assert desk.due("bob") == NOTHING_DUE, "the second cannot be started while the first is in execution"
    desk.worked.clear()
    await desk.submit("bob", first)
    assert id16("bob") in desk.worked
    again = await desk.taken("bob", kind=WAKE)
    assert task_id_text(second) in said(again), "it never was told: it does not rest"


@pytest.mark.requirement("wakes.at-most-one-is-outstanding")
async def test_what_comes_while_a_wake_up_is_outstanding_is_told_by_the_next(desk: TaskDesk) -> None:
    await desk.assign("ann", "bob")
    held = await desk.taken("bob", kind=WAKE)
    reviewed = await desk.assign("ann", "dan", reviewer="bob")
    await desk.done_by("dan", reviewed)
    assert desk.due("bob") == NOTHING_DUE
    assert await desk.claim("bob", kind=WAKE) is None
    await desk.finish(held.claim, Outcome.ACCEPTED, turn=a_turn())
    assert await desk.claim("bob", kind=WAKE) is None
    desk.worked.clear()
    await desk.ended(held.claim)
    assert desk.worked == [id16("bob")]
    following = await desk.taken("bob", kind=WAKE)
    assert following.record.record_id != held.record.record_id
    assert task_id_text(reviewed) in said(following)
    assert "You were woken for some of it before" in said(following)


@pytest.mark.requirement("wakes.a-wake-up-is-carried-and-never-read")
async def test_a_wake_up_says_what_to_do_next_and_nothing_of_the_tasks_own_words(desk: TaskDesk) -> None:
    secret = "the words of the task"
    mine = await desk.assign("ann", "bob", description=secret)
    theirs = await desk.assign("ann", "dan", reviewer="bob", description=secret)
    await desk.done_by("dan", theirs)
    taken = await desk.taken("bob", kind=WAKE)
    record = taken.record
    assert (record.kind, record.origin, record.sender) == (Kind.WAKE, Origin.HOST, None)
    lines = said(taken).split("\n")
    assert f"- {task_id_text(theirs)}: it waits for your review." in lines[1]
    assert f"- {task_id_text(mine)}: it is assigned to you" in lines[2]
    assert ("task_review" in lines[1], "task_start" in lines[2], secret in said(taken)) == (True, True, False)
    page = await desk.receive("bob")
    assert (page.records, page.open_requests, page.unacknowledged) == ([], [], 0)
    await desk.finish(taken.claim, Outcome.ACCEPTED, turn=a_turn())
    await desk.ended(taken.claim, final="words that nobody waits for")
    assert desk.now(record).answer is Answer.CLOSED
    assert desk.facts(record) == [FactKind.CLAIMED, FactKind.ACCEPTED, FactKind.BOUND, FactKind.OUTCOME_RECORDED]
    bound = desk.store.read.binding(taken.claim.token)
    assert bound is not None
    assert bound.final == b""


@pytest.mark.requirement("wakes.again-a-few-times-and-then-left")
async def test_what_still_stands_is_told_again_after_its_pause_and_then_left(desk: TaskDesk) -> None:
    task = await desk.assign("ann", "bob")
    for pause_ms in WAKE_AGAIN_MS:
        await desk.ended((await desk.wake("bob")).claim)
        await desk.clock.advance((pause_ms - 1) / 1000)
        assert desk.due("bob") == NOTHING_DUE
        await desk.clock.advance(0.001)
        assert desk.due("bob") == DUE
    await desk.ended((await desk.wake("bob")).claim)
    await desk.clock.advance(7 * 24 * 3600)
    assert desk.due("bob") == Due(left=1)
    assert await desk.claim("bob", kind=WAKE) is None
    # Something new wakes at once, and tells of the old too; what is left never stops being told along.
    review = await desk.assign("ann", "dan", reviewer="bob")
    await desk.done_by("dan", review)
    assert desk.due("bob") == Due(wake=True, left=1)
    woken = await desk.wake("bob")
    assert (task_id_text(task) in said(woken), task_id_text(review) in said(woken)) == (True, True)
    await desk.start_task("bob", task)
    await desk.accept("bob", review)
    await desk.ended(woken.claim)
    assert desk.due("bob") == NOTHING_DUE


@pytest.mark.requirement("wakes.again-a-few-times-and-then-left")
async def test_a_task_that_comes_back_wakes_as_if_it_were_new(desk: TaskDesk) -> None:
    task = await desk.assign("ann", "bob")
    for pause_ms in (*WAKE_AGAIN_MS, 0):
        await desk.ended((await desk.wake("bob")).claim)
        await desk.clock.advance(pause_ms / 1000)
    assert desk.due("bob") == Due(left=1)
    await desk.start_task("bob", task)
    await desk.submit("bob", task)
    await desk.reject("ann", task)
    assert desk.due("bob") == DUE


@pytest.mark.requirement("wakes.known-again-after-a-restart")
async def test_a_restart_neither_loses_a_wake_up_nor_tells_one_twice(desk: TaskDesk) -> None:
    await desk.assign("ann", "bob")
    await desk.restart()
    assert desk.due("bob") == DUE
    woken = await desk.wake("bob")
    await desk.restart()
    assert desk.due("bob") == NOTHING_DUE
    await desk.ended(woken.claim)
    await desk.restart()
    assert desk.due("bob") == NOTHING_DUE
    await desk.clock.advance(WAKE_AGAIN_MS[0] / 1000)
    assert desk.due("bob") == DUE


@pytest.mark.requirement("wakes.never-a-second-turn-for-one")
async def test_a_claim_whose_answer_was_lost_is_answered_the_same_after_a_restart(desk: TaskDesk) -> None:
    await desk.assign("ann", "bob")
    held = await desk.taken("bob", kind=WAKE, key="lost")
    await desk.restart()
    again = await desk.taken("bob", kind=WAKE, key="lost")
    assert (again.claim, again.record.record_id, again.duplicate) == (held.claim, held.record.record_id, True)
    assert await desk.claim("bob", kind=WAKE) is None


@pytest.mark.requirement("wakes.given-back-is-told-anew")
async def test_a_wake_up_that_was_given_back_is_taken_again_with_the_words_of_now(desk: TaskDesk) -> None:
    task = await desk.assign("ann", "bob")
    held = await desk.taken("bob", kind=WAKE)
    assert await desk.claim("bob") is None
    await desk.release(held.claim)
    assert await desk.claim("bob") is None, "no request: a wake-up is taken as such"
    why = (await Explain(desk.ports)(a_caller("bob"), Kind.WAKE, held.record.record_id)).summary
    assert ("shown by no receive" in why, "calls receive" in why) == (True, False)
    assert desk.due("bob") == DUE
    review = await desk.assign("ann", "dan", reviewer="bob")
    await desk.done_by("dan", review)
    again = await desk.taken("bob", kind=WAKE)
    assert again.record.record_id == held.record.record_id
    assert (task_id_text(task) in said(again), task_id_text(review) in said(again)) == (True, True)
    assert "before" not in said(again).split("\n")[-2], "nothing was shown before"
    assert desk.now(held.record).body == again.record.body
    await desk.release(again.claim)
    await desk.start_task("bob", task)
    await desk.accept("bob", review)
    assert desk.due("bob") == NOTHING_DUE
    assert await desk.claim("bob", kind=WAKE) is None


@pytest.mark.requirement("wakes.given-back-is-told-anew")
async def test_one_that_is_given_back_too_often_fails_and_counts_as_told(desk: TaskDesk) -> None:
    await desk.assign("ann", "bob")
    for _ in range(RELEASES_MAX):
        held = await desk.taken("bob", kind=WAKE)
        await desk.release(held.claim)
    failed = desk.now(held.record)
    assert (failed.delivery, failed.answer) == (Delivery.FAILED, Answer.CLOSED)
    assert desk.due("bob") == NOTHING_DUE
    await desk.clock.advance(WAKE_AGAIN_MS[0] / 1000)
    assert (await desk.taken("bob", kind=WAKE)).record.record_id != held.record.record_id


@pytest.mark.requirement("wakes.an-uncertain-one-is-named-by-the-next")
@pytest.mark.parametrize("how", ["finished", "expired", "restarted", "new life", "turn lost"])
async def test_one_whose_arrival_is_not_known_is_over_and_the_next_names_it(desk: TaskDesk, how: str) -> None:
    await desk.assign("ann", "bob")
    held = await desk.taken("bob", kind=WAKE)
    generation = 1
    if how == "finished":
        await desk.finish(held.claim, Outcome.UNCERTAIN)
    elif how == "expired":
        await desk.clock.advance(held.claim.term_ms / 1000)
        desk.worked.clear()
        assert await desk.store.submit(Expiring(now_ms=desk.clock.now_ms())) == 1
        assert desk.worked == [id16("bob")]
    elif how == "restarted":
        assert await desk.claim("dan", incarnation=2) is None
    elif how == "new life":
        generation = 2
        await OpenGeneration(desk.ports)(id16("bob"), generation)
    else:
        await desk.finish(held.claim, Outcome.ACCEPTED, turn=a_turn())
        await desk.ended(held.claim, TurnOutcome.LOST)
    lost = desk.now(held.record)
    assert (lost.delivery, lost.answer) == (Delivery.UNCERTAIN, Answer.CLOSED)
    incarnation = 2 if how == "restarted" else 1
    options = {"kind": WAKE, "incarnation": incarnation, "generation": generation}
    assert await desk.claim("bob", **options) is None, "not before its pause: it may have arrived"
    await desk.clock.advance(WAKE_AGAIN_MS[0] / 1000)
    following = await desk.taken("bob", **options)
    name = record_id_text(Kind.WAKE, held.record.record_id)
    assert f"not known ({name})" in said(following)


@pytest.mark.requirement("wakes.an-uncertain-one-is-named-by-the-next")
async def test_late_evidence_of_a_lost_wake_up_is_kept(desk: TaskDesk) -> None:
    await desk.assign("ann", "bob")
    held = await desk.taken("bob", kind=WAKE)
    await desk.finish(held.claim, Outcome.UNCERTAIN)
    late = await desk.finish(held.claim, Outcome.ACCEPTED, turn=a_turn())
    assert (late.record.delivery, late.record.answer) == (Delivery.ACCEPTED, Answer.CLOSED)
    ended = await desk.ended(held.claim)
    assert not ended.duplicate
    assert desk.due("bob") == NOTHING_DUE


async def test_where_nobody_sees_turns_end_a_wake_up_is_over_when_it_is_taken(desk: TaskDesk) -> None:
    await desk.assign("ann", "bob")
    held = await desk.taken("bob", kind=WAKE)
    await desk.finish(held.claim, Outcome.ACCEPTED)
    assert desk.now(held.record).answer is Answer.CLOSED
    assert desk.due("bob") == NOTHING_DUE
    await desk.clock.advance(WAKE_AGAIN_MS[0] / 1000)
    assert desk.due("bob") == DUE


@pytest.mark.requirement("wakes.a-stop-may-join-the-turn-that-runs")
async def test_a_request_to_stop_is_told_to_the_turn_that_runs_once(desk: TaskDesk) -> None:
    task = await desk.assign("ann", "bob")
    woken = await desk.wake("bob")
    await desk.start_task("bob", task)
    other = await desk.assign("ann", "dan", reviewer="bob")
    await desk.done_by("dan", other)
    assert (desk.due("bob"), await desk.claim("bob", kind=STOP)) == (NOTHING_DUE, None)
    await desk.cancel("ann", task)
    assert desk.due("bob") == Due(stop=True), "its turn runs: nothing is begun"
    stop = await desk.taken("bob", kind=STOP)
    assert (task_id_text(task) in said(stop), task_id_text(other) in said(stop)) == (True, False)
    assert await desk.claim("bob", kind=STOP) is None
    joined = a_turn(mode=Mode.STEER)
    await desk.finish(stop.claim, Outcome.ACCEPTED, turn=joined)
    assert (desk.due("bob"), await desk.claim("bob", kind=STOP)) == (NOTHING_DUE, None)
    await desk.ended(woken.claim)
    await desk.ended(stop.claim, turn=joined)
    assert desk.due("bob") == DUE, "the review was not told yet"
    following = await desk.wake("bob")
    assert task_id_text(task) in said(following)
    await desk.finish_cancel("bob", task)
    await desk.ended(following.claim)
    assert desk.due("bob") == NOTHING_DUE


@pytest.mark.requirement("wakes.a-stop-may-join-the-turn-that-runs")
async def test_a_stop_that_the_turn_did_not_take_is_told_by_the_next_wake_up(desk: TaskDesk) -> None:
    task = await desk.assign("ann", "bob")
    woken = await desk.wake("bob")
    await desk.start_task("bob", task)
    await desk.cancel("ann", task)
    stop = await desk.taken("bob", kind=STOP)
    await desk.release(stop.claim)
    assert desk.due("bob") == Due(stop=True)
    await desk.ended(woken.claim)
    assert desk.due("bob") == Due(wake=True, stop=True)
    again = await desk.taken("bob", kind=WAKE)
    assert again.record.record_id == stop.record.record_id


@pytest.mark.requirement("wakes.what-an-agent-can-act-on-wakes-it")
async def test_an_attempt_that_an_earlier_life_left_wakes_the_later_one(desk: TaskDesk) -> None:
    task = await desk.assign("ann", "bob")
    await desk.assign("ann", "bob")
    await desk.start_task("bob", task)
    desk.worked.clear()
    await OpenGeneration(desk.ports)(id16("bob"), 2)
    assert id16("bob") in desk.worked
    taken = await desk.taken("bob", kind=WAKE, generation=2)
    assert f"- {task_id_text(task)}: it was in execution" in said(taken)
    await desk.start_task("bob", task, generation=2)
    assert desk.due("bob") == NOTHING_DUE


async def test_one_wake_up_tells_of_so_many_notifications_and_says_that_there_are_more(desk: TaskDesk) -> None:
    for _ in range(WAKE_NOTICES_MAX + 1):
        await desk.done_by("dan", await desk.assign("ann", "dan", reviewer="bob"))
    woken = await desk.wake("bob")
    assert said(woken).count("- task_") == WAKE_NOTICES_MAX
    assert "There is more of the kind" in said(woken)
    await desk.ended(woken.claim)
    following = await desk.wake("bob")
    (fresh, *_) = desk.store.read.tasks.notifications(id16("bob"), 0, 100)[::-1]
    assert task_id_text(fresh.task_id) in said(following), "those told least often go first"


@pytest.mark.requirement("wakes.known-again-after-a-restart")
async def test_a_watcher_is_told_who_is_to_be_woken_at_the_listing_at_a_change_and_after_a_pause(
    desk: TaskDesk,
) -> None:
    watch = WorkWatch(desk.store, desk.clock.now_ms)
    task = await desk.assign("ann", "bob")
    stream = watch.watch([])
    first = await anext(stream)
    assert (first.agent_id, first.requests, first.context, first.due) == (id16("bob"), False, False, DUE)
    assert (await anext(stream)).agent_id == b""
    for pause_ms in WAKE_AGAIN_MS:
        await desk.ended((await desk.wake("bob")).claim)
        watch.look_for_rested()
        await desk.clock.advance(pause_ms / 1000)
        watch.look_for_rested()
        assert (await anext(stream)).due == DUE
    await desk.ended((await desk.wake("bob")).claim)
    watch.mark([id16("bob")])
    assert (await anext(stream)).due == Due(left=1)
    await desk.start_task("bob", task)
    watch.mark([id16("bob")])
    over = await anext(stream)
    assert (over.agent_id, over.due) == (id16("bob"), NOTHING_DUE), "that nothing is left any more is told too"
    await stream.aclose()  # type: ignore[attr-defined]


def test_as_many_pauses_as_wake_ups_but_one() -> None:
    assert len(WAKE_AGAIN_MS) == WAKES_MAX - 1


@pytest.mark.requirement("wakes.given-back-is-told-anew")
async def test_what_a_given_back_wake_up_told_of_counts_as_never_told(desk: TaskDesk) -> None:
    mine = await desk.assign("ann", "bob")
    held = await desk.taken("bob", kind=WAKE)
    await desk.release(held.claim)
    # Before it is taken again the agent begins something else: what it was to be told of is not told now.
    other = await desk.pool("ann", "bob")
    await desk.claim_task("bob", other)
    review = await desk.assign("ann", "dan", reviewer="bob")
    await desk.done_by("dan", review)
    again = await desk.wake("bob")
    assert (task_id_text(mine) in said(again), task_id_text(review) in said(again)) == (False, True)
    await desk.accept("bob", review)
    await desk.submit("bob", other)
    await desk.ended(again.claim)
    assert desk.due("bob") == DUE, "nobody ever told it: it does not rest"


@pytest.mark.requirement("wakes.given-back-is-told-anew")
async def test_what_a_given_back_wake_up_told_of_is_not_told_by_the_request_to_stop_that_joins_a_turn(
    desk: TaskDesk,
) -> None:
    review = await desk.assign("ann", "dan", reviewer="bob")
    await desk.done_by("dan", review)
    running = await desk.assign("ann", "bob")
    await desk.start_task("bob", running)
    held = await desk.taken("bob", kind=WAKE)
    await desk.release(held.claim)
    await desk.cancel("ann", running)
    joined = await desk.taken("bob", kind=STOP)
    assert task_id_text(review) not in said(joined)
    await desk.finish(joined.claim, Outcome.ACCEPTED, turn=a_turn())
    await desk.finish_cancel("bob", running)
    await desk.ended(joined.claim)
    assert desk.due("bob") == DUE


@pytest.mark.requirement("wakes.an-uncertain-one-is-named-by-the-next")
async def test_one_whose_arrival_is_not_known_is_named_by_the_next_also_when_that_was_given_back(
    desk: TaskDesk,
) -> None:
    await desk.assign("ann", "bob")
    lost = await desk.taken("bob", kind=WAKE)
    await desk.finish(lost.claim, Outcome.UNCERTAIN)
    await desk.clock.advance(WAKE_AGAIN_MS[0] / 1000)
    held = await desk.taken("bob", kind=WAKE)
    await desk.release(held.claim)
    again = await desk.taken("bob", kind=WAKE)
    assert record_id_text(Kind.WAKE, lost.record.record_id) in said(again)


@pytest.mark.requirement("wakes.no-storm")
async def test_agents_that_give_each_other_tasks_in_a_circle_are_woken_so_often_an_hour(
    desk: TaskDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waking, "WAKES_WINDOW_MAX", 3)
    began_ms = desk.clock.now_ms()
    watch = WorkWatch(desk.store, desk.clock.now_ms)
    stream = watch.watch([id16("bob")])
    turns = 0
    while turns < 20:
        task = await desk.assign("ann", "bob")
        if (taken := await desk.claim("bob", kind=WAKE)) is None:
            break
        turns += 1
        await desk.finish(taken.claim, Outcome.ACCEPTED, turn=a_turn())
        await desk.start_task("bob", task)
        back = await desk.assign("bob", "ann")
        await desk.submit("bob", task)
        await desk.ended(taken.claim)
        await desk.start_task("ann", back)
        await desk.submit("ann", back)
        await desk.accept("ann", task)
        await desk.accept("bob", back)
        await desk.clock.advance(60)
    assert turns == 3
    held = Due(held_until_ms=began_ms + WAKES_WINDOW_MS)
    assert desk.due("bob") == held
    assert (await anext(stream)).due == held
    assert (await anext(stream)).agent_id == b""
    # What stops work goes through: into the turn that runs, if one does.
    await desk.start_task("bob", task)
    await desk.cancel("ann", task)
    assert desk.due("bob") == Due(stop=True, held_until_ms=held.held_until_ms)
    joined = await desk.bound("bob", kind=STOP)
    await desk.finish_cancel("bob", task)
    await desk.ended(joined.claim)
    await desk.assign("ann", "bob")
    assert desk.due("bob").wake is False, "it counts like the others"
    await stream.aclose()  # type: ignore[attr-defined]


@pytest.mark.requirement("wakes.no-storm")
async def test_one_that_was_held_is_woken_when_the_hour_has_moved_on_also_after_a_restart(
    desk: TaskDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waking, "WAKES_WINDOW_MAX", 1)
    task = await desk.assign("ann", "bob")
    await desk.ended((await desk.wake("bob")).claim)
    await desk.start_task("bob", task)
    await desk.submit("bob", task)
    await desk.reject("ann", task)
    await desk.restart()
    watch = WorkWatch(desk.store, desk.clock.now_ms)
    stream = watch.watch([])
    first = await anext(stream)
    assert (first.agent_id, first.due) == (id16("bob"), Due(held_until_ms=desk.clock.now_ms() + WAKES_WINDOW_MS))
    assert await desk.claim("bob", kind=WAKE) is None
    assert (await anext(stream)).agent_id == b""
    watch.look_for_rested()
    await desk.clock.advance(WAKES_WINDOW_MS / 1000)
    watch.look_for_rested()
    assert (await anext(stream)).due == DUE
    held = await desk.taken("bob", kind=WAKE)
    await desk.release(held.claim)
    assert (await desk.taken("bob", kind=WAKE)).record.record_id == held.record.record_id, "it is counted already"
    await stream.aclose()  # type: ignore[attr-defined]


@pytest.mark.requirement("wakes.again-a-few-times-and-then-left")
def test_a_pause_that_another_clock_set_far_ahead_holds_up_nothing() -> None:
    now_ms, far_ms = 1_000_000, 1_000_000 + 366 * 24 * 3_600_000
    notice = Notification(
        sequence=1, agent=b"a", task_id=b"t", notice=Notice.REVIEW, at_ms=1, wakes=1, again_at_ms=far_ms
    )
    assert judge([notice], [], now_ms, oldest_counted_ms=far_ms) == DUE
    soon = replace(notice, again_at_ms=now_ms + WAKE_AGAIN_MS[-1])
    assert judge([soon], [], now_ms) == NOTHING_DUE
