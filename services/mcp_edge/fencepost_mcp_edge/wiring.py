"""The composition root: builds the edge from a home and its settings, and runs it until it is told to stop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from fencepost.client import Channels
from fencepost.home import MCP_EDGE, Home
from fencepost_kit.metrics import gauge
from fencepost_kit.serve import Server, ServeSettings
from fencepost_mcp_edge.settings import Settings
from fencepost_mcp_edge.shims import Limits, Shims

if TYPE_CHECKING:
    from fencepost_mcp_edge.http_face import HttpFace


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
        http = _http(home, channels, limits, settings)
        server = Server(
            ServeSettings(
                home=home,
                service=MCP_EDGE,
                drain_ms=settings.drain_ms,
                reflection=settings.reflection,
                metrics_port=settings.metrics_port,
            ),
            drain=lambda: _drained(shims, http),
        )
        _tell(server.registry, shims)
        await server.start()
        try:
            # The service's lock, held by the server, makes this edge the only one of the home.
            await shims.start()
            if http is not None:
                await http.start()
            server.mark_ready()
            await stop.wait()
        finally:
            try:
                await server.stop()
            finally:
                await shims.stop()
                if http is not None:
                    await http.stop()
    return 0


def _http(home: Home, channels: Channels, limits: Limits, settings: Settings) -> HttpFace | None:
    if not settings.http_port:
        return None
    # Who uses only shims does not pay for a web server.
    from fencepost_mcp_edge.http_face import HttpFace, StoredTools  # noqa: PLC0415 (see above)

    return HttpFace(
        channels=channels,
        limits=limits,
        port=settings.http_port,
        drain_ms=settings.drain_ms,
        stored=StoredTools(home),
    )


async def _drained(shims: Shims, http: HttpFace | None) -> None:
    await asyncio.gather(shims.drain(), *([] if http is None else [http.drain()]))


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
