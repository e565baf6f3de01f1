"""Every backend of the directory passes the same suite: a new one is a new entry of BACKENDS."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from fencepost_sessions.store.protocol import Store
from fencepost_sessions.store.sqlite import SqliteStore


class Backend:
    """A store that a test may close and open again over the same data."""

    def __init__(self, opened: Callable[[], Awaitable[SqliteStore]]) -> None:
        self._opened = opened
        self._store: SqliteStore | None = None

    @property
    def store(self) -> Store:
        assert self._store is not None
        return self._store

    async def reopen(self) -> Store:
        await self.close()
        self._store = await self._opened()
        return self._store

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()
            self._store = None


def sqlite_backend(folder: Path, rang: list[None], fatal: list[BaseException]) -> Backend:
    async def opened() -> SqliteStore:
        store = SqliteStore(
            folder / "sessions.db",
            new_epoch=uuid.uuid4().bytes,
            on_commit=lambda: rang.append(None),
            on_fatal=fatal.append,
        )
        await store.start()
        return store

    return Backend(opened)


BACKENDS = {"sqlite": sqlite_backend}


@pytest.fixture
def rang() -> list[None]:
    """One entry for each time the store said that something was committed."""
    return []


@pytest.fixture(params=sorted(BACKENDS))
async def backend(request: pytest.FixtureRequest, tmp_path: Path, rang: list[None]) -> AsyncIterator[Backend]:
    fatal: list[BaseException] = []
    made = BACKENDS[request.param](tmp_path, rang, fatal)
    await made.reopen()
    yield made
    await made.close()
    assert not fatal


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.store
