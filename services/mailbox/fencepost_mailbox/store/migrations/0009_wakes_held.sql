-- In which wake-up a notification was told before the newest: what that one told counts for nothing where it was given back.
ALTER TABLE task_notification ADD COLUMN earlier_wake_id BLOB;
-- When an agent's wake-ups were written.
CREATE INDEX record_waked ON record (recipient, admitted_at_ms) WHERE kind = 6;
