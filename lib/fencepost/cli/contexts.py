"""`fencepost context` and `fencepost memory`: what every agent of a project may know."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Annotated, Final

import typer

from fencepost.cli import acting, screen
from fencepost.cli.body import refuse_unless_one_source
from fencepost.cli.options import AsJson, FromFile, Stdin, Text
from fencepost.cli.plain import one_line, plain
from fencepost.cli.scope import ProjectOption, project_id_of
from fencepost.cli.screen import Column
from fencepost.errors import Refused
from fencepost.mailbox.v1 import context_pb2 as pb

contexts = typer.Typer(help="Publish and read shared contexts of a project.", no_args_is_help=True)
memory = typer.Typer(help="Read and change what a project remembers.", no_args_is_help=True)

# A little over the largest content, so that what is too long is refused by its size.
SHARED_TEXT_BYTES_READ_MAX: Final = 1024 * 1024
PAGES_LISTED_MAX: Final = 100
PAGE_ROWS: Final = 200

ContextKey = Annotated[str, typer.Argument(metavar="KEY", help="1 to 256 bytes of printable text without white space.")]
Version = Annotated[int, typer.Option("--version", metavar="N", min=0, help="That version; by default the newest.")]
RequestId = Annotated[
    str | None,
    typer.Option("--request-id", metavar="UUID", help="Repeating a command with the same id answers its first result."),
]


def request_id_or_new(given: str | None) -> str:
    """Return the request id that was given, or a new one.

    Raises:
        Refused: it is no UUID.
    """
    if given is None:
        return str(uuid.uuid4())
    try:
        return str(uuid.UUID(given))
    except ValueError:
        raise Refused("invalid_arguments", "--request-id is a UUID; nothing was sent") from None


def read_text(text: str | None, *, stdin: bool, file: Path | None) -> str:
    """Return the text of a command from exactly one place; its size is judged by the service.

    Raises:
        Refused: none or several places, an unreadable file, no UTF-8, or far too long. Nothing was sent.
    """
    refuse_unless_one_source(text, stdin=stdin, file=file)
    try:
        if file is not None:
            with file.open("rb") as opened:
                raw = opened.read(SHARED_TEXT_BYTES_READ_MAX + 1)
        else:
            raw = sys.stdin.buffer.read(SHARED_TEXT_BYTES_READ_MAX + 1) if text is None else text.encode("utf-8")
        if len(raw) > SHARED_TEXT_BYTES_READ_MAX:
            raise Refused("invalid_context", f"the text has over {SHARED_TEXT_BYTES_READ_MAX} bytes; nothing was sent")
        return raw.decode("utf-8")
    except OSError as error:
        raise Refused("invalid_arguments", f"{file} cannot be read: {error.strerror}; nothing was sent") from None
    except UnicodeError:
        raise Refused("invalid_context", "the text is not UTF-8; nothing was sent") from None


@contexts.command("publish")
def publish(
    key: ContextKey,
    text: Text = None,
    *,
    stdin: Stdin = False,
    file: FromFile = None,
    pinned: Annotated[
        bool | None, typer.Option("--pinned/--unpinned", help="Keep it for ever, or no longer; else as before.")
    ] = None,
    expected: Annotated[
        int, typer.Option("--expected-version", metavar="N", min=0, help="Refuse unless that is the newest.")
    ] = 0,
    project: ProjectOption = None,
    request_id: RequestId = None,
    as_json: AsJson = False,
) -> None:
    """Publish a new version of a context; earlier ones stay."""
    who = acting.as_whoever()
    ask = pb.PublishContextRequest(
        key=key,
        content=read_text(text, stdin=stdin, file=file),
        expected_version=expected,
        request_id=request_id_or_new(request_id),
    )
    if pinned is not None:
        ask.pinned = pinned

    async def work(services: acting.Services) -> pb.PublishContextResponse:
        ask.project_id = await project_id_of(services, who, project)
        return await services.contexts.publish(ask)

    made = acting.call(who, work)
    if as_json:
        screen.put_json({**plain(made), "request_id": ask.request_id})
        return
    again = " was published by an earlier call with this id" if made.duplicate else " is published"
    screen.put(f"{one_line(made.key)}{again} as version {made.version}.")


@contexts.command("show")
def show(
    key: ContextKey,
    *,
    version: Version = 0,
    history: Annotated[bool, typer.Option("--history", help="List its versions instead.")] = False,
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> None:
    """Show a context with its content."""
    who = acting.as_whoever()

    async def one(services: acting.Services) -> pb.Context:
        project_id = await project_id_of(services, who, project)
        ask = pb.GetContextRequest(key=key, version=version, project_id=project_id)
        return (await services.contexts.get(ask)).context

    async def every(services: acting.Services) -> list[pb.Context]:
        found: list[pb.Context] = []
        ask = pb.ListContextVersionsRequest(
            key=key, page_size=PAGE_ROWS, project_id=await project_id_of(services, who, project)
        )
        for _ in range(PAGES_LISTED_MAX):
            page = await services.contexts.list_versions(ask)
            found.extend(page.contexts)
            ask.page_token = page.next_page_token
            if not ask.page_token:
                break
        return found

    if history:
        _put_contexts(acting.call(who, every), as_json=as_json)
        return
    found = acting.call(who, one)
    if as_json:
        screen.put_json({"context": plain(found)})
        return
    stays = "pinned" if found.pinned else "not pinned"
    screen.put(
        f"{one_line(found.key)}  version {found.version} of {found.newest_version}, {stays}, by "
        f"{_whom(found, 'publisher')} at {screen.moment(found.published_at_ms)}"
    )
    screen.put_body(found.content)


@contexts.command("list")
def list_contexts(
    *,
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="Only keys that begin so.")] = "",
    pinned: Annotated[bool, typer.Option("--pinned", help="Only those that are kept for ever.")] = False,
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> None:
    """List the contexts of a project by key."""
    who = acting.as_whoever()

    async def work(services: acting.Services) -> list[pb.Context]:
        found: list[pb.Context] = []
        ask = pb.ListContextsRequest(
            prefix=prefix,
            pinned_only=pinned,
            page_size=PAGE_ROWS,
            project_id=await project_id_of(services, who, project),
        )
        for _ in range(PAGES_LISTED_MAX):
            page = await services.contexts.list_contexts(ask)
            found.extend(page.contexts)
            ask.page_token = page.next_page_token
            if not ask.page_token:
                break
        return found

    _put_contexts(acting.call(who, work), as_json=as_json)


def _whom(found: pb.Context | pb.ProjectMemory, part: str) -> str:
    """Return who wrote something, for people."""
    if not found.HasField(part):  # type: ignore[arg-type]
        return "the operator"
    ref = getattr(found, part)
    return one_line(ref.name) or str(ref.agent_id)


def _numbers(*titles: str) -> list[Column]:
    return [Column(title=title, right=True) for title in titles]


def _put_contexts(found: list[pb.Context], *, as_json: bool) -> None:
    if as_json:
        screen.put_json({"contexts": [plain(one) for one in found]})
        return
    if not found:
        screen.put("No contexts. Publish one with: fencepost context publish KEY TEXT")
        return
    columns = [
        Column(title="KEY"),
        *_numbers("VERSION", "BYTES"),
        Column(title="PINNED"),
        Column(title="BY"),
        Column(title="AT"),
    ]
    rows = [
        [
            one.key,
            str(one.version),
            str(one.content_bytes),
            "yes" if one.pinned else "",
            _whom(one, "publisher"),
            screen.moment(one.published_at_ms),
        ]
        for one in found
    ]
    screen.put(screen.table(columns, rows))


@memory.command("show")
def show_memory(
    *,
    version: Version = 0,
    history: Annotated[bool, typer.Option("--history", help="List the versions that are kept instead.")] = False,
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> None:
    """Show what a project remembers."""
    who = acting.as_whoever()

    async def one(services: acting.Services) -> pb.ProjectMemory:
        ask = pb.GetProjectMemoryRequest(version=version, project_id=await project_id_of(services, who, project))
        return (await services.contexts.get_memory(ask)).memory

    async def every(services: acting.Services) -> list[pb.ProjectMemory]:
        ask = pb.ListProjectMemoryRequest(page_size=PAGE_ROWS, project_id=await project_id_of(services, who, project))
        return list((await services.contexts.list_memory(ask)).versions)

    if history:
        versions = acting.call(who, every)
        if as_json:
            screen.put_json({"versions": [plain(found) for found in versions]})
            return
        columns = [*_numbers("VERSION", "BYTES"), Column(title="BY"), Column(title="AT")]
        rows = [
            [str(found.version), str(found.content_bytes), _whom(found, "author"), screen.moment(found.updated_at_ms)]
            for found in versions
        ]
        screen.put(screen.table(columns, rows) if rows else "Nothing was ever remembered.")
        return
    found = acting.call(who, one)
    if as_json:
        screen.put_json({"memory": plain(found)})
        return
    if not found.version:
        screen.put("Nothing is remembered. Begin with: fencepost memory update TEXT --expected-version 0")
        return
    screen.put(f"Version {found.version}, by {_whom(found, 'author')} at {screen.moment(found.updated_at_ms)}")
    screen.put_body(found.content)


@memory.command("update")
def update_memory(
    text: Text = None,
    *,
    stdin: Stdin = False,
    file: FromFile = None,
    expected: Annotated[
        int | None,
        typer.Option(
            "--expected-version", metavar="N", min=0, help="The version that you read; 0 where there was none."
        ),
    ] = None,
    project: ProjectOption = None,
    request_id: RequestId = None,
    as_json: AsJson = False,
) -> None:
    """Replace what a project remembers; refused where somebody else has changed it since you read it."""
    who = acting.as_whoever()
    if expected is None:
        raise Refused(
            "invalid_arguments",
            "say with --expected-version which version you read; nothing was sent",
            hint="`fencepost memory show` tells it; 0 where there is none yet.",
        )
    ask = pb.UpdateProjectMemoryRequest(
        content=read_text(text, stdin=stdin, file=file),
        expected_version=expected,
        request_id=request_id_or_new(request_id),
    )

    async def work(services: acting.Services) -> pb.UpdateProjectMemoryResponse:
        ask.project_id = await project_id_of(services, who, project)
        return await services.contexts.update_memory(ask)

    made = acting.call(who, work)
    if as_json:
        screen.put_json({**plain(made), "request_id": ask.request_id})
        return
    again = " was written by an earlier call with this id" if made.duplicate else " is written"
    screen.put(f"Version {made.version} of the project's memory{again}.")
