"""PublishContext and UpdateProjectMemory: what agents write for every agent of their project (T090 T091 T095)."""

from __future__ import annotations

from fencepost_kit.identity import Caller, Role
from fencepost_kit.ids import uuid_text
from fencepost_kit.values import value
from fencepost_mailbox.domain.context.fields import (
    check_content,
    check_expected,
    check_key,
    check_memory,
    check_room,
    check_version,
)
from fencepost_mailbox.domain.context.refusals import InvalidContext
from fencepost_mailbox.domain.context.values import (
    CONTEXT_VERSIONS_MAX,
    MEMORY_VERSIONS_MAX,
    ContextVersion,
    Memory,
    Topic,
    nothing_remembered,
)
from fencepost_mailbox.domain.values import Operation
from fencepost_mailbox.store.protocol import Applied, Transaction
from fencepost_mailbox.usecases.ports import Ports
from fencepost_mailbox.usecases.requests import keep_result, known_result, packed, unpacked
from fencepost_mailbox.usecases.tasks.callers import Actor, actor_of, content_of


@value(frozen=True, kw_only=True, slots=True)
class Written:
    """The version that a call made."""

    version: int
    at_ms: int
    duplicate: bool


@value(frozen=True, kw_only=True, slots=True)
class Publish:
    """A call as it was made; see context.proto."""

    key: str
    content: str
    # None: as before.
    pinned: bool | None
    expected_version: int
    request_id: bytes
    project_id: bytes | None = None


@value(frozen=True, kw_only=True, slots=True)
class Remember:
    """A call as it was made; see context.proto."""

    content: str
    expected_version: int
    request_id: bytes
    project_id: bytes | None = None


def project_of(actor: Actor, named: bytes | None) -> bytes:
    """Return the project in which a caller acts: an agent's own, or the one that the operator names.

    Raises:
        InvalidContext: the operator names none, or an agent another than its own.
    """
    if actor.role is Role.OPERATOR:
        if named is None:
            raise InvalidContext(
                "project_id must be given by the operator; nothing was written", state={"field": "project_id"}
            )
        return named
    if named not in (None, actor.project_id):
        raise InvalidContext(
            "project_id must be your own, or empty; nothing was written", state={"field": "project_id"}
        )
    assert actor.project_id is not None, "an agent has a project"
    return actor.project_id


def _state_of(who: bytes | None, at_ms: int) -> dict[str, str]:
    return {"by": uuid_text(who) if who is not None else "operator", "at_ms": str(at_ms)}


@value(frozen=True, kw_only=True, slots=True)
class Publishing:
    """The writing part of a publication."""

    actor: Actor
    project_id: bytes
    command: Publish
    content: bytes
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[Written]:
        """Write the version and what is true of its key now, or return what the request id stands for.

        Raises:
            AgentDeleted, StaleGeneration, RequestConflict, VersionConflict, ContextLimit: nothing is written.
        """
        actor, command, key = self.actor, self.command, self.command.key
        woken = actor.fence(tx, self.now_ms)
        known = _known(tx, actor, command.request_id, self.content)
        if known is not None:
            return Applied(value=known, wakes=woken, work=woken)
        topic = tx.context.topic(self.project_id, key)
        newest = topic.newest if topic is not None else 0
        if command.expected_version:
            last = tx.context.version(self.project_id, key, newest)
            state = _state_of(last.publisher, last.published_at_ms) if last is not None else {}
            check_expected(command.expected_version, newest, "the context", {"key": key, **state})
        if topic is None:
            check_room(tx.context.topic_count(self.project_id))
        pinned = topic is not None and topic.pinned if command.pinned is None else command.pinned
        tx.context.put_topic(
            Topic(
                project_id=self.project_id,
                key=key,
                newest=newest + 1,
                pinned=pinned,
                published_at_ms=self.now_ms,
            )
        )
        tx.context.insert_version(
            ContextVersion(
                project_id=self.project_id,
                key=key,
                version=newest + 1,
                publisher=actor.agent_id,
                published_at_ms=self.now_ms,
                content_bytes=len(command.content.encode("utf-8")),
                content=command.content,
            )
        )
        tx.context.drop_oldest_versions(self.project_id, key, CONTEXT_VERSIONS_MAX)
        written = Written(version=newest + 1, at_ms=self.now_ms, duplicate=False)
        _keep(tx, actor, command.request_id, self.content, written)
        return Applied(value=written, wakes=woken, work=woken)


@value(frozen=True, kw_only=True, slots=True)
class Remembering:
    """The writing part of a change of memory."""

    actor: Actor
    project_id: bytes
    command: Remember
    content: bytes
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[Written]:
        """Write the version, or return what the request id stands for.

        Raises:
            AgentDeleted, StaleGeneration, RequestConflict, VersionConflict: nothing is written.
        """
        actor, command = self.actor, self.command
        woken = actor.fence(tx, self.now_ms)
        known = _known(tx, actor, command.request_id, self.content)
        if known is not None:
            return Applied(value=known, wakes=woken, work=woken)
        newest = tx.context.memory(self.project_id, 0) or nothing_remembered(self.project_id)
        check_expected(
            command.expected_version,
            newest.version,
            "the project's memory",
            _state_of(newest.author, newest.updated_at_ms) if newest.version else {},
        )
        memory = Memory(
            project_id=self.project_id,
            version=newest.version + 1,
            author=actor.agent_id,
            updated_at_ms=self.now_ms,
            content_bytes=len(command.content.encode("utf-8")),
            content=command.content,
        )
        tx.context.insert_memory(memory, MEMORY_VERSIONS_MAX)
        written = Written(version=memory.version, at_ms=self.now_ms, duplicate=False)
        _keep(tx, actor, command.request_id, self.content, written)
        return Applied(value=written, wakes=woken, work=woken)


def _known(tx: Transaction, actor: Actor, request_id: bytes, content: bytes) -> Written | None:
    raw = known_result(tx, scope=actor.scope, operation=Operation.CONTEXT, request_id=request_id, content=content)
    if raw is None:
        return None
    version, at_ms = unpacked(raw)
    return Written(version=version, at_ms=at_ms, duplicate=True)


def _keep(tx: Transaction, actor: Actor, request_id: bytes, content: bytes, written: Written) -> None:
    keep_result(
        tx,
        scope=actor.scope,
        operation=Operation.CONTEXT,
        request_id=request_id,
        content=content,
        result=packed(written.version, written.at_ms),
        now_ms=written.at_ms,
    )


class PublishContext:
    """PublishContext."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, caller: Caller, command: Publish) -> Written:
        """Store a version and return it once it is on disk.

        Raises:
            InvalidContext: a field breaks its rule.
            DirectoryStale: an operator's authority cannot be checked now.
            Others: see Publishing.
        """
        actor = actor_of(self._ports, caller)
        check_key(command.key)
        check_content(command.content)
        check_version(command.expected_version, "expected_version")
        return await self._ports.store.submit(
            Publishing(
                actor=actor,
                project_id=project_of(actor, command.project_id),
                command=command,
                content=content_of(command),
                now_ms=self._ports.clock.now_ms(),
            )
        )


class UpdateProjectMemory:
    """UpdateProjectMemory."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, caller: Caller, command: Remember) -> Written:
        """Store a version of the memory and return it once it is on disk.

        Raises:
            InvalidContext: a field breaks its rule.
            DirectoryStale: an operator's authority cannot be checked now.
            Others: see Remembering.
        """
        actor = actor_of(self._ports, caller)
        check_memory(command.content)
        check_version(command.expected_version, "expected_version")
        return await self._ports.store.submit(
            Remembering(
                actor=actor,
                project_id=project_of(actor, command.project_id),
                command=command,
                content=content_of(command),
                now_ms=self._ports.clock.now_ms(),
            )
        )
