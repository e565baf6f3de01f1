"""Settings of the edge."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost_kit.exposition import PORT_MAX
from fencepost_kit.serve import DRAIN_MS, DRAIN_MS_MAX
from fencepost_kit.settings import setting
from fencepost_mcp_edge.shims import CALLS_IN_FLIGHT_MAX, CONNECTIONS_MAX
from fencepost_mcp_edge.usecases.tools import PAGE_BYTES


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a person may change."""

    page_bytes_max: int = setting(
        PAGE_BYTES, least=1024, most=512 * 1024, about="bytes of a page at the MCP face; programs cut larger results"
    )
    connections_max: int = setting(CONNECTIONS_MAX, least=1, most=65_536, about="agent programs served at once")
    calls_in_flight_max: int = setting(CALLS_IN_FLIGHT_MAX, least=1, most=1024, about="open calls of one agent program")
    drain_ms: int = setting(DRAIN_MS, least=0, most=DRAIN_MS_MAX, about="how long begun calls may finish at a stop")
    reflection: bool = setting(default=True, about="whether tools may ask which services and messages there are")
    metrics_port: int = setting(0, least=0, most=PORT_MAX, about="port of 127.0.0.1 for Prometheus; 0: none")
    http_port: int = setting(0, least=0, most=PORT_MAX, about="port of 127.0.0.1 for MCP over HTTP at /mcp; 0: none")
    log_level: str = setting("info", about="debug, info, warning or error")
