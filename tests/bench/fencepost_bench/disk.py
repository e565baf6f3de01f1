"""The disk and the store alone: raw syncs, commits of one operation as the writer thread makes them, and sizes."""

from __future__ import annotations

import fcntl
import os
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from fencepost_bench.child import serve
from fencepost_bench.machine import written_bytes
from fencepost_bench.rows import Unmeasured

from fencepost_kit.clock import SYSTEM_CLOCK
from fencepost_kit.ids import IdMint
from fencepost_kit.sqlite import WAL_AUTOCHECKPOINT_PAGES, SqliteWriter
from fencepost_mailbox.domain.idempotency import fingerprint
from fencepost_mailbox.domain.values import Completion, Kind, Operation
from fencepost_mailbox.store.sqlite import SqliteStore, SqliteTransaction
from fencepost_mailbox.usecases.admit import Admission

SYNC_BYTES: Final = 20 * 1024
SYNC_FILE_BYTES: Final = 4 * 1024 * 1024
BODY_BYTES: Final = 300
RECIPIENTS: Final = 8
# A page is dirtied several times over by so many: the log has reached its size, and overwrites itself from here on.
WARM_MESSAGES: Final = WAL_AUTOCHECKPOINT_PAGES


def sync_of(descriptor: int) -> Callable[[], None]:
    """Return what makes a file durable here, as strong as the store's own syncs."""
    if sys.platform == "darwin":
        return lambda: fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC) and None
    return lambda: os.fdatasync(descriptor)


class StoreAlone:
    """A store in this process, driven as its writer thread drives it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._store = SqliteStore(path, on_commit=lambda _: None, on_fatal=lambda _: None)
        self._store._database.open()
        self.writer: SqliteWriter[SqliteTransaction] = self._store._open_writer()
        self._mint = IdMint()
        self._agents = [self._mint.new() for _ in range(RECIPIENTS + 1)]
        self._project = self._mint.new()
        self._nonce = f"mcp-{secrets.token_hex(16)}"
        self._count = 0

    def operations(self, count: int) -> list[Admission]:
        """Prepare messages of BODY_BYTES, as a send would."""
        body = b"Fencepost carries words between agents. ".ljust(BODY_BYTES, b".")
        content = fingerprint(bytes([Kind.INFORMATION, Completion.NONE]), b"recipient", body)
        found = []
        for _ in range(count):
            self._count += 1
            found.append(
                Admission(
                    kind=Kind.INFORMATION,
                    project_id=self._project,
                    sender=self._agents[-1],
                    generation=1,
                    recipient=self._agents[secrets.randbelow(RECIPIENTS)],
                    body=body,
                    completion=Completion.NONE,
                    operation=Operation.SEND,
                    key=f"{self._nonce}:{self._count}".encode(),
                    content=content,
                    record_id=self._mint.new(),
                    now_ms=SYSTEM_CLOCK.now_ms(),
                )
            )
        return found

    def commit(self, operations: list[Admission]) -> None:
        """One transaction without savepoints, as group commit first runs every batch."""
        writer = self.writer
        tx = writer.begin(whole=len(operations) > 1)
        for operation in operations:
            operation.apply(tx)
        writer.settle()
        writer.commit()

    def close(self) -> None:
        """Close it; the log is merged into the database and removed."""
        self.writer.close()
        self._store._database.close()


class Disk:
    """The commands."""

    def __init__(self) -> None:
        self._folder = Path()
        self._descriptor = -1
        self._place = 0
        self._store: StoreAlone | None = None

    def open(self, folder: str) -> None:
        """Use a folder; the file that is synced stands in it from the first byte to the last."""
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self._folder / "synced", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.pwrite(self._descriptor, os.urandom(SYNC_FILE_BYTES), 0)
        os.fsync(self._descriptor)

    def sync(self, seconds: float) -> dict[str, float]:
        """Overwrite SYNC_BYTES and sync, in a loop; return the p50, the p99 and the rate."""
        data, sync, took = os.urandom(SYNC_BYTES), sync_of(self._descriptor), []
        begun = time.perf_counter()
        until = begun + seconds
        while (started := time.perf_counter()) < until:
            os.pwrite(self._descriptor, data, self._place)
            sync()
            self._place = (self._place + SYNC_BYTES) % (SYNC_FILE_BYTES - SYNC_BYTES)
            took.append(time.perf_counter() - started)
        took.sort()
        elapsed = time.perf_counter() - begun
        return {"p50": took[len(took) // 2], "p99": took[int(len(took) * 0.99)], "rate": len(took) / elapsed}

    def commits(self, seconds: float) -> dict[str, float]:
        """Commit prepared messages one by one; return the p50 and the rate."""
        if self._store is None:
            self._store = StoreAlone(self._folder / "alone" / "mailbox.db")
            for operation in self._store.operations(WARM_MESSAGES):
                self._store.commit([operation])
        operations, took = self._store.operations(int(seconds * 20_000)), []
        begun = time.perf_counter()
        until = begun + seconds
        for operation in operations:
            started = time.perf_counter()
            if started >= until:
                break
            self._store.commit([operation])
            took.append(time.perf_counter() - started)
        elapsed = time.perf_counter() - begun
        took.sort()
        return {"p50": took[len(took) // 2], "rate": len(took) / elapsed}

    def sizes(self, messages: int, batch: int) -> dict[str, float]:
        """Return bytes a message in a new store: at rest, and written at this batch size (nothing where untold)."""
        path = self._folder / f"sizes-{batch}" / "mailbox.db"
        empty = StoreAlone(path)
        empty.close()
        before_rest = path.stat().st_size
        store = StoreAlone(path)
        for operation in store.operations(WARM_MESSAGES):
            store.commit([operation])
        prepared = store.operations(messages)
        found: dict[str, float] = {}
        try:
            before = written_bytes()
        except Unmeasured:
            before = -1
        for first in range(0, messages, batch):
            store.commit(prepared[first : first + batch])
        if before >= 0:
            found["written"] = (written_bytes() - before) / messages
        store.close()
        found["rest"] = (path.stat().st_size - before_rest) / (messages + WARM_MESSAGES)
        return found


def main() -> None:
    disk = Disk()
    serve({"open": disk.open, "sync": disk.sync, "commits": disk.commits, "sizes": disk.sizes})


if __name__ == "__main__":
    main()
