"""Health, asked over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fencepost_kit import health
from fencepost_kit.health import Health
from fencepost_testing.processes import short_home

RESPONSE = health_pb2.HealthCheckResponse
NAME = "fencepost.testing.FourKinds"


@asynccontextmanager
async def serving(state: Health) -> AsyncIterator[Any]:
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(state, server)
    with short_home() as home:
        home.path.mkdir()
        server.add_insecure_port(f"unix:{home.path}/s")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"unix:{home.path}/s") as channel:
                yield health_pb2_grpc.HealthStub(channel)
        finally:
            await server.stop(None)


async def ask(stub: Any, name: str) -> int:
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
    return int(answer.status)


@pytest.mark.requirement("kit.health-tells-readiness")
@pytest.mark.parametrize("name", ["", NAME])
async def test_a_service_is_not_serving_until_it_says_so_nor_after_it_closed(name: str) -> None:
    state = Health((NAME,))
    async with serving(state) as stub:
        assert await ask(stub, name) == RESPONSE.NOT_SERVING
        state.set_serving()
        assert await ask(stub, name) == RESPONSE.SERVING
        state.set_not_serving()
        assert await ask(stub, name) == RESPONSE.NOT_SERVING
        state.close()
        state.set_serving()
        assert await ask(stub, name) == RESPONSE.NOT_SERVING


async def test_a_name_that_is_not_served_here_is_not_found() -> None:
    async with serving(Health((NAME,))) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(stub, "other")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="other"), timeout=5)
        assert (await watch.read()).status == RESPONSE.SERVICE_UNKNOWN
        watch.cancel()


@pytest.mark.requirement("kit.health-tells-readiness")
async def test_a_watcher_is_told_of_every_change_and_its_stream_ends_when_the_server_closes() -> None:
    state = Health((NAME,))
    async with serving(state) as stub:
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=NAME), timeout=10)
        assert (await watch.read()).status == RESPONSE.NOT_SERVING
        state.set_serving()
        assert (await watch.read()).status == RESPONSE.SERVING
        state.close()
        assert (await watch.read()).status == RESPONSE.NOT_SERVING
        assert await watch.read() is grpc.aio.EOF


async def test_a_watcher_hears_only_the_last_of_changes_that_come_at_once() -> None:
    state = Health((NAME,))
    async with serving(state) as stub:
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=NAME), timeout=10)
        assert (await watch.read()).status == RESPONSE.NOT_SERVING
        state.set_serving()
        state.set_not_serving()
        state.set_serving()
        assert (await watch.read()).status == RESPONSE.SERVING
        watch.cancel()


async def test_one_watcher_over_the_limit_is_refused_and_one_that_leaves_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "WATCHERS_MAX", 2)
    async with serving(Health((NAME,))) as stub:
        request = health_pb2.HealthCheckRequest(service=NAME)
        watches = [stub.Watch(request, timeout=10) for _ in range(2)]
        for watch in watches:
            await watch.read()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Watch(request, timeout=10).read()
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        watches[0].cancel()
        for _ in range(500):
            again = stub.Watch(request, timeout=10)
            try:
                await again.read()
                break
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.01)
        else:
            pytest.fail("no room was made")
        watches[1].cancel()
        again.cancel()
