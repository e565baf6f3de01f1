"""`fencepost project`: which projects there are, who belongs to one, and how its work stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from fencepost.cli import acting, screen
from fencepost.cli.contexts import PAGE_ROWS, PAGES_LISTED_MAX
from fencepost.cli.directory import all_agents, all_projects
from fencepost.cli.options import AsJson, Key, key_or_new
from fencepost.cli.plain import enum_word, one_line, plain
from fencepost.cli.project import locate
from fencepost.cli.scope import project_at
from fencepost.cli.screen import Column
from fencepost.errors import Refused
from fencepost.home import is_uuid
from fencepost.mailbox.v1 import context_pb2, tasks_pb2
from fencepost.sessions.v1 import sessions_pb2 as pb

projects = typer.Typer(help="List, show, create and change projects.", no_args_is_help=True)

_KINDS: Final = {pb.PROJECT_KIND_GIT: "git", pb.PROJECT_KIND_FOLDER: "folder"}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Shown:
    """A project, with what the caller may see of it."""

    project: pb.Project
    agents: Sequence[pb.Agent]
    # Tasks by the word of their state, those that were put away left out. Not for an agent: a listing by an agent takes
    # what it has seen settled out of its supervision set, and nobody looks at a project to do that.
    tasks: Counter[str] | None
    memory_version: int


@projects.command("list")
def list_projects(*, as_json: AsJson = False) -> None:
    """List every project of the home."""
    found = acting.call(acting.as_operator(), lambda services: all_projects(services.sessions))
    if as_json:
        screen.put_json({"projects": [plain(project) for project in found]})
        return
    if not found:
        screen.put("No projects yet. The first agent of a folder makes one: fencepost agent create NAME")
        return
    columns = [Column(title=title) for title in ("UUID", "KIND", "NAME", "CREATED")] + [
        Column(title="LOCATION", text=True)
    ]
    rows = [
        [item.project_id, _KINDS.get(item.kind, "?"), item.name, screen.moment(item.created_at_ms), item.location]
        for item in found
    ]
    screen.put(screen.table(columns, rows))


@projects.command("show")
def show(
    named: Annotated[
        str | None,
        typer.Argument(metavar="[PROJECT]", help="UUID, or a folder of it; by default the current one, or your own."),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show a project: where it is, its agents, how many tasks are in which state, and its memory's version."""
    who = acting.as_whoever()

    async def work(services: acting.Services) -> _Shown:
        project = await _project_named(services, named) if who.is_operator else await _own(services, named)
        wanted = project.project_id if who.is_operator else ""
        ask = context_pb2.GetProjectMemoryRequest(project_id=wanted)
        return _Shown(
            project=project,
            agents=await all_agents(services.sessions, wanted),
            tasks=await _tasks_by_state(services, wanted) if who.is_operator else None,
            memory_version=(await services.contexts.get_memory(ask)).memory.version,
        )

    found = acting.call(who, work)
    if as_json:
        screen.put_json(
            {
                "project": plain(found.project),
                "agents": [plain(agent) for agent in found.agents],
                "tasks": None if found.tasks is None else dict(found.tasks),
                "memory_version": found.memory_version,
            }
        )
        return
    project = found.project
    kind = _KINDS.get(project.kind, "?")
    screen.put(f"{one_line(project.name)}  {project.project_id}")
    screen.put(f"  {kind} {one_line(project.location)}, since {screen.moment(project.created_at_ms)}")
    if project.tools_profile:
        screen.put(f"  tools: {project.tools_profile}")
    screen.put(f"  agents: {', '.join(one_line(agent.name) for agent in found.agents) or 'none'}")
    if found.tasks is not None:
        counted = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in found.tasks.items())
        screen.put(f"  tasks: {counted or 'none'}")
    screen.put(f"  memory: version {found.memory_version}" if found.memory_version else "  memory: nothing yet")


@projects.command("create")
def create(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="A folder of it; by default the current one.")
    ] = None,
    *,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="By default that of the folder.")] = "",
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Make a folder, or the repository that it lies in, a project, before its first agent does."""
    operator = acting.as_operator()
    location = locate(Path.cwd() if folder is None else folder)
    ask = pb.EnsureProjectRequest(
        idempotency_key=key_or_new(key), kind=location.kind, location=location.path, name=name or location.name
    )
    made = acting.call(operator, lambda services: services.sessions.ensure_project(ask))
    if as_json:
        screen.put_json(plain(made))
        return
    what = "is a project now" if made.created else "was a project already"
    screen.put(f"{one_line(made.project.location)} {what}: {one_line(made.project.name)}, {made.project.project_id}")


@projects.command("update")
def update(
    named: Annotated[
        str | None, typer.Argument(metavar="[PROJECT]", help="UUID, or a folder of it; by default the current one.")
    ] = None,
    *,
    tools: Annotated[
        str | None,
        typer.Option(
            "--tools",
            metavar="FAMILIES",
            help="MCP tools its agents are offered at most, where nothing is set of one itself: all, off, or families"
            ' with commas between them; "" clears.',
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change what is set of a project."""
    operator = acting.as_operator()
    if tools is None:
        raise Refused("invalid_arguments", "nothing to change was named; nothing was written", hint="See --help.")

    async def work(services: acting.Services) -> pb.UpdateProjectResponse:
        project = await _project_named(services, named)
        ask = pb.UpdateProjectRequest(project_id=project.project_id, tools_profile=tools)
        return await services.sessions.update_project(ask)

    changed = acting.call(operator, work)
    if as_json:
        screen.put_json(plain(changed))
        return
    project = changed.project
    what = project.tools_profile or "whatever their servers are started to offer"
    screen.put(f"Agents of {one_line(project.name)} ({project.project_id}) are offered: {what}.")


async def _project_named(services: acting.Services, named: str | None) -> pb.Project:
    if named is None or not is_uuid(named.lower()):
        return await project_at(services, None if named is None else Path(named))
    for project in await all_projects(services.sessions):
        if project.project_id == named.lower():
            return project
    raise Refused(
        "not_found",
        f"there is no project {named.lower()}; nothing was done",
        hint="`fencepost project list` shows them.",
    )


async def _own(services: acting.Services, named: str | None) -> pb.Project:
    if named is not None:
        raise Refused("invalid_arguments", "an agent is shown its own project; nothing was read")
    return (await services.sessions.get_caller()).project


async def _tasks_by_state(services: acting.Services, project_id: str) -> Counter[str]:
    counted: Counter[str] = Counter()
    ask = tasks_pb2.ListTasksRequest(page_size=PAGE_ROWS, project_id=project_id)
    for _ in range(PAGES_LISTED_MAX):
        page = await services.tasks.list_tasks(ask)
        counted.update(_state(task) for task in page.tasks)
        ask.page_token = page.next_page_token
        if not ask.page_token:
            break
    return counted


def _state(task: Any) -> str:
    return enum_word(task.DESCRIPTOR.fields_by_name["state"], task.state) or "?"
