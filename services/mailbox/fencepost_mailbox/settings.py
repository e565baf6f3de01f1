"""Settings of the mailbox: defaults, then [mailbox] in fencepost.toml, then FENCEPOST_MAILBOX_<FIELD>, then flags."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost_kit.exposition import PORT_MAX
from fencepost_kit.settings import setting


@dataclass(frozen=True, kw_only=True)
class MailboxSettings:
    """What a person may set."""

    log_level: str = setting("info", about="debug, info, warning or error")
    drain_ms: int = setting(5000, least=0, most=60_000, about="time for parked waits and begun calls at a stop, ms")
    reflection: bool = setting(default=True, about="whether tools may ask which services and messages there are")
    metrics_port: int = setting(0, least=0, most=PORT_MAX, about="port of 127.0.0.1 for Prometheus; 0: none")
    listen: str = setting("", about="address for mutual TLS besides the socket: PORT or ADDRESS:PORT; empty: none")
    expire_every_ms: int = setting(
        1000,
        least=50,
        most=60_000,
        about="how often claims over their term, and records whose words are not indexed, are looked for, ms",
    )
    sweep_every_ms: int = setting(
        600_000,
        least=1000,
        most=86_400_000,
        about="how often contexts are looked for that nobody pinned and whose project is not used any more, ms",
    )
    note_reads_every_ms: int = setting(
        5000, least=50, most=600_000, about="how often the times of last reading are written, ms"
    )
