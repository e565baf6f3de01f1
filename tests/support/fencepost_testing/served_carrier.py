"""The carrier behind its guard on a real Unix socket, in the test's own loop, with fakes around it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc

from fencepost.client import Channels, Providers
from fencepost_kit.guard import Gate
from fencepost_kit.identity import Role
from fencepost_kit.metrics import new_registry
from fencepost_kit.serve import SERVER_OPTIONS
from fencepost_testing.carrier_fakes import OTHER_PROJECT, CarrierBench, token_of
from fencepost_testing.processes import short_home


@dataclass
class Served:
    """The carrier, and how to call it."""

    bench: CarrierBench
    channels: Channels

    def by(self, who: str) -> Providers:
        """The service as somebody sees it."""
        return Providers(self.channels, token_of(who))


@asynccontextmanager
async def a_served_carrier() -> AsyncIterator[Served]:
    """Ann and bob of one project, the coordinator cyd beside them, eve of another; the operator and a service."""
    with short_home() as home:
        bench = CarrierBench(home.path)
        for name in ("ann", "bob"):
            bench.hold(name, Role.AGENT)
        bench.hold("cyd", Role.COORDINATOR)
        bench.hold("eve", Role.AGENT, project_id=OTHER_PROJECT)
        bench.hold("operator", Role.OPERATOR)
        bench.hold("service", Role.SERVICE)
        await bench.start()
        server = grpc.aio.server(options=SERVER_OPTIONS)
        bench.carrying.register(server, Gate(), new_registry())
        address = f"unix:{home.socket('providers')}"
        server.add_insecure_port(address)
        await server.start()
        home.address("providers").write_text(address)
        try:
            async with Channels(home) as channels:
                yield Served(bench=bench, channels=channels)
        finally:
            await bench.carrying.drain()
            await server.stop(None)
            await bench.stop()
