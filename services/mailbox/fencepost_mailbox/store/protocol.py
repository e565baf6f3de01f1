"""What any store of the mailbox does. Operations decide on what `Queries` answers and write through `Transaction`.

One operation is one savepoint inside one transaction (fencepost_kit.groupcommit). A lane is a project: its sequence
numbers grow in commit order, so that a reader never sees a later number before an earlier one. The embedded store has
a single writer and one counter for every lane; a store with several writers takes the lane's lock before it numbers
(ARCHITECTURE "Records").
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Generic, Protocol, TypeVar

from fencepost_kit.values import value
from fencepost_mailbox.domain.answers import Settled
from fencepost_mailbox.domain.bindings import Binding
from fencepost_mailbox.domain.claims import Claim, ClaimState
from fencepost_mailbox.domain.deletion import Tombstone
from fencepost_mailbox.domain.idempotency import KeyRow
from fencepost_mailbox.domain.values import Agent, Fact, Inbox, Operation, Record
from fencepost_mailbox.store.context.protocol import ContextQueries, ContextTransaction
from fencepost_mailbox.store.evidence.protocol import EvidenceQueries, EvidenceTransaction
from fencepost_mailbox.store.files.protocol import FileQueries, FileTransaction
from fencepost_mailbox.store.tasks.protocol import TaskQueries, TaskTransaction
from fencepost_mailbox.store.threads.protocol import ThreadQueries, ThreadTransaction

T = TypeVar("T")
TCo = TypeVar("TCo", covariant=True)


@value(frozen=True, kw_only=True, slots=True)
class Applied(Generic[T]):
    """What an operation answers, and whom its commit concerns."""

    value: T
    # Agents whose waits may end: something receivable is new to them.
    wakes: tuple[bytes, ...] = ()
    # Agents whose dispatcher may have something to carry.
    work: tuple[bytes, ...] = ()
    # Agents into whose conversation something was shown: their waits end so that their program reads it (M037 M105).
    injected: tuple[bytes, ...] = ()
    # Records that were exposed for the first time or answered by their recipient, as they were before; for metrics.
    exposed: tuple[Record, ...] = ()
    replied: tuple[Record, ...] = ()
    at_ms: int = 0


@value(frozen=True, kw_only=True, slots=True)
class Credential:
    """A credential in the mirror of the directory."""

    credential_id: bytes
    token_sha256: bytes
    agent_id: bytes | None
    project_id: bytes | None
    role: int
    generation: int
    label: str
    revision: int


@value(frozen=True, kw_only=True, slots=True)
class DirectoryPosition:
    """How far the mirror has followed."""

    epoch: str
    revision: int


class InvariantBroken(Exception):
    """A guarded write met another state than the one it was decided on: a bug, never a refusal."""


class Queries(Protocol):
    """What can be asked, inside a transaction or beside it."""

    @property
    def tasks(self) -> TaskQueries:
        """What can be asked of supervised tasks."""
        ...

    @property
    def context(self) -> ContextQueries:
        """What can be asked of shared context and project memory."""
        ...

    @property
    def files(self) -> FileQueries:
        """What can be asked of file reservations."""
        ...

    @property
    def threads(self) -> ThreadQueries:
        """What can be asked of threads and of words in records."""
        ...

    @property
    def evidence(self) -> EvidenceQueries:
        """What can be asked of evidence."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Let everything that is asked inside see one committed state. Never held over an await."""
        ...

    def record(self, record_id: bytes) -> Record | None:
        """Return the record, or None."""
        ...

    def page(self, recipient: bytes, places: Sequence[Inbox], after: int, limit: int) -> list[Record]:
        """Return at most `limit` records in these places of the recipient's inbox behind position `after`, in order."""
        ...

    def has_fresh(self, recipient: bytes) -> bool:
        """Tell whether receive without a cursor would show something."""
        ...

    def count_fresh(self, recipient: bytes, at_most: int) -> int:
        """Count what receive without a cursor would show, up to `at_most`."""
        ...

    def fresh_behind(self, recipient: bytes, after: int, limit: int) -> list[int]:
        """Return positions above `after` of what receive without a cursor would show, in order."""
        ...

    def open_requests(self, recipient: bytes, limit: int) -> list[Record]:
        """Return requests without an answer that are not new work any more (no longer pending), oldest first."""
        ...

    def received(self, recipient: bytes, before: int, limit: int) -> list[Record]:
        """Return records sent to an agent with a position below `before`, newest first."""
        ...

    def sent(self, sender: bytes, before: int, limit: int, *, besides: bytes) -> list[Record]:
        """Return records sent by an agent with a sequence below `before`, newest first, but none for `besides`."""
        ...

    def facts(self, record_id: bytes, limit: int) -> list[Fact]:
        """Return the newest `limit` facts of a record, in commit order."""
        ...

    def fact_count(self, record_id: bytes) -> int:
        """Count the facts of a record."""
        ...

    def admissions(self, after: int, limit: int) -> list[Record]:
        """Return records with a sequence above `after`, in commit order."""
        ...

    def facts_behind(self, after: int, limit: int) -> list[Fact]:
        """Return facts of any record with a sequence above `after`, in commit order."""
        ...

    def settled(self, request_id: bytes) -> Settled | None:
        """Return the reply that a request has, or None."""
        ...

    def key(self, caller: bytes, operation: Operation, key: bytes) -> KeyRow | None:
        """Return what a key stands for, or None."""
        ...

    def claim(self, token: bytes) -> Claim | None:
        """Return the claim under a token, or None."""
        ...

    def claim_of_record(self, record_id: bytes, token: bytes) -> Claim | None:
        """Return the claim under a token where it is on this record, or None."""
        ...

    def binding(self, token: bytes) -> Binding | None:
        """Return the turn that is bound under a claim's token, or None."""
        ...

    def unsettled_bindings(self, dispatcher: bytes, after: int, limit: int) -> list[Binding]:
        """Return bindings of a dispatcher without an outcome with a sequence above `after`, oldest first.

        Uncertain ones only where their request has no answer.
        """
        ...

    def unpublished(self, limit: int, *, requester: bytes | None = None) -> list[Binding]:
        """Return bindings whose recorded outcome is to be published, of one requester or of all."""
        ...

    def has_unpublished(self, requester: bytes) -> bool:
        """Tell whether a recorded outcome is to be published to a requester. Asked with every receive."""
        ...

    def incarnation(self, dispatcher: bytes) -> int:
        """Return the newest start of a dispatcher; 0 for none."""
        ...

    def floor(self, agent_id: bytes) -> int:
        """Return the lowest generation that still gets new authority; 1 where none was opened."""
        ...

    def deleted(self, agent_id: bytes) -> bool:
        """Tell whether the agent's mail was closed: it is being deleted, or was."""
        ...

    def unfinished_deletions(self, limit: int) -> list[Tombstone]:
        """Return deletions that sessions has not been told the end of."""
        ...

    def last_read_at_ms(self, agent_id: bytes) -> int:
        """Return when the agent last read its mailbox; 0 for never."""
        ...

    def agents_with_work(self, after: bytes, limit: int) -> list[tuple[bytes, bool, bool]]:
        """Return (agent, has pending requests, has stored context) of the next `limit` agents behind `after`.

        Agents that were ever sent something, or for whom a notification of a task stands. Those without work are
        among them: what is bounded is how much is looked at.
        """
        ...

    def work_of(self, agent_id: bytes) -> tuple[bool, bool]:
        """Return whether the agent has pending requests and stored context."""
        ...

    def open_wakes(self, agent_id: bytes) -> list[Record]:
        """Return an agent's wake-ups that are not over: one, and perhaps one more that was told to its turn."""
        ...

    def wake_written_at(self, agent_id: bytes, newer: int) -> int | None:
        """Return when the wake-up was written behind which an agent has so many newer ones; None where it has not."""
        ...

    def claims_expired(self, now_ms: int) -> bool:
        """Tell whether a held claim has stood for its whole term."""
        ...

    def newest_sequence(self) -> int:
        """Return the newest committed sequence."""
        ...


class Transaction(Queries, Protocol):
    """What an operation may write. Every write is guarded; a guard that misses raises InvariantBroken."""

    @property
    def tasks(self) -> TaskTransaction:
        """What an operation may write of supervised tasks."""
        ...

    @property
    def context(self) -> ContextTransaction:
        """What an operation may write of shared context and project memory."""
        ...

    @property
    def files(self) -> FileTransaction:
        """What an operation may write of file reservations."""
        ...

    @property
    def threads(self) -> ThreadTransaction:
        """What an operation may write of the index of words. Attributes are written and erased with their record."""
        ...

    @property
    def evidence(self) -> EvidenceTransaction:
        """What an operation may write of evidence."""
        ...

    def next_sequence(self, project_id: bytes) -> int:
        """Return the next number of the project's lane."""
        ...

    def take_key(
        self,
        *,
        caller: bytes,
        operation: Operation,
        key: bytes,
        fingerprint: bytes,
        record_id: bytes | None,
        now_ms: int,
    ) -> KeyRow | None:
        """Take a key for this content and return None, or return what it stands for already."""
        ...

    def insert(self, record: Record) -> None:
        """Write a new record."""
        ...

    def move(self, before: Record, after: Record) -> None:
        """Write the state of `after` over that of `before`.

        Guarded by id, delivery, answer, token and generation of `before`.
        """
        ...

    def reword(self, wake: Record, body: bytes) -> None:
        """Write other words for a wake-up that nobody was shown."""
        ...

    def add_fact(self, fact: Fact) -> None:
        """Append a fact."""
        ...

    def oldest_pending_request(self, recipient: bytes) -> Record | None:
        """Return the oldest request or prompt that nobody has been shown, or None."""
        ...

    def oldest_stored_context(self, recipient: bytes, high_water: int) -> Record | None:
        """Return the oldest context that nobody has been shown, with a position of at most `high_water` (0.

        Any), or None.
        """
        ...

    def acknowledgeable(self, recipient: bytes, up_to: int, limit: int) -> list[Record]:
        """Return unacknowledged records up to a position that were exposed or carried into the conversation."""
        ...

    def insert_claim(self, claim: Claim) -> None:
        """Write a new claim."""
        ...

    def set_claim_state(self, claim: Claim, state: ClaimState) -> None:
        """Change a claim's state; guarded by token, generation and the state that it had."""
        ...

    def held_claims(
        self, *, recipient: bytes | None = None, dispatcher: bytes | None = None, expired_at_ms: int | None = None
    ) -> list[Claim]:
        """Return held claims of one recipient, one dispatcher, or those that expired by a time."""
        ...

    def accepted_open(self, *, recipient: bytes | None = None, dispatcher: bytes | None = None) -> list[Claim]:
        """Return accepted claims on requests without an answer, of one recipient or one dispatcher."""
        ...

    def insert_binding(self, binding: Binding) -> None:
        """Write a new binding."""
        ...

    def move_binding(self, before: Binding, after: Binding) -> None:
        """Write the state of `after` over that of `before`; guarded by sequence, token, generation and state."""
        ...

    def bound(self, *, recipient: bytes | None = None, dispatcher: bytes | None = None) -> list[Binding]:
        """Return bindings whose turn runs as far as is known, of one recipient or one dispatcher."""
        ...

    def most_hops(self, agent_id: bytes) -> int:
        """Return the most hops of the requests that an agent works on; -1 where it works on none."""
        ...

    def own_copy(self) -> None:
        """Note that a restored copy has become a store of its own."""
        ...

    def extend_held_claims(self, now_ms: int) -> int:
        """Give every held claim at least its whole term from now.

        For the start after a stop. Returns how many were extended.
        """
        ...

    def set_incarnation(self, dispatcher: bytes, incarnation: int) -> None:
        """Write a newer start."""
        ...

    def raise_floor(self, agent_id: bytes, generation: int) -> None:
        """Write a higher floor."""
        ...

    def touch_reader(self, agent_id: bytes, now_ms: int) -> None:
        """Write when an agent read its mailbox."""
        ...

    def open_of_recipient(self, recipient: bytes, limit: int) -> list[Record]:
        """Return up to `limit` open requests that an agent was sent, in order."""
        ...

    def open_of_sender(self, sender: bytes, limit: int) -> list[Record]:
        """Return up to `limit` open requests that an agent sent."""
        ...

    def put_tombstone(self, tombstone: Tombstone) -> None:
        """Write what is left of a deleted agent, or how far its deletion has come now."""
        ...

    def erase_received(self, recipient: bytes, limit: int) -> int:
        """Remove up to `limit` records that an agent was sent, each with its facts and claims; return how many."""
        ...

    def erase_keys(self, caller: bytes, limit: int) -> int:
        """Remove up to `limit` keys of a caller; return how many."""
        ...

    def erase_lives(self, agent_id: bytes) -> None:
        """Remove an agent's floor, and when it last read."""
        ...

    def put_agents(self, agents: Sequence[Agent]) -> None:
        """Write agents of the directory mirror."""
        ...

    def put_credentials(self, credentials: Sequence[Credential]) -> None:
        """Write credentials of the directory mirror."""
        ...

    def drop_credentials(self, credential_ids: Sequence[bytes]) -> None:
        """Remove credentials from the directory mirror."""
        ...

    def drop_agents(self, agent_ids: Sequence[bytes]) -> None:
        """Remove agents from the directory mirror."""
        ...

    def clear_directory(self) -> None:
        """Empty the directory mirror before a whole one is written in the same transaction."""
        ...

    def set_directory_position(self, position: DirectoryPosition) -> None:
        """Write how far the mirror has followed."""
        ...


class Mutation(Protocol[TCo]):
    """An operation of the mailbox."""

    def apply(self, tx: Transaction, /) -> TCo:
        """See fencepost_kit.groupcommit.Operation."""
        ...


class Store(Protocol):
    """A running store."""

    @property
    def epoch(self) -> bytes:
        """UUID of this store; a restored one gets another."""
        ...

    @property
    def cursor_secret(self) -> bytes:
        """Key of the cursors' MAC."""
        ...

    @property
    def schema_version(self) -> int:
        """Number of the newest applied migration."""
        ...

    @property
    def read(self) -> Queries:
        """Committed state, from a connection that cannot write. Used on the event loop alone."""
        ...

    async def submit(self, operation: Mutation[Applied[T]]) -> T:
        """Commit an operation and return its value once it is durable; see fencepost_kit.groupcommit."""
        ...

    def tombstones(self) -> list[Tombstone]:
        """Return what is left of every deleted agent."""
        ...

    def directory(self) -> tuple[DirectoryPosition, list[Agent], list[Credential]]:
        """Return the persisted mirror of the directory."""
        ...
