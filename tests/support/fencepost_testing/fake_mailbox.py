"""A mailbox that fails on command, served over a real Unix socket in the test's own event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from fencepost.common.v1 import common_pb2
from fencepost.home import MAILBOX, Home
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost.mailbox.v1.mailbox_pb2_grpc import MailboxServiceServicer, add_MailboxServiceServicer_to_server

LOSS_NOTICED_S_MAX = 20
TOKEN = "fp_" + "T" * 43
Context = grpc.aio.ServicerContext[Any, Any]
# What a scripted call does instead of the usual, given the server and the call; None goes on as usual.
Script = Callable[["FakeMailbox", Any, Context], Awaitable[None]]


def detail(
    reason: str, *, effect: common_pb2.Effect.ValueType = common_pb2.EFFECT_NOT_WRITTEN, may_resend: bool = False
) -> bytes:
    refusal = common_pb2.Refusal(
        reason=reason, effect=effect, may_resend=may_resend, hint="Do something else.", state={"generation": "4"}
    )
    packed = AnyMessage()
    packed.Pack(refusal)
    return bytes(Status(code=9, message="no", details=[packed]).SerializeToString())


def refuse(reason: str, code: grpc.StatusCode, **kind: Any) -> Script:
    async def script(_: FakeMailbox, request: Any, context: Context) -> None:
        await context.abort(code, "no", (("grpc-status-details-bin", detail(reason, **kind)),))

    return script


def fail(code: grpc.StatusCode, *metadata: tuple[str, bytes]) -> Script:
    async def script(_: FakeMailbox, request: Any, context: Context) -> None:
        await context.abort(code, "broken", metadata)

    return script


def hang() -> Script:
    async def script(_: FakeMailbox, request: Any, context: Context) -> None:
        await asyncio.Event().wait()

    return script


def die(*, written: bool, restart: bool = True) -> Script:
    """The server goes away in the middle of the call, after or before it wrote, and comes back."""

    async def script(fake: FakeMailbox, request: Any, context: Context) -> None:
        if written:
            fake.write(request)
        fake.dying = asyncio.get_running_loop().create_task(fake.bounce(restart=restart))
        await asyncio.Event().wait()

    return script


async def loss_noticed(channel: grpc.aio.Channel) -> None:
    """Return once the channel knows that its connection is gone, which is some time after the server has stopped.

    A call that is made before may go out on the dead connection and is then lost, not sent anew.
    """
    async with asyncio.timeout(LOSS_NOTICED_S_MAX):
        while channel.get_state() is grpc.ChannelConnectivity.READY:
            await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)


class FakeMailbox(MailboxServiceServicer):
    def __init__(self, home: Home) -> None:
        self.home = home
        self.epoch = "epoch-1"
        self.records: dict[str, Any] = {}
        self.cancelled: set[str] = set()
        self.calls: list[str] = []
        self.requests: list[Any] = []
        self.tokens: list[str] = []
        self.scripts: dict[str, deque[Script]] = {}
        self.dying: asyncio.Task[None] | None = None
        self._server: grpc.aio.Server | None = None
        # Answered to SettleKey instead of the truth.
        self.settlement: pb.SettleKeyResponse | None = None
        self._serial = 0
        self._arrived = asyncio.Event()

    def next(self, method: str, *scripts: Script) -> None:
        self.scripts.setdefault(method, deque()).extend(scripts)

    async def reached(self, method: str) -> None:
        """Return once a call of `method` has arrived."""
        while method not in self.calls:
            self._arrived.clear()
            await self._arrived.wait()

    async def start(self, *, socket_name: str = "mailbox.sock") -> None:
        self._server = grpc.aio.server()
        add_MailboxServiceServicer_to_server(self, self._server)
        address = f"unix:{self.home.run}/{socket_name}"
        assert self._server.add_insecure_port(address)
        await self._server.start()
        self.home.address(MAILBOX).write_text(address)

    async def stop(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(None)

    async def bounce(self, *, restart: bool) -> None:
        await self.stop()
        if restart:
            await self.start()

    def write(self, request: Any) -> Any:
        self._serial += 1
        if isinstance(request, pb.ReplyRequest):
            receipt: Any = pb.ReplyResponse(request_id=request.request_id, record_id=f"rep_{self._serial}")
        elif isinstance(request, pb.RequestRequest):
            receipt = pb.RequestResponse(request_id=f"ask_{self._serial}")
        else:
            receipt = pb.SendResponse(record_id=f"inf_{self._serial}", delivery_state=pb.DELIVERY_STATE_ADMITTED)
        self.records[request.idempotency_key] = receipt
        return receipt

    async def _play(self, method: str, request: Any, context: Context) -> None:
        self.calls.append(method)
        self._arrived.set()
        self.requests.append(request)
        self.tokens.append(str(dict(context.invocation_metadata() or ()).get("authorization")))
        scripts = self.scripts.get(method)
        if scripts:
            await scripts.popleft()(self, request, context)

    async def _mutation(self, method: str, request: Any, context: Context) -> Any:
        await self._play(method, request, context)
        return self.records.get(request.idempotency_key) or self.write(request)

    async def Describe(self, request: Any, context: Any) -> pb.DescribeResponse:
        await self._play("Describe", request, context)
        return pb.DescribeResponse(version="0", schema_version=1, epoch=self.epoch)

    async def Send(self, request: Any, context: Any) -> pb.SendResponse:
        receipt: pb.SendResponse = await self._mutation("Send", request, context)
        return receipt

    async def Request(self, request: Any, context: Any) -> pb.RequestResponse:
        receipt: pb.RequestResponse = await self._mutation("Request", request, context)
        return receipt

    async def Reply(self, request: Any, context: Any) -> pb.ReplyResponse:
        receipt: pb.ReplyResponse = await self._mutation("Reply", request, context)
        return receipt

    async def Claim(self, request: Any, context: Any) -> pb.ClaimResponse:
        await self._play("Claim", request, context)
        return pb.ClaimResponse()

    async def Receive(self, request: Any, context: Any) -> pb.ReceiveResponse:
        await self._play("Receive", request, context)
        return pb.ReceiveResponse(high_water=7)

    async def Wait(self, request: Any, context: Any) -> pb.WaitResponse:
        await self._play("Wait", request, context)
        return pb.WaitResponse(timed_out=True)

    async def WatchWork(self, request: Any, context: Any) -> AsyncIterator[pb.WatchWorkResponse]:
        yield pb.WatchWorkResponse(caught_up=True)
        await self._play("WatchWork", request, context)

    async def SettleKey(self, request: Any, context: Any) -> pb.SettleKeyResponse:
        await self._play("SettleKey", request, context)
        if self.settlement is not None:
            return self.settlement
        if request.epoch != self.epoch:
            return pb.SettleKeyResponse(settlement=pb.SETTLEMENT_UNKNOWN)
        call = request.WhichOneof("call")
        key = getattr(request, call).idempotency_key
        if key in self.records:
            return pb.SettleKeyResponse(settlement=pb.SETTLEMENT_WRITTEN, **{call: self.records[key]})
        self.cancelled.add(key)
        return pb.SettleKeyResponse(settlement=pb.SETTLEMENT_CANCELLED)
