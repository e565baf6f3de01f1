"""Between protobuf and the domain: every value has a word on both sides, and malformed words are refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2 as sessions_pb
from fencepost_kit.ids import MalformedId, uuid_text
from fencepost_kit.refusal import Malformed
from fencepost_mailbox import translate
from fencepost_mailbox.domain.answers import Resolution
from fencepost_mailbox.domain.bindings import BindingState, Mode, TurnOutcome
from fencepost_mailbox.domain.claims import Outcome
from fencepost_mailbox.domain.explanations import summary
from fencepost_mailbox.domain.pages import RECORD_OVERHEAD_BYTES
from fencepost_mailbox.domain.refusals import InvalidTask, NotFound
from fencepost_mailbox.domain.values import (
    LISTING_BODY_CHARACTERS_MAX,
    Agent,
    Answer,
    Completion,
    Delivery,
    Desired,
    FactKind,
    Kind,
    Operation,
    Origin,
    Reader,
    ReplyStatus,
)
from fencepost_mailbox.usecases import look
from fencepost_mailbox.waits import Wake
from fencepost_testing.mailboxes import a_record, an_agent, id16

HEX = id16("record").hex()


class Names:
    """A directory in which every agent has the longest name."""

    def __init__(self, name: str = "bob") -> None:
        self._name = name

    async def resolve(self, project_id: bytes, target: str) -> Agent:
        raise NotImplementedError

    def agent(self, agent_id: bytes) -> Agent | None:
        return an_agent(self._name, agent_id=agent_id) if agent_id != id16("unknown") else None

    def check_fresh(self) -> None:
        raise NotImplementedError


def shown(kind: Kind = Kind.REQUEST, *, name: str = "bob", **changes: object) -> pb.Record:
    return translate.Namer(Names(name)).record(a_record(kind, **changes))


@pytest.mark.parametrize("kind", Kind)
def test_an_id_comes_back_as_what_it_named(kind: Kind) -> None:
    text = translate.record_id_text(kind, id16("record"))
    assert translate.record_id_of(text) == (kind, id16("record"))
    assert len(text) == 36


@pytest.mark.requirement("mailbox.bad-input-is-refused-and-changes-nothing")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "ask_",
        HEX,
        "ask_" + HEX[:-1],
        "ask_" + HEX + "0",
        "ASK_" + HEX,
        "msg_" + HEX,
        "task" + HEX,
        "ask_" + HEX.upper(),
        "ask_" + HEX[:-1] + "g",
        "ask_ " + HEX[:-1],
        "ask_" + HEX[:-3] + " " + HEX[-2:],
        " ask_" + HEX[1:],
        "ask_" + "é" * 32,
        "ask_" + "\u0661" * 32,
        "ask_" + HEX + "\n",
        "ask_" + "0" * 100_000,
    ],
)
def test_what_is_no_id_names_nothing(text: str) -> None:
    with pytest.raises(NotFound):
        translate.record_id_of(text)
    with pytest.raises(NotFound):
        translate.request_id_of(text)


@pytest.mark.parametrize("prefix", ["inf_", "rep_", "ntc_", "prm_"])
def test_only_a_requests_id_takes_a_reply_or_is_withdrawn(prefix: str) -> None:
    for read in (translate.request_id_of, translate.withdrawn_id_of):
        with pytest.raises(InvalidTask):
            read(prefix + HEX)
        assert read("ask_" + HEX) == id16("record")


@given(st.text(max_size=40))
def test_a_claims_token_is_read_in_one_spelling_or_not_at_all(text: str) -> None:
    raw = translate.token_of(text)
    assert raw == b"" or raw.hex() == text


@pytest.mark.parametrize("text", [HEX.upper(), " " + HEX[1:], HEX[:2] + " " + HEX[2:], HEX + "00", HEX[:-2], ""])
def test_a_malformed_token_is_one_that_nobody_holds(text: str) -> None:
    assert translate.token_of(text) == b""
    assert translate.token_of(HEX) == id16("record")


def test_no_uuid_is_none_and_a_malformed_one_is_refused() -> None:
    assert translate.optional_uuid("") is None
    assert translate.optional_uuid(uuid_text(id16("a"))) == id16("a")
    for wrong in ("x", uuid_text(id16("a")).upper(), id16("a").hex(), "{" + uuid_text(id16("a")) + "}"):
        with pytest.raises(MalformedId):
            translate.optional_uuid(wrong)


def test_every_value_has_its_word_on_the_wire() -> None:
    for kind in Kind:
        assert pb.RecordKind.Name(shown(kind).kind) == f"RECORD_KIND_{kind.name}"
    for origin in Origin:
        assert pb.Origin.Name(shown(origin=origin).origin) == f"ORIGIN_{origin.name}"
    for status in (ReplyStatus.DONE, ReplyStatus.BLOCKED, ReplyStatus.FAILED):
        assert pb.ReplyStatus.Name(shown(status=status).reply_status) == f"REPLY_STATUS_{status.name}"
    for answer in (Answer.OPEN, Answer.ANSWERED, Answer.WITHDRAWN, Answer.CLOSED):
        assert pb.AnswerState.Name(shown(answer=answer).answer_state) == f"ANSWER_STATE_{answer.name}"
    for completion in (Completion.AUTOMATIC, Completion.EXPLICIT):
        assert pb.Completion.Name(shown(completion=completion).completion) == f"COMPLETION_{completion.name}"
    for reader in Reader:
        assert pb.RecipientReader.Name(pb.RecipientReader.ValueType(reader)) == f"RECIPIENT_READER_{reader.name}"
    for mode in Mode:
        assert pb.AdmissionMode.Name(pb.AdmissionMode.ValueType(mode)) == f"ADMISSION_MODE_{mode.name}"
    for state in BindingState:
        assert pb.BindingState.Name(pb.BindingState.ValueType(state)) == f"BINDING_STATE_{state.name}"
    for how in TurnOutcome:
        word = "UNSPECIFIED" if how is TurnOutcome.NONE else how.name
        assert pb.TurnOutcome.Name(pb.TurnOutcome.ValueType(how)) == f"TURN_OUTCOME_{word}"
    for resolution in Resolution:
        assert pb.Resolution.Name(pb.Resolution.ValueType(resolution)) == f"RESOLUTION_{resolution.name}"
    for desired in Desired:
        assert sessions_pb.DesiredState.Name(sessions_pb.DesiredState.ValueType(desired)) == (
            f"DESIRED_STATE_{desired.name}"
        )
    # From TASK on they are those of the other services of this process, which settle their own calls.
    for operation in (one for one in Operation if one < Operation.TASK):
        assert pb.Operation.Name(pb.Operation.ValueType(operation)) == f"OPERATION_{operation.name}"


@pytest.mark.requirement("mailbox.facts-stay-apart")
def test_delivery_on_the_wire_merges_only_the_two_names_of_one_state() -> None:
    words = {delivery: pb.DeliveryState.Name(shown(delivery=delivery).delivery_state) for delivery in Delivery}
    same = {Delivery.PENDING: "ADMITTED", Delivery.STORED: "ADMITTED", Delivery.RECEIVER: "EXPOSED"}
    for delivery, word in words.items():
        assert word == f"DELIVERY_STATE_{same.get(delivery, delivery.name)}"


@pytest.mark.requirement("mailbox.facts-stay-apart")
def test_an_uncertain_record_says_so_and_nothing_else_does() -> None:
    for delivery in Delivery:
        assert shown(delivery=delivery).possibly_seen is (delivery is Delivery.UNCERTAIN)


def test_what_the_host_said_has_no_sender_and_an_unknown_agent_keeps_its_id() -> None:
    record = shown(Kind.NOTICE, sender=None, recipient=id16("unknown"))
    assert not record.HasField("sender")
    assert (record.recipient.agent_id, record.recipient.name) == (uuid_text(id16("unknown")), "")


@pytest.mark.requirement("mailbox.bad-input-is-refused-and-changes-nothing")
@pytest.mark.parametrize("value", [-1, 0, 5, 2**31 - 1])
def test_an_enumerator_that_nobody_knows_is_refused(value: int) -> None:
    with pytest.raises(Malformed):
        translate.outcome_of(value)
    with pytest.raises(Malformed):
        translate.reply_command(pb.ReplyRequest(request_id="ask_" + HEX, status=value, body="x"))  # type: ignore[arg-type]
    with pytest.raises(Malformed):
        translate.claim_command(pb.ClaimRequest(kind=value))  # type: ignore[arg-type]
    if value:
        with pytest.raises(Malformed):
            translate.direction_of(value)
        with pytest.raises(Malformed):
            translate.request_command(pb.RequestRequest(completion=value))  # type: ignore[arg-type]


def test_a_request_is_completed_automatically_unless_it_says_otherwise() -> None:
    said = {
        pb.COMPLETION_UNSPECIFIED: Completion.AUTOMATIC,
        pb.COMPLETION_AUTOMATIC: Completion.AUTOMATIC,
        pb.COMPLETION_EXPLICIT: Completion.EXPLICIT,
    }
    for value, completion in said.items():
        assert translate.request_command(pb.RequestRequest(completion=value)).completion is completion


def test_every_outcome_and_direction_is_read() -> None:
    for name, value in pb.ClaimOutcome.items():
        if value:
            assert translate.outcome_of(value) is Outcome[name.removeprefix("CLAIM_OUTCOME_")]
    assert translate.direction_of(pb.DIRECTION_UNSPECIFIED) is look.Direction.BOTH
    assert translate.direction_of(pb.DIRECTION_INBOX) is look.Direction.INBOX
    assert translate.direction_of(pb.DIRECTION_SENT) is look.Direction.SENT


def test_a_settlement_needs_a_call() -> None:
    with pytest.raises(Malformed):
        translate.settle_command(pb.SettleKeyRequest(epoch="e"))


@pytest.mark.parametrize("wake", Wake)
def test_the_end_of_a_wait_has_no_body_and_one_reason(wake: Wake) -> None:
    answer = translate.wait_response(wake)
    assert answer.timed_out is (wake is Wake.TIMED_OUT)
    assert answer.timed_out is (not answer.wake_reason)
    assert {field.name for field in pb.WaitResponse.DESCRIPTOR.fields} == {"timed_out", "wake_reason"}


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=2 * LISTING_BODY_CHARACTERS_MAX))
def test_a_listing_shows_the_first_characters_of_a_body(body: str) -> None:
    record = a_record(Kind.INFORMATION, body=body.encode())
    listing = translate.listing_response(look.Listing(records=[record], next_token=""), translate.Namer(Names()))
    assert listing.records[0].body == body[:LISTING_BODY_CHARACTERS_MAX]


@pytest.mark.requirement("mailbox.looking-exposes-nothing")
def test_an_explanation_shows_no_body_and_the_summary_neither() -> None:
    record = a_record(body=b"the secret plan")
    for reader in Reader:
        assert "secret" not in summary(record, reader=reader, answered_by="its recipient")


@pytest.mark.parametrize("delivery", Delivery)
def test_every_state_has_its_sentence_and_uncertain_ones_never_advise_to_send_again(delivery: Delivery) -> None:
    for answer in Answer:
        kind = {Answer.NONE: Kind.INFORMATION, Answer.CLOSED: Kind.PROMPT}.get(answer, Kind.REQUEST)
        for reader in Reader:
            words = summary(a_record(kind, delivery=delivery, answer=answer), reader=reader, answered_by="a person")
            assert words.startswith(f"The {kind.name.lower()} is ")
            assert words.endswith(".")
            if delivery is Delivery.UNCERTAIN:
                assert "not known" in words
                assert "again" not in words.replace("will not be submitted again", "").replace(
                    "do not send it again before that", ""
                )


def test_every_fact_has_a_word_for_people() -> None:
    for fact in FactKind:
        assert fact.name.lower().replace("_", "").isalpha()


@pytest.mark.requirement("mailbox.pages-have-budgets")
def test_what_is_reckoned_for_a_record_covers_it_as_json_with_names_of_usual_letters() -> None:
    from google.protobuf.json_format import MessageToDict

    record = shown(
        name="n" * 40,
        body=b"x",
        sequence=2**40,
        delivery=Delivery.UNCERTAIN,
        acknowledged=True,
        answer=Answer.ANSWERED,
        origin=Origin.AUTOMATIC,
    )
    text = json.dumps(MessageToDict(record, preserving_proto_field_name=True), ensure_ascii=False)
    assert len(text.encode()) <= RECORD_OVERHEAD_BYTES


def test_a_step_of_the_directory_is_read_whole() -> None:
    message = sessions_pb.WatchDirectoryResponse(
        epoch="e",
        revision=5,
        snapshot_begin=True,
        agents=[
            sessions_pb.Agent(
                agent_id=uuid_text(id16("bob")), project_id=uuid_text(id16("p")), name="bob", generation=3, revision=4
            )
        ],
        credentials=[
            sessions_pb.Credential(
                credential_id=uuid_text(id16("c")), token_sha256=b"d" * 32, role=4, generation=1, label="svc"
            )
        ],
        removed_credential_ids=[uuid_text(id16("gone"))],
    )
    update = translate.update_from_proto(message)
    assert (update.position.epoch, update.position.revision) == ("e", 5)
    assert (update.snapshot_begin, update.snapshot_end) == (True, False)
    assert update.agents[0].agent_id == id16("bob")
    assert update.agents[0].generation == 3
    assert update.credentials[0].agent_id is None
    assert list(update.removed_credentials) == [id16("gone")]
