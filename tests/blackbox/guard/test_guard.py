"""The guard in real repositories: it refuses what others hold, and breaks nothing that was there."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fencepost.guard.script import ASIDE, BEGIN
from fencepost.home import MAILBOX
from fencepost_testing.command import Done
from fencepost_testing.processes import Services


def installed(work: Any, *options: str) -> Done:
    done = work.fencepost("guard", "install", *options)
    assert done.code == 0, done.err
    return done


def write_hook(path: Path, text: str, mode: int = 0o755) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def head(work: Any) -> str:
    return work.good("rev-parse", "HEAD")


@pytest.mark.requirement("guard.refuses-what-another-holds")
def test_a_commit_of_what_another_holds_is_refused_with_who_why_until_when_and_what_to_do(team: Any) -> None:
    installed(team.operator)
    held = team.ada.fencepost("file", "reserve", "a.txt", "docs", "--reason", "rewrite the\nbeginning", "--json")
    assert held.code == 0, held.err
    before = head(team.bob)
    refused = team.bob.commits("a.txt")
    assert refused.code == 1
    assert head(team.bob) == before
    for words in ("a.txt: held by ada until ", "why: rewrite the⏎beginning", "the commit was not made", "git restore"):
        assert words in refused.err
    assert "--no-verify" not in refused.err, "that is said to persons only"
    team.bob.good("restore", "--staged", "a.txt")
    assert team.bob.commits("b.txt").code == 0, "what nobody holds goes through"
    assert team.bob.commits("docs/new/x.md").code == 1, "what lies below a folder that is held does not"
    team.bob.good("restore", "--staged", ".")
    person = team.operator.commits("a.txt")
    assert person.code == 1
    assert "--no-verify" in person.err
    assert team.ada.git("commit", "-q", "-m", "hers").code == 0, "its holder commits it"
    assert team.ada.fencepost("file", "release", "--all").code == 0
    assert team.bob.commits("docs/new/x.md").code == 0


@pytest.mark.requirement("guard.refuses-what-another-holds")
def test_both_names_of_a_renamed_file_count_and_a_removal_too(team: Any) -> None:
    installed(team.operator)
    assert team.ada.fencepost("file", "reserve", "a.txt").code == 0
    team.bob.good("mv", "a.txt", "c.txt")
    assert team.bob.git("commit", "-q", "-m", "move").code == 1
    team.bob.good("mv", "c.txt", "a.txt")
    team.bob.good("rm", "-q", "a.txt")
    assert team.bob.git("commit", "-q", "-m", "remove").code == 1


@pytest.mark.requirement("guard.refuses-what-another-holds")
def test_files_count_in_every_worktree_under_whatever_name_they_have(team: Any, tmp_path: Path) -> None:
    installed(team.operator)
    team.operator.good("worktree", "add", "-q", str(tmp_path / "tree"), "-b", "other")
    assert team.ada.fencepost("file", "reserve", "a.txt", "strange").code == 0
    in_tree = team.bob.at(tmp_path / "tree")
    assert in_tree.commits("a.txt").code == 1
    in_tree.good("restore", "--staged", "a.txt")
    assert in_tree.commits("strange/\tname\n\\ü").code == 1, "a name that cannot be reserved lies in a folder that can"
    in_tree.good("restore", "--staged", ".")
    assert in_tree.commits("sub/b.txt").code == 0
    assert team.ada.fencepost("file", "reserve", "only.txt", "--checkout").code == 0
    assert in_tree.commits("only.txt").code == 0, "narrowed to the other checkout"
    assert team.bob.commits("only.txt").code == 1


@pytest.mark.requirement("guard.fails-open")
def test_while_fencepost_does_not_run_a_commit_goes_through_with_a_warning(team: Any, running: Services) -> None:
    installed(team.operator)
    assert team.ada.fencepost("file", "reserve", "a.txt", "--seconds", "3600").code == 0
    running.stop(MAILBOX)
    try:
        began = time.monotonic()
        done = team.bob.commits("a.txt")
        took = time.monotonic() - began
    finally:
        asyncio.run(running.start(MAILBOX))
    assert done.code == 0
    assert "not checked whether another agent holds these files" in done.err
    assert "mailbox" in done.err
    assert took < 15
    assert team.bob.commits("a.txt").code == 1, "and once it runs again nothing is forgotten"
    lost = team.bob.git(
        "commit", "-q", "-m", "who", env={"FENCEPOST_SESSION_ID": "00000000-0000-4000-8000-000000000000"}
    )
    assert lost.code == 0
    assert "credential" in lost.err


@pytest.mark.requirement("guard.asks-for-its-own-project-only")
def test_a_repository_of_another_project_is_let_through(team: Any, tmp_path: Path) -> None:
    other = team.bob.at(tmp_path / "other")
    other.folder.mkdir()
    other.good("init", "-q")
    installed(other)
    assert team.ada.fencepost("file", "reserve", ".").code == 0
    assert team.bob.commits("a.txt").code == 0, "no guard here yet"
    done = other.commits("a.txt")
    assert (done.code, done.err) == (0, "")
    as_operator = team.operator.at(other.folder).commits("a.txt")
    assert (as_operator.code, as_operator.err) == (0, "")


@pytest.mark.requirement("guard.existing-hooks-stay")
def test_a_hook_of_a_shell_goes_on_under_its_name_and_is_as_it_was_after_removal(team: Any, hooks: Path) -> None:
    text = '#!/bin/sh -e\necho "$(basename "$0") $#" >> ran\nexit 0\n'
    write_hook(hooks / "pre-commit", text)
    installed(team.operator)
    installed(team.operator)
    assert (hooks / "pre-commit").read_bytes().count(BEGIN) == 1
    assert team.bob.commits("b.txt").code == 0
    assert (team.bob.folder / "ran").read_text() == "pre-commit 0\n"
    assert team.ada.fencepost("file", "reserve", "b.txt").code == 0
    assert team.bob.commits("b.txt").code == 1
    write_hook(hooks / "pre-commit", (hooks / "pre-commit").read_text().replace("exit 0", "exit 9"))
    assert team.ada.commits("b.txt").code == 1, "what stood there still refuses for itself"
    assert team.operator.fencepost("guard", "remove").code == 0
    assert (hooks / "pre-commit").read_text() == text.replace("exit 0", "exit 9")
    assert not (hooks / "pre-push").exists(), "what was made by the guard goes with it"
    assert team.operator.fencepost("guard", "remove").code == 0


@pytest.mark.requirement("guard.existing-hooks-stay")
@pytest.mark.parametrize("kind", ["python", "link", "not executable"])
def test_a_hook_of_another_kind_is_put_aside_called_and_put_back(
    team: Any, hooks: Path, tmp_path: Path, kind: str
) -> None:
    target = hooks / "pre-commit"
    if kind == "python":
        write_hook(target, "#!/usr/bin/env python3\nopen('ran', 'w').write('yes')\nraise SystemExit(3)\n")
    elif kind == "link":
        write_hook(tmp_path / "real", "#!/bin/sh\necho yes > ran\nexit 3\n")
        hooks.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.symlink_to(tmp_path / "real")
    else:
        write_hook(target, "#!/bin/sh\necho yes > ran\nexit 3\n", 0o644)
    before = (target.is_symlink(), target.read_bytes(), target.stat().st_mode)
    installed(team.operator)
    installed(team.operator)
    assert (hooks / f"pre-commit{ASIDE}").exists()
    done = team.bob.commits("b.txt")
    runs = kind != "not executable"
    assert (done.code == 1) is runs
    assert (team.bob.folder / "ran").exists() is runs
    assert team.operator.fencepost("guard", "remove").code == 0
    assert (target.is_symlink(), target.read_bytes(), target.stat().st_mode) == before
    assert not (hooks / f"pre-commit{ASIDE}").exists()


@pytest.mark.requirement("guard.existing-hooks-stay")
def test_a_hook_is_not_put_aside_over_another(team: Any, hooks: Path) -> None:
    write_hook(hooks / "pre-commit", "#!/usr/bin/env python3\n")
    write_hook(hooks / f"pre-commit{ASIDE}", "mine\n")
    done = team.operator.fencepost("guard", "install", "--json")
    assert done.error["code"] == "hook_unusable"
    assert (hooks / "pre-commit").read_text() == "#!/usr/bin/env python3\n"
    assert (hooks / f"pre-commit{ASIDE}").read_text() == "mine\n"


@pytest.mark.requirement("guard.finds-the-hooks-that-git-uses")
def test_the_folder_of_hooks_is_the_one_that_git_uses(team: Any, hooks: Path, tmp_path: Path) -> None:
    team.operator.good("config", "core.hooksPath", ".githooks")
    write_hook(team.operator.folder / ".githooks" / "pre-commit", "#!/bin/sh\nexit 0\n")
    team.operator.good("add", ".githooks")
    team.operator.good("commit", "-q", "-m", "hooks")
    done = installed(team.operator)
    assert "is a file of the repository" in done.out
    assert BEGIN in (team.operator.folder / ".githooks" / "pre-commit").read_bytes()
    assert not (hooks / "pre-commit").exists()
    assert team.ada.fencepost("file", "reserve", "b.txt").code == 0
    assert team.bob.commits("b.txt").code == 1


@pytest.mark.requirement("guard.finds-the-hooks-that-git-uses")
def test_hooks_that_all_repositories_share_are_changed_only_when_asked(team: Any, tmp_path: Path) -> None:
    shared = {"GIT_CONFIG_GLOBAL": str(tmp_path / "gitconfig")}
    (tmp_path / "gitconfig").write_text(f"[core]\n\thooksPath = {tmp_path}/everywhere\n")
    command = (sys.executable, "-P", "-m", "fencepost", "guard", "install")
    # Variables of git are left out where the guard asks it; the file of the person's home counts.
    (team.services.home.path.parent / ".gitconfig").write_text((tmp_path / "gitconfig").read_text())
    try:
        refused = team.operator.run(*command, "--json", env=shared)
        assert refused.error["code"] == "hooks_shared"
        assert not (tmp_path / "everywhere").exists()
        done = team.operator.run(*command, "--shared", env=shared)
        assert done.code == 0, done.err
        assert (tmp_path / "everywhere" / "pre-commit").exists()
    finally:
        (team.services.home.path.parent / ".gitconfig").unlink()


@pytest.mark.requirement("guard.refuses-what-another-holds")
def test_a_push_of_what_another_holds_is_refused_and_a_new_branch_counts_from_what_no_remote_has(
    team: Any, tmp_path: Path
) -> None:
    team.operator.good("init", "-q", "--bare", str(tmp_path / "remote.git"))
    team.operator.good("remote", "add", "origin", str(tmp_path / "remote.git"))
    team.operator.good("push", "-q", "origin", "main")
    installed(team.operator)
    assert team.bob.commits("b.txt").code == 0
    assert team.ada.fencepost("file", "reserve", "b.txt").code == 0
    refused = team.bob.git("push", "-q", "origin", "main")
    assert refused.code == 1
    assert "the push was not made" in refused.err
    assert team.bob.git("push", "-q", "origin", "main:topic").code == 1
    team.bob.good("branch", "side", "HEAD~1")
    assert team.bob.git("push", "-q", "origin", "side").code == 0, "these commits the remote has"
    assert team.bob.git("push", "-q", "origin", ":side").code == 0, "a branch that is removed touches nothing"
    assert team.ada.git("push", "-q", "origin", "main").code == 0


def test_a_check_by_hand_answers_without_a_commit(team: Any) -> None:
    assert "Nothing to check" in team.bob.fencepost("guard", "check").out
    (team.bob.folder / "a.txt").write_text("new\n")
    team.bob.good("add", "a.txt")
    assert "Free" in team.bob.fencepost("guard", "check").out
    assert team.ada.fencepost("file", "reserve", "a.txt").code == 0
    assert team.bob.fencepost("guard", "check").code == 8
    wrong = team.bob.fencepost("guard", "check", "--hook", "post-commit")
    assert wrong.code == 1


def test_outside_a_repository_nothing_is_installed(team: Any, tmp_path: Path) -> None:
    done = team.operator.at(tmp_path).fencepost("guard", "install", "--json")
    assert done.error["code"] == "git_failed"
    assert json.loads(done.err)["error"]["outcome"] == "refused"
    assert "--repo DIR" in done.error["hint"]
