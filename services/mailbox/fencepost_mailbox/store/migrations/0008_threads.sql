-- Subjects, threads and the full-text search of records.
-- Whether a record has attributes: a page looks for them only then. Behind the body, where an old table takes a new column.
ALTER TABLE record ADD COLUMN attributed INTEGER NOT NULL DEFAULT 0;

-- What a sender said of a record besides its text. sequence is the record's, thread the id of the record that began it.
CREATE TABLE record_attributes (
    sequence INTEGER NOT NULL,
    thread BLOB NOT NULL,
    subject VARCHAR NOT NULL,
    reply_to BLOB,
    reply_to_kind INTEGER,
    task_id BLOB,
    PRIMARY KEY (sequence)
);
CREATE INDEX record_attributes_thread ON record_attributes (thread, sequence);

-- Words of records, by the record's sequence. It keeps no texts: record has them. who: sender, recipient and project, so that what
-- a caller may see is found without looking at what it may not.
CREATE VIRTUAL TABLE record_words USING fts5(subject, body, who, content='', tokenize='unicode61 remove_diacritics 2');

-- One row: up to which record the words are kept, and how far what was erased of them is cleared out (domain/threads/indexing.py).
CREATE TABLE record_words_state (
    place INTEGER NOT NULL,
    position INTEGER NOT NULL,
    clearing INTEGER NOT NULL,
    PRIMARY KEY (place)
);
INSERT INTO record_words_state (place, position, clearing) VALUES (1, 0, 0);

-- Which unacknowledged messages an agent's newest run was told of, as position is for notifications.
ALTER TABLE task_run ADD COLUMN messages INTEGER NOT NULL DEFAULT 0;
