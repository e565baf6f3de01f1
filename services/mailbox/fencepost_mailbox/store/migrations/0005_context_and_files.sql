-- Shared context, project memory and file reservations.
-- A key of a project: which version is the newest, and whether it is kept for ever.
CREATE TABLE context (
    project_id BLOB NOT NULL,
    key VARCHAR NOT NULL,
    newest INTEGER NOT NULL,
    pinned INTEGER NOT NULL,
    published_at_ms INTEGER NOT NULL,
    PRIMARY KEY (project_id, key)
) WITHOUT ROWID;
CREATE INDEX context_unpinned ON context (project_id, key) WHERE pinned = 0;

-- With a rowid: long rows would make a poor tree of keys.
CREATE TABLE context_version (
    project_id BLOB NOT NULL,
    key VARCHAR NOT NULL,
    version INTEGER NOT NULL,
    publisher BLOB,
    published_at_ms INTEGER NOT NULL,
    content_bytes INTEGER NOT NULL,
    -- Last, as bodies are: what stands before it is read without following its spill.
    content VARCHAR NOT NULL,
    PRIMARY KEY (project_id, key, version)
);

-- A version that a task refers to stays for that.
CREATE TABLE context_reference (
    project_id BLOB NOT NULL,
    key VARCHAR NOT NULL,
    version INTEGER NOT NULL,
    task_id BLOB NOT NULL,
    PRIMARY KEY (project_id, key, version, task_id)
) WITHOUT ROWID;

CREATE TABLE project_memory (
    project_id BLOB NOT NULL,
    version INTEGER NOT NULL,
    author BLOB,
    updated_at_ms INTEGER NOT NULL,
    content_bytes INTEGER NOT NULL,
    content VARCHAR NOT NULL,
    PRIMARY KEY (project_id, version)
);

-- When an agent of a project last called; written now and then.
CREATE TABLE project_activity (
    project_id BLOB NOT NULL,
    active_at_ms INTEGER NOT NULL,
    PRIMARY KEY (project_id)
) WITHOUT ROWID;

-- One path or glob that an agent holds. leading is the folded folder under which it is filed (domain/files/paths.py).
CREATE TABLE file_reservation (
    reservation_id BLOB NOT NULL,
    place INTEGER NOT NULL,
    project_id BLOB NOT NULL,
    leading VARCHAR NOT NULL,
    holder BLOB NOT NULL,
    generation INTEGER NOT NULL,
    attempt_id BLOB,
    mode INTEGER NOT NULL,
    checkout VARCHAR NOT NULL,
    ignore_case INTEGER NOT NULL,
    glob INTEGER NOT NULL,
    path VARCHAR NOT NULL,
    reserved_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    reason VARCHAR NOT NULL,
    PRIMARY KEY (reservation_id, place)
) WITHOUT ROWID;
CREATE INDEX file_reservation_folder ON file_reservation (project_id, leading, reservation_id, place);
CREATE INDEX file_reservation_holder ON file_reservation (holder, reservation_id, place);
CREATE INDEX file_reservation_attempt ON file_reservation (attempt_id) WHERE attempt_id IS NOT NULL;
CREATE INDEX file_reservation_expiry ON file_reservation (expires_at_ms);
