"""The outbox in SQLite: one writer behind group commit, one reader on the event loop."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from fencepost_kit import faults, logs
from fencepost_kit.groupcommit import GroupCommit, NotCommitted
from fencepost_kit.sqlite import SqliteDatabase, SqliteWriter, is_copy, load_migrations
from fencepost_providers.domain.carried import Answer, Carried, Outcome
from fencepost_providers.domain.integration import Intent
from fencepost_providers.domain.refusals import StorageError
from fencepost_providers.domain.runtimes import Mode, TurnBinding, TurnStatus
from fencepost_providers.store import sqlite_statements as sql
from fencepost_providers.store.protocol import Dispatcher, LifeMark

MIGRATIONS_PACKAGE: Final = "fencepost_providers.store.migrations"

for _moment in ("begin.after", "commit.before", "commit.after", "answer.before"):
    faults.register(f"providers.{_moment}", f"the writer of the outbox, {_moment.replace('.', ': ')}")

Row = tuple[Any, ...]
_log: Final = logs.get(__name__)


class InvariantBroken(Exception):
    """A write did not touch the rows that the decision rested on: somebody else wrote, or the code is wrong."""


def _binding_columns(binding: TurnBinding | None) -> dict[str, Any]:
    if binding is None:
        return {"provider": "", "conversation_id": "", "turn_id": "", "mode": 0}
    return {
        "provider": binding.provider,
        "conversation_id": binding.conversation_id,
        "turn_id": binding.turn_id,
        "mode": int(binding.mode),
    }


def _binding(provider: str, conversation_id: str, turn_id: str, mode: int) -> TurnBinding | None:
    if not mode:
        return None
    return TurnBinding(provider=provider, conversation_id=conversation_id, turn_id=turn_id, mode=Mode(mode))


def _carried(row: Row) -> Carried:
    token, agent_id, record_id, generation, written_at_ms, answer, evidence, *binding = row
    return Carried(
        token=token,
        agent_id=agent_id,
        record_id=record_id,
        generation=generation,
        written_at_ms=written_at_ms,
        answer=Answer(answer),
        evidence=evidence,
        binding=_binding(*binding),
    )


def _outcome(row: Row) -> Outcome:
    token, agent_id, record_id, generation, written_at_ms, *binding, status, evidence, final_bytes, final_text = row
    bound = _binding(*binding)
    assert bound is not None, "an outcome has a binding"
    return Outcome(
        token=token,
        agent_id=agent_id,
        record_id=record_id,
        generation=generation,
        written_at_ms=written_at_ms,
        binding=bound,
        status=TurnStatus(status),
        evidence=evidence,
        final_bytes=final_bytes,
        final_text=final_text,
    )


def _life(row: Row) -> LifeMark:
    agent_id, acquisition_id, generation, pid, pid_mark = row
    return LifeMark(agent_id=agent_id, acquisition_id=acquisition_id, generation=generation, pid=pid, pid_mark=pid_mark)


def _intent(row: Row) -> Intent:
    request_id, task_id, coordinator_id, commit_id, checkout, branch, old_id, new_id, written_at_ms, note = row
    return Intent(
        request_id=request_id,
        task_id=task_id,
        coordinator_id=coordinator_id,
        commit_id=commit_id,
        checkout=checkout,
        branch=branch,
        old_id=old_id,
        new_id=new_id,
        written_at_ms=written_at_ms,
        note=note,
    )


@dataclass(frozen=True, slots=True)
class _Starting:
    new_id: bytes
    restored: bool

    def apply(self, cursor: sqlite3.Cursor) -> Dispatcher:
        rows = [] if self.restored else cursor.execute(sql.DISPATCHER_READ).fetchall()
        dispatcher_id, incarnation = rows[0] if rows else (self.new_id, 0)
        if self.restored:
            # What a copy meant to do was done, or not, long ago: it is nobody's intent any more.
            for statement in (sql.CARRIED_CLEAR, sql.OUTCOME_CLEAR, sql.LIFE_CLEAR, sql.INTEGRATION_CLEAR):
                cursor.execute(statement)
            cursor.execute("PRAGMA application_id = 0")
        cursor.execute(sql.DISPATCHER_DELETE)
        cursor.execute(sql.DISPATCHER_INSERT, {"id": 1, "dispatcher_id": dispatcher_id, "incarnation": incarnation + 1})
        return Dispatcher(dispatcher_id=dispatcher_id, incarnation=incarnation + 1)


@dataclass(frozen=True, slots=True)
class _Intending:
    carried: Carried

    def apply(self, cursor: sqlite3.Cursor) -> None:
        carried = self.carried
        cursor.execute(
            sql.CARRIED_INSERT,
            {
                "token": carried.token,
                "agent_id": carried.agent_id,
                "record_id": carried.record_id,
                "generation": carried.generation,
                "written_at_ms": carried.written_at_ms,
                "answer": int(carried.answer),
                "evidence": carried.evidence,
                **_binding_columns(carried.binding),
            },
        )


@dataclass(frozen=True, slots=True)
class _Settling:
    token: str
    answer: Answer
    evidence: str
    binding: TurnBinding | None

    def apply(self, cursor: sqlite3.Cursor) -> bool:
        values = {"answer": int(self.answer), "evidence": self.evidence, **_binding_columns(self.binding)}
        cursor.execute(
            sql.CARRIED_SETTLE,
            {
                **{f"v_{name}": value for name, value in values.items()},
                "w_token": self.token,
                "w_answer": int(Answer.UNKNOWN_YET),
            },
        )
        if cursor.rowcount == 1:
            return True
        if not cursor.execute(sql.CARRIED_BY_TOKEN, {"w_token": self.token}).fetchall():
            raise InvariantBroken("what came of a claim is told without an intent")
        return False


@dataclass(frozen=True, slots=True)
class _Recording:
    outcomes: tuple[Outcome, ...]

    def apply(self, cursor: sqlite3.Cursor) -> None:
        for outcome in self.outcomes:
            if cursor.execute(sql.OUTCOME_BY_TOKEN, {"w_token": outcome.token}).fetchall():
                continue
            cursor.execute(
                sql.OUTCOME_INSERT,
                {
                    "token": outcome.token,
                    "agent_id": outcome.agent_id,
                    "record_id": outcome.record_id,
                    "generation": outcome.generation,
                    "written_at_ms": outcome.written_at_ms,
                    "status": int(outcome.status),
                    "evidence": outcome.evidence,
                    "final_bytes": outcome.final_bytes,
                    "final_text": outcome.final_text,
                    **_binding_columns(outcome.binding),
                },
            )


@dataclass(frozen=True, slots=True)
class _Executing:
    statements: tuple[tuple[str, dict[str, Any]], ...]

    def apply(self, cursor: sqlite3.Cursor) -> None:
        for statement, parameters in self.statements:
            cursor.execute(statement, parameters)


class SqliteStore:
    """See Store. start() before use, close() after."""

    def __init__(self, path: Path, *, new_id: bytes, on_fatal: Callable[[BaseException], None]) -> None:
        """Prepare without touching the disk; `new_id` names the dispatcher where the file is new or restored."""
        self._new_id = new_id
        self._database = SqliteDatabase(path, migrations=load_migrations(MIGRATIONS_PACKAGE))
        self._reader: sqlite3.Connection | None = None
        self._dispatcher: Dispatcher | None = None
        self.commits: Final[GroupCommit[sqlite3.Cursor]] = GroupCommit(
            name="providers",
            open_writer=lambda: SqliteWriter(self._database.connect_writer(), lambda cursor: cursor),
            on_commit=lambda _values: None,
            on_fatal=on_fatal,
        )

    @property
    def schema_version(self) -> int:
        """See Store."""
        return self._database.schema_version

    @property
    def dispatcher(self) -> Dispatcher:
        """See Store."""
        assert self._dispatcher is not None, "the store is not started"
        return self._dispatcher

    async def start(self) -> None:
        """Open the database and count this start.

        Raises:
            Refusal: the database is in use, unusable, or of a newer version.
        """
        self._database.open()
        try:
            await self.commits.start()
            self._reader = self._database.connect_reader()
            restored = is_copy(self._reader)
            self._dispatcher = await self._submit(_Starting(self._new_id, restored))
            if restored:
                _log.warning("store_restored")
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Commit what waits and close the database. Harmless when repeated."""
        try:
            await self.commits.close()
        finally:
            if self._reader is not None:
                self._reader.close()
                self._reader = None
            self._database.close()

    def _read(self, statement: str) -> list[Row]:
        assert self._reader is not None, "the store is not started"
        return self._reader.execute(statement).fetchall()

    def carried(self) -> Sequence[Carried]:
        """See Store."""
        return [_carried(row) for row in self._read(sql.CARRIED_ALL)]

    def outcomes(self) -> Sequence[Outcome]:
        """See Store."""
        return [_outcome(row) for row in self._read(sql.OUTCOME_ALL)]

    def lives(self) -> Sequence[LifeMark]:
        """See Store."""
        return [_life(row) for row in self._read(sql.LIFE_ALL)]

    async def intend(self, carried: Carried) -> None:
        """See Store."""
        await self._submit(_Intending(carried))

    async def settle(self, token: str, answer: Answer, evidence: str, binding: TurnBinding | None) -> bool:
        """See Store."""
        return bool(await self._submit(_Settling(token, answer, evidence, binding)))

    async def record(self, outcomes: Sequence[Outcome]) -> None:
        """See Store."""
        await self._submit(_Recording(tuple(outcomes)))

    async def forget_carried(self, token: str, answer: Answer) -> None:
        """See Store."""
        await self._execute(sql.CARRIED_DELETE, w_token=token, w_answer=int(answer))

    async def forget_outcome(self, token: str) -> None:
        """See Store."""
        await self._execute(sql.OUTCOME_DELETE, w_token=token)

    async def begin_life(self, mark: LifeMark) -> None:
        """See Store."""
        values = {
            "agent_id": mark.agent_id,
            "acquisition_id": mark.acquisition_id,
            "generation": mark.generation,
            "pid": mark.pid,
            "pid_mark": mark.pid_mark,
        }
        await self._submit(_Executing(((sql.LIFE_DELETE, {"w_agent_id": mark.agent_id}), (sql.LIFE_INSERT, values))))

    async def end_life(self, agent_id: str) -> None:
        """See Store."""
        await self._execute(sql.LIFE_DELETE, w_agent_id=agent_id)

    def integrations(self) -> Sequence[Intent]:
        """See Store."""
        return [_intent(row) for row in self._read(sql.INTEGRATION_ALL)]

    async def intend_integration(self, intent: Intent) -> None:
        """See Store."""
        delete = (sql.INTEGRATION_DELETE, {"w_request_id": intent.request_id})
        await self._submit(_Executing((delete, (sql.INTEGRATION_INSERT, asdict(intent)))))

    async def forget_integration(self, request_id: str) -> None:
        """See Store."""
        await self._execute(sql.INTEGRATION_DELETE, w_request_id=request_id)

    async def _execute(self, statement: str, **parameters: Any) -> None:
        await self._submit(_Executing(((statement, parameters),)))

    async def _submit(self, operation: Any) -> Any:
        try:
            return await self.commits.submit(operation)
        except NotCommitted as error:
            cause = error.__cause__
            if not isinstance(cause, (sqlite3.Error, OSError, type(None))):
                raise  # a bug of ours, not the disk's: it belongs into the log, not into an answer
            what = "the store is closed" if cause is None else "the disk refused the write"
            raise StorageError(
                f"{what}; nothing was written",
                hint="Check that the disk of the home has room and is writable, then send the same call again.",
                state={"cause": getattr(cause, "sqlite_errorname", type(cause).__name__)},
            ) from error
