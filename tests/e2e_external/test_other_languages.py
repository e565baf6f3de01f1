"""Clients in other languages, as docs/howto/other-languages.md shows them, against running services."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from fencepost import certs
from fencepost.home import MAILBOX, SESSIONS, Home
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost_testing.fake_mailbox import TOKEN, FakeMailbox, fail
from fencepost_testing.processes import KnownAgent, Services, create_agents, environment, short_home

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "build" / "clients"
INSTALL_S_MAX: Final = 300
RUN_S_MAX: Final = 60
# Debian's packages, which need no module proxy: golang-go, golang-google-grpc-dev, protoc-gen-go, protoc-gen-go-grpc.
GO_CODE: Final = Path("/usr/share/gocode")
GO_PROGRAMS: Final = ("go", "protoc-gen-go", "protoc-gen-go-grpc")
WAYS: Final = ("socket", "tls")
# What the example's package.json asks for.
NODE_MAJOR_MIN: Final = 20
OPTIONAL: Final = "FENCEPOST_TESTS_CLIENTS_OPTIONAL"


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


def copied(name: str, target: Path) -> Path:
    """A copy of an example where it may install what it needs."""
    shutil.copytree(ROOT / "examples" / name, target, dirs_exist_ok=True)
    return target


def done(command: list[str], folder: Path, extra: dict[str, str] | None = None) -> None:
    finished = subprocess.run(
        command,
        cwd=folder,
        timeout=INSTALL_S_MAX,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(extra or {})},
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr


def missing(what: str) -> None:
    """A tool is not there: `make clients` leaves its client out and says so, `make e2e` fails."""
    if os.environ.get(OPTIONAL):
        pytest.skip(f"the client was not run: {what}")
    raise AssertionError(what)


def node_program(request: pytest.FixtureRequest) -> str:
    """The machine's own Node where it is new enough for the example, else the one that make e2e installs."""
    own = shutil.which("node")
    if own is not None:
        said = subprocess.run([own, "--version"], capture_output=True, text=True, timeout=RUN_S_MAX, check=False).stdout
        if said.startswith("v") and int(said[1:].split(".")[0]) >= NODE_MAJOR_MIN:
            return own
    return str(request.getfixturevalue("node").folder / "node_modules" / "node" / "bin" / "node")


@pytest.fixture(scope="module")
def node_agent(request: pytest.FixtureRequest) -> list[str]:
    # The client looks for the protos where they lie from examples/node.
    shutil.copytree(ROOT / "protos", FOLDER / "protos", dirs_exist_ok=True)
    folder = copied("node", FOLDER / "examples" / "node")
    wanted, installed = (folder / "package.json").read_text(), folder / "installed.json"
    npm = shutil.which("npm")
    if npm is None:
        missing("npm is not installed")
    elif not (installed.is_file() and installed.read_text() == wanted):
        try:
            done([npm, "install", "--no-audit", "--no-fund", "--no-progress", "--no-package-lock"], folder)
        except (AssertionError, subprocess.TimeoutExpired) as failed:
            missing(f"npm could not install what it needs: {str(failed)[-500:]}")
        installed.write_text(wanted)
    return [node_program(request), str(folder / "agent.mjs")]


@pytest.fixture(scope="module")
def go_agent() -> list[str]:
    absent = [program for program in GO_PROGRAMS if shutil.which(program) is None]
    if not (GO_CODE / "src" / "google.golang.org" / "grpc").is_dir():
        absent.append("golang-google-grpc-dev")
    if absent:
        pytest.skip(f"the Go client was not built: {', '.join(absent)} not installed")
    path = FOLDER / "gopath"
    folder = copied("go", path / "src" / "fencepost.example" / "agent")
    buf = Path(sys.executable).parent / "buf"
    done([str(buf), "generate", "--template", "buf.gen.yaml", str(ROOT / "protos")], folder)
    build = ["go", "build", "-tags", "debian", "-o", "agent", "."]
    done(build, folder, {"GO111MODULE": "off", "GOPATH": f"{path}{os.pathsep}{GO_CODE}"})
    return [str(folder / "agent")]


async def ran(command: list[str], env: dict[str, str]) -> tuple[int, str, str]:
    """Run a program to its end; return its status, output and errors."""
    child = await asyncio.create_subprocess_exec(
        *command,
        env=env,
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


async def told(served: Served, program: list[str], name: str, way: str, *words: str) -> tuple[int, list[Any], str]:
    """Run a client as an agent; return its status, what it printed, and its errors."""
    command = [*program, *served.arguments(name, way), *words]
    status, out, err = await ran(command, environment(served.home, served.variables(name, way)))
    return status, [json.loads(line) for line in out.splitlines()], err


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


@pytest.mark.requirement("ways.other-languages")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("way", WAYS)
async def test_a_go_client_exchanges_and_reads_refusals(services: Served, go_agent: list[str], way: str) -> None:
    await exchange(services, go_agent, way)


async def written_and_lost(fake: FakeMailbox, request: Any, context: Any) -> None:
    """The service writes, and its answer is lost."""
    fake.write(request)
    await fail(grpc.StatusCode.UNAVAILABLE)(fake, request, context)


async def settles(program: list[str], tmp_path: Path) -> None:
    """A lost answer becomes the receipt, or proof that nothing was written, and the call is never sent twice."""
    credential = tmp_path / "credential"
    credential.write_text(TOKEN)
    with short_home() as home:
        home.prepare()
        fake = FakeMailbox(home)
        await fake.start()
        try:
            extra = {"FENCEPOST_CREDENTIAL_FILE": str(credential)}

            async def send() -> tuple[int, str, str]:
                status, out, err = await ran([*program, "send", "bob", "x"], environment(home, extra))
                return status, out, err

            fake.next("Send", written_and_lost)
            status, out, err = await send()
            assert (status, json.loads(out)["record_id"]) == (0, "inf_1"), err
            fake.next("Send", fail(grpc.StatusCode.INTERNAL))
            status, _, err = await send()
            assert (status, err.strip()) == (1, "nothing was written; take a new key")
            fake.next("Send", fail(grpc.StatusCode.INTERNAL))
            fake.settlement = pb.SettleKeyResponse(settlement=pb.SETTLEMENT_UNKNOWN)
            status, _, err = await send()
            assert (status, "nothing was written" in err) == (1, False)
            assert fake.calls.count("Send") == fake.calls.count("SettleKey") == 3
            assert len(fake.records) == 1
        finally:
            await fake.stop()


@pytest.mark.requirement("ways.other-languages")
@pytest.mark.timeout(400)
async def test_a_node_client_settles_lost_answers(node_agent: list[str], tmp_path: Path) -> None:
    await settles(node_agent, tmp_path)


@pytest.mark.requirement("ways.other-languages")
@pytest.mark.timeout(400)
async def test_a_go_client_settles_lost_answers(go_agent: list[str], tmp_path: Path) -> None:
    await settles(go_agent, tmp_path)
