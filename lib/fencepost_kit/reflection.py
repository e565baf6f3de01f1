"""grpc.reflection: which services are served here and what their messages are, for tools such as `buf curl`.

Open, like health, to everybody who can reach the socket; it tells only what the protos of this version say. Served as
v1 and v1alpha, whose messages are the same on the wire. Streams and questions are bounded; a stop ends open streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

STREAMS_MAX: Final = 64
QUESTIONS_MAX: Final = 4096
IDLE_MS_MAX: Final = 300_000
NAMES: Final = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
HEALTH: Final = str(health_pb2.DESCRIPTOR.services_by_name["Health"].full_name)


class Reflection(reflection.aio.ReflectionServicer):  # type: ignore[misc] # the library has no types
    """Answers for the services in `names` and for health. close() ends open streams."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__((*names, HEALTH))
        self._closed = asyncio.Event()
        self._streams = 0

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve both versions. Before the server starts."""
        handler = grpc.stream_stream_rpc_method_handler(
            self.ServerReflectionInfo,
            request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
            response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
        )
        methods = {"ServerReflectionInfo": handler}
        server.add_generic_rpc_handlers(
            tuple(grpc.method_handlers_generic_handler(name, methods) for name in NAMES),
        )

    def close(self) -> None:
        """End open streams, and new ones at once."""
        self._closed.set()

    async def ServerReflectionInfo(self, request_iterator: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Answer questions in their order, at most QUESTIONS_MAX of them, none IDLE_MS_MAX after the one before."""
        if self._streams >= STREAMS_MAX:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{STREAMS_MAX} clients look already")
        self._streams += 1
        try:
            async for answer in super().ServerReflectionInfo(self._asked(request_iterator), context):
                yield answer
        finally:
            self._streams -= 1

    async def _asked(self, questions: AsyncIterator[Any]) -> AsyncIterator[Any]:
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            for _ in range(QUESTIONS_MAX):
                question = asyncio.ensure_future(anext(questions, None))
                await asyncio.wait((question, closed), timeout=IDLE_MS_MAX / 1000, return_when=asyncio.FIRST_COMPLETED)
                if not question.done():
                    question.cancel()
                    return
                if question.result() is None:
                    return
                yield question.result()
        finally:
            closed.cancel()
