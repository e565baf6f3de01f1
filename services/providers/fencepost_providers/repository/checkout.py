"""The main checkout of a project and the checkouts of its agents: looked at, merged without a checkout, moved forward.

A branch moves by compare-and-swap only, and only where the working tree can follow it. Nothing that a person has not
committed is ever overwritten: neither a change nor a file that git does not know.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fencepost_providers.domain.integration import (
    COMMIT_LENGTHS,
    Changes,
    Place,
    ancestors,
    changes_of,
    conflicts_of,
    dirty_of,
    files_in_words,
    files_named,
    filtered_of,
)
from fencepost_providers.domain.refusals import (
    BranchMoved,
    ChangeTooLarge,
    CheckoutBusy,
    CheckoutDirty,
    FilteredFiles,
    IncompleteHistory,
    MergeConflict,
    NoMainCheckout,
    UnknownCommit,
)
from fencepost_providers.repository.git import (
    FETCHING,
    FOLLOW_MS_MAX,
    INPUT_BYTES_MAX,
    UPLOAD_PACK,
    WORK_MS_MAX,
    Git,
    Output,
    failed,
)

# What is looked through where a file comes in a folder's place; a folder of more is in the way as a whole.
WALKED_ENTRIES_MAX: Final = 100_000
# What git leaves in its folder while somebody is in the middle of something.
UNFINISHED: Final = (
    "index.lock",
    "HEAD.lock",
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    "BISECT_LOG",
)
_COMMIT: Final = "commit"
_HINT_CHECKOUT: Final = "Call again with the same request_id once the checkout is as it should be."


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkout:
    """A checkout: its folder, the repository's common directory and its own, and the hash of its object ids."""

    folder: str
    common: str
    own: str
    object_format: str
    git: Git


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """A branch, `refs/heads/...`, and its commit."""

    branch: str
    commit: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """Who is named as author and committer of a merge, and when."""

    name: str
    mail: str
    at_s: int

    def environment(self) -> Mapping[str, str]:
        """Return it as git takes it."""
        return {
            f"GIT_{who}_{what}": value
            for who in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", self.name), ("EMAIL", self.mail), ("DATE", f"@{self.at_s} +0000"))
        }


async def checkout_at(folder: str, environ: Mapping[str, str]) -> Checkout | None:
    """Return the checkout that a folder lies in; None where it lies in none.

    Raises:
        GitUnavailable, GitFailed: see Git.
    """
    if not await asyncio.to_thread(Path(folder).is_dir):
        return None
    git = Git(folder, environ)
    asked = ("--git-common-dir", "--absolute-git-dir", "--show-toplevel", "--show-object-format")
    said = await git.run("rev-parse", "--path-format=absolute", *asked)
    if said.code != 0 or len(said.lines) != len(asked):
        return None
    common, own, top = await asyncio.to_thread(_real, *said.lines[:3])
    return Checkout(
        folder=top,
        common=common,
        own=own,
        object_format=said.lines[3],
        git=await Git(top, environ).tamed(),
    )


def is_text(name: str) -> bool:
    """Tell whether a name that git told is UTF-8: nothing else can be stored or told."""
    return not any("\udc80" <= character <= "\udcff" for character in name)


def _real(*paths: str) -> list[str]:
    return [str(Path(path).resolve()) for path in paths]


async def main_checkout(place: Place, environ: Mapping[str, str]) -> Checkout:
    """Return the main checkout of a project.

    Raises:
        NoMainCheckout: its repository is bare, its place is no repository, or not on this machine.
        GitUnavailable, GitFailed: see Git.
    """
    location = Path(place.location)
    inside = place.is_git and location.name == ".git"
    found = await checkout_at(str(location.parent if inside else location), environ)
    if found is not None and found.own == found.common and is_text(found.folder):
        expected = found.common if place.is_git else found.folder
        if await asyncio.to_thread(_real, place.location) == [expected]:
            return found
    raise NoMainCheckout(
        "the project's place on this machine is no git repository with a main checkout; nothing was changed",
        hint="Merge where the repository is, then call without a commit: that records only.",
    )


async def head_of(checkout: Checkout) -> Head:
    """Return the branch that a checkout is on.

    Raises:
        NoMainCheckout: it is on none, or on one without a commit.
    """
    branch = await checkout.git.run("symbolic-ref", "-q", "HEAD")
    commit = await checkout.git.run("rev-parse", "--verify", "-q", "HEAD^{commit}")
    found = branch.code == commit.code == 0 and branch.text.startswith("refs/heads/")
    if not found or not is_text(branch.text):
        what = "no branch, or on one without a commit" if not found else "a branch whose name is no UTF-8"
        raise NoMainCheckout(
            f"the main checkout is on {what}; nothing was changed",
            hint="Check out the branch that takes the work, then call again with the same request_id.",
        )
    return Head(branch=branch.text, commit=commit.text)


async def check_at_rest(checkout: Checkout) -> None:
    """Let a checkout pass in which nobody is in the middle of something, and all is committed.

    Raises:
        CheckoutBusy, CheckoutDirty: it is not so; nothing was changed.
    """
    found = await asyncio.to_thread(_unfinished, checkout.own)
    if found:
        raise CheckoutBusy(
            f"somebody is at work in the main checkout: {found} is in its git directory; nothing was changed",
            hint=f"Let that be finished or given up by whoever began it. {_HINT_CHECKOUT}",
            state={"found": found},
        )
    status = await checkout.git.run(
        "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=no", "--ignore-submodules=all"
    )
    if status.code != 0:
        raise failed("look at the main checkout", status)
    _check_clean(dirty_of(status.out), "has changes that are not committed")


def _unfinished(own: str) -> str:
    return next((name for name in UNFINISHED if os.path.lexists(Path(own) / name)), "")


def _check_clean(files: list[str], what: str) -> None:
    if files:
        raise CheckoutDirty(
            f"the main checkout {what}: {files_in_words(files)}; nothing was changed",
            hint=f"Commit them, or move them away. {_HINT_CHECKOUT}",
            state=files_named(files),
        )


def _unknown(text: str, hint: str = "") -> UnknownCommit:
    return UnknownCommit(f"{text}; nothing was changed", hint=hint)


async def bring_commit(main: Checkout, commit: str, worker: str, environ: Mapping[str, str]) -> None:
    """Let the main repository have a commit with its history; fetched from the worker's checkout where it is missing.

    Raises:
        UnknownCommit: it is nowhere, or the object is no commit.
        IncompleteHistory: something of its history is missing.
        GitUnavailable, GitFailed: see Git.
    """
    if len(commit) != COMMIT_LENGTHS.get(main.object_format, 0):
        raise _unknown(f"the repository has ids of {main.object_format}: this is none")
    kind = await main.git.type_of(commit)
    if not kind:
        await _fetch(main, commit, worker, environ)
        kind = await main.git.type_of(commit)
    if kind != _COMMIT:
        raise _unknown(f"this is the id of a {kind or 'missing object'}, not of a commit")
    whole = await main.git.run("rev-list", "--objects", "--quiet", commit, "--not", "HEAD", "--", within_ms=WORK_MS_MAX)
    if whole.code != 0:
        raise IncompleteHistory(
            "objects of the commit or its history are missing; no branch and no checkout was changed",
            hint="A shallow or partial clone can be completed: `git fetch --unshallow`.",
            state={"said": whole.error[-200:]},
        )


async def _fetch(main: Checkout, commit: str, worker: str, environ: Mapping[str, str]) -> None:
    hint = "The assignee commits its work in its checkout and submits the full id."
    source = await checkout_at(worker, environ) if worker else None
    if source is None or source.common == main.common:
        where = "is no other checkout on this machine" if source is None else "is one of the same repository"
        raise _unknown(f"the main repository has no such commit, and the assignee's workspace {where}", hint)
    kind = await source.git.type_of(commit)
    if kind != _COMMIT:
        raise _unknown("neither the main repository nor the assignee's checkout has such a commit", hint)
    options = ("--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--no-auto-maintenance", "--quiet")
    said = await main.git.run(
        *("fetch", *options, "--refmap=", f"--upload-pack={UPLOAD_PACK}", source.common, commit),
        within_ms=WORK_MS_MAX,
        environment=FETCHING,
    )
    if said.code != 0:
        shallow = await asyncio.to_thread((Path(source.common) / "shallow").exists)
        if shallow:
            raise IncompleteHistory(
                "the assignee's checkout is a shallow clone, and its history cannot be fetched; nothing was changed",
                hint="Complete it with `git fetch --unshallow` there, then call again with the same request_id.",
            )
        raise failed("fetch the commit from the assignee's checkout", said)


async def is_contained(git: Git, commit: str, branch: str) -> bool:
    """Tell whether a branch contains a commit.

    Raises:
        GitFailed: one of the two is not there.
    """
    said = await git.run("merge-base", "--is-ancestor", commit, branch)
    if said.code not in (0, 1):
        raise failed("compare the commit with the branch", said)
    return said.code == 0


async def merged(main: Checkout, head: Head, commit: str, signature: Signature, message: str) -> str:
    """Return the commit that the branch is to have: the commit itself where the branch only has to go forward to it.

    Else it is a merge of both, which is in the object database and nowhere else.

    Raises:
        IncompleteHistory: the two have no common history.
        MergeConflict: they do not merge.
    """
    base = await main.git.run("merge-base", head.commit, commit)
    if base.code == 1:
        raise IncompleteHistory(
            "the commit and the branch have no common history; no branch and no checkout was changed",
            hint="A shallow clone can be completed with `git fetch --unshallow`.",
        )
    if base.text == head.commit:
        return commit
    options = ("--write-tree", "--no-messages", "--name-only", "-z")
    tree = await main.git.run("merge-tree", *options, head.commit, commit, within_ms=WORK_MS_MAX)
    if tree.code == 1:
        files = conflicts_of(tree.out)
        raise MergeConflict(
            f"the commit conflicts with {head.branch.removeprefix('refs/heads/')} in {files_in_words(files)}; nothing"
            " was changed and the task stays accepted",
            hint="Work that brings the branch into the worker's commit is a new task; integrate its commit.",
            state={**files_named(files), "branch": head.branch},
        )
    if tree.code != 0:
        raise failed("merge the commit", tree)
    made = await main.git.run(
        *("commit-tree", tree.out.split(b"\0")[0].decode("ascii"), "-p", head.commit, "-p", commit, "-F", "-"),
        given=message.encode("utf-8"),
        environment=signature.environment(),
    )
    if made.code != 0:
        raise failed("write the merge commit", made)
    return made.text


async def check_follows(main: Checkout, old: str, new: str) -> None:
    """Let a change of the branch pass that the working tree can follow, without a loss and without a foreign program.

    Raises:
        CheckoutDirty: files that git does not know are in the way.
        FilteredFiles: a program would have to convert what is written.
        ChangeTooLarge: more is changed than INPUT_BYTES_MAX of paths.
    """
    changes = await _changes(main, old, new)
    await _check_unfiltered(main, new, changes)
    _check_clean(await asyncio.to_thread(in_the_way, main.folder, changes), "has files in the way that git ignores")
    tried = await main.git.run("read-tree", "-n", "-m", "-u", old, new, within_ms=WORK_MS_MAX)
    if tried.code != 0:
        raise CheckoutDirty(
            "the main checkout cannot follow the branch; nothing was changed",
            hint=f"`git status` there shows what is in the way. {_HINT_CHECKOUT}",
            state={"said": tried.error[-200:]},
        )


async def _changes(main: Checkout, old: str, new: str) -> Changes:
    said = await main.git.run("diff-tree", "-r", "-z", "--no-renames", "--name-status", old, new)
    if said.code != 0:
        raise failed("compare the two states", said)
    if len(said.out) > INPUT_BYTES_MAX:
        raise ChangeTooLarge(
            f"the change names more than {INPUT_BYTES_MAX} bytes of paths; nothing was changed",
            hint="Merge it with git yourself, then call again: what is contained is recorded.",
        )
    return changes_of(said.out)


async def _check_unfiltered(main: Checkout, new: str, changes: Changes) -> None:
    if not changes.written:
        return
    # What counts is said by the attributes of the new state: an index of its own holds it.
    with tempfile.TemporaryDirectory(prefix="fencepost-index-") as folder:
        environment = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        read = await main.git.run("read-tree", new, environment=environment, within_ms=WORK_MS_MAX)
        if read.code != 0:
            raise failed("read the new state", read)
        paths = b"".join(path.encode("utf-8", "surrogateescape") + b"\0" for path in changes.written)
        said = await main.git.run(
            "check-attr", "-z", "--stdin", "--cached", "filter", given=paths, environment=environment
        )
    if said.code != 0:
        raise failed("read the attributes of the new state", said)
    files = filtered_of(said.out)
    if files:
        raise FilteredFiles(
            f"a program has to convert {files_in_words(files)} (their attribute `filter`), and none is run here;"
            " nothing was changed",
            hint="Merge it with git yourself, then call again with the same request_id: what is contained is recorded.",
            state=files_named(files),
        )


def in_the_way(folder: str, changes: Changes) -> list[str]:
    """Return what stands where new files come and is nothing that the old state had."""
    top, found = Path(folder), set[str]()
    for path in changes.added:
        for above in ancestors(path):
            place = top / above
            if os.path.lexists(place) and (place.is_symlink() or not place.is_dir()):
                if above not in changes.deleted:
                    found.add(above)
                break
        place = top / path
        if place.is_dir() and not place.is_symlink():
            found.update(_unknown_below(top, place, changes.deleted))
        elif os.path.lexists(place):
            found.add(path)
    return sorted(found)


def _unknown_below(top: Path, place: Path, known: frozenset[str]) -> list[str]:
    """Return the files below a folder that are not known; the folder itself where it holds too much to look through."""
    found: list[str] = []
    entries = 0
    for parent, folders, files in os.walk(place):
        entries += len(folders) + len(files)
        if entries > WALKED_ENTRIES_MAX:
            return [str(place.relative_to(top))]
        names = (str((Path(parent) / file).relative_to(top)) for file in files)
        found.extend(name for name in names if name not in known)
    return found


async def move_branch(main: Checkout, branch: str, old: str, new: str, why: str) -> None:
    """Let a branch have another commit, where it still has the old one.

    Raises:
        BranchMoved: it has not, or somebody else holds it; nothing was changed.
        GitFailed: the command did not end in time: whether it moved is seen by looking.
    """
    said = await main.git.run("update-ref", "-m", why, branch, new, old, within_ms=WORK_MS_MAX)
    if said.code != 0:
        raise moved_meanwhile(branch)


def moved_meanwhile(branch: str) -> BranchMoved:
    """Return the refusal of what somebody else's work in the main checkout overtook."""
    return BranchMoved(
        f"the main checkout changed while the commit was merged into {branch.removeprefix('refs/heads/')}; what was"
        " merged was thrown away, and nothing was changed",
        hint="Call again with the same request_id.",
        state={"branch": branch},
    )


async def commit_of(main: Checkout, branch: str) -> str:
    """Return a branch's commit; empty where there is none."""
    said = await main.git.run("rev-parse", "--verify", "-q", f"{branch}^{{commit}}")
    return said.text if said.code == 0 else ""


async def follow(main: Checkout, branch: str, old: str, new: str) -> bool:
    """Bring index and working tree from one state to another where they are still at the old one.

    False where they cannot follow, or are on another branch; nothing was changed then. Time may have passed since it
    was looked at last: git itself would overwrite what it ignores.

    Raises:
        GitFailed, ChangeTooLarge: the two states cannot be compared; nothing was changed.
    """
    on = await main.git.run("symbolic-ref", "-q", "HEAD")
    if on.code != 0 or on.text != branch:
        return False
    if await asyncio.to_thread(in_the_way, main.folder, await _changes(main, old, new)):
        return False
    said: Output = await main.git.run("read-tree", "-m", "-u", old, new, within_ms=FOLLOW_MS_MAX)
    return said.code == 0


async def is_at(main: Checkout, commit: str) -> bool:
    """Tell whether the index holds exactly the state of a commit."""
    return (await main.git.run("diff-index", "--cached", "--quiet", "--ignore-submodules=none", commit, "--")).code == 0
