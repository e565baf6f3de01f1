"""The tools by which the agents of a supervised project know each other and talk."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from fencepost.client import Mailbox
from fencepost.errors import FencepostError
from fencepost.mailbox.v1 import mailbox_pb2 as mailbox
from fencepost.mailbox.v1 import tasks_pb2 as tasks
from fencepost.sessions.v1 import sessions_pb2 as sessions
from fencepost_mcp_edge import agent_translate as wire
from fencepost_mcp_edge import translate
from fencepost_mcp_edge.translate import Payload
from fencepost_mcp_edge.usecases.outcomes import ToolError
from fencepost_mcp_edge.usecases.rows import Asking, Mutation, Reading, paged

LISTED_AGENTS_MAX: Final = 500
NOTIFICATIONS_LISTED: Final = 20
SUPERVISED_LISTED: Final = 50
_TASK_PREFIX: Final = "task_"


async def _send(service: Mailbox, request: Any) -> Any:
    if isinstance(request, mailbox.RequestRequest):
        return await service.request(request)
    return await service.send(request)


async def _register(asking: Asking) -> Payload:
    known = await asking.caller.sessions.get_caller()
    if asking.arguments["name"] not in (known.agent.name, known.agent.agent_id):
        raise ToolError(
            "identity_disagreement",
            f"This server speaks for {known.agent.name} and for nobody else. Nothing was changed.",
            hint="Another agent needs a server of its own: fencepost-mcp --agent NAME.",
        )
    return wire.registered(known, asking.caller.run)


async def _list(asking: Asking) -> Payload:
    page, own_id = await asyncio.gather(
        asking.caller.sessions.list_agents(sessions.ListAgentsRequest(page_size=LISTED_AGENTS_MAX)),
        asking.caller.agent_id(),
    )
    try:
        known = translate.readings(await asking.caller.brief.list_readers([agent.agent_id for agent in page.agents]))
    except FencepostError:
        # Who exists is known all the same.
        known = None
    return wire.agents_result(
        page.agents,
        known,
        own_id=own_id,
        now_ms=time.time_ns() // 1_000_000,
        bytes_max=asking.page_bytes_max,
        more=bool(page.next_page_token),
    )


async def _inbox(asking: Asking) -> Payload:
    """Look at what stands first: reading messages shows them, and so comes last."""
    caller = asking.caller
    standing = await caller.tasks.list_notifications(tasks.ListNotificationsRequest(page_size=NOTIFICATIONS_LISTED))
    supervised = await caller.tasks.list_supervision(tasks.ListSupervisionRequest(page_size=SUPERVISED_LISTED))
    notifications, more = wire.notifications_of(standing, bytes_max=asking.page_bytes_max)
    room = asking.page_bytes_max - len(translate.encoded({"notifications": notifications}).encode())
    request = mailbox.ReceiveRequest(
        cursor=asking.arguments.get("cursor", ""),
        limit=asking.arguments.get("limit", 0),
        page_bytes_max=max(1, room),
    )
    page = await caller.mailbox.receive(request)
    return wire.inbox_result(page, notifications, supervised, more_notifications=more)


async def _acknowledge(asking: Asking) -> Payload:
    ids = asking.arguments["ids"]
    if ids[0].startswith(_TASK_PREFIX):
        return wire.retired_result(await asking.caller.tasks.acknowledge(ids))
    return wire.acknowledged_result(await asking.caller.mailbox.acknowledge(ids))


async def _thread(asking: Asking) -> Payload:
    request = mailbox.GetThreadRequest(
        id=asking.arguments["id"],
        page_size=asking.arguments.get("limit", 0),
        page_token=asking.arguments.get("cursor", ""),
        page_bytes_max=asking.page_bytes_max,
    )
    return wire.thread_result(await asking.caller.mailbox.get_thread(request))


async def _search(asking: Asking) -> Payload:
    request = mailbox.SearchRecordsRequest(query=asking.arguments["query"])
    complete = True

    async def some(size: int, cursor: str) -> tuple[list[Payload], str]:
        nonlocal complete
        request.page_size, request.page_token = size, cursor
        response = await asking.caller.mailbox.search_records(request)
        complete = complete and response.complete
        return [wire.found(one) for one in response.found], response.next_page_token

    page = await paged(asking, some)
    return {
        "operation": "message_search",
        "messages": page.entries,
        "next_cursor": page.cursor or None,
        "complete": complete,
    }


MUTATIONS: Final = (
    Mutation(name="agent_send", rpc=_send, to_request=wire.send_request, to_result=wire.send_result),
    Mutation(name="agent_reply", rpc=Mailbox.reply, to_request=wire.reply_request, to_result=wire.reply_result),
)
READINGS: Final = (
    Reading(name="agent_register", ask=_register),
    Reading(name="agent_list", ask=_list),
    Reading(name="agent_inbox", ask=_inbox),
    Reading(name="agent_ack", ask=_acknowledge),
    Reading(name="thread_get", ask=_thread),
    Reading(name="message_search", ask=_search),
)
