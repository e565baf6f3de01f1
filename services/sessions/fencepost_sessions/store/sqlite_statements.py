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
SELECT project.number, project.project_id, project.kind, project.location, project.name, project.created_at_ms FROM
project WHERE project.project_id = :w_project_id"""
PROJECT_BY_LOCATION: Final = """\
SELECT project.number, project.project_id, project.kind, project.location, project.name, project.created_at_ms FROM
project WHERE project.location = :w_location"""
PROJECT_PAGE: Final = """\
SELECT project.number, project.project_id, project.kind, project.location, project.name, project.created_at_ms FROM
project WHERE project.number > :after_number ORDER BY project.number LIMIT :rows OFFSET 0"""
PROJECT_COUNT: Final = """\
SELECT count(*) AS count_1 FROM project"""
PROJECT_INSERT: Final = """\
INSERT INTO project (number, project_id, kind, location, name, created_at_ms) VALUES (:v_number, :v_project_id,
:v_kind, :v_location, :v_name, :v_created_at_ms)"""
AGENT_BY_ID: Final = """\
SELECT agent.agent_id, agent.project_id, agent.name, agent.name_key, agent.role, agent.provider, agent.workspace,
agent.generation, agent.created_at_ms, agent.revision, agent.state FROM agent WHERE agent.agent_id = :w_agent_id"""
AGENT_BY_KEY: Final = """\
SELECT agent.agent_id, agent.project_id, agent.name, agent.name_key, agent.role, agent.provider, agent.workspace,
agent.generation, agent.created_at_ms, agent.revision, agent.state FROM agent WHERE agent.name_key = :w_name_key
ORDER BY agent.agent_id LIMIT :rows OFFSET 0"""
AGENT_BY_KEY_IN_PROJECT: Final = """\
SELECT agent.agent_id, agent.project_id, agent.name, agent.name_key, agent.role, agent.provider, agent.workspace,
agent.generation, agent.created_at_ms, agent.revision, agent.state FROM agent WHERE agent.project_id = :w_project_id
AND agent.name_key = :w_name_key ORDER BY agent.agent_id LIMIT :rows OFFSET 0"""
AGENT_PAGE: Final = """\
SELECT agent.agent_id, agent.project_id, agent.name, agent.name_key, agent.role, agent.provider, agent.workspace,
agent.generation, agent.created_at_ms, agent.revision, agent.state FROM agent WHERE (agent.name_key, agent.agent_id)
> (:after_key, :after_id) ORDER BY agent.name_key, agent.agent_id LIMIT :rows OFFSET 0"""
AGENT_PAGE_OF_PROJECT: Final = """\
SELECT agent.agent_id, agent.project_id, agent.name, agent.name_key, agent.role, agent.provider, agent.workspace,
agent.generation, agent.created_at_ms, agent.revision, agent.state FROM agent WHERE agent.project_id = :w_project_id
AND (agent.name_key, agent.agent_id) > (:after_key, :after_id) ORDER BY agent.name_key, agent.agent_id LIMIT :rows
OFFSET 0"""
AGENT_AFTER_ID: Final = """\
SELECT agent.agent_id, agent.project_id, agent.name, agent.name_key, agent.role, agent.provider, agent.workspace,
agent.generation, agent.created_at_ms, agent.revision, agent.state FROM agent WHERE agent.agent_id > :after_id ORDER
BY agent.agent_id LIMIT :rows OFFSET 0"""
AGENT_AFTER_REVISION: Final = """\
SELECT agent.agent_id, agent.project_id, agent.name, agent.name_key, agent.role, agent.provider, agent.workspace,
agent.generation, agent.created_at_ms, agent.revision, agent.state FROM agent WHERE agent.revision > :after ORDER BY
agent.revision LIMIT :rows OFFSET 0"""
AGENT_COUNT: Final = """\
SELECT count(*) AS count_1 FROM agent WHERE agent.project_id = :w_project_id"""
AGENT_INSERT: Final = """\
INSERT INTO agent (agent_id, project_id, name, name_key, role, provider, workspace, generation, created_at_ms,
revision, state) VALUES (:v_agent_id, :v_project_id, :v_name, :v_name_key, :v_role, :v_provider, :v_workspace,
:v_generation, :v_created_at_ms, :v_revision, :v_state)"""
AGENT_UPDATE: Final = """\
UPDATE agent SET name=:v_name, name_key=:v_name_key, role=:v_role, provider=:v_provider, workspace=:v_workspace,
generation=:v_generation, revision=:v_revision, state=:v_state WHERE agent.agent_id = :w_agent_id AND agent.revision
= :w_revision"""
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
