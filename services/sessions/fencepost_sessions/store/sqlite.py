"""The directory in SQLite: one writer behind group commit, one reader on the event loop.

The reader's answers are as durable as the writer's: a reader sees only what was committed, and a commit returns only
once it is on disk. Reads are short (a point, or a page of at most PAGE_ROWS_MAX rows) and end before they return: no
snapshot is held.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from fencepost_kit import faults, logs
from fencepost_kit.groupcommit import GroupCommit, NotCommitted
from fencepost_kit.sqlite import SqliteDatabase, SqliteWriter, is_copy, load_migrations
from fencepost_sessions.domain.agents import Agent, AgentState, Tombstone
from fencepost_sessions.domain.credentials import Credential
from fencepost_sessions.domain.directory import Changes, Directory, Removal
from fencepost_sessions.domain.idempotency import FirstAnswer, Key
from fencepost_sessions.domain.launch import NO_LAUNCH, Desired, launch_of_words, words_of_launch
from fencepost_sessions.domain.leases import Lease, LeaseEnd, LeaseKind
from fencepost_sessions.domain.limits import IDEMPOTENCY_DROPPED_ROWS_MAX, IDEMPOTENCY_KEPT_MS, REMOVALS_KEPT_MAX
from fencepost_sessions.domain.names import ReleasedName
from fencepost_sessions.domain.paging import NamePosition, NumberPosition
from fencepost_sessions.domain.projects import Project, ProjectKind
from fencepost_sessions.domain.refusals import StorageError
from fencepost_sessions.domain.roles import Role
from fencepost_sessions.domain.status import Evidence, Observed, Status
from fencepost_sessions.store import sqlite_statements
from fencepost_sessions.store.protocol import Operation, Reading

MIGRATIONS_PACKAGE: Final = "fencepost_sessions.store.migrations"

for _moment in ("begin.after", "commit.before", "commit.after", "answer.before"):
    faults.register(f"sessions.{_moment}", f"the writer of the directory, {_moment.replace('.', ': ')}")

T = TypeVar("T")
Row = tuple[Any, ...]
_NO_LAUNCH_JSON: Final = "{}"
_STATUS_COLUMNS: Final = 9

_log: Final = logs.get(__name__)


class InvariantBroken(Exception):
    """A write did not touch the rows that the decision rested on: somebody else wrote, or the code is wrong."""


_STATEMENTS: Final[Mapping[str, str]] = {
    name: text for name, text in vars(sqlite_statements).items() if name.isupper() and isinstance(text, str)
}


def _execute(cursor: sqlite3.Cursor, name: str, parameters: Mapping[str, object]) -> sqlite3.Cursor:
    return cursor.execute(_STATEMENTS[name], parameters)


def _project(row: Row) -> Project:
    number, project_id, kind, location, name, created_at_ms, tools_profile = row
    return Project(
        project_id=project_id,
        number=number,
        kind=ProjectKind(kind),
        location=location,
        name=name,
        created_at_ms=created_at_ms,
        tools_profile=tools_profile,
    )


def _agent(row: Row) -> Agent:
    agent_id, project_id, name, name_key, role, provider, workspace, generation, created_at_ms, revision, *more = row
    state, desired, launch, conversation_id = more
    return Agent(
        agent_id=agent_id,
        project_id=project_id,
        name=name,
        name_key=name_key,
        role=Role(role),
        provider=provider,
        workspace=workspace,
        generation=generation,
        created_at_ms=created_at_ms,
        revision=revision,
        state=AgentState(state),
        desired=Desired(desired),
        launch=NO_LAUNCH if launch == _NO_LAUNCH_JSON else launch_of_words(json.loads(launch)),
        conversation_id=conversation_id,
    )


def _lease(row: Row) -> Lease:
    agent_id, acquisition_id, conversation_id, kind, holder, generation, fence, term_ms, expires, acquired, ended = row
    return Lease(
        agent_id=agent_id,
        acquisition_id=acquisition_id,
        conversation_id=conversation_id,
        kind=LeaseKind(kind),
        holder=holder,
        generation=generation,
        fence=fence,
        term_ms=term_ms,
        expires_at_ms=expires,
        acquired_at_ms=acquired,
        end=LeaseEnd(ended),
    )


def _status(row: Row) -> Status:
    _agent_id, state, evidence, detail, turn_id, observed_at_ms, generation, sequence, acquisition_id = row
    return Status(
        state=Observed(state),
        evidence=Evidence(evidence),
        detail=detail,
        turn_id=turn_id,
        observed_at_ms=observed_at_ms,
        generation=generation,
        sequence=sequence,
        acquisition_id=acquisition_id,
    )


def _tombstone(row: Row) -> Tombstone:
    agent_id, project_id, deleted_at_ms, revision = row
    return Tombstone(agent_id=agent_id, project_id=project_id, deleted_at_ms=deleted_at_ms, revision=revision)


def _credential(row: Row) -> Credential:
    credential_id, agent_id, project_id, role, generation, token, created_at_ms, appeared, revision, label = row
    return Credential(
        credential_id=credential_id,
        agent_id=agent_id,
        project_id=project_id,
        role=Role(role),
        generation=generation,
        token_sha256=token,
        created_at_ms=created_at_ms,
        appeared_revision=appeared,
        revision=revision,
        label=label,
    )


def _removal(row: Row) -> Removal:
    credential_id, revision = row
    return Removal(credential_id=credential_id, revision=revision)


class SqliteReading:
    """Reading over one cursor inside one transaction."""

    __slots__ = ("_cursor",)

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor

    def directory(self) -> Directory:
        """Return epoch, revision and floor."""
        epoch, revision, floor = self._rows("DIRECTORY_READ")[0]
        return Directory(epoch=epoch, revision=revision, floor=floor)

    def project(self, project_id: bytes) -> Project | None:
        """Return a project."""
        return self._one("PROJECT_BY_ID", _project, w_project_id=project_id)

    def project_at(self, location: str) -> Project | None:
        """Return the project of a location."""
        return self._one("PROJECT_BY_LOCATION", _project, w_location=location)

    def projects(self, *, after: NumberPosition, rows: int) -> Sequence[Project]:
        """Return up to `rows` projects, oldest first."""
        return self._all("PROJECT_PAGE", _project, after_number=after.number, rows=rows)

    def project_count(self) -> int:
        """Return how many projects stand."""
        return int(self._rows("PROJECT_COUNT")[0][0])

    def agent(self, agent_id: bytes) -> Agent | None:
        """Return an agent."""
        return self._one("AGENT_BY_ID", _agent, w_agent_id=agent_id)

    def tombstone(self, agent_id: bytes) -> Tombstone | None:
        """Return what is left of a deleted agent."""
        return self._one("TOMBSTONE_BY_ID", _tombstone, w_agent_id=agent_id)

    def agents_of_key(self, key: str, *, project_id: bytes | None, rows: int) -> Sequence[Agent]:
        """Return up to `rows` agents whose name has this key: of one project, or of all."""
        if project_id is None:
            return self._all("AGENT_BY_KEY", _agent, w_name_key=key, rows=rows)
        return self._all("AGENT_BY_KEY_IN_PROJECT", _agent, w_project_id=project_id, w_name_key=key, rows=rows)

    def agents(self, *, project_id: bytes | None, after: NamePosition, rows: int) -> Sequence[Agent]:
        """Return up to `rows` agents of one project or of all, by name key, then id."""
        place = {"after_key": after.key, "after_id": after.row_id, "rows": rows}
        if project_id is None:
            return self._all("AGENT_PAGE", _agent, **place)
        return self._all("AGENT_PAGE_OF_PROJECT", _agent, w_project_id=project_id, **place)

    def agents_after_id(self, agent_id: bytes, *, rows: int) -> Sequence[Agent]:
        """Return up to `rows` agents by id."""
        return self._all("AGENT_AFTER_ID", _agent, after_id=agent_id, rows=rows)

    def agent_of_conversation(self, conversation_id: str) -> Agent | None:
        """Return the agent that is bound to a conversation; None also for the empty one."""
        return self._one("AGENT_OF_CONVERSATION", _agent, w_conversation_id=conversation_id)

    def agent_count(self, project_id: bytes) -> int:
        """Return how many agents a project holds."""
        return int(self._rows("AGENT_COUNT", w_project_id=project_id)[0][0])

    def released_name(self, project_id: bytes, key: str) -> ReleasedName | None:
        """Return when a name of a project was last given up."""
        for _, name_key, agent_id, released_at_ms in self._rows(
            "RELEASED_BY_KEY", w_project_id=project_id, w_name_key=key
        ):
            return ReleasedName(key=name_key, agent_id=agent_id, released_at_ms=released_at_ms)
        return None

    def credential(self, credential_id: bytes) -> Credential | None:
        """Return a credential."""
        return self._one("CREDENTIAL_BY_ID", _credential, w_credential_id=credential_id)

    def credential_of_token(self, token_sha256: bytes) -> Credential | None:
        """Return the credential of a token by the token's SHA-256."""
        return self._one("CREDENTIAL_BY_TOKEN", _credential, w_token_sha256=token_sha256)

    def credentials_of_agent(self, agent_id: bytes) -> Sequence[Credential]:
        """Return every credential of an agent."""
        return self._all("CREDENTIAL_OF_AGENT", _credential, w_agent_id=agent_id)

    def credentials_of_home(self, role: Role, label: str) -> Sequence[Credential]:
        """Return the operator's or a service's credentials."""
        return self._all("CREDENTIAL_OF_HOME", _credential, w_role=int(role), w_label=label)

    def credentials(self, *, agent_id: bytes | None, after: NumberPosition, rows: int) -> Sequence[Credential]:
        """Return up to `rows` credentials of one agent or of all, oldest first."""
        place = {"after_number": after.number, "after_id": after.row_id, "rows": rows}
        if agent_id is None:
            return self._all("CREDENTIAL_PAGE", _credential, **place)
        return self._all("CREDENTIAL_PAGE_OF_AGENT", _credential, w_agent_id=agent_id, **place)

    def credentials_after_id(self, credential_id: bytes, *, rows: int) -> Sequence[Credential]:
        """Return up to `rows` credentials by id."""
        return self._all("CREDENTIAL_AFTER_ID", _credential, after_id=credential_id, rows=rows)

    def removal(self, credential_id: bytes) -> Removal | None:
        """Return when a credential was removed, while that is kept."""
        return self._one("REMOVAL_BY_ID", _removal, w_credential_id=credential_id)

    def changes_after(self, revision: int, *, rows: int) -> Changes:
        """Return up to `rows` rows of each kind that changed after `revision`, in revision order."""
        return Changes(
            agents=self._all("AGENT_AFTER_REVISION", _agent, after=revision, rows=rows),
            credentials=self._all("CREDENTIAL_AFTER_REVISION", _credential, after=revision, rows=rows),
            removals=self._all("REMOVAL_AFTER_REVISION", _removal, after=revision, rows=rows),
            tombstones=self._all("TOMBSTONE_AFTER_REVISION", _tombstone, after=revision, rows=rows),
        )

    def lease(self, agent_id: bytes) -> Lease | None:
        """Return the last lease of an agent, which may have ended."""
        return self._one("LEASE_BY_AGENT", _lease, w_agent_id=agent_id)

    def lease_of_acquisition(self, acquisition_id: bytes) -> Lease | None:
        """Return the lease of an acquisition, while it is its agent's last."""
        return self._one("LEASE_BY_ACQUISITION", _lease, w_acquisition_id=acquisition_id)

    def leases_of_conversation(self, conversation_id: str) -> Sequence[Lease]:
        """Return the leases over a conversation that have not ended; they may have expired."""
        return self._all(
            "LEASE_OF_CONVERSATION", _lease, w_conversation_id=conversation_id, w_ended=int(LeaseEnd.NOT_ENDED)
        )

    def leases_standing(self, running_ms: int, *, rows: int) -> Sequence[Lease]:
        """Return up to `rows` leases that have not ended and expire after `running_ms`, oldest first."""
        return self._all("LEASE_STANDING", _lease, w_ended=int(LeaseEnd.NOT_ENDED), now=running_ms, rows=rows)

    def status(self, agent_id: bytes) -> Status | None:
        """Return the last report of an agent's runtime."""
        return self._one("STATUS_BY_AGENT", _status, w_agent_id=agent_id)

    def observations(
        self, *, project_id: bytes | None, after: NamePosition, rows: int
    ) -> Mapping[bytes, tuple[Status, Lease | None]]:
        """Return the last reports, with the last leases, of the agents that agents() answers for the same place."""
        place = {"after_key": after.key, "after_id": after.row_id, "rows": rows}
        if project_id is None:
            found = self._rows("OBSERVED_PAGE", **place)
        else:
            found = self._rows("OBSERVED_PAGE_OF_PROJECT", w_project_id=project_id, **place)
        known = [(row[:_STATUS_COLUMNS], row[_STATUS_COLUMNS:]) for row in found if row[0] is not None]
        return {status[0]: (_status(status), None if lease[0] is None else _lease(lease)) for status, lease in known}

    def first_answer(self, key: Key) -> FirstAnswer | None:
        """Return what the first call with this key, scope and operation was answered."""
        for content_sha256, answer in self._rows(
            "IDEMPOTENCY_BY_KEY", w_scope=key.scope, w_operation=key.operation, w_key=key.key
        ):
            return FirstAnswer(content_sha256=content_sha256, answer=json.loads(answer))
        return None

    def _rows(self, statement: str, **parameters: object) -> list[Row]:
        # Whole results only: an unfinished cursor would hold the log of the writer.
        return _execute(self._cursor, statement, parameters).fetchall()

    def _all(self, statement: str, value: Callable[[Row], T], **parameters: object) -> list[T]:
        return [value(row) for row in self._rows(statement, **parameters)]

    def _one(self, statement: str, value: Callable[[Row], T], **parameters: object) -> T | None:
        rows = self._rows(statement, **parameters)
        return value(rows[0]) if rows else None


class SqliteWriting(SqliteReading):
    """Writing over the writer's cursor, inside its open transaction."""

    __slots__ = ()

    def next_revision(self) -> int:
        """Advance the directory by one revision and return it."""
        revision = self.directory().revision
        self._write(1, "DIRECTORY_ADVANCE", v_revision=revision + 1, w_revision=revision)
        return revision + 1

    def insert_project(self, project: Project) -> None:
        """Add a project."""
        self._write(
            1,
            "PROJECT_INSERT",
            v_number=project.number,
            v_project_id=project.project_id,
            v_kind=int(project.kind),
            v_location=project.location,
            v_name=project.name,
            v_created_at_ms=project.created_at_ms,
            v_tools_profile=project.tools_profile,
        )

    def update_project(self, project: Project) -> None:
        """Replace what is set of a project."""
        self._write(1, "PROJECT_UPDATE", v_tools_profile=project.tools_profile, w_project_id=project.project_id)

    def insert_agent(self, agent: Agent) -> None:
        """Add an agent."""
        self._write(
            1,
            "AGENT_INSERT",
            v_agent_id=agent.agent_id,
            v_project_id=agent.project_id,
            v_created_at_ms=agent.created_at_ms,
            **_agent_changes(agent),
        )

    def update_agent(self, before: Agent, after: Agent) -> None:
        """Replace an agent that is still as it was read."""
        self._write(1, "AGENT_UPDATE", w_agent_id=before.agent_id, w_revision=before.revision, **_agent_changes(after))

    def bury_agent(self, agent: Agent, tombstone: Tombstone) -> None:
        """Put a tombstone in place of an agent that is still as it was read and has no credential."""
        self._write(None, "LEASE_DELETE", w_agent_id=agent.agent_id)
        self._write(None, "STATUS_DELETE", w_agent_id=agent.agent_id)
        self._write(1, "AGENT_DELETE", w_agent_id=agent.agent_id, w_revision=agent.revision)
        self._write(
            1,
            "TOMBSTONE_INSERT",
            v_agent_id=tombstone.agent_id,
            v_project_id=tombstone.project_id,
            v_deleted_at_ms=tombstone.deleted_at_ms,
            v_revision=tombstone.revision,
        )

    def put_lease(self, before: Lease | None, after: Lease) -> None:
        """Put an agent's lease in place of its last one, which is still as it was read; None where it had none."""
        if before is None:
            self._write(1, "LEASE_INSERT", v_agent_id=after.agent_id, **_lease_changes(after))
            return
        self._write(
            1,
            "LEASE_UPDATE",
            w_agent_id=before.agent_id,
            w_acquisition_id=before.acquisition_id,
            w_expires_at_ms=before.expires_at_ms,
            w_ended=int(before.end),
            **_lease_changes(after),
        )

    def end_leases_until(self, running_ms: int) -> int:
        """End every lease that has expired at this time of leases; return how many."""
        return self._write(
            None,
            "LEASE_EXPIRE",
            v_ended=int(LeaseEnd.EXPIRED),
            w_ended=int(LeaseEnd.NOT_ENDED),
            until=running_ms,
        )

    def restart_leases(self, running_ms: int) -> int:
        """Give every lease that has not ended its whole term from this time of leases on; return how many."""
        return self._write(None, "LEASE_RESTART", w_ended=int(LeaseEnd.NOT_ENDED), now=running_ms)

    def put_status(self, agent_id: bytes, before: Status | None, after: Status) -> None:
        """Put a report in place of an agent's last one, which is still as it was read; None where it had none."""
        if before is None:
            self._write(1, "STATUS_INSERT", v_agent_id=agent_id, **_status_changes(after))
            return
        self._write(
            1,
            "STATUS_UPDATE",
            w_agent_id=agent_id,
            w_generation=before.generation,
            w_sequence=before.sequence,
            **_status_changes(after),
        )

    def put_released_name(self, project_id: bytes, released: ReleasedName) -> None:
        """Note that a name was given up."""
        self.drop_released_name(project_id, released.key)
        self._write(
            1,
            "RELEASED_INSERT",
            v_project_id=project_id,
            v_name_key=released.key,
            v_agent_id=released.agent_id,
            v_released_at_ms=released.released_at_ms,
        )

    def drop_released_name(self, project_id: bytes, key: str) -> None:
        """Forget that a name was given up, where it was."""
        self._write(None, "RELEASED_DELETE", w_project_id=project_id, w_name_key=key)

    def drop_released_names_until(self, released_at_ms: int) -> None:
        """Forget every name given up at or before this time."""
        self._write(None, "RELEASED_EXPIRE", until=released_at_ms)

    def restart_quarantines_after(self, now_ms: int) -> int:
        """Make names that seem to have been given up after `now_ms` given up at `now_ms`; return how many."""
        return self._write(None, "RELEASED_RESTART", v_now=now_ms, w_now=now_ms)

    def insert_credential(self, credential: Credential) -> None:
        """Add a credential."""
        self._write(
            1,
            "CREDENTIAL_INSERT",
            v_credential_id=credential.credential_id,
            v_agent_id=credential.agent_id,
            v_project_id=credential.project_id,
            v_role=int(credential.role),
            v_generation=credential.generation,
            v_token_sha256=credential.token_sha256,
            v_created_at_ms=credential.created_at_ms,
            v_appeared_revision=credential.appeared_revision,
            v_revision=credential.revision,
            v_label=credential.label,
        )

    def follow_role(self, agent: Agent) -> None:
        """Give every credential of an agent the agent's role, in the agent's revision."""
        self._write(
            None, "CREDENTIAL_FOLLOW_ROLE", v_role=int(agent.role), v_revision=agent.revision, w_agent_id=agent.agent_id
        )

    def remove_credentials(self, credentials: Sequence[Credential], *, revision: int) -> None:
        """Remove credentials and note their removal; forget the oldest removals and raise the floor."""
        for credential in credentials:
            self._write(1, "CREDENTIAL_DELETE", w_credential_id=credential.credential_id)
            self._write(1, "REMOVAL_INSERT", v_credential_id=credential.credential_id, v_revision=revision)
        surplus = self._rows("REMOVAL_SURPLUS", kept=REMOVALS_KEPT_MAX)
        if surplus:
            (floor,) = surplus[0]
            self._write(None, "REMOVAL_FORGET", until=floor)
            self._write(1, "DIRECTORY_RAISE_FLOOR", v_floor=floor)

    def remember(self, key: Key, answer: Mapping[str, object], *, now_ms: int) -> None:
        """Keep the answer of a key; drop a few keys older than IDEMPOTENCY_KEPT_MS."""
        for scope, operation, old in self._rows(
            "IDEMPOTENCY_OLD", before=now_ms - IDEMPOTENCY_KEPT_MS, rows=IDEMPOTENCY_DROPPED_ROWS_MAX
        ):
            self._write(1, "IDEMPOTENCY_DELETE", w_scope=scope, w_operation=operation, w_key=old)
        self._write(
            1,
            "IDEMPOTENCY_INSERT",
            v_scope=key.scope,
            v_operation=key.operation,
            v_key=key.key,
            v_content_sha256=key.content_sha256,
            v_answer=json.dumps(answer),
            v_created_at_ms=now_ms,
        )

    def _write(self, expected: int | None, statement: str, **parameters: object) -> int:
        """Execute; `expected` is how many rows this must touch, None where any number is right."""
        touched = _execute(self._cursor, statement, parameters).rowcount
        if expected is not None and touched != expected:
            raise InvariantBroken(f"{statement} touched {touched} rows instead of {expected}")
        return touched


def _agent_changes(agent: Agent) -> dict[str, object]:
    return {
        "v_name": agent.name,
        "v_name_key": agent.name_key,
        "v_role": int(agent.role),
        "v_provider": agent.provider,
        "v_workspace": agent.workspace,
        "v_generation": agent.generation,
        "v_revision": agent.revision,
        "v_state": int(agent.state),
        "v_desired": int(agent.desired),
        "v_launch": json.dumps(words_of_launch(agent.launch)),
        "v_conversation_id": agent.conversation_id,
    }


def _lease_changes(lease: Lease) -> dict[str, object]:
    return {
        "v_acquisition_id": lease.acquisition_id,
        "v_conversation_id": lease.conversation_id,
        "v_kind": int(lease.kind),
        "v_holder": lease.holder,
        "v_generation": lease.generation,
        "v_fence": lease.fence,
        "v_term_ms": lease.term_ms,
        "v_expires_at_ms": lease.expires_at_ms,
        "v_acquired_at_ms": lease.acquired_at_ms,
        "v_ended": int(lease.end),
    }


def _status_changes(status: Status) -> dict[str, object]:
    return {
        "v_state": int(status.state),
        "v_evidence": int(status.evidence),
        "v_detail": status.detail,
        "v_turn_id": status.turn_id,
        "v_observed_at_ms": status.observed_at_ms,
        "v_generation": status.generation,
        "v_sequence": status.sequence,
        "v_acquisition_id": status.acquisition_id,
    }


class SqliteStore:
    """The directory of one home in one SQLite file. start() before use, close() after."""

    def __init__(
        self,
        path: Path,
        *,
        new_epoch: bytes,
        on_commit: Callable[[], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """Prepare without touching the disk.

        Args:
            path: the database file.
            new_epoch: 16 bytes that name the directory, used only where the file is new.
            on_commit: called on the loop after each durable batch.
            on_fatal: called on the loop once, when the outcome of a commit is unknown: the process must end and open
            anew.
        """
        self._new_epoch = new_epoch
        self._database = SqliteDatabase(path, migrations=load_migrations(MIGRATIONS_PACKAGE))
        self._reader: sqlite3.Connection | None = None
        self._commits: GroupCommit[SqliteWriting] = GroupCommit(
            name="sessions",
            open_writer=lambda: SqliteWriter(self._database.connect_writer(), SqliteWriting),
            on_commit=lambda _values: on_commit(),
            on_fatal=on_fatal,
        )

    @property
    def schema_version(self) -> int:
        """Number of the newest applied migration."""
        return self._database.schema_version

    @property
    def commits(self) -> GroupCommit[SqliteWriting]:
        """The writer; for metrics."""
        return self._commits

    async def start(self) -> None:
        """Open, migrate, and give a new directory its epoch.

        Raises:
            DatabaseInUse, SchemaTooNew, DatabaseUnusable: nothing of the database was changed.
        """
        self._database.open()
        try:
            self._name_directory()
            self._reader = self._database.connect_reader()
            await self._commits.start()
        except BaseException:
            await self.close()
            raise

    def _name_directory(self) -> None:
        connection = self._database.connect_writer()
        try:
            cursor = connection.cursor()
            if not _execute(cursor, "DIRECTORY_READ", {}).fetchall():
                values = {"v_id": 1, "v_epoch": self._new_epoch, "v_revision": 0, "v_floor": 0}
                _execute(cursor, "DIRECTORY_CREATE", values)
            elif is_copy(connection):
                # Another directory than the one that was copied: its followers must not take one for the other.
                cursor.execute("BEGIN IMMEDIATE")
                _execute(cursor, "DIRECTORY_RENAME", {"v_epoch": self._new_epoch, "w_id": 1})
                cursor.execute("PRAGMA application_id = 0")
                cursor.execute("COMMIT")
                _log.warning("store_restored")
        finally:
            connection.close()

    def read(self, question: Callable[[Reading], T]) -> T:
        """Answer a question from one consistent, durable state."""
        if self._reader is None:
            raise StorageError("the directory is closed", hint="Ask again once the service has started.")
        cursor = self._reader.cursor()
        cursor.execute("BEGIN")
        try:
            return question(SqliteReading(cursor))
        finally:
            cursor.execute("COMMIT")

    async def commit(self, operation: Operation[T]) -> T:
        """Run an operation and return its value once it is durable.

        Raises:
            Refusal: the operation's own; Overloaded or StorageError where it never became durable. Nothing is written.
            NotCommitted: a mistake in the operation; nothing is written.
            OutcomeUnknown: the disk failed at COMMIT; nobody knows, and the process ends.
        """
        try:
            return await self._commits.submit(operation)
        except NotCommitted as error:
            cause = error.__cause__
            if not isinstance(cause, (sqlite3.Error, OSError, type(None))):
                raise  # a mistake of ours, not the disk's: it belongs into the log, not into an answer
            what = "the directory is closed" if cause is None else "the disk did not take the change"
            name = getattr(cause, "sqlite_errorname", type(cause).__name__)
            _log.warning("change_not_stored", cause=name)
            raise StorageError(
                f"{what}; nothing was written",
                hint="Check that the disk of the home has room and is writable, then send the same call again.",
                state={"cause": name},
            ) from error

    async def close(self) -> None:
        """Commit what waits, close every connection, let go of the database."""
        try:
            await self._commits.close()
        finally:
            if self._reader is not None:
                self._reader.close()
                self._reader = None
            self._database.close()
