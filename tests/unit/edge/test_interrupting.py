"""interrupt_agent: what came of it, told as what it is, and asked for once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from fencepost.client import Budgets
from fencepost.home import PROVIDERS, Home
from fencepost.mcp import answers, registry
from fencepost.providers.v1 import providers_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2 as sessions
from fencepost_mcp_edge.shims import Shims
from fencepost_mcp_edge.usecases import caller, outcomes
from fencepost_mcp_edge.usecases.outcomes import ToolError
from fencepost_testing.edge import EdgeClient
from fencepost_testing.fake_mailbox import FakeMailbox, fail, hang, refuse
from fencepost_testing.fake_providers import FakeProviders

BOB = {"target": "bob"}


@pytest.fixture
async def programs(home: Home) -> AsyncIterator[FakeProviders]:
    served = FakeProviders(home)
    await served.start()
    yield served
    await served.stop()


def told(result: dict[str, Any]) -> dict[str, Any]:
    assert result["isError"] is True
    content: dict[str, Any] = result["structuredContent"]
    return content


def test_exactly_the_tool_that_acts_and_has_no_key_is_told_of_when_it_is_lost() -> None:
    assert {tool.name for tool in registry.TOOLS if tool.lost is registry.Lost.TELL} == answers.TELLS
    assert {"interrupt_agent"} == answers.TELLS


@pytest.mark.requirement("edge.interrupts-the-observed-turn")
@pytest.mark.parametrize(
    ("interruption", "word", "confirmed"),
    [
        (pb.INTERRUPTION_REQUESTED, "requested", False),
        (pb.INTERRUPTION_CONFIRMED, "confirmed", True),
        (pb.INTERRUPTION_NOTHING, "nothing_to_interrupt", False),
    ],
)
async def test_what_came_of_an_interruption_is_told_with_the_turn_that_was_meant(
    edge: EdgeClient, programs: FakeProviders, interruption: Any, word: str, *, confirmed: bool
) -> None:
    programs.answer = pb.InterruptTurnResponse(
        interruption=interruption, agent_id="u-bob", generation=4, conversation_id="th-1", turn_id="t-1"
    )
    result = await edge.call(1, "interrupt_agent", BOB)
    assert result["isError"] is False
    assert result["structuredContent"] == {
        "operation": "interrupt_agent",
        "target_agent_id": "u-bob",
        "interruption": word,
        "interruption_confirmed": confirmed,
        "generation": 4,
        "provider_session_id": "th-1",
        "provider_turn_id": "t-1",
        "detail": None,
    }
    assert programs.asked == [pb.InterruptTurnRequest(target="u-bob")]


@pytest.mark.requirement("edge.interrupts-the-observed-turn")
async def test_what_a_program_cannot_do_is_refused_with_its_reason(edge: EdgeClient, programs: FakeProviders) -> None:
    programs.answer = pb.InterruptTurnResponse(
        interruption=pb.INTERRUPTION_UNSUPPORTED, detail="no exact turn is known"
    )
    content = told(await edge.call(1, "interrupt_agent", BOB))
    assert (content["code"], content["written"]) == ("unsupported_capability", False)
    assert "No exact turn is known." in content["message"]
    assert "send_message" in content["hint"]


@pytest.mark.requirement("edge.interrupts-the-observed-turn")
async def test_an_agent_that_nobody_runs_is_refused_without_asking_providers(
    edge: EdgeClient, programs: FakeProviders
) -> None:
    programs.agent.desired = sessions.DESIRED_STATE_UNSPECIFIED
    content = told(await edge.call(1, "interrupt_agent", BOB))
    assert (content["code"], content["written"], programs.asked) == ("unsupported_capability", False, [])


@pytest.mark.requirement("edge.interrupts-the-observed-turn")
@pytest.mark.parametrize(
    ("interruption", "code"),
    [(pb.INTERRUPTION_UNCERTAIN, "delivery_uncertain"), (pb.INTERRUPTION_UNSPECIFIED, "invalid_receipt")],
)
async def test_what_is_not_known_of_an_interruption_is_said_and_where_to_look(
    edge: EdgeClient, programs: FakeProviders, interruption: Any, code: str
) -> None:
    programs.answer = pb.InterruptTurnResponse(interruption=interruption, detail="the program did not answer")
    content = told(await edge.call(1, "interrupt_agent", BOB))
    assert (content["code"], content["written"]) == (code, "unknown")
    assert "list_agents" in content["hint"]
    assert "message list" not in content["hint"]


@pytest.mark.requirement("edge.interrupts-the-observed-turn")
async def test_a_lost_interruption_is_asked_for_once_and_not_known(edge: EdgeClient, programs: FakeProviders) -> None:
    programs.scripts.append(fail(grpc.StatusCode.UNAVAILABLE))
    content = told(await edge.call(1, "interrupt_agent", BOB))
    assert (content["code"], content["written"], len(programs.asked)) == ("delivery_uncertain", "unknown", 1)
    assert "list_agents" in content["hint"]


@pytest.mark.requirement("edge.interrupts-the-observed-turn")
async def test_a_refusal_of_providers_is_told_with_its_own_reason(edge: EdgeClient, programs: FakeProviders) -> None:
    programs.scripts.append(refuse("stale_turn", grpc.StatusCode.ABORTED))
    content = told(await edge.call(1, "interrupt_agent", BOB))
    assert (content["code"], content["written"]) == ("stale_turn", False)


@pytest.mark.requirement("edge.interrupts-the-observed-turn")
async def test_without_providers_nothing_was_interrupted_and_it_may_be_called_again(
    edge: EdgeClient, programs: FakeProviders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller, "BUDGETS", Budgets(ready_ms=200, call_ms=2_000))
    await programs.stop_one(PROVIDERS)
    async with EdgeClient(edge.home) as another:
        await another.greet()
        content = told(await another.call(1, "interrupt_agent", BOB))
    assert (content["code"], content["written"]) == ("not_written", False)
    assert "fencepost up" in content["hint"]


@pytest.mark.requirement("edge.drains")
async def test_a_stop_of_the_edge_lets_an_interruption_finish_and_gives_it_to_no_other_edge(
    edge: EdgeClient, programs: FakeProviders, shims: Shims
) -> None:
    release = asyncio.Event()

    async def slow(_: FakeMailbox, request: Any, context: Any) -> None:
        await release.wait()

    programs.answer = pb.InterruptTurnResponse(interruption=pb.INTERRUPTION_CONFIRMED)
    programs.scripts.append(slow)
    edge.begin(1, "interrupt_agent", BOB)
    async with asyncio.timeout(10):
        await programs.arrived.wait()
    stop = asyncio.get_running_loop().create_task(shims.drain())
    edge.begin(2, "interrupt_agent", BOB)
    assert await edge.raw(2) == b"again"
    release.set()
    assert (await edge.answer(1))["result"]["structuredContent"]["interruption_confirmed"] is True
    await stop
    assert len(programs.asked) == 1


@pytest.mark.requirement("mcp.cancel-and-eof-end-waits-only")
async def test_a_cancelled_interruption_completes(edge: EdgeClient, programs: FakeProviders) -> None:
    release = asyncio.Event()

    async def slow(_: FakeMailbox, request: Any, context: Any) -> None:
        await release.wait()

    programs.answer = pb.InterruptTurnResponse(interruption=pb.INTERRUPTION_NOTHING)
    programs.scripts.append(slow)
    edge.begin(1, "interrupt_agent", BOB)
    async with asyncio.timeout(10):
        await programs.arrived.wait()
    edge.write(b"1 cancel\n")
    edge.begin(2, "wait_agent", {"timeout_ms": 0})
    await edge.answer(2)
    release.set()
    assert (await edge.answer(1))["result"]["isError"] is False


async def test_an_interruption_that_outlasts_the_edges_budget_is_not_known(
    edge: EdgeClient, programs: FakeProviders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost_mcp_edge.usecases.answer.EDGE_CALL_MS_MAX", 300)
    programs.scripts.append(hang())
    content = told(await edge.call(1, "interrupt_agent", BOB))
    assert (content["code"], "list_agents" in content["hint"]) == ("delivery_uncertain", True)


@pytest.mark.parametrize("tool", sorted(registry.TOOL_OF))
def test_only_a_lost_interruption_gets_another_place_to_look(tool: str) -> None:
    known = ToolError("refused", "No.", hint="Theirs.")
    assert outcomes.fitting(known, tool).hint == "Theirs."
    lost = outcomes.fitting(ToolError("delivery_uncertain", "Lost.", hint="Theirs.", uncertain=True), tool)
    assert ("list_agents" in lost.hint) == (tool == "interrupt_agent")
