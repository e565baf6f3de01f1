"""Integrations over real repositories and a real outbox, with the mailbox and the directory held by the test."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from fencepost_providers.domain.integration import Integrated, Place, Wanted
from fencepost_providers.integrations import Integrations, Work
from fencepost_providers.store.sqlite import SqliteStore
from fencepost_testing.carrier_fakes import PROJECT, TASK, FakeTasks, HurriedClock, uuid_of
from fencepost_testing.repositories import Repository, environ

CYD: Final = uuid_of("cyd")


class IntegrationDesk:
    """A main checkout, a worker's, and integrations between them."""

    def __init__(self, folder: Path, main: Repository, worker: Repository) -> None:
        self.folder = folder
        self.main = main
        self.worker = worker
        self.tasks = FakeTasks(Place(location=str(main.folder / ".git"), is_git=True))
        self.tasks.add()
        self._stack = contextlib.AsyncExitStack()

    async def start(self) -> None:
        """Start as a service does, with what an earlier start left."""
        self.store = SqliteStore(
            self.folder / "providers.db", new_id=bytes(16), on_fatal=lambda error: pytest.fail(repr(error))
        )
        await self.store.start()
        self.integrations = Integrations(store=self.store, tasks=self.tasks, clock=HurriedClock(), environ=environ())
        await self.integrations.recover()

    async def stop(self) -> None:
        """Stop it."""
        await self.integrations.stop()
        await self.store.close()

    def work(self, commit: str, **facts: Any) -> Work:
        """A call of the coordinator Cyd for the work of Ann."""
        given: dict[str, Any] = {
            "task_id": TASK,
            "commit": commit,
            "note": "",
            "expected_version": 0,
            "request_id": str(uuid.uuid4()),
            "coordinator_id": CYD,
        }
        wanted = Wanted(**{**given, **facts})
        return Work(
            wanted=wanted, project_id=PROJECT, coordinator="Cyd", worker=lambda _agent_id: str(self.worker.folder)
        )

    async def integrate(self, commit: str, **facts: Any) -> Integrated:
        """Make the call."""
        return await self.integrations.integrate(self.work(commit, **facts))


@contextlib.asynccontextmanager
async def an_integration_desk(folder: Path, *options: str) -> AsyncIterator[IntegrationDesk]:
    """A desk with a worker that has a clone of its own."""
    main = Repository.new(folder / "main", *options)
    desk = IntegrationDesk(folder, main, main.clone(folder / "worker"))
    await desk.start()
    try:
        yield desk
    finally:
        await desk.stop()
