"""Every service's metrics: documented name by name, and free of everything that was sent."""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fencepost.client import Channels, Sessions
from fencepost.home import SESSIONS, Home, read_credential
from fencepost_kit.metrics import RpcMetrics, new_registry, store_info
from fencepost_kit.probe import watched_serving
from fencepost_mailbox.settings import MailboxSettings
from fencepost_mailbox.wiring import Mailbox
from fencepost_mcp_edge import wiring as edge
from fencepost_mcp_edge.shims import Limits, Shims
from fencepost_providers.adapters.registry import Adapters
from fencepost_providers.settings import Settings as ProvidersSettings
from fencepost_providers.wiring import Carrying
from fencepost_sessions.settings import Settings
from fencepost_sessions.wiring import build, register, serve
from fencepost_testing.mailboxes import Desk, a_desk, id16
from fencepost_testing.processes import short_home

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reference" / "metrics.md"
pytestmark = [pytest.mark.requirement("kit.every-metric-is-documented-and-tells-no-content")]


def families(registry: CollectorRegistry) -> dict[str, Any]:
    return {found.name: found for found in text_string_to_metric_families(generate_latest(registry).decode())}


def a_mailbox(folder: Path) -> Mailbox:
    return Mailbox(home=Home(folder), sessions=None, settings=MailboxSettings())  # type: ignore[arg-type]


def a_carrier(folder: Path, registry: CollectorRegistry) -> None:
    """Let a carrier tell a registry; what has labels of its own is counted once."""
    carrying = Carrying(
        home=Home(folder),
        links=lambda _dispatcher: (None, None, None),  # type: ignore[arg-type, return-value]
        adapters=Adapters({}),
        settings=ProvidersSettings(),
        registry=registry,
    )
    told = carrying.told
    told.carried.labels("begin", "accepted").inc()
    told.turns.labels("completed").inc()
    told.starts.labels("ready").inc()
    told.submit_seconds.labels("begin").observe(1)


async def test_the_page_names_every_metric_with_its_labels_and_no_other(tmp_path: Path) -> None:
    mailbox, sessions, shims, providers = new_registry(), new_registry(), new_registry(), new_registry()
    a_carrier(tmp_path, providers)
    a_mailbox(tmp_path).tell(mailbox)
    RpcMetrics(service="mailbox", registry=mailbox)("Send")
    store_info(mailbox, service="mailbox", epoch="e", schema=1)
    parts = build(tmp_path / "s.db", None, None, on_fatal=print)  # type: ignore[arg-type]
    server = grpc.aio.server()
    register(parts, server, None, sessions)
    await server.stop(None)
    async with Channels(Home(tmp_path)) as channels:
        edge._tell(shims, Shims(home=Home(tmp_path), channels=channels, limits=Limits(page_bytes_max=1024)))
    told: dict[str, set[str]] = {"fencepost_calls_open": {"service"}}
    for registry in (mailbox, sessions, shims, providers):
        for name, family in families(registry).items():
            if name.startswith("fencepost_"):
                shown = f"{name}_total" if family.type == "counter" else name
                labels = {label for sample in family.samples for label in sample.labels} - {"le"}
                told.setdefault(shown, set()).update(labels)
    written = {
        name: set(filter(None, re.split(r"[`, ]+", labels)))
        for name, labels in re.findall(r"^\| `(fencepost_\w+)` \| \w+ \| ([^|]*) \|", PAGE.read_text(), re.MULTILINE)
    }
    assert written == told


async def test_steps_of_records_are_told_once_they_are_durable_and_no_label_holds_what_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = CollectorRegistry()
    mailbox = a_mailbox(tmp_path)
    mailbox.tell(registry)
    monkeypatch.setattr(Desk, "_committed", lambda _desk, applied: mailbox._on_commit(applied))
    async with a_desk(tmp_path / "m.db", "ann", "bob") as desk:
        record = await desk.request("ann", "bob", "SECRET BODY", key="SECRET KEY")
        await desk.clock.advance(2)
        await desk.receive("bob")
        await desk.receive("bob", cursor="")  # a second look exposes nothing
        await desk.clock.advance(3)
        await desk.reply("bob", record, "SECRET ANSWER")
        await desk.reply("bob", record, "SECRET ANSWER")  # the same answer again
        told = generate_latest(registry).decode()
        epoch = desk.store.epoch.hex()
    for step, seconds in (("admitted_to_exposed", 2.0), ("exposed_to_replied", 3.0), ("admitted_to_replied", 5.0)):
        assert f'fencepost_record_step_seconds_sum{{step="{step}"}} {seconds}' in told
        assert f'fencepost_record_step_seconds_count{{step="{step}"}} 1.0' in told
    for sent in ("SECRET", record.record_id.hex(), id16("ann").hex(), id16("bob").hex(), epoch):
        assert sent not in told


@pytest.mark.requirement("kit.metrics-are-on-loopback-and-bounded")
async def test_a_running_service_tells_its_store_and_its_calls_on_the_port_that_it_was_given() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with short_home() as home:
        stop = asyncio.Event()
        serving = asyncio.ensure_future(serve(home, Settings(metrics_port=port), stop))
        try:
            async with asyncio.timeout(20):
                while not await watched_serving(home, SESSIONS):  # noqa: ASYNC110 - it may not be bound yet
                    await asyncio.sleep(0.01)
            async with Channels(home) as channels:
                described = await Sessions(channels, read_credential(home.operator_credential)).describe()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            told = (await asyncio.wait_for(reader.read(), 10)).decode()
            writer.close()
        finally:
            stop.set()
            assert await asyncio.wait_for(serving, 20) == 0
    assert f'fencepost_store_info{{epoch="{described.epoch}",schema="{described.schema_version}"' in told
    calls = 'fencepost_rpc_seconds_count{method="Describe",outcome="done",service="sessions"} 1.0'
    assert calls in told
    assert "fp_" not in told
