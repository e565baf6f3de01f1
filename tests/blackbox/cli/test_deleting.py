"""Deleting and renaming agents of a running home, with services that die in the middle of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import time
from typing import Any

import pytest

from fencepost.client import Channels, Mailbox, new_key
from fencepost.home import MAILBOX, SESSIONS, Home
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost_kit.ids import uuid_bytes
from fencepost_testing.command import Done, Person
from fencepost_testing.processes import KnownAgent, Services, create_agents

LETTERS = 450
SENDS_AT_ONCE = 50
WAIT_S_MAX = 30.0


async def typed(person: Person, *arguments: str) -> Done:
    return await asyncio.to_thread(person, *arguments)


async def send_many(home: Home, sender: KnownAgent, target: str, count: int) -> None:
    async with Channels(home) as channels:
        mailbox = Mailbox(channels, sender.token)
        for _ in range(0, count, SENDS_AT_ONCE):
            asks = [
                pb.SendRequest(target=target, body="x" * 100, idempotency_key=new_key("test"))
                for _ in range(SENDS_AT_ONCE)
            ]
            await asyncio.gather(*(mailbox.send(ask) for ask in asks))


def mentions(home: Home, service: str, agent_id: str) -> dict[str, list[Any]]:
    """Every row of a service's database in which an agent's id stands, by table."""
    wanted = uuid_bytes(agent_id)
    with contextlib.closing(sqlite3.connect(home.database(service))) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        found = {
            table: [row for row in connection.execute(f"SELECT * FROM {table}") if wanted in row] for table in tables
        }
    return {table: rows for table, rows in found.items() if rows}


async def ends(services: Services, name: str) -> None:
    """Wait until a service has died."""
    end = time.monotonic() + WAIT_S_MAX
    while services.is_alive(name):
        assert time.monotonic() < end, f"{name} lives on"
        await asyncio.sleep(0.02)
    services.join(name)


@pytest.mark.requirement("mailbox.deleting-answers-whoever-waits")
@pytest.mark.requirement("mailbox.deletions-are-carried-to-their-end")
@pytest.mark.requirement("cli.deleting-says-what-it-does")
async def test_a_requester_is_answered_and_nothing_is_left_although_the_mailbox_is_killed_while_it_erases(
    services: Services,
) -> None:
    home = services.home
    home.prepare()
    await services.start(SESSIONS)
    await services.start(MAILBOX, env={"FENCEPOST_FAULTS": "mailbox.erasure.chunk=kill@1"})
    agents = await create_agents(services, "ann", "bob", "cyd")
    operator = Person(services=services)
    ann = Person(services=services, name="ann", agent_id=agents["ann"].agent_id)

    # A requester that waits for somebody small: its wait ends with the host's failed reply.
    asked = (await typed(ann, "message", "followup", "cyd", "How many?", "--json")).document
    waiting = asyncio.ensure_future(typed(ann, "message", "receive", "--timeout-ms", "60000", "--json"))
    deleted = (await typed(operator, "agent", "delete", "cyd", "--confirm", "cyd", "--json")).document
    assert (deleted["finished"], deleted["duplicate"], deleted["agent"]["state"]) == (True, False, "deleting")
    (record,) = (await waiting).document["records"]
    assert (record["parent_id"], record["origin"], record["reply_status"]) == (asked["request_id"], "host", "failed")
    assert (await typed(operator, "agent", "show", "cyd", "--json")).code == 2

    # Somebody with much mail: the mailbox dies in the middle of the erasure, and the next one goes on.
    await send_many(home, agents["ann"], "bob", LETTERS)
    begun = await typed(operator, "agent", "delete", "bob", "--confirm", "bob", "--wait-s", "0", "--json")
    assert not begun.document["finished"]
    await ends(services, MAILBOX)
    half = mentions(home, MAILBOX, agents["bob"].agent_id)
    assert 0 < len(half["record"]) < LETTERS
    assert "deleting" in (await typed(operator, "agent", "show", "bob")).out
    await services.start(MAILBOX)
    late = await typed(ann, "message", "send", "bob", "late", "--json")
    assert late.error["code"] in {"agent_deleted", "not_found"}
    ended = await typed(operator, "agent", "delete", agents["bob"].agent_id, "--confirm", "bob", "--json")
    assert ended.code == 0 or ended.error["code"] in {"agent_deleted", "not_found"}
    await until_gone(operator, "bob")

    services.stop(MAILBOX)
    services.stop(SESSIONS)
    for name in ("bob", "cyd"):
        agent_id = agents[name].agent_id
        assert set(mentions(home, MAILBOX, agent_id)) == {"tombstone"}
        assert set(mentions(home, SESSIONS, agent_id)) == {"agent_tombstone", "released_name"}
        assert not home.agent_folder(agent_id).exists()
    assert json.dumps(deleted).count(agents["cyd"].token) == 0


async def until_gone(operator: Person, name: str) -> None:
    end = time.monotonic() + WAIT_S_MAX
    while (await typed(operator, "agent", "show", name, "--json")).code != 2:
        assert time.monotonic() < end, f"{name} is still there"


@pytest.mark.requirement("mailbox.renamed-agents-are-not-mistaken")
async def test_after_a_rename_the_old_name_reaches_nobody_and_nobody_else_can_have_it(services: Services) -> None:
    services.home.prepare()
    await services.start(SESSIONS, MAILBOX)
    agents = await create_agents(services, "ann", "bob")
    operator = Person(services=services)
    ann = Person(services=services, name="ann", agent_id=agents["ann"].agent_id)
    assert (await typed(operator, "agent", "update", "bob", "--name", "rob", "--json")).code == 0
    refused = await typed(ann, "message", "send", "bob", "hi", "--json")
    assert (refused.code, refused.error["code"]) == (2, "not_found")
    receipt = (await typed(ann, "message", "send", "rob", "hi", "--json")).document
    assert receipt["recipient"] == {"agent_id": agents["bob"].agent_id, "name": "rob"}
    taken = await typed(operator, "agent", "update", "ann", "--name", "bob", "--json")
    assert taken.error["code"] == "name_quarantined"
