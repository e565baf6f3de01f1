"""The agent programs over which the adapter behaviours are tested. Another one joins BENCHES and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest
import uvloop

from fencepost_providers.adapters.base import Runtime
from fencepost_testing.adapter_benches import Bench, Heard, ScriptedBench, Starter, processes_of
from fencepost_testing.codex_benches import fake_codex

BENCHES: Mapping[str, Callable[[Path], contextlib.AbstractAsyncContextManager[Bench]]] = {
    "codex": fake_codex,
    "scripted": lambda folder: contextlib.nullcontext(ScriptedBench(folder)),
}


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run the tests of this folder under the loop on which the service runs."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(params=BENCHES)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    """One agent program with a folder of its own."""
    folder = tmp_path / "agent"
    folder.mkdir()
    async with BENCHES[request.param](folder) as made:
        yield made
    assert not processes_of(folder), "left behind"


@pytest.fixture
async def start(bench: Bench) -> AsyncIterator[Starter]:
    """Starts runtimes of the bench's agent; whatever runs at the end of the test is stopped."""
    running: list[Runtime] = []

    async def started(**changes: object) -> tuple[Runtime, Heard]:
        heard = Heard()
        runtime = await bench.adapter.start(bench.plan(**changes), heard)
        running.append(runtime)
        return runtime, heard

    yield started
    for runtime in running:
        await runtime.stop()
