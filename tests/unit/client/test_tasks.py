"""The face of supervised tasks: every call of the service over every transport, and what a lost answer ends in."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from fencepost import Channels, NotWritten, Refused, Tasks, Uncertain
from fencepost.client import Budgets
from fencepost.home import MAILBOX, Home
from fencepost.mailbox.v1 import tasks_pb2 as pb
from fencepost_testing.mailboxes import PROJECT, token_of
from fencepost_testing.served_mailbox import TASK_DESCRIPTOR, ServedMailbox

PROJECT_ID = str(uuid.UUID(bytes=PROJECT))
BUDGETS = Budgets(ready_ms=2_000, call_ms=5_000, settle_ms=2_000)
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def new_id() -> str:
    return str(uuid.uuid4())


class WatchedStub:
    """A stub that notes which RPCs are called, and loses the answers that a test names."""

    def __init__(self, stub: Any, face: WatchedTasks) -> None:
        self._stub, self._face = stub, face

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        self._face.called.append(name)
        real = getattr(self._stub, name)
        return self._losing(real) if self._face.lost.pop(name, None) else real

    def _losing(self, real: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def lost(*arguments: Any, **options: Any) -> Any:
            if self._face.arrives:
                await real(*arguments, **options)
            raise grpc.aio.AioRpcError(UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata())

        return lost


class WatchedTasks(Tasks):
    """The face itself over such a stub."""

    def __init__(self, channels: Channels, name: str) -> None:
        super().__init__(channels, token_of(name), budgets=BUDGETS)
        self.called: list[str] = []
        # RPCs whose next answer is lost, and whether the call arrives at the service before.
        self.lost: dict[str, bool] = {}
        self.arrives = True

    def _new_stub(self, channel: grpc.aio.Channel) -> Any:
        return WatchedStub(super()._new_stub(channel), self)

    def lose(self, name: str, *, arrives: bool) -> None:
        self.lost[name] = True
        self.arrives = arrives


@pytest.fixture
async def served(home: Home) -> AsyncIterator[ServedMailbox]:
    made = ServedMailbox(home)
    await made.start()
    home.address(MAILBOX).write_text(f"unix:{home.socket(MAILBOX)}")
    yield made
    await made.stop()


@pytest.fixture
def ann(served: ServedMailbox, channels: Channels) -> WatchedTasks:
    return WatchedTasks(channels, "ann")


@pytest.fixture
def bob(served: ServedMailbox, channels: Channels) -> WatchedTasks:
    return WatchedTasks(channels, "bob")


@pytest.fixture
def cyd(served: ServedMailbox, channels: Channels) -> WatchedTasks:
    return WatchedTasks(channels, "cyd")


@pytest.fixture
def operator(served: ServedMailbox, channels: Channels) -> WatchedTasks:
    return WatchedTasks(channels, "operator")


def work(to: str = "bob", **options: Any) -> pb.AssignTaskRequest:
    facts = {"description": "a secret text", "acceptance": "it is done", "request_id": new_id(), **options}
    return pb.AssignTaskRequest(to=to, **facts)


async def assigned(issuer: Tasks, **options: Any) -> str:
    return (await issuer.assign(work(**options))).change.task_id


async def started(issuer: Tasks, assignee: Tasks) -> tuple[str, pb.TaskChange]:
    task_id = await assigned(issuer)
    ask = pb.StartTaskRequest(task_id=task_id, revision=1, request_id=new_id())
    return task_id, (await assignee.start(ask)).change


async def accepted(issuer: Tasks, assignee: Tasks) -> str:
    task_id, _ = await started(issuer, assignee)
    await assignee.submit(
        pb.SubmitTaskRequest(task_id=task_id, revision=1, result="r", evidence="e", request_id=new_id())
    )
    await issuer.review(pb.ReviewTaskRequest(task_id=task_id, revision=1, accepted=True, request_id=new_id()))
    return task_id


async def reviewed_and_integrated(ann: Tasks, bob: Tasks, cyd: Tasks) -> None:
    """The way that work is meant to go, and what is looked at on it."""
    task_id, running = await started(ann, bob)
    assert running.state == pb.TASK_STATE_RUNNING
    await bob.progress(
        pb.ProgressTaskRequest(task_id=task_id, revision=1, note="half", percent=50, request_id=new_id())
    )
    with pytest.raises(Refused) as busy:
        await bob.ready("run")
    assert busy.value.reason == "work_running"
    await bob.submit(pb.SubmitTaskRequest(task_id=task_id, revision=1, result="r", evidence="e", request_id=new_id()))
    told = await ann.wait_notification(pb.WaitNotificationRequest(run="run"))
    assert told.notification.kind == pb.NOTIFICATION_KIND_REVIEW
    assert [one.kind for one in (await ann.list_notifications(pb.ListNotificationsRequest())).notifications] == [
        pb.NOTIFICATION_KIND_REVIEW
    ]
    supervised = await ann.list_supervision(pb.ListSupervisionRequest())
    assert (supervised.pending_count, supervised.entries[0].task.task_id) == (1, task_id)
    await ann.review(pb.ReviewTaskRequest(task_id=task_id, revision=1, accepted=True, request_id=new_id()))
    merged = await cyd.record_integration(pb.RecordIntegrationRequest(task_id=task_id, request_id=new_id()))
    assert merged.change.state == pb.TASK_STATE_INTEGRATED
    history = await ann.history(pb.GetTaskHistoryRequest(task_id=task_id))
    assert [event.to_state for event in history.events][-1] == pb.TASK_STATE_INTEGRATED
    assert (await ann.get(task_id)).task.state == pb.TASK_STATE_INTEGRATED
    await ann.archive(pb.ArchiveTaskRequest(task_id=task_id, request_id=new_id()))


async def given_up_and_given_again(served: ServedMailbox, ann: Tasks, bob: Tasks, operator: Tasks) -> None:
    """The ways on which work goes wrong."""
    task_id, _ = await started(ann, bob)
    await bob.fail(pb.FailTaskRequest(task_id=task_id, reason="no", request_id=new_id()))
    await ann.retry(pb.RetryTaskRequest(task_id=task_id, request_id=new_id()))
    await bob.start(pb.StartTaskRequest(task_id=task_id, revision=2, request_id=new_id()))
    asked = await ann.cancel(pb.CancelTaskRequest(task_id=task_id, reason="no more", request_id=new_id()))
    assert asked.change.state == pb.TASK_STATE_CANCEL_REQUESTED
    await bob.finish_cancel(pb.FinishCancelTaskRequest(task_id=task_id, request_id=new_id()))
    await ann.acknowledge([task_id])
    first = await assigned(ann)
    later = await assigned(ann)
    waits = await ann.set_dependencies(
        pb.SetTaskDependenciesRequest(task_id=later, dependencies=[first], request_id=new_id())
    )
    assert waits.change.state == pb.TASK_STATE_BLOCKED
    await ann.reassign(pb.ReassignTaskRequest(task_id=first, to="cyd", request_id=new_id()))
    offered = await ann.create_pool(
        pb.CreatePoolTaskRequest(description="d", acceptance="a", eligible=["bob"], request_id=new_id())
    )
    await bob.claim(pb.ClaimTaskRequest(task_id=offered.change.task_id, request_id=new_id()))
    await ann.cancel(pb.CancelTaskRequest(task_id=offered.change.task_id, request_id=new_id()))
    ended = await operator.override(
        pb.OverrideTaskRequest(
            task_id=offered.change.task_id, override=pb.OVERRIDE_CANCEL, risk="none", request_id=new_id()
        )
    )
    assert ended.change.state == pb.TASK_STATE_CANCELLED
    listed = await operator.list_tasks(pb.ListTasksRequest(project_id=PROJECT_ID))
    assert offered.change.task_id in [task.task_id for task in listed.tasks]
    ask = pb.SettleTaskRequestRequest(request_id=new_id(), epoch=await served.epoch())
    assert (await ann.settle(ask)).fate == pb.REQUEST_FATE_CANCELLED


@pytest.mark.requirement("client.tasks-has-every-call")
async def test_every_call_of_the_service_has_its_method(
    served: ServedMailbox, ann: WatchedTasks, bob: WatchedTasks, cyd: WatchedTasks, operator: WatchedTasks
) -> None:
    await reviewed_and_integrated(ann, bob, cyd)
    await given_up_and_given_again(served, ann, bob, operator)
    called = {name for face in (ann, bob, cyd, operator) for name in face.called}
    assert called == {method.name for method in TASK_DESCRIPTOR.methods}


@pytest.mark.requirement("client.a-lost-task-write-is-settled")
async def test_a_write_that_arrived_and_whose_answer_is_lost_settles_to_what_it_did(ann: WatchedTasks) -> None:
    ann.lose("AssignTask", arrives=True)
    change = (await ann.assign(work())).change
    assert (change.state, change.duplicate) == (pb.TASK_STATE_QUEUED, True)
    assert ann.called == ["AssignTask", "SettleTaskRequest"]
    assert [task.task_id for task in (await ann.list_tasks(pb.ListTasksRequest())).tasks] == [change.task_id]


@pytest.mark.requirement("client.a-lost-task-write-is-settled")
async def test_a_write_that_never_arrived_is_not_written_and_its_id_is_spent(ann: WatchedTasks) -> None:
    ask = work()
    ann.lose("AssignTask", arrives=False)
    with pytest.raises(NotWritten) as caught:
        await ann.assign(ask)
    assert (caught.value.reason, caught.value.key_spent) == ("not_written", True)
    assert "secret" not in f"{caught.value!r} {caught.value} {caught.value.hint} {dict(caught.value.state)}"
    with pytest.raises(Refused) as late:
        await ann.assign(ask)
    assert late.value.reason == "key_cancelled"
    assert not (await ann.list_tasks(pb.ListTasksRequest())).tasks


@pytest.mark.requirement("client.an-unsettled-task-write-is-uncertain")
async def test_another_store_is_uncertain(served: ServedMailbox, channels: Channels, ann: WatchedTasks) -> None:
    channels.epochs[MAILBOX] = new_id()
    ann.lose("AssignTask", arrives=True)
    with pytest.raises(Uncertain) as caught:
        await ann.assign(work())
    assert (caught.value.reason, caught.value.state["settling"]) == ("delivery_uncertain", "other_epoch")


@pytest.mark.requirement("client.an-unsettled-task-write-is-uncertain")
async def test_an_id_that_stands_for_another_call_is_not_taken_for_ours(ann: WatchedTasks, bob: WatchedTasks) -> None:
    task_id, other = await assigned(ann), await assigned(ann)
    used = new_id()
    await bob.start(pb.StartTaskRequest(task_id=task_id, revision=1, request_id=used))
    for ask in (
        pb.FailTaskRequest(task_id=task_id, reason="no", request_id=used),
        pb.ProgressTaskRequest(task_id=other, revision=1, note="n", request_id=used),
    ):
        method = "fail" if isinstance(ask, pb.FailTaskRequest) else "progress"
        bob.lose(f"{method.capitalize()}Task", arrives=False)
        with pytest.raises(Uncertain) as caught:
            await getattr(bob, method)(ask)
        assert caught.value.state["settling"] == "invalid_receipt"


@pytest.mark.requirement("client.an-unsettled-task-write-is-uncertain")
async def test_a_service_that_does_not_come_back_leaves_it_uncertain(
    served: ServedMailbox, channels: Channels, ann: WatchedTasks
) -> None:
    await assigned(ann)
    short = WatchedTasks(channels, "ann")
    short._budgets = Budgets(ready_ms=1_000, call_ms=1_000, settle_ms=100)
    short.lose("AssignTask", arrives=True)
    short.lose("SettleTaskRequest", arrives=False)
    original = short._once

    async def stays_away(rpc: Any, request: Any, *, ready_ms: int, call_ms: int) -> Any:
        if isinstance(request, pb.SettleTaskRequestRequest):
            short.lose("SettleTaskRequest", arrives=False)
        return await original(rpc, request, ready_ms=ready_ms, call_ms=call_ms)

    short._once = stays_away  # type: ignore[method-assign]
    with pytest.raises(Uncertain) as caught:
        await short.assign(work())
    assert (caught.value.reason, caught.value.state["settling"]) == ("delivery_uncertain", "connection_lost")


@pytest.mark.requirement("client.reads-are-asked-again")
async def test_a_list_whose_answer_is_lost_is_asked_for_again_and_a_notification_is_not(
    ann: WatchedTasks, bob: WatchedTasks
) -> None:
    task_id = await assigned(ann)
    ann.lose("ListTasks", arrives=True)
    assert [task.task_id for task in (await ann.list_tasks(pb.ListTasksRequest())).tasks] == [task_id]
    bob.lose("WaitNotification", arrives=True)
    with pytest.raises(Uncertain) as caught:
        await bob.wait_notification(pb.WaitNotificationRequest(run="run"))
    assert "ListNotifications" in caught.value.hint
    assert bob.called == ["WaitNotification"]
    standing = await bob.list_notifications(pb.ListNotificationsRequest())
    assert [one.task.task_id for one in standing.notifications] == [task_id]
