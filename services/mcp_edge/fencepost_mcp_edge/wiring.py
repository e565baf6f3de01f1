"""The composition root: builds the edge from a home and its settings, and runs it until it is told to stop."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry

from fencepost.client import Channels
from fencepost.home import MCP_EDGE, Home
from fencepost_kit.metrics import gauge
from fencepost_kit.serve import Server, ServeSettings
from fencepost_mcp_edge.settings import Settings
from fencepost_mcp_edge.shims import Limits, Shims


async def serve(home: Home, settings: Settings, stop: asyncio.Event) -> int:
    """Serve shims until `stop` is set, then drain. Returns the exit status.

    Ready as soon as the socket is served: a service that is down behind it is waited for, call by call.
    """
    async with Channels(home) as channels:
        limits = Limits(
            page_bytes_max=settings.page_bytes_max,
            connections_max=settings.connections_max,
            calls_in_flight_max=settings.calls_in_flight_max,
        )
        shims = Shims(home=home, channels=channels, limits=limits)
        server = Server(
            ServeSettings(
                home=home,
                service=MCP_EDGE,
                drain_ms=settings.drain_ms,
                reflection=settings.reflection,
                metrics_port=settings.metrics_port,
            ),
            drain=shims.drain,
        )
        _tell(server.registry, shims)
        await server.start()
        try:
            # The service's lock, held by the server, makes this edge the only one of the home.
            await shims.start()
            server.mark_ready()
            await stop.wait()
        finally:
            try:
                await server.stop()
            finally:
                await shims.stop()
    return 0


def _tell(registry: CollectorRegistry, shims: Shims) -> None:
    gauge(
        registry,
        "fencepost_shims_connected",
        "Agent programs that are served.",
        service=MCP_EDGE,
        read=lambda: shims.connections,
    )
    gauge(
        registry,
        "fencepost_shim_calls_open",
        "Tool calls in progress.",
        service=MCP_EDGE,
        read=lambda: len(shims.calls),
    )
