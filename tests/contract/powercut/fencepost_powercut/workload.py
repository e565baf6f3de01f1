"""A scripted life of a mailbox: every operation that writes, alone and several to a batch, over the store itself."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import marshal
import random
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from fencepost_powercut.recording import Recording, Told

from fencepost_kit.clock import SYSTEM_CLOCK
from fencepost_kit.identity import Caller, Role
from fencepost_kit.ids import IdMint
from fencepost_kit.refusal import Refusal
from fencepost_mailbox.domain.bindings import Mode, Turn, TurnOutcome, ending
from fencepost_mailbox.domain.claims import Outcome
from fencepost_mailbox.domain.idempotency import fingerprint
from fencepost_mailbox.domain.values import Agent, Completion, Kind, Operation, ReplyStatus
from fencepost_mailbox.store.protocol import Applied, Credential, DirectoryPosition
from fencepost_mailbox.store.sqlite import SqliteStore
from fencepost_mailbox.usecases import admit, claim, open_generation, outcome, receive, reply, settle_key
from fencepost_mailbox.usecases.follow import DirectoryStep, NotingReads
from fencepost_mailbox.usecases.ports import Ports
from fencepost_mailbox.waits import Waits

PROJECT: Final = bytes(16)
AGENTS: Final = tuple(bytes([number]) * 16 for number in range(1, 5))
DISPATCHER: Final = b"dispatcher-12345"
BODY_BYTES: Final = (40, 300, 3_000, 9_000)
NOW_MS: Final = 1_800_000_000_000
# The last version in which equal values give equal bytes, whoever else refers to them.
MARSHAL_VERSION: Final = 2


def state_of(connection: sqlite3.Connection) -> str:
    """Return a digest of everything that a database holds."""
    digest = hashlib.sha256()
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    for (table,) in tables:
        # Rows come in the order of the primary key: every table is clustered by it.
        rows = connection.execute(f"SELECT * FROM {table}").fetchall()
        digest.update(marshal.dumps((table, rows), MARSHAL_VERSION))
    return digest.hexdigest()


class _Directory:
    """Every agent of the script, and nobody else."""

    def __init__(self) -> None:
        self._agents = {
            agent_id: Agent(
                agent_id=agent_id,
                project_id=PROJECT,
                name=f"a{agent_id[0]}",
                role=1,
                provider="",
                generation=1,
                revision=1,
            )
            for agent_id in AGENTS
        }

    async def resolve(self, project_id: bytes, target: str) -> Agent:
        return self._agents[AGENTS[int(target)]]

    def agent(self, agent_id: bytes) -> Agent | None:
        return self._agents.get(agent_id)

    def check_stands(self, caller: Caller) -> None:
        """Nothing is ever removed in the script."""

    def must_know(self, agent_id: bytes) -> None:
        assert agent_id in self._agents

    def check_fresh(self) -> None:
        pass


class _Signals:
    """Nobody waits; when somebody read is part of the script."""

    def waiting(self, agent_id: bytes) -> bool:
        return False

    def note_read(self, agent_id: bytes, now_ms: int) -> None:
        pass

    def last_read_at_ms(self, agent_id: bytes) -> int:
        return 0


class Script:
    """Runs against a store and remembers each state that was told to be durable."""

    def __init__(
        self,
        path: Path,
        recording: Recording,
        *,
        connect: Callable[..., Any],
        on_fatal: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._recording = recording
        self._path = path
        self._connect = connect
        self._on_fatal = on_fatal or self._failed
        self._observer: Any = None
        self.states: list[str] = []
        self._random = random.Random("powercut")
        self._keys = 0
        self._generations = dict.fromkeys(AGENTS, 1)
        self._mint = IdMint(now_ms=lambda: NOW_MS, getrandbits=random.Random("ids").getrandbits)

    def _told(self, _values: Sequence[Applied[Any]]) -> None:
        """The batch is durable, says the store: waiters and callers are told next. From here on a cut loses nothing."""
        self.states.append(state_of(self._observer))
        self._recording.add(Told(state=len(self.states) - 1))

    @staticmethod
    def _failed(error: BaseException) -> None:
        raise error

    async def run(self, rounds: int) -> None:
        """Run the script, closing the store and opening it again in the middle of it."""
        for first in (0, rounds // 2):
            async with self.open():
                for number in range(first, first + rounds // 2):
                    await self._round(number)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Have the store open for the length of the block."""
        store = SqliteStore(self._path, on_commit=self._told, on_fatal=self._on_fatal)
        await store.start()
        self._observer = self._connect(self._path)
        self._store = store
        self._ports = Ports(
            store=store, directory=_Directory(), signals=_Signals(), mint=self._mint, clock=SYSTEM_CLOCK
        )
        try:
            yield
        finally:
            self._observer.close()
            await store.close()

    # --- the parts of a round -------------------------------------------------------------------------------------

    async def _round(self, number: int) -> None:
        sender, recipient = self._random.sample(range(len(AGENTS)), 2)
        await self.send(sender, recipient, Kind.INFORMATION)
        requests = await asyncio.gather(
            *(self.send(sender, recipient, Kind.REQUEST) for _ in range(3)),
            *(self.send(recipient, sender, Kind.INFORMATION) for _ in range(2)),
        )
        await self._settle(sender)
        await self._claim(recipient, number)
        await self._read(recipient)
        answers = (self._reply(recipient, receipt.record.record_id) for receipt in requests[:2])
        await asyncio.gather(*answers, self._read(sender), self._note(number), return_exceptions=True)
        if number % 5 == 4:
            await self._live_again(recipient, number)

    def _caller(self, agent: int) -> Caller:
        return Caller(
            credential_id=AGENTS[agent],
            role=Role.AGENT,
            agent_id=AGENTS[agent],
            project_id=PROJECT,
            generation=self._generations[AGENTS[agent]],
            label="",
        )

    def _key(self) -> str:
        self._keys += 1
        return f"key-{self._keys}"

    def _body(self) -> str:
        return f"{self._keys}:" + "x" * self._random.choice(BODY_BYTES)

    async def send(self, sender: int, recipient: int, kind: Kind, *, key: str = "") -> admit.Receipt:
        """Admit a record under a new key, or under the one that is given."""
        completion = Completion.AUTOMATIC if kind is Kind.REQUEST else Completion.NONE
        command = admit.Command(
            kind=kind, target=str(recipient), body=self._body(), key=key or self._key(), completion=completion
        )
        return await admit.Admit(self._ports)(self._caller(sender), command)

    async def _settle(self, agent: int) -> None:
        command = settle_key.Command(
            epoch=_epoch_text(self._store.epoch),
            operation=Operation.SEND,
            key=self._key(),
            content=fingerprint(b"never sent"),
        )
        settled = await settle_key.SettleKey(self._ports)(self._caller(agent), command)
        assert settled.receipt is None

    async def _read(self, agent: int) -> None:
        use = receive.Receive(self._ports, Waits(SYSTEM_CLOCK))
        ack = ""
        for limit in (2, 3, 1):
            command = receive.Command(cursor="", ack_cursor=ack, limit=limit, timeout_ms=0, page_bytes=0)
            ack = (await use(self._caller(agent), command)).ack_cursor

    async def _reply(self, agent: int, request_id: bytes) -> None:
        command = reply.Command(request_id=request_id, status=ReplyStatus.DONE, body=self._body(), key=self._key())
        await reply.Reply(self._ports)(self._caller(agent), command)

    async def _claim(self, agent: int, number: int) -> None:
        kind = claim.ClaimKind.REQUEST if number % 2 else claim.ClaimKind.CONTEXT
        taken = await claim.TakeClaim(self._ports)(
            Caller(credential_id=DISPATCHER, role=Role.SERVICE, agent_id=None, project_id=None, generation=0, label=""),
            claim.Command(
                agent_id=AGENTS[agent],
                generation=self._generations[AGENTS[agent]],
                dispatcher=DISPATCHER,
                incarnation=1,
                kind=kind,
                high_water=0,
                term_ms=60_000,
                key=self._key(),
            ),
        )
        assert taken is not None
        token, generation = taken.claim.token, taken.claim.generation
        match number % 3:
            case 0:
                await claim.Release(self._ports)(token, generation, "nothing was written")
            case 1 if kind is claim.ClaimKind.REQUEST and number % 4 == 3:
                await self._turn(token, generation)
            case 1:
                said = Outcome.FAILED if kind is claim.ClaimKind.REQUEST else Outcome.VISIBLE
                await claim.Finish(self._ports)(token, generation, said, "script")
            case _:
                pass  # left standing: the next life turns it uncertain

    async def _turn(self, token: bytes, generation: int) -> None:
        """Let a turn take the work and end: what is on disk before its answer is."""
        turn = Turn(provider="script", session_id="session", turn_id=token.hex(), mode=Mode.START)
        await claim.Finish(self._ports)(token, generation, Outcome.ACCEPTED, "script", turn)
        told = ending(TurnOutcome.COMPLETED, self._body(), 0)
        await outcome.RecordOutcome(self._ports)(token, generation, turn, told, "script")

    async def _note(self, number: int) -> None:
        await self._store.submit(NotingReads(reads=[(AGENTS[0], NOW_MS + number)]))

    async def _live_again(self, agent: int, number: int) -> None:
        agent_id = AGENTS[agent]
        self._generations[agent_id] += 1
        await open_generation.OpenGeneration(self._ports)(agent_id, self._generations[agent_id])
        credential = Credential(
            credential_id=agent_id,
            token_sha256=hashlib.sha256(str(number).encode()).digest(),
            agent_id=agent_id,
            project_id=PROJECT,
            role=1,
            generation=self._generations[agent_id],
            label="",
            revision=number,
        )
        step = DirectoryStep(
            position=DirectoryPosition(epoch="0" * 36, revision=number),
            whole=number % 2 == 0,
            agents=[],
            credentials=[credential],
            removed_credentials=[],
        )
        await self._store.submit(step)


def _epoch_text(epoch: bytes) -> str:
    digits = epoch.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


async def reopened(path: Path) -> str:
    """Open what a cut left with the store itself, over the standard driver; return its whole state.

    Raises:
        AssertionError: the database is damaged.
        Refusal, sqlite3.Error: it cannot be opened.
    """
    store = SqliteStore(path, on_commit=lambda _values: None, on_fatal=lambda _error: None)
    await store.start()
    try:
        observer = sqlite3.connect(path)
        try:
            verdict = observer.execute("PRAGMA integrity_check").fetchall()
            assert verdict == [("ok",)], verdict[:3]
            return state_of(observer)
        finally:
            observer.close()
    finally:
        await store.close()


UNUSABLE: Final = (Refusal, sqlite3.Error, AssertionError)
