"""One line of meaning a method.

The guard in front of it has authenticated the caller and checked its role and deadline.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial
from importlib import metadata
from types import MappingProxyType
from typing import Final

from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost_kit.guard import Call, Rule
from fencepost_kit.identity import Role
from fencepost_kit.ids import uuid_bytes, uuid_text
from fencepost_kit.refusal import Draining
from fencepost_mailbox import translate
from fencepost_mailbox.domain.values import UNCERTAIN_LISTED_MAX, WAIT_MS_MAX
from fencepost_mailbox.events import EventWatch
from fencepost_mailbox.task_translate import event_response
from fencepost_mailbox.usecases.admit import Admit
from fencepost_mailbox.usecases.carriers import ListBindings, ReportOwners
from fencepost_mailbox.usecases.claim import Finish, Release, TakeClaim
from fencepost_mailbox.usecases.look import Explain, GetRecord, ListReaders, ListRecords
from fencepost_mailbox.usecases.open_generation import OpenGeneration
from fencepost_mailbox.usecases.outcome import RecordOutcome
from fencepost_mailbox.usecases.ports import Ports
from fencepost_mailbox.usecases.prompt import Prompt
from fencepost_mailbox.usecases.receive import Receive, Wait
from fencepost_mailbox.usecases.reply import Reply
from fencepost_mailbox.usecases.resolve import ResolveDelivery
from fencepost_mailbox.usecases.settle_key import SettleKey
from fencepost_mailbox.usecases.threads.acknowledge import AcknowledgeRecords
from fencepost_mailbox.usecases.threads.look import GetThread, SearchRecords
from fencepost_mailbox.usecases.withdraw import Withdraw
from fencepost_mailbox.waits import Waits
from fencepost_mailbox.work import WorkWatch

CALL_MS_MAX: Final = 10_000
WAITING_CALL_MS_MAX: Final = WAIT_MS_MAX + 5_000
STREAM_MS_MAX: Final = 24 * 3600 * 1000

_AGENTS: Final = frozenset({Role.AGENT, Role.COORDINATOR})
_READERS: Final = _AGENTS | {Role.OPERATOR}
_EVERYBODY: Final = frozenset(Role)
_SERVICES: Final = frozenset({Role.SERVICE})
_HOSTS: Final = frozenset({Role.SERVICE, Role.OPERATOR})
_PERSONS: Final = frozenset({Role.OPERATOR})

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "Describe": Rule(roles=_EVERYBODY, deadline_ms_max=CALL_MS_MAX),
        "Send": Rule(roles=_AGENTS, deadline_ms_max=CALL_MS_MAX),
        "Request": Rule(roles=_AGENTS, deadline_ms_max=CALL_MS_MAX),
        "Receive": Rule(roles=_AGENTS, deadline_ms_max=WAITING_CALL_MS_MAX),
        "Wait": Rule(roles=_AGENTS, deadline_ms_max=WAITING_CALL_MS_MAX),
        "AcknowledgeRecords": Rule(roles=_AGENTS, deadline_ms_max=CALL_MS_MAX),
        "Reply": Rule(roles=_AGENTS, deadline_ms_max=CALL_MS_MAX),
        "Withdraw": Rule(roles=_AGENTS, deadline_ms_max=CALL_MS_MAX),
        "Prompt": Rule(roles=_PERSONS, deadline_ms_max=CALL_MS_MAX),
        "SettleKey": Rule(roles=_AGENTS, deadline_ms_max=CALL_MS_MAX),
        "GetRecord": Rule(roles=_READERS, deadline_ms_max=CALL_MS_MAX),
        "ListRecords": Rule(roles=_READERS, deadline_ms_max=CALL_MS_MAX),
        "GetThread": Rule(roles=_READERS, deadline_ms_max=CALL_MS_MAX),
        "SearchRecords": Rule(roles=_READERS, deadline_ms_max=CALL_MS_MAX),
        "Explain": Rule(roles=_READERS, deadline_ms_max=CALL_MS_MAX),
        "ListReaders": Rule(roles=_READERS, deadline_ms_max=CALL_MS_MAX),
        "OpenGeneration": Rule(roles=_HOSTS, deadline_ms_max=CALL_MS_MAX),
        "Claim": Rule(roles=_SERVICES, deadline_ms_max=CALL_MS_MAX),
        "Release": Rule(roles=_SERVICES, deadline_ms_max=CALL_MS_MAX),
        "Finish": Rule(roles=_SERVICES, deadline_ms_max=CALL_MS_MAX),
        "RecordOutcome": Rule(roles=_SERVICES, deadline_ms_max=CALL_MS_MAX),
        "ResolveDelivery": Rule(roles=_PERSONS, deadline_ms_max=CALL_MS_MAX),
        "ReportOwners": Rule(roles=_SERVICES, deadline_ms_max=CALL_MS_MAX),
        "ListBindings": Rule(roles=_SERVICES, deadline_ms_max=CALL_MS_MAX),
        "WatchEvents": Rule(roles=_READERS, deadline_ms_max=STREAM_MS_MAX),
        "WatchWork": Rule(roles=_SERVICES, deadline_ms_max=STREAM_MS_MAX),
    }
)


def version() -> str:
    """Return the version of the installed distribution."""
    return metadata.version("fencepost")


class MailboxServicer:
    """fencepost.mailbox.v1.MailboxService."""

    def __init__(self, ports: Ports, *, waits: Waits, work: WorkWatch, events: EventWatch) -> None:
        self._store = ports.store
        self._directory = ports.directory
        self._names = translate.Namer(ports.directory)
        self._work = work
        self._events = events
        self._version = version()
        self._admit = Admit(ports)
        self._receive = Receive(ports, waits)
        self._wait = Wait(ports, waits)
        self._reply = Reply(ports)
        self._settle_key = SettleKey(ports)
        self._get_record = GetRecord(ports)
        self._list_records = ListRecords(ports)
        self._explain = Explain(ports)
        self._acknowledge = AcknowledgeRecords(ports)
        self._get_thread = GetThread(ports)
        self._search = SearchRecords(ports)
        self._list_readers = ListReaders(ports)
        self._open_generation = OpenGeneration(ports)
        self._claim = TakeClaim(ports)
        self._release = Release(ports)
        self._finish = Finish(ports)
        self._withdraw = Withdraw(ports)
        self._prompt = Prompt(ports)
        self._record_outcome = RecordOutcome(ports)
        self._resolve = ResolveDelivery(ports)
        self._report_owners = ReportOwners(ports)
        self._list_bindings = ListBindings(ports)
        self._owners = ports.owners

    async def Describe(self, request: pb.DescribeRequest, call: Call) -> pb.DescribeResponse:
        """See mailbox.proto, as for every method here."""
        return pb.DescribeResponse(
            version=self._version, schema_version=self._store.schema_version, epoch=uuid_text(self._store.epoch)
        )

    async def Send(self, request: pb.SendRequest, call: Call) -> pb.SendResponse:
        receipt = await self._admit(call.caller, translate.send_command(request))
        return translate.send_response(receipt, self._names)

    async def Request(self, request: pb.RequestRequest, call: Call) -> pb.RequestResponse:
        receipt = await self._admit(call.caller, translate.request_command(request))
        return translate.request_response(receipt, self._names)

    async def Receive(self, request: pb.ReceiveRequest, call: Call) -> pb.ReceiveResponse:
        page = await self._receive(call.caller, translate.receive_command(request))
        return translate.receive_response(page, self._names)

    async def Wait(self, request: pb.WaitRequest, call: Call) -> pb.WaitResponse:
        return translate.wait_response(await self._wait(call.caller, request.timeout_ms))

    async def AcknowledgeRecords(
        self, request: pb.AcknowledgeRecordsRequest, call: Call
    ) -> pb.AcknowledgeRecordsResponse:
        named = [translate.record_id_of(record_id) for record_id in request.record_ids]
        return translate.acknowledged_response(await self._acknowledge(call.caller, named))

    async def GetThread(self, request: pb.GetThreadRequest, call: Call) -> pb.GetThreadResponse:
        thread = await self._get_thread(
            call.caller,
            request.id,
            size=request.page_size,
            token=request.page_token,
            page_bytes=request.page_bytes_max,
        )
        return translate.thread_response(thread, self._names)

    async def SearchRecords(self, request: pb.SearchRecordsRequest, call: Call) -> pb.SearchRecordsResponse:
        return translate.found_response(await self._search(call.caller, translate.search_of(request)), self._names)

    async def Reply(self, request: pb.ReplyRequest, call: Call) -> pb.ReplyResponse:
        receipt = await self._reply(call.caller, translate.reply_command(request))
        return translate.reply_response(receipt, self._names)

    async def SettleKey(self, request: pb.SettleKeyRequest, call: Call) -> pb.SettleKeyResponse:
        settlement = await self._settle_key(call.caller, translate.settle_command(request))
        return translate.settle_response(settlement, self._names)

    async def GetRecord(self, request: pb.GetRecordRequest, call: Call) -> pb.GetRecordResponse:
        record, binding = await self._get_record(call.caller, *translate.record_id_of(request.record_id))
        return translate.get_record_response(record, binding, self._names)

    async def ListRecords(self, request: pb.ListRecordsRequest, call: Call) -> pb.ListRecordsResponse:
        listing = await self._list_records(
            call.caller,
            agent_id=translate.optional_uuid(request.agent_id),
            direction=translate.direction_of(request.direction),
            size=request.page_size,
            token=request.page_token,
            open_only=request.open_only,
        )
        return translate.listing_response(listing, self._names)

    async def Explain(self, request: pb.ExplainRequest, call: Call) -> pb.ExplainResponse:
        explanation = await self._explain(call.caller, *translate.record_id_of(request.record_id))
        return translate.explain_response(explanation, self._names)

    async def ListReaders(self, request: pb.ListReadersRequest, call: Call) -> pb.ListReadersResponse:
        asked = [uuid_bytes(agent_id) for agent_id in request.agent_ids]
        return translate.readers_response(await self._list_readers(call.caller, asked))

    async def OpenGeneration(self, request: pb.OpenGenerationRequest, call: Call) -> pb.OpenGenerationResponse:
        if call.caller.role is Role.OPERATOR:
            self._directory.check_fresh()
        opened = await self._open_generation(uuid_bytes(request.agent_id), request.generation)
        return translate.opened_response(opened, self._names, UNCERTAIN_LISTED_MAX)

    async def Claim(self, request: pb.ClaimRequest, call: Call) -> pb.ClaimResponse:
        return translate.claim_response(await self._claim(call.caller, translate.claim_command(request)), self._names)

    async def Release(self, request: pb.ReleaseRequest, call: Call) -> pb.ReleaseResponse:
        token = translate.token_of(request.token)
        return translate.release_response(await self._release(token, request.generation, request.proof))

    async def Finish(self, request: pb.FinishRequest, call: Call) -> pb.FinishResponse:
        token, outcome = translate.token_of(request.token), translate.outcome_of(request.outcome)
        turn = translate.accepted_turn_of(request)
        return translate.finish_response(await self._finish(token, request.generation, outcome, request.evidence, turn))

    async def Withdraw(self, request: pb.WithdrawRequest, call: Call) -> pb.WithdrawResponse:
        request_id = translate.withdrawn_id_of(request.request_id)
        return pb.WithdrawResponse(duplicate=await self._withdraw(call.caller, request_id))

    async def Prompt(self, request: pb.PromptRequest, call: Call) -> pb.PromptResponse:
        return translate.prompt_response(await self._prompt(translate.prompt_command(request)), self._names)

    async def RecordOutcome(self, request: pb.RecordOutcomeRequest, call: Call) -> pb.RecordOutcomeResponse:
        token, turn = translate.token_of(request.token), translate.turn_of(request.binding)
        told = translate.ending_of(request)
        recorded = await self._record_outcome(token, request.generation, turn, told, request.evidence)
        return translate.outcome_response(recorded)

    async def ResolveDelivery(self, request: pb.ResolveDeliveryRequest, call: Call) -> pb.ResolveDeliveryResponse:
        return translate.resolve_response(await self._resolve(translate.resolve_command(request)))

    async def ReportOwners(self, request: pb.ReportOwnersRequest, call: Call) -> pb.ReportOwnersResponse:
        owners = {uuid_bytes(owner.agent_id): owner.generation for owner in request.owners}
        await self._report_owners(uuid_bytes(request.dispatcher_id), request.incarnation, owners)
        return pb.ReportOwnersResponse()

    async def ListBindings(self, request: pb.ListBindingsRequest, call: Call) -> pb.ListBindingsResponse:
        dispatcher = uuid_bytes(request.dispatcher_id)
        return translate.bindings_response(await self._list_bindings(dispatcher, request.page_size, request.page_token))

    async def WatchEvents(self, request: pb.WatchEventsRequest, call: Call) -> AsyncIterator[pb.WatchEventsResponse]:
        agent_id = translate.optional_uuid(request.agent_id)
        async for event in self._events.watch(call.caller, after=request.after, agent_id=agent_id, tasks=request.tasks):
            yield event_response(event, self._names)
        raise Draining("mailbox is stopping: watch again from the position reached")

    async def WatchWork(
        self,
        request: pb.WatchWorkRequest,
        call: Call,
    ) -> AsyncIterator[pb.WatchWorkResponse]:
        asked = [uuid_bytes(agent_id) for agent_id in request.agent_ids]
        with self._owners.watching(translate.optional_uuid(request.dispatcher_id)):
            async for work in self._work.watch(asked, check=partial(self._directory.check_stands, call.caller)):
                yield translate.work_response(work)
        raise Draining("mailbox is stopping: watch again, the whole state is told anew")
