"""One POST of the HTTP face: a message in; its answer out, as JSON or, where it takes longer, as a stream of events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any, Final, Protocol

from fencepost.mcp import wire
from fencepost.mcp.calls import ACTING, PROGRESS_MS, UNREADABLE, progress
from fencepost.mcp.session import LINE_BYTES_MAX, Call, Session, Told
from fencepost_mcp_edge.domain.frames import Ask, parse_request
from fencepost_mcp_edge.domain.posts import Head, Read, Turned, admitted, read, wished
from fencepost_mcp_edge.usecases.answer import answer_ask
from fencepost_mcp_edge.usecases.caller import Caller
from fencepost_mcp_edge.usecases.outcomes import ToolError, fitting, stopped

# How long the body may take to come.
BODY_MS_MAX: Final = 10_000
# An answer that takes longer comes as events, so that no client takes the silence for a dead connection.
STREAM_AFTER_MS: Final = 2_000
# How long a client that reads nothing may hold up an answer.
WRITE_MS_MAX: Final = 30_000

# Methods whose answer depends on who asks.
_TELLING: Final = ("initialize", "server/discover", "tools/list")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_EVENTS: Final = (
    ("content-type", "text/event-stream"),
    ("cache-control", "no-store"),
    ("x-accel-buffering", "no"),
)


class Office(Protocol):
    """What an exchange asks of the face that it belongs to."""

    draining: bool

    @property
    def page_bytes_max(self) -> int:
        """Bytes of a page."""

    def caller(self, token: str, tools: frozenset[str] | None, *, warp: bool) -> Caller:
        """Return the agent behind a credential, asking for these tools, with keys that no other exchange has."""

    async def told(self, caller: Caller) -> Told:
        """Return what the agent is told of this server."""

    def begun(self, task: asyncio.Task[bytes]) -> None:
        """Keep a call that was begun: a mutation outlives its exchange."""

    def crowded(self, token: str) -> ToolError | None:
        """Return what is told where no more calls of this agent fit, else None."""

    def cancel(self, token: str, id_text: str) -> None:
        """End the call that has this id in another exchange of this agent, where exactly one has."""


class Gone(Exception):
    """The client has gone; nothing further is sent."""


class Exchange:
    """One request and its answer. The desk of a session that lasts as long."""

    def __init__(self, *, office: Office, receive: Receive, send: Send) -> None:
        self._office: Final = office
        self._receive: Final = receive
        self._send: Final = send
        self.token = ""
        self._caller: Caller
        self._told_here = Told()
        self._answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        # The calls that are to be answered, and what answers them.
        self._open: Final[dict[int, tuple[Call, asyncio.Task[bytes]]]] = {}
        self._count = 0
        self.modern = False
        # False while the body is still to come: after the answer, the connection is of no use then.
        self._whole_body = False
        self._begun_s = asyncio.get_running_loop().time()

    async def serve(self, head: Head) -> None:
        """Answer the request, whatever it is."""
        try:
            self.token = admitted(head)
            if self._office.draining:
                raise Turned(503, "the edge is being stopped; nothing was done", headers=("retry-after", "1"))
            tools, warp = wished(head)
            self._caller = self._office.caller(self.token, tools, warp=warp)
            body = await self._body()
            try:
                message = wire.decode(body)
            except wire.NotJson:
                raise Turned(400, "", line=_NOT_JSON) from None
            how = read(head, message)
            if isinstance(message, dict) and message.get("method") in _TELLING:
                self._told_here = await self._office.told(self._caller)
            self._act(how, message, body)
            await self._told(how, takes_events=head.takes_events)
        except Turned as turned:
            headers = list(zip(turned.headers[::2], turned.headers[1::2], strict=True))
            with contextlib.suppress(Gone):
                await self._whole(turned.status, turned.line, headers)
        except Gone:
            # Streams are not resumed, so nobody can read the answers any more.
            for call in self.calls():
                self.withdraw(call)

    def calls(self) -> list[Call]:
        """Return the calls that are to be answered."""
        return [call for call, _ in self._open.values()]

    def end_reading(self) -> None:
        """End what only reads; each is told that the edge is being stopped."""
        for call, task in list(self._open.values()):
            if call.name not in ACTING:
                task.cancel()

    def withdraw(self, call: Call) -> None:
        """Send nothing further for a call. What only reads ends, what was begun completes (M056)."""
        _, task = self._open.pop(call.number)
        if call.name not in ACTING:
            task.cancel()
        call.sink(None)
        self._settle_for_nothing()

    async def _body(self) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_MS_MAX / 1000):
                while True:
                    event = await self._receive()
                    if event["type"] != "http.request":
                        raise Gone
                    parts.append(event.get("body", b""))
                    size += len(parts[-1])
                    if size > LINE_BYTES_MAX:
                        raise Turned(413, f"the body is longer than {LINE_BYTES_MAX} bytes; nothing was done")
                    if not event.get("more_body", False):
                        self._whole_body = True
                        return b"".join(parts).strip(wire.SPACE_BYTES)
        except TimeoutError:
            raise Turned(408, f"the body did not come within {BODY_MS_MAX // 1000} s") from None

    # The desk of the session.

    def _act(self, how: Read, message: Any, body: bytes) -> None:
        self.modern = how.assumed is None
        session = Session(emit=self._emit, desk=self, assumed=how.assumed, told=lambda: self._told_here)
        session.take(message, body)
        self._settle_for_nothing()

    def _settle_for_nothing(self) -> None:
        if not self._open and not self._answer.done():
            self._answer.set_result(None)

    def admit(self, call: Call) -> None:
        """Begin a tool call."""
        request = parse_request(call.line)
        if request is None:
            call.sink(wire.failure(call.id_text, wire.INVALID_REQUEST, UNREADABLE))
            return
        crowded = self._office.crowded(self.token)
        if crowded is not None:
            call.sink(crowded.line(call.id_text))
            return
        self._count += 1
        call.number = self._count
        ask = Ask(number=call.number, line=call.line)
        task = asyncio.get_running_loop().create_task(
            answer_ask(self._caller, ask, request, page_bytes_max=self._office.page_bytes_max)
        )
        self._open[call.number] = (call, task)
        task.add_done_callback(partial(self._ended, call))
        self._office.begun(task)

    def cancel(self, id_text: str) -> None:
        """End a call of another exchange. From 2026-07-28 on a client closes that exchange instead."""
        if not self.modern:
            self._office.cancel(self.token, id_text)

    def _ended(self, call: Call, task: asyncio.Task[bytes]) -> None:
        if self._open.pop(call.number, None) is not None:
            if task.cancelled():
                call.sink(fitting(stopped(mutation=call.name in ACTING), call.name).line(call.id_text))
            else:
                call.sink(task.result())

    def _emit(self, answer: bytes | None) -> None:
        if answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    # The answer.

    async def _told(self, how: Read, *, takes_events: bool) -> None:
        gone = asyncio.ensure_future(self._goes())
        try:
            if await self._comes_within(gone, STREAM_AFTER_MS if takes_events else None):
                answer = self._answer.result()
                if answer is None:
                    await self._whole(202, b"", [])
                else:
                    await self._whole(how.status(answer), answer, [])
                return
            await self._start(200, _EVENTS)
            due_ms = PROGRESS_MS - STREAM_AFTER_MS
            while not await self._comes_within(gone, due_ms):
                await self._write(self._signs(), more=True)
                due_ms = PROGRESS_MS
            answer = self._answer.result()
            await self._write(b"" if answer is None else _event(answer), more=False)
        finally:
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)

    async def _goes(self) -> None:
        """Return when the client has gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _comes_within(self, gone: asyncio.Future[None], within_ms: int | None) -> bool:
        """Tell whether the answer is there before the time is over. Raises Gone where the client goes first."""
        either: set[asyncio.Future[Any]] = {self._answer, gone}
        await asyncio.wait(
            either,
            timeout=None if within_ms is None else within_ms / 1000,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if gone.done() and not self._answer.done():
            raise Gone
        return self._answer.done()

    def _signs(self) -> bytes:
        """Return signs of life: progress of the calls whose client gave a token, else a comment."""
        seconds = int(asyncio.get_running_loop().time() - self._begun_s)
        tokens = [call.progress_token for call in self.calls() if call.progress_token is not None]
        return b"".join(_event(progress(token, seconds)) for token in tokens) or b":\r\n\r\n"

    async def _whole(self, status: int, body: bytes, headers: list[tuple[str, str]]) -> None:
        if not self._whole_body:
            headers.append(("connection", "close"))
        told = [*headers, ("cache-control", "no-store"), ("content-length", str(len(body)))]
        if body:
            told.append(("content-type", "application/json"))
        await self._start(status, told)
        await self._write(body, more=False)

    async def _start(self, status: int, headers: Any) -> None:
        pairs = [(name.encode(), value.encode()) for name, value in headers]
        await self._put({"type": "http.response.start", "status": status, "headers": pairs})

    async def _write(self, body: bytes, *, more: bool) -> None:
        await self._put({"type": "http.response.body", "body": body, "more_body": more})

    async def _put(self, message: Message) -> None:
        try:
            async with asyncio.timeout(WRITE_MS_MAX / 1000):
                await self._send(message)
        except TimeoutError:
            raise Gone from None


_NOT_JSON: Final = wire.failure("null", wire.PARSE_ERROR, "the body is not one JSON value in UTF-8; nothing was done")


def _event(line: bytes) -> bytes:
    return b"event: message\r\ndata: %b\r\n\r\n" % line
