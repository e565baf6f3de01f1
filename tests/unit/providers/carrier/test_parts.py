"""The smaller parts: rows and their watchers, adapters by name, plans, evidence, orders, strays."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from importlib import metadata
from pathlib import Path

import pytest

from fencepost.home import Home
from fencepost_providers.adapters.base import ADAPTERS_GROUP, StartFailed, Terminal
from fencepost_providers.adapters.registry import Adapters, installed
from fencepost_providers.domain import refusals
from fencepost_providers.domain.agents import Agent, Launch
from fencepost_providers.domain.carried import Bound, clipped, evidence_of, outcome_of
from fencepost_providers.domain.runtimes import (
    FINAL_BYTES_MAX,
    ROW_BYTES_MAX,
    Mode,
    Row,
    RowKind,
    TurnBinding,
    TurnEnd,
    TurnStatus,
)
from fencepost_providers.orders import STEPS_MAX, Attach, HasEnded
from fencepost_providers.plans import INSTRUCTIONS_BYTES_MAX, plan_of, shim
from fencepost_providers.rows import ROWS_KEPT_MAX, WATCHER_ROWS_MAX, WATCHERS_MAX, Placed, Rows
from fencepost_providers.strays import is_gone, mark_of
from fencepost_providers.translate import STATUS_OF
from fencepost_testing.carrier_fakes import FakeAdapter, uuid_of

# --- rows -------------------------------------------------------------------------------------------------------------


def say(rows: Rows, text: str, *, generation: int = 1) -> None:
    rows.add(Row(kind=RowKind.ASSISTANT, text=text), at_ms=1, generation=generation)


async def take(stream: AsyncIterator[Placed], count: int) -> list[Placed]:
    return [await asyncio.wait_for(anext(stream), 5) for _ in range(count)]


@pytest.mark.requirement("providers.a-watch-shows-a-conversation-in-one-shape")
async def test_a_watch_begins_behind_its_position_and_goes_on_with_what_is_new() -> None:
    rows = Rows(incarnation=3)
    for number in range(5):
        say(rows, str(number))
    async with aclosing(rows.watch(0)) as stream:  # type: ignore[type-var]
        kept = await take(stream, 5)
        assert [one.row.text for one in kept] == list("01234")
        assert kept[0].position == (3 << 32) + 1
        say(rows, "new")
        assert (await take(stream, 1))[0].row.text == "new"
    async with aclosing(rows.watch(kept[2].position)) as stream:  # type: ignore[type-var]
        assert [one.row.text for one in await take(stream, 3)] == ["3", "4", "new"]
    async with aclosing(rows.watch(-1)) as stream:  # type: ignore[type-var]
        first = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        say(rows, "only this")
        assert (await first).row.text == "only this"
    assert rows.watchers == 0
    assert Rows(incarnation=4)._next > kept[-1].position


@pytest.mark.requirement("providers.a-watch-shows-a-conversation-in-one-shape")
async def test_the_newest_rows_of_the_running_life_are_kept_and_long_ones_are_cut() -> None:
    rows = Rows(incarnation=1)
    say(rows, "of the life before")
    rows.begin_life()
    for number in range(ROWS_KEPT_MAX + 1):
        say(rows, str(number))
    say(rows, "é" * ROW_BYTES_MAX)
    async with aclosing(rows.watch(0)) as stream:  # type: ignore[type-var]
        kept = await take(stream, ROWS_KEPT_MAX)
    assert kept[0].row.text == "2"
    assert kept[-1].row.cut
    assert len(kept[-1].row.text.encode()) == ROW_BYTES_MAX


@pytest.mark.requirement("providers.a-slow-watcher-is-ended-and-nobody-waits-for-it")
async def test_a_slow_watcher_is_ended_with_a_reason_after_what_it_could_hold() -> None:
    rows = Rows(incarnation=1)
    stream = rows.watch(-1)
    first = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    for number in range(WATCHER_ROWS_MAX + 1):
        say(rows, str(number))
    await first
    assert len(await take(stream, WATCHER_ROWS_MAX - 1)) == WATCHER_ROWS_MAX - 1
    with pytest.raises(refusals.WatcherTooSlow):
        await anext(stream)
    streams = [rows.watch(-1) for _ in range(WATCHERS_MAX)]
    waiting = [asyncio.ensure_future(anext(one)) for one in streams]
    await asyncio.sleep(0)
    with pytest.raises(refusals.TooManyWatchers):
        await anext(rows.watch(-1))
    rows.close()
    for one in waiting:
        with pytest.raises(StopAsyncIteration):
            await one


# --- adapters ---------------------------------------------------------------------------------------------------------


def adapter() -> FakeAdapter:
    return FakeAdapter()


def broken() -> FakeAdapter:
    raise RuntimeError("not today")


@pytest.mark.requirement("providers.a-broken-adapter-is-reported-and-costs-the-others-nothing")
def test_a_broken_adapter_is_reported_and_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adapters_of_a_test", sys.modules[__name__])
    entries = [
        metadata.EntryPoint(name=name, value=value, group=ADAPTERS_GROUP)
        for name, value in (
            ("good", "adapters_of_a_test:adapter"),
            ("raises", "adapters_of_a_test:broken"),
            ("gone", "no_such_module_of_a_test:adapter"),
            ("good", "adapters_of_a_test:broken"),
        )
    ]
    found = installed(entries)
    assert found.names == ("gone", "good", "raises")
    assert found.get("good") is not None
    assert (found.get("raises"), found.get("gone")) == (None, None)
    assert "not today" in found.problem("raises")
    assert "no_such_module_of_a_test" in found.problem("gone")
    assert "good" in found.problem("unheard of")
    assert found.problem("good") == ""
    assert "names no provider" in Adapters({}).problem("")


def test_the_installed_adapters_can_all_be_loaded() -> None:
    found = installed()
    assert {"codex", "scripted"} <= set(found.names)
    assert [found.problem(name) for name in ("codex", "scripted")] == ["", ""]


# --- plans ------------------------------------------------------------------------------------------------------------


def an_agent(tmp_path: Path, **launch: object) -> Agent:
    workspace = tmp_path / "work"
    workspace.mkdir(exist_ok=True)
    return Agent(
        agent_id=uuid_of("ann"),
        project_id="p",
        name="ann",
        workspace=str(workspace),
        launch=Launch(**launch),  # type: ignore[arg-type]
    )


@pytest.mark.requirement("providers.instructions-and-skills-come-in-one-order")
def test_instructions_and_skills_come_common_then_class_then_agent(tmp_path: Path) -> None:
    home = Home(tmp_path / "h")
    agent = an_agent(tmp_path, agent_class="reviewer")
    folders = [home.path / "common", home.path / "classes" / "reviewer", home.agent_folder(agent.agent_id)]
    for number, folder in enumerate(folders):
        (folder / ".agents" / "skills").mkdir(parents=True)
        (folder / "AGENTS.md").write_text(f"text {number}")
    plan = plan_of(home, agent, generation=4, conversation_id="c")
    assert plan.instructions == ("text 0", "text 1", "text 2")
    assert plan.skills == tuple(str(folder / ".agents" / "skills") for folder in folders)
    (folders[1] / "AGENTS.md").unlink()
    (folders[0] / "AGENTS.md").write_text("x" * INSTRUCTIONS_BYTES_MAX)
    (folders[2] / "AGENTS.md").write_text("x" * (INSTRUCTIONS_BYTES_MAX + 1))
    assert [len(text) for text in plan_of(home, agent, generation=4, conversation_id="c").instructions] == [
        INSTRUCTIONS_BYTES_MAX
    ]
    (folders[0] / "AGENTS.md").unlink()
    os.mkfifo(folders[0] / "AGENTS.md")
    assert plan_of(home, agent, generation=4, conversation_id="c").instructions == ()


@pytest.mark.requirement("providers.instructions-and-skills-come-in-one-order")
@pytest.mark.parametrize("name", ["..", ".", "a/b", "../common"])
def test_a_class_never_leads_out_of_its_folder(tmp_path: Path, name: str) -> None:
    home = Home(tmp_path / "h")
    (home.path / "classes").mkdir(parents=True)
    (home.path / "AGENTS.md").write_text("outside")
    (home.path / "classes" / "AGENTS.md").write_text("outside")
    plan = plan_of(home, an_agent(tmp_path, agent_class=name), generation=1, conversation_id="")
    assert plan.instructions == ()


@pytest.mark.requirement("providers.a-plan-carries-what-a-person-set")
def test_a_plan_carries_the_identity_and_what_a_person_set(tmp_path: Path) -> None:
    home = Home(tmp_path / "h")
    agent = an_agent(tmp_path, custom_arguments="--a 'b c'", model="m", tools_profile="off", session_policy="fresh")
    plan = plan_of(home, agent, generation=7, conversation_id="bound")
    assert (plan.settings.custom_arguments, plan.settings.model) == (("--a", "b c"), "m")
    assert plan.settings.tools_profile == "off"
    assert plan.conversation_id == ""
    assert plan.environment["FENCEPOST_GENERATION"] == "7"
    assert plan.mcp.command == shim()
    assert Path(shim()).is_absolute()
    with pytest.raises(StartFailed) as unsplit:
        plan_of(home, an_agent(tmp_path, custom_arguments="'"), generation=1, conversation_id="")
    assert unsplit.value.code == "invalid_arguments"
    with pytest.raises(StartFailed) as nowhere:
        plan_of(home, an_agent(tmp_path, checkout_root=str(tmp_path / "gone")), generation=1, conversation_id="")
    assert (nowhere.value.code, nowhere.value.again) == ("no_workspace", False)


# --- values -----------------------------------------------------------------------------------------------------------

BOUND = Bound(
    token="t",
    agent_id="a",
    record_id="r",
    generation=1,
    binding=TurnBinding(provider="p", conversation_id="c", turn_id="t", mode=Mode.START),
)


@pytest.mark.requirement("providers.a-final-over-the-limit-is-left-out-and-counted")
@pytest.mark.parametrize(("size", "kept"), [(FINAL_BYTES_MAX, True), (FINAL_BYTES_MAX + 1, False)])
def test_final_words_over_the_limit_are_left_out_and_counted(size: int, kept: bool) -> None:
    end = TurnEnd(turn_id="t", status=TurnStatus.COMPLETED, final_text="x" * size, final_bytes=size)
    outcome = outcome_of(BOUND, end, now_ms=1)
    assert (bool(outcome.final_text), outcome.final_bytes) == (kept, size)


def test_evidence_is_one_line_within_its_limit_and_never_empty() -> None:
    assert evidence_of("", "") == "unspecified"
    assert evidence_of("code", "two\nlines") == "code: two lines"
    assert len(evidence_of("c" * 200, "é" * 5000).encode()) <= 1024
    assert clipped("éé", 3) == "é"


async def test_an_attachment_whose_steps_nobody_reads_still_ends() -> None:
    order = Attach(wait_idle_ms=0)
    for number in range(STEPS_MAX * 2):
        order.waiting(str(number))
    order.launch(Terminal(argv=(), environment={}, working_directory=""))
    order.ended("over")
    order.ended("again")
    steps = [order.steps.get_nowait() for _ in range(order.steps.qsize())]
    assert steps[-1] == HasEnded("over")
    assert len(steps) <= STEPS_MAX


def test_a_process_is_gone_only_where_that_is_certain() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        mark = mark_of(child.pid)
        assert not is_gone(child.pid, mark)
        assert not is_gone(0, "")
        if mark:
            assert is_gone(child.pid, "another start")
    finally:
        child.communicate(b"\n", timeout=10)
    assert is_gone(child.pid, mark)


def test_every_refusal_has_a_status() -> None:
    named = {
        kind
        for kind in vars(refusals).values()
        if isinstance(kind, type) and issubclass(kind, refusals.ProvidersRefusal)
    }
    assert named == set(STATUS_OF)
