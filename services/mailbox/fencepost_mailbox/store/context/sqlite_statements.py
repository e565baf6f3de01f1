"""Generated from fencepost_mailbox.store.context.statements by scripts/generate_sql.py: `make proto`. Do not edit."""

from typing import Final

TOPIC: Final = """\
SELECT context.project_id, context."key", context.newest, context.pinned, context.published_at_ms FROM context WHERE
context.project_id = :project_id AND context."key" = :key"""
TOPIC_COUNT: Final = """\
SELECT count(*) AS count_1 FROM context WHERE context.project_id = :project_id"""
TOPICS: Final = """\
SELECT context.project_id, context."key", context.newest, context.pinned, context.published_at_ms,
context_version.project_id AS project_id_1, context_version."key" AS key_1, context_version.version,
context_version.publisher, context_version.published_at_ms AS published_at_ms_1, context_version.content_bytes FROM
context JOIN context_version ON context_version.project_id = context.project_id AND context_version."key" =
context."key" AND context_version.version = context.newest WHERE context.project_id = :project_id AND context."key"
>= :first AND context."key" < :end ORDER BY context."key" LIMIT :limit OFFSET 0"""
TOPICS_PINNED: Final = """\
SELECT context.project_id, context."key", context.newest, context.pinned, context.published_at_ms,
context_version.project_id AS project_id_1, context_version."key" AS key_1, context_version.version,
context_version.publisher, context_version.published_at_ms AS published_at_ms_1, context_version.content_bytes FROM
context JOIN context_version ON context_version.project_id = context.project_id AND context_version."key" =
context."key" AND context_version.version = context.newest WHERE context.project_id = :project_id AND context."key"
>= :first AND context."key" < :end AND context.pinned = 1 ORDER BY context."key" LIMIT :limit OFFSET 0"""
PUT_TOPIC: Final = """\
INSERT INTO context (project_id, "key", newest, pinned, published_at_ms) VALUES (:project_id, :key, :newest,
:pinned, :published_at_ms) ON CONFLICT (project_id, "key") DO UPDATE SET newest = excluded.newest, pinned =
excluded.pinned, published_at_ms = excluded.published_at_ms"""
DROP_TOPIC: Final = """\
DELETE FROM context WHERE context.project_id = :project_id AND context."key" = :key"""
VERSION_BY_NUMBER: Final = """\
SELECT context_version.project_id, context_version."key", context_version.version, context_version.publisher,
context_version.published_at_ms, context_version.content_bytes, context_version.content FROM context_version WHERE
context_version.project_id = :project_id AND context_version."key" = :key AND context_version.version = :version"""
VERSIONS: Final = """\
SELECT context_version.project_id, context_version."key", context_version.version, context_version.publisher,
context_version.published_at_ms, context_version.content_bytes FROM context_version WHERE context_version.project_id
= :project_id AND context_version."key" = :key AND context_version.version < :before ORDER BY
context_version.version DESC LIMIT :limit OFFSET 0"""
INSERT_VERSION: Final = """\
INSERT INTO context_version (project_id, "key", version, publisher, published_at_ms, content_bytes, content) VALUES
(?, ?, ?, ?, ?, ?, ?)"""
OLD_VERSIONS: Final = """\
SELECT context_version.version FROM context_version WHERE context_version.project_id = :project_id AND
context_version."key" = :key AND context_version.version <= :up_to AND NOT (EXISTS (SELECT 1 FROM context_reference
WHERE context_reference.project_id = context_version.project_id AND context_reference."key" = context_version."key"
AND context_reference.version = context_version.version)) ORDER BY context_version.version LIMIT :limit OFFSET 0"""
OLDEST_VERSIONS: Final = """\
SELECT context_version.version FROM context_version WHERE context_version.project_id = :project_id AND
context_version."key" = :key ORDER BY context_version.version LIMIT :limit OFFSET 0"""
DROP_VERSION: Final = """\
DELETE FROM context_version WHERE context_version.project_id = :project_id AND context_version."key" = :key AND
context_version.version = :version"""
REFER: Final = """\
INSERT INTO context_reference (project_id, "key", version, task_id) VALUES (?, ?, ?, ?)"""
MEMORY_NEWEST: Final = """\
SELECT project_memory.project_id, project_memory.version, project_memory.author, project_memory.updated_at_ms,
project_memory.content_bytes, project_memory.content FROM project_memory WHERE project_memory.project_id =
:project_id ORDER BY project_memory.version DESC LIMIT 1 OFFSET 0"""
MEMORY_BY_NUMBER: Final = """\
SELECT project_memory.project_id, project_memory.version, project_memory.author, project_memory.updated_at_ms,
project_memory.content_bytes, project_memory.content FROM project_memory WHERE project_memory.project_id =
:project_id AND project_memory.version = :version"""
MEMORIES: Final = """\
SELECT project_memory.project_id, project_memory.version, project_memory.author, project_memory.updated_at_ms,
project_memory.content_bytes FROM project_memory WHERE project_memory.project_id = :project_id AND
project_memory.version < :before ORDER BY project_memory.version DESC LIMIT :limit OFFSET 0"""
INSERT_MEMORY: Final = """\
INSERT INTO project_memory (project_id, version, author, updated_at_ms, content_bytes, content) VALUES (?, ?, ?, ?,
?, ?)"""
DROP_MEMORIES: Final = """\
DELETE FROM project_memory WHERE project_memory.project_id = :project_id AND project_memory.version <= :up_to"""
ACTIVE_AT: Final = """\
SELECT project_activity.active_at_ms FROM project_activity WHERE project_activity.project_id = :project_id"""
PUT_ACTIVITY: Final = """\
INSERT INTO project_activity (project_id, active_at_ms) VALUES (:project_id, :active_at_ms) ON CONFLICT (project_id)
DO UPDATE SET active_at_ms = excluded.active_at_ms"""
TASKS_ACTIVE_AT: Final = """\
SELECT max(anon_1.changed_at_ms) AS max_1 FROM (SELECT task.changed_at_ms AS changed_at_ms FROM task WHERE
task.project_id = :project_id ORDER BY task.sequence DESC LIMIT 1000 OFFSET 0) AS anon_1"""
NEXT_UNPINNED_PROJECT: Final = """\
SELECT context.project_id FROM context WHERE context.project_id > :after AND context.pinned = 0 ORDER BY
context.project_id LIMIT 1 OFFSET 0"""
LAPSED: Final = """\
SELECT context."key" FROM context WHERE context.project_id = :project_id AND context.pinned = 0 AND
context.published_at_ms < :before_ms AND NOT (EXISTS (SELECT 1 FROM context_reference WHERE
context_reference.project_id = context.project_id AND context_reference."key" = context."key")) ORDER BY
context."key" LIMIT :limit OFFSET 0"""
