-- The directory: projects, agents, credentials, and what followers need to keep up with them. Ids are 16-byte blobs, times Unix
-- milliseconds. store/tables.py declares the same tables; tests/contract/sessions holds the two together.

-- One row: which directory this is, its newest revision, and the revision up to which removals have been forgotten.
CREATE TABLE directory (
    id INTEGER NOT NULL,
    epoch BLOB NOT NULL,
    revision INTEGER NOT NULL,
    floor INTEGER NOT NULL,
    PRIMARY KEY (id),
    CHECK (id = 1),
    CHECK (length(epoch) = 16)
);

-- Projects count from 1 in the order of their creation.
CREATE TABLE project (
    number INTEGER NOT NULL,
    project_id BLOB NOT NULL,
    kind INTEGER NOT NULL,
    location TEXT NOT NULL,
    name TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (number),
    UNIQUE (project_id),
    UNIQUE (location)
);

-- A name is unique in its project by its key, which sees neither case nor normal form (M022, M023).
CREATE TABLE agent (
    agent_id BLOB NOT NULL,
    project_id BLOB NOT NULL,
    name TEXT NOT NULL,
    name_key TEXT NOT NULL,
    role INTEGER NOT NULL,
    provider TEXT NOT NULL,
    workspace TEXT NOT NULL,
    generation INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    PRIMARY KEY (agent_id),
    UNIQUE (project_id, name_key),
    FOREIGN KEY(project_id) REFERENCES project (project_id)
) WITHOUT ROWID;
CREATE INDEX agent_name_key ON agent (name_key, agent_id);
CREATE INDEX agent_revision ON agent (revision);

-- Names given up a moment ago: nobody else may take one while a follower could still resolve it to the old holder.
CREATE TABLE released_name (
    project_id BLOB NOT NULL,
    name_key TEXT NOT NULL,
    agent_id BLOB NOT NULL,
    released_at_ms INTEGER NOT NULL,
    PRIMARY KEY (project_id, name_key)
) WITHOUT ROWID;
CREATE INDEX released_name_time ON released_name (released_at_ms);

-- Only the SHA-256 of a token is kept. agent_id is null for the operator and the services.
CREATE TABLE credential (
    credential_id BLOB NOT NULL,
    agent_id BLOB,
    project_id BLOB,
    role INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    token_sha256 BLOB NOT NULL,
    created_at_ms INTEGER NOT NULL,
    appeared_revision INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    label TEXT NOT NULL,
    PRIMARY KEY (credential_id),
    CHECK (length(token_sha256) = 32),
    UNIQUE (token_sha256),
    FOREIGN KEY(agent_id) REFERENCES agent (agent_id)
) WITHOUT ROWID;
CREATE INDEX credential_agent ON credential (agent_id);
CREATE INDEX credential_appeared ON credential (appeared_revision, credential_id);
CREATE INDEX credential_revision ON credential (revision);

-- Removals are changes too: followers read them by revision.
CREATE TABLE credential_removal (
    credential_id BLOB NOT NULL,
    revision INTEGER NOT NULL,
    PRIMARY KEY (credential_id)
) WITHOUT ROWID;
CREATE INDEX credential_removal_revision ON credential_removal (revision);

-- The first answer to each key, by caller and operation.
CREATE TABLE idempotency (
    scope BLOB NOT NULL,
    operation TEXT NOT NULL,
    "key" TEXT NOT NULL,
    content_sha256 BLOB NOT NULL,
    answer TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (scope, operation, "key")
) WITHOUT ROWID;
CREATE INDEX idempotency_time ON idempotency (created_at_ms);
