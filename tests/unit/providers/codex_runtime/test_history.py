"""What Codex writes into an agent's private home comes to its user: at a stop, and while the agent runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost_providers.adapters.codex import runtime as runtime_module
from fencepost_providers.adapters.codex.home import history
from fencepost_providers.adapters.codex.runtime import CodexRuntime
from fencepost_providers.domain.runtimes import LaunchSettings
from fencepost_testing.adapter_benches import until
from fencepost_testing.codex_benches import FakeCodexBench

Start = Callable[..., Any]


def said(bench: FakeCodexBench, text: str) -> None:
    """Let the person at a terminal of the agent say something, as Codex records it."""
    home = Path(bench.adapter.private_home(bench.plan()))
    line = json.dumps({"session_id": "0190f3a2-1111-7222-8333-00000000aaaa", "ts": 1, "text": text})
    with (home / history.HISTORY).open("a") as file:
        file.write(line + "\n")


def central(bench: FakeCodexBench) -> str:
    try:
        return (bench.adapter._native / history.HISTORY).read_text()
    except FileNotFoundError:
        return ""


@pytest.fixture(autouse=True)
def users_own(bench: FakeCodexBench) -> None:
    """The user has a Codex home."""
    bench.adapter._native.mkdir()


@pytest.mark.requirement("codex.history-is-published")
async def test_history_is_published_when_the_runtime_stops(bench: FakeCodexBench, start: Start) -> None:
    runtime, _ = await start()
    said(bench, "before the stop")
    await runtime.stop()
    assert "before the stop" in central(bench)


@pytest.mark.requirement("codex.history-is-published")
async def test_history_is_published_now_and_then_while_the_agent_runs(
    bench: FakeCodexBench, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_module, "PUBLISH_EVERY_MS", 20)
    runtime, _ = await start()
    said(bench, "while it runs")
    await until(lambda: "while it runs" in central(bench), "publication")
    # Also after the program has died, and no longer.
    said(bench, "at its end")
    await bench.kill(runtime)
    await until(lambda: "at its end" in central(bench), "the last publication")
    assert isinstance(runtime, CodexRuntime)
    await until(lambda: runtime._publishing is not None and runtime._publishing.done(), "the end of publishing")


@pytest.mark.requirement("codex.effort-alone-keeps-the-model")
async def test_an_effort_alone_gets_the_default_model_of_the_catalogue(bench: FakeCodexBench, start: Start) -> None:
    default = next(model.model for model in (await bench.adapter.models(refresh=True)).models if model.is_default)
    bench.settings = LaunchSettings(effort="high")
    await start()
    words = await bench.adapter.launch_arguments(bench.plan())
    assert f'model="{default}"' in words
