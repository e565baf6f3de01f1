"""Generated from fencepost_mailbox.store.threads.statements by scripts/generate_sql.py: `make proto`. Do not edit."""

from typing import Final

ATTRIBUTES_OF: Final = """\
SELECT record_attributes.sequence, record_attributes.thread, record_attributes.subject, record_attributes.reply_to,
record_attributes.reply_to_kind, record_attributes.task_id FROM record_attributes WHERE record_attributes.sequence =
:sequence"""
INSERT_ATTRIBUTES: Final = """\
INSERT INTO record_attributes (sequence, thread, subject, reply_to, reply_to_kind, task_id) VALUES (?, ?, ?, ?, ?,
?)"""
ERASE_ATTRIBUTES: Final = """\
DELETE FROM record_attributes WHERE record_attributes.sequence = :sequence"""
BEGAN_THREAD: Final = """\
SELECT record.sequence, record.record_id, record.kind, record.project_id, record.sender, record.recipient,
record.parent_id, record.status, record.origin, record.completion, record.admitted_at_ms, record.delivery,
record.answer, record.exposed, record.acknowledged, record.inbox, record.position, record.claim_token,
record.claim_generation, record.releases, record.body, record.hops, record.attributed FROM record WHERE
record.record_id = :thread AND record.sequence > :after"""
JOINED_THREAD: Final = """\
SELECT record.sequence, record.record_id, record.kind, record.project_id, record.sender, record.recipient,
record.parent_id, record.status, record.origin, record.completion, record.admitted_at_ms, record.delivery,
record.answer, record.exposed, record.acknowledged, record.inbox, record.position, record.claim_token,
record.claim_generation, record.releases, record.body, record.hops, record.attributed FROM record JOIN
record_attributes ON record.sequence = record_attributes.sequence WHERE record_attributes.thread = :thread AND
record_attributes.sequence > :after ORDER BY record_attributes.sequence LIMIT :limit OFFSET 0"""
ANSWERED_FIRST: Final = """\
SELECT record.sequence, record.record_id, record.kind, record.project_id, record.sender, record.recipient,
record.parent_id, record.status, record.origin, record.completion, record.admitted_at_ms, record.delivery,
record.answer, record.exposed, record.acknowledged, record.inbox, record.position, record.claim_token,
record.claim_generation, record.releases, record.body, record.hops, record.attributed FROM record WHERE
record.parent_id = :thread AND record.parent_id IS NOT NULL AND record.sequence > :after ORDER BY record.sequence
LIMIT :limit OFFSET 0"""
STATE: Final = """\
SELECT record_words_state.position, record_words_state.clearing FROM record_words_state WHERE
record_words_state.place = 1"""
SET_POSITION: Final = """\
UPDATE record_words_state SET position=:position WHERE record_words_state.place = 1"""
SET_CLEARING: Final = """\
UPDATE record_words_state SET clearing=:clearing WHERE record_words_state.place = 1"""
BEHIND: Final = """\
SELECT record.sequence FROM record WHERE record.sequence > :position ORDER BY record.sequence LIMIT 1 OFFSET 0"""
NOT_INDEXED: Final = """\
SELECT record.sequence, record.record_id, record.kind, record.project_id, record.sender, record.recipient,
record.parent_id, record.status, record.origin, record.completion, record.admitted_at_ms, record.delivery,
record.answer, record.exposed, record.acknowledged, record.inbox, record.position, record.claim_token,
record.claim_generation, record.releases, record.body, record.hops, record.attributed FROM record WHERE
record.sequence > :position ORDER BY record.sequence LIMIT :limit OFFSET 0"""
RECORD_AT: Final = """\
SELECT record.sequence, record.record_id, record.kind, record.project_id, record.sender, record.recipient,
record.parent_id, record.status, record.origin, record.completion, record.admitted_at_ms, record.delivery,
record.answer, record.exposed, record.acknowledged, record.inbox, record.position, record.claim_token,
record.claim_generation, record.releases, record.body, record.hops, record.attributed FROM record WHERE
record.sequence = :sequence"""
INSERT_WORDS: Final = """\
INSERT INTO record_words (rowid, subject, body, who) VALUES (?, ?, ?, ?)"""
ERASE_WORDS: Final = """\
INSERT INTO record_words (record_words, rowid, subject, body, who) VALUES ('delete', ?, ?, ?, ?)"""
MERGE_WORDS: Final = """\
INSERT INTO record_words (record_words, rank) VALUES ('merge', :pages)"""
FOUND: Final = """\
SELECT rowid FROM record_words WHERE record_words MATCH :expression AND rowid < :before ORDER BY rowid DESC LIMIT
:limit"""
