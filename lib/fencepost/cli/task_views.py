"""`fencepost task list`, `show`, `history`, `watch`, `verify`: how tasks stand and what happened. Changes no task.

Only `list` as an agent does what the mailbox does at every listing: what the agent has seen settled leaves its
supervision set.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Final

import typer

from fencepost.cli import acting, screen
from fencepost.cli.contexts import PAGE_ROWS, PAGES_LISTED_MAX
from fencepost.cli.options import AsJson
from fencepost.cli.plain import enum_word, line, one_line, plain
from fencepost.cli.scope import ProjectOption, project_id_of
from fencepost.cli.screen import Column
from fencepost.cli.task_words import event_line, evidence_lines, person, state_word, states_named, task_lines
from fencepost.cli.tasks import TaskId
from fencepost.errors import NotWritten, Refused
from fencepost.mailbox.v1 import evidence_pb2
from fencepost.mailbox.v1 import tasks_pb2 as pb
from fencepost.providers.v1 import providers_pb2

WATCH_POLL_MS: Final = 500
# How long to look for a mailbox that went away before giving up; a restart takes a second or two.
WATCH_AWAY_MS_MAX: Final = 60_000
# Pieces of evidence of one call.
VERIFIED_AT_ONCE_MAX: Final = 32
# The newest tasks of a project that `watch` looks at.
WATCHED_PAGES_MAX: Final = 5
SETTLED: Final = frozenset(
    {
        pb.TASK_STATE_ACCEPTED,
        pb.TASK_STATE_INTEGRATED,
        pb.TASK_STATE_CANCELLED,
        pb.TASK_STATE_FAILED,
        pb.TASK_STATE_EXPIRED,
    }
)

After = Annotated[int, typer.Option("--after", metavar="N", min=0, help="Begin behind this sequence.")]
States = Annotated[
    list[str] | None, typer.Option("--state", metavar="STATE", help="Only in this state. May be repeated.")
]
Assignee = Annotated[str, typer.Option("--assignee", metavar="TARGET", help="Only this agent's.")]


async def _pages(
    services: acting.Services, ask: pb.ListTasksRequest, pages_max: int
) -> AsyncIterator[pb.ListTasksResponse]:
    for _ in range(pages_max):
        page = await services.tasks.list_tasks(ask)
        yield page
        ask.page_token = page.next_page_token
        if not ask.page_token:
            return


def list_tasks(
    *,
    states: States = None,
    assignee: Assignee = "",
    archived: Annotated[bool, typer.Option("--archived", help="Also those that were put away.")] = False,
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> None:
    """List tasks, newest first: an agent sees those it has a part in, a coordinator and the operator the project's."""
    who = acting.as_whoever()
    ask = pb.ListTasksRequest(states=states_named(states), assignee=assignee, archived=archived, page_size=PAGE_ROWS)

    async def work(services: acting.Services) -> tuple[list[pb.Task], int, list[str]]:
        ask.project_id = await project_id_of(services, who, project)
        found: list[pb.Task] = []
        retired: list[str] = []
        pending = 0
        async for page in _pages(services, ask, PAGES_LISTED_MAX):
            found.extend(page.tasks)
            retired.extend(page.retired)
            pending = page.pending_count
        return found, pending, retired

    found, pending, retired = acting.call(who, work)
    if as_json:
        screen.put_json({"tasks": [plain(task) for task in found], "pending_count": pending, "retired": retired})
        return
    if not found:
        screen.put("No tasks. Give one with: fencepost task assign TARGET TEXT --acceptance TEXT")
    else:
        screen.put(screen.table(_COLUMNS, [_row(task) for task in found]))
    if pending:
        screen.put(f"You supervise {pending}.")
    if retired:
        screen.put(f"No longer supervised, for you have seen how they ended: {', '.join(retired)}")


_COLUMNS: Final = [
    *(Column(title=title) for title in ("TASK", "STATE")),
    Column(title="REV", right=True),
    *(Column(title=title) for title in ("FOR", "BY", "CHANGED")),
    Column(title="WHAT", text=True),
]


def _row(task: pb.Task) -> list[str]:
    return [
        task.task_id,
        state_word(task),
        str(task.revision),
        person(task, "assignee", nobody="whoever claims it"),
        person(task, "issuer"),
        screen.ago(task.changed_at_ms, int(time.time() * 1000)),
        task.description,
    ]


def show_task(task_id: TaskId, *, as_json: AsJson = False) -> None:
    """Show one task with its texts, attempt, prerequisites and evidence."""

    async def work(services: acting.Services) -> tuple[pb.GetTaskResponse, list[evidence_pb2.Evidence] | None]:
        return await services.tasks.get(task_id), await _evidence(services, task_id)

    shown, evidence = acting.call(acting.as_whoever(), work)
    if as_json:
        listed = None if evidence is None else [plain(one) for one in evidence]
        screen.put_json({**plain(shown), "evidence": listed})
        return
    screen.put("\n".join(task_lines(shown)))
    task = shown.task
    for title, text in (
        ("Description", task.description),
        ("Acceptance", task.acceptance),
        ("Result", task.result),
        ("Evidence", task.evidence),
        ("Failure", task.failure),
        ("Feedback", task.feedback),
    ):
        if text:
            screen.put(title)
            screen.put_body(text)
    if task.evidence_ids:
        screen.put(f"Named with it: {', '.join(map(one_line, task.evidence_ids))}")
    for piece in evidence or ():
        screen.put("\n".join(evidence_lines(piece)))


async def _evidence(services: acting.Services, task_id: str) -> list[evidence_pb2.Evidence] | None:
    """Return what was reported for a task; None where the caller may see the task and not that."""
    found: list[evidence_pb2.Evidence] = []
    ask = evidence_pb2.ListEvidenceRequest(task_id=task_id, page_size=PAGE_ROWS)
    try:
        for _ in range(PAGES_LISTED_MAX):
            page = await services.evidence.list_evidence(ask)
            found.extend(page.evidence)
            if not page.has_more:
                break
            ask.after = found[-1].evidence_id
    except Refused as refused:
        # Who might claim a task of the pool has no part in it yet.
        if refused.may_resend:
            raise
        return None
    return found


async def _events(services: acting.Services, task_id: str, after: int) -> AsyncIterator[pb.TaskEvent]:
    """Yield what happened to a task behind a sequence, all that there is now."""
    more = True
    while more:
        page = await services.tasks.history(pb.GetTaskHistoryRequest(task_id=task_id, after=after, page_size=PAGE_ROWS))
        for event in page.events:
            yield event
            after = event.sequence
        more = page.has_more


def task_history(task_id: TaskId, *, after: After = 0, as_json: AsJson = False) -> None:
    """List everything that happened to a task, in the order in which it was committed."""

    async def work(services: acting.Services) -> list[pb.TaskEvent]:
        return [event async for event in _events(services, task_id, after)]

    found = acting.call(acting.as_whoever(), work)
    if as_json:
        screen.put_json({"events": [plain(event) for event in found]})
        return
    screen.put("\n".join(event_line(task_id, event) for event in found) if found else "Nothing more has happened.")


def watch_tasks(
    task_id: Annotated[
        str | None, typer.Argument(metavar="[TASK]", help="One task; for the operator by default a whole project.")
    ] = None,
    *,
    after: After = 0,
    until_now: Annotated[bool, typer.Option("--until-now", help="End when everything so far is told.")] = False,
    until_settled: Annotated[
        bool, typer.Option("--until-settled", help="End once the task is accepted or has ended.")
    ] = False,
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> None:
    """Follow a task, event by event; or as the operator a project, each change of its newest tasks. Ends by Ctrl-C.

    With --json one document a line. A restart of the mailbox is ridden out: nothing is told twice.
    """
    who = acting.as_whoever()
    if task_id is None:
        if not who.is_operator:
            raise Refused("invalid_arguments", "an agent watches one task: name it; nothing was read")
        if after or until_settled:
            raise Refused("invalid_arguments", "--after and --until-settled are about one task; nothing was read")

    async def work(services: acting.Services) -> None:
        if task_id is None:
            look = _project_look(services, await project_id_of(services, who, project), as_json=as_json)
        else:
            look = _task_look(services, task_id, after, until_settled=until_settled, as_json=as_json)
        await _look_again_and_again(look, once=until_now)

    acting.call(who, work)


Look = Callable[[], Awaitable[bool]]


def _task_look(services: acting.Services, task_id: str, after: int, *, until_settled: bool, as_json: bool) -> Look:
    """Return what tells the events of one task that were not told yet, and whether that was the last."""
    told = after
    state = pb.TASK_STATE_UNSPECIFIED

    async def look() -> bool:
        nonlocal told, state
        async for event in _events(services, task_id, told):
            screen.put(line({"task_id": task_id, **plain(event)}) if as_json else event_line(task_id, event))
            told, state = event.sequence, event.to_state
        return until_settled and state in SETTLED

    return look


def _project_look(services: acting.Services, project_id: str, *, as_json: bool) -> Look:
    """Return what tells the tasks of a project whose version is not the one that was told."""
    versions: dict[str, int] = {}

    async def look() -> bool:
        ask = pb.ListTasksRequest(project_id=project_id, archived=True, page_size=PAGE_ROWS)
        changed = [
            task
            async for page in _pages(services, ask, WATCHED_PAGES_MAX)
            for task in page.tasks
            if versions.get(task.task_id) != task.version
        ]
        for task in sorted(changed, key=lambda task: task.changed_at_ms):
            versions[task.task_id] = task.version
            screen.put(line({"task": plain(task)}) if as_json else _project_line(task))
        return False

    return look


def _project_line(task: pb.Task) -> str:
    who = person(task, "assignee", nobody="in the pool")
    waits = f", waits for: {task.wait_reason}" if task.wait_reason else ""
    shown = f"{state_word(task)}, revision {task.revision}, {who}{waits}"
    return one_line(f"{screen.moment(task.changed_at_ms)}  {task.task_id}  {shown}")


async def _look_again_and_again(look: Look, *, once: bool) -> None:
    """Look until that was the last, or for ever; a service that went away is waited for WATCH_AWAY_MS_MAX."""
    away_since: float | None = None
    while True:
        try:
            if await look() or once:
                return
            away_since = None
        except (NotWritten, Refused) as lost:
            if isinstance(lost, Refused) and not lost.may_resend:
                raise
            away_since = time.monotonic() if away_since is None else away_since
            if time.monotonic() - away_since > WATCH_AWAY_MS_MAX / 1000:
                raise
        await asyncio.sleep(WATCH_POLL_MS / 1000)


def verify_evidence(
    task_id: TaskId,
    evidence_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[EVIDENCE]...", help="evi_ and 32 digits; by default all of it.")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Have evidence looked at in the assignee's checkout, and see what was found. Runs nothing of it."""

    async def work(services: acting.Services) -> list[providers_pb2.CheckedEvidence]:
        wanted = evidence_ids or [piece.evidence_id for piece in await _evidence(services, task_id) or ()]
        found: list[providers_pb2.CheckedEvidence] = []
        for first in range(0, len(wanted), VERIFIED_AT_ONCE_MAX):
            part = wanted[first : first + VERIFIED_AT_ONCE_MAX]
            ask = providers_pb2.VerifyEvidenceRequest(task_id=task_id, evidence_ids=part)
            found.extend((await services.providers.verify_evidence(ask)).evidence)
        return found

    found = acting.call(acting.as_whoever(), work)
    if as_json:
        screen.put_json({"evidence": [plain(one) for one in found]})
        return
    if not found:
        screen.put("No evidence was reported for it.")
    for one in found:
        verdict = enum_word(one.DESCRIPTOR.fields_by_name["verdict"], one.verdict) or "?"
        where = f" in {one_line(one.checkout)}" if one.checkout else ""
        screen.put(f"{one.evidence_id}  {verdict}{where}: {one_line(one.detail)}")
