"""Kinds of rows in the edge's tool table: one that writes, one that reads, and how a wait outlasts a restart."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fencepost.client import Mailbox
from fencepost.errors import NotWritten
from fencepost.mailbox.v1 import mailbox_pb2 as mailbox
from fencepost_mcp_edge.domain.frames import Place
from fencepost_mcp_edge.translate import Arguments, Page, Payload
from fencepost_mcp_edge.usecases import outcomes
from fencepost_mcp_edge.usecases.caller import Caller
from fencepost_mcp_edge.usecases.outcomes import NOT_CONNECTED

# Entries of a page where the caller does not say, of one question to a service, and how many questions a page takes.
LISTED_DEFAULT: Final = 50
LISTED_AT_ONCE: Final = 10
LISTING_STEPS_MAX: Final = 40
# The namespace of request ids that are made of keys.
_KEYS: Final = uuid.UUID("6f1d3a0e-6c0b-4a35-9b5e-0f5a5e1c7d42")
DRAINING: Final = "draining"
# Before a wait is asked again of a mailbox that stops or is not there.
PAUSE_MS: Final = 50


# The field of SettleKeyRequest, and of its answer, that speaks of a call.
SETTLES: Final[Mapping[type[Any], str]] = {
    mailbox.SendRequest: "send",
    mailbox.RequestRequest: "request",
    mailbox.ReplyRequest: "reply",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutation:
    """A tool that writes, once per key."""

    name: str
    rpc: Callable[[Mailbox, Any], Awaitable[Any]]
    to_request: Callable[[Arguments, str], Any]
    to_result: Callable[[Any, Any], Payload]

    async def call(self, caller: Caller, request: Any) -> Payload:
        """Carry the call out. Raises FencepostError, InvalidReceipt."""
        return self.to_result(request, await self.rpc(caller.mailbox, request))


@dataclass(frozen=True, kw_only=True, slots=True)
class Asking:
    """What a tool is asked with."""

    caller: Caller
    arguments: Arguments
    # The call's own key, the same whenever it is asked about.
    key: str = ""
    # What is left of the wait of a call that is asked again.
    within_ms: int | None = None
    page_bytes_max: int = 0
    # What was made of the files that the call names, where that was done before it came here.
    place: Place | None = None

    @property
    def request_id(self) -> str:
        """The UUID that makes the call one call: the caller's own, else one of the key."""
        given: str = self.arguments.get("request_id", "")
        return given or str(uuid.uuid5(_KEYS, self.key))


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """A tool that writes no record: asked as often as it takes, or (Lost.TELL) once."""

    name: str
    ask: Callable[[Asking], Awaitable[Payload]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Write:
    """A tool that writes, once per request_id."""

    name: str
    # Carries the call out, or answers what it did where an earlier one with its request_id did it.
    ask: Callable[[Asking], Awaitable[Payload]]
    # Returns what became of a call whose answer was lost, under the epoch it was made to; raises ToolError and others.
    settle: Callable[[Asking, str], Awaitable[Payload]]


def repeatable(name: str, ask: Callable[[Asking], Awaitable[Payload]]) -> Write:
    """Return the row of a write that a service carries out once per request_id, so that it is settled by asking again.

    Not of another store: there the request_id stands for nothing, and the write may have been done before.
    """

    async def settle(asking: Asking, epoch: str) -> Payload:
        if (await asking.caller.settling.describe()).epoch != epoch:
            raise outcomes.unsettled(None)
        return await ask(asking)

    return Write(name=name, ask=ask, settle=settle)


async def paged(asking: Asking, some: Callable[[int, str], Awaitable[tuple[list[Payload], str]]]) -> Page:
    """Return a page: `some` reads so many entries behind a cursor. What did not fit is read again with the next one."""
    wanted = asking.arguments.get("limit", LISTED_DEFAULT)
    page = Page(bytes_max=asking.page_bytes_max)
    page.cursor = asking.arguments.get("cursor", "")
    for _ in range(LISTING_STEPS_MAX):
        entries, cursor = await some(min(LISTED_AT_ONCE, wanted - len(page.entries)), page.cursor)
        if not page.takes(entries, cursor) or not cursor or len(page.entries) >= wanted:
            break
    return page


def _holds(response: Any) -> bool:
    """Tell whether the end of a wait brought what was waited for."""
    if "notification" in response.DESCRIPTOR.fields_by_name:
        return bool(response.HasField("notification"))
    return bool(getattr(response, "records", ()))


class Wait:
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
                if response.wake_reason != DRAINING or _holds(response):
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
