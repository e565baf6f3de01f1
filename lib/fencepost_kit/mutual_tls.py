"""Calls over TCP, where `listen` is set: mutual TLS in front of a service's own Unix socket.

A connection is taken only with a certificate that this home has issued and not taken back; what follows is passed to
the socket unread, so every call meets the same guard and needs the same credential. A certificate that is revoked or
expires ends its open connections too: that is why TLS ends here and not in gRPC, whose Python server asks for neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import ipaddress
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from fencepost.home import Home
from fencepost_kit import logs
from fencepost_kit.refusal import StartRefused

LOOPBACK: Final = "127.0.0.1"
PORT_MAX: Final = 65_535
CONNECTIONS_MAX_TLS: Final = 256
HANDSHAKE_MS_MAX: Final = 5_000
CHUNK_BYTES_MAX: Final = 64 * 1024
# How long a certificate that was taken back may still be used on an open connection.
RECHECK_MS: Final = 500

_log: Final = logs.get(__name__)


class InvalidListen(StartRefused):
    """The address to listen on cannot be used."""

    reason = "invalid_listen"


class ListenInUse(StartRefused):
    """Somebody else has the port."""

    reason = "listen_in_use"


class CertificatesMissing(StartRefused):
    """`listen` is set, and the home has no usable authority."""

    reason = "certificates_missing"


def parse_listen(text: str) -> tuple[str, int]:
    """Return host and port of `host:port`, `[host]:port` or `port` alone, which means 127.0.0.1.

    Raises:
        InvalidListen: the host is no IP address or localhost, or the port is not 1 to 65535.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or LOOPBACK
    try:
        address = LOOPBACK if host == "localhost" else str(ipaddress.ip_address(host))
    except ValueError:
        address = ""
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 0
    if not address or not 1 <= number <= PORT_MAX:
        raise InvalidListen(
            f"listen = {text!r} is no address to listen on; nothing was started",
            hint="Write PORT for 127.0.0.1, or ADDRESS:PORT with an IP address.",
        )
    return address, number


def fingerprints(home: Home) -> frozenset[bytes]:
    """Return the SHA-256 of every client certificate in force."""
    found = set()
    for path in (home.certificates / "issued").glob("*/client.crt"):
        # One that is just being taken back is not in force.
        with contextlib.suppress(OSError, ValueError):
            found.add(hashlib.sha256(ssl.PEM_cert_to_DER_cert(path.read_text(encoding="ascii"))).digest())
    return frozenset(found)


def context_of(home: Home) -> ssl.SSLContext:
    """Return what the services of a home speak TLS 1.3 with, asking for a certificate of this home's authority.

    Raises:
        CertificatesMissing: it cannot be made from what lies in the home.
    """
    folder = home.certificates
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    try:
        context.load_verify_locations(cafile=str(folder / "authority.crt"))
        context.load_cert_chain(str(folder / "service.crt"), str(folder / "service.key"))
    except OSError as error:
        raise CertificatesMissing(
            f"listen is set, and {folder} holds no usable certificates ({type(error).__name__}); nothing was started",
            hint="Make them with `fencepost certs init`, or take listen out of the settings.",
        ) from error
    return context


class _Connection:
    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        inner = writer.get_extra_info("ssl_object")
        self.fingerprint = hashlib.sha256(inner.getpeercert(binary_form=True)).digest()
        self.expires_at_s = ssl.cert_time_to_seconds(inner.getpeercert()["notAfter"])

    def good(self, in_force: frozenset[bytes], now_s: float) -> bool:
        return self.fingerprint in in_force and now_s < self.expires_at_s


class TlsFront:
    """Listens on one address for one service. start() and stop() belong to the life of the process."""

    def __init__(self, *, home: Home, listen: str, now_s: Callable[[], float] = time.time) -> None:
        self._home = home
        self._host, self._port = parse_listen(listen)
        self._context = context_of(home)
        self._now_s = now_s
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], _Connection] = {}
        self._recheck: asyncio.Task[None] | None = None

    async def start(self, to: Path) -> None:
        """Take connections and pass them to the socket `to`.

        Raises:
            ListenInUse, InvalidListen: the address cannot be bound.
        """
        self._to = to
        try:
            self._server = await asyncio.start_server(
                self._take,
                self._host,
                self._port,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_MS_MAX / 1000,
                limit=CHUNK_BYTES_MAX,
            )
        except OSError as error:
            kind = ListenInUse if error.errno == errno.EADDRINUSE else InvalidListen
            raise kind(
                f"{self._host}:{self._port} cannot be listened on: {error.strerror}; nothing was started",
                hint="Choose another address for listen.",
            ) from error
        self._recheck = asyncio.get_running_loop().create_task(self._recheck_now_and_then())
        _log.info("tls_served", address=self._host, port=self._port)

    def close_door(self) -> None:
        """Take no new connections; those that are open go on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def stop(self) -> None:
        """End everything."""
        self.close_door()
        if self._recheck is not None:
            self._recheck.cancel()
        for task in self._open:
            task.cancel()
        waited = [*self._open, *([self._recheck] if self._recheck is not None else [])]
        await asyncio.gather(*waited, return_exceptions=True)

    async def _recheck_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(RECHECK_MS / 1000)
            if not self._open:
                continue
            in_force, now_s = fingerprints(self._home), self._now_s()
            for task, connection in list(self._open.items()):
                if not connection.good(in_force, now_s):
                    _log.warning("tls_connection_ended", cause="certificate_not_in_force")
                    task.cancel()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(writer)
        task = asyncio.current_task()
        assert task is not None
        try:
            if not connection.good(fingerprints(self._home), self._now_s()):
                _log.warning("tls_connection_refused", cause="certificate_not_in_force")
            elif len(self._open) >= CONNECTIONS_MAX_TLS:
                _log.warning("tls_connection_refused", cause="connections_max")
            else:
                self._open[task] = connection
                await self._pass_on(reader, writer)
        except asyncio.CancelledError:
            # Ended by recheck or stop, which is how a connection ends; nobody waits for this task's result.
            pass
        finally:
            self._open.pop(task, None)
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_unix_connection(str(self._to), limit=CHUNK_BYTES_MAX)
        except OSError:
            return
        copies = [
            asyncio.ensure_future(_copy(reader, inner_writer)),
            asyncio.ensure_future(_copy(inner_reader, writer)),
        ]
        try:
            # Either side's end is the end: HTTP/2 closes a connection as a whole.
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(HANDSHAKE_MS_MAX / 1000):
                    await writer.drain()
        finally:
            for copy in copies:
                copy.cancel()
            await asyncio.gather(*copies, return_exceptions=True)
            inner_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, ssl.SSLError):
        while data := await reader.read(CHUNK_BYTES_MAX):
            writer.write(data)
            await writer.drain()
