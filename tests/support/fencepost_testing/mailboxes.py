"""Records, callers, a directory that answers as told, and running stores for tests of the mailbox."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from fencepost_kit.identity import Caller, Role
from fencepost_kit.ids import uuid_text
from fencepost_kit.sqlite import SqliteDatabase
from fencepost_mailbox.directory import Diverged, Unreachable, Update
from fencepost_mailbox.domain.answers import Resolution
from fencepost_mailbox.domain.bindings import Binding, BindingState, Mode, Turn, TurnOutcome, ending
from fencepost_mailbox.domain.claims import Claim, Outcome
from fencepost_mailbox.domain.deletion import ERASED_ROWS_MAX
from fencepost_mailbox.domain.records import evolve, new_record
from fencepost_mailbox.domain.refusals import DirectoryStale, NotFound
from fencepost_mailbox.domain.values import (
    WORK,
    Agent,
    Completion,
    FactKind,
    Kind,
    Operation,
    Origin,
    Record,
    ReplyStatus,
)
from fencepost_mailbox.store.protocol import Applied, Credential, DirectoryPosition
from fencepost_mailbox.store.sqlite import SqliteStore
from fencepost_mailbox.usecases import (
    admit,
    delete,
    open_generation,
    outcome,
    prompt,
    receive,
    reply,
    resolve,
    settle_key,
    withdraw,
)
from fencepost_mailbox.usecases import claim as claims
from fencepost_mailbox.usecases.follow import DirectoryStep
from fencepost_mailbox.usecases.ports import Ports
from fencepost_mailbox.waits import Waits, Wake
from fencepost_testing.clock import VirtualClock

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
        sender=changes.pop("sender", None if kind in (Kind.PROMPT, Kind.WAKE) else id16("sender")),
        recipient=changes.pop("recipient", id16("recipient")),
        body=changes.pop("body", b"text"),
        now_ms=NOW_MS,
        origin=Origin.AGENT,
        completion=Completion.AUTOMATIC if kind in WORK else Completion.NONE,
    )
    return evolve(made, **changes)


def a_turn(turn_id: str = "turn-1", **changes: Any) -> Turn:
    """A turn of a scripted provider."""
    facts: dict[str, Any] = {"provider": "scripted", "session_id": "session-1", "turn_id": turn_id, "mode": Mode.START}
    return Turn(**{**facts, **changes})


def a_binding(**changes: Any) -> Binding:
    """A binding of a request of `sender` to a_turn()."""
    facts: dict[str, Any] = {
        "token": id16("token"),
        "record_id": id16("record"),
        "recipient": id16("recipient"),
        "requester": id16("sender"),
        "dispatcher": id16("dispatcher"),
        "generation": 1,
        "turn": a_turn(),
        "sequence": 1,
        "state": BindingState.BOUND,
        "publishes": True,
    }
    return Binding(**{**facts, **changes})


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


def a_step(revision: int = 1, **changes: Any) -> DirectoryStep:
    """A step of the directory as it is written."""
    facts: dict[str, Any] = {
        "position": DirectoryPosition(epoch=EPOCH, revision=revision),
        "whole": False,
        "agents": (),
        "credentials": (),
        "removed_credentials": (),
    }
    return DirectoryStep(**{**facts, **changes})


class FakeSessions:
    """A SessionsPort whose stream and answers a test holds in its hands.

    `down` makes every call Unreachable, `went_back` makes the directory an earlier state; a stream that is already
    open ends by `cut`.
    """

    def __init__(self) -> None:
        self.down = False
        self.went_back = False
        self.hangs = False
        self.agents: dict[tuple[bytes, str], Agent] = {}
        self.credentials: dict[bytes, Credential] = {}
        self.asked_agents: list[tuple[bytes, str]] = []
        self.finished: list[tuple[str, bytes]] = []
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
        if self.went_back:
            raise Diverged
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

    async def finish_deletion(self, epoch: str, agent_id: bytes) -> None:
        """See SessionsPort."""
        if self.down:
            raise Unreachable
        self.finished.append((epoch, agent_id))

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


class KnownAgents:
    """A directory in which a fixed set of agents exists, named like themselves."""

    def __init__(self, *names: str) -> None:
        self._by_name = {name: an_agent(name) for name in names}
        self._by_id = {agent.agent_id: agent for agent in self._by_name.values()}
        self.stale = False
        self.refusing: Exception | None = None

    def forget(self, name: str) -> None:
        """Resolve the agent, as sessions does, and know nothing of it, as a mirror that lags behind."""
        self._by_id.pop(id16(name), None)

    async def resolve(self, project_id: bytes, target: str) -> Agent:
        """See ports.Directory."""
        if self.refusing is not None:
            raise self.refusing
        agent = self._by_name.get(target) or next(
            (one for one in self._by_name.values() if uuid_text(one.agent_id) == target), None
        )
        if agent is None or agent.project_id != project_id:
            raise NotFound("nobody has this name")
        return agent

    def members(self, project_id: bytes) -> list[Agent]:
        """See ports.Directory."""
        return [agent for agent in self._by_id.values() if agent.project_id == project_id]

    def anywhere(self, target: str) -> Agent:
        """See ports.Directory."""
        found = self._by_name.get(target)
        if found is None:
            raise NotFound("nobody has this name")
        return found

    def become(self, name: str, **changes: Any) -> None:
        """Let the directory say something else of an agent."""
        agent = replace(self._by_name[name], **changes)
        self._by_name[name] = self._by_id[agent.agent_id] = agent

    def agent(self, agent_id: bytes) -> Agent | None:
        """See ports.Directory."""
        return self._by_id.get(agent_id)

    def check_stands(self, caller: Caller) -> None:
        """See ports.Directory: nothing is ever removed here."""

    def must_know(self, agent_id: bytes) -> None:
        """See ports.Directory."""
        if agent_id not in self._by_id:
            raise DirectoryStale("this agent is not known here yet")

    def check_fresh(self) -> None:
        """See ports.Directory."""
        if self.stale:
            raise DirectoryStale("too old")


class NotedReads:
    """Signals that a test can look at."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self.reads: dict[bytes, int] = {}

    def waiting(self, agent_id: bytes) -> bool:
        """See ports.Signals."""
        return self._waits.waiting(agent_id)

    def note_read(self, agent_id: bytes, now_ms: int) -> None:
        """See ports.Signals."""
        self.reads[agent_id] = now_ms

    def last_read_at_ms(self, agent_id: bytes) -> int:
        """See ports.Signals."""
        return self.reads.get(agent_id, 0)


class Desk:
    """Every use case of the mailbox over a store of its own, called by the names of agents.

    Commits wake waits as in the running service; time stands still until a test moves it.
    """

    def __init__(self, path: Path, *names: str, first_id: int = 1, **options: Any) -> None:
        self._path = path
        self._options = options
        self.clock = VirtualClock(now_ms=NOW_MS)
        self.agents = KnownAgents(*names)
        self.mint = CountingMint(first_id)
        self._keys = itertools.count(1)
        self.deaths: list[BaseException] = []
        self.woken: list[bytes] = []
        self.worked: list[bytes] = []

    async def start(self) -> None:
        """Open the store."""
        self.waits = Waits(self.clock)
        self.store = SqliteStore(self._path, on_commit=self._committed, on_fatal=self.deaths.append, **self._options)
        self.signals = NotedReads(self.waits)
        self.ports = Ports(
            store=self.store, directory=self.agents, signals=self.signals, mint=self.mint, clock=self.clock
        )
        await self.store.start()
        await self.store.submit(claims.Resuming(now_ms=self.clock.now_ms()))
        await outcome.publish_left(self.ports)

    def _committed(self, applied: Sequence[Applied[Any]]) -> None:
        for one in applied:
            self.woken += one.wakes
            self.worked += one.work
            self.waits.wake(one.wakes)
            self.waits.wake(one.injected, Wake.PROVIDER_CONTEXT)

    async def stop(self) -> None:
        """Close the store."""
        await self.store.close()

    async def restart(self) -> None:
        """Close the store and open it again."""
        await self.stop()
        await self.start()

    def key(self) -> str:
        """A key that was never used."""
        return f"key-{next(self._keys)}"

    async def send(
        self,
        sender: str,
        recipient: str,
        body: str = "text",
        *,
        kind: Kind = Kind.INFORMATION,
        key: str | None = None,
        generation: int = 1,
        completion: Completion = Completion.AUTOMATIC,
    ) -> admit.Receipt:
        """Send information, or a request."""
        command = admit.Command(
            kind=kind,
            target=recipient,
            body=body,
            key=self.key() if key is None else key,
            completion=completion if kind is Kind.REQUEST else Completion.NONE,
        )
        return await admit.Admit(self.ports)(a_caller(sender, generation=generation), command)

    async def request(self, sender: str, recipient: str, body: str = "work", **options: Any) -> Record:
        """Send a request and return its record."""
        return (await self.send(sender, recipient, body, kind=Kind.REQUEST, **options)).record

    async def receive(
        self,
        agent: str,
        *,
        cursor: str = "",
        ack: str = "",
        limit: int = 0,
        page_bytes: int = 0,
        timeout_ms: int = 0,
        generation: int = 1,
    ) -> receive.Page:
        """Read a page."""
        command = receive.Command(
            cursor=cursor, ack_cursor=ack, limit=limit, timeout_ms=timeout_ms, page_bytes=page_bytes
        )
        return await receive.Receive(self.ports, self.waits)(a_caller(agent, generation=generation), command)

    async def wait(self, agent: str, *, timeout_ms: int = 0, generation: int = 1) -> Wake:
        """Wait for something to read."""
        return await receive.Wait(self.ports, self.waits)(a_caller(agent, generation=generation), timeout_ms)

    async def reply(
        self,
        agent: str,
        request: Record,
        body: str = "done",
        *,
        status: ReplyStatus = ReplyStatus.DONE,
        key: str | None = None,
        generation: int = 1,
    ) -> admit.Receipt:
        """Answer a request."""
        command = reply.Command(
            request_id=request.record_id, status=status, body=body, key=self.key() if key is None else key
        )
        return await reply.Reply(self.ports)(a_caller(agent, generation=generation), command)

    async def claim(
        self,
        agent: str,
        *,
        dispatcher: str = "dispatcher",
        incarnation: int = 1,
        generation: int = 1,
        kind: claims.ClaimKind = claims.ClaimKind.REQUEST,
        high_water: int = 0,
        term_ms: int = 0,
        key: str | None = None,
    ) -> claims.Taken | None:
        """Take a record for a dispatcher."""
        command = claims.Command(
            agent_id=id16(agent),
            generation=generation,
            dispatcher=id16(dispatcher),
            incarnation=incarnation,
            kind=kind,
            high_water=high_water,
            term_ms=term_ms,
            key=self.key() if key is None else key,
        )
        return await claims.TakeClaim(self.ports)(a_caller("service", role=Role.SERVICE), command)

    async def taken(self, agent: str, **options: Any) -> claims.Taken:
        """Take a record that is there."""
        found = await self.claim(agent, **options)
        assert found is not None
        return found

    async def release(self, held: Claim, *, generation: int | None = None, proof: str = "busy") -> claims.Settled:
        """Give a claim back."""
        return await claims.Release(self.ports)(held.token, generation or held.generation, proof)

    async def finish(
        self,
        held: Claim,
        outcome: Outcome,
        *,
        generation: int | None = None,
        evidence: str = "seen",
        turn: Turn | None = None,
    ) -> claims.Settled:
        """Tell what became of a claim."""
        return await claims.Finish(self.ports)(held.token, generation or held.generation, outcome, evidence, turn)

    async def bound(self, agent: str, turn: Turn | None = None, **options: Any) -> claims.Taken:
        """Take the oldest work of an agent and let a turn accept it."""
        taken = await self.taken(agent, **options)
        await self.finish(taken.claim, Outcome.ACCEPTED, turn=turn or a_turn())
        return taken

    async def ended(
        self,
        held: Claim,
        how: TurnOutcome = TurnOutcome.COMPLETED,
        final: str = "",
        *,
        turn: Turn | None = None,
        final_bytes: int = 0,
        generation: int | None = None,
        evidence: str = "turn ended",
    ) -> outcome.Recorded:
        """Tell how the bound turn ended."""
        return await outcome.RecordOutcome(self.ports)(
            held.token,
            generation or held.generation,
            turn or a_turn(),
            ending(how, final, final_bytes),
            evidence,
        )

    async def recorded(
        self, held: Claim, how: TurnOutcome = TurnOutcome.COMPLETED, final: str = "", *, final_bytes: int = 0
    ) -> outcome.Recorded:
        """Do the first step alone, as a process that dies behind it."""
        return await self.store.submit(
            outcome.Recording(
                token=held.token,
                generation=held.generation,
                turn=a_turn(),
                told=ending(how, final, final_bytes),
                evidence="turn ended",
                now_ms=self.clock.now_ms(),
            )
        )

    async def prompt(self, recipient: str, body: str = "hello", *, key: str | None = None) -> admit.Receipt:
        """Say something to an agent as a person."""
        command = prompt.Command(
            project_id=PROJECT, target=recipient, body=body, key=self.key() if key is None else key
        )
        return await prompt.Prompt(self.ports)(command)

    async def withdraw(self, sender: str, record: Record, *, generation: int = 1) -> bool:
        """Take a request back."""
        return await withdraw.Withdraw(self.ports)(a_caller(sender, generation=generation), record.record_id)

    async def resolve(
        self, record: Record, resolution: Resolution, note: str = "", *, key: str | None = None
    ) -> resolve.Resolved:
        """Settle an uncertain delivery as a person."""
        command = resolve.Command(
            kind=record.kind,
            record_id=record.record_id,
            resolution=resolution,
            note=note,
            key=self.key() if key is None else key,
        )
        return await resolve.ResolveDelivery(self.ports)(command)

    def binding(self, held: Claim) -> Binding:
        """The turn that is bound under a claim."""
        found = self.store.read.binding(held.token)
        assert found is not None
        return found

    async def open(self, agent: str, generation: int) -> open_generation.Opened:
        """Open a life."""
        return await open_generation.OpenGeneration(self.ports)(id16(agent), generation)

    async def expire(self, ms: int) -> int:
        """Let time pass and look for claims that have stood too long."""
        await self.clock.advance(ms / 1000)
        return await self.store.submit(claims.Expiring(now_ms=self.clock.now_ms()))

    async def settle(
        self, agent: str, operation: Operation, key: str, content: bytes, *, epoch: str | None = None
    ) -> settle_key.Settlement:
        """Ask what became of a key."""
        command = settle_key.Command(
            epoch=uuid_text(self.store.epoch) if epoch is None else epoch,
            operation=operation,
            key=key,
            content=content,
        )
        return await settle_key.SettleKey(self.ports)(a_caller(agent), command)

    async def delete(self, *names: str) -> list[delete.Closing]:
        """Hear that these agents are being deleted, in one step of the directory."""
        closings = [
            delete.Closing(agent_id=id16(name), project_id=PROJECT, seed=self.mint.new(), now_ms=self.clock.now_ms())
            for name in names
        ]
        await self.store.submit(a_step(closings=closings))
        return closings

    async def erase(self, name: str, rows: int = ERASED_ROWS_MAX) -> bool:
        """Erase a chunk of a deleted agent's mail; True where nothing is left."""
        (tombstone,) = (one for one in self.store.tombstones() if one.agent_id == id16(name))
        return await self.store.submit(
            delete.Erasing(tombstone=tombstone, rows=rows, seed=self.mint.new(), now_ms=self.clock.now_ms())
        )

    def now(self, record: Record) -> Record:
        """A record as it stands now."""
        found = self.store.read.record(record.record_id)
        assert found is not None
        return found

    def facts(self, record: Record) -> list[FactKind]:
        """What became true of a record, in order."""
        return [fact.fact for fact in self.store.read.facts(record.record_id, 1000)]


@contextlib.asynccontextmanager
async def a_desk(path: Path, *names: str, **options: Any) -> AsyncIterator[Desk]:
    """A desk over `path`, closed at the end."""
    desk = Desk(path, *names, **options)
    await desk.start()
    try:
        yield desk
    finally:
        await desk.stop()
