-- In how many wake-ups a notification was told, in which one last, and when it is told again (0: it does not rest, or rests for good).
ALTER TABLE task_notification ADD COLUMN wakes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE task_notification ADD COLUMN wake_id BLOB;
ALTER TABLE task_notification ADD COLUMN again_at_ms INTEGER NOT NULL DEFAULT 0;
-- What an agent can act on whatever else it does.
CREATE INDEX task_notification_needs ON task_notification (agent, wakes, sequence) WHERE notice IN (4, 5, 6);
CREATE INDEX task_notification_wake ON task_notification (wake_id) WHERE wake_id IS NOT NULL;
CREATE INDEX task_notification_again ON task_notification (again_at_ms) WHERE again_at_ms > 0;
-- Wake-ups that are not over.
CREATE INDEX record_wake ON record (recipient) WHERE answer = 1 AND kind = 6;
