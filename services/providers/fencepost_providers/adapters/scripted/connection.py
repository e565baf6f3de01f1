"""Requests and answers over the standard streams of the program, and nothing about what they mean."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

from fencepost_providers.processes.child import Line

Json = dict[str, Any]


class Rejected(Exception):
    """The program refused a request; `code` says why, in its own words."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code: Final = code


class Silent(Exception):
    """The request was written, and no answer came in time."""


class Lost(Exception):
    """The request was written, and the program ended before it answered."""


class Malformed(Exception):
    """The answer to the request is not what an answer looks like."""


class Connection:
    """Numbers requests, finds their answers, and passes events of exactly one generation on."""

    def __init__(self, generation: int, on_event: Callable[[Json], None]) -> None:
        self._generation = generation
        self._on_event = on_event
        self._pending: dict[int, asyncio.Future[Json]] = {}
        self._last = 0
        self._lost = ""

    def hear(self, line: Line) -> None:
        """Take a line of the program; what cannot be read is nothing."""
        if line.bytes_cut:
            return
        try:
            frame = json.loads(line.text)
        except ValueError:
            return
        if not isinstance(frame, dict):
            return
        if "event" in frame:
            if frame.get("generation") == self._generation:
                self._on_event(frame)
            return
        number = frame.get("id")
        waiting = self._pending.pop(number, None) if isinstance(number, int) else None
        if waiting is not None and not waiting.done():
            waiting.set_result(frame)

    def lose(self, detail: str) -> None:
        """Tell every open request that no answer will come."""
        self._lost = detail
        for waiting in self._pending.values():
            if not waiting.done():
                waiting.set_exception(Lost(detail))
        self._pending.clear()

    async def ask(self, write: Callable[[bytes], None], method: str, params: Json, ms: int | None) -> Json:
        """Send a request and return its result. Nothing is sent twice.

        Raises:
            InputRefused: from `write`; no byte has left.
            Rejected: see there; so are Silent, after `ms`, Lost and Malformed.
        """
        self._last += 1
        number = self._last
        data = json.dumps({"id": number, "method": method, "params": params}).encode() + b"\n"
        waiting: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._pending[number] = waiting
        try:
            write(data)
            frame = await asyncio.wait_for(waiting, None if ms is None else ms / 1000)
        except TimeoutError:
            raise Silent(f"no answer to `{method}` within {ms} ms") from None
        finally:
            self._pending.pop(number, None)
        error = frame.get("error")
        if isinstance(error, dict):
            raise Rejected(str(error.get("code", "")), str(error.get("message", "")))
        result = frame.get("result")
        if not isinstance(result, dict):
            raise Malformed(f"the answer to `{method}` has no result")
        return result
