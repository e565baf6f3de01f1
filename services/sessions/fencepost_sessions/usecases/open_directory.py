"""What has to be true before the first call is answered."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost_kit import logs
from fencepost_sessions.domain.identifiers import uuid_text
from fencepost_sessions.store.protocol import Writing
from fencepost_sessions.usecases.home_credentials import ensure_home_credentials
from fencepost_sessions.usecases.ports import Ports

_log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class _RepairingQuarantines:
    now_ms: int

    def apply(self, tx: Writing, /) -> int:
        return tx.restart_quarantines_after(self.now_ms)


async def open_directory(ports: Ports) -> None:
    """Finish or remove what a crash left beside credential files, and make the home's own credentials valid.

    Names that seem to have been released in the future (the clock was put back) begin their quarantine now.
    """
    restarted = await ports.store.commit(_RepairingQuarantines(now_ms=ports.clock.now_ms()))
    if restarted:
        _log.warning("quarantines_restarted", names=restarted)
    await ports.tokens.settle_agents()
    await ensure_home_credentials(ports)
    directory = ports.store.read(lambda reading: reading.directory())
    _log.info("directory_open", epoch=uuid_text(directory.epoch), revision=directory.revision)
