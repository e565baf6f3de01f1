"""What any store of the mailbox does for shared context and project memory, in the same transactions as for records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fencepost_mailbox.domain.context.values import ContextVersion, Memory, ShownContext, Topic


class ContextQueries(Protocol):
    """What can be asked of contexts, inside a transaction or beside it."""

    def topic(self, project_id: bytes, key: str) -> Topic | None:
        """Return what is known of a key, or None."""
        ...

    def topic_count(self, project_id: bytes) -> int:
        """Count the keys of a project."""
        ...

    def topics(
        self, project_id: bytes, *, prefix: str, after: str, limit: int, pinned_only: bool
    ) -> list[ShownContext]:
        """Return the newest versions, without content, of keys behind `after` that begin with `prefix`, by key."""
        ...

    def version(self, project_id: bytes, key: str, version: int) -> ContextVersion | None:
        """Return a version with its content, or None."""
        ...

    def versions(self, project_id: bytes, key: str, before: int, limit: int) -> list[ContextVersion]:
        """Return versions below `before` without content, newest first."""
        ...

    def memory(self, project_id: bytes, version: int) -> Memory | None:
        """Return a version of a project's memory with its content; 0 is the newest. None where there is none."""
        ...

    def memories(self, project_id: bytes, before: int, limit: int) -> list[Memory]:
        """Return versions of a project's memory below `before` without content, newest first."""
        ...

    def next_unpinned_project(self, after: bytes) -> bytes | None:
        """Return the project behind `after` that has keys which are not pinned, or None."""
        ...

    def open_since(self, project_id: bytes, since_ms: int) -> bool:
        """Tell whether an agent or a task of a project was active after a time."""
        ...


class ContextTransaction(ContextQueries, Protocol):
    """What an operation may write of contexts."""

    def put_topic(self, topic: Topic) -> None:
        """Write what is known of a key."""
        ...

    def insert_version(self, version: ContextVersion) -> None:
        """Write a new version."""
        ...

    def drop_oldest_versions(self, project_id: bytes, key: str, keep: int) -> int:
        """Remove the oldest versions beyond `keep` that no task refers to; at most a few at a time. Return how many."""
        ...

    def refer(self, project_id: bytes, key: str, version: int, task_id: bytes) -> None:
        """Write that a task refers to a version, which stays for that."""
        ...

    def insert_memory(self, memory: Memory, keep: int) -> None:
        """Write a new version of a project's memory, and remove what is older than the newest `keep`."""
        ...

    def note_active(self, projects: Sequence[tuple[bytes, int]]) -> None:
        """Write when an agent of each project last called; never an earlier time over a later one."""
        ...

    def sweep(self, project_id: bytes, before_ms: int, limit: int) -> int:
        """Remove up to `limit` versions of keys that have lapsed, each key with its last version. Return how many.

        A key has lapsed that is not pinned, that no task refers to, and that was last published before a time.
        """
        ...
