"""Asking from outside whether a service of a home is ready."""

from __future__ import annotations

import asyncio
from typing import Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fencepost.errors import Refused
from fencepost.home import Home, read_address
from fencepost_kit.files import owner_of

POLL_MS: Final = 20
RECONNECT_MS: Final = 50

# A pool of its own: a channel that is shared keeps the long back-off of whoever failed before.
_OPTIONS: Final = (
    ("grpc.initial_reconnect_backoff_ms", RECONNECT_MS),
    ("grpc.min_reconnect_backoff_ms", RECONNECT_MS),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_MS),
    ("grpc.use_local_subchannel_pool", 1),
)


async def until_ready(home: Home, service: str, pid: int) -> None:
    """Return once `service` is served by the process `pid` and its health says SERVING. The caller bounds it.

    The service's lock proves that the answer comes from that process and not from a server that somebody else started.
    """
    while True:
        owner = owner_of(home.lock(service))
        if owner is not None and owner.pid == pid and await watched_serving(home, service):
            return
        await asyncio.sleep(POLL_MS / 1000)


async def watched_serving(home: Home, service: str) -> bool:
    """Watch the health of a service until it says SERVING; False where it cannot be asked at present."""
    try:
        address = read_address(home.address(service))
        if address is None:
            return False
        async with grpc.aio.insecure_channel(address, options=_OPTIONS) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=""))
            async for answer in watch:
                if answer.status == health_pb2.HealthCheckResponse.SERVING:
                    return True
    except (grpc.aio.AioRpcError, Refused):
        return False
    return False
