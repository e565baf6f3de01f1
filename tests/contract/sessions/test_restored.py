"""A directory that was restored from a copy is another directory than the one that was copied."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from fencepost_kit.sqlite import copy_database, read_one
from fencepost_sessions.store.protocol import Directory
from fencepost_sessions.store.sqlite import SqliteStore


def a_store(path: Path) -> SqliteStore:
    return SqliteStore(path, new_epoch=uuid.uuid4().bytes, on_commit=lambda: None, on_fatal=lambda _: None)


async def directory_of(path: Path) -> Directory:
    """Open a store, read which directory it is, and close it."""
    store = a_store(path)
    await store.start()
    try:
        return store.read(lambda reading: reading.directory())
    finally:
        await store.close()


@pytest.mark.requirement("care.a-restored-store-is-another-store")
async def test_a_restored_directory_takes_a_new_epoch_once_and_keeps_its_revision(tmp_path: Path) -> None:
    path, copy = tmp_path / "s.db", tmp_path / "copy.db"
    original = await directory_of(path)
    copy_database(path, copy)
    restored = await directory_of(copy)
    assert restored.epoch != original.epoch
    assert (restored.revision, restored.floor) == (original.revision, original.floor)
    assert await directory_of(copy) == restored
    assert read_one(copy, "PRAGMA application_id") == 0
    assert await directory_of(path) == original
