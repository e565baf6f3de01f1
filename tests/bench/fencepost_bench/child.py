"""Measuring processes: each loads or measures one thing and does nothing between two commands.

Commands and answers are JSON lines on standard input and output.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from fencepost_bench.rows import Unmeasured

from fencepost_kit import launch

BENCH: Final = Path(__file__).resolve().parents[1]
SUPPORT: Final = BENCH.parent / "support"
ANSWER_S_MAX: Final = 120.0
END_S_MAX: Final = 10.0


class Child:
    """A process that runs one module of this package and dies with its parent."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._module = module
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
        path = os.pathsep.join(filter(None, (str(BENCH), str(SUPPORT), kept.get("PYTHONPATH", ""))))
        program = [sys.executable, "-P", "-m", f"fencepost_bench.{module}", *arguments]
        self._process = subprocess.Popen(
            [sys.executable, "-IS", str(Path(launch.__file__)), str(os.getpid()), "--", *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**kept, "PYTHONPATH": path, "GRPC_VERBOSITY": "ERROR"},
            bufsize=0,
        )
        self._received = b""

    @property
    def pid(self) -> int:
        """Its process id; the launcher becomes the program."""
        return self._process.pid

    def ask(self, do: str, **arguments: Any) -> Any:
        """Let it do something and return its answer.

        Raises:
            Unmeasured: it failed, ended, or did not answer within ANSWER_S_MAX.
        """
        self.begin(do, **arguments)
        return self.answer()

    def begin(self, do: str, **arguments: Any) -> None:
        """Send a command without waiting; answer() returns what became of it."""
        assert self._process.stdin is not None
        line = memoryview(json.dumps({"do": do, **arguments}).encode() + b"\n")
        try:
            while line:
                line = line[self._process.stdin.write(line) :]
        except BrokenPipeError:
            raise Unmeasured(f"the process {self._module} has ended") from None

    def answer(self) -> Any:
        """Return the answer to the command begun last."""
        assert self._process.stdout is not None
        descriptor, until = self._process.stdout.fileno(), time.monotonic() + ANSWER_S_MAX
        while b"\n" not in self._received:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, until - time.monotonic()))
            data = os.read(descriptor, 1 << 20) if ready else b""
            if not data:
                why = "ended" if ready else f"did not answer within {ANSWER_S_MAX:.0f} s"
                raise Unmeasured(f"the process {self._module} {why}")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        answer = json.loads(line)
        if "error" in answer:
            raise Unmeasured(f"{self._module}: {answer['error']}")
        return answer["result"]

    def close(self) -> None:
        """End its input, then it, and join it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(END_S_MAX)
        assert self._process.stdout is not None
        self._process.stdout.close()


def _say(answer: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def serve(handlers: Mapping[str, Callable[..., Any]]) -> None:
    """Answer commands until the input ends."""
    for line in sys.stdin:
        command = json.loads(line)
        try:
            _say({"result": handlers[command.pop("do")](**command)})
        except Exception as error:  # noqa: BLE001 - the parent decides what a failure means
            _say({"error": f"{type(error).__name__}: {error}"})


async def serve_async(handlers: Mapping[str, Callable[..., Awaitable[Any]]]) -> None:
    """Answer commands until the input ends, on the running loop."""
    # What is loaded stays: a full collection of the measuring process would show as a slow call.
    gc.collect()
    gc.freeze()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        try:
            _say({"result": await handlers[command.pop("do")](**command)})
        except Exception as error:  # noqa: BLE001 - the parent decides what a failure means
            _say({"error": f"{type(error).__name__}: {error}"})
