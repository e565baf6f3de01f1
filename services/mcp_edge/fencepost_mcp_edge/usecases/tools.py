"""The tool table of the edge: what each tool asks of which service. Arguments have been held to the registry before."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from fencepost.client import Mailbox
from fencepost.errors import FencepostError
from fencepost.mailbox.v1 import mailbox_pb2 as mailbox
from fencepost.mcp.registry import WAIT_MS_MAX
from fencepost.providers.v1 import providers_pb2 as providers
from fencepost.sessions.v1 import sessions_pb2 as sessions
from fencepost_mcp_edge import translate
from fencepost_mcp_edge.translate import Payload
from fencepost_mcp_edge.usecases import agent_tools, context_tools, evidence_tools, file_tools, task_tools
from fencepost_mcp_edge.usecases.outcomes import ToolError, sentence
from fencepost_mcp_edge.usecases.rows import Asking, Mutation, Reading, Wait, Write

PAGE_BYTES: Final = 24 * 1024
LISTED_AGENTS_MAX: Final = 500
_INSTEAD: Final = "Wait for its answer; to correct or remind it, use send_message."


async def _wait(asking: Asking) -> Payload:
    timeout_ms = asking.arguments.get("timeout_ms", WAIT_MS_MAX)
    within_ms = timeout_ms if asking.within_ms is None else min(timeout_ms, asking.within_ms)
    wait = Wait(mailbox.WaitRequest(timeout_ms=within_ms), asking.caller.mailbox.wait)
    return translate.wait_result(await wait.end())


async def _receive(asking: Asking) -> Payload:
    request = translate.receive_request(
        asking.arguments, within_ms=asking.within_ms, page_bytes_max=asking.page_bytes_max
    )
    return translate.receive_result(await Wait(request, asking.caller.mailbox.receive).end())


async def _list_agents(asking: Asking) -> Payload:
    page, own_id = await asyncio.gather(
        asking.caller.sessions.list_agents(sessions.ListAgentsRequest(page_size=LISTED_AGENTS_MAX)),
        asking.caller.agent_id(),
    )
    try:
        readers = await asking.caller.brief.list_readers([agent.agent_id for agent in page.agents])
        known = translate.readings(readers)
    except FencepostError:
        # Who exists is known all the same; the listing says what is not.
        known = None
    return translate.list_result(
        page.agents,
        known,
        own_id=own_id,
        now_ms=time.time_ns() // 1_000_000,
        bytes_max=asking.page_bytes_max,
        more=bool(page.next_page_token),
    )


async def _interrupt(asking: Asking) -> Payload:
    target = asking.arguments["target"]
    caller = asking.caller
    agent = (await caller.sessions.get_agent(sessions.GetAgentRequest(target=target))).agent
    if agent.desired == sessions.DESIRED_STATE_UNSPECIFIED:
        raise ToolError(
            "unsupported_capability",
            f"{agent.name} lives by itself: no provider of this home can interrupt it. Nothing happened.",
            hint=_INSTEAD,
        )
    answer = await caller.providers.interrupt_turn(providers.InterruptTurnRequest(target=agent.agent_id))
    why = f" {sentence(answer.detail)}" if answer.detail else ""
    if answer.interruption == providers.INTERRUPTION_UNSUPPORTED:
        raise ToolError("unsupported_capability", f"{agent.name} was not interrupted.{why}", hint=_INSTEAD)
    if answer.interruption == providers.INTERRUPTION_UNCERTAIN:
        raise ToolError(
            "delivery_uncertain", f"Whether {agent.name} was interrupted is not known.{why}", uncertain=True
        )
    return translate.interrupt_result(answer)


MUTATIONS: Final[Mapping[str, Mutation]] = {
    row.name: row
    for row in (
        Mutation(
            name="send_message",
            rpc=Mailbox.send,
            to_request=translate.send_request,
            to_result=translate.send_result,
        ),
        Mutation(
            name="followup_task",
            rpc=Mailbox.request,
            to_request=translate.request_request,
            to_result=translate.request_result,
        ),
        Mutation(
            name="reply",
            rpc=Mailbox.reply,
            to_request=translate.reply_request,
            to_result=translate.reply_result,
        ),
        *agent_tools.MUTATIONS,
    )
}

READINGS: Final[Mapping[str, Reading]] = {
    row.name: row
    for row in (
        Reading(name="receive_messages", ask=_receive),
        Reading(name="wait_agent", ask=_wait),
        Reading(name="interrupt_agent", ask=_interrupt),
        Reading(name="list_agents", ask=_list_agents),
        *task_tools.READINGS,
        *agent_tools.READINGS,
        *evidence_tools.READINGS,
        *context_tools.READINGS,
        *file_tools.READINGS,
    )
}

WRITES: Final[Mapping[str, Write]] = {
    row.name: row for row in (*task_tools.WRITES, *evidence_tools.WRITES, *context_tools.WRITES, *file_tools.WRITES)
}
