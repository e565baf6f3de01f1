-- Evidence of work. descriptor is JSON: what was reported. The verdict is what the newest check found, 0 for none.
CREATE TABLE evidence (
    evidence_id BLOB NOT NULL,
    task_id BLOB NOT NULL,
    reporter BLOB,
    attempt_id BLOB,
    reported_at_ms INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    verdict INTEGER NOT NULL,
    verified_at_ms INTEGER NOT NULL,
    verified_for BLOB,
    checkout VARCHAR NOT NULL,
    detail VARCHAR NOT NULL,
    -- Last: long texts spill.
    descriptor VARCHAR NOT NULL,
    note VARCHAR NOT NULL,
    PRIMARY KEY (evidence_id)
);
CREATE INDEX evidence_of_task ON evidence (task_id, evidence_id);
