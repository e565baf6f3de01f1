"""Evidence in the embedded store."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import asdict
from typing import Any, Final

from fencepost_mailbox.domain.evidence.values import (
    CommitReported,
    DiffReported,
    Evidence,
    FileReported,
    Reported,
    RunReported,
    Verdict,
)
from fencepost_mailbox.store.evidence import sqlite_statements as sql
from fencepost_mailbox.store.protocol import InvariantBroken

# Numbers are stored.
_KINDS: Final[dict[int, type[Reported]]] = {1: FileReported, 2: CommitReported, 3: DiffReported, 4: RunReported}
_NUMBERS: Final = {kind: number for number, kind in _KINDS.items()}


def evidence_from_row(row: tuple[Any, ...]) -> Evidence:
    """Return the evidence of a whole row."""
    evidence_id, task_id, reporter, attempt_id, reported_at_ms, kind, verdict, *checked, descriptor, note = row
    verified_at_ms, verified_for, checkout, detail = checked
    return Evidence(
        evidence_id=evidence_id,
        task_id=task_id,
        reporter=reporter,
        attempt_id=attempt_id,
        reported_at_ms=reported_at_ms,
        reported=_KINDS[kind](**json.loads(descriptor)),
        note=note,
        verdict=Verdict(verdict),
        verified_at_ms=verified_at_ms,
        verified_for=verified_for,
        checkout=checkout,
        detail=detail,
    )


class SqliteEvidenceQueries:
    """See EvidenceQueries. Results are fetched whole."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor

    def _all(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return self._cursor.execute(statement, parameters).fetchall()

    def one(self, evidence_id: bytes) -> Evidence | None:
        """See EvidenceQueries."""
        rows = self._all(sql.ONE, evidence_id=evidence_id)
        return evidence_from_row(rows[0]) if rows else None

    def of_task(self, task_id: bytes, after: bytes, limit: int) -> list[Evidence]:
        """See EvidenceQueries."""
        return [evidence_from_row(row) for row in self._all(sql.OF_TASK, task_id=task_id, after=after, limit=limit)]

    def count(self, task_id: bytes) -> int:
        """See EvidenceQueries."""
        return int(self._all(sql.COUNT, task_id=task_id)[0][0])


class SqliteEvidenceTransaction(SqliteEvidenceQueries):
    """See EvidenceTransaction."""

    def insert(self, evidence: Evidence) -> None:
        """See EvidenceTransaction."""
        self._cursor.execute(
            sql.INSERT,
            (
                evidence.evidence_id,
                evidence.task_id,
                evidence.reporter,
                evidence.attempt_id,
                evidence.reported_at_ms,
                _NUMBERS[type(evidence.reported)],
                int(evidence.verdict),
                evidence.verified_at_ms,
                evidence.verified_for,
                evidence.checkout,
                evidence.detail,
                json.dumps(asdict(evidence.reported), ensure_ascii=False, sort_keys=True),
                evidence.note,
            ),
        )

    def verify(self, evidence: Evidence) -> None:
        """See EvidenceTransaction."""
        self._cursor.execute(
            sql.VERIFY,
            {
                "was_evidence_id": evidence.evidence_id,
                "verdict": int(evidence.verdict),
                "verified_at_ms": evidence.verified_at_ms,
                "verified_for": evidence.verified_for,
                "checkout": evidence.checkout,
                "detail": evidence.detail,
            },
        )
        if self._cursor.rowcount != 1:
            raise InvariantBroken("evidence that was checked is not there")
