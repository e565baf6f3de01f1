"""Generated from fencepost_mailbox.store.statements by scripts/generate_sql.py: `make proto`. Do not edit."""

from typing import Final

RECORD_BY_ID: Final = """\
SELECT record.sequence, record.record_id, record.kind, record.project_id, record.sender, record.recipient,
record.parent_id, record.status, record.origin, record.completion, record.admitted_at_ms, record.delivery,
record.answer, record.exposed, record.acknowledged, record.inbox, record.position, record.claim_token,
record.claim_generation, record.releases, record.body, record.hops, record.attributed FROM record WHERE
record.record_id = :record_id"""
PAGE: Final = """\
SELECT record.sequence, record.record_id, record.kind, record.project_id, record.sender, record.recipient,
record.parent_id, record.status, record.origin, record.completion, record.admitted_at_ms, record.delivery,
record.answer, record.exposed, record.acknowledged, record.inbox, record.position, record.claim_token,
record.claim_generation, record.releases, record.body, record.hops, record.attributed FROM record WHERE
record.recipient = :recipient AND record.inbox = :inbox AND record.position > :after ORDER BY record.position LIMIT
:limit OFFSET 0"""
HAS_FRESH: Final = """\
SELECT 1 FROM record WHERE record.recipient = :recipient AND record.inbox = 0 LIMIT 1 OFFSET 0"""
FRESH_POSITIONS: Final = """\
SELECT record.position FROM record WHERE record.recipient = :recipient AND record.inbox = 0 LIMIT :limit OFFSET 0"""
FRESH_BEHIND: Final = """\
SELECT record.position FROM record WHERE record.recipient = :recipient AND record.inbox = 0 AND record.position >
:after ORDER BY record.position LIMIT :limit OFFSET 0"""
OPEN_REQUESTS: Final = """\
SELECT record.sequence, record.record_id, record.kind, record.project_id, record.sender, record.recipient,
record.parent_id, record.status, record.origin, record.completion, record.admitted_at_ms, record.delivery,
record.answer, record.exposed, record.acknowledged, record.inbox, record.position, record.claim_token,
record.claim_generation, record.releases, record.body, record.hops, record.attributed FROM record WHERE
record.recipient = :recipient AND record.answer = 1 AND record.delivery != 1 AND record.kind = 2 ORDER BY
record.position LIMIT :limit OFFSET 0"""
RECEIVED: Final = """\
SELECT record.sequence, record.record_id, record.kind, record.project_id, record.sender, record.recipient,
record.parent_id, record.status, record.origin, record.completion, record.admitted_at_ms, record.delivery,
record.answer, record.exposed, record.acknowledged, record.inbox, record.position, record.claim_token,
record.claim_generation, record.releases, record.body, record.hops, record.attributed FROM record WHERE
record.recipient = :recipient AND record.inbox = :inbox AND record.position < :before ORDER BY record.position DESC
LIMIT :limit OFFSET 0"""
SENT: Final = """\
SELECT record.sequence, record.record_id, record.kind, record.project_id, record.sender, record.recipient,
record.parent_id, record.status, record.origin, record.completion, record.admitted_at_ms, record.delivery,
record.answer, record.exposed, record.acknowledged, record.inbox, record.position, record.claim_token,
record.claim_generation, record.releases, record.body, record.hops, record.attributed FROM record WHERE
record.sender = :sender AND record.sequence < :before AND record.recipient != :besides ORDER BY record.sequence DESC
LIMIT :limit OFFSET 0"""
FACTS: Final = """\
SELECT fact.sequence, fact.record_id, fact.fact, fact.at_ms, fact.generation, fact.evidence FROM fact WHERE
fact.record_id = :record_id ORDER BY fact.sequence DESC LIMIT :limit OFFSET 0"""
FACT_COUNT: Final = """\
SELECT count(fact.sequence) AS count_1 FROM fact WHERE fact.record_id = :record_id"""
ADMISSIONS: Final = """\
SELECT record.sequence, record.record_id, record.kind, record.project_id, record.sender, record.recipient,
record.parent_id, record.status, record.origin, record.completion, record.admitted_at_ms, record.delivery,
record.answer, record.exposed, record.acknowledged, record.inbox, record.position, record.claim_token,
record.claim_generation, record.releases, record.body, record.hops, record.attributed FROM record WHERE
record.sequence > :after ORDER BY record.sequence LIMIT :limit OFFSET 0"""
FACTS_BEHIND: Final = """\
SELECT fact.sequence, fact.record_id, fact.fact, fact.at_ms, fact.generation, fact.evidence FROM fact WHERE
fact.sequence > :after ORDER BY fact.sequence LIMIT :limit OFFSET 0"""
REPLY_OF: Final = """\
SELECT record.record_id, record.status, record.body, record.origin FROM record WHERE record.parent_id = :parent_id
AND record.parent_id IS NOT NULL AND record.kind = 3 ORDER BY record.sequence LIMIT 1 OFFSET 0"""
KEY: Final = """\
SELECT idempotency.fingerprint, idempotency.record_id FROM idempotency WHERE idempotency.caller = :caller AND
idempotency.operation = :operation AND idempotency."key" = :key"""
CLAIM_BY_TOKEN: Final = """\
SELECT claim.token, claim.record_id, claim.recipient, claim.dispatcher, claim.incarnation, claim.generation,
claim.taken_at_ms, claim.term_ms, claim.expires_at_ms, claim.state FROM claim WHERE claim.token = :token"""
FLOOR_OF: Final = """\
SELECT generation_floor.generation FROM generation_floor WHERE generation_floor.agent_id = :agent_id"""
READ_AT: Final = """\
SELECT reader.last_read_at_ms FROM reader WHERE reader.agent_id = :agent_id"""
NEWEST_RECORD: Final = """\
SELECT record.sequence FROM record ORDER BY record.sequence DESC LIMIT 1 OFFSET 0"""
NEWEST_FACT: Final = """\
SELECT fact.sequence FROM fact ORDER BY fact.sequence DESC LIMIT 1 OFFSET 0"""
OLDEST_PENDING: Final = """\
SELECT record.sequence, record.record_id, record.kind, record.project_id, record.sender, record.recipient,
record.parent_id, record.status, record.origin, record.completion, record.admitted_at_ms, record.delivery,
record.answer, record.exposed, record.acknowledged, record.inbox, record.position, record.claim_token,
record.claim_generation, record.releases, record.body, record.hops, record.attributed FROM record WHERE
record.recipient = :recipient AND record.answer = 1 AND record.delivery = 1 AND record.kind != 6 ORDER BY
record.position LIMIT 1 OFFSET 0"""
OLDEST_STORED: Final = """\
SELECT record.sequence, record.record_id, record.kind, record.project_id, record.sender, record.recipient,
record.parent_id, record.status, record.origin, record.completion, record.admitted_at_ms, record.delivery,
record.answer, record.exposed, record.acknowledged, record.inbox, record.position, record.claim_token,
record.claim_generation, record.releases, record.body, record.hops, record.attributed FROM record WHERE
record.recipient = :recipient AND record.inbox = 0 AND record.delivery = 7 AND record.position <= :high_water ORDER
BY record.position LIMIT 1 OFFSET 0"""
OPEN_WAKES: Final = """\
SELECT record.sequence, record.record_id, record.kind, record.project_id, record.sender, record.recipient,
record.parent_id, record.status, record.origin, record.completion, record.admitted_at_ms, record.delivery,
record.answer, record.exposed, record.acknowledged, record.inbox, record.position, record.claim_token,
record.claim_generation, record.releases, record.body, record.hops, record.attributed FROM record WHERE
record.recipient = :recipient AND record.answer = 1 AND record.kind = 6"""
WAKE_WRITTEN: Final = """\
SELECT record.admitted_at_ms FROM record WHERE record.recipient = :recipient AND record.kind = 6 ORDER BY
record.admitted_at_ms DESC LIMIT 1 OFFSET :newer"""
REWORD: Final = """\
UPDATE record SET body=:body WHERE record.sequence = :was_sequence AND record.delivery = 1 AND record.kind = 6"""
NEXT_RECIPIENT: Final = """\
SELECT record.recipient FROM record WHERE record.recipient > :after ORDER BY record.recipient LIMIT 1 OFFSET 0"""
ACKNOWLEDGEABLE: Final = """\
SELECT record.sequence, record.record_id, record.kind, record.project_id, record.sender, record.recipient,
record.parent_id, record.status, record.origin, record.completion, record.admitted_at_ms, record.delivery,
record.answer, record.exposed, record.acknowledged, record.inbox, record.position, record.claim_token,
record.claim_generation, record.releases, record.body, record.hops, record.attributed FROM record WHERE
record.recipient = :recipient AND record.position <= :up_to AND record.acknowledged = 0 AND (record.exposed = 1 OR
record.delivery IN (9, 4)) ORDER BY record.position LIMIT :limit OFFSET 0"""
INSERT_RECORD: Final = """\
INSERT INTO record (sequence, record_id, kind, project_id, sender, recipient, parent_id, status, origin, completion,
admitted_at_ms, delivery, answer, exposed, acknowledged, inbox, position, claim_token, claim_generation, releases,
body, hops, attributed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
INSERT_KEY: Final = """\
INSERT INTO idempotency (caller, operation, "key", fingerprint, record_id, created_at_ms) VALUES (?, ?, ?, ?, ?, ?)"""
INSERT_RECORDS: Final = """\
INSERT OR ROLLBACK INTO record (sequence, record_id, kind, project_id, sender, recipient, parent_id, status, origin,
completion, admitted_at_ms, delivery, answer, exposed, acknowledged, inbox, position, claim_token, claim_generation,
releases, body, hops, attributed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
INSERT_KEYS: Final = """\
INSERT OR ROLLBACK INTO idempotency (caller, operation, "key", fingerprint, record_id, created_at_ms) VALUES (?, ?,
?, ?, ?, ?)"""
INSERT_FACT: Final = """\
INSERT INTO fact (sequence, record_id, fact, at_ms, generation, evidence) VALUES (?, ?, ?, ?, ?, ?)"""
INSERT_CLAIM: Final = """\
INSERT INTO claim (token, record_id, recipient, dispatcher, incarnation, generation, taken_at_ms, term_ms,
expires_at_ms, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
MOVE_RECORD: Final = """\
UPDATE record SET delivery=:delivery, answer=:answer, exposed=:exposed, acknowledged=:acknowledged, inbox=:inbox,
position=:position, claim_token=:claim_token, claim_generation=:claim_generation, releases=:releases WHERE
record.sequence = :was_sequence AND record.delivery = :was_delivery AND record.answer = :was_answer AND
record.claim_token IS :was_claim_token AND record.claim_generation = :was_claim_generation"""
SET_CLAIM_STATE: Final = """\
UPDATE claim SET state=:state WHERE claim.token = :was_token AND claim.generation = :was_generation AND claim.state
= :was_state"""
HELD_BY_RECIPIENT: Final = """\
SELECT claim.token, claim.record_id, claim.recipient, claim.dispatcher, claim.incarnation, claim.generation,
claim.taken_at_ms, claim.term_ms, claim.expires_at_ms, claim.state FROM claim WHERE claim.recipient = :recipient AND
claim.state = 1"""
HELD_BY_DISPATCHER: Final = """\
SELECT claim.token, claim.record_id, claim.recipient, claim.dispatcher, claim.incarnation, claim.generation,
claim.taken_at_ms, claim.term_ms, claim.expires_at_ms, claim.state FROM claim WHERE claim.dispatcher = :dispatcher
AND claim.state = 1"""
HELD_EXPIRED: Final = """\
SELECT claim.token, claim.record_id, claim.recipient, claim.dispatcher, claim.incarnation, claim.generation,
claim.taken_at_ms, claim.term_ms, claim.expires_at_ms, claim.state FROM claim WHERE claim.expires_at_ms <=
:expired_at_ms AND claim.state = 1"""
ANY_EXPIRED: Final = """\
SELECT 1 FROM claim WHERE claim.expires_at_ms <= :expired_at_ms AND claim.state = 1 LIMIT 1 OFFSET 0"""
ACCEPTED_BY_RECIPIENT: Final = """\
SELECT claim.token, claim.record_id, claim.recipient, claim.dispatcher, claim.incarnation, claim.generation,
claim.taken_at_ms, claim.term_ms, claim.expires_at_ms, claim.state FROM claim, record WHERE record.recipient =
:recipient AND record.answer = 1 AND record.delivery = 4 AND claim.token = record.claim_token AND claim.state = 3"""
ACCEPTED_BY_DISPATCHER: Final = """\
SELECT claim.token, claim.record_id, claim.recipient, claim.dispatcher, claim.incarnation, claim.generation,
claim.taken_at_ms, claim.term_ms, claim.expires_at_ms, claim.state FROM claim, record WHERE claim.dispatcher =
:dispatcher AND record.answer = 1 AND record.delivery = 4 AND claim.token = record.claim_token AND claim.state = 3"""
EXTEND_HELD: Final = """\
UPDATE claim SET expires_at_ms=(:now_ms + claim.term_ms) WHERE claim.state = 1 AND claim.expires_at_ms < :now_ms +
claim.term_ms"""
BINDING_BY_TOKEN: Final = """\
SELECT binding.sequence, binding.token, binding.record_id, binding.recipient, binding.requester, binding.dispatcher,
binding.generation, binding.provider, binding.session_id, binding.turn_id, binding.mode, binding.state,
binding.publishes, binding.outcome, binding.final_bytes, binding.final_digest, binding.evidence, binding.reply_id,
binding.final FROM binding WHERE binding.token = :token"""
INSERT_BINDING: Final = """\
INSERT INTO binding (sequence, token, record_id, recipient, requester, dispatcher, generation, provider, session_id,
turn_id, mode, state, publishes, outcome, final_bytes, final_digest, evidence, reply_id, final) VALUES (?, ?, ?, ?,
?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
MOVE_BINDING: Final = """\
UPDATE binding SET state=:state, outcome=:outcome, final_bytes=:final_bytes, final_digest=:final_digest,
evidence=:evidence, reply_id=:reply_id, final=:final WHERE binding.sequence = :was_sequence AND binding.token =
:was_token AND binding.generation = :was_generation AND binding.state = :was_state"""
BOUND_BY_RECIPIENT: Final = """\
SELECT binding.sequence, binding.token, binding.record_id, binding.recipient, binding.requester, binding.dispatcher,
binding.generation, binding.provider, binding.session_id, binding.turn_id, binding.mode, binding.state,
binding.publishes, binding.outcome, binding.final_bytes, binding.final_digest, binding.evidence, binding.reply_id,
binding.final FROM binding WHERE binding.recipient = :recipient AND binding.state = 1"""
BOUND_BY_DISPATCHER: Final = """\
SELECT binding.sequence, binding.token, binding.record_id, binding.recipient, binding.requester, binding.dispatcher,
binding.generation, binding.provider, binding.session_id, binding.turn_id, binding.mode, binding.state,
binding.publishes, binding.outcome, binding.final_bytes, binding.final_digest, binding.evidence, binding.reply_id,
binding.final FROM binding WHERE binding.dispatcher = :dispatcher AND binding.state IN (1, 4) AND binding.state = 1"""
BINDINGS_UNSETTLED: Final = """\
SELECT binding.sequence, binding.token, binding.record_id, binding.recipient, binding.requester, binding.dispatcher,
binding.generation, binding.provider, binding.session_id, binding.turn_id, binding.mode, binding.state,
binding.publishes, binding.outcome, binding.final_bytes, binding.final_digest, binding.evidence, binding.reply_id,
binding.final FROM binding JOIN record ON record.record_id = binding.record_id WHERE binding.dispatcher =
:dispatcher AND binding.sequence > :after AND binding.state IN (1, 4) AND (binding.state = 1 OR record.answer = 1)
ORDER BY binding.sequence LIMIT :limit OFFSET 0"""
UNPUBLISHED_OF: Final = """\
SELECT binding.sequence, binding.token, binding.record_id, binding.recipient, binding.requester, binding.dispatcher,
binding.generation, binding.provider, binding.session_id, binding.turn_id, binding.mode, binding.state,
binding.publishes, binding.outcome, binding.final_bytes, binding.final_digest, binding.evidence, binding.reply_id,
binding.final FROM binding WHERE binding.requester = :requester AND binding.state = 2 AND binding.publishes = 1
ORDER BY binding.sequence LIMIT :limit OFFSET 0"""
HAS_UNPUBLISHED: Final = """\
SELECT 1 FROM binding WHERE binding.requester = :requester AND binding.state = 2 AND binding.publishes = 1 LIMIT 1
OFFSET 0"""
UNPUBLISHED: Final = """\
SELECT binding.sequence, binding.token, binding.record_id, binding.recipient, binding.requester, binding.dispatcher,
binding.generation, binding.provider, binding.session_id, binding.turn_id, binding.mode, binding.state,
binding.publishes, binding.outcome, binding.final_bytes, binding.final_digest, binding.evidence, binding.reply_id,
binding.final FROM binding INDEXED BY binding_unpublished WHERE binding.state = 2 AND binding.publishes = 1 LIMIT
:limit OFFSET 0"""
ERASE_BINDINGS: Final = """\
DELETE FROM binding WHERE binding.token IN (SELECT claim.token FROM claim WHERE claim.record_id = :record_id)"""
MOST_HOPS: Final = """\
SELECT record.hops FROM record WHERE record.recipient = :recipient AND record.answer = 1 AND record.kind = 2 AND
record.delivery IN (2, 4) ORDER BY record.hops DESC LIMIT 1 OFFSET 0"""
INCARNATION_OF: Final = """\
SELECT dispatcher.incarnation FROM dispatcher WHERE dispatcher.dispatcher = :dispatcher"""
PUT_INCARNATION: Final = """\
INSERT INTO dispatcher (dispatcher, incarnation) VALUES (:dispatcher, :incarnation) ON CONFLICT (dispatcher) DO
UPDATE SET incarnation = excluded.incarnation"""
PUT_FLOOR: Final = """\
INSERT INTO generation_floor (agent_id, generation) VALUES (:agent_id, :generation) ON CONFLICT (agent_id) DO UPDATE
SET generation = excluded.generation"""
PUT_READER: Final = """\
INSERT INTO reader (agent_id, last_read_at_ms) VALUES (:agent_id, :last_read_at_ms) ON CONFLICT (agent_id) DO UPDATE
SET last_read_at_ms = excluded.last_read_at_ms"""
PUT_META: Final = """\
INSERT INTO meta ("key", value) VALUES (:key, :value) ON CONFLICT ("key") DO UPDATE SET value = excluded.value"""
FORGET_META: Final = """\
DELETE FROM meta"""
PUT_AGENT: Final = """\
INSERT INTO directory_agent (agent_id, project_id, name, role, provider, generation, revision, desired) VALUES
(:agent_id, :project_id, :name, :role, :provider, :generation, :revision, :desired) ON CONFLICT (agent_id) DO UPDATE
SET project_id = excluded.project_id, name = excluded.name, role = excluded.role, provider = excluded.provider,
generation = excluded.generation, revision = excluded.revision, desired = excluded.desired"""
PUT_CREDENTIAL: Final = """\
INSERT INTO directory_credential (credential_id, token_sha256, agent_id, project_id, role, generation, label,
revision) VALUES (:credential_id, :token_sha256, :agent_id, :project_id, :role, :generation, :label, :revision) ON
CONFLICT (credential_id) DO UPDATE SET token_sha256 = excluded.token_sha256, agent_id = excluded.agent_id,
project_id = excluded.project_id, role = excluded.role, generation = excluded.generation, label = excluded.label,
revision = excluded.revision"""
DROP_CREDENTIAL: Final = """\
DELETE FROM directory_credential WHERE directory_credential.credential_id = :credential_id"""
CLEAR_AGENTS: Final = """\
DELETE FROM directory_agent"""
CLEAR_CREDENTIALS: Final = """\
DELETE FROM directory_credential"""
DROP_AGENT: Final = """\
DELETE FROM directory_agent WHERE directory_agent.agent_id = :agent_id"""
ALL_AGENTS: Final = """\
SELECT directory_agent.agent_id, directory_agent.project_id, directory_agent.name, directory_agent.role,
directory_agent.provider, directory_agent.generation, directory_agent.revision, directory_agent.desired FROM
directory_agent"""
ALL_CREDENTIALS: Final = """\
SELECT directory_credential.credential_id, directory_credential.token_sha256, directory_credential.agent_id,
directory_credential.project_id, directory_credential.role, directory_credential.generation,
directory_credential.label, directory_credential.revision FROM directory_credential"""
ALL_META: Final = """\
SELECT meta."key", meta.value FROM meta"""
DELETED: Final = """\
SELECT 1 FROM tombstone WHERE tombstone.agent_id = :agent_id"""
PUT_TOMBSTONE: Final = """\
INSERT INTO tombstone (agent_id, project_id, phase, closed_at_ms, sequence) VALUES (:agent_id, :project_id, :phase,
:closed_at_ms, :sequence) ON CONFLICT (agent_id) DO UPDATE SET project_id = excluded.project_id, phase =
excluded.phase, closed_at_ms = excluded.closed_at_ms, sequence = excluded.sequence"""
ALL_TOMBSTONES: Final = """\
SELECT tombstone.agent_id, tombstone.project_id, tombstone.phase, tombstone.closed_at_ms, tombstone.sequence FROM
tombstone"""
NEWEST_TOMBSTONE: Final = """\
SELECT tombstone.sequence FROM tombstone ORDER BY tombstone.sequence DESC LIMIT 1 OFFSET 0"""
UNFINISHED_DELETIONS: Final = """\
SELECT tombstone.agent_id, tombstone.project_id, tombstone.phase, tombstone.closed_at_ms, tombstone.sequence FROM
tombstone WHERE tombstone.phase < 3 ORDER BY tombstone.agent_id LIMIT :limit OFFSET 0"""
OPEN_OF_RECIPIENT: Final = """\
SELECT record.sequence, record.record_id, record.kind, record.project_id, record.sender, record.recipient,
record.parent_id, record.status, record.origin, record.completion, record.admitted_at_ms, record.delivery,
record.answer, record.exposed, record.acknowledged, record.inbox, record.position, record.claim_token,
record.claim_generation, record.releases, record.body, record.hops, record.attributed FROM record WHERE
record.recipient = :recipient AND record.answer = 1 ORDER BY record.position LIMIT :limit OFFSET 0"""
OPEN_OF_SENDER: Final = """\
SELECT record.sequence, record.record_id, record.kind, record.project_id, record.sender, record.recipient,
record.parent_id, record.status, record.origin, record.completion, record.admitted_at_ms, record.delivery,
record.answer, record.exposed, record.acknowledged, record.inbox, record.position, record.claim_token,
record.claim_generation, record.releases, record.body, record.hops, record.attributed FROM record INDEXED BY
record_open WHERE record.sender = :sender AND record.answer = 1 LIMIT :limit OFFSET 0"""
RECEIVED_IDS: Final = """\
SELECT record.sequence, record.record_id FROM record WHERE record.recipient = :recipient LIMIT :limit OFFSET 0"""
ERASE_FACTS: Final = """\
DELETE FROM fact WHERE fact.record_id = :record_id"""
ERASE_CLAIMS: Final = """\
DELETE FROM claim WHERE claim.record_id = :record_id"""
ERASE_RECORD: Final = """\
DELETE FROM record WHERE record.sequence = :sequence"""
KEYS_OF: Final = """\
SELECT idempotency.operation, idempotency."key" FROM idempotency WHERE idempotency.caller = :caller LIMIT :limit
OFFSET 0"""
ERASE_KEY: Final = """\
DELETE FROM idempotency WHERE idempotency.caller = :caller AND idempotency.operation = :operation AND
idempotency."key" = :key"""
ERASE_FLOOR: Final = """\
DELETE FROM generation_floor WHERE generation_floor.agent_id = :agent_id"""
ERASE_READER: Final = """\
DELETE FROM reader WHERE reader.agent_id = :agent_id"""
