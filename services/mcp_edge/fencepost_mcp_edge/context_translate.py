"""Shared context and memory between the tools' JSON and the protobuf of ContextService."""

from __future__ import annotations

from fencepost.mailbox.v1 import context_pb2 as pb
from fencepost_mcp_edge.translate import ROLE, Arguments, InvalidReceipt, Payload, agent_of, moment


def publish_request(arguments: Arguments, request_id: str) -> pb.PublishContextRequest:
    """Return the PublishContext that context_publish stands for."""
    return pb.PublishContextRequest(
        key=arguments["key"],
        content=arguments["content"],
        pinned=arguments.get("pinned"),
        expected_version=arguments.get("expected_version", 0),
        request_id=request_id,
    )


def publish_result(response: pb.PublishContextResponse, request_id: str) -> Payload:
    """Return what context_publish stored. Raises InvalidReceipt."""
    if not response.key or not response.version:
        raise InvalidReceipt
    return {
        "operation": "context_publish",
        "key": response.key,
        "stored": True,
        "version": response.version,
        "published_at": moment(response.published_at_ms),
        "duplicate": response.duplicate,
        "request_id": request_id,
    }


def context(one: pb.Context) -> Payload:
    """Return a context without its content."""
    return {
        "key": one.key,
        "version": one.version,
        "newest_version": one.newest_version,
        "content_bytes": one.content_bytes,
        "pinned": one.pinned,
        "publisher": agent_of(one.publisher) if one.HasField("publisher") else None,
        "published_at": moment(one.published_at_ms),
    }


def get_result(response: pb.GetContextResponse) -> Payload:
    """Return the context of context_get."""
    return {"operation": "context_get", **context(response.context), "content": response.context.content}


def _memory(memory: pb.ProjectMemory) -> Payload:
    return {
        "version": memory.version,
        "content": memory.content,
        "author": agent_of(memory.author) if memory.HasField("author") else None,
        "updated_at": moment(memory.updated_at_ms),
    }


def bootstrap_result(response: pb.BootstrapProjectResponse) -> Payload:
    """Return everything to begin with."""
    return {
        "operation": "project_bootstrap",
        "project_id": response.project_id,
        "memory": _memory(response.memory),
        "agents": [
            {
                **agent_of(one.agent),
                "role": ROLE[one.role],
                "provider": one.provider or None,
                "last_read_at": moment(one.last_read_at_ms),
            }
            for one in response.agents
        ],
        "agent_count": response.agent_count,
        "pinned": [context(one) for one in response.pinned],
        "more_pinned": response.more_pinned,
    }


def memory_request(arguments: Arguments, request_id: str) -> pb.UpdateProjectMemoryRequest:
    """Return the UpdateProjectMemory that project_memory_update stands for."""
    return pb.UpdateProjectMemoryRequest(
        content=arguments["content"], expected_version=arguments["expected_version"], request_id=request_id
    )


def memory_result(response: pb.UpdateProjectMemoryResponse, request_id: str) -> Payload:
    """Return what project_memory_update stored. Raises InvalidReceipt."""
    if not response.version:
        raise InvalidReceipt
    return {
        "operation": "project_memory_update",
        "stored": True,
        "version": response.version,
        "updated_at": moment(response.updated_at_ms),
        "duplicate": response.duplicate,
        "request_id": request_id,
    }
