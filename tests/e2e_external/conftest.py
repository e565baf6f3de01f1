"""Programs of others, installed by name from the package registry that npm is set to. Not part of `make test`."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from fencepost.home import MAILBOX, MCP_EDGE, SESSIONS
from fencepost_testing.acceptance_run import acceptance, judged
from fencepost_testing.agents import World
from fencepost_testing.processes import Services, short_home

__all__ = ["acceptance", "judged"]

ROOT: Final = Path(__file__).resolve().parents[2]
# Node comes as a package too: the suite and the inspector need 22, whatever the machine has.
PACKAGES: Final = {
    "node": "22",
    "@modelcontextprotocol/conformance": "0.2.0-alpha.12",
    "@modelcontextprotocol/inspector": "2.12.0",
}
INSTALL_S_MAX: Final = 600
RUN_S_MAX: Final = 240


@dataclass(frozen=True, kw_only=True)
class Node:
    """An installation of PACKAGES."""

    folder: Path

    async def run(self, program: str, *arguments: str) -> tuple[int, str, str]:
        """Run a program of the installation to its end; return its status, output and errors."""
        modules = self.folder / "node_modules"
        child = await asyncio.create_subprocess_exec(
            str(modules / "node" / "bin" / "node"),
            str(modules / ".bin" / program),
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(RUN_S_MAX):
                out, err = await child.communicate()
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        return child.returncode or 0, out.decode(), err.decode()


@pytest.fixture(scope="session")
def node() -> Node:
    """Node 22 and PACKAGES below build/, kept from run to run while their versions stay."""
    folder = ROOT / "build" / "e2e"
    wanted = json.dumps({"private": True, "dependencies": PACKAGES}, indent=2)
    manifest, done = folder / "package.json", folder / "installed.json"
    if not (done.is_file() and done.read_text(encoding="utf-8") == wanted):
        npm = shutil.which("npm")
        assert npm is not None, "make e2e needs npm: it installs Node 22, the conformance suite and the inspector"
        shutil.rmtree(folder / "node_modules", ignore_errors=True)
        (folder / "package-lock.json").unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        manifest.write_text(wanted, encoding="utf-8")
        command = [npm, "install", "--no-audit", "--no-fund", "--no-progress"]
        subprocess.run(command, cwd=folder, check=True, timeout=INSTALL_S_MAX, stdout=subprocess.DEVNULL)
        done.write_text(wanted, encoding="utf-8")
    return Node(folder=folder)


@dataclass(frozen=True, kw_only=True)
class Served:
    """Services whose edge has a port, and two agents."""

    world: World
    port: int


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with short_home() as home:
        services = Services(home, env={"FENCEPOST_MCP_EDGE_HTTP_PORT": str(port)})
        try:
            yield Served(world=asyncio.run(_world(services)), port=port)
        finally:
            services.close()


async def _world(services: Services) -> World:
    await services.start(SESSIONS, MAILBOX, MCP_EDGE)
    return await World.create(services, project="external")


class Authorizing:
    """A way to the edge on which every request is given a credential: the suite has no option to send one."""

    def __init__(self, *, port: int, token: str) -> None:
        self._to = port
        self._line = f"Authorization: Bearer {token}\r\n".encode()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        edge_reader, edge_writer = await asyncio.open_connection("127.0.0.1", self._to)
        back = asyncio.ensure_future(_copy(edge_reader, writer))
        try:
            while True:
                first = await reader.readuntil(b"\r\n")
                rest = await reader.readuntil(b"\r\n\r\n")
                edge_writer.write(first + self._line + rest)
                edge_writer.write(await reader.readexactly(_length(rest)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            edge_writer.close()
            await asyncio.gather(back, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length":
            return int(value)
    return 0


@pytest.fixture
def authorizing(served: Served) -> Any:
    return Authorizing(port=served.port, token=served.world.ann.token)
