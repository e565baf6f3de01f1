"""Which MCP tools are set of a project and of an agent, and that the agent's folder shows what holds."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from fencepost.mcp import offers, profiles
from fencepost.sessions.v1 import sessions_pb2 as pb
from fencepost_sessions.domain import tools
from fencepost_testing.sessions_service import Running, key, refusal_of


def folder(running: Running, agent: pb.Agent) -> Path:
    return running.home.agent_folder(agent.agent_id)


def shown(running: Running, agent: pb.Agent) -> str | None:
    """What a server of the agent reads."""
    stored = offers.stored_in(str(folder(running, agent)))
    return None if stored is None else profiles.text_of(stored)


async def set_agent(running: Running, agent: pb.Agent, text: str, *, name: str | None = None) -> pb.Agent:
    ask = pb.UpdateAgentRequest(
        idempotency_key=name or key(), agent_id=agent.agent_id, launch=pb.LaunchSettings(tools_profile=text)
    )
    return (await running.operator("UpdateAgent", ask)).agent  # type: ignore[no-any-return]


async def set_project(running: Running, project: pb.Project, text: str | None) -> pb.Project:
    ask = pb.UpdateProjectRequest(project_id=project.project_id, tools_profile=text)
    return (await running.operator("UpdateProject", ask)).project  # type: ignore[no-any-return]


@pytest.mark.requirement("tools.stored-profile")
async def test_an_agents_own_setting_comes_before_its_projects(running: Running) -> None:
    project = await running.project()
    ann, bob = await running.create("ann", project), await running.create("bob", project)
    other = await running.create("cat", await running.project("/srv/other"))
    assert (shown(running, ann), project.tools_profile) == (None, "")
    assert (await set_project(running, project, "tasks,files")).tools_profile == "tasks,files"
    assert [shown(running, agent) for agent in (ann, bob, other)] == ["tasks,files", "tasks,files", None]
    assert (await set_agent(running, ann, "off")).launch.tools_profile == "off"
    assert [shown(running, agent) for agent in (ann, bob)] == ["off", "tasks,files"]
    late = await running.create("dan", project)
    assert shown(running, late) == "tasks,files"
    await set_agent(running, ann, "")
    assert shown(running, ann) == "tasks,files"
    assert (await set_project(running, project, None)).tools_profile == "tasks,files"
    assert (await set_project(running, project, "")).tools_profile == ""
    assert [shown(running, agent) for agent in (ann, bob, late)] == [None, None, None]


@pytest.mark.requirement("tools.stored-profile")
async def test_what_a_crash_left_behind_is_made_right_at_the_next_start(running: Running) -> None:
    project = await running.project()
    ann, bob = await running.create("ann", project), await running.create("bob", project)
    await set_project(running, project, "context")
    (folder(running, ann) / offers.STORED).write_text("all\n")
    (folder(running, bob) / offers.STORED).unlink()
    await running.restart()
    assert [shown(running, agent) for agent in (ann, bob)] == ["context", "context"]


@pytest.mark.requirement("tools.stored-profile")
async def test_a_repeated_change_shows_what_holds_now(running: Running) -> None:
    ann = await running.create("ann", await running.project())
    name = key()
    await set_agent(running, ann, "tasks", name=name)
    await set_agent(running, ann, "files")
    (folder(running, ann) / offers.STORED).unlink()
    await set_agent(running, ann, "tasks", name=name)
    assert shown(running, ann) == "files"


@pytest.mark.requirement("tools.stored-profile")
@pytest.mark.parametrize("text", ["every", "tasks,tasks", "all,off", "Tasks", "tasks, files"])
async def test_words_that_are_no_families_are_refused_and_nothing_changes(running: Running, text: str) -> None:
    project = await running.project()
    ann = await running.create("ann", project)
    ask = pb.UpdateProjectRequest(project_id=project.project_id, tools_profile=text)
    assert (await refusal_of(running.operator("UpdateProject", ask))).reason == "invalid_tools_profile"
    assert (await refusal_of(set_agent(running, ann, text))).reason == "invalid_launch_settings"
    assert shown(running, ann) is None
    unknown = pb.UpdateProjectRequest(project_id=ann.agent_id, tools_profile="all")
    assert (await refusal_of(running.operator("UpdateProject", unknown))).reason == "not_found"


@pytest.mark.requirement("tools.stored-profile")
async def test_the_folder_of_a_deleted_agent_goes_with_what_was_set_of_its_tools(running: Running) -> None:
    ann = await running.create("ann", await running.project())
    await set_agent(running, ann, "off")
    ask = pb.DeleteAgentRequest(idempotency_key=key(), agent_id=ann.agent_id, confirm_name="ann")
    await running.operator("DeleteAgent", ask)
    epoch = running.parts.store.read(lambda reading: reading.directory()).epoch
    finish = pb.FinishDeletionRequest(epoch=str(uuid.UUID(bytes=epoch)), agent_id=ann.agent_id)
    await running.service()("FinishDeletion", finish)
    assert not folder(running, ann).exists()


@pytest.mark.requirement("tools.profiles")
def test_sessions_and_the_registry_have_the_same_families() -> None:
    assert tools.TOOL_FAMILIES == profiles.FAMILIES
    assert (tools.ALL_TOOLS, tools.NO_TOOLS) == (profiles.ALL, profiles.OFF)
    assert len(",".join(profiles.FAMILIES)) < offers.STORED_BYTES_MAX
