"""Calls over TCP: who gets through, over each transport, and what ends a connection that stands."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fencepost import Budgets, Client, Home, NotWritten, Refused, certs
from fencepost.home import MAILBOX, SESSIONS
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost.mailbox.v1.mailbox_pb2_grpc import add_MailboxServiceServicer_to_server
from fencepost.transports import TRANSPORTS, ClientCertificates, TransportName, opener
from fencepost_kit import mutual_tls
from fencepost_kit.mutual_tls import CertificatesMissing, InvalidListen, ListenInUse, parse_listen
from fencepost_kit.serve import Server, ServeSettings
from fencepost_testing.certificates import reissue
from fencepost_testing.fake_mailbox import TOKEN, FakeMailbox, hang
from fencepost_testing.processes import Services, create_agents, short_home

SHORT = Budgets(ready_ms=300, call_ms=400, settle_ms=300)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> TransportName:
    named: TransportName = request.param
    return named


@pytest.fixture(scope="module")
def made_once() -> Iterator[Home]:
    """A home with an authority and the client `laptop`, which nobody changes."""
    with short_home() as made:
        certs.init(made)
        certs.issue(made, "laptop")
        yield made


@pytest.fixture
def home(made_once: Home) -> Iterator[Home]:
    """A home with the same, to be changed at will."""
    with short_home() as made:
        made.prepare()
        shutil.copytree(made_once.certificates, made.certificates)
        yield made


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Home]:
    """Another home with an authority of its own."""
    with short_home() as other:
        certs.init(other)
        yield other


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
async def fake(home: Home, port: int) -> AsyncIterator[FakeMailbox]:
    """A mailbox behind the kit's server that listens on `port` too."""
    answering = FakeMailbox(home)
    server = Server(ServeSettings(home=home, service=MAILBOX, drain_ms=200, listen=f"127.0.0.1:{port}"))
    add_MailboxServiceServicer_to_server(answering, server.grpc)
    await server.start()
    yield answering
    await server.stop()


def client(
    home: Home, port: int, transport: TransportName, *, folder: Path | None = None, budgets: Budgets | None = SHORT
) -> Client:
    credential = home.path / "token"
    credential.write_text(TOKEN)
    credential.chmod(0o600)
    return Client.over_tls(
        {"mailbox": f"127.0.0.1:{port}"},
        certificates=folder or home.certificates / "issued" / "laptop",
        credential=credential,
        budgets=budgets,
        transport=transport,
    )


async def refused(caller: Client, fake: FakeMailbox) -> None:
    """The caller is not let in, and nothing of its call has arrived."""
    async with caller:
        with pytest.raises(NotWritten):
            await caller.send("bob", "x")
    assert fake.calls == []


@pytest.mark.requirement("tls.own-certificate-and-token")
async def test_a_client_with_a_certificate_of_the_home_sends_and_receives(
    fake: FakeMailbox, home: Home, port: int, transport: TransportName
) -> None:
    async with client(home, port, transport, budgets=None) as caller:
        assert (await caller.send("bob", "x" * 60_000)).record_id == "inf_1"
        assert (await caller.wait(timeout_ms=100)).timed_out
        assert (await caller.receive()).high_water == 7
    assert set(fake.tokens) == {f"Bearer {TOKEN}"}


@pytest.mark.requirement("tls.own-certificate-and-token")
async def test_a_certificate_does_not_stand_for_a_credential(home: Home, port: int, transport: TransportName) -> None:
    certificates = home.certificates / "issued" / "laptop"
    stranger = home.path / "stranger"
    stranger.write_text(TOKEN)
    stranger.chmod(0o600)
    async with Services(home, env={"FENCEPOST_MAILBOX_LISTEN": str(port)}) as services:
        await services.start(SESSIONS, MAILBOX)
        agents = await create_agents(services, "ada", "bob")

        def as_(credential: Path) -> Client:
            addresses = {"mailbox": f"127.0.0.1:{port}"}
            return Client.over_tls(addresses, certificates=certificates, credential=credential, transport=transport)

        async with as_(agents["ada"].credential_file) as known, as_(stranger) as unknown:
            assert (await known.send("bob", "from afar")).recipient.name == "bob"
            with pytest.raises(Refused) as caught:
                await unknown.send("bob", "x")
        assert caught.value.reason == "unauthenticated"


@pytest.mark.requirement("tls.others-are-refused")
async def test_a_certificate_of_another_authority_is_refused(
    fake: FakeMailbox, home: Home, elsewhere: Home, port: int, transport: TransportName
) -> None:
    foreign = certs.issue(elsewhere, f"laptop-{transport}").path.parent
    # It even knows the right authority of the service.
    (foreign / "authority.crt").write_bytes((home.certificates / "authority.crt").read_bytes())
    await refused(client(home, port, transport, folder=foreign), fake)


@pytest.mark.requirement("tls.others-are-refused")
async def test_a_service_of_another_authority_is_not_spoken_to(
    fake: FakeMailbox, home: Home, elsewhere: Home, port: int, transport: TransportName
) -> None:
    folder = home.certificates / "issued" / "laptop"
    (folder / "authority.crt").write_bytes((elsewhere.certificates / "authority.crt").read_bytes())
    await refused(client(home, port, transport), fake)


@pytest.mark.requirement("tls.others-are-refused")
@pytest.mark.parametrize(
    ("begin", "end"),
    [("20200101000000Z", "20210101000000Z"), ("20900101000000Z", "20910101000000Z")],
    ids=["expired", "not yet good"],
)
async def test_a_certificate_out_of_its_time_is_refused(
    fake: FakeMailbox, home: Home, port: int, transport: TransportName, tmp_path: Path, begin: str, end: str
) -> None:
    reissue(home, "laptop", tmp_path / "ca", begin=begin, end=end)
    await refused(client(home, port, transport), fake)


@pytest.mark.requirement("tls.others-are-refused")
async def test_a_revoked_certificate_is_refused(
    fake: FakeMailbox, home: Home, port: int, transport: TransportName, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    for path in (home.certificates / "issued" / "laptop").iterdir():
        (kept / path.name).write_bytes(path.read_bytes())
    certs.revoke(home, "laptop")
    await refused(client(home, port, transport, folder=kept), fake)


@pytest.mark.requirement("tls.revocation-ends-connections")
async def test_revoking_ends_a_connection_that_stands(
    fake: FakeMailbox, home: Home, port: int, transport: TransportName
) -> None:
    async with client(home, port, transport) as caller:
        fake.next("Wait", hang())
        waiting = asyncio.create_task(caller.wait(timeout_ms=1_000))
        await asyncio.wait_for(fake.reached("Wait"), 5)
        certs.revoke(home, "laptop")
        with pytest.raises(NotWritten):
            await asyncio.wait_for(waiting, 25)
        assert fake.calls.count("Wait") == 1


@pytest.mark.requirement("tls.revocation-ends-connections")
async def test_a_certificate_that_expires_ends_its_connection(home: Home, tmp_path: Path) -> None:
    now_s = [time.time()]
    front = mutual_tls.TlsFront(home=home, listen=str(port := free_port()), now_s=lambda: now_s[0])

    async def park(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            await reader.read()

    inner = await asyncio.start_unix_server(park, str(home.path / "inner"))
    await front.start(home.path / "inner")
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context(home))
    writer.write(b"hello")
    assert await _nothing_for_now(reader)
    now_s[0] += 91 * 86_400
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.transport.abort()
    await front.stop()
    inner.close()


@pytest.mark.requirement("tls.connections-are-bounded")
async def test_one_connection_more_than_the_limit_is_closed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutual_tls, "CONNECTIONS_MAX_TLS", 2)
    arrived: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            while data := await reader.read(100):
                arrived.append(data)
                writer.write(data)

    front = mutual_tls.TlsFront(home=home, listen=str(port := free_port()))
    inner = await asyncio.start_unix_server(answer, str(home.path / "inner"))
    await front.start(home.path / "inner")
    opened = [await asyncio.open_connection("127.0.0.1", port, ssl=context(home)) for _ in range(2)]
    for reader, writer in opened:
        writer.write(b"in")
        assert await asyncio.wait_for(reader.read(2), 5) == b"in"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context(home))
    writer.write(b"over")
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 5) == b""
    assert b"".join(arrived) == b"inin"
    for _, each in [*opened, (reader, writer)]:
        each.transport.abort()
    await front.stop()
    inner.close()


async def _nothing_for_now(reader: asyncio.StreamReader) -> bool:
    reading = asyncio.create_task(reader.read(1))
    done, _ = await asyncio.wait([reading], timeout=2 * mutual_tls.RECHECK_MS / 1000)
    reading.cancel()
    return not done


def context(home: Home) -> ssl.SSLContext:
    folder = home.certificates / "issued" / "laptop"
    made = ssl.create_default_context(cafile=str(folder / "authority.crt"))
    made.load_cert_chain(str(folder / "client.crt"), str(folder / "client.key"))
    made.set_alpn_protocols(["h2"])
    return made


@pytest.mark.requirement("tls.others-are-refused")
@pytest.mark.parametrize("kind", ["no certificate", "no TLS", "old TLS"])
async def test_whoever_does_not_speak_mutual_tls_gets_no_byte(
    fake: FakeMailbox, home: Home, port: int, kind: str
) -> None:
    made: ssl.SSLContext | None = context(home)
    assert made is not None
    if kind == "no certificate":
        made = ssl.create_default_context(cafile=str(home.certificates / "authority.crt"))
    elif kind == "no TLS":
        made = None
    else:
        made.maximum_version = ssl.TLSVersion.TLSv1_2
    answer = b""
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=made)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            answer = await asyncio.wait_for(reader.read(), 10)
        writer.transport.abort()
    # What may come back without TLS is an alert of TLS.
    assert answer == b"" or (kind == "no TLS" and answer[:1] == b"\x15")
    assert fake.calls == []


@pytest.mark.requirement("tls.listens-on-loopback-by-default")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("7443", ("127.0.0.1", 7443)),
        (":7443", ("127.0.0.1", 7443)),
        ("localhost:1", ("127.0.0.1", 1)),
        ("[::1]:65535", ("::1", 65_535)),
        ("192.0.2.7:7443", ("192.0.2.7", 7443)),
    ],
)
def test_a_port_alone_means_loopback(text: str, found: tuple[str, int]) -> None:
    assert parse_listen(text) == found


@pytest.mark.requirement("tls.listens-on-loopback-by-default")
@pytest.mark.parametrize("text", ["0", "65536", "x", "host.example:1", "127.0.0.1:", "127.0.0.1", "1:2:3", "٣"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidListen):
        parse_listen(text)


@pytest.mark.requirement("tls.start-is-refused")
async def test_without_an_authority_or_with_a_port_that_is_taken_the_service_does_not_start(home: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        used = Server(ServeSettings(home=home, service=MAILBOX, listen=str(taken.getsockname()[1])))
        with pytest.raises(ListenInUse):
            await used.start()
    with short_home() as bare:
        missing = Server(ServeSettings(home=bare, service=MAILBOX, listen=str(free_port())))
        with pytest.raises(CertificatesMissing) as caught:
            await missing.start()
        assert "fencepost certs init" in caught.value.hint
        assert not bare.address(MAILBOX).exists()
    assert not home.address(MAILBOX).exists()


@pytest.mark.requirement("tls.start-is-refused")
def test_the_client_names_certificates_that_it_cannot_read(tmp_path: Path, transport: TransportName) -> None:
    with pytest.raises(FileNotFoundError):
        opener(transport)("127.0.0.1:1", ClientCertificates.in_folder(tmp_path))


@pytest.mark.requirement("tls.start-is-refused")
@pytest.mark.parametrize("address", ["127.0.0.1", ":1", "host:port", ""])
async def test_the_client_refuses_an_address_that_is_none(home: Home, address: str) -> None:
    credential = home.path / "token"
    credential.write_text(TOKEN)
    credential.chmod(0o600)
    folder = home.certificates / "issued" / "laptop"
    async with Client.over_tls({"mailbox": address}, certificates=folder, credential=credential) as caller:
        with pytest.raises(Refused) as caught:
            await caller.mailbox.send(pb.SendRequest(target="bob", body="x", idempotency_key="k"))
        assert caught.value.reason == "invalid_address"
        with pytest.raises(Refused):
            await caller.sessions.describe()
    async with Client.over_tls({"mailbox": "127.0.0.1:1"}, certificates=home.path, credential=credential) as unable:
        with pytest.raises(Refused) as caught:
            await unable.send("bob", "x")
        assert caught.value.reason == "certificates_unreadable"
