"""Generated from fencepost_mailbox.store.tasks.statements by scripts/generate_sql.py: `make proto`. Do not edit."""

from typing import Final

TASK_BY_ID: Final = """\
SELECT task.sequence, task.task_id, task.project_id, task.issuer, task.assignee, task.reviewer, task.pool,
task.state, task.phase, task.revision, task.version, task.attempt_id, task.certainty, task.started, task.overdue,
task.archived, task.orphan, task.created_at_ms, task.changed_at_ms, task.state_at_ms, task.start_deadline_ms,
task.execution_timeout_s, task.review_timeout_s, task.due_ms, task.queue_position, task.percent, task.note,
task.wait_reason, task.result, task.evidence, task.evidence_ids, task.feedback, task.failure,
task.integrated_commit, task.context_refs, task.description, task.acceptance FROM task WHERE task.task_id = :task_id"""
TASK_STATE: Final = """\
SELECT task.state, task.project_id FROM task WHERE task.task_id = :task_id"""
EXECUTING_OF: Final = """\
SELECT task.sequence, task.task_id, task.project_id, task.issuer, task.assignee, task.reviewer, task.pool,
task.state, task.phase, task.revision, task.version, task.attempt_id, task.certainty, task.started, task.overdue,
task.archived, task.orphan, task.created_at_ms, task.changed_at_ms, task.state_at_ms, task.start_deadline_ms,
task.execution_timeout_s, task.review_timeout_s, task.due_ms, task.queue_position, task.percent, task.note,
task.wait_reason, task.result, task.evidence, task.evidence_ids, task.feedback, task.failure,
task.integrated_commit, task.context_refs, task.description, task.acceptance FROM task WHERE task.assignee =
:assignee AND task.phase IN (4, 5, 6, 7)"""
ALL_EXECUTING: Final = """\
SELECT task.sequence, task.task_id, task.project_id, task.issuer, task.assignee, task.reviewer, task.pool,
task.state, task.phase, task.revision, task.version, task.attempt_id, task.certainty, task.started, task.overdue,
task.archived, task.orphan, task.created_at_ms, task.changed_at_ms, task.state_at_ms, task.start_deadline_ms,
task.execution_timeout_s, task.review_timeout_s, task.due_ms, task.queue_position, task.percent, task.note,
task.wait_reason, task.result, task.evidence, task.evidence_ids, task.feedback, task.failure,
task.integrated_commit, task.context_refs, task.description, task.acceptance FROM task INDEXED BY task_slot WHERE
task.phase IN (4, 5, 6, 7) AND task.assignee > :after ORDER BY task.assignee LIMIT :limit OFFSET 0"""
SLOT_TAKEN: Final = """\
SELECT 1 FROM task WHERE task.assignee = :assignee AND task.phase IN (4, 5, 6, 7)"""
FIRST_QUEUED: Final = """\
SELECT task.task_id FROM task WHERE task.assignee = :assignee AND task.phase = 3 ORDER BY task.queue_position LIMIT
1 OFFSET 0"""
DUE: Final = """\
SELECT task.sequence, task.task_id, task.project_id, task.issuer, task.assignee, task.reviewer, task.pool,
task.state, task.phase, task.revision, task.version, task.attempt_id, task.certainty, task.started, task.overdue,
task.archived, task.orphan, task.created_at_ms, task.changed_at_ms, task.state_at_ms, task.start_deadline_ms,
task.execution_timeout_s, task.review_timeout_s, task.due_ms, task.queue_position, task.percent, task.note,
task.wait_reason, task.result, task.evidence, task.evidence_ids, task.feedback, task.failure,
task.integrated_commit, task.context_refs, task.description, task.acceptance FROM task WHERE task.due_ms <= :now_ms
AND task.due_ms IS NOT NULL ORDER BY task.due_ms LIMIT :limit OFFSET 0"""
ANY_DUE: Final = """\
SELECT 1 FROM task WHERE task.due_ms <= :now_ms AND task.due_ms IS NOT NULL LIMIT 1 OFFSET 0"""
NEWEST_EVENT: Final = """\
SELECT task_event.sequence FROM task_event ORDER BY task_event.sequence DESC LIMIT 1 OFFSET 0"""
LISTED_BY_PROJECT: Final = """\
SELECT task.sequence, task.task_id, task.project_id, task.issuer, task.assignee, task.reviewer, task.pool,
task.state, task.phase, task.revision, task.version, task.attempt_id, task.certainty, task.started, task.overdue,
task.archived, task.orphan, task.created_at_ms, task.changed_at_ms, task.state_at_ms, task.start_deadline_ms,
task.execution_timeout_s, task.review_timeout_s, task.due_ms, task.queue_position, task.percent, task.note,
task.wait_reason, task.result, task.evidence, task.evidence_ids, task.feedback, task.failure,
task.integrated_commit, task.context_refs, task.description, task.acceptance FROM task WHERE task.project_id = :who
AND task.sequence < :before ORDER BY task.sequence DESC LIMIT :limit OFFSET 0"""
LISTED_BY_ISSUER: Final = """\
SELECT task.sequence, task.task_id, task.project_id, task.issuer, task.assignee, task.reviewer, task.pool,
task.state, task.phase, task.revision, task.version, task.attempt_id, task.certainty, task.started, task.overdue,
task.archived, task.orphan, task.created_at_ms, task.changed_at_ms, task.state_at_ms, task.start_deadline_ms,
task.execution_timeout_s, task.review_timeout_s, task.due_ms, task.queue_position, task.percent, task.note,
task.wait_reason, task.result, task.evidence, task.evidence_ids, task.feedback, task.failure,
task.integrated_commit, task.context_refs, task.description, task.acceptance FROM task WHERE task.issuer = :who AND
task.sequence < :before ORDER BY task.sequence DESC LIMIT :limit OFFSET 0"""
LISTED_BY_ASSIGNEE: Final = """\
SELECT task.sequence, task.task_id, task.project_id, task.issuer, task.assignee, task.reviewer, task.pool,
task.state, task.phase, task.revision, task.version, task.attempt_id, task.certainty, task.started, task.overdue,
task.archived, task.orphan, task.created_at_ms, task.changed_at_ms, task.state_at_ms, task.start_deadline_ms,
task.execution_timeout_s, task.review_timeout_s, task.due_ms, task.queue_position, task.percent, task.note,
task.wait_reason, task.result, task.evidence, task.evidence_ids, task.feedback, task.failure,
task.integrated_commit, task.context_refs, task.description, task.acceptance FROM task WHERE task.assignee = :who
AND task.sequence < :before ORDER BY task.sequence DESC LIMIT :limit OFFSET 0"""
LISTED_BY_REVIEWER: Final = """\
SELECT task.sequence, task.task_id, task.project_id, task.issuer, task.assignee, task.reviewer, task.pool,
task.state, task.phase, task.revision, task.version, task.attempt_id, task.certainty, task.started, task.overdue,
task.archived, task.orphan, task.created_at_ms, task.changed_at_ms, task.state_at_ms, task.start_deadline_ms,
task.execution_timeout_s, task.review_timeout_s, task.due_ms, task.queue_position, task.percent, task.note,
task.wait_reason, task.result, task.evidence, task.evidence_ids, task.feedback, task.failure,
task.integrated_commit, task.context_refs, task.description, task.acceptance FROM task WHERE task.reviewer = :who
AND task.sequence < :before ORDER BY task.sequence DESC LIMIT :limit OFFSET 0"""
LISTED_BY_ELIGIBLE: Final = """\
SELECT task.sequence, task.task_id, task.project_id, task.issuer, task.assignee, task.reviewer, task.pool,
task.state, task.phase, task.revision, task.version, task.attempt_id, task.certainty, task.started, task.overdue,
task.archived, task.orphan, task.created_at_ms, task.changed_at_ms, task.state_at_ms, task.start_deadline_ms,
task.execution_timeout_s, task.review_timeout_s, task.due_ms, task.queue_position, task.percent, task.note,
task.wait_reason, task.result, task.evidence, task.evidence_ids, task.feedback, task.failure,
task.integrated_commit, task.context_refs, task.description, task.acceptance FROM task JOIN task_eligible ON
task.sequence = task_eligible.sequence WHERE task_eligible.agent = :who AND task_eligible.sequence < :before ORDER
BY task_eligible.sequence DESC LIMIT :limit OFFSET 0"""
LEFT_BY_ISSUER: Final = """\
SELECT task.sequence, task.task_id, task.project_id, task.issuer, task.assignee, task.reviewer, task.pool,
task.state, task.phase, task.revision, task.version, task.attempt_id, task.certainty, task.started, task.overdue,
task.archived, task.orphan, task.created_at_ms, task.changed_at_ms, task.state_at_ms, task.start_deadline_ms,
task.execution_timeout_s, task.review_timeout_s, task.due_ms, task.queue_position, task.percent, task.note,
task.wait_reason, task.result, task.evidence, task.evidence_ids, task.feedback, task.failure,
task.integrated_commit, task.context_refs, task.description, task.acceptance FROM task WHERE task.issuer = :who AND
task.archived = 0 ORDER BY task.sequence LIMIT :limit OFFSET 0"""
LEFT_BY_REVIEWER: Final = """\
SELECT task.sequence, task.task_id, task.project_id, task.issuer, task.assignee, task.reviewer, task.pool,
task.state, task.phase, task.revision, task.version, task.attempt_id, task.certainty, task.started, task.overdue,
task.archived, task.orphan, task.created_at_ms, task.changed_at_ms, task.state_at_ms, task.start_deadline_ms,
task.execution_timeout_s, task.review_timeout_s, task.due_ms, task.queue_position, task.percent, task.note,
task.wait_reason, task.result, task.evidence, task.evidence_ids, task.feedback, task.failure,
task.integrated_commit, task.context_refs, task.description, task.acceptance FROM task WHERE task.reviewer = :who
AND task.archived = 0 ORDER BY task.sequence LIMIT :limit OFFSET 0"""
LEFT_BY_ASSIGNEE: Final = """\
SELECT task.sequence, task.task_id, task.project_id, task.issuer, task.assignee, task.reviewer, task.pool,
task.state, task.phase, task.revision, task.version, task.attempt_id, task.certainty, task.started, task.overdue,
task.archived, task.orphan, task.created_at_ms, task.changed_at_ms, task.state_at_ms, task.start_deadline_ms,
task.execution_timeout_s, task.review_timeout_s, task.due_ms, task.queue_position, task.percent, task.note,
task.wait_reason, task.result, task.evidence, task.evidence_ids, task.feedback, task.failure,
task.integrated_commit, task.context_refs, task.description, task.acceptance FROM task WHERE task.assignee = :who
AND task.orphan = 0 AND (task.phase NOT IN (10, 11, 15)) ORDER BY task.sequence LIMIT :limit OFFSET 0"""
INSERT_TASK: Final = """\
INSERT INTO task (sequence, task_id, project_id, issuer, assignee, reviewer, pool, state, phase, revision, version,
attempt_id, certainty, started, overdue, archived, orphan, created_at_ms, changed_at_ms, state_at_ms,
start_deadline_ms, execution_timeout_s, review_timeout_s, due_ms, queue_position, percent, note, wait_reason,
result, evidence, evidence_ids, feedback, failure, integrated_commit, context_refs, description, acceptance) VALUES
(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
MOVE_TASK: Final = """\
UPDATE task SET issuer=:issuer, assignee=:assignee, reviewer=:reviewer, state=:state, phase=:phase,
revision=:revision, version=:version, attempt_id=:attempt_id, certainty=:certainty, started=:started,
overdue=:overdue, archived=:archived, orphan=:orphan, changed_at_ms=:changed_at_ms, state_at_ms=:state_at_ms,
start_deadline_ms=:start_deadline_ms, due_ms=:due_ms, queue_position=:queue_position, percent=:percent, note=:note,
wait_reason=:wait_reason, result=:result, evidence=:evidence, evidence_ids=:evidence_ids, feedback=:feedback,
failure=:failure, integrated_commit=:integrated_commit WHERE task.sequence = :was_sequence AND task.version =
:was_version AND task.phase = :was_phase AND task.attempt_id IS :was_attempt_id"""
ATTEMPT_BY_ID: Final = """\
SELECT task_attempt.attempt_id, task_attempt.task_id, task_attempt.revision, task_attempt.agent,
task_attempt.generation, task_attempt.started_at_ms, task_attempt.finished_at_ms, task_attempt.certainty,
task_attempt.outcome FROM task_attempt WHERE task_attempt.attempt_id = :attempt_id"""
INSERT_ATTEMPT: Final = """\
INSERT INTO task_attempt (attempt_id, task_id, revision, agent, generation, started_at_ms, finished_at_ms,
certainty, outcome) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
MOVE_ATTEMPT: Final = """\
UPDATE task_attempt SET finished_at_ms=:finished_at_ms, certainty=:certainty, outcome=:outcome WHERE
task_attempt.attempt_id = :was_attempt_id AND task_attempt.certainty = :was_certainty AND task_attempt.outcome = 0"""
EVENT_BY_SEQUENCE: Final = """\
SELECT task_event.sequence, task_event.task_id, task_event.action, task_event.part, task_event.agent,
task_event.generation, task_event.from_state, task_event.to_state, task_event.revision, task_event.version,
task_event.attempt_id, task_event.at_ms, task_event.facts, task_event.evidence_ids, task_event.evidence,
task_event.text FROM task_event WHERE task_event.sequence = :sequence"""
EVENTS: Final = """\
SELECT task_event.sequence, task_event.task_id, task_event.action, task_event.part, task_event.agent,
task_event.generation, task_event.from_state, task_event.to_state, task_event.revision, task_event.version,
task_event.attempt_id, task_event.at_ms, task_event.facts, task_event.evidence_ids, task_event.evidence,
task_event.text FROM task_event WHERE task_event.task_id = :task_id AND task_event.sequence > :after ORDER BY
task_event.sequence LIMIT :limit OFFSET 0"""
EVENTS_BEHIND: Final = """\
SELECT task_event.sequence, task_event.task_id, task_event.action, task_event.part, task_event.agent,
task_event.generation, task_event.from_state, task_event.to_state, task_event.revision, task_event.version,
task_event.attempt_id, task_event.at_ms, task_event.facts, task_event.evidence_ids, task_event.evidence,
task_event.text FROM task_event WHERE task_event.sequence > :after ORDER BY task_event.sequence LIMIT :limit OFFSET
0"""
INSERT_EVENT: Final = """\
INSERT INTO task_event (sequence, task_id, action, part, agent, generation, from_state, to_state, revision, version,
attempt_id, at_ms, facts, evidence_ids, evidence, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
PREREQUISITES: Final = """\
SELECT task_prerequisite.prerequisite_id FROM task_prerequisite WHERE task_prerequisite.task_id = :task_id ORDER BY
task_prerequisite.prerequisite_id"""
OPEN_PREREQUISITE: Final = """\
SELECT 1 FROM task_prerequisite JOIN task ON task.task_id = task_prerequisite.prerequisite_id WHERE
task_prerequisite.task_id = :task_id AND (task.state NOT IN (5, 6)) LIMIT 1 OFFSET 0"""
DEPENDANTS: Final = """\
SELECT task_prerequisite.task_id FROM task_prerequisite WHERE task_prerequisite.prerequisite_id = :prerequisite_id
ORDER BY task_prerequisite.task_id LIMIT :limit OFFSET 0"""
INSERT_PREREQUISITE: Final = """\
INSERT INTO task_prerequisite (task_id, prerequisite_id) VALUES (?, ?)"""
DROP_PREREQUISITES: Final = """\
DELETE FROM task_prerequisite WHERE task_prerequisite.task_id = :task_id"""
ELIGIBLE_OF: Final = """\
SELECT task_eligible.agent FROM task_eligible WHERE task_eligible.task_id = :task_id"""
INSERT_ELIGIBLE: Final = """\
INSERT INTO task_eligible (task_id, agent, sequence) VALUES (?, ?, ?)"""
DROP_ELIGIBLE: Final = """\
DELETE FROM task_eligible WHERE task_eligible.task_id = :task_id"""
NOTIFICATIONS: Final = """\
SELECT task_notification.agent, task_notification.task_id, task_notification.notice, task_notification.sequence,
task_notification.at_ms, task_notification.wakes, task_notification.wake_id, task_notification.again_at_ms,
task_notification.earlier_wake_id FROM task_notification WHERE task_notification.agent = :agent AND
task_notification.sequence > :after ORDER BY task_notification.sequence LIMIT :limit OFFSET 0"""
NOTIFICATIONS_OF_TASK: Final = """\
SELECT task_notification.agent, task_notification.task_id, task_notification.notice, task_notification.sequence,
task_notification.at_ms, task_notification.wakes, task_notification.wake_id, task_notification.again_at_ms,
task_notification.earlier_wake_id FROM task_notification WHERE task_notification.task_id = :task_id"""
HAS_NOTIFICATIONS: Final = """\
SELECT 1 FROM task_notification WHERE task_notification.agent = :agent LIMIT 1 OFFSET 0"""
NEXT_TOLD: Final = """\
SELECT task_notification.agent FROM task_notification WHERE task_notification.agent > :after ORDER BY
task_notification.agent LIMIT 1 OFFSET 0"""
NEEDING: Final = """\
SELECT task_notification.agent, task_notification.task_id, task_notification.notice, task_notification.sequence,
task_notification.at_ms, task_notification.wakes, task_notification.wake_id, task_notification.again_at_ms,
task_notification.earlier_wake_id FROM task_notification WHERE task_notification.agent = :agent AND
task_notification.notice IN (4, 5, 6) ORDER BY task_notification.wakes, task_notification.sequence LIMIT :limit
OFFSET 0"""
TOLD_BY: Final = """\
SELECT task_notification.agent, task_notification.task_id, task_notification.notice, task_notification.sequence,
task_notification.at_ms, task_notification.wakes, task_notification.wake_id, task_notification.again_at_ms,
task_notification.earlier_wake_id FROM task_notification WHERE task_notification.wake_id = :wake_id"""
RESTED: Final = """\
SELECT task_notification.agent FROM task_notification WHERE task_notification.again_at_ms > :after_ms AND
task_notification.again_at_ms <= :now_ms AND task_notification.again_at_ms > 0 ORDER BY
task_notification.again_at_ms"""
NOTE_WAKE: Final = """\
UPDATE task_notification SET wakes=(task_notification.wakes + 1), wake_id=:wake_id, again_at_ms=0,
earlier_wake_id=task_notification.wake_id WHERE task_notification.agent = :was_agent AND task_notification.task_id =
:was_task_id AND task_notification.notice = :was_notice"""
FORGET_WAKE: Final = """\
UPDATE task_notification SET wakes=(task_notification.wakes - 1), wake_id=task_notification.earlier_wake_id,
again_at_ms=0, earlier_wake_id=NULL WHERE task_notification.agent = :was_agent AND task_notification.task_id =
:was_task_id AND task_notification.notice = :was_notice"""
REST: Final = """\
UPDATE task_notification SET again_at_ms=:again_at_ms WHERE task_notification.agent = :was_agent AND
task_notification.task_id = :was_task_id AND task_notification.notice = :was_notice"""
GIVEN_OUTCOMES: Final = """\
SELECT task_notification.agent, task_notification.task_id, task_notification.notice, task_notification.sequence,
task_notification.at_ms, task_notification.wakes, task_notification.wake_id, task_notification.again_at_ms,
task_notification.earlier_wake_id FROM task_notification WHERE task_notification.agent = :agent AND
task_notification.sequence <= :position AND task_notification.notice IN (10, 13) ORDER BY task_notification.sequence
LIMIT :limit OFFSET 0"""
PUT_NOTIFICATION: Final = """\
INSERT INTO task_notification (agent, task_id, notice, sequence, at_ms, wakes, wake_id, again_at_ms,
earlier_wake_id) VALUES (:agent, :task_id, :notice, :sequence, :at_ms, :wakes, :wake_id, :again_at_ms,
:earlier_wake_id) ON CONFLICT (agent, task_id, notice) DO UPDATE SET sequence = excluded.sequence, at_ms =
excluded.at_ms, wakes = excluded.wakes, wake_id = excluded.wake_id, again_at_ms = excluded.again_at_ms,
earlier_wake_id = excluded.earlier_wake_id"""
DROP_NOTIFICATION: Final = """\
DELETE FROM task_notification WHERE task_notification.agent = :agent AND task_notification.task_id = :task_id AND
task_notification.notice = :notice"""
RUNS_OF: Final = """\
SELECT task_run.turn, task_run.run, task_run.position, task_run.messages FROM task_run WHERE task_run.agent = :agent"""
PUT_RUN: Final = """\
INSERT INTO task_run (agent, run, position, messages, turn) VALUES (:agent, :run, :position, :messages, :turn) ON
CONFLICT (agent, run) DO UPDATE SET position = excluded.position, messages = excluded.messages, turn = excluded.turn"""
DROP_RUN: Final = """\
DELETE FROM task_run WHERE task_run.agent = :agent AND task_run.run = :run"""
SUPERVISED: Final = """\
SELECT supervision.agent, supervision.task_id, supervision.sequence, supervision.at_ms FROM supervision WHERE
supervision.agent = :agent AND supervision.sequence > :after ORDER BY supervision.sequence LIMIT :limit OFFSET 0"""
SUPERVISES: Final = """\
SELECT supervision.agent, supervision.task_id, supervision.sequence, supervision.at_ms FROM supervision WHERE
supervision.agent = :agent AND supervision.task_id = :task_id"""
SUPERVISED_COUNT: Final = """\
SELECT count(supervision.task_id) AS count_1 FROM supervision WHERE supervision.agent = :agent"""
ENROL: Final = """\
INSERT INTO supervision (agent, task_id, sequence, at_ms) VALUES (:agent, :task_id, :sequence, :at_ms) ON CONFLICT
(agent, task_id) DO NOTHING"""
LEAVE: Final = """\
DELETE FROM supervision WHERE supervision.agent = :agent AND supervision.task_id = :task_id"""
ERASE_RUNS: Final = """\
DELETE FROM task_run WHERE task_run.agent = :agent"""
