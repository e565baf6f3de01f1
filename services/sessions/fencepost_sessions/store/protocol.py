"""What the use cases ask of a store. A backend that passes tests/contract/sessions can stand behind them.

A question is answered from one consistent state. An operation is one transaction: it decides on what it reads there
and either writes everything or refuses and writes nothing; nobody else writes in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from fencepost_sessions.domain.agents import Agent, Tombstone
from fencepost_sessions.domain.credentials import Credential
from fencepost_sessions.domain.directory import Changes, Directory, Removal
from fencepost_sessions.domain.idempotency import FirstAnswer, Key
from fencepost_sessions.domain.leases import Lease
from fencepost_sessions.domain.names import ReleasedName
from fencepost_sessions.domain.paging import NamePosition, NumberPosition
from fencepost_sessions.domain.projects import Project
from fencepost_sessions.domain.roles import Role
from fencepost_sessions.domain.status import Status

T = TypeVar("T")
TCo = TypeVar("TCo", covariant=True)


class Reading(Protocol):
    """One consistent state of the directory."""

    def directory(self) -> Directory:
        """Return epoch, revision and floor."""
        ...

    def project(self, project_id: bytes) -> Project | None:
        """Return a project."""
        ...

    def project_at(self, location: str) -> Project | None:
        """Return the project of a location."""
        ...

    def projects(self, *, after: NumberPosition, rows: int) -> Sequence[Project]:
        """Return up to `rows` projects, oldest first."""
        ...

    def project_count(self) -> int:
        """Return how many projects stand."""
        ...

    def agent(self, agent_id: bytes) -> Agent | None:
        """Return an agent."""
        ...

    def tombstone(self, agent_id: bytes) -> Tombstone | None:
        """Return what is left of a deleted agent."""
        ...

    def agents_of_key(self, key: str, *, project_id: bytes | None, rows: int) -> Sequence[Agent]:
        """Return up to `rows` agents whose name has this key: of one project, or of all."""
        ...

    def agents(self, *, project_id: bytes | None, after: NamePosition, rows: int) -> Sequence[Agent]:
        """Return up to `rows` agents of one project or of all, by name key, then id."""
        ...

    def agents_after_id(self, agent_id: bytes, *, rows: int) -> Sequence[Agent]:
        """Return up to `rows` agents by id: the order of a snapshot, which no change of an agent disturbs."""
        ...

    def agent_of_conversation(self, conversation_id: str) -> Agent | None:
        """Return the agent that is bound to a conversation; None also for the empty one."""
        ...

    def agent_count(self, project_id: bytes) -> int:
        """Return how many agents a project holds."""
        ...

    def released_name(self, project_id: bytes, key: str) -> ReleasedName | None:
        """Return when a name of a project was last given up."""
        ...

    def credential(self, credential_id: bytes) -> Credential | None:
        """Return a credential."""
        ...

    def credential_of_token(self, token_sha256: bytes) -> Credential | None:
        """Return the credential of a token by the token's SHA-256."""
        ...

    def credentials_of_agent(self, agent_id: bytes) -> Sequence[Credential]:
        """Return every credential of an agent: at most OLD_CREDENTIALS_KEPT_MAX and the current one."""
        ...

    def credentials_of_home(self, role: Role, label: str) -> Sequence[Credential]:
        """Return the operator's or a service's credentials."""
        ...

    def credentials(self, *, agent_id: bytes | None, after: NumberPosition, rows: int) -> Sequence[Credential]:
        """Return up to `rows` credentials of one agent or of all, oldest first."""
        ...

    def credentials_after_id(self, credential_id: bytes, *, rows: int) -> Sequence[Credential]:
        """Return up to `rows` credentials by id: the order of a snapshot."""
        ...

    def removal(self, credential_id: bytes) -> Removal | None:
        """Return when a credential was removed, while that is kept."""
        ...

    def changes_after(self, revision: int, *, rows: int) -> Changes:
        """Return up to `rows` rows of each kind that changed after `revision`, in revision order."""
        ...

    def lease(self, agent_id: bytes) -> Lease | None:
        """Return the last lease of an agent, which may have ended."""
        ...

    def lease_of_acquisition(self, acquisition_id: bytes) -> Lease | None:
        """Return the lease of an acquisition, while it is its agent's last."""
        ...

    def leases_of_conversation(self, conversation_id: str) -> Sequence[Lease]:
        """Return the leases over a conversation that have not ended; they may have expired."""
        ...

    def leases_standing(self, running_ms: int, *, rows: int) -> Sequence[Lease]:
        """Return up to `rows` leases that have not ended and expire after `running_ms`, oldest first."""
        ...

    def status(self, agent_id: bytes) -> Status | None:
        """Return the last report of an agent's runtime."""
        ...

    def observations(
        self, *, project_id: bytes | None, after: NamePosition, rows: int
    ) -> Mapping[bytes, tuple[Status, Lease | None]]:
        """Return the last reports, with the last leases, of the agents that agents() answers for the same place."""
        ...

    def first_answer(self, key: Key) -> FirstAnswer | None:
        """Return what the first call with this key, scope and operation was answered."""
        ...


class Writing(Reading, Protocol):
    """The one open transaction that may write. Every write checks that it changed exactly the rows it meant."""

    def next_revision(self) -> int:
        """Advance the directory by one revision and return it."""
        ...

    def insert_project(self, project: Project) -> None:
        """Add a project."""
        ...

    def update_project(self, project: Project) -> None:
        """Replace what is set of a project."""
        ...

    def insert_agent(self, agent: Agent) -> None:
        """Add an agent."""
        ...

    def update_agent(self, before: Agent, after: Agent) -> None:
        """Replace an agent that is still as it was read."""
        ...

    def bury_agent(self, agent: Agent, tombstone: Tombstone) -> None:
        """Put a tombstone in place of an agent that is still as it was read and has no credential.

        Its lease and its last report go with it.
        """
        ...

    def put_lease(self, before: Lease | None, after: Lease) -> None:
        """Put an agent's lease in place of its last one, which is still as it was read; None where it had none."""
        ...

    def end_leases_until(self, running_ms: int) -> int:
        """End every lease that has expired at this time of leases: no start revives it. Return how many."""
        ...

    def restart_leases(self, running_ms: int) -> int:
        """Give every lease that has not ended its whole term from this time of leases on; return how many."""
        ...

    def put_status(self, agent_id: bytes, before: Status | None, after: Status) -> None:
        """Put a report in place of an agent's last one, which is still as it was read; None where it had none."""
        ...

    def put_released_name(self, project_id: bytes, released: ReleasedName) -> None:
        """Note that a name was given up."""
        ...

    def drop_released_name(self, project_id: bytes, key: str) -> None:
        """Forget that a name was given up, where it was."""
        ...

    def drop_released_names_until(self, released_at_ms: int) -> None:
        """Forget every name given up at or before this time."""
        ...

    def restart_quarantines_after(self, now_ms: int) -> int:
        """Make names that seem to have been given up after `now_ms` given up at `now_ms`; return how many."""
        ...

    def insert_credential(self, credential: Credential) -> None:
        """Add a credential."""
        ...

    def follow_role(self, agent: Agent) -> None:
        """Give every credential of an agent the agent's role, in the agent's revision."""
        ...

    def remove_credentials(self, credentials: Sequence[Credential], *, revision: int) -> None:
        """Remove credentials and note their removal.

        Removals beyond REMOVALS_KEPT_MAX are forgotten, the oldest first, and the floor rises to the last of them.
        """
        ...

    def remember(self, key: Key, answer: Mapping[str, object], *, now_ms: int) -> None:
        """Keep the answer of a key; drop a few keys older than IDEMPOTENCY_KEPT_MS."""
        ...


class Operation(Protocol[TCo]):
    """One change of the directory: pure, given the ids and the time that it carries."""

    def apply(self, tx: Writing, /) -> TCo:
        """Read, decide and write. May run again after the whole batch was rolled back.

        Raises:
            Refusal: nothing of this operation is written.
        """
        ...


class Store(Protocol):
    """The directory of one home."""

    @property
    def schema_version(self) -> int:
        """Number of the newest applied migration."""
        ...

    def read(self, question: Callable[[Reading], T]) -> T:
        """Answer a question from one consistent, durable state."""
        ...

    async def commit(self, operation: Operation[T]) -> T:
        """Run an operation and return its value once it is durable.

        Raises:
            Refusal: the operation's own; Overloaded or StorageError where it never became durable. Nothing is written.
            NotCommitted: a mistake in the operation; nothing is written.
            OutcomeUnknown: the disk failed at COMMIT; nobody knows, and the process ends.
        """
        ...
