-- An agent is active (1) or being deleted (2): its name stays taken until its mail is closed and erased.
ALTER TABLE agent ADD COLUMN state INTEGER DEFAULT 1 NOT NULL;

-- What is left of a deleted agent: its UUID, which is never given again, and the revision that told followers so.
CREATE TABLE agent_tombstone (
    agent_id BLOB NOT NULL,
    project_id BLOB NOT NULL,
    deleted_at_ms INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    PRIMARY KEY (agent_id)
) WITHOUT ROWID;
CREATE INDEX agent_tombstone_revision ON agent_tombstone (revision);
