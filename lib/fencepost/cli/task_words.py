"""How tasks, attempts and changes are told to people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from fencepost.cli import acting, screen
from fencepost.cli.plain import enum_word, one_line
from fencepost.errors import Refused
from fencepost.mailbox.v1 import evidence_pb2
from fencepost.mailbox.v1 import tasks_pb2 as pb

THE_OPERATOR: Final = "the operator"

# An attempt is told while it counts: after a review or an override it is another that begins, or none.
_EXECUTED: Final = frozenset({pb.TASK_STATE_RUNNING, pb.TASK_STATE_CANCEL_REQUESTED, pb.TASK_STATE_SUBMITTED})


def state_word(task: pb.Task | pb.TaskChange) -> str:
    """Return how a task stands: its state, and that nobody knows where that is so."""
    word = enum_word(task.DESCRIPTOR.fields_by_name["state"], task.state) or "?"
    word = word.replace("_", " ")
    if isinstance(task, pb.Task):
        executed = task.state in {pb.TASK_STATE_RUNNING, pb.TASK_STATE_CANCEL_REQUESTED}
        if executed and task.attempt.certainty == pb.ATTEMPT_CERTAINTY_UNKNOWN:
            word += " (unknown)"
        if task.archived:
            word += " (archived)"
    return word


def person(holder: Any, field: str, *, nobody: str = THE_OPERATOR) -> str:
    """Return the name of an agent that a message may hold."""
    if not holder.HasField(field):
        return nobody
    ref = getattr(holder, field)
    return one_line(ref.name) or str(ref.agent_id)


def change_lines(change: pb.TaskChange) -> list[str]:
    """Return what a write did."""
    again = ", by an earlier call with this id" if change.duplicate else ""
    lines = [f"{change.task_id}: {state_word(change)} (revision {change.revision}, version {change.version}){again}."]
    if change.attempt_id and change.state in _EXECUTED:
        lines.append(f"  Attempt {change.attempt_id}")
    if change.state == pb.TASK_STATE_CANCEL_REQUESTED:
        lines.append("  Its assignee was asked to stop; it is cancelled once that is confirmed.")
    return lines


def fenced_line(attempt: pb.Attempt) -> str:
    """Return which execution of whom."""
    certainty = enum_word(attempt.DESCRIPTOR.fields_by_name["certainty"], attempt.certainty) or "?"
    return (
        f"attempt {attempt.attempt_id} of {person(attempt, 'agent')}, generation {attempt.generation}, since"
        f" {screen.moment(attempt.started_at_ms)}, {certainty}"
    )


async def revision_now(services: acting.Services, ask: Any) -> int:
    """Return the revision that a command names, or the task's present one."""
    if ask.revision:
        return int(ask.revision)
    return (await services.tasks.get(ask.task_id)).task.revision


def states_named(words: list[str] | None) -> list[pb.TaskState.ValueType]:
    """Return states by the words that people are shown.

    Raises:
        Refused: there is no such state. Nothing was read.
    """
    known = {name.removeprefix("TASK_STATE_").lower(): number for name, number in pb.TaskState.items() if number}
    found = []
    for word in words or []:
        number = known.get(word.strip().lower().replace(" ", "_").replace("-", "_"))
        if number is None:
            raise Refused("invalid_arguments", f"a state is one of {', '.join(known)}; nothing was read")
        found.append(number)
    return found


def task_lines(shown: pb.GetTaskResponse) -> Iterator[str]:
    """Yield the facts of one task, without its texts."""
    task = shown.task
    yield f"{task.task_id}  {state_word(task)}, revision {task.revision}, version {task.version}"
    if task.HasField("assignee"):
        gone = " (deleted)" if task.assignee_deleted else ""
        done_by = f"for {person(task, 'assignee')}{gone}"
    else:
        names = ", ".join(one_line(ref.name) or ref.agent_id for ref in shown.eligible)
        done_by = f"in the pool, for {names or 'any agent of the project'}"
    yield f"  {done_by}; given by {person(task, 'issuer')}, reviewed by {person(task, 'reviewer')}"
    yield f"  created {screen.moment(task.created_at_ms)}, changed {screen.moment(task.changed_at_ms)}"
    yield from _limit_lines(task)
    if task.HasField("attempt"):
        yield f"  {fenced_line(task.attempt)}"
    if task.HasField("percent") or task.note:
        done = f"{task.percent} %" if task.HasField("percent") else "progress"
        yield f"  {done}: {one_line(task.note)}" if task.note else f"  {done}"
    if task.wait_reason:
        yield f"  waits for: {one_line(task.wait_reason)}"
    for one in shown.dependencies:
        yield f"  after {one.task_id}, which is {state_word(one)}"
    for ref in task.context_refs:
        yield f"  context {one_line(ref.key)}, version {ref.version}"
    if task.commit:
        yield f"  commit {task.commit}"
    if shown.supervised:
        yield "  you supervise it"


def _limit_lines(task: pb.Task) -> Iterator[str]:
    limits = []
    if task.start_deadline_ms:
        limits.append(f"to be started by {screen.moment(task.start_deadline_ms)}")
    if task.execution_timeout_seconds:
        limits.append(f"may be executed for {screen.span(task.execution_timeout_seconds * 1000)}")
    if task.review_timeout_seconds:
        overdue = ", overdue" if task.review_overdue else ""
        limits.append(f"to be reviewed within {screen.span(task.review_timeout_seconds * 1000)}{overdue}")
    if limits:
        yield f"  {'; '.join(limits)}"


def event_line(task_id: str, event: pb.TaskEvent) -> str:
    """Return one thing that happened, on one line."""
    fields = event.DESCRIPTOR.fields_by_name
    action = (enum_word(fields["action"], event.action) or "?").replace("_", " ")
    part = (enum_word(fields["part"], event.part) or "?").replace("_", " ")
    by = f"{person(event, 'agent')} ({part})" if event.HasField("agent") else part
    before = (enum_word(fields["from_state"], event.from_state) or "").replace("_", " ")
    after = (enum_word(fields["to_state"], event.to_state) or "?").replace("_", " ")
    way = after if before in {"", after} else f"{before} -> {after}"
    words = f": {one_line(event.text)}" if event.text else ""
    return f"{screen.moment(event.at_ms)}  {task_id}  {action}: {way}, revision {event.revision}, by {by}{words}"


def evidence_lines(piece: evidence_pb2.Evidence) -> Iterator[str]:
    """Yield what was reported, and apart from that what a check found."""
    yield f"{piece.evidence_id}  {_reported(piece)}, reported by {person(piece, 'reporter')}"
    if piece.note:
        yield f"  {one_line(piece.note)}"
    verdict = enum_word(piece.DESCRIPTOR.fields_by_name["verdict"], piece.verdict)
    if verdict is None:
        yield "  not checked"
        return
    where = f" in {one_line(piece.checkout)}" if piece.checkout else ""
    detail = f": {one_line(piece.detail)}" if piece.detail else ""
    yield f"  {verdict} at {screen.moment(piece.verified_at_ms)}{where}{detail}"


def _reported(piece: evidence_pb2.Evidence) -> str:
    match piece.WhichOneof("descriptor"):
        case "file":
            at = f" at {piece.file.commit}" if piece.file.commit else ""
            return f"file {one_line(piece.file.path)}{at}, sha256 {piece.file.sha256}"
        case "commit":
            return f"commit {piece.commit.commit}"
        case "diff":
            between = f"{piece.diff.base}..{piece.diff.head}"
            return f"diff {one_line(piece.diff.path) if piece.diff.path else between}"
        case "test":
            fields = piece.test.DESCRIPTOR.fields_by_name
            outcome = (enum_word(fields["outcome"], piece.test.outcome) or "?").replace("_", " ")
            code = f", exit code {piece.test.exit_code}" if piece.test.HasField("exit_code") else ""
            return f"test {one_line(piece.test.label)}: {outcome}{code}"
    return "evidence of a kind that this version does not know"
