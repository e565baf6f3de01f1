"""Settings of the supervisor: table [up] of fencepost.toml, FENCEPOST_UP_<FIELD>."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fencepost.home import SERVICES, Home
from fencepost.up import policy
from fencepost.up.logfile import LINE_BYTES_MAX, LOG_BYTES_MAX, LOG_FILES_MAX
from fencepost.up.table import Row
from fencepost_kit.exposition import PORT_MAX
from fencepost_kit.settings import InvalidSettings, load, setting, tables_of

UP: Final = "up"
PORTS_RESERVED: Final = 32
GRACE_MS: Final = 10_000


@dataclass(frozen=True, kw_only=True)
class UpSettings:
    """How services are stopped, started again, and logged."""

    grace_ms: int = setting(GRACE_MS, least=0, most=120_000, about="from SIGTERM to SIGKILL, per service")
    backoff_ms_min: int = setting(policy.BACKOFF_MS_MIN, least=1, most=60_000, about="first wait before a restart")
    backoff_ms_max: int = setting(policy.BACKOFF_MS_MAX, least=1, most=600_000, about="longest wait before a restart")
    crash_exits_max: int = setting(policy.CRASH_EXITS_MAX, least=1, most=1000, about="crashes in a row, then no more")
    log_bytes_max: int = setting(LOG_BYTES_MAX, least=2 * LINE_BYTES_MAX, most=1 << 30, about="size of one log file")
    log_files_max: int = setting(LOG_FILES_MAX, least=1, most=100, about="log files kept per service")
    metrics_port: int = setting(
        0, least=0, most=PORT_MAX - PORTS_RESERVED, about="port for the first service, the next for the next; 0: none"
    )

    def limits(self) -> policy.Limits:
        """Return the part that decides on restarts."""
        return policy.Limits(
            crash_exits_max=self.crash_exits_max,
            backoff_ms_min=self.backoff_ms_min,
            backoff_ms_max=self.backoff_ms_max,
        )


def metrics_variables(settings: UpSettings, home: Home, env: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Return the variables that give services their ports: metrics_port for the first of SERVICES, then the next.

    A service whose own port is set, by its variable or its table, keeps it.

    Raises:
        InvalidSettings: fencepost.toml cannot be read.
    """
    if not settings.metrics_port:
        return {}
    tables, source = tables_of(home), os.environ if env is None else env
    return {
        variable: str(settings.metrics_port + place)
        for place, name in enumerate(SERVICES)
        if (variable := f"FENCEPOST_{name.upper()}_METRICS_PORT") not in source
        and "metrics_port" not in tables.get(name, {})
    }


def read(home: Home, table: Sequence[Row], env: Mapping[str, str] | None = None) -> UpSettings:
    """Return the supervisor's settings.

    Raises:
        InvalidSettings: as in fencepost_kit.settings.load; and a table in fencepost.toml that belongs to no service.
    """
    known = {UP, *SERVICES, *(row.name for row in table)}
    for name in tables_of(home):
        if name not in known:
            raise InvalidSettings(
                f"{home.settings}: [{name}] belongs to no service; nothing was started",
                hint=f"Known tables are: {', '.join(sorted(known))}.",
            )
    return load(UpSettings, service=UP, home=home, env=env).value
