"""The real Codex, started by the adapter: its model is scripted, its network is loopback alone.

The list of adapter behaviours runs over it as over every other program; below it stands what only the real one can show.
FENCEPOST_CODEX_PROGRAM names another program than the pinned one: each certified version ran this file.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from fencepost_providers.adapters.base import Runtime, StartFailed
from fencepost_providers.adapters.codex.rpc import Connection
from fencepost_providers.adapters.codex.versions import CERTIFIED
from fencepost_providers.domain.runtimes import (
    Accepted,
    Interruption,
    Mode,
    NotSubmitted,
    State,
    TurnStatus,
    Uncertain,
    Visible,
)
from fencepost_testing.adapter_benches import Aside, Bench, Heard, Hold, Say, Silence, Starter, processes_of
from fencepost_testing.codex_benches import RealCodexBench, real_codex_bench
from fencepost_testing.codex_real import NoNamespace, RealCodex, real_codex
from fencepost_testing.real_programs import NotInstalled, installed

ROOT: Final = Path(__file__).resolve().parents[2]
PROGRAMS: Final = ROOT / "build" / "e2e" / "programs"
STEERS: Final = 20


def _behaviours() -> Any:
    spec = importlib.util.spec_from_file_location("behaviours", ROOT / "tests/contract/adapters/test_behaviours.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# A need for a person's action takes a model that wants to leave its sandbox: tests/unit holds it, from a recording.
NOT_HERE: Final = {"test_a_need_for_a_persons_action_is_told_with_what_is_asked_and_cleared"}
globals().update(
    {name: test for name, test in vars(_behaviours()).items() if name.startswith("test_") and name not in NOT_HERE}
)


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealCodex]:
    """The program, or the reason why it is not run."""
    named = os.environ.get("FENCEPOST_CODEX_PROGRAM")
    try:
        program = Path(named) if named else installed(PROGRAMS, "codex")
        with real_codex(tmp_path / "agent", tmp_path / "model", program) as found:
            yield found
    except (NotInstalled, NoNamespace) as error:
        pytest.skip(f"codex was not run: {error}")


@pytest.fixture
def bench(real: RealCodex) -> Iterator[RealCodexBench]:
    yield real_codex_bench(real.folder, real)
    assert not processes_of(real.folder), "left behind"


@pytest.fixture
async def start(bench: RealCodexBench) -> AsyncIterator[Starter]:
    running: list[Runtime] = []

    async def started(**changes: object) -> tuple[Runtime, Heard]:
        heard = Heard()
        runtime = await bench.adapter.start(bench.plan(**changes), heard)
        running.append(runtime)
        return runtime, heard

    yield started
    for runtime in running:
        await runtime.stop()
