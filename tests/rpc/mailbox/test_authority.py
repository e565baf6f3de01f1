"""Who may call what: roles, credentials, and lives that have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from fencepost.common.v1 import common_pb2 as common
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost_kit.identity import Role
from fencepost_mailbox.domain.values import WAIT_MS_MAX
from fencepost_mailbox.servicer import RULES
from fencepost_testing.mailboxes import a_credential, token_of
from fencepost_testing.served_mailbox import DESCRIPTOR, Refusal, ServedMailbox, uuid_of

S = grpc.StatusCode
WHO = {Role.AGENT: "ann", Role.COORDINATOR: "cyd", Role.OPERATOR: "operator", Role.SERVICE: "service"}
AGENTS, HOSTS = {Role.AGENT, Role.COORDINATOR}, {Role.SERVICE, Role.OPERATOR}
# Written out again from the contract's comments: the rules in the code must equal it.
MAY = {
    "Describe": set(Role),
    "Send": AGENTS,
    "Request": AGENTS,
    "Receive": AGENTS,
    "Wait": AGENTS,
    "AcknowledgeRecords": AGENTS,
    "Reply": AGENTS,
    "Withdraw": AGENTS,
    "Prompt": {Role.OPERATOR},
    "SettleKey": AGENTS,
    "GetRecord": AGENTS | {Role.OPERATOR},
    "ListRecords": AGENTS | {Role.OPERATOR},
    "GetThread": AGENTS | {Role.OPERATOR},
    "SearchRecords": AGENTS | {Role.OPERATOR},
    "Explain": AGENTS | {Role.OPERATOR},
    "ListReaders": AGENTS | {Role.OPERATOR},
    "OpenGeneration": HOSTS,
    "Claim": {Role.SERVICE},
    "Release": {Role.SERVICE},
    "Finish": {Role.SERVICE},
    "RecordOutcome": {Role.SERVICE},
    "ResolveDelivery": {Role.OPERATOR},
    "ReportOwners": {Role.SERVICE},
    "ListBindings": {Role.SERVICE},
    "WatchWork": {Role.SERVICE},
    "WatchEvents": AGENTS | {Role.OPERATOR},
}
METHODS = {method.name: getattr(pb, method.input_type.name) for method in DESCRIPTOR.methods}


async def refused(call: Awaitable[Any]) -> Refusal:
    with pytest.raises(Refusal) as answer:
        await call
    assert answer.value.detail.effect == common.EFFECT_NOT_WRITTEN
    return answer.value


@pytest.mark.requirement("mailbox.roles-are-checked-on-every-method")
def test_every_method_admits_exactly_the_roles_of_the_contract() -> None:
    assert {name: set(rule.roles) for name, rule in RULES.items()} == MAY
    assert set(MAY) == set(METHODS)


@pytest.mark.requirement("mailbox.roles-are-checked-on-every-method")
@pytest.mark.parametrize("role", Role)
async def test_a_role_that_may_not_is_denied_before_anything_is_looked_at(served: ServedMailbox, role: Role) -> None:
    for name, kind in METHODS.items():
        if role in MAY[name]:
            continue
        denied = await refused(served.call(WHO[role], name, kind()))
        assert (denied.status, denied.reason) == (S.PERMISSION_DENIED, "permission_denied"), name
        assert denied.detail.state["role"] == role.name.lower()


@pytest.mark.requirement("mailbox.roles-are-checked-on-every-method")
@pytest.mark.parametrize("role", Role)
async def test_a_role_that_may_is_not_denied_for_its_role(served: ServedMailbox, role: Role) -> None:
    for name, kind in METHODS.items():
        if role not in MAY[name] or name.startswith("Watch"):
            continue
        reason = ""
        try:
            await served.call(WHO[role], name, kind())
        except Refusal as refusal:
            reason = refusal.reason
        assert reason != "permission_denied", name


@pytest.mark.requirement("mailbox.roles-are-checked-on-every-method")
@pytest.mark.parametrize("method", METHODS)
async def test_nobody_and_a_stranger_are_unauthenticated_on_every_method(served: ServedMailbox, method: str) -> None:
    for who in (None, "stranger"):
        denied = await refused(served.call(who, method, METHODS[method]()))
        assert (denied.status, denied.reason) == (S.UNAUTHENTICATED, "unauthenticated")


@pytest.mark.requirement("mailbox.roles-are-checked-on-every-method")
@pytest.mark.parametrize(
    "metadata",
    [
        (("authorization", token_of("ann")),),
        (("authorization", f"bearer {token_of('ann')}"),),
        (("authorization", f"Basic {token_of('ann')}"),),
        (("authorization", f"Bearer {token_of('ann')} "),),
        (("authorization", f"Bearer {token_of('ann')[:-1]}"),),
        (("authorization", f"Bearer {token_of('ann').upper()}"),),
        (("authorization", f"Bearer {token_of('ann')}"), ("authorization", f"Bearer {token_of('bob')}")),
        (("x-authorization", f"Bearer {token_of('ann')}"),),
        (("authorization", ""),),
    ],
)
async def test_a_credential_in_any_other_form_is_none(served: ServedMailbox, metadata: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as denied:
        await served.stub.Describe(pb.DescribeRequest(), metadata=metadata, timeout=5)
    if served.transport == "grpclib" and not metadata[0][1]:
        # grpclib sends no empty header: it gives up before the call leaves this process.
        assert denied.value.code() is S.UNKNOWN
        return
    assert denied.value.code() is S.UNAUTHENTICATED
    assert token_of("ann") not in str(denied.value.details())


@pytest.mark.requirement("mailbox.a-revoked-credential-is-gone")
async def test_a_revoked_credential_is_refused_from_the_next_call_on(served: ServedMailbox) -> None:
    await served.send("ann", "bob")
    await served.tell(removed_credentials=[a_credential("ann").credential_id])
    for name in ("Send", "Receive", "Describe"):
        denied = await refused(served.call("ann", name, METHODS[name]()))
        assert (denied.status, denied.reason) == (S.UNAUTHENTICATED, "unauthenticated")
    served.sessions.down = True
    silent = await refused(served.send("ann", "bob"))
    assert silent.reason == "dependency_unavailable", "what cannot be checked is not called unknown"


@pytest.mark.requirement("mailbox.a-negative-answer-is-asked-for")
async def test_a_credential_and_an_agent_made_a_moment_ago_work_at_once(served: ServedMailbox) -> None:
    served.sessions.know("new")
    receipt = await served.send("new", "bob", "hello")
    assert (await served.receive("bob")).records[0].sender.agent_id == uuid_of("new")
    to_new = await served.send("bob", "new")
    assert (to_new.recipient.name, receipt.recipient.name) == ("new", "bob")


# --- lives ------------------------------------------------------------------------------------------------------------


async def opened(served: ServedMailbox, agent: str, generation: int) -> Any:
    ask = pb.OpenGenerationRequest(agent_id=uuid_of(agent), generation=generation)
    return await served.call("service", "OpenGeneration", ask)


Calls = dict[str, Callable[[], Awaitable[Any]]]


async def mutations(served: ServedMailbox) -> Calls:
    """Everything by which bob could act, each of which works before his life ends."""
    asked = [(await served.request("ann", "bob", f"{n}")).request_id for n in range(3)]
    await served.send("ann", "bob", "information")
    page = await served.receive("bob", limit=1)
    mine = await served.request("bob", "cyd", "to be taken back")
    return {
        "Send": lambda: served.send("bob", "ann"),
        "Request": lambda: served.request("bob", "ann"),
        "Reply": lambda: served.reply("bob", asked[1]),
        "Wait": lambda: served.call("bob", "Wait", pb.WaitRequest()),
        "Receive": lambda: served.receive("bob"),
        "Receive behind a cursor": lambda: served.receive("bob", cursor=page.next_cursor),
        "Receive what was shown": lambda: served.receive("bob", limit=1),
        "Receive and acknowledge": lambda: served.receive("bob", ack_cursor=page.ack_cursor),
        "AcknowledgeRecords": lambda: served.call(
            "bob", "AcknowledgeRecords", pb.AcknowledgeRecordsRequest(record_ids=[page.records[0].record_id])
        ),
        "Withdraw": lambda: served.call("bob", "Withdraw", pb.WithdrawRequest(request_id=mine.request_id)),
        "Claim a request": lambda: served.claim("bob"),
        "Claim context": lambda: served.claim("bob", kind=pb.CLAIM_KIND_CONTEXT),
        "OpenGeneration": lambda: opened(served, "bob", 1),
    }


@pytest.mark.requirement("mailbox.stale-generation-gets-no-authority")
async def test_a_zombie_is_refused_at_every_mutation_and_changes_nothing(served: ServedMailbox) -> None:
    calls = await mutations(served)
    await opened(served, "bob", 2)
    newest = served.mailbox.store.read.newest_sequence()
    for name, call in calls.items():
        stale = await refused(call())
        assert (stale.status, stale.reason) == (S.ABORTED, "stale_generation"), name
        assert stale.detail.state["floor"] == "2"
        assert not stale.detail.may_resend
    assert served.mailbox.store.read.newest_sequence() == newest
    await served.become("bob", 2)
    for name, call in calls.items():
        if not name.startswith(("Claim", "Open")):
            await call()


@pytest.mark.requirement("mailbox.stale-generation-gets-no-authority")
async def test_the_successors_first_call_fences_the_zombie_though_nobody_opened_its_life(served: ServedMailbox) -> None:
    calls = await mutations(served)
    await served.become("bob", 3)
    await served.receive("bob")
    await served.become("bob", 2)
    for name, call in calls.items():
        assert (await refused(call())).reason == "stale_generation", name


@pytest.mark.requirement("mailbox.stale-generation-gets-no-authority")
async def test_a_parked_zombie_is_told_when_its_successor_is_opened(served: ServedMailbox) -> None:
    waiting = asyncio.ensure_future(served.call("bob", "Wait", pb.WaitRequest(timeout_ms=WAIT_MS_MAX)))
    reading = asyncio.ensure_future(served.receive("bob", timeout_ms=WAIT_MS_MAX))
    async with asyncio.timeout(5):
        while served.mailbox.waits.parked < 2:  # noqa: ASYNC110 - parked calls have no event of their own
            await asyncio.sleep(0.001)
    await opened(served, "bob", 2)
    for call in (waiting, reading):
        assert (await refused(call)).reason == "stale_generation"


@pytest.mark.requirement("mailbox.evidence-counts-once", "mailbox.stale-generation-gets-no-authority")
async def test_a_zombies_evidence_on_its_own_claim_counts_exactly_once(served: ServedMailbox) -> None:
    asked = await served.request("ann", "bob")
    held = (await served.claim("bob")).claim
    told = await opened(served, "bob", 2)
    assert list(told.uncertain_record_ids) == [asked.request_id]
    first = await served.finish(held.token, pb.CLAIM_OUTCOME_ACCEPTED, generation=1)
    assert (first.delivery_state, first.duplicate) == (pb.DELIVERY_STATE_ACCEPTED, False)
    assert (await served.finish(held.token, pb.CLAIM_OUTCOME_ACCEPTED, generation=1)).duplicate
    for wrong in (
        served.finish(held.token, pb.CLAIM_OUTCOME_FAILED, generation=1),
        served.call("service", "Release", pb.ReleaseRequest(token=held.token, generation=1, proof="p")),
    ):
        assert (await refused(wrong)).reason == "conflicting_outcome"
    for generation in (2, 0):
        borrowed = await refused(served.finish(held.token, pb.CLAIM_OUTCOME_ACCEPTED, generation=generation))
        assert borrowed.reason == "stale_claim"
    facts = await served.call("ann", "Explain", pb.ExplainRequest(record_id=asked.request_id))
    assert [fact.fact for fact in facts.facts] == ["admitted", "claimed", "uncertain", "accepted"]
    assert [fact.generation for fact in facts.facts] == [0, 1, 1, 1]


@pytest.mark.requirement("mailbox.late-evidence-settles", "mailbox.stale-generation-gets-no-authority")
async def test_a_zombies_evidence_of_its_own_turn_counts_exactly_once(served: ServedMailbox) -> None:
    asked = await served.request("ann", "bob")
    held = (await served.claim("bob")).claim
    await served.finish(held.token, pb.CLAIM_OUTCOME_ACCEPTED, binding=served.turn())
    told = await opened(served, "bob", 2)
    assert list(told.uncertain_record_ids) == [asked.request_id]
    for generation in (2, 0):
        assert (await refused(served.end(held.token, "late", generation=generation))).reason == "stale_claim"
    first = await served.end(held.token, "late", generation=1)
    assert (first.state, first.duplicate) == (pb.BINDING_STATE_PUBLISHED, False)
    assert (await served.end(held.token, "late", generation=1)).duplicate
    other = await refused(served.end(held.token, "other", generation=1))
    assert (other.status, other.reason) == (S.ALREADY_EXISTS, "conflicting_outcome")
    (answer,) = (await served.receive("ann")).records
    assert (answer.record_id, answer.body) == (first.reply_id, "late")
    facts = await served.call("ann", "Explain", pb.ExplainRequest(record_id=asked.request_id))
    assert [fact.fact for fact in facts.facts] == [
        "admitted",
        "claimed",
        "accepted",
        "bound",
        "uncertain",
        "outcome_recorded",
        "published",
    ]
    assert {fact.generation for fact in facts.facts[1:]} == {1}


@pytest.mark.requirement("mailbox.cancelled-keys-stay-cancelled")
async def test_a_zombie_may_still_learn_what_became_of_its_calls(served: ServedMailbox) -> None:
    sent = await served.send("bob", "ann", key="k")
    epoch = await served.epoch()
    await opened(served, "bob", 2)
    call = pb.SendRequest(target="ann", body="text", idempotency_key="k")
    known = await served.call("bob", "SettleKey", pb.SettleKeyRequest(epoch=epoch, send=call))
    assert (known.settlement, known.send.record_id) == (pb.SETTLEMENT_WRITTEN, sent.record_id)
    call.idempotency_key = "never sent"
    gone = await served.call("bob", "SettleKey", pb.SettleKeyRequest(epoch=epoch, send=call))
    assert gone.settlement == pb.SETTLEMENT_CANCELLED
    assert (await served.call("bob", "GetRecord", pb.GetRecordRequest(record_id=sent.record_id))).record.body == "text"


@pytest.mark.requirement("mailbox.a-later-incarnation-fences-the-earlier")
async def test_a_dispatcher_that_was_started_again_fences_its_former_self(served: ServedMailbox) -> None:
    asked = await served.request("ann", "bob")
    held = (await served.claim("bob", incarnation=1)).claim
    await served.claim("cyd", incarnation=2)
    shown = (await served.call("ann", "GetRecord", pb.GetRecordRequest(record_id=asked.request_id))).record
    assert (shown.delivery_state, shown.possibly_seen) == (pb.DELIVERY_STATE_UNCERTAIN, True)
    assert (await refused(served.claim("bob", incarnation=1))).reason == "stale_incarnation"
    assert (await served.finish(held.token, pb.CLAIM_OUTCOME_FAILED)).reply_id.startswith("rep_")
