"""What is read of shared context and project memory (T092 T093 T094). Reads write nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fencepost_kit.identity import Caller
from fencepost_kit.values import value
from fencepost_mailbox.domain.context.fields import check_key, check_prefix, check_version, page_size
from fencepost_mailbox.domain.context.values import (
    BOOTSTRAP_AGENTS_MAX,
    BOOTSTRAP_PINNED_MAX,
    ContextVersion,
    Memory,
    ShownContext,
    nothing_remembered,
)
from fencepost_mailbox.domain.pages import page_number
from fencepost_mailbox.domain.refusals import InvalidCursor, NotFound
from fencepost_mailbox.domain.values import Agent
from fencepost_mailbox.usecases.context.publish import project_of
from fencepost_mailbox.usecases.ports import Ports
from fencepost_mailbox.usecases.tasks.callers import actor_of

_BEFORE_ANYTHING: Final = 2**62


def missing(what: str) -> NotFound:
    """Return the refusal of a look at what is not there."""
    return NotFound(
        f"{what}; nothing was read",
        hint="Look at what the project has; what is not pinned goes when a project is not used.",
    )


@value(frozen=True, kw_only=True, slots=True)
class ContextPage:
    """A page of contexts or versions; `next_token` is empty on the last."""

    contexts: Sequence[ShownContext]
    next_token: str


@value(frozen=True, kw_only=True, slots=True)
class MemoryPage:
    """A page of a memory's versions; `next_token` is empty on the last."""

    versions: Sequence[Memory]
    next_token: str


@value(frozen=True, kw_only=True, slots=True)
class Beginning:
    """What an agent needs that knows nothing yet."""

    project_id: bytes
    memory: Memory
    # With when each last read its mailbox.
    agents: Sequence[tuple[Agent, int]]
    agent_count: int
    pinned: Sequence[ShownContext]
    more_pinned: bool


class LookAtContext:
    """Every RPC that reads. DirectoryStale where an operator's authority cannot be checked now."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def _project(self, caller: Caller, named: bytes | None) -> bytes:
        return project_of(actor_of(self._ports, caller), named)

    async def get(self, caller: Caller, project_id: bytes | None, key: str, version: int) -> ShownContext:
        """Return a version of a context with its content; 0 is the newest.

        Raises:
            InvalidContext, NotFound: there is none.
        """
        project = self._project(caller, project_id)
        check_key(key)
        check_version(version, "version")
        queries = self._ports.store.read
        with queries.snapshot():
            topic = queries.context.topic(project, key)
            found = queries.context.version(project, key, version or topic.newest) if topic is not None else None
        if topic is None or found is None:
            raise missing("the project has no context of this key, or not in this version")
        return ShownContext(version=found, topic=topic)

    async def list_contexts(
        self, caller: Caller, project_id: bytes | None, *, prefix: str, pinned_only: bool, size: int, token: str
    ) -> ContextPage:
        """Return a page of contexts by key.

        Raises:
            InvalidContext, InvalidCursor: the page asked for does not exist.
        """
        project = self._project(caller, project_id)
        check_prefix(prefix)
        limit = page_size(size)
        if token and not token.startswith(prefix):
            raise InvalidCursor("this page token is of another listing; nothing was read")
        found = self._ports.store.read.context.topics(
            project, prefix=prefix, after=check_prefix(token), limit=limit + 1, pinned_only=pinned_only
        )
        page = found[:limit]
        return ContextPage(contexts=page, next_token=page[-1].topic.key if len(found) > limit else "")

    async def list_versions(
        self, caller: Caller, project_id: bytes | None, *, key: str, size: int, token: str
    ) -> ContextPage:
        """Return a page of the versions of one context, newest first.

        Raises:
            InvalidContext, InvalidCursor, NotFound: the page asked for does not exist.
        """
        project = self._project(caller, project_id)
        check_key(key)
        limit, before = page_size(size), page_number(token) if token else _BEFORE_ANYTHING
        queries = self._ports.store.read
        with queries.snapshot():
            topic = queries.context.topic(project, key)
            found: list[ContextVersion] = queries.context.versions(project, key, before, limit + 1)
        if topic is None:
            raise missing("the project has no context of this key")
        page = [ShownContext(version=one, topic=topic) for one in found[:limit]]
        return ContextPage(contexts=page, next_token=str(page[-1].version.version) if len(found) > limit else "")

    async def memory(self, caller: Caller, project_id: bytes | None, version: int) -> Memory:
        """Return a version of the project's memory with its content; 0 is the newest, which may be none at all.

        Raises:
            InvalidContext, NotFound: there is no such version, or not any more.
        """
        project = self._project(caller, project_id)
        found = self._ports.store.read.context.memory(project, check_version(version, "version"))
        if found is None and version:
            raise NotFound(
                "the project's memory has no such version, or not any more; nothing was read",
                hint="List the versions that are kept with memory show --history.",
            )
        return found or nothing_remembered(project)

    async def list_memory(self, caller: Caller, project_id: bytes | None, *, size: int, token: str) -> MemoryPage:
        """Return a page of the memory's versions, newest first.

        Raises:
            InvalidContext, InvalidCursor: the page asked for does not exist.
        """
        project = self._project(caller, project_id)
        limit, before = page_size(size), page_number(token) if token else _BEFORE_ANYTHING
        found = self._ports.store.read.context.memories(project, before, limit + 1)
        page = found[:limit]
        return MemoryPage(versions=page, next_token=str(page[-1].version) if len(found) > limit else "")

    async def bootstrap(self, caller: Caller, project_id: bytes | None) -> Beginning:
        """Return what an agent needs that knows nothing yet. One committed state; agents as the directory has them."""
        ports, project = self._ports, self._project(caller, project_id)
        members = sorted(ports.directory.members(project), key=lambda agent: agent.name)
        queries = ports.store.read
        with queries.snapshot():
            memory = queries.context.memory(project, 0) or nothing_remembered(project)
            pinned = queries.context.topics(
                project, prefix="", after="", limit=BOOTSTRAP_PINNED_MAX + 1, pinned_only=True
            )
        shown = members[:BOOTSTRAP_AGENTS_MAX]
        return Beginning(
            project_id=project,
            memory=memory,
            agents=[(agent, ports.signals.last_read_at_ms(agent.agent_id)) for agent in shown],
            agent_count=len(members),
            pinned=pinned[:BOOTSTRAP_PINNED_MAX],
            more_pinned=len(pinned) > BOOTSTRAP_PINNED_MAX,
        )
