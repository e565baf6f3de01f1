-- Supervised tasks. A task's row is the fact of its creation: sequence is its place in the commit order. phase and due_ms are
-- derived from the rest (domain/tasks/changes.py) and stored, because the indexes stand on them.
CREATE TABLE task (
    sequence INTEGER NOT NULL,
    task_id BLOB NOT NULL,
    project_id BLOB NOT NULL,
    issuer BLOB,
    assignee BLOB,
    reviewer BLOB,
    pool INTEGER NOT NULL,
    state INTEGER NOT NULL,
    phase INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    version INTEGER NOT NULL,
    attempt_id BLOB,
    certainty INTEGER NOT NULL,
    started INTEGER NOT NULL,
    overdue INTEGER NOT NULL,
    archived INTEGER NOT NULL,
    orphan INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    changed_at_ms INTEGER NOT NULL,
    state_at_ms INTEGER NOT NULL,
    start_deadline_ms INTEGER NOT NULL,
    execution_timeout_s INTEGER NOT NULL,
    review_timeout_s INTEGER NOT NULL,
    due_ms INTEGER,
    queue_position INTEGER NOT NULL,
    percent INTEGER,
    note VARCHAR NOT NULL,
    wait_reason VARCHAR NOT NULL,
    result VARCHAR NOT NULL,
    evidence VARCHAR NOT NULL,
    -- JSON, as below: lists of names, contexts, facts.
    evidence_ids VARCHAR NOT NULL,
    feedback VARCHAR NOT NULL,
    failure VARCHAR NOT NULL,
    integrated_commit VARCHAR NOT NULL,
    context_refs VARCHAR NOT NULL,
    -- Last, as bodies are: what stands before them is read without following their spill.
    description VARCHAR NOT NULL,
    acceptance VARCHAR NOT NULL,
    PRIMARY KEY (sequence)
);
CREATE UNIQUE INDEX task_by_id ON task (task_id);
CREATE INDEX task_project ON task (project_id, sequence);
CREATE INDEX task_issuer ON task (issuer, sequence);
CREATE INDEX task_assignee ON task (assignee, sequence);
CREATE INDEX task_reviewer ON task (reviewer, sequence);
-- An agent's queue, in order.
CREATE INDEX task_queue ON task (assignee, queue_position) WHERE phase = 3;
-- The one execution slot of an agent: running, lost, asked to stop.
CREATE UNIQUE INDEX task_slot ON task (assignee) WHERE phase IN (4, 5, 6, 7);
CREATE INDEX task_due ON task (due_ms) WHERE due_ms IS NOT NULL;

CREATE TABLE task_attempt (
    attempt_id BLOB NOT NULL,
    task_id BLOB NOT NULL,
    revision INTEGER NOT NULL,
    agent BLOB NOT NULL,
    generation INTEGER NOT NULL,
    started_at_ms INTEGER NOT NULL,
    finished_at_ms INTEGER NOT NULL,
    certainty INTEGER NOT NULL,
    outcome INTEGER NOT NULL,
    PRIMARY KEY (attempt_id)
) WITHOUT ROWID;

CREATE TABLE task_event (
    sequence INTEGER NOT NULL,
    task_id BLOB NOT NULL,
    action INTEGER NOT NULL,
    part INTEGER NOT NULL,
    agent BLOB,
    generation INTEGER NOT NULL,
    from_state INTEGER NOT NULL,
    to_state INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    version INTEGER NOT NULL,
    attempt_id BLOB,
    at_ms INTEGER NOT NULL,
    facts VARCHAR NOT NULL,
    evidence_ids VARCHAR NOT NULL,
    evidence VARCHAR NOT NULL,
    text VARCHAR NOT NULL,
    PRIMARY KEY (sequence)
);
CREATE INDEX task_event_of_task ON task_event (task_id, sequence);

CREATE TABLE task_prerequisite (
    task_id BLOB NOT NULL,
    prerequisite_id BLOB NOT NULL,
    PRIMARY KEY (task_id, prerequisite_id)
) WITHOUT ROWID;
CREATE INDEX task_dependant ON task_prerequisite (prerequisite_id, task_id);

-- Who may claim a task while it is in the pool; the project's own id stands for every agent of it. sequence is the task's.
CREATE TABLE task_eligible (
    task_id BLOB NOT NULL,
    agent BLOB NOT NULL,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (task_id, agent)
) WITHOUT ROWID;
CREATE INDEX task_eligible_agent ON task_eligible (agent, sequence);

-- What stands for an agent to know or do. Numbered as events are, so that a run is given each once, in order.
CREATE TABLE task_notification (
    agent BLOB NOT NULL,
    task_id BLOB NOT NULL,
    notice INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (agent, task_id, notice)
) WITHOUT ROWID;
CREATE UNIQUE INDEX task_notification_order ON task_notification (agent, sequence);
CREATE INDEX task_notification_task ON task_notification (task_id);

-- How far an agent's newest run was given its notifications.
CREATE TABLE task_run (
    agent BLOB NOT NULL,
    run VARCHAR NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (agent)
) WITHOUT ROWID;

-- The supervision sets.
CREATE TABLE supervision (
    agent BLOB NOT NULL,
    task_id BLOB NOT NULL,
    sequence INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (agent, task_id)
) WITHOUT ROWID;
CREATE INDEX supervision_order ON supervision (agent, sequence);
