"""Looking without touching: records, listings, explanations, readers."""

from __future__ import annotations

import pytest

from fencepost_kit.identity import Caller, Role
from fencepost_kit.refusal import PermissionDenied
from fencepost_mailbox.domain.claims import Outcome
from fencepost_mailbox.domain.refusals import DirectoryStale, InvalidCursor, InvalidLimit, NotFound
from fencepost_mailbox.domain.values import (
    LISTING_RECORDS_DEFAULT,
    LISTING_RECORDS_MAX,
    READERS_MAX,
    Delivery,
    FactKind,
    Kind,
    Reader,
    Record,
)
from fencepost_mailbox.usecases.claim import ClaimKind
from fencepost_mailbox.usecases.look import (
    LISTING_STEPS_MAX,
    Direction,
    Explain,
    GetRecord,
    Listing,
    ListReaders,
    ListRecords,
)
from fencepost_testing.mailboxes import OTHER_PROJECT, Desk, a_caller, id16

OPERATOR = Caller(
    credential_id=id16("o"), role=Role.OPERATOR, agent_id=None, project_id=None, generation=1, label="operator"
)


async def listing(
    desk: Desk,
    who: Caller | str,
    *,
    agent: str = "",
    direction: Direction = Direction.BOTH,
    size: int = 0,
    token: str = "",
    open_only: bool = False,
) -> Listing:
    return await ListRecords(desk.ports)(
        a_caller(who) if isinstance(who, str) else who,
        agent_id=id16(agent) if agent else None,
        direction=direction,
        size=size,
        token=token,
        open_only=open_only,
    )


async def everything(desk: Desk, who: str, *, size: int = 2, **options: object) -> list[Record]:
    """All pages of a listing."""
    found: list[Record] = []
    token = ""
    while True:
        page = await listing(desk, who, size=size, token=token, **options)  # type: ignore[arg-type]
        assert len(page.records) <= size
        found += page.records
        token = page.next_token
        if not token:
            return found


def bodies(records: list[Record]) -> list[str]:
    return [record.body.decode() for record in records]


@pytest.mark.requirement("mailbox.looking-exposes-nothing")
async def test_looking_in_every_way_changes_nothing(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    information = (await desk.send("ann", "bob")).record
    newest = desk.store.read.newest_sequence()
    for who in (a_caller("ann"), a_caller("bob"), OPERATOR):
        for record in (request, information):
            await GetRecord(desk.ports)(who, record.kind, record.record_id)
            await Explain(desk.ports)(who, record.kind, record.record_id)
        await listing(desk, who, agent="bob" if who is OPERATOR else "")
        await ListReaders(desk.ports)(who, [id16("bob")])
    assert desk.store.read.newest_sequence() == newest
    assert (desk.now(request), desk.now(information)) == (request, information)
    assert not desk.signals.reads, "looking is not reading one's mailbox"
    assert (await desk.taken("bob")).record.record_id == request.record_id


async def test_a_record_is_shown_to_its_sender_its_recipient_and_the_operator(desk: Desk) -> None:
    record = (await desk.send("ann", "bob")).record
    for who in (a_caller("ann"), a_caller("bob"), OPERATOR):
        assert await GetRecord(desk.ports)(who, record.kind, record.record_id) == (record, None)
    refusals = []
    for record_id in (record.record_id, id16("no such record")):
        for look in (GetRecord, Explain):
            with pytest.raises(NotFound) as refused:
                await look(desk.ports)(a_caller("cyd"), record.kind, record_id)
            refusals.append((refused.value.message, refused.value.hint))
    assert len(set(refusals)) == 1, "what is not there and what one may not see are not told apart"


async def test_a_listing_shows_both_sides_newest_first_or_one_of_them(desk: Desk) -> None:
    await desk.send("ann", "bob", "1")
    await desk.send("bob", "ann", "2")
    await desk.send("cyd", "ann", "3")
    await desk.send("cyd", "bob", "4")
    await desk.send("ann", "cyd", "5")
    assert bodies(await everything(desk, "ann")) == ["5", "3", "2", "1"]
    assert bodies(await everything(desk, "ann", direction=Direction.INBOX)) == ["3", "2"]
    assert bodies(await everything(desk, "ann", direction=Direction.SENT)) == ["5", "1"]


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("size", [1, 2, 3])
async def test_a_listing_shows_every_record_once_also_those_to_oneself_that_took_a_fresh_place(
    desk: Desk, direction: Direction, size: int
) -> None:
    await desk.send("ann", "ann", "self 1")
    await desk.send("ann", "bob", "out 1")
    await desk.send("bob", "ann", "in 1")
    await desk.send("ann", "ann", "self 2")
    for _ in range(2):
        held = (await desk.taken("ann", kind=ClaimKind.CONTEXT)).claim
        await desk.release(held)
    await desk.finish((await desk.taken("ann", kind=ClaimKind.CONTEXT)).claim, Outcome.UNCERTAIN)
    await desk.send("ann", "bob", "out 2")
    expected = {
        Direction.BOTH: ["in 1", "out 1", "out 2", "self 1", "self 2"],
        Direction.INBOX: ["in 1", "self 1", "self 2"],
        Direction.SENT: ["out 1", "out 2", "self 1", "self 2"],
    }
    assert sorted(bodies(await everything(desk, "ann", size=size, direction=direction))) == expected[direction]


async def test_an_open_only_listing_shows_what_still_wants_an_answer(desk: Desk) -> None:
    requests = [await desk.request("ann", "bob", f"{n}") for n in range(7)]
    await desk.send("ann", "bob", "information")
    for request in requests[::2]:
        await desk.reply("bob", request)
    for who in ("ann", "bob"):
        assert bodies(await everything(desk, who, open_only=True)) == ["5", "3", "1"]


async def test_an_open_only_listing_looks_at_a_bounded_part_of_the_traffic_and_goes_on(desk: Desk) -> None:
    oldest = await desk.request("ann", "bob", "oldest")
    for n in range(2 * LISTING_STEPS_MAX + 10):
        await desk.send("ann", "bob", f"{n}")
    first = await listing(desk, "bob", size=1, open_only=True)
    assert first.records == []
    assert first.next_token
    found = await everything(desk, "bob", size=1, open_only=True)
    assert [record.record_id for record in found] == [oldest.record_id]


async def test_a_page_of_a_listing_holds_at_its_limits(desk: Desk) -> None:
    for n in range(LISTING_RECORDS_MAX + 1):
        await desk.send("ann", "bob", f"{n}")
    assert len((await listing(desk, "bob")).records) == LISTING_RECORDS_DEFAULT
    assert len((await listing(desk, "bob", size=LISTING_RECORDS_MAX)).records) == LISTING_RECORDS_MAX
    for wrong in (-1, LISTING_RECORDS_MAX + 1):
        with pytest.raises(InvalidLimit):
            await listing(desk, "bob", size=wrong)


@pytest.mark.requirement("mailbox.bad-input-is-refused-and-changes-nothing")
@pytest.mark.parametrize(
    "token", ["x", "-1", "1.0", " 1", "1 ", "0x10", "\u0661", "\u00b2", "9" * 19, "9" * 20, "1" * 10_000]
)
async def test_a_malformed_page_token_is_refused(desk: Desk, token: str) -> None:
    await desk.send("ann", "bob")
    with pytest.raises(InvalidCursor):
        await listing(desk, "bob", token=token)


async def test_an_agent_lists_its_own_records_and_an_operator_anybodys_by_name(desk: Desk) -> None:
    await desk.send("ann", "bob", "text")
    assert len((await listing(desk, "bob", agent="bob")).records) == 1
    with pytest.raises(PermissionDenied):
        await listing(desk, "cyd", agent="bob")
    assert bodies(list((await listing(desk, OPERATOR, agent="bob")).records)) == ["text"]
    with pytest.raises(NotFound):
        await listing(desk, OPERATOR)


@pytest.mark.requirement("mailbox.a-stale-directory-resolves-no-name")
async def test_an_operator_is_not_honoured_where_the_directory_is_stale(desk: Desk) -> None:
    record = (await desk.send("ann", "bob")).record
    desk.agents.stale = True
    for call in (
        GetRecord(desk.ports)(OPERATOR, record.kind, record.record_id),
        Explain(desk.ports)(OPERATOR, record.kind, record.record_id),
        ListRecords(desk.ports)(
            OPERATOR, agent_id=id16("bob"), direction=Direction.BOTH, size=0, token="", open_only=False
        ),
        ListReaders(desk.ports)(OPERATOR, [id16("bob")]),
    ):
        with pytest.raises(DirectoryStale):
            await call
    assert (await listing(desk, "bob")).records == [record], "agents go on"
    assert await ListReaders(desk.ports)(a_caller("ann"), [id16("bob")])


@pytest.mark.requirement("mailbox.facts-stay-apart")
async def test_an_explanation_tells_every_fact_in_order_with_time_life_and_evidence(desk: Desk) -> None:
    request = await desk.request("ann", "bob")
    held = (await desk.taken("bob", generation=3)).claim
    await desk.clock.advance(1)
    await desk.finish(held, Outcome.UNCERTAIN, evidence="stream lost")
    await desk.receive("bob", generation=3)
    answered = await desk.reply("bob", request, generation=3)
    explained = await Explain(desk.ports)(a_caller("ann"), Kind.REQUEST, request.record_id)
    assert [fact.fact for fact in explained.facts] == [
        FactKind.CLAIMED,
        FactKind.UNCERTAIN,
        FactKind.EXPOSED,
        FactKind.REPLIED,
    ]
    assert {fact.generation for fact in explained.facts} == {3}
    assert explained.facts[1].evidence == "stream lost"
    assert explained.facts[1].at_ms == explained.facts[0].at_ms + 1000
    sequences = [fact.sequence for fact in explained.facts]
    assert sequences == sorted(set(sequences))
    assert explained.reply_id == answered.record.record_id
    assert explained.record.delivery is Delivery.UNCERTAIN
    assert "answered by its recipient" in explained.summary


async def test_readers_are_told_of_the_callers_own_project(desk: Desk) -> None:
    await desk.receive("bob")
    asked = [id16("bob"), id16("cyd"), id16("nobody")]
    found = dict(await ListReaders(desk.ports)(a_caller("ann"), asked))
    assert {agent: who.reader for agent, who in found.items()} == {
        id16("bob"): Reader.MANUAL,
        id16("cyd"): Reader.NONE,
    }
    stranger = Caller(
        credential_id=id16("s"),
        role=Role.AGENT,
        agent_id=id16("stranger"),
        project_id=OTHER_PROJECT,
        generation=1,
        label="",
    )
    assert await ListReaders(desk.ports)(stranger, asked) == []
    assert len(await ListReaders(desk.ports)(OPERATOR, asked)) == 2
    assert await ListReaders(desk.ports)(OPERATOR, [id16("x")] * READERS_MAX) == []
    with pytest.raises(InvalidLimit):
        await ListReaders(desk.ports)(OPERATOR, [id16("x")] * (READERS_MAX + 1))


async def test_whoever_waits_is_a_reader_although_it_has_read_nothing_yet(desk: Desk) -> None:
    with desk.waits.register(id16("bob")):
        ((_, who),) = await ListReaders(desk.ports)(a_caller("ann"), [id16("bob")])
    assert (who.reader, who.waiting, who.last_read_at_ms) == (Reader.MANUAL, True, 0)


@pytest.mark.requirement("mailbox.looking-exposes-nothing")
async def test_an_agents_kinds_of_records_are_all_listed(desk: Desk) -> None:
    await desk.send("ann", "bob")
    await desk.reply("bob", await desk.request("ann", "bob"))
    kinds = {record.kind for record in await everything(desk, "ann")}
    assert kinds == {Kind.INFORMATION, Kind.REQUEST, Kind.REPLY}
