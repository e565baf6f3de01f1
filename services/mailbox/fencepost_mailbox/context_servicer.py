"""One line of meaning a method of ContextService.

The guard in front of it has authenticated the caller and checked its role and deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fencepost.mailbox.v1 import context_pb2 as pb
from fencepost_kit.guard import Call, Rule
from fencepost_kit.identity import Role
from fencepost_mailbox import context_translate as wire
from fencepost_mailbox import translate
from fencepost_mailbox.usecases.context.look import LookAtContext
from fencepost_mailbox.usecases.context.publish import PublishContext, UpdateProjectMemory
from fencepost_mailbox.usecases.ports import Ports

CONTEXT_CALL_MS_MAX: Final = 10_000

_EVERYBODY: Final = frozenset({Role.AGENT, Role.COORDINATOR, Role.OPERATOR})
_RULE: Final = Rule(roles=_EVERYBODY, deadline_ms_max=CONTEXT_CALL_MS_MAX)

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "PublishContext": _RULE,
        "GetContext": _RULE,
        "ListContexts": _RULE,
        "ListContextVersions": _RULE,
        "BootstrapProject": _RULE,
        "UpdateProjectMemory": _RULE,
        "GetProjectMemory": _RULE,
        "ListProjectMemory": _RULE,
    }
)


class ContextServicer:
    """fencepost.mailbox.v1.ContextService."""

    def __init__(self, ports: Ports) -> None:
        self._names = translate.Namer(ports.directory)
        self._publish = PublishContext(ports)
        self._remember = UpdateProjectMemory(ports)
        self._look = LookAtContext(ports)

    async def PublishContext(self, request: pb.PublishContextRequest, call: Call) -> pb.PublishContextResponse:
        """See context.proto, as for every method here."""
        written = await self._publish(call.caller, wire.publish_command(request))
        return wire.published_response(request.key, written)

    async def GetContext(self, request: pb.GetContextRequest, call: Call) -> pb.GetContextResponse:
        project_id = translate.optional_uuid(request.project_id)
        shown = await self._look.get(call.caller, project_id, request.key, request.version)
        return pb.GetContextResponse(context=wire.context(shown, self._names))

    async def ListContexts(self, request: pb.ListContextsRequest, call: Call) -> pb.ListContextsResponse:
        page = await self._look.list_contexts(
            call.caller,
            translate.optional_uuid(request.project_id),
            prefix=request.prefix,
            pinned_only=request.pinned_only,
            size=request.page_size,
            token=request.page_token,
        )
        contexts = [wire.context(one, self._names) for one in page.contexts]
        return pb.ListContextsResponse(contexts=contexts, next_page_token=page.next_token)

    async def ListContextVersions(
        self, request: pb.ListContextVersionsRequest, call: Call
    ) -> pb.ListContextVersionsResponse:
        page = await self._look.list_versions(
            call.caller,
            translate.optional_uuid(request.project_id),
            key=request.key,
            size=request.page_size,
            token=request.page_token,
        )
        contexts = [wire.context(one, self._names) for one in page.contexts]
        return pb.ListContextVersionsResponse(contexts=contexts, next_page_token=page.next_token)

    async def BootstrapProject(self, request: pb.BootstrapProjectRequest, call: Call) -> pb.BootstrapProjectResponse:
        beginning = await self._look.bootstrap(call.caller, translate.optional_uuid(request.project_id))
        return wire.bootstrap_response(beginning, self._names)

    async def UpdateProjectMemory(
        self, request: pb.UpdateProjectMemoryRequest, call: Call
    ) -> pb.UpdateProjectMemoryResponse:
        return wire.remembered_response(await self._remember(call.caller, wire.remember_command(request)))

    async def GetProjectMemory(self, request: pb.GetProjectMemoryRequest, call: Call) -> pb.GetProjectMemoryResponse:
        project_id = translate.optional_uuid(request.project_id)
        found = await self._look.memory(call.caller, project_id, request.version)
        return pb.GetProjectMemoryResponse(memory=wire.memory(found, self._names))

    async def ListProjectMemory(self, request: pb.ListProjectMemoryRequest, call: Call) -> pb.ListProjectMemoryResponse:
        page = await self._look.list_memory(
            call.caller,
            translate.optional_uuid(request.project_id),
            size=request.page_size,
            token=request.page_token,
        )
        versions = [wire.memory(one, self._names) for one in page.versions]
        return pb.ListProjectMemoryResponse(versions=versions, next_page_token=page.next_token)
