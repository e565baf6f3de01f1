"""What the scripted adapter keeps of turns, at both sides of its limits."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from fencepost_providers.adapters.base import StartFailed
from fencepost_providers.adapters.scripted.connection import Connection, Json, Lost, Malformed, Rejected, Silent
from fencepost_providers.adapters.scripted.scripted_adapter import APPROVED_TOOLS_MAX, ScriptedAdapter, parse_version
from fencepost_providers.adapters.scripted.turns import TURNS_REMEMBERED_MAX, Turn, Turns, Words
from fencepost_providers.domain.runtimes import FINAL_BYTES_MAX, TurnStatus
from fencepost_providers.processes.child import InputRefused, Line
from fencepost_testing.adapter_benches import ScriptedBench


@pytest.mark.requirement("adapters.final-text")
@pytest.mark.parametrize(("size", "kept"), [(FINAL_BYTES_MAX, FINAL_BYTES_MAX), (FINAL_BYTES_MAX + 1, 0)])
def test_words_over_the_limit_are_counted_in_bytes_and_not_kept(size: int, kept: int) -> None:
    words = Words()
    words.add("ä" * (FINAL_BYTES_MAX // 2), more=True)
    words.add("x" * (size - FINAL_BYTES_MAX), more=True)
    words.add("", more=False)
    words.add("said again", more=False)
    assert (words.size, len(words.text.encode())) == (size, kept)


@pytest.mark.requirement("adapters.final-text")
def test_an_item_that_is_told_twice_counts_once_and_the_last_one_counts() -> None:
    turn = Turn("turn-1")
    for item, text in (("a", "first"), ("b", "second"), ("b", "second"), ("a", "first")):
        turn.say("final", item, text, more=False)
    assert turn.finish(TurnStatus.COMPLETED, "").final_text == "second"


def test_the_latest_turns_are_remembered_and_no_more() -> None:
    turns = Turns()
    for number in range(TURNS_REMEMBERED_MAX + 1):
        turns.get(f"turn-{number}")
    assert len(turns.known()) == TURNS_REMEMBERED_MAX
    assert "turn-0" not in turns
    assert f"turn-{TURNS_REMEMBERED_MAX}" in turns


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("1.2.3", (1, 2)),
        ("1.2", (1, 2)),
        ("10.0", (10, 0)),
        ("1", None),
        ("1.2.3-rc1", None),
        ("", None),
        ("v1.2", None),
    ],
)
def test_a_version_is_two_or_three_numbers(text: str, version: tuple[int, int] | None) -> None:
    assert parse_version(text) == version


@pytest.mark.requirement("adapters.says-what-it-can")
async def test_more_approved_tools_than_the_limit_are_refused_whole(tmp_path: Path) -> None:
    plan, adapter = ScriptedBench(tmp_path).plan(), ScriptedAdapter()
    tools = [f"tool_{number:04}" for number in range(APPROVED_TOOLS_MAX)]
    assert await adapter.approve_tools(plan, tools) == tools
    with pytest.raises(StartFailed):
        await adapter.approve_tools(plan, ["one_more"])
    assert await adapter.approve_tools(plan, []) == tools


# --- the connection ---------------------------------------------------------------------------------------------------


class Wire:
    """A connection whose program is the test."""

    def __init__(self) -> None:
        self.events: list[Json] = []
        self.written: list[Json] = []
        self.connection = Connection(3, self.events.append)

    def write(self, data: bytes) -> None:
        self.written.append(json.loads(data))

    def say(self, frame: object) -> None:
        self.connection.hear(Line(text=json.dumps(frame).encode()))

    async def ask(self, ms: int | None = None) -> Json:
        return await self.connection.ask(self.write, "hello", {}, ms)


async def test_answers_find_their_requests_whatever_their_order() -> None:
    wire = Wire()
    first, second = asyncio.ensure_future(wire.ask()), asyncio.ensure_future(wire.ask())
    await asyncio.sleep(0)
    wire.say({"id": wire.written[1]["id"], "result": {"who": "second"}})
    wire.say({"id": wire.written[0]["id"], "result": {"who": "first"}})
    assert (await first, await second) == ({"who": "first"}, {"who": "second"})


@pytest.mark.requirement("adapters.unclassified-is-uncertain")
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"error": {"code": "busy", "message": "no"}}, Rejected),
        ({"error": "busy"}, Malformed),
        ({"result": []}, Malformed),
        ({}, Malformed),
    ],
)
async def test_an_answer_that_is_none_is_malformed_and_a_refusal_a_refusal(
    answer: Json, error: type[Exception]
) -> None:
    wire = Wire()
    asking = asyncio.ensure_future(wire.ask())
    await asyncio.sleep(0)
    wire.say({"id": wire.written[0]["id"], **answer})
    with pytest.raises(error):
        await asking


@pytest.mark.requirement("adapters.unclassified-is-uncertain")
async def test_no_answer_in_time_and_no_answer_any_more_are_told_apart_from_nothing_written() -> None:
    wire = Wire()
    with pytest.raises(Silent):
        await wire.ask(1)
    asking = asyncio.ensure_future(wire.ask())
    await asyncio.sleep(0)
    wire.connection.lose("it ended")
    with pytest.raises(Lost, match="it ended"):
        await asking

    def refuse(_: bytes) -> None:
        raise InputRefused("no")

    with pytest.raises(InputRefused):
        await wire.connection.ask(refuse, "hello", {}, None)


@pytest.mark.requirement("adapters.turn-ends-as-it-ended")
@pytest.mark.parametrize(("generation", "heard"), [(3, 1), (2, 0), (4, 0), ("3", 0), (None, 0)])
def test_only_events_of_this_very_generation_are_heard(generation: object, heard: int) -> None:
    wire = Wire()
    wire.say({"event": "turn_ended", "generation": generation})
    assert len(wire.events) == heard


def test_what_cannot_be_read_is_nothing() -> None:
    wire = Wire()
    for text in (b"", b"{", b"[]", b'"x"', b"\xff", b'{"id": "1"}', b'{"id": 99, "result": {}}'):
        wire.connection.hear(Line(text=text))
    wire.connection.hear(Line(text=b'{"event": "x", "generation": 3}', bytes_cut=1))
    assert not wire.events
