-- What a person wants of an agent's runtime, how its program is started, and the exact conversation that it goes on with (R241, M069).
-- launch is JSON of the settings that are not the default.
ALTER TABLE agent ADD COLUMN desired INTEGER DEFAULT 0 NOT NULL;
ALTER TABLE agent ADD COLUMN launch TEXT DEFAULT '{}' NOT NULL;
ALTER TABLE agent ADD COLUMN conversation_id TEXT DEFAULT '' NOT NULL;

-- A conversation belongs to one agent at most.
CREATE UNIQUE INDEX agent_conversation ON agent (conversation_id) WHERE conversation_id <> '';

-- The last lease of an agent (M070). It stays when it has ended, so that the next one's fence is greater. ended: 0 not that anybody was
-- told, 1 released, 2 expired, 3 its agent is being deleted. expires_at_ms is the time in which leases expire, which counts only while
-- the service runs: a start gives every lease that has not ended its whole term.
CREATE TABLE lease (
    agent_id BLOB NOT NULL,
    acquisition_id BLOB NOT NULL,
    conversation_id TEXT NOT NULL,
    kind INTEGER NOT NULL,
    holder TEXT NOT NULL,
    generation INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    term_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    acquired_at_ms INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    PRIMARY KEY (agent_id),
    UNIQUE (acquisition_id),
    FOREIGN KEY(agent_id) REFERENCES agent (agent_id)
) WITHOUT ROWID;

CREATE INDEX lease_order ON lease (ended, acquired_at_ms, acquisition_id);
CREATE INDEX lease_conversation ON lease (conversation_id);

-- The last report of what was observed of an agent's runtime, as it came, with the lease under which it was made (empty for none).
CREATE TABLE agent_status (
    agent_id BLOB NOT NULL,
    state INTEGER NOT NULL,
    evidence INTEGER NOT NULL,
    detail TEXT NOT NULL,
    turn_id TEXT NOT NULL,
    observed_at_ms INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    acquisition_id BLOB NOT NULL,
    PRIMARY KEY (agent_id),
    FOREIGN KEY(agent_id) REFERENCES agent (agent_id)
) WITHOUT ROWID;
