"""`fencepost guard`: the git hook that keeps two agents from committing changes of one file."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from fencepost.cli import acting, exits, screen
from fencepost.cli.directory import all_projects
from fencepost.cli.files import PATHS_OF_A_CALL_MAX, conflict_lines, scope_of
from fencepost.cli.options import AsJson
from fencepost.cli.plain import one_line
from fencepost.cli.project import locate
from fencepost.client import Budgets
from fencepost.errors import FencepostError, Refused
from fencepost.guard import changes, hooks, script
from fencepost.mailbox.v1 import files_pb2 as pb
from fencepost.paths import Checkout

guard = typer.Typer(help="A git hook that refuses commits of files that another agent holds.", no_args_is_help=True)

# Asking for one commit, everything in all. Over it the commit goes on, unchecked, and it is said.
GUARD_MS_MAX: Final = 10_000
_GUARD_READY_MS: Final = 1_000
_GUARD_CALL_MS: Final = 3_000

Repository = Annotated[
    Path | None, typer.Option("--repo", metavar="DIR", help="A folder of the repository; by default the current one.")
]


@guard.command("install")
def install(
    *,
    repo: Repository = None,
    push: Annotated[bool, typer.Option("--push/--no-push", help="Also ask before a push.")] = True,
    shared: Annotated[
        bool, typer.Option("--shared", help="Also where the folder of hooks is that of all your repositories.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put the guard into a repository's hooks, beside what they do already. Worktrees share it."""
    place = hooks.place_of(Path.cwd() if repo is None else repo)
    if place.shared and not shared:
        raise Refused(
            "hooks_shared",
            f"all repositories of this user share the hooks in {place.folder} (core.hooksPath); nothing was changed",
            hint="Put the guard there all the same with --shared: what is in no project of Fencepost it lets through.",
        )
    done = hooks.install(place, _program(), script.HOOKS if push else script.HOOKS[:1])
    _tell(place, done, as_json=as_json, nothing="")
    for one in done:
        if not as_json and hooks.is_tracked(place, one.path):
            screen.put(f"  {one.path} is a file of the repository: others get these lines with your next commit of it.")


@guard.command("remove")
def remove(*, repo: Repository = None, as_json: AsJson = False) -> None:
    """Take the guard out of a repository's hooks; what was there before stays."""
    place = hooks.place_of(Path.cwd() if repo is None else repo)
    _tell(place, hooks.remove(place), as_json=as_json, nothing=f"No hook in {place.folder} has the guard.")


def _tell(place: hooks.Place, done: list[hooks.Done], *, as_json: bool, nothing: str) -> None:
    if as_json:
        found = [{"path": str(one.path), "what": one.what} for one in done]
        screen.put_json({"root": str(place.root), "hooks": found})
        return
    for one in done:
        screen.put(f"{one.path}: {one.what}.")
    if not done and nothing:
        screen.put(nothing)


def _program() -> str:
    """Return how a hook calls this command: by the absolute path of the one that runs, where there is one."""
    beside = Path(sys.executable).parent / "fencepost"
    found = str(beside) if beside.exists() else shutil.which("fencepost")
    return os.path.abspath(found) if found else "fencepost"  # noqa: PTH100 (a name, not a lookup)


@guard.command("check")
def check(
    *,
    hook: Annotated[
        str, typer.Option("--hook", metavar="NAME", help="As this hook: let through what cannot be checked.")
    ] = "",
    repo: Repository = None,
) -> int:
    """Tell whether the commit under way touches files that another agent holds. Exits with 8 where it does."""
    if hook not in ("", *script.HOOKS):
        raise Refused("invalid_arguments", f"a hook is one of {', '.join(script.HOOKS)}; nothing was checked")
    try:
        found = _look(Path.cwd() if repo is None else repo, hook)
    except FencepostError as error:
        if not hook:
            raise
        _warn(f"{one_line(error.message)} ({error.reason})")
        return exits.OK
    except TimeoutError:
        _warn(f"no answer within {GUARD_MS_MAX} ms")
        return exits.OK
    if found is None:
        if not hook:
            screen.put("Nothing to check: no file is touched, or this is no project of yours.")
        return exits.OK
    if not found:
        if not hook:
            screen.put("Free: nobody else holds any of it.")
        return exits.OK
    screen.put("\n".join(_refusal(found, hook)), stream=sys.stderr)
    return exits.HELD


def _warn(why: str) -> None:
    screen.put(
        f"fencepost guard: not checked whether another agent holds these files: {why}. The commit goes on.",
        stream=sys.stderr,
    )


def _refusal(found: list[pb.FileConflict], hook: str) -> list[str]:
    """Return what a person or agent is told whose commit is refused: who, why, until when, and what to do."""
    what = "push" if hook == "pre-push" else "commit"
    names = sorted({one_line(one.held.holder.name) or one.held.holder.agent_id for one in found})
    lines = [f"fencepost guard: this {what} touches files that others hold; the {what} was not made."]
    lines += conflict_lines(found, more=False, now_ms=int(time.time() * 1000))
    lines += [
        "What to do:",
        f"  - ask {', '.join(names)} to release them (fencepost message send {names[0]} ...), or wait until then;",
    ]
    if what == "commit":
        lines.append("  - or leave them out of this commit: git restore --staged FILE keeps your changes.")
    if not acting.agent_named():
        lines.append(
            "  - you are the person here: fencepost file release --agent NAME PATH ends a reservation, and git's own"
            " --no-verify skips every hook."
        )
    return lines


def _look(folder: Path, hook: str) -> list[pb.FileConflict] | None:
    """Return what others hold of what is touched; None where there is nothing to ask.

    Raises:
        FencepostError: it could not be asked.
        TimeoutError: it took too long.
    """
    root = Path(os.fsdecode(hooks.git(["rev-parse", "--show-toplevel"], at=folder, plain=not hook).removesuffix(b"\n")))
    if hook == "pre-push":
        refs = sys.stdin.buffer.read(changes.REFS_BYTES_MAX).decode("utf-8", "replace")
        touched = changes.pushed(root, refs)
    else:
        touched = changes.staged(root)
    if not touched:
        return None
    who = acting.as_whoever()
    return asyncio.run(_ask(who, root, touched))


async def _ask(who: acting.Acting, root: Path, touched: list[str]) -> list[pb.FileConflict] | None:
    checkout = Checkout.at(root)
    budgets = Budgets(ready_ms=_GUARD_READY_MS, call_ms=_GUARD_CALL_MS)
    found: list[pb.FileConflict] = []
    async with asyncio.timeout(GUARD_MS_MAX / 1000), acting.connected(who, budgets=budgets) as services:
        project_id = await _project(services, who, root)
        if project_id is None:
            return None
        for start in range(0, len(touched), PATHS_OF_A_CALL_MAX):
            ask = pb.CheckFilesRequest(
                paths=touched[start : start + PATHS_OF_A_CALL_MAX],
                scope=scope_of(checkout),
                project_id=project_id if who.is_operator else "",
            )
            found.extend((await services.files.check(ask)).conflicts)
    return found


async def _project(services: acting.Services, who: acting.Acting, root: Path) -> str | None:
    """Return the project whose repository this is; None where it is none of the caller's."""
    place = locate(root).path
    if who.is_operator:
        projects = await all_projects(services.sessions)
        return next((one.project_id for one in projects if one.location == place), None)
    project = (await services.sessions.get_caller()).project
    return project.project_id if project.location == place else None
