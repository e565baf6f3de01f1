"""Answers that are lost: by the command line, and by the library against a mailbox that is killed under load."""

from __future__ import annotations

import asyncio
import sys

import grpc
import pytest

from fencepost import NotWritten
from fencepost.client import Client, Identity
from fencepost.home import MAILBOX, SESSIONS, Home
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost_testing.fake_mailbox import TOKEN, FakeMailbox, fail
from fencepost_testing.processes import Services, create_agents, environment

KILLS = 3
SENDERS = 16
SENDS_BEFORE_A_KILL = 40


@pytest.mark.requirement("cli.unknown-outcomes-say-so")
async def test_an_answer_that_nobody_can_settle_exits_7_and_is_never_sent_again(home: Home) -> None:
    home.prepare()
    file = home.path / "credential"
    file.write_text(TOKEN)
    file.chmod(0o600)
    fake = FakeMailbox(home)
    fake.next("Send", fail(grpc.StatusCode.UNAVAILABLE))
    fake.settlement = pb.SettleKeyResponse(settlement=pb.SETTLEMENT_UNKNOWN)
    await fake.start()
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "fencepost", "message", "send", "bob", "a secret", "--json"),
            env=environment(home, {"FENCEPOST_CREDENTIAL_FILE": str(file)}),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
    finally:
        await fake.stop()
    assert (process.returncode, out) == (7, b"")
    assert b'"code": "delivery_uncertain"' in err
    assert b"a secret" not in err
    assert fake.calls == ["Describe", "Send", "SettleKey"]


@pytest.mark.requirement("client.lost-answer-settles-to-the-receipt")
@pytest.mark.requirement("client.lost-answer-settles-to-not-written")
async def test_kills_under_load_lose_nothing_double_nothing_and_leave_nothing_unknown(services: Services) -> None:
    services.home.path.mkdir(mode=0o700)
    await services.start(SESSIONS, MAILBOX)
    ada = (await create_agents(services, "ada", "bob"))["ada"]
    identity = Identity(token=ada.token, agent_id=ada.agent_id, source="test")
    async with Client(services.home, identity) as client:
        receipts: dict[str, str] = {}
        refused: set[str] = set()
        done = asyncio.Event()
        grown = asyncio.Condition()
        numbers = iter(range(100_000))

        async def lane() -> None:
            while not done.is_set():
                body = f"note {next(numbers)}"
                try:
                    receipts[body] = (await client.send("bob", body)).record_id
                    async with grown:
                        grown.notify_all()
                except NotWritten:
                    refused.add(body)

        lanes = [asyncio.create_task(lane()) for _ in range(SENDERS)]
        for _ in range(KILLS):
            enough = len(receipts) + SENDS_BEFORE_A_KILL
            async with asyncio.timeout(20), grown:
                await grown.wait_for(lambda enough=enough: len(receipts) >= enough)
            await services.restart(MAILBOX)
        done.set()
        await asyncio.gather(*lanes)
        stored = await everything_sent(client)
    assert stored == receipts
    assert not refused & set(stored)
    assert len(receipts) >= KILLS * SENDS_BEFORE_A_KILL


async def everything_sent(client: Client) -> dict[str, str]:
    """Return body and id of every record that the client's agent has sent; no body may be there twice."""
    found: dict[str, str] = {}
    token = ""
    while True:
        page = await client.mailbox.list_records(pb.ListRecordsRequest(page_size=100, page_token=token))
        for record in page.records:
            assert record.body not in found, f"{record.body} is stored twice"
            found[record.body] = record.record_id
        token = page.next_page_token
        if not token:
            return found
