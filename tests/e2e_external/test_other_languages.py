"""Clients in other languages, as docs/howto/other-languages.md shows them, against running services."""

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

from fencepost import certs
from fencepost.home import MAILBOX, SESSIONS, Home
from fencepost_testing.processes import KnownAgent, Services, create_agents, environment, short_home

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "build" / "clients"
INSTALL_S_MAX: Final = 300
RUN_S_MAX: Final = 60
WAYS: Final = ("socket", "tls")


@dataclass(frozen=True, kw_only=True)
class Served:
    """Services that listen on a port too, two agents, and certificates."""

    home: Home
    port: int
    agents: dict[str, KnownAgent]

    def arguments(self, name: str, way: str) -> list[str]:
        if way == "socket":
            return []
        certificates = self.home.certificates / "issued" / "guest"
        credential = self.agents[name].credential_file
        # By name: Node warns of an address as the name of a TLS server.
        tls = ["--tls", f"localhost:{self.port}"]
        return [*tls, "--certificates", str(certificates), "--credential", str(credential)]

    def variables(self, name: str, way: str) -> dict[str, str]:
        if way == "tls":
            return {}
        return {"FENCEPOST_SESSION_ID": self.agents[name].agent_id}


@pytest.fixture(scope="module")
def services() -> Iterator[Served]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with short_home() as home:
        certs.init(home)
        certs.issue(home, "guest")
        running = Services(home, env={"FENCEPOST_MAILBOX_LISTEN": str(port)})
        try:
            agents = asyncio.run(_started(running))
            yield Served(home=home, port=port, agents=agents)
        finally:
            running.close()
            running.print_logs()


async def _started(running: Services) -> dict[str, KnownAgent]:
    await running.start(SESSIONS, MAILBOX)
    return await create_agents(running, "ann", "bob")


def copied(name: str) -> Path:
    """A copy of an example beside a copy of the protos, where it may install what it needs."""
    target = FOLDER / "examples" / name
    shutil.copytree(ROOT / "protos", FOLDER / "protos", dirs_exist_ok=True)
    shutil.copytree(ROOT / "examples" / name, target, dirs_exist_ok=True)
    return target


def done(command: list[str], folder: Path) -> None:
    finished = subprocess.run(
        command,
        cwd=folder,
        timeout=INSTALL_S_MAX,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr


@pytest.fixture(scope="module")
def node_agent(node: Any) -> list[str]:
    folder = copied("node")
    wanted, installed = (folder / "package.json").read_text(), folder / "installed.json"
    if not (installed.is_file() and installed.read_text() == wanted):
        npm = shutil.which("npm")
        assert npm is not None, "make e2e needs npm"
        done([npm, "install", "--no-audit", "--no-fund", "--no-progress", "--no-package-lock"], folder)
        installed.write_text(wanted)
    return [str(node.folder / "node_modules" / "node" / "bin" / "node"), str(folder / "agent.mjs")]


async def told(served: Served, program: list[str], name: str, way: str, *words: str) -> tuple[int, list[Any], str]:
    """Run a client as an agent; return its status, what it printed, and its errors."""
    child = await asyncio.create_subprocess_exec(
        *program,
        *served.arguments(name, way),
        *words,
        env=environment(served.home, served.variables(name, way)),
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
    return child.returncode or 0, [json.loads(line) for line in out.decode().splitlines()], err.decode()


async def exchange(served: Served, program: list[str], way: str) -> None:
    """Ann sends and asks; bob answers; ann reads; a refusal keeps its reason and hint."""

    async def ok(name: str, *words: str) -> list[Any]:
        status, answers, errors = await told(served, program, name, way, *words)
        assert status == 0, errors
        return answers

    (sent,) = await ok("ann", "send", "bob", "Grüße ✓")
    (asked,) = await ok("ann", "request", "bob", "how many?")
    (replied,) = await ok("bob", "answer", "three")
    (reply,) = await ok("ann", "inbox")
    assert (reply["record_id"], reply["body"]) == (replied["record_id"], "three")
    assert reply["parent_id"] == asked["request_id"] != sent["record_id"]
    assert await ok("ann", "inbox") == []
    status, _, errors = await told(served, program, "ann", way, "send", "nobody", "x")
    assert status == 2
    assert "not_found" in errors
    assert len(errors.splitlines()) == 2


@pytest.mark.requirement("ways.other-languages")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("way", WAYS)
async def test_a_node_client_exchanges_and_reads_refusals(services: Served, node_agent: list[str], way: str) -> None:
    await exchange(services, node_agent, way)
