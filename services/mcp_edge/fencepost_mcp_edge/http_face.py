"""The edge over HTTP on loopback, for clients that want a URL. Loaded only where a port is set.

Guarantees: nothing but 127.0.0.1 is bound; every request brings an agent's credential, and one of a web page of another
machine is refused; nothing is kept between requests, in either era of the protocol; heads, bodies, connections, calls
and the time of each are bounded; a stop ends what only reads and lets mutations finish. A port that is taken costs this
face and never the agents behind shims.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from fencepost.client import Channels
from fencepost.errors import FencepostError, Refused
from fencepost.home import Home, is_uuid
from fencepost.mcp import offers
from fencepost.mcp.link import new_nonce
from fencepost.mcp.names import server_name
from fencepost.mcp.session import Told
from fencepost_kit import logs
from fencepost_mcp_edge.domain.frames import Hello
from fencepost_mcp_edge.domain.posts import PATH, Head
from fencepost_mcp_edge.exchange import Exchange, Message, Receive, Send
from fencepost_mcp_edge.shims import Limits
from fencepost_mcp_edge.usecases.caller import Caller, Stored
from fencepost_mcp_edge.usecases.outcomes import ToolError, overloaded

ADDRESS: Final = "127.0.0.1"
BACKLOG: Final = 256
HTTP_CONNECTIONS_MAX: Final = 256
HEAD_BYTES_MAX: Final = 16 * 1024
HEAD_MS_MAX: Final = 10_000
KEEP_ALIVE_S: Final = 15
AGENTS_KNOWN_MAX: Final = 4096
# Discovery does not wait for services; what an agent may call is decided at the call.
TOLD_MS_MAX: Final = 2_000

_log: Final = logs.get(__name__)


class StoredTools:
    """Which families are stored for an agent that comes without a shim, and so tells nothing but its credential."""

    def __init__(self, home: Home) -> None:
        self._home: Final = home
        # The agent behind a credential never changes.
        self._known: Final[dict[str, str]] = {}

    async def __call__(self, caller: Caller) -> frozenset[str] | None:
        """Return the families; None where nothing is stored, or nobody knows the credential: who is asked refuses it.

        Raises:
            NotWritten: sessions could not be asked.
        """
        agent_id = self._known.get(caller.token_sha256, "")
        if not agent_id:
            try:
                agent_id = await caller.agent_id()
            except Refused:
                return None
            if len(self._known) >= AGENTS_KNOWN_MAX:
                self._known.clear()
            self._known[caller.token_sha256] = agent_id
        return offers.stored_in(str(self._home.agent_folder(agent_id))) if is_uuid(agent_id) else None


class HttpFace:
    """The face of one edge. start() and stop() belong to the life of the process."""

    def __init__(
        self, *, channels: Channels, limits: Limits, port: int, drain_ms: int, stored: Stored | None = None
    ) -> None:
        self.draining = False
        self.page_bytes_max: Final = limits.page_bytes_max
        # Every call in progress, those of clients that have gone included.
        self.calls: Final[set[asyncio.Task[bytes]]] = set()
        self._calls_in_flight_max = limits.calls_in_flight_max
        self._channels = channels
        self._stored = stored
        self._name = server_name(os.environ)
        # The port that is served, 0 where none is.
        self.port = 0
        self._port = port
        self._drain_ms = drain_ms
        self._exchanges: set[Exchange] = set()
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve, or say in the log why not."""
        try:
            listener = _bound(self._port)
        except OSError as error:
            _log.error("http_not_served", port=self._port, cause=error.strerror or str(error))
            return
        # Its own log would be text among JSON lines; what fails is logged here.
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL + 1)
        config = uvicorn.Config(
            self._serve,
            interface="asgi3",
            http=_Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            limit_concurrency=HTTP_CONNECTIONS_MAX,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            timeout_keep_alive=KEEP_ALIVE_S,
            # Without it an open stream would hold up the stop for as long as its client likes.
            timeout_graceful_shutdown=max(1, self._drain_ms // 1000),
        )
        self._server = _Server(config)
        self._serving = asyncio.get_running_loop().create_task(self._server.serve(sockets=[listener]))
        self.port = int(listener.getsockname()[1])
        _log.info("http_served", address=ADDRESS, port=self.port, path=PATH)

    async def drain(self) -> None:
        """Take no more calls, end what only reads, let mutations finish. Bounded by whoever calls it."""
        self.draining = True
        for exchange in list(self._exchanges):
            exchange.end_reading()
        while self.calls:
            await asyncio.wait(set(self.calls))

    async def stop(self) -> None:
        """Close what is left. Calls still open are cut off."""
        self.draining = True
        for task in list(self.calls):
            task.cancel()
        await asyncio.gather(*self.calls, return_exceptions=True)
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await asyncio.gather(self._serving, return_exceptions=True)
            self._server = self._serving = None

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        exchange = Exchange(office=self, receive=receive, send=send)
        self._exchanges.add(exchange)
        try:
            await exchange.serve(_head(scope))
        except Exception as error:
            _log.exception("http_exchange_failed", error)
            raise
        finally:
            self._exchanges.discard(exchange)

    # For exchanges.

    def caller(self, token: str, tools: frozenset[str] | None, *, warp: bool) -> Caller:
        """Return the agent behind a credential, asking for these tools, with keys that no other exchange has."""
        hello = Hello(token=token, nonce=new_nonce(), tools=tools, warp=warp, stays=False)
        return Caller(channels=self._channels, hello=hello, tell=lambda _word: None, stored=self._stored)

    async def told(self, caller: Caller) -> Told:
        """Return what the agent is told of this server; what is stored for one that nobody knows is nothing."""
        try:
            async with asyncio.timeout(TOLD_MS_MAX / 1000):
                families = await caller.families()
        except (FencepostError, TimeoutError):
            families = caller.asked
        return offers.telling(self._name, families, warp=caller.warp)

    def begun(self, task: asyncio.Task[bytes]) -> None:
        """Keep a call that was begun."""
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)

    def crowded(self, token: str) -> ToolError | None:
        """Return what is told where no more calls of this agent fit, else None."""
        count = sum(len(exchange.calls()) for exchange in self._exchanges if exchange.token == token)
        return overloaded(count) if count >= self._calls_in_flight_max else None

    def cancel(self, token: str, id_text: str) -> None:
        """End the call that has this id in an exchange of this agent, where exactly one has: ids are not ours."""
        found = [
            (exchange, call)
            for exchange in self._exchanges
            if exchange.token == token and not exchange.modern
            for call in exchange.calls()
            if call.id_text == id_text
        ]
        if len(found) == 1:
            exchange, call = found[0]
            exchange.withdraw(call)


class _Server(uvicorn.Server):
    """Leaves the signals to the process that it is a part of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Connection(H11Protocol):
    """Gives up a connection that does not bring a whole head in time: uvicorn waits for ever."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._forget()
        elif self._late is None:
            self._late = self.loop.call_later(HEAD_MS_MAX / 1000, self.transport.abort)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def _bound(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((ADDRESS, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _head(scope: Message) -> Head:
    headers: Any = scope["headers"]
    return Head(
        method=scope["method"],
        path=scope["path"],
        query=scope["query_string"].decode("latin-1"),
        headers=[(name.decode("latin-1"), value.decode("latin-1").strip()) for name, value in headers],
    )
