-- One row a fact about this store: epoch, cursor secret, directory position.
CREATE TABLE meta (
    key VARCHAR NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (key)
) WITHOUT ROWID;

-- A record's row is also the fact of its admission: sequence is its place in the commit order.
CREATE TABLE record (
    sequence INTEGER NOT NULL,
    record_id BLOB NOT NULL,
    kind INTEGER NOT NULL,
    project_id BLOB NOT NULL,
    sender BLOB,
    recipient BLOB NOT NULL,
    parent_id BLOB,
    status INTEGER NOT NULL,
    origin INTEGER NOT NULL,
    completion INTEGER NOT NULL,
    admitted_at_ms INTEGER NOT NULL,
    delivery INTEGER NOT NULL,
    answer INTEGER NOT NULL,
    exposed INTEGER NOT NULL,
    acknowledged INTEGER NOT NULL,
    inbox INTEGER NOT NULL,
    position INTEGER NOT NULL,
    claim_token BLOB,
    claim_generation INTEGER NOT NULL,
    releases INTEGER NOT NULL,
    -- Last: a long body spills, and what stands before it is read without following the spill.
    body BLOB NOT NULL,
    PRIMARY KEY (sequence)
);
CREATE UNIQUE INDEX record_by_id ON record (record_id);
CREATE INDEX record_inbox ON record (recipient, inbox, position);
CREATE INDEX record_sent ON record (sender, sequence);
CREATE INDEX record_open ON record (recipient, position) WHERE answer = 1;
-- Of the open ones, those that nobody has been shown and those that are owed: neither hides behind many of the other.
CREATE INDEX record_pending ON record (recipient, position) WHERE answer = 1 AND delivery = 1;
CREATE INDEX record_owed ON record (recipient, position) WHERE answer = 1 AND delivery <> 1;
-- What a cursor may acknowledge: shown, or carried into the conversation. Empty where everything is acknowledged.
CREATE INDEX record_shown ON record (recipient, position)
    WHERE acknowledged = 0 AND (exposed = 1 OR delivery IN (9, 4));
CREATE INDEX record_parent ON record (parent_id) WHERE parent_id IS NOT NULL;

-- Ordered by caller, operation and key, so that a caller's time-ordered keys append.
CREATE TABLE idempotency (
    caller BLOB NOT NULL,
    operation INTEGER NOT NULL,
    key BLOB NOT NULL,
    fingerprint BLOB NOT NULL,
    record_id BLOB,
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (caller, operation, key)
) WITHOUT ROWID;

CREATE TABLE fact (
    sequence INTEGER NOT NULL,
    record_id BLOB NOT NULL,
    fact INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    evidence VARCHAR NOT NULL,
    PRIMARY KEY (sequence)
);
CREATE INDEX fact_of_record ON fact (record_id, sequence);

CREATE TABLE claim (
    token BLOB NOT NULL,
    record_id BLOB NOT NULL,
    recipient BLOB NOT NULL,
    dispatcher BLOB NOT NULL,
    incarnation INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    taken_at_ms INTEGER NOT NULL,
    term_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    state INTEGER NOT NULL,
    PRIMARY KEY (token)
) WITHOUT ROWID;
CREATE INDEX claim_held_recipient ON claim (recipient) WHERE state = 1;
CREATE INDEX claim_held_dispatcher ON claim (dispatcher) WHERE state = 1;
CREATE INDEX claim_held_expiry ON claim (expires_at_ms) WHERE state = 1;

CREATE TABLE dispatcher (
    dispatcher BLOB NOT NULL,
    incarnation INTEGER NOT NULL,
    PRIMARY KEY (dispatcher)
) WITHOUT ROWID;

CREATE TABLE generation_floor (
    agent_id BLOB NOT NULL,
    generation INTEGER NOT NULL,
    PRIMARY KEY (agent_id)
) WITHOUT ROWID;

CREATE TABLE reader (
    agent_id BLOB NOT NULL,
    last_read_at_ms INTEGER NOT NULL,
    PRIMARY KEY (agent_id)
) WITHOUT ROWID;

-- The mirror of sessions' directory, so that sends and checks survive its restarts.
CREATE TABLE directory_agent (
    agent_id BLOB NOT NULL,
    project_id BLOB NOT NULL,
    name VARCHAR NOT NULL,
    role INTEGER NOT NULL,
    provider VARCHAR NOT NULL,
    generation INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    PRIMARY KEY (agent_id)
) WITHOUT ROWID;

CREATE TABLE directory_credential (
    credential_id BLOB NOT NULL,
    token_sha256 BLOB NOT NULL,
    agent_id BLOB,
    project_id BLOB,
    role INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    label VARCHAR NOT NULL,
    revision INTEGER NOT NULL,
    PRIMARY KEY (credential_id)
) WITHOUT ROWID;
