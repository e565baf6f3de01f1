"""Generated from fencepost_mailbox.store.evidence.statements by scripts/generate_sql.py: `make proto`. Do not edit."""

from typing import Final

ONE: Final = """\
SELECT evidence.evidence_id, evidence.task_id, evidence.reporter, evidence.attempt_id, evidence.reported_at_ms,
evidence.kind, evidence.verdict, evidence.verified_at_ms, evidence.verified_for, evidence.checkout, evidence.detail,
evidence.descriptor, evidence.note FROM evidence WHERE evidence.evidence_id = :evidence_id"""
OF_TASK: Final = """\
SELECT evidence.evidence_id, evidence.task_id, evidence.reporter, evidence.attempt_id, evidence.reported_at_ms,
evidence.kind, evidence.verdict, evidence.verified_at_ms, evidence.verified_for, evidence.checkout, evidence.detail,
evidence.descriptor, evidence.note FROM evidence WHERE evidence.task_id = :task_id AND evidence.evidence_id > :after
ORDER BY evidence.evidence_id LIMIT :limit OFFSET 0"""
COUNT: Final = """\
SELECT count(*) AS count_1 FROM evidence WHERE evidence.task_id = :task_id"""
INSERT: Final = """\
INSERT INTO evidence (evidence_id, task_id, reporter, attempt_id, reported_at_ms, kind, verdict, verified_at_ms,
verified_for, checkout, detail, descriptor, note) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
VERIFY: Final = """\
UPDATE evidence SET verdict=:verdict, verified_at_ms=:verified_at_ms, verified_for=:verified_for,
checkout=:checkout, detail=:detail WHERE evidence.evidence_id = :was_evidence_id"""
