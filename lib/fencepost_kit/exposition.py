"""The metrics of a process over HTTP on loopback, for Prometheus. Off unless a port is set.

Only 127.0.0.1 is bound, and a request must name it (or localhost) as its host, so that no web page reaches it through a
name of its own. It answers GET and HEAD of /metrics and nothing else. Connections, requests and times are bounded; a
port that is taken costs the metrics and never the service.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from fencepost_kit import logs

ADDRESS: Final = "127.0.0.1"
PATH: Final = "/metrics"
PORT_MAX: Final = 65_535
CONNECTIONS_MAX: Final = 16
REQUEST_BYTES_MAX: Final = 8 * 1024
REQUEST_MS_MAX: Final = 5_000
_HOSTS: Final = frozenset({ADDRESS, "localhost"})

_log: Final = logs.get(__name__)


class Exposition:
    """Serves one registry on one port. start() and stop() belong to the life of the process."""

    def __init__(self, registry: CollectorRegistry, *, port: int) -> None:
        self._registry = registry
        self._port = port
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port that is served, 0 where none is."""
        return 0 if self._server is None else int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Serve, or say in the log why not."""
        try:
            self._server = await asyncio.start_server(self._take, ADDRESS, self._port, limit=REQUEST_BYTES_MAX)
        except OSError as error:
            _log.error("metrics_not_served", port=self._port, cause=error.strerror or str(error))
        else:
            _log.info("metrics_served", address=ADDRESS, port=self.port, path=PATH)

    async def stop(self) -> None:
        """Serve no more; what is being answered is cut off."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._open) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._open.add(task)
        try:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(REQUEST_MS_MAX / 1000):
                    writer.write(await self._answer(reader))
                    await writer.drain()
        finally:
            self._open.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return _response("400 Bad Request", b"a request of HTTP/1.1 is expected\n")
        method, path, host = _asked(head)
        if host not in _HOSTS:
            return _response("403 Forbidden", b"this is served to 127.0.0.1 by that name only\n")
        if path != PATH:
            return _response("404 Not Found", b"only /metrics is here\n")
        if method not in {"GET", "HEAD"}:
            return _response(
                "405 Method Not Allowed", b"only GET and HEAD are answered\n", extra="Allow: GET, HEAD\r\n"
            )
        # On a thread: writing a thousand lines takes milliseconds, which calls must not wait for.
        body = await asyncio.to_thread(generate_latest, self._registry)
        return _response("200 OK", body, kind=CONTENT_TYPE_PLAIN_0_0_4, headers_only=method == "HEAD")


def _asked(head: bytes) -> tuple[str, str, str]:
    """Return method, path without its query, and host without its port; empty text for what is not there."""
    first, *fields = head.decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    hosts = [value.strip() for name, _, value in (line.partition(":") for line in fields) if name.lower() == "host"]
    host = hosts[0].rpartition(":")[0] or hosts[0] if len(hosts) == 1 else ""
    return method, path, host.lower()


def _response(
    status: str, body: bytes, *, kind: str = "text/plain", extra: str = "", headers_only: bool = False
) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{extra}"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + (b"" if headers_only else body)
