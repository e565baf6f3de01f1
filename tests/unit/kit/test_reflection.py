"""What a server tells of itself to tools that have no copy of the protos."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection_pb2

from fencepost.home import Home, read_address
from fencepost.mailbox.v1 import mailbox_pb2
from fencepost_kit import reflection
from fencepost_kit.reflection import HEALTH, NAMES, Reflection
from fencepost_kit.serve import Server, ServeSettings

MAILBOX = mailbox_pb2.DESCRIPTOR.services_by_name["MailboxService"].full_name
NAME = "testing"
pytestmark = [pytest.mark.requirement("kit.tools-need-no-copy-of-the-protos")]


def asking(channel: grpc.aio.Channel, name: str = NAMES[0]) -> Any:
    """A stream of questions to one version of the service."""
    return channel.stream_stream(
        f"/{name}/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )(timeout=20)


async def ask(stream: Any, **question: Any) -> Any:
    await stream.write(reflection_pb2.ServerReflectionRequest(**question))
    return await stream.read()


def served(home: Home, **fields: Any) -> Server:
    return Server(ServeSettings(home=home, service=NAME, full_names=(MAILBOX,), **fields))


@pytest.fixture
async def channel(home: Home) -> AsyncIterator[grpc.aio.Channel]:
    server = served(home)
    await server.start()
    async with grpc.aio.insecure_channel(str(read_address(home.address(NAME)))) as opened:
        yield opened
    await server.stop()


@pytest.mark.parametrize("name", NAMES)
async def test_both_versions_list_the_services_of_the_server_and_health(channel: grpc.aio.Channel, name: str) -> None:
    answer = await ask(asking(channel, name), list_services="")
    assert [service.name for service in answer.list_services_response.service] == sorted([MAILBOX, HEALTH])


async def test_a_service_is_answered_with_its_file_and_every_file_that_it_needs(channel: grpc.aio.Channel) -> None:
    answer = await ask(asking(channel), file_containing_symbol=MAILBOX)
    files = {
        descriptor_pb2.FileDescriptorProto.FromString(raw).name
        for raw in answer.file_descriptor_response.file_descriptor_proto
    }
    assert {"fencepost/mailbox/v1/mailbox.proto", "fencepost/common/v1/common.proto"} <= files


async def test_a_symbol_that_is_not_known_is_told_and_the_stream_goes_on(channel: grpc.aio.Channel) -> None:
    stream = asking(channel)
    answer = await ask(stream, file_containing_symbol="no.such.Thing")
    assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    assert (await ask(stream, list_services="")).HasField("list_services_response")


async def test_without_reflection_the_service_is_not_there(home: Home) -> None:
    server = served(home, reflection=False)
    await server.start()
    async with grpc.aio.insecure_channel(str(read_address(home.address(NAME)))) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(asking(channel), list_services="")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    await server.stop()


async def test_streams_are_bounded_and_those_that_ended_count_no_more(
    channel: grpc.aio.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflection, "STREAMS_MAX", 1)
    first = asking(channel)
    await ask(first, list_services="")
    second = asking(channel)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(second, list_services="")
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await first.done_writing()
    assert await first.read() is grpc.aio.EOF
    assert (await ask(asking(channel), list_services="")).HasField("list_services_response")


@pytest.mark.parametrize("questions", [2, 3])
async def test_a_stream_ends_after_its_last_question(
    channel: grpc.aio.Channel, monkeypatch: pytest.MonkeyPatch, questions: int
) -> None:
    monkeypatch.setattr(reflection, "QUESTIONS_MAX", questions)
    stream = asking(channel)
    for _ in range(questions):
        await ask(stream, list_services="")
    assert await stream.read() is grpc.aio.EOF


async def test_a_stream_that_asks_nothing_ends(channel: grpc.aio.Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflection, "IDLE_MS_MAX", 20)
    assert await asking(channel).read() is grpc.aio.EOF


async def test_a_stop_ends_an_open_stream_instead_of_waiting_for_it(home: Home) -> None:
    server = served(home, drain_ms=30_000)
    await server.start()
    async with grpc.aio.insecure_channel(str(read_address(home.address(NAME)))) as channel:
        stream = asking(channel)
        await ask(stream, list_services="")
        async with asyncio.timeout(10):
            await server.stop()
        assert await stream.read() is grpc.aio.EOF


async def test_a_closed_reflection_asks_for_no_question() -> None:
    closed = Reflection((MAILBOX,))
    closed.close()

    async def never() -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield None

    assert [answer async for answer in closed.ServerReflectionInfo(never(), None)] == []
