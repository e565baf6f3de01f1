-- A branch of a main checkout that is about to move: written before it does, dropped when the mailbox has it that the
-- work is integrated. After a start the branch itself says whether it moved.
CREATE TABLE integration (
    request_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    coordinator_id TEXT NOT NULL,
    commit_id TEXT NOT NULL,
    checkout TEXT NOT NULL,
    branch TEXT NOT NULL,
    old_id TEXT NOT NULL,
    new_id TEXT NOT NULL,
    written_at_ms INTEGER NOT NULL,
    -- Last: a long text spills.
    note TEXT NOT NULL,
    PRIMARY KEY (request_id)
);
