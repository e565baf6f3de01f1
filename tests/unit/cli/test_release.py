"""`fencepost agent release` against holders that this test plays."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from fencepost import holds
from fencepost.errors import Refused
from fencepost.sessions.v1 import sessions_pb2 as sessions
from fencepost_testing.shell import AGENT, PROJECT, Shell

COMMAND = ("agent", "release", "ann")


@pytest.fixture
def folder(shell: Shell) -> str:
    agent = sessions.Agent(agent_id=AGENT, project_id=PROJECT, name="ann")
    shell.sessions.answers["get_agent"] = sessions.GetAgentResponse(agent=agent)
    return str(shell.home.agent_folder(AGENT))


@pytest.fixture
def hold(folder: str) -> Iterator[holds.Hold]:
    taken = holds.take(folder, version="1")
    assert isinstance(taken, holds.Hold)
    yield taken
    taken.let_go()


@pytest.mark.requirement("names.release-says-what-happened")
def test_where_nobody_holds_the_name_that_is_said(shell: Shell, folder: str) -> None:
    assert shell(*COMMAND).out.startswith("Nobody holds ann")
    done = shell(*COMMAND, "--json").document
    assert (done["was_held"], done["released"], done["agent_id"]) == (False, True, AGENT)


@pytest.mark.requirement("names.release-says-what-happened")
def test_a_holder_that_lets_go_is_named(shell: Shell, hold: holds.Hold) -> None:
    def serve() -> None:
        while not hold.asked_to_let_go():
            pass
        hold.let_go()

    holder = threading.Thread(target=serve)
    holder.start()
    done = shell(*COMMAND, "--json").document
    holder.join()
    assert (done["was_held"], done["released"], done["pid"]) == (True, True, os.getpid())


@pytest.mark.requirement("names.release-says-what-happened")
def test_a_holder_that_does_not_let_go_is_told_as_still_holding(shell: Shell, hold: holds.Hold) -> None:
    done = shell(*COMMAND, "--timeout-s", "0.1", "--json")
    assert (done.code, done.error["code"], done.error["outcome"]) == (7, "deadline_exceeded", "uncertain")
    assert f"process {os.getpid()}" in done.error["message"]
    assert "still holds it" in done.error["message"]
    assert hold.asked_to_let_go()


@pytest.mark.requirement("names.release-says-what-happened")
@pytest.mark.parametrize("seconds", ["0", "-1", "121", "nan"])
def test_a_wait_outside_its_range_is_refused_and_nobody_is_asked(shell: Shell, hold: holds.Hold, seconds: str) -> None:
    done = shell(*COMMAND, f"--timeout-s={seconds}", "--json")
    assert (done.code, done.error["code"]) == (1, "invalid_timeout")
    assert not hold.asked_to_let_go()


def test_a_name_is_looked_for_in_the_project_that_is_named(shell: Shell, folder: str) -> None:
    here = shell.home.path.parent.resolve()
    shell.sessions.answers["list_projects"] = sessions.ListProjectsResponse()
    done = shell(*COMMAND, "--project", str(here), "--json")
    assert (done.code, done.error["code"]) == (2, "not_found")
    project = sessions.Project(project_id=PROJECT, location=str(here))
    shell.sessions.answers["list_projects"] = sessions.ListProjectsResponse(projects=[project])
    assert shell(*COMMAND, "--project", str(here), "--json").document["was_held"] is False
    assert shell.sessions.asked[-1][1].project_id == PROJECT
    shell.sessions.answers["get_agent"] = Refused("not_found", "no such agent")
    assert shell(*COMMAND, "--project", str(here)).code == 2


def test_an_agent_releases_nobody(shell: Shell, hold: holds.Hold) -> None:
    shell.as_agent()
    assert shell(*COMMAND).code == 3
    assert not hold.asked_to_let_go()
