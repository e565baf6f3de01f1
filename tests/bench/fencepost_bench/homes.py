"""Homes that the bench measures: on the disk of the tree, reached by a short path, with real services."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import struct
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from fencepost_bench.child import BENCH, SUPPORT
from fencepost_bench.clocked import VARIABLE, Commits
from fencepost_bench.rows import Unmeasured

from fencepost.common.v1 import common_pb2
from fencepost.home import MAILBOX, SESSIONS, Home, read_address, read_credential
from fencepost.sessions.v1 import sessions_pb2, sessions_pb2_grpc
from fencepost_testing.processes import MODULES, Services, bearer

ROOT: Final = Path(__file__).resolve().parents[3]
BUILD: Final = ROOT / "build" / "bench"
CREATED_AT_ONCE: Final = 32
FOLLOWED_S_MAX: Final = 30.0


class BenchHome:
    """A home under build/, so that it lies on a disk and not in memory, behind a link whose path socket names fit."""

    def __init__(self, name: str, *, keep: bool = False, clocked: bool = False) -> None:
        self.folder = BUILD / name
        self._keep = keep
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        self._short = Path(tempfile.mkdtemp(prefix="fpb")).resolve()
        # The folder above is the link: sessions refuses a home that is one itself.
        (self._short / "b").symlink_to(BUILD)
        self.home = Home(self._short / "b" / name)
        if clocked:
            # The mailbox of this home tells when each of its commits began and ended.
            path = self.folder / "commits"
            self.clock = Commits(path, create=True)
            found = {VARIABLE: str(path), "PYTHONPATH": f"{BENCH}{os.pathsep}{SUPPORT}"}
            self.services = Services(self.home, modules={**MODULES, MAILBOX: "fencepost_bench.clocked"}, env=found)
        else:
            self.services = Services(self.home)

    def address(self, service: str) -> str:
        """The address of a running service."""
        address = read_address(self.home.address(service))
        if address is None:
            raise Unmeasured(f"{service} has published no address")
        return address

    def agents(self) -> dict[str, dict[str, str]]:
        """Return name -> {id, token} of every agent that the mailbox knows, for the measuring processes."""
        known = _directory(self.home)
        return {
            name: {"id": agent_id, "token": read_credential(self.home.agent_credential(agent_id))}
            for agent_id, name in known
        }

    def commits(self) -> int:
        """Return how many transactions the mailbox's database has committed, as its shared index counts them."""
        # The log's index begins with its version, a word of padding, and the counter of transactions (32 bits each).
        raw = self.home.database(MAILBOX).with_name("mailbox.db-shm").read_bytes()[:12]
        count: int = struct.unpack("=III", raw)[2]
        return count

    def close(self) -> None:
        """Stop its services and remove it, unless it is kept."""
        self.services.close()
        shutil.rmtree(self._short, ignore_errors=True)
        if not self._keep:
            shutil.rmtree(self.folder, ignore_errors=True)


def _directory(home: Home) -> list[tuple[str, str]]:
    """Return (id, name) of the agents that the mailbox has stored of sessions' directory."""
    connection = sqlite3.connect(f"file:{home.database(MAILBOX)}?mode=ro", uri=True, timeout=5)
    try:
        rows = connection.execute("SELECT agent_id, name FROM directory_agent").fetchall()
    finally:
        connection.close()
    return [(str(uuid.UUID(bytes=agent_id)), name) for agent_id, name in rows]


async def create_agents(bench: BenchHome, names: Sequence[str], *, project: str = "work") -> None:
    """Create agents of a project through sessions; returns once the mailbox knows all of them.

    Raises:
        Unmeasured: the mailbox did not learn of them within FOLLOWED_S_MAX.
    """
    home = bench.home
    operator: Any = bearer(read_credential(home.operator_credential))
    location = bench.folder / "projects" / project
    location.mkdir(parents=True, exist_ok=True)
    at_once = asyncio.Semaphore(CREATED_AT_ONCE)
    async with bench.services.channel(SESSIONS) as channel:
        stub = sessions_pb2_grpc.SessionsServiceStub(channel)
        ensured = await stub.EnsureProject(
            sessions_pb2.EnsureProjectRequest(
                idempotency_key=uuid.uuid4().hex,
                kind=sessions_pb2.PROJECT_KIND_FOLDER,
                location=os.fspath(location.resolve()),
            ),
            metadata=operator,
            timeout=10,
        )

        async def create(name: str) -> None:
            async with at_once:
                await stub.CreateAgent(
                    sessions_pb2.CreateAgentRequest(
                        idempotency_key=uuid.uuid4().hex,
                        project_id=ensured.project.project_id,
                        name=name,
                        role=common_pb2.ROLE_AGENT,
                    ),
                    metadata=operator,
                    timeout=60,
                )

        await asyncio.gather(*(create(name) for name in names))
    until = asyncio.get_running_loop().time() + FOLLOWED_S_MAX
    while not set(names) <= {name for _, name in _directory(home)}:
        if asyncio.get_running_loop().time() > until:
            raise Unmeasured(f"the mailbox did not learn of {len(names)} agents within {FOLLOWED_S_MAX:.0f} s")
        await asyncio.sleep(0.05)
