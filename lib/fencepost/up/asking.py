"""Asking services how they are now: a status file says how they were when something last happened to them."""

from __future__ import annotations

import asyncio
from typing import Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fencepost.errors import Refused
from fencepost.home import Home, read_address
from fencepost.up.report import Phase, ServiceStatus, Status
from fencepost_kit.files import owner_of

# A status is a glance: whoever does not answer within this does not answer.
HEALTH_MS_MAX: Final = 1_000

SERVING: Final = "serving"
NOT_SERVING: Final = "not serving"
NOT_ANSWERING: Final = "not answering"
# Another process holds the lock of the service: whatever answers is not what the supervisor started.
REPLACED: Final = "replaced"


async def health(home: Home, seen: Status) -> dict[str, str]:
    """Return how each service that `seen` calls ready is now: serving, not serving, not answering or replaced.

    It takes at most HEALTH_MS_MAX, and starts, stops and changes nothing.
    """
    ready = [service for service in seen.services if service.phase is Phase.READY]
    words = await asyncio.gather(*(_word(home, service) for service in ready))
    return {service.name: word for service, word in zip(ready, words, strict=True)}


async def _word(home: Home, service: ServiceStatus) -> str:
    try:
        owner = owner_of(home.lock(service.name))
        address = read_address(home.address(service.name))
    except Refused:
        return NOT_ANSWERING
    if owner is not None and owner.pid and owner.pid != service.pid:
        return REPLACED
    if owner is None or address is None:
        return NOT_ANSWERING
    try:
        async with asyncio.timeout(HEALTH_MS_MAX / 1000), grpc.aio.insecure_channel(address) as channel:
            answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=""))
    except (grpc.aio.AioRpcError, TimeoutError):
        return NOT_ANSWERING
    return SERVING if answer.status == health_pb2.HealthCheckResponse.SERVING else NOT_SERVING
