"""Settings of sessions."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost_kit.exposition import PORT_MAX
from fencepost_kit.serve import DRAIN_MS, DRAIN_MS_MAX
from fencepost_kit.settings import setting


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What a person may set for sessions; see fencepost_kit.settings for where."""

    drain_ms: int = setting(DRAIN_MS, least=0, most=DRAIN_MS_MAX, about="Time for open calls when the service stops.")
    reflection: bool = setting(default=True, about="Whether tools may ask which services and messages there are.")
    metrics_port: int = setting(0, least=0, most=PORT_MAX, about="Port of 127.0.0.1 for prometheus; 0: none.")
    listen: str = setting("", about="Address for mutual TLS besides the socket: PORT or ADDRESS:PORT; empty: none.")
    log_level: str = setting("info", about="debug, info, warning or error.")
