"""A backup while eight agents send, and the home that comes back from it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import stat
import uuid
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from fencepost.client import Channels, Mailbox, Sessions
from fencepost.errors import FencepostError
from fencepost.home import MAILBOX, SESSIONS, Home, read_credential
from fencepost.mailbox.v1 import mailbox_pb2
from fencepost_testing.command import Person
from fencepost_testing.processes import KnownAgent, Services, create_agents, short_home

SENDERS = tuple(f"sender{number}" for number in range(8))
BEFORE = 5
CALL_S_MAX = 60


@pytest.fixture
async def running() -> AsyncIterator[Services]:
    with short_home() as home:
        async with Services(home) as services:
            await services.start(SESSIONS, MAILBOX)
            yield services


class Senders:
    """Eight agents that send one message after the other, each over a connection of its own."""

    def __init__(self, home: Home, agents: dict[str, KnownAgent]) -> None:
        self._home = home
        self._agents = agents
        self.receipts: dict[str, list[str]] = {name: [] for name in SENDERS}
        self.stop = asyncio.Event()

    async def run(self) -> None:
        await asyncio.gather(*(self._send(name) for name in SENDERS))

    async def _send(self, name: str) -> None:
        async with Channels(self._home) as channels:
            mailbox = Mailbox(channels, self._agents[name].token)
            while not self.stop.is_set():
                body = f"{name} {len(self.receipts[name])}"
                ask = mailbox_pb2.SendRequest(target="reader", body=body, idempotency_key=uuid.uuid4().hex)
                self.receipts[name].append((await mailbox.send(ask)).record_id)

    async def each_has(self, count: int) -> None:
        async with asyncio.timeout(CALL_S_MAX):
            while any(len(receipts) < count for receipts in self.receipts.values()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def bodies(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT body FROM record WHERE sender IS NOT NULL ORDER BY sequence").fetchall()
    return [row[0].decode() for row in rows]


async def epochs(home: Home) -> tuple[str, str]:
    async with Channels(home) as channels:
        token = read_credential(home.operator_credential)
        mailbox, sessions = await Mailbox(channels, token).describe(), await Sessions(channels, token).describe()
        return mailbox.epoch, sessions.epoch


async def claimed(home: Home, agents: dict[str, KnownAgent]) -> str:
    """Have a request of the reader claimed; return its id."""
    async with Channels(home) as channels:
        ask = mailbox_pb2.RequestRequest(target="reader", body="work", idempotency_key=uuid.uuid4().hex)
        record_id = (await Mailbox(channels, agents[SENDERS[0]].token).request(ask)).request_id
        service = Mailbox(channels, read_credential(home.service_credential("providers")))
        taken = await service.claim(
            mailbox_pb2.ClaimRequest(
                agent_id=agents["reader"].agent_id,
                generation=1,
                dispatcher_id=str(uuid.uuid4()),
                incarnation=1,
                kind=mailbox_pb2.CLAIM_KIND_REQUEST,
                term_ms=600_000,
                idempotency_key=uuid.uuid4().hex,
            )
        )
        assert taken.claim.record.record_id == record_id
        return record_id


@pytest.mark.timeout(240)
@pytest.mark.requirement(
    "care.a-backup-is-one-moment-of-each-store",
    "care.a-restore-replaces-nothing-that-it-does-not-keep",
    "care.a-restored-store-is-another-store",
)
async def test_a_backup_during_eight_senders_comes_back_as_one_moment_with_new_epochs_and_uncertain_claims(
    running: Services,
) -> None:
    home, operator = running.home, Person(services=running)
    agents = await create_agents(running, "reader", *SENDERS)
    request_id = await claimed(home, agents)
    senders = Senders(home, agents)
    sending = asyncio.ensure_future(senders.run())
    await senders.each_has(BEFORE)
    known = {name: len(receipts) for name, receipts in senders.receipts.items()}
    made = (await asyncio.to_thread(operator, "backup", "--json")).document
    await senders.each_has(max(known.values()) + BEFORE)
    senders.stop.set()
    await asyncio.wait_for(sending, CALL_S_MAX)
    folder = Path(made["folder"])
    _whole(folder, known, senders)
    before = await epochs(home)
    assert {store["service"]: store["epoch"] for store in made["stores"]} == {MAILBOX: before[0], SESSIONS: before[1]}

    refused = await asyncio.to_thread(operator, "restore", str(folder), "--json")
    assert refused.error["code"] == "home_in_use"
    for name in (MAILBOX, SESSIONS):
        assert running.stop(name) == 0
    everything = bodies(home.database(MAILBOX))
    restored = (await asyncio.to_thread(operator, "restore", str(folder), "--json")).document
    assert bodies(Path(restored["aside"]) / MAILBOX / "mailbox.db") == everything
    assert bodies(home.database(MAILBOX)) == bodies(folder / "mailbox.db")

    await running.start(SESSIONS, MAILBOX)
    after = await epochs(home)
    assert not set(after) & set(before)
    await _lives(home, agents, request_id)
    await running.restart(MAILBOX)
    assert await epochs(home) == after


def _whole(folder: Path, known: dict[str, int], senders: Senders) -> None:
    """Judge a backup: private, and of each sender a beginning of what it sent, everything that was known included."""
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    copied = bodies(folder / "mailbox.db")
    for name in SENDERS:
        mine = [body for body in copied if body.startswith(f"{name} ")]
        assert mine == [f"{name} {number}" for number in range(len(mine))]
        assert known[name] <= len(mine) <= len(senders.receipts[name])
    manifest = json.loads((folder / "manifest.json").read_text())
    rows = {store["service"]: store["rows"] for store in manifest["stores"]}
    assert rows[MAILBOX]["record"] == len(copied)
    assert rows[SESSIONS]["agent"] == len(SENDERS) + 1


async def _lives(home: Home, agents: dict[str, KnownAgent], request_id: str) -> None:
    """Use a restored home: the claim is uncertain, agents are known, names resolve, messages arrive."""
    async with Channels(home) as channels:
        operator = Mailbox(channels, read_credential(home.operator_credential))
        async with asyncio.timeout(CALL_S_MAX):
            while True:
                try:
                    told = await operator.explain(request_id)
                    break
                except FencepostError:  # the mirror has not heard of the operator yet
                    await asyncio.sleep(0.05)
        assert any("restored from a backup" in fact.evidence for fact in told.facts), told
        sender, reader = (Mailbox(channels, agents[name].token) for name in (SENDERS[0], "reader"))
        ask = mailbox_pb2.SendRequest(target="reader", body="after", idempotency_key=uuid.uuid4().hex)
        sent = await sender.send(ask)
        page, shown = await reader.receive(mailbox_pb2.ReceiveRequest(limit=100)), set[str]()
        while page.records:
            shown |= {record.record_id for record in page.records}
            page = await reader.receive(mailbox_pb2.ReceiveRequest(ack_cursor=page.ack_cursor, limit=100))
        assert {request_id, sent.record_id} <= shown
        listed = await reader.list_records(mailbox_pb2.ListRecordsRequest(page_size=1))
        assert [record.record_id for record in listed.records] == [sent.record_id]
