"""Deleting an agent at sessions: its authority ends at once, its name later, its UUID never comes back."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost import holds
from fencepost.errors import FencepostError, Refused
from fencepost.sessions.v1 import sessions_pb2 as pb
from fencepost_kit import faults
from fencepost_sessions.domain.limits import QUARANTINE_MS
from fencepost_testing.sessions_service import Running, key, refusal_of

DESCRIBE = pb.DescribeRequest()


@pytest.fixture
def armed() -> Iterator[None]:
    yield
    faults.arm("")


async def delete(running: Running, agent: pb.Agent, **fields: Any) -> pb.DeleteAgentResponse:
    asked = {"idempotency_key": key(), "agent_id": agent.agent_id, "confirm_name": agent.name, **fields}
    return await running.operator("DeleteAgent", pb.DeleteAgentRequest(**asked))  # type: ignore[no-any-return]


async def finish(running: Running, agent: pb.Agent, **fields: Any) -> int:
    epoch = (await running.operator("Describe", DESCRIBE)).epoch
    ask = pb.FinishDeletionRequest(**{"epoch": epoch, "agent_id": agent.agent_id, **fields})
    return int((await running.service()("FinishDeletion", ask)).revision)


async def show(running: Running, target: str) -> pb.Agent:
    return (await running.operator("GetAgent", pb.GetAgentRequest(target=target))).agent  # type: ignore[no-any-return]


async def revision_of(running: Running) -> int:
    return int((await running.operator("Describe", DESCRIBE)).revision)


@pytest.mark.requirement("sessions.deleting-takes-authority-at-once")
async def test_a_deleting_agent_has_no_credential_and_no_file_and_is_shown_as_deleting(running: Running) -> None:
    agent = await running.create("ann")
    await running.begin(agent)
    token, before = running.token_of(agent), await revision_of(running)
    hold = holds.take(str(running.home.agent_folder(agent.agent_id)), version="1")
    assert isinstance(hold, holds.Hold)
    answer = await delete(running, agent)
    assert (answer.duplicate, answer.finished, answer.agent.state) == (False, False, pb.AGENT_STATE_DELETING)
    assert answer.agent.revision == before + 1 == await revision_of(running)
    credentials = pb.ListCredentialsRequest(agent_id=agent.agent_id)
    assert not (await running.operator("ListCredentials", credentials)).credentials
    assert (await refusal_of(running.with_token(token)("GetCaller", pb.GetCallerRequest()))).reason == "unauthenticated"
    assert not running.home.agent_folder(agent.agent_id).exists()
    hold.let_go()
    assert (await show(running, "ann")).state == pb.AGENT_STATE_DELETING
    assert [one.state for one in (await running.operator("ListAgents", pb.ListAgentsRequest())).agents] == [
        pb.AGENT_STATE_DELETING
    ]


@pytest.mark.requirement("sessions.deleting-takes-authority-at-once")
async def test_a_deleting_agent_is_not_changed_and_gets_no_life(running: Running) -> None:
    agent = await running.create("ann")
    await delete(running, agent)
    before = await revision_of(running)
    change = pb.UpdateAgentRequest(idempotency_key=key(), agent_id=agent.agent_id, name="other")
    assert (await refusal_of(running.operator("UpdateAgent", change))).reason == "agent_deleted"
    assert (await refusal_of(running.begin(agent))).reason == "agent_deleted"
    await finish(running, agent)
    assert (await refusal_of(running.operator("UpdateAgent", change))).reason == "agent_deleted"
    assert (await refusal_of(running.begin(agent))).reason == "agent_deleted"
    assert await revision_of(running) == before + 1
    assert not running.home.agent_folder(agent.agent_id).exists()


@pytest.mark.requirement("sessions.deleting-asks-for-the-name")
@pytest.mark.parametrize("typed", ["", "Ann", "ann ", "bob"])
async def test_a_name_that_is_not_typed_as_it_is_shown_deletes_nothing(running: Running, typed: str) -> None:
    agent = await running.create("ann")
    before = await revision_of(running)
    assert (await refusal_of(delete(running, agent, confirm_name=typed))).reason == "confirmation_mismatch"
    assert await revision_of(running) == before
    await running.agent(agent)("GetCaller", pb.GetCallerRequest())


async def test_what_is_no_agent_cannot_be_deleted(running: Running) -> None:
    agent = await running.create("ann")
    assert (await refusal_of(delete(running, agent, agent_id=str(uuid.UUID(int=1))))).reason == "not_found"
    assert (await refusal_of(delete(running, agent, agent_id="ann"))).reason == "invalid_argument"
    assert (await refusal_of(delete(running, agent, idempotency_key=""))).reason == "invalid_idempotency_key"


@pytest.mark.requirement("sessions.deletions-can-be-asked-about")
async def test_the_same_call_again_tells_how_far_it_has_come_and_another_call_joins(running: Running) -> None:
    agent = await running.create("ann")
    first = await delete(running, agent, idempotency_key="k")
    again = await delete(running, agent, idempotency_key="k")
    assert (again.agent, again.duplicate, again.finished) == (first.agent, True, False)
    joined = await delete(running, agent)
    assert (joined.agent, joined.duplicate, joined.finished) == (first.agent, True, False)
    assert (await refusal_of(delete(running, agent, idempotency_key="k", confirm_name="x"))).reason == (
        "idempotency_conflict"
    )
    await finish(running, agent)
    assert (await delete(running, agent, idempotency_key="k")).finished
    assert (await refusal_of(delete(running, agent))).reason == "agent_deleted"


@pytest.mark.requirement("sessions.deleted-names-rest")
async def test_a_name_is_taken_while_deleting_then_rests_and_is_free(running: Running) -> None:
    agent = await running.create("ann")
    await delete(running, agent)
    assert (await refusal_of(running.create("Ann"))).reason == "name_taken"
    await finish(running, agent)
    await running.clock.advance((QUARANTINE_MS - 1) / 1000)
    assert (await refusal_of(running.create("Ann"))).reason == "name_quarantined"
    await running.clock.advance(0.001)
    another = await running.create("Ann")
    assert another.agent_id != agent.agent_id
    assert (await refusal_of(show(running, agent.agent_id))).reason == "not_found"


@pytest.mark.requirement("sessions.deletions-end-once")
async def test_ending_a_deletion_again_answers_the_same_revision(running: Running) -> None:
    agent = await running.create("ann")
    await delete(running, agent)
    assert await finish(running, agent) == await finish(running, agent) == await revision_of(running)
    await running.restart()
    assert await finish(running, agent) == await revision_of(running)


@pytest.mark.requirement("sessions.deletions-end-once")
async def test_only_the_service_of_mail_ends_a_deletion_that_was_asked_for_here(running: Running) -> None:
    agent = await running.create("ann")
    assert (await refusal_of(finish(running, agent))).reason == "invalid_state"
    await delete(running, agent)
    before = await revision_of(running)
    epoch = (await running.operator("Describe", DESCRIBE)).epoch
    ask = pb.FinishDeletionRequest(epoch=epoch, agent_id=agent.agent_id)
    assert (await refusal_of(running.service("mcp_edge")("FinishDeletion", ask))).reason == "permission_denied"
    assert (await refusal_of(finish(running, agent, epoch=str(uuid.UUID(int=1))))).reason == "epoch_mismatch"
    assert (await refusal_of(finish(running, agent, epoch=""))).reason == "epoch_mismatch"
    assert (await refusal_of(finish(running, agent, agent_id=str(uuid.UUID(int=1))))).reason == "not_found"
    assert await revision_of(running) == before


@pytest.mark.requirement("sessions.followers-hear-of-deletions")
async def test_followers_hear_that_an_agent_is_deleting_and_that_it_is_gone(running: Running) -> None:
    agent, other = await running.create("ann"), await running.create("bob")
    epoch, held = (await running.operator("Describe", DESCRIBE)).epoch, await revision_of(running)
    removed = await running.credential_id(running.token_of(agent))
    await delete(running, agent)
    call = running.service().watch(pb.WatchDirectoryRequest(epoch=epoch, revision=held, follower="mailbox"))
    step = await call.read()
    assert [(one.agent_id, one.state) for one in step.agents] == [(agent.agent_id, pb.AGENT_STATE_DELETING)]
    assert (list(step.removed_credential_ids), list(step.removed_agent_ids)) == ([removed], [])
    revision = await finish(running, agent)
    step = await call.read()
    assert (list(step.agents), list(step.removed_agent_ids), step.revision) == ([], [agent.agent_id], revision)
    call.cancel()
    call = running.service().watch(pb.WatchDirectoryRequest(follower="mailbox"))
    named: list[str] = []
    while not (step := await call.read()).snapshot_end:
        named += [one.agent_id for one in step.agents]
        assert not step.removed_agent_ids
    assert named == [other.agent_id]
    call.cancel()


@pytest.mark.requirement("sessions.deletions-survive-crashes")
@pytest.mark.parametrize("point", ["sessions.commit.before", "sessions.deletion.begun"])
async def test_a_deletion_that_fails_anywhere_is_made_good_by_the_same_call(
    running: Running, armed: None, point: str
) -> None:
    agent = await running.create("ann")
    faults.arm(f"{point}=error@*")
    with pytest.raises(FencepostError):
        await delete(running, agent, idempotency_key="k")
    faults.arm("")
    written = (await show(running, "ann")).state == pb.AGENT_STATE_DELETING
    assert written is (point == "sessions.deletion.begun")
    await running.restart()
    answer = await delete(running, agent, idempotency_key="k")
    assert (answer.duplicate, answer.agent.state) == (written, pb.AGENT_STATE_DELETING)
    assert not running.home.agent_folder(agent.agent_id).exists()


@pytest.mark.requirement("sessions.deletions-survive-crashes")
@pytest.mark.parametrize("point", ["sessions.commit.before", "sessions.deletion.finished"])
async def test_an_end_that_fails_anywhere_is_made_good_by_the_same_call(
    running: Running, armed: None, point: str
) -> None:
    agent = await running.create("ann")
    await delete(running, agent)
    faults.arm(f"{point}=error@*")
    with pytest.raises(FencepostError):
        await finish(running, agent)
    faults.arm("")
    await running.restart()
    assert await finish(running, agent) == await revision_of(running)
    with pytest.raises(Refused):
        await show(running, "ann")
