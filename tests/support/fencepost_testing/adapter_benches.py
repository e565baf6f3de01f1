"""What the list of adapter behaviours needs of each agent program: a bench that prepares plans, work and looks.

A bench says what a program does with a piece of work in acts that every program understands; how it gets its program to
do them is its own matter. `ScriptedBench` is the one for our own program; another one offers the same and joins the
list in tests/contract/adapters/conftest.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

from fencepost_providers.adapters.base import Adapter, Runtime
from fencepost_providers.adapters.scripted import ScriptedAdapter
from fencepost_providers.domain.runtimes import (
    Activity,
    Closed,
    Delivery,
    LaunchPlan,
    LaunchSettings,
    McpServer,
    Row,
    State,
    TurnEnd,
)

WAIT_S_MAX: Final = 20.0
POLL_S: Final = 0.005


# --- acts: what the program shall do with a piece of work -------------------------------------------------------------


@dataclass(frozen=True)
class Say:
    """Say a final answer."""

    text: str


@dataclass(frozen=True)
class Aside:
    """Say something that is commentary, and not the answer."""

    text: str


@dataclass(frozen=True)
class Long:
    """Say a final answer of so many bytes."""

    size: int


@dataclass(frozen=True)
class Silence:
    """Say nothing."""


@dataclass(frozen=True)
class Hold:
    """Go on only when the bench opens the gate."""

    gate: str


@dataclass(frozen=True)
class Fail:
    """Fail the turn."""

    detail: str


@dataclass(frozen=True)
class Ask:
    """Need a person's action, until the bench answers."""

    detail: str


Act = Say | Aside | Long | Silence | Hold | Fail | Ask


class Heard:
    """A listener that keeps everything, in order."""

    def __init__(self) -> None:
        self.all: list[Activity | TurnEnd | Row | Closed] = []
        self._changed = asyncio.Event()

    def activity(self, activity: Activity) -> None:
        self._keep(activity)

    def turn_ended(self, end: TurnEnd) -> None:
        self._keep(end)

    def row(self, row: Row) -> None:
        self._keep(row)

    def closed(self, closed: Closed) -> None:
        self._keep(closed)

    def _keep(self, said: Activity | TurnEnd | Row | Closed) -> None:
        self.all.append(said)
        self._changed.set()

    @property
    def activities(self) -> list[Activity]:
        return [said for said in self.all if isinstance(said, Activity)]

    @property
    def ends(self) -> list[TurnEnd]:
        return [said for said in self.all if isinstance(said, TurnEnd)]

    @property
    def closings(self) -> list[Closed]:
        return [said for said in self.all if isinstance(said, Closed)]

    async def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait until something is so; fail with everything that was heard where it does not come."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S_MAX):
                while not is_so():
                    self._changed.clear()
                    await self._changed.wait()
        assert is_so(), f"never heard: {what}; heard: {self.all}"

    async def end_of(self, turn_id: str) -> TurnEnd:
        """Wait for the end of a turn."""
        await self.until(lambda: any(end.turn_id == turn_id for end in self.ends), f"the end of {turn_id}")
        return next(end for end in self.ends if end.turn_id == turn_id)

    async def idle(self) -> None:
        """Wait until the last activity is idle."""
        await self.until(lambda: bool(self.activities) and self.activities[-1].state is State.IDLE, "idle")

    async def close(self) -> Closed:
        """Wait until the runtime has ended."""
        await self.until(lambda: bool(self.closings), "closed")
        return self.closings[0]


class Bench(Protocol):
    """One agent program, ready to be tested."""

    adapter: Adapter
    folder: Path

    def plan(self, **changes: Any) -> LaunchPlan:
        """Return a plan for the one agent of this bench."""
        ...

    def delivery(self, *acts: Act, kind: str = "request", body: str = "do it") -> Delivery:
        """Return a record of which the program makes the acts, whatever its body says."""
        ...

    def open(self, gate: str) -> None:
        """Let whatever is held at a gate go on."""
        ...

    async def answer(self, runtime: Runtime) -> None:
        """Do, as the person would, what an Ask asks for."""
        ...

    async def executions(self) -> Sequence[str]:
        """Return the record ids of work that the program executed, once for each time."""
        ...

    async def body_of(self, record_id: str) -> str:
        """Return a record's body as the program's conversation holds it."""
        ...

    async def kill(self, runtime: Runtime) -> None:
        """Kill the program, as a crash would."""
        ...


def processes_of(folder: Path) -> dict[int, str]:
    """Return pid and command line of every process whose arguments or environment name the folder."""
    wanted = os.fsencode(folder)
    found: dict[int, str] = {}
    for place in Path("/proc").iterdir():
        if not place.name.isdigit() or int(place.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            arguments = (place / "cmdline").read_bytes()
            if wanted in arguments or wanted in (place / "environ").read_bytes():
                found[int(place.name)] = arguments.replace(b"\0", b" ").decode("utf-8", "replace")
    return found


async def until(is_so: Callable[[], bool], what: str) -> None:
    """Poll until something is so, at most WAIT_S_MAX."""
    loop = asyncio.get_running_loop()
    late = loop.time() + WAIT_S_MAX
    while not is_so():
        assert loop.time() < late, f"never so: {what}"
        await asyncio.sleep(POLL_S)


def contents_of(folder: Path) -> Mapping[str, bytes]:
    """Return what every file of a folder holds, by its name below it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# --- our own program --------------------------------------------------------------------------------------------------


@dataclass
class ScriptedBench:
    """The scripted program. `script` is what its script file says besides the records; save() writes it."""

    folder: Path
    adapter: ScriptedAdapter = field(default_factory=ScriptedAdapter)
    script: dict[str, Any] = field(default_factory=dict)
    answer_ms: int = 20_000
    _records: dict[str, list[str]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _agent_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def private(self) -> Path:
        return self.folder / "scripted"

    def plan(self, **changes: Any) -> LaunchPlan:
        self.save()
        plan = LaunchPlan(
            agent_id=self._agent_id,
            name="ann",
            generation=1,
            workspace=str(self.folder),
            folder=str(self.folder),
            settings=LaunchSettings(custom_arguments=("--answer-ms", str(self.answer_ms))),
            mcp=McpServer(command="/bin/false", arguments=()),
        )
        return replace(plan, **changes)

    def delivery(self, *acts: Act, kind: str = "request", body: str = "do it") -> Delivery:
        return self.scripted(*(step for act in acts or (Say("done"),) for step in _steps(act)), kind=kind, body=body)

    def scripted(self, *steps: str, kind: str = "request", body: str = "do it") -> Delivery:
        """Return a record with which the program does these directives."""
        record_id = f"{kind}-{next(self._numbers)}"
        self._records[record_id] = list(steps)
        self.save()
        return Delivery(record_id=record_id, kind=kind, sender="bob", sender_id=str(uuid.uuid4()), body=body)

    def save(self) -> None:
        self.private.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self.private / "script.json.new"
        draft.write_text(json.dumps({**self.script, "records": self._records}), encoding="utf-8")
        draft.replace(self.private / "script.json")

    def open(self, gate: str) -> None:
        (self.private / "gates").mkdir(exist_ok=True)
        (self.private / "gates" / gate).touch()

    async def answer(self, runtime: Runtime) -> None:
        self.open("answered")

    async def executions(self) -> Sequence[str]:
        log = self.private / "executions.log"
        return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []

    async def body_of(self, record_id: str) -> str:
        said = [
            json.loads(line)
            for path in (self.private / "conversations").iterdir()
            for line in path.read_text(encoding="utf-8").splitlines()
        ]
        (found,) = (str(row["text"]) for row in said if row.get("record") == record_id)
        return found

    async def kill(self, runtime: Runtime) -> None:
        os.kill(runtime.pid, 9)


def _steps(act: Act) -> list[str]:
    match act:
        case Say(text):
            return [f"SAY {text}"]
        case Aside(text):
            return [f"COMMENTARY {text}"]
        case Long(size):
            return [f"BIG {size}"]
        case Silence():
            return ["NOTEXT"]
        case Hold(gate):
            return [f"WAIT {gate}"]
        case Fail(detail):
            return [f"FAIL {detail}"]
        case Ask(detail):
            return [f"ASK {detail}", "WAIT answered", "ANSWERED"]


Starter = Callable[..., Awaitable[tuple[Runtime, Heard]]]
