"""Every call of supervised tasks over a real socket: what it answers, who may make it, and how it refuses."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Awaitable
from typing import Any

import grpc
import pytest

from fencepost.common.v1 import common_pb2 as common
from fencepost.mailbox.v1 import context_pb2, evidence_pb2, mailbox_pb2
from fencepost.mailbox.v1 import tasks_pb2 as pb
from fencepost_kit.identity import Role
from fencepost_mailbox import task_translate
from fencepost_mailbox.domain.tasks import values
from fencepost_mailbox.domain.values import LISTING_BODY_CHARACTERS_MAX, MIRROR_AGE_MS_MAX
from fencepost_mailbox.task_servicer import RULES
from fencepost_testing.mailboxes import PROJECT, until
from fencepost_testing.served_mailbox import TASK_DESCRIPTOR, Refusal, ServedMailbox, uuid_of

S = grpc.StatusCode
PROJECT_ID = str(uuid.UUID(bytes=PROJECT))
AGENTS = {Role.AGENT, Role.COORDINATOR}
ISSUERS = AGENTS | {Role.OPERATOR}
# Written out again from the contract's comments: the rules in the code must equal it.
MAY = {
    "AssignTask": ISSUERS,
    "CreatePoolTask": ISSUERS,
    "ClaimTask": AGENTS,
    "StartTask": AGENTS,
    "ProgressTask": AGENTS,
    "SubmitTask": AGENTS,
    "ReviewTask": ISSUERS,
    "RecordIntegration": {Role.COORDINATOR, Role.SERVICE},
    "CancelTask": ISSUERS,
    "FinishCancelTask": AGENTS | {Role.SERVICE},
    "FailTask": AGENTS,
    "RetryTask": ISSUERS,
    "ReassignTask": ISSUERS,
    "SetTaskDependencies": ISSUERS,
    "OverrideTask": {Role.OPERATOR},
    "ArchiveTask": ISSUERS,
    "SettleTaskRequest": set(Role),
    "ListTasks": ISSUERS,
    "GetTask": set(Role),
    "GetTaskHistory": set(Role),
    "Ready": AGENTS,
    "WaitNotification": AGENTS,
    "ListNotifications": AGENTS,
    "ListSupervision": AGENTS,
    "AcknowledgeOutcomes": AGENTS,
}
METHODS = {method.name: getattr(pb, method.input_type.name) for method in TASK_DESCRIPTOR.methods}
WHO = {Role.AGENT: "ann", Role.COORDINATOR: "cyd", Role.OPERATOR: "operator", Role.SERVICE: "service"}
_numbers = itertools.count(1)


def request_id() -> str:
    return str(uuid.UUID(int=next(_numbers)))


async def refused(call: Awaitable[Any]) -> Refusal:
    with pytest.raises(Refusal) as answer:
        await call
    assert answer.value.detail.effect == common.EFFECT_NOT_WRITTEN
    return answer.value


async def assign(served: ServedMailbox, issuer: str, to: str, **options: Any) -> pb.TaskChange:
    facts: dict[str, Any] = {
        "to": to,
        "description": "do it",
        "acceptance": "it is done",
        "request_id": request_id(),
        "project_id": PROJECT_ID if issuer == "operator" else "",
    }
    change: pb.TaskChange = (
        await served.call(issuer, "AssignTask", pb.AssignTaskRequest(**{**facts, **options}))
    ).change
    return change


async def act(served: ServedMailbox, who: str, method: str, task_id: str, **options: Any) -> pb.TaskChange:
    ask = METHODS[method](task_id=task_id, **{"request_id": request_id(), **options})
    change: pb.TaskChange = (await served.call(who, method, ask)).change
    return change


@pytest.mark.requirement("tasks.every-call-answers-over-the-wire")
def test_every_method_admits_exactly_the_roles_of_the_contract() -> None:
    assert {name: rule.roles for name, rule in RULES.items()} == MAY
    assert set(METHODS) == set(MAY)


@pytest.mark.requirement("tasks.every-call-answers-over-the-wire")
async def test_a_role_that_may_not_call_a_method_is_refused_before_anything_is_looked_at(served: ServedMailbox) -> None:
    for method, roles in MAY.items():
        for role in set(Role) - roles:
            answer = await refused(served.call(WHO[role], method, METHODS[method]()))
            assert (answer.status, answer.reason) == (S.PERMISSION_DENIED, "permission_denied"), (method, role)
        assert (await refused(served.call(None, method, METHODS[method]()))).status is S.UNAUTHENTICATED


@pytest.mark.requirement("tasks.every-call-answers-over-the-wire")
async def test_a_task_goes_from_its_assignment_to_its_integration(served: ServedMailbox) -> None:
    published = context_pb2.PublishContextRequest(key="api", content="x", request_id=request_id())
    await served.call("ann", "PublishContext", published)
    made = await assign(
        served,
        "ann",
        "bob",
        description="d" * 200,
        context_refs=[pb.ContextRef(key="api", version=1)],
        execution_timeout_seconds=60,
        review_timeout_seconds=70,
        start_deadline_ms=served.clock.now_ms() + 1000,
    )
    assert (made.state, made.revision, made.version, made.duplicate) == (pb.TASK_STATE_QUEUED, 1, 1, False)
    assert made.task_id.startswith("task_")
    started = await act(served, "bob", "StartTask", made.task_id, revision=1, expected_version=1)
    assert (started.state, len(started.attempt_id)) == (pb.TASK_STATE_RUNNING, 36)
    await act(served, "bob", "ProgressTask", made.task_id, revision=1, percent=0, note="begun", wait_reason="a key")
    task = (await served.call("ann", "GetTask", pb.GetTaskRequest(task_id=made.task_id))).task
    assert (task.HasField("percent"), task.percent, task.note, task.wait_reason) == (True, 0, "begun", "a key")
    assert (task.description, task.acceptance) == ("d" * 200, "it is done")
    assert [(ref.key, ref.version) for ref in task.context_refs] == [("api", 1)]
    assert (task.attempt.attempt_id, task.attempt.agent.name) == (started.attempt_id, "bob")
    assert task.attempt.certainty == pb.ATTEMPT_CERTAINTY_ACTIVE
    assert (task.issuer.name, task.assignee.agent_id, task.reviewer.name) == ("ann", uuid_of("bob"), "ann")
    report = evidence_pb2.AddEvidenceRequest(
        task_id=made.task_id, commit=evidence_pb2.CommitEvidence(commit="a" * 40), request_id=request_id()
    )
    named = [(await served.call("bob", "AddEvidence", report)).evidence_id]
    await act(served, "bob", "SubmitTask", made.task_id, revision=1, result="r", evidence="e", evidence_ids=named)
    await act(served, "ann", "ReviewTask", made.task_id, revision=1, accepted=True)
    done = await act(
        served, "cyd", "RecordIntegration", made.task_id, commit="a" * 40, integration=pb.INTEGRATION_MERGED
    )
    assert done.state == pb.TASK_STATE_INTEGRATED
    shown = await served.call("bob", "GetTask", pb.GetTaskRequest(task_id=made.task_id))
    assert (shown.task.result, shown.task.evidence, list(shown.task.evidence_ids)) == ("r", "e", named)
    assert (shown.task.attempt.outcome, shown.task.commit) == (pb.ATTEMPT_OUTCOME_SUBMITTED, "a" * 40)
    ask = pb.GetTaskHistoryRequest(task_id=made.task_id, page_size=4)
    first = await served.call("ann", "GetTaskHistory", ask)
    rest = await served.call(
        "ann", "GetTaskHistory", pb.GetTaskHistoryRequest(task_id=made.task_id, after=first.events[-1].sequence)
    )
    assert (first.has_more, rest.has_more) == (True, False)
    events = [*first.events, *rest.events]
    assert [pb.TaskAction.Name(event.action) for event in events] == [
        "TASK_ACTION_ASSIGN",
        "TASK_ACTION_START",
        "TASK_ACTION_PROGRESS",
        "TASK_ACTION_SUBMIT",
        "TASK_ACTION_ACCEPT",
        "TASK_ACTION_INTEGRATE",
    ]
    assert dict(events[2].facts) == {"percent": "0", "wait_reason": "a key"}
    assert (events[-1].part, events[-1].agent.name) == (pb.TASK_PART_COORDINATOR, "cyd")
    assert [event.sequence for event in events] == sorted(event.sequence for event in events)


async def test_the_same_request_gives_the_first_result_and_another_is_refused(served: ServedMailbox) -> None:
    one = request_id()
    made = await assign(served, "ann", "bob", request_id=one)
    await act(served, "bob", "StartTask", made.task_id, revision=1)
    again = await assign(served, "ann", "bob", request_id=one)
    assert (again.task_id, again.state, again.duplicate) == (made.task_id, pb.TASK_STATE_QUEUED, True)
    answer = await refused(assign(served, "ann", "bob", request_id=one, description="other"))
    assert (answer.status, answer.reason) == (S.ALREADY_EXISTS, "request_conflict")
    answer = await refused(assign(served, "ann", "bob", request_id="no uuid"))
    assert (answer.status, answer.reason) == (S.INVALID_ARGUMENT, "invalid_argument")


async def test_a_lost_answer_is_settled_over_the_wire(served: ServedMailbox) -> None:
    one, two, epoch = request_id(), request_id(), await served.epoch()
    made = await assign(served, "ann", "bob", request_id=one)

    async def settle(asked: str, **options: Any) -> Any:
        ask = pb.SettleTaskRequestRequest(**{"request_id": asked, "epoch": epoch, **options})
        return await served.call("ann", "SettleTaskRequest", ask)

    written = await settle(one)
    assert (written.fate, written.change.task_id) == (pb.REQUEST_FATE_WRITTEN, made.task_id)
    assert (await settle(two)).fate == pb.REQUEST_FATE_CANCELLED
    assert (await refused(assign(served, "ann", "bob", request_id=two))).reason == "key_cancelled"
    assert (await settle(one, epoch="another")).fate == pb.REQUEST_FATE_UNKNOWN


async def test_refusals_carry_their_status_and_the_safe_state(served: ServedMailbox) -> None:
    first, second = await assign(served, "ann", "bob"), await assign(served, "ann", "bob")
    answer = await refused(act(served, "bob", "StartTask", second.task_id, revision=1))
    assert (answer.status, answer.reason) == (S.FAILED_PRECONDITION, "not_next")
    assert answer.detail.state["next"] == first.task_id
    await act(served, "bob", "StartTask", first.task_id, revision=1)
    answer = await refused(act(served, "bob", "StartTask", second.task_id, revision=1))
    assert (answer.reason, "An assigned task is already running" in answer.text) == ("already_running", True)
    answer = await refused(act(served, "ann", "CancelTask", first.task_id, expected_version=1))
    assert (answer.status, answer.reason) == (S.ABORTED, "version_conflict")
    assert dict(answer.detail.state) == {"version": "2", "state": "running", "revision": "1"}
    for attempt_id in (str(uuid.UUID(int=1)), "no uuid"):
        ask = {"revision": 1, "result": "r", "evidence": "e", "attempt_id": attempt_id}
        assert (await refused(act(served, "bob", "SubmitTask", first.task_id, **ask))).reason == "stale_attempt"
    for text in ("", "task_" + "g" * 32, "ask_" + "0" * 32, "task_" + "0" * 31, "TASK_" + "0" * 32):
        assert (await refused(act(served, "ann", "CancelTask", text))).status is S.NOT_FOUND
    for who in ("cyd", "eve"):
        status = {"cyd": S.PERMISSION_DENIED, "eve": S.NOT_FOUND}[who]
        assert (await refused(act(served, who, "CancelTask", first.task_id))).status is status
    answer = await refused(assign(served, "ann", "ann"))
    assert (answer.status, answer.reason) == (S.INVALID_ARGUMENT, "self_review")
    answer = await refused(assign(served, "ann", "eve"))
    assert answer.status is S.NOT_FOUND


async def test_the_pool_rework_and_steering_answer_over_the_wire(served: ServedMailbox) -> None:
    ask = pb.CreatePoolTaskRequest(
        description="d", acceptance="a", eligible=["bob", uuid_of("cyd")], request_id=request_id()
    )
    pooled = (await served.call("ann", "CreatePoolTask", ask)).change
    shown = await served.call("bob", "GetTask", pb.GetTaskRequest(task_id=pooled.task_id))
    assert {ref.name for ref in shown.eligible} == {"bob", "cyd"}
    assert shown.task.pool
    assert not shown.task.HasField("assignee")
    await act(served, "bob", "ClaimTask", pooled.task_id)
    await act(served, "bob", "SubmitTask", pooled.task_id, revision=1, result="r", evidence="e")
    rework = await act(served, "ann", "ReviewTask", pooled.task_id, revision=1, feedback="again")
    assert (rework.state, rework.revision) == (pb.TASK_STATE_QUEUED, 2)
    await act(served, "bob", "StartTask", pooled.task_id, revision=2)
    failed = await act(served, "bob", "FailTask", pooled.task_id, reason="no disk", evidence="log")
    assert failed.state == pb.TASK_STATE_FAILED
    assert (await act(served, "ann", "RetryTask", pooled.task_id)).revision == 3
    assert (await act(served, "ann", "ReassignTask", pooled.task_id, to="cyd")).revision == 4
    waiting = await assign(served, "ann", "bob", dependencies=[pooled.task_id])
    assert waiting.state == pb.TASK_STATE_BLOCKED
    prerequisites = (await served.call("bob", "GetTask", pb.GetTaskRequest(task_id=waiting.task_id))).dependencies
    assert [(task.task_id, task.description) for task in prerequisites] == [(pooled.task_id, "")]
    freed = await act(served, "ann", "SetTaskDependencies", waiting.task_id)
    assert freed.state == pb.TASK_STATE_QUEUED
    await act(served, "bob", "StartTask", waiting.task_id, revision=1)
    asked = await act(served, "ann", "CancelTask", waiting.task_id, reason="not wanted")
    assert asked.state == pb.TASK_STATE_CANCEL_REQUESTED
    done = await act(served, "service", "FinishCancelTask", waiting.task_id, attempt_id=asked.attempt_id)
    assert done.state == pb.TASK_STATE_CANCELLED
    archived = await act(served, "ann", "ArchiveTask", waiting.task_id)
    assert archived.state == pb.TASK_STATE_CANCELLED


async def test_the_operator_overrides_an_unknown_attempt_and_its_authority_must_be_fresh(served: ServedMailbox) -> None:
    made = await assign(served, "ann", "bob")
    await act(served, "bob", "StartTask", made.task_id, revision=1)
    await served.call(
        "service", "OpenGeneration", mailbox_pb2.OpenGenerationRequest(agent_id=uuid_of("bob"), generation=2)
    )
    task = (await served.call("operator", "GetTask", pb.GetTaskRequest(task_id=made.task_id))).task
    assert (task.state, task.attempt.certainty) == (pb.TASK_STATE_RUNNING, pb.ATTEMPT_CERTAINTY_UNKNOWN)
    answer = await refused(act(served, "operator", "OverrideTask", made.task_id, risk="r"))
    assert (answer.reason, answer.detail.state["field"]) == ("invalid_task_field", "override")
    override = {"override": pb.OVERRIDE_REASSIGN, "to": "cyd", "risk": "both may write"}
    moved = await act(served, "operator", "OverrideTask", made.task_id, **override)
    assert (moved.state, moved.revision) == (pb.TASK_STATE_QUEUED, 2)
    listed = await served.call("operator", "ListTasks", pb.ListTasksRequest(project_id=PROJECT_ID, assignee="cyd"))
    assert [task.task_id for task in listed.tasks] == [made.task_id]
    await served.clock.advance(MIRROR_AGE_MS_MAX / 1000 + 1)
    answer = await refused(served.call("operator", "GetTask", pb.GetTaskRequest(task_id=made.task_id)))
    assert answer.reason == "dependency_unavailable"


async def test_a_supervisor_is_told_waits_lists_acknowledges_and_ends_its_turn(served: ServedMailbox) -> None:
    wait = pb.WaitNotificationRequest(timeout_ms=values.NOTIFICATION_WAIT_MS_MAX, run="r")
    waiting = asyncio.create_task(served.call("bob", "WaitNotification", wait, timeout_s=25))
    await until(lambda: served.mailbox.waits.parked == 1)
    made = await assign(served, "ann", "bob", description="x" * 500)
    given = await waiting
    assert (given.notification.kind, given.notification.task.task_id) == (
        pb.NOTIFICATION_KIND_ASSIGNED,
        made.task_id,
    )
    assert len(given.notification.task.description) == LISTING_BODY_CHARACTERS_MAX
    nothing = await served.call("bob", "WaitNotification", pb.WaitNotificationRequest(run="r"))
    assert (nothing.HasField("notification"), nothing.timed_out) == (False, True)
    standing = (await served.call("bob", "ListNotifications", pb.ListNotificationsRequest())).notifications
    assert [one.kind for one in standing] == [pb.NOTIFICATION_KIND_ASSIGNED]
    assert (await served.call("bob", "Ready", pb.ReadyRequest(run="r"))).pending_count == 0
    assert (await refused(served.call("bob", "Ready", pb.ReadyRequest(run="s")))).reason == "notifications_unread"
    await act(served, "bob", "StartTask", made.task_id, revision=1)
    assert (await refused(served.call("bob", "Ready", pb.ReadyRequest(run="r")))).reason == "work_running"
    await act(served, "bob", "FailTask", made.task_id, reason="no")
    entries = await served.call("ann", "ListSupervision", pb.ListSupervisionRequest())
    assert (entries.pending_count, entries.entries[0].settled, entries.entries[0].task.failure) == (1, True, "no")
    done = await served.call("ann", "AcknowledgeOutcomes", pb.AcknowledgeOutcomesRequest(task_ids=[made.task_id]))
    assert (list(done.retired), done.pending_count) == ([made.task_id], 0)
    for timeout_ms in (-1, values.NOTIFICATION_WAIT_MS_MAX + 1):
        ask = pb.WaitNotificationRequest(timeout_ms=timeout_ms)
        assert (await refused(served.call("bob", "WaitNotification", ask))).reason == "invalid_timeout"


async def test_a_listing_has_its_pages_its_conditions_and_its_refusals(served: ServedMailbox) -> None:
    made = [(await assign(served, "ann", "bob")).task_id for _ in range(3)]
    first = await served.call("ann", "ListTasks", pb.ListTasksRequest(page_size=2))
    second = await served.call("ann", "ListTasks", pb.ListTasksRequest(page_token=first.next_page_token))
    assert [task.task_id for task in [*first.tasks, *second.tasks]] == made[::-1]
    assert (second.next_page_token, second.pending_count) == ("", 3)
    running = await served.call("ann", "ListTasks", pb.ListTasksRequest(states=[pb.TASK_STATE_RUNNING]))
    assert not running.tasks
    for ask, reason in (
        (pb.ListTasksRequest(page_size=values.TASKS_LISTED_MAX + 1), "invalid_task_field"),
        (pb.ListTasksRequest(page_token="no"), "invalid_cursor"),
        (pb.ListTasksRequest(project_id=uuid_of("elsewhere")), "invalid_task_field"),
        (pb.ListTasksRequest(assignee="nobody"), "not_found"),
        (pb.ListTasksRequest(states=[pb.TASK_STATE_UNSPECIFIED]), "invalid_task_field"),
    ):
        assert (await refused(served.call("ann", "ListTasks", ask))).reason == reason
    assert (await refused(served.call("operator", "ListTasks", pb.ListTasksRequest()))).reason == "invalid_task_field"


async def test_deadlines_follow_the_service_s_clock_and_survive_its_restart(served: ServedMailbox) -> None:
    made = await assign(served, "ann", "bob", start_deadline_ms=served.clock.now_ms() + 1000)
    await served.restart()
    await served.clock.advance(2)
    await until(lambda: not served.mailbox.store.read.tasks.any_due(served.clock.now_ms()))
    task = (await served.call("ann", "GetTask", pb.GetTaskRequest(task_id=made.task_id))).task
    assert task.state == pb.TASK_STATE_EXPIRED


def test_every_value_has_its_word_on_the_wire() -> None:
    for kind, wire, prefix in (
        (values.State, pb.TaskState, "TASK_STATE_"),
        (values.Action, pb.TaskAction, "TASK_ACTION_"),
        (values.Part, pb.TaskPart, "TASK_PART_"),
        (values.Integration, pb.Integration, "INTEGRATION_"),
        (values.Certainty, pb.AttemptCertainty, "ATTEMPT_CERTAINTY_"),
        (values.AttemptOutcome, pb.AttemptOutcome, "ATTEMPT_OUTCOME_"),
    ):
        named = {member.value: member.name for member in kind if member.name != "NONE"}
        assert named == {value: name.removeprefix(prefix) for name, value in wire.items() if value}
    # That there are messages is told and never stored.
    notices = {member.value: member.name for member in values.Notice} | {pb.NOTIFICATION_KIND_MESSAGES: "MESSAGES"}
    wire_words = pb.NotificationKind.items()
    assert notices == {value: name.removeprefix("NOTIFICATION_KIND_") for name, value in wire_words if value}


def test_a_task_id_round_trips_and_nothing_else_is_one() -> None:
    text = "task_" + "0f" * 16
    assert task_translate.task_id_text(task_translate.task_id_of(text)) == text
