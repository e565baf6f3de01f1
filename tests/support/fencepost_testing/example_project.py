"""The project of several agents in examples/, run as a person runs it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fencepost_testing.processes import environment, left_behind, short_home

PROGRAM: Final = Path(__file__).resolve().parents[3] / "examples" / "project" / "project.py"
# A person's machine takes a quarter of a minute; one that is busy with other tests may take its time.
LIMIT_S: Final = 150
RUN_S_MAX: Final = 170
END_S_MAX: Final = 60
# Both below: a test that runs it ends later than the program would by itself.
TEST_S_MAX: Final = 240


@contextlib.contextmanager
def _program() -> Iterator[subprocess.Popen[str]]:
    """Run it; afterwards neither a process nor a file may be left."""
    with short_home() as home:
        folder = home.path.parent
        with subprocess.Popen(
            [sys.executable, str(PROGRAM), str(LIMIT_S)],
            env=environment(home, {"TMPDIR": str(folder)}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as running:
            try:
                yield running
            finally:
                if running.poll() is None:
                    # Never killed: it has services of its own to end.
                    running.terminate()
                    running.communicate(timeout=END_S_MAX)
        assert list(folder.iterdir()) == []
        assert left_behind(str(folder)) == []


def played() -> list[str]:
    """Play it to its end, and return the claims that it says hold."""
    with _program() as running:
        said, _ = running.communicate(timeout=RUN_S_MAX)
    assert running.returncode == 0, said
    assert "FAILED" not in said
    lines = [line.split(maxsplit=1) for line in said.splitlines()]
    return [words[1] for words in lines if words[:1] == ["ok"]]


def interrupted() -> int:
    """Interrupt it when its services are up, and return its exit status."""
    with _program() as running:
        assert running.stdout is not None
        for line in running.stdout:
            if "the services are ready" in line:
                break
        running.send_signal(signal.SIGINT)
        said, _ = running.communicate(timeout=END_S_MAX)
    assert "Interrupted." in said, said
    return running.returncode
