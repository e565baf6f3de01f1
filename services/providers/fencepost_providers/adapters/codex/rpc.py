"""A client of `codex app-server`: JSON objects as WebSocket text frames on a Unix socket. Source: M135 M141 M154.

Three ends of a request are told apart, since everything rests on them: it certainly never left (NotSent), it left and
was refused (Refused), it left and nobody knows (NoAnswer). Nothing is ever sent twice. The program's own requests to us
(approvals, questions) are handed on like events and never answered: only a person may.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import select
from collections.abc import Callable, Mapping
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, unix_connect
from websockets.exceptions import ConnectionClosed, WebSocketException

Json = dict[str, Any]

CONNECT_MS_MAX: Final = 2_000
WRITE_MS_MAX: Final = 5_000
ANSWER_MS_MAX: Final = 30_000
CLOSE_MS_MAX: Final = 500
# A command's whole output comes in one frame; a client that refused it would lose the connection, and all evidence.
FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
# The program cuts off what is longer: it announces this limit when it accepts a connection.
REQUEST_BYTES_MAX: Final = 8 * 1024 * 1024
PENDING_REQUESTS_MAX: Final = 64
UNREAD_FRAMES_MAX: Final = 64
URI: Final = "ws://localhost/"


class NotSent(Exception):
    """Proof: no byte of the request has left."""


class NoAnswer(Exception):
    """The request left, or part of it, and no answer came: what became of it is unknown."""


class Refused(Exception):
    """The program answered with an error. Codes are all alike; only the text tells one from another."""

    def __init__(self, message: str, *, code: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason


Hear = Callable[[Json], None]


class Connection:
    """One connection. `hear` is called for every notification and request of the program, in their order.

    It is called on the event loop by the only reader, and must neither wait nor raise. What is unread stays in the
    socket: the program is slowed down, nothing piles up here.
    """

    def __init__(self, socket: ClientConnection, hear: Hear) -> None:
        self._socket = socket
        self._hear = hear
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Json]] = {}
        self._why = ""
        self._over = False
        self._reader = asyncio.create_task(self._read(), name="codex app-server reader")

    @classmethod
    async def open(cls, path: str, hear: Hear) -> Connection:
        """Connect once, at most CONNECT_MS_MAX.

        Raises:
            ConnectionRefusedError, FileNotFoundError: nobody listens there.
            NotSent: somebody does, and does not speak this protocol in time.
        """
        try:
            async with asyncio.timeout(CONNECT_MS_MAX / 1000):
                socket = await unix_connect(
                    resolved(path),
                    uri=URI,
                    compression=None,
                    max_size=FRAME_BYTES_MAX,
                    max_queue=UNREAD_FRAMES_MAX,
                    # A program that indexes its history may be silent for long; one that dies closes the socket.
                    ping_interval=None,
                    open_timeout=None,
                    close_timeout=CLOSE_MS_MAX / 1000,
                )
        except (ConnectionRefusedError, FileNotFoundError):
            raise
        except (OSError, TimeoutError, WebSocketException) as error:
            raise NotSent(f"nobody answers at its socket: {str(error) or 'no answer in time'}") from error
        return cls(socket, hear)

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._over

    @property
    def unread(self) -> bool:
        """Whether something that the program said, its end perhaps, has come and was not read yet."""
        if self._over or self._socket.transport.is_closing():
            return True
        waiting = select.poll()
        waiting.register(self._socket.transport.get_extra_info("socket"), select.POLLIN)
        return bool(waiting.poll(0))

    @property
    def why_closed(self) -> str:
        """Why it is over, as far as it is known."""
        return self._why

    async def request(self, method: str, params: Mapping[str, Any], *, timeout_ms: int | None = ANSWER_MS_MAX) -> Json:
        """Send a request and return its result; without `timeout_ms` wait for the answer while the connection lasts.

        Raises:
            NotSent: nothing has left.
            NoAnswer: it has, or may have, and is not to be sent again.
            Refused: the program answered with an error.
        """
        number = next(self._ids)
        frame = _encoded({"id": number, "method": method, "params": params})
        if self._over:
            raise NotSent(f"the connection is closed: {self._why}")
        if len(self._pending) >= PENDING_REQUESTS_MAX:
            raise NotSent(f"{PENDING_REQUESTS_MAX} requests wait for their answers already")
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._pending[number] = answer
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._write(frame)
                return _result(await answer)
        except TimeoutError:
            raise NoAnswer(f"{method} was sent, and not answered in {timeout_ms} ms") from None
        finally:
            self._pending.pop(number, None)
            if answer.done() and not answer.cancelled():
                answer.exception()  # what ends the connection is nobody's to fetch once a deadline has passed

    async def notify(self, method: str) -> None:
        """Send a notification.

        Raises:
            NotSent, NoAnswer: see `request`.
        """
        if self._over:
            raise NotSent(f"the connection is closed: {self._why}")
        await self._write(_encoded({"method": method}))

    async def close(self) -> None:
        """End the connection; what waits for an answer gets NoAnswer. Harmless when repeated."""
        self._end("we closed it")
        with contextlib.suppress(OSError, WebSocketException, TimeoutError):
            await self._socket.close()
        self._reader.cancel()
        await asyncio.wait([self._reader])

    async def wait_closed(self) -> None:
        """Return once nothing more will be heard."""
        await asyncio.wait([self._reader])

    async def _write(self, frame: str) -> None:
        # From here on a failure proves nothing: part of the frame may have left.
        try:
            async with asyncio.timeout(WRITE_MS_MAX / 1000):
                await self._socket.send(frame)
        except TimeoutError:
            self._end(f"it took nothing for {WRITE_MS_MAX} ms")
            self._socket.transport.abort()
            raise NoAnswer(f"the program took nothing for {WRITE_MS_MAX} ms") from None
        except (OSError, ConnectionClosed) as error:
            raise NoAnswer(f"the connection broke while a request was written: {error}") from error

    async def _read(self) -> None:
        try:
            async for frame in self._socket:
                self._take(frame)
        except (OSError, ValueError, ConnectionClosed) as error:
            self._end(f"{type(error).__name__}: {error}")
            self._socket.transport.abort()
        else:
            self._end("the program closed it")

    def _take(self, frame: str | bytes) -> None:
        message = json.loads(frame)
        if not isinstance(message, dict):
            raise ValueError("a frame is no object")
        if isinstance(message.get("method"), str):
            self._hear(message)
            return
        # An answer that nobody waits for is late, or was never asked for: neither tells us anything.
        waiting = self._pending.get(message.get("id")) if isinstance(message.get("id"), int) else None  # type: ignore[arg-type]
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    def _end(self, why: str) -> None:
        if self._over:
            return
        self._over, self._why = True, why
        for waiting in self._pending.values():
            if not waiting.done():
                waiting.set_exception(NoAnswer(f"the connection ended before the answer came: {why}"))


def resolved(path: str) -> str:
    """Return where a socket really is: the program listens behind a link where a path would be too long to connect."""
    return os.path.realpath(path)


def _encoded(message: Mapping[str, Any]) -> str:
    try:
        frame = json.dumps(message, ensure_ascii=False)
        size = len(frame.encode())
    except (TypeError, ValueError) as error:
        raise NotSent(f"it cannot be written as JSON: {error}") from error
    if size > REQUEST_BYTES_MAX:
        raise NotSent(f"it has {size} bytes, and a request may have {REQUEST_BYTES_MAX}")
    return frame


def _result(message: Json) -> Json:
    error = message.get("error")
    if isinstance(error, dict):
        data = error.get("data")
        reason = data.get("reason") if isinstance(data, dict) else ""
        code = error.get("code")
        raise Refused(
            str(error.get("message", "")),
            code=code if isinstance(code, int) else 0,
            reason=reason if isinstance(reason, str) else "",
        )
    result = message.get("result")
    if not isinstance(result, dict):
        raise NoAnswer("the answer has neither a result nor an error that can be read")
    return result
