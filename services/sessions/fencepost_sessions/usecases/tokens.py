"""Handing a new token to its file, so that a crash at any point leaves the old token valid in place, or the new one.

The order is: write the token beside its place and sync it; commit the row with its hash; move it to its place and
sync the folder. What a crash left beside a place is finished where its hash is in the directory, and removed where it
is not.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Protocol, TypeVar

from fencepost_kit import faults, logs
from fencepost_kit.clock import Clock
from fencepost_kit.refusal import Refusal
from fencepost_sessions.domain.credentials import HomeCredential, Minted
from fencepost_sessions.domain.identifiers import uuid_text
from fencepost_sessions.store.protocol import Reading, Store, Writing

BEFORE_COMMIT: Final = faults.register(
    "sessions.credential.offered", "a new token is on disk beside its place, its row is not"
)
BEFORE_RENAME: Final = faults.register(
    "sessions.credential.committed", "the row of a new token is durable, its file not in place"
)
AFTER_RENAME: Final = faults.register(
    "sessions.credential.placed", "a new token is in its place, the caller not answered"
)

# Where a token lies: with an agent, by its id, or with the home.
Place = bytes | HomeCredential

T = TypeVar("T")
_log: Final = logs.get(__name__)


class CredentialFiles(Protocol):
    """The files of the home that hold tokens, 0600. Nothing here returns a token: only its SHA-256."""

    def path(self, place: Place) -> str:
        """Return where the token of a place lies."""
        ...

    async def offer(self, place: Place, token: str) -> None:
        """Write a token beside its place, durably, over whatever lies there."""
        ...

    async def publish(self, place: Place) -> None:
        """Move the token beside a place into it, durably and at once."""
        ...

    async def withdraw(self, place: Place) -> None:
        """Remove what lies beside a place; and an agent's folder if nothing else is in it."""
        ...

    async def remove(self, place: Place) -> None:
        """Remove the token in a place and what lies beside it, durably; an agent's folder too if it is empty then."""
        ...

    async def offered(self, place: Place) -> bytes | None:
        """Return the hash of what lies beside a place: None for nothing, empty for something that is no token."""
        ...

    async def current(self, place: Place) -> bytes | None:
        """Return the hash of the token in a place; None where there is none that can be used."""
        ...

    async def offered_agents(self) -> Iterable[bytes]:
        """Return the agents beside whose place something lies."""
        ...


class Granted(Protocol):
    """What an operation that grants a credential answers."""

    @property
    def granted(self) -> bool:
        """True where this run wrote the new credential's row."""
        ...


GrantedT = TypeVar("GrantedT", bound=Granted)
GrantedCo = TypeVar("GrantedCo", bound=Granted, covariant=True)


class Granting(Protocol[GrantedCo]):
    """An operation that grants a credential."""

    def rehearse(self, reading: Reading, /) -> GrantedCo | None:
        """Return the answer where nothing has to be written; None where apply() has to run.

        Raises:
            Refusal: apply() would refuse now.
        """
        ...

    def apply(self, tx: Writing, /) -> GrantedCo:
        """Read, decide and write."""
        ...


class Tokens:
    """Mints tokens and hands them over, one at a time for each place."""

    def __init__(
        self,
        *,
        store: Store,
        files: CredentialFiles,
        clock: Clock,
        new_id: Callable[[], bytes],
        mint: Callable[[], str],
        fingerprint: Callable[[str], bytes],
    ) -> None:
        self.files: Final = files
        self._store = store
        self._clock = clock
        self._new_id = new_id
        self._mint = mint
        self._fingerprint = fingerprint
        self._locks: weakref.WeakValueDictionary[Place, asyncio.Lock] = weakref.WeakValueDictionary()
        self._begun: set[asyncio.Task[Any]] = set()

    async def grant(self, place: Place, operation_of: Callable[[Minted], Granting[GrantedT]]) -> GrantedT:
        """Commit an operation that grants a new credential, and put its token in place.

        Once begun it is carried to its end also when the caller leaves: a row without its file would lock the agent
        out.

        Raises:
            Refusal: the operation's own, or the store's; nothing is written and the old token stays.
            OutcomeUnknown: the disk failed at COMMIT; the next start settles what lies beside the place.
            OSError: a file could not be written or moved. After the commit the same call, or the next start, finishes
                it.
        """
        return await self._carried(self._grant(place, operation_of))

    async def settle(self, place: Place) -> None:
        """Finish or remove what a failure left beside a place."""
        await self._carried(self._settle_alone(place))

    async def retire(self, place: Place) -> None:
        """Remove a token whose credentials are gone from the directory. Harmless where nothing lies there.

        A file that cannot be removed is worthless, so it stops nobody: the row's absence is what revokes.
        """
        await self._carried(self._retire(place))

    async def _retire(self, place: Place) -> None:
        async with self._alone(place):
            try:
                await self.files.remove(place)
            except OSError as error:
                _log.exception("retired_credential_stays", error)

    async def settle_agents(self) -> None:
        """Finish or remove what failures left beside the places of agents.

        An agent whose folder cannot be read or written keeps nobody else from working: its next grant tries again.
        """
        for agent_id in await self.files.offered_agents():
            try:
                await self.settle(agent_id)
            except OSError as error:
                _log.exception("credential_not_settled", error, agent_id=uuid_text(agent_id))

    async def join(self) -> None:
        """Return once everything that was begun has ended."""
        while self._begun:
            await asyncio.wait(self._begun)

    async def _grant(self, place: Place, operation_of: Callable[[Minted], Granting[GrantedT]]) -> GrantedT:
        token = self._mint()
        minted = Minted(
            credential_id=self._new_id(), token_sha256=self._fingerprint(token), now_ms=self._clock.now_ms()
        )
        operation = operation_of(minted)
        async with self._alone(place):
            await self._settle(place)
            earlier = self._store.read(operation.rehearse)
            if earlier is not None:
                return earlier
            await self.files.offer(place, token)
            if faults.ARMED:
                faults.hit(BEFORE_COMMIT)
            try:
                answer = await self._store.commit(operation)
            except Refusal:
                # Only a refusal proves that there is no row: after any other failure the token stays for the next
                # settling.
                await self.files.withdraw(place)
                raise
            if not answer.granted:
                await self._withdraw_quietly(place)
                return answer
            if faults.ARMED:
                faults.hit(BEFORE_RENAME)
            await self.files.publish(place)
            if faults.ARMED:
                faults.hit(AFTER_RENAME)
            _log.info("credential_granted", credential_id=uuid_text(minted.credential_id))
            return answer

    async def _withdraw_quietly(self, place: Place) -> None:
        # What stays is worthless: its hash has no row, and the next settling removes it. The operation's answer counts.
        try:
            await self.files.withdraw(place)
        except OSError as error:
            _log.exception("offered_credential_stays", error)

    async def _settle_alone(self, place: Place) -> None:
        async with self._alone(place):
            await self._settle(place)

    async def _settle(self, place: Place) -> None:
        offered = await self.files.offered(place)
        if offered is None:
            return
        known = self._store.read(lambda reading: reading.credential_of_token(offered)) if offered else None
        if known is None:
            await self.files.withdraw(place)
            _log.warning("offered_credential_removed")
        else:
            await self.files.publish(place)
            _log.warning("offered_credential_placed", credential_id=uuid_text(known.credential_id))

    def _alone(self, place: Place) -> asyncio.Lock:
        # Held by whoever waits for it, gone with the last of them: no table of every agent ever seen.
        lock = self._locks.get(place)
        if lock is None:
            lock = self._locks[place] = asyncio.Lock()
        return lock

    async def _carried(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.get_running_loop().create_task(work)
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)
        return await asyncio.shield(task)
