"""What tasks look like on the wire, and what calls of tasks mean: translate.py's part for tasks.proto."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import grpc

from fencepost.mailbox.v1 import mailbox_pb2 as mailbox_pb
from fencepost.mailbox.v1 import tasks_pb2 as pb
from fencepost_kit.ids import uuid_bytes, uuid_text
from fencepost_kit.refusal import Refusal
from fencepost_mailbox import translate
from fencepost_mailbox.domain.idempotency import KeyVerdict
from fencepost_mailbox.domain.refusals import NotFound
from fencepost_mailbox.domain.tasks import refusals
from fencepost_mailbox.domain.tasks.changes import Words
from fencepost_mailbox.domain.tasks.needs import TASK_PREFIX, check_field, task_id_text
from fencepost_mailbox.domain.tasks.values import (
    Action,
    Attempt,
    ContextRef,
    Integration,
    State,
    Task,
    TaskEvent,
)
from fencepost_mailbox.domain.texts import record_id_text
from fencepost_mailbox.domain.threads.attributes import thread_id_text
from fencepost_mailbox.domain.values import LISTING_BODY_CHARACTERS_MAX, Kind, Record
from fencepost_mailbox.events import Event
from fencepost_mailbox.usecases.tasks import act, create, look, supervise
from fencepost_mailbox.usecases.tasks.callers import Change
from fencepost_mailbox.waits import Wake

STATUS_OF: Final[Mapping[type[Refusal], grpc.StatusCode]] = MappingProxyType(
    {
        **translate.STATUS_OF,
        refusals.InvalidTaskField: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.RequestConflict: grpc.StatusCode.ALREADY_EXISTS,
        refusals.VersionConflict: grpc.StatusCode.ABORTED,
        refusals.StaleRevision: grpc.StatusCode.ABORTED,
        refusals.StaleAttempt: grpc.StatusCode.ABORTED,
        refusals.AlreadyRunning: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.NotNext: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.DeadlinePassed: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.SelfReview: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.DependencyCycle: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.DependencyLimit: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.WorkRunning: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.NotificationsUnread: grpc.StatusCode.FAILED_PRECONDITION,
    }
)

_ID_CHARACTERS: Final = 37
_FATE: Final[Mapping[KeyVerdict | None, pb.RequestFate.ValueType]] = MappingProxyType(
    {
        KeyVerdict.WRITTEN: pb.REQUEST_FATE_WRITTEN,
        KeyVerdict.CANCELLED: pb.REQUEST_FATE_CANCELLED,
        None: pb.REQUEST_FATE_UNKNOWN,
    }
)
_OVERRIDE: Final[Mapping[int, Action]] = MappingProxyType(
    {
        pb.OVERRIDE_RETRY: Action.OVERRIDE_RETRY,
        pb.OVERRIDE_REASSIGN: Action.OVERRIDE_REASSIGN,
        pb.OVERRIDE_CANCEL: Action.OVERRIDE_CANCEL,
    }
)


def task_id_of(text: str) -> bytes:
    """Return the task that a public id names.

    Raises:
        NotFound: it is no id of a task.
    """
    try:
        raw = bytes.fromhex(text.removeprefix(TASK_PREFIX))
    except ValueError:
        raw = b""
    if len(text) != _ID_CHARACTERS or len(raw) != 16 or text != task_id_text(raw):
        raise NotFound(
            "this is not the id of a task; nothing was read or written",
            hint="A task's id is task_ and 32 hexadecimal digits.",
        )
    return raw


def task_ids_of(texts: Sequence[str]) -> tuple[bytes, ...]:
    """Return the tasks that public ids name.

    Raises:
        NotFound: one is no id of a task.
    """
    return tuple(task_id_of(text) for text in texts)


def _refs(refs: Sequence[pb.ContextRef]) -> tuple[ContextRef, ...]:
    return tuple(ContextRef(key=ref.key, version=ref.version) for ref in refs)


def _attempt_id(text: str) -> bytes | None:
    """Return the attempt that is named; one that is malformed is an attempt that no task has."""
    try:
        return uuid_bytes(text) if text else None
    except ValueError:
        return b""


# --- calls ------------------------------------------------------------------------------------------------------------


def assign_command(request: pb.AssignTaskRequest) -> create.Command:
    """Return what AssignTask asks for."""
    return create.Command(
        request_id=uuid_bytes(request.request_id),
        description=request.description,
        acceptance=request.acceptance,
        pool=False,
        target=request.to,
        reviewer=request.reviewer,
        context_refs=_refs(request.context_refs),
        prerequisites=task_ids_of(request.dependencies),
        start_deadline_ms=request.start_deadline_ms,
        execution_timeout_s=request.execution_timeout_seconds,
        review_timeout_s=request.review_timeout_seconds,
        project_id=translate.optional_uuid(request.project_id),
    )


def pool_command(request: pb.CreatePoolTaskRequest) -> create.Command:
    """Return what CreatePoolTask asks for."""
    return create.Command(
        request_id=uuid_bytes(request.request_id),
        description=request.description,
        acceptance=request.acceptance,
        pool=True,
        eligible=tuple(request.eligible),
        reviewer=request.reviewer,
        context_refs=_refs(request.context_refs),
        prerequisites=task_ids_of(request.dependencies),
        start_deadline_ms=request.start_deadline_ms,
        execution_timeout_s=request.execution_timeout_seconds,
        review_timeout_s=request.review_timeout_seconds,
        project_id=translate.optional_uuid(request.project_id),
    )


def claim_command(request: pb.ClaimTaskRequest) -> act.Command:
    """Return what ClaimTask asks for."""
    return act.Command(
        action=Action.CLAIM,
        task_id=task_id_of(request.task_id),
        request_id=uuid_bytes(request.request_id),
        expected_version=request.expected_version,
    )


def start_command(request: pb.StartTaskRequest) -> act.Command:
    """Return what StartTask asks for."""
    return act.Command(
        action=Action.START,
        task_id=task_id_of(request.task_id),
        request_id=uuid_bytes(request.request_id),
        revision=request.revision,
        expected_version=request.expected_version,
    )


def progress_command(request: pb.ProgressTaskRequest) -> act.Command:
    """Return what ProgressTask asks for."""
    return act.Command(
        action=Action.PROGRESS,
        task_id=task_id_of(request.task_id),
        request_id=uuid_bytes(request.request_id),
        revision=request.revision,
        expected_version=request.expected_version,
        attempt_id=_attempt_id(request.attempt_id),
        words=Words(
            text=request.note,
            evidence=request.evidence,
            evidence_ids=tuple(request.evidence_ids),
            wait_reason=request.wait_reason,
            percent=request.percent if request.HasField("percent") else None,
        ),
    )


def submit_command(request: pb.SubmitTaskRequest) -> act.Command:
    """Return what SubmitTask asks for."""
    return act.Command(
        action=Action.SUBMIT,
        task_id=task_id_of(request.task_id),
        request_id=uuid_bytes(request.request_id),
        revision=request.revision,
        expected_version=request.expected_version,
        attempt_id=_attempt_id(request.attempt_id),
        words=Words(text=request.result, evidence=request.evidence, evidence_ids=tuple(request.evidence_ids)),
    )


def review_command(request: pb.ReviewTaskRequest) -> act.Command:
    """Return what ReviewTask asks for."""
    return act.Command(
        action=Action.ACCEPT if request.accepted else Action.REJECT,
        task_id=task_id_of(request.task_id),
        request_id=uuid_bytes(request.request_id),
        revision=request.revision,
        expected_version=request.expected_version,
        words=Words(text=request.feedback),
    )


def integrate_command(request: pb.RecordIntegrationRequest) -> act.Command:
    """Return what RecordIntegration asks for."""
    known = request.integration in (0, *map(int, Integration))
    check_field(holds=known, field="integration", rule="is none that is known")
    return act.Command(
        action=Action.INTEGRATE,
        task_id=task_id_of(request.task_id),
        request_id=uuid_bytes(request.request_id),
        expected_version=request.expected_version,
        words=Words(text=request.note, commit=request.commit),
        integration=Integration(request.integration or Integration.RECORDED),
        coordinator=translate.optional_uuid(request.coordinator_id),
    )


def cancel_command(request: pb.CancelTaskRequest) -> act.Command:
    """Return what CancelTask asks for."""
    return act.Command(
        action=Action.CANCEL,
        task_id=task_id_of(request.task_id),
        request_id=uuid_bytes(request.request_id),
        expected_version=request.expected_version,
        words=Words(text=request.reason),
    )


def finish_cancel_command(request: pb.FinishCancelTaskRequest) -> act.Command:
    """Return what FinishCancelTask asks for."""
    return act.Command(
        action=Action.FINISH_CANCEL,
        task_id=task_id_of(request.task_id),
        request_id=uuid_bytes(request.request_id),
        expected_version=request.expected_version,
        attempt_id=_attempt_id(request.attempt_id),
        words=Words(text=request.note),
    )


def fail_command(request: pb.FailTaskRequest) -> act.Command:
    """Return what FailTask asks for."""
    return act.Command(
        action=Action.FAIL,
        task_id=task_id_of(request.task_id),
        request_id=uuid_bytes(request.request_id),
        revision=request.revision,
        expected_version=request.expected_version,
        attempt_id=_attempt_id(request.attempt_id),
        words=Words(text=request.reason, evidence=request.evidence, evidence_ids=tuple(request.evidence_ids)),
    )


def retry_command(request: pb.RetryTaskRequest) -> act.Command:
    """Return what RetryTask asks for."""
    return act.Command(
        action=Action.RETRY,
        task_id=task_id_of(request.task_id),
        request_id=uuid_bytes(request.request_id),
        expected_version=request.expected_version,
        words=Words(text=request.reason, start_deadline_ms=request.start_deadline_ms),
    )


def reassign_command(request: pb.ReassignTaskRequest) -> act.Command:
    """Return what ReassignTask asks for."""
    return act.Command(
        action=Action.REASSIGN,
        task_id=task_id_of(request.task_id),
        request_id=uuid_bytes(request.request_id),
        expected_version=request.expected_version,
        words=Words(text=request.reason, start_deadline_ms=request.start_deadline_ms),
        target=request.to,
        reviewer=request.reviewer,
    )


def dependencies_command(request: pb.SetTaskDependenciesRequest) -> act.Command:
    """Return what SetTaskDependencies asks for."""
    return act.Command(
        action=Action.SET_DEPENDENCIES,
        task_id=task_id_of(request.task_id),
        request_id=uuid_bytes(request.request_id),
        expected_version=request.expected_version,
        prerequisites=task_ids_of(request.dependencies),
    )


def override_command(request: pb.OverrideTaskRequest) -> act.Command:
    """Return what OverrideTask asks for."""
    action = _OVERRIDE.get(request.override)
    check_field(holds=action is not None, field="override", rule="must be retry, reassign or cancel")
    assert action is not None, "checked"
    return act.Command(
        action=action,
        task_id=task_id_of(request.task_id),
        request_id=uuid_bytes(request.request_id),
        expected_version=request.expected_version,
        words=Words(text=request.risk),
        target=request.to,
    )


def archive_command(request: pb.ArchiveTaskRequest) -> act.Command:
    """Return what ArchiveTask asks for."""
    return act.Command(
        action=Action.ARCHIVE,
        task_id=task_id_of(request.task_id),
        request_id=uuid_bytes(request.request_id),
        expected_version=request.expected_version,
    )


def list_asked(request: pb.ListTasksRequest) -> look.Asked:
    """Return which tasks ListTasks asks for."""
    known = all(int(state) in tuple(State) for state in request.states)
    check_field(holds=known, field="states", rule="names a state that there is not")
    return look.Asked(
        states=frozenset(State(state) for state in request.states),
        assignee=request.assignee,
        archived=request.archived,
        size=request.page_size,
        token=request.page_token,
        project_id=translate.optional_uuid(request.project_id),
    )


# --- answers ----------------------------------------------------------------------------------------------------------


def change(made: Change) -> pb.TaskChange:
    """Return what a write did."""
    return _change(made.event, duplicate=made.duplicate)


def _change(event: TaskEvent, *, duplicate: bool) -> pb.TaskChange:
    return pb.TaskChange(
        task_id=task_id_text(event.task_id),
        state=pb.TaskState.ValueType(event.to_state),
        revision=event.revision,
        version=event.version,
        attempt_id=uuid_text(event.attempt_id) if event.attempt_id is not None else "",
        at_ms=event.at_ms,
        sequence=event.sequence,
        duplicate=duplicate,
    )


def fate_response(verdict: KeyVerdict | None, event: TaskEvent | None) -> pb.SettleTaskRequestResponse:
    """Return what became of a request id."""
    told = _change(event, duplicate=True) if event is not None else None
    return pb.SettleTaskRequestResponse(fate=_FATE[verdict], change=told)


def listed_task(task: Task, names: translate.Namer) -> pb.Task:
    """Return a task as it stands in a list: its description cut, its long texts left out."""
    return pb.Task(
        task_id=task_id_text(task.task_id),
        project_id=uuid_text(task.project_id),
        issuer=names.ref(task.issuer),
        assignee=names.ref(task.assignee),
        reviewer=names.ref(task.reviewer),
        pool=task.pool,
        state=pb.TaskState.ValueType(task.state),
        revision=task.revision,
        version=task.version,
        description=task.description[:LISTING_BODY_CHARACTERS_MAX],
        context_refs=[pb.ContextRef(key=ref.key, version=ref.version) for ref in task.context_refs],
        created_at_ms=task.created_at_ms,
        changed_at_ms=task.changed_at_ms,
        start_deadline_ms=task.start_deadline_ms,
        execution_timeout_seconds=task.execution_timeout_s,
        review_timeout_seconds=task.review_timeout_s,
        review_overdue=task.overdue,
        archived=task.archived,
        assignee_deleted=task.orphan,
        attempt=_known_attempt(task),
        percent=task.percent,
        note=task.note[:LISTING_BODY_CHARACTERS_MAX],
        wait_reason=task.wait_reason[:LISTING_BODY_CHARACTERS_MAX],
        failure=task.failure[:LISTING_BODY_CHARACTERS_MAX],
        commit=task.commit,
        queue_position=task.queue_position,
    )


def _known_attempt(task: Task) -> pb.Attempt | None:
    """Return what a task itself says of its attempt."""
    if task.attempt_id is None:
        return None
    return pb.Attempt(
        attempt_id=uuid_text(task.attempt_id),
        revision=task.revision,
        certainty=pb.AttemptCertainty.ValueType(task.certainty),
    )


def _attempt(attempt: Attempt, names: translate.Namer) -> pb.Attempt:
    return pb.Attempt(
        attempt_id=uuid_text(attempt.attempt_id),
        revision=attempt.revision,
        agent=names.ref(attempt.agent),
        generation=attempt.generation,
        started_at_ms=attempt.started_at_ms,
        finished_at_ms=attempt.finished_at_ms,
        certainty=pb.AttemptCertainty.ValueType(attempt.certainty),
        outcome=pb.AttemptOutcome.ValueType(attempt.outcome),
    )


def whole_task(task: Task, attempt: Attempt | None, names: translate.Namer) -> pb.Task:
    """Return a task with all its texts."""
    shown = listed_task(task, names)
    shown.description = task.description
    shown.acceptance = task.acceptance
    shown.note = task.note
    shown.wait_reason = task.wait_reason
    shown.failure = task.failure
    shown.result = task.result
    shown.evidence = task.evidence
    shown.evidence_ids.extend(task.evidence_ids)
    shown.feedback = task.feedback
    if attempt is not None:
        shown.attempt.CopyFrom(_attempt(attempt, names))
    return shown


def list_response(listing: look.Listing, names: translate.Namer) -> pb.ListTasksResponse:
    """Return a page of tasks."""
    return pb.ListTasksResponse(
        tasks=[listed_task(task, names) for task in listing.tasks],
        next_page_token=listing.next_token,
        pending_count=listing.pending,
        retired=[task_id_text(one) for one in listing.retired],
    )


def get_response(shown: look.Shown, names: translate.Namer) -> pb.GetTaskResponse:
    """Return one task with what belongs to it."""
    return pb.GetTaskResponse(
        task=whole_task(shown.task, shown.attempt, names),
        dependencies=[
            listed_task(task, names)
            if seen
            else pb.Task(task_id=task_id_text(task.task_id), state=pb.TaskState.ValueType(task.state))
            for task, seen in shown.prerequisites
        ],
        eligible=[ref for agent in sorted(shown.eligible) if (ref := names.ref(agent)) is not None],
        supervised=shown.supervised,
    )


def _event(event: TaskEvent, names: translate.Namer) -> pb.TaskEvent:
    return pb.TaskEvent(
        sequence=event.sequence,
        action=pb.TaskAction.ValueType(event.action),
        part=pb.TaskPart.ValueType(event.part),
        agent=names.ref(event.agent),
        generation=event.generation,
        from_state=pb.TaskState.ValueType(event.from_state),
        to_state=pb.TaskState.ValueType(event.to_state),
        revision=event.revision,
        version=event.version,
        attempt_id=uuid_text(event.attempt_id) if event.attempt_id is not None else "",
        at_ms=event.at_ms,
        text=event.text,
        evidence=event.evidence,
        evidence_ids=event.evidence_ids,
        facts=event.facts,
    )


def event_response(event: Event, names: translate.Namer) -> mailbox_pb.WatchEventsResponse:
    """Return what became true of a record or happened to a task, or the mark that everything so far is told."""
    if event.record is not None:
        return translate.record_event(event.record, event.fact, event.position, names)
    if event.task is not None and event.happened is not None:
        return mailbox_pb.WatchEventsResponse(
            task_event=_event(event.happened, names), task=listed_task(event.task, names), position=event.position
        )
    return mailbox_pb.WatchEventsResponse(caught_up=True, position=event.position)


def history_response(history: look.History, names: translate.Namer) -> pb.GetTaskHistoryResponse:
    """Return a page of history."""
    return pb.GetTaskHistoryResponse(events=[_event(event, names) for event in history.events], has_more=history.more)


def _notification(told: supervise.Told, names: translate.Namer) -> pb.Notification:
    return pb.Notification(
        sequence=told.notification.sequence,
        kind=pb.NotificationKind.ValueType(told.notification.notice),
        task=listed_task(told.task, names),
        at_ms=told.notification.at_ms,
    )


def _head(record: Record, names: translate.Namer, *, text: str) -> pb.MessageHead:
    given = record.attributes
    return pb.MessageHead(
        record_id=record_id_text(record.kind, record.record_id),
        sender=names.ref(record.sender),
        recipient=names.ref(record.recipient),
        subject=given.subject if given is not None else "",
        thread_id=thread_id_text(given.thread) if given is not None else "",
        text=text,
        admitted_at_ms=record.admitted_at_ms,
    )


def _messages(unread: supervise.Unread, names: translate.Namer) -> pb.Notification:
    return pb.Notification(
        sequence=unread.oldest.position,
        kind=pb.NOTIFICATION_KIND_MESSAGES,
        message=_head(unread.oldest, names, text=""),
        messages=unread.count,
        at_ms=unread.oldest.admitted_at_ms,
    )


def _given(given: supervise.Given, names: translate.Namer) -> pb.Notification | None:
    if given.told is not None:
        return _notification(given.told, names)
    return _messages(given.unread, names) if given.unread is not None else None


def given_response(given: supervise.Given, names: translate.Namer) -> pb.WaitNotificationResponse:
    """Return what a wait was given."""
    return pb.WaitNotificationResponse(
        notification=_given(given, names),
        has_more=given.more,
        timed_out=given.wake is Wake.TIMED_OUT,
        wake_reason=given.wake.value if given.wake is Wake.DRAINING else "",
    )


def notifications_response(
    told: Sequence[supervise.Told], names: translate.Namer, *, more: bool
) -> pb.ListNotificationsResponse:
    """Return a page of notifications."""
    return pb.ListNotificationsResponse(notifications=[_notification(one, names) for one in told], has_more=more)


def _entry(entry: supervise.Entry, names: translate.Namer) -> pb.SupervisionEntry:
    shown, request = pb.SupervisionEntry(), entry.request
    shown.enrolled_at_ms, shown.age_ms, shown.settled = entry.supervised.at_ms, entry.age_ms, entry.settled
    if entry.task is not None:
        shown.task.CopyFrom(listed_task(entry.task, names))
        return shown
    shown.request_id = record_id_text(Kind.REQUEST, entry.supervised.task_id)
    if request is not None:
        shown.message.CopyFrom(_head(request, names, text=translate.beginning(request.body)))
    if entry.reply_id is not None:
        shown.reply_id = record_id_text(Kind.REPLY, entry.reply_id)
    return shown


def supervision_response(
    entries: Sequence[supervise.Entry], token: str, pending: int, names: translate.Namer
) -> pb.ListSupervisionResponse:
    """Return a page of what is supervised."""
    return pb.ListSupervisionResponse(
        entries=[_entry(entry, names) for entry in entries],
        next_page_token=token,
        pending_count=pending,
    )


def acknowledged_response(retired: Sequence[bytes], pending: int) -> pb.AcknowledgeOutcomesResponse:
    """Return what left a set."""
    return pb.AcknowledgeOutcomesResponse(retired=[task_id_text(one) for one in retired], pending_count=pending)
