"""One line a method: from the contract, through the use case, to the contract. Who may call what is the table RULES."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Final

from fencepost.sessions.v1 import sessions_pb2 as pb
from fencepost_kit.guard import Call, Rule
from fencepost_kit.identity import Role
from fencepost_sessions import translate
from fencepost_sessions.translate import caller_from_kit
from fencepost_sessions.usecases.acquire_lease import acquire_lease
from fencepost_sessions.usecases.begin_generation import begin_generation
from fencepost_sessions.usecases.confirm_revision import confirm_revision
from fencepost_sessions.usecases.create_agent import create_agent
from fencepost_sessions.usecases.delete_agent import delete_agent, finish_deletion
from fencepost_sessions.usecases.describe import describe
from fencepost_sessions.usecases.ensure_project import ensure_project
from fencepost_sessions.usecases.get_agent import get_agent
from fencepost_sessions.usecases.get_caller import get_caller
from fencepost_sessions.usecases.list_agents import list_agents
from fencepost_sessions.usecases.list_credentials import list_credentials
from fencepost_sessions.usecases.list_leases import list_leases
from fencepost_sessions.usecases.list_projects import list_projects
from fencepost_sessions.usecases.lookup_agent import lookup_agent
from fencepost_sessions.usecases.lookup_credential import lookup_credential
from fencepost_sessions.usecases.ports import Ports
from fencepost_sessions.usecases.release_lease import release_lease
from fencepost_sessions.usecases.renew_lease import renew_lease
from fencepost_sessions.usecases.report_status import report_status
from fencepost_sessions.usecases.revoke_credential import revoke_credential
from fencepost_sessions.usecases.set_conversation import set_conversation
from fencepost_sessions.usecases.update_agent import update_agent
from fencepost_sessions.usecases.update_project import update_project
from fencepost_sessions.usecases.watch_directory import watch_directory

READ_MS_MAX: Final = 5_000
WRITE_MS_MAX: Final = 15_000
# A watch that is older is ended as DEADLINE_EXCEEDED; its follower goes on from its revision.
WATCH_MS_MAX: Final = 24 * 3600 * 1000

_ANYBODY: Final = frozenset(Role)
_READERS: Final = frozenset({Role.AGENT, Role.COORDINATOR, Role.OPERATOR})
_OPERATOR: Final = frozenset({Role.OPERATOR})
_SERVICE: Final = frozenset({Role.SERVICE})

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "Describe": Rule(roles=_ANYBODY, deadline_ms_max=READ_MS_MAX),
        "GetCaller": Rule(roles=_ANYBODY, deadline_ms_max=READ_MS_MAX),
        "EnsureProject": Rule(roles=_OPERATOR, deadline_ms_max=WRITE_MS_MAX),
        "UpdateProject": Rule(roles=_OPERATOR, deadline_ms_max=WRITE_MS_MAX),
        "ListProjects": Rule(roles=_OPERATOR | _SERVICE, deadline_ms_max=READ_MS_MAX),
        "CreateAgent": Rule(roles=_OPERATOR, deadline_ms_max=WRITE_MS_MAX),
        "ListAgents": Rule(roles=_READERS, deadline_ms_max=READ_MS_MAX),
        "GetAgent": Rule(roles=_READERS, deadline_ms_max=READ_MS_MAX),
        "UpdateAgent": Rule(roles=_OPERATOR, deadline_ms_max=WRITE_MS_MAX),
        "DeleteAgent": Rule(roles=_OPERATOR, deadline_ms_max=WRITE_MS_MAX),
        "FinishDeletion": Rule(roles=_SERVICE, deadline_ms_max=WRITE_MS_MAX),
        "BeginGeneration": Rule(roles=_OPERATOR | _SERVICE, deadline_ms_max=WRITE_MS_MAX),
        "AcquireLease": Rule(roles=_OPERATOR | _SERVICE, deadline_ms_max=WRITE_MS_MAX),
        "RenewLease": Rule(roles=_OPERATOR | _SERVICE, deadline_ms_max=WRITE_MS_MAX),
        "ReleaseLease": Rule(roles=_OPERATOR | _SERVICE, deadline_ms_max=WRITE_MS_MAX),
        "ListLeases": Rule(roles=_OPERATOR | _SERVICE, deadline_ms_max=READ_MS_MAX),
        "ReportStatus": Rule(roles=_SERVICE, deadline_ms_max=WRITE_MS_MAX),
        "SetConversation": Rule(roles=_SERVICE, deadline_ms_max=WRITE_MS_MAX),
        "ListCredentials": Rule(roles=_OPERATOR, deadline_ms_max=READ_MS_MAX),
        "RevokeCredential": Rule(roles=_OPERATOR, deadline_ms_max=WRITE_MS_MAX),
        "LookupAgent": Rule(roles=_SERVICE, deadline_ms_max=READ_MS_MAX),
        "LookupCredential": Rule(roles=_SERVICE, deadline_ms_max=READ_MS_MAX),
        "WatchDirectory": Rule(roles=_SERVICE, deadline_ms_max=WATCH_MS_MAX),
        "ConfirmRevision": Rule(roles=_SERVICE, deadline_ms_max=READ_MS_MAX),
    }
)


class SessionsServicer:
    """SessionsService behind the guard: callers are verified and their roles checked before a method is entered."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def Describe(self, request: pb.DescribeRequest, call: Call) -> pb.DescribeResponse:
        return translate.description_to_proto(await describe(self._ports))

    async def GetCaller(self, request: pb.GetCallerRequest, call: Call) -> pb.GetCallerResponse:
        return translate.caller_to_proto(await get_caller(self._ports, caller_from_kit(call.caller)))

    async def EnsureProject(self, request: pb.EnsureProjectRequest, call: Call) -> pb.EnsureProjectResponse:
        wanted = translate.ensure_project_from_proto(request)
        return translate.project_stands_to_proto(
            await ensure_project(self._ports, caller_from_kit(call.caller), wanted)
        )

    async def UpdateProject(self, request: pb.UpdateProjectRequest, call: Call) -> pb.UpdateProjectResponse:
        tools_profile = request.tools_profile if request.HasField("tools_profile") else None
        project = await update_project(self._ports, project_id=request.project_id, tools_profile=tools_profile)
        return pb.UpdateProjectResponse(project=translate.project_to_proto(project))

    async def ListProjects(self, request: pb.ListProjectsRequest, call: Call) -> pb.ListProjectsResponse:
        page = await list_projects(self._ports, page_size=request.page_size, page_token=request.page_token)
        return translate.projects_to_proto(page)

    async def CreateAgent(self, request: pb.CreateAgentRequest, call: Call) -> pb.CreateAgentResponse:
        wanted = translate.create_agent_from_proto(request)
        return translate.agent_created_to_proto(*await create_agent(self._ports, caller_from_kit(call.caller), wanted))

    async def ListAgents(self, request: pb.ListAgentsRequest, call: Call) -> pb.ListAgentsResponse:
        caller = caller_from_kit(call.caller)
        page = await list_agents(
            self._ports,
            caller,
            project_id=request.project_id,
            page_size=request.page_size,
            page_token=request.page_token,
        )
        return translate.agents_to_proto(page, caller)

    async def GetAgent(self, request: pb.GetAgentRequest, call: Call) -> pb.GetAgentResponse:
        caller = caller_from_kit(call.caller)
        shown = await get_agent(self._ports, caller, target=request.target, project_id=request.project_id)
        return translate.agent_shown_to_proto(shown, caller)

    async def UpdateAgent(self, request: pb.UpdateAgentRequest, call: Call) -> pb.UpdateAgentResponse:
        wanted = translate.update_agent_from_proto(request)
        return translate.agent_updated_to_proto(await update_agent(self._ports, caller_from_kit(call.caller), wanted))

    async def DeleteAgent(self, request: pb.DeleteAgentRequest, call: Call) -> pb.DeleteAgentResponse:
        wanted = translate.delete_agent_from_proto(request)
        return translate.deletion_to_proto(await delete_agent(self._ports, caller_from_kit(call.caller), wanted))

    async def FinishDeletion(self, request: pb.FinishDeletionRequest, call: Call) -> pb.FinishDeletionResponse:
        caller = caller_from_kit(call.caller)
        revision = await finish_deletion(self._ports, caller, epoch=request.epoch, agent_id=request.agent_id)
        return pb.FinishDeletionResponse(revision=revision)

    async def BeginGeneration(self, request: pb.BeginGenerationRequest, call: Call) -> pb.BeginGenerationResponse:
        wanted = translate.begin_generation_from_proto(request)
        return translate.generation_begun_to_proto(
            *await begin_generation(self._ports, caller_from_kit(call.caller), wanted)
        )

    async def AcquireLease(self, request: pb.AcquireLeaseRequest, call: Call) -> pb.AcquireLeaseResponse:
        wanted = translate.acquire_lease_from_proto(request)
        return translate.lease_acquired_to_proto(await acquire_lease(self._ports, caller_from_kit(call.caller), wanted))

    async def RenewLease(self, request: pb.RenewLeaseRequest, call: Call) -> pb.RenewLeaseResponse:
        caller = caller_from_kit(call.caller)
        lease = await renew_lease(self._ports, caller, acquisition_id=request.acquisition_id, kind=request.kind)
        return pb.RenewLeaseResponse(lease=translate.lease_to_proto(*lease))

    async def ReleaseLease(self, request: pb.ReleaseLeaseRequest, call: Call) -> pb.ReleaseLeaseResponse:
        caller = caller_from_kit(call.caller)
        released = await release_lease(self._ports, caller, acquisition_id=request.acquisition_id)
        return pb.ReleaseLeaseResponse(released=released)

    async def ListLeases(self, request: pb.ListLeasesRequest, call: Call) -> pb.ListLeasesResponse:
        return translate.leases_to_proto(*await list_leases(self._ports, agent_id=request.agent_id))

    async def ReportStatus(self, request: pb.ReportStatusRequest, call: Call) -> pb.ReportStatusResponse:
        report = translate.report_status_from_proto(request)
        changed = await report_status(self._ports, caller_from_kit(call.caller), report)
        return pb.ReportStatusResponse(changed=changed)

    async def SetConversation(self, request: pb.SetConversationRequest, call: Call) -> pb.SetConversationResponse:
        wanted = translate.set_conversation_from_proto(request)
        agent = await set_conversation(self._ports, caller_from_kit(call.caller), wanted)
        return pb.SetConversationResponse(agent=translate.agent_to_proto(agent))

    async def ListCredentials(self, request: pb.ListCredentialsRequest, call: Call) -> pb.ListCredentialsResponse:
        page = await list_credentials(
            self._ports, agent_id=request.agent_id, page_size=request.page_size, page_token=request.page_token
        )
        return translate.credentials_to_proto(page)

    async def RevokeCredential(self, request: pb.RevokeCredentialRequest, call: Call) -> pb.RevokeCredentialResponse:
        return translate.revoked_to_proto(await revoke_credential(self._ports, request.credential_id))

    async def LookupAgent(self, request: pb.LookupAgentRequest, call: Call) -> pb.LookupAgentResponse:
        found = await lookup_agent(self._ports, project_id=request.project_id, target=request.target)
        return translate.agent_found_to_proto(*found)

    async def LookupCredential(self, request: pb.LookupCredentialRequest, call: Call) -> pb.LookupCredentialResponse:
        return translate.credential_found_to_proto(*await lookup_credential(self._ports, request.token_sha256))

    async def WatchDirectory(
        self, request: pb.WatchDirectoryRequest, call: Call
    ) -> AsyncIterator[pb.WatchDirectoryResponse]:
        steps = watch_directory(self._ports, caller_from_kit(call.caller), translate.watch_from_proto(request))
        async with aclosing(steps):
            async for step in steps:
                yield translate.step_to_proto(step)

    async def ConfirmRevision(self, request: pb.ConfirmRevisionRequest, call: Call) -> pb.ConfirmRevisionResponse:
        await confirm_revision(
            self._ports,
            caller_from_kit(call.caller),
            follower=request.follower,
            epoch=request.epoch,
            revision=request.revision,
        )
        return pb.ConfirmRevisionResponse()
