"""Following the directory: everything or what changed, heartbeats, confirmation, and nothing of another directory."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from fencepost.common.v1 import common_pb2
from fencepost.errors import Refused, error_of
from fencepost.home import read_credential
from fencepost.sessions.v1 import sessions_pb2 as pb
from fencepost_sessions.domain import limits
from fencepost_sessions.domain.agents import Agent
from fencepost_sessions.domain.limits import HEARTBEAT_MS, OLD_CREDENTIALS_KEPT_MAX, WATCHES_MAX
from fencepost_sessions.domain.names import agent_name
from fencepost_sessions.domain.projects import Project, ProjectKind
from fencepost_sessions.domain.roles import Role
from fencepost_sessions.store import sqlite
from fencepost_sessions.store.protocol import Writing
from fencepost_sessions.usecases import watch_directory as watching
from fencepost_testing.sessions_service import Running, key, refusal_of, until

WAIT_S_MAX = 5.0


@dataclass
class Mirror:
    """A follower: applies steps as the contract says, and keeps what it was sent."""

    epoch: str = ""
    revision: int = 0
    agents: dict[str, pb.Agent] = field(default_factory=dict)
    credentials: dict[str, pb.Credential] = field(default_factory=dict)
    snapshots: int = 0

    def apply(self, step: pb.WatchDirectoryResponse) -> None:
        if self.epoch and step.epoch != self.epoch:
            raise AssertionError("another directory: a follower stops here")
        self.epoch = step.epoch
        if step.snapshot_begin:
            self.snapshots += 1
            self.agents.clear()
            self.credentials.clear()
        self.agents |= {agent.agent_id: agent for agent in step.agents}
        self.credentials |= {one.credential_id: one for one in step.credentials}
        for credential_id in step.removed_credential_ids:
            self.credentials.pop(credential_id, None)
        for agent_id in step.removed_agent_ids:
            self.agents.pop(agent_id, None)
        if step.revision:
            assert step.revision >= self.revision or step.snapshot_end
            self.revision = step.revision

    def request(self, follower: str = "mailbox") -> pb.WatchDirectoryRequest:
        return pb.WatchDirectoryRequest(epoch=self.epoch, revision=self.revision, follower=follower)

    async def follow(self, watch: Any, until: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S_MAX):
            while not until():
                self.apply(await watch.read())


@asynccontextmanager
async def watch(running: Running, mirror: Mirror, **more: Any) -> Any:
    sleeping = running.clock.sleeping
    call = running.service().watch(mirror.request(**more))
    try:
        yield call
    finally:
        call.cancel()
        # The service has seen the end of this watch: its sleeper is not taken for another's.
        await until(lambda: running.clock.sleeping <= sleeping)


async def catch_up(running: Running, mirror: Mirror) -> None:
    target = (await running.operator("Describe", pb.DescribeRequest())).revision
    async with watch(running, mirror) as call:
        await mirror.follow(call, lambda: mirror.revision >= target)
    assert mirror.revision == target


async def assert_holds_everything(running: Running, mirror: Mirror) -> None:
    agents = (await running.operator("ListAgents", pb.ListAgentsRequest(page_size=500))).agents
    credentials = (await running.operator("ListCredentials", pb.ListCredentialsRequest(page_size=500))).credentials
    assert mirror.agents == {agent.agent_id: agent for agent in agents}
    shown = {}
    for credential_id, one in mirror.credentials.items():
        assert len(one.token_sha256) == 32
        shown[credential_id] = pb.Credential()
        shown[credential_id].CopyFrom(one)
        shown[credential_id].token_sha256 = b""
    assert shown == {one.credential_id: one for one in credentials}


async def until_parked(running: Running, sleepers: int = 1) -> None:
    """Wait until a watch waits for its heartbeat."""
    await until(lambda: running.clock.sleeping >= sleepers)


@pytest.mark.requirement("sessions.followers-miss-nothing")
async def test_a_follower_with_nothing_gets_everything_between_begin_and_end(running: Running) -> None:
    await running.create("ann")
    await running.begin(await running.create("bob"))
    mirror = Mirror()
    async with watch(running, mirror) as call:
        first = await call.read()
        assert (first.snapshot_begin, first.revision) == (True, 0)
        mirror.apply(first)
        steps = [first]
        while not steps[-1].snapshot_end:
            steps.append(await call.read())
            mirror.apply(steps[-1])
    assert [step.revision for step in steps[:-1]] == [0] * (len(steps) - 1)
    assert mirror.snapshots == 1
    await assert_holds_everything(running, mirror)


@pytest.mark.requirement("sessions.followers-miss-nothing")
async def test_a_follower_that_returns_gets_only_what_changed_since(running: Running) -> None:
    ann, bob = await running.create("ann"), await running.create("bob")
    mirror = Mirror()
    await catch_up(running, mirror)
    await running.begin(bob)
    rename = pb.UpdateAgentRequest(
        idempotency_key=key(), agent_id=bob.agent_id, name="Bob", role=common_pb2.ROLE_COORDINATOR
    )
    await running.operator("UpdateAgent", rename)
    removed = await running.credential_id(running.token_of(ann))
    await running.operator("RevokeCredential", pb.RevokeCredentialRequest(credential_id=removed))
    async with watch(running, mirror) as call:
        step = await call.read()
    assert not step.snapshot_begin
    assert [agent.name for agent in step.agents] == ["Bob"]
    assert [one.role for one in step.credentials] == [common_pb2.ROLE_COORDINATOR] * 2
    assert list(step.removed_credential_ids) == [removed]
    mirror.apply(step)
    assert mirror.snapshots == 1
    await assert_holds_everything(running, mirror)


async def test_a_follower_across_a_restart_of_sessions_goes_on_from_where_it_was(running: Running) -> None:
    await running.create("ann")
    mirror = Mirror()
    await catch_up(running, mirror)
    await running.restart()
    await running.create("bob")
    await catch_up(running, mirror)
    assert mirror.snapshots == 1
    await assert_holds_everything(running, mirror)


async def test_a_parked_follower_is_told_of_each_change_at_once(running: Running) -> None:
    mirror = Mirror()
    await catch_up(running, mirror)
    async with watch(running, mirror) as call:
        for name in ("ann", "bob"):
            await until_parked(running)
            agent = await running.create(name)
            await mirror.follow(call, lambda agent=agent: agent.agent_id in mirror.agents)  # type: ignore[misc]
            assert mirror.revision == agent.revision


async def test_a_change_between_two_looks_is_never_missed(running: Running) -> None:
    mirror = Mirror()
    project = await running.project()
    async with watch(running, mirror) as call:
        agents = await asyncio.gather(*(running.create(f"a{number}", project) for number in range(20)))
        newest = max(agent.revision for agent in agents)
        await mirror.follow(call, lambda: mirror.revision >= newest)
    assert set(mirror.agents) == {agent.agent_id for agent in agents}


@pytest.mark.requirement("sessions.followers-hear-a-heartbeat")
async def test_a_quiet_directory_beats_every_five_seconds(running: Running) -> None:
    mirror = Mirror()
    await catch_up(running, mirror)
    async with watch(running, mirror) as call:
        first = await call.read()
        assert (first.revision, list(first.agents)) == (mirror.revision, [])
        for _ in range(3):
            await until_parked(running)
            beat = asyncio.ensure_future(call.read())
            await running.clock.advance(HEARTBEAT_MS / 1000 - 0.001)
            assert not beat.done()
            await running.clock.advance(0.001)
            step = await asyncio.wait_for(beat, WAIT_S_MAX)
            assert (step.epoch, step.revision) == (mirror.epoch, mirror.revision)
            assert not step.agents
            assert not step.credentials
            assert not step.removed_credential_ids
            assert not step.snapshot_begin


@pytest.mark.requirement("sessions.followers-hear-a-heartbeat")
async def test_commits_that_change_nothing_for_a_follower_do_not_put_its_heartbeat_off(running: Running) -> None:
    project = await running.project()
    agent = await running.create("ann", project)
    mirror = Mirror()
    await catch_up(running, mirror)
    async with watch(running, mirror) as call:
        await call.read()
        beat = asyncio.ensure_future(call.read())
        steps = 10
        for _ in range(steps):
            await until_parked(running)
            assert not beat.done()
            # A key is remembered, so there is a commit; the agent stays as it is, so there is no revision.
            same = pb.UpdateAgentRequest(idempotency_key=key(), agent_id=agent.agent_id, name="ann")
            await running.operator("UpdateAgent", same)
            await running.clock.advance(HEARTBEAT_MS / 1000 / steps)
        assert (await asyncio.wait_for(beat, WAIT_S_MAX)).revision == mirror.revision


@pytest.mark.requirement("sessions.another-epoch-stops-the-follower")
async def test_a_follower_of_another_directory_is_told_the_epoch_and_nothing_else(running: Running) -> None:
    await running.create("ann")
    epoch = (await running.operator("Describe", pb.DescribeRequest())).epoch
    asked = pb.WatchDirectoryRequest(epoch=str(uuid.UUID(int=7)), revision=3, follower="mailbox")
    (step,) = await running.service()("WatchDirectory", asked)
    assert step.epoch == epoch
    assert not step.agents
    assert not step.credentials
    assert not step.snapshot_begin
    assert not step.snapshot_end


@pytest.mark.requirement("sessions.another-epoch-stops-the-follower")
async def test_a_follower_ahead_of_the_directory_is_refused(running: Running) -> None:
    described = await running.operator("Describe", pb.DescribeRequest())
    for revision in (described.revision + 1, -1):
        asked = pb.WatchDirectoryRequest(epoch=described.epoch, revision=revision, follower="mailbox")
        assert (await refusal_of(running.service()("WatchDirectory", asked))).reason == "invalid_revision"


async def test_a_malformed_epoch_and_a_foreign_name_are_refused(running: Running) -> None:
    for fields, reason in (
        ({"epoch": "x", "follower": "mailbox"}, "invalid_argument"),
        ({"follower": ""}, "permission_denied"),
        ({"follower": "providers"}, "permission_denied"),
        ({"follower": "f" * 10_000}, "permission_denied"),
    ):
        watching_as = running.service()("WatchDirectory", pb.WatchDirectoryRequest(**fields))
        assert (await refusal_of(watching_as)).reason == reason
        confirming = running.service()("ConfirmRevision", pb.ConfirmRevisionRequest(**fields))
        assert (await refusal_of(confirming)).reason == reason


@pytest.mark.requirement("sessions.followers-miss-nothing")
async def test_a_follower_older_than_the_removals_that_are_kept_gets_everything_again(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "REMOVALS_KEPT_MAX", 3)
    agent = await running.create("ann")
    mirror = Mirror()
    await catch_up(running, mirror)
    behind = Mirror(epoch=mirror.epoch, revision=mirror.revision, credentials=dict(mirror.credentials))
    for _ in range(OLD_CREDENTIALS_KEPT_MAX + 3):
        await running.begin(agent)
    await catch_up(running, mirror)
    assert mirror.snapshots == 1
    await running.begin(agent)
    await catch_up(running, behind)
    assert behind.snapshots == 1
    await assert_holds_everything(running, behind)
    await catch_up(running, mirror)
    assert mirror.snapshots == 1
    await assert_holds_everything(running, mirror)


@pytest.mark.requirement("sessions.followers-miss-nothing")
async def test_a_large_directory_comes_in_bounded_messages(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "CHANGES_PER_MESSAGE_MAX", 3)
    monkeypatch.setattr("fencepost_sessions.domain.directory.CHANGES_PER_MESSAGE_MAX", 3)
    assert limits.CHANGES_PER_MESSAGE_MAX == 500
    mirror, late = Mirror(), Mirror()
    await catch_up(running, late)
    project = await running.project()
    for number in range(8):
        await running.create(f"a{number}", project)
    for follower in (mirror, late):
        target = (await running.operator("Describe", pb.DescribeRequest())).revision
        async with watch(running, follower) as call:
            while follower.revision < target:
                step = await call.read()
                assert max(len(step.agents), len(step.credentials), len(step.removed_credential_ids)) <= 3
                follower.apply(step)
        await assert_holds_everything(running, follower)
    assert (mirror.snapshots, late.snapshots) == (1, 1)


@dataclass(frozen=True)
class FillingWithTheGreatestRows:
    """A project and agents with the longest names and paths there can be."""

    agents: int

    def apply(self, tx: Writing, /) -> None:
        path = "/" + "x" * (limits.PATH_BYTES_MAX - 1)
        project = uuid.UUID(int=1).bytes
        tx.insert_project(
            Project(project_id=project, number=1, kind=ProjectKind.GIT, location=path, name="p", created_at_ms=0)
        )
        for number in range(self.agents):
            name = agent_name(f"{number:04}".ljust(limits.NAME_CHARS_MAX, "\U0001f600"))
            tx.insert_agent(
                Agent(
                    agent_id=uuid.UUID(int=number + 2).bytes,
                    project_id=project,
                    name=name.text,
                    name_key=name.key,
                    role=Role.AGENT,
                    provider="p" * limits.PROVIDER_BYTES_MAX,
                    workspace=path,
                    generation=1,
                    created_at_ms=0,
                    revision=tx.next_revision(),
                )
            )


@pytest.mark.requirement("sessions.messages-fit-the-transport")
async def test_the_longest_names_and_paths_are_listed_and_followed_in_messages_that_can_be_sent(
    running: Running,
) -> None:
    late = Mirror()
    await catch_up(running, late)
    await running.parts.store.commit(FillingWithTheGreatestRows(limits.PAGE_ROWS_MAX))
    listed: list[pb.Agent] = []
    token = ""
    while token or not listed:
        request = pb.ListAgentsRequest(page_size=limits.PAGE_ROWS_MAX, page_token=token)
        page = await running.operator("ListAgents", request)
        listed += page.agents
        token = page.next_page_token
    assert len({agent.agent_id for agent in listed}) == len(listed) == limits.PAGE_ROWS_MAX
    for follower in (late, Mirror()):
        await catch_up(running, follower)
        assert follower.agents == {agent.agent_id: agent for agent in listed}


@pytest.mark.requirement("sessions.slow-followers-cost-nothing")
async def test_a_follower_that_does_not_read_loses_nothing_and_holds_nobody_up(running: Running) -> None:
    mirror = Mirror()
    async with watch(running, mirror) as call:
        project = await running.project()
        agent = await running.create("ann", project)
        for _ in range(50):
            await running.begin(agent)
        target = (await running.operator("Describe", pb.DescribeRequest())).revision
        steps = 0
        async with asyncio.timeout(WAIT_S_MAX):
            while mirror.revision < target:
                mirror.apply(await call.read())
                steps += 1
    await assert_holds_everything(running, mirror)
    assert mirror.agents[agent.agent_id].generation == 51


@pytest.mark.requirement("sessions.slow-followers-cost-nothing")
async def test_no_more_watches_are_open_than_the_most(running: Running) -> None:
    mirror = Mirror()
    await catch_up(running, mirror)
    calls = [running.service().watch(mirror.request()) for _ in range(WATCHES_MAX)]
    try:
        await until_parked(running, WATCHES_MAX)
        refused = await refusal_of(running.service()("WatchDirectory", mirror.request()))
        assert (refused.reason, refused.may_resend) == ("overloaded", True)
    finally:
        for call in calls:
            call.cancel()
    await until(lambda: not running.clock.sleeping)
    await catch_up(running, Mirror())


async def test_a_stopping_service_ends_watches_as_draining(running: Running) -> None:
    mirror = Mirror()
    await catch_up(running, mirror)
    call = running.service().watch(mirror.request())
    await until_parked(running)
    await call.read()
    await running.parts.drain()
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await asyncio.wait_for(call.read(), WAIT_S_MAX)
    error = error_of(ended.value)
    assert isinstance(error, Refused)
    assert (error.reason, error.may_resend) == ("draining", True)


@pytest.mark.requirement("sessions.revocation-is-the-rows-absence")
async def test_a_watch_ends_once_its_own_credential_is_gone(running: Running) -> None:
    mirror = Mirror()
    await catch_up(running, mirror)
    call = running.service().watch(mirror.request())
    await until_parked(running)
    await call.read()
    token = read_credential(running.home.service_credential("mailbox"))
    revoking = pb.RevokeCredentialRequest(credential_id=await running.credential_id(token))
    await running.operator("RevokeCredential", revoking)
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await asyncio.wait_for(call.read(), WAIT_S_MAX)
    assert error_of(ended.value).reason == "unauthenticated"
    await catch_up(running, mirror)
    await assert_holds_everything(running, mirror)


# --- confirmation ----------------------------------------------------------------------------------------------------


async def confirm(running: Running, epoch: str, revision: int, follower: str = "mailbox") -> None:
    request = pb.ConfirmRevisionRequest(follower=follower, epoch=epoch, revision=revision)
    await running.service(follower)("ConfirmRevision", request)


@pytest.mark.requirement("sessions.enforced-means-confirmed")
async def test_a_removal_is_enforced_once_mailbox_has_confirmed_its_revision(running: Running) -> None:
    agent = await running.create("ann")
    epoch = (await running.operator("Describe", pb.DescribeRequest())).epoch
    revoking = pb.RevokeCredentialRequest(credential_id=await running.credential_id(running.token_of(agent)))
    revoked = await running.operator("RevokeCredential", revoking)
    assert not revoked.enforced
    await confirm(running, epoch, revoked.revision, follower="providers")
    await confirm(running, epoch, revoked.revision - 1)
    assert not (await running.operator("RevokeCredential", revoking)).enforced
    await confirm(running, epoch, revoked.revision)
    assert (await running.operator("RevokeCredential", revoking)).enforced
    await confirm(running, epoch, revoked.revision - 1)
    assert (await running.operator("RevokeCredential", revoking)).enforced


@pytest.mark.requirement("sessions.enforced-means-confirmed")
async def test_a_restart_or_a_follower_that_lost_its_place_takes_enforcement_back_until_confirmed_anew(
    running: Running,
) -> None:
    agent = await running.create("ann")
    mirror = Mirror()
    revoking = pb.RevokeCredentialRequest(credential_id=await running.credential_id(running.token_of(agent)))
    revoked = await running.operator("RevokeCredential", revoking)
    await catch_up(running, mirror)
    await confirm(running, mirror.epoch, revoked.revision)
    assert (await running.operator("RevokeCredential", revoking)).enforced
    await running.restart()
    assert not (await running.operator("RevokeCredential", revoking)).enforced
    await confirm(running, mirror.epoch, revoked.revision)
    await catch_up(running, mirror)
    assert (await running.operator("RevokeCredential", revoking)).enforced
    await catch_up(running, Mirror())
    assert not (await running.operator("RevokeCredential", revoking)).enforced


@pytest.mark.requirement("sessions.another-epoch-stops-the-follower")
async def test_a_confirmation_of_another_directory_or_of_the_future_counts_for_nothing(running: Running) -> None:
    described = await running.operator("Describe", pb.DescribeRequest())
    for epoch, revision, reason in (
        (str(uuid.UUID(int=7)), 1, "epoch_mismatch"),
        ("", 1, "epoch_mismatch"),
        (described.epoch, described.revision + 1, "invalid_revision"),
        (described.epoch, -1, "invalid_revision"),
    ):
        assert (await refusal_of(confirm(running, epoch, revision))).reason == reason
