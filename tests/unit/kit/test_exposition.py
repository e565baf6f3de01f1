"""Metrics over HTTP: to whom, what, and within which bounds."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families

from fencepost.home import Home
from fencepost_kit import exposition
from fencepost_kit.exposition import REQUEST_BYTES_MAX, Exposition
from fencepost_kit.serve import Server, ServeSettings

pytestmark = [pytest.mark.requirement("kit.metrics-are-on-loopback-and-bounded")]


@pytest.fixture
async def served() -> AsyncIterator[Exposition]:
    registry = CollectorRegistry()
    Counter("things", "Things.", registry=registry).inc(3)
    made = Exposition(registry, port=0)
    await made.start()
    yield made
    await made.stop()


async def asked(port: int, request: bytes) -> tuple[bytes, bytes]:
    """Send bytes and return the first line and the body of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0], body


def request(path: str = "/metrics", *, method: str = "GET", host: str = "127.0.0.1:9464") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/plain\r\n\r\n".encode()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:9464", "localhost:1", "LOCALHOST"])
async def test_metrics_are_served_to_whoever_names_loopback(served: Exposition, host: str) -> None:
    first, body = await asked(served.port, request("/metrics?name[]=things", host=host))
    assert first == b"HTTP/1.1 200 OK"
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}
    assert families["things"].samples[0].value == 3


async def test_only_loopback_is_bound(served: Exposition) -> None:
    assert served._server is not None
    assert {socket.getsockname()[0] for socket in served._server.sockets} == {"127.0.0.1"}


@pytest.mark.parametrize("host", ["", "evil.example", "evil.example:9464", "127.0.0.1.evil.example", "[::1]:1"])
async def test_a_request_under_another_name_is_refused(served: Exposition, host: str) -> None:
    assert await asked(served.port, request(host=host)) == (
        b"HTTP/1.1 403 Forbidden",
        b"this is served to 127.0.0.1 by that name only\n",
    )


async def test_a_request_with_two_hosts_is_refused(served: Exposition) -> None:
    twice = request().replace(b"Accept", b"Host: evil.example\r\nAccept")
    assert (await asked(served.port, twice))[0] == b"HTTP/1.1 403 Forbidden"


async def test_nothing_else_is_there(served: Exposition) -> None:
    assert (await asked(served.port, request("/")))[0] == b"HTTP/1.1 404 Not Found"
    assert (await asked(served.port, request(method="POST")))[0] == b"HTTP/1.1 405 Method Not Allowed"
    assert await asked(served.port, request(method="HEAD")) == (b"HTTP/1.1 200 OK", b"")


@pytest.mark.parametrize(("bytes_more", "status"), [(0, b"200 OK"), (1, b"400 Bad Request")])
async def test_a_request_is_taken_up_to_its_limit(served: Exposition, bytes_more: int, status: bytes) -> None:
    plain = request()
    padding = REQUEST_BYTES_MAX - len(plain.removesuffix(b"\r\n\r\n")) - len(b"X: \r\n") + bytes_more
    first, _ = await asked(served.port, plain.replace(b"Accept", b"X: " + b"x" * padding + b"\r\nAccept"))
    assert first.endswith(status)


async def test_a_request_that_never_ends_is_given_up(served: Exposition, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "REQUEST_MS_MAX", 20)
    assert await asked(served.port, b"GET /metrics HTTP/1.1\r\n") == (b"", b"")


async def test_connections_are_bounded(served: Exposition, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "CONNECTIONS_MAX", 1)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(b"GET")
    async with asyncio.timeout(10):
        while not served._open:  # noqa: ASYNC110 - nothing tells that a connection was taken
            await asyncio.sleep(0)
    with contextlib.suppress(OSError):
        assert (await asked(served.port, request()))[0] == b""
    writer.write(request().removeprefix(b"GET"))
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_a_port_that_is_taken_costs_the_metrics_and_not_the_service(
    served: Exposition, home: Home, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    server = Server(ServeSettings(home=home, service="testing", metrics_port=served.port))
    await server.start()
    server.mark_ready()
    assert [line["port"] for line in logged() if line["event"] == "metrics_not_served"] == [served.port]
    await server.stop()


async def test_a_server_serves_its_registry_and_what_the_system_knows_of_the_process(home: Home) -> None:
    free = Exposition(CollectorRegistry(), port=0)
    await free.start()
    port = free.port
    await free.stop()
    server = Server(ServeSettings(home=home, service="testing", metrics_port=port))
    await server.start()
    server.gate.enter()
    _, body = await asked(port, request())
    assert b'fencepost_calls_open{service="testing"} 1.0' in body
    if sys.platform == "linux":
        assert b"process_resident_memory_bytes " in body
    server.gate.leave()
    await server.stop()
    with pytest.raises(ConnectionRefusedError):
        await asked(port, request())
