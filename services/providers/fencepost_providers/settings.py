"""Settings of providers: defaults, [providers] in fencepost.toml, FENCEPOST_PROVIDERS_<FIELD>, then flags."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost_kit.exposition import PORT_MAX
from fencepost_kit.serve import DRAIN_MS, DRAIN_MS_MAX
from fencepost_kit.settings import setting
from fencepost_providers.roster import SWEEP_MS


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What a person may set for providers; see fencepost_kit.settings for where."""

    drain_ms: int = setting(DRAIN_MS, least=0, most=DRAIN_MS_MAX, about="Time for open calls when the service stops.")
    reflection: bool = setting(default=True, about="Whether tools may ask which services and messages there are.")
    metrics_port: int = setting(0, least=0, most=PORT_MAX, about="Port of 127.0.0.1 for prometheus; 0: none.")
    log_level: str = setting("info", about="debug, info, warning or error.")
    sweep_ms: int = setting(SWEEP_MS, least=100, most=3_600_000, about="How often missed work is looked for, ms.")
