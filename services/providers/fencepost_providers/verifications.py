"""Checking evidence: only when one asks who may, only where the work was done, and recorded beside the report."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final
from weakref import WeakValueDictionary

from fencepost.errors import FencepostError
from fencepost_kit import logs
from fencepost_kit.refusal import Overloaded
from fencepost_providers.domain.integration import as_text
from fencepost_providers.domain.verification import Checked, Finding, Reported, Verdict
from fencepost_providers.integrations import refusal_of
from fencepost_providers.links import TasksPort
from fencepost_providers.repository.reading import Place

VERIFICATIONS_MAX: Final = 2
VERIFICATIONS_WAITING_MAX: Final = 64

_log: Final = logs.get(__name__)


class Verifications:
    """Every check of this process; a few at once, others wait."""

    def __init__(self, *, tasks: TasksPort, environ: Mapping[str, str]) -> None:
        self._tasks = tasks
        self._environ = environ
        self._slots = asyncio.Semaphore(VERIFICATIONS_MAX)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._under_way = 0

    async def reported(self, task_id: str, evidence_ids: Sequence[str]) -> Sequence[Reported]:
        """Return evidence of a task.

        Raises:
            Refusal: the task does not have it, or the mailbox does not answer.
        """
        try:
            return await self._tasks.evidence(task_id, evidence_ids)
        except FencepostError as error:
            raise refusal_of(error) from None

    async def verify(self, task_id: str, reported: Sequence[Reported], *, folder: str, asked_by: str) -> list[Checked]:
        """Look at what was reported and record what was found. Of one task, what was looked at later is recorded later.

        Raises:
            Overloaded, GitUnavailable, GitFailed: nothing was recorded.
        """
        if self._under_way >= VERIFICATIONS_MAX + VERIFICATIONS_WAITING_MAX:
            raise Overloaded(f"{VERIFICATIONS_WAITING_MAX} checks wait already; nothing was read")
        self._under_way += 1
        lock = self._locks.setdefault(task_id, asyncio.Lock())
        try:
            async with lock, self._slots:
                findings = await self._looked(reported, folder)
                recorded = [await self._recorded(task_id, one, asked_by) for one in findings]
        finally:
            self._under_way -= 1
        return [Checked(finding=one, recorded_at_ms=at_ms) for one, at_ms in zip(findings, recorded, strict=True)]

    async def _looked(self, reported: Sequence[Reported], folder: str) -> list[Finding]:
        place = await Place.at(folder, self._environ)
        findings = []
        for one in reported:
            if place is None:
                finding = Finding(
                    evidence_id=one.evidence_id,
                    verdict=Verdict.UNAVAILABLE,
                    detail="the assignee has no checkout on this machine",
                )
            else:
                found = await place.look(one.claim)
                finding = Finding(
                    evidence_id=one.evidence_id,
                    verdict=found.verdict,
                    detail=found.detail,
                    checkout=as_text(place.folder),
                )
            findings.append(finding)
        return findings

    async def _recorded(self, task_id: str, finding: Finding, asked_by: str) -> int:
        try:
            return await self._tasks.record_finding(task_id, finding, asked_by)
        except FencepostError as error:
            # It is told all the same, and that it is not kept.
            _log.warning("finding_not_recorded", reason=error.reason, evidence=finding.evidence_id)
            return 0
