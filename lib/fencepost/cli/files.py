"""`fencepost file`: who works on which files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Final

import typer

from fencepost.cli import acting, exits, screen
from fencepost.cli.contexts import PAGE_ROWS, PAGES_LISTED_MAX, RequestId, request_id_or_new
from fencepost.cli.directory import resolve
from fencepost.cli.options import AsJson
from fencepost.cli.plain import enum_word, one_line, plain
from fencepost.cli.scope import ProjectOption, RootOption, checkout_at, project_id_of
from fencepost.cli.screen import Column
from fencepost.errors import Refused
from fencepost.mailbox.v1 import files_pb2 as pb
from fencepost.paths import Checkout

files = typer.Typer(help="Reserve files, and see who has.", no_args_is_help=True)

PATHS_OF_A_CALL_MAX: Final = 100

Paths = Annotated[
    list[str], typer.Argument(metavar="PATH...", help="Files, folders, or quoted globs with *, ? and **; from here.")
]
SomePaths = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PATH]...", help="Paths and globs as they are held; or --id, or --all."),
]
Ids = Annotated[
    list[str] | None, typer.Option("--id", metavar="UUID", help="All paths of a reservation. May be repeated.")
]
Seconds = Annotated[int, typer.Option("--seconds", metavar="S", help="For how long: 1 to 3600; by default 300.")]
OnlyHere = Annotated[bool, typer.Option("--checkout", help="Only in this checkout, not in the project's others.")]


@files.command("reserve")
def reserve(
    paths: Paths,
    *,
    shared: Annotated[bool, typer.Option("--shared", help="Others may share it.")] = False,
    seconds: Seconds = 0,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for those who would like it.")] = "",
    attempt: Annotated[
        str, typer.Option("--attempt", metavar="UUID", help="A running attempt of yours: ends with it.")
    ] = "",
    only_here: OnlyHere = False,
    root: RootOption = None,
    request_id: RequestId = None,
    as_json: AsJson = False,
) -> int:
    """Reserve files before you change them: all of them, or none. Exits with 8 where somebody else holds one."""
    who = acting.as_agent()
    checkout = checkout_at(root)
    plain_paths, globs = checkout.sorted_out(paths, base=Path.cwd())
    ask = pb.ReserveFilesRequest(
        paths=plain_paths,
        globs=globs,
        scope=pb.FileScope(checkout=checkout.root if only_here else "", ignore_case=checkout.ignore_case),
        mode=pb.RESERVATION_MODE_SHARED if shared else pb.RESERVATION_MODE_EXCLUSIVE,
        duration_seconds=seconds,
        reason=reason,
        attempt_id=attempt,
        request_id=request_id_or_new(request_id),
    )
    answer = acting.call(who, lambda services: services.files.reserve(ask))
    if as_json:
        screen.put_json({**plain(answer), "request_id": ask.request_id})
        return exits.OK if answer.reserved else exits.HELD
    if answer.reserved:
        screen.put(f"Reserved until {screen.moment(answer.expires_at_ms)}: {_paths(len(plain_paths) + len(globs))}.")
        screen.put(f"  {answer.reservation_id}")
        return exits.OK
    if answer.lapsed:
        screen.put("An earlier call with this id reserved them, and they are no longer all held. Reserve them again.")
        return exits.HELD
    screen.put("Nothing is reserved: others hold it.")
    put_conflicts(list(answer.conflicts), more=answer.more_conflicts)
    return exits.HELD


@files.command("renew")
def renew(
    paths: SomePaths = None,
    *,
    ids: Ids = None,
    seconds: Seconds = 0,
    root: RootOption = None,
    request_id: RequestId = None,
    as_json: AsJson = False,
) -> None:
    """Put the end of what you hold off. What has expired is reserved again instead."""
    who = acting.as_agent()
    plain_paths, globs = _named(paths, root)
    ask = pb.RenewFilesRequest(
        reservation_ids=ids or [],
        paths=plain_paths,
        globs=globs,
        duration_seconds=seconds,
        request_id=request_id_or_new(request_id),
    )
    answer = acting.call(who, lambda services: services.files.renew(ask))
    if as_json:
        screen.put_json({**plain(answer), "request_id": ask.request_id})
        return
    screen.put(f"Renewed {_paths(answer.renewed)}, the first until {screen.moment(answer.expires_at_ms)}.")


@files.command("release")
def release(
    paths: SomePaths = None,
    *,
    ids: Ids = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything that is held.")] = False,
    agent: Annotated[
        str, typer.Option("--agent", metavar="TARGET", help="For the operator: whose reservations are ended.")
    ] = "",
    root: RootOption = None,
    request_id: RequestId = None,
    as_json: AsJson = False,
) -> None:
    """Give up what you hold, or as the operator end what an agent holds."""
    who = acting.as_whoever()
    plain_paths, globs = _named(paths, root)
    ask = pb.ReleaseFilesRequest(
        reservation_ids=ids or [],
        paths=plain_paths,
        globs=globs,
        everything=everything,
        request_id=request_id_or_new(request_id),
    )

    async def work(services: acting.Services) -> pb.ReleaseFilesResponse:
        if agent:
            if not who.is_operator:
                raise Refused("permission_denied", "--agent is the operator's; nothing was done")
            ask.holder_id = (await resolve(services, agent)).agent.agent_id
        return await services.files.release(ask)

    answer = acting.call(who, work)
    if as_json:
        screen.put_json({**plain(answer), "request_id": ask.request_id})
        return
    screen.put(f"Released {_paths(answer.released)}." if answer.released else "Nothing of that was held.")


@files.command("list")
def list_reservations(
    path: Annotated[
        str | None, typer.Argument(metavar="[PATH]", help="Only what has to do with this file or folder.")
    ] = None,
    *,
    holder: Annotated[str, typer.Option("--agent", metavar="TARGET", help="Only what this agent holds.")] = "",
    project: ProjectOption = None,
    root: RootOption = None,
    as_json: AsJson = False,
) -> None:
    """List what is reserved now."""
    who = acting.as_whoever()
    named = "" if path is None else checkout_at(root).path(path, base=Path.cwd())

    async def work(services: acting.Services) -> list[pb.Reservation]:
        found: list[pb.Reservation] = []
        ask = pb.ListReservationsRequest(
            path=named, holder=holder, page_size=PAGE_ROWS, project_id=await project_id_of(services, who, project)
        )
        for _ in range(PAGES_LISTED_MAX):
            page = await services.files.list_reservations(ask)
            found.extend(page.reservations)
            ask.page_token = page.next_page_token
            if not ask.page_token:
                break
        return found

    found = acting.call(who, work)
    if as_json:
        screen.put_json({"reservations": [plain(one) for one in found]})
        return
    if not found:
        screen.put("Nothing is reserved.")
        return
    columns = [Column(title=title) for title in ("PATH", "BY", "MODE", "UNTIL")]
    rows = [
        [
            one.path,
            one.holder.name or one.holder.agent_id,
            enum_word(one.DESCRIPTOR.fields_by_name["mode"], one.mode) or "",
            screen.moment(one.expires_at_ms),
            one.reason,
        ]
        for one in found
    ]
    screen.put(screen.table([*columns, Column(title="WHY", text=True)], rows))


@files.command("check")
def check(paths: Paths, *, project: ProjectOption = None, root: RootOption = None, as_json: AsJson = False) -> int:
    """Tell whether you may write to files now. Exits with 8 where somebody else holds one."""
    who = acting.as_whoever()
    checkout = checkout_at(root)
    plain_paths, globs = checkout.sorted_out(paths, base=Path.cwd())
    ask = pb.CheckFilesRequest(paths=plain_paths, globs=globs, scope=scope_of(checkout))

    async def work(services: acting.Services) -> pb.CheckFilesResponse:
        ask.project_id = await project_id_of(services, who, project)
        return await services.files.check(ask)

    answer = acting.call(who, work)
    if as_json:
        screen.put_json(plain(answer))
    elif answer.free:
        screen.put("Free: nobody else holds any of it.")
    else:
        screen.put("Others hold it:")
        put_conflicts(list(answer.conflicts), more=answer.more_conflicts)
    return exits.OK if answer.free else exits.HELD


def scope_of(checkout: Checkout) -> pb.FileScope:
    """Return where the files of a checkout lie."""
    return pb.FileScope(checkout=checkout.root, ignore_case=checkout.ignore_case)


def put_conflicts(conflicts: list[pb.FileConflict], *, more: bool) -> None:
    """Write who holds what, why, and until when."""
    screen.put("\n".join(conflict_lines(conflicts, more=more, now_ms=int(time.time() * 1000))))


def conflict_lines(conflicts: list[pb.FileConflict], *, more: bool, now_ms: int) -> list[str]:
    """Return who holds what, why, and until when, for people. The reason is the holder's own words."""
    lines = []
    for one in conflicts:
        held = one.held
        what = "" if held.path == one.path else f" ({one_line(held.path)})"
        how = "shared by" if held.mode == pb.RESERVATION_MODE_SHARED else "held by"
        until = f"{screen.moment(held.expires_at_ms)}, {screen.span(max(0, held.expires_at_ms - now_ms))} from now"
        name = one_line(held.holder.name) or held.holder.agent_id
        lines.append(f"  {one_line(one.path)}{what}: {how} {name} until {until}")
        if held.reason:
            lines.append(f"    why: {one_line(held.reason)}")
    if more:
        lines.append("  and more")
    return lines


def _named(paths: list[str] | None, root: Path | None) -> tuple[list[str], list[str]]:
    return checkout_at(root).sorted_out(paths, base=Path.cwd()) if paths else ([], [])


def _paths(count: int) -> str:
    return f"{count} path{'' if count == 1 else 's'}"
