"""The words of shared context and project memory as values. Ids are 16 bytes; a time of 0 means never."""

from __future__ import annotations

from typing import Final

from fencepost_kit.values import value

CONTEXT_BYTES_MAX: Final = 262_144
CONTEXT_KEY_BYTES_MAX: Final = 256
CONTEXT_KEYS_MAX: Final = 2000
# Of one key. The next publication drops the oldest that no task refers to.
CONTEXT_VERSIONS_MAX: Final = 1000
CONTEXTS_LISTED_DEFAULT: Final = 50
CONTEXTS_LISTED_MAX: Final = 200
MEMORY_BYTES_MAX: Final = 65_536
MEMORY_VERSIONS_MAX: Final = 100
# What a bootstrap shows.
BOOTSTRAP_AGENTS_MAX: Final = 100
BOOTSTRAP_PINNED_MAX: Final = 100
# A project is open while an agent or task of it was active so recently (T091).
PROJECT_OPEN_MS: Final = 7 * 24 * 3600 * 1000
# Versions that one transaction of the sweep removes: each may have CONTEXT_BYTES_MAX bytes.
SWEPT_VERSIONS_MAX: Final = 50
SWEPT_PROJECTS_MAX: Final = 100
SWEEP_PAUSE_MS: Final = 20
# Tasks that are looked at to see whether one of a project was active, the newest first.
TASKS_LOOKED_AT_MAX: Final = 1000
# Of a version, so that it fits where it is stored.
VERSION_MAX: Final = 2**53


@value(frozen=True, kw_only=True, slots=True)
class Topic:
    """A key of a project: which version is the newest, and whether it is kept for ever."""

    project_id: bytes
    key: str
    newest: int
    pinned: bool
    published_at_ms: int


@value(frozen=True, kw_only=True, slots=True)
class ContextVersion:
    """One version of a context. In lists content is empty. No publisher means the operator."""

    project_id: bytes
    key: str
    version: int
    publisher: bytes | None
    published_at_ms: int
    content_bytes: int
    content: str


@value(frozen=True, kw_only=True, slots=True)
class ShownContext:
    """A version as it is shown: with what is true of its key now."""

    version: ContextVersion
    topic: Topic


@value(frozen=True, kw_only=True, slots=True)
class Memory:
    """One version of what a project remembers. In lists content is empty. No author means the operator."""

    project_id: bytes
    version: int
    author: bytes | None
    updated_at_ms: int
    content_bytes: int
    content: str


def nothing_remembered(project_id: bytes) -> Memory:
    """Return the memory of a project that remembers nothing: version 0."""
    return Memory(project_id=project_id, version=0, author=None, updated_at_ms=0, content_bytes=0, content="")
