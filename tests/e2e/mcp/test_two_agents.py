"""Two agents do the main job through the official client, their shims and the services."""

from __future__ import annotations

import asyncio

import pytest

from fencepost.mcp.names import SERVER_NAMES
from fencepost.mcp.registry import INSTRUCTIONS
from fencepost_testing.agents import World, use_every_tool


@pytest.mark.requirement("e2e.official-client")
async def test_the_official_client_shakes_hands_and_finds_the_seven_tools(world: World) -> None:
    async with world.agent(world.ann) as ann:
        assert ann.client.protocol_version == "2025-11-25"
        assert ann.client.server_info.name in SERVER_NAMES
        assert ann.client.instructions == INSTRUCTIONS
        tools = (await ann.client.list_tools()).tools
        assert len(tools) == 7
        assert all(tool.input_schema["additionalProperties"] is False for tool in tools)
        assert {tool.name for tool in tools if tool.annotations and tool.annotations.read_only_hint} == {"list_agents"}


@pytest.mark.requirement("e2e.official-client")
async def test_information_a_request_and_its_reply_go_through(world: World) -> None:
    async with world.both() as (ann, bob):
        waiting = asyncio.create_task(bob.call("wait_agent"))
        sent = await ann.call("send_message", target="bob", message="the build is green")
        assert (sent["delivery_state"], sent["duplicate"]) == ("admitted", False)
        assert sent["recipient"] == {"agent_id": world.bob.agent_id, "name": "bob"}
        woken = await waiting
        assert woken == {"operation": "wait_agent", "timed_out": False, "wake_reason": "activity"}

        asked = await ann.call("followup_task", target=world.bob.agent_id, message="review it")
        assert asked["request_id"].startswith("ask_")
        assert (asked["delivery_owner"], asked["answer_state"]) == ("unclaimed", "open")

        page = await bob.call("receive_messages", limit=10)
        information, request = page["messages"]
        assert (information["kind"], information["interaction_id"]) == ("information", sent["interaction_id"])
        assert information["message"] == "the build is green"
        assert information["sender"] == {"agent_id": world.ann.agent_id, "name": "ann"}
        assert (request["kind"], request["request_id"]) == ("request", asked["request_id"])
        assert (page["has_more"], page["timed_out"], page["unacknowledged"]) == (False, False, 2)

        answered = await bob.call("reply", request_id=asked["request_id"], status="done", message="two remarks")
        assert answered["recipient"]["name"] == "ann"
        again = await bob.call("reply", request_id=asked["request_id"], status="done", message="two remarks")
        assert (again["interaction_id"], again["duplicate"]) == (answered["interaction_id"], True)

        (reply,) = await ann.inbox()
        assert (reply["kind"], reply["reply_status"]) == ("reply", "done")
        assert (reply["message"], reply["request_id"]) == ("two remarks", asked["request_id"])
        assert reply["interaction_id"] == answered["interaction_id"]

        assert (await bob.call("receive_messages", ack_cursor=page["ack_cursor"]))["messages"] == []
        assert (await bob.call("wait_agent", timeout_ms=0))["timed_out"] is True


@pytest.mark.requirement("e2e.official-client-in-both-eras")
@pytest.mark.parametrize("mode", ["2026-07-28", "auto"])
async def test_the_official_client_uses_every_tool_without_a_handshake(world: World, mode: str) -> None:
    async with world.both(mode=mode) as (ann, bob):
        assert ann.client.protocol_version == "2026-07-28"
        if mode == "auto":
            assert ann.client.instructions == INSTRUCTIONS
            assert ann.client.server_info.name in SERVER_NAMES
        await use_every_tool(ann, bob)


@pytest.mark.requirement("edge.presence-is-honest")
async def test_a_listing_says_who_waits_who_read_and_who_never_did(world: World) -> None:
    async with world.both() as (ann, bob):
        before = await ann.call("list_agents")
        assert [(entry["name"], entry["status"]) for entry in before["agents"]] == [
            ("ann", "never_seen"),
            ("bob", "never_seen"),
        ]
        assert [entry["agent_id"] for entry in before["agents"]] == [world.ann.agent_id, world.bob.agent_id]
        assert before["agents"][0]["self"] is True
        await ann.call("receive_messages")
        waiting = asyncio.create_task(bob.call("wait_agent"))
        async with asyncio.timeout(10):
            while (listed := (await ann.call("list_agents"))["agents"])[1]["status"] != "waiting":
                pass
        assert listed[0]["status"] == "seen"
        assert "last read its mailbox" in listed[0]["evidence"]
        sent = await ann.call("send_message", target="bob", message="x")
        assert sent["recipient_reader"] == "manual"
        assert (await waiting)["wake_reason"] == "activity"


@pytest.mark.requirement("edge.interrupt-is-told-to-be-impossible")
async def test_an_interruption_is_refused_after_its_target_was_found(world: World) -> None:
    async with world.both() as (ann, _):
        assert (await ann.refused("interrupt_agent", target="bob"))["code"] == "unsupported_capability"
        assert (await ann.refused("interrupt_agent", target="nobody"))["code"] == "not_found"


@pytest.mark.requirement("edge.text-round-trips")
async def test_every_text_comes_out_as_it_went_in(world: World) -> None:
    texts = [
        '\0 NUL, \r\n line ends, \x1b[31m escapes, \t tabs, "quotes" and \\ backslashes',
        "漢字 カナ 한글 العربية עברית \U0001f9ea\u200d\U0001f469 e\u0301 \u2028 \ufeff \uffff",
        "x" * 65_536,
        "\0" * 65_536,
        "漢" * 21_845,
        ' {"jsonrpc":"2.0"}\n',
    ]
    async with world.both() as (ann, bob):
        for text in texts:
            await ann.call("send_message", target="bob", message=text)
        assert [message["message"] for message in await bob.inbox()] == texts


@pytest.mark.requirement("edge.pages")
async def test_pages_are_cut_at_24_kib_and_hold_at_least_one_record(world: World) -> None:
    async with world.both() as (ann, bob):
        for letter in "abcde":
            await ann.call("send_message", target="bob", message=letter * (60_000 if letter == "d" else 9_000))
        pages = [await bob.call("receive_messages")]
        while pages[-1]["has_more"]:
            pages.append(await bob.call("receive_messages", cursor=pages[-1]["next_cursor"]))
        letters = ["".join(message["message"][0] for message in page["messages"]) for page in pages]
        assert letters == ["ab", "c", "d", "e"]
        replayed = await bob.call("receive_messages", cursor=pages[0]["next_cursor"])
        assert replayed["messages"] == pages[1]["messages"]
        await bob.call("receive_messages", ack_cursor=pages[1]["ack_cursor"])
        assert [message["message"][0] for message in await bob.inbox()] == ["d", "e"]


@pytest.mark.requirement("mcp.parked-wait-blocks-nobody")
async def test_a_parked_wait_blocks_no_other_call_of_its_agent(world: World) -> None:
    async with world.both() as (ann, bob):
        waits = [asyncio.create_task(bob.call("wait_agent")) for _ in range(5)]
        await bob.call("send_message", target="ann", message="beside the wait")
        assert not any(wait.done() for wait in waits)
        await ann.call("send_message", target="bob", message="wake")
        assert {(await wait)["wake_reason"] for wait in waits} == {"activity"}


@pytest.mark.requirement("edge.token-is-forwarded")
async def test_many_calls_at_once_are_each_carried_out_once(world: World) -> None:
    async with world.both() as (ann, bob):
        receipts = await asyncio.gather(
            *(ann.call("send_message", target="bob", message=f"message {number}") for number in range(40))
        )
        assert len({receipt["interaction_id"] for receipt in receipts}) == 40
        assert sorted(m["message"] for m in await bob.inbox()) == sorted(f"message {n}" for n in range(40))


@pytest.mark.requirement("edge.receipts")
async def test_information_to_oneself_is_stored_and_a_request_is_not(world: World) -> None:
    async with world.agent(world.ann) as ann:
        await ann.call("send_message", target="ann", message="a note")
        assert (await ann.refused("followup_task", target="ann", message="work"))["code"] == "self_request"
        assert [message["message"] for message in await ann.inbox()] == ["a note"]
