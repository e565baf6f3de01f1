"""A gRPC service with one method of each cardinality, made without generated code. Every message is a StringValue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, wrappers_pb2
from google.protobuf.descriptor import ServiceDescriptor

FULL_NAME: Final = "fencepost.testing.FourKinds"
Text: Final = wrappers_pb2.StringValue

# Name: (client streams, server streams).
KINDS: Final[Mapping[str, tuple[bool, bool]]] = {
    "One": (False, False),
    "Many": (False, True),
    "Collect": (True, False),
    "Talk": (True, True),
}


def _descriptor() -> ServiceDescriptor:
    pool = descriptor_pool.Default()
    try:
        return pool.FindServiceByName(FULL_NAME)
    except KeyError:
        pass
    assert wrappers_pb2.DESCRIPTOR.name == "google/protobuf/wrappers.proto"
    file = descriptor_pb2.FileDescriptorProto(
        name="fencepost_testing/four_kinds.proto",
        package="fencepost.testing",
        syntax="proto3",
        dependency=[wrappers_pb2.DESCRIPTOR.name],
    )
    service = file.service.add(name="FourKinds")
    for name, (client_streaming, server_streaming) in KINDS.items():
        service.method.add(
            name=name,
            input_type=".google.protobuf.StringValue",
            output_type=".google.protobuf.StringValue",
            client_streaming=client_streaming,
            server_streaming=server_streaming,
        )
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindServiceByName(FULL_NAME)


DESCRIPTOR: Final = _descriptor()


def add_to_server(guarded: Any, server: grpc.aio.Server) -> None:
    """Register as the generated add_<X>ServiceServicer_to_server does it."""
    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }
    handlers = {
        name: make[kind](
            getattr(guarded, name), request_deserializer=Text.FromString, response_serializer=Text.SerializeToString
        )
        for name, kind in KINDS.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(FULL_NAME, handlers),))


async def _never() -> AsyncIterator[Any]:
    await asyncio.Event().wait()
    yield


class Stub:
    """The client's side."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        make = {
            (False, False): channel.unary_unary,
            (False, True): channel.unary_stream,
            (True, False): channel.stream_unary,
            (True, True): channel.stream_stream,
        }
        self._methods: dict[str, Any] = {
            name: make[kind](
                f"/{FULL_NAME}/{name}", request_serializer=Text.SerializeToString, response_deserializer=Text.FromString
            )
            for name, kind in KINDS.items()
        }

    def start(self, name: str, text: str, *, silent: bool = False, **options: Any) -> Any:
        """Begin a call. A silent one sends no message where the client streams.

        A client that sends while the server ends the call may see "Internal error from Core" in place of the status:
        where a test is about an answer before the first message, it must not send one.
        """
        if not KINDS[name][0]:
            return self._methods[name](Text(value=text), **options)
        return self._methods[name](_never() if silent else iter([Text(value=text)]), **options)

    async def call(self, name: str, text: str, **options: Any) -> list[str]:
        """Make a call to its end, and return every answer."""
        call = self.start(name, text, **options)
        if KINDS[name][1]:
            return [answer.value async for answer in call]
        return [(await call).value]
