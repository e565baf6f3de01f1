"""Records, callers, a directory that answers as told, and running stores for tests of the mailbox."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from fencepost_kit.identity import Caller, Role
from fencepost_kit.sqlite import SqliteDatabase
from fencepost_mailbox.directory import Unreachable, Update
from fencepost_mailbox.domain.records import evolve, new_record
from fencepost_mailbox.domain.values import Agent, Completion, Kind, Origin, Record
from fencepost_mailbox.store.protocol import Applied, Credential, DirectoryPosition
from fencepost_mailbox.store.sqlite import SqliteStore

WAIT_S_MAX: Final = 5.0
PROJECT: Final = b"P" * 16
OTHER_PROJECT: Final = b"Q" * 16
NOW_MS: Final = 1_800_000_000_000
EPOCH: Final = "epoch-1"


def id16(name: str) -> bytes:
    """Sixteen bytes that stand for a name, the same in every run."""
    return hashlib.blake2b(name.encode(), digest_size=16).digest()


class CountingMint:
    """Ids that grow by one."""

    def __init__(self, first: int = 1) -> None:
        self._next = first

    def new(self) -> bytes:
        """The next id."""
        self._next += 1
        return self._next.to_bytes(16, "big")


def a_record(kind: Kind = Kind.REQUEST, **changes: Any) -> Record:
    """A record from `sender` to `recipient`, changed as told; its place in the inbox is derived."""
    made = new_record(
        sequence=changes.pop("sequence", 1),
        record_id=changes.pop("record_id", id16("record")),
        kind=kind,
        project_id=PROJECT,
        sender=changes.pop("sender", id16("sender")),
        recipient=changes.pop("recipient", id16("recipient")),
        body=changes.pop("body", b"text"),
        now_ms=NOW_MS,
        origin=Origin.AGENT,
        completion=Completion.AUTOMATIC if kind is Kind.REQUEST else Completion.NONE,
    )
    return evolve(made, **changes)


def an_agent(name: str, **changes: Any) -> Agent:
    """An agent of PROJECT."""
    facts: dict[str, Any] = {
        "agent_id": id16(name),
        "project_id": PROJECT,
        "name": name,
        "role": Role.AGENT.value,
        "provider": "",
        "generation": 1,
        "revision": 1,
    }
    return Agent(**{**facts, **changes})


def token_of(name: str) -> str:
    """The token of the credential that a_credential(name) makes."""
    return "fp_" + (name + "_" * 43)[:43]


def a_credential(name: str, *, role: Role = Role.AGENT, **changes: Any) -> Credential:
    """The credential of an agent of that name, or of an operator or service."""
    speaks = role in (Role.AGENT, Role.COORDINATOR)
    facts: dict[str, Any] = {
        "credential_id": id16("credential of " + name),
        "token_sha256": hashlib.sha256(token_of(name).encode()).digest(),
        "agent_id": id16(name) if speaks else None,
        "project_id": PROJECT if speaks else None,
        "role": role.value,
        "generation": 1,
        "label": name,
        "revision": 1,
    }
    return Credential(**{**facts, **changes})


def a_caller(name: str, *, generation: int = 1, role: Role = Role.AGENT) -> Caller:
    """What the guard knows of an agent's call."""
    return Caller(
        credential_id=id16("credential of " + name),
        role=role,
        agent_id=id16(name),
        project_id=PROJECT,
        generation=generation,
        label=name,
    )


def an_update(revision: int, **changes: Any) -> Update:
    """A step of the directory's stream."""
    facts: dict[str, Any] = {
        "position": DirectoryPosition(epoch=changes.pop("epoch", EPOCH), revision=revision),
        "snapshot_begin": False,
        "snapshot_end": False,
        "agents": (),
        "credentials": (),
        "removed_credentials": (),
    }
    return Update(**{**facts, **changes})


class FakeSessions:
    """A SessionsPort whose stream and answers a test holds in its hands.

    `down` makes every call Unreachable; a stream that is already open ends by `cut`.
    """

    def __init__(self) -> None:
        self.down = False
        self.hangs = False
        self.agents: dict[tuple[bytes, str], Agent] = {}
        self.credentials: dict[bytes, Credential] = {}
        self.asked_agents: list[tuple[bytes, str]] = []
        self.asked_credentials: list[bytes] = []
        self.confirmed: list[DirectoryPosition] = []
        self.watched_from: list[DirectoryPosition] = []
        self.refusing: Exception | None = None
        self.open_streams = 0
        self._told: deque[Update | None] = deque()
        self._news = asyncio.Event()

    def tell(self, *updates: Update) -> None:
        """Send these over the stream."""
        self._told.extend(updates)
        self._news.set()

    def cut(self) -> None:
        """Break the stream behind what was told."""
        self._told.append(None)
        self._news.set()

    def know(self, *names: str) -> None:
        """Answer look-ups of these agents of PROJECT, and of their credentials."""
        for name in names:
            self.agents[PROJECT, name] = an_agent(name)
            credential = a_credential(name)
            self.credentials[credential.token_sha256] = credential

    async def watch(self, position: DirectoryPosition) -> AsyncIterator[Update]:
        """See SessionsPort."""
        self.watched_from.append(position)
        if self.down:
            raise Unreachable
        self.open_streams += 1
        try:
            while True:
                while not self._told:
                    self._news.clear()
                    await self._news.wait()
                update = self._told.popleft()
                if update is None:
                    raise Unreachable
                yield update
        finally:
            self.open_streams -= 1

    async def confirm(self, position: DirectoryPosition) -> None:
        """See SessionsPort."""
        if self.down:
            raise Unreachable
        self.confirmed.append(position)

    async def lookup_agent(self, project_id: bytes, target: str) -> Agent | None:
        """See SessionsPort."""
        self.asked_agents.append((project_id, target))
        await self._answering()
        return self.agents.get((project_id, target))

    async def lookup_credential(self, token_sha256: bytes) -> Credential | None:
        """See SessionsPort."""
        self.asked_credentials.append(token_sha256)
        await self._answering()
        return self.credentials.get(token_sha256)

    async def _answering(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.down:
            raise Unreachable
        if self.refusing is not None:
            raise self.refusing


class Watched:
    """A store that notes what it tells: the values of each durable batch, and how it died."""

    def __init__(
        self, path: Path, *, open_writer: Callable[[SqliteDatabase], Any] = SqliteDatabase.connect_writer
    ) -> None:
        self.path = path
        self.commits: list[Applied[Any]] = []
        self.deaths: list[BaseException] = []
        self.store = SqliteStore(path, on_commit=self._note, on_fatal=self.deaths.append, open_writer=open_writer)

    def _note(self, applied: Sequence[Applied[Any]]) -> None:
        self.commits.extend(applied)


@contextlib.asynccontextmanager
async def running_store(path: Path, **options: Any) -> AsyncIterator[Watched]:
    """A started store over `path`, closed at the end."""
    watched = Watched(path, **options)
    await watched.store.start()
    try:
        yield watched
    finally:
        await watched.store.close()


async def until(condition: Callable[[], bool]) -> None:
    """Return once `condition` holds; fail where it does not within WAIT_S_MAX."""
    async with asyncio.timeout(WAIT_S_MAX):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0.001)
