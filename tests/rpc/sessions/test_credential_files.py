"""Tokens reach their files whole: wherever it fails or dies, the old token works or the new one does."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fencepost.errors import FencepostError, Uncertain
from fencepost.home import SESSIONS, Home, read_credential
from fencepost.sessions.v1 import sessions_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2_grpc
from fencepost_kit import faults
from fencepost_kit.identity import fingerprint, mint_token
from fencepost_sessions.domain.credentials import HOME_CREDENTIALS, SERVICE_LABELS
from fencepost_testing.processes import Services
from fencepost_testing.sessions_service import As, Running, key, refusal_of, until

WAIT_S_MAX = 5.0
DESCRIBE = pb.DescribeRequest()
HARMS = ["missing", "malformed", "open to others", "a link", "of another directory", "of an agent"]


@pytest.fixture
def armed() -> Iterator[None]:
    yield
    faults.arm("")


def beside(file: Path) -> Path:
    return file.with_name(file.name + ".next")


def put(file: Path, text: str, mode: int = 0o600) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    file.write_text(text)
    file.chmod(mode)


# --- the home's own credentials --------------------------------------------------------------------------------------


@pytest.mark.requirement("sessions.home-credentials-always-stand")
async def test_the_first_start_makes_the_credentials_of_operator_and_services(running: Running) -> None:
    files = [running.home.operator_credential, *(running.home.service_credential(name) for name in SERVICE_LABELS)]
    assert len({read_credential(file) for file in files}) == len(HOME_CREDENTIALS) == 4
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert not beside(file).exists()
    assert stat.S_IMODE(running.home.services.stat().st_mode) == 0o700


@pytest.mark.requirement("sessions.home-credentials-always-stand")
@pytest.mark.parametrize("name", ["operator", "mailbox"])
@pytest.mark.parametrize(
    "harm", ["missing", "malformed", "open to others", "a link", "of another directory", "of an agent"]
)
async def test_a_credential_of_the_home_that_cannot_be_used_is_replaced_at_the_next_start(
    running: Running, name: str, harm: str
) -> None:
    file = running.home.operator_credential if name == "operator" else running.home.service_credential(name)
    old = read_credential(file)
    agent = await running.create("ann")
    if harm == "missing":
        file.unlink()
    elif harm == "malformed":
        put(file, "fp_\n")
    elif harm == "open to others":
        file.chmod(0o644)
    elif harm == "a link":
        file.rename(file.with_suffix(".kept"))
        file.symlink_to(file.with_suffix(".kept"))
    elif harm == "of another directory":
        put(file, mint_token() + "\n")
    else:
        put(file, running.token_of(agent) + "\n")
    await running.restart()
    new = read_credential(file)
    assert new not in {old, running.token_of(agent)}
    assert (await running.with_token(new)("GetCaller", pb.GetCallerRequest())).credential.label == name
    assert (await refusal_of(running.with_token(old)("Describe", DESCRIBE))).reason == "unauthenticated"
    listed = (await running.operator("ListCredentials", pb.ListCredentialsRequest())).credentials
    assert [one.label for one in listed].count(name) == 1


async def test_a_good_credential_of_the_home_is_never_replaced(running: Running) -> None:
    before = (
        read_credential(running.home.operator_credential),
        (await running.operator("Describe", DESCRIBE)),
    )
    await running.restart()
    await running.restart()
    after = (
        read_credential(running.home.operator_credential),
        (await running.operator("Describe", DESCRIBE)),
    )
    assert after == before


# --- failures of the disk while it runs ------------------------------------------------------------------------------


@pytest.mark.requirement("sessions.a-crash-leaves-a-working-token")
@pytest.mark.parametrize("point", ["sessions.credential.committed", "sessions.credential.placed"])
async def test_a_call_that_failed_after_its_commit_is_finished_by_the_same_call(
    running: Running, point: str, armed: None
) -> None:
    project = await running.project()
    request = pb.CreateAgentRequest(idempotency_key="k", project_id=project.project_id, name="ann")
    faults.arm(f"{point}=error")
    with pytest.raises(Uncertain):
        await running.operator("CreateAgent", request)
    again = await running.operator("CreateAgent", request)
    assert again.duplicate
    assert (await running.agent(again.agent)("GetCaller", pb.GetCallerRequest())).agent == again.agent
    assert not beside(running.home.agent_credential(again.agent.agent_id)).exists()
    assert len(list(running.home.agents.iterdir())) == 1


@pytest.mark.requirement("sessions.a-crash-leaves-a-working-token")
async def test_a_life_that_failed_after_its_commit_is_finished_before_the_next_begins(
    running: Running, armed: None
) -> None:
    agent = await running.create("ann")
    faults.arm("sessions.credential.committed=error")
    with pytest.raises(Uncertain):
        await running.begin(agent)
    assert (await running.begin(agent, expected_generation=2)).generation == 3
    assert (await running.agent(agent)("GetCaller", pb.GetCallerRequest())).credential.generation == 3


@pytest.mark.requirement("sessions.a-crash-leaves-a-working-token")
async def test_a_change_that_was_not_committed_leaves_the_old_token_and_no_other(running: Running, armed: None) -> None:
    agent = await running.create("ann")
    old = running.token_of(agent)
    faults.arm("sessions.commit.before=error@*")
    refused = await refusal_of(running.begin(agent))
    assert (refused.reason, refused.may_resend) == ("storage_error", True)
    faults.arm("")
    file = running.home.agent_credential(agent.agent_id)
    assert read_credential(file) == old
    assert [path.name for path in file.parent.iterdir()] == ["credential"]
    assert (await running.begin(agent)).generation == 2


async def test_a_folder_that_cannot_be_written_fails_the_call_and_grants_nothing(running: Running) -> None:
    project = await running.project()
    before = await running.operator("Describe", DESCRIBE)
    running.home.agents.write_text("in the way")
    with pytest.raises(FencepostError):
        await running.create("ann", project)
    assert await running.operator("Describe", DESCRIBE) == before
    running.home.agents.unlink()
    assert (await running.create("ann", project)).name == "ann"


async def test_a_folder_of_agents_that_is_open_to_others_is_closed(running: Running) -> None:
    await running.create("ann")
    running.home.agents.chmod(0o755)
    await running.create("bob")
    for folder in running.home.agents.iterdir():
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.requirement("sessions.begun-grants-are-carried-out")
async def test_a_caller_that_leaves_does_not_stop_a_life_that_was_begun(running: Running, armed: None) -> None:
    agent = await running.create("ann")
    faults.arm("sessions.commit.before=delay_ms:100")
    call = asyncio.ensure_future(running.begin(agent))
    await until(beside(running.home.agent_credential(agent.agent_id)).exists)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    async with asyncio.timeout(WAIT_S_MAX):
        await running.parts.ports.tokens.join()
    answer = await running.agent(agent)("GetCaller", pb.GetCallerRequest())
    assert answer.credential.generation == answer.agent.generation
    assert not beside(running.home.agent_credential(agent.agent_id)).exists()


# --- what a crash leaves ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("sessions.a-crash-leaves-a-working-token")
@pytest.mark.parametrize("left", ["a token that nobody knows", "half a token", "nothing at all", "a folder's link"])
async def test_what_lies_beside_a_place_without_a_row_is_removed_at_the_start(running: Running, left: str) -> None:
    agent = await running.create("ann")
    old, file = running.token_of(agent), running.home.agent_credential(agent.agent_id)
    if left == "a folder's link":
        beside(file).symlink_to(file.parent)
    else:
        put(beside(file), {"a token that nobody knows": mint_token(), "half a token": old[:20]}.get(left, ""))
    stranger = running.home.agent_credential("0198c0de-0000-7000-8000-000000000001")
    put(beside(stranger), mint_token() + "\n")
    (running.home.agents / "not an agent").mkdir()
    await running.restart()
    assert [path.name for path in file.parent.iterdir()] == ["credential"]
    assert running.token_of(agent) == old
    assert not stranger.parent.exists()
    assert (running.home.agents / "not an agent").exists()


async def test_one_agents_broken_folder_keeps_nobody_else_from_working(running: Running) -> None:
    project = await running.project()
    broken, whole = await running.create("ann", project), await running.create("bob", project)
    in_the_way = beside(running.home.agent_credential(broken.agent_id))
    in_the_way.mkdir()
    put(beside(running.home.agent_credential(whole.agent_id)), mint_token() + "\n")
    await running.restart()
    assert not beside(running.home.agent_credential(whole.agent_id)).exists()
    for agent in (broken, whole):
        assert (await running.agent(agent)("GetCaller", pb.GetCallerRequest())).agent == agent
    with pytest.raises(FencepostError):
        await running.begin(broken)
    assert (await running.begin(whole)).generation == 2
    in_the_way.rmdir()
    assert (await running.begin(broken)).generation == 2


async def test_a_removed_credential_beside_its_place_is_not_put_into_it(running: Running) -> None:
    agent = await running.create("ann")
    old = running.token_of(agent)
    await running.begin(agent)
    revoking = pb.RevokeCredentialRequest(credential_id=await running.credential_id(old))
    await running.operator("RevokeCredential", revoking)
    put(beside(running.home.agent_credential(agent.agent_id)), old + "\n")
    await running.restart()
    assert (await running.agent(agent)("GetCaller", pb.GetCallerRequest())).credential.generation == 2


# --- SIGKILL at each point, in a process of its own ------------------------------------------------------------------


@pytest.fixture
async def services(home: Home) -> AsyncIterator[Services]:
    running = Services(home)
    try:
        yield running
    finally:
        running.close()


def operator_of(services: Services, channel: object) -> As:
    token = read_credential(services.home.operator_credential)
    return As(sessions_pb2_grpc.SessionsServiceStub(channel), token)  # type: ignore[arg-type]


POINTS = (
    "sessions.credential.offered",
    "sessions.commit.before",
    "sessions.commit.after",
    "sessions.credential.committed",
    "sessions.credential.placed",
)
COMMITTED = POINTS[2:]
# How often a point is passed before the second life of the first agent: the repair of quarantines, four credentials of
# the home, a project and an agent are committed; five tokens are handed over.
COMMITS_BEFORE, TOKENS_BEFORE = 7, 5


def on_hit(point: str, *, commits: int, tokens: int) -> dict[str, str]:
    turn = tokens if point.startswith("sessions.credential.") else commits
    return {"FENCEPOST_FAULTS": f"{point}=kill@{turn}"}


async def killed_in_a_beginning(services: Services, point: str) -> pb.Agent:
    """Kill sessions at `point` of a BeginGeneration and start it again; the agent was at generation 1 before."""
    faulty = on_hit(point, commits=COMMITS_BEFORE + 1, tokens=TOKENS_BEFORE + 1)
    await services.start(SESSIONS, env=faulty)
    async with services.channel(SESSIONS) as channel:
        operator = operator_of(services, channel)
        ensure = pb.EnsureProjectRequest(idempotency_key=key(), kind=pb.PROJECT_KIND_FOLDER, location="/w")
        project = (await operator("EnsureProject", ensure)).project
        create = pb.CreateAgentRequest(idempotency_key=key(), project_id=project.project_id, name="ann")
        agent: pb.Agent = (await operator("CreateAgent", create)).agent
        begin = pb.BeginGenerationRequest(idempotency_key="k", agent_id=agent.agent_id, expected_generation=1)
        with pytest.raises(Uncertain):
            await operator("BeginGeneration", begin)
    assert services.join(SESSIONS) == -signal.SIGKILL
    await services.start(SESSIONS)
    return agent


@pytest.mark.requirement("sessions.a-crash-leaves-a-working-token")
@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_at_any_point_leaves_one_working_token_and_the_same_call_settles_it(
    services: Services, point: str
) -> None:
    agent = await killed_in_a_beginning(services, point)
    file = services.home.agent_credential(agent.agent_id)
    assert [path.name for path in file.parent.iterdir()] == ["credential"]
    async with services.channel(SESSIONS) as channel:
        stub = sessions_pb2_grpc.SessionsServiceStub(channel)
        held = await As(stub, read_credential(file))("GetCaller", pb.GetCallerRequest())
        assert held.credential.generation == held.agent.generation == (2 if point in COMMITTED else 1)
        begin = pb.BeginGenerationRequest(idempotency_key="k", agent_id=agent.agent_id, expected_generation=1)
        settled = await operator_of(services, channel)("BeginGeneration", begin)
        assert (settled.generation, settled.duplicate) == (2, point in COMMITTED)
        after = await As(stub, read_credential(file))("GetCaller", pb.GetCallerRequest())
        assert after.credential.generation == 2
    assert services.stop(SESSIONS) == 0


@pytest.mark.requirement("sessions.a-crash-leaves-a-working-token")
@pytest.mark.parametrize(
    "point", ["sessions.credential.offered", "sessions.commit.after", "sessions.credential.placed"]
)
async def test_a_kill_during_the_first_start_leaves_a_home_that_starts(services: Services, point: str) -> None:
    services.spawn(SESSIONS, env=on_hit(point, commits=3, tokens=2))
    assert services.join(SESSIONS) == -signal.SIGKILL
    await services.start(SESSIONS)
    files = [services.home.operator_credential, *(services.home.service_credential(name) for name in SERVICE_LABELS)]
    assert all(not beside(file).exists() for file in files)
    async with services.channel(SESSIONS) as channel:
        stub = sessions_pb2_grpc.SessionsServiceStub(channel)
        for file in files:
            assert await As(stub, read_credential(file))("GetCaller", pb.GetCallerRequest())
        listed = await operator_of(services, channel)("ListCredentials", pb.ListCredentialsRequest())
    assert sorted(one.label for one in listed.credentials) == sorted(home.label for home in HOME_CREDENTIALS)


@pytest.mark.requirement("sessions.no-token-is-kept-or-told")
async def test_no_token_is_in_the_database_the_log_or_an_error(services: Services) -> None:
    agent = await killed_in_a_beginning(services, "sessions.credential.committed")
    async with services.channel(SESSIONS) as channel:
        operator = operator_of(services, channel)
        token = read_credential(services.home.agent_credential(agent.agent_id))
        for wrong in (token, mint_token()):
            request = pb.GetAgentRequest(target=wrong)
            refused = await refusal_of(operator("GetAgent", request))
            assert wrong not in f"{refused} {refused.hint} {dict(refused.state)}"
    services.stop(SESSIONS)
    secrets = [read_credential(path) for path in services.home.path.rglob("*credential")]
    assert len(secrets) == len(HOME_CREDENTIALS) + 1
    written = [
        *services.home.logs.iterdir(),
        *services.home.folder(SESSIONS).iterdir(),
        *services.home.run.glob("*.addr"),
    ]
    for path in written:
        content = path.read_bytes()
        assert not [secret for secret in secrets if secret[3:].encode() in content], path
    connection = sqlite3.connect(services.home.database(SESSIONS))
    try:
        rows = {bytes(row[0]) for row in connection.execute("SELECT token_sha256 FROM credential")}
    finally:
        connection.close()
    assert {fingerprint(secret) for secret in secrets} <= rows


@pytest.mark.requirement("sessions.an-unknown-outcome-ends-the-process")
async def test_after_a_commit_whose_outcome_is_unknown_the_process_ends_and_a_new_one_settles_it(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await running.create("ann")

    def broken(_self: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr("fencepost_kit.sqlite.SqliteWriter.commit", broken)
    with pytest.raises(Uncertain):
        await running.begin(agent)
    monkeypatch.undo()
    assert len(running.fatal) == 1
    assert beside(running.home.agent_credential(agent.agent_id)).exists()
    refused = await refusal_of(running.begin(agent))
    assert refused.reason == "storage_error"
    running.fatal.clear()
    await running.restart()
    assert not beside(running.home.agent_credential(agent.agent_id)).exists()
    assert (await running.agent(agent)("GetCaller", pb.GetCallerRequest())).credential.generation == 1
    assert (await running.begin(agent)).generation == 2
