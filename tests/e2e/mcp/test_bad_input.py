"""Bad input gets a clear, stable answer and changes nothing."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from fencepost.home import MAILBOX, SESSIONS, read_credential
from fencepost.mailbox.v1 import mailbox_pb2, mailbox_pb2_grpc
from fencepost.sessions.v1 import sessions_pb2, sessions_pb2_grpc
from fencepost_testing.agents import World
from fencepost_testing.processes import bearer

SECRET = "zq-do-not-repeat-me"
ANN = "send_message"

MATRIX: list[tuple[str, str, dict[str, Any], str]] = [
    ("an unknown field", "send_message", {"target": "bob", "message": SECRET, "priority": 1}, "invalid_arguments"),
    ("a forged sender", "send_message", {"target": "bob", "message": SECRET, "sender": "bob"}, "invalid_arguments"),
    ("an own key", "reply", {"request_id": "ask_1", "idempotency_key": SECRET}, "invalid_arguments"),
    ("null", "send_message", {"target": "bob", "message": None}, "invalid_arguments"),
    ("a number for a text", "followup_task", {"target": "bob", "message": 5}, "invalid_arguments"),
    ("nothing", "followup_task", {}, "invalid_arguments"),
    ("blank text", "send_message", {"target": "bob", "message": " \r\n"}, "invalid_arguments"),
    ("too much text", "send_message", {"target": "bob", "message": SECRET * 5000}, "invalid_arguments"),
    ("a padded target", "send_message", {"target": "bob ", "message": SECRET}, "invalid_arguments"),
    ("everybody", "send_message", {"target": "all", "message": SECRET}, "invalid_arguments"),
    ("a star", "followup_task", {"target": "*", "message": SECRET}, "invalid_arguments"),
    ("a class", "followup_task", {"target": "class:reviewer", "message": SECRET}, "invalid_arguments"),
    ("an unknown name", "send_message", {"target": "nobody", "message": SECRET}, "not_found"),
    ("a name in other case", "send_message", {"target": "Bob", "message": SECRET}, "not_found"),
    (
        "an unknown UUID",
        "send_message",
        {"target": "0195f3a0-0000-7000-8000-00000000dead", "message": SECRET},
        "not_found",
    ),
    ("a limit of 0", "receive_messages", {"limit": 0}, "invalid_arguments"),
    ("a limit of 101", "receive_messages", {"limit": 101}, "invalid_arguments"),
    ("true for a limit", "receive_messages", {"limit": True}, "invalid_arguments"),
    ("a wait of 61 s", "wait_agent", {"timeout_ms": 61_000}, "invalid_arguments"),
    ("a malformed cursor", "receive_messages", {"cursor": SECRET}, "invalid_cursor"),
    ("a malformed ack_cursor", "receive_messages", {"ack_cursor": SECRET}, "invalid_cursor"),
    ("a blank cursor", "receive_messages", {"cursor": ""}, "invalid_arguments"),
    (
        "a reply to nothing",
        "reply",
        {"request_id": "ask_" + "0" * 32, "status": "done", "message": SECRET},
        "not_found",
    ),
    ("an unknown status", "reply", {"request_id": "ask_1", "status": "ok", "message": SECRET}, "invalid_arguments"),
    ("an interruption of all", "interrupt_agent", {"target": "all"}, "invalid_arguments"),
    ("arguments where none are", "list_agents", {"scope": SECRET}, "invalid_arguments"),
]


@pytest.mark.requirement("e2e.bad-input-changes-nothing")
@pytest.mark.parametrize(("name", "arguments", "code"), [row[1:] for row in MATRIX], ids=[row[0] for row in MATRIX])
async def test_bad_input_is_refused_clearly_and_changes_nothing(
    world: World, name: str, arguments: dict[str, Any], code: str
) -> None:
    async with world.both() as (ann, bob):
        told = await ann.refused(name, **arguments)
        assert told["code"] == code
        assert told["written"] is False
        assert told["message"].strip()
        assert SECRET not in str(told)
        assert await bob.inbox() == []
        assert await ann.inbox() == []


@pytest.mark.requirement("e2e.bad-input-changes-nothing")
async def test_a_near_miss_of_a_name_is_named(world: World) -> None:
    async with world.agent(world.ann) as ann:
        assert "bob" in (await ann.refused("send_message", target="BOB", message="x"))["hint"]


@pytest.mark.requirement("e2e.bad-input-changes-nothing")
async def test_only_the_recipient_answers_a_request_and_only_once(world: World) -> None:
    async with world.both() as (ann, bob):
        note = await ann.call("send_message", target="bob", message="note")
        asked = await ann.call("followup_task", target="bob", message="work")
        reply = {"request_id": asked["request_id"], "status": "done", "message": "ok"}
        assert (await ann.refused("reply", **reply))["code"] in {"unauthorized", "not_found"}
        of_note = await bob.refused("reply", **{**reply, "request_id": note["interaction_id"]})
        assert of_note["code"] == "invalid_task"
        await bob.call("reply", **reply)
        other = await bob.refused("reply", **{**reply, "message": "something else"})
        assert (other["code"], other["written"]) == ("conflicting_reply", False)
        assert len(await ann.inbox()) == 1


@pytest.mark.requirement("e2e.bad-input-changes-nothing")
async def test_a_cursor_of_another_agent_is_refused(world: World) -> None:
    async with world.both() as (ann, bob):
        await ann.call("send_message", target="bob", message="x")
        page = await bob.call("receive_messages")
        assert (await ann.refused("receive_messages", cursor=page["next_cursor"]))["code"] == "invalid_cursor"
        assert (await ann.refused("receive_messages", ack_cursor=page["ack_cursor"]))["code"] == "invalid_cursor"
        assert len(await bob.inbox()) == 1


@pytest.mark.requirement("mcp.ids-are-used-once")
async def test_a_reused_id_is_refused_and_seven_and_its_text_are_two(world: World) -> None:
    arguments = {"target": "bob", "message": "once"}
    async with world.shim(world.ann) as shim, world.agent(world.bob) as bob:
        for identity in (7, "7"):
            assert (await shim.call("send_message", arguments, identity=identity))["isError"] is False
        shim.begin("send_message", {**arguments, "message": "again"}, identity=7)
        assert (await shim.answer(7))["error"]["code"] == -32600
        assert [message["message"] for message in await bob.inbox()] == ["once", "once"]


@pytest.mark.requirement("mcp.stream-survives-bad-lines")
async def test_lone_surrogates_and_invalid_utf8_are_answered_and_the_stream_goes_on(world: World) -> None:
    async with world.shim(world.ann) as shim, world.agent(world.bob) as bob:
        call = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"send_message","arguments":%b}}'
        shim.say(call % (1, b'{"target":"bob","message":"half \\ud800 pair"}'))
        refused = (await shim.answer(1))["result"]
        assert refused["structuredContent"]["code"] == "invalid_arguments"
        assert "surrogate" in refused["structuredContent"]["message"]
        shim.say(call % (2, b'{"target":"bob","message":"\xff"}'))
        assert (await shim.line())["error"]["code"] == -32700
        shim.say(call % (3, b'{"target":"bob","message":"whole \\ud83e\\uddea pair"}'))
        assert (await shim.answer(3))["result"]["isError"] is False
        assert [message["message"] for message in await bob.inbox()] == ["whole \U0001f9ea pair"]


@pytest.mark.requirement("mcp.identity-by-environment")
async def test_a_credential_that_nobody_minted_is_refused_by_the_services(world: World, tmp_path: Any) -> None:
    file = tmp_path / "credential"
    file.write_text("fp_" + "Z" * 43)
    file.chmod(0o600)
    variables = {"FENCEPOST_SESSION_ID": "", "FENCEPOST_CREDENTIAL_FILE": str(file)}
    async with world.agent(world.ann, **variables) as stranger, world.agent(world.bob) as bob:
        for name, arguments in [("send_message", {"target": "bob", "message": "x"}), ("list_agents", {})]:
            told = await stranger.refused(name, **arguments)
            assert (told["code"], told["written"]) == ("unauthenticated", False)
        assert await bob.inbox() == []


@pytest.mark.requirement("mcp.identity-by-environment")
async def test_environment_and_credential_must_name_one_agent_and_generation(world: World) -> None:
    async with world.agent(world.ann, FENCEPOST_CREDENTIAL_FILE=str(world.bob.credential_file)) as ann:
        assert (await ann.refused("list_agents"))["code"] == "identity_disagreement"
    # The agent's own folder is not there to compare with, so sessions is asked.
    stranger = "0195f3a0-0000-7000-8000-00000000dead"
    variables = {"FENCEPOST_CREDENTIAL_FILE": str(world.bob.credential_file), "FENCEPOST_SESSION_ID": stranger}
    async with world.agent(world.ann, **variables) as ann:
        assert (await ann.refused("send_message", target="bob", message="x"))["code"] == "identity_disagreement"
    async with world.agent(world.ann, FENCEPOST_GENERATION="2") as ann:
        told = await ann.refused("send_message", target="bob", message="x")
        assert (told["code"], told["written"]) == ("stale_generation", False)
    async with world.agent(world.ann, FENCEPOST_GENERATION="1") as ann, world.agent(world.bob) as bob:
        await ann.call("send_message", target="bob", message="x")
        assert len(await bob.inbox()) == 1


@pytest.mark.requirement("mcp.identity-by-environment")
async def test_an_earlier_life_gets_no_new_authority_and_keeps_its_token(world: World) -> None:
    operator = bearer(read_credential(world.services.home.operator_credential))
    async with world.agent(world.ann) as old, world.agent(world.bob) as bob:
        await old.call("send_message", target="bob", message="from the first life")
        async with world.services.channel(SESSIONS) as channel:
            begun = await sessions_pb2_grpc.SessionsServiceStub(channel).BeginGeneration(
                sessions_pb2.BeginGenerationRequest(idempotency_key="next", agent_id=world.ann.agent_id),
                metadata=operator,
                timeout=10,
            )
        async with world.services.channel(MAILBOX) as channel:
            await mailbox_pb2_grpc.MailboxServiceStub(channel).OpenGeneration(
                mailbox_pb2.OpenGenerationRequest(agent_id=world.ann.agent_id, generation=begun.generation),
                metadata=operator,
                timeout=10,
            )
        for name, arguments in [("send_message", {"target": "bob", "message": "late"}), ("receive_messages", {})]:
            told = await old.refused(name, **arguments)
            assert told["code"] in {"stale_generation", "unauthenticated"}
            assert told["written"] is False
        async with world.agent(world.ann) as new:
            await new.call("send_message", target="bob", message="from the second life")
        assert [message["message"] for message in await bob.inbox()] == ["from the first life", "from the second life"]


@pytest.mark.requirement("mcp.identity-by-environment")
async def test_a_revoked_credential_gets_no_new_authority(world: World) -> None:
    operator = bearer(read_credential(world.services.home.operator_credential))
    async with world.both() as (ann, bob), world.services.channel(SESSIONS) as channel:
        await ann.call("send_message", target="bob", message="before")
        stub = sessions_pb2_grpc.SessionsServiceStub(channel)
        listed = await stub.ListCredentials(
            sessions_pb2.ListCredentialsRequest(agent_id=world.ann.agent_id), metadata=operator, timeout=10
        )
        for credential in listed.credentials:
            await _enforced(stub, credential.credential_id, operator)
        told = await ann.refused("send_message", target="bob", message="after")
        assert (told["code"], told["written"]) == ("unauthenticated", False)
        assert [message["message"] for message in await bob.inbox()] == ["before"]


async def _enforced(stub: Any, credential_id: str, operator: Any) -> None:
    """Revoke a credential and return once the mailbox enforces it."""
    for _ in range(200):
        answer = await stub.RevokeCredential(
            sessions_pb2.RevokeCredentialRequest(credential_id=credential_id), metadata=operator, timeout=10
        )
        if answer.enforced:
            return
    raise AssertionError("the revocation was never enforced")


def test_the_matrix_repeats_no_case() -> None:
    assert len({row[0] for row in MATRIX}) == len(MATRIX)
    assert grpc.StatusCode.OK is not None
