"""Leases over the wire: one holder at a time, told what it lost, never brought back."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fencepost.errors import FencepostError
from fencepost.home import SESSIONS, Home, read_credential
from fencepost.sessions.v1 import sessions_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2_grpc
from fencepost_kit import faults
from fencepost_sessions.domain.leases import Lease, LeaseKind
from fencepost_sessions.domain.limits import (
    HOLDER_BYTES_MAX,
    LEASE_TERM_MS_DEFAULT,
    LEASE_TERM_MS_MAX,
    LEASE_TERM_MS_MIN,
    LEASES_LISTED_MAX,
)
from fencepost_sessions.store.protocol import Writing
from fencepost_testing.processes import Services, dying_with_us, environment
from fencepost_testing.sessions_service import As, Running, key, refusal_of

NOBODY = str(uuid.UUID(int=1))
ROUNDS = 30
CONTENDER_S_MAX = 40.0
# Takes, counts and releases, until it has won ROUNDS times; a lease that it takes while another has one is a failure.
CONTENDER = """
import asyncio, json, sys, uuid
import grpc
from fencepost.home import SESSIONS, Home, read_credential
from fencepost.sessions.v1 import sessions_pb2 as pb, sessions_pb2_grpc
from fencepost_testing.sessions_service import As
from fencepost.errors import Refused

async def main(agent_id, rounds):
    home = Home.from_environment()
    async with grpc.aio.insecure_channel(f"unix:{home.socket(SESSIONS)}") as channel:
        ask = As(sessions_pb2_grpc.SessionsServiceStub(channel), read_credential(home.service_credential("providers")))
        await ask("Describe", pb.DescribeRequest())
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        won, held = [], 0
        while len(won) < rounds:
            try:
                lease = (await ask("AcquireLease", pb.AcquireLeaseRequest(
                    idempotency_key=uuid.uuid4().hex, agent_id=agent_id, kind=3, holder=f"process {sys.argv[1]}"
                ))).lease
            except Refused as refused:
                assert refused.reason == "lease_held", refused
                held += 1
                continue
            seen = (await ask("ListLeases", pb.ListLeasesRequest(agent_id=agent_id))).leases
            assert [one.acquisition_id for one in seen] == [lease.acquisition_id], seen
            assert (await ask("ReleaseLease", pb.ReleaseLeaseRequest(acquisition_id=lease.acquisition_id))).released
            won.append(lease.fence)
        print(json.dumps({"won": won, "held": held}))

asyncio.run(asyncio.wait_for(main(sys.argv[2], int(sys.argv[3])), 30))
"""


@pytest.fixture
def armed() -> Iterator[None]:
    yield
    faults.arm("")


async def acquire(running: Running, agent: pb.Agent, **fields: Any) -> pb.Lease:
    asked = {
        "idempotency_key": key(),
        "agent_id": agent.agent_id,
        "kind": pb.LEASE_KIND_LIFECYCLE,
        "holder": "the test",
        **fields,
    }
    return (await running.service("providers")("AcquireLease", pb.AcquireLeaseRequest(**asked))).lease  # type: ignore[no-any-return]


async def renew(running: Running, lease: pb.Lease, **fields: Any) -> pb.Lease:
    ask = pb.RenewLeaseRequest(acquisition_id=lease.acquisition_id, **fields)
    return (await running.service("providers")("RenewLease", ask)).lease  # type: ignore[no-any-return]


async def release(running: Running, lease: pb.Lease) -> bool:
    ask = pb.ReleaseLeaseRequest(acquisition_id=lease.acquisition_id)
    return (await running.service("providers")("ReleaseLease", ask)).released  # type: ignore[no-any-return]


async def leases(running: Running, agent_id: str = "") -> list[pb.Lease]:
    return list((await running.operator("ListLeases", pb.ListLeasesRequest(agent_id=agent_id))).leases)


@pytest.mark.requirement("sessions.one-lease-stands")
async def test_a_lease_says_who_why_since_when_and_until_when(running: Running) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent)
    now = running.clock.now_ms()
    assert (lease.agent_id, lease.conversation_id, lease.kind) == (agent.agent_id, "", pb.LEASE_KIND_LIFECYCLE)
    assert (lease.holder, lease.generation, lease.fence) == ("the test", 1, 1)
    assert (lease.term_ms, lease.acquired_at_ms, lease.expires_at_ms) == (
        LEASE_TERM_MS_DEFAULT,
        now,
        now + LEASE_TERM_MS_DEFAULT,
    )
    assert await leases(running) == await leases(running, agent.agent_id) == [lease]


@pytest.mark.requirement("sessions.one-lease-stands")
async def test_a_second_holder_is_told_who_holds_it_why_and_until_when(running: Running) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent, holder="terminal 3", kind=pb.LEASE_KIND_INTERACTIVE)
    await running.clock.advance(1)
    refused = await refusal_of(acquire(running, agent))
    assert refused.reason == "lease_held"
    assert refused.state == {
        "agent_id": agent.agent_id,
        "holder": "terminal 3",
        "kind": "interactive",
        "generation": "1",
        "expires_at_ms": str(lease.expires_at_ms),
        "expires_in_ms": str(LEASE_TERM_MS_DEFAULT - 1000),
    }
    assert await leases(running) == [lease]


@pytest.mark.requirement("sessions.one-lease-stands")
async def test_a_lease_keeps_others_out_to_its_last_millisecond_and_no_longer(running: Running) -> None:
    agent = await running.create("ann")
    await acquire(running, agent, term_ms=1000)
    await running.clock.advance(0.999)
    assert (await refusal_of(acquire(running, agent))).reason == "lease_held"
    await running.clock.advance(0.001)
    assert await leases(running) == []
    assert (await acquire(running, agent)).fence == 2


@pytest.mark.requirement("sessions.fences-only-rise")
async def test_a_fence_rises_over_releases_expiries_and_restarts(running: Running) -> None:
    agent = await running.create("ann")
    first = await acquire(running, agent)
    assert await release(running, first)
    second = await acquire(running, agent, term_ms=1000)
    await running.clock.advance(1)
    await running.restart()
    # It had not been told to anybody that the second has expired: the start gave it its term once more.
    await running.clock.advance(1)
    third = await acquire(running, agent)
    assert [one.fence for one in (first, second, third)] == [1, 2, 3]


@pytest.mark.requirement("sessions.lost-leases-stay-lost")
async def test_a_renewal_puts_the_expiry_off_by_the_term_and_may_change_the_kind(running: Running) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent, term_ms=1000)
    for _ in range(3):
        await running.clock.advance(0.999)
        kept = await renew(running, lease)
        assert (kept.expires_at_ms, kept.kind) == (running.clock.now_ms() + 1000, pb.LEASE_KIND_LIFECYCLE)
    kept = await renew(running, lease, kind=pb.LEASE_KIND_BACKGROUND)
    assert (kept.kind, kept.fence, kept.acquired_at_ms) == (pb.LEASE_KIND_BACKGROUND, 1, lease.acquired_at_ms)
    assert (await refusal_of(renew(running, lease, kind=9))).reason == "invalid_lease"
    assert await leases(running) == [kept]


@pytest.mark.requirement("sessions.lost-leases-stay-lost")
async def test_a_renewal_never_revives_what_has_expired_not_even_after_a_restart(running: Running) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent, term_ms=1000)
    await running.clock.advance(1)
    assert (await refusal_of(renew(running, lease))).reason == "lease_lost"
    await running.restart()
    refused = await refusal_of(renew(running, lease))
    assert (refused.reason, "has expired" in refused.message) == ("lease_lost", True)
    assert await leases(running) == []


@pytest.mark.requirement("sessions.lost-leases-stay-lost")
async def test_a_loss_is_durable_before_its_holder_hears_of_it(running: Running, armed: None) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent, term_ms=1000)
    await running.clock.advance(1)
    faults.arm("sessions.lease.lost=error@*")
    with pytest.raises(FencepostError):
        await renew(running, lease)
    faults.arm("")
    await running.restart()
    assert (await refusal_of(renew(running, lease))).reason == "lease_lost"


@pytest.mark.requirement("sessions.lost-leases-stay-lost")
async def test_an_old_acquisition_neither_renews_nor_releases_its_successor(running: Running) -> None:
    agent = await running.create("ann")
    old = await acquire(running, agent, term_ms=1000)
    await running.clock.advance(1)
    new = await acquire(running, agent)
    assert (await refusal_of(renew(running, old))).reason == "lease_lost"
    assert not await release(running, old)
    assert await leases(running) == [new]
    assert await release(running, new)
    assert not await release(running, new)
    assert (await refusal_of(renew(running, new))).reason == "lease_lost"
    unknown = pb.Lease(acquisition_id=NOBODY)
    assert not await release(running, unknown)
    assert (await refusal_of(renew(running, unknown))).reason == "lease_lost"


@pytest.mark.requirement("sessions.lease-time-runs-with-sessions")
async def test_a_start_gives_every_lease_its_whole_term_however_long_nobody_was_there(running: Running) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent, term_ms=1000)
    await running.clock.advance(0.999)
    await running.stop()
    await running.clock.advance(3600)
    await running.start()
    await running.clock.advance(0.999)
    assert (await refusal_of(acquire(running, agent))).reason == "lease_held"
    assert (await renew(running, lease)).expires_at_ms == running.clock.now_ms() + 1000
    await running.restart()
    await running.clock.advance(1)
    assert (await refusal_of(renew(running, lease))).reason == "lease_lost"


@pytest.mark.requirement("sessions.lease-time-runs-with-sessions")
@pytest.mark.parametrize("ms", [-86_400_000, 86_400_000])
async def test_a_wall_clock_that_is_set_ends_no_lease_and_prolongs_none(running: Running, ms: int) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent, term_ms=1000)
    running.clock.step_wall(ms)
    await running.clock.advance(0.999)
    (shown,) = await leases(running)
    assert shown.expires_at_ms == running.clock.now_ms() + 1
    await renew(running, lease)
    await running.clock.advance(1)
    assert await leases(running) == []


@pytest.mark.requirement("sessions.keys-have-one-answer")
async def test_the_same_call_again_answers_the_same_lease_as_long_as_it_stands(running: Running) -> None:
    agent = await running.create("ann")
    first = await acquire(running, agent, idempotency_key="k")
    ask = pb.AcquireLeaseRequest(
        idempotency_key="k", agent_id=agent.agent_id, kind=pb.LEASE_KIND_LIFECYCLE, holder="the test"
    )
    again = await running.service("providers")("AcquireLease", ask)
    assert (again.lease, again.duplicate) == (first, True)
    assert (await refusal_of(acquire(running, agent, idempotency_key="k", holder="x"))).reason == "idempotency_conflict"
    await release(running, first)
    assert (await refusal_of(acquire(running, agent, idempotency_key="k"))).reason == "lease_lost"
    assert await leases(running) == []


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"kind": 0}, "invalid_lease"),
        ({"kind": 4}, "invalid_lease"),
        ({"holder": ""}, "invalid_lease"),
        ({"holder": "x" * (HOLDER_BYTES_MAX + 1)}, "invalid_lease"),
        ({"holder": "a\nb"}, "invalid_lease"),
        ({"term_ms": LEASE_TERM_MS_MIN - 1}, "invalid_lease"),
        ({"term_ms": LEASE_TERM_MS_MAX + 1}, "invalid_lease"),
        ({"term_ms": -1}, "invalid_lease"),
        ({"expected_generation": 2}, "stale_generation"),
        ({"agent_id": NOBODY}, "not_found"),
        ({"agent_id": "ann"}, "invalid_argument"),
        ({"idempotency_key": ""}, "invalid_idempotency_key"),
    ],
)
async def test_what_is_asked_wrongly_takes_no_lease(running: Running, fields: dict[str, Any], reason: str) -> None:
    agent = await running.create("ann")
    assert (await refusal_of(acquire(running, agent, **fields))).reason == reason
    assert await leases(running) == []


async def test_the_shortest_and_the_longest_term_and_holder_are_taken(running: Running) -> None:
    agent = await running.create("ann")
    for fields in ({"term_ms": LEASE_TERM_MS_MIN}, {"term_ms": LEASE_TERM_MS_MAX}, {"holder": "x" * HOLDER_BYTES_MAX}):
        lease = await acquire(running, agent, expected_generation=1, **fields)
        assert lease.term_ms == fields.get("term_ms", LEASE_TERM_MS_DEFAULT)
        await release(running, lease)


@pytest.mark.requirement("sessions.one-lease-stands")
async def test_a_life_under_a_lease_is_begun_by_its_holder_only(running: Running) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent)
    refused = await refusal_of(running.begin(agent))
    assert (refused.reason, refused.state["holder"]) == ("lease_held", "the test")
    assert "agent stop" in refused.hint
    assert (await refusal_of(running.begin(agent, acquisition_id=NOBODY))).reason == "lease_lost"
    begun = await running.begin(agent, acquisition_id=lease.acquisition_id)
    assert begun.generation == 2
    assert [one.generation for one in await leases(running)] == [2]
    await running.clock.advance(LEASE_TERM_MS_DEFAULT / 1000)
    assert (await refusal_of(running.begin(agent, acquisition_id=lease.acquisition_id))).reason == "lease_lost"
    assert (await running.begin(agent)).generation == 3


@pytest.mark.requirement("sessions.keys-have-one-answer")
async def test_a_life_begun_under_a_lease_is_answered_again_also_once_the_lease_is_gone(running: Running) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent)
    first = await running.operator(
        "BeginGeneration",
        pb.BeginGenerationRequest(
            idempotency_key="k", agent_id=agent.agent_id, acquisition_id=lease.acquisition_id, expected_generation=1
        ),
    )
    await release(running, lease)
    again = pb.BeginGenerationRequest(
        idempotency_key="k", agent_id=agent.agent_id, acquisition_id=lease.acquisition_id, expected_generation=1
    )
    answer = await running.operator("BeginGeneration", again)
    assert (answer.generation, answer.duplicate) == (first.generation, True)


@pytest.mark.requirement("sessions.one-lease-stands")
async def test_a_life_without_a_lease_leaves_no_expired_lease_to_come_back_over_it(running: Running) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent, term_ms=1000)
    await running.clock.advance(1)
    await running.begin(agent)
    await running.restart()
    assert await leases(running) == []
    assert (await refusal_of(renew(running, lease))).reason == "lease_lost"


@pytest.mark.requirement("sessions.deleting-ends-the-lease")
async def test_deleting_an_agent_ends_its_lease_and_nothing_of_it_stays(running: Running) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent)
    ask = pb.DeleteAgentRequest(idempotency_key=key(), agent_id=agent.agent_id, confirm_name="ann")
    await running.operator("DeleteAgent", ask)
    assert await leases(running) == []
    refused = await refusal_of(renew(running, lease))
    assert (refused.reason, "being deleted" in refused.message) == ("lease_lost", True)
    assert (await refusal_of(acquire(running, agent))).reason == "agent_deleted"
    epoch = (await running.operator("Describe", pb.DescribeRequest())).epoch
    await running.service()("FinishDeletion", pb.FinishDeletionRequest(epoch=epoch, agent_id=agent.agent_id))
    assert (await refusal_of(renew(running, lease))).reason == "lease_lost"
    assert (await refusal_of(running.operator("ListLeases", pb.ListLeasesRequest(agent_id=agent.agent_id)))).reason == (
        "not_found"
    )


@dataclass(frozen=True)
class CoveringTheConversationOfAnother:
    """A lease of one agent over a conversation that another has: nothing of ours makes it, a restored home might."""

    agent_id: bytes
    lease: Lease

    def apply(self, tx: Writing, /) -> None:
        agent = tx.agent(self.agent_id)
        assert agent is not None
        tx.update_agent(agent, replace(agent, conversation_id=self.lease.conversation_id, revision=tx.next_revision()))
        tx.put_lease(None, self.lease)


@pytest.mark.requirement("sessions.one-lease-stands")
async def test_a_lease_over_an_agents_conversation_keeps_others_out_whoever_has_it(running: Running) -> None:
    project = await running.project()
    ann, bob = await running.create("ann", project), await running.create("bob", project)
    of_bob = Lease(
        agent_id=uuid.UUID(bob.agent_id).bytes,
        acquisition_id=uuid.UUID(NOBODY).bytes,
        conversation_id="talk",
        kind=LeaseKind.BACKGROUND,
        holder="another",
        generation=1,
        fence=1,
        term_ms=1000,
        expires_at_ms=running.parts.ports.lease_time.moment().running_ms + 1000,
        acquired_at_ms=running.clock.now_ms(),
    )
    await running.parts.store.commit(CoveringTheConversationOfAnother(uuid.UUID(ann.agent_id).bytes, of_bob))
    refused = await refusal_of(acquire(running, ann))
    assert (refused.reason, refused.state["agent_id"]) == ("lease_held", bob.agent_id)
    await running.clock.advance(1)
    assert (await acquire(running, ann)).conversation_id == "talk"
    await running.restart()
    assert [one.agent_id for one in await leases(running)] == [ann.agent_id]


async def test_leases_are_listed_oldest_first_and_no_more_than_the_most(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LEASES_LISTED_MAX == 500
    monkeypatch.setattr("fencepost_sessions.usecases.list_leases.LEASES_LISTED_MAX", 2)
    project = await running.project()
    taken = []
    for name in ("cid", "ann", "bob"):
        taken.append(await acquire(running, await running.create(name, project)))
        await running.clock.advance(0.001)
    assert await leases(running) == taken[:2]
    await release(running, taken[0])
    assert await leases(running) == taken[1:]


@pytest.mark.requirement("sessions.one-lease-stands")
async def test_of_many_that_ask_at_once_exactly_one_gets_the_lease(running: Running) -> None:
    agent = await running.create("ann")
    asked = [acquire(running, agent, holder=f"holder {number}") for number in range(16)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    won = [answer for answer in answers if isinstance(answer, pb.Lease)]
    assert len(won) == 1
    lost = [answer for answer in answers if not isinstance(answer, pb.Lease)]
    assert {getattr(answer, "reason", answer) for answer in lost} == {"lease_held"}
    assert await leases(running) == won


@pytest.mark.requirement("sessions.one-lease-stands")
async def test_two_processes_that_contend_for_a_lease_never_hold_it_together(home: Home) -> None:
    services = Services(home)
    try:
        await services.start(SESSIONS)
        agent_id = await created_in(services)
        contenders = [await contender(home, number, agent_id) for number in range(2)]
        for one in contenders:
            assert one.stdout is not None
            assert await asyncio.wait_for(one.stdout.readline(), CONTENDER_S_MAX) == b"ready\n"
        ended = await asyncio.gather(
            *(asyncio.wait_for(one.communicate(b"go\n"), CONTENDER_S_MAX) for one in contenders)
        )
        assert [one.returncode for one in contenders] == [0, 0], ended
        fences = sorted(fence for output, _ in ended for fence in json.loads(output)["won"])
        assert fences == list(range(1, 2 * ROUNDS + 1))
    finally:
        services.close()


async def contender(home: Home, number: int, agent_id: str) -> asyncio.subprocess.Process:
    program = dying_with_us(sys.executable, "-c", CONTENDER, str(number), agent_id, str(ROUNDS))
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*program, env=environment(home), stdin=pipe, stdout=pipe, stderr=pipe)


async def created_in(services: Services) -> str:
    """Create an agent in a home whose sessions is a process of its own."""
    async with services.channel(SESSIONS) as channel:
        operator = As(
            sessions_pb2_grpc.SessionsServiceStub(channel), read_credential(services.home.operator_credential)
        )
        place = pb.EnsureProjectRequest(idempotency_key=key(), kind=pb.PROJECT_KIND_FOLDER, location="/srv/p")
        project = (await operator("EnsureProject", place)).project
        ask = pb.CreateAgentRequest(idempotency_key=key(), project_id=project.project_id, name="ann")
        return (await operator("CreateAgent", ask)).agent.agent_id  # type: ignore[no-any-return]
