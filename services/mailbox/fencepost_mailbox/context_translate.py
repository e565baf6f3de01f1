"""What shared context and project memory look like on the wire: translate.py's part for context.proto."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import grpc

from fencepost.common.v1 import common_pb2 as common
from fencepost.mailbox.v1 import context_pb2 as pb
from fencepost_kit.ids import uuid_bytes, uuid_text
from fencepost_kit.refusal import Refusal
from fencepost_mailbox import translate
from fencepost_mailbox.domain.context import refusals
from fencepost_mailbox.domain.context.values import Memory, ShownContext
from fencepost_mailbox.usecases.context import look, publish

CONTEXT_STATUS_OF: Final[Mapping[type[Refusal], grpc.StatusCode]] = MappingProxyType(
    {
        refusals.InvalidContext: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.ContextLimit: grpc.StatusCode.FAILED_PRECONDITION,
    }
)


def publish_command(request: pb.PublishContextRequest) -> publish.Publish:
    """Return what PublishContext asks for.

    Raises:
        MalformedId: an id is no UUID.
    """
    return publish.Publish(
        key=request.key,
        content=request.content,
        pinned=request.pinned if request.HasField("pinned") else None,
        expected_version=request.expected_version,
        request_id=uuid_bytes(request.request_id),
        project_id=translate.optional_uuid(request.project_id),
    )


def remember_command(request: pb.UpdateProjectMemoryRequest) -> publish.Remember:
    """Return what UpdateProjectMemory asks for.

    Raises:
        MalformedId: an id is no UUID.
    """
    return publish.Remember(
        content=request.content,
        expected_version=request.expected_version,
        request_id=uuid_bytes(request.request_id),
        project_id=translate.optional_uuid(request.project_id),
    )


def published_response(key: str, written: publish.Written) -> pb.PublishContextResponse:
    """Return the answer of PublishContext."""
    return pb.PublishContextResponse(
        key=key, version=written.version, published_at_ms=written.at_ms, duplicate=written.duplicate
    )


def remembered_response(written: publish.Written) -> pb.UpdateProjectMemoryResponse:
    """Return the answer of UpdateProjectMemory."""
    return pb.UpdateProjectMemoryResponse(
        version=written.version, updated_at_ms=written.at_ms, duplicate=written.duplicate
    )


def context(shown: ShownContext, names: translate.Namer) -> pb.Context:
    """Return a version of a context as its reader sees it."""
    version, topic = shown.version, shown.topic
    return pb.Context(
        key=version.key,
        version=version.version,
        content=version.content,
        content_bytes=version.content_bytes,
        pinned=topic.pinned,
        publisher=names.ref(version.publisher),
        published_at_ms=version.published_at_ms,
        newest_version=topic.newest,
    )


def memory(found: Memory, names: translate.Namer) -> pb.ProjectMemory:
    """Return a version of a project's memory as its reader sees it."""
    return pb.ProjectMemory(
        version=found.version,
        content=found.content,
        content_bytes=found.content_bytes,
        author=names.ref(found.author),
        updated_at_ms=found.updated_at_ms,
    )


def bootstrap_response(beginning: look.Beginning, names: translate.Namer) -> pb.BootstrapProjectResponse:
    """Return the answer of BootstrapProject."""
    return pb.BootstrapProjectResponse(
        project_id=uuid_text(beginning.project_id),
        memory=memory(beginning.memory, names),
        agents=[
            pb.ProjectAgent(
                agent=common.AgentRef(agent_id=uuid_text(agent.agent_id), name=agent.name),
                role=common.Role.ValueType(agent.role),
                provider=agent.provider,
                last_read_at_ms=read_at_ms,
            )
            for agent, read_at_ms in beginning.agents
        ],
        agent_count=beginning.agent_count,
        pinned=[context(one, names) for one in beginning.pinned],
        more_pinned=beginning.more_pinned,
    )
