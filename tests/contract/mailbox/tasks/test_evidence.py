"""Evidence beside tasks: who may report and see it, what names it, and that a check is another fact than a report."""

from __future__ import annotations

import pytest

from fencepost_kit.ids import uuid_text
from fencepost_mailbox.domain.evidence.refusals import EvidenceLimit, InvalidEvidence
from fencepost_mailbox.domain.evidence.values import (
    EVIDENCE_LISTED_MAX,
    EVIDENCE_OF_A_TASK_MAX,
    CommitReported,
    DiffReported,
    FileReported,
    Reported,
    RunReported,
    Verdict,
    evidence_id_text,
)
from fencepost_mailbox.domain.refusals import InvalidState, NotFound, StaleGeneration
from fencepost_mailbox.domain.tasks.refusals import InvalidTaskField, RequestConflict
from fencepost_mailbox.domain.tasks.values import EVIDENCE_IDS_MAX
from fencepost_mailbox.usecases.evidence.keep import Found, KeepEvidence
from fencepost_testing.mailboxes import id16
from fencepost_testing.task_desk import TaskDesk

REPORTS: tuple[Reported, ...] = (
    FileReported(path="a/ü b.txt", sha256="0" * 64, commit="1" * 40),
    CommitReported(commit="2" * 64),
    DiffReported(base="3" * 40, head="4" * 40),
    DiffReported(path="change.diff"),
    RunReported(label="make test", outcome=2, exit_code=-9, summary="killed"),
)


@pytest.mark.requirement("evidence.reported-and-verified-are-two-facts")
async def test_every_kind_is_kept_as_it_was_reported_and_a_check_stands_beside_it(desk: TaskDesk) -> None:
    task_id = await desk.assign("ann", "bob")
    await desk.start_task("bob", task_id)
    added = [await desk.report("bob", task_id, one, note="words") for one in REPORTS]
    found, more = await desk.evidence("ann", task_id)
    assert ([one.reported for one in found], more) == (list(REPORTS), False)
    first = found[0]
    assert (first.reporter, first.attempt_id, first.note) == (id16("bob"), desk.task(task_id).attempt_id, "words")
    assert (first.verdict, first.verified_at_ms, first.verified_for) == (Verdict.REPORTED, 0, None)
    keep = KeepEvidence(desk.ports)
    facts = {"task_id": task_id, "evidence_id": added[0].evidence_id, "detail": "d", "checkout": "/c"}
    for verdict in (Verdict.VERIFIED, Verdict.MISMATCH):
        await keep.record(Found(verdict=int(verdict), asked_by=id16("ann"), **facts))  # type: ignore[arg-type]
    checked = (await desk.evidence("bob", task_id))[0]
    assert (checked[0].verdict, checked[0].verified_for, checked[0].checkout) == (Verdict.MISMATCH, id16("ann"), "/c")
    assert (checked[0].reported, checked[1:]) == (first.reported, found[1:])
    other = await desk.assign("ann", "dan")
    with pytest.raises(NotFound):
        await keep.record(Found(verdict=1, asked_by=None, **{**facts, "task_id": other}))  # type: ignore[arg-type]
    with pytest.raises(InvalidEvidence):
        await keep.record(Found(verdict=0, asked_by=None, **facts))  # type: ignore[arg-type]


@pytest.mark.requirement("evidence.who-may-see-it")
async def test_who_has_a_part_reports_and_sees_and_who_could_claim_does_not(desk: TaskDesk) -> None:
    task_id = await desk.assign("ann", "bob", reviewer="cyd")
    for who in ("ann", "bob", "cyd", "operator"):
        await desk.report(who, task_id)
        assert (await desk.evidence(who, task_id))[0]
    reporters = [one.reporter for one in (await desk.evidence("service", task_id))[0]]
    assert reporters == [id16("ann"), id16("bob"), id16("cyd"), None]
    pooled = await desk.pool("ann")
    for who, task in (("dan", task_id), ("dan", pooled)):
        with pytest.raises(NotFound):
            await desk.report(who, task)
        with pytest.raises(NotFound):
            await desk.evidence(who, task)


@pytest.mark.requirement("evidence.named-evidence-is-the-tasks-own")
async def test_a_submission_names_evidence_of_its_own_task_only(desk: TaskDesk) -> None:
    task_id, other = await desk.assign("ann", "bob"), await desk.assign("ann", "dan")
    await desk.start_task("bob", task_id)
    mine = [evidence_id_text((await desk.report("bob", task_id)).evidence_id) for _ in range(EVIDENCE_IDS_MAX + 1)]
    strange = evidence_id_text((await desk.report("dan", other)).evidence_id)
    for named in ((strange,), (mine[0], "evd-1"), (mine[0].upper(),), ("evi_" + "0" * 32,), tuple(mine)):
        for act in (desk.submit, desk.progress, desk.fail):
            with pytest.raises(InvalidTaskField) as refused:
                await act("bob", task_id, evidence_ids=named)
            assert refused.value.state["field"] == "evidence_ids"
    await desk.submit("bob", task_id, evidence_ids=tuple(mine[:EVIDENCE_IDS_MAX]))
    assert desk.task(task_id).evidence_ids == tuple(mine[:EVIDENCE_IDS_MAX])
    with pytest.raises(InvalidEvidence):
        await desk.evidence("ann", task_id, strange)
    assert [
        evidence_id_text(one.evidence_id) for one in (await desk.evidence("ann", task_id, mine[3], mine[1]))[0]
    ] == [
        mine[1],
        mine[3],
    ]


@pytest.mark.requirement("evidence.every-report-is-repeatable")
async def test_a_report_that_is_repeated_is_one_and_an_earlier_life_adds_none(desk: TaskDesk) -> None:
    task_id = await desk.assign("ann", "bob")
    request_id = desk.request_id()
    first = await desk.report("bob", task_id, REPORTS[0], request_id=request_id)
    again = await desk.report("bob", task_id, REPORTS[0], request_id=request_id)
    assert (again.evidence_id, again.at_ms, first.duplicate, again.duplicate) == (
        first.evidence_id,
        first.at_ms,
        False,
        True,
    )
    with pytest.raises(RequestConflict):
        await desk.report("bob", task_id, REPORTS[1], request_id=request_id)
    await desk.report("bob", task_id, generation=2)
    with pytest.raises(StaleGeneration):
        await desk.report("bob", task_id, generation=1)
    assert len((await desk.evidence("bob", task_id))[0]) == 2


async def test_nothing_is_added_to_a_task_that_was_put_away_and_late_evidence_is(desk: TaskDesk) -> None:
    task_id = await desk.assign("ann", "bob")
    await desk.cancel("ann", task_id)
    await desk.report("bob", task_id)
    await desk.archive("ann", task_id)
    with pytest.raises(InvalidState):
        await desk.report("bob", task_id)
    assert len((await desk.evidence("ann", task_id))[0]) == 1


async def test_a_task_has_so_much_evidence_and_no_more_and_a_page_so_much_of_it(desk: TaskDesk) -> None:
    task_id = await desk.assign("ann", "bob")
    long = "x" * 8192
    for number in range(EVIDENCE_OF_A_TASK_MAX):
        await desk.report("bob", task_id, note=long if number < 70 else "")
    with pytest.raises(EvidenceLimit):
        await desk.report("bob", task_id)
    sizes, after, more = [], "", True
    while more:
        page, more = await desk.evidence("ann", task_id, size=EVIDENCE_LISTED_MAX, after=after)
        sizes.append(len(page))
        after = evidence_id_text(page[-1].evidence_id)
    # The texts of a page have 512 KiB at most: 64 of them.
    assert sizes == [64, 192]
    assert len((await desk.evidence("ann", task_id))[0]) == 50
    with pytest.raises(InvalidEvidence):
        await desk.evidence("ann", task_id, size=EVIDENCE_LISTED_MAX + 1)


async def test_what_a_deleted_agent_reported_stays_with_the_task(desk: TaskDesk) -> None:
    task_id = await desk.assign("ann", "bob")
    await desk.report("bob", task_id)
    await desk.delete("bob")
    assert uuid_text((await desk.evidence("ann", task_id))[0][0].reporter or b"") == uuid_text(id16("bob"))
