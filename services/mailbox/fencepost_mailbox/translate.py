"""The only file that knows both protobuf and the domain."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import grpc

from fencepost.common.v1 import common_pb2 as common
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2 as sessions_pb
from fencepost_kit.ids import hex32, uuid_bytes, uuid_text
from fencepost_kit.refusal import Malformed, Refusal
from fencepost_mailbox.directory import Update
from fencepost_mailbox.domain import refusals
from fencepost_mailbox.domain.answers import Resolution
from fencepost_mailbox.domain.bindings import Binding, Ending, Mode, Turn, TurnOutcome, ending
from fencepost_mailbox.domain.claims import Outcome
from fencepost_mailbox.domain.idempotency import KeyVerdict
from fencepost_mailbox.domain.inbox import possibly_seen
from fencepost_mailbox.domain.refusals import InvalidBinding, InvalidTask, MailboxRefusal, NotFound
from fencepost_mailbox.domain.tasks.needs import task_id_text
from fencepost_mailbox.domain.texts import PREFIX, record_id_text
from fencepost_mailbox.domain.threads.attributes import thread_id_text
from fencepost_mailbox.domain.values import (
    LISTING_BODY_CHARACTERS_MAX,
    Agent,
    Answer,
    Attributes,
    Completion,
    Delivery,
    Desired,
    Fact,
    FactKind,
    Kind,
    Operation,
    Record,
    ReplyStatus,
)
from fencepost_mailbox.store.protocol import Credential, DirectoryPosition
from fencepost_mailbox.usecases import (
    admit,
    carriers,
    claim,
    look,
    open_generation,
    outcome,
    prompt,
    receive,
    reply,
    resolve,
    settle_key,
)
from fencepost_mailbox.usecases.ports import Directory, Readership
from fencepost_mailbox.usecases.threads import acknowledge as acknowledging
from fencepost_mailbox.usecases.threads import look as threads
from fencepost_mailbox.usecases.threads.attach import Attached
from fencepost_mailbox.waits import Wake
from fencepost_mailbox.work import AgentWork

STATUS_OF: Final[Mapping[type[Refusal], grpc.StatusCode]] = MappingProxyType(
    {
        MailboxRefusal: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.InvalidMessage: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.InvalidIdempotencyKey: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.IdempotencyConflict: grpc.StatusCode.ALREADY_EXISTS,
        refusals.KeyCancelled: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.InvalidLimit: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.InvalidTimeout: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.InvalidCursor: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.ExpiredCursor: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.InvalidTarget: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.AmbiguousTarget: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.NotFound: grpc.StatusCode.NOT_FOUND,
        refusals.AgentDeleted: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.SelfRequest: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.Unauthorized: grpc.StatusCode.PERMISSION_DENIED,
        refusals.InvalidTask: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.ConflictingReply: grpc.StatusCode.ALREADY_EXISTS,
        refusals.Withdrawn: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.StaleGeneration: grpc.StatusCode.ABORTED,
        refusals.StaleIncarnation: grpc.StatusCode.ABORTED,
        refusals.StaleClaim: grpc.StatusCode.ABORTED,
        refusals.ConflictingOutcome: grpc.StatusCode.ALREADY_EXISTS,
        refusals.StaleBinding: grpc.StatusCode.ABORTED,
        refusals.InvalidBinding: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.NotPending: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.HopLimit: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.InvalidAttributes: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.InvalidQuery: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.NotShown: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.InvalidState: grpc.StatusCode.FAILED_PRECONDITION,
        refusals.DirectoryStale: grpc.StatusCode.UNAVAILABLE,
        refusals.StorageError: grpc.StatusCode.UNAVAILABLE,
    }
)

_KIND_OF: Final = {prefix: kind for kind, prefix in PREFIX.items()}
_ID_CHARACTERS: Final = 36

# Agents whose reference is kept made.
REFERENCES_REMEMBERED_MAX: Final = 4096
_DELIVERY: Final[Mapping[Delivery, pb.DeliveryState.ValueType]] = MappingProxyType(
    {
        Delivery.PENDING: pb.DELIVERY_STATE_ADMITTED,
        Delivery.STORED: pb.DELIVERY_STATE_ADMITTED,
        Delivery.RECEIVER: pb.DELIVERY_STATE_EXPOSED,
        Delivery.EXPOSED: pb.DELIVERY_STATE_EXPOSED,
        Delivery.CLAIMED: pb.DELIVERY_STATE_CLAIMED,
        Delivery.VISIBLE: pb.DELIVERY_STATE_VISIBLE,
        Delivery.ACCEPTED: pb.DELIVERY_STATE_ACCEPTED,
        Delivery.UNCERTAIN: pb.DELIVERY_STATE_UNCERTAIN,
        Delivery.FAILED: pb.DELIVERY_STATE_FAILED,
    }
)
_ANSWER: Final[Mapping[Answer, pb.AnswerState.ValueType]] = MappingProxyType(
    {
        Answer.NONE: pb.ANSWER_STATE_UNSPECIFIED,
        Answer.OPEN: pb.ANSWER_STATE_OPEN,
        Answer.ANSWERED: pb.ANSWER_STATE_ANSWERED,
        Answer.WITHDRAWN: pb.ANSWER_STATE_WITHDRAWN,
        Answer.CLOSED: pb.ANSWER_STATE_CLOSED,
    }
)


def record_id_of(text: str) -> tuple[Kind, bytes]:
    """Return what a public id names.

    Raises:
        NotFound: it is no id of ours.
    """
    kind = _KIND_OF.get(text[:4])
    try:
        raw = bytes.fromhex(text[4:])
    except ValueError:
        raw = b""
    if kind is None or len(text) != _ID_CHARACTERS or len(raw) != 16 or text[4:] != raw.hex():
        raise NotFound(
            "this is not the id of a record; nothing was read or written",
            hint="A record's id is inf_, ask_, rep_, ntc_, prm_ or wak_ and 32 hexadecimal digits.",
        )
    return kind, raw


def request_id_of(text: str) -> bytes:
    """Return the request that a public id names.

    Raises:
        NotFound: it is no id of ours.
        InvalidTask: it names something that is not a request.
    """
    kind, raw = record_id_of(text)
    if kind is not Kind.REQUEST:
        raise InvalidTask(
            "this id names no request, so it cannot be replied to; nothing was written",
            hint="Only a record of kind request (ask_...) takes a reply; send information with send_message.",
        )
    return raw


def withdrawn_id_of(text: str) -> bytes:
    """Return the request that is to be withdrawn.

    Raises:
        NotFound: it is no id of ours.
        InvalidTask: it names something that is not a request.
    """
    kind, raw = record_id_of(text)
    if kind is not Kind.REQUEST:
        raise InvalidTask("this id names no request, so it cannot be withdrawn; nothing was written")
    return raw


def token_of(text: str) -> bytes:
    """Return a claim's token; one that is malformed is a token that nobody holds."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    return raw if len(raw) == 16 and raw.hex() == text else b""


def optional_uuid(text: str) -> bytes | None:
    """Return the UUID, or None where the field is empty.

    Raises:
        MalformedId: it is not a UUID.
    """
    return uuid_bytes(text) if text else None


def attributes(given: Attributes | None) -> pb.Attributes | None:
    """Return what a sender said of a record besides its text, or None where it said nothing."""
    if given is None:
        return None
    kind, answered = given.reply_to_kind, given.reply_to
    return pb.Attributes(
        subject=given.subject,
        thread_id=thread_id_text(given.thread),
        reply_to=record_id_text(kind, answered) if kind is not None and answered is not None else "",
        task_id=task_id_text(given.task_id) if given.task_id is not None else "",
    )


def attached_of(request: pb.SendRequest | pb.RequestRequest) -> Attached | None:
    """Return the attributes of a call, or None where it gives none."""
    if not request.HasField("attributes"):
        return None
    given = request.attributes
    return Attached(subject=given.subject, thread_id=given.thread_id, reply_to=given.reply_to, task_id=given.task_id)


@lru_cache(maxsize=REFERENCES_REMEMBERED_MAX)
def agent_ref(agent_id: bytes, name: str) -> common.AgentRef:
    """Return an agent's id and name. It is copied wherever it is put, and never changed."""
    return common.AgentRef(agent_id=uuid_text(agent_id), name=name)


class Namer:
    """Names agents as the directory knows them now."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def ref(self, agent_id: bytes | None) -> common.AgentRef | None:
        """Return an agent's id and name, or None for the host."""
        if agent_id is None:
            return None
        agent = self._directory.agent(agent_id)
        return agent_ref(agent_id, agent.name if agent is not None else "")

    def record(self, record: Record, *, body: str | None = None) -> pb.Record:
        """Return a record as its reader sees it; `body` replaces its own."""
        return pb.Record(
            record_id=record_id_text(record.kind, record.record_id),
            kind=pb.RecordKind.ValueType(record.kind),
            sender=self.ref(record.sender),
            recipient=self.ref(record.recipient),
            body=record.body.decode("utf-8") if body is None else body,
            parent_id=record_id_text(Kind.REQUEST, record.parent_id) if record.parent_id is not None else "",
            reply_status=pb.ReplyStatus.ValueType(record.status),
            origin=pb.Origin.ValueType(record.origin),
            admitted_at_ms=record.admitted_at_ms,
            delivery_state=_DELIVERY[record.delivery],
            answer_state=_ANSWER[record.answer],
            completion=pb.Completion.ValueType(record.completion),
            possibly_seen=possibly_seen(kind=record.kind, delivery=record.delivery),
            acknowledged=record.acknowledged,
            sequence=record.sequence,
            hops=record.hops,
            attributes=attributes(record.attributes),
        )

    def open_request(self, record: Record) -> pb.OpenRequest:
        """Return a request that waits for its recipient's reply."""
        return pb.OpenRequest(
            request_id=record_id_text(Kind.REQUEST, record.record_id),
            sender=self.ref(record.sender),
            delivery_state=_DELIVERY[record.delivery],
            admitted_at_ms=record.admitted_at_ms,
            possibly_seen=possibly_seen(kind=record.kind, delivery=record.delivery),
        )


# --- requests ---------------------------------------------------------------------------------------------------------


def send_command(request: pb.SendRequest) -> admit.Command:
    """Return the command of a Send."""
    return admit.Command(
        kind=Kind.INFORMATION,
        target=request.target,
        body=request.body,
        key=request.idempotency_key,
        completion=Completion.NONE,
        attached=attached_of(request),
    )


def request_command(request: pb.RequestRequest) -> admit.Command:
    """Return the command of a Request.

    Raises:
        Malformed: `completion` is a value that nobody knows.
    """
    if request.completion not in (pb.COMPLETION_UNSPECIFIED, pb.COMPLETION_AUTOMATIC, pb.COMPLETION_EXPLICIT):
        raise Malformed("completion is automatic or explicit; nothing was written")
    explicit = request.completion == pb.COMPLETION_EXPLICIT
    return admit.Command(
        kind=Kind.REQUEST,
        target=request.target,
        body=request.body,
        key=request.idempotency_key,
        completion=Completion.EXPLICIT if explicit else Completion.AUTOMATIC,
        attached=attached_of(request),
        supervised=request.supervised,
    )


def reply_command(request: pb.ReplyRequest) -> reply.Command:
    """Return the command of a Reply.

    Raises:
        Malformed: no outcome is given.
        NotFound, InvalidTask: see request_id_of.
    """
    if request.status not in (pb.REPLY_STATUS_DONE, pb.REPLY_STATUS_BLOCKED, pb.REPLY_STATUS_FAILED):
        raise Malformed("a reply is done, blocked or failed; nothing was written")
    return reply.Command(
        request_id=request_id_of(request.request_id),
        status=ReplyStatus(request.status),
        body=request.body,
        key=request.idempotency_key,
    )


def settle_command(request: pb.SettleKeyRequest) -> settle_key.Command:
    """Return the command of a SettleKey.

    Raises:
        Malformed: no call is described, or one that would be malformed.
    """
    which = request.WhichOneof("call")
    if which == "send":
        sent = send_command(request.send)
        operation, key, content = Operation.SEND, sent.key, sent.content()
    elif which == "request":
        asked = request_command(request.request)
        operation, key, content = Operation.REQUEST, asked.key, asked.content()
    elif which == "reply":
        replied = reply_command(request.reply)
        operation, key, content = Operation.REPLY, replied.key, replied.content()
    else:
        raise Malformed("SettleKey describes the call whose answer was lost; nothing was written")
    return settle_key.Command(epoch=request.epoch, operation=operation, key=key, content=content)


def receive_command(request: pb.ReceiveRequest) -> receive.Command:
    """Return the command of a Receive."""
    return receive.Command(
        cursor=request.cursor,
        ack_cursor=request.ack_cursor,
        limit=request.limit,
        timeout_ms=request.timeout_ms,
        page_bytes=request.page_bytes_max,
    )


def claim_command(request: pb.ClaimRequest) -> claim.Command:
    """Return the command of a Claim.

    Raises:
        Malformed: a field is not what it must be.
    """
    try:
        kind = claim.ClaimKind(request.kind)
    except ValueError:
        raise Malformed("a claim takes a request, context, a wake-up or a stop; nothing was written") from None
    return claim.Command(
        agent_id=uuid_bytes(request.agent_id),
        generation=request.generation,
        dispatcher=uuid_bytes(request.dispatcher_id),
        incarnation=request.incarnation,
        kind=kind,
        high_water=request.high_water,
        term_ms=request.term_ms,
        key=request.idempotency_key,
    )


def outcome_of(value: int) -> Outcome:
    """Return what a dispatcher reports.

    Raises:
        Malformed: nothing is reported.
    """
    try:
        return Outcome(value)
    except ValueError:
        raise Malformed("a claim ends accepted, visible, failed or uncertain; nothing was written") from None


def turn_of(binding: pb.Binding) -> Turn:
    """Return the turn that a binding names. What the mailbox sets of a binding is not read.

    Raises:
        InvalidBinding: it does not say how the work entered.
    """
    try:
        mode = Mode(binding.admission_mode)
    except ValueError:
        raise InvalidBinding("work starts a turn or is steered into one; nothing was written") from None
    return Turn(
        provider=binding.provider,
        session_id=binding.provider_session_id,
        turn_id=binding.provider_turn_id,
        mode=mode,
    )


def accepted_turn_of(request: pb.FinishRequest) -> Turn | None:
    """Return the turn that a Finish binds, or None where it names none.

    Raises:
        InvalidBinding: see turn_of.
    """
    return turn_of(request.binding) if request.HasField("binding") else None


def ending_of(request: pb.RecordOutcomeRequest) -> Ending:
    """Return how a turn ended.

    Raises:
        Malformed: it does not say how.
        InvalidLimit: see bindings.ending.
    """
    try:
        how = TurnOutcome(request.outcome)
    except ValueError:
        how = TurnOutcome.NONE
    if how is TurnOutcome.NONE:
        raise Malformed("a turn ends completed, interrupted, failed or lost; nothing was written")
    return ending(how, request.final_text, request.final_bytes)


def prompt_command(request: pb.PromptRequest) -> prompt.Command:
    """Return the command of a Prompt.

    Raises:
        MalformedId: the project is no UUID.
    """
    return prompt.Command(
        project_id=optional_uuid(request.project_id),
        target=request.target,
        body=request.body,
        key=request.idempotency_key,
    )


def resolve_command(request: pb.ResolveDeliveryRequest) -> resolve.Command:
    """Return the command of a ResolveDelivery.

    Raises:
        Malformed: it does not say what became of it.
        NotFound: the record's id is none of ours.
    """
    try:
        resolution = Resolution(request.resolution)
    except ValueError:
        raise Malformed("a delivery is settled as done, not done or as new; nothing was written") from None
    kind, record_id = record_id_of(request.record_id)
    return resolve.Command(
        kind=kind, record_id=record_id, resolution=resolution, note=request.note, key=request.idempotency_key
    )


def direction_of(value: int) -> look.Direction:
    """Return which side is asked for.

    Raises:
        Malformed: an unknown one.
    """
    try:
        return look.Direction(value)
    except ValueError:
        raise Malformed("direction is inbox, sent or both; nothing was read") from None


# --- answers ----------------------------------------------------------------------------------------------------------


def _thread(record: Record) -> str:
    return thread_id_text(record.attributes.thread) if record.attributes is not None else ""


def send_response(receipt: admit.Receipt, names: Namer) -> pb.SendResponse:
    """Return the receipt of a Send."""
    record = receipt.record
    return pb.SendResponse(
        record_id=record_id_text(record.kind, record.record_id),
        delivery_state=_DELIVERY[record.delivery],
        duplicate=receipt.duplicate,
        recipient=_recipient(receipt, names),
        recipient_reader=_reader(receipt.readership),
        recipient_last_read_at_ms=receipt.readership.last_read_at_ms,
        admitted_at_ms=record.admitted_at_ms,
        thread_id=_thread(record),
    )


def _recipient(receipt: admit.Receipt, names: Namer) -> common.AgentRef | None:
    agent = receipt.recipient
    return names.ref(receipt.record.recipient) if agent is None else agent_ref(agent.agent_id, agent.name)


def request_response(receipt: admit.Receipt, names: Namer) -> pb.RequestResponse:
    """Return the receipt of a Request."""
    record = receipt.record
    return pb.RequestResponse(
        request_id=record_id_text(record.kind, record.record_id),
        delivery_state=_DELIVERY[record.delivery],
        answer_state=_ANSWER[record.answer],
        duplicate=receipt.duplicate,
        recipient=_recipient(receipt, names),
        recipient_reader=_reader(receipt.readership),
        recipient_last_read_at_ms=receipt.readership.last_read_at_ms,
        admitted_at_ms=record.admitted_at_ms,
        thread_id=_thread(record),
    )


def reply_response(receipt: admit.Receipt, names: Namer) -> pb.ReplyResponse:
    """Return the receipt of a Reply."""
    record = receipt.record
    return pb.ReplyResponse(
        request_id=record_id_text(Kind.REQUEST, record.parent_id) if record.parent_id is not None else "",
        record_id=record_id_text(record.kind, record.record_id),
        delivery_state=_DELIVERY[record.delivery],
        duplicate=receipt.duplicate,
        recipient=_recipient(receipt, names),
        recipient_reader=_reader(receipt.readership),
        recipient_last_read_at_ms=receipt.readership.last_read_at_ms,
        admitted_at_ms=record.admitted_at_ms,
    )


def prompt_response(receipt: admit.Receipt, names: Namer) -> pb.PromptResponse:
    """Return the receipt of a Prompt."""
    record = receipt.record
    return pb.PromptResponse(
        record_id=record_id_text(record.kind, record.record_id),
        delivery_state=_DELIVERY[record.delivery],
        duplicate=receipt.duplicate,
        recipient=_recipient(receipt, names),
        recipient_reader=_reader(receipt.readership),
        admitted_at_ms=record.admitted_at_ms,
    )


def _binding(binding: Binding, *, final: bool = False) -> pb.Binding:
    """Return a binding; with `final` the words that it holds."""
    return pb.Binding(
        provider=binding.turn.provider,
        provider_session_id=binding.turn.session_id,
        provider_turn_id=binding.turn.turn_id,
        admission_mode=pb.AdmissionMode.ValueType(binding.turn.mode),
        state=pb.BindingState.ValueType(binding.state),
        outcome=pb.TurnOutcome.ValueType(binding.outcome),
        final_text=binding.final.decode("utf-8") if final else "",
    )


def get_record_response(record: Record, binding: Binding | None, names: Namer) -> pb.GetRecordResponse:
    """Return a record with its body; of a prompt with the assistant's final words."""
    return pb.GetRecordResponse(record=names.record(record), binding=_shown(record, binding))


def _shown(record: Record, binding: Binding | None) -> pb.Binding | None:
    return None if binding is None else _binding(binding, final=record.kind is Kind.PROMPT)


def outcome_response(recorded: outcome.Recorded) -> pb.RecordOutcomeResponse:
    """Return how far a binding has come."""
    binding = recorded.binding
    return pb.RecordOutcomeResponse(
        record_id=record_id_text(recorded.kind, binding.record_id),
        state=pb.BindingState.ValueType(binding.state),
        duplicate=recorded.duplicate,
        reply_id=record_id_text(Kind.REPLY, binding.reply_id) if binding.reply_id is not None else "",
    )


def resolve_response(resolved: resolve.Resolved) -> pb.ResolveDeliveryResponse:
    """Return a settled delivery."""
    new = resolved.new_record_id
    return pb.ResolveDeliveryResponse(
        reply_id=record_id_text(Kind.REPLY, resolved.reply_id) if resolved.reply_id is not None else "",
        new_record_id=record_id_text(resolved.kind, new) if new is not None else "",
        duplicate=resolved.duplicate,
    )


def bindings_response(bound: carriers.Bound) -> pb.ListBindingsResponse:
    """Return a page of bindings."""
    return pb.ListBindingsResponse(
        bindings=[
            pb.BoundRequest(
                record_id=record_id_text(record.kind, record.record_id),
                token=hex32(binding.token),
                generation=binding.generation,
                agent_id=uuid_text(binding.recipient),
                binding=_binding(binding),
            )
            for binding, record in bound.bindings
        ],
        next_page_token=bound.next_token,
    )


def settle_response(settlement: settle_key.Settlement, names: Namer) -> pb.SettleKeyResponse:
    """Return what became of a key."""
    if settlement.verdict is None:
        return pb.SettleKeyResponse(settlement=pb.SETTLEMENT_UNKNOWN)
    if settlement.verdict is KeyVerdict.CANCELLED or settlement.receipt is None:
        return pb.SettleKeyResponse(settlement=pb.SETTLEMENT_CANCELLED)
    receipt = settlement.receipt
    written = pb.SETTLEMENT_WRITTEN
    if receipt.record.kind is Kind.REPLY:
        return pb.SettleKeyResponse(settlement=written, reply=reply_response(receipt, names))
    if receipt.record.kind is Kind.REQUEST:
        return pb.SettleKeyResponse(settlement=written, request=request_response(receipt, names))
    return pb.SettleKeyResponse(settlement=written, send=send_response(receipt, names))


def receive_response(page: receive.Page, names: Namer) -> pb.ReceiveResponse:
    """Return a page."""
    return pb.ReceiveResponse(
        records=[names.record(record) for record in page.records],
        next_cursor=page.next_cursor,
        ack_cursor=page.ack_cursor,
        has_more=page.has_more,
        timed_out=page.timed_out,
        wake_reason=page.wake_reason,
        high_water=page.high_water,
        unacknowledged=page.unacknowledged,
        open_requests=[names.open_request(record) for record in page.open_requests],
    )


def wait_response(wake: Wake) -> pb.WaitResponse:
    """Return the end of a wait."""
    return pb.WaitResponse(timed_out=wake is Wake.TIMED_OUT, wake_reason=wake.value)


def listing_response(listing: look.Listing, names: Namer) -> pb.ListRecordsResponse:
    """Return a listing with its bodies cut."""
    return pb.ListRecordsResponse(
        records=[cut(record, names) for record in listing.records],
        next_page_token=listing.next_token,
    )


def cut(record: Record, names: Namer) -> pb.Record:
    """Return a record as a list shows it."""
    return names.record(record, body=beginning(record.body))


def acknowledged_response(acknowledged: acknowledging.Acknowledged) -> pb.AcknowledgeRecordsResponse:
    """Return what was acknowledged, and what is left."""
    return pb.AcknowledgeRecordsResponse(
        acknowledged=[record_id_text(kind, record_id) for kind, record_id in acknowledged.records],
        unacknowledged=acknowledged.unacknowledged,
        pending_count=acknowledged.pending,
    )


def thread_response(thread: threads.Thread, names: Namer) -> pb.GetThreadResponse:
    """Return a page of a thread."""
    return pb.GetThreadResponse(
        thread_id=thread_id_text(thread.thread),
        subject=thread.subject,
        records=[names.record(record) for record in thread.records],
        next_page_token=thread.next_token,
    )


def search_of(request: pb.SearchRecordsRequest) -> threads.Search:
    """Return what is looked for.

    Raises:
        MalformedId: the project is no UUID.
    """
    return threads.Search(
        query=request.query,
        project_id=optional_uuid(request.project_id),
        size=request.page_size,
        token=request.page_token,
    )


def found_response(found: threads.Found, names: Namer) -> pb.SearchRecordsResponse:
    """Return a page of what was found."""
    return pb.SearchRecordsResponse(
        found=[pb.FoundRecord(record=names.record(record, body=""), excerpt=text) for record, text in found.records],
        next_page_token=found.next_token,
        complete=found.complete,
    )


def beginning(body: bytes) -> str:
    """Return what a list shows of a text."""
    return body[: 4 * LISTING_BODY_CHARACTERS_MAX].decode("utf-8", "ignore")[:LISTING_BODY_CHARACTERS_MAX]


def explain_response(explanation: look.Explanation, names: Namer) -> pb.ExplainResponse:
    """Return a record explained; its admission is the first fact."""
    record = explanation.record
    return pb.ExplainResponse(
        record=names.record(record, body=""),
        facts=[_admitted(record), *(_fact(fact) for fact in explanation.facts)],
        reply_id=record_id_text(Kind.REPLY, explanation.reply_id) if explanation.reply_id is not None else "",
        recipient_reader=_reader(explanation.readership),
        recipient_last_read_at_ms=explanation.readership.last_read_at_ms,
        summary=explanation.summary,
        binding=_shown(record, explanation.binding),
        facts_left_out=explanation.left_out,
    )


def readers_response(readers: list[tuple[bytes, Readership]]) -> pb.ListReadersResponse:
    """Return who reads."""
    return pb.ListReadersResponse(
        readers=[
            pb.Reader(
                agent_id=uuid_text(agent_id),
                reader=_reader(who),
                last_read_at_ms=who.last_read_at_ms,
                waiting=who.waiting,
                executing=who.executing,
            )
            for agent_id, who in readers
        ]
    )


def _reader(who: Readership) -> pb.RecipientReader.ValueType:
    return pb.RecipientReader.ValueType(who.reader)


def opened_response(opened: open_generation.Opened, names: Namer, limit: int) -> pb.OpenGenerationResponse:
    """Return an opened life; at most `limit` ids are listed."""
    return pb.OpenGenerationResponse(
        floor=opened.floor,
        uncertain_record_ids=[record_id_text(record.kind, record.record_id) for record in opened.uncertain[:limit]],
        uncertain_count=len(opened.uncertain),
        open_requests=[names.open_request(record) for record in opened.open_requests],
    )


def claim_response(taken: claim.Taken | None, names: Namer) -> pb.ClaimResponse:
    """Return a claim, or that there was nothing to take."""
    if taken is None:
        return pb.ClaimResponse()
    return pb.ClaimResponse(
        claim=pb.Claim(
            token=hex32(taken.claim.token),
            record=names.record(taken.record),
            generation=taken.claim.generation,
            expires_at_ms=taken.claim.expires_at_ms,
        ),
        duplicate=taken.duplicate,
    )


def release_response(settled: claim.Settled) -> pb.ReleaseResponse:
    """Return where a released record stands."""
    return pb.ReleaseResponse(
        record_id=record_id_text(settled.record.kind, settled.record.record_id),
        delivery_state=_DELIVERY[settled.record.delivery],
        duplicate=settled.duplicate,
    )


def finish_response(settled: claim.Settled) -> pb.FinishResponse:
    """Return where a finished record stands."""
    return pb.FinishResponse(
        record_id=record_id_text(settled.record.kind, settled.record.record_id),
        delivery_state=_DELIVERY[settled.record.delivery],
        duplicate=settled.duplicate,
        reply_id=record_id_text(Kind.REPLY, settled.reply_id) if settled.reply_id is not None else "",
    )


def record_event(record: Record, fact: Fact | None, position: int, names: Namer) -> pb.WatchEventsResponse:
    """Return what became true of a record."""
    return pb.WatchEventsResponse(
        fact=_admitted(record) if fact is None else _fact(fact),
        record=names.record(record, body=beginning(record.body)),
        position=position,
    )


def _admitted(record: Record) -> pb.Fact:
    return pb.Fact(
        fact="admitted",
        at_ms=record.admitted_at_ms,
        sequence=record.sequence,
        evidence="on disk before its receipt was given",
    )


def _fact(fact: Fact) -> pb.Fact:
    return pb.Fact(
        fact=FactKind(fact.fact).name.lower(),
        at_ms=fact.at_ms,
        sequence=fact.sequence,
        evidence=fact.evidence,
        generation=fact.generation,
    )


def work_response(work: AgentWork) -> pb.WatchWorkResponse:
    """Return what an agent has, or the mark that ends the first listing."""
    return pb.WatchWorkResponse(
        agent_id=uuid_text(work.agent_id) if work.agent_id else "",
        requests=work.requests,
        context=work.context,
        high_water=work.high_water,
        caught_up=not work.agent_id,
        wake=work.due.wake,
        stop=work.due.stop,
        left=work.due.left,
        held_until_ms=work.due.held_until_ms,
    )


# --- the directory ----------------------------------------------------------------------------------------------------


def agent_from_proto(agent: sessions_pb.Agent) -> Agent:
    """Return an agent of the directory."""
    return Agent(
        agent_id=uuid_bytes(agent.agent_id),
        project_id=uuid_bytes(agent.project_id),
        name=agent.name,
        role=agent.role,
        provider=agent.provider,
        generation=agent.generation,
        revision=agent.revision,
        deleting=agent.state == sessions_pb.AGENT_STATE_DELETING,
        desired=_desired(agent.desired),
    )


def _desired(value: int) -> Desired:
    """Return what a person wants; a word of a newer sessions says nothing here."""
    return Desired(value) if value in Desired.__members__.values() else Desired.UNSPECIFIED


def credential_from_proto(credential: sessions_pb.Credential) -> Credential:
    """Return a credential of the directory."""
    return Credential(
        credential_id=uuid_bytes(credential.credential_id),
        token_sha256=credential.token_sha256,
        agent_id=optional_uuid(credential.agent_id),
        project_id=optional_uuid(credential.project_id),
        role=credential.role,
        generation=credential.generation,
        label=credential.label,
        revision=credential.revision,
    )


def update_from_proto(message: sessions_pb.WatchDirectoryResponse) -> Update:
    """Return a step of the directory."""
    return Update(
        position=DirectoryPosition(epoch=message.epoch, revision=message.revision),
        snapshot_begin=message.snapshot_begin,
        snapshot_end=message.snapshot_end,
        agents=[agent_from_proto(agent) for agent in message.agents],
        credentials=[credential_from_proto(credential) for credential in message.credentials],
        removed_credentials=[uuid_bytes(one) for one in message.removed_credential_ids],
        removed_agents=[uuid_bytes(one) for one in message.removed_agent_ids],
    )
