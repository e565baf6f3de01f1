"""Codex for the list of adapter behaviours: a stand-in for `make test`, and the real one for `make e2e`."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shlex
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from fencepost_providers.adapters.base import Runtime
from fencepost_providers.adapters.codex.adapter import CodexAdapter
from fencepost_providers.adapters.codex.rpc import Connection, Json
from fencepost_providers.domain.runtimes import Delivery, LaunchPlan, LaunchSettings, McpServer
from fencepost_testing import codex_server
from fencepost_testing.adapter_benches import Act, Aside, Ask, Fail, Hold, Long, Say, Silence
from fencepost_testing.codex_real import RealCodex

PREFIXES: Final = {"request": "ask", "information": "msg", "reply": "rep", "notice": "ntc", "prompt": "prm"}


def lines_of(act: Act) -> list[tuple[str, str]]:
    """Return an act as both the stand-in and the scripted model read it."""
    match act:
        case Say(text):
            return [("SAY", text)]
        case Aside(text):
            return [("ASIDE", text)]
        case Long(size):
            return [("LONG", str(size))]
        case Silence():
            return [("SILENT", "")]
        case Hold(gate):
            return [("HOLD", gate)]
        case Fail(detail):
            return [("FAIL", detail)]
        case Ask(detail):
            return [("ASK", detail)]


@dataclass
class CodexBench:
    """What both have in common: one agent, its records, and the acts of each."""

    folder: Path
    adapter: CodexAdapter
    scripts: Path
    settings: LaunchSettings = field(default_factory=LaunchSettings)
    _records: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _agent_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def plan(self, **changes: Any) -> LaunchPlan:
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        plan = LaunchPlan(
            agent_id=self._agent_id,
            name="ann",
            generation=1,
            workspace=str(work),
            folder=str(self.folder),
            settings=self.settings,
            mcp=McpServer(command=str(Path(sys.executable).with_name("fencepost-mcp")), arguments=()),
            instructions=("You are Ann.", "Answer in English."),
        )
        return replace(plan, **changes)

    def delivery(self, *acts: Act, kind: str = "request", body: str = "do it") -> Delivery:
        lines = [line for act in acts or (Say("done"),) for line in lines_of(act)]
        return self.scripted(lines, kind=kind, body=body)

    def scripted(self, lines: list[tuple[str, str]], *, kind: str = "request", body: str = "do it") -> Delivery:
        record_id = f"{PREFIXES[kind]}_{next(self._numbers)}{uuid.uuid4().hex[:8]}"
        self._records[record_id] = lines
        draft = self.scripts / "script.new"
        draft.write_text(json.dumps(self._records), encoding="utf-8")
        draft.replace(self.scripts / "script.json")
        return Delivery(record_id=record_id, kind=kind, sender="bob", sender_id=str(uuid.uuid4()), body=body)

    async def answer(self, runtime: Runtime) -> None:
        """Accept, as another client, what the program asks for."""
        asked: asyncio.Future[Json] = asyncio.get_running_loop().create_future()

        def hear(message: Json) -> None:
            if "id" in message and not asked.done():
                asked.set_result(message)

        async with self.another_client(runtime, hear) as client:
            async with asyncio.timeout(20):
                number = (await asked)["id"]
            # The client of ours has no way to answer, and shall have none.
            await client._socket.send(json.dumps({"id": number, "result": {"decision": "accept"}}))
            await client.request("thread/read", {"threadId": runtime.conversation_id})

    @contextlib.asynccontextmanager
    async def another_client(self, runtime: Runtime, hear: Any = lambda _: None) -> AsyncIterator[Connection]:
        """Somebody else who is connected to the same conversation."""
        socket = runtime.server.socket  # type: ignore[attr-defined]
        client = await Connection.open(socket, hear)
        try:
            hello = {"clientInfo": {"name": "person", "version": "1"}, "capabilities": {"experimentalApi": True}}
            await client.request("initialize", hello)
            await client.notify("initialized")
            await client.request("thread/resume", {"threadId": runtime.conversation_id, "excludeTurns": True})
            yield client
        finally:
            await client.close()

    async def kill(self, runtime: Runtime) -> None:
        os.kill(runtime.pid, 9)


class FakeCodexBench(CodexBench):
    """The stand-in."""

    @property
    def control(self) -> Path:
        return self.scripts

    def misbehave(self, *faults: tuple[str, str]) -> None:
        """Have these requests mishandled, each once: see codex_server."""
        draft = self.scripts / "faults.draft"
        draft.write_text(json.dumps(faults), encoding="utf-8")
        draft.replace(self.scripts / "faults.json")

    def want(self, name: str, content: str = "") -> None:
        """Put a file where the stand-in looks for it."""
        (self.scripts / name).write_text(content, encoding="utf-8")

    def unwant(self, name: str) -> None:
        (self.scripts / name).unlink(missing_ok=True)

    def requests(self, method: str = "") -> list[Json]:
        """Return the parameters of the requests that came, of one method or all."""
        lines = (self.scripts / "requests.jsonl").read_text(encoding="utf-8").splitlines()
        return [said["params"] for said in map(json.loads, lines) if method in {"", said["method"]}]

    def open(self, gate: str) -> None:
        (self.scripts / "gates").mkdir(exist_ok=True)
        (self.scripts / "gates" / gate).touch()

    async def executions(self) -> Sequence[str]:
        log = self.scripts / "executions.log"
        return log.read_text(encoding="utf-8").splitlines() if log.exists() else []

    async def body_of(self, record_id: str) -> str:
        home = Path(self.adapter.private_home(self.plan()))
        return "".join(
            body
            for place in (home / "sessions").iterdir()
            for line in place.read_text(encoding="utf-8").splitlines()
            for body in _bodies(json.loads(line).get("item", {}), record_id)
        )


def _bodies(item: Json, record_id: str) -> Iterator[str]:
    if item.get("clientId") == record_id:
        yield str(item["content"][0]["text"])
    framed = json.loads(item.get("output", "{}"))
    if framed.get("interaction_id") == record_id:
        yield str(framed["body"])


@contextlib.asynccontextmanager
async def fake_codex(folder: Path) -> AsyncIterator[FakeCodexBench]:
    """A bench over the stand-in; everything of it lies in the folder, but for what needs a short path."""
    with tempfile.TemporaryDirectory(prefix="fpx") as short:
        yield _fake_codex(folder, Path(short))


def _fake_codex(folder: Path, short: Path) -> FakeCodexBench:
    scripts, person, programs = folder / "bench", folder / "person", folder / "bin"
    for made in (scripts, person, programs):
        made.mkdir()
    words = shlex.join([sys.executable, "-P", str(codex_server.__file__), str(scripts)])
    (programs / "codex").write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
    (programs / "codex").chmod(0o755)
    environment = {
        "HOME": str(person),
        "PATH": f"{programs}:/usr/bin:/bin",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
    adapter = CodexAdapter(environment=environment, compact_roots=(short,))
    return FakeCodexBench(folder=folder, adapter=adapter, scripts=scripts)


@dataclass
class RealCodexBench(CodexBench):
    """The real program, whose model obeys."""

    real: RealCodex | None = None

    def open(self, gate: str) -> None:
        (self.scripts / gate).touch()

    def _history(self) -> list[Json]:
        assert self.real is not None
        asked = self.real.asked()
        return list(asked[-1]["history"]) if asked else []

    async def executions(self) -> Sequence[str]:
        return [one["record"] for one in self._history() if one["who"] == "person" and one["record"]]

    async def body_of(self, record_id: str) -> str:
        return "".join(one["text"] for one in self._history() if one["record"] == record_id)


def real_codex_bench(folder: Path, real: RealCodex) -> RealCodexBench:
    """Return a bench over the real program."""
    return RealCodexBench(
        folder=folder,
        adapter=real.adapter(),
        scripts=real.model,
        settings=LaunchSettings(approval="on-request", sandbox="read-only"),
        real=real,
    )
