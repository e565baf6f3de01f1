"""Looking at what was reported: in the agent's checkout and nowhere else, within limits, and never at credentials."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.errors import NotWritten
from fencepost_kit.refusal import Malformed, Overloaded, Refusal
from fencepost_providers import verifications
from fencepost_providers.domain.verification import (
    EVIDENCE_CHECKED_MAX,
    Claim,
    CommitClaim,
    DiffFileClaim,
    FileClaim,
    Reported,
    RunClaim,
    Verdict,
    check_asked,
    is_secret,
    parts_of,
)
from fencepost_providers.repository import reading
from fencepost_providers.repository.reading import Place
from fencepost_providers.verifications import Verifications
from fencepost_testing.carrier_fakes import TASK, FakeTasks
from fencepost_testing.repositories import Repository, environ

EVIDENCE = "evi_" + "1" * 32


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def looked(folder: Path, *claims: Claim) -> list[tuple[Verdict, str]]:
    place = await Place.at(str(folder), environ())
    assert place is not None
    found = [await place.look(claim) for claim in claims]
    return [(one.verdict, one.detail) for one in found]


@pytest.mark.requirement("evidence.checks-tell-what-is-there")
async def test_files_commits_and_differences_are_as_reported_or_not(tmp_path: Path) -> None:
    worker = Repository.new(tmp_path / "worker")
    old = worker.head
    new = worker.commit({"d/ü x": "no end of line", "e": "ends\n", "empty": "", "link": "x"})
    (worker.folder / "link").unlink()
    (worker.folder / "link").symlink_to("e")
    link = worker.commit({"d/ü x": "no end of line"})
    worker.git("add", "link")
    link = worker.commit({}, "Link")
    worker.write({"e": "changed"})
    tree = worker.git("rev-parse", "HEAD^{tree}")
    expected: dict[Claim, tuple[Verdict, str]] = {
        FileClaim(path="d/ü x", sha256=sha256("no end of line"), commit=new): (Verdict.VERIFIED, "as reported"),
        FileClaim(path="e", sha256=sha256("ends\n"), commit=new): (Verdict.VERIFIED, "as reported"),
        FileClaim(path="empty", sha256=sha256(""), commit=new): (Verdict.VERIFIED, "as reported"),
        FileClaim(path="e", sha256=sha256("changed")): (Verdict.VERIFIED, "as reported"),
        FileClaim(path="e", sha256=sha256("ends\n")): (Verdict.MISMATCH, sha256("changed")),
        FileClaim(path="e", sha256=sha256("x"), commit=new): (Verdict.MISMATCH, sha256("ends\n")),
        FileClaim(path="e", sha256=sha256("x"), commit=old): (Verdict.MISMATCH, "no such file"),
        FileClaim(path="d", sha256=sha256("x"), commit=new): (Verdict.UNAVAILABLE, "no regular file"),
        FileClaim(path="link", sha256=sha256("e"), commit=link): (Verdict.UNAVAILABLE, "no regular file"),
        FileClaim(path="e", sha256=sha256("x"), commit="1" * 40): (Verdict.UNAVAILABLE, "no commit"),
        FileClaim(path="missing", sha256=sha256("x")): (Verdict.MISMATCH, "no such file"),
        CommitClaim(commits=(new,)): (Verdict.VERIFIED, "has it"),
        CommitClaim(commits=(old, new)): (Verdict.VERIFIED, "has both"),
        CommitClaim(commits=(old, "1" * 40)): (Verdict.MISMATCH, "has no commit"),
        CommitClaim(commits=(tree,)): (Verdict.MISMATCH, "is a tree"),
        DiffFileClaim(path="e"): (Verdict.VERIFIED, "is there"),
        DiffFileClaim(path="missing"): (Verdict.MISMATCH, "no such file"),
        RunClaim(): (Verdict.UNAVAILABLE, "nothing here can check it"),
    }
    for (verdict, detail), (claim, (wanted, words)) in zip(
        await looked(worker.folder, *expected), expected.items(), strict=True
    ):
        assert (verdict, words in detail) == (wanted, True), (claim, verdict, detail)


@pytest.mark.requirement("evidence.nothing-outside-is-read")
async def test_links_pipes_and_folders_are_not_read_and_what_lies_around_is_no_checkout(tmp_path: Path) -> None:
    outer = Repository.new(tmp_path / "outer")
    secret = tmp_path / "outside"
    secret.write_text("outside")
    folder = outer.folder / "inner"
    folder.mkdir()
    (folder / "link").symlink_to(secret)
    (folder / "up").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    (folder / "real").write_text("x")
    found = await looked(
        folder,
        FileClaim(path="link", sha256=sha256("outside")),
        FileClaim(path="up/outside", sha256=sha256("outside")),
        FileClaim(path="pipe", sha256=sha256("")),
        FileClaim(path="../a", sha256=sha256("x")),
        FileClaim(path="/etc/passwd", sha256=sha256("x")),
        FileClaim(path=".", sha256=sha256("x")),
        FileClaim(path="a", sha256=sha256("x"), commit=outer.head),
        CommitClaim(commits=(outer.head,)),
    )
    assert {verdict for verdict, _ in found} <= {Verdict.UNAVAILABLE, Verdict.MISMATCH}
    assert [verdict for verdict, _ in found if verdict is Verdict.MISMATCH] == []
    assert (await looked(folder, FileClaim(path="real", sha256=sha256("x"))))[0][0] is Verdict.VERIFIED


@pytest.mark.requirement("evidence.reading-is-bounded")
async def test_so_much_is_read_and_no_more_over_all_files_of_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Repository.new(tmp_path / "worker")
    commit = worker.commit({"four": "1234", "six": "123456"})
    for in_commit in ("", commit):
        four = FileClaim(path="four", sha256=sha256("1234"), commit=in_commit)
        six = FileClaim(path="six", sha256=sha256("123456"), commit=in_commit)
        for limit, wanted in ((10, [Verdict.VERIFIED] * 2), (9, [Verdict.VERIFIED, Verdict.UNAVAILABLE])):
            monkeypatch.setattr(reading.Budget.__init__, "__defaults__", (limit,))
            assert [verdict for verdict, _ in await looked(worker.folder, four, six)] == wanted


@pytest.mark.requirement("evidence.credentials-are-never-read")
@pytest.mark.parametrize(
    "path",
    [
        ".env",
        "a/.ENV.local",
        ".git/config",
        "x/.SSH/known_hosts",
        "id_rsa.pub",
        "deploy/Server.KEY",
        "aws-credentials.json",
        "secrets.yml",
        ".npmrc",
        "agents/1/credential",
    ],
)
async def test_what_holds_credentials_is_not_read(tmp_path: Path, path: str) -> None:
    place = tmp_path / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("x")
    ((verdict, detail),) = await looked(tmp_path, FileClaim(path=path, sha256=sha256("x")))
    assert (verdict, "credentials" in detail) == (Verdict.UNAVAILABLE, True)


@pytest.mark.requirement("evidence.credentials-are-never-read")
def test_what_holds_none_is_read() -> None:
    assert not any(map(is_secret, ("src/environment.py", "keys.py", "a/monkey", "git/config", "docs/ssh.md")))


@pytest.mark.requirement("evidence.nothing-outside-is-read")
@given(st.lists(st.sampled_from(["a", "..", ".", "", "b c"]), min_size=1, max_size=6))
def test_parts_never_lead_out(parts: list[str]) -> None:
    found = parts_of("/".join(parts))
    assert (found is None) == any(part in ("..", ".", "") for part in parts)


async def test_without_a_checkout_on_this_machine_nothing_can_be_told(tmp_path: Path) -> None:
    tasks = FakeTasks()
    checks = Verifications(tasks=tasks, environ=environ())
    report = Reported(evidence_id=EVIDENCE, claim=RunClaim())
    for folder in ("", str(tmp_path / "missing")):
        (checked,) = await checks.verify(TASK, [report], folder=folder, asked_by="a")
        assert (checked.finding.verdict, checked.finding.checkout) == (Verdict.UNAVAILABLE, "")
    assert [asked_by for _, asked_by in tasks.findings] == ["a", "a"]
    tasks.trouble = [NotWritten("not_running", "away")]
    (checked,) = await checks.verify(TASK, [report], folder=str(tmp_path), asked_by="")
    assert (checked.recorded_at_ms, checked.finding.checkout) == (0, str(tmp_path))


async def test_a_folder_whose_name_is_no_text_is_told_as_well_as_it_can_be(tmp_path: Path) -> None:
    real = tmp_path / os.fsdecode(b"caf\xe9")
    real.mkdir()
    (tmp_path / "work").symlink_to(real)
    tasks = FakeTasks()
    report = Reported(evidence_id=EVIDENCE, claim=RunClaim())
    checks = Verifications(tasks=tasks, environ=environ())
    (checked,) = await checks.verify(TASK, [report], folder=str(tmp_path / "work"), asked_by="a")
    assert checked.finding.checkout.encode().decode() == str(tmp_path / "caf\ufffd")


@pytest.mark.requirement("evidence.checks-tell-what-is-there")
async def test_of_two_checks_of_a_task_the_later_look_is_recorded_last_and_only_so_many_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifications, "VERIFICATIONS_WAITING_MAX", 1)
    looked, go_on, found = asyncio.Event(), asyncio.Event(), Place.look

    async def slow(self: Place, claim: Claim) -> reading.Found:
        looked_at = await found(self, claim)
        if not looked.is_set():
            looked.set()
            await go_on.wait()
        return looked_at

    monkeypatch.setattr(Place, "look", slow)
    (tmp_path / "f").write_text("old")
    tasks = FakeTasks()
    checks = Verifications(tasks=tasks, environ=environ())
    report = Reported(evidence_id=EVIDENCE, claim=FileClaim(path="f", sha256=sha256("new")))

    def check(task_id: str = TASK) -> asyncio.Task[Any]:
        return asyncio.create_task(checks.verify(task_id, [report], folder=str(tmp_path), asked_by="a"))

    first = check()
    await asyncio.wait_for(looked.wait(), 10)
    (tmp_path / "f").write_text("new")
    # Another task's is not held up; of this one, the second waits.
    await check("task_" + "2" * 32)
    others = [check(), check()]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await check()
    go_on.set()
    await asyncio.gather(first, *others)
    mine = [finding.verdict for finding, _ in tasks.findings]
    assert mine == [Verdict.VERIFIED, Verdict.MISMATCH, Verdict.VERIFIED, Verdict.VERIFIED]


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda: check_asked(TASK, [EVIDENCE] * EVIDENCE_CHECKED_MAX), None),
        (lambda: check_asked(TASK, [EVIDENCE] * (EVIDENCE_CHECKED_MAX + 1)), Malformed),
        (lambda: check_asked(TASK, []), Malformed),
        (lambda: check_asked(TASK, ["evi_1"]), Malformed),
        (lambda: check_asked("task_1", [EVIDENCE]), Malformed),
    ],
)
def test_a_call_names_a_task_and_a_bounded_number_of_pieces(
    call: Callable[[], None], kind: type[Refusal] | None
) -> None:
    if kind is None:
        call()
    else:
        with pytest.raises(kind):
            call()
