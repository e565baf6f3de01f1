"""One line a method: from the contract, through the use case, to the contract. Who may call what is the table RULES."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Final

from fencepost.providers.v1 import providers_pb2 as pb
from fencepost_kit.guard import Call, Rule
from fencepost_kit.identity import Role
from fencepost_kit.refusal import Draining
from fencepost_providers import translate
from fencepost_providers.domain.runtimes import Permits
from fencepost_providers.integrations import PREPARE_MS_MAX
from fencepost_providers.usecases.attach import attach_terminal
from fencepost_providers.usecases.describe import describe
from fencepost_providers.usecases.inspect import approve_tools, inspect_runtime
from fencepost_providers.usecases.integrate import integrate_task
from fencepost_providers.usecases.interrupt import interrupt_turn
from fencepost_providers.usecases.look import get_capabilities, get_runtime, list_models, list_providers
from fencepost_providers.usecases.ports import Ports
from fencepost_providers.usecases.restart import WAIT_READY_MS_MAX, begin_conversation, restart_runtime
from fencepost_providers.usecases.verify import verify_evidence
from fencepost_providers.usecases.watch import watch_conversation

CALL_MS_MAX: Final = 10_000
# What asks a program: its own limits, and a little.
PROGRAM_CALL_MS_MAX: Final = 40_000
RESTART_CALL_MS_MAX: Final = WAIT_READY_MS_MAX + CALL_MS_MAX
INTEGRATE_CALL_MS_MAX: Final = PREPARE_MS_MAX + CALL_MS_MAX
VERIFY_CALL_MS_MAX: Final = 60_000
STREAM_MS_MAX: Final = 24 * 3600 * 1000

_AGENTS: Final = frozenset({Role.AGENT, Role.COORDINATOR})
_COORDINATOR: Final = frozenset({Role.COORDINATOR})
_OPERATOR: Final = frozenset({Role.OPERATOR})
_READERS: Final = _AGENTS | _OPERATOR

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "Describe": Rule(roles=frozenset(Role), deadline_ms_max=CALL_MS_MAX),
        "ListProviders": Rule(roles=_READERS, deadline_ms_max=PROGRAM_CALL_MS_MAX),
        "ListModels": Rule(roles=_READERS, deadline_ms_max=PROGRAM_CALL_MS_MAX),
        "GetRuntime": Rule(roles=_READERS, deadline_ms_max=CALL_MS_MAX),
        "GetCapabilities": Rule(roles=_READERS, deadline_ms_max=PROGRAM_CALL_MS_MAX),
        "RestartRuntime": Rule(roles=_OPERATOR, deadline_ms_max=RESTART_CALL_MS_MAX),
        "BeginConversation": Rule(roles=_OPERATOR, deadline_ms_max=RESTART_CALL_MS_MAX),
        "InterruptTurn": Rule(roles=_READERS, deadline_ms_max=PROGRAM_CALL_MS_MAX),
        "AttachTerminal": Rule(roles=_OPERATOR, deadline_ms_max=STREAM_MS_MAX),
        "WatchConversation": Rule(roles=_OPERATOR, deadline_ms_max=STREAM_MS_MAX),
        "InspectRuntime": Rule(roles=_OPERATOR, deadline_ms_max=PROGRAM_CALL_MS_MAX),
        "ApproveTools": Rule(roles=_OPERATOR, deadline_ms_max=PROGRAM_CALL_MS_MAX),
        "VerifyEvidence": Rule(roles=_READERS, deadline_ms_max=VERIFY_CALL_MS_MAX),
        "IntegrateTask": Rule(roles=_COORDINATOR, deadline_ms_max=INTEGRATE_CALL_MS_MAX),
    }
)


class ProvidersServicer:
    """ProvidersService behind the guard: callers are verified and their roles checked before a method is entered."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def Describe(self, request: pb.DescribeRequest, call: Call) -> pb.DescribeResponse:
        return translate.description_to_proto(await describe(self._ports))

    async def ListProviders(self, request: pb.ListProvidersRequest, call: Call) -> pb.ListProvidersResponse:
        return translate.providers_to_proto(await list_providers(self._ports))

    async def ListModels(self, request: pb.ListModelsRequest, call: Call) -> pb.ListModelsResponse:
        return translate.models_to_proto(await list_models(self._ports, request.provider, refresh=request.refresh))

    async def GetRuntime(self, request: pb.GetRuntimeRequest, call: Call) -> pb.GetRuntimeResponse:
        found = await get_runtime(self._ports, call.caller, request.agent_id)
        return pb.GetRuntimeResponse(runtime=translate.runtime_to_proto(found))

    async def GetCapabilities(self, request: pb.GetCapabilitiesRequest, call: Call) -> pb.GetCapabilitiesResponse:
        return translate.capabilities_to_proto(await get_capabilities(self._ports, call.caller, request.agent_id))

    async def RestartRuntime(self, request: pb.RestartRuntimeRequest, call: Call) -> pb.RestartRuntimeResponse:
        found = await restart_runtime(self._ports, call.caller, request.agent_id, wait_ms=request.wait_ms)
        return pb.RestartRuntimeResponse(runtime=translate.runtime_to_proto(found))

    async def BeginConversation(self, request: pb.BeginConversationRequest, call: Call) -> pb.BeginConversationResponse:
        found = await begin_conversation(
            self._ports,
            call.caller,
            request.agent_id,
            expected_conversation_id=request.expected_conversation_id,
            wait_ms=request.wait_ms,
        )
        return pb.BeginConversationResponse(runtime=translate.runtime_to_proto(found))

    async def InterruptTurn(self, request: pb.InterruptTurnRequest, call: Call) -> pb.InterruptTurnResponse:
        done = await interrupt_turn(self._ports, call.caller, target=request.target, turn_id=request.turn_id)
        return translate.interrupted_to_proto(done)

    async def AttachTerminal(
        self, request: pb.AttachTerminalRequest, call: Call
    ) -> AsyncIterator[pb.AttachTerminalResponse]:
        permits = Permits(trust_workspace=request.trust_workspace, skip_update_check=request.skip_update_check)
        steps = attach_terminal(
            self._ports, call.caller, request.agent_id, wait_idle_ms=request.wait_idle_ms, permits=permits
        )
        async with aclosing(steps):  # type: ignore[type-var]
            async for step in steps:
                yield translate.step_to_proto(step)

    async def WatchConversation(
        self, request: pb.WatchConversationRequest, call: Call
    ) -> AsyncIterator[pb.WatchConversationResponse]:
        rows = watch_conversation(self._ports, call.caller, request.agent_id, after=request.after)
        async with aclosing(rows):  # type: ignore[type-var]
            async for placed in rows:
                yield translate.row_to_proto(placed)
        raise Draining("providers is stopping, or the agent is gone: watch again from the last position")

    async def InspectRuntime(self, request: pb.InspectRuntimeRequest, call: Call) -> pb.InspectRuntimeResponse:
        return translate.inspection_to_proto(await inspect_runtime(self._ports, call.caller, request.agent_id))

    async def ApproveTools(self, request: pb.ApproveToolsRequest, call: Call) -> pb.ApproveToolsResponse:
        done = await approve_tools(self._ports, call.caller, request.agent_id, list(request.tools))
        return pb.ApproveToolsResponse(approved=done.tools, restart_required=done.restart_required)

    async def IntegrateTask(self, request: pb.IntegrateTaskRequest, call: Call) -> pb.IntegrateTaskResponse:
        done = await integrate_task(
            self._ports,
            call.caller,
            task_id=request.task_id,
            commit=request.commit,
            note=request.note,
            expected_version=request.expected_version,
            request_id=request.request_id,
        )
        return translate.integrated_to_proto(done)

    async def VerifyEvidence(self, request: pb.VerifyEvidenceRequest, call: Call) -> pb.VerifyEvidenceResponse:
        ids = tuple(request.evidence_ids)
        return translate.checked_to_proto(
            await verify_evidence(self._ports, call.caller, task_id=request.task_id, evidence_ids=ids)
        )
