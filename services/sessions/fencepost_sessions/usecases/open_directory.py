"""What has to be true before the first call is answered."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost_kit import logs
from fencepost_sessions.domain.identifiers import uuid_text
from fencepost_sessions.domain.leases import Moment
from fencepost_sessions.store.protocol import Writing
from fencepost_sessions.usecases.home_credentials import ensure_home_credentials
from fencepost_sessions.usecases.ports import Ports

_log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Restarting:
    moment: Moment

    def apply(self, tx: Writing, /) -> tuple[int, int]:
        return tx.restart_quarantines_after(self.moment.unix_ms), tx.restart_leases(self.moment.running_ms)


async def open_directory(ports: Ports) -> None:
    """Finish or remove what a crash left beside credential files, and make the home's own credentials valid.

    Names that seem to have been released in the future (the clock was put back) begin their quarantine now. A lease
    that has not ended gets its whole term: its holder could not renew it while nobody was here.
    """
    names, leases = await ports.store.commit(_Restarting(moment=ports.lease_time.moment()))
    if names:
        _log.warning("quarantines_restarted", names=names)
    if leases:
        _log.info("leases_restarted", leases=leases)
    await ports.tokens.settle_agents()
    await ensure_home_credentials(ports)
    await ports.tools_shown.of_all()
    directory = ports.store.read(lambda reading: reading.directory())
    _log.info("directory_open", epoch=uuid_text(directory.epoch), revision=directory.revision)
