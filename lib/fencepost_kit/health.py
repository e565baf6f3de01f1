"""grpc.health.v1, open to everybody who can reach the socket. States change at once and without awaiting.

Written here because the library's servicer answers SERVING for "" from its birth, changes states only in a coroutine,
and keeps its watchers through a shutdown, which then takes the whole grace.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

OVERALL: Final = ""
WATCHERS_MAX: Final = 256

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN: Final = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc] # the library has no types
    """The health of the names that it was built with and of "": NOT_SERVING until told otherwise."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._states = dict.fromkeys((OVERALL, *names), _NOT_SERVING)
        self._changed = asyncio.Event()
        self._watchers = 0
        self._closed = False

    def set_serving(self) -> None:
        """Answer SERVING for every name, unless closed."""
        if not self._closed:
            self._set(_SERVING)

    def set_not_serving(self) -> None:
        """Answer NOT_SERVING for every name."""
        self._set(_NOT_SERVING)

    def close(self) -> None:
        """Answer NOT_SERVING for ever; watchers are told and their streams end."""
        self._closed = True
        self._set(_NOT_SERVING)

    def _set(self, state: Any) -> None:
        self._states = dict.fromkeys(self._states, state)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Any) -> Any:  # noqa: N802
        """Answer the state of one name; NOT_FOUND for a name that is not served here."""
        state = self._states.get(request.service)
        if state is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service here")
        return health_pb2.HealthCheckResponse(status=state)

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:  # noqa: N802
        """Send the state of one name now and at every change, until the server closes."""
        if self._watchers >= WATCHERS_MAX:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"more than {WATCHERS_MAX} watchers")
        self._watchers += 1
        try:
            told = None
            while True:
                changed, closed = self._changed, self._closed
                state = self._states.get(request.service, _UNKNOWN)
                if state != told:
                    await context.write(health_pb2.HealthCheckResponse(status=state))
                    told = state
                if closed:
                    return
                await changed.wait()
        finally:
            self._watchers -= 1
