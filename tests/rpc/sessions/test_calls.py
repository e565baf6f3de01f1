"""Every RPC of sessions through a real socket: what it answers, what it refuses, and that a refusal changes nothing."""

from __future__ import annotations

import asyncio
import stat
import uuid
from pathlib import Path
from typing import Any

import pytest

from fencepost import __version__
from fencepost.common.v1 import common_pb2
from fencepost.home import read_credential
from fencepost.sessions.v1 import sessions_pb2 as pb
from fencepost_kit.identity import fingerprint, mint_token
from fencepost_sessions.domain.limits import OLD_CREDENTIALS_KEPT_MAX, PAGE_ROWS_MAX, QUARANTINE_MS
from fencepost_testing.sessions_service import Running, key, refusal_of

MISSING = str(uuid.UUID(int=1))
ROLE = common_pb2.Role.Name


async def revision_of(running: Running) -> int:
    return int((await running.operator("Describe", pb.DescribeRequest())).revision)


# --- Describe, GetCaller ---------------------------------------------------------------------------------------------


async def test_describe_tells_version_schema_epoch_and_revision(running: Running) -> None:
    answer = await running.operator("Describe", pb.DescribeRequest())
    assert (answer.version, answer.schema_version) == (__version__, 4)
    assert str(uuid.UUID(answer.epoch)) == answer.epoch
    before = answer.revision
    await running.create("ann")
    assert await revision_of(running) == before + 1


async def test_each_kind_of_caller_is_told_who_it_is(running: Running) -> None:
    agent = await running.create("Ann", role=common_pb2.ROLE_COORDINATOR)
    as_agent = await running.agent(agent)("GetCaller", pb.GetCallerRequest())
    assert as_agent.agent == agent
    assert as_agent.project.project_id == agent.project_id
    assert as_agent.project.location
    assert as_agent.credential.agent_id == agent.agent_id
    assert as_agent.credential.project_id == agent.project_id
    assert as_agent.credential.generation == 1
    assert as_agent.credential.role == common_pb2.ROLE_COORDINATOR
    assert as_agent.credential.label == "Ann"
    for caller, role, label in (
        (running.operator, common_pb2.ROLE_OPERATOR, "operator"),
        (running.service("mcp_edge"), common_pb2.ROLE_SERVICE, "mcp_edge"),
    ):
        answer = await caller("GetCaller", pb.GetCallerRequest())
        assert not answer.HasField("agent")
        assert not answer.HasField("project")
        assert (answer.credential.role, answer.credential.label, answer.credential.agent_id) == (role, label, "")
        assert answer.credential.generation == 0
        assert answer.credential.token_sha256 == b""


# --- projects --------------------------------------------------------------------------------------------------------


async def test_a_location_has_one_project_however_often_it_is_ensured(running: Running) -> None:
    request = pb.EnsureProjectRequest(idempotency_key=key(), kind=pb.PROJECT_KIND_GIT, location="/w/repo/.git")
    first = await running.operator("EnsureProject", request)
    assert first.created
    assert (first.project.name, first.project.kind) == ("repo", pb.PROJECT_KIND_GIT)
    assert first.project.location == "/w/repo/.git"
    request.idempotency_key = key()
    again = await running.operator("EnsureProject", request)
    assert (again.project, again.created) == (first.project, False)


async def test_a_repeated_key_answers_as_the_first_time(running: Running) -> None:
    request = pb.EnsureProjectRequest(idempotency_key="k", kind=pb.PROJECT_KIND_FOLDER, location="/w/a", name="A")
    first = await running.operator("EnsureProject", request)
    assert await running.operator("EnsureProject", request) == first
    assert first.created


async def test_racing_calls_create_one_project(running: Running) -> None:
    requests = [
        pb.EnsureProjectRequest(idempotency_key=key(), kind=pb.PROJECT_KIND_FOLDER, location="/w/a") for _ in range(8)
    ]
    answers = await asyncio.gather(*(running.operator("EnsureProject", request) for request in requests))
    assert len({answer.project.project_id for answer in answers}) == 1
    assert sum(answer.created for answer in answers) == 1


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"kind": 0}, "invalid_location"),
        ({"kind": 9}, "invalid_location"),
        ({"location": ""}, "invalid_location"),
        ({"location": "relative"}, "invalid_location"),
        ({"location": "/w/../a"}, "invalid_location"),
        ({"name": " padded"}, "invalid_name"),
        ({"idempotency_key": ""}, "invalid_idempotency_key"),
        ({"idempotency_key": "k" * 257}, "invalid_idempotency_key"),
    ],
)
async def test_a_malformed_project_is_refused_and_nothing_is_created(
    running: Running, fields: dict[str, Any], reason: str
) -> None:
    request = pb.EnsureProjectRequest(
        **{"idempotency_key": "k", "kind": pb.PROJECT_KIND_GIT, "location": "/w/a", **fields}
    )
    refused = await refusal_of(running.operator("EnsureProject", request))
    assert refused.reason == reason
    assert not (await running.operator("ListProjects", pb.ListProjectsRequest())).projects


async def test_a_location_does_not_change_its_kind(running: Running) -> None:
    await running.project("/w/a")
    request = pb.EnsureProjectRequest(idempotency_key=key(), kind=pb.PROJECT_KIND_GIT, location="/w/a")
    refused = await refusal_of(running.operator("EnsureProject", request))
    assert (refused.reason, refused.state["kind"]) == ("conflicting_kind", "folder")


async def test_projects_are_listed_oldest_first_in_pages(running: Running) -> None:
    made = [await running.project(f"/w/{name}") for name in "cab"]
    first = await running.operator("ListProjects", pb.ListProjectsRequest(page_size=2))
    assert list(first.projects) == made[:2]
    rest = await running.operator("ListProjects", pb.ListProjectsRequest(page_size=2, page_token=first.next_page_token))
    assert list(rest.projects) == made[2:]
    assert rest.next_page_token == ""


# --- CreateAgent -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("sessions.credentials-are-private-files")
async def test_a_created_agent_has_its_record_and_its_credential_in_a_private_file(running: Running) -> None:
    project = await running.project()
    request = pb.CreateAgentRequest(
        idempotency_key=key(), project_id=project.project_id, name="Ann", provider="codex", workspace="/srv/project"
    )
    created = await running.operator("CreateAgent", request)
    agent = created.agent
    assert (agent.name, agent.provider, agent.workspace, agent.generation) == ("Ann", "codex", "/srv/project", 1)
    assert agent.role == common_pb2.ROLE_AGENT
    assert agent.project_id == project.project_id
    assert agent.revision == await revision_of(running)
    assert not created.duplicate
    file = Path(created.credential_file)
    assert file == running.home.agent_credential(agent.agent_id)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(running.home.agents.stat().st_mode) == 0o700
    assert [path.name for path in file.parent.iterdir()] == ["credential"]
    assert (await running.agent(agent)("GetCaller", pb.GetCallerRequest())).agent == agent


@pytest.mark.requirement("sessions.keys-have-one-answer")
async def test_the_same_call_again_answers_the_first_agent_and_creates_none(running: Running) -> None:
    project = await running.project()
    request = pb.CreateAgentRequest(idempotency_key="k", project_id=project.project_id, name="Ann")
    first = await running.operator("CreateAgent", request)
    token, revision = running.token_of(first.agent), await revision_of(running)
    await running.operator(
        "UpdateAgent", pb.UpdateAgentRequest(idempotency_key=key(), agent_id=first.agent.agent_id, name="Other")
    )
    again = await running.operator("CreateAgent", request)
    assert again.duplicate
    assert (again.agent, again.credential_file) == (first.agent, first.credential_file)
    assert running.token_of(first.agent) == token
    assert await revision_of(running) == revision + 1
    assert len(list(running.home.agents.iterdir())) == 1


@pytest.mark.requirement("sessions.keys-have-one-answer")
async def test_a_key_with_other_content_is_a_conflict_and_with_another_operation_is_not(running: Running) -> None:
    project = await running.project()
    request = pb.CreateAgentRequest(idempotency_key="k", project_id=project.project_id, name="Ann")
    agent = (await running.operator("CreateAgent", request)).agent
    for change in ({"name": "Bob"}, {"provider": "codex"}, {"role": common_pb2.ROLE_COORDINATOR}):
        other = pb.CreateAgentRequest()
        other.CopyFrom(request)
        other.MergeFrom(pb.CreateAgentRequest(**change))
        assert (await refusal_of(running.operator("CreateAgent", other))).reason == "idempotency_conflict"
    begun = pb.BeginGenerationRequest(idempotency_key="k", agent_id=agent.agent_id)
    assert (await running.operator("BeginGeneration", begun)).generation == 2


async def test_racing_calls_with_one_key_create_one_agent(running: Running) -> None:
    project = await running.project()
    request = pb.CreateAgentRequest(idempotency_key="k", project_id=project.project_id, name="Ann")
    answers = await asyncio.gather(*(running.operator("CreateAgent", request) for _ in range(8)))
    assert len({answer.agent.agent_id for answer in answers}) == 1
    assert [answer.duplicate for answer in answers].count(False) == 1
    assert len(list(running.home.agents.iterdir())) == 1
    assert (await running.agent(answers[0].agent)("GetCaller", pb.GetCallerRequest())).agent.name == "Ann"


@pytest.mark.requirement("sessions.names-are-unique-without-regard-to-case")
async def test_a_taken_name_is_refused_in_any_case_in_its_project_only(running: Running) -> None:
    here, there = await running.project("/w/here"), await running.project("/w/there")
    await running.create("Zoë", here)
    folders = sorted(running.home.agents.iterdir())
    for name in ("Zoë", "ZOË", "zoe\u0308"):
        request = pb.CreateAgentRequest(idempotency_key=key(), project_id=here.project_id, name=name)
        refused = await refusal_of(running.operator("CreateAgent", request))
        assert (refused.reason, refused.state["holder"]) == ("name_taken", "Zoë")
    assert sorted(running.home.agents.iterdir()) == folders
    assert (await running.create("zoë", there)).name == "zoë"


async def test_racing_calls_give_one_name_to_one_agent(running: Running) -> None:
    project = await running.project()
    requests = [
        pb.CreateAgentRequest(idempotency_key=key(), project_id=project.project_id, name=name)
        for name in ("ann", "Ann", "ANN", "aNN")
    ]
    outcomes = await asyncio.gather(
        *(running.operator("CreateAgent", request) for request in requests), return_exceptions=True
    )
    assert sum(not isinstance(outcome, BaseException) for outcome in outcomes) == 1
    assert {getattr(outcome, "reason", "created") for outcome in outcomes} == {"created", "name_taken"}
    assert len(list(running.home.agents.iterdir())) == 1


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"name": ""}, "invalid_name"),
        ({"name": " ann"}, "invalid_name"),
        ({"name": "ann\n"}, "invalid_name"),
        ({"name": "n" * 65}, "invalid_name"),
        ({"name": MISSING}, "invalid_name"),
        ({"name": "Broadcast"}, "invalid_name"),
        ({"name": "class:x"}, "invalid_name"),
        ({"role": common_pb2.ROLE_OPERATOR}, "invalid_role"),
        ({"role": common_pb2.ROLE_SERVICE}, "invalid_role"),
        ({"role": 9}, "invalid_role"),
        ({"provider": "p" * 65}, "invalid_provider"),
        ({"workspace": "here"}, "invalid_workspace"),
        ({"project_id": ""}, "invalid_argument"),
        ({"project_id": "project"}, "invalid_argument"),
        ({"project_id": MISSING}, "not_found"),
        ({"idempotency_key": ""}, "invalid_idempotency_key"),
    ],
)
async def test_a_malformed_agent_is_refused_and_leaves_nothing(
    running: Running, fields: dict[str, Any], reason: str
) -> None:
    project = await running.project()
    before = await revision_of(running)
    good = {"idempotency_key": "k", "project_id": project.project_id, "name": "ann"}
    refused = await refusal_of(running.operator("CreateAgent", pb.CreateAgentRequest(**{**good, **fields})))
    assert refused.reason == reason
    assert await revision_of(running) == before
    assert not running.home.agents.exists() or not list(running.home.agents.iterdir())
    assert not (await running.operator("CreateAgent", pb.CreateAgentRequest(**good))).duplicate


async def test_a_full_project_and_a_full_home_refuse_one_more(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost_sessions.domain.agents.AGENTS_PER_PROJECT_MAX", 2)
    monkeypatch.setattr("fencepost_sessions.domain.projects.PROJECTS_MAX", 2)
    here, there = await running.project("/w/here"), await running.project("/w/there")
    assert (await refusal_of(running.project("/w/elsewhere"))).reason == "limit_reached"
    assert await running.project("/w/here") == here
    for name in ("ann", "bob"):
        await running.create(name, here)
    refused = await refusal_of(running.create("cat", here))
    assert (refused.reason, refused.may_resend) == ("limit_reached", False)
    assert (await running.create("cat", there)).name == "cat"


# --- ListAgents, GetAgent --------------------------------------------------------------------------------------------


@pytest.mark.requirement("sessions.agents-see-their-own-project")
async def test_an_agent_sees_its_own_project_and_the_operator_sees_all(running: Running) -> None:
    here, there = await running.project("/w/here"), await running.project("/w/there")
    ann, bob, cat = (
        await running.create("ann", here),
        await running.create("Bob", here),
        await running.create("cat", there),
    )
    listed = await running.agent(ann)("ListAgents", pb.ListAgentsRequest())
    assert list(listed.agents) == [ann, bob]
    asked = pb.ListAgentsRequest(project_id=here.project_id)
    assert list((await running.agent(ann)("ListAgents", asked)).agents) == [ann, bob]
    foreign = pb.ListAgentsRequest(project_id=there.project_id)
    assert (await refusal_of(running.agent(ann)("ListAgents", foreign))).reason == "permission_denied"
    assert list((await running.operator("ListAgents", pb.ListAgentsRequest())).agents) == [ann, bob, cat]
    assert list((await running.operator("ListAgents", foreign)).agents) == [cat]
    missing = pb.ListAgentsRequest(project_id=MISSING)
    assert (await refusal_of(running.operator("ListAgents", missing))).reason == "not_found"


async def test_agents_are_listed_in_name_order_in_pages(running: Running) -> None:
    project = await running.project()
    made = {name: await running.create(name, project) for name in ("cat", "Ann", "Bob", "dan", "Eve")}
    names: list[str] = []
    token = ""
    while True:
        page = await running.operator("ListAgents", pb.ListAgentsRequest(page_size=2, page_token=token))
        names += [agent.name for agent in page.agents]
        token = page.next_page_token
        if not token:
            break
    assert names == ["Ann", "Bob", "cat", "dan", "Eve"] == sorted(made, key=str.casefold)


@pytest.mark.requirement("sessions.foreign-page-tokens-are-refused")
@pytest.mark.parametrize("method", ["ListProjects", "ListAgents", "ListCredentials"])
async def test_page_sizes_and_tokens_out_of_range_are_refused(running: Running, method: str) -> None:
    project = await running.project()
    await running.project("/w/other")
    for name in ("ann", "bob"):
        await running.create(name, project)
    request_type = getattr(pb, f"{method}Request")
    assert await running.operator(method, request_type(page_size=PAGE_ROWS_MAX))
    for size in (-1, PAGE_ROWS_MAX + 1):
        assert (await refusal_of(running.operator(method, request_type(page_size=size)))).reason == "invalid_limit"
    token = (await running.operator(method, request_type(page_size=1))).next_page_token
    assert token
    other = "ListAgents" if method != "ListAgents" else "ListProjects"
    for bad, foreign in (("x", method), (token + "A", method), (token, other)):
        request = getattr(pb, f"{foreign}Request")(page_token=bad)
        assert (await refusal_of(running.operator(foreign, request))).reason == "invalid_cursor"


async def test_a_token_of_the_operator_shows_an_agent_nothing_more(running: Running) -> None:
    here, there = await running.project("/w/here"), await running.project("/w/there")
    ann = await running.create("ann", here)
    await running.create("bob", there)
    token = (await running.operator("ListAgents", pb.ListAgentsRequest(page_size=1))).next_page_token
    refused = await refusal_of(running.agent(ann)("ListAgents", pb.ListAgentsRequest(page_token=token)))
    assert refused.reason == "invalid_cursor"


@pytest.mark.requirement("sessions.targets-match-exactly")
async def test_an_agent_is_shown_by_exact_name_or_uuid(running: Running) -> None:
    project = await running.project()
    ann, bob = await running.create("Zoë", project), await running.create("bob", project)
    for target in ("Zoë", "Zoe\u0308", ann.agent_id, ann.agent_id.upper()):
        shown = await running.agent(bob)("GetAgent", pb.GetAgentRequest(target=target))
        assert (shown.agent, shown.credential_file) == (ann, "")
    shown = await running.operator("GetAgent", pb.GetAgentRequest(target="Zoë"))
    assert shown.credential_file == str(running.home.agent_credential(ann.agent_id))
    near = await refusal_of(running.agent(bob)("GetAgent", pb.GetAgentRequest(target="zoë")))
    assert near.reason == "not_found"
    assert '"Zoë"' in near.hint
    unknown = await refusal_of(running.agent(bob)("GetAgent", pb.GetAgentRequest(target="nobody")))
    assert unknown.reason == "not_found"
    assert unknown.hint


@pytest.mark.parametrize(
    "target", ["", " bob", "all", "*", "BROADCAST", "class:x", "t" * 65, "t" * 5000, "{" + MISSING + "}"]
)
async def test_a_target_that_is_no_single_agent_is_refused(running: Running, target: str) -> None:
    assert (
        await refusal_of(running.operator("GetAgent", pb.GetAgentRequest(target=target)))
    ).reason == "invalid_target"


@pytest.mark.requirement("sessions.agents-see-their-own-project")
async def test_an_agent_of_another_project_is_not_found_by_name_or_uuid(running: Running) -> None:
    ann = await running.create("ann", await running.project("/w/here"))
    bob = await running.create("bob", await running.project("/w/there"))
    for target in ("bob", "Bob", bob.agent_id, MISSING):
        refused = await refusal_of(running.agent(ann)("GetAgent", pb.GetAgentRequest(target=target)))
        assert refused.reason == "not_found"
        assert '"' not in refused.hint
    request = pb.GetAgentRequest(target="bob", project_id=bob.project_id)
    assert (await refusal_of(running.agent(ann)("GetAgent", request))).reason == "permission_denied"


@pytest.mark.requirement("sessions.ambiguous-names-are-refused")
async def test_a_name_in_several_projects_is_ambiguous_for_the_operator_until_narrowed(running: Running) -> None:
    here, there = await running.project("/w/here"), await running.project("/w/there")
    ann, other = await running.create("ann", here), await running.create("ann", there)
    refused = await refusal_of(running.operator("GetAgent", pb.GetAgentRequest(target="ann")))
    assert refused.reason == "ambiguous_target"
    assert here.project_id in refused.hint
    assert there.project_id in refused.hint
    narrowed = pb.GetAgentRequest(target="ann", project_id=there.project_id)
    assert (await running.operator("GetAgent", narrowed)).agent == other
    assert (await running.agent(ann)("GetAgent", pb.GetAgentRequest(target="ann"))).agent == ann
    elsewhere = pb.GetAgentRequest(target=ann.agent_id, project_id=there.project_id)
    assert (await refusal_of(running.operator("GetAgent", elsewhere))).reason == "not_found"


# --- UpdateAgent -----------------------------------------------------------------------------------------------------


async def update(running: Running, agent: pb.Agent, **fields: Any) -> pb.UpdateAgentResponse:
    request = pb.UpdateAgentRequest(idempotency_key=key(), agent_id=agent.agent_id, **fields)
    return await running.operator("UpdateAgent", request)  # type: ignore[no-any-return]


async def test_an_update_changes_what_it_names_and_keeps_the_rest(running: Running) -> None:
    agent = await running.create("ann", provider="codex", workspace="/w/a")
    before = await revision_of(running)
    after = (await update(running, agent, name="Bob", workspace="")).agent
    assert (after.name, after.workspace, after.provider, after.role) == ("Bob", "", "codex", common_pb2.ROLE_AGENT)
    assert after.revision == before + 1 == await revision_of(running)
    assert (after.agent_id, after.created_at_ms, after.generation) == (agent.agent_id, agent.created_at_ms, 1)
    assert (await running.operator("GetAgent", pb.GetAgentRequest(target="Bob"))).agent == after


async def test_an_update_that_changes_nothing_gives_no_revision(running: Running) -> None:
    agent = await running.create("ann", provider="codex")
    before = await revision_of(running)
    assert (await update(running, agent)).agent == agent
    assert (await update(running, agent, name="ann", provider="codex")).agent == agent
    assert await revision_of(running) == before


@pytest.mark.requirement("sessions.keys-have-one-answer")
async def test_the_same_update_again_answers_as_the_first_time(running: Running) -> None:
    agent = await running.create("ann")
    request = pb.UpdateAgentRequest(idempotency_key="k", agent_id=agent.agent_id, name="bob")
    first = await running.operator("UpdateAgent", request)
    await update(running, agent, name="cat")
    again = await running.operator("UpdateAgent", request)
    assert (again.agent, again.duplicate, first.duplicate) == (first.agent, True, False)
    assert (await running.operator("GetAgent", pb.GetAgentRequest(target=agent.agent_id))).agent.name == "cat"
    request.provider = ""
    assert (await refusal_of(running.operator("UpdateAgent", request))).reason == "idempotency_conflict"


@pytest.mark.requirement("sessions.credentials-follow-the-role")
async def test_a_new_role_holds_for_credentials_minted_earlier(running: Running) -> None:
    agent = await running.create("ann")
    caller = running.agent(agent)
    await update(running, agent, role=common_pb2.ROLE_COORDINATOR)
    answer = await caller("GetCaller", pb.GetCallerRequest())
    assert answer.credential.role == answer.agent.role == common_pb2.ROLE_COORDINATOR


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"name": "all"}, "invalid_name"),
        ({"name": ""}, "invalid_name"),
        ({"role": common_pb2.ROLE_UNSPECIFIED}, "invalid_role"),
        ({"role": common_pb2.ROLE_OPERATOR}, "invalid_role"),
        ({"provider": " codex"}, "invalid_provider"),
        ({"workspace": "w"}, "invalid_workspace"),
        ({"agent_id": "ann"}, "invalid_argument"),
        ({"agent_id": MISSING}, "not_found"),
        ({"name": "BOB"}, "name_taken"),
        ({"idempotency_key": ""}, "invalid_idempotency_key"),
    ],
)
async def test_a_malformed_update_is_refused_and_changes_nothing(
    running: Running, fields: dict[str, Any], reason: str
) -> None:
    project = await running.project()
    agent = await running.create("ann", project)
    await running.create("bob", project)
    before = await revision_of(running)
    request = pb.UpdateAgentRequest(**{"idempotency_key": "k", "agent_id": agent.agent_id, **fields})
    assert (await refusal_of(running.operator("UpdateAgent", request))).reason == reason
    assert await revision_of(running) == before
    assert (await running.operator("GetAgent", pb.GetAgentRequest(target=agent.agent_id))).agent == agent


@pytest.mark.requirement("sessions.released-names-rest")
async def test_a_released_name_rests_for_its_time_except_for_the_agent_that_had_it(running: Running) -> None:
    project = await running.project()
    ann = await running.create("ann", project)
    bob = await running.create("bob", project)
    await update(running, ann, name="anna")
    for refused in (
        await refusal_of(running.create("Ann", project)),
        await refusal_of(update(running, bob, name="ANN")),
    ):
        assert refused.reason == "name_quarantined"
        assert refused.may_resend
        assert 0 < int(refused.state["free_in_ms"]) <= QUARANTINE_MS
    await update(running, ann, name="ann")
    await update(running, ann, name="anna")
    await running.clock.advance(QUARANTINE_MS / 1000 - 0.001)
    assert (await refusal_of(running.create("ann", project))).reason == "name_quarantined"
    await running.clock.advance(0.001)
    assert (await running.create("ann", project)).name == "ann"


async def test_another_case_of_its_own_name_is_no_release(running: Running) -> None:
    ann = await running.create("ann")
    assert (await update(running, ann, name="ANN")).agent.name == "ANN"
    assert (await update(running, ann, name="Ann")).agent.name == "Ann"


@pytest.mark.requirement("sessions.released-names-rest")
async def test_a_quarantine_outlives_a_restart_and_a_clock_that_was_put_back(running: Running) -> None:
    project = await running.project()
    await update(running, await running.create("ann", project), name="anna")
    running.clock.step_wall(-1_000_000)
    await running.restart()
    refused = await refusal_of(running.create("ann", project))
    assert refused.reason == "name_quarantined"
    assert int(refused.state["free_in_ms"]) == QUARANTINE_MS
    await running.clock.advance(QUARANTINE_MS / 1000)
    assert (await running.create("ann", project)).name == "ann"


# --- BeginGeneration -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("sessions.generations-are-begun-once")
async def test_a_new_life_has_the_next_generation_and_a_new_token_in_the_same_file(running: Running) -> None:
    agent = await running.create("ann")
    old = running.token_of(agent)
    begun = await running.begin(agent, expected_generation=1)
    assert (begun.generation, begun.duplicate) == (2, False)
    assert begun.credential_file == str(running.home.agent_credential(agent.agent_id))
    new = running.token_of(agent)
    assert new != old
    after = await running.with_token(new)("GetCaller", pb.GetCallerRequest())
    assert (after.credential.generation, after.agent.generation) == (2, 2)
    assert after.agent.revision == await revision_of(running)


@pytest.mark.requirement("sessions.old-lives-are-told-that-they-are-old")
async def test_an_old_life_is_still_known_by_its_generation_and_may_read(running: Running) -> None:
    agent = await running.create("ann")
    old = running.token_of(agent)
    await running.begin(agent)
    answer = await running.with_token(old)("GetCaller", pb.GetCallerRequest())
    assert (answer.credential.generation, answer.agent.generation) == (1, 2)
    assert (await running.with_token(old)("ListAgents", pb.ListAgentsRequest())).agents
    found = await running.service()("LookupCredential", pb.LookupCredentialRequest(token_sha256=fingerprint(old)))
    assert found.credential.generation == 1


@pytest.mark.requirement("sessions.old-lives-are-told-that-they-are-old")
async def test_only_so_many_old_lives_are_remembered(running: Running) -> None:
    agent = await running.create("ann")
    tokens = [running.token_of(agent)]
    for _ in range(OLD_CREDENTIALS_KEPT_MAX):
        await running.begin(agent)
        tokens.append(running.token_of(agent))
    assert (await running.with_token(tokens[0])("GetCaller", pb.GetCallerRequest())).credential.generation == 1
    await running.begin(agent)
    assert (
        await refusal_of(running.with_token(tokens[0])("GetCaller", pb.GetCallerRequest()))
    ).reason == "unauthenticated"
    assert (await running.with_token(tokens[1])("GetCaller", pb.GetCallerRequest())).credential.generation == 2
    listed = await running.operator("ListCredentials", pb.ListCredentialsRequest(agent_id=agent.agent_id))
    assert len(listed.credentials) == OLD_CREDENTIALS_KEPT_MAX + 1


@pytest.mark.requirement("sessions.generations-are-begun-once")
async def test_a_life_with_another_expectation_is_refused_and_the_old_token_stays(running: Running) -> None:
    agent = await running.create("ann")
    await running.begin(agent)
    token, before = running.token_of(agent), await revision_of(running)
    for expected in (1, 3, -1):
        refused = await refusal_of(running.begin(agent, expected_generation=expected))
        assert (refused.reason, refused.state["generation"]) == ("stale_generation", "2")
    assert running.token_of(agent) == token
    assert await revision_of(running) == before
    folder = running.home.agent_folder(agent.agent_id)
    assert [path.name for path in folder.iterdir()] == ["credential"]


@pytest.mark.requirement("sessions.generations-are-begun-once")
async def test_racing_lives_get_distinct_generations_and_the_file_holds_the_last(running: Running) -> None:
    agent = await running.create("ann")
    begun = await asyncio.gather(*(running.begin(agent) for _ in range(8)))
    assert sorted(one.generation for one in begun) == list(range(2, 10))
    answer = await running.agent(agent)("GetCaller", pb.GetCallerRequest())
    assert answer.credential.generation == 9 == answer.agent.generation


@pytest.mark.requirement("sessions.generations-are-begun-once")
async def test_of_racing_lives_with_one_expectation_one_begins(running: Running) -> None:
    agent = await running.create("ann")
    outcomes = await asyncio.gather(
        *(running.begin(agent, expected_generation=1) for _ in range(8)), return_exceptions=True
    )
    reasons = [getattr(outcome, "reason", "begun") for outcome in outcomes]
    assert reasons.count("begun") == 1
    assert set(reasons) == {"begun", "stale_generation"}
    assert (await running.agent(agent)("GetCaller", pb.GetCallerRequest())).credential.generation == 2


@pytest.mark.requirement("sessions.keys-have-one-answer")
async def test_the_same_life_is_begun_once(running: Running) -> None:
    agent = await running.create("ann")
    request = pb.BeginGenerationRequest(idempotency_key="k", agent_id=agent.agent_id, expected_generation=1)
    answers = await asyncio.gather(*(running.operator("BeginGeneration", request) for _ in range(4)))
    assert {answer.generation for answer in answers} == {2}
    assert [answer.duplicate for answer in answers].count(False) == 1
    token = running.token_of(agent)
    again = await running.operator("BeginGeneration", request)
    assert (again.generation, again.duplicate, running.token_of(agent)) == (2, True, token)
    request.expected_generation = 2
    assert (await refusal_of(running.operator("BeginGeneration", request))).reason == "idempotency_conflict"


async def test_keys_belong_to_their_caller(running: Running) -> None:
    agent = await running.create("ann")
    request = pb.BeginGenerationRequest(idempotency_key="k", agent_id=agent.agent_id)
    assert (await running.operator("BeginGeneration", request)).generation == 2
    answer = await running.service("providers")("BeginGeneration", request)
    assert (answer.generation, answer.duplicate) == (3, False)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"agent_id": ""}, "invalid_argument"),
        ({"agent_id": "ann"}, "invalid_argument"),
        ({"agent_id": MISSING}, "not_found"),
        ({"idempotency_key": ""}, "invalid_idempotency_key"),
    ],
)
async def test_a_malformed_beginning_is_refused(running: Running, fields: dict[str, Any], reason: str) -> None:
    request = pb.BeginGenerationRequest(**{"idempotency_key": "k", "agent_id": MISSING, **fields})
    assert (await refusal_of(running.operator("BeginGeneration", request))).reason == reason
    assert not running.home.agents.exists() or not list(running.home.agents.iterdir())


# --- credentials -----------------------------------------------------------------------------------------------------


async def test_credentials_are_listed_oldest_first_without_hashes(running: Running) -> None:
    agent = await running.create("ann")
    await running.begin(agent)
    listed = (await running.operator("ListCredentials", pb.ListCredentialsRequest())).credentials
    assert [one.label for one in listed] == ["operator", "mailbox", "mcp_edge", "providers", "ann", "ann"]
    assert [one.revision for one in listed] == sorted(one.revision for one in listed)
    assert all(one.token_sha256 == b"" for one in listed)
    first = await running.operator("ListCredentials", pb.ListCredentialsRequest(agent_id=agent.agent_id, page_size=1))
    assert [one.generation for one in first.credentials] == [1]
    rest = pb.ListCredentialsRequest(agent_id=agent.agent_id, page_size=1, page_token=first.next_page_token)
    assert [one.generation for one in (await running.operator("ListCredentials", rest)).credentials] == [2]
    missing = pb.ListCredentialsRequest(agent_id=MISSING)
    assert (await refusal_of(running.operator("ListCredentials", missing))).reason == "not_found"


@pytest.mark.requirement("sessions.revocation-is-the-rows-absence")
async def test_a_revoked_credential_is_unknown_at_once_and_its_removal_is_answered_again(
    running: Running,
) -> None:
    agent = await running.create("ann")
    caller = running.agent(agent)
    await caller("GetCaller", pb.GetCallerRequest())
    revoking = pb.RevokeCredentialRequest(credential_id=await running.credential_id(running.token_of(agent)))
    first = await running.operator("RevokeCredential", revoking)
    assert first.revision == await revision_of(running)
    assert not first.enforced
    assert (await refusal_of(caller("GetCaller", pb.GetCallerRequest()))).reason == "unauthenticated"
    assert await running.operator("RevokeCredential", revoking) == first
    await running.begin(agent)
    assert (await running.agent(agent)("GetCaller", pb.GetCallerRequest())).credential.generation == 2
    assert await running.operator("RevokeCredential", revoking) == first


@pytest.mark.parametrize(
    ("credential_id", "reason"), [("", "invalid_argument"), ("x", "invalid_argument"), (MISSING, "not_found")]
)
async def test_an_unknown_credential_is_not_revoked(running: Running, credential_id: str, reason: str) -> None:
    before = await revision_of(running)
    request = pb.RevokeCredentialRequest(credential_id=credential_id)
    assert (await refusal_of(running.operator("RevokeCredential", request))).reason == reason
    assert await revision_of(running) == before


@pytest.mark.requirement("sessions.home-credentials-always-stand")
@pytest.mark.parametrize("name", ["operator", "mailbox", "providers"])
async def test_revoking_a_credential_of_the_home_puts_a_new_one_in_its_file(running: Running, name: str) -> None:
    file = running.home.operator_credential if name == "operator" else running.home.service_credential(name)
    old = read_credential(file)
    revoking = pb.RevokeCredentialRequest(credential_id=await running.credential_id(old))
    first = await running.operator("RevokeCredential", revoking)
    new = read_credential(file)
    assert new != old
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (await refusal_of(running.with_token(old)("GetCaller", pb.GetCallerRequest()))).reason == "unauthenticated"
    assert (await running.with_token(new)("GetCaller", pb.GetCallerRequest())).credential.label == name
    assert (await running.operator("RevokeCredential", revoking)).revision == first.revision
    assert read_credential(file) == new


# --- lookups ---------------------------------------------------------------------------------------------------------


async def test_a_follower_finds_an_agent_by_name_or_uuid_in_its_project(running: Running) -> None:
    here, there = await running.project("/w/here"), await running.project("/w/there")
    ann, _other = await running.create("Ann", here), await running.create("Ann", there)
    for target in ("Ann", ann.agent_id):
        found = await running.service()("LookupAgent", pb.LookupAgentRequest(project_id=here.project_id, target=target))
        assert (found.agent, found.revision) == (ann, await revision_of(running))
    for project_id, target, reason in (
        (here.project_id, "ann", "not_found"),
        (here.project_id, "all", "invalid_target"),
        (there.project_id, ann.agent_id, "not_found"),
        (MISSING, "Ann", "not_found"),
        ("", "Ann", "invalid_argument"),
    ):
        request = pb.LookupAgentRequest(project_id=project_id, target=target)
        assert (await refusal_of(running.service()("LookupAgent", request))).reason == reason


async def test_a_follower_finds_a_credential_by_the_hash_of_its_token(running: Running) -> None:
    agent = await running.create("ann")
    digest = fingerprint(running.token_of(agent))
    found = await running.service()("LookupCredential", pb.LookupCredentialRequest(token_sha256=digest))
    assert (found.credential.agent_id, found.credential.token_sha256) == (agent.agent_id, digest)
    assert found.revision == await revision_of(running)
    for token_sha256, reason in ((b"", "invalid_argument"), (digest[1:], "invalid_argument"), (bytes(32), "not_found")):
        request = pb.LookupCredentialRequest(token_sha256=token_sha256)
        assert (await refusal_of(running.service()("LookupCredential", request))).reason == reason


async def test_a_token_that_nobody_holds_is_not_found_and_never_repeated(running: Running) -> None:
    token = mint_token()
    refused = await refusal_of(running.with_token(token)("Describe", pb.DescribeRequest()))
    assert refused.reason == "unauthenticated"
    assert token not in f"{refused} {refused.hint} {refused.state}"


# --- restart ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("sessions.a-restart-keeps-everything")
async def test_a_restart_keeps_everything(running: Running) -> None:
    project = await running.project()
    agent = await running.create("Ann", project)
    begun = pb.BeginGenerationRequest(idempotency_key="k", agent_id=agent.agent_id)
    await running.operator("BeginGeneration", begun)
    operator, token = read_credential(running.home.operator_credential), running.token_of(agent)
    before = await running.operator("Describe", pb.DescribeRequest())
    listed = await running.operator("ListCredentials", pb.ListCredentialsRequest())
    await running.restart()
    assert read_credential(running.home.operator_credential) == operator
    assert running.token_of(agent) == token
    assert await running.operator("Describe", pb.DescribeRequest()) == before
    assert await running.operator("ListCredentials", pb.ListCredentialsRequest()) == listed
    assert (await running.operator("BeginGeneration", begun)).duplicate
    assert (await running.operator("ListProjects", pb.ListProjectsRequest())).projects == [project]
