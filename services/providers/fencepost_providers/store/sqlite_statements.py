"""Generated from fencepost_providers.store.statements by scripts/generate_sql.py: `make proto`. Do not edit."""

from typing import Final

DISPATCHER_READ: Final = """\
SELECT dispatcher.dispatcher_id, dispatcher.incarnation FROM dispatcher"""
DISPATCHER_INSERT: Final = """\
INSERT INTO dispatcher (id, dispatcher_id, incarnation) VALUES (:id, :dispatcher_id, :incarnation)"""
DISPATCHER_DELETE: Final = """\
DELETE FROM dispatcher"""
CARRIED_ALL: Final = """\
SELECT carried.token, carried.agent_id, carried.record_id, carried.generation, carried.written_at_ms,
carried.answer, carried.evidence, carried.provider, carried.conversation_id, carried.turn_id, carried.mode FROM
carried ORDER BY carried.written_at_ms, carried.token"""
CARRIED_BY_TOKEN: Final = """\
SELECT carried.token, carried.agent_id, carried.record_id, carried.generation, carried.written_at_ms,
carried.answer, carried.evidence, carried.provider, carried.conversation_id, carried.turn_id, carried.mode FROM
carried WHERE carried.token = :w_token"""
CARRIED_INSERT: Final = """\
INSERT INTO carried (token, agent_id, record_id, generation, written_at_ms, answer, evidence, provider,
conversation_id, turn_id, mode) VALUES (:token, :agent_id, :record_id, :generation, :written_at_ms, :answer,
:evidence, :provider, :conversation_id, :turn_id, :mode)"""
CARRIED_SETTLE: Final = """\
UPDATE carried SET answer=:v_answer, evidence=:v_evidence, provider=:v_provider, conversation_id=:v_conversation_id,
turn_id=:v_turn_id, mode=:v_mode WHERE carried.token = :w_token AND carried.answer = :w_answer"""
CARRIED_DELETE: Final = """\
DELETE FROM carried WHERE carried.token = :w_token AND carried.answer = :w_answer"""
CARRIED_CLEAR: Final = """\
DELETE FROM carried"""
OUTCOME_ALL: Final = """\
SELECT outcome.token, outcome.agent_id, outcome.record_id, outcome.generation, outcome.written_at_ms,
outcome.provider, outcome.conversation_id, outcome.turn_id, outcome.mode, outcome.status, outcome.evidence,
outcome.final_bytes, outcome.final_text FROM outcome ORDER BY outcome.written_at_ms, outcome.token"""
OUTCOME_BY_TOKEN: Final = """\
SELECT outcome.token FROM outcome WHERE outcome.token = :w_token"""
OUTCOME_INSERT: Final = """\
INSERT INTO outcome (token, agent_id, record_id, generation, written_at_ms, provider, conversation_id, turn_id,
mode, status, evidence, final_bytes, final_text) VALUES (:token, :agent_id, :record_id, :generation, :written_at_ms,
:provider, :conversation_id, :turn_id, :mode, :status, :evidence, :final_bytes, :final_text)"""
OUTCOME_DELETE: Final = """\
DELETE FROM outcome WHERE outcome.token = :w_token"""
OUTCOME_CLEAR: Final = """\
DELETE FROM outcome"""
LIFE_ALL: Final = """\
SELECT life.agent_id, life.acquisition_id, life.generation, life.pid, life.pid_mark FROM life ORDER BY life.agent_id"""
LIFE_INSERT: Final = """\
INSERT INTO life (agent_id, acquisition_id, generation, pid, pid_mark) VALUES (:agent_id, :acquisition_id,
:generation, :pid, :pid_mark)"""
LIFE_DELETE: Final = """\
DELETE FROM life WHERE life.agent_id = :w_agent_id"""
LIFE_CLEAR: Final = """\
DELETE FROM life"""
INTEGRATION_ALL: Final = """\
SELECT integration.request_id, integration.task_id, integration.coordinator_id, integration.commit_id,
integration.checkout, integration.branch, integration.old_id, integration.new_id, integration.written_at_ms,
integration.note FROM integration ORDER BY integration.written_at_ms, integration.request_id"""
INTEGRATION_INSERT: Final = """\
INSERT INTO integration (request_id, task_id, coordinator_id, commit_id, checkout, branch, old_id, new_id,
written_at_ms, note) VALUES (:request_id, :task_id, :coordinator_id, :commit_id, :checkout, :branch, :old_id,
:new_id, :written_at_ms, :note)"""
INTEGRATION_DELETE: Final = """\
DELETE FROM integration WHERE integration.request_id = :w_request_id"""
INTEGRATION_CLEAR: Final = """\
DELETE FROM integration"""
