"""The only file that knows both protobuf and the domain, besides the links that carry it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import grpc

from fencepost.mailbox.v1 import evidence_pb2 as evidence_pb
from fencepost.mailbox.v1 import mailbox_pb2 as mailbox_pb
from fencepost.mailbox.v1 import tasks_pb2 as tasks_pb
from fencepost.providers.v1 import providers_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2 as sessions_pb
from fencepost_kit.ids import uuid_bytes, uuid_text
from fencepost_kit.refusal import Refusal
from fencepost_providers.domain import refusals
from fencepost_providers.domain.agents import Agent, Desired, Holder, Launch, WhenActive
from fencepost_providers.domain.carried import clipped
from fencepost_providers.domain.integration import Integrated, Place, Recorded, TaskFacts
from fencepost_providers.domain.runtimes import (
    ROW_BYTES_MAX,
    Capability,
    CapabilityKind,
    Catalogue,
    Delivery,
    Finding,
    Mode,
    Row,
    TurnBinding,
)
from fencepost_providers.domain.verification import (
    Checked,
    Claim,
    CommitClaim,
    DiffFileClaim,
    FileClaim,
    Reported,
    RunClaim,
)
from fencepost_providers.rows import Placed
from fencepost_providers.usecases import attach, describe, inspect, interrupt, look

STATUS_OF: Final[Mapping[type[Refusal], grpc.StatusCode]] = MappingProxyType(
    {
        refusals.ProvidersRefusal: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.NotFound: grpc.StatusCode.NOT_FOUND,
        refusals.AmbiguousTarget: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.UnknownProvider: grpc.StatusCode.NOT_FOUND,
        refusals.StaleTurn: grpc.StatusCode.ABORTED,
        refusals.ConversationConflict: grpc.StatusCode.ABORTED,
        refusals.AgentOff: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.StillBusy: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.UnsupportedCapability: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.CannotStart: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.InvalidTools: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.WatcherTooSlow: grpc.StatusCode.RESOURCE_EXHAUSTED,
        refusals.TooManyWatchers: grpc.StatusCode.RESOURCE_EXHAUSTED,
        refusals.StorageError: grpc.StatusCode.UNAVAILABLE,
        refusals.InvalidCommit: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.VersionConflict: grpc.StatusCode.ABORTED,
        refusals.RequestConflict: grpc.StatusCode.ABORTED,
        refusals.UnknownCommit: grpc.StatusCode.NOT_FOUND,
        refusals.BranchMoved: grpc.StatusCode.ABORTED,
        refusals.InvalidState: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.TaskRefused: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.GitUnavailable: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.GitFailed: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.NoMainCheckout: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.CheckoutBusy: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.CheckoutDirty: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.IncompleteHistory: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.MergeConflict: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.FilteredFiles: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.ChangeTooLarge: grpc.StatusCode.FAILED_PRECONDITION,
    }
)

MODELS_MAX: Final = 500
FINDINGS_MAX: Final = 100
FINDING_TEXT_BYTES_MAX: Final = 1024
HINT_BYTES_MAX: Final = 512

# --- from sessions ----------------------------------------------------------------------------------------------------


def agent_from_proto(message: sessions_pb.Agent) -> Agent:
    """Return an agent's record; a desired state that is not known leaves the agent alone."""
    launch = message.launch
    after_turn = launch.deliver_when_active == sessions_pb.DELIVER_WHEN_ACTIVE_AFTER_TURN
    known = {one.value for one in Desired}
    return Agent(
        agent_id=message.agent_id,
        project_id=message.project_id,
        name=message.name,
        provider=message.provider,
        workspace=message.workspace,
        generation=message.generation,
        revision=message.revision,
        deleting=message.state == sessions_pb.AGENT_STATE_DELETING,
        desired=Desired(message.desired) if message.desired in known else Desired.UNSPECIFIED,
        conversation_id=message.conversation_id,
        launch=Launch(
            agent_class=getattr(launch, "class"),
            model=launch.model,
            effort=launch.effort,
            sandbox=launch.sandbox,
            approval=launch.approval,
            session_policy=launch.session_policy,
            custom_arguments=launch.custom_arguments,
            include_directories=tuple(launch.include_directories),
            checkout_root=launch.checkout_root,
            tools_profile=launch.tools_profile,
            when_active=WhenActive.AFTER_TURN if after_turn else WhenActive.STEER,
        ),
    )


def holder_from_proto(message: sessions_pb.Credential) -> Holder:
    """Return whom a credential speaks for."""
    return Holder(
        credential_id=uuid_bytes(message.credential_id),
        token_sha256=message.token_sha256,
        role=message.role,
        agent_id=message.agent_id,
        project_id=message.project_id,
        generation=message.generation,
        label=message.label,
    )


def place_from_proto(message: sessions_pb.Project) -> Place:
    """Return where a project lies."""
    return Place(location=message.location, is_git=message.kind == sessions_pb.PROJECT_KIND_GIT)


# --- from and to mailbox ----------------------------------------------------------------------------------------------

_KINDS: Final[Mapping[int, str]] = MappingProxyType(
    {
        mailbox_pb.RECORD_KIND_INFORMATION: "information",
        mailbox_pb.RECORD_KIND_REQUEST: "request",
        mailbox_pb.RECORD_KIND_REPLY: "reply",
        mailbox_pb.RECORD_KIND_NOTICE: "notice",
        mailbox_pb.RECORD_KIND_PROMPT: "prompt",
        mailbox_pb.RECORD_KIND_WAKE: "wake",
    }
)
_STATUSES: Final[Mapping[int, str]] = MappingProxyType(
    {
        mailbox_pb.REPLY_STATUS_DONE: "done",
        mailbox_pb.REPLY_STATUS_BLOCKED: "blocked",
        mailbox_pb.REPLY_STATUS_FAILED: "failed",
    }
)


def delivery_from_proto(record: mailbox_pb.Record) -> Delivery:
    """Return a record on its way. A kind that is not known is no work: it is shown as information is."""
    return Delivery(
        record_id=record.record_id,
        kind=_KINDS.get(record.kind, "information"),
        sender=record.sender.name,
        sender_id=record.sender.agent_id,
        body=record.body,
        parent_id=record.parent_id,
        status=_STATUSES.get(record.reply_status, ""),
        possibly_seen=record.possibly_seen,
    )


def binding_to_proto(binding: TurnBinding) -> mailbox_pb.Binding:
    """Return a turn as the mailbox names it."""
    return mailbox_pb.Binding(
        provider=binding.provider,
        provider_session_id=binding.conversation_id,
        provider_turn_id=binding.turn_id,
        admission_mode=mailbox_pb.AdmissionMode.ValueType(binding.mode),
    )


def binding_from_proto(message: mailbox_pb.Binding) -> TurnBinding:
    """Return the turn that the mailbox names."""
    steered = message.admission_mode == mailbox_pb.ADMISSION_MODE_STEER
    return TurnBinding(
        provider=message.provider,
        conversation_id=message.provider_session_id,
        turn_id=message.provider_turn_id,
        mode=Mode.STEER if steered else Mode.START,
    )


# --- to callers -------------------------------------------------------------------------------------------------------


def description_to_proto(found: describe.Description) -> pb.DescribeResponse:
    """Return the service's description."""
    return pb.DescribeResponse(
        version=found.version,
        schema_version=found.schema_version,
        dispatcher_id=uuid_text(found.dispatcher.dispatcher_id),
        incarnation=found.dispatcher.incarnation,
        outbox=found.outbox,
        swept=found.swept,
    )


def _capabilities(found: Mapping[CapabilityKind, Capability]) -> list[pb.Capability]:
    return [
        pb.Capability(
            kind=pb.CapabilityKind.ValueType(kind),
            support=pb.Support.ValueType(one.support),
            reason=clipped(one.reason, HINT_BYTES_MAX),
        )
        for kind, one in sorted(found.items())
    ]


def providers_to_proto(found: Sequence[look.Offered]) -> pb.ListProvidersResponse:
    """Return the adapters in name order."""
    return pb.ListProvidersResponse(
        providers=[
            pb.Provider(
                name=one.name,
                title=one.title,
                version=one.installation.version,
                program=one.installation.program,
                problem=clipped(one.installation.problem, FINDING_TEXT_BYTES_MAX),
                capabilities=_capabilities(one.capabilities),
            )
            for one in found
        ]
    )


def models_to_proto(found: Catalogue) -> pb.ListModelsResponse:
    """Return a catalogue."""
    return pb.ListModelsResponse(
        models=[
            pb.Model(
                model=one.model,
                title=one.title,
                efforts=one.efforts,
                default_effort=one.default_effort,
                is_default=one.is_default,
            )
            for one in found.models[:MODELS_MAX]
        ],
        source=found.source,
        asked_at_ms=found.asked_at_ms,
        problem=found.problem,
    )


def capabilities_to_proto(found: look.Abilities) -> pb.GetCapabilitiesResponse:
    """Return what can be done with an agent's conversation."""
    return pb.GetCapabilitiesResponse(
        provider=found.provider, version=found.version, capabilities=_capabilities(found.capabilities)
    )


def runtime_to_proto(found: look.Runtime) -> pb.Runtime:
    """Return a runtime as it is now."""
    return pb.Runtime(
        agent_id=found.agent_id,
        provider=found.provider,
        state=pb.RuntimeState.ValueType(found.phase),
        activity=pb.Activity.ValueType(found.activity.state),
        turn_id=found.activity.turn_id,
        conversation_id=found.conversation_id,
        generation=found.generation,
        pid=found.pid,
        version=found.version,
        problem=clipped(found.problem, FINDING_TEXT_BYTES_MAX),
        attached=found.attached,
        private_home=found.private_home,
        log_file=found.log_file,
        since_ms=found.since_ms,
    )


def interrupted_to_proto(found: interrupt.Done) -> pb.InterruptTurnResponse:
    """Return what came of an interruption."""
    return pb.InterruptTurnResponse(
        interruption=pb.Interruption.ValueType(found.interrupted.result),
        agent_id=found.agent_id,
        generation=found.generation,
        conversation_id=found.conversation_id,
        turn_id=found.interrupted.turn_id,
        detail=clipped(found.interrupted.detail, HINT_BYTES_MAX),
    )


def step_to_proto(step: attach.Step) -> pb.AttachTerminalResponse:
    """Return a step of an attachment."""
    match step:
        case attach.Waiting(turn_id=turn_id):
            return pb.AttachTerminalResponse(waiting_for_turn=turn_id)
        case attach.Launch(terminal=terminal):
            return pb.AttachTerminalResponse(
                launch=pb.Launch(
                    argv=terminal.argv,
                    environment=dict(terminal.environment),
                    working_directory=terminal.working_directory,
                )
            )
        case attach.Joined(runtime=runtime):
            return pb.AttachTerminalResponse(attached=runtime_to_proto(runtime))
        case attach.Ended(why=why):
            return pb.AttachTerminalResponse(ended=why)


def row_to_proto(placed: Placed) -> pb.WatchConversationResponse:
    """Return a row of a conversation, its words cut where they are too long."""
    row: Row = placed.row
    text = clipped(row.text, ROW_BYTES_MAX)
    return pb.WatchConversationResponse(
        position=placed.position,
        kind=pb.RowKind.ValueType(row.kind),
        text=text,
        cut=row.cut or len(text) < len(row.text),
        name=clipped(row.name, HINT_BYTES_MAX),
        turn_id=row.turn_id,
        at_ms=placed.at_ms,
        generation=placed.generation,
    )


def _finding(found: Finding) -> pb.Finding:
    return pb.Finding(
        code=found.code,
        gravity=pb.Gravity.ValueType(found.gravity),
        text=clipped(found.text, FINDING_TEXT_BYTES_MAX),
        hint=clipped(found.hint, HINT_BYTES_MAX),
    )


def inspection_to_proto(found: inspect.Inspection) -> pb.InspectRuntimeResponse:
    """Return what was found, gravest first."""
    gravest = sorted(found.findings, key=lambda one: (-one.gravity, one.code))
    return pb.InspectRuntimeResponse(
        runtime=runtime_to_proto(found.runtime),
        findings=[_finding(one) for one in gravest[:FINDINGS_MAX]],
        launch_arguments=found.launch_arguments,
        restart_required=found.restart_required,
    )


# --- integrations -----------------------------------------------------------------------------------------------------


def task_from_proto(message: tasks_pb.Task) -> TaskFacts:
    """Return a task as far as it is needed for its integration."""
    return TaskFacts(
        task_id=message.task_id,
        project_id=message.project_id,
        state=message.state,
        version=message.version,
        assignee_id=message.assignee.agent_id,
        archived=message.archived,
        issuer_id=message.issuer.agent_id,
        reviewer_id=message.reviewer.agent_id,
    )


def recorded_from_proto(message: tasks_pb.TaskChange) -> Recorded:
    """Return what the mailbox wrote."""
    return Recorded(
        task_id=message.task_id,
        revision=message.revision,
        version=message.version,
        at_ms=message.at_ms,
        sequence=message.sequence,
        duplicate=message.duplicate,
    )


def integrated_to_proto(done: Integrated) -> pb.IntegrateTaskResponse:
    """Return what came of an integration."""
    recorded = done.recorded
    return pb.IntegrateTaskResponse(
        task_id=recorded.task_id,
        revision=recorded.revision,
        version=recorded.version,
        at_ms=recorded.at_ms,
        sequence=recorded.sequence,
        duplicate=recorded.duplicate,
        integration=pb.IntegrationKind.ValueType(done.kind),
        branch=done.branch,
        head=done.head,
        fast_forward=done.fast_forward,
        detail=clipped(done.detail, HINT_BYTES_MAX),
    )


# --- evidence ---------------------------------------------------------------------------------------------------------


def reported_from_proto(message: evidence_pb.Evidence) -> Reported:
    """Return evidence as far as it is looked at."""
    return Reported(evidence_id=message.evidence_id, claim=_claim(message))


def _claim(message: evidence_pb.Evidence) -> Claim:
    match message.WhichOneof("descriptor"):
        case "file":
            return FileClaim(path=message.file.path, sha256=message.file.sha256, commit=message.file.commit)
        case "commit":
            return CommitClaim(commits=(message.commit.commit,))
        case "diff" if message.diff.path:
            return DiffFileClaim(path=message.diff.path)
        case "diff":
            return CommitClaim(commits=(message.diff.base, message.diff.head))
        case _:
            return RunClaim()


def checked_to_proto(checked: Sequence[Checked]) -> pb.VerifyEvidenceResponse:
    """Return what was found."""
    return pb.VerifyEvidenceResponse(
        evidence=[
            pb.CheckedEvidence(
                evidence_id=one.finding.evidence_id,
                verdict=pb.EvidenceVerdict.ValueType(one.finding.verdict),
                detail=one.finding.detail,
                checkout=one.finding.checkout,
                recorded_at_ms=one.recorded_at_ms,
            )
            for one in checked
        ]
    )
