"""Integrating in real repositories: what comes into the main checkout, and that a refusal leaves all as it was."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

import pytest

from fencepost.errors import NotWritten, Refused, Uncertain
from fencepost_kit.refusal import DependencyDown, Draining, Overloaded, Refusal
from fencepost_providers import integrations
from fencepost_providers.domain import refusals
from fencepost_providers.domain.integration import Intent, Kind, Place, TaskFacts
from fencepost_providers.repository import checkout
from fencepost_providers.repository.git import OUTPUT_BYTES_MAX, Git, check_version
from fencepost_testing.carrier_fakes import TASK
from fencepost_testing.integration_desk import CYD, IntegrationDesk, an_integration_desk
from fencepost_testing.repositories import Repository, environ

FIRST = "other line 0\n" + "".join(f"line {number}\n" for number in range(1, 9))
LAST = "".join(f"line {number}\n" for number in range(8)) + "other line 8\n"


async def refused(desk: IntegrationDesk, commit: str, kind: type[Refusal], **facts: object) -> Refusal:
    """A call that is refused leaves the main checkout, the outbox and the task as they were."""
    before = desk.main.state()
    with pytest.raises(kind) as caught:
        await desk.integrate(commit, **facts)
    assert desk.main.state() == before
    assert not desk.store.integrations()
    assert desk.tasks.records == 0
    return caught.value


@pytest.mark.requirement("integration.fast-forward-where-possible")
async def test_a_branch_that_did_not_move_goes_forward_to_the_commit_and_its_checkout_with_it(
    desk: IntegrationDesk,
) -> None:
    commit = desk.worker.commit({"new/file": "new\n", "b": None})
    done = await desk.integrate(commit)
    assert (done.kind, done.fast_forward, done.head, done.branch) == (Kind.MERGED, True, commit, "refs/heads/main")
    assert (desk.main.head, desk.main.status, desk.main.read("new/file")) == (commit, "", "new\n")
    assert not (desk.main.folder / "b").exists()
    assert desk.tasks.done[next(iter(desk.tasks.done))][1] is Kind.MERGED
    assert not desk.store.integrations()


@pytest.mark.requirement("integration.a-merge-names-the-coordinator")
async def test_work_beside_other_work_is_merged_under_the_coordinators_name(desk: IntegrationDesk) -> None:
    theirs = desk.worker.commit({"a": LAST})
    ours = desk.main.commit({"a": FIRST})
    done = await desk.integrate(theirs)
    assert (done.fast_forward, desk.main.head, desk.main.status) == (False, done.head, "")
    assert desk.main.parents() == [ours, theirs]
    merged = desk.main.read("a").splitlines()
    assert (merged[0], merged[8]) == ("other line 0", "other line 8")
    who = desk.main.git("log", "-1", "--format=%an <%ae> %cn <%ce>")
    assert who == f"Cyd <{CYD}@fencepost.invalid> Cyd <{CYD}@fencepost.invalid>"
    assert desk.main.git("log", "-1", "--format=%s") == f"Integrate {TASK}"
    assert TASK in desk.main.git("reflog", "-1")


@pytest.mark.requirement("integration.contained-is-recorded")
async def test_what_the_branch_contains_is_recorded_also_in_a_checkout_with_changes(desk: IntegrationDesk) -> None:
    commit = desk.main.head
    desk.main.commit({"c": "c"})
    desk.main.write({"a": "not committed"})
    before = desk.main.state()
    done = await desk.integrate(commit)
    assert (done.kind, desk.main.state()) == (Kind.CONTAINED, before)


@pytest.mark.requirement("integration.without-a-commit-records-only")
async def test_without_a_commit_it_is_recorded_and_said_that_nothing_was_merged(desk: IntegrationDesk) -> None:
    desk.tasks.where = None
    done = await desk.integrate("")
    assert (done.kind, done.branch) == (Kind.RECORDED, "")
    assert "nothing was merged" in done.detail


@pytest.mark.requirement("integration.conflicts-are-refused-with-their-files")
async def test_a_conflict_is_refused_with_its_files(desk: IntegrationDesk) -> None:
    theirs = desk.worker.commit({"a": "theirs\n", **{f"many/{number:03}": "theirs" for number in range(40)}})
    desk.main.commit({"a": "ours\n", **{f"many/{number:03}": "ours" for number in range(40)}})
    refusal = await refused(desk, theirs, refusals.MergeConflict)
    assert refusal.state["files"] == "41"
    assert [refusal.state[f"file_{number}"] for number in (1, 2, 10)] == ["a", "many/000", "many/008"]
    assert "file_11" not in refusal.state


@pytest.mark.requirement("integration.all-or-nothing")
@pytest.mark.parametrize(
    ("files", "named"),
    [({"a": "changed"}, "a"), ({"new": "in the way"}, "new"), ({"ignored": "in the way"}, "ignored")],
    ids=["changed", "unknown", "ignored"],
)
async def test_nothing_that_is_not_committed_is_ever_overwritten(
    desk: IntegrationDesk, files: dict[str, str], named: str
) -> None:
    desk.main.commit({".gitignore": "ignored\n"})
    desk.worker.git("pull", "-q", "origin", "main")
    desk.worker.write({"new": "new", "ignored": "new"})
    desk.worker.git("add", "-f", "ignored")
    commit = desk.worker.commit({"new": "new", "a": LAST})
    desk.main.write(files)
    refusal = await refused(desk, commit, refusals.CheckoutDirty)
    assert named in refusal.message
    assert desk.main.read(named) == files[named]


@pytest.mark.requirement("integration.all-or-nothing")
@pytest.mark.parametrize("name", ["index.lock", "MERGE_HEAD", "rebase-merge"])
async def test_whoever_works_in_the_main_checkout_is_left_alone(desk: IntegrationDesk, name: str) -> None:
    commit = desk.worker.commit({"new": "new"})
    place = desk.main.folder / ".git" / name
    place.write_text(desk.main.head) if name == "MERGE_HEAD" else place.mkdir()
    refusal = await refused(desk, commit, refusals.CheckoutBusy)
    assert (refusal.state["found"], place.exists()) == (name, True)


@pytest.mark.requirement("integration.only-a-full-commit-id")
async def test_what_is_no_commit_of_the_two_repositories_is_refused(desk: IntegrationDesk) -> None:
    await refused(desk, "0" * 40, refusals.UnknownCommit)
    await refused(desk, desk.main.git("rev-parse", "HEAD^{tree}"), refusals.UnknownCommit)
    await refused(desk, "0" * 64, refusals.UnknownCommit)
    tree = desk.worker.git("rev-parse", f"{desk.worker.commit({'new': 'new'})}^{{tree}}")
    await refused(desk, tree, refusals.UnknownCommit)
    # The object database of the main repository is where the worker's history would be, were it a worktree of it.
    desk.worker = Repository(desk.folder / "nowhere")
    await refused(desk, "1" * 40, refusals.UnknownCommit)


@pytest.mark.requirement("integration.only-whole-histories")
async def test_a_shallow_clone_or_a_strange_history_is_refused(desk: IntegrationDesk) -> None:
    desk.main.commit({"c": "c"})
    shallow = desk.main.clone(desk.folder / "shallow", "--depth", "1")
    desk.main.commit({"d": "d"})
    stranger = Repository.new(desk.folder / "stranger")
    stranger.git("commit", "-q", "--amend", "-m", "Begin otherwise")
    desk.worker = stranger
    await refused(desk, stranger.commit({"e": "e"}), refusals.IncompleteHistory)
    # A history that ends where the main repository goes on is whole there.
    desk.worker = shallow
    done = await desk.integrate(shallow.commit({"e": "e"}))
    assert (done.kind, desk.main.status) == (Kind.MERGED, "")


@pytest.mark.requirement("integration.only-a-main-checkout-on-a-branch")
async def test_a_bare_repository_a_plain_folder_and_a_detached_head_are_refused(desk: IntegrationDesk) -> None:
    commit = desk.worker.commit({"new": "new"})
    desk.main.git("clone", "-q", "--bare", ".", str(desk.folder / "bare.git"))
    (desk.folder / "plain").mkdir()
    where = desk.tasks.where
    for place in (
        Place(location=str(desk.folder / "bare.git"), is_git=True),
        Place(location=str(desk.folder / "plain"), is_git=False),
        Place(location=str(desk.main.folder / "missing"), is_git=False),
        None,
    ):
        desk.tasks.where = place
        await refused(desk, commit, refusals.NoMainCheckout)
    desk.tasks.where = where
    desk.main.git("checkout", "-q", "--detach")
    await refused(desk, commit, refusals.NoMainCheckout)


@pytest.mark.requirement("integration.runs-no-foreign-program")
async def test_nothing_that_a_repository_names_is_run(desk: IntegrationDesk) -> None:
    told = desk.folder / "told"
    script = desk.folder / "evil"
    script.write_text(f"#!/bin/sh\necho $0 $* >> {told}\ncat\n")
    script.chmod(stat.S_IRWXU)
    theirs = desk.worker.commit({"a": LAST, "z.dat": "their data\n"})
    desk.main.commit({"a": FIRST, "y.dat": "our data\n"})
    for repository in (desk.main, desk.worker):
        for name in ("post-merge", "post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc"):
            hook = repository.folder / ".git" / "hooks" / name
            hook.parent.mkdir(exist_ok=True)
            hook.write_text(script.read_text())
            hook.chmod(stat.S_IRWXU)
        for setting in (
            "core.fsmonitor",
            "core.pager",
            "core.sshCommand",
            "core.askPass",
            "core.alternateRefsCommand",
            "uploadpack.packObjectsHook",
            "diff.external",
            "filter.evil.clean",
            "filter.evil.smudge",
            "merge.evil.driver",
            f"remote.{desk.worker.folder}/.git.uploadpack",
        ):
            repository.git("config", setting, str(script))
        repository.git("config", f"url.ext::{script} .insteadOf", f"{desk.worker.folder}")
    (desk.main.folder / ".git" / "info").mkdir(exist_ok=True)
    (desk.main.folder / ".git" / "info" / "attributes").write_text("other filter=evil\n*.dat diff=evil\n")
    with pytest.raises(refusals.GitFailed):
        # The worker's address is turned into a command by the main repository's configuration: not followed.
        await desk.integrate(theirs)
    desk.main.git("config", "--remove-section", f"url.ext::{script} ")
    told.unlink(missing_ok=True)
    done = await desk.integrate(theirs)
    assert (done.kind, told.exists()) == (Kind.MERGED, False)


@pytest.mark.requirement("integration.runs-no-foreign-program")
async def test_files_that_a_program_has_to_convert_are_refused(desk: IntegrationDesk) -> None:
    commit = desk.worker.commit({".gitattributes": "*.dat filter=lfs\n", "big.dat": "pointer"})
    refusal = await refused(desk, commit, refusals.FilteredFiles)
    assert refusal.state["file_1"] == "big.dat"


@pytest.mark.requirement("integration.runs-no-foreign-program")
async def test_a_merge_driver_makes_conflicts_of_its_files(desk: IntegrationDesk) -> None:
    desk.main.commit({".gitattributes": "a merge=union-of-mine\n"})
    desk.main.git("config", "merge.union-of-mine.driver", "true")
    desk.worker.git("pull", "-q", "origin", "main")
    theirs = desk.worker.commit({"a": LAST})
    desk.main.commit({"a": FIRST})
    assert (await refused(desk, theirs, refusals.MergeConflict)).state["file_1"] == "a"


async def test_a_worktree_of_the_same_repository_needs_no_fetch(desk: IntegrationDesk, tmp_path: Path) -> None:
    desk.worker = desk.main.worktree(tmp_path / "tree", "work")
    commit = desk.worker.commit({"new": "new"})
    assert (await desk.integrate(commit)).head == desk.main.head == commit


async def test_a_folder_becomes_a_file_and_a_file_a_folder(desk: IntegrationDesk) -> None:
    desk.main.commit({"d/one": "1", "f": "2"})
    desk.worker.git("pull", "-q", "origin", "main")
    desk.worker.write({"d/one": None, "f": None})
    (desk.worker.folder / "d").rmdir()
    desk.worker.write({"d": "file", "f/two": "2"})
    desk.worker.git("add", "-A")
    commit = desk.worker.commit({})
    desk.main.write({"d/unknown": "kept"})
    await refused(desk, commit, refusals.CheckoutDirty)
    (desk.main.folder / "d" / "unknown").unlink()
    await desk.integrate(commit)
    assert (desk.main.read("d"), desk.main.read("f/two"), desk.main.status) == ("file", "2", "")


@pytest.mark.requirement("integration.every-call-is-repeatable")
async def test_the_same_call_again_answers_what_the_first_did_and_another_content_is_refused(
    desk: IntegrationDesk,
) -> None:
    commit = desk.worker.commit({"new": "new"})
    desk.main.commit({"c": "c"})
    request_id = "0190f3a2-1111-4222-8333-00000000cccc"
    first, second = await asyncio.gather(
        desk.integrate(commit, request_id=request_id), desk.integrate(commit, request_id=request_id)
    )
    third = await desk.integrate(commit, request_id=request_id)
    assert first == second
    assert (third.recorded, third.kind) == (first.recorded, Kind.MERGED)
    assert desk.tasks.records == 1
    assert desk.main.git("rev-list", "--merges", "--count", "HEAD") == "1"
    for other in ({"note": "other"}, {"commit": ""}, {"commit": desk.main.head}):
        facts = {"commit": commit, "request_id": request_id, **other}
        with pytest.raises(refusals.RequestConflict):
            await desk.integrate(str(facts.pop("commit")), **facts)
    with pytest.raises(refusals.InvalidState):
        await desk.integrate(commit)


@pytest.mark.requirement("integration.one-at-a-time-in-a-repository")
async def test_two_integrations_at_once_are_both_in_the_branch(desk: IntegrationDesk) -> None:
    other_task = "task_" + "2" * 32
    desk.tasks.add(other_task)
    one = desk.worker.commit({"one": "1"})
    desk.worker.git("reset", "-q", "--hard", "HEAD^")
    two = desk.worker.commit({"two": "2"})
    await asyncio.gather(desk.integrate(one), desk.integrate(two, task_id=other_task))
    assert (desk.main.read("one"), desk.main.read("two"), desk.main.status) == ("1", "2", "")
    assert desk.main.git("rev-list", "--merges", "--count", "HEAD") == "1"


@pytest.mark.requirement("integration.every-call-is-repeatable")
async def test_a_lost_record_is_asked_again_and_never_merged_again(desk: IntegrationDesk) -> None:
    commit = desk.worker.commit({"new": "new"})
    desk.tasks.trouble = [
        NotWritten("not_running", "away"),
        Refused("draining", "it stops", may_resend=True),
        Uncertain("connection_lost", "unknown"),
    ]
    desk.tasks.lost = [Uncertain("connection_lost", "unknown")]
    done = await desk.integrate(commit)
    assert (done.kind, desk.tasks.records, desk.store.integrations()) == (Kind.MERGED, 1, [])


async def test_a_record_that_is_refused_after_the_merge_says_that_the_merge_stands(desk: IntegrationDesk) -> None:
    commit = desk.worker.commit({"new": "new"})
    desk.tasks.trouble = [Refused("invalid_task", "Cyd is no coordinator any more; nothing was written")]
    with pytest.raises(refusals.TaskRefused) as caught:
        await desk.integrate(commit)
    assert (caught.value.state["head"], desk.main.head) == (commit, commit)
    assert not desk.store.integrations()
    assert (await desk.integrate(commit)).kind is Kind.CONTAINED


@pytest.mark.requirement("integration.rights-before-git")
async def test_the_task_is_judged_before_any_repository_is_looked_at(desk: IntegrationDesk) -> None:
    desk.tasks.where = None
    with pytest.raises(refusals.VersionConflict):
        await desk.integrate("1" * 40, expected_version=6)
    desk.tasks.add(archived=True)
    desk.tasks.trouble = [Refused("invalid_state", "archived; nothing was written")]
    with pytest.raises(refusals.InvalidState):
        await desk.integrate("1" * 40)
    with pytest.raises(refusals.NotFound):
        await desk.integrate("1" * 40, task_id="task_" + "9" * 32)


async def test_the_mailbox_that_does_not_answer_is_said_before_anything_is_done(desk: IntegrationDesk) -> None:
    desk.tasks.trouble = [NotWritten("not_running", "away")]
    await refused(desk, "", DependencyDown)


async def test_a_stop_before_the_branch_moves_leaves_it_where_it_is(desk: IntegrationDesk) -> None:
    commit = desk.worker.commit({"new": "new"})
    before = desk.main.state()
    call = asyncio.create_task(desk.integrate(commit))
    await asyncio.sleep(0)
    await desk.integrations.stop()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert desk.main.state() == before
    with pytest.raises(Draining):
        await desk.integrate(commit)


@pytest.mark.parametrize("object_format", ["sha256"])
async def test_a_repository_of_sha256_takes_ids_of_64_digits(tmp_path: Path, object_format: str) -> None:
    async with an_integration_desk(tmp_path, f"--object-format={object_format}") as desk:
        commit = desk.worker.commit({"new": "new"})
        assert len(commit) == 64
        assert (await desk.integrate(commit)).head == desk.main.head == commit


async def test_a_submodule_is_left_alone(desk: IntegrationDesk, tmp_path: Path) -> None:
    sub = Repository.new(tmp_path / "sub")
    desk.main.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(sub.folder), "sub")
    desk.main.commit({}, "Add a submodule")
    desk.worker.git("pull", "-q", "origin", "main")
    newer = sub.commit({"more": "more"})
    desk.worker.git("update-index", "--cacheinfo", f"160000,{newer},sub")
    commit = desk.worker.commit({})
    was = Repository(desk.main.folder / "sub").head
    await desk.integrate(commit)
    assert desk.main.head == commit
    assert Repository(desk.main.folder / "sub").head == was


@pytest.mark.requirement("integration.all-or-nothing")
async def test_a_branch_that_moves_meanwhile_keeps_what_it_has(
    desk: IntegrationDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = desk.worker.commit({"new": "new"})
    check = checkout.check_follows

    async def checked(*arguments: Any) -> None:
        await check(*arguments)
        desk.main.commit({"c": "a person's"})

    monkeypatch.setattr(checkout, "check_follows", checked)
    with pytest.raises(refusals.BranchMoved) as caught:
        await desk.integrate(commit)
    assert caught.value.may_resend
    assert (desk.main.git("log", "-1", "--format=%an"), desk.main.status) == ("Person", "")
    assert not desk.store.integrations()
    monkeypatch.undo()
    assert (await desk.integrate(commit)).kind is Kind.MERGED


@pytest.mark.requirement("integration.all-or-nothing")
async def test_a_checkout_that_changes_meanwhile_lets_the_branch_go_back(
    desk: IntegrationDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = desk.worker.commit({"a": LAST})
    before = desk.main.state()
    move = checkout.move_branch

    async def moved(*arguments: Any) -> None:
        await move(*arguments)
        desk.main.write({"a": "a person's"})

    monkeypatch.setattr(checkout, "move_branch", moved)
    with pytest.raises(refusals.BranchMoved):
        await desk.integrate(commit)
    assert (desk.main.head, desk.main.read("a")) == (before[0], "a person's")
    assert (desk.store.integrations(), desk.tasks.records) == ([], 0)


@pytest.mark.requirement("integration.a-kill-never-merges-twice-and-never-hides-a-merge")
async def test_after_a_start_the_branch_says_whether_it_moved(desk: IntegrationDesk) -> None:
    old, new = desk.main.head, desk.worker.commit({"new": "new"})
    facts: dict[str, Any] = {"task_id": TASK, "coordinator_id": CYD, "commit_id": new, "note": "", "written_at_ms": 1}
    place: dict[str, Any] = {
        "checkout": str(desk.main.folder),
        "branch": "refs/heads/main",
        "old_id": old,
        "new_id": new,
    }
    for number, changes in enumerate(
        ({}, {"branch": "refs/heads/gone"}, {"checkout": str(desk.folder / "away")}), start=1
    ):
        intent = Intent(request_id=f"0190f3a2-1111-4222-8333-00000000000{number}", **{**facts, **place, **changes})
        await desk.store.intend_integration(intent)
    await desk.stop()
    await desk.start()
    # What cannot be looked at is looked at again by a later start.
    assert [one.checkout for one in desk.store.integrations()] == [str(desk.folder / "away")]
    assert (desk.main.head, desk.tasks.records) == (old, 0)
    desk.main.git("fetch", "-q", str(desk.worker.folder), new)
    desk.main.git("update-ref", "refs/heads/main", new, old)
    request_id = "0190f3a2-1111-4222-8333-000000000001"
    await desk.store.intend_integration(Intent(request_id=request_id, **facts, **place))
    desk.tasks.trouble = [NotWritten("not_running", "away")]
    await desk.stop()
    await desk.start()
    done = await desk.integrate(new, request_id=request_id)
    assert (done.kind, done.fast_forward, desk.tasks.records) == (Kind.MERGED, True, 1)
    assert (desk.main.status, desk.main.read("new")) == ("", "new")


@pytest.mark.requirement("integration.every-git-command-is-bounded-and-joined")
async def test_a_git_command_that_hangs_or_floods_is_ended_and_joined(desk: IntegrationDesk) -> None:
    git = Git(
        str(desk.main.folder), environ(), [("alias.hang", "!sleep 60"), ("alias.flood", "!yes | head -c 5000000")]
    )
    with pytest.raises(refusals.GitFailed, match="did not end within 300 ms"):
        await git.run("hang", within_ms=300)
    with pytest.raises(refusals.GitFailed, match=f"more than {OUTPUT_BYTES_MAX} bytes"):
        await git.run("flood")
    with pytest.raises(refusals.GitUnavailable):
        await Git(str(desk.main.folder), {"PATH": str(desk.folder)}).run("version")


async def test_a_git_without_merges_outside_a_checkout_is_refused(tmp_path: Path) -> None:
    old = tmp_path / "git"
    for version, usable in (("2.37.9", False), ("2.38.0", True), ("10.1", True), ("what", False)):
        old.write_text(f"#!/bin/sh\necho git version {version}\n")
        old.chmod(stat.S_IRWXU)
        git = Git("/", {"PATH": f"{tmp_path}:/bin:/usr/bin"})
        if usable:
            await check_version(git)
        else:
            with pytest.raises(refusals.GitUnavailable) as caught:
                await check_version(git)
            assert "2.38" in caught.value.hint


async def test_a_change_is_looked_at_up_to_its_limit_and_not_beyond(
    desk: IntegrationDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = desk.worker.commit({"new": "new"})
    monkeypatch.setattr(checkout, "INPUT_BYTES_MAX", len("A\0new\0") - 1)
    await refused(desk, commit, refusals.ChangeTooLarge)
    monkeypatch.setattr(checkout, "INPUT_BYTES_MAX", len("A\0new\0"))
    assert (await desk.integrate(commit)).head == commit


async def test_as_many_integrations_as_the_limit_are_under_way_and_no_more(
    desk: IntegrationDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrations, "JOBS_MAX", 2)
    go, look = asyncio.Event(), desk.tasks.task

    async def task(task_id: str) -> TaskFacts:
        await go.wait()
        return await look(task_id)

    monkeypatch.setattr(desk.tasks, "task", task)
    calls = [asyncio.create_task(desk.integrate("")) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await desk.integrate("")
    go.set()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert sorted(type(one).__name__ for one in results) == ["Integrated", "InvalidState"]


@pytest.mark.requirement("integration.rights-before-git")
async def test_a_task_that_is_accepted_while_it_is_judged_is_not_recorded_as_merged(
    desk: IntegrationDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted = 3
    desk.tasks.add(state=submitted)
    look = desk.tasks.task

    async def looked(task_id: str) -> TaskFacts:
        found = await look(task_id)
        desk.tasks.add()
        return found

    monkeypatch.setattr(desk.tasks, "task", looked)
    with pytest.raises(refusals.InvalidState):
        await desk.integrate("1" * 40)
    assert desk.tasks.records == 0
