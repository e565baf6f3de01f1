"""The tool table of the edge: what each tool asks of which service. Arguments have been held to the registry before."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fencepost.client import Mailbox
from fencepost.errors import FencepostError, NotWritten
from fencepost.mailbox.v1 import mailbox_pb2 as mailbox
from fencepost.mcp.registry import WAIT_MS_MAX
from fencepost.providers.v1 import providers_pb2 as providers
from fencepost.sessions.v1 import sessions_pb2 as sessions
from fencepost_mcp_edge import translate
from fencepost_mcp_edge.translate import Arguments, Payload
from fencepost_mcp_edge.usecases.caller import Caller
from fencepost_mcp_edge.usecases.outcomes import NOT_CONNECTED, ToolError, sentence

PAGE_BYTES: Final = 24 * 1024
LISTED_AGENTS_MAX: Final = 500
DRAINING: Final = "draining"
# Before a wait is asked again of a mailbox that stops or is not there.
PAUSE_MS: Final = 50
_INSTEAD: Final = "Wait for its answer; to correct or remind it, use send_message."


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutation:
    """A tool that writes, once per key."""

    name: str
    rpc: Callable[[Mailbox, Any], Awaitable[Any]]
    to_request: Callable[[Arguments, str], Any]
    to_result: Callable[[Any, Any], Payload]
    # The field of SettleKeyRequest, and of its answer, that speaks of this call.
    settles: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Asking:
    """What a reading tool is asked with."""

    caller: Caller
    arguments: Arguments
    # What is left of the wait of a call that is asked again.
    within_ms: int | None
    page_bytes_max: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """A tool that writes no record: asked as often as it takes, or (Lost.TELL) once."""

    name: str
    ask: Callable[[Asking], Awaitable[Payload]]


class _Wait:
    """A wait that a stop of the mailbox interrupts and does not shorten: who waits anyway may wait for it to return."""

    def __init__(self, request: Any, call: Callable[[Any], Awaitable[Any]]) -> None:
        self._request = request
        self._call = call
        self._clock = asyncio.get_running_loop().time
        self._deadline = self._clock() + request.timeout_ms / 1000

    async def end(self) -> Any:
        """Return the answer. Raises FencepostError."""
        while True:
            try:
                response = await self._call(self._request)
            except NotWritten as error:
                if error.reason not in NOT_CONNECTED or not await self._may_ask_again():
                    raise
            else:
                if response.wake_reason != DRAINING or getattr(response, "records", ()):
                    return response
                if not await self._may_ask_again():
                    response.wake_reason = ""
                    response.timed_out = True
                    return response

    async def _may_ask_again(self) -> bool:
        left_ms = round((self._deadline - self._clock()) * 1000) - PAUSE_MS
        if left_ms <= 0:
            return False
        await asyncio.sleep(PAUSE_MS / 1000)
        self._request.timeout_ms = left_ms
        return True


async def _wait(asking: Asking) -> Payload:
    timeout_ms = asking.arguments.get("timeout_ms", WAIT_MS_MAX)
    within_ms = timeout_ms if asking.within_ms is None else min(timeout_ms, asking.within_ms)
    wait = _Wait(mailbox.WaitRequest(timeout_ms=within_ms), asking.caller.mailbox.wait)
    return translate.wait_result(await wait.end())


async def _receive(asking: Asking) -> Payload:
    request = translate.receive_request(
        asking.arguments, within_ms=asking.within_ms, page_bytes_max=asking.page_bytes_max
    )
    return translate.receive_result(await _Wait(request, asking.caller.mailbox.receive).end())


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
            settles="send",
        ),
        Mutation(
            name="followup_task",
            rpc=Mailbox.request,
            to_request=translate.request_request,
            to_result=translate.request_result,
            settles="request",
        ),
        Mutation(
            name="reply",
            rpc=Mailbox.reply,
            to_request=translate.reply_request,
            to_result=translate.reply_result,
            settles="reply",
        ),
    )
}

READINGS: Final[Mapping[str, Reading]] = {
    row.name: row
    for row in (
        Reading(name="receive_messages", ask=_receive),
        Reading(name="wait_agent", ask=_wait),
        Reading(name="interrupt_agent", ask=_interrupt),
        Reading(name="list_agents", ask=_list_agents),
    )
}
