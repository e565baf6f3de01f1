"""The client library: gRPC calls that end in one of three outcomes.

A call returns (done), raises `Refused` or `NotWritten` (nothing was written), or raises `Uncertain` (not known, never
replayed). A mutation of the mailbox goes: wait until the channel is ready, send once with a deadline; where the answer
is lost, reconnect and ask `SettleKey` what became of the key, which also bars the lost call from arriving later.
"""

from __future__ import annotations

import asyncio
import os
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

import grpc
import grpc.aio

from fencepost.errors import LOST_TAIL, FencepostError, NotWritten, Refused, Uncertain, error_of
from fencepost.home import (
    CREDENTIAL_VARIABLE,
    GENERATION_VARIABLE,
    HOME_VARIABLE,
    MAILBOX,
    PROVIDERS,
    SESSION_VARIABLE,
    SESSIONS,
    Home,
    read_address,
    read_credential,
)
from fencepost.mailbox.v1 import context_pb2 as contexts
from fencepost.mailbox.v1 import evidence_pb2 as evidence
from fencepost.mailbox.v1 import files_pb2 as files
from fencepost.mailbox.v1 import mailbox_pb2 as mailbox
from fencepost.mailbox.v1 import tasks_pb2 as tasks
from fencepost.mailbox.v1.context_pb2_grpc import ContextServiceStub
from fencepost.mailbox.v1.evidence_pb2_grpc import EvidenceServiceStub
from fencepost.mailbox.v1.files_pb2_grpc import FilesServiceStub
from fencepost.mailbox.v1.mailbox_pb2_grpc import MailboxServiceStub
from fencepost.mailbox.v1.tasks_pb2_grpc import TasksServiceStub
from fencepost.providers.v1 import providers_pb2 as providers
from fencepost.providers.v1.providers_pb2_grpc import ProvidersServiceStub
from fencepost.sessions.v1 import sessions_pb2 as sessions
from fencepost.sessions.v1.sessions_pb2_grpc import SessionsServiceStub
from fencepost.transports import ClientCertificates, Remote, TransportName, opener

if TYPE_CHECKING:
    from fencepost.mailbox.v1.context_pb2_grpc import ContextServiceAsyncStub
    from fencepost.mailbox.v1.evidence_pb2_grpc import EvidenceServiceAsyncStub
    from fencepost.mailbox.v1.files_pb2_grpc import FilesServiceAsyncStub
    from fencepost.mailbox.v1.mailbox_pb2_grpc import MailboxServiceAsyncStub
    from fencepost.mailbox.v1.tasks_pb2_grpc import TasksServiceAsyncStub
    from fencepost.providers.v1.providers_pb2_grpc import ProvidersServiceAsyncStub
    from fencepost.sessions.v1.sessions_pb2_grpc import SessionsServiceAsyncStub

# How long a call may wait for a connection before it is given up unsent.
READY_BUDGET_MS: Final = 5_000
# How long the service may take to answer a call that has been sent.
CALL_BUDGET_MS: Final = 10_000
# How long to go on asking what became of a call whose answer was lost; a restart of the service fits in.
SETTLE_BUDGET_MS: Final = 10_000
# What a program may take besides to answer for its models or its state, and to end an interrupted turn.
PROGRAM_MS_MAX: Final = 20_000
INTERRUPT_MS_MAX: Final = 10_000
# As long as the service gives itself for fetching, merging and waiting for others in the repository.
INTEGRATE_MS_MAX: Final = 110_000
VERIFY_MS_MAX: Final = 50_000
# Between attempts after "may be resent".
RESEND_BACKOFF_MS_MIN: Final = 50
RESEND_BACKOFF_MS_MAX: Final = 500
# How often an address that is not published, or a socket that nobody serves, is looked at again.
ADDRESS_POLL_MS: Final = 50
ADDRESS_RECHECK_MS: Final = 500
# How long calls may finish on a channel whose address was replaced.
RETIRE_GRACE_MS: Final = 64_000
IDEMPOTENCY_KEY_BYTES_MAX: Final = 256
BODY_BYTES_MAX: Final = 64 * 1024
# What makes a write one write, by whatever name the service has for it.
_KEYS: Final = ("idempotency_key", "request_id")
_SENT_HINT: Final = (
    "Do not send it again. When the service is back, `fencepost message list --sent` shows if it arrived."
)
_TASK_HINT: Final = "Do not send it again with a new request id. `fencepost task history ID` shows whether it arrived."
_NOTICE_HINT: Final = "A notification may have been given and lost; ListNotifications shows what stands."

StubT = TypeVar("StubT")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
# What the stub's attribute of an RPC is, as far as this module uses it.
Rpc = Callable[..., Awaitable[ResponseT]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Budgets:
    """How long the parts of a call may take, in milliseconds."""

    ready_ms: int = READY_BUDGET_MS
    call_ms: int = CALL_BUDGET_MS
    settle_ms: int = SETTLE_BUDGET_MS


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """Who the caller is: a token, and where it was found."""

    token: str = field(repr=False)
    # The agent's UUID where the environment names it.
    agent_id: str | None
    # What named the token: a variable, or "operator".
    source: str
    # The generation that the launcher expects; checked by `verify`.
    expected_generation: int | None = None
    # True where two sources were given and the files alone cannot show that they agree.
    unconfirmed: bool = False

    @classmethod
    def from_environment(cls, home: Home, env: Mapping[str, str] | None = None) -> Identity:
        """Return the agent that the environment names: by credential file, else by home and session id.

        Raises:
            Refused: neither is set (missing_managed_sender); both are set and disagree (identity_disagreement); the id,
                the expected generation or the credential file cannot be used. Nothing but the credential was read.
        """
        env = os.environ if env is None else env
        named_file, session = env.get(CREDENTIAL_VARIABLE, ""), env.get(SESSION_VARIABLE, "").lower()
        generation = _expected_generation(env.get(GENERATION_VARIABLE, ""))
        if not named_file and not session:
            raise Refused(
                "missing_managed_sender",
                "this process speaks for no agent; nothing was read and nothing was sent",
                hint=f"Set {HOME_VARIABLE} and {SESSION_VARIABLE} as `fencepost agent create NAME` prints them.",
            )
        session_file = home.agent_credential_text(session) if session else ""
        if not named_file:
            return cls(
                token=read_credential(session_file),
                agent_id=session,
                source=SESSION_VARIABLE,
                expected_generation=generation,
            )
        token = read_credential(named_file)
        unconfirmed = False
        if session:
            try:
                agreed = read_credential(session_file) == token
            except Refused:
                agreed, unconfirmed = True, True
            if not agreed:
                raise _disagreement()
        return cls(
            token=token,
            agent_id=session or None,
            source=CREDENTIAL_VARIABLE,
            expected_generation=generation,
            unconfirmed=unconfirmed,
        )

    @classmethod
    def operator(cls, home: Home) -> Identity:
        """Return the person who owns the home. Refuses where the home holds no operator credential yet."""
        return cls(token=read_credential(home.operator_credential), agent_id=None, source="operator")

    @property
    def needs_verifying(self) -> bool:
        """True where only sessions can tell whether the environment agrees with the credential."""
        return self.expected_generation is not None or self.unconfirmed

    async def verify(self, sessions_service: Sessions) -> None:
        """Ask sessions whether the credential belongs to the agent and generation that the environment names.

        Raises:
            Refused: it does not (identity_disagreement, stale_generation), or sessions refuses the credential.
        """
        credential = (await sessions_service.get_caller()).credential
        if self.agent_id is not None and credential.agent_id != self.agent_id:
            raise _disagreement()
        if self.expected_generation is not None and credential.generation != self.expected_generation:
            raise Refused(
                "stale_generation",
                f"this process was started for generation {self.expected_generation} and its credential is of"
                f" generation {credential.generation}; nothing was sent",
                hint="Another life of this agent has begun; end this process.",
                state={"generation": str(credential.generation)},
            )


def _disagreement() -> Refused:
    return Refused(
        "identity_disagreement",
        f"{CREDENTIAL_VARIABLE} and {SESSION_VARIABLE} name different agents; nothing was sent",
        hint="Set only one of them.",
    )


def _expected_generation(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) >= 1):
        raise Refused("invalid_generation", f"{GENERATION_VARIABLE} is not a number from 1 on; nothing was sent")
    return int(text)


def new_key(prefix: str = "lib") -> str:
    """Return an idempotency key that was never used before."""
    return f"{prefix}-{uuid.uuid4().hex}"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Link:
    address: str
    channel: grpc.aio.Channel


class Channels:
    """Lazily opened channels to the services of one home. One event loop, and one instance of this, per process.

    The address of a service is read from the home's run folder at each connect, because services restart; a channel
    that is ready costs a call nothing more. `transport`: see `fencepost.transports`.

    Raises:
        Refused: there is no such transport, or its extra is not installed.
    """

    def __init__(self, home: Home, *, transport: TransportName = "grpcio", remote: Remote | None = None) -> None:
        self.home = home
        self._remote = remote
        self._open = opener(transport)
        self._links: dict[str, _Link] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        # The store's epoch as last described, shared by everybody who speaks through these channels.
        self.epochs: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def ready(self, service: str, *, within_ms: int) -> grpc.aio.Channel:
        """Return a connected channel to `service`.

        Raises:
            NotWritten: none could be had in time, so nothing has left this process: not_running where the service
                publishes no address, unreachable where nobody answers there.
        """
        link = self._links.get(service)
        if link is not None and link.channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
            return link.channel
        clock = asyncio.get_running_loop().time
        deadline = clock() + within_ms / 1000
        while True:
            address = self._address(service)
            remaining_s = deadline - clock()
            if address is not None:
                channel = self._linked(service, address)
                if await _becomes_ready(channel, min(remaining_s, ADDRESS_RECHECK_MS / 1000)):
                    return channel
                remaining_s = deadline - clock()
            if remaining_s <= 0:
                raise _not_connected(service, self._where, published=address is not None, within_ms=within_ms)
            if address is None:
                await asyncio.sleep(min(remaining_s, ADDRESS_POLL_MS / 1000))

    def _address(self, service: str) -> str | None:
        if self._remote is None:
            return read_address(self.home.address(service))
        address = self._remote.addresses.get(service)
        if address is None:
            raise Refused("invalid_address", f"no address of {service} was given; nothing was sent")
        return address

    @property
    def _where(self) -> str:
        return f"the home {self.home.text}" if self._remote is None else f"{dict(self._remote.addresses)}"

    def _linked(self, service: str, address: str) -> grpc.aio.Channel:
        link = self._links.get(service)
        if link is not None and link.address == address:
            return link.channel
        if link is not None:
            task = asyncio.create_task(link.channel.close(grace=RETIRE_GRACE_MS / 1000))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
        channel = self._opened(address)
        self._links[service] = _Link(address=address, channel=channel)
        return channel

    def _opened(self, address: str) -> grpc.aio.Channel:
        if self._remote is None:
            return self._open(address, None)
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise Refused("invalid_address", f"{address!r} is not host:port; nothing was sent")
        try:
            return self._open(address, self._remote.certificates)
        except (OSError, ValueError) as error:
            # The cause may repeat a line of a key.
            raise Refused(
                "certificates_unreadable",
                f"the certificates for {address} cannot be used ({type(error).__name__}); nothing was sent",
                hint="Copy the folder that `fencepost certs issue NAME` made, whole, and readable for this user alone.",
            ) from None

    async def aclose(self) -> None:
        """Close every channel. Calls still open end as cancelled."""
        links, self._links = self._links, {}
        retiring = list(self._retiring)
        for task in retiring:
            task.cancel()
        await asyncio.gather(*retiring, return_exceptions=True)
        for link in links.values():
            await link.channel.close()


async def _becomes_ready(channel: grpc.aio.Channel, within_s: float) -> bool:
    try:
        async with asyncio.timeout(max(within_s, 0)):
            while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
                await channel.wait_for_state_change(state)
    except TimeoutError:
        return False
    return True


def _not_connected(service: str, where: str, *, published: bool, within_ms: int) -> NotWritten:
    what = "nobody answers at its address" if published else "it publishes no address"
    return NotWritten(
        "unreachable" if published else "not_running",
        f"{service} of {where} could not be reached within {within_ms} ms: {what}; nothing was sent",
        hint="Start the services with `fencepost up`, or look at `fencepost status`; over TCP, look at its log as well:"
        " a certificate that is not in force is refused.",
        state={"service": service},
    )


class _Patience:
    """The time left of a budget, and pauses that grow."""

    __slots__ = ("_deadline", "_pause_ms")

    def __init__(self, budget_ms: int) -> None:
        self._deadline = asyncio.get_running_loop().time() + budget_ms / 1000
        self._pause_ms = RESEND_BACKOFF_MS_MIN

    def remaining_ms(self) -> int:
        return max(0, int((self._deadline - asyncio.get_running_loop().time()) * 1000))

    async def pause(self) -> bool:
        """Sleep a jittered while and return True, or return False where the budget would not outlast it."""
        pause_ms = self._pause_ms * random.uniform(0.5, 1.0)  # noqa: S311 (spreads load, protects nothing)
        self._pause_ms = min(self._pause_ms * 2, RESEND_BACKOFF_MS_MAX)
        if self.remaining_ms() <= pause_ms:
            return False
        await asyncio.sleep(pause_ms / 1000)
        return True


class _Service(Generic[StubT]):
    """What the faces of all services share: one call, and a call that may be asked again."""

    service: str

    def __init__(self, channels: Channels, token: str, *, budgets: Budgets | None = None) -> None:
        self._channels = channels
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._budgets = Budgets() if budgets is None else budgets
        self._stub_of: tuple[grpc.aio.Channel, StubT] | None = None

    def _new_stub(self, channel: grpc.aio.Channel) -> StubT:
        raise NotImplementedError

    async def _stub(self, within_ms: int) -> StubT:
        channel = await self._channels.ready(self.service, within_ms=within_ms)
        if self._stub_of is None or self._stub_of[0] is not channel:
            self._stub_of = (channel, self._new_stub(channel))
        return self._stub_of[1]

    async def _once(
        self, rpc: Callable[[StubT], Rpc[ResponseT]], request: Any, *, ready_ms: int, call_ms: int
    ) -> ResponseT:
        """Call once: NotWritten where no connection was had, Refused where the service says so, else Uncertain."""
        stub = await self._stub(ready_ms)
        try:
            return await rpc(stub)(request, metadata=self._metadata, timeout=call_ms / 1000)
        except grpc.aio.AioRpcError as error:
            raise error_of(error) from None

    async def _keyed(self, rpc: Callable[[StubT], Rpc[ResponseT]], request: Any) -> ResponseT:
        """Call a mutation: sent again only after a refusal that says so, never after an answer was lost."""
        patience = _Patience(self._budgets.ready_ms)
        while True:
            try:
                return await self._once(rpc, request, ready_ms=patience.remaining_ms(), call_ms=self._budgets.call_ms)
            except Refused as refused:
                if not (refused.may_resend and await patience.pause()):
                    raise
            except Uncertain as lost:
                key = next(name for name in _KEYS if name in request.DESCRIPTOR.fields_by_name)
                raise Uncertain(
                    lost.reason,
                    lost.message,
                    hint=f"With the same {key.replace('_', ' ')} the call is carried out at most once, and answers the"
                    " same.",
                    state={**lost.state, key: getattr(request, key)},
                ) from None

    async def _ask_settlement(
        self, rpc: Callable[[StubT], Rpc[ResponseT]], ask: Any, lost: Uncertain, hint: str
    ) -> ResponseT:
        """Ask what became of a lost call until that is learned; Uncertain with `hint` where it is not in time."""
        patience = _Patience(self._budgets.settle_ms)
        while True:
            left_ms = patience.remaining_ms()
            try:
                return await self._once(rpc, ask, ready_ms=left_ms, call_ms=min(left_ms, self._budgets.call_ms))
            except Refused as refused:
                # Other content under the key proves that this call was, or will be, refused for it.
                if refused.reason == "idempotency_conflict":
                    raise
                if not refused.may_resend or not await patience.pause():
                    raise _unsettled(lost, refused, hint) from None
            except (NotWritten, Uncertain) as silent:
                if not await patience.pause():
                    raise _unsettled(lost, silent, hint) from None

    async def _asked(
        self, rpc: Callable[[StubT], Rpc[ResponseT]], request: Any, *, wait_ms: int = 0, writes: bool = False
    ) -> ResponseT:
        """Call what may be asked any number of times, again until the budget ends.

        A wait is shortened by what was waited before. In the end a call that only reads is NotWritten; one that
        `writes`, though repeating it changes nothing more, is Uncertain.
        """
        patience = _Patience(self._budgets.call_ms + max(0, wait_ms))
        lost: Uncertain | None = None
        while True:
            left_ms = patience.remaining_ms()
            if wait_ms and lost is not None:
                request.timeout_ms = min(request.timeout_ms, max(0, left_ms - self._budgets.call_ms))
            try:
                return await self._once(rpc, request, ready_ms=min(self._budgets.ready_ms, left_ms), call_ms=left_ms)
            except Refused as refused:
                if not (refused.may_resend and await patience.pause()):
                    raise
            except NotWritten as unsent:
                raise (lost if writes and lost is not None else unsent) from None
            except Uncertain as error:
                lost = error
                if lost.reason != "connection_lost" or not await patience.pause():
                    raise (lost if writes else _nothing_read(lost)) from None


def _loss(lost: Uncertain) -> str:
    return lost.message.removesuffix(LOST_TAIL)


def _nothing_read(lost: Uncertain) -> NotWritten:
    return NotWritten(
        lost.reason,
        f"{_loss(lost)}; the call only reads, so nothing was written",
        hint="Ask again; `fencepost status` shows whether the services run.",
        state=lost.state,
    )


class Mailbox(_Service["MailboxServiceAsyncStub"]):
    """The mailbox as one credential sees it. Methods take and return the messages of `fencepost.mailbox.v1`.

    `send`, `request` and `reply` settle a lost answer by themselves: they return the receipt, or raise `NotWritten`
    with `key_spent` where the service cancelled the key, or `Uncertain` where neither could be learned. `claim`,
    `release`, `finish` and `open_generation` have no settling: the same key or token answers the same when asked again.
    """

    service = MAILBOX

    def _new_stub(self, channel: grpc.aio.Channel) -> MailboxServiceAsyncStub:
        return MailboxServiceStub(channel)

    async def describe(self) -> mailbox.DescribeResponse:
        """Return version, schema and store epoch."""
        answer = await self._asked(lambda stub: stub.Describe, mailbox.DescribeRequest())
        self._channels.epochs[self.service] = answer.epoch
        return answer

    async def send(self, request: mailbox.SendRequest) -> mailbox.SendResponse:
        """Store information."""
        return await self._settled(lambda stub: stub.Send, request, "send")

    async def request(self, request: mailbox.RequestRequest) -> mailbox.RequestResponse:
        """Store a request and return its id without waiting for the reply."""
        return await self._settled(lambda stub: stub.Request, request, "request")

    async def reply(self, request: mailbox.ReplyRequest) -> mailbox.ReplyResponse:
        """Answer a request as its recipient."""
        return await self._settled(lambda stub: stub.Reply, request, "reply")

    async def acknowledge(self, record_ids: Sequence[str]) -> mailbox.AcknowledgeRecordsResponse:
        """Acknowledge records by their ids, in any order; repeating it is harmless."""
        ask = mailbox.AcknowledgeRecordsRequest(record_ids=record_ids)
        return await self._asked(lambda stub: stub.AcknowledgeRecords, ask, writes=True)

    async def withdraw(self, request_id: str) -> mailbox.WithdrawResponse:
        """Take a request back that nobody has seen; repeating it is harmless."""
        ask = mailbox.WithdrawRequest(request_id=request_id)
        return await self._asked(lambda stub: stub.Withdraw, ask, writes=True)

    async def prompt(self, request: mailbox.PromptRequest) -> mailbox.PromptResponse:
        """Store a person's prompt. A lost answer is Uncertain; the same key answers the same receipt."""
        return await self._keyed(lambda stub: stub.Prompt, request)

    async def resolve_delivery(self, request: mailbox.ResolveDeliveryRequest) -> mailbox.ResolveDeliveryResponse:
        """Settle by a person's word what is uncertain. A lost answer is Uncertain; the same key answers the same."""
        return await self._keyed(lambda stub: stub.ResolveDelivery, request)

    async def receive(self, request: mailbox.ReceiveRequest) -> mailbox.ReceiveResponse:
        """Read a page. A lost page is asked for again: the same cursors answer the same records."""
        asked = mailbox.ReceiveRequest()
        asked.CopyFrom(request)
        return await self._asked(lambda stub: stub.Receive, asked, wait_ms=asked.timeout_ms, writes=True)

    async def wait(self, request: mailbox.WaitRequest) -> mailbox.WaitResponse:
        """Wait until `receive` would show something new."""
        asked = mailbox.WaitRequest(timeout_ms=request.timeout_ms)
        return await self._asked(lambda stub: stub.Wait, asked, wait_ms=asked.timeout_ms)

    async def settle(self, request: mailbox.SettleKeyRequest) -> mailbox.SettleKeyResponse:
        """Ask what became of a key; an unknown one is durably cancelled. Asking again answers the same."""
        return await self._asked(lambda stub: stub.SettleKey, request, writes=True)

    async def get_record(self, record_id: str) -> mailbox.GetRecordResponse:
        """Return one record with its body, exposing nothing."""
        return await self._asked(lambda stub: stub.GetRecord, mailbox.GetRecordRequest(record_id=record_id))

    async def list_records(self, request: mailbox.ListRecordsRequest) -> mailbox.ListRecordsResponse:
        """Return a page of records, newest first, exposing nothing."""
        return await self._asked(lambda stub: stub.ListRecords, request)

    async def get_thread(self, request: mailbox.GetThreadRequest) -> mailbox.GetThreadResponse:
        """Return a page of a thread in commit order, exposing nothing."""
        return await self._asked(lambda stub: stub.GetThread, request)

    async def search_records(self, request: mailbox.SearchRecordsRequest) -> mailbox.SearchRecordsResponse:
        """Return a page of records that have all the words, newest first, exposing nothing."""
        return await self._asked(lambda stub: stub.SearchRecords, request)

    async def explain(self, record_id: str) -> mailbox.ExplainResponse:
        """Return every fact known of a record."""
        return await self._asked(lambda stub: stub.Explain, mailbox.ExplainRequest(record_id=record_id))

    async def list_readers(self, agent_ids: list[str]) -> mailbox.ListReadersResponse:
        """Return when agents last read their mailbox."""
        return await self._asked(lambda stub: stub.ListReaders, mailbox.ListReadersRequest(agent_ids=agent_ids))

    async def open_generation(self, request: mailbox.OpenGenerationRequest) -> mailbox.OpenGenerationResponse:
        """Raise an agent's generation floor."""
        return await self._asked(lambda stub: stub.OpenGeneration, request, writes=True)

    async def claim(self, request: mailbox.ClaimRequest) -> mailbox.ClaimResponse:
        """Take a record for carrying. A lost answer is Uncertain; the same key answers the same claim."""
        return await self._keyed(lambda stub: stub.Claim, request)

    async def release(self, request: mailbox.ReleaseRequest) -> mailbox.ReleaseResponse:
        """Give a claim back with proof."""
        return await self._asked(lambda stub: stub.Release, request, writes=True)

    async def finish(self, request: mailbox.FinishRequest) -> mailbox.FinishResponse:
        """Record what became of a claim."""
        return await self._asked(lambda stub: stub.Finish, request, writes=True)

    async def record_outcome(self, request: mailbox.RecordOutcomeRequest) -> mailbox.RecordOutcomeResponse:
        """Record how the turn ended that a request was bound to."""
        return await self._asked(lambda stub: stub.RecordOutcome, request, writes=True)

    async def report_owners(self, request: mailbox.ReportOwnersRequest) -> mailbox.ReportOwnersResponse:
        """Tell which agents a dispatcher carries for, all of them."""
        return await self._asked(lambda stub: stub.ReportOwners, request, writes=True)

    async def list_bindings(self, request: mailbox.ListBindingsRequest) -> mailbox.ListBindingsResponse:
        """Return a page of a dispatcher's bindings without a recorded outcome."""
        return await self._asked(lambda stub: stub.ListBindings, request)

    async def watch_events(self, request: mailbox.WatchEventsRequest) -> AsyncIterator[mailbox.WatchEventsResponse]:
        """Yield what becomes true of records, until the service ends the stream or it is lost (NotWritten)."""
        stub = await self._stub(self._budgets.ready_ms)
        async for item in _streamed(stub.WatchEvents(request, metadata=self._metadata)):
            yield item

    async def watch_work(self, request: mailbox.WatchWorkRequest) -> AsyncIterator[mailbox.WatchWorkResponse]:
        """Yield which agents have work, until the service ends the stream or it is lost (NotWritten)."""
        stub = await self._stub(self._budgets.ready_ms)
        async for item in _streamed(stub.WatchWork(request, metadata=self._metadata)):
            yield item

    async def _settled(self, rpc: Callable[[Any], Rpc[ResponseT]], request: Any, call: str) -> ResponseT:
        # The epoch is read before the call: only the store that the call was made to can say what became of it.
        epoch = self._channels.epochs.get(self.service) or (await self.describe()).epoch
        try:
            return await self._keyed(rpc, request)
        except Uncertain as lost:
            self._channels.epochs.pop(self.service, None)
            ask = mailbox.SettleKeyRequest(epoch=epoch, **{call: request})
            answer = await self._ask_settlement(lambda stub: stub.SettleKey, ask, lost, _SENT_HINT)
            receipt: ResponseT = _receipt(answer, call, lost)
            return receipt


def _unsettled(lost: Uncertain, why: FencepostError, hint: str) -> Uncertain:
    return Uncertain(
        "delivery_uncertain",
        f"{_loss(lost)}, and the service could not tell what became of it ({why.reason}); it may or may not have been"
        " written",
        hint=hint,
        state={**lost.state, "lost": lost.reason, "settling": why.reason},
    )


def _cancelled(lost: Uncertain, key: str) -> NotWritten:
    return NotWritten(
        "not_written",
        f"{_loss(lost)}; the service has since confirmed that nothing was written and has cancelled the {key}, so"
        " that a late arrival is refused",
        hint=f"It may be sent again, with a new {key}.",
        state={**lost.state, "lost": lost.reason},
        key_spent=True,
    )


def _unproved(lost: Uncertain, hint: str, *, other_store: bool) -> Uncertain:
    return Uncertain(
        "delivery_uncertain",
        f"{_loss(lost)}, and "
        + (
            "the store is another one than it was sent to"
            if other_store
            else "the service's account of it makes no sense"
        )
        + "; it may or may not have been written",
        hint=hint,
        state={**lost.state, "lost": lost.reason, "settling": "other_epoch" if other_store else "invalid_receipt"},
    )


def _receipt(answer: mailbox.SettleKeyResponse, call: str, lost: Uncertain) -> Any:
    if answer.settlement == mailbox.SETTLEMENT_WRITTEN and answer.WhichOneof("receipt") == call:
        return getattr(answer, call)
    if answer.settlement == mailbox.SETTLEMENT_CANCELLED:
        raise _cancelled(lost, "idempotency key")
    raise _unproved(lost, _SENT_HINT, other_store=answer.settlement == mailbox.SETTLEMENT_UNKNOWN)


async def _streamed(call: Any, *, reads: bool = True) -> AsyncIterator[Any]:
    try:
        async for item in call:
            yield item
    except grpc.aio.AioRpcError as error:
        meaning = error_of(error)
        raise (_nothing_read(meaning) if reads and isinstance(meaning, Uncertain) else meaning) from None
    finally:
        call.cancel()


class Sessions(_Service["SessionsServiceAsyncStub"]):
    """Who exists, as one credential sees it: one method per RPC of `fencepost.sessions.v1`.

    `ensure_project`, `create_agent`, `update_agent` and `begin_generation` are sent once; a lost answer is `Uncertain`,
    and the same call with the same idempotency key answers the first result. Everything else may be asked again and is.
    """

    service = SESSIONS

    def _new_stub(self, channel: grpc.aio.Channel) -> SessionsServiceAsyncStub:
        return SessionsServiceStub(channel)

    async def describe(self) -> sessions.DescribeResponse:
        """Return version, schema and directory position."""
        return await self._asked(lambda stub: stub.Describe, sessions.DescribeRequest())

    async def get_caller(self) -> sessions.GetCallerResponse:
        """Return who the credential speaks for."""
        return await self._asked(lambda stub: stub.GetCaller, sessions.GetCallerRequest())

    async def ensure_project(self, request: sessions.EnsureProjectRequest) -> sessions.EnsureProjectResponse:
        """Create the project of a location, or return the one that stands."""
        return await self._keyed(lambda stub: stub.EnsureProject, request)

    async def update_project(self, request: sessions.UpdateProjectRequest) -> sessions.UpdateProjectResponse:
        """Change what is set of a project. Repeating it changes nothing more."""
        return await self._asked(lambda stub: stub.UpdateProject, request, writes=True)

    async def list_projects(self, request: sessions.ListProjectsRequest) -> sessions.ListProjectsResponse:
        """Return a page of projects."""
        return await self._asked(lambda stub: stub.ListProjects, request)

    async def create_agent(self, request: sessions.CreateAgentRequest) -> sessions.CreateAgentResponse:
        """Create an agent and its credential file."""
        return await self._keyed(lambda stub: stub.CreateAgent, request)

    async def list_agents(self, request: sessions.ListAgentsRequest) -> sessions.ListAgentsResponse:
        """Return a page of agents."""
        return await self._asked(lambda stub: stub.ListAgents, request)

    async def get_agent(self, request: sessions.GetAgentRequest) -> sessions.GetAgentResponse:
        """Return one agent."""
        return await self._asked(lambda stub: stub.GetAgent, request)

    async def update_agent(self, request: sessions.UpdateAgentRequest) -> sessions.UpdateAgentResponse:
        """Change an agent."""
        return await self._keyed(lambda stub: stub.UpdateAgent, request)

    async def delete_agent(self, request: sessions.DeleteAgentRequest) -> sessions.DeleteAgentResponse:
        """Begin to delete an agent, or tell how far that has come."""
        return await self._keyed(lambda stub: stub.DeleteAgent, request)

    async def finish_deletion(self, epoch: str, agent_id: str) -> sessions.FinishDeletionResponse:
        """Tell that nothing of a deleted agent's mail is left; for the service that erases it."""
        ask = sessions.FinishDeletionRequest(epoch=epoch, agent_id=agent_id)
        return await self._asked(lambda stub: stub.FinishDeletion, ask, writes=True)

    async def begin_generation(self, request: sessions.BeginGenerationRequest) -> sessions.BeginGenerationResponse:
        """Begin the next life of an agent; the caller opens that generation at the mailbox next."""
        return await self._keyed(lambda stub: stub.BeginGeneration, request)

    async def acquire_lease(self, request: sessions.AcquireLeaseRequest) -> sessions.AcquireLeaseResponse:
        """Take the lease on an agent and its conversation."""
        return await self._keyed(lambda stub: stub.AcquireLease, request)

    async def renew_lease(self, request: sessions.RenewLeaseRequest) -> sessions.RenewLeaseResponse:
        """Put the expiry of a lease off, and change its kind where one is named."""
        return await self._asked(lambda stub: stub.RenewLease, request, writes=True)

    async def release_lease(self, acquisition_id: str) -> sessions.ReleaseLeaseResponse:
        """End a lease; harmless where it has ended."""
        ask = sessions.ReleaseLeaseRequest(acquisition_id=acquisition_id)
        return await self._asked(lambda stub: stub.ReleaseLease, ask, writes=True)

    async def list_leases(self, agent_id: str = "") -> sessions.ListLeasesResponse:
        """Return the leases that stand."""
        return await self._asked(lambda stub: stub.ListLeases, sessions.ListLeasesRequest(agent_id=agent_id))

    async def report_status(self, request: sessions.ReportStatusRequest) -> sessions.ReportStatusResponse:
        """Record what was observed of an agent's runtime; the same report again changes nothing."""
        return await self._asked(lambda stub: stub.ReportStatus, request, writes=True)

    async def set_conversation(self, request: sessions.SetConversationRequest) -> sessions.SetConversationResponse:
        """Bind the exact provider conversation to an agent, or clear it."""
        return await self._asked(lambda stub: stub.SetConversation, request, writes=True)

    async def list_credentials(self, request: sessions.ListCredentialsRequest) -> sessions.ListCredentialsResponse:
        """Return a page of credentials without secrets."""
        return await self._asked(lambda stub: stub.ListCredentials, request)

    async def revoke_credential(self, credential_id: str) -> sessions.RevokeCredentialResponse:
        """Remove a credential, and tell whether the mailbox enforces that already."""
        ask = sessions.RevokeCredentialRequest(credential_id=credential_id)
        return await self._asked(lambda stub: stub.RevokeCredential, ask, writes=True)

    async def lookup_agent(self, request: sessions.LookupAgentRequest) -> sessions.LookupAgentResponse:
        """Return what a target means, for a follower."""
        return await self._asked(lambda stub: stub.LookupAgent, request)

    async def lookup_credential(self, token_sha256: bytes) -> sessions.LookupCredentialResponse:
        """Return what a token means, for a follower."""
        ask = sessions.LookupCredentialRequest(token_sha256=token_sha256)
        return await self._asked(lambda stub: stub.LookupCredential, ask)

    async def watch_directory(
        self, request: sessions.WatchDirectoryRequest
    ) -> AsyncIterator[sessions.WatchDirectoryResponse]:
        """Yield the steps of the directory, until the service ends the stream or it is lost (NotWritten)."""
        stub = await self._stub(self._budgets.ready_ms)
        async for item in _streamed(stub.WatchDirectory(request, metadata=self._metadata)):
            yield item

    async def confirm_revision(self, request: sessions.ConfirmRevisionRequest) -> sessions.ConfirmRevisionResponse:
        """Tell sessions what a follower has made durable."""
        return await self._asked(lambda stub: stub.ConfirmRevision, request, writes=True)


class Providers(_Service["ProvidersServiceAsyncStub"]):
    """The carrier and its programs, as one credential sees them: one method per RPC of `fencepost.providers.v1`.

    What changes a runtime is sent again only after a refusal that says so: a lost answer is `Uncertain`, and
    `get_runtime` tells what stands.
    """

    service = PROVIDERS

    def _new_stub(self, channel: grpc.aio.Channel) -> ProvidersServiceAsyncStub:
        return ProvidersServiceStub(channel)

    async def describe(self) -> providers.DescribeResponse:
        """Return version, schema and dispatcher."""
        return await self._asked(lambda stub: stub.Describe, providers.DescribeRequest())

    async def list_providers(self) -> providers.ListProvidersResponse:
        """Return the adapters and the installed program of each."""
        ask = providers.ListProvidersRequest()
        return await self._read(lambda stub: stub.ListProviders, ask, wait_ms=PROGRAM_MS_MAX)

    async def list_models(self, provider: str, *, refresh: bool = False) -> providers.ListModelsResponse:
        """Return the models that a program offers."""
        ask = providers.ListModelsRequest(provider=provider, refresh=refresh)
        return await self._read(lambda stub: stub.ListModels, ask, wait_ms=PROGRAM_MS_MAX)

    async def get_runtime(self, agent_id: str) -> providers.GetRuntimeResponse:
        """Return what is known of an agent's runtime."""
        return await self._asked(lambda stub: stub.GetRuntime, providers.GetRuntimeRequest(agent_id=agent_id))

    async def get_capabilities(self, agent_id: str) -> providers.GetCapabilitiesResponse:
        """Return what can be done with an agent's conversation."""
        ask = providers.GetCapabilitiesRequest(agent_id=agent_id)
        return await self._asked(lambda stub: stub.GetCapabilities, ask)

    async def inspect_runtime(self, agent_id: str) -> providers.InspectRuntimeResponse:
        """Return what is wrong, or may be, with an agent's program and private home."""
        ask = providers.InspectRuntimeRequest(agent_id=agent_id)
        return await self._read(lambda stub: stub.InspectRuntime, ask, wait_ms=PROGRAM_MS_MAX)

    async def restart_runtime(self, request: providers.RestartRuntimeRequest) -> providers.RestartRuntimeResponse:
        """Stop an agent's runtime and start it again under a new generation."""
        return await self._sent(lambda stub: stub.RestartRuntime, request, wait_ms=request.wait_ms)

    async def begin_conversation(
        self, request: providers.BeginConversationRequest
    ) -> providers.BeginConversationResponse:
        """Leave an agent's conversation and begin a new one."""
        return await self._sent(lambda stub: stub.BeginConversation, request, wait_ms=request.wait_ms)

    async def interrupt_turn(self, request: providers.InterruptTurnRequest) -> providers.InterruptTurnResponse:
        """Interrupt the exact turn that was observed."""
        return await self._sent(lambda stub: stub.InterruptTurn, request, wait_ms=INTERRUPT_MS_MAX)

    async def approve_tools(self, request: providers.ApproveToolsRequest) -> providers.ApproveToolsResponse:
        """Approve tools of our MCP server in an agent's private home, each by name."""
        return await self._sent(lambda stub: stub.ApproveTools, request)

    async def verify_evidence(self, request: providers.VerifyEvidenceRequest) -> providers.VerifyEvidenceResponse:
        """Look at evidence in the assignee's checkout and record what is found; asking again looks again."""
        return await self._sent(lambda stub: stub.VerifyEvidence, request, wait_ms=VERIFY_MS_MAX)

    async def integrate_task(self, request: providers.IntegrateTaskRequest) -> providers.IntegrateTaskResponse:
        """Merge the commit of accepted work into the main checkout, and record that; without a commit only record it.

        Where the answer is lost (Uncertain), the same request again answers what the first call did.
        """
        try:
            return await self._sent(lambda stub: stub.IntegrateTask, request, wait_ms=INTEGRATE_MS_MAX)
        except Uncertain as lost:
            raise Uncertain(
                lost.reason,
                lost.message,
                hint="Send it again with the same request_id: it answers what the first call did.",
                state={**lost.state, "request_id": request.request_id},
            ) from None

    async def attach_terminal(
        self, request: providers.AttachTerminalRequest
    ) -> AsyncIterator[providers.AttachTerminalResponse]:
        """Yield the steps of an attachment; it lasts as long as this is read. Where the stream is lost: Uncertain."""
        stub = await self._stub(self._budgets.ready_ms)
        async for item in _streamed(stub.AttachTerminal(request, metadata=self._metadata), reads=False):
            yield item

    async def watch_conversation(
        self, request: providers.WatchConversationRequest
    ) -> AsyncIterator[providers.WatchConversationResponse]:
        """Yield what happens in an agent's conversation, until the service ends the stream or it is lost."""
        stub = await self._stub(self._budgets.ready_ms)
        async for item in _streamed(stub.WatchConversation(request, metadata=self._metadata)):
            yield item

    async def _read(self, rpc: Callable[[Any], Rpc[ResponseT]], request: Any, *, wait_ms: int) -> ResponseT:
        try:
            return await self._sent(rpc, request, wait_ms=wait_ms)
        except Uncertain as lost:
            raise _nothing_read(lost) from None

    async def _sent(self, rpc: Callable[[Any], Rpc[ResponseT]], request: Any, *, wait_ms: int = 0) -> ResponseT:
        call_ms = self._budgets.call_ms + max(0, wait_ms)
        patience = _Patience(self._budgets.ready_ms)
        while True:
            try:
                return await self._once(rpc, request, ready_ms=patience.remaining_ms(), call_ms=call_ms)
            except Refused as refused:
                # For one, a service that has just started and not heard yet who there is.
                if not (refused.may_resend and await patience.pause()):
                    raise


class Client:
    """One agent's mailbox, for programs: `async with Client.from_environment() as client: await client.send(...)`.

    Keys are minted where none is given. Outcomes are those of `Mailbox`.
    """

    def __init__(
        self,
        home: Home,
        identity: Identity,
        *,
        budgets: Budgets | None = None,
        transport: TransportName = "grpcio",
        remote: Remote | None = None,
    ) -> None:
        self.channels = Channels(home, transport=transport, remote=remote)
        self.identity = identity
        self.mailbox = Mailbox(self.channels, identity.token, budgets=budgets)
        self.sessions = Sessions(self.channels, identity.token, budgets=budgets)
        self.tasks = Tasks(self.channels, identity.token, budgets=budgets)
        self.contexts = Contexts(self.channels, identity.token, budgets=budgets)
        self.files = Files(self.channels, identity.token, budgets=budgets)
        self.evidence = Evidences(self.channels, identity.token, budgets=budgets)

    @classmethod
    def from_environment(
        cls,
        env: Mapping[str, str] | None = None,
        *,
        budgets: Budgets | None = None,
        transport: TransportName = "grpcio",
    ) -> Client:
        """Return the client of the agent that the environment names. See `Identity.from_environment` for refusals."""
        home = Home.from_environment(env)
        return cls(home, Identity.from_environment(home, env), budgets=budgets, transport=transport)

    @classmethod
    def over_tls(
        cls,
        addresses: Mapping[str, str],
        *,
        certificates: str | os.PathLike[str],
        credential: str | os.PathLike[str],
        budgets: Budgets | None = None,
        transport: TransportName = "grpcio",
    ) -> Client:
        """Return the client of an agent whose services are reached over TCP.

        `addresses`: `host:port` of `mailbox`, and of `sessions` where that is called. `certificates`: the folder that
        `fencepost certs issue` made. `credential`: the agent's credential file.

        Raises:
            Refused: the credential cannot be used. Certificates are read at the first call.
        """
        identity = Identity(token=read_credential(credential), agent_id=None, source="over_tls")
        remote = Remote(addresses=dict(addresses), certificates=ClientCertificates.in_folder(certificates))
        return cls(Home.from_environment(), identity, budgets=budgets, transport=transport, remote=remote)

    async def __aenter__(self) -> Self:
        try:
            if self.identity.needs_verifying:
                await self.identity.verify(self.sessions)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the channels."""
        await self.channels.aclose()

    async def send(
        self, target: str, body: str, *, key: str | None = None, attributes: mailbox.Attributes | None = None
    ) -> mailbox.SendResponse:
        """Store information for an agent."""
        ask = mailbox.SendRequest(target=target, body=body, idempotency_key=key or new_key(), attributes=attributes)
        return await self.mailbox.send(ask)

    async def request(
        self, target: str, body: str, *, key: str | None = None, attributes: mailbox.Attributes | None = None
    ) -> mailbox.RequestResponse:
        """Store a request for an agent."""
        ask = mailbox.RequestRequest(target=target, body=body, idempotency_key=key or new_key(), attributes=attributes)
        return await self.mailbox.request(ask)

    async def receive(
        self, *, cursor: str = "", ack_cursor: str = "", limit: int = 0, timeout_ms: int = 0
    ) -> mailbox.ReceiveResponse:
        """Read a page of this agent's records."""
        ask = mailbox.ReceiveRequest(cursor=cursor, ack_cursor=ack_cursor, limit=limit, timeout_ms=timeout_ms)
        return await self.mailbox.receive(ask)

    async def wait(self, *, timeout_ms: int = 60_000) -> mailbox.WaitResponse:
        """Wait until there is something new to receive."""
        return await self.mailbox.wait(mailbox.WaitRequest(timeout_ms=timeout_ms))

    async def reply(
        self,
        request_id: str,
        body: str,
        *,
        status: mailbox.ReplyStatus.ValueType = mailbox.REPLY_STATUS_DONE,
        key: str | None = None,
    ) -> mailbox.ReplyResponse:
        """Answer a request."""
        ask = mailbox.ReplyRequest(request_id=request_id, status=status, body=body, idempotency_key=key or new_key())
        return await self.mailbox.reply(ask)


class Contexts(_Service["ContextServiceAsyncStub"]):
    """Shared context and project memory as one credential sees them: one method per RPC of ContextService.

    A write whose answer was lost is sent again as it was: under the same request_id it is carried out once.
    """

    service = MAILBOX

    def _new_stub(self, channel: grpc.aio.Channel) -> ContextServiceAsyncStub:
        return ContextServiceStub(channel)

    async def publish(self, request: contexts.PublishContextRequest) -> contexts.PublishContextResponse:
        """Store a new version of a context."""
        return await self._asked(lambda stub: stub.PublishContext, request, writes=True)

    async def get(self, request: contexts.GetContextRequest) -> contexts.GetContextResponse:
        """Return one version of a context with its content."""
        return await self._asked(lambda stub: stub.GetContext, request)

    async def list_contexts(self, request: contexts.ListContextsRequest) -> contexts.ListContextsResponse:
        """Return a page of contexts by key."""
        return await self._asked(lambda stub: stub.ListContexts, request)

    async def list_versions(self, request: contexts.ListContextVersionsRequest) -> contexts.ListContextVersionsResponse:
        """Return a page of the versions of one context."""
        return await self._asked(lambda stub: stub.ListContextVersions, request)

    async def bootstrap(self, request: contexts.BootstrapProjectRequest) -> contexts.BootstrapProjectResponse:
        """Return what an agent needs that knows nothing yet."""
        return await self._asked(lambda stub: stub.BootstrapProject, request)

    async def update_memory(self, request: contexts.UpdateProjectMemoryRequest) -> contexts.UpdateProjectMemoryResponse:
        """Replace the project's memory where nobody else has since."""
        return await self._asked(lambda stub: stub.UpdateProjectMemory, request, writes=True)

    async def get_memory(self, request: contexts.GetProjectMemoryRequest) -> contexts.GetProjectMemoryResponse:
        """Return one version of the project's memory."""
        return await self._asked(lambda stub: stub.GetProjectMemory, request)

    async def list_memory(self, request: contexts.ListProjectMemoryRequest) -> contexts.ListProjectMemoryResponse:
        """Return a page of the versions of the project's memory."""
        return await self._asked(lambda stub: stub.ListProjectMemory, request)


class Evidences(_Service["EvidenceServiceAsyncStub"]):
    """Evidence of tasks as one credential sees it: one method per RPC of EvidenceService that an agent or person calls.

    A report whose answer was lost is sent again as it was: under the same request_id it is carried out once.
    """

    service = MAILBOX

    def _new_stub(self, channel: grpc.aio.Channel) -> EvidenceServiceAsyncStub:
        return EvidenceServiceStub(channel)

    async def add(self, request: evidence.AddEvidenceRequest) -> evidence.AddEvidenceResponse:
        """Report a piece of evidence; nothing is read."""
        return await self._asked(lambda stub: stub.AddEvidence, request, writes=True)

    async def list_evidence(self, request: evidence.ListEvidenceRequest) -> evidence.ListEvidenceResponse:
        """Return a page of a task's evidence, each with what the newest check of it found."""
        return await self._asked(lambda stub: stub.ListEvidence, request)


class Files(_Service["FilesServiceAsyncStub"]):
    """File reservations as one credential sees them: one method per RPC of FilesService. Paths are canonical.

    A write whose answer was lost is sent again as it was: under the same request_id it is carried out once.
    """

    service = MAILBOX

    def _new_stub(self, channel: grpc.aio.Channel) -> FilesServiceAsyncStub:
        return FilesServiceStub(channel)

    async def reserve(self, request: files.ReserveFilesRequest) -> files.ReserveFilesResponse:
        """Reserve all paths, or none."""
        return await self._asked(lambda stub: stub.ReserveFiles, request, writes=True)

    async def renew(self, request: files.RenewFilesRequest) -> files.RenewFilesResponse:
        """Put the expiry of what the caller holds off."""
        return await self._asked(lambda stub: stub.RenewFiles, request, writes=True)

    async def release(self, request: files.ReleaseFilesRequest) -> files.ReleaseFilesResponse:
        """Give up what the caller holds."""
        return await self._asked(lambda stub: stub.ReleaseFiles, request, writes=True)

    async def list_reservations(self, request: files.ListReservationsRequest) -> files.ListReservationsResponse:
        """Return a page of what is reserved."""
        return await self._asked(lambda stub: stub.ListReservations, request)

    async def check(self, request: files.CheckFilesRequest) -> files.CheckFilesResponse:
        """Return what bars the caller from writing to files now."""
        return await self._asked(lambda stub: stub.CheckFiles, request)


class Tasks(_Service["TasksServiceAsyncStub"]):
    """Supervised tasks as one credential sees them: one method per RPC of TasksService.

    Every write settles a lost answer by its request_id, as `Mailbox` does by key: it returns what the write did, or
    raises `NotWritten` with `key_spent` where the service cancelled the id, or `Uncertain` where neither could be
    learned. Reads are asked again.
    """

    service = MAILBOX

    def __init__(self, channels: Channels, token: str, *, budgets: Budgets | None = None) -> None:
        super().__init__(channels, token, budgets=budgets)
        self._mailbox = Mailbox(channels, token, budgets=budgets)

    def _new_stub(self, channel: grpc.aio.Channel) -> TasksServiceAsyncStub:
        return TasksServiceStub(channel)

    async def assign(self, request: tasks.AssignTaskRequest) -> tasks.AssignTaskResponse:
        """Queue work for an agent, or block it until its prerequisites are accepted."""
        change = await self._changed(lambda stub: stub.AssignTask, request, _PLACED)
        return tasks.AssignTaskResponse(change=change)

    async def create_pool(self, request: tasks.CreatePoolTaskRequest) -> tasks.CreatePoolTaskResponse:
        """Offer work to whoever of the eligible claims it first."""
        change = await self._changed(lambda stub: stub.CreatePoolTask, request, _PLACED)
        return tasks.CreatePoolTaskResponse(change=change)

    async def claim(self, request: tasks.ClaimTaskRequest) -> tasks.ClaimTaskResponse:
        """Take a task from the pool and start it."""
        change = await self._changed(lambda stub: stub.ClaimTask, request, _RUNNING)
        return tasks.ClaimTaskResponse(change=change)

    async def start(self, request: tasks.StartTaskRequest) -> tasks.StartTaskResponse:
        """Start the oldest startable task of the caller's queue, or go on with an earlier life's."""
        change = await self._changed(lambda stub: stub.StartTask, request, _RUNNING)
        return tasks.StartTaskResponse(change=change)

    async def progress(self, request: tasks.ProgressTaskRequest) -> tasks.ProgressTaskResponse:
        """Note how far running work has come, or what it waits for."""
        change = await self._changed(lambda stub: stub.ProgressTask, request, _EXECUTED)
        return tasks.ProgressTaskResponse(change=change)

    async def submit(self, request: tasks.SubmitTaskRequest) -> tasks.SubmitTaskResponse:
        """Submit finished work for review."""
        change = await self._changed(lambda stub: stub.SubmitTask, request, _SUBMITTED)
        return tasks.SubmitTaskResponse(change=change)

    async def review(self, request: tasks.ReviewTaskRequest) -> tasks.ReviewTaskResponse:
        """Accept submitted work, or send it back."""
        change = await self._changed(lambda stub: stub.ReviewTask, request, _REVIEWED)
        return tasks.ReviewTaskResponse(change=change)

    async def record_integration(self, request: tasks.RecordIntegrationRequest) -> tasks.RecordIntegrationResponse:
        """Record that accepted work is in the main project; touches no repository."""
        change = await self._changed(lambda stub: stub.RecordIntegration, request, _INTEGRATED)
        return tasks.RecordIntegrationResponse(change=change)

    async def cancel(self, request: tasks.CancelTaskRequest) -> tasks.CancelTaskResponse:
        """Cancel work that nobody executes, or ask the assignee to stop."""
        change = await self._changed(lambda stub: stub.CancelTask, request, _STOPPING)
        return tasks.CancelTaskResponse(change=change)

    async def finish_cancel(self, request: tasks.FinishCancelTaskRequest) -> tasks.FinishCancelTaskResponse:
        """Confirm that cancelled work has stopped."""
        change = await self._changed(lambda stub: stub.FinishCancelTask, request, _CANCELLED)
        return tasks.FinishCancelTaskResponse(change=change)

    async def fail(self, request: tasks.FailTaskRequest) -> tasks.FailTaskResponse:
        """Report that the work failed."""
        change = await self._changed(lambda stub: stub.FailTask, request, _FAILED)
        return tasks.FailTaskResponse(change=change)

    async def retry(self, request: tasks.RetryTaskRequest) -> tasks.RetryTaskResponse:
        """Queue failed, expired or cancelled work again."""
        change = await self._changed(lambda stub: stub.RetryTask, request, _PLACED)
        return tasks.RetryTaskResponse(change=change)

    async def reassign(self, request: tasks.ReassignTaskRequest) -> tasks.ReassignTaskResponse:
        """Give work that nobody executes to another agent."""
        change = await self._changed(lambda stub: stub.ReassignTask, request, _PLACED)
        return tasks.ReassignTaskResponse(change=change)

    async def set_dependencies(self, request: tasks.SetTaskDependenciesRequest) -> tasks.SetTaskDependenciesResponse:
        """Replace the prerequisites of work that was not started."""
        change = await self._changed(lambda stub: stub.SetTaskDependencies, request, _PLACED)
        return tasks.SetTaskDependenciesResponse(change=change)

    async def override(self, request: tasks.OverrideTaskRequest) -> tasks.OverrideTaskResponse:
        """End an uncertain attempt by a person's word."""
        change = await self._changed(lambda stub: stub.OverrideTask, request, _OVERRIDDEN)
        return tasks.OverrideTaskResponse(change=change)

    async def archive(self, request: tasks.ArchiveTaskRequest) -> tasks.ArchiveTaskResponse:
        """Put a task away whose outcome is settled."""
        change = await self._changed(lambda stub: stub.ArchiveTask, request, _SETTLED)
        return tasks.ArchiveTaskResponse(change=change)

    async def settle(self, request: tasks.SettleTaskRequestRequest) -> tasks.SettleTaskRequestResponse:
        """Ask what became of a request id; an unknown one is durably cancelled. Asking again answers the same."""
        return await self._asked(lambda stub: stub.SettleTaskRequest, request, writes=True)

    async def list_tasks(self, request: tasks.ListTasksRequest) -> tasks.ListTasksResponse:
        """Return a page of tasks, newest first; what the caller has seen settled leaves its supervision set."""
        return await self._asked(lambda stub: stub.ListTasks, request, writes=True)

    async def get(self, task_id: str) -> tasks.GetTaskResponse:
        """Return one task with its texts, attempt and prerequisites."""
        return await self._asked(lambda stub: stub.GetTask, tasks.GetTaskRequest(task_id=task_id))

    async def history(self, request: tasks.GetTaskHistoryRequest) -> tasks.GetTaskHistoryResponse:
        """Return a page of what happened to a task, in commit order."""
        return await self._asked(lambda stub: stub.GetTaskHistory, request)

    async def ready(self, run: str) -> tasks.ReadyResponse:
        """Ask to end the caller's turn. Changes nothing."""
        return await self._asked(lambda stub: stub.Ready, tasks.ReadyRequest(run=run))

    async def wait_notification(self, request: tasks.WaitNotificationRequest) -> tasks.WaitNotificationResponse:
        """Wait for the next notification that the caller was not given in this run.

        A lost answer is Uncertain, for it may have held one, which is not given again in this run.
        """
        call_ms = self._budgets.call_ms + max(0, request.timeout_ms)
        ready_ms = self._budgets.ready_ms
        try:
            return await self._once(lambda stub: stub.WaitNotification, request, ready_ms=ready_ms, call_ms=call_ms)
        except Uncertain as lost:
            raise Uncertain(lost.reason, lost.message, hint=_NOTICE_HINT, state=lost.state) from None

    async def list_notifications(self, request: tasks.ListNotificationsRequest) -> tasks.ListNotificationsResponse:
        """Return a page of the caller's notifications that stand; gives none."""
        return await self._asked(lambda stub: stub.ListNotifications, request)

    async def list_supervision(self, request: tasks.ListSupervisionRequest) -> tasks.ListSupervisionResponse:
        """Return a page of what the caller supervises, oldest first."""
        return await self._asked(lambda stub: stub.ListSupervision, request)

    async def acknowledge(self, task_ids: Sequence[str]) -> tasks.AcknowledgeOutcomesResponse:
        """Take settled outcomes out of the caller's supervision set. Repeating it is harmless."""
        ask = tasks.AcknowledgeOutcomesRequest(task_ids=task_ids)
        return await self._asked(lambda stub: stub.AcknowledgeOutcomes, ask, writes=True)

    async def _changed(
        self, rpc: Callable[[Any], Rpc[Any]], request: Any, states: frozenset[tasks.TaskState.ValueType]
    ) -> tasks.TaskChange:
        """Write, and settle where the answer was lost. `states` are those that such a write can lead to."""
        epoch = self._channels.epochs.get(self.service) or (await self._mailbox.describe()).epoch
        try:
            answer = await self._keyed(rpc, request)
        except Uncertain as lost:
            self._channels.epochs.pop(self.service, None)
            ask = tasks.SettleTaskRequestRequest(request_id=request.request_id, epoch=epoch)
            told = await self._ask_settlement(lambda stub: stub.SettleTaskRequest, ask, lost, _TASK_HINT)
            return _fate(told, request, states, lost)
        change: tasks.TaskChange = answer.change
        return change


def _fate(
    told: tasks.SettleTaskRequestResponse,
    request: Any,
    states: frozenset[tasks.TaskState.ValueType],
    lost: Uncertain,
) -> tasks.TaskChange:
    if told.fate == tasks.REQUEST_FATE_CANCELLED:
        raise _cancelled(lost, "request id")
    # What the id stands for was checked against no content: it may be another call's, made with the same id before.
    ours = told.change.state in states and getattr(request, "task_id", told.change.task_id) == told.change.task_id
    if told.fate == tasks.REQUEST_FATE_WRITTEN and ours:
        return told.change
    raise _unproved(lost, _TASK_HINT, other_store=told.fate == tasks.REQUEST_FATE_UNKNOWN)


_PLACED: Final = frozenset({tasks.TASK_STATE_QUEUED, tasks.TASK_STATE_BLOCKED})
_RUNNING: Final = frozenset({tasks.TASK_STATE_RUNNING})
_EXECUTED: Final = frozenset({tasks.TASK_STATE_RUNNING, tasks.TASK_STATE_CANCEL_REQUESTED})
_SUBMITTED: Final = frozenset({tasks.TASK_STATE_SUBMITTED})
_REVIEWED: Final = _PLACED | {tasks.TASK_STATE_ACCEPTED}
_INTEGRATED: Final = frozenset({tasks.TASK_STATE_INTEGRATED})
_CANCELLED: Final = frozenset({tasks.TASK_STATE_CANCELLED})
_STOPPING: Final = _CANCELLED | {tasks.TASK_STATE_CANCEL_REQUESTED}
_FAILED: Final = frozenset({tasks.TASK_STATE_FAILED})
_OVERRIDDEN: Final = _PLACED | _CANCELLED
_SETTLED: Final = _CANCELLED | _FAILED | _INTEGRATED | {tasks.TASK_STATE_ACCEPTED, tasks.TASK_STATE_EXPIRED}
