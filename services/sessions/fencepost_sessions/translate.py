"""Protobuf on one side, the domain on the other: the only file that knows both, and the table of statuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import grpc

from fencepost.common.v1 import common_pb2
from fencepost.sessions.v1 import sessions_pb2 as pb
from fencepost_kit import identity
from fencepost_kit.refusal import Refusal
from fencepost_sessions.domain import refusals
from fencepost_sessions.domain.agents import Agent, AgentState
from fencepost_sessions.domain.credentials import Credential
from fencepost_sessions.domain.directory import Step
from fencepost_sessions.domain.identifiers import uuid_text
from fencepost_sessions.domain.launch import LaunchChange, LaunchSettings
from fencepost_sessions.domain.leases import Lease, Moment
from fencepost_sessions.domain.paging import Page
from fencepost_sessions.domain.projects import Project
from fencepost_sessions.domain.roles import Caller, Role
from fencepost_sessions.domain.status import Status
from fencepost_sessions.usecases.acquire_lease import AcquireLease, LeaseAcquired
from fencepost_sessions.usecases.begin_generation import BeginGeneration, GenerationBegun
from fencepost_sessions.usecases.create_agent import AgentCreated, CreateAgent
from fencepost_sessions.usecases.delete_agent import DeleteAgent, DeletionShown
from fencepost_sessions.usecases.describe import Description
from fencepost_sessions.usecases.ensure_project import EnsureProject, ProjectStands
from fencepost_sessions.usecases.get_agent import AgentShown
from fencepost_sessions.usecases.get_caller import CallerShown
from fencepost_sessions.usecases.list_agents import AgentListed
from fencepost_sessions.usecases.report_status import ReportStatus
from fencepost_sessions.usecases.revoke_credential import Revoked
from fencepost_sessions.usecases.set_conversation import SetConversation
from fencepost_sessions.usecases.update_agent import AgentUpdated, UpdateAgent
from fencepost_sessions.usecases.watch_directory import WatchDirectory

STATUS_OF: Final[Mapping[type[Refusal], grpc.StatusCode]] = MappingProxyType(
    {
        refusals.InvalidName: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.InvalidToolsProfile: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.InvalidRole: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.InvalidProvider: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.InvalidWorkspace: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.InvalidLocation: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.InvalidTarget: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.AmbiguousTarget: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.InvalidIdempotencyKey: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.InvalidLimit: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.InvalidCursor: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.InvalidLaunchSettings: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.InvalidCustomArguments: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.InvalidDesiredState: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.InvalidConversation: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.InvalidLease: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.InvalidStatus: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.NotFound: grpc.StatusCode.NOT_FOUND,
        refusals.NameTaken: grpc.StatusCode.ALREADY_EXISTS,
        refusals.IdempotencyConflict: grpc.StatusCode.ALREADY_EXISTS,
        refusals.ConfirmationMismatch: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.AgentDeleted: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.InvalidState: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.NameQuarantined: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.ConflictingKind: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.EpochMismatch: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.InvalidRevision: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.LeaseHeld: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.ConversationConflict: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.LeaseLost: grpc.StatusCode.ABORTED,
        refusals.StaleStatus: grpc.StatusCode.ABORTED,
        refusals.StaleGeneration: grpc.StatusCode.ABORTED,
        refusals.LimitReached: grpc.StatusCode.RESOURCE_EXHAUSTED,
        refusals.StorageError: grpc.StatusCode.UNAVAILABLE,
    }
)


def role_to_proto(role: Role) -> common_pb2.Role.ValueType:
    """Return the role of the contract: the numbers are the same."""
    return common_pb2.Role.ValueType(int(role))


def caller_of_credential(credential: Credential) -> identity.Caller:
    """Return who a credential speaks for, as the guard knows callers."""
    return identity.Caller(
        credential_id=credential.credential_id,
        role=identity.Role(int(credential.role)),
        agent_id=credential.agent_id,
        project_id=credential.project_id,
        generation=credential.generation,
        label=credential.label,
    )


def caller_from_kit(caller: identity.Caller) -> Caller:
    """Return the caller that the guard verified."""
    return Caller(
        credential_id=caller.credential_id,
        role=Role(caller.role.value),
        agent_id=caller.agent_id,
        project_id=caller.project_id,
        label=caller.label,
    )


def _optional_id(value: bytes | None) -> str:
    return "" if value is None else uuid_text(value)


def project_to_proto(project: Project) -> pb.Project:
    """Return a project."""
    return pb.Project(
        project_id=uuid_text(project.project_id),
        name=project.name,
        kind=pb.ProjectKind.ValueType(int(project.kind)),
        location=project.location,
        created_at_ms=project.created_at_ms,
        tools_profile=project.tools_profile,
    )


# Texts of the settings, by their names in the contract and here.
_LAUNCH_TEXTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "class": "class_name",
        "model": "model",
        "effort": "effort",
        "sandbox": "sandbox",
        "approval": "approval",
        "session_policy": "session_policy",
        "custom_arguments": "custom_arguments",
        "checkout_root": "checkout_root",
        "capture": "capture",
        "tools_profile": "tools_profile",
    }
)


def launch_to_proto(launch: LaunchSettings) -> pb.LaunchSettings:
    """Return launch settings; what is the program's own default is absent."""
    shown = pb.LaunchSettings(
        include_directories=launch.include_directories,
        deliver_when_active=pb.DeliverWhenActive.ValueType(int(launch.deliver_when_active)),
    )
    for theirs, ours in _LAUNCH_TEXTS.items():
        if text := getattr(launch, ours):
            setattr(shown, theirs, text)
    return shown


def launch_from_proto(launch: pb.LaunchSettings, *, new: bool) -> LaunchChange:
    """Return the change of settings; absent fields are None. A new agent takes its directories as they are given.

    Raises:
        InvalidLaunchSettings: a change names directories and does not say that it replaces them.
    """
    replaces = launch.set_include_directories or (new and bool(launch.include_directories))
    if launch.include_directories and not replaces:
        raise refusals.InvalidLaunchSettings(
            "the change names include_directories and does not say that it replaces them; nothing was written",
            hint="Set set_include_directories to replace the list, or leave include_directories out.",
            state={"field": "include_directories"},
        )
    texts = {ours: getattr(launch, theirs) for theirs, ours in _LAUNCH_TEXTS.items() if launch.HasField(theirs)}  # type: ignore[arg-type]
    return LaunchChange(
        include_directories=tuple(launch.include_directories) if replaces else None,
        deliver_when_active=launch.deliver_when_active or None,
        **texts,
    )


def status_to_proto(status: Status) -> pb.AgentStatus:
    """Return what was observed."""
    return pb.AgentStatus(
        state=pb.ObservedState.ValueType(int(status.state)),
        evidence=pb.EvidenceKind.ValueType(int(status.evidence)),
        detail=status.detail,
        turn_id=status.turn_id,
        observed_at_ms=status.observed_at_ms,
        generation=status.generation,
        sequence=status.sequence,
    )


def lease_to_proto(lease: Lease, moment: Moment) -> pb.Lease:
    """Return a lease, its expiry on the wall's clock of `moment`."""
    return pb.Lease(
        acquisition_id=uuid_text(lease.acquisition_id),
        agent_id=uuid_text(lease.agent_id),
        conversation_id=lease.conversation_id,
        kind=pb.LeaseKind.ValueType(int(lease.kind)),
        holder=lease.holder,
        generation=lease.generation,
        fence=lease.fence,
        term_ms=lease.term_ms,
        expires_at_ms=moment.unix_of(lease.expires_at_ms),
        acquired_at_ms=lease.acquired_at_ms,
    )


def agent_to_proto(agent: Agent, status: Status | None = None) -> pb.Agent:
    """Return an agent, with what was observed of its runtime where that is asked for and anything was."""
    return pb.Agent(
        agent_id=uuid_text(agent.agent_id),
        project_id=uuid_text(agent.project_id),
        name=agent.name,
        role=role_to_proto(agent.role),
        provider=agent.provider,
        workspace=agent.workspace,
        generation=agent.generation,
        created_at_ms=agent.created_at_ms,
        revision=agent.revision,
        state=pb.AGENT_STATE_DELETING if agent.state is AgentState.DELETING else pb.AGENT_STATE_ACTIVE,
        desired=pb.DesiredState.ValueType(int(agent.desired)),
        launch=launch_to_proto(agent.launch),
        conversation_id=agent.conversation_id,
        status=None if status is None else status_to_proto(status),
    )


def agent_to_reader(agent: Agent, status: Status | None, reader: Caller) -> pb.Agent:
    """Return an agent as a reader may see it.

    How a program is started may hold what is nobody else's business (custom arguments, keys on a command line), and a
    conversation is its owner's: other agents are not shown either.
    """
    shown = agent_to_proto(agent, status)
    if reader.role is not Role.OPERATOR and reader.agent_id != agent.agent_id:
        shown.launch.CopyFrom(pb.LaunchSettings())
        shown.ClearField("conversation_id")
    return shown


def credential_to_proto(credential: Credential) -> pb.Credential:
    """Return a credential for people: without its hash."""
    return pb.Credential(
        credential_id=uuid_text(credential.credential_id),
        agent_id=_optional_id(credential.agent_id),
        project_id=_optional_id(credential.project_id),
        role=role_to_proto(credential.role),
        generation=credential.generation,
        created_at_ms=credential.created_at_ms,
        revision=credential.appeared_revision,
        label=credential.label,
    )


def credential_to_service(credential: Credential) -> pb.Credential:
    """Return a credential for a service: with its hash, by which the service knows callers."""
    shown = credential_to_proto(credential)
    shown.token_sha256 = credential.token_sha256
    return shown


def description_to_proto(description: Description) -> pb.DescribeResponse:
    """Return what runs here."""
    return pb.DescribeResponse(
        version=description.version,
        schema_version=description.schema_version,
        epoch=uuid_text(description.directory.epoch),
        revision=description.directory.revision,
    )


def caller_to_proto(shown: CallerShown) -> pb.GetCallerResponse:
    """Return who the caller is."""
    return pb.GetCallerResponse(
        credential=credential_to_proto(shown.credential),
        agent=None if shown.agent is None else agent_to_proto(shown.agent),
        project=None if shown.project is None else project_to_proto(shown.project),
    )


def ensure_project_from_proto(request: pb.EnsureProjectRequest) -> EnsureProject:
    """Return the location that is named."""
    return EnsureProject(
        idempotency_key=request.idempotency_key, kind=request.kind, location=request.location, name=request.name
    )


def project_stands_to_proto(answer: ProjectStands) -> pb.EnsureProjectResponse:
    """Return the project that stands."""
    return pb.EnsureProjectResponse(project=project_to_proto(answer.project), created=answer.created)


def projects_to_proto(page: Page[Project]) -> pb.ListProjectsResponse:
    """Return a page of projects."""
    return pb.ListProjectsResponse(
        projects=[project_to_proto(project) for project in page.rows], next_page_token=page.next_token
    )


def create_agent_from_proto(request: pb.CreateAgentRequest) -> CreateAgent:
    """Return the described agent; an unspecified role is none."""
    return CreateAgent(
        idempotency_key=request.idempotency_key,
        project_id=request.project_id,
        name=request.name,
        role=request.role or None,
        provider=request.provider,
        workspace=request.workspace,
        desired=request.desired,
        launch=launch_from_proto(request.launch, new=True),
    )


def agent_created_to_proto(answer: AgentCreated, credential_file: str) -> pb.CreateAgentResponse:
    """Return the created agent."""
    return pb.CreateAgentResponse(
        agent=agent_to_proto(answer.agent), credential_file=credential_file, duplicate=answer.duplicate
    )


def agents_to_proto(page: Page[AgentListed], reader: Caller) -> pb.ListAgentsResponse:
    """Return a page of agents."""
    agents = [agent_to_reader(listed.agent, listed.status, reader) for listed in page.rows]
    return pb.ListAgentsResponse(agents=agents, next_page_token=page.next_token)


def agent_shown_to_proto(shown: AgentShown, reader: Caller) -> pb.GetAgentResponse:
    """Return one agent."""
    agent = agent_to_reader(shown.agent, shown.status, reader)
    return pb.GetAgentResponse(agent=agent, credential_file=shown.credential_file)


def update_agent_from_proto(request: pb.UpdateAgentRequest) -> UpdateAgent:
    """Return the change; absent fields are None."""
    return UpdateAgent(
        idempotency_key=request.idempotency_key,
        agent_id=request.agent_id,
        name=request.name if request.HasField("name") else None,
        role=request.role if request.HasField("role") else None,
        provider=request.provider if request.HasField("provider") else None,
        workspace=request.workspace if request.HasField("workspace") else None,
        desired=request.desired,
        launch=launch_from_proto(request.launch, new=False),
    )


def agent_updated_to_proto(answer: AgentUpdated) -> pb.UpdateAgentResponse:
    """Return the changed agent."""
    return pb.UpdateAgentResponse(agent=agent_to_proto(answer.agent), duplicate=answer.duplicate)


def delete_agent_from_proto(request: pb.DeleteAgentRequest) -> DeleteAgent:
    """Return which agent is to be deleted."""
    return DeleteAgent(
        idempotency_key=request.idempotency_key, agent_id=request.agent_id, confirm_name=request.confirm_name
    )


def deletion_to_proto(shown: DeletionShown) -> pb.DeleteAgentResponse:
    """Return how far a deletion has come."""
    return pb.DeleteAgentResponse(agent=agent_to_proto(shown.agent), duplicate=shown.duplicate, finished=shown.finished)


def begin_generation_from_proto(request: pb.BeginGenerationRequest) -> BeginGeneration:
    """Return which life is to begin."""
    return BeginGeneration(
        idempotency_key=request.idempotency_key,
        agent_id=request.agent_id,
        expected_generation=request.expected_generation,
        acquisition_id=request.acquisition_id,
    )


def acquire_lease_from_proto(request: pb.AcquireLeaseRequest) -> AcquireLease:
    """Return which lease is asked for."""
    return AcquireLease(
        idempotency_key=request.idempotency_key,
        agent_id=request.agent_id,
        kind=request.kind,
        holder=request.holder,
        term_ms=request.term_ms,
        expected_generation=request.expected_generation,
    )


def lease_acquired_to_proto(answer: LeaseAcquired) -> pb.AcquireLeaseResponse:
    """Return the lease taken."""
    return pb.AcquireLeaseResponse(lease=lease_to_proto(answer.lease, answer.moment), duplicate=answer.duplicate)


def leases_to_proto(leases: Sequence[Lease], moment: Moment) -> pb.ListLeasesResponse:
    """Return the leases that stand."""
    return pb.ListLeasesResponse(leases=[lease_to_proto(lease, moment) for lease in leases])


def report_status_from_proto(request: pb.ReportStatusRequest) -> ReportStatus:
    """Return what was observed."""
    status = request.status
    return ReportStatus(
        agent_id=request.agent_id,
        acquisition_id=request.acquisition_id,
        state=status.state,
        evidence=status.evidence,
        detail=status.detail,
        turn_id=status.turn_id,
        observed_at_ms=status.observed_at_ms,
        generation=status.generation,
        sequence=status.sequence,
    )


def set_conversation_from_proto(request: pb.SetConversationRequest) -> SetConversation:
    """Return which conversation is to be bound."""
    return SetConversation(
        agent_id=request.agent_id,
        acquisition_id=request.acquisition_id,
        generation=request.generation,
        conversation_id=request.conversation_id,
        replace=request.replace,
    )


def generation_begun_to_proto(answer: GenerationBegun, credential_file: str) -> pb.BeginGenerationResponse:
    """Return the begun life."""
    return pb.BeginGenerationResponse(
        generation=answer.generation, credential_file=credential_file, duplicate=answer.duplicate
    )


def credentials_to_proto(page: Page[Credential]) -> pb.ListCredentialsResponse:
    """Return a page of credentials."""
    return pb.ListCredentialsResponse(
        credentials=[credential_to_proto(credential) for credential in page.rows], next_page_token=page.next_token
    )


def revoked_to_proto(revoked: Revoked) -> pb.RevokeCredentialResponse:
    """Return what became of a removal."""
    return pb.RevokeCredentialResponse(revision=revoked.revision, enforced=revoked.enforced)


def agent_found_to_proto(agent: Agent, revision: int) -> pb.LookupAgentResponse:
    """Return what a target means."""
    return pb.LookupAgentResponse(agent=agent_to_proto(agent), revision=revision)


def credential_found_to_proto(credential: Credential, revision: int) -> pb.LookupCredentialResponse:
    """Return what a token means."""
    return pb.LookupCredentialResponse(credential=credential_to_service(credential), revision=revision)


def watch_from_proto(request: pb.WatchDirectoryRequest) -> WatchDirectory:
    """Return from where a follower goes on."""
    return WatchDirectory(epoch=request.epoch, revision=request.revision, follower=request.follower)


def step_to_proto(step: Step) -> pb.WatchDirectoryResponse:
    """Return a step of the directory."""
    return pb.WatchDirectoryResponse(
        epoch=uuid_text(step.epoch),
        revision=step.revision,
        snapshot_begin=step.snapshot_begin,
        snapshot_end=step.snapshot_end,
        agents=[agent_to_proto(agent) for agent in step.agents],
        credentials=[credential_to_service(credential) for credential in step.credentials],
        removed_credential_ids=[uuid_text(removal.credential_id) for removal in step.removals],
        removed_agent_ids=[uuid_text(tombstone.agent_id) for tombstone in step.tombstones],
    )
