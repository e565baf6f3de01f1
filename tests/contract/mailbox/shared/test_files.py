"""File reservations: all or nothing, exclusive and shared, by whom and until when."""

from __future__ import annotations

import asyncio

import pytest

from fencepost_mailbox.domain.files.refusals import InvalidPath, InvalidReservation, ReservationLimit, ReservationLost
from fencepost_mailbox.domain.files.values import (
    CONFLICTS_LISTED_MAX,
    DURATION_S_DEFAULT,
    DURATION_S_MAX,
    EXPIRED_RESERVATIONS_MAX,
    PATHS_MAX,
    RESERVATIONS_PAGE_BYTES_MAX,
    RESERVED_OF_ONE_AGENT_MAX,
    Mode,
    Reserved,
    Scope,
    Span,
)
from fencepost_mailbox.domain.refusals import InvalidCursor, StaleGeneration
from fencepost_mailbox.domain.tasks.refusals import RequestConflict, StaleAttempt
from fencepost_mailbox.domain.tasks.values import Action
from fencepost_mailbox.store.protocol import Applied, Transaction
from fencepost_mailbox.usecases.delete import Closing
from fencepost_mailbox.usecases.files.hold import Answer
from fencepost_mailbox.usecases.files.look import LookAtFiles
from fencepost_mailbox.usecases.open_generation import OpenGeneration
from fencepost_testing.mailboxes import PROJECT, id16
from fencepost_testing.shared_desk import SharedDesk
from fencepost_testing.task_desk import OPERATOR, caller_named


def held(answer: Answer) -> bytes:
    """The id of a reservation that was had."""
    assert answer.reservation_id is not None, answer
    return answer.reservation_id


@pytest.mark.requirement("files.a-refusal-is-an-answer")
async def test_a_file_that_somebody_holds_is_not_reserved_and_the_answer_says_by_whom_why_and_until_when(
    desk: SharedDesk,
) -> None:
    first = await desk.reserve("ann", "src/a.py", reason="split the parser")
    assert first.expires_at_ms == desk.clock.now_ms() + 1000 * DURATION_S_DEFAULT
    refused = await desk.reserve("bob", "src/a.py")
    assert refused.reservation_id is None
    (conflict,) = refused.conflicts.listed
    assert conflict.held.holder == id16("ann")
    assert conflict.held.reason == "split the parser"
    assert conflict.held.expires_at_ms == first.expires_at_ms
    assert conflict.asked == Span(path="src/a.py")
    assert await desk.bars("bob", "src/a.py") == ["ann"]
    assert await desk.bars("ann", "src/a.py") == []
    assert await desk.bars(OPERATOR, "src/a.py") == ["ann"]


@pytest.mark.requirement("files.all-or-nothing")
async def test_of_many_paths_all_are_reserved_or_none_is(desk: SharedDesk) -> None:
    await desk.reserve("ann", "b")
    refused = await desk.reserve("bob", "a", "b", "c")
    assert refused.reservation_id is None
    assert await desk.bars("dan", "a", "c") == []
    assert [one.span.path for one in await desk.reservations()] == ["b"]


@pytest.mark.requirement("files.folders-and-globs-cover-what-is-below")
async def test_folders_and_globs_cover_what_is_below_them(desk: SharedDesk) -> None:
    await desk.reserve("ann", "src")
    await desk.reserve("bob", globs=["docs/*.md", "tools/**/BUILD"])
    assert (await desk.reserve("dan", globs=["**/BUILD"])).reservation_id is None, "there may be one below src"
    assert await desk.bars("dan", "src/deep/a.py") == ["ann"]
    assert await desk.bars("dan", "source") == []
    assert await desk.bars("dan", "docs/a.md") == ["bob"]
    assert await desk.bars("dan", "docs") == ["bob"]
    assert await desk.bars("dan", "docs/sub/a.md") == []
    assert await desk.bars("dan", "tools/x/y/BUILD") == ["bob"]
    assert await desk.bars("dan", ".") == ["ann", "bob"]
    assert await desk.bars("dan", globs=["docs/**/*.txt"]) == ["bob"], "two globs of one folder count as overlapping"
    assert await desk.bars("dan", globs=["other/*"]) == []
    assert await desk.bars("dan", globs=["*/x"]) == ["ann", "bob"], "one from the root on overlaps with every glob"


@pytest.mark.requirement("files.exclusive-and-shared")
async def test_shared_reservations_stand_together_and_against_exclusive_ones(desk: SharedDesk) -> None:
    held(await desk.reserve("ann", "a", mode=Mode.SHARED))
    held(await desk.reserve("bob", "a", mode=Mode.SHARED))
    assert (await desk.reserve("dan", "a")).reservation_id is None
    assert (await desk.reserve("ann", "a")).reservation_id is None, "another shares it: it cannot be had alone"
    assert await desk.bars("ann", "a") == [], "who shares a file may write to it"
    assert await desk.bars("dan", "a") == ["ann", "bob"]
    assert await desk.bars("ann", "a", ".") == ["bob"], "only of what it covers"
    await desk.let_go("bob", "a")
    held(await desk.reserve("ann", "a"))
    assert (await desk.reserve("bob", "a", mode=Mode.SHARED)).reservation_id is None


async def test_an_agent_never_stands_in_its_own_way(desk: SharedDesk) -> None:
    held(await desk.reserve("ann", "src"))
    held(await desk.reserve("ann", "src/a.py"))
    held(await desk.reserve("ann", globs=["src/*"], mode=Mode.SHARED))
    assert len(await desk.reservations(holder="ann")) == 3


@pytest.mark.requirement("files.expired-ones-stop-at-once")
async def test_what_has_expired_stands_in_nobodys_way_from_that_moment(desk: SharedDesk) -> None:
    await desk.reserve("ann", "a", seconds=1)
    await desk.clock.advance(0.999)
    assert await desk.bars("bob", "a") == ["ann"]
    await desk.clock.advance(0.001)
    assert await desk.bars("bob", "a") == []
    assert await desk.reservations() == []
    held(await desk.reserve("bob", "a"))
    with pytest.raises(ReservationLost):
        await desk.renew("ann", "a")
    assert desk.store.read.files.any_expired(desk.clock.now_ms())
    await desk.sweeper.drop_expired()
    assert not desk.store.read.files.any_expired(desk.clock.now_ms())
    assert await desk.bars("ann", "a") == ["bob"]


@pytest.mark.requirement("files.renewing-never-revives")
async def test_a_renewal_puts_the_expiry_off_and_revives_nothing(desk: SharedDesk) -> None:
    first = await desk.reserve("ann", "a", "b", seconds=10)
    await desk.clock.advance(5)
    renewed = await desk.renew("ann", ids=[held(first)], seconds=10)
    assert (renewed.count, renewed.expires_at_ms) == (2, desk.clock.now_ms() + 10_000)
    assert (await desk.renew("ann", "a", seconds=1)).expires_at_ms == renewed.expires_at_ms, "never to an earlier time"
    for call in (
        desk.renew("bob", ids=[held(first)]),
        desk.renew("ann", "a", "c"),
        desk.renew("ann", globs=["a*"]),
    ):
        with pytest.raises(ReservationLost, match="nothing was written"):
            await call
    await desk.clock.advance(10)
    with pytest.raises(ReservationLost):
        await desk.renew("ann", ids=[held(first)])


@pytest.mark.requirement("files.release-by-path-id-or-all")
async def test_what_is_released_is_free_and_releasing_again_is_harmless(desk: SharedDesk) -> None:
    first = await desk.reserve("ann", "a", "b", globs=["c*"])
    assert (await desk.let_go("ann", "a", globs=["c*"])).count == 2
    assert (await desk.let_go("ann", "a")).count == 0
    assert await desk.bars("bob", "a", "cx") == []
    assert await desk.bars("bob", "b") == ["ann"]
    assert (await desk.let_go("bob", ids=[held(first)])).count == 0, "not another's"
    assert (await desk.let_go("ann", ids=[held(first)])).count == 1
    await desk.reserve("ann", "d", "e")
    assert (await desk.let_go("ann", everything=True)).count == 2


@pytest.mark.requirement("files.a-person-may-end-any-reservation")
async def test_the_operator_ends_anybodys_and_an_agent_only_its_own(desk: SharedDesk) -> None:
    first = await desk.reserve("ann", "a", "b")
    assert (await desk.let_go(OPERATOR, "a", holder="ann")).count == 1
    assert (await desk.let_go(OPERATOR, ids=[held(first)])).count == 1
    await desk.reserve("ann", "a")
    assert (await desk.let_go(OPERATOR, everything=True, holder="ann")).count == 1
    for call in (
        desk.let_go("bob", everything=True, holder="ann"),
        desk.let_go(OPERATOR, everything=True),
        desk.let_go(OPERATOR, "a"),
        desk.let_go("ann", "a", everything=True),
        desk.let_go("ann"),
    ):
        with pytest.raises(InvalidReservation, match="nothing was written"):
            await call


@pytest.mark.requirement("files.a-repeated-request-answers-the-first-result")
async def test_a_repeated_request_answers_its_first_result_and_says_where_it_lapsed(desk: SharedDesk) -> None:
    request_id = desk.request_id()
    first = await desk.reserve("ann", "a", "b", request_id=request_id)
    again = await desk.reserve("ann", "a", "b", request_id=request_id)
    assert (again.reservation_id, again.expires_at_ms) == (first.reservation_id, first.expires_at_ms)
    assert (again.duplicate, again.lapsed) == (True, False)
    with pytest.raises(RequestConflict):
        await desk.reserve("ann", "a", request_id=request_id)
    await desk.let_go("ann", "b")
    lapsed = await desk.reserve("ann", "a", "b", request_id=request_id)
    assert (lapsed.reservation_id, lapsed.lapsed) == (first.reservation_id, True)
    assert await desk.bars("bob", "b") == []
    renewal, release = desk.request_id(), desk.request_id()
    renewed = await desk.renew("ann", "a", seconds=DURATION_S_MAX, request_id=renewal)
    assert (await desk.renew("ann", "a", seconds=DURATION_S_MAX, request_id=renewal)).duplicate
    assert (await desk.let_go("ann", "a", request_id=release)).count == 1
    again_released = await desk.let_go("ann", "a", request_id=release)
    assert (again_released.count, again_released.duplicate) == (1, True)
    known = await desk.renew("ann", "a", seconds=DURATION_S_MAX, request_id=renewal)
    assert (known.count, known.expires_at_ms) == (renewed.count, renewed.expires_at_ms)


async def test_an_answer_of_no_is_not_kept_and_the_same_request_may_succeed_later(desk: SharedDesk) -> None:
    await desk.reserve("ann", "a", seconds=1)
    request_id = desk.request_id()
    assert (await desk.reserve("bob", "a", request_id=request_id)).reservation_id is None
    await desk.clock.advance(1)
    later = await desk.reserve("bob", "a", request_id=request_id)
    assert later.reservation_id is not None
    assert not later.duplicate


@pytest.mark.requirement("files.end-with-the-life-that-holds-them")
async def test_a_later_life_frees_what_an_earlier_one_held(desk: SharedDesk) -> None:
    await desk.reserve("ann", "a")
    await OpenGeneration(desk.ports)(id16("ann"), 2)
    assert await desk.bars("bob", "a") == []
    await desk.reserve("ann", "a", generation=2)
    await OpenGeneration(desk.ports)(id16("ann"), 2)
    assert await desk.bars("bob", "a") == ["ann"], "opening the same life again frees nothing"
    await desk.send("ann", "bob", generation=3)
    assert await desk.bars("bob", "a") == [], "the first sight of a later life frees it as well"
    with pytest.raises(StaleGeneration):
        await desk.reserve("ann", "a", generation=2)
    with pytest.raises(StaleGeneration):
        await desk.renew("ann", "a", generation=2)


@pytest.mark.requirement("files.end-with-the-life-that-holds-them")
async def test_the_deletion_of_an_agent_frees_what_it_held(desk: SharedDesk) -> None:
    await desk.reserve("ann", "a")

    class Step:
        def apply(self, tx: Transaction) -> Applied[None]:
            Closing(agent_id=id16("ann"), project_id=PROJECT, seed=id16("seed"), now_ms=desk.clock.now_ms()).write(tx)
            return Applied(value=None)

    await desk.store.submit(Step())
    assert await desk.bars("bob", "a") == []


@pytest.mark.requirement("files.end-with-their-attempt")
@pytest.mark.parametrize("end", ["submit", "fail", "finish_cancel", "override"])
async def test_a_reservation_that_is_bound_to_an_attempt_ends_with_it(desk: SharedDesk, end: str) -> None:
    task_id = await desk.assign("cyd", "ann")
    await desk.start_task("ann", task_id)
    attempt_id = desk.task(task_id).attempt_id
    held(await desk.reserve("ann", "a", attempt_id=attempt_id))
    held(await desk.reserve("ann", "b"))
    await desk.progress("ann", task_id)
    assert await desk.bars("bob", "a", "b") == ["ann"]
    if end == "finish_cancel":
        await desk.cancel("cyd", task_id)
        assert await desk.bars("bob", "a") == ["ann"], "it has not confirmed that it stopped"
        await desk.finish_cancel("ann", task_id)
    elif end == "override":
        await desk.cancel("cyd", task_id)
        await desk.override(task_id, Action.OVERRIDE_CANCEL)
    else:
        await getattr(desk, end)("ann", task_id)
    assert await desk.bars("bob", "a") == []
    assert await desk.bars("bob", "b") == ["ann"], "what was bound to nothing stands"
    with pytest.raises(StaleAttempt):
        await desk.reserve("ann", "a", attempt_id=attempt_id)


async def test_a_reservation_is_bound_only_to_an_attempt_that_its_holder_runs(desk: SharedDesk) -> None:
    task_id = await desk.assign("cyd", "ann")
    await desk.start_task("ann", task_id)
    attempt_id = desk.task(task_id).attempt_id
    for call in (
        desk.reserve("bob", "a", attempt_id=attempt_id),
        desk.reserve("ann", "a", attempt_id=id16("none")),
        desk.reserve("ann", "a", attempt_id=attempt_id, generation=2),
    ):
        with pytest.raises(StaleAttempt, match="nothing was written"):
            await call
    assert await desk.reservations() == []


@pytest.mark.requirement("files.count-across-worktrees-unless-narrowed")
async def test_reservations_count_in_every_checkout_unless_they_are_narrowed_to_one(desk: SharedDesk) -> None:
    held(await desk.reserve("ann", "a"))
    held(await desk.reserve("ann", "b", checkout="/one"))
    assert await desk.bars("bob", "a", checkout="/two") == ["ann"]
    assert await desk.bars("bob", "b", checkout="/two") == []
    assert await desk.bars("bob", "b", checkout="/one") == ["ann"]
    assert await desk.bars("bob", "b") == ["ann"]
    held(await desk.reserve("bob", "b", checkout="/two"))
    assert (await desk.reserve("bob", "b")).reservation_id is None


@pytest.mark.requirement("files.names-of-one-file-meet")
async def test_names_that_differ_in_case_meet_where_either_side_says_that_they_are_one(desk: SharedDesk) -> None:
    held(await desk.reserve("ann", "README.md"))
    assert await desk.bars("bob", "readme.md") == []
    assert await desk.bars("bob", "readme.md", ignore_case=True) == ["ann"]
    held(await desk.reserve("ann", "Docs/Straße", ignore_case=True))
    assert await desk.bars("bob", "docs/STRASSE/x") == ["ann"]
    assert await desk.bars("bob", "docs") == ["ann"]


@pytest.mark.requirement("files.check-writes-nothing")
async def test_a_check_writes_nothing_and_names_a_bounded_number_of_conflicts(desk: SharedDesk) -> None:
    paths = [f"f{number:03}" for number in range(CONFLICTS_LISTED_MAX + 1)]
    await desk.reserve("ann", *paths)
    before = desk.store.counters
    checked = await desk.check("bob", *paths[:CONFLICTS_LISTED_MAX])
    assert (len(checked.conflicts.listed), checked.conflicts.more) == (CONFLICTS_LISTED_MAX, False)
    checked = await desk.check("bob", *paths)
    assert (len(checked.conflicts.listed), checked.conflicts.more) == (CONFLICTS_LISTED_MAX, True)
    assert checked.at_ms == desk.clock.now_ms()
    assert desk.store.counters == before
    for bad in ("/etc", "a/../b"):
        with pytest.raises(InvalidPath):
            await desk.check("bob", bad)


async def test_listings_are_in_pages_by_folder_path_or_holder(desk: SharedDesk) -> None:
    await desk.reserve("ann", "b/x", "a", "b", mode=Mode.SHARED)
    await desk.reserve("bob", "c", globs=["b/y/*.py"], mode=Mode.SHARED)
    everything = ["a", "b", "b/x", "b/y/*.py", "c"]
    assert [one.span.path for one in await desk.reservations(size=2)] == everything
    assert [one.span.path for one in await desk.reservations(path="b/y", size=1)] == ["b", "b/y/*.py"]
    assert [one.span.path for one in await desk.reservations(holder="bob", size=1)] == ["b/y/*.py", "c"]
    assert [one.span.path for one in await desk.reservations(OPERATOR, path="b", holder="bob")] == ["b/y/*.py"]
    look = LookAtFiles(desk.ports)
    for token in ("x", "00.1", "0" * 32, "0" * 32 + ".x.a", "0" * 32 + ".0001.a", "g" * 32 + ".1.a"):
        with pytest.raises(InvalidCursor):
            await look.list_reservations(caller_named("ann"), None, path="", holder="", size=0, token=token)


async def test_a_page_of_long_reasons_is_cut_before_it_is_too_long(desk: SharedDesk) -> None:
    long = "/".join(["d" * 250] * 16)
    for number in range(3):
        await desk.reserve(
            "ann", *(f"{number}{other:02}/{long}" for other in range(60)), reason="r" * 1000, checkout="c" * 4000
        )
    page = await LookAtFiles(desk.ports).list_reservations(
        caller_named("ann"), None, path="", holder="", size=200, token=""
    )
    assert 1 < len(page.reservations) < 180
    assert page.next_token
    assert sum(len(one.span.path) + 5000 for one in page.reservations) <= RESERVATIONS_PAGE_BYTES_MAX
    assert len(await desk.reservations(size=200)) == 180


async def test_an_agent_holds_a_bounded_number_of_paths(desk: SharedDesk) -> None:
    for start in range(0, RESERVED_OF_ONE_AGENT_MAX, PATHS_MAX):
        await desk.reserve("ann", *(f"f{start + number}" for number in range(PATHS_MAX)))
    with pytest.raises(ReservationLimit):
        await desk.reserve("ann", "one more")
    await desk.let_go("ann", "f0")
    held(await desk.reserve("ann", "one more"))
    assert len(await desk.reservations(holder="ann", size=200)) == RESERVED_OF_ONE_AGENT_MAX


async def test_reservations_outlive_a_restart(desk: SharedDesk) -> None:
    await desk.reserve("ann", "a")
    await desk.restart()
    assert await desk.bars("bob", "a") == ["ann"]


class Crowd:
    """Writes live reservations of many agents, each on a file of its own folder."""

    def __init__(self, count: int, expires_at_ms: int) -> None:
        self.count, self.expires_at_ms = count, expires_at_ms

    def apply(self, tx: Transaction) -> Applied[None]:
        tx.files.insert(
            [
                Reserved(
                    reservation_id=id16(f"r{number}"),
                    place=0,
                    project_id=PROJECT,
                    leading=f"src/p{number % 500}/f{number}.py",
                    holder=id16(f"agent{number % 50}"),
                    generation=1,
                    attempt_id=None,
                    mode=Mode.EXCLUSIVE,
                    scope=Scope(),
                    span=Span(path=f"src/p{number % 500}/f{number}.py"),
                    reserved_at_ms=0,
                    expires_at_ms=self.expires_at_ms,
                    reason="",
                )
                for number in range(self.count)
            ]
        )
        return Applied(value=None)


@pytest.mark.requirement("files.overlaps-are-found-by-folder")
async def test_a_check_reads_as_many_rows_among_ten_thousand_reservations_as_among_a_hundred(desk: SharedDesk) -> None:
    await desk.store.submit(Crowd(10_000, desk.clock.now_ms() + 60_000))
    span = Span(path="src/p3/f503.py")
    assert [one.span for one in desk.store.read.files.near(PROJECT, [span], desk.clock.now_ms())] == [span]
    assert desk.store.read.files.near(PROJECT, [Span(path="src/p3/new.py")], desk.clock.now_ms()) == []
    assert len(desk.store.read.files.near(PROJECT, [Span(path="src/p3")], desk.clock.now_ms())) == 20


async def test_what_has_expired_is_removed_in_steps(desk: SharedDesk) -> None:
    await desk.store.submit(Crowd(EXPIRED_RESERVATIONS_MAX + 1, desk.clock.now_ms()))
    await desk.sweeper.drop_expired()
    assert not desk.store.read.files.any_expired(desk.clock.now_ms())


async def test_of_many_who_ask_at_once_one_has_the_file(desk: SharedDesk) -> None:
    names = ["ann", "bob", "cyd", "dan"]
    answers = await asyncio.gather(*(desk.reserve(name, "a") for name in names * 5))
    winners = {name for name, answer in zip(names * 5, answers, strict=True) if answer.reservation_id}
    assert len(winners) == 1
