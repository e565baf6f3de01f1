"""The tools of shared context and project memory."""

from __future__ import annotations

from typing import Final

from fencepost.mailbox.v1 import context_pb2 as pb
from fencepost_mcp_edge import context_translate as wire
from fencepost_mcp_edge.translate import Payload
from fencepost_mcp_edge.usecases.rows import Asking, Reading, paged, repeatable


async def _publish(asking: Asking) -> Payload:
    request = wire.publish_request(asking.arguments, asking.request_id)
    return wire.publish_result(await asking.caller.contexts.publish(request), asking.request_id)


async def _remember(asking: Asking) -> Payload:
    request = wire.memory_request(asking.arguments, asking.request_id)
    return wire.memory_result(await asking.caller.contexts.update_memory(request), asking.request_id)


async def _get(asking: Asking) -> Payload:
    key, version = asking.arguments["key"], asking.arguments.get("version", 0)
    return wire.get_result(await asking.caller.contexts.get(pb.GetContextRequest(key=key, version=version)))


async def _list(asking: Asking) -> Payload:
    request = pb.ListContextsRequest(
        prefix=asking.arguments.get("prefix", ""), pinned_only=asking.arguments.get("pinned", False)
    )

    async def some(size: int, cursor: str) -> tuple[list[Payload], str]:
        request.page_size, request.page_token = size, cursor
        response = await asking.caller.contexts.list_contexts(request)
        return [wire.context(one) for one in response.contexts], response.next_page_token

    page = await paged(asking, some)
    return {"operation": "context_list", "contexts": page.entries, "next_cursor": page.cursor or None}


async def _bootstrap(asking: Asking) -> Payload:
    return wire.bootstrap_result(await asking.caller.contexts.bootstrap(pb.BootstrapProjectRequest()))


WRITES: Final = (repeatable("context_publish", _publish), repeatable("project_memory_update", _remember))
READINGS: Final = (
    Reading(name="context_get", ask=_get),
    Reading(name="context_list", ask=_list),
    Reading(name="project_bootstrap", ask=_bootstrap),
)
