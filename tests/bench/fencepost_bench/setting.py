"""Everything that the measurements share: the services, the measuring processes, and how they are taken down."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

from fencepost_bench.child import Child
from fencepost_bench.homes import BUILD, BenchHome, create_agents

from fencepost.home import MAILBOX, MCP_EDGE, SESSIONS

SENDERS: Final = tuple(f"sender-{number}" for number in range(4))
RECIPIENTS: Final = tuple(f"recipient-{number}" for number in range(8))
WARM_SENDS_S: Final = 1.0


class Setting:
    """Opened on first use, closed together. `windows` is how often each thing is measured."""

    def __init__(self, windows: int) -> None:
        self.windows = windows
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def keep(self, opened: Any) -> Any:
        """Close something with the setting, before what was opened earlier; return it."""
        self._exit.callback(opened.close)
        return opened

    def child(self, module: str, *arguments: str) -> Child:
        """Start a measuring process that ends with the setting."""
        return self.keep(Child(module, *arguments))  # type: ignore[no-any-return]

    @cached_property
    def load(self) -> Child:
        """The callers."""
        return self.child("load")

    @cached_property
    def disk(self) -> Child:
        """Raw syncs and the store alone, on the disk that the homes lie on."""
        disk = self.child("disk")
        folder = BUILD / "disk"
        shutil.rmtree(folder, ignore_errors=True)
        self._exit.callback(shutil.rmtree, folder, ignore_errors=True)
        disk.ask("open", folder=str(folder))
        return disk

    @cached_property
    def stdio(self) -> Child:
        """Agent programs."""
        return self.child("stdio")

    @cached_property
    def echo(self) -> Child:
        """The echo, known to the callers under its own name."""
        folder = Path(tempfile.mkdtemp(prefix="fpb")).resolve()
        self._exit.callback(shutil.rmtree, folder, ignore_errors=True)
        echo = self.child("echo", str(folder / "echo.sock"))
        token = f"fp_{uuid.uuid4().hex}{'0' * 11}"
        echo.ask("learn", tokens=[token])
        self.load.ask(
            "connect", server="echo", address=f"unix:{folder / 'echo.sock'}", senders=[token], recipients=["recipient"]
        )
        return echo

    @cached_property
    def main(self) -> BenchHome:
        """A home whose services are as they are started for anybody, and a log that has reached its size."""
        return self._opened("main", (SESSIONS, MAILBOX), clocked=False)

    @cached_property
    def clocked(self) -> BenchHome:
        """A home with an edge, whose mailbox also tells when its commits began and ended."""
        return self._opened("clocked", (SESSIONS, MAILBOX, MCP_EDGE), clocked=True)

    def _opened(self, name: str, services: Sequence[str], *, clocked: bool) -> BenchHome:
        bench: BenchHome = self.keep(BenchHome(name, clocked=clocked))
        start(bench, services)
        asyncio.run(create_agents(bench, (*SENDERS, *RECIPIENTS)))
        self.introduce(name, bench, SENDERS, RECIPIENTS)
        self.load.ask("sends", server=name, callers=1, seconds=WARM_SENDS_S)
        return bench

    def introduce(self, server: str, bench: BenchHome, senders: Sequence[str], recipients: Sequence[str]) -> None:
        """Let the callers know the mailbox of a home."""
        agents = bench.agents()
        self.load.ask(
            "connect",
            server=server,
            address=bench.address(MAILBOX),
            senders=[agents[name]["token"] for name in senders],
            recipients=list(recipients),
        )

    def echoes(self, callers: int, seconds: float) -> Callable[[], dict[str, float]]:
        """Return a window of the echo."""
        assert self.echo.pid
        return lambda: self.load.ask("sends", server="echo", callers=callers, seconds=seconds)


def start(bench: BenchHome, names: Sequence[str]) -> None:
    """Start services of a home, each ready before the next."""
    asyncio.run(bench.services.start(*names))
