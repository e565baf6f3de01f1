-- Who this dispatcher is, and how often it was started.
CREATE TABLE dispatcher (
    id INTEGER NOT NULL,
    dispatcher_id BLOB NOT NULL,
    incarnation INTEGER NOT NULL,
    PRIMARY KEY (id),
    CHECK (id = 1),
    CHECK (length(dispatcher_id) = 16)
);

-- A claim on its way into a conversation: an intent (answer 0) before anything is submitted, then what came of it,
-- until the mailbox has acknowledged it.
CREATE TABLE carried (
    token TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    record_id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    written_at_ms INTEGER NOT NULL,
    answer INTEGER NOT NULL,
    evidence TEXT NOT NULL,
    provider TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    turn_id TEXT NOT NULL,
    mode INTEGER NOT NULL,
    PRIMARY KEY (token)
) WITHOUT ROWID;

-- How the turn ended that a claim was bound to, until the mailbox has acknowledged it.
CREATE TABLE outcome (
    token TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    record_id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    written_at_ms INTEGER NOT NULL,
    provider TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    turn_id TEXT NOT NULL,
    mode INTEGER NOT NULL,
    status INTEGER NOT NULL,
    evidence TEXT NOT NULL,
    final_bytes INTEGER NOT NULL,
    -- Last: a long text spills.
    final_text TEXT NOT NULL,
    PRIMARY KEY (token)
);

-- The life that this service runs of an agent: its lease, and the process that must be gone before the lease is given
-- up by a later start of this service.
CREATE TABLE life (
    agent_id TEXT NOT NULL,
    acquisition_id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    pid_mark TEXT NOT NULL,
    PRIMARY KEY (agent_id)
) WITHOUT ROWID;
