"""What any store of the mailbox does for evidence, in the same transactions as for tasks."""

from __future__ import annotations

from typing import Protocol

from fencepost_mailbox.domain.evidence.values import Evidence


class EvidenceQueries(Protocol):
    """What can be asked of evidence, inside a transaction or beside it."""

    def one(self, evidence_id: bytes) -> Evidence | None:
        """Return a piece of evidence, or None."""
        ...

    def of_task(self, task_id: bytes, after: bytes, limit: int) -> list[Evidence]:
        """Return evidence of a task with ids behind `after`, in the order in which it was reported."""
        ...

    def count(self, task_id: bytes) -> int:
        """Count the evidence of a task."""
        ...


class EvidenceTransaction(EvidenceQueries, Protocol):
    """What an operation may write of evidence."""

    def insert(self, evidence: Evidence) -> None:
        """Write a new piece."""
        ...

    def verify(self, evidence: Evidence) -> None:
        """Write what a check found over what one found before. Raises InvariantBroken where it is not there."""
        ...
