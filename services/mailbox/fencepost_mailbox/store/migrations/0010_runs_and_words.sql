-- How far each of the last runs of an agent was given its notifications: its servers may take turns.
ALTER TABLE task_run RENAME TO task_newest_run;
CREATE TABLE task_run (
    agent BLOB NOT NULL,
    run VARCHAR NOT NULL,
    position INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    PRIMARY KEY (agent, run)
) WITHOUT ROWID;
INSERT INTO task_run (agent, run, position, messages, turn)
SELECT agent, run, position, messages, 1 FROM task_newest_run;
DROP TABLE task_newest_run;

-- Words are put in by another rule (domain/threads/words.py): all of them anew, behind the records.
INSERT INTO record_words (record_words) VALUES ('delete-all');
UPDATE record_words_state SET position = 0;
