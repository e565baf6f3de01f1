"""One line of meaning a method of TasksService.

The guard in front of it has authenticated the caller and checked its role and deadline; what a caller may do to a task
is decided by the tables of the domain.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fencepost.mailbox.v1 import tasks_pb2 as pb
from fencepost_kit.guard import Call, Rule
from fencepost_kit.identity import Role
from fencepost_kit.ids import uuid_bytes
from fencepost_mailbox import task_translate as wire
from fencepost_mailbox import translate
from fencepost_mailbox.domain.tasks.values import NOTIFICATION_WAIT_MS_MAX
from fencepost_mailbox.usecases.ports import Ports
from fencepost_mailbox.usecases.tasks.act import Act
from fencepost_mailbox.usecases.tasks.create import Create
from fencepost_mailbox.usecases.tasks.look import GetTask, GetTaskHistory, ListTasks
from fencepost_mailbox.usecases.tasks.settle import SettleTaskRequest
from fencepost_mailbox.usecases.tasks.supervise import (
    AcknowledgeOutcomes,
    ListNotifications,
    ListSupervision,
    Ready,
    WaitNotification,
)
from fencepost_mailbox.waits import Waits

TASK_CALL_MS_MAX: Final = 10_000
NOTIFICATION_CALL_MS_MAX: Final = NOTIFICATION_WAIT_MS_MAX + 5_000

_AGENTS: Final = frozenset({Role.AGENT, Role.COORDINATOR})
_ISSUERS: Final = _AGENTS | {Role.OPERATOR}


def _rule(roles: frozenset[Role], deadline_ms_max: int = TASK_CALL_MS_MAX) -> Rule:
    return Rule(roles=roles, deadline_ms_max=deadline_ms_max)


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "AssignTask": _rule(_ISSUERS),
        "CreatePoolTask": _rule(_ISSUERS),
        "ClaimTask": _rule(_AGENTS),
        "StartTask": _rule(_AGENTS),
        "ProgressTask": _rule(_AGENTS),
        "SubmitTask": _rule(_AGENTS),
        "ReviewTask": _rule(_ISSUERS),
        "RecordIntegration": _rule(frozenset({Role.COORDINATOR, Role.SERVICE})),
        "CancelTask": _rule(_ISSUERS),
        "FinishCancelTask": _rule(_AGENTS | {Role.SERVICE}),
        "FailTask": _rule(_AGENTS),
        "RetryTask": _rule(_ISSUERS),
        "ReassignTask": _rule(_ISSUERS),
        "SetTaskDependencies": _rule(_ISSUERS),
        "OverrideTask": _rule(frozenset({Role.OPERATOR})),
        "ArchiveTask": _rule(_ISSUERS),
        "SettleTaskRequest": _rule(frozenset(Role)),
        "ListTasks": _rule(_ISSUERS),
        "GetTask": _rule(frozenset(Role)),
        "GetTaskHistory": _rule(frozenset(Role)),
        "Ready": _rule(_AGENTS),
        "WaitNotification": _rule(_AGENTS, NOTIFICATION_CALL_MS_MAX),
        "ListNotifications": _rule(_AGENTS),
        "ListSupervision": _rule(_AGENTS),
        "AcknowledgeOutcomes": _rule(_AGENTS),
    }
)


class TasksServicer:
    """fencepost.mailbox.v1.TasksService."""

    def __init__(self, ports: Ports, *, waits: Waits) -> None:
        self._names = translate.Namer(ports.directory)
        self._create = Create(ports)
        self._act = Act(ports)
        self._settle = SettleTaskRequest(ports)
        self._list = ListTasks(ports)
        self._get = GetTask(ports)
        self._history = GetTaskHistory(ports)
        self._ready = Ready(ports)
        self._wait = WaitNotification(ports, waits)
        self._notifications = ListNotifications(ports)
        self._supervision = ListSupervision(ports)
        self._acknowledge = AcknowledgeOutcomes(ports)

    async def AssignTask(self, request: pb.AssignTaskRequest, call: Call) -> pb.AssignTaskResponse:
        """See tasks.proto, as for every method here."""
        made = await self._create(call.caller, wire.assign_command(request))
        return pb.AssignTaskResponse(change=wire.change(made))

    async def CreatePoolTask(self, request: pb.CreatePoolTaskRequest, call: Call) -> pb.CreatePoolTaskResponse:
        made = await self._create(call.caller, wire.pool_command(request))
        return pb.CreatePoolTaskResponse(change=wire.change(made))

    async def ClaimTask(self, request: pb.ClaimTaskRequest, call: Call) -> pb.ClaimTaskResponse:
        made = await self._act(call.caller, wire.claim_command(request))
        return pb.ClaimTaskResponse(change=wire.change(made))

    async def StartTask(self, request: pb.StartTaskRequest, call: Call) -> pb.StartTaskResponse:
        made = await self._act(call.caller, wire.start_command(request))
        return pb.StartTaskResponse(change=wire.change(made))

    async def ProgressTask(self, request: pb.ProgressTaskRequest, call: Call) -> pb.ProgressTaskResponse:
        made = await self._act(call.caller, wire.progress_command(request))
        return pb.ProgressTaskResponse(change=wire.change(made))

    async def SubmitTask(self, request: pb.SubmitTaskRequest, call: Call) -> pb.SubmitTaskResponse:
        made = await self._act(call.caller, wire.submit_command(request))
        return pb.SubmitTaskResponse(change=wire.change(made))

    async def ReviewTask(self, request: pb.ReviewTaskRequest, call: Call) -> pb.ReviewTaskResponse:
        made = await self._act(call.caller, wire.review_command(request))
        return pb.ReviewTaskResponse(change=wire.change(made))

    async def RecordIntegration(self, request: pb.RecordIntegrationRequest, call: Call) -> pb.RecordIntegrationResponse:
        made = await self._act(call.caller, wire.integrate_command(request))
        return pb.RecordIntegrationResponse(change=wire.change(made))

    async def CancelTask(self, request: pb.CancelTaskRequest, call: Call) -> pb.CancelTaskResponse:
        made = await self._act(call.caller, wire.cancel_command(request))
        return pb.CancelTaskResponse(change=wire.change(made))

    async def FinishCancelTask(self, request: pb.FinishCancelTaskRequest, call: Call) -> pb.FinishCancelTaskResponse:
        made = await self._act(call.caller, wire.finish_cancel_command(request))
        return pb.FinishCancelTaskResponse(change=wire.change(made))

    async def FailTask(self, request: pb.FailTaskRequest, call: Call) -> pb.FailTaskResponse:
        made = await self._act(call.caller, wire.fail_command(request))
        return pb.FailTaskResponse(change=wire.change(made))

    async def RetryTask(self, request: pb.RetryTaskRequest, call: Call) -> pb.RetryTaskResponse:
        made = await self._act(call.caller, wire.retry_command(request))
        return pb.RetryTaskResponse(change=wire.change(made))

    async def ReassignTask(self, request: pb.ReassignTaskRequest, call: Call) -> pb.ReassignTaskResponse:
        made = await self._act(call.caller, wire.reassign_command(request))
        return pb.ReassignTaskResponse(change=wire.change(made))

    async def SetTaskDependencies(
        self, request: pb.SetTaskDependenciesRequest, call: Call
    ) -> pb.SetTaskDependenciesResponse:
        made = await self._act(call.caller, wire.dependencies_command(request))
        return pb.SetTaskDependenciesResponse(change=wire.change(made))

    async def OverrideTask(self, request: pb.OverrideTaskRequest, call: Call) -> pb.OverrideTaskResponse:
        made = await self._act(call.caller, wire.override_command(request))
        return pb.OverrideTaskResponse(change=wire.change(made))

    async def ArchiveTask(self, request: pb.ArchiveTaskRequest, call: Call) -> pb.ArchiveTaskResponse:
        made = await self._act(call.caller, wire.archive_command(request))
        return pb.ArchiveTaskResponse(change=wire.change(made))

    async def SettleTaskRequest(self, request: pb.SettleTaskRequestRequest, call: Call) -> pb.SettleTaskRequestResponse:
        return wire.fate_response(*await self._settle(call.caller, uuid_bytes(request.request_id), request.epoch))

    async def ListTasks(self, request: pb.ListTasksRequest, call: Call) -> pb.ListTasksResponse:
        return wire.list_response(await self._list(call.caller, wire.list_asked(request)), self._names)

    async def GetTask(self, request: pb.GetTaskRequest, call: Call) -> pb.GetTaskResponse:
        return wire.get_response(await self._get(call.caller, wire.task_id_of(request.task_id)), self._names)

    async def GetTaskHistory(self, request: pb.GetTaskHistoryRequest, call: Call) -> pb.GetTaskHistoryResponse:
        task_id = wire.task_id_of(request.task_id)
        history = await self._history(call.caller, task_id, request.after, request.page_size)
        return wire.history_response(history, self._names)

    async def Ready(self, request: pb.ReadyRequest, call: Call) -> pb.ReadyResponse:
        return pb.ReadyResponse(pending_count=await self._ready(call.caller, request.run))

    async def WaitNotification(self, request: pb.WaitNotificationRequest, call: Call) -> pb.WaitNotificationResponse:
        return wire.given_response(await self._wait(call.caller, request.timeout_ms, request.run), self._names)

    async def ListNotifications(self, request: pb.ListNotificationsRequest, call: Call) -> pb.ListNotificationsResponse:
        told, more = await self._notifications(call.caller, request.after, request.page_size)
        return wire.notifications_response(told, self._names, more=more)

    async def ListSupervision(self, request: pb.ListSupervisionRequest, call: Call) -> pb.ListSupervisionResponse:
        found = await self._supervision(call.caller, request.page_size, request.page_token)
        return wire.supervision_response(*found, self._names)

    async def AcknowledgeOutcomes(
        self, request: pb.AcknowledgeOutcomesRequest, call: Call
    ) -> pb.AcknowledgeOutcomesResponse:
        return wire.acknowledged_response(*await self._acknowledge(call.caller, wire.task_ids_of(request.task_ids)))
