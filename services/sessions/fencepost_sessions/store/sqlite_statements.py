"""Generated from fencepost_sessions.store.statements by scripts/generate_sql.py: `make proto`. Do not edit."""

from typing import Final

DIRECTORY_READ: Final = """\
SELECT directory.epoch, directory.revision, directory.floor FROM directory"""
DIRECTORY_CREATE: Final = """\
INSERT INTO directory (id, epoch, revision, floor) VALUES (:v_id, :v_epoch, :v_revision, :v_floor)"""
DIRECTORY_ADVANCE: Final = """\
UPDATE directory SET revision=:v_revision WHERE directory.revision = :w_revision"""
DIRECTORY_RENAME: Final = """\
UPDATE directory SET epoch=:v_epoch WHERE directory.id = :w_id"""
DIRECTORY_RAISE_FLOOR: Final = """\
UPDATE directory SET floor=:v_floor"""
PROJECT_BY_ID: Final = """\
SELECT project.number, project.project_id, project.kind, project.location, project.name, project.created_at_ms,
project.tools_profile FROM project WHERE project.project_id = :w_project_id"""
PROJECT_BY_LOCATION: Final = """\
SELECT project.number, project.project_id, project.kind, project.location, project.name, project.created_at_ms,
project.tools_profile FROM project WHERE project.location = :w_location"""
PROJECT_PAGE: Final = """\
SELECT project.number, project.project_id, project.kind, project.location, project.name, project.created_at_ms,
project.tools_profile FROM project WHERE project.number > :after_number ORDER BY project.number LIMIT :rows OFFSET 0"""
PROJECT_COUNT: Final = """\
SELECT count(*) AS count_1 FROM project"""
PROJECT_INSERT: Final = """\
INSERT INTO project (number, project_id, kind, location, name, created_at_ms, tools_profile) VALUES (:v_number,
:v_project_id, :v_kind, :v_location, :v_name, :v_created_at_ms, :v_tools_profile)"""
PROJECT_UPDATE: Final = """\
UPDATE project SET tools_profile=:v_tools_profile WHERE project.project_id = :w_project_id"""
AGENT_BY_ID: Final = """\
SELECT agent.agent_id, agent.project_id, agent.name, agent.name_key, agent.role, agent.provider, agent.workspace,
agent.generation, agent.created_at_ms, agent.revision, agent.state, agent.desired, agent.launch,
agent.conversation_id FROM agent WHERE agent.agent_id = :w_agent_id"""
AGENT_BY_KEY: Final = """\
SELECT agent.agent_id, agent.project_id, agent.name, agent.name_key, agent.role, agent.provider, agent.workspace,
agent.generation, agent.created_at_ms, agent.revision, agent.state, agent.desired, agent.launch,
agent.conversation_id FROM agent WHERE agent.name_key = :w_name_key ORDER BY agent.agent_id LIMIT :rows OFFSET 0"""
AGENT_BY_KEY_IN_PROJECT: Final = """\
SELECT agent.agent_id, agent.project_id, agent.name, agent.name_key, agent.role, agent.provider, agent.workspace,
agent.generation, agent.created_at_ms, agent.revision, agent.state, agent.desired, agent.launch,
agent.conversation_id FROM agent WHERE agent.project_id = :w_project_id AND agent.name_key = :w_name_key ORDER BY
agent.agent_id LIMIT :rows OFFSET 0"""
AGENT_PAGE: Final = """\
SELECT agent.agent_id, agent.project_id, agent.name, agent.name_key, agent.role, agent.provider, agent.workspace,
agent.generation, agent.created_at_ms, agent.revision, agent.state, agent.desired, agent.launch,
agent.conversation_id FROM agent WHERE (agent.name_key, agent.agent_id) > (:after_key, :after_id) ORDER BY
agent.name_key, agent.agent_id LIMIT :rows OFFSET 0"""
AGENT_PAGE_OF_PROJECT: Final = """\
SELECT agent.agent_id, agent.project_id, agent.name, agent.name_key, agent.role, agent.provider, agent.workspace,
agent.generation, agent.created_at_ms, agent.revision, agent.state, agent.desired, agent.launch,
agent.conversation_id FROM agent WHERE agent.project_id = :w_project_id AND (agent.name_key, agent.agent_id) >
(:after_key, :after_id) ORDER BY agent.name_key, agent.agent_id LIMIT :rows OFFSET 0"""
AGENT_AFTER_ID: Final = """\
SELECT agent.agent_id, agent.project_id, agent.name, agent.name_key, agent.role, agent.provider, agent.workspace,
agent.generation, agent.created_at_ms, agent.revision, agent.state, agent.desired, agent.launch,
agent.conversation_id FROM agent WHERE agent.agent_id > :after_id ORDER BY agent.agent_id LIMIT :rows OFFSET 0"""
AGENT_AFTER_REVISION: Final = """\
SELECT agent.agent_id, agent.project_id, agent.name, agent.name_key, agent.role, agent.provider, agent.workspace,
agent.generation, agent.created_at_ms, agent.revision, agent.state, agent.desired, agent.launch,
agent.conversation_id FROM agent WHERE agent.revision > :after ORDER BY agent.revision LIMIT :rows OFFSET 0"""
AGENT_COUNT: Final = """\
SELECT count(*) AS count_1 FROM agent WHERE agent.project_id = :w_project_id"""
AGENT_INSERT: Final = """\
INSERT INTO agent (agent_id, project_id, name, name_key, role, provider, workspace, generation, created_at_ms,
revision, state, desired, launch, conversation_id) VALUES (:v_agent_id, :v_project_id, :v_name, :v_name_key,
:v_role, :v_provider, :v_workspace, :v_generation, :v_created_at_ms, :v_revision, :v_state, :v_desired, :v_launch,
:v_conversation_id)"""
AGENT_OF_CONVERSATION: Final = """\
SELECT agent.agent_id, agent.project_id, agent.name, agent.name_key, agent.role, agent.provider, agent.workspace,
agent.generation, agent.created_at_ms, agent.revision, agent.state, agent.desired, agent.launch,
agent.conversation_id FROM agent WHERE agent.conversation_id = :w_conversation_id AND agent.conversation_id != ''"""
AGENT_UPDATE: Final = """\
UPDATE agent SET name=:v_name, name_key=:v_name_key, role=:v_role, provider=:v_provider, workspace=:v_workspace,
generation=:v_generation, revision=:v_revision, state=:v_state, desired=:v_desired, launch=:v_launch,
conversation_id=:v_conversation_id WHERE agent.agent_id = :w_agent_id AND agent.revision = :w_revision"""
AGENT_DELETE: Final = """\
DELETE FROM agent WHERE agent.agent_id = :w_agent_id AND agent.revision = :w_revision"""
TOMBSTONE_BY_ID: Final = """\
SELECT agent_tombstone.agent_id, agent_tombstone.project_id, agent_tombstone.deleted_at_ms, agent_tombstone.revision
FROM agent_tombstone WHERE agent_tombstone.agent_id = :w_agent_id"""
TOMBSTONE_INSERT: Final = """\
INSERT INTO agent_tombstone (agent_id, project_id, deleted_at_ms, revision) VALUES (:v_agent_id, :v_project_id,
:v_deleted_at_ms, :v_revision)"""
TOMBSTONE_AFTER_REVISION: Final = """\
SELECT agent_tombstone.agent_id, agent_tombstone.project_id, agent_tombstone.deleted_at_ms, agent_tombstone.revision
FROM agent_tombstone WHERE agent_tombstone.revision > :after ORDER BY agent_tombstone.revision LIMIT :rows OFFSET 0"""
RELEASED_BY_KEY: Final = """\
SELECT released_name.project_id, released_name.name_key, released_name.agent_id, released_name.released_at_ms FROM
released_name WHERE released_name.project_id = :w_project_id AND released_name.name_key = :w_name_key"""
RELEASED_INSERT: Final = """\
INSERT INTO released_name (project_id, name_key, agent_id, released_at_ms) VALUES (:v_project_id, :v_name_key,
:v_agent_id, :v_released_at_ms)"""
RELEASED_DELETE: Final = """\
DELETE FROM released_name WHERE released_name.project_id = :w_project_id AND released_name.name_key = :w_name_key"""
RELEASED_EXPIRE: Final = """\
DELETE FROM released_name WHERE released_name.released_at_ms <= :until"""
RELEASED_RESTART: Final = """\
UPDATE released_name SET released_at_ms=:v_now WHERE released_name.released_at_ms > :w_now"""
CREDENTIAL_BY_ID: Final = """\
SELECT credential.credential_id, credential.agent_id, credential.project_id, credential.role, credential.generation,
credential.token_sha256, credential.created_at_ms, credential.appeared_revision, credential.revision,
credential.label FROM credential WHERE credential.credential_id = :w_credential_id"""
CREDENTIAL_BY_TOKEN: Final = """\
SELECT credential.credential_id, credential.agent_id, credential.project_id, credential.role, credential.generation,
credential.token_sha256, credential.created_at_ms, credential.appeared_revision, credential.revision,
credential.label FROM credential WHERE credential.token_sha256 = :w_token_sha256"""
CREDENTIAL_OF_AGENT: Final = """\
SELECT credential.credential_id, credential.agent_id, credential.project_id, credential.role, credential.generation,
credential.token_sha256, credential.created_at_ms, credential.appeared_revision, credential.revision,
credential.label FROM credential WHERE credential.agent_id = :w_agent_id ORDER BY credential.generation,
credential.appeared_revision, credential.credential_id"""
CREDENTIAL_OF_HOME: Final = """\
SELECT credential.credential_id, credential.agent_id, credential.project_id, credential.role, credential.generation,
credential.token_sha256, credential.created_at_ms, credential.appeared_revision, credential.revision,
credential.label FROM credential WHERE credential.agent_id IS NULL AND credential.role = :w_role AND
credential.label = :w_label ORDER BY credential.appeared_revision, credential.credential_id"""
CREDENTIAL_PAGE: Final = """\
SELECT credential.credential_id, credential.agent_id, credential.project_id, credential.role, credential.generation,
credential.token_sha256, credential.created_at_ms, credential.appeared_revision, credential.revision,
credential.label FROM credential WHERE (credential.appeared_revision, credential.credential_id) > (:after_number,
:after_id) ORDER BY credential.appeared_revision, credential.credential_id LIMIT :rows OFFSET 0"""
CREDENTIAL_PAGE_OF_AGENT: Final = """\
SELECT credential.credential_id, credential.agent_id, credential.project_id, credential.role, credential.generation,
credential.token_sha256, credential.created_at_ms, credential.appeared_revision, credential.revision,
credential.label FROM credential WHERE credential.agent_id = :w_agent_id AND (credential.appeared_revision,
credential.credential_id) > (:after_number, :after_id) ORDER BY credential.appeared_revision,
credential.credential_id LIMIT :rows OFFSET 0"""
CREDENTIAL_AFTER_ID: Final = """\
SELECT credential.credential_id, credential.agent_id, credential.project_id, credential.role, credential.generation,
credential.token_sha256, credential.created_at_ms, credential.appeared_revision, credential.revision,
credential.label FROM credential WHERE credential.credential_id > :after_id ORDER BY credential.credential_id LIMIT
:rows OFFSET 0"""
CREDENTIAL_AFTER_REVISION: Final = """\
SELECT credential.credential_id, credential.agent_id, credential.project_id, credential.role, credential.generation,
credential.token_sha256, credential.created_at_ms, credential.appeared_revision, credential.revision,
credential.label FROM credential WHERE credential.revision > :after ORDER BY credential.revision LIMIT :rows OFFSET
0"""
CREDENTIAL_INSERT: Final = """\
INSERT INTO credential (credential_id, agent_id, project_id, role, generation, token_sha256, created_at_ms,
appeared_revision, revision, label) VALUES (:v_credential_id, :v_agent_id, :v_project_id, :v_role, :v_generation,
:v_token_sha256, :v_created_at_ms, :v_appeared_revision, :v_revision, :v_label)"""
CREDENTIAL_FOLLOW_ROLE: Final = """\
UPDATE credential SET role=:v_role, revision=:v_revision WHERE credential.agent_id = :w_agent_id"""
CREDENTIAL_DELETE: Final = """\
DELETE FROM credential WHERE credential.credential_id = :w_credential_id"""
REMOVAL_BY_ID: Final = """\
SELECT credential_removal.credential_id, credential_removal.revision FROM credential_removal WHERE
credential_removal.credential_id = :w_credential_id"""
REMOVAL_AFTER_REVISION: Final = """\
SELECT credential_removal.credential_id, credential_removal.revision FROM credential_removal WHERE
credential_removal.revision > :after ORDER BY credential_removal.revision LIMIT :rows OFFSET 0"""
REMOVAL_INSERT: Final = """\
INSERT INTO credential_removal (credential_id, revision) VALUES (:v_credential_id, :v_revision)"""
REMOVAL_SURPLUS: Final = """\
SELECT credential_removal.revision FROM credential_removal ORDER BY credential_removal.revision DESC LIMIT 1 OFFSET
:kept"""
REMOVAL_FORGET: Final = """\
DELETE FROM credential_removal WHERE credential_removal.revision <= :until"""
LEASE_BY_AGENT: Final = """\
SELECT lease.agent_id, lease.acquisition_id, lease.conversation_id, lease.kind, lease.holder, lease.generation,
lease.fence, lease.term_ms, lease.expires_at_ms, lease.acquired_at_ms, lease.ended FROM lease WHERE lease.agent_id =
:w_agent_id"""
LEASE_BY_ACQUISITION: Final = """\
SELECT lease.agent_id, lease.acquisition_id, lease.conversation_id, lease.kind, lease.holder, lease.generation,
lease.fence, lease.term_ms, lease.expires_at_ms, lease.acquired_at_ms, lease.ended FROM lease WHERE
lease.acquisition_id = :w_acquisition_id"""
LEASE_OF_CONVERSATION: Final = """\
SELECT lease.agent_id, lease.acquisition_id, lease.conversation_id, lease.kind, lease.holder, lease.generation,
lease.fence, lease.term_ms, lease.expires_at_ms, lease.acquired_at_ms, lease.ended FROM lease WHERE
lease.conversation_id = :w_conversation_id AND lease.ended = :w_ended"""
LEASE_STANDING: Final = """\
SELECT lease.agent_id, lease.acquisition_id, lease.conversation_id, lease.kind, lease.holder, lease.generation,
lease.fence, lease.term_ms, lease.expires_at_ms, lease.acquired_at_ms, lease.ended FROM lease WHERE lease.ended =
:w_ended AND lease.expires_at_ms > :now ORDER BY lease.acquired_at_ms, lease.acquisition_id LIMIT :rows OFFSET 0"""
LEASE_INSERT: Final = """\
INSERT INTO lease (agent_id, acquisition_id, conversation_id, kind, holder, generation, fence, term_ms,
expires_at_ms, acquired_at_ms, ended) VALUES (:v_agent_id, :v_acquisition_id, :v_conversation_id, :v_kind,
:v_holder, :v_generation, :v_fence, :v_term_ms, :v_expires_at_ms, :v_acquired_at_ms, :v_ended)"""
LEASE_UPDATE: Final = """\
UPDATE lease SET acquisition_id=:v_acquisition_id, conversation_id=:v_conversation_id, kind=:v_kind,
holder=:v_holder, generation=:v_generation, fence=:v_fence, term_ms=:v_term_ms, expires_at_ms=:v_expires_at_ms,
acquired_at_ms=:v_acquired_at_ms, ended=:v_ended WHERE lease.agent_id = :w_agent_id AND lease.acquisition_id =
:w_acquisition_id AND lease.expires_at_ms = :w_expires_at_ms AND lease.ended = :w_ended"""
LEASE_EXPIRE: Final = """\
UPDATE lease SET ended=:v_ended WHERE lease.ended = :w_ended AND lease.expires_at_ms <= :until"""
LEASE_RESTART: Final = """\
UPDATE lease SET expires_at_ms=(lease.term_ms + :now) WHERE lease.ended = :w_ended"""
LEASE_DELETE: Final = """\
DELETE FROM lease WHERE lease.agent_id = :w_agent_id"""
STATUS_BY_AGENT: Final = """\
SELECT agent_status.agent_id, agent_status.state, agent_status.evidence, agent_status.detail, agent_status.turn_id,
agent_status.observed_at_ms, agent_status.generation, agent_status.sequence, agent_status.acquisition_id FROM
agent_status WHERE agent_status.agent_id = :w_agent_id"""
STATUS_INSERT: Final = """\
INSERT INTO agent_status (agent_id, state, evidence, detail, turn_id, observed_at_ms, generation, sequence,
acquisition_id) VALUES (:v_agent_id, :v_state, :v_evidence, :v_detail, :v_turn_id, :v_observed_at_ms, :v_generation,
:v_sequence, :v_acquisition_id)"""
STATUS_UPDATE: Final = """\
UPDATE agent_status SET state=:v_state, evidence=:v_evidence, detail=:v_detail, turn_id=:v_turn_id,
observed_at_ms=:v_observed_at_ms, generation=:v_generation, sequence=:v_sequence, acquisition_id=:v_acquisition_id
WHERE agent_status.agent_id = :w_agent_id AND agent_status.generation = :w_generation AND agent_status.sequence =
:w_sequence"""
STATUS_DELETE: Final = """\
DELETE FROM agent_status WHERE agent_status.agent_id = :w_agent_id"""
OBSERVED_PAGE: Final = """\
SELECT agent_status.agent_id, agent_status.state, agent_status.evidence, agent_status.detail, agent_status.turn_id,
agent_status.observed_at_ms, agent_status.generation, agent_status.sequence, agent_status.acquisition_id,
lease.agent_id AS lease_agent_id, lease.acquisition_id AS lease_acquisition_id, lease.conversation_id AS
lease_conversation_id, lease.kind AS lease_kind, lease.holder AS lease_holder, lease.generation AS lease_generation,
lease.fence AS lease_fence, lease.term_ms AS lease_term_ms, lease.expires_at_ms AS lease_expires_at_ms,
lease.acquired_at_ms AS lease_acquired_at_ms, lease.ended AS lease_ended FROM agent LEFT OUTER JOIN agent_status ON
agent_status.agent_id = agent.agent_id LEFT OUTER JOIN lease ON lease.agent_id = agent.agent_id WHERE
(agent.name_key, agent.agent_id) > (:after_key, :after_id) ORDER BY agent.name_key, agent.agent_id LIMIT :rows
OFFSET 0"""
OBSERVED_PAGE_OF_PROJECT: Final = """\
SELECT agent_status.agent_id, agent_status.state, agent_status.evidence, agent_status.detail, agent_status.turn_id,
agent_status.observed_at_ms, agent_status.generation, agent_status.sequence, agent_status.acquisition_id,
lease.agent_id AS lease_agent_id, lease.acquisition_id AS lease_acquisition_id, lease.conversation_id AS
lease_conversation_id, lease.kind AS lease_kind, lease.holder AS lease_holder, lease.generation AS lease_generation,
lease.fence AS lease_fence, lease.term_ms AS lease_term_ms, lease.expires_at_ms AS lease_expires_at_ms,
lease.acquired_at_ms AS lease_acquired_at_ms, lease.ended AS lease_ended FROM agent LEFT OUTER JOIN agent_status ON
agent_status.agent_id = agent.agent_id LEFT OUTER JOIN lease ON lease.agent_id = agent.agent_id WHERE
agent.project_id = :w_project_id AND (agent.name_key, agent.agent_id) > (:after_key, :after_id) ORDER BY
agent.name_key, agent.agent_id LIMIT :rows OFFSET 0"""
IDEMPOTENCY_BY_KEY: Final = """\
SELECT idempotency.content_sha256, idempotency.answer FROM idempotency WHERE idempotency.scope = :w_scope AND
idempotency.operation = :w_operation AND idempotency."key" = :w_key"""
IDEMPOTENCY_INSERT: Final = """\
INSERT INTO idempotency (scope, operation, "key", content_sha256, answer, created_at_ms) VALUES (:v_scope,
:v_operation, :v_key, :v_content_sha256, :v_answer, :v_created_at_ms)"""
IDEMPOTENCY_OLD: Final = """\
SELECT idempotency.scope, idempotency.operation, idempotency."key" FROM idempotency WHERE idempotency.created_at_ms
< :before ORDER BY idempotency.created_at_ms LIMIT :rows OFFSET 0"""
IDEMPOTENCY_DELETE: Final = """\
DELETE FROM idempotency WHERE idempotency.scope = :w_scope AND idempotency.operation = :w_operation AND
idempotency."key" = :w_key"""
