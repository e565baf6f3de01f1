-- How many requests of other agents led to a request. Behind the body, where an old table takes a new column.
ALTER TABLE record ADD COLUMN hops INTEGER NOT NULL DEFAULT 0;
-- What an agent works on now, for the hops of what it asks: shown to it, or taken by its provider, and not answered.
CREATE INDEX record_hops ON record (recipient, hops) WHERE answer = 1 AND kind = 2 AND delivery IN (2, 4);

-- Whether a person wants an agent to run (unspecified 0, on 1, off 2, paused 3).
ALTER TABLE directory_agent ADD COLUMN desired INTEGER NOT NULL DEFAULT 0;

-- The exact turn that took a piece of work: bound (1), its outcome recorded (2), published (3), lost from sight (4).
CREATE TABLE binding (
    sequence INTEGER NOT NULL,
    token BLOB NOT NULL,
    record_id BLOB NOT NULL,
    recipient BLOB NOT NULL,
    requester BLOB,
    dispatcher BLOB NOT NULL,
    generation INTEGER NOT NULL,
    provider VARCHAR NOT NULL,
    session_id VARCHAR NOT NULL,
    turn_id VARCHAR NOT NULL,
    mode INTEGER NOT NULL,
    state INTEGER NOT NULL,
    publishes INTEGER NOT NULL,
    outcome INTEGER NOT NULL,
    final_bytes INTEGER NOT NULL,
    final_digest BLOB NOT NULL,
    evidence VARCHAR NOT NULL,
    reply_id BLOB,
    -- Last, as a body is. Of a request it is kept until it is published.
    final BLOB NOT NULL,
    PRIMARY KEY (sequence)
);
CREATE UNIQUE INDEX binding_by_token ON binding (token);
CREATE INDEX binding_unsettled ON binding (dispatcher, sequence) WHERE state IN (1, 4);
CREATE INDEX binding_bound ON binding (recipient) WHERE state = 1;
-- What a crash left between the two steps: empty otherwise.
CREATE INDEX binding_unpublished ON binding (requester, sequence) WHERE state = 2 AND publishes = 1;
