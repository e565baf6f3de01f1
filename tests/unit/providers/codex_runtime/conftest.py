"""Codex with a stand-in for its program, which misbehaves where a test wants it to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop

from fencepost_providers.adapters.codex.events import Conversation, Heard
from fencepost_providers.adapters.codex.runtime import CodexRuntime
from fencepost_testing import adapter_benches
from fencepost_testing.adapter_benches import processes_of
from fencepost_testing.codex_benches import FakeCodexBench, fake_codex


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run the tests of this folder under the loop on which the service runs."""
    return {"uvloop": uvloop.new_event_loop}


FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "codex"
Recording = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def recorded() -> Callable[[str], Recording]:
    """What was said, as (direction, message), by the name of a recording."""

    def read(name: str) -> Recording:
        lines = (FIXTURES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        return [(line["dir"], line["msg"]) for line in map(json.loads, lines)]

    return read


@pytest.fixture
def replayed(recorded: Callable[[str], Recording]) -> Callable[..., Iterator[tuple[Conversation, Heard]]]:
    """Folds a recording: yields the conversation and each thing that was heard of it."""

    def replay(name: str, thread_id: str) -> Iterator[tuple[Conversation, Heard]]:
        conversation = Conversation(thread_id)
        for direction, message in recorded(name):
            if direction == "out" and "method" in message:
                for heard in conversation.fold(message):
                    yield conversation, heard

    return replay


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[FakeCodexBench]:
    folder = tmp_path / "agent"
    folder.mkdir()
    async with fake_codex(folder) as made:
        yield made
    assert not processes_of(folder), "left behind"


Start = Callable[..., Any]


@pytest.fixture
async def start(bench: FakeCodexBench) -> AsyncIterator[Start]:
    running: list[CodexRuntime] = []

    async def started(**changes: Any) -> tuple[CodexRuntime, adapter_benches.Heard]:
        heard = adapter_benches.Heard()
        runtime = await bench.adapter.start(bench.plan(**changes), heard)
        running.append(runtime)
        return runtime, heard

    yield started
    bench.open("go")  # a turn that holds there would hold up the server's end as well
    for runtime in running:
        await runtime.stop()
