"""Shared context and project memory in the embedded store."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from fencepost_mailbox.domain.context.values import ContextVersion, Memory, ShownContext, Topic
from fencepost_mailbox.store.context import sqlite_statements as sql

# Behind every key: no key has a character that is not printable.
_END: Final = "\U0010ffff"
_NEXT: Final = "\x01"
# One publication makes one version, so this keeps up, also where a limit was lowered by an upgrade.
_DROPPED_AT_ONCE: Final = 4


def topic_from_row(row: tuple[Any, ...]) -> Topic:
    """Return the key of a whole row."""
    return Topic(project_id=row[0], key=row[1], newest=row[2], pinned=bool(row[3]), published_at_ms=row[4])


def version_from_row(row: tuple[Any, ...]) -> ContextVersion:
    """Return the version of a row, with or without its content."""
    return ContextVersion(
        project_id=row[0],
        key=row[1],
        version=row[2],
        publisher=row[3],
        published_at_ms=row[4],
        content_bytes=row[5],
        content=row[6] if len(row) > 6 else "",
    )


def memory_from_row(row: tuple[Any, ...]) -> Memory:
    """Return the memory of a row, with or without its content."""
    return Memory(
        project_id=row[0],
        version=row[1],
        author=row[2],
        updated_at_ms=row[3],
        content_bytes=row[4],
        content=row[5] if len(row) > 5 else "",
    )


class SqliteContextQueries:
    """See ContextQueries. Results are fetched whole."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor

    def _all(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return self._cursor.execute(statement, parameters).fetchall()

    def _one(self, statement: str, **parameters: Any) -> tuple[Any, ...] | None:
        rows = self._all(statement, **parameters)
        return rows[0] if rows else None

    def topic(self, project_id: bytes, key: str) -> Topic | None:
        """See ContextQueries."""
        row = self._one(sql.TOPIC, project_id=project_id, key=key)
        return None if row is None else topic_from_row(row)

    def topic_count(self, project_id: bytes) -> int:
        """See ContextQueries."""
        row = self._one(sql.TOPIC_COUNT, project_id=project_id)
        return 0 if row is None else int(row[0])

    def topics(
        self, project_id: bytes, *, prefix: str, after: str, limit: int, pinned_only: bool
    ) -> list[ShownContext]:
        """See ContextQueries."""
        rows = self._all(
            sql.TOPICS_PINNED if pinned_only else sql.TOPICS,
            project_id=project_id,
            first=max(prefix, after + _NEXT if after else ""),
            end=prefix + _END,
            limit=limit,
        )
        return [ShownContext(topic=topic_from_row(row[:5]), version=version_from_row(row[5:])) for row in rows]

    def version(self, project_id: bytes, key: str, version: int) -> ContextVersion | None:
        """See ContextQueries."""
        row = self._one(sql.VERSION_BY_NUMBER, project_id=project_id, key=key, version=version)
        return None if row is None else version_from_row(row)

    def versions(self, project_id: bytes, key: str, before: int, limit: int) -> list[ContextVersion]:
        """See ContextQueries."""
        rows = self._all(sql.VERSIONS, project_id=project_id, key=key, before=before, limit=limit)
        return [version_from_row(row) for row in rows]

    def memory(self, project_id: bytes, version: int) -> Memory | None:
        """See ContextQueries."""
        if version:
            row = self._one(sql.MEMORY_BY_NUMBER, project_id=project_id, version=version)
        else:
            row = self._one(sql.MEMORY_NEWEST, project_id=project_id)
        return None if row is None else memory_from_row(row)

    def memories(self, project_id: bytes, before: int, limit: int) -> list[Memory]:
        """See ContextQueries."""
        rows = self._all(sql.MEMORIES, project_id=project_id, before=before, limit=limit)
        return [memory_from_row(row) for row in rows]

    def next_unpinned_project(self, after: bytes) -> bytes | None:
        """See ContextQueries."""
        row = self._one(sql.NEXT_UNPINNED_PROJECT, after=after)
        return None if row is None else row[0]

    def open_since(self, project_id: bytes, since_ms: int) -> bool:
        """See ContextQueries."""
        called = self._one(sql.ACTIVE_AT, project_id=project_id)
        if called is not None and called[0] > since_ms:
            return True
        changed = self._one(sql.TASKS_ACTIVE_AT, project_id=project_id)
        return changed is not None and changed[0] is not None and changed[0] > since_ms


class SqliteContextTransaction(SqliteContextQueries):
    """See ContextTransaction."""

    def put_topic(self, topic: Topic) -> None:
        """See ContextTransaction."""
        self._cursor.execute(
            sql.PUT_TOPIC,
            {
                "project_id": topic.project_id,
                "key": topic.key,
                "newest": topic.newest,
                "pinned": int(topic.pinned),
                "published_at_ms": topic.published_at_ms,
            },
        )

    def insert_version(self, version: ContextVersion) -> None:
        """See ContextTransaction."""
        self._cursor.execute(
            sql.INSERT_VERSION,
            (
                version.project_id,
                version.key,
                version.version,
                version.publisher,
                version.published_at_ms,
                version.content_bytes,
                version.content,
            ),
        )

    def drop_oldest_versions(self, project_id: bytes, key: str, keep: int) -> int:
        """See ContextTransaction."""
        topic = self.topic(project_id, key)
        up_to = (topic.newest if topic is not None else 0) - keep
        found = self._all(sql.OLD_VERSIONS, project_id=project_id, key=key, up_to=up_to, limit=_DROPPED_AT_ONCE)
        self._drop(project_id, key, [row[0] for row in found])
        return len(found)

    def _drop(self, project_id: bytes, key: str, versions: Sequence[int]) -> None:
        for version in versions:
            self._cursor.execute(sql.DROP_VERSION, {"project_id": project_id, "key": key, "version": version})

    def refer(self, project_id: bytes, key: str, version: int, task_id: bytes) -> None:
        """See ContextTransaction."""
        self._cursor.execute(sql.REFER, (project_id, key, version, task_id))

    def insert_memory(self, memory: Memory, keep: int) -> None:
        """See ContextTransaction."""
        self._cursor.execute(
            sql.INSERT_MEMORY,
            (
                memory.project_id,
                memory.version,
                memory.author,
                memory.updated_at_ms,
                memory.content_bytes,
                memory.content,
            ),
        )
        self._cursor.execute(sql.DROP_MEMORIES, {"project_id": memory.project_id, "up_to": memory.version - keep})

    def note_active(self, projects: Sequence[tuple[bytes, int]]) -> None:
        """See ContextTransaction."""
        for project_id, at_ms in projects:
            known = self._one(sql.ACTIVE_AT, project_id=project_id)
            if known is None or known[0] < at_ms:
                self._cursor.execute(sql.PUT_ACTIVITY, {"project_id": project_id, "active_at_ms": at_ms})

    def sweep(self, project_id: bytes, before_ms: int, limit: int) -> int:
        """See ContextTransaction."""
        removed = 0
        for (key,) in self._all(sql.LAPSED, project_id=project_id, before_ms=before_ms, limit=limit):
            left = limit - removed
            found = self._all(sql.OLDEST_VERSIONS, project_id=project_id, key=key, limit=left)
            self._drop(project_id, key, [row[0] for row in found])
            removed += len(found)
            if removed >= limit and len(found) == left:
                # Perhaps more of this key stand: the next chunk looks, and ends the key where none do.
                break
            self._cursor.execute(sql.DROP_TOPIC, {"project_id": project_id, "key": key})
        return removed
