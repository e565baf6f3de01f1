"""How a client of the chaos run speaks to Fencepost: by the client library over gRPC, or by a shim over MCP.

Both end every mutation definitely as far as the system lets them, and write down each call on the wire.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, Self

import grpc
from fencepost_chaos.history import (
    Began,
    Call,
    Log,
    Mutation,
    Outcome,
    Page,
    Rpc,
    Seen,
    Settled,
    Waited,
    digest,
    now_ns,
)

from fencepost.client import Budgets, Channels, Mailbox, Sessions, _Service
from fencepost.errors import FencepostError, NotWritten, Refused, Uncertain, refusal_detail
from fencepost.home import MAILBOX, MCP_EDGE, SESSIONS, Home
from fencepost.mailbox.v1 import mailbox_pb2 as pb

# How long one mutation is pursued under one key, refusals that say "may be resent" and settling included.
OP_S_MAX: Final = 60.0
AGAIN_PAUSE_S: Final = 0.1
# Of the calls that were acknowledged, how many are made once more under their key.
AGAIN_SHARE: Final = 0.1
TOOL_CALL_S_MAX: Final = 90.0
LINE_BYTES_MAX: Final = 4 * 1024 * 1024
END_S_MAX: Final = 15.0
ERASED_REFUSAL: Final = "agent_deleted"
_PARKED: Final = frozenset({"Wait", "wait_agent"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Op:
    """A mutation that is wanted."""

    op: str
    call: Call
    # A name or UUID, or for a reply the request's id.
    target: str
    recipient: str
    parent: str = ""
    body: str


class Face(Protocol):
    """One agent's way to its mailbox."""

    async def mutate(self, op: Op) -> Mutation:
        """Make the call until its outcome is definite, or cannot be learned."""
        ...

    async def receive(self, *, cursor: str, ack: str, limit: int, timeout_ms: int) -> tuple[Page, bool]:
        """Read a page; also tell whether nothing unacknowledged is left."""
        ...

    async def wait(self, timeout_ms: int) -> Waited:
        """Wait for something to read."""
        ...


# --- the client library ----------------------------------------------------------------------------------------------


def timed(
    client: str, service: str, log: Log, lost: Callable[[], None], rpc: Callable[[Any], Any], request: Any
) -> Any:
    """Return `rpc` with each of its calls written down."""
    method = type(request).__name__.removesuffix("Request")

    def of(stub: Any) -> Callable[..., Awaitable[Any]]:
        call = rpc(stub)

        async def run(*args: Any, **kwargs: Any) -> Any:
            began, gone = now_ns(), False
            try:
                return await call(*args, **kwargs)
            except grpc.aio.AioRpcError as error:
                if refusal_detail(error) is None:
                    lost()
                    # One that ran out of time says nothing about the service's end.
                    gone = error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
                raise
            finally:
                parked = method in _PARKED or (method == "Receive" and request.timeout_ms > 0)
                log.add(
                    Rpc(
                        client=client,
                        services=(service,),
                        method=method,
                        began_ns=began,
                        ended_ns=now_ns(),
                        lost=gone,
                        parked=parked,
                    )
                )

        return run

    return of


class Recorded(_Service[Any]):
    """What the faces of all services share here: each call on the wire is written down. It changes nothing of any."""

    def __init__(
        self, channels: Channels, token: str, *, client: str, log: Log, budgets: Budgets | None = None
    ) -> None:
        super().__init__(channels, token, budgets=budgets)
        self._client = client
        self._log = log
        self.losses = 0
        # What settling said last, by key or request id.
        self.settlements: dict[str, Settled] = {}

    def _lost(self) -> None:
        self.losses += 1

    async def _once(self, rpc: Any, request: Any, *, ready_ms: int, call_ms: int) -> Any:
        recorded = timed(self._client, self.service, self._log, self._lost, rpc, request)
        return await super()._once(recorded, request, ready_ms=ready_ms, call_ms=call_ms)


class RecordedMailbox(Recorded, Mailbox):
    """The library's mailbox, whose settlements are written down too."""

    async def _ask_settlement(self, rpc: Any, ask: Any, lost: Uncertain, hint: str) -> Any:
        answer = await super()._ask_settlement(rpc, ask, lost, hint)
        self.note(ask, answer)
        return answer

    def note(self, ask: pb.SettleKeyRequest, answer: pb.SettleKeyResponse) -> Settled:
        """Remember what became of a key."""
        meaning = {pb.SETTLEMENT_WRITTEN: Settled.WRITTEN, pb.SETTLEMENT_CANCELLED: Settled.CANCELLED}
        settled = meaning.get(answer.settlement, Settled.UNSETTLED)
        self.settlements[getattr(ask, str(ask.WhichOneof("call"))).idempotency_key] = settled
        return settled


class RecordedSessions(Recorded, Sessions):
    """The library's sessions."""


@dataclass(kw_only=True)
class _Ended:
    outcome: Outcome
    reason: str = ""
    record_id: str = ""
    duplicate: bool = False


class GrpcFace:
    """An agent that uses the client library."""

    def __init__(self, *, client: str, agent: str, mailbox: RecordedMailbox, log: Log, seed: str) -> None:
        self._client = client
        self._agent = agent
        self._mailbox = mailbox
        self._log = log
        self._dice = random.Random(f"{seed} again")
        self._epoch = ""

    async def open(self) -> None:
        """Learn the store's epoch, by which an unknown is settled however long it lasts."""
        while not self._epoch:
            try:
                self._epoch = (await self._mailbox.describe()).epoch
            except NotWritten:
                await asyncio.sleep(AGAIN_PAUSE_S)

    def _request(self, op: Op) -> Any:
        if op.call is Call.REPLY:
            return pb.ReplyRequest(
                request_id=op.target, status=pb.REPLY_STATUS_DONE, body=op.body, idempotency_key=op.op
            )
        if op.call is Call.REQUEST:
            return pb.RequestRequest(target=op.target, body=op.body, idempotency_key=op.op)
        return pb.SendRequest(target=op.target, body=op.body, idempotency_key=op.op)

    async def _made(self, op: Op, request: Any) -> _Ended:
        """Make the call once through the library."""
        try:
            receipt = await getattr(self._mailbox, op.call)(request)
        except Refused as refused:
            return _Ended(outcome=Outcome.REFUSED, reason=refused.reason)
        except NotWritten as unsent:
            spent = "key_spent" if unsent.key_spent else unsent.reason
            return _Ended(outcome=Outcome.NOT_WRITTEN, reason=spent)
        except Uncertain as unknown:
            return _Ended(outcome=Outcome.UNCERTAIN, reason=unknown.reason)
        return _done(op, receipt)

    async def mutate(self, op: Op) -> Mutation:
        """See Face."""
        self._log.add(Began(op=op.op, client=self._client, body=digest(op.body), at_ns=now_ns()))
        invoked, losses = now_ns(), self._mailbox.losses
        request = self._request(op)
        ended = await self._pursued(op, request)
        returned = now_ns()
        lost = self._mailbox.losses - losses
        again = await self._again(op, request, ended)
        mutation = Mutation(
            op=op.op,
            client=self._client,
            via="grpc",
            call=op.call,
            key=op.op,
            sender=self._agent,
            recipient=op.recipient,
            parent=op.parent,
            body=digest(op.body),
            invoked_ns=invoked,
            returned_ns=returned,
            outcome=ended.outcome,
            reason=ended.reason,
            record_id=ended.record_id,
            duplicate=ended.duplicate,
            lost=lost,
            settled=self._mailbox.settlements.pop(op.op, Settled.NOT_ASKED),
            again=again,
        )
        self._log.add(mutation)
        return mutation

    async def _pursued(self, op: Op, request: Any) -> _Ended:
        clock = asyncio.get_running_loop().time
        until = clock() + OP_S_MAX
        while True:
            ended = await self._made(op, request)
            if ended.outcome is Outcome.UNCERTAIN:
                return await self._settled(op, request, ended, until)
            unsent = ended.outcome is Outcome.NOT_WRITTEN and ended.reason != "key_spent"
            if not (unsent or ended.reason in MAY_RESEND) or clock() > until:
                return ended
            await asyncio.sleep(AGAIN_PAUSE_S)

    async def _settled(self, op: Op, request: Any, unknown: _Ended, until: float) -> _Ended:
        """Go on asking where the library's own budget was not enough. The call itself is never repeated."""
        ask = pb.SettleKeyRequest(epoch=self._epoch, **{op.call: request})
        while asyncio.get_running_loop().time() < until:
            try:
                answer = await self._mailbox.settle(ask)
            except Refused as refused:
                if refused.reason == ERASED_REFUSAL:
                    # Its caller lives, so this speaks of the record: it was written, and its recipient deleted since.
                    self._mailbox.settlements[op.op] = Settled.ERASED
                    return _Ended(outcome=Outcome.REFUSED, reason=refused.reason)
                await asyncio.sleep(AGAIN_PAUSE_S)
                continue
            except FencepostError:
                await asyncio.sleep(AGAIN_PAUSE_S)
                continue
            match self._mailbox.note(ask, answer):
                case Settled.WRITTEN:
                    return _done(op, getattr(answer, op.call))
                case Settled.CANCELLED:
                    return _Ended(outcome=Outcome.NOT_WRITTEN, reason="key_spent")
            break
        return unknown

    async def _again(self, op: Op, request: Any, ended: _Ended) -> str:
        """Make the very same call once more: a late arrival where the key was cancelled, else now and then."""
        cancelled = ended.outcome is Outcome.NOT_WRITTEN and ended.reason == "key_spent"
        repeats = self._dice.random() < AGAIN_SHARE
        if not cancelled and not (ended.outcome is Outcome.DONE and repeats):
            return ""
        settled = self._mailbox.settlements.get(op.op)
        again = await self._made(op, request)
        # What the repeat itself lost is settled by the library; it says nothing new of the first call.
        if settled is None:
            self._mailbox.settlements.pop(op.op, None)
        else:
            self._mailbox.settlements[op.op] = settled
        if again.outcome is Outcome.DONE:
            return again.record_id
        return again.reason if again.outcome is Outcome.REFUSED and again.reason not in MAY_RESEND else ""

    async def receive(self, *, cursor: str, ack: str, limit: int, timeout_ms: int) -> tuple[Page, bool]:
        """See Face."""
        invoked = now_ns()
        answer = pb.ReceiveResponse()
        outcome, reason = Outcome.DONE, ""
        try:
            answer = await self._mailbox.receive(
                pb.ReceiveRequest(cursor=cursor, ack_cursor=ack, limit=limit, timeout_ms=timeout_ms)
            )
        except FencepostError as error:
            outcome, reason = Outcome(error.outcome), error.reason
        page = Page(
            client=self._client,
            agent=self._agent,
            invoked_ns=invoked,
            returned_ns=now_ns(),
            outcome=outcome,
            reason=reason,
            cursor=cursor,
            ack=ack,
            next_cursor=answer.next_cursor,
            ack_cursor=answer.ack_cursor,
            records=tuple(
                Seen(
                    record_id=record.record_id,
                    body=digest(record.body),
                    sender=record.sender.agent_id,
                    possibly_seen=record.possibly_seen,
                    acknowledged=record.acknowledged,
                    sequence=record.sequence,
                )
                for record in answer.records
            ),
        )
        self._log.add(page)
        return page, outcome is Outcome.DONE and not answer.unacknowledged and not answer.records

    async def wait(self, timeout_ms: int) -> Waited:
        """See Face."""
        invoked, outcome, timed_out = now_ns(), Outcome.DONE, False
        try:
            timed_out = (await self._mailbox.wait(pb.WaitRequest(timeout_ms=timeout_ms))).timed_out
        except FencepostError as error:
            outcome = Outcome(error.outcome)
        waited = Waited(
            client=self._client,
            agent=self._agent,
            invoked_ns=invoked,
            returned_ns=now_ns(),
            outcome=outcome,
            timed_out=timed_out,
        )
        self._log.add(waited)
        return waited


MAY_RESEND: Final = frozenset({"draining", "overloaded", "dependency_unavailable", "storage_error"})


def _done(op: Op, receipt: Any) -> _Ended:
    record_id = receipt.request_id if op.call is Call.REQUEST else receipt.record_id
    return _Ended(outcome=Outcome.DONE, record_id=record_id, duplicate=receipt.duplicate)


# --- the shim --------------------------------------------------------------------------------------------------------

_TOOL: Final = {Call.SEND: "send_message", Call.REQUEST: "followup_task", Call.REPLY: "reply"}


@dataclass(kw_only=True)
class _Answer:
    payload: dict[str, Any]
    is_error: bool

    @property
    def outcome(self) -> Outcome:
        """What the envelope says was written."""
        if not self.is_error:
            return Outcome.DONE
        if self.payload["written"] is not False:
            return Outcome.UNCERTAIN
        code = self.payload["code"]
        return Outcome.NOT_WRITTEN if code in {"not_written", "control_transport_error"} else Outcome.REFUSED


@dataclass(kw_only=True)
class ShimFace:
    """An agent program with its MCP server as a child process, spoken to in lines of JSON-RPC."""

    client: str
    agent: str
    log: Log
    process: asyncio.subprocess.Process
    _open: dict[str, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)
    _count: int = 0
    _reading: asyncio.Task[None] | None = None

    @classmethod
    async def spawn(cls, *, client: str, agent: str, home: Home, log: Log) -> Self:
        """Start the server and shake hands with it."""
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("fencepost-mcp")),
            env={**os.environ, "FENCEPOST_HOME": str(home.path), "FENCEPOST_SESSION_ID": agent},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )
        face = cls(client=client, agent=agent, log=log, process=process)
        face._reading = asyncio.create_task(face._read())
        about = {"name": "fencepost-chaos", "version": "1"}
        await face._asked("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about}, "i")
        face._write({"method": "notifications/initialized"})
        return face

    async def close(self) -> None:
        """Close the server's input, which ends it, and join it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            async with asyncio.timeout(END_S_MAX):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        if self._reading is not None:
            await self._reading

    def _write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            message = json.loads(line)
            waiting = self._open.pop(message.get("id", ""), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
        for waiting in self._open.values():
            # One whose caller gave up stays here until its answer comes.
            if not waiting.done():
                waiting.set_exception(ConnectionError("the shim ended"))

    async def _asked(self, method: str, params: dict[str, Any], call_id: str) -> dict[str, Any]:
        waiting: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._open[call_id] = waiting
        self._write({"id": call_id, "method": method, "params": params})
        async with asyncio.timeout(TOOL_CALL_S_MAX):
            message = await waiting
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']}")
        result: dict[str, Any] = message["result"]
        return result

    async def _tool(self, name: str, arguments: dict[str, Any], call_id: str = "") -> _Answer:
        self._count += 1
        began = now_ns()
        result = await self._asked(
            "tools/call", {"name": name, "arguments": arguments}, call_id or f"{self.client}.{self._count}"
        )
        services = (MCP_EDGE, SESSIONS, MAILBOX) if name == "list_agents" else (MCP_EDGE, MAILBOX)
        parked = name in _PARKED or arguments.get("timeout_ms", 0) > 0
        self.log.add(
            Rpc(client=self.client, services=services, method=name, began_ns=began, ended_ns=now_ns(), parked=parked)
        )
        return _Answer(payload=result["structuredContent"], is_error=result["isError"])

    async def mutate(self, op: Op) -> Mutation:
        """See Face. The shim makes the key out of the call's id, and settles by itself."""
        self.log.add(Began(op=op.op, client=self.client, body=digest(op.body), at_ns=now_ns()))
        arguments = {"message": op.body}
        if op.call is Call.REPLY:
            arguments |= {"request_id": op.target, "status": "done"}
        else:
            arguments |= {"target": op.target}
        invoked = now_ns()
        answer = await self._tool(_TOOL[op.call], arguments, op.op)
        outcome = answer.outcome
        mutation = Mutation(
            op=op.op,
            client=self.client,
            via="mcp",
            call=op.call,
            key=json.dumps(op.op),
            sender=self.agent,
            recipient=op.recipient,
            parent=op.parent,
            body=digest(op.body),
            invoked_ns=invoked,
            returned_ns=now_ns(),
            outcome=outcome,
            reason=answer.payload.get("code", "") if answer.is_error else "",
            record_id="" if answer.is_error else answer.payload["interaction_id"],
            duplicate=False if answer.is_error else answer.payload["duplicate"],
        )
        self.log.add(mutation)
        return mutation

    async def receive(self, *, cursor: str, ack: str, limit: int, timeout_ms: int) -> tuple[Page, bool]:
        """See Face."""
        arguments: dict[str, Any] = {"limit": limit, "timeout_ms": timeout_ms}
        arguments |= {name: value for name, value in (("cursor", cursor), ("ack_cursor", ack)) if value}
        invoked = now_ns()
        answer = await self._tool("receive_messages", arguments)
        done = not answer.is_error
        messages = answer.payload["messages"] if done else []
        page = Page(
            client=self.client,
            agent=self.agent,
            invoked_ns=invoked,
            returned_ns=now_ns(),
            outcome=answer.outcome,
            reason="" if done else answer.payload["code"],
            cursor=cursor,
            ack=ack,
            next_cursor=(answer.payload["next_cursor"] or "") if done else "",
            ack_cursor=(answer.payload["ack_cursor"] or "") if done else "",
            records=tuple(
                Seen(
                    record_id=message["interaction_id"],
                    body=digest(message["message"]),
                    sender=message["sender"]["agent_id"],
                    possibly_seen=message.get("possibly_seen", False),
                    acknowledged=message.get("acknowledged", False),
                )
                for message in messages
            ),
        )
        self.log.add(page)
        return page, done and not answer.payload["unacknowledged"] and not messages

    async def wait(self, timeout_ms: int) -> Waited:
        """See Face."""
        invoked = now_ns()
        answer = await self._tool("wait_agent", {"timeout_ms": timeout_ms})
        waited = Waited(
            client=self.client,
            agent=self.agent,
            invoked_ns=invoked,
            returned_ns=now_ns(),
            outcome=answer.outcome,
            timed_out=not answer.is_error and answer.payload["timed_out"],
        )
        self.log.add(waited)
        return waited

    async def look_around(self) -> None:
        """List the agents, which goes through sessions."""
        await self._tool("list_agents", {})
