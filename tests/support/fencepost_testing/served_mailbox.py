"""The mailbox behind its guard on a real Unix socket, in the test's own loop, with a directory that the test holds."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from typing import Any, Final

import grpc

from fencepost.common.v1 import common_pb2 as common
from fencepost.home import Home
from fencepost.mailbox.v1 import (
    context_pb2,
    context_pb2_grpc,
    evidence_pb2,
    evidence_pb2_grpc,
    files_pb2,
    files_pb2_grpc,
    mailbox_pb2_grpc,
    tasks_pb2,
    tasks_pb2_grpc,
)
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost.transports import TransportName, opener
from fencepost_kit.guard import Gate, guarded
from fencepost_kit.identity import CachedIdentify, Role
from fencepost_kit.ids import uuid_text
from fencepost_kit.serve import SERVER_OPTIONS
from fencepost_kit.statuses import detail_of
from fencepost_mailbox.context_servicer import RULES as CONTEXT_RULES
from fencepost_mailbox.evidence_servicer import RULES as EVIDENCE_RULES
from fencepost_mailbox.file_servicer import RULES as FILE_RULES
from fencepost_mailbox.servicer import RULES
from fencepost_mailbox.settings import MailboxSettings
from fencepost_mailbox.statuses import STATUS_OF
from fencepost_mailbox.task_servicer import RULES as TASK_RULES
from fencepost_mailbox.wiring import Mailbox
from fencepost_testing.clock import VirtualClock
from fencepost_testing.mailboxes import (
    OTHER_PROJECT,
    FakeSessions,
    a_credential,
    an_agent,
    an_update,
    id16,
    token_of,
)

CALL_S_MAX: Final = 10.0
AGENTS: Final = ("ann", "bob", "cyd")
HOSTS: Final = {"operator": Role.OPERATOR, "service": Role.SERVICE}
DESCRIPTOR: Final = pb.DESCRIPTOR.services_by_name["MailboxService"]
CONTEXT_DESCRIPTOR: Final = context_pb2.DESCRIPTOR.services_by_name["ContextService"]
EVIDENCE_DESCRIPTOR: Final = evidence_pb2.DESCRIPTOR.services_by_name["EvidenceService"]
FILE_DESCRIPTOR: Final = files_pb2.DESCRIPTOR.services_by_name["FilesService"]
TASK_DESCRIPTOR: Final = tasks_pb2.DESCRIPTOR.services_by_name["TasksService"]


def uuid_of(name: str) -> str:
    """The UUID of an agent or dispatcher of that name."""
    return uuid_text(id16(name))


class Refusal(Exception):
    """A refusal as a client sees it: its status, and the detail that proves that nothing was written."""

    def __init__(self, status: grpc.StatusCode, text: str, detail: common.Refusal) -> None:
        super().__init__(f"{status.name} {detail.reason}: {text}")
        self.status, self.text, self.detail = status, text, detail

    @property
    def reason(self) -> str:
        """The stable reason."""
        return self.detail.reason

    def everything(self) -> str:
        """Every word of it."""
        return f"{self.text} {self.detail}"


class ServedMailbox:
    """A mailbox with ann, bob and the coordinator cyd in one project, eve in another, an operator and a service."""

    def __init__(self, home: Home, *, transport: TransportName = "grpcio") -> None:
        self.home = home
        self.transport = transport
        self._open = opener(transport)
        self.sessions = FakeSessions()
        self.clock = VirtualClock()
        self._keys = itertools.count(1)
        self._revisions = itertools.count(1)
        self._stack = contextlib.AsyncExitStack()

    async def start(self) -> None:
        """Open the store, hear the directory, and answer calls."""
        self.home.prepare()
        self._stack = contextlib.AsyncExitStack()
        self.mailbox = Mailbox(home=self.home, sessions=self.sessions, settings=MailboxSettings(), clock=self.clock)
        await self._stack.enter_async_context(self.mailbox.running())
        await self.tell(
            agents=[*map(an_agent, AGENTS), an_agent("eve", project_id=OTHER_PROJECT)],
            credentials=[
                *(a_credential(name) for name in ("ann", "bob")),
                a_credential("cyd", role=Role.COORDINATOR),
                a_credential("eve", project_id=OTHER_PROJECT),
                *(a_credential(name, role=role) for name, role in HOSTS.items()),
            ],
        )
        server = grpc.aio.server(options=SERVER_OPTIONS)
        self.gate = Gate()
        mailbox_pb2_grpc.add_MailboxServiceServicer_to_server(
            guarded(
                self.mailbox.servicer(),
                descriptor=DESCRIPTOR,
                rules=RULES,
                identify=CachedIdentify(self.mailbox.mirror),
                statuses=STATUS_OF,
                gate=self.gate,
            ),
            server,
        )
        shared: dict[str, Any] = {
            "identify": CachedIdentify(self.mailbox.mirror),
            "statuses": STATUS_OF,
            "gate": self.gate,
        }
        context_pb2_grpc.add_ContextServiceServicer_to_server(
            guarded(self.mailbox.context_servicer(), descriptor=CONTEXT_DESCRIPTOR, rules=CONTEXT_RULES, **shared),
            server,
        )
        files_pb2_grpc.add_FilesServiceServicer_to_server(
            guarded(self.mailbox.files_servicer(), descriptor=FILE_DESCRIPTOR, rules=FILE_RULES, **shared), server
        )
        evidence_pb2_grpc.add_EvidenceServiceServicer_to_server(
            guarded(self.mailbox.evidence_servicer(), descriptor=EVIDENCE_DESCRIPTOR, rules=EVIDENCE_RULES, **shared),
            server,
        )
        tasks_pb2_grpc.add_TasksServiceServicer_to_server(
            guarded(self.mailbox.tasks_servicer(), descriptor=TASK_DESCRIPTOR, rules=TASK_RULES, **shared), server
        )
        address = f"unix:{self.home.socket('mailbox')}"
        server.add_insecure_port(address)
        await server.start()
        self._stack.push_async_callback(server.stop, None)
        channel = self._open(address, None)
        self._stack.push_async_callback(channel.close)
        self.stub: Any = mailbox_pb2_grpc.MailboxServiceStub(channel)
        # Names of RPCs are unique over the services of the mailbox.
        self._others: tuple[Any, ...] = (
            context_pb2_grpc.ContextServiceStub(channel),
            files_pb2_grpc.FilesServiceStub(channel),
            evidence_pb2_grpc.EvidenceServiceStub(channel),
            tasks_pb2_grpc.TasksServiceStub(channel),
        )

    async def stop(self) -> None:
        """Stop serving and close the store."""
        await self._stack.aclose()

    async def restart(self) -> None:
        """Stop, and start over the same home."""
        await self.stop()
        await self.start()

    async def tell(self, **changes: Any) -> None:
        """Let the mirror hear a step of the directory, durable when this returns."""
        revision = next(self._revisions)
        self.sessions.tell(an_update(revision, **changes))
        async with asyncio.timeout(CALL_S_MAX):
            while not self.sessions.confirmed or self.sessions.confirmed[-1].revision < revision:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def become(self, name: str, generation: int) -> None:
        """Let the agent's credential be that of another generation."""
        await self.tell(credentials=[a_credential(name, generation=generation)])

    def key(self) -> str:
        """A key that was never used."""
        return f"key-{next(self._keys)}"

    async def call(self, who: str | None, method: str, request: Any, *, timeout_s: float = CALL_S_MAX) -> Any:
        """Call a method as somebody, or as nobody; a stream's answers are listed until it ends.

        Raises:
            Refusal: the call was refused. A status without the detail passes as the error that it is.
        """
        metadata = None if who is None else self.metadata(who)
        try:
            stub = next(one for one in (self.stub, *self._others) if hasattr(one, method))
            call = getattr(stub, method)(request, metadata=metadata, timeout=timeout_s)
            if hasattr(call, "__aiter__"):
                return [answer async for answer in call]
            return await call
        except grpc.aio.AioRpcError as error:
            detail = detail_of(error)
            if detail is None:
                raise
            raise Refusal(error.code(), error.details() or "", detail) from None

    @staticmethod
    def metadata(who: str) -> Sequence[tuple[str, str]]:
        """What authenticates a call."""
        return (("authorization", f"Bearer {token_of(who)}"),)

    async def send(self, who: str, target: str, body: str = "text", *, key: str = "") -> Any:
        """Send information."""
        ask = pb.SendRequest(target=target, body=body, idempotency_key=key or self.key())
        return await self.call(who, "Send", ask)

    async def request(self, who: str, target: str, body: str = "work", *, key: str = "") -> Any:
        """Ask for work."""
        ask = pb.RequestRequest(target=target, body=body, idempotency_key=key or self.key())
        return await self.call(who, "Request", ask)

    async def receive(self, who: str, **options: Any) -> Any:
        """Read a page."""
        return await self.call(who, "Receive", pb.ReceiveRequest(**options))

    async def reply(self, who: str, request_id: str, body: str = "done", **options: Any) -> Any:
        """Answer a request."""
        options.setdefault("status", pb.REPLY_STATUS_DONE)
        options.setdefault("idempotency_key", self.key())
        return await self.call(who, "Reply", pb.ReplyRequest(request_id=request_id, body=body, **options))

    def claiming(self, agent: str, **options: Any) -> pb.ClaimRequest:
        """A Claim of an agent's oldest request, or what `options` say."""
        facts: dict[str, Any] = {
            "agent_id": uuid_of(agent),
            "generation": 1,
            "dispatcher_id": uuid_of("dispatcher"),
            "incarnation": 1,
            "kind": pb.CLAIM_KIND_REQUEST,
            "idempotency_key": self.key(),
        }
        return pb.ClaimRequest(**{**facts, **options})

    async def claim(self, agent: str, **options: Any) -> Any:
        """Take a record as the service."""
        return await self.call("service", "Claim", self.claiming(agent, **options))

    async def finish(
        self,
        token: str,
        outcome: Any,
        *,
        generation: int = 1,
        evidence: str = "seen",
        binding: pb.Binding | None = None,
    ) -> Any:
        """Tell what became of a claim."""
        ask = pb.FinishRequest(token=token, generation=generation, outcome=outcome, evidence=evidence, binding=binding)
        return await self.call("service", "Finish", ask)

    @staticmethod
    def turn(turn_id: str = "turn-1") -> pb.Binding:
        """A turn of a scripted provider."""
        return pb.Binding(
            provider="scripted",
            provider_session_id="session-1",
            provider_turn_id=turn_id,
            admission_mode=pb.ADMISSION_MODE_START,
        )

    async def bound(self, agent: str, **options: Any) -> Any:
        """Take an agent's oldest work and let a turn accept it."""
        held = (await self.claim(agent, **options)).claim
        await self.finish(held.token, pb.CLAIM_OUTCOME_ACCEPTED, generation=held.generation, binding=self.turn())
        return held

    async def end(
        self,
        token: str,
        final: str = "",
        *,
        outcome: Any = pb.TURN_OUTCOME_COMPLETED,
        generation: int = 1,
        evidence: str = "turn ended",
    ) -> Any:
        """Tell how the bound turn ended."""
        ask = pb.RecordOutcomeRequest(
            token=token,
            generation=generation,
            binding=self.turn(),
            outcome=outcome,
            final_text=final,
            evidence=evidence,
        )
        return await self.call("service", "RecordOutcome", ask)

    async def epoch(self) -> str:
        """The store's epoch."""
        epoch: str = (await self.call("ann", "Describe", pb.DescribeRequest())).epoch
        return epoch
