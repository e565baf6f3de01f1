"""`fencepost task`: who gave which work to whom, how far it has come, and what a person decides about it.

A command acts as the agent that the environment names, else as the operator; what either may do the mailbox decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from fencepost.cli import acting, screen
from fencepost.cli.contexts import RequestId, read_text, request_id_or_new
from fencepost.cli.moments import StartBy, start_deadline
from fencepost.cli.options import AsJson, FromFile, Stdin, Target, Text
from fencepost.cli.plain import one_line, plain
from fencepost.cli.scope import ProjectOption, project_id_of
from fencepost.cli.task_words import change_lines, fenced_line, revision_now
from fencepost.errors import Refused
from fencepost.mailbox.v1 import tasks_pb2 as pb
from fencepost.providers.v1 import providers_pb2

tasks = typer.Typer(help="Give work, do it, review it, and see how far it is.", no_args_is_help=True)

TaskId = Annotated[str, typer.Argument(metavar="TASK", help="task_ and 32 digits.")]
ExpectedVersion = Annotated[
    int, typer.Option("--expected-version", metavar="N", min=0, help="Refuse unless that is the task's version.")
]
Revision = Annotated[
    int | None,
    typer.Option("--revision", metavar="N", min=1, help="The revision that you saw; by default the present one."),
]
AttemptId = Annotated[
    str, typer.Option("--attempt", metavar="UUID", help="The attempt; by default the present one of yours.")
]
Acceptance = Annotated[str | None, typer.Option("--acceptance", metavar="TEXT", help="How it will be judged.")]
AcceptanceFile = Annotated[
    Path | None, typer.Option("--acceptance-file", metavar="PATH", help="Read that from a file instead.")
]
Evidence = Annotated[str | None, typer.Option("--evidence", metavar="TEXT", help="What shows it.")]
EvidenceFile = Annotated[
    Path | None, typer.Option("--evidence-file", metavar="PATH", help="Read that from a file instead.")
]
EvidenceIds = Annotated[
    list[str] | None, typer.Option("--evidence-id", metavar="ID", help="A descriptor of evidence. May be repeated.")
]
DependsOn = Annotated[
    list[str] | None,
    typer.Option("--depends-on", metavar="TASK", help="A task that must be accepted first. May be repeated."),
]
Contexts = Annotated[
    list[str] | None,
    typer.Option(
        "--context", metavar="KEY[@N]", help="A shared context that belongs to it, as it is or as version N. Repeated."
    ),
]
Reviewer = Annotated[str, typer.Option("--reviewer", metavar="TARGET", help="Who reviews it; by default who gave it.")]
ExecutionLimit = Annotated[
    int, typer.Option("--execution-timeout-s", metavar="S", min=0, help="How long it may be executed; 0: no limit.")
]
ReviewLimit = Annotated[
    int, typer.Option("--review-timeout-s", metavar="S", min=0, help="After that its review is overdue; 0: never.")
]

VERSION_DIGITS_MAX: Final = 18


def _context_refs(named: list[str] | None) -> list[pb.ContextRef]:
    """Return contexts as they are referred to: KEY, or KEY@N for one version."""
    refs = []
    for text in named or []:
        key, at, version = text.rpartition("@")
        pinned = bool(at) and version.isascii() and version.isdigit() and len(version) <= VERSION_DIGITS_MAX
        refs.append(pb.ContextRef(key=key, version=int(version)) if pinned else pb.ContextRef(key=text))
    return refs


def _one_of(name: str, text: str | None, file: Path | None, *, required: bool) -> str:
    """Return a text that an option gives, or the file that its twin names."""
    if text is not None and file is not None:
        raise Refused("invalid_arguments", f"give --{name} or --{name}-file, not both; nothing was sent")
    if file is not None:
        return read_text(None, stdin=False, file=file)
    if text is None and required:
        raise Refused("invalid_arguments", f"--{name} or --{name}-file is missing; nothing was sent")
    return text or ""


def _some_text(text: str | None, *, stdin: bool, file: Path | None) -> str:
    """Return the text of a command that may go without one."""
    return read_text(text, stdin=stdin, file=file) if text is not None or stdin or file is not None else ""


Call = Callable[[acting.Services], Awaitable[Any]]


def _act(who: acting.Acting, ask: Any, call: Call, *, as_json: bool) -> None:
    """Make a write and tell what it did."""
    answer = acting.call(who, call)
    if as_json:
        screen.put_json({**plain(answer), "request_id": ask.request_id})
        return
    screen.put("\n".join(change_lines(answer.change)))


def _checked(revision: int | None, request_id: str | None) -> int:
    """Return the revision that was named, or 0 for the present one.

    A command that may be repeated must name it: the present one may be another by then.
    """
    if revision is None and request_id is not None:
        raise Refused(
            "invalid_arguments", "with --request-id name --revision as well, so that it stays; nothing was sent"
        )
    return revision or 0


@tasks.command("assign")
def assign(
    target: Target,
    text: Text = None,
    *,
    stdin: Stdin = False,
    file: FromFile = None,
    acceptance: Acceptance = None,
    acceptance_file: AcceptanceFile = None,
    reviewer: Reviewer = "",
    depends_on: DependsOn = None,
    context: Contexts = None,
    start_by: StartBy = None,
    execution_timeout_s: ExecutionLimit = 0,
    review_timeout_s: ReviewLimit = 0,
    project: ProjectOption = None,
    request_id: RequestId = None,
    as_json: AsJson = False,
) -> None:
    """Give work to an agent: it joins the end of that agent's queue, or waits for what must be accepted first."""
    who = acting.as_whoever()
    ask = pb.AssignTaskRequest(
        to=target,
        description=read_text(text, stdin=stdin, file=file),
        acceptance=_one_of("acceptance", acceptance, acceptance_file, required=True),
        reviewer=reviewer,
        dependencies=depends_on or [],
        context_refs=_context_refs(context),
        start_deadline_ms=start_deadline(start_by, request_id),
        execution_timeout_seconds=execution_timeout_s,
        review_timeout_seconds=review_timeout_s,
        request_id=request_id_or_new(request_id),
    )

    async def work(services: acting.Services) -> pb.AssignTaskResponse:
        ask.project_id = await project_id_of(services, who, project)
        return await services.tasks.assign(ask)

    _act(who, ask, work, as_json=as_json)


@tasks.command("pool")
def pool(
    text: Text = None,
    *,
    stdin: Stdin = False,
    file: FromFile = None,
    acceptance: Acceptance = None,
    acceptance_file: AcceptanceFile = None,
    eligible: Annotated[
        list[str] | None,
        typer.Option("--eligible", metavar="TARGET", help="Who may claim it; by default anybody. May be repeated."),
    ] = None,
    reviewer: Reviewer = "",
    depends_on: DependsOn = None,
    context: Contexts = None,
    start_by: StartBy = None,
    execution_timeout_s: ExecutionLimit = 0,
    review_timeout_s: ReviewLimit = 0,
    project: ProjectOption = None,
    request_id: RequestId = None,
    as_json: AsJson = False,
) -> None:
    """Offer work to whichever agent claims it first."""
    who = acting.as_whoever()
    ask = pb.CreatePoolTaskRequest(
        description=read_text(text, stdin=stdin, file=file),
        acceptance=_one_of("acceptance", acceptance, acceptance_file, required=True),
        eligible=eligible or [],
        reviewer=reviewer,
        dependencies=depends_on or [],
        context_refs=_context_refs(context),
        start_deadline_ms=start_deadline(start_by, request_id),
        execution_timeout_seconds=execution_timeout_s,
        review_timeout_seconds=review_timeout_s,
        request_id=request_id_or_new(request_id),
    )

    async def work(services: acting.Services) -> pb.CreatePoolTaskResponse:
        ask.project_id = await project_id_of(services, who, project)
        return await services.tasks.create_pool(ask)

    _act(who, ask, work, as_json=as_json)


@tasks.command("claim")
def claim(
    task_id: TaskId, *, expected: ExpectedVersion = 0, request_id: RequestId = None, as_json: AsJson = False
) -> None:
    """Take a task from the pool and start it, as an agent. One claimer wins."""
    ask = pb.ClaimTaskRequest(task_id=task_id, expected_version=expected, request_id=request_id_or_new(request_id))
    _act(acting.as_agent(), ask, lambda services: services.tasks.claim(ask), as_json=as_json)


@tasks.command("start")
def start(
    task_id: TaskId,
    *,
    revision: Revision = None,
    expected: ExpectedVersion = 0,
    request_id: RequestId = None,
    as_json: AsJson = False,
) -> None:
    """Start the first startable task of your queue, or go on with what an earlier life of yours was doing."""
    ask = pb.StartTaskRequest(
        task_id=task_id,
        revision=_checked(revision, request_id),
        expected_version=expected,
        request_id=request_id_or_new(request_id),
    )

    async def work(services: acting.Services) -> pb.StartTaskResponse:
        ask.revision = await revision_now(services, ask)
        return await services.tasks.start(ask)

    _act(acting.as_agent(), ask, work, as_json=as_json)


@tasks.command("progress")
def progress(
    task_id: TaskId,
    text: Text = None,
    *,
    stdin: Stdin = False,
    file: FromFile = None,
    percent: Annotated[
        int | None, typer.Option("--percent", metavar="N", min=0, max=100, help="How much is done: 0 to 100.")
    ] = None,
    wait_reason: Annotated[
        str, typer.Option("--wait-reason", metavar="TEXT", help="What it waits for; without it: for nothing.")
    ] = "",
    evidence: Evidence = None,
    evidence_file: EvidenceFile = None,
    evidence_ids: EvidenceIds = None,
    attempt: AttemptId = "",
    revision: Revision = None,
    expected: ExpectedVersion = 0,
    request_id: RequestId = None,
    as_json: AsJson = False,
) -> None:
    """Note how far your running work has come, or what it waits for."""
    ask = pb.ProgressTaskRequest(
        task_id=task_id,
        revision=_checked(revision, request_id),
        attempt_id=attempt,
        note=_some_text(text, stdin=stdin, file=file),
        wait_reason=wait_reason,
        percent=percent,
        evidence=_one_of("evidence", evidence, evidence_file, required=False),
        evidence_ids=evidence_ids or [],
        expected_version=expected,
        request_id=request_id_or_new(request_id),
    )

    async def work(services: acting.Services) -> pb.ProgressTaskResponse:
        ask.revision = await revision_now(services, ask)
        return await services.tasks.progress(ask)

    _act(acting.as_agent(), ask, work, as_json=as_json)


@tasks.command("submit")
def submit(
    task_id: TaskId,
    text: Text = None,
    *,
    stdin: Stdin = False,
    file: FromFile = None,
    evidence: Evidence = None,
    evidence_file: EvidenceFile = None,
    evidence_ids: EvidenceIds = None,
    attempt: AttemptId = "",
    revision: Revision = None,
    expected: ExpectedVersion = 0,
    request_id: RequestId = None,
    as_json: AsJson = False,
) -> None:
    """Submit finished work for review, with what was done and what shows it."""
    ask = pb.SubmitTaskRequest(
        task_id=task_id,
        revision=_checked(revision, request_id),
        attempt_id=attempt,
        result=read_text(text, stdin=stdin, file=file),
        evidence=_one_of("evidence", evidence, evidence_file, required=True),
        evidence_ids=evidence_ids or [],
        expected_version=expected,
        request_id=request_id_or_new(request_id),
    )

    async def work(services: acting.Services) -> pb.SubmitTaskResponse:
        ask.revision = await revision_now(services, ask)
        return await services.tasks.submit(ask)

    _act(acting.as_agent(), ask, work, as_json=as_json)


@tasks.command("review")
def review(
    task_id: TaskId,
    text: Text = None,
    *,
    accepted: Annotated[
        bool | None, typer.Option("--accept/--reject", help="It is good; or it goes back, with what is missing.")
    ] = None,
    stdin: Stdin = False,
    file: FromFile = None,
    revision: Revision = None,
    expected: ExpectedVersion = 0,
    request_id: RequestId = None,
    as_json: AsJson = False,
) -> None:
    """Accept submitted work, or send it back with what is missing."""
    if accepted is None:
        raise Refused("invalid_arguments", "say --accept or --reject; nothing was sent")
    ask = pb.ReviewTaskRequest(
        task_id=task_id,
        revision=_checked(revision, request_id),
        accepted=accepted,
        feedback=_some_text(text, stdin=stdin, file=file),
        expected_version=expected,
        request_id=request_id_or_new(request_id),
    )

    async def work(services: acting.Services) -> pb.ReviewTaskResponse:
        ask.revision = await revision_now(services, ask)
        return await services.tasks.review(ask)

    _act(acting.as_whoever(), ask, work, as_json=as_json)


@tasks.command("integrate")
def integrate(
    task_id: TaskId,
    text: Text = None,
    *,
    stdin: Stdin = False,
    file: FromFile = None,
    commit: Annotated[
        str, typer.Option("--commit", metavar="HASH", help="The commit's full id; without one it is recorded only.")
    ] = "",
    record_only: Annotated[
        bool, typer.Option("--record-only", help="Somebody has merged it already: touch no repository.")
    ] = False,
    expected: ExpectedVersion = 0,
    request_id: RequestId = None,
    as_json: AsJson = False,
) -> None:
    """Bring the commit of accepted work into the main checkout, all or nothing, and record that; as a coordinator."""
    who = acting.as_agent()
    common: dict[str, Any] = {
        "task_id": task_id,
        "commit": commit,
        "note": _some_text(text, stdin=stdin, file=file),
        "expected_version": expected,
        "request_id": request_id_or_new(request_id),
    }
    if record_only:
        record = pb.RecordIntegrationRequest(**common, integration=pb.INTEGRATION_RECORDED)
        _act(who, record, lambda services: services.tasks.record_integration(record), as_json=as_json)
        return
    ask = providers_pb2.IntegrateTaskRequest(**common)
    done = acting.call(who, lambda services: services.providers.integrate_task(ask))
    if as_json:
        screen.put_json({**plain(done), "request_id": ask.request_id})
        return
    again = ", by an earlier call with this id" if done.duplicate else ""
    screen.put(f"{done.task_id}: integrated (revision {done.revision}, version {done.version}){again}.")
    if done.branch:
        screen.put(f"  {one_line(done.branch)} is at {done.head}")
    if done.detail:
        screen.put(f"  {one_line(done.detail)}")


@tasks.command("cancel")
def cancel(
    task_id: TaskId,
    text: Text = None,
    *,
    stdin: Stdin = False,
    file: FromFile = None,
    expected: ExpectedVersion = 0,
    request_id: RequestId = None,
    as_json: AsJson = False,
) -> None:
    """Cancel work; where it is executed, its assignee is asked to stop and has to confirm that."""
    ask = pb.CancelTaskRequest(
        task_id=task_id,
        reason=_some_text(text, stdin=stdin, file=file),
        expected_version=expected,
        request_id=request_id_or_new(request_id),
    )
    _act(acting.as_whoever(), ask, lambda services: services.tasks.cancel(ask), as_json=as_json)


@tasks.command("finish-cancel")
def finish_cancel(
    task_id: TaskId,
    text: Text = None,
    *,
    stdin: Stdin = False,
    file: FromFile = None,
    attempt: AttemptId = "",
    expected: ExpectedVersion = 0,
    request_id: RequestId = None,
    as_json: AsJson = False,
) -> None:
    """Confirm that work of yours which was cancelled has stopped, and what it left behind."""
    ask = pb.FinishCancelTaskRequest(
        task_id=task_id,
        attempt_id=attempt,
        note=_some_text(text, stdin=stdin, file=file),
        expected_version=expected,
        request_id=request_id_or_new(request_id),
    )
    _act(acting.as_agent(), ask, lambda services: services.tasks.finish_cancel(ask), as_json=as_json)


@tasks.command("fail")
def fail(
    task_id: TaskId,
    text: Text = None,
    *,
    stdin: Stdin = False,
    file: FromFile = None,
    evidence: Evidence = None,
    evidence_file: EvidenceFile = None,
    evidence_ids: EvidenceIds = None,
    attempt: AttemptId = "",
    revision: Revision = None,
    expected: ExpectedVersion = 0,
    request_id: RequestId = None,
    as_json: AsJson = False,
) -> None:
    """Report that work of yours failed, and why."""
    ask = pb.FailTaskRequest(
        task_id=task_id,
        revision=revision or 0,
        attempt_id=attempt,
        reason=read_text(text, stdin=stdin, file=file),
        evidence=_one_of("evidence", evidence, evidence_file, required=False),
        evidence_ids=evidence_ids or [],
        expected_version=expected,
        request_id=request_id_or_new(request_id),
    )
    _act(acting.as_agent(), ask, lambda services: services.tasks.fail(ask), as_json=as_json)


@tasks.command("retry")
def retry(
    task_id: TaskId,
    text: Text = None,
    *,
    stdin: Stdin = False,
    file: FromFile = None,
    start_by: StartBy = None,
    expected: ExpectedVersion = 0,
    request_id: RequestId = None,
    as_json: AsJson = False,
) -> None:
    """Queue failed, expired or cancelled work again, for the same agent or pool."""
    ask = pb.RetryTaskRequest(
        task_id=task_id,
        reason=_some_text(text, stdin=stdin, file=file),
        start_deadline_ms=start_deadline(start_by, request_id),
        expected_version=expected,
        request_id=request_id_or_new(request_id),
    )
    _act(acting.as_whoever(), ask, lambda services: services.tasks.retry(ask), as_json=as_json)


@tasks.command("reassign")
def reassign(
    task_id: TaskId,
    target: Target,
    text: Text = None,
    *,
    stdin: Stdin = False,
    file: FromFile = None,
    reviewer: Annotated[
        str, typer.Option("--reviewer", metavar="TARGET", help="Another reviewer; by default as before.")
    ] = "",
    start_by: StartBy = None,
    expected: ExpectedVersion = 0,
    request_id: RequestId = None,
    as_json: AsJson = False,
) -> None:
    """Give work that nobody executes to another agent."""
    ask = pb.ReassignTaskRequest(
        task_id=task_id,
        to=target,
        reviewer=reviewer,
        reason=_some_text(text, stdin=stdin, file=file),
        start_deadline_ms=start_deadline(start_by, request_id),
        expected_version=expected,
        request_id=request_id_or_new(request_id),
    )
    _act(acting.as_whoever(), ask, lambda services: services.tasks.reassign(ask), as_json=as_json)


@tasks.command("depend")
def depend(
    task_id: TaskId,
    *,
    depends_on: DependsOn = None,
    none: Annotated[bool, typer.Option("--none", help="It waits for nothing any more.")] = False,
    expected: ExpectedVersion = 0,
    request_id: RequestId = None,
    as_json: AsJson = False,
) -> None:
    """Replace what must be accepted before a task that was not started may be."""
    if bool(depends_on) == none:
        raise Refused("invalid_arguments", "give --depends-on TASK, all of them, or --none; nothing was sent")
    ask = pb.SetTaskDependenciesRequest(
        task_id=task_id,
        dependencies=depends_on or [],
        expected_version=expected,
        request_id=request_id_or_new(request_id),
    )
    _act(acting.as_whoever(), ask, lambda services: services.tasks.set_dependencies(ask), as_json=as_json)


@tasks.command("archive")
def archive(
    task_id: TaskId, *, expected: ExpectedVersion = 0, request_id: RequestId = None, as_json: AsJson = False
) -> None:
    """Put a task away whose outcome is settled; nothing changes it afterwards."""
    ask = pb.ArchiveTaskRequest(task_id=task_id, expected_version=expected, request_id=request_id_or_new(request_id))
    _act(acting.as_whoever(), ask, lambda services: services.tasks.archive(ask), as_json=as_json)


# What the operator states about the execution that is to be fenced; it begins the words that the history keeps.
ASSERTED_STOPPED: Final = "The operator states that the previous execution has stopped."
ASSERTED_UNKNOWN: Final = "The operator does not know whether the previous execution has stopped."


@tasks.command("override")
def override(
    task_id: TaskId,
    text: Text = None,
    *,
    stdin: Stdin = False,
    file: FromFile = None,
    retry_it: Annotated[bool, typer.Option("--retry", help="Queue it again for the same agent.")] = False,
    reassign_to: Annotated[
        str | None, typer.Option("--reassign", metavar="TARGET", help="Give it to another agent.")
    ] = None,
    cancel_it: Annotated[bool, typer.Option("--cancel", help="Give it up.")] = False,
    stopped: Annotated[
        bool | None,
        typer.Option(
            "--previous-stopped/--previous-unknown",
            help="You know that the old execution has stopped; or you do not, and take the risk. Kept in the history.",
        ),
    ] = None,
    expected: ExpectedVersion = 0,
    request_id: RequestId = None,
    as_json: AsJson = False,
) -> None:
    """Decide as the operator about work of which it is not known whether it still runs.

    The text says what may happen if the old execution goes on. Without --previous-... it only says what it would do.
    """
    who = acting.as_operator()
    if retry_it + (reassign_to is not None) + cancel_it != 1:
        raise Refused("invalid_arguments", "say one of --retry, --reassign TARGET and --cancel; nothing was sent")
    if stopped is not None and text is None and not stdin and file is None:
        raise Refused(
            "invalid_arguments",
            "an override wants a text that stays in the history; nothing was sent",
            hint="Say how you know that it has stopped, or with --previous-unknown what may happen if it has not.",
        )
    asserted = ASSERTED_STOPPED if stopped else ASSERTED_UNKNOWN
    ask = pb.OverrideTaskRequest(
        task_id=task_id,
        override=pb.OVERRIDE_RETRY if retry_it else pb.OVERRIDE_CANCEL if cancel_it else pb.OVERRIDE_REASSIGN,
        to=reassign_to or "",
        risk="" if stopped is None else f"{asserted} {read_text(text, stdin=stdin, file=file)}",
        expected_version=expected,
        request_id=request_id_or_new(request_id),
    )

    async def work(services: acting.Services) -> tuple[pb.Attempt | None, pb.OverrideTaskResponse]:
        task = (await services.tasks.get(task_id)).task
        attempt = task.attempt if task.HasField("attempt") else None
        if stopped is None:
            raise _unconfirmed(task_id, attempt)
        answer = await services.tasks.override(ask)
        fenced = attempt is not None and attempt.attempt_id == answer.change.attempt_id
        return (attempt if fenced else None), answer

    attempt, answer = acting.call(who, work)
    if as_json:
        fenced = None if attempt is None else plain(attempt)
        screen.put_json({**plain(answer), "fenced": fenced, "request_id": ask.request_id})
        return
    lines = change_lines(answer.change)
    screen.put("\n".join([*lines, *([] if attempt is None else [f"  Fenced: {fenced_line(attempt)}"])]))


def _unconfirmed(task_id: str, attempt: pb.Attempt | None) -> Refused:
    which = "no execution is known" if attempt is None else fenced_line(attempt)
    return Refused(
        "confirmation_missing",
        f"this would fence the execution of {one_line(task_id)}: {which}. If that program still runs, it goes on beside"
        " whatever follows; nothing was done",
        hint="See whether it has stopped, then say --previous-stopped, or --previous-unknown and the risk in words.",
    )
