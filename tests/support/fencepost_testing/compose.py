"""Fake services, alone or under the real supervisor, for tests of the supervisor and of serving."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fencepost import up
from fencepost.home import Home
from fencepost.up.table import Row, table_to_json
from fencepost_testing.processes import dying_with_us, environment

FAKES = {name: f"fencepost_testing.fakes.{name}" for name in ("alpha", "beta", "gamma")}
TABLE = (
    Row(name="alpha", module=FAKES["alpha"], ready_ms_max=30_000),
    Row(name="beta", module=FAKES["beta"], after=("alpha",), ready_ms_max=30_000),
    Row(name="gamma", module=FAKES["gamma"], after=("beta",), ready_ms_max=30_000),
)
WAIT_S_MAX = 40.0
POLL_S = 0.02


def until(condition: Callable[[], Any], what: str, *, timeout_s: float = WAIT_S_MAX) -> Any:
    """Poll until `condition` gives something true, and return it."""
    end = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} did not happen within {timeout_s} s"
        time.sleep(POLL_S)
    return found


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    if sys.platform != "linux":
        found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return bool(found.stdout.strip()) and "Z" not in found.stdout
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Up:
    """`fencepost up` over fakes, as a process of its own."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._started: list[subprocess.Popen[str]] = []

    def plan(self, name: str, **behaviour: Any) -> None:
        """Say what the next lives of a fake do."""
        folder = self.home.path / "fake"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.home.path.chmod(0o700)
        (folder / f"{name}.json").write_text(json.dumps(behaviour))

    def command(self, *arguments: str, table: tuple[Row, ...] = TABLE) -> list[str]:
        program = [sys.executable, "-P", "-m", "fencepost.up", "--home", str(self.home.path)]
        return [*program, "--table", table_to_json(table), *arguments]

    def spawn(
        self, *arguments: str, env: dict[str, str] | None = None, table: tuple[Row, ...] = TABLE
    ) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            dying_with_us(*self.command(*arguments, table=table)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(self.home, env),
            text=True,
        )
        self._started.append(child)
        return child

    def run(
        self, *arguments: str, env: dict[str, str] | None = None, table: tuple[Row, ...] = TABLE
    ) -> tuple[int, str]:
        """Run to the end."""
        child = self.spawn(*arguments, env=env, table=table)
        output, _ = child.communicate(timeout=40)
        return child.returncode, output

    def ready(self) -> up.Status:
        return self.overall(up.Overall.READY)

    def overall(self, wanted: up.Overall) -> up.Status:
        """Wait until the whole stands there."""

        def look() -> up.Status | None:
            found = up.status(self.home)
            return found if found.running and found.overall is wanted else None

        try:
            status: up.Status = until(look, f"the phase {wanted.value}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{up.status(self.home)}\n{self.logs()}") from None
        return status

    def service(self, name: str) -> up.ServiceStatus:
        return next(service for service in up.status(self.home).services if service.name == name)

    def events(self) -> list[tuple[str, str]]:
        """What the fakes have done, in order: name and event."""
        return [(line.split()[0], line.split()[1]) for line in self._event_lines()]

    def _event_lines(self) -> list[str]:
        try:
            return (self.home.path / "fake" / "events").read_text().splitlines()
        except FileNotFoundError:
            return []

    def pids(self) -> set[int]:
        """Every process that a fake has ever been."""
        return {int(line.split()[2]) for line in self._event_lines()}

    def logs(self) -> str:
        return "\n".join(
            f"--- {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.home.logs.glob("*.log*"))
        )

    def end(self, child: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str]:
        """Signal a supervisor that this object started, and join it."""
        child.send_signal(number)
        output, _ = child.communicate(timeout=30)
        return child.returncode, output

    def close(self) -> None:
        if up.status(self.home).running:
            up.stop(self.home, 20)
        for child in self._started:
            if child.poll() is None:
                child.kill()
            child.communicate(timeout=10)
