"""A person's terminal on an agent's conversation: what proves that it is there, and what does not."""

from __future__ import annotations

import asyncio
import subprocess
import tomllib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost_providers.adapters.base import Attachment, StartFailed
from fencepost_providers.adapters.codex import terminal as under_test
from fencepost_providers.adapters.codex.home.preparation import codex_home
from fencepost_providers.adapters.codex.runtime import CodexRuntime
from fencepost_providers.domain.runtimes import (
    NOTHING_PERMITTED,
    Accepted,
    LaunchSettings,
    NotSubmitted,
    Permits,
    State,
)
from fencepost_testing.adapter_benches import Heard, Hold, Say
from fencepost_testing.codex_benches import FakeCodexBench

Start = Callable[..., Any]


@pytest.fixture
async def person(bench: FakeCodexBench) -> AsyncIterator[Callable[[Attachment], subprocess.Popen[bytes]]]:
    """Somebody who starts the terminal that an attachment describes."""
    terminals: list[subprocess.Popen[bytes]] = []

    def opened(attachment: Attachment) -> subprocess.Popen[bytes]:
        terminal = attachment.terminal
        environment = {**bench.adapter._environment, **terminal.environment}
        child = subprocess.Popen(terminal.argv, env=environment, cwd=terminal.working_directory)
        terminals.append(child)
        return child

    yield opened
    for child in terminals:
        child.kill()
        await asyncio.to_thread(child.wait)


async def works(bench: FakeCodexBench, runtime: CodexRuntime, heard: Heard) -> None:
    submission = await runtime.begin(bench.delivery(Say("it works")))
    assert isinstance(submission, Accepted), submission
    assert (await heard.end_of(submission.binding.turn_id)).final_text == "it works"


@pytest.mark.requirement("codex.terminal-is-proved")
async def test_nothing_is_delivered_before_a_terminal_was_seen_on_the_conversation(
    bench: FakeCodexBench, start: Start, person: Any
) -> None:
    runtime, heard = await start()
    attachment = await runtime.attach(NOTHING_PERMITTED)
    activity = await runtime.activity()
    assert (activity.state, bool(activity.detail)) == (State.ACTION_NEEDED, True)
    for submission in (
        await runtime.begin(bench.delivery()),
        await runtime.show(bench.delivery(kind="information")),
        await runtime.steer(bench.delivery(), "01a2"),
    ):
        assert isinstance(submission, NotSubmitted), submission
        assert submission.code == "terminal_joining"
    terminal = person(attachment)
    await attachment.joined()
    assert terminal.poll() is None
    await heard.idle()
    await works(bench, runtime, heard)
    bench.want("leave")
    async with asyncio.timeout(20):
        await attachment.left()
    await attachment.close()
    await works(bench, runtime, heard)
    assert len(await bench.executions()) == 2


@pytest.mark.requirement("codex.projection-goes-again")
@pytest.mark.parametrize("permits", [NOTHING_PERMITTED, Permits(trust_workspace=True, skip_update_check=True)])
async def test_a_terminal_gets_what_the_operator_permits_it_and_only_while_it_is_attached(
    bench: FakeCodexBench, start: Start, permits: Permits
) -> None:
    runtime, _heard = await start()
    plan = bench.plan()

    def stands() -> tuple[Any, Any]:
        config = tomllib.loads((codex_home(plan) / "config.toml").read_text(encoding="utf-8"))
        trusted = config.get("projects", {}).get(plan.workspace, {}).get("trust_level")
        return trusted, config.get("check_for_update_on_startup")

    before = stands()
    attachment = await runtime.attach(permits)
    assert stands() == (("trusted", False) if permits.trust_workspace else before)
    await attachment.close()
    assert stands() == before == (None, None)


@pytest.mark.requirement("codex.terminal-is-proved")
async def test_a_killed_terminal_has_left(bench: FakeCodexBench, start: Start, person: Any) -> None:
    runtime, heard = await start()
    attachment = await runtime.attach(NOTHING_PERMITTED)
    terminal = person(attachment)
    await attachment.joined()
    leaving = asyncio.ensure_future(attachment.left())
    await asyncio.sleep(0)
    assert not leaving.done()
    terminal.kill()
    async with asyncio.timeout(20):
        await leaving
    await attachment.close()
    await attachment.close()
    await works(bench, runtime, heard)


@pytest.mark.requirement("codex.terminal-is-proved")
async def test_a_terminal_that_silently_works_by_itself_never_passes(
    bench: FakeCodexBench, start: Start, person: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "JOIN_MS_MAX", 500)
    bench.want("embedded")
    runtime, heard = await start()
    attachment = await runtime.attach(NOTHING_PERMITTED)
    person(attachment)
    with pytest.raises(StartFailed) as failed:
        await attachment.joined()
    assert (failed.value.code, failed.value.again) == ("terminal_not_seen", True)
    assert isinstance(await runtime.begin(bench.delivery()), NotSubmitted)
    await attachment.close()
    await works(bench, runtime, heard)
    assert not heard.closings


@pytest.mark.requirement("codex.terminal-is-proved")
async def test_a_terminal_on_another_conversation_is_told_and_nothing_is_delivered(
    bench: FakeCodexBench, start: Start, person: Any
) -> None:
    other, _ = await start()
    await other.stop()
    runtime, _ = await start(generation=2)
    bench.want("opens", other.conversation_id)
    attachment = await runtime.attach(NOTHING_PERMITTED)
    person(attachment)
    with pytest.raises(StartFailed) as failed:
        await attachment.joined()
    assert failed.value.code == "terminal_elsewhere"
    assert other.conversation_id in str(failed.value)
    assert not bench.requests("thread/inject_items")
    await attachment.close()


@pytest.mark.requirement("codex.terminal-is-proved")
async def test_a_terminal_does_not_join_where_the_program_does_not_say_whether_the_conversation_rests(
    bench: FakeCodexBench, start: Start
) -> None:
    runtime, heard = await start()
    assert (await runtime.activity()).state is State.IDLE
    pid = runtime.pid
    bench.misbehave(("thread/read", "refuse not now"))
    with pytest.raises(StartFailed) as failed:
        await runtime.attach(NOTHING_PERMITTED)
    assert (failed.value.code, failed.value.again) == ("activity_unknown", True)
    assert runtime.pid == pid
    await works(bench, runtime, heard)


@pytest.mark.requirement("codex.fence-before-a-start")
async def test_the_word_of_a_server_does_not_count_for_the_one_that_is_started_after_it(
    bench: FakeCodexBench, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost_providers.adapters.codex.runtime.FRESH_MS_MAX", 60_000)
    runtime, heard = await start()
    attachment = await runtime.attach(NOTHING_PERMITTED)
    await attachment.close()
    before = len(bench.requests("thread/read"))
    await works(bench, runtime, heard)
    assert len(bench.requests("thread/read")) == before + 1


@pytest.mark.requirement("codex.terminal-is-proved")
async def test_a_terminal_with_other_settings_than_the_agents_is_refused(
    bench: FakeCodexBench, start: Start, person: Any
) -> None:
    runtime, _ = await start(settings=LaunchSettings(sandbox="workspace-write"))
    attachment = await runtime.attach(NOTHING_PERMITTED)
    person(attachment)
    with pytest.raises(StartFailed) as failed:
        await attachment.joined()
    assert failed.value.code == "terminal_settings_differ"
    assert "workspace-write" in str(failed.value)
    await attachment.close()


async def test_a_terminal_joins_only_while_the_conversation_rests(bench: FakeCodexBench, start: Start) -> None:
    runtime, heard = await start()
    assert isinstance(await runtime.begin(bench.delivery(Hold("go"))), Accepted)
    with pytest.raises(StartFailed) as failed:
        await runtime.attach(NOTHING_PERMITTED)
    assert (failed.value.code, failed.value.again) == ("conversation_active", True)
    bench.open("go")
    await heard.idle()
    assert not heard.closings


async def test_a_server_that_does_not_come_again_is_the_end_of_the_runtime(bench: FakeCodexBench, start: Start) -> None:
    runtime, heard = await start()
    bench.want("refuses_to_start")
    with pytest.raises(StartFailed):
        await runtime.attach(NOTHING_PERMITTED)
    closed = await heard.close()
    assert not closed.intended
    assert isinstance(await runtime.begin(bench.delivery()), NotSubmitted)


async def test_stopping_takes_the_way_for_terminals_away_too(bench: FakeCodexBench, start: Start, person: Any) -> None:
    runtime, heard = await start()
    attachment = await runtime.attach(NOTHING_PERMITTED)
    person(attachment)
    await attachment.joined()
    await runtime.stop()
    async with asyncio.timeout(20):
        await attachment.left()
    await attachment.close()
    assert not heard.closings


@pytest.mark.requirement("codex.terminal-is-proved")
async def test_settings_are_put_where_a_terminal_reads_them_only_while_it_joins(
    bench: FakeCodexBench, start: Start, person: Any
) -> None:
    runtime, _ = await start(settings=LaunchSettings(effort="high"))
    config = Path(bench.adapter.private_home(bench.plan()), "config.toml")
    assert "model_reasoning_effort" not in config.read_text()
    attachment = await runtime.attach(NOTHING_PERMITTED)
    assert 'model_reasoning_effort = "high"' in config.read_text()
    person(attachment)
    await attachment.joined()
    assert "model_reasoning_effort" not in config.read_text()
    await attachment.close()
