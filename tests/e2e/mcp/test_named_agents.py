"""Servers whose arguments name their agent, with the real services behind them."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from fencepost import holds
from fencepost.cli.project import locate
from fencepost.client import Channels, Identity, Sessions
from fencepost.errors import Refused
from fencepost.sessions.v1 import sessions_pb2 as pb
from fencepost.take import find, take
from fencepost_testing.processes import Services
from fencepost_testing.shim import Shim, environment, running_shim

RELEASED_S_MAX = 15.0
_numbers = itertools.count()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / f"named{next(_numbers)}"
    folder.mkdir()
    return folder


def named(running: Services, name: str, project: Path, **variables: str) -> AbstractAsyncContextManager[Shim]:
    program = (sys.executable, "-P", "-m", "fencepost.mcp.shim", "--agent", name, "--project", str(project))
    return running_shim(env=environment(FENCEPOST_HOME=running.home.text, **variables), program=program)


async def agents(running: Services, project: Path) -> list[pb.Agent]:
    location = locate(project)
    async with Channels(running.home) as channels:
        sessions = Sessions(channels, Identity.operator(running.home).token)
        places = (await sessions.list_projects(pb.ListProjectsRequest(page_size=500))).projects
        known = [place.project_id for place in places if place.location == location.path]
        return [*(await sessions.list_agents(pb.ListAgentsRequest(project_id=known[0]))).agents] if known else []


def told(result: dict[str, Any]) -> dict[str, Any]:
    assert result["isError"] is True, result
    found: dict[str, Any] = result["structuredContent"]
    assert found["written"] is False
    return found


@pytest.mark.requirement("tools.a-server-without-an-agent-registers-one")
async def test_a_server_that_speaks_for_nobody_takes_the_name_that_it_registers(
    running: Services, project: Path
) -> None:
    program = (sys.executable, "-P", "-m", "fencepost.mcp.shim", "--tools", "tasks")
    env = environment(FENCEPOST_HOME=running.home.text)
    async with running_shim(env=env, program=program, cwd=project) as shim:
        await shim.greet()
        early = told(await shim.call("agent_inbox", {}, identity=2))
        assert early["code"] == "missing_managed_sender"
        wrong = await shim.call("agent_register", {"name": ""}, identity=3)
        assert told(wrong)["code"] == "invalid_arguments"
        assert await agents(running, project) == []
        known = (await shim.call("agent_register", {"name": "cyd"}, identity=4))["structuredContent"]
        assert known["agent"]["name"] == "cyd"
        assert [agent.name for agent in await agents(running, project)] == ["cyd"]
        assert (await shim.call("agent_inbox", {}, identity=5))["structuredContent"]["messages"] == []
        other = told(await shim.call("agent_register", {"name": "dan"}, identity=6))
        assert other["code"] == "identity_disagreement"
    assert [agent.name for agent in await agents(running, project)] == ["cyd"]


@pytest.mark.requirement("names.taken-at-the-first-call")
async def test_a_named_agent_comes_into_being_at_its_first_call_and_not_before(
    running: Services, project: Path
) -> None:
    async with named(running, "ann", project) as ann, named(running, "bob", project) as bob:
        for shim in (ann, bob):
            await shim.greet()
            await shim.ask("tools/list", identity="list")
        assert await agents(running, project) == []
        assert (await bob.call("receive_messages", identity=2))["structuredContent"]["messages"] == []
        assert [agent.name for agent in await agents(running, project)] == ["bob"]
        sent = await ann.call("send_message", {"target": "bob", "message": "hello"}, identity=2)
        assert sent["isError"] is False
        page = (await bob.call("receive_messages", identity=3))["structuredContent"]
        assert [message["message"] for message in page["messages"]] == ["hello"]
    made = {agent.name: agent for agent in await agents(running, project)}
    assert set(made) == {"ann", "bob"}
    assert made["ann"].workspace == str(project)


@pytest.mark.requirement("names.one-session-holds-a-name")
async def test_a_held_name_is_refused_until_its_holder_dies(running: Services, project: Path) -> None:
    async with named(running, "ann", project) as first, named(running, "ann", project) as second:
        for shim in (first, second):
            await shim.greet()
        assert (await first.call("list_agents", identity=2))["isError"] is False
        refused = told(await second.call("list_agents", identity=2))
        assert refused["code"] == "name_held"
        assert f"process {first.process.pid} since" in refused["message"]
        assert f"fencepost agent release ann --project {project}" in refused["hint"]
        first.process.send_signal(signal.SIGKILL)
        await first.ended()
        assert (await second.call("list_agents", identity=3))["isError"] is False


@pytest.mark.requirement("names.release-is-told-at-the-next-call")
async def test_a_released_name_goes_to_the_next_server_and_the_old_one_is_told(
    running: Services, project: Path
) -> None:
    async with named(running, "ann", project) as first, named(running, "ann", project) as second:
        for shim in (first, second):
            await shim.greet()
        await first.call("list_agents", identity=2)
        first.begin("wait_agent", {"timeout_ms": 60_000}, identity=3)
        command = [sys.executable, "-P", "-m", "fencepost", "agent", "release", "ann", "--project", str(project)]
        env = environment(FENCEPOST_HOME=running.home.text)
        released = await asyncio.create_subprocess_exec(*command, env=env, stdout=asyncio.subprocess.PIPE)
        async with asyncio.timeout(RELEASED_S_MAX):
            out, _ = await released.communicate()
        assert released.returncode == 0
        assert f"process {first.process.pid} let go of ann".encode() in out
        assert told((await first.answer(3))["result"])["code"] == "name_released"
        assert (await second.call("list_agents", identity=2))["isError"] is False
        assert told(await first.call("list_agents", identity=4))["code"] == "name_released"
        holder = holds.holder_of(str(running.home.agent_folder((await agents(running, project))[0].agent_id)))
        assert holder is not None
        assert holder.pid == second.process.pid


@pytest.mark.requirement("names.environment-and-argument-agree")
async def test_argument_and_environment_must_name_one_agent(running: Services, project: Path) -> None:
    async with named(running, "ann", project) as ann:
        await ann.greet()
        await ann.call("list_agents", identity=2)
    ann_id = (await agents(running, project))[0].agent_id
    async with named(running, "ann", project, FENCEPOST_SESSION_ID=ann_id) as same:
        await same.greet()
        assert (await same.call("list_agents", identity=2))["isError"] is False
    credential = str(running.home.agent_credential(ann_id))
    for variables in ({"FENCEPOST_SESSION_ID": ann_id}, {"FENCEPOST_CREDENTIAL_FILE": credential}):
        async with named(running, "bob", project, **variables) as other:
            await other.greet()
            refused = told(await other.call("list_agents", identity=2))
            assert refused["code"] == "identity_disagreement"
    assert [agent.name for agent in await agents(running, project)] == ["ann"]


@pytest.mark.requirement("names.one-agent-however-many-ask")
async def test_one_name_asked_for_at_once_is_one_agent_and_another_case_is_no_match(
    running: Services, project: Path
) -> None:
    location = locate(project)
    async with Channels(running.home) as channels:
        sessions = Sessions(channels, Identity.operator(running.home).token)
        assert await find(sessions, name="ann", location=location) is None
        taken = await asyncio.gather(
            *(take(sessions, name="ann", location=location, workspace=str(project)) for _ in range(8))
        )
        assert len({agent.agent_id for agent in taken}) == 1
        with pytest.raises(Refused) as refused:
            await take(sessions, name="Ann", location=location, workspace=str(project))
        assert refused.value.reason == "name_taken"
        assert "'ann'" in refused.value.hint


async def command(running: Services, person: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Run the command line as a person whose home folder is `person`."""
    env = {**environment(FENCEPOST_HOME=running.home.text), "HOME": str(person), "PATH": "/usr/bin:/bin"}
    program = [sys.executable, "-P", "-m", "fencepost", *words, "--json"]
    process = await asyncio.create_subprocess_exec(*program, env=env, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, json.loads(out)


@pytest.mark.requirement("connect.the-server-is-tried")
async def test_a_program_that_was_connected_has_a_mailbox_and_a_clean_bill_of_health(
    running: Services, project: Path
) -> None:
    words = ("connect", "pi", "--agent", "ann", "--project", str(project))
    code, connected = await command(running, project, *words)
    assert (code, connected["handshake"]["problem"]) == (0, "")
    assert await agents(running, project) == []
    entry = json.loads((project / ".pi" / "agent" / "mcp.json").read_text())["mcpServers"]["fencepost"]
    async with running_shim(env=environment(**entry["env"]), program=(entry["command"], *entry["args"])) as shim:
        await shim.greet()
        assert (await shim.call("list_agents", identity=2))["isError"] is False
        code, health = await command(running, project, "doctor")
        assert (code, health["findings"]) == (0, [])
    assert (await command(running, project, "connect", "pi", "--undo"))[1]["files"][0]["what"] == "removed"


@pytest.mark.requirement("names.looking-up-is-bounded")
async def test_a_home_in_which_nothing_ever_ran_is_told(tmp_path: Path, project: Path) -> None:
    program = (sys.executable, "-P", "-m", "fencepost.mcp.shim", "--agent", "ann", "--project", str(project))
    async with running_shim(env=environment(FENCEPOST_HOME=str(tmp_path / "none")), program=program) as shim:
        await shim.greet()
        assert told(await shim.call("list_agents", identity=2))["code"] == "not_running"
    assert not (tmp_path / "none").exists()
