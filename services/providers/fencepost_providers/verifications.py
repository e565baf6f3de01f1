"""Checking evidence: only when one asks who may, only where the work was done, and recorded beside the report."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from fencepost.errors import FencepostError
from fencepost_kit import logs
from fencepost_providers.domain.verification import Checked, Finding, Reported, Verdict
from fencepost_providers.integrations import refusal_of
from fencepost_providers.links import TasksPort
from fencepost_providers.repository.reading import Place

VERIFICATIONS_MAX: Final = 2

_log: Final = logs.get(__name__)


class Verifications:
    """Every check of this process; a few at once, others wait."""

    def __init__(self, *, tasks: TasksPort, environ: Mapping[str, str]) -> None:
        self._tasks = tasks
        self._environ = environ
        self._slots = asyncio.Semaphore(VERIFICATIONS_MAX)

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
        """Look at what was reported and record what was found.

        Raises:
            GitUnavailable, GitFailed: nothing was recorded.
        """
        async with self._slots:
            findings = await self._looked(reported, folder)
        return [Checked(finding=one, recorded_at_ms=await self._recorded(task_id, one, asked_by)) for one in findings]

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
                    evidence_id=one.evidence_id, verdict=found.verdict, detail=found.detail, checkout=place.folder
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
