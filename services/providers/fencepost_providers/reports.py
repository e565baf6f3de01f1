"""What is observed of one life, told to sessions: the newest only, in order, until it has it. M069."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from fencepost.errors import FencepostError, Refused
from fencepost_kit import logs
from fencepost_kit.clock import Clock
from fencepost_providers.links import Evidence, Observed, SessionsPort, Status

REPORT_AGAIN_MS_MIN: Final = 200
REPORT_AGAIN_MS_MAX: Final = 5_000
LAST_WORDS_MS_MAX: Final = 5_000
# A change waits so long for the next one: a report is a commit elsewhere, and a turn's begin and end are the moments at
# which requests are carried and answered. Those go first.
GATHER_MS: Final = 20

_log: Final = logs.get(__name__)


class Reports:
    """The reports of one life under its lease. A report that was overtaken is never sent."""

    def __init__(
        self, *, sessions: SessionsPort, clock: Clock, agent_id: str, acquisition_id: str, generation: int
    ) -> None:
        self._sessions = sessions
        self._clock = clock
        self._agent_id = agent_id
        self._acquisition_id = acquisition_id
        self._generation = generation
        self._sequence = 0
        self._newest: Status | None = None
        self._told: Status | None = None
        self._news = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._task = asyncio.create_task(self._tell())

    def note(self, state: Observed, evidence: Evidence, *, detail: str = "", turn_id: str = "") -> None:
        """Report a state; the same again is no report, whatever it rests on."""
        status = Status(
            state=state,
            evidence=evidence,
            observed_at_ms=self._clock.now_ms(),
            generation=self._generation,
            sequence=self._sequence + 1,
            detail=detail,
            turn_id=turn_id,
        )
        before = self._newest
        if before is not None and (before.state, before.detail, before.turn_id) == (state, detail, turn_id):
            return
        self._sequence += 1
        self._newest = status
        self._quiet.clear()
        self._news.set()

    async def close(self) -> None:
        """Wait until the newest report is told, at most LAST_WORDS_MS_MAX, and stop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_MS_MAX / 1000):
                await self._quiet.wait()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _tell(self) -> None:
        pause_ms = REPORT_AGAIN_MS_MIN
        while True:
            status = self._newest
            if status is None or status is self._told:
                self._news.clear()
                self._quiet.set()
                await self._news.wait()
                await self._clock.sleep(GATHER_MS / 1000)
                continue
            try:
                await self._sessions.report(self._agent_id, self._acquisition_id, status)
            except Refused as refused:
                if refused.may_resend:
                    await self._clock.sleep(pause_ms / 1000)
                    pause_ms = min(REPORT_AGAIN_MS_MAX, pause_ms * 2)
                    continue
                _log.warning("status_refused", reason=refused.reason, agent=self._agent_id, state=status.state.name)
            except FencepostError:
                await self._clock.sleep(pause_ms / 1000)
                pause_ms = min(REPORT_AGAIN_MS_MAX, pause_ms * 2)
                continue
            except Exception as error:  # noqa: BLE001 - a task that ended in silence would tell nothing more of this life
                _log.exception("status_not_told", error, agent=self._agent_id, state=status.state.name)
            pause_ms = REPORT_AGAIN_MS_MIN
            self._told = status
