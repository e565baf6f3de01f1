-- What is left of a deleted agent, and how far the erasure of its mail has come: erasing (1), erased (2), told to sessions (3).
-- Kept for ever: what comes late for it, or from it, is refused.
CREATE TABLE tombstone (
    agent_id BLOB NOT NULL,
    project_id BLOB NOT NULL,
    phase INTEGER NOT NULL,
    closed_at_ms INTEGER NOT NULL,
    -- Its newest step's place in the commit order. What an erasure removes may have held the newest numbers, and no number is
    -- given twice.
    sequence INTEGER NOT NULL,
    PRIMARY KEY (agent_id)
) WITHOUT ROWID;
CREATE INDEX tombstone_unfinished ON tombstone (agent_id) WHERE phase < 3;
CREATE INDEX tombstone_sequence ON tombstone (sequence);

-- A record that is erased takes every claim that was ever on it with it.
CREATE INDEX claim_of_record ON claim (record_id);
